"""Finding and ending what a CLI left behind, and ending our runs when the interpreter ends.

The CLI starts its tools in sessions of their own, so a signal to its group does not reach them.
Two ways lead to them: the parent links, while the CLI lives (`descendants`), and the marker that
every process of a run inherits in its environment (`_look_for`), however often it forked and
whatever session it made. A number is signalled only through a pidfd that was opened before the
process was recognised, or, where there is none, right after its start time was compared: a recycled
number is somebody else.

`/proc` is Linux. Elsewhere `descendants` asks `ps`, and there is no marker: other processes'
environments cannot be read there.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from . import _fork
from ._sync import here
from .options import MARKER

if TYPE_CHECKING:
    from ._channel import Channel
    from ._process import Process

PROC = "/proc"

# A sweep repeats until it finds nothing, because what it kills may have forked meanwhile; a
# fork bomb must not keep us for ever.
_SWEEPS = 20
# Seconds for what was killed to be dead: it takes a millisecond, and longer only in the kernel.
_DYING = 0.5
# Seconds for a whole sweep. With nothing to find it takes a millisecond.
_SWEEP_BOUND = 1.5


Found = tuple[int, str]  # a process, and when it started: the kernel's ticks, or what `ps` says


def has_proc() -> bool:
    return os.path.exists(f"{PROC}/self/environ")


def start_time(pid: int) -> str:
    """When the process started, as the kernel says; "" when it is gone or there is no /proc."""
    stat = _stat(pid)
    return stat[1] if stat else ""


def descendants(pid: int) -> list[Found]:
    """All processes whose parent links lead to `pid`, which is left out itself."""
    children: dict[int, list[Found]] = {}
    for child, parent, started in _parents():
        children.setdefault(parent, []).append((child, started))
    found: list[Found] = []
    todo = [pid]
    while todo:
        below = children.pop(todo.pop(), [])
        found += below
        todo += [child for child, _ in below]
    return found


def has_members(group: int) -> bool:
    """Whether a process of this group lives; zombies do not."""
    if not has_proc():
        return any(int(row[0]) == group and not row[1].startswith("Z") for row in _ps("pgid=,stat=", 2))
    for pid in _pids():
        fields = _read(f"{PROC}/{pid}/stat", whole=False).rpartition(b")")[2].split()
        if len(fields) > 2 and int(fields[2]) == group and fields[0] not in (b"Z", b"X"):
            return True
    return False


def tools_of(pid: int) -> list[Found]:
    """The descendants; none where the process table cannot be read: out of descriptors, say."""
    try:
        return descendants(pid)
    except OSError:
        return []


def kill(found: Iterable[Found]) -> None:
    """SIGKILL each of these, if it is still the process that was found."""
    found = list(found)
    if not found:
        return
    if not has_proc():  # one look for all: each `ps` is a process
        there = {(pid, started) for pid, _, started in _parents_by_ps()}
        checks = {one[0]: functools.partial(there.__contains__, one) for one in found}
    else:
        checks = {pid: functools.partial(_started_at, pid, started) for pid, started in found}
    _end(checks, time.monotonic() + _DYING)


def _started_at(pid: int, started: str) -> bool:
    return start_time(pid) == started


def sweep(run_id: str) -> None:
    """SIGKILL everything that carries this run's marker.

    It ends when two passes in a row have found nothing and could read everything: what was killed
    may have forked behind the first, and a process in the middle of `exec` shows no environment.
    """
    if not has_proc():
        return
    until = time.monotonic() + _SWEEP_BOUND
    killed: set[int] = set()
    clean = 0
    unclear: list[int] = []
    for _ in range(_SWEEPS):
        found, unclear = _look_for(run_id)
        pids = [pid for pid in found if pid not in killed]  # one that KILL does not end hangs in the kernel
        clean = 0 if pids or unclear else clean + 1
        if clean == 2 or time.monotonic() >= until:
            break
        _end({pid: functools.partial(carries_marker, pid, run_id) for pid in pids}, until)
        killed.update(pids)
        if unclear:
            time.sleep(0.001)  # an exec takes as long
    _known_silent.update(unclear)  # not in an exec: it has cleared its environment


def _look_for(run_id: str) -> tuple[list[int], list[int]]:
    """The processes that carry the marker, and those that cannot tell just now. Zombies do not count."""
    own = os.getpid()
    needle = run_id.encode()
    found, silent = [], []
    for pid in _pids():
        environ = _read(f"{PROC}/{pid}/environ")
        if not environ:
            silent.append(pid)
        elif needle in environ and pid != own and _is_marked(environ, needle):
            found.append(pid)
    return found, [pid for pid in silent if pid not in _known_silent and _is_in_exec(pid)]


def carries_marker(pid: int, run_id: str) -> bool:
    """Whether `run_id` is one element of the list in the marker of this process."""
    return _is_marked(_read(f"{PROC}/{pid}/environ"), run_id.encode())


def _is_marked(environ: bytes, run_id: bytes) -> bool:
    _, name, value = (b"\0" + environ).partition(_MARKER_ENTRY)
    return bool(name) and run_id in value.partition(b"\0")[0].split(b":")


# Processes that never have an environment (the kernel's threads, programs that clear it), so that
# they are waited for once.
# A number that is given to somebody else later costs one process that is not waited for.
_known_silent: set[int] = set()
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD among the flags in /proc/PID/stat


def _is_in_exec(pid: int) -> bool:
    """Whether a process without a visible environment is one of ours that is about to have one."""
    fields = _read(f"{PROC}/{pid}/stat", whole=False).rpartition(b")")[2].split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return False
    older = int(fields[19]) < int(start_time(os.getpid()) or 0)  # than this host, so no run's of it
    if older or int(fields[6]) & _KERNEL_THREAD:
        _known_silent.add(pid)
        return False
    try:
        return os.stat(f"{PROC}/{pid}").st_uid == os.getuid() and not _read(f"{PROC}/{pid}/environ")
    except OSError:
        return False  # gone meanwhile


_MARKER_ENTRY = f"\0{MARKER}=".encode()


def _end(checks: Mapping[int, Callable[[], bool]], until: float) -> None:
    """SIGKILL each process whose check says that it is the one that was meant; wait until they are gone.

    Waiting is bounded, and only where there are pidfds: a dying process is not visible in any other
    way that is certain.
    """
    killed = []
    for pid, is_still_it in checks.items():
        fd = _pidfd(pid)
        try:
            if not is_still_it():
                pass
            elif fd < 0:
                os.kill(pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                killed.append(fd)
                continue
        except (ProcessLookupError, PermissionError):
            pass  # gone meanwhile, or it changed its user: then it is not ours to end
        if fd >= 0:
            os.close(fd)
    until = min(until, time.monotonic() + _DYING)
    for fd in killed:
        death = select.poll()
        death.register(fd, select.POLLIN)
        death.poll(max(0.0, until - time.monotonic()) * 1000)
        os.close(fd)


def _pidfd(pid: int) -> int:
    """A descriptor of the process, which no recycled number can fool; -1 where there is none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, or too old; or it is gone
        return -1


