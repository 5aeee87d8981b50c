"""The mirror: what a store gets, when, in which order; and that nothing a store does reaches the run."""

from __future__ import annotations

import contextvars
import gc
import json
import logging
import os
import pickle
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hosts import Host
from mirror_stores import MAIN, PROJECT, Blocked, Broken, Greedy, Recorder, entry, fail, lines, mirror
from waiting import DEADLINE, Background, until, until_gone

from claude_cli_client import (
    MIRROR_ERROR,
    Client,
    ConcurrencyError,
    InterruptedTurnError,
    SessionClosedError,
    SessionKey,
    SessionStore,
    StartError,
    TurnCancelled,
    TurnTimeout,
    _cleanup,
    _mirror,
    _project_folders,
    _session_reader,
    parse_line,
)
from claude_cli_client._sync import WakeUp
from claude_cli_client.testing import (
    SESSION_ID,
    began,
    die_by,
    expect,
    expect_initialize,
    hang,
    init,
    interrupted,
    raw_bytes,
    read_stdin,
    ready,
    result,
    say,
    text,
    turn,
    wait_for,
    wait_for_line,
)

AGENT = SessionKey(PROJECT, SESSION_ID, "subagents/agent-7")
AGENT_FILE = f"{SESSION_ID}/subagents/agent-7.jsonl"


@pytest.fixture
def config(tmp_path):
    return tmp_path / "config"


@pytest.fixture
def impatient(monkeypatch):
    """No time between the tries."""
    monkeypatch.setattr(_mirror, "PAUSES", (0.0, 0.0))


@pytest.fixture
def blocked():
    block = Blocked()
    yield block
    block.released.set()


def warnings_of(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def errors(events):
    return [event for event in events if event.type == MIRROR_ERROR]


# --- what a store gets


def test_a_store_gets_the_entries_in_their_order(play, config):
    """All of them, also those behind the result; and the CLI is told to send them."""
    store = Recorder()
    fake = play(init(), mirror(config, 1, 2), text("x"), mirror(config, 3), result("x"), mirror(config, 4))
    run = Client(cli_path=fake.path, store=store, config_dir=config).run("p")
    assert [event.type for event in run] == ["system", "text", "result"]
    assert store.numbers() == [1, 2, 3, 4]
    assert store.entries()[0] == entry(1)
    assert "--session-mirror" in fake.calls[0].argv


def test_without_a_store(play, config):
    """The CLI is not asked for frames, and one that comes all the same is not shown."""
    fake = play(init(), mirror(config, 1), result("x"))
    assert [event.type for event in Client(cli_path=fake.path).run("p")] == ["system", "result"]
    assert "--session-mirror" not in fake.calls[0].argv


def test_both_wires(play, config):
    """A turn with content blocks, which speaks stream-json, mirrors like one with a text."""
    store = Recorder()
    fake = play(wait_for_line({"type": "user"}), init(), mirror(config, 1), result("x"), read_stdin())
    Client(cli_path=fake.path, store=store, config_dir=config).ask([{"type": "text", "text": "p"}])
    assert store.numbers() == [1]


def test_one_append_for_each_file_and_flush(play, config, graces):
    """Frames of two files, interleaved: each keeps its order, and a result brings one call for each."""
    graces(exit=1000)
    store = Recorder()
    fake = play(
        init(), mirror(config, 1), mirror(config, 11, file=AGENT_FILE), mirror(config, 2),
        mirror(config, 12, file=AGENT_FILE), result("x"), wait_for("end"), mirror(config, 3),
    )  # fmt: skip
    run = Client(cli_path=fake.path, store=store, config_dir=config).run("p")
    until(lambda: len(store.batches) == 2)
    fake.release("end")
    run.result()
    assert [(key, [e["n"] for e in batch]) for key, batch in store.batches] == [
        (MAIN, [1, 2]), (AGENT, [11, 12]), (MAIN, [3]),
    ]  # fmt: skip


def test_eager(play, config):
    """One call for each frame, without waiting for a result."""
    store = Recorder()
    fake = play(init(), mirror(config, 1, 2), mirror(config, 3), wait_for("end"), result("x"))
    run = Client(cli_path=fake.path, store=store, store_flush="eager", config_dir=config).run("p")
    until(lambda: [len(batch) for _, batch in store.batches] == [2, 1])
    fake.release("end")
    run.result()


@pytest.mark.parametrize("much", [{"numbers": range(501)}, {"numbers": (1,), "more": "x" * (1 << 20)}])
def test_much_is_not_kept_until_the_result(play, config, much):
    """More than 500 entries, or more than 1 MiB."""
    store = Recorder()
    numbers = much.pop("numbers")
    fake = play(init(), mirror(config, *numbers, **much), wait_for("end"), result("x"))
    run = Client(cli_path=fake.path, store=store, config_dir=config).run("p")
    until(lambda: store.batches)
    fake.release("end")
    run.result()
    assert store.numbers() == [*numbers]


def test_little_is_kept_until_the_result(play, config, clock):
    """500 entries are not more than 500."""
    store = Recorder()
    fake = play(init(), mirror(config, *range(500)), ready("said"), wait_for("end"), result("x"))
    run = Client(cli_path=fake.path, store=store, config_dir=config).run("p")
    fake.wait("said")
    clock.move(0, run)
    assert run._channel.mirror._entries == 500
    assert store.batches == []
    fake.release("end")
    run.result()
    assert len(store.batches) == 1


def test_the_thread(play, config):
    """The store is called on one thread of its own, which is gone with the run."""
    store = Recorder()
    fake = play(init(), mirror(config, 1), result("x"), mirror(config, 2))
    run = Client(cli_path=fake.path, store=store, store_flush="eager", config_dir=config).run("p")
    run.result()
    run.close()
    (thread,) = store.threads
    assert thread.name.endswith("-store")
    assert thread is not threading.current_thread()
    assert not thread.is_alive()


def test_no_thread_without_frames(play, config, clock):
    """A store costs nothing where nothing is said."""
    fake = play(init(), ready("here"), wait_for("end"), result("x"))
    run = Client(cli_path=fake.path, store=Recorder(), config_dir=config).run("p")
    fake.wait("here")
    clock.move(0, run)
    assert not [thread for thread in threading.enumerate() if thread.name.endswith("-store")]
    fake.release("end")
    run.result()


def test_a_store_may_change_what_it_gets(play, config, impatient):
    """Each try has copies of its own."""
    store = Greedy(fail(OSError("no"), 1))
    fake = play(init(), mirror(config, 1, 2), result("x"))
    Client(cli_path=fake.path, store=store, config_dir=config).ask("p")
    assert store.calls == 2
    assert store.entries() == [entry(1), entry(2)]


def test_an_empty_frame(play, config):
    """No call, so that no transcript without entries comes to be."""
    store = Recorder()
    fake = play(init(), mirror(config), result("x"))
    Client(cli_path=fake.path, store=store, config_dir=config).ask("p")
    assert store.batches == []


def test_other_defaults_have_the_same_store(play, config):
    """`with_options` keeps it."""
    store = Recorder()
    fake = play(init(), mirror(config, 1), result("x"))
    Client(cli_path=fake.path, store=store).with_options(config_dir=config).ask("p")
    assert store.numbers() == [1]


def test_a_probe_leaves_no_trace_in_a_store(play, config):
    """It has no transcript, and asks for no frames."""
    store = Recorder()
    fake = play(init(), mirror(config, 1), result("OK"))
    assert Client(cli_path=fake.path, store=store, config_dir=config).probe().available
    assert store.batches == []
    assert "--session-mirror" not in fake.calls[0].argv


# --- whose transcript a file is


def located(play, path, **options):
    """The keys under which a frame of this path is stored."""
    store = Recorder()
    fake = play(init(), say({"type": "transcript_mirror", "filePath": str(path), "entries": [{"n": 1}]}), result("x"))
    client = Client(cli_path=options.pop("cli_path", fake.path), store=store, **options)
    client.ask("p", **({"command_prefix": [str(fake.path)]} if "prefixed" in str(path) else {}))
    return [key for key, _ in store.batches]


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("P/S.jsonl", SessionKey("P", "S")),
        ("P/S/subagents/agent-1.jsonl", SessionKey("P", "S", "subagents/agent-1")),
        ("P/S/subagents/workflows/R/agent-1.jsonl", SessionKey("P", "S", "subagents/workflows/R/agent-1")),
    ],
)
def test_keys(play, tmp_path, file, key):
    """From the file's place below CONFIG/projects."""
    assert located(play, tmp_path / "projects" / file, config_dir=tmp_path) == [key]


