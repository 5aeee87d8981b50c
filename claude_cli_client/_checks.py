"""Is this one value acceptable? One function per kind of value, and what they have in common.

Pure, and about single values: which options exist is in `_argv.py`, which of them exclude each
other in `_merge.py`.

The reason for most of it: the CLI passes in silence over much that is wrong. A tool rule in the
wrong case forbids nothing, an MCP server without a `type` is left out, `max_turns=0` is no limit
at all. A run that looks well and does something else is the worst outcome, so these are errors
here, before anything starts.

Every check takes the option's name and a value that is not None, and raises a `ValueError` that
names the option, what it got and what it should get. Texts, settings, configurations and
environment values are never shown: they hold secrets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeGuard, get_args

from ._log import bad_value
from .options import SettingSource, ThinkingMode

Check = Callable[[str, Any], None]

# The CLI's own limit on stdin. It counts UTF-16 units, so in bytes we are never more generous.
MAX_PROMPT_BYTES: Final = 10 * 1024 * 1024

# What JavaScript's `trim` removes. `str.strip` takes U+001C-1F and U+0085 too, which the CLI
# accepts as a prompt, and leaves U+FEFF, which it does not.
_BLANK: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)

_UUID: Final = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"

# Names of built-in tools, only to catch a wrong case ("bash"), which the CLI ignores. Not a list
# of what exists: a name that is not here is passed on.
TOOLS: Final = (
    "Agent", "AskUserQuestion", "Bash", "Edit", "Glob", "Grep", "LSP", "Monitor", "MultiEdit", "NotebookEdit",
    "PowerShell", "Read", "Skill", "Task", "TodoWrite", "ToolSearch", "WebFetch", "WebSearch", "Write",
)  # fmt: skip

# Subclasses (`StrEnum`, `numpy.float64`) print as something else than their value.
_PLAIN: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
)


# --- helpers


_LARGEST: Final = 1.7976931348623157e308


def is_huge(value: Any) -> bool:
    """Whether it is a whole number that no float holds: no clock takes it, and Python may refuse to write it."""
    return isinstance(value, int) and abs(value) > _LARGEST


def wrong(name: str, must: str, value: Any) -> ValueError:
    """The error for a value of the wrong type; shows numbers and flags, of all else only the type."""
    shown = f"a {type(value).__name__}"
    if isinstance(value, (bool, int, float)):
        shown = "one of hundreds of digits" if is_huge(value) else repr(value)
    return ValueError(f"{name} must be {must}, not {shown}")


def copied(value: Any) -> Any:
    """`value` with new dicts and lists all the way down, so that the caller may change his own."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if is_list(value):
        return [copied(item) for item in value]
    for kind, plain in _PLAIN:
        if isinstance(value, kind) and not isinstance(value, bool):
            return plain(value)
    return value


def is_list(value: Any) -> bool:
    """Not a set: most lists here have an order, and a stable argv serves the prompt cache."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview))


def is_path(value: Any) -> bool:
    return hasattr(value, "__fspath__")


def as_text(value: Any) -> str:
    """A path as its text; everything else as it is."""
    return value.__fspath__() if is_path(value) else value  # type: ignore[no-any-return]


def repaired(text: str) -> str:
    """Surrogate pairs become the character they mean, lone surrogates U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def check_prompt(prompt: Any) -> str | list[dict[str, Any]]:
    """The prompt as it goes to the CLI: a text, or content blocks. Lone surrogates become U+FFFD.

    Raises TypeError for anything else, ValueError for a prompt the CLI would refuse: empty, blank,
    or a text above 10 MiB.
    """
    if isinstance(prompt, (list, tuple)):
        return _blocks(prompt)
    if not isinstance(prompt, str):
        raise TypeError(f"the prompt must be a str or a list of content blocks, not a {type(prompt).__name__}")
    if not prompt.strip(_BLANK):
        raise ValueError("the prompt is empty or blank")
    text = repaired(prompt)
    size = len(text.encode())
    if size > MAX_PROMPT_BYTES:
        raise ValueError(
            f"the prompt has {size} bytes, the CLI takes {MAX_PROMPT_BYTES} at most; "
            "put the content into a file and name its path"
        )
    return text


def _blocks(blocks: Sequence[Any]) -> list[dict[str, Any]]:
    if not blocks:
        raise ValueError("the prompt has no content block")
    for number, block in enumerate(blocks):
        if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
            raise TypeError(f"content block {number} must be a dict with a 'type', such as 'text' or 'image'")
        if block["type"] == "text" and not str(block.get("text", "")).strip(_BLANK):
            raise ValueError(f"content block {number} is a text that is empty or blank")
    return [copied(block) for block in blocks]


# --- flags, numbers, words


def flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise wrong(name, "True or False", value)


