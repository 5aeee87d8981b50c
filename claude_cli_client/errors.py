"""The exceptions: one tree, every error carries fields and not only prose.

    ClaudeError                     .message .hints .retryable
    ├── CLINotFoundError            .searched
    ├── CLIVersionError             .found .required
    ├── StartError                  the process could not be started; the OSError is __cause__
    ├── SlotTimeoutError            (also TimeoutError)
    ├── ClientClosedError
    ├── SessionClosedError
    ├── ConcurrencyError
    ├── ControlError                .subtype .code
    ├── SessionNotFoundError        .wanted (also LookupError)
    ├── StoreError                  .key
    └── TurnError                   .event .session_id .exit_code .stderr .cli_path .cli_version
        ├── TurnCancelled
        ├── TurnTimeout             (also TimeoutError) .kind: total, idle, start
        ├── ProcessError            the CLI ended without a result
        │   └── SessionInUseError
        └── ResultError             the CLI said that it failed: .status .category
            ├── AuthenticationError  BillingError  InvalidRequestError  ModelNotFoundError
            ├── PromptTooLongError
            ├── RateLimitError      .resets_at .retry_after
            ├── ServerError  APIConnectionError
            ├── MaxTurnsError  BudgetExceededError  OutputLimitError  RefusalError
            ├── StructuredOutputError  StaleSessionError  InterruptedTurnError
            └── UnfinishedTurnError a success that is no answer

This module is vocabulary: pure data, no process, no clock. Which outcome becomes which error is
decided in one table, in `_verdict.py`.

Every exception pickles with its fields (Celery and multiprocessing send them): the constructor
takes one message and keyword fields, so that the default `Exception.__reduce__` is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .events import Event

__all__ = [
    "APIConnectionError",
    "AuthenticationError",
    "BillingError",
    "BudgetExceededError",
    "CLINotFoundError",
    "CLIVersionError",
    "ClaudeError",
    "ClientClosedError",
    "ConcurrencyError",
    "ControlError",
    "InterruptedTurnError",
    "InvalidRequestError",
    "MaxTurnsError",
    "ModelNotFoundError",
    "OutputLimitError",
    "ProcessError",
    "PromptTooLongError",
    "RateLimitError",
    "RefusalError",
    "ResultError",
    "ServerError",
    "SessionClosedError",
    "SessionInUseError",
    "SessionNotFoundError",
    "SlotTimeoutError",
    "StaleSessionError",
    "StartError",
    "StoreError",
    "StructuredOutputError",
    "TurnCancelled",
    "TurnError",
    "TurnTimeout",
    "UnfinishedTurnError",
]

# How much of stderr an error message shows; the whole tail stands in the field `stderr`.
_SHOWN_STDERR = 2000


class ClaudeError(Exception):
    """Base of all errors of this library.

    `retryable` says whether the same call may succeed later. A retried turn repeats its side
    effects: tools that ran have run. `hints` are further lines of `str()`: commands, what was started.
    """

    retryable: bool = False
    hints: tuple[str, ...] = ()

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message)
        for name, value in fields.items():
            setattr(self, name, value)

    @property
    def message(self) -> str:
        """What happened and what helps, in one line, without the details that `str()` adds."""
        return " ".join(line.strip() for line in self._said.splitlines() if line.strip())

    @property
    def _said(self) -> str:
        return str(self.args[0]) if self.args else ""

    def _details(self) -> list[str]:
        return []

    def __str__(self) -> str:
        return "\n".join([self._said, *(f"  {hint}" for hint in self.hints), *self._details()])


class CLINotFoundError(ClaudeError):
    """No Claude Code CLI was found. `searched` lists the places, in order."""

    searched: tuple[str, ...] = ()

    def _details(self) -> list[str]:
        return [f"  searched: {place}" for place in self.searched]


class CLIVersionError(ClaudeError):
    """The program found is not a Claude Code CLI that this library can drive."""

    found: str = ""
    required: str = ""


class StartError(ClaudeError):
    """The CLI could not be started. The `OSError`, where there was one, is `__cause__`."""

    errno: int | None = None
    cli_path: str = ""


class SlotTimeoutError(ClaudeError, TimeoutError):
    """No slot came free within `slot_timeout` seconds."""

    retryable = True
    slot_timeout: float = 0.0
    max_concurrent: int = 0


class ClientClosedError(ClaudeError):
    """The client was closed before or while the call waited for a slot."""


class SessionClosedError(ClaudeError):
    """The session's CLI has ended, or the session was closed."""


