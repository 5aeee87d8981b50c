"""Resume from a store: what the CLI gets laid out, what it never gets, and that nothing of it stays."""

from __future__ import annotations

import contextvars
import errno
import json
import os
import shlex
import shutil
import stat
import subprocess
import threading
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from mirror_stores import Blocked, Broken, Recorder, entry, fail, lines
from waiting import Background, until

from claude_cli_client import (
    Client,
    ClientClosedError,
    MemoryStore,
    SessionInUseError,
    SessionKey,
    StaleSessionError,
    StartError,
    StoreError,
    _mirror,
    _restore,
    _settings_file,
    get_messages,
)
from claude_cli_client._config_copy import copy_config
from claude_cli_client._project_key import project_key
from claude_cli_client._restore import Restore
from claude_cli_client.testing import (
    SESSION_ID,
    die_by,
    expect_initialize,
    hang,
    init,
    read_stdin,
    ready,
    result,
    turn,
    wait_for,
)

OTHER = "00000000-0000-4000-8000-000000000002"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home of the CLI's user, empty; and where the library puts its own files, `tmp` beside it."""
    for name in ("home", "tmp", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return tmp_path / "home"


@pytest.fixture
def work(home):
    return home.parent / "work"


@pytest.fixture
def tmp(home):
    return home.parent / "tmp"


def key_in(folder: Path, session: str = SESSION_ID, subpath: str | None = None) -> SessionKey:
    return SessionKey(project_key(str(folder.resolve())), session, subpath)


@pytest.fixture
def store(work):
    store = Recorder()
    store.put(key_in(work), entry(1), entry(2))
    return store


class Few:
    """A store that can do no more than it must."""

    def append(self, key, entries):
        pass

    def load(self, key):
        return None


class Seen:
    """What the CLI was given."""

    def __init__(self, call: Any) -> None:
        self.argv = call.argv
        self.config = Path(call.env.get("CLAUDE_CONFIG_DIR", "/none"))
        self.memory = call.env.get("CLAUDE_CODE_REMOTE_MEMORY_DIR")
        self.files = {str(p.relative_to(self.config)): p.read_bytes() for p in self.config.rglob("*") if p.is_file()}
        self.modes = {stat.S_IMODE(p.lstat().st_mode) for p in self.config.rglob("*") if not p.is_symlink()}
        self.links = {p.name: os.readlink(p) for p in self.config.rglob("*") if p.is_symlink()}

    def json(self, name: str) -> Any:
        return json.loads(self.files[name])


@pytest.fixture
def look(play, work):
    """`look(store, **options)`: a turn is run, and what the CLI was given is looked at while it runs."""

    def run(store, **options):
        fake = play(init(), ready("here"), wait_for("end"), result("x"))
        options = {"resume": SESSION_ID, "cwd": work, **options}
        turn = Client(cli_path=fake.path, store=store).run("p", **options)
        fake.wait("here")
        seen = Seen(fake.calls[0])
        fake.release("end")
        assert turn.result().result == "x"
        return seen

    return run


# --- what is laid out


def test_the_transcript(look, store, work, tmp):
    """Under the project's name, in a private folder that is the CLI's configuration, and gone afterwards."""
    seen = look(store)
    name = f"projects/{key_in(work).project_key}/{SESSION_ID}.jsonl"
    assert seen.files[name].splitlines() == [
        b'{"type":"user","uuid":"00000000-0000-0000-0000-000000000001","n":1}',
        b'{"type":"user","uuid":"00000000-0000-0000-0000-000000000002","n":2}',
    ]
    assert seen.modes == {0o600, 0o700}
    assert f"--resume={SESSION_ID}" in seen.argv
    assert seen.config.is_relative_to(tmp)
    assert list(tmp.iterdir()) == []


def test_lines_as_the_cli_writes_them(look, store, work):
    """The name that it looks for in front, UTF-8; a half of a surrogate pair as an escape; nothing else changes."""
    entries = [
        {"message": {"content": "täxt"}, "uuid": "u", "parentUuid": None, "type": "user"},
        {"sessionId": "s", "customTitle": "\ud800", "type": "custom-title"},
        {"odd": True},
    ]
    store.put(key_in(work, OTHER), *entries)
    (text,) = look(store, resume=OTHER).files.values()
    assert [json.loads(line) for line in text.splitlines()] == entries
    first, second, third = text.splitlines()
    assert first.startswith(b'{"parentUuid":null,"message":{"content":"t\xc3\xa4xt"}')
    assert second.startswith(b'{"type":')
    assert b'"\\ud800"' in second
    assert third == b'{"odd":true}'


def test_subagents(look, store, work):
    """Below the session's folder; what the CLI notes of an agent in a file of its own, the last one counts."""
    agent = key_in(work, subpath="subagents/agent-7")
    old, new = ({"type": "agent_metadata", "agentType": kind} for kind in ("old", "x"))
    store.put(agent, old, entry(3), new)
    store.put(key_in(work, subpath="subagents/workflows/R/agent-8"), entry(4))
    seen = look(store)
    below = f"projects/{agent.project_key}/{SESSION_ID}/subagents"
    assert seen.json(f"{below}/agent-7.jsonl")["n"] == 3
    assert seen.json(f"{below}/agent-7.meta.json") == {"agentType": "x"}
    assert seen.json(f"{below}/workflows/R/agent-8.jsonl")["n"] == 4
    assert len(seen.files) == 4


def test_a_store_without_list_subkeys(look, store, work):
    """The main transcript alone."""
    store.put(key_in(work, subpath="subagents/agent-7"), entry(3))

    class Small:
        append, load = store.append, store.load

    assert len(look(Small()).files) == 1


def test_a_fork(look, store):
    """The history is laid out, and the CLI makes the copy."""
    seen = look(store, fork_session=True)
    assert len(seen.files) == 1
    assert {"--fork-session", f"--resume={SESSION_ID}"} <= set(seen.argv)


def test_the_store_is_the_truth(look, store, home, work):
    """Also where this disk has a transcript of that id, which may be older."""
    local = home / ".claude" / "projects" / key_in(work).project_key / f"{SESSION_ID}.jsonl"
    local.parent.mkdir(parents=True)
    local.write_text("{}\n")
    assert b'"n":2' in next(iter(look(store).files.values()))
    assert lines(local) == [{}]


def test_a_session_from_another_folder(look, store, tmp_path):
    """Found by its id, as the CLI finds one on disk; it stays in its own project."""
    (tmp_path / "elsewhere").mkdir()
    seen = look(store, cwd=tmp_path / "elsewhere")
    (name,) = seen.files
    assert name == f"projects/{key_in(tmp_path / 'work').project_key}/{SESSION_ID}.jsonl"


def test_the_project_is_that_of_the_real_path(look, store, work, tmp_path):
    """As the CLI names it: a link to the folder is the folder."""
    (tmp_path / "link").symlink_to(work)
    store.list_sessions = lambda _: []
    assert len(look(store, cwd=tmp_path / "link").files) == 1


# --- what is not in the store


@pytest.mark.parametrize("wanted", [OTHER, "a title"])
def test_nothing_found(look, store, wanted):
    """The CLI is asked as without a store, and says what it knows of it."""
    seen = look(store, resume=wanted)
    assert seen.config == Path("/none")
    assert f"--resume={wanted}" in seen.argv


def test_a_title_is_no_key(look, store):
    """The store is not asked for it."""
    look(store, resume="../../etc")
    assert store.asked == []


def titled(store, folder: Path, session: str, title: str) -> None:
    said = {"type": "user", "uuid": session, "message": {"role": "user", "content": "hello"}}
    store.append(key_in(folder, session), [said, {"type": "custom-title", "customTitle": title, "sessionId": session}])


def test_a_title_in_the_store(look, work, tmp_path):
    """Of a session of this project, by the store's summaries; compared as the CLI does."""
    store = MemoryStore()
    titled(store, work, SESSION_ID, "My title")
    titled(store, tmp_path, OTHER, "My title")
    seen = look(store, resume="my TITLE ")
    assert f"--resume={SESSION_ID}" in seen.argv
    assert len(seen.files) == 1


def test_a_title_that_two_sessions_have(look, work):
    """The store does not choose: the CLI is asked as without a store."""
    store = MemoryStore()
    titled(store, work, SESSION_ID, "My title")
    titled(store, work, OTHER, "My title")
    assert "--resume=My title" in look(store, resume="My title").argv


NOBODY = "No conversation found with session ID: "


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        (MemoryStore, {}, rf"{OTHER}; neither the store \(MemoryStore\) nor this disk has session {OTHER}; start"),
        (MemoryStore, {"isolated": True}, rf"; the store \(MemoryStore\) does not have session {OTHER}"),
        (MemoryStore, {"resume": "T"}, r"this disk has one session of .*work with the title 'T'; give its id"),
        (Few, {}, "has no list_sessions, so only project -.*-work was looked in: give the cwd"),
        (Few, {"resume": "T"}, "has no list_summaries, so a title is looked for on this disk only: give the"),
    ],
)
def test_a_session_that_nobody_has(play, work, kind, options, says):
    """The error says where it was looked for, and what was in the way of more."""
    fake = play(result("", subtype="error_during_execution", is_error=True, errors=[NOBODY + OTHER]))
    client = Client(cli_path=fake.path, store=kind(), cwd=work)
    with pytest.raises(StaleSessionError, match=says):
        client.ask("p", **{"resume": OTHER, **options})


