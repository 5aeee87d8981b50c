"""The real CLI: live sessions. Each prompt gets its own answer, whatever was interrupted before it."""

from __future__ import annotations

import base64
import contextlib
import gc
import os
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from real_cli import RealCLI, bash, eventually, tool
from waiting import Background

from claude_cli_client import (
    ClaudeError,
    ConcurrencyError,
    ControlError,
    Event,
    HookCall,
    InterruptedTurnError,
    PermissionRequest,
    ProcessError,
    Run,
    ServerError,
    Session,
    SessionClosedError,
    SlotTimeoutError,
    StaleSessionError,
    ToolContext,
    ToolServer,
    TurnCancelled,
    TurnError,
    TurnTimeout,
)
from claude_cli_client import tool as python_tool

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(60)]

PATIENCE = 20.0


def of(events: list[Event], *types: str) -> list[Event]:
    return [event for event in events if event.type in types]


def read_until(run: Iterator[Event], what: Callable[[Event], Any]) -> Event:
    """The first event that `what` likes; what comes before it is read."""
    return next(event for event in run if what(event))


class Key:
    """Lets a command go on that waits: the other way round of a gate."""

    def __init__(self, cli: RealCLI) -> None:
        self._path = cli.root / "key"
        os.mkfifo(self._path)
        self.wait = f"read x < {self._path}"

    def turn(self) -> None:
        self._path.write_text("x\n")


def answers_to_its_own(session: Session, word: str = "anew") -> list[Event]:
    """The next prompt gets its own answer, and none of its events is of an older turn."""
    events = list(session.run(f"next [[text: {word}]]"))
    assert [event.text for event in of(events, "text")] == [word]
    assert (events[-1].type, events[-1].result, events[-1].is_error) == ("result", word, False)
    assert not of(events, "tool_use", "tool_result", "user_text", "task_result")
    return events


# --- turns ------------------------------------------------------------------------------------


def test_two_turns_of_a_session(cli: RealCLI):
    """The second prompt goes to the same process and conversation, and the model sees the first."""
    session = cli.session()
    assert session.ask("one [[text: first]]").result == "first"
    pid, name = session.pid, session.session_id
    assert session.ask("two [[text: second]]").result == "second"
    assert (session.pid, session.session_id) == (pid, name)
    assert len(cli.processes()) == 1
    assert "one [[text: first]]" in cli.api.last().user


def test_a_turn_has_the_events_of_a_turn(cli: RealCLI):
    """Init first, the result last, once, with what this turn cost."""
    session = cli.session()
    for word in ("first", "second"):
        events = list(session.run(f"hi [[text: {word}]]"))
        assert events[0].subtype == "init" or "init" in {e.subtype for e in events}
        assert [event.is_terminal for event in events] == [False] * (len(events) - 1) + [True]
        assert events[-1].result == word
        assert events[-1].num_turns == 1
        assert events[-1].cost_usd == pytest.approx(events[-1].session_cost_usd / (2 if word == "second" else 1))


def test_prompts_in_order(cli: RealCLI):
    """`map` runs an iterator of prompts, one after the other, and takes each when its turn comes."""
    session = cli.session()
    taken = []

    def prompts() -> Iterator[str]:
        for number in range(3):
            taken.append((number, len(cli.api.requests())))
            yield f"hi [[text: {number}]]"

    assert [result.result for result in session.map(prompts())] == ["0", "1", "2"]
    assert taken == [(0, 0), (1, 1), (2, 2)]


def test_a_turn_while_a_turn_is_on(cli: RealCLI):
    """A second `run`, from another thread, is a ConcurrencyError; the first goes on."""
    session = cli.session(allowed_tools=["Bash"])
    gate, key = cli.gate(), Key(cli)
    run = session.run(f"go {bash(f'echo x > {gate.path}; {key.wait}')}[[then]][[text: mine]]")
    gate.wait()
    with pytest.raises(ConcurrencyError):
        Background(session.run, "two").result()
    key.turn()
    assert run.result().result == "mine"
    answers_to_its_own(session)


def test_clear_gives_a_new_session_id(cli: RealCLI):
    """`/clear` begins a new conversation: another id, and the model sees nothing of the old one."""
    session = cli.session()
    session.ask("old words [[text: first]]")
    before = session.session_id
    list(session.run("/clear"))
    session.ask("new [[text: second]]")
    assert session.session_id not in ("", before)
    assert "old words" not in cli.api.last().user


