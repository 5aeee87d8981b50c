"""RunOptions: every option of a run, once, with what it does. This is the page users read.

Vocabulary only. What a value must look like and how it becomes a flag stands in the one table of
`_argv.py`; which options exclude each other in `_merge.py`; the environment in `_env.py`.

Why no `from __future__ import annotations` here: a TypedDict compiles every annotation that is a
string, which for this many keys costs ten times what evaluating them costs, and
`typing.get_type_hints(RunOptions)` should work without a search for names.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypedDict

__all__ = [
    "ACCEPT_EDITS",
    "AUTO",
    "BYPASS_PERMISSIONS",
    "DONT_ASK",
    "MANUAL",
    "PLAN",
    "Background",
    "ConversationOptions",
    "Effort",
    "PermissionMode",
    "PermissionPrompts",
    "RunOptions",
    "SettingSource",
    "ThinkingMode",
    "TurnOptions",
]

ACCEPT_EDITS: Final = "acceptEdits"
AUTO: Final = "auto"
BYPASS_PERMISSIONS: Final = "bypassPermissions"
DONT_ASK: Final = "dontAsk"
MANUAL: Final = "manual"  # the CLI reports it as "default", and takes that name too
PLAN: Final = "plan"

PermissionMode = Literal["acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "manual", "plan"]
PermissionPrompts = Literal["host", "none"]
Effort = Literal["low", "medium", "high", "xhigh", "max"]
ThinkingMode = Literal["adaptive", "enabled", "disabled"]
SettingSource = Literal["user", "project", "local"]
Background = Literal["forbid", "wait"]
OnOff = Literal["on", "off"]


# Every process of a run inherits it, also those that leave the CLI's session and parent; by it the
# clean-up finds them. A list, so that a run inside of a run is found by both.
MARKER: Final = "CLAUDE_CLI_CLIENT_RUN"

class PathLike(Protocol):
    """What `pathlib.Path` and `os.PathLike[str]` have in common. This layer imports neither."""

    def __fspath__(self) -> str: ...


class Server(Protocol):
    """A `ToolServer`. Its module is imported by those who make one."""

    def may_run_parallel(self, tool_name: str) -> bool: ...


class BytesWriter(Protocol):
    """A binary file, or anything else with its `write`."""

    def write(self, data: bytes, /) -> object: ...


StrPath = str | PathLike

# What holds where a key is absent. An option that is not listed has no flag then.
DEFAULTS: Final[Mapping[str, Any]] = {
    "timeout": 3600.0,
    "idle_timeout": 900.0,  # healthy silence is up to 6 minutes
    "start_timeout": 60.0,
    "slot_timeout": None,
    "permission_mode": ACCEPT_EDITS,  # never wait for a person who is not there
    "background": "forbid",
    "background_timeout": 600.0,
    "env": {},
    "inherit_env": True,
    "isolated": False,
    "autoupdate": False,
    "command_prefix": (),
    "kill_leftovers": False,
    "max_line_bytes": 256 * 1024 * 1024,
    "max_buffered_bytes": 512 * 1024 * 1024,
}


class _Options(TypedDict, total=False):
    """All options but those that are a parameter of some call.

    An absent key means the default, None means "no flag" (of a limit: no limit), and an empty list
    is not the same as absent. Relative paths are relative to `cwd`, as the CLI reads them.
    """

    # --- model and prompt

    model: str | None
    """An alias (`"opus"`, `"sonnet"`, `"haiku"`) or a model's full name."""
    fallback_model: Sequence[str] | str | None
    """Models to try, in order, when the main one is overloaded or unavailable."""
    system_prompt: str | PathLike | None
    """Replaces the system prompt: a text, or a `Path` to a file that holds it. `""` is none at all."""
    append_system_prompt: str | PathLike | None
    """Added to the end of the system prompt: a text, or a `Path` to a file."""
    effort: Effort | None
    """How hard the model tries. Models without effort ignore it."""
    thinking: ThinkingMode | Mapping[str, Any] | None
    """`"adaptive"`, `"enabled"`, `"disabled"`, or `{"type": "enabled", "budget_tokens": 8000}`."""
    max_thinking_tokens: int | None
    """A fixed thinking budget in tokens, 0 for none. Models that think adaptively ignore it."""
    betas: Sequence[str] | str | None
    """Beta headers of the API, for accounts with an API key."""
    agent: str | None
    """Run as this agent: its prompt, tools and model."""
    agents: Mapping[str, Mapping[str, Any]] | StrPath | None
    """Subagents by name, each with `description` and `prompt`; or a JSON text, or a file of it."""
    exclude_dynamic_system_prompt_sections: bool | None
    """Move what differs by machine out of the system prompt, so that users share its cache."""
    system_prompt_snapshot: OnOff | None
    """`"off"`: render the system prompt anew at each request, not once for the conversation."""
    autocompact: Literal["auto"] | int | None
    """Compact the conversation at this many tokens (at least 100,000), or `"auto"`."""

    # --- tools and permission

    tools: Sequence[str] | str | None
    """The built-in tools that exist at all. `[]` is none, `"default"` all."""
    allowed_tools: Sequence[str] | str | None
    """Rules for what runs unasked, as `"Read"` or `"Bash(git *)"`. Limits nothing: see `tools`."""
    disallowed_tools: Sequence[str] | str | None
    """Rules for what never runs. A bare name takes the tool away from the model."""
    permission_mode: PermissionMode | None
    """What happens to a call that no rule decides. Where you do not say: `"acceptEdits"`, with `can_use_tool`
    `"default"`; before both comes the `defaultMode` of your own `settings`. None leaves it to the CLI."""
    permission_prompt_tool: str | None
    """The MCP tool that answers permission prompts, as `mcp__server__tool`."""
    permission_prompts: PermissionPrompts | None
    """`"none"`: nobody answers, what would have to be asked is denied."""
    can_use_tool: Callable[[Any], Any] | None
    """Decides each tool call that no rule decides: gets a `PermissionRequest`, returns `Allow()`,
    `Deny("why")`, True or False. Runs on a thread of its own; if it raises, the call is denied."""
    unattended: bool | Callable[[Any], Any] | None
    """True, or what `unattended(...)` made: nobody is there to ask. What a rule allows runs, the rest is
    denied with guidance, plans are approved, and the system prompt says so."""
    hooks: Mapping[str, Any] | None
    """Functions to call at events: `{"PreToolUse": [HookMatcher("Bash", [check])]}`."""
    dangerously_skip_permissions: bool | None
    """Every tool call runs. The CLI refuses this to root outside of a sandbox."""
    allow_dangerously_skip_permissions: bool | None
    """Skipping permissions may be switched on later, it is not on."""
    add_dirs: Sequence[StrPath] | None
    """More directories the tools may use. The CLI passes over those that do not exist."""
    sandbox: Mapping[str, Any] | None
    """Sandbox settings, merged into `settings`."""

    # --- limits

    max_turns: int | None
    """Stop after so many model calls that are followed by another one."""
    max_budget_usd: float | None
    """Stop when this run has cost so much. Checked after each answer, so one may overshoot."""
    task_budget: int | None
    """A budget in tokens that the API tells the model."""
    max_retries: int | None
    """How often the CLI itself repeats a failed request: 0 to 15, 10 where you do not say."""

    # --- session

    continue_conversation: bool | None
    """Go on with the latest session of `cwd`. Where there is none the CLI starts a new one."""
    fork_session: bool | None
    """With `resume` or `continue_conversation`: go on in a copy with a new id."""
    session_id: str | None
    """The id, a UUID, that the new session shall have. To go on with one, use `resume`."""
    resume_session_at: str | None
    """With `resume`: forget what came after the message with this uuid."""
    resume_drops_turn: str | None
    """With `resume_session_at`: refuse if more than the turn of this prompt uuid were forgotten."""
    persist_session: bool | None
    """False: no transcript is written, and the session cannot be resumed."""
    name: str | None
    """The session's title, by which it can be resumed."""

    # --- configuration

    settings: Mapping[str, Any] | StrPath | None
    """More settings: a dict, a JSON text, or a file. What the CLI would drop without a word is a ValueError."""
    setting_sources: Sequence[SettingSource] | None
    """Which settings files are read. `[]` is none, and no CLAUDE.md; None leaves it to the CLI: all."""
    mcp_servers: Mapping[str, Mapping[str, Any] | Server] | StrPath | None
    """MCP servers by name; or a JSON text with `mcpServers`, or a file of it."""
    strict_mcp_config: bool | None
    """Only the MCP servers of `mcp_servers`, none from files."""
    plugin_dirs: Sequence[StrPath] | None
    """Plugins for this run: directories or .zip files."""
    bare: bool | None
    """Minimal mode: no hooks, no CLAUDE.md, no keychain; credentials by API key only."""
    safe_mode: bool | None
    """All customisations off, `mcp_servers` and `agents` included."""
    restricted: bool | None
    """No tool that runs commands, no settings files, file tools confined to the directories."""
    disable_slash_commands: bool | None
    """No slash commands and no skills."""
    enable_file_checkpointing: bool | None
    """Keep what files were, so that a session can rewind them."""
    debug_file: StrPath | None
    """Where the CLI writes its debug log."""

    # --- output

    json_schema: Mapping[str, Any] | str | None
    """A JSON schema. The answer that matches it is `structured_output` of the result."""
    include_partial_messages: bool | None
    """Text as it is written: `text_delta` and the other partial events."""
    include_hook_events: bool | None
    """An event for each hook that runs."""
    forward_subagent_text: bool | None
    """The text and thinking of subagents too."""

    # --- the process, and what this library does

    extra_args: Mapping[str, str | None] | None
    """Flags this version has no option for: `{"flag-name": "value", "bare-flag": None}`."""
    cwd: StrPath | None
    """The working directory. None is the one of this process."""
    env: Mapping[str, str | None] | None
    """Variables laid over the environment, None removes one. Wins over what this library sets;
    a call's is merged over the client's."""
    inherit_env: bool | None
    """False: of our own environment only PATH, HOME, USER, LANG, LC_*, TMPDIR, proxies and CA files.
    Tools see every variable of the CLI, API keys included."""
    config_dir: StrPath | None
    """The CLI's configuration directory: credentials, settings, transcripts."""
    isolated: bool | None
    """No setting sources, only your MCP servers, and `config_dir` or a temporary one in its place."""
    autoupdate: bool | None
    """True: the CLI may replace itself while your service runs. False by default."""
    background: Background | None
    """`"forbid"` (default): one prompt, one result. `"wait"`: read on until background tasks end.
    None leaves background tasks to the CLI and does not wait."""
    background_timeout: float | None
    """With `background="wait"`: seconds to wait at most. 600 by default."""
    command_prefix: Sequence[str] | None
    """Words before the CLI's own: `["bwrap", ...]`, `["docker", "run", "-i", "--init", "--rm", image]`."""
    line_sink: Callable[[bytes], object] | BytesWriter | None
    """Gets every raw line of stdout, on a thread of its own; what it does cannot hurt the run."""
    on_stderr: Callable[[str], object] | None
    """Gets every line of stderr, under the same rule."""
    kill_leftovers: bool | None
    """After a normal end too, kill what the turn's tools left running."""
    literal: bool | None
    """The prompt is text and nothing else: no slash command runs, no `@file` is attached."""
    callback_wrapper: Callable[[], Any] | None
    """Makes a context manager that is entered around each callback and tool, on its own thread."""
    max_line_bytes: int | None
    """A longer line becomes an `oversize` event. 256 MiB by default."""
    max_buffered_bytes: int | None
    """So much output may wait for you; beyond it the run ends as `overflow`. 512 MiB by default."""


