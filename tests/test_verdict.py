"""From a terminal event to its exception: one case per way that a turn of the CLI can end."""

import captures
import pytest
from captures import decoded, encoded, line, turn

from claude_cli_client import _verdict
from claude_cli_client import errors as e
from claude_cli_client._verdict import Facts, verdict
from claude_cli_client.events import Event

# recording, class, status, category, retryable
FAILED = [
    ("api_400", e.InvalidRequestError, 400, "unknown", False),
    ("api_400_credit", e.BillingError, 400, "billing_error", False),
    ("api_400_prompt_too_long", e.PromptTooLongError, 400, "invalid_request", False),
    ("api_401", e.AuthenticationError, 401, "authentication_failed", False),
    ("api_403", e.AuthenticationError, 403, "authentication_failed", False),
    ("api_402", e.BillingError, 402, "unknown", False),
    ("api_404", e.ModelNotFoundError, 404, "model_not_found", False),
    ("bad_model", e.ModelNotFoundError, 404, "model_not_found", False),
    ("api_413", e.InvalidRequestError, 413, "invalid_request", False),
    ("api_429", e.RateLimitError, 429, "rate_limit", True),
    ("ratelimit_429_oauth", e.RateLimitError, 429, "rate_limit", False),
    ("api_500", e.ServerError, 500, "server_error", True),
    ("api_503", e.ServerError, 503, "server_error", True),
    ("api_529", e.ServerError, 529, "server_error", True),
    ("sse_error_event", e.ServerError, 529, "server_error", True),
    ("sse_cuttext_partial", e.ServerError, 529, "server_error", True),
    ("conn_refused", e.APIConnectionError, None, "server_error", True),
    ("dns_fail", e.APIConnectionError, None, "server_error", True),
    ("api_timeout", e.APIConnectionError, None, "server_error", True),
    ("api_200_html", e.APIConnectionError, None, "unknown", True),
    ("no_credentials", e.AuthenticationError, None, "authentication_failed", False),
    ("sse_cutend", e.APIConnectionError, None, "server_error", True),
    ("stop_max_tokens", e.OutputLimitError, None, "max_output_tokens", False),
    ("stop_refusal", e.RefusalError, None, "invalid_request", False),
    ("max_turns", e.MaxTurnsError, None, "max_turns", False),
    ("max_budget", e.BudgetExceededError, None, "budget_exhausted", False),
    ("max_budget_single", e.BudgetExceededError, None, "budget_exhausted", False),
    ("schema_always_bad", e.StructuredOutputError, None, "structured_output_retry_exhausted", False),
    ("schema_never", e.StructuredOutputError, None, "completed", False),
    ("resume_unknown", e.StaleSessionError, None, "error_during_execution", False),
    ("resume_not_uuid", e.StaleSessionError, None, "error_during_execution", False),
    ("resume_novalue", e.StaleSessionError, None, "error_during_execution", False),
    ("resume_session_at_bad", e.StaleSessionError, None, "error_during_execution", False),
    ("hooks_pretool_continue_false", e.UnfinishedTurnError, None, "hook_stopped", False),
    ("hooks_pretool_defer", e.UnfinishedTurnError, None, "tool_deferred", False),
    ("hooks_block_prompt", e.UnfinishedTurnError, None, "success", False),
    ("sigint_tool", e.InterruptedTurnError, None, "aborted_tools", False),
    ("sigint_stream", e.InterruptedTurnError, None, "aborted_streaming", False),
]
# No result line: what the CLI said stands in stderr.
ENDED = [
    ("permission_prompt_tool_missing", e.ProcessError, False),
    ("session_id_duplicate", e.SessionInUseError, False),
    ("max_turns_bad", e.ProcessError, False),
    ("unknown_flag", e.ProcessError, False),
    ("prompt_empty", e.ProcessError, False),
    ("sigterm_tool", e.ProcessError, True),
    ("sigkill_tool", e.ProcessError, True),
    ("output_text", e.ProcessError, True),
]
GOOD = [
    "text",
    "api_529_then_ok",
    "sse_cut_then_ok",
    "sse_cuttool",
    "stop_pause_turn",
    "api_empty_content",
    "final_message_empty",
    "schema_ok",
    "hooks_pretool_block",
    "hooks_stop_continue_false",
    "tool_denied",
    "mcp_failing",
    "background_second_turn_error",
    "task_error",
    "tool_fail",
    "slash_clear",
    "slash_compact",
    "slash_compact_new_session",
    "slash_context",
    "subagent_denied_tool",
    "ratelimit_headers_oauth",
    "resume_valid",
]
NOW = 1_796_000_000.0


