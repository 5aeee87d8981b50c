"""Event: one flat, frozen value; compared by value, small to print, fit to be sent away."""

import copy
import dataclasses
import pickle
import sys

import captures
import pytest
from captures import line

import claude_cli_client
from claude_cli_client import events
from claude_cli_client._lines import Odd
from claude_cli_client._parse import parse
from claude_cli_client.events import Event, changed, make

FIELDS = {field.name: field for field in dataclasses.fields(Event)}
CALL = parse(line("tool_bash", "assistant/tool_use"), Odd())[0]
ANSWER = parse(line("text", "result"), Odd())[0]
DELTA = parse(line("partial_text", "stream_event/content_block_delta/text_delta"), Odd())[0]
SAMPLES = [Event(), Event("text", text="x"), CALL, ANSWER, DELTA, changed(ANSWER, exit_code=0, is_terminal=True)]

# Group by group, as the design has them; `tool_use_id`, `data` and `block` are derived.
_NAMES = """
    type subtype session_id uuid parent_tool_use_id message_id block_index model text origin is_synthetic raw
    is_terminal
    tool_id tool_name tool_input is_tool_error tool_use_result
    task_id task_type task_kind task_description task_status task_tokens task_steps task_ms
    result is_error errors num_turns stop_reason terminal_reason structured_output permission_denials result_index
    exit_code
    duration_ms duration_api_ms ttft_ms
    cost_usd session_cost_usd input_tokens output_tokens cache_read_tokens cache_creation_tokens model_usage
    error api_error_status retry_attempt retry_max retry_delay_ms
    rate_limit_status rate_limit_type resets_at utilization
"""
NAMES = _NAMES.split()


# --- fields -----------------------------------------------------------------------------------------


def test_the_fields():
    """The names are fixed, and so is their order."""
    assert list(FIELDS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_default_of_each_field(name):
    """Strings "", booleans False, numbers and objects None, lists (); the same on the class."""
    promised = FIELDS[name].type
    default = {"str": "", "bool": False}.get(promised, () if promised.startswith("tuple") else None)
    for holder in (Event(), Event):
        assert getattr(holder, name) == default
        assert type(getattr(holder, name)) is type(default)


def test_fields_by_name():
    """`type` by position or name, the others by name."""
    event = Event("text", text="a", block_index=0)
    assert event == Event(type="text", text="a", block_index=0)
    assert (event.type, event.text, event.block_index, event.uuid) == ("text", "a", 0, "")


@pytest.mark.parametrize("name", ["texts", "data", "block", "tool_use_id", "_line", "_data"])
def test_an_unknown_field(name):
    """It is a TypeError that names it."""
    with pytest.raises(TypeError, match=name):
        Event("text", **{name: "x"})


def test_only_the_type_by_position():
    """Nobody depends on the order of the others."""
    with pytest.raises(TypeError):
        Event("text", "subtype")


@pytest.mark.parametrize("name", NAMES)
def test_frozen(name):
    """No field can be set or deleted."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(ANSWER, name, "x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(ANSWER, name)


def test_frozen_for_new_names():
    """Nor can one be added."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        ANSWER.note = "x"


# --- values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", SAMPLES)
def test_equal_by_value(event):
    """The same fields are the same event, however it was made."""
    fields = {name: getattr(event, name) for name in NAMES}
    assert Event(**fields) == event
    assert hash(Event(**fields)) == hash(event)
    assert event not in [other for other in SAMPLES if other is not event]


@pytest.mark.parametrize("name", NAMES)
def test_unequal_by_any_field(name):
    """One field that differs is enough."""
    assert Event(**{name: "other"}) != Event()


def test_unequal_to_other_things():
    """Not equal to its type's name, a dict, or a subclass's instance."""

    class Other(Event):
        pass

    assert Event("text") != "text"
    assert Event("text") != {"type": "text"}
    assert Event("text") != Other("text")
    assert Event("text").__eq__("text") is NotImplemented


def test_fields_that_were_read_do_not_matter():
    """Reading `data` keeps the decoded line; the event is the same as before."""
    one, other = (parse(line("text", "result"), Odd())[0] for _ in range(2))
    assert one.data
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.dumps(one) == pickle.dumps(other)


def test_in_sets():
    """Events with equal values are one element, though they hold dicts."""
    assert len({*SAMPLES, *SAMPLES, changed(CALL)}) == len(SAMPLES)


@pytest.mark.parametrize("event", SAMPLES)
@pytest.mark.parametrize(
    "copied",
    [
        lambda event: pickle.loads(pickle.dumps(event)),
        lambda event: pickle.loads(pickle.dumps(event, protocol=0)),
        copy.copy,
        copy.deepcopy,
        dataclasses.replace,
        changed,
        lambda event: eval(repr(event), {"Event": Event}) if not event.raw else event,
    ],
    ids=["pickle", "pickle0", "copy", "deepcopy", "replace", "changed", "repr"],
)
def test_copies(event, copied):
    """Copies of every kind are equal, and have the line and its data."""
    other = copied(event)
    assert other == event
    assert (other.raw, other.data, other.block) == (event.raw, event.data, event.block)


def test_a_pickle_is_small():
    """It has the line once, and not the decoded dict."""
    assert ANSWER.data
    assert len(pickle.dumps(ANSWER)) < 2 * len(ANSWER.raw)


def test_replace():
    """`dataclasses.replace` changes what it is told, and refuses unknown names."""
    other = dataclasses.replace(ANSWER, result="other", is_terminal=True)
    assert (other.result, other.is_terminal, other.num_turns, other.raw) == ("other", True, 1, ANSWER.raw)
    assert ANSWER.result == "hello there"
    with pytest.raises(TypeError):
        dataclasses.replace(ANSWER, nothing=1)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="copy.replace is new in Python 3.13")
