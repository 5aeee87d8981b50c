"""What a function takes: its parameters with their shapes, and how JSON arguments become a call.

Pure. The code object is read directly: `inspect` costs more to import than the rest of what a tool
needs, and this needs little of it. Of a decorated function the innermost one counts (`__wrapped__`), as it
does for `inspect.signature`.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ._schema import Deriver, hints_of
from ._schema_rules import check_names
from ._shapes import MISSING, Convert, Field, Mismatch, Schema, Shape, object_reader, object_schema

# Bits of co_flags, as in inspect.
_VARARGS: Final = 0x04
_VARKEYWORDS: Final = 0x08
_GENERATOR: Final = 0x20
_ASYNC: Final = 0x80 | 0x200

# Values of these schemas can have any keys, so that a parameter may be filled though no key names it.
_OPEN_KEYWORDS: Final = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties", "if")


class Parameter(NamedTuple):
    name: str
    by_position: bool  # it cannot be given by name
    default: Any  # MISSING: it has none
    is_rest: bool = False  # **name


class Call(NamedTuple):
    """How a tool's function is called."""

    schema: Schema
    read: Callable[[Any], dict[str, Any]]  # JSON arguments -> values by parameter; raises Mismatch
    positional: tuple[Parameter, ...]  # those that must be given by position
    context: str  # the parameter that gets the ToolContext, or ""
    whole: str  # the parameter that gets all arguments as one dict, or ""


def code_of(function: Any, where: str) -> tuple[Any, bool]:
    """The innermost Python function, and whether its first parameter is already bound.

    Raises TypeError for what is no Python function, or gives no result when it is called.
    """
    bound = outermost = False
    while True:
        if hasattr(function, "__func__"):  # a bound method; of a static method there is nothing to bind
            bound = bound or hasattr(function, "__self__")
            function = function.__func__
            continue
        if hasattr(function, "__code__") and not outermost:
            # Of a decorated function the decorator's: it may run what is async to its end.
            _check_is_plain(function, where)
            outermost = True
        if hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif hasattr(function, "__code__"):
            return function, bound
        elif isinstance(function, type) or not hasattr(type(function).__call__, "__code__"):
            raise TypeError(f"{where} must be a Python function, not a {type(function).__name__}; wrap it in a def")
        else:  # an object with __call__
            bound, function = True, type(function).__call__


def _check_is_plain(function: Any, where: str) -> None:
    """Refuses what gives no result when it is called."""
    flags = function.__code__.co_flags
    if flags & _ASYNC:
        raise TypeError(
            f"{where} is async, and nothing here awaits it: use def. "
            "If it must call async code: asyncio.run(...) inside of it, each call has a thread of its own"
        )
    if flags & _GENERATOR:
        raise TypeError(f"{where} is a generator, its call gives no result: return a list, or join the texts")


def parameters_of(function: Any, bound: bool, where: str) -> list[Parameter]:
    code = function.__code__
    if code.co_flags & _VARARGS:
        star = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
        raise TypeError(f"{where} takes *{star}, but arguments come by name: take a list")
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    without = len(names) - len(defaults)
    found = [
        Parameter(name, at < code.co_posonlyargcount, defaults[at - without] if at >= without else MISSING)
        for at, name in enumerate(names)
    ]
    keyword_defaults = function.__kwdefaults__ or {}
    end = code.co_argcount + code.co_kwonlyargcount
    for name in code.co_varnames[code.co_argcount : end]:
        found.append(Parameter(name, False, keyword_defaults.get(name, MISSING)))
    if code.co_flags & _VARKEYWORDS:
        found.append(Parameter(code.co_varnames[end], False, MISSING, is_rest=True))
    return found[1:] if bound else found


def resolved_hints(function: Any, where: str) -> dict[str, Any]:
    """The annotations of the parameters. That of the return value may name what only a type checker knows."""
    written = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    if not written:
        return {}
    code, kind = function.__code__, type(function)
    # A copy without the return annotation and without defaults: from a default None, Python 3.10 makes Optional.
    copy = kind(code, function.__globals__, function.__name__, None, function.__closure__)
    copy.__annotations__ = written
    return hints_of(copy, where, _closure(function))


