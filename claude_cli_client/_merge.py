"""From what a client and a call say to one dict of options that can run.

Pure. Three questions are answered here: does this option exist, and if not, which one is meant
(`TypeError`); is each value acceptable (`_checks.py`); do they go together (`ValueError`).
The CLI itself ignores most of the combinations refused here, without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ._argv import OPTIONS
from ._checks import copied, is_path, split_rules
from ._objects import is_json_text, is_tool_server
from .options import ACCEPT_EDITS, DEFAULTS, MARKER

# What other clients, the CLI's flags and common sense call it -> the name here.
_CLIENTS_OWN: Final = "an argument of Client(...) alone"
ALIASES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("directory", "working_directory", "working_dir", "work_dir", "workdir"), "cwd"),
    **dict.fromkeys(("effort_level", "reasoning_effort"), "effort"),
    **dict.fromkeys(("settings_file", "settings_path"), "settings"),
    **dict.fromkeys(("output_format", "output_schema", "response_format", "schema"), "json_schema"),
    **dict.fromkeys(("stderr", "debug_stderr", "stderr_callback"), "on_stderr"),
    **dict.fromkeys(("max_buffer_size", "max_line_size"), "max_line_bytes"),
    **dict.fromkeys(("permission_prompt_tool_name", "permission_tool"), "permission_prompt_tool"),
    **dict.fromkeys(("plugins", "plugin_dir"), "plugin_dirs"),
    **dict.fromkeys(("include_partial", "partial_messages", "stream"), "include_partial_messages"),
    **dict.fromkeys(("custom_system_prompt", "system"), "system_prompt"),
    **dict.fromkeys(("system_prompt_file", "system_prompt_path"), "system_prompt=Path(...)"),
    "append_system_prompt_file": "append_system_prompt=Path(...)",
    **dict.fromkeys(("mcp_config", "mcp_config_file", "mcp"), "mcp_servers"),
    **dict.fromkeys(("add_dir", "additional_directories", "add_directories"), "add_dirs"),
    **dict.fromkeys(("max_budget", "max_cost", "max_cost_usd", "budget_usd"), "max_budget_usd"),
    **dict.fromkeys(("continue_", "continue_session", "continue_last"), "continue_conversation"),
    **dict.fromkeys(("resume_session", "resume_session_id", "resume_id", "session"), "resume"),
    **dict.fromkeys(("skip_permissions", "bypass_permissions"), "dangerously_skip_permissions"),
    "no_session_persistence": "persist_session=False",
    **dict.fromkeys(("title", "session_name"), "name"),
    **dict.fromkeys(("environment", "env_vars", "extra_env"), "env"),
    "thinking_budget": "max_thinking_tokens",
    "thinking_display": "thinking={'type': ..., 'display': ...}",
    **dict.fromkeys(("verbose", "print", "input_format"), "no option, this library sets it itself"),
    "debug": "debug_file",
    "user": "command_prefix=['sudo', '-E', '-u', USER, '--']",
    "skills": "no option; disable_slash_commands=True turns them off, tools and allowed_tools take 'Skill'",
    **dict.fromkeys(
        ("cli_path", "max_concurrent", "settings_dir", "settings_cache_ttl", "store"),
        _CLIENTS_OWN,
    ),
    **dict.fromkeys(("max_workers", "concurrency"), "max_concurrent, an argument of Client(...) alone"),
    "api_key": "env={'ANTHROPIC_API_KEY': ...}",
    **dict.fromkeys(("max_tokens", "temperature", "top_p", "stop_sequences"), "no option: the CLI has none for it"),
    **dict.fromkeys(("session_store", "store_flush"), "an argument of Client(...): store=, store_flush="),
    **dict.fromkeys(("can_use_tools", "permission_callback"), "can_use_tool"),
    "verbatim_prompts": "literal",
}
# Parameters that are no options -> whose they are.
_ELSEWHERE: Final = {
    **dict.fromkeys(("allow", "deny", "guidance", "approve_plans"), "unattended(...)"),
    "restart_stale": "client.conversation(...)",
    "return_exceptions": "client.map(...)",
}


def _on(options: Mapping[str, Any], *names: str) -> bool:
    """Whether one of them is given: not absent, None, False, nor an empty list or dict."""
    return any(options.get(name) not in (None, False, [], {}, ()) for name in names)


def _continues(options: Mapping[str, Any]) -> bool:
    return _on(options, "resume", "continue_conversation")


def _bypass(options: Mapping[str, Any]) -> bool:
    mode = options.get("permission_mode")
    return mode == "bypassPermissions" or _on(options, "dangerously_skip_permissions")


def settings_file(options: Mapping[str, Any]) -> bool:
    settings = options.get("settings")
    return is_path(settings) or (isinstance(settings, str) and not is_json_text(settings))


_Options = Mapping[str, Any]

# What does not go together, and what to do about it. First an option without which it does not occur.
CONFLICTS: Final[tuple[tuple[str, Callable[[_Options], bool], str], ...]] = (
    (
        "resume",
        lambda o: _on(o, "resume") and _on(o, "continue_conversation"),
        "resume and continue_conversation exclude each other: give the session, or take the latest",
    ),
    (
        "session_id",
        lambda o: _on(o, "session_id") and _continues(o) and not _on(o, "fork_session"),
        "session_id names a new session; to go on with one give resume alone, for a copy also fork_session",
    ),
    (
        "fork_session",
        lambda o: _on(o, "fork_session") and not _continues(o),
        "fork_session needs resume or continue_conversation: there is nothing to copy",
    ),
    (
        "resume_session_at",
        lambda o: _on(o, "resume_session_at") and not _on(o, "resume"),
        "resume_session_at needs resume",
    ),
    (
        "resume_drops_turn",
        lambda o: _on(o, "resume_drops_turn") and not _on(o, "resume_session_at"),
        "resume_drops_turn needs resume_session_at",
    ),
    (
        "background_timeout",
        lambda o: _on(o, "background_timeout") and o.get("background") != "wait",
        "background_timeout needs background='wait'",
    ),
    (
        "isolated",
        lambda o: _on(o, "isolated") and _on(o, "setting_sources"),
        "isolated=True reads no settings files: leave out setting_sources",
    ),
    (
        "isolated",
        lambda o: _on(o, "isolated") and o.get("strict_mcp_config") is False,
        "isolated=True takes only your own MCP servers: leave out strict_mcp_config=False",
    ),
    (
        "dangerously_skip_permissions",
        lambda o: (
            _on(o, "dangerously_skip_permissions")
            and o.get("permission_mode") not in (None, "bypassPermissions")
        ),
        "dangerously_skip_permissions overrides permission_mode: leave one of them out",
    ),
    (
        "restricted",
        lambda o: _on(o, "restricted") and _bypass(o),
        "restricted=True does not allow that permissions are bypassed",
    ),
    (
        "restricted",
        lambda o: _on(o, "restricted") and _on(o, "setting_sources"),
        "restricted=True reads no settings files: leave out setting_sources, or use settings",
    ),
    (
        "safe_mode",
        lambda o: _on(o, "safe_mode") and _on(o, "mcp_servers", "agents"),
        "safe_mode=True ignores mcp_servers and agents",
    ),
    (
        "exclude_dynamic_system_prompt_sections",
        lambda o: _on(o, "exclude_dynamic_system_prompt_sections") and o.get("system_prompt") is not None,
        "exclude_dynamic_system_prompt_sections is about the CLI's own prompt, which system_prompt replaces",
    ),
    (
        "thinking",
        lambda o: o.get("thinking") is not None and o.get("max_thinking_tokens") is not None,
        "thinking makes the CLI ignore max_thinking_tokens: give {'type': 'enabled', 'budget_tokens': ...}",
    ),
    (
        "permission_prompts",
        lambda o: o.get("permission_prompts") == "none" and _on(o, "permission_prompt_tool"),
        "permission_prompts='none' means that permission_prompt_tool is never asked",
    ),
    (
        "sandbox",
        lambda o: o.get("sandbox") is not None and settings_file(o),
        "sandbox is merged into settings, so settings must be a dict or a JSON text, not a file",
    ),
    (
        "bare",
        lambda o: _on(o, "bare") and any((o.get("hooks") or {}).values()),
        "bare=True makes the CLI run no hooks, yours neither: leave one of them out",
    ),
    (
        "permission_prompts",
        lambda o: o.get("permission_prompts") == "none" and _on(o, "unattended"),
        "permission_prompts='none' means that the rules of unattended are never asked: leave it out",
    ),
    (
        "unattended",
        lambda o: _on(o, "unattended") and (o.get("can_use_tool") is not None or _on(o, "permission_prompt_tool")),
        "unattended answers permission requests itself: leave out can_use_tool and permission_prompt_tool",
    ),
    (
        "can_use_tool",
        lambda o: o.get("can_use_tool") is not None and _on(o, "permission_prompt_tool"),
        "can_use_tool and permission_prompt_tool exclude each other: one of them answers",
    ),
    (
        "can_use_tool",
        lambda o: o.get("can_use_tool") is not None and o.get("permission_prompts") == "none",
        "permission_prompts='none' means that can_use_tool is never asked",
    ),
    (
        "env",
        lambda o: MARKER in (o.get("env") or {}),
        f"env must not hold {MARKER}: by it this library finds what a run left behind",
    ),
)


# The same for a client that has a store.
STORE_CONFLICTS: Final[tuple[tuple[Callable[[_Options], bool], str], ...]] = (
    (
        lambda o: o.get("persist_session") is False,
        "persist_session=False writes no transcript, and a store gets what is written: leave it out, or use a "
        "client without store",
    ),
    (
        lambda o: _on(o, "enable_file_checkpointing"),
        "enable_file_checkpointing keeps its copies on this disk, and a session of a store may go on elsewhere "
        "without them: leave it out, or use a client without store",
    ),
    (
        lambda o: _on(o, "command_prefix") and _continues(o),
        "a session of a store is resumed from a private folder, which may not exist behind command_prefix: "
        "leave it out, or use a client without store",
    ),
)


FORGETS: Final = (
    "with isolated=True, and neither config_dir= nor a client with a store, each turn has a configuration folder of "
    "its own that goes with it, and its session too"
)


def _check_store(options: Mapping[str, Any], storing: Any) -> None:
    """What does not go together with a store, or with this one. Raises ValueError."""
    for conflict, message in STORE_CONFLICTS:
        if conflict(options):
            raise ValueError(message)
    if _on(options, "continue_conversation") and not storing.lists:
        raise ValueError(
            f"continue_conversation asks the store for the latest session, and {type(storing.store).__name__} has no "
            "list_sessions: give it one, or resume a session by its id"
        )


def merge_with(storing: Any, defaults: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """`merge`, and what a store does not go together with; None: no store."""
    merged = merge(defaults, call)
    if storing is not None:
        _check_store(merged, storing)
    elif needs_temporary_config(merged) and _continues(merged):
        raise ValueError(f"{FORGETS}, so there is none to go on with")
    return merged


def merge(defaults: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """The options of one run: the client's, overridden by the call's, copied and checked.

    Raises TypeError for a name that does not exist, ValueError for a wrong value or combination.
    """
    chosen = {**defaults, **call}
    if isinstance(defaults.get("env"), Mapping) and isinstance(call.get("env"), Mapping):
        chosen["env"] = {**defaults["env"], **call["env"]}
    merged = {name: _copied(name, value) for name, value in chosen.items()}
    if call.get("background", "wait") != "wait" and call.get("background_timeout") is None:
        merged.pop("background_timeout", None)  # the client's, for a mode that this call does not have
    check(merged)
    return merged


def _copied(name: str, value: Any) -> Any:
    try:
        return copied(value)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply, or holds itself") from None


def check(options: Mapping[str, Any]) -> None:
    """Raises TypeError for a name that does not exist, ValueError for a wrong value or combination."""
    for name, value in options.items():
        if name not in OPTIONS:
            raise TypeError(_unknown(name))
        if value is not None:
            OPTIONS[name].check(name, value)
    refuse_conflicts(options)
    if _has_tools(options) or _on(options, "disallowed_tools", "settings"):
        from ._tool_names import guards_nothing

        if fault := guards_nothing(options):
            raise ValueError(fault)


def _has_tools(options: Mapping[str, Any]) -> bool:
    servers = options.get("mcp_servers")
    return isinstance(servers, Mapping) and any(map(is_tool_server, servers.values()))


def refuse_conflicts(options: Mapping[str, Any]) -> None:
    """Raises ValueError for a wrong combination."""
    for name, conflict, message in CONFLICTS:
        if name in options and conflict(options):
            raise ValueError(message)


def shadow(options: Mapping[str, Any]) -> str:
    """What keeps the CLI from asking the permission callback, if there is one; else ""."""
    if options.get("can_use_tool") is None:
        return ""
    if options.get("dangerously_skip_permissions"):
        return "dangerously_skip_permissions"
    mode = options.get("permission_mode")
    if mode in ("bypassPermissions", "dontAsk"):
        return f"permission_mode={mode!r}"
    allowed = options.get("allowed_tools") or ()
    rules = split_rules(allowed) if isinstance(allowed, str) else allowed
    return f"the rule {next(iter(set(rules) & _ALL))!r} of allowed_tools" if set(rules) & _ALL else ""


_ALL: Final = frozenset({"*", "*(*)"})


_NAMING: Final = ("allowed_tools", "disallowed_tools", "unattended", "hooks", "agents", "tools", "settings")


def misnamed(options: Mapping[str, Any]) -> str:
    """A rule or a name of a tool that does nothing, or less than it seems to: what to write; else "".

    Or a rule of `unattended` that is meant to limit edits where all of `cwd` may be edited.
    """
    if _on(options, *_NAMING):
        from ._tool_names import means_another

        return means_another(options) or _limits_nothing(options)
    return ""


def _limits_nothing(options: Mapping[str, Any]) -> str:
    preset: Any = options.get("unattended")
    if options.get("permission_mode") != ACCEPT_EDITS or not hasattr(preset, "allow_rules") or preset.places.cwd:
        return ""
    for rule in preset.allow_rules:
        if rule.startswith("Edit(") and not rule.startswith(("Edit(//", "Edit(~", "Edit(**)")):
            return f"the rule {rule!r} limits nothing: without permission_mode='default' all of cwd may be edited"
    return ""


def misplaced(options: Mapping[str, Any], cwd: str) -> str:
    """An allow rule of `unattended` for a path that does not begin where it seems to: what to write; else ""."""
    for rule in getattr(options.get("unattended"), "allow_rules", ()):
        tool, _, path = rule.partition("(")
        if tool in ("Read", "Edit") and cwd != "/" and path.startswith(f"{cwd}/"):
            return f"the rule {rule!r} allows nothing: a path that begins with / begins at cwd; an absolute one with //"
    return ""


def setting(options: Mapping[str, Any], name: str) -> Any:
    """An option's value, or its default where it is absent.

    None is "no limit" and "no flag", so it stays; where that means nothing, it is the default.
    """
    default = DEFAULTS.get(name)
    value = options.get(name, default)
    return default if value is None and isinstance(default, (bool, tuple, Mapping)) else value


def streams(options: Mapping[str, Any], prompt: Any) -> bool:
    """Whether the turn needs a stdin that stays open, or more than a text on it."""
    servers = options.get("mcp_servers")
    ours = isinstance(servers, Mapping) and not all(isinstance(server, Mapping) for server in servers.values())
    return not isinstance(prompt, str) or ours or _on(options, "can_use_tool", "hooks", "literal", "unattended")


def needs_temporary_config(options: Mapping[str, Any]) -> bool:
    """Whether whoever starts the process must make a configuration directory, and remove it."""
    return bool(options.get("isolated")) and options.get("config_dir") is None


def _unknown(name: str) -> str:
    if name in _ELSEWHERE:
        return f"unknown option {name!r}; it belongs to {_ELSEWHERE[name]}"
    known = ALIASES.get(name) or _nearest(name)
    if known.startswith("no option"):
        return f"unknown option {name!r}; there is {known}"
    hint = f"; here: {known}" if name in ALIASES else f"; did you mean {known}?" if known else ""
    return f"unknown option {name!r}{hint}"


def _nearest(name: str) -> str:
    """What may be meant. Nothing that bypasses permissions is proposed for a name that is only like it."""
    import difflib

    snake = "".join(f"_{character.lower()}" if character.isupper() else character for character in name)
    near = difflib.get_close_matches(snake.replace("-", "_"), [*OPTIONS, *ALIASES, *_ELSEWHERE], n=1, cutoff=0.7)
    if near and near[0] in _ELSEWHERE:
        return f"{near[0]}, of {_ELSEWHERE[near[0]]}"
    known = ALIASES.get(near[0], near[0]) if near else ""
    if known == _CLIENTS_OWN:
        return f"{near[0]}, {known}"
    return known if not known.startswith("dangerously") or name.startswith("dangerously") else ""
