"""The logger "claude_cli_client", silent unless the program configures logging.

Never a prompt, an answer, a tool's input or an environment value. `logging` is imported with the
first message: it costs as much as the rest of this package.
"""

from __future__ import annotations


def warning(message: str, *values: object) -> None:
    import logging

    logging.getLogger("claude_cli_client").warning(message, *values)


def error(message: str, *values: object) -> None:
    import logging

    logging.getLogger("claude_cli_client").error(message, *values)
