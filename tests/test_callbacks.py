"""Permissions and hooks: the types users write, and their wire form.

`data/callbacks/` has what the real CLI, 2.1.332, asked and what a host answered: `permissions.jsonl`,
`hooks.jsonl` (an answer of null is an error reply), and its own catalogue of hook events.
"""

import copy
import functools
import json
import pickle
import subprocess
import sys
import threading
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from claude_cli_client import _hook_events, callbacks
from claude_cli_client._hook_reply import _NAMES
from claude_cli_client.callbacks import (
    HOOK_EVENTS,
    Allow,
    Deny,
    HookCall,
    HookMatcher,
    HookReply,
    PermissionRequest,
    PermissionRule,
    PermissionUpdate,
    hook_call,
    hook_failed,
    hook_reply,
    hooks_config,
    permission_failed,
    permission_reply,
    permission_request,
)

FOLDER = Path(__file__).parent / "data" / "callbacks"


def recorded(name):
    rows = (json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines())
    return [(row["request"], row["answers"]) for row in rows]


PERMISSIONS = recorded("permissions")
HOOKS = recorded("hooks")
SUGGESTIONS = [item for wire, _ in PERMISSIONS for item in wire.get("permission_suggestions", ())]
UPDATES = [
    PermissionUpdate.add_rules("Bash(git *)", PermissionRule("Read"), behavior="deny", destination="userSettings"),
    PermissionUpdate.replace_rules("Edit", destination="projectSettings"),
    PermissionUpdate.remove_rules("Bash(npm test)", behavior="ask", destination="localSettings"),
    PermissionUpdate.set_mode("plan"),
    PermissionUpdate.add_directories("/srv/a", Path("/srv/b"), destination="cliArg"),
    PermissionUpdate.remove_directories("/srv/a"),
]


def request(tool="Bash", **fields):
    return permission_request({"tool_name": tool, "input": {"command": "ls"}, **fields})


def permission(tool, **fields):
    """The first recorded request of this tool with these fields."""
    return next(w for w, _ in PERMISSIONS if w["tool_name"] == tool and fields.items() <= w.items())


def hook(event, **fields):
    """The first recorded input of this event with these fields, as a call."""
    return next(
        hook_call(w)
        for w, _ in HOOKS
        if w["input"]["hook_event_name"] == event and fields.items() <= w["input"].items()
    )


def output(event, **specific):
    return {"hookSpecificOutput": {"hookEventName": event, **specific}}


def nothing(call):
    return None


# --- answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", ["", " \n", None, 3])
def test_denial_needs_a_message(message):
    """A Deny without words is a ValueError at once: the CLI takes none."""
    with pytest.raises(ValueError, match="message"):
        Deny(message)


def test_denial_without_arguments():
    """Leaving the message out is that same ValueError."""
    with pytest.raises(ValueError, match="message"):
        Deny()


def test_interrupt_is_a_flag():
    """`interrupt` takes no other truth: the CLI reads a text there as no answer."""
    with pytest.raises(ValueError, match="interrupt"):
        Deny("no", interrupt="yes")


def test_answers_are_frozen():
    """An answer cannot be changed after it was checked."""
    with pytest.raises(FrozenInstanceError):
        Deny("no").message = ""


def test_allow_copies_its_input():
    """What is allowed is what was given, whatever the caller does to his dict later."""
    given = {"command": "ls", "more": ["a"]}
    answer = Allow(given)
    given["more"].append("b")
    assert answer.updated_input == {"command": "ls", "more": ["a"]}


@pytest.mark.parametrize("bad", ["ls", [("command", "ls")], {"command": Path("ls")}, {1: "ls"}, {"n": float("nan")}])
def test_allow_takes_json_only(bad):
    """An input that could not be sent is a ValueError where it was made."""
    with pytest.raises(ValueError, match="updated_input"):
        Allow(bad)


@pytest.mark.parametrize("bad", [{"type": "nope"}, {"type": "setMode"}, "acceptEdits", None, 3])
def test_allow_refuses_updates_that_the_cli_would_drop(bad):
    """The CLI drops an invalid update silently and allows all the same; here it is a ValueError."""
    with pytest.raises(ValueError, match=r"updated_permissions|permission update"):
        Allow(updated_permissions=[bad])


def test_allow_takes_updates_in_wire_form():
    """A dict in the CLI's form is an update too."""
    assert Allow(updated_permissions=[UPDATES[3].to_wire()]) == Allow(updated_permissions=[UPDATES[3]])


# --- permission updates -----------------------------------------------------------------------------


@pytest.mark.parametrize("update", UPDATES, ids=lambda update: update.type)
def test_update_survives_the_wire(update):
    """Each kind comes back as it was sent."""
    assert PermissionUpdate.from_wire(json.loads(json.dumps(update.to_wire()))) == update


