"""Cancelling, the ladder, and what is left of a run's processes after every kind of end."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time

import pytest
from waiting import DEADLINE, Background, is_running, until, until_gone

from claude_cli_client import Client, ProcessError, TurnCancelled, TurnTimeout
from claude_cli_client.testing import (
    close_stream,
    die_by,
    exit_with,
    hang,
    ignore_stdin,
    ignore_term,
    init,
    on_term,
    ready,
    repeat,
    result,
    start_child,
    text,
    touch,
    wait_for,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")

KINDS = ("group", "session", "detached")
EVERY_CHILD = [start_child(kind, ignore_term=deaf) for kind in KINDS for deaf in (False, True)]


def kill_children(fake) -> None:
    """What a normal end leaves running is the test's to end."""
    for pid in fake.children:
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)
    until_gone(fake)


# --- cancel


def test_cancel_from_another_thread_ends_the_loop(play):
    """The consumer's loop ends with the terminal event `cancelled`; `result` raises TurnCancelled."""
    fake = play(init(), hang())
    run = Client(cli_path=fake.path).run("p")
    consumer = Background(list, run)
    until(lambda: run._consumers)
    Background(run.cancel).result()
    events = consumer.result()
    assert (events[-1].type, events[-1].subtype, events[-1].is_terminal) == ("error", "cancelled", True)
    with pytest.raises(TurnCancelled) as caught:
        run.result()
    assert caught.value.retryable is False
    assert not is_running(run.pid)


def test_cancel_returns_at_once(play, graces):
    """It asks, and does not wait for a CLI that ignores TERM."""
    graces(term=1000)
    run = Client(cli_path=play(ignore_term(), init(), hang()).path).run("p")
    next(run)
    Background(run.cancel).result()
    assert not run.done
    run._channel.cancel(hard=True)
    until(lambda: run.done)
    assert run.exit_code == -9


def test_cancel_twice_is_cancel(play):
    """Again and again, from several threads: one terminal event."""
    run = Client(cli_path=play(init(), hang()).path).run("p")
    for thread in [Background(run.cancel) for _ in range(8)]:
        thread.result()
    run.cancel()
    events = list(run)
    assert sum(event.is_terminal for event in events) == 1
    run.cancel()
    assert list(run) == []


def test_a_second_cancel_does_not_shorten_the_grace(play, graces):
    """The CLI keeps its time to end its tools; only a second Ctrl-C takes it away."""
    graces(term=1000)
    fake = play(on_term(ready("ending"), wait_for("ended"), text("ended"), exit_code=143), init(), hang())
    run = Client(cli_path=fake.path).run("p")
    next(run)
    run.cancel()
    fake.wait("ending")
    run.cancel()
    run.cancel()
    fake.release("ended")
    assert next(run).text == "ended"
    assert next(run).exit_code == 143


def test_cancel_after_the_end_changes_nothing(play):
    """The result stays what it was."""
    run = Client(cli_path=play(init(), result("1")).path).run("p")
    assert run.result().result == "1"
    run.cancel()
    run.close()
    assert run.result().result == "1"
    assert run.exit_code == 0


def test_cancel_of_a_run_that_is_over_but_not_read(play):
    """The events are all there, and so is the answer."""
    run = Client(cli_path=play(init(), result("1")).path).run("p")
    until(lambda: run.done)
    run.cancel()
    assert [event.type for event in run] == ["system", "result"]


@pytest.mark.parametrize("deaf", [False, True])
def test_cancel_before_the_first_line(play, graces, deaf):
    """A CLI that has said nothing yet."""
    graces(term=0.1 if deaf else 60)
    fake = play(*([ignore_term()] if deaf else []), ready("on"), hang())
    run = Client(cli_path=fake.path).run("p")
    fake.wait("on")
    run.cancel()
    assert [event.subtype for event in run] == ["cancelled"]
    assert run.exit_code == (-9 if deaf else -15)
    assert run.session_id == ""


