"""The real CLI: what a turn brings: texts, tools, deltas, structured output, and the prompts that go in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from real_cli import RealCLI, bash, tool

from claude_cli_client import StructuredOutputError, replay

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(60)]

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def of(events, *types):
    return [event for event in events if event.type in types]


# --- answers ----------------------------------------------------------------------------------


def test_ask_returns_the_answer(cli: RealCLI):
    """`ask` gives the result event, filled in with cost, tokens, times and the exit code."""
    result = cli.ask("hi [[text: hello there]]")
    assert (result.type, result.result, str(result)) == ("result", "hello there", "hello there")
    assert result.is_terminal
    assert not result.is_error
    assert result.exit_code == 0
    assert (result.input_tokens, result.output_tokens) == (12, 7)
    assert (result.cache_read_tokens, result.cache_creation_tokens) == (5, 3)
    assert result.cost_usd is not None
    assert result.cost_usd == pytest.approx(result.session_cost_usd)
    assert result.cost_usd > 0
    assert result.duration_ms > 0
    assert result.duration_api_ms > 0
    assert result.num_turns == 1
    assert result.stop_reason == "end_turn"
    assert result.terminal_reason == "completed"
    assert list(result.model_usage) == ["claude-opus-5-5"]


def test_a_turn_starts_with_init_and_ends_with_its_result(cli: RealCLI):
    """The loop gives init first and the result last, once; the run knows its session, model and exit."""
    run = cli.client().run("hi [[text: hello]]")
    events = list(run)
    assert [event.type for event in events] == ["system", "text", "result"]
    assert events[0].subtype == "init"
    assert events[0].data["cwd"] == str(cli.cwd)
    assert [event.is_terminal for event in events] == [False, False, True]
    assert {event.session_id for event in events} == {run.session_id}
    assert run.model == events[0].data["model"]
    assert run.done
    assert run.exit_code == 0
    assert run.result() == events[-1]


def test_iter_text_gives_the_texts(cli: RealCLI):
    """Without deltas `iter_text` gives the blocks of text."""
    run = cli.client().run("hi [[think: hm]][[text: one ]][[text: two]]")
    assert list(run.iter_text()) == ["one ", "two"]


def test_two_text_blocks_share_a_message(cli: RealCLI):
    """Each block is an event of its own; they share the message id and count up."""
    texts = of(cli.events("hi [[text: one]][[text: two]]"), "text")
    assert [text.text for text in texts] == ["one", "two"]
    assert len({text.message_id for text in texts}) == 1


def test_thinking_comes_before_the_text(cli: RealCLI):
    """A thinking block is an event of its own and no part of the answer."""
    events = cli.events("hi [[think: let me see]][[text: yes]]")
    assert [(e.type, e.text) for e in of(events, "thinking", "text")] == [
        ("thinking", "let me see"),
        ("text", "yes"),
    ]
    assert events[-1].result == "yes"


@pytest.mark.parametrize(
    "answer", ["grüße, 漢字", "🎉 👩‍👩‍👧", "a\u2028b\u2029c\u0085d", 'tab\tquote"back\\slash', "\x1b[31mred"]
)
def test_answers_come_back_unchanged(cli: RealCLI, answer: str):
    """Characters beyond ASCII, and those that other splitters take for line ends, survive."""
    assert cli.ask(f"hi [[text: {answer}]]").result == answer


def test_a_lone_surrogate_in_an_answer_does_no_harm(cli: RealCLI):
    """Half of a surrogate pair in the answer is delivered, and its event can be handled further."""
    result = cli.ask('hi [[quoted: "half \\ud83d end"]]')
    assert result.result.startswith("half ")
    assert result.result.endswith(" end")
    assert repr(result)


def test_a_long_answer_arrives_whole(cli: RealCLI):
    """An answer of 3 MB is one line of the CLI, twice, and one event."""
    assert len(cli.ask("hi [[size: 3000000]]").result) == 3_000_000


# --- tools ------------------------------------------------------------------------------------


def test_bash_runs_and_its_output_comes_back(cli: RealCLI):
    """A tool call is `tool_use` and `tool_result` with the same id, and the answer follows."""
    prompt = f"go {bash('echo out-$((40 + 2))')}[[then]][[text: it ran]]"
    events = cli.events(prompt, allowed_tools=["Bash"])
    call, answer = of(events, "tool_use", "tool_result")
    assert (call.tool_name, call.tool_input) == ("Bash", {"command": "echo out-$((40 + 2))"})
    assert answer.tool_id == call.tool_id == call.tool_use_id
    assert answer.text == "out-42"
    assert not answer.is_tool_error
    assert answer.tool_use_result["stdout"] == "out-42"
    assert events[-1].result == "it ran"
    assert events[-1].num_turns == 2


def test_write_and_read_work_by_default(cli: RealCLI):
    """`permission_mode` is acceptEdits by default: files of the working directory may be written."""
    path = str(cli.cwd / "note.txt")
    write, read = tool("Write", file_path=path, content="first line\n"), tool("Read", file_path=path)
    events = cli.events(f"go {write}[[then]]{read}[[then]][[text: done]]")
    assert Path(path).read_text() == "first line\n"
    assert [e.is_tool_error for e in of(events, "tool_result")] == [False, False]
    assert "first line" in of(events, "tool_result")[1].text
    assert events[0].data["permissionMode"] == "acceptEdits"


def test_a_failing_tool_is_no_failing_turn(cli: RealCLI):
    """Bash's exit code 3 is an error of the tool, with its output; the turn goes on."""
    events = cli.events(f"go {bash('echo oops; exit 3')}", allowed_tools=["Bash"])
    (answer,) = of(events, "tool_result")
    assert answer.is_tool_error
    assert answer.text == "Exit code 3\noops"
    assert events[-1].result == "done"
    assert not events[-1].is_error