# --- interrupt --------------------------------------------------------------------------------


class Held:
    """A callback that says when it is called, and stays until it is cancelled."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.left = threading.Event()
        self.saw_cancelled = False

    def hold(self, call: Any) -> None:
        self.entered.set()
        self.saw_cancelled = call.wait_cancelled(PATIENCE)
        self.left.set()

    def permission(self, request: PermissionRequest) -> bool:
        self.hold(request)
        return True

    def hook(self, call: HookCall) -> None:
        self.hold(call)

    def server(self) -> ToolServer:
        @python_tool
        def slow(context: ToolContext) -> str:
            self.hold(context)
            return "late"

        return ToolServer([slow])


CALL = bash("touch ran") + "[[then]][[text: old]]"
HOLDS: dict[str, tuple[str, Callable[[Held], dict[str, Any]]]] = {
    "permission": (CALL, lambda held: {"can_use_tool": held.permission}),
    "hook": (CALL, lambda held: {"hooks": {"PreToolUse": held.hook}, "allowed_tools": ["Bash"]}),
    "tool": (
        tool("mcp__x__slow") + "[[then]][[text: old]]",
        lambda held: {"mcp_servers": {"x": held.server()}, "allowed_tools": ["mcp__x__slow"]},
    ),
}


@pytest.mark.parametrize("where", HOLDS)
def test_interrupt_in_a_callback(cli: RealCLI, where: str):
    """The callback sees it, its tool does not run, the run is an InterruptedTurnError; the session goes on."""
    prompt, options = HOLDS[where]
    held = Held()
    session = cli.session(**options(held))
    run = session.run(f"go {prompt}")
    assert held.entered.wait(PATIENCE)
    session.interrupt()
    with pytest.raises(InterruptedTurnError):
        run.result()
    assert held.left.wait(PATIENCE)
    assert held.saw_cancelled
    answers_to_its_own(session)
    assert not (cli.cwd / "ran").exists()


def test_interrupt_when_the_answer_is_there(cli: RealCLI):
    """In a Stop hook: the hook sees it, and the answer, which is complete, stands."""
    held = Held()
    session = cli.session(hooks={"Stop": held.hook})
    run = session.run("go [[text: all of it]]")
    assert held.entered.wait(PATIENCE)
    session.interrupt()
    assert run.result().result == "all of it"
    assert held.left.wait(PATIENCE)
    assert held.saw_cancelled


def test_interrupt_in_a_bash_tool(cli: RealCLI):
    """The command is ended, the run is an InterruptedTurnError; the next prompt gets its own answer."""
    session = cli.session(allowed_tools=["Bash"])
    gate = cli.gate()
    run = session.run(f"go {bash(f'echo x > {gate.path}; sleep 600')}[[then]][[text: old]]")
    gate.wait()
    session.interrupt()
    with pytest.raises(InterruptedTurnError):
        run.result()
    assert eventually(lambda: len(cli.processes()) == 1, 3.0), cli.processes()
    answers_to_its_own(session)


def test_interrupt_while_the_model_speaks(cli: RealCLI):
    """In the middle of an answer: the run ends, and the next prompt gets its own answer."""
    session = cli.session(include_partial_messages=True)
    run = session.run("go [[text: old words]][[chunks: 2]][[stall]]")
    read_until(run, lambda event: event.type == "text_delta")
    session.interrupt()
    with pytest.raises(InterruptedTurnError):
        run.result()
    answers_to_its_own(session)


def test_interrupt_before_the_api_answers(cli: RealCLI):
    """While the API is silent: the run ends, and the next prompt gets its own answer."""
    session = cli.session()
    run = session.run("go [[hang]]")
    cli.api.requests(1)
    session.interrupt()
    with pytest.raises(InterruptedTurnError):
        run.result()
    answers_to_its_own(session)


@pytest.mark.parametrize("turns_before", [0, 1])
def test_interrupt_before_the_first_line(cli: RealCLI, turns_before: int):
    """Right behind `run`, at any place of the way: the turn ends without an answer, and soon."""
    session = cli.session()
    for _ in range(turns_before):
        session.ask("hi")
    start = time.monotonic()
    for _ in range(5):
        run = session.run("go [[hang]]")
        session.interrupt()
        with pytest.raises(InterruptedTurnError):
            run.result()
    assert time.monotonic() - start < 15
    answers_to_its_own(session)


def test_interrupt_at_idle(cli: RealCLI):
    """When nothing is on it does nothing, before the first turn and after one; the next prompt is answered."""
    session = cli.session()
    session.interrupt()
    answers_to_its_own(session, "first")
    session.interrupt()
    answers_to_its_own(session, "second")


def test_interrupts_from_many_threads(cli: RealCLI):
    """Several at once are one: the run ends, the next prompt is not hit."""
    session = cli.session()
    run = session.run("go [[hang]]")
    cli.api.requests(1)
    calls = [Background(session.interrupt) for _ in range(5)]
    for call in calls:
        call.result()
    with pytest.raises(InterruptedTurnError):
        run.result()
    answers_to_its_own(session)


# --- the end of a turn ------------------------------------------------------------------------


def test_leaving_a_run_early(cli: RealCLI):
    """`break` out of `with`: the turn is ended, its tool is gone, the next run has no old events."""
    session = cli.session(allowed_tools=["Bash"])
    gate = cli.gate()
    with session.run(f"go {bash(f'echo x > {gate.path}; sleep 600')}[[then]][[text: old]]") as run:
        for event in run:
            if event.type == "tool_use":
                gate.wait()
                break
    assert run.done
    assert eventually(lambda: len(cli.processes()) == 1, 3.0), cli.processes()
    answers_to_its_own(session)


def test_a_forgotten_run(cli: RealCLI):
    """A run that nobody refers to any more is ended, and the session takes the next prompt."""
    session = cli.session()
    run = session.run("go [[hang]]")
    cli.api.requests(1)
    turn = run._channel
    del run
    gc.collect()
    assert turn.wait(PATIENCE)
    answers_to_its_own(session)


def test_a_run_that_nobody_read(cli: RealCLI):
    """A turn that is over counts as over, though nobody took its events."""
    session = cli.session()
    run = session.run("go [[text: unread]]")
    assert eventually(lambda: run.done, PATIENCE)
    answers_to_its_own(session)
    assert run.result().result == "unread"


def test_cancel_ends_the_turn_only(cli: RealCLI):
    """`cancel` is a TurnCancelled, and the session goes on."""
    session = cli.session()
    run = session.run("go [[hang]]")
    cli.api.requests(1)
    run.cancel()
    last = list(run)[-1]
    assert (last.type, last.subtype, last.is_terminal) == ("error", "cancelled", True)
    with pytest.raises(TurnCancelled):
        run.result()
    answers_to_its_own(session)


@pytest.mark.parametrize("kind", ["total", "idle"])
def test_a_limit_ends_the_turn_only(cli: RealCLI, kind: str):
    """`timeout` and `idle_timeout` are a TurnTimeout that says which, and the session goes on."""
    session = cli.session()
    limits = {"timeout": 1.0} if kind == "total" else {"idle_timeout": 1.0}
    with pytest.raises(TurnTimeout) as caught:
        session.ask("go [[hang]]", **limits)
    assert (caught.value.kind, caught.value.limit) == (kind, 1.0)
    answers_to_its_own(session)


def test_a_callback_at_work_is_not_silence(cli: RealCLI, clock):
    """While a callback of ours is at work `idle_timeout` does not run."""
    entered, answer = threading.Event(), threading.Event()

    def slow(request: PermissionRequest) -> bool:
        entered.set()
        return answer.wait(PATIENCE)

    session = cli.session(can_use_tool=slow)
    run = session.run(f"go {bash('touch ran')}", timeout=None, idle_timeout=1000.0)
    assert entered.wait(PATIENCE)
    for _ in range(3):
        clock.move(2000.0, session)
    answer.set()
    assert run.result().result == "done"
    assert (cli.cwd / "ran").exists()


def test_a_turn_that_fails_ends_the_turn_only(cli: RealCLI):
    """An API failure is the run's error, and the next prompt is answered."""
    session = cli.session(max_retries=0)
    with pytest.raises(ServerError):
        session.ask("go [[status: 500 api_error]]")
    answers_to_its_own(session)


