"""The official SDK on the same folders: same sessions, order and messages for what both can read.

What we do otherwise stands in the second half, each with its reason.

The SDK is asked in a process of its own: the Python that BENCH_SDK_PYTHON names, else this one, if it
has it (`pip install --no-binary claude-agent-sdk claude-agent-sdk` leaves out the CLI that it brings).
Continuous integration has it; elsewhere these tests are skipped.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from real_cli import RealCLI, bash, tool

import claude_cli_client as client
from claude_cli_client._project_key import project_key

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(120)]

DATA = Path(__file__).parent / "data" / "sessions"
PARALLEL = "22a9c654-efbc-4159-8b73-9dc3799beefe"
COMPACTED = "93ab0616-aa41-4910-b503-7f117ee990b3"

# What a list shows, as the SDK names it. Not compared: `last_modified` to the millisecond, since the
# SDK rounds it through a float.
FIELDS = ["session_id", "summary", "custom_title", "first_prompt", "git_branch", "cwd", "tag"]
FIELDS += ["created_at", "file_size"]

ASK = """
import json, sys
from dataclasses import asdict
import claude_agent_sdk as sdk
job = json.load(sys.stdin)
directory, found = job["directory"], {}
found["infos"] = [asdict(info) for info in sdk.list_sessions(directory, **job["page"])]
for info in found["infos"]:
    one = info["session_id"]
    info["same"] = sdk.get_session_info(one, directory) is not None
    try:
        info["messages"] = [asdict(message) for message in sdk.get_session_messages(one, directory)]
    except UnicodeDecodeError:
        info["messages"] = "UnicodeDecodeError"
    info["agents"] = {
        agent: [asdict(message) for message in sdk.get_subagent_messages(one, agent, directory)]
        for agent in sdk.list_subagents(one, directory)
    }
for name, arguments in job["changes"]:
    result = getattr(sdk, name)(*arguments)
    found[name] = getattr(result, "session_id", None)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def sdk_python() -> str:
    python = os.environ.get("BENCH_SDK_PYTHON", sys.executable)
    try:
        subprocess.run([python, "-c", "import claude_agent_sdk"], capture_output=True, check=True, timeout=100)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"{python} has no claude_agent_sdk; BENCH_SDK_PYTHON names a Python that has it")
    return python