@pytest.mark.parametrize(
    "file", ["S.jsonl", "P/S/agent.jsonl", "P/S.json", "P/.jsonl", "../P/S.jsonl", "/elsewhere/projects/P/S.jsonl"]
)
def test_files_that_are_no_transcripts(play, tmp_path, caplog, file):
    """No store has a key for them, so they are told as lost, with the path."""
    path = str(tmp_path / "projects" / file)
    store = Recorder()
    fake = play(init(), say({"type": "transcript_mirror", "filePath": path, "entries": [{"n": 1}]}), result("x"))
    events = list(Client(cli_path=fake.path, store=store, config_dir=tmp_path).run("p"))
    assert [event.type for event in events] == ["system", "mirror_error", "result"]
    assert events[1].error == "LookupError"
    assert events[1].data["path"] == path
    assert store.batches == []
    (warning,) = until(lambda: warnings_of(caplog))
    assert warning.startswith("1 entries of a transcript are not stored (LookupError: ")
    assert warning.endswith(f"; no key; the local copy is {path}")


def test_hidden_frames_of_other_sorts(play, tmp_path):
    """They are none of the mirror, whatever they lack."""
    fake = play(init(), say({"sdk_host_only": True}), say({"type": "keep_alive"}), result("x"))
    store = Recorder()
    assert Client(cli_path=fake.path, store=store, config_dir=tmp_path).ask("p").result == "x"
    assert store.batches == []


@pytest.mark.parametrize("frame", [{}, {"filePath": 7, "entries": [{}]}, {"filePath": "/a", "entries": {}}])
def test_frames_without_sense(play, tmp_path, caplog, frame):
    """Dropped, too."""
    fake = play(init(), say({"type": "transcript_mirror", **frame}), result("x"))
    store = Recorder()
    assert Client(cli_path=fake.path, store=store, config_dir=tmp_path).ask("p").result == "x"
    assert store.batches == []
    assert len(until(lambda: warnings_of(caplog))) == 1


def test_the_folder_is_that_of_the_clis_environment(play, tmp_path):
    """CLAUDE_CONFIG_DIR where it is set, else HOME, both as the CLI sees them."""
    file = "projects/P/S.jsonl"
    key = [SessionKey("P", "S")]
    (tmp_path / "link").symlink_to(tmp_path)
    env = {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": None}
    assert located(play, tmp_path / ".claude" / file, env=env) == key
    env = {"CLAUDE_CONFIG_DIR": str(tmp_path / "link")}
    assert located(play, tmp_path / "link" / file, env=env, config_dir="/elsewhere") == key
    assert located(play, tmp_path / file, env={"CLAUDE_CONFIG_DIR": f"{tmp_path}/a/..//"}) == key
    # The CLI names files as relatively as it was told.
    (tmp_path / "work").mkdir()
    assert located(play, f"../c/{file}", env={"CLAUDE_CONFIG_DIR": "../c"}, cwd=tmp_path / "work") == key
    # It composes accents in the folder that it was told.
    assert located(play, f"{tmp_path}/\u00e9/{file}", config_dir=f"{tmp_path}/e\u0301") == key


def test_the_folder_behind_a_prefix(play):
    """Nobody knows CONFIG there: the end of the path tells, where it has the shape of a transcript's."""
    inside = f"/prefixed/home/u/projects/x/.claude/projects/{PROJECT}"
    assert located(play, f"{inside}/{SESSION_ID}.jsonl", cli_path="claude") == [MAIN]
    assert located(play, f"{inside}/{AGENT_FILE}", cli_path="claude") == [AGENT]
    assert located(play, f"{inside}/notes.jsonl", cli_path="claude") == []


# --- the end of a run means that the store has it


def test_a_relative_home(play, tmp_path):
    """It is relative to the turn's directory, and the CLI names files as relatively."""
    env = {"HOME": "../h", "CLAUDE_CONFIG_DIR": None}
    (tmp_path / "work").mkdir()
    found = located(play, "../h/.claude/projects/P/S.jsonl", env=env, cwd=tmp_path / "work")
    assert found == [SessionKey("P", "S")]


def test_the_terminal_event_waits_for_the_store(play, config, blocked, graces, clock):
    """It comes when the last entry is stored, and not before."""
    graces(store=1000)
    store = Broken(blocked)
    fake = play(init(), mirror(config, 1), result("x"), mirror(config, 2))
    run = Client(cli_path=fake.path, store=store, config_dir=config).run("p")
    rest = Background(list, run)
    until_gone(fake)
    clock.move(0, run)  # the reader has seen that
    assert blocked.entered.wait(10)
    assert rest.is_waiting
    assert not run.done
    blocked.released.set()
    assert [event.type for event in rest.result()] == ["system", "result"]
    assert store.numbers() == [1, 2]


@pytest.mark.parametrize(("end", "later"), [(die_by(9), 0), (hang(), 101)], ids=["died", "limit"])
def test_a_turn_that_failed_is_stored_too(play, config, graces, clock, blocked, end, later):
    """What came before the end, whatever that was."""
    graces(term=60, store=60)
    store = Broken(blocked)
    fake = play(init(), mirror(config, 1), ready("said"), end)
    run = Client(cli_path=fake.path, store=store, config_dir=config, idle_timeout=100).run("p")
    fake.wait("said")
    clock.move(later, run)
    assert blocked.entered.wait(10)
    clock.move(0, run)
    blocked.released.set()
    assert [event.type for event in run] == ["system", "error"]
    assert store.numbers() == [1]


def test_the_slot_is_kept_until_then(play, config, blocked, slots_free, graces, clock):
    """So the slots limit how many runs wait for a store."""
    graces(store=1000)
    fake = play(init(), mirror(config, 1), result("x"))
    client = Client(cli_path=fake.path, store=Broken(blocked), config_dir=config)
    run = client.run("p")
    assert blocked.entered.wait(10)
    until_gone(fake)
    clock.move(0, run)  # the reader has seen that
    assert slots_free(client) == 3
    blocked.released.set()
    run.result()
    assert slots_free(client) == 4


# --- stores that fail


class Mute(Exception):
    def __str__(self):
        raise ValueError


ERRORS = [OSError("no route"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Mute()]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_store_that_raises(play, config, impatient, error):
    """Whatever it raises: three tries, one event, and the answer is the answer."""
    store = Broken(fail(error))
    fake = play(init(), mirror(config, 1, 2), text("x"), result("x"))
    run = Client(cli_path=fake.path, store=store, config_dir=config).run("p")
    events = list(run)
    assert [event.type for event in events] == ["system", "text", "mirror_error", "result"]
    assert run.result().result == "x"
    assert store.calls == 3
    assert events[2].error == type(error).__name__


def test_a_turn_of_which_nothing_was_written(play, config, caplog):
    """An answer without one frame: told as what a store did not take, with cause and remedy, and counted."""
    fake = play(init(), text("x"), result("x"))
    client = Client(cli_path=fake.path, store=Recorder(), config_dir=config)
    (event,) = errors(client.run("p"))
    assert "the CLI wrote no transcript" in event.text
    assert "config_dir=" in event.text
    assert event.session_id == SESSION_ID
    assert client.totals.not_stored == 1
    until(lambda: len(warnings_of(caplog)) == 1)  # said when everybody has been told


@pytest.mark.parametrize("steps", [[init(), result("x")], [init(), text("x"), result("x", is_error=True)]])
def test_a_turn_of_which_nothing_need_be_written(play, config, steps):
    """A command without a word of the model, or an error: nothing is missing."""
    client = Client(cli_path=play(*steps).path, store=Recorder(), config_dir=config)
    assert errors(client.run("p")) == []
    assert client.totals.not_stored == 0


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """The test's folder is another user's: root would be told that it may."""
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).startswith(str(tmp_path)) and real(path, mode))