def test_without_resume_nothing_is_loaded(look, store):
    """A new session needs nothing of a store."""
    look(store, resume=None)
    assert store.asked == []


# --- the latest one


def test_the_latest_session(look, store, work):
    """`--continue` becomes the id of the session that grew last in this project."""
    store.put(key_in(work, OTHER), entry(5))
    store.put(SessionKey("-elsewhere", "00000000-0000-4000-8000-000000000009"), entry(6))
    seen = look(store, resume=None, continue_conversation=True)
    assert f"--resume={OTHER}" in seen.argv
    assert "--continue" not in seen.argv
    assert list(seen.files) == [f"projects/{key_in(work).project_key}/{OTHER}.jsonl"]


def test_what_is_no_session_is_passed_over(look, store, work):
    """Ids that are no UUIDs, sessions without entries, those of subagents."""
    store.put(key_in(work, "agent-5"), entry(5))
    store.put(key_in(work, OTHER), entry(6, isSidechain=True))
    store.mtimes[key_in(work, "00000000-0000-4000-8000-000000000003")] = 1 << 80
    seen = look(store, resume=None, continue_conversation=True)
    assert f"--resume={SESSION_ID}" in seen.argv


def test_a_time_that_is_none(look, store, work):
    """A row without a time, or with one that is no number, is the oldest one, as in a list."""
    rows = [{}, {"mtime": None}, {"mtime": float("inf")}, {"mtime": "soon"}]
    for number, row in enumerate(rows):
        row["session_id"] = f"00000000-0000-4000-8000-00000000001{number}"
        store.put(key_in(work, row["session_id"]), entry(3))
    store.list_sessions = lambda _: [*rows, {"session_id": SESSION_ID, "mtime": 1}]
    seen = look(store, resume=None, continue_conversation=True)
    assert f"--resume={SESSION_ID}" in seen.argv


def test_no_session_to_continue(look):
    """The CLI looks for one itself."""
    seen = look(Recorder(), resume=None, continue_conversation=True)
    assert "--continue" in seen.argv
    assert seen.config == Path("/none")


def test_continue_and_fork(look, store):
    """Both flags' meanings survive."""
    seen = look(store, resume=None, continue_conversation=True, fork_session=True)
    assert {f"--resume={SESSION_ID}", "--fork-session"} <= set(seen.argv)


# --- what goes along from the user's configuration


