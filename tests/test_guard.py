"""The guard: what is left of a host that was killed, and that the guard itself does no harm."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hosts import GONE, Host, dead, gone, guard_of, guards_of, process, read, started
from waiting import is_running, until

from claude_cli_client import Client, _guard, _process
from claude_cli_client.options import MARKER
from claude_cli_client.testing import FakeCLI, exit_with, hang, ignore_term, init, ready, result, start_child, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

DEATHS = {
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "os._exit": "os._exit(0)",
    "SIGTERM without a handler": "os.kill(os.getpid(), signal.SIGTERM)",
}
# What the CLI is in the middle of, and how many runs there are.
SCENES: dict[str, tuple[list[Any], int]] = {
    "one run": ([], 1),
    "eight runs": ([], 8),
    "a child in its group": ([start_child("group", ignore_term=True)], 1),
    "a child in its own session": ([start_child("session", ignore_term=True)], 1),
    "a daemon": ([start_child("detached", ignore_term=True)], 1),
    "all of it, of a CLI that ignores TERM": (
        [
            ignore_term(),
            start_child("group", ignore_term=True),
            start_child("session", ignore_term=True, clear_env=True),  # only its parent tells
            start_child("detached", ignore_term=True),
        ],
        2,
    ),
}


# The last two wait until the CLI's time for its own end is over.
TOGETHER = [
    ("one run", "eight runs"),
    ("a child in its own session", "a daemon"),
    ("a child in its group", "all of it, of a CLI that ignores TERM"),
]


@pytest.mark.parametrize("scenes", TOGETHER, ids="; ".join)
def test_nothing_outlives_a_host_that_dies(scenes: tuple[str, ...]) -> None:
    """CLI, tools and guard are gone soon after the host's death, however it died."""
    with ExitStack() as stack:
        hosts = []
        for (steps, runs), death in itertools.product(map(SCENES.__getitem__, scenes), DEATHS.values()):
            fake = stack.enter_context(FakeCLI([init(), *steps, ready("up"), hang()]))
            host = Host(
                f"""
                runs = [client.run("x") for _ in range({runs})]
                say("running")
                hear("die")
                {death}
                """,
                fake,
            )
            hosts.append((stack.enter_context(host), fake, runs))
        guards = []
        for host, fake, runs in hosts:
            host.expect("running")
            fake.wait("up", count=runs)
            guards.append(guard_of(host))
        for host, _, _ in hosts:
            host.tell("die")
        for host, _, _ in hosts:
            host.end()
        limit = time.monotonic() + GONE * len(DEATHS)  # all at once, and perhaps on one core
        for (_, fake, _), guard in zip(hosts, guards, strict=True):
            gone(fake, limit - time.monotonic())
            dead(guard, limit - time.monotonic())


def test_a_host_killed_before_the_guard_knows_the_pid_leaves_nothing() -> None:
    """The host dies between "begin" and the record of the pid: the marker finds the CLI."""
    with (
        FakeCLI([init(), ignore_term(), ready("up"), hang()]) as fake,
        Host(
            """
            def stuck(pid):
                say("spawned")
                time.sleep(60)
            _cleanup.start_time = stuck
            client.run("x")
            """,
            fake,
        ) as host,
    ):
        host.expect("spawned")
        fake.wait("up")
        host.kill()
        host.end()
        gone(fake)


def test_a_cli_that_appears_after_the_hosts_death_is_found(tmp_path: Path) -> None:
    """A spawn that was under way goes on to its exec; the marker appears only then."""
    run_id = os.urandom(16).hex()
    go = tmp_path / "go"
    sleep = tmp_path / "sleep"  # the guard's own: it takes as long as the test wants
    sleep.write_text(f"#!/bin/sh\nwhile [ ! -e {go} ]; do /bin/sleep 0.01; done\n")
    sleep.chmod(0o700)
    with script(f"{run_id} 0 0\n", path=f"{tmp_path}:/usr/bin:/bin") as (guard, pipe):
        os.close(pipe)
        # It found nothing and has not given up.
        until(lambda: any(b"sleep" in read(f"/proc/{child}/cmdline") for child in children_of(guard.pid)))
        with process("sleep", "60", env=marked(run_id)) as late:
            go.touch()
            assert late.wait(GONE) == -signal.SIGKILL
            assert guard.wait(GONE) == 0


