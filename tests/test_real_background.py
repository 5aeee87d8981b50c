"""The real CLI: work in the background, subagents, and several results of one process."""

from __future__ import annotations

import os
import queue
import threading
import time

import pytest
from real_cli import RealCLI, bash, tool
from waiting import until

from claude_cli_client import (
    HookReply,
    InterruptedTurnError,
    PermissionRequest,
    ToolContext,
    ToolServer,
    TurnCancelled,
    UnfinishedTurnError,
)
from claude_cli_client import tool as python_tool

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(90)]

PATIENCE = 20.0
IN_BACKGROUND = bash("sleep 1; echo bg-done", description="slow thing", run_in_background=True)
AGENT = tool(
    "Agent",
    description="Look",
    prompt="look [[text: I looked]]",
    subagent_type="general-purpose",
    run_in_background=False,
)


def of(events, *types):
    return [event for event in events if event.type in types]


def test_waiting_for_a_background_command(cli: RealCLI):
    """`background="wait"`: task events, the answer of the prompt last, the comment as `task_result`."""
    prompt = f"go {IN_BACKGROUND}[[then]][[text: started it]][[then]][[text: it is done]]"
    run = cli.client().run(prompt, allowed_tools=["Bash"], background="wait")
    events = list(run)
    (started,) = of(events, "task_started")
    assert started.task_kind == "local_bash"
    assert started.task_description == "slow thing"
    assert [e.task_status for e in of(events, "task_notification")] == ["completed"]
    assert {e.task_id for e in of(events, "task_updated", "task_notification")} == {started.task_id}
    (comment,) = of(events, "task_result")
    assert comment.result == "it is done"
    assert comment.origin["kind"] == "task-notification"
    assert not comment.is_terminal
    assert run.result() == events[-1]
    assert (events[-1].type, events[-1].result, events[-1].result_index) == ("result", "started it", 0)


def test_the_cost_of_a_turn_with_a_comment_counts_both(cli: RealCLI):
    """`cost_usd` is the sum over the results of the process."""
    prompt = f"go {IN_BACKGROUND}[[then]][[text: started it]][[then]][[text: it is done]]"
    result = cli.ask(prompt, allowed_tools=["Bash"], background="wait")
    one = cli.ask("hi").cost_usd
    assert result.cost_usd == pytest.approx(3 * one)


def test_a_turn_behind_a_cut_task(cli: RealCLI):
    """A resumed session tells first of the command that its last end cut, in a turn of its own: ours comes next."""
    talk = cli.client().conversation(allowed_tools=["Bash"], background="wait", background_timeout=1)
    talk.ask(f"go {bash('sleep 20', run_in_background=True)}[[then]][[text: started]]")
    assert talk.ask("next [[text: A]][[text: B]]").result == "AB"


def test_a_hook_that_blocks_a_prompt_behind_a_cut_task(cli: RealCLI):
    """It is no answer there either."""
    options = {"allowed_tools": ["Bash"], "background": "wait", "background_timeout": 1}
    first = cli.ask(f"go {bash('sleep 20', run_in_background=True)}[[then]][[text: started]]", **options)
    with pytest.raises(UnfinishedTurnError):
        cli.ask("x", resume=first.session_id, hooks={"UserPromptSubmit": lambda call: HookReply.block("no")})


def test_nothing_goes_to_the_background_by_default(cli: RealCLI):
    """`background="forbid"`: the command is refused as bad input, and there is one result."""
    events = cli.events(f"go {IN_BACKGROUND}[[then]][[text: no]]", allowed_tools=["Bash"])
    assert of(events, "tool_result")[0].is_tool_error
    assert len(of(events, "result", "task_result")) == 1
    assert events[-1].result == "no"


def test_waiting_is_limited(cli: RealCLI):
    """`background_timeout` ends a background command that does not; the answer is kept."""
    endless = bash("echo started; sleep 600", run_in_background=True)
    prompt = f"go {endless}[[then]][[text: started it]]"
    result = cli.ask(prompt, allowed_tools=["Bash"], background="wait", background_timeout=1.0)
    assert result.result == "started it"  # the fixture sees that the command is gone


# A background command that ends before the main answer, and one that ends behind it.
ENDS = pytest.mark.parametrize("command", ["true", "sleep 0.5"])


@ENDS
def test_a_tool_of_ours_in_a_comment(cli: RealCLI, command: str):
    """The comment on a task may call an in-process tool, also where the task ended before the answer."""
    calls = []

    @python_tool
    def note(x: str) -> str:
        """Note something."""
        calls.append(x)
        return "noted"

    late, call = bash(command, run_in_background=True), tool("mcp__n__note", x="1")
    cli.ask(
        f"go {late}[[then]][[delay: 0.2]][[text: started]][[then]]{call}[[then]][[text: noted]]",
        background="wait",
        allowed_tools=["Bash", "mcp__n__note"],
        mcp_servers={"n": ToolServer([note])},
    )
    assert calls == ["1"]


