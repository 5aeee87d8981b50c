"""Sessions in a store: the same few operations as on disk, see `_on_disk.py`.

A store is called as `_store_calls.py` says. A method that it need not have is looked up by name; where
one is needed and missing, that is a `ValueError` which names it. Entries that are no objects are passed
over.

`directory=None` is every project, as far as the store can list them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from . import _log
from ._chain import in_order
from ._project_folders import forms_of
from ._project_key import project_key
from ._store_calls import Row, ask, items, rows, subpaths
from ._summary import SessionInfo, milliseconds, session_info, summarize
from .errors import SessionNotFoundError, StoreError
from .store import SessionKey, must_be_store, optional

# Entries in one `append`: as many as the mirror of a turn collects at most. A copy may come in parts: it is
# taken back where one of them fails.
_AT_ONCE: Final = 500

# What to do with a store that lists nothing: who wants a list, and who has an id.
_GIVE_ID: Final = "give it one of them, or use get_session with an id and the directory where that session began"
_GIVE_DIRECTORY: Final = "give the session's directory, then it is not needed for one session"

Entry = dict[str, Any]


class InStore:
    """The sessions of a directory, or of all, in a store."""

    def __init__(self, directory: str | None, store: Any) -> None:
        must_be_store(store)
        self._store = store
        self._forms = [] if directory is None else forms_of(directory)
        self._keys: list[str] = list(dict.fromkeys(map(project_key, self._forms)))

    # --- lists

    def infos(self, include_worktrees: bool) -> Iterator[SessionInfo]:
        """Newest first; a session whose summary is not in the list is loaded when it is asked for.

        A store knows no worktrees: it lists those of the directory alone.
        """
        shown: set[str] = set()
        for row in self._rows("list_summaries", "list_sessions", remedy=_GIVE_ID):
            info = None if row.key.session_id in shown else self._info(row)
            if info is not None:
                shown.add(row.key.session_id)
                yield info

    def _rows(self, *names: str, remedy: str = _GIVE_DIRECTORY, only: str | None = None) -> list[Row]:
        """What the first of these methods that the store has lists, newest first; with `only` of one session."""
        name = next((name for name in names if self._optional(name)), None)
        if name is None:
            lists = " or ".join(f"{name}()" for name in names)
            raise ValueError(f"the store lists no sessions, it has no {lists}; {remedy}")
        keys: Sequence[str | None] = self._keys or [None]
        for key in keys:
            if found := rows(self._store, name, key, only):
                return found
        return []

    def _info(self, row: Row) -> SessionInfo | None:
        summary = row.summary
        if summary is None:
            summary = summarize(None, self._load(row.key) or ())
        cwd = self._forms[0] if self._forms else None
        return session_info(summary, row.key.session_id, row.mtime, project_key=row.key.project_key, cwd=cwd)

    # --- one session

    def info(self, session_id: str) -> SessionInfo | None:
        """What the list says of it: of several that have this id, of the first that it can show."""
        listed: Iterable[Row]
        lists = ("list_summaries", "list_sessions")
        if not self._keys or any(map(self._optional, lists)):
            listed = self._rows(*lists, only=session_id)
        else:
            listed = (_row_of(key, entries) for key, entries in self._loaded(session_id))
        infos = map(self._info, listed)
        return next((info for info in infos if info is not None), None)

    def open(self, session_id: str) -> StoredTranscript:
        for key, entries in self._loaded(session_id):
            return StoredTranscript(self, key, entries)
        raise self._missing(session_id)

    def append(self, session_id: str, entry: Mapping[str, Any]) -> None:
        self.write(self._key(session_id), [entry])

    def delete(self, session_id: str) -> None:
        """Without a directory in every project that has it: its copies are the same conversation."""
        self._needed("delete")
        found = self._found(session_id)
        for key in found[:1] if self._keys else found:
            self._do("delete", key, key)

    def subagents(self, session_id: str) -> list[str]:
        self._needed("list_subkeys")
        return list(self._subkeys(self._key(session_id)))

    def open_subagent(self, session_id: str, agent_id: str) -> StoredTranscript:
        key = self._key(session_id)
        subpath = f"subagents/agent-{agent_id}"
        if self._optional("list_subkeys"):  # it may lie deeper
            subpath = self._subkeys(key).get(agent_id, subpath)
        entries = self._load(key._replace(subpath=subpath))
        if not entries:
            raise SessionNotFoundError(f"session {session_id} has no subagent {agent_id!r}", wanted=agent_id)
        return StoredTranscript(self, key._replace(subpath=subpath), entries)

    def write(self, key: SessionKey, entries: Iterable[Mapping[str, Any]]) -> None:
        """Append, in parts that a store can take at once."""
        part: list[Mapping[str, Any]] = []
        for entry in entries:
            part.append(entry)
            if len(part) == _AT_ONCE:
                self._do("append", key, key, part)
                part = []
        if part:
            self._do("append", key, key, part)

    def create(self, key: SessionKey, entries: Iterable[Mapping[str, Any]]) -> None:
        """Write a new transcript. If that fails, its beginning is taken away, as far as the store can do that."""
        try:
            self.write(key, entries)
        except BaseException:
            self._take_back(key)
            raise

    def _take_back(self, key: SessionKey) -> None:
        """What is raised is why the copy failed; that its beginning stays is for the log."""
        try:
            if self._optional("delete"):
                self._do("delete", key, key)
        except StoreError as error:
            _log.warning("the beginning of a copy, session %s, stays in the store: %s", key.session_id, error)

    # --- finding it

    def _key(self, session_id: str) -> SessionKey:
        return self._found(session_id)[0]

    def _found(self, session_id: str) -> list[SessionKey]:
        """Where the session is, the latest first. By the store's list, if it has one: a load may be large."""
        if self._optional("list_sessions") or not self._keys:
            found = [row.key for row in self._rows("list_sessions", "list_summaries", only=session_id)]
        else:
            found = [key for key, _ in self._loaded(session_id)]
        if not found:
            raise self._missing(session_id)
        return list(dict.fromkeys(found))

    def _loaded(self, session_id: str) -> Iterator[tuple[SessionKey, list[Entry]]]:
        keys = [SessionKey(key, session_id) for key in self._keys]
        for key in keys or [self._key(session_id)]:
            if entries := self._load(key):
                yield key, entries

    def _load(self, key: SessionKey) -> list[Entry]:
        loaded = ask(self._store, "load", key, key, read=items)
        return [dict(entry) for entry in in_order([entry for entry in loaded if isinstance(entry, dict)])]

    def _subkeys(self, key: SessionKey) -> dict[str, str]:
        """The subpath of each subagent."""
        found: dict[str, str] = {}
        for subpath in subpaths(self._store, key.project_key, key.session_id):
            name = subpath.rpartition("/")[2] if isinstance(subpath, str) else ""
            if name.startswith("agent-") and subpath.startswith("subagents/"):
                found.setdefault(name[len("agent-") :], subpath)
        return found

    def _missing(self, session_id: str) -> SessionNotFoundError:
        where = f"of {self._forms[0]} " if self._forms else ""
        return SessionNotFoundError(f"there is no session {session_id} {where}in the store", wanted=session_id)

    # --- calling it

    def _optional(self, name: str) -> Callable[..., Any] | None:
        return optional(self._store, name)

    def _needed(self, name: str) -> None:
        if not self._optional(name):
            raise ValueError(f"the store cannot do this: a {type(self._store).__name__} has no {name}()")

    def _do(self, name: str, key: SessionKey, *arguments: Any) -> None:
        ask(self._store, name, key, *arguments, read=lambda _: None)


