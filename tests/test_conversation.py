"""Conversation: the id carried along, dead ids left behind, one turn at a time, and a small dict of it all."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import sys
import time

import pytest
from hosts import Host
from mirror_stores import Recorder, entry
from waiting import Background, until

from claude_cli_client import (
    Client,
    CLINotFoundError,
    ConcurrencyError,
    Conversation,
    MemoryStore,
    ProcessError,
    SessionKey,
    StaleSessionError,
)
from claude_cli_client import conversation as _conversation
from claude_cli_client._project_key import project_key
from claude_cli_client.testing import (
    SESSION_ID,
    SimulatedCLI,
    die_by,
    exit_with,
    hang,
    ignore_term,
    init,
    on_term,
    ready,
    result,
    text,
    tool_use,
    wait_for,
)

OTHER = "00000000-0000-4000-8000-000000000002"
GONE = [
    result(
        "", subtype="error_during_execution", is_error=True, session_id=OTHER,
        errors=[f"No conversation found with session ID: {OTHER}"],
    )
]  # fmt: skip
ANSWER = [init(), text("yes"), result("yes")]


def chat(fake, *given, **options):
    return Client(cli_path=fake.path).conversation(*given, **options)


def resumed(fake):
    """Which session each turn went on with."""
    return [call.option("--resume") for call in fake.calls]


# --- the id


def test_the_second_turn_goes_on_with_the_session_of_the_first(play):
    """By `ask` and by `run`."""
    fake = play(*ANSWER)
    conversation = chat(fake)
    assert conversation.session_id == ""
    assert conversation.ask("one").result == "yes"
    assert conversation.session_id == SESSION_ID
    assert conversation.run("two").result().result == "yes"
    assert resumed(fake) == [None, SESSION_ID]


def test_making_one_starts_nothing(play):
    """No turn, no process."""
    fake = play(*ANSWER)
    chat(fake, OTHER)
    assert fake.calls == []


def test_the_id_is_told_while_the_first_turn_runs(play):
    """As soon as the CLI has said it: a host that dies should know it."""
    fake = play(init(), ready("here"), wait_for("end"), *ANSWER[1:])
    conversation = chat(fake)
    run = conversation.run("one")
    next(run)
    assert conversation.session_id == SESSION_ID
    assert conversation.to_dict()["session_id"] == SESSION_ID
    fake.release("end")
    run.result()


def test_a_session_that_changes_its_id(play):
    """`/clear` gives a new one, and that is the one to go on with."""
    clear = [init(), init(session_id=OTHER), text("x"), result("x", session_id=OTHER)]
    fake = play(scripts=[ANSWER, clear, ANSWER])
    conversation = chat(fake)
    for prompt in ("one", "/clear", "three"):
        conversation.ask(prompt)
    assert resumed(fake) == [None, SESSION_ID, OTHER]


@pytest.mark.parametrize(
    "failure",
    [
        [exit_with(1)],
        [init(), die_by(9)],
        [init(), text("no"), die_by(9)],
        [init(), exit_with(1)],
        GONE,
    ],
    ids=["no start", "killed", "killed with its first message", "broken", "stale"],
)
def test_a_failed_first_turn_leaves_no_dead_id(play, failure):
    """Where nothing says that there is a transcript: the next turn begins anew."""
    fake = play(scripts=[failure, ANSWER])
    conversation = chat(fake)
    with pytest.raises(Exception, match=r".") as caught:
        conversation.ask("one")
    assert isinstance(caught.value, (ProcessError, StaleSessionError))
    assert conversation.session_id == ""
    conversation.ask("two")
    assert resumed(fake) == [None, None]


@pytest.mark.parametrize(
    "failure",
    [
        [init(), text("no"), exit_with(1)],
        [init(), tool_use("Bash", {"command": "ls"}, message_id="m1"), text("so", message_id="m2"), die_by(9)],
        [init(), result("no", is_error=True, api_error_status=500)],
    ],
    ids=["text", "a second message", "result"],
)
def test_a_failed_first_turn_that_made_a_session(play, failure):
    """There is a transcript where the model has spoken or the CLI has said a result: it goes on with it."""
    fake = play(scripts=[failure, ANSWER])
    conversation = chat(fake)
    list(conversation.run("one"))
    assert conversation.session_id == SESSION_ID
    conversation.ask("two")
    assert resumed(fake) == [None, SESSION_ID]


@pytest.mark.parametrize(("obeys", "kept"), [(True, SESSION_ID), (False, None)])
def test_a_cancelled_first_turn(play, graces, obeys, kept):
    """A CLI that obeys a TERM has written its transcript; one that had to be killed may have none."""
    graces(term=60 if obeys else 0.1)
    steps = [on_term(exit_with(143)) if obeys else on_term(hang()), init(), ready("here"), hang()]
    fake = play(scripts=[steps, ANSWER])
    conversation = chat(fake)
    run = conversation.run("one")
    fake.wait("here")
    next(run)
    run.cancel()
    list(run)
    conversation.ask("two")
    assert resumed(fake) == [None, kept]


def test_a_failed_later_turn_keeps_the_id(play):
    """The session is there whatever becomes of a turn."""
    fake = play(scripts=[ANSWER, [exit_with(1)], ANSWER])
    conversation = chat(fake)
    conversation.ask("one")
    with pytest.raises(ProcessError):
        conversation.ask("two")
    conversation.ask("three")
    assert resumed(fake) == [None, SESSION_ID, SESSION_ID]


def test_a_turn_that_did_not_start(play, tmp_path):
    """Nothing has happened: the next one may."""
    conversation = Client(cli_path=tmp_path / "claude").conversation(OTHER)
    with pytest.raises(CLINotFoundError):
        conversation.ask("one")
    assert conversation.session_id == OTHER
    with pytest.raises(CLINotFoundError):
        conversation.ask("two")


def test_a_turn_that_nobody_reads(play):
    """Its session counts all the same."""
    fake = play(*ANSWER)
    conversation = chat(fake)
    run = conversation.run("one")
    until(lambda: run.done)
    conversation.ask("two")
    assert resumed(fake) == [None, SESSION_ID]


# --- options


def test_options(play):
    """Those of the conversation are for every turn, those of a turn for it alone, the client's below both."""
    fake = play(*ANSWER)
    conversation = Client(cli_path=fake.path, model="opus").conversation(max_turns=3, timeout=60)
    conversation.ask("one", max_turns=5, idle_timeout=5)
    conversation.ask("two")
    given = [(call.option("--model"), call.option("--max-turns")) for call in fake.calls]
    assert given == [("opus", "5"), ("opus", "3")]


