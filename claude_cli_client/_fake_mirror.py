"""What the simulated CLI says with `--session-mirror`: its turns as entries of a transcript.

Runs inside the stand-in process, as `_fake_simulation.py` does. The frames name the file that the
real CLI would write; no file is written. A turn goes on from the last entry of that file, which is
there where a session was laid out to be resumed; it stays in its project, wherever it is resumed.
"""

from __future__ import annotations

import json
import os

from ._fake_lines import VERSION, new_uuid
from ._project_key import project_key

TYPE_CHECKING = False  # see _fake_cli.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Transcript:
    def __init__(self, session_id: str, cwd: str, resumed: str, environ: Mapping[str, str]) -> None:
        config = environ.get("CLAUDE_CONFIG_DIR") or os.path.join(environ.get("HOME", ""), ".claude")
        projects = os.path.join(config, "projects")
        own = os.path.join(projects, project_key(os.path.realpath(cwd)))
        before = _found(projects, own, f"{resumed}.jsonl") if resumed else None
        self.is_missing = bool(resumed) and before is None
        self._path = before if before and resumed == session_id else os.path.join(own, f"{session_id}.jsonl")
        self._base = {"sessionId": session_id, "cwd": cwd, "version": VERSION, "isSidechain": False}
        self._parent = _last_uuid(before) if before else None
        self._entries: list[dict[str, Any]] = []
        self._prompt = ""

    def prompt(self, text: str, timestamp: str) -> None:
        self._prompt = text
        self.add({"type": "user", "message": {"role": "user", "content": text}}, timestamp)

    def add(self, line: Mapping[str, Any], timestamp: str) -> None:
        """A line of a message. Others are none of a transcript."""
        if line["type"] in ("user", "assistant"):
            uuid = line.get("uuid") or new_uuid()
            kept = {"type": line["type"], "message": line["message"], "uuid": uuid, "timestamp": timestamp}
            self._entries.append({"parentUuid": self._parent, **self._base, **kept})
            self._parent = uuid

    def frame(self) -> dict[str, Any]:
        """What has come since the last one, with what the CLI notes at the end of a turn."""
        noted = {"type": "last-prompt", "lastPrompt": self._prompt, "leafUuid": self._parent}
        entries, self._entries = [*self._entries, {**noted, "sessionId": self._base["sessionId"]}], []
        return {"type": "transcript_mirror", "filePath": self._path, "entries": entries}


def _found(projects: str, own: str, name: str) -> str | None:
    """The transcript of this name: in the project of the working directory, else in any."""
    folders = os.listdir(projects) if os.path.isdir(projects) else ()
    places = (os.path.join(folder, name) for folder in (own, *(os.path.join(projects, one) for one in sorted(folders))))
    return next((place for place in places if os.path.isfile(place)), None)


def _last_uuid(path: str) -> str | None:
    last = None
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                last = json.loads(line).get("uuid") or last
    except (OSError, ValueError):
        return last
    return last
