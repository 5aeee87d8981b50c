"""The conversation with a CLI whose stdin stays open: who writes, who waits, who answers.

Without a process where that is enough: a pipe stands for stdin, and the test says what the CLI says.
"""

from __future__ import annotations

import contextvars
import json
import os
import queue
import select
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from waiting import DEADLINE, Background, until

from claude_cli_client import Client, ControlError, SessionClosedError, _duplex
from claude_cli_client._duplex import Duplex, Risen
from claude_cli_client.testing import (
    ask,
    ask_permission,
    cancel_ask,
    close_stream,
    expect,
    expect_initialize,
    hang,
    read_stdin,
    ready,
    repeat,
    result,
    text,
    turn,
    wait_for,
    wait_for_answer,
)


class Wire:
    """A Duplex, and what it writes."""

    def __init__(self, **handlers):
        self.duplex = Duplex(handlers)
        self.reading, writing = os.pipe()
        self._unread = b""
        self._fd = writing

    def open(self) -> Wire:
        self.duplex.open(os.getpid(), self._fd)
        self._fd = -1
        return self

    def read(self, seconds: float = DEADLINE) -> dict | None:
        """The next line that was written, decoded; None at the end of the input."""
        while b"\n" not in self._unread:
            assert select.select([self.reading], [], [], seconds)[0], "nothing was written in time"
            block = os.read(self.reading, 1 << 16)
            if not block:
                assert not self._unread
                return None
            self._unread += block
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def asks(self, subtype: str, id: str = "r1", **fields) -> None:
        """The CLI asks."""
        request = {"subtype": subtype, **fields}
        self.duplex.receive({"type": "control_request", "request_id": id, "request": request})

    def answers(self, id: str, **body) -> None:
        """The CLI answers."""
        response = {"subtype": "success", "request_id": id, "response": body}
        self.duplex.receive({"type": "control_response", "response": response})

    def withdraws(self, id: str) -> None:
        self.duplex.receive({"type": "control_cancel_request", "request_id": id})

    def close(self) -> None:
        self.duplex.end(RuntimeError("the test is over"))
        if self._fd >= 0:
            os.close(self._fd)
        else:
            while self.read() is not None:  # the writer has nothing left to do
                pass
        self.duplex.join(DEADLINE)
        os.close(self.reading)


@pytest.fixture
def wire():
    wires: list[Wire] = []

    def make(*, opened: bool = True, **handlers) -> Wire:
        wires.append(Wire(**handlers))
        return wires[-1].open() if opened else wires[-1]

    yield make
    for one in wires:
        one.close()


def answer_of(line: dict) -> tuple[str, str]:
    """Which question a line answers, and how."""
    assert line["type"] == "control_response"
    return line["response"]["request_id"], line["response"]["subtype"]


# --- we ask


def test_a_waiter_is_there_before_its_question_is_written(wire):
    """The answer may come before the writer has done anything."""
    cli = wire(opened=False)
    waiter = cli.duplex.ask("mcp_status", {})
    cli.answers("client-1", a=1)
    assert waiter.get(timeout=DEADLINE).body == {"a": 1}
    cli.open()
    assert cli.read()["request"] == {"subtype": "mcp_status"}


def test_the_answer_comes_while_the_question_is_still_being_written(wire):
    """A question larger than the pipe is answered when the CLI has read a part of it: it counts."""
    cli = wire()
    asking = Background(cli.duplex.request, "mcp_message", {"message": "x" * 300_000}, DEADLINE)
    assert select.select([cli.reading], [], [], DEADLINE)[0]
    cli.answers("client-1", early=True)
    assert asking.result() == {"early": True}


def test_a_request_returns_its_body(wire):
    """`request` blocks for the answer to its own question, whatever else comes."""
    cli = wire()
    first = Background(cli.duplex.request, "a", {"field": 1}, DEADLINE)
    assert cli.read()["request"] == {"field": 1, "subtype": "a"}
    second = Background(cli.duplex.request, "b", {}, DEADLINE)
    assert cli.read()["request_id"] == "client-2"
    cli.answers("client-2", of="b")
    cli.answers("client-1", of="a")
    assert (first.result(), second.result()) == ({"of": "a"}, {"of": "b"})


