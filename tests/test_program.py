"""The program `run`: what it writes where, how it ends, and that nothing is left."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from claude_cli_client import __main__, __version__, _run_program
from claude_cli_client._progress import Progress
from claude_cli_client.events import Event
from claude_cli_client.testing import (
    FakeCLI,
    SimulatedCLI,
    api_failure,
    delta,
    exit_with,
    hang,
    init,
    on_term,
    ready,
    result,
    stream,
    text,
    to_stderr,
    tool_result,
    tool_use,
    wait_for,
)

ROOT = Path(__file__).resolve().parent.parent
ERASE = "\r\x1b[K"
ANSWER = [init(), text("Hello."), result("Hello.")]
LIMIT = 60  # seconds: a bound for what should take one


@pytest.fixture
def home(tmp_path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def start(home) -> Iterator:
    """Starts the program: `start(fake, "prompt", "--flag", stdin=..., ...)`; killed after the test."""
    started = []

    def start(cli: FakeCLI | None, *words: str, **options) -> subprocess.Popen[bytes]:
        foreign = ("CLAUDE", "ANTHROPIC")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        environ |= {"HOME": str(home), "PYTHONPATH": str(ROOT), "TERM": "xterm", **options.pop("env", {})}
        where = ["--cli-path", str(cli.path)] if cli else []
        for name in ("stdin", "stdout", "stderr"):
            options.setdefault(name, subprocess.PIPE if name != "stdin" else subprocess.DEVNULL)
        process = subprocess.Popen(
            [sys.executable, "-m", "claude_cli_client", "run", *where, *words],
            env=environ,
            cwd=home,
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        with process:
            pass


@pytest.fixture
def run(start):
    """Runs the program to its end: (exit code, stdout, stderr)."""

    def run(cli: FakeCLI | None, *words: str, input: bytes | None = None, **options) -> tuple[int, str, str]:
        if input is not None:
            options["stdin"] = subprocess.PIPE
        process = start(cli, *words, **options)
        out, err = process.communicate(input, timeout=LIMIT)
        return process.returncode, out.decode(), err.decode()

    return run


# --- the answer


def test_the_answer_goes_to_stdout_and_nothing_else(run):
    """Exit code 0, the answer with a line end, not a word on stderr."""
    with FakeCLI(ANSWER) as fake:
        assert run(fake, "Hi") == (0, "Hello.\n", "")
        assert fake.calls[0].prompt == "Hi"


def test_the_answer_comes_as_it_is_written(start):
    """A piece is on stdout before the CLI has written the next one."""
    script = [init(), delta("Hel"), wait_for("more"), delta("lo"), text("Hello"), result("Hello")]
    with FakeCLI(script) as fake:
        process = start(fake, "Hi")
        assert os.read(process.stdout.fileno(), 100) == b"Hel"
        fake.release("more")
        assert process.communicate(timeout=LIMIT)[0] == b"lo\n"


def test_nothing_is_written_twice(run):
    """Deltas and the whole block of the same text give the text once."""
    with FakeCLI([init(), *stream(["One ", "two ", "three."]), result("One two three.")]) as fake:
        assert run(fake, "Hi")[1] == "One two three.\n"


def test_what_did_not_come_as_deltas_is_added(run):
    """The rest of a block whose deltas are incomplete follows from the whole block."""
    with FakeCLI([init(), delta("One "), text("One two."), result("One two.")]) as fake:
        assert run(fake, "Hi")[1] == "One two.\n"


def test_what_is_added_behind_a_message_that_broke_off(run):
    """What was streamed of one message is no part of the next one, whose rest is added all the same."""
    a, b = {"message_id": "a"}, {"message_id": "b"}
    with FakeCLI([init(), delta("half of A", **a), delta("One ", **b), text("One two.", **b), result("x")]) as fake:
        assert run(fake, "Hi")[1] == "half of A\nOne two.\n"


def test_blocks_of_messages_without_an_id(run):
    """Each is on a line of its own, however it came."""
    nobody = {"message_id": ""}
    script = [init(), delta("On", **nobody), delta("e", **nobody), text("One.", **nobody), text("Two.", **nobody)]
    with FakeCLI([*script, result("x")]) as fake:
        assert run(fake, "Hi")[1] == "One.\nTwo.\n"


def test_messages_begin_on_lines_of_their_own(run):
    """Text before and after a tool call does not run together."""
    script = [
        init(),
        text("I look."),
        tool_use("Bash", {"command": "ls"}),
        tool_result("a"),
        text("One."),
        result("One."),
    ]
    with FakeCLI(script) as fake:
        assert run(fake, "Hi")[1] == "I look.\nOne.\n"


def test_subagents_are_not_the_answer(run):
    """Text with a parent tool call is left out."""
    script = [init(), text("inner", parent_tool_use_id="toolu_1"), text("Outer."), result("Outer.")]
    with FakeCLI(script) as fake:
        assert run(fake, "Hi")[1] == "Outer.\n"


def test_an_answer_that_only_the_result_has(run):
    """Slash commands answer without an assistant line."""
    with FakeCLI([init(), result("Context: 3 %")]) as fake:
        assert run(fake, "/context")[1] == "Context: 3 %\n"


def test_text_that_the_encoding_lacks(run):
    """A lone surrogate, or a C locale, replaces a character and does not end the program."""
    with FakeCLI([init(), text("a\ud800b \u00e9"), result("x")]) as fake:
        code, out, err = run(fake, "Hi", env={"PYTHONIOENCODING": "ascii"})
    assert (code, out, err) == (0, "a?b ?\n", "")


@pytest.mark.parametrize("words", [["-"], []], ids=["dash", "absent"])
def test_the_prompt_from_stdin(run, words):
    """`-` and no prompt at all read stdin to its end, unchanged."""
    with FakeCLI(ANSWER) as fake:
        assert run(fake, *words, input="Grüße\n- list\n".encode())[0] == 0
        assert fake.calls[0].prompt == "Grüße\n- list\n"


def test_a_schema_leaves_only_data_on_stdout(run, tmp_path):
    """With `--json-schema` stdout is the structured output alone; the schema may be a file."""
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}')
    with SimulatedCLI() as cli:
        code, out, err = run(cli, "Count", "--json-schema", str(schema))
    assert (code, err) == (0, "")
    assert isinstance(json.loads(out)["n"], int)


# --- --json


def test_json_lines(run):
    """One object for each event, the terminal one last, only fields that say something, no `raw`."""
    with FakeCLI(ANSWER) as fake:
        code, out, _ = run(fake, "Hi", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [event["type"] for event in events] == ["system", "text", "result"]
    assert events[1]["text"] == "Hello."
    assert [event.get("is_terminal", False) for event in events] == [False, False, True]
    assert events[2]["exit_code"] == 0
    assert not any("raw" in event or "data" in event or "errors" in event for event in events)


def test_json_lines_with_data(run):
    """`--data` adds the CLI's own line, decoded."""
    with FakeCLI(ANSWER) as fake:
        out = run(fake, "Hi", "--json", "--data")[1]
    assert json.loads(out.splitlines()[0])["data"]["subtype"] == "init"


