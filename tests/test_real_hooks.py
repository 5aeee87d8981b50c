"""The real CLI: hooks. Each event fires with its fields, and what a hook says is obeyed."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from real_cli import HERE, RealCLI, bash, eventually, tool

from claude_cli_client import (
    ControlError,
    HookCall,
    HookMatcher,
    HookReply,
    InvalidRequestError,
    ProcessError,
    Session,
    UnfinishedTurnError,
    _hook_reply,
    _simple_mode,
)
from claude_cli_client._hook_events import TOP

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(60)]

PATIENCE = 20.0
TOUCH = bash("touch ran")


class Heard:
    """A hook that keeps its calls, and says what it is told to."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.calls: list[HookCall] = []

    def __call__(self, call: HookCall) -> Any:
        self.calls.append(call)
        return self.answer(call) if callable(self.answer) else self.answer

    @property
    def events(self) -> list[str]:
        return [call.event for call in self.calls]

    def only(self) -> HookCall:
        (call,) = self.calls
        return call


def ran(cli: RealCLI) -> bool:
    return (cli.cwd / "ran").exists()


def ask(cli: RealCLI, prompt: str, hooks: dict[str, Any], **options: Any) -> Any:
    return cli.ask(prompt, hooks=hooks, **{"allowed_tools": ["Bash"], **options})


# --- whether they run at all ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "where", "refused"),
    [
        ("1", "environment", True),
        ("yes", "environment", True),
        ("2", "environment", False),
        ("ON", "user", True),
        ("no", "user", False),
        ("true", "settings", True),
        ("", "both", False),
        ("1", "project", False),
        ("1", "global", True),
    ],
)
def test_hooks_are_refused_where_none_would_run(cli: RealCLI, monkeypatch, value: str, where: str, refused: bool):
    """CLAUDE_CODE_SIMPLE: with the words that the CLI takes for on, from the places from which it takes it."""
    settings = {"env": {"CLAUDE_CODE_SIMPLE": value}}
    files = {"user": cli.config_dir, "both": cli.config_dir, "project": cli.cwd / ".claude"}
    if where in files:
        files[where].mkdir(exist_ok=True)
        on_disk = {"env": {"CLAUDE_CODE_SIMPLE": "1"}} if where == "both" else settings
        (files[where] / "settings.json").write_text(json.dumps(on_disk))
    if where == "global":
        (cli.home / ".claude.json").write_text(json.dumps(settings))
    options = {"settings": settings} if where in ("settings", "both") else {}
    options = settings if where == "environment" else options
    hook = Heard(HookReply.deny("no"))
    if refused:
        with pytest.raises(ValueError, match="runs no hooks"):
            ask(cli, f"go {TOUCH}", {"PreToolUse": hook}, **options)
        monkeypatch.setattr(_simple_mode, "refuse_hooks", lambda *_: None)
    ask(cli, f"go {TOUCH}", {"PreToolUse": hook}, **options)
    assert (ran(cli), bool(hook.calls)) == (refused, not refused)


# --- events and their fields ------------------------------------------------------------------


def test_the_events_of_a_turn(cli: RealCLI):
    """They come in order, each once, and all name the session, the folder and the transcript."""
    heard = Heard()
    names = ["UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolBatch", "Stop"]
    result = ask(cli, f"go {TOUCH}", dict.fromkeys(names, heard))
    assert heard.events == names
    for call in heard.calls:
        assert call.session_id == result.session_id
        assert call.cwd == str(cli.cwd)
        assert call.transcript_path.endswith(f"{call.session_id}.jsonl")
        assert call["hook_event_name"] == call.event
    prompt, before, after, batch, stop = heard.calls
    assert prompt.prompt == f"go {TOUCH}"
    assert before.permission_mode == "acceptEdits"
    assert (before.tool_name, before.tool_input["command"]) == ("Bash", "touch ran")
    assert before.tool_use_id == after.tool_use_id == batch.tool_calls[0]["tool_use_id"]
    assert after.tool_response["stdout"] == ""
    assert after.duration_ms >= 0
    assert (stop.last_assistant_message, stop.stop_hook_active) == ("done", False)