def test_a_tool_that_is_not_allowed_is_denied_not_asked_for(cli: RealCLI):
    """With nobody to ask, a tool without permission is refused and named in the result."""
    events = cli.events(f"go {bash('touch here')}", permission_mode="manual")
    (answer,) = of(events, "tool_result")
    assert answer.is_tool_error
    assert not (cli.cwd / "here").exists()
    assert [denial["tool_name"] for denial in events[-1].permission_denials] == ["Bash"]


def test_several_tools_at_once(cli: RealCLI):
    """Parallel calls: every call has its result, whatever the order in which they end."""
    calls = "".join(bash(f"echo n{n}") for n in range(3))
    events = cli.events(f"go {calls}[[then]][[text: all]]", allowed_tools=["Bash"])
    used = {e.tool_id: e.tool_input["command"] for e in of(events, "tool_use")}
    got = {e.tool_id: e.text for e in of(events, "tool_result")}
    assert len(used) == 3
    assert {used[tool_id]: text for tool_id, text in got.items()} == {f"echo n{n}": f"n{n}" for n in range(3)}


def test_results_come_after_their_calls_and_the_end_comes_last(cli: RealCLI):
    """The order of events is that of the turn: call, result, call, result, text, end."""
    prompt = f"go {bash('echo 1')}[[then]]{bash('echo 2')}[[then]][[text: end]]"
    events = cli.events(prompt, allowed_tools=["Bash"])
    wanted = ["tool_use", "tool_result", "tool_use", "tool_result", "text", "result"]
    assert [e.type for e in events if e.type in wanted] == wanted
    assert [e for e in events if e.is_terminal] == [events[-1]]


# --- partial messages -------------------------------------------------------------------------


def test_deltas_make_up_the_text(cli: RealCLI):
    """With partial messages the deltas, joined, are the text, and each knows its message and block."""
    prompt = "hi [[think: thinking it over]][[text: the answer is 漢字 and more]][[chunks: 7]]"
    events = cli.events(prompt, include_partial_messages=True)
    for delta, block in (("text_delta", "text"), ("thinking_delta", "thinking")):
        pieces, (whole,) = of(events, delta), of(events, block)
        assert "".join(piece.text for piece in pieces) == whole.text
        assert len(pieces) >= 2
        assert {piece.message_id for piece in pieces} == {whole.message_id}
    assert {piece.block_index for piece in of(events, "text_delta")} == {1}


