"""The simulated CLI's side of the control protocol: it asks the host, and the host asks it.

Runs inside the stand-in process, like `_fake_simulation.py`. One thread: while it waits, for an
answer of the host or for time to pass, it reads lines and deals with each at once, so an interrupt
reaches it wherever it is. It leaves the turn as the exception `Interrupted`.
"""

from __future__ import annotations

import json
import os
import time

from ._fake_lines import VERSION, lifecycle_line, new_uuid
from ._fake_simulation import MODELS, Simulation, encoded

TYPE_CHECKING = False  # see _fake_cli.py
if TYPE_CHECKING:
    from typing import Any

    from ._fake_cli import Player


class Interrupted(Exception):
    """The turn was interrupted."""


class Host(Simulation):
    """A simulation with an open stdin, and the host at the other end of it."""

    def __init__(self, player: Player, pace: float) -> None:
        super().__init__(player, pace)
        self.hooks: dict[str, list[dict[str, Any]]] = {}
        self.prompts: list[dict[str, Any]] = []  # that wait for their turn
        self.in_turn = False
        self.ended = False  # stdin
        self.sdk = _sdk_servers(self.value("--mcp-config"))
        self.mcp_tools: dict[str, tuple[str, str]] = {}  # full name -> server, tool
        self.connected = False  # with their servers
        self._open: set[str] = set()  # questions of ours without an answer
        self._answers: dict[str, dict[str, Any]] = {}

    # --- lines

    def read(self) -> None:
        """Take one line."""
        line = self.player.read_line()
        if line is None:
            self.ended = True
            return
        try:
            message = json.loads(line)
        except ValueError:
            self.refuse(f"Error parsing streaming input line ({len(line)} chars): SyntaxError\n")
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "control_request":
            self._answer(message)
        elif kind == "control_response":
            response = message.get("response", {})
            if response.get("request_id") in self._open:
                self._open.discard(response["request_id"])
                self._answers[response["request_id"]] = response
        elif kind == "user":
            self.prompts.append(message)
            self.lifecycle(message.get("uuid"), "queued")

    def lifecycle(self, uuid: str | None, state: str) -> None:
        if uuid:
            self.say({**lifecycle_line(state, uuid), "session_id": self.session_id})

    def _put(self, line: dict[str, Any]) -> None:
        self.player.op_say(encoded(line))

    # --- what the host asks

    def _answer(self, message: dict[str, Any]) -> None:
        request, id = message.get("request", {}), message.get("request_id")
        subtype = str(request.get("subtype"))
        handler = _REQUESTS.get(subtype)
        response: dict[str, Any] = {"subtype": "success", "request_id": id}
        if handler is None:
            error = f"Unsupported control request subtype: {subtype}"
            response.update(subtype="error", error=error, error_code="unsupported_request")
        else:
            response["response"] = handler(self, request)
        self._put({"type": "control_response", "response": response})
        if subtype == "interrupt" and self.in_turn:
            raise Interrupted

    def _initialize(self, request: dict[str, Any]) -> dict[str, Any]:
        hooks = request.get("hooks")
        self.hooks = hooks if isinstance(hooks, dict) else {}
        models = [{"value": alias, "resolvedModel": model} for alias, model in MODELS.items()]
        body = {
            "commands": [], "agents": [], "models": models, "account": {}, "output_style": "default",
            "pid": os.getpid(), "claude_code_version": VERSION, "current_permission_mode": self.mode,
        }  # fmt: skip
        return {**body, "hooks_applied": True} if self.hooks else body

    def _set_model(self, request: dict[str, Any]) -> dict[str, Any]:
        asked = request.get("model") or "default"
        self.model = MODELS.get(asked, asked)
        return {"model": self.model}

    def _set_permission_mode(self, request: dict[str, Any]) -> dict[str, Any]:
        self.mode = request.get("mode", self.mode)
        return {"mode": self.mode}

    def _interrupt(self, request: dict[str, Any]) -> dict[str, Any]:
        for id in sorted(self._open):
            self._put({"type": "control_cancel_request", "request_id": id})
        self._open.clear()
        queued = [prompt["uuid"] for prompt in self.prompts if prompt.get("uuid")]
        if not request.get("cancel_queued"):
            return {"still_queued": queued}
        self.prompts.clear()
        return {"still_queued": [], "cancelled": queued}

    def _mcp_status(self, request: dict[str, Any]) -> dict[str, Any]:
        return {
            "mcpServers": [
                {
                    "name": name,
                    "status": "connected" if self.connected else "pending",
                    "transport": "sdk",
                    "tools": [{"name": tool} for server, tool in self.mcp_tools.values() if server == name],
                }
                for name in self.sdk
            ]
        }

    def _context_usage(self, request: dict[str, Any]) -> dict[str, Any]:
        used = [("system_prompt", "System prompt", 3100), ("messages", "Messages", 20 * (1 + len(self.results)))]
        total, window = sum(tokens for _, _, tokens in used), 1000000
        return {
            "categories": [{"id": id, "name": name, "tokens": tokens} for id, name, tokens in used],
            "totalTokens": total, "maxTokens": window, "rawMaxTokens": window, "model": self.model,
            "percentage": round(100 * total / window),
        }  # fmt: skip

    def _nothing(self, request: dict[str, Any]) -> dict[str, Any]:
        return {}

    # --- what it asks the host

    def ask(self, subtype: str, **fields: Any) -> str:
        id = new_uuid()
        self._open.add(id)
        self._put({"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}})
        return id

    def wait(self, id: str, seconds: float | None = None) -> dict[str, Any] | None:
        """The host's answer; None if stdin is closed, or the time is over: then it is withdrawn."""
        limit = None if seconds is None else time.monotonic() + seconds
        while id in self._open and not self.ended:
            if limit is None or self.player.has_line(max(0.0, limit - time.monotonic())):
                self.read()
            elif time.monotonic() >= limit:
                self._put({"type": "control_cancel_request", "request_id": id})
                break
        self._open.discard(id)
        return self._answers.pop(id, None)

    def pause(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while not self.ended and self.player.has_line(max(0.0, limit - time.monotonic())):
            self.read()
        time.sleep(max(0.0, limit - time.monotonic()))

    def hang(self) -> None:
        self.pause(600.0)
        self.player.op_exit(1)


# What the host may ask -> how it is answered. All else is refused.
_REQUESTS = {
    "initialize": Host._initialize,
    "interrupt": Host._interrupt,
    "set_model": Host._set_model,
    "set_permission_mode": Host._set_permission_mode,
    "mcp_status": Host._mcp_status,
    "get_context_usage": Host._context_usage,
    "mcp_message": Host._nothing,  # progress
    "stop_task": Host._nothing,
}


def _sdk_servers(config: str | None) -> list[str]:
    """The names of the in-process servers in `--mcp-config`, a JSON text or a file."""
    try:
        if config and not config.lstrip().startswith("{"):
            with open(config, encoding="utf-8") as file:
                config = file.read()
        servers = json.loads(config or "{}").get("mcpServers", {})
    except (OSError, ValueError):
        return []
    return [name for name, server in servers.items() if server.get("type") == "sdk"]
