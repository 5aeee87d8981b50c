"""What the holder of a run sees: events in order, one terminal event, `result`, the properties."""

from __future__ import annotations

import copy
import pickle
import threading
import time

import pytest
from waiting import Background, is_running, until, until_gone

from claude_cli_client import (
    Client,
    ConcurrencyError,
    MaxTurnsError,
    ProcessError,
    RateLimitError,
    ResultError,
    TurnCancelled,
    TurnError,
    _channel,
    _turn,
)
from claude_cli_client._sync import Latch
from claude_cli_client.testing import (
    MODEL,
    SESSION_ID,
    api_failure,
    delta,
    exit_with,
    expect_initialize,
    hang,
    init,
    on_term,
    read_stdin,
    ready,
    repeat,
    result,
    say,
    stream,
    text,
    thinking,
    to_stderr,
    tool_result,
    tool_use,
    touch,
    turn,
    wait_for,
)

TURN = [init(), thinking("hm"), tool_use("Bash", {"command": "ls"}), tool_result("a"), text("One."), result("One.")]


# --- iterating


def test_events_come_in_order_and_the_terminal_one_last(play):
    """The loop gives every event of the turn in the CLI's order and ends after the result."""
    events = list(Client(cli_path=play(*TURN).path).run("p"))
    assert [event.type for event in events] == ["system", "thinking", "tool_use", "tool_result", "text", "result"]
    assert [event.is_terminal for event in events] == [False] * 5 + [True]
    assert str(events[-1]) == "One."


def test_lines_behind_the_result_come_before_the_terminal_event(play):
    """The CLI prints lines behind the result; the result is delivered last all the same."""
    late = {"type": "system", "subtype": "late_news", "session_id": SESSION_ID}
    events = list(Client(cli_path=play(init(), result("1"), say(late), say(late)).path).run("p"))
    assert [event.subtype for event in events] == ["init", "late_news", "late_news", "success"]
    assert [event.is_terminal for event in events] == [False, False, False, True]


def test_a_second_result_is_not_the_answer(play):
    """Without `background` too: the first result that the prompt caused is the answer, the others are `task_result`."""
    fake = play(init(), result("first"), result("a comment", index=1, origin={"kind": "task-notification"}))
    events = list(Client(cli_path=fake.path).run("p"))
    assert [event.type for event in events] == ["system", "task_result", "result"]
    assert events[-1].result == "first"
    assert sum(event.is_terminal for event in events) == 1


def test_an_exhausted_run_stays_exhausted(play):
    """`next` raises StopIteration and `next_event` gives None for ever after the end."""
    run = Client(cli_path=play(*TURN).path).run("p")
    list(run)
    for _ in range(3):
        assert list(run) == []
        assert run.next_event(0) is None
        assert run.next_event(10) is None
    assert run.done


@pytest.mark.parametrize("kind", ["run", "session"])
def test_a_run_that_is_read_to_its_end_is_done(play, monkeypatch, kind):
    """The end of the loop does not come before the end itself, however late its thread says so."""

    class Late(Latch):
        def open(self):
            threading.Event().wait(0.1)
            super().open()

    fake = play(*(expect_initialize(), turn(), read_stdin()) if kind == "session" else TURN)
    with Client(cli_path=fake.path) as client:
        begin = client.session().run if kind == "session" else client.run
        monkeypatch.setattr(_turn if kind == "session" else _channel, "Latch", Late)
        run = begin("p")
        list(run)
        assert run.done


def test_events_arrive_while_the_turn_goes_on(play):
    """An event is there as soon as its line is, not when a buffer is full or the turn is over."""
    fake = play(init(), text("1"), wait_for("more"), text("2"), result("2"))
    with Client(cli_path=fake.path).run("p") as run:
        assert next(run).type == "system"
        assert next(run).text == "1"
        assert not run.done
        fake.release("more")
        assert next(run).text == "2"
        assert next(run).is_terminal


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        (api_failure(429), RateLimitError),
        (result(subtype="error_max_turns", errors=["Reached maximum number of turns (1)"]), MaxTurnsError),
        (exit_with(3), ProcessError),
    ],
)
def test_iterating_never_raises_for_a_failed_turn(play, steps, kind):
    """The loop gives data: the failure is the last event, and `result` makes the exception of it."""
    run = Client(cli_path=play(init(), steps).path).run("p")
    *_, last = run
    assert last.is_terminal
    assert last.is_error
    with pytest.raises(kind) as caught:
        run.result()
    assert caught.value.event == last


