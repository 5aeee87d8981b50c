"""The simulated CLI with an open stdin: turn after turn, with permissions, hooks and in-process tools.

Runs inside the stand-in process, like `_fake_simulation.py`, which has the turns themselves; how it
speaks with its host is in `_fake_host.py`. What is asked and obeyed follows what the real CLI was
seen to do; how much of it, is said in `SimulatedCLI`.
"""

from __future__ import annotations

import json
import re

from ._fake_host import Host, Interrupted
from ._fake_lines import TOOLS, VERSION, new_uuid, result_line, tool_result_line, user_line
from ._fake_simulation import folder, prompt_of

TYPE_CHECKING = False  # see _fake_cli.py
if TYPE_CHECKING:
    from typing import Any

    from ._fake_cli import Player

_REJECTED = "The user doesn't want to proceed with this tool use. The tool use was rejected."
_INTERACTIVE = ("AskUserQuestion", "ExitPlanMode")
_INVALID = "Tool permission callback returned an invalid permission result"
_STREAM_CLOSED = "Tool permission stream closed before response received"


class _Denied(Exception):
    """A call that does not run; the text is what the model reads."""


def serve(player: Player, pace: float) -> None:
    live = Live(player, pace)
    live.check()
    live.serve()


class Live(Host):
    """One process with an open stdin."""

    def __init__(self, player: Player, pace: float) -> None:
        super().__init__(player, pace)
        self.asks = self.value("--permission-prompt-tool") == "stdio"
        self.allowed = set(re.findall(r"[^\s,()]+(?:\([^)]*\))?", self.value("--allowedTools") or ""))
        self.tool_id = ""  # of the call that is on
        self.mcp_id = 0
        if self.asks and self.value("--tools") in (None, "default"):
            self.tools = (*self.tools, "AskUserQuestion", "ExitPlanMode")

    def serve(self) -> None:
        """Until stdin closes and all prompts have had their turn."""
        while True:
            while not self.prompts and not self.ended:
                self.read()
            if not self.prompts:
                break
            self._serve_turn(self.prompts.pop(0))
        self.finish()

    # --- a turn

    def _serve_turn(self, message: dict[str, Any]) -> None:
        self.prompt_uuid, self.in_turn, self.tool_id = message.get("uuid"), True, ""
        self.lifecycle(self.prompt_uuid, "started")
        prompt = prompt_of(message.get("message", {}).get("content", ""))
        state = "completed"
        try:
            self._connect()
            if self._prompt_passes(prompt):
                self.turn(prompt)
        except Interrupted:
            state = "cancelled"
            self.in_turn = False
            self._say_interrupted()
        self.in_turn = False
        self.lifecycle(self.prompt_uuid, state)

    def say(self, *lines: dict[str, Any]) -> None:
        for line in lines:
            if line.get("type") == "result":
                if self.in_turn and line["num_turns"] and not line["is_error"]:
                    self._run_hooks("Stop", "", stop_hook_active=False, last_assistant_message=line.get("result", ""))
                if self.prompt_uuid:
                    line.update(user_message_uuid=self.prompt_uuid, user_message_uuids=[self.prompt_uuid])
            super().say(line)

    def _say_interrupted(self) -> None:
        in_tool = bool(self.tool_id)
        if in_tool:
            self.say(self.tool_failed(self.tool_id, _REJECTED))
        text = f"[Request interrupted by user{' for tool use' if in_tool else ''}]"
        self.say(user_line([{"type": "text", "text": text}], session_id=self.session_id))
        self.say(
            result_line(
                None, subtype="error_during_execution", is_error=True, stop_reason="tool_use" if in_tool else None,
                terminal_reason="aborted_tools" if in_tool else "aborted_streaming", session_id=self.session_id,
                model=self.model, calls=0, cost_usd=0, session_cost_usd=self.cost, index=len(self.results),
                errors=("[ede_diagnostic] simulated: interrupted",),
            )
        )  # fmt: skip

    def _plain_result(self, text: str) -> None:
        """A turn in which no model was asked."""
        self.say(
            result_line(
                text, num_turns=0, calls=0, cost_usd=0, session_cost_usd=self.cost, session_id=self.session_id,
                model=self.model, index=len(self.results), stop_reason=None,
            )
        )  # fmt: skip

    def _prompt_passes(self, prompt: str) -> bool:
        for output in self._run_hooks("UserPromptSubmit", "", prompt=prompt):
            stopped = output.get("continue") is False
            if stopped or output.get("decision") == "block":
                kind, words = _STOPPED if stopped else _BLOCKED
                reason = str(output.get("stopReason" if stopped else "reason") or "")
                text = words + reason
                outcome = {"kind": kind, "prompt_kept": False, "reason": reason}
                self.say({
                    "type": "system", "subtype": "informational", "content": text, "level": "warning",
                    "prompt_submit_outcome": outcome, "uuid": new_uuid(), "session_id": self.session_id,
                })  # fmt: skip
                self._plain_result(text)
                return False
        return True

    # --- a tool call

    def used(self, tool_id: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
        if name.startswith("mcp__") and name not in self.mcp_tools:
            return super().used(tool_id, name, given)
        self.tool_id = tool_id
        call = {"tool_name": name, "tool_use_id": tool_id}
        try:
            given = self._permitted(tool_id, name, given)
        except _Denied as denied:
            self.denials.append({"tool_name": name, "tool_use_id": tool_id, "tool_input": given})
            self.tool_id = ""
            return self.tool_failed(tool_id, str(denied))
        line = self._result_of(tool_id, name, given)
        block = line["message"]["content"][0]
        if block["is_error"]:
            error = str(block["content"])
            self._run_hooks("PostToolUseFailure", name, **call, tool_input=given, error=error, is_interrupt=False)
        else:
            response = line["tool_use_result"]
            self._run_hooks("PostToolUse", name, **call, tool_input=given, tool_response=response, duration_ms=1)
        self.tool_id = ""
        return line

    def _permitted(self, tool_id: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """The input it may run with. Raises _Denied."""
        outputs = self._run_hooks("PreToolUse", name, tool_name=name, tool_use_id=tool_id, tool_input=given)
        said = [_decision(output) for output in outputs]
        for decision, reason in said:
            if decision == "deny":
                raise _Denied(f"PreToolUse:{name} hook error: {reason}")
        for output in outputs:
            given = output.get("hookSpecificOutput", {}).get("updatedInput") or given
        asked = next((reason for decision, reason in said if decision == "ask"), None)
        free = any(decision == "allow" for decision, _ in said) or self._is_allowed(name, given)
        if asked is None and free and name not in _INTERACTIVE:
            return given
        if self.mode == "dontAsk":
            raise _Denied(f"Permission to use {name} has been denied because Claude Code is in don't ask mode.")
        return self._asked(tool_id, name, given, asked) if self.asks else self._not_asked(name, given)

    def _is_allowed(self, name: str, given: dict[str, Any]) -> bool:
        command = str(given.get("command", ""))
        server, _ = self.mcp_tools.get(name, ("", ""))
        rules = {*_names(name, server), f"{name}({command})", f"{name}({command.partition(' ')[0]} *)", f"{name}(*)"}
        return self.mode == "bypassPermissions" or bool(rules & self.allowed)

    def _not_asked(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """Nobody to ask: the harmless echo runs, as always in this simulation."""
        if name in TOOLS:
            return given
        raise _Denied(f"Claude requested permissions to use {name}, but you haven't granted it yet.")

    def _asked(self, tool_id: str, name: str, given: dict[str, Any], reason: str | None) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "tool_name": name, "display_name": name, "input": given, "tool_use_id": tool_id,
            "permission_suggestions": _suggestions(name, given),
        }  # fmt: skip
        if isinstance(given.get("description"), str):
            fields["description"] = given["description"]
        if name in _INTERACTIVE:
            fields["requires_user_interaction"] = True
        if reason is not None:
            fields.update(decision_reason=reason, decision_reason_type="hook")
        if name in self.mcp_tools:
            fields["mcp_server"] = {"name": self.mcp_tools[name][0], "source": "sdk"}
            if reason is None:
                fields["server_policy_ask_only"] = "PermissionRequest" not in self.hooks
        response = self.wait(self.ask("can_use_tool", **fields))
        if response is None:
            raise _Denied(_STREAM_CLOSED)
        if response.get("subtype") != "success":
            raise _Denied(f"Tool permission request failed: Error: {response.get('error')}")
        answer = response.get("response") or {}
        if answer.get("behavior") != "allow":
            if answer.get("interrupt"):
                self.denials.append({"tool_name": name, "tool_use_id": tool_id, "tool_input": given})
                raise Interrupted
            raise _Denied(str(answer.get("message") or _INVALID))
        self._update(answer.get("updatedPermissions") or [])
        return answer.get("updatedInput") or given

    def _update(self, updates: list[dict[str, Any]]) -> None:
        for update in updates:
            if update.get("type") == "setMode":
                self.mode = str(update.get("mode"))
            elif update.get("type") == "addRules" and update.get("behavior") == "allow":
                for rule in update.get("rules", []):
                    content = rule.get("ruleContent")
                    self.allowed.add(rule["toolName"] if content is None else f"{rule['toolName']}({content})")

    def _result_of(self, tool_id: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
        if name in self.mcp_tools:
            return self._mcp_result(tool_id, *self.mcp_tools[name], given)
        if name == "AskUserQuestion":
            answers = given.get("answers") or {}
            pairs = ", ".join(f'"{question}"="{answer}"' for question, answer in answers.items())
            text = f"Your questions have been answered: {pairs}." if pairs else "The user did not answer the questions."
            return tool_result_line(tool_id, text, tool_use_result=given, session_id=self.session_id)
        if name == "ExitPlanMode":
            self.mode = "default" if self.mode == "plan" else self.mode
            return tool_result_line(tool_id, "User has approved your plan.", session_id=self.session_id)
        return super().used(tool_id, name, given)

    # --- hooks

    def _run_hooks(self, event: str, name: str, **fields: Any) -> list[dict[str, Any]]:
        """What the matching hooks say; all are asked at once. Of one that fails, what `onFailure` makes of it."""
        given = {
            "session_id": self.session_id, "transcript_path": "", "cwd": folder(), "prompt_id": self.prompt_uuid or "",
            "permission_mode": self.mode, "hook_event_name": event, **fields,
        }  # fmt: skip
        tool_id = fields.get("tool_use_id") or new_uuid()
        asked = [
            (self.ask("hook_callback", callback_id=id, input=given, tool_use_id=tool_id), entry)
            for entry in self.hooks.get(event, [])
            if not name or _matches(entry.get("matcher"), name)
            for id in entry.get("hookCallbackIds", [])
        ]
        return [self._output(event, id, entry) for id, entry in asked]

    def _output(self, event: str, id: str, entry: dict[str, Any]) -> dict[str, Any]:
        response = self.wait(id, entry.get("timeout"))
        if response is None:  # too late, or stdin is closed
            return {"decision": "block", "reason": "the hook did not answer"} if event == "PreToolUse" else {}
        output = response.get("response") if response.get("subtype") == "success" else None
        if isinstance(output, dict):
            return output
        return {"decision": "block", "reason": "the hook failed"} if entry.get("onFailure") == "block" else {}

    # --- in-process MCP servers

    def _connect(self) -> None:
        """The handshake with each server, before the first turn."""
        if self.connected:
            return
        found: dict[str, tuple[str, str]] = {}
        client = {"name": "claude-code", "title": "Claude Code", "version": VERSION}
        for name in self.sdk:
            self._mcp(name, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
            self.wait(self.ask("mcp_message", server_name=name, message={"jsonrpc": "2.0", "method": _INITIALIZED}))
            listed = self._mcp(name, "tools/list").get("result", {}).get("tools", [])
            for tool in listed:
                found[f"mcp__{_mapped(name)}__{_mapped(tool['name'])}"] = (name, tool["name"])
        self.connected = True
        self.mcp_tools = {name: tool for name, tool in found.items() if not _names(name, tool[0]) & self.removed}
        self.tools = (*self.tools, *self.mcp_tools)

    def servers(self) -> list[dict[str, Any]]:
        return [{"name": name, "status": "connected"} for name in self.sdk]

    def _mcp(self, server: str, method: str, **params: Any) -> dict[str, Any]:
        """The JSON-RPC answer; of a control error a JSON-RPC error."""
        message = {"jsonrpc": "2.0", "id": self.mcp_id, "method": method, "params": params}
        self.mcp_id += 1
        try:
            response = self.wait(self.ask("mcp_message", server_name=server, message=message))
        except Interrupted:
            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": message["id"]}}
            self.ask("mcp_message", server_name=server, message=cancelled)
            raise
        if response is None:
            return {"error": {"message": "the call was interrupted before a result was received"}}
        if response.get("subtype") != "success":
            return {"error": {"message": str(response.get("error"))}}
        answer = (response.get("response") or {}).get("mcp_response")
        return answer if isinstance(answer, dict) else {}

    def _mcp_result(self, tool_id: str, server: str, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        meta = {"claudecode/toolUseId": tool_id, "progressToken": self.mcp_id}
        answer = self._mcp(server, "tools/call", name=tool, arguments=given, _meta=meta)
        if "error" in answer:
            return self.tool_failed(tool_id, str(answer["error"].get("message", "")))
        result = answer.get("result", {})
        blocks = result.get("content") or []
        if result.get("isError"):
            return self.tool_failed(tool_id, "".join(str(block.get("text", "")) for block in blocks))
        if "structuredContent" in result:
            text = json.dumps(result["structuredContent"], ensure_ascii=False, separators=(",", ":"))
            blocks = [{"type": "text", "text": text}, *(block for block in blocks if block["type"] != "text")]
        content = [_as_block(block) for block in blocks]
        return tool_result_line(tool_id, content, tool_use_result=content, session_id=self.session_id)


_INITIALIZED = "notifications/initialized"
# What becomes of a prompt that a hook ends, and the words before the hook's.
_STOPPED = ("stopped_by_hook", "Operation stopped by hook: ")
_BLOCKED = ("blocked_by_hook", "UserPromptSubmit operation blocked by hook:\n")


def _names(name: str, server: str) -> set[str]:
    """By which a rule can mean a tool of this server; "": it is no server's."""
    return {name, f"mcp__{_mapped(server)}", f"mcp__{_mapped(server)}__*"} if server else {name}


def _mapped(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)


def _matches(matcher: str | None, name: str) -> bool:
    if matcher in (None, "", "*"):
        return True
    if re.fullmatch(r"[\w|, -]*", str(matcher)):
        return name in [word.strip() for word in re.split(r"[|,]", str(matcher))]
    return re.search(str(matcher), name) is not None


def _decision(output: dict[str, Any]) -> tuple[str, str]:
    specific = output.get("hookSpecificOutput", {})
    legacy = {"block": "deny", "approve": "allow"}.get(str(output.get("decision")), "")
    said = specific.get("permissionDecision") or legacy
    return said, str(specific.get("permissionDecisionReason") or output.get("reason") or "")


def _suggestions(name: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    """What an "always" button would send."""
    if name in _INTERACTIVE:
        return []
    rule: dict[str, Any] = {"toolName": name}
    if name == "Bash":
        rule["ruleContent"] = f"{str(given.get('command', '')).partition(' ')[0]} *"
    return [{"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "localSettings"}]


def _as_block(block: dict[str, Any]) -> dict[str, Any]:
    """An MCP content block as the API has it."""
    if block["type"] == "image":
        source = {"type": "base64", "media_type": block.get("mimeType"), "data": block.get("data")}
        return {"type": "image", "source": source}
    if block["type"] == "text":
        return {"type": "text", "text": block.get("text", "")}
    return {"type": "text", "text": json.dumps(block, ensure_ascii=False)}
