"""What callbacks cost, and whether many sessions leave something: measured on the fake CLI, in minutes.

    python tests/campaign/callbacks.py [--calls 1000] [--sessions 200]

Figures (each against the limit that it must keep):

* tool call: 1,000 calls of an in-process tool in one session. *Ours* is the processor time of this
  process, all threads, for a call; *round trip* is the time between question and answer as the CLI
  sees it, which has the fake's own time in it.
* permission: the same for `can_use_tool`.
* memory: what this process grew by from the 200th call to the last one.
* sessions: opened, used and broken in all ways of `test_session.py`, one after the other.

The exit code is 1 when a limit is not kept.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

from claude_cli_client import Client, ToolServer, tool  # noqa: E402
from claude_cli_client.testing import (  # noqa: E402
    FakeCLI,
    Step,
    ask_permission,
    began,
    call_tool,
    ended,
    expect_initialize,
    read_stdin,
    repeat,
)

LIMITS = {"tool call": 1.0, "permission": 2.0}  # milliseconds of ours
FLAT = 1024  # KiB
WARM = 200


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def resident() -> int:
    """KiB of this process."""
    gc.collect()
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(question: tuple[Step, ...], calls: int) -> tuple[float, float, int]:
    """Milliseconds of ours and of the round trip for one call, and KiB of growth."""
    part = [*began(), repeat(calls // 5, question), *ended()]
    warm = [*began(), repeat(WARM, question), *ended()]
    with FakeCLI([*expect_initialize(), warm, part, part, part, part, part, read_stdin()]) as fake:
        client = Client(cli_path=fake.path)
        with client.session(can_use_tool=lambda request: True, mcp_servers={"calc": ToolServer([add])}) as session:
            session.ask("warm up")
            before, cpu, wall = resident(), time.process_time(), time.perf_counter()
            for _ in range(5):
                session.ask("go")
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            grown = resident() - before
        failures = fake.calls[0].stdin.count(b'"isError":true') + fake.calls[0].stdin.count(b'"subtype":"error"')
        assert not failures, f"{failures} calls failed"
    return cpu / calls * 1000, wall / calls * 1000, grown


def figures(calls: int) -> bool:
    kept = True
    questions = {
        "tool call": call_tool("calc", "add", {"a": 1, "b": 2}),
        "permission": ask_permission("Bash", {"command": "ls -la"}),
    }
    for name, question in questions.items():
        ours, trip, grown = measure(question, calls)
        good = ours < LIMITS[name] and grown < FLAT
        kept = kept and good
        print(
            f"{name:11} ours {ours:.3f} ms (limit {LIMITS[name]:g})   round trip {trip:.3f} ms   "
            f"memory {grown:+d} KiB over {calls} calls (limit {FLAT})   {'kept' if good else 'NOT KEPT'}",
            flush=True,
        )
    return kept


def sessions(count: int) -> bool:
    began_at = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=900"]
    tests = [f"{HERE.parent}/test_session.py", "-k", "leave_nothing"]
    environment = {**os.environ, "CLAUDE_CLI_CLIENT_TEST_SESSIONS": str(count)}
    done = subprocess.run([*command, *tests], env=environment, check=False, cwd=HERE.parents[1])
    kept = done.returncode == 0
    print(f"sessions    {count} in all ways, {time.monotonic() - began_at:.0f} s   {'kept' if kept else 'NOT KEPT'}")
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=200)
    given = parser.parse_args()
    kept = figures(given.calls)
    return 0 if sessions(given.sessions) and kept else 1


if __name__ == "__main__":
    sys.exit(main())
