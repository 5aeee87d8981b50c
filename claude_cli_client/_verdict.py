"""From a terminal event to its exception: one table, one row per way a turn can fail.

Pure. `verdict` is called by `Run.result` and `ask`; iterating never raises for a failed turn.

API failures come as `subtype: success, is_error: true`, so no single field decides: a row states
what must hold of subtype, terminal reason, stop reason, the API's status, the words of result and
assistant line, stderr and exit code; the first row that fits wins. Words stand before statuses
where the same status means different things (400 with a low credit balance is about money), and
reasons before words. A good result outweighs a bad exit code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from . import errors as e
from .events import Event

# A limit that resets later than this many seconds from now is not worth a retry loop.
RETRY_HORIZON: Final = 900.0
_LAST_SECOND: Final = 1e11


class Facts:
    """What is known about the turn beside its terminal event. Filled by name."""

    stderr: str = ""
    cli_path: str = ""
    cli_version: str = ""
    odd_lines: tuple[str, ...] = ()
    wants_schema: bool = False
    resets_at: float | None = None
    blocked: bool = False  # a hook refused the prompt
    missing: str = ""  # where a session was looked for, and not found, before the CLI was asked
    heard: bool = False  # it has answered, or asked, as only the CLI does
    limit: float = 0.0  # of ours, when one ended the turn
    now: float = 0.0  # epoch seconds, for `retry_after`

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)


_PROMPT: Final = "\n\nOriginal prompt:"  # which the CLI repeats where a hook blocked it; not for a log
_DIAGNOSTIC: Final = "[ede_diagnostic]"  # the CLI's note to those who make it; it stays in `errors`


class _Turn:
    """The terminal event as the rows see it."""

    def __init__(self, event: Event, facts: Facts) -> None:
        self.event = event
        self.facts = facts
        self.subtype = event.subtype
        self.reason = event.terminal_reason
        self.stop = event.stop_reason
        self.status = event.api_error_status
        # The error words of the assistant line and of the result.
        self.words = frozenset({event.error, _api_word(event)} - {""}) if event.is_error else frozenset()
        # The CLI's own sentence, or ours; behind that of a start there may stand the command.
        words = [word for word in event.errors if word.strip() and not word.startswith(_DIAGNOSTIC)]
        self.said = "; ".join(words) or ("" if event.errors else event.result.strip())
        self.started = ""
        if event.type == "error":
            self.said, _, self.started = event.text.partition("\n  started: ")


_Test = Callable[[_Turn], bool]
_BROKEN_CONNECTION: Final = frozenset({"connection_failed", "server_error", "unknown", "overloaded"})
_NO_LOGIN: Final = frozenset(
    {
        "authentication_failed",
        "oauth_org_not_allowed",
        "account_on_hold",
        "verification_required",
        "cloud_credential_error",
    }
)


def _subtype(word: str) -> _Test:
    return lambda turn: turn.subtype == word


def _reason(*reasons: str) -> _Test:
    return lambda turn: turn.reason in reasons


def _word(*words: str) -> _Test:
    return lambda turn: not turn.words.isdisjoint(words)


def _status(low: int, high: int | None = None) -> _Test:
    return lambda turn: turn.status is not None and low <= turn.status <= (high or low)


def _either(*tests: _Test) -> _Test:
    return lambda turn: any(test(turn) for test in tests)


def _both(*tests: _Test) -> _Test:
    return lambda turn: all(test(turn) for test in tests)


def _says(*parts: str) -> _Test:
    return lambda turn: any(part in turn.said or part in turn.facts.stderr for part in parts)


_NO_SUCH_TITLE: Final = "--resume requires a valid session"
_IN_USE: Final = re.compile(r"Session ID \S+ is already in use")

# Made-up terminal events: there was no result line.
_ENDED: Final[tuple[tuple[_Test, type[e.TurnError]], ...]] = (
    (_subtype("cancelled"), e.TurnCancelled),
    (_subtype("interrupted"), e.InterruptedTurnError),  # before the CLI had begun with it
    (_subtype("timeout"), e.TurnTimeout),
    (_subtype("idle_timeout"), e.TurnTimeout),
    (_subtype("start_timeout"), e.TurnTimeout),
    (_both(_subtype("process"), lambda turn: bool(_IN_USE.search(turn.facts.stderr))), e.SessionInUseError),
    (lambda turn: True, e.ProcessError),  # process, overflow
)

# A result line that says it failed.
_FAILED: Final[tuple[tuple[_Test, type[e.TurnError]], ...]] = (
    (_subtype("error_max_turns"), e.MaxTurnsError),
    (_subtype("error_max_budget_usd"), e.BudgetExceededError),
    (_subtype("error_max_structured_output_retries"), e.StructuredOutputError),
    (_reason("aborted_tools", "aborted_streaming"), e.InterruptedTurnError),
    (
        _both(
            _subtype("error_during_execution"),
            _says("No conversation found", _NO_SUCH_TITLE, "No message found"),
        ),
        e.StaleSessionError,
    ),
    (_reason("prompt_too_long", "blocking_limit"), e.PromptTooLongError),
    (lambda turn: turn.stop == "refusal", e.RefusalError),
    (_word("max_output_tokens"), e.OutputLimitError),
    (_either(_word("billing_error"), _status(402)), e.BillingError),
    (_either(_word("usage_limit_reached", "rate_limit"), _status(429)), e.RateLimitError),
    (_either(_word(*_NO_LOGIN), _status(401), _status(403)), e.AuthenticationError),
    (_either(_word("model_not_found"), _status(404)), e.ModelNotFoundError),
    (_status(500, 599), e.ServerError),
    (_either(_status(408), _status(409)), e.ServerError),  # the CLI retries these two as well
    (_status(400, 499), e.InvalidRequestError),
    # No status: the network, a proxy's page, or a first byte that never came.
    (_both(_reason("api_error", "model_error"), _word(*_BROKEN_CONNECTION)), e.APIConnectionError),
    (_word("invalid_request"), e.InvalidRequestError),
    (lambda turn: True, e.ResultError),
)

# A result line that says success. `stop_hook_prevented` is not here: the answer is complete, the
# hook only forbade to go on.
_NO_ANSWER: Final[tuple[tuple[_Test, type[e.TurnError]], ...]] = (
    (_reason("hook_stopped", "tool_deferred", "tool_deferred_unavailable"), e.UnfinishedTurnError),
    (lambda turn: turn.facts.blocked, e.UnfinishedTurnError),
    # The CLI's own result: the event's may be what was said before the tool was called.
    (
        lambda turn: turn.stop == "tool_use" and not (turn.event.data or {"result": turn.event.result}).get("result"),
        e.UnfinishedTurnError,
    ),
    (
        lambda turn: turn.facts.wants_schema and turn.event.structured_output is None,
        e.StructuredOutputError,
    ),
)

_KINDS: Final = {"timeout": "total", "idle_timeout": "idle", "start_timeout": "start"}


def verdict(event: Event, facts: Facts) -> e.TurnError | None:
    """The exception for this terminal event, or None where it is an answer."""
    turn = _Turn(event, facts)
    if event.type == "error":
        table = _ENDED
    elif event.is_error or event.subtype.startswith("error"):
        table = _FAILED
    else:
        table = _NO_ANSWER
    for test, error in table:
        if test(turn):
            return error(_sentence(error, turn), **_error_fields(error, turn))
    return None


def _api_word(event: Event) -> str:
    word = event.data.get("api_error") if event.type == "result" else ""
    return word if isinstance(word, str) else ""


# Sentences of our own, where the CLI has none or none that helps.
_SENTENCES: Final[dict[type[e.TurnError], str]] = {
    e.MaxTurnsError: "the turn limit (max_turns) was reached",
    e.BudgetExceededError: "the budget (max_budget_usd) was reached",
    e.UnfinishedTurnError: "the turn ended without an answer",
    e.InterruptedTurnError: "the turn was interrupted",
}
_REMEDIES: Final[dict[type[e.TurnError], str]] = {
    e.SessionInUseError: "to continue this session, use resume= instead of session_id=",
    e.StaleSessionError: "sessions belong to a configuration folder (config_dir, HOME); "
    "start anew without resume=, or resume where it was made",
    e.ModelNotFoundError: "choose another with model=",
    e.AuthenticationError: "check ANTHROPIC_API_KEY, CLAUDE_CODE_OAUTH_TOKEN or `claude /login`",
}


def _sentence(error: type[e.TurnError], turn: _Turn) -> str:
    if error is e.StructuredOutputError:
        said = turn.said if turn.event.is_error else ""
        sentence = "json_schema was given, but no structured output came" + (f": {said}" if said else "")
    elif error is e.UnfinishedTurnError:
        why = "a hook blocked the prompt" if turn.facts.blocked else turn.reason or turn.stop
        said = turn.said.partition(_PROMPT)[0].rstrip()
        sentence = f"{_SENTENCES[error]} ({why})" + (f": {said}" if said else "")
    elif error in _SENTENCES:
        sentence = _SENTENCES[error] + (f": {turn.said}" if turn.event.errors and turn.said else "")
    elif error is e.ModelNotFoundError:
        sentence = turn.said.removesuffix(" Run --model to pick a different model.")  # there is no shell to run it in
    else:
        said = turn.said or "; ".join(turn.event.errors)
        sentence = said or f"the CLI reported {turn.subtype or 'an error'} without a word of why"
    remedy = (turn.facts.missing if error is e.StaleSessionError else "") or _REMEDIES.get(error)
    return f"{sentence.rstrip('. ')}; {remedy}" if remedy else sentence


def _hints(error: type[e.TurnError], turn: _Turn) -> tuple[str, ...]:
    if turn.started:
        return (f"started: {turn.started}",)
    if error is e.ProcessError and turn.subtype == "process" and not _is_the_cli(turn):
        return ("it did not begin a turn; is it Claude Code? python -m claude_cli_client doctor",)
    return ()


# How it refuses what it was started with, after which it exits with 1: "Error: ...", "--agent 'x' not found. ...".
_REFUSAL: Final = re.compile(r"^(?:[Ee]rror: |--[a-z])", re.MULTILINE)


def _is_the_cli(turn: _Turn) -> bool:
    """Whether a program that gave no result has shown that it is Claude Code."""
    if turn.event.session_id or turn.facts.heard:
        return True
    return turn.event.exit_code == 1 and not turn.facts.odd_lines and bool(_REFUSAL.search(turn.facts.stderr))


def _error_fields(error: type[e.TurnError], turn: _Turn) -> dict[str, Any]:
    event, facts = turn.event, turn.facts
    fields: dict[str, Any] = {
        "hints": _hints(error, turn),
        "event": event,
        # Where a title names none the CLI tells a new id, which nobody has asked for.
        "session_id": event.session_id if _NO_SUCH_TITLE not in turn.said else "",
        "exit_code": event.exit_code,
        "stderr": facts.stderr,
        "cli_path": facts.cli_path,
        "cli_version": facts.cli_version,
    }
    if issubclass(error, e.ResultError):
        category = next(iter(sorted(turn.words)), "") or turn.reason or turn.subtype
        fields.update(status=turn.status, category=event.error or category)
    if error is e.RateLimitError:
        fields.update(_when(turn))
    if error is e.TurnTimeout:
        kind = _KINDS[turn.subtype]
        # A turn that was silent or never started may do better; one that needs longer will not.
        fields.update(kind=kind, limit=facts.limit, retryable=kind != "total")
    if issubclass(error, e.ProcessError):
        # Killed by a signal (negative, or 128 and more), or gone without a word: chance. A clean
        # refusal, as of a bad flag, is not.
        fields.update(
            odd_lines=facts.odd_lines,
            retryable=turn.subtype == "process" and (event.exit_code is None or not 0 < event.exit_code < 128),
        )
    return fields


def _when(turn: _Turn) -> dict[str, Any]:
    """When a rate limit is over, and whether it is worth waiting for."""
    resets_at = turn.facts.resets_at
    if resets_at is not None and not 0 < resets_at < _LAST_SECOND:  # nonsense, NaN too
        resets_at = None
    wait = None if resets_at is None else max(0.0, resets_at - turn.facts.now)
    usage_limit = "usage_limit_reached" in turn.words
    soon = wait <= RETRY_HORIZON if wait is not None else not usage_limit
    return {"resets_at": resets_at, "retry_after": wait, "retryable": soon}
