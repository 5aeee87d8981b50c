"""Is this a JSON schema at all? Of the schemas that users write themselves.

Pure. The CLI measures the schema of a tool by that of JSON Schema 2020-12 and leaves out, without a word, each tool
whose schema is none, or has a parameter with a name that the API refuses; for a `required` that is no list of
texts it leaves out all tools of the server. It does not look into a schema that says to be of another version,
nor at a regular expression or a `$ref` (all seen with 2.1.332). What values fit is a matter of `_schema_check.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ._shapes import shown

_VERSION: Final = "https://json-schema.org/draft/2020-12/schema"
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")

_Fault = tuple[str, str]  # where, and what is wrong there
_Rule = Callable[[str, Any], Iterable[_Fault]]


def fault(schema: dict[str, Any]) -> str:
    """What the CLI takes offence at; "" if nothing."""
    rules = (_required, _schema) if schema.get("$schema", _VERSION) in (_VERSION, f"{_VERSION}#") else (_required,)
    for rule in rules:
        for where, wrong in rule("", schema):
            return f"{where.lstrip('.')} {wrong}"
    return ""


def check_names(names: Iterable[str], where: str) -> None:
    """Raises ValueError for a name that no parameter can have."""
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"{where}: with a parameter {name!r} the CLI would leave it out, and say nothing; a name has "
                "1 to 64 of the characters A-Z a-z 0-9 _ . -"
            )


def _required(where: str, schema: dict[str, Any]) -> Iterable[_Fault]:
    return _are_texts("required", schema["required"]) if "required" in schema else ()


def _schema(where: str, value: Any) -> Iterator[_Fault]:
    if isinstance(value, dict):
        for keyword in value:
            if rule := _KEYWORDS.get(keyword):
                yield from rule(f"{where}.{keyword}", value[keyword])
    elif not isinstance(value, bool):
        yield where, f"must be a schema (a dict, True or False), not {shown(value)}"


# --- what a keyword may hold


def _must(what: str, fits: Callable[[Any], bool]) -> _Rule:
    return lambda where, value: () if fits(value) else [(where, f"must be {what}, not {shown(value)}")]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_types(value: Any) -> bool:
    types = value if isinstance(value, list) and value else [value]
    return all(isinstance(one, str) and one in _TYPES for one in types) and len(types) == len(set(types))


def _texts(where: str, value: Any) -> Iterator[_Fault]:
    wrong = _are_texts(where, value)
    yield from wrong
    if not wrong and len(value) != len(set(value)):
        yield where, "has a name twice"


def _items(where: str, value: Any) -> Iterable[_Fault]:
    if isinstance(value, list):
        return [(where, "must be one schema for all; those of a tuple stand in prefixItems")]
    return _schema(where, value)


def _schemas(where: str, value: Any) -> Iterator[_Fault]:
    if not isinstance(value, list) or not value:
        yield where, f"must be a list of schemas, not {shown(value)}"
        return
    for number, one in enumerate(value):
        yield from _schema(f"{where}.{number}", one)


def _by_name(rule: _Rule) -> _Rule:
    def check(where: str, value: Any) -> Iterator[_Fault]:
        if not isinstance(value, dict):
            yield where, f"must be a dict, not {shown(value)}"
            return
        for name, one in value.items():
            if not isinstance(name, str):
                yield where, f"has a name that is no text: {shown(name)}"
            yield from rule(f"{where}.{name}", one)

    return check


def _names_or_schema(where: str, value: Any) -> Iterable[_Fault]:
    return _texts(where, value) if isinstance(value, list) else _schema(where, value)


_text = _must("a text", lambda value: isinstance(value, str))
_flag = _must("True or False", lambda value: isinstance(value, bool))
_list = _must("a list", lambda value: isinstance(value, list))
_number = _must("a number", _is_number)
_positive = _must("a number above 0", lambda value: _is_number(value) and value > 0)
_count = _must("a whole number, 0 or more", lambda value: _is_number(value) and value >= 0 and value == value // 1)
_type = _must(f"one of {', '.join(_TYPES)}, or a list of them", _are_types)
_are_texts = _must(
    "a list of names", lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value)
)
_anchor = _must(
    "a name", lambda value: isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w.-]*", value, re.ASCII) is not None
)
_id = _must("a text without #, but at its end", lambda value: isinstance(value, str) and "#" not in value[:-1])

# Those of JSON Schema 2020-12; all others are nobody's.
_KEYWORDS: Final[dict[str, _Rule]] = {
    "type": _type,
    "enum": _list,
    "required": _texts,
    "items": _items,
    "dependentRequired": _by_name(_texts),
    "dependencies": _by_name(_names_or_schema),
    "multipleOf": _positive,
    **dict.fromkeys(("prefixItems", "allOf", "anyOf", "oneOf"), _schemas),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"), _by_name(_schema)),
    **dict.fromkeys(
        ("additionalProperties", "propertyNames", "contains", "unevaluatedItems", "unevaluatedProperties"), _schema
    ),
    **dict.fromkeys(("not", "if", "then", "else", "contentSchema"), _schema),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _count),
    **dict.fromkeys(("minProperties", "maxProperties"), _count),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _flag),
    **dict.fromkeys(("title", "description", "pattern", "format", "contentEncoding", "contentMediaType"), _text),
    **dict.fromkeys(("$ref", "$comment", "$dynamicRef", "$recursiveRef"), _text),
    **dict.fromkeys(("$anchor", "$dynamicAnchor", "$recursiveAnchor"), _anchor),
    "$id": _id,
    "$vocabulary": _by_name(_flag),
    "examples": _list,
}