def test_the_private_folder_of_a_killed_host_is_removed(tmp_path: Path) -> None:
    """Long texts stand in a file; it and its folder go with the host."""
    with FakeCLI([init(), ready("up"), hang()]) as fake, Host(LONG_TEXT, fake, env={"TMPDIR": str(tmp_path)}) as host:
        fake.wait("up")
        (folder,) = tmp_path.iterdir()
        assert [path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())] == [0o700, 0o600]
        host.kill()
        host.end()
        gone(fake)
        until(lambda: not list(tmp_path.iterdir()), timeout=GONE)


def test_the_next_host_removes_what_nobody_could(tmp_path: Path) -> None:
    """Without a guard the folder stays; the next host that makes one removes it, and no living one."""
    env = {"TMPDIR": str(tmp_path)}
    with FakeCLI([init(), ready("up"), hang()]) as fake, ExitStack() as stack:
        dying = stack.enter_context(Host(LONG_TEXT, fake, env={**env, "CLAUDE_CLI_CLIENT_GUARD": "0"}))
        fake.wait("up")
        (left,) = tmp_path.iterdir()
        dying.kill()
        dying.end()
        stack.enter_context(Host(LONG_TEXT, fake, env=env))
        fake.wait("up", count=2)
        (first,) = tmp_path.iterdir()
        stack.enter_context(Host(LONG_TEXT, fake, env=env))
        fake.wait("up", count=3)
        assert first in list(tmp_path.iterdir())
        assert left not in list(tmp_path.iterdir())
        assert len(list(tmp_path.iterdir())) == 2


LONG_TEXT = """
run = client.run("x", system_prompt="long " * 50_000)
hear("never")
"""


def status_of(pid: int) -> dict[str, str]:
    return dict(line.split(":", 1) for line in read(f"/proc/{pid}/status").decode().splitlines())


def target_of(link: str) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:  # closed meanwhile
        return ""


def test_what_the_guard_is() -> None:
    """Small, alone in its session, deaf to TERM and HUP, and with no descriptor of the host's but two."""
    with (
        FakeCLI([init(), ready("up"), hang()]) as fake,
        Host("os.dup2(0, 77, inheritable=True); run = client.run('x'); say('running'); hear('never')", fake) as host,
    ):
        host.expect("running")
        guard = guard_of(host)
        deaf_to = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
        mask = sum(1 << number - 1 for number in deaf_to)
        until(lambda: int(status_of(guard)["SigIgn"], 16) & mask == mask, "it has begun")
        for number in deaf_to:
            os.kill(guard, number)
        assert int(status_of(guard)["VmRSS"].split()[0]) < 4096  # kB
        assert os.getsid(guard) == os.getpgid(guard) == guard
        # A shell moves them about while it reads, so it is the files that count.
        opened = {target_of(f"/proc/{guard}/fd/{fd}").split(":")[0] for fd in os.listdir(f"/proc/{guard}/fd")}
        assert opened - {""} == {"/dev/null", "/memfd", "pipe"}
        assert os.readlink(f"/proc/{guard}/cwd") == "/"
        assert MARKER.encode() not in read(f"/proc/{guard}/environ")
        assert is_running(guard)


def test_there_is_one_guard() -> None:
    """Ten runs start it once."""
    with (
        FakeCLI([init(), result("x")]) as fake,
        Host(
            """
            starts = []
            start = _guard._start
            _guard._start = lambda: starts.append(1) or start()
            for _ in range(10):
                client.ask("x")
            say(len(starts))
            hear("end")
            """,
            fake,
        ) as host,
    ):
        host.expect("1")
        guard_of(host)
        host.tell("end")
        assert host.end() == 0


def test_a_guard_that_was_killed_is_replaced_and_knows_the_runs() -> None:
    """The next run starts another, which ends the runs that were in progress too."""
    with (
        FakeCLI([init(), ready("up"), hang()]) as fake,
        Host(
            """
            first = client.run("x")
            say("one")
            hear("next")
            second = client.run("x")
            say("two")
            hear("never")
            """,
            fake,
        ) as host,
    ):
        host.expect("one")
        guard = guard_of(host)
        os.kill(guard, signal.SIGKILL)
        dead(guard)
        host.tell("next")
        host.expect("two")
        assert guard_of(host) != guard
        fake.wait("up", count=2)
        host.kill()
        host.end()
        gone(fake)


