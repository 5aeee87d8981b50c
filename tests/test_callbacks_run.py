"""One-shot turns with callbacks, in-process tools, content blocks or `literal`: the turn on an open stdin."""

from __future__ import annotations

import contextlib
import contextvars
import json
import os
import queue
import re
import threading

import pytest
from waiting import DEADLINE, Background, until

from claude_cli_client import (
    Allow,
    Client,
    ConcurrencyError,
    Deny,
    HookReply,
    PermissionUpdate,
    ProcessError,
    ToolContext,
    ToolResult,
    ToolServer,
    TurnCancelled,
    TurnTimeout,
    _serial,
    _settings_file,
    tool,
    unattended,
)
from claude_cli_client.testing import (
    SESSION_ID,
    ask,
    ask_permission,
    began,
    call_hook,
    call_tool,
    ended,
    exit_with,
    expect,
    expect_initialize,
    hang,
    ignore_term,
    init,
    raw_bytes,
    read_stdin,
    ready,
    result,
    text,
    tool_result,
    tool_use,
    turn,
    wait_for,
    wait_for_answer,
    wait_for_line,
)

STREAM = ("-p", "--output-format=stream-json", "--verbose", "--input-format=stream-json")
TEXT = ("-p", "--output-format=stream-json", "--verbose")
TURN = [init(), result("1")]


def answers(fake, call=0):
    """What was answered to the CLI's questions, in order: the bodies, or the errors as text."""
    said = [m["response"] for m in fake.calls[call].messages if m["type"] == "control_response"]
    return [one["response"] if one["subtype"] == "success" else one["error"] for one in said]


def allow(request):
    return True


def no_hook(call):
    return None


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


# --- which wire, which words

CALC = ToolServer([add])
BLOCKS = [{"type": "text", "text": "hello"}]
MODE = "--permission-mode=acceptEdits"
ASKED = "--permission-prompt-tool=stdio"
WORDS = {
    "text": ("hello", {}, (*TEXT, MODE)),
    "an empty dict of hooks": ("hello", {"hooks": {}}, (*TEXT, MODE)),
    "literal off": ("hello", {"literal": False}, (*TEXT, MODE)),
    "external servers": (
        "hello",
        {"mcp_servers": {"x": {"command": "serve"}}},
        (*TEXT, MODE, '--mcp-config={"mcpServers":{"x":{"command":"serve"}}}'),
    ),
    "can_use_tool": ("hello", {"can_use_tool": allow}, (*STREAM, ASKED, "--permission-mode=default")),
    "can_use_tool and a mode": (
        "hello",
        {"can_use_tool": allow, "permission_mode": "plan"},
        (*STREAM, ASKED, "--permission-mode=plan"),
    ),
    "tools": (
        "hello",
        {"mcp_servers": {"calc": CALC}},
        (*STREAM, MODE, '--mcp-config={"mcpServers":{"calc":{"type":"sdk","name":"calc"}}}'),
    ),
    "content blocks": (BLOCKS, {}, (*STREAM, MODE)),
    "literal": ("hello", {"literal": True}, (*STREAM, MODE)),
}


@pytest.mark.parametrize("name", WORDS)
def test_the_words_of_the_command(play, name):
    """Streaming where it is needed, and nowhere else; the permission channel with a callback only."""
    prompt, options, words = WORDS[name]
    fake = play(wait_for_line(b"hello"), init(), result("done"), read_stdin())
    assert Client(cli_path=fake.path).ask(prompt, **options).result == "done"
    assert sorted(fake.calls[0].argv) == sorted(words)
    assert fake.calls[0].argv[:3] == TEXT


def test_hooks_stream_as_well(play):
    """And need no permission channel."""
    fake = play(*expect_initialize(), turn(), read_stdin())
    Client(cli_path=fake.path).ask("hello", hooks={"Stop": no_hook})
    assert fake.calls[0].argv == (*STREAM, MODE)


def test_the_prompt_is_a_line(play):
    """With a uuid of its own, and marked where it is literal."""
    fake = play(began(), ended(), read_stdin())
    Client(cli_path=fake.path).ask("/clear\n@file \ud800", literal=True)
    (line,) = fake.calls[0].messages
    assert line.pop("uuid")
    assert line == {
        "type": "user", "message": {"role": "user", "content": "/clear\n@file �"}, "parent_tool_use_id": None,
        "session_id": "", "client_composed": True,
    }  # fmt: skip


def test_content_blocks_go_as_they_are(play):
    """Images too."""
    blocks = [*BLOCKS, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]
    fake = play(began(), ended(), read_stdin())
    Client(cli_path=fake.path).ask(blocks)
    (line,) = fake.calls[0].messages
    assert line["message"]["content"] == blocks
    assert "client_composed" not in line


def test_hooks_are_declared_before_the_prompt(play):
    """`initialize` first; the prompt only when the CLI has agreed."""
    fake = play(*expect_initialize(), ready("agreed"), turn(), read_stdin())
    Client(cli_path=fake.path).ask("q", hooks={"PreToolUse": no_hook})
    first, second = fake.calls[0].messages
    assert first["request"]["hooks"] == {"PreToolUse": [{"hookCallbackIds": ["hook_1"], "onFailure": "block"}]}
    assert second["type"] == "user"


def test_hooks_that_are_refused(play):
    """No prompt is said: a turn whose checks are silently off must not run. ProcessError with the CLI's words."""
    fake = play(*expect("initialize", error="hooks: Invalid input"), read_stdin())
    with pytest.raises(ProcessError, match="refused to begin: hooks: Invalid input"):
        Client(cli_path=fake.path).ask("q", hooks={"Stop": no_hook})
    assert [m["type"] for m in fake.calls[0].messages] == ["control_request"]


# --- stdin


def test_stdin_is_open_until_the_result(play):
    """As long as the turn is on the CLI may ask, also late; then it is closed at once."""
    fake = play(
        began(), ready("on"), wait_for("go"), ask_permission("Bash"), ended(), read_stdin(), ready("closed"),
        exit_with(0),
    )  # fmt: skip
    run = Client(cli_path=fake.path).run("q", can_use_tool=allow)
    fake.wait("on")
    fake.release("go")
    assert run.result().result == "done"
    fake.wait("closed")
    assert run.exit_code == 0


def test_stdin_is_open_until_the_tasks_are_over(play):
    """With `background="wait"` the turn that a task's end begins is served too: its hooks and tools work."""
    task = {"type": "system", "subtype": "task_started", "task_id": "t1", "task_type": "local_agent"}
    done = {"type": "system", "subtype": "task_notification", "task_id": "t1", "status": "completed"}
    fake = play(
        began(), task, ended("first"), ready("waiting"), wait_for("go"), done, init(), ask_permission("Bash"),
        result("of the task", origin={"kind": "task-notification"}, index=1), read_stdin(), ready("closed"),
    )  # fmt: skip
    run = Client(cli_path=fake.path).run("q", can_use_tool=allow, background="wait")
    fake.wait("waiting")
    fake.release("go")
    events = list(run)
    assert events[-1].result == "first"
    assert answers(fake)[0]["behavior"] == "allow"
    fake.wait("closed")