@pytest.mark.parametrize("options", [{}, {"env": {"HOME": "{}/file"}}, {"config_dir": "{}/file"}], ids=str)
def test_a_configuration_folder_that_cannot_be_written(play, tmp_path, request, options):
    """Refused before anything starts: the CLI would answer and write nothing, and the next turn find no session."""
    (tmp_path / "file").touch()
    if not options:
        request.getfixturevalue("locked")
        options = {"config_dir": "{}"}
    options = json.loads(json.dumps(options).replace("{}", str(tmp_path)))
    fake = play(init(), result("x"))
    client = Client(cli_path=fake.path, store=Recorder())
    with pytest.raises(StartError, match=r"configuration folder .* cannot be written: .*config_dir=.*isolated=True"):
        client.run("p", **options)
    assert fake.calls == []
    assert client.ask("p", isolated=True).result == "x"


def test_a_folder_that_cannot_be_searched_cannot_be_written(tmp_path, monkeypatch):
    """Who may write it, and not enter it, makes no file there."""
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.X_OK)  # root may enter all
    assert not _project_folders.can_be_written(str(tmp_path / "projects"))


def test_a_configuration_folder_on_another_disk(play, tmp_path):
    """Nobody looks at this one."""
    (tmp_path / "file").touch()
    client = Client(cli_path=play(init(), result("x")).path, store=Recorder())
    assert client.ask("p", config_dir=tmp_path / "file", command_prefix=["env"]).result == "x"


def test_a_home_that_cannot_be_searched(play, tmp_path, monkeypatch, locked):
    """The configuration folder is named, and not one that is not there: also where its name has accents to compose."""
    real = os.stat

    def stat(path, *args, **more):
        if str(path).startswith(f"{tmp_path}/e\u0301/.claude"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args, **more)

    monkeypatch.setattr(os, "stat", stat)
    client = Client(cli_path=play(init(), result("x")).path, store=Recorder(), env={"HOME": f"{tmp_path}/e\u0301"})
    with pytest.raises(StartError, match=r"configuration folder .*\.claude cannot be written"):
        client.run("p")


def test_what_the_event_says(play, config, impatient, caplog):
    """What failed, of which transcript, how much, and where the local copy is; so does the log."""
    fake = play(init(), mirror(config, 1, 2), result("x"))
    store = Broken(fail(OSError("no route to 10.0.0.1")))
    (event,) = errors(Client(cli_path=fake.path, store=store, config_dir=config).run("p"))
    path = config / "projects" / PROJECT / f"{SESSION_ID}.jsonl"
    assert event.session_id == SESSION_ID
    assert event.errors == ("OSError: no route to 10.0.0.1",)
    assert event.data == {
        "type": "mirror_error", "project_key": PROJECT, "session_id": SESSION_ID, "subpath": None,
        "entries": 2, "waiting": False, "path": str(path), "error": "OSError: no route to 10.0.0.1",
    }  # fmt: skip
    assert all(part in str(event) for part in ("2 entries", "OSError", str(path)))
    assert not event.is_terminal
    assert until(lambda: warnings_of(caplog)) == [event.text]
    assert event.text == (
        "2 entries of a transcript are not stored (OSError: no route to 10.0.0.1); "
        f"project {PROJECT}, session {SESSION_ID}; the local copy is {path}"
    )
    assert pickle.loads(pickle.dumps(event)) == event
    assert parse_line(event.raw)[0].type == MIRROR_ERROR


def test_the_log_has_the_first_line_of_an_exception(play, config, impatient, caplog):
    """The lines behind it may quote the entries; and a subagent's transcript is named."""
    fake = play(init(), mirror(config, 1, file=AGENT_FILE), result("x"))
    store = Broken(fail(OSError(f"{'x' * 300}\nDETAIL: the prompt")))
    Client(cli_path=fake.path, store=store, config_dir=config).ask("p")
    (warning,) = until(lambda: warnings_of(caplog))
    assert f"(OSError: {'x' * 200});" in warning
    assert f"subpath {AGENT.subpath}" in warning


def test_the_log_has_one_line_for_each_file(play, config, impatient, caplog):
    """With all of its entries, however many batches they came in."""
    store = Broken(fail(OSError("no")))
    fake = play(init(), mirror(config, 1), mirror(config, 2), mirror(config, 11, file=AGENT_FILE), result("x"))
    Client(cli_path=fake.path, store=store, config_dir=config, store_flush="eager").ask("p")
    until(lambda: len(warnings_of(caplog)) > 1)  # behind the answer, one after the other
    counts = sorted(warning.partition(" ")[0] for warning in warnings_of(caplog))
    assert counts == ["1", "2"]


def test_totals_count_what_was_not_stored(play, config, impatient):
    """So that `ask`, which shows no events, leaves something to look at; of all runs of the client."""
    store = Broken(fail(OSError("no"), times=3))
    fake = play(init(), mirror(config, 1, 2), mirror(config, 11, file=AGENT_FILE), result("x"))
    client = Client(cli_path=fake.path, store=store, config_dir=config)
    assert client.totals.not_stored == 0
    client.ask("p")
    lost = client.totals.not_stored
    assert lost in (1, 2)  # the file whose batch came first
    assert lost + len(store.entries()) + len(store.entries(AGENT)) == 3
    client.ask("p")
    assert client.totals.not_stored == lost


def test_totals_count_what_a_session_did_not_store(play, config, impatient):
    """At the end of the turn already, and once."""
    store = Broken(fail(OSError("no")))
    fake = play(*expect_initialize(), turn(mirror(config, 1, 2), text("x")), read_stdin())
    client = Client(cli_path=fake.path, store=store, config_dir=config)
    with client.session() as session:
        session.ask("p")
        assert client.totals.not_stored == 2
    assert client.totals.not_stored == 2


def test_one_event_for_each_file(play, config, impatient):
    """However many batches were lost."""
    frames = [mirror(config, n) for n in range(5)]
    fake = play(init(), *frames, mirror(config, 9, file=AGENT_FILE), result("x"))
    client = Client(cli_path=fake.path, store=Broken(fail(OSError())), store_flush="eager", config_dir=config)
    found = errors(client.run("p"))
    assert [(event.data["subpath"], event.data["entries"]) for event in found] == [(None, 5), (AGENT.subpath, 1)]
    assert found[0].errors == ("OSError",)


def test_a_store_that_fails_twice(play, config, impatient):
    """The third try stores everything, and nobody is told."""
    store = Broken(fail(OSError(), 2))
    fake = play(init(), mirror(config, 1), result("x"))
    assert errors(Client(cli_path=fake.path, store=store, config_dir=config).run("p")) == []
    assert (store.numbers(), store.calls) == ([1], 3)


def test_the_pauses(play, config, monkeypatch):
    """A connection that broke has a second to be there again: a short pause, and a longer one."""
    slept: list[float] = []

    class Time:
        sleep = slept.append

    monkeypatch.setattr(_mirror, "time", Time)
    store = Broken(fail(OSError()))
    fake = play(init(), mirror(config, 1), result("x"))
    Client(cli_path=fake.path, store=store, config_dir=config).ask("p")
    assert store.calls == 3
    first, second = slept
    assert 0 < first < second
    assert first + second == pytest.approx(1)