def ended(subtype, text="", **fields):
    """A made-up terminal event."""
    return Event("error", subtype=subtype, text=text, is_error=True, is_terminal=True, **fields)


def failed(**fields):
    """The error of the recorded failure 429 with other fields; a value of ... takes a field out."""
    data = {**decoded(line("api_429", "result")), "api_error_status": None, **fields}
    return turn([encoded({key: value for key, value in data.items() if value is not ...})], exit_code=1).error


def succeeded(**fields):
    """The error, if any, of the recorded success with other fields."""
    facts = {key: fields.pop(key) for key in ("wants_schema", "blocked") if key in fields}
    data = {**decoded(line("text", "result")), **fields}
    return turn([encoded({key: value for key, value in data.items() if value is not ...})], exit_code=0, **facts).error


# --- recordings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "error", "status", "category", "retryable"), FAILED, ids=[row[0] for row in FAILED])
def test_a_recorded_failure(name, error, status, category, retryable):
    """The class, the status, the CLI's own word, and whether to try again."""
    got = turn(name, now=NOW).error
    assert type(got) is error
    assert (got.status, got.category, got.retryable) == (status, category, retryable)


@pytest.mark.parametrize("name", [row[0] for row in FAILED])
def test_the_clis_own_words(name):
    """The message holds what the CLI said, and all that is known stands in the fields."""
    got = turn(name, now=NOW, cli_path="/opt/claude", cli_version="2.1.332")
    error, said = got.error, "; ".join(got.end.errors) or decoded(got.end.raw.encode()).get("result", "")
    said = said.removesuffix(". Run --model to pick a different model.").partition("[ede_diagnostic]")[0]
    said = said.partition("\n\nOriginal prompt:")[0].rstrip()
    if name != "schema_never":  # a success: what it said is not why
        assert said in str(error)
    assert error.event is got.end
    assert error.session_id == ("" if "valid session ID or session title" in said else got.end.session_id)
    assert error.exit_code == captures.ENDS[name]["exit_code"]
    assert (error.stderr, error.cli_path, error.cli_version) == (
        captures.ENDS[name]["stderr"],
        "/opt/claude",
        "2.1.332",
    )


@pytest.mark.parametrize(("name", "error", "retryable"), ENDED, ids=[row[0] for row in ENDED])
def test_a_recorded_end_without_a_result(name, error, retryable):
    """The exit code and the CLI's words on stderr are in the message; chance may be retried, a refusal not."""
    got = turn(name)
    known = captures.ENDS[name]
    assert type(got.error) is error
    assert (got.error.retryable, got.error.exit_code) == (retryable, known["exit_code"])
    for word in known["stderr"].split("\n"):
        assert word.strip() in str(got.error)
    assert f"exit code {known['exit_code']}" in str(got.error)


@pytest.mark.parametrize("name", GOOD)
def test_a_recorded_answer(name):
    """Denied tools, failed tools, lost servers, retries and empty answers are no failures of the turn."""
    assert turn(name).error is None


def test_every_recording_has_its_verdict():
    """Each recording whose process failed is a failure, but for one whose first turn succeeded."""
    for name, known in captures.ENDS.items():
        error = turn(name).error
        if known["exit_code"] and name != "background_second_turn_error":
            assert error is not None, name


def test_every_row_is_reached():
    """No row of the three tables is dead: each decides at least one of the cases of this module."""
    reached = set()
    tables = {"_ENDED": _verdict._ENDED, "_FAILED": _verdict._FAILED, "_NO_ANSWER": _verdict._NO_ANSWER}
    cases = [(turn(name).end, Facts(**facts_of(name))) for name in captures.NAMES]
    cases += [(event, facts) for event, facts, _ in MADE_UP]
    for event, facts in cases:
        seen = _verdict._Turn(event, facts)
        table = "_ENDED" if event.type == "error" else "_FAILED" if event.is_error else "_NO_ANSWER"
        row = next((at for at, (test, _) in enumerate(tables[table]) if test(seen)), None)
        reached.add((table, row))
    for table, rows in tables.items():
        assert {at for name, at in reached if name == table and at is not None} == set(range(len(rows))), table


def facts_of(name):
    got = turn(name)
    return {
        "stderr": captures.ENDS[name]["stderr"],
        "blocked": got.reducer.blocked,
        "wants_schema": "--json-schema" in captures.ENDS[name]["argv"],
    }


# --- ends that nobody recorded ----------------------------------------------------------------------

