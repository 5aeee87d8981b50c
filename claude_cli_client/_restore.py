"""Resume from a store: a session that this machine may never have seen is laid out for the CLI.

The CLI resumes from files alone. So before the start the session is loaded, and the run gets a
private configuration folder that holds it: transcript, subagents, and what `_config_copy` takes
along. It goes with the run; what the turn adds has gone to the store by then, where the next
resume finds it, here or elsewhere. What of that the store did not take stays, see `_files`.

* The store is the truth where it has anything that this disk does not have: another machine has gone on
  with the session then, and a copy that is older would split it in silence. What it does not have at
  all is left to the CLI and its own folder. Whatever it lacks of what is here, it gets first, see `_adopt`.
* Loaded on the caller's thread once the run has its slot: while it waits in the line another turn of
  the session may end. The store is called on a thread of its own, a daemon, which gets
  `LOAD_LIMIT` for all of it, or what the turn or the session's start may take, if that is less; then
  the call raises, and no process or file was made.
* Everything that a store says is hostile: ids and subpaths become files by `file_of`, or the resume
  is refused. A store that names a place outside is not believed in the rest either.
"""

from __future__ import annotations

import contextvars
import errno
import os
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from . import _cleanup, _log
from ._adopt import Transcript, adopt, completed, folded_title, has_gap, local_id, local_transcripts
from ._chain import in_order
from ._checks import is_uuid
from ._config_copy import copy_config, link_memory, memory_place
from ._losses import mirror_error
from ._project_key import project_key
from ._store_calls import rows, subpaths, words_of
from ._summary import session_info
from ._sync import Deadline, get
from ._transcript_file import line_of
from ._transcript_key import METADATA, SUFFIX, file_of
from .errors import SessionInUseError, StartError, StoreError
from .events import Event
from .store import SessionKey, SessionStore, optional

LOAD_LIMIT: Final = 60.0  # seconds
_PART_ONLY: Final = "the store has only a part of this session, and what stands before it is not on this disk"
# What a store may lack to find a session, and what that means for one that was not found.
_UNLISTED: Final = {
    "list_sessions": "so only project {} was looked in: give the cwd where the session began",
    "list_summaries": "so a title is looked for on this disk only: give the session's id",
}
# And what to do about one that nobody has.
_REMEDIES: Final = {
    "list_sessions": "start anew without resume=",
    "list_summaries": "give its id, or the cwd where it began; or start anew without resume=",
}
# What the disk says where two transcripts want one place, or one is too deep. All else is not the store's fault.
_BAD_NAMES: Final = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)

Entries = Sequence[Mapping[str, Any]]


class _Found(NamedTuple):
    session_id: str
    transcripts: list[tuple[SessionKey, Entries]]


