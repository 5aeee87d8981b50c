"""Every test is checked for what it leaves behind; and the fixtures of the tests of runs.

`nothing_is_left` looks at descriptors, threads, children and temporary files before and after each
test. The guard is the one thing that may stay: a process with the write end of its pipe and a
nameless file, from the first run on. It is left out by asking the library which these are, so that
a test that ends or replaces the guard is checked like any other.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until

from claude_cli_client import Client, Run, Session
from claude_cli_client._env import NESTING
from claude_cli_client.testing import FakeCLI

if TYPE_CHECKING:
    from claude_cli_client._channel import Channel

# Things may take a moment to go: a thread that has nothing left to do, a zombie not yet reaped.
_PATIENCE = 5.0

# The tests may run inside of a Claude Code session; a run warns of that, once per process.
for _name in NESTING:
    os.environ.pop(_name, None)


def pytest_collection() -> None:
    gc.disable()  # thousands of tests are made, and none goes


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def what_stays_is_not_collected() -> None:
    """Tests and their reports stay to the end. No `gc.collect` of a test looks at them again: 0.2 s each time."""
    gc.collect()
    gc.freeze()


# --- nothing is left ------------------------------------------------------------------------------


def _descriptors() -> dict[int, str]:
    """Number and target of each."""
    if not os.path.isdir("/proc/self/fd"):
        return _descriptors_elsewhere()
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # that of this listing
            continue
    return found


def _descriptors_elsewhere() -> dict[int, str]:
    found = {}
    for name in os.listdir("/dev/fd"):
        try:
            status = os.fstat(int(name))
        except OSError:
            continue
        found[int(name)] = f"{status.st_mode:o} {status.st_dev} {status.st_ino}"
    return found


def _children() -> set[int]:
    """Our children, zombies included."""
    try:
        lists = [f"/proc/self/task/{task}/children" for task in os.listdir("/proc/self/task")]
    except FileNotFoundError:
        return _children_elsewhere()
    found: set[int] = set()
    for path in lists:
        try:
            with open(path) as file:
                found.update(map(int, file.read().split()))
        except FileNotFoundError:
            if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):  # a kernel without it
                return _children_elsewhere()
    return found


def _children_elsewhere() -> set[int]:
    with subprocess.Popen(["ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True) as ps:
        assert ps.stdout is not None
        rows = [line.split() for line in ps.stdout]
    return {int(pid) for pid, parent in rows if int(parent) == os.getpid() and int(pid) != ps.pid}


def _files() -> set[str]:
    """The library's temporary files of this process; others may run tests beside us."""
    prefixes = tuple(f"claude_cli_{kind}-{os.getpid()}-" for kind in ("client", "kept"))
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith(prefixes)}


class _State:
    def __init__(self) -> None:
        guard: Any = sys.modules.get("claude_cli_client._guard")  # imported with the first run
        kept = (guard._pid, guard._pipe_fd, guard._records_fd) if guard else (0, -1, -1)
        self.descriptors = _descriptors()
        for fd in kept[1:]:
            self.descriptors.pop(fd, None)
        self.threads = {thread for thread in threading.enumerate() if thread.is_alive()}
        self.children = _children() - {kept[0]}
        self.files = _files()

    def against(self, before: _State) -> list[str]:
        """What is there that was not, or is not there that was."""
        old, new = before.descriptors.items(), self.descriptors.items()
        found = {
            "descriptors left": sorted(new - old),
            "descriptors closed that were not ours": sorted(old - new),
            "threads left": [thread.name for thread in self.threads - before.threads],
            "children left": [f"{pid} {_command(pid)}" for pid in self.children - before.children],
            "files left": sorted(self.files - before.files),
        }
        return [f"{what}: {which}" for what, which in found.items() if which]


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace")[:200] or "(zombie)"
    except OSError:
        return "(gone)"


# A job in the background of a script is started with SIGINT ignored, one of nohup with SIGHUP, and so
# would be every host that a test sends one to.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)