def fill(folder: Path, files: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


CREDENTIALS = {
    "claudeAiOauth": {"accessToken": "a", "refreshToken": "SECRET", "expiresAt": 1},
    "mcpOAuth": {"x": [{"accessToken": "b", "refreshToken": "SECRET"}]},
}
SETTINGS = {
    "apiKeyHelper": "x", "enabledPlugins": {"p": True}, "extraKnownMarketplaces": {"m": {}},
    "env": {"A": "1", "CLAUDE_CONFIG_DIR": "/y"},
}  # fmt: skip


def test_login_state_and_settings(look, store, home):
    """Credentials without a refresh token, the global state, settings without plugins and without a way out."""
    fill(home / ".claude", {".credentials.json": CREDENTIALS, "settings.json": SETTINGS})
    fill(home, {".claude.json": {"userID": "u"}})
    seen = look(store)
    assert seen.json(".credentials.json") == {
        "claudeAiOauth": {"accessToken": "a", "expiresAt": 1}, "mcpOAuth": {"x": [{"accessToken": "b"}]},
    }  # fmt: skip
    assert seen.json("settings.json") == {"apiKeyHelper": "x", "env": {"A": "1"}}
    assert seen.json(".claude.json") == {"userID": "u"}
    assert seen.modes == {0o600, 0o700}
    assert json.loads((home / ".claude" / ".credentials.json").read_text()) == CREDENTIALS


def test_login_state_and_settings_of_a_relative_home(look, store, home):
    """A HOME that is relative is so to the turn's directory, as the CLI takes it."""
    fill(home / ".claude", {".credentials.json": CREDENTIALS})
    fill(home, {".claude.json": {"userID": "u"}})
    seen = look(store, env={"HOME": "../home"})
    assert {".credentials.json", ".claude.json"} <= set(seen.files)


def test_of_a_folder_that_the_environment_names(look, store, tmp_path):
    """CLAUDE_CONFIG_DIR is where all of it is then, and `config_dir` is the same."""
    fill(tmp_path / "config", {".credentials.json": CREDENTIALS, ".claude.json": {"userID": "c"}})
    for options in ({"env": {"CLAUDE_CONFIG_DIR": "../config"}}, {"config_dir": tmp_path / "config"}):
        seen = look(store, **options)
        assert seen.json(".claude.json") == {"userID": "c"}
        assert b"SECRET" not in seen.files[".credentials.json"]


def copied(tmp_path: Path, settings: Any, folder: str = "c") -> Any:
    """What becomes of the settings of a folder."""
    (tmp_path / "t").mkdir()
    fill(tmp_path / folder, {"settings.json": settings})
    copy_config({"CLAUDE_CONFIG_DIR": str(tmp_path / folder)}, "/", str(tmp_path / "t"))
    return json.loads((tmp_path / "t" / "settings.json").read_text())


@pytest.mark.parametrize("kind", ["allow", "ask", "deny"])
def test_rules_that_begin_at_the_folder_of_the_settings(tmp_path, kind):
    """Are said for the original one, too; and go on to mean what is linked."""
    others = ["Read", "Read(x)", "Read(./x)", "Read(//x)", "Read(~/x)", "Bash(/bin/x *)", "Write(/x)", "mcp__x", 7, ""]
    rules = ["Read(/secret.txt)", "Edit(/sub/**)", *others]
    moved = copied(tmp_path, {"permissions": {kind: rules, "defaultMode": "plan"}})["permissions"]
    assert moved["defaultMode"] == "plan"
    here = [f"Read(/{tmp_path}/c/secret.txt)", f"Edit(/{tmp_path}/c/sub/**)"]
    assert moved[kind] == [*rules, *here]


@pytest.mark.parametrize(
    ("folder", "kind", "places"),
    [
        ("a [b] (c)", "deny", [r"a \[b\] (c)"]),
        ("a*?", "allow", [r"a\*\?"]),
        ("a\\b", "deny", ["a?b", r"a\\b"]),
        ("a\\b", "allow", [r"a\\b"]),
    ],
)
def test_rules_of_an_odd_folder(tmp_path, folder, kind, places):
    """Its name is no pattern, as far as the CLI can be told; else what is denied is a little more."""
    rules = copied(tmp_path, {"permissions": {kind: ["Read(/x)"]}}, folder)["permissions"][kind]
    assert sorted(rules[1:]) == sorted(f"Read(/{tmp_path}/{place}/x)" for place in places)


def test_places_of_the_sandbox(tmp_path):
    """Those that are relative begin at the folder of the settings: they are said for the original one, too."""
    files = {
        name: ["a", "./b", "../c", "/d", "~/e", 7] for name in ("denyRead", "allowRead", "denyWrite", "allowWrite")
    }
    sandbox = {"enabled": True, "filesystem": {**files, "odd": True}}
    here = [f"{tmp_path}/c/{path}" for path in ("a", "./b", "../c")]
    assert copied(tmp_path, {"sandbox": sandbox})["sandbox"] == {
        "enabled": True, "filesystem": {**{name: [*paths, *here] for name, paths in files.items()}, "odd": True},
    }  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [{"permissions": 7}, {"permissions": None}, {"permissions": {"deny": 7}},
     {"permissions": {"deny": {"Read(/x)": 1}}}, {"sandbox": []}, {"sandbox": {"filesystem": "a"}}],
)  # fmt: skip
def test_settings_of_an_odd_shape(tmp_path, settings):
    """Are left as they are, for the CLI to judge."""
    (name,) = settings
    assert copied(tmp_path, settings)[name] == settings[name]


COPIES = [".credentials.json", ".claude.json", "settings.json", "cowork_settings.json"]


def value_of(seen: Seen, flag: str) -> str:
    """Of a flag that is given once; "": not at all."""
    found = [word.partition("=")[2] for word in seen.argv if word.startswith(f"{flag}=")]
    assert len(found) <= 1
    return "".join(found)


