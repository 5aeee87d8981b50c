"""The exceptions: the tree, their fields, their text; and that they can be sent away."""

import copy
import inspect
import pickle

import pytest
from captures import turn

import claude_cli_client
from claude_cli_client import errors
from claude_cli_client.errors import ClaudeError, ProcessError, ResultError, TurnError, TurnTimeout
from claude_cli_client.events import Event

# name, bases, retryable, fields of its own with their defaults
TREE = {
    "ClaudeError": (["Exception"], False, {}),
    "CLINotFoundError": (["ClaudeError"], False, {"searched": ()}),
    "CLIVersionError": (["ClaudeError"], False, {"found": "", "required": ""}),
    "StartError": (["ClaudeError"], False, {"errno": None, "cli_path": ""}),
    "SlotTimeoutError": (["ClaudeError", "TimeoutError"], True, {"slot_timeout": 0.0, "max_concurrent": 0}),
    "ClientClosedError": (["ClaudeError"], False, {}),
    "SessionClosedError": (["ClaudeError"], False, {}),
    "ControlError": (["ClaudeError"], False, {"subtype": "", "code": ""}),
    "SessionNotFoundError": (["ClaudeError", "LookupError"], False, {"wanted": ""}),
    "StoreError": (["ClaudeError"], True, {"key": ()}),
    "ConcurrencyError": (["ClaudeError"], False, {}),
    "TurnError": (
        ["ClaudeError"],
        False,
        {"event": None, "session_id": "", "exit_code": None, "stderr": "", "cli_path": "", "cli_version": ""},
    ),
    "TurnCancelled": (["TurnError"], False, {}),
    "TurnTimeout": (["TurnError", "TimeoutError"], False, {"kind": "", "limit": 0.0}),
    "ProcessError": (["TurnError"], False, {"odd_lines": ()}),
    "SessionInUseError": (["ProcessError"], False, {}),
    "ResultError": (["TurnError"], False, {"status": None, "category": ""}),
    "AuthenticationError": (["ResultError"], False, {}),
    "BillingError": (["ResultError"], False, {}),
    "InvalidRequestError": (["ResultError"], False, {}),
    "ModelNotFoundError": (["ResultError"], False, {}),
    "PromptTooLongError": (["ResultError"], False, {}),
    "RateLimitError": (["ResultError"], True, {"resets_at": None, "retry_after": None}),
    "ServerError": (["ResultError"], True, {}),
    "APIConnectionError": (["ResultError"], True, {}),
    "MaxTurnsError": (["ResultError"], False, {}),
    "BudgetExceededError": (["ResultError"], False, {}),
    "OutputLimitError": (["ResultError"], False, {}),
    "RefusalError": (["ResultError"], False, {}),
    "StructuredOutputError": (["ResultError"], False, {}),
    "StaleSessionError": (["ResultError"], False, {}),
    "InterruptedTurnError": (["ResultError"], False, {}),
    "UnfinishedTurnError": (["ResultError"], False, {}),
}


def test_the_tree_is_complete():
    """Every exception of the module is in the table above, and exported, here and by the package."""
    found = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}
    assert found == set(TREE) == set(errors.__all__)
    assert found <= set(claude_cli_client.__all__)


@pytest.mark.parametrize("name", TREE)
def test_the_tree(name):
    """The bases of each, in order."""
    assert [base.__name__ for base in getattr(errors, name).__bases__] == TREE[name][0]


@pytest.mark.parametrize("name", TREE)
def test_fields_and_their_defaults(name):
    """Each has its fields even when raised without them, and says whether to try again."""
    _, retryable, own = TREE[name]
    error = getattr(errors, name)("why")
    assert error.retryable is retryable
    assert {field: getattr(error, field) for field in own} == own


@pytest.mark.parametrize("name", ["SlotTimeoutError", "TurnTimeout"])
def test_timeouts_are_timeouts(name):
    """Code that catches the builtin `TimeoutError` catches ours."""
    with pytest.raises(TimeoutError):
        raise getattr(errors, name)("too late")


@pytest.mark.parametrize("name", TREE)
def test_each_has_a_docstring(name):
    """It says when it is raised."""
    assert getattr(errors, name).__doc__