@pytest.mark.parametrize("wire", SUGGESTIONS)
def test_suggestion_can_be_sent_back(wire):
    """What the real CLI suggested is understood, and goes back as it came."""
    update = PermissionUpdate.from_wire(wire)
    assert (update.is_known, update.to_wire()) == (True, wire)


def test_rule_without_content_has_no_key():
    """A rule for the whole tool leaves `ruleContent` out: null is invalid there."""
    assert UPDATES[1].to_wire()["rules"] == [{"toolName": "Edit"}]


@pytest.mark.parametrize(
    "wire",
    [
        {"type": "grantMoon", "phase": 3, "destination": "session"},
        {"type": "grantMoon"},
        {"type": "addRules", "rules": "Bash", "behavior": "allow", "destination": "session"},
        {
            "type": "addRules",
            "rules": [{"toolName": "Bash", "until": 5}],
            "behavior": "allow",
            "destination": "session",
        },
        {"type": "setMode", "mode": "later", "destination": "session"},
        {},
    ],
)
def test_unknown_suggestion_is_kept(wire):
    """A kind or shape of a later CLI is not understood, but kept and sent back unchanged."""
    update = PermissionUpdate.from_wire(wire)
    assert (update.is_known, update.to_wire()) == (False, wire)
    assert permission_reply(Allow(updated_permissions=[update]), request())["updatedPermissions"] == [wire]


def test_unknown_field_of_a_known_kind_is_kept():
    """A new field beside known ones survives the way back."""
    wire = {"type": "setMode", "mode": "plan", "destination": "session", "minutes": 5}
    update = PermissionUpdate.from_wire(wire)
    assert (update.mode, update.to_wire()) == ("plan", wire)


def test_suggestion_for_another_destination():
    """`to("session")` takes a suggestion without writing it into the settings."""
    update = PermissionUpdate.from_wire(SUGGESTIONS[0])
    assert (update.destination, update.to("session").to_wire()) == (
        "localSettings",
        {**SUGGESTIONS[0], "destination": "session"},
    )


def test_unknown_suggestion_has_no_other_destination():
    """What is not understood cannot be changed: it would be sent as it came, and last where it says."""
    with pytest.raises(ValueError, match="grantMoon"):
        PermissionUpdate.from_wire({"type": "grantMoon", "destination": "userSettings"}).to("session")


SUGGESTED = {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "allow", "destination": "session"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: PermissionUpdate("grantMoon"),
        lambda: PermissionUpdate.add_rules(),
        lambda: PermissionUpdate.add_rules("Bash", behavior="maybe"),
        lambda: PermissionUpdate.add_rules("Bash", destination="moon"),
        lambda: PermissionUpdate.add_rules("Bash(git"),
        lambda: PermissionUpdate.add_rules("bash(git *)"),
        lambda: PermissionUpdate.replace_rules(PermissionRule("READ"), behavior="deny"),
        lambda: Allow(updated_permissions=[{**SUGGESTED, "rules": [{"toolName": "bash"}]}]),
        lambda: PermissionUpdate.add_rules(""),
        lambda: PermissionUpdate.set_mode("yolo"),
        lambda: PermissionUpdate.set_mode(""),
        lambda: PermissionUpdate.add_directories(),
        lambda: PermissionUpdate.add_directories(""),
        lambda: PermissionUpdate("setMode", mode="plan", directories=("/srv",)),
        lambda: PermissionUpdate("addRules", ("Bash",), "allow"),
        lambda: PermissionUpdate("addDirectories", directories="/srv"),
        lambda: PermissionRule("Bash", ""),
        lambda: replace(UPDATES[3], mode="yolo"),
    ],
)
def test_wrong_update_is_refused(make):
    """Whatever the CLI would drop is a ValueError at construction."""
    with pytest.raises(ValueError):
        make()


def test_the_case_of_a_tool_in_an_update():
    """The words of `allowed_tools`; what was written wrong before can be taken away again."""
    assert Allow(updated_permissions=[SUGGESTED]).updated_permissions == (PermissionUpdate.add_rules("Bash"),)
    with pytest.raises(ValueError, match="the tool is called 'Bash'; the CLI ignores 'bash'"):
        PermissionUpdate.add_rules("bash(git *)")
    assert PermissionUpdate.remove_rules("bash").rules == (PermissionRule("bash"),)


def test_rule_as_text():
    """A rule reads and prints as `allowed_tools` writes it."""
    assert PermissionRule.parse("Bash(git log *)") == PermissionRule("Bash", "git log *")
    assert [str(PermissionRule.parse(text)) for text in ("Bash(git *)", "Read")] == ["Bash(git *)", "Read"]


