"""Where sessions lie on disk: the configuration folder, and in it the folders of projects.

Only looks; nothing here opens a transcript or changes anything. A project's folder has the name that
the CLI makes of the directory (see `_project_key.py`). If there is none of that name, there may be
one of the normalised path (macOS), and for a name that was cut one with another hash; since such a
folder may be another directory's, it is marked as not `sure`, and lists look at what its sessions say.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from typing import Final, NamedTuple

from ._handlers import Doubt, raise_hosts, raise_unless_absent, raise_unless_of_file
from ._process import inherited
from ._project_key import is_cut, prefix, project_key
from ._regular_file import content

_GIT_TIMEOUT: Final = 5.0  # seconds: a list of worktrees takes milliseconds, unless the disk is gone
# Set inside of git's hooks, these name another repository than the one that we ask about.
_GIT_PLACES: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX")


class Folder(NamedTuple):
    """A project's folder that exists."""

    path: str
    directory: str | None = None  # whose it is, where that was asked for
    sure: bool = True

    @property
    def key(self) -> str:
        return os.path.basename(self.path)


def config_folder(config_dir: str | None) -> str:
    """`config_dir`, else what CLAUDE_CONFIG_DIR names, else ~/.claude: as the CLI decides it.

    Unlike the names of projects, the CLI composes accents in this one, so it may write beside the folder
    that it was told.
    """
    told = config_dir or os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
    composed = unicodedata.normalize("NFC", told)
    if told == composed:
        return told
    try:
        return told if is_folder(os.path.join(told, "projects")) and not is_folder(composed) else composed
    except PermissionError:  # whoever looks into it finds that, and can say what it was for
        return composed


def can_be_written(folder: str) -> bool:
    """Whether this folder can be, or made in the nearest one above it that exists.

    The system tells root that all can be written, but on a disk that is read-only.
    """
    while not os.path.lexists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def forms_of(directory: str) -> list[str]:
    """The directory's real path; and, if that is another, the same with composed characters."""
    real = os.path.realpath(directory)
    return list(dict.fromkeys((real, unicodedata.normalize("NFC", real))))


def folders_of(projects: str, directory: str) -> list[Folder]:
    """The folder of this directory; several only where a cut name was found by its beginning."""
    forms = forms_of(directory)
    for form in forms:
        path = os.path.join(projects, project_key(form))
        if is_folder(path):
            return [Folder(path, forms[0], form == forms[0])]
    beginnings = tuple(prefix(key) for key in map(project_key, forms) if is_cut(key))
    found = [folder for folder in all_folders(projects) if folder.key.startswith(beginnings)] if beginnings else []
    return [Folder(folder.path, forms[0], False) for folder in found]


def all_folders(projects: str, doubt: Doubt = raise_unless_absent) -> list[Folder]:
    """The folders of all projects. Raises `OSError` if we may not see them, and what `doubt` raises of a single one."""
    try:
        with os.scandir(projects) as entries:
            return [Folder(entry.path) for entry in entries if _is_one(entry, doubt)]
    except (FileNotFoundError, NotADirectoryError):  # no session was ever written here
        return []


def _is_one(entry: os.DirEntry[str], doubt: Doubt) -> bool:
    try:
        return is_folder(entry.path)
    except OSError as error:
        if isinstance(error, PermissionError) and not entry.is_symlink():
            raise  # then they all are closed to us
        doubt(error)  # one of many, which leads to another disk, or to another user's
        return False


def is_folder(path: str) -> bool:
    """Links are followed: some keep their projects elsewhere. Raises `PermissionError`."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except PermissionError:
        raise  # an empty list would be a lie
    except OSError as error:  # not there, or a link in a circle
        raise_unless_absent(error)
        return False


def is_of(folder: Folder, cwd: str | None) -> bool:
    """Whether a session that began in `cwd` belongs to the directory that the folder was found for."""
    if folder.sure or cwd is None or folder.directory is None or cwd == folder.directory:
        return True
    try:
        if forms_of(cwd)[-1] != forms_of(folder.directory)[-1]:
            return False
        return os.path.samefile(cwd, folder.directory)
    except ValueError:  # no path, or one that this locale cannot encode
        return False
    except OSError as error:  # gone from the disk: that they look alike is all that can be known
        raise_hosts(error)
        return True


def repository(directory: str) -> str:
    """The top of the git repository around it, in a worktree that of the main one; without git itself.

    There the CLI has the memory of a project (seen: also in a worktree, and without a git to ask; a
    submodule has its own).
    """
    real = folder = os.path.realpath(directory)
    while not os.path.exists(git := os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return real
        folder = os.path.dirname(folder)
    return _main_worktree(git) or folder


def _main_worktree(git: str) -> str:
    """Where this `.git` of a worktree leads to; "" for what is none."""
    if not os.path.isfile(git):
        return ""
    try:
        of_worktree = os.path.join(os.path.dirname(git), _line_of(git).removeprefix("gitdir: "))
        common = os.path.realpath(os.path.join(of_worktree, _line_of(os.path.join(of_worktree, "commondir"))))
    except (OSError, ValueError) as error:  # of a submodule, which has no `commondir`; or nonsense
        raise_unless_absent(error)
        return ""
    return os.path.dirname(common) if os.path.basename(common) == ".git" else ""


def _line_of(path: str) -> str:
    return os.fsdecode(content(path, 65536)).strip("\n")


def worktrees(directory: str) -> list[str]:
    """All worktrees of the git repository around this directory; none without git, or if it takes long."""
    import subprocess

    try:
        done = subprocess.run(
            ["git", "worktree", "list", "--porcelain"],
            cwd=directory,
            env={name: value for name, value in inherited().items() if name not in _GIT_PLACES},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_TIMEOUT,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise_unless_of_file(error)
        return []
    lines = done.stdout.split(b"\n") if done.returncode == 0 else []
    return [os.fsdecode(line[9:]) for line in lines if line.startswith(b"worktree ")]
