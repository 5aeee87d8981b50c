"""The life of a session: how it begins, its turns, its limits, and every way in which it can end."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import pickle
import queue
import signal
import threading
import time

import pytest
from waiting import DEADLINE, Background, is_running, until, until_gone

from claude_cli_client import (
    Client,
    ClientClosedError,
    ConcurrencyError,
    ControlError,
    InterruptedTurnError,
    ProcessError,
    Run,
    Session,
    SessionClosedError,
    SlotTimeoutError,
    StaleSessionError,
    StartError,
    ToolContext,
    ToolServer,
    TurnCancelled,
    TurnError,
    TurnTimeout,
    _open_session,
    _session_reader,
    _turn,
    tool,
)
from claude_cli_client import session as session_module
from claude_cli_client._channel import Channel
from claude_cli_client._session_reader import SessionChannel
from claude_cli_client._sync import Latch
from claude_cli_client._turn import Turn
from claude_cli_client.testing import (
    PROMPT_UUID,
    Step,
    ask_permission,
    began,
    call_hook,
    call_tool,
    cancel_call,
    die_by,
    ended,
    exit_with,
    expect,
    expect_initialize,
    hang,
    ignore_term,
    init,
    interrupted,
    lifecycle,
    read_stdin,
    ready,
    repeat,
    reply,
    result,
    say,
    start_child,
    text,
    to_stderr,
    turn,
    wait_for,
    wait_for_line,
    wait_for_request,
)


@pytest.fixture
def live(play):
    """`live(*steps, **options)`: the fake, and a session on it, closed at the end of the test."""
    sessions: list[Session] = []

    def make(*steps, client=None, **options):
        fake = play(*expect_initialize(), *steps, read_stdin())
        session = (client or Client)(cli_path=fake.path).session(**options)
        sessions.append(session)
        return fake, session

    yield make
    for session in sessions:
        session.close(grace=0.5)


@pytest.fixture
def impatient(monkeypatch, graces):
    """An interrupt and TERM get 0.1 s each before the next step."""
    monkeypatch.setattr(_session_reader, "_INTERRUPT_GRACE", 0.1)
    graces(term=0.1)


def lines(fake, type="control_request"):
    """The subtypes of the control requests that were put to the fake, in their order."""
    return [m["request"]["subtype"] for m in fake.calls[0].messages if m["type"] == type]


# --- the beginning


def test_a_session_begins_with_initialize(live):
    """`session()` returns when the CLI has answered; no prompt is needed for it."""
    fake, session = live()
    assert lines(fake) == ["initialize"]
    assert session.pid == fake.calls[0].pid
    assert not session.closed


def test_the_words_of_the_command(live):
    """Streaming on stdin; no permission channel without a callback; edits are accepted, as in a run."""
    fake, _ = live(model="opus")
    assert fake.calls[0].argv == (
        "-p", "--output-format=stream-json", "--verbose", "--input-format=stream-json", "--model=opus",
        "--permission-mode=acceptEdits",
    )  # fmt: skip


def test_background_tasks_are_allowed(live):
    """Unlike in a one-shot turn: a session waits for them."""
    fake, _ = live()
    assert "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS" not in fake.calls[0].env


@pytest.mark.parametrize("where", ["client", "session"])
def test_background_tasks_may_be_forbidden(play, where):
    """By the session's option or by the client's default."""
    fake = play(*expect_initialize(), read_stdin())
    given = {"background": "forbid"}
    client = Client(cli_path=fake.path, **(given if where == "client" else {}))
    with client.session(**(given if where == "session" else {})):
        assert fake.calls[0].env["CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"] == "1"


def test_initialize_is_refused(play, slots_free):
    """ControlError with the CLI's words; the process is gone and the slot free."""
    fake = play(*expect("initialize", error="bad hooks"), hang())
    client = Client(cli_path=fake.path)
    with pytest.raises(ControlError, match="bad hooks") as caught:
        client.session()
    assert caught.value.subtype == "initialize"
    assert not fake.alive()
    assert slots_free(client) == 4


def test_initialize_is_never_answered(play, slots_free, monkeypatch):
    """The `TurnTimeout` of a run's start, worth a retry, with what was started and the stderr so far."""
    fake = play(wait_for_request("initialize"), to_stderr("waiting for a lock\n"), hang())
    client = Client(cli_path=fake.path)
    awaited = _open_session._await

    def with_words(channel, *rest):
        until(lambda: channel.stderr)  # a program may need longer to start than a test wants to wait
        awaited(channel, *rest)

    monkeypatch.setattr(_open_session, "_await", with_words)
    with pytest.raises(TurnTimeout, match=r"the start's limit of 0\.05 s reached; .* start_timeout=") as caught:
        client.session(start_timeout=0.05)
    assert (caught.value.kind, caught.value.limit, caught.value.retryable) == ("start", 0.05, True)
    assert caught.value.stderr == "waiting for a lock\n"
    assert "--input-format" in str(caught.value)
    assert not fake.alive()
    assert slots_free(client) == 4


def test_the_cli_dies_at_the_start_with_words(play, slots_free):
    """ProcessError with the stderr and the exit code, at once and not after `start_timeout`."""
    fake = play(wait_for_request("initialize"), to_stderr("no such model\n"), exit_with(1))
    client = Client(cli_path=fake.path)
    with pytest.raises(ProcessError, match="no such model") as caught:
        client.session()
    assert caught.value.exit_code == 1
    assert slots_free(client) == 4


def test_the_cli_says_at_the_start_why_it_cannot(play, slots_free):
    """A result line before the first turn: its error, such as that of a session that is unknown."""
    sentence = "No conversation found with session ID: 123e4567-e89b-12d3-a456-426614174000"
    refusal = result(subtype="error_during_execution", errors=[sentence], num_turns=0)
    fake = play(wait_for_request("initialize"), refusal)
    client = Client(cli_path=fake.path)
    with pytest.raises(StaleSessionError, match="No conversation"):
        client.session(resume="123e4567-e89b-12d3-a456-426614174000")
    assert slots_free(client) == 4


def test_the_cli_cannot_be_started(tmp_path, slots_free):
    """StartError, and the slot is free; nothing counts as running."""
    path = tmp_path / "claude"
    path.write_bytes(b"\x7fELF rubbish")
    path.chmod(0o700)
    client = Client(cli_path=path)
    with pytest.raises(StartError):
        client.session()
    assert slots_free(client) == 4
    assert not client._pool._running


def test_ctrl_c_while_it_starts(play, slots_free, monkeypatch):
    """KeyboardInterrupt comes out at once; the process ends behind it."""
    fake = play(wait_for_request("initialize"), hang())

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(_open_session, "_await", interrupt)
    client = Client(cli_path=fake.path)
    with pytest.raises(KeyboardInterrupt):
        client.session()
    until(lambda: slots_free(client) == 4)


@pytest.mark.parametrize("wrong", [{"modell": "x"}, {"permission_mode": "x"}, {"cwd": "/does/not/exist"}])
def test_a_wrong_option(play, slots_free, wrong):
    """Told before anything starts."""
    fake = play()
    client = Client(cli_path=fake.path)
    with pytest.raises((TypeError, ValueError)):
        client.session(**wrong)
    assert not fake.calls
    assert slots_free(client) == 4


# --- turns


def test_many_turns_in_one_process(live):
    """Each prompt gets its own answer; the session id is the CLI's."""
    fake, session = live(*[turn(text(f"a{n}"), answer=f"a{n}") for n in range(5)])
    assert [session.ask(f"q{n}").result for n in range(5)] == [f"a{n}" for n in range(5)]
    assert len(fake.calls) == 1
    prompts = [m["message"]["content"] for m in fake.calls[0].messages if m["type"] == "user"]
    assert prompts == [f"q{n}" for n in range(5)]
    assert session.session_id == "5e551011-0000-4000-8000-00000000face"


def test_a_cancel_of_a_turn_that_has_just_ended(live):
    """It was withdrawn and cancelled before the reader looked: nothing is interrupted, the session goes on."""
    fake, session = live(*began(), ready("on"), *turn(text("a"), answer="a"))
    first = session.run("q")
    fake.wait("on")
    first._channel.withdrawn = True  # the turn itself: the reader may not have taken it yet
    first._channel.cancel()
    assert list(first)[-1].is_terminal
    assert session.ask("q2").result == "a"
    assert "interrupt" not in lines(fake)


def test_a_turn_has_exactly_one_terminal_event(live):
    """The last one; the lines behind the result come before it."""
    _, session = live(turn(text("hello"), answer="hello"))
    events = list(session.run("hi"))
    assert [event.is_terminal for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1].type == "result"
    assert "text" in [event.type for event in events]


def test_every_prompt_has_a_uuid_of_its_own(live):
    """The CLI swallows a prompt whose uuid it has seen."""
    fake, session = live(turn(), turn())
    session.ask("same")
    session.ask("same")
    uuids = [m["uuid"] for m in fake.calls[0].messages if m["type"] == "user"]
    assert len(set(uuids)) == 2