# --- next_event


def test_next_event_gives_none_when_nothing_comes_in_time(play):
    """None with `done` false: the run goes on and the next event is not lost."""
    fake = play(init(), wait_for("more"), text("late"), result("late"))
    run = Client(cli_path=fake.path).run("p")
    assert run.next_event(10).subtype == "init"
    for _ in range(3):
        assert run.next_event(0.01) is None
        assert run.next_event(0) is None
        assert run.next_event(-1) is None
    assert not run.done
    fake.release("more")
    assert run.next_event(10).text == "late"
    assert run.next_event(10).is_terminal
    assert run.next_event(10) is None
    assert run.done


@pytest.mark.parametrize("seconds", [1e6, 1e12, float("inf")])
def test_any_number_of_seconds_is_a_timeout(play, seconds):
    """Seconds beyond what the system can wait for are as good as any."""
    run = Client(cli_path=play(*TURN).path).run("p")
    assert run.next_event(seconds).subtype == "init"
    assert run.result(seconds).result == "One."
    assert run.next_event(seconds) is None


@pytest.mark.parametrize("seconds", ["10", True, float("nan"), [1], pytest.param(10**5000, id="huge")])
@pytest.mark.parametrize("wait", ["next_event", "result"])
def test_what_is_no_timeout(play, wait, seconds):
    """A ValueError that says what it must be; the run goes on."""
    run = Client(cli_path=play(*TURN).path).run("p")
    with pytest.raises(ValueError, match="timeout must be a number of seconds"):
        getattr(run, wait)(seconds)
    assert run.result().result == "One."


def test_next_event_takes_what_is_there_without_waiting(play):
    """With timeout 0 a run that is over is read to its end."""
    fake = play(*TURN)
    run = Client(cli_path=fake.path).run("p")
    until(lambda: run.done)
    events = []
    while (event := run.next_event(0)) is not None:
        events.append(event.type)
    assert events[0] == "system"
    assert events[-1] == "result"
    assert len(events) == 6


# --- result


def test_result_reads_what_is_left_and_may_be_called_again(play):
    """`result()` gives the terminal event of the loop, every time."""
    run = Client(cli_path=play(*TURN).path).run("p")
    assert next(run).type == "system"
    first = run.result()
    assert first.is_terminal
    assert first.result == "One."
    assert run.result() is first
    assert run.result(0) is first
    assert list(run) == []


def test_result_raises_again_each_time(play):
    """A failed turn raises at each `result()`, with the same facts; `error()` gives it as a value."""
    run = Client(cli_path=play(init(), api_failure(429, "too many")).path).run("p")
    assert run.error() is None  # not read to its end
    errors = []
    for _ in range(2):
        with pytest.raises(RateLimitError) as caught:
            run.result()
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1]) == str(run.error())
    assert errors[0].event is errors[1].event
    assert errors[0].session_id == SESSION_ID


def test_result_with_a_timeout_raises_the_builtin_error_and_the_run_goes_on(play):
    """TimeoutError, which is no TurnTimeout: nothing happened to the run."""
    fake = play(init(), ready("on"), wait_for("more"), result("late"))
    run = Client(cli_path=fake.path).run("p")
    fake.wait("on")
    for seconds in (0.02, 0):
        with pytest.raises(TimeoutError) as caught:
            run.result(seconds)
        assert not isinstance(caught.value, TurnError)
        assert "the run goes on" in str(caught.value)
    assert not run.done
    fake.release("more")
    assert run.result(10).result == "late"


def test_result_with_a_timeout_holds_while_events_flood(play):
    """A CLI that writes faster than anybody reads does not keep `result(timeout)` from its end."""
    fake = play(init(), repeat(100_000_000, text("x" * 100)))
    run = Client(cli_path=fake.path).run("p", max_buffered_bytes=1 << 40)
    with run, pytest.raises(TimeoutError, match=r"0\.1 s"):
        Background(run.result, 0.1).result()


def test_the_answer_falls_back_to_the_text_blocks(play):
    """A result line without its text gets the text of the last message."""
    fake = play(init(), text("The "), text("answer."), result(""))
    assert Client(cli_path=fake.path).ask("p").result == "The answer."


# --- properties