@ENDS
def test_a_permission_in_a_comment(cli: RealCLI, command: str):
    """A call in the comment is asked for, and runs when it is allowed."""
    late = bash(command, run_in_background=True)
    cli.ask(
        f"go {late}[[then]][[delay: 0.2]][[text: started]][[then]]{bash('touch ran')}[[then]][[text: noted]]",
        background="wait",
        can_use_tool=lambda request: True,
    )
    assert (cli.cwd / "ran").exists()


def test_a_permission_in_the_second_of_two_comments(cli: RealCLI):
    """Two tasks that end before the answer: the CLI begins a turn for each."""
    late = bash("true", run_in_background=True)
    cli.ask(
        f"go {late}{late}[[then]][[delay: 0.5]][[text: started]][[then]]{bash('touch ran')}[[then]][[text: noted]]",
        background="wait",
        can_use_tool=lambda request: True,
    )
    assert (cli.cwd / "ran").exists()


NESTED = tool(
    "Agent",
    description="Look",
    prompt=f"look {bash('true', run_in_background=True)}[[then]][[delay: 0.5]][[text: I looked]]",
    subagent_type="general-purpose",
    run_in_background=False,
)


@pytest.mark.parametrize(
    "steps",
    [
        bash("sleep 3.5"),
        bash("true", run_in_background=True) + "[[then]]" + bash("sleep 0.5"),
        NESTED,
    ],
    ids=["in the foreground", "told with a tool's result", "of a subagent"],
)
def test_tasks_that_bring_no_comment(cli: RealCLI, steps: str):
    """Nobody waits for a comment that does not come: the input is closed with the answer."""
    run = cli.client().run(f"go {steps}[[then]][[text: done]]", background="wait", can_use_tool=lambda request: True)
    events = list(run)
    assert of(events, "task_notification")
    assert not of(events, "task_result")
    assert run._channel.reducer.in_result


def test_a_subagents_work_is_marked(cli: RealCLI):
    """Events of a subagent name the call that started it, and are no part of the answer."""
    inner = tool(
        "Agent",
        description="Look",
        prompt=f"look {bash('echo deep')}[[then]][[text: I looked]]",
        subagent_type="general-purpose",
        run_in_background=False,
    )
    events = cli.events(f"go {inner}[[then]][[text: it looked]]", allowed_tools=["Bash", "Agent"])
    call = of(events, "tool_use")[0]
    inside = [e for e in of(events, "tool_use", "tool_result") if e.parent_tool_use_id]
    assert [e.type for e in inside] == ["tool_use", "tool_result"]
    assert {e.parent_tool_use_id for e in inside} == {call.tool_id}
    assert of(events, "task_started")[0].task_type == "general-purpose"
    assert [e.text for e in of(events, "text") if not e.parent_tool_use_id] == ["it looked"]
    assert events[-1].result == "it looked"


def test_a_subagent_in_the_background(cli: RealCLI):
    """The main answer is the prompt's; the turn that the subagent's end causes is a `task_result`."""
    agent = tool("Agent", description="Look", prompt="look [[text: I looked]]", subagent_type="Explore")
    prompt = f"go {agent}[[then]][[text: launched]][[then]][[text: it has looked]]"
    events = cli.events(prompt, allowed_tools=["Agent"], background="wait")
    assert events[-1].result == "launched"
    assert [e.result for e in of(events, "task_result")] == ["it has looked"]


