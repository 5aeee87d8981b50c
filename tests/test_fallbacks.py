"""What the library does where the system lacks something, or somebody else gets in its way."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hosts import GONE, ROOT, Host, gone, process
from waiting import is_running, until

from claude_cli_client import Client, ProcessError, StartError, TurnCancelled, _cleanup, _process, _sync
from claude_cli_client.options import MARKER
from claude_cli_client.testing import (
    FakeCLI,
    die_by,
    exit_with,
    hang,
    ignore_term,
    init,
    ready,
    result,
    start_child,
    text,
    wait_for,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="takes away what only Linux has")
Patch = pytest.MonkeyPatch


def refuse(number: int) -> Callable[..., int]:
    def refused(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    return refused


def without_pidfd(patch: Patch, _: Path) -> None:
    patch.delattr(os, "pidfd_open")


def with_a_refused_pidfd(patch: Patch, _: Path) -> None:
    patch.setattr(os, "pidfd_open", refuse(errno.ENOSYS))


def without_memfd(patch: Patch, _: Path) -> None:
    patch.delattr(os, "memfd_create")


def with_a_refused_memfd(patch: Patch, _: Path) -> None:
    patch.setattr(os, "memfd_create", refuse(errno.EPERM))


def without_eventfd(patch: Patch, _: Path) -> None:
    patch.delattr(os, "eventfd")


def without_proc(patch: Patch, empty: Path) -> None:
    patch.setattr(_cleanup, "PROC", str(empty))


def without_anything(patch: Patch, empty: Path) -> None:
    for lack in (without_pidfd, without_memfd, without_eventfd, without_proc):
        lack(patch, empty)


LACKS = [
    without_pidfd,
    with_a_refused_pidfd,
    without_memfd,
    with_a_refused_memfd,
    without_eventfd,
    without_proc,
    without_anything,
]


@pytest.fixture(params=LACKS, ids=lambda lack: lack.__name__)
def lack(request: pytest.FixtureRequest, monkeypatch: Patch, tmp_path: Path) -> str:
    """One thing after the other that this system lacks; its name."""
    empty = tmp_path / "empty"
    empty.mkdir()
    request.param(monkeypatch, empty)
    return str(request.param.__name__)


@linux
def test_a_turn_has_its_answer_and_exit_code(lack: str, play: Callable[..., FakeCLI]) -> None:
    """A prompt of any size goes in, the answer and the code come out, twice."""
    fake = play(init(), text("a"), result("done"), exit_with(3))
    client = Client(cli_path=fake.path)
    prompt = "long " * 100_000
    for _ in range(2):
        with client.run(prompt) as run:
            assert [event.type for event in run] == ["system", "text", "result"]
            assert (run.result().result, run.exit_code) == ("done", 3)
    assert [call.prompt == prompt for call in fake.calls] == [True, True]


@linux
def test_the_death_of_the_cli_is_noticed(lack: str, play: Callable[..., FakeCLI]) -> None:
    """A CLI that dies without a word ends the run at once, with its signal."""
    fake = play(init(), die_by(signal.SIGKILL))
    with Client(cli_path=fake.path).run("x") as run, pytest.raises(ProcessError) as caught:
        run.result(timeout=GONE)
    assert caught.value.exit_code == -signal.SIGKILL


@linux
def test_a_resisting_cli_and_its_tools_are_ended(
    lack: str, play: Callable[..., FakeCLI], graces: Callable[..., None]
) -> None:
    """TERM, then KILL for the group and for the tools in sessions of their own."""
    graces(term=0.1)
    children = [start_child("group", ignore_term=True), start_child("session", ignore_term=True)]
    if "proc" not in lack and lack != "without_anything":
        children.append(start_child("detached", ignore_term=True))  # its parent is gone: the marker alone tells
    fake = play(init(), ignore_term(), *children, ready("up"), hang())
    with Client(cli_path=fake.path).run("x") as run:
        fake.wait("up")
        run.cancel()
        with pytest.raises(TurnCancelled):
            run.result(timeout=GONE)
    gone(fake)


@linux
def test_a_cancel_before_the_reader_waits_is_seen(lack: str, play: Callable[..., FakeCLI]) -> None:
    """Many quick cancels: none is lost, whatever the wake-up is made of."""
    fake = play(init(), hang())
    client = Client(cli_path=fake.path)
    for _ in range(10):
        run = client.run("x")
        run.cancel()
        with pytest.raises(TurnCancelled):
            run.result(timeout=GONE)


def test_the_wake_up_takes_any_number_of_sets(monkeypatch: Patch) -> None:
    """A pipe that is full of wake-ups blocks nobody."""
    monkeypatch.delattr(os, "eventfd", raising=False)
    wake = _sync.WakeUp()
    wake.set()  # not open yet: nothing happens
    wake.open()
    for _ in range(20_000):
        wake.set()
    wake.clear()
    wake.close()
    wake.set()  # closed: nothing happens
    wake.close()


def test_a_pipe_that_cannot_be_made_leaves_nothing(play: Callable[..., FakeCLI], monkeypatch: Patch) -> None:
    """No thread for the exit watch: the process that was just started is ended, the slot is free."""
    monkeypatch.setattr(_process, "_watch", lambda *_: (_ for _ in ()).throw(RuntimeError("no thread")))
    fake = play(init(), start_child("group"), hang())
    client = Client(cli_path=fake.path, max_concurrent=1)
    for _ in range(3):
        with pytest.raises(StartError, match="no thread"):
            client.run("x")
    gone(fake)


# --- somebody else reaps --------------------------------------------------------------------------

IGNORED = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
LOOP = """
def reap_all():
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(0.0005)
thread(reap_all, daemon=True)
"""


@linux
@pytest.mark.parametrize("pidfd", [True, False], ids=["pidfd", "no pidfd"])
@pytest.mark.parametrize("reaper", [IGNORED, LOOP], ids=["SIGCHLD ignored", "waitpid(-1)"])
def test_somebody_else_reaps(reaper: str, pidfd: bool) -> None:
    """Answers come, runs end at once, what is left is found by its marker; only the code is unknown."""
    scripts = [
        [init(), text("a"), result("done")],
        [init(), exit_with(9)],
        [init(), start_child("session", ignore_term=True), ready("up"), hang()],
        [init(), result("last")],
    ]
    with (
        FakeCLI(scripts=scripts) as fake,
        Host(
            reaper
            + ("" if pidfd else "\ndel os.pidfd_open\n")
            + textwrap.dedent(
                """
                def code(run):
                    assert run.exit_code is None or ours, run.exit_code
                ours = "reap_all" in globals()      # a loop does not win every time
                with client.run("x") as run:
                    assert run.result().result == "done"
                    code(run)
                with client.run("x") as run:
                    assert [event.type for event in run] == ["system", "error"]
                    assert isinstance(run.error(), ProcessError)
                    code(run)
                with client.run("x") as run:
                    hear("up")
                    run.cancel()
                    assert [event.type for event in run] == ["system", "error"]
                say(client.ask("x").result)
                say(len(_cleanup.live), len(client._pool._held))
                """
            ),
            fake,
        ) as host,
    ):
        fake.wait("up")
        host.tell("up")
        assert host.lines() == ["last", "0 0"], host.complaints()
        assert host.end() == 0, host.complaints()
        gone(fake)


# --- the exit hook --------------------------------------------------------------------------------


def test_without_the_hook_of_threading_atexit_ends_the_runs() -> None:
    """`threading._register_atexit` is not public: where it is gone, `atexit` does it."""
    with (
        FakeCLI([init(), start_child("session"), ready("up"), hang()]) as fake,
        Host(
            """
            runs = [client.run("x") for _ in range(4)]
            thread(list, runs[0], daemon=True)
            hear("go")
            """,
            fake,
            first="import threading; del threading._register_atexit\n",
            env={"CLAUDE_CLI_CLIENT_GUARD": "0"},
        ) as host,
    ):
        fake.wait("up", count=4)
        host.tell("go")
        assert host.end(GONE) == 0, host.complaints()
        gone(fake)


# --- places ---------------------------------------------------------------------------------------


def module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(names)
    return made


PLACES = [
    ("gevent.monkey", {"is_module_patched": lambda name: name == "threading"}, "gthread"),
    ("eventlet.patcher", {"is_monkey_patched": lambda name: name == "thread"}, "threaded worker"),
    ("uwsgi", {"opt": {"http": b":80"}}, "--enable-threads"),
    ("uwsgi", {"opt": {b"master": True}}, "--enable-threads"),
]


@pytest.mark.parametrize(("name", "names", "remedy"), PLACES)
def test_unfit_places_are_refused_with_the_remedy(
    monkeypatch: Patch, name: str, names: dict[str, Any], remedy: str
) -> None:
    """`Client()` raises, before anything is started, and says what to do."""
    monkeypatch.setitem(sys.modules, name, module(name, **names))
    with pytest.raises(RuntimeError, match=remedy):
        Client()


FIT = [
    ("gevent.monkey", {"is_module_patched": lambda name: False}),
    ("eventlet.patcher", {"is_monkey_patched": lambda name: False}),
    ("uwsgi", {"opt": {"enable-threads": True}}),
    ("uwsgi", {"opt": {b"threads": b"4"}}),
    ("uwsgi", {}),
]


@pytest.mark.parametrize(("name", "names"), FIT)
def test_what_only_looks_like_an_unfit_place_is_none(monkeypatch: Patch, name: str, names: dict[str, Any]) -> None:
    """A library that is imported and patches nothing, and uWSGI with threads, are fine."""
    monkeypatch.setitem(sys.modules, name, module(name, **names))
    Client()


def test_windows_is_refused() -> None:
    """With a hint at WSL, and not by the first name that is missing there. The import works."""
    program = f"""