class ControlError(ClaudeError):
    """The CLI refused a control request. `subtype` is what was asked, `code` the CLI's own word."""

    subtype: str = ""
    code: str = ""


class SessionNotFoundError(ClaudeError, LookupError):
    """There is no such session, or no such message in it. `wanted` is what was asked for."""

    wanted: str = ""


class StoreError(ClaudeError):
    """A session store failed or did not answer in time; what it raised is `__cause__`.

    `key` is the transcript in question, as a tuple; empty where it was about a list.
    """

    retryable = True
    key: tuple[str | None, ...] = ()


class ConcurrencyError(ClaudeError):
    """The object is used from a place where it cannot work, for example after a fork."""


class TurnError(ClaudeError):
    """A turn did not bring an answer. Everything known about it is in the fields.

    `event` is the terminal event, so that the result is always reachable from the error; None only
    of an error that somebody else made, in a test for example.
    """

    event: Event | None = None
    session_id: str = ""
    exit_code: int | None = None
    stderr: str = ""
    cli_path: str = ""
    cli_version: str = ""

    def _details(self) -> list[str]:
        known = [
            ("session", self.session_id or None),
            ("exit code", self.exit_code),
            ("CLI", " ".join(filter(None, (self.cli_path, self.cli_version))) or None),
        ]
        facts = ", ".join(f"{name} {value}" for name, value in known if value is not None)
        tail = self.stderr.strip()[-_SHOWN_STDERR:]
        shown = [f"  {facts}"] if facts else []
        if tail and tail not in self._said:
            shown += ["  stderr:", *(f"    {line}" for line in tail.splitlines())]
        return shown


class TurnCancelled(TurnError):
    """The turn was cancelled, by `cancel()`, `close()`, the client's end or the interpreter's."""


class TurnTimeout(TurnError, TimeoutError):
    """One of our limits ended the turn. `kind` is "total", "idle" or "start", `limit` the seconds."""

    kind: str = ""
    limit: float = 0.0


class ProcessError(TurnError):
    """The CLI ended without a result. `odd_lines` are the last lines that were not JSON objects."""

    odd_lines: tuple[str, ...] = ()

    def _details(self) -> list[str]:
        odd = [f"  not understood: {line}" for line in self.odd_lines]
        return [*super()._details(), *odd]


class SessionInUseError(ProcessError):
    """`session_id` names a session that exists. To continue it, use `resume=`."""


class ResultError(TurnError):
    """The CLI reported that the turn failed.

    `status` is the HTTP status of the API, where there was one; `category` the CLI's own word
    (`rate_limit`, `authentication_failed`, `max_turns`, ...).
    """

    status: int | None = None
    category: str = ""


class AuthenticationError(ResultError):
    """The credentials are missing or refused (401, 403). Never retry this in a loop."""


class BillingError(ResultError):
    """The account cannot pay (402, credit balance too low)."""


class InvalidRequestError(ResultError):
    """The API refused the request as malformed (400, 413)."""


class ModelNotFoundError(ResultError):
    """The model does not exist or is not open to this account (404)."""


class PromptTooLongError(ResultError):
    """The prompt does not fit the model's context."""


class RateLimitError(ResultError):
    """The API's rate limit or the subscription's usage limit (429).

    `resets_at` is an epoch second, `retry_after` the seconds from the moment the error was made,
    both None where the CLI did not say. A limit that resets only in hours is not `retryable`.
    """

    retryable = True
    resets_at: float | None = None
    retry_after: float | None = None


class ServerError(ResultError):
    """The API failed or is overloaded (5xx, 529)."""

    retryable = True


class APIConnectionError(ResultError):
    """The API could not be reached, or the connection broke every time."""

    retryable = True


class MaxTurnsError(ResultError):
    """`max_turns` was reached."""


class BudgetExceededError(ResultError):
    """`max_budget_usd` was reached."""


class OutputLimitError(ResultError):
    """The model's output limit cut the answer, several times in a row."""


class RefusalError(ResultError):
    """The model refused to answer."""


class StructuredOutputError(ResultError):
    """`json_schema` was given and no matching output came."""


class StaleSessionError(ResultError):
    """The session to resume does not exist (any more, or for this folder's configuration)."""


class InterruptedTurnError(ResultError):
    """The CLI ended the turn because it was interrupted."""


class UnfinishedTurnError(ResultError):
    """A success that is no answer: a hook stopped it or blocked the prompt, or a tool was deferred."""
