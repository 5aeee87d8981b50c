"""From an annotation to a JSON schema, and from a JSON value to what the annotation promises.

Pure. Both come from one walk over the annotation (`Deriver.shape`), so that the model is never told
one thing and checked against another. A `Shape` is made once, when a tool is made; converting walks
closures and looks at no annotation again.

What is converted and what is not:

* The value must already have the JSON type that the schema names. "3" is no integer and 1 is no
  boolean: a model that gets it wrong reads what is expected and calls again, while a silent guess
  runs the tool with something nobody asked for.
* The two exceptions lose nothing: an integer where a float is wanted, and 3.0 where an integer is
  (JSON has one kind of number, and JavaScript prints both the same way).
* A union gives the value to its members from left to right; a whole number is an int if int is one.

Classes that hold themselves become `$defs`; all others are written out where they stand, which
models follow more easily.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ._shapes import (
    MISSING,
    PLAIN,
    Field,
    Mismatch,
    Schema,
    Shape,
    Tried,
    array,
    choice,
    cut,
    enum_shape,
    inside,
    mismatch,
    object_reader,
    object_schema,
    shown,
)

# Abstract collections are given as a list: it is all of them but a set.
_LISTS: Final = {list, *(typing.get_origin(kind) for kind in (
    typing.Sequence[int], typing.Iterable[int], typing.Collection[int], typing.MutableSequence[int]))}  # fmt: skip
_SETS: Final = {set: set, frozenset: frozenset, typing.get_origin(typing.AbstractSet[int]): set}
_MAPS: Final = {dict, typing.get_origin(typing.Mapping[str, int]), typing.get_origin(typing.MutableMapping[str, int])}
_UNIONS: Final = (typing.Union, type(int | str))
_QUALIFIERS: Final = ("Required", "NotRequired", "ReadOnly")

_HINTS: Final[dict[str, str]] = {  # by the name of what is not supported: what to write instead
    "bytes": "JSON has no bytes; take a str, base64 for example",
    "complex": "take a list of two floats",
    "datetime": "take a str and parse it, its format in an Annotated description",
    "date": "take a str and parse it, its format in an Annotated description",
    "Decimal": "take a str or a float",
    "UUID": "take a str",
    "Path": "take a str",
}


class Deriver:
    """Makes shapes, and keeps the `$defs` of what holds itself. One for each tool."""

    def __init__(self) -> None:
        self.defs: dict[str, Schema] = {}
        self._open: dict[Any, _Open] = {}  # what is being walked just now, and what was found to hold itself
        self._names: dict[Any, str] = {}

    def shape(self, annotation: Any, where: str) -> Shape:
        """The shape of an annotation whose names are resolved. TypeError names `where` if there is none."""
        try:
            plain = PLAIN.get(annotation)
        except TypeError:  # not hashable, as Annotated[int, {}] and Literal[[1]]
            plain = None
        if plain is not None:
            return Shape(dict(plain.schema), plain.expected, plain.convert)
        if isinstance(annotation, type) and typing.get_origin(annotation) is None:
            return self._class(annotation, where)
        return self._generic(annotation, where)

    def fields_of(self, hints: Mapping[str, Any], required: Iterable[str], where: str) -> list[Field]:
        required = frozenset(required)
        return [
            Field(name, self.shape(hint, f"{where}, {name}"), required=name in required) for name, hint in hints.items()
        ]

    def with_defs(self, schema: Schema) -> Schema:
        """The schema of a whole document."""
        return {**schema, "$defs": self.defs} if self.defs else schema

    # --- classes

    def _class(self, kind: type, where: str) -> Shape:
        if hasattr(kind, "__members__"):
            return enum_shape(kind, where)
        if dataclasses.is_dataclass(kind):
            return self._named(kind, kind.__name__, lambda: self._dataclass(kind, where))
        if issubclass(kind, dict) and hasattr(kind, "__required_keys__"):
            return self._named(kind, kind.__name__, lambda: self._typed_dict(kind, where))
        if kind in _LISTS or kind in _SETS or kind in _MAPS or kind is tuple:
            return self._collection(kind, (), where)
        raise _unsupported(kind, where)

    def _dataclass(self, kind: Any, where: str) -> Shape:
        hints = hints_of(kind, where)
        fields = []
        for field in dataclasses.fields(kind):
            if field.init:
                has_default = field.default is not MISSING or field.default_factory is not MISSING
                shape = self.shape(hints[field.name], f"{where}, {kind.__name__}.{field.name}")
                fields.append(Field(field.name, shape, field.default, not has_default))
        for name, field in kind.__dataclass_fields__.items():
            if field._field_type is dataclasses._FIELD_INITVAR:  # type: ignore[attr-defined]
                raise TypeError(f"{where}: {kind.__name__}.{name} is an InitVar, which no JSON value can fill")
        read = object_reader(fields)

        def convert(value: Any, place: str, tried: Tried) -> Any:
            values = read(value, place, tried)
            try:
                return kind(**values)
            except Exception as error:  # __post_init__ is the user's, and its words are for the model
                raise Mismatch(place, f"{type(error).__name__}: {error}", is_inner=True) from error

        return Shape(object_schema(fields), f"an object ({kind.__name__})", convert)

    def _typed_dict(self, kind: Any, where: str) -> Shape:
        hints = hints_of(kind, where)
        # __required_keys__ does not see qualifiers in annotations that are strings: look again.
        required = set(kind.__required_keys__)
        for name, hint in hints.items():
            words = _qualifiers(hint)
            required = required - {name} if "NotRequired" in words else required
            required = required | {name} if "Required" in words else required
        fields = self.fields_of(hints, required, f"{where}, {kind.__name__}")
        return Shape(object_schema(fields), f"an object ({kind.__name__})", object_reader(fields))

    def _named(self, key: Any, name: str, build: Callable[[], Shape]) -> Shape:
        """A class or alias that may hold itself: met again on the way down, it is a reference.

        It stays one ever after. Of classes that hold each other, each would be walked on every way to it, and there
        are millions to the ten operators of a calculator.
        """
        outer = self._open.get(key)
        if outer is not None:
            outer.used = True
            known = outer.shape or Shape({}, f"a {name}", outer.convert)
            return known._replace(schema={"$ref": f"#/$defs/{outer.name}"})
        self._open[key] = this = _Open(self._free_name(key, name))
        this.shape = shape = build()
        if not this.used:
            del self._open[key]
            return shape
        self.defs[this.name] = shape.schema
        return shape._replace(schema={"$ref": f"#/$defs/{this.name}"})

    def _free_name(self, key: Any, name: str) -> str:
        if key not in self._names:
            taken, number = set(self._names.values()), 2
            free = name
            while free in taken:
                free, number = f"{name}_{number}", number + 1
            self._names[key] = free
        return self._names[key]

    # --- everything with brackets

    def _generic(self, annotation: Any, where: str) -> Shape:
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        is_old_tuple: bool = annotation is typing.Tuple  # noqa: UP006
        if origin is typing.Annotated:
            return self._annotated(arguments, where)
        if origin in _UNIONS:
            return self._union(arguments, where)
        if origin is typing.Literal:
            return choice(list(arguments), list(arguments), where)
        if getattr(origin, "_name", None) in _QUALIFIERS:
            return self.shape(arguments[0], where)
        if origin is tuple and not arguments and not is_old_tuple:
            arguments = ((),)  # tuple[()], as Python 3.10 has it
        if origin in _LISTS or origin in _SETS or origin in _MAPS or origin is tuple:
            return self._collection(origin, arguments, where)
        if origin is None and hasattr(annotation, "__supertype__"):  # NewType
            return self.shape(annotation.__supertype__, where)
        if origin is None and hasattr(annotation, "__value__"):  # type X = ...
            name = annotation.__name__
            return self._named(annotation, name, lambda: self.shape(annotation.__value__, f"{where}, {name}"))
        raise _unsupported(annotation, where)

    def _annotated(self, arguments: tuple[Any, ...], where: str) -> Shape:
        """The description is a text, or what `Doc` and pydantic's `Field` call one."""
        shape = self.shape(arguments[0], where)
        for extra in arguments[1:]:
            for text in (extra, getattr(extra, "documentation", None), getattr(extra, "description", None)):
                if isinstance(text, str):
                    return shape._replace(schema={**shape.schema, "description": text})
        return shape

    def _union(self, arguments: tuple[Any, ...], where: str) -> Shape:
        # A whole number goes to int, wherever it stands: to a float it would look as if it had been one.
        order = sorted(arguments, key=lambda kind: kind is float)
        members = [self.shape(kind, where) for kind in arguments]
        tried = [members[arguments.index(kind)] for kind in order]
        expected = " or ".join(dict.fromkeys(member.expected for member in members))

        def convert(value: Any, place: str, known: Tried) -> Any:
            if not isinstance(value, (dict, list)):  # nothing inside of it: looking is as cheap as remembering
                return _first_of(tried, expected, value, place, known)
            key = id(tried), id(value), place
            if key not in known:
                try:
                    known[key] = _first_of(tried, expected, value, place, known)
                except Mismatch as error:
                    known[key] = error
            if isinstance(known[key], Mismatch):
                raise known[key].with_traceback(None)
            return known[key]

        schemas = [dict(member.schema) for member in members]
        described = [schema for schema in schemas if "description" in schema]
        schema: Schema = {"anyOf": schemas}
        if len(described) == 1 and type(None) in arguments and len(arguments) == 2:
            schema["description"] = described[0].pop("description")  # Optional[Annotated[int, "..."]]
        return Shape(schema, expected, convert)

    def _collection(self, kind: Any, arguments: tuple[Any, ...], where: str) -> Shape:
        if kind in _MAPS:
            return self._map(arguments, where)
        if kind is tuple and arguments and arguments[-1] is not ...:
            return self._tuple(arguments if arguments != ((),) else (), where)
        item = self.shape(arguments[0], where) if arguments else PLAIN[Any]
        schema: Schema = {"type": "array"}
        if item.schema:
            schema["items"] = item.schema
        if kind not in _SETS:
            make: Callable[[list[Any]], Any] = tuple if kind is tuple else list
            return Shape(schema, "an array", array(item.convert, make))
        return Shape({**schema, "uniqueItems": True}, "an array", array(item.convert, _SETS[kind]))

    def _map(self, arguments: tuple[Any, ...], where: str) -> Shape:
        key, item = arguments or (str, Any)
        if key is not str:
            raise TypeError(f"{where}: the keys of a JSON object are texts, so a dict must be dict[str, ...]")
        each = self.shape(item, where)
        schema: Schema = {"type": "object"}
        if each.schema:
            schema["additionalProperties"] = each.schema

        def convert(value: Any, place: str, tried: Tried) -> Any:
            if not isinstance(value, dict):
                raise mismatch(place, "an object", value)
            return {name: each.convert(part, inside(place, name), tried) for name, part in value.items()}

        return Shape(schema, "an object", convert)

    def _tuple(self, arguments: tuple[Any, ...], where: str) -> Shape:
        items = [self.shape(kind, where) for kind in arguments]
        count = len(items)
        schema: Schema = {"type": "array", "minItems": count, "maxItems": count}
        if items:
            schema["prefixItems"] = [item.schema for item in items]
        expected = f"an array of {count} ({', '.join(item.expected for item in items)})" if items else "[]"

        def convert(value: Any, place: str, tried: Tried) -> Any:
            if not isinstance(value, list) or len(value) != count:
                raise mismatch(place, expected, value)
            return tuple(item.convert(value[at], f"{place}[{at}]", tried) for at, item in enumerate(items))

        return Shape(schema, expected, convert)


