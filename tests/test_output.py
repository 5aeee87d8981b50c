"""What the CLI's output may look like, and what is made of it: lines, sizes, stderr, exit codes."""

from __future__ import annotations

import json
import signal

import pytest
from waiting import until, until_gone

from claude_cli_client import Client, ProcessError, ResultError, SessionInUseError
from claude_cli_client.testing import (
    VERSION,
    die_by,
    exit_with,
    hang,
    ignore_term,
    init,
    large_text,
    raw_bytes,
    ready,
    repeat,
    result,
    say,
    text,
    to_stderr,
    wait_for,
)

RESULT = json.dumps(result("1").line).encode()


def line(number: int, text: str = "") -> bytes:
    return json.dumps({"type": "x", "subtype": str(number), "text": text}, ensure_ascii=False).encode() + b"\n"


def failure(play, *steps, **options) -> ProcessError:
    with pytest.raises(ProcessError) as caught:
        Client(cli_path=play(*steps).path).ask("p", **options)
    return caught.value


# --- lines


def test_a_last_line_without_a_newline_is_a_line(play):
    """The result counts although its newline never came."""
    assert Client(cli_path=play(init(), raw_bytes(RESULT)).path).ask("p").result == "1"


def test_a_line_in_two_pieces_with_a_pause_between(play):
    """Half a line waits for its other half."""
    fake = play(init(), raw_bytes(RESULT[:50]), ready("half"), wait_for("rest"), raw_bytes(RESULT[50:] + b"\n"))
    run = Client(cli_path=fake.path).run("p")
    next(run)
    fake.wait("half")
    assert run.next_event(0.05) is None
    fake.release("rest")
    assert run.result().result == "1"


def test_bytes_one_by_one(play):
    """Where reads cut the stream does not matter: inside a character, before a newline, anywhere."""
    said = line(1, "täxt \U0001f600") + b"\n" + line(2) + b"\r\n" + RESULT + b"\r\n"
    fake = play(*[raw_bytes(said[at : at + 1]) for at in range(len(said))])
    events = list(Client(cli_path=fake.path).run("p"))
    assert [event.subtype for event in events] == ["1", "2", "success"]
    assert events[0].data["text"] == "täxt \U0001f600"


def test_only_0x0a_ends_a_line(play):
    """U+2028, U+0085, a lone CR and their like stand inside of strings."""
    whole = json.dumps({"type": "x", "text": "a\u2028b\u2029c\u0085d"}, ensure_ascii=False)
    events = list(Client(cli_path=play(say(whole), result("1")).path).run("p"))
    assert events[0].data["text"] == "a\u2028b\u2029c\u0085d"


def test_bad_utf8_costs_only_its_own_bytes(play):
    """Bytes that are no UTF-8 become U+FFFD; the line and those behind it are read."""
    bad = b'{"type":"x","text":"a\xff\xfeb"}\n'
    events = list(Client(cli_path=play(raw_bytes(bad), result("1")).path).run("p"))
    assert events[0].data["text"] == "a\ufffd\ufffdb"
    assert events[-1].result == "1"


def test_blank_lines_are_nothing(play):
    """Neither events nor bad lines."""
    fake = play(raw_bytes(b"\n\n  \r\n\n"), init(), raw_bytes(b"\n"), exit_with(1))
    error = failure(play, raw_bytes(b"\n \n"), exit_with(1))
    assert error.odd_lines == ()
    assert len(list(Client(cli_path=fake.path).run("p"))) == 2


def test_talk_between_cli_and_host_is_not_shown(play):
    """Control frames are no events; unknown types are."""
    hidden = [{"type": "control_request"}, {"type": "keep_alive"}, {"type": "x", "sdk_host_only": True}]
    fake = play(init(), hidden, {"type": "brand_new", "n": 1}, result("1"))
    events = list(Client(cli_path=fake.path).run("p"))
    assert [event.type for event in events] == ["system", "brand_new", "result"]


def test_bad_lines_are_skipped_and_kept_for_the_error(play):
    """A turn survives lines that are no JSON objects; the error of one that does not shows the last few, cut."""
    rubbish = [raw_bytes(f"rubbish {number} {'x' * 1000}\n".encode()) for number in range(8)]
    assert Client(cli_path=play(init(), *rubbish, result("1")).path).ask("p").result == "1"
    error = failure(play, init(), *rubbish, exit_with(1))
    assert [kept.split()[1] for kept in error.odd_lines] == ["3", "4", "5", "6", "7"]
    assert "not understood: rubbish 7" in str(error)
    assert max(map(len, error.odd_lines)) <= 200


