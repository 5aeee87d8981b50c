"""The simulated CLI and a store: it writes, mirrors and resumes as `test_real_store.py` claims of the real one."""

from __future__ import annotations

import json
import shutil
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest
from mirror_stores import Broken, Recorder, fail
from waiting import until

from claude_cli_client import (
    MIRROR_ERROR,
    Client,
    MemoryStore,
    ResultError,
    SessionInUseError,
    SessionKey,
    StaleSessionError,
    TurnCancelled,
    _mirror,
    fork_session,
    get_messages,
    get_session,
    rename_session,
    tag_session,
)
from claude_cli_client._project_key import project_key
from claude_cli_client.testing import SESSION_ID, SimulatedCLI

LIVE = {"can_use_tool": lambda request: True}
WAYS = {"text": {}, "live": LIVE}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A HOME of the test's own: without a `config_dir` the transcripts go there."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return place


@pytest.fixture
def cwd(tmp_path):
    place = tmp_path / "work"
    place.mkdir()
    return place


@pytest.fixture
def fake(home):
    with SimulatedCLI() as cli:
        yield cli


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(_mirror, "PAUSES", (0.0, 0.0))


def prompts(session_id, cwd, **place):
    """What was asked, as the transcript tells it."""
    messages = get_messages(session_id, cwd, **place)
    return [message.text for message in messages if message.type == "user" and message.text]


def kept(store):
    return [entry for _, batch in list(store.batches) for entry in batch]


def transcripts(home):
    return sorted((home / ".claude").glob("projects/*/*.jsonl"))


# --- the chain


def test_its_turns_are_a_chain(fake, cwd):
    """Of messages, also over a resume; the words end with what it was asked last."""
    store = Recorder()
    client = Client(cli_path=fake.path, store=store, cwd=cwd)
    first = client.ask("One.")
    client.ask("Two.", resume=first.session_id)
    (key,) = {key for key, _ in store.batches}
    assert key == SessionKey(project_key(str(cwd.resolve())), first.session_id)
    chain = [entry for entry in store.entries(key) if "uuid" in entry]
    assert [entry["parentUuid"] for entry in chain] == [None, *(entry["uuid"] for entry in chain[:-1])]
    assert store.entries(key)[-1]["lastPrompt"] == "Two."


def test_a_session_stays_in_its_project(fake, cwd, tmp_path):
    """Where it began; a copy of it is the new folder's."""
    store = Recorder()
    client = Client(cli_path=fake.path, store=store)
    first = client.ask("One.", cwd=cwd).session_id
    client.ask("Two.", cwd=tmp_path, resume=first)
    copy = client.ask("Three.", cwd=tmp_path, resume=first, fork_session=True).session_id
    here, there = (project_key(str(path.resolve())) for path in (cwd, tmp_path))
    assert {key for key, _ in store.batches} == {SessionKey(here, first), SessionKey(there, copy)}


@pytest.mark.parametrize("where", ["store", "disk"])
def test_a_copy_that_the_library_made_goes_on(fake, home, cwd, where):
    """From its last message: the title behind that has a uuid, and no place in the chain."""
    store = MemoryStore()
    client = Client(cli_path=fake.path, store=store, cwd=cwd)
    place = {"store": store} if where == "store" else {"config_dir": home / ".claude"}
    copy = fork_session(client.ask("One.").session_id, cwd, **place)
    client.ask("Two.", resume=copy)
    assert prompts(copy, cwd, store=store) == ["One.", "Two."]


def test_titles_and_tags_are_passed_over(fake, home, cwd):
    """As lines of the file between two turns."""
    store = MemoryStore()
    client = Client(cli_path=fake.path, store=store, cwd=cwd)
    session = client.ask("One.").session_id
    for place in ({"store": store}, {"config_dir": home / ".claude"}):
        rename_session(session, "A title", cwd, **place)
        tag_session(session, "a-tag", cwd, **place)
    client.ask("Two.", resume=session)
    assert prompts(session, cwd, store=store) == ["One.", "Two."]


def test_a_prompt_keeps_its_uuid(fake, cwd):
    """The one under which a client sent it."""
    store = Recorder()
    Client(cli_path=fake.path, store=store, cwd=cwd, **LIVE).ask("One.")
    (sent,) = (line["uuid"] for line in fake.calls[0].messages if line["type"] == "user")
    assert kept(store)[0]["uuid"] == sent