def test_a_tool_that_fails(cli: RealCLI):
    """PostToolUseFailure, in place of PostToolUse, with the error."""
    heard = Heard()
    ask(cli, f"go {bash('echo oops; exit 3')}", {"PostToolUse": heard, "PostToolUseFailure": heard})
    assert heard.only().event == "PostToolUseFailure"
    assert "oops" in heard.only().error
    assert not heard.only().is_interrupt


def test_a_turn_that_fails(cli: RealCLI):
    """StopFailure, in place of Stop, with the CLI's word for the error."""
    heard = Heard()
    with pytest.raises(InvalidRequestError):
        ask(cli, "go [[status: 400 invalid_request_error]]", {"Stop": heard, "StopFailure": heard}, max_retries=0)
    assert heard.only().event == "StopFailure"
    assert heard.only().error


def test_a_permission_request(cli: RealCLI):
    """PermissionRequest fires beside `can_use_tool`, with the call and what the CLI suggests."""
    heard = Heard()
    cli.ask(f"go {bash('mkdir made')}", hooks={"PermissionRequest": heard}, can_use_tool=lambda request: True)
    call = heard.only()
    assert (call.tool_name, call.tool_input["command"]) == ("Bash", "mkdir made")
    assert call.suggestions


def test_a_notification(cli: RealCLI):
    """A permission request that stays open for six seconds is a Notification."""
    noticed = threading.Event()
    heard = Heard(lambda call: noticed.set())
    result = cli.ask(
        f"go {TOUCH}", hooks={"Notification": heard}, can_use_tool=lambda request: noticed.wait(PATIENCE)
    )
    assert result.result == "done"
    assert ran(cli)
    assert heard.calls[0].notification_type == "permission_prompt"
    assert heard.calls[0].message


def test_a_subagent(cli: RealCLI):
    """SubagentStart and SubagentStop name it, and so do its tool calls; the main turn's do not."""
    heard = Heard()
    agent = tool(
        "Agent",
        description="Look",
        prompt=f"look {TOUCH}[[then]][[text: I looked]]",
        subagent_type="general-purpose",
        run_in_background=False,
    )
    names = ["PreToolUse", "SubagentStart", "SubagentStop"]
    ask(cli, f"go {agent}[[then]][[text: it looked]]", dict.fromkeys(names, heard), allowed_tools=["Agent", "Bash"])
    assert heard.events == ["PreToolUse", "SubagentStart", "PreToolUse", "SubagentStop"]
    outer, start, inner, stop = heard.calls
    assert (outer.tool_name, outer.agent_id) == ("Agent", "")
    assert start.agent_type == inner.agent_type == "general-purpose"
    assert start.agent_id == inner.agent_id == stop.agent_id != ""
    assert stop.last_assistant_message == "I looked"
    assert stop.agent_transcript_path


def test_a_command_that_expands(cli: RealCLI):
    """UserPromptExpansion, for a slash command of the user's."""
    folder = cli.cwd / ".claude" / "commands"
    folder.mkdir(parents=True)
    (folder / "greet.md").write_text("Greet $ARGUMENTS [[text: hello]]")
    heard = Heard()
    assert ask(cli, "/greet the world", {"UserPromptExpansion": heard}).result == "hello"
    call = heard.only()
    assert (call.command_name, call.command_args) == ("greet", "the world")
    assert call.expansion_type
    assert call.command_source


def test_compaction(cli: RealCLI):
    """`/compact`: PreCompact, SessionStart and PostCompact, with the summary."""
    heard = Heard()
    cli.api.script("default", "[[text: <summary>we said hi</summary>]]")
    session = cli.session(hooks=dict.fromkeys(["PreCompact", "PostCompact", "SessionStart"], heard))
    session.ask("hi [[text: one]]")
    session.ask("hi again [[text: two]]")
    list(session.run("/compact be brief"))
    by_event = {call.event: call for call in heard.calls}
    assert (by_event["PreCompact"].trigger, by_event["PreCompact"].custom_instructions) == ("manual", "be brief")
    assert by_event["SessionStart"].source == "compact"
    assert by_event["PostCompact"].compact_summary


