"""`@tool`: a Python function that the model can call. `Tool`, and the `ToolContext` of one call.

Pure: a call runs on the thread of whoever calls `Tool.run`. What a tool says to the CLI while it
runs, and how it hears that its call was cancelled, is handed in by the session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from ._checks import copied, repaired, whole
from ._log import bad_type
from ._objects import to_json
from ._schema_check import problems
from ._schema_rules import check_names, fault
from ._shapes import Schema
from ._signature import code_of, derived, given, parameters_of, resolved_hints
from ._tool_result import DEFAULT_MAX_CHARS, MAX_CHARS, MIN_CHARS

P = ParamSpec("P")
R = TypeVar("R")

_max_chars = whole(MIN_CHARS, MAX_CHARS)

_MAX_CHARS_META: Final = "anthropic/maxResultSizeChars"


class Cancelled(Protocol):
    """What of a `threading.Event` a context uses."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class ToolContext:
    """One call of a tool: for functions that have a parameter with this annotation.

        @tool
        def index(path: str, context: ToolContext) -> str:
            for done, file in enumerate(files):
                if context.cancelled:
                    return "stopped"
                context.progress(done / len(files), file)

    Without arguments it is a context that nobody cancels and nobody watches, for tests of the function.
    """

    def __init__(
        self,
        *,
        tool_use_id: str = "",
        session_id: str = "",
        progress_token: str | int | float | None = None,
        send: Callable[[dict[str, Any]], object] | None = None,
        cancelled: Cancelled | None = None,
    ) -> None:
        self.tool_use_id = tool_use_id  # of the model's call, as in `Event.tool_id`
        self.session_id = session_id
        self._token = progress_token
        self._send = send
        self._cancelled = cancelled
        self._last: tuple[float, str] | None = None

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: the turn was interrupted, or the session is over."""
        return self._cancelled is not None and self._cancelled.is_set()

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds until the call is cancelled; whether it is. To be used in place of `sleep`.

        Returns at once where nobody can cancel.
        """
        return self._cancelled is not None and self._cancelled.wait(timeout)

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far it is, from 0 to 1. Cheap, and nothing happens where nobody listens or the call is over."""
        if not isinstance(fraction, (int, float)) or fraction != fraction:
            raise bad_type("progress takes a number from 0 to 1, and a message")
        news = (round(float(min(max(fraction, 0), 1)), 3), str(message))
        send, token = self._send, self._token
        if send is None or token is None or news == self._last:
            return
        self._last = news
        params: dict[str, Any] = {"progressToken": token, "progress": news[0], "total": 1}
        if message:
            params["message"] = news[1]
        send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    def _over(self) -> None:
        """The call has its result: what a thread of the function still says is for nobody."""
        self._send = None


class Tool(Generic[P, R]):
    """A function that the model can call; made by `@tool`. Calling it calls the function, as it is.

    In a class it is a method: give the server the tool of an instance, `ToolServer([shop.price])`.
    """

    def __init__(self, function: Callable[P, R], name: str | None, description: str | None, options: Options) -> None:
        self.function = function
        self.name = _name(function, name)
        where = f"tool {self.name!r}"
        inner, bound = code_of(function, where)
        parameters = parameters_of(inner, bound, where)
        hints = resolved_hints(inner, where)
        self._unbound = not bound and bool(parameters) and parameters[0].name == "self" and "self" not in hints
        if self._unbound:
            parameters = parameters[1:]
        contexts = [parameter.name for parameter in parameters if _is_context(hints.get(parameter.name))]
        if len(contexts) > 1:
            raise TypeError(f"{where} has more than one ToolContext")
        context = contexts[0] if contexts else ""
        self.options = options
        if options.schema is None:
            self._call = derived(parameters, hints, context, where)
        else:
            self._call = given(parameters, _checked_schema(options.schema, where), problems, context, where)
        self.description = _description(function, description, where)
        self.read_only = options.read_only
        self.parallel = options.read_only if options.parallel is None else options.parallel
        self.max_chars = MAX_CHARS if options.max_chars is None else options.max_chars
        for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
            if hasattr(function, attribute):
                setattr(self, attribute, getattr(function, attribute))
        self.__wrapped__ = function

    @property
    def schema(self) -> Schema:
        """The JSON schema of the arguments."""
        return self._call.schema

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Tool[..., R]:
        if instance is None or not self._unbound:
            return self
        bound: Tool[..., R] = object.__new__(Tool)
        bound.__dict__.update(self.__dict__, _unbound=False)
        bound.function = bound.__wrapped__ = self.function.__get__(instance, owner)
        return bound

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def check_bound(self) -> None:
        """Raises ValueError for a method without its instance."""
        if self._unbound:
            raise ValueError(f"tool {self.name!r} is a method: give an instance's, as in ToolServer([shop.price])")

    def arguments(self, values: Any) -> dict[str, Any]:
        """The function's arguments by name, checked and converted. Raises Mismatch, for the model to read."""
        return self._call.read(values)

    def run(self, arguments: dict[str, Any], context: ToolContext) -> R:
        """Call the function with what `arguments()` returned. Raises what it raises."""
        call, function = self._call, cast(Any, self.function)
        named = {**arguments, call.context: context} if call.context else dict(arguments)
        # A parameter that has no name for the caller, and is not given, stands there with its default.
        first = [named.pop(parameter.name, parameter.default) for parameter in call.positional]
        return cast(R, function(*first, **named))

    def listed(self) -> dict[str, Any]:
        """The entry in the answer to `tools/list`."""
        options = self.options
        hints = {
            "title": options.title,
            "readOnlyHint": options.read_only or None,
            "destructiveHint": options.destructive,
            "idempotentHint": options.idempotent,
            "openWorldHint": options.open_world,
        }
        entry: dict[str, Any] = {"name": self.name, "description": self.description, "inputSchema": self.schema}
        annotations = {key: value for key, value in hints.items() if value is not None}
        if annotations:
            entry["annotations"] = annotations
        if options.title is not None:
            entry["title"] = options.title
        if options.max_chars is not None:
            entry["_meta"] = {_MAX_CHARS_META: options.max_chars}
        return entry


