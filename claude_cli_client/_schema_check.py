"""Is this value what a JSON schema says? For the schemas that users write themselves.

Pure. A tool whose schema is derived from annotations does not come here: it is checked and
converted in one go (`_schema.py`).

Not a full validator: `$ref` within the document, and the keywords of `_KEYWORDS`. What it does not know it
passes over, since a call that is refused for no reason is worse than one that the tool itself has to
refuse. The CLI checks nothing at all before the call.

A `pattern` is the user's own regular expression, which Python's `re` matches with a text of the model. One that
has to try too many ways (`(a+)+$`) holds up every thread meanwhile; that cannot be told from the expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from ._shapes import cut, inside, shown

_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "number": lambda value: _is_number(value),
    "integer": lambda value: _is_number(value) and value == value // 1,
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
_WORDS: Final = {
    "string": "a string", "number": "a number", "integer": "an integer", "boolean": "true or false",
    "array": "an array", "object": "an object", "null": "null",
}  # fmt: skip


_Problems = list[tuple[str, str]]  # where, and a sentence


def problems(schema: Any, value: Any) -> list[str]:
    """What is wrong with the value, a sentence each; none if it is right."""
    return [_words(problem) for problem in _problems(schema, value, "", _Check(schema))]


class _Check:
    """One check of a value, by the schema that is its root.

    What a part of the schema says of a part of the value is worked out once. Forms of a recursive union look at the
    same parts, each anew at every level: a model could send what takes hours.
    """

    def __init__(self, root: Any) -> None:
        self.root = root
        self.known: dict[tuple[int, int, str], _Problems] = {}  # the ids are of what the caller holds


def _problems(schema: Any, value: Any, where: str, check: _Check) -> _Problems:
    if schema is False:
        return [(where, "must not be given")]
    if not isinstance(schema, dict):
        return []
    key = id(schema), id(value), where
    if key in check.known:
        return check.known[key]
    check.known[key] = []  # a schema that refers to itself says nothing more
    found: _Problems = []
    for keyword, rule in _KEYWORDS.items():
        if keyword in schema:
            try:
                found += rule(_Place(schema, schema[keyword], where, check), value)
            except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, re.error):
                continue  # a keyword of a form that we do not know: not for us to judge
            if found and keyword == "type":
                break  # of the wrong type, it is wrong in all else too
    if found:  # each once: what several parts say of the same would double from level to level
        check.known[key] = found = list(dict.fromkeys(found))
    return found


class _Place:
    """A keyword, its argument, and all that is around it."""

    def __init__(self, schema: dict[str, Any], argument: Any, where: str, check: _Check) -> None:
        self.schema, self.argument, self.where, self.check = schema, argument, where, check

    def sub(self, schema: Any, value: Any, where: str | None = None) -> _Problems:
        return _problems(schema, value, self.where if where is None else where, self.check)

    def says(self, wrong: bool, sentence: str) -> _Problems:
        return [(self.where, sentence)] if wrong else []


def _words(problem: tuple[str, str]) -> str:
    where, sentence = problem
    return f"{where}: {sentence}" if where else sentence


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    """JSON's equality: 1 is 1.0, and neither is true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


# --- keywords: each gets its place and the value


def _ref(place: _Place, value: Any) -> _Problems:
    target = place.check.root
    if not place.argument.startswith("#"):
        return []
    for step in place.argument[1:].strip("/").split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if step:
            target = target[int(step)] if isinstance(target, list) else target.get(step)
    return place.sub(target, value)


def _type(place: _Place, value: Any) -> _Problems:
    names = [place.argument] if isinstance(place.argument, str) else place.argument
    if any(_TYPES[name](value) if name in _TYPES else True for name in names):
        return []  # before `shown`, which is long for what is long
    words = " or ".join(_WORDS.get(name, name) for name in names)
    return place.says(True, f"must be {words}, not {shown(value)}")


def _enum(place: _Place, value: Any) -> _Problems:
    wrong = not any(_same(value, one) for one in place.argument)
    return place.says(wrong, f"must be one of {', '.join(map(shown, place.argument))}, not {shown(value)}")


def _const(place: _Place, value: Any) -> _Problems:
    return place.says(not _same(value, place.argument), f"must be {shown(place.argument)}, not {shown(value)}")


def _all_of(place: _Place, value: Any) -> _Problems:
    return [problem for part in place.argument for problem in place.sub(part, value)]


def _any_of(place: _Place, value: Any) -> _Problems:
    each = [place.sub(part, value) for part in place.argument]
    return _no_form(place, each) if all(each) else []


def _one_of(place: _Place, value: Any) -> _Problems:
    each = [place.sub(part, value) for part in place.argument]
    fitting = each.count([])
    if fitting > 1:
        return place.says(True, f"must fit exactly one of {len(each)} forms, and fits {fitting}")
    return [] if fitting else _no_form(place, each)


def _no_form(place: _Place, each: list[_Problems]) -> _Problems:
    """What is wrong with all forms, or of many words with the nearest: those of the right kind, with the fewest faults.

    A union around this one quotes it for each of its own forms, and so on.
    """
    nearest, words = each, _words_of(each)
    if cut(words) != words:
        inner = [one for one in each if any(where != place.where for where, _ in one)] or each
        fewest = min(map(len, inner))
        nearest = [one for one in inner if len(one) == fewest]
        words = _words_of(nearest)
    if len(nearest) == 1 < len(each):
        return nearest[0]
    return place.says(bool(each), f"must fit one of {len(each)} forms: {cut(words)}")


