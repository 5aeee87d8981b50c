"""The iterator behind `Client.map`: runs ahead, results in order.

It has no thread of its own: runs are started where the consumer asks for a result, so nothing happens
before the first `next`. One consumer at a time; a second one would take prompts from the first. Ctrl-C
ends the runs that are ahead and does not wait for them, as with a single run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .errors import ClaudeError, ConcurrencyError
from .events import Event
from .run import Run

# Starts a turn, or gives None where it would have to wait for a slot and is not patient.
_Start = Callable[[str, bool], Run | None]


class Map(Iterator[Event]):
    """Holds the runs that are ahead, oldest first; ends them when it is closed or dropped.

    It waits for a slot only when there is nothing ahead, neither in progress nor ready to be given
    out; else it takes what is free, so that clients in other threads are not pushed aside.
    """

    def __init__(
        self,
        size: int,
        start: _Start,
        prompts: Iterable[str],
        return_exceptions: bool,
    ) -> None:
        self._size = size
        self._start = start
        self._prompts = iter(prompts)
        self._return_exceptions = return_exceptions
        self._ahead: deque[Run | Exception] = deque()
        self._next: list[str] = []  # the prompt that waits for a slot
        self._exhausted = False
        self._consumers: dict[str, object] = {}

    def __iter__(self) -> Map:
        return self

    def __next__(self) -> Any:
        """The next prompt's result; blocks until it is there. `ConcurrencyError` while another call waits for one."""
        me = object()
        try:
            if self._consumers.setdefault("consumer", me) is not me:  # one atomic operation decides
                raise ConcurrencyError("somebody else is taking a result of this map; one at a time")
            return self._following()
        finally:
            if self._consumers.get("consumer") is me:
                del self._consumers["consumer"]

    def _following(self) -> Any:
        try:
            self._fill()
            if not self._ahead:
                raise StopIteration
            oldest = self._ahead.popleft()
            try:
                if isinstance(oldest, Exception):
                    raise oldest
                return self._result_of(oldest)
            except (ClaudeError, TypeError, ValueError) as error:
                if self._return_exceptions:
                    return error
                raise
        except StopIteration:
            raise
        except KeyboardInterrupt:
            self._abandon()
            raise
        except BaseException:
            self.close()
            raise

    def _result_of(self, run: Run) -> Event:
        try:
            answer = run.result()
        except KeyboardInterrupt:
            raise  # it has cancelled its run, and must come out at once
        except BaseException as error:
            if not (self._return_exceptions and isinstance(error, ClaudeError)):
                self._cancel([run, *self._ahead])  # all at once, before the first is waited for
            run.close()
            raise
        run.close()
        return answer

    @staticmethod
    def _cancel(ahead: Iterable[Run | Exception]) -> None:
        for run in ahead:
            if isinstance(run, Run):
                run.cancel()

    def _fill(self) -> None:
        """Start what can be started. The prompt first, then its slot: nobody waits for a slot only to
        learn that there is no prompt, and no slot is held while user code makes one."""
        while not self._exhausted and len(self._ahead) < self._size:
            if not self._next:
                try:
                    self._next.append(next(self._prompts))
                except StopIteration:
                    self._exhausted = True
                    return
            started: Run | Exception | None
            try:
                started = self._start(self._next[0], not self._ahead)
            except (ClaudeError, TypeError, ValueError) as error:
                started = error
            if started is None:
                return
            self._ahead.append(started)
            self._next.clear()

    def close(self) -> None:
        """End the runs that are ahead and wait for them, bounded. Idempotent."""
        for run in self._abandon():
            run.close()

    def _abandon(self) -> list[Run]:
        """End the runs that are ahead, and do not wait: after Ctrl-C the exit hook does."""
        self._exhausted = True
        self._next.clear()
        ahead = [run for run in self._ahead if isinstance(run, Run)]
        self._ahead.clear()
        self._cancel(ahead)
        return ahead
