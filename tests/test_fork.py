"""`os.fork` in any state: parent and child both go on, and neither touches what is the other's."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hosts import GONE, ROOT, Host, dead, gone, guard_of, guards_of
from waiting import is_running, until

from claude_cli_client import Client, Conversation, MemoryStore, Run, Session, SQLiteStore
from claude_cli_client.session import SessionEvents
from claude_cli_client.testing import (
    FakeCLI,
    expect_initialize,
    hang,
    init,
    read_stdin,
    ready,
    repeat,
    result,
    text,
    turn,
    wait_for,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

# In a host: `fork(job)` runs `job` in a child and gives its pid; `reap(pid)` its exit code, in time.
FORK = """
import warnings
warnings.simplefilter("ignore")

def fork(job=lambda: None, ends=lambda: os._exit(0)):
    pid = os.fork()
    if pid:
        return pid
    try:
        job()
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(99)
    ends()

def reap(pid, seconds=10):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            return
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError(f"the forked child {pid} hangs")

def raises(error, call):
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error}")

def my_pipes():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add((name, os.readlink("/proc/self/fd/" + name)))
        except OSError:
            pass
    return {fd for fd, target in found if target.startswith(("pipe:", "anon_inode:", "/memfd:")) and int(fd) > 2}

forking = threading.Event()      # a fork has begun, and has taken no lock yet
os.register_at_fork(before=forking.set)
"""


def forks(source: str, fake: FakeCLI, said: list[str], *, timeout: float = 20.0, **options: object) -> None:
    """Run a host to its end; it must say exactly this and succeed."""
    with Host(FORK + textwrap.dedent(source), fake, **options) as host:  # type: ignore[arg-type]
        lines = host.lines(timeout)
        assert host.end() == 0, host.complaints()
        assert lines == said, host.complaints()
        assert "Traceback" not in host.complaints()
        assert "Exception ignored" not in host.complaints()


# --- where the fork happens -----------------------------------------------------------------------


def test_a_session_of_the_parent_is_closed_in_the_child() -> None:
    """Nothing is written: its descriptors were closed at the fork, and their numbers may be a stranger's by now."""
    with FakeCLI([*expect_initialize(), *turn(), *turn(), read_stdin()]) as fake:
        forks(
            """
            import tempfile
            session = client.session()
            session.ask("x")
            def job():
                strangers = [tempfile.TemporaryFile() for _ in range(12)]
                session.close()
                assert not [file for file in strangers if os.fstat(file.fileno()).st_size]
            reap(fork(job))
            say(session.ask("x").result)
            session.close()
            """,
            fake,
            ["done"],
        )


def test_fork_with_an_idle_client() -> None:
    """Both sides run turns; the child begins with empty totals and slots."""
    with FakeCLI([init(), result("x")]) as fake:
        forks(
            """
            client.ask("x")
            def job():
                assert client.totals.turns == 0
                client.ask("x")
                assert client.totals.turns == 1
            reap(fork(job))
            client.ask("x")
            say(client.totals.turns)
            """,
            fake,
            ["2"],
        )


def test_fork_with_a_run_in_progress_whose_child_does_everything_to_it() -> None:
    """Reading, closing, cancelling, dropping and collecting it in the child leave the parent's run alone."""
    with FakeCLI(
        scripts=[
            [init(), text("a"), text("b"), ready("up"), wait_for("go"), text("c"), result("done")],
            [init(), result("x")],
        ]
    ) as fake:
        forks(
            """
            run = client.run("x")
            first = next(run)
            while run._channel.events.qsize() < 1 and not list(run._batch.__reduce__()[1][0]):
                pass
            def job():
                global run
                raises(ConcurrencyError, lambda: next(run))
                raises(ConcurrencyError, lambda: run.next_event(1))
                raises(ConcurrencyError, lambda: run.result())
                raises(ConcurrencyError, lambda: list(run.iter_text()))
                assert not run.done
                run.cancel()
                run.close()
                with run:
                    pass
                client.close()
                del run
                gc.collect()
            reap(fork(job))
            reap(fork(job, ends=lambda: sys.exit(0)))  # the whole end of an interpreter
            open(os.path.dirname(os.environ["FAKE_CLI"]) + "/released/go", "w").close()
            print(*(event.type for event in run), flush=True)
            say(run.result().result, run.exit_code)
            """,
            fake,
            ["text text text result", "done 0"],
        )


