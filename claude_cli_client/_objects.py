"""The options that are JSON objects: settings, agents, MCP servers, the answer's schema.

Pure. Such an option is a dict, the JSON text of one, or the path of a file of it. What stands in
a file is the CLI's to read; in a dict and in a text we look at every entry, since the CLI leaves
out in silence what it does not understand. Contents are never shown: they hold secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from ._checks import Check, copied, is_path, listed, path, text, tool_name, wrong

_MCP_NEEDS: Final = {  # type of server: the field without which the CLI leaves it out
    "stdio": "command",
    "http": "url",
    "streamable-http": "url",
    "sse": "url",
    "ws": "url",
}


# Names that the CLI (2.1.332) keeps for servers of its own, as it compares them. It leaves others of these names
# out, with a word in `init` alone; in-process servers may have them.
_RESERVED: Final = frozenset(
    {
        "Claude_Browser",
        "Claude_Preview",
        "Slack sign-in (Claude Code tag)",
        "claude-code-remote",
        "claude-in-chrome",
        "computer-use",
        "webagent",
        "workspace",
    }
)


def is_json_text(value: Any) -> bool:
    """Whether the CLI takes this for JSON and not for a path: it looks at the first character."""
    return isinstance(value, str) and value.lstrip().startswith("{")


def to_json(name: str, value: Any) -> str:
    try:
        return json.dumps(copied(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} cannot be written as JSON: {error}") from error


def loads(text: str) -> Any:
    """JSON as the CLI takes it: numbers of any length, which Python does not take for whole ones, but no NaN."""
    return json.loads(text, parse_constant=_no_number, parse_int=_whole, parse_float=_number)


def _whole(word: str) -> float:
    return int(word) if len(word) < 20 else _number(word)


def _number(word: str) -> float:
    return max(-_LARGEST, min(float(word), _LARGEST))


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


_LARGEST: Final = 1.7976931348623157e308


def from_json(name: str, text: str) -> dict[str, Any]:
    try:
        value = loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} begins as a JSON text but is none: {error}") from None
    if not isinstance(value, dict):
        raise wrong(name, "a JSON object", value)
    return value


def plain_object(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise wrong(name, "a dict", value)
    to_json(name, value)


def object_or_path(each: Check, key: str = "", what: str = "a dict") -> Check:
    """A dict, the JSON text of one, or the path of a file. `each` looks at every entry.

    `key`: what the JSON text, unlike the dict, has around the entries. `what`: the dict, in words.
    """

    def check(name: str, value: Any) -> None:
        if isinstance(value, Mapping) or is_json_text(value):
            entries = value if isinstance(value, Mapping) else _entries(name, value, key)
            for entry, item in entries.items():
                each(f"{name}[{entry!r}]", item)
            plain_object(name, entries)
        elif isinstance(value, str) or is_path(value):
            path(name, value)
        else:
            raise wrong(name, f"{what}, the JSON text of one, or the path of a file", value)

    return check


def _entries(name: str, value: str, key: str) -> Mapping[str, Any]:
    text(name, value)
    found = from_json(name, value)
    if key and not isinstance(found.get(key), Mapping):
        raise ValueError(f"{name} as a JSON text needs {key!r} around its entries")
    return found[key] if key else found


def anything(name: str, value: Any) -> None:
    """For entries that only the CLI understands."""


def agent(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise wrong(name, "a dict with description and prompt", value)
    for field in ("description", "prompt"):
        if not isinstance(value.get(field), str) or not value[field].strip():
            raise ValueError(f"{name} needs {field!r}, a text that is not empty")
    for field in value:
        if "_" in str(field):
            first, *rest = str(field).split("_")
            camel = first + "".join(part.title() for part in rest)
            raise ValueError(f"{name}: the CLI ignores {field!r}, it writes {camel!r}")
    for field in ("tools", "disallowedTools"):
        if value.get(field) is not None:
            listed(f"{name}[{field!r}]", value[field], tool_name, "tool names")


def is_tool_server(value: Any) -> bool:
    """Whether it is a `ToolServer`, whose module is imported by those who have made one."""
    return callable(getattr(value, "may_run_parallel", None)) and not isinstance(value, type)


def mcp_server(name: str, value: Any) -> None:
    if name.endswith("['mcpServers']"):
        raise ValueError(f"{name}: give what is inside of 'mcpServers', a dict of servers by name")
    _server_name(name, name.partition("[")[2][1:-2], is_tool_server(value))
    if is_tool_server(value):
        return
    if not isinstance(value, Mapping):
        raise wrong(name, "a dict or a ToolServer (of a function: ToolServer([function]))", value)
    kind = value.get("type", "stdio")
    if kind == "stdio" and "command" not in value and "url" in value:
        raise ValueError(f"{name} has a 'url' but no 'type'; add 'type': 'http' (or 'sse', 'ws')")
    needed = _MCP_NEEDS.get(kind) if isinstance(kind, str) else None
    if needed is None:
        raise ValueError(f"{name}['type'] must be one of {', '.join(_MCP_NEEDS)}, not {kind!r}")
    if not isinstance(value.get(needed), str) or not value[needed]:
        raise ValueError(f"{name} needs {needed!r}, a text, or the CLI leaves the server out")
    if kind == "stdio":
        listed(f"{name}['args']", value.get("args", []), text, "words")
    for field, read_by, fits, must in _MCP_FIELDS:
        if field in value and kind in read_by and not fits(value[field]):
            raise ValueError(f"{name}[{field!r}] must be {must}, or the CLI leaves the server out")


def _server_name(name: str, key: str, in_process: bool) -> None:
    """The CLI drops every tool `mcp__ide__*` but two of an editor's, and a server `__proto__` as a whole."""
    known = re.sub(r"[^a-zA-Z0-9_-]", "_", key)
    if f"{known}__".startswith("ide__"):
        raise ValueError(f"{name}: the CLI hides the tools of servers called 'ide'; give it another name")
    if known == "__proto__" or (not in_process and not _RESERVED.isdisjoint((key, known.strip("_")))):
        raise ValueError(f"{name}: the CLI keeps this name for itself and leaves the server out; give it another name")


