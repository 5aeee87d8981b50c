"""The end of the interpreter and Ctrl-C: in time, with nothing left, wherever the program stands."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

import pytest
from hosts import Host, gone
from waiting import DEADLINE

from claude_cli_client import Client, TurnCancelled, _cleanup
from claude_cli_client.testing import (
    FakeCLI,
    hang,
    ignore_term,
    init,
    on_term,
    pause,
    ready,
    repeat,
    result,
    start_child,
    text,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX")

# Without the guard: what these hosts leave behind must not be tidied up by somebody else.
ALONE = {"CLAUDE_CLI_CLIENT_GUARD": "0"}
RUNS = 16
# The promise is five seconds of a machine that runs; one of CI may stand still for some of them. What
# hangs does so for ever.
IN_TIME = 8.0
# What was killed need not be gone: the end waits half a second for that, and a loaded machine may need more.
DYING = DEADLINE


def ends(host: Host, fake: FakeCLI, codes: Sequence[int] = (0,), within: float = IN_TIME) -> float:
    """The host ends in time, and by then has ended all that its runs had started."""
    begin = time.monotonic()
    code = host.end(within + 5)
    took = time.monotonic() - begin
    assert code in codes, f"exit code {code}: {host.complaints()}"
    assert took < within, f"{took:.1f} s"
    gone(fake, DYING)
    return took


OPEN = f"runs = [client.run('x') for _ in range({RUNS})]\nhear('go')\n"
# How the main thread ends with sixteen runs open, and the exit codes that may come of it.
WAYS = {
    "the end of the main thread": ("", [0]),
    "an exception": ("raise ValueError('mine')", [1]),
    "sys.exit": ("sys.exit(7)", [7]),
    "runs in reference cycles": ("for run in runs:\n    run.me = run\ndel runs, run", [0]),
    "runs in a global of a module": ("sys.modules['signal'].kept = runs\ndel runs", [0]),
    "a generator that is suspended in a run": (
        "def events():\n    with client.run('x') as run:\n        yield from run\nlazy = events(); next(lazy)",
        [0],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_interpreter_ends_with_sixteen_runs_open(way: str) -> None:
    """Whatever ends the main thread, the interpreter is gone in time and has ended its runs."""
    source, codes = WAYS[way]
    with FakeCLI([init(), text("a"), ready("up"), hang()]) as fake, Host(OPEN + source, fake, env=ALONE) as host:
        fake.wait("up", count=RUNS)
        host.tell("go")
        ends(host, fake, codes)


# Threads that wait for events while the main thread ends. All of them are joined by the interpreter.
WAITING = {
    "pool, imported before the first run": """
        from concurrent.futures import ThreadPoolExecutor
        client.run("x").cancel()
        pool = ThreadPoolExecutor(16)
        for _ in range(16): pool.submit(lambda: list(client.run("x")))
        """,
    "pool, imported after the first run": """
        client.run("x").cancel()
        assert "concurrent.futures.thread" not in sys.modules
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(16)
        for _ in range(16): pool.submit(lambda: list(client.run("x")))
        """,
    "pool, imported while the runs are open": """
        assert "concurrent.futures.thread" not in sys.modules
        runs = [client.run("x") for _ in range(16)]
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(16)
        for run in runs: pool.submit(list, run)
        del runs, run
        """,
    "pool with more jobs than slots": """
        from concurrent.futures import ThreadPoolExecutor
        few = Client(cli_path=os.environ["FAKE_CLI"], max_concurrent=16)
        pool = ThreadPoolExecutor(40)
        for _ in range(200): pool.submit(few.ask, "x")
        """,
    "plain threads": """
        threading.excepthook = lambda *_: None
        def turn():
            while True: client.ask("x")       # does not take the hint
        for _ in range(16): thread(turn)
        """,
    "daemon threads": """
        threading.excepthook = lambda *_: None
        for _ in range(16): thread(client.ask, "x", daemon=True)
        """,
}


@pytest.mark.parametrize("which", WAITING)
def test_threads_blocked_in_a_run_do_not_hold_the_interpreter(which: str) -> None:
    """Runs are ended before the interpreter joins the threads that wait for them."""
    with (
        FakeCLI([init(), ready("up"), hang()]) as fake,
        Host(WAITING[which] + "\n        hear('go')\n", fake, env=ALONE) as host,
    ):
        fake.wait("up", count=RUNS)
        host.tell("go")
        ends(host, fake)


@pytest.mark.parametrize(
    ("ask", "what"),
    [("client.ask('x')", "the turn was cancelled"), ("client.session().ask('x')", "the session was closed")],
)
def test_a_thread_hears_that_the_interpreter_ends(ask: str, what: str) -> None:
    """Its turn is cancelled, and the error says why, and what helps."""
    source = f"""
        def turn():
            try:
                {ask}
            except TurnCancelled as error:
                say(error.message)
        thread(turn)
        hear('go')
        """
    with FakeCLI([init(), ready("up"), hang()]) as fake, Host(source, fake, env=ALONE) as host:
        fake.wait("up")
        host.tell("go")
        remedy = "join the threads that use it before the main thread ends"
        assert host.lines() == [f"{what}, since the interpreter is ending; {remedy}"]
        ends(host, fake)


def test_what_was_cancelled_before_the_end_says_no_more(play, monkeypatch) -> None:
    """The hook ends what somebody has cancelled already: the error does not name the end of the interpreter."""
    fake = play(init(), ready("up"), hang())
    run = Client(cli_path=fake.path).run("x")
    fake.wait("up")
    with monkeypatch.context() as during:
        during.setattr(run._channel.wake, "set", lambda: None)  # its reader has not looked yet
        run.cancel()
        during.setattr(_cleanup, "ending", True)
        during.setattr(_cleanup, "_await", lambda *_: None)
        _cleanup._end_all()
    run._channel.wake.set()
    with pytest.raises(TurnCancelled) as caught:
        run.result()
    assert caught.value.message == "the turn was cancelled"


def test_a_cli_that_resists_does_not_hold_the_interpreter() -> None:
    """TERM is ignored and tools hide in sessions of their own: in time all the same."""
    script = [
        init(),
        ignore_term(),
        start_child("session", ignore_term=True),
        start_child("detached"),
        ready("up"),
        hang(),
    ]
    with FakeCLI(script) as fake, Host(OPEN.replace("16", "4"), fake, env=ALONE) as host:
        fake.wait("up", count=4)
        host.tell("go")
        ends(host, fake)


def test_an_exit_hook_of_the_user_cannot_hang() -> None:
    """`atexit` hooks run after ours: a run that they start is refused with a clean error."""
    with (
        FakeCLI([init(), ready("up"), hang()]) as fake,
        Host(
            """
            def last():
                try:
                    client.ask("x")
                except ClaudeError as error:
                    say(type(error).__name__, error.message)
                kept.cancel()
                kept.close()
                say(kept.result and len(list(kept)))
            atexit.register(last)
            kept = client.run("x")
            hear("go")
            """,
            fake,
            env=ALONE,
        ) as host,
    ):
        fake.wait("up")
        host.tell("go")
        assert host.lines() == ["ClientClosedError the interpreter is ending: no new runs", "2"]
        ends(host, fake)


def test_a_hook_registered_before_any_run_ends_first() -> None:
    """A program that has never run a turn asks in its exit hook: an error or an answer, no hang."""
    with (
        FakeCLI([init(), result("late")]) as fake,
        Host(
            """
            def last():
                try:
                    say(client.ask("x").result)
                except (ClaudeError, RuntimeError) as error:     # 3.12: no threads at this point
                    say("refused")
            atexit.register(last)
            """,
            fake,
            env=ALONE,
        ) as host,
    ):
        assert host.lines() in (["late"], ["refused"])
        ends(host, fake)


# --- Ctrl-C ---------------------------------------------------------------------------------------

INTERRUPTED = (130, -signal.SIGINT)  # the interpreter's own end by an uncaught KeyboardInterrupt


@pytest.mark.parametrize(
    "call",
    [
        "client.ask('x')",
        "list(client.run('x'))",
        "client.run('x').result()",
        "client.run('x').next_event(60), client.run('x').result(60)",
        "\nwith client.run('x') as run:\n    run.result()",
        "\nwith client.run('x') as run:\n    for event in run: pass",
        "\nwith client.run('x') as run:\n    signal.pause()",
        "list(client.map(['x'] * 8))",
    ],
)
def test_ctrl_c_ends_the_program_and_its_runs(call: str) -> None:
    """KeyboardInterrupt comes out, and when the program has ended nothing lives."""
    with (
        FakeCLI([init(), start_child("session"), on_term(), ready("up"), hang()]) as fake,
        Host(f"runs = [client.run('x') for _ in range(2)]\nsay('there')\n{call}", fake, env=ALONE) as host,
    ):
        host.expect("there")
        fake.wait("up", count=3)
        host.kill(signal.SIGINT)
        ends(host, fake, INTERRUPTED)
        assert host.complaints().rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize(
    "call", ["client.ask('x')", "next(run)", "run.result()", "run.next_event(60)", "list(run.iter_text())"]
)
def test_ctrl_c_comes_out_at_once(call: str) -> None:
    """It does not wait for a CLI that resists; the ladder has begun and goes on behind it."""
    with (
        FakeCLI([init(), ignore_term(), ready("up"), hang()]) as fake,
        Host(
            f"""
            from claude_cli_client import _channel
            _channel.GRACE = 1000
            {"" if "ask" in call else "run = client.run('x'); next(run)"}

            def ctrl_c(number, frame):     # as soon as it waits; where it does not yet, a little later
                while frame is not None and frame.f_code.co_name != "_wait":
                    frame = frame.f_back
                if frame is not None:
                    raise KeyboardInterrupt
                signal.setitimer(signal.ITIMER_REAL, 0.005)

            signal.signal(signal.SIGINT, ctrl_c)
            signal.signal(signal.SIGALRM, ctrl_c)
            try:
                say("there")
                {call}
            except KeyboardInterrupt:
                say("out")
            (channel,) = _cleanup.live
            say(channel.cancelled)
            channel.cancel(hard=True)      # the test need not wait for the ladder
            """,
            fake,
            env=ALONE,
        ) as host,
    ):
        host.expect("there")
        fake.wait("up")
        host.kill(signal.SIGINT)
        assert host.lines() == ["out", "True"]
        ends(host, fake)


def test_leaving_with_by_ctrl_c_waits_and_the_second_one_hurries() -> None:
    """`with` promises that the process is gone; a second Ctrl-C kills it without its own clean-up."""
    with (
        FakeCLI([init(), ignore_term(), ready("up"), hang()]) as fake,
        Host(
            """
            from claude_cli_client import _channel
            from claude_cli_client._channel import Channel
            _channel.GRACE, Channel.end_bound, wait = 1000, 1000, Channel.wait
            def told(channel, seconds):
                if seconds:
                    say("waiting")
                return wait(channel, seconds)
            Channel.wait = told
            try:
                with client.run("x") as run:
                    next(run)
                    say("there")
                    for event in run:
                        pass
            except KeyboardInterrupt:
                say("out")
                say(wait(run._channel, 10), run.exit_code)
            """,
            fake,
            env=ALONE,
        ) as host,
    ):
        fake.wait("up")
        host.expect("there")
        host.kill(signal.SIGINT)
        host.expect("waiting")
        host.kill(signal.SIGINT)
        assert host.lines() == ["out", "True -9"], host.complaints()
        ends(host, fake)


def test_a_second_ctrl_c_hurries_the_exit() -> None:
    """The exit hook waits for the ladder; Ctrl-C there goes to KILL, and nothing is left."""
    with (
        FakeCLI(
            [init(), ignore_term(), ready("up"), start_child("session", ignore_term=True), ready("all"), hang()]
        ) as fake,
        Host(
            """
            # Without the second Ctrl-C nothing would happen for long.
            from claude_cli_client import _channel
            _channel.GRACE = _cleanup._EXIT_GRACE = _cleanup._EXIT_BOUND = _cleanup._EXIT_HURRY = 60.0
            runs = [client.run("x") for _ in range(4)]
            waiting = _cleanup._await
            def told(*args):
                say("waiting")
                waiting(*args)
            _cleanup._await = told
            hear("go")
            """,
            fake,
            env=ALONE,
        ) as host,
    ):
        fake.wait("all", count=4)
        host.tell("go")
        host.expect("waiting")
        host.kill(signal.SIGINT)
        ends(host, fake, (0, 1, *INTERRUPTED), within=30)


def test_ctrl_c_between_the_threads_start_and_its_first_step() -> None:
    """The thread exists and has not run when KeyboardInterrupt comes: one side has the run, never both."""
    with (
        FakeCLI([init(), ready("up"), hang()]) as fake,
        Host(
            """
            import _thread
            start = next(name for name in ("_start_joinable_thread", "_start_new_thread") if hasattr(threading, name))
            real = getattr(threading, start)
            slept = threading.Event()
            def interrupted(function, *args, **named):
                def late(*a):
                    slept.wait()
                    function(*a)
                real(late, *args, **named)
                raise KeyboardInterrupt
            setattr(threading, start, interrupted)
            try:
                client.run("x")
            except KeyboardInterrupt:
                say("out", len(client._pool._held), len(_cleanup.live))
            setattr(threading, start, real)
            taken = os.open("/dev/null", os.O_RDONLY)      # the number that the wake-up had
            slept.set()
            run = client.run("x")
            next(run)
            run.close()
            os.fstat(taken)
            say(len(client._pool._held), client.totals.turns)
            """,
            fake,
            env=ALONE,
        ) as host,
    ):
        assert host.lines() == ["out 0 0", "0 1"], host.complaints()
        ends(host, fake)
        assert len(fake.calls) == 1


POINTS = ["merge", "prepare", "take", "began", "end_with_interpreter", "start", "thread", "started", "run"]


@pytest.mark.parametrize("point", POINTS)
def test_ctrl_c_at_every_step_of_a_start_gives_the_slot_back(point: str) -> None:
    """KeyboardInterrupt before or behind each call on the way from the prompt to the run."""
    with (
        FakeCLI([init(), result("x")]) as fake,
        Host(
            """
            from claude_cli_client import _channel, _launch, _pool, client as client_module
            client.ask("x")
            point = os.environ["POINT"]
            owner, name = {
                "merge": (_launch, "merge_with"),
                "prepare": (_launch, "prepare"),
                "take": (_pool.Pool, "take"),
                "began": (_pool.Pool, "began"),
                "end_with_interpreter": (_cleanup, "end_with_interpreter"),
                "start": (_channel.Channel, "start"),
                "thread": (threading.Thread, "start"),
                "started": (_channel, "take"),
                "run": (client_module, "Run"),
            }[point]
            real = getattr(owner, name)
            def before(*args, **named):
                raise KeyboardInterrupt
            def behind(*args, **named):
                real(*args, **named)
                raise KeyboardInterrupt
            for replacement in (before, behind):
                setattr(owner, name, replacement)
                try:
                    client.run("x")
                    say("not interrupted")
                except KeyboardInterrupt:
                    pass
                finally:
                    setattr(owner, name, real)
                limit = time.monotonic() + 10
                while (client._pool._held or client._pool._running or _cleanup.live) and time.monotonic() < limit:
                    time.sleep(0.002)
                say(len(client._pool._held), len(client._pool._running), len(_cleanup.live))
            client.ask("x")
            begin = time.monotonic()
            client.close(60)
            say(time.monotonic() - begin < 30)
            """,
            fake,
            env={**ALONE, "POINT": point, "SLOTS": "1"},
        ) as host,
    ):
        assert host.lines() == ["0 0 0", "0 0 0", "True"], host.complaints()
        ends(host, fake)


RANDOM = {
    "ask": "client.ask('x')",
    "result": "client.run('x').result()",
    "next": "for event in client.run('x'): pass",
    "with": "\n    with client.run('x') as run:\n        for event in run: pass",
    "close": "\n    run = client.run('x'); next(run); run.close()",
    "map": "list(client.map(['x'] * 3))",
}
LOOP = """
while True:
    {call}
