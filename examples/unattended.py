"""A job that works, and not only reads, while nobody is there to approve anything.

    40 2 * * *  /srv/venv/bin/python /srv/jobs/unattended.py /srv/app >>/var/log/lint.log 2>&1

What a rule allows runs, everything else is denied with words that let the model go on, and a
question of the model is answered with "decide yourself and note it". Nothing ever waits. How such
a job does not overlap itself and tries again is in cron_job.py.

Exit codes: 0 done, 1 failed, 75 worth another try later (EX_TEMPFAIL).
"""

from __future__ import annotations

import logging
import os
import sys

from claude_cli_client import ClaudeError, Client, unattended

PROMPT = (
    "Fix what `npm run lint` reports in src/. Run `npm test` at the end. "
    "Say what you changed, and list every assumption you made."
)

log = logging.getLogger("lint")


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    cwd = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".")
    prompt = " ".join(sys.argv[2:]) or PROMPT

    client = Client(
        cwd=cwd,
        # With the mode of this library, acceptEdits, all of `cwd` may be edited and `Edit(src/**)` would
        # limit nothing.
        permission_mode="default",
        # Rules in the syntax of `allowed_tools`; deny wins. A command of several parts is allowed if
        # each part is. `unattended=True` alone allows nothing beyond what the CLI allows by itself.
        unattended=unattended(
            allow=["Edit(src/**)", "Bash(npm run lint *)", "Bash(npm test *)"],
            deny=["Bash(npm publish *)", "WebFetch"],
        ),
        timeout=3600,
        max_turns=60,
        max_budget_usd=5.0,
        kill_leftovers=True,
    )
    try:
        answer = client.ask(prompt)
    except ClaudeError as error:
        log.error("%s: %s", type(error).__name__, error)
        return os.EX_TEMPFAIL if error.retryable else 1

    # What it was not allowed to do: the rules that a next version of this job may need.
    for denial in answer.permission_denials or ():
        log.warning("denied: %s %s", denial.get("tool_name"), denial.get("tool_input"))
    log.info("done: session %s, %s USD", answer.session_id, answer.cost_usd)
    print(answer.result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