def test_a_fork_is_made_once(play):
    """The turns behind the first go on with the copy."""
    forked = [init(session_id=SESSION_ID), text("x"), result("x")]
    fake = play(*forked)
    conversation = chat(fake, OTHER, fork_session=True, resume_session_at="00000000-0000-4000-8000-00000000000a")
    conversation.ask("one")
    conversation.ask("two")
    assert resumed(fake) == [OTHER, SESSION_ID]
    assert ["--fork-session" in call.argv for call in fake.calls] == [True, False]
    assert [call.option("--resume-session-at") is None for call in fake.calls] == [False, True]


def test_a_fork_that_failed_is_made_again(play):
    """The first turn did not get as far as a copy."""
    fake = play(scripts=[[exit_with(1)], ANSWER])
    conversation = chat(fake, OTHER, fork_session=True)
    with pytest.raises(ProcessError):
        conversation.ask("one")
    conversation.ask("two")
    assert ["--fork-session" in call.argv for call in fake.calls] == [True, True]


def test_the_latest_session(play):
    """`continue_conversation` is for the first turn; from then on it has an id."""
    fake = play(*ANSWER)
    conversation = chat(fake, continue_conversation=True)
    conversation.ask("one")
    conversation.ask("two")
    assert resumed(fake) == [None, SESSION_ID]
    assert ["--continue" in call.argv for call in fake.calls] == [True, False]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"modell": "x"}, TypeError),
        ({"max_turns": 0}, ValueError),
        ({"fork_session": True}, ValueError),
        ({"persist_session": False}, ValueError),
    ],
)
def test_wrong_options(options, error):
    """Told when the conversation is made."""
    with pytest.raises(error):
        Client().conversation(**options)


