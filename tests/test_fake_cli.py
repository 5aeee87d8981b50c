"""The doubles of `claude_cli_client.testing`, driven as processes, without the client."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from claude_cli_client import (
    Client,
    HookReply,
    PermissionRequest,
    ToolServer,
    UnfinishedTurnError,
    _fake_cli,
    _fake_simulation,
    testing,
)
from claude_cli_client._fake_schema import instance_of
from claude_cli_client.testing import (
    SESSION_ID,
    FakeCLI,
    SimulatedCLI,
    api_failure,
    api_retry,
    close_stream,
    delta,
    die_by,
    exit_with,
    hang,
    ignore_int,
    ignore_stdin,
    ignore_term,
    init,
    large_text,
    on_term,
    pause,
    raw_bytes,
    read_stdin,
    ready,
    repeat,
    reply,
    result,
    say,
    say_capture,
    start_child,
    stream,
    text,
    thinking,
    to_stderr,
    tool_result,
    tool_use,
    touch,
    wait_for,
    wait_for_line,
)

LIMIT = 30  # seconds: for a machine under load; nothing here takes one
SESSION = "11111111-2222-4333-8444-555555555555"


def play(fake: FakeCLI, *args: str, stdin: bytes = b"prompt", **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([fake.path, *args], input=stdin, capture_output=True, timeout=LIMIT, check=False, **options)


def start(fake: FakeCLI, *args: str, **options: Any) -> subprocess.Popen[bytes]:
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([fake.path, *args], **{**streams, **options})


def lines_of(output: bytes) -> list[Any]:
    return [json.loads(line) for line in output.split(b"\n") if line]


def played(*steps: Any, stdin: bytes = b"prompt") -> subprocess.CompletedProcess[bytes]:
    with FakeCLI(steps) as fake:
        return play(fake, stdin=stdin)


def simulated(prompt: str, *args: str) -> subprocess.CompletedProcess[bytes]:
    with SimulatedCLI() as fake:
        return play(fake, "-p", "--output-format=stream-json", "--verbose", *args, stdin=prompt.encode())


# --- what a start records


def test_a_call_records_what_the_process_was_given(tmp_path: Path) -> None:
    """argv, environment, folder, pid and stdin of a start are in `calls`, exactly."""
    with FakeCLI([]) as fake:
        process = start(fake, "-p", "--model=sonnet", "ünï cödé", cwd=tmp_path, env={"ONLY": "täis\n"})
        process.communicate("prömpt\r\n".encode())
        (call,) = fake.calls
    assert call.argv == ("-p", "--model=sonnet", "ünï cödé")
    assert call.env == {"ONLY": "täis\n"}
    assert (call.number, call.pid, call.cwd) == (0, process.pid, str(tmp_path.resolve()))
    assert (call.stdin, call.prompt) == ("prömpt\r\n".encode(), "prömpt\r\n")


@pytest.mark.parametrize("args", [["--model=a", "--model=b"], ["--model", "a", "--model", "b"]])
def test_option_reads_both_forms_and_the_last_wins(args: list[str]) -> None:
    """`Call.option` finds `--name=value` and `--name value`; an absent one is None."""
    with FakeCLI([]) as fake:
        play(fake, *args)
        assert fake.calls[0].option("--model") == "b"
        assert fake.calls[0].option("--resume") is None


def test_messages_are_the_decoded_lines_of_stdin() -> None:
    """`Call.messages` is stdin as stream-json."""
    with FakeCLI([]) as fake:
        play(fake, stdin=b'{"type":"user"}\n{"n":2}\n')
        assert fake.calls[0].messages == [{"type": "user"}, {"n": 2}]


@pytest.mark.parametrize("flag", ["--version", "-v"])
def test_version_is_answered_at_once_and_is_no_call(flag: str) -> None:
    """The version comes without stdin, without the script, and leaves no call."""
    with FakeCLI([hang()]) as fake:
        process = start(fake, flag)
        assert process.stdout is not None
        assert process.stdout.read() == b"2.1.332 (Claude Code)\n"
        process.communicate()
        assert (process.returncode, fake.calls) == (0, [])


def test_version_none_makes_it_a_call_like_any_other() -> None:
    """With `version=None` the script answers `--version` too."""
    with FakeCLI([ignore_stdin(), say("nonsense"), exit_with(4)], version=None) as fake:
        done = play(fake, "--version")
        assert (done.stdout, done.returncode, len(fake.calls)) == (b"nonsense\n", 4, 1)


def test_each_start_plays_its_own_script_and_the_last_repeats() -> None:
    """The nth start plays the nth script."""
    with FakeCLI(scripts=[[say("one")], [say("two")]]) as fake:
        assert [play(fake).stdout for _ in range(3)] == [b"one\n", b"two\n", b"two\n"]
        assert [call.number for call in fake.calls] == [0, 1, 2]


def test_concurrent_starts_take_different_scripts() -> None:
    """Eight starts at once claim eight different numbers."""
    with FakeCLI(scripts=[[say(str(n)), ready("up"), wait_for("go")] for n in range(8)]) as fake:
        processes = [start(fake) for _ in range(8)]
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        fake.wait("up", LIMIT, count=8)
        fake.release("go")
        said = []
        for process in processes:
            with process:
                assert process.stdout is not None
                said.append(process.stdout.read())
    assert sorted(said) == [b"%d\n" % n for n in range(8)]


# --- output


def test_lines_are_said_as_mapping_text_and_bytes() -> None:
    """A mapping is written as compact UTF-8 JSON, texts and bytes as they are, each with a newline."""
    done = played({"a": "é\u2028"}, say("plain"), say(b"\xff\n"))
    assert done.stdout == '{"a":"é\u2028"}\nplain\n'.encode() + b"\xff\n"


def test_a_lone_surrogate_is_written_as_its_json_escape() -> None:
    """As the CLI does, so that the line stays valid UTF-8."""
    assert played(say({"a": "\ud800"})).stdout == b'{"a":"\\ud800"}\n'


def test_raw_bytes_have_no_newline() -> None:
    """Half a line stays half."""
    assert played(raw_bytes(b'{"half'), raw_bytes(b"\x00")).stdout == b'{"half\x00'


def test_steps_may_be_nested_sequences() -> None:
    """A list or tuple inside a script counts as its steps."""
    assert played([say("a"), (say("b"),)], say("c")).stdout == b"a\nb\nc\n"


def test_a_recording_is_said_byte_for_byte_and_decides_the_exit_code(tmp_path: Path) -> None:
    """`say_capture` changes nothing, cuts like a list, and exits as the recorded result did."""
    recording = tmp_path / "x.jsonl"
    recording.write_bytes(b'{"n": 1}\n{"n":  2}\n{"type":"result","is_error":true}\n')
    assert (done := played(say_capture(recording))).stdout == recording.read_bytes()
    assert done.returncode == 1
    assert (done := played(say_capture(recording, 1, 2))).stdout == b'{"n":  2}\n'
    assert done.returncode == 0


def test_repeat_says_very_many_lines() -> None:
    """100,000 lines come, complete and in order."""
    done = played(repeat(100_000, say("x" * 20)), say("end"))
    assert done.stdout == (b"x" * 20 + b"\n") * 100_000 + b"end\n"


def test_large_text_is_one_valid_line_of_that_size() -> None:
    """A line of several megabytes that the test did not have to build."""
    (line,) = lines_of(played(large_text(5_000_000)).stdout)
    assert line["message"]["content"][0]["text"] == "x" * 5_000_000


def test_stderr_takes_text_bytes_and_a_size() -> None:
    """Everything goes to stderr, nothing to stdout."""
    done = played(to_stderr("é\n"), to_stderr(b"\xff"), to_stderr(200_001))
    assert done.stdout == b""
    assert done.stderr.startswith("é\n".encode() + b"\xff")
    assert len(done.stderr) == 3 + 1 + 200_001


def test_closed_stdout_reads_as_end_while_the_process_lives() -> None:
    """The reader sees EOF, and the script goes on."""
    with (
        FakeCLI([ignore_stdin(), say("x"), close_stream("stdout"), wait_for("end"), exit_with(5)]) as fake,
        start(fake) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.read() == b"x\n"
        assert fake.alive() == [process.pid]
        fake.release("end")
        assert process.wait(LIMIT) == 5


def test_a_reader_that_has_gone_does_not_stop_the_script() -> None:
    """Closing the read end changes nothing, as with the real CLI: exit 0."""
    with (
        FakeCLI([ignore_stdin(), wait_for("closed"), say("x"), touch("late"), result("x")]) as fake,
        start(fake, cwd=fake.directory) as process,
    ):
        assert process.stdout is not None
        process.stdout.close()
        fake.release("closed")
        assert process.wait(LIMIT) == 0
        assert (fake.directory / "late").exists()


# --- typical lines


def test_a_typical_turn_has_one_session_and_the_fields_of_the_real_one() -> None:
    """init, blocks, tool result and result agree on the session; the result has its money and index."""
    script = [
        init(),
        thinking("Hm."),
        tool_use("Bash", {"command": "ls"}),
        tool_result("a"),
        text("A."),
        result("A."),
    ]
    said = lines_of(played(*script).stdout)
    assert [line["type"] for line in said] == [
        "system",
        "assistant",
        "assistant",
        "user",
        "assistant",
        "result",
    ]
    assert {line["session_id"] for line in said} == {SESSION_ID}
    assert len({line["uuid"] for line in said}) == len(said)
    assert {"total_cost_usd", "usage", "modelUsage", "model_usage_since_last_result"} <= said[-1].keys()
    assert (said[-1]["result_index"], said[-1]["is_error"], said[-1]["result"]) == (0, False, "A.")


def test_blocks_share_a_message_until_a_tool_result() -> None:
    """The message id is the same for the blocks of a message and another for the next."""
    said = lines_of(played(delta("a"), text("a"), tool_use("Bash"), tool_result("x"), text("b"), result("b")).stdout)
    assert said[0]["api_message_id"] == said[1]["message"]["id"] == said[2]["message"]["id"]
    assert said[4]["message"]["id"] != said[1]["message"]["id"]


@pytest.mark.parametrize(
    ("args", "session"),
    [
        (["--session-id", SESSION], SESSION),
        ([f"--resume={SESSION}"], SESSION),
        ([f"--resume={SESSION}", "--fork-session"], SESSION_ID),
        (["--resume=a title"], SESSION_ID),
    ],
)
def test_typical_lines_follow_the_session_asked_for(args: list[str], session: str) -> None:
    """The session id is the one of argv, where argv decides it."""
    with FakeCLI([init(), result("x")]) as fake:
        assert {line["session_id"] for line in lines_of(play(fake, *args).stdout)} == {session}


def test_init_tells_the_real_folder(tmp_path: Path) -> None:
    """`cwd` is where the process runs, whatever its name contains."""
    folder = tmp_path / 'a "quoted" \\ ü'
    folder.mkdir()
    with FakeCLI([init()]) as fake:
        (line,) = lines_of(play(fake, cwd=folder).stdout)
    assert line["cwd"] == str(folder.resolve())


def test_changes_replace_and_add_fields() -> None:
    """Every builder takes fields of the line, and `.line` shows it without a process."""
    step = result("x", stop_reason="refusal", extra=1)
    assert step.line is not None
    assert (step.line["stop_reason"], step.line["extra"]) == ("refusal", 1)


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([result("x")], 0),
        ([result("x", is_error=True)], 1),
        ([result(subtype="error_max_turns", errors=["Reached"])], 1),
        ([result("x", is_error=True), result("y", index=1)], 0),
        ([result("x", is_error=True), exit_with(0)], 0),
        ([api_retry(), api_failure(429)], 1),
        ([api_failure("connection")], 1),
    ],
)
def test_the_last_result_decides_the_exit_code(steps: list[Any], code: int) -> None:
    """1 after an error, else 0; a step that says otherwise wins."""
    assert played(*steps).returncode == code


def test_an_api_failure_is_a_success_that_is_an_error() -> None:
    """Both lines carry the status; the text comes from a synthetic model."""
    line, end = lines_of(played(api_failure(429)).stdout)
    assert (line["message"]["model"], line["error"], line["api_error_status"]) == (
        "<synthetic>",
        "rate_limit",
        429,
    )
    assert (end["subtype"], end["is_error"], end["api_error_status"]) == ("success", True, 429)


def test_a_streamed_message_has_its_whole_line_before_the_stop_of_its_block() -> None:
    """`stream` has all events of the API, the pieces in order, and one message id."""
    said = lines_of(played(stream(["he", "llo"])).stdout)
    names = [line["event"]["type"] if line["type"] == "stream_event" else line["type"] for line in said]
    assert names == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "assistant",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert said[4]["message"]["content"] == [{"type": "text", "text": "hello"}]
    assert said[4]["message"]["id"] == said[0]["api_message_id"]


# --- stdin


def test_the_prompt_is_read_to_its_end_first() -> None:
    """Without a step for stdin nothing is said before stdin ends."""
    with FakeCLI([ready("said"), say("x")]) as fake, start(fake) as process:
        assert process.stdin is not None
        process.stdin.write(b"half")
        process.stdin.flush()
        with pytest.raises(TimeoutError, match=r"ready\('said'\)"):
            fake.wait("said", 0.05)
        process.stdin.close()
        fake.wait("said", LIMIT)
        assert process.wait(LIMIT) == 0
        assert fake.calls[0].stdin == b"half"


def test_ignored_stdin_is_never_waited_for() -> None:
    """With `ignore_stdin` the script plays while stdin is open."""
    with FakeCLI([ignore_stdin(), say("x")]) as fake, start(fake) as process:
        assert process.wait(LIMIT) == 0


def test_part_of_stdin_can_be_read() -> None:
    """`read_stdin(4)` reads four bytes and leaves the rest to later steps."""
    with (
        FakeCLI([read_stdin(4), ready("four"), wait_for("more"), read_stdin()]) as fake,
        start(fake) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(b"abcdefgh")
        process.stdin.flush()
        fake.wait("four", LIMIT)
        assert fake.calls[0].stdin == b"abcd"
        fake.release("more")
        process.stdin.close()
        assert process.wait(LIMIT) == 0
        assert fake.calls[0].stdin == b"abcdefgh"


def test_a_line_is_found_by_text_and_by_content_and_answered() -> None:
    """Lines that do not match are read over; a reply carries the id of the request found."""
    wanted = {"type": "control_request", "request": {"subtype": "initialize"}}
    script = [
        wait_for_line(wanted),
        reply({"commands": []}),
        wait_for_line("hello"),
        say("got it"),
        read_stdin(),
    ]
    request = {
        "request_id": "r7",
        "type": "control_request",
        "request": {"subtype": "initialize", "hooks": None},
    }
    sent = [
        {"type": "control_request", "request": {"subtype": "other"}},
        request,
        {"x": "hello"},
        {"last": 1},
    ]
    with FakeCLI(script) as fake:
        done = play(fake, stdin=b"not json\n" + b"".join(json.dumps(line).encode() + b"\n" for line in sent))
        assert fake.calls[0].stdin.endswith(b'{"last": 1}\n')
    answer, rest = done.stdout.split(b"\n", 1)
    response = {"subtype": "success", "request_id": "r7", "response": {"commands": []}}
    assert json.loads(answer) == {"type": "control_response", "response": response}
    assert rest == b"got it\n"


def test_a_request_can_be_refused() -> None:
    """`reply(error=...)` is the CLI's way to refuse."""
    done = played(wait_for_line(), reply(error="no"), stdin=b'{"request_id":"r1"}')
    assert lines_of(done.stdout)[0]["response"] == {"subtype": "error", "request_id": "r1", "error": "no"}


