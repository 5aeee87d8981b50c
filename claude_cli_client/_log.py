"""The logger "claude_cli_client", silent unless the program configures logging.

Never a prompt, an answer, a tool's input or an environment value. `logging` is imported with the
first message: it costs as much as the rest of this package.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import logging

Fault = TypeVar("Fault", bound=BaseException)

_PACKAGE = __name__.rpartition(".")[0] + "."
_WORDS = "words_for_the_log"
# Python's own words of a call that does not fit. They name what stands in code; a name that a caller gave
# may come from `**tool_input`, so it must look like one.
_MISCALLED: Final = re.compile(
    r"(?:Allow|Deny|HookReply|PermissionUpdate|PermissionRule|PermissionRequest|ToolResult)\.\w+\(\) (?:"
    r"missing \d+ required [a-z -]+: [\w', ]+|takes [a-z0-9 ()-]+ given|got multiple values for argument '\w+'|"
    r"got an unexpected keyword argument '[A-Za-z_]{1,30}'(?:\. Did you mean '\w+'\?)?)"
)


def warning(message: str, *values: object) -> None:
    _say("warning", message, *values)


def error(message: str, *values: object) -> None:
    _say("error", message, *values)


def unheard(error: BaseException) -> None:
    """What is left to do with what a callback raised, and no consumer can be given."""
    _say("error", "a callback raised %s and nobody is there to hear it", type(error).__name__)


def _say(level: str, message: str, *values: object) -> None:
    """Never raises: a handler that fails, or no descriptor to import `logging` with, must not keep a
    run from its end. Whoever logs on a reader's thread does it when everybody has been told: a
    handler may block."""
    try:
        getattr(_logger(), level)(message, *values)
    except Exception:  # noqa: BLE001 - there is nobody left to tell
        return


def bad_value(message: str, words: str = "") -> ValueError:
    """A ValueError for the author of a callback, and what the log may have of it: `words`, or all.

    The log is where its author finds it. There it names fields, types and what could be; of the wrong
    value nothing, it may be what the model said.
    """
    return _logged(ValueError(message), words)


def bad_type(message: str, words: str = "") -> TypeError:
    """The same as a TypeError."""
    return _logged(TypeError(message), words)


def _logged(error: Fault, words: str) -> Fault:
    setattr(error, _WORDS, words or str(error))
    return error


def plain_name(name: object) -> str:
    """A name that somebody made up, for such words: quoted if it looks like one of ours, else "of that name"."""
    return repr(name) if isinstance(name, str) and re.fullmatch("[A-Za-z_]{1,30}", name) else "of that name"


def place_of(error: BaseException, called: object = None) -> str:
    """Type and place, for the log. The message may hold what the model sent, which is not for a log.

    The place is the innermost that is not of this package. Where there is none, the fault is in how
    `called` was called or in what it returned: then its own place. The words where they are ours (`bad_value`),
    where they are Python's about a call of ours, and without a place of the user's those of a TypeError.
    """
    trace, place, code = error.__traceback__, "", getattr(called, "__code__", None)
    while trace is not None:
        if not trace.tb_frame.f_globals.get("__name__", "").startswith(_PACKAGE):
            place = f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    words = vars(error).get(_WORDS, "")
    if not words and type(error) is TypeError and (_MISCALLED.fullmatch(str(error)) if place else called is not None):
        words = str(error)
    if not place and code is not None:
        place = f" at {code.co_filename}:{code.co_firstlineno}"
    name = type(error).__name__
    return f"{name}: {words}{place and ','}{place}" if words else name + place


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
