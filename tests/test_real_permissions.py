"""The real CLI: `can_use_tool` and the unattended preset. What is denied does not run."""

from __future__ import annotations

import json
import os
import threading
import warnings
from typing import Any

import pytest
from real_cli import RealCLI, bash, tool

from claude_cli_client import (
    Allow,
    Deny,
    InterruptedTurnError,
    PermissionRequest,
    PermissionUpdate,
    ToolServer,
    unattended,
)
from claude_cli_client import tool as library_tool
from claude_cli_client._rule_faults import NO_PARENTHESES, misspelt
from claude_cli_client._unattended import GUIDANCE, UNATTENDED_SENTENCE

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(90)]

PATIENCE = 20.0
# A person who thinks it over. The CLI has no limit.
LATE = float(os.environ.get("CLAUDE_CLI_CLIENT_TEST_LATE", "3"))


class Asked:
    """A callback that answers always the same, and keeps what it was asked."""

    def __init__(self, answer: Any = True) -> None:
        self.answer = answer
        self.requests: list[PermissionRequest] = []

    def __call__(self, request: PermissionRequest) -> Any:
        self.requests.append(request)
        return self.answer(request) if callable(self.answer) else self.answer

    @property
    def names(self) -> list[str]:
        return [request.tool_name for request in self.requests]


TOUCH = f"go {bash('touch ran', description='make a file')}"


def ran(cli: RealCLI) -> bool:
    return (cli.cwd / "ran").exists()


WAYS = ["one-shot", "session"]


def ask(cli: RealCLI, way: str, prompt: str, **options: Any) -> Any:
    return cli.ask(prompt, **options) if way == "one-shot" else cli.session(**options).ask(prompt)


# --- allow ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("answer", [True, Allow()], ids=["True", "Allow"])
def test_allow(cli: RealCLI, way: str, answer: Any):
    """An allowed call runs, and the request says what it is."""
    asked = Asked(answer)
    assert ask(cli, way, TOUCH, can_use_tool=asked).result == "done"
    assert ran(cli)
    (request,) = asked.requests
    assert (request.tool_name, request.input["command"]) == ("Bash", "touch ran")
    assert request.description == "make a file"
    assert request.tool_use_id.startswith("toolu_")
    assert not request.cancelled


def test_allow_with_another_input(cli: RealCLI):
    """What runs is the input of the answer, not what the model wanted."""
    cli.ask(TOUCH, can_use_tool=lambda request: Allow({**request.input, "command": "touch other; echo changed"}))
    assert not ran(cli)
    assert (cli.cwd / "other").exists()
    assert "changed" in cli.api.last().results[0]


def test_allow_with_an_input_changed_in_place(cli: RealCLI):
    """A change in the request's own dict counts."""

    def change(request: PermissionRequest) -> bool:
        request.input["command"] = "echo changed"
        return True

    cli.ask(TOUCH, can_use_tool=change)
    assert not ran(cli)
    assert "changed" in cli.api.last().results[0]


def test_a_late_answer(cli: RealCLI):
    """A person may take time: the call waits, and then runs."""

    def late(request: PermissionRequest) -> bool:
        return not request.wait_cancelled(LATE)

    assert cli.ask(TOUCH, can_use_tool=late).result == "done"
    assert ran(cli)


def test_what_a_rule_allows_is_not_asked(cli: RealCLI):
    """`allowed_tools` decides before the callback."""
    asked = Asked()
    cli.ask(TOUCH, can_use_tool=asked, allowed_tools=["Bash"])
    assert ran(cli)
    assert asked.requests == []


def test_edits_are_asked_for(cli: RealCLI):
    """With a callback the mode is the CLI's own, so that it is asked about edits, too."""
    asked = Asked()
    cli.ask(f"go {tool('Write', file_path=str(cli.cwd / 'a.txt'), content='x')}", can_use_tool=asked)
    assert asked.names == ["Write"]
    assert (cli.cwd / "a.txt").read_text() == "x"


@pytest.mark.parametrize(("where", "mode"), [("user", "bypassPermissions"), ("project", "acceptEdits")])
def test_a_mode_of_the_disk_does_not_keep_it_from_being_asked(cli: RealCLI, where: str, mode: str):
    """Settings of the user, or of the project that was just cloned."""
    folder = (cli.home if where == "user" else cli.cwd) / ".claude"
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({"permissions": {"defaultMode": mode}}))
    asked = Asked(Deny("no"))
    cli.ask(tool("Write", file_path=str(cli.cwd / "ran"), content="x"), can_use_tool=asked)
    assert asked.names == ["Write"]
    assert not ran(cli)


