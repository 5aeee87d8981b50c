"""One `claude --version`: started, read, bounded, killed and reaped.

May not do: let anything of the program survive, wait longer than it was told plus the grace, or
cache (that is `discovery.py`'s).

It runs on a thread of its own, as turns do: Ctrl-C inside `Popen` on the caller's thread can lose
the process that was just made. That thread alone starts, signals and reaps; the caller waits for
it in a C `SimpleQueue`, which Ctrl-C leaves in order.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import subprocess
import threading
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from ._sync import Deadline, take
from .errors import CLIVersionError, StartError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TICK: Final = 0.05  # seconds until a dead leader behind open pipes, or Ctrl-C, is noticed
_GRACE: Final = 1.0  # seconds between SIGTERM and SIGKILL: `--version` has no tools to end
_MAX_OUTPUT: Final = 65536  # bytes kept of each pipe; the rest is read and dropped


def ask_version(path: str, timeout: float, env: Mapping[str, str] | None) -> str:
    """What `path --version` calls its version. `env` replaces the environment, None inherits it.

    Raises `OSError` as `Popen` does, `StartError` and `CLIVersionError`; see `cli_version`.
    """
    return _judged(path, _Question(path, timeout, env).ask(), timeout)


@dataclass
class _Answer:
    output: bytes
    stderr: bytes
    code: int  # negative: died of that signal
    late: bool  # it had to be killed


class _Question:
    """`_stop` is set by the asking thread and read by the other one; nothing else is shared."""

    def __init__(self, path: str, timeout: float, env: Mapping[str, str] | None) -> None:
        self._path, self._env = path, env
        self._deadline = monotonic() + timeout
        self._stop = False
        self._outcome: queue.SimpleQueue[_Answer | BaseException] = queue.SimpleQueue()

    def ask(self) -> _Answer:
        """Ends because the other thread looks at the deadline and at `_stop` every tick."""
        thread = threading.Thread(target=self._work, name="claude-version", daemon=True)
        try:
            thread.start()
            outcome = take(self._outcome, Deadline(None))
        finally:
            self._stop = True
            if thread.ident is not None:  # else it sees `_stop` before it starts anything
                thread.join(2 * _GRACE + 1)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _work(self) -> None:
        try:
            self._outcome.put(self._run())
        except BaseException as error:  # noqa: BLE001 - handed to the asking thread, which raises it
            self._outcome.put(error)

    def _run(self) -> _Answer:
        if self._stop:
            raise StartError("interrupted", cli_path=self._path)
        process = subprocess.Popen(
            [self._path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if self._env is None else dict(self._env),
            start_new_session=True,
        )
        try:
            output, stderr = self._read(process)
            while not (ended := _is_dead(process)) and self._in_time():
                sleep(0.002)  # the end of the pipes came first, so this is short
        finally:
            _end(process)
        return _Answer(output, stderr, process.returncode or 0, not ended)

    def _in_time(self) -> bool:
        return not self._stop and monotonic() < self._deadline

    def _read(self, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
        """Both pipes, until the end of both, of the time, or of a leader whose pipes others hold open."""
        assert process.stdout
        assert process.stderr
        kept = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
        poller = select.poll()
        for fd in kept:
            poller.register(fd, select.POLLIN)
        still_open = len(kept)
        while still_open and self._in_time():
            ready = poller.poll(max(0.0, min(_TICK, self._deadline - monotonic())) * 1000)
            if not ready and _is_dead(process):
                break
            for fd, _ in ready:
                block = os.read(fd, 65536)
                if not block:
                    poller.unregister(fd)
                    still_open -= 1
                elif len(kept[fd]) < _MAX_OUTPUT:
                    kept[fd] += block
        output, stderr = kept.values()
        return bytes(output), bytes(stderr)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The group is gone, the leader reaped, the pipes closed. Signals come before the reaping."""
    if not _is_dead(process):
        _signal(process, signal.SIGTERM)
        deadline = monotonic() + _GRACE
        while not _is_dead(process) and monotonic() < deadline:
            sleep(0.005)
    _signal(process, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)  # longer only in an uninterruptible system call
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()


def _is_dead(process: subprocess.Popen[bytes]) -> bool:
    """Has the leader ended? Without reaping it, where that can be asked (macOS: from Python 3.13)."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    if process.returncode is not None:
        return True
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # somebody else reaped it: its number is not ours any more
        process.wait()
        return True


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _judged(path: str, answer: _Answer, timeout: float) -> str:
    """The version, or the error that says what the program did instead of telling it."""
    said = answer.output.decode("utf-8", "replace").strip().partition("\n")[0][:200]
    errors = answer.stderr.decode("utf-8", "replace").strip()[-1000:]
    hints = tuple(f"it said: {text}" for text in (said, errors) if text)
    if answer.late:
        raise StartError(
            f"{path} --version did not end within {timeout:g} s", hints=hints, cli_path=path, retryable=True
        )
    number, _, rest = said.partition(" ")
    if "Claude Code" in rest and number[:1].isdigit():
        return number
    if answer.code:
        from ._exec_errors import why_it_ended

        raise StartError(f"{path} --version {why_it_ended(answer.code, errors)}", hints=hints, cli_path=path)
    raise CLIVersionError(
        f"{path} is not Claude Code: asked for its version it said {said!r}. "
        'Name the right program: cli_path="/path/to/claude"',
        found=said,
        required="Claude Code",
    )
