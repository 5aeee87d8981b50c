"""What a list shows of a session: its entries folded into a small object, and that object read.

Pure. `summarize` goes over entries once and can go on later from where it stopped, so the same
fold serves a file (its first lines, then its last ones) and a store (what is appended, bit by bit,
kept beside the rows). Two kinds of fields: what the earliest entry says is kept (first prompt,
working directory, time), what the latest says replaces (titles, branch, tag).

The object is JSON and opaque to stores. Its texts are cut, so it stays small whatever the entries
hold; entries may be any JSON, what does not fit is passed over.

Fields are read from the parsed entries, where the official SDK searches the text of the file. So a
field counts only at the top of an entry and not inside of a tool's input or an attachment; a title or
tag at the file's beginning is not lost when its end has none; and what was set to "" is empty, also
if an older value is in sight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ._checks import repaired

LONGEST_TEXT: Final = 4096  # characters that are kept of a title or a path: as long as a path can be
_LONGEST_PROMPT: Final = 200  # and of a prompt: one line of a list; the official SDK cuts there, too

_FIRST: Final = ("sidechain", "created_at", "cwd", "first_prompt")  # the earliest entry wins

# Field of an entry: its name in the summary. The latest entry wins.
_LATEST: Final = {
    "customTitle": "title",
    "aiTitle": "ai_title",
    "lastPrompt": "last_prompt",
    "summary": "hint",
    "gitBranch": "git_branch",
}
LATEST_FIELDS: Final = (*_LATEST, "tag")
# User texts that no person wrote: output of commands, notes of the CLI and of editors. How such a text
# begins, and how it ends. (No regular expression: a hostile text could make one slow.)
_NO_PROMPT: Final = (
    ("<local-command-stdout>", ""),
    ("<session-start-hook>", ""),
    ("<tick>", ""),
    ("<goal>", ""),
    ("[Request interrupted by user", ""),
    ("<ide_opened_file>", "</ide_opened_file>"),
    ("<ide_selection>", "</ide_selection>"),
)


@dataclass(frozen=True)
class SessionInfo:
    """One session, as lists show it. Times are milliseconds since 1970.

    `summary` is the title, else the latest prompt, else the first one. `custom_title` is the title
    that somebody gave, else the one that the CLI made. None: not known.
    """

    session_id: str
    summary: str
    last_modified: int
    file_size: int | None = None  # bytes of the transcript; None in a store
    custom_title: str | None = None
    first_prompt: str | None = None
    git_branch: str | None = None
    cwd: str | None = None  # where the session began
    tag: str | None = None
    created_at: int | None = None
    project_key: str = ""  # the name of the project's folder


def summarize(summary: Mapping[str, Any] | None, entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Go on from `summary` (None: from nothing) with these entries; a new object, or as it was."""
    found = dict(summary) if isinstance(summary, Mapping) else {}
    for entry in entries:
        if isinstance(entry, Mapping):
            _fold(found, entry)
    return found


def session_info(
    summary: Mapping[str, Any] | None,
    session_id: str,
    last_modified: int,
    *,
    file_size: int | None = None,
    project_key: str = "",
    cwd: str | None = None,
) -> SessionInfo | None:
    """Read a summary. None for a sidechain, and where there is nothing to show.

    `cwd`: the directory that was asked for, where no entry names one.
    """
    if not isinstance(summary, Mapping) or summary.get("sidechain") is True:
        return None

    def first(*names: str) -> str | None:
        return next((value for name in names if isinstance(value := summary.get(name), str) and value), None)

    shown = first("title", "ai_title", "last_prompt", "hint", "first_prompt", "command")
    if shown is None:
        return None
    created = summary.get("created_at")
    return SessionInfo(
        session_id=session_id,
        summary=shown,
        last_modified=last_modified,
        file_size=file_size,
        custom_title=first("title", "ai_title"),
        first_prompt=first("first_prompt", "command"),
        git_branch=first("git_branch"),
        cwd=first("cwd") or cwd,
        tag=first("tag"),
        created_at=created if type(created) is int else None,
        project_key=project_key,
    )


def is_begun(summary: Mapping[str, Any]) -> bool:
    """Whether all is known that the earliest entries decide."""
    return all(name in summary for name in _FIRST)


def says(entry: Mapping[str, Any], field: str) -> bool:
    """Whether the entry decides, for all before it, what this one of LATEST_FIELDS is."""
    return entry.get("type") == "tag" if field == "tag" else isinstance(entry.get(field), str)


def _fold(found: dict[str, Any], entry: Mapping[str, Any]) -> None:
    if "sidechain" not in found:
        found["sidechain"] = entry.get("isSidechain") is True
    if "created_at" not in found and (time := milliseconds(entry.get("timestamp"))) is not None:
        found["created_at"] = time
    if "cwd" not in found and (cwd := entry.get("cwd")) and isinstance(cwd, str) and "\0" not in cwd:
        found["cwd"] = _kept(cwd)  # with a NUL it is no path, and raises wherever it is taken for one
    for field, name in _LATEST.items():
        value = entry.get(field)
        if isinstance(value, str):
            found[name] = _kept(value)
    kind = entry.get("type")
    if kind == "user" and "first_prompt" not in found:
        _fold_prompt(found, entry)
    elif kind == "tag":
        tag = entry.get("tag")
        found["tag"] = _kept(tag) if isinstance(tag, str) else ""


def _fold_prompt(found: dict[str, Any], entry: Mapping[str, Any]) -> None:
    """The first prompt of a person; of a slash command only its name, and only while there is no other."""
    if entry.get("isMeta") is True or entry.get("isCompactSummary") is True:
        return
    for text in _texts(entry.get("message")):
        command = _command(text)
        if command is not None:
            if not found.get("command"):
                found["command"] = _kept(command)
        elif text and not any(text.startswith(begin) and text.endswith(end) for begin, end in _NO_PROMPT):
            cut = text[:_LONGEST_PROMPT].rstrip() + "…" if len(text) > _LONGEST_PROMPT else text
            found["first_prompt"] = _kept(cut)
            return


def _command(text: str) -> str | None:
    """The name of the slash command that this text stands for."""
    _, found, rest = text.partition("<command-name>")
    name, closed, _ = rest.partition("</command-name>")
    return name if found and closed else None


def _texts(message: Any) -> list[str]:
    """The texts of a user's message, each on one line; none of a message that brings a tool's result."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, str):
        texts = [content]
    elif isinstance(content, list):
        blocks = [block for block in content if isinstance(block, Mapping)]
        if any(block.get("type") == "tool_result" for block in blocks):
            return []
        found = [block.get("text") for block in blocks if block.get("type") == "text"]
        texts = [text for text in found if isinstance(text, str)]
    else:
        return []
    return [text.replace("\n", " ").strip() for text in texts]


def _kept(text: str) -> str:
    """Cut, and without lone surrogates, which neither a terminal nor a database takes."""
    return repaired(text[:LONGEST_TEXT])


def milliseconds(timestamp: Any) -> int | None:
    """An ISO time as milliseconds since 1970; one without a zone is UTC, as all of the CLI's are."""
    if not isinstance(timestamp, str):
        return None
    from datetime import datetime, timezone

    try:
        # Python 3.10 does not read a "Z".
        time = datetime.fromisoformat(timestamp[:-1] + "+00:00" if timestamp.endswith("Z") else timestamp)
        time = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
        return int(time.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
