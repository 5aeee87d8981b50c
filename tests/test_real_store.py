"""The real CLI and a store: the mirror is the transcript, and any machine goes on with it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hosts import Host
from mirror_stores import Broken, FileStore, Recorder, fail
from real_cli import RealCLI, bash, eventually, tool

from claude_cli_client import (
    MIRROR_ERROR,
    Client,
    MemoryStore,
    SessionKey,
    StaleSessionError,
    _mirror,
    fork_session,
    get_messages,
    rename_session,
)
from claude_cli_client._config_copy import copy_config, is_own
from claude_cli_client._project_key import project_key

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(90)]

LOCAL = ("api-request", "api-request-shape", "api-request-blob")
AGENT = tool(
    "Agent",
    description="Look",
    prompt=f"look {bash('echo inner')}[[then]][[text: inner answer]]",
    subagent_type="general-purpose",
)


@pytest.fixture(autouse=True)
def private_files(cli: RealCLI, monkeypatch):
    """What the library makes for a run is below the test's own folder, where `cli` looks for what is left."""
    monkeypatch.setenv("TMPDIR", str(cli.ours))


def elsewhere(cli: RealCLI, store: Any, name: str = "home2", **options: Any) -> Client:
    """A client on another machine: a HOME that has never seen anything."""
    home = cli.root / name
    home.mkdir(exist_ok=True)
    return cli.client(store=store, env={"HOME": str(home)}, **options)


def on_disk(path: Path) -> list[Any]:
    """The lines of a transcript, without those that are never mirrored."""
    return [entry for entry in map(json.loads, path.read_text().splitlines()) if entry["type"] not in LOCAL]


def uuids(entries: list[Any]) -> Counter[str]:
    return Counter(entry["uuid"] for entry in entries if "uuid" in entry)


def key_of(cli: RealCLI, session: str, subpath: str | None = None) -> SessionKey:
    return SessionKey(project_key(str(cli.cwd)), session, subpath)


# --- the mirror


@pytest.mark.parametrize("flush", ["batched", "eager"])
def test_the_mirror_is_the_transcript(cli: RealCLI, flush):
    """What the store has are the lines of the file, in their order, without the CLI's own records of requests."""
    store = Recorder()
    client = cli.client(store=store, store_flush=flush)
    first = client.ask(f"go {bash('echo hi')}[[then]][[text: done]]", allowed_tools=["Bash"])
    (path,) = cli.transcripts()
    assert store.entries(key_of(cli, first.session_id)) == on_disk(path)
    assert {key for key, _ in store.batches} == {key_of(cli, path.stem)}


def test_subagents(cli: RealCLI):
    """A transcript of its own for each, with what the CLI notes of it; laid out again as they were."""
    store = Recorder()
    answer = cli.client(store=store).ask(f"go {AGENT}[[then]][[text: it looked]]", allowed_tools=["Bash", "Agent"])
    (path,) = cli.config_dir.glob("projects/*/*/subagents/agent-*.jsonl")
    key = key_of(cli, answer.session_id, f"subagents/{path.stem}")
    lines = [entry for entry in store.entries(key) if entry["type"] != "agent_metadata"]
    noted = [entry for entry in store.entries(key) if entry["type"] == "agent_metadata"]
    assert lines == on_disk(path)
    meta = json.loads(path.with_suffix("").with_suffix(".meta.json").read_text())
    assert {**meta, "type": "agent_metadata"} == noted[-1]
    elsewhere(cli, store).ask("and?", resume=answer.session_id)
    assert "it looked" in str(cli.api.last().body["messages"])


def test_a_session_mirrors(cli: RealCLI):
    """Every turn is stored when its result is there, and the rest when the session is closed."""
    store = Recorder()
    with cli.client(store=store).session() as session:
        session.ask("one [[text: answer one]]")
        assert "answer one" in str(store.batches)
        session.ask("two [[text: answer two]]")
        assert "answer two" in str(store.batches)
    (path,) = cli.transcripts()
    assert store.entries(key_of(cli, path.stem)) == on_disk(path)


def test_a_cancelled_turn_is_stored(cli: RealCLI):
    """Also what the CLI writes when it is told to end."""
    store = Recorder()
    run = cli.client(store=store).run("remember 17 [[hang]]")
    cli.api.requests(1)
    run.cancel()
    list(run)
    (path,) = cli.transcripts()
    assert store.entries(key_of(cli, path.stem)) == on_disk(path)
    assert "remember 17" in str(store.batches)


