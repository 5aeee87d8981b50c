"""A person in the terminal decides what the model may do.

    python examples/approve_in_terminal.py "Make a file notes.txt with a haiku in it"

y allows this call, n denies it (with words that the model reads), a allows this and all that are
like it for the rest of the session, q denies it and ends the turn.
"""

from __future__ import annotations

import os
import select
import sys
import threading

from claude_cli_client import Allow, ClaudeError, Client, Deny, PermissionRequest

_one_at_a_time = threading.Lock()  # the CLI may have several questions open, and there is one terminal


def approve(request: PermissionRequest) -> Allow | Deny:
    """Called on a thread of its own. It may wait for hours: `idle_timeout` does not count while it does."""
    with _one_at_a_time:
        if request.is_question:
            return answer(request)
        print(f"\n{request.tool_name}: {request.description or request.input}")
        if request.decision_reason:
            print(f"  asked because: {request.decision_reason}")
        # What an "always" would change. `to("session")` keeps it in memory; as it was suggested, it
        # may be written into the project's settings.
        always = [suggestion.to("session") for suggestion in request.suggestions if suggestion.is_known]
        for update in always:
            what = [*map(str, update.rules), *update.directories, update.mode]
            print(f"  always: {update.type} {', '.join(filter(None, what))}")

        choice = read_line("allow? [y]es, [n]o, [a]lways, [q]uit: ", request)
        if choice == "y":
            return Allow()
        if choice == "a":
            return Allow(updated_permissions=always)
        if choice == "q":
            return Deny("The user ended the turn.", interrupt=True)
        return Deny("The user does not want this call. Ask what to do instead.")


def answer(request: PermissionRequest) -> Allow | Deny:
    """The model asks something (its tool AskUserQuestion)."""
    answers: dict[str, str] = {}
    for question in request.questions:
        print(f"\n{question.question}")
        for number, option in enumerate(question.options, 1):
            print(f"  {number}. {option.label}: {option.description}")
        line = read_line("number, or your own words: ", request)
        if not line:
            return Deny("The user does not want to answer. Decide yourself.")
        known = {str(number): option.label for number, option in enumerate(question.options, 1)}
        answers[question.question] = known.get(line, line)
    return request.answer(answers)


def read_line(prompt: str, request: PermissionRequest) -> str:
    """A line from the terminal; "" at its end, or when the answer is not wanted any more.

    Not `input()`: Ctrl-C rises in the main thread, and nothing would get this one out of there.
    """
    print(prompt, end="", flush=True)
    line = b""
    while not request.cancelled:
        if select.select([0], [], [], 0.1)[0]:
            character = os.read(0, 1)
            if character in (b"", b"\n"):
                break
            line += character
    return line.decode(errors="replace").strip()


def main() -> int:
    prompt = " ".join(sys.argv[1:]) or "Make a file notes.txt with a haiku in it, then show it with cat."

    # With `can_use_tool` the permission mode is the CLI's own default, in which edits are asked about.
    # What a rule in the settings or in `allowed_tools` allows is never asked.
    # People are slow: so no limit for the whole turn.
    client = Client(can_use_tool=approve, timeout=None)
    try:
        with client.run(prompt) as run:
            for event in run:
                if event.type == "text":
                    print(event.text)
                elif event.type == "tool_result" and event.is_tool_error:
                    print(f"  -> {event.text.splitlines()[0] if event.text else 'failed'}")
            denied = run.result().permission_denials or ()
    except KeyboardInterrupt:  # leaving the `with` has ended the CLI, and the question
        return 130
    except ClaudeError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(f"-- {len(denied)} denied")
    return 0


if __name__ == "__main__":
    sys.exit(main())
