"""The real CLI: every failure is one typed error that says why and whether a retry can help."""

from __future__ import annotations

import os
import pickle
import signal
import time

import pytest
from real_cli import NOWHERE, RealCLI, bash

from claude_cli_client import (
    APIConnectionError,
    AuthenticationError,
    BillingError,
    BudgetExceededError,
    InterruptedTurnError,
    InvalidRequestError,
    MaxTurnsError,
    ModelNotFoundError,
    OutputLimitError,
    ProcessError,
    PromptTooLongError,
    RateLimitError,
    RefusalError,
    ResultError,
    ServerError,
    StartError,
    UnfinishedTurnError,
)

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(60)]

# directives, error, status, retryable
API_FAILURES = {
    "400": ("[[status: 400 invalid_request_error]]", InvalidRequestError, 400, False),
    "400 credit": (
        "[[status: 400 invalid_request_error]][[message: Your credit balance is too low]]",
        BillingError,
        400,
        False,
    ),
    "400 too long": (
        "[[status: 400 invalid_request_error]][[message: prompt is too long: 300 tokens > 200 maximum]]",
        PromptTooLongError,
        400,
        False,
    ),
    "401": ("[[status: 401 authentication_error]]", AuthenticationError, 401, False),
    "402": ("[[status: 402 billing_error]]", BillingError, 402, False),
    "403": ("[[status: 403 permission_error]]", AuthenticationError, 403, False),
    "404": ("[[status: 404 not_found_error]]", ModelNotFoundError, 404, False),
    "413": ("[[status: 413 request_too_large]]", InvalidRequestError, 413, False),
    "429": ("[[status: 429 rate_limit_error]]", RateLimitError, 429, True),
    "500": ("[[status: 500 api_error]]", ServerError, 500, True),
    "503": ("[[status: 503 api_error]]", ServerError, 503, True),
    "529": ("[[status: 529 overloaded_error]]", ServerError, 529, True),
    "cut stream": ("[[text: a]][[cut: delta always]]", APIConnectionError, None, True),
    "cut connection": ("[[cut: headers reset always]]", APIConnectionError, None, True),
    "cut after each block": ("[[text: a]][[cut: block]][[loop]]", APIConnectionError, None, True),
}


@pytest.mark.parametrize("failure", API_FAILURES.values(), ids=API_FAILURES.keys())
def test_an_api_failure_is_its_typed_error(cli: RealCLI, failure):
    """Status, retryable, the CLI's words, session and exit code stand in it; iterating never raises."""
    directives, error, status, retryable = failure
    run = cli.client().run(f"hi {directives}", max_retries=0)
    last = list(run)[-1]
    with pytest.raises(error) as caught:
        run.result()
    failed = caught.value
    assert type(failed) is error
    assert (failed.status, failed.retryable, failed.exit_code) == (status, retryable, 1)
    assert failed.event == last
    assert last.is_error
    assert last.is_terminal
    assert failed.session_id == run.session_id != ""
    assert last.result.removesuffix(". Run --model to pick a different model.") in str(failed)
    assert pickle.loads(pickle.dumps(failed)).status == status


def test_an_api_error_is_no_text(cli: RealCLI):
    """The line by which the CLI reports a failure is `api_error`, so that nobody prints it as the answer."""
    run = cli.client().run("hi [[status: 500 api_error]]", max_retries=0)
    events = list(run)
    assert [event.type for event in events] == ["system", "api_error", "result"]
    assert events[1].error == "server_error"
    assert events[1].api_error_status == 500


def test_a_refused_connection(cli: RealCLI):
    """Nobody listens at the API's address: APIConnectionError, which may be retried."""
    with pytest.raises(APIConnectionError) as caught:
        cli.client(env={"ANTHROPIC_BASE_URL": NOWHERE}).ask("hi", max_retries=0)
    assert caught.value.status is None
    assert caught.value.retryable


def test_no_credentials(cli: RealCLI):
    """Without a key and a login: AuthenticationError with the CLI's sentence."""
    with pytest.raises(AuthenticationError, match="Not logged in") as caught:
        cli.client(env={"ANTHROPIC_API_KEY": None}).ask("hi")
    assert not caught.value.retryable


