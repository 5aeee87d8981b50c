"""Event: one flat, frozen value for everything that happens in a turn.

Pure data. Whether a line of the CLI becomes which events is decided in `_parse.py`; which event
ends a turn, in `_reduce.py`.

Why it looks unusual for a dataclass:

* A turn can bring 100,000 events, and a generated `__init__` with 55 fields costs ten times as
  much as all the rest of parsing one. So the defaults are class attributes, an instance holds in
  its `__dict__` only what differs from them, and the parser fills that dict directly (`make`).
  The same trick makes an event small: an absent field costs nothing.
* The line is kept as the bytes that came, and decoded on each use of `raw`; keeping the decoded
  dict as well doubles an event's size. `data` is decoded on first use and then kept.
* `dataclass` generates and compiles a method per option; four short ones by hand save 1 ms of
  import.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

__all__ = [
    "API_ERROR",
    "COMPACT_BOUNDARY",
    "ERROR",
    "HOOK",
    "INIT",
    "MIRROR_ERROR",
    "OVERSIZE",
    "RATE_LIMIT",
    "RESULT",
    "RETRACTED",
    "RETRY",
    "STREAM_EVENT",
    "SYSTEM",
    "TASK_NOTIFICATION",
    "TASK_PROGRESS",
    "TASK_RESULT",
    "TASK_STARTED",
    "TASK_UPDATED",
    "TEXT",
    "TEXT_DELTA",
    "THINKING",
    "THINKING_DELTA",
    "TOOL_INPUT_DELTA",
    "TOOL_PROGRESS",
    "TOOL_RESULT",
    "TOOL_USE",
    "USER_TEXT",
    "Event",
]

INIT: Final = "init"  # a subtype: `event.type == SYSTEM and event.subtype == INIT`
SYSTEM: Final = "system"
TEXT: Final = "text"
THINKING: Final = "thinking"
TOOL_USE: Final = "tool_use"
TOOL_RESULT: Final = "tool_result"
USER_TEXT: Final = "user_text"
API_ERROR: Final = "api_error"
TEXT_DELTA: Final = "text_delta"
THINKING_DELTA: Final = "thinking_delta"
TOOL_INPUT_DELTA: Final = "tool_input_delta"
RETRACTED: Final = "retracted"
STREAM_EVENT: Final = "stream_event"
TASK_STARTED: Final = "task_started"
TASK_PROGRESS: Final = "task_progress"
TASK_UPDATED: Final = "task_updated"
TASK_NOTIFICATION: Final = "task_notification"
TASK_RESULT: Final = "task_result"
RETRY: Final = "retry"
RATE_LIMIT: Final = "rate_limit"
TOOL_PROGRESS: Final = "tool_progress"
HOOK: Final = "hook"
COMPACT_BOUNDARY: Final = "compact_boundary"
MIRROR_ERROR: Final = "mirror_error"  # made up: something was not stored, see `Client(store=)`
OVERSIZE: Final = "oversize"
RESULT: Final = "result"
ERROR: Final = "error"


class _Line:
    """`raw`: the line as text, decoded at each use from the bytes that the event keeps.

    A non-data descriptor: read from the class it is the field's default, "".
    """

    def __get__(self, event: Event | None, owner: type[Event]) -> str:
        if event is None:
            return ""
        line: bytes = event.__dict__.get("_line", b"")
        return line.decode("utf-8", "replace")


@dataclass(frozen=True, init=False, eq=False, repr=False, match_args=False)
class Event:
    """One thing that happened in a turn. Compared by value; every field has a default.

    Strings default to "", booleans to False, numbers and objects to None, lists to ().
    `type` says what it is, as a plain string; the other fields are filled where the type has them.
    Lists arrive as tuples. Dictionaries are the decoded ones: do not change them.
    """

    # --- all
    type: str = ""
    subtype: str = ""  # the CLI's own word, where it has one
    session_id: str = ""
    uuid: str = ""  # of the line
    parent_tool_use_id: str = ""  # the Task call whose subagent speaks; "" in the main turn
    message_id: str = ""  # the API's id; all blocks of one message share it
    block_index: int | None = None  # blocks: place in the line's content; deltas: in the message
    model: str = ""
    text: str = ""  # the human text of the event, whatever it is
    origin: Mapping[str, Any] | None = None  # of a result that no prompt of ours caused
    is_synthetic: bool = False  # a user line that the CLI made up
    if TYPE_CHECKING:
        raw: str = ""
    else:
        raw: str = _Line()
    is_terminal: bool = False  # set on the last event of a run
    # --- tools
    tool_id: str = ""
    tool_name: str = ""
    tool_input: Mapping[str, Any] | None = None
    is_tool_error: bool = False
    tool_use_result: Any = None  # tool-specific: a dict, or a string after a failure
    # --- tasks: subagents and background commands
    task_id: str = ""
    task_type: str = ""  # the subagent's type, e.g. "Explore"
    task_kind: str = ""  # "local_agent", "local_bash"
    task_description: str = ""
    task_status: str = ""  # "completed", "failed", "killed", "stopped"
    task_tokens: int | None = None
    task_steps: int | None = None  # tool calls so far
    task_ms: int | None = None  # milliseconds
    # --- result
    result: str = ""  # the answer
    is_error: bool = False
    errors: tuple[str, ...] = ()
    num_turns: int | None = None
    stop_reason: str = ""
    terminal_reason: str = ""
    structured_output: Any = None
    permission_denials: tuple[Mapping[str, Any], ...] = ()
    result_index: int | None = None
    exit_code: int | None = None  # of the CLI, on the terminal event; negative: died of that signal
    # --- time, in milliseconds
    duration_ms: float | None = None  # this turn
    duration_api_ms: float | None = None  # the whole session
    ttft_ms: float | None = None  # time to first token
    # --- money
    cost_usd: float | None = None  # this run
    session_cost_usd: float | None = None  # the whole session: resumes and a fork's parent included
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_creation_tokens: int | None = None
    model_usage: Mapping[str, Any] | None = None  # by model, in the CLI's own keys; this result's share
    # --- errors
    error: str = ""  # the CLI's word, e.g. "rate_limit"
    api_error_status: int | None = None  # the API's HTTP status
    retry_attempt: int | None = None
    retry_max: int | None = None
    retry_delay_ms: float | None = None
    # --- limits
    rate_limit_status: str = ""  # "allowed_warning", "rejected"
    rate_limit_type: str = ""  # "five_hour", "seven_day", ...
    resets_at: float | None = None  # epoch seconds
    utilization: float | None = None  # 0 to 1

    def __init__(self, type: str = "", **fields: Any) -> None:
        unknown = fields.keys() - _DEFAULTS.keys()
        if unknown:
            raise TypeError(f"Event has no field {', '.join(sorted(unknown))}")
        raw = fields.pop("raw", "")
        if raw:
            fields["_line"] = raw.encode("utf-8", "surrogatepass")
        self.__dict__.update(fields, type=type)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _DEFAULTS)

    def __hash__(self) -> int:
        return hash((self.type, self.uuid, self.block_index, self.text))

    def __repr__(self) -> str:
        shown = (
            f"{name}={_short(self.__dict__[name])}"
            for name, default in _DEFAULTS.items()
            if self.__dict__.get(name, default) != default
        )
        return f"Event({', '.join(shown)})"

    def __str__(self) -> str:
        """The human text: of a result the answer, of a failure why, of a tool call its name and input."""
        if self.type == TOOL_USE:
            return printable(f"{self.tool_name}({json.dumps(self.tool_input, ensure_ascii=False)})")
        if self.type == ERROR:  # whose result is what there was of an answer
            return self.text
        return self.result or self.text or "; ".join(self.errors)

    @property
    def tool_use_id(self) -> str:
        """The same as `tool_id`, under the name that the API uses."""
        return self.tool_id

    @property
    def data(self) -> dict[str, Any]:
        """The whole line as a dict, decoded on first use and then kept; {} where there is no line."""
        known: dict[str, Any] | None = self.__dict__.get("_data")
        if known is None:
            known = self.__dict__["_data"] = _decoded(self.raw)
        return known

    @property
    def block(self) -> dict[str, Any] | None:
        """This event's own block of the line: a content block, or the delta of a partial message."""
        data = self.data
        streamed = data.get("event")
        if isinstance(streamed, dict):
            part = streamed.get("delta") or streamed.get("content_block")
            return part if isinstance(part, dict) else None
        message = data.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            return {"type": "text", "text": content}
        index = self.block_index
        if isinstance(content, list) and index is not None and index < len(content):
            part = content[index]
            return part if isinstance(part, dict) else None
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_data"}


_DEFAULTS: Final[dict[str, Any]] = {
    name: getattr(Event, name) for name in Event.__dataclass_fields__
}


_new = object.__new__
_set_dict = Event.__dict__["__dict__"].__set__  # what `event.__dict__ = fields` does, frozen or not


def make(fields: dict[str, Any]) -> Event:
    """An event over exactly this dict, which it takes over. Only for the parser and the reducer.

    `fields` holds names of `Event` and, for the line, `_line`; nothing is checked.
    """
    event: Event = _new(Event)
    _set_dict(event, fields)
    return event


def changed(event: Event, **changes: Any) -> Event:
    """A copy of `event` with some fields replaced; it shares the line."""
    return make({**event.__getstate__(), **changes})


def printable(text: str) -> str:
    """The same with U+FFFD for each half of a surrogate pair that stands alone.

    JSON can say them and the CLI does, as escapes. Left as they are, every `print` would raise.
    """
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _decoded(raw: str) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):  # a cut or damaged line: its text is still in `raw`
        return {}
    return value if isinstance(value, dict) else {}


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 200 else shown[:197] + "..."