def test_a_client_that_keeps_no_sessions():
    """Has no conversation, unless that says otherwise."""
    client = Client(persist_session=False)
    with pytest.raises(ValueError, match="no session"):
        client.conversation()
    client.conversation(persist_session=None)


def test_a_turn_does_not_change_the_session(play):
    """It takes no `resume`, and nothing is started."""
    fake = play(*ANSWER)
    conversation = chat(fake, OTHER)
    with pytest.raises(TypeError, match="takes no resume"):
        conversation.ask("one", resume=SESSION_ID)
    assert (conversation.session_id, fake.calls) == (OTHER, [])


def test_a_turn_that_would_not_be_kept(play):
    """The next one could not go on from it: refused before anything starts."""
    fake = play(*ANSWER)
    conversation = chat(fake, OTHER)
    with pytest.raises(ValueError, match="no session"):
        conversation.ask("one", persist_session=False)
    assert (conversation.session_id, fake.calls) == (OTHER, [])


def test_a_fork_in_the_middle(play):
    """One turn is asked for it, and the next ones go on with the copy."""
    fake = play(scripts=[[init(session_id=OTHER), result("x", session_id=OTHER)], ANSWER])
    conversation = chat(fake)
    conversation.ask("one")
    conversation.ask("two", fork_session=True)
    conversation.ask("three")
    assert resumed(fake) == [None, OTHER, SESSION_ID]
    assert ["--fork-session" in call.argv for call in fake.calls] == [False, True, False]


def test_the_session_is_known_before_a_later_turn_says_it(play):
    """A host that dies then must not lose it."""
    fake = play(scripts=[ANSWER, [ready("up"), wait_for("go"), *ANSWER]])
    conversation = chat(fake)
    conversation.ask("one")
    run = conversation.run("two")
    fake.wait("up")
    assert conversation.to_dict()["session_id"] == SESSION_ID
    fake.release("go")
    run.result()


def test_the_folder_of_the_client(play, tmp_path):
    """A conversation has it where it is given none."""
    assert Client(cwd=tmp_path).conversation().to_dict()["cwd"] == str(tmp_path)


def test_the_folder_is_remembered(play, tmp_path, monkeypatch):
    """All turns are in the one of the first, wherever the program goes."""
    fake = play(*ANSWER)
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    conversation = chat(fake)
    conversation.ask("one")
    monkeypatch.chdir(tmp_path)
    conversation.ask("two")
    assert {call.cwd for call in fake.calls} == {str(tmp_path / "a")}
    assert conversation.to_dict()["cwd"] == str(tmp_path / "a")


@contextlib.contextmanager
def nowhere(tmp_path):
    """In a working directory that has been removed."""
    gone, here = tmp_path / "gone", os.getcwd()
    gone.mkdir()
    os.chdir(gone)
    try:
        gone.rmdir()
        yield
    finally:
        os.chdir(here)


def test_a_working_directory_that_is_gone(play, tmp_path):
    """A deploy that replaced it: turns run as those of a client do, and what is known can be asked."""
    conversation = chat(play(*ANSWER))
    with nowhere(tmp_path):
        assert [conversation.ask(word).result for word in ("one", "two")] == ["yes", "yes"]
        assert conversation.to_dict() == {"session_id": SESSION_ID, "cwd": None}
        assert repr(conversation) == f"<Conversation session_id={SESSION_ID!r} cwd=''>"


def test_a_folder_below_a_working_directory_that_is_gone(play, tmp_path):
    """A relative one is not there: told as by a client, and what is known can be asked."""
    conversation = chat(play(*ANSWER), cwd="below")
    with nowhere(tmp_path):
        with pytest.raises(ValueError, match="cwd is relative, and the working directory is gone"):
            conversation.ask("one")
        assert conversation.to_dict() == {"session_id": None, "cwd": None}


