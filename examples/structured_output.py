"""An answer for programs: data that matches a JSON schema.

    python examples/structured_output.py "The train was late and the coffee cold, but the crew was kind."

The text of the answer is not parsed by anybody: the CLI itself checks the data.
"""

from __future__ import annotations

import json
import sys

from claude_cli_client import Client, StructuredOutputError

SCHEMA = {
    "type": "object",
    "properties": {
        "mood": {"type": "string", "enum": ["good", "mixed", "bad"]},
        "topics": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["mood", "topics"],
    "additionalProperties": False,
}


def main() -> int:
    review = " ".join(sys.argv[1:]) or "The train was late and the coffee cold, but the crew was kind."
    client = Client(timeout=300, tools=[])

    # A turn that succeeds but brings no matching data is an error too, so `structured_output` is
    # always there when `ask` returns.
    try:
        answer = client.ask(f"Which mood, and which topics? {review}", json_schema=SCHEMA)
    except StructuredOutputError as error:
        print(f"no data: {error.message}", file=sys.stderr)
        return 1
    data = answer.structured_output  # a dict, as the schema says
    print(json.dumps(data, indent=2))
    print(f"A {data['mood']} review of {len(data['topics'])} topics.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
