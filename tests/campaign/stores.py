"""How fast `SQLiteStore` is, with a million entries; and what must hold of it.

python tests/campaign/stores.py [ENTRIES]

A session that is mirrored adds a few entries a second. So the figures are for what comes in bulk: a
folder of transcripts that is taken over, many processes of one service, lists of all their sessions.
Each entry here has some 500 bytes of JSON.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from claude_cli_client import SessionKey, SQLiteStore

SLOWEST_ALLOWED = 20_000  # entries a second
LONGEST_LIST = 0.5  # seconds for 10,000 sessions
_PROJECT = "-srv-app"
_FIELDS = {"type": "user", "cwd": "/srv/app", "gitBranch": "main", "timestamp": "2026-01-01T00:00:00.000Z"}

Batch = list[dict[str, Any]]


def batches(count: int, size: int) -> Iterator[Batch]:
    for begin in range(0, count, size):
        yield [
            {**_FIELDS, "uuid": os.urandom(16).hex(), "message": {"role": "user", "content": f"{number:>300}"}}
            for number in range(begin, min(begin + size, count))
        ]


@contextmanager
def fresh() -> Iterator[SQLiteStore]:
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder, SQLiteStore(Path(folder, "sessions.db")) as store:
        yield store


def append(count: int, size: int, sessions: int) -> bool:
    """The time of `append` alone: making the entries is not the store's work."""
    with fresh() as store:
        took = 0.0
        for number, batch in enumerate(batches(count, size)):
            key = SessionKey(_PROJECT, f"session-{number % sessions}")
            begin = time.perf_counter()
            store.append(key, batch)
            took += time.perf_counter() - begin
        rate = count / took
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        size_on_disk = os.path.getsize(store.path) / 1e6
        print(
            f"append: {count:,} entries, {size} in a batch, {sessions:,} sessions: {rate:,.0f} a second; "
            f"{size_on_disk:.0f} MB on disk, {resident} MB of memory at most"
        )
        return rate >= SLOWEST_ALLOWED or size == 1


def lists(sessions: int) -> bool:
    with fresh() as store:
        for number, batch in enumerate(batches(sessions * 5, 5)):
            store.append(SessionKey(_PROJECT, f"session-{number}"), batch)
        slowest = 0.0
        calls: list[Callable[[str | None], Any]] = [store.list_sessions, store.list_summaries]
        for call in calls:
            for project in (_PROJECT, None):
                begin = time.perf_counter()
                assert len(call(project)) == sessions
                slowest = max(slowest, time.perf_counter() - begin)
        print(f"list: {sessions:,} sessions, the slowest way: {slowest * 1000:.0f} ms")
        return slowest < LONGEST_LIST


_WRITER = """
import sys
sys.path.insert(0, {here!r})
from stores import SQLiteStore, SessionKey, batches
with SQLiteStore(sys.argv[1]) as store:
    for batch in batches(20_000, 20):
        store.append(SessionKey("p", "shared"), batch)
"""


def processes(count: int) -> bool:
    """All of them into one session; what is left must be all of it."""
    with fresh() as store:
        code = _WRITER.format(here=str(Path(__file__).resolve().parent))
        begin = time.perf_counter()
        started = [subprocess.Popen([sys.executable, "-c", code, store.path]) for _ in range(count)]
        good = [process.wait(600) == 0 for process in started]
        took = time.perf_counter() - begin
        found = store.load(SessionKey("p", "shared")) or []
        distinct = len({entry["uuid"] for entry in found})
        print(f"{count} processes, one session: {len(found):,} entries, {len(found) / took:,.0f} a second with all")
        return all(good) and len(found) == distinct == count * 20_000


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    good = [
        append(count, 500, 100),
        append(count, 500, 1),
        append(count // 50, 1, 100),
        lists(10_000),
        processes(4),
    ]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
