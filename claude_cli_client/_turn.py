"""One turn of a live session: to its `Run` what a `Channel` is to a one-shot one.

The process belongs to the session and outlives it. What ends here is the turn: by its result, by
an interrupt and then its result, or with the process.
"""

from __future__ import annotations

import queue
import uuid
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

from . import _fork
from ._channel import Channel, Item
from ._reduce import Reducer
from ._sync import Latch, here
from .errors import TurnError
from .events import Event

if TYPE_CHECKING:
    from .session import Session


class Turn:
    """Written by the session's reader, but for `consumed` (its consumer) and the flags (anybody)."""

    def __init__(
        self,
        channel: Channel,
        session: Session,
        *,
        timeout: float | None,
        idle_timeout: float | None,
        on_end: Callable[[Turn, Event], None],
    ) -> None:
        self.uuid = self.prompt_uuid = str(uuid.uuid4())
        self.line = b""  # the prompt
        self.said = False  # the prompt; not where Ctrl-C came in between
        self.taken = False  # by the reader, while the process was there
        self.waits = False  # the CLI has not begun with it: what comes is another's
        self.begun = False  # it has said so
        self.timeout = timeout
        self.idle_timeout = idle_timeout
        self.events: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self.consumed = 0
        self.produced = 0
        self.idle: float | None = None  # seconds from the last line to the end
        self.reducer = Reducer(resumed=True, prompt_uuid=self.uuid)
        self.odd = channel.odd
        self.terminal: Event | None = None
        self.exit_code: int | None = None
        self.limit = 0.0
        self.launch = channel.launch
        # Why it is stopped: subtype and sentence of the terminal event, "" for the CLI's own word.
        self.stopped: tuple[str, str] | None = None
        self.interrupts = 0
        self.ended = Latch()
        self._channel = channel
        self._session: Session | None = session  # which must live as long as its turn
        self._on_end = on_end
        self._era = _fork.era
        self._began_at = monotonic()
        # Set by any thread, read by the reader after a wake-up. Only ever set, never taken back.
        self.cancelled = False
        self.hard = False
        self.interrupted = False  # the CLI is being told already, see `Session.interrupt`
        self.untold = False  # perhaps: the CLI of that interrupt
        self.withdrawn = False  # it was still in the CLI's queue, and now is not

    # Before the ladder the CLI has `_INTERRUPT_GRACE` (8 s) to end the turn.
    end_bound: Final = Channel.end_bound + 10.0

    def cancel(self, *, grace: float | None = None, hard: bool = False) -> None:
        """Ask the reader to interrupt the turn; returns at once. `hard`: end the session instead."""
        if self._era is not _fork.era:
            return
        self.cancelled = True
        self.hard = self.hard or hard
        self._channel.wake.set()

    @property
    def takes_queue(self) -> bool:
        """Whether an interrupt takes back what is in the CLI's queue: the prompt, until the CLI has begun with it.

        Later only notices of tasks are there, of which the model would never hear (seen with 2.1.332).
        """
        return not self.begun

    def finish(self) -> None:
        """Nobody wants more of this run. A cancel also cuts short what waits for a store."""
        if self.reducer.answer is None or self._channel.mirror is not None:
            self.cancel()

    def wait(self, seconds: float | None) -> bool:
        return self._era is _fork.era and self.ended.wait(0 if here.reads else seconds)

    @property
    def has_ended(self) -> bool:
        return self.wait(0)

    @property
    def pid(self) -> int:
        return self._channel.pid

    @property
    def stderr(self) -> str:
        return self._channel.stderr

    @property
    def last_line_at(self) -> float:
        """What was before the turn is none of its silence."""
        return max(self._channel.last_line_at, self._began_at)

    def error(self, terminal: Event) -> TurnError | None:
        return self._channel.verdict_on(terminal, self.reducer, self.limit)

    def over(self, terminal: Event) -> None:
        """By the reader, once: the turn has ended."""
        self.terminal = terminal
        self.idle = monotonic() - self.last_line_at
        self._session = None
        try:
            self._on_end(self, terminal)
        except BaseException as error:  # noqa: BLE001 - whoever waits must be woken
            self._channel.faults.append(f"while ending a turn: {type(error).__name__}")
        self.events.put((0, [terminal]))
        self.ended.open()  # before the mark of the end, as a channel does
        self.events.put(None)
