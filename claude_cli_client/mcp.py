"""In-process tools: Python functions that the model calls, behind the face of an MCP server.

    @tool
    def price(sku: Annotated[str, "as printed on the label"], currency: Literal["EUR", "USD"] = "EUR") -> float:
        "What an article costs."
        return shop.price(sku, currency)

    client.run("What does the red one cost?", mcp_servers={"shop": ToolServer([price])})

The model knows it as `mcp__shop__price`; `allowed_tools=["mcp__shop__price"]` lets it run unasked.

Pure: no thread, clock, file or process. `ToolServer.handle` gets a JSON-RPC message of the CLI and returns the
answer; it runs the user's function on the caller's thread. Which thread that is, that calls of tools
which may not run at the same time do not, and who hears of a cancellation is the session's business.

A server has no state that changes, so any number of sessions and threads share one without a lock.

What the CLI does, found by running it, and why it matters here:

* One entry of `tools/list` that it cannot read takes away *all* tools of the server, which still counts as
  connected. A name that another one already has after its mapping, or that is longer than 128
  characters as a whole, is left out. All of it in silence: so these are errors before the start.
* It does not check arguments. We do, and the model reads what is wrong, and can correct it.
* An answer with a wrong `id`, or none, blocks the turn: so `handle` answers whatever comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ContextManager, Final  # noqa: UP035 - contextlib is not imported here

from . import _log
from ._checks import repaired
from ._jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    Json,
    Refused,
    call_id,
    cancelled_id,
    error_reply,
    parts,
    tool_of,
)
from ._objects import mcp_server
from ._resources import MAX_URI, Prompt, Resource
from ._shapes import Mismatch
from ._tool_result import ToolResult, Unsendable, failure, wire
from ._tools import Cancelled, Tool, ToolContext, tool

__all__ = [
    "Cancelled",
    "Prompt",
    "Resource",
    "Tool",
    "ToolContext",
    "ToolResult",
    "ToolServer",
    "call_id",
    "cancelled_id",
    "check_servers",
    "error_reply",
    "failed_reply",
    "mapped_name",
    "tool",
    "tool_of",
    "wire_servers",
]

# Revisions of MCP that differ in nothing we use. To any other we answer the last, as the protocol says.
PROTOCOL_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

_MAX_NAME: Final = 128  # a tool whose whole name is longer is left out by the CLI

Wrapper = Callable[[], ContextManager[Any]]


_SUPPRESSED: Final = object()


class _Call:
    """What `handle` was given beside the message."""

    def __init__(
        self,
        server_name: str,
        session_id: str,
        send: Callable[[Json], object] | None,
        cancelled: Cancelled | None,
        wrapper: Wrapper | None,
    ) -> None:
        self.server_name, self.session_id, self.send = server_name, session_id, send
        self.cancelled, self.wrapper = cancelled, wrapper

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The user's function, inside of the user's wrapper, which so sees what it raises."""
        if self.wrapper is None:
            return function(*arguments)
        result: Any = _SUPPRESSED
        with self.wrapper():
            result = function(*arguments)
        if result is _SUPPRESSED:
            raise RuntimeError("the callback_wrapper suppressed what the function raised")
        return result


