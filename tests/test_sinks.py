"""`line_sink` and `on_stderr`: what they get, and that nothing they do reaches the run."""

from __future__ import annotations

import io
import logging
import threading
from pathlib import Path

import pytest
from waiting import until, until_gone

from claude_cli_client import Client, TurnCancelled, TurnTimeout, replay
from claude_cli_client.testing import (
    began,
    die_by,
    ended,
    hang,
    init,
    large_text,
    raw_bytes,
    read_stdin,
    repeat,
    result,
    text,
    to_stderr,
    wait_for,
)

TURN = [init(), text("täxt"), result("1")]


@pytest.fixture
def blocked():
    """A sink that blocks in its first call until the test is over. `entered` says that it is there."""

    class Blocked:
        def __init__(self) -> None:
            self.entered, self.released, self.calls = threading.Event(), threading.Event(), 0

        def __call__(self, _) -> None:
            self.calls += 1
            self.entered.set()
            self.released.wait(60)

    sink = Blocked()
    yield sink
    sink.released.set()


def warnings_of(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


# --- what they get


def test_a_callable_gets_every_line_exactly(play):
    """Raw bytes with their newline, in order: lines that are shown, hidden, bad, blank and damaged alike."""
    said = b'{"type":"x"}\n{"type":"keep_alive"}\nrubbish \xff\r\n\n  \n{"type":"y"}\n'
    got = []
    fake = play(raw_bytes(said), result("1"))
    Client(cli_path=fake.path).ask("p", line_sink=got.append)
    assert b"".join(got[:-1]) == said
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in got)
    assert got[-1].startswith(b'{"')
    assert b'"type":"result"' in got[-1]


def test_a_binary_file_gets_the_recording(play, tmp_path):
    """An open file will do; what it holds can be replayed."""
    path = tmp_path / "turn.jsonl"
    with open(path, "wb") as file:
        run = Client(cli_path=play(*TURN).path).run("p", line_sink=file)
        events = list(run)
    assert path.read_bytes().count(b"\n") == 3
    assert [event.type for event in replay(path)] == [event.type for event in events]


@pytest.mark.parametrize("begin", [Client.ask, lambda client, q, literal, **options: client.session(**options).ask(q)])
def test_a_file_is_flushed_at_the_end(play, tmp_path, begin):
    """Whoever has seen the end of the process finds the whole of it in the archive, though the file is open."""
    path, fake = tmp_path / "turn.jsonl", play(*began(), text("x"), *ended("1"), read_stdin())
    with open(path, "wb") as file, Client(cli_path=fake.path) as client:
        begin(client, "p", line_sink=file, literal=True)
        client.close()
        assert list(replay(path))[-1].result == "1"


@pytest.mark.parametrize("path", ["turn.jsonl", Path("turn.jsonl"), b"turn.jsonl"])
def test_a_path_is_no_file(path):
    """The error says how to make one of it."""
    with pytest.raises(ValueError, match=r"gets no path: give a function, or a file, open\(path, 'wb'\)"):
        Client().run("p", line_sink=path)


def test_anything_with_write_is_a_file(play):
    """`io.BytesIO`, a compressing file, a socket's."""
    kept = io.BytesIO()
    Client(cli_path=play(raw_bytes(b'{"type":"x"}\n'), result("1")).path).ask("p", line_sink=kept)
    assert kept.getvalue().startswith(b'{"type":"x"}\n{')


def test_all_lines_are_taken_when_the_result_is_there(play, graces):
    """A sink that keeps up within its time has seen everything when the run is over."""
    graces(sinks=60)
    got = []
    gone = threading.Event()

    def slow(line):
        gone.wait(10)
        got.append(line)

    fake = play(repeat(5000, raw_bytes(b'{"type":"x"}\n')), result("1"))
    run = Client(cli_path=fake.path).run("p", line_sink=slow)
    until_gone(fake)
    assert not run._channel.wait(0.1)
    assert got == []
    gone.set()
    assert run.result().result == "1"
    assert len(got) == 5001


def test_a_last_line_without_its_newline(play):
    """It gets one, so that the recording has whole lines."""
    got = []
    run = Client(cli_path=play(init(), raw_bytes(b'{"type":"x"}')).path).run("p", line_sink=got.append)
    list(run)
    assert got[-1] == b'{"type":"x"}\n'


def test_an_oversize_line_arrives_cut(play):
    """Its beginning; the rest was never kept."""
    got = []
    run = Client(cli_path=play(large_text(5000), result("1")).path).run("p", line_sink=got.append, max_line_bytes=4000)
    assert run.result().result == "1"
    assert len(got[0]) == 201
    assert got[0].endswith(b"\n")