def test_clear(cli: RealCLI):
    """`/clear`: SessionEnd and SessionStart."""
    heard = Heard()
    session = cli.session(hooks=dict.fromkeys(["SessionEnd", "SessionStart"], heard))
    session.ask("hi")
    list(session.run("/clear"))
    assert heard.events == ["SessionEnd", "SessionStart"]
    assert (heard.calls[0].reason, heard.calls[1].source) == ("clear", "clear")


# A full name: an alias may stand for several models, and the hook is asked about each.
OTHER_MODEL = "claude-sonnet-5-5"


def test_another_model(cli: RealCLI):
    """`set_model` in a conversation: PreModelSwitch and PostModelSwitch; the hook is answered meanwhile."""
    heard = Heard()
    session = cli.session(model="opus", hooks=dict.fromkeys(["PreModelSwitch", "PostModelSwitch"], heard))
    session.ask("hi")
    session.set_model(OTHER_MODEL)
    session.ask("hi")
    assert heard.events == ["PreModelSwitch", "PostModelSwitch"]
    for call in heard.calls:
        assert "opus" in call.from_model
        assert call.to_model == call.requested_model == OTHER_MODEL


def test_a_model_switch_denied(cli: RealCLI):
    """PreModelSwitch may deny it: the model stays."""
    session = cli.session(model="opus", hooks={"PreModelSwitch": lambda call: HookReply.deny("too cheap")})
    session.ask("hi")
    with pytest.raises(ControlError, match="too cheap"):
        session.set_model(OTHER_MODEL)
    session.ask("hi")
    assert "opus" in cli.api.last().body["model"]


def test_instructions(cli: RealCLI):
    """A CLAUDE.md of a folder, when a file of it is read: InstructionsLoaded."""
    folder = cli.cwd / "sub"
    folder.mkdir()
    (folder / "CLAUDE.md").write_text("Be kind.")
    (folder / "a.txt").write_text("a")
    heard = Heard()
    ask(cli, f"go {tool('Read', file_path=str(folder / 'a.txt'))}", {"InstructionsLoaded": heard})
    call = next(call for call in heard.calls if call.file_path == str(folder / "CLAUDE.md"))
    assert call.memory_type
    assert call.load_reason
    assert call.trigger_file_path == str(folder / "a.txt")


def test_message_display(cli: RealCLI):
    """Each text of the model: MessageDisplay."""
    heard = Heard()
    ask(cli, "hi [[text: hello there]]", {"MessageDisplay": heard})
    assert "".join(call.delta for call in heard.calls).strip() == "hello there"
    assert heard.calls[-1].final
    assert heard.calls[-1].message_id


def test_a_directory_added(cli: RealCLI):
    """`register_repo_root`: DirectoryAdded."""
    (cli.cwd / "sub").mkdir()
    heard = Heard()
    session = cli.session(hooks={"DirectoryAdded": heard})
    session.request("register_repo_root", directory=str(cli.cwd / "sub"))
    assert eventually(lambda: heard.calls, PATIENCE)
    assert heard.only().directory == str(cli.cwd / "sub")


def test_a_setting_changed(cli: RealCLI):
    """A settings file is edited in the middle of a session: ConfigChange."""
    heard = Heard()
    folder = cli.cwd / ".claude"
    folder.mkdir()
    path = folder / "settings.json"
    path.write_text("{}")
    session = cli.session(hooks={"ConfigChange": heard})
    session.ask("hi")
    path.write_text(json.dumps({"env": {"A": "b"}}))
    assert eventually(lambda: heard.calls, PATIENCE)
    assert heard.calls[0].file_path == str(path)
    assert heard.calls[0].source


