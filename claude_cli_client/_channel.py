"""One turn on one CLI process: the reader's loop, the limits, the ladder, the end.

Everything that a run has to do while it lasts is done by one thread, `claude-<pid>-reader`. It
waits in one place (`poll` on stdout, stderr, a wake-up and the exit watch) until the next
deadline, and it alone starts, signals and reaps the process. So there is nothing to lock:

* Other threads talk to it by setting a flag and the wake-up (`cancel`), both safe at any moment,
  in a finaliser too. It talks to them through one `SimpleQueue` of lists of events, unbounded: a
  reader that pauses makes the CLI drop what it cannot write.
* Limits hold while nobody iterates, because they are deadlines of this loop.
* It does not refer to the `Run`, so a run that nobody refers to is collected and cancelled.

Why it ends: each wait of the loop is bounded by the earliest deadline. Every deadline leads a
step down (`_ACTIONS`): a limit or a cancel to TERM, TERM to KILL after the grace, KILL to giving
up after `_GONE`; the end of the leader to a bounded drain. Nothing leads up again.

    reading ──limit, cancel──> TERM ──grace──> KILL ──> leader's end ──drain──> over
       └──────────result, then 5 s grace──────────^          ^
       └──────────leader ends by itself──────────────────────┘
"""

from __future__ import annotations

import math
import os
import queue
import select
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from . import _cleanup, _fork, _guard, _log
from ._files import PrivateFolder
from ._parse import LineCutter, Odd, Oversize, parse
from ._process import KILL, TERM, Process
from ._reduce import Reducer
from ._sync import Latch, WakeUp
from .discovery import known_version
from .errors import TurnError
from .events import Event

if TYPE_CHECKING:
    from ._sinks import Sinks

GRACE: Final = 3.0  # from TERM to KILL: the CLI needs up to 1.6 s to end its tools
EXIT_GRACE: Final = 5.0  # from the result line to the process's own end, which takes 35 ms
_GONE: Final = 2.0  # from KILL to the leader's end; only a process stuck in the kernel needs more
_DRAIN: Final = 0.5  # from the leader's end to the end of its pipes, where somebody else holds them
_SINK_GRACE: Final = 2.0
# The longest time from `cancel` to the end of a run, for those who wait for it.
END_BOUND: Final = GRACE + _GONE + _DRAIN + _SINK_GRACE + 2.5

_BLOCK: Final = 65536  # a pipe's capacity: one read takes all that is there
_STDERR_TAIL: Final = 65536
_STDERR_LINE: Final = 1 << 20
_POLL_MAX: Final = 3600.0  # seconds; a longer poll would overflow its C int of milliseconds
_READABLE: Final = select.POLLIN | select.POLLHUP | select.POLLERR


class Launch:
    """Everything a channel needs to know, checked and encoded before anything starts.

    Filled by name and never changed. A dataclass of this size costs 1 ms of import.
    """

    run_id: str
    # Both make what needs a private file (long texts, a throw-away configuration) in the folder.
    argv: Callable[[PrivateFolder], Sequence[str]]
    env: Callable[[PrivateFolder], Mapping[str, str]]
    prompt: bytes
    cwd: str | None = None
    timeout: float | None = None
    idle_timeout: float | None = None
    start_timeout: float | None = None
    background_timeout: float | None = None  # None: a turn has one result and no tasks behind it
    resumed: bool = False
    kill_leftovers: bool = False
    max_line_bytes: int = 1 << 28
    max_buffered_bytes: int = 1 << 29
    line_sink: Callable[[bytes], object] | None = None
    on_stderr: Callable[[str], object] | None = None
    wants_schema: bool = False
    cli_path: str = ""
    shown: Callable[[], str] = staticmethod(str)  # the command without secrets

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)


Batch = tuple[int, list[Event]]  # bytes that the events took on the wire, events