class Restore:
    """One resume, or only a look whether the id of a new session is free.

    Made before the slot is taken, `load` behind it, the rest by the run's reader.
    """

    def __init__(
        self,
        store: SessionStore,
        wanted: str | None,
        cwd: str,
        config: str | None,
        *,
        continues: bool = True,
        new: str | None = None,
    ) -> None:
        """`wanted`: the session's id or title; None: the latest one of the project in `cwd`.

        `config`: the configuration folder of this machine, None where the CLI gets one of its own.
        `new`: the id that a new session, or a copy of this one, is to have; not `continues`: that is all.
        """
        self._store = store
        self._continues = continues
        self._new = new
        self._word = "--continue" if wanted is None else f"--resume={wanted}"
        self._wanted = wanted
        self._cwd = cwd
        self._config = config
        self._gap = False  # messages before those of the store are neither there nor on this disk
        self._project = project_key(os.path.realpath(cwd))
        self._asked: tuple[str | None, ...] = ()  # what the store was asked last
        self._found: _Found | None = None
        self._named = ""  # the id of a session of this disk that the command had by title, or as the latest
        self._is_left = False  # nobody waits for what the store thread does
        self.session_id = ""  # of what will be laid out
        self._key = SessionKey("", "")  # the same in the store
        self._alike = 0  # sessions of the store that have the title, where it is not one
        self.missing = ""  # in words, that nobody has what is wanted: the CLI knows nothing of a store
        self.is_sure = True  # of that

    def load(self, is_over: Callable[[], bool], timeout: float | None = None) -> None:
        """Ask the store, and give it what only this disk has of the session.

        Blocks at most `LOAD_LIMIT`, and no longer than the turn may take (`timeout`); less when `is_over`.
        Raises `StoreError`, `StartError` where this disk cannot be read just now, and `SessionInUseError` for the
        id of a new session that the store has: the CLI sees only those of its own disk.
        """
        try:
            self._load_or_leave(is_over, min(LOAD_LIMIT, timeout or LOAD_LIMIT))
        finally:
            self._is_left = True

    def _load_or_leave(self, is_over: Callable[[], bool], limit: float) -> None:
        answers: queue.SimpleQueue[_Found | BaseException | None] = queue.SimpleQueue()
        ask = contextvars.copy_context().run  # the caller's, as for callbacks: a store may look for a tenant there
        thread = threading.Thread(target=ask, args=(self._ask, answers), name="claude-store-load", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no thread to be had
            raise self._error(f"could not be asked: {error}") from error
        deadline = Deadline(limit)
        while True:
            try:
                answer = get(answers, deadline.slice())
                break
            except queue.Empty:
                if is_over() or _cleanup.ending:
                    return  # the next step says why
                if deadline.is_over():
                    raise self._error(f"did not answer within {limit:g} s") from None
        thread.join(1.0)  # it has only to return
        if isinstance(answer, (StoreError, SessionInUseError, StartError)):
            raise answer
        if isinstance(answer, BaseException):
            raise self._error(f"failed: {type(answer).__name__}: {words_of(answer)}") from answer
        if answer is not None:
            self._found = answer
            self.session_id = answer.session_id
            self._key = answer.transcripts[0][0]
        if self._gap:
            _log.warning("session %s: %s", self.session_id, _PART_ONLY)

    def argv(self, argv: list[str]) -> list[str]:
        """The command with what was found: an id in the place of a title or of the latest one."""
        id = self.session_id or self._named
        if not id:
            return argv
        return [f"--resume={id}" if word == self._word else word for word in argv]

    def report(self) -> list[Event]:
        """What the consumer should know; told once. By the run's reader."""
        if not self._gap:
            return []
        self._gap = False
        return [mirror_error(self._key, _PART_ONLY, _PART_ONLY)]

    def write(self, folder: str, env: Mapping[str, str], cwd: str, *, isolated: bool) -> Mapping[str, str]:
        """Fill the configuration folder, once; the variables that go with it.

        Raises `StoreError`, and `OSError` for what is this disk's fault.
        """
        found, self._found = self._found, None
        assert found is not None
        for key, entries in found.transcripts:
            self._asked = key
            try:
                _write(os.path.join(folder, "projects", *file_of(*key)), key, entries)
            except (OSError, TypeError, ValueError, RecursionError) as error:
                if isinstance(error, OSError) and error.errno not in _BAD_NAMES:
                    raise
                raise self._error(f"gave a session that cannot be laid out: {error}") from error
        if isolated:
            return {}
        copy_config(env, cwd, folder)
        link_memory(env, cwd, folder)
        return memory_place(env, cwd)

    # --- on the thread of its own

    def _ask(self, answers: queue.SimpleQueue[_Found | BaseException | None]) -> None:
        try:
            answers.put(self._look())
        except BaseException as error:  # noqa: BLE001 - whatever a store raises, it rises in the caller
            answers.put(error)

    def _look(self) -> _Found | None:
        if self._new and self._load(SessionKey(self._project, self._new)):
            raise SessionInUseError(f"the store has a session {self._new} already: to go on with it use resume=")
        if not self._continues:
            return None
        if self._wanted is not None and not is_uuid(self._wanted):
            title, self._wanted = self._wanted, self._titled(self._wanted)
            if self._wanted is None:
                self._note_missing(f"one session of {self._cwd} with the title {title!r}", "list_summaries")
                return None
        return self._with_local(self._stored())

    def _with_local(self, found: _Found | None) -> _Found | None:
        """What is not, or not wholly, in the store: it gets what this disk has of it."""
        wanted = found.session_id if found is not None else self._wanted
        if self._config is not None:
            wanted = wanted or local_id(None, self._cwd, self._config)
            local = local_transcripts(wanted, self._cwd, self._config) if wanted else []
        else:
            local = []
        if found is None:
            if local:
                self._asked = local[-1][0]
                adopt(self._store, local, lambda: self._is_left)
                self._named = local[-1][0].session_id  # what the store has now, and no other one
            elif wanted:
                self._note_missing(f"session {wanted}", "list_sessions")
            return None  # the CLI has it where it is
        whole, lacking = completed([*found.transcripts, *self._unlisted(found, local)], local)
        adopt(self._store, lacking, lambda: self._is_left)
        self._gap = has_gap(whole[0][1])
        return _Found(found.session_id, whole)

    def _unlisted(self, found: _Found, local: Sequence[Transcript]) -> Iterable[Transcript]:
        """What the store has of the subagents that are on this disk, where it cannot list its own."""
        if optional(self._store, "list_subkeys") is None:
            main = found.transcripts[0][0]
            for subpath in (key.subpath for key, _ in local if key.subpath is not None):
                key = main._replace(subpath=subpath)
                if entries := self._load(key):
                    yield key, entries

    def _note_missing(self, what: str, needed: str) -> None:
        """`needed`: the method by which the store would have been looked through."""
        if self._alike:
            self.is_sure = False
            self.missing = f"{self._alike} sessions of the store have this title: give the id of one"
            return
        store = f"the store ({type(self._store).__name__})"
        nowhere = f"neither {store} nor this disk has" if self._config is not None else f"{store} does not have"
        self.is_sure = optional(self._store, needed) is not None
        why = f"the store has no {needed}, {_UNLISTED[needed].format(self._project)}"
        self.missing = f"{nowhere} {what}; {_REMEDIES[needed] if self.is_sure else why}"

    def _titled(self, title: str) -> str | None:
        """The id of the one session of the project that has this title: in the store's list, else on this disk."""
        if optional(self._store, "list_summaries") is not None:
            self._asked = (self._project,)
            listed = rows(self._store, "list_summaries", self._project)
            infos = [session_info(row.summary, row.key.session_id, row.mtime) for row in listed]
            wanted = folded_title(title)
            named = {info.session_id for info in infos if info and folded_title(info.custom_title) == wanted}
            if len(named) == 1:
                return named.pop()
            self._alike = len(named)
        return self._config and local_id(title, self._cwd, self._config)

    def _stored(self) -> _Found | None:
        for project, session in self._candidates():
            entries = self._load(SessionKey(project, session))
            if entries and (self._wanted is not None or entries[0].get("isSidechain") is not True):
                main = SessionKey(project, session)
                return _Found(session, [(main, entries), *self._subagents(project, session)])
        return None

    def _candidates(self) -> Iterable[tuple[str, str]]:
        if self._wanted is None:
            yield from ((self._project, session) for _, session in self._listed(self._project))
            return
        yield self._project, self._wanted
        # Begun in another folder: the CLI finds such a session on disk, too.
        yield from self._listed(None, only=self._wanted)

    def _listed(self, project: str | None, only: str | None = None) -> list[tuple[str, str]]:
        """What the store lists of a project, or of all; the latest first. `only`: of this session."""
        self._asked = (project,)
        if optional(self._store, "list_sessions") is None:
            return []
        return [row.key[:2] for row in rows(self._store, "list_sessions", project, only)]

    def _subagents(self, project: str, session: str) -> Iterable[tuple[SessionKey, Entries]]:
        self._asked = (project, session)
        if optional(self._store, "list_subkeys") is None:
            return
        for subpath in dict.fromkeys(subpaths(self._store, project, session)):
            key = SessionKey(project, session, "" if subpath is None else subpath)
            if entries := self._load(key):
                yield key, entries

    def _load(self, key: SessionKey) -> Entries:
        self._asked = key
        try:
            file_of(*key)
        except ValueError as error:
            raise self._error(f"names a place that is none of a session: {error}") from error
        entries = self._store.load(key)
        if entries is None:
            return ()
        if not isinstance(entries, Sequence) or not all(isinstance(entry, Mapping) for entry in entries):
            raise self._error("gave something else than a list of JSON objects")
        return in_order(entries)

    def _error(self, what: str) -> StoreError:
        shown = "/".join(map(str, filter(None, self._asked)))
        return StoreError(f"the session store {what} (asked for {shown})", key=tuple(self._asked))


def _write(path: str, key: SessionKey, entries: Entries) -> None:
    _make_folder(os.path.dirname(path))
    metadata: Mapping[str, Any] | None = None
    with _new_file(path) as file:
        for entry in entries:
            if key.subpath is not None and entry.get("type") == "agent_metadata":
                metadata = entry  # the last one counts
            else:
                file.write(_line(entry))
    if metadata is not None:
        with _new_file(path[: -len(SUFFIX)] + METADATA) as file:
            file.write(_line({name: value for name, value in metadata.items() if name != "type"}))


def _make_folder(path: str) -> None:
    """And those above it, each ours alone; `os.makedirs` does that for the last one only."""
    if not os.path.isdir(path):
        _make_folder(os.path.dirname(path))
        os.mkdir(path, 0o700)


def _new_file(path: str) -> Any:
    """A file that was not there, ours alone; O_EXCL does not follow a link in its place either."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _line(entry: Mapping[str, Any]) -> bytes:
    """As the CLI writes it: with the name in front that it looks for there. A store may not keep the order."""
    first = "parentUuid" if "parentUuid" in entry else "type"
    ordered = {first: entry[first], **entry} if first in entry else dict(entry)
    return line_of(ordered)
