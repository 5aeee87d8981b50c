"""Steps of `FakeCLI`'s scripts for a stdin that stays open: prompts as lines, control requests both ways.

Pure. Each is made of simpler steps of `_fake_steps.py`; a script of them is one order of events, in which
a real CLI might do the same. For a CLI that reacts to whatever comes there is `SimulatedCLI`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._fake_lines import PROMPT_UUID, SESSION_ID, lifecycle_line, new_uuid
from ._fake_steps import Step, init, reply, result, say, wait_for_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    One = Step | Mapping[str, Any] | Iterable[Any]


def wait_for_request(subtype: str, **request: Any) -> Step:
    """Reads lines until a control request of this kind comes, with at least these fields."""
    return wait_for_line({"type": "control_request", "request": {"subtype": subtype, **request}})


def expect(subtype: str, response: Mapping[str, Any] | None = None, *, error: str | None = None) -> tuple[Step, ...]:
    """Waits for a control request of this kind and answers it."""
    return wait_for_request(subtype), reply(response, error=error)


INITIALIZED: dict[str, Any] = {
    "commands": [], "agents": [], "output_style": "default", "available_output_styles": ["default"],
    "models": [{"value": "default", "resolvedModel": "claude-opus-5-5", "displayName": "Default"}],
    "account": {}, "pid": 1,
}  # fmt: skip


def expect_initialize(**response: Any) -> tuple[Step, ...]:
    """Waits for `initialize` and answers as the real CLI does; goes on where the prompt comes without it.

    Only for scripts that read their prompts themselves (`turn`, `began`): all others answer it anyway.
    """
    return (Step("initialize", ({**INITIALIZED, **response},)),)


def ask(subtype: str, *, id: str = "", answered: bool = True, **request: Any) -> tuple[Step, ...]:
    """The CLI asks the client, and waits for the answer to this very question.

    `answered=False`: it goes on at once. `id`: for a `cancel_ask` or `wait_for_answer` later.
    """
    id = id or new_uuid()
    line = {"type": "control_request", "request_id": id, "request": {"subtype": subtype, **request}}
    return (say(line), wait_for_answer(id)) if answered else (say(line),)


def wait_for_answer(id: str) -> Step:
    """Reads lines until the answer to this question comes, whatever it says."""
    return wait_for_line({"type": "control_response", "response": {"request_id": id}})


def cancel_ask(id: str) -> Step:
    """The CLI does not want the answer to this question any more."""
    return say({"type": "control_cancel_request", "request_id": id})


def ask_permission(tool: str, input: Mapping[str, Any] | None = None, **more: Any) -> tuple[Step, ...]:
    """`can_use_tool`, as the CLI asks it. `more`: other fields, and what `ask` takes."""
    rule = {"toolName": tool}
    suggestions = [{"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "localSettings"}]
    usual = {"display_name": tool, "tool_use_id": "toolu_1", "permission_suggestions": suggestions}
    return ask("can_use_tool", **{"tool_name": tool, "input": dict(input or {}), **usual, **more})


def call_tool(server: str, tool: str, arguments: Mapping[str, Any] | None = None, *, number: int = 2,
              **more: Any) -> tuple[Step, ...]:  # fmt: skip
    """A call of an in-process tool, as the CLI sends it; `number` is the id of its JSON-RPC message.

    The script fails if the client has no such server or tool; of a call with `answered=False` it is not seen.
    """
    params = {
        "name": tool,
        "arguments": dict(arguments or {}),
        "_meta": {"claudecode/toolUseId": "toolu_1", "progressToken": number},
    }
    message = {"method": "tools/call", "params": params, "jsonrpc": "2.0", "id": number}
    steps = ask("mcp_message", server_name=server, message=message, **more)
    return (*steps, Step("check_tool", (server, tool))) if more.get("answered", True) else steps


def cancel_call(server: str, number: int = 2) -> tuple[Step, ...]:
    """The CLI does not want the result of this `call_tool` any more, and tells its server.

    As it does with an interrupt, behind it; `interrupted` does not, since a script says itself what is open.
    """
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
    return ask("mcp_message", server_name=server, message=message)


def call_hook(
    callback_id: str, event: str, *, fields: Mapping[str, Any] | None = None, **more: Any
) -> tuple[Step, ...]:  # fmt: skip
    """A hook that `initialize` declared fires. `fields`: those of its event, as `{"tool_name": "Read"}`.

    `callback_id`: the client counts its functions in the order of `hooks`, `hook_1`, `hook_2`, ... The
    script fails with another one: the client would deny, and a test that wants a denial would be content.
    """
    given = {
        "session_id": SESSION_ID, "transcript_path": "", "cwd": "/", "permission_mode": "default",
        "hook_event_name": event, **(fields or {}),
    }  # fmt: skip
    asked = {"callback_id": callback_id, "input": given, "tool_use_id": "toolu_1", **more}
    return Step("check_hook", (asked["callback_id"],)), *ask("hook_callback", **asked)


def lifecycle(state: str, uuid: str = PROMPT_UUID) -> Step:
    """What becomes of a prompt: `queued`, `started`, `completed`, `cancelled`."""
    return Step("lifecycle", line=lifecycle_line(state, uuid))


def began() -> tuple[Step, ...]:
    """A prompt is read and its turn begins."""
    return Step("take_prompt"), lifecycle("queued"), lifecycle("started"), init()


def ended(answer: str = "done", **changes: Any) -> tuple[Step, ...]:
    """The result of the prompt that was read last, and the line that says that it is completed."""
    return result(answer, **_of_prompt(), **changes), lifecycle("completed")


def turn(*steps: One, answer: str = "done") -> tuple[One, ...]:
    """A whole turn of a live session: the prompt is read, these steps, its result."""
    return *began(), *steps, *ended(answer)


def interrupted(*, in_tool: bool = False) -> tuple[Step, ...]:
    """Waits for `interrupt` and ends the turn as the real CLI does then."""
    why: dict[str, Any] = {"terminal_reason": "aborted_tools" if in_tool else "aborted_streaming"}
    text = f"[Request interrupted by user{' for tool use' if in_tool else ''}]"
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    line = {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": SESSION_ID}
    return (
        *expect("interrupt", {"still_queued": [], "cancelled": []}),
        Step("say_own", line=line),
        result(subtype="error_during_execution", errors=["[ede_diagnostic] fake"], **why, **_of_prompt()),
        lifecycle("cancelled"),
    )


def _of_prompt() -> dict[str, Any]:
    return {"user_message_uuid": PROMPT_UUID, "user_message_uuids": [PROMPT_UUID]}