@pytest.fixture(autouse=True)
def nothing_is_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails the test that leaves something behind, or in which the library reported a fault of its own."""
    before = _State()
    yield
    limit = time.monotonic() + _PATIENCE
    while (left := _State().against(before)) and time.monotonic() < limit:
        gc.collect()  # a kept traceback is a cycle, and may hold a run
        time.sleep(0.005)
    assert not left, "; ".join(left)
    faults = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.name == "claude_cli_client" and record.levelno >= logging.ERROR
    ]
    assert not faults, faults


# --- for the tests of runs ------------------------------------------------------------------------


def _memory() -> str | None:
    """A place in memory where programs can be started. A disk takes 2 ms for the folders of a fake CLI."""
    try:
        noexec = os.statvfs("/dev/shm").f_flag & os.ST_NOEXEC
    except OSError:  # not Linux
        return None
    return "/dev/shm" if not noexec and os.access("/dev/shm", os.W_OK | os.X_OK) else None


_PLACE_OF_FAKES = _memory()


@pytest.fixture
def play() -> Iterator[Callable[..., FakeCLI]]:
    """`play(*steps)` makes a fake CLI. At the end of the test none of its processes may live."""
    fakes: list[FakeCLI] = []

    def make(*steps: Any, **options: Any) -> FakeCLI:
        options.setdefault("directory", _PLACE_OF_FAKES)
        fake = FakeCLI(**options) if "scripts" in options else FakeCLI(steps, **options)
        fakes.append(fake)
        return fake

    yield make
    left = []
    for fake in fakes:
        try:
            until(lambda fake=fake: not fake.directory.exists() or not fake.alive(), timeout=_PATIENCE)
        except AssertionError:
            left += fake.alive()
        fake.close()
    assert not left, f"processes of the fake CLI still lived after the test: {left}"


@pytest.fixture
def graces(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`graces(term=0.2)` shortens what a run gives others before it goes on without them.

    term: from TERM to KILL; exit: from the result to the process's own end; drain: for pipes that
    somebody else holds after the leader's end; sinks: for sinks to catch up; store: for a store.
    """
    from claude_cli_client import _channel, _reader

    places = {
        "term": (_channel, "GRACE"),
        "exit": (_reader, "EXIT_GRACE"),
        "drain": (_reader, "_DRAIN"),
        "sinks": (_channel, "SINK_GRACE"),
        "store": (_channel, "STORE_GRACE"),
    }

    def shorten(**seconds: float) -> None:
        for name, value in seconds.items():
            module, constant = places[name]
            assert hasattr(module, constant)
            monkeypatch.setattr(module, constant, value)

    return shorten


class Clock:
    """The clock of runs, which can be moved on: limits fire without waiting, or are seen not to."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    def move(self, seconds: float, of: Run | Session | Channel) -> None:
        """Later by so much for the reader of this run, which then has looked at the clock and has acted.

        What the CLI said before this call was read at the earlier time.
        """
        channel: Any = of
        while hasattr(channel, "_channel"):  # a turn of a session has its session's reader
            channel = channel._channel
        _go_round(channel)
        self._ahead += seconds
        _go_round(channel)


def _go_round(channel: Channel) -> None:
    """Wait until its reader has gone round its loop, from one wake-up to another."""
    for _ in range(2):
        channel.wake.set()
        until(lambda: not _is_readable(channel.wake.fd), "the reader is awake")


def _is_readable(fd: int) -> bool:
    """-1, of a run that is over, is not."""
    poller = select.poll()
    if fd >= 0:
        poller.register(fd, select.POLLIN)
    return any(state & select.POLLIN for _, state in poller.poll(0))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    from claude_cli_client import _duplex, _mirror, _reader, _session_reader

    clock = Clock()
    for module in (_reader, _duplex, _mirror, _session_reader):
        monkeypatch.setattr(module, "monotonic", clock)
    return clock


@pytest.fixture
def slots_free() -> Callable[[Client], int]:
    """How many slots of a client nobody holds."""
    return lambda client: client._pool.size - len(client._pool._held)