def test_nothing_is_void_that_nobody_saw(capsys):
    """A stream that broke behind an empty delta has shown nothing that could be taken back."""
    answer = _run_program.Answer(io.StringIO())
    for event in (Event("text_delta", message_id="m"), Event("retracted", message_id="m")):
        answer.event(event)
    assert capsys.readouterr().err == ""


def test_unknown_events_keep_their_line():
    """Of a type this version does not know the content is nowhere else, so `data` is there."""
    fields = _run_program.event_fields(Event("new_thing", raw='{"type": "new_thing", "x": 1}'))
    assert fields == {"type": "new_thing", "data": {"type": "new_thing", "x": 1}}
    assert "data" not in _run_program.event_fields(Event("text", raw='{"type": "text"}'))


def test_json_lines_are_ascii():
    """Every consumer can read it, lone surrogates included, and reads back the same."""
    out = io.StringIO()
    _run_program.Lines(out).event(Event("text", text="\ud800é\n"))
    assert out.getvalue().isascii()
    assert out.getvalue().count("\n") == 1
    assert json.loads(out.getvalue())["text"] == "\ud800é\n"


def test_a_failed_turn_is_a_json_line_too(run):
    """The terminal event is printed, the error is on stderr, the exit code is 1."""
    with FakeCLI([init(), *api_failure(429)]) as fake:
        code, out, err = run(fake, "Hi", "--json")
    last = json.loads(out.splitlines()[-1])
    assert (code, last["is_error"], last["api_error_status"]) == (1, True, 429)
    assert err.startswith("claude_cli_client: ")


# --- how it ends


def test_a_failed_turn_says_why(run):
    """Exit code 1; stderr has the CLI's own words, stdout has no error text."""
    with FakeCLI([init(), *api_failure(401, "API Error: 401 bad key")]) as fake:
        code, out, err = run(fake, "Hi")
    assert (code, out) == (1, "")
    assert "API Error: 401 bad key" in err
    assert "Traceback" not in err


def test_a_cli_that_dies_says_why(run):
    """Without a result: exit code 1, the CLI's stderr in the error."""
    with FakeCLI([init(), text("Half"), to_stderr("out of luck\n"), exit_with(3)]) as fake:
        code, out, err = run(fake, "Hi")
    assert (code, out) == (1, "Half\n")
    assert "out of luck" in err