def _is_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(item, str) for item in value.values())


def _is_milliseconds(value: Any) -> bool:
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return is_whole and not isinstance(value, bool) and 1 <= value < 1 << 53


# Field, the types of server that read it, and what it must be, or the CLI leaves the server out (seen with
# 2.1.332). For all of them None is not "not given".
_MCP_FIELDS: Final[tuple[tuple[str, Collection[str], Callable[[Any], bool], str], ...]] = (
    ("env", ("stdio",), _is_texts, "a dict of texts"),
    ("headers", _MCP_NEEDS.keys() - {"stdio"}, _is_texts, "a dict of texts"),
    ("headersHelper", _MCP_NEEDS.keys() - {"stdio"}, lambda value: isinstance(value, str), "a text"),
    ("oauth", _MCP_NEEDS.keys() - {"stdio", "ws"}, lambda value: isinstance(value, Mapping), "a dict"),
    ("timeout", _MCP_NEEDS, _is_milliseconds, "a whole number of milliseconds, 1 or more"),
    ("alwaysLoad", _MCP_NEEDS, lambda value: isinstance(value, bool), "True or False"),
)


def schema(name: str, value: Any) -> None:
    if isinstance(value, str):
        text(name, value)
        if not is_json_text(value):
            raise ValueError(f"{name} must be a JSON schema as a dict or JSON text; for a file give what is in it")
        value = from_json(name, value)
    if not isinstance(value, Mapping):
        raise wrong(name, "a JSON schema as a dict (of a pydantic model: Model.model_json_schema())", value)
    if value.get("type") == "json_schema" and "schema" in value:
        raise ValueError(f"{name} must be the schema itself, give what is in its 'schema'")
    to_json(name, value)