def test_iter_text_prefers_deltas_and_says_nothing_twice(cli: RealCLI):
    """With partial messages `iter_text` gives the deltas and not the block again."""
    run = cli.client().run("hi [[words: 40]]", include_partial_messages=True)
    pieces = list(run.iter_text())
    assert len(pieces) > 1
    assert "".join(pieces) == "word " * 40
    assert run.result().result.strip() == ("word " * 40).strip()


def test_the_deltas_of_a_tool_call_are_its_input(cli: RealCLI):
    """`tool_input_delta` events, joined, are the JSON of the call's input."""
    prompt = f"go {bash('echo a rather long command')}[[chunks: 4]]"
    events = cli.events(prompt, allowed_tools=["Bash"], include_partial_messages=True)
    text = "".join(e.text for e in of(events, "tool_input_delta"))
    assert json.loads(text) == of(events, "tool_use")[0].tool_input


@pytest.mark.parametrize("cut", ["delta", "delta reset"])
def test_a_cut_stream_is_retracted(cli: RealCLI, cut: str):
    """What was streamed of a broken message is declared void, before the second try."""
    prompt = f"hi [[text: hello there]][[chunks: 3]][[cut: {cut}]][[times: 1]]"
    events = cli.events(prompt, include_partial_messages=True, max_retries=1)
    (void,) = of(events, "retracted")
    before = events[: events.index(void)]
    lost = [e for e in of(before, "text_delta") if e.message_id == void.message_id]
    assert lost
    assert lost[0].block_index >= void.block_index == 0
    kept = of(events[events.index(void) :], "text_delta")
    assert "".join(e.text for e in kept) == "hello there" == events[-1].result
    assert of(events, "retry")


def test_a_cut_stream_without_retries_is_answered_whole(cli: RealCLI):
    """The second try is not streamed: no deltas, but the text comes, and the answer is right."""
    prompt = "hi [[text: hello there]][[chunks: 3]][[cut: delta]][[times: 1]]"
    events = cli.events(prompt, include_partial_messages=True, max_retries=0)
    assert len(of(events, "retracted")) == 1
    assert [e.text for e in of(events, "text")] == ["hello there"] == [events[-1].result]


def test_a_cut_after_a_block_is_continued(cli: RealCLI):
    """The CLI asks the model to go on; its request for that is marked as not the user's."""
    prompt = "hi [[text: first]][[text: lost]][[cut: block]][[then]][[text: second]]"
    events = cli.events(prompt, max_retries=0)
    assert [e.text for e in of(events, "text")] == ["first", "second"]
    assert [e.is_synthetic for e in of(events, "user_text")] == [True]
    assert events[-1].result == "second"


# --- structured output ------------------------------------------------------------------------


def test_structured_output_is_given(cli: RealCLI):
    """With a schema the result carries the value."""
    result = cli.ask('hi [[structured: {"n": 3}]]', json_schema=SCHEMA)
    assert result.structured_output == {"n": 3}


def test_structured_output_is_corrected(cli: RealCLI):
    """A value that does not fit is sent back to the model, and the next one counts."""
    prompt = 'hi [[structured: {"n": "x"}]][[then]][[structured: {"n": 4}]]'
    assert cli.ask(prompt, json_schema=SCHEMA).structured_output == {"n": 4}


def test_structured_output_that_never_fits(cli: RealCLI):
    """After five tries the CLI gives up: a StructuredOutputError with its words."""
    with pytest.raises(StructuredOutputError) as caught:
        cli.ask('hi [[structured: {"n": "x"}]][[loop]]', json_schema=SCHEMA)
    assert "after 5 attempts" in str(caught.value)
    assert caught.value.exit_code == 1
    assert not caught.value.retryable


