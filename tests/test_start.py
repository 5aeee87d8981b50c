"""What a started CLI gets: environment, folder, prompt, private files; and starts that fail."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import Background, is_running, until, until_gone

from claude_cli_client import (
    Client,
    CLINotFoundError,
    ProcessError,
    StartError,
    ToolServer,
    TurnCancelled,
    TurnTimeout,
    _channel,
    _launch,
    tool,
)
from claude_cli_client.options import MARKER
from claude_cli_client.testing import (
    close_stream,
    exit_with,
    hang,
    ignore_stdin,
    init,
    read_stdin,
    ready,
    result,
    say,
    to_stderr,
    wait_for,
)

TURN = [init(), result("1")]
LONG = "a system prompt " * 10_000  # above what is given as an argument


def ours() -> list[Path]:
    """The library's private folders of this process."""
    return list(Path(tempfile.gettempdir()).glob(f"claude_cli_client-{os.getpid()}-*"))


def mode_of(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


# --- environment


def test_the_marker_is_each_runs_own(play, monkeypatch):
    """An id of 32 hex digits that no two runs share."""
    monkeypatch.delenv(MARKER, raising=False)
    fake = play(*TURN)
    client = Client(cli_path=fake.path)
    client.ask("p")
    client.ask("p")
    first, second = (call.env[MARKER] for call in fake.calls)
    assert first != second
    assert len(first) == len(bytes.fromhex(first)) * 2 == 32


def test_the_marker_is_a_list(play, monkeypatch):
    """A run inside of a run carries both ids, so that the outer one's clean-up finds it."""
    monkeypatch.setenv(MARKER, "outer1:outer2")
    fake = play(*TURN)
    Client(cli_path=fake.path).ask("p")
    ids = fake.calls[0].env[MARKER].split(":")
    assert ids[:2] == ["outer1", "outer2"]
    assert len(ids) == 3


def test_the_environment_is_inherited(play, monkeypatch):
    """By default all of it, beside what we set."""
    monkeypatch.setenv("SOME_KEY", "välue\n2")
    fake = play(*TURN)
    Client(cli_path=fake.path).ask("p")
    env = fake.calls[0].env
    assert env["SOME_KEY"] == "välue\n2"
    assert env["PATH"] == os.environ["PATH"]
    assert env["CLAUDE_CODE_ENTRYPOINT"] == "sdk-cli"
    assert env["DISABLE_AUTOUPDATER"] == "1"


def test_the_overlay_comes_last(play, monkeypatch):
    """`env` replaces what is inherited and what we set, and None removes; a call's is merged over the client's."""
    monkeypatch.setenv("INHERITED", "1")
    monkeypatch.setenv("REMOVED", "1")
    fake = play(*TURN)
    client = Client(cli_path=fake.path, env={"A": "client", "B": "client", "REMOVED": None, "HOME": "/nowhere"})
    client.ask("p", env={"B": "call", "INHERITED": None, "DISABLE_AUTOUPDATER": None, "CLAUDE_CODE_ENTRYPOINT": "mine"})
    env = fake.calls[0].env
    assert (env["A"], env["B"], env["HOME"], env["CLAUDE_CODE_ENTRYPOINT"]) == ("client", "call", "/nowhere", "mine")
    assert not env.keys() & {"INHERITED", "REMOVED", "DISABLE_AUTOUPDATER"}


def test_the_callers_environment_is_not_changed(play, monkeypatch):
    """Neither `os.environ` nor the dict that was given."""
    overlay = {"A": "1", "PATH": os.environ["PATH"]}
    before = dict(os.environ)
    fake = play(*TURN)
    run = Client(cli_path=fake.path, env=overlay).run("p")
    overlay["A"] = "2"
    run.result()
    assert dict(os.environ) == before
    assert fake.calls[0].env["A"] == "1"


def test_without_inheritance(play, monkeypatch):
    """`inherit_env=False` passes on what a program needs to run, and no key."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("SOME_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    fake = play(*TURN)
    Client(cli_path=fake.path, inherit_env=False).ask("p", env={"MINE": "1"})
    env = fake.calls[0].env
    assert not env.keys() & {"ANTHROPIC_API_KEY", "SOME_KEY"}
    assert (env["TERM"], env["LC_TIME"], env["MINE"], env["https_proxy"]) == ("dumb", "C", "1", "http://127.0.0.1:9")
    assert env["PATH"] == os.environ["PATH"]
    assert MARKER in env


@pytest.mark.parametrize("way", ["run", "ask"])
def test_inside_of_another_session(play, monkeypatch, way):
    """The variables of a surrounding Claude Code session are removed; a RuntimeWarning says so, once, at the
    caller's line."""
    monkeypatch.setattr(_launch, "_warned", False)
    nested = {"CLAUDECODE": "1", "CLAUDE_CODE_CHILD_SESSION": "1", "CLAUDE_CODE_SESSION_ID": "x", "CLAUDE_EFFORT": "a"}
    for name, value in nested.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", "kept")
    fake = play(*TURN)
    client = Client(cli_path=fake.path)
    with pytest.warns(RuntimeWarning, match="inside") as caught:
        run = client.run("p") if way == "run" else client.ask("p")
    assert [warning.filename for warning in caught] == [__file__]
    if way == "run":
        run.result()
    client.ask("again")  # not warned a second time: that would be an error here
    for call in fake.calls:
        assert not call.env.keys() & nested.keys()
        assert call.env["CLAUDE_CODE_OAUTH_TOKEN"] == "kept"


def test_the_config_folder_is_absolute(play, tmp_path, monkeypatch):
    """A relative `config_dir` is against our folder, not against the CLI's `cwd`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    fake = play(*TURN)
    Client(cli_path=fake.path, config_dir="conf").ask("p", cwd="elsewhere")
    assert fake.calls[0].env["CLAUDE_CONFIG_DIR"] == str(tmp_path / "conf")
    assert fake.calls[0].cwd == str(tmp_path / "elsewhere")


# --- a throw-away configuration


def isolated_folder(fake) -> Path:
    return Path(fake.calls[0].env["CLAUDE_CONFIG_DIR"])


def test_an_isolated_run_has_a_folder_of_its_own(play):
    """While it runs the folder is there, empty, ours alone; it is gone when the run is done."""
    fake = play(ready("on"), wait_for("end"), *TURN)
    run = Client(cli_path=fake.path, isolated=True).run("p")
    fake.wait("on")
    folder = isolated_folder(fake)
    assert folder.is_absolute()
    assert list(folder.iterdir()) == []
    assert mode_of(folder) == mode_of(folder.parent) == 0o700
    assert folder.parent in ours()
    (folder / "projects").mkdir()
    (folder / "projects" / "a transcript").write_text("x")
    fake.release("end")
    run.result()
    assert not folder.parent.exists()
    assert ours() == []


@pytest.mark.parametrize("end", ["cancel", "close", "drop", "limit", "failure"])
def test_the_throw_away_folder_is_gone_on_every_path(play, clock, end):
    """Whatever ends the run."""
    fake = play(ready("on"), wait_for("end"), exit_with(3))
    run = Client(cli_path=fake.path, isolated=True).run("p", timeout=100)
    fake.wait("on")
    folder = isolated_folder(fake)
    assert folder.is_dir()
    channel = run._channel
    if end == "limit":
        clock.move(200, run)
    elif end == "cancel":
        run.cancel()
    elif end == "close":
        run.close()
    elif end == "drop":
        del run
    elif end == "failure":
        fake.release("end")
    until(lambda: channel.has_ended)
    assert not folder.parent.exists()
    assert ours() == []


def test_isolated_with_a_folder_given(play, tmp_path):
    """`config_dir` is taken as it is, and stays."""
    (tmp_path / "conf").mkdir()
    fake = play(*TURN)
    Client(cli_path=fake.path, isolated=True, config_dir=tmp_path / "conf").ask("p")
    assert isolated_folder(fake) == tmp_path / "conf"
    assert (tmp_path / "conf").is_dir()
    assert ours() == []


def test_what_cannot_be_removed_does_not_break_the_end(play):
    """A tool has made a folder in it that nobody may write to. The run ends; as root it is removed all the same."""
    fake = play(ready("on"), wait_for("end"), *TURN)
    run = Client(cli_path=fake.path, isolated=True).run("p")
    fake.wait("on")
    closed = isolated_folder(fake) / "closed"
    closed.mkdir()
    (closed / "file").write_text("x")
    closed.chmod(0o500)
    fake.release("end")
    assert run.result().result == "1"
    until(lambda: run.done)
    if closed.exists():
        closed.chmod(0o700)
        import shutil

        shutil.rmtree(closed.parent.parent)


# --- long texts


def test_a_long_system_prompt_goes_by_a_private_file(play):
    """Readable by us alone, exact, and gone when the run is done."""
    text = LONG + "ünï\r\n\U0001f600 the end"
    fake = play(ready("on"), wait_for("end"), *TURN)
    run = Client(cli_path=fake.path).run("p", system_prompt=text)
    fake.wait("on")
    (call,) = fake.calls
    path = Path(call.option("--system-prompt-file") or "")
    assert call.option("--system-prompt") is None
    assert path.read_bytes() == text.encode()
    assert mode_of(path) == 0o600
    assert mode_of(path.parent) == 0o700
    assert path.parent.stat().st_uid == os.getuid()
    fake.release("end")
    run.result()
    assert not path.parent.exists()


def test_a_short_one_goes_by_argv(play):
    """No file is made where none is needed."""
    fake = play(*TURN)
    Client(cli_path=fake.path).ask("p", system_prompt="be brief")
    assert fake.calls[0].option("--system-prompt") == "be brief"
    assert ours() == []


@pytest.mark.parametrize(
    ("end", "error"), [("cancel", TurnCancelled), ("limit", TurnTimeout), ("failure", ProcessError)]
)
def test_the_private_file_is_gone_on_every_path(play, clock, end, error):
    """As with the throw-away folder."""
    fake = play(ready("on"), wait_for("end"), exit_with(3))
    run = Client(cli_path=fake.path).run("p", append_system_prompt=LONG, timeout=100)
    fake.wait("on")
    assert len(ours()) == 1
    if end == "cancel":
        run.cancel()
    elif end == "limit":
        clock.move(200, run)
    else:
        fake.release("end")
    with pytest.raises(error):
        run.result()
    assert ours() == []


def test_many_runs_at_once_have_each_their_folder(play):
    """Files of the same name do not meet."""
    fake = play(ready("on"), wait_for("end"), *TURN)
    client = Client(cli_path=fake.path, isolated=True)
    runs = [client.run("p", system_prompt=f"{number}{LONG}") for number in range(4)]
    fake.wait("on", count=4)
    paths = [Path(call.option("--system-prompt-file") or "") for call in fake.calls]
    assert {path.read_text()[0] for path in paths} == set("0123")
    assert len({path.parent for path in paths}) == 4
    fake.release("end")
    for run in runs:
        run.result()
    assert ours() == []


# --- where it runs


def test_the_folder_of_the_process(play, tmp_path):
    """`cwd`, as a path or a text."""
    fake = play(*TURN)
    Client(cli_path=fake.path).ask("p", cwd=tmp_path)
    Client(cli_path=fake.path, cwd=str(tmp_path)).ask("p")
    Client(cli_path=fake.path).ask("p")
    assert [call.cwd for call in fake.calls] == [str(tmp_path), str(tmp_path), os.getcwd()]


def test_a_folder_that_does_not_exist(play, tmp_path):
    """Told before anything starts: the CLI's own error would name something else."""
    fake = play(*TURN)
    for wrong in (tmp_path / "no", fake.path):
        with pytest.raises(ValueError, match="cwd"):
            Client(cli_path=fake.path).run("p", cwd=wrong)
    assert fake.calls == []


def test_a_relative_path_of_the_cli(play, tmp_path, monkeypatch):
    """It is against our folder, also where the process runs in another."""
    fake = play(*TURN)
    monkeypatch.chdir(fake.path.parent)
    client = Client(cli_path=f"./{fake.path.name}")
    assert client.ask("p", cwd=tmp_path).result == "1"
    assert fake.calls[0].cwd == str(tmp_path)


def test_a_command_before_the_cli(play, tmp_path):
    """`command_prefix` is what is started; the CLI's own words follow, and its path is not looked up."""
    fake = play(*TURN)
    seen = tmp_path / "argv"
    wrapper = ["/bin/sh", "-c", f'echo "$0" >{seen}; shift 0; exec {fake.path} "$@"', "claude-in-the-box"]
    client = Client(command_prefix=wrapper, cli_path="/not/here/claude")
    assert client.ask("p", model="sonnet").result == "1"
    assert seen.read_text() == "claude-in-the-box\n"
    assert fake.calls[0].argv[0] == "/not/here/claude"
    assert fake.calls[0].option("--model") == "sonnet"
    assert fake.calls[0].prompt == "p"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", "the file does not exist"),
        ("text", "is not executable"),
        ("folder", "it is a directory"),
        ("damaged", "another processor"),
    ],
)
def test_a_command_that_cannot_be_started(tmp_path, name, why):
    """It is named with its own fault, not as a working directory."""
    (tmp_path / "text").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "damaged").write_bytes(b"\x7fELF")
    (tmp_path / "damaged").chmod(0o755)
    command = str(tmp_path / name)
    with pytest.raises(StartError, match=why) as caught:
        Client(command_prefix=[command, "--"], cli_path="/not/here/claude").ask("p")
    assert str(caught.value).startswith(f"cannot start {command}: ")
    assert caught.value.cli_path == "/not/here/claude"


