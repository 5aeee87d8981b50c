"""Go on with a conversation, now or in another process: keep its session id.

    python examples/resume.py "Suggest a name for a cat" "Shorter, please"

Three turns, two of them in the same session.
"""

from __future__ import annotations

import sys

from claude_cli_client import Client, StaleSessionError


def main() -> None:
    first = sys.argv[1] if len(sys.argv) > 1 else "Suggest a name for a cat."
    second = sys.argv[2] if len(sys.argv) > 2 else "A shorter one, please."
    client = Client(timeout=300, tools=[])

    answer = client.ask(first)
    print(answer.result)
    session_id = answer.session_id  # put it into your database; any host process may use it

    # The same session goes on. A session belongs to a configuration folder (HOME, `config_dir`), so
    # it can be gone, or made elsewhere: then start anew.
    try:
        answer = client.ask(second, resume=session_id)
    except StaleSessionError:
        answer = client.ask(f"{first}\n\n{second}")
    print(answer.result)

    # A copy with an id of its own: the first conversation stays as it is.
    other = client.ask("Now in Latin.", resume=session_id, fork_session=True)
    print(other.result)
    print(f"{session_id} went on, {other.session_id} is its copy")

    # `cost_usd` is what this run cost. `session_cost_usd` adds up over the whole conversation.
    print(f"{answer.cost_usd} USD for the second turn, {answer.session_cost_usd} USD for the session")


if __name__ == "__main__":
    main()
