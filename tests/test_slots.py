"""Slots: taken in order, given back once on every path, and what waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from waiting import Background, until, until_gone

from claude_cli_client import (
    Client,
    ClientClosedError,
    ProcessError,
    SlotTimeoutError,
    StartError,
    _pool,
    _reader,
    _sync,
)
from claude_cli_client._pool import Pool, Slot
from claude_cli_client.testing import (
    hang,
    ignore_term,
    init,
    ready,
    result,
    text,
    wait_for,
)

TURN = [init(), result("1")]


def waiters(client) -> int:
    """How many calls wait for a slot."""
    return len(client._pool._line)


# --- waiting


def test_no_more_than_max_concurrent_at_a_time(play, slots_free):
    """Of six runs two are started; each end starts the next."""
    fake = play(ready("on"), wait_for("end"), *TURN)
    client = Client(cli_path=fake.path, max_concurrent=2)
    asks = [Background(client.ask, "p") for _ in range(6)]
    for count in (2, 3, 4, 5, 6):
        fake.wait("on", count=count)
        assert len(fake.alive()) <= 2
        assert slots_free(client) == 0
        until(lambda count=count: waiters(client) == 6 - count)
        fake.release("end", call=count - 2)
    fake.release("end")
    for ask in asks:
        assert ask.result().result == "1"
    assert slots_free(client) == 2


def test_no_waiting_at_all(play):
    """`slot_timeout=0`: a slot now, or SlotTimeoutError at once."""
    fake = play(wait_for("end"), *TURN)
    client = Client(cli_path=fake.path, max_concurrent=1)
    run = client.run("p", slot_timeout=0)
    with pytest.raises(SlotTimeoutError) as caught:
        client.run("p", slot_timeout=0)
    error = caught.value
    assert isinstance(error, TimeoutError)
    assert (error.slot_timeout, error.max_concurrent, error.retryable) == (0, 1, True)
    assert "slot_timeout" in str(error)
    fake.release("end")
    run.result()
    assert client.ask("p", slot_timeout=0).result == "1"


def test_waiting_some_time(play):
    """SlotTimeoutError after it; the limit may be the client's."""
    fake = play(wait_for("end"), *TURN)
    client = Client(cli_path=fake.path, max_concurrent=1, slot_timeout=0.05)
    run = client.run("p")
    for call in (client.run, client.ask):
        with pytest.raises(SlotTimeoutError, match=r"0\.05 s"):
            call("p")
    with pytest.raises(SlotTimeoutError):
        next(client.map(["p"]))
    assert waiters(client) == 0
    fake.release("end")
    run.result()


def test_a_slot_that_comes_free_in_time(play):
    """The one who waits gets it."""
    fake = play(wait_for("end"), *TURN)
    client = Client(cli_path=fake.path, max_concurrent=1)
    run = client.run("p")
    waiting = Background(client.ask, "p", slot_timeout=60)
    until(lambda: waiters(client) == 1)
    fake.release("end")
    run.result()
    assert waiting.result().result == "1"


@pytest.mark.parametrize("seconds", [1e12, None])
def test_waiting_as_long_as_it_takes(play, seconds):
    """No number of seconds is too large."""
    fake = play(wait_for("end"), *TURN)
    client = Client(cli_path=fake.path, max_concurrent=1)
    run = client.run("p")
    waiting = Background(client.ask, "p", slot_timeout=seconds)
    until(lambda: waiters(client) == 1)
    fake.release("end")
    run.result()
    assert waiting.result().result == "1"


def test_first_come_first_served(play):
    """Slots are given in the order of the calls."""
    fake = play(ready("on"), wait_for("end"), *TURN)
    client = Client(cli_path=fake.path, max_concurrent=1)
    asks = []
    for number in range(6):
        asks.append(Background(client.ask, str(number)))
        until(lambda number=number: waiters(client) == number if number else fake.calls)
    for number in range(6):
        fake.wait("on", count=number + 1)
        fake.release("end", call=number)
    for ask in asks:
        ask.result()
    assert [call.prompt for call in fake.calls] == list("012345")