class ToolServer:
    """Tools, and what goes with them, under one name: a value for `mcp_servers`.

    `tools`: what `@tool` made; plain functions are made tools.
    `name`: what people see, by default the key in `mcp_servers`, which is what the model's names of the tools have.
    `instructions`: a text for the model on how the tools are to be used.
    `resources`, `prompts`: a `Resource` or `Prompt` each.

    Never changes once it is made. Any number of sessions may use it at once; its functions are called on
    several threads then. Raises ValueError for names that the CLI would take for the same.
    """

    def __init__(
        self,
        tools: Sequence[Tool[..., Any] | Callable[..., Any]] = (),
        name: str | None = None,
        *,
        version: str = "1.0.0",
        instructions: str | None = None,
        resources: Sequence[Resource] = (),
        prompts: Sequence[Prompt] = (),
    ) -> None:
        for option, value in (("name", name), ("version", version), ("instructions", instructions)):
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise ValueError(f"{option} must be a text that is not empty")
        self.name, self.version, self.instructions = name, version, instructions
        made: list[Any] = [item if isinstance(item, Tool) else tool(item) for item in _list_of(tools, "tools")]
        for item in made:
            item.check_bound()
        _check_names([item.name for item in made], "tool")
        self.tools: Mapping[str, Tool[..., Any]] = {item.name: item for item in made}
        self.resources = _all(Resource, resources, "resources")
        if len({one.uri for one in self.resources}) != len(self.resources):
            raise ValueError("two of the resources have the same uri")
        given = _all(Prompt, prompts, "prompts")
        _check_names([prompt.name for prompt in given], "prompt")
        self.prompts = {prompt.name: prompt for prompt in given}
        self._lists: Json = {
            "tools/list": {"tools": [item.listed() for item in made]},
            "resources/list": {"resources": [one.listed() for one in self.resources if not one.variables]},
            "resources/templates/list": {
                "resourceTemplates": [one.listed() for one in self.resources if one.variables]
            },
            "prompts/list": {"prompts": [one.listed() for one in self.prompts.values()]},
        }

    def __repr__(self) -> str:
        return f"<ToolServer {self.name or ''}: {', '.join(self.tools) or 'no tools'}>"

    def may_run_parallel(self, tool_name: str) -> bool:
        """Whether calls of this tool may overlap with others; an unknown one only gets an error."""
        found = self.tools.get(tool_name)
        return found is None or found.parallel

    def runs_user_code(self, message: Any) -> bool:
        """Whether `handle` calls a function of the user for this message; all others it answers at once."""
        return isinstance(message, dict) and message.get("method") in ("tools/call", "resources/read", "prompts/get")

    def handle(
        self,
        message: Any,
        *,
        server_name: str = "",
        session_id: str = "",
        send: Callable[[Json], object] | None = None,
        cancelled: Cancelled | None = None,
        wrapper: Wrapper | None = None,
    ) -> Json | None:
        """The answer to one JSON-RPC message; None to a notification or an answer, which need none.

        Blocks while the user's function runs. Raises nothing for what the message or the function does, except
        what is no `Exception` (SystemExit, KeyboardInterrupt): then the caller has to answer, see `failed_reply`.

        `server_name`: the key in `mcp_servers`. `send` takes JSON-RPC messages for the CLI (progress), on the thread
        of the function. `cancelled` is set when the call is cancelled. `wrapper` is entered around the function.
        """
        try:
            id, method, params = parts(message)
        except Refused as error:
            return error_reply(message, error.code, str(error))
        if method is None or id is None:
            return None
        call = _Call(server_name, session_id, send, cancelled, wrapper)
        try:
            result = self._lists.get(method)
            if result is None:
                answer = _METHODS.get(method)
                if answer is None:
                    raise Refused(METHOD_NOT_FOUND, f"method not found: {method[:100]}")
                result = answer(self, params, call)
        except Refused as error:
            return error_reply(message, error.code, str(error))
        return {"jsonrpc": "2.0", "id": id, "result": result}

    # --- methods

    def _initialize(self, params: Json, call: _Call) -> Json:
        asked = params.get("protocolVersion")
        if not isinstance(asked, str):
            raise Refused(INVALID_PARAMS, "initialize needs a protocolVersion")
        capabilities: Json = {"tools": {}}
        if self.resources:
            capabilities["resources"] = {}
        if self.prompts:
            capabilities["prompts"] = {}
        answer: Json = {
            "protocolVersion": asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[-1],
            "capabilities": capabilities,
            "serverInfo": {"name": self.name or call.server_name or "tools", "version": self.version},
        }
        if self.instructions is not None:
            answer["instructions"] = self.instructions
        return answer

    def _ping(self, params: Json, call: _Call) -> Json:
        return {}

    def _call_tool(self, params: Json, call: _Call) -> Json:
        name, values, meta = params.get("name"), params.get("arguments"), params.get("_meta")
        found = self.tools.get(name) if isinstance(name, str) else None
        if found is None:
            raise Refused(INVALID_PARAMS, f"unknown tool: {str(name)[:100]}; there are: {', '.join(self.tools)}")
        if values is not None and not isinstance(values, dict):
            raise Refused(INVALID_PARAMS, f"the arguments of {name} must be an object")
        meta = meta if isinstance(meta, dict) else {}
        context = ToolContext(
            tool_use_id=str(meta.get("claudecode/toolUseId") or ""),
            session_id=call.session_id,
            progress_token=call_id({"method": "", "id": meta.get("progressToken")}),
            send=call.send,
            cancelled=call.cancelled,
        )
        try:
            return _run(found, values or {}, context, call)
        finally:
            context._over()

    def _read_resource(self, params: Json, call: _Call) -> Json:
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise Refused(INVALID_PARAMS, "resources/read needs a uri")
        if len(uri) > MAX_URI:
            raise Refused(INVALID_PARAMS, f"a uri may have {MAX_URI:,} characters, and this one has {len(uri):,}")
        for resource in sorted(self.resources, key=lambda one: bool(one.variables)):
            variables = resource.match(uri) if resource.variables else ({} if resource.uri == uri else None)
            if variables is not None:
                return {"contents": [_guarded(call, f"resource {resource.uri!r}", resource.read, uri, variables)]}
        raise Refused(RESOURCE_NOT_FOUND, f"resource not found: {uri[:200]}")

    def _get_prompt(self, params: Json, call: _Call) -> Json:
        name = params.get("name")
        prompt = self.prompts.get(name) if isinstance(name, str) else None
        if prompt is None:
            raise Refused(INVALID_PARAMS, f"unknown prompt: {str(name)[:100]}")
        found: Json = _guarded(call, f"prompt {prompt.name!r}", prompt.get, params.get("arguments"))
        return found


