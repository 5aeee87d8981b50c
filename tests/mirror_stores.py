"""Stores for the tests of mirror, resume and conversation: one that works, and ways to break it."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from claude_cli_client import SessionKey
from claude_cli_client.testing import SESSION_ID, say

PROJECT = "-srv-app"
MAIN = SessionKey(PROJECT, SESSION_ID)


class Recorder:
    """Keeps each batch as it came, and what `load` makes of them."""

    def __init__(self) -> None:
        self.batches: list[tuple[SessionKey, list[Any]]] = []
        self.asked: list[Any] = []
        self.mtimes: dict[SessionKey, int] = {}
        self.threads: set[threading.Thread] = set()
        self.lock = threading.Lock()

    def append(self, key, entries):
        with self.lock:
            self.threads.add(threading.current_thread())
            self.batches.append((key, copy.deepcopy(list(entries))))
            self.mtimes[key] = time.time_ns()

    def load(self, key):
        self.asked.append(key)
        held: dict[str, Any] = {}
        for _, batch in [batch for batch in self.batches if batch[0] == key]:
            for entry in batch:
                held.setdefault(entry.get("uuid") or f"#{len(held)}", entry)
        return copy.deepcopy(list(held.values())) or None

    def list_sessions(self, project_key):
        rows = [(key, mtime) for key, mtime in self.mtimes.items() if key.subpath is None]
        return [
            {"session_id": key.session_id, "project_key": key.project_key, "mtime": mtime}
            for key, mtime in rows
            if project_key in (None, key.project_key)
        ]

    def list_subkeys(self, project_key, session_id):
        return [key.subpath for key in self.mtimes if key[:2] == (project_key, session_id) and key.subpath]

    # --- for the tests

    def join(self) -> None:
        """Those who have stored something have ended."""
        for thread in tuple(self.threads):
            thread.join(10)
            assert not thread.is_alive()

    def put(self, key: SessionKey, *entries: Any) -> None:
        self.append(key, list(entries))

    def entries(self, key: SessionKey = MAIN) -> list[Any]:
        return [entry for found, batch in self.batches if found == key for entry in batch]

    def numbers(self, key: SessionKey = MAIN) -> list[int]:
        return [entry["n"] for entry in self.entries(key)]


class Broken(Recorder):
    """Its `append` does `what(call number)` first: raises, waits, or returns."""

    def __init__(self, what: Callable[[int], Any]) -> None:
        super().__init__()
        self.what = what
        self.calls = 0

    def append(self, key, entries):
        number, self.calls = self.calls, self.calls + 1
        self.what(number)
        super().append(key, entries)


class Greedy(Broken):
    """Changes what it is given, before it does anything else: the dicts, as drivers do, and the list."""

    def append(self, key, entries):
        taken = [dict(entry) for entry in entries]
        for entry in entries:
            entry["_id"] = object()
        entries.clear()
        super().append(key, taken)


class Blocked:
    """Waits in its first calls until the test is over. `entered` says that one is there."""

    def __init__(self, calls: int = 1) -> None:
        self.calls = calls
        self.entered, self.released = threading.Event(), threading.Event()

    def __call__(self, number: int) -> None:
        if number < self.calls:
            self.entered.set()
            self.released.wait(60)


def fail(error: BaseException, times: int = 1000) -> Callable[[int], None]:
    def what(number: int) -> None:
        if number < times:
            raise error

    return what


def entry(number: int, **more: Any) -> dict[str, Any]:
    return {"type": "user", "uuid": f"00000000-0000-0000-0000-{number:012}", "n": number, **more}


def mirror(config: Path, *numbers: int, file: str = f"{SESSION_ID}.jsonl", project: str = PROJECT, **more: Any) -> Any:
    """The step of a script that says a frame with these entries."""
    path = config / "projects" / project / file
    entries = [entry(number, **more) for number in numbers]
    return say({"type": "transcript_mirror", "filePath": str(path), "entries": entries})


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


class FileStore(Recorder):
    """Survives the process: one line per batch, written in one go."""

    def __init__(self, path: Any) -> None:
        super().__init__()
        self.path = Path(path)
        for line in self.path.read_text("utf-8").splitlines() if self.path.exists() else ():
            key, entries = json.loads(line)
            super().append(SessionKey(*key), entries)

    def append(self, key, entries):
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, list(entries)]) + "\n")
        super().append(key, entries)