def test_after_a_failure_it_goes_on(play, config, impatient):
    """What is lost is lost; the batches behind it are stored, in their order."""
    store = Broken(fail(OSError(), 3))
    fake = play(init(), mirror(config, 1), mirror(config, 2), mirror(config, 3), result("x"))
    client = Client(cli_path=fake.path, store=store, store_flush="eager", config_dir=config)
    (event,) = errors(client.run("p"))
    assert event.data["entries"] == 1
    assert store.numbers() == [2, 3]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_no_thread_to_be_had(play, config, monkeypatch, lost):
    """What waits then is lost, the event says why, and the turn has its answer; what comes later is stored."""
    lacking = iter(range(2 * lost or 1))  # one is begun when a frame comes, else when there is something to store

    class Threads:
        Event = threading.Event

        class Thread(threading.Thread):
            def start(self):
                if next(lacking, None) is not None:
                    raise RuntimeError("can't start new thread")
                super().start()

    monkeypatch.setattr(_mirror, "threading", Threads)
    store = Recorder()
    fake = play(init(), mirror(config, 1), mirror(config, 2), result("x"))
    run = Client(cli_path=fake.path, store=store, store_flush="eager", config_dir=config).run("p")
    if not lost:
        assert errors(run) == []
        return
    (event,) = errors(run)
    assert event.errors == ("RuntimeError: can't start new thread",)
    assert event.data["entries"] == lost
    assert run.result().result == "x"
    assert store.numbers() == [1, 2][lost:]


# --- stores that do not come back


def test_an_append_that_hangs(play, config, clock, blocked):
    """Given up after a minute and not tried again; the rest is stored by another thread, in its order."""
    store = Broken(blocked)
    fake = play(
        init(), mirror(config, 1), wait_for("more"), mirror(config, 2), mirror(config, 3), wait_for("end"), result("x")
    )
    client = Client(cli_path=fake.path, store=store, store_flush="eager", config_dir=config)
    run = client.run("p", timeout=None, idle_timeout=None, start_timeout=None)
    blocked.entered.wait(10)
    clock.move(61, run)
    fake.release("more")
    until(lambda: store.numbers() == [2, 3])
    fake.release("end")
    events = list(run)
    (event,) = errors(events)
    assert (event.error, event.data["entries"]) == ("TimeoutError", 1)
    assert events[-1].result == "x"
    blocked.released.set()
    until(lambda: store.numbers() == [2, 3, 1])  # it came back late
    store.join()
    assert store.calls == 3  # and nobody begins after it


def test_an_append_that_is_slow_is_not_given_up(play, config, clock, blocked):
    """59 seconds are not a minute."""
    store = Broken(blocked)
    more = wait_for("more"), mirror(config, 2), ready("said"), wait_for("end")
    fake = play(init(), mirror(config, 1), *more, result("x"))
    client = Client(cli_path=fake.path, store=store, store_flush="eager", config_dir=config)
    run = client.run("p", timeout=None, idle_timeout=None, start_timeout=None)
    blocked.entered.wait(10)
    clock.move(59, run)
    fake.release("more")
    fake.wait("said")
    clock.move(0, run)  # what was said is read, and the reader has looked for how long the first one takes
    blocked.released.set()
    fake.release("end")
    assert errors(run) == []
    assert store.numbers() == [1, 2]


def test_a_slow_failure_is_not_tried_again(play, config, clock, graces):
    """An append that took more than a minute and then raised may have stored all the same."""
    graces(exit=1000, store=1000)  # nobody gives it up before

    def slow(number):
        clock._ahead += 61
        raise OSError("too late")

    store = Broken(slow)
    fake = play(init(), mirror(config, 1), result("x"))
    client = Client(cli_path=fake.path, store=store, config_dir=config, timeout=None, idle_timeout=None)
    (event,) = errors(client.run("p", start_timeout=None))
    assert store.calls == 1
    assert event.data["entries"] == 1


def test_a_store_that_hangs_at_the_end(play, config, graces, blocked, slots_free):
    """The end waits for a bounded time, and then for nobody: what is left is lost, and told."""
    graces(store=0.1)
    store = Broken(blocked)
    fake = play(init(), mirror(config, 1), mirror(config, 2), wait_for("end"), result("x"))
    client = Client(cli_path=fake.path, store=store, store_flush="eager", config_dir=config)
    run = client.run("p")
    assert blocked.entered.wait(DEADLINE)
    fake.release("end")
    events = list(run)
    assert [event.type for event in events] == ["system", "mirror_error", "result"]
    assert events[1].data["entries"] == 2
    assert "0.1 s" in events[1].text
    assert slots_free(client) == 4
    blocked.released.set()
    until(lambda: store.threads)
    store.join()
    assert store.numbers() == [1]  # the thread that hung stores nothing else


HURRIES = {
    "cancel": (lambda client, run: run.cancel(), None),
    "close": (lambda client, run: run.close(), None),
    "client.close": (lambda client, run: client.close(), None),
    "second Ctrl-C": (lambda client, run: run._channel.cancel(hard=True), 100.0),
}


@pytest.mark.parametrize("way", HURRIES)
def test_who_wants_to_leave_waits_less(play, config, graces, blocked, way):
    """`cancel`, `close` and Ctrl-C cut the wait for a store short; the answer stays the answer."""
    hurry, grace = HURRIES[way]
    graces(term=grace or 0.1, store=1000)
    fake = play(init(), mirror(config, 1), result("x"))
    client = Client(cli_path=fake.path, store=Broken(blocked), config_dir=config)
    run = client.run("p")
    rest = Background(list, run)
    blocked.entered.wait(10)
    until_gone(fake)  # with its answer
    hurry(client, run)
    events = rest.result()
    assert [event.type for event in events] == ["system", "mirror_error", "result"]
    assert "the run was ended" in events[1].text


def test_a_dropped_run_waits_less(play, config, graces, blocked):
    """Nobody refers to it: its end is cut short, too."""
    graces(term=0.1, store=1000)
    fake = play(init(), mirror(config, 1), result("x"))
    client = Client(cli_path=fake.path, store=Broken(blocked), config_dir=config)
    run = client.run("p")
    channel = run._channel
    blocked.entered.wait(10)
    del run
    gc.collect()
    assert channel.wait(10)


def test_a_limit_waits_less(play, config, graces, blocked, clock):
    """A run that was ended by a limit does not wait for a store as one that ended well."""
    graces(term=0.1, store=1000)
    fake = play(init(), mirror(config, 1), ready("said"), hang())
    client = Client(cli_path=fake.path, store=Broken(blocked), store_flush="eager", config_dir=config)
    run = client.run("p", idle_timeout=30)
    fake.wait("said")
    assert blocked.entered.wait(10)
    clock.move(31, run)  # and not the minute of an append
    events = Background(list, run).result()
    assert [event.type for event in events] == ["system", "mirror_error", "error"]
    assert "the run was ended" in events[1].text
    with pytest.raises(TurnTimeout):
        run.result()


def test_a_cancelled_run_stores_what_came(play, config, graces, clock, blocked):
    """A store that works gets everything within the grace."""
    graces(term=60, store=60)
    store = Broken(blocked)
    fake = play(init(), mirror(config, 1), ready("said"), hang())
    run = Client(cli_path=fake.path, store=store, config_dir=config).run("p")
    fake.wait("said")
    run.cancel()
    assert blocked.entered.wait(10)
    clock.move(0, run)
    blocked.released.set()
    assert errors(run) == []
    with pytest.raises(TurnCancelled):
        run.result()
    assert store.numbers() == [1]


def test_the_store_is_called_in_the_caller_s_context(play, config):
    """As callbacks are: a store may find there for whom it works."""
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")
    store, seen = Recorder(), []
    append = store.append
    store.append = lambda key, entries: seen.append(tenant.get()) or append(key, entries)
    client = Client(cli_path=play(init(), mirror(config, 1), result("x")).path, store=store, config_dir=config)
    for name in ("one", "two"):
        token = tenant.set(name)
        run = client.run("p")
        tenant.reset(token)
        assert errors(run) == []
    assert seen == ["one", "two"]


def test_the_consumer_s_limit_is_not_the_store_s(play, config, blocked):
    """`max_buffered_bytes` is about events: frames for a store do not count, and are not lost by it."""
    store = Broken(blocked)
    steps = [init(), *(mirror(config, n, more="x" * 5_000) for n in range(6))]
    block = b"".join(json.dumps(step.line).encode() + b"\n" for step in steps)
    fake = play(raw_bytes(block), wait_for("end"), result("x"))
    client = Client(cli_path=fake.path, store=store, config_dir=config, max_buffered_bytes=20_000)
    run = client.run("p")
    until(lambda: run.session_id)
    fake.release("end")
    assert blocked.entered.wait(DEADLINE)
    blocked.released.set()
    assert errors(run) == []
    assert run.result().result == "x"
    assert store.numbers() == list(range(6))


