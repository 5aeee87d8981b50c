"""A session that is on this disk and not, or not wholly, in the store: the store gets it.

A resumed turn mirrors only its new lines. So a session that began without the store, or whose first
turns the store did not take, would be stored from its middle on, and resumed from there the next
time: without its history, in silence. Before such a turn the rest goes to the store from the files of
this machine: each transcript in one batch, which a store takes as a whole or not at all, subagents
first. A session whose main transcript is there is there wholly.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ._checks import is_uuid
from ._on_disk import OnDisk
from ._transcript_file import TranscriptFile, subagents_of
from ._transcript_key import key_below
from .errors import SessionNotFoundError
from .store import SessionKey, SessionStore, identity

Entries = Sequence[Mapping[str, Any]]
Transcript = tuple[SessionKey, Entries]


def has_gap(entries: Entries) -> bool:
    """Whether a message follows one that is not there: what stands before it was not stored."""
    known = {entry.get("uuid") for entry in entries}
    return any(
        entry.get("parentUuid") not in known
        for entry in entries
        if entry.get("parentUuid") is not None and entry.get("isSidechain") is not True
    )


def local_id(wanted: str | None, cwd: str, config: str) -> str | None:
    """The id of a session of this disk: the one with this id or title, with None the latest of `cwd`."""
    if wanted is not None and is_uuid(wanted):
        return wanted
    for info in OnDisk(cwd, config).infos(True):
        if wanted is None or info.custom_title == wanted:
            return info.session_id
    return None


def local_transcripts(session_id: str, config: str) -> list[Transcript]:
    """What this disk has of a session, the main transcript last; nothing where that is not there."""
    try:
        with OnDisk(None, config).open(session_id) as main:
            projects = os.path.dirname(os.path.dirname(main.path))
            found = [*_subagents(main.path, projects), (_key(projects, main.path), _entries(main))]
    except (OSError, SessionNotFoundError):
        return []
    return [(key, entries) for key, entries in found if entries]


def adopt(store: SessionStore, transcripts: Iterable[Transcript]) -> None:
    """Append them. Raises what the store raises."""
    for key, entries in transcripts:
        store.append(key, entries)


def completed(stored: Iterable[Transcript], local: Iterable[Transcript]) -> tuple[list[Transcript], list[Transcript]]:
    """What is stored with what this disk has beside it, oldest first; and what of it the store lacks."""
    whole = dict(stored)
    lacking: list[Transcript] = []
    main = next(iter(whole))
    for key, entries in local:
        key = SessionKey(main.project_key, main.session_id, key.subpath)  # it may have been begun elsewhere
        there = whole.get(key, ())
        known = {uuid for entry in there if (uuid := identity(entry)) is not None}
        missing = [entry for entry in entries if identity(entry) not in known and (identity(entry) or not there)]
        if missing:
            lacking.append((key, missing))
            whole[key] = [*missing, *there]
    return list(whole.items()), lacking


def _subagents(path: str, projects: str) -> Iterator[Transcript]:
    for agent in subagents_of(path).values():
        with TranscriptFile(agent) as file:
            about = file.parents()
            entries = _entries(file)
        yield _key(projects, agent), [{"type": "agent_metadata", **about}, *entries] if about else entries


def _key(projects: str, path: str) -> SessionKey:
    parts = key_below(projects, path)
    assert parts is not None, path  # it was found there
    return SessionKey(*parts)


def _entries(file: TranscriptFile) -> list[Mapping[str, Any]]:
    """As the CLI mirrors them: without its own notes of requests, which are large and never leave the disk."""
    return [entry for _, entry in file.scan() if not str(entry.get("type", "")).startswith("api-request")]
