"""The one live line on a terminal: elapsed time, what runs now, tokens, cost.

May not do: write anything but this line, start a thread, or wait. Whoever reads the run calls
`event` for each event and `paint` at least every `INTERVAL` seconds, events or not: so the seconds
go on while the model thinks, and the wait for the next event is the clock.

Plain ASCII and two escape sequences (back to the start, erase to the end), because this also runs
in consoles, tmux and `ssh -t` with odd locales. Names come from the outside: whatever is not
printable ASCII is replaced, so that no tool can write its own sequences.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING, Final, TextIO

from .events import (
    API_ERROR,
    RESULT,
    RETRY,
    STREAM_EVENT,
    TASK_RESULT,
    TEXT,
    TEXT_DELTA,
    THINKING,
    THINKING_DELTA,
    TOOL_RESULT,
    TOOL_USE,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .events import Event

INTERVAL: Final = 0.1  # seconds between two looks at the clock; the line is written when it changed
_ERASE: Final = "\r\x1b[K"
_SPINNER: Final = "|/-\\"
_NAME_LENGTH: Final = 40


class Progress:
    """Collects from events, paints on `stream`. Not thread-safe: for the thread that reads the run."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._begin = clock()
        self._tools: dict[str, str] = {}  # those that run now, by id, in the order of their calls
        self._calls = 0
        self._doing = "starting"
        self._input = self._output = self._message_output = 0
        self._cost: float | None = None
        self._painted = ""

    def event(self, event: Event) -> None:
        """Take notice. Paints nothing."""
        note = _NOTES.get(event.type)
        if note:
            note(self, event)

    def paint(self) -> None:
        """Bring the line up to date, if what it says has changed."""
        line = self.line()[: self._width() - 1]  # a full line would wrap, and its rest stay
        if line != self._painted:
            self._painted = line
            self._write(_ERASE + line)

    def erase(self) -> None:
        """Leave the terminal as it was. `paint` may follow."""
        if self._painted:
            self._painted = ""
            self._write(_ERASE)

    def line(self) -> str:
        """What the line says now."""
        seconds = self._clock() - self._begin
        parts = [f"{_SPINNER[int(seconds / INTERVAL) % 4]} {_elapsed(seconds)}", self._activity()]
        if self._calls:
            parts.append(f"{self._calls} tool call{'s' if self._calls > 1 else ''}")
        output = self._output + self._message_output
        if self._input or output:
            parts.append(f"{_short(self._input)} in, {_short(output)} out")
        if self._cost is not None:
            parts.append(f"${self._cost:.4f}")
        return "  ".join(parts)

    def _activity(self) -> str:
        if self._tools:
            return _plain(list(self._tools.values())[-1])
        return _plain(self._doing)

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone; the turn is not
            self._painted = ""

    # --- what events tell

    def _tool(self, event: Event) -> None:
        if event.tool_id not in self._tools:
            self._calls += 1
        self._tools[event.tool_id] = event.tool_name

    def _tool_ended(self, event: Event) -> None:
        self._tools.pop(event.tool_id, None)
        self._doing = "waiting for the model"

    def _answering(self, event: Event) -> None:
        if not event.parent_tool_use_id:
            self._doing = "answering"

    def _thinking(self, event: Event) -> None:
        if not event.parent_tool_use_id:
            self._doing = "thinking"

    def _retrying(self, event: Event) -> None:
        count = f" {event.retry_attempt}/{event.retry_max}" if event.retry_attempt else ""
        self._doing = f"retry{count}: {event.error or event.text or 'the API failed'}"

    def _usage(self, event: Event) -> None:
        """The API reports input when a message starts, output as it grows; other events are skipped."""
        if event.subtype not in ("message_start", "message_delta"):
            return
        part = event.data.get("event")
        usage = _inner(part, "usage") or _inner(_inner(part, "message"), "usage")
        if event.subtype == "message_start":
            self._output += self._message_output
            self._message_output = 0
            self._input = sum(
                _count(usage, name)
                for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
            )
            self._doing = "waiting for the model"
        else:
            self._message_output = _count(usage, "output_tokens")

    def _money(self, event: Event) -> None:
        cost = event.session_cost_usd if event.cost_usd is None else event.cost_usd
        self._cost = self._cost if cost is None else cost
        self._doing = "finishing"


_NOTES: Final = {
    TOOL_USE: Progress._tool,
    TOOL_RESULT: Progress._tool_ended,
    TEXT_DELTA: Progress._answering,
    TEXT: Progress._answering,
    THINKING_DELTA: Progress._thinking,
    THINKING: Progress._thinking,
    RETRY: Progress._retrying,
    API_ERROR: Progress._retrying,
    STREAM_EVENT: Progress._usage,
    TASK_RESULT: Progress._money,
    RESULT: Progress._money,
}


def _inner(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _count(usage: object, name: str) -> int:
    value = _inner(usage, name)
    return value if isinstance(value, int) else 0


def _elapsed(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def _short(count: int) -> str:
    return str(count) if count < 1000 else f"{count / 1000:.1f}k"


def _plain(text: str) -> str:
    kept = "".join(char if " " <= char <= "~" else "?" for char in text[:_NAME_LENGTH])
    return kept + ("..." if len(text) > _NAME_LENGTH else "")