def test_what_waits_is_limited(play, config, graces, blocked, monkeypatch):
    """Beyond the limit frames are lost, and told as the others are."""
    monkeypatch.setattr(_mirror, "MAX_BACKLOG", 1000)
    store = Broken(blocked)
    frames = [mirror(config, n, more="x" * 600) for n in range(6)]
    fake = play(init(), frames[0], wait_for("more"), *frames[1:], ready("said"), wait_for("end"), result("x"))
    client = Client(cli_path=fake.path, store=store, store_flush="eager", config_dir=config)
    run = client.run("p")
    blocked.entered.wait(10)
    fake.release("more")
    fake.wait("said")
    until(lambda: run._channel.mirror.lost == 4)
    blocked.released.set()
    fake.release("end")
    (event,) = errors(run)
    assert (event.error, event.data["entries"]) == ("BufferError", 4)
    assert store.numbers() == [0, 1]


# --- the only copy


class Fickle(Recorder):
    """Down while `up` is False, and it refuses the entries with the numbers in `refused`."""

    def __init__(self, *refused: int) -> None:
        super().__init__()
        self.up, self.refused, self.calls = False, refused, 0

    def append(self, key, entries):
        self.calls += 1
        if not self.up or any(entry["n"] in self.refused for entry in entries):
            raise OSError("no")
        super().append(key, entries)


@pytest.fixture
def sole(impatient, monkeypatch):
    """`sole(store)`: a mirror for a store that gets the only copy, and what puts a frame with one entry."""
    monkeypatch.setattr(_mirror, "PERSISTENCE", 0.01)
    monkeypatch.setattr(_mirror, "QUICK", DEADLINE)  # a machine under load is not quick
    made = []

    def make(store):
        wake = WakeUp()
        wake.open()
        storing = _mirror.Storing(store, sole=True)
        known = _mirror.Mirror(
            storing, lambda path: (*MAIN[:2], None), name="x", context=contextvars.copy_context(), wake=wake
        )
        made.append((known, wake))
        return known, lambda number: known.put({"filePath": "/a", "entries": [{"n": number}]}, 100)

    yield make
    for known, wake in made:
        known.abandon("the test is over")
        wake.close()


def is_idle(known):
    known.go_on()
    return not known._open


def test_an_outage_keeps_the_order(sole, monkeypatch):
    """Also of entries without parents, whose order nobody could mend: what comes later waits."""
    monkeypatch.setattr(_mirror, "QUICK", -1)  # never so quick that the next is tried
    store = Fickle()
    known, put = sole(store)
    for number in range(3):
        put(number)
    until(lambda: store.calls > 5)
    store.up = True
    for number in range(3, 6):
        put(number)
    known.finish(DEADLINE, lambda: None)
    assert (store.numbers(), known.lost) == ([0, 1, 2, 3, 4, 5], 0)


def test_an_outage_ends_in_the_middle_of_a_turn(sole):
    """What waits is stored then: it needs no result, and no other frame."""
    store = Fickle()
    known, put = sole(store)
    put(1)
    put(2)
    until(lambda: store.calls > 5)
    store.up = True
    until(lambda: sorted(store.numbers()) == [1, 2])
    assert known.lost == 0


def test_an_outage_leaves_room_behind_it(sole, monkeypatch):
    """What it made wait, up to the limit, takes no room from what comes when the store is there again."""
    monkeypatch.setattr(_mirror, "MAX_BACKLOG", 250)
    store = Fickle()
    known, put = sole(store)
    for number in range(4):
        put(number)
    assert known.lost == 1
    until(lambda: store.calls > 4)
    store.up = True
    until(lambda: is_idle(known))
    put(4)
    until(lambda: is_idle(known))
    assert (sorted(store.numbers()), known.lost) == ([0, 1, 2, 4], 1)


def test_what_comes_later_does_not_hold_what_was_flushed(sole):
    """As where background work writes on: what the turn wrote is lost or stored, and what came since waits on."""
    store = Fickle()
    known, put = sole(store)
    put(0)
    known.flush()
    put(1)
    until(lambda: known.is_flushed)
    (event,) = known.report(lambda path: "", waiting=True)
    assert (event.data["entries"], event.data["waiting"], known.lost) == (1, False, 1)
    store.up = True
    until(lambda: store.numbers() == [1])


def test_what_waits_behind_an_append_that_hangs_is_tried(sole, monkeypatch):
    """Also where the store was down before: what hangs says nothing of the next, and the rest is not lost untried."""
    monkeypatch.setattr(_mirror, "DOWN_LIMIT", -1)
    monkeypatch.setattr(_mirror, "QUICK", -1)
    entered, gate = threading.Event(), threading.Event()

    class Hanging(Fickle):
        def append(self, key, entries):
            if self.calls > 3 and entries[0]["n"] == 0:
                self.up = True
                entered.set()
                gate.wait(DEADLINE)
            super().append(key, entries)

    store = Hanging()
    known, put = sole(store)
    put(0)
    put(1)
    assert entered.wait(DEADLINE)
    known.flush()
    monkeypatch.setattr(_mirror, "APPEND_LIMIT", -1)
    known.go_on()
    monkeypatch.setattr(_mirror, "APPEND_LIMIT", 60)
    until(lambda: is_idle(known))
    gate.set()
    assert (store.numbers()[:1], known.lost) == ([1], 1)


def test_a_slow_store_is_not_called_for_each_frame(sole):
    """What comes while it is at work is collected behind the first ones: else the end would wait for each."""
    entered, gate = threading.Event(), threading.Event()

    class Slow(Recorder):
        def append(self, key, entries):
            entered.set()
            gate.wait(DEADLINE)
            super().append(key, entries)

    store = Slow()
    known, put = sole(store)
    put(0)
    entered.wait(DEADLINE)
    for number in range(1, 50):
        put(number)
    gate.set()
    known.finish(DEADLINE, lambda: None)
    assert [entry["n"] for _, entries in store.batches for entry in entries] == list(range(50))
    assert len(store.batches) == _mirror.AHEAD + 1


def test_what_was_collected_behind_a_slow_store_needs_no_other_frame(play, config):
    """It follows as soon as there is room, though the CLI is silent then: the host may die before its next word."""
    gate = threading.Event()

    class Slow(Recorder):
        def append(self, key, entries):
            gate.wait(DEADLINE)
            super().append(key, entries)

    store = Slow()
    steps = [mirror(config, number) for number in range(5 * _mirror.AHEAD)]
    fake = play(init(), *steps, text("said"), ready("said"), wait_for("go"), result("x"))
    with Client(cli_path=fake.path, store=store, store_flush="eager", config_dir=config).run("p") as run:
        next(event for event in run if event.type == "text")
        gate.set()
        until(lambda: sum(len(entries) for _, entries in store.batches) == 5 * _mirror.AHEAD)
        assert len(store.batches) < 3 * _mirror.AHEAD
        fake.release("go")
        assert run.result().result == "x"


@pytest.mark.parametrize("way", ["turn", "end"])
def test_a_refused_entry_beside_an_outage(sole, way):
    """It is lost alone, and keeps nothing behind it from the store, also while the turn goes on."""
    store = Fickle(2)
    known, put = sole(store)
    for number in range(1, 5):
        put(number)
    until(lambda: store.calls > 5)
    store.up = True
    if way == "end":
        known.finish(DEADLINE, lambda: None)
    until(lambda: is_idle(known))
    assert (sorted(store.numbers()), known.lost) == ([1, 3, 4], 1)


def test_the_only_copy_is_not_stored_twice_by_a_slow_failure(sole, monkeypatch):
    """An append that raised too late may have stored all the same."""
    monkeypatch.setattr(_mirror, "APPEND_LIMIT", -1)
    store = Fickle()
    known, put = sole(store)
    put(0)
    until(lambda: is_idle(known))
    assert (store.calls, known.lost) == (1, 1)


