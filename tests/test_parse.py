"""Lines to events: every line type and field of the CLI, and everything that can be wrong with a line."""

import json
import random
import time
import typing

import captures
import pytest
from captures import decoded, encoded, line

from claude_cli_client._lines import Odd
from claude_cli_client._parse import parse
from claude_cli_client._recover import first_line
from claude_cli_client._reduce import Reducer
from claude_cli_client._verdict import Facts, verdict
from claude_cli_client.events import Event

ANSWER = line("text", "result")
FAILURE = line("api_429", "result")


def parsed(raw):
    return parse(raw, Odd())


def only(raw):
    (event,) = parsed(raw)
    return event


def odd(raw):
    """The events of a line, and how often it counted as odd."""
    seen = Odd()
    return parse(raw, seen), seen.count


# --- what each line becomes -------------------------------------------------------------------------

# recording, label of the line, and what its event must hold
EVENTS = [
    (
        "text",
        "system/init",
        {"type": "system", "subtype": "init", "session_id": "$session_id", "uuid": "$uuid", "model": "$model"},
    ),
    (
        "text",
        "assistant/text",
        {
            "type": "text",
            "text": "hello there",
            "message_id": "$message.id",
            "model": "$message.model",
            "block_index": 0,
            "uuid": "$uuid",
            "session_id": "$session_id",
            "parent_tool_use_id": "",
        },
    ),
    ("thinking_text", "assistant/thinking", {"type": "thinking", "text": "$message.content.0.thinking"}),
    (
        "tool_bash",
        "assistant/tool_use",
        {
            "type": "tool_use",
            "tool_name": "Bash",
            "tool_id": "$message.content.0.id",
            "tool_use_id": "$message.content.0.id",
            "tool_input": "$message.content.0.input",
        },
    ),
    (
        "tool_bash",
        "user/tool_result",
        {
            "type": "tool_result",
            "tool_id": "$message.content.0.tool_use_id",
            "text": "$message.content.0.content",
            "is_tool_error": False,
            "tool_use_result": "$tool_use_result",
            "block_index": 0,
        },
    ),
    (
        "tool_fail",
        "user/tool_result",
        {"type": "tool_result", "is_tool_error": True, "tool_use_result": "$tool_use_result"},
    ),
    ("tool_image", "user/tool_result", {"type": "tool_result", "text": "", "tool_use_result": "$tool_use_result"}),
    ("api_empty_content", "user/text", {"type": "user_text", "is_synthetic": True, "text": "$message.content.0.text"}),
    ("slash_compact", "user/string", {"type": "user_text", "text": "$message.content", "block_index": 0}),
    (
        "task_foreground_forward_text",
        "user/text",
        {"type": "user_text", "is_synthetic": False, "parent_tool_use_id": "$parent_tool_use_id"},
    ),
    (
        "api_429",
        "assistant/text/is_api_error_message",
        {
            "type": "api_error",
            "error": "rate_limit",
            "api_error_status": 429,
            "text": "$message.content.0.text",
            "stop_reason": "stop_sequence",
            "model": "<synthetic>",
        },
    ),
    (
        "sse_cuttext_partial",
        "stream_event/message_start",
        {
            "type": "stream_event",
            "subtype": "message_start",
            "message_id": "$api_message_id",
            "model": "$event.message.model",
            "ttft_ms": "$ttft_ms",
        },
    ),
    (
        "partial_text",
        "stream_event/content_block_delta/text_delta",
        {
            "type": "text_delta",
            "text": "$event.delta.text",
            "block_index": "$event.index",
            "message_id": "$api_message_id",
            "session_id": "$session_id",
            "uuid": "$uuid",
        },
    ),
    (
        "partial_text",
        "stream_event/content_block_delta/thinking_delta",
        {"type": "thinking_delta", "text": "$event.delta.thinking", "block_index": "$event.index", "subtype": ""},
    ),
    (
        "partial_tool",
        "stream_event/content_block_delta/input_json_delta",
        {"type": "tool_input_delta", "text": "$event.delta.partial_json", "message_id": "$api_message_id"},
    ),
    (
        "partial_text",
        "stream_event/content_block_delta/signature_delta",
        {"type": "stream_event", "subtype": "content_block_delta", "block_index": "$event.index"},
    ),
    (
        "partial_tool",
        "stream_event/content_block_start/tool_use",
        {"type": "stream_event", "subtype": "content_block_start", "block_index": "$event.index"},
    ),
    ("partial_text", "stream_event/content_block_stop", {"type": "stream_event", "subtype": "content_block_stop"}),
    ("partial_text", "stream_event/message_delta", {"type": "stream_event", "subtype": "message_delta"}),
    ("partial_text", "stream_event/message_stop", {"type": "stream_event", "subtype": "message_stop"}),
    ("partial_text", "system/status", {"type": "system", "subtype": "status", "text": "requesting"}),
    ("thinking_text", "system/thinking_tokens", {"type": "system", "subtype": "thinking_tokens"}),
    (
        "api_529_then_ok",
        "system/api_retry",
        {
            "type": "retry",
            "subtype": "api_retry",
            "retry_attempt": "$attempt",
            "retry_max": "$max_retries",
            "retry_delay_ms": "$retry_delay_ms",
            "api_error_status": 529,
            "error": "overloaded",
        },
    ),
    ("sse_cut_then_ok", "system/api_retry", {"type": "retry", "api_error_status": None, "error": "unknown"}),
    ("fallback_model_used", "system/model_fallback", {"type": "system", "text": "$content"}),
    (
        "tool_denied",
        "system/permission_denied",
        {"type": "system", "tool_name": "Bash", "tool_id": "$tool_use_id", "text": "$message"},
    ),
    (
        "task_background",
        "system/task_started",
        {
            "type": "task_started",
            "task_id": "$task_id",
            "task_kind": "local_agent",
            "task_type": "$subagent_type",
            "task_description": "$description",
            "tool_id": "$tool_use_id",
        },
    ),
    ("bash_background", "system/task_started", {"type": "task_started", "task_kind": "local_bash", "task_type": ""}),
    (
        "task_background",
        "system/task_progress",
        {
            "type": "task_progress",
            "task_id": "$task_id",
            "task_type": "$subagent_type",
            "task_description": "$description",
            "tool_name": "$last_tool_name",
            "task_tokens": "$usage.total_tokens",
            "task_steps": "$usage.tool_uses",
            "task_ms": "$usage.duration_ms",
        },
    ),
    (
        "task_error",
        "system/task_updated",
        {"type": "task_updated", "task_id": "$task_id", "task_status": "failed", "text": "$patch.error"},
    ),
    (
        "task_background",
        "system/task_notification",
        {
            "type": "task_notification",
            "task_id": "$task_id",
            "task_status": "completed",
            "text": "$summary",
            "task_tokens": "$usage.total_tokens",
            "task_steps": "$usage.tool_uses",
            "task_ms": "$usage.duration_ms",
        },
    ),
    ("task_background", "system/background_tasks_changed", {"type": "system", "subtype": "background_tasks_changed"}),
    ("hooks_slow", "system/hook_started", {"type": "hook", "subtype": "hook_started"}),
    ("hooks_slow", "system/hook_progress", {"type": "hook", "subtype": "hook_progress", "text": "one\n"}),
    (
        "hooks_slow",
        "system/hook_response",
        {"type": "hook", "subtype": "hook_response", "text": "one\ntwo\n", "exit_code": 0},
    ),
    ("slash_compact", "system/compact_boundary", {"type": "compact_boundary", "subtype": "compact_boundary"}),
    ("hooks_block_prompt", "system/informational", {"type": "system", "text": "$content"}),
    ("stop_refusal", "system/model_refusal_no_fallback", {"type": "system", "text": "$content"}),
    ("hooks_stop_block_once", "system/notification", {"type": "system", "text": "$text"}),
    ("session_name", "system/session_title_changed", {"type": "system", "text": "$title"}),
    (
        "ratelimit_429_oauth",
        "rate_limit_event",
        {
            "type": "rate_limit",
            "subtype": "rate_limit_event",
            "rate_limit_status": "rejected",
            "rate_limit_type": "five_hour",
            "resets_at": "$rate_limit_info.resetsAt",
            "utilization": None,
        },
    ),
    (
        "ratelimit_headers_oauth",
        "rate_limit_event",
        {"rate_limit_status": "allowed_warning", "utilization": 0.93, "resets_at": "$rate_limit_info.resetsAt"},
    ),
    (
        "bash_foreground_45s",
        "tool_progress",
        {"type": "tool_progress", "tool_name": "Bash", "tool_id": "$parent_tool_use_id", "uuid": "$uuid"},
    ),
    ("slash_clear", "conversation_reset", {"type": "conversation_reset", "session_id": "$session_id"}),
    ("input_stream_json_blocks_uuid", "command_lifecycle", {"type": "command_lifecycle", "uuid": "$uuid"}),
    (
        "text",
        "result",
        {
            "type": "result",
            "subtype": "success",
            "result": "hello there",
            "is_error": False,
            "errors": (),
            "num_turns": 1,
            "stop_reason": "end_turn",
            "terminal_reason": "completed",
            "structured_output": None,
            "permission_denials": (),
            "result_index": 0,
            "exit_code": None,
            "duration_ms": "$duration_ms",
            "duration_api_ms": "$duration_api_ms",
            "ttft_ms": "$ttft_ms",
            "cost_usd": 0.000204,
            "session_cost_usd": "$total_cost_usd",
            "input_tokens": "$usage.input_tokens",
            "output_tokens": "$usage.output_tokens",
            "cache_read_tokens": "$usage.cache_read_input_tokens",
            "cache_creation_tokens": "$usage.cache_creation_input_tokens",
            "model_usage": "$model_usage_since_last_result",
            "api_error_status": None,
            "origin": None,
            "is_terminal": False,
        },
    ),
    (
        "ratelimit_429_oauth",
        "result",
        {"is_error": True, "api_error_status": 429, "error": "usage_limit_reached", "terminal_reason": "api_error"},
    ),
    (
        "max_turns",
        "result",
        {"subtype": "error_max_turns", "errors": "$errors", "result": "", "terminal_reason": "max_turns"},
    ),
    ("schema_ok", "result", {"structured_output": {"name": "x", "n": 3}}),
    ("tool_denied", "result", {"permission_denials": "$permission_denials"}),
    ("task_background", "result/success/origin", {"type": "result", "origin": "$origin", "result_index": 1}),
    ("resume_unknown", "result", {"terminal_reason": "", "cost_usd": None, "session_cost_usd": 0, "model_usage": {}}),
]