# --- requests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wire", "answer"), PERMISSIONS)
def test_recorded_request(wire, answer):
    """Every recorded request is read, with its tool, its input and nothing lost."""
    made = permission_request(wire)
    assert (made.tool_name, made.input, made.raw) == (wire["tool_name"], wire["input"], wire)
    assert [update.to_wire() for update in made.suggestions] == wire.get("permission_suggestions", [])


def test_request_fields():
    """The fields of a request have the CLI's values."""
    made = permission_request(permission("Read"))
    assert made.decision_reason == "Path is outside allowed working directories"
    assert (made.decision_reason_type, made.display_name, made.description) == ("workingDir", "Read", "/etc/hostname")
    assert permission_request(permission("Bash")).blocked_path == "/home/user/project/made-allow"


def test_request_names_the_mcp_server():
    """A call of an MCP tool says whose it is."""
    assert permission_request(permission("mcp__el__t")).mcp_server == {"name": "el", "source": "sdk"}


def test_unknown_field_is_in_raw():
    """A field that this version does not know can be read."""
    asked = permission_request(permission("Bash", decision_reason="please ask"))
    assert (asked.raw["decision_reason_hook_event"], asked.decision_reason_type) == ("PreToolUse", "hook")


def test_fields_of_wrong_types_are_absent():
    """A known field with an unknown shape does not break the request."""
    made = request(description=7, mcp_server="x", permission_suggestions={"a": 1}, agent_id=None)
    assert (made.description, made.mcp_server, made.suggestions, made.agent_id) == ("", None, (), "")


@pytest.mark.parametrize(
    "wire", [{}, {"tool_name": "Bash"}, {"tool_name": "", "input": {}}, {"tool_name": "Bash", "input": "ls"}]
)
def test_request_without_tool_or_input_is_refused(wire):
    """What cannot be seen cannot be approved."""
    with pytest.raises(ValueError):
        permission_request(wire)


def test_cancelled_is_live():
    """`cancelled` follows the flag that the session gives."""
    flag = threading.Event()
    made = permission_request(PERMISSIONS[0][0], flag)
    before = made.cancelled
    flag.set()
    assert (before, made.cancelled, made.wait_cancelled(60)) == (False, True, True)


def test_request_without_flag_is_never_cancelled():
    """A request that a test builds answers at once that nobody cancelled it."""
    made = PermissionRequest("Bash", {"command": "ls"})
    assert (made.cancelled, made.wait_cancelled(60)) == (False, False)


def test_request_pickles():
    """A request can go to another process, which has no flag for it."""
    made = permission_request(PERMISSIONS[0][0], threading.Event())
    again = pickle.loads(pickle.dumps(made))
    assert (again, again.raw, again.cancelled) == (made, made.raw, False)


def test_questions():
    """AskUserQuestion shows its questions with their options."""
    made = permission_request(permission("AskUserQuestion"))
    (question,) = made.questions
    assert (made.is_question, made.is_plan, made.requires_user_interaction) == (True, False, True)
    assert (question.question, question.header, question.multi_select) == ("Which colour?", "Colour", False)
    assert [(option.label, option.description) for option in question.options] == [("Red", "r"), ("Blue", "b")]


def test_answer_to_a_question():
    """`answer` makes the reply that the real CLI took."""
    wire, sent = next(row for row in PERMISSIONS if row[0]["tool_name"] == "AskUserQuestion")
    made = permission_request(wire)
    assert permission_reply(made.answer({"Which colour?": "Blue"}), made) == sent


def test_several_labels():
    """A question of several answers takes a list."""
    asked = {"questions": [{"question": "Which?", "options": [], "multiSelect": True}]}
    answer = permission_request({"tool_name": "AskUserQuestion", "input": asked}).answer({"Which?": ["A", "B"]})
    assert answer.updated_input["answers"] == {"Which?": "A, B"}


@pytest.mark.parametrize(
    "answers", [{}, {"What?": "Red"}, {"Which colour?": ""}, {"Which colour?": ["Red", "Blue"]}, {"Which colour?": []}]
)
def test_wrong_answers_to_a_question(answers):
    """A missing, unknown, empty or plural answer is a ValueError."""
    with pytest.raises(ValueError):
        permission_request(permission("AskUserQuestion")).answer(answers)


def test_only_questions_are_answered():
    """`answer` of another tool's request is a ValueError."""
    with pytest.raises(ValueError, match="Bash"):
        request().answer({})


@pytest.mark.parametrize("asked", [{}, {"questions": "?"}, {"questions": ["?", {"options": 3}]}])
def test_questions_of_an_unknown_shape(asked):
    """Questions that we cannot read do not break the request."""
    assert all(not q.question for q in permission_request({"tool_name": "AskUserQuestion", "input": asked}).questions)