_METHODS: Final[dict[str, Callable[[ToolServer, Json, _Call], Json]]] = {
    "initialize": ToolServer._initialize,
    "ping": ToolServer._ping,
    "tools/call": ToolServer._call_tool,
    "resources/read": ToolServer._read_resource,
    "prompts/get": ToolServer._get_prompt,
}


# --- one call


def _run(found: Tool[..., Any], values: Json, context: ToolContext, call: _Call) -> Json:
    """The result of a call. What goes wrong is in it, so that the model can do better."""
    try:
        arguments = found.arguments(values)
    except Mismatch as error:
        return failure(f"{found.name} was not called, its arguments are not right:\n{error}")
    try:
        value = call.run(found.run, arguments, context)
    except Exception as error:  # noqa: BLE001 - whatever it is, the model has to know
        _log.warning("tool %r failed: %s", found.name, _log.place_of(error))
        return failure(_words_of(error))
    try:
        return wire(value, found.max_chars)
    except Unsendable as error:
        _log.warning("what tool %r returned cannot be sent: %s", found.name, error)
        return failure(f"{found.name} ran, but what it returned cannot be sent: {error}")
    except Exception as error:  # noqa: BLE001 - a Mapping of the user's, or an attribute of his dataclass
        _log.warning("what tool %r returned cannot be read: %s", found.name, _log.place_of(error))
        return failure(f"{found.name} ran, but what it returned cannot be read: {_words_of(error)}")


def _guarded(call: _Call, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """For what has no result that could hold an error."""
    try:
        return call.run(function, *arguments)
    except Mismatch as error:
        raise Refused(INVALID_PARAMS, str(error)) from error
    except Exception as error:
        _log.warning("%s failed: %s", what, _log.place_of(error))
        raise Refused(INTERNAL_ERROR, _words_of(error)) from error


def _words_of(error: BaseException) -> str:
    """Type and message: what the model may know. A traceback tells it of files and lines that it has no use for."""
    name = type(error).__name__
    try:
        text = repaired(str(error))
    except Exception:  # noqa: BLE001 - a __str__ that fails itself
        text = ""
    return f"{name}: {text}" if text else name


def failed_reply(message: Any, text: str) -> Json:
    """The answer to a call that came to no result: the model reads the text as the tool's error."""
    if not tool_of(message):
        return error_reply(message, INTERNAL_ERROR, text)
    return {"jsonrpc": "2.0", "id": call_id(message), "result": failure(text)}


# --- names


def mapped_name(name: str) -> str:
    """A name as the CLI writes it for the model. It counts in UTF-16, so 😀 becomes two underscores."""
    return re.sub(r"[^a-zA-Z0-9_-]", lambda found: "_" * (1 + (found.group() > "\uffff")), name)


def _check_names(names: Iterable[str], what: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(mapped_name(name))
        if other == name:
            raise ValueError(f"two {what}s have the name {name!r}")
        if other is not None:
            raise ValueError(
                f"the {what}s {other!r} and {name!r} are both {mapped_name(name)!r} to the CLI, which drops one of them"
            )
        seen[mapped_name(name)] = name


def check_servers(mcp_servers: Mapping[str, ToolServer | Mapping[str, Any]]) -> None:
    """Raises ValueError for what the CLI would leave out: names that collide, are too long or its own, bad entries."""
    if not isinstance(mcp_servers, Mapping):
        raise ValueError(f"mcp_servers must be a dict of servers by name, not a {type(mcp_servers).__name__}")
    for name, server in mcp_servers.items():
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"mcp_servers: the name of a server must be a text that is not empty, not {name!r}")
        mcp_server(f"mcp_servers[{name!r}]", server)
    _check_names(mcp_servers, "server")
    whole: dict[str, str] = {}
    for name, server in mcp_servers.items():
        for own in server.tools if isinstance(server, ToolServer) else ():
            full = f"mcp__{mapped_name(name)}__{mapped_name(own)}"
            place = f"{own!r} of server {name!r}"
            if full in whole:
                raise ValueError(f"the tools {whole[full]} and {place} are both {full!r} to the CLI")
            if len(full) > _MAX_NAME:
                raise ValueError(
                    f"the tool {place} is {full!r} to the model, {len(full)} characters; above {_MAX_NAME} "
                    "the CLI leaves it out"
                )
            whole[full] = place


def wire_servers(mcp_servers: Mapping[str, ToolServer | Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The servers as `--mcp-config` has them inside of `mcpServers`."""
    return {
        name: {"type": "sdk", "name": name} if isinstance(server, ToolServer) else server
        for name, server in mcp_servers.items()
    }


def _list_of(values: Any, name: str) -> list[Any]:
    if isinstance(values, (str, bytes, Mapping, Tool)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list, not a {type(values).__name__}")
    return list(values)


def _all(kind: type[Any], values: Any, name: str) -> list[Any]:
    found = _list_of(values, name)
    for value in found:
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a list of {kind.__name__}, not of a {type(value).__name__}")
    return found