@pytest.mark.parametrize("bad", [b"[1]", b"null", b'"x"', b"[" * 100_000, b'{"n":' + b"9" * 10_000 + b"}", b"{} {}"])
def test_whatever_json_can_be(play, bad):
    """Lines that are JSON but no object, nested without end, or hold numbers without end."""
    run = Client(cli_path=play(init(), raw_bytes(bad + b"\n"), result("1")).path).run("p")
    assert run.result().result == "1"


def test_half_a_line_at_the_death(play):
    """What stood behind the last newline is in the error."""
    error = failure(play, init(), raw_bytes(b'{"type":"assistant","mess'), die_by(signal.SIGKILL))
    assert error.odd_lines == ('{"type":"assistant","mess',)


# --- sizes


def test_a_hundred_thousand_lines_all_arrive(play):
    """In their order, although nobody reads while they come."""
    count = 100_000
    fake = play(raw_bytes(b"".join(map(line, range(count)))), result("1"))
    run = Client(cli_path=fake.path).run("p")
    until(lambda: run.done, timeout=30)
    events = list(run)
    assert [event.subtype for event in events[:-1]] == list(map(str, range(count)))
    assert events[-1].result == "1"


def test_many_small_writes_all_arrive(play):
    """One write a line, faster than they are parsed."""
    fake = play(init(), repeat(20_000, text("x")), result("1"))
    assert len(list(Client(cli_path=fake.path).run("p"))) == 20_002


def test_a_line_of_50_megabytes_arrives(play):
    """A tool's output can be a whole file."""
    size = 50 * 1024 * 1024
    _, big, last = Client(cli_path=play(init(), large_text(size), result("1")).path).run("p")
    assert len(big.text) == size
    assert last.result == "1"


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 131_072])
def test_lines_around_the_size_of_a_read(play, size):
    """A newline as the last byte of a block, as the first of the next, and beside them."""
    padding = size - len(line(1)) - 1
    fake = play(raw_bytes(line(1, "x" * padding) + line(2)), raw_bytes(line(3, "x" * padding)), result("1"))
    events = list(Client(cli_path=fake.path).run("p"))
    assert [event.subtype for event in events] == ["1", "2", "3", "success"]


def test_all_that_stands_in_the_pipe_at_the_death_is_read(play):
    """The CLI writes and is gone; the kernel still has its last 60 KB."""
    fake = play(raw_bytes(b"".join(map(line, range(1500)))), to_stderr("bye\n"), die_by(signal.SIGKILL))
    run = Client(cli_path=fake.path).run("p")
    events = list(run)
    assert len(events) == 1501
    assert run.stderr == "bye\n"


def test_an_oversize_line_becomes_an_event(play):
    """Its size and its beginning are told, and the turn goes on."""
    fake = play(init(), large_text(5_000), text("small"), result("1"))
    events = list(Client(cli_path=fake.path).run("p", max_line_bytes=4_000))
    assert [event.type for event in events] == ["system", "oversize", "text", "result"]
    assert "bytes" in events[1].text
    assert '{"type":"assistant"' in events[1].text
    assert len(events[1].text) < 400
    assert events[-1].result == "1"


def test_the_longest_line_that_is_allowed(play):
    """`max_line_bytes` is the number that may be, without the newline."""
    exact = len(line(1)) - 1
    fake = play(raw_bytes(line(1)), raw_bytes(line(22)), result("1"))
    types = [event.type for event in Client(cli_path=fake.path).run("p", max_line_bytes=exact)]
    assert types[:2] == ["x", "oversize"]


def test_an_oversize_result_is_an_error_that_names_the_option(play):
    """The answer came and was too long: no other error would help."""
    error = failure(play, init(), result("x" * 5_000), max_line_bytes=4_000)
    assert "max_line_bytes=4000" in str(error)
    assert "may have been the result" in str(error)
    assert error.exit_code == 0


def test_a_long_line_without_an_end_does_not_fill_the_memory(play):
    """Above `max_line_bytes` only the beginning is kept."""
    long = [raw_bytes(b'{"type":"x'), repeat(600, raw_bytes(b"x" * 65_536)), raw_bytes(b"\n")]
    fake = play(init(), long, wait_for("go"), result("1"))
    run = Client(cli_path=fake.path).run("p", max_line_bytes=100_000, max_buffered_bytes=1_000_000)
    assert next(run).type == "system"
    oversize = next(run)
    assert oversize.type == "oversize"
    assert str(600 * 65_536 + 10) in oversize.text
    assert run.next_event(0.05) is None
    fake.release("go")
    assert run.result().result == "1"
    assert run.exit_code == 0  # what was not kept does not count as waiting