# --- copies


@pytest.mark.parametrize("way", ["ask", "conversation", "session"])
def test_a_copy_has_its_history_in_the_store(fake, cwd, way):
    """Under the uuids of the original, which stays as it was; the next turn misses nothing."""
    store = MemoryStore()
    client = Client(cli_path=fake.path, store=store, cwd=cwd)
    chat = client.conversation()
    original = chat.ask("One.").session_id
    if way == "ask":
        copy = client.ask("Two.", resume=original, fork_session=True).session_id
    elif way == "conversation":
        copy = chat.ask("Two.", fork_session=True).session_id
    else:
        with client.session(resume=original, fork_session=True) as session:
            copy = session.ask("Two.").session_id
    assert [event.type for event in client.run("Three.", resume=copy) if event.type == MIRROR_ERROR] == []
    assert prompts(copy, cwd, store=store) == ["One.", "Two.", "Three."]
    assert prompts(original, cwd, store=store) == ["One."]
    shared = {message.uuid for message in get_messages(original, cwd, store=store)}
    assert shared < {message.uuid for message in get_messages(copy, cwd, store=store)}


# --- a turn that ends early


@pytest.mark.parametrize("way", WAYS)
def test_a_first_turn_that_is_ended_is_kept(fake, cwd, way):
    """Its prompt is in the store with its first line, so a conversation goes on from it."""
    store = MemoryStore()
    chat = Client(cli_path=fake.path, store=store, cwd=cwd).conversation(**WAYS[way])
    run = chat.run("One. [[hang]]")
    next(event for event in run if event.type == "system")
    run.cancel()
    with pytest.raises(TurnCancelled):
        run.result()
    chat.ask("Two.")
    assert prompts(chat.session_id, cwd, store=store) == ["One. [[hang]]", "Two."]


def test_each_line_is_mirrored_when_it_is_said(fake, cwd):
    """So an eager store has it while the turn is on, in the order of the file."""
    store = Recorder()
    client = Client(cli_path=fake.path, store=store, store_flush="eager", cwd=cwd)
    with client.run("One. [[slow: 600]]") as run:
        said = [entry["type"] for entry in until(lambda: len(kept(store)) == 3 and kept(store))]
        assert said == ["user", "assistant", "user"]
        assert not run.done


@pytest.mark.parametrize("way", ["run", "session", "isolated"])
def test_a_turn_whose_transcript_goes_with_it_is_stored_while_it_is_on(fake, cwd, way):
    """Resumed from a store, or isolated: a host that dies leaves no other copy. No option is needed for it."""
    store = Recorder()
    client = Client(cli_path=fake.path, store=store, cwd=cwd)
    options = {"isolated": True} if way == "isolated" else {"resume": client.ask("One.").session_id}
    before, prompt = len(kept(store)), "Two. [[slow: 600]]"
    with ExitStack() as opened:
        if way == "session":
            run = opened.enter_context(client.session(**options)).run(prompt)
        else:
            run = opened.enter_context(client.run(prompt, **options))
        said = until(lambda: len(kept(store)) == before + 3 and kept(store)[before:])
        assert not run.done
    assert [entry["type"] for entry in said] == ["user", "assistant", "user"]


@pytest.mark.parametrize("way", ["run", "session"])
@pytest.mark.parametrize("fails", [3, 4])
def test_an_outage_in_the_middle_of_such_a_turn(fake, cwd, impatient, way, fails):
    """What failed is tried again with the result, as if it had waited for that: it has all, and nobody is told."""
    store = Broken(fail(OSError("no"), fails))
    client = Client(cli_path=fake.path, store=store, cwd=cwd)
    with ExitStack() as opened:
        if way == "session":
            run = opened.enter_context(client.session(isolated=True)).run("One. [[tools: 3]]")
        else:
            run = opened.enter_context(client.run("One. [[tools: 3]]", isolated=True))
        assert [event for event in run if event.type == MIRROR_ERROR] == []
        messages = get_messages(run.session_id, cwd, store=store)
    assert [message.type for message in messages] == ["user", *["assistant", "user"] * 3, "assistant"]