def test_a_folder_below_the_home_directory(play, tmp_path, monkeypatch):
    """`~` is the home directory, as in a client's turn."""
    monkeypatch.setenv("HOME", str(tmp_path))
    conversation = chat(play(*ANSWER), cwd="~")
    conversation.ask("one")
    assert conversation.to_dict()["cwd"] == str(tmp_path)


def test_a_store(play, tmp_path):
    """The client's: each turn loads what the one before has stored."""
    fake = play(*ANSWER)
    store = Recorder()
    conversation = Client(cli_path=fake.path, store=store).conversation(cwd=tmp_path)
    conversation.ask("one")
    key = SessionKey(project_key(str(tmp_path.resolve())), SESSION_ID)
    store.put(key, entry(1))
    conversation.ask("two")
    assert store.asked == [key]
    assert "claude_cli_client-" in fake.calls[1].env["CLAUDE_CONFIG_DIR"]


# --- a session that is gone


def test_a_stale_session_is_reported(play):
    """Each time: nothing is begun anew in silence."""
    fake = play(*GONE)
    conversation = chat(fake, OTHER)
    for _ in range(2):
        with pytest.raises(StaleSessionError, match=OTHER):
            conversation.ask("one")
    assert resumed(fake) == [OTHER, OTHER]
    assert conversation.restarts == 0


@pytest.mark.parametrize("way", ["ask", "run"])
def test_a_stale_session_is_begun_anew_if_asked_for(play, way, caplog):
    """Once, and to be seen: it is counted and logged."""
    fake = play(scripts=[GONE, ANSWER])
    conversation = chat(fake, OTHER, restart_stale=True)
    turn = conversation.ask("one") if way == "ask" else conversation.run("one").result()
    assert turn.result == "yes"
    assert (conversation.restarts, conversation.session_id) == (1, SESSION_ID)
    assert [call.prompt for call in fake.calls] == ["one", "one"]
    assert resumed(fake) == [OTHER, None]
    assert "begun anew" in caplog.text
    assert OTHER in caplog.text


def test_a_title_is_not_logged(play, caplog):
    """It says what the conversation is about."""
    conversation = chat(play(scripts=[GONE, ANSWER]), "my secret plan", restart_stale=True)
    conversation.ask("one")
    assert "the session with the title to go on with does not exist" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("lists", [True, False])
def test_a_stale_session_that_a_store_may_have(play, tmp_path, lists):
    """A store that lists no sessions may have it in another project: then its history is not dropped."""
    fake = play(scripts=[GONE, ANSWER])
    store = Recorder()
    if not lists:
        store.list_sessions = None
    conversation = Client(cli_path=fake.path, store=store).conversation(OTHER, cwd=tmp_path, restart_stale=True)
    if lists:
        assert conversation.ask("one").result == "yes"
    else:
        with pytest.raises(StaleSessionError, match="give the cwd"):
            conversation.ask("one")
    assert conversation.restarts == int(lists)


def test_a_restart_does_not_repeat_itself(play):
    """A new session that is called stale is an error, and no loop."""
    fake = play(*GONE)
    conversation = chat(fake, OTHER, restart_stale=True)
    with pytest.raises(StaleSessionError):
        conversation.ask("one")
    assert resumed(fake) == [OTHER, None]


def test_what_is_not_stale_is_untouched(play):
    """With `restart_stale` every event of a healthy turn comes, the first one too; another failure is told."""
    fake = play(scripts=[ANSWER, ANSWER, [exit_with(1)]])
    conversation = chat(fake, OTHER, restart_stale=True)
    run = conversation.run("one")
    assert [event.type for event in run] == ["system", "text", "result"]
    assert [event.type for event in conversation.run("two")] == ["system", "text", "result"]
    with pytest.raises(ProcessError):
        conversation.ask("three")
    assert conversation.restarts == 0


