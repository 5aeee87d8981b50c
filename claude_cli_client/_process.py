"""One CLI process and its group: start, signal, reap. All three in this class, for one reason.

A process id means our child only until it is reaped; after that the kernel may give the number to
anybody. So everything that uses the number is here, and is called by one thread, the run's
reader: it signals only while the leader is unreaped, and then reaps. No lock is needed, because
nobody else does either.

Somebody else may reap all the same (SIGCHLD ignored, a `waitpid(-1)` loop in the host): then the
exit code is unknown (None) and the group is never signalled again; what is left is found by the
marker in its environment (`_cleanup.py`).

The death of the leader is seen without reaping it: by a pidfd, by kqueue's NOTE_EXIT on macOS, or
by a small thread in `waitid(WNOWAIT)` on Linux before 5.3.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from . import _cleanup, _fork

_DYING: Final = 1.0  # seconds from KILL to the end, where nobody can wait in a poll


class Process:
    """A CLI that runs as the leader of its own session. Used by one thread."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        stdin: bytes | None,
        wake: Callable[[], None],
    ) -> None:
        """Start it. Raises what `Popen` raises, and then nothing is left open.

        `stdin` is its whole input, or None: then the attribute `stdin` is the write end of a pipe,
        which the caller takes over.

        `wake` is called (on another thread) when the leader ends, where `exit_fd` is None.
        """
        with _fork.spawning:
            self.pid, self.stdin, self.stdout, self.stderr = _spawn(argv, env, cwd, stdin)
        self.reaped = False
        self.exit_code: int | None = None
        self._stolen = False  # somebody else reaped it
        try:
            self._watch: _Watch | None = None
            self._watch = _watch(self.pid, wake)
        except BaseException:  # no descriptor or thread to be had
            self.abort()
            raise

    def abort(self) -> None:
        """Undo a start that cannot be finished: the child must not outlive the attempt."""
        self.signal_group(signal.SIGKILL)
        until = time.monotonic() + _DYING
        while not self.reap():  # one that hangs in the kernel, or is another user's (`sudo`), is reaped later
            if time.monotonic() > until:
                _cleanup.late.append(self)
                break
            time.sleep(0.001)
        self.close()

    def take_stdin(self) -> int:
        """The write end of stdin: from now on the caller closes it."""
        fd, self.stdin = self.stdin, -1
        return fd

    @property
    def exit_fd(self) -> int | None:
        """Becomes readable when the leader has ended; None: `wake` is called instead."""
        return self._watch.fd if self._watch is not None else None

    def has_ended(self) -> bool:
        """Whether the leader has ended. Does not reap it."""
        if self.reaped or self._stolen:
            return True
        if not hasattr(os, "waitid"):  # macOS before Python 3.13: only the watch knows
            return self._watch is not None and self._watch.has_fired()
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            self._stolen = True
            return True

    def signal_group(self, number: int) -> None:
        """Signal the leader's group, while the number is surely ours."""
        self.has_ended()  # finds out whether it was stolen
        if self.reaped or self._stolen:
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # macOS answers EPERM for a group that has only a zombie in it.
            return

    def reap(self) -> bool:
        """Take the exit code of a leader that has ended; after this its number is not used.

        False: it has not ended. True also when somebody else has reaped it.
        """
        if self.reaped or self._stolen:
            return True
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            self._stolen = True
            return True
        if pid:
            self.reaped = True
            self.exit_code = os.waitstatus_to_exitcode(status)
        return self.reaped

    def await_end(self, seconds: float) -> bool:
        """Wait until the leader has ended, where no loop can do it any more; whether it has."""
        until = time.monotonic() + seconds
        while not self.has_ended() and time.monotonic() < until:
            time.sleep(0.01)
        return self.has_ended()

    def close(self) -> None:
        """Close all descriptors. The pipes may have been closed before, by `close_pipe`."""
        self.close_pipe(self.stdin)
        self.close_pipe(self.stdout)
        self.close_pipe(self.stderr)
        if self._watch is not None:
            self._watch.close(self.reaped or self._stolen)

    @property
    def pipes_ended(self) -> bool:
        return self.stdout < 0 and self.stderr < 0

    def close_pipe(self, fd: int) -> None:
        """Close `stdin`, `stdout` or `stderr`; a second time does nothing."""
        if fd < 0:
            return
        if fd == self.stdin:
            self.stdin = -1
        elif fd == self.stdout:
            self.stdout = -1
        elif fd == self.stderr:
            self.stderr = -1
        _fork.close(fd)