@pytest.mark.parametrize("folder", ["a b.c", "e\u0301\u00e9\U0001f600", "x" * 120 + "/" + "y" * 120])
def test_odd_folders(cli: RealCLI, folder):
    """The key from the path that the CLI names is the key by which a resume looks."""
    place = cli.root / folder
    place.mkdir(parents=True)
    store = Recorder()
    first = cli.client(store=store, cwd=place).ask("remember 17")
    assert {key.project_key for key, _ in store.batches} == {project_key(str(place))}
    store.list_sessions = lambda _: []
    elsewhere(cli, store, cwd=place).ask("and?", resume=first.session_id)
    assert "remember 17" in cli.api.last().user


def test_relative_and_linked_folders(cli: RealCLI):
    """Wherever CLAUDE_CONFIG_DIR leads, and however it is written."""
    (cli.root / "config").mkdir()
    (cli.root / "link").symlink_to("config")
    for place in ("../config", str(cli.root / "link"), f"{cli.root}/work/../config/", f"{cli.root}/e\u0301"):
        store = Recorder()
        answer = cli.client(store=store, env={"CLAUDE_CONFIG_DIR": place}).ask("hi")
        assert {key for key, _ in store.batches} == {key_of(cli, answer.session_id)}


# --- resume


def test_another_machine_goes_on(cli: RealCLI):
    """The model gets the earlier messages; what is added comes back, so the first machine goes on with all of it."""
    store = Recorder()
    here, there = cli.client(store=store), elsewhere(cli, store)
    first = here.ask("my name is Ada [[text: hello Ada]]")
    second = there.ask("what is it? [[text: it is Ada]]", resume=first.session_id)
    assert second.session_id == first.session_id
    assert "my name is Ada" in cli.api.last().user
    assert "hello Ada" in str(cli.api.last().body["messages"])
    here.ask("and now?", resume=first.session_id)
    said = str(cli.api.last().body["messages"])
    assert all(part in said for part in ("my name is Ada", "hello Ada", "what is it?", "it is Ada"))
    assert set(uuids(store.entries(key_of(cli, first.session_id))).values()) == {1}
    assert list((cli.root / "home2").rglob("*.jsonl")) == []


def test_a_session_goes_on(cli: RealCLI):
    """A live session is resumed from a store, too."""
    store = Recorder()
    first = cli.client(store=store).ask("my name is Ada")
    with elsewhere(cli, store).session(resume=first.session_id) as session:
        session.ask("what is it?")
        assert "my name is Ada" in cli.api.last().user
        session.ask("and once more?")
    said = [entry["message"]["content"] for entry in store.entries(key_of(cli, first.session_id)) if "message" in entry]
    assert "what is it?" in str(said)
    assert "and once more?" in str(said)


def test_the_latest_session(cli: RealCLI):
    """`continue_conversation` asks the store."""
    store = Recorder()
    client = cli.client(store=store)
    client.ask("first of all")
    latest = client.ask("my name is Ada")
    second = elsewhere(cli, store).ask("what is it?", continue_conversation=True)
    assert second.session_id == latest.session_id
    assert "my name is Ada" in cli.api.last().user


def test_a_fork(cli: RealCLI):
    """The copy has the history in the store as well, under its own id; the parent stays as it was."""
    store = Recorder()
    first = cli.client(store=store).ask("my name is Ada")
    before = store.entries(key_of(cli, first.session_id))
    fork = elsewhere(cli, store).ask("what is it?", resume=first.session_id, fork_session=True)
    assert fork.session_id != first.session_id
    assert store.entries(key_of(cli, first.session_id)) == before
    elsewhere(cli, store, "home3").ask("once more", resume=fork.session_id)
    assert "my name is Ada" in cli.api.last().user


@pytest.mark.parametrize("way", ["conversation", "session"])
def test_a_fork_is_wholly_mirrored(cli: RealCLI, way):
    """The lines that the CLI copies, too, under their own uuids: nobody has to give the store what is missing."""
    store = Recorder()
    client = cli.client(store=store)
    chat = client.conversation()
    first = chat.ask("my name is Ada [[text: hello Ada]]").session_id
    if way == "conversation":
        copy = chat.ask("what is it?", fork_session=True).session_id
    else:
        with client.session(resume=first, fork_session=True) as session:
            copy = session.ask("what is it?").session_id
    both = uuids(store.entries(key_of(cli, copy)))
    assert set(uuids(store.entries(key_of(cli, first)))) < set(both)
    assert set(both.values()) == {1}
    run = elsewhere(cli, store).run("once more", resume=copy)
    assert MIRROR_ERROR not in [event.type for event in run]
    assert "hello Ada" in str(cli.api.last().body["messages"])


def test_a_copy_that_the_library_made_in_a_store(cli: RealCLI):
    """Goes on from its last message, not from the title behind that, which has a uuid as well."""
    store = MemoryStore()
    client = cli.client(store=store)
    copy = fork_session(client.ask("my name is Ada").session_id, cli.cwd, store=store)
    client.ask("what is it?", resume=copy)
    assert "my name is Ada" in cli.api.last().user
    messages = get_messages(copy, cli.cwd, store=store)
    assert [message.text for message in messages if message.type == "user"] == ["my name is Ada", "what is it?"]


