"""Schemas from annotations, arguments checked and converted by them, and schemas that users wrote."""

import dataclasses
import enum
import functools
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict, Union

import pytest
from odd_schemas import BAD_NAMES, LEFT_OUT, NAMES, OFFERED
from typing_extensions import NotRequired, Required

from claude_cli_client._schema_check import problems
from claude_cli_client._shapes import Mismatch
from claude_cli_client.mcp import ToolContext, tool


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Line:
    start: Point
    end: Point
    length: float = dataclasses.field(init=False, default=0.0)


@dataclasses.dataclass
class Node:
    name: str
    children: "list[Node]" = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Husband:
    wife: "Wife | None" = None


@dataclasses.dataclass
class Wife:
    husband: "Husband | None" = None


@dataclasses.dataclass
class Percent:
    value: int

    def __post_init__(self):
        if not 0 <= self.value <= 100:
            raise ValueError("0 to 100")


class Base(TypedDict):
    id: int


class Article(Base, total=False):
    price: float
    name: Required[str]


class Late(TypedDict):
    a: "NotRequired[int]"
    b: "int"


UserId = NewType("UserId", int)


def made(annotation, default=dataclasses.MISSING):
    """A tool with one parameter of this annotation."""

    def function(value):
        return value

    function.__annotations__ = {"value": annotation}
    if default is not dataclasses.MISSING:
        function.__defaults__ = (default,)
    return tool("t")(function)


def schema_of(annotation):
    """The part of the schema that stands for the annotation."""
    return made(annotation).schema["properties"]["value"]


def converted(annotation, value):
    """What the function gets."""
    return made(annotation).arguments({"value": value})["value"]


def complaint(annotation, value):
    """What the model reads."""
    with pytest.raises(Mismatch) as caught:
        converted(annotation, value)
    return str(caught.value)


# --- what the model is told