def test_buffered_events_are_not_given_to_a_child() -> None:
    """Also when a batch lies ready in the run, iterating in the child is an error."""
    many = [text(str(number)) for number in range(50)]
    with FakeCLI([init(), *many, result("done")]) as fake:
        forks(
            """
            run = client.run("x")
            run._channel.ended.wait(10)
            next(run)
            def job():
                raises(ConcurrencyError, lambda: next(run))
                raises(ConcurrencyError, lambda: run.next_event(0))
            reap(fork(job))
            say(len(list(run)))
            """,
            fake,
            ["51"],
        )


def test_fork_while_another_thread_is_inside_a_spawn() -> None:
    """The fork waits for the spawn, so the child has no write end; both go on."""
    with FakeCLI([init(), ready("up"), result("x")]) as fake:
        forks(
            """
            spawn, inside, order = _process._spawn, threading.Event(), []
            def slow(*args):
                inside.set()
                assert forking.wait(10)
                time.sleep(0.05)      # for a fork that does not wait for the lock
                try:
                    return spawn(*args)
                finally:
                    order.append("spawned")
            _process._spawn = slow
            runner = thread(lambda: client.ask("x"))
            inside.wait()
            _process._spawn = spawn
            def job():
                assert order == ["spawned"]
                assert not my_pipes(), my_pipes()
                client.ask("x")
            pid = fork(job)
            runner.join()
            reap(pid)
            say("both")
            """,
            fake,
            ["both"],
        )


def test_a_spawn_that_hangs_does_not_hold_the_fork_for_ever() -> None:
    """The fork gives up waiting; child and parent go on, and the lock is not lost."""
    with (
        FakeCLI([init(), result("x")]) as fake,
        Host(
            FORK
            + """
inside, go = threading.Event(), threading.Event()
spawn = _process._spawn
def stuck(*args):
    inside.set()
    go.wait()
    return spawn(*args)
_process._spawn = stuck
runner = thread(lambda: client.ask("x"))
inside.wait()
_process._spawn = spawn
pid = fork(lambda: client.ask("x"))
reap(pid)
go.set()
runner.join()
client.ask("x")
say("both")
""",
            fake,
            first="""
import functools, os
register = os.register_at_fork
def short(**hooks):
    before = hooks.get("before")
    if isinstance(before, functools.partial):
        hooks["before"] = functools.partial(before.func, timeout=0.1)
    register(**hooks)
os.register_at_fork = short
""",
        ) as host,
    ):
        host.expect("both", timeout=20)
        assert host.end() == 0


def test_fork_while_all_slots_are_taken_and_threads_wait() -> None:
    """The child has slots of its own at once; the parent's waiting threads get theirs."""
    with FakeCLI(scripts=[[init(), ready("up"), wait_for("go"), result("x")]] * 2 + [[init(), result("x")]]) as fake:
        forks(
            """
            runs = [client.run("x") for _ in range(2)]
            for run in runs:
                next(run)          # it has taken its script
            waiting = [thread(lambda: client.ask("x")) for _ in range(4)]
            while len(client._pool._line) < 4:
                pass
            reap(fork(lambda: [client.ask("x") for _ in range(3)]))
            open(os.path.dirname(os.environ["FAKE_CLI"]) + "/released/go", "w").close()
            for run in runs:
                run.result()
            for one in waiting:
                one.join()
            say(client.totals.turns)
            """,
            fake,
            ["6"],
            env={"SLOTS": "2"},
        )


def test_a_closed_client_is_closed_in_the_child_too() -> None:
    """What was refused before the fork is refused after it."""
    with FakeCLI([init(), result("x")]) as fake:
        forks(
            """
            client.ask("x")
            client.close()
            reap(fork(lambda: raises(ClientClosedError, lambda: client.ask("x"))))
            say("closed")
            """,
            fake,
            ["closed"],
        )


def test_fork_from_a_thread_and_nested() -> None:
    """A child forked from a thread, and its child: each runs turns."""
    with FakeCLI([init(), result("x")]) as fake:
        forks(
            """
            run = client.run("x")
            def inner():
                client.ask("x")
            def outer():
                client.ask("x")
                pid = fork(inner)
                client.ask("x")
                reap(pid)
            errors = []
            def forking():
                try:
                    reap(fork(outer))
                except BaseException as error:
                    errors.append(error)
            thread(forking).join()
            say(errors, run.result().result)
            """,
            fake,
            ["[] x"],
        )


def test_a_fork_that_python_did_not_make_is_noticed() -> None:
    """A C library forks without the hooks: public entries compare the process id."""
    with FakeCLI([init(), result("x")]) as fake:
        forks(
            """
            import ctypes
            client.ask("x")
            libc = ctypes.PyDLL(None)      # keeps the lock of the interpreter, as C extensions do
            pid = libc.fork()
            if pid == 0:
                try:
                    assert client.totals.turns == 0
                    client.ask("x")
                    os._exit(0)
                except BaseException:
                    import traceback
                    traceback.print_exc()
                    os._exit(1)
            assert os.waitpid(pid, 0)[1] == 0
            say(client.totals.turns)
            """,
            fake,
            ["1"],
        )