@pytest.mark.parametrize("way", ["text", "live"])
def test_a_conversation_whose_first_turn_is_cancelled_at_once(cli: RealCLI, way):
    """With its first word the CLI has a prompt to write, and does so when it is told to end: another machine has it."""
    store = Recorder()
    options: dict[str, Any] = {"can_use_tool": lambda request: True} if way == "live" else {}
    chat = cli.client(store=store).conversation(**options)
    run = chat.run("my name is Ada [[hang]]")
    next(event for event in run if event.type == "system")
    run.cancel()
    list(run)
    elsewhere(cli, store).conversation(chat.to_dict()).ask("what is it?")
    assert "my name is Ada" in cli.api.last().user


def test_a_conversation_whose_first_prompt_is_blocked(cli: RealCLI):
    """By a hook: there is no message yet, but a session to go on with."""
    store = Recorder()
    chat = cli.client(store=store).conversation()
    list(chat.run("my name is Ada", hooks={"UserPromptSubmit": lambda call: {"decision": "block", "reason": "no"}}))
    (key,) = {key for key, _ in store.batches}
    assert elsewhere(cli, store).conversation(chat.to_dict()).ask("hi").session_id == key.session_id


def test_a_session_from_another_folder(cli: RealCLI):
    """Found by its id; it stays in its own project."""
    store = Recorder()
    first = cli.client(store=store).ask("my name is Ada")
    other = cli.root / "other"
    other.mkdir()
    elsewhere(cli, store, cwd=other).ask("what is it?", resume=first.session_id)
    assert "my name is Ada" in cli.api.last().user
    assert {key for key, _ in store.batches} == {key_of(cli, first.session_id)}


def test_a_session_that_is_in_no_store(cli: RealCLI):
    """The CLI says so, as without a store; a session of this disk alone is found by it."""
    missing = "00000000-0000-4000-8000-000000000001"
    with pytest.raises(StaleSessionError, match=rf"{missing}; neither the store \(Recorder\) nor this disk"):
        cli.client(store=Recorder()).ask("hi", resume=missing)
    local = cli.ask("my name is Ada")
    cli.client(store=Recorder()).ask("what is it?", resume=local.session_id)
    assert "my name is Ada" in cli.api.last().user


def test_a_title_from_the_store(cli: RealCLI):
    """Another machine goes on with the session by the title that it got in the store."""
    store = MemoryStore()
    first = cli.client(store=store).ask("my name is Ada")
    rename_session(first.session_id, "About Ada", store=store)
    second = elsewhere(cli, store).ask("what is it?", resume="About Ada")
    assert second.session_id == first.session_id
    assert "my name is Ada" in cli.api.last().user


def test_a_relative_home(cli: RealCLI):
    """The CLI takes it from its working directory; so do the mirror and the resume."""
    store = Recorder()
    client = cli.client(store=store, env={"HOME": os.path.relpath(cli.home, cli.cwd)})
    first = client.ask("my name is Ada")
    assert store.entries(key_of(cli, first.session_id))
    assert client.totals.not_stored == 0
    client.ask("what is it?", resume=first.session_id)
    assert "my name is Ada" in cli.api.last().user


def test_the_users_memory_goes_along(cli: RealCLI):
    """The CLI follows the links: it finds the same memory, agents, commands and skills in the copy of the folder."""
    config, copy = cli.config_dir, cli.root / "copy"
    for folder in ("agents", "commands", "skills/herons"):
        (config / folder).mkdir(parents=True)
    (config / "CLAUDE.md").write_text("Always mention the blue heron.")
    (config / "agents" / "a.md").write_text("---\nname: heron-agent\ndescription: Knows herons\n---\nYou know herons.")
    (config / "commands" / "heron-command.md").write_text("Tell of the grey heron.")
    (config / "skills" / "herons" / "SKILL.md").write_text("---\nname: herons\ndescription: The heron-skill\n---\nx")
    copy.mkdir()
    copy_config({"HOME": str(cli.home)}, str(cli.cwd), str(copy))
    client = cli.client(config_dir=copy)
    client.ask("hi", agent="heron-agent")
    body = cli.api.last()
    assert "You know herons" in body.system
    assert "blue heron" in str(body.body)
    assert "heron-skill" in str(body.body)
    client.ask("/heron-command")
    assert "grey heron" in cli.api.last().user


