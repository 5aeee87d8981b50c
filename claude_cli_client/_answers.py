"""What the CLI asks of us while it works, answered by the user's callbacks and tools.

One handler per kind of question, in one table (`Answers.handlers`). Each runs on a thread of its
own (`_duplex.py`) and returns the body of the answer; whatever a callback does, there is one, and
permission callbacks and PreToolUse hooks fail closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from . import _log
from ._duplex import Handler, Risen
from ._serial import one_at_a_time
from .callbacks import (
    CanUseTool,
    Hook,
    hook_call,
    hook_failed,
    hook_reply,
    permission_failed,
    permission_reply,
    permission_request,
)
from .mcp import ToolServer, call_id, cancelled_id, error_reply, failed_reply, tool_of

Json = Mapping[str, Any]
Wrapper = Callable[[], AbstractContextManager[Any]]
_RISES = (SystemExit, KeyboardInterrupt)
_ACK: Json = {"jsonrpc": "2.0", "result": {}}  # a notification must be answered, too; any body will do
_NO_SUCH_SERVER = -32601


class Answers:
    """The callbacks of one run or session. `send` passes an `mcp_message` of a server to the CLI."""

    def __init__(
        self,
        *,
        can_use_tool: CanUseTool | None = None,
        hooks: Mapping[str, tuple[Hook, str]] | None = None,
        servers: Mapping[str, ToolServer] | None = None,
        wrapper: Wrapper | None = None,
    ) -> None:
        self._can_use_tool = can_use_tool
        self._hooks = hooks or {}
        self._servers = servers or {}
        self._wrapper = wrapper or nullcontext
        self._calls: dict[tuple[str, Any], threading.Event] = {}
        self._cancelled_early: set[tuple[str, Any]] = set()
        self._tables = threading.Lock()  # of the two above; held for a few steps
        self.send: Callable[[str, Json], None] = lambda server, message: None
        self.session_id: Callable[[], str] = str

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handler of each kind of question that can come."""
        found: dict[str, Handler] = {"hook_callback": self._hook, "mcp_message": self._mcp}
        if self._can_use_tool is not None:
            found["can_use_tool"] = self._permission
        return found

    def _permission(self, wire: Json, cancelled: threading.Event) -> Json:
        assert self._can_use_tool is not None
        try:
            request = permission_request(wire, cancelled)
            with self._wrapper():
                answer = self._can_use_tool(request)
            return permission_reply(answer, request)
        except _RISES as error:
            raise Risen(permission_failed(error), error) from error
        except BaseException as error:  # noqa: BLE001 - whatever it is, it denies
            _log.warning("can_use_tool failed, so the call was denied: %s", _log.place_of(error, self._can_use_tool))
            return permission_failed(error)

    def _hook(self, wire: Json, cancelled: threading.Event) -> Json:
        known = self._hooks.get(str(wire.get("callback_id", "")))
        event = known[1] if known is not None else "PreToolUse"  # an unknown one fails closed
        try:
            if known is None:
                raise LookupError("a hook that was not registered, or a question that could not be read")
            call = hook_call(wire, cancelled)
            with self._wrapper():
                answer = known[0](call)
            return hook_reply(answer, event)
        except _RISES as error:
            raise Risen(hook_failed(event, error), error) from error
        except BaseException as error:  # noqa: BLE001 - PreToolUse denies, others report and go on
            _log.warning("a %s hook failed: %s", event, _log.place_of(error, known and known[0]))
            return hook_failed(event, error)

    def _mcp(self, wire: Json, cancelled: threading.Event) -> Json:
        name, message = str(wire.get("server_name", "")), wire.get("message")
        server = self._servers.get(name)
        if server is None:
            return {"mcp_response": error_reply(message, _NO_SUCH_SERVER, f"there is no server {name!r}")}
        self._cancel_call(name, message)
        try:
            with self._call(name, message, cancelled), _alone(server, message, cancelled) as wanted:
                if not wanted:
                    return {"mcp_response": failed_reply(message, "the call was cancelled before it began")}
                reply = server.handle(
                    message,
                    server_name=name,
                    session_id=self.session_id(),
                    send=lambda notice: self.send(name, notice),
                    cancelled=cancelled,
                    wrapper=self._wrapper,
                )
        except _RISES as error:
            reply = failed_reply(message, f"the tool ended: {type(error).__name__}")
            raise Risen({"mcp_response": reply}, error) from error
        return {"mcp_response": reply if reply is not None else _ACK}

    def _cancel_call(self, server: str, message: Any) -> None:
        """The CLI cancels a call by a notification of its own, not by withdrawing the question.

        Each has a thread of its own, and that of the notification may be faster.
        """
        id = cancelled_id(message)
        with self._tables:
            if id is None:
                if isinstance(message, Mapping) and message.get("method") == "initialize":  # ids begin anew
                    self._cancelled_early = {key for key in self._cancelled_early if key[0] != server}
                return
            call = self._calls.get((server, id))
            if call is None:
                self._cancelled_early.add((server, id))
            else:
                call.set()

    @contextmanager
    def _call(self, server: str, message: Any, cancelled: threading.Event) -> Iterator[None]:
        key = (server, call_id(message))
        if key[1] is None:  # a notification
            yield
            return
        with self._tables:
            self._calls[key] = cancelled
            if key in self._cancelled_early:
                self._cancelled_early.discard(key)
                cancelled.set()
        try:
            yield
        finally:
            with self._tables:
                self._calls.pop(key, None)


def _alone(server: ToolServer, message: Any, cancelled: threading.Event) -> AbstractContextManager[bool]:
    """Tools that may not overlap take turns. False: the call was cancelled while it waited."""
    if not server.runs_user_code(message) or server.may_run_parallel(tool_of(message)):
        return nullcontext(not (cancelled.is_set() and server.runs_user_code(message)))
    return one_at_a_time(server, cancelled)