SCHEMAS = [
    (str, {"type": "string"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (None, {"type": "null"}),
    (Any, {}),
    (object, {}),
    (list, {"type": "array"}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (Sequence[str], {"type": "array", "items": {"type": "string"}}),
    (typing.List[int], {"type": "array", "items": {"type": "integer"}}),  # noqa: UP006 - the old form
    (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
    (dict, {"type": "object"}),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (Mapping[str, Any], {"type": "object"}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (tuple, {"type": "array"}),
    (
        tuple[int, str],
        {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}]},
    ),
    (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
    (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 - the old form
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007 - the old form
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal["a", 1, None], {"type": ["string", "integer", "null"], "enum": ["a", 1, None]}),
    (Literal[Color.RED], {"type": "string", "enum": ["red"]}),
    (Color, {"type": "string", "enum": ["red", "blue"]}),
    (Level, {"type": "integer", "enum": [1, 2], "description": "1: LOW, 2: HIGH"}),
    (UserId, {"type": "integer"}),
    (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
    (
        Annotated[int, "how many"] | None,
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "how many"},
    ),
    (list[Annotated[int, "one"]], {"type": "array", "items": {"type": "integer", "description": "one"}}),
]


@pytest.mark.parametrize(("annotation", "expected"), SCHEMAS, ids=lambda value: str(value)[:40])
def test_schema(annotation, expected):
    """Each supported annotation has its schema."""
    assert schema_of(annotation) == expected


def test_schema_of_a_dataclass():
    """Fields with a default may be left out; what the dataclass fills itself is not asked for."""
    point = {
        "type": "object",
        "properties": {
            "x": {"type": "integer"},
            "y": {"type": "number", "default": 0.0},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["x"],
        "additionalProperties": False,
    }
    assert schema_of(Line) == {
        "type": "object",
        "properties": {"start": point, "end": point},
        "required": ["start", "end"],
        "additionalProperties": False,
    }


def test_schema_of_a_typed_dict():
    """total, Required and NotRequired decide what must be given, also over inheritance."""
    schema = schema_of(Article)
    assert set(schema["required"]) == {"id", "name"}
    assert schema["properties"]["price"] == {"type": "number"}


def test_not_required_in_a_string():
    """A qualifier counts though the annotation is a string, which `__required_keys__` does not see."""
    assert schema_of(Late)["required"] == ["b"]


def test_a_class_that_holds_itself_is_a_definition():
    """Recursion becomes `$defs`, at the root of the schema."""
    schema = made(Node).schema
    assert schema["properties"]["value"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_classes_that_hold_each_other():
    """A circle of two ends as well, and converts."""
    made_of = converted(Husband, {"wife": {"husband": {"wife": None}}})
    assert made_of == Husband(Wife(Husband()))


def test_definitions_of_the_same_name_are_two():
    """Two recursive classes of one name do not get in each other's way."""
    other = dataclasses.make_dataclass("Node", [("next", Optional["Node"])])
    other.__annotations__["next"] = Optional[other]  # noqa: UP045
    schema = made(tuple[Node, other]).schema
    assert set(schema["$defs"]) == {"Node", "Node_2"}


def test_defaults_stand_in_the_schema():
    """A parameter with a default is not required, and the model sees the default; of an enum, its value."""
    schema = made(Color, Color.BLUE).schema
    assert schema["properties"]["value"]["default"] == "blue"
    assert "required" not in schema


def test_a_default_that_json_cannot_hold_is_left_out():
    """It still makes the parameter optional."""
    schema = made(float, float("inf")).schema
    assert schema["properties"]["value"] == {"type": "number"}
    assert "required" not in schema


def test_default_none_allows_null():
    """`x: str = None` takes null in every Python, once."""
    assert made(str, None).schema["properties"]["value"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert len(made(str | None, None).schema["properties"]["value"]["anyOf"]) == 2


def test_documentation_objects_are_descriptions():
    """`Doc` of typing_extensions and `Field` of pydantic have their text in an attribute."""

    class Doc:
        documentation = "the name"

    assert schema_of(Annotated[str, 5, Doc()]) == {"type": "string", "description": "the name"}


# --- what is refused when the tool is made

UNSUPPORTED = [bytes, complex, type, typing.Callable, typing.TypeVar("T"), dict[int, str], list[bytes], NewType]


@pytest.mark.parametrize("annotation", UNSUPPORTED, ids=str)
def test_unsupported_annotations(annotation):
    """What JSON has no form for is a TypeError that names tool and parameter."""
    with pytest.raises(TypeError, match=r"tool 't', parameter 'value'"):
        made(annotation)


def test_unsupported_inside_of_a_class_names_the_field():
    """The place is said down to the field."""
    bad = dataclasses.make_dataclass("Bad", [("blob", bytes)])
    with pytest.raises(TypeError, match=r"Bad\.blob"):
        made(list[bad])


def test_unresolved_annotations():
    """A name that does not exist at run time is a TypeError that says so."""
    with pytest.raises(TypeError, match="TYPE_CHECKING"):
        made("Missing")


def test_the_return_annotation_may_be_unknown():
    """What the function returns is not read, so a type checker's name will do."""

    @tool
    def f(x: int) -> "Missing":  # noqa: F821
        return x

    assert f.schema["required"] == ["x"]


def test_a_parameter_without_annotation():
    """It is refused: the model could not know what to give."""
    with pytest.raises(TypeError, match="'x' has no annotation"):

        @tool
        def f(x):
            return x


def test_positional_rest():
    """`*args` cannot be given by name."""
    with pytest.raises(TypeError, match=r"\*args"):

        @tool
        def f(*args: int):
            return args


def test_init_var():
    """A dataclass with an InitVar is refused, in words."""
    bad = dataclasses.make_dataclass("Bad", [("x", dataclasses.InitVar[int])])
    with pytest.raises(TypeError, match="InitVar"):
        made(bad)


def test_values_of_an_enum_must_be_json():
    """An enum of objects has no value that the model could write."""
    with pytest.raises(TypeError, match="no text, number"):
        made(enum.Enum("Odd", {"A": (1, 2)}))


# --- conversion

CONVERSIONS = [
    (str, "", ""),
    (int, 3, 3),
    (int, 3.0, 3),
    (float, 3, 3.0),
    (bool, False, False),
    (Any, {"a": [1]}, {"a": [1]}),
    (list[float], [1, 2.5], [1.0, 2.5]),
    (set[int], [1, 2], {1, 2}),
    (frozenset[str], ["a"], frozenset("a")),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[()], [], ()),
    (dict[str, Color], {"a": "red"}, {"a": Color.RED}),
    (Color, "red", Color.RED),
    (Level, 2, Level.HIGH),
    (Level, 2.0, Level.HIGH),
    (Literal["a", 1], 1, 1),
    (Literal[Color.RED], "red", Color.RED),
    (Color | None, None, None),
    (Color | str, "green", "green"),
    (str | Color, "red", "red"),
    (float | int, 3, 3),
    (UserId, 5, 5),
    (Point, {"x": 1}, Point(1)),
    (Line, {"start": {"x": 1}, "end": {"x": 2, "y": 3, "tags": ["a"]}}, Line(Point(1), Point(2, 3.0, ["a"]))),
    (Node, {"name": "a", "children": [{"name": "b"}]}, Node("a", [Node("b")])),
    (Article, {"id": 1, "name": "n", "price": 2}, {"id": 1, "name": "n", "price": 2.0}),
]


@pytest.mark.parametrize(("annotation", "value", "expected"), CONVERSIONS, ids=lambda value: str(value)[:40])
def test_conversion(annotation, value, expected):
    """The function gets what its annotation promises, of exactly that type."""
    result = converted(annotation, value)
    assert result == expected
    assert type(result) is type(expected)


COMPLAINTS = [
    (str, 1, "value: must be a string, not 1"),
    (int, "3", 'value: must be an integer, not "3"'),
    (int, 3.5, "value: must be an integer, not 3.5"),
    (int, True, "value: must be an integer, not true"),
    (float, "3", 'value: must be a number, not "3"'),
    (float, 10**400, "value: is too large for a number"),
    (bool, 1, "value: must be true or false, not 1"),
    (list[int], [1, "a"], 'value[1]: must be an integer, not "a"'),
    (list[int], {}, "value: must be an array, not {}"),
    (set[Any], [[]], "value: must be an array of texts, numbers or the like, not [[]]"),
    (tuple[int, str], [1], "value: must be an array of 2 (an integer, a string), not [1]"),
    (dict[str, int], {"a": None}, "value.a: must be an integer, not null"),
    (Color, "green", 'value: must be one of "red", "blue", not "green"'),
    (Color, ["red"], 'value: must be one of "red", "blue", not ["red"]'),
    (Literal["a"], "b", 'value: must be "a", not "b"'),
    (Literal[1], True, "value: must be 1, not true"),
    (int | None, "a", 'value: must be an integer or null, not "a"'),
    (Line, {"start": {"x": "1"}, "end": {"x": 1}}, 'value.start.x: must be an integer, not "1"'),
    (Point, {}, "value.x: is missing, it must be an integer"),
    (Point | None, {"y": 1}, "value.x: is missing, it must be an integer"),
    (Point, {"x": 1, "z": 1}, "value.z: there is no such name; there are: x, y, tags"),
    (Percent, {"value": 101}, "value: ValueError: 0 to 100"),
    (Percent | None, {"value": 101}, "value: ValueError: 0 to 100"),
    (Node, {"name": "a", "children": [{}]}, "value.children[0].name: is missing, it must be a string"),
    (Article, {"id": 1}, "value.name: is missing, it must be a string"),
]


@pytest.mark.parametrize(("annotation", "value", "expected"), COMPLAINTS, ids=lambda value: str(value)[:40])
def test_complaint(annotation, value, expected):
    """A wrong value is refused with its place, what is expected, and what came."""
    assert complaint(annotation, value) == expected


def test_all_that_is_wrong_is_said_at_once():
    """One answer is enough for the model to correct everything."""

    @tool
    def f(a: int, b: str, c: bool = False):
        return a

    with pytest.raises(Mismatch) as caught:
        f.arguments({"b": 1, "d": 2})
    assert str(caught.value).splitlines() == [
        "b: must be a string, not 1",
        "d: there is no such name; there are: a, b, c",
        "a: is missing, it must be an integer",
    ]


def test_long_values_are_shown_short():
    """A value of any length costs a line in the error."""
    assert len(complaint(int, "x" * 100_000)) < 150


def test_deep_values_do_not_end_in_a_recursion_error():
    """What is nested deeper than Python goes is a mismatch like any other."""
    value = {"name": "a"}
    for _ in range(100_000):
        value = {"name": "a", "children": [value]}
    assert "nested too deeply" in complaint(Node, value)


# --- the function behind the tool


def run(made_tool, **arguments):
    """Call it as a server does."""
    return made_tool.run(made_tool.arguments(arguments), ToolContext())


def test_every_kind_of_parameter():
    """Positional-only, plain, keyword-only and rest: all are given by name."""

    @tool
    def f(a: int, b: int = 2, /, c: int = 3, *, d: int, **rest: str):
        return a, b, c, d, rest

    assert run(f, a=1, d=4) == (1, 2, 3, 4, {})
    assert run(f, a=1, b=5, c=6, d=7, e="x") == (1, 5, 6, 7, {"e": "x"})
    assert f.schema["additionalProperties"] == {"type": "string"}


def test_a_context_is_no_argument():
    """The parameter annotated with ToolContext is filled by the library, and the model does not see it."""

    @tool
    def f(a: int, context: ToolContext, /, *, b: int = 1):
        return type(context), a, b

    assert set(f.schema["properties"]) == {"a", "b"}
    assert run(f, a=1) == (ToolContext, 1, 1)


def test_an_optional_context():
    """So it is if it may be None, for those who call the function themselves."""

    @tool
    def f(context: ToolContext | None = None):
        return context

    assert isinstance(run(f), ToolContext)
    assert f() is None


def test_bound_methods_and_callable_objects():
    """What is bound is not asked for."""

    class Shop:
        def price(self, sku: str):
            return f"{sku}!"

        def __call__(self, sku: str):
            return f"{sku}?"

    assert run(tool(Shop().price), sku="a") == "a!"
    assert run(tool("ask")(Shop()), sku="a") == "a?"


def test_a_tool_in_a_class_is_a_method():
    """Decorated in the class, it is the tool of each instance."""

    class Shop:
        def __init__(self, sign):
            self.sign = sign

        @tool
        def price(self, sku: str):
            return sku + self.sign

    shop = Shop("!")
    assert run(shop.price, sku="a") == "a!" == shop.price("a")
    assert run(Shop("?").price, sku="a") == "a?"


def test_static_methods():
    """Both orders of the decorators work."""

    class Shop:
        @tool
        @staticmethod
        def one(sku: str):
            return sku

        @staticmethod
        @tool
        def other(sku: str):
            return sku

    assert run(Shop.one, sku="a") == run(Shop().other, sku="a") == "a"


def test_decorated_functions():
    """The innermost function says what is taken, the outermost is called."""

    def loud(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs).upper()

        return wrapper

    @tool
    @loud
    def f(name: str) -> str:
        return name

    assert run(f, name="a") == "A"


def test_closures_are_seen_by_annotations():
    """A class of an outer function resolves from a string if the function uses it."""

    @dataclasses.dataclass
    class Local:
        x: int

    @tool
    def f(value: "Local"):
        return isinstance(value, Local)

    assert run(f, value={"x": 1})


@pytest.mark.parametrize("function", [len, functools.partial(print, 1), int, print])
def test_what_is_no_python_function(function):
    """Its parameters cannot be read: a TypeError says to wrap it."""
    with pytest.raises(TypeError, match="wrap it in a def"):
        tool("t")(function)


# --- schemas that users wrote

GIVEN = {
    "type": "object",
    "properties": {"size": {"oneOf": [{"type": "integer"}, {"enum": ["all"]}]}, "x-y": {"$ref": "#/$defs/n"}},
    "required": ["size"],
    "$defs": {"n": {"type": "number", "minimum": 1}},
    "x-own": {"kept": [1]},
}


def test_a_given_schema_is_taken_as_it_is():
    """Nothing is added, left out or reordered."""

    @tool(schema=GIVEN)
    def f(arguments):
        return arguments

    assert f.listed()["inputSchema"] == GIVEN
    assert list(f.schema) == list(GIVEN)


def test_a_given_schema_is_copied():
    """Changing it afterwards changes nothing."""
    own = {"type": "object", "properties": {"a": {"type": "string"}}}

    @tool(schema=own)
    def f(a):
        return a

    own["properties"].clear()
    assert f.schema["properties"] == {"a": {"type": "string"}}


def test_a_single_parameter_takes_all():
    """If it is not among the properties it gets the arguments as one dict."""

    @tool(schema=GIVEN)
    def f(arguments):
        return arguments

    assert run(f, size=3, **{"x-y": 1.5}) == {"size": 3, "x-y": 1.5}


def test_parameters_by_name():
    """Otherwise each property is an argument, as it came."""

    @tool(schema={"type": "object", "properties": {"a": {"type": "number"}, "b": {}}, "required": ["a"]})
    def f(a, b=None):
        return a, b

    assert run(f, a=1) == (1, None)


def test_rest_takes_what_is_no_name():
    """With `**rest` names may be anything."""

    @tool(schema=GIVEN)
    def f(size, **rest):
        return size, rest

    assert run(f, size="all", **{"x-y": 2}) == ("all", {"x-y": 2})


@pytest.mark.parametrize(
    ("function", "words"),
    [(lambda a, z: 0, "fills the parameter 'z'"), (lambda a, b=1: 0, "a property 'c'")],
)
def test_a_schema_that_does_not_fit_the_function(function, words):
    """It is found when the tool is made."""
    schema = {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}}
    with pytest.raises(TypeError, match=words):
        tool("t", schema=schema)(function)


@pytest.mark.parametrize("schema", [{"type": "array"}, {}, {"properties": {}}, [], "{}", {"type": "object", 1j: 2}])
def test_a_schema_that_is_no_object(schema):
    """The CLI would drop all tools of the server in silence: ValueError with the tool's name."""
    with pytest.raises(ValueError, match="tool 'price'"):
        tool("price", schema=schema)(lambda arguments: 0)


CHECKS = [
    ({"type": "integer"}, 3.0, True),
    ({"type": "integer"}, True, False),
    ({"type": ["string", "null"]}, None, True),
    ({"type": ["string", "null"]}, 1, False),
    ({"type": "unknown"}, 1, True),
    ({"enum": [1, "a"]}, True, False),
    ({"const": {"a": [1]}}, {"a": [1.0]}, True),
    ({"const": 1}, 2, False),
    ({"required": ["a"]}, {}, False),
    ({"properties": {"a": {"type": "string"}}}, {"a": 1}, False),
    ({"properties": {"a": False}}, {"a": 1}, False),
    ({"additionalProperties": False, "properties": {"a": {}}}, {"b": 1}, False),
    ({"additionalProperties": {"type": "integer"}}, {"b": "x"}, False),
    ({"additionalProperties": False, "patternProperties": {"^x": {}}}, {"xy": 1}, True),
    ({"patternProperties": {"^x": {"type": "string"}}}, {"xy": 1}, False),
    ({"items": {"type": "integer"}}, [1, "a"], False),
    ({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, ["a", 1], True),
    ({"items": [{"type": "string"}]}, [1], False),
    ({"uniqueItems": True}, [1, 1.0], False),
    ({"uniqueItems": True}, [1, True], True),
    ({"minItems": 2}, [1], False),
    ({"maxLength": 1}, "ab", False),
    ({"minProperties": 1}, {}, False),
    ({"pattern": "^a"}, "b", False),
    ({"pattern": "("}, "b", True),
    ({"minimum": 1}, 0, False),
    ({"exclusiveMaximum": 1}, 1, False),
    ({"multipleOf": 0.1}, 0.3, True),
    ({"multipleOf": 2}, 3, False),
    ({"multipleOf": 0}, 3, True),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 3, False),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 3, False),
    ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, 3, False),
    ({"oneOf": [{"type": "number"}, {"type": "string"}]}, 3, True),
    ({"not": {"type": "string"}}, "a", False),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, 1, False),
    ({"$ref": "#"}, 1, True),
    ({"$ref": "https://example.com/other.json"}, 1, True),
    ({"$ref": "#/missing/x"}, 1, True),
    ({"if": {}, "unknownKeyword": 1, "properties": 3, "required": 3}, {}, True),
]


@pytest.mark.parametrize(("schema", "value", "right"), CHECKS, ids=str)
def test_check(schema, value, right):
    """Each keyword is checked; one that is not known, or of an odd form, passes."""
    assert (problems(schema, value) == []) is right


def test_problems_name_their_place():
    """The model reads where it went wrong, in all places at once."""
    schema = {
        "type": "object",
        "required": ["b"],
        "properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {}},
    }
    assert problems(schema, {"a": [1, "x"]}) == ["b: is missing", 'a[1]: must be an integer, not "x"']


# --- schemas that are none, to the CLI


def whatever(**arguments):
    """Takes all."""


def named(name, hint=int):
    """A function with a parameter of this name."""
    scope: dict[str, Any] = {}
    exec(f"def function({name}): pass", scope)
    scope["function"].__annotations__ = {name: hint}
    return scope["function"]


@pytest.mark.parametrize("name", OFFERED)
def test_schema_that_the_cli_takes(name):
    """It is taken as it is, however odd."""
    assert tool(schema=OFFERED[name])(whatever).schema == OFFERED[name]


@pytest.mark.parametrize("name", LEFT_OUT)
def test_schema_that_is_none(name):
    """The CLI would leave the tool out, or all tools of the server, and say nothing."""
    with pytest.raises(ValueError, match=r"its schema is none, and the CLI would leave it out and say nothing: \S+ "):
        tool(schema=LEFT_OUT[name])(whatever)


def test_where_a_schema_is_wrong():
    """The way there, and what it may be."""
    items = {"type": "array", "items": [{"type": "integer"}]}
    with pytest.raises(ValueError, match=r": properties\.a\.anyOf\.1\.items must be one schema .* prefixItems$"):
        tool(schema={"type": "object", "properties": {"a": {"anyOf": [True, items]}}})(whatever)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_parameter_that_the_api_refuses(name):
    """The CLI leaves such a tool out."""
    with pytest.raises(ValueError, match=r"with a parameter .* the CLI would leave it out"):
        tool(schema={"type": "object", "properties": {name: {}}})(whatever)


@pytest.mark.parametrize("name", ["größe", "a" * 65])
def test_derived_parameter_that_the_api_refuses(name):
    """Python takes more names."""
    with pytest.raises(ValueError, match=r"with a parameter .* the CLI would leave it out"):
        tool(named(name))


@pytest.mark.parametrize("deep", [False, True])
def test_parameter_whose_name_is_no_text(deep):
    """JSON has no such names: another one would go to the CLI than is looked for in its calls."""
    schema = {"type": "object", "properties": {1: {}}}
    with pytest.raises(ValueError, match="properties has a name that is no text: 1"):
        tool(schema={"type": "object", "properties": {"a": schema}} if deep else schema)(whatever)


def test_such_a_name_in_a_schema_of_another_version():
    """There the CLI looks at nothing else."""
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {1: {}}}
    with pytest.raises(ValueError, match="with a parameter 1 the CLI would leave it out"):
        tool(schema=schema)(whatever)


def test_names_that_the_api_takes():
    """Those of the parameters, and any that are deeper."""
    deeper = {"type": "object", "properties": dict.fromkeys(BAD_NAMES, True)}
    for name in NAMES:
        tool(schema={"type": "object", "properties": {name: deeper}})(whatever)


def test_parameter_that_only_we_fill():
    """The context is no parameter of the tool's."""
    assert tool(named("größe", ToolContext)).schema["properties"] == {}


# --- unions within unions: each part is looked at once


@dataclasses.dataclass
class Num:
    op: Literal["num"]
    value: int


@dataclasses.dataclass
class Add:
    op: Literal["add"]
    left: "Tree"
    right: "Tree"


@dataclasses.dataclass
class Mul:
    op: Literal["mul"]
    left: "Tree"
    right: "Tree"


class Neg(TypedDict):
    op: Literal["neg"]
    left: "Tree"


class Pos(TypedDict):
    op: Literal["pos"]
    left: "Tree"


Tree = Union[Num, Add, Mul, Neg, Pos]  # noqa: UP007


def evaluate(tree: Tree):
    """Takes a tree."""
    return tree


def form(op, **parts):
    properties = {"op": {"const": op}, **parts}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


TREE = {"$ref": "#/$defs/tree"}
FORMS = [
    form("num", value={"type": "integer"}), form("add", left=TREE, right=TREE), form("mul", left=TREE, right=TREE),
    form("neg", left=TREE), form("pos", left=TREE),
]  # fmt: skip
TREES = {
    "derived": lambda: tool(evaluate),
    **{
        word: lambda word=word: tool(
            schema={"type": "object", "properties": {"tree": TREE}, "$defs": {"tree": {word: FORMS}}}
        )(evaluate)
        for word in ("anyOf", "oneOf")
    },
}


def nested(op, depth, leaf=1):
    tree = {"op": "num", "value": leaf}
    for _ in range(depth):
        tree = {"op": op, "left": tree}
        if op in ("add", "mul"):
            tree["right"] = {"op": "num", "value": 2}
    return tree


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("op", ["add", "mul", "neg", "pos"])
@pytest.mark.parametrize("depth", [1, 12, 50])
def test_union_that_holds_itself(kind, op, depth):
    """What a model sends costs what it is long, valid or not; the nearest form says what is wrong."""
    made = TREES[kind]()
    made.arguments({"tree": nested(op, depth)})
    with pytest.raises(Mismatch, match=r"value: must be an integer, not \"x\"") as caught:
        made.arguments({"tree": nested(op, depth, "x")})
    assert len(str(caught.value)) < 1500


def test_long_complaint_of_a_union_is_cut():
    """Each level would quote the one within."""
    forms = [{"type": "object", "required": [f"{letter * 600}"]} for letter in "ab"]
    (text,) = problems({"anyOf": forms}, {})
    assert text.startswith("must fit one of 2 forms: aaa")
    assert text.endswith("...")
    assert len(text) < 1100


def test_long_complaint_of_a_derived_union_is_cut():
    """The same, where each of its members is as near."""
    members = [TypedDict(letter, {letter * 600: int}) for letter in "ab"]
    text = complaint(Union[tuple(members)], {})  # noqa: UP007
    assert text.startswith("value: must be an object (a) or an object (b), not {} (value.aaa")
    assert text.endswith("...)")
    assert len(text) < 1100


def test_nearest_form_is_of_the_right_kind():
    """It has more faults than one that is of another kind altogether, of which that is all there is to say."""
    names = ["a" * 600, "b" * 600]
    schema = {"anyOf": [{"type": "array"}, {"type": "object", "required": names}]}
    assert problems(schema, {}) == [f"{name}: is missing" for name in names]


def test_no_form_is_of_the_right_kind():
    """A long complaint, too, if there are many."""
    forms = [{"const": f"{number:050}"} for number in range(30)]
    assert len(problems({"anyOf": forms}, 1)) == 1


@pytest.mark.parametrize("kind", TREES)
def test_short_complaint_of_a_union_names_all_forms(kind):
    """One that has fewer members, and so fewer faults, is not the only one that would do."""
    with pytest.raises(Mismatch) as caught:
        TREES[kind]().arguments({"tree": {"op": "pow"}})
    assert all(f'op: must be "{op}", not "pow"' in str(caught.value) for op in ("num", "add", "mul", "neg", "pos"))


def test_unions_that_are_members_of_one():
    """What one of them says of a value is not what the other one says."""
    either = Union[Annotated[list[int] | None, "numbers"], Annotated[list[str] | None, "words"]]  # noqa: UP007
    assert converted(either, ["a"]) == ["a"]


class Parts(TypedDict):
    parts: "dict[str, list[int] | Parts]"


def test_two_values_at_places_of_the_same_name():
    """A name may look like the way to another value."""
    value = {"parts": {"x": {"parts": {"y": [1]}}, "x.parts.y": [2]}}
    assert converted(Parts, value) == value
    schema = {"type": ["object", "integer"], "additionalProperties": {"$ref": "#"}}
    assert problems(schema, {"x": {"y": 1}, "x.y": "z"}) == ['x.y: must be an object or an integer, not "z"']


@pytest.mark.parametrize("kind", TREES)
def test_one_value_at_two_places(kind):
    """Whoever calls with the same object twice reads of each place."""
    leaf = {"op": "neg", "left": {"op": "num", "value": "x"}}
    with pytest.raises(Mismatch) as caught:
        TREES[kind]().arguments({"tree": {"op": "add", "left": leaf, "right": leaf}})
    assert all(f"tree.{side}.left.value: must be an integer" in str(caught.value) for side in ("left", "right"))


@pytest.mark.parametrize("around", range(4))
def test_right_value_of_any_depth(around):
    """All forms of a union are told apart to the last level, however deep the union itself stands."""
    schema, value = TREE, nested("neg", 40)
    for _ in range(around):
        schema, value = {"properties": {"a": schema}}, {"a": value}
    assert problems({**schema, "$defs": {"tree": {"oneOf": FORMS}}}, value) == []


def test_given_schema_of_values_that_are_too_deep():
    """What is nested deeper than Python goes is a mismatch, and not passed unseen."""
    with pytest.raises(Mismatch, match="nested too deeply"):
        TREES["oneOf"]().arguments({"tree": nested("neg", 2000)})


def test_what_two_parts_say_of_the_same_is_said_once():
    """Each level would double it."""
    node = {"$ref": "#/$defs/node"}
    parts = [{"properties": {"next": node}}, {"properties": {"next": node, "value": {"type": "integer"}}}]
    value = {"value": "x"}
    for _ in range(20):
        value = {"next": value}
    assert problems({**node, "$defs": {"node": {"allOf": parts}}}, value) == [
        f'{"next." * 20}value: must be an integer, not "x"'
    ]


OPERATORS = {
    name: dataclasses.make_dataclass(name, [("op", Literal[name]), ("left", "Formula"), ("right", "Formula")])
    for name in (f"Operator{number}" for number in range(12))
}
for operator in OPERATORS.values():
    operator.__module__ = __name__  # where its "Formula" is looked up
Formula = Union[(Num, *OPERATORS.values())]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["Operator0", "Operator11"])
def test_many_classes_that_hold_each_other(name):
    """Each is in the schema once, and read once where it stands: not for each way on which one comes to it."""

    @tool
    def f(formula: Formula):
        return formula

    def made(leaf):
        formula = {"op": "num", "value": leaf}
        for _ in range(30):
            formula = {"op": name, "left": formula, "right": {"op": "num", "value": 2}}
        return {"formula": formula}

    assert set(f.schema["$defs"]) == set(OPERATORS)
    assert isinstance(f.arguments(made(1))["formula"], OPERATORS[name])
    with pytest.raises(Mismatch, match=r"value: must be an integer, not \"x\""):
        f.arguments(made("x"))


def test_class_that_holds_itself_is_named_alike_everywhere():
    """It is walked once, and wherever it stands again the complaint is the same."""

    @tool
    def f(a: Node, b: Node):
        return a

    with pytest.raises(Mismatch) as caught:
        f.arguments({"a": 1, "b": 1})
    assert str(caught.value).splitlines() == [f"{name}: must be an object, not 1" for name in "ab"]
    with pytest.raises(Mismatch) as caught:
        f.arguments({})
    assert str(caught.value).splitlines() == [f"{name}: is missing, it must be an object (Node)" for name in "ab"]
