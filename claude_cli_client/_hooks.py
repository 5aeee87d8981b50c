"""Hooks: what the user registers, what a hook is called with, and both as the CLI's wire form.

Pure: no thread, clock, file or process.

A hook that never fires guards nothing, and nobody notices. So all that the CLI passes over in
silence is refused before the start: an event it does not know, a matcher on an event without one,
a pattern it cannot read, a tool's name in the wrong case. The pattern is read by JavaScript there,
so what only Python understands is refused as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from ._callables import takes
from ._checks import TOOLS, is_list, is_number, tool_name
from ._hook_events import HOOK_EVENTS, TOOL_EVENTS
from ._hook_reply import HookReply
from ._permission_updates import Json, PermissionUpdate, suggestions
from ._permissions import NEVER, Flag

_MISSING: Final = object()  # a value of another class than the field's: left to `raw`


@dataclass(frozen=True, init=False, eq=False, repr=False)
class HookCall:
    """What happened, for one hook. Absent texts are "", flags False, numbers and objects None, lists ().

    `raw` is the whole input as the CLI sent it, with the fields of later versions; `call["name"]`
    looks a field up there. Which event fills which field is said beside them.
    """

    event: str = ""  # "PreToolUse", ...
    # --- all, where they apply
    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    prompt_id: str = ""
    permission_mode: str = ""
    effort: str = ""  # "low", "medium", ...
    agent_id: str = ""  # of the subagent it happened in; "" in the main turn
    agent_type: str = ""
    # --- PreToolUse, PostToolUse, PostToolUseFailure, PermissionRequest
    tool_name: str = ""
    tool_input: Mapping[str, Any] | None = None
    tool_use_id: str = ""
    tool_response: Any = None  # PostToolUse: the tool's own shape
    duration_ms: float | None = None
    error: str = ""  # PostToolUseFailure, StopFailure
    is_interrupt: bool = False
    tool_calls: tuple[Mapping[str, Any], ...] = ()  # PostToolBatch
    suggestions: tuple[PermissionUpdate, ...] = ()  # PermissionRequest
    mcp_server: Any = None  # PermissionRequest
    # --- UserPromptSubmit, UserPromptExpansion
    prompt: str = ""
    expansion_type: str = ""
    command_name: str = ""
    command_args: str = ""
    command_source: str = ""
    # --- Notification, Elicitation
    message: str = ""
    title: str = ""
    notification_type: str = ""  # "permission_prompt", ...
    mcp_server_name: str = ""
    mode: str = ""  # Elicitation: "form", "url"
    requested_schema: Mapping[str, Any] | None = None
    action: str = ""  # ElicitationResult
    content: Mapping[str, Any] | None = None
    # --- Stop, StopFailure, SubagentStop
    stop_hook_active: bool = False  # this stop was held up by a hook before
    last_assistant_message: str = ""
    background_tasks: tuple[Mapping[str, Any], ...] = ()
    session_crons: tuple[Mapping[str, Any], ...] = ()
    agent_transcript_path: str = ""
    # --- PreCompact, PostCompact
    trigger: str = ""  # "manual", "auto"
    custom_instructions: str = ""
    compact_summary: str = ""
    # --- PreModelSwitch, PostModelSwitch, SessionStart, SessionEnd, ConfigChange, DirectoryAdded
    from_model: str = ""
    to_model: str = ""
    requested_model: str = ""
    context_tokens: int | None = None
    prompt_cache_warm: bool = False
    cache_ttl: str = ""
    estimated_cache_write_usd: float | None = None
    pricing: str = ""
    source: str = ""
    model: str = ""
    reason: str = ""
    # --- InstructionsLoaded, ConfigChange, FileChanged, WorktreeCreate, DirectoryAdded
    file_path: str = ""
    memory_type: str = ""
    load_reason: str = ""
    trigger_file_path: str = ""
    name: str = ""
    directory: str = ""
    # --- MessageDisplay
    turn_id: str = ""
    message_id: str = ""
    index: int | None = None
    final: bool = False
    delta: str = ""

    raw: Mapping[str, Any] | None = None

    def __init__(self, event: str = "", *, cancelled: Flag | None = None, **given: Any) -> None:
        unknown = given.keys() - _DEFAULTS.keys()
        if unknown:
            raise TypeError(f"HookCall has no field {', '.join(sorted(unknown))}")
        given.setdefault("raw", {})
        self.__dict__.update(given, event=event, _cancelled=cancelled or NEVER)

    @property
    def cancelled(self) -> bool:
        """Whether the answer is no longer wanted: interrupted, or too late. It changes while you work."""
        flag: Flag = self.__dict__["_cancelled"]
        return flag.is_set()

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Block until the hook is cancelled, at most `timeout` seconds; whether it is."""
        flag: Flag = self.__dict__["_cancelled"]
        return flag.wait(timeout)

    def __getitem__(self, name: str) -> Any:
        """A field of the CLI's input by the CLI's name; KeyError if it is not there."""
        return cast("Mapping[str, Any]", self.raw)[name]

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _DEFAULTS)

    def __hash__(self) -> int:
        return hash((self.event, self.session_id, self.tool_use_id))

    def __repr__(self) -> str:
        shown = (
            f"{name}={value!r}"[:200]
            for name, value in self.__dict__.items()
            if name in _DEFAULTS and name != "raw" and value != _DEFAULTS[name]
        )
        return f"HookCall({', '.join(shown)})"

    def __getstate__(self) -> Json:  # a flag belongs to its process
        return {name: value for name, value in self.__dict__.items() if name != "_cancelled"}

    def __setstate__(self, state: Json) -> None:
        self.__dict__.update(state, _cancelled=NEVER)


