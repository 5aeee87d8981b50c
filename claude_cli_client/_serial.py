"""One at a time: calls of tools that may not overlap, across all sessions that share a server.

The calls of one server wait for a lock that is held across the tool's code. Only other such calls
wait for it, each on a callback's thread, and every wait ends: with the lock, with the cancellation
of the call that waits, or `PATIENCE` after the cancellation of the call that has it. A tool that
hangs and whose answer nobody wants any more would else hold up every later turn of the host.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


_turns: WeakKeyDictionary[ToolServer, _Turns] = WeakKeyDictionary()
_table = threading.Lock()  # of `_turns`; held for a few steps


@contextmanager
def one_at_a_time(server: ToolServer, cancelled: threading.Event) -> Iterator[bool]:
    """Wait until no other call of this server is at work. False: the call was cancelled meanwhile."""
    turns = _take(server, cancelled)
    try:
        yield turns is not None
    finally:
        if turns is not None:
            turns.call = None
            turns.lock.release()


def _take(server: ToolServer, cancelled: threading.Event) -> _Turns | None:
    given_up: tuple[threading.Event, float] | None = None  # a cancelled call that has the lock, and until when
    while not cancelled.is_set():
        with _table:
            turns = _turns.setdefault(server, _Turns())
        if turns.lock.acquire(timeout=_LOOK):
            with _table:
                if _turns.get(server) is turns and not cancelled.is_set():
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
            _pass_over(server, turns)
    return None


def _pass_over(server: ToolServer, turns: _Turns) -> None:
    """The next calls get a lock of their own. By whoever sees it first."""
    with _table:
        if _turns.get(server) is not turns:
            return
        _turns[server] = _Turns()
    _log.warning(
        "a tool of %s goes on %s s after its call was cancelled; the others do not wait for it any longer",
        server.name or "an in-process server",
        PATIENCE,
    )


def _begin_anew() -> None:
    """In a forked child: the locks may be held by threads that are not here."""
    global _table
    _table = threading.Lock()
    _turns.clear()


_fork.on_child(_begin_anew)
