"""One script of `FakeCLI` serves every way in which a prompt can come: as text, as a line, in a session."""

from __future__ import annotations

import subprocess
import sys

import pytest

from claude_cli_client import (
    Client,
    HookMatcher,
    InterruptedTurnError,
    ProcessError,
    ServerError,
    ToolServer,
    TurnCancelled,
    TurnTimeout,
    testing,
    tool,
)
from claude_cli_client.testing import (
    FakeCLI,
    api_failure,
    ask_permission,
    began,
    call_hook,
    call_tool,
    ended,
    exit_with,
    expect,
    expect_initialize,
    hang,
    ignore_stdin,
    init,
    interrupted,
    lifecycle,
    read_stdin,
    ready,
    result,
    text,
    tool_result,
    tool_use,
    turn,
)


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def allow(request):
    return True


def quiet(call):
    return None


WAYS = {
    "text": {},
    "unattended": {"unattended": True},
    "hooks": {"hooks": {"Stop": quiet}},
    "can_use_tool": {"can_use_tool": allow},
    "literal": {"literal": True},
    "tools": {"mcp_servers": {"calc": ToolServer([add])}},
}
SUM = [init(), text("Sum."), result("Sum.")]


@pytest.mark.parametrize("way", WAYS)
def test_one_script_serves_every_turn(play, way):
    """Whatever the client has to say first, the prompt is read and the script is played."""
    fake = play(*SUM)
    answer = Client(cli_path=fake.path, **WAYS[way]).ask("Add\nit up é")
    assert (answer.result, answer.exit_code) == ("Sum.", 0)
    assert fake.calls[0].prompt == "Add\nit up é"
    assert fake.calls[0].prompts == ["Add\nit up é"]


@pytest.mark.parametrize("way", WAYS)
def test_one_script_serves_every_session(play, way):
    """Each prompt has the next script; the last one repeats."""
    fake = play(scripts=[SUM, [init(), text("Two."), result("Two.")]])
    with Client(cli_path=fake.path).session(**WAYS[way]) as session:
        assert [answer.result for answer in session.map(["a", "b", "c"])] == ["Sum.", "Two.", "Two."]
    assert (fake.calls[0].prompt, fake.calls[0].prompts) == ("a", ["a", "b", "c"])


def test_a_turn_of_a_session_ends_with_its_result(play):
    """The CLI's word that the prompt is completed comes behind it: nobody waits for more."""
    fake = play(*SUM)
    with Client(cli_path=fake.path).session() as session:
        events = session.events()
        session.ask("a")
        session.ask("b")
        states = [next(event for event in events if event.type == "command_lifecycle").data for _ in range(6)]
    assert [state["state"] for state in states] == ["queued", "started", "completed"] * 2
    assert len({state["command_uuid"] for state in states}) == 2


def test_scripts_are_dealt_in_the_order_of_the_prompts(play):
    """To starts and to what comes after the first prompt of a session alike."""
    fake = play(scripts=[[init(), result(word)] for word in "abcdef"])
    client = Client(cli_path=fake.path)
    with client.session() as one:
        found = [one.ask("x").result, one.ask("x").result]
        with client.session() as two:
            found += [two.ask("x").result, one.ask("x").result, two.ask("x").result]
    found.append(client.ask("x").result)
    assert found == list("abcdef")


def test_content_blocks_are_a_prompt(play):
    """Its text is that of its text blocks."""
    fake = play(*SUM)
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    Client(cli_path=fake.path).ask([picture, {"type": "text", "text": "What is"}, {"type": "text", "text": "this?"}])
    assert fake.calls[0].prompt == "What is\nthis?"


def test_a_permission_question_in_the_middle_of_a_script(play):
    """It is no step that reads the prompt: that comes first, as in every script."""
    asked = []

    def decide(request):
        asked.append(request.input["command"])
        return False

    fake = play(init(), tool_use("Bash", {"command": "rm a"}), ask_permission("Bash", {"command": "rm a"}),
                tool_result("denied", is_error=True), result("It stays."))  # fmt: skip
    client = Client(cli_path=fake.path, can_use_tool=decide)
    assert client.ask("Clean up").result == "It stays."
    with client.session() as session:
        assert session.ask("Clean up").result == "It stays."
    assert asked == ["rm a", "rm a"]
    assert [[answer["behavior"] for answer in call.answers] for call in fake.calls] == [["deny"], ["deny"]]