def test_who_gives_up_loses_his_place_only(play, monkeypatch):
    """A waiter whose time is over leaves the line; the one behind him gets the slot."""
    fake = play(ready("on"), wait_for("end"), *TURN)
    client = Client(cli_path=fake.path, max_concurrent=1)
    run = client.run("first")
    deadlines = []
    monkeypatch.setattr(_sync, "_SLICE", 0.02)
    monkeypatch.setattr(_pool, "Deadline", lambda seconds: deadlines.append(_sync.Deadline(seconds)) or deadlines[-1])
    impatient = Background(client.ask, "impatient", slot_timeout=1000)
    until(lambda: waiters(client) == 1 and deadlines)
    patient = Background(client.ask, "patient")
    until(lambda: waiters(client) == 2)
    deadlines[0].at -= 2000
    with pytest.raises(SlotTimeoutError):
        impatient.result()
    assert waiters(client) == 1
    fake.release("end")
    run.result()
    assert patient.result().result == "1"
    assert [call.prompt for call in fake.calls] == ["first", "patient"]


def test_with_options_shares_the_slots(play):
    """One number of processes for all of a client's variants."""
    fake = play(wait_for("end"), *TURN)
    client = Client(cli_path=fake.path, max_concurrent=1)
    run = client.with_options(model="sonnet").run("p")
    with pytest.raises(SlotTimeoutError):
        client.run("p", slot_timeout=0)
    with pytest.raises(SlotTimeoutError):
        client.with_options(model="haiku").run("p", slot_timeout=0)
    fake.release("end")
    run.result()


def test_clients_do_not_share_slots(play):
    """Two clients are two numbers."""
    fake = play(wait_for("end"), *TURN)
    runs = [Client(cli_path=fake.path, max_concurrent=1).run("p", slot_timeout=0) for _ in range(3)]
    fake.release("end")
    for run in runs:
        run.result()


def test_a_run_inside_of_the_loop_of_another(play):
    """On the thread of a run that holds the only slot it is safe to wait: runs end without a consumer."""
    fake = play(init(), text("1"), ready("on"), wait_for("end"), result("1"))
    client = Client(cli_path=fake.path, max_concurrent=1)
    outer = client.run("outer")
    next(outer)
    fake.wait("on")
    releasing = Background(lambda: (until(lambda: waiters(client) == 1), fake.release("end")))
    assert client.ask("inner").result == "1"
    releasing.result()
    assert outer.result().result == "1"


# --- given back once


def normal_end(client):
    client.ask("p")


def not_read(client):
    run = client.run("p")
    until(lambda: run.done)


def dropped(client):
    client.run("p")


def cancelled(client):
    run = client.run("p")
    run.cancel()
    run.cancel()
    run.close()
    run.close()
    list(run)
    run.cancel()


def closed_with(client):
    with client.run("p") as run:
        run.close()
        run.cancel()


def limited(client):
    run = client.run("p", timeout=0.001)
    list(run)
    run.close()


def wrong_option(client):
    with pytest.raises(TypeError):
        client.run("p", no_such_option=1)


def wrong_prompt(client):
    with pytest.raises(ValueError, match="prompt"):
        client.run("")


def wrong_folder(client):
    with pytest.raises(ValueError, match="cwd"):
        client.run("p", cwd="/not/here")


