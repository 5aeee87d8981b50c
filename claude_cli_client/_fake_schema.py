"""A value for a JSON schema: what the simulated CLI answers to `--json-schema`.

Like `_fake_lines.py` it also runs in the stand-in process, and imports nothing of the package.
"""

from __future__ import annotations

import operator

TYPE_CHECKING = False  # see _fake_cli.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_FORMATS = {
    "date": "2026-01-31", "date-time": "2026-01-31T12:00:00Z", "time": "12:00:00Z", "email": "someone@example.com",
    "uri": "https://example.com/", "url": "https://example.com/", "uuid": "5e551011-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1", "hostname": "example.com",
}  # fmt: skip


def instance_of(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """A value that satisfies the schema, as far as it uses types, enum, const, default, required,
    sizes and bounds, `$ref` inside the document, `allOf`, `anyOf` and `oneOf`. No patterns."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > 40:
        return None
    for key, take in _FIXED.items():
        if schema.get(key) or (key in ("const", "default") and key in schema):
            return take(schema[key])
    if "$ref" in schema:
        return instance_of(_resolved(schema["$ref"], root), root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            rest = {name: part for name, part in schema.items() if name != key}
            return instance_of(_merged(rest, schema[key][0], root), root, depth + 1)
    if schema.get("allOf"):
        merged = {name: part for name, part in schema.items() if name != "allOf"}
        for part in schema["allOf"]:
            merged = _merged(merged, part, root)
        return instance_of(merged, root, depth + 1)
    make = _MAKERS.get(_type_of(schema))
    return make(schema, root, depth) if make else None


_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_NAMED = ("properties", "$defs", "definitions")  # hold schemas by name
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not")


def unknown_type(schema: Any, place: str = "data") -> str:
    """A `type` that no schema has, in the words of the real CLI; "" if all are known. Nothing else is checked."""
    if not isinstance(schema, dict):
        return ""
    kind = schema.get("type", "object")
    wrong = [f"/{i}" for i, one in enumerate(kind) if one not in _TYPES] if isinstance(kind, list) else []
    if wrong or (not isinstance(kind, list) and kind not in _TYPES):
        allowed, one_of = "must be equal to one of the allowed values", "must match a schema in anyOf"
        second = f"type{wrong[0]} {allowed}" if wrong else "type must be array"
        return f"{place}/type {allowed}, {place}/{second}, {place}/type {one_of}"
    return next(filter(None, (unknown_type(part, f"{place}/{path}") for path, part in _parts(schema))), "")


def _parts(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    parts = [(key, schema[key]) for key in _SINGLE if key in schema]
    for key in _NAMED:
        held = schema.get(key)
        parts += [(f"{key}/{name}", part) for name, part in held.items()] if isinstance(held, dict) else []
    for key in _LISTED:
        held = schema.get(key)
        parts += [(f"{key}/{index}", part) for index, part in enumerate(held)] if isinstance(held, list) else []
    return parts


# What fixes the value at once, first match wins.
_FIXED: dict[str, Callable[[Any], Any]] = {
    "const": lambda value: value,
    "default": lambda value: value,
    "enum": lambda values: values[0],
    "examples": lambda values: values[0],
}


def _type_of(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind is None:
        kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
    return str(kind)


def _resolved(reference: str, root: Any) -> Any:
    place = root
    for step in reference.lstrip("#").strip("/").split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if step:
            place = place.get(step) if isinstance(place, dict) else None
    return place


def _merged(one: dict[str, Any], other: Any, root: Any) -> dict[str, Any]:
    if isinstance(other, dict) and "$ref" in other:
        other = _resolved(other["$ref"], root)
    other = other if isinstance(other, dict) else {}
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        both["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        both["required"] = [*one["required"], *other["required"]]
    return both


def _an_object(schema: dict[str, Any], root: Any, depth: int) -> dict[str, Any]:
    """All that is required; the optional properties too while that ends, so that a demo shows them."""
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    names = [name for name in properties if depth < 6 or name in required]
    made = {name: instance_of(properties[name], root, depth + 1) for name in names}
    return {**made, **{name: None for name in required if name not in made}}


def _an_array(schema: dict[str, Any], root: Any, depth: int) -> list[Any]:
    count = schema.get("minItems", 1 if depth < 6 else 0)
    count = min(count, schema.get("maxItems", count))
    return [instance_of(schema.get("items", {}), root, depth + 1) for _ in range(count)]


def _a_string(schema: dict[str, Any], _root: Any, _depth: int) -> str:
    text = _FORMATS.get(schema.get("format", ""), "simulated")
    text = text.ljust(schema.get("minLength", 0), "x")
    return text[: schema.get("maxLength", len(text))]


def _a_number(schema: dict[str, Any], _root: Any, _depth: int) -> float:
    """The first of a few likely numbers that the bounds allow."""
    step: float = schema.get("multipleOf", 1)
    bounds = [schema[name] for name in _BOUNDS if name in schema]
    multiples = [bound // step * step for bound in bounds]
    near = [
        number + offset
        for number in (*bounds, *multiples)
        for offset in (0, step, -step, step / 2, -step / 2)
    ]
    likely = (step, 0, *near, sum(bounds) / max(1, len(bounds)))
    return next((number for number in likely if _is_allowed(number, schema)), step)


def _is_allowed(number: float, schema: dict[str, Any]) -> bool:
    if schema.get("type") == "integer" and number != int(number):
        return False
    if "multipleOf" in schema and number % schema["multipleOf"]:
        return False
    return all(holds(number, schema[name]) for name, holds in _BOUNDS.items() if name in schema)


_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "minimum": operator.ge,
    "exclusiveMinimum": operator.gt,
    "maximum": operator.le,
    "exclusiveMaximum": operator.lt,
}

_MAKERS: dict[str, Callable[[dict[str, Any], Any, int], Any]] = {
    "object": _an_object,
    "array": _an_array,
    "string": _a_string,
    "number": _a_number,
    "integer": lambda schema, root, depth: int(_a_number(schema, root, depth)),
    "boolean": lambda schema, root, depth: True,
    "null": lambda schema, root, depth: None,
}
