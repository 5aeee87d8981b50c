"""The real CLI: what it writes is listed, read and changed by us, and what we change is read by it."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from real_cli import RealCLI, bash, tool

from claude_cli_client import (
    Event,
    SessionInfo,
    SessionMessage,
    StaleSessionError,
    delete_session,
    fork_session,
    get_messages,
    get_session,
    get_subagent_messages,
    list_sessions,
    list_subagents,
    rename_session,
    tag_session,
)

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(120)]

ECHO = bash("echo hi", description="say hi")
SUBAGENT = tool(
    "Agent",
    description="Look",
    prompt="look [[text: I looked]]",
    subagent_type="general-purpose",
    run_in_background=False,
)


def spoken(events: Iterable[Event], parent: str = "") -> list[str]:
    """The uuids of the lines on stdout that are messages of the conversation, or of a subagent."""
    found = [event.data for event in events if event.data.get("type") in ("user", "assistant")]
    return list(dict.fromkeys(line["uuid"] for line in found if (line.get("parent_tool_use_id") or "") == parent))


def without_prompts(messages: Iterable[SessionMessage]) -> list[str]:
    """The uuids of what stdout shows: a prompt is not repeated there."""
    return [message.uuid for message in messages if message.type == "assistant" or not message.text]


def session_of(events: Sequence[Event]) -> str:
    return events[-1].session_id


def sessions(cli: RealCLI, directory: Path | None = None) -> list[SessionInfo]:
    return list_sessions(directory, config_dir=cli.config_dir)


def messages(cli: RealCLI, session: str, directory: Path | None = None) -> list[SessionMessage]:
    return get_messages(session, directory, config_dir=cli.config_dir)


def said_by_the_model(cli: RealCLI) -> list[str]:
    """The texts of the assistant in the last request."""
    contents = [message["content"] for message in cli.api.last().body["messages"] if message["role"] == "assistant"]
    return [block["text"] for content in contents for block in content if block["type"] == "text"]


def test_a_turn(cli: RealCLI) -> None:
    """A new session is listed with its prompt and directory, and has its prompt and answer."""
    events = cli.events("hello [[text: hi there]]")
    (info,) = sessions(cli, cli.cwd)
    assert info.session_id == session_of(events)
    assert info.summary == info.first_prompt == "hello [[text: hi there]]"
    assert (info.cwd, info.custom_title, info.tag) == (str(cli.cwd), None, None)
    assert info.file_size == cli.transcripts()[0].stat().st_size
    assert info.created_at is not None
    assert info.created_at <= info.last_modified
    found = messages(cli, info.session_id)
    assert [(message.type, message.text) for message in found] == [("user", info.summary), ("assistant", "hi there")]
    assert without_prompts(found) == spoken(events)


def test_tools_and_parallel_calls(cli: RealCLI) -> None:
    """Every call and every result that was seen on stdout is in the transcript, in the order of the answers."""
    three = bash("echo a") + bash("echo b") + bash("sleep 0.1; echo c")
    prompt = f"go {ECHO}[[then]][[text: now three]] {three}[[then]][[text: done]]"
    events = cli.events(prompt, allowed_tools=["Bash"])
    found = messages(cli, session_of(events))
    assert sorted(without_prompts(found)) == sorted(spoken(events))
    calls = [block["id"] for message in found for block in blocks(message, "tool_use")]
    results = [block["tool_use_id"] for message in found for block in blocks(message, "tool_result")]
    assert len(calls) == 4
    assert sorted(results) == sorted(calls)
    assert [message.text for message in found if message.text] == [prompt, "now three", "done"]


def blocks(message: SessionMessage, kind: str) -> list[dict[str, str]]:
    content = message.message["content"]
    return [block for block in content if block["type"] == kind] if isinstance(content, list) else []


def test_two_resumes_and_parallel_calls(cli: RealCLI) -> None:
    """A session that goes on is one conversation, also where an answer with several calls ended a turn."""
    first = cli.events(f"one {bash('echo a')}{bash('echo b')}[[then]][[text: first]]", allowed_tools=["Bash"])
    session = session_of(first)
    second = cli.events("two [[text: second]]", resume=session)
    third = cli.events("three [[text: third]]", resume=session)
    found = messages(cli, session)
    assert sorted(without_prompts(found)) == sorted(spoken([*first, *second, *third]))
    assert [message.text for message in found if message.type == "assistant" and message.text] == [
        *("first", "second", "third"),
    ]
    assert len(sessions(cli)) == 1


def test_a_subagent(cli: RealCLI) -> None:
    """It is listed, and its messages are those on stdout, with the call that started it."""
    events = cli.events(f"go {SUBAGENT}[[then]][[text: done]]", forward_subagent_text=True)
    session = session_of(events)
    (call,) = [event.tool_id for event in events if event.type == "tool_use"]
    (agent,) = list_subagents(session, config_dir=cli.config_dir)
    found = get_subagent_messages(session, agent, config_dir=cli.config_dir)
    assert [message.text for message in found] == ["look [[text: I looked]]", "I looked"]
    assert {message.parent_tool_use_id for message in found} == {call}
    assert set(spoken(events, call)) <= {message.uuid for message in found}
    assert without_prompts(messages(cli, session)) == spoken(events)
    assert [info.session_id for info in sessions(cli)] == [session]


def test_a_compaction(cli: RealCLI) -> None:
    """After it, the conversation is what the CLI sends to the model: summary, kept messages, what followed."""
    session = session_of(cli.events("first [[text: old answer]]"))
    cli.events("second [[text: kept answer]]", resume=session)
    cli.events("/compact", resume=session)
    last = cli.events("third [[text: new answer]]", resume=session)
    found = messages(cli, session)
    assert without_prompts(found[-1:]) == spoken(last)
    assert "old answer" not in [message.text for message in found]
    sent = json.dumps(cli.api.last().body["messages"])
    for message in found[:-1]:
        if not message.text.startswith("<"):  # notes of the command itself, which the CLI words anew
            assert json.dumps(message.text)[1:-1] in sent
    kept = [message.text for message in found if message.type == "assistant"]
    assert kept == [text for text in ("old answer", "kept answer") if text in sent.split("second")[0]] + ["new answer"]


@pytest.mark.parametrize("place", [0, 1])
def test_a_session_that_went_on_behind_a_compaction(cli: RealCLI, place: int) -> None:
    """From its summary, or from what it kept: read as the CLI resumes it, though the kept answer has its old parent."""
    session = session_of(cli.events("first [[text: old answer]]"))
    for prompt in ("second [[text: kept answer]]", "/compact", "third [[text: dropped answer]]"):
        cli.events(prompt, resume=session)
    at = messages(cli, session)[place].uuid
    cli.events("fourth [[text: new answer]]", resume=session, resume_session_at=at)
    read = [message.text for message in messages(cli, session) if message.type == "assistant"]
    cli.events("fifth", resume=session)
    assert read == said_by_the_model(cli) == ["kept answer", "new answer"]


def test_a_compaction_of_an_older_cli(cli: RealCLI) -> None:
    """Its boundary names the ends of what it kept alone: read as the CLI reads it."""
    session = session_of(cli.events("first [[text: old answer]]"))
    cli.events("second [[text: kept answer]]", resume=session)
    cli.events("/compact", resume=session)
    (path,) = cli.transcripts()
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    (metadata,) = [entry["compactMetadata"] for entry in entries if "compactMetadata" in entry]
    del metadata["preservedMessages"]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    cli.events("third [[text: new answer]]", resume=session)
    assert said_by_the_model(cli) == ["kept answer"]
    read = [message.text for message in messages(cli, session) if message.type == "assistant"]
    assert read == ["kept answer", "new answer"]


NAMES = {
    "dots": "a.b.c",
    "blanks": "two  words ",
    "composed": "caf\u00e9",
    "decomposed": "cafe\u0301",
    "emoji": "\U0001f680 \U0001f469\u200d\U0001f680",
    "long": "x" * 150 + "/" + "y" * 150,
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_directories(cli: RealCLI, name: str) -> None:
    """A session is listed under its directory and no other, and read from there."""
    directory = cli.root / name
    directory.mkdir(parents=True)
    twin = directory.parent / unicodedata.normalize("NFC", directory.name + " twin")
    twin.mkdir()
    session = cli.ask("hello", cwd=directory).session_id
    (info,) = sessions(cli, directory)
    assert (info.session_id, info.cwd) == (session, str(directory))
    assert info == get_session(session, directory, config_dir=cli.config_dir)
    assert info.project_key == cli.transcripts()[0].parent.name
    assert messages(cli, session, directory)
    assert sessions(cli, twin) == sessions(cli, cli.cwd) == []


def test_a_link_to_a_directory(cli: RealCLI) -> None:
    """It is the directory that it leads to, whichever of them the CLI was started in."""
    link = cli.root / "link"
    link.symlink_to(cli.cwd)
    through = cli.ask("one", cwd=link).session_id
    direct = cli.ask("two", cwd=cli.cwd).session_id
    for directory in (link, cli.cwd):
        assert [info.session_id for info in sessions(cli, directory)] == [direct, through]


@pytest.mark.parametrize("name", ["own", "cafe\u0301"])
def test_a_configuration_folder_of_its_own(cli: RealCLI, name: str) -> None:
    """What a client's own folder is called is what the functions are told."""
    folder = cli.root / name
    session = cli.ask("hello", config_dir=folder).session_id
    assert [info.session_id for info in list_sessions(cli.cwd, config_dir=folder)] == [session]
    assert get_messages(session, config_dir=folder)
    assert sessions(cli) == []


