"""The benchmark runs and prints its table. What it measures is not a test's business."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).with_name("bench.py")
LIMIT = 100


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCH), "-n", "1", *words],
        env={**os.environ, "BENCH_SDK_PYTHON": "/nonexistent", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_short_turns_and_import():
    """A table with a verdict for each row; the exit code is 1 if one is FAIL."""
    done = run("import", "turns")
    rows = re.findall(r"^\| .* \| (?:PASS|FAIL) \|$", done.stdout, re.MULTILINE)
    assert len(rows) == 4, done.stdout + done.stderr
    assert done.returncode == ("FAIL" in done.stdout)


def test_without_a_compiler():
    """The CLI is a FakeCLI then, and what that distorts is not judged."""
    done = run("stream", CC="/nonexistent")
    assert done.stdout.startswith("no C compiler"), done.stdout + done.stderr
    assert re.search(r"^\| CPU per event \| .* \| (PASS|FAIL) \|$", done.stdout, re.MULTILINE)


def test_unknown_words():
    """They are refused with what there is."""
    done = run("everything")
    assert done.returncode == 2
    assert "unknown: everything" in done.stderr