def test_a_second_batch_that_hangs_is_taken_away(sole, monkeypatch):
    """It is tried beside a first one that is refused; the worker that comes back from it has nothing more to say."""
    entered, gate, ended = threading.Event(), threading.Event(), threading.Event()

    class Hanging(Recorder):
        def append(self, key, entries):
            number = entries[0]["n"]
            if number == 0 and not entered.is_set():
                raise OSError("no")
            if number == 1:
                entered.set()
                gate.wait(DEADLINE)
            super().append(key, entries)
            if number == 1:
                ended.set()

    store = Hanging()
    known, put = sole(store)
    for number in range(3):
        put(number)
    assert entered.wait(DEADLINE)
    first = known._worker
    monkeypatch.setattr(_mirror, "APPEND_LIMIT", -1)
    known.go_on()
    monkeypatch.setattr(_mirror, "APPEND_LIMIT", 60)
    until(lambda: is_idle(known))
    gate.set()
    assert ended.wait(DEADLINE)
    first.join(DEADLINE)
    assert (store.numbers(), known.lost) == ([0, 2, 1], 1)


def test_nothing_overtakes_a_slow_failure(sole, monkeypatch):
    """That is no refusal: what comes behind it waits."""
    monkeypatch.setattr(_mirror, "QUICK", -1)
    store = Fickle(0)
    store.up = True
    _, put = sole(store)
    put(0)
    put(1)
    until(lambda: store.calls > 8)
    assert store.numbers() == []


def test_a_store_that_comes_back_just_between_two(sole):
    """The first is not lost then, since the second was stored: it has another round."""

    class Back(Recorder):
        def append(self, key, entries):
            if entries[0]["n"] == 0 and not self.batches:
                raise OSError("no")
            super().append(key, entries)

    store = Back()
    known, put = sole(store)
    put(0)
    put(1)
    until(lambda: is_idle(known))
    assert (store.numbers(), known.lost) == ([1, 0], 0)


def test_who_looks_hands_over_no_more_than_may_wait(sole):
    """What comes behind a slow store is collected, however often the reader is woken."""
    gate = threading.Event()

    class Slow(Recorder):
        def append(self, key, entries):
            gate.wait(DEADLINE)
            super().append(key, entries)

    known, put = sole(Slow())
    for number in range(20):
        put(number)
        known.go_on()
    assert len(known._open) == _mirror.AHEAD
    gate.set()


def test_what_is_collected_counts_as_waiting(sole, monkeypatch):
    """What has not been handed over takes memory, too."""
    monkeypatch.setattr(_mirror, "MAX_BACKLOG", 550)
    gate = threading.Event()

    class Slow(Recorder):
        def append(self, key, entries):
            gate.wait(DEADLINE)

    known, put = sole(Slow())
    for number in range(10):
        put(number)
    assert known.lost == 4
    gate.set()


def test_how_long_a_store_is_down_counts_from_its_first_failure(sole, monkeypatch):
    """Each later one would give it as much time again, and the end would take as long as there are batches."""
    now = [0.0]

    class Down(Fickle):
        def append(self, key, entries):
            now[0] += 1
            super().append(key, entries)

    monkeypatch.setattr(_mirror, "monotonic", lambda: now[0])
    monkeypatch.setattr(_mirror, "PERSISTENCE", DEADLINE)
    store = Down()
    known, put = sole(store)
    for number in range(10):
        put(number)
    until(lambda: store.calls == 3)
    known.finish(DEADLINE, lambda: None)
    assert (store.calls, known.lost) == (7, 10)  # its round, its last round, one of the second; then 3 s are over


def test_a_store_that_was_down_is_tried_anew(sole, monkeypatch):
    """What comes when nothing waits any more has its three tries."""
    store = Fickle()
    known, put = sole(store)
    put(0)
    known.flush()
    until(lambda: is_idle(known))
    monkeypatch.setattr(_mirror, "PERSISTENCE", DEADLINE)
    before = store.calls
    put(1)
    until(lambda: store.calls == before + 3)
    store.up = True
    known.finish(DEADLINE, lambda: None)
    assert store.numbers() == [1]


def test_the_reader_does_not_stay_with_what_fails(sole, monkeypatch):
    """At the interpreter's end no thread begins any more: the reader stores then, and no flush can come meanwhile."""

    class Threads:
        Event = threading.Event

        class Thread(threading.Thread):
            def start(self):
                raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(_mirror, "threading", Threads)
    monkeypatch.setattr(_cleanup, "ending", True)
    store = Broken(fail(OSError("no"), 10))
    known, put = sole(store)
    put(1)
    assert is_idle(known)
    assert (known.lost, store.numbers()) == (1, [])


def test_a_store_is_not_called_when_it_was_given_up(sole, monkeypatch):
    """Between two tries: it may be closed by then."""
    store = Fickle()
    known, put = sole(store)

    def given_up(seconds):
        known._open[0].settle(_mirror.Fault("TimeoutError", "the run was ended"))

    monkeypatch.setattr(_mirror, "time", SimpleNamespace(sleep=given_up))
    put(0)
    until(lambda: is_idle(known))
    known._worker.join(DEADLINE)
    assert (store.calls, known.lost) == (1, 1)


def test_what_nobody_waits_for_any_more_is_let_go(sole):
    """A store that hangs for ever must not keep all that waits behind it in memory."""
    entered, gate = threading.Event(), threading.Event()

    class Slow(Recorder):
        def append(self, key, entries):
            entered.set()
            gate.wait(DEADLINE)

    known, put = sole(Slow())
    for number in range(3):
        put(number)
    assert entered.wait(DEADLINE)
    known.abandon("the run was ended")
    assert (known._batches.qsize(), known.lost) == (1, 3)  # the word that the worker is to end
    gate.set()


def test_what_was_stored_before_its_turn_is_not_told_as_waiting(sole):
    """Of two batches the second may be stored while the first is still on its way."""
    entered, gate = threading.Event(), threading.Event()

    class Slow(Recorder):
        def append(self, key, entries):
            entered.set()
            gate.wait(DEADLINE)
            super().append(key, entries)

    known, put = sole(Slow())
    put(0)
    put(1)
    assert entered.wait(DEADLINE)
    known.flush()
    known._open[1].settle(None)
    (event,) = known.report(lambda path: "", waiting=True)
    assert (event.data["entries"], event.data["waiting"]) == (1, True)
    gate.set()


def test_a_store_that_is_down_is_not_asked_for_each_at_the_end(sole, monkeypatch):
    """After a while without a success the rest is lost untried, however much has gathered."""
    monkeypatch.setattr(_mirror, "DOWN_LIMIT", -1)
    monkeypatch.setattr(_mirror, "PERSISTENCE", DEADLINE)
    store = Fickle()
    known, put = sole(store)
    for number in range(50):
        put(number)
    until(lambda: store.calls == 3)
    known.finish(DEADLINE, lambda: None)
    assert known.lost == 50
    assert store.calls <= 6


# --- the local copy


