"""Can I work now, and if not, when? One tiny turn that leaves no trace, and what it says of the limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Protocol

from .errors import ClaudeError, RateLimitError
from .events import Event
from .run import Run
from .totals import Capacity


class Start(Protocol):
    def __call__(self, prompt: str, *, given: Mapping[str, Any]) -> Run: ...


def probe(start: Start, is_closed: Callable[[], bool], options: Mapping[str, Any]) -> Capacity:
    """Raises what the caller did wrong; everything else is the answer."""
    began = monotonic()
    utilization: float | None = None
    error: ClaudeError | None = None
    result: Event | None = None
    try:
        with start("Reply with the single word OK.", given={**_PROBE, **options}) as run:
            for event in run:
                if event.utilization is not None:
                    utilization = event.utilization
                if event.is_terminal:
                    result = event
            error = run.error()
    except ClaudeError as failure:
        if is_closed():
            raise
        error = failure
    limit = error if isinstance(error, RateLimitError) else None
    return Capacity(
        available=error is None,
        error=error,
        resets_at=None if limit is None else limit.resets_at,
        retry_after=None if limit is None else limit.retry_after,
        utilization=utilization,
        model=result.model if result is not None else "",
        cost_usd=result.cost_usd if result is not None else None,
        duration=monotonic() - began,
    )


_PROBE: Mapping[str, Any] = {
    # What a client sets for its own work has no business here: a conversation to go on with,
    "resume": None,
    "continue_conversation": None,
    "fork_session": None,
    "session_id": None,
    "resume_session_at": None,
    "resume_drops_turn": None,
    "name": None,
    # a form of the answer, or instructions, that this one could not follow, and that cost tokens,
    "json_schema": None,
    "agent": None,
    "agents": None,
    "mcp_servers": None,
    "plugin_dirs": None,
    "append_system_prompt": None,
    "exclude_dynamic_system_prompt_sections": None,
    # those who decide about tools, of which there are none, and what the client has to say at events,
    "hooks": None,
    "can_use_tool": None,
    "unattended": None,
    "permission_prompt_tool": None,
    "permission_prompts": None,
    "callback_wrapper": None,
    # budgets of a whole job, that this turn could neither use up nor should be ended by,
    "max_budget_usd": None,
    "task_budget": None,
    # those who listen to the client's turns,
    "line_sink": None,
    "on_stderr": None,
    # and what may contradict the settings below, or what is given for this one turn.
    "background_timeout": None,
    "safe_mode": None,
    # No trace, and nothing started: no transcript, tool, server or command of the user's configuration.
    "enable_file_checkpointing": None,
    "background": "forbid",
    "persist_session": False,
    "tools": [],
    "strict_mcp_config": True,
    "disable_slash_commands": True,
    # The answer is how it is now: the CLI would wait for better times, for minutes.
    "max_turns": 1,
    "max_retries": 0,
    # In place of the CLI's own, which is many thousand tokens.
    "system_prompt": "You answer a connection test.",
    # A slow network, and a client that is busy, are no reasons to say that work is impossible.
    "timeout": 120.0,
    "slot_timeout": 60.0,
}