def test_properties_before_during_and_after(play):
    """What is not known yet is empty; what is known stays."""
    fake = play(wait_for("start"), init(), ready("on"), to_stderr("warn\n"), wait_for("end"), result("1"), exit_with(7))
    with Client(cli_path=fake.path).run("p") as run:
        assert (run.session_id, run.model, run.stderr, run.exit_code, run.done) == ("", "", "", None, False)
        assert is_running(run.pid)
        assert run.idle_seconds >= 0
        fake.release("start")
        assert next(run).subtype == "init"
        assert (run.session_id, run.model) == (SESSION_ID, MODEL)
        assert until(lambda: run.stderr) == "warn\n"
        assert (run.exit_code, run.done) == (None, False)
        assert f"running pid={run.pid}" in repr(run)
        fake.release("end")
        last = run.result()
        until(lambda: run.done)
    assert (run.session_id, run.model, run.stderr, run.exit_code) == (SESSION_ID, MODEL, "warn\n", 7)
    assert last.exit_code == 7
    assert run.pid == fake.calls[0].pid
    assert "done" in repr(run)


def test_idle_seconds_start_anew_with_each_line(play):
    """`idle_seconds` grows until a line comes."""
    fake = play(init(), wait_for("more"), text("1"), ready("said"), wait_for("end"), result("1"))
    with Client(cli_path=fake.path).run("p") as run:
        next(run)
        until(lambda: run.idle_seconds > 0.1)
        asked = time.monotonic()
        fake.release("more")
        assert next(run).text == "1"
        assert run.idle_seconds <= time.monotonic() - asked
        fake.release("end")


def pause():
    """A tenth of a second in which no line comes."""
    began_at = time.monotonic()
    until(lambda: time.monotonic() - began_at > 0.1)


def test_idle_seconds_of_a_run_that_is_over(play):
    """They stay what they were at its end."""
    began_at = time.monotonic()
    with Client(cli_path=play(init(), result("1")).path).run("p") as run:
        run.result()
    took = time.monotonic() - began_at
    pause()
    assert 0 <= run.idle_seconds <= took


def test_idle_seconds_of_a_turn_of_a_session(play):
    """What was before the turn does not count, nor what is behind it."""
    fake = play(expect_initialize(), wait_for("go"), turn(), wait_for("more"), turn())
    with Client(cli_path=fake.path).session() as session:
        pause()
        began_at = time.monotonic()
        run = session.run("one")
        assert 0 <= run.idle_seconds <= time.monotonic() - began_at
        fake.release("go")
        run.result()
        run.close()
        took = time.monotonic() - began_at
        pause()
        assert 0 <= run.idle_seconds <= took
        idle = run.idle_seconds
        fake.release("more")
        session.ask("two")
        assert run.idle_seconds == idle


def test_session_id_is_the_last_one_that_the_cli_said(play):
    """`/clear` changes the session; the new one can be resumed."""
    fake = play(init(session_id="old"), init(session_id="new"), result("1", session_id="new"))
    run = Client(cli_path=fake.path).run("p")
    assert run.result().session_id == "new"
    assert run.session_id == "new"


# --- one consumer


def test_a_second_consumer_is_refused_while_the_first_waits(play):
    """Two threads would tear the stream apart: ConcurrencyError, and the first one loses nothing."""
    fake = play(init(), wait_for("more"), text("1"), result("1"))
    run = Client(cli_path=fake.path).run("p")
    assert next(run).subtype == "init"
    first = Background(next, run)
    until(lambda: run._consumers, "the first thread waits")
    for consume in (lambda: next(run), lambda: run.next_event(0), lambda: run.result(0), lambda: list(run.iter_text())):
        with pytest.raises(ConcurrencyError, match="another thread"):
            consume()
    assert not run.done
    fake.release("more")
    assert first.result().text == "1"
    assert run.result().result == "1"  # one after the other is fine


def test_the_refused_thread_does_not_set_the_first_one_free(play):
    """After a refusal a third thread is refused too."""
    fake = play(init(), wait_for("more"), result("1"))
    run = Client(cli_path=fake.path).run("p")
    next(run)
    first = Background(run.result)
    until(lambda: run._consumers)
    for _ in range(3):
        with pytest.raises(ConcurrencyError):
            Background(run.next_event, 0).result()
    fake.release("more")
    assert first.result().result == "1"


def test_properties_and_cancel_are_open_to_other_threads(play):
    """While one thread waits for an event, others may look and cancel."""
    run = Client(cli_path=play(init(), hang()).path).run("p")
    next(run)
    consumer = Background(list, run)
    until(lambda: run._consumers)
    assert run.session_id == SESSION_ID
    assert not run.done
    run.cancel()
    (last,) = consumer.result()
    assert last.subtype == "cancelled"