def test_stdin_is_open_until_the_comment(play):
    """The same where the task ends before the main answer: the CLI has yet to comment on it."""
    task = {"type": "system", "subtype": "task_started", "task_id": "t1", "task_type": "local_bash"}
    done = {"type": "system", "subtype": "task_notification", "task_id": "t1", "status": "completed"}
    fake = play(
        began(), task, done, ended("first"), ready("waiting"), wait_for("go"), init(), ask_permission("Bash"),
        result("of the task", origin={"kind": "task-notification"}, index=1), read_stdin(), ready("closed"),
    )  # fmt: skip
    run = Client(cli_path=fake.path).run("q", can_use_tool=allow, background="wait")
    fake.wait("waiting")
    until(lambda: run._channel.reducer.is_over)
    assert not run._channel.launch.duplex.input_closed
    fake.release("go")
    assert run.result().result == "first"
    assert answers(fake)[0]["behavior"] == "allow"
    fake.wait("closed")


def test_no_timer_closes_stdin(play, clock):
    """A callback may wait for a person for days, if the turn's own limit allows it."""
    answer = threading.Event()
    fake = play(began(), ask_permission("Bash", id="p", answered=False), ready("asked"), wait_for_answer("p"), ended(),
                read_stdin())  # fmt: skip
    run = Client(cli_path=fake.path).run("q", can_use_tool=lambda request: answer.wait(DEADLINE), timeout=None)
    fake.wait("asked")
    until(lambda: run._channel.launch.duplex.is_answering)
    for _ in range(3):
        clock.move(100_000, run)
    assert not run.done
    answer.set()
    assert run.result().result == "done"


def test_after_an_answer_the_idle_limit_begins_anew(play, clock):
    """The silence of the CLI is counted from the callback's answer on, and not from its question."""
    answer = threading.Event()
    fake = play(began(), ask_permission("Bash"), ready("answered"), wait_for("go"), text("a"), ended(), read_stdin())
    run = Client(cli_path=fake.path).run("q", can_use_tool=lambda request: answer.wait(DEADLINE), timeout=None)
    duplex = run._channel.launch.duplex
    until(lambda: duplex.is_answering)
    clock.move(850, run)
    answer.set()
    fake.wait("answered")
    clock.move(100, run)  # 950 s after the last line, and 100 after the answer
    fake.release("go")
    assert run.result().result == "done"


def test_the_idle_limit_behind_an_answer(play, clock, graces):
    """It is not switched off: so long after the answer it ends the run."""
    graces(term=0.1)
    fake = play(began(), ask_permission("Bash"), ready("answered"), hang())
    run = Client(cli_path=fake.path).run("q", can_use_tool=allow, timeout=None)
    fake.wait("answered")
    clock.move(1000, run)
    with pytest.raises(TurnTimeout) as caught:
        run.result(DEADLINE)
    assert caught.value.kind == "idle"


def test_a_cli_that_stays_after_its_result(play, graces):
    """Closing stdin was not enough: the ladder, and the answer stays."""
    graces(exit=0.1, term=0.1)
    fake = play(began(), ended(), hang())
    assert Client(cli_path=fake.path).ask("q", can_use_tool=allow).result == "done"


# --- permissions

REPLIES = {
    "True": (True, {"behavior": "allow", "updatedInput": {"command": "ls"}}),
    "Allow": (Allow(), {"behavior": "allow", "updatedInput": {"command": "ls"}}),
    "other input": (Allow({"command": "pwd"}), {"behavior": "allow", "updatedInput": {"command": "pwd"}}),
    "Deny": (Deny("not now"), {"behavior": "deny", "message": "not now"}),
    "interrupt": (Deny("stop", interrupt=True), {"behavior": "deny", "message": "stop", "interrupt": True}),
}


@pytest.mark.parametrize("name", REPLIES)
def test_what_a_permission_callback_says(play, name):
    """It goes to the CLI as it understands it."""
    said, expected = REPLIES[name]
    seen = []

    def can_use_tool(request):
        seen.append(request)
        return said

    fake = play(began(), ask_permission("Bash", {"command": "ls"}), ended(), read_stdin())
    Client(cli_path=fake.path).ask("q", can_use_tool=can_use_tool)
    (answer,) = answers(fake)
    assert answer.items() >= expected.items()
    assert (seen[0].tool_name, seen[0].input, seen[0].tool_use_id) == ("Bash", {"command": "ls"}, "toolu_1")


@pytest.mark.parametrize("said", [None, "yes", 1, Exception("secret")])
def test_a_permission_callback_that_fails_denies(play, said):
    """What it raises, and what is no answer, denies; the turn goes on."""

    def can_use_tool(request):
        if isinstance(said, Exception):
            raise said
        return said

    fake = play(began(), ask_permission("Bash"), ended(), read_stdin())
    assert Client(cli_path=fake.path).ask("q", can_use_tool=can_use_tool).result == "done"
    (answer,) = answers(fake)
    assert answer["behavior"] == "deny"
    assert answer["message"]


def test_an_answer_that_is_no_json_denies(play, caplog):
    """NaN is no JSON and would end the CLI, no answer would hang it."""
    fake = play(began(), ask_permission("Bash"), ended(), read_stdin())
    Client(cli_path=fake.path).ask("q", can_use_tool=lambda request: Allow({"x": float("nan")}))
    (answer,) = answers(fake)
    assert answer if isinstance(answer, str) else answer["behavior"] == "deny"
    caplog.clear()


@pytest.mark.parametrize("kind", ["permission", "hook", "tool"])
def test_a_question_that_is_too_long_is_refused(play, kind):
    """The CLI waits for an answer: the call is denied, the turn goes on, and nobody's callback sees half a question."""
    asked = []
    question = {
        "permission": ask_permission("Write", {"content": "x" * 5000}),
        "hook": call_hook("hook_1", "PreToolUse", fields={"tool_name": "Write", "tool_input": {"content": "x" * 5000}}),
        "tool": call_tool("x", "add", {"a": "1" * 5000}),
    }[kind]
    given = {
        "permission": {"can_use_tool": asked.append},
        "hook": {"hooks": {"PreToolUse": asked.append}},
        "tool": {"mcp_servers": {"x": ToolServer([add])}},
    }[kind]
    fake = play(expect_initialize() if kind == "hook" else (), began(), question, ended(), read_stdin())
    events = list(Client(cli_path=fake.path, max_line_bytes=4000).run("q", **given))
    assert events[-1].result == "done"
    assert not asked
    answer = answers(fake)[-1]
    if kind == "hook":
        assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    else:
        assert "max_line_bytes" in answer


def test_two_questions_at_once(play):
    """Each waits for the other one: both callbacks run, each answer goes to its own question."""
    both = threading.Barrier(2)

    def can_use_tool(request):
        both.wait(DEADLINE)
        return Allow({"was": request.input["n"]})

    fake = play(
        began(), ask_permission("Read", {"n": 1}, id="p1", answered=False),
        ask_permission("Read", {"n": 2}, id="p2", answered=False), wait_for_line(b"control_response"),
        wait_for_line(b"control_response"), ended(), read_stdin(),
    )  # fmt: skip
    Client(cli_path=fake.path).ask("q", can_use_tool=can_use_tool)
    said = {
        m["response"]["request_id"]: m["response"]["response"]["updatedInput"]["was"]
        for m in fake.calls[0].messages
        if m["type"] == "control_response"
    }
    assert said == {"p1": 1, "p2": 2}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["can_use_tool", "hook", "tool"])
