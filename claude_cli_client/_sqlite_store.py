"""`SQLiteStore`: sessions in one file, with nothing but the standard library.

For one machine: many threads and many processes may use the same file at once. How the file is
opened, locked and kept from a fork is in `_sqlite_file`; here are the tables and what is asked of
them.

An entry is a row with its JSON text. Its number gives the order of arrival: there is one writer at a
time, so numbers are given in the order of commits. Whether an entry is there already is decided by a
unique index on transcript and `uuid`, inside of the transaction that adds it. That transaction also
goes on with the summary of a main transcript: so a list reads one row for each session, and no entry.

Commits do not wait for the disk (`synchronous=NORMAL`): what was stored survives any end of the
process, and a power cut may take the last moments of it, as with the transcripts of the CLI itself.
"""

from __future__ import annotations

import functools
import json
import os
import sqlite3
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from . import _checks
from ._home import expanded
from ._sqlite_file import Database
from .errors import StoreError
from .store import SessionKey, StoredSession, StoredSummary, checked, encoded, identity, later, summarize

if TYPE_CHECKING:
    from typing_extensions import Self

_APPLICATION: Final = 0x436C5374  # in the header of the file: whose it is
_VERSION: Final = 1  # of the tables

# The log is copied into the file when it has so many pages (32 MB). With SQLite's own 1000 a transcript
# of a million entries grew half as fast: each batch touches a page of the index for every entry.
_LOG_PAGES: Final = 8000

# A main transcript has the subpath "", since NULL is equal to nothing and would not be unique.
_TABLES: Final = (
    """CREATE TABLE transcripts (
        id INTEGER PRIMARY KEY,
        project_key TEXT NOT NULL,
        session_id TEXT NOT NULL,
        subpath TEXT NOT NULL,
        mtime INTEGER NOT NULL,
        summary TEXT,
        UNIQUE (project_key, session_id, subpath))""",
    "CREATE INDEX transcripts_by_mtime ON transcripts (mtime)",
    """CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        transcript INTEGER NOT NULL,
        uuid BLOB,
        entry TEXT NOT NULL)""",
    "CREATE UNIQUE INDEX entries_by_uuid ON entries (transcript, uuid) WHERE uuid IS NOT NULL",
    "CREATE INDEX entries_in_order ON entries (transcript)",  # and then by id, as every index of SQLite
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)
_ONE: Final = "FROM transcripts WHERE project_key = ? AND session_id = ? AND subpath = ?"
_SESSION: Final = "FROM transcripts WHERE project_key = ? AND session_id = ?"
_ADD_TRANSCRIPT: Final = "INSERT INTO transcripts (project_key, session_id, subpath, mtime) VALUES (?, ?, ?, 0)"
_ADD_ENTRY: Final = (
    "INSERT INTO entries (transcript, uuid, entry) VALUES (?, ?, ?) "
    "ON CONFLICT (transcript, uuid) WHERE uuid IS NOT NULL DO NOTHING"
)
_GREW: Final = "UPDATE transcripts SET mtime = ?, summary = ? WHERE id = ?"
_LOAD: Final = f"SELECT entry FROM entries WHERE transcript = (SELECT id {_ONE}) ORDER BY id"
# Two texts, since an index serves the second only where it stands alone.
_ALL: Final = " FROM transcripts WHERE subpath = '' ORDER BY mtime DESC"
_OF_PROJECT: Final = " FROM transcripts WHERE subpath = '' AND project_key = ? ORDER BY mtime DESC"
_SUBPATHS: Final = f"SELECT subpath {_SESSION} AND subpath <> '' ORDER BY id"


