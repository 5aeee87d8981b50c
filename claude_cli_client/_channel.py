"""What threads share of one turn: the handle that users' threads hold of its reader.

A run has one thread of its own, the reader (`_reader.py`), which does everything the run has to do
while it lasts. Here is what the others see of it, and there is no lock:

* They ask the reader for something by setting a flag that is never taken back and the wake-up,
  both safe at any moment, in a finaliser too (`cancel`).
* It tells them by one `SimpleQueue` of lists of events, unbounded: a reader that pauses makes the
  CLI drop what it cannot write. And by attributes that it alone writes, each in one step.
* Neither it nor this refers to the `Run`, so a run that nobody refers to is collected, and its
  finaliser cancels.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from . import _cleanup, _fork, _log
from ._files import PrivateFolder
from ._lines import Odd
from ._reduce import Reducer
from ._sync import Deadline, Latch, WakeUp, here, take
from ._verdict import Facts, verdict
from .discovery import known_version, refused, remember_version, start_error
from .errors import ClientClosedError, TurnError
from .events import Event

if TYPE_CHECKING:
    from ._duplex import Duplex
    from ._mirror import Mirror
    from ._restore import Restore
    from ._sinks import Sinks

GRACE: Final = 3.0  # seconds from TERM to KILL: the CLI needs up to 1.6 s to end its tools
SINK_GRACE: Final = 2.0  # for sinks to catch up, at the end
STORE_GRACE: Final = 30.0  # for a store, which may be failing over; less when somebody wants to leave


class Launch:
    """Everything a channel needs to know, checked and encoded before anything starts.

    Filled by name and never changed. A dataclass of this size costs 1 ms of import.
    """

    run_id: str
    # Both make what needs a private file (long texts, a throw-away configuration) in the folder.
    argv: Callable[[PrivateFolder], Sequence[str]]
    env: Callable[[PrivateFolder], Mapping[str, str]]
    prompt: bytes  # in text mode, the whole of stdin
    duplex: Duplex | None = None  # in streaming mode, what talks to the CLI
    prefix: str = ""  # the program that is started in its place, which may hide the marker of the run
    cwd: str | None = None
    timeout: float | None = None
    idle_timeout: float | None = None
    start_timeout: float | None = None
    background_timeout: float | None = None  # None: a turn has one result and no tasks behind it
    resumed: bool = False
    kill_leftovers: bool = False
    max_line_bytes: int = 1 << 28
    max_buffered_bytes: int = 1 << 29
    line_sink: Any = None  # a function or a file
    on_stderr: Callable[[str], object] | None = None
    restore: Restore | None = None  # what will bring the session to go on with from its store
    # With a store: made from the environment of the process, and the wake-up of its reader.
    mirror: Callable[[Mapping[str, str], WakeUp], Mirror] | None = None
    wants_schema: bool = False
    cli_path: str = ""
    shown: Callable[[], str] = staticmethod(str)  # the command without secrets

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)


# Bytes that the events took on the wire, and the events; or what a callback raised, to rise in the
# consumer.
Batch = tuple[int, list[Event]]
Item = Batch | BaseException


class Channel:
    """Starts with `start`; ends by itself or by `cancel`."""

    is_turn = True  # what ends with it is a turn
    # The longest way from a cancel to the end: the ladder's grace (3 s), a leader that does not die
    # of KILL (2 s), pipes that stay open (0.5 s), a store (the grace again), sinks (2 s), and what a
    # loaded machine adds.
    end_bound: Final = 13.0
    prompt_uuid = ""  # of the prompt, where the CLI was told one that means something later

    def __init__(self, launch: Launch, on_end: Callable[[Channel, Event | None], None]) -> None:
        """`on_end` is called once, when the run is over (None: it never started)."""
        self.launch = launch
        self.on_end = on_end
        self.events: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self.begun = False  # `start` was called: from then on `on_end` sees to what was taken
        self.consumed = 0  # bytes; written by the consumer alone
        # Written by the reader alone.
        self.pid = 0
        self.reducer = Reducer(resumed=launch.resumed)
        self.odd = Odd()
        self.exit_code: int | None = None
        self.terminal: Event | None = None
        self.limit = 0.0  # seconds of the limit that ended the run
        self.last_line_at = monotonic()
        self.idle: float | None = None  # seconds from the last line to the end
        self.stderr_tail = b""
        self.started: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self.ended = Latch()
        # Set by any thread, read by the reader after a wake-up. Only ever set, never taken back.
        self.cancelled = False
        self.hard = False
        self.at_exit = False  # it is the exit hook that has ended it, and nobody before that
        self.grace = GRACE
        self.wake = WakeUp()
        # Taken at the start, given back by `release`.
        self.folder = PrivateFolder(launch.run_id)
        self.sinks: Sinks | None = None
        self.mirror: Mirror | None = None
        # To be logged when everybody has been told: a handler may block.
        self.remarks: list[str] = []
        self.faults: list[str] = []  # of ours
        self._claim = threading.Lock()
        self._starter = here.mark  # the thread that makes it starts it, too
        self._era = _fork.era

    def start(self) -> None:
        """Start the process; blocks until it runs. Raises what starting it raised, a `StartError` where the system
        refused. That is said by the reader's thread; in this one only Python's own word for a thread that cannot be
        had is taken for it: all else that rises here is a signal handler's.

        `on_end` is called exactly once for it, whatever happens: here only if no thread started.
        """
        _cleanup.end_with_interpreter()
        thread = threading.Thread(target=self._main, name="claude-reader", daemon=True)
        try:
            self.begun = True  # inside: after it nobody but this gives back what was taken
            # First listed, then looked: either the exit hook finds this run, or this sees that it ran.
            _cleanup.live.add(self)
            if _cleanup.ending:
                raise ClientClosedError("the interpreter is ending: no new runs")
            try:
                thread.start()
            except RuntimeError as error:
                if isinstance(error.__context__, KeyboardInterrupt):  # in the middle of it
                    raise error.__context__ from None
                raise refused(self.launch.cli_path, error) from error
            trouble = take(self.started, Deadline(None))  # the thread always says
        except BaseException:  # also Ctrl-C, or no thread to be had: nobody gets this run to end it
            self.cancel()
            if self.claim():
                self.release()
                self.over(None)
            raise
        if trouble is not None:
            thread.join(1.0)  # it has nothing left to do
            if isinstance(trouble, (OSError, RuntimeError, ImportError)):
                raise start_error(self.launch.cli_path, trouble, self.launch.prefix) from trouble
            raise trouble

    def _main(self) -> None:
        """The reader's thread."""
        from ._reader import Reader, read  # which imports this module

        here.reads = self
        read(self, Reader)

    def risen(self, error: BaseException) -> None:
        """A callback raised SystemExit or KeyboardInterrupt: it rises in who consumes the run, until that is over.

        On the callback's thread.
        """
        if self.terminal is None:
            self.events.put(error)
        else:
            _log.unheard(error)

    def finish(self) -> None:
        """Nobody wants more of this run: cancel it, unless it is about to end by itself.

        With a store its end may take longer, which only a cancel cuts short.
        """
        launch = self.launch
        if self.reducer.answer is None or launch.background_timeout is not None or launch.mirror is not None:
            self.cancel()

    def claim(self) -> bool:
        """Whether the caller is the first: the reader, or a `start` that was interrupted.

        Ctrl-C may come when the thread exists and has not run yet: then it must do nothing, for its
        descriptors are closed. Nothing about the thread itself tells that state.
        """
        return self._claim.acquire(blocking=False)

    def cancel(self, *, grace: float | None = None, hard: bool = False) -> None:
        """Ask the reader to end the run; returns at once. `hard`: KILL without waiting for TERM."""
        if self._era is not _fork.era:
            return  # the parent's run
        if grace is not None:
            self.grace = min(self.grace, grace)
        self.hard = self.hard or hard
        self.cancelled = True
        self.wake.set()

    def wait(self, seconds: float | None) -> bool:
        """Block until the run has ended and left nothing behind; whether it has.

        Not on a reader's thread: a finaliser of the user's may close a run there, and a reader that
        waits for itself or another one reads nothing meanwhile. Nor on the thread that is about to start
        it: a signal handler that closes the client there would wait for what comes behind its return.
        """
        waits_for_itself = here.reads is not None or (self._starter is here.mark and not self._claim.locked())
        return self._era is _fork.era and self.ended.wait(0 if waits_for_itself else seconds)

    @property
    def is_ending(self) -> bool:
        """Whether its end has been asked for, or has come."""
        return self.cancelled

    @property
    def has_ended(self) -> bool:
        return self.wait(0)

    def error(self, terminal: Event) -> TurnError | None:
        """The exception for this turn's terminal event, or None where that is an answer."""
        return self.verdict_on(terminal, self.reducer, self.limit)

    def verdict_on(self, terminal: Event, reducer: Reducer, limit: float) -> TurnError | None:
        """The same for a turn that has its own reducer, as those of a session have."""
        init = reducer.init if terminal.is_error else None
        version = init.data.get("claude_code_version") if init is not None else ""
        if isinstance(version, str) and version:
            remember_version(self.launch.cli_path, version)
        facts = Facts(
            stderr=self.stderr,
            cli_path=self.launch.cli_path,
            cli_version=known_version(self.launch.cli_path),
            odd_lines=tuple(self.odd.last),
            wants_schema=self.launch.wants_schema,
            resets_at=reducer.resets_at,
            blocked=reducer.blocked,
            missing=self.launch.restore.missing if self.launch.restore is not None else "",
            heard=self.launch.duplex is not None and self.launch.duplex.heard,
            limit=limit,
            now=time(),
        )
        return verdict(terminal, facts)

    @property
    def stderr(self) -> str:
        return self.stderr_tail.decode("utf-8", "replace")

    def over(self, terminal: Event | None) -> None:
        """Tell everybody that the run is over (None: it never started). Nothing of it is left."""
        self.terminal = terminal
        self.idle = monotonic() - self.last_line_at
        _cleanup.live.discard(self)
        try:
            self.on_end(self, terminal)  # gives the slot back, before the consumer can know
        except BaseException as error:  # noqa: BLE001 - whoever waits must be woken
            self.faults.append(f"while ending a run: {type(error).__name__}")
        if terminal is not None:
            self.events.put((0, [terminal]))
        self.ended.open()  # before the mark of the end: whoever has read to it finds the run done
        self.events.put(None)
        for remark in self.remarks:
            _log.warning("%s", remark)
        for fault in self.faults:
            _log.error("%s", fault)

    def open(self, env: Mapping[str, str]) -> None:
        """Make those who listen: the user's sinks, and the mirror of a store. By the reader."""
        launch = self.launch
        if launch.line_sink is not None or launch.on_stderr is not None:
            from ._sinks import Sinks

            name = f"claude-{launch.run_id[:8]}-sinks"
            self.sinks = Sinks(name, launch.max_buffered_bytes, launch.line_sink, launch.on_stderr)
        if launch.mirror is not None:
            self.mirror = launch.mirror(env, self.wake)

    def settle(self, stopping: bool) -> list[Event]:
        """Wait for the store, bounded, when the process has ended; what it did not take. By the reader.

        The slot is kept meanwhile: nothing else limits how many runs wait for a store that hangs.
        """
        mirror, duplex = self.mirror, self.launch.duplex
        if mirror is None:
            return []
        if duplex is not None:  # who waits for an answer of the CLI does not wait for the store
            duplex.end(RuntimeError("the process has ended"))
        self.note_answer(self.reducer)
        mirror.finish(STORE_GRACE, lambda: self.hurry(stopping))
        if mirror.lost > mirror.unwritten:
            self.folder.keep()
        self.remarks += mirror.remarks(self.folder.stays)
        restored = self.launch.restore.report() if self.launch.restore is not None else []
        return [*restored, *mirror.report(self.folder.stays)]

    def woken(self) -> None:
        """Something has happened elsewhere: the store may have taken a batch, and have room for more. By the reader."""
        self.wake.clear()
        if self.mirror is not None:
            self.mirror.go_on()

    def note_answer(self, reducer: Reducer) -> None:
        """The turn is over. If it has an answer, the store should hear of it. By the reader."""
        if self.mirror is not None and reducer.answer is not None and not reducer.answer.is_error:
            self.mirror.end_turn(reducer.session_id, reducer.messages)

    def newly_lost(self) -> int:
        """Entries that the store did not take, since this was asked last. By the reader."""
        return 0 if self.mirror is None else self.mirror.newly_lost()

    def hurry(self, stopping: bool) -> float | None:
        """The seconds that a store is granted when somebody wants to leave; None: nobody does."""
        if self.hard:
            return 0.0
        return self.grace if self.cancelled or stopping else None

    def release(self) -> None:
        """Give back what a start takes. By the reader, or where none came to be."""
        self.wake.close()
        self.folder.remove()
        if self.sinks is not None:
            self.remarks += self.sinks.finish(SINK_GRACE)