@pytest.mark.parametrize(
    "words",
    [
        ["Hi", "--no-such-flag"],
        ["Hi", "--max-turns", "many"],
        ["Hi", "--permission-mode", "bogus"],
        ["Hi", "--timeout", "soon"],
        ["Hi", "--env", "NAME"],
        ["Hi", "--session-id", "--evil"],
        ["Hi", "--json-schema", "/nowhere/schema.json"],
        ["  "],
        ["Hi", "--simulate"],
    ],
)
def test_wrong_usage_is_a_2(run, words):
    """A wrong flag, value or combination, or an empty prompt: exit code 2, no CLI started, no traceback."""
    with FakeCLI(ANSWER) as fake:
        code, out, err = run(fake, *words)
        assert not fake.calls
    assert (code, out) == (2, "")
    assert err
    assert "Traceback" not in err


PATH_FLAGS = [
    "--cwd", "--config-dir", "--add-dir", "--plugin-dir", "--debug-file", "--settings", "--mcp-config", "--agents",
    "--system-prompt-file", "--append-system-prompt-file", "--json-schema",
]  # fmt: skip


@pytest.mark.parametrize("flag", PATH_FLAGS)
def test_an_empty_path_is_not_the_working_directory(capsys, flag):
    """A variable that is not set, in a script: exit code 2 and the flag's name."""
    assert usage_error(capsys, "Hi", flag, "").endswith(f"error: argument {flag}: an empty path\n")


@pytest.mark.parametrize("flag", PATH_FLAGS)
def test_a_relative_path_in_a_folder_that_is_gone(capsys, tmp_path, monkeypatch, flag):
    """Exit code 2, with a sentence that says what it is relative to."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    said = usage_error(capsys, "Hi", flag, "x")
    assert said.endswith(f"error: argument {flag}: x is relative, and the working directory is gone\n")


def test_a_schema_that_is_no_text(capsys, tmp_path):
    """Exit code 2, with the file's name."""
    path = tmp_path / "schema.json"
    path.write_bytes(b'{"title": "\xff"}')
    assert usage_error(capsys, "Hi", "--json-schema", str(path)).endswith(f"{path} is no text in UTF-8\n")


def usage_error(capsys, *words: str) -> str:
    """What `run` says of these words on stderr, before it starts anything."""
    with pytest.raises(SystemExit) as ended:
        __main__.main(["run", *words])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_an_unknown_flag_leads_to_the_help(run):
    """Of the command that was meant."""
    with FakeCLI(ANSWER) as fake:
        code, out, err = run(fake, "Hi", "--nonsense")
        assert not fake.calls
    assert (code, out) == (2, "")
    assert "run: error: unknown: --nonsense; see --help" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--modle sonnet hi", "unknown: --modle; did you mean --model? see --help"),
        ("hi --modle=secret", "unknown: --modle; did you mean --model? see --help"),
        ("--jsno hi", "unknown: --jsno; did you mean --json? see --help"),
        ("--mcp-servers a.json hi", "unknown: --mcp-servers; did you mean --mcp-config? see --help"),
        ("--allow Read hi", "unknown: --allow; did you mean --allowed-tools? see --help"),
        ("--max-cost 3 hi", "unknown: --max-cost; did you mean --max-budget-usd? see --help"),
        ("hi --unattended", "unknown: --unattended; unattended is for Python only; see --help"),
        ("hi --dangerously", "unknown: --dangerously; see --help"),
        ("say hello", "the prompt is one argument, quote it: 'say hello'; see --help"),
        ("--max-turns abc hi", "argument --max-turns: expected a whole number, 1 or more, got 'abc'"),
        ("--max-budget-usd x hi", "argument --max-budget-usd: expected a number above 0, got 'x'"),
    ],
)
def test_a_wrong_word_leads_to_the_right_one(capsys, words, said):
    """The flag that is meant is named, and what stands innocently beside it is not."""
    assert usage_error(capsys, *words.split()).splitlines()[-1].endswith(f"run: error: {said}")


def test_a_wrong_word_for_the_doctor(capsys):
    """It has other flags."""
    with pytest.raises(SystemExit):
        __main__.main(["doctor", "--model", "x"])
    assert capsys.readouterr().err.endswith("doctor: error: unknown: --model x; see --help\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--max-turns", "0"], "--max-turns must be 1 or more"),
        (["--mcp-config", "/max_turns/no.json"], "--mcp-config names a file that does not exist: '/max_turns/no.json'"),
        (["--extra-arg", "model=x"], "--extra-arg: --model is refused: use --model"),
        (["--resume", "a", "--continue"], "--resume and --continue exclude each other"),
        (["--fork-session"], "--fork-session needs --resume or --continue"),
        (["--tools", "bash"], "--tools[0]: the tool is called 'Bash'"),
        (["--cwd", "/name"], "--cwd must be an existing directory, and '/name' is not"),
        (["--cwd", "/my max_turns dir"], "--cwd must be an existing directory, and '/my max_turns dir' is not"),
        (["--cwd", "/it's max_turns"], """--cwd must be an existing directory, and "/it's max_turns" is not"""),
        (["--cwd", "/give model= x"], "--cwd must be an existing directory, and '/give model= x' is not"),
    ],
)
def test_a_refusal_names_the_flag(run, words, said):
    """Its first words are what was typed; paths and values stay as they are."""
    with FakeCLI(ANSWER) as fake:
        code, _, err = run(fake, "Hi", *words)
    assert code == 2
    assert err.startswith(f"claude_cli_client: {said}")