def test_a_store_that_is_gone_in_such_a_turn(fake, cwd, impatient):
    """What failed all the time is told once, with all of its entries, and soon: one more try for what came before."""
    whole = Recorder()
    list(Client(cli_path=fake.path, store=whole, cwd=cwd).run("One. [[tools: 30]]"))
    store = Broken(fail(OSError("no")))
    (lost,) = [
        event
        for event in Client(cli_path=fake.path, store=store, cwd=cwd).run("One. [[tools: 30]]", isolated=True)
        if event.type == MIRROR_ERROR
    ]
    assert (lost.data["entries"], lost.errors) == (len(kept(whole)), ("OSError: no",))
    assert store.calls < len(kept(whole)) + 12
    shutil.rmtree(Path(lost.data["path"]).parents[2])


def test_a_blocked_first_prompt_leaves_a_session(fake, cwd):
    """With a line that says so, and no prompt: the conversation goes on from it."""
    blocks = {"UserPromptSubmit": lambda call: {"decision": "block", "reason": "no"}}
    store = MemoryStore()
    chat = Client(cli_path=fake.path, store=store, cwd=cwd).conversation()
    list(chat.run("One.", hooks=blocks))
    chat.ask("Two.")
    assert prompts(chat.session_id, cwd, store=store) == ["Two."]


# --- what is resumed


@pytest.mark.parametrize("way", ["run", "session"])
@pytest.mark.parametrize("wanted", [SESSION_ID, "No such title"])
def test_a_session_that_it_does_not_know(fake, cwd, way, wanted):
    """By id or title: refused as by the real CLI, and nothing is stored."""
    store = Recorder()
    client = Client(cli_path=fake.path, store=store, cwd=cwd)
    with pytest.raises(StaleSessionError, match=wanted):
        client.ask("Hi.", resume=wanted) if way == "run" else client.session(resume=wanted)
    assert store.batches == []


@pytest.mark.parametrize("way", ["name", "rename"])
def test_a_title_is_found(fake, home, cwd, way):
    """As `name` made it, or `rename_session` on the disk; capitals do not matter."""
    store = MemoryStore()
    client = Client(cli_path=fake.path, store=store, cwd=cwd)
    session = client.ask("One.", name="My Title" if way == "name" else None).session_id
    if way == "rename":
        rename_session(session, "My Title", cwd, config_dir=home / ".claude")
    assert client.ask("Two.", resume=" my title").session_id == session
    assert get_session(session, cwd, store=store).custom_title == "My Title"


def test_a_title_that_two_have(fake, cwd):
    """Neither is taken; the words say which there are."""
    client = Client(cli_path=fake.path, store=MemoryStore(), cwd=cwd)
    twins = [client.ask("One.", name="Twins").session_id for _ in range(2)]
    with pytest.raises(ResultError, match=r'"Twins" matches 2 sessions') as caught:
        client.ask("Three.", resume="Twins")
    assert all(twin in str(caught.value) for twin in twins)


def test_a_title_that_two_of_a_store_have(fake, tmp_path, cwd):
    """On another machine the CLI knows of neither; the words say what is wrong, and nothing is begun anew."""
    client = Client(cli_path=fake.path, store=MemoryStore(), cwd=cwd)
    for _ in range(2):
        client.ask("One.", name="Twins")
    elsewhere = client.with_options(config_dir=tmp_path / "other")
    with pytest.raises(StaleSessionError, match="2 sessions of the store have this title: give the id of one"):
        elsewhere.conversation("Twins", restart_stale=True).ask("Three.")


def test_a_copy_has_the_title_of_its_original(fake, cwd):
    """In the store as well; a name of its own comes before that."""
    store = MemoryStore()
    client = Client(cli_path=fake.path, store=store, cwd=cwd)
    original = client.ask("One.", name="First").session_id
    copies = [client.ask("Two.", resume=original, fork_session=True, name=name).session_id for name in (None, "Other")]
    assert [get_session(copy, cwd, store=store).custom_title for copy in copies] == ["First", "Other"]


def test_an_id_that_is_taken(fake, cwd):
    """Is not given to a new session."""
    client = Client(cli_path=fake.path, store=MemoryStore(), cwd=cwd)
    client.ask("One.", session_id=SESSION_ID)
    with pytest.raises(SessionInUseError):
        client.ask("Two.", session_id=SESSION_ID)


# --- the files