_DEFAULTS: Final[Mapping[str, Any]] = {name: getattr(HookCall, name) for name in HookCall.__dataclass_fields__}
# The fields that are on the wire under the same name, by the class that their value must have.
_SAME: Final = {name: default for name, default in _DEFAULTS.items() if name not in ("event", "effort", "raw")}
_OBJECTS: Final = ("tool_input", "requested_schema", "content")
_NUMBERS: Final = ("duration_ms", "context_tokens", "estimated_cache_write_usd", "index")


def hook_call(wire: Mapping[str, Any], cancelled: Flag | None = None) -> HookCall:
    """The CLI's `hook_callback` request as a call. What has an unknown shape is left to `raw`."""
    given = wire.get("input")
    raw = given if isinstance(given, dict) else {}
    found = {name: _fitting(name, raw[name]) for name in _SAME if name in raw}
    event = raw.get("hook_event_name")
    effort = raw.get("effort")
    if isinstance(effort, dict) and isinstance(effort.get("level"), str):
        found["effort"] = effort["level"]
    found["suggestions"] = suggestions(raw.get("permission_suggestions"))
    if event == "PermissionRequest" and isinstance(wire.get("tool_use_id"), str):
        found["tool_use_id"] = wire["tool_use_id"]  # of events without a tool it is made up
    kept = {name: value for name, value in found.items() if value is not _MISSING}
    return HookCall(event if isinstance(event, str) else "", cancelled=cancelled, raw=raw, **kept)


def _fitting(name: str, value: Any) -> Any:
    default = _SAME[name]
    if isinstance(default, tuple):
        return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, list) else _MISSING
    if name in _NUMBERS:
        return value if is_number(value) else _MISSING
    if name in _OBJECTS:
        return value if isinstance(value, dict) else _MISSING
    if default is None:
        return value
    return value if isinstance(value, type(default)) else _MISSING


# --- registering

_takes_a_call: Final = takes("a HookCall")
Hook = Callable[[HookCall], "HookReply | Mapping[str, Any] | None"]


@dataclass(frozen=True)
class HookMatcher:
    """Hooks for some of an event's occasions.

    `matcher`: of tool events the name of a tool, names as `"Write|Edit"`, or a regular expression as
    `"mcp__shop__.*"`, which may match anywhere in the name; None and `"*"` are all. Case counts.

    `hooks`: functions that take a `HookCall` and return a `HookReply`, a dict or None; those of one
    event run at the same time.

    `timeout`: seconds. Without one the CLI waits 600, for UserPromptSubmit 30. When it is over the
    hook is cancelled, and of PreToolUse the tool does not run.
    """

    matcher: str | None = None
    hooks: Hook | Sequence[Hook] = ()
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.matcher is not None and not isinstance(self.matcher, str):
            given = type(self.matcher).__name__
            raise ValueError(f"matcher must be a text, or None for all: HookMatcher(None, check), not a {given}")
        listed: Any = self.hooks
        hooks = tuple(listed) if is_list(listed) else (listed,)
        if not hooks:
            raise ValueError("a HookMatcher needs a function in hooks")
        for hook in hooks:
            _takes_a_call("a hook", hook)
        object.__setattr__(self, "hooks", hooks)
        if self.timeout is not None and (not is_number(self.timeout) or self.timeout <= 0):
            raise ValueError(f"timeout must be a number of seconds above 0, or None, not {self.timeout!r}")


Hooks = Mapping[str, "Hook | HookMatcher | Sequence[Hook | HookMatcher]"]