@pytest.mark.parametrize("mode", ["plan", "default", "dontAsk"])
def test_the_mode_of_the_settings_that_are_given_counts(cli: RealCLI, mode: str):
    """Our own default does not overrule it."""
    write = tool("Write", file_path=str(cli.cwd / "ran"), content="x")
    cli.ask(write, settings={"permissions": {"defaultMode": mode}})
    assert not ran(cli)


def test_two_reads_at_once(cli: RealCLI):
    """Both are asked before either is answered."""
    (cli.root / "out").mkdir()
    for name in ("a", "b"):
        (cli.root / "out" / name).write_text(f"text of {name}")
    both = threading.Barrier(2)
    asked = Asked(lambda request: both.wait(PATIENCE) >= 0)
    reads = "".join(tool("Read", file_path=str(cli.root / "out" / name)) for name in ("a", "b"))
    assert cli.ask(f"go {reads}", can_use_tool=asked).result == "done"
    assert asked.names == ["Read", "Read"]
    first, second = sorted(cli.api.last().results)  # the order is that of their ends
    assert "text of a" in first
    assert "text of b" in second


def test_a_subagents_call(cli: RealCLI):
    """A call of a subagent names it."""
    asked = Asked()
    agent = tool(
        "Agent",
        description="Look",
        prompt=f"look {bash('touch ran')}[[then]][[text: I looked]]",
        subagent_type="general-purpose",
        run_in_background=False,
    )
    assert cli.ask(f"go {agent}[[then]][[text: it looked]]", can_use_tool=asked).result == "it looked"
    assert ran(cli)
    assert asked.requests[-1].tool_name == "Bash"
    assert asked.requests[-1].agent_id


# --- deny -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_deny(cli: RealCLI, way: str):
    """A denied call does not run, the model reads why, the turn goes on, the result lists it."""
    result = ask(cli, way, TOUCH, can_use_tool=Asked(Deny("not on a Sunday")))
    assert not ran(cli)
    assert "not on a Sunday" in cli.api.last().results[0]
    assert result.result == "done"
    assert [denial["tool_name"] for denial in result.permission_denials] == ["Bash"]


def test_deny_with_interrupt(cli: RealCLI):
    """It ends the turn: InterruptedTurnError; in a session the next prompt is answered."""
    session = cli.session(can_use_tool=Asked(Deny("stop", interrupt=True)))
    with pytest.raises(InterruptedTurnError):
        session.ask(TOUCH)
    assert not ran(cli)
    assert session.ask("next [[text: mine]]").result == "mine"


def test_deny_with_interrupt_in_a_one_shot_turn(cli: RealCLI):
    """There, too, it is an InterruptedTurnError."""
    with pytest.raises(InterruptedTurnError):
        cli.ask(TOUCH, can_use_tool=Asked(Deny("stop", interrupt=True)))
    assert not ran(cli)


def test_an_exception_denies(cli: RealCLI):
    """The model hears that the callback failed, and of what class; the words, which may be secret, do not go out."""

    def fail(request: PermissionRequest) -> bool:
        raise LookupError("the password is swordfish")

    assert cli.ask(TOUCH, can_use_tool=fail).result == "done"
    assert not ran(cli)
    (told,) = cli.api.last().results
    assert "LookupError" in told
    assert "swordfish" not in told


NO_ANSWERS = {"None": None, "a text": "yes", "1": 1, "the class": Allow, "a dict": {"behavior": "allow"}}