def _closure(function: Any) -> dict[str, Any]:
    """The names of outer functions that it uses; its annotations may use them too."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet, as the function's own name while it is decorated
            continue
    return found


def derived(parameters: list[Parameter], hints: dict[str, Any], context: str, where: str) -> Call:
    """A call whose schema comes from the annotations."""
    deriver = Deriver()
    fields: list[Field] = []
    rest: Shape | None = None
    for parameter in parameters:
        if parameter.name == context:
            continue
        if parameter.name not in hints:
            raise TypeError(f"{where}: parameter {parameter.name!r} has no annotation; if it may be anything: Any")
        hint, default = hints[parameter.name], parameter.default
        place = f"{where}, parameter {parameter.name!r}"
        shape = deriver.shape(hint, place)
        if default is None and not _takes_null(shape):  # x: str = None
            shape = deriver.shape(typing.Union[hint, None], place)  # noqa: UP007 - `|` does not take all of them
        if parameter.is_rest:
            rest = shape
        else:
            fields.append(Field(parameter.name, shape, default, default is MISSING))
    check_names((field.name for field in fields), where)
    schema = object_schema(fields, rest.schema if rest else False)
    read = object_reader(fields, rest)
    positional = tuple(parameter for parameter in parameters if parameter.by_position)
    return Call(deriver.with_defs(schema), lambda value: _read(read, value), positional, context, "")


def _takes_null(shape: Shape) -> bool:
    try:
        shape.convert(None, "", {})
    except Mismatch:
        return False
    return True


def _read(read: Convert, value: Any) -> dict[str, Any]:
    try:
        values: dict[str, Any] = read(value, "", {})
    except RecursionError:
        raise Mismatch("", "the arguments are nested too deeply") from None
    return values


def given(
    parameters: list[Parameter],
    schema: Schema,
    check: Callable[[Schema, Any], list[str]],
    context: str,
    where: str,
) -> Call:
    """A call whose schema the user wrote: values are checked, and passed as they come."""
    own = [parameter for parameter in parameters if parameter.name != context]
    properties = schema.get("properties", {})
    takes_rest = any(parameter.is_rest for parameter in own)
    whole = own[0].name if len(own) == 1 and not takes_rest and own[0].name not in properties else ""
    if not whole and not any(keyword in schema for keyword in _OPEN_KEYWORDS):
        _check_fit(own, properties, takes_rest, where)

    def read(value: Any) -> dict[str, Any]:
        try:
            wrong = check(schema, value)
        except RecursionError:
            wrong = ["the arguments are nested too deeply"]
        if wrong:
            raise Mismatch("", "\n".join(wrong))
        if whole:
            return {whole: value}
        return _bound(own, value, takes_rest)

    return Call(schema, read, tuple(parameter for parameter in parameters if parameter.by_position), context, whole)


def _check_fit(own: list[Parameter], properties: Schema, takes_rest: bool, where: str) -> None:
    """A schema that the function cannot serve is found when the tool is made."""
    names = [parameter.name for parameter in own if not parameter.is_rest]
    for parameter in own:
        if parameter.default is MISSING and not parameter.is_rest and parameter.name not in properties:
            raise TypeError(f"{where}: no property of its schema fills the parameter {parameter.name!r}")
    for name in properties:
        if name not in names and not takes_rest:
            raise TypeError(
                f"{where}: its schema has a property {name!r}, the function no such parameter. "
                "Add it, or **rest, or take one single parameter: it gets all arguments as a dict"
            )


def _bound(own: list[Parameter], values: dict[str, Any], takes_rest: bool) -> dict[str, Any]:
    names = {parameter.name for parameter in own if not parameter.is_rest}
    for parameter in own:
        if parameter.default is MISSING and not parameter.is_rest and parameter.name not in values:
            raise Mismatch(parameter.name, "is missing")
    for name in values:
        if name not in names and not takes_rest:
            raise Mismatch(name, f"there is no such name; there are: {', '.join(names) or 'none'}")
    return values