# --- control ----------------------------------------------------------------------------------


def test_set_model(cli: RealCLI):
    """From then on the other model is asked; None is the default again."""
    session = cli.session(model="opus")
    session.ask("one")
    first = cli.api.last().body["model"]
    session.set_model("haiku")
    session.ask("two")
    assert "haiku" in cli.api.last().body["model"]
    session.set_model(None)
    session.ask("three")
    assert "haiku" not in cli.api.last().body["model"] != ""
    assert "haiku" not in first


def test_set_permission_mode(cli: RealCLI):
    """What is asked in one mode is allowed in another one, and the other way round."""
    asked: list[str] = []
    session = cli.session(can_use_tool=lambda request: asked.append(request.tool_name) or True)
    write = tool("Write", file_path=str(cli.cwd / "a.txt"), content="x")
    session.set_permission_mode("acceptEdits")
    session.ask(f"go {write}")
    assert asked == []
    session.set_permission_mode("default")
    session.ask(f"go {tool('Write', file_path=str(cli.cwd / 'b.txt'), content='x')}")
    assert asked == ["Write"]


def test_a_mode_that_does_not_exist(cli: RealCLI):
    """The CLI's refusal is a ControlError with its words, and the session goes on."""
    session = cli.session()
    with pytest.raises(ControlError) as caught:
        session.set_permission_mode("no-such-mode")
    assert caught.value.subtype == "set_permission_mode"
    answers_to_its_own(session)