@pytest.mark.parametrize("answer", NO_ANSWERS.values(), ids=NO_ANSWERS.keys())
def test_what_is_no_answer_denies(cli: RealCLI, answer: Any):
    """Only True and an Allow allow."""
    assert cli.ask(TOUCH, can_use_tool=lambda request: answer).result == "done"
    assert not ran(cli)
    assert "TypeError" in cli.api.last().results[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_ends_the_program_rises_in_the_consumer(cli: RealCLI, way: str, error: type[BaseException]):
    """`sys.exit` in a callback: the call is denied, and the exception comes out where the run is read."""

    def leave(request: PermissionRequest) -> bool:
        raise error("enough")

    with pytest.raises(error, match="enough"):
        ask(cli, way, TOUCH, can_use_tool=leave)
    assert not ran(cli)


def test_a_session_goes_on_after_an_exit(cli: RealCLI):
    """The exception has risen; who catches it may go on with the session."""

    def leave(request: PermissionRequest) -> bool:
        raise SystemExit(3)

    session = cli.session(can_use_tool=leave)
    with pytest.raises(SystemExit):
        session.ask(TOUCH)
    assert session.ask("next [[text: mine]]").result == "mine"


# --- rules that do nothing ----------------------------------------------------------------------

# A call of each tool of whose rules the CLI reads no parentheses, a rule that seems to mean it, what the model reads
# of a call that ran. The last two tools are those of other versions.
UNREAD = {
    "Write": ("Write(src/**)", {"file_path": "src/new", "content": "x"}, "created successfully"),
    "NotebookEdit": (
        "NotebookEdit(src/**)",
        {"notebook_path": "src/n.ipynb", "cell_id": "c", "new_source": "y"},
        "Updated cell",
    ),
    "Grep": ("Grep(src/**)", {"pattern": "cells", "path": "src"}, "n.ipynb"),
    "Glob": ("Glob(src/**)", {"pattern": "*", "path": "src"}, "n.ipynb"),
    "Monitor": ("Monitor(touch:*)", {"command": "touch ran", "description": "look"}, "Monitor started"),
    "WebSearch": ("WebSearch(weather)", {"query": "weather"}, "Web search results"),
    "WebFetch": ("WebFetch(https://x.invalid)", {"url": "https://x.invalid", "prompt": "x"}, "Unable to verify"),
    "ToolSearch": ("ToolSearch(weather)", {"query": "weather"}, ""),
    "MultiEdit": ("MultiEdit(src/**)", {}, "No such tool"),
    "LS": ("LS(src/**)", {}, "No such tool"),
}
NOTEBOOK = {
    "cells": [{"cell_type": "code", "id": "c", "metadata": {}, "source": "x", "outputs": [], "execution_count": None}],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def call_in_src(cli: RealCLI, name: str, inputs: dict[str, Any], **options: Any) -> str:
    """What the model reads of this call, whose paths are below the folder that it works in."""
    (cli.cwd / "src").mkdir(exist_ok=True)
    (cli.cwd / "src" / "n.ipynb").write_text(json.dumps(NOTEBOOK))
    whole = {key: str(cli.cwd / value) if value.startswith("src") else value for key, value in inputs.items()}
    read = tool("Read", file_path=str(cli.cwd / "src" / "n.ipynb"))
    cli.ask(f"go {read}[[then]]{tool(name, **whole)}", **options)
    return cli.api.last().results[-1]


@pytest.mark.parametrize(("rule", "ran"), [("Bash(touch *)", True), ("Bash", False)])
def test_a_command_of_monitor_that_is_allowed(cli: RealCLI, rule: str, ran: bool):
    """By a rule for commands, and not by the name of the other tool: the preset as the CLI itself."""
    _, inputs, ran_as = UNREAD["Monitor"]
    for options in ({"allowed_tools": [rule], "can_use_tool": Asked(Deny("no"))}, {"unattended": unattended([rule])}):
        told = call_in_src(cli, "Monitor", inputs, permission_mode="default", **options)
        assert (ran_as in told) is ran


def test_every_tool_without_parentheses_is_tried():
    """What is refused of rules is what the next tests have seen."""
    assert UNREAD.keys() == {*NO_PARENTHESES, "WebFetch"}


@pytest.mark.parametrize("name", UNREAD)
def test_a_rule_that_forbids_nothing(cli: RealCLI, monkeypatch: pytest.MonkeyPatch, name: str):
    """Why they are refused: the CLI passes over them, and the tool runs."""
    rule, inputs, ran_as = UNREAD[name]
    monkeypatch.setattr("claude_cli_client._tool_names.unread", lambda rule, allowing: "")
    allowed = [f"{name}(x)"] if name in ("Grep", "Glob") else []  # else there is no such tool
    mode = "bypassPermissions"
    told = call_in_src(cli, name, inputs, disallowed_tools=[rule], allowed_tools=allowed, permission_mode=mode)
    assert ran_as in told
    assert "denied" not in told


@pytest.mark.parametrize("name", ["Write", "NotebookEdit", "Monitor", "WebSearch", "WebFetch"])
def test_a_rule_that_allows_nothing(cli: RealCLI, monkeypatch: pytest.MonkeyPatch, name: str):
    """The CLI asks all the same."""
    rule, inputs, ran_as = UNREAD[name]
    monkeypatch.setattr("claude_cli_client._tool_names.unread", lambda rule, allowing: "")
    asked = Asked(Deny("no"))
    assert ran_as not in call_in_src(cli, name, inputs, allowed_tools=[rule], can_use_tool=asked)
    assert asked.names == [name]


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("Write", "Write(*)"),
        ("Write", "Write()"),
        ("Write", "Write(content:x)"),
        ("Write", "Edit(src/**)"),
        ("NotebookEdit", "NotebookEdit(cell_id:c)"),
        ("Grep", "Grep(pattern:cells)"),
        ("Grep", "Read(src/**)"),
        ("Glob", "Read(src/**)"),
        ("Monitor", "Monitor(command:touch ran)"),
        ("Monitor", "Bash(touch *)"),
        ("WebSearch", "WebSearch(query:wea*)"),
        ("WebFetch", "WebFetch(prompt:x)"),
        ("WebFetch", "WebFetch(domain:*)"),
    ],
)
def test_a_rule_that_forbids(cli: RealCLI, name: str, rule: str):
    """Why these are not refused, and what our messages name instead."""
    _, inputs, ran_as = UNREAD[name]
    allowed = [f"{name}(pattern:x)"] if name in ("Grep", "Glob") else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these allow nothing, but bring the tool
        told = call_in_src(
            cli, name, inputs, disallowed_tools=[rule], allowed_tools=allowed, permission_mode="bypassPermissions"
        )
    assert ran_as not in told


