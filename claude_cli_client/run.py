"""Run: what the user holds of a turn. It takes events from the channel's queue; nothing else.

The channel does not refer to it. So when the last reference goes, the finaliser tells the channel
to cancel (a flag and a wake-up, no lock, no queue, no waiting), and the process ends.

Iterating gives data, `result()` gives judgement: the loop always ends after one terminal event and
never raises for a turn that failed; `result()` turns the terminal event into an exception.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from queue import Empty
from threading import get_ident
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from . import _cleanup, _fork
from ._sync import Deadline, check_timeout, get
from .errors import ConcurrencyError, TurnError
from .events import Event

if TYPE_CHECKING:
    from ._channel import Channel, Item
    from ._turn import Turn


class Run(Iterator[Event]):
    """One turn in progress: an iterator of events, a context manager. Made by `Client.run`.

    Its process has been started and ends by itself, within the limits, whether or not anybody
    iterates. One thread at a time may consume; `cancel`, `close` and the properties may be used
    from any. Leaving `with`, or dropping the last reference, ends an unfinished run.
    """

    def __init__(self, channel: Channel | Turn) -> None:
        self._channel = channel
        self._era = _fork.era
        self._batch: Iterator[Event] = iter(())
        self._consumed_all = False
        self._terminal: Event | None = None
        self._consumers: dict[str, int] = {}
        self._interrupted = False

    # --- events

    def __iter__(self) -> Run:
        return self

    def __next__(self) -> Event:
        """The next event; blocks until there is one. Ends after the terminal event.

        Raises `ConcurrencyError` when another thread consumes, or in a forked child. Ctrl-C starts
        the run's end and comes out at once.
        """
        # What lies ready does no harm, and is given without `_fork.check()`: that would be the most of the cost.
        if self._era is _fork.era:
            for event in self._batch:
                return event
        event_or_none = self._take(None)
        if event_or_none is None:
            raise StopIteration
        return event_or_none

    def next_event(self, timeout: float) -> Event | None:
        """The next event, waiting at most `timeout` seconds for it.

        None: none came in time, or the run is over (then `done` is true).
        """
        check_timeout(timeout)
        if self._era is _fork.era:
            for event in self._batch:
                return event
        return self._take(timeout)

    def _take(self, timeout: float | None) -> Event | None:
        """Wait for the next batch and begin it; None at the end or when none came in time."""
        _fork.check()
        if self._era is not _fork.era:
            raise ConcurrencyError("this run belongs to the parent process: it cannot be consumed after a fork")
        if self._consumed_all:
            return None
        # One atomic operation decides who consumes; a second thread would tear batches apart.
        me = get_ident()
        if self._consumers.get("consumer", me) != me:
            raise ConcurrencyError("another thread is consuming this run; one at a time")
        try:
            if self._consumers.setdefault("consumer", me) != me:
                raise ConcurrencyError("another thread is consuming this run; one at a time")
            _cleanup.end_with_interpreter()
            item = self._wait(Deadline(timeout))
            if item is None:
                return self._finished()
            if isinstance(item, BaseException):  # a callback raised SystemExit or KeyboardInterrupt
                self._channel.cancel()
                raise item
            size, events = item
            self._channel.consumed += size
            self._batch = batch = iter(events)
            event = next(batch)  # no batch is empty
            if event.is_terminal:
                self._terminal = event
            return event
        except Empty:
            return None
        except KeyboardInterrupt:
            self._interrupt()
            raise
        finally:
            if self._consumers.get("consumer") == me:
                self._consumers.pop("consumer", None)

    def _wait(self, deadline: Deadline) -> Item | None:
        """The next item of the queue. Raises `Empty` when none came in time.

        Ctrl-C right behind the wait takes an item away. If that was the mark of the end, none comes
        any more: then the end is seen by the channel.
        """
        events = self._channel.events
        while True:
            try:
                return get(events, deadline.slice())
            except Empty:
                if self._channel.has_ended and events.empty():
                    return None
                if deadline.is_over():
                    raise

    def _finished(self) -> Event | None:
        """The end of the queue; once the terminal event, if Ctrl-C took it away."""
        self._consumed_all = True
        if self._terminal is None:
            self._terminal = self._channel.terminal
            return self._terminal
        return None

    def _interrupt(self) -> None:
        """Ctrl-C: end the run; the second one does not wait for the CLI's own clean-up."""
        self._channel.cancel(hard=self._interrupted)
        self._interrupted = True

    def _unread(self, event: Event) -> None:
        """Put the event that was taken last back: it is the next one again. By the consumer."""
        self._batch = itertools.chain((event,), self._batch)

    def iter_text(self) -> TextIterator:
        """The answer's text as it comes: deltas where there are any, else whole blocks.

        Of the main turn only, not of subagents. Never raises for a turn that failed, it only ends:
        call `result()` after it, which raises then. What a broken stream voided (`retracted`) has been
        given out already: who cannot live with that takes the text from `result()`.
        """
        return TextIterator(self)

    def result(self, timeout: float | None = None) -> Event:
        """The result of the turn; reads (and drops) the events that are left.

        Blocks until the run is over, or raises the builtin `TimeoutError` after `timeout` seconds;
        the run goes on then. Raises a `TurnError` for a turn that brought no answer: its fields
        say why, its `event` is the terminal event. May be called again.
        """
        check_timeout(timeout)
        deadline = Deadline(timeout)
        while not self._consumed_all:
            left = deadline.left()
            event = self.next_event(left) if left is not None else next(self, None)
            if event is None and not self._consumed_all:  # not over, so it is the time that is up
                raise TimeoutError(f"the turn has no result after {timeout} s; the run goes on")
        error = self.error()
        if error is not None:
            raise error
        assert self._terminal is not None  # every queue ends with a terminal event
        return self._terminal

    def error(self) -> TurnError | None:
        """What `result()` would raise, once the run has been read to its end; else None."""
        return None if self._terminal is None else self._channel.error(self._terminal)

    # --- its end

    def cancel(self) -> None:
        """Ask the run to end: TERM, then KILL after 3 s. Returns at once; any thread; idempotent.

        The events that have come stay readable; the terminal event follows when the processes are
        gone (subtype `cancelled`, unless the answer was there already).
        """
        _fork.check()
        self._channel.cancel()

    def close(self) -> None:
        """End the run if it is unfinished, and wait until nothing of it is left.

        Blocks at most some 10 s (20 s in a live session, which may have to be ended first; 3 s more
        where a store hangs), normally as long as the CLI takes to end its tools (2 s). Any thread, idempotent; in a
        forked child it does nothing. Events already delivered stay readable.
        """
        _fork.check()
        if self._era is not _fork.era:
            return
        channel = self._channel
        if channel.has_ended:
            return
        channel.finish()
        try:
            channel.wait(channel.end_bound)
        except KeyboardInterrupt:
            self._interrupt()
            raise

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        channel = self.__dict__.get("_channel")
        if channel is not None:
            channel.cancel()

    # --- facts

    @property
    def session_id(self) -> str:
        """The session's id, "" before the CLI has said it. Resumable only after a result."""
        return self._channel.reducer.session_id

    @property
    def prompt_uuid(self) -> str:
        """The uuid of the prompt, as `Session.rewind_files` takes it; "" in one-shot turns."""
        return self._channel.prompt_uuid

    @property
    def model(self) -> str:
        """The model's full name, "" before the CLI has said it."""
        return self._channel.reducer.model

    @property
    def pid(self) -> int:
        """The process id of the CLI. It means the CLI only until the run is over."""
        return self._channel.pid

    @property
    def done(self) -> bool:
        """Whether the run is over: nothing of it is left, and its events are all there to read."""
        _fork.check()
        return self._channel.has_ended

    @property
    def exit_code(self) -> int | None:
        """The CLI's exit code once it is over; negative: died of that signal; None: not known."""
        return self._channel.exit_code

    @property
    def stderr(self) -> str:
        """The last 64 KiB of what the CLI wrote to stderr so far."""
        return self._channel.stderr

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last line came (or since the start); of a run that is over, until its end."""
        idle = self._channel.idle
        return monotonic() - self._channel.last_line_at if idle is None else idle

    def __repr__(self) -> str:
        state = "done" if self.done else "running"
        return f"<Run {state} pid={self.pid} session_id={self.session_id!r}>"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(
            "a Run belongs to a process of this host and cannot be pickled: "
            "send its session_id and resume there, or send the events"
        )


def answer_of(run: Run) -> Event:
    """What `ask` gives: the result. Nothing of the turn is left when it returns or raises.

    But after Ctrl-C, which must come out at once: then the turn ends behind it, and the exit hook
    waits for that.
    """
    try:
        answer = run.result()
    except KeyboardInterrupt:
        run.cancel()
        raise
    except BaseException:
        run.close()
        raise
    run.close()
    return answer


class Pieces:
    """Tells what of the main turn's text each event adds: a block comes whole behind its deltas."""

    def __init__(self) -> None:
        self._message_id = ""
        self._streamed: list[str] = []  # of that message's block whose deltas are coming

    @property
    def is_streaming(self) -> bool:
        """Whether text has come as deltas whose block has not; an empty one shows nobody anything."""
        return any(self._streamed)

    def of(self, event: Event) -> str:
        """What is new in it, "" where nothing is."""
        if event.parent_tool_use_id:
            return ""
        if event.type == "text_delta":
            if event.message_id != self._message_id:
                self._message_id, self._streamed = event.message_id, []
            self._streamed.append(event.text)
            return event.text
        if event.type == "text":  # of a stream that broke off it has the rest
            streamed = "".join(self._streamed) if event.message_id == self._message_id else ""
            self._streamed = []
            return event.text[len(streamed) :] if event.text.startswith(streamed) else ""
        if event.type == "retracted":
            self._streamed = []
        return ""


class TextIterator(Iterator[str]):
    """Pieces of the answer's text. `close()` ends the run, as closing a generator would."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._pieces = Pieces()

    def __iter__(self) -> TextIterator:
        return self

    def __next__(self) -> str:
        for event in self._run:
            piece = self._pieces.of(event)
            if piece:
                return piece
        raise StopIteration

    def close(self) -> None:
        """End the run and wait for it, bounded; see `Run.close`."""
        self._run.close()