class Both:
    """Both libraries on one configuration folder."""

    def __init__(self, python: str, config: Path) -> None:
        self.python, self.config = python, config

    def sdk(self, directory: Path | None = None, *changes: tuple[str, list[Any]], **page: int) -> dict[str, Any]:
        job = {"directory": directory and str(directory), "page": page, "changes": changes}
        done = subprocess.run(
            [self.python, "-c", ASK],
            input=json.dumps(job),
            env={**os.environ, "CLAUDE_CONFIG_DIR": str(self.config)},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    def ours(self, directory: Path | None = None, **page: int) -> list[client.SessionInfo]:
        return client.list_sessions(directory, config_dir=self.config, **page)

    def compare(self, directory: Path | None = None, **page: int) -> int:
        """Everything that both read; how many sessions there were."""
        theirs, ours = self.sdk(directory, **page)["infos"], self.ours(directory, **page)
        assert [shown(info) for info in ours] == [{name: info[name] for name in FIELDS} for info in theirs]
        for info, their in zip(ours, theirs, strict=True):
            one = info.session_id
            where: dict[str, Any] = {"directory": directory, "config_dir": self.config}
            assert abs(info.last_modified - their["last_modified"]) <= 1
            assert (client.get_session(one, **where) is not None) == their["same"]
            assert [plain(message) for message in client.get_messages(one, **where)] == their["messages"]
            assert client.list_subagents(one, **where) == list(their["agents"])
            for agent, messages in their["agents"].items():
                ours_of_it = client.get_subagent_messages(one, agent, **where)
                assert [plain(message) for message in ours_of_it] == messages
        return len(ours)


def shown(info: client.SessionInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in FIELDS}


def plain(message: client.SessionMessage) -> dict[str, Any]:
    names = ["type", "uuid", "session_id", "message", "parent_tool_use_id", "parent_agent_id"]
    return {name: getattr(message, name) for name in names}


@pytest.fixture
def both(sdk_python: str, tmp_path: Path) -> Both:
    both = Both(sdk_python, tmp_path / "config")
    (both.config / "projects").mkdir(parents=True)
    return both


def put(both: Both, lines: list[Any], project: str = "-p", time: float | None = None) -> str:
    """Write a transcript; entries or raw lines. `time`: of its last change."""
    folder = both.config / "projects" / project
    folder.mkdir(exist_ok=True)
    session_id = str(uuid.uuid4())
    path = folder / f"{session_id}.jsonl"
    raw = [line if isinstance(line, bytes) else compact(line) for line in lines]
    path.write_bytes(b"\n".join(raw) + b"\n")
    if time is not None:
        os.utime(path, (time, time))
    return session_id


def compact(entry: Any) -> bytes:
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode()


def said(text: Any, kind: str = "user", **fields: Any) -> dict[str, Any]:
    message = {"role": kind, "content": text}
    return {"parentUuid": None, "type": kind, "uuid": str(uuid.uuid4()), "message": message, **fields}


# --- the same


def test_what_the_cli_writes(cli: RealCLI, sdk_python: str) -> None:
    """A folder full of the CLI's own: tools, parallel calls, a subagent, resumes, forks, titles, tags."""
    calls = bash("echo a") + bash("echo b")
    agent = tool("Agent", description="d", prompt="look", subagent_type="general-purpose", run_in_background=False)
    first = cli.ask(f"one {calls}[[then]][[text: yes]]", allowed_tools=["Bash"]).session_id
    cli.ask(f"two {agent}[[then]][[text: done]]", resume=first)
    cli.ask("three", resume=first)
    cli.ask("four", resume=first, fork_session=True)
    cli.ask("five", name="named by the CLI")
    client.rename_session(first, "Renamed", config_dir=cli.config_dir)
    client.tag_session(first, "tagged", config_dir=cli.config_dir)
    client.fork_session(first, config_dir=cli.config_dir)
    other = cli.root / "a.b c"
    other.mkdir()
    cli.ask("six", cwd=other)
    both = Both(sdk_python, cli.config_dir)
    assert both.compare() == 5
    assert both.compare(cli.cwd) == 4
    assert both.compare(other) == 1
    assert both.compare(cli.cwd, limit=2, offset=1) == 2


def test_the_recorded_sessions(both: Both) -> None:
    """The one with parallel calls, a subagent and two resumes."""
    shutil.copytree(DATA, both.config / "projects", dirs_exist_ok=True)
    (both.config / "projects" / "-home-user-project" / f"{COMPACTED}.jsonl").unlink()
    assert both.compare() == 1


TIME = "2026-01-02T03:04:05.678Z"
CONTENTS: list[list[Any]] = [
    [said("p"), {"type": "custom-title", "customTitle": "t"}, {"type": "ai-title", "aiTitle": "a"}],
    [said("p"), {"type": "ai-title", "aiTitle": "a"}, {"type": "last-prompt", "lastPrompt": "l"}],
    [said("p"), {"type": "last-prompt", "lastPrompt": "l"}, {"type": "summary", "summary": "s"}],
    [{"type": "summary", "summary": "s"}],
    [said("<command-name>/x</command-name>")],
    [said("note", isMeta=True), said("<local-command-stdout>x</local-command-stdout>"), said("real\ntext")],
    [said([{"type": "text", "text": "[Request interrupted by user]"}]), said("x" * 300)],
    [said("p", cwd="/a", gitBranch="main"), said("q", cwd="/b", gitBranch="next", timestamp=TIME)],
    [said("p"), {"type": "tag", "tag": "a"}, {"type": "tag", "tag": ""}],
    [said("p"), {"type": "tag", "tag": "a"}, {"type": "tag", "tag": "\u00e9"}],
    [said("p", isSidechain=True), said("q")],
    [{"type": "mode"}],
    [b"{damaged", said("p"), b"[]", b'{"type":"user","mess'],
    [said("first"), *[said("x" * 500, kind="assistant") for _ in range(400)], {"type": "tag", "tag": "late"}],
]


def test_made_sessions(both: Both) -> None:
    """Titles, prompts, tags, sidechains, damaged lines and large files."""
    for number, lines in enumerate(CONTENTS):
        put(both, lines, f"-p{number % 3}", time=1_700_000_000 + number)
    assert both.compare() == len(CONTENTS) - 2
    assert both.compare(limit=3, offset=2) == 3


def test_made_trees(both: Both) -> None:
    """Conversations that branch at random, with parallel calls, notes and sidechains."""
    for seed in range(60):
        put(both, tree(random.Random(seed)), time=1_700_000_000 + seed)
    assert both.compare() == 60


def tree(dice: random.Random) -> list[dict[str, Any]]:
    """Some turns, each on one of the latest entries; every call is answered once."""
    entries: list[dict[str, Any]] = [said("begin")]
    for number in range(dice.randint(3, 25)):
        parent = dice.choice(entries[-3:])["uuid"] if dice.random() < 0.3 else entries[-1]["uuid"]
        time = f"2026-01-01T00:{number:02}:{dice.randint(0, 59):02}.000Z"
        kind = dice.choice(["user", "assistant", "attachment", "calls", "calls", "meta", "aside"])
        writer = "assistant" if kind == "assistant" else "user"
        made = said(f"{kind} {number}", writer, parentUuid=parent, timestamp=time)
        if kind == "calls":
            entries += parallel(dice, parent, number)
        elif kind == "attachment":
            entries.append({"type": kind, "uuid": str(uuid.uuid4()), "parentUuid": parent, "timestamp": time})
        else:
            flags = {"meta": {"isMeta": True}, "aside": {"isSidechain": True}}.get(kind, {})
            entries.append({**made, **flags})
    return entries


def parallel(dice: random.Random, parent: str, number: int) -> list[dict[str, Any]]:
    calls, results = [], []
    for index in range(dice.randint(1, 4)):
        time = f"2026-01-01T00:{number:02}:{dice.randint(0, 59):02}.{index:03}Z"
        call = said([{"type": "tool_use", "id": f"t{number}-{index}"}], "assistant", parentUuid=parent, timestamp=time)
        call["message"]["id"] = f"m{number}"
        parent = call["uuid"]
        block = {"type": "tool_result", "tool_use_id": f"t{number}-{index}", "content": "x"}
        results.append(said([block], parentUuid=parent, timestamp=time.replace("01-01", "01-02")))
        calls.append(call)
    dice.shuffle(results)
    return calls + results


def test_what_each_changes_the_other_reads(both: Both) -> None:
    """Titles, tags and forks, both ways."""
    folder = both.config / "projects" / "-home-user-project"
    shutil.copytree(DATA / "-home-user-project", folder)
    (folder / f"{COMPACTED}.jsonl").unlink()
    theirs = both.sdk(
        None,
        ("rename_session", [PARALLEL, "by the SDK"]),
        ("tag_session", [PARALLEL, "sdk"]),
        ("fork_session", [PARALLEL]),
    )["fork_session"]
    info = client.get_session(PARALLEL, config_dir=both.config)
    assert info is not None
    assert (info.summary, info.tag) == ("by the SDK", "sdk")
    client.rename_session(PARALLEL, "by us", config_dir=both.config)
    ours = client.fork_session(PARALLEL, config_dir=both.config)
    assert both.compare() == 3
    made, expected = ([without_new(line) for line in lines(folder / f"{name}.jsonl")] for name in (ours, theirs))
    # Ours says too with which branch the CLI is to go on: of turns that overlapped it is not that of the last line.
    assert [line["type"] for line in made if line["type"] not in {line["type"] for line in expected}] == ["last-prompt"]
    assert [line for line in made if line["type"] != "last-prompt"] == expected


def without_new(entry: dict[str, Any]) -> dict[str, Any]:
    """Of a copied entry, what is the same in every copy. (The SDK writes a second parent of None into each.)"""
    new = {"uuid", "parentUuid", "sessionId", "timestamp", "customTitle"}
    kept = {name: value for name, value in entry.items() if name not in new}
    return {name: value for name, value in kept.items() if (name, value) != ("logicalParentUuid", None)}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


# --- what we do otherwise, each with the reason


def infos(both: Both, directory: Path | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the SDK and what we list, by id."""
    theirs, ours = both.sdk(directory)["infos"], both.ours(directory)
    return {info["session_id"]: info for info in theirs}, {info.session_id: info for info in ours}


def conversations(both: Both, session_id: str) -> tuple[list[str], list[str]]:
    """The uuids of a conversation as the SDK and as we show it."""
    theirs = infos(both)[0][session_id]["messages"]
    ours = client.get_messages(session_id, config_dir=both.config)
    return [message["uuid"] for message in theirs], [message.uuid for message in ours]


@pytest.mark.parametrize("name", ["\U0001f680", "e\u0301"], ids=["emoji", "decomposed"])
def test_names_of_folders(both: Both, tmp_path: Path, name: str) -> None:
    """The CLI counts UTF-16 units and composes nothing (see test_real_transcripts.py); the SDK finds nothing."""
    directory = tmp_path / name
    directory.mkdir()
    session_id = put(both, [said("p")], project_key(str(directory.resolve())))
    assert [list(found) for found in infos(both, directory)] == [[], [session_id]]


def test_folders_with_another_hash(both: Both, tmp_path: Path) -> None:
    """Two long directories with the same beginning: ours are told apart by what their sessions say."""
    long = tmp_path / ("x" * 200)
    key = project_key(str(long / "one"))[:201]
    mine, yours = (put(both, [said("p", cwd=str(long / name))], key + name) for name in ("one", "two"))
    ours = [list(infos(both, long / name)[1]) for name in ("one", "two")]
    theirs = [list(infos(both, long / name)[0]) for name in ("one", "two")]
    assert ours == [[mine], [yours]]
    assert theirs[0] == theirs[1]


def test_fields_inside_of_others(both: Both) -> None:
    """A field counts at the top of an entry; the SDK takes a tool's input for a title."""
    call = said([{"type": "tool_use", "id": "t", "input": {"customTitle": "no"}}], "assistant")
    session_id = put(both, [said("p"), call])
    theirs, ours = (found[session_id] for found in infos(both))
    assert (theirs["custom_title"], ours.custom_title) == ("no", None)


def test_json_that_is_written_otherwise(both: Both) -> None:
    """Another order of fields, or white space, is the same JSON; the SDK looks for the bytes."""
    session_id = put(both, [said("p"), {"sessionId": "", "type": "tag", "tag": "t"}])
    theirs, ours = (found[session_id] for found in infos(both))
    assert (theirs["tag"], ours.tag) == (None, "t")


def test_turns_at_the_same_time(both: Both) -> None:
    """The CLI goes on with the turn that it noted last (test_real_transcripts.py); the SDK shows the last line's."""
    first = said("first")
    one, two = (said(name, parentUuid=first["uuid"]) for name in ("one", "two"))
    session_id = put(both, [first, one, two, {"type": "last-prompt", "leafUuid": one["uuid"]}])
    theirs, ours = conversations(both, session_id)
    assert (theirs, ours) == ([first["uuid"], two["uuid"]], [first["uuid"], one["uuid"]])


def test_tags_far_from_the_end(both: Both) -> None:
    """A tag in the first 64 KiB counts if there is none in the last; the SDK looks at the end alone."""
    more = [said("x" * 1000, "assistant") for _ in range(200)]
    session_id = put(both, [said("p"), {"type": "tag", "tag": "t"}, *more])
    theirs, ours = (found[session_id] for found in infos(both))
    assert (theirs["tag"], ours.tag) == (None, "t")


def test_titles_that_were_taken_away(both: Both) -> None:
    """The latest title is none; the SDK shows the one of the file's beginning again."""
    more = [said("x" * 1000, "assistant") for _ in range(200)]
    title = {"type": "custom-title", "customTitle": "t"}
    session_id = put(both, [said("p"), title, *more, {**title, "customTitle": ""}])
    theirs, ours = (found[session_id] for found in infos(both))
    assert (theirs["custom_title"], ours.custom_title) == ("t", None)


def test_what_a_compaction_kept(both: Both) -> None:
    """The model sees it (see test_real_transcripts.py), so it is shown; the SDK leaves it out."""
    shutil.copytree(DATA, both.config / "projects", dirs_exist_ok=True)
    theirs, ours = conversations(both, COMPACTED)
    assert [uuid for uuid in ours if uuid not in theirs] == ["557a1666-6bf2-4d07-a2f0-a6fb875df8af"]
    assert [uuid for uuid in ours if uuid in theirs] == theirs


def test_calls_that_were_answered_twice(both: Both) -> None:
    """On one branch a call has one answer; the SDK adds those of other branches."""
    begin = said("p")
    call = said([{"type": "tool_use", "id": "t"}], "assistant", parentUuid=begin["uuid"])
    call["message"]["id"] = "m"
    old, new = (said([{"type": "tool_result", "tool_use_id": "t"}], parentUuid=call["uuid"]) for _ in range(2))
    session_id = put(both, [begin, call, old, new])
    theirs, ours = conversations(both, session_id)
    assert ours == [entry["uuid"] for entry in (begin, call, new)]
    assert old["uuid"] in theirs


def test_parallel_calls_of_subagents(both: Both) -> None:
    """They are put back as those of the session are; the SDK leaves them out."""
    dice = random.Random(0)
    begin = said("p", isSidechain=True)
    calls: list[dict[str, Any]] = []
    while len(calls) < 6:  # three calls and their results
        calls = parallel(dice, begin["uuid"], 1)
    entries = [{**entry, "isSidechain": True, "agentId": "a"} for entry in calls]
    session_id = put(both, [said("p")])
    folder = both.config / "projects" / "-p" / session_id / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-a.jsonl").write_bytes(b"\n".join(map(compact, [begin, *entries])))
    ours = client.get_subagent_messages(session_id, "a", config_dir=both.config)
    theirs = infos(both)[0][session_id]["agents"]["a"]
    assert len(ours) == 1 + len(entries) > len(theirs)


def test_bytes_that_are_no_text(both: Both) -> None:
    """They are replaced; the SDK reads no message of such a file."""
    session_id = put(both, [said("p"), b"\xff"])
    assert infos(both)[0][session_id]["messages"] == "UnicodeDecodeError"
    assert len(client.get_messages(session_id, config_dir=both.config)) == 1


def test_circles(both: Both) -> None:
    """Entries that are each other's parents are shown; the SDK finds no end, so nothing."""
    first, second = said("p"), said("q")
    first["parentUuid"], second["parentUuid"] = second["uuid"], first["uuid"]
    theirs, ours = conversations(both, put(both, [first, second]))
    assert (theirs, ours) == ([], [first["uuid"], second["uuid"]])


def test_copies_of_a_session(both: Both) -> None:
    """The newest is listed and read; the SDK lists that one and reads the first that it meets."""
    session_id = put(both, [said("old")], "-a", 1_700_000_000)
    for project in ("-b", "-0"):
        folder = both.config / "projects" / project
        folder.mkdir()
        (folder / f"{session_id}.jsonl").write_bytes(compact(said(project)))
    os.utime(both.config / "projects" / "-b" / f"{session_id}.jsonl", (1_700_000_001, 1_700_000_001))
    (info,) = both.ours()
    assert info.summary == client.get_messages(session_id, config_dir=both.config)[0].text == "-0"


def test_pages_of_nothing_and_missing_sessions(both: Both) -> None:
    """limit=0 is nothing, where the SDK has no limit; and what is not there is an error, not an empty list."""
    put(both, [said("p")])
    assert len(both.sdk(limit=0)["infos"]) == 1
    assert both.ours(limit=0) == []
    with pytest.raises(client.SessionNotFoundError):
        client.get_messages(PARALLEL, config_dir=both.config)
    with pytest.raises(ValueError, match="UUID"):
        client.get_session("x", config_dir=both.config)