@pytest.mark.parametrize(
    ("rule", "bare", "whole"), [("Bash(date)", True, False), ("Bash(date *)", True, True), ("Bash(date:*)", True, True)]
)
@pytest.mark.filterwarnings("ignore:the rule")
def test_a_rule_for_a_bare_command(cli: RealCLI, rule: str, bare: bool, whole: bool):
    """Why `Bash(date)` warns: it forbids the command without arguments only; with ` *` it forbids both."""
    for command, denied in (("date", bare), ("date -u", whole)):
        cli.ask(f"go {bash(command)}", disallowed_tools=[rule], permission_mode="bypassPermissions")
        assert ("has been denied" in cli.api.last().results[-1]) is denied


@pytest.mark.filterwarnings("ignore:the rule")
def test_a_misspelt_tool(cli: RealCLI):
    """Why a name that is nearly a tool's warns: the CLI passes over it, and the tool runs."""
    cli.ask(TOUCH, disallowed_tools=["Bsah"], permission_mode="bypassPermissions")
    assert ran(cli)


def test_a_tool_of_the_cli_is_not_taken_for_a_misspelt_one(cli: RealCLI):
    """No name that the CLI has of a tool of its own is near another one that we know."""
    (init,) = [event for event in cli.events("hi") if event.subtype == "init"]
    assert not [name for name in init.data["tools"] if misspelt(name)]


def test_a_rule_for_a_subagent_takes_the_tool(cli: RealCLI):
    """Of an agent's disallowed tools the CLI reads the name alone, so nothing of it is refused."""
    agents = {"helper": {"description": "helps", "prompt": "Help.", "disallowedTools": ["Write(src/**)"]}}
    write = tool("Write", file_path=str(cli.cwd / "ran"), content="x")
    helper = tool("Agent", description="d", prompt=f"do {write}", subagent_type="helper", run_in_background=False)
    cli.ask(f"go {helper}", permission_mode="bypassPermissions", agents=agents)
    assert not ran(cli)
    assert any("No such tool available: Write" in told for request in cli.api.requests() for told in request.results)


# --- questions and plans ----------------------------------------------------------------------

QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "red", "description": "like a rose"}, {"label": "blue", "description": "like the sea"}],
    "multiSelect": False,
}


