"""Hosts killed in the middle of runs, fifty of fifty: how many left something, and for how long.

    python tests/campaign/killed_hosts.py [COUNT]

Each host has two runs of a fake CLI that ignores TERM, with children in its group, in sessions of
their own and double-forked; it is killed by SIGKILL at a random moment once the first CLI is up.
With CLAUDE_CLI_CLIENT_TEST_CLI the same is done with the real CLI in the middle of a tool.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import real_cli
from hosts import Host, guard_of
from waiting import is_running

from claude_cli_client.testing import FakeCLI, hang, ignore_term, init, ready, start_child

PROMISED = 5.0
_LOOK_LONGER = 20.0


def measure(living: Callable[[], object], guard: int) -> float:
    """Seconds until nothing lives any more; at most `_LOOK_LONGER`."""
    begin = time.monotonic()
    while (living() or is_running(guard)) and time.monotonic() - begin < _LOOK_LONGER:
        time.sleep(0.01)
    return time.monotonic() - begin


def fake_hosts(count: int) -> list[float]:
    chance, took = random.Random(3), []
    script = [
        init(),
        ignore_term(),
        start_child("group", ignore_term=True),
        start_child("session", ignore_term=True),
        start_child("detached", ignore_term=True),
        ready("up"),
        hang(),
    ]
    for _ in range(count):
        with FakeCLI(script) as fake, Host("runs = [client.run('x') for _ in range(2)]\nhear('never')", fake) as host:
            fake.wait("up")
            guard = guard_of(host)
            time.sleep(chance.random() * 0.05)
            host.kill(signal.SIGKILL)
            host.end()
            took.append(measure(fake.alive, guard))
    return took


def real_hosts(count: int, cli: str) -> list[float]:
    took = []
    with real_cli.stand_in() as url:
        for number in range(count):
            with tempfile.TemporaryDirectory(prefix="real-") as folder:
                world = real_cli.RealCLI(cli, Path(folder).resolve(), real_cli.API(f"{url}/t/{number}"))
                gate = world.gate()
                prompt = "go " + real_cli.bash(
                    "sleep 600 & setsid sleep 601 & "
                    "(setsid sh -c 'sleep 602 & exec sleep 603' </dev/null >/dev/null 2>&1 &); "
                    "setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 604; done' & "
                    f"echo ready > {gate.path}; wait"
                )
                options = {**world.options(allowed_tools=["Bash"]), "cwd": str(world.cwd)}
                source = f"client = Client(**{options!r})\nrun = client.run({prompt!r})\nhear('never')"
                with Host(source) as host:
                    gate.wait()
                    guard = guard_of(host)
                    host.kill(signal.SIGKILL)
                    host.end()
                    took.append(measure(world.processes, guard))
                world.close()
    return took


def show(name: str, took: list[float]) -> bool:
    late = sum(seconds > PROMISED for seconds in took)
    print(
        f"{name}: {len(took) - late} of {len(took)} left nothing within {PROMISED:g} s; "
        f"median {statistics.median(took):.2f} s, longest {max(took):.2f} s"
    )
    return not late


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    good = show("hosts killed, fake CLI that resists", fake_hosts(count))
    cli = os.environ.get(real_cli.CLI_VARIABLE)
    if cli:
        good = show("hosts killed, real CLI in a tool", real_hosts(count, cli)) and good
    else:
        print(f"hosts killed, real CLI: left out, {real_cli.CLI_VARIABLE} is not set")
    sys.exit(not good)


if __name__ == "__main__":
    main()
