"""Lines to events: what the CLI prints, made flat. Tolerant of everything.

Pure: no thread, clock, file or process. Where a line begins and ends is `_lines.py`; what a turn's
events add up to is `_reduce.py`.

Rules, each with its reason:

* Decoding is per line and with replacement, so that bad bytes cost themselves and not the lines
  behind them.
* Nothing raises. A line that is no JSON object is "odd": counted and the last few kept for the
  error message. An object of a shape we do not expect becomes an event that carries the raw line.
* A result line that arrived damaged is worth more than the rest of the turn: its fields are
  recovered one by one (`_recover`).
* `bytes.decode` + `raw_decode` costs half of `json.loads(bytes)` at the size of a token delta,
  which is what most lines are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from ._lines import Odd
from .events import Event, make

Json = dict[str, Any]
Fields = dict[str, Any]

_raw_decode = json.JSONDecoder().raw_decode

def parse(line: bytes, odd: Odd) -> list[Event]:
    """The events of one line (without its newline); none where nobody should see it."""
    text = line.decode("utf-8", "replace")
    try:
        data, end = _raw_decode(text)
    except (ValueError, RecursionError):  # also: integers of more digits than Python converts
        return _second_try(line, text, odd)
    if data.__class__ is not dict or (end != len(text) and text[end:].strip()):
        return _second_try(line, text, odd)
    kind = data.get("type")
    if kind == "stream_event":  # most lines of a turn with partial messages
        delta = _text_delta(data, line)
        if delta is not None:
            return [delta]
    return events_of(data, line)


def events_of(data: Json, line: bytes) -> list[Event]:
    """The events of a decoded line, by the table `_TYPES`."""
    kind = data.get("type")
    if is_hidden(data):
        return []
    handler = _TYPES.get(kind, _forwarded) if isinstance(kind, str) else _forwarded
    try:
        return handler(data, line)
    except (TypeError, KeyError, AttributeError, ValueError, IndexError):
        # The shape is not the one we know: it still comes through, with its raw line.
        return _forwarded(data, line)


def is_hidden(data: Json) -> bool:
    """Whether a frame is talk between the CLI and its host that no user should see."""
    kind = data.get("type")
    return (
        kind in _HIDDEN_TYPES
        or (isinstance(kind, str) and kind.startswith("control_"))
        or data.get("sdk_host_only") is True
    )


_HIDDEN_TYPES: Final = ("keep_alive", "transcript_mirror")


def _second_try(line: bytes, text: str, odd: Odd) -> list[Event]:
    """A line that is no JSON object as it stands: blank, indented, damaged, or no JSON at all."""
    stripped = text.strip()
    if not stripped:
        return []
    if stripped != text:
        try:
            data = json.loads(stripped)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict):
            return events_of(data, line)
    recovered = _recover(text)
    if recovered is not None:
        return events_of(recovered, line)
    odd.add(line)
    return []


# --- fields ---------------------------------------------------------------------------------------


def _text_delta(data: Json, line: bytes) -> Event | None:
    """The fast path: a text delta in the shape of the captures, else None."""
    try:
        event = data["event"]
        delta = event["delta"]
        if delta["type"] != "text_delta":
            return None
        fields = {
            "type": "text_delta",
            "text": delta["text"],
            "block_index": event["index"],
            "message_id": data["api_message_id"],
            "session_id": data["session_id"],
            "uuid": data["uuid"],
            "_line": line,
        }
    except (KeyError, TypeError):
        return None
    if fields["text"].__class__ is not str or data.get("parent_tool_use_id"):
        return None
    return make(fields)


# (field of Event, key of the line, type that the value must have). A value of another type is
# left out: the raw line still has it.
_Spec = tuple[str, str, "type | tuple[type, ...]"]
_NUMBER: Final = (int, float)

_COMMON: Final[tuple[_Spec, ...]] = (
    ("session_id", "session_id", str),
    ("uuid", "uuid", str),
    ("parent_tool_use_id", "parent_tool_use_id", str),
    ("subtype", "subtype", str),
)
_TASK: Final[tuple[_Spec, ...]] = (
    ("task_id", "task_id", str),
    ("task_type", "subagent_type", str),
    ("task_kind", "task_type", str),
    ("task_description", "description", str),
    ("task_status", "status", str),
    ("tool_id", "tool_use_id", str),
    ("tool_name", "last_tool_name", str),
    ("text", "summary", str),
)
_TASK_USAGE: Final[tuple[_Spec, ...]] = (
    ("task_tokens", "total_tokens", int),
    ("task_steps", "tool_uses", int),
    ("task_ms", "duration_ms", int),
)
_SYSTEM: Final[tuple[_Spec, ...]] = (
    ("model", "model", str),
    ("tool_name", "tool_name", str),
    ("tool_id", "tool_use_id", str),
    ("error", "error", str),
    ("text", "message", str),
    ("text", "text", str),
    ("text", "content", str),
    ("text", "status", str),
    ("text", "title", str),
)
_HOOK: Final[tuple[_Spec, ...]] = (("text", "output", str), ("exit_code", "exit_code", int))
_RETRY: Final[tuple[_Spec, ...]] = (
    ("retry_attempt", "attempt", int),
    ("retry_max", "max_retries", int),
    ("retry_delay_ms", "retry_delay_ms", _NUMBER),
    ("api_error_status", "error_status", int),
    ("error", "error", str),
)
_RATE_LIMIT: Final[tuple[_Spec, ...]] = (
    ("rate_limit_status", "status", str),
    ("rate_limit_type", "rateLimitType", str),
    ("resets_at", "resetsAt", _NUMBER),
    ("utilization", "utilization", _NUMBER),
)
_RESULT: Final[tuple[_Spec, ...]] = (
    ("result", "result", str),
    ("is_error", "is_error", bool),
    ("num_turns", "num_turns", int),
    ("stop_reason", "stop_reason", str),
    ("terminal_reason", "terminal_reason", str),
    ("structured_output", "structured_output", object),
    ("result_index", "result_index", int),
    ("duration_ms", "duration_ms", _NUMBER),
    ("duration_api_ms", "duration_api_ms", _NUMBER),
    ("ttft_ms", "ttft_ms", _NUMBER),
    ("session_cost_usd", "total_cost_usd", _NUMBER),
    ("api_error_status", "api_error_status", int),
    ("error", "api_error", str),
    ("origin", "origin", dict),
)
_RESULT_USAGE: Final[tuple[_Spec, ...]] = (
    ("input_tokens", "input_tokens", int),
    ("output_tokens", "output_tokens", int),
    ("cache_read_tokens", "cache_read_input_tokens", int),
    ("cache_creation_tokens", "cache_creation_input_tokens", int),
)


def _take(fields: Fields, specs: tuple[_Spec, ...], source: Any) -> None:
    if not isinstance(source, dict):
        return
    for name, key, kind in specs:
        value = source.get(key)
        # `True` is an int to Python; a boolean where a number belongs is left out as well.
        if value is None or value == "" or not isinstance(value, kind):
            continue
        if value.__class__ is bool and kind in (int, _NUMBER):
            continue
        fields[name] = value


def _fields(data: Json, line: bytes, kind: str, *specs: tuple[_Spec, ...]) -> Fields:
    fields: Fields = {"type": kind, "_line": line}
    _take(fields, _COMMON, data)
    for spec in specs:
        _take(fields, spec, data)
    return fields


def _forwarded(data: Json, line: bytes) -> list[Event]:
    """A type we do not know, or a known one in an unknown shape: passed on."""
    kind = data.get("type")
    return [make(_fields(data, line, kind if isinstance(kind, str) and kind else "unknown"))]


# --- system ---------------------------------------------------------------------------------------


def _system(data: Json, line: bytes) -> list[Event]:
    subtype = data.get("subtype")
    kind, specs = _SUBTYPES.get(subtype if isinstance(subtype, str) else "", ("system", _SYSTEM))
    fields = _fields(data, line, kind, specs)
    if specs is _TASK:
        _take(fields, _TASK_USAGE, data.get("usage"))
        _take(fields, (("task_status", "status", str), ("text", "error", str)), data.get("patch"))
    return [make(fields)]


_SUBTYPES: Final[dict[str, tuple[str, tuple[_Spec, ...]]]] = {
    "task_started": ("task_started", _TASK),
    "task_progress": ("task_progress", _TASK),
    "task_updated": ("task_updated", _TASK),
    "task_notification": ("task_notification", _TASK),
    "api_retry": ("retry", _RETRY),
    "hook_started": ("hook", _HOOK),
    "hook_progress": ("hook", _HOOK),
    "hook_response": ("hook", _HOOK),
    "compact_boundary": ("compact_boundary", ()),
}


# --- messages -------------------------------------------------------------------------------------


def _assistant(data: Json, line: bytes) -> list[Event]:
    message = data["message"]
    base = _fields(data, line, "assistant")
    _take(base, (("message_id", "id", str), ("model", "model", str), ("stop_reason", "stop_reason", str)), message)
    if isinstance(data.get("error"), str) or data.get("is_api_error_message") is True:
        _take(base, (("error", "error", str), ("api_error_status", "api_error_status", int)), data)
        blocks = _ERROR_BLOCKS
    else:
        blocks = _ASSISTANT_BLOCKS
    return _message_events(message.get("content"), base, "assistant", blocks)


def _user(data: Json, line: bytes) -> list[Event]:
    base = _fields(data, line, "user")
    if data.get("isSynthetic") is True:
        base["is_synthetic"] = True
    content = data["message"].get("content")
    events = _message_events(content, base, "user", _USER_BLOCKS)
    outcome = data.get("tool_use_result")
    if outcome is not None and sum(event.type == "tool_result" for event in events) == 1:
        for event in events:
            if event.type == "tool_result":
                event.__dict__["tool_use_result"] = outcome
    return events


def _message_events(content: Any, base: Fields, role: str, blocks: dict[str, _Block]) -> list[Event]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        return [make(base)]  # a message without blocks is still news
    return [make(_block(block, index, base, role, blocks)) for index, block in enumerate(content)]


def _block(block: Any, index: int, base: Fields, role: str, blocks: dict[str, _Block]) -> Fields:
    kind = block.get("type") if isinstance(block, dict) else None
    fields: Fields = {**base, "block_index": index}
    if not isinstance(kind, str) or not kind:
        fields["type"] = f"{role}:unknown"
        return fields
    name, specs = blocks.get(kind, (f"{role}:{kind}", _ANY_BLOCK))
    fields["type"] = name
    _take(fields, specs, block)
    if name == "tool_result":
        fields["text"] = _flat_text(block.get("content"))
    return fields


_Block = tuple[str, tuple[_Spec, ...]]
_TEXT_BLOCK: Final[tuple[_Spec, ...]] = (("text", "text", str),)
_TOOL_BLOCK: Final[tuple[_Spec, ...]] = (
    ("tool_id", "id", str),
    ("tool_name", "name", str),
    ("tool_input", "input", dict),
)
_ANY_BLOCK: Final[tuple[_Spec, ...]] = (*_TOOL_BLOCK, ("tool_id", "tool_use_id", str), *_TEXT_BLOCK)
_ASSISTANT_BLOCKS: Final[dict[str, _Block]] = {
    "text": ("text", _TEXT_BLOCK),
    "thinking": ("thinking", (("text", "thinking", str),)),
    "tool_use": ("tool_use", _TOOL_BLOCK),
}
_ERROR_BLOCKS: Final[dict[str, _Block]] = {**_ASSISTANT_BLOCKS, "text": ("api_error", _TEXT_BLOCK)}
_USER_BLOCKS: Final[dict[str, _Block]] = {
    "text": ("user_text", _TEXT_BLOCK),
    "tool_result": ("tool_result", (("tool_id", "tool_use_id", str), ("is_tool_error", "is_error", bool))),
}


def _flat_text(content: Any) -> str:
    """The text of a tool's result: a string, or blocks of which those with text count."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