@pytest.mark.parametrize("place", ["top", "below"])
def test_the_memory_of_a_repository_goes_along(cli: RealCLI, place):
    """The CLI has it under the repository's top, and what a resumed turn notes there stays."""
    (cli.cwd / ".git").mkdir()
    cwd = cli.cwd if place == "top" else cli.cwd / "below"
    cwd.mkdir(exist_ok=True)
    client = cli.client(store=Recorder(), cwd=cwd)
    first = client.ask("hi")
    (named,) = set(re.findall(r"\S+/memory/", cli.api.last().system))
    memory = Path(named.strip("`."))
    assert memory == cli.config_dir / "projects" / project_key(str(cli.cwd)) / "memory"
    (memory / "MEMORY.md").write_text("- the heron is blue")
    client.ask(f"note it {bash(f'echo grey > $CLAUDE_CONFIG_DIR/projects/{memory.parent.name}/memory/more.md')}",
               resume=first.session_id, allowed_tools=["Bash"])  # fmt: skip
    assert "the heron is blue" in str(cli.api.last().body)
    assert (memory / "more.md").read_text() == "grey\n"


def test_the_memory_of_a_subagent_goes_along(cli: RealCLI):
    """That of the user (`memory: user`): the CLI finds it in a resumed turn, and what is noted there stays."""
    (cli.config_dir / "agents").mkdir(parents=True)
    (cli.config_dir / "agents" / "keeper.md").write_text(
        "---\nname: keeper\ndescription: Keeps things\nmemory: user\ntools: Read, Bash\n---\nYou are keeper."
    )
    memory = cli.config_dir / "agent-memory" / "keeper" / "MEMORY.md"
    client = cli.client(store=Recorder(), allowed_tools=["Agent", "Bash"])
    first = client.ask("hi")
    for note, known in (("HERON-1", None), ("HERON-2", "HERON-1")):
        place = '"$CLAUDE_CONFIG_DIR"/agent-memory/keeper'
        does = bash(f"mkdir -p {place}; echo {note} >> {place}/MEMORY.md")
        call = tool("Agent", description="x", prompt=f"look {does}[[then]][[text: in]]", subagent_type="keeper")
        client.ask(f"go {call}[[then]][[text: out]]", resume=first.session_id)
        assert note in memory.read_text()
        asked = [request.system for request in cli.api.requests() if "You are keeper" in request.system]
        assert known is None or known in asked[-1]


@pytest.mark.parametrize("scope", ["user", "local"])
def test_memories_are_for_the_file_tools(cli: RealCLI, scope):
    """In a resumed turn, too, under the same name: those of a subagent; without a local one those of the project."""
    (cli.cwd / ".git").mkdir()
    (cli.cwd / "below").mkdir()
    (cli.config_dir / "agents").mkdir(parents=True)
    (cli.config_dir / "agents" / "keeper.md").write_text(
        f"---\nname: keeper\ndescription: Keeps\nmemory: {scope}\ntools: Read, Write\n---\nYou are keeper."
    )
    client = cli.client(store=Recorder(), cwd=cli.cwd / "below", allowed_tools=["Agent"])
    at = {"user": cli.config_dir / "agent-memory", "local": cli.cwd / "below" / ".claude" / "agent-memory-local"}[scope]
    project = cli.config_dir / "projects" / project_key(str(cli.cwd)) / "memory"
    note = tool("Write", file_path=str(at / "keeper" / "n.md"), content="HERON-1")
    call = tool("Agent", description="x", prompt=f"look {note}[[then]][[text: in]]", subagent_type="keeper")
    first = client.ask(f"go {tool('Agent', description='x', prompt='look [[text: in]]', subagent_type='keeper')}")
    own = tool("Write", file_path=str(project / "n.md"), content="HERON-2")
    client.ask(f"go {call}{own}[[then]][[text: out]]", resume=first.session_id)
    assert (at / "keeper" / "n.md").read_text() == "HERON-1"
    assert scope == "local" or (project / "n.md").read_text() == "HERON-2"


DENIES = "#!/bin/sh\necho denied >&2\nexit 2\n"


@pytest.mark.parametrize(
    "command", ["$CLAUDE_CONFIG_DIR/hooks/a.sh", '"${CLAUDE_CONFIG_DIR:-$HOME/.claude}"/hooks/a.sh']
)
def test_a_hook_below_the_configuration_folder(cli: RealCLI, command):
    """What it denies in the first turn, it denies in a resumed one."""
    hook, ran = cli.root / "conf" / "hooks" / "a.sh", cli.root / "ran"
    hook.parent.mkdir(parents=True)
    hook.write_text(DENIES)
    hook.chmod(0o755)
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": command}]}]}
    (cli.root / "conf" / "settings.json").write_text(json.dumps({"hooks": hooks}))
    client = cli.client(store=MemoryStore(), config_dir=cli.root / "conf", allowed_tools=["Bash"])
    prompt = f"x {bash(f'touch {ran}')}[[then]][[text: k]]"
    first = client.ask(prompt)
    client.ask(prompt, resume=first.session_id)
    assert [("denied" in text) for text in cli.api.last().results] == [True, True]
    assert not ran.exists()