MADE_UP = [
    (ended("cancelled"), Facts(), e.TurnCancelled),
    (ended("interrupted"), Facts(), e.InterruptedTurnError),
    (ended("timeout"), Facts(limit=5.0), e.TurnTimeout),
    (ended("idle_timeout"), Facts(limit=5.0), e.TurnTimeout),
    (ended("start_timeout"), Facts(limit=5.0), e.TurnTimeout),
    (ended("overflow"), Facts(), e.ProcessError),
    (ended("process"), Facts(stderr="Error: Session ID x is already in use.\n"), e.SessionInUseError),
    (ended("process"), Facts(stderr="Error: Claude Code could not save all of the output (ENOSPC)"), e.ProcessError),
    (ended("anything"), Facts(), e.ProcessError),
    (Event("result", subtype="error_of_the_future", is_error=True), Facts(), e.ResultError),
    (Event("result", is_error=True, error="invalid_request"), Facts(), e.InvalidRequestError),
    (Event("result", is_error=True, api_error_status=409), Facts(), e.ServerError),
    (Event("result", stop_reason="tool_use"), Facts(), e.UnfinishedTurnError),
    (Event("result", subtype="error_during_execution", errors=("?",), is_error=True), Facts(), e.ResultError),
    (
        Event("result", subtype="error_during_execution", is_error=True),
        Facts(stderr="No conversation found with session ID: x"),
        e.StaleSessionError,
    ),
]


@pytest.mark.parametrize(("event", "facts", "error"), MADE_UP)
def test_a_made_up_end(event, facts, error):
    """Our own limits, and what the CLI was never seen to print."""
    assert type(verdict(event, facts)) is error


@pytest.mark.parametrize(
    ("subtype", "kind", "retryable"),
    [("timeout", "total", False), ("idle_timeout", "idle", True), ("start_timeout", "start", True)],
)
def test_which_limit_it_was(subtype, kind, retryable):
    """A turn that needs longer will not do better; one that hung may."""
    error = verdict(ended(subtype, "it took too long"), Facts(limit=7.5))
    assert (error.kind, error.limit, error.retryable) == (kind, 7.5, retryable)
    assert isinstance(error, TimeoutError)
    assert "it took too long" in str(error)


@pytest.mark.parametrize(
    ("exit_code", "retryable"), [(0, True), (1, False), (2, False), (127, False), (128, True), (143, True)]
)
def test_which_ends_are_chance(exit_code, retryable):
    """A signal, or an end without a word, may be retried; a clean refusal would only be repeated."""
    assert verdict(ended("process", exit_code=exit_code), Facts()).retryable is retryable
    assert verdict(ended("process", exit_code=-9), Facts()).retryable
    assert verdict(ended("process", exit_code=None), Facts()).retryable
    assert not verdict(ended("overflow", exit_code=exit_code), Facts()).retryable


def test_odd_lines_are_told():
    """What the CLI printed instead of a result is in the message."""
    got = turn([b"Update needed!", b"\xff\xfe"])
    assert type(got.error) is e.ProcessError
    assert got.error.odd_lines == ("Update needed!", "\ufffd\ufffd")
    assert "not understood: Update needed!" in str(got.error)


def test_other_output_formats_are_told():
    """An array of all lines, or plain text, is no result, and the message shows it."""
    assert "not understood: [{" in str(turn("output_json_verbose").error)
    assert "not understood: hello there" in str(turn("output_text").error)