@pytest.mark.parametrize("given", [["Bash", "Read(/x)"], "Bash, Read(/x)"], ids=str)
def test_the_copies_are_not_for_the_model(look, store, home, given):
    """What forbids the originals does not speak of them: the command line does, beside what the user denies."""
    fill(home / ".claude", {name: {} for name in COPIES})
    seen = look(store, config_dir=home / ".claude", disallowed_tools=given)
    assert set(seen.files) > set(COPIES)
    place = f"{seen.config.parent.name}/{seen.config.name}"
    expected = ["Bash", "Read(/x)", *(f"Read(//**/{place}/{name})" for name in COPIES)]
    assert value_of(seen, "--disallowedTools") == ",".join(expected)


DENIES = {"permissions": {"deny": ["Read(~/.claude/**)"]}}


@pytest.mark.parametrize("where", ["option", "user", "project", "local", "machine"])
def test_the_copies_are_not_for_the_model_where_settings_deny_reading(look, store, home, where, monkeypatch):
    """Whichever settings do, also where the CLI does not read them."""
    options = {"settings": DENIES} if where == "option" else {}
    fill(home / ".claude", {"settings.json": DENIES if where == "user" else {}})
    if where in ("project", "local"):
        name = "settings.json" if where == "project" else "settings.local.json"
        fill(home / "work" / ".claude", {name: DENIES})
        options["cwd"] = home / "work"
    if where == "machine":
        fill(home / "managed" / "managed-settings.d", {"10.json": DENIES})
        monkeypatch.setattr(_settings_file, "managed_folder", lambda: str(home / "managed"))
    seen = look(store, config_dir=home / ".claude", **options)
    assert value_of(seen, "--disallowedTools").count("Read(//**/") == len(COPIES)


@pytest.mark.parametrize("given", [[], ["Bash", "Edit(/x)"]], ids=str)
def test_nothing_is_denied_where_all_may_be_read(look, store, home, given):
    """A rule for reading makes the CLI refuse what it cannot tell to read nothing, as `cd src && ls`."""
    fill(home / ".claude", {name: {} for name in COPIES})
    seen = look(store, config_dir=home / ".claude", disallowed_tools=given)
    assert value_of(seen, "--disallowedTools") == ",".join(given)


@pytest.mark.parametrize(
    ("given", "sandbox"),
    [
        ({}, {}),
        ({"settings": {"model": "m"}}, {}),
        ({"sandbox": {"enabled": True}}, {"enabled": True}),
        ({"settings": '{"sandbox": {"filesystem": {"denyRead": ["/a"], "denyWrite": ["/b"]}}}'},
         {"filesystem": {"denyRead": ["/a"], "denyWrite": ["/b"]}}),
        ({"settings": {"sandbox": {"enabled": False, "filesystem": {"denyRead": ["/a"]}}},
          "sandbox": {"filesystem": {"denyRead": ["/c"]}}}, {"enabled": False, "filesystem": {"denyRead": ["/c"]}}),
    ],
)  # fmt: skip
def test_the_copies_are_not_for_the_sandbox(look, store, given, sandbox):
    """It is told their paths in the settings of the command line, which say all else as before."""
    seen = look(store, **given)
    settings = json.loads(value_of(seen, "--settings"))
    denied = [*sandbox.get("filesystem", {}).get("denyRead", []), *(str(seen.config / name) for name in COPIES)]
    assert settings.pop("sandbox") == {**sandbox, "filesystem": {**sandbox.get("filesystem", {}), "denyRead": denied}}
    assert settings == ({"model": "m"} if "model" in str(given) else {})


def test_settings_in_a_file_stay_in_it(look, store, tmp_path):
    """What is in it may begin at its folder."""
    fill(tmp_path, {"mine.json": {"sandbox": {"enabled": True}}})
    seen = look(store, settings=tmp_path / "mine.json", disallowed_tools=["Read(/x)"])
    assert value_of(seen, "--settings") == str(tmp_path / "mine.json")
    assert "/.credentials.json)" in value_of(seen, "--disallowedTools")


@pytest.mark.parametrize("options", [{"resume": None}, {"isolated": True}], ids=str)
def test_where_nothing_is_copied_nothing_is_denied(look, store, options):
    """Neither in a turn that is not resumed, nor in an isolated one."""
    seen = look(store, **options)
    assert (value_of(seen, "--disallowedTools"), value_of(seen, "--settings")) == ("", "")


LINKED = [
    "CLAUDE.md", "agents", "agent-memory", "hooks", "key.sh", "workflows", "settings.local.json", ".config.json",
    "remote-settings.json", "policy-limits.json", "daemonize.sh", "daemon-rules.md", "a name of\nthe user's \udcff",
]  # fmt: skip


def test_everything_else(look, store, home):
    """Linked, whatever it is: a resumed turn must work as the first one; and left as it was."""
    for name in LINKED:
        fill(home / ".claude" / name, {"inner": "x"})
    (home / "dotfiles").mkdir()
    (home / ".claude" / "by link").symlink_to(home / "dotfiles")
    (home / ".claude" / "nowhere").symlink_to("nothing")
    os.mkfifo(home / ".claude" / "pipe")
    links = look(store).links
    del links["memory"]
    assert links == {
        **{name: str(home / ".claude" / name) for name in (*LINKED, "pipe")},
        "by link": str(home / "dotfiles"), "nowhere": str(home / ".claude" / "nothing"),
    }  # fmt: skip
    assert all((home / ".claude" / name / "inner").read_text() == "x" for name in LINKED)


OWN = [
    "projects", "sessions", "session-env", "shell-snapshots", "file-history", "tasks", "todos", "teams", "dev-mods",
    "history.jsonl", "backups", "cache", "debug", "statsig", "telemetry", "stats-cache.json", "usage-data", "plugins",
    "cowork_plugins", "jobs", "daemon", ".credentials.json", ".claude.json", "settings.json",
    "cowork_settings.json", "Projects", ".claude.json.lock", ".last-cleanup", ".last-update-result.json",
    "daemon.status.json", "daemon.scheduled.status.json", "daemon-auth-status.json", "daemon.json", "daemon.log",
    "daemon.lock",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["folders", "files", "links"])
