"""The contract of session stores, and what our two stores have in common beyond `check_store`."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_fork import forks

from claude_cli_client import Client, MemoryStore, SessionKey, SQLiteStore, get_messages, store

ROOT = Path(__file__).resolve().parent.parent
KEY = SessionKey("-srv-app", "22a9c654-efbc-4159-8b73-9dc3799beefe")


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    if request.param == "memory":
        yield MemoryStore
        return
    made: list[SQLiteStore] = []

    def new() -> SQLiteStore:
        made.append(SQLiteStore(tmp_path / f"{len(made)}.db"))
        return made[-1]

    yield new
    for one in made:
        one.close()


def test_sqlite_is_imported_on_first_use():
    """Neither the package nor the contract imports `sqlite3`: not every Python has it."""
    code = (
        "import sys, claude_cli_client, claude_cli_client.store\n"
        "claude_cli_client.MemoryStore, claude_cli_client.SessionStore\n"
        "assert 'sqlite3' not in sys.modules\n"
        "claude_cli_client.SQLiteStore\n"
        "assert 'sqlite3' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_key_may_be_a_plain_tuple(make):
    """Keys are tuples, with or without the name."""
    held = make()
    held.append(("p", "s", None), [{"uuid": "1"}])
    assert held.load(SessionKey("p", "s")) == [{"uuid": "1"}]


@pytest.mark.parametrize(
    ("key", "part"),
    [
        (SessionKey("", "s"), "project_key"),
        (SessionKey("p", ""), "session_id"),
        (SessionKey("p", "s", ""), "subpath"),
        (SessionKey("p", None), "session_id"),  # type: ignore[arg-type]
        (SessionKey(7, "s"), "project_key"),  # type: ignore[arg-type]
        (SessionKey("p", "\ud800"), "session_id"),
    ],
)
@pytest.mark.parametrize("method", ["append", "load", "delete"])
def test_what_is_no_key_is_refused(make, method, key, part):
    """An empty part, or one that is no text, is a ValueError that names it."""
    arguments = [[{"uuid": "1"}]] if method == "append" else []
    with pytest.raises(ValueError, match=part):
        getattr(make(), method)(key, *arguments)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes"])
def test_what_is_no_json_is_refused_with_its_batch(make, value):
    """A batch is stored as a whole or not at all."""
    held = make()
    held.append(KEY, [{"uuid": "1"}])
    with pytest.raises(TypeError, match="JSON"):
        held.append(KEY, [{"uuid": "2"}, {"uuid": "3", "value": value}])
    assert held.load(KEY) == [{"uuid": "1"}]


def test_numbers_that_only_python_writes(make):
    """A mirrored line cannot hold them; whoever appends them gets them back."""
    held = make()
    held.append(KEY, [{"value": [math.inf, -math.inf]}])
    assert held.load(KEY) == [{"value": [math.inf, -math.inf]}]


def test_a_uuid_may_be_any_text(make):
    """Also one that UTF-8 cannot write; one that is no text makes nothing the same."""
    held = make()
    entries = [{"uuid": value} for value in ("\0", "\ud800", "a", "A", 1, 1, ["x"], ["x"])]
    held.append(KEY, entries)
    held.append(KEY, entries[:4])
    assert held.load(KEY) == entries


def test_lists_have_the_newest_first(make):
    """By the last append, also within one millisecond."""
    held = make()
    for session in ("a", "b", "c", "a"):
        held.append(SessionKey("p", session), [{"type": "mode"}])
    for rows in (held.list_sessions("p"), held.list_sessions(None), held.list_summaries("p")):
        assert [row["session_id"] for row in rows] == ["a", "c", "b"]


def test_mtime_grows_while_the_clock_goes_back(make, monkeypatch):
    """The session that grew last is the newest one, whatever the clock says."""
    held = make()
    held.append(SessionKey("p", "a"), [{"type": "mode"}])
    monkeypatch.setattr(store.time, "time", lambda: 1_000_000_000.0)
    held.append(SessionKey("p", "b"), [{"type": "mode"}])
    newest, older = held.list_sessions("p")
    assert (newest["session_id"], older["session_id"]) == ("b", "a")
    assert newest["mtime"] > older["mtime"]


def test_a_repeated_batch_leaves_the_time(make):
    """A batch that brings nothing new does not make its session the newest."""
    held = make()
    held.append(SessionKey("p", "a"), [{"uuid": "1"}])
    held.append(SessionKey("p", "b"), [{"uuid": "1"}])
    before = held.list_sessions("p")
    held.append(SessionKey("p", "a"), [{"uuid": "1"}])
    assert held.list_sessions("p") == before


def test_a_subagent_leaves_the_time_of_its_session(make):
    """`mtime` is that of the main transcript."""
    held = make()
    held.append(KEY, [{"uuid": "1"}])
    before = held.list_sessions(None)
    held.append(KEY._replace(subpath="subagents/agent-a"), [{"uuid": "1"}])
    assert held.list_sessions(None) == before


def test_ctrl_c_in_an_append_to_a_memory_store(monkeypatch):
    """Nothing of the batch is there, and it can be repeated."""
    store = MemoryStore()
    store.append(KEY, [{"uuid": "1"}])

    def interrupt(*_):
        raise KeyboardInterrupt

    for step in ("later", "summarize"):
        with monkeypatch.context() as patched:
            patched.setattr(f"claude_cli_client.store.{step}", interrupt)
            with pytest.raises(KeyboardInterrupt):
                store.append(KEY, [{"uuid": "2", "customTitle": "t"}])
        assert store.load(KEY) == [{"uuid": "1"}]
    store.append(KEY, [{"uuid": "2", "customTitle": "t"}])
    assert [entry["uuid"] for entry in store.load(KEY)] == ["1", "2"]
    assert store.list_summaries()[0]["summary"]["title"] == "t"


def test_a_list_that_was_changed_leaves_the_store(make):
    """What lists give are new objects."""
    held = make()
    held.append(KEY, [{"type": "custom-title", "customTitle": "A title"}])
    held.list_summaries(None)[0]["summary"]["title"] = "changed"
    held.list_sessions(None).clear()
    assert held.list_summaries(None)[0]["summary"]["title"] == "A title"
    assert len(held.list_sessions(None)) == 1


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_memory_store_is_not_pickled(attempt):
    """A worker's appends would be gone: the sentence says so, and which store can be used instead."""
    with pytest.raises(TypeError, match=r"would not be here; .* use SQLiteStore\(path\)"):
        attempt(MemoryStore())