def expected_value(wanted, data):
    """`$a.b.0` is what stands there in the line, lists as tuples at the top."""
    if not (isinstance(wanted, str) and wanted.startswith("$")):
        return wanted
    value = data
    for key in wanted[1:].split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "label", "fields"), EVENTS, ids=[f"{name}-{label}" for name, label, _ in EVENTS])
def test_what_a_line_becomes(name, label, fields):
    """A real line of each kind: the event's type, and its fields as the line has them."""
    raw = line(name, label)
    event = only(raw)
    data = decoded(raw)
    assert {key: getattr(event, key) for key in fields} == {
        key: expected_value(value, data) for key, value in fields.items()
    }
    assert event.raw == raw.decode()


def test_every_recorded_kind_is_in_the_table():
    """No kind of line of the recordings is left out of the table above, but for unknown blocks."""
    named = {captures.label_of(line(name, label)) for name, label, _ in EVENTS}
    left = {label for label in captures.kinds() if label not in named}
    assert {label for label in left if not label.startswith(("stream_event/", "assistant/", "result/"))} == set()


COMMON = "session_id uuid"
# Section by section, every field that the CLI's lines were seen with: it stands in `event.data`.
FIELDS = {
    "system/init": "cwd original_cwd tools mcp_servers mcp_server_errors model permissionMode slash_commands "
    "terminal_slash_commands skills agents apiKeySource claude_code_version output_style view_mode plugins "
    "plugin_errors capabilities betas memory_paths additional_directories messaging_socket_path analytics_disabled "
    "product_feedback_disabled served_by_anthropic sandbox_enabled per_turn_effort_active ultrathink_available "
    "ultrathink_typed_raises fast_mode_state fast_mode_disabled_reason user_message_uuids",
    "assistant": "message parent_tool_use_id timestamp request_id error is_api_error_message api_error_status "
    "api_error_type api_error api_error_params agent_id subagent_type task_description thinking_duration_ms "
    "thinking_display tool_use_meta aborted refused_message_id local_command_source local_command_run "
    "local_command_outcome context_usage user_message_uuid user_message_uuids",
    "user": "message parent_tool_use_id timestamp tool_use_result tool_result_meta isSynthetic isReplay "
    "refusal_retry refused_message_id agent_id subagent_type task_description",
    "system/status": "status compact_result compact_output_chars",
    "system/thinking_tokens": "estimated_tokens estimated_tokens_delta",
    "system/api_retry": "attempt max_retries retry_delay_ms error_status error",
    "system/model_fallback": "trigger original_model fallback_model content",
    "system/permission_denied": "tool_name tool_use_id message decision_reason_type agent_id",
    "system/task_started": "task_id run_id tool_use_id description task_type is_backgrounded subagent_type "
    "spawn_depth prompt",
    "system/task_progress": "task_id run_id tool_use_id description subagent_type last_tool_name usage",
    "system/task_updated": "task_id run_id patch",
    "system/task_notification": "task_id run_id tool_use_id status output_file summary summary_is_report usage",
    "system/background_tasks_changed": "tasks",
    "system/hook_started": "hook_id hook_name hook_event",
    "system/hook_progress": "hook_id hook_name hook_event stdout stderr output",
    "system/hook_response": "hook_id hook_name hook_event stdout stderr output exit_code outcome",
    "system/compact_boundary": "compact_metadata logical_parent_uuid",
    "system/informational": "content level prevent_continuation prompt_submit_outcome",
    "system/model_refusal_no_fallback": "original_model request_id api_refusal_category api_refusal_explanation "
    "refused_user_message_uuid content",
    "system/notification": "key text priority",
    "system/session_title_changed": "title",
    "rate_limit_event": "rate_limit_info",
    "tool_progress": "tool_use_id parent_tool_use_id tool_name elapsed_time_seconds heartbeat",
    "conversation_reset": "new_conversation_id trigger user_message_uuid timestamp",
    "command_lifecycle": "command_uuid state",
    "stream_event": "event parent_tool_use_id api_message_id ttft_ms thinking_display abandoned_blocks",
    "result": "subtype is_error result errors structured_output duration_ms duration_api_ms num_turns stop_reason "
    "total_cost_usd usage modelUsage model_usage_since_last_result permission_denials terminal_reason "
    "api_error_status api_error_type api_error deferred_tool_use origin local_command result_index subagent_stats "
    "ttft_ms ttft_stream_ms time_to_request_ms first_content_frame_ms begun_message_ids safety_stops "
    "queued_turn_count fast_mode_state fast_mode_disabled_reason user_message_uuid user_message_uuids "
    "request_sent_wall_ms first_request_input_tokens first_request_cache_read_input_tokens",
}
# Documented, but in none of the recordings here: put into a real line by hand.
BY_HAND = {
    "system/init": {"betas": ["b"], "plugin_errors": [{"plugin": "p", "type": "t", "message": "m"}]},
    "system/status": {"compact_output_chars": 12},
}