# --- leaving a run


def test_dropping_the_last_reference_ends_the_run(play, slots_free):
    """A run that nobody refers to is cancelled, and its slot comes back."""
    fake = play(init(), ready("on"), hang())
    client = Client(cli_path=fake.path)
    run = client.run("p")
    fake.wait("on")
    del run
    until_gone(fake)
    until(lambda: slots_free(client) == 4)
    assert client.totals.cancelled == 1


def test_break_out_of_a_loop_ends_the_run(play):
    """The usual early exit: nothing holds the run but the loop."""
    fake = play(init(), hang())
    for event in Client(cli_path=fake.path).run("p"):
        assert event.subtype == "init"
        break
    until_gone(fake)


def test_break_out_of_a_with_block_leaves_nothing(play):
    """When `with` is left the process is gone and reaped, not only asked to go."""
    fake = play(init(), hang())
    with Client(cli_path=fake.path).run("p") as run:
        for _ in run:
            break
    assert fake.alive() == []
    assert run.done
    assert run.exit_code == -15


def test_an_exception_in_the_loop_ends_the_run(play):
    """The caller's exception comes out as it is, and nothing of the run is left."""
    fake = play(init(), hang())
    run = Client(cli_path=fake.path).run("p")

    def loop():
        with run:
            for _ in run:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    assert fake.alive() == []
    assert run.done


def test_an_exception_in_a_loop_without_with(play):
    """A kept traceback keeps the run; with the traceback the run goes."""
    fake = play(init(), hang())

    def loop():
        run = Client(cli_path=fake.path).run("p")
        for _ in run:
            raise ZeroDivisionError

    caught = None
    try:
        loop()
    except ZeroDivisionError as error:
        caught = error
    assert fake.alive() != []
    del caught
    until_gone(fake)


def test_events_stay_readable_after_close(play):
    """What has come is not taken away; the terminal event follows it."""
    fake = play(init(), text("1"), text("2"), ready("said"), hang())
    run = Client(cli_path=fake.path).run("p")
    fake.wait("said")
    until(lambda: run._channel.events.qsize())
    run.close()
    types = [event.type for event in run]
    assert types[0] == "system"
    assert types[-1] == "error"
    with pytest.raises(TurnCancelled):
        run.result()


def test_close_leaves_a_process_that_has_answered_its_time(play, graces, tmp_path):
    """TERM behind the result would cost the end of the transcript: `close` waits for the natural end."""
    graces(exit=60, term=60)
    killed = tmp_path / "killed"
    fake = play(init(), on_term(touch(killed)), text("1"), result("1"), ready("answered"), wait_for("end"))
    client = Client(cli_path=fake.path)
    run = client.run("p")
    fake.wait("answered")
    until(lambda: run._channel.reducer.answer is not None)
    closing = Background(run.close)
    fake.release("end")
    closing.result()
    assert run.exit_code == 0
    assert not killed.exists()
    assert run.result().result == "1"


def test_close_again_and_from_several_threads(play):
    """Every `close` returns when the run is over, whoever began it."""
    fake = play(init(), hang())
    run = Client(cli_path=fake.path).run("p")
    closing = [Background(run.close) for _ in range(5)]
    run.close()
    for one in closing:
        one.result()
    assert run.done
    run.close()
    run.cancel()
    assert [event.subtype for event in run][-1] == "cancelled"


def test_close_while_another_thread_consumes(play):
    """The consumer gets the terminal event and its loop ends."""
    fake = play(init(), hang())
    run = Client(cli_path=fake.path).run("p")
    consumer = Background(list, run)
    until(lambda: run._consumers)
    run.close()
    assert consumer.result()[-1].subtype == "cancelled"


def test_with_a_result_inside_is_no_cancel(play):
    """The ordinary use leaves the CLI to its own end."""
    with Client(cli_path=play(*TURN).path).run("p") as run:
        assert run.result().result == "One."
    assert run.exit_code == 0


def test_a_run_is_not_pickled(play):
    """It holds a process; the error says what to do instead. Copies are refused alike."""
    run = Client(cli_path=play(*TURN).path).run("p")
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="session_id"):
            attempt(run)
    run.result()


# --- iter_text


def test_iter_text_gives_blocks(play):
    """Without partial messages the text comes block by block; tools, thinking and subagents are not text."""
    fake = play(
        init(), thinking("hm"), text("One. "), tool_use("Task"), text("sub", parent_tool_use_id="toolu_1"),
        tool_result("r"), text("Two."), result("Two."),
    )  # fmt: skip
    assert list(Client(cli_path=fake.path).run("p").iter_text()) == ["One. ", "Two."]