# --- what the child must not have -----------------------------------------------------------------


def test_the_end_of_file_is_not_late_while_a_child_lives() -> None:
    """A child that lives on delays neither the end of a run nor the death of the guard's pipe."""
    with FakeCLI([init(), ready("up"), wait_for("go"), result("x")]) as fake:
        forks(
            """
            from claude_cli_client import _reader
            _reader._DRAIN = 1000.0      # with a copy of a write end it would not end
            run = client.run("x")
            def job():
                assert not my_pipes(), my_pipes()
                signal.pause()
            children = [fork(job) for _ in range(4)]
            open(os.path.dirname(os.environ["FAKE_CLI"]) + "/released/go", "w").close()
            run.result(10)
            for pid in children:
                assert os.waitpid(pid, os.WNOHANG) == (0, 0), "a child has ended"
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            say("in time")
            """,
            fake,
            ["in time"],
        )


def test_a_descriptor_that_is_being_closed_is_never_another_file() -> None:
    """A fork between the close and the list: the number is a file of the user by then."""
    with FakeCLI([init(), result("x")]) as fake:
        forks(
            """
            inside, opened = threading.Event(), []
            null = os.open("/dev/null", os.O_RDONLY)
            class Slow:
                def __getattr__(self, name):
                    return getattr(os, name)
                def close(self, fd):
                    os.close(fd)
                    if not inside.is_set():
                        opened.append(os.dup2(null, fd))      # a file that the user opens
                        inside.set()
                        assert forking.wait(10)
                        time.sleep(0.05)      # for a fork that does not wait
            _fork.os = Slow()
            asking = thread(lambda: client.ask("x"))
            inside.wait()
            reap(fork(lambda: os.fstat(opened[0])))
            asking.join()
            say("open")
            """,
            fake,
            ["open"],
        )


def test_the_guard_works_while_a_child_lives() -> None:
    """The host is killed; its forked child has no copy of the pipe, so the guard acts at once."""
    with (
        FakeCLI([init(), ready("up"), hang()]) as fake,
        Host(
            FORK
            + """
run = client.run("x")
pid = fork(lambda: (say("child", os.getpid()), signal.pause()))
hear("never")
""",
            fake,
        ) as host,
    ):
        child = int(host.line().split()[1])
        fake.wait("up")
        guard = guard_of(host)
        try:
            host.kill()
            host.end()
            gone(fake)
            dead(guard)
            assert is_running(child)
        finally:
            os.kill(child, 9)


def test_a_child_has_a_guard_of_its_own() -> None:
    """A forked worker that is killed leaves nothing either, and its parent's run goes on."""
    with (
        FakeCLI([init(), ready("up"), hang()]) as fake,
        Host(
            FORK
            + """
run = client.run("x")
say(run.pid)
def job():
    own = client.run("x")
    say(os.getpid())
    signal.pause()
fork(job)
hear("never")
""",
            fake,
        ) as host,
    ):
        kept, child = int(host.line()), int(host.line())
        fake.wait("up", count=2)
        guard, (other,) = guard_of(host), until(lambda: guards_of(child))
        assert guard != other
        os.kill(child, 9)
        until(lambda: len(fake.alive()) == 1, timeout=GONE)
        assert fake.alive() == [kept]
        dead(other)


def test_a_lock_that_vanished_threads_hold_does_not_stop_the_child() -> None:
    """A thread is in the middle of a wake-up and of a guard's start when the fork happens."""
    with FakeCLI([init(), ready("up"), hang()]) as fake:
        forks(
            """
            run = client.run("x")
            held = threading.Event()
            def hold():
                with run._channel.wake._lock, _guard._lock, client._pool._lock:
                    held.set()
                    hear("never")
            thread(hold, daemon=True)
            held.wait()
            def job():
                global run
                run.cancel()
                run.close()
                channel = run._channel
                del run
                channel.wake.close()     # as its finaliser does
                del channel
                gc.collect()
                client.run("x").cancel()
            reap(fork(job))
            say("free")
            os._exit(0)
            """,
            fake,
            ["free"],
        )
        gone(fake)


