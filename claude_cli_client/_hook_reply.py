"""HookReply: what a hook says, with Python names, and its translation to the wire.

Pure. Which field belongs to which event is in `_hook_events.py`.

The CLI treats an output that it cannot read as "nothing to say", and goes on; a field it does not
know, or that another event has, it passes over. A guard that is written `continue_` or misspelt
therefore lets everything through. Here each of these is an error, and an error in a PreToolUse hook
denies the call (`hook_failed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ._checks import is_list, is_number
from ._hook_events import SPECIFIC, TOP
from ._log import bad_type, bad_value, plain_name, warning
from ._permission_updates import Json, object_, one_of, plain, said
from ._permissions import Allow, Deny, decision

_NAMES: Final = {**TOP, **SPECIFIC}
_TOP_WIRE: Final = {wire: name for name, (wire, _) in TOP.items()}
_SPECIFIC_WIRE: Final = {wire: name for name, (wire, _) in SPECIFIC.items()}

_STOPS: Final = ("continue_", "stop_reason")
_FLAGS: Final = ("continue_", "suppress_output", "async_", "retry", "suppress_original_prompt", "reload_skills")
_TEXTS: Final = (
    "stop_reason", "system_message", "reason", "permission_decision_reason", "additional_context", "session_title",
    "initial_user_message", "worktree_path", "display_content",
)  # fmt: skip
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "decision": ("block", "approve"),
    "permission_decision": ("allow", "deny", "ask", "defer"),
}
# Field -> the field without which the CLI ignores it.
_NEEDS: Final[Mapping[str, str]] = {
    "reason": "decision",
    "permission_decision_reason": "permission_decision",
}
# So it is anyway, and any event may say it.
_SAYS_NOTHING: Final = (("async_", False), ("continue_", True))


@dataclass(frozen=True)
class HookReply:
    """What a hook says. Everything is optional; None is "nothing said".

    Any event: `system_message`, `suppress_output`, `async_=True` lets the CLI go on at once without the
    hook, for at most `async_timeout` seconds.

    PreToolUse, PostToolUse, PostToolBatch, prompts, Stop and others: `continue_=False` ends the turn with
    `stop_reason` (of PreToolUse: after the tool ran all the same; to stop the tool use `deny`).

    PreToolUse: `permission_decision` (`"allow"`, `"deny"`, `"ask"`, `"defer"`) with its reason,
    `updated_input`, `additional_context`. Of several hooks deny beats ask beats allow.

    PostToolUse: `additional_context`, and `updated_tool_output` in the place of the result. That must
    have the tool's own output shape, for Bash a dict with `stdout` and the other fields of
    `call.tool_response`: the CLI ignores a plain text there and keeps the original.

    PermissionRequest: `permission`, an `Allow` or a `Deny`. UserPromptSubmit, Stop, PostToolUse and
    others: `decision="block"` with `reason`. WorktreeCreate: `worktree_path`, without which no worktree
    is made. What a hook would fill into a form (Elicitation) the CLI ignores, so there is no field for it.

    Raises TypeError for a name it does not have and ValueError for a wrong value. A field that the
    event does not have is a ValueError when the hook returns.
    """

    continue_: bool | None = None
    stop_reason: str | None = None
    suppress_output: bool | None = None
    system_message: str | None = None
    decision: str | None = None
    reason: str | None = None
    permission_decision: str | None = None
    permission_decision_reason: str | None = None
    updated_input: Mapping[str, Any] | None = None
    additional_context: str | None = None
    updated_tool_output: Any = None
    updated_mcp_tool_output: Any = None
    permission: Allow | Deny | None = None
    retry: bool | None = None
    session_title: str | None = None
    suppress_original_prompt: bool | None = None
    initial_user_message: str | None = None
    watch_paths: Any = None
    reload_skills: bool | None = None
    worktree_path: str | None = None
    display_content: str | None = None
    async_: bool | None = None
    async_timeout: float | None = None

    def __new__(cls, *args: Any, **fields: Any) -> HookReply:
        if args:
            raise bad_type("HookReply takes its fields by name")
        for name in fields:
            if name not in _NAMES:
                raise _unknown("HookReply", name)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        given = self._given()
        for name, value in given.items():
            object.__setattr__(self, name, _checked(name, value))
        for name, needed in _NEEDS.items():
            if name in given and needed not in given:
                raise bad_value(f"{name} means nothing without {needed}")
        if self.stop_reason is not None and self.continue_ is not False:
            raise bad_value("stop_reason means nothing without continue_=False")
        if self.decision is not None and self.permission_decision is not None:
            raise bad_value("decision and permission_decision are two ways to say one thing: use one")
        if self.updated_input is not None and "deny" in (self.permission_decision, self.decision):
            raise bad_value("updated_input means nothing with a denial")
        if self.async_timeout is not None and not self.async_:
            raise bad_value("async_timeout means nothing without async_=True")
        if self.async_ and given.keys() - {"async_", "async_timeout"}:
            raise bad_value("with async_ the CLI does not wait, so nothing else can be said")

    __hash__ = None  # type: ignore[assignment]  # it may hold a dict

    def _given(self) -> Json:
        return {name: value for name in _NAMES if (value := getattr(self, name)) is not None}

    def __repr__(self) -> str:
        return f"HookReply({', '.join(f'{name}={value!r}' for name, value in self._given().items())})"

    # -- making

    @classmethod
    def deny(cls, reason: str) -> HookReply:
        """PreToolUse, PermissionRequest, PreModelSwitch: no, and why. The model reads it."""
        return cls(permission_decision="deny", permission_decision_reason=said("the reason of a denial", reason))

    @classmethod
    def allow(cls, updated_input: Mapping[str, Any] | None = None, reason: str | None = None) -> HookReply:
        """PreToolUse, PermissionRequest, PreModelSwitch: yes, without asking; with another input if given."""
        return cls(permission_decision="allow", permission_decision_reason=reason, updated_input=updated_input)

    @classmethod
    def ask(cls, reason: str | None = None) -> HookReply:
        """PreToolUse: ask `can_use_tool`. Without that callback it is a denial."""
        return cls(permission_decision="ask", permission_decision_reason=reason)

    @classmethod
    def block(cls, reason: str) -> HookReply:
        """UserPromptSubmit: refuse the prompt. Stop: go on with this. PostToolUse: tell the model."""
        return cls(decision="block", reason=said("the reason of a block", reason))

    @classmethod
    def context(cls, text: str) -> HookReply:
        """Tell the model something."""
        return cls(additional_context=said("the context", text))

    @classmethod
    def stop(cls, reason: str) -> HookReply:
        """End the turn. After PreToolUse the tool runs all the same: use `deny` there."""
        return cls(continue_=False, stop_reason=said("the reason to stop", reason))

    # -- the wire

    def to_wire(self, event: str) -> Json:
        """The CLI's form for this event. ValueError for a field that the event does not have."""
        given = {name: value for name, value in self._given().items() if (name, value) not in _SAYS_NOTHING}
        if event == "PermissionRequest" and self.permission_decision is not None:
            given = _as_request(given)
        stops = [name for name in given if name in _STOPS and event not in _NAMES[name][1]]
        if stops and len(stops) < len(given):  # the rest may be a denial, which must not be lost with it
            warning("%s does not end the turn: the CLI would ignore %s of a hook's reply", event, " and ".join(stops))
            given = {name: value for name, value in given.items() if name not in stops}
        for name in given:
            events = _NAMES[name][1]
            if event not in events:
                raise bad_value(f"{event} has no {name}: the CLI would ignore it{_instead(event, name)}")
        if event != "PreToolUse" and given.get("decision") == "approve":
            raise bad_value(f"{event} knows the decision 'block' only")
        if event == "PreModelSwitch" and given.get("permission_decision") == "defer":
            raise bad_value("PreModelSwitch cannot be deferred")
        wire: Json = {TOP[name][0]: _out(name, value) for name, value in given.items() if name in TOP}
        specific = {SPECIFIC[name][0]: _out(name, value) for name, value in given.items() if name in SPECIFIC}
        if specific:
            wire["hookSpecificOutput"] = {"hookEventName": event, **specific}
        return wire