def test_content_blocks(live):
    """A prompt may be a list of blocks, images included; it goes as it is."""
    fake, session = live(turn())
    image = {"type": "image", "source": {"type": "base64", "data": "aGk="}}
    blocks = [{"type": "text", "text": "What is this?"}, image]
    session.ask(blocks)
    assert fake.calls[0].messages[-1]["message"]["content"] == blocks


def test_literal(live):
    """`literal=True` is for all prompts of a session."""
    fake, session = live(turn(), literal=True)
    session.ask("/clear @file")
    assert fake.calls[0].messages[-1]["client_composed"] is True


@pytest.mark.parametrize("prompt", ["", " ", None, [], [{"text": "x"}]])
def test_a_prompt_that_is_none(live, prompt):
    """Refused before anything is said; the session goes on."""
    _, session = live(turn())
    with pytest.raises((TypeError, ValueError)):
        session.run(prompt)
    assert session.ask("a good one").result == "done"


def test_prompts_in_order(live):
    """`map` takes each prompt when its turn comes, and gives the results in order."""
    taken = []

    def prompts():
        for number in range(3):
            taken.append(number)
            yield f"q{number}"

    _, session = live(*[turn(answer=f"a{n}") for n in range(3)])
    answers = session.map(prompts())
    assert taken == []
    assert next(answers).result == "a0"
    assert taken == [0]
    assert [event.result for event in answers] == ["a1", "a2"]


def test_map_takes_no_string(live):
    """It would be taken letter by letter."""
    _, session = live()
    with pytest.raises(TypeError, match="single"):
        session.map("hello")


def test_results_of_others_in_between(live):
    """The answer is the result that names the prompt; results of tasks and of other prompts are not."""
    task = {"origin": {"kind": "task-notification"}}
    other = {"user_message_uuid": "x", "user_message_uuids": ["x"]}
    _, session = live(
        began(), result("of a task", **task), result("of another prompt", **other), ended("mine"), turn(answer="second")
    )
    run = session.run("q")
    assert run.result().result == "mine"
    assert session.ask("q2").result == "second"


def test_a_joined_prompt(live):
    """A result of several prompts is the answer if ours is among them."""
    several = {"user_message_uuid": "x", "user_message_uuids": ["x", PROMPT_UUID]}
    _, session = live(began(), result("both", **several), lifecycle("completed"))
    assert session.ask("q").result == "both"


COMMENT = (init(), text("a comment"), result("a comment", origin={"kind": "task-notification"}, cost_usd=5))


def behind_a_comment(*steps):
    """A turn, and a prompt that comes while the CLI comments on a task: before and behind what says that it waits."""
    return turn(), wait_for_line({"type": "user"}), text("a word"), lifecycle("queued"), *COMMENT, *steps


def test_a_comment_is_in_no_run(live):
    """What the CLI says before it begins with the prompt is in `events()` alone: no text, no cost of it."""
    _, session = live(behind_a_comment(lifecycle("started"), init(), text("mine"), ended("mine")), exit_with(0))
    session.ask("q")
    everything = session.events()
    events = list(session.run("q2"))
    assert [event.text for event in events if event.type == "text"] == ["mine"]
    assert not [event for event in events if event.type == "task_result"]
    assert events[-1].cost_usd == pytest.approx(0.000204)
    assert [event.text for event in everything if event.type == "text"] == ["a word", "a comment", "mine"]


def test_a_turn_that_ends_while_it_waits(live):
    """It has no text of the comment's, and the session that was known."""
    _, session = live(behind_a_comment(lifecycle("cancelled")), turn())
    session.ask("q")
    last = list(session.run("q2"))[-1]
    assert (last.type, last.result, last.session_id) == ("error", "", session.session_id)
    assert session.ask("q3").result == "done"


def test_a_limit_of_a_turn_that_waits(live, clock):
    """It counts from the prompt on; the prompt is taken back, and the comment is not in the next turn."""
    response = {"subtype": "success", "request_id": "client-2", "response": {"cancelled": [PROMPT_UUID]}}
    fake, session = live(
        turn(), wait_for_line({"type": "user"}), lifecycle("queued"), ready("waits"), init(), text("a comm"),
        wait_for_request("interrupt"), lifecycle("cancelled"),
        Step("say_own", line={"type": "control_response", "response": response}),
        result("", origin={"kind": "task-notification"}, subtype="error_during_execution"), turn(text("three")),
    )  # fmt: skip
    session.ask("q")
    run = session.run("q2", timeout=100)
    fake.wait("waits")
    clock.move(101, session)
    with pytest.raises(TurnTimeout):
        run.result(DEADLINE)
    events = list(session.run("q3"))
    assert [event.text for event in events if event.type == "text"] == ["three"]
    assert not [event for event in events if event.type == "task_result"]


def test_death_while_a_turn_waits(live):
    """The CLI dies at its comment: the turn fails, without the comment's text."""
    _, session = live(behind_a_comment(die_by(signal.SIGKILL)))
    session.ask("q")
    run = session.run("q2")
    assert [event.type for event in run] == ["command_lifecycle", "error"]
    with pytest.raises(ProcessError, match="SIGKILL"):
        run.result()


def test_a_start_of_a_turn_that_is_lost(live, monkeypatch):
    """The line that says that the CLI has begun is lost: the answer is not."""
    monkeypatch.setattr(_session_reader, "_SETTLE", 0.02)
    _, session = live(turn(), wait_for_line({"type": "user"}), lifecycle("queued"), init(), text("a"), result("mine"))
    session.ask("q")
    assert session.run("q2").result(DEADLINE).result == "mine"


def test_a_prompt_that_is_answered_in_a_comment(live, monkeypatch):
    """The result names the prompt and has the task's origin; it is the answer, and the turn ends with it."""
    monkeypatch.setattr(_session_reader, "_SETTLE", 1000.0)
    mine = {"user_message_uuids": [PROMPT_UUID], "origin": {"kind": "task-notification"}}
    _, session = live(
        wait_for_line({"type": "user"}), lifecycle("queued"), lifecycle("started"), text("mine"),
        lifecycle("completed"), result("mine", **mine), turn(),
    )  # fmt: skip
    assert session.run("q").result(DEADLINE).result == "mine"
    assert session.ask("q2").result == "done"


def test_a_cli_that_names_no_prompts(live, monkeypatch):
    """Without uuids and lifecycle the first result is the answer, and the turn is over soon after."""
    monkeypatch.setattr(_session_reader, "_SETTLE", 0.02)
    _, session = live(wait_for_line({"type": "user"}), init(), result("old"), wait_for_line({"type": "user"}), init(),
                      result("old too"))  # fmt: skip
    assert session.ask("q").result == "old"
    assert session.ask("q").result == "old too"


def test_a_prompt_that_is_taken_back(live):
    """By a request of the caller's own: nobody is to try it again, and the session goes on."""
    _, session = live(wait_for_line({"type": "user"}), lifecycle("queued"), lifecycle("cancelled"), turn())
    with pytest.raises(InterruptedTurnError, match="was interrupted") as caught:
        session.ask("q")
    assert not caught.value.retryable
    assert session.ask("q2").result == "done"


def test_a_turn_that_is_dropped(live):
    """`cancelled` without a result of a turn that began ends it: ProcessError, and the session goes on."""
    _, session = live(began(), lifecycle("cancelled"), turn())
    with pytest.raises(ProcessError, match="without a result"):
        session.ask("q")
    assert session.ask("q2").result == "done"


def test_a_failed_turn_does_not_end_the_session(live):
    """Its error is raised, and the next turn runs."""
    _, session = live(began(), ended("", is_error=True, subtype="error_max_turns"), turn())
    with pytest.raises(Exception, match="turns"):
        session.ask("q")
    assert session.ask("q2").result == "done"


def test_one_turn_at_a_time(live):
    """A second `run` while one is on is a ConcurrencyError, on any thread; then it is free again."""
    fake, session = live(began(), ready("on"), wait_for("end"), ended(), turn(answer="two"))
    run = session.run("one")
    fake.wait("on")
    for call in (lambda: session.run("two"), lambda: Background(session.ask, "two").result()):
        with pytest.raises(ConcurrencyError, match="one at a time"):
            call()
    fake.release("end")
    run.result()
    assert session.ask("two").result == "two"