def _words_of(each: list[_Problems]) -> str:
    return " / ".join("; ".join(map(_words, one)) for one in each)


def _not(place: _Place, value: Any) -> _Problems:
    return place.says(not place.sub(place.argument, value), f"must not be {shown(value)}")


def _required(place: _Place, value: Any) -> _Problems:
    if not isinstance(value, dict):
        return []
    missing = [name for name in place.argument if name not in value]
    return [(inside(place.where, name), "is missing") for name in missing]


def _properties(place: _Place, value: Any) -> _Problems:
    if not isinstance(value, dict):
        return []
    return [
        problem
        for name, part in place.argument.items()
        if name in value
        for problem in place.sub(part, value[name], inside(place.where, name))
    ]


def _additional(place: _Place, value: Any) -> _Problems:
    if not isinstance(value, dict):
        return []
    known, patterns = place.schema.get("properties", {}), place.schema.get("patternProperties", {})
    found: _Problems = []
    for name, part in value.items():
        if name in known or any(re.search(pattern, name) for pattern in patterns):
            continue
        where = inside(place.where, name)
        if place.argument is False:
            found.append((where, f"there is no such name; there are: {', '.join(known) or 'none'}"))
        else:
            found += place.sub(place.argument, part, where)
    return found


def _patterns(place: _Place, value: Any) -> _Problems:
    if not isinstance(value, dict):
        return []
    return [
        problem
        for pattern, schema in place.argument.items()
        for name, part in value.items()
        if re.search(pattern, name)
        for problem in place.sub(schema, part, inside(place.where, name))
    ]


def _items(place: _Place, value: Any) -> _Problems:
    if not isinstance(value, list):
        return []
    if isinstance(place.argument, list):  # how prefixItems was written before 2020
        return _prefix(place, value)
    first = len(place.schema.get("prefixItems", ()))
    return [
        problem
        for at, item in enumerate(value)
        if at >= first
        for problem in place.sub(place.argument, item, f"{place.where}[{at}]")
    ]


def _prefix(place: _Place, value: Any) -> _Problems:
    if not isinstance(value, list):
        return []
    return [
        problem
        for at, (schema, item) in enumerate(zip(place.argument, value, strict=False))
        for problem in place.sub(schema, item, f"{place.where}[{at}]")
    ]


def _unique(place: _Place, value: Any) -> _Problems:
    if not isinstance(value, list) or place.argument is not True:
        return []
    twice = any(_same(one, other) for at, one in enumerate(value) for other in value[:at])
    return place.says(twice, "must not hold the same item twice")


def _pattern(place: _Place, value: Any) -> _Problems:
    wrong = isinstance(value, str) and not re.search(place.argument, value)
    return place.says(wrong, f"must match {place.argument}, as {shown(value)} does not")


def _multiple(place: _Place, value: Any) -> _Problems:
    if not _is_number(value):
        return []
    parts = value / place.argument
    return place.says(abs(parts - round(parts)) > 1e-9, f"must be a multiple of {place.argument}, not {shown(value)}")


def _bound(holds: Callable[[Any, Any], bool], words: str) -> Callable[[_Place, Any], _Problems]:
    def check(place: _Place, value: Any) -> _Problems:
        wrong = _is_number(value) and not holds(value, place.argument)
        return place.says(wrong, f"must be {words} {place.argument}, not {shown(value)}")

    return check


def _size(kind: type, least: bool, what: str) -> Callable[[_Place, Any], _Problems]:
    def check(place: _Place, value: Any) -> _Problems:
        if not isinstance(value, kind):
            return []
        size = len(value)  # type: ignore[arg-type]  # a str, list or dict
        wrong = size < place.argument if least else size > place.argument
        return place.says(wrong, f"must have at {'least' if least else 'most'} {place.argument} {what}, and has {size}")

    return check


_KEYWORDS: Final[dict[str, Callable[[_Place, Any], _Problems]]] = {
    "$ref": _ref,
    "type": _type,
    "enum": _enum,
    "const": _const,
    "required": _required,
    "properties": _properties,
    "patternProperties": _patterns,
    "additionalProperties": _additional,
    "prefixItems": _prefix,
    "items": _items,
    "uniqueItems": _unique,
    "minItems": _size(list, True, "items"),
    "maxItems": _size(list, False, "items"),
    "minLength": _size(str, True, "characters"),
    "maxLength": _size(str, False, "characters"),
    "minProperties": _size(dict, True, "members"),
    "maxProperties": _size(dict, False, "members"),
    "pattern": _pattern,
    "minimum": _bound(lambda value, bound: value >= bound, "at least"),
    "maximum": _bound(lambda value, bound: value <= bound, "at most"),
    "exclusiveMinimum": _bound(lambda value, bound: value > bound, "more than"),
    "exclusiveMaximum": _bound(lambda value, bound: value < bound, "less than"),
    "multipleOf": _multiple,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
}