def test_a_renamed_session_is_resumed(cli: RealCLI) -> None:
    """By its new title; and the CLI keeps title and tag."""
    session = cli.ask("hello").session_id
    rename_session(session, "the caf\u00e9 \U0001f680", config_dir=cli.config_dir)
    tag_session(session, "blue", cli.cwd, config_dir=cli.config_dir)
    assert cli.ask("again", resume="the caf\u00e9 \U0001f680").session_id == session
    (info,) = sessions(cli)
    assert (info.summary, info.tag) == ("the caf\u00e9 \U0001f680", "blue")
    assert len(messages(cli, session)) == 4


def test_a_cut_transcript_is_renamed_and_resumed(cli: RealCLI) -> None:
    """Half a last line, as a killed CLI leaves it, costs neither the title nor the conversation."""
    session = cli.ask("remember 17").session_id
    with open(cli.transcripts()[0], "ab") as file:
        file.write(b'{"parentUuid":"x","type":"user","mess')
    rename_session(session, "cut", config_dir=cli.config_dir)
    assert cli.ask("go on", resume="cut").session_id == session
    assert "remember 17" in cli.api.last().user
    assert [message.type for message in messages(cli, session)] == ["user", "assistant", "user", "assistant"]


def test_a_copy_is_resumed(cli: RealCLI) -> None:
    """The model sees the history, tools included, and the original is left alone."""
    original = session_of(cli.events(f"remember 17 {ECHO}[[then]][[text: yes]]", allowed_tools=["Bash"]))
    before = [message.uuid for message in messages(cli, original)]
    copy = fork_session(original, cli.cwd, title="The copy", config_dir=cli.config_dir)
    assert sessions(cli, cli.cwd)[0].summary == "The copy"
    assert cli.ask("what?", resume=copy).session_id == copy
    assert "remember 17" in cli.api.last().user
    assert cli.api.last().results == ["hi"]
    assert [message.uuid for message in messages(cli, original)] == before
    assert [message.text for message in messages(cli, copy) if message.text][:2] == [
        message.text for message in messages(cli, original) if message.text
    ]
    assert cli.ask("by title", resume="The copy").session_id == copy


