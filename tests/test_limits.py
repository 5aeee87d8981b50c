"""The limits in time: they hold while nobody iterates, and they say which one it was.

Where a limit must be seen not to fire, the clock of the reader is moved instead of waiting.
"""

from __future__ import annotations

import pytest
from waiting import DEADLINE, Background, until, until_gone

from claude_cli_client import Client, ProcessError, TurnTimeout
from claude_cli_client.testing import (
    SESSION_ID,
    api_retry,
    close_stream,
    die_by,
    exit_with,
    hang,
    ignore_stdin,
    ignore_term,
    init,
    on_term,
    pause,
    raw_bytes,
    ready,
    repeat,
    result,
    start_child,
    text,
    to_stderr,
    wait_for,
)

# (the limits, the terminal event's subtype, `kind`, words of the message)
TOTAL = ({"timeout": 0.1, "idle_timeout": None, "start_timeout": None}, "timeout", "total", "turn's limit of 0.1 s")
IDLE = ({"idle_timeout": 0.1}, "idle_timeout", "idle", "idle limit of 0.1 s")
START = ({"start_timeout": 0.1}, "start_timeout", "start", "start's limit of 0.1 s")
NAMES = ("limits", "subtype", "kind", "says")
LIMITS = pytest.mark.parametrize(NAMES, [TOTAL, IDLE, START], ids=["total", "idle", "start"])


def of_100_s(limits):
    """The same limits, for a clock that is moved: no start takes as long."""
    return {name: seconds and 100 for name, seconds in limits.items()}


# --- they hold


@LIMITS
def test_a_limit_ends_the_process_while_nobody_iterates(play, clock, limits, subtype, kind, says):
    """No event is taken, and the process is gone all the same; the events wait for whoever comes."""
    fake = play(*([] if kind == "start" else [init()]), ready("on"), hang())
    run = Client(cli_path=fake.path).run("p", **of_100_s(limits))
    fake.wait("on")
    clock.move(200, run)
    until_gone(fake)
    until(lambda: run.done)
    *_, last = run
    assert (last.type, last.subtype, last.is_terminal) == ("error", subtype, True)


@LIMITS
def test_the_error_names_the_limit_and_the_option(play, limits, subtype, kind, says):
    """`TurnTimeout`, also a TimeoutError: which limit, how many seconds, which option changes it."""
    steps = [hang()] if kind == "start" else [init(), hang()]
    run = Client(cli_path=play(*steps).path).run("p", **limits)
    with pytest.raises(TurnTimeout) as caught:
        run.result()
    error = caught.value
    assert isinstance(error, TimeoutError)
    assert (error.kind, error.limit, error.exit_code) == (kind, 0.1, -15)
    assert says in str(error)
    assert f"{next(iter(limits))}=" in str(error)
    assert error.retryable is (kind != "total")


@LIMITS
@pytest.mark.parametrize("deaf", ["ignores", "stopped"])
def test_a_limit_ends_a_cli_that_does_not_hear_term(play, graces, clock, limits, subtype, kind, says, deaf):
    """After the grace it is KILL, which neither SIG_IGN nor a SIGSTOP keeps off."""
    graces(term=0.1)
    first = [] if kind == "start" else [init()]
    fake = play(ignore_term(), *first, ready("on"), *([die_by(19)] if deaf == "stopped" else []), hang())
    run = Client(cli_path=fake.path).run("p", **of_100_s(limits))
    fake.wait("on")
    if first:
        next(run)
    clock.move(200, run)
    until_gone(fake)
    with pytest.raises(TurnTimeout) as caught:
        run.result()
    assert (caught.value.kind, caught.value.exit_code) == (kind, -9)


@LIMITS
def test_a_limit_in_ask(play, clock, limits, subtype, kind, says):
    """When `ask` raises, nothing of the turn is left."""
    first = [] if kind == "start" else [init()]
    fake = play(*first, start_child("detached", ignore_term=True), ready("on"), hang())
    client = Client(cli_path=fake.path)
    asking = Background(client.ask, "p", **of_100_s(limits))
    fake.wait("on")
    (channel,) = client._pool._running
    clock.move(200, channel)
    with pytest.raises(TurnTimeout) as caught:
        asking.result()
    assert caught.value.kind == kind
    until_gone(fake)