def test_cancel_at_once_after_the_start(play):
    """Before the CLI has run a line of its own program, wherever that finds it."""
    fake = play(init(), hang())
    client = Client(cli_path=fake.path)
    for _ in range(20):
        run = client.run("p")
        run.cancel()
        *_, last = run
        assert last.subtype == "cancelled"
        assert not is_running(run.pid)
    assert client.totals.cancelled == 20


def test_cancel_after_the_result_line_gives_the_result(play, graces, clock):
    """The answer is there: the cancel ends what lingers, and the turn is a success."""
    graces(exit=1000, term=60)
    fake = play(init(), result("the answer"), ready("said"), hang())
    run = Client(cli_path=fake.path).run("p")
    fake.wait("said")
    until(lambda: run._channel.reducer.answer)
    run.cancel()
    clock.move(0, run)
    clock.move(100, run)
    assert run.result().result == "the answer"
    assert run.exit_code == -15


@pytest.mark.parametrize("way", ["cancel", "close the client", "drop"])
def test_cancel_after_the_result_line_is_no_term(play, graces, tmp_path, way):
    """The turn is over and the process writes the end of its transcript: it is left to that."""
    graces(exit=60, term=60)
    killed = tmp_path / "killed"
    fake = play(on_term(touch(killed)), init(), result("1"), ready("said"), wait_for("end"))
    client = Client(cli_path=fake.path)
    run = client.run("p")
    channel = run._channel
    fake.wait("said")
    until(lambda: channel.reducer.answer)
    closing = None
    if way == "cancel":
        run.cancel()
    elif way == "drop":
        del run
    else:
        closing = Background(client.close)
        until(lambda: channel.cancelled)
    assert not channel.wait(0.05)
    fake.release("end")
    until(lambda: channel.has_ended)
    if closing:
        closing.result()
    assert not killed.exists()
    assert (channel.exit_code, channel.terminal.result) == (0, "1")
    assert client.totals.cancelled == 0


def test_a_result_that_stands_in_the_pipe_when_the_cancel_comes(play, graces):
    """The CLI answers because it is told to end, and is gone: what it wrote is read, and it is the answer."""
    graces(term=60)
    fake = play(on_term(result("in time"), exit_code=0), init(), hang())
    run = Client(cli_path=fake.path).run("p")
    next(run)
    run.cancel()
    assert run.result().result == "in time"


def test_what_is_said_on_term_arrives_before_the_end(play, graces):
    """Both pipes are read on during the ladder."""
    graces(term=60)
    words = [text(f"word {number}") for number in range(200)]
    fake = play(on_term(*words, exit_code=143), init(), hang())
    run = Client(cli_path=fake.path).run("p")
    next(run)
    run.cancel()
    events = list(run)
    assert len(events) == 201
    assert events[-1].subtype == "cancelled"
    assert events[-1].exit_code == 143


def test_a_cli_that_floods_is_cancelled(play):
    """Output without end does not keep the cancel off."""
    fake = play(init(), repeat(100_000_000, text("x" * 1000)))
    run = Client(cli_path=fake.path).run("p")
    next(run)
    run.cancel()
    until_gone(fake)
    until(lambda: run.done)


def test_a_cli_that_floods_and_ignores_term_is_cancelled(play, graces):
    """Nor does it keep KILL off."""
    graces(term=0.2)
    fake = play(ignore_term(), init(), repeat(100_000_000, text("x" * 1000)))
    run = Client(cli_path=fake.path).run("p")
    next(run)
    run.cancel()
    until_gone(fake)
    until(lambda: run.done)
    assert run.exit_code == -9


def test_a_cli_that_does_not_read_its_prompt_is_cancelled(play):
    """Nobody waits to write it."""
    fake = play(ignore_stdin(), init(), hang())
    with Client(cli_path=fake.path).run("p" * 5_000_000) as run:
        next(run)
    until_gone(fake)