@pytest.mark.parametrize("where", ["client", "conversation"])
def test_the_latest_session_that_is_gone(play, where):
    """Begun anew it goes on with no other one, which may be somebody else's."""
    fake = play(scripts=[ANSWER, GONE, ANSWER])
    latest = {"continue_conversation": True, "fork_session": True}
    client = Client(cli_path=fake.path, **(latest if where == "client" else {}))
    conversation = client.conversation(restart_stale=True, **(latest if where == "conversation" else {}))
    conversation.ask("one")
    conversation.ask("two")
    assert conversation.restarts == 1
    assert ["--continue" in call.argv for call in fake.calls] == [True, False, False]
    assert resumed(fake) == [None, SESSION_ID, None]


def test_a_session_that_is_gone_and_a_client_that_has_another(play):
    """Begun anew it does not go on with that one, now or later."""
    fake = play(scripts=[GONE, ANSWER, ANSWER])
    third = "00000000-0000-4000-8000-000000000003"
    conversation = Client(cli_path=fake.path, resume=third).conversation(OTHER, restart_stale=True)
    conversation.ask("one")
    conversation.ask("two")
    assert resumed(fake) == [OTHER, None, SESSION_ID]


def test_a_turn_of_a_copy_of_what_is_gone(play):
    """There is nothing to copy: the turn is the first of a new session."""
    fake = play(scripts=[GONE, ANSWER])
    conversation = chat(fake, OTHER, restart_stale=True)
    assert conversation.ask("one", fork_session=True).result == "yes"
    assert (conversation.restarts, "--fork-session" in fake.calls[1].argv) == (1, False)


def test_a_message_that_a_session_does_not_have(play):
    """The session exists: it is not begun anew because `resume_session_at` names nothing in it."""
    words = f"No message found with message.uuid of: {OTHER}"
    unknown = result("", subtype="error_during_execution", is_error=True, session_id=OTHER, errors=[words])
    fake = play(scripts=[[unknown], ANSWER])
    conversation = chat(fake, OTHER, restart_stale=True, resume_session_at=OTHER)
    with pytest.raises(StaleSessionError, match="No message found"):
        conversation.ask("one")
    assert (conversation.restarts, len(fake.calls)) == (0, 1)


def test_a_fork_of_a_session_that_is_gone(play):
    """Begun anew there is nothing to copy."""
    fake = play(scripts=[GONE, ANSWER])
    conversation = chat(fake, OTHER, restart_stale=True, fork_session=True)
    assert conversation.ask("one").result == "yes"
    assert "--fork-session" not in fake.calls[1].argv


def test_the_name_of_a_conversation(play):
    """Is that of the session which it begins: one that was renamed since keeps its new name."""
    fake = play(*ANSWER)
    conversation = chat(fake, name="New chat")
    conversation.ask("one")
    conversation.ask("two")
    chat(fake, conversation.to_dict(), name="New chat").ask("three")
    chat(fake, conversation.to_dict(), name="A copy", fork_session=True).ask("four")
    conversation.ask("five", name="Other")
    assert [call.option("--name") for call in fake.calls] == ["New chat", None, None, "A copy", "Other"]


# --- one turn at a time


def test_one_turn_at_a_time(play):
    """A second one is refused while the first is on, and welcome when it is over."""
    fake = play(init(), ready("here"), wait_for("end"), *ANSWER[1:])
    conversation = chat(fake)
    run = conversation.run("one")
    fake.wait("here")
    with pytest.raises(ConcurrencyError, match="one at a time"):
        conversation.run("two")
    fake.release("end")
    for event in run:
        if event.is_terminal:
            conversation.ask("two")  # from within the loop: the terminal event is the end
    assert len(fake.calls) == 2


def test_one_start_at_a_time(play):
    """While a turn waits for its slot, too."""
    fake = play(init(), wait_for("end"), *ANSWER[1:])
    client = Client(cli_path=fake.path, max_concurrent=1)
    other = client.run("x")
    conversation = client.conversation()
    waiting = Background(conversation.ask, "one")
    until(lambda: client._pool._line)
    with pytest.raises(ConcurrencyError, match="being started"):
        conversation.ask("two")
    fake.release("end")
    other.result()
    assert waiting.result().result == "yes"


