"""The shapes of the CLI's lines, as version 2.1.332 writes them. Data in, dicts out.

Two programs use this module: `testing.py` imports it, and the stand-in process of `FakeCLI` and
`SimulatedCLI` runs its code by itself, without the package. So it imports nothing of the package,
and of the standard library only what an interpreter has loaded anyway: each start of the stand-in
pays for every import.

`SESSION_ID`, `MESSAGE_ID`, `PROMPT_UUID` and `CWD` stand in the lines where nothing else was said. The stand-in
puts its own session and folder there when it writes the line, so that the lines of one process
agree with each other and with its argv.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # see _fake_cli.py
if TYPE_CHECKING:
    from typing import Any

VERSION = "2.1.332"
SESSION_ID = "5e551011-0000-4000-8000-00000000face"
PROMPT_UUID = "5e551011-0000-4000-8000-0000000005ed"  # of the prompt that was read last
MESSAGE_ID = "msg_00000000000000000000face"
CWD = "/home/user/fake-cli-working-directory"
MODEL = "claude-opus-5-5"
TIMESTAMP = "2026-11-30T10:48:00.332Z"

TOOLS = (
    "Task", "Bash", "CronCreate", "CronDelete", "CronList", "Edit", "EnterWorktree", "ExitWorktree", "ListAgents",
    "Monitor", "NotebookEdit", "Read", "ReportFindings", "ScheduleWakeup", "SendMessage", "Skill", "TaskStop",
    "ToolSearch", "WebFetch", "WebSearch", "Workflow", "Write",
)  # fmt: skip

# HTTP status (or "connection") -> (the assistant line's `error`, `api_error_type`, the text)
API_FAILURES: dict[int | str, tuple[str, str, str]] = {
    400: ("unknown", "invalid_request_error", "API Error: 400 invalid request"),
    401: ("authentication_failed", "authentication_error", "Failed to authenticate. API Error: 401 invalid x-api-key"),
    402: ("unknown", "billing_error", "API Error: 402 billing error"),
    403: ("authentication_failed", "permission_error", "Failed to authenticate. API Error: 403 not allowed"),
    404: ("model_not_found", "not_found_error", "There's an issue with the selected model. It may not exist."),
    413: ("invalid_request", "request_too_large", "Request too large (max 32MB)."),
    429: ("rate_limit", "rate_limit_error", "API Error: Request rejected (429) · rate limit"),
    500: ("server_error", "api_error", "API Error: 500 internal error. Usually temporary."),
    503: ("server_error", "api_error", "API Error: 503 unavailable. Usually temporary."),
    529: ("server_error", "overloaded_error", "API Error: 529 overloaded. Usually temporary."),
    "connection": ("server_error", "", "API Error: Connection refused (ECONNREFUSED)"),
}  # fmt: skip


def new_uuid() -> str:
    """A random UUID of version 4, without the `uuid` module, which costs 3 ms to import."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def new_tool_id() -> str:
    return f"toolu_{os.urandom(10).hex()}"


def init_line(
    *, session_id: str = SESSION_ID, model: str = MODEL, cwd: str = CWD, tools: tuple[str, ...] = TOOLS,
    permission_mode: str = "default",
) -> dict[str, Any]:  # fmt: skip
    return {
        "type": "system", "subtype": "init", "cwd": cwd, "session_id": session_id, "tools": list(tools),
        "mcp_servers": [], "model": model, "permissionMode": permission_mode,
        "slash_commands": ["code-review", "clear", "compact", "context", "init", "usage"],
        "terminal_slash_commands": ["doctor", "color"], "apiKeySource": "ANTHROPIC_API_KEY",
        "claude_code_version": VERSION, "output_style": "default",
        "agents": ["claude", "Explore", "general-purpose", "Plan", "statusline-setup"], "skills": ["code-review"],
        "plugins": [], "capabilities": ["interrupt_receipt_v1", "msg_lifecycle_v1", "request_marker_lists_v1"],
        "analytics_disabled": True, "product_feedback_disabled": True, "served_by_anthropic": False,
        "uuid": new_uuid(), "sandbox_enabled": False, "original_cwd": cwd, "additional_directories": [],
        "fast_mode_state": "off", "fast_mode_disabled_reason": "sdk_opt_in_required", "per_turn_effort_active": True,
        "ultrathink_available": False, "ultrathink_typed_raises": False, "view_mode": "default",
    }  # fmt: skip