def test_waiting_for_a_line_ends_with_stdin() -> None:
    """A line that never comes is exit 1 and a sentence, not a hang."""
    done = played(wait_for_line("never"), stdin=b"a\nb")
    assert done.returncode == 1
    assert b"stdin ended before a line with b'never'" in done.stderr


# --- time, signals, ends


def test_release_can_be_for_one_start_alone() -> None:
    """`release(name, call=1)` lets the second start go on and not the first."""
    with FakeCLI([ignore_stdin(), ready("up"), wait_for("go")]) as fake, start(fake) as first:
        fake.wait("up", LIMIT)
        with start(fake) as second:
            fake.wait("up", LIMIT, count=2)
            fake.release("go", call=1)
            assert second.wait(LIMIT) == 0
        assert first.poll() is None
        fake.release("go", call=0)
        assert first.wait(LIMIT) == 0


def test_pause_takes_that_long() -> None:
    """A pause is not shorter than asked for."""
    began = time.monotonic()
    played(repeat(3, pause(0.02)))
    assert time.monotonic() - began >= 0.06


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_by_default_signals_kill_a_hanging_fake(signum: int) -> None:
    """`hang` lives until a signal comes, and dies of it, silently."""
    with FakeCLI([ignore_stdin(), ready("up"), hang()]) as fake, start(fake) as process:
        fake.wait("up", LIMIT)
        process.send_signal(signum)
        assert process.communicate(timeout=LIMIT) == (b"", b"")
        assert process.returncode == -signum