@pytest.mark.parametrize(
    ("label", "field"), [(label, field) for label, fields in FIELDS.items() for field in f"{fields} {COMMON}".split()]
)
def test_every_field_reaches_the_user(label, field):
    """Each documented field of each line type stands in `event.data`, as the CLI wrote it."""
    extra = BY_HAND.get(label, {})
    if field in extra:
        base = next(raw for kind, raw in captures.kinds().items() if kind.startswith(label))
        found = [encoded({**decoded(base), field: extra[field]})]
    else:
        found = [
            raw
            for name in captures.NAMES
            for raw in captures.lines(name)
            if b'"%s"' % field.encode() in raw
            and f"{captures.label_of(raw)}/".startswith(f"{label}/")
            and field in decoded(raw)
        ]
    for event in parsed(found[0]):
        assert event.data[field] == decoded(found[0])[field]


@pytest.mark.parametrize("label", FIELDS)
def test_no_field_is_undocumented(label):
    """The tables above name every field that the recordings have."""
    known = {*FIELDS[label].split(), *COMMON.split(), "type", "subtype"}
    for name in captures.NAMES:
        for raw in captures.lines(name):
            if f"{captures.label_of(raw)}/".startswith(f"{label}/"):
                assert decoded(raw).keys() <= known


# --- blocks and messages ----------------------------------------------------------------------------


def message(role, content, **more):
    return encoded({"type": role, "message": {"id": "m1", "role": role, "content": content}, "session_id": "s", **more})


def test_several_blocks_are_several_events():
    """A line with several blocks gives an event for each, in order, with its place and its own block."""
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}},
        {"type": "text", "text": "b"},
    ]
    events = parsed(message("assistant", blocks))
    assert [(event.type, event.block_index, event.block) for event in events] == [
        ("text", 0, blocks[0]),
        ("tool_use", 1, blocks[1]),
        ("text", 2, blocks[2]),
    ]


def test_several_tool_results_share_no_outcome():
    """`tool_use_result` belongs to one result; with two in a line nobody can say whose it is."""
    blocks = [{"type": "tool_result", "tool_use_id": name, "content": name} for name in "ab"]
    events = parsed(message("user", blocks, tool_use_result={"stdout": "?"}))
    assert [(event.tool_id, event.text, event.tool_use_result) for event in events] == [
        ("a", "a", None),
        ("b", "b", None),
    ]


