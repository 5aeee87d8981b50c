"""Where the system could not look, nobody learns that there is nothing.

A host without descriptors, or whose network disk is away for a moment, gets an error: not a turn without the rules of
its user, without the turns that a store lacks, or in another conversation.
"""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from waiting import DEADLINE

import claude_cli_client as client
from claude_cli_client import (
    Client,
    SessionNotFoundError,
    StartError,
    _adopt,
    _regular_file,
    _simple_mode,
    _transcript_file,
    _withheld,
)
from claude_cli_client._config_copy import copy_config
from claude_cli_client._project_folders import repository
from claude_cli_client._project_key import project_key
from claude_cli_client._settings_file import managed_settings
from claude_cli_client.discovery import start_error
from claude_cli_client.testing import SESSION_ID, init, result

OLDER = "00000000-0000-4000-8000-000000000002"
FAILURES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE]
ABSENCES = [
    errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM,
    errno.EISDIR, errno.EINVAL, errno.ENXIO,  # a folder, a pipe, a socket
]  # fmt: skip


def line(session_id, **more):
    entry = {"type": "user", "uuid": session_id, "parentUuid": None, "message": {"role": "user", "content": "hi"}}
    return json.dumps({**entry, **more}) + "\n"


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A configuration folder with two sessions of `tmp_path`, of which one has a subagent; and settings."""
    config = tmp_path / "config"
    project = config / "projects" / project_key(os.path.realpath(tmp_path))
    agents = project / SESSION_ID / "subagents"
    agents.mkdir(parents=True)
    (agents / "agent-a.jsonl").write_text(line(SESSION_ID))
    (agents / "agent-a.meta.json").write_text("{}")
    for number, name in enumerate((OLDER, SESSION_ID)):
        path = project / f"{name}.jsonl"
        path.write_text(line(name, cwd=os.path.realpath(tmp_path)))
        os.utime(path, (number, number))
    (config / "settings.json").write_text('{"permissions": {"deny": ["Bash"]}}')
    monkeypatch.chdir(tmp_path)
    return config


@pytest.fixture
def fails(monkeypatch):
    """`fails(number, ending)`: from now on, what is opened with a name that ends so fails so."""

    def begin(number, ending):
        def function(real):
            def refuse(path, *args, **named):
                if isinstance(path, (str, os.PathLike)) and os.fspath(path).endswith(ending):
                    raise OSError(number, os.strerror(number), path)
                return real(path, *args, **named)

            return refuse

        for name in ("open", "stat", "lstat", "scandir", "listdir"):
            monkeypatch.setattr(os, name, function(getattr(os, name)))

    return begin


def copied(config, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    copy_config({"CLAUDE_CONFIG_DIR": str(config)}, "/", str(target))
    return target


@pytest.mark.parametrize("number", FAILURES)
@pytest.mark.parametrize("name", ["settings.json", ".credentials.json", ".claude.json"])
def test_what_goes_along_with_a_resumed_run(config, tmp_path, fails, number, name):
    """A turn without the user's rules would deny nothing."""
    fails(number, name)
    with pytest.raises(OSError, match=name):
        copied(config, tmp_path)


@pytest.mark.parametrize("number", ABSENCES)
def test_settings_that_are_not_for_us(config, tmp_path, fails, number):
    """What the CLI cannot read either stays behind."""
    fails(number, "settings.json")
    assert os.listdir(copied(config, tmp_path)) == []


@pytest.mark.parametrize("number", FAILURES)
@pytest.mark.parametrize("ending", [f"{SESSION_ID}.jsonl", "agent-a.jsonl", "agent-a.meta.json", "subagents"])
def test_turns_that_a_store_lacks(config, tmp_path, fails, number, ending):
    """They would be left out, and the next one stored in their place: `StartError`, and another try may do."""
    fails(number, ending)
    with pytest.raises(StartError, match="what this disk has of the conversation cannot be read") as caught:
        _adopt.local_transcripts(SESSION_ID, str(tmp_path), str(config))
    assert (caught.value.errno, caught.value.retryable) == (number, True)