# --- what a hook says -------------------------------------------------------------------------


def test_deny(cli: RealCLI):
    """The tool does not run, the model reads why, nobody is asked; the result lists it."""
    asked: list[Any] = []
    result = cli.ask(
        f"go {TOUCH}",
        hooks={"PreToolUse": lambda call: HookReply.deny("not on a Sunday")},
        can_use_tool=lambda request: asked.append(request) or True,
    )
    assert not ran(cli)
    assert "not on a Sunday" in cli.api.last().results[0]
    assert result.result == "done"
    assert asked == []
    assert [denial["tool_name"] for denial in result.permission_denials] == ["Bash"]


def test_allow(cli: RealCLI):
    """The tool runs, and nobody is asked."""
    asked: list[Any] = []
    cli.ask(
        f"go {TOUCH}",
        hooks={"PreToolUse": lambda call: HookReply.allow()},
        can_use_tool=lambda request: asked.append(request),
    )
    assert ran(cli)
    assert asked == []


def test_ask(cli: RealCLI):
    """`can_use_tool` is asked, with the hook's reason, although a rule would allow it."""
    asked: list[Any] = []
    ask(
        cli,
        f"go {TOUCH}",
        {"PreToolUse": lambda call: HookReply.ask("look at it")},
        can_use_tool=lambda request: asked.append(request) or False,
    )
    assert not ran(cli)
    assert "look at it" in asked[0].decision_reason


@pytest.mark.parametrize("with_allow", [True, False])
def test_another_input(cli: RealCLI, with_allow: bool):
    """What runs is the hook's input."""
    changed = {"command": "touch other", "description": "x"}
    reply = HookReply.allow(updated_input=changed) if with_allow else HookReply(updated_input=changed)
    ask(cli, f"go {TOUCH}", {"PreToolUse": lambda call: reply})
    assert not ran(cli)
    assert (cli.cwd / "other").exists()


CONTEXTS = {
    "UserPromptSubmit": "in the prompt",
    "PreToolUse": "before the tool",
    "PostToolUse": "behind the tool",
}


@pytest.mark.parametrize("event", CONTEXTS)
def test_context(cli: RealCLI, event: str):
    """What a hook adds reaches the model."""
    ask(cli, f"go {TOUCH}", {event: lambda call: HookReply.context(CONTEXTS[event])})
    assert CONTEXTS[event] in json.dumps(cli.api.last().body["messages"])
    assert ran(cli)


def test_post_tool_use_sees_and_changes_the_response(cli: RealCLI):
    """It sees what the tool gave, and what it puts in the place of it is what the model reads."""
    heard = Heard(lambda call: HookReply(updated_tool_output={**call.tool_response, "stdout": "cleaned"}))
    ask(cli, f"go {bash('echo secret')}", {"PostToolUse": heard})
    assert heard.only().tool_response["stdout"] == "secret"
    (told,) = cli.api.last().results
    assert "cleaned" in told
    assert "secret" not in told


def test_a_prompt_blocked(cli: RealCLI):
    """UserPromptSubmit may refuse a prompt: no request, UnfinishedTurnError with the reason."""
    with pytest.raises(UnfinishedTurnError, match="not today"):
        ask(cli, "hi", {"UserPromptSubmit": lambda call: HookReply.block("not today")})
    assert cli.api.requests() == []


def test_a_prompt_blocked_in_a_session(cli: RealCLI):
    """There the next prompt is answered."""
    hook = Heard(lambda call: HookReply.block("not today") if "bad" in call.prompt else None)
    session = cli.session(hooks={"UserPromptSubmit": hook})
    with pytest.raises(UnfinishedTurnError, match="not today"):
        session.ask("bad")
    assert session.ask("good [[text: fine]]").result == "fine"


