"""Lines to events: what the CLI prints, made flat. Tolerant of everything.

Pure: no thread, clock, file or process. Where a line begins and ends is `_lines.py`; what a turn's
events add up to is `_reduce.py`.

Rules, each with its reason:

* Decoding is per line and with replacement, so that bad bytes cost themselves and not the lines
  behind them.
* Nothing raises. A line that is no JSON object is "odd": counted and the last few kept for the
  error message. An object of a shape we do not expect becomes an event that carries the raw line.
* A damaged result line is worth more than the rest of the turn: see `_recover.py`.
* `bytes.decode` + the scanner costs half of `json.loads(bytes)` at the size of a token delta.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from ._lines import Odd
from .events import Event, make, printable

Json = dict[str, Any]
Fields = dict[str, Any]

# What `json.loads` calls in the end, without three layers of Python above it. It raises StopIteration
# where there is no JSON value at all.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_NO_JSON: Final = (ValueError, StopIteration, RecursionError)


def parse(line: bytes, odd: Odd, control: Callable[[Json, bytes], object] | None = None) -> list[Event]:
    """The events of one line (without its newline). What nobody should see goes to `control`."""
    text = line.decode("utf-8", "replace")
    try:
        data, end = _scan(text, 0)
    except _NO_JSON:  # also: integers of more digits than Python converts
        return _second_try(line, text, odd, control)
    if data.__class__ is not dict or (end != len(text) and text[end:].strip()):
        return _second_try(line, text, odd, control)
    kind = data.get("type")
    if kind == "stream_event":  # most lines of a turn with partial messages
        delta = _text_delta(data, line)
        if delta is not None:
            return [delta]
    return events_of(data, line, control)


def events_of(data: Json, line: bytes, control: Callable[[Json, bytes], object] | None = None) -> list[Event]:
    """The events of a decoded line, by the table `_TYPES`."""
    kind = data.get("type")
    handler = _TYPES.get(kind) if kind.__class__ is str else None
    if handler is None or "sdk_host_only" in data:
        if is_hidden(data):
            if control is not None:
                control(data, line)
            return []
        handler = handler or _forwarded
    try:
        return handler(data, line)
    except (TypeError, KeyError, AttributeError, ValueError, IndexError):
        # The shape is not the one we know: it still comes through, with its raw line.
        return _forwarded(data, line)


def is_hidden(data: Json) -> bool:
    """Whether a frame is talk between the CLI and its host that no user should see."""
    kind = data.get("type")
    is_control = isinstance(kind, str) and kind.startswith("control_")
    return is_control or kind in _HIDDEN_TYPES or data.get("sdk_host_only") is True


_HIDDEN_TYPES: Final = ("keep_alive", "transcript_mirror")


def _second_try(line: bytes, text: str, odd: Odd, control: Callable[[Json, bytes], object] | None) -> list[Event]:
    """A line that is no JSON object as it stands: blank, indented, damaged, or no JSON at all."""
    bare = line.strip()
    if not bare or not text.strip():
        return []
    from ._recover import first_line, recover  # its patterns cost import time, and hardly any line comes here

    if bare != line or (bare := first_line(line)):
        return parse(bare, odd, control)
    if recovered := recover(text):
        return events_of(recovered, line, control)
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
        text, index, uuid = delta["text"], event["index"], data["uuid"]
        message, session = data["api_message_id"], data["session_id"]
    except (KeyError, TypeError):
        return None
    if not (text.__class__ is uuid.__class__ is message.__class__ is session.__class__ is str):
        return None
    if index.__class__ is not int or data.get("parent_tool_use_id") or "sdk_host_only" in data:
        return None
    return make(
        {
            "type": "text_delta",
            "text": text if text.isascii() else printable(text),
            "block_index": index,
            "message_id": message,
            "session_id": session,
            "uuid": uuid,
            "_line": line,
        }
    )


# (field of Event, key of the line, classes that the value may have). A value of another class is
# left out: the raw line still has it. Exact classes, so that `true` is not a number.
_Spec = tuple[str, str, frozenset[type]]
_STR: Final = frozenset({str})
_INT: Final = frozenset({int})
_BOOL: Final = frozenset({bool})
_DICT: Final = frozenset({dict})
_NUMBER: Final = frozenset({int, float})
_ANY: Final = frozenset({str, int, float, bool, dict, list})

_COMMON: Final[tuple[_Spec, ...]] = (
    ("session_id", "session_id", _STR),
    ("uuid", "uuid", _STR),
    ("parent_tool_use_id", "parent_tool_use_id", _STR),
    ("subtype", "subtype", _STR),
)
_TASK: Final[tuple[_Spec, ...]] = (
    ("task_id", "task_id", _STR),
    ("task_type", "subagent_type", _STR),
    ("task_kind", "task_type", _STR),
    ("task_description", "description", _STR),
    ("task_status", "status", _STR),
    ("tool_id", "tool_use_id", _STR),
    ("tool_name", "last_tool_name", _STR),
    ("text", "summary", _STR),
)
_TASK_USAGE: Final[tuple[_Spec, ...]] = (
    ("task_tokens", "total_tokens", _INT),
    ("task_steps", "tool_uses", _INT),
    ("task_ms", "duration_ms", _INT),
)
_SYSTEM: Final[tuple[_Spec, ...]] = (
    ("model", "model", _STR),
    ("tool_name", "tool_name", _STR),
    ("tool_id", "tool_use_id", _STR),
    ("error", "error", _STR),
    ("text", "message", _STR),
    ("text", "text", _STR),
    ("text", "content", _STR),
    ("text", "status", _STR),
    ("text", "title", _STR),
)
_HOOK: Final[tuple[_Spec, ...]] = (("text", "output", _STR), ("exit_code", "exit_code", _INT))
_RETRY: Final[tuple[_Spec, ...]] = (
    ("retry_attempt", "attempt", _INT),
    ("retry_max", "max_retries", _INT),
    ("retry_delay_ms", "retry_delay_ms", _NUMBER),
    ("api_error_status", "error_status", _INT),
    ("error", "error", _STR),
)
_RATE_LIMIT: Final[tuple[_Spec, ...]] = (
    ("rate_limit_status", "status", _STR),
    ("rate_limit_type", "rateLimitType", _STR),
    ("resets_at", "resetsAt", _NUMBER),
    ("utilization", "utilization", _NUMBER),
)
_RESULT: Final[tuple[_Spec, ...]] = (
    ("result", "result", _STR),
    ("is_error", "is_error", _BOOL),
    ("num_turns", "num_turns", _INT),
    ("stop_reason", "stop_reason", _STR),
    ("terminal_reason", "terminal_reason", _STR),
    ("structured_output", "structured_output", _ANY),
    ("result_index", "result_index", _INT),
    ("duration_ms", "duration_ms", _NUMBER),
    ("duration_api_ms", "duration_api_ms", _NUMBER),
    ("ttft_ms", "ttft_ms", _NUMBER),
    ("session_cost_usd", "total_cost_usd", _NUMBER),
    ("api_error_status", "api_error_status", _INT),
    ("error", "api_error", _STR),
    ("origin", "origin", _DICT),
)
_RESULT_USAGE: Final[tuple[_Spec, ...]] = (
    ("input_tokens", "input_tokens", _INT),
    ("output_tokens", "output_tokens", _INT),
    ("cache_read_tokens", "cache_read_input_tokens", _INT),
    ("cache_creation_tokens", "cache_creation_input_tokens", _INT),
)


def _take(fields: Fields, specs: tuple[_Spec, ...], source: Any) -> None:
    if source.__class__ is not dict:
        return
    get = source.get
    for name, key, classes in specs:
        value: Any = get(key)
        kind = value.__class__
        if kind in classes:
            fields[name] = value if kind is not str or value.isascii() else printable(value)


def _fields(data: Json, line: bytes, kind: str, specs: tuple[_Spec, ...] = ()) -> Fields:
    fields: Fields = {"type": kind, "_line": line}
    _take(fields, _COMMON, data)
    if specs:
        _take(fields, specs, data)
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
        _take(fields, (("task_status", "status", _STR), ("text", "error", _STR)), data.get("patch"))
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
    _take(base, _MESSAGE, message)
    blocks = _ASSISTANT_BLOCKS
    if "error" in data or "is_api_error_message" in data:
        _take(base, _MESSAGE_ERROR, data)
        if "error" in base or data.get("is_api_error_message") is True:
            blocks = _ERROR_BLOCKS
    return _message_events(message.get("content"), base, "assistant", blocks)


def _user(data: Json, line: bytes) -> list[Event]:
    base = _fields(data, line, "user")
    if data.get("isSynthetic") is True:
        base["is_synthetic"] = True
    events = _message_events(data["message"].get("content"), base, "user", _USER_BLOCKS)
    outcome = data.get("tool_use_result")
    if outcome is not None:
        results = [event for event in events if event.type == "tool_result"]
        if len(results) == 1:  # else nobody can say whose it is
            results[0].__dict__["tool_use_result"] = outcome
    return events


def _message_events(content: Any, base: Fields, role: str, blocks: dict[str, _Block]) -> list[Event]:
    if content.__class__ is str:
        content = [{"type": "text", "text": content}]
    if content.__class__ is not list or not content:
        return [make(base)]  # a message without blocks is still news
    if len(content) == 1:  # as the CLI writes them
        return [make(_block(content[0], 0, base, role, blocks))]
    return [make(_block(block, index, {**base}, role, blocks)) for index, block in enumerate(content)]


def _block(block: Any, index: int, fields: Fields, role: str, blocks: dict[str, _Block]) -> Fields:
    """Complete the fields of a message with those of one of its blocks."""
    fields["block_index"] = index
    kind = block.get("type") if block.__class__ is dict else None
    if kind.__class__ is not str or not kind:
        fields["type"] = f"{role}:unknown"
        return fields
    known = blocks.get(kind)
    fields["type"], specs = known or (f"{role}:{kind}", _ANY_BLOCK)
    _take(fields, specs, block)
    if specs is _TOOL_RESULT_BLOCK:
        fields["text"] = printable(_flat_text(block.get("content")))
    return fields


_MESSAGE: Final[tuple[_Spec, ...]] = (
    ("message_id", "id", _STR),
    ("model", "model", _STR),
    ("stop_reason", "stop_reason", _STR),
)
_MESSAGE_ERROR: Final[tuple[_Spec, ...]] = (
    ("error", "error", _STR),
    ("api_error_status", "api_error_status", _INT),
)
_TOOL_RESULT_BLOCK: Final[tuple[_Spec, ...]] = (
    ("tool_id", "tool_use_id", _STR),
    ("is_tool_error", "is_error", _BOOL),
)
_Block = tuple[str, tuple[_Spec, ...]]
_TEXT_BLOCK: Final[tuple[_Spec, ...]] = (("text", "text", _STR),)
_TOOL_BLOCK: Final[tuple[_Spec, ...]] = (
    ("tool_id", "id", _STR),
    ("tool_name", "name", _STR),
    ("tool_input", "input", _DICT),
)
_ANY_BLOCK: Final[tuple[_Spec, ...]] = (*_TOOL_BLOCK, ("tool_id", "tool_use_id", _STR), *_TEXT_BLOCK)
_ASSISTANT_BLOCKS: Final[dict[str, _Block]] = {
    "text": ("text", _TEXT_BLOCK),
    "thinking": ("thinking", (("text", "thinking", _STR),)),
    "tool_use": ("tool_use", _TOOL_BLOCK),
}
_ERROR_BLOCKS: Final[dict[str, _Block]] = {**_ASSISTANT_BLOCKS, "text": ("api_error", _TEXT_BLOCK)}
_USER_BLOCKS: Final[dict[str, _Block]] = {
    "text": ("user_text", _TEXT_BLOCK),
    "tool_result": ("tool_result", _TOOL_RESULT_BLOCK),
}


def _flat_text(content: Any) -> str:
    """The text of a tool's result: a string, or blocks of which those with text count."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
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
    _take(fields, (("message_id", "api_message_id", _STR), ("ttft_ms", "ttft_ms", _INT)), data)
    _take(fields, (("subtype", "type", _STR), ("block_index", "index", _INT)), event)
    delta = event.get("delta")
    known = _DELTAS.get(delta.get("type", "")) if isinstance(delta, dict) else None
    kind, key = known or ("", "")
    if kind:
        fields["type"] = kind
        del fields["subtype"]
        _take(fields, (("text", key, _STR),), delta)
    _take(fields, (("message_id", "id", _STR), ("model", "model", _STR)), event.get("message"))
    return [*_retracted(data, line), make(fields)]


