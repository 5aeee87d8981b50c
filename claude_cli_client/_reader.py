"""The reader: the one thread of a run. Its loop, the limits, the ladder, the end.

It waits in one place (`poll` on stdout, stderr, the wake-up and the exit watch) until the next
deadline, and it alone starts, signals and reaps the process, so none of that needs a lock. Limits
hold while nobody iterates, because they are deadlines of this loop.

Why it ends: each wait of the loop is bounded by the earliest deadline. Every deadline leads a
step down (`Reader.actions`): a limit or a cancel to TERM, TERM to KILL after the grace, KILL to giving
up after `_GONE`; the end of the leader to a bounded drain. Nothing leads up again.

    reading --limit, cancel--> TERM --grace--> KILL --> leader's end --drain--> over
       |--------- result, then the exit grace --^            ^
       '--------- leader ends by itself ---------------------'
"""

from __future__ import annotations

import functools
import math
import os
import select
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from . import _cleanup, _guard, _log
from ._channel import Channel
from ._lines import LineCutter, Oversize
from ._parse import parse
from ._process import KILL, TERM, Process, how_it_ended
from ._reduce import last_word
from ._sync import Deadlines
from .events import Event

EXIT_GRACE: Final = 5.0  # from the result line to the process's own end, which takes 35 ms
_GONE: Final = 2.0  # from KILL to the leader's end; only a process stuck in the kernel needs more
_DRAIN: Final = 0.5  # from the leader's end to the end of its pipes, where somebody else holds them
_AFTER_TERM: Final = 0.002  # the same after a TERM, before it is asked who that is
_DRAIN_TIME: Final = 0.2  # for what already stands in the pipes: a stranger may write for ever
_EVENT: Final = 300  # bytes that the smallest event takes, whatever its line
_BLOCK: Final = 65536  # a pipe's capacity: one read takes all that is there
_STDERR_TAIL: Final = 65536
_POLL_MAX: Final = 3600.0  # seconds; a longer poll would overflow its C int of milliseconds
_READABLE: Final = select.POLLIN | select.POLLHUP | select.POLLERR


def read(channel: Channel, kind: type[Reader]) -> None:
    """The thread's body: start the process, read it to its end, and say how it ended."""
    if not channel.claim():
        return
    try:
        channel.wake.open()
        reader = kind(channel)
    except BaseException as error:  # noqa: BLE001 - handed to the caller of `start`
        channel.faults += _log.each(channel.release, lambda: _guard.end(channel.launch.run_id))
        channel.over(None)
        channel.started.put(error)
        return
    channel.started.put(None)
    reader.run()