# --- reading the process table --------------------------------------------------------------------


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(PROC) if name.isdigit()]


def _parents() -> list[tuple[int, int, str]]:
    """(pid, parent, start time) of every process."""
    if not has_proc():
        return _parents_by_ps()
    table = []
    for pid in _pids():
        stat = _stat(pid)
        if stat:
            table.append((pid, *stat))
    return table


def _parents_by_ps() -> list[tuple[int, int, str]]:
    return [(int(pid), int(parent), started) for pid, parent, started in _ps("pid=,ppid=,lstart=", 3)]


def _ps(columns: str, count: int) -> list[list[str]]:
    """These columns of the process table, the last of which may hold blanks."""
    import subprocess

    try:
        listing = subprocess.run(
            ["ps", "-A", "-o", columns], capture_output=True, timeout=2, check=False, text=True
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []  # no `ps`: the group is all that can be reached
    rows = (line.split(maxsplit=count - 1) for line in listing.splitlines())
    return [row for row in rows if len(row) == count]


def _stat(pid: int) -> tuple[int, str] | None:
    """Parent and start time from /proc/PID/stat; the name in it may hold anything, even ')'."""
    fields = _read(f"{PROC}/{pid}/stat", whole=False).rpartition(b")")[2].split()
    return (int(fields[1]), fields[19].decode()) if len(fields) > 19 else None


def _read(path: str, whole: bool = True) -> bytes:
    """A file of /proc; b"" when the process is gone or not ours. `whole=False`: it fits one read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        content = part = os.read(fd, 65536)
        while whole and part:
            part = os.read(fd, 65536)
            content += part
        return content
    except OSError:
        return b""
    finally:
        os.close(fd)


# --- processes that did not end ---------------------------------------------------------------------


# Leaders that a SIGKILL did not end in time: stuck in the kernel, on a dead network mount say.
late: list[Process] = []


def reap_late() -> None:
    """Reap those that have ended meanwhile. Called at each start."""
    for _ in range(len(late)):
        try:
            process = late.pop(0)  # so that two readers do not reap the same
        except IndexError:
            return
        if not process.reap():
            late.append(process)


# --- the end of the interpreter -------------------------------------------------------------------


# The CLI needs up to 1.6 s after a TERM to end its tools; the hook has 5 s in all.
_EXIT_GRACE = 2.0
_EXIT_BOUND = 4.5
_EXIT_HURRY = 1.0  # after a second Ctrl-C: KILL, sweep, reap

live: set[Channel] = set()
ending = False  # the hook has run: nothing may start any more
_registered_with: object = None


def end_with_interpreter() -> None:
    """See to it that `live` is ended before the interpreter joins its threads.

    `atexit` is too late: `threading._shutdown` joins non-daemon threads before it, and such a
    thread may wait for an event of ours. `threading._register_atexit` runs earlier, the last
    registered first. `concurrent.futures.thread` registers its own join there when it is imported,
    so when that happened after our registration we register once more. Cheap: called at a run's
    start and whenever its consumer is about to wait.
    """
    global _registered_with
    pools = sys.modules.get("concurrent.futures.thread")
    if _registered_with is None or (pools is not None and _registered_with is not pools):
        register = getattr(threading, "_register_atexit", None)
        if register is None:
            import atexit

            register = atexit.register
        try:
            register(_end_all)
        except RuntimeError:
            return  # the interpreter is ending already: the hook that is registered will see to it
        _registered_with = pools or threading  # not before: Ctrl-C may come in between


def cancelled(what: str) -> str:
    """The sentence for what was cancelled, with the reason where that was the end of the interpreter, and nobody's
    `cancel`. On the thread that reads it."""
    if here.reads is None or not here.reads.at_exit:
        return what
    return f"{what}, since the interpreter is ending; join the threads that use it before the main thread ends"


def _end_all() -> None:
    global ending
    ending = True
    running = list(live)
    for run in running:
        run.at_exit = not run.is_ending
        run.cancel(grace=_EXIT_GRACE)
    try:
        _await(running, _EXIT_BOUND)
    except KeyboardInterrupt:  # somebody does not want to wait for the CLI's own clean-up
        for run in running:
            run.cancel(hard=True)
        _await(running, _EXIT_HURRY)
        raise


def _await(running: Iterable[Channel], seconds: float) -> None:
    until = time.monotonic() + seconds
    for run in running:
        run.wait(max(0.0, until - time.monotonic()))


def _forget_parents_runs() -> None:
    global ending
    ending = False
    live.clear()
    late.clear()


_fork.on_child(_forget_parents_runs)