@pytest.mark.parametrize("way", ["dropped", "cancelled", "interrupted"])
def test_behind_a_turn_that_nobody_wants(live, way, monkeypatch):
    """The CLI takes its time to end it: the next prompt waits for that, and needs no care of the caller."""
    awaited = threading.Event()
    wait = Turn.wait

    def seen(turn, seconds):
        if seconds == Turn.end_bound:
            awaited.set()
        return wait(turn, seconds)

    fake, session = live(began(), ready("on"), wait_for("go"), interrupted(), turn(answer="two"))
    run = session.run("one")
    fake.wait("on")
    if way == "interrupted":
        interrupting = Background(session.interrupt)
        until(lambda: session._turn().interrupted)
    elif way == "cancelled":
        run.cancel()
    else:
        del run
        gc.collect()
        until(lambda: session._turn().cancelled)
    monkeypatch.setattr(Turn, "wait", seen)
    asking = Background(session.ask, "two")
    assert awaited.wait(DEADLINE)
    fake.release("go")
    assert asking.result().result == "two"
    if way == "interrupted":
        interrupting.result()


def test_of_two_that_run_at_once_one_wins(live):
    """Sixteen threads at the same time: one gets the turn, the others ConcurrencyError."""
    fake, session = live(began(), wait_for("end"), ended())
    start = threading.Barrier(16)

    def attempt():
        start.wait()
        return session.run("q")

    attempts = [Background(attempt) for _ in range(16)]
    runs = []
    for one in attempts:
        try:
            runs.append(one.result())
        except ConcurrencyError:
            continue
    assert len(runs) == 1
    fake.release("end")
    assert runs[0].result().result == "done"


def test_a_run_may_be_consumed_later(live):
    """What a turn said stays readable while the next ones run."""
    _, session = live(turn(text("a"), answer="a"), turn(answer="b"))
    first = session.run("1")
    until(lambda: first.done)
    assert session.ask("2").result == "b"
    assert first.result().result == "a"


def test_a_request_behind_a_prompt_is_written_behind_it(live):
    """What one thread says comes in its order."""
    fake, session = live(turn(*expect("mcp_status")))
    run = session.run("q")
    session.mcp_status()
    run.result()
    assert [m["type"] for m in fake.calls[0].messages] == ["control_request", "user", "control_request"]


# --- control


CONTROL = {
    "set_model": (lambda s: s.set_model("opus"), {"model": "opus"}),
    "set_permission_mode": (lambda s: s.set_permission_mode("plan"), {"mode": "plan"}),
    "mcp_status": (lambda s: s.mcp_status(), {}),
    "get_context_usage": (lambda s: s.context_usage(), {}),
    "rewind_files": (lambda s: s.rewind_files("u1", dry_run=True), {"user_message_id": "u1", "dry_run": True}),
    "stop_task": (lambda s: s.stop_task("t1"), {"task_id": "t1"}),
    "anything_else": (lambda s: s.request("anything_else", a=1), {"a": 1}),
}


@pytest.mark.parametrize("subtype", CONTROL)
def test_control_requests(live, subtype):
    """Each has its subtype and its fields; what has a body returns it."""
    call, fields = CONTROL[subtype]
    fake, session = live(*expect(subtype, {"some": "body"}))
    assert call(session) in (None, {"some": "body"})
    assert fake.calls[0].messages[-1]["request"] == {"subtype": subtype, **fields}


def test_a_refused_request(live):
    """ControlError, and the session goes on."""
    _, session = live(*expect("set_permission_mode", error="bypass_not_launched"), turn())
    with pytest.raises(ControlError, match="bypass_not_launched"):
        session.set_permission_mode("bypassPermissions")
    assert session.ask("q").result == "done"


# --- interrupt


def test_interrupt_ends_the_turn(live):
    """Its run ends with InterruptedTurnError, and the next one sees nothing of it."""
    fake, session = live(began(), text("half"), ready("on"), interrupted(), turn(text("two"), answer="two"))
    run = session.run("one")
    fake.wait("on")
    until(lambda: run._channel.reducer.init)  # an interrupt before it is said again
    session.interrupt()
    with pytest.raises(InterruptedTurnError):
        run.result()
    events = list(session.run("two"))
    assert [event.text for event in events if event.type == "text"] == ["two"]
    assert events[-1].result == "two"
    assert lines(fake).count("interrupt") == 1


def test_interrupt_when_nothing_is_on(live):
    """Asks the CLI and does nothing; the next turn is not touched."""
    _, session = live(*expect("interrupt", {"still_queued": []}), turn(), *expect("interrupt", {}), turn())
    session.interrupt()
    assert session.ask("q").result == "done"
    session.interrupt()
    assert session.ask("q").result == "done"


def test_interrupt_of_a_prompt_that_still_waits(live):
    """The CLI takes it out of its queue: no result comes, and the turn ends all the same."""
    # The second request of ours, behind `initialize`. `reply` cannot name the prompt, which is only known then.
    response = {"subtype": "success", "request_id": "client-2", "response": {"cancelled": [PROMPT_UUID]}}
    _, session = live(
        wait_for_line({"type": "user"}), lifecycle("queued"), wait_for_request("interrupt"),
        Step("say_own", line={"type": "control_response", "response": response}), turn(),
    )  # fmt: skip
    run = session.run("q")
    session.interrupt()
    with pytest.raises(InterruptedTurnError):
        run.result(DEADLINE)
    assert session.ask("q2").result == "done"


def test_interrupt_before_the_turn_began(live):
    """One that the CLI read when it was still idle did nothing: it is said again when the turn begins."""
    fake, session = live(
        wait_for_line({"type": "user"}), *expect("interrupt", {"still_queued": []}), lifecycle("started"), init(),
        interrupted(), turn(),
    )  # fmt: skip
    run = session.run("q")
    session.interrupt()
    with pytest.raises(InterruptedTurnError):
        run.result(DEADLINE)
    assert lines(fake).count("interrupt") == 2
    assert session.ask("q2").result == "done"


def taken_back(fake):
    """Of each interrupt, whether what is in the CLI's queue was to be taken back."""
    requests = [m["request"] for m in fake.calls[0].messages if m["type"] == "control_request"]
    return [request["cancel_queued"] for request in requests if request["subtype"] == "interrupt"]


@pytest.mark.parametrize("how", ["interrupt", "cancel"])
@pytest.mark.parametrize("state", ["queued", "started"])
def test_what_an_interrupt_leaves_in_the_queue(live, how, state):
    """The prompt is taken back; behind it, in its turn, only notices of tasks are there, which the model is to hear."""
    begins = [lifecycle(state), init()] if state == "started" else [lifecycle(state)]
    fake, session = live(wait_for_line({"type": "user"}), *begins, ready("on"), *expect("interrupt", {}),
                         lifecycle("cancelled"), turn())  # fmt: skip
    run = session.run("q")
    fake.wait("on")
    until(lambda: run._channel.begun == (state == "started"))
    getattr(session if how == "interrupt" else run, how)()
    with pytest.raises((InterruptedTurnError, TurnCancelled)):
        run.result(DEADLINE)
    assert session.ask("q2").result == "done"
    assert taken_back(fake) == [state == "queued"]


def test_an_interrupt_at_idle_leaves_the_queue(live):
    """Only notices of tasks can be in it."""
    fake, session = live(*expect("interrupt", {}), turn(), *expect("interrupt", {}))
    session.interrupt()
    session.ask("q")
    session.interrupt()
    assert taken_back(fake) == [False] * 2


def test_a_close_takes_back_the_queue(live):
    """What is in it would begin a turn that nobody wants."""
    fake, session = live(began(), ready("on"), *expect("interrupt", {}), interrupted())
    run = session.run("q")
    fake.wait("on")
    until(lambda: run._channel.begun)
    session.close()
    assert taken_back(fake) == [True]


def test_a_close_behind_an_interrupted_turn_takes_back_the_queue(live):
    """A notice that the interrupt left would begin a turn; where no turn was cut the close asks for nothing."""
    fake, session = live(began(), ready("on"), interrupted(), *expect("interrupt", {}), turn())
    run = session.run("q")
    fake.wait("on")
    until(lambda: run._channel.begun)
    session.interrupt()
    with pytest.raises(InterruptedTurnError):
        run.result(DEADLINE)
    session.close()
    assert taken_back(fake) == [False, True]
    fake, session = live(turn())
    session.ask("q")
    session.close()
    assert taken_back(fake) == []


def test_interrupt_that_the_cli_ignores(live, clock):
    """It agrees and goes on: after the grace the session is ended, in bounds."""
    fake, session = live(began(), ready("on"), *expect("interrupt", {}), hang())
    run = session.run("q")
    fake.wait("on")
    session.interrupt()
    assert not run.done
    clock.move(10, session)
    with pytest.raises(InterruptedTurnError):
        run.result(DEADLINE)
    with pytest.raises(SessionClosedError):
        session.run("q2")
    until_gone(fake)


def test_a_callback_may_interrupt(live):
    """From a hook or a permission callback, while the CLI waits for that very callback."""
    sessions = []

    def can_use_tool(request):
        sessions[0].interrupt()
        return request.cancelled

    _, session = live(began(), ask_permission("Bash", answered=False), interrupted(in_tool=True), turn(),
                      can_use_tool=can_use_tool)  # fmt: skip
    sessions.append(session)
    with pytest.raises(InterruptedTurnError):
        session.ask("q")
    assert session.ask("q2").result == "done"
    sessions.clear()