def test_structured_output_that_the_model_ignores(cli: RealCLI):
    """The CLI calls it a success without the value; here it is a StructuredOutputError."""
    run = cli.client().run("hi [[text: no]][[then]][[text: no again]]", json_schema=SCHEMA)
    assert list(run)[-1].result == "no again"
    with pytest.raises(StructuredOutputError) as caught:
        run.result()
    assert caught.value.event.result == "no again"


# --- prompts ----------------------------------------------------------------------------------

ODD_PROMPTS = {
    "a dash": "-",
    "a flag": "--model haiku",
    "an unknown command": "/unknown thing",
    "a mark": "!ls",
    "a hash": "# remember",
    "accents": "grüße, 漢字 🎉",
    "line ends": "a\r\nb\u2028c\u0085d\n\n",
    "control characters": "nul \x00 esc \x1b bom \ufeff",
    "quotes": "\"'`$HOME `id` \\",
}


@pytest.mark.parametrize("start", ODD_PROMPTS.values(), ids=ODD_PROMPTS.keys())
def test_prompts_reach_the_model_unchanged(cli: RealCLI, start: str):
    """No prompt is taken for a flag, a command that does not exist, or something of the shell."""
    prompt = f"{start} [[text: seen]]"
    assert cli.ask(prompt).result == "seen"
    assert prompt in cli.api.last().user


def test_a_lone_surrogate_in_a_prompt_becomes_a_replacement(cli: RealCLI):
    """Half of a surrogate pair cannot be sent; it becomes U+FFFD and all else survives."""
    cli.ask("half \ud83d, whole 🎉 [[text: seen]]")
    assert "half \ufffd, whole 🎉 " in cli.api.last().user


def test_a_prompt_of_a_megabyte(cli: RealCLI):
    """A prompt of 1 MB arrives whole."""
    prompt = "start " + "lorem 漢 " * 100_000 + "[[text: long]]"
    assert len(prompt.encode()) > 1_000_000
    assert cli.ask(prompt).result == "long"
    assert prompt in cli.api.last().user


def test_a_prompt_above_the_clis_limit_is_refused_before_the_start(cli: RealCLI):
    """More than 10 x 1024 x 1024 bytes: a ValueError, and the CLI is not started."""
    with pytest.raises(ValueError, match="10"):
        cli.client().run("x" * (10 * 1024 * 1024 + 1))
    assert cli.api.requests() == []
    assert not cli.config_dir.exists()


@pytest.mark.parametrize("prompt", ["", " \n\t"])
def test_an_empty_prompt_is_refused_before_the_start(cli: RealCLI, prompt: str):
    """Nothing and white space are a ValueError, as the CLI would refuse them."""
    with pytest.raises(ValueError):
        cli.client().run(prompt)


# --- recordings -------------------------------------------------------------------------------


def test_a_recording_replays_to_the_same_events(cli: RealCLI):
    """What `line_sink` recorded gives the same events again, but for what only the live run knows."""
    path = cli.root / "recording.jsonl"
    prompt = f"go [[think: hm]]{bash('echo 漢')}[[then]][[text: one]][[text: two]][[chunks: 3]]"
    with path.open("wb") as sink:
        live = cli.events(prompt, allowed_tools=["Bash"], include_partial_messages=True, line_sink=sink)
    again = list(replay(path))
    assert again[:-1] == live[:-1]
    last, live_last = again[-1], live[-1]
    assert (last.type, last.result, last.raw) == (live_last.type, live_last.result, live_last.raw)
    assert last.is_terminal
    assert last.cost_usd == live_last.cost_usd


def test_a_sink_gets_every_line_with_its_end(cli: RealCLI):
    """A callable sink gets each line of stdout as bytes, once, in order."""
    lines: list[bytes] = []
    events = cli.events("hi [[text: a]]", line_sink=lines.append)
    assert all(line.startswith(b"{") and line.endswith(b"}\n") for line in lines)
    raw = list(dict.fromkeys(event.raw for event in events))
    assert [line.decode().rstrip("\n") for line in lines] == [text.rstrip("\n") for text in raw]