def assistant_line(
    block: dict[str, Any], *, session_id: str = SESSION_ID, message_id: str = MESSAGE_ID, model: str = MODEL,
    parent_tool_use_id: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """One content block; the CLI writes one such line per block, with the same message id."""
    message = {
        "id": message_id, "type": "message", "role": "assistant", "model": model, "content": [block],
        "stop_reason": None, "stop_sequence": None, "usage": _start_usage(), "context_management": None,
    }  # fmt: skip
    line: dict[str, Any] = {
        "type": "assistant", "message": message, "parent_tool_use_id": parent_tool_use_id, "session_id": session_id,
        "uuid": new_uuid(), "timestamp": TIMESTAMP, "request_id": "req_fake",
    }  # fmt: skip
    if block.get("type") == "thinking":
        line.update(thinking_duration_ms=1, thinking_display="updates")
    return line


def user_line(
    content: Any, *, session_id: str = SESSION_ID, parent_tool_use_id: str | None = None
) -> dict[str, Any]:
    return {
        "type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": parent_tool_use_id,
        "session_id": session_id, "uuid": new_uuid(), "timestamp": TIMESTAMP,
    }  # fmt: skip


def lifecycle_line(state: str, uuid: str = PROMPT_UUID) -> dict[str, Any]:
    """What becomes of the prompt with this uuid, on a stdin that stays open."""
    return {
        "type": "command_lifecycle", "command_uuid": uuid, "state": state, "uuid": new_uuid(),
        "session_id": SESSION_ID,
    }  # fmt: skip


def tool_result_line(
    tool_id: str, content: Any, *, is_error: bool = False, tool_use_result: Any = None, session_id: str = SESSION_ID,
    parent_tool_use_id: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    block = {"tool_use_id": tool_id, "type": "tool_result", "content": content, "is_error": is_error}
    if tool_use_result is None and is_error:
        tool_use_result = f"Error: {content}"
    elif tool_use_result is None:
        tool_use_result = {
            "stdout": content, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False,
        }  # fmt: skip
    decision = {"decision": "accept", "source": "config", "reason_type": "rule"}
    return {
        **user_line([block], session_id=session_id, parent_tool_use_id=parent_tool_use_id),
        "tool_use_result": tool_use_result,
        "tool_result_meta": [{"id": tool_id, "permission_decision": decision}],
    }


def stream_line(
    event: dict[str, Any], *, session_id: str = SESSION_ID, message_id: str = MESSAGE_ID
) -> dict[str, Any]:
    """A partial message (`--include-partial-messages`): one raw event of the Messages API."""
    extra = {"ttft_ms": 16} if event.get("type") == "message_start" else {}
    return {
        "type": "stream_event", "event": event, "session_id": session_id, "parent_tool_use_id": None,
        "uuid": new_uuid(), **extra, "api_message_id": message_id,
    }  # fmt: skip


def streamed_message(
    blocks: list[tuple[dict[str, Any], list[str]]], *, session_id: str = SESSION_ID, message_id: str = MESSAGE_ID,
    model: str = MODEL, stop_reason: str = "end_turn",
) -> list[dict[str, Any]]:  # fmt: skip
    """All lines of one message with partial messages on: each block with the pieces of its deltas.

    The whole `assistant` line of a block comes after its last delta and before its stop event.
    """
    names = {"session_id": session_id, "message_id": message_id}
    start: dict[str, Any] = {
        "id": message_id, "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": _start_usage(),
    }  # fmt: skip
    lines = [stream_line({"type": "message_start", "message": start}, **names)]
    for index, (block, pieces) in enumerate(blocks):
        empty = {**block, **_EMPTY_BLOCK[block["type"]]}
        event: dict[str, Any] = {"type": "content_block_start", "index": index, "content_block": empty}
        lines.append(stream_line(event, **names))
        for piece in pieces:
            event = {"type": "content_block_delta", "index": index, "delta": delta_of(block["type"], piece)}
            lines.append(stream_line(event, **names))
        lines.append(assistant_line(block, model=model, **names))
        lines.append(stream_line({"type": "content_block_stop", "index": index}, **names))
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    usage = {**_start_usage(), "output_tokens": 7}
    lines.append(stream_line({"type": "message_delta", "delta": delta, "usage": usage}, **names))
    lines.append(stream_line({"type": "message_stop"}, **names))
    return lines


# Block type -> what the block is before its first delta.
_EMPTY_BLOCK: dict[str, dict[str, Any]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}

# Block type -> (the delta's type, the key of its piece)
_DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}


def delta_of(block_type: str, piece: str) -> dict[str, str]:
    kind, key = _DELTAS[block_type]
    return {"type": kind, key: piece}


def result_line(
    result: str | None, *, subtype: str = "success", is_error: bool = False, session_id: str = SESSION_ID,
    model: str = MODEL, calls: int = 1, num_turns: int = 1, cost_usd: float = 0.000204,
    session_cost_usd: float | None = None, index: int = 0, duration_ms: int = 100,
    terminal_reason: str | None = "completed", stop_reason: str | None = "end_turn", errors: tuple[str, ...] = (),
) -> dict[str, Any]:  # fmt: skip
    """The line that ends a turn. `calls` is the number of model calls: the tokens go with it.

    The `error_*` subtypes have `errors` and no `result`. `modelUsage` and `total_cost_usd` are the
    session's, `model_usage_since_last_result` and `usage` this turn's, as with the real CLI.
    """
    total = cost_usd if session_cost_usd is None else session_cost_usd
    answer: dict[str, Any] = {"api_error_status": None, "result": result or ""}
    if subtype != "success":
        answer = {"errors": list(errors)}
    if terminal_reason is not None:
        answer["terminal_reason"] = terminal_reason
    timing = {"ttft_ms": 92, "ttft_stream_ms": 91, "time_to_request_ms": 79, "first_content_frame_ms": 91}
    return {
        "duration_api_ms": 22 * calls, "stop_reason": stop_reason, "session_id": session_id, "total_cost_usd": total,
        "usage": _usage(calls), "modelUsage": {model: _model_usage(model, calls, total)} if calls else {},
        "permission_denials": [], "fast_mode_state": "off", "fast_mode_disabled_reason": "sdk_opt_in_required",
        "subagent_stats": _subagent_stats(), "safety_stops": 0, "is_error": is_error, "num_turns": num_turns,
        "subtype": subtype, **answer, **(timing if calls else {}), "type": "result", "duration_ms": duration_ms,
        "uuid": new_uuid(), "queued_turn_count": 0, "result_index": index,
        "model_usage_since_last_result": {model: _model_usage(model, calls, cost_usd)} if calls else {},
    }  # fmt: skip


def api_failure_lines(
    status: int | str, *, text: str = "", session_id: str = SESSION_ID, index: int = 0
) -> list[dict[str, Any]]:
    """What a failed API call looks like: a synthetic assistant line, then a "success" that is an error."""
    known = API_FAILURES.get(status) or ("unknown", "api_error", f"API Error: {status}")
    error, error_type, shown = known[0], known[1], text or known[2]
    facts: dict[str, Any] = {"api_error": "connection_failed"}
    if isinstance(status, int):
        facts = {"api_error_status": status, "api_error_type": error_type}
    block = {"type": "text", "text": shown}
    line = assistant_line(block, session_id=session_id, message_id=new_uuid(), model="<synthetic>")
    usage = {**_usage(0), "output_tokens_details": None}
    line["message"].update(stop_reason="stop_sequence", stop_sequence="", usage=usage)
    line.update(error=error, is_api_error_message=True, **facts)
    result = result_line(
        shown, is_error=True, session_id=session_id, calls=0, cost_usd=0, index=index, terminal_reason="api_error",
        stop_reason="stop_sequence",
    )  # fmt: skip
    return [line, {**result, **facts}]


def api_retry_line(
    attempt: int,
    max_retries: int,
    delay_ms: int,
    status: int | None,
    error: str,
    session_id: str = SESSION_ID,
) -> dict[str, Any]:
    return {
        "type": "system", "subtype": "api_retry", "attempt": attempt, "max_retries": max_retries,
        "retry_delay_ms": delay_ms, "error_status": status, "error": error, "session_id": session_id,
        "uuid": new_uuid(),
    }  # fmt: skip


def _start_usage() -> dict[str, int]:
    return {
        "input_tokens": 12,
        "output_tokens": 1,
        "cache_creation_input_tokens": 3,
        "cache_read_input_tokens": 5,
    }


def _usage(calls: int) -> dict[str, Any]:
    return {
        "input_tokens": 12 * calls, "cache_creation_input_tokens": 3 * calls, "cache_read_input_tokens": 5 * calls,
        "output_tokens": 7 * calls, "output_tokens_details": {"thinking_tokens": 0},
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0}, "service_tier": "standard",
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0}, "inference_geo": "",
        "iterations": [], "speed": "standard", "fallback_credit": None,
    }  # fmt: skip


def _model_usage(model: str, calls: int, cost_usd: float) -> dict[str, Any]:
    return {
        "inputTokens": 12 * calls, "outputTokens": 7 * calls, "cacheReadInputTokens": 5 * calls,
        "cacheCreationInputTokens": 3 * calls, "webSearchRequests": 0, "costUSD": cost_usd, "contextWindow": 1000000,
        "maxOutputTokens": 128000, "thinkingTokens": 0, "cacheCreationEphemeral5mInputTokens": 0,
        "cacheCreationEphemeral1hInputTokens": 0, "canonicalModel": model, "provider": "firstParty",
        "costBasis": "list",
    }  # fmt: skip


def _subagent_stats() -> dict[str, Any]:
    return {
        "spawned": 0, "requested": {"background": 0, "foreground": 0, "unset": 0}, "started_in_background": 0,
        "max_depth": 0, "spawned_by_subagents": 0, "completed": 0, "failed": 0,
        "killed": {"parent": 0, "user": 0, "system": 0},
        "refused": {"depth_limit": 0, "concurrency_limit": 0, "budget": 0}, "by_type": {},
    }  # fmt: skip