def test_what_must_not_be_swallowed_rises_in_the_consumer(play, error, where):
    """The CLI gets its answer, a denial, and the exception comes out of the loop; the run is ended."""

    def fail(*_):
        raise error

    @tool
    def failing() -> str:
        """Fails."""
        fail()

    options = {
        "can_use_tool": {"can_use_tool": fail},
        "hook": {"hooks": {"PreToolUse": fail}},
        "tool": {"mcp_servers": {"x": ToolServer([failing])}},
    }[where]
    question = {
        "can_use_tool": ask_permission("Bash", id="p"),
        "hook": call_hook("hook_1", "PreToolUse", id="p"),
        "tool": call_tool("x", "failing", id="p"),
    }[where]
    # Its end begins at once, so this one waits for its answer first.
    begin = expect_initialize() if where == "hook" else ()
    fake = play(ignore_term(), *begin, began(), question, ready("answered"), exit_with(0))
    run = Client(cli_path=fake.path).run("q", **options)
    with pytest.raises(type(error)) as caught:
        list(run)
    assert caught.value is error
    fake.wait("answered")
    run.close()
    assert run.done
    assert len(answers(fake)) == 1


def test_what_rises_behind_the_end_is_logged(play, caplog):
    """Nobody consumes the run any more."""
    entered, gate = threading.Event(), threading.Event()

    def can_use_tool(request):
        entered.set()
        gate.wait(DEADLINE)
        raise SystemExit(3)

    fake = play(began(), ask_permission("Bash", answered=False), result("done"), exit_with(0))
    run = Client(cli_path=fake.path).run("q", can_use_tool=can_use_tool)
    assert entered.wait(DEADLINE)
    assert run.result().result == "done"
    gate.set()
    until(lambda: "a callback raised SystemExit and nobody is there to hear it" in caplog.messages)
    caplog.clear()  # it is no fault of the library


def test_ask_ends_the_run_of_what_rises(play):
    """`ask` raises it too, and leaves nothing."""

    def fail(request):
        raise SystemExit(3)

    fake = play(began(), ask_permission("Bash"), hang())
    with pytest.raises(SystemExit):
        Client(cli_path=fake.path).ask("q", can_use_tool=fail)
    assert not fake.alive()


def test_cancel_frees_the_callback(play, graces):
    """A callback that waits sees that its answer is not wanted any more, first of all."""
    graces(term=0.1)
    seen: queue.SimpleQueue = queue.SimpleQueue()

    def can_use_tool(request):
        seen.put("asked")
        seen.put(request.wait_cancelled(DEADLINE))
        return True

    fake = play(began(), ask_permission("Bash"), hang())
    run = Client(cli_path=fake.path).run("q", can_use_tool=can_use_tool)
    assert seen.get(timeout=DEADLINE) == "asked"
    run.cancel()
    assert seen.get(timeout=DEADLINE) is True
    with pytest.raises(TurnCancelled):
        run.result()


def test_the_total_limit_holds_over_a_callback(play, clock):
    """A person who never answers cannot hold a run for ever."""
    fake = play(began(), ask_permission("Bash"), hang())
    client = Client(cli_path=fake.path, timeout=100)
    run = client.run("q", can_use_tool=lambda request: request.wait_cancelled(DEADLINE))
    until(lambda: run._channel.launch.duplex.is_answering)
    clock.move(200, run)
    with pytest.raises(TurnTimeout) as caught:
        run.result()
    assert caught.value.kind == "total"


def test_the_death_of_the_cli_frees_the_callback(play):
    """It sees `cancelled`; the run ends without it."""
    seen: queue.SimpleQueue = queue.SimpleQueue()

    def can_use_tool(request):
        seen.put(request.wait_cancelled(DEADLINE))
        return True

    fake = play(began(), ask_permission("Bash", answered=False), exit_with(3))
    with pytest.raises(ProcessError):
        Client(cli_path=fake.path).ask("q", can_use_tool=can_use_tool)
    assert seen.get(timeout=DEADLINE) is True


def test_without_a_callback_a_question_is_refused(play):
    """A CLI that asks although nobody said so gets an error, not silence."""
    fake = play(began(), ask_permission("Bash"), ended(), read_stdin())
    Client(cli_path=fake.path).ask("q", literal=True)
    assert "unsupported" in answers(fake)[0]


def _raises(_):
    raise KeyError("secret")


def _asks_wrongly(_):
    Deny("")


def _answers_wrongly(_):
    return "yes"


def _needs_more(*given):
    return (lambda a, b: True)(*given)


FAULTS = {  # the callback, what is said of it, and the line of the callback that is named
    "an exception": (_raises, "KeyError", 1),
    "an exception of ours": (_asks_wrongly, "ValueError", 1),
    "no answer": (_answers_wrongly, "TypeError: {} must return", 0),
    "a call that fails": (_needs_more, "TypeError", 1),
    "a class that is called so": (int, "TypeError: ", None),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("where", ["can_use_tool", "hook"])
def test_the_log_says_what_failed_and_where(play, caplog, name, where):
    """The class and the line, but no word that may hold what the model said."""
    callback, says, line = FAULTS[name]
    ours, question, options = {
        "can_use_tool": ("can_use_tool", ask_permission("Bash"), {"can_use_tool": callback}),
        "hook": ("a Stop hook", call_hook("hook_1", "Stop"), {"hooks": {"Stop": callback}}),
    }[where]
    fake = play(init(), question, result("done"))
    assert Client(cli_path=fake.path).ask("q", **options).result == "done"
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"{ours} failed")
    assert says.format(ours) in warning
    assert "secret" not in warning
    if line is not None:
        assert warning.endswith(f"at {__file__}:{callback.__code__.co_firstlineno + line}")


ON = {"env": {"CLAUDE_CODE_SIMPLE": "1"}}
OFF = {"env": {"CLAUDE_CODE_SIMPLE": ""}}


@pytest.mark.parametrize(
    ("options", "users", "remedy"),
    [
        (ON, {}, "CLAUDE_CODE_SIMPLE in the environment.*give env="),
        ({"env": {"CLAUDE_CODE_SIMPLE": "Yes"}}, {}, "in the environment"),
        ({"settings": ON}, {}, "in settings.*take it out"),
        ({"settings": json.dumps(ON)}, OFF, "in settings"),
        ({}, ON, "settings.json the CLI runs no hooks: leave them out, or give settings="),
        ({"setting_sources": ["user"]}, ON, "settings.json"),
        ({"env": {"CLAUDE_CODE_SIMPLE": "0"}}, {"env": {"CLAUDE_CODE_SIMPLE": 1.0}}, "settings.json"),
        ({}, '{"x": "\xff", "env": {"CLAUDE_CODE_SIMPLE": "1"}}', "settings.json"),
    ],
)
def test_what_makes_the_cli_run_no_hooks(play, tmp_path, options, users, remedy):
    """A guard that is silently off: refused before anything starts, in runs and sessions."""
    (tmp_path / "settings.json").write_text(users if isinstance(users, str) else json.dumps(users), "latin-1")
    fake = play(*TURN, read_stdin())
    client = Client(cli_path=fake.path, config_dir=tmp_path, **options)
    for call in (client.ask, lambda q, **options: client.session(**options)):
        with pytest.raises(ValueError, match=remedy):
            call("q", hooks={"Stop": no_hook})
    assert fake.calls == []
    client.ask("q")


