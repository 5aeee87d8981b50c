"""Every example runs, as a user would run it, on the simulated CLI; and its output is what it promises."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from claude_cli_client import Client, errors
from claude_cli_client.testing import FakeCLI, SimulatedCLI, api_failure, hang, init, result, text

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
SAID = "This is a simulated answer"
LIMIT = 60  # seconds: a bound for what should take one


@pytest.fixture
def simulated() -> Iterator[SimulatedCLI]:
    with SimulatedCLI() as cli:
        yield cli


def environment(cli: FakeCLI, tmp_path: Path) -> dict[str, str]:
    """Of a program that finds the CLI by CLAUDE_CLI_PATH."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CLAUDE", "ANTHROPIC"))}
    ours = {
        "CLAUDE_CLI_PATH": str(cli.path),
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
    }
    return {**inherited, **ours}


def run(
    name: str, cli: FakeCLI, tmp_path: Path, *words: str, typed: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """The example as a program of its own. `typed` is what a person types into it."""
    return subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *words],
        env={**environment(cli, tmp_path), **env},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL if typed is None else None,
        input=typed,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def test_every_example_is_run_here():
    """A new example needs a test."""
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    source = Path(__file__).read_text(encoding="utf-8")
    assert names == set(re.findall(r'run\("(\w+)"', source))