# --- fork


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_a_forked_child_has_a_copy_of_a_memory_store():
    """It begins with what was there, and what it adds is its own."""
    forks(
        """
        from claude_cli_client import MemoryStore, SessionKey
        store, key = MemoryStore(), SessionKey("p", "s")
        store.append(key, [{"uuid": "1"}])

        def child():
            store.append(key, [{"uuid": "2"}])
            say("child", len(store.load(key)))

        reap(fork(child))
        say("parent", len(store.load(key)))
        """,
        None,
        ["child 2", "parent 1"],
    )


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_a_fork_in_the_middle_of_an_append_to_a_memory_store():
    """The fork waits until the other thread's step is over, so the child finds a whole store."""
    forks(
        """
        from claude_cli_client import MemoryStore, SessionKey
        from claude_cli_client import store as module
        store, key = MemoryStore(), SessionKey("p", "s")
        inside, go_on = threading.Event(), threading.Event()
        real = module.later

        def later(last):
            inside.set()
            go_on.wait(10)
            return real(last)

        module.later = later
        appending = thread(store.append, key, [{"uuid": str(number)} for number in range(5)])
        inside.wait(10)
        threading.Timer(0.1, go_on.set).start()
        pid = fork(lambda: say("child", len(store.load(key)), len(store.list_sessions(None))))
        reap(pid)
        appending.join()
        """,
        None,
        ["child 5 1"],
    )


@pytest.mark.parametrize("wrong", [dict.fromkeys(KEY._fields, "x"), ["-a", "b", None], "abc", None])
def test_what_is_no_key(tmp_path, wrong):
    """A dict has three names, which would be the key; nothing is stored under it."""
    with SQLiteStore(tmp_path / "sessions.db") as database:
        for one in (database, MemoryStore()):
            for call in (lambda one: one.append(wrong, [{"uuid": "1"}]), lambda one: one.load(wrong)):
                with pytest.raises(TypeError, match="a key is a SessionKey"):
                    call(one)
            assert one.list_sessions(None) == []


class Least:
    """What every store must have."""

    def append(self, key, entries):
        pass

    def load(self, key):
        return None


@pytest.mark.parametrize(
    ("name", "method", "says"),
    [
        ("append", lambda self, entries: None, r"append\(key, entries\), and append of Least"),
        ("append", lambda self, key, *, entries: None, r"append\(key, entries\)"),
        ("load", lambda self, project, session: None, r"load\(key\)"),
        ("list_sessions", lambda self: [], r"list_sessions\(project_key\)"),
        ("list_summaries", lambda self, key, limit: [], r"list_summaries\(project_key\)"),
        ("list_subkeys", lambda self, key: [], r"list_subkeys\(project_key, session_id\)"),
        ("delete", lambda self, key, sure: None, r"delete\(key\)"),
    ],
)
@pytest.mark.parametrize("take", [lambda one: Client(store=one), lambda one: get_messages(KEY.session_id, store=one)])
def test_a_method_with_other_arguments(monkeypatch, take, name, method, says):
    """Refused where the store is taken: its calls would fail, and the turns would go on."""
    monkeypatch.setattr(Least, name, method, raising=False)
    with pytest.raises(TypeError, match=says):
        take(Least())


async def awaited(self, key):
    return []


async def gone_through_later(self, key):
    yield key


@pytest.mark.parametrize("name", ["load", "list_sessions", "list_summaries", "delete"])
@pytest.mark.parametrize("method", [awaited, gone_through_later])
def test_a_method_that_would_have_to_be_awaited(monkeypatch, name, method):
    """A list that nobody awaits would be an empty one."""
    monkeypatch.setattr(Least, name, method, raising=False)
    with pytest.raises(ValueError, match=f"{name} of store must be a plain function"):
        Client(store=Least())


def test_methods_that_take_more(monkeypatch):
    """Defaults, *args and **kwargs are the store's own matter, and so is what is no plain function."""
    monkeypatch.setattr(Least, "append", lambda self, *args, **more: None)
    monkeypatch.setattr(Least, "load", lambda self, key, default=None: default)
    monkeypatch.setattr(Least, "list_sessions", staticmethod(lambda project_key: []), raising=False)
    monkeypatch.setattr(Least, "delete", {}.pop, raising=False)
    Client(store=Least())