class SQLiteStore:
    """Sessions in the file `path` (`~` is the home), which is made if it is not there, for its owner's eyes only.

    Safe for many threads and processes on one machine, before and after a fork; not for a network
    file system, whose locks cannot be relied on. A call waits at most `timeout` seconds for other
    processes, then it is a `StoreError`; a batch is stored as a whole or not at all.

    A context manager: leaving it closes it. A store that nobody refers to closes itself. May be
    pickled and copied, say for a worker: that is another store on the same file.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 30.0) -> None:
        """Makes or checks the file, so that a path that cannot be used is known now.

        Raises ValueError for what is no path of a file, StoreError for a file that cannot be used:
        no permission, another program's database, or one of a newer version of this library.
        """
        _checks.positive("timeout", timeout)
        absolute = _checked(path)
        database = Database(absolute, timeout, functools.partial(_prepare, absolute))
        self._database = database
        self._close = weakref.finalize(self, database.close)
        database.read("SELECT 1", ())
        # Until the store is used nothing stays open: programs make stores, then fork their workers.
        database.rest()

    @property
    def path(self) -> str:
        """The absolute path of the file. Two more lie beside it while it is in use."""
        return self._database.path

    def append(self, key: SessionKey, entries: Sequence[Mapping[str, Any]]) -> None:
        """Add entries. What JSON cannot hold is a TypeError or ValueError, and nothing is added."""
        key = checked(key)
        rows = [(entry, _uuid(entry), encoded(entry)) for entry in entries]
        if rows:
            self._database.write(lambda connection: _append(connection, self.path, key, rows), key)

    def load(self, key: SessionKey) -> list[dict[str, Any]] | None:
        """All entries, read into memory; None if there is no such transcript."""
        return _entries(self.path, key, self._database.read(_LOAD, _columns(checked(key)), key)) or None

    def list_sessions(self, project_key: str | None = None) -> list[StoredSession]:
        """The sessions of a project, or with None of all, the newest first."""
        return [
            {"project_key": project, "session_id": session, "mtime": mtime}
            for project, session, mtime in self._list("project_key, session_id, mtime", project_key)
        ]

    def list_summaries(self, project_key: str | None = None) -> list[StoredSummary]:
        """The same with their summaries."""
        rows = self._list("project_key, session_id, mtime, summary", project_key)
        return [
            {"project_key": project, "session_id": session, "mtime": mtime, "summary": summary}
            for project, session, mtime, text in rows
            if (summary := _summary(text) or self._made_anew(SessionKey(project, session))) is not None
        ]

    def list_subkeys(self, project_key: str, session_id: str) -> list[str]:
        """What its subagents wrote, in the order of their first entries."""
        return [subpath for (subpath,) in self._database.read(_SUBPATHS, (project_key, session_id))]

    def delete(self, key: SessionKey) -> None:
        """Remove a transcript; with a main key also all of its subpaths."""
        key = checked(key)
        columns = _columns(key)
        which, values = (_SESSION, columns[:2]) if key.subpath is None else (_ONE, columns)

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(f"DELETE FROM entries WHERE transcript IN (SELECT id {which})", values)
            connection.execute(f"DELETE {which}", values)

        self._database.write(work, key)

    def close(self) -> None:
        """Close the file, when the call that is running is over. From any thread, any number of times."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SQLiteStore({self.path!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """A pickled or copied one is a store of its own: the connection and who closes it belong to this one."""
        return functools.partial(type(self), self.path, timeout=self._database.timeout), ()

    def _made_anew(self, key: SessionKey) -> dict[str, Any] | None:
        """The summary of a session whose own one is damaged; None: deleted since. The next append stores it."""
        entries = self.load(key)
        return None if entries is None else summarize(None, entries)

    def _list(self, columns: str, project_key: str | None) -> list[Any]:
        values = () if project_key is None else (project_key,)
        return self._database.read(f"SELECT {columns}{_OF_PROJECT if values else _ALL}", values)


def _columns(key: SessionKey) -> tuple[str, str, str]:
    return key.project_key, key.session_id, key.subpath or ""


def _uuid(entry: Mapping[str, Any]) -> bytes | None:
    """As bytes: a text that UTF-8 cannot write is one, too."""
    uuid = identity(entry)
    return None if uuid is None else uuid.encode("utf-8", "surrogatepass")


def _entries(path: str, key: SessionKey, rows: Iterable[tuple[str]]) -> list[dict[str, Any]]:
    try:
        return [json.loads(text) for (text,) in rows]
    except ValueError as error:
        raise StoreError(f"{path}: an entry of this transcript is damaged: {error}", key=key) from error


def _summary(text: object) -> dict[str, Any] | None:
    """None: there is none, or it is damaged, which is no loss: the entries can be folded again."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


_Rows = list[tuple[Mapping[str, Any], "bytes | None", str]]  # entry, uuid, JSON


def _append(connection: sqlite3.Connection, path: str, key: SessionKey, rows: _Rows) -> None:
    columns = _columns(key)
    found = connection.execute(f"SELECT id, summary {_ONE}", columns).fetchone()
    at, text = found or (connection.execute(_ADD_TRANSCRIPT, columns).lastrowid, None)
    new: list[Mapping[str, Any]] = [
        entry for entry, uuid, line in rows if connection.execute(_ADD_ENTRY, (at, uuid, line)).rowcount
    ]
    if not new:
        return
    if key.subpath is None:
        summary = _summary(text)
        if found and summary is None:
            new = [*_entries(path, key, connection.execute(_LOAD, columns))]
        text = json.dumps(summarize(summary, new))
    (last,) = connection.execute("SELECT max(mtime) FROM transcripts").fetchone()
    connection.execute(_GREW, (later(last), text, at))


def _checked(path: str | os.PathLike[str]) -> str:
    """The absolute path, or a ValueError for what can be no path of a file."""
    _checks.path("path", path)
    text = os.fspath(path)
    if text.startswith((":", "file:")):
        raise ValueError(f"path must be that of a file, not {text!r}; a store in memory is MemoryStore()")
    text = os.path.abspath(expanded("path", text))
    if os.path.isdir(text):
        raise ValueError(f"path is a folder: {text}; give the path of a file in it")
    folder = os.path.dirname(text)
    if not os.path.isdir(folder):
        raise ValueError(f"there is no folder {folder} for the file {os.path.basename(text)}: make it first")
    return text


def _prepare(path: str, connection: sqlite3.Connection) -> None:
    """A new connection: make the tables where the file is empty, refuse what is not ours."""
    connection.execute("BEGIN")  # what is asked is of one moment: another process may be making the tables
    new = _is_new(path, connection)
    connection.execute("COMMIT")
    if new:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        if _is_new(path, connection):  # nobody was faster
            for sql in _TABLES:
                connection.execute(sql)
        connection.execute("COMMIT")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")


def _is_new(path: str, connection: sqlite3.Connection) -> bool:
    """Whether the tables must be made. A StoreError for a file that cannot be used."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == version == tables == 0:
        return True
    if application != _APPLICATION:
        raise StoreError(f"{path} belongs to another program: give the store a file of its own", retryable=False)
    if version > _VERSION:
        raise StoreError(
            f"{path} was made by a newer version of this library (its tables have version {version}, the newest "
            f"known here is {_VERSION}): update claude-cli-client",
            retryable=False,
        )
    return False
