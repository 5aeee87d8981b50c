"""One machine begins a conversation, another one goes on with it: a store is what they share.

    python examples/resume_elsewhere.py "Suggest a name for a cat" "Shorter, please"

The two machines are two HOMEs here, and the store is one SQLite file. Real machines share a database
server; see `examples/stores` for adapters. With a login of your own (no API key in the environment)
give the first HOME as `CLAUDE_HOME`: the folder that holds your `.claude`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from claude_cli_client import MIRROR_ERROR, Client, SQLiteStore


def machine(home: Path, database: Path) -> Client:
    """A client as it would be made on a machine of its own."""
    home.mkdir(exist_ok=True)
    return Client(store=SQLiteStore(database), env={"HOME": str(home)}, timeout=300, tools=[])


def main() -> None:
    first = sys.argv[1] if len(sys.argv) > 1 else "Suggest a name for a cat."
    second = sys.argv[2] if len(sys.argv) > 2 else "A shorter one, please."

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        here = machine(Path(os.environ.get("CLAUDE_HOME", place / "here")), place / "sessions.db")
        conversation = here.conversation()
        print("here: ", conversation.ask(first).result)

        # Two texts, which a database, a queue or a signed cookie carries to the other machine.
        kept = conversation.to_dict()

        # The other one has never seen this session. Its CLI gets the transcript from the store, in a
        # folder that lives as long as the turn; what the turn adds is in the store when it ends.
        there = machine(place / "there", place / "sessions.db")
        run = there.conversation(kept).run(second)
        for event in run:
            if event.type == MIRROR_ERROR:  # the turn goes on, but the store has not got all of it
                print(event, file=sys.stderr)
        print("there:", run.result().result)

        # And back again: the store has both turns, whichever machine asks.
        print("here: ", here.conversation(kept).ask("Thank you. And in Latin?").result)
        print(f"session {kept['session_id']}, {here.totals.turns} turns here, {there.totals.turns} there")


if __name__ == "__main__":
    main()