def test_the_file_is_what_was_mirrored(fake, home, cwd):
    """Line by line, readable by its owner alone."""
    store = Recorder()
    session = Client(cli_path=fake.path, store=store, cwd=cwd).ask("One. \u00e9\ud83d").session_id
    (path,) = transcripts(home)
    assert [json.loads(line) for line in path.read_text().splitlines()] == kept(store)
    assert (path.stem, stat.S_IMODE(path.stat().st_mode)) == (session, 0o600)


@pytest.mark.parametrize("way", ["new", "resumed", "isolated"])
def test_the_local_copy_has_what_the_store_lacks(fake, home, cwd, impatient, way):
    """At the place that the event names; as a configuration folder it has the session."""
    store = MemoryStore()
    client = Client(cli_path=fake.path, store=store, cwd=cwd, isolated=way == "isolated")
    session = client.ask("One.").session_id if way == "resumed" else None
    store.append = fail(OSError("no"))
    *_, event, _ = client.run("Two.", resume=session)
    assert event.type == MIRROR_ERROR
    path = Path(event.data["path"])
    before = ["One."] if session else []
    assert prompts(event.session_id, cwd, config_dir=path.parents[2]) == [*before, "Two."]
    if way == "new":
        assert path.parents[2] == home / ".claude"
    else:
        shutil.rmtree(path.parents[2])  # kept for whoever goes on from there


def test_a_turn_that_the_store_did_not_take_is_there_for_the_next(fake, cwd, impatient):
    """From the disk, which gives it to the store."""
    store = MemoryStore()
    chat = Client(cli_path=fake.path, store=store, cwd=cwd).conversation()
    store.append = fail(OSError("no"))
    chat.ask("One.")
    del store.append
    chat.ask("Two.")
    assert prompts(chat.session_id, cwd, store=store) == ["One.", "Two."]


def test_a_persons_transcript_is_left_alone(fake, home, cwd):
    """It is resumed and mirrored; the file, which no simulation began, stays as it was."""
    store = MemoryStore()
    line = {
        "parentUuid": None, "isSidechain": False, "type": "user", "message": {"role": "user", "content": "Mine."},
        "uuid": "00000000-0000-4000-8000-000000000001", "sessionId": SESSION_ID, "cwd": str(cwd), "entrypoint": "cli",
        "timestamp": "2026-11-30T10:48:00.332Z",
    }  # fmt: skip
    path = home / ".claude" / "projects" / project_key(str(cwd.resolve())) / f"{SESSION_ID}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(line) + "\n")
    before = path.read_bytes()
    Client(cli_path=fake.path, store=store, cwd=cwd).ask("Two.", resume=SESSION_ID)
    assert path.read_bytes() == before
    assert prompts(SESSION_ID, cwd, store=store) == ["Mine.", "Two."]


def test_what_it_wrote_below_home_goes_with_it(fake, home, cwd):
    """And nothing else; a folder that somebody gave keeps its own."""
    store = MemoryStore()
    client = Client(cli_path=fake.path, store=store, cwd=cwd)
    client.ask("One.")
    (path,) = transcripts(home)
    other = path.with_name("other.jsonl")
    other.touch()
    given = home / "given"
    session = client.ask("Two.", config_dir=given).session_id
    fake.close()
    assert transcripts(home) == [other]
    assert prompts(session, cwd, config_dir=given) == ["Two."]


def test_nothing_at_all_stays_below_home(fake, home, cwd):
    """Not even the folders that it had to make."""
    Client(cli_path=fake.path, store=MemoryStore(), cwd=cwd).ask("One.")
    fake.close()
    assert list(home.iterdir()) == []


def test_without_a_store_nothing_is_written(fake, home, cwd):
    """And any id and title are resumed."""
    client = Client(cli_path=fake.path, cwd=cwd)
    assert client.ask("One.", resume=SESSION_ID).session_id == SESSION_ID
    client.ask("Two.", resume="A title")
    assert list(home.iterdir()) == []


def test_a_folder_that_cannot_be_written_to(fake, cwd, tmp_path):
    """Is told on stderr; the mirror has the turn."""
    (tmp_path / "file").touch()
    store = MemoryStore()
    elsewhere = ["env", f"HOME={tmp_path / 'file'}"]  # else the client looks, and refuses
    run = Client(cli_path=fake.path, store=store, cwd=cwd, command_prefix=elsewhere).run("One.")
    session = run.result().session_id
    assert "no transcript is written" in run.stderr
    assert prompts(session, cwd, store=store) == ["One."]