def test_the_switch_turns_it_off() -> None:
    """CLAUDE_CLI_CLIENT_GUARD=0: no guard, and runs work."""
    with (
        FakeCLI([init(), result("x")]) as fake,
        Host("say(client.ask('x').result); hear('end')", fake, env={"CLAUDE_CLI_CLIENT_GUARD": "0"}) as host,
    ):
        host.expect("x")
        assert guards_of(host.pid) == []
        host.tell("end")
        assert host.end() == 0


def test_a_guard_that_cannot_be_started_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run goes on; a warning says what is missing, with no lock of ours held."""

    def refuse() -> int:
        raise OSError("no processes left")

    class Asks(logging.Handler):
        free: bool | None = None

        def emit(self, record: logging.LogRecord) -> None:
            self.free = _guard._lock.acquire(blocking=False)
            _guard._lock.release()

    monkeypatch.setattr(_guard, "_is_running", lambda: False)
    monkeypatch.setattr(_guard, "_spawn", refuse)
    monkeypatch.setattr(_guard, "_pipe_fd", -1)
    asks = Asks()
    logging.getLogger("claude_cli_client").addHandler(asks)
    try:
        with FakeCLI([init(), result("x")]) as fake:
            assert Client(cli_path=fake.path).ask("x").result == "x"
        until(lambda: "no processes left" in caplog.text)  # which is asked after `asks`
    finally:
        logging.getLogger("claude_cli_client").removeHandler(asks)
    assert asks.free


@pytest.mark.parametrize("kill_leftovers", [False, True])
def test_after_a_normal_end_the_guard_goes_and_kills_nothing(kill_leftovers: bool) -> None:
    """It is gone with the host; what a turn's tool left running stays."""
    with (
        FakeCLI([init(), start_child("session"), result("x")]) as fake,
        Host(f"client.ask('x', kill_leftovers={kill_leftovers}); say('done'); hear('end')", fake) as host,
    ):
        host.expect("done")
        guard = guard_of(host)
        host.tell("end")
        assert host.end() == 0
        dead(guard)
        if kill_leftovers:  # killed, and nothing tells when it has died of it
            gone(fake)
        else:
            assert [is_running(pid) for pid in fake.children] == [True]


def test_records_are_blank_when_runs_are_over() -> None:
    """A host that dies later takes nobody with it who got the number of one of its CLIs."""
    with FakeCLI([init(), result("x")]) as fake:
        client = Client(cli_path=fake.path)
        for run in [client.run("x") for _ in range(4)]:
            run.result()
        until(lambda: not _guard._places)
        assert os.pread(_guard._records_fd, 1 << 20, 0).strip() == b""


def _is_noted(pid: int) -> bool:
    return f" {pid} {started(pid)} " in os.pread(_guard._records_fd, 1 << 20, 0).decode()


def test_the_leader_is_noted_though_nothing_happens() -> None:
    """A CLI that says nothing is known to the guard soon after its start."""
    with FakeCLI([ready("up"), hang()]) as fake, Client(cli_path=fake.path).run("x") as run:
        until(lambda: _is_noted(run.pid))


def test_a_leader_that_may_hide_is_noted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefix may clear the environment, and with it the marker by which a young one is found."""
    monkeypatch.setattr(_guard, "STARTING", 60.0)
    prefix = ["/usr/bin/env", "-i", "/bin/sh", "-c", "sleep 60; :"]
    with FakeCLI([hang()]) as fake, Client(cli_path=fake.path, command_prefix=prefix).run("x") as run:
        assert _is_noted(run.pid)


def test_a_host_that_dies_right_behind_a_start_leaves_nothing() -> None:
    """Its leader is not noted yet, and is found by the marker."""
    with (
        FakeCLI([init(), ignore_term(), ready("up"), hang()]) as fake,
        Host("_guard.STARTING = 60.0; run = client.run('x'); say(run.pid); hear('never')", fake) as host,
    ):
        leader = int(host.line())
        fake.wait("up")
        host.kill()
        host.end()
        gone(fake)
        dead(leader)


def test_the_leader_is_noted_before_its_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is cancelled right behind its start: the guard could end it as gently as the host."""
    monkeypatch.setattr(_guard, "STARTING", 60.0)
    with FakeCLI([init(), ignore_term(), ready("up"), hang()]) as fake, Client(cli_path=fake.path).run("x") as run:
        fake.wait("up")
        assert not _is_noted(run.pid)
        run.cancel()
        until(lambda: _is_noted(run.pid))
        os.kill(run.pid, signal.SIGKILL)


