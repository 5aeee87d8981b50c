"""How long interpreters take to end with sixteen runs open, by way of ending and by kind of CLI.

python tests/campaign/exit_matrix.py [TIMES]
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from hosts import Host

from claude_cli_client.testing import FakeCLI, hang, ignore_term, init, on_term, ready, start_child

PROMISED = 5.0
CLIS = {
    "dies of TERM": [],
    "ends by itself": [on_term()],
    "resists": [ignore_term(), start_child("session", ignore_term=True)],
}
_HOLD = "runs = [client.run('x') for _ in range(16)]\nhear('go')\n"
_POOL = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(16)\n"
WAYS = {
    "end of main": _HOLD,
    "exception": _HOLD + "raise ValueError",
    "sys.exit": _HOLD + "sys.exit(0)",
    "Ctrl-C in result()": _HOLD.replace("hear('go')", "runs[0].result()"),
    "Ctrl-C in ask()": _HOLD.replace("16", "15").replace("hear('go')", "client.ask('x')"),
    "pool threads": _POOL + "for _ in range(16): pool.submit(client.ask, 'x')\nhear('go')",
    "plain threads": "for _ in range(16): thread(list, client.run('x'))\nhear('go')",
    "SIGKILL": _HOLD,
}


def one(source: str, steps: list[object], way: str) -> tuple[float, int]:
    with FakeCLI([init(), *steps, ready("up"), hang()]) as fake, Host(source, fake) as host:
        fake.wait("up", count=16, timeout=30)
        begin = time.monotonic()
        if "Ctrl-C" in way:
            host.kill(signal.SIGINT)
        elif way == "SIGKILL":
            host.kill()
        else:
            host.tell("go")
        host.end(30)
        while way == "SIGKILL" and fake.alive() and time.monotonic() - begin < 20:
            time.sleep(0.01)
        return time.monotonic() - begin, len(fake.alive())


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    good = True
    print(f"{'seconds, longest of ' + str(times):28}" + "".join(f"{name:>18}" for name in CLIS))
    for way, source in WAYS.items():
        row = ""
        for steps in CLIS.values():
            found = [one(source, list(steps), way) for _ in range(times)]
            longest, left = max(took for took, _ in found), sum(count for _, count in found)
            good = good and longest < PROMISED and not left
            row += f"{longest:>18.2f}" if not left else f"{f'{longest:.2f} ({left} left)':>18}"
        print(f"{way:28}{row}", flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