def test_plan():
    """ExitPlanMode is seen as a plan; its text is there where the CLI sends it."""
    made = permission_request({"tool_name": "ExitPlanMode", "input": {"plan": "1. Begin"}})
    assert (made.is_plan, made.plan, permission_request(permission("ExitPlanMode")).plan) == (True, "1. Begin", "")


# --- replies ----------------------------------------------------------------------------------------


def test_true_allows_what_was_asked():
    """True lets the tool run with the input that the callback saw."""
    wire = PERMISSIONS[0][0]
    assert permission_reply(True, permission_request(wire)) == {"behavior": "allow", "updatedInput": wire["input"]}


def test_false_denies_with_words():
    """False is a denial, and has the message that the CLI demands."""
    reply = permission_reply(False, request())
    assert (reply["behavior"], bool(reply["message"])) == ("deny", True)


def test_changed_input_runs_changed():
    """A callback that edits `request.input` in place approves what it edited, not what came."""
    made = request()
    made.input["command"] = "ls -l"
    assert permission_reply(True, made)["updatedInput"] == {"command": "ls -l"}


def test_input_that_cannot_be_sent_is_no_approval():
    """A callback that put something else than JSON into the input approved nothing: ValueError."""
    made = request()
    made.input["command"] = Path("ls")
    with pytest.raises(ValueError, match="input"):
        permission_reply(True, made)


def test_allow_on_the_wire():
    """Updated input and updates take the CLI's names."""
    update = PermissionUpdate.add_rules("Bash(touch:*)", "Bash(echo:*)")
    sent = next(a for _, a in PERMISSIONS if a and len(a.get("updatedPermissions", [{}])[0].get("rules", [])) == 2)
    assert permission_reply(Allow(sent["updatedInput"], [update]), request()) == sent


def test_deny_on_the_wire():
    """A denial with interrupt is the recorded one."""
    sent = next(a for _, a in PERMISSIONS if a and a.get("message") == "stop now")
    assert permission_reply(Deny("stop now", interrupt=True), request()) == sent


@pytest.mark.parametrize("answer", [None, 1, 0, "yes", {"behavior": "allow"}, Allow, Deny, HookReply.allow()])
def test_other_answers_are_refused(answer):
    """Anything but Allow, Deny and bool is a TypeError: it is no approval."""
    with pytest.raises(TypeError, match="can_use_tool must return"):
        permission_reply(answer, request())


def test_coroutine_is_no_answer():
    """An async function gives a coroutine, which says nothing; the error says why."""

    async def ask():
        return True

    answer = ask()
    with pytest.raises(TypeError, match="coroutine"):
        permission_reply(answer, request())
    answer.close()


def test_failed_permission_denies():
    """A callback that raised denies, and does not tell the model what was in the exception."""
    reply = permission_failed(KeyError("password=hunter2"))
    assert (reply["behavior"], "KeyError" in reply["message"], "hunter2" in str(reply)) == ("deny", True, False)


# --- the tables of hooks ----------------------------------------------------------------------------


def test_events_are_those_of_the_cli():
    """The table is the CLI's own catalogue, matchers included."""
    catalogue = json.loads((FOLDER / "events.json").read_text("utf-8"))
    assert {item["name"]: item["supportsMatcher"] for item in catalogue} == dict(HOOK_EVENTS)


def test_literal_names_the_events():
    """Type checkers know the same events."""
    assert set(_hook_events.HookEvent.__args__) == set(HOOK_EVENTS)


def test_reply_has_the_fields_of_the_table():
    """HookReply has exactly the fields that the tables translate, and these are for known events."""
    assert set(HookReply.__dataclass_fields__) == set(_NAMES)
    assert {event for _, events in _NAMES.values() for event in events} <= set(HOOK_EVENTS)


# --- hook calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", [wire for wire, _ in HOOKS], ids=lambda wire: wire["input"]["hook_event_name"])
def test_recorded_call(wire):
    """Every field of every recorded input has a field of its own, with its value."""
    call, given = hook_call(wire), dict(wire["input"])
    assert (call.event, call.raw) == (given.pop("hook_event_name"), wire["input"])
    assert call.effort == given.pop("effort", {"level": ""})["level"]
    assert [update.to_wire() for update in call.suggestions] == given.pop("permission_suggestions", [])
    for name, value in given.items():
        expected = tuple(value) if isinstance(value, list) else "" if value is None else value
        assert getattr(call, name) == expected, name


def test_absent_fields_have_defaults():
    """What an event does not bring is empty, and never None where a text is expected."""
    call = hook("UserPromptSubmit")
    assert (call.tool_name, call.tool_input, call.tool_calls, call.is_interrupt, call.duration_ms) == (
        "",
        None,
        (),
        False,
        None,
    )