def test_a_question_is_answered(cli: RealCLI):
    """AskUserQuestion through `request.answer`: the model reads the answer."""

    def answer(request: PermissionRequest) -> Allow:
        (question,) = request.questions
        assert request.is_question
        assert request.requires_user_interaction
        return request.answer({question.question: question.options[1].label})

    assert cli.ask(f"go {tool('AskUserQuestion', questions=[QUESTION])}", can_use_tool=answer).result == "done"
    (told,) = cli.api.last().results
    assert "Which colour?" in told
    assert "blue" in told


def test_a_question_in_own_words(cli: RealCLI):
    """An answer that is no label goes through as it is."""

    def answer(request: PermissionRequest) -> Allow:
        return request.answer({"Which colour?": "the colour of rust"})

    cli.ask(f"go {tool('AskUserQuestion', questions=[QUESTION])}", can_use_tool=answer)
    assert "the colour of rust" in cli.api.last().results[0]


@pytest.mark.parametrize("approve", [True, False])
def test_a_plan(cli: RealCLI, approve: bool):
    """ExitPlanMode: allowed, what follows is asked about as usual; denied, the mode stays."""
    seen: list[tuple[str, bool]] = []

    def answer(request: PermissionRequest) -> Allow | Deny:
        seen.append((request.tool_name, request.is_plan))
        return Deny("not yet") if request.is_plan and not approve else Allow()

    session = cli.session(can_use_tool=answer, permission_mode="plan")
    run = session.run(f"go {tool('ExitPlanMode')}[[then]][[text: planned]]")
    events = list(run)
    assert seen[0] == ("ExitPlanMode", True)
    assert events[-1].result == "planned"
    assert ("not yet" in cli.api.last().results[0]) is not approve
    (init,) = [event for event in session.run("next") if event.subtype == "init"]
    assert init.data["permissionMode"] == ("default" if approve else "plan")


# --- suggestions and updates ------------------------------------------------------------------


def test_a_suggestion_taken(cli: RealCLI):
    """A suggestion sent back: the same is not asked again in this session."""
    asked = Asked(lambda request: Allow(updated_permissions=[s.to("session") for s in request.suggestions]))
    session = cli.session(can_use_tool=asked)
    session.ask(f"one {bash('mkdir made-one')}")
    assert asked.requests[0].suggestions
    session.ask(f"two {bash('mkdir made-two')}")
    assert (cli.cwd / "made-two").exists()
    assert len(asked.requests) == 1


def test_a_suggestion_as_it_came(cli: RealCLI):
    """Its own destination is kept: a rule for the local settings stands in that file then."""
    asked = Asked(lambda request: Allow(updated_permissions=request.suggestions))
    cli.ask(f"go {bash('npm run lint:ci')}", can_use_tool=asked)
    (suggestion,) = asked.requests[0].suggestions
    assert (suggestion.type, suggestion.destination) == ("addRules", "localSettings")
    written = (cli.cwd / ".claude" / "settings.local.json").read_text()
    assert str(suggestion.rules[0]) in written


def test_an_update_of_our_own(cli: RealCLI):
    """A rule that we made holds from then on, and for nothing else."""
    rule = PermissionUpdate.add_rules("Bash(touch ran)")
    asked = Asked(lambda request: Allow(updated_permissions=[rule]))
    session = cli.session(can_use_tool=asked)
    session.ask(TOUCH)
    session.ask(TOUCH)
    assert len(asked.requests) == 1
    session.ask(f"go {bash('touch other')}")
    assert len(asked.requests) == 2


def test_a_mode_by_an_update(cli: RealCLI):
    """An update may change the mode: edits are accepted from then on."""
    asked = Asked(Allow(updated_permissions=[PermissionUpdate.set_mode("acceptEdits")]))
    session = cli.session(can_use_tool=asked)
    for name in ("a", "b"):
        session.ask(f"go {tool('Write', file_path=str(cli.cwd / name), content='x')}")
    assert asked.names == ["Write"]
    assert (cli.cwd / "b").exists()


# --- unattended -------------------------------------------------------------------------------


def test_unattended_says_so(cli: RealCLI):
    """The system prompt tells the model that nobody is there, behind what the caller appended."""
    cli.ask("hi", unattended=True, append_system_prompt="Be brief.")
    system = cli.api.last().system
    assert UNATTENDED_SENTENCE in system
    assert system.index("Be brief.") < system.index(UNATTENDED_SENTENCE)


