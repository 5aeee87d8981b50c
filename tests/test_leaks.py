"""Many turns leave as much behind as one: nothing. See `tests/campaign` for more of them."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hosts import read
from waiting import until

from claude_cli_client import Client, CLINotFoundError, StartError, TurnCancelled, _cleanup, _fork, _guard
from claude_cli_client.testing import FakeCLI, hang, init, repeat, result, text, to_stderr

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")

# The campaign sets more.
TURNS = int(os.environ.get("CLAUDE_CLI_CLIENT_TEST_TURNS", "300"))
CANCELS = TURNS // 10


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(read("/proc/self/statm").split()[1]) * os.sysconf("SC_PAGESIZE")


def counts() -> tuple[int, int, int, int]:
    """Descriptors, threads, children and listed things of the library."""
    children = sum(len(read(f"/proc/self/task/{task}/children").split()) for task in os.listdir("/proc/self/task"))
    ours = len(_cleanup.live) + len(_cleanup.late) + len(_fork.descriptors) + len(_guard._places)
    return len(os.listdir("/proc/self/fd")), threading.active_count(), children, ours


def leaves_nothing(job: Callable[[], object], growth: float = 2.0) -> int:
    """Do it: the same counts as before, and at most so many MB of memory more. How often it was done.

    The allocator may fill its arenas in one round; a leak is there in each.
    """

    def settled() -> bool:
        gc.collect()
        return counts() == before

    for rounds in (1, 2, 3):
        # The last run of what came before is over, and its thread perhaps not yet gone.
        until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("claude-")])
        gc.collect()
        before, memory = counts(), resident()
        job()
        until(settled, f"as before: {before}")
        grown = (resident() - memory) / 1e6
        if grown < growth:
            return rounds
    raise AssertionError(f"{grown:.1f} MB more in the third round too")


def test_turns_leave_nothing(play: Callable[..., FakeCLI], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads, plain turns and turns with private files, sinks and stderr."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    fake = play(init(), repeat(5, text("some text")), to_stderr(2000), result("x"))
    client = Client(cli_path=fake.path)
    lines: list[bytes] = []
    options: list[dict[str, Any]] = [
        {},
        {"system_prompt": "long " * 30_000},
        {"line_sink": lines.append, "on_stderr": lambda line: None},
    ]

    def turns(number: int) -> None:
        assert client.ask("x", **options[number % 3]).result == "x"
        lines.clear()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(turns, range(60)))  # warm: imports, the guard, arenas of the allocator
        rounds = leaves_nothing(lambda: list(pool.map(turns, range(TURNS))))
    assert list(tmp_path.iterdir()) == []
    assert client.totals.turns == 60 + rounds * TURNS
    assert client.totals.failures == {}


def test_cancelled_turns_leave_nothing(play: Callable[..., FakeCLI]) -> None:
    """Each ends as a cancelled turn, at whatever moment the cancel came."""
    fake = play(init(), text("a"), hang())
    client = Client(cli_path=fake.path)

    def turn(number: int) -> None:
        run = client.run("x")
        for _ in range(number % 3):
            next(run)
        run.cancel()
        with pytest.raises(TurnCancelled):
            run.result(timeout=10)

    turn(0)
    rounds = leaves_nothing(lambda: [turn(number) for number in range(CANCELS)])
    assert client.totals.cancelled == client.totals.turns == rounds * CANCELS + 1


@pytest.mark.parametrize("kind", ["absent", "no interpreter", "not executable"])
def test_failing_starts_leave_nothing(kind: str, tmp_path: Path) -> None:
    """Two hundred of them with one slot: the slot is given back each time."""
    path = tmp_path / "claude"
    if kind != "absent":
        path.write_text("#!/there/is/no/such/interpreter\n")
        path.chmod(0o700 if kind == "no interpreter" else 0o600)
    client = Client(cli_path=path, max_concurrent=1)

    def start() -> None:
        with pytest.raises((CLINotFoundError, StartError)):
            client.run("x", slot_timeout=0, system_prompt="long " * 30_000)

    start()
    leaves_nothing(lambda: [start() for _ in range(200)])
    assert client.totals.turns == 0


def test_dropped_runs_end_without_the_collector(play: Callable[..., FakeCLI]) -> None:
    """The last reference goes, with gc off: the process goes too."""
    fake = play(init(), text("a"), hang())
    client = Client(cli_path=fake.path, max_concurrent=2)
    client.run("x").close()

    def drop() -> None:
        gc.disable()
        try:
            for _ in range(100):
                next(client.run("x"))  # dropped at once; the next start waits for its slot
            until(lambda: not fake.alive())
            until(lambda: not client._pool._held)
        finally:
            gc.enable()

    rounds = leaves_nothing(drop)
    assert client.totals.cancelled == 1 + rounds * 100


def test_dropped_runs_in_cycles_end_with_the_collector(play: Callable[..., FakeCLI]) -> None:
    """A run that refers to itself goes when the collector comes."""
    fake = play(init(), text("a"), hang())
    client = Client(cli_path=fake.path, max_concurrent=10)
    client.run("x").close()

    def drop() -> None:
        for _ in range(10):
            run: Any = client.run("x")
            next(run)
            cycle = [run]
            run._batch = iter([cycle])  # what a kept traceback does too

    def drop_and_collect() -> None:
        for _ in range(10):
            drop()
            gc.collect()
            until(lambda: not client._pool._held)
        until(lambda: not fake.alive())

    leaves_nothing(drop_and_collect)


def test_clients_that_are_dropped_leave_nothing(play: Callable[..., FakeCLI]) -> None:
    """A client holds no thread, process or descriptor; its runs go with their own references."""
    fake = play(init(), result("x"))
    Client(cli_path=fake.path).ask("x")

    def turns() -> None:
        for _ in range(50):
            assert Client(cli_path=fake.path).run("x").result().result == "x"

    leaves_nothing(turns)