def test_made_up_tool_use_id_is_not_shown():
    """Events without a tool come with a made-up id, which would match no tool call."""
    assert hook("Stop").tool_use_id == ""


def test_permission_hook_has_the_call_s_id():
    """PermissionRequest names its call beside the input."""
    wire = next(w for w, _ in HOOKS if w["input"]["hook_event_name"] == "PermissionRequest")
    assert hook_call(wire).tool_use_id == wire["tool_use_id"]


def test_unknown_fields_of_a_call():
    """A field of a later CLI is read by its name; a missing one is a KeyError."""
    call = hook_call({"input": {"hook_event_name": "Stop", "mood": "calm"}})
    assert call["mood"] == "calm"
    with pytest.raises(KeyError):
        call["moon"]


@pytest.mark.parametrize(
    "wire", [{}, {"input": None}, {"input": {"tool_input": "x", "tool_calls": 3, "duration_ms": "1"}}]
)
def test_calls_of_an_unknown_shape(wire):
    """A call is made of whatever comes, since a hook must be called to deny."""
    call = hook_call(wire)
    assert (call.event, call.tool_input, call.tool_calls, call.duration_ms) == ("", None, (), None)


def test_call_is_frozen():
    """A call cannot be changed."""
    with pytest.raises(FrozenInstanceError):
        hook("Stop").event = "PreToolUse"


def test_call_can_be_built():
    """A test of somebody's hook makes its own call; a wrong name is a TypeError."""
    call = HookCall("PreToolUse", tool_name="Bash", tool_input={"command": "ls"})
    assert (call.tool_name, call.cancelled, call == copy.copy(call)) == ("Bash", False, True)
    with pytest.raises(TypeError, match="toolname"):
        HookCall("PreToolUse", toolname="Bash")


def test_cancelled_hook_can_see_it():
    """`cancelled` of a call follows its flag."""
    flag = threading.Event()
    call = hook_call(HOOKS[0][0], flag)
    before = call.cancelled
    flag.set()
    assert (before, call.cancelled, call.wait_cancelled(60)) == (False, True, True)


def test_call_pickles():
    """A call can go to another process."""
    call = hook_call(HOOKS[0][0], threading.Event())
    assert pickle.loads(pickle.dumps(call)) == call


# --- hook replies -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "event", "wire"),
    [
        (
            HookReply.deny("no"),
            "PreToolUse",
            output("PreToolUse", permissionDecision="deny", permissionDecisionReason="no"),
        ),
        (HookReply.allow(), "PreToolUse", output("PreToolUse", permissionDecision="allow")),
        (
            HookReply.allow({"a": 1}),
            "PreToolUse",
            output("PreToolUse", permissionDecision="allow", updatedInput={"a": 1}),
        ),
        (HookReply.ask(), "PreToolUse", output("PreToolUse", permissionDecision="ask")),
        (HookReply(updated_input={"a": 1}), "PreToolUse", output("PreToolUse", updatedInput={"a": 1})),
        (HookReply.context("c"), "Stop", output("Stop", additionalContext="c")),
        (HookReply.block("b"), "Stop", {"decision": "block", "reason": "b"}),
        (HookReply.stop("s"), "PostToolUse", {"continue": False, "stopReason": "s"}),
        (HookReply(async_=True, async_timeout=1.5), "PostToolUse", {"async": True, "asyncTimeout": 1500}),
        (HookReply(system_message="m", suppress_output=True), "Stop", {"systemMessage": "m", "suppressOutput": True}),
        (
            HookReply(updated_tool_output={"stdout": "x"}),
            "PostToolUse",
            output("PostToolUse", updatedToolOutput={"stdout": "x"}),
        ),
        (HookReply(worktree_path="/w"), "WorktreeCreate", output("WorktreeCreate", worktreePath="/w")),
        (HookReply.allow(), "PermissionRequest", output("PermissionRequest", decision={"behavior": "allow"})),
        (
            HookReply.deny("no"),
            "PermissionRequest",
            output("PermissionRequest", decision={"behavior": "deny", "message": "no"}),
        ),
        (
            HookReply(permission=Allow({"a": 1}, [UPDATES[3]])),
            "PermissionRequest",
            output(
                "PermissionRequest",
                decision={"behavior": "allow", "updatedInput": {"a": 1}, "updatedPermissions": [UPDATES[3].to_wire()]},
            ),
        ),
        (HookReply(), "Stop", {}),
        (HookReply(async_=False), "PreToolUse", {}),
        (HookReply(continue_=True), "MessageDisplay", {}),
        (None, "PreToolUse", {}),
        ({}, "PreToolUse", {}),
    ],
)
def test_reply_on_the_wire(reply, event, wire):
    """Python's names become the CLI's, each in its place."""
    assert hook_reply(reply, event) == wire