def test_copy_replace():
    """So does `copy.replace`."""
    assert copy.replace(ANSWER, result="other") == dataclasses.replace(ANSWER, result="other")


@pytest.mark.parametrize("event", SAMPLES)
def test_as_a_dict(event):
    """`asdict` and `astuple` give every field."""
    fields = dataclasses.asdict(event)
    assert list(fields) == NAMES
    assert Event(**fields) == event
    assert dataclasses.astuple(event) == tuple(fields.values())


def test_it_is_a_dataclass():
    """Tools that look for dataclasses find one."""
    assert dataclasses.is_dataclass(Event)
    assert Event.__dataclass_params__.frozen


# --- to look at -------------------------------------------------------------------------------------


def test_repr_shows_what_is_set():
    """Only fields that differ from their defaults, never the line."""
    assert repr(Event("text", text="a", block_index=0)) == "Event(type='text', block_index=0, text='a')"
    assert repr(Event()) == "Event()"
    assert "raw" not in repr(ANSWER)


@pytest.mark.parametrize("name", captures.NAMES)
def test_repr_is_short(name):
    """Long values are cut: what a debugger or a log shows stays readable."""
    for event in captures.events(name):
        assert len(repr(event)) < 2500


def test_repr_of_something_huge():
    """Not even a megabyte of text makes it long."""
    assert len(repr(Event("text", text="x" * 10**6, tool_input={"a": "y" * 10**6}))) < 600


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Event("text", text="hello"), "hello"),
        (Event("tool_use", tool_name="Bash", tool_input={"command": "ls ä"}), 'Bash({"command": "ls ä"})'),
        (Event("tool_result", text="a\nb", tool_name="Bash"), "a\nb"),
        (Event("result", result="the answer", text="x"), "the answer"),
        (Event("result", errors=("one", "two")), "one; two"),
        (Event("result", result="r", errors=("one",)), "r"),
        (Event("error", text="it was cancelled"), "it was cancelled"),
        (Event("error", text="it was cancelled", result="so far"), "it was cancelled"),
        (Event("system", subtype="status"), ""),
        (Event(), ""),
        (ANSWER, "hello there"),
        (DELTA, DELTA.text),
    ],
)
def test_str_is_the_human_text(event, text):
    """Of a result the answer, of a call its name and input, of a failure its words."""
    assert str(event) == text
    assert f"{event}" == text


def test_pattern_matching():
    """`match` works with keywords, and captures."""
    match CALL:
        case Event(type="text"):
            found = "text"
        case Event(type="tool_use", tool_name=name, tool_input={"command": _}):
            found = name
    assert found == "Bash"


def test_no_pattern_by_position():
    """Positions in a pattern would depend on the order of 55 fields."""

    def matched():
        match CALL:
            case Event("tool_use"):
                return True

    with pytest.raises(TypeError):
        matched()


# --- derived ----------------------------------------------------------------------------------------


def test_tool_use_id():
    """It is `tool_id` under the API's name."""
    assert CALL.tool_use_id == CALL.tool_id != ""


def test_data_is_decoded_once():
    """`data` is the whole line as a dict, the same object each time."""
    assert CALL.data is CALL.data
    assert CALL.data["message"]["content"][0]["name"] == "Bash"


@pytest.mark.parametrize("raw", ["", "no json", "[1]", "{", "9" * 5000, "[" * 100_000, '{"a":' * 100_000])
def test_data_of_no_object(raw):
    """Where there is no line, or no object in it, `data` is empty and `block` is None."""
    event = Event("x", raw=raw)
    assert (event.raw, event.data, event.block) == (raw, {}, None)


def test_block_of_each_kind():
    """A content block, the delta of a partial message, the block that a stream event begins; else None."""
    assert CALL.block == CALL.data["message"]["content"][0]
    assert DELTA.block == DELTA.data["event"]["delta"]
    (begin,) = parse(line("partial_tool", "stream_event/content_block_start/tool_use"), Odd())
    assert begin.block["type"] == "tool_use"
    (stop,) = parse(line("partial_tool", "stream_event/content_block_stop"), Odd())
    assert stop.block is None
    assert ANSWER.block is None


def test_raw_is_the_line():
    """What the CLI printed, without its newline."""
    assert ANSWER.raw.encode() == line("text", "result")


def test_made_events_take_the_dict_over():
    """`make` fills the event with exactly these fields."""
    event = make({"type": "text", "text": "a", "_line": b"{}"})
    assert (event.type, event.text, event.raw, event.session_id) == ("text", "a", "{}", "")


def test_changed_shares_the_line():
    """A changed copy keeps the bytes of the line, not a copy of them."""
    assert changed(ANSWER, exit_code=1).__dict__["_line"] is ANSWER.__dict__["_line"]


# --- constants --------------------------------------------------------------------------------------


def test_constants_are_the_types():
    """Each constant is the string that its name says, and is exported."""
    for name in events.__all__:
        if name != "Event":
            assert getattr(claude_cli_client, name) == name.lower()


def test_every_type_has_a_constant():
    """Each type that the parser and the reducer give to known lines has one."""
    constants = {getattr(events, name) for name in events.__all__ if name != "Event"}
    found = {event.type for name in captures.NAMES for event in captures.turn(name).events}
    passed_on = {"conversation_reset", "command_lifecycle"}
    assert {kind for kind in found if ":" not in kind} - passed_on <= constants
    assert constants - found <= {"init", "oversize", "mirror_error"}  # a subtype, and what we make ourselves