def test_too_much_that_waits_for_the_consumer_ends_the_run(play):
    """`overflow`: the message names the option, and what had come is readable."""
    fake = play(init(), repeat(100_000_000, text("x" * 1000)))
    run = Client(cli_path=fake.path).run("p", max_buffered_bytes=1_000_000)
    until_gone(fake)
    until(lambda: run.done)
    events = list(run)
    assert events[-1].subtype == "overflow"
    assert 500 < len(events) < 2_000
    with pytest.raises(ProcessError, match="max_buffered_bytes") as caught:
        run.result()
    assert caught.value.retryable is False


def test_overflow_keeps_no_more_while_the_cli_is_ended(play, graces):
    """A CLI that ignores TERM and writes on does not fill the memory during the grace."""
    graces(term=0.3)
    fake = play(ignore_term(), init(), repeat(100_000_000, raw_bytes(b"".join(map(line, range(2000))))))
    run = Client(cli_path=fake.path).run("p", max_buffered_bytes=1_000_000)
    until_gone(fake)
    until(lambda: run.done)
    assert run.exit_code == -signal.SIGKILL
    assert sum(len(event.raw) for event in run) < 3_000_000


@pytest.mark.parametrize(("count", "size"), [(250, 1_000), (1, 500_000)])
def test_a_consumer_that_keeps_up_never_overflows(play, count, size):
    """What was taken does not count, however much it was in all, in small lines and in lines of many reads."""
    rounds = [f"round{number}" for number in range(12)]
    fake = play(init(), *[(wait_for(name), repeat(count, large_text(size))) for name in rounds], result("1"))
    with Client(cli_path=fake.path).run("p", max_buffered_bytes=1_000_000) as run:
        next(run)
        for name in rounds:  # the CLI waits, so that not more than one round can be ahead
            fake.release(name)
            assert [len(next(run).text) for _ in range(count)] == [size] * count
        assert run.result().result == "1"


def test_the_answer_outweighs_an_overflow_behind_it(play):
    """More than may wait came behind the result: the answer is an answer."""
    fake = play(init(), result("1"), repeat(100_000_000, text("x" * 1000)))
    run = Client(cli_path=fake.path).run("p", max_buffered_bytes=1_000_000)
    until_gone(fake)
    until(lambda: run.done)
    assert run.result().result == "1"


# --- stderr


def test_a_flood_of_stderr_before_the_first_line(play):
    """1 MB, more than any pipe holds, does not block the CLI."""
    fake = play(to_stderr(1_000_000), init(), to_stderr(1_000_000), result("1"))
    run = Client(cli_path=fake.path).run("p")
    assert run.result().result == "1"
    assert len(run.stderr) == 65_536


def test_the_tail_of_stderr_is_kept(play):
    """The last 64 KiB, exactly; the message shows the end of it."""
    noise = "".join(f"line {number}\n" for number in range(20_000))
    error = failure(play, to_stderr(noise), to_stderr("the reason\n"), exit_with(1))
    assert error.stderr == (noise + "the reason\n")[-65_536:]
    assert str(error).endswith("    the reason")
    assert len(str(error)) < 4_000


def test_stderr_that_is_cut_inside_of_a_character(play):
    """The tail may begin in the middle of one; it is text all the same."""
    error = failure(play, to_stderr("ä" * 50_000 + "x"), exit_with(1))
    assert error.stderr.endswith("äx")
    assert len(error.stderr.encode("utf-8", "replace")) <= 65_540


def test_stderr_is_no_failure(play):
    """Warnings of a good turn are there to read and nothing else."""
    run = Client(cli_path=play(init(), to_stderr("warning\n"), result("1")).path).run("p")
    assert run.result().result == "1"
    assert run.stderr == "warning\n"


# --- exit codes


