"""Many turns, and what there is before and after them.

python tests/campaign/leaks.py [TURNS [CANCELLED]]
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from claude_cli_client import Client
from claude_cli_client.testing import FakeCLI, hang, init, repeat, result, start_child, text, to_stderr

_ALLOWED = 2.0  # MB of growth: the allocator's arenas


def facts() -> dict[str, float]:
    children = 0
    for task in os.listdir("/proc/self/task"):
        children += len(Path(f"/proc/self/task/{task}/children").read_text().split())
    files = [name for name in os.listdir(tempfile.gettempdir()) if name.startswith(f"claude_cli_client-{os.getpid()}-")]
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "children": children,  # the guard
        "temporary files": len(files),
        "resident MB": round(resident, 1),
    }


def settled() -> dict[str, float]:
    limit = time.monotonic() + 5
    while threading.active_count() > 1 and time.monotonic() < limit:
        time.sleep(0.01)
    gc.collect()
    return facts()


def table(name: str, count: int, turn: Callable[[int], None], warm: int) -> bool:
    for number in range(warm):
        turn(number)
    before, begin = settled(), time.monotonic()
    for number in range(count):
        turn(number)
    took = time.monotonic() - begin
    after = settled()
    print(f"{name}: {count}, {took / count * 1000:.1f} ms each")
    for what in before:
        print(f"    {what:16} {before[what]:8} {after[what]:8}")
    growth = after["resident MB"] - before["resident MB"]
    return all(before[what] == after[what] for what in before if what != "resident MB") and growth < _ALLOWED


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    cancelled = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    good = True
    with FakeCLI([init(), repeat(10, text("some text")), to_stderr(2000), result("x")]) as fake:
        client = Client(cli_path=fake.path)
        good = table("plain turns", turns, lambda _: bool(client.ask("x")) or None, warm=100) and good
        long = "long " * 30_000
        good = (
            table(
                "with private files", turns // 10, lambda _: bool(client.ask("x", system_prompt=long)) or None, warm=10
            )
            and good
        )
    with FakeCLI([init(), start_child("session"), start_child("detached"), text("a"), hang()]) as fake:
        client = Client(cli_path=fake.path)

        def cancel(number: int) -> None:
            with client.run("x") as run:
                for _ in range(number % 3):
                    next(run)

        good = table("cancelled turns with tools", cancelled, cancel, warm=10) and good
        left = fake.alive()
        print(f"    processes left   {len(left):8}")
    sys.exit(not good or bool(left))


if __name__ == "__main__":
    main()
