"""One question, and then one task watched while it runs.

    python examples/quickstart.py                    # about the current directory
    python examples/quickstart.py /path/to/project

It changes nothing there.
"""

from __future__ import annotations

import sys

from claude_cli_client import Client


def main() -> None:
    cwd = sys.argv[1] if len(sys.argv) > 1 else "."

    # Options given to the client are defaults for all of its turns. The limits have defaults too:
    # an hour for a turn, 15 minutes of silence. Here less is enough.
    client = Client(cwd=cwd, timeout=300, max_turns=20)

    # `ask` blocks for the whole turn and returns its last event, or raises an error that says why.
    answer = client.ask("In one sentence: what does this project do?")
    print(answer.result)

    # `run` returns at once and gives you the events as they come. Nothing but reading is allowed
    # here, so this is safe to try anywhere.
    run = client.run("Name the three longest source files.", tools=["Read", "Glob", "Grep"])
    for event in run:
        if event.type == "tool_use":
            print(f"[{event.tool_name}]")
        elif event.type == "text":
            print(event.text)
        elif event.is_terminal:
            print(f"-- {event.num_turns} steps, {event.duration_ms} ms, {event.cost_usd} USD")
    run.result()  # the loop never raises for a turn that failed; this does


if __name__ == "__main__":
    main()
