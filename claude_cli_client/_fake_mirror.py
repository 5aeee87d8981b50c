"""What the simulated CLI writes with `--session-mirror`: its transcript, line by line, and a frame for each.

Runs inside the stand-in process, as `_fake_simulation.py` does. A line is written where the real CLI
writes it, and told in the same moment, so that a turn which is ended at any point has left what was
said. The first line comes with the first prompt: who is refused leaves nothing.

* What is resumed is looked for as the CLI does: an id in the project of the working directory, else
  in any, a title in the former alone. It stays in its project, wherever it is resumed.
* A turn goes on from the last message; titles and tags have a place in the file and none in the chain.
* A copy (`--fork-session`) begins with the messages of its original, under their own uuids.
* Into a transcript that no simulation began nothing is written: it may be a person's. It is mirrored only.
* A file made below HOME, in a person's own folder, goes when the fake is closed (`remove_written`); one
  below a `CLAUDE_CONFIG_DIR` is for whoever gave that folder.
"""

from __future__ import annotations

import json
import os

from ._fake_lines import VERSION, new_uuid
from ._fake_simulation import encoded
from ._project_key import project_key

TYPE_CHECKING = False  # see _fake_cli.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ._fake_cli import Player

_MESSAGES = ("user", "assistant", "system", "attachment", "progress")  # what the chain consists of
_KEPT = ("type", "subtype", "message", "content", "level")  # of a line that is said
_MARK = "simulated-cli"  # in the place of the real CLI's `sdk-cli`


class Transcript:
    """One process's session. Looked for when it is made; `begin` says which one it is from now on."""

    def __init__(self, player: Player, wanted: str, is_id: bool, cwd: str) -> None:
        """`wanted`: the id or title to resume; "" for a new session."""
        self._player = player
        self._projects = os.path.join(
            os.environ.get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude"), "projects"
        )
        self._own = os.path.join(self._projects, project_key(os.path.realpath(cwd)))
        found = (self._with_id(wanted) if is_id else self._with_title(wanted)) if wanted else []
        self._before = found[0] if found else ""
        self.resumed = _id_of(self._before)
        self.problem = "" if len(found) == bool(wanted) else _refusal(wanted, is_id, found)
        self._base = {"cwd": cwd, "version": VERSION, "entrypoint": _MARK, "isSidechain": False}

    def begin(self, session_id: str, name: str | None) -> None:
        """Who it is, and by which name; a copy has its original's."""
        goes_on = session_id == self.resumed
        history = _entries(self._before) if self._before else []
        chain = [entry for entry in history if entry.get("type") in _MESSAGES and entry.get("uuid")]
        self._path = self._before if goes_on else os.path.join(self._own, f"{session_id}.jsonl")
        self.in_use = not goes_on and os.path.exists(self._path)
        self._is_ours = not goes_on or any(entry.get("entrypoint") == _MARK for entry in history)
        self._base["sessionId"] = self._session_id = session_id
        self._parent = next((entry["uuid"] for entry in reversed(chain) if not entry.get("isSidechain")), None)
        title = name or (None if goes_on else _title(history))
        self._first: list[dict[str, Any]] = [self._note("custom-title", customTitle=title)] if title else []
        if not goes_on:
            self._first += [{**entry, "sessionId": session_id} for entry in chain]
        self._prompt = ""

    # --- lines

    def prompt(self, text: str, timestamp: str, uuid: str | None) -> None:
        self._prompt = text
        self.add({"type": "user", "message": {"role": "user", "content": text}, "uuid": uuid}, timestamp)

    def add(self, line: Mapping[str, Any], timestamp: str) -> None:
        """A line of a message, or the end of a turn. Others are none of a transcript."""
        if line["type"] in ("user", "assistant") or line.get("subtype") == "informational":
            uuid = line.get("uuid") or new_uuid()
            kept = {name: line[name] for name in _KEPT if name in line}
            self._put({"parentUuid": self._parent, **self._base, **kept, "uuid": uuid, "timestamp": timestamp})
            self._parent = uuid
        elif line["type"] == "result":
            self._put(self._note("last-prompt", lastPrompt=self._prompt, leafUuid=self._parent))

    def _note(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, **fields, "sessionId": self._session_id}

    def _put(self, entry: dict[str, Any]) -> None:
        """To the file, then to the host: what it was told must be there."""
        entries, self._first = [*self._first, entry], []
        try:
            if self._is_ours:
                self._write(b"".join(map(encoded, entries)))
        except OSError as error:  # a folder that cannot be written to: the mirror may still be of use
            self._is_ours = False
            self._player.op_stderr(f"simulated CLI: no transcript is written: {error}\n".encode())
        frame = {"type": "transcript_mirror", "filePath": self._path, "entries": entries}
        self._player.op_say(encoded(frame))

    def _write(self, data: bytes) -> None:
        os.makedirs(os.path.dirname(self._path), 0o700, exist_ok=True)
        if not os.environ.get("CLAUDE_CONFIG_DIR") and not os.path.exists(self._path):
            os.symlink(self._path, f"{self._player.home}/written/{new_uuid()}")  # first: it must not be forgotten
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with open(fd, "ab", buffering=0) as file:
            file.write(data)

    # --- what is resumed

    def _with_id(self, session_id: str) -> list[str]:
        folders = os.listdir(self._projects) if os.path.isdir(self._projects) else ()
        projects = (self._own, *(os.path.join(self._projects, one) for one in sorted(folders)))
        places = (os.path.join(project, f"{session_id}.jsonl") for project in projects)
        return [place for place in places if os.path.isfile(place)][:1]

    def _with_title(self, title: str) -> list[str]:
        names = sorted(os.listdir(self._own)) if os.path.isdir(self._own) else []
        places = [os.path.join(self._own, name) for name in names if name.endswith(".jsonl")]
        return [place for place in places if _folded(_title(_entries(place, "customTitle"))) == _folded(title)]


