"""One SQLite database file: made private, opened, asked, closed; by many threads and processes.

It knows nothing of sessions: what a transaction does is given to it as a function. Three decisions:

**One connection, and a lock around each transaction.** A connection per thread would gain little
(SQLite has one writer at a time, and Python makes and reads the JSON outside of the transaction) and
would have to be closed when its thread ends, by somebody who learns of that. So `_using` is held
across I/O, which no other lock here is: for one transaction, never for waiting. Where another
process has the file locked, the lock is given back between two looks at it, and the loop that looks
is ours: bounded, and Ctrl-C ends it. The wait for the lock itself has no limit of its own: it lasts
as long as the transactions of other threads that come first, each of which ends unless the disk
hangs, as it would for us. So does a finaliser that closes a store, on whichever thread it runs.
Inside of a transaction no other lock of ours is taken. A fork takes this one first, before those of
`_fork`; so whoever holds one of those must not ask a database.

**Nothing open crosses a fork.** POSIX locks are not inherited, but SQLite's own account of them is:
it keeps one per file in the process. Seen: with a connection open at the fork, not only its copy is
useless in the child. A new connection there takes no lock on the file, since the account says that
the process holds one; and a transaction that the parent had open locks the child out for ever. So a
fork waits until a transaction is over, and the connection is closed before it; parent and child open
their own when they next need one. Where that could not be (the fork did not come through Python, or
a transaction took longer than a fork waits), the child refuses that file.

**The file is looked at before each transaction.** Once it is deleted or replaced, a connection goes
on writing into the old one, which has no name, and nobody ever sees that again.

A connection that met an error other than a lock is closed; the next transaction opens a new one.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from . import _fork
from ._fork_lock import fork_lock
from ._handlers import raise_hosts
from ._sync import Deadline
from .errors import ConcurrencyError, StoreError

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

# Seconds. SQLite looks for so long by itself before it says that the file is locked, then we sleep.
_LOOK: Final = 0.02
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05

# What SQLite says, and what it means to a person. In part: the error itself is the cause.
_MEANINGS: Final = (
    ("lock", "other processes had it locked all the time"),
    ("is full", "the disk is full; nothing of this batch was stored"),
    ("not a database", "this is no SQLite database, or it is damaged; move it away to begin anew"),
    ("malformed", "the database is damaged: `sqlite3 FILE .recover` can save what is left of it"),
    ("unable to open", "it cannot be opened: look at the permissions of the file and of its folder"),
    ("disk I/O", "the disk failed, or a file system that SQLite cannot use: look at the system's log"),
    ("readonly", "it cannot be written: look at the permissions of the file and of its folder"),
)


def _close_all() -> None:
    """Before a fork, with `_using` held. Where somebody holds it still, his connection stays."""
    if _using.acquire(blocking=False):
        try:
            for database in list(_open):
                database.disconnect()
        finally:
            _using.release()


# Held for one transaction, and while a connection is opened or closed; by a fork.
_using = fork_lock(_close_all)
_open: set[Database] = set()  # those that have a connection
_inherited: set[tuple[int, int]] = set()  # files of connections that came with a fork
_kept: list[object] = []  # such connections: closing one would write


def _after_in_child() -> None:
    for database in list(_open):
        _kept.append(database.abandon())
    _open.clear()


_fork.on_child(_after_in_child)


class Database:
    """`prepare` is called with each new connection: it makes the tables, or refuses the file."""

    def __init__(self, path: str, timeout: float, prepare: Callable[[sqlite3.Connection], None]) -> None:
        self.path = path
        self.timeout = timeout
        self._prepare = prepare
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of what is open
        self._closed = False
        self._working = False  # a transaction is on

    def write(self, work: Work[T], key: tuple[str | None, ...] = ()) -> T:
        """Do `work` in a transaction that nobody else writes beside: all of it or, if it raises, nothing.

        It may be called again when another process was faster; so it must change the database only.
        """
        return self._do("BEGIN IMMEDIATE", work, key)

    def read(self, sql: str, values: tuple[object, ...], key: tuple[str | None, ...] = ()) -> list[Any]:
        """All rows of one query, as they were at one moment."""
        return self._do("BEGIN", lambda connection: connection.execute(sql, values).fetchall(), key)

    def close(self) -> None:
        """For good. Waits for the transaction that is running; a second time nothing happens."""
        self._closed = True
        self.rest()

    def rest(self) -> None:
        """Close the connection until the next transaction."""
        _fork.check()
        with _using:
            self.disconnect()

    def disconnect(self) -> None:
        """Close the connection; the next transaction opens another. `_using` is held."""
        connection, self._connection = self._connection, None
        _open.discard(self)
        if connection is not None:
            connection.close()

    def abandon(self) -> object:
        """In a forked child: the connection is the parent's, and is never touched again."""
        connection, self._connection = self._connection, None
        if self._file is not None:
            _inherited.add(self._file)
        return connection

    def _do(self, begin: str, work: Work[T], key: tuple[str | None, ...]) -> T:
        _fork.check()
        deadline, pause = Deadline(self.timeout), _SHORTEST_PAUSE
        while True:
            try:
                with _using:
                    return self._transaction(begin, work)
            except OSError as error:
                raise_hosts(error)
                raise StoreError(f"{self.path}: {error.strerror}", key=key) from error
            except sqlite3.Error as error:
                if not _may_pass(error) or deadline.is_over():
                    raise StoreError(f"{self.path}: {_meaning(error)}", key=key) from error
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _transaction(self, begin: str, work: Work[T]) -> T:
        """`_using` is held."""
        connection = self._connected()
        if self._working and connection.in_transaction:  # ours: undoing this one would undo the other, in part
            raise ConcurrencyError(f"{self.path}: used within a transaction of its own thread, by a signal handler")
        try:
            self._working = True
            if connection.in_transaction:  # two Ctrl-C, and the second one kept `_undo` from its work
                connection.execute("ROLLBACK")
            connection.execute(begin)
            value = work(connection)
            connection.execute("COMMIT")
            return value
        except BaseException as error:
            self._undo(connection, error)
            raise
        finally:
            self._working = False

    def _undo(self, connection: sqlite3.Connection, error: BaseException) -> None:
        """Leave no transaction open: it would lock all others out. A signal handler may have forked,
        and the connection be closed, which has undone it already."""
        if self._connection is not connection:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.disconnect()  # undoes it too
        if isinstance(error, sqlite3.Error) and not _may_pass(error):
            self.disconnect()

    def _connected(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(f"{self.path}: this store was closed", retryable=False)
        if self._connection is not None and _file_at(self.path) != self._file:
            self.disconnect()
        while (connection := self._connection) is None:  # a signal handler that forks closes it at once
            self._connect()
        return connection

    def _connect(self) -> None:
        _create(self.path)
        file = _file_at(self.path)
        if file in _inherited:
            raise ConcurrencyError(
                f"{self.path}: this process was forked while its parent used the database, which SQLite does not "
                "allow; fork before the store is used, or start the child with `spawn`"
            )
        # Never made by SQLite, which would follow the umask. Any bytes may be in a path: hence the URI.
        uri = "file:" + _quoted(self.path) + "?mode=rw"
        # Listed before it is there, and while it is prepared: Ctrl-C or a signal handler that forks may
        # come at any moment, and what is not listed is not closed before a fork.
        self._file = file
        _open.add(self)
        connection = sqlite3.connect(uri, uri=True, timeout=_LOOK, isolation_level=None, check_same_thread=False)
        self._connection = connection
        try:
            self._prepare(connection)
        except BaseException:
            self.disconnect()
            raise


def _create(path: str) -> None:
    """Make an empty file that only its owner can read; the files beside it get the same rights.

    One that exists is not opened: closing it would drop all locks that this process has on it.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        _refuse_what_is_no_file(path)
        return
    try:
        os.fchmod(fd, 0o600)  # whatever the umask took away
    finally:
        os.close(fd)


def _refuse_what_is_no_file(path: str) -> None:
    """Of which SQLite would say only that it cannot be opened, or that the disk fails."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if not os.path.islink(path):
            return  # removed just now
        why = f"is a link to {os.readlink(path)}, which does not exist: make an empty file there, or remove the link"
    else:
        if stat.S_ISREG(mode):
            return
        why = "is a folder, a pipe or a device, not a regular file: give the store a file"
    raise StoreError(f"{path} {why}", retryable=False)


def _file_at(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _quoted(path: str) -> str:
    import urllib.parse

    return urllib.parse.quote(os.fsencode(path))


def _may_pass(error: sqlite3.Error) -> bool:
    """Whether the same may work in a moment: another process has the lock, or a signal handler forked
    in the middle of a transaction. By its text: Python 3.10 has no error codes."""
    return "lock" in str(error) or "closed database" in str(error)


def _meaning(error: sqlite3.Error) -> str:
    said = str(error)
    meaning = next((words for part, words in _MEANINGS if part in said), "")
    return f"{said} ({meaning})" if meaning else said