def test_an_unknown_request(cli: RealCLI):
    """A subtype that the CLI does not know is a ControlError with its code."""
    session = cli.session()
    with pytest.raises(ControlError) as caught:
        session.request("no_such_thing", some=1)
    assert caught.value.code == "unsupported_request"
    answers_to_its_own(session)


def test_rewind_files(cli: RealCLI):
    """Files go back to what they were before a prompt; `dry_run` only says which."""
    session = cli.session(enable_file_checkpointing=True, permission_mode="acceptEdits")
    path = cli.cwd / "a.txt"
    session.ask(f"one {tool('Write', file_path=str(path), content='one')}")
    run = session.run(f"two {tool('Write', file_path=str(path), content='two')}")
    events = list(run)
    prompt = run.prompt_uuid
    assert prompt in events[-1].raw
    assert path.read_text() == "two"
    found = session.rewind_files(prompt, dry_run=True)
    assert (found["canRewind"], found["filesChanged"]) == (True, [str(path)])
    assert path.read_text() == "two"
    session.rewind_files(prompt)
    assert path.read_text() == "one"


def test_rewind_without_checkpoints(cli: RealCLI):
    """Without `enable_file_checkpointing` it is a ControlError."""
    session = cli.session()
    session.ask("hi")
    with pytest.raises(ControlError):
        session.rewind_files("6c8d5a4e-4a9f-4a52-9a44-1d2c4f1ae2b1")


def test_mcp_status(cli: RealCLI):
    """The state of the servers, in-process ones included, with their tools."""

    @python_tool(read_only=True)
    def look() -> str:
        return "seen"

    session = cli.session(mcp_servers={"x": ToolServer([look])}, strict_mcp_config=True)
    session.ask("hi")
    (server,) = session.mcp_status()["mcpServers"]
    assert (server["name"], server["status"]) == ("x", "connected")
    assert [(one["name"], one["annotations"]["readOnly"]) for one in server["tools"]] == [("look", True)]


def test_context_usage(cli: RealCLI):
    """What fills the context, in tokens."""
    session = cli.session()
    session.ask("hi")
    usage = session.context_usage()
    assert usage["totalTokens"] > 0
    assert "System prompt" in {category["name"] for category in usage["categories"]}


def test_stop_task(cli: RealCLI):
    """A background command is ended; `events()` tells of it, outside of any turn."""
    session = cli.session(allowed_tools=["Bash"])
    everything = session.events()
    endless = bash("sleep 600", run_in_background=True)
    assert session.ask(f"go {endless}[[then]][[text: started]]").result == "started"
    task = read_until(everything, lambda event: event.type == "task_started").task_id
    session.stop_task(task)
    end = read_until(everything, lambda event: event.task_status in ("killed", "stopped"))
    assert end.task_id == task
    assert eventually(lambda: len(cli.processes()) == 1, 3.0), cli.processes()
    answers_to_its_own(session)


def test_requests_during_a_turn(cli: RealCLI):
    """Control requests are answered while a tool runs, and the turn is not disturbed."""
    session = cli.session(allowed_tools=["Bash"])
    gate, key = cli.gate(), Key(cli)
    run = session.run(f"go {bash(f'echo x > {gate.path}; {key.wait}')}[[then]][[text: mine]]")
    gate.wait()
    assert "mcpServers" in session.mcp_status()
    session.set_permission_mode("plan")
    key.turn()
    assert run.result().result == "mine"