def test_what_a_callback_raises_between_turns(live, caplog):
    """Is logged: no consumer is there to hear it. The CLI has its answer."""

    def leave(request):
        raise SystemExit

    fake, session = live(*ask_permission("Bash"), turn(), can_use_tool=leave)
    until(lambda: "a callback raised SystemExit and nobody is there to hear it" in caplog.messages)
    caplog.clear()  # it is no fault of the library
    assert session.ask("q").result == "done"
    assert [answer["behavior"] for answer in fake.calls[0].answers] == ["deny"]


def test_a_module_that_cannot_be_read(play, monkeypatch):
    """For want of descriptors, at the start of a session: `StartError`, and another try may do."""

    def refuse(*_):
        raise ImportError("no descriptors")

    monkeypatch.setattr(_open_session, "prepare_session", refuse)
    with pytest.raises(StartError) as caught:
        Client(cli_path=play().path).session()
    assert caught.value.retryable


def test_agents_are_spared(live):
    """The CLI is told that it can end a task alone: else an interrupt ends the agents behind the turns, too."""
    fake, _ = live()
    (begin,) = [m["request"] for m in fake.calls[0].messages if m["type"] == "control_request"]
    assert begin["perTaskStopAffordance"] is True


@pytest.mark.parametrize("how", ["interrupt", "cancel"])
def test_a_question_of_an_agent_is_not_the_turn_s(live, how):
    """An agent lives on behind a turn that is cut, and what it waits for is wanted: only the CLI withdraws it."""
    asked, cut, gate = [], [], threading.Event()

    def wait(who, cancelled, limit):
        asked.append(who)
        cut.append((who, cancelled(limit) if who == "turn" else (gate.wait(DEADLINE), cancelled(0))[1]))

    def can_use_tool(request):
        wait(request.agent_id or "turn", request.wait_cancelled, DEADLINE)
        return True

    def hook(call):
        wait(call.agent_id or "turn", call.wait_cancelled, DEADLINE)

    _, session = live(
        began(), ask_permission("Bash", agent_id="a", answered=False),
        call_hook("hook_1", "PreToolUse", fields={"tool_name": "Bash", "agent_id": "b"}, answered=False),
        ask_permission("Read", answered=False), ready("on"), interrupted(in_tool=True), turn(),
        can_use_tool=can_use_tool, hooks={"PreToolUse": hook},
    )  # fmt: skip
    run = session.run("q")
    until(lambda: sorted(asked) == ["a", "b", "turn"])
    getattr(session if how == "interrupt" else run, how)()
    with pytest.raises(InterruptedTurnError if how == "interrupt" else TurnCancelled):
        run.result()
    until(lambda: cut == [("turn", True)])
    gate.set()
    until(lambda: sorted(cut) == [("a", False), ("b", False), ("turn", True)])
    assert session.ask("q2").result == "done"


def test_a_call_of_a_tool_is_cancelled_by_the_cli_alone(live):
    """It may be one of an agent that lives on: an interrupt leaves it alone, the CLI's own word ends it."""
    contexts: queue.SimpleQueue[ToolContext] = queue.SimpleQueue()

    @tool
    def look(context: ToolContext) -> str:
        """Looks."""
        contexts.put(context)
        context.wait_cancelled(DEADLINE)
        return "late"

    _, session = live(
        began(), call_tool("x", "look", number=7, answered=False), ready("on"), interrupted(in_tool=True), turn(),
        turn(cancel_call("x", 7)), mcp_servers={"x": ToolServer([look])},
    )  # fmt: skip
    run = session.run("q")
    context = contexts.get(timeout=DEADLINE)
    session.interrupt()
    with pytest.raises(InterruptedTurnError):
        run.result()
    assert session.ask("q2").result == "done"
    assert not context.cancelled
    assert session.ask("q3").result == "done"
    until(lambda: context.cancelled)


def test_a_question_of_an_agent_ends_with_the_session(live):
    """Nobody waits for it any more."""
    cut, asked = [], threading.Event()

    def can_use_tool(request):
        asked.set()
        cut.append(request.wait_cancelled(DEADLINE))

    _, session = live(began(), ask_permission("Bash", agent_id="a", answered=False), ended(), can_use_tool=can_use_tool)
    assert session.ask("q").result == "done"
    assert asked.wait(DEADLINE)
    session.close()
    until(lambda: cut == [True])


@pytest.mark.parametrize("how", ["interrupt", "cancel", "limit"])
def test_what_a_cut_turn_left_behind_ends_with_the_session(live, clock, how):
    """What its tools began may still run, out of the CLI's group: whatever cut the turn."""
    fake, session = live(began(), start_child("detached"), ready("on"), interrupted(), turn())
    run = session.run("q", timeout=100)
    fake.wait("on")
    if how == "limit":
        clock.move(101, session)
    else:
        getattr(session if how == "interrupt" else run, how)()
    with pytest.raises(TurnError):
        run.result()
    assert session.ask("q2").result == "done"
    session.close()
    until_gone(fake)