# --- the script, run by hand ----------------------------------------------------------------------


@contextmanager
def script(
    records: str, *, shell: tuple[str, ...] = ("/bin/sh",), source: str = _guard._SCRIPT, base: str = "/nonexistent",
    path: str = "", **options: Any,
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:  # fmt: skip
    """The guard and the write end of its pipe. It acts when that is closed."""
    records_fd = _process.anonymous_file(records.encode())
    end, pipe = os.pipe()
    guard = subprocess.Popen(
        [*shell, "-c", source, "a guard", base],
        stdin=records_fd,
        stdout=end,
        stderr=subprocess.DEVNULL,
        env={"PATH": path or "/usr/bin:/bin", "LC_ALL": "C"},
        start_new_session=True,
        **options,
    )
    os.close(records_fd)
    os.close(end)
    try:
        with guard:
            yield guard, pipe
    finally:
        guard.kill()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]


def marked(*run_ids: str) -> dict[str, str]:
    return {MARKER: ":".join(run_ids), "PATH": "/usr/bin:/bin"}


def test_a_recycled_pid_is_not_killed() -> None:
    """A record whose start time is not the process's own is about somebody else; the right one counts."""
    with (
        process("sleep", "60", start_new_session=True) as stranger,
        process("sleep", "60", start_new_session=True) as ours,
    ):
        until(lambda: read(f"/proc/{ours.pid}/comm") == read(f"/proc/{stranger.pid}/comm") == b"sleep\n")
        records = [
            f"{os.urandom(16).hex()} {stranger.pid} {int(started(stranger.pid)) - 1}\n",
            f"{os.urandom(16).hex()} {ours.pid} {started(ours.pid)}\n",
        ]
        with script("".join(records)) as (guard, pipe):
            os.close(pipe)
            assert guard.wait(GONE) == 0
        assert ours.wait(GONE) == -signal.SIGTERM
        assert stranger.poll() is None


def test_only_a_whole_element_of_the_marker_counts() -> None:
    """Outer and inner runs are told apart by the list; another variable with the id is not a marker."""
    outer, inner, other = (os.urandom(16).hex() for _ in range(3))
    with (
        process("sleep", "60", env=marked(outer, inner)) as both,
        process("sleep", "60", env=marked(outer)) as alone,
        process("sleep", "60", env=marked(other)) as stranger,
        process("sleep", "60", env={"NOT_IT": inner, "PATH": "/usr/bin:/bin"}) as unrelated,
    ):
        for pid in (both.pid, alone.pid, stranger.pid, unrelated.pid):
            until(lambda pid=pid: read(f"/proc/{pid}/comm") == b"sleep\n")
        with script(f"{inner} {alone.pid} 0\n") as (guard, pipe):  # whose number now is another's
            os.close(pipe)
            assert guard.wait(GONE) == 0
        assert both.wait(GONE) == -signal.SIGKILL
        assert [helper.poll() for helper in (alone, stranger, unrelated)] == [None] * 3


def test_environments_that_cannot_be_read_do_not_hide_the_others() -> None:
    """`grep` fails as soon as it may not read one file; what it found counts all the same."""
    run_id = os.urandom(16).hex()
    as_nobody: dict[str, Any] = {"user": 65534} if os.getuid() == 0 else {}
    with (
        process("sleep", "60", env=marked(run_id), **as_nobody) as ours,
        script(f"{run_id} {ours.pid} 0\n", **as_nobody) as (guard, pipe),  # not by its number
    ):
        os.close(pipe)
        assert guard.wait(GONE) == 0
        assert ours.wait(GONE) == -signal.SIGKILL