class Channel:
    """Starts with `start`; ends by itself or by `cancel`. See the module for which thread does what."""

    def __init__(self, launch: Launch, on_end: Callable[[Channel, Event | None], None]) -> None:
        self.launch = launch
        self.events: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self.begun = False  # `start` was called: from then on `on_end` sees to what was taken
        self.pid = 0
        self.reducer = Reducer(resumed=launch.resumed)
        self.odd = Odd()
        self.exit_code: int | None = None
        self.terminal: Event | None = None
        self.limit = 0.0  # seconds of the limit that ended the run
        self.last_line_at = monotonic()
        self.consumed = 0  # bytes, written by the consumer alone
        self._produced = 0  # bytes, written by the reader alone
        self._era = _fork.era
        self._on_end = on_end
        self._started: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._ended = Latch()
        # Set by any thread, read by the reader after a wake-up. Only ever set, never taken back.
        self._cancelled = False
        self._hard = False
        self._grace = GRACE
        self._wake = WakeUp()
        self._folder = PrivateFolder(launch.run_id)
        self._stderr = b""
        self._sinks: Sinks | None = None
        # The rest belongs to the reader.
        self._cutter = LineCutter(launch.max_line_bytes)
        self._stderr_cutter = LineCutter(_STDERR_LINE)
        self._at: dict[str, float] = {}
        self._next_at = math.inf
        self._stopping = False
        self._subtype, self._sentence = "process", ""
        self._answered_at = 0.0
        self._killed = False
        self._exited = False
        self._over = False

    # --- for other threads ----------------------------------------------------------------------

    def start(self) -> None:
        """Start the process; blocks until it runs. Raises what starting it raised.

        `on_end` is called exactly once for it, whatever happens: here only if no thread started.
        """
        self.begun = True
        _cleanup.end_with_interpreter()
        thread = threading.Thread(target=self._main, name="claude-reader", daemon=True)
        try:
            thread.start()
            error = self._started.get()
        except BaseException:  # Ctrl-C, or no thread to be had: nobody gets this run to end it
            self.cancel()
            if thread.ident is None:
                self._release()
                self._on_end(self, None)
            raise
        if error is not None:
            thread.join(1.0)  # it has nothing left to do
            raise error

    def cancel(self, *, grace: float | None = None, hard: bool = False) -> None:
        """Ask the reader to end the run; returns at once. `hard`: KILL without waiting for TERM."""
        if self._era is not _fork.era:
            return  # the parent's run
        if grace is not None:
            self._grace = min(self._grace, grace)
        self._hard = self._hard or hard
        self._cancelled = True
        self._wake.set()

    def wait(self, seconds: float | None) -> bool:
        """Block until the run has ended and left nothing behind; whether it has."""
        return self._era is _fork.era and self._ended.wait(seconds)

    @property
    def has_ended(self) -> bool:
        return self.wait(0)

    def error(self, terminal: Event) -> TurnError | None:
        """The exception for this turn's terminal event, or None where that is an answer."""
        from ._verdict import Facts, verdict

        init = self.reducer.init
        version = init.data.get("claude_code_version") if init is not None and terminal.type == "error" else ""
        facts = Facts(
            stderr=self.stderr,
            cli_path=self.launch.cli_path,
            cli_version=version or known_version(self.launch.cli_path),
            odd_lines=tuple(self.odd.last),
            wants_schema=self.launch.wants_schema,
            resets_at=self.reducer.resets_at,
            blocked=self.reducer.blocked,
            limit=self.limit,
            now=time(),
        )
        return verdict(terminal, facts)

    @property
    def stderr(self) -> str:
        return self._stderr.decode("utf-8", "replace")

    # --- the reader -------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            self._begin()
        except BaseException as error:  # noqa: BLE001 - handed to the caller of `start`
            self._release()
            self._on_end(self, None)
            self._started.put(error)
            return
        _cleanup.live.add(self)
        self._started.put(None)
        try:
            self._read()
        except BaseException as error:  # noqa: BLE001 - a fault of ours or no memory: the run still ends properly
            _log.error("the reader of a run failed: %r", error)
            self._stop("process", f"the client failed while reading: {error!r}")
            self._kill()
            self._process.await_end(_GONE)
        self._end()

    def _begin(self) -> None:
        launch = self.launch
        _cleanup.reap_late()
        argv = launch.argv(self._folder)
        env = launch.env(self._folder)
        if launch.line_sink is not None or launch.on_stderr is not None:
            from ._sinks import Sinks

            self._sinks = Sinks(f"claude-{launch.run_id[:8]}-sinks", launch.max_buffered_bytes)
        _guard.begin(launch.run_id)
        self._process = process = Process(
            argv, env=env, cwd=launch.cwd, stdin=launch.prompt, wake=self._wake.set
        )
        self.pid = process.pid
        _guard.begin(launch.run_id, process.pid, _cleanup.start_time(process.pid))
        threading.current_thread().name = f"claude-{process.pid}-reader"
        self.last_line_at = now = monotonic()
        limits = (("total", launch.timeout), ("idle", launch.idle_timeout), ("start", launch.start_timeout))
        self._set(**{name: now + seconds for name, seconds in limits if seconds is not None})

    def _read(self) -> None:
        process = self._process
        handlers: dict[int, Callable[[], None]] = {
            process.stdout: self._on_stdout,
            process.stderr: self._on_stderr,
            self._wake.fd: self._on_wake,
        }
        if process.exit_fd is not None:
            handlers[process.exit_fd] = self._on_exit
        self._poller = poller = select.poll()
        for fd in handlers:
            poller.register(fd, _READABLE)
        if self._cancelled:  # before there was anything to wake
            self._on_wake()
        while not self._over:
            wait = min(self._next_at - monotonic(), _POLL_MAX)
            for fd, _ in poller.poll(max(0, math.ceil(wait * 1000))):
                handlers[fd]()
            if self._next_at <= monotonic():
                self._step_down()

    def _on_stdout(self) -> None:
        block = os.read(self._process.stdout, _BLOCK)
        if not block:
            self._pipe_ended(self._process.stdout)
            return
        lines = self._cutter.feed(block)
        if lines:
            self._deliver(lines, len(block))
        else:
            self._produced += len(block)

    def _deliver(self, lines: Sequence[bytes | Oversize], size: int) -> None:
        self.last_line_at = monotonic()
        if "start" in self._at:
            self._unset("start")
        sink = self.launch.line_sink
        if sink is not None and self._sinks is not None:
            for line in lines:
                self._sinks.put(sink, (line.head if isinstance(line, Oversize) else line) + b"\n")
        events: list[Event] = []
        for line in lines:
            if isinstance(line, Oversize):
                events.append(line.event())
            else:
                events += parse(line, self.odd)
        passed = self.reducer.add(events)
        if passed:
            self._produced += size
            self.events.put((size, passed))
            if self._produced - self.consumed > self.launch.max_buffered_bytes:
                self._overflow()
        if self.reducer.answer is not None and not self._stopping and not self._exited:
            self._answered()

    def _answered(self) -> None:
        """The result line came: from now on the process has a bounded time to end by itself.

        With `background="wait"` it has that time only when nothing is going on any more.
        """
        now = monotonic()
        wait = self.launch.background_timeout
        if wait is None:
            if not self._answered_at:
                self._set(exit=now + EXIT_GRACE)
            self._answered_at = self._answered_at or now
            return
        self._answered_at = self._answered_at or now
        latest = self._answered_at + wait
        self._set(exit=latest if self.reducer.working else min(latest, now + EXIT_GRACE))

    def _on_stderr(self) -> None:
        block = os.read(self._process.stderr, _BLOCK)
        if not block:
            self._pipe_ended(self._process.stderr)
            return
        self._stderr = (self._stderr + block)[-_STDERR_TAIL:]
        if self.launch.on_stderr is not None:
            self._give_stderr(self._stderr_cutter.feed(block))

    def _give_stderr(self, lines: Sequence[bytes | Oversize]) -> None:
        sink = self.launch.on_stderr
        if sink is None or self._sinks is None:
            return
        for line in lines:
            whole = line.head if isinstance(line, Oversize) else line
            self._sinks.put(sink, whole.decode("utf-8", "replace"))

    def _pipe_ended(self, fd: int) -> None:
        self._poller.unregister(fd)
        is_stdout = fd == self._process.stdout
        self._process.close_pipe(fd)
        if self._exited:
            self._over = self._pipes_ended()
        elif is_stdout and not self._stopping and "exit" not in self._at:
            # Nothing more can come; a healthy CLI ends now.
            self._set(exit=monotonic() + EXIT_GRACE)

    def _pipes_ended(self) -> bool:
        return self._process.stdout < 0 and self._process.stderr < 0

    def _on_wake(self) -> None:
        self._wake.clear()
        if self._process.exit_fd is None and not self._exited and self._process.has_ended():
            self._on_exit()
        if not self._cancelled:
            return
        self._stop("cancelled", "the turn was cancelled")
        if self._hard:
            self._kill()

    def _on_exit(self) -> None:
        """The leader has ended; it stays unreaped until everything that needs its number is done."""
        if self._process.exit_fd is not None:
            self._poller.unregister(self._process.exit_fd)
        self._exited = True
        self._at.clear()
        if self._stopping:
            # What of its group got over the TERM may hold the pipes.
            self._process.signal_group(KILL)
        self._set(drain=monotonic() + (0.0 if self._stopping else _DRAIN))
        self._over = self._pipes_ended()

    # --- deadlines and the ladder -----------------------------------------------------------------

    def _set(self, **deadlines: float) -> None:
        self._at.update(deadlines)
        self._next_at = min(self._at.values(), default=math.inf)

    def _unset(self, *names: str) -> None:
        for name in names:
            self._at.pop(name, None)
        self._set()

    def _step_down(self) -> None:
        now = monotonic()
        for name, at in list(self._at.items()):
            if at <= now and self._at.get(name) == at:
                del self._at[name]
                _ACTIONS[name](self)
        self._set()

    def _limit(self, kind: str, subtype: str, seconds: float | None, remark: str) -> None:
        self.limit = seconds or 0.0
        sentence = f"{kind} limit of {seconds:g} s reached; {remark}"
        retry = self.reducer.last_retry
        if retry is not None:
            status = retry.api_error_status or retry.error or "no connection"
            sentence += f"; the last thing heard of the API: retry {retry.retry_attempt} after {status}"
        self._stop(subtype, sentence)

    def _on_total(self) -> None:
        self._limit("the turn's", "timeout", self.launch.timeout, "change it with timeout=")

    def _on_start(self) -> None:
        remark = f"no line came; change it with start_timeout=\n  started: {self.launch.shown()}"
        self._limit("the start's", "start_timeout", self.launch.start_timeout, remark)

    def _on_idle(self) -> None:
        idle = self.launch.idle_timeout or 0.0
        due = self.last_line_at + idle
        if due > monotonic():  # lines came since this deadline was set
            self._at["idle"] = due
        else:
            remark = f"no line for {idle:g} s; change it with idle_timeout="
            self._limit("the idle", "idle_timeout", idle, remark)

    def _on_lingering(self) -> None:
        self._stop("process", "the CLI closed its output without a result and did not end")

    def _overflow(self) -> None:
        limit = self.launch.max_buffered_bytes
        sentence = f"more than {limit} bytes of output wait for the consumer; see max_buffered_bytes="
        self._stop("overflow", sentence)

    def _stop(self, subtype: str, sentence: str) -> None:
        """Begin the ladder. The first reason stays; the answer, if it is there, outweighs it."""
        if self._stopping:
            return
        self._stopping = True
        self._subtype, self._sentence = subtype, sentence
        if self._exited:
            self._at.clear()
            self._set(drain=monotonic())
            return
        self._at.clear()
        self._process.signal_group(TERM)
        self._set(kill=monotonic() + self._grace)

    def _kill(self) -> None:
        """TERM was not enough. First find the tools: without their parent the links are gone."""
        if self._exited or self._killed:
            return
        self._killed = True
        self._unset("kill")
        below = _cleanup.descendants(self._process.pid)
        self._process.signal_group(KILL)
        _cleanup.kill(below)
        self._set(gone=monotonic() + _GONE)

    def _give_up(self) -> None:
        """KILL did not end the leader (it hangs in the kernel), or somebody else holds its pipes."""
        self._over = True

    # --- the end ------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Deal with what is left, reap, say how it ended. Every step runs, whatever fails before."""
        for step in (self._end_process, self._drain, self._reap, self._flush, self._release):
            try:
                step()
            except BaseException as error:  # noqa: BLE001 - the next steps must run
                _log.error("while ending a run: %r", error)
        terminal = self._terminal_event()
        self.terminal = terminal
        _cleanup.live.discard(self)
        try:
            self._on_end(self, terminal)  # gives the slot back: before the consumer can know
        except BaseException as error:  # noqa: BLE001 - the next steps must run
            _log.error("while ending a run: %r", error)
        self.events.put((0, [terminal]))
        self.events.put(None)
        self._ended.open()

    def _end_process(self) -> None:
        self._process.signal_group(KILL)  # MCP servers, and what a wrapper left
        if self._stopping or self.launch.kill_leftovers:
            _cleanup.sweep(self.launch.run_id)

    def _drain(self) -> None:
        """Take what already stands in the pipes. Nobody writes any more but strangers: no waiting."""
        if self._pipes_ended():
            return
        self._poller = poller = select.poll()
        readers = {self._process.stdout: self._on_stdout, self._process.stderr: self._on_stderr}
        for fd in readers:
            if fd >= 0:
                poller.register(fd, _READABLE)
        for _ in range(1 + self.launch.max_buffered_bytes // _BLOCK):
            ready = poller.poll(0)
            if not ready:
                return
            for fd, _ in ready:
                readers[fd]()

    def _reap(self) -> None:
        if not self._process.reap():
            _log.warning("process %d does not end; it is reaped later", self.pid)
            _cleanup.late.append(self._process)
        self.exit_code = self._process.exit_code

    def _flush(self) -> None:
        last = self._cutter.end()
        if last:
            self._deliver(last, 0)
        self._give_stderr(self._stderr_cutter.end())

    def _release(self) -> None:
        """Give back all that the run holds. Also after a start that failed half-way."""
        process = getattr(self, "_process", None)
        if process is not None:
            process.close()
        self._wake.close()
        self._folder.remove()
        _guard.end(self.launch.run_id)
        if self._sinks is not None:
            self._sinks.finish(_SINK_GRACE)

    def _terminal_event(self) -> Event:
        sentence = self._sentence or _how_it_ended(self.exit_code)
        oversize = self.reducer.oversize
        if oversize is not None and self._subtype == "process":
            sentence += (
                f"; a line was longer than max_line_bytes={self.launch.max_line_bytes} "
                f"and may have been the result ({oversize.text[:60]}...)"
            )
        return self.reducer.end(self._subtype, sentence, self.exit_code)


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "the CLI ended without a result; its exit code is unknown: somebody else reaped it"
    if exit_code < 0:
        import signal

        try:
            name = signal.Signals(-exit_code).name
        except ValueError:
            name = f"signal {-exit_code}"
        return f"the CLI was killed by {name} before it gave a result"
    return f"the CLI ended without a result (exit code {exit_code})"


_ACTIONS: Final[dict[str, Callable[[Channel], Any]]] = {
    "total": Channel._on_total,
    "idle": Channel._on_idle,
    "start": Channel._on_start,
    "exit": Channel._on_lingering,
    "kill": Channel._kill,
    "gone": Channel._give_up,
    "drain": Channel._give_up,
}