class Reader:
    """Everything that belongs to the reader's thread alone."""

    actions: dict[str, Callable[[Any], Any]]  # what each deadline leads to; at the end of the module

    def __init__(self, channel: Channel) -> None:
        """Start the process. Raises what starting it raises; then nothing of it is left."""
        launch = channel.launch
        self._channel = channel
        self._launch = launch
        self._reducer = channel.reducer
        self._cutter = LineCutter(launch.max_line_bytes)
        self._produced = 0  # bytes that went to the consumer's queue
        self._at = Deadlines()
        self._stopping = False
        self._subtype, self._sentence = "process", ""
        self._answered_at = 0.0
        self._killed = False
        self._below: list[_cleanup.Found] = []  # the tools, when the ladder began
        self._exited = False
        self._group_until = 0.0  # what is left of its group has until then to end
        self._over = False
        self._poller = select.poll()
        self._duplex = launch.duplex
        self._heard: dict[str, Any] | None = None  # the control frame of the line that is being read
        self._process = self._start()
        self._limit_turn(launch.timeout, launch.idle_timeout, launch.start_timeout)

    def _limit_turn(self, timeout: float | None, idle: float | None, start: float | None) -> None:
        """From now on a turn has these limits."""
        limits = (("total", timeout), ("idle", idle), ("start", start))
        now = self._channel.last_line_at = monotonic()
        self._at.set(**{name: now + seconds for name, seconds in limits if seconds is not None})

    def _start(self) -> Process:
        channel, launch = self._channel, self._launch
        _cleanup.reap_late()
        argv = launch.argv(channel.folder)
        env = launch.env(channel.folder)
        channel.open(env)
        self._note_guard()
        stdin = launch.prompt if launch.duplex is None else None
        process = Process(argv, env=env, cwd=launch.cwd, stdin=stdin, wake=channel.wake.set)
        channel.pid = process.pid
        threading.current_thread().name = f"claude-{process.pid}-reader"
        try:
            self._at.set(noted=monotonic() + (0.0 if launch.prefix else _guard.STARTING))
            self._step_down()  # for one that is due at once
            if launch.duplex is not None:
                launch.duplex.on_risen = channel.risen
                launch.duplex.session_id = functools.partial(getattr, channel.reducer, "session_id")
                launch.duplex.open(process.pid, process.take_stdin())
        except BaseException:
            process.abort()
            raise
        return process

    def _note_guard(self, pid: int = 0) -> None:
        problem = _guard.begin(self._launch.run_id, pid, _cleanup.start_time(pid) if pid else "")
        if problem is not None:  # no sh, no processes left: the run goes on without this net
            self._channel.remarks.append(f"no guard could be started: {problem}")

    def run(self) -> None:
        try:
            self._read()
        except BaseException as error:  # noqa: BLE001 - a fault of ours or no memory: it still ends properly
            stop = functools.partial(self._stop, "process", f"the client failed while reading: {error!r}")
            faults = _log.each(stop, self._kill, lambda: self._process.await_end(_GONE))
            self._channel.faults += [f"the reader of a run failed: {type(error).__name__}", *faults]
        self._end()

    def _read(self) -> None:
        process = self._process
        handlers: dict[int, Callable[[], None]] = {
            process.stdout: self._on_stdout,
            process.stderr: self._on_stderr,
            self._channel.wake.fd: self._on_wake,
        }
        if process.exit_fd is not None:
            handlers[process.exit_fd] = self._on_exit
        poller = self._poller
        for fd in handlers:
            poller.register(fd, _READABLE)
        if self._channel.cancelled:  # before there was anything to wake
            self._on_wake()
        while not self._over:
            wait = min(self._at.next - monotonic(), _POLL_MAX)
            for fd, _ in poller.poll(max(0, math.ceil(wait * 1000))):
                handlers[fd]()
            if self._at.next <= monotonic():
                self._step_down()

    def _on_stdout(self) -> None:
        block = os.read(self._process.stdout, _BLOCK)
        if not block:
            self._pipe_ended(self._process.stdout)
            return
        if lines := self._cutter.feed(block):
            self._deliver(lines)

    def _deliver(self, lines: Sequence[bytes | Oversize]) -> None:
        self._channel.last_line_at = monotonic()
        if self._channel.sinks is not None:
            self._channel.sinks.stdout(lines)
        events: list[Event] = []
        size = 0  # of what is kept: of a line that is too long, its head
        for line in lines:
            if isinstance(line, Oversize):
                size += len(line.head)
                events += line.events(self._hear if self._duplex is not None else None)
            elif found := parse(line, self._channel.odd, self._hear):
                size += max(len(line), _EVENT)
                events += found
            if self._duplex is not None and self._heard is not None:
                # In the order of the wire: what stands before a question has been seen when it is answered.
                self._pass_on(events, size)
                events, size = [], 0
                heard, self._heard = self._heard, None
                self._duplex.receive(heard)
        self._pass_on(events, size)

    def _pass_on(self, events: list[Event], size: int) -> None:
        if "start" in self._at and (events or self._heard is not None):  # a banner of somebody else's is no start
            self._at.unset("start")
        if self._channel.mirror is not None and any(event.type == "result" for event in events):
            self._channel.mirror.flush()
        self._take_notice(events, size)

    def _hear(self, frame: dict[str, Any], line: bytes) -> None:
        """A frame that no user sees."""
        if frame.get("type") == "transcript_mirror" and self._channel.mirror is not None:
            self._channel.mirror.put(frame, len(line))
        elif self._duplex is not None:
            self._heard = frame

    def _take_notice(self, events: list[Event], size: int) -> None:
        """What came, of `size` bytes: to the reducer, and what it passes on to the consumer."""
        passed = self._reducer.add(events)
        if passed and self._subtype != "overflow":  # then what comes is not kept
            self._produced += size
            self._channel.events.put((size, passed))
            limit = self._launch.max_buffered_bytes
            if self._produced - self._channel.consumed > limit:
                self._stop("overflow", f"more than {limit} bytes wait for the consumer; see max_buffered_bytes=")
        if self._reducer.is_over and not self._stopping and not self._exited:
            self._answered()

    def _answered(self) -> None:
        """The result line came: from now on the process has a bounded time to end by itself.

        With `background="wait"` it has that time only when nothing is going on any more.
        """
        now = monotonic()
        first, self._answered_at = not self._answered_at, self._answered_at or now
        wait = self._launch.background_timeout
        if wait is None:
            if first:
                self._at.unset("total", "idle")  # the turn is over: what is left to bound is the exit
                self._let_end()
            return
        if self._reducer.working:
            self._at.set(exit=self._answered_at + wait)
        elif self._reducer.in_result:
            self._let_end()  # the last of its turns is over, and no task that could begin another
        else:
            self._at.set(exit=min(self._answered_at + wait, now + EXIT_GRACE))

    def _let_end(self) -> None:
        """The turn and its tasks are over: close stdin where it is open, and give the process time."""
        if self._duplex is not None:
            self._duplex.close_input()
        self._at.set(exit=monotonic() + EXIT_GRACE)

    def _on_stderr(self) -> None:
        block = os.read(self._process.stderr, _BLOCK)
        if not block:
            self._pipe_ended(self._process.stderr)
            return
        self._channel.stderr_tail = (self._channel.stderr_tail + block)[-_STDERR_TAIL:]
        if self._channel.sinks is not None:
            self._channel.sinks.stderr(block)

    def _pipe_ended(self, fd: int) -> None:
        self._poller.unregister(fd)
        is_stdout = fd == self._process.stdout
        self._process.close_pipe(fd)
        if self._exited:
            self._over = self._process.pipes_ended
        elif is_stdout and not self._stopping and "exit" not in self._at:
            # Nothing more can come; a healthy CLI ends now.
            self._at.set(exit=monotonic() + EXIT_GRACE)

    def _on_wake(self) -> None:
        self._channel.woken()
        if self._process.exit_fd is None and not self._exited and self._process.has_ended():
            self._on_exit()
        self._obey()

    def _obey(self) -> None:
        """Do what other threads asked for, by their flags."""
        if not self._channel.cancelled:
            return
        if self._answered_at and self._launch.background_timeout is None and not self._channel.hard:
            # The turn is over and the process about to end: TERM would cost the end of the transcript.
            self._at.set(exit=min(self._at.get("exit", math.inf), monotonic() + self._channel.grace))
            return
        self._stop("cancelled", _cleanup.cancelled("the turn was cancelled"))
        if self._channel.hard:
            self._kill()

    def _on_exit(self) -> None:
        """The leader has ended; it stays unreaped until everything that needs its number is done."""
        if self._process.exit_fd is not None:
            self._poller.unregister(self._process.exit_fd)
        self._exited = True
        self._group_until = self._at.get("kill", 0.0)
        self._at.clear()
        self._at.set(drain=monotonic() + (_AFTER_TERM if self._stopping else _DRAIN))
        self._over = self._process.pipes_ended

    # --- deadlines and the ladder -----------------------------------------------------------------

    def _step_down(self) -> None:
        for name in self._at.due(monotonic()):
            self.actions[name](self)

    def _limit(self, kind: str, subtype: str, seconds: float | None, remark: str) -> None:
        self._channel.limit = seconds or 0.0
        self._stop(subtype, f"{kind} limit of {seconds:g} s reached; {remark}{self._reducer.last_heard()}")

    def _on_total(self) -> None:
        self._limit("the turn's", "timeout", self._launch.timeout, "change it with timeout=")

    def _on_start(self) -> None:
        remark = f"{self._channel.odd.no_line_came()}; change it with start_timeout=\n  started: {self._launch.shown()}"
        self._limit("the start's", "start_timeout", self._launch.start_timeout, remark)

    def _on_idle(self) -> None:
        idle = self._idle_limit()
        since = self._channel.last_line_at
        if self._duplex is not None:  # while a callback of ours is at work it is the CLI that waits
            since = monotonic() if self._duplex.is_answering else max(since, self._duplex.answered_at)
        due = since + idle
        if due > monotonic():  # lines came since this deadline was set
            self._at.set(idle=due)
        else:
            remark = f"no line for {idle:g} s; change it with idle_timeout="
            self._limit("the idle", "idle_timeout", idle, remark)

    def _idle_limit(self) -> float:
        return self._launch.idle_timeout or 0.0

    def _on_lingering(self) -> None:
        if self._duplex is not None and not self._duplex.input_closed:
            self._let_end()
            return
        self._stop("process", "the CLI closed its output without a result and did not end")

    def _stop(self, subtype: str, sentence: str) -> None:
        """Begin the ladder. The first reason stays; the answer, if it is there, outweighs it."""
        if self._stopping:
            return
        self._stopping = True
        self._subtype, self._sentence = subtype, sentence
        if "noted" in self._at:
            self._note_guard(self._channel.pid)
        self._at.clear()
        if self._exited:
            self._at.set(drain=monotonic())
            return
        if self._duplex is not None:
            self._duplex.release()  # callbacks first: the CLI waits for them
        # Now, while the parent links are there: what the CLI leaves behind when it ends has lost them.
        self._below = _cleanup.tools_of(self._process.pid)
        self._process.signal_group(TERM)
        self._at.set(kill=monotonic() + self._channel.grace)

    def _kill(self) -> None:
        """TERM was not enough. First find the tools: without their parent the links are gone."""
        if self._exited:  # its group gets it at the end
            self._group_until = 0.0
            self._at.set(drain=monotonic())
        elif not self._killed:
            self._killed = True
            self._at.unset("kill")
            self._below += _cleanup.tools_of(self._process.pid)
            self._process.signal_group(KILL)
            _cleanup.kill(self._below)
            self._at.set(gone=monotonic() + _GONE)

    def _drained(self) -> None:
        """The leader is dead, and somebody holds its pipes.

        After a TERM that may be the CLI itself, behind a wrapper (`sh`, `bwrap`) that died at once: it
        has the leader's grace, for its tools and the end of its transcript.
        """
        until, self._group_until = self._group_until, 0.0
        self._over = until <= monotonic() or not _cleanup.has_members(self._process.pid)
        if not self._over:
            self._at.set(drain=until)

    def _give_up(self) -> None:
        """KILL did not end the leader: it hangs in the kernel."""
        self._over = True

    # --- the end ------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Deal with what is left, reap, give back, say how it ended."""
        steps = (self._end_process, self._drain, self._reap, self._flush, self._store, self._release)
        self._channel.faults += _log.each(*steps)
        try:
            terminal = self._terminal_event()
        except BaseException as error:  # noqa: BLE001 - no memory, say: there must be an end all the same
            terminal = last_word(type(error).__name__)
        if self._duplex is not None:
            self._duplex.end(RuntimeError(terminal.text or "; ".join(terminal.errors) or "the turn is over"))
            self._duplex.join(1.0)
        self._channel.over(terminal)

    def _end_process(self) -> None:
        self._process.signal_group(KILL)  # MCP servers, and what a wrapper left
        _cleanup.kill(self._below)
        if self._stopping or not self._ended_well() or self._launch.kill_leftovers:
            _cleanup.sweep(self._launch.run_id)

    def _ended_well(self) -> bool:
        """Whether the process ended because its work was done.

        Without an answer nobody says that the CLI has ended its tools: it may have been killed.
        """
        return self._reducer.answer is not None

    def _drain(self) -> None:
        """Take what already stands in the pipes. Nobody writes any more but strangers: no waiting."""
        self._poller = poller = select.poll()
        readers = {self._process.stdout: self._on_stdout, self._process.stderr: self._on_stderr}
        for fd in filter(lambda fd: fd >= 0, readers):
            poller.register(fd, _READABLE)
        until = monotonic() + _DRAIN_TIME
        while not self._process.pipes_ended and (ready := poller.poll(0)) and monotonic() < until:
            for fd, _ in ready:
                readers[fd]()

    def _reap(self) -> None:
        if not self._process.reap():
            self._channel.remarks.append(f"process {self._channel.pid} does not end; it is reaped later")
            _cleanup.late.append(self._process)
        self._channel.exit_code = self._process.exit_code

    def _flush(self) -> None:
        if last := self._cutter.end():
            self._deliver(last)
        if self._channel.sinks is not None:
            self._channel.sinks.end_stderr()

    def _store(self) -> None:
        """The store gets the rest, in bounded time: so the terminal event means that it has the turn."""
        self._tell(self._channel.settle(self._stopping))

    def _tell(self, events: list[Event]) -> None:
        """Events of ours, which no line brought."""
        if events:
            self._channel.events.put((0, events))

    def _release(self) -> None:
        steps = (self._process.close, lambda: _guard.end(self._launch.run_id), self._channel.release)
        self._channel.faults += _log.each(*steps)

    def _terminal_event(self) -> Event:
        refusal = self._duplex.refusal if self._duplex is not None else ""
        sentence = self._sentence or refusal or how_it_ended(self._channel.exit_code, self._channel.stderr)
        if self._subtype == "process":
            sentence += self._reducer.lost_line(self._launch.max_line_bytes)
        return self._reducer.end(self._subtype, sentence, self._channel.exit_code)


Reader.actions = {
    "noted": lambda reader: reader._note_guard(reader._channel.pid),
    "total": Reader._on_total,
    "idle": Reader._on_idle,
    "start": Reader._on_start,
    "exit": Reader._on_lingering,
    "kill": Reader._kill,
    "gone": Reader._give_up,
    "drain": Reader._drained,
}
