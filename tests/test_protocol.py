"""The control protocol as state: recorded conversations, and the ways they can go wrong."""

from __future__ import annotations

import json

import pytest

from claude_cli_client._protocol import Answered, Asked, Protocol, Refused, Withdrawn


def asked(id="r1", subtype="can_use_tool", **fields):
    return {"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}}


def said(line):
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return json.loads(line)


def test_a_question_of_ours_is_answered_once():
    """The reply comes back under the id that was given, with its body; a second one is nothing."""
    protocol = Protocol()
    id, line = protocol.request("set_model", {"model": "opus"})
    assert said(line) == {
        "type": "control_request",
        "request_id": id,
        "request": {"model": "opus", "subtype": "set_model"},
    }
    reply = {"type": "control_response", "response": {"subtype": "success", "request_id": id, "response": {"a": 1}}}
    assert protocol.receive(reply) == Answered(id, {"a": 1}, {})
    assert protocol.receive(reply) is None


def test_an_acknowledgement_has_no_body():
    """`response` is absent for plain acknowledgements: the body is empty."""
    protocol = Protocol()
    id, _ = protocol.request("interrupt", {})
    reply = {"type": "control_response", "response": {"subtype": "success", "request_id": id, "still": []}}
    assert protocol.receive(reply) == Answered(id, {}, {"still": []})


def test_a_refusal_has_the_words_of_the_cli():
    """An error reply carries its text and its code."""
    protocol = Protocol()
    id, _ = protocol.request("nonsense", {})
    response = {"subtype": "error", "request_id": id, "error": "no", "error_code": "unsupported_request"}
    item = protocol.receive({"type": "control_response", "response": response})
    assert item == Refused(id, "no", "unsupported_request")


def test_the_subtype_cannot_be_overridden_by_a_field():
    """A field named subtype does not change what is asked."""
    _, line = Protocol().request("interrupt", {"subtype": "end_session"})
    assert said(line)["request"] == {"subtype": "interrupt"}


def test_ids_are_unique():
    """No two questions of a process share an id."""
    protocol = Protocol()
    assert len({protocol.request("x", {})[0] for _ in range(100)}) == 100


def test_a_question_that_was_given_up():
    """Its late answer is dropped, and giving up twice says nothing twice."""
    protocol = Protocol()
    id, _ = protocol.request("a", {})
    assert said(protocol.give_up(id)) == {"type": "control_cancel_request", "request_id": id}
    assert protocol.give_up(id) is None
    assert protocol.receive({"type": "control_response", "response": {"subtype": "success", "request_id": id}}) is None


@pytest.mark.parametrize("id", ["0d8b", 7])
def test_a_question_of_theirs_is_answered_once(id):
    """One answer goes out, with the id as it came; a second one does not."""
    protocol = Protocol()
    item = protocol.receive(asked(id, tool_name="Bash"))
    assert item == Asked(id, "can_use_tool", {"subtype": "can_use_tool", "tool_name": "Bash"})
    assert said(protocol.answer(id, {"behavior": "allow"}))["response"] == {
        "subtype": "success",
        "request_id": id,
        "response": {"behavior": "allow"},
    }
    assert protocol.answer(id, {}) is None
    assert protocol.refuse(id, "late") is None


def test_a_withdrawn_question_gets_no_answer():
    """The CLI does not want it any more: the callback is told, and its answer is dropped."""
    protocol = Protocol()
    protocol.receive(asked("r1"))
    assert protocol.receive({"type": "control_cancel_request", "request_id": "r1"}) == Withdrawn("r1")
    assert protocol.answer("r1", {}) is None
    assert protocol.receive({"type": "control_cancel_request", "request_id": "r1"}) is None


def test_a_question_of_an_unknown_kind_is_passed_on():
    """It has to be answered, with an error, so somebody must hear of it."""
    assert Protocol().receive(asked("r1", "from_the_future")) == Asked(
        "r1", "from_the_future", {"subtype": "from_the_future"}
    )


def test_dialogs_that_we_did_not_declare_are_not_answered():
    """The protocol forbids it."""
    assert Protocol().receive(asked("r1", "request_user_dialog")) is None


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"type": "control_request"},
        {"type": "control_request", "request_id": None, "request": {"subtype": "x"}},
        {"type": "control_request", "request_id": [1], "request": {"subtype": "x"}},
        {"type": "control_response"},
        {"type": "control_response", "response": []},
        {"type": "control_response", "response": {"request_id": {}}},
        {"type": "control_response", "response": {"request_id": "unknown"}},
        {"type": "control_cancel_request"},
        {"type": "control_cancel_request", "request_id": {}},
        {"type": "something"},
    ],
)
def test_nonsense_is_nothing(frame):
    """No frame of any shape raises."""
    assert Protocol().receive(frame) is None


def test_prompts():
    """Text or blocks, with the uuid by which its result is known; literal ones say so."""
    protocol = Protocol()
    plain = said(protocol.prompt("hi", "u1"))
    assert plain["message"] == {"role": "user", "content": "hi"}
    assert plain["uuid"] == "u1"
    assert "client_composed" not in plain
    assert said(protocol.prompt([{"type": "text", "text": "/clear"}], "u2", literal=True))["client_composed"] is True


@pytest.mark.parametrize("text", ["a\u2028b", "x\ny\r\n", "\ud800", "\x00", "🎉", "\x85"])
def test_no_text_can_break_a_line(text):
    """Everything goes in ASCII: one line, whatever stands in it, and it comes back as it went."""
    line = Protocol().prompt(text, "u")
    assert line.isascii()
    assert said(line)["message"]["content"] == text


def test_numbers_that_json_does_not_have_are_refused():
    """NaN would end the CLI: it is an error here, before anything is written."""
    with pytest.raises(ValueError, match="JSON"):
        Protocol().request("x", {"a": float("nan")})


def test_an_answer_that_cannot_be_written_leaves_the_question_open():
    """So that it can be refused: the CLI would wait for ever for an answer that nobody wrote."""
    protocol = Protocol()
    protocol.receive(asked())
    with pytest.raises(ValueError, match="JSON"):
        protocol.answer("r1", {"x": float("nan")})
    assert said(protocol.refuse("r1", "no"))["response"]["subtype"] == "error"
    assert protocol.refuse("r1", "again") is None


def test_a_question_that_cannot_be_written_is_not_open():
    """Nobody will answer it."""
    protocol = Protocol()
    with pytest.raises(ValueError, match="JSON"):
        protocol.request("x", {"field": float("nan")})
    assert not protocol._ours