def test_a_refusal_raises(wire):
    """ControlError with the CLI's words, the subtype and the code."""
    cli = wire()
    asking = Background(cli.duplex.request, "nonsense", {}, DEADLINE)
    cli.read()
    response = {"subtype": "error", "request_id": "client-1", "error": "no such", "error_code": "unsupported_request"}
    cli.duplex.receive({"type": "control_response", "response": response})
    with pytest.raises(ControlError, match="no such") as caught:
        asking.result()
    assert (caught.value.subtype, caught.value.code) == ("nonsense", "unsupported_request")


def test_the_end_tells_everybody_who_waits_at_once(wire):
    """SessionClosedError with the cause, for each of twenty waiters."""
    cli = wire()
    asking = [Background(cli.duplex.request, f"q{number}", {}, DEADLINE * 6) for number in range(20)]
    for _ in asking:
        cli.read()
    cause = RuntimeError("the CLI was killed by SIGKILL")
    cli.duplex.end(cause)
    for one in asking:
        with pytest.raises(SessionClosedError, match="killed by SIGKILL") as caught:
            one.result()
        assert caught.value.__cause__ is cause


def test_after_the_end_a_question_is_refused(wire):
    """Nobody is left to answer it: SessionClosedError at once."""
    cli = wire()
    cli.duplex.end(RuntimeError("gone"))
    with pytest.raises(SessionClosedError, match="gone"):
        cli.duplex.request("interrupt", {}, DEADLINE)


def test_a_timeout_gives_up(wire):
    """TimeoutError, and the CLI is told that the answer is not wanted any more."""
    cli = wire()
    with pytest.raises(TimeoutError, match=r"'slow' within 0\.01 s"):
        cli.duplex.request("slow", {}, 0.01)
    assert cli.read()["request"]["subtype"] == "slow"
    assert cli.read() == {"type": "control_cancel_request", "request_id": "client-1"}


def test_a_late_answer_is_dropped(wire):
    """It does not become the answer to the next question, nor does anything keep it."""
    cli = wire()
    with pytest.raises(TimeoutError):
        cli.duplex.request("slow", {}, 0.01)
    asking = Background(cli.duplex.request, "next", {}, DEADLINE)
    until(lambda: cli.duplex._waiters)
    cli.answers("client-1", late=True)
    cli.answers("client-2", late=False)
    assert asking.result() == {"late": False}
    assert not cli.duplex._waiters
    assert not cli.duplex._protocol._ours


def test_what_is_no_json_is_the_callers_fault(wire):
    """A field that cannot be written raises at the call, writes nothing, and leaves no open question."""
    cli = wire()
    for wrong in (float("nan"), object(), {(1, 2): 3}):
        with pytest.raises((ValueError, TypeError)):
            cli.duplex.request("x", {"field": wrong}, DEADLINE)
    assert not cli.duplex._protocol._ours
    cli.duplex.say(b'{"next":1}\n')
    assert cli.read() == {"next": 1}


# --- lines


def test_lines_of_sixteen_threads_never_mix(wire):
    """Each of them is written whole, also those that are larger than a pipe; those of one thread in their order."""
    cli = wire()
    start = threading.Barrier(16)

    def write(thread: int) -> None:
        start.wait()
        for number in range(30):
            size = 100_000 if number % 10 == 0 else 50
            cli.duplex.say(json.dumps({"thread": thread, "number": number, "pad": "x" * size}).encode() + b"\n")

    writers = [Background(write, thread) for thread in range(16)]
    seen: dict[int, list[int]] = {thread: [] for thread in range(16)}
    for _ in range(16 * 30):
        line = cli.read()
        assert set(line["pad"]) == {"x"}
        seen[line["thread"]].append(line["number"])
    for writer in writers:
        writer.result()
    assert all(numbers == list(range(30)) for numbers in seen.values())


def test_nobody_but_the_writer_waits_for_a_full_pipe(wire):
    """What is said goes to the writer: prompts, answers and questions return at once, and callbacks run."""
    cli = wire(can_use_tool=lambda request, cancelled: {"ok": True})
    cli.duplex.say(b'"' + b"x" * 1_000_000 + b'"\n')
    for number in range(100):
        cli.duplex.say(b"%d\n" % number)
    cli.asks("can_use_tool")
    until(lambda: not cli.duplex.is_answering, "the callback ran and its answer was handed over")
    waiter = cli.duplex.ask("interrupt", {})
    cli.answers("client-1")
    assert waiter.get(timeout=DEADLINE).body == {}