def test_blank_records_are_nobodys() -> None:
    """Its host had no runs when it died: nothing to do, whatever the folder holds."""
    with tempfile.TemporaryDirectory() as base:
        kept = Path(base, "claude_cli_client-1-2-" + os.urandom(16).hex())
        kept.mkdir()
        with script(_guard._BLANK.decode() * 3, base=base) as (guard, pipe):
            os.close(pipe)
            assert guard.wait(GONE) == 0
        assert kept.is_dir()


def shells(base: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """Name -> command and PATH. busybox with its own `grep`, `sleep`, `rm` and `ps`."""
    found = {}
    for name, *flags in (["dash"], ["bash", "--posix"], ["ksh"], ["zsh", "--emulate", "sh"]):
        path = shutil.which(name)
        if path:
            found[name] = ((path, *flags), "")
    busybox = shutil.which("busybox")
    if busybox:
        for applet in ("grep", "sleep", "rm", "ps"):
            os.symlink(busybox, os.path.join(base, applet))
        found["busybox"] = ((busybox, "sh"), base)
    return found


def test_every_posix_shell_runs_the_whole_ladder(tmp_path: Path) -> None:
    """dash, bash as sh, busybox with its own tools: nothing is left of a CLI that resists."""
    steps = SCENES["all of it, of a CLI that ignores TERM"][0]
    source = _guard._SCRIPT.replace(" 0.5 0.5 0.5 0.5;", " 0.1;")  # it resists as well in a fraction of the time
    assert source != _guard._SCRIPT
    with ExitStack() as stack:
        guards = []
        (tmp_path / "bin").mkdir()
        for name, (shell, path) in shells(str(tmp_path / "bin")).items():
            run_id = os.urandom(16).hex()
            fake = stack.enter_context(FakeCLI([init(), *steps, ready("up"), hang()]))
            cli = subprocess.Popen(
                [fake.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=marked(run_id),
                start_new_session=True,
            )
            stack.enter_context(cli)
            base = tmp_path / f"a folder of {name}"
            private = base / f"claude_cli_client-{cli.pid}-7-{run_id}-"
            private.mkdir(parents=True)
            (private / "settings.json").touch()
            (base / "claude_cli_client-1-2-3").mkdir()
            fake.wait("up")
            record = f"{run_id} {cli.pid} {started(cli.pid)}".ljust(_guard._RECORD - 1) + "\n"
            blank = _guard._BLANK.decode()
            guard, pipe = stack.enter_context(
                script(blank + record + blank, shell=shell, source=source, base=str(base), path=path)
            )
            guards.append((name, guard, pipe, fake, base))
        for _, _, pipe, _, _ in guards:
            os.close(pipe)
        limit = time.monotonic() + GONE * len(guards)  # all at once, and perhaps on one core
        for name, guard, _, fake, base in guards:
            assert guard.wait(max(0.1, limit - time.monotonic())) == 0, name
            gone(fake)
            assert os.listdir(base) == ["claude_cli_client-1-2-3"], name


def test_a_cli_behind_a_wrapper_has_its_grace(tmp_path: Path) -> None:
    """`sh` dies of the guard's TERM at once; the CLI behind it still writes the end of its transcript."""
    with FakeCLI([init(), ignore_term(), ready("up"), wait_for("go"), ready("wrote its end"), exit_with(0)]) as fake:
        script = tmp_path / "claude"
        script.write_text(f'#!/bin/sh\n{fake.path} "$@"\n')
        script.chmod(0o755)
        source = (
            "from claude_cli_client import _guard\n"
            "_guard._SCRIPT = _guard._SCRIPT.replace('0.5 0.5 0.5 0.5', '5 5 5 5')\n"  # for a machine under load
            f"run = Client(cli_path={str(script)!r}).run('x'); say(run.pid); hear('never')"
        )
        with Host(source, fake) as host:
            wrapper = int(host.line())
            fake.wait("up")
            host.kill()
            host.end()
            until(lambda: not is_running(wrapper))
            fake.release("go")
            fake.wait("wrote its end")
            gone(fake)