@pytest.mark.parametrize(
    "event",
    [
        "PostToolUseFailure", "MessageDisplay", "PermissionRequest", "SessionStart", "SessionEnd", "StopFailure",
        "SubagentStart", "InstructionsLoaded", "Notification", "PreModelSwitch", "PostModelSwitch", "WorktreeCreate",
        "PreCompact", "PostCompact",
    ],
)  # fmt: skip
@pytest.mark.parametrize("answer", [HookReply.stop("s"), {"continue": False}])
def test_events_that_cannot_stop(answer, event):
    """There the CLI goes on as if nothing had been said: refused."""
    with pytest.raises(ValueError, match=f"{event} has no continue_.*PostToolUse"):
        hook_reply(answer, event)


def test_a_denial_beside_what_cannot_stop(caplog):
    """It is sent, for it must not be lost with the rest; that the turn goes on is in the log."""
    reply = HookReply(permission=Deny("no"), continue_=False, stop_reason="policy")
    assert hook_reply(reply, "PermissionRequest") == hook_reply(HookReply(permission=Deny("no")), "PermissionRequest")
    assert "PermissionRequest does not end the turn" in caplog.text
    assert hook_reply({"decision": "block", "reason": "no", "continue": False}, "PreCompact")["decision"] == "block"


def test_no_name_is_sent_as_python_spells_it():
    """Nothing with an underscore reaches the CLI, which would ignore it."""
    assert not [wire for wire, _ in _NAMES.values() if "_" in wire]


@pytest.mark.parametrize(
    ("event", "answer"),
    [
        (w["input"]["hook_event_name"], a)
        for w, a in HOOKS
        if a and a != {"continue": "notabool"} and "bogus" not in str(a)
    ],
)
def test_recorded_answers_pass(event, answer):
    """A dict in the CLI's form, as a host sent it to the real CLI, is sent as it is."""
    assert hook_reply(answer, event) == answer


@pytest.mark.parametrize("answer", [a for _, a in HOOKS if a and (a == {"continue": "notabool"} or "bogus" in str(a))])
def test_recorded_mistakes_do_not_pass(answer):
    """What the real CLI did not obey is refused."""
    with pytest.raises((TypeError, ValueError)):
        hook_reply(answer, "PreToolUse")


def test_python_names_in_a_dict():
    """`continue_` and `async_` are translated in dicts as well."""
    assert hook_reply({"continue_": False, "stopReason": "s"}, "Stop") == {"continue": False, "stopReason": "s"}
    assert hook_reply({"async_": True, "asyncTimeout": 500}, "Stop") == {"async": True, "asyncTimeout": 500}
    assert hook_reply({"permission_decision": "ask"}, "PreToolUse") == output("PreToolUse", permissionDecision="ask")


@pytest.mark.parametrize(
    "answer",
    [
        {"contnue": False},
        {"hookSpecificOutput": {"permisionDecision": "deny"}},
        {"permissionDecision": "deny"},
        {"hookSpecificOutput": {"continue": False}},
        {"continue": True, "continue_": False},
        {"hookSpecificOutput": {"decision": {"behavior": "allow", "updated_input": {}}}},
        {3: 4},
        True,
        False,
        "deny",
        [],
        Deny("no"),
    ],
)
def test_unknown_names_and_things_are_refused(answer):
    """A name that the CLI would pass over, or what is no output, is a TypeError."""
    with pytest.raises(TypeError):
        hook_reply(answer, "PreToolUse")


def test_async_hook_is_refused():
    """A coroutine is no output; of PreToolUse that will deny."""

    async def check(call):
        return None

    answer = check(None)
    with pytest.raises(TypeError, match="async"):
        hook_reply(answer, "PreToolUse")
    answer.close()


@pytest.mark.parametrize(
    ("name", "near"), [("continue", "continue_"), ("additionalContext", "additional_context"), ("resaon", "reason")]
)
def test_wrong_name_of_a_field(name, near):
    """HookReply says which name was meant."""
    with pytest.raises(TypeError, match=f"{name}.*{near}"):
        HookReply(**{name: "x"})


def test_fields_go_by_name():
    """A positional argument could be taken for any field."""
    with pytest.raises(TypeError, match="by name"):
        HookReply(False)


@pytest.mark.parametrize(
    "fields",
    [
        {"continue_": "no"},
        {"continue_": 0},
        {"permission_decision": "Deny"},
        {"decision": "deny"},
        {"updated_input": "ls"},
        {"updated_input": {"a": object()}},
        {"additional_context": 3},
        {"permission": True},
        {"watch_paths": ["relative"]},
        {"worktree_path": "relative"},
        {"async_": True, "async_timeout": -1},
        # what means nothing without another
        {"reason": "because"},
        {"permission_decision_reason": "because"},
        {"stop_reason": "because"},
        {"stop_reason": "because", "continue_": True},
        {"async_timeout": 3},
        # what excludes each other
        {"decision": "block", "permission_decision": "deny"},
        {"permission_decision": "deny", "updated_input": {}},
        {"async_": True, "permission_decision": "deny"},
    ],
)
def test_wrong_values_of_a_reply(fields):
    """What the CLI would not understand, or pass over, is a ValueError at construction."""
    with pytest.raises(ValueError):
        HookReply(**fields)


