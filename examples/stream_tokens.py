"""The answer's text as it is written, and a way to stop it.

    python examples/stream_tokens.py "Tell me a long story"

Ctrl-C stops it, and nothing stays behind.
"""

from __future__ import annotations

import sys

from claude_cli_client import Client, TurnError


def main() -> int:
    prompt = " ".join(sys.argv[1:]) or "Explain in five sentences how a pipe works."
    client = Client(timeout=300, tools=[])

    # Without `include_partial_messages` text comes in whole blocks; with it, in a few words at a time.
    with client.run(prompt, include_partial_messages=True) as run:
        for piece in run.iter_text():
            print(piece, end="", flush=True)
        print()

        # The loop never raises for a turn that failed; `result` does, and knows why.
        try:
            result = run.result()
        except TurnError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
    print(f"-- first token after {result.ttft_ms} ms, {result.output_tokens} tokens", file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # leaving the `with` has ended the CLI and its tools
        sys.exit(130)
