"""Every example runs, as a user would run it, on the simulated CLI; and its output is what it promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from claude_cli_client.testing import FakeCLI, SimulatedCLI, api_failure, init, result, text

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
SAID = "This is a simulated answer"
LIMIT = 60  # seconds: a bound for what should take one


@pytest.fixture
def simulated() -> Iterator[SimulatedCLI]:
    with SimulatedCLI() as cli:
        yield cli


def run(name: str, cli: FakeCLI, tmp_path: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The example as a program of its own, which finds the CLI by CLAUDE_CLI_PATH."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CLAUDE", "ANTHROPIC"))}
    ours = {
        "CLAUDE_CLI_PATH": str(cli.path),
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
    }
    return subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *words],
        env={**inherited, **ours, **env},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
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
    done = run("stream_tokens", simulated, tmp_path, "Say", "hello")
    assert done.returncode == 0
    assert done.stdout.startswith(SAID)
    assert done.stdout.rstrip().endswith("Say hello")
    assert re.search(r"-- first token after \d+ ms, \d+ tokens", done.stderr)


def test_stream_tokens_says_why_it_failed(simulated, tmp_path):
    done = run("stream_tokens", simulated, tmp_path, "[[fail: 429]]")
    assert done.returncode == 1
    assert done.stderr.startswith("RateLimitError: ")


def test_structured_output(simulated, tmp_path):
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
