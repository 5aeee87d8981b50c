"""Python functions as tools of the model, in this process.

    python examples/tools_calculator.py "How much is 80 km/h in miles per hour, divided by zero?"

The schemas that the model sees are made from the annotations. Arguments are checked before a
function is called; what it raises is an error that the model reads, and the turn goes on.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from typing import Annotated, Literal

from claude_cli_client import ClaudeError, Client, ToolContext, ToolResult, ToolServer, tool

Unit = Literal["m", "km", "mi"]
METRES: dict[Unit, float] = {"m": 1.0, "km": 1000.0, "mi": 1609.344}


@dataclass
class Summary:
    count: int
    mean: float
    median: float


# `read_only` says that it changes nothing: the CLI may call such tools at the same time.
@tool(read_only=True)
def divide(dividend: float, divisor: float) -> float:
    """Divide one number by another."""
    return dividend / divisor  # ZeroDivisionError: the model reads "ZeroDivisionError: float division by zero"


@tool(read_only=True)
def convert(
    distance: Annotated[float, "the number without its unit"],
    unit: Annotated[Unit, "what it is in"],
    to: Annotated[Unit, "what it shall be in"] = "m",
) -> float:
    """Convert a distance."""
    return distance * METRES[unit] / METRES[to]


@tool(read_only=True)
def summarise(numbers: list[float]) -> Summary | ToolResult:
    """Mean and median of some numbers."""
    if not numbers:
        return ToolResult.error("There are no numbers. Ask the user for some.")  # better words than an exception's
    return Summary(len(numbers), statistics.mean(numbers), statistics.median(numbers))  # the model reads JSON


@tool(read_only=True)
def largest_prime(below: int, context: ToolContext) -> int:
    """The largest prime below a number."""
    for candidate in range(below - 1, 1, -1):
        if context.cancelled:  # the turn was interrupted: a thread cannot be stopped, it can only look
            return 0
        context.progress((below - candidate) / below, str(candidate))
        if all(candidate % divisor for divisor in range(2, int(candidate**0.5) + 1)):
            return candidate
    raise ValueError(f"there is no prime below {below}")


def main() -> int:
    prompt = " ".join(sys.argv[1:]) or "Convert 80 km to miles, and divide the result by zero."
    # One server for as many clients, runs and sessions as you like, on any number of threads.
    calculator = ToolServer([divide, convert, summarise, largest_prime], instructions="Use it for all arithmetic.")
    client = Client(
        mcp_servers={"calculator": calculator},
        tools=[],  # no built-in tools: these are all there is
        allowed_tools=[f"mcp__calculator__{name}" for name in calculator.tools],  # they run unasked
    )
    try:
        run = client.run(prompt)
        for event in run:
            if event.type == "tool_use":
                print(f"{event.tool_name}({event.tool_input})")
            elif event.type == "tool_result":
                print(f"  {'error: ' if event.is_tool_error else ''}{event.text}")
            elif event.type == "text":
                print(event.text)
        run.result()  # the loop never raises for a turn that failed; this does
    except ClaudeError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
