"""Sessions in PostgreSQL: a store for `Client(store=...)`, to copy and change.

    pip install 'psycopg[binary,pool]'

    from claude_cli_client import Client
    from postgres_store import PostgresStore
    from psycopg_pool import ConnectionPool

    pool = ConnectionPool("dbname=app", open=True)
    store = PostgresStore(pool)
    store.create_tables()
    client = Client(store=store)

Needs PostgreSQL 9.5 or newer. A pool does not survive a fork: make it in the worker.

**Order.** A sequence would not do for the position of an entry: two transactions may take 1 and 2
and commit as 2 and 1, and whoever reads in between sees an order that changes later. So the position
is counted for each transcript, in its row, and an append begins by locking that row: whoever comes
second waits until the first has committed. Appends to different transcripts do not wait for each
other, and no transaction holds two such locks, so they cannot wait in a circle.

**Once.** `ON CONFLICT DO NOTHING` on (transcript, uuid) leaves out what is there, also within one
batch; NULL conflicts with nothing, so entries without a uuid are all kept. `RETURNING` tells which
were new: the summary goes on with these alone. It is updated in the same transaction.

**Text, not jsonb.** An entry is opaque. As `jsonb` it could not hold U+0000 or a lone surrogate;
`json.dumps` writes both as plain ASCII. A position is left out where a repeated entry would have been
(only the order counts).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg import Cursor
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool

from claude_cli_client import SessionKey
from claude_cli_client.store import StoredSession, StoredSummary, summarize

# A main transcript has the subpath '': NULL is equal to nothing, and would not be unique.
_TABLES = """
    CREATE TABLE IF NOT EXISTS claude_transcripts (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        project_key text NOT NULL,
        session_id text NOT NULL,
        subpath text NOT NULL,
        length bigint NOT NULL DEFAULT 0,
        mtime bigint NOT NULL DEFAULT 0,
        summary text,
        UNIQUE (project_key, session_id, subpath)
    );
    CREATE TABLE IF NOT EXISTS claude_entries (
        transcript bigint NOT NULL REFERENCES claude_transcripts ON DELETE CASCADE,
        position bigint NOT NULL,
        uuid text,
        entry text NOT NULL,
        PRIMARY KEY (transcript, position),
        UNIQUE (transcript, uuid)
    );
"""
# The row of the transcript, made if it is not there, and locked until the end of the transaction:
# an update that changes nothing does it, where a plain DO NOTHING would neither lock nor return it.
_LOCK = """
    INSERT INTO claude_transcripts (project_key, session_id, subpath) VALUES (%s, %s, %s)
    ON CONFLICT (project_key, session_id, subpath) DO UPDATE SET length = claude_transcripts.length
    RETURNING id, length, summary
"""
_ADD = """
    INSERT INTO claude_entries (transcript, position, uuid, entry)
    SELECT %s, %s + at, uuid, entry FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS batch (uuid, entry, at)
    ON CONFLICT (transcript, uuid) DO NOTHING
    RETURNING position
"""
# The server's clock, and never back: also after it was set.
_GREW = """
    UPDATE claude_transcripts SET
        length = length + %s,
        mtime = greatest(mtime, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
        summary = %s
    WHERE id = %s
"""
_LOAD = """
    SELECT entry FROM claude_entries JOIN claude_transcripts ON id = transcript
    WHERE project_key = %s AND session_id = %s AND subpath = %s ORDER BY position
"""
_LIST = """
    SELECT project_key, session_id, mtime, summary FROM claude_transcripts
    WHERE subpath = '' AND (%(project)s::text IS NULL OR project_key = %(project)s) ORDER BY mtime DESC
"""
_SUBPATHS = "SELECT subpath FROM claude_transcripts WHERE project_key = %s AND session_id = %s AND subpath <> ''"
_DELETE = """
    DELETE FROM claude_transcripts
    WHERE project_key = %s AND session_id = %s AND (%s::text IS NULL OR subpath = %s)
"""


class PostgresStore:
    """Safe for many threads and processes. The pool is yours: its size, its timeouts, its end.

    Its connections may be in autocommit mode and give rows of any kind: nothing here relies on that.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    def create_tables(self) -> None:
        """Make the tables if they are not there. Two that do so at once would collide: hence the lock."""
        with self._transaction() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('claude_transcripts'))")
            cursor.execute(_TABLES)

    def append(self, key: SessionKey, entries: Sequence[Mapping[str, Any]]) -> None:
        """Add the entries that are not there yet."""
        if not entries:
            return
        uuids = [_uuid(entry) for entry in entries]
        texts = [json.dumps(dict(entry)) for entry in entries]
        with self._transaction() as cursor:
            ((at, length, summary),) = cursor.execute(_LOCK, _columns(key)).fetchall()
            rows = cursor.execute(_ADD, (at, length, uuids, texts)).fetchall()
            if not rows:
                return
            if key.subpath is None:
                new: list[Mapping[str, Any]] = [entries[position - length - 1] for (position,) in sorted(rows)]
                summary = json.dumps(summarize(json.loads(summary) if summary else None, new))
            cursor.execute(_GREW, (len(entries), summary, at))

    def load(self, key: SessionKey) -> list[dict[str, Any]] | None:
        """All entries, in the order of their arrival."""
        with self._transaction() as cursor:
            rows = cursor.execute(_LOAD, _columns(key)).fetchall()
        return [json.loads(text) for (text,) in rows] or None

    def list_sessions(self, project_key: str | None) -> list[StoredSession]:
        """The sessions of a project, or of all."""
        return [
            {"project_key": project, "session_id": session, "mtime": mtime}
            for project, session, mtime, _ in self._list(project_key)
        ]

    def list_summaries(self, project_key: str | None) -> list[StoredSummary]:
        """The same with their summaries: one question, and no entry is read."""
        return [
            {"project_key": project, "session_id": session, "mtime": mtime, "summary": json.loads(summary)}
            for project, session, mtime, summary in self._list(project_key)
        ]

    def list_subkeys(self, project_key: str, session_id: str) -> list[str]:
        """The subpaths of a session."""
        with self._transaction() as cursor:
            return [subpath for (subpath,) in cursor.execute(_SUBPATHS, (project_key, session_id)).fetchall()]

    def delete(self, key: SessionKey) -> None:
        """Remove a transcript; with a main key also its subpaths. Entries go with their transcript."""
        with self._transaction() as cursor:
            cursor.execute(_DELETE, (key.project_key, key.session_id, key.subpath, key.subpath))

    @contextmanager
    def _transaction(self) -> Generator[Cursor[tuple[Any, ...]], None, None]:
        """Leaving the block commits, an exception undoes. Said aloud: with autocommit there would be none."""
        with (
            self._pool.connection() as connection,
            connection.transaction(),
            connection.cursor(row_factory=tuple_row) as cursor,
        ):
            yield cursor

    def _list(self, project_key: str | None) -> list[tuple[Any, ...]]:
        with self._transaction() as cursor:
            return cursor.execute(_LIST, {"project": project_key}).fetchall()


def _columns(key: SessionKey) -> tuple[str, str, str]:
    return key.project_key, key.session_id, key.subpath or ""


def _uuid(entry: Mapping[str, Any]) -> str | None:
    uuid = entry.get("uuid")
    return uuid if isinstance(uuid, str) and uuid else None
