"""The one table of options, and the arguments they become.

Pure: a dict of options in, a list of arguments out. Long texts come out as `TextFile`s, which the
process layer writes to private files.

What the CLI's parser does, and why an argument is always one word, `--flag=value`:

* A flag that takes several values swallows every following word that does not begin with a dash.
  Joined by `=` it takes one. Lists are joined by a comma where the CLI cuts at commas (tools,
  models, sources), and the flag is repeated where it does not (directories, plugins, betas).
* A value from outside that begins with a dash stays a value.
* Of two equal flags the last wins, so `extra_args` may not name one that has an option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from . import _callables as callables
from . import _checks as checks
from . import _objects as objects
from ._checks import Check, as_text, repaired, wrong
from ._env import CONFIG_DIR, FILE_CHECKPOINTING, MAX_RETRIES, NO_AUTOUPDATE, NO_BACKGROUND_TASKS
from ._objects import from_json, is_json_text, to_json
from .options import ACCEPT_EDITS, Background, Effort, OnOff, PermissionMode, PermissionPrompts

# Linux refuses an argument of 128 KiB, its closing NUL included (MAX_ARG_STRLEN).
MAX_ARGUMENT_BYTES: Final = 128 * 1024 - 1
# From here on a text goes by file. Lower, so that a prefix like `ssh` may still quote it.
MAX_TEXT_BYTES: Final = 100 * 1024


class TextFile:
    """An argument whose text is too long: to be written to a file and passed as `flag=PATH`."""

    __slots__ = ("flag", "suffix", "text")

    def __init__(self, flag: str, suffix: str, text: str) -> None:
        self.flag = flag
        self.suffix = suffix
        self.text = text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TextFile):
            return NotImplemented
        return (self.flag, self.suffix, self.text) == (other.flag, other.suffix, other.text)

    __hash__ = None  # type: ignore[assignment]


Argument = str | TextFile
Encoder = Callable[[str, Any], Iterator[Argument]]


class Option:
    """One row: how an option is checked, and the flag or variable it becomes.

    Neither flag nor variable: the option is ours, the CLI never hears of it.
    """

    __slots__ = ("check", "encode", "flag", "name", "variable")

    def __init__(
        self, name: str, check: Check, flag: str = "", encode: Encoder | None = None, variable: str = ""
    ) -> None:
        self.name = name
        self.check = check
        self.flag = flag
        self.encode = encode
        self.variable = variable


# --- encoders: flag and value -> arguments


def _one(flag: str, value: Any) -> Iterator[Argument]:
    yield f"{flag}={repaired(value) if isinstance(value, str) else as_text(value)}"


def _path(flag: str, value: Any) -> Iterator[Argument]:
    yield f"{flag}={as_text(value)}"  # not repaired: a file name may hold escaped bytes


def _number(flag: str, value: Any) -> Iterator[Argument]:
    yield f"{flag}={value}"


def _bare(flag: str, value: Any) -> Iterator[Argument]:
    if value:
        yield flag


def _bare_if_false(flag: str, value: Any) -> Iterator[Argument]:
    if not value:
        yield flag


def _joined(flag: str, value: Any) -> Iterator[Argument]:
    """One argument, for [] too: `--tools=` is no tools."""
    yield f"{flag}={repaired(value if isinstance(value, str) else ','.join(value))}"


def _joined_if_any(flag: str, value: Any) -> Iterator[Argument]:
    """Where nothing means the same as no flag."""
    if value:
        yield from _joined(flag, value)


def _each(flag: str, value: Any) -> Iterator[Argument]:
    for item in value.replace(",", " ").split() if isinstance(value, str) else value:
        yield from _path(flag, item)


def _text(flag: str, value: Any) -> Iterator[Argument]:
    if checks.is_path(value):
        yield from _path(f"{flag}-file", value)
    else:
        yield _long(flag, f"{flag}-file", ".txt", value)


def _object(flag: str, value: Any) -> Iterator[Argument]:
    """A dict or JSON text, or a path: the CLI takes all of them by the same flag."""
    if isinstance(value, Mapping):
        value = to_json(flag, value)
    if is_json_text(value):
        yield _long(flag, flag, ".json", value.strip())
    else:
        yield from _path(flag, value)


def _servers(flag: str, value: Any) -> Iterator[Argument]:
    if isinstance(value, Mapping):
        value = {"mcpServers": {name: _server(name, server) for name, server in value.items()}}
    yield from _object(flag, value)


def _mcp_servers(name: str, value: Any) -> None:
    ours = isinstance(value, Mapping) and [key for key, one in value.items() if objects.is_tool_server(one)]
    _mcp(name, {key: one for key, one in value.items() if key not in ours} if ours else value)
    if ours:
        from .mcp import check_servers  # imported by those who have made one

        check_servers(value)


def _unattended(name: str, value: Any) -> None:
    if not isinstance(value, bool) and not hasattr(value, "deny_rules"):
        raise wrong(name, "True, or what unattended(...) made", value)


def _hooks(name: str, value: Any) -> None:
    from .callbacks import hooks_config  # imported by those who have hooks

    hooks_config(value)


def _server(name: str, server: Any) -> Any:
    """A server of ours is announced by its name alone: the CLI speaks to it through us."""
    return server if isinstance(server, Mapping) else {"type": "sdk", "name": name}


def _schema(flag: str, value: Any) -> Iterator[Argument]:
    yield f"{flag}={repaired(value if isinstance(value, str) else to_json(flag, value))}"


def _thinking(flag: str, value: Any) -> Iterator[Argument]:
    if not isinstance(value, Mapping):
        value = {"type": value}
    if value.get("budget_tokens") is not None:
        yield f"--max-thinking-tokens={value['budget_tokens']}"
    else:
        yield f"{flag}={value['type']}"
    if value.get("display") is not None:
        yield f"--thinking-display={value['display']}"


def _long(flag: str, file_flag: str, suffix: str, text: str) -> Argument:
    text = repaired(text)
    argument = f"{flag}={text}"
    return argument if _size(argument) <= MAX_TEXT_BYTES else TextFile(file_flag, suffix, text)


def _size(argument: str) -> int:
    return len(argument.encode("utf-8", "surrogatepass"))


# --- extra_args


# Flags that are the library's own, or that end what the library is for, and the reason.
REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("print", "output-format", "verbose", "input-format", "replay-user-messages", "session-mirror",
         "await-claim", "await-initialize", "sdk-url"),
        "this library sets the wire format itself",
    ),
    **dict.fromkeys(
        ("help", "version", "init-only", "rewind-files", "bg", "background", "cloud", "desktop", "teleport",
         "remote-control", "environment", "tmux", "prefill", "prefill-b64"),
        "with it the CLI does not run a turn here",
    ),
    "from-pr": "use resume",
    "debug-to-stderr": "it fills stderr, use debug_file",
    "thinking-display": "use thinking={'type': ..., 'display': ...}",
    "system-prompt-file": "use system_prompt=Path(...)",
    "append-system-prompt-file": "use append_system_prompt=Path(...)",
    "allowed-tools": "use allowed_tools",
    "disallowed-tools": "use disallowed_tools",
}  # fmt: skip


def _extra_args(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise wrong(name, "a dict of flag names and values", value)
    for flag, item in value.items():
        _extra_flag(name, flag)
        if item is not None and not isinstance(item, str):
            raise wrong(f"{name}[{flag!r}]", "a str, or None for a flag without a value", item)
        if item is not None:
            checks.text(f"{name}[{flag!r}]", item)


def _extra_flag(name: str, flag: Any) -> None:
    parts = flag.split("-") if isinstance(flag, str) else [""]
    if not all(part.isascii() and part.isalnum() for part in parts):
        raise ValueError(f"{name}: {flag!r} is no flag name; write it without leading dashes: 'flag-name'")
    reason = REFUSED.get(flag) or _OWN_FLAGS.get(f"--{flag}")
    if reason:
        raise ValueError(f"{name}: --{flag} is refused: {reason}")


def _extra(flag: str, value: Any) -> Iterator[Argument]:
    for name, item in value.items():
        yield f"--{name}" if item is None else f"--{name}={repaired(item)}"


# --- the table


def _one_of(literal: Any) -> Check:
    return checks.choice(*get_args(literal))


def _switch(name: str) -> Option:
    """A flag without a value, called like its option."""
    return Option(name, checks.flag, "--" + name.replace("_", "-"), _bare)


_agents: Final = objects.object_or_path(objects.agent, what="a dict of agents by name")
_mcp: Final = objects.object_or_path(
    objects.mcp_server, "mcpServers", 'a dict of servers by name ({"shop": ToolServer(...)})'
)

OPTIONS: Final[Mapping[str, Option]] = {
    option.name: option
    for option in (
        # model and prompt
        Option("model", checks.word, "--model", _one),
        Option("fallback_model", checks.words, "--fallback-model", _joined_if_any),
        Option("system_prompt", checks.text_or_path, "--system-prompt", _text),
        Option("append_system_prompt", checks.text_or_path, "--append-system-prompt", _text),
        Option("effort", _one_of(Effort), "--effort", _one),
        Option("thinking", checks.thinking, "--thinking", _thinking),
        Option("max_thinking_tokens", checks.whole(0), "--max-thinking-tokens", _number),
        Option("betas", checks.words, "--betas", _each),
        Option("agent", checks.word, "--agent", _one),
        Option("agents", _agents, "--agents", _object),
        _switch("exclude_dynamic_system_prompt_sections"),
        Option("system_prompt_snapshot", _one_of(OnOff), "--system-prompt-snapshot", _one),
        Option("autocompact", checks.autocompact, "--autocompact", _one),
        # tools and permission
        Option("tools", checks.tools, "--tools", _joined),
        Option("allowed_tools", checks.rules, "--allowedTools", _joined_if_any),
        Option("disallowed_tools", checks.rules, "--disallowedTools", _joined_if_any),
        Option("permission_mode", _one_of(PermissionMode), "--permission-mode", _one),
        Option("permission_prompt_tool", checks.permission_tool, "--permission-prompt-tool", _one),
        Option("permission_prompts", _one_of(PermissionPrompts), "--permission-prompts", _one),
        Option("can_use_tool", callables.takes("a PermissionRequest")),
        Option("unattended", _unattended),
        Option("hooks", _hooks),
        _switch("dangerously_skip_permissions"),
        _switch("allow_dangerously_skip_permissions"),
        Option("add_dirs", checks.paths, "--add-dir", _each),
        Option("sandbox", objects.plain_object),  # a part of settings
        # limits
        Option("timeout", checks.seconds),
        Option("idle_timeout", checks.seconds),
        Option("start_timeout", checks.seconds),
        Option("slot_timeout", checks.seconds_or_zero),
        Option("max_turns", checks.whole(1), "--max-turns", _number),
        Option("max_budget_usd", checks.positive, "--max-budget-usd", _number),
        Option("task_budget", checks.whole(1), "--task-budget", _number),
        Option("max_retries", checks.whole(0, 15), variable=MAX_RETRIES),
        # session
        Option("resume", checks.session, "--resume", _one),
        Option("continue_conversation", checks.flag, "--continue", _bare),
        _switch("fork_session"),
        Option("session_id", checks.uuid, "--session-id", _one),
        Option("resume_session_at", checks.uuid, "--resume-session-at", _one),
        Option("resume_drops_turn", checks.uuid, "--resume-drops-turn", _one),
        Option("persist_session", checks.flag, "--no-session-persistence", _bare_if_false),
        Option("name", checks.word, "--name", _one),
        # configuration
        Option("settings", objects.object_or_path(objects.anything), "--settings", _object),
        Option("setting_sources", checks.sources, "--setting-sources", _joined),
        Option("mcp_servers", _mcp_servers, "--mcp-config", _servers),
        _switch("strict_mcp_config"),
        Option("plugin_dirs", checks.paths, "--plugin-dir", _each),
        _switch("bare"),
        _switch("safe_mode"),
        _switch("restricted"),
        _switch("disable_slash_commands"),
        Option("enable_file_checkpointing", checks.flag, variable=FILE_CHECKPOINTING),
        Option("debug_file", checks.path, "--debug-file", _path),
        # output
        Option("json_schema", objects.schema, "--json-schema", _schema),
        _switch("include_partial_messages"),
        _switch("include_hook_events"),
        _switch("forward_subagent_text"),
        # the process, and what is ours
        Option("cwd", checks.path),
        Option("env", checks.environment),
        Option("inherit_env", checks.flag),
        Option("config_dir", checks.path, variable=CONFIG_DIR),
        Option("isolated", checks.flag),
        Option("autoupdate", checks.flag, variable=NO_AUTOUPDATE),
        Option("background", _one_of(Background), variable=NO_BACKGROUND_TASKS),
        Option("background_timeout", checks.seconds),
        Option("command_prefix", checks.command),
        Option("line_sink", callables.line_sink),
        Option("on_stderr", callables.takes("a line as text")),
        Option("kill_leftovers", checks.flag),
        Option("literal", checks.flag),
        Option("callback_wrapper", callables.takes()),
        Option("max_line_bytes", checks.whole(1)),
        Option("max_buffered_bytes", checks.whole(1)),
        Option("extra_args", _extra_args, encode=_extra),  # last, so that it stands last
    )
}

_OWN_FLAGS: Final = {option.flag: f"use {option.name}" for option in OPTIONS.values() if option.flag}

# What `isolated=True` means besides a configuration directory of its own.
_ISOLATED: Final[Mapping[str, Any]] = {"setting_sources": [], "strict_mcp_config": True}

# Flags whose value may stand in an error message.
_SHOWN: Final = frozenset(_OWN_FLAGS) - {
    "--system-prompt", "--append-system-prompt", "--agents", "--settings", "--mcp-config", "--json-schema",
} | {"--output-format", "--input-format", "--thinking-display"}  # fmt: skip


# --- the arguments


def build_argv(options: Mapping[str, Any]) -> list[Argument]:
    """The arguments behind the CLI's path, for options that `check` has passed.

    Raises ValueError where a text is too long for its flag, or for a `command_prefix`.
    """
    options = _settled(options)
    argv: list[Argument] = ["-p", "--output-format=stream-json", "--verbose"]
    if options.get("streaming"):  # decided from the prompt, too: see `_merge.streams`
        argv.append("--input-format=stream-json")
    if options.get("mirrored"):  # decided by the client, which has the store
        argv.append("--session-mirror")
    if options.get("can_use_tool") is not None:
        argv.append("--permission-prompt-tool=stdio")
    for name in filter(options.__contains__, OPTIONS):  # in the order of the table
        option, value = OPTIONS[name], options[name]
        if value is not None and option.encode is not None:
            arguments = list(option.encode(option.flag, value))
            _fits(name, arguments, bool(options.get("command_prefix")))
            argv += arguments
    return argv


def _settled(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with what follows from others and from our defaults."""
    settled = {**options, **_ISOLATED} if options.get("isolated") else dict(options)
    if not settled.get("dangerously_skip_permissions"):
        # With a callback one in which it is asked. Said, since else settings on the disk, also those of
        # the project, would decide.
        settled.setdefault("permission_mode", ACCEPT_EDITS if settled.get("can_use_tool") is None else "default")
    if settled.get("sandbox") is not None:
        settled["settings"] = with_sandbox(settled.get("settings"), settled["sandbox"])
    return settled


