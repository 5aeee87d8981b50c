"""`~` in every path that a user can give."""

import inspect
import json
import typing
from pathlib import Path

import pytest
from mirror_stores import entry

import claude_cli_client
from claude_cli_client import (
    Client,
    RunOptions,
    SessionKey,
    SQLiteStore,
    delete_session,
    discovery,
    find_cli,
    fork_session,
    get_messages,
    get_session,
    get_subagent_messages,
    list_sessions,
    list_subagents,
    rename_session,
    replay,
    tag_session,
    testing,
)
from claude_cli_client._fake_lines import result_line
from claude_cli_client._project_key import project_key
from claude_cli_client.testing import (
    SESSION_ID,
    FakeCLI,
    SimulatedCLI,
    init,
    result,
    say_capture,
    touch,
)

AGENT = "7"
MESSAGE = {"message": {"role": "user", "content": "Hi."}, "parentUuid": None, "sessionId": SESSION_ID}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with a folder `proj`, a session of it in `conf`, and a recording; the program is elsewhere."""
    for name in ("proj", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.chdir(tmp_path / "elsewhere")
    project = tmp_path / "conf" / "projects" / project_key(str((tmp_path / "proj").resolve()))
    agent = project / SESSION_ID / "subagents" / f"agent-{AGENT}.jsonl"
    agent.parent.mkdir(parents=True)
    for path in (project / f"{SESSION_ID}.jsonl", agent):
        path.write_text(json.dumps(entry(1, **MESSAGE)) + "\n")
    (tmp_path / "turn.jsonl").write_text(json.dumps(result_line("1")) + "\n")
    return tmp_path


def fake_in(directory):
    with FakeCLI([init(), result("1")], directory=directory) as fake:
        return fake.directory.parent


def simulated_in(directory):
    with SimulatedCLI(directory=directory) as fake:
        return fake.directory.parent


def touched(path):
    with FakeCLI([touch(path), init(), result("1")]) as fake:
        Client(cli_path=fake).ask("p")
    return (Path.home() / "new").exists()


def run_by(path):
    """The folder of the fake, linked from the home."""
    with FakeCLI([init(), result("1")]) as fake:
        (Path.home() / "link").symlink_to(fake.directory)
        return Client(cli_path=path).ask("p").result


def found_at(path, look):
    with FakeCLI([]) as fake:
        (Path.home() / "link").symlink_to(fake.directory)
        return look(path)


def listed_in(folder):
    (Path.home() / "conf" / "settings.json").write_text("{}")
    return Client(cli_path="/bin/true", settings_dir=folder).list_settings()


def stored_at(path):
    with SQLiteStore(path) as store:
        return store.path


def count(events):
    with events:
        return len(list(events))


TOLD = {"directory": "~/proj", "config_dir": "~/conf"}
# Whose argument, the path, and what comes of it: it must be as with the whole path.
PLACES = {
    ("Client", "cli_path"): ("~/link/claude", run_by),
    ("Client", "settings_dir"): ("~/conf", listed_in),
    ("FakeCLI", "directory"): ("~/proj", fake_in),
    ("SQLiteStore", "path"): ("~/s.db", stored_at),
    ("SimulatedCLI", "directory"): ("~/proj", simulated_in),
    ("cli_version", "path"): ("~/link/claude", lambda path: found_at(path, discovery.cli_version)),
    ("find_cli", "path"): ("~/link/claude", lambda path: found_at(path, find_cli).name),
    ("known_version", "path"): (
        "~/link/claude",
        lambda path: found_at(path, lambda path: discovery.cli_version(path) and discovery.known_version(path)),
    ),
    ("locate", "path"): ("~/link/claude", lambda path: found_at(path, discovery.locate)),
    ("replay", "path"): ("~/turn.jsonl", lambda path: count(replay(path))),
    ("say_capture", "path"): ("~/turn.jsonl", lambda path: say_capture(path)),
    ("touch", "path"): ("~/new", touched),
}
# In one place, `transcripts._place`: one of them is looked at in the middle of the other.
SESSIONS = {
    list_sessions: lambda **place: [info.cwd for info in list_sessions(**place)],
    get_session: lambda **place: get_session(SESSION_ID, **place).cwd,
    get_messages: lambda **place: len(get_messages(SESSION_ID, **place)),
    list_subagents: lambda **place: list_subagents(SESSION_ID, **place),
    get_subagent_messages: lambda **place: len(get_subagent_messages(SESSION_ID, AGENT, **place)),
    rename_session: lambda **place: rename_session(SESSION_ID, "new", **place),
    tag_session: lambda **place: tag_session(SESSION_ID, "new", **place),
    fork_session: lambda **place: bool(fork_session(SESSION_ID, **place)),
    delete_session: lambda **place: delete_session(SESSION_ID, **place),
}
# With tests in `test_named_files.py`.
OPTIONS = {
    "add_dirs", "agents", "append_system_prompt", "config_dir", "cwd", "debug_file", "mcp_servers", "plugin_dirs",
    "settings", "system_prompt",
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_a_tilde_is_the_home(home, place):
    """In each argument that is a path."""
    path, do = PLACES[place]
    outcomes = []
    for given in (path, path.replace("~", str(home)), Path(path)):
        outcomes.append(do(given))
        for name in ("new", "link"):
            (home / name).unlink(missing_ok=True)
    assert outcomes[0]
    assert outcomes[1:] == [outcomes[0]] * 2


@pytest.mark.parametrize("function", SESSIONS, ids=lambda function: function.__name__)
def test_sessions_of_a_tilde(home, function):
    """Both of a directory and of a configuration folder."""
    SESSIONS[function](**TOLD)
    assert function not in (list_sessions, get_session) or str(home / "proj") in SESSIONS[function](**TOLD)
    assert list((home / "elsewhere").iterdir()) == []


def test_sessions_of_a_tilde_in_a_store(home):
    """There the directory is all."""
    with SQLiteStore(home / "s.db") as store:
        key = SessionKey(project_key(str((home / "proj").resolve())), SESSION_ID)
        store.append(key, [entry(1, **MESSAGE)])
        assert len(list_sessions("~/proj", store=store)) == 1
        assert len(get_messages(SESSION_ID, "~/proj", store=store)) == 1


@pytest.mark.parametrize("where", ["client", "conversation", "turn", "dict"])
def test_a_conversation_in_a_tilde(home, where):
    """Wherever it is said; what is kept of it is the whole path."""
    cwd = {"cwd": "~/proj"}
    with SimulatedCLI() as fake:
        client = Client(cli_path=fake, **(cwd if where == "client" else {}))
        kept = {"session_id": None, **cwd} if where == "dict" else None
        chat = client.conversation(kept, **(cwd if where == "conversation" else {}))
        chat.ask("Hi.", **(cwd if where == "turn" else {}))
        assert fake.calls[0].cwd == str(home / "proj")
        assert where == "turn" or chat.to_dict()["cwd"] == str(home / "proj")


def test_behind_a_prefix(home):
    """The folder in which the prefix runs is one of this disk."""
    with FakeCLI([init(), result("1")]) as fake:
        Client(cli_path=fake, command_prefix=["/usr/bin/env"], cwd="~/proj", config_dir="~/conf").ask("p")
        assert fake.calls[0].cwd == str(home / "proj")
        assert fake.calls[0].env["CLAUDE_CONFIG_DIR"] == str(home / "conf")


@pytest.mark.parametrize(
    "do",
    [
        lambda path: Client(cli_path="/bin/true", cwd=path).ask("p"),
        lambda path: Client(cli_path="/bin/true").conversation(cwd=path).ask("p"),
        lambda path: list_sessions(path),
        lambda path: list_sessions(config_dir=path),
        SQLiteStore,
    ],
)
def test_the_home_of_nobody(home, do):
    """Is none: the error says what begins with it, and how a folder of that name is written."""
    with pytest.raises(ValueError, match=r"begins with ~nobody-17, and nobody knows .* is \./~nobody-17"):
        do("~nobody-17/x")


def test_the_tables_are_complete():
    """Every argument of a public function that may be a path is in one of them, and every option."""
    found = {
        (name, argument)
        for module in (claude_cli_client, discovery, testing)
        for name, value in inspect.getmembers(module, lambda value: inspect.isfunction(value) or inspect.isclass(value))
        if not name.startswith("_") and value.__module__.startswith("claude_cli_client")
        if not typing.is_typeddict(value)
        for argument, given in inspect.signature(value).parameters.items()
        if any(word in str(given.annotation) for word in ("Path", "PathLike"))
    }
    sessions = {(function.__name__, name) for function in SESSIONS for name in TOLD}
    assert found == {*PLACES, *sessions}
    hints = typing.get_type_hints(RunOptions)
    assert {name for name, hint in hints.items() if "PathLike" in str(hint)} == OPTIONS
