"""Bytes to lines: a stream cut at newlines, and the two kinds of line that are no good.

Pure. A line ends at 0x0A and nowhere else: U+2028, U+0085 and lone CRs stand inside of strings.
Fragments are joined as they came and never stripped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from .events import Event, make

# A line that is not shown whole, in an `oversize` event or an error message, is cut to this.
HEAD_BYTES: Final = 200
_KEPT_ODD_LINES: Final = 5


class LineCutter:
    """Cuts a byte stream at 0x0A. One line may be as long as `max_line_bytes`.

    A longer line is not kept: `feed` gives its first HEAD_BYTES and its true size as an
    `Oversize`, and goes on with the next line.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._max = max_line_bytes
        self._pending: list[bytes] = []
        self._size = 0  # of the pending line, dropped bytes included
        self._over = False  # the pending line is too long: `_pending` is its head alone

    def feed(self, block: bytes) -> list[bytes | Oversize]:
        """The lines that end in this block, without their newline."""
        head, newline, rest = block.partition(b"\n")
        if not newline:
            self._keep(block)
            return []
        if self._size:
            self._keep(head)
            first = self._take()
        elif len(head) > self._max:
            first = Oversize(head[:HEAD_BYTES], len(head))
        else:
            first = head
        lines: list[bytes | Oversize] = [first]
        if rest:
            more = rest.split(b"\n")
            tail = more.pop()
            if tail:
                self._keep(tail)
            if len(rest) > self._max:  # otherwise none of them can be too long
                lines += [x if len(x) <= self._max else Oversize(x[:HEAD_BYTES], len(x)) for x in more]
            else:
                lines += more
        return lines

    def end(self) -> list[bytes | Oversize]:
        """What stood behind the last newline, at the end of the stream."""
        return [self._take()] if self._size else []

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._max:
            self._pending.append(part)
        elif not self._over:
            # From here on only the head is held. No part is empty, so HEAD_BYTES parts are enough.
            self._over = True
            self._pending = [b"".join([*self._pending[:HEAD_BYTES], part])[:HEAD_BYTES]]

    def _take(self) -> bytes | Oversize:
        pending, size, over = self._pending, self._size, self._over
        self._pending, self._size, self._over = [], 0, False
        return Oversize(pending[0], size) if over else b"".join(pending)


class Oversize:
    """A line that was longer than allowed: its beginning and its size in bytes."""

    __slots__ = ("head", "size")

    def __init__(self, head: bytes, size: int) -> None:
        self.head = head
        self.size = size

    def events(self, control: Callable[[dict[str, Any], bytes], object] | None) -> list[Event]:
        """One event. But a control frame goes to `control` without its content: somebody waits for it."""
        if control is not None:
            from ._recover import frame

            why = f"its line has {self.size} bytes, which is more than max_line_bytes"
            if (asked := frame(self.head.decode("utf-8", "replace"), why)) is not None:
                control(asked, self.head)
                return []
        return [self.event()]

    def event(self) -> Event:
        shown = self.head.decode("utf-8", "replace")
        text = f"a line of {self.size} bytes, which begins with: {shown}"
        return make({"type": "oversize", "text": text, "_line": self.head})


class Odd:
    """Counts the lines that were not understood and keeps the last few, cut short."""

    def __init__(self) -> None:
        self.count = 0
        self.last: deque[str] = deque(maxlen=_KEPT_ODD_LINES)

    def add(self, line: bytes) -> None:
        self.count += 1
        self.last.append(line[:HEAD_BYTES].decode("utf-8", "replace"))

    def no_line_came(self) -> str:
        """That no other lines came than these."""
        others = f" that is the CLI's, but {self.count} others, the last {self.last[-1]!r:.100}" if self.last else ""
        return f"no line came{others}"