def asked_twice(cli: RealCLI, conf: Path, rules: dict[str, list[str]], calls: list[str], **options: Any) -> list[bool]:
    """Which calls saw what is in `conf`, in a first and a resumed turn with these rules of the user's."""
    for name in ("no", "sub"):
        (conf / name).mkdir(parents=True)
        (conf / name / "x.txt").write_text("HERON-17")
    (conf / "settings.json").write_text(json.dumps({"permissions": rules}))
    client = cli.client(store=MemoryStore(), config_dir=conf, **options)
    prompt = "[[then]]".join([*calls, "[[text: k]]"])
    first = client.ask(prompt)
    client.ask(prompt, resume=first.session_id)
    return ["HERON-17" in text for text in cli.api.last().results]


@pytest.mark.parametrize("folder", ["conf", "c [o] (n)f", "c\\of"])
def test_what_is_denied_below_the_configuration_folder(cli: RealCLI, folder):
    """`Read(/x)` in the user's settings denies the same file in a resumed turn."""
    conf = cli.root / folder
    reads = [tool("Read", file_path=f"{conf}/{name}/x.txt") for name in ("no", "sub")]
    deny = ["Read(/no/x.txt)", "Read(/s*/**)"]
    calls = [*reads, bash(f"cat '{conf}/sub/x.txt'")]
    assert asked_twice(cli, conf, {"deny": deny}, calls, allowed_tools=["Read", "Bash"]) == [False] * 6


@pytest.mark.parametrize("folder", ["conf", "c [o] (n)f"])
def test_what_is_allowed_below_the_configuration_folder(cli: RealCLI, folder):
    """`Read(/x)` in the user's settings allows the same file in a resumed turn."""
    conf = cli.root / folder
    reads = [tool("Read", file_path=f"{conf}/{name}/x.txt") for name in ("no", "sub")]
    assert asked_twice(cli, conf, {"allow": ["Read(/sub/**)"]}, reads) == [False, True] * 2


def reads_of_the_copies(cli: RealCLI, permissions: Any, **options: Any) -> list[tuple[bool, bool]]:
    """Of each try to read a login or settings in a resumed turn: whether it was denied, and whether it had success."""
    secret = {"claudeAiOauth": {"accessToken": "HERON-17"}}
    cli.config_dir.mkdir(parents=True)
    (cli.config_dir / ".credentials.json").write_text(json.dumps(secret))
    settings = {"permissions": permissions, "env": {"HERON": "HERON-17"}}
    (cli.config_dir / "settings.json").write_text(json.dumps(settings))
    client = cli.client(store=MemoryStore(), allowed_tools=["Read", "Bash"], **options)
    first = client.ask("hi")
    shown = cli.root / "shown"
    with client.session(resume=first.session_id) as session:
        session.ask(f"where {bash(f'echo $CLAUDE_CONFIG_DIR > {shown}')}[[then]][[text: k]]")
        copy = Path(shown.read_text().strip())
        names = [".credentials.json", "settings.json"]
        assert [name for name in names if "HERON-17" in (copy / name).read_text()] == names
        reads = (tool("Read", file_path=str(copy / name)) for name in names)
        calls = [*reads, bash(f"cat {shlex.quote(str(copy))}/.credentials.json")]
        session.ask("[[then]]".join([*calls, "[[text: k]]"]))
    results = cli.api.last().results[-len(calls) :]
    return [("denied" in text, "HERON-17" in text) for text in results]


@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
@pytest.mark.parametrize("sources", [None, ["user"], ["project"], []], ids=str)
def test_the_copy_of_a_login_is_not_for_the_model(cli: RealCLI, mode, sources):
    """Nor that of the settings, whichever the CLI reads: where the user denies the folder in HOME, that would not
    speak of the copy."""
    rules = {"deny": ["Read(~/.claude/**)"]}
    tried = reads_of_the_copies(cli, rules, permission_mode=mode, setting_sources=sources)
    assert tried == [(True, False)] * 3


def test_the_copy_of_a_login_beside_settings_that_the_cli_drops(cli: RealCLI):
    """Is not for the model either."""
    assert reads_of_the_copies(cli, None, disallowed_tools=["Read(~/.claude/**)"]) == [(True, False)] * 3


