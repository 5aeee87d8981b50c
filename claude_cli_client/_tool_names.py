"""Tools of ours, where rules and hooks name them: what means one of them, and is not its name.

Pure; imported where there is a `ToolServer`. The CLI passes over a rule or a matcher for a tool that does not
exist: `disallowed_tools=["price"]` forbids nothing, since the tool is `mcp__shop__price` to it. A `ToolServer`
never changes, so all its names are known, and what can only mean one of them is an error where it would guard
something. Where it would only allow something it is a warning. So is a tool that this server has not, however
near (`set_order`, and it has `get_order`), for rules may be shared; and a server that is nearly one of ours, for
another may have that name in a file which only the CLI reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ._checks import TOOLS, split_rules
from ._hook_events import TOOL_EVENTS
from ._hooks import hooks_config, plain_names
from .mcp import ToolServer, mapped_name

_Options = Mapping[str, Any]


def guards_nothing(options: _Options) -> str:
    """A rule that forbids nothing, or a matcher that matches nothing: what to write; else ""."""
    return _first(options, _GUARDS, sure=True)


def means_another(options: _Options) -> str:
    """The same for what harms less, or is less sure."""
    return _first(options, _ALLOWS, sure=True) or _first(options, {**_GUARDS, **_ALLOWS}, sure=False)


def _first(options: _Options, places: Mapping[str, Any], sure: bool) -> str:
    own = _Own(options["mcp_servers"])
    for place, (what, given) in places.items():
        for name in given(options):
            tool = name.partition("(")[0]
            why = own.fault(tool) if sure else own.doubt(tool)
            if why:
                return f"{what.format(name)} of {place} {_EFFECT[place]}: {why}"
    return ""


class _Own:
    """The tools of ours, by the names that the CLI has for them."""

    def __init__(self, servers: Mapping[str, Any]) -> None:
        self.servers = {f"mcp__{mapped_name(name)}": _tools(server) for name, server in servers.items()}
        # Whole name -> the tool's own.
        self.tools = {
            f"{server}__{mapped_name(tool)}": tool for server, tools in self.servers.items() for tool in tools or ()
        }

    def fault(self, name: str) -> str:
        """Why no tool has this name; "" if one has it, or may have it."""
        if name in TOOLS or name in self.tools or "*" in name:
            return ""
        letters = _letters(name)  # mcp_shop_price, mcp__shop__Price
        for whole, tool in self.tools.items():
            is_bare = name in (tool, mapped_name(tool)) and not name[:1].isupper()  # else a built-in one, maybe
            if is_bare or letters == _letters(whole):
                return f"the tool is {whole} to the CLI"
        return ""

    def _split(self, name: str) -> tuple[str, str]:
        """The server of ours and what should be a tool of it; two "" if it is none's, or maybe another's."""
        for server, tools in self.servers.items():
            tool = name.removeprefix(f"{server}__")
            if tools is not None and tool != name and "__" not in tool:  # else of a server with a longer name, maybe
                return server, tool
        return "", ""

    def doubt(self, name: str) -> str:
        """What is odd about it: a tool that is none of its server's, or a server that may be meant for one of ours."""
        server, tool = self._split(name)
        if server and name not in self.tools and "*" not in name:
            known = [mapped_name(one) for one in self.servers[server] or ()]
            near = _nearest(tool, known)
            hint = f"did you mean {server}__{near}?" if near else f"its tools: {', '.join(known) or 'none'}"
            return f"the server {server[5:]!r} has no tool {tool!r}; {hint}"
        server, _, tool = name.rpartition("__")
        if not server.startswith("mcp__") or server in self.servers or name in self.servers:
            return ""
        near = _nearest(server[5:], [known[5:] for known in self.servers if f"{known}__{tool}" in self.tools])
        return f"these options have no server {server[5:]!r}; did you mean mcp__{near}__{tool}?" if near else ""


def _tools(server: Any) -> Mapping[str, Any] | None:
    """None: they are not known. A server that answers for itself may have others each time."""
    own = isinstance(server, ToolServer) and getattr(server.handle, "__func__", None) is ToolServer.handle
    return server.tools if own else None


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _nearest(name: str, known: list[str]) -> str:
    import difflib  # only for a mistake

    return next(iter(difflib.get_close_matches(name, known, 1, 0.7)), "")


# --- where names stand


def _rules(value: Any) -> list[str]:
    return split_rules(value) if isinstance(value, str) else list(value or ())


def _matchers(options: _Options) -> Iterator[str]:
    for event, entries in hooks_config(options.get("hooks"))[0].items():
        for entry in entries if event in TOOL_EVENTS else ():
            yield from plain_names(entry.get("matcher", ""))


def _agents(options: _Options) -> Iterator[str]:
    agents = options.get("agents")
    for agent in agents.values() if isinstance(agents, Mapping) else ():
        yield from agent.get("disallowedTools") or ()


def _preset(rules: str) -> Any:
    return lambda options: getattr(options.get("unattended"), rules, ())


# The place -> what stands there, and how to get it.
_GUARDS: Final[Mapping[str, Any]] = {
    "disallowed_tools": ("the rule {!r}", lambda options: _rules(options.get("disallowed_tools"))),
    "unattended(deny=...)": ("the rule {!r}", _preset("deny_rules")),
    "hooks": ("the matcher {!r}", _matchers),
    "agents": ("the disallowed tool {!r}", _agents),
}
_ALLOWS: Final[Mapping[str, Any]] = {
    "allowed_tools": ("the rule {!r}", lambda options: _rules(options.get("allowed_tools"))),
    "unattended(allow=...)": ("the rule {!r}", _preset("allow_rules")),
}
_EFFECT: Final = {
    **dict.fromkeys(("disallowed_tools", "unattended(deny=...)", "agents"), "forbids nothing"),
    "hooks": "matches nothing",
    **dict.fromkeys(_ALLOWS, "allows nothing"),
}