def test_an_apostrophe_is_no_quote():
    """What stands behind it is still our own sentence."""
    assert __main__._in_flags("the CLI's own max_turns", True) == "the CLI's own --max-turns"


def test_a_missing_cli_is_named_by_the_flag():
    """The hint is about what to type."""
    said = 'no CLI\n  say where: cli_path="/path/to/claude" or the variable'
    assert __main__._in_flags(said).endswith("say where: --cli-path /path/to/claude or the variable")


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_reader_that_went_away_ends_the_doctor_quietly(words):
    """`doctor | head -1`: the exit code of a broken pipe, and no traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-u", "-m", "claude_cli_client", "doctor", "--cli-path", "/nowhere/claude", *words],
            stdout=writing, stderr=subprocess.PIPE, timeout=LIMIT, check=False, cwd=ROOT,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_missing_cli_is_a_1(run):
    """The command line was right, so it is a failure and not wrong usage."""
    code, out, err = run(None, "Hi", "--cli-path", "/nowhere/claude")
    assert (code, out) == (1, "")
    assert "/nowhere/claude does not exist" in err


def test_a_time_limit_is_a_124(run):
    """As timeout(1): the turn is ended, and the error says which limit it was."""
    with FakeCLI([init(), hang()]) as fake:
        code, _, err = run(fake, "Hi", "--timeout", "0.3")
        fake.wait_gone()
    assert code == 124
    assert "0.3" in err


def test_an_error_names_the_flag(run):
    """Who typed `--idle-timeout` is told that, and not the option of the Python library."""
    with FakeCLI([init(), hang()]) as fake:
        _, _, err = run(fake, "Hi", "--idle-timeout", "0.3")
    assert err.splitlines()[0].endswith("change it with --idle-timeout")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("use resume= instead of session_id=", "use --resume instead of --session-id"),
        ("start anew without resume=, or", "start anew without --resume, or"),
        ("use continue_conversation=True", "use --continue"),
        ("give mcp_servers=; see system_prompt=", "give --mcp-config; see --system-prompt"),
        ("persist_session=False, settings_dir=", "persist_session=False, settings_dir="),
        ("started: --model= x\n  env= of the CLI", "started: --model= x\n  env= of the CLI"),
        ("model=opus", "model=opus"),
    ],
)
def test_options_are_written_as_flags(said, shown):
    """A name without a value in our own sentence; nothing else."""
    assert __main__._in_flags(said) == shown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_cancels_the_turn(start, number, code):
    """When the program has ended nothing of the run is left; what came before is on stdout."""
    with FakeCLI([init(), text("Half"), ready("there"), hang()]) as fake:
        process = start(fake, "Hi")
        fake.wait("there")
        assert os.read(process.stdout.fileno(), 100) == b"Half"
        process.send_signal(number)
        _, err = process.communicate(timeout=LIMIT)
        assert fake.alive() == []
    assert process.returncode == code
    assert b"Traceback" not in err


def test_a_second_ctrl_c_waits_for_nothing(start):
    """A CLI that does not end on SIGTERM is killed at the second Ctrl-C, and still nothing is left."""
    with FakeCLI([init(), on_term(ready("asked"), hang()), ready("there"), hang()]) as fake:
        process = start(fake, "Hi")
        fake.wait("there")
        process.send_signal(signal.SIGINT)
        fake.wait("asked")
        # One that comes while Python still raises the first is one with it; then somebody presses again.
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
        _, err = process.communicate(timeout=LIMIT)
        assert fake.alive() == []
    assert (process.returncode, err) == (130, b"")


def test_sigterm_while_the_prompt_is_read(start):
    """Before there is a run the signal just ends the program."""
    with FakeCLI(ANSWER) as fake:
        process = start(fake, stdin=subprocess.PIPE)
        # It reads stdin once Python is up; a first write wider than the pipe returns only then.
        process.stdin.write(b"x" * 300_000)
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)
        process.stdin.close()
        process.wait(LIMIT)
        assert (process.returncode, process.stderr.read()) == (143, b"")


def test_a_signal_that_was_ignored_stays_ignored(start):
    """Under nohup SIGHUP does not end the turn."""
    with FakeCLI([init(), ready("there"), wait_for("go"), text("Done."), result("Done.")]) as fake:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            process = start(fake, "Hi")
        finally:
            signal.signal(signal.SIGHUP, before)
        fake.wait("there")
        process.send_signal(signal.SIGHUP)
        fake.release("go")
        assert process.communicate(timeout=LIMIT)[0] == b"Done.\n"
    assert process.returncode == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_went_away_ends_the_turn_quietly(start, monkeypatch, unbuffered):
    """`| head -1`: the next write finds no reader; the turn is cancelled, stderr stays empty."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    script = [init(), delta("one\n"), wait_for("closed"), delta("two\n"), ready("written"), hang()]
    with FakeCLI(script) as fake:
        process = start(fake, "Hi")
        assert os.read(process.stdout.fileno(), 100) == b"one\n"
        process.stdout.close()
        fake.release("closed")
        process.wait(LIMIT)
        assert fake.alive() == []
    assert (process.returncode, process.stderr.read()) == (141, b"")