def test_input_ends_behind_what_was_said(wire):
    """`close_input` cuts nothing off; a second time it does nothing."""
    cli = wire()
    cli.duplex.say(b'{"last":"%s"}\n' % (b"x" * 200_000))
    cli.duplex.close_input()
    cli.duplex.close_input()
    assert len(cli.read()["last"]) == 200_000
    assert cli.read() is None


def test_what_is_said_before_the_process_runs_is_written_first(wire):
    """In its order."""
    cli = wire(opened=False)
    for number in range(3):
        cli.duplex.say(b"%d\n" % number)
    cli.open()
    assert [cli.read() for _ in range(3)] == [0, 1, 2]


def test_a_broken_stdin_ends_the_writer_and_nobody_else(wire):
    """The CLI has gone or closed it: its end tells those who wait, and the cause is that end's."""
    cli = wire()
    os.close(cli.reading)
    cli.reading, spare = os.pipe()  # for the fixture
    os.close(spare)
    asking = Background(cli.duplex.request, "mcp_status", {}, DEADLINE)
    cli.duplex.join(DEADLINE)
    assert not cli.duplex._writer.is_alive()
    assert asking.is_waiting
    cli.duplex.end(RuntimeError("exit code 3"))
    with pytest.raises(SessionClosedError, match="exit code 3"):
        asking.result()