def is_number(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or is_huge(value):
        return False
    return math.isfinite(value)


def whole(minimum: int, maximum: int | None = None) -> Check:
    """A whole number in these bounds. The CLI cuts 1.5 to 1 and clamps what is too large."""
    bounds = f"{minimum} to {maximum}" if maximum is not None else f"{minimum} or more"

    def check(name: str, value: Any) -> None:
        if not isinstance(value, int) or not is_number(value):
            raise wrong(name, f"a whole number, {bounds}", value)
        if value < minimum or (maximum is not None and value > maximum):
            raise wrong(name, bounds, value)

    return check


def positive(name: str, value: Any) -> None:
    if not is_number(value) or value <= 0:
        raise wrong(name, "a number above 0", value)


def seconds(name: str, value: Any) -> None:
    if not is_number(value) or value <= 0:
        raise wrong(name, "a number of seconds above 0 (None is no limit)", value)


def seconds_or_zero(name: str, value: Any) -> None:
    if not is_number(value) or value < 0:
        raise wrong(name, "a number of seconds, 0 or more (None is no limit)", value)


def choice(*names: str) -> Check:
    def check(name: str, value: Any) -> None:
        if not isinstance(value, str):
            raise wrong(name, f"one of {', '.join(names)}", value)
        if value not in names:
            raise ValueError(f"{name} must be one of {', '.join(names)}, not {value[:60]!r}")

    return check


def text(name: str, value: Any) -> None:
    """Any text that can be an argument. A NUL would cut it, or fail in the middle of the start."""
    if not isinstance(value, str):
        raise wrong(name, "a str", value)
    if "\0" in value:
        raise ValueError(f"{name} holds a NUL character, which no argument or variable can hold")


def system_text(name: str, value: Any) -> None:
    """A text that reaches the system as it is, where `repaired` would name another file."""
    text(name, value)
    try:
        value.encode("utf-8", "surrogateescape")  # as os.fsencode does
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds a lone surrogate, which no argument or variable can hold") from None


def word(name: str, value: Any) -> None:
    """A name: not blank, and nothing that any shell, wrapper or parser could take for a flag."""
    text(name, value)
    if not value.strip(_BLANK):
        raise ValueError(f"{name} is empty or blank; leave it out, or give None")
    if value.lstrip().startswith("-"):
        raise ValueError(f"{name} must not begin with a dash, it could be taken for a flag: {value[:60]!r}")


def session(name: str, value: Any) -> None:
    if value is True:
        raise ValueError(f"{name} must be an id or a title; for the latest use continue_conversation=True")
    if isinstance(value, Mapping):
        raise ValueError(f"{wrong(name, 'a str', value)}; with what to_dict() gave use client.conversation(...)")
    _refuse_its_owner(name, "a str", value)
    word(name, value)


def _refuse_its_owner(name: str, must: str, value: Any) -> None:
    """What has the id as a field: a `SessionInfo`, an `Event`, a `SessionMessage`."""
    field = "session_id" if name in ("session_id", "resume") else "uuid"
    if hasattr(value, field):
        raise ValueError(f"{wrong(name, must, value)}; give its {field}")


def is_uuid(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and re.fullmatch(_UUID, value) is not None


def uuid(name: str, value: Any) -> None:
    _refuse_its_owner(name, "a UUID as a str", value)
    if not isinstance(value, str):
        raise wrong(name, "a UUID as a str", value)
    if not is_uuid(value):
        raise ValueError(f"{name} must be a UUID, 32 hex digits as 8-4-4-4-12, not {value[:60]!r}")


def path(name: str, value: Any) -> None:
    value = as_text(value)
    if not isinstance(value, str):
        raise wrong(name, "a path (a str or pathlib.Path)", value)
    if not value:
        raise ValueError(f"{name} is an empty path")
    system_text(name, value)


def text_or_path(name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        raise ValueError(
            f"{name} must be a text or a Path, not a dict; append_system_prompt adds to the CLI's own prompt"
        )
    if not isinstance(value, str) and not is_path(value):
        raise wrong(name, "a text or a Path", value)
    (path if is_path(value) else text)(name, value)


def autocompact(name: str, value: Any) -> None:
    if value != "auto":
        whole(100_000)(name, value)


def thinking(name: str, value: Any) -> None:
    """A mode, or the API's dict. Of its fields the CLI has flags for these."""
    kind = value.get("type") if isinstance(value, Mapping) else value
    choice(*get_args(ThinkingMode))(name, kind)
    if isinstance(value, Mapping):
        unknown = value.keys() - {"type", "budget_tokens", "display"}
        if unknown:
            raise ValueError(f"{name} has no field {sorted(map(str, unknown))[0]!r}")
        if value.get("budget_tokens") is not None:
            whole(1)(f"{name}['budget_tokens']", value["budget_tokens"])
            choice("enabled")(f"{name}['type'] with budget_tokens", kind)
        if value.get("display") is not None:
            choice("summarized", "omitted")(f"{name}['display']", value["display"])


# --- lists


def listed(name: str, value: Any, each: Check, what: str) -> None:
    if not is_list(value):
        raise wrong(name, f"a list of {what}", value)
    for index, item in enumerate(value):
        each(f"{name}[{index}]", item)


def paths(name: str, value: Any) -> None:
    listed(name, value, path, "paths")


def sources(name: str, value: Any) -> None:
    listed(name, value, choice(*get_args(SettingSource)), "setting sources")


def words(name: str, value: Any) -> None:
    """A list of names, or the CLI's own string of them."""
    if isinstance(value, str):
        word(name, value)
    else:
        listed(name, value, _plain_word, "names")


def _plain_word(name: str, value: Any) -> None:
    word(name, value)
    if re.search(r"[\s,]", value):
        raise ValueError(f"{name} holds a comma or a space, which would make it two: {value[:60]!r}")


def command(name: str, value: Any) -> None:
    if isinstance(value, str):
        raise ValueError(f"{name} must be a list of words, not one str; shlex.split makes them")
    listed(name, value, system_text, "words")
    if "" in value:
        raise ValueError(f"{name} holds an empty word")


def split_rules(text: str) -> list[str]:
    """How the CLI cuts a list of tool rules: at commas and spaces outside of parentheses.

    It does not count parentheses: the first `)` ends the rule.
    """
    rules, rule, inside = [], "", False
    for character in text:
        if character in ", " and not inside:
            rules.append(rule.strip())
            rule = ""
        else:
            inside = character == "(" or (inside and character != ")")
            rule += character
    return [found for found in [*rules, rule.strip()] if found]


def rules(name: str, value: Any) -> None:
    """Tool rules, as a list or as the CLI's own string."""
    if isinstance(value, str):
        text(name, value)
        value = split_rules(value)
    listed(name, value, _rule, "tool rules")


def _rule(name: str, value: Any) -> None:
    word(name, value)
    if split_rules(value) != [value]:
        remedy = "A command is Bash(npm test), and two rules are two items of the list"
        if "(" in value:
            remedy = "A rule with inner parentheses can stand in settings={'permissions': {'allow': [...]}}"
        raise ValueError(f"{name} would be read as several rules: {value[:60]!r}. {remedy}")
    tool, opened, rest = value.partition("(")
    if ")" in tool or not tool or (opened and not rest.endswith(")")):
        raise ValueError(f"{name} is no tool rule, its parentheses do not match: {value[:60]!r}")
    tool_case(name, tool)


def tools(name: str, value: Any) -> None:
    """Built-in tools by name. The CLI drops all other words, and with them maybe the last tool."""
    if isinstance(value, str):
        text(name, value)
        value = split_rules(value)
    listed(name, value, _tool, "tool names")
    if "default" in value and len(value) > 1:
        raise ValueError(f"{name}: 'default' is all tools and must stand alone")


def _tool(name: str, value: Any) -> None:
    word(name, value)
    if "(" in value:
        raise ValueError(f"{name} takes names, rules belong in allowed_tools: {value[:60]!r}")
    _plain_word(name, value)
    if value.startswith("mcp__"):
        raise ValueError(f"{name} takes built-in tools only; MCP tools come with their server in mcp_servers")
    tool_case(name, value)


def tool_name(name: str, value: Any) -> None:
    """A tool as a definition of an agent names it, with or without parentheses."""
    word(name, value)
    tool_case(name, value.partition("(")[0])


def tool_case(name: str, tool: str) -> None:
    """Of a rule, too. Callbacks make some."""
    known = {known.lower(): known for known in TOOLS}.get(tool.lower(), tool)
    if known != tool:
        raise bad_value(f"{name}: the tool is called {known!r}; the CLI ignores {tool!r}")


def permission_tool(name: str, value: Any) -> None:
    word(name, value)
    if value == "stdio":
        raise ValueError(f"{name}='stdio' is the wire of can_use_tool: give that option instead")
    if not re.fullmatch(r"mcp__.+__.+", value):
        raise ValueError(f"{name} must be an MCP tool, mcp__server__tool, not {value[:60]!r}")


# --- variables


def environment(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise wrong(name, "a dict of variables", value)
    for key, item in value.items():
        _variable(name, key, item)


def _variable(name: str, key: Any, value: Any) -> None:
    if not isinstance(key, str) or not key or "=" in key or not key.isprintable():
        raise ValueError(f"{name}: {key!r} cannot be the name of a variable")
    if value is None:
        return
    if not isinstance(value, str):
        raise ValueError(f"{name}[{key!r}] must be a str or None (removes it), not a {type(value).__name__}")
    system_text(f"{name}[{key!r}]", value)