def hooks_config(hooks: Hooks | None) -> tuple[dict[str, list[Json]], dict[str, tuple[Hook, str]]]:
    """The `hooks` of the CLI's `initialize`, and the function and event for each callback id in it.

    Raises ValueError for whatever the CLI would pass over. A PreToolUse hook that fails blocks.
    """
    if hooks is None:
        hooks = {}
    if not isinstance(hooks, Mapping):
        raise ValueError(f"hooks must be a dict of events, not a {type(hooks).__name__}")
    wire: dict[str, list[Json]] = {}
    functions: dict[str, tuple[Hook, str]] = {}
    for event, given in hooks.items():
        _check_event(event)
        for matcher in _matchers(event, given):
            ids = []
            for hook in cast("Sequence[Hook]", matcher.hooks):
                ids.append(f"hook_{len(functions) + 1}")
                functions[ids[-1]] = (hook, event)
            wire.setdefault(event, []).append(_entry(event, matcher, ids))
    return wire, functions


def _entry(event: str, matcher: HookMatcher, ids: list[str]) -> Json:
    entry: Json = {"hookCallbackIds": ids}
    if matcher.matcher is not None:
        check_matcher(event, matcher.matcher)
        entry["matcher"] = matcher.matcher
    if matcher.timeout is not None:
        entry["timeout"] = matcher.timeout
    if event == "PreToolUse":
        entry["onFailure"] = "block"
    return entry


def _check_event(event: Any) -> None:
    if event in HOOK_EVENTS:
        return
    import difflib  # only for a mistake

    by_letters = {name.lower(): name for name in HOOK_EVENTS}
    letters = str(event).replace("_", "").lower()
    near = next(iter(difflib.get_close_matches(letters, by_letters, 1, 0.5)), None)
    raise ValueError(f"there is no hook event {event!r}" + (f"; did you mean {by_letters[near]}?" if near else ""))


def _matchers(event: str, given: Any) -> Iterator[HookMatcher]:
    for item in given if is_list(given) else (given,):
        if isinstance(item, HookMatcher):
            yield item
        elif callable(item):
            yield HookMatcher(None, cast("Hook", item))
        else:
            raise ValueError(f"hooks[{event!r}] takes functions and HookMatchers, not a {type(item).__name__}")


# What Python's regular expressions have and JavaScript's have not, or read otherwise.
_PYTHON_ONLY: Final = re.compile(r"\(\?(?![:=!]|<[=!A-Za-z]|[ims]*(?:-[ims]+)?:)|\\[AZ]|[*+?}]\+")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_|, -]*")


def plain_names(matcher: str) -> list[str]:
    """The names that a matcher is made of; [] for a regular expression."""
    return [name.strip() for name in re.split("[|,]", matcher)] if _PLAIN.fullmatch(matcher) else []


def check_matcher(event: str, matcher: str) -> None:
    """ValueError for a matcher that the CLI would ignore, or that could never match."""
    if not HOOK_EVENTS[event]:
        raise ValueError(f"{event} has no matcher: the CLI would ignore {matcher!r} and call the hook always")
    if matcher in ("", "*") or event == "FileChanged":
        return
    if names := plain_names(matcher):
        for name in names if event in TOOL_EVENTS else ():
            _check_tool(name)
        return
    if event in TOOL_EVENTS:
        _check_no_rule(matcher)
    if _PYTHON_ONLY.search(matcher):
        raise ValueError(f"the matcher {matcher!r} is not a regular expression of JavaScript, which the CLI uses")
    try:
        re.compile(matcher.replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!"))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the matcher {matcher!r} is no regular expression: {error}") from None


# A permission rule, or one among alternatives.
_RULE: Final = re.compile(r"(?:^|\|)\^?(" + "|".join(TOOLS) + r")\([^|]*\)\$?(?=\||$)")


def _check_no_rule(matcher: str) -> None:
    """As a regular expression `Bash(ls)` is the name "Bashls", which no tool has."""
    if re.search(r"\s", matcher):
        raise ValueError(f"the matcher {matcher!r} holds spaces, and no tool's name does: give names, no rules")
    rule = _RULE.search(matcher)
    if rule:
        raise ValueError(
            f"a matcher takes names of tools, no rules: {matcher!r} would never match; give {rule[1]!r}, and look at "
            "call.tool_input"
        )


def _check_tool(name: str) -> None:
    tool_name("matcher", name)
    if name.startswith("mcp__") and "__" not in name[5:]:
        raise ValueError(f"the matcher {name!r} is no tool's whole name; for all of that server: '{name}__.*'")
