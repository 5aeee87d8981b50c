"""Where conversations can live beside the disk of one machine: the contract of a session store.

A store holds what the CLI writes into its transcripts, entry by entry. Entries are opaque JSON
objects; only `uuid`, where there is one, means something to a store: it is what makes a repeated
`append` harmless. `testing.check_store` tells whether a store keeps this contract.

A store is called from several threads at once (the mirrors of several runs), and an `append` that
took too long may still be running when the next one comes: it must be safe for that. It may raise
whatever it likes; a run is never failed by its store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from typing_extensions import NotRequired, TypedDict

    class StoredSession(TypedDict):
        """One row of `SessionStore.list_sessions`."""

        session_id: str
        mtime: int  # milliseconds since 1970: when the main transcript last grew
        project_key: NotRequired[str]  # needed where all projects are listed

    class StoredSummary(TypedDict):
        """One row of `SessionStore.list_summaries`."""

        session_id: str
        mtime: int  # milliseconds, of the same clock as that of `list_sessions`
        summary: dict[str, Any]  # as `summarize` made it: opaque
        project_key: NotRequired[str]


class SessionKey(NamedTuple):
    """One transcript. A tuple, so it may be a key of a dict or a row of a table."""

    project_key: str  # the name of the project's folder
    session_id: str
    subpath: str | None = None  # None: the session's own; else for example "subagents/agent-a75"


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
        """The same with what a list shows of them, so that no transcript has to be loaded."""
        ...

    def list_subkeys(self, project_key: str, session_id: str) -> Sequence[str]:
        """The subpaths of a session: what its subagents wrote."""
        ...

    def delete(self, key: SessionKey) -> None:
        """Remove a transcript; with a main key also all of its subpaths. Nothing there: nothing done."""
        ...