# --- partial messages -----------------------------------------------------------------------------

_DELTAS: Final = {
    "text_delta": ("text_delta", "text"),
    "thinking_delta": ("thinking_delta", "thinking"),
    "input_json_delta": ("tool_input_delta", "partial_json"),
}


def _stream_event(data: Json, line: bytes) -> list[Event]:
    event = data["event"]
    fields = _fields(data, line, "stream_event")
    _take(fields, (("message_id", "api_message_id", str), ("ttft_ms", "ttft_ms", int)), data)
    _take(fields, (("subtype", "type", str), ("block_index", "index", int)), event)
    delta = event.get("delta")
    known = _DELTAS.get(delta.get("type", "")) if isinstance(delta, dict) else None
    kind, key = known or ("", "")
    if kind:
        fields["type"] = kind
        del fields["subtype"]
        _take(fields, (("text", key, str),), delta)
    _take(fields, (("message_id", "id", str), ("model", "model", str)), event.get("message"))
    return [*_retracted(data, line), make(fields)]


def _retracted(data: Json, line: bytes) -> list[Event]:
    """What a broken stream voids: it stands on the `message_stop` that the CLI makes up for it."""
    abandoned = data.get("abandoned_blocks")
    if not isinstance(abandoned, dict):
        return []
    fields = _fields(data, line, "retracted")
    _take(fields, (("message_id", "api_message_id", str), ("block_index", "from_block_index", int)), abandoned)
    return [make(fields)]


