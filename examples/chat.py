"""A conversation in the terminal: one live session, answers as they are written.

    python examples/chat.py                       # about the current directory
    python examples/chat.py /path/to/project

Ctrl-C stops the answer that is being written and nothing else: the session goes on. Ctrl-D, or
Ctrl-C at the prompt, ends it. `:model haiku` changes the model, `:context` shows what fills it.
"""

from __future__ import annotations

import sys

from claude_cli_client import ClaudeError, Client, Session, SessionClosedError, TurnError


def main() -> int:
    cwd = sys.argv[1] if len(sys.argv) > 1 else "."
    client = Client(cwd=cwd, tools=["Read", "Glob", "Grep"])

    # One process of the CLI for the whole conversation. It may be idle for days: the limits in time
    # are those of a turn. Leaving the `with` ends it.
    with client.session(include_partial_messages=True) as session:
        while (line := ask("> ")) is not None:
            try:
                if line.startswith(":"):
                    command(session, line[1:])
                elif line.strip():
                    turn(session, line)
            except SessionClosedError as error:  # the CLI has died; its own words are the cause
                print(f"the session is over: {error.__cause__ or error}", file=sys.stderr)
                return 1
            except ClaudeError as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
    print()
    return 0


def ask(prompt: str) -> str | None:
    """A line from the person; None when there will be no more."""
    try:
        return input(prompt)
    except (EOFError, KeyboardInterrupt):
        return None


def turn(session: Session, prompt: str) -> None:
    # A run of a session is like any other. Ctrl-C rises here, out of the loop, and has asked the CLI
    # to stop. Leaving the `with` waits until this turn is really over, so the next one never sees
    # anything of it.
    try:
        with session.run(prompt, timeout=600) as run:
            for event in run:
                if event.type == "text_delta":
                    print(event.text, end="", flush=True)
                elif event.type == "tool_use":
                    print(f"[{event.tool_name}]", flush=True)
            print()
            run.result()  # raises if the turn failed
    except KeyboardInterrupt:
        print("\n(stopped)")
    except TurnError as error:
        print(f"{type(error).__name__}: {error.message}", file=sys.stderr)


def command(session: Session, line: str) -> None:
    """Control requests. They could as well be made while a turn is on, from another thread."""
    name, _, argument = line.partition(" ")
    if name == "model":
        session.set_model(argument or None)
    elif name == "context":
        usage = session.context_usage()
        print(f"{usage['totalTokens']} of {usage['maxTokens']} tokens")
    else:
        print("there are :model NAME and :context")


if __name__ == "__main__":
    sys.exit(main())