def commands(cli: RealCLI) -> None:
    """`/greet`, and `/shell` with a shell command in it."""
    folder = cli.cwd / ".claude" / "commands"
    folder.mkdir(parents=True)
    (folder / "greet.md").write_text("Greet [[text: hello]]")
    (folder / "shell.md").write_text("---\nallowed-tools: Bash\n---\nSay !`echo hi` [[text: hello]]")


@pytest.mark.parametrize(
    ("event", "reply", "prompt"),
    [
        ("UserPromptSubmit", HookReply.stop("not today"), "hi"),
        ("UserPromptExpansion", HookReply.stop("not today"), "/greet"),
        ("UserPromptExpansion", HookReply.block("not today"), "/greet"),
        ("PreSkillShellCommand", HookReply.stop("not today"), "/shell"),
    ],
)
def test_a_prompt_that_a_hook_ends(cli: RealCLI, event: str, reply: HookReply, prompt: str):
    """No request, and UnfinishedTurnError with the reason: its words are no answer."""
    commands(cli)
    with pytest.raises(UnfinishedTurnError, match="not today"):
        ask(cli, prompt, {event: lambda call: reply})
    assert cli.api.requests() == []


def test_a_prompt_that_is_stopped_by_a_hook_of_the_settings(cli: RealCLI):
    """The same for a hook that is a program."""
    says = json.dumps({"continue": False, "stopReason": "not today"})
    hook = {"type": "command", "command": f"echo '{says}'"}
    with pytest.raises(UnfinishedTurnError, match="not today"):
        cli.ask("hi", settings={"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}})


def test_a_prompt_whose_hook_does_not_answer_in_time(cli: RealCLI):
    """It is refused."""
    slow = HookMatcher(None, lambda call: call.wait_cancelled(PATIENCE) and None, timeout=1)
    with pytest.raises(UnfinishedTurnError):
        ask(cli, "hi", {"UserPromptSubmit": slow})
    assert cli.api.requests() == []


def test_a_stop_held_up(cli: RealCLI):
    """Stop may say what is missing: the model goes on, and the next stop knows of it."""
    heard = Heard(lambda call: None if call.stop_hook_active else HookReply.block("you forgot the tests"))
    ask(cli, "hi [[text: one]][[then]][[text: two]]", {"Stop": heard})
    assert [call.stop_hook_active for call in heard.calls] == [False, True]
    assert "you forgot the tests" in cli.api.last().user


def test_a_turn_stopped(cli: RealCLI):
    """`continue_=False` ends the turn without an answer: UnfinishedTurnError."""
    with pytest.raises(UnfinishedTurnError):
        ask(cli, f"go {TOUCH}", {"PostToolUse": lambda call: HookReply.stop("enough")})
    assert len(cli.api.requests()) == 1


# What ends a turn, and what the CLI passes over. `Stop` ends it, too: with its answer.
STOPS = {"PreToolUse": True, "PostToolUse": True, "PostToolBatch": True, "Stop": False}
PASSED_OVER = ["PostToolUseFailure", "MessageDisplay", "PermissionRequest", "SubagentStart"]


@pytest.mark.parametrize("event", STOPS)
def test_events_that_stop(cli: RealCLI, event: str):
    """`continue_=False` of a tool's events ends the turn without an answer."""
    run = cli.client().run(f"go {TOUCH}", hooks={event: lambda call: HookReply.stop("enough")}, allowed_tools=["Bash"])
    last = list(run)[-1]
    assert (last.data["terminal_reason"] == "hook_stopped") is STOPS[event]
    assert isinstance(run.error(), UnfinishedTurnError) is STOPS[event]


@pytest.mark.parametrize("event", PASSED_OVER)
def test_events_that_do_not_stop(cli: RealCLI, monkeypatch, event: str):
    """The CLI goes on as if nothing had been said, which is why such a reply is refused."""
    for name in ("continue_", "stop_reason"):
        monkeypatch.setitem(_hook_reply._NAMES, name, (TOP[name][0], frozenset({event})))
    agent = tool("Agent", description="Look", prompt="look", subagent_type="general-purpose", run_in_background=False)
    heard = Heard(HookReply.stop("enough"))
    prompt = f"go {bash('mkdir made; exit 3')}{agent}[[then]][[text: the answer]]"
    result = cli.ask(prompt, hooks={event: heard}, can_use_tool=lambda request: True)
    assert heard.calls
    assert result.result == "the answer"


@pytest.mark.parametrize("allow", [True, False])
def test_a_permission_decided_by_a_hook(cli: RealCLI, allow: bool):
    """PermissionRequest decides before the person does, who sees that it is too late."""
    too_late = threading.Event()

    def person(request: Any) -> bool:
        if request.wait_cancelled(PATIENCE):
            too_late.set()
        return not allow

    reply = HookReply.allow() if allow else HookReply.deny("the hook says no")
    cli.ask(f"go {TOUCH}", hooks={"PermissionRequest": lambda call: reply}, can_use_tool=person)
    assert ran(cli) is allow
    assert too_late.wait(PATIENCE)


def test_a_deny_outweighs(cli: RealCLI):
    """Of several hooks the strictest wins."""
    yes, no = (lambda call: HookReply.allow()), (lambda call: HookReply.deny("no"))
    ask(cli, f"go {TOUCH}", {"PreToolUse": [yes, no, yes]})
    assert not ran(cli)


def test_async(cli: RealCLI):
    """With `async_` the CLI goes on at once."""
    ask(cli, f"go {TOUCH}", {"PreToolUse": lambda call: HookReply(async_=True)})
    assert ran(cli)


# --- failures ---------------------------------------------------------------------------------


def raises(call: HookCall) -> None:
    raise LookupError("the password is swordfish")


def test_an_exception_before_a_tool(cli: RealCLI):
    """It fails closed: the tool does not run, the model hears of it, without the words."""
    ask(cli, f"go {TOUCH}", {"PreToolUse": raises})
    assert not ran(cli)
    (told,) = cli.api.last().results
    assert "LookupError" in told
    assert "swordfish" not in told


@pytest.mark.parametrize("event", ["UserPromptSubmit", "PostToolUse", "Stop"])
def test_an_exception_elsewhere(cli: RealCLI, event: str):
    """Other hooks report and go on."""
    assert ask(cli, f"go {TOUCH}", {event: raises}).result == "done"
    assert ran(cli)


MISTAKES: dict[str, Callable[[HookCall], Any]] = {
    "a text": lambda call: "no",
    "an unknown name": lambda call: {"permission_decisoin": "deny"},
    "another event's": lambda call: HookReply(retry=True),
    "in the wrong place": lambda call: {"permissionDecision": "deny"},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_before_a_tool(cli: RealCLI, mistake: str):
    """What the CLI would pass over in silence denies."""
    ask(cli, f"go {TOUCH}", {"PreToolUse": MISTAKES[mistake]})
    assert not ran(cli)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_ends_the_program_rises(cli: RealCLI, error: type[BaseException]):
    """`sys.exit` in a hook: the tool does not run, and the exception comes out where the run is read."""

    def leave(call: HookCall) -> None:
        raise error("enough")

    with pytest.raises(error, match="enough"):
        ask(cli, f"go {TOUCH}", {"PreToolUse": leave})
    assert not ran(cli)


def test_a_hook_that_takes_too_long(cli: RealCLI):
    """Its timeout cancels it, it sees that, and the tool does not run."""
    cancelled = threading.Event()

    def slow(call: HookCall) -> HookReply:
        if call.wait_cancelled(PATIENCE):
            cancelled.set()
        return HookReply.allow()

    ask(cli, f"go {TOUCH}", {"PreToolUse": HookMatcher(None, [slow], timeout=0.5)})
    assert cancelled.wait(PATIENCE)
    assert not ran(cli)


# --- which hooks fire -------------------------------------------------------------------------

MATCHERS = {
    "Bash": True,
    "Write|Bash": True,
    "Ba.*": True,
    "*": True,
    "": True,
    None: True,
    "Write|Edit": False,
    "mcp__.*": False,
}


def test_matchers(cli: RealCLI):
    """A matcher names a tool, several, or is a pattern."""
    heard = {matcher: Heard() for matcher in MATCHERS}
    ask(cli, f"go {TOUCH}", {"PreToolUse": [HookMatcher(m, [hook]) for m, hook in heard.items()]})
    assert {matcher: bool(hook.calls) for matcher, hook in heard.items()} == MATCHERS


def test_several_hooks_at_once(cli: RealCLI):
    """All hooks of an event run at the same time, and so do those of parallel calls."""
    together = threading.Barrier(4)
    (cli.cwd / "a").write_text("a")
    (cli.cwd / "b").write_text("b")
    hook = Heard(lambda call: together.wait(PATIENCE) and None)
    reads = "".join(tool("Read", file_path=str(cli.cwd / name)) for name in ("a", "b"))
    assert ask(cli, f"go {reads}", {"PreToolUse": [hook, hook]}).result == "done"
    assert len(hook.calls) == 4
    assert not together.broken


def test_hooks_of_a_session_fire_in_each_turn(cli: RealCLI):
    """They are registered once and stay."""
    heard = Heard()
    session: Session = cli.session(hooks={"UserPromptSubmit": heard})
    session.ask("one")
    session.ask("two")
    assert [call.prompt for call in heard.calls] == ["one", "two"]


def test_hooks_of_settings_run_as_well(cli: RealCLI):
    """Ours do not take the place of those in the settings."""
    heard = Heard()
    settings = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "touch by-settings"}]}]}}
    ask(cli, f"go {TOUCH}", {"PreToolUse": heard}, settings=settings)
    assert heard.calls
    assert (cli.cwd / "by-settings").exists()