def test_unattended_answers_no_question(cli: RealCLI):
    """The model's question is denied with guidance; no answer is invented, nobody waits."""
    assert cli.ask(f"go {tool('AskUserQuestion', questions=[QUESTION])}", unattended=True, timeout=30).result == "done"
    (told,) = cli.api.last().results
    assert GUIDANCE in told


# Accepted edits go with a few commands like `touch`; this is none of them.
SCRIPT = f"go {bash('python3 -c pass > ran')}"


def test_unattended_denies(cli: RealCLI):
    """What no rule allows is denied, with words; the turn goes on."""
    assert cli.client(unattended=True).ask(SCRIPT).result == "done"
    assert not ran(cli)
    assert "unattended" in cli.api.last().results[0]


def test_unattended_allows_by_rule(cli: RealCLI):
    """What a rule allows runs, what another one forbids does not."""
    preset = unattended(allow=["Bash(git *)"], deny=["Bash(git init forbidden)"])
    client = cli.client(unattended=preset)
    client.ask(f"go {bash('git init allowed')}")
    assert (cli.cwd / "allowed").exists()
    client.ask(f"go {bash('git init forbidden')}")
    assert not (cli.cwd / "forbidden").exists()


HIDDEN = [
    "rm victim",
    "A=1 /bin/r? victim",
    "</dev/null /bin/r? victim",
    "if /bin/r? victim; then :; fi",
    "for i in 1; do /bin/r? victim; done",
    "timeout 5 /bin/r[m] victim",
    "sh -c '/bin/r? victim'",
    "cat <<'E' >/dev/null\n'\nE\n$(printf r)m victim\n: ''",
    "ls # x\\\n/bin/r? victim",
    "printf 'r\\155 victim' | sh",
    "echo victim | xargs -n1 /bin/r?",
    "find /bin/ -name 'r[m]' -exec {} victim ';'",
]


@pytest.mark.parametrize("command", HIDDEN)
def test_unattended_denies_what_is_hidden(cli: RealCLI, command: str):
    """A command that is denied does not run in whatever the shell makes it of."""
    (cli.cwd / "victim").touch()
    cli.client(unattended=unattended(allow=["Bash"], deny=["Bash(rm *)"])).ask(f"go {bash(command)}")
    assert (cli.cwd / "victim").exists()
    assert cli.api.last().results


ORDINARY = ["grep -c 'rm' it > ran", "for f in i*; do cp it ran; done", "cat it # rm it\ncp it ran"]


@pytest.mark.parametrize("command", ORDINARY)
def test_unattended_lets_work_go_on(cli: RealCLI, command: str):
    """A denial is no reason to deny what only looks alike."""
    (cli.cwd / "it").write_text("rm")
    cli.client(unattended=unattended(allow=["Bash"], deny=["Bash(rmdir *)"])).ask(f"go {bash(command)}")
    assert ran(cli)


def test_unattended_in_a_linked_directory(cli: RealCLI):
    """The model is told the directory behind a link: rules mean it by either name."""
    (cli.cwd / "src").mkdir()
    (cli.root / "current").symlink_to(cli.cwd)
    client = cli.client(
        cwd=os.path.relpath(cli.root / "current"), permission_mode="default", unattended=unattended(["Edit(src/**)"])
    )
    for name, base in (("a", cli.cwd), ("b", cli.root / "current")):
        client.ask(f"go {tool('Write', file_path=str(base / 'src' / name), content='x')}")
        assert (cli.cwd / "src" / name).exists()
    client.ask(f"go {tool('Write', file_path=str(cli.cwd / 'c'), content='x')}")
    assert not (cli.cwd / "c").exists()


@pytest.mark.parametrize("rule", ["mcp__my__drop", "mcp__my", "mcp__my__*"])
def test_unattended_allows_a_tool_of_a_server(cli: RealCLI, rule: str):
    """A rule of ours is what the CLI's question about such a tool asks for."""
    calls = []

    @library_tool
    def drop() -> str:
        """Drop it."""
        calls.append(1)
        return "dropped"

    cli.ask(f"go {tool('mcp__my__drop')}", mcp_servers={"my": ToolServer([drop])}, unattended=unattended(allow=[rule]))
    assert calls