@pytest.mark.parametrize(
    ("options", "users"),
    [
        ({}, "no json"),
        ({"env": {"CLAUDE_CODE_SIMPLE": "0"}}, "{}"),
        ({"env": {"CLAUDE_CODE_SIMPLE": None}}, "[1]"),
        ({"settings": OFF, **ON}, json.dumps(ON)),
        ({"isolated": True}, json.dumps(ON)),
        ({"restricted": True}, json.dumps(ON)),
        ({"setting_sources": []}, json.dumps(ON)),
        ({}, json.dumps({"env": {"CLAUDE_CODE_SIMPLE": 1.5}})),
        ({}, json.dumps({**ON, "model": 5})),
    ],
)
def test_what_does_not_keep_hooks_from_running(play, tmp_path, options, users):
    """Another word, settings that the CLI does not read, or those that switch it off again."""
    (tmp_path / "settings.json").write_text(users)
    Client(cli_path=play(*TURN, read_stdin()).path, config_dir=tmp_path, **options).ask("q", hooks={"Stop": no_hook})


@pytest.mark.parametrize(
    ("managed", "more", "mine", "refused"),
    [(ON, {}, OFF, True), (OFF, {}, ON, False), ({}, {}, ON, True), (OFF, ON, OFF, True), (ON, OFF, ON, False)],
)
def test_what_the_machine_says_of_hooks(play, tmp_path, monkeypatch, managed, more, mine, refused):
    """Those who manage it are above the caller, and what they have put beside their file is above it (real CLI)."""
    (tmp_path / "managed-settings.json").write_text(json.dumps(managed))
    (tmp_path / "managed-settings.d").mkdir()
    (tmp_path / "managed-settings.d" / "more.json").write_text(json.dumps(more))
    monkeypatch.setattr(_settings_file, "managed_folder", lambda: str(tmp_path))
    client = Client(cli_path=play(*TURN, read_stdin()).path, settings=mine)
    with pytest.raises(ValueError, match="runs no hooks") if refused else contextlib.nullcontext():
        client.ask("q", hooks={"Stop": no_hook})


@pytest.mark.parametrize("options", [{}, {"setting_sources": []}, {"restricted": True}, {"isolated": True}])
def test_what_the_global_configuration_says_of_hooks(play, tmp_path, options):
    """`.claude.json` counts, whatever settings are read; what the user's own settings say is above it."""
    (tmp_path / ".claude.json").write_text(json.dumps(ON))
    client = Client(cli_path=play(*TURN, read_stdin()).path, config_dir=tmp_path)
    with pytest.raises(ValueError, match=r"CLAUDE_CODE_SIMPLE in .*\.claude\.json.*settings="):
        client.ask("q", hooks={"Stop": no_hook}, **options)
    client.ask("q", hooks={"Stop": no_hook}, settings=OFF, **options)


@pytest.mark.timeout(20)
def test_settings_of_the_user_that_are_a_pipe(play, tmp_path):
    """Nobody may ever write into it: passed over."""
    os.mkfifo(tmp_path / "settings.json")
    Client(cli_path=play(*TURN, read_stdin()).path, config_dir=tmp_path).ask("q", hooks={"Stop": no_hook})


def test_the_log_says_what_is_wrong_with_an_answer(play, caplog):
    """An answer that does not fit its event is a fault of the hook's author, who finds the words in the log."""
    fake = play(init(), call_hook("hook_1", "Stop"), result("done"))
    Client(cli_path=fake.path).ask("q", hooks={"Stop": lambda call: HookReply.deny("no")})
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "ValueError: Stop has no permission_decision" in warning


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda _: Deny(), "ValueError: Deny needs a message: it is what the model reads"),
        (lambda _: Deny(""), "ValueError: Deny needs a message"),
        (lambda _: Deny("no", interrupt="secret"), "ValueError: interrupt must be True or False, at "),
        (lambda _: Deny(mesage="no"), "got an unexpected keyword argument 'mesage'"),
        (lambda _: Deny("secret", True, 1), "positional arguments but 4 were given"),
        (lambda _: Allow(True), "ValueError: updated_input must be a dict, not a bool, at "),
        (lambda _: Allow({"secret": {1: 2}}), "ValueError: the keys in updated_input must be texts, at "),
        (lambda _: Allow({"secret": {1}}), "ValueError: updated_input holds a set, which is no JSON, at "),
        (lambda _: Allow(input={}), "got an unexpected keyword argument 'input'"),
        (lambda _: PermissionUpdate.set_mode("secret"), "mode of a permission update must be one of default, acceptE"),
        (lambda _: PermissionUpdate.add_rules("Bash(secret"), "not a rule, its parentheses do not match, at "),
        (lambda _: HookReply(permission_decision="secret"), "permission_decision must be one of allow, deny, ask, def"),
        (lambda _: HookReply.deny(), "missing 1 required positional argument: 'reason'"),
        (lambda _: HookReply.deny(" "), "ValueError: the reason of a denial must be a text that says something, at "),
        (lambda _: HookReply(permision="x"), "HookReply has no field 'permision'; did you mean permission?"),
        (lambda _: {"decision": "secret"}, "decision must be one of block, approve, at "),
        (lambda _: {"no secret 1": True}, "TypeError: a hook's output has no field of that name, at "),
        (lambda _: {"continue": "secret"}, "ValueError: continue_ must be True or False, at "),
    ],
)
def test_the_log_has_the_words_of_a_mistake(play, caplog, mistake, words):
    """Also of one that ended the callback: it is our sentence, of names and types. What was wrong is left out."""
    fake = play(init(), call_hook("hook_1", "Stop"), result("done"))
    Client(cli_path=fake.path).ask("q", hooks={"Stop": mistake})
    (warning,) = [record.getMessage() for record in caplog.records]
    assert words in warning
    assert "secret" not in warning
    assert warning.endswith(f", at {__file__}:{mistake.__code__.co_firstlineno}")


def _says_it_himself(_):
    raise TypeError("Allow.__init__() got an unexpected keyword argument 'the secret'")


def _wraps_ours(_):
    try:
        Deny("")
    except ValueError as error:
        raise ValueError(f"secret: {error}") from error


def _calls_his_own(_):
    (lambda: None)(secret=1)


@pytest.mark.parametrize(
    "mistake",
    [_says_it_himself, _wraps_ours, _calls_his_own, lambda _: Allow(**{"a secret": 1})],
)
def test_the_log_has_no_words_of_others(play, caplog, mistake):
    """Of an error that is not ours it has type and place; nor a name that looks like none of a field."""
    fake = play(init(), ask_permission("Bash"), result("done"))
    Client(cli_path=fake.path).ask("q", can_use_tool=mistake)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert re.search(r": (Type|Value)Error at \S+:\d+$", warning)


