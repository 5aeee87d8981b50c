"""Many prompts, a few at a time, results in order.

    python examples/parallel.py README.md pyproject.toml setup.cfg

Exits with 1 if one of them failed.
"""

from __future__ import annotations

import sys

from claude_cli_client import Client


def main() -> int:
    files = sys.argv[1:] or ["README.md", "pyproject.toml", "LICENSE"]
    prompts = [f"In one sentence: what is in the file {name}?" for name in files]

    # At most three processes of the CLI exist at any moment, however many threads use the client.
    # Leaving the `with` ends what still runs.
    with Client(max_concurrent=3, timeout=300, tools=["Read"]) as client:
        # With `return_exceptions` one failure does not end the others: it stands in the place of
        # its result. Without it, it is raised there.
        failed = 0
        for name, result in zip(files, client.map(prompts, return_exceptions=True), strict=True):
            if isinstance(result, Exception):
                failed += 1
                print(f"{name}: failed: {result}")
            else:
                print(f"{name}: {result.result}")

        totals = client.totals
        print(f"{totals.turns} turns, {failed} failed, {totals.cost_usd:.4f} USD, {totals.output_tokens} tokens")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
