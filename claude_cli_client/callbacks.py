"""Callbacks: permissions and hooks. The types users write, and their translation to the wire.

Pure: no thread, clock, file or process; imported on first use. The names are gathered here:

    _permissions.py   Allow, Deny, PermissionRequest; PermissionUpdate in _permission_updates.py
    _hook_events.py   tables: the events, and what may be said to which
    _hook_reply.py    HookReply and what a hook returned
    _hooks.py         HookCall, HookMatcher and their registration

The session layer uses the functions: requests of the CLI become objects (`permission_request`,
`hook_call`), answers become wire (`permission_reply`, `hook_reply`), and what raised becomes an
answer too (`permission_failed`, `hook_failed`). `permission_reply` and `hook_reply` raise TypeError
or ValueError for what is no answer; that is one more failure of the callback.

Rule of all of it: it fails closed. Whatever goes wrong in a permission callback or a PreToolUse
hook denies; whatever the CLI would ignore in silence raises, as early as it can be seen.
"""

from __future__ import annotations

from ._hook_events import HOOK_EVENTS, HOOK_LIMIT, HOOK_LIMITS, HookEvent
from ._hook_reply import HookReply, hook_failed, hook_reply
from ._hooks import Hook, HookCall, HookMatcher, Hooks, hook_call, hooks_config
from ._permission_updates import PermissionRule, PermissionUpdate
from ._permissions import (
    Allow,
    CanUseTool,
    Deny,
    Flag,
    PermissionRequest,
    Question,
    QuestionOption,
    permission_failed,
    permission_reply,
    permission_request,
)

__all__ = [
    "HOOK_EVENTS",
    "HOOK_LIMIT",
    "HOOK_LIMITS",
    "Allow",
    "CanUseTool",
    "Deny",
    "Flag",
    "Hook",
    "HookCall",
    "HookEvent",
    "HookMatcher",
    "HookReply",
    "Hooks",
    "PermissionRequest",
    "PermissionRule",
    "PermissionUpdate",
    "Question",
    "QuestionOption",
    "hook_call",
    "hook_failed",
    "hook_reply",
    "hooks_config",
    "permission_failed",
    "permission_reply",
    "permission_request",
]