def test_an_outcome_beside_text():
    """With one result and a text block, the outcome goes to the result alone."""
    blocks = [{"type": "text", "text": "x"}, {"type": "tool_result", "tool_use_id": "a", "content": "y"}]
    events = parsed(message("user", blocks, tool_use_result="Error: no"))
    assert [(event.type, event.tool_use_result) for event in events] == [
        ("user_text", None),
        ("tool_result", "Error: no"),
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, ""),
        (7, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "image"}, "x", None, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "text", "text": 3}], ""),
    ],
)
def test_text_of_a_tool_result(content, text):
    """A string, or the text of those blocks that have one."""
    block = {"type": "tool_result", "tool_use_id": "t", "content": content}
    assert only(message("user", [block])).text == text


@pytest.mark.parametrize("value", [False, None, "absent"])
def test_a_tool_result_without_an_error(value):
    """`is_error` may be absent or null."""
    block = {"type": "tool_result", "tool_use_id": "t", "content": "x", "is_error": value}
    if value == "absent":
        del block["is_error"]
    assert only(message("user", [block])).is_tool_error is False


@pytest.mark.parametrize(
    ("kind", "block"),
    [
        ("redacted_thinking", {"type": "redacted_thinking", "data": "ZW5j"}),
        ("server_tool_use", None),
        ("web_search_tool_result", None),
        ("brand_new_block", {"type": "brand_new_block", "foo": 1}),
    ],
)
def test_unknown_blocks_come_through(kind, block):
    """A block that has no type of its own keeps the CLI's word, and its content stands in `block`."""
    raw = line("unusual_blocks", f"assistant/{kind}")
    event = only(raw)
    assert event.type == f"assistant:{kind}"
    assert event.block == decoded(raw)["message"]["content"][0]
    if block:
        assert event.block == block


def test_unknown_blocks_with_known_fields():
    """An id, name and input of an unknown block are where those of a tool call are."""
    event = only(line("unusual_blocks", "assistant/server_tool_use"))
    assert (event.tool_id, event.tool_name, event.tool_input) == ("srvtoolu_01", "web_search", event.block["input"])
    assert only(line("unusual_blocks", "assistant/web_search_tool_result")).tool_id == "srvtoolu_01"


@pytest.mark.parametrize("role", ["assistant", "user"])
@pytest.mark.parametrize("block", [None, 7, "text", [], {}, {"type": None}, {"type": 7}, {"type": ""}])
def test_a_block_without_a_type(role, block):
    """It is `assistant:unknown` or `user:unknown`, and nothing is lost."""
    raw = message(role, [block])
    event = only(raw)
    assert (event.type, event.raw) == (f"{role}:unknown", raw.decode())


@pytest.mark.parametrize("role", ["assistant", "user"])
@pytest.mark.parametrize("content", [[], None, 7, {}, True])
def test_a_message_without_blocks(role, content):
    """It is one event of the line's own type."""
    assert only(message(role, content)).type == role


def test_text_of_a_string_is_its_own_block():
    """Content that is a bare string has a text block made for it."""
    event = only(message("user", "hello"))
    assert (event.type, event.text, event.block) == ("user_text", "hello", {"type": "text", "text": "hello"})


@pytest.mark.parametrize("mark", [{"error": "server_error"}, {"is_api_error_message": True}])
def test_an_api_error_is_not_text(mark):
    """Either mark is enough, so that a loop that prints text does not take it for the answer."""
    event = only(message("assistant", [{"type": "text", "text": "API Error: 500"}], **mark))
    assert (event.type, event.text) == ("api_error", "API Error: 500")


# --- partial messages -------------------------------------------------------------------------------


def test_deltas_add_up_to_the_block():
    """The text deltas of a recording, joined, are the text of its block; so are the tool's input."""
    for name, delta, kind in [("partial_text", "text_delta", "text"), ("partial_text", "thinking_delta", "thinking")]:
        events = captures.events(name)
        joined = "".join(event.text for event in events if event.type == delta)
        assert joined == next(event.text for event in events if event.type == kind)
    events = captures.events("partial_tool")
    joined = "".join(event.text for event in events if event.type == "tool_input_delta")
    call = next(event for event in events if event.type == "tool_use")
    assert json.loads(joined).items() <= call.tool_input.items()


def test_deltas_name_the_message_of_their_block():
    """Deltas and whole blocks of one message share `message_id`."""
    events = captures.events("partial_text")
    named = {event.message_id for event in events if event.type in ("text_delta", "text", "thinking_delta")}
    assert len(named) == 1


def test_the_fast_path_gives_the_same():
    """A text delta of the usual shape, and one that has to go the long way, differ in nothing else."""
    raw = line("partial_text", "stream_event/content_block_delta/text_delta")
    sub = only(encoded({**decoded(raw), "parent_tool_use_id": "toolu_1"}))
    fast = only(raw)
    assert sub.parent_tool_use_id == "toolu_1"
    for name in Event.__dataclass_fields__:
        if name not in ("raw", "parent_tool_use_id"):
            assert getattr(sub, name) == getattr(fast, name), name


def test_what_a_broken_stream_voids():
    """`abandoned_blocks` is an event `retracted`, before the `message_stop` on which it stands."""
    raw = line("sse_cuttext_partial", "stream_event/message_stop")
    gone = decoded(raw)["abandoned_blocks"]
    retracted, stop = parsed(raw)
    assert (retracted.type, retracted.message_id, retracted.block_index) == (
        "retracted",
        gone["api_message_id"],
        gone["from_block_index"],
    )
    assert (stop.type, stop.subtype) == ("stream_event", "message_stop")
    assert retracted.raw == stop.raw == raw.decode()


@pytest.mark.parametrize("name", ["sse_cuttext_partial", "sse_cut_then_ok", "sigint_stream"])
def test_retracted_leaves_what_is_true(name):
    """Deltas, less what was retracted, are the text blocks that came."""
    streamed = {}
    for event in captures.events(name):
        key = (event.message_id, event.block_index)
        if event.type == "text_delta":
            streamed[key] = streamed.get(key, "") + event.text
        elif event.type == "retracted":
            streamed = {k: v for k, v in streamed.items() if k[0] != key[0] or k[1] < key[1]}
    assert "".join(streamed.values()) == "".join(e.text for e in captures.events(name) if e.type == "text")