def test_a_command_before_the_cli_is_ended_with_it(play, tmp_path):
    """The wrapper leads the group; what it started goes with it."""
    fake = play(init(), hang())
    wrapper = ["/bin/sh", "-c", f'{fake.path} "$@"; true', "sh"]
    with Client(command_prefix=wrapper).run("p") as run:
        next(run)
        assert run.pid != fake.calls[0].pid
    until_gone(fake)


# --- the prompt


@pytest.mark.parametrize(
    "prompt",
    ["p", "\ufeffBOM", "a\r\nb\rc\n", "NUL \0 inside", "\U0001f600 e\u0301", "  blanks \n", "-p --model=x", "/x"],
)
def test_the_prompt_arrives_exactly(play, prompt):
    """By stdin, byte for byte, and never by argv."""
    fake = play(*TURN)
    Client(cli_path=fake.path).ask(prompt)
    (call,) = fake.calls
    assert call.stdin == prompt.encode()
    assert prompt not in call.argv


def test_surrogates(play):
    """A pair is the character that it means, a lone one becomes U+FFFD."""
    fake = play(*TURN)
    Client(cli_path=fake.path).ask("a\ud83d\ude00b\ud800c\udc00d")
    assert fake.calls[0].prompt == "a\U0001f600b\ufffdc\ufffdd"


