"""What a tool server offers beside tools: resources that the model can read, and prompts.

Pure. The CLI has tools of its own for resources (`ListMcpResourcesTool`, `ReadMcpResourceTool`), which exist
once a server says that it has some. It asks neither for the list of templates nor for prompts, though
it reads a resource whose address fits a template.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from typing import Any, Final

from ._schema import Deriver
from ._shapes import MISSING, Field, object_reader
from ._signature import code_of, parameters_of, resolved_hints
from ._tool_result import MAX_CHARS, Unsendable, plain, resource_contents, to_json, wire

MAX_URI: Final = 16_384
_VARIABLE: Final = re.compile(r"\{([+]?)(\w+)(\*?)\}")


class Resource:
    """Something to read, by its address.

        Resource("shop://terms", TERMS, name="Terms of sale")
        Resource("shop://orders/{number}", order_as_json)

    `content`: a str, bytes, or a function that returns one, or what becomes JSON (dict, list, dataclass).
    An address with `{variables}` is a template; the function gets each as a str, as it stands in the address.
    A variable takes no `/`, unless it is written `{+path}`. Where an address can be cut in several ways, each
    variable has as much as it can, the first one first.
    """

    def __init__(
        self,
        uri: str,
        content: str | bytes | Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        mime: str | None = None,
    ) -> None:
        if not isinstance(uri, str) or not uri.strip():
            raise ValueError("the uri of a resource must be a text that is not empty")
        self.uri, self.name, self.description, self.mime = uri, name or uri, description, mime
        self.content = content
        self._first, *parts = _VARIABLE.split(uri)
        # Each variable: its name, whether it takes a `/`, and the text behind it.
        variables = zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=True)
        self._parts = [(name, bool(before or sign), behind) for before, name, sign, behind in variables]
        self.variables = [name for name, _, _ in self._parts]
        where = f"resource {uri[:200]!r}"
        if len(uri) > MAX_URI:
            raise ValueError(f"{where}: its uri has {len(uri):,} characters, and may have {MAX_URI:,}")
        if not all(map(str.isidentifier, self.variables)) or len({*self.variables}) < len(self.variables):
            raise ValueError(f"{where}: its variables must be names that differ, not {self.variables}")
        if callable(content):
            self._check_function(content, where)
        elif not isinstance(content, (str, bytes)):
            raise TypeError(f"{where}: its content must be a str, bytes or a function, not a {type(content).__name__}")
        elif self.variables:
            raise TypeError(f"{where} has variables, so its content must be a function of them")

    def _check_function(self, function: Callable[..., Any], where: str) -> None:
        inner, bound = code_of(function, where)
        taken = parameters_of(inner, bound, where)
        needed = {parameter.name for parameter in taken if parameter.default is MISSING and not parameter.is_rest}
        names = {parameter.name for parameter in taken}
        takes_rest = any(parameter.is_rest for parameter in taken)
        if needed - set(self.variables) or (set(self.variables) - names and not takes_rest):
            raise TypeError(f"{where}: its function must take the variables of the address: {self.variables or 'none'}")
        if any(parameter.by_position for parameter in taken):
            raise TypeError(f"{where}: its function must take the variables by name")

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables of an address of this resource; None if it is another's."""
        if not uri.startswith(self._first):
            return None
        values, at = {}, len(self._first)
        for (name, _, behind), ends in zip(self._parts, self._ends(uri), strict=True):
            if at not in ends:
                return None
            values[name] = uri[at : ends[at]]
            at = ends[at] + len(behind)
        return values if at == len(uri) else None

    def _ends(self, uri: str) -> list[dict[int, int]]:
        """For each variable: where it can begin so that all from there on fits, with the last place where it can end.

        From the end of the address on, once over it for each variable. No regular expression: it would try
        all ways to cut an address, which is the model's, and `re` lets no other thread run meanwhile.
        """
        found: list[dict[int, int]] = []
        rest: Container[int] = {len(uri)}  # where what is behind a variable and its text can begin
        for _, takes_slash, behind in reversed(self._parts):
            ends: dict[int, int] = {}
            last = 0
            for begin in reversed(range(len(uri))):
                end = begin + 1
                if not last and end + len(behind) in rest and uri.startswith(behind, end):
                    last = end
                if uri[begin] == "/" and not takes_slash:
                    last = 0
                elif last:
                    ends[begin] = last
            found, rest = [ends, *found], ends
        return found

    def read(self, uri: str, variables: dict[str, str]) -> dict[str, Any]:
        """The contents under an address that matched. Raises what the function raises, or Unsendable."""
        value = self.content(**variables) if callable(self.content) else self.content
        if isinstance(value, (bytes, bytearray)):
            return resource_contents(uri, None, bytes(value), self.mime)
        mime = self.mime
        if not isinstance(value, str):
            value, mime = to_json(plain(value)), mime or "application/json"
        text = wire(value, MAX_CHARS)["content"][0]["text"]  # repaired, and cut
        return resource_contents(uri, text, None, mime)

    def listed(self) -> dict[str, Any]:
        """The entry in the answer to `resources/list`, or of a template to `resources/templates/list`."""
        entry = {"uriTemplate" if self.variables else "uri": self.uri, "name": self.name}
        more = {"description": self.description, "mimeType": self.mime}
        return {**entry, **{key: value for key, value in more.items() if value is not None}}