# --- tool_progress ----------------------------------------------------------------------------------


def test_progress_names_the_real_tool():
    """The id of a heartbeat is made up; the event has the tool's own and stays in the main turn."""
    events = captures.events("bash_foreground_45s")
    call = next(event for event in events if event.type == "tool_use")
    beats = [event for event in events if event.type == "tool_progress"]
    assert {(e.tool_id, e.tool_name, e.parent_tool_use_id) for e in beats} == {(call.tool_id, "Bash", "")}
    assert [event.data["elapsed_time_seconds"] for event in beats] == [30, 60, 90]


def test_progress_without_a_heartbeat():
    """Progress of another make, of a subagent's tool, keeps both of its ids."""
    raw = line("bash_foreground_45s", "tool_progress")
    event = only(encoded({**decoded(raw), "heartbeat": None, "tool_use_id": "t1", "parent_tool_use_id": "p1"}))
    assert (event.tool_id, event.parent_tool_use_id) == ("t1", "p1")


# --- unknown and hidden lines -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["prompt_suggestion", "brand_new", "Result", "results", "error", "x" * 10_000])
def test_unknown_types_come_through(kind):
    """A line type that nobody knows keeps its name, subtype, ids and raw line."""
    raw = encoded({"type": kind, "subtype": "odd", "session_id": "s", "uuid": "u", "more": [1]})
    event = only(raw)
    assert (event.type, event.subtype, event.session_id, event.uuid) == (kind, "odd", "s", "u")
    assert event.data["more"] == [1]


@pytest.mark.parametrize(
    "word", ["files_persisted", "memory_saved", "plugin_install", "task_summary", "elicitation_complete", "new_one"]
)
def test_unknown_subtypes_of_system(word):
    """Any subtype is accepted: a plain `system` event."""
    event = only(encoded({"type": "system", "subtype": word, "message": "said", "session_id": "s"}))
    assert (event.type, event.subtype, event.text) == ("system", word, "said")


@pytest.mark.parametrize("data", [{}, {"type": None}, {"type": 7}, {"type": ""}, {"type": ["result"]}, {"type": {}}])
def test_a_line_without_a_type(data):
    """An object without a usable type is `unknown`, with its raw line."""
    raw = encoded(data)
    event = only(raw)
    assert (event.type, event.raw) == ("unknown", raw.decode())


HIDDEN = [
    "control_request",
    "control_response",
    "control_cancel_request",
    "control_",
    "control_of_the_future",
    "keep_alive",
    "transcript_mirror",
]


@pytest.mark.parametrize("kind", HIDDEN)
def test_hidden_frames(kind):
    """Talk between the CLI and its host is no event, and no odd line."""
    assert odd(encoded({"type": kind, "session_id": "s", "request": {}})) == ([], 0)


@pytest.mark.parametrize("kind", ["control", "controls", "keep_alive_2", "transcript"])
def test_names_near_hidden_ones_are_shown(kind):
    """Only the names of the table are hidden."""
    assert only(encoded({"type": kind})).type == kind


@pytest.mark.parametrize("label", captures.kinds())
def test_frames_for_the_host_alone(label):
    """A frame of any type that is marked `sdk_host_only` is not shown."""
    raw = encoded({**decoded(captures.kinds()[label]), "sdk_host_only": True})
    assert odd(raw) == ([], 0)


@pytest.mark.parametrize("mark", [False, None, "", 0])
def test_frames_not_for_the_host_alone(mark):
    """The mark counts only when it is true."""
    assert only(encoded({"type": "system", "subtype": "x", "sdk_host_only": mark})).type == "system"


# --- lines that are no good -------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [b"", b" ", b"\t \r", "\u2028\u3000".encode(), b"\x0c\x1c"])
def test_blank_lines(raw):
    """They are nothing, and not odd."""
    assert odd(raw) == ([], 0)


ODD_LINES = [
    b"Update available: 2.1.333",
    b"Warning: {not json}",
    b"[SandboxDebug] starting",
    b"null",
    b"7",
    b"true",
    b'"text"',
    b"[]",
    b'[{"type":"system"}]',
    b"{",
    b"}",
    b"{}}",
    b'{"type":"assistant"',
    b'{"type":"assistant"} trailing',
    b'{"type":"assistant"}{"type":"user"}',
    b"{'type':'assistant'}",
    b'{"type":"assistant",}',
    b'{"type":"assistant" "x":1}',
    b'{"type":"assistant","x":\xff}',
    b'\xef\xbb\xbf{"type":"assistant"}',
    b"\x00\x00\x00",
    b"\x1b[?25h",
    b"-",
    b"tru",
    b'{"type":"assist\nant"}',
    b'{"type":"assistant","x":01}',
    b'{"type":"assistant","x":"\\q"}',
]


@pytest.mark.parametrize("raw", ODD_LINES)
def test_odd_lines(raw):
    """Banners, fragments and values that are no object are counted and give no event."""
    assert odd(raw) == ([], 1)


@pytest.mark.parametrize("name", ["output_text", "output_json_verbose"])
def test_other_output_formats_are_odd(name):
    """What the CLI prints in its other formats is not taken for events."""
    assert odd(captures.stdout(name).rstrip(b"\n")) == ([], 1)


@pytest.mark.parametrize(
    ("before", "after"), [(b" ", b""), (b"\t\t", b" "), (b"", b"\r"), (b"", b" \t\r"), (b"\r", b"\r"), (b"\x00", b"")]
)
def test_blanks_around_a_line(before, after):
    """Leading and trailing blanks cost nothing; a NUL is no blank."""
    events, count = odd(before + line("text", "assistant/text") + after)
    if before == b"\x00":
        assert (events, count) == ([], 1)
    else:
        assert [event.text for event in events] == ["hello there"]
        assert count == 0