def test_a_large_prompt(play):
    """1 MB, and the 10 MiB that the CLI takes at most."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path)
    for prompt in ("prömpt " * 140_000, "x" * 10 * 1024 * 1024):
        client.ask(prompt)
        assert fake.calls[-1].stdin == prompt.encode()


@pytest.mark.parametrize(
    ("prompt", "error"),
    [("x" * (10 * 1024 * 1024 + 1), ValueError), ("", ValueError), (" \n\t\u3000\ufeff", ValueError), (b"p", TypeError),
     (None, TypeError), (5, TypeError), ([{"text": "x"}], TypeError), ([], ValueError)],
)  # fmt: skip
def test_a_prompt_that_the_cli_would_refuse(play, slots_free, prompt, error):
    """Told before anything starts."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path)
    with pytest.raises(error, match=r"prompt|content block"):
        client.run(prompt)
    assert fake.calls == []
    assert slots_free(client) == 4


@pytest.mark.parametrize("steps", [[ignore_stdin()], [read_stdin(3)], [read_stdin(3), close_stream("stdin")]])
def test_a_cli_that_does_not_read_all_of_its_prompt(play, steps):
    """Nothing breaks and nothing waits: the prompt is a file that is already there."""
    fake = play(*steps, *TURN)
    assert Client(cli_path=fake.path).ask("p" * 5_000_000).result == "1"