def test_on_stderr_gets_lines_as_text(play):
    """Each without its newline, decoded; the last one also without a newline."""
    got = []
    fake = play(to_stderr("one\ntwö\n\n"), to_stderr(b"bad \xff\nlast"), init(), result("1"))
    Client(cli_path=fake.path).ask("p", on_stderr=got.append)
    assert got == ["one", "twö", "", "bad \ufffd", "last"]


def test_on_stderr_of_a_line_without_an_end(play):
    """More than 1 MiB is cut, not kept."""
    got = []
    fake = play(to_stderr("x" * 3_000_000 + "\nnext\n"), init(), result("1"))
    Client(cli_path=fake.path).ask("p", on_stderr=got.append)
    assert [len(line) for line in got] == [200, 4]


def test_stderr_comes_while_the_turn_goes_on(play):
    """A line is handed over when it comes, not at the end."""
    got = []
    fake = play(to_stderr("warning\n"), wait_for("end"), init(), result("1"))
    with Client(cli_path=fake.path).run("p", on_stderr=got.append):
        until(lambda: got == ["warning"])
        fake.release("end")


def test_both_at_once(play):
    """Two sinks of one run, on one thread, which is neither the consumer's nor the reader's."""
    seen = []
    fake = play(to_stderr("warning\n"), init(), result("1"))
    Client(cli_path=fake.path).ask(
        "p",
        line_sink=lambda line: seen.append(("line", threading.current_thread())),
        on_stderr=lambda line: seen.append(("stderr", threading.current_thread())),
    )
    assert sorted(kind for kind, _ in seen) == ["line", "line", "stderr"]
    (thread,) = {thread for _, thread in seen}
    assert thread is not threading.main_thread()
    assert thread.daemon
    assert "reader" not in thread.name


def test_a_sink_of_the_client_serves_all_its_runs(play):
    """The default of a client, overridden and switched off by calls."""
    mine, other = [], []
    client = Client(cli_path=play(*TURN).path, line_sink=mine.append)
    client.ask("p")
    client.ask("p", line_sink=other.append)
    client.ask("p", line_sink=None)
    assert (len(mine), len(other)) == (3, 3)


class _Equal:
    """Equal to all others of its kind, and so not hashable."""

    def __init__(self, fails: bool = False) -> None:
        self.got: list[object] = []
        self.fails = fails

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Equal)

    __hash__ = None

    def __call__(self, line: object) -> None:
        if self.fails:
            raise ValueError("no")
        self.got.append(line)


def test_a_sink_that_cannot_be_hashed(play):
    """Any callable is a sink."""
    sink = _Equal()
    Client(cli_path=play(*TURN).path).ask("p", line_sink=sink)
    assert len(sink.got) == 3


def test_a_failed_sink_does_not_fail_its_equal(play):
    """Which sink failed is a matter of identity."""
    bad, good = _Equal(fails=True), _Equal()
    fake = play(init(), wait_for("go"), to_stderr("one\n"), result("1"))
    run = Client(cli_path=fake.path).run("p", line_sink=bad, on_stderr=good)
    next(run)
    fake.release("go")
    run.result()
    assert (bad.got, good.got) == ([], ["one"])


# --- what they cannot do


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_sink_that_raises_is_not_called_again(play, caplog, error):
    """Whatever it raises: one warning, and the run goes on."""
    calls = []

    def sink(line):
        calls.append(line)
        raise error

    assert Client(cli_path=play(*TURN).path).ask("p", line_sink=sink).result == "1"
    assert len(calls) == 1
    (warning,) = warnings_of(caplog)
    assert "is not called again" in warning
    assert f"{type(error).__name__} at {__file__}:" in warning


def test_a_sink_that_raises_leaves_the_other_alone(play):
    """`on_stderr` goes on when `line_sink` has failed."""
    got = []

    def bad(line):
        raise ValueError

    fake = play(init(), to_stderr("one\n"), text("2"), to_stderr("two\n"), result("1"))
    Client(cli_path=fake.path).ask("p", line_sink=bad, on_stderr=got.append)
    assert got == ["one", "two"]


def test_a_closed_file(play, tmp_path, caplog):
    """As any sink that raises."""
    with open(tmp_path / "file", "wb") as file:
        pass
    assert Client(cli_path=play(*TURN).path).ask("p", line_sink=file).result == "1"
    assert len(warnings_of(caplog)) == 1