def test_the_log_has_the_words_of_a_mistake_in_a_tool(play, caplog):
    """The model reads them, and so does the author."""

    @tool
    def chart():
        """Draw."""
        return ToolResult(5)

    fake = play(init(), call_tool("shop", "chart"), result("done"))
    Client(cli_path=fake.path).ask("q", mcp_servers={"shop": ToolServer([chart])})
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "TypeError: the text of a ToolResult must be a str, not a int, at " in warning


@pytest.mark.parametrize("given", [{"continue": "secret"}, {"decision": "secret"}, {"hookSpecificOutput": ["secret"]}])
def test_the_log_quotes_no_answer(play, caplog, given):
    """What a hook returns may be what the model said."""
    fake = play(init(), call_hook("hook_1", "Stop"), result("done"))
    Client(cli_path=fake.path).ask("q", hooks={"Stop": lambda call: given})
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "a Stop hook failed" in warning
    assert "secret" not in warning


# --- hooks


def test_a_hook_denies(play):
    """Its reply goes out in the CLI's spelling."""
    calls = []

    def check(call):
        calls.append(call)
        return HookReply.deny("no shells")

    fields = {"tool_name": "Bash", "tool_input": {"command": "ls"}}
    fake = play(*expect_initialize(), began(), call_hook("hook_1", "PreToolUse", fields=fields), ended(), read_stdin())
    Client(cli_path=fake.path).ask("q", hooks={"PreToolUse": check})
    (answer,) = answers(fake)
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert (calls[0].event, calls[0].tool_name, calls[0].tool_input) == ("PreToolUse", "Bash", {"command": "ls"})


@pytest.mark.parametrize(("event", "denies"), [("PreToolUse", True), ("PostToolUse", False), ("Stop", False)])
def test_a_hook_that_fails(play, event, denies):
    """Before a tool it denies; elsewhere the turn goes on."""

    def fail(call):
        raise ValueError("x")

    fake = play(*expect_initialize(), began(), call_hook("hook_1", event), ended(), read_stdin())
    assert Client(cli_path=fake.path).ask("q", hooks={event: fail}).result == "done"
    (answer,) = answers(fake)
    assert ("deny" in str(answer) or "block" in str(answer)) is denies


def test_a_hook_that_was_never_declared(play):
    """An id that nobody knows fails closed."""
    unknown = ask("hook_callback", callback_id="hook_77", input={"hook_event_name": "PreToolUse"})
    fake = play(*expect_initialize(), began(), unknown, ended(), read_stdin())
    Client(cli_path=fake.path).ask("q", hooks={"Stop": no_hook})
    assert "deny" in str(answers(fake)[0])


# --- in-process tools


def test_a_tool_is_called(play):
    """Its result goes back under the JSON-RPC id."""
    fake = play(began(), call_tool("calc", "add", {"a": 1, "b": 2}, number=5), ended(), read_stdin())
    Client(cli_path=fake.path).ask("q", mcp_servers={"calc": CALC})
    (answer,) = answers(fake)
    assert answer["mcp_response"]["id"] == 5
    assert answer["mcp_response"]["result"]["content"][0]["text"] == "3"


def test_the_handshake_is_answered(play):
    """Notifications too: one that is not answered hangs the CLI."""
    steps = [
        ask("mcp_message", server_name="calc", message={"jsonrpc": "2.0", **message})
        for message in (
            {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
            {"method": "notifications/initialized"},
            {"id": 1, "method": "tools/list"},
        )
    ]
    fake = play(began(), steps, ended(), read_stdin())
    Client(cli_path=fake.path).ask("q", mcp_servers={"calc": CALC})
    hello, ack, tools = (answer["mcp_response"] for answer in answers(fake))
    assert hello["result"]["serverInfo"]["name"] == "calc"
    assert ack == {"jsonrpc": "2.0", "result": {}}
    assert [one["name"] for one in tools["result"]["tools"]] == ["add"]


def test_a_server_that_does_not_exist(play):
    """An error in its own protocol."""
    call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "add", "arguments": {}}}
    fake = play(began(), ask("mcp_message", server_name="other", message=call), ended(), read_stdin())
    Client(cli_path=fake.path).ask("q", mcp_servers={"calc": CALC})
    assert answers(fake)[0]["mcp_response"]["error"]["code"] == -32601


@pytest.mark.parametrize("begin", [Client.run, lambda client, q, **options: client.session(**options).run(q)])
def test_a_tool_knows_its_session(play, begin):
    """`ToolContext.session_id` is the CLI's, also where the line that names it comes in one block with the call."""
    seen = []

    @tool
    def who(context: ToolContext) -> str:
        """Says who."""
        seen.append(context.session_id)
        return "x"

    *taken, says_id = began()
    (call,) = call_tool("x", "who", id="q1", answered=False)
    block = b"".join(json.dumps(step.line).encode() + b"\n" for step in (says_id, call))
    fake = play(*taken, raw_bytes(block), wait_for_answer("q1"), ended(), read_stdin())
    with Client(cli_path=fake.path) as client:
        begin(client, "q", mcp_servers={"x": ToolServer([who])}).result()
    assert seen == [SESSION_ID]


def cancelling(number):
    """The CLI cancels a call."""
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
    return ask("mcp_message", server_name="x", message=message)


def test_a_call_is_cancelled(play):
    """By a notification of its own; the tool can see it."""
    seen = []

    @tool
    def slow(context: ToolContext) -> str:
        """Waits."""
        fake.release("begun")  # each has a thread of its own: a cancellation that is faster keeps it from running
        seen.append(context.wait_cancelled(DEADLINE))
        return "late"

    fake = play(
        began(), call_tool("x", "slow", number=9, id="c", answered=False), wait_for("begun"), cancelling(9), ended(),
        read_stdin(),
    )  # fmt: skip
    Client(cli_path=fake.path).ask("q", mcp_servers={"x": ToolServer([slow])})
    until(lambda: seen)
    assert seen == [True]


def test_a_cancellation_that_is_faster_than_its_call():
    """Each has a thread of its own: the call that begins later finds itself cancelled."""
    from claude_cli_client._answers import Answers

    ran = []

    @tool
    def act() -> str:
        """Acts."""
        ran.append(1)
        return "done"

    handle = Answers(servers={"x": ToolServer([act])}).handlers["mcp_message"]
    notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
    call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "act", "arguments": {}}}
    handle({"server_name": "x", "message": notice}, threading.Event())
    answer = handle({"server_name": "x", "message": call}, threading.Event())
    assert answer["mcp_response"]["result"]["isError"] is True
    assert not ran
    answer = handle({"server_name": "x", "message": {**call, "id": 10}}, threading.Event())
    assert (answer["mcp_response"]["result"].get("isError"), ran) == (None, [1])


