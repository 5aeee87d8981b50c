"""The logger "claude_cli_client", silent unless the program configures logging.

Never a prompt, an answer, a tool's input or an environment value. `logging` is imported with the
first message: it costs as much as the rest of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def warning(message: str, *values: object) -> None:
    _logger().warning(message, *values)


def error(message: str, *values: object) -> None:
    _logger().error(message, *values)


def each(*steps: Callable[[], object]) -> None:
    """Do every step, whatever the ones before it do, and log what failed: somebody waits for the end."""
    for step in steps:
        try:
            step()
        except BaseException as fault:  # noqa: BLE001 - the next steps must run
            error("while ending a run: %s", type(fault).__name__)


def _logger() -> logging.Logger:
    import logging

    logger = logging.getLogger("claude_cli_client")
    if not logger.handlers:  # else Python prints warnings to stderr where nothing is configured
        logger.addHandler(logging.NullHandler())
    return logger
