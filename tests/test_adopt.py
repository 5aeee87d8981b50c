"""A session that is on this disk and not, or not wholly, in the store: the store gets it before the turn."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from mirror_stores import Broken, Greedy, Recorder, fail
from waiting import DEADLINE, until

from claude_cli_client import Client, SessionKey, StoreError, _adopt, _restore, get_messages, get_session
from claude_cli_client._adopt import completed, has_gap
from claude_cli_client._project_key import project_key
from claude_cli_client.testing import SESSION_ID, expect_initialize, init, read_stdin, ready, result, turn, wait_for

OTHER = "00000000-0000-4000-8000-000000000002"


def said(number: int, parent: int | None = None, **more: Any) -> dict[str, Any]:
    """A message behind the one before, or behind `parent`; the first one behind none."""
    before = number - 1 if parent is None else parent
    links = {"uuid": uuid(number), "parentUuid": uuid(before) if before else None}
    return {"type": "user", **links, "message": {"role": "user", "content": f"p{number}"}, **more}


def compaction(number: int, before: int, *kept: int) -> dict[str, Any]:
    """A boundary, whose summary is the next message; what it kept belongs behind that."""
    messages = {"anchorUuid": uuid(number + 1), "uuids": [*map(uuid, kept)]}
    links = {"uuid": uuid(number), "parentUuid": None, "logicalParentUuid": uuid(before)}
    metadata = {"preservedMessages": messages} if kept else {}
    return {"type": "system", "subtype": "compact_boundary", **links, "compactMetadata": metadata}


def uuid(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012}"


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def config(tmp_path):
    return tmp_path / "config"


@pytest.fixture
def key(work):
    return SessionKey(project_key(str(work.resolve())), SESSION_ID)


@pytest.fixture
def local(config, key):
    """`local(entries, session, subpath)`: writes a transcript of this disk."""

    def write(*entries: Any, session: str = SESSION_ID, subpath: str = "") -> Path:
        path = config / "projects" / key.project_key / session / subpath if subpath else None
        path = path or config / "projects" / key.project_key / f"{session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        return path

    return write


@pytest.fixture
def resume(play, work, config):
    """`resume(store, **options)`: runs a turn; its events, and the words and files that the CLI was given."""

    def run(store, **options):
        fake = play(init(), ready("here"), wait_for("end"), result("x"))
        client = Client(cli_path=fake.path, store=store, config_dir=config, cwd=work)
        turn = client.run("p", **(options or {"resume": SESSION_ID}))
        fake.wait("here")
        (call,) = fake.calls
        given = Path(call.env["CLAUDE_CONFIG_DIR"])
        laid_out = [*given.rglob(f"{SESSION_ID}.jsonl")] if given != config else []
        entries = [json.loads(line) for path in laid_out for line in path.read_text().splitlines()]
        numbers = [int(entry["uuid"][-12:]) for entry in entries if "uuid" in entry]
        fake.release("end")
        return list(turn), call.argv, numbers

    return run


def stored(store: Recorder, key: SessionKey) -> list[int]:
    return [int(entry["uuid"][-12:]) for entry in store.entries(key) if "uuid" in entry]


def test_a_session_that_is_only_on_this_disk(resume, local, key):
    """The store has it before the turn, subagents too; the CLI goes on with its own file."""
    local({"type": "api-request", "x": 1}, said(1), {"type": "custom-title", "customTitle": "T"}, said(2))
    agent = local(said(7, 0), subpath="subagents/agent-a.jsonl")
    agent.with_suffix(".meta.json").write_text('{"toolUseId": "t"}')
    store = Recorder()
    _, argv, numbers = resume(store)
    assert stored(store, key) == [1, 2]
    assert [entry["type"] for entry in store.entries(key)] == ["user", "custom-title", "user"]
    of_agent = store.entries(key._replace(subpath="subagents/agent-a"))
    assert [entry["type"] for entry in of_agent] == ["agent_metadata", "user"]
    assert store.batches[-1][0] == key  # so that the main transcript is there only when all is
    assert f"--resume={SESSION_ID}" in argv
    assert numbers == []


def test_the_latest_session_of_this_disk(resume, local, key):
    """`continue_conversation`: where the store has none of the project, the one that the CLI will take."""
    old = local(said(1), session=OTHER)
    os.utime(old, (1, 1))
    local(said(2, 0))
    store = Recorder()
    _, argv, _ = resume(store, continue_conversation=True)
    assert stored(store, key) == [2]
    assert f"--resume={SESSION_ID}" in argv  # that one and no other


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_title(resume, local, key, is_stored):
    """Only the disk knows whose it is. Stored, it is laid out and resumed by its id."""
    local(said(1), {"type": "custom-title", "customTitle": "My work", "sessionId": SESSION_ID})
    store = Recorder()
    if is_stored:
        store.put(key, said(1), said(2))
    _, argv, numbers = resume(store, resume="My work")
    assert stored(store, key) == ([1, 2] if is_stored else [1])
    assert numbers == ([1, 2] if is_stored else [])
    assert f"--resume={SESSION_ID}" in argv  # that one and no other


@pytest.mark.parametrize("word", ["my title", " MY TITLE "])
def test_a_title_as_the_cli_compares_it(resume, local, key, word):
    """Without regard to case and to blanks around it."""
    local(said(1), {"type": "custom-title", "customTitle": "My Title", "sessionId": SESSION_ID})
    store = Recorder()
    resume(store, resume=word)
    assert stored(store, key) == [1]


@pytest.mark.parametrize("others", [0, 2])
def test_a_title_of_nobody_or_of_several(resume, local, others):
    """Left to the CLI, which says so; nothing goes to the store."""
    local(said(1))
    for number in range(others):
        name = f"00000000-0000-4000-8000-{number:012}"
        local(said(1), {"type": "custom-title", "customTitle": "Another", "sessionId": name}, session=name)
    store = Recorder()
    _, argv, _ = resume(store, resume="Another")
    assert store.batches == []
    assert "--resume=Another" in argv


def test_a_store_that_has_the_end_only(resume, local, key):
    """What stands before it is taken from this disk, laid out in order, and stored; what the store alone has stays."""
    local(said(1), said(2), said(3))
    store = Recorder()
    store.put(key, said(3), said(4))
    events, _, numbers = resume(store)
    assert numbers == [1, 2, 3, 4]
    assert sorted(stored(store, key)) == [1, 2, 3, 4]
    assert [event.type for event in events] == ["system", "result"]


def test_what_nobody_has_is_told(resume, key, caplog):
    """The turn runs on what there is, and an event and the log say that it is a part."""
    store = Recorder()
    store.put(key, said(3), said(4))
    events, _, numbers = resume(store)
    assert numbers == [3, 4]
    assert [event.type for event in events] == ["system", "mirror_error", "result"]
    assert "only a part" in events[1].text
    assert "only a part" in caplog.text


def test_the_event_of_what_nobody_has(resume, key):
    """It names the session as the events of the mirror do; no entry was lost, and no file is left."""
    store = Recorder()
    store.put(key, said(3))
    data = next(event.data for event in resume(store)[0] if event.type == "mirror_error")
    assert SessionKey(data["project_key"], data["session_id"], data["subpath"]) == key
    assert (data["entries"], data["waiting"], data["path"]) == (0, False, "")


def test_what_nobody_has_is_told_in_a_session(play, work, config, key):
    """With its first turn, and once."""
    store = Recorder()
    store.put(key, said(3), said(4))
    fake = play(expect_initialize(), turn(), turn(), read_stdin())
    client = Client(cli_path=fake.path, store=store, config_dir=config, cwd=work)
    with client.session(resume=SESSION_ID) as session:
        assert [event.type for event in session.run("a")].count("mirror_error") == 1
        assert [event.type for event in session.run("b")].count("mirror_error") == 0


def test_a_store_that_has_something_of_its_own_is_believed(resume, local, key):
    """Also where this disk has more: another machine has gone on from there."""
    local(said(1), said(2), said(3))
    store = Recorder()
    store.put(key, said(1), said(2), said(4, 2))
    _, _, numbers = resume(store)
    assert numbers == [1, 2, 4]
    assert stored(store, key) == [1, 2, 4]


def note(number: int) -> dict[str, str]:
    """Of what the end of the conversation is, whatever comes behind it."""
    return {"type": "last-prompt", "lastPrompt": "", "leafUuid": uuid(number), "sessionId": SESSION_ID}


def test_a_store_that_misses_the_end(resume, local, key):
    """Turns that it did not take, or that were made without it: it gets them, once."""
    local(said(1), said(2), note(2), said(3), note(3), said(4))
    store = Recorder()
    store.put(key, said(1), said(2))
    for _ in range(2):
        _, _, numbers = resume(store)
        assert numbers == [1, 2, 3, 4]
        assert store.entries(key) == [said(1), said(2), said(3), said(4), note(4)]


def test_a_side_leaf_that_was_missed(resume, local, key):
    """Nothing hangs on it, so it stands behind the rest now; the end is still the end."""
    entries = [said(1), said(2), said(3), said(6, 2), said(7, 3), said(8), said(9)]
    local(*entries)
    store = Recorder()
    store.put(key, *(entry for entry in entries if entry["uuid"] != uuid(6)))
    for _ in range(2):
        resume(store)
        assert stored(store, key) == [1, 2, 3, 7, 8, 9, 6]
        assert [message.uuid for message in get_messages(SESSION_ID, store=store)][-1] == uuid(9)


def test_a_side_leaf_of_a_subagent(key):
    """Its end is never noted: what stands further up, and nothing hangs on it, is left out."""
    agent = key._replace(subpath="subagents/agent-a")
    entries = [said(1), said(2), said(6, 1), said(3, 2), said(4)]
    there = [entries[0], entries[1], entries[3]]
    _, lacking = completed([(key, [said(1)]), (agent, there)], [(agent, entries), (key, [said(1)])])
    assert lacking == [(agent, [said(4)])]


def test_a_hole_and_the_end(key):
    """Both come, each where it belongs."""
    entries = [{**said(number), "timestamp": str(number)} for number in range(1, 7)]
    there = [entries[0], entries[2], entries[3]]
    whole, lacking = completed([(key, there)], [(key, entries)])
    assert [entry for entry in whole[0][1] if "uuid" in entry] == entries
    assert lacking == [(key, [entries[1], *entries[4:], note(6)])]


def calling(number: int, parent: int, *names: str) -> dict[str, Any]:
    calls = [{"type": "tool_use", "id": f"call-{name}", "name": "Agent", "input": {}} for name in names]
    return {**said(number, parent), "type": "assistant", "message": {"role": "assistant", "content": calls}}


@pytest.mark.parametrize(
    ("there", "kept"),
    [([said(1), calling(2, 1, "a"), said(4, 2)], "ac"), ([said(1), calling(2, 1, "a")], "abc"), ([said(1)], "abc")],
    ids=["another machine has gone on", "the end is missing", "most is missing"],
)
def test_subagents_of_a_branch_that_stays_here(key, there, kept):
    """They stay, too: the conversation of the store does not know them. One of a subagent goes with that."""
    agents = {name: key._replace(subpath=f"subagents/agent-{name}") for name in "abc"}
    about = {
        name: {"type": "agent_metadata", "toolUseId": f"call-{name}", "spawnDepth": depth}
        for name, depth in (("a", 1), ("b", 1), ("c", 2))
    }
    entries = {"a": [calling(10, 0, "c")], "b": [said(11, 0)], "c": [said(12, 0)]}
    local = [(agents[name], [about[name], *entries[name]]) for name in "cab"]
    local.append((key, [said(1), calling(2, 1, "a"), calling(3, 1, "b")]))
    _, lacking = completed([(key, there)], local)
    assert sorted(of.subpath[-1] for of, _ in lacking if of.subpath) == list(kept)


def agent_of_nobody(key, *entries):
    """A subagent whose call stands in no conversation: the turn that made it was taken back, say."""
    return key._replace(subpath="subagents/agent-x"), [{"type": "agent_metadata", "toolUseId": "call-x"}, *entries]


def test_a_subagent_that_nobody_called(key):
    """It comes along, where no other machine has gone on: what this disk has of the session is right."""
    agent = agent_of_nobody(key, said(10, 0))
    _, lacking = completed([(key, [said(1)])], [agent, (key, [said(1), said(2)])])
    assert lacking == [agent, (key, [said(2), note(2)])]


def test_a_subagent_that_nobody_called_and_the_store_knows(key):
    """The store gets the rest of it, also where another machine has gone on."""
    there, here = agent_of_nobody(key, said(10, 0)), agent_of_nobody(key, said(10, 0), said(11))
    _, lacking = completed([(key, [said(1), said(9, 1)]), there], [here, (key, [said(1), said(2)])])
    assert lacking == [(here[0], [said(11)])]


def test_a_session_without_a_message(key):
    """No end of it is noted: there is none."""
    about = {"type": "system", "uuid": uuid(1), "parentUuid": None}
    title = {"type": "custom-title", "customTitle": "T"}
    _, lacking = completed([(key, [title])], [(key, [title, about])])
    assert lacking == [(key, [about])]


def test_a_subagent_that_is_called_in_what_comes_just_now(key):
    """By the conversation, or by a subagent of which the store has a part."""
    a, c = (key._replace(subpath=f"subagents/agent-{name}") for name in "ac")
    about = {
        name: {"type": "agent_metadata", "toolUseId": f"call-{name}", "spawnDepth": depth}
        for name, depth in (("a", 1), ("c", 2))
    }
    here = [(c, [about["c"], said(12, 0)]), (a, [about["a"], said(10, 0), calling(11, 10, "c")])]
    here.append((key, [said(1), calling(2, 1, "a"), said(3, 2)]))
    there = [(key, [said(1), said(9, 3)])]
    _, lacking = completed(there, here)
    assert {of for of, _ in lacking} == {a, c, key}
    _, lacking = completed([*there, (a, [about["a"], said(10, 0)])], here)
    assert {of for of, _ in lacking} == {a, c, key}


def test_many_subagents_take_linear_time(key):
    """The calls of the conversation are looked through once."""

    def measured(count):
        main = [said(1), *(calling(number, number - 1, f"{number}") for number in range(2, count))]
        agents = [key._replace(subpath=f"subagents/agent-{number}") for number in range(2, count)]
        abouts = [{"type": "agent_metadata", "toolUseId": f"call-{number}"} for number in range(2, count)]
        local = [(agent, [about]) for agent, about in zip(agents, abouts, strict=True)]
        begin = time.process_time()
        _, lacking = completed([(key, [*main, said(count + 9, 1)])], [*local, (key, main)])
        assert len(lacking) == count - 2
        return time.process_time() - begin

    measured(100)
    assert measured(3000) < 60 * (measured(300) + 0.005)


def test_the_note_keeps_the_last_prompt(key):
    """Which lists show, of the side that goes on."""
    notes = {text: {"type": "last-prompt", "lastPrompt": text, "leafUuid": uuid(1)} for text in ("here", "there")}
    for there, expected in (([said(1), notes["there"]], "here"), ([said(3), said(9, 3), notes["there"]], "there")):
        _, lacking = completed([(key, there)], [(key, [said(1), said(2), said(3), notes["here"]])])
        assert lacking[-1][1][-1]["lastPrompt"] == expected


def test_a_store_that_lists_no_subagents(resume, local, key):
    """It is asked for those that this disk has: nothing is given to it twice."""
    local(said(1))
    local(said(7, 0), subpath="subagents/agent-a.jsonl").with_suffix(".meta.json").write_text('{"toolUseId": "t"}')
    store = Recorder()
    store.list_subkeys = None
    for _ in range(3):
        resume(store)
        assert len(store.batches) == 2


def test_the_copy_of_the_working_directory(resume, local, config, key):
    """As the CLI takes it, though another project has a newer one of the same id."""
    os.utime(local(said(1), said(2)), (1, 1))
    other = config / "projects" / "-other" / f"{SESSION_ID}.jsonl"
    other.parent.mkdir()
    other.write_text(json.dumps(said(9, 0)) + "\n")
    store = Recorder()
    resume(store)
    assert stored(store, key) == [1, 2]
    assert {key for key, _ in store.batches} == {key}


def test_a_branch_that_the_store_never_knew_stays_here(resume, local, key):
    """Only what leads to the stored messages, and the parallel calls and results that hang on it."""
    called = {"message": {"id": "m", "role": "assistant", "content": []}}
    local(
        said(1), said(2, **called), said(3, 2, **called), said(4, 3, sourceToolAssistantUUID=uuid(3)), said(5, 2),
        said(7, 5), said(8, 7),
    )  # fmt: skip
    store = Recorder()
    store.put(key, said(6, 5))
    _, _, numbers = resume(store)
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert sorted(stored(store, key)) == [1, 2, 3, 4, 5, 6]
    messages = get_messages(SESSION_ID, store=store)
    assert [message.uuid for message in messages][-1] == uuid(6)
    _, _, numbers = resume(store)
    assert sorted(numbers) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("first", [2, 3, 4])
def test_what_a_compaction_kept(resume, local, key, first):
    """Is taken, too, whether the store has the boundary or not; the conversation is what it was."""
    entries = [said(1), said(2), compaction(3, 2, 2), said(4), said(5)]
    local(*entries)
    store = Recorder()
    store.put(key, *entries[first:])
    events, _, numbers = resume(store)
    assert [event.type for event in events] == ["system", "result"]
    assert numbers == [1, 2, 3, 4, 5]
    messages = get_messages(SESSION_ID, store=store)
    assert [message.uuid for message in messages] == [*map(uuid, (4, 2, 5))]


def test_a_message_before_a_compaction_that_was_missed(resume, local, key):
    """Comes before the boundary, though that had come first: what goes on is the conversation behind it."""
    entries = [said(1), said(2), said(3), compaction(4, 3), said(5), said(6)]
    local(*entries)
    store = Recorder()
    store.put(key, entries[1], *entries[3:])
    _, _, numbers = resume(store)
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert [message.uuid for message in get_messages(SESSION_ID, store=store)] == [*map(uuid, (5, 6))]


def test_what_a_compaction_kept_and_nobody_has_is_told(resume, key):
    """The model would go without it."""
    store = Recorder()
    store.put(key, compaction(3, 2, 2), said(4))
    events, _, _ = resume(store)
    assert [event.type for event in events] == ["system", "mirror_error", "result"]


NAMES = {"custom_title": ("custom-title", "customTitle"), "tag": ("tag", "tag")}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("told", "found"), [([], "new"), (["stored"], "stored"), (["stored", ""], None)])
def test_a_title_and_a_tag(key, name, told, found):
    """No link leads to them: the latest of this disk is taken where the stored part says none."""
    kind, field = NAMES[name]
    store = Recorder()
    store.put(key, said(2), *({"type": kind, field: value} for value in told))
    local = [said(1), {"type": kind, field: "old"}, said(2), {"type": kind, field: "new"}]
    _, lacking = completed([(key, store.load(key))], [(key, local)])
    store.put(*lacking[0][:1], *lacking[0][1])
    assert getattr(get_session(SESSION_ID, store=store), name) == found


def test_a_subagent_of_which_the_store_has_the_end_only(key):
    """All of its entries are sidechains."""
    agent = key._replace(subpath="subagents/agent-a")
    entries = [said(11, 0, isSidechain=True), said(12, isSidechain=True)]
    whole, lacking = completed([(key, [said(2)]), (agent, entries[1:])], [(agent, entries), (key, [said(1), said(2)])])
    assert dict(whole)[agent] == entries
    assert lacking == [(agent, entries[:1]), (key, [said(1), note(2)])]


def test_an_unreadable_subagent_is_left_out(resume, local, key, monkeypatch):
    """The conversation does not need it."""
    local(said(1))
    local(said(7, 0), subpath="subagents/agent-a.jsonl")
    opened = _adopt.TranscriptFile

    def refuse(path):
        if "agent-a" in path:
            raise PermissionError(errno.EACCES, "no", path)
        return opened(path)

    monkeypatch.setattr(_adopt, "TranscriptFile", refuse)
    store = Recorder()
    resume(store)
    assert [key for key, _ in store.batches] == [key]


def test_a_store_that_nobody_waits_for_gets_nothing(key):
    """It may be closed: who asked has given up, before the first try or between two."""
    store = Recorder()
    _adopt.adopt(store, [(key, [said(1)])], lambda: True)
    assert store.batches == []
    over = []
    failing = Broken(lambda number: (over.append(1), fail(OSError("no"))(number)))
    _adopt.adopt(failing, [(key, [said(1)])], lambda: bool(over))
    assert failing.calls == 1


def test_who_waited_for_a_store_no_more_gives_it_nothing(local, work, config, monkeypatch):
    """The store comes back when the call has raised: what this disk has stays here."""
    monkeypatch.setattr(_restore, "LOAD_LIMIT", 0.05)
    local(said(1))
    gate = threading.Event()

    class Slow(Recorder):
        def load(self, key):
            gate.wait(DEADLINE)
            self.threads.add(threading.current_thread())

    store = Slow()
    restore = _restore.Restore(store, SESSION_ID, str(work), str(config))
    with pytest.raises(StoreError, match="within"):
        restore.load(lambda: False)
    gate.set()
    until(lambda: store.threads)
    store.join()
    assert store.batches == []


def test_an_empty_subagent_is_left_out(resume, local, key):
    """No store is given a transcript without entries."""
    local(said(1))
    local(subpath="subagents/agent-a.jsonl")
    store = Recorder()
    resume(store)
    assert [key for key, _ in store.batches] == [key]


def test_odd_links_are_none():
    """A uuid or parent that is no text is no gap, and no error."""
    assert not has_gap([said(1), {"type": "user", "uuid": ["x"], "parentUuid": {"y": 1}}])


@pytest.mark.parametrize("odd", [None, 7, "x", ["x"], {"y": 1}])
@pytest.mark.parametrize("field", ["message", "parentUuid", "logicalParentUuid", "sourceToolAssistantUUID", "tag"])
def test_odd_fields_are_survived(key, field, odd):
    """Whatever a line of this disk says: what leads to the stored part is found."""
    local = [said(1), said(2), {**said(8, 1), field: odd}, {"type": "tag", field: odd}]
    _, lacking = completed([(key, [said(3)])], [(key, local)])
    assert [entry["uuid"] for entry in lacking[0][1] if "uuid" in entry] == [uuid(1), uuid(2)]


def test_a_store_that_breaks_once(resume, local, key, monkeypatch):
    """It is tried again, as by the mirror."""
    monkeypatch.setattr(_adopt, "PAUSES", (0.0, 0.0))
    local(said(1))
    store = Broken(fail(OSError("no"), times=2))
    resume(store)
    assert stored(store, key) == [1]


@pytest.mark.parametrize("there", [[], [1]], ids=["nothing", "the beginning"])
def test_a_store_that_changes_what_it_is_given(resume, local, key, monkeypatch, there):
    """Each try has copies of its own, and so has the CLI."""
    monkeypatch.setattr(_adopt, "PAUSES", (0.0, 0.0))
    local(said(1), said(2), said(3))
    store = Greedy(lambda number: None)
    if there:
        store.put(key, *map(said, there))
    store.what = fail(OSError("no"), times=store.calls + 1)
    _, _, numbers = resume(store)
    assert stored(store, key) == [1, 2, 3]
    assert not any("_id" in entry for entry in store.entries(key))
    assert numbers == ([1, 2, 3] if there else [])  # else it has its own file


def test_a_store_that_does_not_take_it(resume, local, monkeypatch):
    """The turn is not begun: it would be stored without its history."""
    monkeypatch.setattr(_adopt, "PAUSES", (0.0, 0.0))
    local(said(1))
    with pytest.raises(StoreError, match="no"):
        resume(Broken(fail(OSError("no"))))


def test_an_isolated_turn_takes_nothing_from_this_disk(play, work, tmp_path, key):
    """Its configuration is a throw-away one, so what the user's own has is none of its business."""
    path = tmp_path / "home" / ".claude" / "projects" / key.project_key / f"{SESSION_ID}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(said(1)) + "\n")
    store = Recorder()
    fake = play(init(), result("x"))
    Client(cli_path=fake.path, store=store, cwd=work).ask("p", resume=SESSION_ID, isolated=True)
    assert store.batches == []


@pytest.mark.parametrize(
    ("entries", "gap"),
    [
        ([said(1), said(2)], False),
        ([said(2)], True),
        ([said(1), said(3)], True),
        ([said(1), said(2, isSidechain=True, parent=9)], False),
        ([compaction(5, 4), said(6)], False),
        ([compaction(5, 4, 4), said(6)], True),
        ([compaction(5, 3, 7), said(6), said(7)], False),
        ([{"type": "custom-title"}], False),
        ([], False),
    ],
)
def test_gaps(entries, gap):
    """A message whose parent is not there; a compaction begins anew, but for what it kept."""
    assert has_gap(entries) is gap