class _Open:
    """A class on whose fields the walk is just now, or was."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.used = False
        self.shape: Shape | None = None

    def convert(self, value: Any, where: str, tried: Tried) -> Any:
        assert self.shape is not None  # set before the first value can come
        return self.shape.convert(value, where, tried)


def _first_of(members: list[Shape], expected: str, value: Any, place: str, tried: Tried) -> Any:
    """What the first member that takes the value makes of it.

    Raises a Mismatch by all that come near, or of many words by the nearest.
    """
    inner: list[Mismatch] = []  # of members of the right kind, with a fault inside
    for member in members:
        try:
            return member.convert(value, place, tried)
        except Mismatch as error:
            inner += [error] if error.is_inner or error.where != place else []
    why = "; or ".join(map(str, inner))
    if cut(why) != why:
        fewest = min(error.count for error in inner)
        inner = [error for error in inner if error.count == fewest]
        why = cut("; or ".join(map(str, inner)))
    if len(inner) == 1:
        raise inner[0]
    raise Mismatch(place, f"must be {expected}, not {shown(value)}" + (f" ({why})" if why else ""))


def _qualifiers(hint: Any) -> set[str]:
    """`Required`, `NotRequired` and `ReadOnly` around an annotation; those of typing_extensions too."""
    found: set[str] = set()
    while True:
        origin = typing.get_origin(hint)
        name = getattr(origin, "_name", None)
        if name not in _QUALIFIERS and origin is not typing.Annotated:
            return found
        found.add(str(name))
        hint = typing.get_args(hint)[0]


def hints_of(holder: Any, where: str, local: dict[str, Any] | None = None) -> dict[str, Any]:
    """The resolved annotations of a class or function."""
    try:
        return typing.get_type_hints(holder, localns=local, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{where}: the annotation {getattr(error, 'name', None) or error!s} cannot be resolved. It must be a name "
            "of the module at run time: not of a function, and not imported under TYPE_CHECKING alone"
        ) from error
    except Exception as error:  # evaluating the user's words can raise anything
        raise TypeError(f"{where}: an annotation cannot be read: {error}") from error


def _unsupported(annotation: Any, where: str) -> TypeError:
    name = getattr(annotation, "__name__", None) or repr(annotation)
    hint = _HINTS.get(name.rpartition(".")[2])
    if isinstance(annotation, str):
        hint = "put the quotes around the whole annotation"
    default = (
        "supported are str, int, float, bool, list, dict, tuple, set, Optional, Union, Literal, Enum, TypedDict, "
        "dataclass, Annotated and Any; for all else give schema="
    )
    return TypeError(f"{where}: {name} has no JSON schema; {hint or default}")
