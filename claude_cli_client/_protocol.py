"""The control protocol as state: decoded frames and wishes in, items and bytes out.

Pure: no thread, lock, clock or pipe. Whoever drives it (`_duplex.py`) holds its lock around each
call, writes the bytes, and runs what the CLI asks for.

Both sides ask and both answer, each question with an id of its own:

    we ask      request() -> bytes    ...    receive() -> Answered or Refused
    they ask    receive() -> Asked    ...    answer() or refuse() -> bytes, once
                receive() -> Withdrawn: the answer is not wanted any more

Rules that come from the CLI (each seen):

* Every question gets one answer, of unknown kinds too: an unanswered `mcp_message`, notifications
  included, hangs the CLI's handshake. The one exception, dialogs that we did not declare, stands
  in `_NEVER_ANSWERED`.
* An answer to a withdrawn question is ignored by the CLI; `answer` gives none, so that a callback
  that was told "cancelled" cannot disturb anything later.
* A line that is not valid ends the CLI. All bytes are made here, in ASCII: no line separator, no
  surrogate and no encoding can break one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

Json = Mapping[str, Any]
Id = str | int | None  # of theirs: a UUID in practice, but it goes back as it came

_NEVER_ANSWERED: Final = frozenset({"request_user_dialog"})


class Asked(NamedTuple):
    """The CLI asks: answer it with `answer` or `refuse`."""

    id: Id
    subtype: str
    request: Json


class Withdrawn(NamedTuple):
    """The CLI does not want the answer to this question any more."""

    id: Id


class Answered(NamedTuple):
    """A question of ours was answered. `extra`: what stands beside the body."""

    id: str
    body: dict[str, Any]
    extra: dict[str, Any]


class Refused(NamedTuple):
    """A question of ours was refused, in the CLI's words."""

    id: str
    message: str
    code: str


Item = Asked | Withdrawn | Answered | Refused


class Protocol:
    """One CLI process's side of the conversation and ours."""

    def __init__(self) -> None:
        self._count = 0
        self._ours: dict[str, str] = {}  # open questions of ours: id -> subtype
        self._theirs: dict[Id, str] = {}

    # --- what we say

    def request(self, subtype: str, fields: Json) -> tuple[str, bytes]:
        """Ask. The id is known, and may be waited for, before the line is written."""
        self._count += 1
        id = f"client-{self._count}"
        # First the line, which may be impossible, and then the note that an answer is due.
        line = _line({"type": "control_request", "request_id": id, "request": {**fields, "subtype": subtype}})
        self._ours[id] = subtype
        return id, line

    def give_up(self, id: str) -> bytes | None:
        """We do not wait any more: a late answer is dropped. The line that says so."""
        if self._ours.pop(id, None) is None:
            return None
        return _line({"type": "control_cancel_request", "request_id": id})

    def prompt(self, content: str | Sequence[Json], uuid: str, *, literal: bool = False) -> bytes:
        """A prompt. The CLI swallows one whose uuid it has seen."""
        frame: dict[str, Any] = {
            "type": "user",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": None,
            "session_id": "",
            "uuid": uuid,
        }
        if literal:
            frame["client_composed"] = True  # no slash command, no @file
        return _line(frame)

    def answer(self, id: Id, body: Json) -> bytes | None:
        """Answer a question of theirs; None where it is withdrawn or answered.

        Raises what `json` raises for a body that is none; the question is still open then, so that
        it can be refused: the CLI waits for ever for an answer that nobody could write.
        """
        if id not in self._theirs:
            return None
        line = _reply({"subtype": "success", "request_id": id, "response": body})
        del self._theirs[id]
        return line

    def refuse(self, id: Id, message: str) -> bytes | None:
        """Answer a question of theirs with an error; None where it is withdrawn or answered."""
        if self._theirs.pop(id, None) is None:
            return None
        return _reply({"subtype": "error", "request_id": id, "error": message})

    # --- what they say

    def receive(self, frame: Json) -> Item | None:
        """Take notice of a `control_*` frame; None where it is nothing to us (or nonsense)."""
        kind = frame.get("type")
        handler = _FRAMES.get(kind) if isinstance(kind, str) else None
        return handler(self, frame) if handler is not None else None

    def _asked(self, frame: Json) -> Item | None:
        request = frame.get("request")
        request = request if isinstance(request, dict) else {}
        id, subtype = frame.get("request_id"), request.get("subtype")
        subtype = subtype if isinstance(subtype, str) else ""
        if subtype in _NEVER_ANSWERED or not isinstance(id, (str, int)):
            return None
        self._theirs[id] = subtype
        return Asked(id, subtype, request)

    def _withdrawn(self, frame: Json) -> Item | None:
        id = frame.get("request_id")
        known = isinstance(id, (str, int)) and self._theirs.pop(id, None) is not None
        return Withdrawn(id) if known else None

    def _answered(self, frame: Json) -> Item | None:
        response = frame.get("response")
        if not isinstance(response, dict):
            return None
        id = response.get("request_id")
        if not isinstance(id, str) or self._ours.pop(id, None) is None:
            return None  # one that we gave up
        if response.get("subtype") == "error":
            return Refused(id, str(response.get("error", "")), str(response.get("error_code", "")))
        body = response.get("response")
        extra = {key: value for key, value in response.items() if key not in _ENVELOPE}
        return Answered(id, body if isinstance(body, dict) else {}, extra)


_ENVELOPE: Final = frozenset({"subtype", "request_id", "response"})
_FRAMES: Final = {
    "control_request": Protocol._asked,
    "control_response": Protocol._answered,
    "control_cancel_request": Protocol._withdrawn,
}


def _reply(response: Json) -> bytes:
    return _line({"type": "control_response", "response": response})


def _line(frame: Json) -> bytes:
    return json.dumps(frame, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