WAITING = int(os.environ.get("CLAUDE_CLI_CLIENT_TEST_EVENTS", "10000"))


@pytest.mark.timeout(300)
def test_requests_while_nobody_reads(cli: RealCLI):
    """Control requests are answered while nobody iterates and thousands of events wait."""
    session = cli.session(include_partial_messages=True)
    run = session.run(f"go [[words: {WAITING}]]")
    everything = session.events()
    assert "mcpServers" in session.mcp_status()
    assert eventually(lambda: run.done, 200.0)
    start = time.monotonic()
    assert "mcpServers" in session.mcp_status()
    assert time.monotonic() - start < 5
    assert len(of(list(run), "text_delta")) >= WAITING
    everything.close()
    answers_to_its_own(session)


# --- callbacks that use the session -----------------------------------------------------------


def reentrant(cli: RealCLI, use: Callable[[Session], Any]) -> tuple[Session, Run, Background]:
    """A session whose permission callback uses it; what that gave, and the run."""
    ready, sessions = threading.Event(), []
    outcome: list[Any] = []
    over = threading.Event()

    def ask(request: PermissionRequest) -> bool:
        ready.wait(PATIENCE)
        try:
            outcome.append(use(sessions[0]))
        finally:
            over.set()
        return True

    session = cli.session(can_use_tool=ask)
    sessions.append(session)
    run = session.run(f"go {bash('touch ran')}[[then]][[text: went on]]")
    ready.set()

    def result() -> Any:
        assert over.wait(PATIENCE)
        return outcome[0]

    return session, run, Background(result)


def test_a_callback_that_makes_a_request(cli: RealCLI):
    """A permission callback may ask the CLI something before it answers."""
    session, run, outcome = reentrant(cli, lambda session: session.mcp_status())
    assert run.result().result == "went on"
    assert "mcpServers" in outcome.result()
    answers_to_its_own(session)


def test_a_callback_that_interrupts(cli: RealCLI):
    """A permission callback may interrupt its own turn: the tool does not run."""
    session, run, outcome = reentrant(cli, lambda session: session.interrupt())
    with pytest.raises(InterruptedTurnError):
        run.result()
    outcome.result()
    assert not (cli.cwd / "ran").exists()
    answers_to_its_own(session)


def test_a_callback_that_closes(cli: RealCLI):
    """A permission callback may close its own session: it ends, soon, and the tool does not run."""
    start = time.monotonic()
    session, run, outcome = reentrant(cli, lambda session: session.close())
    with pytest.raises(TurnCancelled):
        run.result()
    outcome.result()
    assert time.monotonic() - start < 10
    assert session.closed
    assert not (cli.cwd / "ran").exists()
    assert eventually(lambda: not cli.processes(), 3.0), cli.processes()


def test_a_hook_and_a_tool_that_make_requests(cli: RealCLI):
    """So may hooks and in-process tools."""
    sessions: list[Session] = []
    found: dict[str, Any] = {}

    @python_tool
    def usage() -> str:
        found["tool"] = sessions[0].context_usage()["totalTokens"]
        return "counted"

    def before(call: HookCall) -> None:
        found["hook"] = sessions[0].mcp_status()["mcpServers"][0]["name"]

    session = cli.session(
        hooks={"PreToolUse": before}, mcp_servers={"x": ToolServer([usage])}, allowed_tools=["mcp__x__usage"]
    )
    sessions.append(session)
    session.ask(f"go {tool('mcp__x__usage')}")
    assert found["hook"] == "x"
    assert found["tool"] > 0
    assert cli.api.last().results == ["counted"]


# --- results nobody asked for -----------------------------------------------------------------


def test_what_nobody_asked_for(cli: RealCLI):
    """A background command ends after its turn: the comment is in `events()`, and in no later run."""
    session = cli.session(allowed_tools=["Bash"])
    everything = session.events()
    key = Key(cli)
    late = bash(key.wait, run_in_background=True)
    first = list(session.run(f"go {late}[[then]][[text: started]][[then]][[text: it is done]]"))
    assert first[-1].result == "started"
    key.turn()
    comment = read_until(everything, lambda event: event.result == "it is done")
    assert comment.origin["kind"] == "task-notification"
    assert "started" in [event.result for event in first]
    answers_to_its_own(session)


