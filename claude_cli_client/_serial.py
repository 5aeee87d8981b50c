"""One at a time: calls of tools that may not overlap, across all sessions that share a server.

The calls of one server wait for a lock that is held across the tool's code. Only other such calls
wait for it, each on a callback's thread, and every wait ends: with the lock, with the cancellation
of the call that waits, or `PATIENCE` after the cancellation of the call that has it. A tool that
hangs and whose answer nobody wants any more would else hold up every later turn of the host.

A tool may run a turn that calls tools of the same server. Such a call would wait for the one that waits for
it, so calls within a call take turns among themselves. They are told by the context in which they are
made, which is that of whoever began their run; so a session that was begun before the call is not within it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Final
from weakref import WeakKeyDictionary

from . import _fork, _log
from .mcp import ToolServer

PATIENCE: Final = 5.0  # seconds for a tool to notice that its call was cancelled
_LOOK: Final = 0.2  # seconds between looks at what may end the wait otherwise; only where there is one


class _Turns:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.call: threading.Event | None = None  # the cancellation of the call that has the lock


class _Line:
    """Where calls of a server wait for each other: all of them, or those within one call."""

    def __init__(self, server: ToolServer) -> None:
        self.name = server.name
        self.turns = _Turns()  # replaced when a call is passed over
        self.is_over = False  # the call that these are within


_lines: WeakKeyDictionary[ToolServer, _Line] = WeakKeyDictionary()
_table = threading.Lock()  # of `_lines`, and of who has a line's lock; held for a few steps
_within: ContextVar[tuple[tuple[ToolServer, _Line], ...]] = ContextVar("within", default=())  # the innermost first


@contextmanager
def one_at_a_time(server: ToolServer, cancelled: threading.Event) -> Iterator[bool]:
    """Wait until no other call of this server is at work. False: the call was cancelled meanwhile."""
    turns = _take(_line(server), cancelled)
    inner = _Line(server)
    outer = _within.set(((server, inner), *_within.get()))
    try:
        yield turns is not None
    finally:
        _within.reset(outer)
        inner.is_over = True  # a run that outlives the call is within it no longer
        if turns is not None:
            turns.call = None
            turns.lock.release()


def _line(server: ToolServer) -> _Line:
    for known, line in _within.get():
        if known is server and not line.is_over:
            return line
    with _table:
        return _lines.setdefault(server, _Line(server))


def _take(line: _Line, cancelled: threading.Event) -> _Turns | None:
    given_up: tuple[threading.Event, float] | None = None  # a cancelled call that has the lock, and until when
    while not cancelled.is_set():
        turns = line.turns
        if turns.lock.acquire(timeout=_LOOK):
            with _table:
                if line.turns is turns and not cancelled.is_set():
                    turns.call = cancelled
                    return turns
            turns.lock.release()  # it was replaced meanwhile, or nobody wants the call any more
            continue
        call = turns.call
        if call is None or not call.is_set():
            given_up = None
        elif given_up is None or given_up[0] is not call:
            given_up = call, monotonic() + PATIENCE
        elif monotonic() >= given_up[1]:
            _pass_over(line, turns)
    return None


def _pass_over(line: _Line, turns: _Turns) -> None:
    """The next calls get a lock of their own. By whoever sees it first."""
    with _table:
        if line.turns is not turns:
            return
        line.turns = _Turns()
    _log.warning(
        "a tool of %s goes on %s s after its call was cancelled; the others do not wait for it any longer",
        line.name or "an in-process server",
        PATIENCE,
    )


def _begin_anew() -> None:
    """In a forked child: the locks may be held by threads that are not here."""
    global _table
    _table = threading.Lock()
    _lines.clear()
    _within.set(())


_fork.on_child(_begin_anew)
