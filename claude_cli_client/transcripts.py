"""The conversations that the CLI keeps: listed, read, renamed, tagged, copied, removed.

    for info in list_sessions("/srv/app", limit=10):
        print(info.session_id, info.summary)
    for message in get_messages(info.session_id):
        print(message.type, message.text)

Every function works on the files of this machine, or with `store=` on a `SessionStore`; for both the
rest is the same:

- `directory`: only the sessions of this directory. `~` is the home. Its symbolic links are resolved, as the CLI does.
  Without it, those of all projects. Directories whose paths differ in nothing but other characters
  than letters and digits share a folder in the CLI, so their sessions are listed together; `cwd`
  says whose each is.
- `config_dir`: the CLI's configuration folder, if it is a client's own. Without it, the one that
  CLAUDE_CONFIG_DIR names, or ~/.claude.
- `session_id` must be a UUID, else `ValueError`: it becomes part of a path. A session that is not
  there is `None` for `get_session`, and for all others a `SessionNotFoundError`.
- What a store raises becomes a `StoreError`; what the disk raises comes through as an `OSError`.

These functions block, for as long as the disk or the store needs, and may be called from any thread.
They never start the CLI. A session that a CLI has open can be read at any time. Its title is better
changed through that CLI (`Session.request("rename_session", ...)`): it writes the one that it knows
again now and then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from ._chain import Link, SessionMessage, agent_conversation, conversation, link, links_of, message_of, noted
from ._checks import path, repaired, uuid, whole
from ._home import expanded
from ._session_fork import ForkPlan, first_until
from ._summary import LONGEST_TEXT, SessionInfo, session_info, summarize
from .errors import SessionNotFoundError

if TYPE_CHECKING:
    from ._in_store import InStore
    from ._on_disk import OnDisk
    from .store import SessionStore

    AnyPath = str | os.PathLike[str]

# Characters of a subagent's id. The CLI's have 17, and any name of a file has 255 bytes at most.
_LONGEST_AGENT: Final = 200
_FAR: Final = 1 << 60  # an index beyond all lists, that fits into what C takes
# What a tag may not hold: characters that nobody sees, or that are another in every font.
_UNSEEN: Final = ("Cf", "Co", "Cn", "Cs")


def list_sessions(
    directory: AnyPath | None = None,
    *,
    limit: int | None = None,
    offset: int = 0,
    include_worktrees: bool = True,
    config_dir: AnyPath | None = None,
    store: SessionStore | None = None,
) -> list[SessionInfo]:
    """The sessions, the one that was written to last comes first.

    Subagents' transcripts are left out, and those of which there is nothing to show. With a directory
    in a git repository that has several worktrees also the sessions of the others, unless
    `include_worktrees` is False (a store knows no worktrees). Of each transcript only the beginning
    and the end are read, and with `limit` only of as many as are needed. A file that is damaged or
    cannot be read costs its own row at most.
    """
    first, last = _page(limit, offset)
    return list(islice(_place(directory, config_dir, store).infos(include_worktrees), first, last))


def get_session(
    session_id: str,
    directory: AnyPath | None = None,
    *,
    config_dir: AnyPath | None = None,
    store: SessionStore | None = None,
) -> SessionInfo | None:
    """What a list would show of one session; None if it is not there, or would not be listed."""
    uuid("session_id", session_id)
    return _place(directory, config_dir, store).info(session_id)


def get_messages(
    session_id: str,
    directory: AnyPath | None = None,
    *,
    limit: int | None = None,
    offset: int = 0,
    config_dir: AnyPath | None = None,
    store: SessionStore | None = None,
) -> list[SessionMessage]:
    """The conversation, oldest message first: what the user and the model said, tools included.

    Where the session has several branches, the one with which the CLI goes on. After a compaction it
    begins with the summary. Time grows with the length of the transcript; memory with what is
    returned, some hundred bytes for each other entry, and all that a store loads.
    """
    uuid("session_id", session_id)
    first, last = _page(limit, offset)
    with _place(directory, config_dir, store).open(session_id) as transcript:
        shown = conversation(*links_of(transcript.scan()))[first:last]
        return [message_of(entry) for entry in transcript.at(link.place for link in shown)]


def list_subagents(
    session_id: str,
    directory: AnyPath | None = None,
    *,
    config_dir: AnyPath | None = None,
    store: SessionStore | None = None,
) -> list[str]:
    """The ids of the subagents that a session had. A store needs `list_subkeys` for it."""
    uuid("session_id", session_id)
    return _place(directory, config_dir, store).subagents(session_id)


def get_subagent_messages(
    session_id: str,
    agent_id: str,
    directory: AnyPath | None = None,
    *,
    limit: int | None = None,
    offset: int = 0,
    config_dir: AnyPath | None = None,
    store: SessionStore | None = None,
) -> list[SessionMessage]:
    """What a subagent was told and said. `parent_tool_use_id` names the call that started it."""
    uuid("session_id", session_id)
    _check_agent(agent_id)
    first, last = _page(limit, offset)
    with _place(directory, config_dir, store).open_subagent(session_id, agent_id) as transcript:
        shown = agent_conversation(links_of(transcript.scan())[0])[first:last]
        parents = [transcript.parents().get(name) for name in ("toolUseId", "parentAgentId")]
        parents = [name if isinstance(name, str) else None for name in parents]
        return [message_of(entry, *parents) for entry in transcript.at(link.place for link in shown)]


def rename_session(
    session_id: str,
    title: str,
    directory: AnyPath | None = None,
    *,
    config_dir: AnyPath | None = None,
    store: SessionStore | None = None,
) -> None:
    """Give a session a title. It is listed under it, and the CLI resumes it by it, in its directory.

    From a store only if the store has `list_summaries`: else a title is looked for on this disk.
    """
    uuid("session_id", session_id)
    title = _told("title", title)
    entry = {"type": "custom-title", "customTitle": title, "sessionId": session_id}
    _place(directory, config_dir, store).append(session_id, entry)


def tag_session(
    session_id: str,
    tag: str | None,
    directory: AnyPath | None = None,
    *,
    config_dir: AnyPath | None = None,
    store: SessionStore | None = None,
) -> None:
    """Give a session a tag, or with None take it away. Characters that nobody sees are left out of it."""
    uuid("session_id", session_id)
    tag = "" if tag is None else _told("tag", _visible(tag))
    entry = {"type": "tag", "tag": tag, "sessionId": session_id}
    _place(directory, config_dir, store).append(session_id, entry)


def fork_session(
    session_id: str,
    directory: AnyPath | None = None,
    *,
    up_to: str | None = None,
    title: str | None = None,
    config_dir: AnyPath | None = None,
    store: SessionStore | None = None,
) -> str:
    """Copy a session; the copy's id. The original is left as it is, and both can be resumed.

    `up_to` is the uuid of the last message that is copied, in the order in which they were written: what
    a compaction kept stands before its summary there. Without a title the copy has the original's, with
    " (fork)". Subagents' transcripts and checkpoints of files are not copied.
    Nothing is left of a copy that fails, or in a store without `delete` its beginning.
    Raises `SessionNotFoundError` also if there is no such message, or none at all.
    """
    from datetime import datetime, timezone
    from uuid import uuid4

    uuid("session_id", session_id)
    if up_to is not None:
        uuid("up_to", up_to)
    if title is not None:
        title = _told("title", title)
    new_id = str(uuid4())
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    with _place(directory, config_dir, store).open(session_id) as transcript:
        original = _Original(transcript, session_id)
        links = [link for link in original.links if not link.writer[0]]
        chosen = links if up_to is None else first_until(links, up_to)
        if chosen is None:
            raise SessionNotFoundError(f"session {session_id} has no message {up_to}", wanted=up_to)
        plan = ForkPlan(chosen, session_id, new_id, now, lambda: str(uuid4()))
        if plan.empty:
            raise SessionNotFoundError(f"session {session_id} has no message that could be copied", wanted=session_id)
        about = {"sessionId": new_id, "timestamp": now}
        if up_to is not None:  # that message is the last one then, whichever branch it is on
            original.note = {}
        transcript.create_beside(new_id, _copied(transcript, plan, original, title, about))
    return new_id


def delete_session(
    session_id: str,
    directory: AnyPath | None = None,
    *,
    config_dir: AnyPath | None = None,
    store: SessionStore | None = None,
) -> None:
    """Remove a session and what its subagents wrote, for good. A store needs `delete` for it.

    Without a directory every copy of it goes, in whichever project. On disk, if a part cannot be
    removed, the error says so, and the call can be repeated. Over a store the copies on disks stay, and a resume
    there brings them back: delete them, too.
    """
    uuid("session_id", session_id)
    _place(directory, config_dir, store).delete(session_id)


# --- what they have in common


class _Transcript(Protocol):
    """An open transcript: of a file, or loaded from a store."""

    def scan(self) -> Iterator[tuple[int, dict[str, Any]]]: ...
    def at(self, places: Iterable[int]) -> Iterator[dict[str, Any]]: ...


def _place(directory: AnyPath | None, config_dir: AnyPath | None, store: SessionStore | None) -> OnDisk | InStore:
    where, config = (_folder(name, value) for name, value in (("directory", directory), ("config_dir", config_dir)))
    if store is None:
        from ._on_disk import OnDisk

        return OnDisk(where, config)
    if config_dir is not None:
        raise ValueError("config_dir is about files on disk, and store about another place: give one of them")
    from ._in_store import InStore

    return InStore(where, store)


def _folder(name: str, value: AnyPath | None) -> str | None:
    if value is None:
        return None
    path(name, value)
    return expanded(name, value)


def _page(limit: int | None, offset: int) -> tuple[int, int | None]:
    """First and last index of a page."""
    whole(0)("offset", offset)
    if limit is not None:
        whole(0)("limit", limit)
    first = min(offset, _FAR)
    return first, None if limit is None else first + min(limit, _FAR)


def _check_agent(agent_id: str) -> None:
    if not isinstance(agent_id, str):
        raise ValueError(f"agent_id must be a str, not a {type(agent_id).__name__}")
    is_name = agent_id.isprintable() and "/" not in agent_id and "\\" not in agent_id
    if not is_name or not 0 < len(agent_id) <= _LONGEST_AGENT:
        raise ValueError(f"agent_id is not one that list_subagents gives: {agent_id[:60]!r}")


def _told(name: str, value: str) -> str:
    """A title or a tag as it is written."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a str, not a {type(value).__name__}")
    value = repaired(value).strip()
    if not value:
        raise ValueError(f"{name} is empty or blank" + ("; None takes the tag away" if name == "tag" else ""))
    if len(value) > LONGEST_TEXT:
        raise ValueError(f"{name} has {len(value)} characters, {LONGEST_TEXT} at most can be read back")
    return value