def test_ignored_signals_have_no_effect() -> None:
    """After `ignore_term` and `ignore_int` only SIGKILL ends it."""
    script = [ignore_stdin(), ignore_term(), ignore_int(), ready("up"), wait_for("end"), exit_with(6)]
    with FakeCLI(script) as fake, start(fake) as process:
        fake.wait("up", LIMIT)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        fake.release("end")
        assert process.wait(LIMIT) == 6


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)])
def test_last_words_after_a_signal(signum: int, code: int) -> None:
    """`on_term` says its lines and exits with its code; a second signal meanwhile changes nothing."""
    words = [say("bye"), ready("dying"), wait_for("end"), say("end")]
    script = [ignore_stdin(), on_term(*words, exit_code=code, signum=signum), ready("up"), hang()]
    with FakeCLI(script) as fake, start(fake) as process:
        fake.wait("up", LIMIT)
        process.send_signal(signum)
        fake.wait("dying", LIMIT)
        process.send_signal(signum)
        fake.release("end")
        assert process.communicate(timeout=LIMIT) == (b"bye\nend\n", b"")
        assert process.returncode == code


def test_a_signal_just_before_a_long_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler runs when the sleep is over: so none is long."""
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(_fake_cli, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now[0]))
    _fake_cli.sleep(1.02)
    assert sum(slept) == pytest.approx(1.02)
    assert max(slept) <= 0.05


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_death_by_a_signal(signum: int) -> None:
    """`die_by` ends the process as if the signal had come from outside, even an ignored one."""
    assert played(ignore_term(), die_by(signum)).returncode == -signum


def test_a_stopped_fake_goes_on_after_sigcont() -> None:
    """`die_by(SIGSTOP)` only stops it."""
    with FakeCLI([ignore_stdin(), die_by(signal.SIGSTOP), exit_with(7)]) as fake, start(fake) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.wait(LIMIT) == 7


def test_touch_writes_into_the_folder_of_the_process(tmp_path: Path) -> None:
    """A relative path is below the CLI's working directory."""
    with FakeCLI([touch("out.txt", "é")]) as fake:
        play(fake, cwd=tmp_path)
    assert (tmp_path / "out.txt").read_bytes() == "é".encode()