# The assistant line's word, the status and the reason each decide alone, if nothing stronger is there.
WORDS = [
    ({"error": "authentication_failed"}, e.AuthenticationError),
    ({"error": "oauth_org_not_allowed"}, e.AuthenticationError),
    ({"error": "account_on_hold"}, e.AuthenticationError),
    ({"error": "verification_required"}, e.AuthenticationError),
    ({"error": "cloud_credential_error"}, e.AuthenticationError),
    ({"error": "billing_error"}, e.BillingError),
    ({"error": "rate_limit"}, e.RateLimitError),
    ({"error": "model_not_found"}, e.ModelNotFoundError),
    ({"error": "max_output_tokens"}, e.OutputLimitError),
    ({"error": "invalid_request"}, e.InvalidRequestError),
    ({"error": "server_error"}, e.APIConnectionError),
    ({"error": "overloaded"}, e.APIConnectionError),
    ({"error": "unknown"}, e.APIConnectionError),
    ({"error": "a_new_word"}, e.ResultError),
    ({"api_error": "usage_limit_reached"}, e.RateLimitError),
    ({"api_error": "connection_failed"}, e.APIConnectionError),
    ({"api_error": "max_output_tokens"}, e.OutputLimitError),
    ({"api_error_status": 401}, e.AuthenticationError),
    ({"api_error_status": 402}, e.BillingError),
    ({"api_error_status": 403}, e.AuthenticationError),
    ({"api_error_status": 404}, e.ModelNotFoundError),
    ({"api_error_status": 400}, e.InvalidRequestError),
    ({"api_error_status": 408}, e.ServerError),
    ({"api_error_status": 409}, e.ServerError),
    ({"api_error_status": 413}, e.InvalidRequestError),
    ({"api_error_status": 422}, e.InvalidRequestError),
    ({"api_error_status": 429}, e.RateLimitError),
    ({"api_error_status": 500}, e.ServerError),
    ({"api_error_status": 504}, e.ServerError),
    ({"api_error_status": 599}, e.ServerError),
    ({"api_error_status": 600}, e.ResultError),
    ({"api_error_status": 200}, e.ResultError),
    ({"api_error_status": 529, "error": "overloaded"}, e.ServerError),
    ({"api_error_status": 400, "error": "billing_error"}, e.BillingError),
    ({"api_error_status": 400, "error": "invalid_request"}, e.InvalidRequestError),
    ({"terminal_reason": "prompt_too_long", "api_error_status": 400}, e.PromptTooLongError),
    ({"terminal_reason": "blocking_limit", "error": "invalid_request"}, e.PromptTooLongError),
    ({"stop_reason": "refusal", "error": "invalid_request"}, e.RefusalError),
    ({"terminal_reason": "model_error", "error": "server_error"}, e.APIConnectionError),
    ({"terminal_reason": "turn_setup_failed"}, e.ResultError),
    ({"terminal_reason": ...}, e.ResultError),
]


@pytest.mark.parametrize(("fields", "error"), WORDS, ids=[str(fields) for fields, _ in WORDS])
def test_words_statuses_and_reasons(fields, error):
    """Each of them is understood by itself; words stand before statuses, and reasons before words."""
    word = fields.get("error")
    data = {**decoded(line("api_429", "result")), "api_error_status": None, **fields}
    data = {key: value for key, value in data.items() if value is not ... and key != "error"}
    told = decoded(line("api_429", "assistant"))
    told["error"] = word
    got = turn([*([encoded(told)] if word else []), encoded(data)])
    assert type(got.error) is error
    assert isinstance(got.error, e.ResultError)
    assert got.error.message.startswith(data["result"].rstrip(".")) or error is e.InterruptedTurnError


def test_a_failure_without_a_word():
    """There is a sentence even where the CLI says nothing at all."""
    assert str(failed(result="", terminal_reason=...)).startswith("the CLI reported success without a word of why")
    assert str(verdict(Event("result", is_error=True), Facts())).startswith("the CLI reported an error without")


def test_diagnostics_are_no_words():
    """What the CLI notes for those who make it is in `errors`, and not in the message."""
    for name in ("sigint_tool", "sigint_stream"):
        error = turn([line(name, "result")]).error
        assert error.message == "the turn was interrupted"
        assert error.event.errors[0].startswith("[ede_diagnostic]")


def test_a_model_is_chosen_by_its_option():
    """The CLI's advice is for its own prompt."""
    error = turn([line("bad_model", "result")]).error
    assert error.message.endswith("or you may not have access to it; choose another with model=")


def test_a_title_that_names_no_session():
    """The CLI makes an id up, which would be looked for in vain; what was asked for is in its words."""
    error = turn([line("resume_not_uuid", "result")]).error
    assert error.event.session_id
    assert error.event.session_id not in str(error)
    assert '"some-title"' in error.message


# --- rate limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resets_in", "usage_limit", "retry_after", "retryable"),
    [
        (None, False, None, True),
        (None, True, None, False),
        (60, False, 60, True),
        (60, True, 60, True),
        (900, True, 900, True),
        (901, True, 901, False),
        (5 * 3600, False, 18000, False),
        (5 * 3600, True, 18000, False),
        (-60, True, 0, True),
    ],
)
def test_when_to_come_back(resets_in, usage_limit, retry_after, retryable):
    """A limit of minutes is worth a retry, one of hours is not; of a usage limit nobody knows better."""
    event = Event("result", is_error=True, error="usage_limit_reached" if usage_limit else "rate_limit")
    resets_at = None if resets_in is None else int(NOW) + resets_in
    error = verdict(event, Facts(resets_at=resets_at, now=NOW))
    assert type(error) is e.RateLimitError
    assert (error.resets_at, error.retry_after, error.retryable) == (resets_at, retry_after, retryable)