@LIMITS
def test_a_limit_of_the_client(play, clock, limits, subtype, kind, says):
    """A client's default is a limit of each call, and a call's own comes before it."""
    fake = play(ignore_stdin(), ready("on"), wait_for("go"), init(), result("1"))
    client = Client(cli_path=fake.path, **of_100_s(limits))
    run = client.run("p")
    clock.move(200, run)
    with pytest.raises(TurnTimeout) as caught:
        run.result()
    assert (caught.value.kind, caught.value.limit) == (kind, 100)
    run = client.run("p", timeout=None, idle_timeout=None, start_timeout=None)
    clock.move(200, run)
    fake.release("go")
    assert run.result().result == "1"


def test_a_very_short_limit(play):
    """A limit that is over before the CLI has done anything ends the run like any other."""
    fake = play(init(), hang())
    with pytest.raises(TurnTimeout, match="1e-06 s"):
        Client(cli_path=fake.path).ask("p", timeout=0.000001)


def test_what_came_before_the_limit_is_delivered(play, clock):
    """Events, session and stderr of a turn that ran into a limit."""
    fake = play(init(), text("so far"), to_stderr("trouble\n"), hang())
    run = Client(cli_path=fake.path).run("p", idle_timeout=100)
    until(lambda: run.stderr and run._channel.reducer.text)
    clock.move(200, run)
    events = list(run)
    assert [event.type for event in events] == ["system", "text", "error"]
    assert events[-1].result == "so far"
    error = run.error()
    assert isinstance(error, TurnTimeout)
    assert (error.session_id, error.stderr) == (SESSION_ID, "trouble\n")


def test_the_start_limit_shows_the_command_without_secrets(play, clock):
    """Path, version and argv are what one needs to find out why nothing came; prompts are not shown."""
    fake = play(hang())
    client = Client(cli_path=fake.path)
    client.check_ready()
    secrets = {"system_prompt": "the-secret", "env": {"K": "the-value"}}
    run = client.run("the-prompt", start_timeout=100, model="sonnet", **secrets)
    clock.move(200, run)
    with pytest.raises(TurnTimeout) as caught:
        run.result()
    assert "\n" not in caught.value.message
    assert str(fake.path) not in caught.value.message
    message = str(caught.value)
    assert str(fake.path) in message
    assert "--model=sonnet" in message
    assert caught.value.cli_version in message
    assert caught.value.cli_version
    for secret in ("the-prompt", "the-secret", "the-value"):
        assert secret not in message


def test_noise_is_no_start(play, clock):
    """A program that prints for ever, but no JSON, has the start's limit, and the error shows what it says."""
    noise = raw_bytes(b"y\n"), pause(0.01)
    fake = play(ignore_stdin(), *noise, ready("on"), repeat(100_000, *noise))
    run = Client(cli_path=fake.path).run("p", start_timeout=100, idle_timeout=None)
    fake.wait("on")
    clock.move(200, run)
    with pytest.raises(TurnTimeout, match=r"others, the last 'y'; change it with start_timeout=") as caught:
        run.result()
    assert caught.value.kind == "start"


@pytest.mark.parametrize("way", [{}, {"can_use_tool": lambda request: True}], ids=["text", "stream"])
def test_a_banner_before_the_start_does_no_harm(play, clock, way):
    """What a wrapper prints is passed over, and the CLI's first line behind it is the start."""
    fake = play(raw_bytes(b"Welcome!\n\n"), init(), ready("up"), wait_for("go"), result("1"))
    run = Client(cli_path=fake.path).run("p", start_timeout=100, idle_timeout=None, **way)
    next(run)
    fake.wait("up")
    clock.move(200, run)
    fake.release("go")
    assert run.result().result == "1"


