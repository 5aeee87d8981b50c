"""Shapes: for one kind of JSON value its schema, its name in words, and how it is converted.

Pure, and without a word about annotations: which of them has which shape is in `_schema.py`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

Schema = dict[str, Any]
# What came of a value where several shapes were tried, once for each call of a tool: shapes of a recursive union look
# at the same parts, each anew at every level, and a model could send what takes hours. By the union, the value (the
# ids are of what the caller holds) and the place: what it became, or why not.
Tried = dict[tuple[int, int, str], Any]
Convert = Callable[[Any, str, Tried], Any]

MISSING: Final = dataclasses.MISSING


class Mismatch(Exception):
    """A value that is not what the schema says. The text is for the model: where, and what is expected."""

    def __init__(self, where: str, problem: str, *, is_inner: bool = False) -> None:
        super().__init__(where, problem)
        self.where = where
        self.is_inner = is_inner  # the value is of the right kind, what is wrong is inside of it
        self.count = 1  # of what is wrong

    def __str__(self) -> str:
        where, problem = self.args
        return f"{where}: {problem}" if where else str(problem)


class Shape(NamedTuple):
    """What an annotation comes to."""

    schema: Schema
    expected: str  # in words, as in "must be an integer"
    convert: Convert  # (value, where it stands, what was tried) -> the Python value; raises Mismatch


class Field(NamedTuple):
    """A member of an object: a key of a TypedDict, a field of a dataclass, a parameter of a function."""

    name: str
    shape: Shape
    default: Any = MISSING  # what the schema says of it; MISSING: nothing
    required: bool = True


def shown(value: Any) -> str:
    """A JSON value for an error message: short, and as the model wrote it."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def cut(text: str) -> str:
    """What the forms of a union say, which one around it would quote again, and so on."""
    return text if len(text) <= 1000 else text[:1000] + "..."


def mismatch(where: str, expected: str, value: Any) -> Mismatch:
    return Mismatch(where, f"must be {expected}, not {shown(value)}")


# --- plain values


def _string(value: Any, where: str, tried: Tried) -> str:
    if isinstance(value, str):
        return value
    raise mismatch(where, "a string", value)


def _integer(value: Any, where: str, tried: Tried) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise mismatch(where, "an integer", value)


def _number(value: Any, where: str, tried: Tried) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise Mismatch(where, "is too large for a number") from None
    raise mismatch(where, "a number", value)


def _boolean(value: Any, where: str, tried: Tried) -> bool:
    if isinstance(value, bool):
        return value
    raise mismatch(where, "true or false", value)


def _null(value: Any, where: str, tried: Tried) -> None:
    if value is not None:
        raise mismatch(where, "null", value)


def _as_it_is(value: Any, where: str, tried: Tried) -> Any:
    return value


PLAIN: Final[dict[Any, Shape]] = {
    str: Shape({"type": "string"}, "a string", _string),
    int: Shape({"type": "integer"}, "an integer", _integer),
    float: Shape({"type": "number"}, "a number", _number),
    bool: Shape({"type": "boolean"}, "true or false", _boolean),
    None: Shape({"type": "null"}, "null", _null),
    type(None): Shape({"type": "null"}, "null", _null),
    Any: Shape({}, "anything", _as_it_is),
    object: Shape({}, "anything", _as_it_is),
}


# --- parts


def inside(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def array(each: Convert, make: Callable[[list[Any]], Any]) -> Convert:
    def convert(value: Any, where: str, tried: Tried) -> Any:
        if not isinstance(value, list):
            raise mismatch(where, "an array", value)
        items = [each(item, f"{where}[{at}]", tried) for at, item in enumerate(value)]
        try:
            return make(items)
        except TypeError:  # a set of what cannot be in one
            raise mismatch(where, "an array of texts, numbers or the like", value) from None

    return convert


def object_schema(fields: Iterable[Field], rest: Schema | bool = False) -> Schema:
    """The schema of an object of these members. Defaults that JSON cannot hold are left out."""
    schema: Schema = {"type": "object", "properties": {}}
    for field in fields:
        part = field.shape.schema
        if field.default is not MISSING:
            found, default = as_json(field.default)
            part = {**part, "default": default} if found else part
        schema["properties"][field.name] = part
    required = [field.name for field in fields if field.required]
    if required:
        schema["required"] = required
    schema["additionalProperties"] = rest
    return schema


def object_reader(fields: Iterable[Field], rest: Shape | None = None) -> Convert:
    """Converts an object's members; all that is wrong with it is in one Mismatch, a line for each."""
    known = {field.name: field for field in fields}

    def convert(value: Any, where: str, tried: Tried) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise mismatch(where, "an object", value)
        values: dict[str, Any] = {}
        wrong: list[Mismatch] = []
        for name, part in value.items():
            place = inside(where, name)
            shape = known[name].shape if name in known else rest
            try:
                if shape is None:
                    raise Mismatch(place, f"there is no such name; there are: {', '.join(known) or 'none'}")
                values[name] = shape.convert(part, place, tried)
            except Mismatch as error:
                wrong.append(error)
        for name, field in known.items():
            if field.required and name not in value:
                wrong.append(Mismatch(inside(where, name), f"is missing, it must be {field.shape.expected}"))
        if wrong:
            raise wrong[0] if len(wrong) == 1 else Mismatches(wrong)
        return values

    return convert


class Mismatches(Mismatch):
    """Several at once."""

    def __init__(self, each: list[Mismatch]) -> None:
        super().__init__(each[0].where, "\n".join(map(str, each)), is_inner=True)
        self.count = sum(one.count for one in each)

    def __str__(self) -> str:
        return str(self.args[1])


def choice(values: list[Any], members: list[Any], where: str) -> Shape:
    """One of these JSON values, each for one member. True and 1 are two values."""
    for at, value in enumerate(values):
        if hasattr(type(value), "__members__"):  # Literal[Color.RED]
            values[at] = value = value.value
        if value is not None and type(value) not in (str, int, float, bool):
            raise TypeError(f"{where}: {value!r} is no text, number, boolean or None, which is all JSON has")
    found = {(type(value), value): member for value, member in zip(values, members, strict=True)}
    names = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    kinds = list(dict.fromkeys(names[type(value)] for value in values))
    schema: Schema = {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}
    expected = f"one of {', '.join(map(shown, values))}" if len(values) > 1 else shown(values[0])

    def convert(value: Any, place: str, tried: Tried) -> Any:
        if isinstance(value, float) and value.is_integer() and (float, value) not in found:
            value = int(value)
        try:
            return found[type(value), value]
        except (KeyError, TypeError):
            raise mismatch(place, expected, value) from None

    return Shape(schema, expected, convert)


def enum_shape(kind: Any, where: str) -> Shape:
    members = list(kind)
    if not members:
        raise TypeError(f"{where}: {kind.__name__} has no members")
    shape = choice([_plain_value(member) for member in members], members, f"{where}, {kind.__name__}")
    if all(isinstance(member.value, str) for member in members):
        return shape
    names = ", ".join(f"{shown(_plain_value(member))}: {member.name}" for member in members)  # 2 says nothing
    return shape._replace(schema={**shape.schema, "description": names})


def _plain_value(member: Any) -> Any:
    """The value of an enum member, without the classes of `IntFlag` and its like."""
    value = member.value
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def as_json(value: Any) -> tuple[bool, Any]:
    """Whether a default can stand in a schema, and as what."""
    if hasattr(type(value), "__members__"):
        value = _plain_value(value)
    try:
        return True, json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return False, None