def _as_request(given: Json) -> Json:
    """`allow` and `deny` as the event PermissionRequest says them."""
    rest = dict(given)
    said_, reason = rest.pop("permission_decision"), rest.pop("permission_decision_reason", None)
    if said_ not in ("allow", "deny"):
        raise bad_value(f"PermissionRequest knows allow and deny, not {said_!r}; to say nothing return None")
    if "permission" in rest:
        raise bad_value("permission and permission_decision are two ways to say one thing: use one")
    answer = Allow(rest.pop("updated_input", None)) if said_ == "allow" else Deny(reason or "A hook denied this call.")
    return {**rest, "permission": answer}


def _instead(event: str, name: str) -> str:
    if name in ("decision", "reason") and event in ("PermissionRequest", "PreModelSwitch"):
        return "; use HookReply.deny"
    if name.startswith("permission_decision") and event in TOP["decision"][1]:
        return "; use HookReply.block"
    events = sorted(_NAMES[name][1])
    return f"; it belongs to {', '.join(events)}"


def _checked(name: str, value: Any) -> Any:
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise _unfit(name, "True or False", value)
    elif name in _TEXTS:
        if not isinstance(value, str):
            raise bad_value(f"{name} must be a text, not a {type(value).__name__}")
        if name == "worktree_path" and not value.startswith("/"):
            raise bad_value("worktree_path must be an absolute path")
    elif name in _CHOICES:
        one_of(name, value, _CHOICES[name])
    elif name == "updated_input":
        return object_(name, value)
    elif name in ("updated_tool_output", "updated_mcp_tool_output"):
        return plain(name, value)
    elif name == "permission":
        if not isinstance(value, (Allow, Deny)):
            raise bad_value(f"permission must be an Allow or a Deny, not a {type(value).__name__}")
    elif name == "watch_paths":
        if not is_list(value) or not all(isinstance(path, str) and path.startswith("/") for path in value):
            raise bad_value("watch_paths must be a list of absolute paths")
        return list(value)
    elif not is_number(value) or value <= 0:
        raise _unfit(name, "a number of seconds above 0", value)
    return value


