"""Between the file of a transcript and its key, both ways.

Pure: no path is looked at, they are compared as texts. A file's place below CONFIG/projects is its key:

    PROJECT / ID.jsonl                          (PROJECT, ID, None)
    PROJECT / ID / subagents / agent-7.jsonl    (PROJECT, ID, "subagents/agent-7")

What comes from a store is hostile input: `file_of` makes a place out of it only if it cannot lead
anywhere else, on this system or another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ._checks import is_uuid

Parts = tuple[str, str, str | None]

SUFFIX: Final = ".jsonl"
METADATA: Final = ".meta.json"  # in its place: of the file beside a subagent's transcript
# A separator elsewhere, the end of a C string, a drive, half a character.
_NEVER: Final = re.compile("[/\\\\\0:\ud800-\udfff]")
_MOST_BYTES: Final = 255 - len(METADATA)  # of a name, on every file system that matters


def key_below(projects: str, path: str) -> Parts | None:
    """The key of a file below this folder; None for one that is elsewhere, or no transcript."""
    root = projects.rstrip("/") + "/"
    return _key_of(path[len(root) :].split("/")) if path.startswith(root) else None


def _key_of(names: Sequence[str]) -> Parts | None:
    if len(names) < 2 or len(names) == 3 or not names[-1].endswith(SUFFIX):
        return None
    stem = names[-1][: -len(SUFFIX)]
    if not stem:
        return None
    if len(names) == 2:
        return names[0], stem, None
    return names[0], names[1], "/".join([*names[2:-1], stem])


def key_anywhere(path: str) -> Parts | None:
    """The same where nobody knows CONFIG: what stands behind the last folder "projects", if it fits."""
    names = path.split("/")
    for at in range(len(names) - 1, -1, -1):
        if names[at] == "projects" and (key := _key_of(names[at + 1 :])) is not None and is_uuid(key[1]):
            return key
    return None


def file_of(project_key: object, session_id: object, subpath: object = None) -> list[str]:
    """The names of a transcript's file below CONFIG/projects. Raises ValueError for any other place."""
    names = [project_key, session_id]
    if subpath is not None:
        if not isinstance(subpath, str):
            raise ValueError(f"a subpath must be a str, not {type(subpath).__name__}")
        names += subpath.split("/")
    checked = [_name(name) for name in names]
    if subpath is not None and len(checked) < 4:
        raise ValueError(f"{subpath!r} is no subpath of a session")
    return [*checked[:-1], checked[-1] + SUFFIX]


def _name(name: object) -> str:
    if not isinstance(name, str) or name in ("", ".", ".."):
        raise ValueError(f"{name!r} cannot be the name of a file or folder")
    if _NEVER.search(name) or len(name.encode()) > _MOST_BYTES:
        raise ValueError(f"{name[:80]!r} must not be the name of a file or folder")
    return name
