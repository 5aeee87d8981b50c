"""The conversation with a CLI whose stdin stays open: who writes, who waits, who answers.

Three sorts of threads meet here, and none of them waits for another while it holds a lock:

* The run's reader hands in each control frame (`receive`) and never blocks: a reply that stood
  behind a blocked reader would never come.
* One writer, `claude-<pid>-writer`, has one blocking call, the write of a whole line. So nobody
  else can be stuck in a full pipe, and Ctrl-C cannot cut a line in two. It ends with the process,
  whose end breaks the pipe, or when stdin is closed.
* Each question of the CLI is answered on a daemon thread of its own, because callbacks may wait
  for hours, for each other, or for a request that they make themselves. A pool with a limit could
  be full of those that wait.

`_state` protects the protocol's state and the two tables. It is held for a few steps, never across
I/O or user code. A waiter is registered before its question can be written; at the end of the
stream everybody who waits is told, at once, with the cause.
"""

from __future__ import annotations

import contextvars
import os
import queue
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any
from typing import Protocol as Protocol_

from . import _fork, _log
from ._protocol import Answered, Asked, Id, Protocol, Refused, Withdrawn
from ._sync import Call, Deadline, here, take
from .errors import ControlError, SessionClosedError

Json = Mapping[str, Any]
Body = Json
Replies = queue.SimpleQueue["Answered | Refused | BaseException"]
# Runs on a thread of its own; the event is set when the answer is not wanted any more.
Handler = Callable[[Json, threading.Event], Body]


class Risen(Exception):
    """A callback raised what must not be swallowed (SystemExit, KeyboardInterrupt).

    The CLI gets `body`; the exception rises in the consumer.
    """

    def __init__(self, body: Body, error: BaseException) -> None:
        super().__init__(error)
        self.body = body
        self.error = error


class Waiter(Protocol_):
    """Gets the one answer to a question. Called on the reader's thread: it must not block."""

    def put(self, answer: Answered | Refused | BaseException, /) -> None: ...


class _Nobody:
    def put(self, answer: Answered | Refused | BaseException, /) -> None:
        return


class _Then:
    """Says the next line when the CLI has agreed to the one before."""

    def __init__(self, duplex: Duplex, line: bytes) -> None:
        self._duplex = duplex
        self._line = line

    def put(self, answer: Answered | Refused | BaseException, /) -> None:
        if isinstance(answer, Answered):
            self._duplex.say(self._line)
        elif isinstance(answer, Refused):
            self._duplex.refusal = f"the CLI refused to begin: {answer.message}"
            self._duplex.close_input()


def _may_be_agents(request: Json) -> bool:
    """Whether a question may be about a call of an agent: of a tool's call it is not told."""
    given = request.get("input") if request.get("subtype") == "hook_callback" else request
    is_agents = isinstance(given, Mapping) and bool(given.get("agent_id"))
    return is_agents or request.get("subtype") == "mcp_message"


