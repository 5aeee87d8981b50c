"""A job for cron: never overlaps itself, never hangs, retries what can be retried, and says why.

    17 3 * * *  /srv/venv/bin/python /srv/jobs/cron_job.py /srv/app >>/var/log/nightly.log 2>&1

cron gives a job a short PATH and no terminal. If the CLI is not found, put its path into
CLAUDE_CLI_PATH; `python -m claude_cli_client doctor`, run by cron, tells what else is missing.

Exit codes: 0 done (or the last one still runs), 1 failed, 75 worth another try later (EX_TEMPFAIL).
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import tempfile
import time

from claude_cli_client import ClaudeError, Client, Event, RateLimitError

PROMPT = "Read the newest entries of CHANGELOG.md and say in three sentences what changed."
ATTEMPTS = 3
PAUSE = float(os.environ.get("CRON_JOB_PAUSE", "30"))  # seconds before the second attempt, then twice as many
LONGEST_PAUSE = 600.0

log = logging.getLogger("nightly")


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    cwd = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".")

    # A lock that the kernel drops when we die, however we die.
    with open(os.path.join(tempfile.gettempdir(), f"cron_job-{os.getuid()}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("the last one still runs")
            return 0
        try:
            result = ask(cwd)
        except ClaudeError as error:
            # The class and the message are for people; the fields are for programs.
            log.error("%s: %s", type(error).__name__, error)
            return os.EX_TEMPFAIL if error.retryable else 1

    log.info("done: session %s, %s USD", result.session_id, result.cost_usd)
    print(result.result)
    return 0


def ask(cwd: str) -> Event:
    """The answer, after at most `ATTEMPTS` attempts.

    A second attempt does again what the first one did. That is harmless here, because nothing but
    reading is allowed.
    """
    client = Client(
        cwd=cwd,
        timeout=900,  # the whole turn, whatever happens
        idle_timeout=420,  # the CLI may be silent for six minutes and be well
        max_turns=30,
        max_budget_usd=1.0,
        tools=["Read", "Glob", "Grep"],
        permission_mode="dontAsk",  # what no rule allows is denied, nobody is waited for
        kill_leftovers=True,
    )
    attempt = 1
    while True:
        try:
            return client.ask(PROMPT)
        except ClaudeError as error:
            if not error.retryable or attempt == ATTEMPTS:
                raise
            wait = PAUSE * 2 ** (attempt - 1)
            if isinstance(error, RateLimitError) and error.retry_after is not None:
                wait = error.retry_after
            log.warning("attempt %d: %s; again in %.0f s", attempt, error.message, min(wait, LONGEST_PAUSE))
            time.sleep(min(wait, LONGEST_PAUSE))
            attempt += 1


if __name__ == "__main__":
    sys.exit(main())