def test_iter_text_gives_deltas_and_not_their_block_again(play):
    """With partial messages the pieces come as they come, and the whole block is not repeated."""
    fake = play(init(), stream(["On", "e", "."]), result("One."))
    assert list(Client(cli_path=fake.path).run("p").iter_text()) == ["On", "e", "."]


def test_iter_text_with_deltas_and_blocks(play):
    """A message that was not streamed (a fallback) is given as its block, among others that were."""
    fake = play(
        init(), stream(["a", "b"]), tool_use("Bash"), tool_result("r"), text("whole"), tool_use("Bash"),
        tool_result("r"), stream(["c", "d"]), result("cd"),
    )  # fmt: skip
    assert list(Client(cli_path=fake.path).run("p").iter_text()) == ["a", "b", "whole", "c", "d"]


def test_iter_text_of_several_streamed_blocks(play):
    """Blocks of one message, each streamed and then repeated whole."""
    fake = play(init(), delta("a"), delta("b"), text("ab"), delta("c", index=1), text("c"), result("abc"))
    assert "".join(Client(cli_path=fake.path).run("p").iter_text()) == "abc"


def test_iter_text_of_a_message_that_broke_off(play):
    """The stream of one message ends in its middle, and another one comes whole: both are text."""
    fake = play(init(), delta("half of A", message_id="a"), text("B.", message_id="b"), result("B."))
    assert list(Client(cli_path=fake.path).run("p").iter_text()) == ["half of A", "B."]


def test_iter_text_of_a_subagents_deltas(play):
    """What a subagent streams is not the answer."""
    fake = play(init(), delta("sub", parent_tool_use_id="toolu_1"), delta("main"), text("main"), result("main"))
    assert list(Client(cli_path=fake.path).run("p").iter_text()) == ["main"]


def test_iter_text_of_a_failed_turn_just_ends(play):
    """Iterating gives data; `result` tells. The CLI's sentence about the failure is no text."""
    run = Client(cli_path=play(init(), text("So far"), api_failure(500)).path).run("p")
    assert list(run.iter_text()) == ["So far"]
    with pytest.raises(ResultError):
        run.result()


def test_iter_text_comes_as_it_is_written(play):
    """A piece is given when its line is there."""
    fake = play(init(), delta("a"), wait_for("more"), delta("b"), text("ab"), result("ab"))
    with Client(cli_path=fake.path).run("p") as run:
        pieces = run.iter_text()
        assert next(pieces) == "a"
        fake.release("more")
        assert next(pieces) == "b"


def test_closing_iter_text_before_its_start_ends_the_run(play):
    """A generator would do nothing here: a web server that never reads would leave the CLI running."""
    fake = play(init(), hang())
    pieces = Client(cli_path=fake.path).run("p").iter_text()
    pieces.close()
    assert fake.alive() == []
    pieces.close()
    assert list(pieces) == []


def test_dropping_iter_text_ends_the_run(play):
    """It is the last that refers to the run."""
    fake = play(init(), delta("a"), hang())
    pieces = Client(cli_path=fake.path).run("p").iter_text()
    assert next(pieces) == "a"
    del pieces
    until_gone(fake)


class Interrupted:
    """A queue whose `get` is interrupted once, right behind taking an item: Ctrl-C at the worst moment."""

    def __init__(self, queue, at):
        self.queue = queue
        self.at = at

    def get(self, timeout=None):
        item = self.queue.get(timeout=timeout)
        self.at -= 1
        if self.at < 0:
            self.at = 10**9
            raise KeyboardInterrupt
        return item

    def empty(self):
        return self.queue.empty()

    def put(self, item):  # the mark of the end, which comes when the run is done
        self.queue.put(item)


@pytest.mark.parametrize("at", range(6))
def test_ctrl_c_right_behind_an_item_does_not_lose_the_end(play, at):
    """Whatever it takes away, also the terminal event or the mark of the end: the run ends and says how."""
    fake = play([init(), text("one"), result("one")])
    run = Client(cli_path=fake.path).run("x")
    until(lambda: run.done)
    run._channel.events = Interrupted(run._channel.events, at)
    try:
        events = list(run)
    except KeyboardInterrupt:
        events = list(run)
        assert run.result().result == "one"
    assert run.result(timeout=5).is_terminal
    assert sum(event.is_terminal for event in events) <= 1
