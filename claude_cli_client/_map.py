"""The iterator behind `Client.map`: runs ahead, results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ._pool import Pool, Slot
from .errors import ClaudeError
from .events import Event
from .run import Run

_Start = Callable[[str, Slot], Run]


class Map(Iterator[Event]):
    """Holds the runs that are ahead, oldest first; ends them when it is closed or dropped.

    It waits for a slot only when there is nothing ahead, neither in progress nor ready to be given
    out; else it takes what is free, so that clients in other threads are not pushed aside.
    """

    def __init__(
        self,
        pool: Pool,
        start: _Start,
        prompts: Iterable[str],
        return_exceptions: bool,
        slot_timeout: float | None,
    ) -> None:
        self._pool = pool
        self._start = start
        self._prompts = iter(prompts)
        self._return_exceptions = return_exceptions
        self._slot_timeout = slot_timeout
        self._ahead: deque[Run | Exception] = deque()
        self._next: list[str] = []  # the prompt that waits for a slot
        self._exhausted = False

    def __iter__(self) -> Map:
        return self

    def __next__(self) -> Any:
        """The next prompt's result; blocks until it is there."""
        try:
            self._fill()
            if not self._ahead:
                raise StopIteration
            oldest = self._ahead.popleft()
            try:
                if isinstance(oldest, Exception):
                    raise oldest
                with oldest:
                    return oldest.result()
            except (ClaudeError, TypeError, ValueError) as error:
                if self._return_exceptions:
                    return error
                raise
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise

    def _fill(self) -> None:
        """Start what can be started. The prompt first, then its slot: nobody waits for a slot only to
        learn that there is no prompt, and no slot is held while user code makes one."""
        while not self._exhausted and len(self._ahead) < self._pool.size:
            if not self._next:
                try:
                    self._next.append(next(self._prompts))
                except StopIteration:
                    self._exhausted = True
                    return
            slot = Slot()
            if not self._take(slot):
                return
            try:
                self._ahead.append(self._start(self._next.pop(), slot))  # gives the slot back if it fails
            except (ClaudeError, TypeError, ValueError) as error:
                self._ahead.append(error)

    def _take(self, slot: Slot) -> bool:
        try:
            if self._ahead:
                return self._pool.try_take(slot)
            self._pool.take(slot, self._slot_timeout)
        except BaseException:
            self._pool.give_back(slot)
            raise
        return True

    def close(self) -> None:
        """End the runs that are ahead and wait for them, bounded. Idempotent."""
        self._exhausted = True
        self._next.clear()
        ahead = [run for run in self._ahead if isinstance(run, Run)]
        self._ahead.clear()
        for run in ahead:
            run.cancel()
        for run in ahead:
            run.close()