# --- children


@pytest.mark.parametrize("kind", ["group", "session", "detached"])
def test_a_child_is_where_it_was_asked_to_be(kind: Any) -> None:
    """`group` is in the CLI's group and session, the others in their own; `detached` has lost its parent."""
    with (
        FakeCLI([ignore_stdin(), start_child(kind), ready("up"), hang()]) as fake,
        start(fake, start_new_session=True) as process,
    ):
        fake.wait("up", LIMIT)
        (child,) = fake.children
        assert fake.alive() == [process.pid, child]
        assert (os.getpgid(child) == process.pid) == (kind == "group")
        assert (os.getsid(child) == process.pid) == (kind == "group")
        if kind == "detached":
            parent = subprocess.check_output(["ps", "-o", "ppid=", "-p", str(child)])
            assert int(parent) != process.pid
        process.kill()


def test_a_child_without_streams_does_not_hold_them() -> None:
    """stdout and stderr end with the CLI while the child lives."""
    with FakeCLI([start_child("session")]) as fake:
        assert play(fake).returncode == 0  # communicate() returned: both pipes ended
        assert fake.alive() == fake.children


@pytest.mark.parametrize("clear_env", [False, True])
def test_a_child_that_inherits_stdout_holds_it(clear_env: bool) -> None:
    """The reader sees the end only when the child is gone."""
    with FakeCLI([start_child("detached", inherit_stdout=True, clear_env=clear_env)]) as fake:
        process = start(fake, stdin=subprocess.DEVNULL)
        assert process.wait(LIMIT) == 0
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        assert process.stdout.read() is None  # open, and nothing in it
        os.set_blocking(process.stdout.fileno(), True)
        os.kill(fake.children[0], signal.SIGKILL)
        assert process.communicate(timeout=LIMIT) == (b"", b"")
        fake.wait_gone(LIMIT)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_a_child_has_the_environment_or_none() -> None:
    """The CLI's variables are in the child's environment, unless it was started with a clear one."""
    with FakeCLI([start_child(), start_child(clear_env=True)]) as fake:
        play(fake, env={"MARKER": "here"})
        seen = [Path(f"/proc/{pid}/environ").read_bytes() for pid in fake.children]
    assert b"MARKER=here" in seen[0]
    assert seen[1] == b""


def test_a_child_may_ignore_term() -> None:
    """SIGTERM kills the ordinary child and not the deaf one."""
    with FakeCLI([start_child(), start_child(ignore_term=True)]) as fake:
        play(fake)
        soft, deaf = fake.children
        for pid in (deaf, soft):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + LIMIT
        while soft in fake.alive() and time.monotonic() < deadline:
            os.sched_yield()
        assert fake.alive() == [deaf]
        with pytest.raises(TimeoutError, match=str(deaf)):
            fake.wait_gone(0.02)


# --- the fake itself


def test_close_kills_what_lives_and_removes_the_directory() -> None:
    """After `close` no process and no file is left; closing again does nothing."""
    with FakeCLI(
        [ignore_stdin(), ignore_term(), start_child("detached", ignore_term=True), ready("up"), hang()]
    ) as fake:
        process = start(fake)
        fake.wait("up", LIMIT)
        (child,) = fake.children
    process.communicate(timeout=LIMIT)
    assert process.returncode == -signal.SIGKILL
    assert not fake.directory.exists()
    fake.close()
    with pytest.raises(ProcessLookupError):
        _until_gone(child)


def _until_gone(pid: int) -> None:
    """Raises `ProcessLookupError` when init has reaped it; a zombie exists for a moment."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat")
        if status.exists() and ") Z " in status.read_text():
            raise ProcessLookupError


def test_a_forked_child_does_not_close_the_parents_fake() -> None:
    """After a fork, `close` in the child leaves the directory to its owner."""
    with FakeCLI([say("x")]) as fake:
        pid = os.fork()
        if pid == 0:
            fake.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert play(fake).stdout == b"x\n"


def test_the_fake_leaves_no_descriptor_and_no_thread() -> None:
    """Making, starting, asking and closing a fake costs the test process nothing that stays."""
    place = "/proc/self/fd" if os.path.exists("/proc/self/fd") else "/dev/fd"
    before = len(os.listdir(place)), threading.active_count()
    with FakeCLI([start_child()]) as fake:
        play(fake)
        fake.alive()
    assert (len(os.listdir(place)), threading.active_count()) == before


def test_it_runs_with_an_empty_environment_in_another_folder() -> None:
    """Neither PATH nor PYTHONPATH nor the working directory matters."""
    with FakeCLI([say("x")]) as fake:
        assert play(fake, env={}, cwd="/").stdout == b"x\n"


def test_variables_for_python_do_not_reach_it() -> None:
    """A PYTHONSTARTUP, PYTHONPATH or PYTHONUNBUFFERED of the user's changes nothing."""
    with FakeCLI([say("x")]) as fake:
        done = play(fake, env={"PYTHONHOME": "/nowhere", "PYTHONVERBOSE": "1", "PYTHONWARNINGS": "error"})
        assert (done.stdout, done.stderr) == (b"x\n", b"")