def test_a_page_instead_of_the_api(cli: RealCLI):
    """A proxy that answers 200 with a page is a failure, not an answer."""
    with pytest.raises(ResultError, match="malformed"):
        cli.ask("hi [[body: <html>login</html>]]", max_retries=0)


def _subscription(cli: RealCLI, reset: int) -> str:
    return (
        "hi [[status: 429 rate_limit_error]][[header: anthropic-ratelimit-unified-status rejected]]"
        f"[[header: anthropic-ratelimit-unified-reset {reset}]]"
        "[[header: anthropic-ratelimit-unified-representative-claim five_hour]]"
        f"[[header: anthropic-ratelimit-unified-5h-reset {reset}]]"
        "[[header: anthropic-ratelimit-unified-5h-utilization 1.0]]"
    )


@pytest.mark.parametrize("hours", [0, 5])
def test_a_usage_limit_says_when_it_resets(cli: RealCLI, hours: int):
    """With a subscription a RateLimitError carries the reset; one that is hours away is not retryable."""
    reset = int(time.time()) + 60 + hours * 3600
    client = cli.client(env={"ANTHROPIC_API_KEY": None, "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-stand-in"})
    run = client.run(_subscription(cli, reset), max_retries=0)
    with pytest.raises(RateLimitError) as caught:
        run.result()
    assert caught.value.resets_at == reset
    assert caught.value.retryable is (hours == 0)
    assert caught.value.retry_after == pytest.approx(reset - time.time(), abs=30)


@pytest.mark.parametrize(
    ("status", "kind", "word"),
    [
        (500, "api_error", "server_error"),
        (429, "rate_limit_error", "rate_limit"),
        (529, "overloaded_error", "overloaded"),
    ],
)
def test_a_retry_is_an_event(cli: RealCLI, status: int, kind: str, word: str):
    """A failure, then success: a `retry` event tells status and attempt, and the answer comes."""
    events = cli.events(f"hi [[status: {status} {kind}]][[times: 1]][[text: fine]]", max_retries=2)
    (retry,) = [event for event in events if event.type == "retry"]
    assert (retry.api_error_status, retry.error) == (status, word)
    assert (retry.retry_attempt, retry.retry_max) == (1, 2)
    assert retry.retry_delay_ms > 0
    assert events[-1].result == "fine"
    assert not events[-1].is_error


def test_retry_after_is_respected(cli: RealCLI):
    """The API's `retry-after` shows in the delay of the `retry` event."""
    prompt = "hi [[status: 429 rate_limit_error]][[header: retry-after 2]][[times: 1]][[text: fine]]"
    (retry,) = [event for event in cli.events(prompt, max_retries=1) if event.type == "retry"]
    assert retry.retry_delay_ms >= 2000


def test_a_probe_says_yes_and_leaves_nothing(cli: RealCLI):
    """`probe` is one tiny turn without tools that cannot be resumed."""
    found = cli.client().probe()
    assert found
    assert found.cost_usd > 0
    assert found.model
    assert cli.transcripts() == []
    assert cli.api.last().tools == []


def test_a_probe_calls_nothing_of_the_clients(cli: RealCLI):
    """Hooks are for the client's own turns."""
    called: list[object] = []
    assert cli.client(hooks={"UserPromptSubmit": called.append}).probe()
    assert not called


def test_a_probe_says_why_not(cli: RealCLI):
    """`probe` does not raise for a turn that fails: it says why, and until when."""
    found = cli.client().probe(env={"ANTHROPIC_API_KEY": None})
    assert not found
    assert isinstance(found.error, AuthenticationError)
    reset = int(time.time()) + 3600
    cli.api.script("default", _subscription(cli, reset))
    env = {"ANTHROPIC_API_KEY": None, "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-stand-in"}
    found = cli.client(env=env).probe()
    assert not found
    assert found.resets_at == reset


def test_totals_count_failures_too(cli: RealCLI):
    """The client adds up its turns, their cost, and failures by class."""
    client = cli.client(max_retries=0)
    cost = client.ask("hi").cost_usd
    client.ask("hi")
    with pytest.raises(ServerError):
        client.ask("hi [[status: 500 api_error]]")
    assert client.totals.turns == 3
    assert client.totals.cost_usd == pytest.approx(2 * cost)
    assert dict(client.totals.failures) == {"ServerError": 1}