def _spawn(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None, stdin: bytes | None
) -> tuple[int, int, int, int]:
    """Process id, and our ends of its stdin (-1: a file), stdout and stderr.

    Called with `_fork.spawning` held. `start_new_session` and not `preexec_fn`: that forks instead
    of vforking (79 ms from a host of 2 GB) and runs Python between fork and exec, which can deadlock
    in a program with threads.
    """
    out = err = (-1, -1)
    inp = (-1, -1)
    try:
        inp = os.pipe() if stdin is None else (anonymous_file(stdin), -1)
        out = os.pipe()
        err = os.pipe()
        words, variables, folder = (argv, env, cwd) if not _IS_ASCII else _encoded(argv, env, cwd)
        child = subprocess.Popen(
            words, stdin=inp[0], stdout=out[1], stderr=err[1], env=variables, cwd=folder, start_new_session=True
        )
        # We wait for it ourselves: its finaliser must neither warn nor reap.
        child.returncode = 0
        _fork.descriptors.update(fd for fd in (inp[1], out[0], err[0]) if fd >= 0)
        return child.pid, inp[1], out[0], err[0]
    except BaseException:
        _close_all(inp[1], out[0], err[0])
        raise
    finally:
        _close_all(inp[0], out[1], err[1])


# In the C locale. The CLI reads UTF-8 whatever the locale, and `Popen` would refuse all but ASCII there.
_IS_ASCII: Final = sys.getfilesystemencoding() == "ascii"