@pytest.mark.parametrize("front", [b"\x1b]0;title\x07", b"Using node v20 ", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("way", [{}, {"can_use_tool": lambda request: True}], ids=["text", "stream"])
def test_a_banner_in_the_line_of_the_start_does_no_harm(play, clock, way, front):
    """A wrapper that prints without a newline: the CLI's first line behind it is read."""
    fake = play(raw_bytes(front), init(), ready("up"), wait_for("go"), result("1"))
    run = Client(cli_path=fake.path).run("p", start_timeout=100, idle_timeout=None, **way)
    begun = next(event for event in run if event.subtype == "init")
    assert begun.data["claude_code_version"]
    fake.wait("up")
    clock.move(200, run)
    fake.release("go")
    assert run.result().result == "1"


@pytest.mark.parametrize(
    ("retry", "says"),
    [
        (api_retry(3, status=529), "retry 3 after 529"),
        (api_retry(4, status=None, error="unknown"), "retry 4 after unknown"),
    ],
)
def test_the_message_names_the_last_retry(play, clock, retry, says):
    """The CLI retries the API for minutes; a limit that ends this says what it was waiting for."""
    run = Client(cli_path=play(init(), api_retry(1), retry, hang()).path).run("p", idle_timeout=100)
    assert [next(run).type for _ in range(3)] == ["system", "retry", "retry"]
    clock.move(200, run)
    with pytest.raises(TurnTimeout, match=says):
        run.result()


# --- they do not fire


def test_none_is_no_limit(play, clock):
    """With all three None a run goes on for ever."""
    fake = play(init(), wait_for("end"), result("1"))
    run = Client(cli_path=fake.path).run("p", timeout=None, idle_timeout=None, start_timeout=None)
    next(run)
    for _ in range(5):
        clock.move(1e7, run)
        assert run.next_event(0) is None
    assert not run.done
    fake.release("end")
    assert run.result().result == "1"


def test_lines_keep_the_idle_limit_off(play, clock):
    """Any line resets it: a turn may last much longer than `idle_timeout`. Without lines it fires."""
    names = ["a", "b", "c", "d", "e"]
    fake = play(init(), *[step for name in names for step in (wait_for(name), text(name))], hang())
    run = Client(cli_path=fake.path).run("p", idle_timeout=100)
    next(run)
    for name in names:
        clock.move(60, run)
        assert run.next_event(0) is None
        fake.release(name)
        assert next(run).text == name
    clock.move(60, run)
    assert run.next_event(0) is None
    clock.move(60, run)
    assert next(run).subtype == "idle_timeout"


def test_any_line_keeps_the_idle_limit_off(play, clock):
    """Also one that is not understood, and one that nobody is shown."""
    fake = play(
        init(), wait_for("a"), raw_bytes(b"rubbish\n"), ready("a"), wait_for("b"),
        raw_bytes(b'{"type":"keep_alive"}\n'), ready("b"), wait_for("c"), result("1"),
    )  # fmt: skip
    run = Client(cli_path=fake.path).run("p", idle_timeout=100)
    next(run)
    for name in "ab":
        clock.move(60, run)
        before = run._channel.last_line_at
        fake.release(name)
        fake.wait(name)
        until(lambda before=before: run._channel.last_line_at > before)
    clock.move(60, run)
    assert run.next_event(0) is None
    fake.release("c")
    assert run.result().result == "1"


@pytest.mark.parametrize("noise", [raw_bytes(b'{"type":"assi'), to_stderr("still here\n")], ids=["half", "stderr"])
def test_what_is_no_line_does_not_keep_the_idle_limit_off(play, clock, noise):
    """Half a line, or talk on stderr, is not progress."""
    names = ["a", "b", "c"]
    fake = play(init(), *[(wait_for(name), noise, ready(name)) for name in names], hang())
    run = Client(cli_path=fake.path).run("p", idle_timeout=100)
    next(run)
    for name in names:
        fake.release(name)
        fake.wait(name)
        clock.move(40, run)
    assert next(run).subtype == "idle_timeout"
    with pytest.raises(TurnTimeout) as caught:
        run.result()
    assert caught.value.kind == "idle"


def test_the_first_line_ends_the_start_limit(play, clock):
    """After it only the other limits count."""
    fake = play(init(), wait_for("end"), result("1"))
    run = Client(cli_path=fake.path).run("p", start_timeout=10, idle_timeout=1000)
    next(run)
    clock.move(500, run)
    assert run.next_event(0) is None
    fake.release("end")
    assert run.result().result == "1"


def test_the_total_limit_counts_from_the_start_and_not_from_the_slot(play, clock):
    """Waiting for a slot is `slot_timeout`; the turn's own time begins with its process."""
    fake = play(init(), wait_for("end"), result("1"))
    client = Client(cli_path=fake.path, max_concurrent=1)
    first = client.run("p")
    next(first)
    second = Background(client.run, "p", timeout=100)
    until(lambda: client._pool._line)
    clock.move(200, first)
    fake.release("end", call=0)
    first.result()
    run = second.result()
    next(run)
    clock.move(50, run)
    assert run.next_event(0) is None
    fake.release("end")
    assert run.result().result == "1"


# --- the answer is there, the process is not gone


@pytest.mark.parametrize("deaf", [False, True])
def test_a_process_that_lingers_behind_its_result_is_ended(play, graces, deaf):
    """After the exit grace the ladder; the answer is delivered with the exit code, as an answer."""
    graces(exit=0.1, term=0.1 if deaf else 60)
    fake = play(*([ignore_term()] if deaf else []), init(), text("1"), result("1"), start_child("session"), hang())
    run = Client(cli_path=fake.path).run("p")
    events = list(run)
    assert [event.type for event in events] == ["system", "text", "result"]
    assert events[-1].exit_code == run.exit_code == (-9 if deaf else -15)
    assert run.result().result == "1"
    until_gone(fake)


def test_the_exit_grace_is_not_spent_where_the_process_ends(play, graces):
    """It is the most; a process that ends lets its answer out at once."""
    graces(exit=1000)
    fake = play(init(), result("1"), wait_for("end"))
    run = Client(cli_path=fake.path).run("p")
    next(run)
    assert run.next_event(0.05) is None  # held back: the terminal event comes last
    fake.release("end")
    assert run.result(DEADLINE).result == "1"


@pytest.mark.parametrize("limit", ["timeout", "idle_timeout"])
def test_a_limit_behind_the_result_does_not_count(play, graces, clock, limit):
    """The turn is over: its process has the exit grace, whatever the turn's limits were."""
    graces(exit=1000)
    fake = play(init(), result("1"), hang())
    run = Client(cli_path=fake.path).run("p", **{limit: 100})
    until(lambda: run._channel.reducer.answer)
    clock.move(200, run)
    assert next(run).subtype == "init"
    assert run.next_event(0.1) is None
    assert not run.done
    clock.move(1000, run)
    assert run.result().result == "1"
    assert run.exit_code == -15


def test_lines_behind_the_result_do_not_prolong_the_exit_grace(play, clock):
    """A process that talks for ever after its answer is ended all the same."""
    fake = play(init(), result("1"), repeat(100_000_000, text("more"), [ready("talks")]))
    run = Client(cli_path=fake.path).run("p")
    fake.wait("talks")
    until(lambda: run._channel.reducer.answer)
    clock.move(3, run)
    clock.move(3, run)
    until_gone(fake)
    *_, last = run
    assert last.result == "1"


def test_stdout_closed_and_the_process_lives_on(play, graces):
    """Nothing more can come, so it is given the exit grace and no more; the error says what happened."""
    graces(exit=0.1)
    fake = play(init(), text("so far"), close_stream("stdout"), hang())
    run = Client(cli_path=fake.path).run("p")
    until_gone(fake)
    with pytest.raises(ProcessError, match="closed its output without a result and did not end") as caught:
        run.result()
    assert caught.value.exit_code == -15
    assert caught.value.event.result == "so far"


def test_stdout_closed_behind_the_result(play, graces):
    """The answer is delivered, and the process that lives on is ended."""
    graces(exit=0.1)
    fake = play(init(), result("1"), close_stream("stdout"), close_stream("stderr"), hang())
    assert Client(cli_path=fake.path).ask("p").result == "1"
    until_gone(fake)


def test_stdout_closed_and_the_process_ends_by_itself(play, graces):
    """Closing early is no fault."""
    graces(exit=60)
    fake = play(init(), result("1"), close_stream("stdout"), ready("closed"), wait_for("end"), exit_with(0))
    run = Client(cli_path=fake.path).run("p")
    fake.wait("closed")
    fake.release("end")
    assert run.result().result == "1"
    assert run.exit_code == 0


def test_stderr_closed_is_nothing_at_all(play, clock):
    """Only stdout carries the turn."""
    fake = play(init(), close_stream("stderr"), ready("closed"), wait_for("end"), result("1"))
    run = Client(cli_path=fake.path).run("p", idle_timeout=None, start_timeout=None)
    fake.wait("closed")
    next(run)
    clock.move(60, run)
    assert run.next_event(0) is None
    fake.release("end")
    assert run.result().result == "1"


# --- background="wait"

TASK = {"type": "system", "task_id": "t1", "task_type": "local_bash", "session_id": SESSION_ID}
STARTED = {**TASK, "subtype": "task_started"}
ENDED = {**TASK, "subtype": "task_notification", "status": "completed"}
COMMENT = result("the task is done", index=1, origin={"kind": "task-notification"})


def test_background_wait_reads_on_until_the_tasks_are_done(play, graces, clock):
    """The exit grace does not count while a task is open; its comment is a `task_result`, the answer comes last."""
    graces(exit=5.0)
    fake = play(init(), STARTED, result("answer"), wait_for("done"), ENDED, init(), text("noted"), COMMENT)
    run = Client(cli_path=fake.path).run("p", background="wait", background_timeout=1000)
    assert next(run).type == "system"
    assert next(run).type == "task_started"
    until(lambda: run._channel.reducer.answer)
    clock.move(500, run)
    assert run.next_event(0) is None
    fake.release("done")
    rest = list(run)
    assert [event.type for event in rest] == ["task_notification", "system", "text", "task_result", "result"]
    assert (rest[-1].result, rest[-1].is_terminal) == ("answer", True)
    assert run.exit_code == 0


def test_background_wait_gives_the_exit_grace_when_all_tasks_are_done(play, graces):
    """Nothing is open any more: a process that stays is ended after the grace, not after `background_timeout`."""
    graces(exit=0.1)
    fake = play(init(), STARTED, result("answer"), ENDED, init(), COMMENT, hang())
    run = Client(cli_path=fake.path).run("p", background="wait")
    until_gone(fake)
    assert run.result().result == "answer"


def test_background_timeout_ends_the_wait(play, clock):
    """A task that does not end costs at most `background_timeout`, and not the answer."""
    fake = play(init(), STARTED, result("answer"), start_child("session"), ready("on"), hang())
    run = Client(cli_path=fake.path).run("p", background="wait", background_timeout=100)
    fake.wait("on")
    until(lambda: run._channel.reducer.answer)
    clock.move(200, run)
    assert [event.type for event in run] == ["system", "task_started", "result"]
    assert run.result().result == "answer"
    until_gone(fake)


def test_background_timeout_is_not_prolonged_by_lines(play, clock):
    """It counts from the answer, whatever the task prints."""
    progress = {**TASK, "subtype": "task_progress"}
    fake = play(init(), STARTED, result("answer"), repeat(100_000_000, progress, ready("on")))
    run = Client(cli_path=fake.path).run("p", background="wait", background_timeout=100)
    fake.wait("on")
    until(lambda: run._channel.reducer.answer)
    clock.move(60, run)
    clock.move(60, run)
    until_gone(fake)
    *_, last = run
    assert last.result == "answer"


def test_closing_while_tasks_run_does_not_wait_for_them(play):
    """With `background="wait"` the answer may be there for minutes: `close` ends the tasks, the answer stays."""
    fake = play(init(), STARTED, result("answer"), start_child("session"), ready("on"), hang())
    run = Client(cli_path=fake.path).run("p", background="wait")
    fake.wait("on")
    until(lambda: run._channel.reducer.answer)
    run.close()
    until_gone(fake)
    assert run.result().result == "answer"


def test_background_forbid_is_the_default(play):
    """A variable tells the CLI to run nothing in the background; `"wait"` takes it away."""
    fake = play(init(), result("1"))
    client = Client(cli_path=fake.path, env={"SEEN": "1"})
    client.ask("p")
    client.ask("p", background="wait")
    client.ask("p", background=None)
    name = "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"
    assert [call.env.get(name) for call in fake.calls] == ["1", None, None]


# --- how the ladder goes


def test_what_is_said_after_term_still_arrives(play, graces, clock):
    """The CLI writes its last lines when it is told to end; both pipes are read on."""
    graces(term=60)
    fake = play(on_term(text("last words"), to_stderr("bye\n"), exit_code=143), init(), hang())
    run = Client(cli_path=fake.path).run("p", idle_timeout=100)
    next(run)
    clock.move(200, run)
    events = list(run)
    assert [event.type for event in events] == ["text", "error"]
    assert (run.exit_code, run.stderr) == (143, "bye\n")


def test_a_result_said_after_term_is_the_answer(play, graces, clock):
    """A limit and the result at the same moment: what came counts."""
    graces(term=60)
    fake = play(on_term(result("just in time"), exit_code=0), init(), hang())
    run = Client(cli_path=fake.path).run("p", idle_timeout=100)
    next(run)
    clock.move(200, run)
    assert run.result().result == "just in time"


def test_the_first_limit_is_the_reason(play, graces, clock):
    """While the ladder of one limit goes on, another does not change the error."""
    graces(term=1000)
    fake = play(on_term(ready("asked"), text("ending"), wait_for("end")), init(), hang())
    run = Client(cli_path=fake.path).run("p", idle_timeout=100, timeout=200)
    next(run)
    clock.move(150, run)
    fake.wait("asked")
    clock.move(150, run)
    assert next(run).text == "ending"
    assert run.next_event(0) is None
    fake.release("end")
    with pytest.raises(TurnTimeout) as caught:
        run.result()
    assert caught.value.kind == "idle"


def test_both_limits_at_the_same_moment(play, clock):
    """Two deadlines that fall due in one look end the run once."""
    fake = play(hang())
    run = Client(cli_path=fake.path).run("p", start_timeout=100, idle_timeout=100, timeout=100)
    clock.move(200, run)
    events = list(run)
    assert len(events) == 1
    with pytest.raises(TurnTimeout):
        run.result()
