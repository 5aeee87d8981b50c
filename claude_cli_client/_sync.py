"""Small tools between threads, all safe against Ctrl-C and fork.

Waiting on the user's thread happens only in C (`Lock.acquire`, `SimpleQueue.get`): a
KeyboardInterrupt inside the Python code of `threading.Condition` or `Event` can leave its lock
held, and then nothing ends.
"""

from __future__ import annotations

import math
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from . import _fork
from ._handlers import raise_hosts

if TYPE_CHECKING:
    from ._channel import Channel

_T = TypeVar("_T")


class Deadline:
    """One limit for one operation, passed down to everything that it waits for."""

    __slots__ = ("at",)

    def __init__(self, seconds: float | None) -> None:
        self.at = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Seconds left, never negative; None: no limit."""
        return None if self.at is None else max(0.0, self.at - time.monotonic())

    def slice(self) -> float:
        """Seconds for one wait in C on a thread that Ctrl-C may come to: never long.

        A signal that comes just before such a wait is handled only when the wait ends (2 of 100 that
        were sent at that moment). Whoever waits goes on until `is_over`.
        """
        left = self.left()
        return _SLICE if left is None else min(left, _SLICE)

    def is_over(self) -> bool:
        return self.left() == 0.0


def check_timeout(timeout: object, *, endless: bool = True) -> None:
    """Raises ValueError for what is no time to wait. None is no limit where it may be `endless`; below 0 is as 0.

    Not in `_checks`, which is not imported with the package.
    """
    is_huge = isinstance(timeout, int) and abs(timeout) > sys.float_info.max  # no clock takes it
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and timeout == timeout
    if (is_huge or not is_number) and not (endless and timeout is None):
        none = " (None is no limit)" if endless else ""
        shown = "one of hundreds of digits" if is_huge else f"{timeout!r:.60}"
        raise ValueError(f"timeout must be a number of seconds{none}, not {shown}")


class Deadlines:
    """Those of a loop, by name. Of one thread."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self.next = math.inf  # the earliest

    def set(self, **deadlines: float) -> None:
        self._at.update(deadlines)
        self.next = min(self._at.values(), default=math.inf)

    def unset(self, *names: str) -> None:
        for name in names:
            self._at.pop(name, None)
        self.set()

    def clear(self) -> None:
        self._at.clear()
        self.set()

    def get(self, name: str, default: float) -> float:
        return self._at.get(name, default)

    def __contains__(self, name: str) -> bool:
        return name in self._at

    def due(self, now: float) -> Iterator[str]:
        """Take out those that are over, one by one: what is done for one may set or unset others."""
        for name, at in list(self._at.items()):
            if at <= now and self._at.get(name) == at:
                self.unset(name)
                yield name


def take(items: queue.SimpleQueue[_T], deadline: Deadline) -> _T:
    """The next item; waited for in C, in slices. Raises `queue.Empty` when none came in time."""
    while True:
        try:
            return get(items, deadline.slice())
        except queue.Empty:
            if deadline.is_over():
                raise


def get(items: queue.SimpleQueue[_T], seconds: float) -> _T:
    """One wait in C for the next item. Raises `queue.Empty`.

    `SimpleQueue.get` may find its lock free and its list empty, and then goes on with the time that is
    left: less than none is "for ever" to it (CPython 3.10 with 0, all with some microseconds; seen once
    in CI). So no time is its other form, and a short time is not shorter than a thread may be held up.
    """
    return items.get(timeout=max(seconds, _SHORTEST)) if seconds > 0 else items.get_nowait()


class Latch:
    """Opens once and stays open. A lock that is held until then; it is waited for in C, in slices.

    Ctrl-C right behind `acquire` keeps the lock from the next one who waits: he sees the flag.
    """

    __slots__ = ("_lock", "_open")

    def __init__(self) -> None:
        self._open = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Let everyone through. By one thread at a time; a second time does nothing."""
        if not self._open:
            self._open = True
            self._lock.release()

    def wait(self, seconds: float | None) -> bool:
        """Block until it opens, at most so long; whether it is open."""
        deadline = Deadline(seconds)
        while not self._open:
            if self._lock.acquire(timeout=deadline.slice()):
                self._lock.release()  # the next one who waits
            elif deadline.is_over():
                break
        return self._open


_SLICE = 0.5  # seconds
_SHORTEST = 0.005


class Call:
    """A callback at work: the slot of the run that waits for its answer, and whether it still does."""

    __slots__ = ("cancelled", "slot")

    def __init__(self, slot: object, cancelled: threading.Event) -> None:
        self.slot = slot
        self.cancelled = cancelled


class _Here(threading.local):
    reads: Channel | None = None  # on a reader's thread: the run that it reads
    call: Call | None = None  # on the thread of a callback

    def __init__(self) -> None:  # on each thread, when it first looks
        # Stands for the thread, and never for a later one: thread idents are used again.
        self.mark = object()


here = _Here()


class WakeUp:
    """Makes a thread that polls `fd` look at its flags.

    `set` may be called from any thread at any moment, also by a finaliser: in the middle of
    another `set` or `close` of the same thread. Hence the lock is reentrant, and what it protects
    is only that no byte goes to a descriptor that was closed and given to somebody else. It is
    held across one non-blocking system call.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._era = _fork.era
        self.fd = self._write_fd = -1

    def open(self) -> None:
        """By the thread that polls, which is never the main one.

        Not in the constructor: on the user's thread Ctrl-C may come between the system call and the
        name for its result, and then nobody closes it.
        """
        with _fork.listing:
            if sys.platform == "linux" and hasattr(os, "eventfd"):
                self.fd = self._write_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            else:
                self.fd, self._write_fd = os.pipe()
                os.set_blocking(self.fd, False)
                os.set_blocking(self._write_fd, False)
            _fork.descriptors.update((self.fd, self._write_fd))

    def set(self) -> None:
        """Wake it. Before `open` nothing happens: it looks at its flags before it waits."""
        with self._lock:
            if self._write_fd >= 0:
                try:
                    os.write(self._write_fd, b"\1\0\0\0\0\0\0\0")  # an eventfd takes 8 bytes
                except OSError as error:
                    # Full of wake-ups already. Or closed by the host (`os.closerange`): then the poll says so.
                    raise_hosts(error)

    def clear(self) -> None:
        """Only by the thread that polls, when `fd` is readable."""
        try:
            os.read(self.fd, 4096)
        except BlockingIOError:
            pass

    def close(self) -> None:
        """By the thread that polls, at its end."""
        # In a forked child the copies are closed already, and the lock may be held by a thread that
        # does not exist there: it is not touched.
        if self._era is not _fork.era:
            return
        with _fork.listing, self._lock:  # in this order: a finaliser may call `set` where `listing` is held
            fds = {self.fd, self._write_fd} - {-1}
            self.fd = self._write_fd = -1
            for fd in fds:
                _fork.close(fd)
