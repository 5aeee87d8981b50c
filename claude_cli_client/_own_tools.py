"""Tools of ours: what means one of them in a rule or a matcher, and is not its name.

Pure; imported where there is a `ToolServer`. The CLI passes over a rule or a matcher for a tool that does not
exist: `disallowed_tools=["price"]` forbids nothing, since the tool is `mcp__shop__price` to it. A `ToolServer`
never changes, so all its names are known, and what can only mean one of them is an error where it would guard
something. Where it would only allow something it is a warning. So is a tool that this server has not, however
near (`set_order`, and it has `get_order`), for rules may be shared; and a server that is nearly one of ours, for
another may have that name in a file which only the CLI reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._checks import TOOLS
from ._globs import glob
from .mcp import ToolServer, mapped_name


class OwnTools:
    """The tools of ours, by the names that the CLI has for them."""

    def __init__(self, servers: Mapping[str, Any]) -> None:
        self.servers = {f"mcp__{mapped_name(name)}": _tools(server) for name, server in servers.items()}
        # Whole name -> the tool's own.
        self.tools = {
            f"{server}__{mapped_name(tool)}": tool for server, tools in self.servers.items() for tool in tools or ()
        }

    def fault(self, name: str) -> str:
        """Why no tool has this name; "" if one has it, or may have it."""
        if (written := as_written(name)) != name and self._is_ours(written):
            return f"to the CLI it is {written}"
        if name in TOOLS or name in self.tools or "*" in name:
            return ""
        letters = _letters(name)  # mcp_shop_price, mcp__shop__Price
        for whole, tool in self.tools.items():
            is_bare = name in (tool, mapped_name(tool)) and not name[:1].isupper()  # else a built-in one, maybe
            if is_bare or (letters == _letters(whole) and not self._may_be_anothers(name, whole)):
                return f"the tool is {whole} to the CLI"
        return ""

    def _is_ours(self, name: str) -> bool:
        """Whether it is one of our servers, or begins as its tools do, or is a pattern of some."""
        own = any(name.startswith(f"{server}__") for server in self.servers)
        return own or any(glob(name, one) for one in (*self.servers, *self.tools))

    def _may_be_anothers(self, name: str, whole: str) -> bool:
        """Whether it names another server than that of this tool, of these options or of a file, or a tool of it."""
        own = next(server for server in self.servers if whole.startswith(f"{server}__"))
        return name.startswith("mcp__") and not name.startswith(f"{own}__")

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


def as_written(name: str) -> str:
    """As the CLI writes a name that begins like those of MCP tools; a star is a pattern's. Any other as it is."""
    return "*".join(map(mapped_name, name.split("*"))) if name.startswith("mcp__") else name


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _nearest(name: str, known: list[str]) -> str:
    import difflib  # only for a mistake

    return next(iter(difflib.get_close_matches(name, known, 1, 0.7)), "")