def no_start(client):
    def refuse(*args, **named):
        raise OSError("no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_reader, "Process", refuse)
        with pytest.raises(StartError):
            client.run("p")


def failed(client):
    with pytest.raises(ProcessError):
        client.ask("p", command_prefix=["/bin/false"])


PATHS = [
    normal_end, not_read, dropped, cancelled, closed_with, limited, wrong_option, wrong_prompt, wrong_folder, no_start,
    failed,
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_slot_is_given_back_exactly_once(play, slots_free, path):
    """After every way a call can go there are as many slots as before: not fewer, and not more."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path, max_concurrent=2)
    for _ in range(3):
        path(client)
    until(lambda: slots_free(client) == 2)
    assert client._pool._running == set()
    fake.close()
    fake = play(wait_for("end"), *TURN)
    client._cli_path = fake.path
    runs = [client.run("p", slot_timeout=0) for _ in range(2)]
    with pytest.raises(SlotTimeoutError):
        client.run("p", slot_timeout=0)
    fake.release("end")
    for run in runs:
        run.result()


@pytest.mark.parametrize("deaf", [False, True])
def test_a_slot_is_given_back_when_the_process_has_ended(play, slots_free, graces, deaf):
    """Not before: so many processes and no more. And before the consumer can know that the run is over."""
    graces(term=0.2)
    fake = play(*([ignore_term()] if deaf else []), init(), hang())
    client = Client(cli_path=fake.path, max_concurrent=1)
    run = client.run("p")
    next(run)
    run.cancel()
    until(lambda: slots_free(client))
    assert fake.alive() == []
    assert next(run).is_terminal


def test_a_fault_in_the_totals_does_not_keep_the_slot(play, slots_free, monkeypatch, caplog):
    """Whatever fails while a turn is counted, its slot comes back and its consumer is woken."""
    from claude_cli_client._channel import Channel

    def fail(self, terminal):
        raise MemoryError

    fake = play(*TURN)
    client = Client(cli_path=fake.path, max_concurrent=1)
    with monkeypatch.context() as patch:
        patch.setattr(Channel, "error", fail)
        run = client.run("p")
        until(lambda: run.done)
    assert run.result().result == "1"
    assert slots_free(client) == 1
    until(lambda: "MemoryError" in caplog.text)  # logged last, when everybody has been told
    caplog.clear()


# --- races, forced


class LateOpening:
    """The latch in which a waiter sleeps; lets something happen at the very end of its sleep."""

    def __init__(self, happens, outcome) -> None:
        self._happens, self._outcome = happens, outcome

    def wait(self, seconds: float | None) -> bool:
        self._happens()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    def open(self) -> None:
        """Nobody sleeps any more."""


def full_pool() -> tuple[Pool, Slot]:
    pool, slot = Pool(1), Slot()
    pool.take(slot, None)
    return pool, slot


def test_the_slot_comes_in_the_moment_in_which_the_waiter_gives_up():
    """His time is over, and before he can say so the slot is his: then he has it."""
    pool, first = full_pool()
    late = Slot()
    late.opened = LateOpening(lambda: pool.give_back(first), False)
    pool.take(late, 0.01)
    assert pool._held == {late}
    pool.give_back(late)
    assert pool._held == set()


def test_ctrl_c_in_the_moment_in_which_the_slot_comes():
    """The slot has been moved over, and KeyboardInterrupt comes out of the wait: it is not lost."""
    pool, first = full_pool()
    late = Slot()
    late.opened = LateOpening(lambda: pool.give_back(first), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        pool.take(late, None)
    pool.give_back(late)
    pool.take(Slot(), 0)


def test_ctrl_c_in_the_middle_of_giving():
    """The next one has the slot and is not yet out of the line, when the giver is interrupted: it is not lost."""

    class Interrupted(LateOpening):
        def open(self) -> None:
            raise KeyboardInterrupt

    pool, first = full_pool()
    following = Slot()
    following.opened = Interrupted(lambda: pool.give_back(first), False)
    with pytest.raises(KeyboardInterrupt):
        pool.take(following, None)
    pool.give_back(following)
    assert pool._held == set()
    assert list(pool._line) == []


def test_ctrl_c_while_nobody_gives():
    """The waiter is out of the line, and the next one behind him is not passed over."""
    pool, first = full_pool()
    late = Slot()
    late.opened = LateOpening(lambda: None, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        pool.take(late, None)
    pool.give_back(late)
    behind = Background(pool.take, Slot(), 10)
    until(lambda: pool._line)
    pool.give_back(first)
    behind.result()


def test_closed_in_the_moment_in_which_the_slot_comes():
    """The waiter is told that the client is closed, and what he was given is not lost."""
    pool, first = full_pool()
    late = Slot()
    late.opened = LateOpening(lambda: (pool.give_back(first), pool.close(0)), True)
    with pytest.raises(ClientClosedError):
        pool.take(late, None)
    pool.give_back(late)
    assert pool._held == set()


def test_giving_back_twice_gives_once():
    """A slot that is given back again does not become two."""
    pool, first = full_pool()
    pool.give_back(first)
    pool.give_back(first)
    pool.take(Slot(), 0)
    with pytest.raises(SlotTimeoutError):
        pool.take(Slot(), 0)


def test_who_comes_now_does_not_pass_who_waits():
    """A free slot belongs to the line, also for a call that would not wait."""
    pool, first = full_pool()
    waiting = Slot()
    waiter = Background(pool.take, waiting, 10)
    until(lambda: pool._line)
    pool.give_back(first)
    with pytest.raises(SlotTimeoutError):
        pool.take(Slot(), 0)
    waiter.result()
    assert not pool.try_take(Slot())


def test_many_threads_and_few_slots(play, slots_free):
    """Forty calls on ten threads through three slots, half of them impatient: the number holds."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path, max_concurrent=3)
    outcomes = []

    def work(number):
        for turn in range(4):
            try:
                client.ask("p", slot_timeout=0.01 if (number + turn) % 2 else None)
                outcomes.append("answer")
            except SlotTimeoutError:
                outcomes.append("timeout")

    threads = [Background(work, number) for number in range(10)]
    for thread in threads:
        thread.result(30)
    assert len(outcomes) == 40
    assert outcomes.count("answer") >= 20
    assert slots_free(client) == 3
    assert waiters(client) == 0


# --- Ctrl-C, in a process of its own

HOST = """
import os, signal, sys, threading, time
from claude_cli_client import Client, SlotTimeoutError

armed = []

def when(condition):
    def watch():
        limit = time.monotonic() + 20
        while not (armed and condition()) and time.monotonic() < limit:
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=watch, daemon=True).start()

client = Client(cli_path=sys.argv[1], max_concurrent=1)
"""

INTERRUPTED = {
    "waiting for a slot": """
        run = client.run("hang")
        next(run)
        when(lambda: client._pool._line)
        try:
            armed.append(True)
            client.run("p")
        except KeyboardInterrupt:
            print("interrupted", len(client._pool._line), flush=True)
        run.close()
    """,
    "in ask": """
        when(lambda: client._pool._running and next(iter(client._pool._running)).reducer.session_id)
        try:
            armed.append(True)
            client.ask("hang")
        except KeyboardInterrupt:
            print("interrupted", 0, flush=True)
    """,
    "in a loop": """
        when(lambda: client._pool._running and next(iter(client._pool._running)).reducer.session_id)
        try:
            armed.append(True)
            for event in client.run("hang"):
                pass
        except KeyboardInterrupt:
            print("interrupted", 0, flush=True)
    """,
    "in result": """
        run = client.run("hang")
        when(lambda: run.session_id)
        try:
            armed.append(True)
            run.result()
        except KeyboardInterrupt:
            print("interrupted", 0, flush=True)
        list(run)
        del run
    """,
    "in close": """
        from claude_cli_client import _channel
        _channel.GRACE = 20
        run = client.run("deaf")
        next(run)
        when(lambda: run._channel.cancelled)
        try:
            armed.append(True)
            run.close()
        except KeyboardInterrupt:
            print("interrupted", 0, flush=True)
        run._channel.cancel(hard=True)
        run.close()
    """,
    "in map": """
        when(lambda: client._pool._running and next(iter(client._pool._running)).reducer.session_id)
        try:
            armed.append(True)
            for result in client.map(["hang", "hang"]):
                pass
        except KeyboardInterrupt:
            print("interrupted", 0, flush=True)
    """,
}

AFTERWARDS = """
limit = time.monotonic() + 20
while client._pool._held and time.monotonic() < limit:
    time.sleep(0.002)
print(client.ask("quick", slot_timeout=0).result, len(client._pool._held), flush=True)
"""


@pytest.mark.parametrize("place", INTERRUPTED)
def test_ctrl_c_loses_no_slot(play, place):
    """Wherever KeyboardInterrupt comes out, the slot comes back once."""
    hanging = [init(), hang()]
    if place == "in close":
        hanging = [ignore_term(), init(), hang()]
    fake = play(scripts=[hanging, [init(), result("quick one")]])
    host = HOST + textwrap.dedent(INTERRUPTED[place]) + AFTERWARDS
    done = subprocess.run(
        [sys.executable, "-c", host, str(fake.path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    assert done.stderr == ""
    assert done.stdout == "interrupted 0\nquick one 0\n"
    assert done.returncode == 0
    until_gone(fake)


def test_a_signal_handler_may_close_the_client(play):
    """SIGTERM of a service: the handler runs on the main thread in the middle of whatever it was doing there."""
    fake = play(init(), hang())
    client = Client(cli_path=fake.path)
    run = client.run("p")
    next(run)
    seen = []

    def handler(number, frame):
        client.close(0.1)  # which the reader's end, waiting for the lock below, outlasts
        seen.append(number)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with client._pool._lock:  # as in the middle of `run`
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR1]
    until(lambda: run.done)
    assert fake.alive() == []
