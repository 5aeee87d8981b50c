"""A copy of a conversation under a new id: its entries with new uuids, linked as the old ones were.

Pure: the caller gives the new ids and the time, and the entries one by one, twice: once as links to
make the plan, once to copy them, so that a large transcript is never held. (Not the fork of a
process, which is `_fork.py`.)

What is copied is what the official SDK copies, which the CLI resumes: the entries of the tree without
subagents' branches. Progress notes are left out and linked across. Not copied: metadata, the recorded
API requests, checkpoints of files; nor what ties an entry to its old session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ._chain import Link, noted

_LEFT_OUT: Final = ("teamName", "agentName", "slug", "sourceToolAssistantUUID")
# Where an entry names others: what a compaction kept, and whose prompts it took into its summary.
_NAMING: Final = ("compactMetadata", "summarizedTurnPromptUuids")


class ForkPlan:
    """Which entries are copied, and their new ids. `empty` if there is nothing to copy."""

    def __init__(self, links: Sequence[Link], session_id: str, new_id: str, now: str, new_uuid: Callable[[], str]):
        self._session_id, self._new_id, self._now = session_id, new_id, now
        self._by_uuid = {link.uuid: link for link in links}  # of an id that comes twice the last one
        self._ids = {uuid: new_uuid() for uuid, link in self._by_uuid.items() if link.kind != "progress"}
        self._written = {link.place for link in self._by_uuid.values() if link.kind != "progress"}
        self._last = max(self._written, default=-1)
        self._notes = {link.uuid: link.parent for link in self._by_uuid.values() if link.kind == "progress"}
        self._above: dict[str, str | None] = {}  # the new id of what such a note of progress hangs on
        self.empty = not self._written

    def copy(self, place: int, entry: Mapping[str, Any]) -> dict[str, Any] | None:
        """The entry's copy; None if it has no place in the new session."""
        if place not in self._written:
            return None
        old = entry["uuid"]
        copied = {name: value for name, value in entry.items() if name not in _LEFT_OUT}
        copied.update(
            uuid=self._ids[old],
            parentUuid=self._new(self._by_uuid[old].parent),
            sessionId=self._new_id,
            isSidechain=False,
            forkedFrom={"sessionId": self._session_id, "messageUuid": old},
        )
        if isinstance(logical := copied.get("logicalParentUuid"), str):
            copied["logicalParentUuid"] = self._new(logical)
        copied.update({name: self._renamed(copied[name]) for name in _NAMING if name in copied})
        if place == self._last:  # the CLI goes on from the latest message
            copied["timestamp"] = self._now
        return copied

    def note(self, entry: Mapping[str, Any]) -> dict[str, Any] | None:
        """The copy of the note of a turn's end, so that the CLI goes on with the same branch."""
        new = self._new(noted(entry))
        return None if new is None else {**entry, "leafUuid": new, "sessionId": self._new_id}

    def _renamed(self, value: Any, depth: int = 3) -> Any:
        """Each id in it that is one of a copied entry. Not deeper than the CLI writes them: it may be any JSON."""
        if isinstance(value, str):
            return self._ids.get(value, value)
        if depth and isinstance(value, Mapping):
            return {name: self._renamed(one, depth - 1) for name, one in value.items()}
        return [self._renamed(one, depth - 1) for one in value] if depth and isinstance(value, list) else value

    def _new(self, at: str) -> str | None:
        """The new id of this entry, or the nearest one above it that is copied. Circles of progress notes end."""
        passed: dict[str, None] = {}
        while at in self._notes and at not in passed and at not in self._above:
            passed[at] = None
            at = self._notes[at]
        above = self._above.get(at) if at in self._notes else self._ids.get(at)
        self._above.update(dict.fromkeys(passed, above))  # a long row of them is walked once
        return above


def first_until(links: Sequence[Link], uuid: str) -> list[Link] | None:
    """The links until this message, itself included, in the order of the file; None if it is not there."""
    for index, link in enumerate(links):
        if link.uuid == uuid:
            return list(links[: index + 1])
    return None