class Prompt:
    """A prompt that the server keeps: a text, or a function that returns one.

    The function's parameters are the prompt's arguments, all texts (str, Literal, or an Enum of them). It
    returns a str, or a list of messages `{"role": "user", "content": "..."}`.
    """

    def __init__(
        self,
        name: str,
        content: str | Callable[..., str | Sequence[Any]],
        *,
        description: str | None = None,
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise ValueError("the name of a prompt must be a text that is not empty")
        self.name, self.content, self.description = name, content, description
        where = f"prompt {name!r}"
        if not isinstance(content, str) and not callable(content):
            raise TypeError(f"{where}: its content must be a str or a function, not a {type(content).__name__}")
        self._fields = _text_fields(content, where) if callable(content) else []
        self._read = object_reader(self._fields)

    def get(self, arguments: Any) -> dict[str, Any]:
        """The answer to `prompts/get`. Raises Mismatch, Unsendable, or what the function raises."""
        values = self._read({} if arguments is None else arguments, "", {})
        made = self.content(**values) if callable(self.content) else self.content
        if isinstance(made, str):
            made = [{"role": "user", "content": made}]
        messages = plain(made)
        if not isinstance(messages, list) or not all(map(_is_message, messages)):
            raise Unsendable("a prompt must be a text, or a list of messages with role and content")
        for message in messages:
            if isinstance(message["content"], str):
                message["content"] = {"type": "text", "text": message["content"]}
        described = {} if self.description is None else {"description": self.description}
        return {**described, "messages": messages}

    def listed(self) -> dict[str, Any]:
        """The entry in the answer to `prompts/list`."""
        arguments = []
        for field in self._fields:
            argument = {"name": field.name, "required": field.required}
            if "description" in field.shape.schema:
                argument["description"] = field.shape.schema["description"]
            arguments.append(argument)
        entry = {"name": self.name, "description": self.description, "arguments": arguments}
        return {key: value for key, value in entry.items() if value}


def _is_message(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and message.get("role") in ("user", "assistant")
        and isinstance(message.get("content"), (str, dict))
    )


def _text_fields(function: Any, where: str) -> list[Field]:
    inner, bound = code_of(function, where)
    hints, deriver = resolved_hints(inner, where), Deriver()
    fields = []
    for parameter in parameters_of(inner, bound, where):
        place = f"{where}, parameter {parameter.name!r}"
        if parameter.by_position or parameter.is_rest:
            raise TypeError(f"{place}: the arguments of a prompt are given by their names")
        shape = deriver.shape(hints.get(parameter.name, str), place)
        if shape.schema.get("type") != "string" and not _holds_text(shape.schema):
            raise TypeError(f"{place}: the arguments of a prompt are texts")
        fields.append(Field(parameter.name, shape, required=parameter.default is MISSING))
    return fields


def _holds_text(schema: dict[str, Any]) -> bool:
    return any(part.get("type") == "string" for part in schema.get("anyOf", ()))
