"""Very many sessions, and a very long one: how long it takes, and how much memory.

python tests/campaign/transcripts.py [SESSIONS [MEGABYTES]]      # 10000 and 500; needs that much disk, twice

The official SDK takes part where `BENCH_SDK_PYTHON`, or else this interpreter, has it; both then list the same
folder in turn, each in a process of its own. What must hold: the newest 50 of 10,000 in under 0.5 s and
at most a quarter of the SDK's time; a list of a long transcript in constant memory; its messages in time
that grows with its length, and memory that grows with what is returned.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDED = ROOT / "tests" / "data" / "sessions" / "-home-user-project" / "22a9c654-efbc-4159-8b73-9dc3799beefe.jsonl"
ROUNDS = 3

# Prints seconds, memory (the peak, less what it was before) and the result.
PEER = """
import json, sys, time
sys.path.insert(0, {root!r})
{imports}
def peak():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))) / 1000
for _ in range({warm}):
    {call}
before, begin = peak(), time.perf_counter()
result = {call}
print(json.dumps([time.perf_counter() - begin, peak() - before, len(result)]))
"""
OURS = "import claude_cli_client.transcripts as t; import claude_cli_client._on_disk"
SDK = "import claude_agent_sdk as t"


def peer(python: str, imports: str, call: str, config: Path, warm: int = 0) -> tuple[float, float, int]:
    code = PEER.format(root=str(ROOT), imports=imports, call=call, warm=warm)
    environment = {**os.environ, "CLAUDE_CONFIG_DIR": str(config)}
    done = subprocess.run([python, "-c", code], env=environment, stdout=subprocess.PIPE, check=True, timeout=600)
    seconds, megabytes, count = json.loads(done.stdout)
    return seconds, megabytes, count


def many(config: Path, sessions: int) -> bool:
    """As many copies of a recorded transcript, each with a time of its own."""
    folder = config / "projects" / "-many"
    folder.mkdir(parents=True)
    content = RECORDED.read_bytes()
    for number in range(sessions):
        path = folder / f"{uuid.uuid4()}.jsonl"
        path.write_bytes(content)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    sdk = os.environ.get("BENCH_SDK_PYTHON", sys.executable)
    has_sdk = not subprocess.run([sdk, "-c", SDK], stderr=subprocess.DEVNULL, check=False).returncode
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(peer(sys.executable, OURS, "t.list_sessions(limit=50)", config)[0])
        if has_sdk:
            theirs.append(peer(sdk, SDK, "t.list_sessions(limit=50)", config)[0])
    all_of_them = peer(sys.executable, OURS, "t.list_sessions()", config)[0]
    mine = statistics.median(ours)
    size = f"{len(content) // 1000} KB"
    print(f"{sessions} sessions of {size}: the newest 50 in {mine:.3f} s, all in {all_of_them:.2f} s")
    if not theirs:
        print(f"    {sdk} has no claude_agent_sdk")
        return mine < 0.5
    ratio = statistics.median(our / their for our, their in zip(ours, theirs, strict=True))
    print(f"    the SDK: {statistics.median(theirs):.3f} s; ours is {ratio:.3f} of it")
    return mine < 0.5 and ratio <= 0.25


def turns() -> Iterator[bytes]:
    """A conversation without end: prompts, answers with a tool call, results; about 1 to 20 KB each."""
    parent = None
    number = 0
    while True:
        call, output = f"t{number}", "line\n" * (200 + number % 4000)
        for kind, content in (
            ("user", f"prompt {number}"),
            ("assistant", [{"type": "tool_use", "id": call, "name": "Read", "input": {"path": "x" * 1000}}]),
            ("user", [{"type": "tool_result", "tool_use_id": call, "content": output}]),
            ("assistant", [{"type": "text", "text": "word " * 200}]),
        ):
            entry = {"parentUuid": parent, "type": kind, "uuid": str(uuid.UUID(int=number)), "cwd": "/x"}
            message = {"role": kind, "content": content, "id": f"m{number}"}
            yield json.dumps({**entry, "timestamp": "2026-01-01T00:00:00.000Z", "message": message}).encode() + b"\n"
            parent = entry["uuid"]
            number += 1


def long(config: Path, megabytes: int) -> bool:
    """One transcript, measured while it grows."""
    path = config / "projects" / "-long" / f"{uuid.uuid4()}.jsonl"
    path.parent.mkdir(parents=True)
    rows: list[tuple[float, Any, Any, Any]] = []
    with open(path, "wb") as file:
        lines = turns()
        for part in (megabytes // 4, megabytes // 2, megabytes):
            while file.tell() < part * 1_000_000:
                file.write(next(lines))
            file.flush()
            listed = peer(sys.executable, OURS, "t.list_sessions()", config)
            page = peer(sys.executable, OURS, f"t.get_messages({path.stem!r}, limit=50)", config)
            whole = peer(sys.executable, OURS, f"t.get_messages({path.stem!r})", config)
            rows.append((part, listed, page, whole))
            print(
                f"a transcript of {part} MB, {whole[2]} messages: listed in {listed[0] * 1000:.1f} ms and "
                f"{listed[1]:.1f} MB; 50 messages in {page[0]:.2f} s and {page[1]:.0f} MB; "
                f"all in {whole[0]:.2f} s and {whole[1]:.0f} MB"
            )
    (small, _, _, first), (large, listed, page, last) = rows[0], rows[-1]
    linear = last[0] / large < 2 * first[0] / small
    return linear and listed[1] < 5 and page[1] < 0.3 * large


def main(words: list[str]) -> int:
    sessions, megabytes = [*map(int, words), 10_000, 500][:2] if len(words) != 1 else (int(words[0]), 500)
    held = True
    for part, size in ((many, sessions), (long, megabytes)):
        with tempfile.TemporaryDirectory(prefix="transcripts-") as folder:
            held = part(Path(folder), size) and held
    print("all of it held" if held else "NOT all of it held")
    return not held


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
