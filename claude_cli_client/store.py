"""Where conversations can live beside the disk of one machine: the contract of a session store.

A store holds what the CLI writes into its transcripts, entry by entry. `append` and `load` are all
that it must have; `ListingStore` names what it may have beyond that. `testing.check_store` tells
whether a store keeps this contract:

- An entry is a JSON object, and comes back as an equal one: any text (also U+0000 and lone
  surrogates, which JSON can write as `\\u0000` and `\\ud800`), whole numbers of any size, any depth
  that `json` takes. The order of keys is free. Whoever stores the text of `json.dumps(entry)`,
  which is ASCII, keeps all of that. What JSON does not know, NaN say, never comes.
- An entry whose `uuid` is a text that is not empty is held once in its transcript: the same again is
  left out, also within one batch and however much came in between, and the first one stays. That makes
  a repeated `append` harmless. All other entries are added, whatever they look like: a `uuid` that is
  a number is none. The same `uuid` in another transcript is another entry.
- The order is that of arrival. An empty batch changes nothing, nor does one of repeated entries: the
  session's `mtime` stays, so that it is not taken for the newest one. So it does when a subpath grows.
- A batch is stored as a whole or, if `append` raises, not at all, and the next one can be stored.
- Who loads while others append gets a beginning of what is there afterwards, which may end within a
  batch: nothing comes in between later.
- Nothing has a limit: neither the entries of a transcript nor the rows of a list.
- Keys and uuids are compared exactly, upper and lower case too. Keys may hold any characters.

A store is called from several threads at once (the mirrors of several runs), and an `append` that
took too long may still be running when the next one comes: it must be safe for that. It may raise
whatever it likes: a turn that has begun is never failed by its store. A batch is what a turn writes
(some hundred entries, or one that is large), or a whole transcript that was begun without the store.

`MemoryStore` is here. `SQLiteStore` is in `_sqlite_store`, so that nothing here imports `sqlite3`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypedDict

from . import _fork
from ._callables import fits, function
from ._checks import repaired
from ._fork_lock import fork_lock
from ._summary import summarize

__all__ = [
    "ListingStore",
    "MemoryStore",
    "SessionKey",
    "SessionStore",
    "StoredSession",
    "StoredSummary",
    "summarize",
]


class SessionKey(NamedTuple):
    """One transcript. A tuple, so it may be a key of a dict or a row of a table.

    `project_key`: the name of the project's folder. `session_id`: a UUID, as text. `subpath`: None for
    the session's own, else that of another one of it, for example "subagents/agent-a75".
    """

    project_key: str
    session_id: str
    subpath: str | None = None


class _Row(TypedDict):
    session_id: str
    mtime: int


class StoredSession(_Row, total=False):
    """One row of `ListingStore.list_sessions`: a dict.

    `session_id`: as in its key. `mtime`: milliseconds since 1970, a whole number: when the main
    transcript last grew, and nothing else. `project_key`: as in its key; may be left out where the
    sessions of one project are listed.
    """

    project_key: str


class StoredSummary(StoredSession):
    """One row of `ListingStore.list_summaries`: a dict.

    `session_id`, `mtime` (milliseconds since 1970, of the same clock) and `project_key` as in
    `StoredSession`. `summary`: what `summarize` made of all entries of the main transcript, as it is.
    """

    summary: dict[str, Any]


class SessionStore(Protocol):
    """What every store can do. The methods of `ListingStore` are optional, one by one."""

    def append(self, key: SessionKey, entries: Sequence[Mapping[str, Any]]) -> None:
        """Add entries at the end, in this order. An entry whose `uuid` is there already is left out."""
        ...

    def load(self, key: SessionKey) -> list[dict[str, Any]] | None:
        """All entries in the order of their arrival; None if there is no such transcript."""
        ...


class ListingStore(SessionStore, Protocol):
    """What a store may offer beyond that. Each method is looked up by name, and may be missing."""

    def list_sessions(self, project_key: str | None) -> Sequence[StoredSession]:
        """The sessions of a project, or with None of all; main transcripts only, in any order."""
        ...

    def list_summaries(self, project_key: str | None) -> Sequence[StoredSummary]:
        """The same with what a list shows of them, so that no transcript has to be loaded.

        A store keeps the summary beside the entries and goes on with it at each `append`:
        `summary = summarize(summary, entries_that_were_new)`, beginning with None.
        """
        ...

    def list_subkeys(self, project_key: str, session_id: str) -> Sequence[str]:
        """The subpaths of a session: what its subagents wrote."""
        ...

    def delete(self, key: SessionKey) -> None:
        """Remove a transcript; with a main key also all of its subpaths. Nothing there: nothing done."""
        ...


def optional(store: object, name: str) -> Callable[..., Any] | None:
    """A method that a store need not have; None: it has not.

    A class may inherit from the protocol: what it did not write itself does nothing, and is none.
    """
    method = getattr(store, name, None)
    inherited = getattr(type(store), name, None) is getattr(ListingStore, name)
    return method if callable(method) and not inherited else None


# What a store is called with, by position.
_ARGUMENTS: Final = {
    "append": ("key", "entries"),
    "load": ("key",),
    "list_sessions": ("project_key",),
    "list_summaries": ("project_key",),
    "list_subkeys": ("project_key", "session_id"),
    "delete": ("key",),
}


def must_be_store(value: Any) -> None:
    """Raises ValueError for what is no store, and for one that would have to be awaited.

    And TypeError for a method that cannot be called as a store's is: each call would fail, and a turn
    goes on when its store fails.
    """
    if isinstance(value, type):
        raise ValueError(f"store must be a store, and {value.__name__} is a class: make one of it")
    for name in ("append", "load"):
        method = getattr(value, name, None)
        if not callable(method) or getattr(type(value), name, None) is getattr(SessionStore, name):
            raise ValueError(
                f"store must have append(key, entries) and load(key), but a {type(value).__name__} has no {name}()"
            )
    for name, arguments in _ARGUMENTS.items():
        if method := optional(value, name):
            function(f"{name} of store", method, may_yield=name.startswith("list_"))
            if not fits(method, len(arguments)):
                call = f"{name}({', '.join(arguments)})"
                raise TypeError(f"a store is called as {call}, and {name} of {type(value).__name__} does not take that")


# --- what our own stores share


def checked(key: SessionKey) -> SessionKey:
    """The key, if its parts are texts; a ValueError else. TypeError for what is none: a dict, say."""
    if not isinstance(key, tuple):
        raise TypeError(f"a key is a SessionKey(project_key, session_id, subpath), not a {type(key).__name__}")
    key = SessionKey(*key)
    for name, part in zip(key._fields, key, strict=True):
        if part is None and name == "subpath":
            continue
        if not isinstance(part, str) or not part or repaired(part) != part:
            raise ValueError(f"{name} of a SessionKey must be text that is not empty, not {part!r}")
    return key


def identity(entry: Mapping[str, Any]) -> str | None:
    """What makes an entry the same as another one; None: nothing does."""
    uuid = entry.get("uuid")
    return uuid if isinstance(uuid, str) and uuid else None


def encoded(entry: Mapping[str, Any]) -> str:
    """As JSON without blanks; escapes only where UTF-8 has no bytes for it."""
    entry = dict(entry)
    text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
    return text if repaired(text) == text else json.dumps(entry, separators=(",", ":"))


def later(last: int) -> int:
    """Now, in milliseconds, as a time that has not been before.

    Who continues "the newest session" must get it also after the clock was set back, and of two
    sessions that grew within one millisecond.
    """
    return max(int(time.time() * 1000), last + 1)


# --- in memory


# Held for steps in memory alone: never while JSON is made or read. One for all stores, so that a
# forked child finds every store whole and the lock free.
_changing = fork_lock()


@dataclass
class _Transcript:
    entries: list[str] = field(default_factory=list)  # as JSON: neither side can change the other's objects
    known: set[str] = field(default_factory=set)
    mtime: int = 0
    summary: dict[str, Any] | None = None


class MemoryStore:
    """A store in the memory of this process: for tests, and to carry a session through one program.

    Safe for many threads. A forked child has a copy, and goes its own way with it. Not to be pickled or copied.
    """

    def __init__(self) -> None:
        self._transcripts: dict[SessionKey, _Transcript] = {}
        self._mtime = 0  # the latest of all

    def append(self, key: SessionKey, entries: Sequence[Mapping[str, Any]]) -> None:
        """Add entries. What JSON cannot hold is a TypeError or ValueError, and nothing is added."""
        key = checked(key)
        rows = [(identity(entry), encoded(entry)) for entry in entries]
        copies = [json.loads(text) for _, text in rows]
        _fork.check()
        with _changing:
            transcript = self._transcripts.get(key) or _Transcript()
            known: set[str] = set()
            texts, new = [], []
            for (uuid, text), copy in zip(rows, copies, strict=True):
                if uuid is None or not (uuid in transcript.known or uuid in known):
                    known.update({uuid} if uuid else ())
                    texts.append(text)
                    new.append(copy)
            if not new:
                return
            time, summary = later(self._mtime), summarize(transcript.summary, new)
            # All is made, and no function is called from here on: Ctrl-C does not leave half of a batch.
            transcript.entries += texts
            transcript.known |= known
            transcript.mtime, transcript.summary = time, summary
            self._mtime, self._transcripts[key] = time, transcript

    def load(self, key: SessionKey) -> list[dict[str, Any]] | None:
        """New objects; None if there is no such transcript."""
        _fork.check()
        with _changing:
            found = self._transcripts.get(checked(key))
            texts = None if found is None else list(found.entries)
        return None if texts is None else [json.loads(text) for text in texts]

    def list_sessions(self, project_key: str | None = None) -> list[StoredSession]:
        """The sessions of a project, or with None of all, the newest first."""
        return [
            {"session_id": key.session_id, "mtime": found.mtime, "project_key": key.project_key}
            for key, found in self._main(project_key)
        ]

    def list_summaries(self, project_key: str | None = None) -> list[StoredSummary]:
        """The same with their summaries."""
        return [
            {
                "session_id": key.session_id,
                "mtime": found.mtime,
                "project_key": key.project_key,
                "summary": json.loads(json.dumps(found.summary)),
            }
            for key, found in self._main(project_key)
        ]

    def list_subkeys(self, project_key: str, session_id: str) -> list[str]:
        """What its subagents wrote, in the order of their first entries."""
        _fork.check()
        with _changing:
            keys = list(self._transcripts)
        return [key.subpath for key in keys if key[:2] == (project_key, session_id) and key.subpath is not None]

    def delete(self, key: SessionKey) -> None:
        """Remove a transcript; with a main key also all of its subpaths."""
        key = checked(key)
        _fork.check()
        with _changing:
            for other in list(self._transcripts):
                if other == key or (key.subpath is None and other[:2] == key[:2]):
                    del self._transcripts[other]

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(
            "a MemoryStore is in the memory of this process and cannot be pickled or copied: what somebody appends to "
            "the copy would not be here; for several processes use SQLiteStore(path)"
        )

    def _main(self, project_key: str | None) -> list[tuple[SessionKey, _Transcript]]:
        """Main transcripts, each as it is at this moment."""
        _fork.check()
        with _changing:
            found = [
                (key, _Transcript(mtime=one.mtime, summary=one.summary))
                for key, one in self._transcripts.items()
                if key.subpath is None and project_key in (None, key.project_key)
            ]
        return sorted(found, key=lambda pair: -pair[1].mtime)
