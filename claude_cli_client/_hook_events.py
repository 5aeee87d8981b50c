"""Hooks: which events there are, what they bring, and what may be said to them. Tables only.

Pure. The events and whether they take a matcher are the CLI's own catalogue; what they bring is
what was seen on the wire. A field that the CLI would ignore for an event is a mistake in the
caller's program, and with a hook it is mostly a guard that does not guard, so `_hook_reply.py`
refuses what these tables do not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

HookEvent = Literal[
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "PermissionRequest",
    "PermissionDenied",
    "Notification",
    "UserPromptSubmit",
    "UserPromptExpansion",
    "SessionStart",
    "SessionEnd",
    "Setup",
    "Stop",
    "StopFailure",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "PreModelSwitch",
    "PostModelSwitch",
    "TeammateIdle",
    "TaskCreated",
    "TaskCompleted",
    "Elicitation",
    "ElicitationResult",
    "ConfigChange",
    "InstructionsLoaded",
    "WorktreeCreate",
    "WorktreeRemove",
    "CwdChanged",
    "FileChanged",
    "DirectoryAdded",
    "MessageDisplay",
    "PreSkillShellCommand",
]

# Event -> whether it has a matcher. Without one the CLI ignores what is given and fires always.
HOOK_EVENTS: Final[Mapping[str, bool]] = {
    "PreToolUse": True,
    "PostToolUse": True,
    "PostToolUseFailure": True,
    "PostToolBatch": False,
    "PermissionRequest": True,
    "PermissionDenied": True,
    "Notification": True,
    "UserPromptSubmit": False,
    "UserPromptExpansion": True,
    "SessionStart": True,  # after /compact and /clear; not at the start of the process
    "SessionEnd": True,  # after /clear; not at the end of the process
    "Setup": True,
    "Stop": False,
    "StopFailure": True,
    "SubagentStart": True,
    "SubagentStop": True,
    "PreCompact": True,
    "PostCompact": True,
    "PreModelSwitch": True,
    "PostModelSwitch": True,
    "TeammateIdle": False,
    "TaskCreated": False,
    "TaskCompleted": False,
    "Elicitation": True,
    "ElicitationResult": True,
    "ConfigChange": True,
    "InstructionsLoaded": True,
    "WorktreeCreate": False,  # registering it replaces the CLI's own creation
    "WorktreeRemove": False,
    "CwdChanged": False,
    "FileChanged": True,  # its matcher is a list of file names, not a pattern
    "DirectoryAdded": True,
    "MessageDisplay": False,
    "PreSkillShellCommand": True,
}

# Their matcher is the name of a tool.
TOOL_EVENTS: Final = frozenset(
    {"PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "PermissionDenied"}
)

# Seconds after which the CLI gives a hook up that has no timeout of its own. PreToolUse: the tool
# does not run; UserPromptSubmit: the prompt is refused; others: the turn goes on.
HOOK_LIMIT: Final = 600.0
HOOK_LIMITS: Final[Mapping[str, float]] = {"UserPromptSubmit": 30.0}


# --- what may be said

_EVERY: Final = frozenset(HOOK_EVENTS)
_CONTEXT: Final = frozenset(
    {
        "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "UserPromptSubmit", "UserPromptExpansion",
        "SessionStart", "Setup", "Notification", "SubagentStart", "SubagentStop", "Stop", "PostModelSwitch",
    }
)  # fmt: skip
_BLOCKS: Final = frozenset(
    {
        "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "UserPromptSubmit", "UserPromptExpansion",
        "Stop", "SubagentStop", "PreCompact", "ConfigChange", "TaskCreated", "TaskCompleted", "TeammateIdle",
        "PreSkillShellCommand",
    }
)  # fmt: skip
# Elsewhere the CLI reads it and goes on. Of Stop and SubagentStop: whatever other hooks say, that was the end.
_STOPS: Final = frozenset(
    {
        "PreToolUse", "PostToolUse", "PostToolBatch", "UserPromptSubmit", "UserPromptExpansion",
        "PreSkillShellCommand", "Stop", "SubagentStop", "TaskCreated", "TaskCompleted", "TeammateIdle",
    }
)  # fmt: skip
_DECIDES: Final = frozenset({"PreToolUse", "PreModelSwitch"})
_PROMPTS: Final = frozenset({"UserPromptSubmit", "UserPromptExpansion"})

# Name here -> (name on the wire, events). At the top of the output:
TOP: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "continue_": ("continue", _STOPS),
    "stop_reason": ("stopReason", _STOPS),
    "suppress_output": ("suppressOutput", _EVERY),
    "system_message": ("systemMessage", _EVERY),
    "decision": ("decision", _BLOCKS),
    "reason": ("reason", _BLOCKS),
    "async_": ("async", _EVERY),
    "async_timeout": ("asyncTimeout", _EVERY),  # seconds here, milliseconds there
}
# In its hookSpecificOutput:
SPECIFIC: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "permission_decision": ("permissionDecision", _DECIDES),
    "permission_decision_reason": ("permissionDecisionReason", _DECIDES),
    "updated_input": ("updatedInput", frozenset({"PreToolUse"})),
    "additional_context": ("additionalContext", _CONTEXT),
    "updated_tool_output": ("updatedToolOutput", frozenset({"PostToolUse"})),
    "updated_mcp_tool_output": ("updatedMCPToolOutput", frozenset({"PostToolUse"})),
    "permission": ("decision", frozenset({"PermissionRequest"})),
    "retry": ("retry", frozenset({"PermissionDenied"})),
    "session_title": ("sessionTitle", frozenset({"UserPromptSubmit", "SessionStart"})),
    "suppress_original_prompt": ("suppressOriginalPrompt", _PROMPTS),
    "initial_user_message": ("initialUserMessage", frozenset({"SessionStart"})),
    "watch_paths": ("watchPaths", frozenset({"SessionStart", "CwdChanged", "FileChanged"})),
    "reload_skills": ("reloadSkills", frozenset({"SessionStart"})),
    "worktree_path": ("worktreePath", frozenset({"WorktreeCreate"})),
    "display_content": ("displayContent", frozenset({"MessageDisplay"})),
}
