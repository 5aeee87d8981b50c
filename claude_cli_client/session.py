"""Session: a live conversation on one process. What the user holds of it.

A turn at a time; its `Run` is like any other. Control requests may be made at any time and from
any thread, callbacks included; they are answered while nobody consumes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from . import _fork
from ._checks import check_prompt, seconds, seconds_or_zero
from ._duplex import Duplex
from ._session_reader import SessionChannel
from ._sync import Deadline, check_timeout, take
from ._turn import Turn
from .client import _IDLE_TIMEOUT, _TIMEOUT, _Given
from .errors import ConcurrencyError, SessionClosedError, TurnCancelled, TurnError
from .events import Event
from .run import Run, answer_of

if TYPE_CHECKING:
    from ._pool import Pool


class Session:
    """One `claude` process and many turns. Made by `Client.session`; a context manager.

    Leaving `with`, `close`, or dropping the last reference to it and its runs ends the process.
    """

    def __init__(self, channel: SessionChannel, duplex: Duplex, pool: Pool, literal: bool, lasts: bool) -> None:
        self._channel = channel
        self._duplex = duplex
        self._pool = pool
        self._literal = literal
        self._lasts = lasts  # whether another process can resume it
        self._era = _fork.era
        self._turn: ref[Turn] | None = None
        self._lock = threading.RLock()  # one turn at a time; held for a few steps
        self._closed = False

    # --- turns

    def run(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        timeout: float | None = _TIMEOUT,
        idle_timeout: float | None = _IDLE_TIMEOUT,
    ) -> Run:
        """Send a prompt and return its turn as an iterator of events.

        Returns at once; behind a turn that was cancelled, interrupted or dropped when that one has
        ended, which is bounded. The turn ends within `timeout` seconds, or after `idle_timeout`
        seconds without a line (a callback of yours that is at work counts as none), and then the
        session goes on. Raises `ConcurrencyError` while another turn is on, and `SessionClosedError`.

        Options belong to `Client.session`: the process has them for all its turns. See `set_model` and
        `set_permission_mode` for what can be changed.
        """
        content = check_prompt(prompt)
        launch = self._channel.launch
        limits = {
            "timeout": launch.timeout if isinstance(timeout, _Given) else timeout,
            "idle_timeout": launch.idle_timeout if isinstance(idle_timeout, _Given) else idle_timeout,
        }
        for name, limit in limits.items():
            if limit is not None:
                seconds(name, limit)
        self._refuse_if_closed()
        turn = Turn(self._channel, self, **limits, on_end=self._ended_turn())
        turn.line = self._duplex.prompt_line(content, turn.uuid, literal=self._literal)
        self._await_unwanted()
        with self._lock:
            current = self._turn() if self._turn is not None else None
            # The terminal event comes an instant before `has_ended`, and who has it may go on.
            if current is not None and current.terminal is None and not current.has_ended:
                raise ConcurrencyError("a turn of this session is on: one at a time")
            self._turn = ref(turn)
        run = Run(turn)  # first: if Ctrl-C comes before it is returned, its end cancels the turn
        # The turn first: its events may come as soon as its prompt is said. Said here and not by the
        # reader, so that a request behind this call stands behind the prompt.
        self._channel.turns.put(turn)
        self._duplex.say(turn.line)
        turn.said = True
        self._channel.wake.set()
        if self._channel.gone and not turn.taken:
            raise self._has_ended() from self._cause()
        return run

    def ask(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        timeout: float | None = _TIMEOUT,
        idle_timeout: float | None = _IDLE_TIMEOUT,
    ) -> Event:
        """Run a turn to its end; the result event. Raises a `TurnError` for one without an answer."""
        return answer_of(self.run(prompt, timeout=timeout, idle_timeout=idle_timeout))

    def map(
        self,
        prompts: Iterable[str | Sequence[Mapping[str, Any]]],
        *,
        timeout: float | None = _TIMEOUT,
        idle_timeout: float | None = _IDLE_TIMEOUT,
    ) -> Iterator[Event]:
        """The result of each prompt, one after the other. A prompt is taken when its turn comes."""
        if isinstance(prompts, str):
            raise TypeError("map takes prompts, and a string is a single one: give a list of it, or use ask")
        return (self.ask(prompt, timeout=timeout, idle_timeout=idle_timeout) for prompt in prompts)

    def events(self) -> SessionEvents:
        """All events from now on, also those that no prompt asked for. Ends with the session.

        What nobody takes from it is kept in memory: close it when you do not need it any more.
        Raises `ConcurrencyError` in a forked child.
        """
        self._refuse_if_forked()
        return SessionEvents(self._channel)

    # --- control

    def request(self, subtype: str, /, *, timeout: float = 60.0, **fields: Any) -> dict[str, Any]:
        """Any control request of the CLI; the body of its reply.

        Blocks until the reply is there, at most `timeout` seconds (`TimeoutError`). Raises
        `ControlError` when the CLI refuses, `SessionClosedError` when it has ended. All requests
        below are such ones: they block for a minute at most, and raise the same.
        """
        check_timeout(timeout)
        self._refuse_if_closed()
        try:
            return self._duplex.request(subtype, fields, timeout)
        except SessionClosedError as error:
            raise self._has_ended(error.message) from self._cause() or error.__cause__

    def interrupt(self) -> None:
        """End the turn that is on, if any; its run ends with `InterruptedTurnError`.

        Blocks until the CLI has taken notice, and raises, as `request` does. When nothing is on it does nothing.
        Background tasks go on, see `stop_task`, and so does what an agent among them asks of your callbacks and tools.
        Of one that ended meanwhile the model hears next, in a turn of its own, which only `events` shows; unless the
        prompt still waited in the CLI's queue, which is emptied then.
        """
        self._refuse_if_closed()
        turn = self._turn() if self._turn is not None else None
        try:
            if turn is not None:
                turn.interrupted = True  # from now on it has a bounded time to end
                self._channel.wake.set()
            body = self.request("interrupt", cancel_queued=turn is not None and turn.takes_queue)
        except BaseException:  # Ctrl-C, perhaps before it was put: then the reader puts it
            if turn is not None:
                turn.untold = True
                self._channel.wake.set()
            raise
        cancelled = body.get("cancelled")
        if turn is not None and isinstance(cancelled, list) and turn.uuid in cancelled:
            turn.withdrawn = True
            self._channel.wake.set()

    def set_model(self, model: str | None) -> None:
        """Another model for the turns to come; None for the default."""
        self.request("set_model", model=model)

    def set_permission_mode(self, mode: str) -> None:
        """Another permission mode, from now on. A question that is open is not answered by it."""
        self.request("set_permission_mode", mode=mode)

    def mcp_status(self) -> dict[str, Any]:
        """The MCP servers and their state: `{"mcpServers": [...]}`."""
        return self.request("mcp_status")

    def context_usage(self) -> dict[str, Any]:
        """What fills the model's context, by category, in tokens."""
        return self.request("get_context_usage")

    def rewind_files(self, message_id: str, dry_run: bool = False) -> dict[str, Any]:
        """Put files back to what they were before this prompt (its `uuid`).

        Needs `enable_file_checkpointing=True`. With `dry_run` it only says what it would do.
        """
        return self.request("rewind_files", user_message_id=message_id, dry_run=dry_run)

    def stop_task(self, task_id: str) -> None:
        """End a background task. Does nothing for one that has ended."""
        self.request("stop_task", task_id=task_id)

    # --- its end

    def close(self, grace: float = 5.0) -> None:
        """End the session: no more input, `grace` seconds to end by itself, then the ladder.

        Blocks until nothing of it is left, bounded. Any thread, callbacks included; idempotent.
        """
        seconds_or_zero("grace", grace)
        _fork.check()
        if self._era is not _fork.era:
            return
        self._closed = True
        if not self._channel.has_ended:
            self._channel.ask_to_close(grace)
            self._channel.wait(grace + self._channel.end_bound)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        channel = self.__dict__.get("_channel")
        if channel is not None:
            channel.cancel()

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a Session belongs to a process of this host and cannot be pickled: resume its session_id")

    # --- facts

    @property
    def session_id(self) -> str:
        """The session's id, "" before the first turn has begun. Changes with `/clear`."""
        return self._channel.reducer.session_id

    @property
    def pid(self) -> int:
        """The process id of the CLI. It means the CLI only until the session is closed."""
        return self._channel.pid

    @property
    def closed(self) -> bool:
        """Whether its process has ended."""
        _fork.check()
        return self._channel.has_ended

    def _refuse_if_forked(self) -> None:
        _fork.check()
        if self._era is not _fork.era:
            raise ConcurrencyError("this session belongs to the parent process: it cannot be used after a fork")

    def _refuse_if_closed(self) -> None:
        self._refuse_if_forked()
        if self._closed:
            raise SessionClosedError("the session is closed")
        if self._channel.gone:
            raise self._has_ended() from self._cause()

    def _has_ended(self, told: str = "") -> SessionClosedError:
        """Why nothing can be asked of it any more, and what helps."""
        cause = self._cause()
        if self._closed or cause is None or isinstance(cause, TurnCancelled):
            return SessionClosedError(told or (cause.message if cause is not None else "the session has ended"))
        remedy = f"; go on with client.session(resume={self.session_id!r})" if self._lasts and self.session_id else ""
        return SessionClosedError(f"{told or f'the session has ended: {cause.message}'}{remedy}")

    def _await_unwanted(self) -> None:
        """A turn that nobody wants is read to its end, and the next one need not know how long that takes.

        Bounded by the time that an interrupted turn has, and the ladder behind it.
        """
        current = self._turn() if self._turn is not None else None
        if current is not None and current.terminal is None and (current.cancelled or current.interrupted):
            current.wait(current.end_bound)
            self._refuse_if_closed()

    def _cause(self) -> TurnError | None:
        terminal = self._channel.terminal
        return None if terminal is None else self._channel.error(terminal)

    def _ended_turn(self) -> Any:
        pool, channel = self._pool, self._channel

        def ended(turn: Turn, terminal: Event) -> None:
            pool.count_lost(channel)
            pool.count(terminal, turn.error(terminal))

        return ended


class SessionEvents(Iterator[Event]):
    """Everything that a session says, to one consumer."""

    def __init__(self, channel: SessionChannel) -> None:
        self._channel = channel
        self._items: queue.SimpleQueue[list[Event] | None] = queue.SimpleQueue()
        self._batch: Iterator[Event] = iter(())
        self._over = False
        self._era = _fork.era
        channel.listeners.add(self._items)
        if channel.has_ended:
            self._items.put(None)

    def __iter__(self) -> SessionEvents:
        return self

    def __next__(self) -> Event:
        _fork.check()
        while not self._over:
            for event in self._batch:
                return event
            if self._era is not _fork.era:
                raise ConcurrencyError("these events belong to the parent process: nobody puts any in after a fork")
            batch = take(self._items, Deadline(None))
            if batch is None:
                self.close()
            else:
                self._batch = iter(batch)
        raise StopIteration

    def close(self) -> None:
        """No more events are kept for it. Idempotent; wakes the thread that waits for one."""
        self._over = True
        self._channel.listeners.discard(self._items)
        self._items.put(None)

    def __del__(self) -> None:
        if hasattr(self, "_over"):
            self._channel.listeners.discard(self._items)