GLOBS = {
    # The rule -> whether it allows, and whether it denies, the tool mcp__my__drop.
    "mcp__my": (True, True),
    "mcp__my__dr*": (True, True),
    "mcp__my__*op": (True, True),
    "mcp__my__d*()": (True, True),
    "mcp__my__drop(*)": (True, True),
    "mcp__*": (False, True),
    "mcp__m*": (False, True),
    "mcp__my*": (False, True),
    "mcp__m*__drop": (False, True),
    "mcp__my__d?op": (False, False),
    "mcp__my__drop(x)": (False, False),
}


@pytest.mark.parametrize("rule", GLOBS)
def test_rules_with_stars_mean_what_the_cli_means(cli: RealCLI, monkeypatch: pytest.MonkeyPatch, rule: str):
    """What the CLI takes to allow or to deny is what `unattended` takes, and both do the same with it."""
    calls = []

    @library_tool
    def drop() -> str:
        """Drop it."""
        calls.append(1)
        return "dropped"

    def runs(**options: Any) -> bool:
        calls.clear()
        cli.ask(f"go {tool('mcp__my__drop')}", mcp_servers={"my": ToolServer([drop])}, **options)
        return bool(calls)

    def preset(**rules: list[str]) -> Any:
        try:
            return unattended(**rules)
        except ValueError:
            return None

    for check in ("guards_nothing", "means_another"):
        monkeypatch.setattr(f"claude_cli_client._tool_names.{check}", lambda options: "")
    allows, denies = GLOBS[rule]
    assert runs(allowed_tools=[rule], permission_mode="default") is allows
    assert runs(disallowed_tools=[rule], permission_mode="bypassPermissions") is not denies
    allowing, denying = preset(allow=[rule]), preset(allow=["mcp__my"], deny=[rule])
    assert (allowing is not None, denying is not None) == (allows, denies)
    assert allowing is None or runs(unattended=allowing)
    assert denying is None or not runs(unattended=denying)


def test_unattended_denies_a_tool_of_a_server_that_a_hook_may_decide(cli: RealCLI):
    """The CLI says that something else may want a person, and not what."""
    calls = []

    @library_tool
    def drop() -> str:
        """Drop it."""
        calls.append(1)
        return "dropped"

    cli.ask(
        f"go {tool('mcp__my__drop')}",
        mcp_servers={"my": ToolServer([drop])},
        unattended=unattended(allow=["mcp__my"]),
        hooks={"PermissionRequest": lambda call: None},
    )
    assert not calls
    assert "PermissionRequest hook" in cli.api.last().results[0]


@pytest.mark.parametrize("command", ["echo x > .git/config", "touch a; echo x > .bashrc", "touch a && rm -rf /etc"])
def test_unattended_leaves_to_a_person_what_the_cli_protects(cli: RealCLI, command: str):
    """Also in a part of a compound command, whatever our rules allow."""
    cli.client(unattended=unattended(allow=["Bash"])).ask(f"go {bash(command)}")
    assert "protects" in cli.api.last().results[0]


def test_unattended_denies_a_whole_server(cli: RealCLI):
    """Also one whose name has two underscores."""
    calls = []

    @library_tool
    def drop() -> str:
        """Drop it."""
        calls.append(1)
        return "dropped"

    rules = unattended(allow=["mcp__my__db__drop"], deny=["mcp__my__db"])
    cli.ask(f"go {tool('mcp__my__db__drop')}", mcp_servers={"my__db": ToolServer([drop])}, unattended=rules)
    assert not calls


def test_unattended_edits_and_plans(cli: RealCLI):
    """Edits in the working directory are accepted, and a plan is approved."""
    client = cli.client(unattended=True)
    client.ask(f"go {tool('Write', file_path=str(cli.cwd / 'a.txt'), content='x')}")
    assert (cli.cwd / "a.txt").exists()
    run = client.run(f"go {tool('ExitPlanMode')}[[then]][[text: planned]]", permission_mode="plan")
    assert run.result().result == "planned"
    assert "approved" in cli.api.last().results[0].lower()


def test_unattended_in_a_session(cli: RealCLI):
    """The one switch works there, too."""
    session = cli.session(unattended=True)
    assert session.ask(SCRIPT).result == "done"
    assert not ran(cli)
    assert UNATTENDED_SENTENCE in cli.api.last().system