def test_what_the_cli_writes_for_itself(tmp_path, kind):
    """Is not linked: neither its sessions and notes, nor what is copied, whatever lies in the place of it."""
    for name in ("c", "t", "x"):
        (tmp_path / name).mkdir()
    for name in OWN:
        path = tmp_path / "c" / name
        {"folders": path.mkdir, "files": path.touch, "links": lambda at=path: at.symlink_to(tmp_path / "x")}[kind]()
    copy_config({"CLAUDE_CONFIG_DIR": str(tmp_path / "c")}, "/", str(tmp_path / "t"))
    assert [path for path in (tmp_path / "t").iterdir() if path.is_symlink()] == []


@pytest.mark.parametrize("place", ["nothing", "a file"])
def test_no_folder(tmp_path, place):
    """Then nothing goes along."""
    (tmp_path / "a file").touch()
    (tmp_path / "t").mkdir()
    copy_config({"CLAUDE_CONFIG_DIR": str(tmp_path / place)}, "/", str(tmp_path / "t"))
    assert list((tmp_path / "t").iterdir()) == []


def test_a_folder_that_cannot_be_looked_into(play, store, work, home, monkeypatch):
    """A hook there would be lost in silence: the turn is not started, and the error says why."""
    real = os.listdir

    def listdir(path):
        if path == str(home / ".claude"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    fake = play(init(), result("x"))
    with pytest.raises(StartError, match=r"in the configuration folder .*/\.claude must go along: .*Permission denied"):
        Client(cli_path=fake.path, store=store).run("p", resume=SESSION_ID, cwd=work)
    assert fake.calls == []


def test_an_isolated_turn_gets_the_session_alone(look, store, home):
    """No login, settings or memory of this user."""
    fill(home / ".claude", {".credentials.json": CREDENTIALS, "CLAUDE.md": "x", "settings.json": {}})
    seen = look(store, isolated=True)
    assert len(seen.files) == 1
    assert seen.links == {}


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, "\ufeff{}", '{"a": NaN}', "7", '{"env": 7}'])
def test_files_that_are_odd(tmp_path, content):
    """What cannot be read is passed over, as the CLI does it, but for the settings; nothing raises."""
    fill(tmp_path / "c", dict.fromkeys((".credentials.json", ".claude.json", "settings.json"), content))
    (tmp_path / "t").mkdir()
    copy_config({"CLAUDE_CONFIG_DIR": str(tmp_path / "c")}, "/", str(tmp_path / "t"))
    assert len(list((tmp_path / "t").iterdir())) in (1, 3)


@pytest.mark.parametrize("name", ["settings.json", "cowork_settings.json"])
@pytest.mark.parametrize("login", [True, False])
def test_settings_that_are_no_json(tmp_path, name, login):
    """Go along byte for byte: with valid ones in their place the CLI would clean up the user's folder after 30 days."""
    content = '{"cleanupPeriodDays": 3650,}\n'
    fill(tmp_path / "c", {name: content, **({".credentials.json": CREDENTIALS} if login else {})})
    (tmp_path / "t").mkdir()
    copy_config({"CLAUDE_CONFIG_DIR": str(tmp_path / "c")}, "/", str(tmp_path / "t"))
    assert (tmp_path / "t" / name).read_text() == content
    assert stat.S_IMODE((tmp_path / "t" / name).stat().st_mode) == 0o600
    assert len(list((tmp_path / "t").iterdir())) == 1 + login


@pytest.mark.parametrize("name", [".credentials.json", ".claude.json"])
def test_credentials_and_state_that_are_no_json(tmp_path, name):
    """Stay behind: what is in them, a refresh token for one, nobody can take out."""
    fill(tmp_path / "c", {name: json.dumps(CREDENTIALS)[:-1]})
    (tmp_path / "t").mkdir()
    copy_config({"CLAUDE_CONFIG_DIR": str(tmp_path / "c")}, "/", str(tmp_path / "t"))
    assert list((tmp_path / "t").iterdir()) == []


def test_settings_that_the_cli_takes_go_along(tmp_path):
    """With bytes that are no text, or a number that Python takes for none: what they deny is denied."""
    for name in ("c", "t"):
        (tmp_path / name).mkdir()
    numbers = b'"n": ' + b"9" * 5000 + b', "f": -1e999'
    content = b'{"x": "\xff", ' + numbers + b', "enabledPlugins": {}, "permissions": {"deny": ["Read"]}}'
    (tmp_path / "c" / "settings.json").write_bytes(content)
    copy_config({"CLAUDE_CONFIG_DIR": str(tmp_path / "c")}, "/", str(tmp_path / "t"))
    copied = (tmp_path / "t" / "settings.json").read_text()
    assert json.loads(copied)["permissions"]["deny"] == ["Read"]
    assert "Infinity" not in copied


@pytest.mark.timeout(20)
def test_files_that_are_pipes(tmp_path):
    """Are passed over: nobody may ever write into one."""
    for name in ("c", "t"):
        (tmp_path / name).mkdir()
    for name in (".credentials.json", ".claude.json", "settings.json"):
        os.mkfifo(tmp_path / "c" / name)
    copy_config({"CLAUDE_CONFIG_DIR": str(tmp_path / "c")}, "/", str(tmp_path / "t"))
    assert list((tmp_path / "t").iterdir()) == []


# --- stores that fail


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("step", ["copy_config", "_new_file"])
def test_a_full_disk(play, store, work, tmp, monkeypatch, slots_free, step):
    """Is not the store's fault, and the error does not say so."""
    monkeypatch.setattr(_restore, step, full)
    fake = play(init(), result("x"))
    client = Client(cli_path=fake.path, store=store)
    with pytest.raises(StartError, match="No space left"):
        client.run("p", resume=SESSION_ID, cwd=work)
    assert (fake.calls, slots_free(client), list(tmp.iterdir())) == ([], 4, [])