@pytest.fixture
def base(tmp_path, monkeypatch):
    """Where the library puts its own files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_the_only_copy_is_kept(base):
    """A throw-away configuration folder stays if the store has not got everything; without credentials."""
    from claude_cli_client import _files

    folder = _files.PrivateFolder("0" * 32)
    config = Path(folder.config())
    place = config / "projects" / PROJECT
    place.mkdir(parents=True)
    (place / "S.jsonl").write_text("{}\n")
    (config / ".credentials.json").write_text("{}")
    said = folder.stays(str(place / "S.jsonl"))
    folder.keep()
    folder.remove()
    (kept,) = base.iterdir()
    assert said == str(kept / "projects" / PROJECT / "S.jsonl")
    assert lines(Path(said)) == [{}]
    assert [str(path.relative_to(kept)) for path in sorted(kept.rglob("*"))] == [
        "projects", f"projects/{PROJECT}", f"projects/{PROJECT}/S.jsonl",
    ]  # fmt: skip
    assert kept.stat().st_mode & 0o777 == 0o700


def test_a_copy_that_cannot_be_kept(base, monkeypatch):
    """The event names no place then."""
    from claude_cli_client import _files

    folder = _files.PrivateFolder("0" * 32)
    place = Path(folder.config(), "projects", "P")
    place.mkdir(parents=True)
    with monkeypatch.context() as patched:
        patched.setattr(_files.os, "mkdir", lambda *_: fail(OSError("no room"))(0))
        folder.keep()
    assert folder.stays(str(place / "S.jsonl")) == ""
    folder.remove()
    assert list(base.iterdir()) == []


# --- live sessions


@pytest.fixture
def live(play, config):
    """`live(store, *steps)`: the fake, and a session on it that mirrors."""
    sessions = []

    def make(store, *steps, flush="batched"):
        fake = play(*expect_initialize(), *steps, read_stdin())
        session = Client(cli_path=fake.path, store=store, store_flush=flush, config_dir=config).session()
        sessions.append(session)
        return fake, session

    yield make
    for session in sessions:
        session.close(grace=0.5)


def test_a_session_mirrors(live, config):
    """Each turn is stored when its terminal event comes; what follows, when the session is closed."""
    store = Recorder()
    _, session = live(store, turn(mirror(config, 1), text("a"), answer="a"), turn(mirror(config, 2), answer="b"))
    assert session.ask("1").result == "a"
    assert store.numbers() == [1]
    assert session.ask("2").result == "b"
    assert store.numbers() == [1, 2]


@pytest.mark.parametrize("first", [True, False])
def test_a_turn_of_a_session_of_which_nothing_was_written(live, config, first):
    """The event is that turn's, and the entries count for the client, though the store never failed."""
    wrote = [turn(mirror(config, 1), text("a"), answer="a")]
    _, session = live(Recorder(), *([] if first else wrote), turn(text("b"), answer="b"))
    if not first:
        assert errors(session.run("1")) == []
    (event,) = errors(session.run("2"))
    assert "the CLI wrote no transcript" in event.text
    session.close()


def test_lines_behind_the_last_turn(play, config):
    """The CLI's last words, when its input is closed."""
    store = Recorder()
    fake = play(*expect_initialize(), turn(mirror(config, 1), answer="a"), read_stdin(), mirror(config, 2))
    with Client(cli_path=fake.path, store=store, config_dir=config).session() as session:
        session.ask("1")
    assert store.numbers() == [1, 2]


def test_a_turn_waits_for_the_store(live, config, blocked, graces):
    """Its end does; the session answers control requests meanwhile, and takes no other turn."""
    graces(store=1000)
    store = Broken(blocked)
    steps = [turn(mirror(config, 1), answer="a"), expect("mcp_status", {"mcpServers": []})]
    _, session = live(store, *steps)
    run = session.run("1")
    rest = Background(list, run)
    blocked.entered.wait(10)
    assert session.mcp_status() == {"mcpServers": []}
    assert rest.is_waiting
    with pytest.raises(ConcurrencyError):
        session.run("2")
    blocked.released.set()
    assert rest.result()[-1].result == "a"
    assert store.numbers() == [1]


def test_a_store_that_fails_in_a_session(live, config, impatient):
    """Told in the turn whose entries they are, to those who listen too; the next turn is untouched."""
    store = Broken(fail(OSError("no"), 3))
    _, session = live(store, turn(mirror(config, 1), answer="a"), turn(mirror(config, 2), answer="b"))
    everything = session.events()
    first, second = list(session.run("1")), list(session.run("2"))
    assert [event.type for event in first[-2:]] == ["mirror_error", "result"]
    assert errors(second) == []
    assert store.numbers() == [2]
    session.close(grace=0.5)
    assert len(errors(everything)) == 1


def test_a_store_that_hangs_in_a_session(live, config, graces, blocked):
    """The turn ends in bounded time and says that its entries are not stored yet; they are, later."""
    graces(store=0.1)
    store = Broken(blocked)
    _, session = live(store, turn(mirror(config, 1), answer="a"), turn(mirror(config, 2), answer="b"))
    (event,) = errors(session.run("1"))
    assert event.data["waiting"] is True
    assert "not stored yet" in event.text
    graces(store=60)
    blocked.released.set()
    assert errors(session.run("2")) == []
    assert store.numbers() == [1, 2]


@pytest.fixture
def held(monkeypatch):
    """Set when the end of a session's turn waits for the store."""
    held, is_held = threading.Event(), _session_reader.SessionReader._is_held

    def look(reader):
        if found := is_held(reader):
            held.set()
        return found

    monkeypatch.setattr(_session_reader.SessionReader, "_is_held", look)
    return held


def test_whoever_wakes_a_turn_that_waits_for_the_store(live, config, graces, blocked, clock, held):
    """Its time runs from its end, however often the reader looks."""
    graces(store=40)
    _, session = live(Broken(blocked), turn(mirror(config, 1), answer="a"))
    run = session.run("1", timeout=None, idle_timeout=None)
    assert blocked.entered.wait(DEADLINE)
    assert held.wait(DEADLINE)
    clock.move(25, session)
    clock.move(25, session)
    (event,) = errors(run)
    assert event.data["waiting"] is True


def test_what_is_written_while_a_turn_waits_for_the_store(live, config, blocked, graces, held):
    """What background work writes then is not waited for: its turn would not end as long as that goes on."""
    graces(store=1000)
    first = Blocked()
    store = Broken(lambda number: (blocked if number else first)(0))
    steps = turn(mirror(config, 1), answer="a"), wait_for("more"), mirror(config, 2), expect("mcp_status", {})
    fake, session = live(store, *steps)
    rest = Background(list, session.run("1"))
    assert held.wait(DEADLINE)
    fake.release("more")
    session.mcp_status()  # so the reader has what was said before
    first.released.set()
    assert rest.result()[-1].result == "a"
    assert store.numbers() == [1]


@pytest.mark.parametrize("how", ["cancel", "interrupt"])
def test_a_turn_that_nobody_wants_waits_less(live, config, graces, blocked, held, how):
    """One whose end waits for a store is told when it is cancelled, or interrupted, and the grace is over."""
    graces(term=0.1, store=1000)
    _, session = live(Broken(blocked), turn(mirror(config, 1), answer="a"), *expect("interrupt", {}))
    run = session.run("1")
    rest = Background(list, run)
    assert held.wait(DEADLINE)
    getattr(run if how == "cancel" else session, how)()
    assert [event.type for event in rest.result()][-2:] == ["mirror_error", "result"]
    blocked.released.set()


def test_a_turn_of_a_session_that_is_closed_waits_less(play, config, graces, blocked, held):
    """For the store, also where the CLI takes its time to end."""
    graces(term=0.1, store=1000)
    fake = play(*expect_initialize(), turn(mirror(config, 1), answer="a"), wait_for("end"))
    session = Client(cli_path=fake.path, store=Broken(blocked), config_dir=config).session()
    run = session.run("1", timeout=None, idle_timeout=None)
    assert blocked.entered.wait(DEADLINE)
    assert held.wait(DEADLINE)
    session._channel.ask_to_close(1000)
    assert [event.data["waiting"] for event in errors(Background(list, run).result())] == [True]
    fake.release("end")
    blocked.released.set()
    session.close()


def test_a_session_that_dies_while_a_turn_waits(play, config, graces, clock, blocked):
    """The turn gets its answer and its error all the same."""
    graces(store=30)
    store = Broken(blocked)
    fake = play(*expect_initialize(), turn(mirror(config, 1), answer="a"), wait_for("end"), die_by(9))
    session = Client(cli_path=fake.path, store=store, config_dir=config).session()
    rest = Background(list, session.run("1"))
    blocked.entered.wait(10)
    fake.release("end")
    until_gone(fake)
    clock.move(0, session)  # the reader has seen that
    assert rest.is_waiting
    clock.move(31, session)
    events = rest.result()
    assert [event.type for event in events][-2:] == ["mirror_error", "result"]
    assert events[-1].result == "a"
    session.close()


def test_who_leaves_a_turn_waits_less(live, config, graces, blocked):
    """Leaving its `with` cuts the wait for the store short."""
    graces(term=0.1, store=60)
    _, session = live(Broken(blocked), turn(mirror(config, 1), answer="a"))
    with session.run("1") as run:
        blocked.entered.wait(10)
    assert run.done
    assert run.result().result == "a"
    blocked.released.set()