def test_a_sink_that_blocks_for_ever(play, graces, blocked, caplog):
    """The events come at once, the end waits for the sink a bounded time, and the answer is delivered."""
    graces(sinks=0.2)
    fake = play(init(), text("1"), result("1"))
    run = Client(cli_path=fake.path).run("p", line_sink=blocked)
    assert next(run).subtype == "init"
    assert blocked.entered.wait(10)
    assert run.result().result == "1"
    until(lambda: run.done)
    assert run.exit_code == 0
    assert blocked.calls == 1
    until(lambda: any("did not take all lines" in warning for warning in warnings_of(caplog)))


def test_a_sink_that_blocks_costs_two_seconds_at_most(play, monkeypatch):
    """With the constant as it is: that long the end of a run waits, and not longer for a second sink."""
    from claude_cli_client._sinks import Sinks

    waits, lines, finish = [], [], Sinks.finish

    def noted(sinks, seconds):
        waits.append(seconds)
        return finish(sinks, 10)

    monkeypatch.setattr(Sinks, "finish", noted)
    fake = play(init(), to_stderr("words\n"), result("1"))
    Client(cli_path=fake.path).ask("p", line_sink=lines.append, on_stderr=lines.append)
    assert waits == [2.0]


@pytest.mark.parametrize("end", ["cancel", "limit"])
def test_a_blocked_sink_does_not_hold_limits_and_cancel(play, graces, clock, blocked, end):
    """The reader never waits for it."""
    graces(sinks=0.1)
    fake = play(init(), hang())
    run = Client(cli_path=fake.path).run("p", on_stderr=blocked, line_sink=blocked, timeout=100)
    assert blocked.entered.wait(10)
    if end == "cancel":
        run.close()
        assert run.done
    else:
        clock.move(200, run)
    with pytest.raises(TurnTimeout if end == "limit" else TurnCancelled):
        run.result()


def test_a_blocked_sink_does_not_hold_the_slot(play, graces, blocked):
    """The next run starts while the sink of the last one still blocks."""
    graces(sinks=0.1)
    client = Client(cli_path=play(*TURN).path, max_concurrent=1)
    client.ask("p", line_sink=blocked)
    assert client.ask("p", slot_timeout=0).result == "1"


def test_what_a_sink_does_not_take_is_limited(play, graces, blocked, caplog):
    """Beyond `max_buffered_bytes` its lines are left out and counted; the run does not notice."""
    graces(sinks=0.1)
    # Lines that nobody is shown: what waits for the consumer has the same limit, and ends the run.
    fake = play(init(), repeat(3000, raw_bytes(b'{"type":"keep_alive","x":"%s"}\n' % (b"x" * 1000))), result("1"))
    run = Client(cli_path=fake.path).run("p", line_sink=blocked, max_buffered_bytes=1_000_000)
    assert run.result().result == "1"
    until(lambda: any("were not given to a sink" in warning for warning in warnings_of(caplog)))
    left_out = [warning for warning in warnings_of(caplog) if "were not given to a sink" in warning]
    assert len(left_out) == 1
    assert 1500 < int(left_out[0].split()[0]) < 2500  # a third was kept


def test_a_sink_may_cancel_its_run(play):
    """Callables may use the run; the run does not wait for itself."""
    runs = []
    seen = threading.Event()

    def sink(line):
        if seen.wait(10):
            runs[0].cancel()

    fake = play(init(), hang())
    run = Client(cli_path=fake.path).run("p", line_sink=sink)
    runs.append(run)
    seen.set()
    with pytest.raises(TurnCancelled):
        run.result()
    runs.clear()


def test_a_sink_that_closes_its_run(play, graces):
    """`close` inside of a sink waits for an end that waits for the sink: both are bounded."""
    graces(sinks=0.2)
    runs = []
    seen = threading.Event()

    def sink(line):
        if seen.wait(10) and runs:
            runs.pop().close()

    fake = play(init(), hang())
    run = Client(cli_path=fake.path).run("p", line_sink=sink)
    runs.append(run)
    seen.set()
    with pytest.raises(TurnCancelled):
        run.result()


def test_a_run_without_sinks_has_no_thread_for_them(play):
    """One thread a run."""
    fake = play(init(), wait_for("end"), result("1"))
    before = threading.active_count()
    run = Client(cli_path=fake.path).run("p")
    next(run)
    assert threading.active_count() == before + 1
    fake.release("end")
    run.result()


def test_sinks_see_the_output_of_a_turn_that_died(play):
    """The lines before a death are what one wants to see most."""
    got, stderr = [], []
    run = Client(cli_path=play(init(), to_stderr("why\n"), die_by(9)).path).run(
        "p", line_sink=got.append, on_stderr=stderr.append
    )
    list(run)
    assert len(got) == 1
    assert stderr == ["why"]