def with_sandbox(settings: Any, sandbox: Mapping[str, Any]) -> dict[str, Any]:
    """These settings (no file) with this sandbox, whose names overrule theirs."""
    if isinstance(settings, str):
        settings = from_json("settings", settings)
    before = (settings or {}).get("sandbox")
    return {**(settings or {}), "sandbox": {**(before if isinstance(before, Mapping) else {}), **sandbox}}


def _fits(name: str, arguments: Sequence[Argument], prefixed: bool) -> None:
    for argument in arguments:
        if isinstance(argument, TextFile):
            if prefixed:
                raise ValueError(
                    f"{name} is longer than {MAX_TEXT_BYTES} bytes and would go by a file, which does not "
                    "exist behind command_prefix; put it into a file there and give its path"
                )
        elif _size(argument) > MAX_ARGUMENT_BYTES:
            raise ValueError(f"{name} is too long: an argument can have {MAX_ARGUMENT_BYTES} bytes at most")


def shown_argv(argv: Sequence[Argument]) -> str:
    """The command as it may stand in an error message: no prompt, setting, configuration or
    variable, and no value of a flag that is not ours."""
    import shlex

    return " ".join(f"{word}=..." if hidden else shlex.quote(word) for word, hidden in map(_shown, argv))


def _shown(argument: Argument) -> tuple[str, bool]:
    if isinstance(argument, TextFile):
        return argument.flag, True
    flag, joined, _ = argument.partition("=")
    return (flag, True) if joined and flag not in _SHOWN else (argument, False)