def test_a_prompt_while_a_comment_is_on(cli: RealCLI):
    """A prompt that comes while the CLI comments a task gets its own answer."""
    session = cli.session(allowed_tools=["Bash"])
    everything = session.events()
    late = bash("true", run_in_background=True)
    session.ask(f"go {late}[[then]][[text: started]][[then]][[delay: 1]][[text: it is done]]")
    read_until(everything, lambda event: event.type == "task_notification")
    result = session.ask("next [[text: mine]]")
    assert result.result == "mine"
    assert result.origin is None


def during_a_comment(cli: RealCLI, prompt: str, **limits: float) -> Run:
    """A run that begins while the CLI comments on a task of the turn before, which takes a second."""
    session = cli.session(allowed_tools=["Bash"])
    everything = session.events()
    late = bash("true", run_in_background=True)
    session.ask(f"go {late}[[then]][[text: started]][[then]][[delay: 1]][[text: it is done]]")
    read_until(everything, lambda event: event.type == "task_notification")
    return session.run(prompt, **limits)


def test_a_comment_is_in_no_run(cli: RealCLI):
    """Neither its text nor its cost is in the run of a prompt that came meanwhile."""
    events = list(during_a_comment(cli, "next [[text: mine]]"))
    assert [event.text for event in of(events, "text")] == ["mine"]
    assert not of(events, "task_result")
    assert events[-1].cost_usd == pytest.approx(cli.ask("hi").cost_usd)


def test_a_comment_is_not_the_text_of_a_turn_that_fails(cli: RealCLI):
    """A turn that is ended without a word has no text, whatever was said before it began."""
    *_, last = during_a_comment(cli, "next [[hang]]", timeout=3)
    assert (last.type, last.subtype, last.result) == ("error", "timeout", "")


@pytest.mark.parametrize("way", ["cancel", "interrupt"])
def test_the_end_of_a_turn_that_waits_for_a_comment(cli: RealCLI, way: str):
    """Its prompt is taken back at once, and the next turn has its own events alone."""
    session = cli.session(allowed_tools=["Bash"])
    everything = session.events()
    late = bash("true", run_in_background=True)
    session.ask(f"go {late}[[then]][[text: started]][[then]][[hang]]")
    read_until(everything, lambda event: event.type == "task_notification")
    run = session.run("next [[text: mine]]")
    read_until(everything, lambda event: event.data.get("command_uuid") == run.prompt_uuid)
    run.cancel() if way == "cancel" else session.interrupt()
    with pytest.raises(TurnCancelled if way == "cancel" else InterruptedTurnError):
        run.result(PATIENCE)
    answers_to_its_own(session)


def test_a_prompt_that_is_answered_in_a_comment(cli: RealCLI):
    """A prompt that comes while the CLI's comment runs a tool is answered in that turn: by `mine`, not lost."""
    session = cli.session(allowed_tools=["Bash"])
    gate, key = cli.gate(), Key(cli)
    late, slow = bash("true", run_in_background=True), bash(f"echo x > {gate.path}; {key.wait}")
    session.ask(f"go {late}[[then]][[text: started]][[then]]{slow}[[then]][[text: it is done]]")
    gate.wait()
    everything = session.events()
    run = session.run("next [[text: mine]]")
    read_until(everything, lambda event: event.type == "command_lifecycle")  # it is in the CLI's queue
    key.turn()
    assert run.result().result == "mine"
    answers_to_its_own(session)


def test_events_end_with_the_session(cli: RealCLI):
    """`events()` has all turns, in order, and ends when the session is closed."""
    session = cli.session()
    everything = session.events()
    session.ask("hi [[text: one]]")
    session.ask("hi [[text: two]]")
    session.close()
    events = list(everything)
    assert [event.text for event in of(events, "text")] == ["one", "two"]
    assert [event.result for event in of(events, "result")] == ["one", "two"]


# --- prompts ----------------------------------------------------------------------------------