def test_an_interpreter_with_a_space_in_its_path_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where "#!" cannot name the interpreter, sh starts it; arguments survive."""
    python = tmp_path / "a b'c" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with FakeCLI([say("x")]) as fake:
        assert play(fake, "it's", "a b", "").stdout == b"x\n"
        assert fake.calls[0].argv == ("it's", "a b", "")
        assert fake.path.read_bytes().startswith(b"#!/bin/sh\n")


def test_a_directory_with_odd_characters_works(tmp_path: Path) -> None:
    """The place of the fake may have spaces, quotes and letters beyond ASCII."""
    place = tmp_path / "a b ' \" é"
    place.mkdir()
    with FakeCLI([say("x")], directory=place) as fake:
        assert play(fake, env={"LC_ALL": "C"}).stdout == b"x\n"


def test_the_child_program_imports_nothing_of_the_package() -> None:
    """A plain play needs no import that costs time: not json, signal, typing, os, nor this library."""
    with FakeCLI([init(), text("x"), result("x")]) as fake:
        launcher = fake.path.read_text().replace("space['main'](config)", "import sys; main = space['main']")
        probe = (
            launcher + "import posix\nposix._exit = lambda code: print(sorted(sys.modules))\n"
            "try: main(config)\nexcept BaseException as error: print(error)\n"
        )
        done = subprocess.run([sys.executable, "-ISB", "-c", probe], input=b"", capture_output=True, check=True)
    modules = done.stdout.decode().splitlines()[-1]
    assert "'marshal'" in modules
    for name in ("json", "signal", "typing", "re", "os", "fcntl", "claude_cli_client"):
        assert f"'{name}'" not in modules


def test_wrong_scripts_are_refused_at_once() -> None:
    """A value that is no step, an empty `scripts`, both or neither, and odd names raise."""
    with pytest.raises(TypeError, match="not a step"):
        FakeCLI([42])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="not a step"):
        FakeCLI(["a string is no line: use say"])
    with pytest.raises(ValueError, match="empty"):
        FakeCLI(scripts=[])
    with pytest.raises(ValueError, match="429, or with 'connection', not 'conection'"):
        FakeCLI([api_failure("conection")])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="either"):
        FakeCLI()
    with pytest.raises(ValueError, match="plain word"):
        ready("../x")


def test_all_names_are_there_and_described() -> None:
    """`__all__` is complete, and every function of it says what it does."""
    for name in testing.__all__:
        value = getattr(testing, name)
        assert isinstance(value, str) or value.__doc__, name


# --- the simulated CLI


def test_a_simulated_turn_has_the_usual_order() -> None:
    """init, a tool call, its result, the answer, the result; the answer says what it is."""
    done = simulated("Please count the words of this long prompt for me now")
    said = lines_of(done.stdout)
    assert [line["type"] for line in said] == ["system", "assistant", "user", "assistant", "result"]
    assert said[-1]["result"] == (
        "This is a simulated answer: no model was asked. "
        "Your prompt begins: Please count the words of this long prompt ..."
    )
    assert said[3]["message"]["content"] == [{"type": "text", "text": said[-1]["result"]}]
    assert (said[-1]["num_turns"], said[-1]["total_cost_usd"], done.returncode) == (2, 0.000408, 0)


def test_the_simulation_honours_model_mode_and_tools() -> None:
    """Aliases are resolved, removed tools are neither listed nor called."""
    done = simulated("x", "--model=sonnet", "--permission-mode", "plan", "--tools=Bash,Read", "--disallowedTools=Bash")
    said = lines_of(done.stdout)
    assert (said[0]["model"], said[0]["permissionMode"], said[0]["tools"]) == (
        "claude-sonnet-5-5",
        "plan",
        ["Read"],
    )
    assert [line["type"] for line in said] == ["system", "assistant", "result"]


@pytest.mark.parametrize(
    ("args", "same"),
    [
        ([f"--session-id={SESSION}"], True),
        ([f"--resume={SESSION}"], True),
        ([f"--resume={SESSION}", "--fork-session"], False),
    ],
)
def test_the_simulated_session_is_the_one_asked_for(args: list[str], same: bool) -> None:
    """A given or resumed id is kept in every line; a fork has a new one."""
    (session,) = {line["session_id"] for line in lines_of(simulated("x", *args).stdout)}
    assert (session == SESSION) == same


def test_simulated_partial_messages_add_up_to_the_answer() -> None:
    """With `--include-partial-messages` the deltas join to the text of the whole line."""
    said = lines_of(simulated("hello [[think]] [[plain]]", "--include-partial-messages").stdout)
    deltas = [line["event"]["delta"] for line in said if line.get("event", {}).get("type") == "content_block_delta"]
    assert "".join(part.get("text", "") for part in deltas) == said[-1]["result"]
    assert any(part["type"] == "thinking_delta" for part in deltas)


def test_simulated_structured_output() -> None:
    """The result has the value, and its JSON as text."""
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["n"],
    }
    end = lines_of(simulated("x", f"--json-schema={json.dumps(schema)}").stdout)[-1]
    assert end["structured_output"] == {"name": "simulated", "n": 1}
    assert json.loads(end["result"]) == end["structured_output"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": ["b", "a"]}, "b"),
        ({"const": None}, None),
        ({"type": "boolean", "default": False}, False),
        ({"type": ["null", "integer"], "minimum": 5}, 5),
        ({"type": "integer", "exclusiveMinimum": 5, "multipleOf": 4}, 8),
        ({"type": "integer", "minimum": 0.5, "maximum": 1.5}, 1),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, 0.5),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "number", "exclusiveMaximum": -3}, -4),
        ({"type": "array", "items": {"type": "null"}, "minItems": 2}, [None, None]),
        ({"type": "array", "items": {}, "maxItems": 0}, []),
        ({"type": "string", "minLength": 11}, "simulatedxx"),
        ({"type": "string", "maxLength": 3}, "sim"),
        ({"type": "string", "format": "date"}, "2026-01-31"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"const": 7}}}, 7),
        (
            {"allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 2}}}]},
            {"a": 1, "b": 2},
        ),
        ({"type": "object", "anyOf": [{"properties": {"a": {"const": 1}}}]}, {"a": 1}),
        ({"type": "object", "required": ["x"]}, {"x": None}),
    ],
)
def test_a_value_satisfies_its_schema(schema: dict[str, Any], value: Any) -> None:
    """Each keyword that is understood is honoured."""
    assert instance_of(schema) == value


def test_a_recursive_schema_ends() -> None:
    """Optional parts that contain themselves are left out at some depth."""
    schema = {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "all": {"type": "array", "items": {"$ref": "#"}}},
    }
    assert isinstance(instance_of(schema), dict)


def test_simulated_failure() -> None:
    """[[fail: 529]] is an API failure with that status, exit 1."""
    done = simulated("x [[fail: 529]]")
    end = lines_of(done.stdout)[-1]
    assert (end["api_error_status"], end["subtype"], end["is_error"], done.returncode) == (
        529,
        "success",
        True,
        1,
    )


def test_simulated_max_turns() -> None:
    """One tool call reaches `--max-turns 1`."""
    done = simulated("x", "--max-turns", "1")
    end = lines_of(done.stdout)[-1]
    assert (end["subtype"], end["errors"]) == ("error_max_turns", ["Reached maximum number of turns (1)"])
    assert (end["num_turns"], done.returncode) == (2, 1)


def test_simulated_exit_and_retries() -> None:
    """[[exit: 3]] ends without a result, after the retries that [[retry: 1]] asks for."""
    done = simulated("[[retry: 1]] [[exit: 3]]")
    assert [line.get("subtype") for line in lines_of(done.stdout)] == ["init", "api_retry"]
    assert done.returncode == 3


def test_simulated_slowness() -> None:
    """[[slow: 0.2]] makes the answer take that long."""
    began = time.monotonic()
    assert simulated("[[slow: 0.2]]", "--include-partial-messages").returncode == 0
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(
    "prompt", ["[[retry: x]] [[think: ]] [[tools: .]]", "[[fail: odd]]", "\ud83d\ude00\x00\u2028 [[nothing]]"]
)
def test_no_prompt_breaks_the_simulation(prompt: str) -> None:
    """Cues with nonsense and odd characters give a result and nothing on stderr."""
    data = prompt.encode("utf-8", "surrogatepass")
    with SimulatedCLI() as fake:
        done = play(fake, "--output-format=stream-json", stdin=data)
    assert lines_of(done.stdout)[-1]["type"] == "result"
    assert done.stderr == b""


@pytest.mark.parametrize(
    "cue",
    [
        "[[tools: x]]", "[[fail: 99]]", "[[fail: odd]]", "[[slow 5 s]]", "[[think: hard]]", "[[hnag]]", "[[sleep: 5]]",
        "[[call]]", "[[call: Read]]", '[[call: Read {"file_path": }]]', "[[call: Read {1}]]",
    ],
)  # fmt: skip
def test_a_misspelt_cue_fails_the_turn(cue: str) -> None:
    """With a sentence that names it and all that there are."""
    done = simulated(f"Hi [[plain]] {cue}")
    end = lines_of(done.stdout)[-1]
    assert (done.returncode, end["type"], end["is_error"]) == (1, "result", True)
    (sentence,) = end["errors"]
    assert cue in sentence
    assert set(re.findall(r"\[\[(\w+)", sentence.partition("; it knows ")[2])) == set(_fake_simulation.CUES)


@pytest.mark.parametrize(
    "text", ["[[a, b], [c]]", "if [[ -f slow ]]; then", "x[[i]]", "[[Page]]", "[[tools, hang]]", "[hang]", "[[hang"]
)
def test_what_is_no_cue(text: str) -> None:
    """Brackets of other kinds are words like all others."""
    end = lines_of(simulated(text).stdout)[-1]
    assert end["result"].endswith(text)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["[[fail:" + " " * 20_000, "[[fail" + " " * 20_000, "[[abc:" * 20_000])
def test_an_open_bracket_is_no_burden(text: str) -> None:
    """A long prompt with a cue that is never closed is read once."""
    assert simulated(text + "x").returncode == 0


@pytest.mark.parametrize("cue", ["[[tools]]", "[[ tools : 1 ]]", "[[tools 1]]", "[[fail: 418]]", "[[call: mcp__a__b]]"])
def test_what_is_a_cue(cue: str) -> None:
    """Also with a default, with spaces, without the colon; a tool of the host's may want no input."""
    assert "errors" not in lines_of(simulated(cue).stdout)[-1]


