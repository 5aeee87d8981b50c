"""Programs that use the library and die: each test of guard, fork and exit starts such hosts.

A host is a Python program of its own, started with a preamble that has the exceptions of the library,
`client` (of a `FakeCLI`), `say` (a line to the test) and `hear` (waits for a word from the test). What
else it needs it imports itself: all of the library would take as long again.
What it writes to stderr is kept for the failure message. Nothing here sleeps to synchronise: the
test waits for what a host says, or polls for a process that must be gone.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import DEADLINE, is_running, until

from claude_cli_client.testing import FakeCLI

ROOT = Path(__file__).resolve().parent.parent
GUARD_NAME = b"claude-cli-client-guard"
# The promise is five seconds of a machine that runs; one of CI may stand still for some of them. What
# nobody ends lives for minutes.
GONE = 10.0

_PREAMBLE = """
import atexit, gc, os, signal, sys, threading, time
from claude_cli_client import Client
from claude_cli_client.errors import *
from claude_cli_client import _cleanup, _fork, _guard, _process, _sync

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

_heard = b""

def hear(word):
    global _heard
    while word.encode() not in _heard:
        part = os.read(0, 4096)
        if not part:
            raise EOFError(word)
        _heard += part

def thread(target, *args, daemon=False):
    new = threading.Thread(target=target, args=args, daemon=daemon)
    new.start()
    return new

# A fake has trapped signals and started children sooner than a CLI has done anything.
_guard.STARTING = 0.0

client = Client(cli_path=os.environ.get("FAKE_CLI"), max_concurrent=int(os.environ.get("SLOTS", "32")))
"""


class Host:
    """One such program. As a context manager it is killed at the end, whatever happened."""

    def __init__(
        self,
        source: str,
        fake: FakeCLI | None = None,
        *,
        env: Mapping[str, str | None] | None = None,
        first: str = "",
        flags: tuple[str, ...] = (),
    ) -> None:
        """`first` is run before anything of the library is imported."""
        variables: dict[str, str | None] = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        if fake is not None:
            variables["FAKE_CLI"] = str(fake.path)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `__exit__`
        self._said = b""
        program = textwrap.dedent(first) + _PREAMBLE + textwrap.dedent(source)
        self.process = subprocess.Popen(
            [sys.executable, *flags, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={name: value for name, value in variables.items() if value is not None},
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self, timeout: float = DEADLINE) -> str:
        """The next line that it says."""
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        limit = time.monotonic() + timeout
        while b"\n" not in self._said:
            if not select.select([fd], [], [], max(0.0, limit - time.monotonic()))[0]:
                raise AssertionError(f"the host said nothing for {timeout} s: {self.complaints()}")
            part = os.read(fd, 65536)
            assert part, f"the host ended: {self._said!r} {self.complaints()}"
            self._said += part
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def expect(self, line: str, timeout: float = DEADLINE) -> None:
        said = self.line(timeout)
        assert said == line, f"{said!r} and not {line!r}: {self.complaints()}"

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def end(self, timeout: float = DEADLINE) -> int:
        """Wait for its end; the exit code."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the host lives after {timeout} s: {self.complaints()}") from None

    def lines(self, timeout: float = DEADLINE) -> list[str]:
        """What it says until its end."""
        found = []
        assert self.process.stdout is not None
        limit = time.monotonic() + timeout
        while select.select([self.process.stdout], [], [], max(0.0, limit - time.monotonic()))[0]:
            part = os.read(self.process.stdout.fileno(), 65536)
            if not part:
                found = self._said.decode().split("\n")
                return [line for line in found if line]
            self._said += part
        raise AssertionError(f"the host goes on: {self._said!r} {self.complaints()}")

    def complaints(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace")[-4000:]

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:  # what was told last, to one that had died
            pass
        self.process.stdout.close()
        self._stderr.close()


def guards_of(pid: int) -> list[int]:
    """The guards whose parent is this process. One whose host died has another parent."""
    return [guard for guard, parent in _guards() if parent == pid]


def _guards() -> Iterator[tuple[int, int]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and GUARD_NAME in read(f"/proc/{name}/cmdline"):
            stat = read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if stat and stat[0] != b"Z":
                yield int(name), int(stat[1])


def guard_of(host: Host) -> int:
    """Its only guard. In the middle of its exec a process has no name yet."""
    until(lambda: guards_of(host.pid), "the host has a guard")
    (guard,) = guards_of(host.pid)
    return guard


def read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def started(pid: int) -> str:
    """Its start time in the kernel's ticks."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19].decode()


def gone(fake: FakeCLI, timeout: float = GONE) -> float:
    """Wait until nothing of the fake lives; the seconds that it took."""
    begin = time.monotonic()
    until(lambda: not fake.alive(), "processes of the CLI live on", timeout=timeout)
    return time.monotonic() - begin


def dead(pid: int, timeout: float = GONE) -> None:
    until(lambda: not is_running(pid), f"process {pid} is gone", timeout=timeout)


@contextmanager
def process(*argv: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A helper process that is killed at the end."""
    with subprocess.Popen(argv, **options) as started:
        try:
            yield started
        finally:
            started.kill()