def test_invalid_utf8_costs_only_itself():
    """Each bad byte in a string becomes U+FFFD, and the rest of the line is there."""
    raw = line("text", "assistant/text").replace(b"hello there", b"hel\xfflo \xc3 there\xed\xa0\x80!")
    event = only(raw)
    assert event.text == "hel\ufffdlo \ufffd there\ufffd\ufffd\ufffd!"
    assert event.session_id == decoded(line("text", "assistant/text"))["session_id"]


def test_every_byte_damaged_in_turn():
    """A byte that is no UTF-8, anywhere in a line: nothing raises, and a line that still parses has its raw."""
    raw = line("text", "assistant/text")
    for at in range(len(raw)):
        for event in parsed(raw[:at] + b"\xff" + raw[at + 1 :]):
            assert "\ufffd" in event.raw


def test_lone_surrogates_become_replacement_characters():
    """Half of a pair, which JSON can say, would make every print raise; the raw line has its escape."""
    for event in (only(line("output_nonascii", "result")), only(line("output_nonascii", "assistant/text"))):
        assert "\ufffd end" in str(event)
        assert "\\ud800 end" in event.raw
        assert event.raw.encode().decode() == event.raw
        assert repr(event).isascii() or "\ud800" not in repr(event)
        assert hash(event) == hash(event)


@pytest.mark.parametrize("text", ["a\u2028b\u2029c", "x\u0085y", "x\ry", "\x7f\x0b\x0c", "🎉 👩\u200d👧", "\ufeffbom"])
@pytest.mark.parametrize("ascii", [True, False])
def test_characters_that_others_cut_at(text, ascii):
    """They are content, whether the CLI escapes them or not."""
    data = {"type": "result", "subtype": "success", "result": text}
    assert only(json.dumps(data, ensure_ascii=ascii).encode()).result == text


@pytest.mark.parametrize("digits", [400, 4300, 5000, 100_000])
@pytest.mark.parametrize("place", ["num_turns", "total_cost_usd", "usage", "model_usage_since_last_result", "more"])
def test_huge_integers(digits, place):
    """Python refuses integers beyond some size, floats take less: whatever comes out, nothing raises."""
    number = "9" * digits
    value = {
        "usage": f'{{"input_tokens":{number}}}',
        "model_usage_since_last_result": f'{{"m":{{"costUSD":{number}}}}}',
    }.get(place, number)
    raw = b'{"session_id":"s","subtype":"success","%s":%s,"result":"x","is_error":false,"type":"result"}' % (
        place.encode(),
        value.encode(),
    )
    event = only(raw)
    assert (event.type, event.result, event.raw) == ("result", "x", raw.decode())


@pytest.mark.parametrize("depth", [100, 900, 2000, 100_000])
@pytest.mark.parametrize("bracket", ["[]", '{"":}'])
def test_deep_nesting(depth, bracket):
    """Where `json` gives up, the line is odd, or a result recovered; the thread lives."""
    opening, closing = bracket[:-1], bracket[-1]
    nested = opening * depth + "1" + closing * depth
    raw = b'{"type":"assistant","x":%s}' % nested.encode()
    events, count = odd(raw)
    assert len(events) + count == 1
    for event in events:
        assert (event.data == {}) or event.data["x"]
    result = b'{"session_id":"s","subtype":"success","structured_output":%s,"is_error":true,"type":"result"}'
    event = only(result % nested.encode())
    assert (event.type, event.is_error) == ("result", True)


@pytest.mark.parametrize("depth", [300, 700, 960])
def test_deep_input_of_a_tool(depth):
    """A tool's input that could be read can be shown too."""
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    raw = b'{"type":"assistant","message":{"content":[{"type":"tool_use","name":"X","input":%s}]}}' % nested
    for event in parsed(raw):
        assert str(event).startswith("X(")
        assert repr(event)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none(word):
    """`json` reads them; they harm nothing."""
    raw = ANSWER.replace(b'"duration_ms":', b'"duration_ms":%s,"was":' % word.encode())
    assert only(raw).result == "hello there"


def test_duplicate_keys():
    """The last one counts, as for `json`."""
    assert only(b'{"type":"system","type":"result","result":"a","result":"b"}').result == "b"


# --- shapes that nobody expects ---------------------------------------------------------------------

CLASSES: dict[typing.Any, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int | None": (int, float, type(None)),
    "float | None": (int, float, type(None)),
    "Mapping[str, Any] | None": (dict, type(None)),
    "tuple[str, ...]": (tuple,),
    "tuple[Mapping[str, Any], ...]": (tuple,),
    "Any": (object,),
}
ITEMS = {"tuple[str, ...]": str, "tuple[Mapping[str, Any], ...]": dict}


def check_types(event):
    """Every field has the type that `Event` promises."""
    for name, value in event.__dict__.items():
        if name.startswith("_"):
            continue
        promised = Event.__annotations__[name]
        assert isinstance(value, CLASSES[promised]), (name, value)
        assert isinstance(value, bool) == (promised == "bool") or promised == "Any", (name, value)
        if promised in ITEMS:
            assert all(isinstance(item, ITEMS[promised]) for item in value), (name, value)


@pytest.mark.parametrize("label", captures.kinds())
def test_mutated_lines(label):
    """Any key deleted, any value replaced by another type: an event comes, its fields have their types."""
    for raw in captures.mutations(captures.kinds()[label]):
        seen = Odd()
        events = parse(raw, seen)
        assert events
        assert seen.count == 0
        for event in events:
            assert event.raw == raw.decode()
            check_types(event)
            assert isinstance(str(event), str)
            assert repr(event).startswith("Event(")
            assert hash(event) == hash(event)
            assert event.block is None or isinstance(event.block, dict)


@pytest.mark.parametrize("name", captures.NAMES)
def test_recordings_have_the_types(name):
    """Every event of every recording has fields of the types that `Event` promises."""
    for event in captures.events(name):
        check_types(event)
        assert event.raw


# --- damaged results --------------------------------------------------------------------------------


