"""Private temporary files of one run: long texts, a throw-away configuration folder.

A folder of its own (0700) per run, made when first needed, named with the host's pid and start
time and the run's id, and removed on every path. What a killed host left behind is removed by the
guard (which knows the id), or by the next host that makes such a folder: a lock that dies with its
holder says that nobody uses it any more. A pid would not do: containers share /tmp, not pids.
"""

from __future__ import annotations

import os

from . import _cleanup, _fork
from ._process import temporary_base
from .errors import StartError

_PREFIX = "claude_cli_client-"
_KEPT = "claude_cli_kept-"  # not swept: it is the user's
_CONFIG = "config"  # the subfolder that is a configuration folder
_TRANSCRIPTS = os.path.join(_CONFIG, "projects")
_swept = False


def _composed(path: str) -> str:
    """As the CLI spells CLAUDE_CONFIG_DIR. Where a disk takes both for one name, as that of macOS, it is the same."""
    import unicodedata

    return unicodedata.normalize("NFC", path)


class PrivateFolder:
    """Made at the first use, removed by `remove`. Used by one thread, the run's reader."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._path = ""
        self._lock_fd = -1
        self._kept = True  # or would be, if it were wanted

    def write(self, name: str, text: str) -> str:
        """A file with this text (UTF-8, readable by us alone); its path."""
        path = os.path.join(self._folder(), name)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text)
        return path

    def config(self) -> str:
        """A configuration folder, made empty; its path. Raises `StartError` where the CLI would use another one."""
        path = os.path.join(self._folder(), _CONFIG)
        if not os.path.isdir(path):
            os.mkdir(path, 0o700)
        if not path.isascii() and not os.path.isdir(_composed(path)):
            raise StartError(f"the CLI composes accents in the path of its configuration; set another TMPDIR: {path!r}")
        return path

    def stays(self, path: str) -> str:
        """Where this file will be when the folder is gone, if its transcripts are kept; "": nowhere."""
        if not self._path or not path.startswith(os.path.join(self._path, _TRANSCRIPTS, "")):
            return path
        below = os.path.relpath(path, os.path.join(self._path, _CONFIG))
        return os.path.join(self._stays_at(), below) if self._kept else ""

    def keep(self) -> None:
        """Move the transcripts out, to a folder that can be used as CLAUDE_CONFIG_DIR. Nothing else.

        They may be the only copy of what a store did not take. Credentials never stay.
        """
        source = os.path.join(self._path, _TRANSCRIPTS)
        if not self._path or not os.path.isdir(source):
            return
        try:
            os.mkdir(self._stays_at(), 0o700)
            os.rename(source, os.path.join(self._stays_at(), "projects"))
        except OSError:  # no room for a folder: `stays` says that nothing is left
            self._kept = False

    def _stays_at(self) -> str:
        return os.path.join(os.path.dirname(self._path), f"{_KEPT}{os.getpid()}-{self._run_id}")

    def remove(self) -> None:
        """Remove all of it. What cannot be removed now is left to the next start."""
        if not self._path:
            return
        path, fd, self._path, self._lock_fd = self._path, self._lock_fd, "", -1
        _fork.close(fd)  # first: a host that is out of descriptors needs this one to look into the folder
        _remove(path)
        if os.path.exists(path):
            _left.append(path)

    def _folder(self) -> str:
        if not self._path:
            base = temporary_base()
            _sweep(base)
            _remove_left()
            pid = os.getpid()
            name = f"{_PREFIX}{pid}-{_cleanup.start_time(pid) or 0}-{self._run_id}"
            self._path, self._lock_fd = _make(os.path.join(base, name))
        return self._path


# Folders that could not be removed: out of descriptors, or not ours to remove. Tried again at the next start.
_left: list[str] = []


def _remove(path: str) -> None:
    try:
        import shutil
    except OSError:  # out of descriptors
        return
    shutil.rmtree(path, ignore_errors=True)


def _remove_left() -> None:
    for _ in range(len(_left)):
        try:
            path = _left.pop(0)  # so that two readers do not remove the same
        except IndexError:
            return
        _remove(path)
        if os.path.exists(path):
            _left.append(path)


def _make(path: str) -> tuple[str, int]:
    """A new folder, locked. Another host's sweep may catch it in between: then once more."""
    for _ in range(10):
        os.mkdir(path, 0o700)
        try:
            fd = _lock(path)
        except FileNotFoundError:
            continue
        except BaseException:
            os.rmdir(path)
            raise
        if fd >= 0 and os.path.isdir(path):
            return path, fd
        if fd >= 0:
            _fork.close(fd)
        else:  # the sweep has it and is about to remove it: its name cannot be used again
            path += "-"
    raise OSError(f"no private folder could be made: {path}")


def _lock(path: str, needed: bool = False) -> int:
    """Take the folder's lock; -1 if somebody has it, or it is needed and there are no locks here.

    A child process does not inherit it.
    """
    import fcntl

    fd = _fork.listed(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _fork.close(fd)
        return -1
    except OSError:  # a file system without locks: its folders are used, and never swept
        if needed:
            _fork.close(fd)
            return -1
    return fd


def _sweep(base: str) -> None:
    """Remove the folders of dead hosts, once per process."""
    global _swept
    if _swept:
        return
    _swept = True
    import shutil

    try:
        names = os.listdir(base)
    except OSError:  # a folder where we may write but not look
        return
    for name in names:
        path = os.path.join(base, name)
        if not name.startswith(_PREFIX) or not _is_ours(path):
            continue
        try:
            fd = _lock(path, needed=True)
        except OSError:  # another host's sweep was faster
            continue
        if fd >= 0:
            shutil.rmtree(path, ignore_errors=True)
            _fork.close(fd)


def _is_ours(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    import stat

    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _forget_parents_folders() -> None:
    _left.clear()


_fork.on_child(_forget_parents_folders)
