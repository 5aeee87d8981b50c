"""Sessions as files: the same few operations as over a store, see `_in_store.py`.

Ids and directories come checked. `directory=None` is every project. A session is looked for in the
directory's own folder, then in those of the worktrees of its git repository.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import _transcript_file as transcript_file
from ._checks import is_uuid
from ._ends import summary_of
from ._handlers import Doubt, raise_unless_absent, raise_unless_of_file
from ._project_folders import Folder, all_folders, config_folder, folders_of, is_of, worktrees
from ._summary import SessionInfo, session_info
from ._transcript_file import TranscriptFile
from ._transcript_key import SUFFIX
from .errors import SessionNotFoundError


class OnDisk:
    """The sessions of a directory, or of all, in a configuration folder."""

    def __init__(self, directory: str | None, config_dir: str | None) -> None:
        self._projects = os.path.join(config_folder(config_dir), "projects")
        self._directory = None if directory is None else os.path.realpath(directory)

    # --- lists

    def infos(self, include_worktrees: bool, *, exact: bool = False) -> Iterator[SessionInfo]:
        """The sessions, newest first, each read when it is asked for; `exact`: none that this user can read is passed
        over, for who takes the first one.

        What comes first is known from the times of the files alone, and whether a session is shown
        from its own file alone. So whoever takes the first fifty gets the same fifty as if every file
        had been read before sorting. Of an id that comes twice, the newer one that can be shown.
        """
        doubt = raise_unless_absent if exact else raise_unless_of_file
        found = [
            (-status.st_mtime_ns, name, status.st_size, folder)
            for folder in self._listed_folders(include_worktrees, doubt)
            for name, status in self._files(folder, doubt)
        ]
        found.sort(key=lambda row: row[:2])
        shown: set[str] = set()
        for minus_time, name, size, folder in found:
            session_id = name[: -len(SUFFIX)]
            info = None if session_id in shown else _info(folder, name, -minus_time, size, doubt)
            if info is not None and is_of(folder, info.cwd):
                shown.add(session_id)
                yield info

    def _listed_folders(self, include_worktrees: bool, doubt: Doubt) -> list[Folder]:
        if self._directory is None:
            return all_folders(self._projects, doubt)
        folders = folders_of(self._projects, self._directory)
        others = worktrees(self._directory) if include_worktrees else []
        if len(others) > 1:  # a repository without other worktrees adds nothing, not even to its subdirectories
            folders += [folder for path in others for folder in folders_of(self._projects, path)]
        return list({folder.path: folder for folder in reversed(folders)}.values())

    def _files(self, folder: Folder, doubt: Doubt) -> Iterator[tuple[str, os.stat_result]]:
        try:
            entries = list(os.scandir(folder.path))
        except OSError as error:
            doubt(error)
            if self._directory is not None and not isinstance(error, FileNotFoundError):
                raise
            return  # removed just now; or one of many, another user's
        for entry in entries:
            if entry.name.endswith(SUFFIX) and is_uuid(entry.name[: -len(SUFFIX)]):
                try:
                    status = entry.stat()
                except OSError as error:  # removed just now, or a link in a circle
                    doubt(error)
                    continue
                if stat.S_ISREG(status.st_mode) and status.st_size:
                    yield entry.name, status

    # --- one session

    def info(self, session_id: str) -> SessionInfo | None:
        """What the list says of it: of several that have this id, of the first that it can show."""
        found = self._found(session_id, transcript_file.status_of)
        rows = (_info(folder, session_id + SUFFIX, it.st_mtime_ns, it.st_size) for folder, it in found)
        return next((info for info in rows if info is not None), None)

    def open(self, session_id: str) -> TranscriptFile:
        with self._still_there(session_id):
            return TranscriptFile(self._path(session_id))

    def append(self, session_id: str, entry: Mapping[str, Any]) -> None:
        with self._still_there(session_id):
            transcript_file.append(self._path(session_id), entry)

    def delete(self, session_id: str) -> None:
        """Without a directory in every project that has it: its copies are the same conversation."""
        found = [_path(folder, session_id) for folder, _ in self._found(session_id, _removable)]
        if not found:
            raise self._missing(session_id)
        for path in found if self._directory is None else found[:1]:
            transcript_file.remove(path)

    def subagents(self, session_id: str) -> list[str]:
        return list(transcript_file.subagents_of(self._path(session_id)))

    def open_subagent(self, session_id: str, agent_id: str) -> TranscriptFile:
        path = transcript_file.subagents_of(self._path(session_id)).get(agent_id)
        if path is None:
            raise SessionNotFoundError(f"session {session_id} has no subagent {agent_id!r}", wanted=agent_id)
        return TranscriptFile(path)

    # --- finding it

    @contextlib.contextmanager
    def _still_there(self, session_id: str) -> Iterator[None]:
        """It may be removed between the look for it and what is done then."""
        try:
            yield
        except FileNotFoundError:
            raise self._missing(session_id) from None

    def _path(self, session_id: str) -> str:
        for folder, _ in self._found(session_id, transcript_file.status_of):
            return _path(folder, session_id)
        raise self._missing(session_id)

    def _found(
        self, session_id: str, look: Callable[[str], os.stat_result | None]
    ) -> list[tuple[Folder, os.stat_result]]:
        """Where it is, and is of the directory as for a list; the newest first where every project is looked at."""

        def those(folders: list[Folder]) -> list[tuple[Folder, os.stat_result]]:
            there = []
            for folder in folders:
                try:
                    status = look(_path(folder, session_id))
                except PermissionError:
                    if self._directory is not None:
                        raise
                    continue  # one of many, another user's
                if status is not None and _is_ours(folder, session_id):
                    there.append((folder, status))
            return there

        if self._directory is None:
            return sorted(those(all_folders(self._projects)), key=lambda found: -found[1].st_mtime_ns)
        found = those(folders_of(self._projects, self._directory))
        if not found:  # git is asked only where it matters
            others = worktrees(self._directory)
            found = those([folder for path in others for folder in folders_of(self._projects, path)])
        return found

    def _missing(self, session_id: str) -> SessionNotFoundError:
        where = "of any directory" if self._directory is None else f"of {self._directory} or its worktrees"
        message = f"there is no session {session_id} {where} in {self._projects}"
        return SessionNotFoundError(message, wanted=session_id)


def _path(folder: Folder, session_id: str) -> str:
    return os.path.join(folder.path, session_id + SUFFIX)


def _is_ours(folder: Folder, session_id: str) -> bool:
    """Whether a session in this folder is one of the directory that was asked for. Mostly the folder says it."""
    if folder.sure:
        return True
    try:
        parts = transcript_file.ends_of(_path(folder, session_id))
    except FileNotFoundError:  # what was left when its folder could not be removed: nothing says whose it is
        parts = []
    return is_of(folder, summary_of(parts).get("cwd"))


def _removable(path: str) -> os.stat_result | None:
    return os.lstat(os.path.dirname(path)) if transcript_file.is_removable(path) else None


def _info(
    folder: Folder, name: str, time_ns: int, size: int, doubt: Doubt = raise_unless_of_file
) -> SessionInfo | None:
    """None too for a file that cannot be read, unless `doubt` raises: a list is not failed by one of its rows."""
    try:
        parts = transcript_file.ends_of(os.path.join(folder.path, name))
    except OSError as error:
        doubt(error)
        return None
    return session_info(
        summary_of(parts),
        name[: -len(SUFFIX)],
        time_ns // 1_000_000,
        file_size=size,
        project_key=folder.key,
        cwd=folder.directory,
    )
