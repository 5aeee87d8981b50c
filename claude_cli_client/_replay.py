"""Lines that were kept: one line at a time (`parse_line`), or a whole archive (`replay`).

The same parser and the same reducer as a run's, so an archive written with `line_sink` gives the
events of the run, but for what no line holds: the `exit_code`, what a turn of a session cost where the
CLI only said what all of it did, and what a store did not take (`mirror_error`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from ._lines import LineCutter, Odd, Oversize
from ._parse import parse
from ._reduce import Reducer
from ._verdict import Facts, verdict
from .errors import StaleSessionError
from .events import Event
from .options import DEFAULTS

_BLOCK = 65536


def parse_line(line: str | bytes) -> list[Event]:
    """The events of one line of the CLI's output; [] for blank lines, hidden frames and no JSON.

    Stateless: no event is terminal, and what belongs to a whole turn (cost, fallback text) is
    missing. Raises nothing for any content.
    """
    if isinstance(line, str):
        line = line.encode("utf-8", "surrogatepass")
    return parse(line.rstrip(b"\r\n"), Odd())


def replay(path: str | os.PathLike[str]) -> Replay:
    """The events of an archived turn, in order, with one terminal event at the end.

    `~` is the home. Reads the file as it goes, lines of any length up to 256 MiB. Raises `OSError` if it cannot be
    opened. Close it, or iterate to the end.
    """
    return Replay(open(os.path.expanduser(path), "rb"))


class Replay(Iterator[Event]):
    """An iterator of events over an open archive. A context manager. One thread at a time."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._cutter = LineCutter(DEFAULTS["max_line_bytes"])
        self._odd = Odd()
        # Whether the turn resumed another is not in the archive.
        self._reducer = Reducer(resumed=True)
        self._batch: Iterator[Event] = iter(())

    def __iter__(self) -> Replay:
        return self

    def __next__(self) -> Event:
        while True:
            for event in self._batch:
                return event
            if self._file.closed:
                raise StopIteration
            self._batch = iter(self._more())

    def _more(self) -> list[Event]:
        block = self._file.read(_BLOCK)
        lines = self._cutter.feed(block) if block else self._cutter.end()
        found: list[Event] = []
        for line in lines:
            found += [line.event()] if isinstance(line, Oversize) else parse(line, self._odd)
        events = self._reducer.add(found)
        if not block:
            self._file.close()
            events.append(self._reducer.end("process", "the recording ends without a result", None))
        return events

    def close(self) -> None:
        """Close the file; iterating ends then. Idempotent."""
        self._file.close()
        self._batch = iter(())

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def is_stale_session(event: Event) -> bool:
    """Whether this terminal event says that the session to resume does not exist."""
    return isinstance(verdict(event, Facts()), StaleSessionError)