def test_a_stopped_cli_is_cancelled(play, graces):
    """SIGSTOP keeps TERM waiting; KILL does not wait."""
    graces(term=0.1)
    fake = play(init(), start_child("group"), ready("on"), die_by(signal.SIGSTOP), hang())
    run = Client(cli_path=fake.path).run("p")
    fake.wait("on")
    run.close()
    until_gone(fake)
    assert run.exit_code in (-9, -15)  # a TERM just before the stop


def test_close_after_cancel_waits_for_the_ladder(play, graces):
    """`cancel` asks, `close` waits: then nothing is left."""
    graces(term=0.1)
    fake = play(ignore_term(), *EVERY_CHILD, init(), hang())
    run = Client(cli_path=fake.path).run("p")
    next(run)
    run.cancel()
    run.close()
    assert run.done
    assert run.exit_code == -9
    until_gone(fake)


def test_cancel_ends_the_drain_of_a_run_whose_leader_is_gone(play, graces):
    """The leader has ended, a stranger holds its stdout: the cancel does not wait for that."""
    graces(drain=1000)
    fake = play(init(), start_child("session", inherit_stdout=True), exit_with(3))
    run = Client(cli_path=fake.path).run("p")
    until(lambda: fake.calls and not is_running(fake.calls[0].pid))
    assert not run.done
    run.cancel()
    until(lambda: run.done)
    until_gone(fake)
    assert run.exit_code == 3


# --- nothing survives


def by_cancel(client, clock, start):
    run = start()
    run.cancel()
    until(lambda: run.done)


def by_close(client, clock, start):
    start().close()


def by_leaving_with(client, clock, start):
    with start():
        pass


def by_dropping(client, clock, start):
    run = start()
    channel = run._channel
    del run
    gc.collect()
    until(lambda: channel.has_ended)


def by_idle_timeout(client, clock, start):
    run = start(idle_timeout=100)
    clock.move(200, run)
    until(lambda: run.done)
    with pytest.raises(TurnTimeout):
        run.result()


def by_timeout(client, clock, start):
    run = start(timeout=100)
    clock.move(200, run)
    until(lambda: run.done)
    with pytest.raises(TurnTimeout):
        run.result()


def by_closing_the_client(client, clock, start):
    run = start()
    client.close()
    assert run.done


def by_exception(client, clock, start):
    try:
        with start():
            raise ZeroDivisionError
    except ZeroDivisionError:
        return


WAYS = [
    by_cancel, by_close, by_leaving_with, by_dropping, by_idle_timeout, by_timeout, by_closing_the_client, by_exception,
]  # fmt: skip


@linux
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("deaf", [False, True], ids=["hears", "deaf"])
def test_no_child_survives(play, graces, clock, way, deaf):
    """Children in the CLI's group, in sessions of their own, double-forked; each hearing and deaf. When the run
    is done they have been killed; how long the kernel takes to bury them is its own matter."""
    graces(term=0.1)
    fake = play(*([ignore_term()] if deaf else []), init(), *EVERY_CHILD, ready("on"), hang())
    client = Client(cli_path=fake.path)

    def start(**limits):
        run = client.run("p", **limits)
        fake.wait("on")
        assert len(fake.alive()) == 7
        return run

    way(client, clock, start)
    until_gone(fake)


@linux
def test_a_child_that_is_born_during_the_ladder(play, graces):
    """A tool that the CLI starts as its answer to TERM is found too."""
    graces(term=60)
    born = [start_child(kind, ignore_term=True) for kind in KINDS]
    fake = play(on_term(*born, exit_code=143), init(), hang())
    run = Client(cli_path=fake.path).run("p")
    next(run)
    run.close()
    assert len(fake.children) == 3
    until_gone(fake)


