"""The logger "claude_cli_client", silent unless the program configures logging.

Never a prompt, an answer, a tool's input or an environment value. `logging` is imported with the
first message: it costs as much as the rest of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

_PACKAGE = __name__.rpartition(".")[0] + "."


def warning(message: str, *values: object) -> None:
    _say("warning", message, *values)


def error(message: str, *values: object) -> None:
    _say("error", message, *values)


def _say(level: str, message: str, *values: object) -> None:
    """Never raises: a handler that fails, or no descriptor to import `logging` with, must not keep a
    run from its end. Whoever logs on a reader's thread does it when everybody has been told: a
    handler may block."""
    try:
        getattr(_logger(), level)(message, *values)
    except Exception:  # noqa: BLE001 - there is nobody left to tell
        return


def place_of(error: BaseException, called: object = None) -> str:
    """Type and place, for the log. The message may hold what the model sent, which is not for a log.

    The place is the innermost that is not of this package. Where there is none, the fault is in how
    `called` was called or in what it returned: then its own place, and the words where they name types
    and fields and quote no value: those of a TypeError, ours or Python's, and of what says so itself.
    """
    trace, place, code = error.__traceback__, "", getattr(called, "__code__", None)
    while trace is not None:
        if not trace.tb_frame.f_globals.get("__name__", "").startswith(_PACKAGE):
            place = f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    name = type(error).__name__
    if place or called is None:
        return name + place
    words = f"{name}: {error}" if type(error) is TypeError or hasattr(error, "quotes_nothing") else name
    return words if code is None else f"{words}, at {code.co_filename}:{code.co_firstlineno}"


def each(*steps: Callable[[], object]) -> list[str]:
    """Do every step, whatever the ones before it do; what failed. Somebody waits for the end."""
    faults = []
    for step in steps:
        try:
            step()
        except BaseException as fault:  # noqa: BLE001 - the next steps must run
            faults.append(f"while ending a run: {type(fault).__name__}")
    return faults


def _logger() -> logging.Logger:
    import logging

    logger = logging.getLogger("claude_cli_client")
    if not logger.handlers:  # else Python prints warnings to stderr where nothing is configured
        logger.addHandler(logging.NullHandler())
    return logger