# --- the rest -------------------------------------------------------------------------------------


def _rate_limit(data: Json, line: bytes) -> list[Event]:
    fields = _fields(data, line, "rate_limit")
    fields.setdefault("subtype", "rate_limit_event")
    _take(fields, _RATE_LIMIT, data.get("rate_limit_info"))
    return [make(fields)]


def _tool_progress(data: Json, line: bytes) -> list[Event]:
    """`tool_use_id` of the line is a made-up heartbeat id; the tool's own is the parent's."""
    fields = _fields(data, line, "tool_progress")
    _take(fields, (("tool_id", "tool_use_id", str), ("tool_name", "tool_name", str)), data)
    if data.get("heartbeat") is True and "parent_tool_use_id" in fields:
        fields["tool_id"] = fields.pop("parent_tool_use_id")
    return [make(fields)]


def _result(data: Json, line: bytes) -> list[Event]:
    fields = _fields(data, line, "result", _RESULT)
    _take(fields, _RESULT_USAGE, data.get("usage"))
    for name in ("errors", "permission_denials"):
        value = data.get(name)
        if isinstance(value, list) and value:
            fields[name] = tuple(value)
    share = data.get("model_usage_since_last_result")
    if isinstance(share, dict):
        fields["model_usage"] = share
        fields["cost_usd"] = float(sum(map(_cost, share.values())))
    elif isinstance(data.get("modelUsage"), dict):
        fields["model_usage"] = data["modelUsage"]
    return [make(fields)]