@pytest.mark.parametrize("where", ["before", "late", "behind"])
def test_ctrl_c_in_an_interrupt(live, monkeypatch, where):
    """Before its request is put or behind it: the turn is interrupted all the same, and the session goes on."""
    asked = expect("mcp_status", {}) if where == "late" else ()
    fake, session = live(began(), ready("on"), *asked, interrupted(), turn())
    run = session.run("q")
    fake.wait("on")
    put = session._duplex.request

    def ctrl_c(*given):
        if where == "behind":
            put(*given)
        if where == "late":  # the reader has seen the flag, and sleeps again
            until(lambda: run._channel.stopped)
            put("mcp_status", {}, DEADLINE)
        raise KeyboardInterrupt

    monkeypatch.setattr(session._duplex, "request", ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        session.interrupt()
    with pytest.raises(InterruptedTurnError):
        run.result(DEADLINE)
    assert session.ask("q2").result == "done"


@pytest.mark.parametrize("when", ["cancelled", "answered"])
def test_ctrl_c_in_an_interrupt_that_is_not_needed(live, monkeypatch, when):
    """Of a turn that is cut already, or over but for its last line: nothing more is asked of the CLI."""
    ends = {
        "cancelled": (*expect("interrupt", {}), wait_for("end"), lifecycle("cancelled")),
        "answered": (result("done"), wait_for("end"), lifecycle("completed")),
    }
    fake, session = live(began(), ready("on"), *ends[when], turn())
    run = session.run("q")
    fake.wait("on")
    if when == "cancelled":
        run.cancel()
    until(lambda: run._channel.interrupts if when == "cancelled" else run._channel.reducer.answer)

    def ctrl_c(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(session._duplex, "request", ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            session.interrupt()
    fake.release("end")
    with pytest.raises(TurnCancelled) if when == "cancelled" else contextlib.nullcontext():
        run.result(DEADLINE)
    assert session.ask("q2").result == "done"
    assert lines(fake).count("interrupt") == (1 if when == "cancelled" else 0)


def test_lines_of_an_interrupt_before_its_wake_up(live, monkeypatch):
    """The turn counts as cut from its flag on: what its tools left ends with the session then, too."""
    fake, session = live(began(), start_child("detached"), ready("on"), interrupted())
    run = session.run("q")
    fake.wait("on")
    until(lambda: run._channel.reducer.init)
    with monkeypatch.context() as patch:
        patch.setattr(session._channel.wake, "set", lambda: None)
        session.interrupt()
        with pytest.raises(InterruptedTurnError):
            run.result(DEADLINE)
    session.close()
    until_gone(fake)


def test_limits_end_with_their_turn(live, clock):
    """Those of the turn before do not hold for one without."""
    fake, session = live(turn(), began(), ready("two"), wait_for("on"), ended())
    assert session.ask("q", timeout=100, idle_timeout=100).result == "done"
    run = session.run("q2", timeout=None, idle_timeout=None)
    fake.wait("two")
    clock.move(500, session)
    fake.release("on")
    assert run.result().result == "done"


def test_a_callback_may_ask(live):
    """A control request of its own, answered while the CLI waits for the callback."""
    sessions = []

    def can_use_tool(request):
        return sessions[0].mcp_status() == {"mcpServers": []}

    fake, session = live(
        began(), ask_permission("Bash", id="p", answered=False), *expect("mcp_status", {"mcpServers": []}),
        wait_for_line({"response": {"request_id": "p"}}), ended(), can_use_tool=can_use_tool,
    )  # fmt: skip
    sessions.append(session)
    assert session.ask("q").result == "done"
    answer = fake.calls[0].messages[-1]["response"]["response"]
    assert answer["behavior"] == "allow"
    sessions.clear()


def test_a_callback_may_close(live, graces):
    """`close` from a callback: the turn is cancelled, the session ended, and nothing waits for anything."""
    graces(term=0.1)
    sessions, closed = [], threading.Event()

    def can_use_tool(request):
        sessions[0].close(grace=1.0)
        closed.set()
        return True

    _, session = live(began(), ask_permission("Bash", answered=False), interrupted(in_tool=True),
                      can_use_tool=can_use_tool)  # fmt: skip
    sessions.append(session)
    with pytest.raises(TurnCancelled):
        session.ask("q")
    assert closed.wait(DEADLINE)
    assert session.closed
    sessions.clear()


# --- limits of a turn


def test_the_total_limit_of_a_turn(live, clock):
    """TurnTimeout; the turn is interrupted and the session goes on."""
    fake, session = live(began(), ready("on"), interrupted(), turn())
    run = session.run("q", timeout=100)
    fake.wait("on")
    clock.move(200, session)
    with pytest.raises(TurnTimeout) as caught:
        run.result()
    assert caught.value.kind == "total"
    assert session.ask("q2").result == "done"


def test_the_idle_limit_of_a_turn(live, clock):
    """No line for so long; TurnTimeout, and the session goes on."""
    fake, session = live(began(), ready("on"), interrupted(), turn())
    run = session.run("q", idle_timeout=100)
    fake.wait("on")
    clock.move(200, session)
    with pytest.raises(TurnTimeout) as caught:
        run.result()
    assert caught.value.kind == "idle"
    assert session.ask("q2").result == "done"


def test_limits_come_from_the_session(play):
    """Its own override the client's; 3600, the number in the signature, as well."""
    fake = play(*expect_initialize(), read_stdin())
    client = Client(cli_path=fake.path, timeout=0.2, idle_timeout=0.3)
    with client.session(timeout=3600.0) as session:
        assert (session._channel.launch.timeout, session._channel.launch.idle_timeout) == (3600.0, 0.3)
    with client.session(idle_timeout=None) as session:
        assert (session._channel.launch.timeout, session._channel.launch.idle_timeout) == (0.2, None)


def test_a_limit_in_ask(live, impatient):
    """By the clock as it is."""
    _, session = live(hang())
    with pytest.raises(TurnTimeout):
        session.ask("q", timeout=0.01)


def test_limits_come_from_the_client(play, clock):
    """A client's own limits count for the turns of its sessions; a call's override them."""
    fake = play(*expect_initialize(), began(), ready("on"), interrupted(), began(), wait_for("end"), ended(),
                read_stdin())  # fmt: skip
    with Client(cli_path=fake.path, timeout=100).session() as session:
        run = session.run("q")
        fake.wait("on")
        clock.move(200, session)
        with pytest.raises(TurnTimeout, match="100 s"):
            run.result()
        run = session.run("q", timeout=None)
        clock.move(200, session)
        fake.release("end")
        assert run.result().result == "done"


def test_between_turns_there_is_no_limit(live, clock):
    """A session may wait for its user for days."""
    _, session = live(turn(), turn())
    session.ask("q", timeout=5, idle_timeout=5)
    clock.move(1e6, session)
    assert not session.closed
    assert session.ask("q", timeout=5, idle_timeout=5).result == "done"


def test_an_open_callback_suspends_the_idle_limit(live, clock):
    """A person may take hours: silence while a callback is at work is ours, not the CLI's."""
    _, session = live(began(), ask_permission("Bash"), ended(), can_use_tool=lambda request: waited.wait(DEADLINE))
    waited = threading.Event()
    run = session.run("q", idle_timeout=100)
    until(lambda: session._duplex.is_answering)
    for _ in range(3):
        clock.move(200, session)
        assert run._channel.stopped is None
    waited.set()
    assert run.result().result == "done"


def test_the_total_limit_is_not_suspended(live, clock):
    """Also a callback that never comes back cannot hold a turn beyond it."""
    _, session = live(began(), ask_permission("Bash", answered=False), interrupted(in_tool=True), turn(),
                      can_use_tool=lambda request: request.wait_cancelled(DEADLINE))  # fmt: skip
    run = session.run("q", timeout=100)
    until(lambda: session._duplex.is_answering)
    clock.move(200, session)
    with pytest.raises(TurnTimeout):
        run.result()
    assert session.ask("q2").result == "done"


def test_a_limit_whose_interrupt_is_ignored(live, impatient, clock):
    """Not even a reply: the session is ended in bounds, by KILL where TERM is ignored; the run says timeout."""
    fake, session = live(ignore_term(), began(), ready("on"), hang())
    run = session.run("q", timeout=100)
    fake.wait("on")
    clock.move(200, session)
    with pytest.raises(TurnTimeout):
        run.result()
    with pytest.raises(SessionClosedError):
        session.mcp_status()
    until_gone(fake)
    assert session._channel.exit_code == -signal.SIGKILL


def test_too_much_output_that_nobody_takes(live):
    """`max_buffered_bytes` holds for a turn: it is interrupted, what comes then is not kept, the session goes on."""
    fake, session = live(began(), repeat(50, text("x" * 1000)), ready("said"), interrupted(), turn(),
                         max_buffered_bytes=10_000)  # fmt: skip
    run = session.run("q")
    fake.wait("said")
    until(lambda: run.done)
    events = list(run)
    assert events[-1].subtype == "overflow"
    assert session.ask("q2").result == "done"


# --- cancel, close, drop


def test_cancel_ends_the_turn_only(live):
    """TurnCancelled, not the CLI's word for it; the session goes on."""
    fake, session = live(began(), ready("on"), interrupted(), turn())
    run = session.run("q")
    fake.wait("on")
    run.cancel()
    run.cancel()
    with pytest.raises(TurnCancelled):
        run.result()
    assert session.ask("q2").result == "done"


def test_leaving_a_run_early(live):
    """`with` interrupts what is unfinished and waits for its end: the next run sees no old event."""
    _, session = live(began(), text("one"), interrupted(), turn(text("two"), answer="two"))
    with session.run("q") as run:
        for event in run:
            if event.type == "text":
                break
    assert run.done
    assert [event.text for event in session.run("q2") if event.type == "text"] == ["two"]


def test_a_dropped_run_is_cancelled(live):
    """As if it had been closed; the session goes on."""
    fake, session = live(began(), ready("on"), interrupted(), turn())
    run = session.run("q")
    fake.wait("on")
    del run
    gc.collect()
    until(lambda: "interrupt" in lines(fake))
    until(lambda: session._turn() is None or session._turn().has_ended)
    assert session.ask("q2").result == "done"


def test_cancel_when_the_answer_is_there(live, clock, monkeypatch):
    """The answer outweighs it."""
    monkeypatch.setattr(_session_reader, "_SETTLE", 1000.0)
    fake, session = live(began(), result("done"), ready("said"), wait_for("go"), turn())
    run = session.run("q")
    fake.wait("said")
    until(lambda: run._channel.reducer.answer)
    run.cancel()
    clock.move(0, session)
    assert not run.done
    clock.move(2000, session)
    assert run.result().result == "done"
    fake.release("go")
    assert session.ask("q2").result == "done"


def test_cancel_that_the_cli_ignores(live, impatient):
    """The session is ended in bounds; the run is cancelled."""
    fake, session = live(began(), ready("on"), hang())
    run = session.run("q")
    fake.wait("on")
    run.close()
    with pytest.raises(TurnCancelled):
        run.result()
    until(lambda: session.closed)
    until_gone(fake)


def test_close_lets_the_cli_end(live):
    """The input is closed, and the CLI ends by itself; TERM would cost the end of the transcript."""
    fake, session = live(turn())
    session.ask("q")
    session.close()
    assert session._channel.exit_code == 0
    assert not fake.alive()
    session.close()


def test_close_in_the_middle_of_a_turn(live):
    """The turn is cancelled, and the session closed."""
    fake, session = live(began(), ready("on"), interrupted())
    run = session.run("q")
    fake.wait("on")
    session.close()
    with pytest.raises(TurnCancelled, match="session was closed"):
        run.result()


def test_close_of_a_cli_that_stays(live, graces):
    """After the grace the ladder: bounded, whatever the CLI does."""
    graces(term=0.1)
    fake, session = live(ignore_term(), ready("on"), hang())
    fake.wait("on")
    session.close(grace=0.1)
    assert session.closed
    assert not fake.alive()


def test_close_waits_for_the_longest_end(live, monkeypatch):
    """Ladder, store and sinks one after the other, and what a loaded machine adds: all that a run's end may take."""
    bounds = []
    wait = SessionChannel.wait
    monkeypatch.setattr(SessionChannel, "wait", lambda channel, bound: bounds.append(bound) or wait(channel, bound))
    _, session = live(read_stdin())
    session.close(grace=4.0)
    assert max(bounds) == 4.0 + Channel.end_bound


def test_the_shorter_grace_of_two_closes(live, graces):
    """Who has less time is not held up by who has more."""
    graces(term=0.1)
    fake, session = live(ready("on"), hang())
    fake.wait("on")
    patient = Background(session.close, 60.0)
    until(lambda: session._channel.closing)
    session.close(grace=0.1)
    assert session.closed
    patient.result()


def test_a_closed_session(live):
    """SessionClosedError for all that is asked of it; its facts stay readable."""
    _, session = live(turn())
    session.ask("q")
    session.close()
    for call in (lambda: session.run("q"), lambda: session.ask("q"), session.mcp_status, session.interrupt):
        with pytest.raises(SessionClosedError):
            call()
    assert session.closed
    assert session.session_id
    assert list(session.events()) == []


def test_a_dropped_session_ends(play):
    """The last reference to it ends its process."""
    fake = play(*expect_initialize(), read_stdin())
    Client(cli_path=fake.path).session()
    gc.collect()
    until_gone(fake)


def test_a_session_lives_as_long_as_its_run(play):
    """A session whose variable is gone is not ended under its run."""
    fake = play(*expect_initialize(), began(), ready("on"), wait_for("end"), ended(), read_stdin())
    run = Client(cli_path=fake.path).session().run("q")
    fake.wait("on")
    gc.collect()
    fake.release("end")
    assert run.result().result == "done"
    until_gone(fake)


def test_close_frees_those_who_wait(live, graces):
    """A request that waits fails when the session is closed on another thread."""
    graces(term=0.1)
    fake, session = live(wait_for_request("slow"), ready("asked"), hang())
    asking = Background(session.request, "slow")
    fake.wait("asked")
    session.close(grace=0.1)
    with pytest.raises(SessionClosedError):
        asking.result()


def test_client_close_ends_sessions(play, graces):
    """Also one whose turn is on; nothing is left, and new ones are refused."""
    graces(term=0.1)
    fake = play(*expect_initialize(), began(), ready("on"), hang())
    client = Client(cli_path=fake.path)
    session = client.session()
    run = session.run("q")
    fake.wait("on")
    client.close()
    assert session.closed
    with pytest.raises(TurnCancelled):
        run.result()
    with pytest.raises(ClientClosedError):
        client.session()
    session.close()


# --- death


def test_death_in_the_middle(live):
    """ProcessError for the run that is on, SessionClosedError for a request that waits and for what comes after."""
    _, session = live(began(), wait_for_request("slow"), to_stderr("out of memory\n"), die_by(signal.SIGKILL))
    run = session.run("q")
    asking = Background(session.request, "slow")
    with pytest.raises(ProcessError, match="SIGKILL") as caught:
        run.result()
    assert "out of memory" in caught.value.stderr
    with pytest.raises(SessionClosedError):
        asking.result()
    for call in (lambda: session.run("q"), session.mcp_status, session.interrupt):
        with pytest.raises(SessionClosedError):
            call()


def test_an_end_says_why_and_what_helps(live):
    """The message has the cause in it, and how to go on; it is what a log shows."""
    _, session = live(turn(), wait_for_request("slow"), die_by(signal.SIGKILL))
    session.ask("q")
    why, remedy = "killed by SIGKILL", f"; go on with client.session(resume={session.session_id!r})"
    with pytest.raises(SessionClosedError) as caught:
        session.request("slow")
    assert why in caught.value.message
    assert caught.value.message.endswith(remedy)
    assert isinstance(caught.value.__cause__, ProcessError)
    for call in (lambda: session.ask("q"), session.context_usage):
        with pytest.raises(SessionClosedError) as caught:
            call()
        assert caught.value.message.startswith("the session has ended: ")
        assert why in caught.value.message
        assert caught.value.message.endswith(remedy)


def test_an_end_of_what_cannot_be_resumed(live):
    """Nothing is advised that does not work: no transcript was written, or no turn has begun."""
    for steps, options in (([turn()], {"persist_session": False}), ([wait_for("end")], {})):
        fake, session = live(*steps, die_by(signal.SIGKILL), **options)
        if options:
            session.ask("q")
        else:
            fake.release("end")
        until(lambda session=session: session.closed)
        with pytest.raises(SessionClosedError, match="SIGKILL") as caught:
            session.run("q")
        assert "go on" not in caught.value.message


def test_an_end_that_was_wanted(play):
    """Closed is closed, by whom ever: no reason to look for, and nothing that helps."""
    for close, message in (
        (lambda client, session: session.close(), "the session is closed"),
        (lambda client, session: client.close(), "the session was closed"),
    ):
        client = Client(cli_path=play(*expect_initialize(), turn(), read_stdin()).path)
        session = client.session()
        session.ask("q")
        close(client, session)
        with pytest.raises(SessionClosedError) as caught:
            session.run("q")
        assert caught.value.message == message


@pytest.mark.parametrize("before", [[], [turn()]])
def test_death_does_not_lead_to_the_doctor(live, before):
    """The program has answered: it is Claude Code, in its first turn too."""
    fake, session = live(*before, wait_for("end"), die_by(signal.SIGKILL))
    for _ in before:
        session.ask("q")
    run = session.run("q")
    fake.release("end")
    with pytest.raises(ProcessError) as caught:
        run.result()
    assert "doctor" not in str(caught.value)


def test_run_right_after_death(live):
    """Whoever tries again at once, while the end is being dealt with, is told: no run that never ends."""
    for _ in range(20):
        _, session = live(began(), die_by(signal.SIGKILL))
        with pytest.raises(ProcessError):
            session.ask("q")
        with pytest.raises(SessionClosedError):
            session.ask("q", timeout=DEADLINE)


def test_a_turn_that_meets_the_end(live, monkeypatch):
    """One that is put in when the reader has looked for the last time, and has not said so, still ends."""
    fake, session = live(wait_for("go"), die_by(signal.SIGKILL))
    late = []
    terminal_event = _session_reader.SessionReader._terminal_event

    def slowly(reader):
        if not late:
            late.append(session.run("too late"))
        return terminal_event(reader)

    monkeypatch.setattr(_session_reader.SessionReader, "_terminal_event", slowly)
    fake.release("go")
    until(lambda: late)
    with pytest.raises(ProcessError):
        late[0].result(DEADLINE)


def test_a_turn_that_comes_behind_the_end(live, monkeypatch):
    """The session ends when `run` has looked whether it has: SessionClosedError, and no run that never ends."""
    fake, session = live(wait_for("go"), exit_with(3))
    turn_class = session_module.Turn

    def late(*args, **named):
        fake.release("go")
        until(lambda: session.closed)
        return turn_class(*args, **named)

    monkeypatch.setattr(session_module, "Turn", late)
    with pytest.raises(SessionClosedError) as caught:
        session.run("q")
    assert isinstance(caught.value.__cause__, ProcessError)


def test_death_while_nobody_looks(live):
    """The cause is told with what comes next."""
    _, session = live(to_stderr("killed by the system\n"), exit_with(3))
    until(lambda: session.closed)
    with pytest.raises(SessionClosedError) as caught:
        session.run("q")
    assert isinstance(caught.value.__cause__, ProcessError)
    assert caught.value.__cause__.exit_code == 3
    assert "killed by the system" in str(caught.value.__cause__)


# --- events


def test_events_are_all_there_is(live):
    """Also what came without a prompt: before the turn, and behind it."""
    fake, session = live(wait_for("go"), text("nobody asked"), turn(text("mine")), text("later"), exit_with(0))
    events = session.events()
    fake.release("go")
    assert session.ask("q").result == "done"
    assert [event.text for event in events if event.type == "text"] == ["nobody asked", "mine", "later"]


def test_two_listeners(live):
    """Each gets everything, from when it began to listen."""
    _, session = live(turn(text("a")), turn(text("b")), exit_with(0))
    first = session.events()
    session.ask("q")
    second = session.events()
    session.ask("q")
    texts = [[event.text for event in events if event.type == "text"] for events in (first, second)]
    assert texts == [["a", "b"], ["b"]]


def test_events_end_with_the_session(live):
    """The iterator ends when the session does, also for one that waits at that moment."""
    _, session = live(turn(text("a")))
    events = session.events()
    reading = Background(lambda: [event.type for event in events])
    session.ask("q")
    session.close()
    assert "text" in reading.result()


def test_closing_events_wakes_its_reader(live):
    """`close` from another thread; nothing is kept for it any more."""
    _, session = live()
    events = session.events()
    reading = Background(list, events)
    events.close()
    assert reading.result() == []
    assert not session._channel.listeners


def test_dropped_events_are_not_kept(live):
    """Nobody takes them, so nobody keeps them."""
    _, session = live()
    events = session.events()
    del events
    gc.collect()
    assert not session._channel.listeners


# --- slots


def test_a_session_holds_a_slot(play, slots_free):
    """From its start to its end, turns or not."""
    fake = play(*expect_initialize(), turn(), read_stdin())
    client = Client(cli_path=fake.path, max_concurrent=2)
    with client.session() as session:
        assert slots_free(client) == 1
        session.ask("q")
        assert slots_free(client) == 1
    assert slots_free(client) == 2


def test_a_session_on_the_only_slot(play):
    """On its thread nothing else could ever start: ConcurrencyError at once instead of waiting for ever."""
    fake = play(*expect_initialize(), read_stdin())
    client = Client(cli_path=fake.path, max_concurrent=1)
    with client.session():
        for call in (lambda: client.run("q"), lambda: client.ask("q"), client.session, lambda: next(client.map(["q"]))):
            with pytest.raises(ConcurrencyError, match="all 1 slots"):
                call()
    assert len(fake.calls) == 1


def test_with_a_time_limit_one_may_wait(play):
    """`slot_timeout` bounds it, so it is a SlotTimeoutError as anywhere."""
    fake = play(*expect_initialize(), read_stdin())
    client = Client(cli_path=fake.path, max_concurrent=1)
    with client.session(), pytest.raises(SlotTimeoutError):
        client.run("q", slot_timeout=0.01)


def test_another_thread_may_wait_for_the_slot(play, slots_free):
    """The session's own thread can close it: no ConcurrencyError for others."""
    fake = play(scripts=[[*expect_initialize(), read_stdin()], [init(), result("1")]])
    client = Client(cli_path=fake.path, max_concurrent=1)
    session = client.session()
    asking = Background(client.ask, "q")
    until(lambda: client._pool._line)
    session.close()
    assert asking.result().result == "1"
    assert slots_free(client) == 1


def test_a_thread_of_the_past_holds_nothing(play):
    """A thread that gets the number of one that opened sessions and ended is another one."""
    fake = play(scripts=[[*expect_initialize(), read_stdin()], [init(), result("1")]])
    client = Client(cli_path=fake.path, max_concurrent=1)
    opened = []
    thread = threading.Thread(target=lambda: opened.append(client.session()))
    thread.start()
    thread.join()
    asking = Background(client.ask, "q")
    until(lambda: client._pool._line)
    opened[0].close()
    assert asking.result().result == "1"


def test_with_a_run_among_the_slots_one_may_wait(play):
    """Runs end by themselves, so a slot will come free."""
    fake = play(scripts=[[*expect_initialize(), read_stdin()], [ready("on"), wait_for("end"), init(), result("1")]])
    client = Client(cli_path=fake.path, max_concurrent=2)
    with client.session():
        run = client.run("q")
        fake.wait("on")
        asking = Background(client.ask, "q2")
        until(lambda: client._pool._line)
        fake.release("end")
        assert run.result().result == "1"
        assert asking.result().result == "1"


# --- clients, totals, pickling, fork


def test_totals_count_turns_and_not_sessions(play):
    """Each turn once, with its cost; a cancelled one as such."""
    fake = play(*expect_initialize(), turn(), turn(), began(), ready("on"), interrupted(), read_stdin())
    client = Client(cli_path=fake.path)
    with client.session() as session:
        session.ask("1")
        session.ask("2")
        run = session.run("3")
        fake.wait("on")
        run.close()
    totals = client.totals
    assert (totals.turns, totals.cancelled, totals.failures) == (3, 1, {"TurnCancelled": 1})
    assert totals.cost_usd == pytest.approx(2 * 0.000204, abs=0.000204)


def test_a_client_with_other_options(play):
    """A session of `with_options` has them, and its slot is the same client's."""
    fake = play(*expect_initialize(), read_stdin())
    client = Client(cli_path=fake.path, max_concurrent=1)
    with client.with_options(model="haiku").session():
        assert fake.calls[0].option("--model") == "haiku"
        with pytest.raises(SlotTimeoutError):
            client.run("q", slot_timeout=0)


def test_a_session_cannot_be_pickled(live):
    """A sentence says what to do instead."""
    _, session = live()
    with pytest.raises(TypeError, match="resume"):
        pickle.dumps(session)


def in_child(call) -> str:
    """What `call` gives or raises in a forked child, as text."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = str(call())
        except Exception as error:  # noqa: BLE001 - told to the parent
            said = f"{type(error).__name__}: {error}"
        try:
            os.write(writing, said.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        said = file.read().decode()
    os.waitpid(pid, 0)
    return said


CHILD = {
    "run": lambda s, r, e: s.run("x"),
    "ask": lambda s, r, e: s.ask("x"),
    "request": lambda s, r, e: s.mcp_status(),
    "interrupt": lambda s, r, e: s.interrupt(),
    "events": lambda s, r, e: s.events(),
    "next event": lambda s, r, e: next(e),
    "next of the run": lambda s, r, e: next(r),
}


@pytest.mark.parametrize("what", CHILD)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_after_a_fork(live, what):
    """ConcurrencyError in the child; the parent's session is unharmed, its turn goes on."""
    fake, session = live(began(), ready("on"), wait_for("end"), ended(), turn(answer="two"))
    events = session.events()
    run = session.run("q")
    fake.wait("on")
    assert in_child(lambda: CHILD[what](session, run, events)).startswith("ConcurrencyError: ")
    fake.release("end")
    assert run.result().result == "done"
    assert session.ask("q2").result == "two"
    events.close()


@pytest.mark.parametrize("how", ["close", "drop", "exit"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_does_not_end_the_parents_session(live, how):
    """Closing or dropping it there does nothing, nor does its copy of stdin keep the parent's CLI alive."""
    _, session = live(turn())

    def end():
        if how == "close":
            session.close()
        elif how == "drop":
            session.__del__()

    assert in_child(end) == "None"
    assert session.ask("q").result == "done"
    session.close()
    assert session._channel.exit_code == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_living_child_does_not_hold_the_stdin(live):
    """The parent's end of input comes although a forked child lives on."""
    _, session = live()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent is done
        os._exit(0)
    session.close(grace=DEADLINE)
    assert session._channel.exit_code == 0
    os.close(writing)
    os.close(reading)
    os.waitpid(pid, 0)


def test_the_end_of_the_host_ends_the_session(play):
    """A program that ends with an open session leaves no process behind."""
    import subprocess
    import sys
    from pathlib import Path

    fake = play(*expect_initialize(), ready("on"), read_stdin(), hang())
    code = (
        "import sys; from claude_cli_client import Client\n"
        f"session = Client(cli_path={str(fake.path)!r}).session()\nprint(session.pid)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True,
        cwd=Path(_session_reader.__file__).parents[1],
    )  # fmt: skip
    assert done.stderr == ""
    assert not is_running(int(done.stdout))


# --- what callbacks raise


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["can_use_tool", "hook"])
def test_what_must_not_be_swallowed_rises_in_the_consumer(live, error, where):
    """SystemExit and KeyboardInterrupt of a callback: the CLI gets its denial, the turn's consumer the exception."""

    def callback(_):
        raise error

    steps = ask_permission("Bash") if where == "can_use_tool" else call_hook("hook_1", "PreToolUse")
    given = {"can_use_tool": callback} if where == "can_use_tool" else {"hooks": {"PreToolUse": callback}}
    fake, session = live(began(), *steps, ready("answered"), interrupted(in_tool=True), turn(), **given)
    run = session.run("q")
    with pytest.raises(type(error)):
        run.result()
    fake.wait("answered")
    run.close()
    assert session.ask("q2").result == "done"


# --- nothing is left


def give_up(session):
    with pytest.raises(TimeoutError):
        session.request("x", timeout=0.01)


WAYS = {
    "used and closed": ([turn(), read_stdin()], lambda s: (s.ask("q"), s.close())),
    "closed at once": ([read_stdin()], lambda s: s.close()),
    "dropped": ([read_stdin()], lambda s: None),
    "dropped in a turn": ([began(), hang()], lambda s: s.run("q") and None),
    "closed in a turn": ([began(), interrupted()], lambda s: (s.run("q"), s.close(0.3))),
    "killed": ([began(), die_by(signal.SIGKILL)], lambda s: s.run("q").error()),
    "killed at idle": ([die_by(signal.SIGKILL)], lambda s: until(lambda: s.closed)),
    "a deaf one": ([ignore_term(), hang()], lambda s: s.close(0.0)),
    "a request given up": ([hang()], lambda s: give_up(s)),
    "a run given up": ([began(), hang()], lambda s: s.run("q", timeout=0.01).cancel()),
    "two closers": ([hang()], lambda s: (Background(s.close, 0.01), s.close(0.01))),
}
MANY = int(os.environ.get("CLAUDE_CLI_CLIENT_TEST_SESSIONS", "33"))


def test_many_sessions_leave_nothing(play, impatient, slots_free):
    """Opened, used and broken in all ways: no process, thread, descriptor, file or slot is left."""
    fakes = {name: play(*expect_initialize(), *steps) for name, (steps, _) in WAYS.items()}
    for _, (name, (_, use)) in zip(range(MANY), itertools.cycle(WAYS.items()), strict=False):
        client = Client(cli_path=fakes[name].path)
        use(client.session())
        gc.collect()
        until(lambda client=client: slots_free(client) == 4, f"the slot of a session that was {name}")
    for fake in fakes.values():
        fake.wait_gone()


def test_many_sessions_at_once_leave_nothing(play, impatient, slots_free):
    """Twelve threads, each with sessions of its own that end in their own way."""
    fakes = {name: play(*expect_initialize(), *steps) for name, (steps, _) in WAYS.items()}
    clients = {name: Client(cli_path=fake.path, max_concurrent=12) for name, fake in fakes.items()}

    def use(name):
        WAYS[name][1](clients[name].session())
        gc.collect()

    for one in [Background(use, name) for name in WAYS]:
        one.result(60)
    for name, client in clients.items():
        until(lambda client=client: slots_free(client) == 12, name)
    for fake in fakes.values():
        fake.wait_gone()


def test_the_speed_of_a_turn(live):
    """Between the result and its delivery nothing waits for a timer: 50 turns in well under 50 settling times."""
    _, session = live(repeat(50, turn()))
    began_at = time.monotonic()
    for _ in range(50):
        session.ask("q")
    assert time.monotonic() - began_at < 50 * _session_reader._SETTLE / 2


def test_reply_answers_the_last_request(live):
    """The fake's own machinery: `wait_for_line` in a turn does not change what `reply` answers."""
    _, session = live(wait_for_request("a"), wait_for_line({"type": "user"}), reply({"b": 1}))
    asking = Background(session.request, "a")
    until(lambda: session._duplex._waiters)
    session.run("q").cancel()
    assert asking.result() == {"b": 1}


# --- what a turn gets, and Ctrl-C in its start


@pytest.mark.parametrize(
    "limits", [{"timeout": "5"}, {"timeout": -1}, {"idle_timeout": []}, {"idle_timeout": float("nan")}]
)
@pytest.mark.parametrize("way", ["run", "ask", "map"])
def test_wrong_limits_of_a_turn(live, limits, way):
    """ValueError before anything is said; the session goes on."""
    _, session = live(turn())
    (name,) = limits
    with pytest.raises(ValueError, match=name):
        list(session.map(["q"], **limits)) if way == "map" else getattr(session, way)("q", **limits)
    assert session.ask("q").result == "done"


@pytest.mark.parametrize("grace", ["5", -1, None])
def test_a_wrong_grace(live, grace):
    """ValueError, and the session is not closed."""
    _, session = live(turn())
    with pytest.raises(ValueError, match="grace"):
        session.close(grace=grace)
    assert session.ask("q").result == "done"


@pytest.mark.parametrize("timeout", ["5", float("nan")])
def test_a_wrong_timeout_of_a_request(live, timeout):
    """ValueError, and the CLI is not asked."""
    fake, session = live(turn())
    with pytest.raises(ValueError, match="timeout must be a number of seconds"):
        session.request("mcp_status", timeout=timeout)
    session.ask("q")
    assert "mcp_status" not in lines(fake)


def test_ctrl_c_before_the_prompt_is_said(live, monkeypatch):
    """The turn is over at once, without the time that an interrupted one has; the session goes on."""
    _, session = live(turn())
    monkeypatch.setattr(_session_reader, "_INTERRUPT_GRACE", 1000.0)

    def interrupted_by_ctrl_c(line):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(session._duplex, "say", interrupted_by_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            session.run("q")
    gc.collect()
    until(lambda: session._turn is None or session._turn() is None or session._turn().has_ended)
    assert session.ask("q").result == "done"


def test_ctrl_c_in_ask_comes_out_at_once(live, monkeypatch):
    """The CLI takes its time to end the turn, and nobody waits for it; then the session goes on."""
    fake, session = live(began(), ready("asked"), wait_for("go"), interrupted(), turn())
    monkeypatch.setattr(_session_reader, "_INTERRUPT_GRACE", 1000.0)

    def interrupted_by_ctrl_c(run, timeout=None):
        fake.wait("asked")
        raise KeyboardInterrupt

    began_at = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(Run, "result", interrupted_by_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            session.ask("q")
    assert time.monotonic() - began_at < Turn.end_bound / 2  # which `close` would have waited for
    turn_of = session._turn()
    fake.release("go")
    until(lambda: turn_of.has_ended)
    assert session.ask("q").result == "done"


def test_a_fault_in_the_totals_of_a_turn(live, monkeypatch, caplog):
    """The consumer gets his answer all the same, and what failed is logged when nobody waits any more."""
    _, session = live(turn())

    def fail(terminal, error):
        raise MemoryError("the prompt")

    with monkeypatch.context() as patch:
        patch.setattr(session._pool, "count", fail)
        assert session.ask("q").result == "done"
    session.close()
    until(lambda: "while ending a turn: MemoryError" in caplog.text)
    assert "the prompt" not in caplog.text
    caplog.clear()


def test_a_prompt_right_behind_the_terminal_event(live, monkeypatch):
    """Who has the last event of a turn may go on, also in the instant before the turn counts as ended."""
    go = threading.Event()

    class Late(Latch):
        def open(self):
            go.wait(DEADLINE)
            super().open()

    _, session = live(turn(), turn())
    monkeypatch.setattr(_turn, "Latch", Late)
    first = session.run("a")
    assert next(event for event in first if event.is_terminal).result == "done"
    assert not first.done
    second = session.run("b")
    go.set()
    assert second.result().result == "done"


@pytest.mark.parametrize("way", ["dropped", "died in a turn", "died idle", "closed elsewhere"])
def test_a_session_that_is_ending_is_waited_for(play, graces, way):
    """Its slot comes free in a moment: who opens the next one, or asks, gets it and no ConcurrencyError."""
    graces(term=0.2)
    first = [*expect_initialize(), began(), ready("on"), wait_for("go"), die_by(signal.SIGKILL)]
    if way == "dropped":
        first = [*expect_initialize(), ignore_term(), ready("up"), hang()]
    elif way in ("died idle", "closed elsewhere"):
        first = [*expect_initialize(), ignore_term(), ready("up"), wait_for("go"), die_by(signal.SIGKILL)]
    fake = play(scripts=[first, [init(), result("next")]])
    client = Client(cli_path=fake.path, max_concurrent=1)
    session = client.session()
    if way == "died in a turn":
        run = session.run("q")
        fake.wait("on")
        fake.release("go")
        with pytest.raises(ProcessError):
            run.result()
    elif way == "died idle":
        fake.wait("up")
        fake.release("go")
        until(lambda: session._channel.gone)
    elif way == "closed elsewhere":
        fake.wait("up")
        closing = Background(session.close, 0.1)
        until(lambda: session._channel.closing is not None)
        assert client.ask("q").result == "next"
        closing.result()
        return
    else:
        fake.wait("up")
        del session
    assert client.ask("q").result == "next"


def test_threads_that_wait_for_each_others_sessions(play, slots_free):
    """Two threads hold both slots with a session each, and each waits for a third: one of them is told."""
    fake = play(scripts=[[*expect_initialize(), read_stdin()]] * 2 + [[init(), result("1")]] * 2)
    client = Client(cli_path=fake.path, max_concurrent=2)
    both = threading.Barrier(2)

    def work():
        with client.session() as session:
            both.wait(DEADLINE)
            try:
                return client.ask("q").result
            except ConcurrencyError:
                session.close()
                return "told"

    working = [Background(work) for _ in range(2)]
    assert sorted(one.result() for one in working) == ["1", "told"]
    assert slots_free(client) == 2


def test_a_session_and_a_callback_that_wait_for_each_other(play, slots_free):
    """The session's thread waits first, and then the callback of the run that holds the other slot: that is told."""
    scripts = [
        [*expect_initialize(), read_stdin()],
        [began(), ask_permission("Bash"), ended(), read_stdin()],
        [init(), result("1")],
    ]
    fake = play(scripts=scripts)
    client = Client(cli_path=fake.path, max_concurrent=2)
    told = []

    def can_use_tool(request):
        until(lambda: client._pool._line)
        with pytest.raises(ConcurrencyError) as caught:
            client.ask("another")
        told.append(caught.value)
        return True

    with client.session():
        asking = Background(client.ask, "q", can_use_tool=can_use_tool)
        until(lambda: len(client._pool._held) == 2)
        assert client.ask("mine").result == "1"
    assert asking.result().result == "done"
    assert len(told) == 1
    assert slots_free(client) == 2


def test_an_answer_that_is_too_long(live):
    """The request fails with the reason, and does not wait for its time."""
    _, session = live(*expect("get_settings", {"x": "y" * 5000}), max_line_bytes=4000)
    with pytest.raises(ControlError, match="max_line_bytes"):
        session.request("get_settings")


def test_a_frame_whose_type_is_no_text(live):
    """It is nobody's, and the session goes on."""
    _, session = live(say({"type": ["x"], "sdk_host_only": True}), say({"type": {}, "sdk_host_only": True}), turn())
    assert session.ask("q").result == "done"