def test_the_store_is_asked_in_the_caller_s_context(look, store):
    """As callbacks are: a store may find there for whom it works."""
    tenant, load = contextvars.ContextVar("tenant", default=""), store.load
    seen = []
    store.load = lambda key: seen.append(tenant.get()) or load(key)
    token = tenant.set("somebody")
    look(store)
    tenant.reset(token)
    assert seen == ["somebody"]


def test_a_store_takes_no_longer_than_the_turn_may(play, store, work, slots_free):
    """`timeout` counts for the store, too: `StoreError`, and nothing is started."""
    released = threading.Event()
    store.load = lambda key: released.wait(60)
    fake = play(init(), result("x"))
    client = Client(cli_path=fake.path, store=store)
    with pytest.raises(StoreError, match=r"did not answer within 0\.2 s"):
        client.run("p", resume=SESSION_ID, cwd=work, timeout=0.2)
    released.set()
    assert (fake.calls, slots_free(client)) == ([], 4)


@pytest.mark.parametrize("options", [{}, {"resume": SESSION_ID, "fork_session": True}], ids=str)
def test_the_id_of_a_new_session(play, store, work, slots_free, options):
    """One that the store has would become two conversations in one transcript: refused, nothing is started."""
    fake = play(init(), result("x"))
    client = Client(cli_path=fake.path, store=store, cwd=work)
    for call in (client.run, lambda _, **options: client.session(**options)):
        with pytest.raises(SessionInUseError, match="use resume="):
            call("p", session_id=SESSION_ID, **options)
    assert (fake.calls, slots_free(client)) == ([], 4)
    assert client.ask("p", session_id=FREE, **options).result == "x"
    (call,) = fake.calls
    assert f"--session-id={FREE}" in call.argv


FREE = "00000000-0000-4000-8000-00000000f4ee"


@pytest.mark.parametrize("options", [{"isolated": True}, {"resume": SESSION_ID}], ids=str)
def test_a_folder_that_the_cli_would_spell_in_another_way(play, store, work, tmp, monkeypatch, options):
    """It composes accents and would make a folder beside ours: `StartError` that names the remedy, nothing is left."""
    places = {}
    for form in ("NFC", "NFD"):
        places[form] = tmp / unicodedata.normalize(form, "t\u00e9mp")
        places[form].mkdir(exist_ok=True)
    if places["NFC"].samefile(places["NFD"]):
        pytest.skip("a disk that takes both for one name")
    fake = play(init(), result("x"))
    client = Client(cli_path=fake.path, store=store, cwd=work)
    monkeypatch.setenv("TMPDIR", str(places["NFD"]))
    with pytest.raises(StartError, match="set another TMPDIR"):
        client.run("p", **options)
    assert (fake.calls, list(places["NFD"].iterdir())) == ([], [])
    monkeypatch.setenv("TMPDIR", str(places["NFC"]))
    assert client.ask("p", **options).result == "x"


@pytest.mark.parametrize("error", [OSError("no route"), SystemExit(1), KeyboardInterrupt()], ids=repr)
def test_a_store_that_raises(play, store, work, tmp, error, slots_free):
    """`StoreError` at the call, with the cause and the key; nothing is started and nothing left."""
    store.load = lambda key: fail(error)(0)
    fake = play(init(), result("x"))
    client = Client(cli_path=fake.path, store=store)
    for call in (client.run, lambda _, **options: client.session(**options)):
        with pytest.raises(StoreError, match=SESSION_ID) as caught:
            call("p", resume=SESSION_ID, cwd=work)
        assert caught.value.__cause__ is error
        assert caught.value.key == key_in(work)
    assert (fake.calls, slots_free(client), list(tmp.iterdir())) == ([], 4, [])


LATEST = {"continue_conversation": True}


@pytest.mark.parametrize("method", ["list_sessions", "list_subkeys"])
def test_a_store_that_raises_while_it_is_read(play, store, work, method):
    """The same of a method that is a generator; the error names it."""

    def listing(*_):
        yield from ()
        raise OSError("no route")

    setattr(store, method, listing)
    fake = play(init(), result("x"))
    options = LATEST if method == "list_sessions" else {"resume": SESSION_ID}
    with pytest.raises(StoreError, match=rf"failed in {method}\(\): OSError: no route") as caught:
        Client(cli_path=fake.path, store=store).run("p", cwd=work, **options)
    assert caught.value.key[:1] == key_in(work)[:1]
    assert fake.calls == []


@pytest.mark.parametrize("method", ["load", "list_sessions", "list_subkeys"])
def test_a_store_that_hangs(play, store, work, tmp, monkeypatch, slots_free, method):
    """The same after a minute, whatever it is that does not return."""
    monkeypatch.setattr(_restore, "LOAD_LIMIT", 0.1)
    block = Blocked()
    setattr(store, method, lambda *_: block(0))
    fake = play(init(), result("x"))
    client = Client(cli_path=fake.path, store=store)
    with pytest.raises(StoreError, match=r"within 0\.1 s"):
        client.run("p", cwd=work, **(LATEST if method == "list_sessions" else {"resume": SESSION_ID}))
    assert (fake.calls, slots_free(client), list(tmp.iterdir())) == ([], 4, [])
    block.released.set()


def test_what_a_store_has_in_another_order(store, work, home, play):
    """Its beginning came behind its end, as where that was stored later: each message is laid out behind its parent."""
    links = [{"type": "user", "uuid": uuid, "parentUuid": parent, "message": {"role": "user", "content": "x"}}
             for uuid, parent in (("b", "a"), ("c", "b"), ("a", None))]  # fmt: skip
    shuffled = Recorder()
    shuffled.put(key_in(work), *links)
    restore = Restore(shuffled, SESSION_ID, str(work), None)
    restore.load(lambda: False)
    restore.write(str(home / "there"), {}, str(work), isolated=True)
    (path,) = (home / "there").rglob("*.jsonl")
    assert [json.loads(line)["uuid"] for line in path.read_text().splitlines()] == ["a", "b", "c"]
    found = get_messages(SESSION_ID, store=shuffled)
    assert [message.uuid for message in found] == ["a", "b", "c"]


