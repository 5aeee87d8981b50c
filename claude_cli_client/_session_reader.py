"""The reader of a live session: the same loop and ladder, with many turns on one process.

What differs from a one-shot turn is said here and nowhere else:

* A result ends a turn and not the process. The turn is over when the CLI says that its prompt is
  completed or cancelled, which stands behind the result, or `_SETTLE` after it.
* A limit, a `cancel` or a dropped run interrupts the turn and reads on to its result, so that the
  next one never sees old events. If the result does not come within `_INTERRUPT_GRACE`, the
  session is ended.
* A turn has the events from where the CLI begins with its prompt (`command_lifecycle`, "started"):
  until then it may be at its comment on a task, which is in `Session.events` alone. The limits
  count from the prompt on. A CLI that says nothing of that has everything in the turn that is on.
* Between turns there is no limit: a session may wait for its user for days.

Other threads hand it turns by `SessionChannel.turns` and the wake-up.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from . import _channel, _cleanup, _log, _reader
from ._channel import Channel
from ._lines import Oversize
from ._protocol import Answered, Refused
from ._reader import Reader
from ._sync import here
from ._turn import Turn
from .events import Event

_SETTLE: Final = 0.5  # seconds; the lines behind a result come within some milliseconds
_INTERRUPT_GRACE: Final = 8.0  # the CLI needs up to 1.6 s to end a tool that does not want to end


class SessionChannel(Channel):
    """A channel that takes turns, and gives all events to those who listen."""

    is_turn = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.turns: queue.SimpleQueue[Turn] = queue.SimpleQueue()
        self.turn: Turn | None = None  # that is on; the reader's alone
        self.listeners: set[queue.SimpleQueue[list[Event] | None]] = set()
        self.closing: float | None = None  # the grace in seconds
        self.gone = False  # its process has ended: from now on no turn is taken

    def _main(self) -> None:
        here.reads = self
        _reader.read(self, SessionReader)

    def risen(self, error: BaseException) -> None:
        turn = self.turn
        if turn is None:
            _log.unheard(error)
        else:
            turn.events.put(error)

    @property
    def is_ending(self) -> bool:
        return self.cancelled or self.closing is not None or self.gone

    def hurry(self, stopping: bool) -> float | None:
        if self.turn is not None and self.turn.hard:
            return 0.0
        granted = super().hurry(stopping or (self.turn is not None and self.turn.cancelled))
        return max(self.closing, self.grace) if granted is None and self.closing is not None else granted

    def settle(self, stopping: bool) -> list[Event]:
        if self.turn is not None:
            self.note_answer(self.turn.reducer)
        return super().settle(stopping)

    def ask_to_close(self, grace: float) -> None:
        """End of input: the CLI finishes and ends, within `grace` seconds."""
        self.closing = grace if self.closing is None else min(grace, self.closing)
        self.wake.set()


class SessionReader(Reader):
    _channel: SessionChannel

    def __init__(self, channel: SessionChannel) -> None:
        self._closed_input = False
        self._says_when = False  # the CLI tells when it begins with a prompt
        self._cut_short = False  # a turn of it was, so what its tools began may still run
        self._close_grace = 0.0
        super().__init__(channel)

    @property
    def _turn(self) -> Turn | None:
        """The turn that is on."""
        return self._channel.turn

    @_turn.setter
    def _turn(self, turn: Turn | None) -> None:
        self._channel.turn = turn

    def _limit_turn(self, timeout: float | None, idle: float | None, start: float | None) -> None:
        # A process that waits for its first prompt says nothing: no limit until there is a turn.
        super()._limit_turn(None, None, None)

    # --- what other threads want

    def _obey(self) -> None:
        self._take_turns()
        turn = self._turn
        self._notice_interrupt()
        if turn is not None and turn.withdrawn and turn is self._turn:
            self._end_turn()
        if turn is not None and turn.hard:
            self._channel.hard = self._channel.cancelled = True
        elif turn is not None and turn.cancelled and turn is self._turn:  # it may have ended just above
            self._stop_turn(turn, "cancelled", "the turn was cancelled")
            if not turn.said and turn is self._turn:  # nobody will, so no result will come
                self._end_turn()
        closing = self._channel.closing
        if closing is not None and not self._closed_input:
            self._begin_close(closing)
        elif closing is not None and closing < self._close_grace and "exit" in self._at:  # somebody has less time
            self._close_grace = closing
            self._at.set(exit=min(self._at.get("exit", math.inf), monotonic() + closing))
        if "store" in self._at:  # set, or a batch of it is settled; or the wait is shorter now
            self._end_turn()
        if self._channel.cancelled:
            self._stop("cancelled", _cleanup.cancelled("the session was closed"))
            if self._channel.hard:
                self._kill()

    def _notice_interrupt(self) -> None:
        turn = self._turn
        if turn is not None and turn.interrupted:
            self._stop_turn(turn, "", "the turn was interrupted", told=True)
            if turn.untold and turn.stopped and not turn.interrupts and turn.reducer.answer is None:
                self._interrupt(turn)

    def _take_turns(self) -> None:
        while self._turn is None:
            try:
                turn = self._channel.turns.get_nowait()
            except queue.Empty:
                return
            turn.taken = not self._channel.gone
            if self._stopping or self._exited:
                self._close_turn(turn, self._subtype, self._sentence or "the session has ended")
                continue
            if self._closed_input:
                self._close_turn(turn, "cancelled", "the session was closed")
                continue
            self._turn = turn
            turn.waits = self._says_when
            known = self._reducer  # from the turns before: its own `init` comes later, or never
            turn.reducer.session_id, turn.reducer.model = known.session_id, known.model
            super()._limit_turn(turn.timeout, turn.idle_timeout, None)

    def _begin_close(self, grace: float) -> None:
        self._closed_input = True
        self._close_grace = grace
        assert self._duplex is not None
        turn = self._turn
        if turn is not None:
            self._stop_turn(turn, "cancelled", "the session was closed", told=True)
        if self._cut_short:  # this turn; or an earlier one, and the CLI would begin to comment on what ended in it
            self._duplex.ask("interrupt", {"cancel_queued": True}, _Interrupted(self, turn))
        self._duplex.release()
        self._duplex.close_input()
        self._at.set(exit=monotonic() + grace)

    # --- what the CLI says

    def _deliver(self, lines: Sequence[bytes | Oversize]) -> None:
        # What a prompt or an interrupt caused, questions too, may be here before its wake-up.
        self._take_turns()
        self._notice_interrupt()
        super()._deliver(lines)

    def _take_notice(self, events: list[Event], size: int) -> None:
        for event in events:
            if event.type == "system" and event.subtype == "init":
                self._reducer.session_id = event.session_id or self._reducer.session_id
                self._reducer.model = event.model or self._reducer.model
                self._reducer.init = event
        for listener in tuple(self._channel.listeners):
            listener.put(events)
        turn = self._turn
        if turn is None:
            # Before the first turn: a start that fails says why in a result.
            if not self._reducer.answer:
                self._reducer.add(event for event in events if event.type == "result" and event.is_error)
            return
        began = turn.reducer.init
        passed = turn.reducer.add(self._of_turn(turn, events))
        if passed and not (turn.stopped and turn.stopped[0] == "overflow"):  # then what comes is not kept
            turn.produced += size
            turn.events.put((size, passed))
            if turn.produced - turn.consumed > self._launch.max_buffered_bytes:
                self._stop_turn(turn, "overflow", "more output waits for the consumer than max_buffered_bytes")
        if turn.stopped and began is None and turn.reducer.init is not None:
            self._interrupt(turn)  # the first one came before the turn ran, and did nothing
        self._settle(turn, events)

    def _of_turn(self, turn: Turn, events: list[Event]) -> list[Event]:
        """Those of the events that belong to the turn: while it waits, what is said of its prompt alone."""
        mine = []
        for event in events:
            if event.type == "command_lifecycle":
                self._says_when = True
                if event.data.get("command_uuid") == turn.uuid:
                    turn.waits = event.data.get("state") == "queued"
                    turn.begun = not turn.waits
                    mine.append(event)
                    continue
            elif event.type == "result" and turn.waits:  # the line that said "started" may be lost
                turn.waits = not turn.reducer.is_ours(event)
            if not turn.waits:
                mine.append(event)
        return mine

    def _settle(self, turn: Turn, events: list[Event]) -> None:
        """End the turn if its prompt is said to be done, or soon after its result."""
        if "store" in self._at:
            return
        states = [
            event.data.get("state")
            for event in events
            if event.type == "command_lifecycle" and event.data.get("command_uuid") == turn.uuid
        ]
        if "cancelled" in states or turn.reducer.is_complete:
            if turn.reducer.init is None and turn.reducer.answer is None:  # by a request that was not told of the turn
                turn.stopped = turn.stopped or ("", "the turn was interrupted")
            self._end_turn()
        elif turn.reducer.is_over and "settle" not in self._at:
            self._at.set(settle=monotonic() + _SETTLE)

    # --- the end of a turn

    def _limit(self, kind: str, subtype: str, seconds: float | None, remark: str) -> None:
        turn = self._turn
        if turn is None:
            return
        turn.limit = seconds or 0.0
        self._stop_turn(turn, subtype, f"{kind} limit of {seconds:g} s reached; {remark}")

    def _on_total(self) -> None:
        timeout = self._turn.timeout if self._turn is not None else None
        self._limit("the turn's", "timeout", timeout, "change it with timeout=")

    def _idle_limit(self) -> float:
        return (self._turn.idle_timeout if self._turn is not None else None) or 0.0

    def _stop_turn(self, turn: Turn, subtype: str, sentence: str, *, told: bool = False) -> None:
        """Interrupt the turn; its result, or the grace, ends it. The first reason stays.

        `told`: somebody else has put the request.
        """
        if turn.stopped or turn.reducer.answer is not None or "store" in self._at:
            return
        turn.stopped = (subtype, sentence)
        self._cut_short = True
        self._at.unset("total", "idle")
        self._at.set(interrupt=monotonic() + _INTERRUPT_GRACE)
        assert self._duplex is not None
        self._duplex.release(agents=False)  # callbacks first: the CLI waits for those of the turn
        if not told:
            self._interrupt(turn)

    def _interrupt(self, turn: Turn) -> None:
        if turn.interrupts < 3 and self._duplex is not None and not self._exited:
            turn.interrupts += 1
            fields = {"cancel_queued": turn.takes_queue or self._closed_input}
            self._duplex.ask("interrupt", fields, _Interrupted(self, turn))

    def not_interrupted(self, turn: Turn | None, cancelled: Any) -> None:
        """The reply to an interrupt: a prompt that was still in the queue brings no result."""
        if turn is not None and turn is self._turn and isinstance(cancelled, list) and turn.uuid in cancelled:
            self._end_turn()

    def _on_no_result(self) -> None:
        self._stop("cancelled", "the CLI did not end an interrupted turn, so the session was ended")

    def _end_turn(self) -> None:
        """The CLI is done with the turn. Its end is told when the store has it, or has had its time."""
        self._at.unset("total", "idle", "settle", "interrupt")
        if not self._is_held():
            self._tell_end()

    def _is_held(self) -> bool:
        """Whether the turn's end waits for the store. Never longer than `STORE_GRACE`."""
        mirror, turn = self._channel.mirror, self._turn
        if mirror is None or turn is None:
            return False
        if self._exited or self._stopping:
            return True  # until the end of the process, which waits for the store
        if "store" not in self._at:
            mirror.flush()
        if mirror.is_flushed:
            return False
        due = self._at.get("store", monotonic() + _channel.STORE_GRACE)
        if turn.cancelled or turn.interrupted or turn.stopped or self._closed_input:
            due = min(due, monotonic() + self._channel.grace)
        self._at.set(store=due)
        return True

    def _tell_end(self) -> None:
        self._at.unset("store")
        mirror = self._channel.mirror
        if mirror is not None:
            if self._turn is not None:
                self._channel.note_answer(self._turn.reducer)
            restore = self._launch.restore
            told = restore.report() if restore is not None else []
            self._tell([*told, *mirror.report(self._channel.folder.stays, waiting=True)])
        turn, self._turn = self._turn, None
        if turn is not None:
            lost = f"the turn ended without a result{turn.reducer.lost_line(self._launch.max_line_bytes)}"
            subtype, sentence = turn.stopped or ("process", lost)
            self._close_turn(turn, subtype, sentence)
        self._take_turns()

    def _close_turn(self, turn: Turn, subtype: str, sentence: str) -> None:
        answer = turn.reducer.answer
        if turn.stopped and turn.stopped[0] and answer is not None and answer.is_error:
            turn.reducer.answer = None  # the CLI's word for what we did; ours says why
        turn.over(turn.reducer.end(subtype or "interrupted", sentence, self._channel.exit_code))

    def _tell(self, events: list[Event]) -> None:
        for listener in tuple(self._channel.listeners) if events else ():
            listener.put(events)
        if events and self._turn is not None:
            self._turn.events.put((0, events))

    # --- the end of the process

    def _on_lingering(self) -> None:
        if self._closed_input:
            self._stop("cancelled", "the CLI did not end when its input was closed")
        else:
            super()._on_lingering()

    def _ended_well(self) -> bool:
        return self._closed_input and not self._cut_short

    def _end(self) -> None:
        super()._end()
        # `run` puts its turn into the queue and then looks whether the session has ended. So what
        # was put in since `_release` is either found here, or refused there.
        self._take_turns()
        for listener in tuple(self._channel.listeners):
            listener.put(None)

    def _release(self) -> None:
        self._take_turns()
        self._channel.terminal = terminal = self._terminal_event()
        self._channel.gone = True  # before the consumer knows: his next `run` must be refused
        if self._turn is not None:
            turn, self._turn = self._turn, None
            turn.exit_code = self._channel.exit_code
            self._close_turn(turn, *(turn.stopped or (self._subtype, terminal.text or "the session has ended")))
        self._stopping = True
        self._take_turns()
        super()._release()


class _Interrupted:
    """Waits for the reply to an interrupt. Called on the reader's thread, by the reader."""

    def __init__(self, reader: SessionReader, turn: Turn | None) -> None:
        self._reader = reader
        self._turn = turn

    def put(self, answer: Answered | Refused | BaseException, /) -> None:
        if isinstance(answer, Answered):
            self._reader.not_interrupted(self._turn, answer.body.get("cancelled"))


_MORE: Final[dict[str, Callable[[SessionReader], Any]]] = {
    "total": SessionReader._on_total,
    "exit": SessionReader._on_lingering,
    "settle": SessionReader._end_turn,
    "store": SessionReader._tell_end,
    "interrupt": SessionReader._on_no_result,
}
SessionReader.actions = {**Reader.actions, **_MORE}