def test_sigpipe_may_have_its_default():
    """A host that set SIGPIPE back to what kills lives on when the CLI stops reading."""
    code = """
        import os, signal, sys
        from claude_cli_client._duplex import Duplex
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        reading, writing = os.pipe()
        os.close(reading)
        duplex = Duplex({})
        duplex.open(os.getpid(), writing)
        duplex.say(b"x\\n")
        duplex.join(10)
        print("alive")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(_duplex.__file__).parents[1],
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


# --- they ask


def test_every_question_is_answered_once(wire):
    """With the body of its handler, under its own id."""
    cli = wire(can_use_tool=lambda request, cancelled: {"was": request["number"]})
    for number in range(20):
        cli.asks("can_use_tool", f"r{number}", number=number)
    lines = [cli.read() for _ in range(20)]
    assert {line["response"]["request_id"]: line["response"]["response"]["was"] for line in lines} == {
        f"r{number}": number for number in range(20)
    }
    cli.duplex.close_input()
    assert cli.read() is None


@pytest.mark.parametrize("subtype", ["something_new", "", "can_use_tool"])
def test_a_question_that_nobody_handles_is_refused(wire, subtype):
    """Unknown kinds get an error at once: the CLI would wait for ever."""
    cli = wire(hook_callback=lambda request, cancelled: {})
    cli.asks(subtype)
    line = cli.read()
    assert answer_of(line) == ("r1", "error")
    assert "unsupported" in line["response"]["error"]


def test_a_numeric_id_goes_back_as_a_number(wire):
    """Ids go back as they came."""
    cli = wire(hook_callback=lambda request, cancelled: {})
    cli.asks("hook_callback", 7)
    assert cli.read()["response"]["request_id"] == 7


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_a_handler_that_fails_is_answered_with_an_error(wire, error, caplog):
    """Whatever it raises: a fault of ours, which is logged, and the CLI goes on."""

    def handler(request, cancelled):
        raise error

    cli = wire(hook_callback=handler)
    cli.asks("hook_callback")
    line = cli.read()
    assert answer_of(line) == ("r1", "error")
    assert type(error).__name__ in line["response"]["error"]
    assert "could not be answered" in caplog.text
    caplog.clear()


@pytest.mark.parametrize("body", [{"x": float("nan")}, {"x": object()}, {(1, 2): 3}, "loop"])
def test_an_answer_that_is_no_json_becomes_an_error(wire, body, caplog):
    """An answer that cannot be written must not leave the CLI waiting."""
    if body == "loop":
        body = {}
        body["x"] = body
    cli = wire(hook_callback=lambda request, cancelled: body)
    cli.asks("hook_callback")
    assert answer_of(cli.read()) == ("r1", "error")
    assert not cli.duplex.is_answering
    caplog.clear()


def test_what_must_not_be_swallowed_rises(wire):
    """`Risen`: the CLI gets the body, then the exception goes to whoever listens."""
    risen: queue.SimpleQueue = queue.SimpleQueue()
    error = SystemExit(3)

    def handler(request, cancelled):
        raise Risen({"behavior": "deny"}, error)

    cli = wire(can_use_tool=handler)
    cli.duplex.on_risen = risen.put
    cli.asks("can_use_tool")
    assert cli.read()["response"]["response"] == {"behavior": "deny"}
    assert risen.get(timeout=DEADLINE) is error


def test_a_withdrawn_question_sets_cancelled(wire):
    """The callback can see it while it works; its answer goes nowhere."""
    seen: queue.SimpleQueue = queue.SimpleQueue()

    def handler(request, cancelled):
        seen.put(cancelled.is_set())
        seen.put(cancelled.wait(DEADLINE))
        return {"late": True}

    cli = wire(can_use_tool=handler)
    cli.asks("can_use_tool")
    assert seen.get(timeout=DEADLINE) is False
    cli.withdraws("r1")
    assert seen.get(timeout=DEADLINE) is True
    until(lambda: not cli.duplex._calls)
    cli.duplex.close_input()
    assert cli.read() is None


def test_a_question_withdrawn_after_its_answer(wire):
    """Answer and withdrawal may cross: nothing happens."""
    cli = wire(can_use_tool=lambda request, cancelled: {})
    cli.asks("can_use_tool")
    cli.read()
    cli.withdraws("r1")
    cli.withdraws("never asked")
    cli.asks("can_use_tool", "r2")
    assert answer_of(cli.read()) == ("r2", "success")


def test_a_callback_that_ignores_its_withdrawal_is_not_counted(wire):
    """Its silence keeps nobody waiting, so it must not suspend the idle limit."""
    release, started = threading.Event(), threading.Event()

    def handler(request, cancelled):
        started.set()
        release.wait(DEADLINE)
        return {}

    cli = wire(can_use_tool=handler)
    cli.asks("can_use_tool")
    started.wait(DEADLINE)
    assert cli.duplex.is_answering
    cli.withdraws("r1")
    assert not cli.duplex.is_answering
    release.set()
    until(lambda: not cli.duplex._calls)


def test_release_frees_all_callbacks(wire):
    """All that run see `cancelled` at once."""
    cli = wire(hook_callback=lambda request, cancelled: {"cancelled": cancelled.wait(DEADLINE)})
    for number in range(5):
        cli.asks("hook_callback", f"r{number}")
    cli.duplex.release()
    assert [cli.read()["response"]["response"] for _ in range(5)] == [{"cancelled": True}] * 5


def test_fifty_callbacks_at_once(wire):
    """Each waits for all others, and still all are answered: there is no pool that could be full."""
    together = threading.Barrier(50)

    def handler(request, cancelled):
        together.wait(DEADLINE)
        return {}

    cli = wire(can_use_tool=handler)
    for number in range(50):
        cli.asks("can_use_tool", f"r{number}")
    assert {answer_of(cli.read()) for _ in range(50)} == {(f"r{number}", "success") for number in range(50)}


def test_a_callback_may_ask(wire):
    """It waits for an answer to a request of its own, which the reader brings meanwhile."""
    wires: list[Wire] = []

    def handler(request, cancelled):
        return {"got": wires[0].duplex.request("mcp_status", {}, DEADLINE)}

    cli = wire(can_use_tool=handler)
    wires.append(cli)
    cli.asks("can_use_tool")
    assert cli.read()["request"]["subtype"] == "mcp_status"
    cli.answers("client-1", servers=0)
    assert cli.read()["response"]["response"] == {"got": {"servers": 0}}


def test_no_thread_to_be_had(wire, monkeypatch):
    """The question is refused: the CLI must not wait for ever. The next one is answered."""
    cli = wire(can_use_tool=lambda request, cancelled: {})
    with monkeypatch.context() as patch:

        def start(self):
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", start)
        cli.asks("can_use_tool")
    line = cli.read()
    assert answer_of(line) == ("r1", "error")
    assert "no thread" in line["response"]["error"]
    cli.asks("can_use_tool", "r2")
    assert answer_of(cli.read()) == ("r2", "success")
    assert not cli.duplex.is_answering


def test_no_thread_for_the_writer(wire, monkeypatch):
    """The start fails, and the descriptor is closed."""
    cli = wire(opened=False)

    def start(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread"):
            cli.open()
    cli._fd = os.open(os.devnull, os.O_RDONLY)  # for the fixture
    assert os.read(cli.reading, 1) == b""


def test_context_variables_are_carried_over(wire):
    """A callback sees the caller's as they were when the conversation was made; what it sets stays with it."""
    variable = contextvars.ContextVar("variable", default="nobody")
    variable.set("caller")

    def handler(request, cancelled):
        seen = variable.get()
        variable.set(request["set"])
        return {"seen": seen}

    cli = wire(can_use_tool=handler)
    variable.set("later")
    for name in "ab":
        cli.asks("can_use_tool", name, set=name)
        assert cli.read()["response"]["response"] == {"seen": "caller"}
    assert variable.get() == "later"