class TurnOptions(_Options, total=False):
    """All options but the four limits in time, which stand in the signatures of the calls.

    A type checker does not allow a parameter that is also a key of its `**options`. So what takes
    the limits as parameters has `**options: Unpack[TurnOptions]`, what takes `resume` has
    `Unpack[ConversationOptions]`, all else `Unpack[RunOptions]`.
    """

    resume: str | None
    """Go on with this session: its id, or the title it was given with `name`."""


class _Limits(TypedDict, total=False):
    """The four limits in time."""

    timeout: float | None
    """Seconds for the whole turn once it has a slot. 3600 by default; None is no limit."""
    idle_timeout: float | None
    """Seconds without any line. 900 by default; healthy silence can last 6 minutes."""
    start_timeout: float | None
    """Seconds to the first line. 60 by default."""
    slot_timeout: float | None
    """Seconds to wait for a slot. None by default: as long as it takes. 0: do not wait."""


class ConversationOptions(_Options, _Limits, total=False):
    """The options of the turns of a `Conversation`: all but `resume`, which it sets itself."""


class RunOptions(TurnOptions, _Limits, total=False):
    """The options of a run, as defaults of a `Client` or at a call; a call overrides the client.

    Each is described beside its name in `claude_cli_client/options.py`, and in the README's chapter "Options".

    Model and prompt: model fallback_model system_prompt append_system_prompt effort thinking max_thinking_tokens betas
    agent agents exclude_dynamic_system_prompt_sections system_prompt_snapshot autocompact

    Tools and permission: tools allowed_tools disallowed_tools permission_mode permission_prompt_tool
    permission_prompts can_use_tool unattended hooks dangerously_skip_permissions allow_dangerously_skip_permissions
    add_dirs sandbox

    Limits: timeout idle_timeout start_timeout slot_timeout max_turns max_budget_usd task_budget max_retries

    Session: resume continue_conversation fork_session session_id resume_session_at resume_drops_turn persist_session
    name

    Configuration: settings setting_sources mcp_servers strict_mcp_config plugin_dirs bare safe_mode restricted
    disable_slash_commands enable_file_checkpointing debug_file

    Output: json_schema include_partial_messages include_hook_events forward_subagent_text

    The process, and what this library does: cwd env inherit_env config_dir isolated autoupdate background
    background_timeout command_prefix line_sink on_stderr kill_leftovers literal callback_wrapper max_line_bytes
    max_buffered_bytes extra_args
    """