def _cost(usage: Any) -> float:
    cost = usage.get("costUSD") if isinstance(usage, dict) else None
    return cost if isinstance(cost, (int, float)) else 0.0


_TYPES: Final[dict[str, Callable[[Json, bytes], list[Event]]]] = {
    "system": _system,
    "assistant": _assistant,
    "user": _user,
    "stream_event": _stream_event,
    "rate_limit_event": _rate_limit,
    "tool_progress": _tool_progress,
    "result": _result,
}

_RESULT_KEYS: Final = tuple(
    dict.fromkeys(
        ["subtype", "session_id", "uuid", "errors", "permission_denials", "usage"]
        + ["model_usage_since_last_result", "modelUsage"]
        + [key for _, key, _ in _RESULT]
    )
)


def _recover(text: str) -> Json | None:
    """The fields of a damaged result line that can still be read; None if it is not one.

    Quotes inside JSON strings are escaped, so `"type":"result"` can only be a real key and value;
    the other two keys tell a result from a tool input that happens to hold the same pair.
    A result whose `is_error` is lost counts as failed unless it says that it completed: an error
    sentence must never pass as an answer.
    """
    if not text.lstrip().startswith("{") or '"type":"result"' not in text:
        return None
    if '"subtype":"' not in text or '"session_id":"' not in text:
        return None
    data: Json = {"type": "result"}
    for key in _RESULT_KEYS:
        start = text.find(f'"{key}":')
        if start >= 0:
            try:
                data[key] = _raw_decode(text, start + len(key) + 3)[0]
            except (ValueError, RecursionError):
                continue  # this one is what was damaged
    data.setdefault("is_error", data.get("terminal_reason") != "completed")
    return data