def test_the_limit():
    """A minute."""
    assert _restore.LOAD_LIMIT == 60


def test_closing_the_client_while_a_store_hangs(play, store, work):
    """Who waits for the store is told at once that the client is closed."""
    block = Blocked()
    store.load = lambda key: block(0)
    client = Client(cli_path=play(init(), result("x")).path, store=store)
    waiting = Background(client.run, "p", resume=SESSION_ID, cwd=work)
    block.entered.wait(10)
    client.close()
    with pytest.raises(ClientClosedError):
        waiting.result(5)
    block.released.set()


def test_the_session_is_loaded_when_there_is_a_slot(play, store, work):
    """Not before: while a run waits in the line another turn of the session may end."""
    fake = play(init(), ready("here"), wait_for("end"), result("x"))
    client = Client(cli_path=fake.path, store=store, max_concurrent=1)
    first = client.run("p", cwd=work)
    waiting = Background(client.run, "p", resume=SESSION_ID, cwd=work)
    until(lambda: client._pool._line)
    assert store.asked == []
    fake.release("end")
    first.result()
    waiting.result().result()
    assert store.asked == [key_in(work)]


HOSTILE = [
    "", "/", "/etc/x", "..", "../x", "a/../../x", "a/./b", "a//b", "a/", "C:/x", "C:x", "a\\b", "a\0b", "\ud800",
    "a/" + "x" * 300, "agent-7", 7, None, b"a/b",
]  # fmt: skip


@pytest.mark.parametrize("subpath", HOSTILE, ids=repr)
def test_hostile_subpaths(play, store, work, tmp, subpath):
    """A store that names a place outside of the session's folder is not believed; nothing is written."""
    store.list_subkeys = lambda *_: [subpath]
    store.load = lambda key: [entry(1)]
    fake = play(init(), result("x"))
    with pytest.raises(StoreError, match="place") as caught:
        Client(cli_path=fake.path, store=store).run("p", resume=SESSION_ID, cwd=work)
    assert caught.value.key[:2] == key_in(work)[:2]
    assert (fake.calls, list(tmp.iterdir())) == ([], [])


@pytest.mark.parametrize("project", ["..", "a/b", "/etc", "a\\b", "\0"])
def test_hostile_projects(play, store, work, tmp_path, project):
    """So is one whose list names such a project."""
    (tmp_path / "elsewhere").mkdir()
    store.list_sessions = lambda _: [{"session_id": SESSION_ID, "project_key": project, "mtime": 1}]
    fake = play(init(), result("x"))
    with pytest.raises(StoreError, match="place"):
        Client(cli_path=fake.path, store=store).run("p", resume=SESSION_ID, cwd=tmp_path / "elsewhere")
    assert fake.calls == []


@pytest.mark.parametrize("entries", [7, "text", [7], {"a": 1}, [[]], [{"a": object()}], [{1: 2, "1": {3}}]], ids=repr)
def test_what_is_no_list_of_entries(play, store, work, tmp, entries):
    """A `StoreError`, before anything is started."""
    store.load = lambda key: entries
    fake = play(init(), result("x"))
    with pytest.raises(StoreError, match=SESSION_ID):
        Client(cli_path=fake.path, store=store).run("p", resume=SESSION_ID, cwd=work)
    assert (fake.calls, list(tmp.iterdir())) == ([], [])


def test_two_subpaths_of_one_file(play, store, work, tmp):
    """Nothing is overwritten: a file that is there already ends it."""
    store.list_subkeys = lambda *_: ["a/b", "a/b.jsonl/c"]
    store.load = lambda key: [entry(1)]
    fake = play(init(), result("x"))
    with pytest.raises(StoreError, match="laid out"):
        Client(cli_path=fake.path, store=store).run("p", resume=SESSION_ID, cwd=work)
    assert list(tmp.iterdir()) == []


def test_a_link_in_the_place_of_a_file(tmp_path, store, work):
    """It is not followed."""
    (tmp_path / "target").write_text("mine")
    restore = Restore(store, SESSION_ID, str(work), None)
    restore.load(lambda: False)
    place = tmp_path / "c" / "projects" / key_in(work).project_key
    place.mkdir(parents=True)
    (place / f"{SESSION_ID}.jsonl").symlink_to(tmp_path / "target")
    with pytest.raises(StoreError):
        restore.write(str(tmp_path / "c"), {}, "/", isolated=True)
    assert (tmp_path / "target").read_text() == "mine"


# --- every way in which it ends


@pytest.mark.parametrize("end", [[result("x")], [die_by(9)], [hang()]], ids=["answer", "death", "limit"])
def test_nothing_stays(play, store, work, tmp, graces, end):
    """However the run ends, its folder is gone with it."""
    graces(term=0.1)
    run = Client(cli_path=play(init(), *end).path, store=store).run("p", resume=SESSION_ID, cwd=work, idle_timeout=0.3)
    list(run)
    assert list(tmp.iterdir()) == []


def test_a_start_that_fails(store, work, tmp, tmp_path):
    """Also where the CLI cannot be started."""
    broken = tmp_path / "claude"
    broken.write_bytes(b"\x7fELF nothing")
    broken.chmod(0o700)
    with pytest.raises(StartError):
        Client(cli_path=broken, store=store).run("p", resume=SESSION_ID, cwd=work)
    assert list(tmp.iterdir()) == []


def test_a_session(play, store, work, tmp):
    """A live session is resumed in the same way, and its folder lives as long as it."""
    fake = play(*expect_initialize(), turn(), read_stdin())
    with Client(cli_path=fake.path, store=store).session(resume=SESSION_ID, cwd=work) as session:
        session.ask("p")
        seen = Seen(fake.calls[0])
        assert len(seen.files) == 1
    assert list(tmp.iterdir()) == []


