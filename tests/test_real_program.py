"""The real CLI: the program, the doctor and the version."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from real_cli import HAS_PROC, RealCLI, bash, eventually

from claude_cli_client.discovery import cli_version, known_version

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(60)]

ROOT = Path(__file__).resolve().parent.parent


def start(cli: RealCLI, *words: str) -> subprocess.Popen[str]:
    environ = {**cli.env, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "claude_cli_client", *words, "--cli-path", cli.path], cwd=cli.cwd, env=environ,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(cli: RealCLI, *words: str) -> tuple[int, str, str]:
    with start(cli, *words) as process:
        out, err = process.communicate(timeout=50)
    return process.returncode, out, err


def test_the_answer_is_streamed_once(cli: RealCLI):
    """Deltas and whole blocks of the real CLI give each text once; a tool call ends the line."""
    prompt = f"go [[text: I look.]] {bash('echo hi')}"  # the stand-in then says "done"
    code, out, err = run(cli, "run", prompt, "--allowed-tools", "Bash")
    assert (code, out, err) == (0, "I look.\ndone\n", "")


def test_a_failure_has_the_clis_words(cli: RealCLI):
    """Resuming an unknown session: exit code 1, and what the CLI says about it."""
    code, out, err = run(cli, "run", "hi", "--resume", "00000000-0000-4000-8000-000000000000")
    assert (code, out) == (1, "")
    assert "00000000-0000-4000-8000-000000000000" in err


@pytest.mark.skipif(not HAS_PROC, reason="reads the environments of processes in /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_a_tool_leaves_nothing(cli: RealCLI, number: int, code: int):
    """When the program has ended, the CLI, its tool and the tool's orphans are gone."""
    gate = cli.gate()
    spread = f"sleep 600 & (setsid sleep 601 </dev/null >/dev/null 2>&1 &); echo ready > {gate.path}; wait"
    with start(cli, "run", f"go {bash(spread)}", "--allowed-tools", "Bash") as process:
        gate.wait()
        process.send_signal(number)
        _, err = process.communicate(timeout=50)
    assert process.returncode == code
    assert err.startswith("claude_cli_client: cancelled (session ")
    assert eventually(lambda: not cli.processes(), 3.0), cli.processes()


def test_the_doctor_finds_the_real_cli_well(cli: RealCLI):
    """Version and login of a working place are ok, by exit code and in JSON."""
    code, out, err = run(cli, "doctor", "--json")
    assert (code, err) == (0, "")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert checks["version"]["status"] == "ok"
    assert checks["login"]["detail"] == "ANTHROPIC_API_KEY"


def test_the_version_of_the_real_cli(cli: RealCLI):
    """It is the number that the first line of a turn tells, and is known from then on."""
    version = cli_version(cli.path, env={**cli.env, "PATH": os.environ["PATH"]})
    assert known_version(cli.path) == version
    (init,) = (event for event in cli.events("hi [[text: ok]]") if event.subtype == "init")
    assert init.data["claude_code_version"] == version