def full(name):
    """An exception with every field set."""
    kind = getattr(errors, name)
    fields = {"retryable": True}
    for base in kind.__mro__:
        for field in TREE.get(base.__name__, ([], False, {}))[2]:
            fields[field] = {"event": turn("api_429").end, "odd_lines": ("a", "b"), "searched": ("/a", "/b")}.get(
                field, f"a {field}"
            )
    return kind("why it failed", **fields), fields


@pytest.mark.parametrize("name", TREE)
@pytest.mark.parametrize(
    "sent", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy], ids=["pickle", "copy", "deep"]
)
def test_they_can_be_sent_away(name, sent):
    """Celery and multiprocessing pickle exceptions: the class, the message and every field arrive."""
    error, fields = full(name)
    other = sent(error)
    assert type(other) is type(error)
    assert (other.message, other.args, str(other)) == (error.message, error.args, str(error))
    assert {field: getattr(other, field) for field in fields} == fields


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_verdict_can_be_sent_away(protocol):
    """What `result()` raises arrives with its terminal event, by every protocol."""
    error = turn("api_429").error
    other = pickle.loads(pickle.dumps(error, protocol))
    assert other.event == error.event
    assert other.event.data == error.event.data
    assert vars(other) == vars(error)


def test_the_message_alone():
    """`message` is the sentence without the details that `str` adds."""
    assert ClaudeError("why").message == "why"
    assert str(ClaudeError("why")) == "why"
    assert (ClaudeError().message, str(ClaudeError())) == ("", "")
    error = TurnError("why", session_id="s1")
    assert error.message == "why"
    assert str(error) == "why\n  session s1"


def test_the_message_is_one_line():
    """Whatever the CLI said, and without what only whoever mends it can use."""
    error = TurnError("why\n  and\r\n\nhow", session_id="s1", hints=("do this",))
    assert error.message == "why and how"
    assert str(error) == "why\n  and\r\n\nhow\n  do this\n  session s1"


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, ["why"]),
        ({"session_id": "s1"}, ["why", "  session s1"]),
        ({"exit_code": 0}, ["why", "  exit code 0"]),
        ({"exit_code": -9, "session_id": "s"}, ["why", "  session s, exit code -9"]),
        ({"cli_path": "/bin/claude"}, ["why", "  CLI /bin/claude"]),
        ({"cli_path": "/bin/claude", "cli_version": "2.1.332"}, ["why", "  CLI /bin/claude 2.1.332"]),
        ({"stderr": "one\ntwo\n"}, ["why", "  stderr:", "    one", "    two"]),
        ({"stderr": " \n "}, ["why"]),
        ({"stderr": "why"}, ["why"]),
    ],
)
def test_details_of_a_turn(fields, shown):
    """What is known, and nothing that is not; stderr only where the sentence does not have it."""
    assert str(TurnError("why", **fields)).split("\n") == shown


def test_a_long_stderr_is_cut_in_the_text():
    """The end of it is shown; the field has all."""
    error = TurnError("why", stderr="x" * 50_000 + "the end")
    assert len(str(error)) < 2200
    assert str(error).endswith("the end")
    assert len(error.stderr) == 50_007


def test_details_of_a_missing_cli():
    """Where it was looked for."""
    shown = str(errors.CLINotFoundError("no CLI", searched=("/a/claude", "PATH")))
    assert shown == "no CLI\n  searched: /a/claude\n  searched: PATH"


def test_details_of_odd_lines():
    """What was not understood, below the rest."""
    shown = str(ProcessError("why", exit_code=3, odd_lines=("Update!", "x")))
    assert shown == "why\n  exit code 3\n  not understood: Update!\n  not understood: x"


def test_the_event_is_reachable():
    """The result of a failed turn can be had from the error."""
    event = Event("result", result="so far")
    assert ResultError("why", event=event).event is event


def test_the_text_has_no_event():
    """The message does not spill the event, which may hold an answer."""
    assert "so far" not in str(ResultError("why", event=Event("result", result="so far")))


def test_retryable_of_one_error():
    """It is set for one exception and leaves the class alone."""
    assert TurnTimeout("why", retryable=True).retryable
    assert not TurnTimeout.retryable


def test_multiple_inheritance_keeps_the_message():
    """`TimeoutError` is an OSError, whose own text would be errno and strerror."""
    assert str(TurnTimeout("too late", kind="idle")) == "too late"
    assert str(errors.SlotTimeoutError("no slot")) == "no slot"