def remove_written(home: str) -> None:
    """Remove what the processes of the fake in this directory noted, and the folders that are empty then."""
    for note in os.scandir(os.path.join(home, "written")):
        path = os.readlink(note.path)
        for remove, place in ((os.unlink, path), *((os.rmdir, _above(path, levels)) for levels in (1, 2, 3))):
            try:
                remove(place)
            except OSError:  # gone, or still of use to somebody
                pass


def _above(path: str, levels: int) -> str:
    return _above(os.path.dirname(path), levels - 1) if levels else path


def _refusal(wanted: str, is_id: bool, found: list[str]) -> str:
    """In the words of the real CLI, in which it tells the two kinds of failure apart."""
    if is_id:
        return f"No conversation found with session ID: {wanted}"
    if found:
        ids = "".join(f"\n  {_id_of(place)}" for place in found)
        return f'Error: --resume "{wanted}" matches {len(found)} sessions. Pass one of these session IDs:{ids}'
    return (
        "Error: --resume requires a valid session ID or session title when used with --print. Usage: claude -p "
        f'--resume <session-id|title>. Provided value "{wanted}" is not a UUID and does not match any session title'
    )


def _id_of(path: str) -> str:
    return os.path.basename(path).partition(".")[0]


def _title(entries: list[dict[str, Any]]) -> str | None:
    titles = [entry.get("customTitle") for entry in entries if entry.get("type") == "custom-title"]
    return titles[-1] if titles else None


def _folded(title: str | None) -> str:
    return (title or "").strip().lower()


def _entries(path: str, word: str = "") -> list[dict[str, Any]]:
    """The lines of a transcript in which the word stands, without what is none: a line that was cut."""
    found = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                entry = json.loads(line) if word in line else None
            except (ValueError, RecursionError):  # or one that is nested too deep
                continue
            if isinstance(entry, dict):
                found.append(entry)
    return found