def test_stdin_is_a_regular_file_at_its_start(play):
    """A pipe that stays empty for 3 s is an error for the CLI; this never is."""
    fake = play(ignore_stdin(), ready("on"), wait_for("end"), *TURN)
    run = Client(cli_path=fake.path).run("prompt")
    fake.wait("on")
    if sys.platform == "linux":
        assert stat.S_ISREG(os.stat(f"/proc/{run.pid}/fd/0").st_mode)
    fake.release("end")
    run.result()


def files_of(pid: int) -> dict[str, str]:
    """Number -> target of its descriptors; it may close some of its own meanwhile."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            found[fd] = os.readlink(f"/proc/{pid}/fd/{fd}")
    return found


def test_nothing_of_ours_is_inherited(play):
    """The CLI has its three streams and no descriptor more, other runs' least of all."""
    fake = play(ready("on"), wait_for("end"), *TURN)
    client = Client(cli_path=fake.path, isolated=True)
    runs = [client.run("p") for _ in range(3)]
    fake.wait("on", count=3)
    if sys.platform == "linux":
        mine = {os.readlink(f"/proc/self/fd/{fd}") for run in runs for fd in (run._channel.wake.fd,)}
        for call in fake.calls:
            open_files = list(files_of(call.pid).values())
            assert sum(target.startswith("pipe:") for target in open_files) == 2
            assert not [target for target in open_files if "claude_cli_client" in target or "pidfd" in target]
            assert not mine & set(open_files)
    fake.release("end")
    for run in runs:
        run.result()