def png(red: int = 255) -> bytes:
    """A picture of one dot."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    header = (1).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    dots = zlib.compress(bytes([0, red, 0, 0]))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", dots) + chunk(b"IEND", b"")


def image_prompt(text: str) -> list[dict[str, Any]]:
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png()).decode()}
    return [{"type": "image", "source": source}, {"type": "text", "text": text}]


@pytest.mark.parametrize("way", ["session", "one-shot"])
def test_a_prompt_with_an_image(cli: RealCLI, way: str):
    """A prompt of content blocks: the model gets the image and the text."""
    asks = cli.session() if way == "session" else cli.client()
    assert asks.ask(image_prompt("what is it [[text: a dot]]")).result == "a dot"
    blocks = [b for m in cli.api.last().body["messages"] if isinstance(m["content"], list) for b in m["content"]]
    assert [b["source"]["media_type"] for b in blocks if b["type"] == "image"] == ["image/png"]


@pytest.mark.parametrize("way", ["session", "one-shot"])
def test_literal_prompts(cli: RealCLI, way: str):
    """With `literal=True` a slash command and an @file are text for the model."""
    (cli.cwd / "secret.txt").write_text("do not read")
    asks = cli.session(literal=True) if way == "session" else cli.client(literal=True)
    for prompt in ("/clear", "/compact now", "see @secret.txt", "!ls"):
        assert asks.ask(f"{prompt} [[text: seen]]").result == "seen"
        assert f"{prompt} [[text: seen]]" in cli.api.last().user
        assert "do not read" not in str(cli.api.last().body["messages"])


def test_prompts_that_are_not_literal(cli: RealCLI):
    """Without it an @file is read in, and /clear begins anew: so the test above shows something."""
    (cli.cwd / "open.txt").write_text("do read")
    session = cli.session()
    session.ask("see @open.txt [[text: seen]]")
    assert "do read" in str(cli.api.last().body["messages"])


# --- the end of the session -------------------------------------------------------------------


def test_a_session_that_does_not_exist(cli: RealCLI):
    """To resume one fails at `session()`, with the CLI's words; nothing is left."""
    with pytest.raises(StaleSessionError, match="No conversation found"):
        cli.session(resume="6c8d5a4e-4a9f-4a52-9a44-1d2c4f1ae2b1")
    assert eventually(lambda: not cli.processes(), 3.0), cli.processes()


def test_resume_in_a_session(cli: RealCLI):
    """A session goes on with an earlier conversation, of a one-shot turn or of a session."""
    name = cli.ask("old words [[text: one]]").session_id
    session = cli.session(resume=name)
    session.ask("two")
    assert session.session_id == name
    assert "old words" in cli.api.last().user


def test_a_killed_cli_fails_all_who_wait(cli: RealCLI):
    """SIGKILL: the run, a request and `events()` end at once, each with the cause; so does what comes later."""
    held = Held()
    session = cli.session(hooks={"PreToolUse": held.hook}, allowed_tools=["Bash"])
    everything = Background(lambda: list(session.events()))
    run = session.run(f"go {bash('true')}")
    assert held.entered.wait(PATIENCE)
    os.kill(session.pid, signal.SIGSTOP)
    request = Background(session.mcp_status)
    start = time.monotonic()
    os.kill(session.pid, signal.SIGKILL)
    with pytest.raises(ProcessError, match="SIGKILL") as caught:
        run.result()
    assert caught.value.exit_code == -signal.SIGKILL
    with pytest.raises(SessionClosedError, match="SIGKILL"):
        request.result()
    everything.result()
    assert held.left.wait(PATIENCE)
    assert time.monotonic() - start < 10
    with pytest.raises(SessionClosedError):
        session.run("hi")
    with pytest.raises(SessionClosedError):
        session.mcp_status()


def test_a_cli_that_is_killed_at_idle(cli: RealCLI):
    """Nobody waits; whoever comes next hears of it."""
    session = cli.session()
    session.ask("hi")
    os.kill(session.pid, signal.SIGKILL)
    assert eventually(lambda: session.closed, PATIENCE)
    with pytest.raises(SessionClosedError) as caught:
        session.ask("hi")
    assert "SIGKILL" in str(caught.value.__cause__)


def test_close_with_a_tool_running(cli: RealCLI):
    """It ends within its bound, and neither the CLI nor the tool and its children live."""
    session = cli.session(allowed_tools=["Bash"])
    gate = cli.gate()
    away = f"(setsid sleep 600 &) ; echo x > {gate.path}; sleep 601"
    run = session.run(f"go {bash(away)}")
    gate.wait()
    start = time.monotonic()
    session.close()
    assert time.monotonic() - start < 13
    assert session.closed
    assert eventually(lambda: not cli.processes(), 3.0), cli.processes()
    with pytest.raises(TurnCancelled):
        run.result()


