"""Where tools are named: in rules and hooks. What one of these names does not do, though it seems to.

Pure; imported where there are such options. What is wrong with a rule is known by `_rule_faults.py`, what with the
name of a tool of ours by `_own_tools.py`. It is an error where something would be unguarded for sure, else a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ._checks import split_rules
from ._merge import settings_file
from ._objects import is_tool_server, loads
from ._rule_faults import bare_command, misspelt, unread

if TYPE_CHECKING:
    from ._own_tools import OwnTools

_Options = Mapping[str, Any]


def guards_nothing(options: _Options) -> str:
    """A rule that forbids nothing, or a matcher that matches nothing: what to write; else ""."""
    own = _own(options)
    return _first(options, _READ, lambda rule: unread(rule, allowing=False)) or (
        _first(options, _GUARDS, _of_tool(own.fault)) if own else ""
    )


def means_another(options: _Options) -> str:
    """The same for what harms less, or is less sure."""
    own = _own(options)
    return (
        (_first(options, _ALLOWS, _of_tool(own.fault)) if own else "")
        or (_first(options, _PLACES, _of_tool(own.doubt)) if own else "")
        or _first(options, _READ_TO_ALLOW, lambda rule: unread(rule, allowing=True))
        or _forbids_little(options)
        or _first(options, (*_PLACES, *_GIVES), _of_tool(misspelt))
    )


def _forbids_little(options: _Options) -> str:
    """A rule that forbids a command without arguments only, where no other one forbids it with them."""
    forbidden = {rule for place in _FORBIDS for rule in _PLACES[place][1](options)}

    def fault(rule: str) -> str:
        whole = {f"{rule[:-1]} *)", f"{rule[:-1]}:*)", f"{rule[:-1]}*)"}
        whole |= {"Bash", "Bash(*)"}  # of all commands
        return "" if whole & forbidden else bare_command(rule)

    return _first(options, _FORBIDS, fault, "forbids the bare command alone")


def _own(options: _Options) -> OwnTools | None:
    servers = options.get("mcp_servers")
    if not isinstance(servers, Mapping) or not any(map(is_tool_server, servers.values())):
        return None
    from ._own_tools import OwnTools

    return OwnTools(servers)


_Fault = Callable[[str], str]


def _of_tool(fault: _Fault) -> _Fault:
    """The same of a rule's tool, whatever else the rule says."""
    return lambda rule: fault(rule.partition("(")[0])


def _first(options: _Options, places: Iterable[str], fault: _Fault, does: str = "") -> str:
    for place in places:
        what, given, nothing = (_PLACES | _GIVES)[place]
        for name in given(options):
            if why := fault(name):
                return f"{what.format(name)} of {place} {does or nothing}: {why}"
    return ""


# --- where names stand


def _rules(value: Any) -> list[str]:
    return split_rules(value) if isinstance(value, str) else list(value or ())


def _matchers(options: _Options) -> Iterator[str]:
    if not options.get("hooks"):
        return
    from ._hook_events import TOOL_EVENTS
    from ._hooks import hooks_config

    for event, entries in hooks_config(options.get("hooks"))[0].items():
        for entry in entries if event in TOOL_EVENTS else ():
            yield from _names(entry.get("matcher", ""))


def _names(matcher: str) -> list[str]:
    """Those that a matcher is made of; [] for a regular expression, but for one that means only itself."""
    from ._hooks import plain_names

    return plain_names(matcher) or ([] if _SPECIAL & set(matcher) else re.split("[|,]", matcher))


_SPECIAL: Final = frozenset(r".*+?^$()[]{}\/")


def _of_agents(field: str) -> Any:
    def given(options: _Options) -> Iterator[str]:
        agents = options.get("agents")
        for agent in agents.values() if isinstance(agents, Mapping) else ():
            yield from agent.get(field) or ()

    return given


def _option(name: str) -> Any:
    return lambda options: _rules(options.get(name))


def _of_settings(behavior: str) -> Any:
    """In settings that are no file: others may use that, with another CLI."""

    def given(options: _Options) -> Iterator[str]:
        settings = {} if settings_file(options) else options.get("settings") or {}
        permissions = (loads(settings) if isinstance(settings, str) else settings).get("permissions")
        rules = permissions.get(behavior) if isinstance(permissions, Mapping) else None
        yield from (rule for rule in rules if isinstance(rule, str)) if isinstance(rules, list) else ()

    return given


def _preset(rules: str) -> Any:
    return lambda options: getattr(options.get("unattended"), rules, ())


# The place -> what stands there, how to get it, and what one does that means no tool. `unattended` is first, for
# its rules are among `disallowed_tools` in the end.
_PLACES: Final[dict[str, Any]] = {
    "unattended(deny=...)": ("the rule {!r}", _preset("deny_rules"), "forbids nothing"),
    "disallowed_tools": ("the rule {!r}", _option("disallowed_tools"), "forbids nothing"),
    "settings (deny)": ("the rule {!r}", _of_settings("deny"), "forbids nothing"),
    "settings (ask)": ("the rule {!r}", _of_settings("ask"), "asks for nothing"),
    "hooks": ("the matcher {!r}", _matchers, "matches nothing"),
    "agents": ("the disallowed tool {!r}", _of_agents("disallowedTools"), "forbids nothing"),
    "allowed_tools": ("the rule {!r}", _option("allowed_tools"), "allows nothing"),
    "settings (allow)": ("the rule {!r}", _of_settings("allow"), "allows nothing"),
    "unattended(allow=...)": ("the rule {!r}", _preset("allow_rules"), "allows nothing"),
}
# The same for what tools there are.
_GIVES: Final[dict[str, Any]] = {
    "tools": ("the name {!r}", _option("tools"), "gives nothing"),
    "agents (tools)": ("the name {!r}", _of_agents("tools"), "gives nothing"),
}
_READ: Final = ("disallowed_tools", "settings (deny)", "settings (ask)")  # by the CLI
_READ_TO_ALLOW: Final = ("allowed_tools", "settings (allow)")
_FORBIDS: Final = ("unattended(deny=...)", "disallowed_tools", "settings (deny)")
_ALLOWS: Final = (*_READ_TO_ALLOW, "unattended(allow=...)")
_GUARDS: Final = tuple(place for place in _PLACES if place not in _ALLOWS)
