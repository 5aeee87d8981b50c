"""The real CLI: sessions that go on, fork, are missing or in use."""

from __future__ import annotations

import uuid

import pytest
from real_cli import RealCLI

from claude_cli_client import ProcessError, SessionInUseError, StaleSessionError, is_stale_session

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(60)]


def test_resume_remembers(cli: RealCLI):
    """A resumed session keeps its id, and the model sees what was said before."""
    first = cli.ask("my name is Ada [[text: hello Ada]]")
    second = cli.ask("what is my name? [[text: Ada]]", resume=first.session_id)
    assert second.session_id == first.session_id
    assert "my name is Ada" in cli.api.last().user
    assert "hello Ada" in str(cli.api.last().body["messages"])


def test_cost_is_the_turns_own_and_the_sessions_adds_up(cli: RealCLI):
    """`cost_usd` counts this run, `session_cost_usd` the whole session."""
    first = cli.ask("one")
    second = cli.ask("two", resume=first.session_id)
    assert second.cost_usd == pytest.approx(first.cost_usd)
    assert second.session_cost_usd == pytest.approx(2 * first.session_cost_usd)


def test_resume_from_another_folder(cli: RealCLI):
    """A session can be resumed by its id from elsewhere."""
    first = cli.ask("one")
    other = cli.root / "other"
    other.mkdir()
    assert cli.ask("two", resume=first.session_id, cwd=other).session_id == first.session_id


def test_fork_gets_a_new_id_and_the_history(cli: RealCLI):
    """A fork has an id of its own, the parent's history, and leaves the parent alone."""
    first = cli.ask("remember 17")
    fork = cli.ask("and?", resume=first.session_id, fork_session=True)
    assert fork.session_id != first.session_id
    assert "remember 17" in cli.api.last().user
    cli.ask("parent again", resume=first.session_id)
    assert "and?" not in cli.api.last().user


def test_continue_takes_the_last_session_of_the_folder(cli: RealCLI):
    """`continue_conversation` goes on with the latest session of the working directory."""
    first = cli.ask("first")
    assert cli.ask("second", continue_conversation=True).session_id == first.session_id


def test_resume_at_a_message_forgets_what_came_after(cli: RealCLI):
    """`resume_session_at` cuts the history behind that message."""
    events = cli.events("one [[text: answer one]]")
    (text,) = [event for event in events if event.type == "text"]
    session = events[-1].session_id
    cli.ask("two", resume=session)
    cli.ask("three", resume=session, resume_session_at=text.uuid)
    assert "one" in cli.api.last().user
    assert "two" not in cli.api.last().user


def test_a_given_session_id_is_used(cli: RealCLI):
    """`session_id` names a new session."""
    wanted = str(uuid.uuid4())
    assert cli.ask("hi", session_id=wanted).session_id == wanted
    assert [path.stem for path in cli.transcripts()] == [wanted]


def test_a_session_id_in_use(cli: RealCLI):
    """A new session with the id of an old one is a SessionInUseError that names the remedy."""
    taken = cli.ask("hi").session_id
    with pytest.raises(SessionInUseError, match="resume") as caught:
        cli.ask("hi", session_id=taken)
    assert isinstance(caught.value, ProcessError)
    assert not caught.value.retryable


def test_a_session_that_does_not_exist(cli: RealCLI):
    """Resuming an unknown id is a StaleSessionError, and `is_stale_session` knows its event."""
    missing = str(uuid.uuid4())
    run = cli.client().run("hi", resume=missing)
    last = list(run)[-1]
    assert is_stale_session(last)
    with pytest.raises(StaleSessionError, match=missing):
        run.result()
    assert cli.api.requests() == []


def test_other_results_are_not_stale(cli: RealCLI):
    """`is_stale_session` says no to an answer and to another failure."""
    assert not is_stale_session(cli.ask("hi"))
    assert not is_stale_session(cli.events("hi [[status: 500 api_error]]", max_retries=0)[-1])


def test_a_session_that_is_not_kept(cli: RealCLI):
    """`persist_session=False` leaves no transcript, so it cannot be resumed."""
    session = cli.ask("hi", persist_session=False).session_id
    assert cli.transcripts() == []
    with pytest.raises(StaleSessionError):
        cli.ask("again", resume=session)


def test_resume_by_title(cli: RealCLI):
    """A session with a name is found by it."""
    session = cli.ask("hi", name="the big one").session_id
    assert cli.ask("again", resume="the big one").session_id == session


def test_a_cancelled_turn_can_be_resumed(cli: RealCLI):
    """After a cancel the session exists, and its history is there."""
    first = cli.ask("remember 17")
    run = cli.client().run("[[hang]]", resume=first.session_id)
    cli.api.requests(2)
    run.cancel()
    run.close()
    assert cli.ask("go on", resume=first.session_id).session_id == first.session_id
    assert "remember 17" in cli.api.last().user