def test_a_call_of_the_child_waits_for_none_that_is_not_there() -> None:
    """A tool forks; what was made within its call is the parent's, and has its turn in the child for ever."""
    with FakeCLI([init()]) as fake:
        forks(
            """
            import contextvars
            from claude_cli_client import ToolServer, _serial
            server = ToolServer([])
            def call(began, over):
                with _serial.one_at_a_time(server, threading.Event()):
                    began.set()
                    over.wait()
            began, over, at_once = (threading.Event() for _ in range(3))
            at_once.set()
            with _serial.one_at_a_time(server, threading.Event()):
                thread(contextvars.copy_context().run, call, began, over)
                began.wait()
                reap(fork(lambda: call(threading.Event(), at_once)))
                say("free")
                over.set()
            """,
            fake,
            ["free"],
        )


def test_ctrl_c_in_the_middle_of_a_fork_loses_no_lock() -> None:
    """SIGINT comes while `os.fork` runs: a hook of ours that it interrupts must have done its work."""
    with (
        FakeCLI([init(), result("x")]) as fake,
        Host(
            FORK
            + """
client.ask("x")
for _ in range(10):
    pid = None
    try:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
    except KeyboardInterrupt:
        pass
    for _ in range(3):
        try:
            time.sleep(0)
        except KeyboardInterrupt:
            pass
    free = []
    def look():
        free.append(_fork.spawning.acquire(timeout=5))
        _fork.spawning.release()
        client.ask("x")
    thread(look).join()
    assert free == [True]
say("free", client.totals.turns)
os._exit(0)
""",
            fake,
            # In C, so that the signal is pending when the next Python code runs: a hook, if it is in
            # Python. Before the fork they run last registered first, after it first registered first.
            first="import os, _thread; os.register_at_fork(after_in_parent=_thread.interrupt_main)\n",
        ) as host,
    ):
        assert host.lines(20) == ["free 11"], host.complaints()
        assert host.end() == 0


# What can be called, `it` being the object. All of it must notice a fork that Python did not make, or a child
# waits for threads and locks that are not there, or touches what is its parent's.
NOTICING: dict[type, dict[str, str]] = {
    Client: {
        "ask": "it.ask('x')",
        "run": "it.run('x')",
        "map": "next(it.map(['x']))",
        "session": "it.session()",
        "probe": "it.probe()",
        "check_ready": "it.check_ready()",
        "is_ready": "it.is_ready()",
        "totals": "it.totals",
        "close": "it.close()",
        "__exit__": "it.__exit__()",
    },
    Run: {
        "__next__": "next(it)",
        "next_event": "it.next_event(60)",
        "result": "it.result()",
        "iter_text": "next(it.iter_text())",
        "cancel": "it.cancel()",
        "close": "it.close()",
        "__exit__": "it.__exit__(None, None, None)",
        "done": "it.done",
    },
    Session: {
        "run": "it.run('x')",
        "ask": "it.ask('x')",
        "map": "next(it.map(['x']))",
        "events": "it.events()",
        "request": "it.request('x')",
        "interrupt": "it.interrupt()",
        "set_model": "it.set_model('x')",
        "set_permission_mode": "it.set_permission_mode('plan')",
        "mcp_status": "it.mcp_status()",
        "context_usage": "it.context_usage()",
        "rewind_files": "it.rewind_files('x')",
        "stop_task": "it.stop_task('x')",
        "close": "it.close()",
        "__exit__": "it.__exit__()",
        "closed": "it.closed",
    },
    SessionEvents: {"__next__": "next(it)"},
    Conversation: {
        "run": "it.run('x')",
        "ask": "it.ask('x')",
        "session_id": "it.session_id",
        "to_dict": "it.to_dict()",
    },
    MemoryStore: {
        "append": "it.append(KEY, [{'type': 'x'}])",
        "load": "it.load(KEY)",
        "list_sessions": "it.list_sessions()",
        "list_summaries": "it.list_summaries()",
        "list_subkeys": "it.list_subkeys(*KEY[:2])",
        "delete": "it.delete(KEY)",
    },
}
NOTICING[SQLiteStore] = {**NOTICING[MemoryStore], "close": "it.close()", "__exit__": "it.__exit__()"}
# These tell what was copied with the memory, or begin something that notices it.
HARMLESS: dict[type, str] = {
    Client: "with_options conversation list_settings __enter__",
    Run: "__iter__ __enter__ error session_id prompt_uuid model pid exit_code stderr idle_seconds",
    Session: "__enter__ session_id pid",
    SessionEvents: "__iter__ close",
    Conversation: "from_dict cwd",
    MemoryStore: "",
    SQLiteStore: "__enter__ path",
}