def test_max_turns(cli: RealCLI):
    """The limit on turns is a MaxTurnsError, and says so in the CLI's words."""
    with pytest.raises(MaxTurnsError) as caught:
        cli.ask(f"go {bash('echo again')}[[loop]]", allowed_tools=["Bash"], max_turns=2)
    assert caught.value.event.subtype == "error_max_turns"
    assert not caught.value.retryable
    assert len(cli.api.requests()) == 2


def test_budget(cli: RealCLI):
    """The limit on money is a BudgetExceededError; what was spent stands in its event."""
    with pytest.raises(BudgetExceededError) as caught:
        cli.ask("hi [[text: a]]", max_budget_usd=0.0001)
    assert caught.value.event.session_cost_usd > 0.0001


def test_refusal(cli: RealCLI):
    """A model that refuses, twice: RefusalError."""
    with pytest.raises(RefusalError):
        cli.ask("hi [[stop: refusal]][[loop]]", max_retries=0)


def test_output_limit(cli: RealCLI):
    """An answer that hits the output limit again and again: OutputLimitError."""
    with pytest.raises(OutputLimitError):
        cli.ask("hi [[text: on and on]][[stop: max_tokens]][[loop]]")


def test_a_prompt_too_long_for_any_model(cli: RealCLI):
    """3 MB pass our limit, but the CLI does not send them: PromptTooLongError, no request."""
    with pytest.raises(PromptTooLongError):
        cli.ask("word " * 600_000)
    assert cli.api.requests() == []


def test_a_prompt_that_a_hook_blocks(cli: RealCLI):
    """The CLI calls it a success; nothing was answered: UnfinishedTurnError with the hook's words."""
    hook = {"type": "command", "command": "echo not today >&2; exit 2"}
    settings = {"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}
    with pytest.raises(UnfinishedTurnError, match="not today"):
        cli.ask("hi", settings=settings)
    assert cli.api.requests() == []


def test_an_interrupt_from_outside(cli: RealCLI):
    """SIGINT to the CLI in the middle of a tool: InterruptedTurnError, and the tool is gone."""
    gate = cli.gate()
    run = cli.client().run(f"go {bash(f'echo x > {gate.path}; sleep 600')}", allowed_tools=["Bash"])
    gate.wait()
    os.kill(run.pid, signal.SIGINT)
    with pytest.raises(InterruptedTurnError):
        run.result()


def test_a_killed_cli(cli: RealCLI):
    """SIGKILL from outside, for example for want of memory: ProcessError that names the signal."""
    run = cli.client().run("hi [[hang]]")
    cli.api.requests(1)
    os.kill(run.pid, signal.SIGKILL)
    with pytest.raises(ProcessError) as caught:
        run.result()
    assert caught.value.exit_code == -signal.SIGKILL
    assert "SIGKILL" in str(caught.value)


def test_a_killed_cli_leaves_no_tool(cli: RealCLI):
    """SIGKILL from outside in the middle of a tool: the tool, in its own session, ends as well."""
    gate = cli.gate()
    run = cli.client().run(f"go {bash(f'echo x > {gate.path}; sleep 600')}", allowed_tools=["Bash"])
    gate.wait()
    os.kill(run.pid, signal.SIGKILL)
    with pytest.raises(ProcessError):
        run.result()
    run.close()  # the fixture looks for what is left


def test_a_flag_that_the_cli_does_not_know(cli: RealCLI):
    """The CLI's refusal, which is only on stderr, is a ProcessError that shows it."""
    with pytest.raises(ProcessError, match="unknown option '--no-such-flag'") as caught:
        cli.ask("hi", extra_args={"no-such-flag": None})
    assert caught.value.exit_code == 1
    assert "unknown option" in caught.value.stderr
    assert caught.value.event.subtype == "process"


def test_a_folder_that_is_gone(cli: RealCLI):
    """A working directory that does not exist is said at the call."""
    with pytest.raises((StartError, ValueError), match="nowhere"):
        cli.client(cwd=cli.root / "nowhere").run("hi")