@pytest.mark.parametrize("number", ABSENCES)
@pytest.mark.parametrize("ending", ["agent-a.jsonl", "agent-a.meta.json", "subagents"])
def test_turns_beside_what_is_not_for_us(config, tmp_path, fails, number, ending):
    """A subagent that is another user's, as one of root's, costs itself and not the conversation."""
    fails(number, ending)
    found = _adopt.local_transcripts(SESSION_ID, str(tmp_path), str(config))
    assert [entry["uuid"] for entry in found[-1][1]] == [SESSION_ID]


@pytest.mark.parametrize("number", FAILURES)
def test_the_latest_session(config, tmp_path, fails, number):
    """Not the one before it."""
    assert _adopt.local_id(None, str(tmp_path), str(config)) == SESSION_ID
    fails(number, f"{SESSION_ID}.jsonl")
    with pytest.raises(StartError):
        _adopt.local_id(None, str(tmp_path), str(config))


@pytest.mark.parametrize("number", ABSENCES)
def test_the_latest_session_that_can_be_read(config, tmp_path, fails, number):
    """One that is gone, or another user's, is none."""
    fails(number, f"{SESSION_ID}.jsonl")
    assert _adopt.local_id(None, str(tmp_path), str(config)) == OLDER


@pytest.mark.parametrize("number", FAILURES)
def test_a_resume(play, config, tmp_path, fails, number):
    """The caller hears it before anything starts."""
    fake = play(init(), result("x"))
    user = Client(cli_path=fake.path, store=client.MemoryStore(), config_dir=config, cwd=tmp_path)
    fails(number, f"{SESSION_ID}.jsonl")
    with pytest.raises(StartError):
        user.run("p", resume=SESSION_ID)
    assert not fake.calls


def asked(user):
    user.ask("p", hooks=HOOKS)


def opened(user):
    user.session(hooks=HOOKS).close()


def continued(user):
    user.conversation(hooks=HOOKS).ask("p")


HOOKS = {"PreToolUse": [client.HookMatcher("Bash", [lambda call: None])]}
AWAY = [errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN]


@pytest.mark.parametrize("number", FAILURES + AWAY)
@pytest.mark.parametrize("how", [asked, opened, continued])
def test_a_start(play, config, fails, number, how):
    """Each way to start one says with `StartError` which file it was, and that another try may do."""
    fake = play(init(), result("x"))
    user = Client(cli_path=fake.path, config_dir=config)
    fails(number, "settings.json")
    with pytest.raises(StartError, match=r"settings\.json") as caught:
        how(user)
    assert (caught.value.errno, caught.value.retryable) == (number, True)
    assert "working directory" not in str(caught.value)
    assert not fake.calls


def test_a_working_directory_that_is_away():
    """It is named, and is not said to be missing."""
    error = start_error("/bin/sh", OSError(errno.ESTALE, os.strerror(errno.ESTALE), "/net/home"))
    assert "/net/home cannot be looked at now" in str(error)
    assert error.retryable


LOOKS = {
    "hooks": ("settings.json", lambda env: _simple_mode.refuse_hooks({}, env, "/")),
    "copies": ("settings.json", lambda env: _withheld.withheld({}, "/a/b", env, "/")),
    "machine": ("managed-settings.d", lambda env: managed_settings("/etc")),
}


@pytest.mark.parametrize("number", FAILURES)
@pytest.mark.parametrize("look", LOOKS)
def test_settings_that_say_what_may_not_be(config, fails, number, look):
    """Whether hooks run, and whether reading is forbidden somewhere, is not guessed."""
    name, do = LOOKS[look]
    fails(number, name)
    with pytest.raises(OSError, match=name):
        do({"CLAUDE_CONFIG_DIR": str(config)})


@pytest.mark.parametrize("number", FAILURES)
def test_a_list(config, tmp_path, fails, number):
    """One file on a bad disk costs its row; a host without descriptors gets no list that is shorter than it is."""
    fails(number, f"{SESSION_ID}.jsonl")
    if number in (errno.EIO, errno.ESTALE):
        assert [info.session_id for info in client.list_sessions(config_dir=config)] == [OLDER]
    else:
        with pytest.raises(OSError, match=SESSION_ID):
            client.list_sessions(config_dir=config)


