"""Is this something that can be called as it will be called? Of callbacks, hooks and sinks.

Pure; nothing is executed. What cannot be told is let through: only of a plain function or method is
it known what a call takes, not of a partial, a class, a built-in function or a mock. A callback that
cannot be called would deny every call of a turn that looks well, so it is an error before the start.
"""

from __future__ import annotations

from typing import Any, Final

from ._checks import Check, wrong

# inspect's CO_GENERATOR, CO_COROUTINE and CO_ASYNC_GENERATOR: a call runs nothing of the function.
# Importing inspect costs more than this module.
_ASYNC: Final = 0x80 | 0x200
_RUNS_NOTHING: Final = 0x20 | _ASYNC
_VARARGS: Final = 0x04


def function(name: str, value: Any, *, may_yield: bool = False) -> None:
    """Something that can be called, and runs then; with `may_yield` when it is gone through."""
    if not callable(value):
        raise wrong(name, "something that can be called", value)
    called = value if hasattr(value, "__code__") else getattr(value, "__call__", None)  # noqa: B004
    flags = getattr(getattr(called, "__code__", None), "co_flags", 0)
    if isinstance(flags, int) and flags & (_ASYNC if may_yield else _RUNS_NOTHING):  # of a mock they are a mock
        raise ValueError(f"{name} must be a plain function: a call of this one would run nothing")


def takes(*arguments: str) -> Check:
    """A function that can be called with these arguments, given by position."""
    must = f"one argument, {arguments[0]}" if arguments else "no argument"

    def check(name: str, value: Any) -> None:
        function(name, value)
        if not fits(value, len(arguments)):
            raise ValueError(f"{name} is called with {must}, and {value.__qualname__} does not take that")

    return check


def fits(value: Any, count: int) -> bool:
    """Whether a call with so many arguments by position can work, as far as it can be told."""
    called, bound = (value.__func__, 1) if type(value) is _METHOD else (value, 0)
    return type(called) is not _FUNCTION or _fits(called, bound + count)


# Exactly these: what only looks like one may do something else when it is called.
_FUNCTION: Final = type(function)
_METHOD: Final = type(function.__get__(function))


def _fits(called: Any, count: int) -> bool:
    """The same of a plain function; of a method, `self` counts."""
    code = called.__code__
    least = code.co_argcount - len(called.__defaults__ or ())
    most = count if code.co_flags & _VARARGS else code.co_argcount
    by_name: int = code.co_kwonlyargcount - len(called.__kwdefaults__ or ())
    return by_name == 0 and bool(least <= count <= most)


def line_sink(name: str, value: Any) -> None:
    """A binary file, or a function that takes a line."""
    if hasattr(value, "write"):
        if hasattr(value, "encoding"):
            raise ValueError(f"{name} gets bytes: open the file in binary mode")
        return
    if isinstance(value, (str, bytes)) or hasattr(value, "__fspath__"):
        raise ValueError(f"{name} gets no path: give a function, or a file, open(path, 'wb')")
    takes("a line as bytes")(name, value)