@pytest.mark.parametrize("parallel", [True, False])
def test_a_call_that_was_cancelled_before_it_began(parallel):
    """It does not run, whether it would have waited for others or not."""
    from claude_cli_client._answers import Answers

    ran, cancelled = [], threading.Event()

    @tool(parallel=parallel)
    def act() -> str:
        """Acts."""
        ran.append(1)
        return "done"

    handle = Answers(servers={"x": ToolServer([act])}).handlers["mcp_message"]
    call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "act", "arguments": {}}}
    cancelled.set()
    answer = handle({"server_name": "x", "message": call}, cancelled)
    assert (answer["mcp_response"]["result"]["isError"], ran) == (True, [])


def test_after_a_new_handshake_ids_begin_anew():
    """A cancellation that came too late says nothing of a later call with the same id."""
    from claude_cli_client._answers import Answers

    handle = Answers(servers={"calc": CALC}).handlers["mcp_message"]
    notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 1}}}
    for message in (notice, hello):
        handle({"server_name": "calc", "message": message}, threading.Event())
    answer = handle({"server_name": "calc", "message": call}, threading.Event())
    assert answer["mcp_response"]["result"]["content"][0]["text"] == "2"


def test_a_tool_that_hangs_does_not_hold_up_later_turns(play, monkeypatch, caplog):
    """Its turn is over and nobody wants its answer: after a while the other calls of the server go on without it."""
    monkeypatch.setattr(_serial, "PATIENCE", 0.1)
    hangs, release = threading.Event(), threading.Event()

    @tool
    def stuck() -> str:
        """Hangs."""
        hangs.set()
        release.wait(DEADLINE)
        return "late"

    @tool
    def fine() -> str:
        """Works."""
        return "fine"

    def calls(name):
        return [began(), call_tool("x", name, {}), ended(), read_stdin()]

    fake = play(scripts=[[began(), call_tool("x", "stuck", {}), read_stdin(), hang()], calls("fine"), calls("fine")])
    client, server = Client(cli_path=fake.path), ToolServer([stuck, fine], name="shop")
    run = client.run("q", mcp_servers={"x": server})
    assert hangs.wait(DEADLINE)
    waiting = Background(client.ask, "q", mcp_servers={"x": server})
    run.close()
    assert waiting.result().result == "done"
    assert client.ask("q", mcp_servers={"x": server}).result == "done"
    assert "a tool of shop goes on" in caplog.text
    release.set()


def test_a_tool_that_runs_a_turn_with_its_own_server(play):
    """What the inner turn calls would wait for the call that waits for that turn: it takes no turn behind it."""

    @tool
    def other() -> str:
        """Is called by the inner turn."""
        return "from within"

    @tool
    def delegate() -> str:
        """Runs a turn."""
        return client.ask("inner", mcp_servers={"x": server}).result

    def calls(name):
        return [began(), call_tool("x", name, {}), ended(), read_stdin()]

    fake = play(scripts=[calls("delegate"), calls("other")])
    client, server = Client(cli_path=fake.path), ToolServer([delegate, other])
    assert client.ask("outer", mcp_servers={"x": server}).result == "done"
    assert "from within" in json.dumps(fake.calls[1].messages)


class Patient(threading.Event):
    """A call that nobody cancels; how often it has looked."""

    looks = 0

    def is_set(self):
        self.looks += 1
        return False


class AtWork:
    """A call of `server`, made in `context`, that is at work until `end`."""

    def __init__(self, server, context):
        self.wanted, self.began, self.end = Patient(), threading.Event(), threading.Event()
        self.context = contextvars.copy_context()
        self._thread = Background(context.copy().run, self._work, server)

    def _work(self, server):
        with _serial.one_at_a_time(server, self.wanted):
            self.context = contextvars.copy_context()
            self.began.set()
            assert self.end.wait(DEADLINE)

    def waits(self):
        until(lambda: self.wanted.looks > 3)
        return not self.began.is_set()

    def ends(self):
        assert self.began.wait(DEADLINE)
        self.end.set()
        self._thread.result()


def test_calls_within_a_call_take_turns(monkeypatch):
    """Among themselves, and nobody else waits for them."""
    monkeypatch.setattr(_serial, "_LOOK", 0.001)
    outer = AtWork(CALC, contextvars.copy_context())
    assert outer.began.wait(DEADLINE)
    first = AtWork(CALC, outer.context)
    assert first.began.wait(DEADLINE)
    second, stranger = AtWork(CALC, outer.context), AtWork(CALC, contextvars.copy_context())
    deeper = AtWork(CALC, first.context)
    deeper.ends()
    assert second.waits()
    first.ends()
    assert stranger.waits()
    second.ends()
    outer.ends()
    stranger.ends()


def test_what_outlives_a_call_is_within_it_no_longer(monkeypatch):
    """A run that the tool began and left behind waits as all others do."""
    monkeypatch.setattr(_serial, "_LOOK", 0.001)
    outer = AtWork(CALC, contextvars.copy_context())
    outer.ends()
    stranger = AtWork(CALC, contextvars.copy_context())
    assert stranger.began.wait(DEADLINE)
    late = AtWork(CALC, outer.context)
    assert late.waits()
    stranger.ends()
    late.ends()


def test_a_call_within_another_server_s_call_waits(monkeypatch):
    """Each server has its own line."""
    monkeypatch.setattr(_serial, "_LOOK", 0.001)
    outer = AtWork(ToolServer([add]), contextvars.copy_context())
    stranger = AtWork(CALC, contextvars.copy_context())
    assert outer.began.wait(DEADLINE)
    assert stranger.began.wait(DEADLINE)
    inner = AtWork(CALC, outer.context)
    assert inner.waits()
    for one in (stranger, inner, outer):
        one.ends()


def test_a_call_within_another_server_s_call_is_within_the_outer_one(monkeypatch):
    """A tool of A runs a turn that calls B, and that one calls A: it would wait for itself."""
    monkeypatch.setattr(_serial, "_LOOK", 0.001)
    outer = AtWork(CALC, contextvars.copy_context())
    assert outer.began.wait(DEADLINE)
    between = AtWork(ToolServer([add]), outer.context)
    assert between.began.wait(DEADLINE)
    for one in (AtWork(CALC, between.context), between, outer):
        one.ends()


def test_a_call_leaves_nothing_in_its_context():
    """Whoever makes many of them in one would gather their servers."""
    before = dict(contextvars.copy_context())
    with _serial.one_at_a_time(CALC, threading.Event()):
        assert dict(contextvars.copy_context()) != before
    assert dict(contextvars.copy_context()) == before


def test_a_tool_that_is_wanted_is_waited_for(play, monkeypatch):
    """However long it takes: only a call whose answer nobody wants is passed over."""
    monkeypatch.setattr(_serial, "PATIENCE", 0.0)
    monkeypatch.setattr(_serial, "_LOOK", 0.001)
    at_work, looked, order = threading.Event(), threading.Event(), []

    @tool
    def slow() -> str:
        """Takes its time."""
        at_work.set()
        assert looked.wait(DEADLINE)
        order.append("slow")
        return "slow"

    @tool
    def quick() -> str:
        """Is quick."""
        order.append("quick")
        return "quick"

    def calls(name):
        return [began(), call_tool("x", name, {}), ended(), read_stdin()]

    fake = play(scripts=[calls("slow"), calls("quick")])
    client, server = Client(cli_path=fake.path), ToolServer([slow, quick])
    first = Background(client.ask, "q", mcp_servers={"x": server})
    assert at_work.wait(DEADLINE)
    second = Background(client.ask, "q", mcp_servers={"x": server})
    until(lambda: fake.calls[1:] and len([t for t in threading.enumerate() if t.name.endswith("-callback")]) == 2)
    looked.set()
    assert first.result().result == second.result().result == "done"
    assert order == ["slow", "quick"]