import os, select, signal, sys
sys.path.insert(0, {str(ROOT)!r})
import subprocess, threading, json, queue, dataclasses, selectors, typing  # theirs, as they are on this system
for module, names in {{
    os: "fork forkpty register_at_fork killpg getuid pidfd_open eventfd memfd_create waitid WNOHANG P_PID setsid",
    select: "poll epoll kqueue POLLIN POLLHUP POLLERR",
    signal: "SIGKILL SIGHUP pthread_sigmask pidfd_send_signal",
}}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
os.name = "nt"
from claude_cli_client import Client
try:
    Client()
except RuntimeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "WSL" in done.stdout, done.stderr


def test_a_subinterpreter_is_refused_and_may_import() -> None:
    """Importing there works; `Client()` says that the main interpreter is needed."""
    program = f"""
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
inner = '''
import sys
sys.path.insert(0, {str(ROOT)!r})
from claude_cli_client import Client
import os
try:
    Client()
except RuntimeError as error:
    os.write(1, str(error).encode() + b"\\\\n")
'''
identity = interpreters.create()
interpreters.run_string(identity, inner)
interpreters.destroy(identity)
say("main", Client() is not None)
"""
    with Host(program) as host:
        lines = host.lines()
        assert host.end() == 0, host.complaints()
        assert "main interpreter" in lines[0], host.complaints()
        assert lines[1:] == ["main True"]