class Options:
    """What `tool()` was told, checked."""

    def __init__(
        self,
        schema: Mapping[str, Any] | None,
        read_only: bool,
        destructive: bool | None,
        idempotent: bool | None,
        open_world: bool | None,
        title: str | None,
        parallel: bool | None,
        max_chars: int | None,
    ) -> None:
        flags = {"destructive": destructive, "idempotent": idempotent, "open_world": open_world, "parallel": parallel}
        for name, value in {**flags, "read_only": read_only}.items():
            if not isinstance(value, bool) and (value is not None or name == "read_only"):
                raise TypeError(f"{name} must be True or False, not a {type(value).__name__}")
        if read_only and destructive:
            raise ValueError("a tool cannot be read_only and destructive")
        if title is not None and not isinstance(title, str):
            raise TypeError(f"title must be a str, not a {type(title).__name__}")
        if max_chars is not None:
            _max_chars("max_chars", max_chars)
        self.schema, self.read_only, self.destructive, self.idempotent = schema, read_only, destructive, idempotent
        self.open_world, self.title, self.parallel, self.max_chars = open_world, title, parallel, max_chars


@overload
def tool(name: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    name: str | None = None,
    description: str | None = None,
    *,
    schema: Mapping[str, Any] | None = None,
    read_only: bool = False,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    title: str | None = None,
    parallel: bool | None = None,
    max_chars: int | None = DEFAULT_MAX_CHARS,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    name: Any = None,
    description: str | None = None,
    *,
    schema: Mapping[str, Any] | None = None,
    read_only: bool = False,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    title: str | None = None,
    parallel: bool | None = None,
    max_chars: int | None = DEFAULT_MAX_CHARS,
) -> Any:
    """Make a tool of a function: `@tool`, or `@tool("name", "what it is for", read_only=True)`.

    `name`, `description`: those of the function, and the first paragraph of its docstring, by default.
    `schema`: the JSON schema of the arguments, taken as it is; by default made from the annotations. The
        arguments are checked against it. The function gets them by name, or as one dict if its only
        parameter has a name that is none of the properties. A `pattern` in it is matched by Python's `re`, with
        a text that the model chooses: one like `(a+)+$` may take for ever, and holds up every thread meanwhile.
    `read_only`: it changes nothing. The CLI calls such tools at the same time, and so do we.
    `destructive`, `idempotent`, `open_world`, `title`: hints for the CLI and whoever approves calls.
    `parallel`: whether it may run in several threads at once; by default only if it is `read_only`.
    `max_chars`: longer texts are cut, with a mark that says so; 1,000 to 500,000. None leaves it to the CLI, which
        puts a result of more than 50,000 into a file and tells the model where.

    There is no time limit here, since a thread cannot be stopped: see `ToolContext.cancelled`.
    Raises TypeError for a function that cannot be a tool, ValueError for a schema that is not of an object.
    """
    options = Options(schema, read_only, destructive, idempotent, open_world, title, parallel, max_chars)
    if name is not None and not isinstance(name, str):
        if not callable(name):
            raise TypeError(f"the name of a tool must be a str, not a {type(name).__name__}")
        return Tool(name, None, description, options)

    def decorate(function: Callable[P, R]) -> Tool[P, R]:
        return Tool(function, name, description, options)

    return decorate


def _name(function: Any, name: str | None) -> str:
    if isinstance(function, Tool):
        raise TypeError(f"{function.name!r} is a tool already")
    found: str = getattr(function, "__name__", None) or type(function).__name__ if name is None else name
    if found == "<lambda>":
        raise ValueError("a lambda has no name: tool('name')(lambda ...)")
    if not found.strip():
        raise ValueError("the name of a tool must not be empty")
    return found


def _description(function: Any, given: str | None, where: str) -> str:
    """The first paragraph of the docstring: one line as a rule, but a sentence may go over two."""
    if given is not None:
        if not isinstance(given, str):
            raise TypeError(f"{where}: the description must be a str, not a {type(given).__name__}")
        return repaired(given)
    text = getattr(function, "__doc__", None) or ""
    first = text.strip().partition("\n\n")[0]
    return repaired(" ".join(line.strip() for line in first.splitlines() if line.strip()))


def _is_context(hint: Any) -> bool:
    return hint is ToolContext or ToolContext in getattr(hint, "__args__", ())


def _checked_schema(schema: Any, where: str) -> Schema:
    if not isinstance(schema, Mapping):
        raise ValueError(
            f"{where}: schema must be a JSON schema as a dict, not a {type(schema).__name__} "
            "(of a pydantic model: Model.model_json_schema())"
        )
    if schema.get("type") != "object":
        raise ValueError(
            f"{where}: its schema must have 'type': 'object', or the CLI leaves out all tools of the server"
        )
    to_json(f"{where}: its schema", schema)
    made: Schema = copied(schema)
    if wrong := fault(made):
        raise ValueError(f"{where}: its schema is none, and the CLI would leave it out and say nothing: {wrong}")
    properties = made.get("properties", {})
    if not isinstance(properties, dict):
        raise ValueError(f"{where}: the 'properties' of its schema must be a dict")
    check_names(properties, where)
    return made