def test_a_call_that_is_cancelled_while_it_waits_for_its_turn(play):
    """Tools that may not overlap take turns; one that nobody wants any more does not run at all."""
    ran, release, begun = [], threading.Event(), threading.Event()

    @tool
    def one_by_one(n: int) -> str:
        """Acts."""
        ran.append(n)
        begun.set()
        release.wait(DEADLINE)
        return "done"

    fake = play(
        began(), call_tool("x", "one_by_one", {"n": 1}, number=1, id="c1", answered=False), wait_for("go"),
        call_tool("x", "one_by_one", {"n": 2}, number=2, id="c2", answered=False), cancelling(2), ready("cancelled"),
        wait_for_line(b'"c1"'), wait_for_line(b'"c2"'), ended(), read_stdin(),
    )  # fmt: skip
    asking = Background(Client(cli_path=fake.path).ask, "q", mcp_servers={"x": ToolServer([one_by_one])})
    assert begun.wait(DEADLINE)
    fake.release("go")
    fake.wait("cancelled")
    release.set()
    assert asking.result().result == "done"
    assert ran == [1]


def test_one_server_for_many_runs(play):
    """Eight runs share it at once; each gets its own results."""
    fake = play(began(), call_tool("calc", "add", {"a": 1, "b": 2}), ended(), read_stdin())
    client = Client(cli_path=fake.path, max_concurrent=8)
    asks = [Background(client.ask, "q", mcp_servers={"calc": CALC}) for _ in range(8)]
    assert [one.result().result for one in asks] == ["done"] * 8
    assert all(answers(fake, n)[0]["mcp_response"]["result"]["content"][0]["text"] == "3" for n in range(8))


# --- around callbacks


def test_the_wrapper_is_entered_around_every_callback(play):
    """On its thread, one at a time, also when it fails."""
    seen = []

    @contextlib.contextmanager
    def wrapper():
        seen.append("in")
        try:
            yield
        finally:
            seen.append("out")

    def fail(_):
        seen.append(threading.current_thread().name.partition("-callback")[1])
        raise ValueError("x")

    fake = play(*expect_initialize(), began(), call_hook("hook_1", "Stop"), ask_permission("Bash"),
                call_tool("calc", "add", {"a": 1, "b": 2}), ended(), read_stdin())  # fmt: skip
    Client(cli_path=fake.path).ask(
        "q", hooks={"Stop": fail}, can_use_tool=fail, mcp_servers={"calc": CALC}, callback_wrapper=wrapper
    )
    assert seen == ["in", "-callback", "out"] * 2 + ["in", "out"]


def test_a_wrapper_that_fails_denies(play):
    """The callback did not run, so nothing was allowed."""

    def wrapper():
        raise ValueError("no database")

    fake = play(began(), ask_permission("Bash"), ended(), read_stdin())
    Client(cli_path=fake.path).ask("q", can_use_tool=allow, callback_wrapper=wrapper)
    assert answers(fake)[0]["behavior"] == "deny"


def test_context_variables_of_the_caller(play):
    """Callbacks see them as they were at the call."""
    variable = contextvars.ContextVar("variable")
    variable.set("request 7")
    fake = play(began(), ask_permission("Bash"), ended(), read_stdin())
    seen = []
    Client(cli_path=fake.path).ask("q", can_use_tool=lambda request: bool(seen.append(variable.get()) or True))
    assert seen == ["request 7"]


def test_a_callback_that_waits_for_its_own_slot(play, slots_free):
    """The run waits for the callback and the callback for the run's slot: it is told so, and the turn goes on."""
    fake = play(began(), ask_permission("Bash"), ended(), read_stdin())
    client = Client(cli_path=fake.path, max_concurrent=1)
    raised = []

    def can_use_tool(request):
        with pytest.raises(ConcurrencyError, match="callbacks wait for a slot") as caught:
            client.ask("another")
        raised.append(caught.value)
        return True

    assert client.ask("q", can_use_tool=can_use_tool).result == "done"
    assert len(raised) == 1
    assert slots_free(client) == 1


def test_callbacks_that_wait_for_each_others_slots(play, slots_free):
    """Two runs hold both slots and their callbacks wait for a third: who closes the circle is told, once."""
    fake = play(began(), ask_permission("Bash"), ended(), read_stdin())
    client = Client(cli_path=fake.path, max_concurrent=2)
    both = threading.Barrier(2)
    refused = []

    def can_use_tool(request):
        both.wait(DEADLINE)
        try:
            client.run("another").close()
        except ConcurrencyError as error:
            refused.append(error)
        return True

    asking = [Background(client.ask, "q", can_use_tool=can_use_tool) for _ in range(2)]
    assert [one.result().result for one in asking] == ["done", "done"]
    assert len(refused) == 1
    assert slots_free(client) == 2


def test_a_callback_may_wait_for_a_slot_that_comes_free(play, slots_free):
    """Another run holds the second slot and will end: the callback waits for it."""
    scripts = [[began(), ask_permission("Bash"), ended(), read_stdin()], [init(), wait_for("end"), result("1")], TURN]
    fake = play(scripts=scripts)
    client = Client(cli_path=fake.path, max_concurrent=2)
    asked, go = threading.Event(), threading.Event()

    def can_use_tool(request):
        asked.set()
        assert go.wait(DEADLINE)
        assert client.ask("another").result == "1"
        return True

    asking = Background(client.ask, "q", can_use_tool=can_use_tool)
    assert asked.wait(DEADLINE)
    other = client.run("other")
    go.set()
    until(lambda: client._pool._line)
    fake.release("end")
    assert other.result().result == "1"
    assert asking.result().result == "done"
    assert slots_free(client) == 2


def test_a_callback_whose_answer_is_not_wanted_may_wait(play, slots_free):
    """Its run has been cancelled and is about to end: then its slot comes free."""
    fake = play(scripts=[[began(), ask_permission("Bash"), read_stdin(), hang()], TURN])
    client = Client(cli_path=fake.path, max_concurrent=1)
    asked, answered = threading.Event(), queue.SimpleQueue()

    def can_use_tool(request):
        asked.set()
        until(lambda: request.cancelled)
        answered.put(client.ask("another").result)
        return True

    run = client.run("q", can_use_tool=can_use_tool)
    assert asked.wait(DEADLINE)
    run.cancel()
    assert answered.get(timeout=DEADLINE) == "1"
    run.close()
    until(lambda: slots_free(client) == 1)


def test_a_callback_may_start_another_run(play):
    """With a slot left, a run within a callback is a run like any other."""
    fake = play(scripts=[[began(), ask_permission("Bash"), ended(), read_stdin()], [init(), result("inner")]])
    client = Client(cli_path=fake.path, max_concurrent=2)
    fakes = []

    def can_use_tool(request):
        fakes.append(client.ask("inner").result)
        return True

    assert client.ask("q", can_use_tool=can_use_tool).result == "done"
    assert fakes == ["inner"]