@pytest.mark.parametrize("rules", [[], ["Read(~/.claude/**)"]], ids=str)
def test_a_resumed_turn_may_run_what_the_first_one_may(cli: RealCLI, rules):
    """With a rule for reading the CLI refuses what it cannot tell to read nothing: so there is none of ours alone."""
    (cli.cwd / "sub").mkdir()
    (cli.cwd / "sub" / "b").write_text("HERON")
    client = cli.client(store=MemoryStore(), disallowed_tools=rules)
    command = f"go {bash('cd sub && cat b')}[[then]][[text: k]]"
    first = client.ask(command)
    said = cli.api.last().results[-1]
    client.ask(command, resume=first.session_id)
    assert (cli.api.last().results[-1] == said, said == "HERON") == (True, not rules)


@pytest.mark.parametrize("folder", ["a b,c", "a) b,(c", "a[b]*?{c}!#", "a\\b", "\u00e9\U0001f9a9"])
def test_the_copy_of_a_login_in_an_odd_folder(cli: RealCLI, monkeypatch, folder):
    """Neither a rule nor the list of them is broken by the name of the folder for temporary files."""
    (cli.ours.parent / "odd" / folder).mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(cli.ours.parent / "odd" / folder))
    rules = ["Read(~/.claude/**)"]
    assert reads_of_the_copies(cli, {}, setting_sources=[], disallowed_tools=rules) == [(True, False)] * 3


@pytest.mark.parametrize("sources", [None, []], ids=str)
def test_the_copy_of_a_login_is_not_for_the_sandbox(cli: RealCLI, sources):
    """Which takes no rules of the command line: it is told the paths."""
    path = seeming_sandbox(cli)
    client = cli.client(store=MemoryStore(), sandbox={"enabled": True}, setting_sources=sources, env={"PATH": path})
    first = client.ask("hi")
    assert "/.credentials.json" not in str(cli.api.last().body)  # the CLI describes its sandbox to the model
    client.ask("hi", resume=first.session_id)
    assert "/config/.credentials.json" in str(cli.api.last().body)


def seeming_sandbox(cli: RealCLI) -> str:
    """A PATH with which the CLI takes its sandbox for one that may work."""
    for name in ("bwrap", "socat", "rg"):
        (cli.root / "bin").mkdir(exist_ok=True)
        (cli.root / "bin" / name).write_text("#!/bin/sh\n")
        (cli.root / "bin" / name).chmod(0o755)
    return f"{cli.root / 'bin'}:{os.environ['PATH']}"


def test_the_places_of_the_sandbox(cli: RealCLI):
    """A path of the user's settings that is relative is one below their folder, also in the copy of it."""
    path = seeming_sandbox(cli)
    conf, copy = cli.root / "conf", cli.root / "copy"
    conf.mkdir()
    copy.mkdir()
    sandbox = {"enabled": True, "filesystem": {"denyRead": ["secrets"], "allowWrite": ["./notes"]}}
    (conf / "settings.json").write_text(json.dumps({"sandbox": sandbox}))
    copy_config({"CLAUDE_CONFIG_DIR": str(conf)}, str(cli.cwd), str(copy))
    for config in (conf, copy):
        cli.client(config_dir=config, env={"PATH": path}).ask("hi")
        told = str(cli.api.last().body)  # the CLI describes its sandbox to the model
        assert [f"{conf}/{name}" in told for name in ("secrets", "notes")] == [True, True]


def test_a_login_and_a_workflow_below_the_configuration_folder(cli: RealCLI):
    """A script that says the key, and a program of the user's, are found in a resumed turn."""
    conf = cli.root / "conf"
    (conf / "workflows").mkdir(parents=True)
    (conf / "key.sh").write_text("#!/bin/sh\necho sk-of-the-script\n")
    (conf / "key.sh").chmod(0o755)
    (conf / "settings.json").write_text(json.dumps({"apiKeyHelper": "$CLAUDE_CONFIG_DIR/key.sh"}))
    (conf / "workflows" / "heron.js").write_text(
        "export const meta = {name: 'heron', description: 'herons', phases: []}\nreturn 'x'\n"
    )
    client = cli.client(store=MemoryStore(), config_dir=conf, allowed_tools=["Workflow"], env={"ANTHROPIC_API_KEY": ""})
    prompt = f"x {tool('Workflow', name='heron')}[[then]][[text: k]]"
    first = client.ask(prompt)
    client.ask(prompt, resume=first.session_id)
    assert {request.headers.get("x-api-key") for request in cli.api.requests()} == {"sk-of-the-script"}
    assert [("not found" in text) for text in cli.api.last().results] == [False, False]