@pytest.mark.parametrize("make", [HookReply.deny, HookReply.block, HookReply.context, HookReply.stop])
def test_factories_need_words(make):
    """A denial, block, context or stop without words is a ValueError."""
    with pytest.raises(ValueError):
        make(" ")


@pytest.mark.parametrize(
    ("reply", "event"),
    [
        (HookReply.deny("no"), "UserPromptSubmit"),
        (HookReply.deny("no"), "PostToolUse"),
        (HookReply.block("no"), "PermissionRequest"),
        (HookReply.block("no"), "SessionStart"),
        (HookReply.block("no"), "Notification"),
        (HookReply.ask(), "PermissionRequest"),
        (HookReply(permission_decision="defer"), "PreModelSwitch"),
        (HookReply(decision="approve"), "Stop"),
        (HookReply(updated_tool_output={}), "PreToolUse"),
        (HookReply(updated_input={}), "PostToolUse"),
        (HookReply(permission=Deny("no")), "PreToolUse"),
        (HookReply(worktree_path="/w"), "PreToolUse"),
        (HookReply.context("c"), "SessionEnd"),
        ({"hookSpecificOutput": {"hookEventName": "PostToolUse"}}, "PreToolUse"),
        ({"hookSpecificOutput": "deny"}, "PreToolUse"),
        ({"hookSpecificOutput": {"decision": {"behavior": "maybe"}}}, "PermissionRequest"),
        ({"hookSpecificOutput": {"decision": {"behavior": "deny"}}}, "PermissionRequest"),
    ],
)
def test_fields_of_another_event(reply, event):
    """A field that the event does not have is a ValueError: the CLI would ignore it."""
    with pytest.raises(ValueError):
        hook_reply(reply, event)


def test_denial_of_a_prompt_says_what_to_use():
    """Who denies a prompt learns that it is blocked."""
    with pytest.raises(ValueError, match=r"HookReply\.block"):
        hook_reply(HookReply.deny("no"), "UserPromptSubmit")


def test_event_name_is_filled_in():
    """A dict without `hookEventName` gets it; a wrong one would be a failure in the CLI."""
    assert hook_reply({"hookSpecificOutput": {"permissionDecision": "deny"}}, "PreToolUse") == output(
        "PreToolUse", permissionDecision="deny"
    )


# --- failures ---------------------------------------------------------------------------------------