"""


def end_by_ctrl_c(host: Host) -> None:
    """One that lands in a finaliser is lost: another follows, which may find the program in its end."""
    codes: Sequence[int] = INTERRUPTED
    for _ in range(5):
        try:
            code = host.process.wait(2.5)
        except subprocess.TimeoutExpired:
            host.kill(signal.SIGINT)
            codes = (0, 1, *INTERRUPTED)
        else:
            assert code in codes, host.complaints()
            return
    raise AssertionError(f"the host lives: {host.complaints()}")


def test_ctrl_c_at_random_moments() -> None:
    """Thirty-six programs in a loop of short turns: each ends at once, and no CLI is orphaned."""
    chance = random.Random(7)
    script = [init(), repeat(3, text("some text")), pause(0.01), result("x")]
    with FakeCLI(script) as fake:
        for _ in range(6):
            with ExitStack() as stack:
                hosts = []
                for call in RANDOM.values():
                    source = "client.ask('x')\nsay('there')\n" + LOOP.format(call=call)
                    hosts.append(stack.enter_context(Host(source, fake, env={**ALONE, "SLOTS": "4"})))
                for host in hosts:
                    host.expect("there", timeout=20)
                for host in hosts:
                    # The one place where time is chosen: any moment will do.
                    time.sleep(chance.random() * 0.02)
                    host.kill(signal.SIGINT)
                for host in hosts:
                    end_by_ctrl_c(host)
                gone(fake, DYING)


@pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
def test_random_interrupts_that_are_survived_lose_nothing() -> None:
    """A program that catches Ctrl-C and goes on: after 150 of them all slots, threads and descriptors are there."""
    with (
        FakeCLI([init(), text("some text"), pause(0.005), result("x")]) as fake,
        Host(
            """
            import itertools, random, warnings
            client.ask("x")
            def threads():
                # The system's count: an interrupted `Thread.start` stays in the list of `threading`.
                return len(os.listdir("/proc/self/task"))
            def facts():
                return len(os.listdir("/proc/self/fd")), threads(), len(client._pool._held)
            def settled():
                limit = time.monotonic() + 10
                while (_cleanup.live or threads() > 1) and time.monotonic() < limit:
                    gc.collect()
                    time.sleep(0.005)
                return facts()
            before = settled()
            chance = random.Random(11)
            armed = threading.Event()
            done = False
            def shoot():
                while not done:
                    armed.wait(1)      # again without a word: one that came in a finaliser is lost
                    armed.clear()
                    time.sleep(chance.random() * 0.02)
                    os.kill(os.getpid(), signal.SIGINT)
            calls = itertools.cycle([
                lambda: client.ask("x"),
                lambda: list(client.run("x")),
                lambda: client.run("x").result(),
                lambda: client.run("x").close(),
                lambda: list(client.map(["x"] * 3)),
            ])
            shooter = thread(shoot, daemon=True)
            interrupts = 0
            while interrupts < 150:
                try:
                    armed.set()
                    while True:
                        next(calls)()
                except KeyboardInterrupt:
                    interrupts += 1
                except ConcurrencyError:
                    say("a run was left with a consumer")
            done = True
            armed.set()
            while shooter.is_alive():
                try:
                    shooter.join(0.05)
                except KeyboardInterrupt:
                    pass
            after = settled()
            say(before == after or (before, after))
            say(client.ask("x").result)
            """,
            fake,
            env={**ALONE, "SLOTS": "2"},
        ) as host,
    ):
        assert host.lines(60) == ["True", "x"], host.complaints()
        ends(host, fake)


def test_sigterm_with_a_handler_that_exits_is_a_normal_end() -> None:
    """A service's handler raises SystemExit: the exit hook ends the runs."""
    with (
        FakeCLI([init(), ready("up"), hang()]) as fake,
        Host("signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\nclient.ask('x')", fake, env=ALONE) as host,
    ):
        fake.wait("up")
        host.kill(signal.SIGTERM)
        ends(host, fake, [3])


def test_a_signal_handler_may_close_the_client_in_the_middle_of_anything() -> None:
    """`close` from a handler while the main thread starts and reads runs: no deadlock."""
    with (
        FakeCLI([init(), text("a"), result("x")]) as fake,
        Host(
            """
            def stop(*_):
                client.close()
                sys.exit(4)
            signal.signal(signal.SIGTERM, stop)
            client.ask("x")
            say("there")
            try:
                while True:
                    client.ask("x")
            except ClientClosedError:     # what the handler raised came in a finaliser, and was lost
                sys.exit(4)
            """,
            fake,
            env=ALONE,
        ) as host,
    ):
        host.expect("there")
        host.kill(signal.SIGTERM)
        ends(host, fake, [4])
