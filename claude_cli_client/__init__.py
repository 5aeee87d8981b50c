"""A synchronous, thread-based client of the Claude Code CLI.

    from claude_cli_client import Client
    print(Client().ask("What does this repository do?", cwd="/srv/app").result)

Importing starts nothing: no thread, no process, no look at the disk. What is not needed for a turn
is imported on first use. The event types and permission modes stand as constants in `events` and
`options`; comparing with plain strings is fine for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors as _errors
from . import events as _events
from . import options as _options
from .client import Client
from .errors import *  # noqa: F403 - its __all__ is the tree of exceptions
from .events import *  # noqa: F403 - Event and the constants of its types
from .options import *  # noqa: F403 - RunOptions and the constants of its values
from .run import Run

if TYPE_CHECKING:
    from ._chain import SessionMessage
    from ._replay import is_stale_session, parse_line, replay
    from ._sqlite_store import SQLiteStore
    from ._summary import SessionInfo
    from ._unattended import unattended
    from .callbacks import Allow, Deny, HookCall, HookMatcher, HookReply, PermissionRequest, PermissionUpdate
    from .conversation import Conversation
    from .discovery import find_cli
    from .mcp import ToolContext, ToolResult, ToolServer, tool
    from .session import Session
    from .store import MemoryStore, SessionKey, SessionStore
    from .totals import Capacity, Totals
    from .transcripts import (
        delete_session,
        fork_session,
        get_messages,
        get_session,
        get_subagent_messages,
        list_sessions,
        list_subagents,
        rename_session,
        tag_session,
    )

__version__ = "0.1.0"

__all__ = [
    "Allow",
    "Capacity",
    "Client",
    "Conversation",
    "Deny",
    "HookCall",
    "HookMatcher",
    "HookReply",
    "MemoryStore",
    "PermissionRequest",
    "PermissionUpdate",
    "Run",
    "SQLiteStore",
    "Session",
    "SessionInfo",
    "SessionKey",
    "SessionMessage",
    "SessionStore",
    "ToolContext",
    "ToolResult",
    "ToolServer",
    "Totals",
    "__version__",
    "delete_session",
    "find_cli",
    "fork_session",
    "get_messages",
    "get_session",
    "get_subagent_messages",
    "is_stale_session",
    "list_sessions",
    "list_subagents",
    "parse_line",
    "rename_session",
    "replay",
    "tag_session",
    "tool",
    "unattended",
]
# Three lines in this form, which type checkers understand.
__all__ += _errors.__all__
__all__ += _events.__all__
__all__ += _options.__all__

_LATER = {
    "Allow": "callbacks",
    "Capacity": "totals",
    "Conversation": "conversation",
    "Deny": "callbacks",
    "HookCall": "callbacks",
    "HookMatcher": "callbacks",
    "HookReply": "callbacks",
    "MemoryStore": "store",
    "PermissionRequest": "callbacks",
    "PermissionUpdate": "callbacks",
    "SQLiteStore": "_sqlite_store",
    "Session": "session",
    "SessionInfo": "_summary",
    "SessionKey": "store",
    "SessionMessage": "_chain",
    "SessionStore": "store",
    "ToolContext": "mcp",
    "ToolResult": "mcp",
    "ToolServer": "mcp",
    "Totals": "totals",
    "delete_session": "transcripts",
    "find_cli": "discovery",
    "fork_session": "transcripts",
    "get_messages": "transcripts",
    "get_session": "transcripts",
    "get_subagent_messages": "transcripts",
    "is_stale_session": "_replay",
    "list_sessions": "transcripts",
    "list_subagents": "transcripts",
    "parse_line": "_replay",
    "rename_session": "transcripts",
    "replay": "_replay",
    "tag_session": "transcripts",
    "tool": "mcp",
    "unattended": "_unattended",
}
# The public modules, which can be had as attributes without an import of their own: what users read about.
_MODULES = (
    "callbacks", "client", "conversation", "discovery", "errors", "events", "mcp", "options", "run", "session",
    "store", "testing", "totals", "transcripts",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _LATER:
        # With its name and without the module: else tracebacks add a suggestion of their own.
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_meant(name)}", name=name)
    value = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def _meant(name: str) -> str:
    """The nearest public name, in words. Not for what the import system and others look for."""
    if name.startswith("_"):
        return ""
    import difflib

    near = difflib.get_close_matches(name, [*__all__, *_MODULES], 1, 0.75)
    return f"; did you mean {near[0]}?" if near else ""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