@pytest.mark.parametrize(
    ("code", "retryable"), [(0, True), (1, False), (3, False), (127, False), (143, True), (255, True)]
)
def test_an_end_without_a_result(play, code, retryable):
    """ProcessError with the exit code; a clean refusal is not worth a retry, chance is."""
    error = failure(play, init(), text("so far"), to_stderr("why\n"), exit_with(code))
    assert type(error) is ProcessError
    assert (error.exit_code, error.stderr, error.retryable) == (code, "why\n", retryable)
    assert f"exit code {code}" in str(error)
    assert "why" in str(error)
    assert error.event.result == "so far"
    assert error.cli_version == VERSION


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT])
def test_death_by_a_signal(play, number):
    """The message names the signal; the exit code is its negative number."""
    error = failure(play, init(), die_by(number))
    assert error.exit_code == -number
    assert f"killed by {number.name}" in str(error)
    assert error.retryable is True


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="Linux only")
def test_death_by_a_signal_without_a_name(play):
    """Real-time signals have none in Python."""
    error = failure(play, die_by(signal.SIGRTMIN + 3))
    assert f"signal {signal.SIGRTMIN + 3}" in str(error)


def test_a_cli_that_says_nothing_at_all(play):
    """No line, exit 0."""
    events = list(Client(cli_path=play().path).run("p"))
    assert [(event.type, event.subtype, event.exit_code) for event in events] == [("error", "process", 0)]


@pytest.mark.parametrize("end", [exit_with(1), exit_with(143), die_by(signal.SIGKILL)])
def test_a_good_result_outweighs_a_bad_exit_code(play, end):
    """The answer came; how the process ended is told beside it."""
    run = Client(cli_path=play(init(), result("1"), end).path).run("p")
    answer = run.result()
    assert answer.result == "1"
    assert answer.exit_code == run.exit_code != 0


def test_a_bad_result_is_a_failure_whatever_the_exit_code(play):
    """An error that comes with exit 0 is an error."""
    with pytest.raises(ResultError):
        Client(cli_path=play(init(), result("no", is_error=True), exit_with(0)).path).ask("p")


def test_the_clis_own_sentence_about_a_session_in_use(play):
    """No stdout, exit 1, a sentence on stderr: its own class with the remedy."""
    with pytest.raises(SessionInUseError, match="resume=") as caught:
        Client(cli_path=play(to_stderr("Error: Session ID x is already in use.\n"), exit_with(1)).path).ask("p")
    assert caught.value.exit_code == 1


def test_somebody_else_reaps_the_cli(play):
    """Where SIGCHLD is ignored the kernel reaps: the exit code is not known, everything else is."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        fake = play(init(), result("1"))
        run = Client(cli_path=fake.path).run("p")
        assert run.result().result == "1"
        assert run.exit_code is None
        assert "somebody else reaped it" in str(failure(play, init(), exit_with(3)))
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize("odd", [5, ["x"], {"a": 1}, None])
def test_a_version_that_is_no_text(play, odd):
    """What the CLI says of itself may be anything; the error can be printed."""
    error = failure(play, init(claude_code_version=odd), exit_with(1))
    assert "exit code 1" in str(error)


def test_odd_values_do_not_break_the_end(play):
    """A result whose fields are of the wrong kind ends the turn like any other."""
    line = {
        "type": "result", "subtype": 5, "is_error": "no", "result": ["x"], "usage": [], "total_cost_usd": "1",
        "model_usage_since_last_result": {"m": {"costUSD": None}}, "errors": [1, {"a": 2}], "session_id": 7,
    }  # fmt: skip
    client = Client(cli_path=play(init(), text("t"), line).path)
    run = client.run("p")
    *_, last = run
    assert last.is_terminal
    assert run.error() is None or str(run.error())
    until(lambda: run.done)
    assert client.totals.turns == 1


def test_errors_that_are_no_texts(play):
    """`errors` of a failed result may hold anything."""
    with pytest.raises(ResultError) as caught:
        Client(cli_path=play(init(), result(subtype="error_x", errors=[{"a": 1}, 2])).path).ask("p")
    assert str(caught.value)


def test_a_run_that_nobody_reads_holds_its_events(play):
    """Until the last reference goes, everything stays readable, long after the process is gone."""
    fake = play(init(), text("1"), result("1"))
    run = Client(cli_path=fake.path).run("p")
    until_gone(fake)
    until(lambda: run.done)
    assert [event.type for event in run] == ["system", "text", "result"]


def test_silence_without_an_end_is_what_limits_are_for(play, clock):
    """Half a line, then nothing: the idle limit, which half a line does not keep off."""
    fake = play(init(), raw_bytes(b'{"type":"resu'), ready("half"), hang())
    run = Client(cli_path=fake.path).run("p", idle_timeout=100)
    fake.wait("half")
    clock.move(200, run)
    *_, last = run
    assert last.subtype == "idle_timeout"
