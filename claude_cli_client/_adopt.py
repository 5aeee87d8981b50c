"""A session that is on this disk and not, or not wholly, in the store: the store gets it.

A resumed turn mirrors only its new lines. So turns that the store did not take, or that were made
without it, would be missing in it: without its beginning, or its end, the session would be resumed
the next time, in silence. Before such a turn they go to the store from the files of this machine:
each transcript in one batch, which a store takes as a whole or not at all, subagents first.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ._chain import before_of, conversation, in_order, kept_by, links_of, noted
from ._checks import is_uuid
from ._handlers import raise_unless_absent
from ._mirror import PAUSES
from ._on_disk import OnDisk
from ._store_calls import copies
from ._summary import says
from ._transcript_file import TranscriptFile, subagents_of
from ._transcript_key import key_below
from .errors import SessionNotFoundError, StartError
from .store import SessionKey, SessionStore, identity

Entries = Sequence[Mapping[str, Any]]
Transcript = tuple[SessionKey, Entries]

_NAMES: Final = ("customTitle", "aiTitle", "tag")


def has_gap(entries: Entries) -> bool:
    """Whether a main transcript lacks messages: those that others follow, or that a compaction kept.

    What stood before a compaction is not needed: it begins anew, and a copy by the CLI begins with it.
    """
    own = [entry for entry in entries if entry.get("isSidechain") is not True]
    parents = {parent for entry in own if isinstance(parent := entry.get("parentUuid"), str)}
    return not _ids(entries).issuperset(parents.union(*map(kept_by, own)))


def _ids(entries: Entries) -> set[str]:
    return {uuid for entry in entries if (uuid := identity(entry)) is not None}


@contextlib.contextmanager
def _of_this_disk() -> Iterator[None]:
    """A disk that cannot be read just now is a `StartError`. Turns that the store lacks would be left out, and the next
    one stand in their place; or another conversation would be the latest."""
    try:
        yield
    except OSError as error:
        what = f"what this disk has of the conversation cannot be read: {error}"
        raise StartError(what, errno=error.errno, retryable=True) from error


@_of_this_disk()
def local_id(wanted: str | None, cwd: str, config: str) -> str | None:
    """The id of a session of this disk: that with this id or title, with None the latest of `cwd`."""
    if is_uuid(wanted):
        return wanted
    infos = OnDisk(cwd, config).infos(False, exact=True)  # the CLI looks into no other worktree
    if wanted is None:
        return next((info.session_id for info in infos), None)
    named = [info.session_id for info in infos if folded_title(info.custom_title) == folded_title(wanted)]
    return named[0] if len(named) == 1 else None  # of several the CLI takes none, and says so


def folded_title(title: str | None) -> str:
    """As the CLI compares titles."""
    return (title or "").strip().lower()


@_of_this_disk()
def local_transcripts(session_id: str, cwd: str, config: str) -> list[Transcript]:
    """What this disk has of a session, the main transcript last; nothing where that is not there.

    Of several copies that of `cwd`, else the newest, as the CLI takes them.
    """
    for place in (OnDisk(cwd, config), OnDisk(None, config)):
        try:
            with place.open(session_id) as main:
                projects = os.path.dirname(os.path.dirname(main.path))
                found = [*_subagents(main.path, projects), (_key(projects, main.path), _entries(main))]
        except (OSError, SessionNotFoundError) as error:
            raise_unless_absent(error)
            continue
        return [(key, entries) for key, entries in found if entries]
    return []


def adopt(store: SessionStore, transcripts: Iterable[Transcript], is_over: Callable[[], bool]) -> None:
    """Append them, each with the tries of the mirror. Raises what the store raised last.

    `is_over`: nobody waits for it any more; the store may be closed.
    """
    for key, entries in transcripts:
        for pause in (*PAUSES, None):
            if is_over():
                return
            try:
                store.append(key, copies(entries))
                break
            except Exception:
                if pause is None:
                    raise
                time.sleep(pause)


def completed(stored: Sequence[Transcript], local: Iterable[Transcript]) -> tuple[list[Transcript], list[Transcript]]:
    """What is stored, with what this disk has more of it; and that part, which the store lacks.

    Where the store has something of its own, another machine has gone on, and is right: then only what leads
    to the stored messages, and how the session is called. A branch of this disk that the store never knew
    stays here, with its subagents.
    """
    main = stored[0][0]
    whole = dict(stored)
    lacking: list[Transcript] = []
    alone = False  # another machine has gone on
    calls: set[str] = set()  # of the conversation and its subagents
    for key, entries in sorted(local, key=_from_the_top):
        key = SessionKey(main.project_key, main.session_id, key.subpath)  # it may have been begun elsewhere
        there = whole.get(key)
        if key == main:
            alone = there is not None and not _ids(there) <= _ids(entries)
        elif alone and there is None and not _call_of(entries) <= calls:
            continue
        missing = entries if there is None else _lacking(there, entries, key)
        if missing:
            lacking.insert(0, (key, missing))
            whole[key] = in_order([*(there or ()), *missing])  # as the store will give it the next time
        if alone:
            calls |= _calls(whole[key]) if key != main else set().union(*map(_calls, whole.values()))
    return list(whole.items()), lacking


def _lacking(there: Entries, local: Entries, key: SessionKey) -> list[Mapping[str, Any]]:
    stored = _ids(there)
    if not stored <= _ids(local):
        missing, end = _before(there, local), _end(there)
    elif key.subpath is None:
        missing, end = _without(stored, local), _end(local)
    else:  # of which none notes the end: what stands further up, and nothing hangs on it, would be the end
        last = max((place for place, entry in enumerate(local) if identity(entry) in stored), default=-1)
        missing, end = _without(stored, local[last + 1 :]), ""
        missing = [*_before([*there, *missing], local), *missing]
    # What is put behind the rest is not the end for that.
    prompt = _last_prompt(there, local)
    note = {"type": "last-prompt", "lastPrompt": prompt, "leafUuid": end, "sessionId": key.session_id}
    return [*missing, *_names(there, local), *([note] if missing and end and key.subpath is None else [])]


def _without(stored: set[str], local: Entries) -> list[Mapping[str, Any]]:
    return [entry for entry in local if (uuid := identity(entry)) is not None and uuid not in stored]


def _last_prompt(there: Entries, local: Entries) -> str:
    """Of those that are noted the last one of the side that goes on."""
    side = local if _ids(there) <= _ids(local) else there
    said = (entry.get("lastPrompt") for entry in reversed(side) if noted(entry))
    return next((text for text in said if isinstance(text, str)), "")


def _end(entries: Entries) -> str:
    """The last message of the conversation."""
    shown = conversation(*links_of(enumerate(entries)))
    return shown[-1].uuid if shown else ""


def _from_the_top(transcript: Transcript) -> tuple[bool, int]:
    """The conversation, its subagents, theirs."""
    key, entries = transcript
    about = next((entry for entry in entries if entry.get("type") == "agent_metadata"), {})
    depth = about.get("spawnDepth")
    return key.subpath is not None, depth if isinstance(depth, int) else 0


def _calls(entries: Entries) -> set[str]:
    return {call for link in links_of(enumerate(entries))[0] for call in link.calls}


def _call_of(agent: Entries) -> set[str]:
    """The call that began a subagent, where that is said."""
    calls = (entry.get("toolUseId") for entry in agent if entry.get("type") == "agent_metadata")
    return {call for call in calls if isinstance(call, str)}


def _before(there: Entries, local: Entries) -> list[Mapping[str, Any]]:
    """The local entries that those of `there` come from, with the answers that hang on them, in their order."""
    by_uuid = {uuid: entry for entry in local if (uuid := identity(entry)) is not None}
    wanted, todo = set[str](), _sources(there) - _ids(there)
    while todo:
        uuid = todo.pop()
        if uuid in by_uuid and uuid not in wanted:
            wanted.add(uuid)
            todo |= _sources([by_uuid[uuid]])
    # Parallel calls of one answer, and their results, hang beside the chain.
    answers = {_message_of(by_uuid[uuid]) for uuid in wanted} - {None}
    wanted |= {uuid for uuid, entry in by_uuid.items() if _message_of(entry) in answers}
    callers = {uuid: entry.get("sourceToolAssistantUUID") for uuid, entry in by_uuid.items()}
    wanted |= {uuid for uuid, caller in callers.items() if isinstance(caller, str) and caller in wanted}
    wanted -= _ids(there)
    return [entry for uuid, entry in by_uuid.items() if uuid in wanted]


def _sources(entries: Entries) -> set[str]:
    """What stands before each of these, and what a compaction kept."""
    return {uuid for entry in entries for uuid in (before_of(entry), *kept_by(entry))}


def _names(there: Entries, local: Entries) -> list[Mapping[str, Any]]:
    """The latest title and tag, where `there` says none: nothing leads to them."""
    unsaid = [field for field in _NAMES if not any(says(entry, field) for entry in there)]
    return [entry for field in unsaid for entry in [entry for entry in local if says(entry, field)][-1:]]


def _message_of(entry: Mapping[str, Any]) -> str | None:
    message = entry.get("message")
    id = message.get("id") if isinstance(message, Mapping) else None
    return id if isinstance(id, str) else None


def _subagents(path: str, projects: str) -> Iterator[Transcript]:
    """Without those that are removed just now, or not ours to read: the conversation does not need them."""
    try:
        agents = subagents_of(path)
    except OSError as error:
        raise_unless_absent(error)
        return
    for agent in agents.values():
        try:
            with TranscriptFile(agent) as file:
                about = file.parents()
                entries = _entries(file)
        except OSError as error:
            raise_unless_absent(error)
            continue
        yield _key(projects, agent), [{"type": "agent_metadata", **about}, *entries] if about else entries


def _key(projects: str, path: str) -> SessionKey:
    parts = key_below(projects, path)
    assert parts is not None, path  # it was found there
    return SessionKey(*parts)


def _entries(file: TranscriptFile) -> list[Mapping[str, Any]]:
    """As the CLI mirrors them: without its own notes of requests, which are large and never leave the disk."""
    return [entry for _, entry in file.scan() if not str(entry.get("type", "")).startswith("api-request")]
