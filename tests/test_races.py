"""Two things at the same moment: cancel and end, close and start, a finaliser in the middle of a call.

Where a moment can be forced it is; where it cannot, the same is done often, with nothing between.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hosts import GONE, gone
from waiting import DEADLINE, Background, until

from claude_cli_client import (
    ClaudeError,
    Client,
    ClientClosedError,
    StartError,
    TurnCancelled,
    _channel,
    _cleanup,
    _fork,
    _process,
    _reader,
    _sync,
)
from claude_cli_client.testing import FakeCLI, expect_initialize, hang, init, result, text, wait_for

TIMES = 60


def test_cancel_at_the_moment_of_the_natural_end(play: Callable[..., FakeCLI]) -> None:
    """Cancelled after each of its events: one terminal event, one verdict, and the slot is free."""
    fake = play(init(), text("a"), result("x"))
    client = Client(cli_path=fake.path, max_concurrent=1)
    outcomes = set()
    for number in range(TIMES):
        run = client.run("x", slot_timeout=GONE)
        for _ in range(number % 4):
            next(run, None)
        run.cancel()
        events = list(run)
        assert [event.is_terminal for event in events][-1:] in ([True], [])
        try:
            outcomes.add(run.result(GONE).result)
        except TurnCancelled:
            outcomes.add("cancelled")
    assert outcomes <= {"x", "cancelled"}
    until(lambda: not client._pool._held)
    assert client.totals.turns == TIMES


def test_many_threads_end_the_same_run(play: Callable[..., FakeCLI]) -> None:
    """Eight threads cancel and close it, another reads: all come back, one terminal event."""
    fake = play(init(), text("a"), hang())
    client = Client(cli_path=fake.path)
    for _ in range(10):
        run = client.run("x")
        reading = Background(list, run)
        ending = [Background(run.cancel if number % 2 else run.close) for number in range(8)]
        for one in ending:
            one.result(GONE)
        events = reading.result(GONE)
        assert [event.type for event in events if event.is_terminal] == ["error"]
        run.close()


def test_close_of_the_client_while_runs_start(play: Callable[..., FakeCLI]) -> None:
    """Each start is refused or its run is ended by the close; no slot, process or thread stays."""
    fake = play(init(), hang())
    for number in range(15):
        client = Client(cli_path=fake.path, max_concurrent=3)

        def turn(client: Client = client) -> str:
            try:
                client.ask("x")
            except ClaudeError as error:
                return type(error).__name__
            return "an answer"

        turns = [Background(turn) for _ in range(6)]
        if number % 3:
            until(lambda client=client: len(client._pool._running) >= 1)
        client.close(timeout=GONE)
        assert {one.result(GONE) for one in turns} <= {"ClientClosedError", "TurnCancelled"}
        assert not client._pool._held
        assert not client._pool._running
        assert not client._pool._line
    gone(fake)


def test_close_does_not_wait_for_a_start_that_fails(
    play: Callable[..., FakeCLI], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spawn is under way when the client is closed, and then fails: `close` comes back with it."""
    inside, fail = threading.Event(), threading.Event()

    def failing(*_: Any) -> Any:
        inside.set()
        fail.wait()
        raise OSError(2, "no such interpreter")

    monkeypatch.setattr(_process, "_spawn", failing)
    client = Client(cli_path=play(init()).path)
    starting = Background(client.run, "x")
    inside.wait()
    closing = Background(client.close, 60.0)
    until(lambda: client._pool.closed)
    fail.set()
    closing.result(GONE)
    with pytest.raises(ClaudeError):
        starting.result()