def test_threads_have_names(wire):
    """Those of a callback and of the writer say whose they are."""
    cli = wire(can_use_tool=lambda request, cancelled: {"thread": threading.current_thread().name})
    cli.asks("can_use_tool")
    assert cli.read()["response"]["response"] == {"thread": f"claude-{os.getpid()}-callback"}
    assert cli.duplex._writer.name == f"claude-{os.getpid()}-writer"
    assert cli.duplex._writer.daemon


# --- a begin that is refused


def test_the_prompt_is_said_when_the_hooks_are_accepted(wire):
    """`initialize` first; the prompt only behind the CLI's consent."""
    cli = wire()
    cli.duplex.begin({"hooks": {}}, b'"prompt"\n')
    assert cli.read()["request"]["subtype"] == "initialize"
    assert not select.select([cli.reading], [], [], 0)[0]
    cli.answers("client-1")
    assert cli.read() == "prompt"


def test_without_consent_the_prompt_is_never_said(wire):
    """A prompt that ran without its hooks would be a check that is silently off: the input ends instead."""
    cli = wire()
    cli.duplex.begin({"hooks": {}}, b'"prompt"\n')
    cli.read()
    response = {"subtype": "error", "request_id": "client-1", "error": "bad hooks"}
    cli.duplex.receive({"type": "control_response", "response": response})
    assert cli.read() is None
    assert "bad hooks" in cli.duplex.refusal


# --- with a process


def test_a_cli_that_does_not_read_stdin(play, graces):
    """It blocks the writer alone: requests give up in time, and close ends it in bounds."""
    graces(term=0.1)
    fake = play(*expect_initialize(), ready("on"), hang())
    session = Client(cli_path=fake.path).session()
    fake.wait("on")
    session._duplex.say(b'{"type":"keep_alive","pad":"%s"}\n' % (b"x" * 3_000_000))
    with pytest.raises(TimeoutError):
        session.request("mcp_status", timeout=0.05)
    session.close(grace=0.1)
    assert session.closed


def test_a_cli_that_closes_its_stdin(play):
    """The turn that waits for it ends by its own limit, not by the broken pipe."""
    fake = play(*expect_initialize(), close_stream("stdin"), ready("deaf"), wait_for("end"), result("done"))
    with Client(cli_path=fake.path).session() as session:
        fake.wait("deaf")
        run = session.run("hello")
        fake.release("end")
        assert run.result().result == "done"


def test_a_session_answers_withdrawn_and_unknown_questions(play):
    """On a real process: both are dealt with, and the turn goes on to its result."""
    cancelled = threading.Event()

    def can_use_tool(request):
        assert request.wait_cancelled(DEADLINE)
        cancelled.set()
        return True

    fake = play(
        *expect_initialize(),
        turn(
            ask_permission("Bash", id="p1", answered=False),
            ask("something_new"),
            cancel_ask("p1"),
            ask("also_new", id="last", answered=False),
            wait_for_answer("last"),
        ),
        read_stdin(),
    )
    with Client(cli_path=fake.path).session(can_use_tool=can_use_tool) as session:
        assert session.ask("go").result == "done"
        assert cancelled.wait(DEADLINE)
    answers = [m["response"] for m in fake.calls[0].messages if m["type"] == "control_response"]
    assert [(a["subtype"], a["request_id"] == "p1") for a in answers] == [("error", False), ("error", False)]


def test_a_request_is_answered_while_nobody_consumes(play):
    """Control answers stand behind 20,000 events that wait: the reader never stops reading."""
    fake = play(
        *expect_initialize(), turn(repeat(20_000, text("x")), ready("said"), *expect("mcp_status", {"mcpServers": []})),
        read_stdin(),
    )  # fmt: skip
    with Client(cli_path=fake.path).session() as session:
        run = session.run("go")
        assert session.mcp_status() == {"mcpServers": []}
        assert run.result().result == "done"


def test_a_notification_after_the_end(wire):
    """What a tool tells about its progress does not fail the tool when the CLI has died."""
    cli = wire()
    cli.duplex.end(RuntimeError("it died"))
    cli.duplex.notify("mcp_message", {})