def test_control_requests_do_not_wait_for_a_store(play, config, graces, blocked):
    """Who asks a CLI that has died is told at once, although the session's end waits."""
    graces(store=60, term=0.1)
    steps = turn(mirror(config, 1), answer="a"), wait_for_line({"type": "control_request"}), die_by(9)
    fake = play(*expect_initialize(), *steps)
    session = Client(cli_path=fake.path, store=Broken(blocked), config_dir=config).session()
    rest = Background(list, session.run("1"))
    blocked.entered.wait(10)
    asked = Background(session.mcp_status)
    with pytest.raises(SessionClosedError):
        asked.result()
    assert rest.is_waiting
    session.close(grace=0.1)
    assert rest.result()[-1].result == "a"


def test_closing_a_session_on_a_store_that_hangs(live, config, graces, blocked):
    """It takes no longer than the grace of the close."""
    graces(term=0.1, store=60)
    _, session = live(Broken(blocked), turn(mirror(config, 1), answer="a"))
    run = session.run("1")
    blocked.entered.wait(10)
    session.close(grace=0.2)
    assert session.closed
    assert run.result().result == "a"


# --- what cannot work


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"persist_session": False}, "persist_session"),
        ({"enable_file_checkpointing": True}, "checkpoint"),
        ({"resume": SESSION_ID, "command_prefix": ["env"]}, "command_prefix"),
    ],
)
def test_combinations_that_cannot_work(options, says):
    """Refused when the client is made, at the call, and by `with_options`; nothing is started."""
    with pytest.raises(ValueError, match=says):
        Client(store=Recorder(), **options)
    client = Client(store=Recorder(), cli_path="/not/there")
    for call in (client.run, client.ask):
        with pytest.raises(ValueError, match=says):
            call("p", **options)
    with pytest.raises(ValueError, match=says):
        client.session(**options)
    with pytest.raises(ValueError, match=says):
        client.with_options(**options)


class Small:
    def append(self, key, entries):
        return

    def load(self, key):
        return None


def test_the_latest_session_of_a_store_that_lists_none():
    """`continue_conversation` needs `list_sessions`; `resume` does not."""
    client = Client(store=Small(), cli_path="/not/there")
    with pytest.raises(ValueError, match="list_sessions"):
        client.run("p", continue_conversation=True)


class Later:
    async def append(self, key, entries):
        return

    def load(self, key):
        return None


class Nothing(SessionStore):
    """Says that it is a store, and has the bodies of the protocol."""


@pytest.mark.parametrize(
    ("store", "says"),
    [
        (object(), "append"),
        (Small, "make one"),
        ({}, "append"),
        (Later(), "plain"),
        (7, "append"),
        (Nothing(), "append"),
    ],
)
def test_what_is_no_store(store, says):
    """Refused, with what it lacks."""
    with pytest.raises(ValueError, match=says):
        Client(store=store)


def test_store_flush():
    """One of two words, and nothing without a store."""
    with pytest.raises(ValueError, match="batched"):
        Client(store=Recorder(), store_flush="now")
    with pytest.raises(ValueError, match="store="):
        Client(store_flush="eager")
    with pytest.raises(TypeError, match="Client"):
        Client().run("p", store=Recorder())


# --- forks, the end of the interpreter

HOST = """
class Store:
    def __init__(self):
        self.numbers = []
    def append(self, key, entries):
        say("append")
        if hangs:
            threading.Event().wait(60)
        self.numbers += [entry["n"] for entry in entries]
    def load(self, key):
        return None

store = Store()
client = Client(cli_path=os.environ["FAKE_CLI"], store=store, config_dir=os.environ["CONFIG"])
"""

# For hosts of whose end it is known (by the first test below) that it does not wait longer than this.
SOON = "_cleanup._EXIT_GRACE = 0.2\n"


def host(fake, config, source, *, hangs=True):
    return Host(f"hangs = {hangs}\n{HOST}{source}", fake, env={"CONFIG": str(config)})


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


@needs_proc
def test_the_interpreter_ends_while_a_store_hangs(play, config):
    """Within the bound of the exit hook, with the CLI gone."""
    fake = play(init(), mirror(config, 1), result("x"))
    with host(fake, config, "run = client.run('p'); hear('go')") as program:
        program.expect("append")
        program.tell("go")
        assert program.end(30) == 0
    assert fake.alive() == []


@needs_proc
def test_the_interpreter_ends_in_the_middle_of_a_turn(play, config):
    """What came is stored before it ends, if the store takes it."""
    fake = play(init(), mirror(config, 1), ready("said"), hang())
    source = (
        "from claude_cli_client import _cleanup\n"
        "_cleanup._EXIT_GRACE = _cleanup._EXIT_BOUND = 60\n"  # for a machine under load
        "run = client.run('p'); hear('go'); import atexit; atexit.register(lambda: say(store.numbers))"
    )
    with host(fake, config, source, hangs=False) as program:
        fake.wait("said")
        program.tell("go")
        assert program.lines() == ["append", "[1]"]
        assert program.end() == 0


@needs_proc
def test_ctrl_c_while_the_store_hangs(play, config):
    """It comes out at once; the end of the program waits for a bounded time."""
    import signal

    fake = play(init(), mirror(config, 1), result("x"))
    source = f"{SOON}try:\n    client.ask('p')\nexcept KeyboardInterrupt:\n    say('out')\n"
    with host(fake, config, source) as program:
        program.expect("append")
        program.kill(signal.SIGINT)
        program.expect("out")
        assert program.end(30) == 0


@needs_proc
def test_a_fork_while_a_store_hangs(play, config):
    """The child has the client and its store, and none of the parent's mirrors; it ends at once."""
    fake = play(init(), mirror(config, 1), result("x"))
    source = """
import warnings
warnings.simplefilter("ignore")
run = client.run('p')
hear('go')
pid = os.fork()
if not pid:
    hangs = False
    assert client.ask('p').result == 'x'
    assert store.numbers == [1]
    os._exit(7)
say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    with host(fake, config, SOON + source) as program:
        program.expect("append")
        program.tell("go")
        program.expect("append")
        program.expect("7")
        assert program.end(30) == 0


@pytest.mark.parametrize("way", ["cancel", "hard"])
def test_a_turn_of_a_dead_session_does_not_wait_for_the_store(play, tmp_path, graces, clock, way):
    """The CLI has died and the store hangs: who cancels the turn, or presses Ctrl-C twice, is not held up."""
    graces(term=0.2 if way == "cancel" else 1000, store=1000)
    blocked = Blocked()
    fake = play(expect_initialize(), turn(mirror(tmp_path, 1), answer="a"), wait_for("end"), die_by(9))
    session = Client(cli_path=fake.path, store=Broken(blocked), config_dir=tmp_path).session()
    run = session.run("1")
    assert blocked.entered.wait(DEADLINE)
    fake.release("end")
    until_gone(fake)
    clock.move(0, session)  # the reader has seen that
    assert not run.done
    run._channel.cancel(hard=way == "hard")
    until(lambda: run.done)
    blocked.released.set()
    session.close()


@pytest.mark.parametrize("way", ["limit", "interrupt"])
def test_a_stopped_turn_of_a_session_waits_less_for_the_store(play, tmp_path, graces, clock, way):
    """As one that is cancelled: the store gets the ladder's grace, and what it did not take is told."""
    graces(term=0.2, store=1000)
    blocked = Blocked()
    fake = play(expect_initialize(), began(), mirror(tmp_path, 1), ready("on"), interrupted(), read_stdin())
    client = Client(cli_path=fake.path, store=Broken(blocked), store_flush="eager", config_dir=tmp_path)
    with client.session() as session:
        run = session.run("1", timeout=30)
        fake.wait("on")
        if way == "interrupt":
            session.interrupt()
        else:
            clock.move(31, session)  # and not the minute of an append
        *_, lost, last = Background(list, run).result()
        assert lost.type == "mirror_error"
        assert lost.data["waiting"] is True
        assert last.is_terminal
        assert isinstance(run.error(), TurnTimeout if way == "limit" else InterruptedTurnError)
        blocked.released.set()
