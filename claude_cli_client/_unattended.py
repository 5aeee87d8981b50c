"""unattended: a permission callback for programs that nobody watches.

    from claude_cli_client import Client, unattended

    rules = unattended(allow=["Read", "Edit(src/**)", "Bash(npm test *)"])
    client = Client(unattended=rules, permission_mode="default")

Pure: it answers at once, from rules alone, and never waits on anything or anybody. What it allows
is meant by a rule beyond doubt; all else is denied, with words that let the model go on.

What it is not. It is only asked about what the CLI would ask a person about: the CLI reads files of
the working directory and runs `ls` unasked, and what its own rules, hooks and modes allow never comes
here. With `acceptEdits`, the mode where none is named, all of that directory is edited unasked, and a
rule like `Edit(src/**)` limits nothing. So a `deny` limits what `allow` allows, and no more; what must
never run belongs into `disallowed_tools` too, and what must not even be possible into `tools` or a
sandbox. Rules compare texts: `Bash(git *)` allows whatever git can be made to do, `Bash(npm *)` runs the
project's scripts, and a denial of `Bash(rm *)` does not know what a script removes. Links are not
followed: see `_paths.py`; how commands are read: `_shell.py` to allow, `_suspicion.py` to deny.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from . import _log
from ._checks import as_text, split_rules
from ._hooks import HookCall
from ._paths import Places
from ._permission_updates import said
from ._permissions import Allow, Deny, PermissionRequest
from ._rules import Rule, allowed, denied, read_rules

__all__ = ["GUIDANCE", "UNATTENDED_SENTENCE", "Unattended", "unattended"]

UNATTENDED_SENTENCE: Final = (
    "You run unattended: nobody reads along, and nobody can answer questions or approve tool calls. "
    "Do not ask. Where something is open, decide yourself, prefer what can be undone, and note each "
    "assumption in your final answer. A tool call that is denied stays denied: do not repeat it or work "
    "around it, but do what can be done without it and say what could not."
)
"""For the system prompt of a run with `unattended`."""

GUIDANCE: Final = (
    "Nobody is there to answer: this runs unattended. Decide yourself, prefer what can be undone, "
    "and note the assumption in your answer."
)
"""What the model reads in the place of an answer to its question."""

_SAFETY: Final = "the CLI protects this file or command, and wants a person to look at it"
_RULE: Final = "a rule in the settings wants a person to look at it"
_AUTO: Final = "the CLI's auto mode did not let it pass, and wants a person to look at it"

# Why the CLI asks -> what that means here. A rule of ours is no substitute for the person they want.
_WANTS_A_PERSON: Final = {
    "safetyCheck": _SAFETY,
    "hook": "a hook wants a person to look at it",
    "rule": _RULE,
    "classifier": _AUTO,
}
# Marks of the request with the same meaning: when they have it is told in the CLI's own description of them.
_MARKS: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    # Only there if a part of a compound command met a safety check; its type is "subcommandResults".
    ("classifier_approvable", lambda value: value is not None, _SAFETY),
    ("matched_ask_rule", bool, _RULE),
    ("auto_modes_check_raised", bool, _AUTO),
    ("decision_reason_code", lambda value: value == "org_ask_ceiling", "the organization wants a person to look at it"),
    # Of an MCP tool. True: it is asked for only because no rule of the CLI's allows it. Ours may.
    (
        "server_policy_ask_only",
        lambda value: value is False,
        "something beside the CLI's rules may want a person to look at it, such as a PermissionRequest hook",
    ),
    ("default_to_no", bool, "it is marked as a person's decision"),
)


# A directory -> all its names. To find them is for those who may look at the disk.
Names: TypeAlias = "Callable[[str], Sequence[str]]"


@dataclass(frozen=True)
class Unattended:
    """What `unattended` returns: a callback, and what it goes by. Shared between threads, it has no state."""

    allow: tuple[Rule, ...]
    deny: tuple[Rule, ...]
    guidance: str = field(default=GUIDANCE, repr=False)
    approve_plans: bool = True
    places: Places = field(default_factory=Places, repr=False)

    def __call__(self, request: PermissionRequest) -> Allow | Deny:
        if request.is_question:
            return Deny(self.guidance)
        rule = denied(self.deny, request, self.places)
        if rule is not None:
            return _no(request, rule.why(request))
        obstacle = _obstacle(request)
        if not obstacle and request.is_plan:
            obstacle = "" if self.approve_plans else "plans are not approved here"
        elif not obstacle:
            obstacle = allowed(self.allow, request, self.places)
        return _no(request, obstacle) if obstacle else Allow()

    def at(self, cwd: Any = None, home: Any = None) -> Unattended:
        """The same, with the places where relative rules begin, unless it has them already."""
        mine = self.places
        return replace(self, places=Places(mine.cwd or _place("cwd", cwd), mine.home or _place("home", home)))

    def named(self, names: Names) -> Unattended:
        """The same, with all names of its places."""
        known = (self.places.cwd, self.places.home)
        cwd, home = (tuple(name for path in paths for name in names(path)) for paths in known)
        return replace(self, places=Places(cwd, home))

    @property
    def allow_rules(self) -> tuple[str, ...]:
        """The rules as they were written."""
        return tuple(rule.text for rule in self.allow)

    @property
    def deny_rules(self) -> tuple[str, ...]:
        """The rules as they were written, as `disallowed_tools` takes them."""
        return tuple(rule.text for rule in self.deny)


def unattended(
    allow: Sequence[str] | str = (),
    deny: Sequence[str] | str = (),
    *,
    guidance: str = GUIDANCE,
    approve_plans: bool = True,
    cwd: Any = None,
    home: Any = None,
) -> Unattended:
    """A `can_use_tool` for programs that nobody watches: allows by rule, denies the rest, never waits.

    `allow`, `deny`: rules in the syntax of `allowed_tools`; deny wins. A compound command is allowed
    if each part is, and denied if any part is or might be. `guidance`: what the model reads when it
    asks the user something; an answer is never invented. `approve_plans`: ExitPlanMode is approved.
    An `Edit(...)` rule limits edits in `cwd` only with `permission_mode="default"`.
    `cwd`, `home`: where `Edit(src/**)` and `Edit(~/x)` begin; without them such a rule allows nothing
    that has an absolute path. A run gives its own.

    Raises ValueError for a rule that has no meaning here.
    """
    if not isinstance(approve_plans, bool):
        raise ValueError(f"approve_plans must be True or False, not {approve_plans!r}")
    return Unattended(
        read_rules("allow", allow, True),
        read_rules("deny", deny, False),
        said("guidance", guidance),
        approve_plans,
        Places(_place("cwd", cwd), _place("home", home)),
    )


def settle(options: Mapping[str, Any], cwd: str, home: str, names: Names) -> dict[str, Any]:
    """The options of a run with `unattended`: the callback, its sentence, and what it denies.

    `cwd`, `home`: absolute, or "" if not known. `names`: all names of a directory. The model is told the
    one without links, and may use any. Edits are accepted as without a callback: a run that nobody
    watches must be able to work.
    """
    given = options["unattended"]
    preset = given if isinstance(given, Unattended) else unattended()
    settled = {
        **options,
        "can_use_tool": preset.at(cwd or None, home or None).named(names),
        "permission_mode": options.get("permission_mode", "acceptEdits"),
        "append_system_prompt": _with_sentence(options.get("append_system_prompt")),
        "hooks": _with_notice(options.get("hooks") or {}),
    }
    if preset.deny_rules:
        before = options.get("disallowed_tools") or []
        listed = split_rules(before) if isinstance(before, str) else before
        settled["disallowed_tools"] = [*listed, *preset.deny_rules]
    return settled


def _with_sentence(appended: Any) -> str:
    if appended is not None and not isinstance(appended, str):
        raise ValueError("with unattended, append_system_prompt must be a text, not a file: a sentence is added to it")
    return f"{appended}\n\n{UNATTENDED_SENTENCE}" if appended else UNATTENDED_SENTENCE


def _with_notice(hooks: Mapping[str, Any]) -> dict[str, Any]:
    """The user's hooks, and one that logs what a person would have been told."""
    mine = hooks.get("Notification", ())
    listed = list(mine) if isinstance(mine, (list, tuple)) else [mine]
    return {**hooks, "Notification": [*listed, _note]}


def _note(call: HookCall) -> None:
    _log.warning("the CLI has a notification for nobody: %s", (call.raw or {}).get("notification_type", ""))


def _place(name: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    path = as_text(value)
    if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{name} must be an absolute path without '..', not {value!r}")
    return (path,)


def _obstacle(request: PermissionRequest) -> str:
    """Why no rule can allow this call; "" if one can."""
    if request.requires_user_interaction and not request.is_plan:
        return "it needs a person"
    marked = (words for mark, wants, words in _MARKS if wants(request.raw.get(mark)))
    if wanted := _WANTS_A_PERSON.get(request.decision_reason_type) or next(marked, ""):
        return wanted
    if request.input.get("dangerouslyDisableSandbox"):
        return "it would leave the sandbox; run it without dangerouslyDisableSandbox"
    return ""


def _no(request: PermissionRequest, reason: str) -> Deny:
    return Deny(
        f"{request.tool_name} is not allowed here: {reason}. This runs unattended, nobody can approve it. "
        "Do not work around it; go on without it, and say in your answer what could not be done."
    )
