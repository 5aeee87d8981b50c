"""JSON-RPC, as far as MCP needs it: the parts of a message, and errors. Pure; raises nothing but `Refused`."""

from __future__ import annotations

from typing import Any, Final

from ._checks import repaired

Json = dict[str, Any]
Id = str | int | float

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002


class Refused(Exception):
    """Becomes a JSON-RPC error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def parts(message: Any) -> tuple[Any, str | None, Json]:
    """Id, method and parameters. The method is None for an answer, the id for a notification."""
    if not isinstance(message, dict):
        raise Refused(INVALID_REQUEST, "not a JSON-RPC message: it must be an object")
    if message.get("jsonrpc", "2.0") != "2.0":
        raise Refused(INVALID_REQUEST, "not a JSON-RPC 2.0 message")
    if "method" not in message and ("result" in message or "error" in message):
        return None, None, {}
    method = message.get("method")
    if not isinstance(method, str):
        raise Refused(INVALID_REQUEST, "a message needs a method")
    if "id" not in message:
        return None, method, {}
    if call_id(message) is None:
        raise Refused(INVALID_REQUEST, "the id of a request must be a string or a number")
    params = message.get("params")
    if params is None:
        return message["id"], method, {}
    if not isinstance(params, dict):
        raise Refused(INVALID_PARAMS, "params must be an object")
    return message["id"], method, params


def call_id(message: Any) -> Id | None:
    """The id of a request; None of anything else. 0 is an id, and the CLI's first."""
    id = message.get("id") if isinstance(message, dict) and "method" in message else None
    return id if isinstance(id, (str, int, float)) and not isinstance(id, bool) else None


def cancelled_id(message: Any) -> Id | None:
    """The id of the request that this message cancels; None if it is no such message."""
    if not isinstance(message, dict) or message.get("method") != "notifications/cancelled":
        return None
    params = message.get("params")
    return call_id({"method": "", "id": params.get("requestId")}) if isinstance(params, dict) else None


def tool_of(message: Any) -> str:
    """The tool that this message calls, by the name it has on its server; "" if it calls none."""
    params = message.get("params") if isinstance(message, dict) and message.get("method") == "tools/call" else None
    name = params.get("name") if isinstance(params, dict) else None
    return name if isinstance(name, str) else ""


def error_reply(message: Any, code: int, text: str) -> Json:
    """A JSON-RPC error for this message, whatever it is."""
    id = message.get("id") if isinstance(message, dict) else None
    id = id if isinstance(id, (str, int, float)) and not isinstance(id, bool) else None
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": repaired(text)}}