def test_what_the_cli_writes_in_its_folder_is_known(cli: RealCLI):
    """Nothing of it is linked but what is to last: a name that is new here must be thought about."""
    agent = f"{AGENT}[[then]]{tool('TaskCreate', subject='s', description='d')}[[then]][[text: it looked]]"
    first = cli.ask(f"go {agent}", allowed_tools=["Bash", "Agent"])
    cli.ask("again", resume=first.session_id, enable_file_checkpointing=True)
    names = {path.name for path in cli.config_dir.iterdir()}
    assert "projects" in names
    assert [name for name in names if not is_own(name)] == []


def test_isolated_sessions_can_be_resumed(cli: RealCLI):
    """Their folder goes with the run, their transcript is in the store."""
    store = Recorder()
    client = cli.client(store=store, isolated=True)
    first = client.ask("my name is Ada")
    client.ask("what is it?", resume=first.session_id)
    assert "my name is Ada" in cli.api.last().user


# --- failures


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(_mirror, "PAUSES", (0.0, 0.0))


def test_a_store_that_fails_in_every_call(cli: RealCLI, impatient):
    """The answer is the answer, the event says what is missing, and the local copy can be resumed."""
    run = cli.client(store=Broken(fail(OSError("no")))).run("my name is Ada [[text: hello]]")
    events = list(run)
    assert run.result().result == "hello"
    (event,) = [event for event in events if event.type == MIRROR_ERROR]
    (path,) = cli.transcripts()
    assert event.data["path"] == str(path)
    assert event.data["entries"] == len(on_disk(path))
    cli.ask("what is it?", resume=event.session_id)
    assert "my name is Ada" in cli.api.last().user


def test_a_store_that_hangs(cli: RealCLI, graces, monkeypatch):
    """In a turn and in a session: the answer comes, in bounded time."""
    graces(store=0.2)
    release = threading.Event()
    client = cli.client(store=Broken(lambda _: release.wait(60)))
    assert client.ask("hi [[text: hello]]").result == "hello"
    with client.session() as session:
        assert session.ask("hi [[text: hello]]").result == "hello"
        assert session.ask("hi [[text: again]]").result == "again"
    release.set()


def test_what_the_store_lacks_is_kept_elsewhere(cli: RealCLI, impatient):
    """Of a session that was resumed from the store the only copy stays, and can be resumed where it is."""
    store = Recorder()
    first = cli.client(store=store).ask("my name is Ada")
    broken = Broken(fail(OSError("no")))
    broken.batches, broken.mtimes = store.batches, store.mtimes
    *_, event, _ = elsewhere(cli, broken).run("I live in London", resume=first.session_id)
    kept = Path(event.data["path"]).parents[2]
    assert kept.parent == cli.ours
    cli.client(config_dir=kept).ask("where?", resume=first.session_id)
    assert "my name is Ada" in cli.api.last().user
    assert "I live in London" in cli.api.last().user
    shutil.rmtree(kept)


def test_an_outage_in_the_middle_of_a_resumed_turn(cli: RealCLI, impatient):
    """What the store did not take comes with the result, behind what it took: the history is whole, in its order."""
    store = Broken(lambda number: None)
    session = cli.client(store=store).ask("my name is Ada").session_id
    store.calls, store.what = 0, fail(OSError("no"), 3)
    prompt = f"I live in London {bash('echo paid the bill')}[[then]][[text: done]]"
    events = list(cli.client(store=store).run(prompt, resume=session, allowed_tools=["Bash"]))
    assert [event.type for event in events if event.type == MIRROR_ERROR] == []
    assert set(uuids(store.entries(key_of(cli, session))).values()) == {1}
    elsewhere(cli, store).ask("and?", resume=session)
    last = cli.api.last()
    assert [answer.strip() for answer in last.results] == ["paid the bill"]
    assert last.user.index("my name is Ada") < last.user.index("I live in London") < last.user.rindex("and?")


