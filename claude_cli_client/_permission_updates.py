"""PermissionUpdate: a change of the permissions, as Python and as the CLI's wire form. And checks.

Pure. The CLI drops an update that it cannot read, and maybe all that came with it, says nothing,
and allows the call all the same. So what a user makes is checked at construction. What the CLI
itself suggests is read the other way round: a kind or shape we do not know is kept whole, and can
be sent back as it came.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ._checks import copied, is_list, is_path, tool_case
from ._log import bad_value

Json = dict[str, Any]

BEHAVIORS: Final = ("allow", "deny", "ask")
DESTINATIONS: Final = ("session", "localSettings", "projectSettings", "userSettings", "cliArg")
MODES: Final = ("default", "acceptEdits", "plan", "dontAsk", "auto", "bypassPermissions")


# --- values for the wire


def plain(where: str, value: Any) -> Any:
    """`value` with new dicts and lists all the way down, if it is JSON; else a ValueError that says where."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (str, int, float)):
        if isinstance(value, float) and not math.isfinite(value):
            raise _no_json(where, repr(value))
        return copied(value)
    if isinstance(value, Mapping):
        return {_key(where, key): plain(f"{where}[{key!r}]", item) for key, item in value.items()}
    if is_list(value):
        return [plain(f"{where}[{index}]", item) for index, item in enumerate(value)]
    raise _no_json(where, f"a {type(value).__name__}")


def _no_json(where: str, what: str) -> ValueError:
    """For the log without the keys that lead there."""
    return bad_value(f"{where} is {what}, which JSON does not have", f"{_field(where)} holds {what}, which is no JSON")


def _field(where: str) -> str:
    return where.partition("[")[0]


def _key(where: str, key: Any) -> str:
    if not isinstance(key, str):
        must = "must be texts"
        raise bad_value(f"{where} has the key {key!r}; keys {must}", f"the keys in {_field(where)} {must}")
    return key


def object_(where: str, value: Any) -> Json:
    if not isinstance(value, Mapping):
        raise bad_value(f"{where} must be a dict, not a {type(value).__name__}")
    made: Json = plain(where, value)
    return made


def said(where: str, value: Any, logged: str = "") -> str:
    """A text that is not blank. `logged`: what it is in the log, if `where` quotes something."""
    if not isinstance(value, str) or not value.strip():
        must = "must be a text that says something"
        raise bad_value(f"{where} {must}, not {value!r}", f"{logged or where} {must}")
    return value


def one_of(where: str, value: Any, names: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in names:
        must = f"{where} must be one of {', '.join(names)}"
        raise bad_value(f"{must}, not {value!r}", must)


# --- permission updates


@dataclass(frozen=True)
class PermissionRule:
    """A tool, and what of it: `PermissionRule("Bash", "git *")`. None is every use of the tool."""

    tool_name: str
    rule_content: str | None = None

    def __post_init__(self) -> None:
        said("tool_name of a rule", self.tool_name)
        if self.rule_content is not None:
            said("rule_content of a rule", self.rule_content)

    def __str__(self) -> str:
        return self.tool_name if self.rule_content is None else f"{self.tool_name}({self.rule_content})"

    @classmethod
    def parse(cls, text: str) -> PermissionRule:
        """`"Bash(git *)"` as a rule."""
        tool, opened, rest = said("a rule", text).partition("(")
        if not tool.strip() or ")" in tool or (opened and not rest.endswith(")")):
            wrong = "not a rule, its parentheses do not match"
            raise bad_value(f"{wrong}: {text[:60]!r}", wrong)
        return cls(tool, rest[:-1] if opened else None)


# Kind -> the fields that it needs beside the destination.
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "addRules": ("rules", "behavior"),
    "replaceRules": ("rules", "behavior"),
    "removeRules": ("rules", "behavior"),
    "setMode": ("mode",),
    "addDirectories": ("directories",),
    "removeDirectories": ("directories",),
}


