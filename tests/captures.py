"""Recordings of the real CLI, 2.1.332, for the tests: what it printed, and how it ended.

`data/captures/NAME.jsonl` is stdout as it came; only the long constant lists in most `init` lines
are cut short. `data/captures/index.json` has argv, exit code and stderr.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from claude_cli_client._lines import LineCutter, Odd
from claude_cli_client._parse import parse
from claude_cli_client._reduce import Reducer
from claude_cli_client._verdict import Facts, verdict
from claude_cli_client.errors import TurnError
from claude_cli_client.events import Event

FOLDER = Path(__file__).parent / "data" / "captures"
ENDS: dict[str, dict[str, Any]] = json.loads((FOLDER / "index.json").read_text("utf-8"))
NAMES = tuple(ENDS)


def path(name: str) -> Path:
    return FOLDER / f"{name}.jsonl"


@functools.cache
def stdout(name: str) -> bytes:
    return path(name).read_bytes()


@functools.cache
def lines(name: str) -> tuple[bytes, ...]:
    """The lines of a recording, without their newlines; blank ones are left out."""
    return tuple(line for line in stdout(name).split(b"\n") if line)


def line(name: str, label: str, nth: int = 0) -> bytes:
    """The nth line of a recording whose `label_of` begins with this label."""
    return [line for line in lines(name) if f"{label_of(line)}/".startswith(f"{label}/")][nth]


def decoded(line: bytes) -> dict[str, Any]:
    """A line as the test's own `json` sees it."""
    value: dict[str, Any] = json.loads(line)
    return value


def encoded(data: object) -> bytes:
    """A line in the form in which the CLI writes it: compact, nothing escaped but controls and lone surrogates."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def events(name: str) -> list[Event]:
    """All events of a recording, as the parser gives them."""
    odd = Odd()
    return [event for line in lines(name) for event in parse(line, odd)]


class Turn(NamedTuple):
    """What a turn's lines came to."""

    events: list[Event]  # the terminal one is the last
    reducer: Reducer
    odd: Odd
    error: TurnError | None

    @property
    def end(self) -> Event:
        return self.events[-1]


def turn(
    stream: str | bytes | list[bytes], *, resumed: bool = False, exit_code: int | None = None, **facts: Any
) -> Turn:
    """Lines (of a recording, if a name is given) to the end of the turn and its verdict, as a run does it."""
    if isinstance(stream, str):
        known = ENDS[stream]
        facts = {"stderr": known["stderr"], "wants_schema": "--json-schema" in known["argv"], **facts}
        exit_code = known["exit_code"]
        stream = stdout(stream)
    if isinstance(stream, list):
        stream = b"".join(line + b"\n" for line in stream)
    cutter, odd, reducer = LineCutter(1 << 28), Odd(), Reducer(resumed=resumed)
    passed: list[Event] = []
    for line in [*cutter.feed(stream), *cutter.end()]:
        assert isinstance(line, bytes)
        passed += reducer.add(parse(line, odd))
    passed.append(reducer.end("process", "the CLI ended without a result", exit_code))
    known_of_turn = {
        "odd_lines": tuple(odd.last),
        "blocked": reducer.blocked,
        "resets_at": reducer.resets_at,
    }
    return Turn(passed, reducer, odd, verdict(passed[-1], Facts(**{**known_of_turn, **facts})))


def kinds() -> dict[str, bytes]:
    """One real line of each kind that the recordings have, by its label."""
    found: dict[str, bytes] = {}
    for name in NAMES:
        for line in lines(name):
            found.setdefault(label_of(line), line)
    found.pop("")
    return found


VALUES: tuple[Any, ...] = (None, "x", "", 7, -1.5, True, [1, "x", None], {"a": 1}, [], {})


def mutations(line: bytes) -> Iterator[bytes]:
    """The line with each of its keys and list items, at any depth, deleted or replaced by each of VALUES."""
    data = decoded(line)
    for holder, key in list(_places(data, 5)):
        kept = holder[key]
        for value in VALUES:
            holder[key] = value
            yield encoded(data)
        holder[key] = kept
        if isinstance(holder, dict):
            order = dict(holder)
            del holder[key]
            yield encoded(data)
            holder.clear()
            holder.update(order)


def _places(value: Any, depth: int) -> Iterator[tuple[Any, Any]]:
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))[:2]
    for key in keys:
        yield value, key
        if depth:
            yield from _places(value[key], depth - 1)


def label_of(line: bytes) -> str:
    """What a line is, in one word: type, subtype, then the type of its first block, or of its event and delta."""
    try:
        data = json.loads(line)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        return ""
    words = [data.get("type"), data.get("subtype")]
    event = data.get("event")
    if isinstance(event, dict):
        part = event.get("delta") or event.get("content_block") or {}
        words += [event["type"], part.get("type")]
    if isinstance(data.get("message"), dict):
        content = data["message"]["content"]
        words.append("string" if isinstance(content, str) else content[0]["type"])
    words += [word for word in ("is_error", "is_api_error_message", "origin") if data.get(word)]
    return "/".join(filter(None, words))