def test_a_reader_that_went_away_is_noticed_without_a_write(start):
    """A silent turn for which nobody waits any more ends too."""
    with FakeCLI([init(), delta("one\n"), hang()]) as fake:
        process = start(fake, "Hi")
        assert os.read(process.stdout.fileno(), 100) == b"one\n"
        process.stdout.close()
        process.wait(LIMIT)
        assert fake.alive() == []
    assert (process.returncode, process.stderr.read()) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told(start):
    """What cannot be written is an error with its reason, and the turn is ended."""
    with FakeCLI([init(), text("Hello."), hang()]) as fake, open("/dev/full", "wb") as full:
        process = start(fake, "Hi", stdout=full)
        process.wait(LIMIT)
        assert fake.alive() == []
    assert process.returncode == 1
    assert b"cannot write the answer: No space left on device" in process.stderr.read()


def test_without_stdout_it_still_runs(start):
    """stdout closed by the caller (`>&-`): the turn runs, nobody hears the answer."""
    with FakeCLI(ANSWER) as fake:
        command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "claude_cli_client", "run"]
        done = subprocess.run(
            [*command, "--cli-path", str(fake.path), "Hi"], env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        assert len(fake.calls) == 1
    assert (done.returncode, done.stderr) == (0, b"")


# --- options


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--model", "opus"], "--model=opus"),
        (["--max-turns", "3"], "--max-turns=3"),
        (["--max-budget-usd", "0.5"], "--max-budget-usd=0.5"),
        (["--resume", "my title"], "--resume=my title"),
        (["--continue"], "--continue"),
        (["--allowed-tools", "Read,Bash(git *)"], "--allowedTools=Read,Bash(git *)"),
        (["--disallowed-tools", "WebFetch"], "--disallowedTools=WebFetch"),
        (["--permission-mode", "plan"], "--permission-mode=plan"),
        (["--system-prompt=-x"], "--system-prompt=-x"),
        (["--append-system-prompt", "Be short."], "--append-system-prompt=Be short."),
        (["--setting-sources", ""], "--setting-sources="),
        (["--tools", ""], "--tools="),
        (["--strict-mcp-config"], "--strict-mcp-config"),
        (["--no-session-persistence"], "--no-session-persistence"),
        (["--extra-arg", "new-flag=1"], "--new-flag=1"),
        (["--extra-arg", "bare-flag"], "--bare-flag"),
    ],
)
def test_flags_reach_the_cli(run, words, flag):
    """Each flag of the program is the option of the library, and so the CLI's flag."""
    with FakeCLI(ANSWER) as fake:
        assert run(fake, "Hi", *words)[0] == 0
        assert flag in joined(fake.calls[0].argv)


@pytest.mark.parametrize(
    ("flag", "values", "argument"),
    [
        ("--tools", ["Read", "", "Grep,Glob"], "--tools=Read,Grep,Glob"),
        ("--allowed-tools", ["Read Bash(git log *)", "Grep"], "--allowedTools=Read,Bash(git log *),Grep"),
        ("--disallowed-tools", ["Bash", "Write"], "--disallowedTools=Bash,Write"),
        ("--fallback-model", ["opus", "haiku"], "--fallback-model=opus,haiku"),
        ("--setting-sources", ["user", "project"], "--setting-sources=user,project"),
        ("--add-dir", ["/a", "/b"], "--add-dir=/a --add-dir=/b"),
        ("--plugin-dir", ["/", "/tmp"], "--plugin-dir=/ --plugin-dir=/tmp"),
    ],
)
def test_a_list_that_is_given_several_times_adds_up(run, flag, values, argument):
    """As with the CLI: no rule that denies something is lost to a later one."""
    with FakeCLI(ANSWER) as fake:
        assert run(fake, "Hi", *(f"{flag}={value}" for value in values))[0] == 0
        assert argument in " ".join(fake.calls[0].argv)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--mcp-config", "--mcp-config"], "--mcp-config: give only one --mcp-config"),
        (["--settings", "--settings"], "--settings: give only one --settings"),
        (["--agents", "--agents"], "--agents: give only one --agents"),
        (
            ["--system-prompt", "--system-prompt-file"],
            "--system-prompt-file: give only one --system-prompt or --system-prompt-file",
        ),
        (
            ["--append-system-prompt-file", "--append-system-prompt"],
            "--append-system-prompt: give only one --append-system-prompt or --append-system-prompt-file",
        ),
    ],
)
def test_what_does_not_add_up_can_be_given_once(capsys, flags, said):
    """The last one would win in silence: exit code 2."""
    assert usage_error(capsys, "Hi", *(f"{flag}=/x" for flag in flags)).endswith(f"error: {said}\n")