def test_when_to_come_back_from_a_recording():
    """The epoch second that the CLI's `rate_limit_event` names."""
    got = turn("ratelimit_429_oauth", now=NOW)
    (limit,) = [event for event in got.events if event.type == "rate_limit"]
    assert got.error.resets_at == limit.resets_at
    assert got.error.retry_after == limit.resets_at - NOW
    assert not got.error.retryable


@pytest.mark.parametrize("resets_at", [10**400, -5, 0, float("nan"), float("inf"), 10**15])
def test_nonsense_times(resets_at):
    """A time that is none is not passed on, and does not raise."""
    error = verdict(Event("result", is_error=True, error="rate_limit"), Facts(resets_at=resets_at, now=NOW))
    assert (error.resets_at, error.retry_after, error.retryable) == (None, None, True)


# --- successes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("exit_code", [0, 1, 143, -9, None])
def test_a_good_result_outweighs_the_exit_code(exit_code):
    """What happened to the process behind the answer does not take the answer away."""
    got = turn([line("text", "result")], exit_code=exit_code, stderr="Error: it crashed on its way out")
    assert got.error is None
    assert got.end.exit_code == exit_code


@pytest.mark.parametrize("subtype", ["error_max_turns", "error_during_execution", "error_new"])
def test_a_subtype_that_says_error(subtype):
    """`is_error` alone is not believed."""
    assert isinstance(succeeded(subtype=subtype, is_error=False), e.ResultError)


def test_success_is_not_enough():
    """`subtype: success` alone is not believed either: API failures come with it."""
    assert isinstance(failed(subtype="success", is_error=True), e.ResultError)


@pytest.mark.parametrize("output", [{"a": 1}, [], {}, 0, False, "text", ""])
def test_structured_output_that_came(output):
    """Any JSON value will do, also one that is false to Python."""
    assert succeeded(wants_schema=True, structured_output=output) is None


@pytest.mark.parametrize("output", [..., None])
def test_structured_output_that_did_not_come(output):
    """A success without it is a failure, if it was asked for."""
    error = succeeded(wants_schema=True, structured_output=output)
    assert type(error) is e.StructuredOutputError
    assert error.event.result == "hello there"
    assert succeeded(structured_output=output) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"terminal_reason": "hook_stopped", "result": ""},
        {"terminal_reason": "tool_deferred", "stop_reason": "tool_deferred", "result": ""},
        {"terminal_reason": "tool_deferred_unavailable"},
        {"blocked": True, "terminal_reason": ...},
        {"stop_reason": "tool_use", "result": ""},
    ],
)
def test_a_success_that_is_no_answer(fields):
    """A hook stopped it, a tool was deferred, the prompt was blocked, or it ended with a tool call."""
    error = succeeded(**fields)
    assert type(error) is e.UnfinishedTurnError
    assert not error.retryable


def test_a_tool_call_is_no_answer_though_text_came_before():
    """The text before the call, which fills an empty result, does not make it an answer."""
    got = turn(
        [
            line("hooks_slow", "assistant/text"),
            encoded({**decoded(line("text", "result")), "stop_reason": "tool_use", "result": ""}),
        ]
    )
    assert got.end.result == "I run it."
    assert type(got.error) is e.UnfinishedTurnError


@pytest.mark.parametrize("reason", ["completed", "stop_hook_prevented", ..., "a_new_reason"])
def test_reasons_of_answers(reason):
    """A Stop hook that only forbids to go on, local commands without a reason, and new reasons are answers."""
    assert succeeded(terminal_reason=reason) is None


# --- sentences --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resume_unknown", "config_dir"),
        ("session_id_duplicate", "resume="),
        ("api_401", "ANTHROPIC_API_KEY"),
        ("max_turns", "max_turns"),
        ("max_budget", "max_budget_usd"),
        ("schema_never", "json_schema"),
        ("hooks_block_prompt", "a hook blocked the prompt"),
        ("hooks_pretool_defer", "tool_deferred"),
        ("sigint_tool", "the turn was interrupted"),
    ],
)
def test_what_helps(name, words):
    """Where the CLI's words do not help, ours say what to do."""
    assert words in turn(name).error.message


def test_a_blocked_prompt_is_not_in_the_message():
    """The CLI repeats it behind the hook's words; a message is for a log."""
    error = turn("hooks_block_prompt").error
    assert "no prompts today" in error.message
    assert "Original prompt" not in error.message