def test_an_elicitation(cli: RealCLI):
    """A server that asks the user for something: Elicitation, and ElicitationResult with what became of it."""
    server = {"command": sys.executable, "args": [str(HERE / "real_mcp_server.py")]}
    heard = Heard()
    ask(
        cli,
        f"go {tool('mcp__x__ask')}",
        dict.fromkeys(["Elicitation", "ElicitationResult"], heard),
        mcp_servers={"x": server},
        allowed_tools=["mcp__x__ask"],
    )
    assert heard.events == ["Elicitation", "ElicitationResult"]
    asked, answered = heard.calls
    assert (asked.mcp_server_name, asked.message) == ("x", "Which colour?")
    assert asked.requested_schema["properties"]["colour"]
    assert answered.action == "cancel"
    assert "cancel" in cli.api.last().results[0]


@pytest.mark.parametrize("kind", ["hook", "permission"])
def test_a_question_that_is_too_long(cli: RealCLI, kind: str):
    """A line above `max_line_bytes` asks for leave: it is refused, the file is not written, and the turn goes on.

    Its result repeats the refused input and is too long as well: the turn ends all the same, and says so.
    """
    heard = Heard(True)
    path = cli.cwd / "long.txt"
    prompt = f"go {tool('Write', file_path=str(path), content='x' * 150_000)}"
    given: dict[str, Any] = {"hooks": {"PreToolUse": heard}} if kind == "hook" else {"can_use_tool": heard}
    with pytest.raises(ProcessError, match="max_line_bytes"):
        cli.ask(prompt, max_line_bytes=100_000, idle_timeout=30, **given)
    assert not path.exists()
    assert not heard.calls
    (told,) = cli.api.last().results
    assert ("the call was not made" if kind == "hook" else "max_line_bytes") in told


def test_an_answer_that_is_too_long(cli: RealCLI):
    """What the CLI says to `initialize` is longer than `max_line_bytes`: told at once, and nothing hangs."""
    with pytest.raises(ProcessError, match="max_line_bytes"):
        cli.ask("hi", hooks={"PreToolUse": Heard()}, max_line_bytes=2000, idle_timeout=30)