@pytest.mark.parametrize("owner", NOTICING, ids=lambda owner: owner.__name__)
def test_all_that_is_public_is_known_here(owner: type) -> None:
    """A new entry must be put into one of the two tables."""
    special = {"__next__", "__iter__", "__enter__", "__exit__"}
    public = {name for name in dir(owner) if name in special or not name.startswith("_")}
    assert public == NOTICING[owner].keys() | set(HARMLESS[owner].split())


def test_every_entry_notices_a_fork_that_python_did_not_make(tmp_path: Path) -> None:
    """With the locks held by threads that the child has not; and the parent's turns go on."""
    turns = [[init(), ready("up"), wait_for("go"), result("x")]] * 2
    calls = {owner.__name__: [*table.values()] for owner, table in NOTICING.items()}
    with FakeCLI(scripts=[*turns, [expect_initialize(), ready("up"), read_stdin()]]) as fake:
        forks(
            f"""
            import ctypes
            from claude_cli_client import MemoryStore, SessionKey, SQLiteStore, _sqlite_file, store
            KEY = SessionKey("-p", "00000000-0000-4000-8000-000000000001")
            run, talk = client.run("x"), client.conversation()
            turn, session = talk.run("x"), client.session()
            for one in (run, turn):
                next(one)
            nowhere, database = Client(cli_path="/not/here"), SQLiteStore({str(tmp_path / "db")!r})
            objects = dict(
                Client=nowhere, Run=run, Session=session, SessionEvents=session.events(), Conversation=talk,
                MemoryStore=MemoryStore(), SQLiteStore=database,
            )
            libc = ctypes.PyDLL(None)

            def noticed(it, call):
                pid = libc.fork()
                if pid:
                    return os.waitpid(pid, 0)[1] == 0
                signal.alarm(20)      # ends a child that hangs
                try:
                    eval(call, {{"it": it, "KEY": KEY}})
                except Exception:
                    pass
                finally:
                    os._exit(_fork._pid != os.getpid())

            held, release = threading.Event(), threading.Event()
            def hold():
                with store._changing, _sqlite_file._using, nowhere._pool._lock, client._pool._lock:
                    held.set()
                    release.wait()
            holder = thread(hold)
            held.wait()
            missed = [
                (name, call)
                for name, calls in {calls!r}.items() for call in calls if not noticed(objects[name], call)
            ]
            release.set()
            holder.join()
            open(os.path.dirname(os.environ["FAKE_CLI"]) + "/released/go", "w").close()
            say(missed, run.result().result, turn.result().result, session.closed)
            session.close()
            """,
            fake,
            ["[] x x False"],
            timeout=60,
        )


# --- multiprocessing ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str, tmp_path: Path) -> None:
    """Workers of each start method run turns with a client of the module, while the parent has a run."""
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, os, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from claude_cli_client import Client\n"
        "client = Client(cli_path=os.environ['FAKE_CLI'])\n"
        "def work(number):\n"
        "    return client.ask(str(number)).result, client.totals.turns\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context({method!r})\n"
        "    run = client.run('x')\n"
        "    next(run)\n"
        "    with context.Pool(2) as pool:\n"
        "        found = pool.map(work, range(4), chunksize=1)\n"
        "    print(sorted({answer for answer, _ in found}), sum(turns == 1 for _, turns in found) <= 2)\n"
        "    print(run.result().result)\n"
    )
    with FakeCLI([init(), text("a"), result("x")]) as fake:
        done = subprocess.run(
            [sys.executable, program],
            env={**os.environ, "FAKE_CLI": str(fake.path), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert (done.stdout, done.stderr, done.returncode) == ("['x'] True\nx\n", "", 0)


# --- a storm --------------------------------------------------------------------------------------


def test_two_hundred_forks_while_four_threads_run_turns() -> None:
    """No child hangs, no turn is lost or late, and nothing is left."""
    with FakeCLI([init(), repeat(20, text("some text")), result("x")]) as fake:
        forks(
            """
            stop, counts, errors = threading.Event(), [0] * 4, []
            def turns(number):
                try:
                    while not stop.is_set():
                        events = list(client.run("x"))
                        assert len(events) == 22 and events[-1].result == "x", events
                        counts[number] += 1
                except BaseException as error:
                    errors.append(error)
                    raise
            threads = [thread(turns, number) for number in range(4)]
            for number in range(5000):
                if number >= 200 and min(counts) > 3:
                    break
                def job():
                    assert not my_pipes(), my_pipes()
                    if number % 20 == 0:
                        client.ask("x")
                reap(fork(job))
            stop.set()
            for one in threads:
                one.join()
            say(errors, client.totals.turns == sum(counts), client.totals.failures)
            """,
            fake,
            ["[] True {}"],
            timeout=60,
        )
        assert fake.alive() == []