def _unfit(name: str, must: str, value: Any) -> ValueError:
    return bad_value(f"{name} must be {must}, not {value!r}", f"{name} must be {must}")


def _out(name: str, value: Any) -> Any:
    if name == "async_timeout":
        return max(1, round(value * 1000))
    return decision(value) if name == "permission" else value


def _unknown(what: str, name: Any) -> TypeError:
    import difflib  # only for a mistake

    known = {**_SPECIFIC_WIRE, **_TOP_WIRE}
    near = known.get(name) or next(iter(difflib.get_close_matches(str(name), _NAMES, 1)), "")
    instead = f"; did you mean {near}?" if near else ""
    return bad_type(f"{what} has no field {name!r}{instead}", f"{what} has no field {plain_name(name)}{instead}")


# --- what a hook returned


def hook_reply(answer: Any, event: str) -> Json:
    """What a hook returned, as the CLI's form. TypeError and ValueError for what the CLI would not obey.

    None is nothing said. A dict is taken in the CLI's own form, or with the names of `HookReply`.
    """
    if answer is None:
        return {}
    if isinstance(answer, HookReply):
        return answer.to_wire(event)
    if not isinstance(answer, Mapping):
        raise bad_type(
            f"a {event} hook must return a HookReply, a dict or None, not a {type(answer).__name__}"
            + ("; async functions are not called as such" if hasattr(answer, "__await__") else "")
        )
    return from_wire(answer, event).to_wire(event)


def from_wire(output: Mapping[str, Any], event: str) -> HookReply:
    """A dict as a HookReply: the same check of names for those who write the CLI's form."""
    given: Json = {}
    for key, value in output.items():
        if key == "hookSpecificOutput":
            _merge(given, _specific(value, event))
        elif key in _SPECIFIC_WIRE and key not in _NAMES and key not in _TOP_WIRE:
            raise bad_type(f"{key} belongs into hookSpecificOutput: the CLI ignores it outside")
        else:
            name = str(_TOP_WIRE.get(key, key))
            if name not in _NAMES:
                raise _unknown("a hook's output", key)
            _merge(given, {name: value / 1000 if key == "asyncTimeout" and is_number(value) else value})
    return HookReply(**given)


def _specific(value: Any, event: str) -> Json:
    if not isinstance(value, Mapping):
        raise bad_value(f"hookSpecificOutput must be a dict, not a {type(value).__name__}")
    given: Json = {}
    for key, item in value.items():
        if key == "hookEventName":
            if item != event:
                remedy = f"in the answer to {event}; leave it out, it is filled in"
                raise bad_value(f"hookEventName is {item!r} {remedy}", f"hookEventName is another one {remedy}")
            continue
        name = str(_SPECIFIC_WIRE.get(key, key))
        if name not in SPECIFIC:
            raise _unknown("hookSpecificOutput", key)
        _merge(given, {name: _decided(item) if name == "permission" else item})
    return given


def _merge(given: Json, more: Json) -> None:
    for name, value in more.items():
        if name in given:
            raise bad_type(f"a hook's output says {name} twice")
        given[name] = value


def _decided(wire: Any) -> Any:
    """A PermissionRequest decision in the CLI's form."""
    if not isinstance(wire, Mapping):
        return wire
    rest = dict(wire)
    behavior = rest.pop("behavior", None)
    one_of("behavior of a decision", behavior, ("allow", "deny"))
    made: Allow | Deny
    if behavior == "allow":
        made = Allow(rest.pop("updatedInput", None), rest.pop("updatedPermissions", None))
    else:
        made = Deny(rest.pop("message", ""), rest.pop("interrupt", False))
    if rest:
        name, wrong = next(iter(rest)), f"a decision to {behavior} has no field"
        raise bad_type(f"{wrong} {name!r}", f"{wrong} {plain_name(name)}")
    return made


def hook_failed(event: str, exception: BaseException) -> Json:
    """The reply for a hook that raised: PreToolUse denies, others report and go on.

    Names the exception's class only: its words may hold secrets, and the model reads this.
    """
    name = type(exception).__name__
    if event == "PreToolUse":
        reason = f"The hook that checks this call failed ({name}), so the call was not made."
        return HookReply.deny(reason).to_wire(event)
    return {"systemMessage": f"A {event} hook failed ({name})."}