def joined(argv: tuple[str, ...]) -> list[str]:
    """Flags and values as one word each, whichever way they were passed."""
    return [*argv, *map("=".join, pairwise(argv))]


def test_partial_messages_are_asked_for_except_with_json(run):
    """The plain answer streams; JSON lines have deltas only on request."""
    with FakeCLI(ANSWER) as fake:
        for words in ([], ["--json"], ["--json", "--include-partial-messages"]):
            assert run(fake, "Hi", *words)[0] == 0
        asked = ["--include-partial-messages" in call.argv for call in fake.calls]
    assert asked == [True, False, True]


def test_files_are_relative_to_where_the_command_was_typed(run, home):
    """Also with `--cwd`, which itself reaches the CLI as its directory."""
    (home / "work").mkdir()
    (home / "mcp.json").write_text('{"mcpServers": {}}')
    with FakeCLI(ANSWER) as fake:
        assert run(fake, "Hi", "--cwd", "work", "--mcp-config", "mcp.json", "--add-dir", "extra")[0] == 0
        call = fake.calls[0]
    assert os.path.realpath(call.cwd) == os.path.realpath(home / "work")
    assert any(str(home / "mcp.json") in word for word in call.argv)
    assert any(str(home / "extra") in word for word in call.argv)


def test_variables(run):
    """`--env` sets one for the CLI, with `=` in the value; `--unset-env` removes one."""
    with FakeCLI(ANSWER) as fake:
        words = ["--env", "A=1=2", "--env", "B=", "--unset-env", "GONE"]
        assert run(fake, "Hi", *words, env={"GONE": "x"})[0] == 0
        environ = fake.calls[0].env
    assert (environ["A"], environ["B"], "GONE" in environ) == ("1=2", "", False)


def test_simulate_needs_no_cli_and_says_so(run):
    """An answer without account and CLI; stderr says that it is a simulation."""
    code, out, err = run(None, "What is this?", "--simulate", env={"PATH": "/nowhere"})
    assert code == 0
    assert "simulated" in out
    assert err.count("\n") == 1
    assert "this is a simulation" in err


def test_the_version_of_the_library(capsys):
    """`--version` prints it and ends."""
    with pytest.raises(SystemExit) as ended:
        __main__.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"claude_cli_client {__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["doctor", "--help"]])
def test_help(capsys, words):
    """Help can be printed (argparse trips over a stray percent sign only then)."""
    with pytest.raises(SystemExit) as ended:
        __main__.main(words)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


def test_every_option_exists_in_the_library():
    """No flag of the program names an option that `RunOptions` does not have."""
    from claude_cli_client.options import RunOptions

    assert {"cli_path", *RunOptions.__annotations__} >= __main__._OPTION_NAMES