def test_failed_guard_denies():
    """A PreToolUse hook that raised denies, in words, without what the exception held."""
    reply = hook_failed("PreToolUse", ValueError("password=hunter2"))
    assert reply["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "ValueError" in reply["hookSpecificOutput"]["permissionDecisionReason"]
    assert "hunter2" not in str(reply)


@pytest.mark.parametrize("event", [event for event in HOOK_EVENTS if event != "PreToolUse"])
def test_other_failed_hooks_go_on(event):
    """Any other hook that raised is reported and holds nothing up."""
    assert list(hook_failed(event, ValueError("x"))) == ["systemMessage"]


# --- registering ------------------------------------------------------------------------------------


def guard(call):
    return HookReply.deny("no")


@pytest.mark.parametrize("given", [guard, [guard], [HookMatcher(None, [guard])], HookMatcher(hooks=guard), (guard,)])
def test_ways_to_register(given):
    """A function, a matcher, and lists of both."""
    assert hooks_config({"PreToolUse": given}) == (
        {"PreToolUse": [{"hookCallbackIds": ["hook_1"], "onFailure": "block"}]},
        {"hook_1": (guard, "PreToolUse")},
    )


def test_registered_matchers():
    """Matchers, timeouts in seconds and ids of their own go to the CLI; only PreToolUse blocks on failure."""
    wire, functions = hooks_config(
        {
            "PreToolUse": [HookMatcher("Bash|Write", [guard, nothing], 30), nothing],
            "Stop": HookMatcher(None, nothing, 2.5),
        }
    )
    assert wire == {
        "PreToolUse": [
            {"hookCallbackIds": ["hook_1", "hook_2"], "matcher": "Bash|Write", "timeout": 30, "onFailure": "block"},
            {"hookCallbackIds": ["hook_3"], "onFailure": "block"},
        ],
        "Stop": [{"hookCallbackIds": ["hook_4"], "timeout": 2.5}],
    }
    assert functions["hook_4"] == (nothing, "Stop")
    assert [function for function, _ in functions.values()] == [guard, nothing, nothing, nothing]


@pytest.mark.parametrize("hooks", [None, {}, {"Stop": []}])
def test_no_hooks(hooks):
    """Nothing registered is nothing sent."""
    assert hooks_config(hooks) == ({}, {})


@pytest.mark.parametrize(
    ("event", "near"),
    [
        ("pre_tool_use", "PreToolUse"),
        ("PreTooluse", "PreToolUse"),
        ("SubAgentStop", "SubagentStop"),
        ("Notify", "Notification"),
    ],
)
def test_unknown_event(event, near):
    """An event that the CLI would ignore is a ValueError with the nearest name."""
    with pytest.raises(ValueError, match=f"did you mean {near}"):
        hooks_config({event: guard})


@pytest.mark.parametrize("event", [event for event, matches in HOOK_EVENTS.items() if not matches])
def test_matcher_where_there_is_none(event):
    """On an event without matcher the CLI ignores it and calls the hook always."""
    with pytest.raises(ValueError, match="no matcher"):
        hooks_config({event: HookMatcher("Bash", guard)})


@pytest.mark.parametrize(
    "matcher",
    [
        "Bash",
        "Write|Bash",
        "Ba.*",
        "*",
        "",
        "Bash, Write",
        "Write |Bash",
        " Bash",
        "Bash(Output)?",
        "Task(Create|Update)",
        "Notebook(Edit)",
        "mcp__shop__.*",
        "(?:Ba|Wri)\\w+",
        "(?i:bash)",
        "^(?<x>Bash)$",
        "(?<!x)Bash",
    ],
)
def test_good_matchers(matcher):
    """Names, alternatives and JavaScript's regular expressions pass as they are."""
    wire, _ = hooks_config({"PreToolUse": HookMatcher(matcher, guard)})
    assert wire["PreToolUse"][0]["matcher"] == matcher


@pytest.mark.parametrize(
    "matcher",
    [
        "Ba(sh",
        "[",
        "*Bash",
        "bash",
        "Write|bash",
        "mcp__shop",
        "(?P<x>Bash)",
        "(?i)bash",
        "\\ABash",
        "Bash++",
        "(?#x)Bash",
        "Write|",
        "Write, bash",
        "Bash\n",
        "Write | Bash.*",
        "mcp__shop__.* ",
        "Bash(ls)",
        "Bash(ls *)",
        "Bash(git:*)",
        "Bash(curl * | sh)",
        "Write|^Bash(ls)$",
        "Read(//etc/x)",
    ],
)
def test_matchers_that_never_match(matcher):
    """A guard that could never fire is a ValueError before the start."""
    with pytest.raises(ValueError):
        hooks_config({"PreToolUse": HookMatcher(matcher, guard)})


def test_file_names_are_no_patterns():
    """FileChanged takes names of files, which need be no regular expressions."""
    assert hooks_config({"FileChanged": HookMatcher("*.c++", guard)})[0]["FileChanged"][0]["matcher"] == "*.c++"


async def later(call):
    return None


@pytest.mark.parametrize(
    "make",
    [
        lambda: HookMatcher("Bash"),
        lambda: HookMatcher("Bash", []),
        lambda: HookMatcher(["Bash"], guard),
        lambda: HookMatcher("Bash", ["guard"]),
        lambda: HookMatcher("Bash", later),
        lambda: HookMatcher("Bash", guard, 0),
        lambda: HookMatcher("Bash", guard, "30"),
        lambda: HookMatcher("Bash", guard, float("inf")),
        lambda: hooks_config({"PreToolUse": "guard"}),
        lambda: hooks_config({"PreToolUse": None}),
        lambda: hooks_config([guard]),
        lambda: hooks_config({"PreToolUse": later}),
    ],
)
def test_wrong_registrations(make):
    """What could not be called, or not waited for, is a ValueError before the start."""
    with pytest.raises(ValueError):
        make()


def test_partial_is_a_function():
    """Whatever can be called is a hook."""
    made = functools.partial(guard)
    assert hooks_config({"Stop": made})[1]["hook_1"] == (made, "Stop")


# --- the module -------------------------------------------------------------------------------------


def test_names_exist():
    """What the module says it has is there."""
    assert all(getattr(callbacks, name) is not None for name in callbacks.__all__)


def test_import_is_cheap():
    """Neither callbacks nor the preset bring a thread, a clock's or a file's module of their own."""
    code = (
        "import sys, json, re, dataclasses, typing; from claude_cli_client import _checks; before = set(sys.modules);"
        "import claude_cli_client.callbacks, claude_cli_client._unattended;"
        "print([n for n in set(sys.modules) - before if not n.startswith('claude_cli_client')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