def outcome(raw):
    """The turn that has this line where its result should be."""
    return captures.turn([line("text", "system/init"), raw])


def failed(raw):
    """Whether the turn fails that has this line as its last."""
    reducer = Reducer(resumed=False)
    reducer.add(parse(raw, Odd()))
    return verdict(reducer.end("process", "", 1), Facts()) is not None


FAILURES = {
    name: line(name, "result") for name in ("api_429", "no_credentials", "max_turns", "resume_unknown", "sigint_tool")
}
# What stands nested in front of the line's own fields, and must not be taken for them.
DECOY = {
    "is_error": False,
    "terminal_reason": "completed",
    "subtype": "success",
    "type": "result",
    "result": "all is well",
    "api_error_status": None,
    "session_id": "decoy",
}


def with_decoy(raw):
    data = decoded(raw)
    denial = {"tool_name": "X", "tool_use_id": "t", "tool_input": {**DECOY, "deep": [DECOY]}}
    return encoded({**data, "permission_denials": [denial]})


@pytest.mark.parametrize(("name", "decoy"), [*[(name, False) for name in FAILURES], ("api_429", True)])
def test_a_failure_cut_anywhere_is_no_success(name, decoy):
    """The line of a failed turn, cut at any byte, front or back, never comes out as an answer."""
    raw = with_decoy(FAILURES[name]) if decoy else FAILURES[name]
    for at in range(len(raw)):
        assert failed(raw[:at]), raw[:at]
        assert failed(raw[at:]), raw[at:]


@pytest.mark.parametrize(("name", "decoy"), [*[(name, False) for name in FAILURES], ("api_429", True)])
@pytest.mark.parametrize("byte", [b"", b"\xff", b'"', b"}", b",", b"\\"])
def test_a_failure_with_one_bad_byte_is_no_success(name, decoy, byte):
    """Any byte of a failed turn's line lost or replaced: it never comes out as an answer."""
    raw = with_decoy(FAILURES[name]) if decoy else FAILURES[name]
    for at in range(len(raw)):
        damaged = raw[:at] + byte + raw[at + 1 :]
        assert failed(damaged), damaged


def tells_nothing(raw):
    """Whether the damage left good JSON from which every sign of failure is gone."""
    try:
        data = json.loads(raw.decode("utf-8", "replace"))
    except ValueError:
        return False
    return data.get("type") == "result" and not data.keys() & {"is_error", "terminal_reason"}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_with_a_hole_is_no_success(name):
    """A run of bytes lost, or overwritten by other output: it never comes out as an answer."""
    chance = random.Random(name)
    other = line("tool_bash", "user/tool_result") + ANSWER
    for _ in range(1500):
        raw = with_decoy(FAILURES[name]) if chance.random() < 0.5 else FAILURES[name]
        at = chance.randrange(len(raw))
        size = chance.choice([2, 5, 20, 100, 500])
        start = chance.randrange(len(other))
        filler = chance.choice([b"", b"\xff" * size, other[start : start + size].replace(b"\n", b"")])
        if b'"is_error":false' in filler or b'"completed"' in filler:
            continue  # then it is no longer the line of a failed turn
        damaged = raw[:at] + filler + raw[at + size :]
        if tells_nothing(damaged):
            continue
        assert failed(damaged), damaged


def test_two_lines_run_together():
    """A newline lost before the result: the failure behind it is found, not the tool's `is_error: false`."""
    tool = line("tool_bash", "user/tool_result")
    assert b'"is_error":false' in tool
    turn = outcome(tool + FAILURE)
    assert type(turn.error).__name__ == "RateLimitError"
    assert outcome(tool + ANSWER).error is None


@pytest.mark.parametrize("junk", [b"garbage", b"{", b"[]", b'{"type":"keep_alive"}', b"\x00", b"\xff" * 9])
def test_junk_behind_a_result(junk):
    """Trailing garbage costs nothing of a result."""
    event = only(ANSWER + junk)
    whole = only(ANSWER)
    for name in Event.__dataclass_fields__:
        if name != "raw":
            assert getattr(event, name) == getattr(whole, name), name


@pytest.mark.parametrize("raw", [ANSWER, FAILURE, line("max_turns", "result"), line("schema_ok", "result")])
def test_each_field_damaged_in_turn(raw):
    """With one value of the line unreadable, every other field of the event is as in the whole line."""
    whole = only(raw)
    data = decoded(raw)
    for key in data:
        if key in ("type", "subtype", "session_id"):
            continue  # without these nobody can tell that it is a result
        damaged = encoded({**data, key: "@@"}).replace(b'"@@"', b"\xff?")
        event = only(damaged)
        for name in ("result", "num_turns", "stop_reason", "session_cost_usd", "input_tokens", "errors", "uuid"):
            source = {"session_cost_usd": "total_cost_usd", "input_tokens": "usage"}.get(name, name)
            if source != key:
                assert getattr(event, name) == getattr(whole, name), (key, name)
        if key not in ("is_error", "terminal_reason"):
            assert event.is_error == whole.is_error, key


@pytest.mark.parametrize(
    ("reason", "is_error"), [("completed", False), ("api_error", True), ("max_turns", True), (None, True)]
)
def test_a_result_that_lost_its_verdict(reason, is_error):
    """Without a readable `is_error` it counts as failed, unless it says that it completed."""
    data = {**decoded(ANSWER), "is_error": "@@", "terminal_reason": reason}
    event = only(encoded(data).replace(b'"@@"', b"tru"))
    assert event.is_error is is_error


def test_a_result_whose_verdict_has_another_name():
    """The same where the line is good JSON, but has no `is_error`."""
    for name, raw in FAILURES.items():
        assert outcome(raw.replace(b'"is_error"', b'"is_errxr"')).error is not None, name
    assert outcome(ANSWER.replace(b'"is_error"', b'"is_errxr"')).error is None


def test_a_bare_result_is_an_answer():
    """The least that a stand-in can print: without any sign of failure it is a success."""
    turn = captures.turn([b'{"type":"result","subtype":"success","result":"hi"}'])
    assert (turn.error, turn.end.result) == (None, "hi")


