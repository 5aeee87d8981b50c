"""`SQLiteStore`: the file, its rights, many threads and processes, fork, kill -9, damage, a full disk."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hosts import Host
from test_fork import forks
from waiting import Background

from claude_cli_client import ConcurrencyError, SessionKey, SQLiteStore, StoreError, _sqlite_file, _sqlite_store
from claude_cli_client.store import summarize

ROOT = Path(__file__).resolve().parent.parent
KEY = SessionKey("-srv-app", "22a9c654-efbc-4159-8b73-9dc3799beefe")
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


def entries(*numbers: int) -> list[dict[str, str]]:
    return [{"type": "user", "uuid": f"uuid-{number}"} for number in numbers]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    with SQLiteStore(path, timeout=20) as made:
        yield made


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as anybody can open it."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        yield connection
    finally:
        connection.close()


def held_open(path: Path) -> int:
    """How many descriptors of this process are of the database and the files beside it."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith(str(path))
        except FileNotFoundError:
            continue
    return count


def python(source: str, path: Path, *, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Another process, with the names of these tests."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(source), str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


# --- copies


def pickled(store: SQLiteStore) -> SQLiteStore:
    copied: SQLiteStore = pickle.loads(pickle.dumps(store))
    return copied


@linux
@pytest.mark.parametrize("copied", [pickled, copy.copy, copy.deepcopy])
def test_a_copy_is_a_store_of_its_own(store: SQLiteStore, path: Path, copied: Callable[[SQLiteStore], SQLiteStore]):
    """On the same file, as patient, and closed by itself: neither is kept open by the other."""
    store.append(KEY, entries(1))
    with copied(store) as other:
        other.append(KEY, entries(2))
        assert other._database.timeout == 20
    with pytest.raises(StoreError, match="closed"):
        other.load(KEY)
    assert store.load(KEY) == entries(1, 2)
    store.close()
    assert held_open(path) == 0


# --- the file


def test_what_was_stored_is_there_for_the_next_one(path):
    """Another store on the same file has it all."""
    with SQLiteStore(path) as first:
        first.append(KEY, [{"type": "custom-title", "customTitle": "A title"}, *entries(1, 2)])
        rows = first.list_summaries(None)
    with SQLiteStore(path) as second:
        assert second.load(KEY) == [{"type": "custom-title", "customTitle": "A title"}, *entries(1, 2)]
        assert second.list_summaries(None) == rows


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_the_files_are_private(path, umask):
    """The database and the files beside it are for their owner only, whatever the umask."""
    before = os.umask(umask)
    try:
        with SQLiteStore(path) as store:
            store.append(KEY, entries(1))
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"sessions.db": 0o600, "sessions.db-wal": 0o600, "sessions.db-shm": 0o600}


def test_the_rights_of_a_file_that_is_there_stay(path):
    """Who shares a file with a group has decided that."""
    path.touch()
    path.chmod(0o660)
    with SQLiteStore(path) as store:
        store.append(KEY, entries(1))
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o660}


@pytest.mark.parametrize("name", ["a b?c#d%20.db", "ä\u0301\U0001f600.db", "\udcff.db", "new\nline.db"])
def test_any_file_name(tmp_path, name):
    """What is special in a URI, and bytes that are no text, are part of the name."""
    path = os.path.join(tmp_path, name)
    with SQLiteStore(path) as store:
        store.append(KEY, entries(1))
        assert store.path == path
    assert os.listdir(tmp_path) == [name]