def test_hooks_and_tools_in_the_middle_of_a_script(play):
    """They are called as in any turn, `initialize` answered."""
    seen = []
    fake = play(init(), call_hook("hook_1", "PreToolUse"), call_tool("calc", "add", {"a": 1, "b": 2}), result("3"))
    client = Client(cli_path=fake.path, hooks={"PreToolUse": lambda call: seen.append(call.event)}, **WAYS["tools"])
    assert client.ask("Add").result == "3"
    assert seen == ["PreToolUse"]
    assert fake.calls[0].answers[1]["mcp_response"]["result"]["content"][0]["text"] == "3"


def test_a_hook_that_was_not_declared(play):
    """The script fails, and its words tell which there are: a denial must not look like the hook's own."""
    hooks = {"PreToolUse": HookMatcher("Read|Bash", lambda call: None), "Stop": lambda call: None}
    client = Client(cli_path=play(init(), call_hook("hook_0", "PreToolUse"), result("x")).path)
    with pytest.raises(ProcessError, match=r"hook_1 \(PreToolUse, Read\|Bash\), hook_2 \(Stop\), not hook_0"):
        client.ask("Read", hooks=hooks)
    with pytest.raises(ProcessError, match="declared no hook, not hook_0"):
        client.ask("Read", can_use_tool=lambda request: True)


@pytest.mark.parametrize(
    ("server", "name", "words"),
    [
        ("calk", "add", "could not call 'add' of the server 'calk': there is no server 'calk'"),
        ("calc", "ad", "could not call 'ad' of the server 'calc': unknown tool: ad; there are: add"),
    ],
)
def test_a_tool_that_the_client_does_not_have(play, server, name, words):
    """The script fails, and does not go on as if the call had been made."""
    client = Client(cli_path=play(init(), call_tool(server, name), result("3")).path, **WAYS["tools"])
    with pytest.raises(ProcessError, match=words):
        client.ask("Add")


def test_a_tool_that_refuses_its_arguments(play):
    """That is a result, which the model would read: the script goes on."""
    fake = play(init(), call_tool("calc", "add", {"a": "x"}), result("3"))
    assert Client(cli_path=fake.path, **WAYS["tools"]).ask("Add").result == "3"
    assert fake.calls[0].answers[0]["mcp_response"]["result"]["isError"] is True


@pytest.mark.parametrize("step", [ask_permission("Bash"), call_tool("calc", "add"), call_hook("hook_1", "Stop")])
def test_a_question_to_nobody(play, step):
    """The prompt came as text, since there are no callbacks: the script says so."""
    with pytest.raises(ProcessError, match="no can_use_tool, hooks or tools, so nobody answers"):
        Client(cli_path=play(init(), step, result("x")).path).ask("Read")


def test_a_script_that_waits_to_be_interrupted(play):
    """`interrupted` ends the turn, and the next one has the next script."""
    fake = play(scripts=[[init(), text("half"), ready("on"), interrupted()], SUM])
    with Client(cli_path=fake.path).session() as session:
        run = session.run("a")
        fake.wait("on")
        session.interrupt()
        with pytest.raises(InterruptedTurnError):
            run.result()
        assert session.ask("b").result == "Sum."


def test_a_script_that_tells_what_becomes_of_its_prompt(play):
    """Then nothing is added."""
    fake = play(init(), result("x"), lifecycle("completed"))
    with Client(cli_path=fake.path).session() as session:
        events = session.events()
        session.ask("a")
        session.close()
        assert [event.data["state"] for event in events if event.type == "command_lifecycle"] == ["completed"]


def test_requests_between_the_turns_are_answered(play):
    """With an empty body, so that nobody waits."""
    fake = play(*SUM)
    with Client(cli_path=fake.path).session() as session:
        session.set_model("haiku")
        assert session.context_usage() == {}
        session.ask("a")
        session.interrupt()
        assert session.ask("b").result == "Sum."