@dataclass(frozen=True)
class PermissionUpdate:
    """A change of the permissions, to be sent with an `Allow`. Made by the factory methods, or suggested.

    `destination` says where it lasts: `"session"` (in memory), `"localSettings"`, `"projectSettings"`
    or `"userSettings"` (written to that settings file). To take a suggestion but not let it outlive
    the session: `suggestion.to("session")`.

    Raises ValueError where something is missing or wrong, since the CLI would drop the update
    silently and allow the call.
    """

    type: str
    rules: tuple[PermissionRule, ...] = ()
    behavior: str = ""
    mode: str = ""
    directories: tuple[str, ...] = ()
    destination: str = "session"
    extra: Mapping[str, Any] = field(default_factory=dict)  # fields of a later CLI
    is_known: bool = field(default=True, repr=False)  # False: `extra` is the whole of it

    def __post_init__(self) -> None:
        if not self.is_known:
            if self.destination != self.extra.get("destination"):
                wrong = "can only be sent as it came"
                raise bad_value(f"an update of the unknown kind {self.type!r} {wrong}", f"an unknown update {wrong}")
            return
        one_of("type of a permission update", self.type, tuple(KINDS))
        one_of("destination of a permission update", self.destination, DESTINATIONS)
        needed = KINDS[self.type]
        for name in ("rules", "behavior", "mode", "directories"):
            value = getattr(self, name)
            if not value and name in needed:
                raise bad_value(f"a permission update {self.type} needs {name}")
            if value and name not in needed:
                raise bad_value(f"a permission update {self.type} has no {name}")
        for name in ("rules", "directories"):
            if not is_list(getattr(self, name)):
                raise bad_value(f"{name} of a permission update must be a list")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        self._check_items()

    def _check_items(self) -> None:
        if self.behavior:
            one_of("behavior of a permission update", self.behavior, BEHAVIORS)
        if self.mode:
            one_of("mode of a permission update", self.mode, MODES)
        if not all(isinstance(rule, PermissionRule) for rule in self.rules):
            raise bad_value("rules of a permission update must be PermissionRules; add_rules takes texts too")
        for rule in self.rules if self.type != "removeRules" else ():  # such a one may be there, and be in the way
            tool_case("a rule of a permission update", rule.tool_name)
        for directory in self.directories:
            said("a directory of a permission update", directory)

    def __hash__(self) -> int:
        return hash((self.type, self.rules, self.behavior, self.mode, self.directories, self.destination))

    # -- making

    @classmethod
    def add_rules(
        cls, *rules: PermissionRule | str, behavior: str = "allow", destination: str = "session"
    ) -> PermissionUpdate:
        """Add rules, as `PermissionRule` or in the words of `allowed_tools`: `add_rules("Bash(git *)")`."""
        return cls("addRules", _rules(rules), behavior, destination=destination)

    @classmethod
    def replace_rules(
        cls, *rules: PermissionRule | str, behavior: str = "allow", destination: str = "session"
    ) -> PermissionUpdate:
        """Put these in the place of all rules of that behaviour and destination."""
        return cls("replaceRules", _rules(rules), behavior, destination=destination)

    @classmethod
    def remove_rules(
        cls, *rules: PermissionRule | str, behavior: str = "allow", destination: str = "session"
    ) -> PermissionUpdate:
        """Take rules away."""
        return cls("removeRules", _rules(rules), behavior, destination=destination)

    @classmethod
    def set_mode(cls, mode: str, *, destination: str = "session") -> PermissionUpdate:
        """Change the permission mode."""
        return cls("setMode", mode="default" if mode == "manual" else mode, destination=destination)

    @classmethod
    def add_directories(cls, *directories: Any, destination: str = "session") -> PermissionUpdate:
        """Let the tools use more directories."""
        return cls("addDirectories", directories=_paths(directories), destination=destination)

    @classmethod
    def remove_directories(cls, *directories: Any, destination: str = "session") -> PermissionUpdate:
        """Take directories away again."""
        return cls("removeDirectories", directories=_paths(directories), destination=destination)

    def to(self, destination: str) -> PermissionUpdate:
        """The same, for another destination. ValueError for a kind that this version does not know."""
        return replace(self, destination=destination)

    # -- the wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> PermissionUpdate:
        """What the CLI suggests. Never raises: what is not understood is kept as it came."""
        try:
            return cls._understood(wire)
        except (ValueError, TypeError, AttributeError, KeyError):
            kind = wire.get("type")
            return cls(
                kind if isinstance(kind, str) else "",
                destination=wire.get("destination"),  # type: ignore[arg-type]  # whatever came
                extra=dict(wire),
                is_known=False,
            )

    @classmethod
    def _understood(cls, wire: Mapping[str, Any]) -> PermissionUpdate:
        """Raises where the kind or the shape is not one of ours."""
        rest = dict(wire)
        rules = rest.pop("rules", ())
        if not is_list(rules) or any(set(rule) - {"toolName", "ruleContent"} for rule in rules):
            raise bad_value("rules of a permission update have an unknown shape")
        return cls(
            rest.pop("type"),
            tuple(PermissionRule(rule["toolName"], rule.get("ruleContent")) for rule in rules),
            rest.pop("behavior", ""),
            rest.pop("mode", ""),
            rest.pop("directories", ()),
            rest.pop("destination"),
            rest,
        )

    def to_wire(self) -> Json:
        """The CLI's form of it."""
        if not self.is_known:
            return dict(self.extra)
        wire: Json = {"type": self.type}
        if self.rules:
            # A `ruleContent` of null is invalid; absent means the whole tool.
            wire["rules"] = [
                {"toolName": rule.tool_name}
                if rule.rule_content is None
                else {"toolName": rule.tool_name, "ruleContent": rule.rule_content}
                for rule in self.rules
            ]
        for name in ("behavior", "mode"):
            if getattr(self, name):
                wire[name] = getattr(self, name)
        if self.directories:
            wire["directories"] = list(self.directories)
        return {**wire, "destination": self.destination, **self.extra}


def _rules(rules: Sequence[PermissionRule | str]) -> tuple[PermissionRule, ...]:
    return tuple(PermissionRule.parse(rule) if isinstance(rule, str) else rule for rule in rules)


def _paths(paths: Sequence[Any]) -> tuple[str, ...]:
    return tuple(path.__fspath__() if is_path(path) else path for path in paths)


# --- lists of them


def suggestions(wire: Any) -> tuple[PermissionUpdate, ...]:
    """A list of updates as the CLI suggests them."""
    items = wire if isinstance(wire, list) else ()
    return tuple(PermissionUpdate.from_wire(item) for item in items if isinstance(item, dict))


def updates(given: Any) -> tuple[PermissionUpdate, ...]:
    """A user's list of updates. ValueError for all that the CLI would drop."""
    if not is_list(given):
        raise bad_value("updated_permissions must be a list of PermissionUpdates")
    return tuple(_update(item) for item in given)


def _update(item: Any) -> PermissionUpdate:
    if isinstance(item, PermissionUpdate):
        return item
    if not isinstance(item, Mapping):
        raise bad_value(f"updated_permissions takes PermissionUpdates, not a {type(item).__name__}")
    made = PermissionUpdate.from_wire(item)
    if not made.is_known:
        wrong = "not a permission update that the CLI takes"
        raise bad_value(f"{wrong}: {dict(item)!r}"[:300], wrong)
    return made
