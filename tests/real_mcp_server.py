"""A tiny MCP server on stdin and stdout, for the tests with the real CLI. Not a test itself.

Tools: `echo` gives its text back; `approve` answers permission questions: it allows commands that
hold the word "please" and denies all others; `ask` asks the user for a colour.
"""

from __future__ import annotations

import json
import sys
from typing import Any

TOOLS = [
    {
        "name": "echo",
        "description": "Gives the text back",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
    {
        "name": "approve",
        "description": "Decides about a permission",
        "inputSchema": {"type": "object", "properties": {"tool_name": {"type": "string"}}},
    },
    {"name": "ask", "description": "Asks for a colour", "inputSchema": {"type": "object", "properties": {}}},
]
COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


def call(name: str, arguments: dict[str, Any]) -> str:
    if name == "echo":
        return f"echo: {arguments['text']}"
    if name == "ask":
        return json.dumps(ask("elicitation/create", {"message": "Which colour?", "requestedSchema": COLOUR}))
    tool_input = arguments.get("input") or {}
    if "please" in tool_input.get("command", ""):
        return json.dumps({"behavior": "allow", "updatedInput": tool_input})
    return json.dumps({"behavior": "deny", "message": "say please"})


def ask(method: str, params: dict[str, Any]) -> Any:
    """A request to the client; what else comes before the answer is passed over."""
    print(json.dumps({"jsonrpc": "2.0", "id": "mine", "method": method, "params": params}), flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == "mine":
            return message.get("result")
    return None


def reply(request: dict[str, Any]) -> dict[str, Any]:
    method, params = request["method"], request.get("params") or {}
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tiny", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        text = call(params["name"], params.get("arguments") or {})
        return {"content": [{"type": "text", "text": text}]}
    return {}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": reply(request)}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