def test_a_relative_path_stays_where_it_was(tmp_path, monkeypatch):
    """A program that changes its directory keeps its store."""
    monkeypatch.chdir(tmp_path)
    with SQLiteStore("sessions.db") as store:
        monkeypatch.chdir("/")
        store.append(KEY, entries(1))
    assert (tmp_path / "sessions.db").exists()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("", "empty path"),
        (":memory:", r"MemoryStore\(\)"),
        ("file:x.db?mode=memory", r"MemoryStore\(\)"),
        (7, "path must be a path"),
        (None, "path must be a path"),
        (b"x.db", "path must be a path"),
        ("a\0b", "path"),
        ("{tmp}", "is a folder: .*give the path of a file in it"),
        ("{tmp}/none/x.db", "no folder .*none for the file x.db: make it first"),
        ("{tmp}/file/x.db", "no folder .*file for the file x.db"),
    ],
)
def test_what_is_no_path_of_a_file(tmp_path, wrong, says):
    """A ValueError that says what to do, and nothing was made."""
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=says):
        SQLiteStore(wrong.replace("{tmp}", str(tmp_path)) if isinstance(wrong, str) else wrong)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("timeout", [0, -1, "5", None, True, float("inf"), float("nan")])
def test_wrong_timeouts(path, timeout):
    """A wait has a bound."""
    with pytest.raises(ValueError, match="timeout"):
        SQLiteStore(path, timeout=timeout)