def _visible(tag: str) -> str:
    """Without characters that nobody sees, and each of the others in its one form."""
    if not isinstance(tag, str):
        return tag  # told about by who checks it
    import unicodedata

    before = None
    while tag != before:  # what is left when one is taken out may combine
        before = tag
        tag = unicodedata.normalize("NFKC", tag)
        tag = "".join(character for character in tag if unicodedata.category(character) not in _UNSEEN)
    return tag


# --- copies


class _Original:
    """What a copy needs to know of a transcript: one pass over it."""

    def __init__(self, transcript: _Transcript, session_id: str) -> None:
        self.links: list[Link] = []
        self.replacements: list[Any] = []  # long tool results that the CLI keeps elsewhere
        self.note: dict[str, Any] = {}  # of the end of the last turn
        self._summary: dict[str, Any] = {}
        for place, entry in transcript.scan():
            self._summary = summarize(self._summary, (entry,))
            if (found := link(entry, place)) is not None:
                self.links.append(found)
            elif noted(entry):
                self.note = entry
            elif entry.get("type") == "content-replacement" and entry.get("sessionId") == session_id:
                replacements = entry.get("replacements")
                self.replacements += replacements if isinstance(replacements, list) else []

    @property
    def title(self) -> str:
        """The title or the first prompt."""
        info = session_info({**self._summary, "sidechain": False}, "", 0)
        return (info and (info.custom_title or info.first_prompt)) or "Forked session"


def _copied(
    transcript: _Transcript, plan: ForkPlan, original: _Original, title: str | None, about: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """The lines of a copy: the entries, and what else the CLI must know."""
    from uuid import uuid4

    for place, entry in transcript.scan():
        if (copy := plan.copy(place, entry)) is not None:
            yield copy
    if (note := plan.note(original.note)) is not None:
        yield note
    if original.replacements:
        yield {"type": "content-replacement", "replacements": original.replacements, "uuid": str(uuid4()), **about}
    yield {"type": "custom-title", "customTitle": title or f"{original.title} (fork)", "uuid": str(uuid4()), **about}