# --- runs inside of runs --------------------------------------------------------------------------


@linux
def test_the_marker_is_a_list_of_runs(play: Callable[..., FakeCLI], monkeypatch: Patch) -> None:
    """The outer run's sweep finds what the inner run started; the inner sweep leaves the outer alone."""
    outer = os.urandom(16).hex()
    monkeypatch.setenv(MARKER, outer)
    fake = play(init(), start_child("detached"), ready("up"), hang())
    with process("sleep", "60") as of_outer_alone, Client(cli_path=fake.path).run("x") as run:
        fake.wait("up")
        inner = run._channel.launch.run_id
        assert fake.calls[0].env[MARKER] == f"{outer}:{inner}"
        until(lambda: of_outer_alone.pid in _cleanup._look_for(outer)[0])
        assert sorted(_cleanup._look_for(inner)[0]) == sorted(fake.alive())
        assert sorted(_cleanup._look_for(outer)[0]) == sorted([*fake.alive(), of_outer_alone.pid])
        _cleanup.sweep(inner)
        gone(fake)
        assert of_outer_alone.poll() is None
        _cleanup.sweep(outer)
        assert of_outer_alone.wait(GONE) == -signal.SIGKILL


@linux
def test_cancelling_a_run_ends_the_runs_inside_of_it(tmp_path: Path) -> None:
    """A tool of the outer CLI uses this library; its CLI is in another session and has no guard."""
    inner = tmp_path / "inner.py"
    with FakeCLI([init(), ignore_term(), start_child("detached", ignore_term=True), ready("up"), hang()]) as fake:
        inner.write_text(f"from claude_cli_client import Client\nClient(cli_path={str(fake.path)!r}).ask('x')\n")
        outer = tmp_path / "outer"
        outer.write_text(f"#!/bin/sh\nexec {sys.executable} {inner}\n")
        outer.chmod(0o700)
        env = {"PYTHONPATH": str(ROOT), "CLAUDE_CLI_CLIENT_GUARD": "0"}
        with Client(cli_path=outer).run("x", env=env) as run:
            fake.wait("up")
            assert all(is_running(pid) for pid in fake.alive())
            run.cancel()
            with pytest.raises(TurnCancelled):
                run.result(timeout=GONE)
        gone(fake)