def test_close_at_idle(cli: RealCLI):
    """An idle session ends by itself, soon, with its transcript; closing again does nothing."""
    session = cli.session()
    session.ask("hi [[text: keep me]]")
    start = time.monotonic()
    session.close()
    session.close()
    assert time.monotonic() - start < 5  # which it is given before it is ended
    (transcript,) = cli.transcripts()
    assert "keep me" in transcript.read_text()
    with pytest.raises(SessionClosedError):
        session.run("hi")


def test_close_before_the_first_turn(cli: RealCLI):
    """A session that was never used leaves nothing."""
    with cli.session() as session:
        assert session.pid in cli.processes()
    assert eventually(lambda: not cli.processes(), 3.0), cli.processes()


def test_an_exception_ends_the_session(cli: RealCLI):
    """An exception that leaves `with` ends the session and passes through."""
    session = cli.session()
    run = session.run("go [[hang]]")
    cli.api.requests(1)
    with pytest.raises(RuntimeError, match="mine"), session:
        raise RuntimeError("mine")
    assert session.closed
    assert run.done


def test_a_dropped_session(cli: RealCLI):
    """A session that nothing refers to any more is ended by the collector; a run keeps it alive."""
    session = cli.session()
    run = session.run("go [[delay: 0.5]][[text: mine]]")
    del session
    gc.collect()
    assert run.result().result == "mine"
    del run
    gc.collect()
    assert eventually(lambda: not cli.processes(), 8.0), cli.processes()


def test_a_session_takes_a_slot(cli: RealCLI):
    """It is one of the client's until it is closed."""
    client = cli.client(max_concurrent=1)
    session = client.session()

    def second() -> None:
        with pytest.raises(SlotTimeoutError):
            client.run("hi", slot_timeout=0.1)

    Background(second).result()
    session.close()
    assert client.ask("hi [[text: now]]").result == "now"


def test_closing_the_client_ends_its_sessions(cli: RealCLI):
    """`Client.close` ends a session in the middle of a tool."""
    gate = cli.gate()
    client = cli.client(allowed_tools=["Bash"])
    session = client.session()
    run = session.run(f"go {bash(f'echo x > {gate.path}; sleep 600')}")
    gate.wait()
    client.close()
    assert session.closed
    assert eventually(lambda: not cli.processes(), 3.0), cli.processes()
    with pytest.raises(TurnCancelled):
        run.result()


# How often; each way once for CI.
SESSIONS = int(os.environ.get("CLAUDE_CLI_CLIENT_TEST_SESSIONS", "8"))


def break_it(cli: RealCLI, session: Session, held: Held, way: str) -> None:
    """End a session that has answered once, in some way."""
    if way == "close":
        session.close()
    elif way == "kill":
        os.kill(session.pid, signal.SIGKILL)
    elif way == "leave":
        session.run("go [[hang]]")
    elif way == "cancel":
        session.run("go [[hang]]").cancel()
    elif way == "end":
        with contextlib.suppress(ClaudeError):  # the process may be gone before its answer is read
            session.request("end_session")
        with pytest.raises(ClaudeError):
            session.ask("hi")
    else:
        held.entered.clear()
        run = session.run(f"go {CALL}")
        assert held.entered.wait(PATIENCE)
        if way == "interrupt":
            session.interrupt()
        elif way == "stop":
            os.kill(session.pid, signal.SIGTERM)
        else:
            session.close(grace=0.1)
        with pytest.raises(TurnError):
            run.result()


@pytest.mark.timeout(900)
def test_sessions_that_end_in_all_ways(cli: RealCLI):
    """Opened, used, and broken: no process, thread, descriptor or file is left, and every slot is free."""
    ways = ("close", "kill", "leave", "cancel", "end", "interrupt", "stop", "close in a callback")
    held = Held()
    client = cli.client(max_concurrent=2, can_use_tool=held.permission)
    threads = threading.active_count()
    for number in range(SESSIONS):
        session = client.session()
        assert session.ask("hi [[text: hello]]").result == "hello"
        break_it(cli, session, held, ways[number % len(ways)])
        del session
        gc.collect()
    assert eventually(lambda: not cli.processes() and threading.active_count() <= threads, 15.0), cli.processes()
    assert client.ask("hi [[text: still]]", slot_timeout=5).result == "still"