HOST = """
from mirror_stores import FileStore
store = FileStore(os.environ["STORE"])
options = {options!r}
client = Client(**options, store=store)
run = client.run({prompt!r}, allowed_tools=["Bash"])
for event in run:
    if event.type == "tool_use":
        say("tool")
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("begun", [True, False])
def test_a_host_that_dies_in_the_middle_of_a_turn(cli: RealCLI, begun, how):
    """What was mirrored is there, once, though no file stays; the session goes on from the store, here and there."""
    gate = cli.gate()
    place = cli.root / "store.jsonl"
    known = "my name is Ada"
    more = {"resume": cli.client(store=FileStore(place)).ask(known).session_id} if begun else {"isolated": True}
    options = {"cli_path": cli.path, "cwd": str(cli.cwd), "env": cli.env, **more}
    calls = f"{bash('echo paid the bill')}[[then]]{bash(f'echo here > {gate.path}; sleep 60')}"
    prompt = f"{'' if begun else known} I live in London {calls}[[then]][[text: never]]"
    source = HOST.format(options=options, prompt=prompt)
    env = {"STORE": str(place), "TMPDIR": str(cli.ours)}
    tests = f"import sys; sys.path.append({str(Path(__file__).parent)!r})\n"
    with Host(source, env=env, first=tests) as host:
        assert gate.wait().strip() == "here"
        assert eventually(lambda: place.exists() and '"tool_use_id"' in place.read_text(), 20)
        os.kill(host.pid, how)
        host.process.wait()
    assert eventually(lambda: not cli.processes(), 10)
    assert eventually(lambda: not list(cli.ours.iterdir()), 10)
    store = FileStore(place)
    (row,) = store.list_sessions(None)
    session = row["session_id"]
    key = key_of(cli, session)
    assert set(uuids(store.entries(key)).values()) == {1}
    for client in (elsewhere(cli, store), cli.client(store=store)):
        answer = client.ask("who am I, and where? [[text: Ada in London]]", resume=session)
        assert answer.session_id == session
        said = str(cli.api.last().body["messages"])
        for word in ("my name is Ada", "I live in London", "paid the bill"):
            assert word in said
    assert set(uuids(store.entries(key)).values()) == {1}


def test_the_example(cli: RealCLI):
    """`examples/resume_elsewhere.py`, as a person runs it: the second machine's model gets the first one's words."""
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, str(root / "examples" / "resume_elsewhere.py"), "remember 17 [[text: a]]", "and? [[text: b]]"],
        env={
            "PATH": os.environ["PATH"], **cli.env, "TMPDIR": str(cli.tmp), "PYTHONPATH": str(root),
            "CLAUDE_CLI_PATH": cli.path, "CLAUDE_CLI_CLIENT_GUARD": "0",
        },
        cwd=cli.cwd, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("here:  a\nthere: b\nhere:  ")
    assert all("remember 17" in request.user for request in cli.api.requests())
    assert "and?" in cli.api.last().user


@pytest.mark.parametrize("way", ["id", "latest", "title"])
def test_a_session_that_was_begun_without_a_store(cli: RealCLI, way: str):
    """Its history goes to the store with the first turn that has one: the next one, elsewhere, knows all of it."""
    store = Recorder()
    title = "The session of Ada" if way == "title" else None
    first = cli.client().ask("my name is Ada [[text: hello Ada]]", name=title)
    wanted: dict[str, Any] = {
        "id": {"resume": first.session_id},
        "latest": {"continue_conversation": True},
        "title": {"resume": "The session of Ada"},
    }[way]
    cli.client(store=store).ask("second", **wanted)
    run = elsewhere(cli, store).run("third", resume=first.session_id)
    assert [event for event in run if event.type == MIRROR_ERROR] == []
    told = str(cli.api.last().body["messages"])
    assert "my name is Ada" in told
    assert "second" in told


@pytest.mark.parametrize("skipped", [0, 1])
def test_a_compaction_of_which_the_store_has_the_end_only(cli: RealCLI, skipped: int):
    """With its boundary or not: what it kept goes to the store, and to the model, here and from then on elsewhere."""
    session = cli.client().ask("first [[text: old answer]]").session_id
    for prompt in ("second [[text: kept answer]]", "/compact", "third [[text: new answer]]"):
        list(cli.client().run(prompt, resume=session))
    (path,) = cli.transcripts()
    entries = on_disk(path)
    (boundary,) = [index for index, entry in enumerate(entries) if "compactMetadata" in entry]
    assert entries[boundary]["compactMetadata"]["preservedMessages"]["uuids"]  # else this compaction kept nothing
    store = Recorder()
    store.put(key_of(cli, session), *entries[boundary + skipped :])
    for client in (cli.client(store=store), elsewhere(cli, store)):
        assert [event for event in client.run("and?", resume=session) if event.type == MIRROR_ERROR] == []
        told = [str(message["content"]) for message in cli.api.last().body["messages"]]
        assert sum("kept answer" in text for text in told) == 1
        assert sum("new answer" in text for text in told) >= 1
        assert not any("old answer" in text for text in told)


def test_the_title_of_a_session_of_which_the_store_has_the_end_only(cli: RealCLI):
    """It goes to the store, and the CLI goes on with it."""
    session = cli.client().ask("first", name="My Title").session_id
    first = len(on_disk(cli.transcripts()[0]))
    cli.client().ask("second", resume=session)
    second = [entry for entry in on_disk(cli.transcripts()[0])[first:] if "uuid" in entry]
    store = Recorder()
    store.put(key_of(cli, session), *second)
    cli.client(store=store).ask("third", resume=session)
    titles = [entry["customTitle"] for entry in store.entries(key_of(cli, session)) if "customTitle" in entry]
    assert len(titles) > 1  # ours, and what the CLI made of it
    assert set(titles) == {"My Title"}