def _retracted(data: Json, line: bytes) -> list[Event]:
    """What a broken stream voids: it stands on the `message_stop` that the CLI makes up for it."""
    abandoned = data.get("abandoned_blocks")
    if not isinstance(abandoned, dict):
        return []
    fields = _fields(data, line, "retracted")
    _take(fields, (("message_id", "api_message_id", _STR), ("block_index", "from_block_index", _INT)), abandoned)
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
    _take(fields, (("tool_id", "tool_use_id", _STR), ("tool_name", "tool_name", _STR)), data)
    if data.get("heartbeat") is True and "parent_tool_use_id" in fields:
        fields["tool_id"] = fields.pop("parent_tool_use_id")
    return [make(fields)]


# The terminal reasons of results that are no failures by themselves.
_SUCCESSES: Final = frozenset(
    {"completed", "stop_hook_prevented", "hook_stopped", "tool_deferred", "tool_deferred_unavailable"}
)


def _result(data: Json, line: bytes) -> list[Event]:
    fields = _fields(data, line, "result", _RESULT)
    _take(fields, _RESULT_USAGE, data.get("usage"))
    errors, denials = data.get("errors"), data.get("permission_denials")
    if isinstance(errors, list) and errors:
        fields["errors"] = tuple(printable(item) for item in errors if isinstance(item, str))
    if isinstance(denials, list) and denials:
        fields["permission_denials"] = tuple(item for item in denials if isinstance(item, dict))
    if "is_error" not in fields:  # or no boolean: a failure must not come out as a success
        failed = data.get("is_error") or "api_error_status" in fields
        fields["is_error"] = bool(failed) or fields.get("terminal_reason", "completed") not in _SUCCESSES
    if "session_cost_usd" in fields:
        fields["session_cost_usd"] = _money(fields["session_cost_usd"])
    share = data.get("model_usage_since_last_result")
    if isinstance(share, dict):
        fields["model_usage"] = share
        fields["cost_usd"] = sum((_money(use.get("costUSD")) for use in share.values() if isinstance(use, dict)), 0.0)
    elif isinstance(data.get("modelUsage"), dict):
        fields["model_usage"] = data["modelUsage"]
    return [make(fields)]


def _money(cost: Any) -> float:
    """A sum that can be added to others: no NaN, and no integer that is too large for a float."""
    return cost if isinstance(cost, (int, float)) and abs(cost) < 1e12 else 0.0


_TYPES: Final[dict[str, Callable[[Json, bytes], list[Event]]]] = {
    "system": _system,
    "assistant": _assistant,
    "user": _user,
    "stream_event": _stream_event,
    "rate_limit_event": _rate_limit,
    "tool_progress": _tool_progress,
    "result": _result,
}