# --- what is not what it was ----------------------------------------------------------------------


def test_without_proc_a_number_given_to_somebody_else_is_not_killed(monkeypatch: Patch, tmp_path: Path) -> None:
    """`ps` says when a process started: another time is another process."""
    without_proc(monkeypatch, tmp_path)
    with subprocess.Popen(["sleep", "100"]) as child:
        (found,) = [one for one in _cleanup.descendants(os.getpid()) if one[0] == child.pid]
        assert found[1]
        _cleanup.kill([(child.pid, "Thu Jan  1 00:00:00 1970")])
        assert child.poll() is None
        _cleanup.kill([found])
        assert child.wait(10) == -signal.SIGKILL


def test_a_start_that_cannot_be_undone(monkeypatch: Patch, tmp_path: Path) -> None:
    """A child that no signal of ours reaches (`sudo`): it is reaped when it has ended, and nobody waits for it."""

    def refuse_to_watch(pid: int, wake: object) -> None:
        raise OSError(errno.EMFILE, "no descriptors")

    monkeypatch.setattr(_process, "_watch", refuse_to_watch)
    monkeypatch.setattr(_process, "_DYING", 0.05)
    monkeypatch.setattr(_process.Process, "signal_group", lambda process, number: None)
    program = ["/bin/sh", "-c", "read line"]
    read_fd, write_fd = os.pipe()
    monkeypatch.setattr(_process, "anonymous_file", lambda content: read_fd)
    with pytest.raises(OSError, match="no descriptors"):
        _process.Process(program, env={}, cwd=None, stdin=b"", wake=bool)
    (late,) = _cleanup.late
    os.close(write_fd)
    until(late.reap)
    _cleanup.reap_late()
    assert _cleanup.late == []


def test_a_host_that_closes_what_is_not_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """`os.closerange` in the middle of a turn: the run ends, its slot is free, its private files are gone."""
    with FakeCLI([init(), wait_for("go"), text("x"), hang()]) as fake:
        client = Client(cli_path=fake.path, max_concurrent=1)
        run = client.run("p", system_prompt="x" * 200_000)
        next(run)
        (reader,) = [thread for thread in threading.enumerate() if thread.name == f"claude-{run.pid}-reader"]
        folder = run._channel.folder._path
        assert folder
        assert os.path.exists(folder)
        os.close(run._channel.wake.fd)
        run.cancel()  # which cannot wake the reader any more; the next line does
        fake.release("go")
        run.close()
        assert not os.path.exists(folder)
        assert client._pool._held == set()
        until(lambda: not fake.alive())
    reader.join(10)  # it logs when everybody has been told
    assert "the reader of a run failed" in caplog.text
    caplog.clear()
