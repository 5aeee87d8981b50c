"""What clients that share slots share: the slots, the runs in progress, the totals.

`_lock` protects all of it, is held for a few bytecodes, and never across I/O, user code or a wait.
It is reentrant for signal handlers, which may call `close` in the middle of anything.

A slot is taken if and only if its object is in `_held`; who waits sleeps in a lock of his own (one
C call) that the giver opens after he has moved the slot over. So what is true stands in shared
data and not in how far some thread got: Ctrl-C or a timeout at any point of `take` leaves a slot
that `give_back` (idempotent) returns, or a waiter that is no longer in the line.

On the thread of a run that holds a slot it is safe to wait for another one: runs end by
themselves, whether or not anybody consumes them. A live session does not, and a run does not whose
callback waits. So a thread whose own sessions hold all slots would wait for itself, and so would
several such threads, and callbacks of all the runs that hold them, for each other: who closes the
circle is told so. A session whose end has begun comes free by itself.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from . import _fork
from ._sync import Call, Deadline, Latch, here
from .errors import ClientClosedError, ConcurrencyError, SlotTimeoutError, TurnCancelled, TurnError
from .events import Event

if TYPE_CHECKING:
    from ._channel import Channel
    from .totals import Totals


# Of what a turn says about itself, what is added up.
_SUMS = ("cost_usd", "input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")


class Slot:
    """One place among `max_concurrent`. Made before it is taken, so that it can be given back."""

    __slots__ = ("call", "opened", "session", "thread", "waiter")

    def __init__(self, *, by_session: bool = False) -> None:
        self.opened = Latch()  # a waiter sleeps in it; opened by the giver
        # Of a live session: the thread that opened it, and its channel once there is one.
        self.thread = here.mark if by_session else None
        self.session: Channel | None = None
        # While it is waited for without a limit: the thread that waits, and the call it answers if it does.
        self.waiter: object = None
        self.call: Call | None = None

    @property
    def comes_free(self) -> bool:
        """Whether the end of its session has begun."""
        return self.session is not None and self.session.is_ending


class Pool:
    def __init__(self, size: int) -> None:
        self.size = size
        self.closed = False
        self.begin_anew()
        _pools.add(self)

    def begin_anew(self) -> None:
        """Also in every forked child: slots, runs and totals are the parent's."""
        self._lock = threading.RLock()
        self._held: set[Slot] = set()
        self._line: deque[Slot] = deque()
        self._running: set[Channel] = set()
        self._turns = 0
        self._cancelled = 0
        self._failures: dict[str, int] = {}
        self._sums: dict[str, float] = {}
        self._not_stored = 0

    # --- slots

    def take(self, slot: Slot, timeout: float | None) -> None:
        """Block until there is a place, at most so long.

        Raises `SlotTimeoutError`, `ClientClosedError`, and without a timeout `ConcurrencyError`
        where none could ever come free. Whatever it raises, the caller must then `give_back` the slot.
        """
        with self._lock:
            self._refuse_if_closed()
            if len(self._held) < self.size and not self._line:
                self._held.add(slot)
                return
            if timeout is None:
                slot.waiter, slot.call = here.mark, here.call
                self._refuse_to_wait_for_oneself(slot)
            self._line.append(slot)
        deadline = Deadline(timeout)
        while slot not in self._held and not self.closed:  # also where Ctrl-C kept the giver from opening
            if slot.opened.wait(deadline.slice()) or deadline.is_over():
                break
        with self._lock:
            self._refuse_if_closed()
            if slot not in self._held:
                raise SlotTimeoutError(
                    f"all {self.size} slots (max_concurrent) stayed taken for {timeout} s (slot_timeout)",
                    slot_timeout=timeout or 0.0,
                    max_concurrent=self.size,
                )

    def _refuse_to_wait_for_oneself(self, slot: Slot) -> None:
        """Called with `_lock` held."""
        waiting = [slot, *(other for other in self._line if other.waiter is not None)]
        threads = {other.waiter for other in waiting}
        calls = [other.call for other in waiting if other.call is not None]
        runs = {call.slot for call in calls if not call.cancelled.is_set()}
        if all((held.thread in threads or held in runs) and not held.comes_free for held in self._held):
            raise ConcurrencyError(
                f"all {self.size} slots (max_concurrent) are held by sessions of threads that wait for a slot, this "
                "one among them, or by runs whose callbacks wait for a slot, so none would ever come free: close a "
                "session or use it for the prompt; in a callback use another client; or give slot_timeout"
            )

    def try_take(self, slot: Slot) -> bool:
        """Take a place if there is one now. Raises `ClientClosedError`."""
        with self._lock:
            self._refuse_if_closed()
            if len(self._held) >= self.size or self._line:
                return False
            self._held.add(slot)
            return True

    def give_back(self, slot: Slot) -> None:
        """The slot is not needed (any more): the first in the line gets it. Idempotent."""
        with self._lock:
            self._held.discard(slot)
            if slot in self._line:  # also of one who has the slot, where the giver was interrupted
                self._line.remove(slot)
            while self._line and len(self._held) < self.size:
                following = self._line[0]  # taken out last: an interrupted giver loses nobody
                self._held.add(following)
                following.opened.open()
                self._line.popleft()

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise ClientClosedError("this client is closed")

    # --- runs

    def began(self, channel: Channel) -> None:
        """A run is about to start. Raises `ClientClosedError`."""
        with self._lock:
            self._refuse_if_closed()
            self._running.add(channel)

    def start_failed(self, slot: Slot, channel: Channel | None) -> None:
        """Give back, in reverse order, what was taken for a run or session: by the reader, once there is one."""
        if channel is None:
            self.give_back(slot)
        elif not channel.begun:
            self.ended(channel, slot, None)
        else:
            channel.cancel()

    def ended(self, channel: Channel, slot: Slot, terminal: Event | None) -> None:
        """A run is over (None: it never started). On its reader's thread, once."""
        try:
            self._running.discard(channel)
            self.count_lost(channel)
            if terminal is not None and channel.is_turn:
                self.count(terminal, channel.error(terminal))
        finally:
            self.give_back(slot)

    def count(self, terminal: Event, error: TurnError | None) -> None:
        """Add a turn to the totals."""
        with self._lock:
            self._turns += 1
            self._cancelled += isinstance(error, TurnCancelled)
            if error is not None:
                name = type(error).__name__
                self._failures[name] = self._failures.get(name, 0) + 1
            for name in _SUMS:
                self._sums[name] = self._sums.get(name, 0) + (getattr(terminal, name) or 0)
            self._sums["unknown_cost"] = self._sums.get("unknown_cost", 0) + (terminal.cost_usd is None)

    def count_lost(self, channel: Channel) -> None:
        """Add what the store did not take. Of a session after each turn, and at its end."""
        with self._lock:
            self._not_stored += channel.newly_lost()

    def totals(self) -> Totals:
        from .totals import Totals

        with self._lock:
            sums: dict[str, Any] = dict(self._sums)
            counts = {"turns": self._turns, "cancelled": self._cancelled, "not_stored": self._not_stored}
            return Totals(failures=dict(self._failures), **counts, **sums)

    def close(self, timeout: float) -> None:
        """Refuse what is new, wake those who wait, end the others; blocks at most `timeout` s."""
        with self._lock:
            self.closed = True
            running = list(self._running)
            waiting = list(self._line)
            self._line.clear()
        for slot in waiting:
            slot.opened.open()
        for channel in running:
            channel.cancel()
        until = time.monotonic() + timeout
        for channel in running:
            channel.wait(max(0.0, until - time.monotonic()))


_pools: WeakSet[Pool] = WeakSet()


def _begin_anew() -> None:
    for pool in _pools:
        pool.begin_anew()


_fork.on_child(_begin_anew)