def test_a_close_in_the_middle_of_a_spawn_ends_the_process(
    play: Callable[..., FakeCLI], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancel comes when there is no process yet: it is seen as soon as there is one."""
    inside, go, spawn = threading.Event(), threading.Event(), _process._spawn

    def slow(*args: Any) -> Any:
        inside.set()
        go.wait()
        return spawn(*args)

    monkeypatch.setattr(_process, "_spawn", slow)
    fake = play(init(), hang())
    client = Client(cli_path=fake.path)
    asking = Background(client.ask, "x")
    inside.wait()
    closing = Background(client.close, 60.0)
    until(lambda: client._pool.closed)
    go.set()
    closing.result(GONE)
    with pytest.raises((TurnCancelled, ClientClosedError)):
        asking.result()


def test_a_close_in_the_middle_of_a_start_on_its_own_thread(
    play: Callable[..., FakeCLI], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler may do that: it does not wait for a run that its own thread has still to begin."""
    fake = play(init(), hang())
    client = Client(cli_path=fake.path)
    real = _cleanup.end_with_interpreter

    def handled() -> None:  # called behind the run's entry in the list of those to be ended, before its thread
        monkeypatch.setattr(_cleanup, "end_with_interpreter", real)
        client.close(3 * DEADLINE)

    monkeypatch.setattr(_cleanup, "end_with_interpreter", handled)
    run = Background(client.run, "x").result()
    assert [event.subtype for event in run][-1] == "cancelled"
    gone(fake)


# --- finalisers -----------------------------------------------------------------------------------


def test_a_finaliser_in_the_middle_of_a_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector may run a run's finaliser anywhere: inside of a `set`, of a `close`, of a listing."""
    wake, calls = _sync.WakeUp(), []
    wake.open()

    class Reentering:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def write(self, fd: int, data: bytes) -> int:
            self.finalise()
            return os.write(fd, data)

        def close(self, fd: int) -> None:
            self.finalise()
            os.close(fd)

        def finalise(self) -> None:
            if len(calls) < 3:
                calls.append(1)
                wake.set()

    monkeypatch.setattr(_sync, "os", Reentering())
    monkeypatch.setattr(_fork, "os", Reentering())
    for call in (wake.set, wake.close):
        Background(call).result(GONE)
        calls.clear()
        Background(call).result(GONE)


def test_a_finaliser_takes_no_lock_that_its_thread_may_hold(play: Callable[..., FakeCLI]) -> None:
    """A run is collected while this thread holds every lock of ours: it is cancelled all the same."""
    from claude_cli_client import _guard

    fake = play(init(), text("a"), hang())
    client = Client(cli_path=fake.path)
    run: Any = client.run("x")
    next(run)
    channel = run._channel

    def drop() -> None:
        nonlocal run
        with _fork.spawning, _fork.listing, client._pool._lock, channel.wake._lock, _guard._lock:
            run = None

    Background(drop).result(GONE)
    assert channel.cancelled
    assert channel.wait(GONE)


def test_closing_and_waking_from_two_threads_cannot_deadlock() -> None:
    """One thread closes the wake-up while another, with the list of descriptors held, sets it."""
    for _ in range(300):
        wake = _sync.WakeUp()
        wake.open()
        start = threading.Barrier(2)

        def collected(wake: _sync.WakeUp = wake, start: threading.Barrier = start) -> None:
            with _fork.listing:
                start.wait()
                wake.set()

        def closing(wake: _sync.WakeUp = wake, start: threading.Barrier = start) -> None:
            start.wait()
            wake.close()

        both = [Background(collected), Background(closing)]
        for one in both:
            one.result(GONE)


def test_a_start_that_never_began_closes_its_descriptors(
    play: Callable[..., FakeCLI], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread can be had, a hundred times: an error, the slot back, nothing open, no process."""
    fake = play(init(), result("x"))
    client = Client(cli_path=fake.path, max_concurrent=1)
    client.ask("x")
    before = sorted(os.listdir("/dev/fd"))

    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(_channel.threading.Thread, "start", refuse)
        for _ in range(100):
            with pytest.raises(StartError, match="new thread"):
                client.run("x", slot_timeout=0)
    gc.collect()
    assert len(os.listdir("/dev/fd")) == len(before)
    assert not client._pool._running
    assert client.ask("x").result == "x"


# --- signals and reaping --------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="needs a pidfd's precision")
def test_a_death_from_outside_at_the_moment_of_a_cancel(play: Callable[..., FakeCLI]) -> None:
    """The CLI is killed by somebody else while the ladder signals it: the group is never signalled late."""
    fake = play(init(), text("a"), hang())
    client = Client(cli_path=fake.path)

    def kill(pid: int) -> None:
        with suppress(ProcessLookupError):  # the cancel was faster
            os.kill(pid, signal.SIGKILL)

    for _ in range(30):
        run = client.run("x")
        next(run)
        killing = Background(kill, run.pid)
        run.cancel()
        killing.result()
        with pytest.raises(ClaudeError):
            run.result(GONE)
        assert run.exit_code in (-signal.SIGKILL, -signal.SIGTERM)


def test_no_signal_after_the_leader_is_reaped(play: Callable[..., FakeCLI], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens at the end, `killpg` is called only while the number is surely ours."""
    reaped: set[int] = set()
    late: list[int] = []
    real_wait, real_kill = os.waitpid, os.killpg

    def waiting(pid: int, options: int) -> tuple[int, int]:
        found = real_wait(pid, options)
        reaped.add(found[0])
        return found

    def killing(pid: int, number: int) -> None:
        if pid in reaped:
            late.append(pid)
        real_kill(pid, number)

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return {"waitpid": waiting, "killpg": killing}.get(name) or getattr(os, name)

    monkeypatch.setattr(_process, "os", Watched())
    fake = play(init(), text("a"), result("x"))
    client = Client(cli_path=fake.path)
    for number in range(30):
        run = client.run("x")
        for _ in range(number % 4):
            next(run, None)
        run.cancel()
        run.close()
    assert reaped
    assert late == []


def test_a_reader_that_fails_ends_its_run(
    play: Callable[..., FakeCLI], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No memory, a fault of ours: the process is ended, the consumer is told, the slot is free."""

    def fails(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(_reader.Reader, "_deliver", fails)
    fake = play(init(), text("a"), hang())
    client = Client(cli_path=fake.path, max_concurrent=1)
    for _ in range(2):
        (event,) = list(client.run("x", slot_timeout=GONE))
        assert event.type == "error"
        assert "MemoryError" in event.text + event.result + "".join(event.errors)
    gone(fake)
    assert not _cleanup.live
    until(lambda: "MemoryError" in caplog.text)  # logged last, when everybody has been told
    caplog.clear()  # the fault was ours to cause


@pytest.mark.parametrize("kind", ["run", "session"])
def test_a_finaliser_that_closes_on_a_readers_thread(play: Callable[..., FakeCLI], kind: str) -> None:
    """The garbage collector runs where it likes. There `close` asks for the end and does not wait for itself."""
    fake = play(*(expect_initialize() if kind == "session" else ()), wait_for("go"), text("a"), hang())
    client = Client(cli_path=fake.path)
    held = client.session() if kind == "session" else client.run("x", line_sink=None)
    channel = held._channel
    closed_after: list[float] = []
    grace = {"grace": 0.2} if kind == "session" else {}  # who waited for itself would wait eight seconds more

    def closing(*_: Any) -> None:
        began = time.monotonic()
        held.close(**grace)
        closed_after.append(time.monotonic() - began)

    class Closing:
        def put(self, item: Any) -> None:
            closing()

    if kind == "session":
        channel.listeners.add(Closing())  # called by the reader
    else:
        channel.reducer.add = lambda events: closing() or list(events)  # likewise
    fake.release("go")
    until(lambda: closed_after)
    assert closed_after[0] < 3.0
    until(lambda: channel.has_ended)
    gone(fake)


def test_no_wait_is_so_short_that_it_lasts_for_ever() -> None:
    """A `SimpleQueue.get` whose time runs out between two of its steps does not come back."""
    from claude_cli_client import _sync

    asked: list[Any] = []

    class Items:
        def get(self, timeout: float) -> None:
            asked.append(timeout)
            raise queue.Empty

        def get_nowait(self) -> None:
            asked.append(None)
            raise queue.Empty

    for seconds in (0.0, 1e-9, 1e-6, 0.001, 0.5):
        with pytest.raises(queue.Empty):
            _sync.get(Items(), seconds)  # type: ignore[arg-type]
    assert asked == [None, 0.005, 0.005, 0.005, 0.5]