class Duplex:
    """Made before the process; `open` when it runs, `end` when its output has ended."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self.on_risen: Callable[[BaseException], object] = _log.unheard  # set by the reader
        self.session_id: Callable[[], str] = str  # set by the reader
        self.slot: object = None  # of the run or session, set before the start
        self.refusal = ""  # why the CLI did not even begin
        self.heard = False  # a control frame has come
        self._context = contextvars.copy_context()  # of the caller, for callbacks
        self._state = threading.RLock()
        self._protocol = Protocol()
        self._waiters: dict[str, Waiter] = {}
        self._calls: dict[Id, tuple[threading.Event, bool]] = {}  # and whether it may be an agent's
        self._ended: BaseException | None = None
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.answered_at = 0.0  # when a callback last came back: from then on the silence is the CLI's
        self._pid = 0
        self._writer: threading.Thread | None = None
        self.input_closed = False

    # --- its life, by the reader

    def open(self, pid: int, fd: int) -> None:
        """The process runs: write to it what was said so far, and from now on."""
        self._pid = pid
        self._writer = threading.Thread(target=self._write, args=(fd,), name=f"claude-{pid}-writer", daemon=True)
        try:
            self._writer.start()
        except RuntimeError:
            self._writer = None
            _fork.close(fd)
            raise

    def close_input(self) -> None:
        """End of input, behind what was said. The CLI finishes what it does and ends. Idempotent."""
        self.input_closed = True
        self._lines.put(None)

    def release(self, *, agents: bool = True) -> None:
        """Nobody wants the answers of the callbacks that run: they can see it and come back.

        Not `agents`: but for those that calls of an agent may wait for. It may live on behind the turn; where it does
        not, and of the turn's own tools, the CLI withdraws the questions itself (seen with 2.1.332).
        """
        with self._state:
            calls = [cancelled for cancelled, may_be_agents in self._calls.values() if agents or not may_be_agents]
        for cancelled in calls:
            cancelled.set()

    def join(self, seconds: float) -> None:
        """Wait for the writer, which has nothing left to do once the process has ended."""
        if self._writer is not None:
            self._writer.join(seconds)

    def end(self, cause: BaseException) -> None:
        """The output has ended: nothing will be answered any more."""
        with self._state:
            self._ended = cause
            waiters = list(self._waiters.values())
            self._waiters.clear()
        for waiter in waiters:
            waiter.put(cause)
        self.release()
        self.close_input()

    @property
    def is_answering(self) -> bool:
        """Whether callbacks are at work whose answers are wanted: the CLI's silence is ours then.

        One that goes on after its answer was withdrawn keeps nobody waiting but itself.
        """
        with self._state:
            return not all(cancelled.is_set() for cancelled, _ in self._calls.values())

    # --- what we say, on any thread

    def say(self, line: bytes) -> None:
        """Hand a whole line to the writer. Never blocks."""
        self._lines.put(line)

    def prompt_line(self, content: str | Sequence[Json], uuid: str, *, literal: bool = False) -> bytes:
        return self._protocol.prompt(content, uuid, literal=literal)

    def begin(self, fields: Json, then: bytes) -> None:
        """Say `initialize`, and `then` when the CLI has agreed; if it does not, nothing, ever.

        A prompt that ran without its hooks would be a check that is silently off.
        """
        self.ask("initialize", fields, _Then(self, then))

    def notify(self, subtype: str, fields: Json) -> None:
        """Put a question whose answer nobody needs; nothing happens where the CLI has ended."""
        try:
            self.ask(subtype, fields, _Nobody())
        except SessionClosedError:
            return  # the progress of a tool, say, which must not fail by it

    def ask(self, subtype: str, fields: Json, waiter: Waiter | None = None) -> Replies:
        """Put a question; the queue gets the one answer, or the cause why none will come."""
        mine: Replies = queue.SimpleQueue()
        with self._state:
            if self._ended is not None:
                raise SessionClosedError(f"the CLI has ended: {self._ended}") from self._ended
            id, line = self._protocol.request(subtype, fields)
            self._waiters[id] = waiter or mine
            self._lines.put(line)
        return mine

    def request(self, subtype: str, fields: Json, timeout: float) -> dict[str, Any]:
        """Ask and wait for the answer, at most `timeout` seconds. Not on the reader's thread.

        Raises `ControlError` when the CLI refuses, `TimeoutError` when it does not answer, and
        `SessionClosedError` when it ends.
        """
        waiter = self.ask(subtype, fields)
        try:
            answer = take(waiter, Deadline(timeout))
        except queue.Empty:
            self._forget(waiter)
            raise TimeoutError(f"the CLI did not answer {subtype!r} within {timeout:g} s") from None
        except BaseException:  # Ctrl-C
            self._forget(waiter)
            raise
        if isinstance(answer, Refused):
            raise ControlError(f"{subtype}: {answer.message}", subtype=subtype, code=answer.code)
        if isinstance(answer, BaseException):
            raise SessionClosedError(f"the CLI ended before it answered {subtype!r}: {answer}") from answer
        return answer.body

    def _forget(self, waiter: Waiter) -> None:
        with self._state:
            for id in [id for id, known in self._waiters.items() if known is waiter]:
                del self._waiters[id]
                line = self._protocol.give_up(id)
                if line is not None:
                    self._lines.put(line)

    # --- what they say, on the reader's thread

    def receive(self, frame: Json) -> None:
        """Take a control frame. Never blocks."""
        self.heard = True
        with self._state:
            item = self._protocol.receive(frame)
            if isinstance(item, Asked):
                cancelled = threading.Event()
                self._calls[item.id] = cancelled, _may_be_agents(item.request)
            waiter = self._waiters.pop(item.id, None) if isinstance(item, (Answered, Refused)) else None
        if isinstance(item, Asked):
            self._answer_on_a_thread(item, cancelled)
        elif isinstance(item, Withdrawn):
            with self._state:
                withdrawn = self._calls.get(item.id)
            if withdrawn is not None:
                withdrawn[0].set()
        elif waiter is not None and item is not None:
            waiter.put(item)

    def _answer_on_a_thread(self, asked: Asked, cancelled: threading.Event) -> None:
        thread = threading.Thread(
            target=self._context.copy().run,
            args=(self._answer, asked, cancelled),
            name=f"claude-{self._pid}-callback",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError:  # no thread to be had: the CLI must not wait for ever
            self._refuse(asked, "the host has no thread for the callback")

    # --- answers, each on its own thread

    def _answer(self, asked: Asked, cancelled: threading.Event) -> None:
        here.call = Call(self.slot, cancelled)
        handler = self._handlers.get(asked.subtype)
        if handler is None:
            self._refuse(asked, f"unsupported request: {asked.subtype}")
            return
        try:
            self._give(asked, handler(asked.request, cancelled))
        except Risen as risen:
            self._give(asked, risen.body)
            self.on_risen(risen.error)
        except BaseException as error:  # noqa: BLE001 - a fault of ours: the CLI must be told
            _log.error("a request of the CLI (%s) could not be answered: %s", asked.subtype, type(error).__name__)
            self._refuse(asked, f"the host failed: {type(error).__name__}")

    def _give(self, asked: Asked, body: Body) -> None:
        with self._state:
            line = self._protocol.answer(asked.id, body)
            self._answered(asked, line)

    def _refuse(self, asked: Asked, why: str) -> None:
        with self._state:
            self._answered(asked, self._protocol.refuse(asked.id, why))

    def _answered(self, asked: Asked, line: bytes | None) -> None:
        """Called with `_state` held."""
        self._calls.pop(asked.id, None)
        self.answered_at = monotonic()
        if line is not None:
            self._lines.put(line)

    # --- the writer

    def _write(self, fd: int) -> None:
        # A host may have set SIGPIPE to its default, which kills. It goes to the thread that writes.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        try:
            while (line := self._lines.get()) is not None:
                view = memoryview(line)
                while view:
                    view = view[os.write(fd, view) :]
        except OSError:
            pass  # the CLI has gone or closed its stdin: its end says why, and tells who waits
        finally:
            _fork.close(fd)