def test_the_cli_leads_a_session_of_its_own(play):
    """Ctrl-C at a terminal reaches us and not the CLI; one signal reaches its whole group."""
    fake = play(ready("on"), wait_for("end"), *TURN)
    run = Client(cli_path=fake.path).run("p")
    fake.wait("on")
    assert os.getsid(run.pid) == os.getpgid(run.pid) == run.pid
    fake.release("end")
    run.result()


# --- starts that fail


@pytest.fixture
def broken(tmp_path):
    """Programs that cannot be run, by name."""
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o644)
    lost = tmp_path / "lost"
    lost.write_text("#!/not/here/interpreter\n")
    lost.chmod(0o755)
    rubbish = tmp_path / "rubbish"
    rubbish.write_bytes(b"\x7fELFrubbish")
    rubbish.chmod(0o755)
    return {
        "missing": tmp_path / "missing",
        "directory": tmp_path,
        "no run bit": script,
        "missing interpreter": lost,
        "no program": rubbish,
    }


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("missing", CLINotFoundError, "does not exist"),
        ("directory", StartError, "is a directory"),
        ("no run bit", StartError, "chmod"),
        ("missing interpreter", StartError, "/not/here/interpreter"),
        ("no program", StartError, "rubbish"),
    ],
)
@pytest.mark.parametrize("call", ["run", "ask", "map", "check_ready"])
def test_a_cli_that_cannot_be_run(broken, slots_free, name, error, says, call):
    """A typed error at the call, with the path; no slot is lost and no file is left, again and again."""
    client = Client(cli_path=broken[name], max_concurrent=2, isolated=True, system_prompt=LONG)
    attempt = {
        "run": lambda: client.run("p"),
        "ask": lambda: client.ask("p"),
        "map": lambda: next(client.map(["a", "b", "c"])),
        "check_ready": client.check_ready,
    }[call]
    for _ in range(3):
        with pytest.raises(error, match=says) as caught:
            attempt()
        assert str(broken[name]) in str(caught.value)
        assert slots_free(client) == 2
    assert client.totals.turns == 0
    assert client.is_ready() is False
    assert ours() == []