def test_turns_that_overlap(cli: RealCLI) -> None:
    """Of the branches that are shown is the one with which the CLI goes on, in a copy, too."""
    with cli.session() as session:
        first = session.ask("zero [[text: answer zero]]")
        slow = session.run("one [[delay: 3]][[text: answer one]]")
        cli.api.requests(2)
        cli.ask("two [[text: answer two]]", resume=first.session_id)
        slow.result()
        cli.ask("three [[text: answer three]]", resume=first.session_id)
    answers = [message.text for message in messages(cli, first.session_id) if message.type == "assistant"]
    assert answers == ["answer zero", "answer one"]
    copy = fork_session(first.session_id, config_dir=cli.config_dir)
    assert [message.text for message in messages(cli, copy) if message.type == "assistant"] == answers
    for each in (copy, first.session_id):
        cli.ask("and now?", resume=each)
        sent = [message["content"] for message in cli.api.last().body["messages"] if message["role"] == "assistant"]
        assert [block["text"] for content in sent for block in content] == answers


def test_a_copy_until_a_message_is_resumed(cli: RealCLI) -> None:
    """What came after that message is not in the copy."""
    first = cli.events("one [[text: answer one]]")
    cli.ask("two", resume=session_of(first))
    copy = fork_session(session_of(first), up_to=spoken(first)[-1], config_dir=cli.config_dir)
    cli.ask("three", resume=copy)
    assert "one" in cli.api.last().user
    assert "two" not in cli.api.last().user
    assert [message.text for message in messages(cli, copy)][:2] == ["one [[text: answer one]]", "answer one"]


def test_a_copy_after_a_compaction_is_resumed(cli: RealCLI) -> None:
    """The boundary is copied with what it kept: it reads the same, and the model sees it."""
    session = session_of(cli.events("first [[text: old answer]]"))
    cli.events("second [[text: kept answer]]", resume=session)
    cli.events("/compact", resume=session)
    cli.events("third [[text: new answer]]", resume=session)
    copy = fork_session(session, config_dir=cli.config_dir)
    texts = [message.text for message in messages(cli, copy)]
    assert texts == [message.text for message in messages(cli, session)]
    assert texts[1] == "kept answer"  # else this compaction kept nothing
    assert cli.ask("fourth", resume=copy).session_id == copy
    assert said_by_the_model(cli) == ["kept answer", "new answer"]


def test_a_copy_by_the_cli(cli: RealCLI) -> None:
    """Its own fork is listed beside the original, and read with the history."""
    original = cli.ask("one [[text: first]]").session_id
    copy = cli.ask("two [[text: second]]", resume=original, fork_session=True).session_id
    assert [info.session_id for info in sessions(cli)] == [copy, original]
    assert [message.text for message in messages(cli, copy) if message.type == "assistant"] == ["first", "second"]
    assert len(messages(cli, original)) == 2


def test_a_deleted_session_is_gone(cli: RealCLI) -> None:
    """Also for the CLI, with what its subagents wrote."""
    session = session_of(cli.events(f"go {SUBAGENT}[[then]][[text: done]]"))
    other = cli.ask("other").session_id
    delete_session(session, cli.cwd, config_dir=cli.config_dir)
    with pytest.raises(StaleSessionError):
        cli.ask("again", resume=session)
    assert [info.session_id for info in sessions(cli)] == [other]
    left = [name for _, folders, files in os.walk(cli.config_dir / "projects") for name in folders + files]
    assert sorted(left) == sorted([cli.transcripts()[0].parent.name, "memory", f"{other}.jsonl"])