def test_a_file_that_is_no_database(path):
    """It is refused with words, and not changed."""
    path.write_text("my notes, which are longer than the header of a database file. " * 100)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="no SQLite database") as caught:
        SQLiteStore(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_the_database_of_another_program(path):
    """Its tables are not ours to add to."""
    with raw(path) as connection:
        connection.execute("CREATE TABLE notes (text)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="belongs to another program") as caught:
        SQLiteStore(path)
    assert not caught.value.retryable
    assert path.read_bytes() == before


def test_a_database_of_a_newer_version(path):
    """It is refused with words: older code would damage it."""
    SQLiteStore(path).close()
    with raw(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    with pytest.raises(StoreError, match=r"newer version .*version 7.* known here is 1") as caught:
        SQLiteStore(path)
    assert not caught.value.retryable


_AS_NOBODY = """
import os, sys
from claude_cli_client import SessionKey, SQLiteStore, StoreError
elsewhere = os.path.dirname(os.path.dirname(sys.argv[1])) + "/other.db"
with SQLiteStore(elsewhere) as other:  # imports what nobody may not read
    other.append(SessionKey("p", "s"), [{"uuid": "1"}])
os.geteuid() or os.setuid(65534)
try:
    store = SQLiteStore(sys.argv[1])
    store.append(SessionKey("p", "s"), [{"uuid": "1"}])
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("folder", "file", "says"),
    [
        (0o555, None, "Permission denied"),
        (0o555, 0o666, "look at the permissions|cannot be written"),
        (0o777, 0o000, "look at the permissions"),
        (0o777, 0o444, "look at the permissions"),
    ],
)
def test_no_permission(folder, file, says):
    """A folder or file that may not be written is a StoreError with the path."""
    # Not in pytest's folder, which nobody else may enter.
    with tempfile.TemporaryDirectory() as outer:
        os.chmod(outer, 0o755)
        inner = Path(outer, "inner")
        inner.mkdir()
        if file is not None:
            SQLiteStore(inner / "x.db").close()
            (inner / "x.db").chmod(file)
        inner.chmod(folder)
        done = python(_AS_NOBODY, inner / "x.db")
        inner.chmod(0o777)
    assert (done.returncode, done.stderr) == (0, "")
    assert str(inner / "x.db") in done.stdout
    assert re.search(says, done.stdout), done.stdout


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.symlink_to("other.db"), "is a link to other.db, which does not exist: make an empty file"),
        (lambda path: path.symlink_to("/dev/null"), "is a folder, a pipe or a device, not a regular file"),
        (os.mkfifo, "is a folder, a pipe or a device, not a regular file"),
    ],
)
def test_what_is_no_file(path, make, says):
    """Cause and remedy, at once; also if it comes later in the place of the file."""
    with SQLiteStore(path) as store:
        path.unlink()
        make(path)
        for use in (lambda: SQLiteStore(path), lambda: store.append(KEY, entries(1))):
            with pytest.raises(StoreError, match=says) as caught:
                use()
            assert not caught.value.retryable


def test_a_link_to_an_empty_file(path):
    """Is a place for a store: so the remedy for a link to nothing works."""
    (path.parent / "other.db").touch()
    path.symlink_to("other.db")
    with SQLiteStore(path) as store:
        store.append(KEY, entries(1))
        assert store.load(KEY) == entries(1)


def test_somebody_else_was_faster_to_make_the_tables(path, monkeypatch):
    """Between the look at an empty file and the lock on it: his are used."""
    with SQLiteStore(path) as other:
        other.append(KEY, entries(1))
    real, looks = _sqlite_store._is_new, iter([True])  # as it was found before he came
    monkeypatch.setattr(_sqlite_store, "_is_new", lambda *file: next(looks, False) or real(*file))
    with SQLiteStore(path) as store:
        assert store.load(KEY) == entries(1)
    assert next(looks, None) is None


# --- what is open, and for how long


@linux
def test_nothing_is_open_before_it_is_used(path):
    """A program may make its store, and then fork its workers."""
    store = SQLiteStore(path)
    assert held_open(path) == 0
    store.load(KEY)
    assert held_open(path) > 0
    store.close()


@linux
def test_one_connection_serves_all_threads(path, store):
    """What threads open does not stay when they end."""
    for number in range(20):
        Background(store.append, KEY, entries(number)).result()
    assert 0 < held_open(path) <= 3
    assert store.load(KEY) == entries(*range(20))


@linux
def test_leaving_it_closes_it(path):
    """Nothing is open, and the files beside it are gone; a second time does nothing."""
    with SQLiteStore(path) as store:
        store.append(KEY, entries(1))
    assert held_open(path) == 0
    assert os.listdir(path.parent) == [path.name]
    store.close()


def test_a_closed_store_says_so(store):
    """With a StoreError that no retry can help."""
    store.close()
    for call in (lambda: store.append(KEY, entries(1)), lambda: store.load(KEY), lambda: store.list_sessions()):
        with pytest.raises(StoreError, match="was closed") as caught:
            call()
        assert not caught.value.retryable


@linux
def test_a_forgotten_store_closes_itself(path):
    """Whoever lets go of it leaves no descriptor, and no warning."""
    store = SQLiteStore(path)
    store.append(KEY, entries(1))
    assert held_open(path) > 0
    del store
    gc.collect()
    assert held_open(path) == 0


def test_the_end_of_the_program_closes_it(path):
    """A script that never closes leaves one file, and no word on stderr."""
    done = python(
        """
        import sys
        from claude_cli_client import SessionKey, SQLiteStore
        store = SQLiteStore(sys.argv[1])
        store.append(SessionKey("p", "s"), [{"uuid": "1"}])
        """,
        path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(path.parent) == [path.name]


# --- transactions


def test_a_list_reads_no_entry(store):
    """A list of sessions is made of one row for each, whatever was said in them."""
    for number in range(50):
        store.append(SessionKey("p", f"session-{number}"), entries(1, 2, 3))
    tables = set()

    def look(action, table, *_):
        if action == sqlite3.SQLITE_READ:
            tables.add(table)
        return sqlite3.SQLITE_OK

    store._database._connection.set_authorizer(look)
    for project in ("p", None):
        assert len(store.list_sessions(project)) == len(store.list_summaries(project)) == 50
    assert tables == {"transcripts"}


def test_rows_and_summary_are_one(store, monkeypatch):
    """Where the summary cannot be made nothing of the batch is stored, and nobody is locked out."""
    store.append(KEY, entries(1))
    before = store.list_summaries(None)

    def fail(*_):
        raise RecursionError("too deep")

    with monkeypatch.context() as patched:
        patched.setattr(_sqlite_store, "summarize", fail)
        with pytest.raises(RecursionError):
            store.append(KEY, entries(2))
    assert store.load(KEY) == entries(1)
    assert store.list_summaries(None) == before
    with SQLiteStore(store.path, timeout=1) as other:
        other.append(KEY, entries(2))
    assert store.load(KEY) == entries(1, 2)


def test_a_lock_of_somebody_else_is_waited_for(path, store):
    """An append goes on as soon as the other one has finished."""
    store.append(KEY, entries(1))
    with raw(path) as other:
        other.execute("BEGIN IMMEDIATE")
        append = Background(store.append, KEY, entries(2))
        assert store.load(KEY) == entries(1)  # nobody who reads has to wait
        assert append.is_waiting
        other.execute("COMMIT")
    append.result()
    assert store.load(KEY) == entries(1, 2)


def test_a_lock_is_not_waited_for_in_vain(path):
    """After `timeout` seconds it is a StoreError with the key, and a retry may help."""
    with SQLiteStore(path, timeout=0.2) as store, raw(path) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = [Background(store.append, KEY, entries(number)) for number in range(4)]
        for append in waiting:
            with pytest.raises(StoreError, match="locked") as caught:
                append.result()
            assert (caught.value.key, caught.value.retryable) == (tuple(KEY), True)
            assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        other.execute("COMMIT")
        store.append(KEY, entries(1))
        assert store.load(KEY) == entries(1)


@linux
def test_ctrl_c_ends_the_wait(path):
    """Whoever waits for another process can be stopped at once."""
    with Host(
        f"""
        from claude_cli_client import SessionKey, SQLiteStore
        store = SQLiteStore({str(path)!r}, timeout=600)
        say("ready")
        hear("go")
        try:
            say("waiting")
            store.append(SessionKey("p", "s"), [{{"uuid": "1"}}])
        except KeyboardInterrupt:
            say("interrupted")
        hear("free")
        store.append(SessionKey("p", "s"), [{{"uuid": "2"}}])
        say(store.load(SessionKey("p", "s")))
        """
    ) as host:
        host.expect("ready")
        with raw(path) as other:
            other.execute("BEGIN IMMEDIATE")
            host.tell("go")
            host.expect("waiting")
            host.kill(signal.SIGINT)
            host.expect("interrupted")
            other.execute("COMMIT")
        host.tell("free")
        host.expect("[{'uuid': '2'}]")
        assert host.end() == 0


# --- processes

_APPENDS = """
import sys
from claude_cli_client import SessionKey, SQLiteStore
key, name = SessionKey("-srv-app", "22a9c654-efbc-4159-8b73-9dc3799beefe"), sys.argv[2]
sys.stdin.readline()
with SQLiteStore(sys.argv[1]) as store:
    for batch in range(40):
        store.append(key, [{"uuid": f"{name}-{batch}-{at}", "name": name} for at in range(5)])
"""


def at_once(path: Path, *names: str) -> None:
    """Processes that begin at the same moment, and all of them succeed."""
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _APPENDS, str(path), name],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    try:
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in started:
            assert (process.communicate(timeout=60)[1], process.returncode) == ("", 0)
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_processes_on_one_session(path):
    """Two processes make the file and append to one session: nothing lost, each one's order kept."""
    at_once(path, "a", "b")
    with SQLiteStore(path) as store:
        found = store.load(KEY)
    for name in ("a", "b"):
        expected = [f"{name}-{batch}-{at}" for batch in range(40) for at in range(5)]
        assert [entry["uuid"] for entry in found if entry["name"] == name] == expected


def test_processes_with_the_same_entries(path):
    """What several processes append at once is stored once."""
    at_once(path, "a", "a", "a")
    with SQLiteStore(path) as store:
        found = store.load(KEY)
    assert [entry["uuid"] for entry in found] == [f"a-{batch}-{at}" for batch in range(40) for at in range(5)]


_UNTIL_KILLED = """
from claude_cli_client import SessionKey, SQLiteStore
store, key = SQLiteStore({path!r}), SessionKey("p", "s")
for batch in range(100_000):
    store.append(key, [{{"uuid": f"{{batch}}-{{at}}"}} for at in range(100)] + [{{"type": "mode", "batch": batch}}])
    say(batch)
"""


@pytest.mark.parametrize("round_", range(4))
def test_kill_9_in_the_middle_of_an_append(path, round_):
    """What was confirmed is there, each batch as a whole, and a repeated one doubles nothing."""
    with Host(_UNTIL_KILLED.format(path=str(path))) as host:
        for _ in range(3 + 7 * round_):
            confirmed = int(host.line())
        host.kill()
        host.end()
    with SQLiteStore(path) as store:
        found = store.load(SessionKey("p", "s"))
        batches, rest = divmod(len(found), 101)
        assert rest == 0
        assert batches > confirmed
        assert [entry["batch"] for entry in found if "batch" in entry] == list(range(batches))
        store.append(SessionKey("p", "s"), [{"uuid": f"{batches - 1}-{at}"} for at in range(100)])
        assert store.load(SessionKey("p", "s")) == found
        assert store.list_summaries("p")[0]["summary"] == summarize(None, found)
    with raw(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


class Interrupted(set):
    """The list of open files, with Ctrl-C as it takes one in."""

    def add(self, one):
        raise KeyboardInterrupt


def test_a_second_ctrl_c_in_the_middle_of_the_first(store, monkeypatch):
    """It keeps the transaction from being undone: the next call does that, and the store goes on."""

    def twice(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(_sqlite_store, "later", twice)
        patched.setattr(_sqlite_file.Database, "_undo", twice)
        with pytest.raises(KeyboardInterrupt):
            store.append(KEY, entries(1))
    store.append(KEY, entries(2))
    assert store.load(KEY) == entries(2)


def test_a_signal_handler_in_the_middle_of_a_transaction(store, monkeypatch):
    """On the thread that holds the lock: it is refused, and the transaction goes on as if nothing had been."""
    real, refused = _sqlite_store.later, []

    def later(last):
        with pytest.raises(ConcurrencyError, match="within a transaction") as caught:
            store.list_sessions(None)
        refused.append(caught.value)
        return real(last)

    monkeypatch.setattr(_sqlite_store, "later", later)
    store.append(KEY, [{"type": "without a uuid"}, *entries(1, 2)])
    assert len(refused) == 1
    assert store.load(KEY) == [{"type": "without a uuid"}, *entries(1, 2)]


def test_a_signal_handler_that_forks_and_uses_the_store(store, monkeypatch):
    """The fork closed the transaction's connection; the one that the handler opened stays, and serves the next try."""
    real, opened = _sqlite_store.later, []

    def later(last):
        if not opened:
            store._database.disconnect()  # as a fork does
            store.load(KEY)
            opened.append(store._database._connection)
        return real(last)

    monkeypatch.setattr(_sqlite_store, "later", later)
    store.append(KEY, entries(1))
    assert store._database._connection is opened[0]
    assert store.load(KEY) == entries(1)


class Stuck(sqlite3.Connection):
    """It cannot undo a transaction."""

    def execute(self, sql, *values):
        if sql == "ROLLBACK":
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *values)


def test_a_transaction_that_cannot_be_undone(store, monkeypatch):
    """It ends with its connection, so that nobody is locked out; what rises is why it was to be undone."""
    connect = sqlite3.connect

    def fail(*_):
        raise RecursionError("too deep")

    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", lambda *args, **named: connect(*args, factory=Stuck, **named))
        patched.setattr(_sqlite_store, "summarize", fail)
        with pytest.raises(RecursionError):
            store.append(KEY, entries(1))
    with SQLiteStore(store.path, timeout=0.2) as other:
        other.append(KEY, entries(2))
    assert store.load(KEY) == entries(2)


def test_ctrl_c_while_the_file_is_opened(path, store, monkeypatch):
    """No connection is left that is not listed: before a fork nobody would close it."""
    with monkeypatch.context() as patched:
        patched.setattr(_sqlite_file, "_open", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            store.load(KEY)
        assert held_open(path) == 0
    store.append(KEY, entries(1))
    assert store.load(KEY) == entries(1)


# --- fork

_FORKED = """
from claude_cli_client import SessionKey, SQLiteStore

path = {path!r}
store, key = SQLiteStore(path), SessionKey("p", "s")

def add(*uuids):
    store.append(key, [{{"uuid": uuid}} for uuid in uuids])

def uuids():
    return [entry["uuid"] for entry in store.load(key)]

def open_files():
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink("/proc/self/fd/" + name).startswith(path)
        except OSError:
            pass
    return found

def locks():
    inode = ":" + str(os.stat(path).st_ino)
    return sum(line.split()[4] == str(os.getpid()) and line.split()[5].endswith(inode) for line in open("/proc/locks"))
"""


def forked(path: Path, source: str, said: list[str], first: str = "") -> None:
    forks(_FORKED.format(path=str(path)) + textwrap.dedent(source), None, said, first=first)


@linux
def test_fork_while_it_is_used(path):
    """Parent and child go on with connections of their own, and both hold the locks that they need."""
    forked(
        path,
        """
        add("1")

        def child():
            say("inherited", open_files())
            add("2")
            say("child", uuids(), "locks", locks() > 0)

        reap(fork(child))
        add("3")
        say("parent", uuids(), "locks", locks() > 0)
        """,
        ["inherited 0", "child ['1', '2'] locks True", "parent ['1', '2', '3'] locks True"],
    )


@linux
def test_fork_waits_for_a_transaction(path):
    """A child is not born in the middle of one: SQLite's accounts would lock it out for ever."""
    forked(
        path,
        """
        from claude_cli_client import _sqlite_store
        inside, begun, born = threading.Event(), threading.Event(), threading.Event()
        real = _sqlite_store.later
        # Registered last: the first begins a fork, before any lock, and the second ends it.
        os.register_at_fork(before=begun.set, after_in_parent=born.set)

        def later(last):
            if not inside.is_set():
                inside.set()
                begun.wait(10)
                born.wait(0.1)  # a fork that does not wait for the lock
            return real(last)

        _sqlite_store.later = later
        appending = thread(add, "1")
        inside.wait(10)
        reap(fork(lambda: add("2")))
        appending.join()
        say(uuids())
        """,
        ["['1', '2']"],
    )


@linux
def test_fork_does_not_wait_for_ever(path):
    """Where a transaction outlasts the wait, the child refuses the file, and the parent does not notice."""
    forked(
        path,
        """
        from claude_cli_client import _sqlite_store
        inside, go_on, real = threading.Event(), threading.Event(), _sqlite_store.later
        sys.unraisablehook = lambda _: None  # told once: a lock that was not acquired is not released

        def later(last):
            inside.set()
            go_on.wait(10)
            return real(last)

        _sqlite_store.later = later
        appending = thread(add, "1")
        inside.wait(10)

        def child():
            go_on.set()  # the child's
            for one in (lambda: add("2"), lambda: SQLiteStore(path)):
                try:
                    one()
                except ConcurrencyError as error:
                    say("forked while its parent used" in str(error))
            with SQLiteStore(path + ".other") as other:
                other.append(key, [{"uuid": "3"}])
                say(len(other.load(key)))

        reap(fork(child))
        go_on.set()
        appending.join()
        add("4")
        say(uuids())
        """,
        ["True", "True", "1", "['1', '4']"],
        first="""
        import claude_cli_client._fork_lock as module
        module.WAITS = 0.1
        """,
    )


@linux
def test_fork_by_a_signal_handler_in_the_middle_of_a_transaction(path):
    """On the thread that holds the lock: the transaction is begun anew, in the parent and in the child."""
    forked(
        path,
        """
        from claude_cli_client import _sqlite_store
        real, pids = _sqlite_store.later, []

        def later(last):
            if not pids:
                pids.append(os.fork())
            return real(last)

        _sqlite_store.later = later
        add("1")
        if not pids[0]:
            add("2")
            os._exit(0)
        reap(pids[0])
        say(uuids())
        """,
        ["['1', '2']"],
    )


@linux
def test_fork_by_a_signal_handler_while_the_file_is_opened(path):
    """The connection that is made just then is closed before it, too, and both begin anew."""
    forked(
        path,
        """
        real, pids = store._database._prepare, []

        def prepare(connection):
            real(connection)
            if not pids:
                pids.append(os.fork())
                if not pids[0]:
                    say("inherited", open_files())

        store._database._prepare = prepare
        add("1")
        if not pids[0]:
            add("2")
            os._exit(0)
        reap(pids[0])
        say(uuids())
        """,
        ["inherited 0", "['1', '2']"],
    )


@linux
def test_fork_that_does_not_come_through_python(path):
    """The connection could not be closed before it, so the child refuses the file."""
    forked(
        path,
        """
        import ctypes
        add("1")
        pid = ctypes.PyDLL(None).fork()
        if not pid:
            try:
                add("2")
            except ConcurrencyError:
                say("refused")
            os._exit(0)
        reap(pid)
        add("3")
        say(uuids())
        """,
        ["refused", "['1', '3']"],
    )


# --- misfortunes


def test_a_damaged_file(path):
    """Garbage in its pages is a StoreError that says so; no crash, no wrong entry."""
    with SQLiteStore(path) as store:
        for number in range(200):
            store.append(KEY, [{"uuid": f"uuid-{number}", "text": "x" * 2000}])
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\xa5" * (size - 12 * 4096))
    with SQLiteStore(path) as store:
        with pytest.raises(StoreError, match="damaged") as caught:
            store.load(KEY)
        assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
        assert caught.value.key == tuple(KEY)


def test_a_damaged_entry(path, store):
    """A row that is no JSON is a StoreError: a conversation with a hole is not handed out."""
    store.append(KEY, entries(1, 2))
    with raw(path) as connection:
        connection.execute("UPDATE entries SET entry = '{\"uuid\": ' WHERE id = 1")
    with pytest.raises(StoreError, match="damaged"):
        store.load(KEY)


DAMAGED = ["'{\"title\": '", "'[1]'", "x'ff00'", "''", "NULL"]


@pytest.mark.parametrize("damaged", DAMAGED)
@pytest.mark.parametrize("first", ["listed", "appended"])
def test_a_damaged_summary_is_made_anew(path, store, damaged, first):
    """A summary that cannot be read is folded again from the entries, by a list and by the next append."""
    titles = [{"type": "custom-title", "customTitle": "The red one"}, *entries(1, 2)]
    store.append(KEY, titles)
    store.append(KEY._replace(session_id="other"), entries(1))
    with raw(path) as connection:
        connection.execute(f"UPDATE transcripts SET summary = {damaged} WHERE session_id = ?", KEY[1:2])
    if first == "appended":
        store.append(KEY, entries(2, 3))
        with raw(path) as connection:
            ((stored,),) = connection.execute("SELECT summary FROM transcripts WHERE session_id = ?", KEY[1:2])
        assert json.loads(stored) == summarize(None, store.load(KEY))
    found = {row["session_id"]: row["summary"] for row in store.list_summaries(None)}
    assert found == {KEY.session_id: summarize(None, store.load(KEY)), "other": summarize(None, entries(1))}


def test_a_damaged_summary_of_damaged_entries(path, store):
    """Where the entries cannot be read either it is a StoreError, and nothing is appended."""
    store.append(KEY, entries(1, 2))
    with raw(path) as connection:
        connection.execute("UPDATE transcripts SET summary = '{'")
        connection.execute("UPDATE entries SET entry = '{' WHERE id = 1")
    for call in (lambda: store.append(KEY, entries(3)), lambda: store.list_summaries(None)):
        with pytest.raises(StoreError, match="an entry of this transcript is damaged") as caught:
            call()
        assert caught.value.key == tuple(KEY)
    with raw(path) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (2,)


@pytest.mark.parametrize("by", ["deleted", "replaced"])
def test_a_file_that_is_taken_away(path, store, by):
    """The store goes on with what lies at its path: writes never go into a file without a name."""
    store.append(KEY, entries(1))
    for suffix in ("", "-wal", "-shm"):
        os.unlink(f"{path}{suffix}")
    if by == "replaced":
        with SQLiteStore(path) as other:
            other.append(KEY, entries(7))
    store.append(KEY, entries(2))
    expected = entries(2) if by == "deleted" else entries(7, 2)
    assert store.load(KEY) == expected
    with SQLiteStore(path) as other:
        assert other.load(KEY) == expected


_FULL = """
import resource, sys
from claude_cli_client import SessionKey, SQLiteStore, StoreError
key = SessionKey("p", "s")
with SQLiteStore(sys.argv[1]) as store:
    store.append(key, [{"uuid": "1"}])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, before[1]))
    for _ in range(2):
        try:
            store.append(key, [{"uuid": str(number), "text": "x" * 1000} for number in range(2, 1000)])
        except StoreError as error:
            print("StoreError", error.key == key)
        print(store.load(key) == [{"uuid": "1"}])
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    store.append(key, [{"uuid": "2"}])
    print(len(store.load(key)))
"""


def test_a_disk_that_takes_no_more(path):
    """A batch that does not fit is refused as a whole; what was there can be read, and later more be added."""
    done = python(_FULL, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["StoreError True", "True"] * 2 + ["2"]


def test_a_full_disk_is_named(store):
    """SQLite's own word for it becomes a sentence."""
    store.append(KEY, entries(1))
    connection = store._database._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="disk is full; nothing of this batch was stored"):
        store.append(KEY, [{"text": "x" * 100_000}])
    assert store.load(KEY) == entries(1)


def test_a_connection_that_met_an_error(store):
    """It is not used again: what was wrong with it may be right with another one."""
    store.append(KEY, entries(1))
    connection = store._database._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")  # of this connection alone
    long = [{"text": "x" * 100_000}]
    with pytest.raises(StoreError, match="disk is full"):
        store.append(KEY, long)
    store.append(KEY, long)
    assert store.load(KEY) == [*entries(1), *long]


def test_threads_that_append_list_and_close(path):
    """Closing it while others use it ends every call, with a result or a StoreError."""
    store = SQLiteStore(path)
    begun = threading.Event()

    def work(number: int) -> int:
        done = 0
        while True:
            try:
                store.append(SessionKey("p", str(number)), [{"uuid": str(done)}])
                store.list_summaries("p")
            except StoreError:
                return done
            done += 1
            begun.set()

    workers = [Background(work, number) for number in range(4)]
    assert begun.wait(10)
    store.close()
    counts = [worker.result() for worker in workers]
    with SQLiteStore(path) as again:
        stored = [len(again.load(SessionKey("p", str(number))) or ()) for number in range(4)]
    assert all(done <= held <= done + 1 for done, held in zip(counts, stored, strict=True))


def test_the_text_of_an_entry_is_json_as_utf_8(path, store):
    """Whoever looks into the file with other tools can read it."""
    entry = {"uuid": "1", "text": "日本 \U0001f600 \0"}
    store.append(KEY, [entry])
    with raw(path) as connection:
        ((text,),) = connection.execute("SELECT entry FROM entries").fetchall()
    assert "日本" in text
    assert json.loads(text) == entry


def test_ids_that_differ_in_what_is_no_character(store):
    """Two entries, though UTF-8 has no bytes for either of their ids."""
    key = SessionKey("p", "s")
    entries = [{"uuid": "\ud800"}, {"uuid": "\ud801"}]
    store.append(key, entries)
    store.append(key, entries)
    assert store.load(key) == entries
