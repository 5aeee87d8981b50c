"""The stand-in process and the lines on its stdin: prompts as they come, control requests, answers.

Runs inside the stand-in process, which loads it where stream-json comes on stdin or a step waits for
a line; it imports nothing of the package.

A script without a step that reads its prompt is one turn. Where the prompt comes as text it is played
once. Here it is played for each prompt until stdin ends, so that the same script serves a turn
without callbacks, a turn with them, and a session. One thread: a line is read between two turns or
where a step waits for one, never in between.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False  # see _fake_cli.py
if TYPE_CHECKING:
    from typing import Any

    from ._fake_cli import Player


def serve(player: Player) -> None:
    """Plays a script for each prompt; one that reads stdin itself is the last."""
    script = player.script()
    while True:
        if script["by_prompt"]:
            take_prompt(player)
        player.run(script["ops"])
        if not script["by_prompt"] or not _prompt_comes(player):
            return
        script = player.script()


# --- prompts


def take_prompt(player: Player) -> None:
    """Reads up to the next prompt, and that. A prompt that comes as text is all of stdin."""
    if not _prompt_comes(player):
        return
    message = _decoded(player.read_line() or b"")
    if "type" in message:
        player.prompt_is(str(message.get("uuid") or ""))
        player.hooks = player.hooks or {}  # they would have been declared before
    else:
        player.read_stdin()
        player.is_text = True


def _prompt_comes(player: Player) -> bool:
    """Whether stdin has one more prompt, which stays there; answers what is asked before it."""
    while (line := player.peek_line()) is not None:
        message = _decoded(line)
        if message.get("type", "user") == "user":
            return True
        player.read_line()
        if message["type"] == "control_request":
            _note(player, message)
            reply(player, player.config["initialized"] if _is_initialize(message) else {}, None)
    return False


def initialize(player: Player, response: dict[str, Any]) -> None:
    """Answers `initialize` if it comes, which is before the prompt or never."""
    while (line := player.peek_line()) is not None:
        message = _decoded(line)
        if message.get("type", "user") == "user":
            return
        player.read_line()
        if _is_initialize(message):
            _note(player, message)
            reply(player, response, None)
            return
    player.miss("the control request 'initialize'")


def _is_initialize(message: dict[str, Any]) -> bool:
    return _contains(message, {"type": "control_request", "request": {"subtype": "initialize"}})


# --- lines


def wait_for_line(player: Player, wanted: bytes | dict[str, Any] | None) -> None:
    """Reads lines until one contains the bytes, or, as JSON, all that `wanted` has."""
    while (line := player.read_line()) is not None:
        if isinstance(wanted, bytes) and wanted not in line:
            continue
        message = _decoded(line)
        if isinstance(wanted, dict) and not _contains(message, wanted):
            continue
        _note(player, message)
        return
    if player.is_text and isinstance(wanted, dict) and wanted.get("type") == "control_response":
        player.fail("the client gave no can_use_tool, hooks or tools, so nobody answers")
    player.miss(f"a line with {wanted!r}")


def check_hook(player: Player, callback_id: str) -> None:
    """Ends the script if the client declared no such hook; a script that has read nothing knows of none."""
    if player.hooks is None:
        return
    declared = {
        id: ", ".join(filter(None, (event, entry.get("matcher"))))
        for event, entries in player.hooks.items()
        for entry in entries
        for id in entry.get("hookCallbackIds", [])
    }
    if callback_id not in declared:
        shown = ", ".join(f"{id} ({what})" for id, what in declared.items()) or "no hook"
        player.fail(f"the client declared {shown}, not {callback_id}")


def check_tool(player: Player, server: str, tool: str) -> None:
    """Ends the script if the call found no tool. One that failed has a result, which says so."""
    body = player.answer.get("response")
    reply = body.get("mcp_response") if isinstance(body, dict) else None
    if isinstance(reply, dict) and "error" in reply:
        why = reply["error"].get("message", "")
        player.fail(f"the client could not call {tool!r} of the server {server!r}: {why}")


def _note(player: Player, message: dict[str, Any]) -> None:
    """What later steps refer to: the request that `reply` answers, an answer, the hooks, the prompt of a result."""
    if message.get("type") == "control_response":
        player.answer = message.get("response") or {}
    if _is_initialize(message):
        player.hooks = message["request"].get("hooks") or {}
    if "request_id" in message:
        player.request_id = str(message["request_id"]) or player.request_id
    elif "uuid" in message:
        player.prompt_is(str(message["uuid"] or ""))


def reply(player: Player, response: dict[str, Any] | None, error: str | None) -> None:
    """Answers the control request that was read last."""
    answer = {"subtype": "success", "request_id": player.request_id, "response": response or {}}
    if error is not None:
        answer = {"subtype": "error", "request_id": player.request_id, "error": error}
    line = json.dumps({"type": "control_response", "response": answer}, ensure_ascii=False)
    player.op_say(line.encode("utf-8", "backslashreplace") + b"\n")


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _contains(value: Any, wanted: Any) -> bool:
    """Whether `value` has everything that `wanted` has; dicts may have more."""
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(
            key in value and _contains(value[key], part) for key, part in wanted.items()
        )
    return bool(value == wanted)
