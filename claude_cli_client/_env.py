"""The environment of the CLI: what it inherits, what we set, what the caller wants.

Pure: the inherited environment is an argument. Order: inherited < ours < the caller's `env`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ._checks import as_text
from .options import DEFAULTS, MARKER

# What the CLI calls itself in print mode when nobody says otherwise. It changes nothing; a name the
# CLI does not know does: it then offers an agent more.
ENTRYPOINT: Final = "sdk-cli"

# The variables that options become.
MAX_RETRIES: Final = "CLAUDE_CODE_MAX_RETRIES"
CONFIG_DIR: Final = "CLAUDE_CONFIG_DIR"
NO_AUTOUPDATE: Final = "DISABLE_AUTOUPDATER"
NO_BACKGROUND_TASKS: Final = "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"
FILE_CHECKPOINTING: Final = "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"

# What a Claude Code session sets for the tools it runs, and what describes that session and not
# ours. Removed, so that a run inside of a tool is like any other. Not removed: credentials and
# everything a person may have set, `CLAUDE_CODE_REMOTE*`, `CLAUDE_CODE_SIMPLE` and the like.
NESTING: Final = (
    "CLAUDECODE",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_CHILD_NOTES_DIR",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SESSION_ATTENDED",
    "CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS",
    "CLAUDE_CODE_STARTER_MAY_HOLD_CONNECTOR_FILE",
    "CLAUDE_CODE_INVOKED_SKILLS",
    "CLAUDE_CODE_EXECPATH",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_EFFORT",
    "CLAUDE_PID",
    "AI_AGENT",
)

# With `inherit_env=False`: what a program needs to start, to find its files and to reach the network.
KEPT: Final = (
    "PATH", "HOME", "USER", "LANG", "TMPDIR",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
)  # fmt: skip


def is_nested(inherited: Mapping[str, str]) -> bool:
    """Whether this environment is that of a tool inside of a Claude Code session."""
    return any(inherited.get(name) for name in ("CLAUDECODE", "CLAUDE_CODE_CHILD_SESSION"))


def build_env(options: Mapping[str, Any], inherited: Mapping[str, str], marker: str) -> dict[str, str]:
    """The whole environment of the CLI, for options that `check` has passed.

    `config_dir` is taken as it is: whoever starts the process makes it absolute, and makes one
    where `needs_temporary_config` says so.
    """
    outer = inherited.get(MARKER)
    merged: dict[str, str | None] = {
        **_inherited(options, inherited),
        **dict.fromkeys(NESTING),
        MARKER: f"{outer}:{marker}" if outer else marker,
        "CLAUDE_CODE_ENTRYPOINT": ENTRYPOINT,
        **_variables(options),
        **(options.get("env") or {}),
    }
    return {name: value for name, value in merged.items() if value is not None}


def _inherited(options: Mapping[str, Any], inherited: Mapping[str, str]) -> Mapping[str, str]:
    if options.get("inherit_env") is not False:
        return inherited
    kept = {name: value for name, value in inherited.items() if name in KEPT or name.startswith("LC_")}
    return {**kept, "TERM": "dumb"}


def _variables(options: Mapping[str, Any]) -> dict[str, str | None]:
    """The options that are variables. None removes one that we may have inherited from a run of ours."""
    found: dict[str, str | None] = {}
    if options.get("max_retries") is not None:
        found[MAX_RETRIES] = str(options["max_retries"])
    if options.get("config_dir") is not None:
        found[CONFIG_DIR] = as_text(options["config_dir"])
    if not options.get("autoupdate"):
        found[NO_AUTOUPDATE] = "1"
    background = options.get("background", DEFAULTS["background"])
    if background is not None:
        found[NO_BACKGROUND_TASKS] = "1" if background == "forbid" else None
    if options.get("enable_file_checkpointing") is not None:
        found[FILE_CHECKPOINTING] = "true" if options["enable_file_checkpointing"] else None
    return found