def test_a_session_goes_on_after_a_misspelt_cue() -> None:
    """Only the turn fails."""
    with live() as host:
        host.prompt("[[hnag]]")
        assert host.result()["is_error"]
        host.prompt("Hi")
        assert not host.result()["is_error"]


@pytest.mark.parametrize(
    ("prompt", "args", "message"),
    [
        ("", [], b"Input must be provided"),
        (" \n", [], b"only whitespace"),
        ("x", ["--session-id=no"], b"Invalid session ID"),
        ("x", [f"--session-id={SESSION}", "--continue"], b"also needs --fork-session"),
        ("x", ["--json-schema={no"], b"--json-schema is not valid JSON"),
        (
            "x", ['--json-schema={"type": "objekt"}'],
            b"Error: --json-schema is not a valid JSON Schema: data/type must be equal to one of the allowed values, "
            b"data/type must be array, data/type must match a schema in anyOf\n",
        ),
        (
            "x", ['--json-schema={"properties": {"type": {"anyOf": [{"type": "null"}, {"type": ["string", "nul"]}]}}}'],
            b"data/properties/type/anyOf/1/type/1 must be equal to one of the allowed values",
        ),
        ("x", ["--max-turns=abc"], b"'abc' is invalid"),
    ],
)
def test_the_simulation_refuses_what_the_cli_refuses(prompt: str, args: list[str], message: bytes) -> None:
    """Exit 1, nothing on stdout, the reason on stderr."""
    done = simulated(prompt, *args)
    assert (done.stdout, done.returncode) == (b"", 1)
    assert message in done.stderr


