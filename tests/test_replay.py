"""Lines that were kept: `parse_line`, `replay`, `is_stale_session`."""

import captures
import pytest
from captures import line, turn

import claude_cli_client
from claude_cli_client import Event, is_stale_session, parse_line, replay


def archive(tmp_path, content):
    file = tmp_path / "turn.jsonl"
    file.write_bytes(content)
    return file


# --- parse_line -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n", b"\n\n"])
def test_a_line_with_its_ending(ending):
    """Bytes or text, with or without the newline: the same event."""
    raw = line("text", "assistant/text")
    (event,) = parse_line(raw + ending)
    assert (event.type, event.text) == ("text", "hello there")
    assert parse_line((raw + ending).decode()) == [event]
    assert event.raw == raw.decode()


@pytest.mark.parametrize("content", ["", "\n", "  ", "Update available", "[]", "null", '{"type":"keep_alive"}', "{"])
def test_lines_without_events(content):
    """Blank lines, hidden frames and what is no JSON object give an empty list."""
    assert parse_line(content) == []
    assert parse_line(content.encode()) == []


def test_a_line_is_not_terminal():
    """Whether a result ends a turn, one line cannot know."""
    (event,) = parse_line(line("text", "result"))
    assert (event.type, event.is_terminal) == ("result", False)


def test_a_line_with_a_lone_surrogate():
    """Text that UTF-8 does not have is no reason to raise."""
    (event,) = parse_line('{"type":"system","subtype":"x","message":"a\ud800b"}')
    assert event.text.startswith("a")
    assert event.text.endswith("b")


def test_several_events_of_a_line():
    """A line with several events gives them in order."""
    raw = line("sse_cuttext_partial", "stream_event/message_stop")
    assert [event.type for event in parse_line(raw)] == ["retracted", "stream_event"]


# --- replay -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", captures.NAMES)
def test_a_recording_gives_the_events_of_its_run(name):
    """The same events as a run's, but for what no line holds: the exit code, and why there is no result."""
    expected = turn(name, resumed=True).events
    got = list(replay(captures.path(name)))
    assert got[:-1] == expected[:-1]
    end, other = got[-1], expected[-1]
    for field in ("type", "result", "errors", "error", "session_id", "model", "cost_usd", "raw"):
        assert getattr(end, field) == getattr(other, field), field
    assert (end.exit_code, end.is_terminal) == (None, True)


def test_a_path_of_any_kind(tmp_path):
    """`str`, `Path` and bytes are all the same."""
    file = archive(tmp_path, captures.stdout("text"))
    expected = list(replay(file))
    assert list(replay(str(file))) == expected
    assert list(replay(bytes(file))) == expected


def test_a_recording_without_an_end(tmp_path):
    """A file that breaks off, in the middle of a line or before the result, has an `error` as its end."""
    whole = captures.stdout("text")
    for content in (b"", whole[:100], whole[: whole.index(line("text", "result")) + 500]):
        *_, end = replay(archive(tmp_path, content))
        assert (end.type, end.subtype, end.is_terminal) == ("error", "process", True)
        assert "recording" in end.text


def test_a_recording_without_a_last_newline(tmp_path):
    """The last line counts without its newline."""
    content = captures.stdout("text").rstrip(b"\n")
    assert list(replay(archive(tmp_path, content)))[-1].result == "hello there"


def test_a_line_across_blocks(tmp_path):
    """Lines that are longer than a block of the file come whole, and odd ones between them cost nothing."""
    raw = line("text", "assistant/text").replace(b"hello there", b"x" * 300_000)
    content = b"banner\n" + raw + b"\n\n" + raw + b"\n" + line("text", "result") + b"\n"
    events = list(replay(archive(tmp_path, content)))
    assert [(event.type, len(event.text)) for event in events] == [("text", 300_000)] * 2 + [("result", 0)]


def test_a_missing_file(tmp_path):
    """It is an OSError at the call, not at the first event."""
    with pytest.raises(FileNotFoundError):
        replay(tmp_path / "nothing.jsonl")


def test_a_folder(tmp_path):
    """So is what is no file."""
    with pytest.raises(OSError):
        replay(tmp_path)


def test_closed_before_the_start(tmp_path):
    """`close` before the first event closes the file; there are no events then."""
    archived = replay(archive(tmp_path, captures.stdout("text")))
    archived.close()
    archived.close()
    assert list(archived) == []


def test_closed_in_the_middle(tmp_path):
    """After `close` no further event comes, also none that was read already."""
    archived = replay(archive(tmp_path, captures.stdout("task_background")))
    next(archived)
    archived.close()
    assert list(archived) == []
    assert archived._file.closed


def test_closed_at_the_end(tmp_path):
    """Iterating to the end closes the file; `close` after that is harmless, and the end stays the end."""
    archived = replay(archive(tmp_path, captures.stdout("text")))
    assert len(list(archived)) == 3
    assert archived._file.closed
    archived.close()
    assert next(archived, None) is None


def test_with(tmp_path):
    """Leaving `with` closes the file, also by an exception."""
    archived = replay(archive(tmp_path, captures.stdout("text")))
    with pytest.raises(KeyError), archived:
        raise KeyError
    assert archived._file.closed


def test_an_iterator(tmp_path):
    """It is its own iterator."""
    with replay(archive(tmp_path, b"")) as archived:
        assert iter(archived) is archived


# --- is_stale_session -------------------------------------------------------------------------------

STALE = {"resume_unknown", "resume_not_uuid", "resume_novalue", "resume_session_at_bad"}


@pytest.mark.parametrize("name", captures.NAMES)
def test_stale_sessions(name):
    """True of the end of a turn whose session does not exist, of no other end."""
    assert is_stale_session(turn(name).end) is (name in STALE)


def test_other_events_are_not_stale():
    """Nor of any event that is no end."""
    for name in captures.NAMES:
        assert not any(is_stale_session(event) for event in turn(name).events[:-1])
    assert not is_stale_session(Event())


def test_the_names_of_the_package():
    """They are functions of the package, imported on first use."""
    assert claude_cli_client.replay is replay
    assert {"replay", "parse_line", "is_stale_session"} <= set(dir(claude_cli_client))
