"""Waiting in tests: for a condition with a deadline, and for calls on other threads.

Conditions are polled only where nothing can tell: that a process is gone, that a thread sleeps in a
lock. What a script of `FakeCLI` does is told by `ready` and `release`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from claude_cli_client.testing import FakeCLI

DEADLINE = 10.0  # seconds: for a machine under load; nothing that is waited for takes one
_POLL = 0.002


def until(condition: Callable[[], Any], what: str = "", timeout: float = DEADLINE) -> Any:
    """The first true value of `condition`; an AssertionError if there is none in time."""
    limit = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > limit:
            raise AssertionError(f"not within {timeout} s: {what or condition}")
        time.sleep(_POLL)
    return value


def is_running(pid: int) -> bool:
    """Whether the process lives. A zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Background:
    """A call on a thread of its own. `result` gives what it returned, or raises what it raised."""

    def __init__(self, call: Callable[..., Any], *args: Any, **named: Any) -> None:
        self._call, self._args, self._named = call, args, named
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        try:
            self._value = self._call(*self._args, **self._named)
        except BaseException as error:  # noqa: BLE001 - raised again where the test wants it
            self._error = error
        finally:
            del self._call, self._args, self._named

    @property
    def is_waiting(self) -> bool:
        return self._thread.is_alive()

    def result(self, timeout: float = DEADLINE) -> Any:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"still running after {timeout} s"
        if self._error is not None:
            raise self._error
        return self._value


def until_gone(fake: FakeCLI) -> None:
    """The fake CLI has been started, and neither it nor a child of it lives."""
    until(lambda: fake.calls and not fake.alive(), "its processes are gone")