def test_main_puts_signal_handlers_back(capsys):
    """Called from a program, `main` leaves that program's handlers as they were."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]
    with FakeCLI(ANSWER) as fake:
        assert __main__.main(["run", "Hi", "--cli-path", str(fake.path)]) == 0
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)] == before
    assert capsys.readouterr().out == "Hello.\n"


# --- on a terminal


@pytest.fixture
def terminal() -> Iterator:
    """A pseudo-terminal: `terminal.fd` for the program, `terminal.until(pattern)` for the test."""
    made = Terminal()
    yield made
    made.close()


class Terminal:
    def __init__(self) -> None:
        self._master, self.fd = pty.openpty()
        self.seen = ""

    def until(self, pattern: str) -> re.Match[str]:
        """Reads until the pattern matches what has been seen."""
        while not (found := re.search(pattern, self.seen)):
            assert select.select([self._master], [], [], LIMIT)[0], f"nothing more after {self.seen!r}"
            self.seen += os.read(self._master, 65536).decode()
        return found

    def rest(self) -> str:
        """All that was written; only when the program has ended."""
        os.set_blocking(self._master, False)
        try:
            while block := os.read(self._master, 65536):
                self.seen += block.decode()
        except OSError:
            pass
        return self.seen

    def screen(self) -> list[str]:
        """The lines as a person sees them: erased lines are gone."""
        lines = self.rest().replace("\r\n", "\n").split("\n")
        return [line.rpartition(ERASE)[2] for line in lines]

    def close(self) -> None:
        os.close(self._master)
        os.close(self.fd)


def test_progress_goes_on_without_events(start, terminal):
    """While the CLI says nothing the seconds advance; at the end the line is erased."""
    with FakeCLI([init(), tool_use("Bash", {"command": "make"}), wait_for("go"), result("Hello.")]) as fake:
        process = start(fake, "Hi", stderr=terminal.fd)
        first = terminal.until(r"\d+s  Bash  1 tool call")[0]
        terminal.until(rf"(?<!\d)(?!{first})\d+s  Bash  1 tool call")
        fake.release("go")
        assert process.communicate(timeout=LIMIT)[0] == b"Hello.\n"
    assert terminal.screen() == [""]


def test_progress_and_answer_share_a_terminal(start, terminal):
    """What is left on the screen is the answer, whole, without a trace of the progress line."""
    script = [
        init(), delta("I "), wait_for("a"), delta("look."), text("I look."),
        tool_use("Read", {"file_path": "a"}), wait_for("b"),
        tool_result("x"), text("Done.", message_id="msg_2"), result("Done."),
    ]  # fmt: skip
    with FakeCLI(script) as fake:
        process = start(fake, "Hi", stdout=terminal.fd, stderr=terminal.fd)
        terminal.until(r"I ")
        fake.release("a")
        terminal.until(r"\ds  Read")
        fake.release("b")
        process.wait(LIMIT)
    assert terminal.screen() == ["I look.", "Done.", ""]


def test_progress_is_erased_before_an_error(start, terminal):
    """The error stands on a clean line."""
    with FakeCLI([init(), ready("there"), wait_for("go"), *api_failure(500, "API Error: 500")]) as fake:
        process = start(fake, "Hi", stderr=terminal.fd)
        terminal.until(r"starting")
        fake.release("go")
        process.wait(LIMIT)
    assert terminal.screen()[0].startswith("claude_cli_client: ")


def test_progress_is_erased_after_ctrl_c(start, terminal):
    """Ctrl-C leaves a clean terminal, too."""
    with FakeCLI([init(), hang()]) as fake:
        process = start(fake, "Hi", stderr=terminal.fd)
        terminal.until(r"starting")
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT)
        assert fake.alive() == []
    assert process.returncode == 130
    assert [line.partition(" (")[0] for line in terminal.screen()] == ["claude_cli_client: cancelled", ""]


@pytest.mark.parametrize("how", ["quiet", "dumb"])
def test_no_progress_where_it_is_not_wanted(start, terminal, how):
    """`--quiet`, and a terminal that cannot erase, get no progress line."""
    words, env = (["--quiet"], {}) if how == "quiet" else ([], {"TERM": "dumb"})
    with FakeCLI(ANSWER) as fake:
        start(fake, "Hi", *words, stderr=terminal.fd, env=env).wait(LIMIT)
    assert terminal.rest() == ""


def test_an_answer_cannot_control_the_terminal(start, terminal):
    """Escape sequences in an answer are shown as a mark on a terminal, and unchanged in a pipe."""
    with FakeCLI([init(), text("a\x1b]52;c;eA==\x07b\tc"), result("x")]) as fake:
        start(fake, "Hi", stdout=terminal.fd).wait(LIMIT)
        piped = start(fake, "Hi").communicate(timeout=LIMIT)[0]
    assert terminal.rest().rstrip() == "a\ufffd]52;c;eA==\ufffdb\tc"
    assert piped == b"a\x1b]52;c;eA==\x07b\tc\n"


# --- the progress line alone


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_the_line_says_what_goes_on(clock):
    """Time, the tool that runs, the number of calls, tokens, cost."""
    line = Progress(io.StringIO(), clock)
    usage = {"input_tokens": 900, "cache_read_input_tokens": 400}
    line.event(stream_event("message_start", {"message": {"usage": usage}}))
    line.event(stream_event("message_delta", {"usage": {"output_tokens": 12}}))
    line.event(Event("tool_use", tool_id="1", tool_name="Bash"))
    line.event(Event("tool_use", tool_id="2", tool_name="Read"))
    line.event(Event("task_result", cost_usd=0.01234))
    clock.now += 75
    assert line.line()[2:] == "1m15s  Read  2 tool calls  1.3k in, 12 out  $0.0123"
    line.event(Event("tool_result", tool_id="2"))
    assert "  Bash  " in line.line()
    line.event(Event("tool_result", tool_id="1"))
    assert "  waiting for the model  " in line.line()


def test_output_tokens_add_up_over_messages(clock):
    """Each message reports its own output so far; the line shows the sum."""
    line = Progress(io.StringIO(), clock)
    for count in (5, 7):
        line.event(stream_event("message_start", {"message": {"usage": {"input_tokens": 1}}}))
        line.event(stream_event("message_delta", {"usage": {"output_tokens": count - 1}}))
        line.event(stream_event("message_delta", {"usage": {"output_tokens": count}}))
    assert "1 in, 12 out" in line.line()


@pytest.mark.parametrize("part", [None, 3, {"usage": 3}, {"message": []}, {"usage": {"output_tokens": "x"}}])
def test_odd_usage_is_no_crash(clock, part):
    """Whatever stands where usage should be."""
    line = Progress(io.StringIO(), clock)
    for subtype in ("message_start", "message_delta"):
        line.event(stream_event(subtype, part))
    assert line.line()


def stream_event(subtype: str, part: object) -> Event:
    return Event("stream_event", subtype=subtype, raw=json.dumps({"event": part}))


def test_names_cannot_write_escape_sequences(clock):
    """Tool names and error words come from outside: only printable ASCII, and not for ever."""
    line = Progress(io.StringIO(), clock)
    line.event(Event("tool_use", tool_id="1", tool_name="\x1b[2J\n\u202e" + "x" * 100))
    assert line.line().isascii()
    assert "\x1b" not in line.line()
    assert len(line.line()) < 80


def test_a_retry_is_shown(clock):
    """Minutes of silence while the API fails have a reason on the line."""
    line = Progress(io.StringIO(), clock)
    line.event(Event("retry", retry_attempt=2, retry_max=10, error="overloaded"))
    assert "retry 2/10: overloaded" in line.line()


def test_the_same_line_is_not_written_again(clock):
    """Painting without a change writes nothing; erasing nothing writes nothing."""
    out = io.StringIO()
    line = Progress(out, clock)
    line.erase()
    line.paint()
    once = out.getvalue()
    line.paint()
    assert once
    assert out.getvalue() == once
    line.erase()
    line.erase()
    assert out.getvalue() == once + ERASE


def test_the_line_fits_the_terminal(clock, monkeypatch):
    """A line as wide as the terminal would wrap and could not be erased."""
    monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((20, 5)))
    out = io.StringIO()
    out.fileno = lambda: 2  # type: ignore[method-assign]
    Progress(out, clock).paint()
    assert len(out.getvalue().removeprefix(ERASE)) <= 19


def test_a_terminal_that_is_gone_does_not_end_the_turn(clock):
    """The progress line is not worth an error."""

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    line = Progress(Gone(), clock)
    line.paint()
    line.erase()


def test_json_lines_end_with_the_terminal_event_after_ctrl_c(start):
    """Who reads the lines learns how the turn ended, also when it was cut short."""
    with FakeCLI([init(), text("Hello."), ready("up"), hang()]) as fake:
        process = start(fake, "--json", "Hi")
        fake.wait("up")
        begin = os.read(process.stdout.fileno(), 1 << 16)  # it has the run, whose start Ctrl-C would else cut short
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
    last = json.loads((begin + out).splitlines()[-1])
    assert (last["subtype"], last["is_terminal"]) == ("cancelled", True)
    assert b"cancelled" in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the disk that is always full is Linux's")
@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
def test_without_stderr_the_exit_code_tells(home, where):
    """Messages go nowhere, and above all not into the answer's stdout."""
    with FakeCLI([init(), hang()]) as cli:
        command = ["sh", "-c", f'exec "$@" 2{where}', "sh", sys.executable, "-m", "claude_cli_client", "run"]
        done = subprocess.run(
            [*command, "--json", "--timeout=0.2", "Hi"], capture_output=True, timeout=LIMIT, check=False, cwd=ROOT,
            env={**os.environ, "HOME": str(home), "CLAUDE_CLI_PATH": cli.path},
        )  # fmt: skip
    assert done.returncode == 124
    assert all(json.loads(line) for line in done.stdout.splitlines())


def test_an_unbuffered_stdout_loses_nothing_in_silence(home):
    """PYTHONUNBUFFERED and a pipe that is full and does not block: a short write must not look like success."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    try:
        with FakeCLI([init(), text("x" * 300_000), result("x")]) as cli:
            done = subprocess.run(
                [sys.executable, "-m", "claude_cli_client", "run", "Hi"], stdout=write_fd, stderr=subprocess.PIPE,
                timeout=LIMIT, check=False, cwd=ROOT,
                env={**os.environ, "HOME": str(home), "CLAUDE_CLI_PATH": cli.path, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
    finally:
        os.close(read_fd)
        os.close(write_fd)
    assert done.returncode == 1
    assert b"cannot write the answer" in done.stderr