def test_a_control_character_in_the_answer():
    """A raw control character, which JSON forbids, does not cost the answer's text."""
    event = only(ANSWER.replace(b"hello there", b"hello\x01there"))
    assert event.result == "hello\x01there"


def test_a_damaged_line_that_quotes_a_result():
    """A tool's input that holds a result, in a line that is damaged, is not taken for one."""
    quoted = json.dumps({"type": "result", "subtype": "success", "session_id": "s", "is_error": False})
    raw = message("assistant", [{"type": "tool_use", "id": "t", "name": "Write", "input": {"content": quoted}}])
    assert odd(raw[:-1]) == ([], 1)


def test_a_damaged_line_with_an_object_like_a_result():
    """The same where the input is an object that looks like one."""
    raw = message("assistant", [{"type": "tool_use", "id": "t", "name": "X", "input": {**DECOY}}])
    events, _ = odd(raw[:-1])
    assert [event.type for event in events] == []


@pytest.mark.parametrize(
    "filler",
    [" " * 200_000, '\\"' * 100_000, '{"' * 50_000, '[{,"a' * 40_000, "\\" * 99_999, '\\"' * 50_000 + "\\"],
    ids=["blanks", "quotes", "openings", "mixed", "backslashes", "cut behind a backslash"],
)
def test_a_damaged_result_takes_time_in_proportion(filler):
    """However unlucky the damage, the line is looked at once: nobody else runs meanwhile."""
    line = '{"type":"result","subtype":"success","session_id":"s","result":"' + filler
    began = time.process_time()
    parsed(line.encode())
    assert time.process_time() - began < 2.0


def test_many_objects_in_one_line_take_time_in_proportion():
    """The result behind them is found without a copy of the rest for each."""
    line = b'{"n":1} ' * 300_000 + ANSWER
    began = time.process_time()
    assert only(line).type == "result"
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize("around", [" {}", "\t{}", "  {}  "])
def test_an_indented_control_frame_is_answered_too(around):
    """What a wrapper or a terminal put around it does not keep it from who waits for it."""
    got = []
    line = around.replace("{}", '{"type":"control_request","request_id":"1"}').encode()
    assert parse(line, Odd(), lambda frame, _: got.append(frame)) == []
    assert [frame["request_id"] for frame in got] == ["1"]


def test_a_question_that_is_no_json_is_refused():
    """Nested deeper than Python reads, or damaged: who asked is known, so the CLI need not wait for ever."""
    line = b'{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","input":' + b"[" * 100_000
    got = []
    assert parse(line, Odd(), lambda frame, _: got.append(frame)) == []
    (frame,) = got
    assert frame["request_id"] == "r1"
    assert "no JSON" in frame["request"]["subtype"]


def test_a_hooks_question_that_is_no_json_fails_closed():
    """To a hook a refusal would mean that the tool may run."""
    got = []
    line = b'{"type":"control_request","request_id":"r1","request":{"subtype":"hook_callback","callback_id":"h'
    assert parse(line, Odd(), lambda frame, _: got.append(frame)) == []
    assert got == [
        {"type": "control_request", "request_id": "r1", "request": {"subtype": "hook_callback", "callback_id": ""}}
    ]


def delta(fields):
    return {"type": "stream_event", "event": {"type": "content_block_delta", "delta": fields}}


@pytest.mark.parametrize(
    "data",
    [
        delta({"type": "text_delta", "text": "?"}),
        delta({"type": "thinking_delta", "thinking": "?"}),
        delta({"type": "input_json_delta", "partial_json": "?"}),
        {"type": "system", "subtype": "informational", "content": "?"},
        {"type": "system", "subtype": "hook_response", "output": "?"},
        {"type": "system", "subtype": "task_notification", "summary": "?"},
        {"type": "result", "subtype": "success", "result": "?"},
        {"type": "result", "subtype": "error_during_execution", "errors": ["?"]},
        {"type": "user", "message": {"content": [{"type": "tool_result", "content": "?"}]}},
    ],
)
def test_every_text_can_be_printed(data):
    """Whichever line says half of a pair."""
    (event,) = parsed(json.dumps(data).replace("?", "\\ud800").encode())
    shown = event.text + event.result + "".join(event.errors)
    assert "\ufffd" in shown
    assert shown.encode()


@pytest.mark.parametrize("word", [1, "true", "yes", None])
def test_a_failure_whose_flag_is_no_boolean(word):
    """It must not come out as a success."""
    data = {"type": "result", "subtype": "success", "is_error": word, "api_error_status": 500, "result": "no"}
    assert only(json.dumps(data).encode()).is_error is True


def test_an_answer_that_is_no_json_is_a_refusal():
    """Who waits for it is told, and does not wait for the rest of his time."""
    got = []
    line = b'{"type":"control_response","response":{"subtype":"success","request_id":"r1","response":' + b"[" * 100_000
    assert parse(line, Odd(), lambda frame, _: got.append(frame)) == []
    (frame,) = got
    assert frame["response"]["subtype"] == "error"
    assert frame["response"]["request_id"] == "r1"


# --- the CLI's first line behind something else


@pytest.mark.parametrize("front", [b"v20 ", b"\xff\x1b]0;t\x07", b"(not json) "])
@pytest.mark.parametrize("line", [b'{"type":"system","subtype":"init"}', b'{"type":"control_response","response":{}}'])
def test_first_line_behind_something(front, line):
    """It is found, with nothing of what stands in front."""
    assert first_line(front + line) == line
    assert first_line(front + line + b" ") == line + b" "


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"system","subtype":"init"}',  # nothing in front
        b'{"said":"x"} {"type":"system","subtype":"init"}',  # an object of somebody's, which may quote one
        b'x {"type":"system","subtype":"init"} and more',
        b'x {"type":"system","subtype":"init"',
        b'x {"type":"user"}',
        b"",
    ],
)
def test_no_first_line_behind_something(line):
    """What is whole, quoted, cut or something else is left as it is."""
    assert first_line(line) == b""