@pytest.fixture
def elsewhere(config, tmp_path):
    """A second project, whose folder is a link; its name."""
    (tmp_path / "elsewhere").mkdir()
    (config / "projects" / "-elsewhere").symlink_to(tmp_path / "elsewhere")
    return "-elsewhere"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_project_that_is_another_users(config, tmp_path, fails, elsewhere, number):
    """It costs itself: the others are listed, found, and known to a resume."""
    fails(number, elsewhere)
    assert [info.session_id for info in client.list_sessions(config_dir=config)] == [SESSION_ID, OLDER]
    assert client.get_session(OLDER, config_dir=config) is not None
    assert _adopt.local_transcripts(OLDER, "/another", str(config))


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, *AWAY])
def test_a_project_on_a_disk_that_is_away(config, fails, elsewhere, number):
    """It costs itself in a list; whether a session is there, a resume does not guess."""
    fails(number, elsewhere)
    assert [info.session_id for info in client.list_sessions(config_dir=config)] == [SESSION_ID, OLDER]
    with pytest.raises(StartError, match=elsewhere):
        _adopt.local_transcripts(OLDER, "/another", str(config))


def test_projects_that_are_closed_to_us(config, fails):
    """No empty list: it would be a lie."""
    (project,) = os.listdir(config / "projects")
    fails(errno.EACCES, project)
    with pytest.raises(PermissionError):
        client.list_sessions(config_dir=config)


@pytest.mark.parametrize("number", FAILURES)
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_project(config, tmp_path, fails, number, everywhere):
    """Asked for, it is not empty; one of many costs itself, but where the host has no descriptors."""
    fails(number, project_key(os.path.realpath(tmp_path)))
    if everywhere and number in (errno.EIO, errno.ESTALE):
        assert client.list_sessions(config_dir=config) == []
        return
    with pytest.raises(OSError, match="projects") as caught:
        client.list_sessions(None if everywhere else tmp_path, config_dir=config)
    assert caught.value.errno == number


@pytest.mark.parametrize("number", FAILURES)
@pytest.mark.parametrize("of", ["a project", "a file"])
def test_a_list_that_ends_too_soon(config, tmp_path, monkeypatch, number, of):
    """The same where it breaks off: in the list of a project's files, or where the state of one is asked for."""
    real, key = os.scandir, project_key(os.path.realpath(tmp_path))

    def refuse(*_):
        raise OSError(number, os.strerror(number), SESSION_ID)

    def scandir(path):
        if not os.fspath(path).endswith(key):
            return real(path)
        return refuse() if of == "a project" else [SimpleNamespace(name=f"{SESSION_ID}.jsonl", stat=refuse)]

    monkeypatch.setattr(os, "scandir", scandir)
    if number in (errno.EIO, errno.ESTALE):
        assert client.list_sessions(config_dir=config) == []
    else:
        with pytest.raises(OSError, match=SESSION_ID):
            client.list_sessions(config_dir=config)
    with pytest.raises(StartError):
        _adopt.local_id(None, str(tmp_path), str(config))


@pytest.mark.parametrize("number", [*FAILURES, errno.ENOENT])
def test_a_list_with_those_of_worktrees(config, tmp_path, monkeypatch, number):
    """Without git they are not looked for; a host that cannot start it gets no list that is shorter than it is."""

    def refuse(*_, **named):
        raise OSError(number, os.strerror(number), "git")

    monkeypatch.setattr(subprocess, "run", refuse)
    if number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        with pytest.raises(OSError, match="git"):
            client.list_sessions(tmp_path, config_dir=config)
    else:
        assert len(client.list_sessions(tmp_path, config_dir=config)) == 2


@pytest.mark.parametrize("number", FAILURES)
def test_a_repository(tmp_path, fails, number):
    """A worktree would have a memory of its own."""
    (tmp_path / ".git").write_text("gitdir: x\n")
    fails(number, "commondir")
    with pytest.raises(OSError, match="commondir"):
        repository(str(tmp_path))


@pytest.mark.parametrize("number", FAILURES)
@pytest.mark.parametrize("session_id", [SESSION_ID, OLDER])
def test_a_deletion(config, fails, number, session_id):
    """The caller would hear that there is nothing to delete, or that it is done."""
    fails(number, f"{session_id}.jsonl")
    with pytest.raises(OSError, match=session_id):
        client.delete_session(session_id, config_dir=config)