CLI = """#!/bin/sh
# Reads its prompt, adds a line to the transcript that it resumes, and says a frame with it.
cat >/dev/null
set -- "$CLAUDE_CONFIG_DIR"/projects/*/*.jsonl
line='{"type":"user","uuid":"00000000-0000-0000-0000-000000000003","n":3}'
echo "$line" >>"$1"
echo '{"type":"transcript_mirror","filePath":"'"$1"'","entries":['"$line"']}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"x","session_id":'SESSION'}'
"""


@pytest.fixture
def writer(tmp_path):
    """A CLI that writes what it resumes, and mirrors it from there."""
    path = tmp_path / "claude"
    path.write_text(CLI.replace("SESSION", shlex.quote(json.dumps(SESSION_ID))))
    path.chmod(0o700)
    return path


def test_the_mirror_of_a_resumed_session(writer, store, work, tmp):
    """What the turn adds goes to the same transcript; the next resume has it all."""
    client = Client(cli_path=writer, store=store)
    for _ in range(2):
        assert client.ask("p", resume=SESSION_ID, cwd=work).result == "x"
    assert store.numbers(key_in(work)) == [1, 2, 3, 3]
    assert [e["n"] for e in store.load(key_in(work))] == [1, 2, 3]
    assert list(tmp.iterdir()) == []


def test_the_only_copy_stays(writer, home, work, tmp, monkeypatch):
    """What the store did not take is in a folder that can be used as `config_dir`, and the event says where."""
    monkeypatch.setattr(_mirror, "PAUSES", (0.0, 0.0))
    fill(home / ".claude", {".credentials.json": CREDENTIALS})
    store = Broken(lambda number: fail(OSError("full"))(0) if number else None)
    store.put(key_in(work), entry(1))
    *_, event, _ = Client(cli_path=writer, store=store).run("p", resume=SESSION_ID, cwd=work)
    path = Path(event.data["path"])
    (kept,) = tmp.iterdir()
    assert path == kept / "projects" / key_in(work).project_key / f"{SESSION_ID}.jsonl"
    assert [line["n"] for line in lines(path)] == [1, 3]
    assert str(path) in event.text
    assert [p for p in kept.rglob("*") if p.is_file()] == [path]


def memory_of(home, folder):
    return home / ".claude" / "projects" / project_key(str(folder.resolve())) / "memory"


@pytest.mark.parametrize("is_there", [True, False])
def test_the_projects_memory(look, store, work, home, is_there):
    """Linked, so that the turn sees what was noted since; and made, so that what it notes is not lost."""
    if is_there:
        memory_of(home, work).mkdir(parents=True)
    assert look(store).links["memory"] == str(memory_of(home, work))
    assert memory_of(home, work).is_dir()


def git(*words, cwd):
    subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, env={**os.environ, "HOME": "/", **GIT})


GIT = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("place", ["below the top", "a worktree", "a folder in a worktree"])
def test_the_memory_of_a_repository(look, store, work, home, place):
    """All of its folders and worktrees have that of the main one's top."""
    top = work.parent / "repository"
    top.mkdir()
    git("init", "-q", cwd=top)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=top)
    git("worktree", "add", "-q", "../tree", cwd=top)
    tree = work.parent / "tree"
    folder = {"below the top": top / "a", "a worktree": tree, "a folder in a worktree": tree / "a"}[place]
    folder.mkdir(parents=True, exist_ok=True)
    store.put(key_in(folder), entry(1))
    assert look(store, cwd=folder).links["memory"] == str(memory_of(home, top))


@pytest.mark.parametrize("content", ["gitdir: nowhere", "", "\0", "gitdir: ."])
def test_what_looks_like_a_repository(look, store, work, home, content):
    """A `.git` that leads nowhere (or is a submodule's) marks the top of its own."""
    (work / ".git").write_text(content)
    assert look(store).links["memory"] == str(memory_of(home, work))


def test_a_memory_that_cannot_be_made(look, store, work, home):
    """The turn runs without it."""
    (home / ".claude").mkdir()
    for name in ("projects", "agent-memory"):
        (home / ".claude" / name).write_text("no folder")
    assert set(look(store).links) == {"agent-memory"}  # as everything else


@pytest.mark.parametrize("is_there", [True, False])
def test_the_memory_of_subagents(look, store, home, is_there):
    """That of the user, for all projects: linked, and made for the same reason."""
    memory = home / ".claude" / "agent-memory"
    if is_there:
        memory.mkdir(parents=True)
    assert look(store).links["agent-memory"] == str(memory)
    assert memory.is_dir()


def test_no_memory_in_an_isolated_turn(look, store, work, home):
    """What the user's own configuration has is none of its business."""
    memory = home / ".claude" / "projects" / key_in(work).project_key / "memory"
    memory.mkdir(parents=True)
    assert look(store, isolated=True).links == {}
    assert not (home / ".claude" / "agent-memory").exists()
    assert look(store, isolated=True).memory is None


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({}, "home/.claude"),
        ({"config_dir": "conf"}, "conf"),
        ({"env": {"CLAUDE_CODE_REMOTE_MEMORY_DIR": ""}}, "home/.claude"),
    ],
    ids=str,
)
def test_memories_have_their_own_names(look, store, tmp_path, monkeypatch, options, place):
    """The CLI is told to have them where they are: what a link leads to in the user's folder, its tools refuse."""
    monkeypatch.chdir(tmp_path)
    assert look(store, **options).memory == str(tmp_path / place)


@pytest.mark.parametrize("variable", ["CLAUDE_CODE_REMOTE_MEMORY_DIR", "CLAUDE_CODE_REMOTE"])
def test_a_place_of_memories_that_the_user_has_set(look, store, variable):
    """Is kept; and memories that are off in the cloud stay off."""
    seen = look(store, env={variable: "/1"})
    assert seen.memory == ("/1" if variable.endswith("DIR") else None)


def test_memories_that_would_move(look, store, work):
    """Those of subagents with `memory: local` would: where a project has some, no memory gets another place."""
    (work / ".claude" / "agent-memory-local").mkdir(parents=True)
    assert look(store).memory is None