def _encoded(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> tuple[Any, Any, Any]:
    """As UTF-8. Bytes of a file's name that Python could not decode come out as they went in."""

    def encoded(text: str) -> bytes:
        return text.encode("utf-8", "surrogateescape")

    variables = {encoded(name): encoded(value) for name, value in env.items()}
    return [encoded(word) for word in argv], variables, None if cwd is None else encoded(cwd)


def _close_all(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)


def anonymous_file(content: bytes) -> int:
    """A descriptor at the start of a nameless file with this content: stdin without a writer.

    Nobody has to feed it, it cannot break, it cannot block, and the CLI sees a regular file.
    """
    fd = _nameless_file()
    try:
        written = 0
        while written < len(content):  # `pwrite` leaves the position at the start
            written += os.pwrite(fd, content[written:], written)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _nameless_file() -> int:
    if sys.platform == "linux" and hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("prompt", os.MFD_CLOEXEC)
        except OSError:
            pass  # refused by a sandbox's filter; where descriptors ran out, the next fails too
    path = f"{temporary_base()}/claude_cli_client-prompt-{os.urandom(8).hex()}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return fd


def inherited() -> dict[str, str]:
    """A copy of our environment, which other threads may be changing."""
    while True:
        try:
            return dict(os.environ)
        except (KeyError, RuntimeError):  # in the middle of the copy
            continue


def temporary_base() -> str:
    """The folder for temporary files. `tempfile`, which would know it too, costs 8 ms of import."""
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    for folder in (*filter(None, named), "/tmp", "/var/tmp"):
        if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return os.path.abspath(folder)
    return os.getcwd()


# --- how the leader's end is noticed --------------------------------------------------------------


class _PidfdWatch:
    """Linux: a pidfd is readable from the moment the process has ended."""

    def __init__(self, pid: int, wake: Callable[[], None]) -> None:
        self.fd: int | None = _fork.listed(os.pidfd_open, pid)

    def has_fired(self) -> bool:
        return self.fd is not None and bool(select.select([self.fd], [], [], 0)[0])

    def close(self, has_ended: bool) -> None:
        if self.fd is not None:
            _fork.close(self.fd)
            self.fd = None


class _KqueueWatch:
    """macOS: a kqueue with NOTE_EXIT, itself readable when the event is there."""

    def __init__(self, pid: int, wake: Callable[[], None]) -> None:
        # mypy reads this module as it is on Linux, where `select` has no kqueue.
        kqueue, kevent = getattr(select, "kqueue"), getattr(select, "kevent")  # noqa: B009
        queue = kqueue()
        self._queue = queue
        self._fired = False
        try:
            process, add, note_exit = (
                getattr(select, name) for name in ("KQ_FILTER_PROC", "KQ_EV_ADD", "KQ_NOTE_EXIT")
            )
            change = kevent(pid, process, add, fflags=note_exit)
            queue.control([change], 0, 0)
        except ProcessLookupError:  # it ended before we could ask
            self._fired = True
            wake()
        except BaseException:
            queue.close()
            raise
        self.fd: int | None = queue.fileno()
        # Not listed in `_fork.descriptors`: a kqueue is not inherited by fork.

    def has_fired(self) -> bool:
        self._fired = self._fired or bool(self._queue.control([], 1, 0))
        return self._fired

    def close(self, has_ended: bool) -> None:
        self._queue.close()
        self.fd = None


class _ThreadWatch:
    """Linux without pidfd: one thread in one blocking call, which does not reap.

    It ends with the process, whose end every run sees to; if the process is reaped elsewhere the
    call fails at once.
    """

    fd: int | None = None

    def __init__(self, pid: int, wake: Callable[[], None]) -> None:
        self._fired = False
        self._thread = threading.Thread(
            target=self._wait, args=(pid, wake), name=f"claude-{pid}-exit", daemon=True
        )
        self._thread.start()

    def _wait(self, pid: int, wake: Callable[[], None]) -> None:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            pass  # reaped by somebody else, so it has ended
        self._fired = True
        wake()

    def has_fired(self) -> bool:
        return self._fired

    def close(self, has_ended: bool) -> None:
        if has_ended:  # then its call returns; it has only `wake` left to do
            self._thread.join(1.0)


_Watch = _PidfdWatch | _KqueueWatch | _ThreadWatch


def _watch(pid: int, wake: Callable[[], None]) -> _Watch:
    if sys.platform == "linux" and hasattr(os, "pidfd_open"):
        try:
            return _PidfdWatch(pid, wake)
        except OSError:
            # ENOSYS before Linux 5.3 or behind a seccomp filter; ESRCH: it was reaped elsewhere.
            return _ThreadWatch(pid, wake)
    if sys.platform == "darwin":
        return _KqueueWatch(pid, wake)
    return _ThreadWatch(pid, wake)


TERM: int = signal.SIGTERM
KILL: int = getattr(signal, "SIGKILL", 9)  # Windows has none, and importing must not raise


def how_it_ended(exit_code: int | None, stderr: str) -> str:
    """A sentence about a CLI that gave no result."""
    if exit_code is None:
        return "the CLI ended without a result; its exit code is unknown: somebody else reaped it"
    if exit_code < 0:
        try:
            name = signal.Signals(-exit_code).name
        except ValueError:
            name = f"signal {-exit_code}"
        return f"the CLI was killed by {name} before it gave a result"
    *before, said = stderr.strip().split("\n")[-2:]  # the last line of a refusal is its reason
    if before and said.startswith("("):  # "(Did you mean --name?)"
        said = f"{before[0]} {said}"
    return f"the CLI ended without a result (exit code {exit_code})" + (f": {said[:500]}" if said else "")
