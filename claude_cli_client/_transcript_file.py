"""One transcript on disk: found, read and changed without trusting what lies there.

A transcript is a file that another program appends to, at any time. So: it may end in half a line, be
damaged, empty, vanish, or be no file at all. A line that is no JSON object costs that line. Only regular
files are opened, and never in a way that could wait (a pipe of that name would).

Reading follows links; changing does not, so that a link cannot turn a title into a line of another
file. The path is the caller's to build, from an id that was checked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ._ends import entry_of
from ._handlers import raise_unless_absent
from ._lines import LineCutter, Oversize
from ._regular_file import opened
from ._transcript_key import METADATA, SUFFIX
from .store import encoded

# What a list reads at each end of a file. The official SDK reads as much, and the CLI sees to it that
# titles and tags stand in it.
END_BYTES: Final = 65536
_BLOCK: Final = 1 << 20
_MAX_LINE: Final = 256 << 20  # bytes; a longer line is passed over
Entry = dict[str, Any]


def status_of(path: str) -> os.stat_result | None:
    """None for what is no transcript: not there, no regular file, or empty (which counts as absent)."""
    try:
        status = os.stat(path)
    except PermissionError:
        raise
    except OSError as error:  # not there, or a link in a circle
        raise_unless_absent(error)
        return None
    return status if stat.S_ISREG(status.st_mode) and status.st_size else None


def ends_of(path: str) -> list[bytes]:
    """The first and the last 64 KiB, or all of it."""
    fd = opened(path)
    try:
        size = os.fstat(fd).st_size
        head = os.pread(fd, END_BYTES, 0)
        if size <= 2 * END_BYTES:
            return [head + os.pread(fd, END_BYTES, len(head))]
        return [head, os.pread(fd, END_BYTES, size - END_BYTES)]
    finally:
        os.close(fd)


class TranscriptFile:
    """An open transcript, to be read in two steps: what is there, then what is wanted of it.

    Both steps see the same file, also if it is replaced or grows in between.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = os.fdopen(opened(path), "rb")

    def __enter__(self) -> TranscriptFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def scan(self) -> Iterator[tuple[int, Entry]]:
        """Each entry with its place. Holds one at a time."""
        cutter, place = LineCutter(_MAX_LINE), 0
        self._file.seek(0)
        while True:
            block = self._file.read(_BLOCK)
            for line in cutter.feed(block) if block else cutter.end():
                if isinstance(line, Oversize):
                    place += line.size + 1
                    continue
                if (entry := entry_of(line)) is not None:
                    yield place, entry
                place += len(line) + 1
            if not block:
                return

    def at(self, places: Iterable[int]) -> Iterator[Entry]:
        """The entries at these places, one at a time."""
        for place in places:
            self._file.seek(place)
            entry = entry_of(self._file.readline())
            if entry is not None:
                yield entry

    def parents(self) -> Mapping[str, Any]:
        """What the CLI wrote about a subagent beside its transcript. Nothing usable: nothing."""
        try:
            with os.fdopen(opened(self.path[: -len(SUFFIX)] + METADATA), "rb") as file:
                return entry_of(file.read(END_BYTES).strip()) or {}
        except OSError as error:
            raise_unless_absent(error)
            return {}

    def create_beside(self, session_id: str, entries: Iterable[Mapping[str, Any]]) -> None:
        """A new transcript in the same folder, for us alone. Nothing is left of it if that fails."""
        path = os.path.join(os.path.dirname(self.path), session_id + SUFFIX)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb", buffering=_BLOCK) as file:
                file.writelines(map(line_of, entries))
        except BaseException:
            os.unlink(path)
            raise


def line_of(entry: Mapping[str, Any]) -> bytes:
    """As the CLI writes it."""
    return encoded(entry).encode() + b"\n"


def append(path: str, entry: Mapping[str, Any]) -> None:
    """Add a line to a transcript that exists, at once. Half a line at its end stays a line of its own.

    Raises `OSError`: it is gone, or a link, or may not be written.
    """
    line = line_of(entry)
    fd = opened(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
    try:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = b"\n" + line  # if the CLI completes it just now: a blank line, which nobody minds
        written = os.write(fd, line)  # in one piece, so that no line of the CLI's comes in between
        if written < len(line):
            raise OSError(errno.ENOSPC, "only a part of the line could be written", path)
    finally:
        os.close(fd)


def remove(path: str) -> None:
    """Remove a transcript, then the folder of its name; that again may follow no link.

    In this order a failure loses nothing that a list still shows. What is gone already is no error: an earlier call
    came this far, or somebody removes it, too.
    """
    import shutil

    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    folder = path[: -len(SUFFIX)]
    if os.path.islink(folder):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder)
    elif os.path.isdir(folder):
        shutil.rmtree(folder, onerror=_unless_gone)


def _unless_gone(_what: object, _path: str, caught: Any) -> None:
    if not isinstance(caught[1], FileNotFoundError):
        raise caught[1]


def is_removable(path: str) -> bool:
    """Whether something of this transcript is there: the file, empty or not, or its folder.

    Raises `PermissionError`.
    """
    try:
        mode = os.lstat(path).st_mode
    except PermissionError:
        raise  # "not there" would be a lie
    except OSError as error:
        raise_unless_absent(error)
        return os.path.lexists(path[: -len(SUFFIX)])
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def subagents_of(path: str) -> dict[str, str]:
    """The transcripts of a session's subagents by their id, in the order of their paths.

    Links below are not followed; the session's folder and the one of its subagents may be links, as may the transcript.
    """
    found: dict[str, str] = {}
    folders = [os.path.join(path[: -len(SUFFIX)], "subagents")]
    for folder in folders:  # grows
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = entry.name
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif name.startswith("agent-") and name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                        found[entry.path] = name[len("agent-") : -len(SUFFIX)]
        except (FileNotFoundError, NotADirectoryError):  # none, or removed just now
            continue
    ids: dict[str, str] = {}
    for path in sorted(found, key=lambda path: path.split(os.sep)):
        ids.setdefault(found[path], path)
    return ids