def test_a_start_that_is_interrupted(play, graces, monkeypatch):
    """Ctrl-C while `restart_stale` waits for the first event: the next turn begins when that one has ended."""
    graces(term=0.2)
    fake = play(scripts=[[ignore_term(), ready("here"), hang()], ANSWER])
    conversation = chat(fake, OTHER, restart_stale=True)

    def ctrl_c(run):
        fake.wait("here")
        run.cancel()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_conversation, "_is_stale", ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            conversation.run("one")
    run = conversation.run("two")
    assert fake.calls[0].pid not in fake.alive()
    assert run.result().result == "yes"


# --- as a dict


def test_to_dict_and_back(play, tmp_path):
    """Two texts, for a cookie or a column; either way of making it goes on with the session."""
    fake = play(*ANSWER)
    conversation = chat(fake, cwd=tmp_path)
    conversation.ask("one")
    kept = json.loads(json.dumps(conversation.to_dict()))
    assert kept == {"session_id": SESSION_ID, "cwd": str(tmp_path)}
    chat(fake, kept).ask("two")
    Conversation.from_dict(Client(cli_path=fake.path), kept).ask("three")
    assert resumed(fake) == [None, SESSION_ID, SESSION_ID]
    assert {call.cwd for call in fake.calls} == {str(tmp_path)}


def test_to_dict_of_a_title(play):
    """Before the first turn that is all that is known; what looks like a flag is refused there, too."""
    fake = play(*ANSWER)
    kept = chat(fake, "My title").to_dict()
    chat(fake, kept).ask("one")
    assert resumed(fake) == ["My title"]
    with pytest.raises(ValueError, match="begin with a dash"):
        chat(fake, {"session_id": "--help"})


@pytest.mark.parametrize("where", ["client", "conversation", "turn"])
def test_a_conversation_whose_turns_forget(play, tmp_path, where):
    """Isolated turns have a configuration each: refused, unless that is a folder of the user's or there is a store."""
    fake = play(*ANSWER)

    def go(client_options, options):
        at = {place: options if place == where else {} for place in ("client", "conversation", "turn")}
        client = Client(cli_path=fake.path, **client_options, **at["client"])
        return client.conversation(**at["conversation"]).ask("one", **at["turn"])

    with pytest.raises(ValueError, match="isolated=True"):
        go({}, {"isolated": True})
    assert fake.calls == []
    go({"config_dir": tmp_path}, {"isolated": True})
    go({"store": MemoryStore()}, {"isolated": True})
    with pytest.raises(ValueError, match="none to go on with"):
        Client(cli_path=fake.path).ask("p", resume=OTHER, isolated=True)


def test_a_conversation_that_has_not_begun(play, tmp_path):
    """Has a folder and no session."""
    conversation = Client().conversation(cwd=tmp_path)
    assert conversation.to_dict() == {"session_id": None, "cwd": str(tmp_path)}
    assert Client().conversation(conversation.to_dict()).to_dict() == conversation.to_dict()


def test_another_folder_than_the_one_in_the_dict(play, tmp_path):
    """The option wins."""
    conversation = Client().conversation({"session_id": OTHER, "cwd": "/not/here"}, cwd=tmp_path)
    assert conversation.cwd == str(tmp_path)


def test_a_folder_that_is_not_here(play, tmp_path):
    """On another machine: the sentence says where the name comes from, and an option of the turn wins."""
    fake = play(*ANSWER)
    conversation = chat(fake, {"session_id": OTHER, "cwd": "/not/here"})
    with pytest.raises(ValueError, match="what was kept: '/not/here'; give cwd="):
        conversation.ask("one")
    assert conversation.ask("one", cwd=tmp_path).result == "yes"


def test_json_that_was_not_read():
    """A title would hardly begin like this."""
    with pytest.raises(ValueError, match=r"json\.loads"):
        Client().conversation(json.dumps({"session_id": OTHER, "cwd": "/"}))