class Bashes:
    """Asked about Bash, it waits until `gate` or its cancellation; by whose call it was asked, and what came."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self.gate = threading.Event()

    def __call__(self, request: PermissionRequest) -> bool:
        if request.tool_name == "Bash":
            who = "agent" if request.agent_id else "turn"
            self.asked.append(who)
            until(lambda: self.gate.is_set() or request.cancelled, timeout=PATIENCE)
            self.cancelled += [who] if request.cancelled else []
        return True


def working_agent(background: bool) -> str:
    command = bash("touch worked")
    return tool("Agent", description="Look", prompt=f"look {command}[[then]][[text: I looked]]",
                subagent_type="general-purpose", run_in_background=background)  # fmt: skip


@pytest.mark.parametrize("how", ["idle", "interrupt", "cancel"])
def test_an_agent_behind_its_turn_is_spared(cli: RealCLI, how: str):
    """By an interrupt while nothing is on, and by whatever ends a later turn; and so is the question it waits for."""
    bashes = Bashes()
    with cli.session(can_use_tool=bashes, permission_mode="default") as session:
        told = session.events()
        session.ask(f"go {working_agent(True)}[[then]][[text: launched]][[then]][[text: comment]]")
        until(lambda: bashes.asked == ["agent"], timeout=PATIENCE)
        if how == "idle":
            session.interrupt()
        else:
            run = session.run(f"again {bash('touch mine')}[[then]][[text: done]]")
            until(lambda: bashes.asked == ["agent", "turn"], timeout=PATIENCE)
            getattr(session if how == "interrupt" else run, how)()
            with pytest.raises(InterruptedTurnError if how == "interrupt" else TurnCancelled):
                run.result()
        bashes.gate.set()
        end = next(event for event in told if event.type == "task_notification")
        assert (end.task_status, (cli.cwd / "worked").exists()) == ("completed", True)
        assert "agent" not in bashes.cancelled


def test_a_tool_of_an_agent_behind_its_turn_is_spared(cli: RealCLI):
    """The interrupt of a later turn does not cancel its call."""
    contexts: queue.SimpleQueue[ToolContext] = queue.SimpleQueue()
    gate = threading.Event()

    @python_tool
    def look(context: ToolContext) -> str:
        """Look."""
        contexts.put(context)
        until(lambda: gate.is_set() or context.cancelled, timeout=PATIENCE)
        return "cancelled" if context.cancelled else "seen"

    agent = tool("Agent", description="Look", prompt=f"look {tool('mcp__x__look')}[[then]][[text: I looked]]",
                 subagent_type="general-purpose", run_in_background=True)  # fmt: skip
    servers = {"x": ToolServer([look])}
    with cli.session(mcp_servers=servers, allowed_tools=["Agent", "mcp__x__look"]) as session:
        told = session.events()
        session.ask(f"go {agent}[[then]][[text: launched]]")
        context = contexts.get(timeout=PATIENCE)
        run = session.run("again [[hang]]")
        next(event for event in run if event.subtype == "init")
        session.interrupt()
        with pytest.raises(InterruptedTurnError):
            run.result()
        gate.set()
        end = next(event for event in told if event.type == "task_notification")
        assert (end.task_status, context.cancelled) == ("completed", False)
        assert any("seen" in request.results for request in cli.api.requests())


def test_an_agent_of_the_turn_ends_with_it(cli: RealCLI):
    """The CLI withdraws what it waits for, and does not do it."""
    bashes = Bashes()
    with cli.session(can_use_tool=bashes, permission_mode="default") as session:
        run = session.run(f"go {working_agent(False)}[[then]][[text: done]]")
        until(lambda: bashes.asked == ["agent"], timeout=PATIENCE)
        session.interrupt()
        with pytest.raises(InterruptedTurnError):
            run.result()
        until(lambda: bashes.cancelled == ["agent"], timeout=PATIENCE)
        assert session.ask("next [[text: fine]]").result == "fine"
    assert not (cli.cwd / "worked").exists()


@pytest.mark.parametrize("how", ["interrupt", "cancel"])
def test_a_task_that_ends_in_an_interrupted_turn(cli: RealCLI, how: str):
    """The model hears of it next, in a turn of its own."""
    os.mkfifo(cli.cwd / "gate")
    late = bash("sleep 1", run_in_background=True)
    with cli.session(allowed_tools=["Bash"]) as session:
        told = session.events()
        run = session.run(f"go {late}[[then]]{bash('read < gate')}[[then]][[text: comment]]")
        next(event for event in run if event.type == "task_notification")
        getattr(session if how == "interrupt" else run, how)()
        with pytest.raises(InterruptedTurnError if how == "interrupt" else TurnCancelled):
            run.result()
        assert next(event.result for event in told if event.type == "result" and not event.is_error) == "comment"
        assert session.ask("next [[text: fine]]").result == "fine"


@pytest.mark.parametrize("how", ["cancel", "interrupt", "close"])
def test_a_close_behind_such_a_turn(cli: RealCLI, how: str):
    """The model does not hear of it then: nobody waits for what it would say and do."""
    os.mkfifo(cli.cwd / "gate")
    late = bash("sleep 1", run_in_background=True)
    session = cli.session(allowed_tools=["Bash"])
    run = session.run(f"go {late}[[then]]{bash('read < gate')}[[then]][[delay: 2]]{bash('touch acted; sleep 20')}")
    next(event for event in run if event.type == "task_notification")
    getattr(session if how == "interrupt" else run, how)()
    began = time.monotonic()
    session.close()
    assert time.monotonic() - began < 4.0  # the grace for a CLI that goes on is 5 s
    assert not (cli.cwd / "acted").exists()
    with pytest.raises(InterruptedTurnError if how == "interrupt" else TurnCancelled):
        run.result()


def test_iter_text_leaves_subagents_out(cli: RealCLI):
    """The answer's text does not hold what a subagent said, even if that is forwarded."""
    run = cli.client().run(
        f"go {AGENT}[[then]][[text: it looked]]", allowed_tools=["Agent"], forward_subagent_text=True
    )
    assert "".join(run.iter_text()) == "it looked"
