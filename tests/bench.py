"""The benchmark: this library against the least that does the same work, and against the official SDK.

    python tests/bench.py [import stream mixed huge turns latency cancel memory]     # all, about 6 minutes

The floor is `Popen`, a loop over the lines of stdout, and `json.loads`: no thread, no events, no
limits. The official SDK takes part where `BENCH_SDK_PYTHON`, or else this interpreter, has it. The
CLI is `bench_cli.c`, compiled for the purpose. Without a C compiler it is a `FakeCLI`, whose own
start takes longer than all that is measured of a short turn; those rows are then not judged.

How figures come about, so that a busy machine does not decide them:

* Each figure is from a process of its own. One round runs floor, ours and SDK one after the other,
  so that what slows the machine slows all three; a ratio is taken within a round, and the median
  of the ratios is what counts. The first round is thrown away.
* CPU is that of the client's own process, after its imports and without the CLI's.
* Memory is the peak of the resident set (VmHWM). `ru_maxrss` starts at the parent's peak.
* Byte code is cached, whatever this shell's PYTHONDONTWRITEBYTECODE says: without it an import
  compiles, and that is what would be measured.

Exits with 1 if a row misses its target.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
STDLIB = "subprocess, json, threading, queue, dataclasses, selectors, typing"
ARGV = ["-p", "--output-format=stream-json", "--verbose", "--permission-mode=acceptEdits"]
STAMPS = 2000
PATIENCE = 600  # seconds for one measured process

Figures = dict[str, float]
Job = dict[str, Any]


# --- the measured processes: `bench.py --peer NAME JOB`; a job is a dict, the figures are printed as JSON


def floor_turn(job: Job, each: Callable[[str], None] | None) -> int:
    process = subprocess.Popen(
        [job["cli"], *ARGV],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"hi")
    process.stdin.close()
    count = 0
    for line in process.stdout:
        data = json.loads(line)
        count += 1
        if each:
            each(data["event"]["delta"]["text"] if "event" in data else "")
    process.stdout.close()
    process.wait()
    return count


def floor_cancel(job: Job) -> float:
    import signal

    process = subprocess.Popen(
        [job["cli"], *ARGV], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.02)
    began = time.perf_counter()
    os.killpg(process.pid, signal.SIGTERM)
    process.stdout.read()
    process.wait()
    process.stdout.close()
    return time.perf_counter() - began


def our_turn(job: Job, each: Callable[[str], None] | None) -> int:
    count = 0
    for event in our_client(job).run("hi"):
        count += 1
        if each:
            each(event.text)
    return count


def our_cancel(job: Job) -> float:
    run = our_client(job).run("hi")
    next(run)
    time.sleep(0.02)
    began = time.perf_counter()
    run.cancel()
    for _ in run:
        pass
    return time.perf_counter() - began


_clients: list[Any] = []


def our_client(job: Job) -> Any:
    if not _clients:
        from claude_cli_client import Client

        _clients.append(Client(cli_path=job["cli"], max_concurrent=job.get("at_once", 1)))
    return _clients[0]


def sdk_turns(job: Job, each: Callable[[str], None] | None) -> int:
    import asyncio

    from claude_agent_sdk import ClaudeAgentOptions, query

    options = ClaudeAgentOptions(
        cli_path=job["cli"],
        max_buffer_size=64 << 20,
        permission_mode="acceptEdits",
        include_partial_messages=True,
        stderr=lambda line: None,
    )

    async def turn(slots: asyncio.Semaphore) -> int:
        count = 0
        async with slots:
            async for message in query(prompt="hi", options=options):
                count += 1
                if job.get("nap"):
                    await asyncio.sleep(job["nap"])
                elif each:
                    streamed = getattr(message, "event", None)
                    each(streamed["delta"]["text"] if streamed else "")
        return count

    async def turns() -> int:
        slots = asyncio.Semaphore(job.get("at_once", 1))
        return sum(await asyncio.gather(*(turn(slots) for _ in range(job.get("turns", 1)))))

    return asyncio.run(turns())


def sdk_cancel(job: Job) -> float:
    """`disconnect()`; the process is polled for, since the SDK does not say when it is gone."""
    import asyncio

    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

    async def cancel() -> float:
        client = ClaudeSDKClient(ClaudeAgentOptions(cli_path=job["cli"], stderr=lambda line: None))
        await client.connect()
        await client.query("hi")
        async for _ in client.receive_messages():
            break
        await asyncio.sleep(0.02)
        pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        began = time.perf_counter()
        await client.disconnect()
        while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.perf_counter() - began < 30:
            await asyncio.sleep(0.0005)
        return time.perf_counter() - began

    return asyncio.run(cancel())


def peer_main(peer: str, job: Job) -> Figures:
    if job["what"] == "cancel":
        once = {"floor": floor_cancel, "ours": our_cancel, "sdk": sdk_cancel}[peer]
        return {"cancel": _median([once(job) for _ in range(job["turns"])])}
    delays: list[float] = []
    each: Callable[[str], None] | None = None
    if job.get("nap"):
        each = lambda text: time.sleep(job["nap"])  # noqa: E731
    elif job["what"] == "latency":
        each = lambda text: delays.append(time.monotonic_ns() - int(text)) if text.isdigit() else None  # noqa: E731
    turns = {"floor": in_threads(floor_turn), "ours": in_threads(our_turn), "sdk": sdk_turns}[peer]
    if peer == "ours":
        our_client(job)
    elif peer == "sdk":
        __import__("claude_agent_sdk")
    cpu, wall = _cpu(), time.perf_counter()
    events = turns(job, each)
    figures = {"wall": time.perf_counter() - wall, "cpu": _cpu() - cpu, "events": events, "peak": _peak_mb()}
    if delays:
        figures["latency"] = _median(delays) / 1000
    return figures


def in_threads(turn: Callable[[Job, Any], int]) -> Callable[[Job, Any], int]:
    """`turns` turns, `at_once` at a time, each of those on a thread of its own."""

    def turns(job: Job, each: Any) -> int:
        at_once, total = job.get("at_once", 1), job.get("turns", 1)
        counts: list[int] = []

        def work(share: int) -> None:
            counts.extend(turn(job, each) for _ in range(share))

        if at_once == 1:
            work(total)
        else:
            threads = [threading.Thread(target=work, args=(total // at_once,)) for _ in range(at_once)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return sum(counts)

    return turns


def _cpu() -> float:
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak_mb() -> float:
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    except OSError:  # not Linux
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


# --- what the CLI says: seeded, so the same bytes each time


def write_corpus(name: str, path: Path) -> None:
    import random

    chance = random.Random(name)
    names = ("init", "delta", "thinking", "text", "tool_use", "tool_result", "result")
    rows = (HERE / "data" / "bench" / "lines.jsonl").read_text(encoding="utf-8").splitlines()
    lines = dict(zip(names, rows, strict=True))
    words = [
        "the", "of", "a", "def", "return", "error", "file", "line", "test", "path", "for", "None", "self", "import",
    ]  # fmt: skip
    rare = ["naïve", "→", "日本語", "“quoted”", "🙂", '"', "\\", "\t"]

    def prose(size: int, share: float = 0.3) -> str:
        """About what a model or a tool writes. A character beyond Latin-1 makes a Python text two or
        four times as big, so only a `share` of the texts has them, as in life."""
        parts, length = [], 0
        rarely = 0.03 if chance.random() < share else 0.0
        while length < size:
            word = chance.choice(rare if chance.random() < rarely else words)
            word += "\n" if chance.random() < 0.1 else " "
            parts.append(word)
            length += len(word)
        return "".join(parts)[:size]

    def filled(name: str, *places: tuple[Any, ...], text: str) -> str:
        line = json.loads(lines[name])
        for *way, last in places:
            target = line
            for step in way:
                target = target[step]
            target[last] = text
        line["uuid"] = f"{chance.getrandbits(32):08x}-5d34-480a-b178-f6ce8d32f843"
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"))

    def tool_result(size: int, share: float = 0.3) -> str:  # the CLI says the output twice
        content = ("message", "content", 0, "content")
        return filled("tool_result", content, ("tool_use_result", "stdout"), text=prose(size // 2, share))

    def delta() -> str:
        return filled("delta", ("event", "delta", "text"), text=prose(chance.randint(3, 20)))

    def mixed() -> Iterator[str]:
        def size() -> int:
            return int(100 * 190 ** chance.random())  # 100 to 19,000

        for _ in range(500):
            yield filled("thinking", ("message", "content", 0, "thinking"), text=prose(size() // 4))
            yield filled("text", ("message", "content", 0, "text"), text=prose(size() // 4))
            yield filled("tool_use", ("message", "content", 0, "input", "file_path"), text=prose(size() // 2))
            yield tool_result(size())

    bodies: dict[str, Iterator[str]] = {
        "short": iter([lines["text"]]),
        "stream": (delta() for _ in range(20_000)),
        "mixed": mixed(),
        # 1 to 5 MB with what is escaped; every other one with rare characters, whatever the seed
        "huge": (tool_result(1_005_000 + 75_700 * number, share=number % 2) for number in range(50)),
    }
    with open(path, "w", encoding="utf-8") as file:
        file.write(lines["init"] + "\n")
        file.writelines(line + "\n" for line in bodies[name])
        file.write(lines["result"] + "\n")


# --- rounds and tables


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
    except OSError:
        return False


class Bench:
    """Runs the rounds, judges the rows, prints the tables."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder = folder
        self.rounds = rounds
        self.missed = 0
        self.compiled = self._compile()
        self.fakes: list[Any] = []
        self.peers = {"floor": sys.executable, "ours": sys.executable}
        sdk = os.environ.get("BENCH_SDK_PYTHON", sys.executable)
        if self.compiled and _succeeds([sdk, "-c", "import claude_agent_sdk"]):
            self.peers["sdk"] = sdk
        # A short, clean environment: nothing of an outer Claude Code session, byte code is written.
        self.env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK": "1",
        }

    def _compile(self) -> str:
        program = str(self.folder / "claude")
        for how in (["-static"], []):  # a static program starts faster
            if _succeeds([os.environ.get("CC", "cc"), "-O2", *how, "-o", program, str(HERE / "bench_cli.c")]):
                return program
        print("no C compiler: the CLI is a FakeCLI, short turns and latency are not judged\n")
        return ""

    def corpus(self, name: str) -> Path:
        path = self.folder / f"{name}.jsonl"
        if not path.exists():
            write_corpus(name, path)
        return path

    def cli(self, corpus: str, **how: int) -> tuple[str, dict[str, str]]:
        """The program to start, and the variables that tell it what to do."""
        file = self.corpus(corpus)
        if self.compiled:
            return self.compiled, {"BENCH_FILE": str(file), **{f"BENCH_{k.upper()}": str(v) for k, v in how.items()}}
        from claude_cli_client import testing as fake

        steps: list[Any] = [fake.ignore_term()] if how.get("deaf") else []
        steps += [fake.start_child() for _ in range(how.get("children", 0))]
        steps += [fake.say_capture(file, stop=1), fake.hang()] if how.get("hang") else [fake.say_capture(file)]
        self.fakes.append(fake.FakeCLI(steps, directory=self.folder))
        return str(self.fakes[-1].path), {}

    def run(
        self, job: Job, env: dict[str, str] | None = None, *, rounds: int = 0, without: str = "", warm: bool = True
    ) -> dict[str, list[Figures]]:
        peers = {name: python for name, python in self.peers.items() if name != without}
        warm = warm and self.rounds > 1  # one round is a look whether it works
        found: dict[str, list[Figures]] = {name: [] for name in peers}
        for number in range((rounds or self.rounds) + warm):
            for name, python in peers.items():
                given = {**job, "modules": job["modules"][name]} if "modules" in job else job
                if name == "sdk" and job["what"] == "cancel":
                    given = {**job, "turns": 1}  # each takes 5 s
                figures = self.once(name, python, given, env or {})
                if number or not warm:
                    found[name].append(figures)
        return found

    def once(self, name: str, python: str, job: Job, env: dict[str, str]) -> Figures:
        command = [python, str(HERE / "bench.py"), "--peer", name, json.dumps(job)]
        if job["what"] == "import":  # nothing may be imported yet, so not through this file
            timed = f"import time; began = time.perf_counter(); import {job['modules']}"
            command = [python, "-c", timed + "; print('{\"wall\":', time.perf_counter() - began, '}')"]
        done = subprocess.run(
            command, env={**self.env, **env}, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE
        )
        if done.returncode:
            raise SystemExit(f"bench: {name} failed at {job}:\n{done.stderr.decode(errors='replace')[-2000:]}")
        return dict(json.loads(done.stdout.splitlines()[-1]))

    # --- rows

    def head(self, title: str) -> None:
        print(f"### {title}\n")
        print("| | floor | ours | official SDK | ours / floor | SDK / floor | target | |")
        print("|---|---|---|---|---|---|---|---|")

    def row(self, name: str, found: dict[str, list[Figures]], key: str, unit: str, **how: Any) -> None:
        """One row. `target` is a limit of `judge`: the ratio, the difference, or our own figure."""
        scale, target, judge = how.get("scale", 1.0), how.get("target"), how.get("judge", "ratio")
        shown = {p: f"{_median([f[key] for f in rows]) * scale:.4g} {unit}" for p, rows in found.items()}
        ratio = {p: self.paired(found, p, key, lambda a, b: a / b) for p in found}
        value = {
            "ratio": ratio["ours"],
            "difference": self.paired(found, "ours", key, lambda a, b: a - b) * scale,
            "own": _median([figures[key] for figures in found["ours"]]) * scale,
        }[judge]
        says = ""
        if target is not None and how.get("judged", True):
            says = "PASS" if value <= target else "FAIL"
            self.missed += says == "FAIL"
        limit = {"ratio": f"{target}", "difference": f"floor + {target} {unit}", "own": f"{target} {unit}"}[judge]
        shares = [f"{ratio[p]:.2f}" if {p, "floor"} <= found.keys() else "-" for p in ("ours", "sdk")]
        figures = [shown.get(p, "-") for p in ("floor", "ours", "sdk")]
        cells = [name, *figures, *shares, limit if target is not None else "", says]
        print("| " + " | ".join(cells) + " |", flush=True)

    @staticmethod
    def paired(found: dict[str, list[Figures]], peer: str, key: str, how: Callable[[float, float], float]) -> float:
        if "floor" not in found:
            return float("nan")
        return _median([how(a[key], b[key]) for a, b in zip(found[peer], found["floor"], strict=True)])

    # --- what is measured

    def imports(self) -> None:
        self.head("import, in an interpreter that has just started")
        modules = {"floor": STDLIB, "ours": "claude_cli_client", "sdk": "claude_agent_sdk"}
        found = self.run({"what": "import", "modules": modules}, rounds=3 * self.rounds)
        self.row("import", found, "wall", "ms", scale=1e3, target=1.25)

    def throughput(self, corpus: str, title: str, target: float, turns: int = 1) -> None:
        """Several turns one after the other where one takes 20 ms: the scheduler's noise is as long."""
        size = self.corpus(corpus).stat().st_size / 1e6
        program, env = self.cli(corpus)
        found = self.run({"what": corpus, "cli": program, "turns": turns}, env)
        count = int(found["ours"][0]["events"])
        self.head(f"{title}: {size:.0f} MB, {count // turns} events")
        self.row("CPU per event", found, "cpu", "us", scale=1e6 / count, target=target)
        self.row("wall a turn", found, "wall", "ms", scale=1e3 / turns)

    def stream(self) -> None:
        self.throughput("stream", "token stream", 1.0, turns=2)

    def mixed(self) -> None:
        self.throughput("mixed", "mixed turn", 1.2, turns=5)

    def huge(self) -> None:
        self.throughput("huge", "lines of 1 to 5 MB", 1.0)

    def turns(self) -> None:
        self.head("short turns (3 lines) of a CLI that answers at once")
        for at_once, total, target in ((1, 60, 1.8), (16, 160, 2.2), (64, 256, 2.2)):
            program, env = self.cli("short")
            found = self.run({"what": "turns", "cli": program, "turns": total, "at_once": at_once}, env)
            judged = bool(self.compiled)
            self.row(
                f"{at_once} at once, wall a turn", found, "wall", "ms", scale=1e3 / total, target=target, judged=judged
            )

    def latency(self) -> None:
        if not self.compiled:
            return
        self.head("from the CLI's write to the event, a line every ms, median")
        program, env = self.cli("short", stamps=STAMPS, pace_us=1000)
        found = self.run({"what": "latency", "cli": program}, env, rounds=min(5, self.rounds))
        self.row("latency", found, "latency", "us", target=14, judge="difference")

    def cancel(self) -> None:
        self.head("from cancel to nothing left, median")
        rows: tuple[tuple[str, dict[str, int], int, int | None, str], ...] = (
            ("plain", {}, 20, 5, ""),
            # The SDK makes no process group: its children would stay.
            ("5 children in the group", {"children": 5}, 20, None, "sdk"),
            # The floor would wait for ever. 3 s of grace, then 0.5 s for SIGKILL and the look around.
            ("SIGTERM ignored", {"deaf": 1}, 1, 3500, "floor"),
        )
        for name, how, turns, target, without in rows:
            program, env = self.cli("short", hang=1, **how)
            job = {"what": "cancel", "cli": program, "turns": turns}
            found = self.run(job, env, rounds=min(3, self.rounds), without=without, warm=turns > 1)
            self.row(name, found, "cancel", "ms", scale=1e3, target=target, judge="own", judged=bool(self.compiled))

    def memory(self) -> None:
        size = self.corpus("huge").stat().st_size / 1e6
        self.head(f"peak memory: {size:.0f} MB in lines of 1 to 5 MB")
        program, env = self.cli("huge")
        found = self.run({"what": "memory", "cli": program}, env, rounds=5, warm=False)
        self.row("fast consumer", found, "peak", "MB", target=1.25)
        found = self.run({"what": "memory", "cli": program, "nap": 0.03}, env, rounds=1, warm=False)
        self.row("consumer that sleeps 30 ms an event", found, "peak", "MB")

    def close(self) -> None:
        for fake in self.fakes:
            fake.close()


def main(words: list[str]) -> int:
    import argparse
    import platform
    import tempfile

    known = {
        "import": Bench.imports, "stream": Bench.stream, "mixed": Bench.mixed, "huge": Bench.huge,
        "turns": Bench.turns, "latency": Bench.latency, "cancel": Bench.cancel, "memory": Bench.memory,
    }  # fmt: skip
    parser = argparse.ArgumentParser(description="Measure claude_cli_client against the floor and the official SDK.")
    parser.add_argument("what", nargs="*", help=f"{' '.join(known)}; all without one")
    parser.add_argument("-n", "--rounds", type=int, default=9)
    args = parser.parse_args(words)
    if wrong := set(args.what) - known.keys():
        parser.error(f"unknown: {' '.join(sorted(wrong))}; there is {' '.join(known)}")
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        bench = Bench(Path(name), args.rounds)
        try:
            print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n")
            for what in args.what or known:
                known[what](bench)
                print()
        finally:
            bench.close()
    print(f"{bench.missed} targets missed" if bench.missed else "all targets met")
    return 1 if bench.missed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        print(json.dumps(peer_main(sys.argv[2], json.loads(sys.argv[3]))))
    else:
        sys.exit(main(sys.argv[1:]))