@linux
def test_a_child_without_the_marker_is_found_by_its_parent(play, graces):
    """A tool with an environment of its own has no marker; the links lead to it while the CLI lives."""
    graces(term=0.1)
    fake = play(ignore_term(), init(), start_child("session", clear_env=True, ignore_term=True), ready("on"), hang())
    run = Client(cli_path=fake.path).run("p")
    fake.wait("on")
    run.close()
    until_gone(fake)  # killed, and nothing tells when it has died of it


def test_a_child_in_the_group_that_ignores_term(play, graces, clock):
    """The leader hears TERM and ends; what of its group does not is killed when the grace is over."""
    graces(term=60)
    fake = play(init(), start_child("group", ignore_term=True, inherit_stdout=True), ready("on"), hang())
    run = Client(cli_path=fake.path).run("p")
    fake.wait("on")
    run.cancel()
    until(lambda: not is_running(run.pid))
    clock.move(100, run)
    until(lambda: run.done)
    until_gone(fake)
    assert run.exit_code == -15


@linux
def test_the_end_of_one_run_spares_the_others(play):
    """Two runs of one client, and a run of another: only the cancelled one loses its processes."""
    fake = play(init(), *EVERY_CHILD, ready("on"), wait_for("end"), result("1"))
    client = Client(cli_path=fake.path)
    cancelled, other, third = client.run("p"), client.run("p"), Client(cli_path=fake.path).run("p", kill_leftovers=True)
    fake.wait("on", count=3)
    cancelled.close()
    until(lambda: len(fake.alive()) == 14, "what was killed is gone")
    fake.release("end")
    assert other.result().result == third.result().result == "1"
    kill_children(fake)


# --- after a normal end


@linux
def test_what_the_tools_left_running_stays(play):
    """A build daemon that a tool started outlives the turn; the CLI's own group (MCP servers) does not."""
    fake = play(init(), *EVERY_CHILD, result("1"))
    run = Client(cli_path=fake.path).run("p")
    assert run.result().result == "1"
    assert run.exit_code == 0
    until(lambda: len(fake.alive()) == 4, "the group has been killed")
    assert fake.alive() == fake.children[2:]
    kill_children(fake)


@linux
@pytest.mark.parametrize("client_says", [True, False])
def test_kill_leftovers_ends_them_too(play, client_says):
    """With the option, of the client or the call, nothing is left after a normal end either."""
    fake = play(init(), *EVERY_CHILD, result("1"))
    client = Client(cli_path=fake.path, kill_leftovers=client_says)
    run = client.run("p") if client_says else client.run("p", kill_leftovers=True)
    assert run.result().result == "1"
    until_gone(fake)


@linux
@pytest.mark.parametrize("end", [exit_with(3), exit_with(0), die_by(signal.SIGKILL)])
def test_nothing_survives_a_turn_without_an_answer(play, end):
    """A CLI that was killed from outside, or crashed, has not ended its tools: then the run does, without an option."""
    fake = play(init(), *EVERY_CHILD, end)
    with pytest.raises(ProcessError):
        Client(cli_path=fake.path).ask("p")
    until_gone(fake)


@pytest.mark.parametrize("streams", [("stdout",), ("stderr",), ("stdout", "stderr")])
def test_a_grandchild_that_holds_the_pipes_does_not_hold_the_run(play, graces, streams):
    """There is no end of file; the end of the leader and a short drain are enough."""
    graces(drain=0.1)
    fake = play(init(), start_child("session", **{f"inherit_{name}": True for name in streams}), result("1"))
    run = Client(cli_path=fake.path).run("p")
    assert run.result(DEADLINE).result == "1"
    assert run.exit_code == 0
    kill_children(fake)


def test_the_drain_takes_the_usual_time(play, graces):
    """With its constant as it is: half a second from the leader's end."""
    graces(exit=1000)
    fake = play(init(), start_child("session", inherit_stdout=True), result("1"), ready("said"), wait_for("end"))
    run = Client(cli_path=fake.path).run("p")
    fake.wait("said")
    began = time.monotonic()
    fake.release("end")
    assert run.result(DEADLINE).result == "1"
    assert time.monotonic() - began > 0.4
    kill_children(fake)


