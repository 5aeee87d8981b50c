"""What is asked of a store, and what of its answers counts.

A store is somebody else's code. What it raises becomes a `StoreError`, also while its answer is read:
a method may be a generator, which runs only then. So an answer is always read to its end inside of
the call. Rows that are no rows are passed over, and a time that is none is the oldest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ._checks import is_uuid
from .errors import StoreError
from .store import SessionKey

T = TypeVar("T")


class Row(NamedTuple):
    """A session, as a store lists it."""

    key: SessionKey
    mtime: int
    summary: Mapping[str, Any] | None  # None: it lists no summaries


def ask(store: Any, name: str, key: Sequence[str | None], *arguments: Any, read: Callable[[Any], T]) -> T:
    """What `read` makes of the answer. `key`: what an error is about."""
    try:
        return read(getattr(store, name)(*arguments))
    except StoreError:  # says it already, and whether a retry may help
        raise
    except Exception as error:
        message = f"the session store failed in {name}(): {type(error).__name__}: {words_of(error)}"
        raise StoreError(message, key=tuple(key)) from error


def copies(entries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What one call of `append` is given: it may empty the list, or put its own id into each, as drivers do."""
    return [dict(entry) for entry in entries]


def words_of(error: BaseException) -> str:
    """What a store's exception says. It is somebody else's code, and may be broken, too."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - what matters is the error that could not be said
        return "it does not say what"


def rows(store: Any, name: str, project: str | None, only: str | None = None) -> list[Row]:
    """What this method lists of a project, or with None of all; the latest first. `only`: of this session.

    Most of the time for one session in a long list would go into making rows of all the others.
    """

    def read(listed: Any) -> list[Row]:
        wanted = (item for item in items(listed) if only is None or _is_of(only, item))
        return [row for item in wanted if (row := _row(item, project)) is not None]

    found = ask(store, name, () if project is None else (project,), project, read=read)
    return sorted(found, key=lambda row: (-row.mtime, row.key.session_id))


def subpaths(store: Any, project: str, session_id: str) -> list[Any]:
    """What `list_subkeys` lists. Not looked at: what to do with one that is none is the caller's matter."""
    return ask(store, "list_subkeys", (project, session_id, None), project, session_id, read=items)


def items(answer: Any) -> list[Any]:
    """Of a list or whatever else can be gone through; none of what is a single thing."""
    is_many = isinstance(answer, Iterable) and not isinstance(answer, (str, bytes, Mapping))
    return list(answer) if is_many else []


def _is_of(session_id: str, item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("session_id") == session_id


def _row(item: Any, project: str | None) -> Row | None:
    if not isinstance(item, Mapping):
        return None
    session_id, key, summary = item.get("session_id"), item.get("project_key", project), item.get("summary")
    if not is_uuid(session_id) or not isinstance(key, str) or not key:
        return None
    return Row(SessionKey(key, session_id), _time(item.get("mtime")), summary if isinstance(summary, Mapping) else None)


def _time(value: Any) -> int:
    return int(value) if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)) else 0
