"""What a signal handler of the host's raises comes out of whatever it meets.

Handlers run on the main thread in the middle of whatever is there. So the test lets a function raise as the handler
of a job's limit would, at each place where one of ours takes an OSError for an answer. That there are no other
such places is a matter of `test_architecture.py`.
"""

import os
import subprocess
from types import SimpleNamespace

import pytest

import claude_cli_client as client
from claude_cli_client import (
    Client,
    MemoryStore,
    SessionKey,
    SQLiteStore,
    _exec_errors,
    _named_files,
    _project_folders,
    _settings_file,
    _simple_mode,
    discovery,
)
from claude_cli_client._sync import WakeUp

SESSION = "00000000-0000-4000-8000-000000000001"
LINE = b'{"type":"user","uuid":"%s","parentUuid":null,"message":{"role":"user","content":"hi"}}\n' % SESSION.encode()
MAIN, AGENT, ABOUT = f"{SESSION}.jsonl", "agent-a.jsonl", "agent-a.meta.json"
PROJECT = "-project"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The working directory: with sessions, a store, a worktree, settings, and files that are no programs."""
    monkeypatch.chdir(tmp_path)
    agents = tmp_path / "config" / "projects" / PROJECT / SESSION / "subagents"
    agents.mkdir(parents=True)
    for path in (agents.parents[1] / MAIN, agents / AGENT):
        path.write_bytes(LINE)
    (tmp_path / "worktree").mkdir()
    (tmp_path / "worktree" / ".git").write_text("gitdir: ../.git/worktrees/worktree\n")
    (tmp_path / "settings.json").write_text("{}")
    (tmp_path / "program").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "program").chmod(0o755)
    (tmp_path / "elf").write_bytes(b"\x7fELF\x02\x01".ljust(200, b"\0"))
    return tmp_path


def late(*_, **__):
    """As the handler of a SIGALRM does: an OSError, but of no system call."""
    raise TimeoutError("job took too long")


def late_at(monkeypatch, holder, name, suffix):
    """Let this function raise so: where its first argument is a path that ends so, "" for always."""
    real = getattr(holder, name, open)

    def function(path="", *args, **named):
        return late() if os.fspath(path).endswith(suffix) else real(path, *args, **named)

    monkeypatch.setattr(holder, name, function if suffix else late, raising=False)


def entry_that_is_late(monkeypatch):
    real, entry = os.scandir, SimpleNamespace(name=MAIN, stat=late)
    monkeypatch.setattr(os, "scandir", lambda path: [entry] if path.endswith(PROJECT) else real(path))
    return client.list_sessions(config_dir="config")


def wake_up():
    wake = WakeUp()
    wake.open()
    try:
        wake.set()
    finally:
        wake.close()


HERE = {"config_dir": "config"}
CASES = {
    # sessions on disk
    "a project": (os, "stat", PROJECT, lambda: client.list_sessions(**HERE)),
    "files": (os, "scandir", PROJECT, lambda: client.list_sessions(**HERE)),
    "a file": (os, "open", MAIN, lambda: client.list_sessions(**HERE)),
    "a session": (os, "stat", MAIN, lambda: client.get_messages(SESSION, **HERE)),
    "what is removed": (os, "lstat", MAIN, lambda: client.delete_session(SESSION, **HERE)),
    "a subagent's facts": (os, "open", ABOUT, lambda: client.get_subagent_messages(SESSION, "a", **HERE)),
    "worktrees": (subprocess, "run", "", lambda: client.list_sessions("worktree", **HERE)),
    "a repository": (_project_folders, "_line_of", "", lambda: _project_folders.repository("worktree")),
    "likeness": (
        os.path,
        "realpath",
        "",
        lambda: _project_folders.is_of(_project_folders.Folder("/x", "/a", sure=False), "/b"),
    ),
    # stores
    "a database": (os, "stat", "s.db", lambda: SQLiteStore("s.db").load(SessionKey("p", SESSION))),
    "whose project": (os, "getcwd", "", lambda: Client(cli_path="/bin/true", store=MemoryStore()).run("p")),
    # turns
    "a conversation's folder": (os.path, "abspath", "", lambda: Client(cli_path="/x").conversation(cwd="/").cwd),
    "a cancel": (os, "write", "", wake_up),
    "a path": (os.path, "abspath", "", lambda: _named_files._absolute("cwd", "x")),
    "settings": (_named_files, "read_json", "", lambda: _named_files.settings_of({"settings": "settings.json"})),
    "the user's settings": (_settings_file, "read_json", "", lambda: _simple_mode._json({}, "settings.json")),
    # programs
    "a relative program": (os, "getcwd", "", lambda: discovery._absolute("x")),
    "a program": (os, "stat", "program", lambda: discovery.trouble_with("program")),
    "a refused program": (os, "stat", "program", lambda: _exec_errors._refused("./program")),
    "its disk": (os, "statvfs", "", lambda: _exec_errors._is_noexec("program")),
    "its beginning": (_exec_errors, "open", "program", lambda: _exec_errors._interpreter("program")),
    "its loader": (_exec_errors, "_elf_loader", "", lambda: _exec_errors._interpreter("elf")),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_signal_handler_raises_is_no_answer(place, monkeypatch, name):
    """A job's own limit is not taken for a file that is not there, or for what a store or the system refused."""
    holder, function, suffix, do = CASES[name]
    with monkeypatch.context() as during:
        late_at(during, holder, function, suffix)
        with pytest.raises(TimeoutError, match=r"^job took too long$"):
            do()


def test_what_a_signal_handler_raises_is_no_missing_file(place, monkeypatch):
    """Also while the state of one of many files is asked for."""
    with monkeypatch.context() as during, pytest.raises(TimeoutError, match=r"^job took too long$"):
        entry_that_is_late(during)