def test_a_group_child_that_holds_the_pipes_is_killed_with_its_group(play, graces):
    """An MCP server that does not end by itself."""
    graces(drain=0.1)
    fake = play(init(), start_child("group", inherit_stdout=True, ignore_term=True), result("1"))
    assert Client(cli_path=fake.path).ask("p").result == "1"
    until_gone(fake)


@linux
def test_a_grandchild_that_holds_the_pipes_of_a_cancelled_run(play):
    """Cancelled, the holder is killed too, and there is no drain to wait for."""
    holder = start_child("detached", inherit_stdout=True, inherit_stderr=True, ignore_term=True)
    fake = play(init(), holder, ready("on"), hang())
    run = Client(cli_path=fake.path).run("p")
    fake.wait("on")
    run.close()
    until_gone(fake)


def test_stdout_closed_by_the_cli_and_held_by_nobody(play):
    """The end of both pipes before the end of the process is no end of the run."""
    fake = play(init(), close_stream("stdout"), close_stream("stderr"), ready("closed"), wait_for("end"), exit_with(5))
    run = Client(cli_path=fake.path).run("p")
    fake.wait("closed")
    next(run)
    assert run.next_event(0.02) is None
    assert not run.done
    fake.release("end")
    with pytest.raises(ProcessError) as caught:
        run.result()
    assert caught.value.exit_code == 5


# --- a wrapper around the CLI


@pytest.fixture
def wrapped(play, tmp_path):
    """`wrapped(*steps)`: a fake CLI, and the path of a shell script that runs it without `exec`."""

    def make(*steps):
        fake = play(*steps)
        script = tmp_path / "claude"
        script.write_text(f'#!/bin/sh\n{fake.path} "$@"\n')
        script.chmod(0o755)
        return fake, str(script)

    return make


def test_a_wrapper_that_dies_at_once_does_not_cost_the_cli_its_grace(wrapped, graces):
    """`sh` is gone with the TERM, and the CLI behind it still writes the end of its transcript: no KILL so early."""
    graces(term=1000)
    fake, script = wrapped(init(), ignore_term(), ready("on"), wait_for("go"), ready("wrote its end"), exit_with(0))
    run = Client(cli_path=script).run("p")
    fake.wait("on")
    run.cancel()
    until(lambda: run._channel.pid and not is_running(run.pid))
    fake.release("go")
    fake.wait("wrote its end")
    with pytest.raises(TurnCancelled):
        run.result()
    until_gone(fake)


def test_the_grace_behind_a_wrapper_ends(wrapped, graces):
    """A CLI that does not want to end is killed when the time is over, as without a wrapper."""
    graces(term=0.2)
    fake, script = wrapped(init(), ignore_term(), ready("on"), hang())
    run = Client(cli_path=script).run("p")
    fake.wait("on")
    run.close()
    until_gone(fake)


def test_a_second_ctrl_c_behind_a_wrapper(wrapped, graces):
    """It does not wait for the grace."""
    graces(term=1000)
    fake, script = wrapped(init(), ignore_term(), ready("on"), hang())
    run = Client(cli_path=script).run("p")
    fake.wait("on")
    run.cancel()
    until(lambda: not is_running(run.pid))
    run._channel.cancel(hard=True)
    Background(run.close).result()
    until_gone(fake)


def test_tools_that_hold_the_pipes_do_not_hold_up_the_end(play, graces):
    """The CLI itself is dead, and what holds its pipes is in a session of its own: that gets no grace."""
    graces(term=1000)
    fake = play(init(), start_child("session", ignore_term=True), ready("on"), hang())
    run = Client(cli_path=fake.path).run("p")
    fake.wait("on")
    Background(run.close).result()
    until_gone(fake)