@pytest.mark.parametrize(
    "wrong",
    [
        7, ["x"], {"session": OTHER}, {"session_id": 7}, {"session_id": ["x"]},
        {"session_id": OTHER, "cwd": 7}, {"session_id": OTHER, "model": "x"},
    ],
)  # fmt: skip
def test_what_is_no_such_dict(wrong):
    """A dict may come from outside: two texts, and nothing else may be in it."""
    with pytest.raises(ValueError, match="to_dict"):
        Client().conversation(wrong)


def test_it_cannot_be_pickled():
    """With a sentence that says what to do."""
    with pytest.raises(TypeError, match="to_dict"):
        pickle.dumps(Client().conversation())


def test_repr(play):
    """What it goes on with, and where."""
    assert repr(Client().conversation(OTHER, cwd="/")) == f"<Conversation session_id={OTHER!r} cwd='/'>"


def test_on_the_simulated_cli():
    """The id that it makes up is carried along."""
    with SimulatedCLI() as fake:
        conversation = chat(fake)
        first, second = conversation.ask("one"), conversation.ask("two")
        assert first.session_id == second.session_id == conversation.session_id


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_after_a_fork(play):
    """The child goes on from the last turn that had ended, and does not wait for the parent's."""
    fake = play(scripts=[ANSWER, [init(session_id=OTHER), ready("here"), hang()], ANSWER])
    source = """
import warnings
warnings.simplefilter("ignore")
conversation = client.conversation()
conversation.ask("one")
run = conversation.run("two")
next(run)
hear("go")
pid = os.fork()
if not pid:
    assert conversation.session_id != run.session_id
    os._exit(0 if conversation.ask("three").result == "yes" else 1)
say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    with Host(source, fake) as program:
        fake.wait("here")
        program.tell("go")
        program.expect("0")
        assert program.end() == 0
    assert resumed(fake) == [None, SESSION_ID, SESSION_ID]


def test_a_dropped_run_is_cancelled(play, tmp_path):
    """The conversation does not keep it: nobody wants the turn any more, so its process ends and the slot is free."""
    fake = play(scripts=[[init(), ready("on"), hang()], [init(), result("two")]])
    client = Client(cli_path=fake.path, max_concurrent=1)
    chat = client.conversation(cwd=tmp_path)
    for _ in chat.run("one"):
        break
    gc.collect()
    assert chat.ask("two").result == "two"


def test_a_turn_that_is_on_is_told_at_once(play, tmp_path, monkeypatch):
    """Nobody knows how long it takes: the next one does not wait for it."""
    monkeypatch.setattr(_conversation, "_ENDING", 20.0)
    fake = play(init(), ready("on"), wait_for("go"), result("one"))
    chat = Client(cli_path=fake.path).conversation(cwd=tmp_path)
    run = chat.run("one")
    fake.wait("on")
    asked_at = time.monotonic()
    with pytest.raises(ConcurrencyError, match="is on"):
        chat.run("two")
    assert time.monotonic() - asked_at < 10.0
    fake.release("go")
    run.result()


def test_the_first_turn_of_one_that_restarts(play, tmp_path):
    """Nothing can be gone before there is a session, so what the CLI says first is not waited for."""
    fake = play(ready("up"), wait_for("go"), init(), result("one"))
    run = Client(cli_path=fake.path).conversation(cwd=tmp_path, restart_stale=True).run("one", start_timeout=20)
    fake.release("go")
    assert run.result().result == "one"


def test_behind_a_cancelled_turn(play, tmp_path, graces, monkeypatch):
    """The next one waits until the process is gone, as in a live session: longer than for one that has ended."""
    monkeypatch.setattr(_conversation, "_ENDING", 0.0)
    graces(term=0.2)
    fake = play(scripts=[[ignore_term(), init(), ready("on"), hang()], [init(), result("two")]])
    chat = Client(cli_path=fake.path).conversation(cwd=tmp_path)
    run = chat.run("one")
    fake.wait("on")
    run.cancel()
    assert chat.ask("two").result == "two"
    assert run.done