@pytest.mark.parametrize("way", WAYS)
def test_a_failure_is_one_every_way(play, way):
    """A failed turn, a death without a result, and a CLI that never begins."""
    fake = play(scripts=[[init(), api_failure(529)], [init(), exit_with(3)], [ignore_stdin(), hang()]])
    client = Client(cli_path=fake.path, **WAYS[way])
    with pytest.raises(ServerError):
        client.ask("a")
    with pytest.raises(ProcessError) as caught:
        client.ask("b")
    assert caught.value.exit_code == 3
    with pytest.raises(TurnTimeout) as late:
        client.ask("c", start_timeout=0.1)
    assert late.value.kind == "start"


@pytest.mark.parametrize("way", ["text", "can_use_tool", "literal"])
def test_a_script_that_says_nothing_says_nothing_of_the_prompt(play, way):
    """So that the start's limit is the one that ends it."""
    fake = play(hang())
    with pytest.raises(TurnTimeout) as late:
        Client(cli_path=fake.path, **WAYS[way]).ask("c", start_timeout=0.3)
    assert late.value.kind == "start"


def test_a_failure_in_a_session(play):
    """It ends the turn, and the session goes on."""
    fake = play(scripts=[[init(), api_failure(529)], SUM])
    with Client(cli_path=fake.path).session() as session:
        with pytest.raises(ServerError):
            session.ask("a")
        assert session.ask("b").result == "Sum."


@pytest.mark.parametrize("way", WAYS)
def test_scripts_that_read_their_prompt_serve_every_turn(play, way):
    """`expect_initialize` goes on where the prompt comes without it, and `turn` takes a text."""
    fake = play(expect_initialize(), turn(text("Sum."), answer="Sum."), read_stdin())
    run = Client(cli_path=fake.path, **WAYS[way]).run("Add")
    types = [event.type for event in run]
    assert run.result().result == "Sum."
    assert ("command_lifecycle" in types) == (way != "text")
    assert fake.calls[0].prompt == "Add"


def test_a_script_that_reads_its_prompt_can_be_the_next(play):
    """It begins with the prompt that comes."""
    second = [began(), text("x"), ended("Two."), *expect("set_model", {"model": "haiku"}), read_stdin()]
    fake = play(scripts=[SUM, second])
    with Client(cli_path=fake.path).session() as session:
        assert [session.ask("a").result, session.ask("b").result] == ["Sum.", "Two."]
        session.set_model("haiku")


def test_cancelling_a_script_that_hangs(play):
    """On the open stdin as with a text."""
    for options in (WAYS["text"], WAYS["literal"]):
        fake = play(init(), ready("on"), hang())
        run = Client(cli_path=fake.path, **options).run("a")
        fake.wait("on")
        run.cancel()
        with pytest.raises(TurnCancelled):
            run.result()


def test_messages_of_a_text_are_a_clear_error(play):
    """And not one of a parser."""
    fake = play(*SUM)
    Client(cli_path=fake.path).ask("How many?")
    with pytest.raises(ValueError, match="use `prompt`"):
        _ = fake.calls[0].messages


def test_a_fake_that_nobody_closes_is_removed_at_the_end(tmp_path):
    """By the end of the interpreter, with what it started."""
    code = (
        "import sys; from claude_cli_client.testing import *\n"
        "fake = FakeCLI([], directory=sys.argv[1]); print(fake.directory.exists())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("True\n", "", [])


@pytest.mark.parametrize("given", [{"steps": init()}, {"scripts": [init(), result("x")]}, {"steps": {"type": "x"}}])
def test_a_step_in_the_place_of_a_script(given):
    """Is told with an example, and no directory is left."""
    with pytest.raises(TypeError, match="a script is a list of steps"):
        FakeCLI(**given)


def test_a_fake_stands_for_its_path(play):
    """Where a client wants the path of the CLI."""
    assert Client(cli_path=play(init(), text("1"), result("1"))).ask("x").result == "1"


def test_no_step_reads_the_prompt_unsaid():
    """What a script of one turn may hold does not switch its prompt off."""
    within = (ask_permission("Bash"), call_hook("hook_1", "Stop"), call_tool("a", "b"), interrupted())
    for steps in within:
        with FakeCLI([init(), steps, result()]) as fake:
            script = testing.marshal.loads((fake.directory / "script.0").read_bytes())
        assert script["by_prompt"]
        assert not script["reads_all"]
