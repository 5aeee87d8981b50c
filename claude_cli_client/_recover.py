"""What can still be read of a damaged line: a result, which is worth more than the rest of the turn, and
the first line, behind what somebody else printed.

And who waits, where a question or an answer of the CLI cannot be read.

Pure. Used only for lines that are no JSON object as they stand: a newline got lost, other output
was printed into the line, a part of it is missing.

One rule above all: a failure must never come out as a success. So a success is believed only where
it stands for certain among the line's own fields. A tool's input, which the line repeats in
`permission_denials`, may hold an object that looks like a result; once the brackets no longer say
what is nested in what (`doubtful`), everything that speaks of success is ignored, and an
`is_error: true` counts wherever it is found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

Json = dict[str, Any]

# Not strict: a raw control character in the answer does not cost the answer.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(strict=False).scan_once  # type: ignore[attr-defined]
_NO_JSON: Final = (ValueError, StopIteration, RecursionError)

# Quotes inside of JSON strings are escaped, so these can only be real keys and values.
_MARKS: Final = ('"type":"result"', '"subtype":"', '"session_id":"')
# None of these may look at a text twice: a line can be huge, and `re` holds up every thread. So blanks
# are bounded, and a string that does not end is one token.
_KEY: Final = re.compile(r'\s{0,64}[{,]\s{0,64}"(\w{1,64})":')
_NEXT_KEY: Final = re.compile(r'[{,]\s{0,64}"(\w{1,64})":')
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[][{}]', re.DOTALL)
_SCALAR_END: Final = re.compile(r"[,}\]]")
# With or without a blank behind commas and colons.
_ANSWER: Final = re.compile(
    r'\s{0,64}\{"type": ?"control_response", ?"response": ?\{(?:"subtype": ?"\w{1,50}", ?)?'
    r'"request_id": ?"([^"\\]{1,100})"'
)
_QUESTION: Final = re.compile(
    r'\s{0,64}\{"type": ?"control_request", ?"request_id": ?"([^"\\]{1,100})"'
    r'(?:, ?"request": ?\{"subtype": ?"(\w{1,50})")?'
)
# Each failure costs a look at the rest of the line, which may be huge.
_MAX_FAILURES: Final = 50


# How the CLI's first line begins. A wrapper may have printed in front of it, without a newline.
_FIRST: Final = re.compile(rb'\{"type":"(?:system","subtype":"init"|control_response",)')


def first_line(line: bytes) -> bytes:
    """The CLI's first line without what stands in front of it; b"" if nothing does, or it is another one."""
    found = None if line.startswith(b"{") else _FIRST.search(line)
    if found is None:
        return b""
    text = line[found.start() :].decode("utf-8", "replace")
    try:
        _, end = _scan(text, 0)
    except _NO_JSON:
        return b""
    return b"" if text[end:].strip() else line[found.start() :]


def recover(text: str) -> Json | None:
    """The fields of a damaged result line that can be read; None if it is not one."""
    text = text.lstrip()
    if not all(mark in text for mark in _MARKS):
        return frame(text, "its line is no JSON that can be read")
    at = 0
    while text.startswith("{", at):
        try:
            value, at = _scan(text, at)
        except _NO_JSON:
            return _field_by_field(text[at:])
        while text[at : at + 1].isspace():
            at += 1
        if value.get("type") == "result":
            # Before one of these it was not the line's own object, but one nested in it.
            return None if text.startswith((",", ":", "]", "}", '"'), at) else value
    return None


def frame(text: str, why: str) -> Json | None:
    """A control frame of the CLI that cannot be read, as what somebody can be told of it: its id and `why`.

    Who waits for it would wait for ever. Its id stands in front, as the CLI writes it. An answer becomes
    a refusal. So does a question of the CLI: that denies, and fails a tool call. But to a hook it means
    "go on", so that becomes a question for a hook that nobody registered, which fails closed.
    """
    if (answer := _ANSWER.match(text)) is not None:
        response = {"subtype": "error", "request_id": answer[1], "error": f"the answer cannot be read: {why}"}
        return {"type": "control_response", "response": response}
    match = _QUESTION.match(text)
    if match is None:
        return None
    request = {"subtype": match[2], "callback_id": ""} if match[2] == "hook_callback" else {"subtype": why}
    return {"type": "control_request", "request_id": match[1], "request": request}


def _field_by_field(text: str) -> Json | None:
    certain: Json = {}
    doubtful: Json = {}
    found, at, failures, failed = certain, 0, 0, False
    while failures < _MAX_FAILURES:
        match = _KEY.match(text, at)
        if match is None:
            if text[at:].strip() in ("", "}"):
                break
            if text.startswith("}", at):  # closed too early: what was read may have been nested
                doubtful, certain = {**doubtful, **certain}, {}
            found = doubtful
            match = _NEXT_KEY.search(text, at)
            if match is None:
                break
        key, at = match[1], match.end()
        try:
            found[key], at = _scan(text, at)
            failed = failed or (key == "is_error" and found[key] is True)
        except _NO_JSON:
            failures += 1
            end = _skipped(text, at) if found is certain else -1
            if end < 0:
                found = doubtful
            else:
                at = end
    data = {**doubtful, **certain}
    if data.get("type") != "result":
        return None
    completed = certain.get("is_error", certain.get("terminal_reason") != "completed") is False
    data["is_error"] = failed or not completed
    return data


def _skipped(text: str, at: int) -> int:
    """Where the unreadable value at `at` ends; -1 where its brackets do not match."""
    opened: list[str] = []
    for match in _TOKEN.finditer(text, at):
        if not opened and match.start() > at:  # neither a string nor brackets
            break
        token = match[0]
        if token in "[{":
            opened.append(token)
        elif token in "]}" and (not opened or opened.pop() + token not in ("[]", "{}")):
            return -1
        if not opened:
            return match.end()
    end = _SCALAR_END.search(text, at)
    return -1 if opened or end is None else end.start()