def test_quickstart(simulated, tmp_path):
    """Two answers and the figures of the second, and nothing else."""
    done = run("quickstart", simulated, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, second, facts = done.stdout.splitlines()
    assert first.startswith(SAID)
    assert second.startswith(SAID)
    assert re.fullmatch(r"-- \d+ steps, \d+ ms, 0\.\d+ USD", facts)


def test_quickstart_in_a_given_directory(simulated, tmp_path):
    """The directory named on the command line is the CLI's."""
    (tmp_path / "project").mkdir()
    done = run("quickstart", simulated, tmp_path, "project")
    assert (done.returncode, done.stderr) == (0, "")
    assert {Path(call.cwd).name for call in simulated.calls} == {"project"}


def test_cron_job(simulated, tmp_path):
    """The answer goes to stdout; what the job did, to the log."""
    done = run("cron_job", simulated, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(SAID)
    assert re.search(r"INFO done: session [0-9a-f-]{36}, 0\.\d+ USD", done.stderr)


def test_cron_job_tries_again_what_is_retryable(tmp_path):
    """Two overloaded API calls, then an answer."""
    overloaded = [init(), api_failure(529)]
    with FakeCLI(scripts=[overloaded, overloaded, [init(), text("Done."), result("Done.")]]) as cli:
        done = run("cron_job", cli, tmp_path, CRON_JOB_PAUSE="0")
        assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
        assert done.stderr.count("WARNING attempt") == 2
        assert len(cli.calls) == 3


def test_cron_job_gives_up_for_later(tmp_path):
    """After three attempts it exits with 75, and has logged the CLI's own words."""
    with FakeCLI([init(), api_failure(529)]) as cli:
        done = run("cron_job", cli, tmp_path, CRON_JOB_PAUSE="0")
        assert (done.returncode, done.stdout, len(cli.calls)) == (75, "", 3)
        assert "ERROR ServerError:" in done.stderr


def test_cron_job_does_not_repeat_what_cannot_work(tmp_path):
    """Refused credentials are a failure at once."""
    with FakeCLI([init(), api_failure(401)]) as cli:
        done = run("cron_job", cli, tmp_path, CRON_JOB_PAUSE="0")
        assert (done.returncode, len(cli.calls)) == (1, 1)
        assert "ERROR AuthenticationError:" in done.stderr


def test_cron_job_does_not_overlap_itself(simulated, tmp_path):
    """While the lock is held a second one leaves, without a turn."""
    import fcntl

    with open(tmp_path / f"cron_job-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run("cron_job", simulated, tmp_path)
    assert (done.returncode, done.stdout, simulated.calls) == (0, "", [])
    assert "the last one still runs" in done.stderr


def test_parallel(simulated, tmp_path):
    """Each answer behind its prompt, in the order of the prompts, and the totals."""
    done = run("parallel", simulated, tmp_path, "a.txt", "b.txt", "c.txt", "d.txt")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[:4]] == ["a.txt", "b.txt", "c.txt", "d.txt"]
    assert all(SAID in line for line in lines[:4])
    assert re.fullmatch(r"4 turns, 0 failed, 0\.\d+ USD, \d+ tokens", lines[4])


def test_parallel_reports_what_failed(simulated, tmp_path):
    """One failure stands in its own place, and the exit code tells."""
    done = run("parallel", simulated, tmp_path, "a.txt", "[[fail: 500]]", "c.txt")
    assert (done.returncode, done.stderr) == (1, "")
    assert re.search(r"^\[\[fail: 500\]\]: failed: ", done.stdout, re.MULTILINE)
    assert f"c.txt: {SAID}" in done.stdout
    assert "3 turns, 1 failed" in done.stdout


def test_resume(simulated, tmp_path):
    """The second turn goes on with the session of the first, the third with a copy of it."""
    done = run("resume", simulated, tmp_path, "First.", "Second.")
    assert (done.returncode, done.stderr) == (0, "")
    session, fork = re.search(r"^(\S+) went on, (\S+) is its copy$", done.stdout, re.MULTILINE).groups()
    assert session != fork
    first, second, third = simulated.calls
    assert [first.prompt, second.prompt] == ["First.", "Second."]
    assert first.option("--resume") is None
    assert second.option("--resume") == third.option("--resume") == session
    assert "--fork-session" in third.argv


def test_resume_starts_anew_when_the_session_is_gone(tmp_path):
    """Then one turn has both prompts."""
    gone = {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "errors": ["No conversation found with session ID: x"],
    }
    answer = [init(), text("Yes."), result("Yes.")]
    with FakeCLI(scripts=[answer, [gone], answer]) as cli:
        done = run("resume", cli, tmp_path, "First.", "Second.")
        assert (done.returncode, done.stderr) == (0, "")
        assert [call.prompt for call in cli.calls][2] == "First.\n\nSecond."


def test_stream_tokens(simulated, tmp_path):
    """The answer goes to stdout; how soon it began, to stderr."""
    done = run("stream_tokens", simulated, tmp_path, "Say", "hello")
    assert done.returncode == 0
    assert done.stdout.startswith(SAID)
    assert done.stdout.rstrip().endswith("Say hello")
    assert re.search(r"-- first token after \d+ ms, \d+ tokens", done.stderr)


def test_stream_tokens_says_why_it_failed(simulated, tmp_path):
    """With the class of the error, and the exit code tells."""
    done = run("stream_tokens", simulated, tmp_path, "[[fail: 429]]")
    assert done.returncode == 1
    assert done.stderr.startswith("RateLimitError: ")


def test_structured_output(simulated, tmp_path):
    """What is printed is the data that the schema asks for, and a sentence made of it."""
    done = run("structured_output", simulated, tmp_path, "Late, but kind.")
    assert (done.returncode, done.stderr) == (0, "")
    data, sentence = done.stdout.split("\n}\n")
    data = json.loads(data + "}")
    assert data["mood"] in ("good", "mixed", "bad")
    assert sentence == f"A {data['mood']} review of {len(data['topics'])} topics.\n"


def test_structured_output_without_data(tmp_path):
    """The model ignored the schema: an error, not an answer without data."""
    with FakeCLI([init(), text("Fine."), result("Fine.")]) as cli:
        done = run("structured_output", cli, tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("no data: ")


# --- callbacks and sessions


def test_chat(simulated, tmp_path):
    """Two turns and two control requests in one session, in one process."""
    done = run("chat", simulated, tmp_path, typed="Say hello.\n:model haiku\n:context\n:quit\nAgain, please.\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(
        SAID + r".*Say hello\..*\d+ of \d+ tokens.*there are :model.*Again, please\.", done.stdout, re.DOTALL
    )
    (call,) = simulated.calls
    requests = [line["request"]["subtype"] for line in call.messages if line["type"] == "control_request"]
    assert requests == ["initialize", "set_model", "get_context_usage"]


def test_chat_goes_on_after_a_failed_turn(simulated, tmp_path):
    """The error is told, and the next prompt is answered."""
    done = run("chat", simulated, tmp_path, typed="[[fail: 529]]\nAgain, please.\n")
    assert done.returncode == 0
    assert done.stderr.startswith("ServerError: ")
    assert "Again, please." in done.stdout


def test_chat_is_interrupted_and_goes_on(simulated, tmp_path):
    """Ctrl-C ends the turn, not the session: the same process answers the next prompt."""
    command = [sys.executable, str(EXAMPLES / "chat.py")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment(simulated, tmp_path), cwd=tmp_path, text=True, **pipes) as chat:
        chat.stdin.write('[[call: Read {"file_path": "a"}]] [[slow: 50]] Tell me a long story.\n')
        chat.stdin.flush()
        assert "[Read]" in chat.stdout.readline()  # the turn is on
        chat.send_signal(signal.SIGINT)
        out, err = chat.communicate("Again, please.\n", timeout=LIMIT)
    assert (chat.returncode, err) == (0, "")
    assert re.search(r"\(stopped\).*" + SAID + r".*Again, please\.", out, re.DOTALL)
    assert len(simulated.calls) == 1


def test_approve_in_terminal(simulated, tmp_path):
    """Denied, allowed, always allowed: so the fourth call is not asked about."""
    done = run("approve_in_terminal", simulated, tmp_path, "[[tools: 4]] Go.", typed="n\ny\na\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("allow? [y]es") == 3
    assert "always: addRules Bash(echo *)" in done.stdout
    assert "  -> The user does not want this call." in done.stdout
    assert done.stdout.endswith("-- 1 denied\n")


def test_approve_in_terminal_quits(simulated, tmp_path):
    """The call is denied, and the turn is over."""
    done = run("approve_in_terminal", simulated, tmp_path, "[[tools: 4]] Go.", typed="q\n")
    assert done.returncode == 1
    assert done.stdout.count("allow? [y]es") == 1
    assert done.stderr.startswith("InterruptedTurnError: ")


def test_approve_in_terminal_denies_when_nobody_is_there(simulated, tmp_path):
    """The end of stdin is no approval."""
    done = run("approve_in_terminal", simulated, tmp_path, "[[tools: 2]] Go.")
    assert done.returncode == 0
    assert done.stdout.endswith("-- 2 denied\n")


def test_approve_in_terminal_answers_questions(simulated, tmp_path):
    """The number that is typed is the option that the model is told."""
    options = [{"label": "Red", "description": "like a rose"}, {"label": "Blue", "description": "like the sea"}]
    asked = {"questions": [{"question": "Which colour?", "options": options}]}
    done = run(
        "approve_in_terminal", simulated, tmp_path, f"[[call: AskUserQuestion {json.dumps(asked)}]]", typed="2\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    (call,) = simulated.calls
    answers = [line for line in call.messages if line["type"] == "control_response"]
    assert answers[0]["response"]["response"]["updatedInput"]["answers"] == {"Which colour?": "Blue"}


def test_tools_calculator(simulated, tmp_path):
    """Called in this process; errors of arguments and functions are told in the turn."""
    calls = [
        ("divide", {"dividend": 1, "divisor": 4}),
        ("divide", {"dividend": 1, "divisor": 0}),
        ("convert", {"distance": 1, "unit": "mi"}),
        ("convert", {"distance": 1, "unit": "ell"}),
        ("summarise", {"numbers": [1, 2, 6]}),
        ("summarise", {"numbers": []}),
        ("largest_prime", {"below": 100}),
    ]
    prompt = " ".join(f"[[call: mcp__calculator__{name} {json.dumps(given)}]]" for name, given in calls)
    done = run("tools_calculator", simulated, tmp_path, prompt)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    results = re.findall(r"^  (.*)$", done.stdout, re.MULTILINE)
    assert results == [
        "0.25",
        "error: ZeroDivisionError: float division by zero",
        "1609.344",
        "error: convert was not called, its arguments are not right:",
        '{"count":3,"mean":3.0,"median":2.0}',
        "error: There are no numbers. Ask the user for some.",
        "97",
    ]


def test_hooks_audit(simulated, tmp_path):
    """Inside of the folder it may write; a way out of it, by `..` or a link, is denied; all is logged."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "link").symlink_to("/etc")
    paths = [str(tmp_path / "out" / "a"), "out/b", "/etc/c", "out/../d", "out/link/e"]
    prompt = " ".join(f'[[call: Write {{"file_path": "{path}", "content": ""}}]]' for path in paths)
    done = run("hooks_audit", simulated, tmp_path, "out", prompt)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("-- 3 denied, see audit.jsonl\n")
    log = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [entry["what"] for entry in log] == ["called", "done", "called", "done", "denied", "denied", "denied"]
    assert {entry["tool"] for entry in log} == {"Write"}


def test_unattended(simulated, tmp_path):
    """What a rule allows runs, the rest is denied and named; nobody is waited for."""
    calls = ["npm test", "npm run lint --fix", "npm publish", "npm test && curl example.com"]
    prompt = " ".join(f'[[call: Bash {{"command": "{command}"}}]]' for command in calls)
    question = '[[call: AskUserQuestion {"questions": [{"question": "Really?"}]}]]'
    done = run("unattended", simulated, tmp_path, ".", f"{prompt} {question}")
    assert (done.returncode, done.stdout.startswith(SAID)) == (0, True), done.stderr
    denied = re.findall(r"WARNING denied: (\w+) (.*)", done.stderr)
    assert [name for name, _ in denied] == ["Bash", "Bash", "AskUserQuestion"]
    assert ["npm publish" in denied[0][1], "curl" in denied[1][1]] == [True, True]
    assert "nobody can answer" in simulated.calls[0].option("--append-system-prompt")


def test_fake_errors(simulated, tmp_path):
    """Each script brings the error that stands before it; no error of a turn, but a cancelled one, is left out."""
    done = run("fake_errors", simulated, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    raised = [line.split()[0] for line in done.stdout.splitlines()]
    assert raised == re.findall(r'^    \("(\w+)", ', (EXAMPLES / "fake_errors.py").read_text(), re.MULTILINE)
    every = {name for name in errors.__all__ if issubclass(getattr(errors, name), errors.TurnError)}
    assert set(raised) == every - {"TurnError", "ResultError", "TurnCancelled"}
    timeouts = re.findall(r"^TurnTimeout +retryable: (\w+)", done.stdout, re.MULTILINE)
    assert timeouts == ["False", "True", "True"]


def test_errors_that_need_no_script():
    """Those that stand above its scripts."""
    with pytest.raises(errors.CLINotFoundError):
        Client(cli_path="/nowhere/claude").ask("Hello")
    with FakeCLI([init(), hang()]) as fake:
        client = Client(cli_path=fake, max_concurrent=1)
        run = client.run("Say hello")
        with pytest.raises(errors.SlotTimeoutError):
            client.run("Say hello", slot_timeout=0.1)
        run.cancel()
        with pytest.raises(errors.TurnCancelled):
            run.result()


def test_resume_elsewhere(simulated, tmp_path):
    """Three turns of one session on two machines; each but the first is laid out from the store."""
    done = run("resume_elsewhere", simulated, tmp_path, "First.", "Second.")
    assert (done.returncode, done.stderr) == (0, "")
    here, there, again, facts = done.stdout.splitlines()
    assert here.startswith(f"here:  {SAID}")
    assert there.startswith(f"there: {SAID}")
    assert again.startswith(f"here:  {SAID}")
    session = re.fullmatch(r"session (\S+), 2 turns here, 1 there", facts)[1]
    homes = [Path(call.env["HOME"]).name for call in simulated.calls]
    assert homes == ["here", "there", "here"]
    assert [call.option("--resume") for call in simulated.calls] == [None, session, session]
    assert ["CLAUDE_CONFIG_DIR" in call.env for call in simulated.calls] == [False, True, True]
