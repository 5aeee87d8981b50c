"""What a store did not take: the words for it, in events and in the log.

Pure, and of one file each: when something is lost, the mirror says.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from ._store_calls import words_of
from .events import MIRROR_ERROR, Event, make
from .store import SessionKey


class Fault(NamedTuple):
    kind: str  # the exception's class
    words: str
    again: bool = False  # whether the same may be tried later: it has not arrived

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}" if self.words else self.kind


UNWRITTEN: Final = Fault(
    "FileNotFoundError",
    "the CLI wrote no transcript, as where its configuration folder cannot be written; see isolated= and config_dir=",
)


class Loss:
    """What was not stored of one file."""

    __slots__ = ("count", "fault", "key", "path")

    def __init__(self, key: SessionKey, path: str) -> None:
        self.key = key
        self.path = path
        self.count = 0
        self.fault = Fault("", "")


def fault_of(error: BaseException) -> Fault:
    return Fault(type(error).__name__, words_of(error)[:2000])


def event_of(loss: Loss, path: str, *, waiting: bool = False) -> Event:
    text = sentence(loss, loss.fault, path, " yet" if waiting else "")
    return mirror_error(loss.key, text, str(loss.fault), loss.fault.kind, loss.count, waiting, path)


def sentence(loss: Loss, fault: Fault, path: str, yet: str = "") -> str:
    names = zip(("project", "session", "subpath"), loss.key, strict=True)
    whose = ", ".join(f"{name} {part}" for name, part in names if part and loss.key.session_id)
    copy = f"the local copy is {path}" if path else "no local copy is left"
    return f"{loss.count} entries of a transcript are not stored{yet} ({fault}); {whose or 'no key'}; {copy}"


def mirror_error(
    key: SessionKey, text: str, words: str, kind: str = "", entries: int = 0, waiting: bool = False, path: str = ""
) -> Event:
    """The event: `text` for people, the rest for programs."""
    known = {**key._asdict(), "entries": entries, "waiting": waiting, "path": path, "error": words}
    line = json.dumps({"type": MIRROR_ERROR, **known}).encode()
    fields = {"session_id": key.session_id, "text": text, "error": kind, "errors": (words,)}
    return make({"type": MIRROR_ERROR, **fields, "_line": line})
