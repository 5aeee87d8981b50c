"""Forks while threads run turns: hangs, lost turns, and how much the forks wait.

python tests/campaign/fork_storm.py [FORKS [THREADS]]
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from claude_cli_client import Client
from claude_cli_client.testing import FakeCLI, init, repeat, result, text

_HANGS = 20.0  # seconds for a child that runs a turn


def main() -> None:
    forks = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    warnings.simplefilter("ignore")  # 3.12 warns of forks with threads, which is what this is about
    stop, wrong, counts, waits = threading.Event(), [], [0] * threads, []
    with FakeCLI([init(), repeat(20, text("some text")), result("x")]) as fake:
        client = Client(cli_path=fake.path, max_concurrent=threads)

        def turns(number: int) -> None:
            while not stop.is_set():
                events = list(client.run("x"))
                if len(events) != 22 or events[-1].result != "x":
                    wrong.append(events)
                counts[number] += 1

        running = [threading.Thread(target=turns, args=(number,)) for number in range(threads)]
        for one in running:
            one.start()
        hung = failed = 0
        for number in range(forks):
            begin = time.monotonic()
            pid = os.fork()
            if pid == 0:
                try:
                    if number % 10 == 0 and client.ask("x").result != "x":
                        os._exit(1)
                    os._exit(0)
                finally:
                    os._exit(2)
            waits.append(time.monotonic() - begin)
            limit = time.monotonic() + _HANGS
            while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0) and time.monotonic() < limit:
                time.sleep(0.0005)
            if ended == (0, 0):
                hung += 1
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            failed += ended[1] != 0
        stop.set()
        for one in running:
            one.join(60)
        waits.sort()
        print(
            f"{forks} forks beside {sum(counts)} turns in {threads} threads: {hung} children hung, {failed} failed, "
            f"{len(wrong)} turns wrong; a fork took {waits[len(waits) // 2] * 1000:.2f} ms (median), "
            f"{waits[-1] * 1000:.1f} ms (longest); processes left: {len(fake.alive())}"
        )
        sys.exit(bool(hung or failed or wrong or fake.alive() or any(one.is_alive() for one in running)))


if __name__ == "__main__":
    main()