# --- both wires say the same

SCENARIOS = {
    "a text": [text("hello"), result("hello")],
    "a tool": [tool_use("Bash", {"command": "ls"}), tool_result("a"), text("one"), result("one")],
    "a failure": [result("x", is_error=True)],
    "no result": [text("half"), exit_with(3)],
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_text_and_streaming_give_the_same_events(play, name):
    """Whatever the CLI says, the events are the same on both wires."""
    told = []
    for options in ({}, {"literal": True}, {"can_use_tool": allow}):
        fake = play(*([wait_for_line()] if options else [read_stdin()]), init(), *SCENARIOS[name], read_stdin())
        run = Client(cli_path=fake.path).run("q", **options)
        told.append([(e.type, e.subtype, e.text, e.result, e.exit_code, e.is_terminal) for e in run])
    assert told[0] == told[1] == told[2]


# --- what does not go together

REFUSED = {
    "a callback and a permission tool": {"can_use_tool": allow, "permission_prompt_tool": "mcp__a__b"},
    "a callback that is never asked": {"can_use_tool": allow, "permission_prompts": "none"},
    "unattended and a callback": {"unattended": True, "can_use_tool": allow},
    "unattended and a permission tool": {"unattended": True, "permission_prompt_tool": "mcp__a__b"},
    "no function": {"can_use_tool": "yes"},
    "an unknown event": {"hooks": {"BeforeTool": no_hook}},
    "hooks that are no dict": {"hooks": [no_hook]},
    "names that collide": {"mcp_servers": {"a b": ToolServer([add]), "a_b": ToolServer([add])}},
    "unattended that is neither": {"unattended": "yes"},
    "a wrapper that is none": {"callback_wrapper": 1},
    "an agent without a prompt": {"agents": {"a": {"description": "x"}}, "can_use_tool": allow},
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("way", ["run", "session", "client"])
def test_what_does_not_go_together(play, slots_free, name, way):
    """ValueError before anything starts."""
    fake = play()
    client = Client(cli_path=fake.path)
    calls = {
        "run": lambda: client.run("q", **REFUSED[name]),
        "session": lambda: client.session(**REFUSED[name]),
        "client": lambda: Client(cli_path=fake.path, **REFUSED[name]),
    }
    with pytest.raises(ValueError):
        calls[way]()
    assert slots_free(client) == 4
    assert not fake.calls


SHADOWS = {
    "dangerously_skip_permissions": {"dangerously_skip_permissions": True},
    "bypassPermissions": {"permission_mode": "bypassPermissions"},
    "dontAsk": {"permission_mode": "dontAsk"},
    "allowed_tools": {"allowed_tools": ["Bash", "*"]},
    "rule": {"allowed_tools": "Bash,*"},
}


@pytest.mark.parametrize("way", ["run", "ask", "session"])
@pytest.mark.parametrize("what", SHADOWS)
def test_a_callback_that_is_shadowed(play, what, way):
    """A UserWarning at the caller's line: the CLI will not ask."""
    begin = expect_initialize() if way == "session" else [wait_for_line()]
    fake = play(*begin, init(), result("done"), read_stdin())
    client = Client(cli_path=fake.path)
    calls = {
        "run": lambda: client.run("q", can_use_tool=allow, **SHADOWS[what]).result(),
        "ask": lambda: client.ask("q", can_use_tool=allow, **SHADOWS[what]),
        "session": lambda: client.session(can_use_tool=allow, **SHADOWS[what]).close(),
    }
    with pytest.warns(UserWarning, match=what) as caught:
        calls[way]()
    assert [warning.filename for warning in caught] == [__file__]


def test_rules_that_are_shadowed(play):
    """The warning speaks of what the caller gave, not of the callback that is made of it."""
    fake = play(init(), result("done"))
    with pytest.warns(UserWarning, match="^the allow rules of unattended will not be asked: permission_mode='dontAsk'"):
        Client(cli_path=fake.path).ask("q", unattended=unattended(allow=["Read"]), permission_mode="dontAsk")


@pytest.mark.parametrize("preset", [True, unattended(deny=["Bash(rm *)"])], ids=["all", "deny"])
def test_a_preset_that_nothing_shadows(play, preset):
    """It allows nothing; what it denies, and that nobody answers, holds in every mode: no warning."""
    fake = play(init(), result("done"))
    assert Client(cli_path=fake.path).ask("q", unattended=preset, permission_mode="bypassPermissions").result == "done"


@pytest.mark.parametrize("given", [{"allowed_tools": ["Bash(ls *)", "Read"]}, {"permission_mode": "acceptEdits"}])
def test_a_callback_that_is_not_shadowed(play, given):
    """No warning (it would be an error here) where the CLI asks for the rest."""
    fake = play(began(), ended(), read_stdin())
    Client(cli_path=fake.path).ask("q", can_use_tool=allow, **given)


def test_no_callback_no_warning(play):
    """Bypassing everything is the caller's choice."""
    fake = play(init(), result("done"))
    Client(cli_path=fake.path).ask("q", permission_mode="bypassPermissions")


# --- unattended


def test_unattended_is_one_switch(play):
    """It asks through the permission channel, accepts edits, adds its sentence and a hook that logs."""
    fake = play(*expect_initialize(), turn(), read_stdin())
    Client(cli_path=fake.path, unattended=True).ask("q")
    call = fake.calls[0]
    assert call.option("--permission-prompt-tool") == "stdio"
    assert call.option("--permission-mode") == "acceptEdits"
    assert "--append-system-prompt" in " ".join(call.argv)
    assert list(call.messages[0]["request"]["hooks"]) == ["Notification"]


def test_unattended_decides_by_rule(play):
    """What a rule allows runs, the rest is denied; nobody is waited for."""
    fake = play(
        *expect_initialize(), began(), ask_permission("Bash", {"command": "git status"}),
        ask_permission("Bash", {"command": "rm -rf /"}), ask_permission("AskUserQuestion", {"questions": []}),
        ask_permission("ExitPlanMode", {"plan": "x"}), ended(), read_stdin(),
    )  # fmt: skip
    Client(cli_path=fake.path).ask("q", unattended=unattended(allow=["Bash(git status)"]))
    said = [answer["behavior"] for answer in answers(fake)]
    assert said == ["allow", "deny", "deny", "allow"]


def test_unattended_in_a_session(play):
    """The same for all its turns."""
    fake = play(*expect_initialize(), turn(ask_permission("Bash", {"command": "ls"})), read_stdin())
    with Client(cli_path=fake.path, unattended=True).session() as session:
        session.ask("q")
    assert answers(fake)[0]["behavior"] == "deny"


def test_unattended_that_decides_nothing(play):
    """Where everything is allowed before it, a warning says so."""
    fake = play(*expect_initialize(), turn(), read_stdin())
    with pytest.warns(UserWarning, match="bypassPermissions"):
        Client(cli_path=fake.path).ask("q", unattended=unattended(allow=["Read"]), permission_mode="bypassPermissions")