def test_the_simulation_serves_a_live_session() -> None:
    """Control requests are answered; each prompt gets its turn, with results counted and costs summed."""
    sent = [
        {"type": "control_request", "request_id": "r1", "request": {"subtype": "initialize"}},
        {"type": "user", "message": {"role": "user", "content": "one"}},
        {
            "type": "control_request",
            "request_id": "r2",
            "request": {"subtype": "set_model", "model": "sonnet"},
        },
        {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "two [[plain]]"}]}},
    ]
    with SimulatedCLI() as fake:
        args = ["--output-format=stream-json", "--input-format=stream-json"]
        done = play(fake, *args, stdin=b"".join(json.dumps(line).encode() + b"\n" for line in sent))
        assert fake.calls[0].messages == sent
    said = lines_of(done.stdout)
    assert [line["response"]["request_id"] for line in said if line["type"] == "control_response"] == [
        "r1",
        "r2",
    ]
    first, second = (line for line in said if line["type"] == "result")
    assert (first["result_index"], second["result_index"]) == (0, 1)
    assert (first["total_cost_usd"], second["total_cost_usd"]) == (0.000408, 0.000612)
    assert list(second["modelUsage"]) == ["claude-sonnet-5-5"]


def _used_in_simulation(**options: Any) -> tuple[bool, list[PermissionRequest]]:
    """Whether the tool of a server was called, and what was asked before."""
    called: list[bool] = []
    asked: list[PermissionRequest] = []

    def drop() -> str:
        called.append(True)
        return "dropped"

    def may(request: PermissionRequest) -> bool:
        asked.append(request)
        return True

    with SimulatedCLI() as fake:
        client = Client(cli_path=fake.path, mcp_servers={"my": ToolServer([drop])}, **{"can_use_tool": may, **options})
        client.ask("[[call: mcp__my__drop]]")
    return bool(called), asked


@pytest.mark.parametrize("rule", ["mcp__my__drop", "mcp__my", "mcp__my__*"])
def test_the_simulation_knows_rules_for_a_server(rule: str) -> None:
    """As the CLI: what is allowed is not asked for, what is disallowed is not there."""
    assert _used_in_simulation(allowed_tools=[rule]) == (True, [])
    assert _used_in_simulation(disallowed_tools=[rule]) == (False, [])


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (HookReply.block("no"), "UserPromptSubmit operation blocked by hook: no"),
        (HookReply.stop("no"), "Operation stopped by hook: no"),
    ],
    ids=["block", "stop"],
)
def test_the_simulation_lets_a_hook_end_a_prompt(reply: HookReply, why: str) -> None:
    """In the CLI's words for either."""
    with SimulatedCLI() as fake, pytest.raises(UnfinishedTurnError) as caught:
        Client(cli_path=fake.path, hooks={"UserPromptSubmit": lambda call: reply}).ask("hi")
    assert why in caught.value.message


def test_the_simulation_asks_for_a_tool_of_a_server_as_the_cli_does() -> None:
    """With its mark, which says whether anything but a missing rule asks."""
    _, (asked,) = _used_in_simulation()
    assert asked.raw["server_policy_ask_only"] is True
    _, (asked,) = _used_in_simulation(hooks={"PermissionRequest": lambda call: None})
    assert asked.raw["server_policy_ask_only"] is False


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_simulation_knows_the_other_output_formats(form: str) -> None:
    """`text` is the answer alone, `json` the result line alone."""
    with SimulatedCLI() as fake:
        output = play(fake, f"--output-format={form}", stdin=b"hi").stdout
    answer = json.loads(output)["result"] if form == "json" else output.decode().rstrip("\n")
    assert answer.endswith("Your prompt begins: hi")


def test_the_simulation_ends_like_the_cli_after_sigterm() -> None:
    """Once started, SIGTERM gives 143 without another line."""
    with SimulatedCLI() as fake, start(fake, "--output-format=stream-json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"[[hang]]")
        process.stdin.close()
        assert b'"init"' in process.stdout.readline()
        process.terminate()
        assert process.stdout.read() == b""
        assert process.wait(LIMIT) == 143


# --- the simulation's callbacks


class Host:
    """The other end of a live simulation's stdin and stdout: it answers what is asked by `answers`."""

    def __init__(self, process: subprocess.Popen[bytes], answers: dict[str, Any]) -> None:
        self.process = process
        self.answers = answers
        self.asked: list[dict[str, Any]] = []
        self.cancelled: list[str] = []

    def send(self, *lines: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        self.process.stdin.flush()

    def request(self, subtype: str, **fields: Any) -> None:
        request = {"subtype": subtype, **fields}
        self.send({"type": "control_request", "request_id": subtype, "request": request})

    def prompt(self, text: str) -> None:
        self.send({"type": "user", "uuid": "u1", "message": {"role": "user", "content": text}})

    def lines(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for raw in self.process.stdout:
            line = json.loads(raw)
            if line["type"] == "control_request":
                self.asked.append(line["request"])
                self._answer(line)
            elif line["type"] == "control_cancel_request":
                self.cancelled.append(line["request_id"])
            yield line

    def _answer(self, line: dict[str, Any]) -> None:
        answer = self.answers.get(line["request"]["subtype"])
        if answer is not None:
            response = {"subtype": "success", "request_id": line["request_id"], "response": answer}
            self.send({"type": "control_response", "response": response})

    def result(self) -> dict[str, Any]:
        """What the turn came to: its result with the texts of its tool results."""
        texts = []
        for line in self.lines():
            if line["type"] == "user" and line["message"]["content"][0]["type"] == "tool_result":
                texts.append(line["message"]["content"][0]["content"])
            if line["type"] == "result":
                return {**line, "texts": texts}
        raise AssertionError("no result")


@contextlib.contextmanager
def live(*args: str, hooks: Any = None, **answers: Any) -> Iterator[Host]:
    """A live simulation; closing its stdin ends it, with the code of its last result."""
    every = ["--output-format=stream-json", "--input-format=stream-json", *args]
    with SimulatedCLI() as fake, start(fake, *every) as process:
        host = Host(process, answers)
        host.request("initialize", hooks=hooks)
        yield host
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(LIMIT) in (0, 1)


STDIO = "--permission-prompt-tool=stdio"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"behavior": "allow"}, "simulated call 1"),
        ({"behavior": "allow", "updatedInput": {"command": "echo other"}}, "other"),
        ({"behavior": "deny", "message": "no, thanks"}, "no, thanks"),
        ({}, "Tool permission callback returned an invalid permission result"),
    ],
)
def test_the_simulation_asks_for_permission(answer: dict[str, Any], text: str) -> None:
    """With `--permission-prompt-tool stdio`; the answer decides what the tool gives back."""
    with live(STDIO, can_use_tool=answer) as host:
        host.prompt("hi")
        result = host.result()
    assert [request["tool_name"] for request in host.asked] == ["Bash"]
    assert result["texts"] == [text]
    assert len(result["permission_denials"]) == (answer.get("behavior") != "allow")


