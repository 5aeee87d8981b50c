"""User callables that see raw output: `line_sink` and `on_stderr`, on a thread of their own.

They may block or fail; the run must not. So the reader only hands over, and one thread per run
calls. At the run's end they get a bounded time to catch up; a sink that blocks for ever keeps its
daemon thread and nothing else. What it has not taken is limited too: beyond `max_backlog` bytes
lines are left out, and a warning says so.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from . import _log
from ._lines import LineCutter, Oversize
from ._sync import Latch

_STDERR_LINE: Final = 1 << 20  # bytes; a longer one is cut to its head


class Sinks:
    """Calls sinks in order, each item once. All but the calls is the reader's."""

    def __init__(
        self,
        name: str,
        max_backlog: int,
        line_sink: Any,
        on_stderr: Callable[[str], object] | None,
    ) -> None:
        """`line_sink`: a function, or a file, which is flushed at the end: an archive must be whole then."""
        self._line_sink: Callable[[bytes], object] | None = getattr(line_sink, "write", line_sink)
        self._flush: Callable[[], object] | None = getattr(line_sink, "flush", None)
        self._on_stderr = on_stderr
        self._stderr = LineCutter(_STDERR_LINE)
        self._items: queue.SimpleQueue[tuple[Callable[..., object], object, int] | None] = queue.SimpleQueue()
        self._max_backlog = max_backlog
        self._given = 0  # bytes, written by the reader alone
        self._taken = 0  # bytes, written by the sink's thread alone
        self._dropped = 0
        self._failed: set[int] = set()  # by identity: a callable need not be hashable, and may equal another
        self._done = Latch()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def stdout(self, lines: Iterable[bytes | Oversize]) -> None:
        """These lines came, whole and without their newline."""
        if self._line_sink is not None:
            for line in lines:
                self._put(self._line_sink, _bytes(line) + b"\n")

    def stderr(self, block: bytes) -> None:
        """This came, cut anywhere."""
        self._give_stderr(self._stderr.feed(block))

    def end_stderr(self) -> None:
        """No more will: what is left is a line."""
        self._give_stderr(self._stderr.end())

    def _give_stderr(self, lines: Iterable[bytes | Oversize]) -> None:
        if self._on_stderr is not None:
            for line in lines:
                self._put(self._on_stderr, _bytes(line).decode("utf-8", "replace"))

    def _put(self, sink: Callable[..., object], item: bytes | str) -> None:
        """Hand one item over; never blocks."""
        size = len(item)
        if self._given - self._taken > self._max_backlog:
            self._dropped += 1
            return
        self._given += size
        self._items.put((sink, item, size))

    def finish(self, seconds: float) -> list[str]:
        """No more items; wait until all are taken, at most so long. What there is to log."""
        remarks = []
        self._items.put(None)
        if not self._done.wait(seconds):
            remarks.append(f"a sink did not take all lines within {seconds} s; the run ends without it")
        else:
            self._thread.join(1.0)  # it has only to return
        if self._dropped:
            remarks.append(f"{self._dropped} lines were not given to a sink that was too slow")
        return remarks

    def _main(self) -> None:
        # One blocking call. It ends with the mark that `finish` puts, on every path of the reader.
        while (job := self._items.get()) is not None:
            sink, item, size = job
            self._call(sink, sink, item)
            self._taken += size
        if self._flush is not None:
            self._call(self._line_sink, self._flush)
        self._done.open()

    def _call(self, sink: object, call: Callable[..., object], *items: object) -> None:
        if id(sink) in self._failed:
            return
        try:
            call(*items)
        except BaseException as error:  # noqa: BLE001 - whatever it raises, the run goes on
            self._failed.add(id(sink))
            _log.warning("a sink failed and is not called again: %s", _log.place_of(error, call))


def _bytes(line: bytes | Oversize) -> bytes:
    """The line, or the head that was kept of it."""
    return line.head if isinstance(line, Oversize) else line