def test_a_start_that_fails_for_want_of_something(play, monkeypatch, slots_free):
    """No process to be had: StartError with the OSError as its cause, worth a retry, and everything given back."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path, isolated=True, line_sink=lambda line: None)
    from claude_cli_client import _process

    def refuse(*args, **named):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    client.ask("p")  # the guard is there
    with monkeypatch.context() as patch:
        patch.setattr(_process.subprocess, "Popen", refuse)
        for _ in range(5):
            with pytest.raises(StartError) as caught:
                client.run("p")
            assert caught.value.errno == errno.EAGAIN
            assert isinstance(caught.value.__cause__, OSError)
            assert caught.value.retryable is True
            assert slots_free(client) == 4
    assert ours() == []
    assert client.ask("p").result == "1"
    assert client.totals.turns == 2


def test_a_start_for_which_no_thread_is_to_be_had(play, monkeypatch, slots_free):
    """The error comes out, and what was taken is given back."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path)

    class NoThread(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(_channel.threading, "Thread", NoThread)
        for _ in range(5):
            with pytest.raises(StartError, match="new thread"):
                client.run("p")
            assert slots_free(client) == 4
    assert fake.calls == []
    assert client.ask("p").result == "1"


def test_a_start_for_which_no_file_can_be_made(play, monkeypatch, slots_free, tmp_path):
    """The folder for temporary files is full or closed: StartError, no slot lost, nothing started."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path, isolated=True)

    def refuse(*args, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", refuse)
        with pytest.raises(StartError) as caught:
            client.run("p")
    assert caught.value.errno == errno.ENOSPC
    assert slots_free(client) == 4
    assert fake.calls == []


def test_a_start_that_fails_while_the_client_is_closed(play, monkeypatch):
    """`close` does not wait for a run that never came to be."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path)
    from claude_cli_client import _process

    entered, released = threading.Event(), threading.Event()

    def refuse_slowly(*args, **named):
        entered.set()
        released.wait(10)
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    client.ask("p")
    with monkeypatch.context() as patch:
        patch.setattr(_process.subprocess, "Popen", refuse_slowly)
        starting = Background(client.run, "p")
        assert entered.wait(10)
        closing = Background(client.close, 60)
        until(lambda: client._pool.closed)
        released.set()
        with pytest.raises(StartError):
            starting.result()
        closing.result()


def test_the_path_is_looked_up_at_each_start(play, tmp_path):
    """The CLI may be installed, moved or updated while a service runs."""
    fake = play(*TURN)
    link = tmp_path / "claude"
    client = Client(cli_path=link)
    with pytest.raises(CLINotFoundError):
        client.ask("p")
    link.symlink_to(fake.path)
    assert client.ask("p").result == "1"
    link.unlink()
    with pytest.raises(CLINotFoundError):
        client.ask("p")


def test_wrong_options_are_told_before_anything_starts(play, slots_free):
    """TypeError for a name, ValueError for a value; no process, no slot."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path)
    for call in (client.run, client.ask, lambda *a, **b: client.map(["p"], **b)):
        with pytest.raises(TypeError, match="cwd"):
            call("p", directory="/")
        with pytest.raises(ValueError, match="max_turns"):
            call("p", max_turns=0)
        with pytest.raises(ValueError, match="timeout"):
            call("p", timeout=-1)
    assert fake.calls == []
    assert slots_free(client) == 4


def test_the_process_runs_when_run_returns(play):
    """`pid` is that of a living process from the first moment on."""
    fake = play(wait_for("end"), *TURN)
    run = Client(cli_path=fake.path).run("p")
    assert is_running(run.pid)
    fake.release("end")
    run.result()


def test_a_long_text_behind_a_command(play):
    """A private file of ours does not exist in a container or on another machine: told before anything starts."""
    fake = play(*TURN)
    with pytest.raises(ValueError, match="command_prefix"):
        Client(cli_path=fake.path).run("p", command_prefix=["/usr/bin/env"], system_prompt=LONG)
    assert fake.calls == []


@pytest.mark.parametrize("option", ["settings", "mcp_servers", "agents"])
@pytest.mark.parametrize("name", ["gone.json", "./gone.json"])
def test_a_file_that_is_not_there(play, option, name):
    """It is told before anything starts, with the option's name; the CLI would pass over some of them."""
    fake = play([result("x")])
    with pytest.raises(ValueError, match=f"{option} names a file that does not exist"):
        Client(cli_path=fake.path).run("x", **{option: name})
    assert fake.calls == []


def test_a_plugin_that_is_not_there(play, tmp_path):
    """Likewise, relative to the folder of the CLI."""
    fake = play(*TURN)
    (tmp_path / "there").mkdir()
    client = Client(cli_path=fake.path, cwd=tmp_path)
    with pytest.raises(ValueError, match="plugin_dirs names what does not exist: 'gone'"):
        client.run("x", plugin_dirs=["there", "gone"])
    assert fake.calls == []
    client.ask("x", plugin_dirs=["there"])


def test_a_rule_that_allows_nothing_is_told(play):
    """By a warning at the line that started the turn."""

    @tool
    def price() -> float:
        """A price."""
        return 1.0

    client = Client(cli_path=play(*TURN).path, mcp_servers={"shop": ToolServer([price])}, allowed_tools=["price"])
    with pytest.warns(UserWarning, match="mcp__shop__price") as told:
        client.ask("x")
    assert told[0].filename == __file__


def test_a_program_that_is_no_claude_leads_to_the_doctor(play):
    """It says nothing of a turn, and refuses in other words. One that began has been Claude Code."""
    for leads, *script in (
        (True, to_stderr("usage: ls"), exit_with(2)),
        (True, exit_with(1)),
        (True, to_stderr("error: no such file: -p\n"), exit_with(2)),
        (True, say("a.txt\n"), to_stderr("Error: b.txt\n"), exit_with(1)),
        (False, init(), exit_with(2)),
        (False, to_stderr("error: unknown option '--foo=1'\n"), exit_with(1)),
        (False, to_stderr("Error: --json-schema is not a valid JSON Schema: data/type\n"), exit_with(1)),
        (False, to_stderr("--agent 'nobody' not found. Available agents: a, b\n"), exit_with(1)),
        (False, to_stderr("a warning\nError: Invalid MCP configuration:\nnot found: x\n"), exit_with(1)),
    ):
        with pytest.raises(ProcessError) as caught:
            Client(cli_path=play(*script).path).ask("x")
        assert ("claude_cli_client doctor" in str(caught.value)) is leads
        assert "doctor" not in caught.value.message


def test_the_reason_of_a_refusal_is_in_the_message(play):
    """What the CLI said last on stderr stands in the message itself, not only among the details."""
    fake = play([to_stderr("a warning\nError: that will not do\n"), exit_with(1)])
    with pytest.raises(ProcessError) as caught:
        Client(cli_path=fake.path).ask("x")
    assert caught.value.message == "the CLI ended without a result (exit code 1): Error: that will not do"


def test_the_reason_of_a_refusal_with_a_hint_behind_it(play):
    """What may be meant stands in a line of its own: both are told."""
    fake = play(to_stderr("error: unknown option '--nope'\n(Did you mean --name?)\n"), exit_with(1))
    with pytest.raises(ProcessError) as caught:
        Client(cli_path=fake.path).ask("p")
    assert caught.value.message.endswith("(exit code 1): error: unknown option '--nope' (Did you mean --name?)")


def test_text_reaches_the_cli_in_the_c_locale(play, tmp_path):
    """UTF-8, though there Python's own encoding of arguments and variables is ASCII: cron gives no locale."""
    fake = play(*TURN)
    (tmp_path / "mü").mkdir()
    code = (
        "import sys; from claude_cli_client import Client\n"
        "assert sys.getfilesystemencoding() == sys.argv[3]\n"
        "client = Client(cli_path=sys.argv[1], name='Gr\\u00fc\\u00dfe', env={'WORD': '\\u00e9'}, cwd=sys.argv[2])\n"
        "assert client.ask('p\\u00e9').result == '1'\n"
    )
    no_locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": os.getcwd()}
    # macOS has UTF-8 in every locale.
    encoding = "utf-8" if sys.platform == "darwin" else "ascii"
    command = [sys.executable, "-c", code, fake.path, str(tmp_path / "mü"), encoding]
    subprocess.run(command, env={**os.environ, **no_locale}, check=True, timeout=60)
    (call,) = fake.calls
    assert "--name=Grüße" in call.argv
    assert call.env["WORD"] == "é"
    assert call.cwd == str(tmp_path / "mü")
    assert call.stdin == "pé".encode()


# --- what is not ours to explain


def _late(*_: object, **__: object) -> None:
    """As a signal handler does in the middle of whatever runs: an OSError, but of no system call."""
    raise TimeoutError("job took too long")


@pytest.mark.parametrize("how", ["run", "session"])
@pytest.mark.parametrize("place", ["prepared", "looked at", "started", "thread"])
def test_what_a_signal_handler_raises_in_a_start_rises(play, monkeypatch, how, place):
    """A `TimeoutError` of the host's is not taken for a start that the system refused."""
    client = Client(cli_path=play(*TURN).path)
    patched = {
        "prepared": (_launch, "locate"),
        "looked at": (os, "stat"),
        "started": (_channel, "take"),
        "thread": (threading.Thread, "start"),
    }
    with monkeypatch.context() as during:
        during.setattr(*patched[place], _late)
        with pytest.raises(TimeoutError, match=r"^job took too long$"):
            client.session() if how == "session" else client.ask("x")


def test_a_runtime_error_of_a_signal_handler_rises(play, monkeypatch):
    """Only Python's own word for want of threads is a failed start."""

    def refuse(thread):
        raise RuntimeError("job took too long")

    client = Client(cli_path=play(*TURN).path)
    with monkeypatch.context() as during:
        during.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match=r"^job took too long$"):
            client.ask("x")