@pytest.mark.parametrize(
    "args", [["--allowedTools=Bash(echo *)"], ["--permission-mode=bypassPermissions"], ["--permission-mode=dontAsk"]]
)
def test_the_simulation_does_not_ask_what_is_decided(args: list[str]) -> None:
    """Rules and modes come first."""
    with live(STDIO, *args) as host:
        host.prompt("hi")
        assert host.result()["subtype"] == "success"
    assert host.asked == []


def test_the_simulation_keeps_new_rules() -> None:
    """The suggestion, sent back, allows the calls that follow."""
    suggestion = {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "echo *"}], "behavior": "allow"}
    with live(STDIO, can_use_tool={"behavior": "allow", "updatedPermissions": [suggestion]}) as host:
        host.prompt("[[tools: 3]]")
        assert len(host.result()["texts"]) == 3
    assert len(host.asked) == 1
    (suggested,) = host.asked[0]["permission_suggestions"]
    assert suggested == {**suggestion, "destination": "localSettings"}


def test_the_simulation_calls_hooks() -> None:
    """Those that match, in the order of events."""
    events = ["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"]
    hooks: dict[str, Any] = {event: [{"hookCallbackIds": [event]}] for event in events}
    hooks["PreToolUse"].append({"matcher": "Write", "hookCallbackIds": ["not for Bash"]})
    with live(hooks=hooks, hook_callback={}) as host:
        host.prompt("hi")
        assert host.result()["texts"] == ["simulated call 1"]
    assert [request["callback_id"] for request in host.asked] == events
    assert [request["input"]["hook_event_name"] for request in host.asked] == events


def test_the_simulation_obeys_a_denying_hook() -> None:
    """The call is denied, and nobody is asked for permission."""
    output = {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "not here"}}
    with live(STDIO, hooks={"PreToolUse": [{"hookCallbackIds": ["h"]}]}, hook_callback=output) as host:
        host.prompt("hi")
        assert host.result()["texts"] == ["PreToolUse:Bash hook error: not here"]
    assert [request["subtype"] for request in host.asked] == ["hook_callback"]


def test_the_simulation_gives_a_silent_hook_up() -> None:
    """After its timeout: it is withdrawn, and of PreToolUse the tool does not run."""
    with live(hooks={"PreToolUse": [{"hookCallbackIds": ["h"], "timeout": 0.05}]}) as host:
        host.prompt("hi")
        assert host.result()["texts"] == ["PreToolUse:Bash hook error: the hook did not answer"]
    assert len(host.cancelled) == 1


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [("hi", "aborted_tools"), ("[[plain]] [[slow: 60]]", "aborted_streaming"), ("[[hang]]", "aborted_streaming")],
)
def test_the_simulation_is_interrupted(prompt: str, reason: str) -> None:
    """While a question is open, and while it writes; open questions are withdrawn, and the next prompt is answered."""
    with live(STDIO) as host:
        host.prompt(prompt)
        for line in host.lines():
            if line["type"] == "control_request" or (line.get("subtype") == "init" and prompt != "hi"):
                break
        host.request("interrupt")
        result = host.result()
        assert (result["subtype"], result["terminal_reason"]) == ("error_during_execution", reason)
        assert len(host.cancelled) == len(host.asked)
        host.prompt("[[plain]] again")
        assert host.result()["subtype"] == "success"


def test_the_simulation_denies_when_its_stdin_is_closed() -> None:
    """Nobody is there to ask: the turn goes on to its end."""
    with live(STDIO) as host:
        host.prompt("hi")
        assert host.process.stdin is not None
        host.process.stdin.close()
        assert "stream closed" in host.result()["texts"][0]


def test_the_simulation_refuses_other_control_requests() -> None:
    """With an error and its code, so that nobody waits for an answer."""
    with live() as host:
        host.request("set_color")
        answers = [next(host.lines())["response"] for _ in range(2)]
    assert (answers[1]["subtype"], answers[1]["error_code"]) == ("error", "unsupported_request")


def test_lines_have_the_keys_of_the_recordings() -> None:
    """No builder invents a field: every key is one that a recording of the real CLI has."""
    recordings = Path(__file__).parent / "data"
    known: set[str] = set()
    for path in recordings.rglob("*.jsonl"):
        for line in path.read_bytes().split(b"\n"):
            known |= json.loads(line).keys() if line.startswith(b'{"') else set()
    if not known:
        pytest.skip("no recordings in tests/data")
    for step in (
        init(),
        text("x"),
        thinking("x"),
        tool_use("Bash"),
        tool_result("x"),
        delta("x"),
        result("x"),
    ):
        assert step.line is not None
        assert step.line.keys() <= known


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Every fake of a test has removed its directory at the end of the test."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield
    assert list(place.iterdir()) == []
    shutil.rmtree(place)
