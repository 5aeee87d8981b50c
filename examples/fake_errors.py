"""A script for each error: what a fake CLI says and does, so that your program meets it. To copy into tests.

    python examples/fake_errors.py

Three errors need no script. `CLINotFoundError` is `Client(cli_path="/nowhere/claude")`; `TurnCancelled` is
`run.cancel()` on a script that hangs; `SlotTimeoutError` is such a run on a client with `max_concurrent=1`,
and a second one with `slot_timeout=0.1`.
"""

from __future__ import annotations

import signal
from typing import Any

from claude_cli_client import ClaudeError, Client
from claude_cli_client.testing import (
    FakeCLI,
    api_failure,
    die_by,
    exit_with,
    hang,
    ignore_stdin,
    init,
    result,
    text,
    to_stderr,
)


def failed(**said: Any) -> list[Any]:
    """A turn whose result says that it failed."""
    return [init(), result(said.pop("answer", ""), is_error=True, **said)]


GONE = result(subtype="error_during_execution", is_error=True, errors=["No conversation found"])

# The error, the script, and what goes to the client or the call.
SCRIPTS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("RateLimitError", [init(), api_failure(429)], {}),
    ("AuthenticationError", [init(), api_failure(401)], {}),
    ("BillingError", [init(), api_failure(402)], {}),
    ("ModelNotFoundError", [init(), api_failure(404)], {}),
    ("InvalidRequestError", [init(), api_failure(400)], {}),
    ("ServerError", [init(), api_failure(529)], {}),
    ("APIConnectionError", [init(), api_failure("connection")], {}),
    ("MaxTurnsError", failed(subtype="error_max_turns", errors=["Reached maximum number of turns (5)"]), {}),
    ("BudgetExceededError", failed(subtype="error_max_budget_usd"), {}),
    ("PromptTooLongError", failed(answer="Prompt is too long", terminal_reason="prompt_too_long"), {}),
    ("OutputLimitError", failed(answer="It was cut", api_error="max_output_tokens"), {}),
    ("RefusalError", failed(answer="No.", stop_reason="refusal"), {}),
    ("StructuredOutputError", [init(), text("No data."), result("No data.")], {"json_schema": {"type": "object"}}),
    ("StaleSessionError", [GONE], {"resume": "gone"}),
    ("InterruptedTurnError", failed(subtype="error_during_execution", terminal_reason="aborted_tools"), {}),
    ("UnfinishedTurnError", [init(), result(terminal_reason="hook_stopped")], {}),
    ("TurnTimeout", [init(), hang()], {"timeout": 0.5}),  # .kind is "total"
    ("TurnTimeout", [init(), hang()], {"idle_timeout": 0.5}),  # "idle"
    ("TurnTimeout", [ignore_stdin(), hang()], {"start_timeout": 0.5}),  # "start"
    ("ProcessError", [to_stderr("error: unknown option"), exit_with(1)], {}),  # a refusal
    ("ProcessError", [init(), die_by(signal.SIGKILL)], {}),  # retryable
    ("SessionInUseError", [to_stderr("Error: Session ID 1 is already in use."), exit_with(1)], {}),
]


def main() -> None:
    for _, script, options in SCRIPTS:
        with FakeCLI(script) as fake:
            try:
                Client(cli_path=fake).ask("Hello", **options)
            except ClaudeError as error:
                print(f"{type(error).__name__:22} retryable: {error.retryable!s:6} {error.message}")


if __name__ == "__main__":
    main()