class StoredTranscript:
    """Loaded entries, to be read like an open file (see `TranscriptFile`)."""

    def __init__(self, place: InStore, key: SessionKey, entries: list[Entry]) -> None:
        self._place, self._key, self._entries = place, key, entries

    def __enter__(self) -> StoredTranscript:
        return self

    def __exit__(self, *error: object) -> None:
        pass  # nothing is open

    def scan(self) -> Iterator[tuple[int, Entry]]:
        return enumerate(self._entries)

    def at(self, places: Iterable[int]) -> Iterator[Entry]:
        return (self._entries[place] for place in places)

    def parents(self) -> Mapping[str, Any]:
        """What the CLI wrote about a subagent: an entry among the others, of which the last counts."""
        return next((entry for entry in reversed(self._entries) if entry.get("type") == "agent_metadata"), {})

    def create_beside(self, session_id: str, entries: Iterable[Mapping[str, Any]]) -> None:
        self._place.create(SessionKey(self._key.project_key, session_id), entries)


def _row_of(key: SessionKey, entries: Sequence[Entry]) -> Row:
    """What a list would say of a transcript that was loaded."""
    times = [time for entry in entries if (time := milliseconds(entry.get("timestamp"))) is not None]
    return Row(key, max(times, default=0), summarize(None, entries))