# --- what would be waited for, and what changes meanwhile


@pytest.mark.timeout(20)
def test_a_worktree_that_leads_to_a_pipe(tmp_path):
    """As an unpacked archive may hold it: nobody may ever write into it, and no limit holds where it is read."""
    (tmp_path / ".git").write_text("gitdir: x\n")
    (tmp_path / "x").mkdir()
    os.mkfifo(tmp_path / "x" / "commondir")
    assert repository(str(tmp_path)) == str(tmp_path)


def test_the_beginning_of_a_file(tmp_path):
    """Whoever wants that alone gets no more, however long the file is."""
    (tmp_path / "file").write_bytes(b"abcd")
    assert _regular_file.content(str(tmp_path / "file"), 3) == b"abc"


def test_a_pipe_leaves_no_descriptor(tmp_path):
    """It is opened to see what it is."""
    os.mkfifo(tmp_path / "pipe")
    before = os.listdir("/dev/fd")
    with pytest.raises(OSError, match="not a regular file"):
        _regular_file.content(str(tmp_path / "pipe"))
    assert len(os.listdir("/dev/fd")) == len(before)


@pytest.mark.parametrize("first", ["{", '{"model": "m"}'])
def test_settings_that_are_written_just_now(config, tmp_path, monkeypatch, first):
    """They are read once, and that goes along, whole or half: a second look may see something else."""
    path = config / "settings.json"
    path.write_text(first)
    opened = _regular_file.opened

    def then_changed(name, flags=os.O_RDONLY):
        fd = opened(name, flags)
        if name == str(path):
            path.unlink()  # as a program that replaces it does
            path.write_text('{"model": "m"}' if first == "{" else "{")
        return fd

    monkeypatch.setattr(_regular_file, "opened", then_changed)
    assert (copied(config, tmp_path) / "settings.json").read_text() == first


@pytest.fixture
def another_deletes(monkeypatch):
    """Each file is removed by somebody else, the moment before we do it."""
    unlink = os.unlink

    def after_the_other_one(path, **named):
        unlink(path, **named)
        unlink(path, **named)

    monkeypatch.setattr(os, "unlink", after_the_other_one)


@pytest.mark.usefixtures("another_deletes")
def test_two_deletions_at_once(config):
    """What another one has removed meanwhile is no error, and what it has left is removed."""
    project = next((config / "projects").iterdir())
    _transcript_file.remove(str(project / f"{SESSION_ID}.jsonl"))
    assert sorted(os.listdir(project)) == [f"{OLDER}.jsonl"]


@pytest.mark.usefixtures("another_deletes")
def test_two_deletions_of_a_link_at_once(config, tmp_path):
    """Nor where the session's folder is a link, which is not followed."""
    project = next((config / "projects").iterdir())
    shutil.move(project / SESSION_ID, tmp_path / "elsewhere")
    (project / SESSION_ID).symlink_to(tmp_path / "elsewhere")
    _transcript_file.remove(str(project / f"{SESSION_ID}.jsonl"))
    assert sorted(os.listdir(project)) == [f"{OLDER}.jsonl"]
    assert os.listdir(tmp_path / "elsewhere") == ["subagents"]


@pytest.mark.timeout(20)
def test_a_name_that_cannot_be_removed(config, monkeypatch):
    """A disk that lists what it then does not have: the deletion ends, and says so."""
    project = next((config / "projects").iterdir())
    unlink = os.unlink

    def refuse(path, **named):
        if os.fspath(path).endswith("agent-a.jsonl"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        unlink(path, **named)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(OSError, match="not empty"):
        _transcript_file.remove(str(project / f"{SESSION_ID}.jsonl"))


def test_many_deletions_at_once(config):
    """Each ends well, or finds nothing to delete."""
    project = next((config / "projects").iterdir())
    for number in range(200):
        (project / SESSION_ID / "subagents" / f"agent-{number}.jsonl").write_text("{}\n")
    barrier = threading.Barrier(4, timeout=DEADLINE)

    def delete(_):
        barrier.wait()
        with contextlib.suppress(SessionNotFoundError):
            client.delete_session(SESSION_ID, config_dir=config)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(delete, range(4)))
    assert sorted(os.listdir(project)) == [f"{OLDER}.jsonl"]
