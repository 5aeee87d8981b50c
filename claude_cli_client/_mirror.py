"""The mirror: what the CLI writes into its transcripts goes to a store, while the turn runs.

With `--session-mirror` the CLI repeats each line of its transcripts on stdout, in frames that no user sees. The
reader hands them over (`put`); it never calls the store, which may take its time or for ever. One worker thread
a run does, a daemon, begun with the first frame. What is of one file is appended in the order of the file, in one
call for each flush: at a result, at the end of the output, and when much is waiting; or after every frame (`eager`),
also where the CLI's own file goes with the run (`sole`), for there a host that dies takes the rest with it.

A store can fail in every way there is, and the run goes on:
* An `append` that raises, whatever it raises, is tried three times; then the batch is lost.
* One that does not come back cannot be ended. After `APPEND_LIMIT` the reader takes its batch away, which is not
  tried again, since it may still arrive, and begins another worker for the rest. Nobody watches for that: the
  reader looks when it has something to hand over, or waits.
* What waits is limited (`MAX_BACKLOG`); beyond it frames are lost.

What is lost is told by `report` as events, one for each file. Who may say what became of a batch is decided by one
atomic step (`_Batch.settle`), so a worker that comes back late finds that its batch is not its own any more, and
ends. There is no lock here, and nothing waits but `finish`.

With `sole` an outage in the middle of a turn, which a batch at its end would not have met, must cost nothing. So the
worker stays with what failed, and what comes waits behind it: the order holds, and the rest follows as soon as the
store is there. That ends, for after `flush` there is one more round: three tries for the first batch, then one
for each, and after `DOWN_LIMIT` none, so that the end takes no longer for what has gathered. What fails
may have been refused, and must not keep the rest then: so the next batch is tried, too, and if it is stored, the first
has its last round. Should the store come back just between the two, they change places; so that is not done at once,
nor behind a slow failure, which is no refusal. Two refused ones in a row look like an outage, until the result.

`finish` holds the run's end, so that a terminal event means that the store has the turn. It is
bounded, and by less when somebody wants to leave.
"""

from __future__ import annotations

import contextvars
import itertools
import math
import queue
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final, NamedTuple

from . import _cleanup
from ._losses import UNWRITTEN, Fault, Loss, event_of, fault_of, sentence
from ._store_calls import copies
from ._sync import WakeUp
from .events import Event
from .store import SessionKey, SessionStore, must_be_store, optional

Json = Mapping[str, Any]

PAUSES: Final = (0.2, 0.8)  # seconds between the tries: a connection that broke is there again
PERSISTENCE: Final = 2.0  # seconds between the tries of what the store has not taken, while the turn goes on
QUICK: Final = 0.5  # seconds: a refusal does not take longer
DOWN_LIMIT: Final = 3.0  # seconds without a success at the end: then the rest is not tried
APPEND_LIMIT: Final = 60.0  # seconds for one call of `append`
FLUSH_ENTRIES: Final = 500  # more than this, or
FLUSH_BYTES: Final = 1 << 20  # more than this is not kept until the next result
AHEAD: Final = 4  # batches that may wait in front of a frame that is handed over at once: else a slow store, called
# for each, would not have them all within the time it has at the end
MAX_BACKLOG: Final = 64 << 20  # bytes of lines; decoded they take some times as much
LOGGED_WORDS: Final = 200  # characters of an exception's first line


class Storing(NamedTuple):
    """A store, and how a client wants it to be used."""

    store: SessionStore
    eager: bool = False
    lists: bool = False  # so that it knows the latest session
    sole: bool = False  # no file of the CLI's stays; then it is eager, too


def storing(store: Any, flush: str) -> Storing:
    """Raises ValueError and TypeError for what is no store, see `must_be_store`."""
    must_be_store(store)
    if flush not in ("batched", "eager"):
        raise ValueError(f"store_flush must be 'batched' or 'eager', not {flush!r}")
    return Storing(store, flush == "eager", optional(store, "list_sessions") is not None)


_NO_PLACE: Final = Fault("LookupError", "a file that is not below CONFIG/projects has no key")


class _Batch:
    """Entries of one file. Filled by the reader, then the worker's, until one of them settles it."""

    __slots__ = ("_outcome", "began", "entries", "flushed", "key", "path", "size")

    def __init__(self, key: SessionKey, path: str, flushed: threading.Event) -> None:
        self.key = key
        self.path = path
        self.flushed = flushed  # set by the flush behind it: the worker may not stay with it any more
        self.entries: list[Json] = []
        self.size = 0
        self.began = math.inf  # when the call of `append` that is on began
        self._outcome: dict[str, tuple[Fault | None]] = {}

    def settle(self, fault: Fault | None) -> bool:
        """Say what became of it, None: stored. Whether the caller is the first to say so."""
        mine = (fault,)
        return self._outcome.setdefault("", mine) is mine

    @property
    def outcome(self) -> tuple[Fault | None] | None:
        return self._outcome.get("")


class Mirror:
    """Everything but the worker is called on the run's reader thread."""

    def __init__(
        self,
        storing: Storing,
        locate: Callable[[str], tuple[str, str, str | None] | None],
        *,
        name: str,
        context: contextvars.Context,
        wake: WakeUp,
    ) -> None:
        """`locate` tells whose transcript a path is. `wake` is set when a batch is settled.

        `context`: the caller's, as for callbacks. A store may look there for whom it works.
        """
        self._store = storing.store
        self._eager = storing.eager or storing.sole
        self._sole = storing.sole
        self._locate = locate
        self._name = name
        self._context = context
        self._wake = wake
        self._keys: dict[str, SessionKey | None] = {}
        self._filling: dict[str, _Batch] = {}  # by path
        self._entries = self._bytes = 0  # in `_filling`
        self._open: deque[_Batch] = deque()  # handed over; one of the first two may be in a call of `append`
        self._waiting = 0  # bytes in `_open`
        self._batches: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._next_flush = threading.Event()  # of each batch that is filled before it
        self._line: deque[_Batch | None] = deque()  # the worker's, and its successor's: the first, and the next
        self._down: tuple[float, Fault] | None = None  # the worker's: since when all fails, and why
        self._worker: threading.Thread | None = None
        self._losses: dict[SessionKey, Loss] = {}  # since the last report
        self._all_losses: dict[SessionKey, Loss] = {}
        self._counted = 0  # of `lost`: those that somebody else has counted
        self.lost = 0  # entries, in all
        self.unreadable = 0  # frames of another shape
        self._heard = False  # a frame, since the last turn ended
        self.unwritten = 0  # of `lost`: those that no file has either

    # --- while the run lasts

    def put(self, frame: Json, size: int) -> None:
        """Take a frame, a line of `size` bytes. Never blocks."""
        self._heard = True
        path, entries = frame.get("filePath"), frame.get("entries")
        key = self._key(path) if isinstance(path, str) else None
        if not isinstance(path, str) or not isinstance(entries, list):
            self.unreadable += 1
            return
        entries = [entry for entry in entries if isinstance(entry, dict)]
        if not entries:
            return  # nothing to write, and no store should see a transcript without entries
        if key is None:
            self._lose(SessionKey("", "", path), path, len(entries), _NO_PLACE)
            return
        if self._worker is None:  # not only when there is something to do: at the interpreter's end none starts
            self._begin()
        self._look()
        if self._waiting + self._bytes > MAX_BACKLOG:
            fault = Fault("BufferError", f"more than {MAX_BACKLOG} bytes wait for it")
            self._lose(key, path, len(entries), fault)
            return
        batch = self._filling.setdefault(path, _Batch(key, path, self._next_flush))
        batch.entries += entries
        batch.size += size
        self._entries += len(entries)
        self._bytes += size
        at_once = self._eager and len(self._open) < AHEAD
        if at_once or self._entries > FLUSH_ENTRIES or self._bytes > FLUSH_BYTES:
            self._hand_over()

    def end_turn(self, session_id: str, messages: int) -> None:
        """A turn has its answer, and so many messages of the model: a CLI that can write has told of some by now."""
        heard, self._heard = self._heard, False
        if messages and not heard:
            self.unwritten += messages
            self._lose(SessionKey("", session_id), "", messages, UNWRITTEN)

    def go_on(self) -> None:
        """A batch may be settled: hand over what was collected behind it. Never blocks."""
        self._look()
        if self._eager and self._filling and len(self._open) < AHEAD:
            self._hand_over()

    def flush(self) -> None:
        """Hand over what has been collected; what the store does not take now is lost. Never blocks."""
        self._hand_over()
        self._next_flush.set()
        self._next_flush = threading.Event()

    @property
    def is_flushed(self) -> bool:
        """Whether all that came before the last flush is stored or lost. Others may write on meanwhile."""
        self._look()
        return not self._open or not self._open[0].flushed.is_set()  # in the order of the flushes

    def report(self, where: Callable[[str], str], *, waiting: bool = False) -> list[Event]:
        """What was lost since the last report; `where` tells where a file's local copy stays.

        With `waiting` also what is still on its way since the flush: it may arrive, and is told again if it does not.
        """
        self._look()
        losses, self._losses = self._losses, {}
        events = [event_of(loss, where(loss.path)) for loss in losses.values()]
        if waiting and self._open:
            late: dict[SessionKey, Loss] = {}
            flushed = itertools.takewhile(lambda batch: batch.flushed.is_set(), self._open)
            for batch in (batch for batch in flushed if batch.outcome is None):  # the second may be stored
                loss = late.setdefault(batch.key, Loss(batch.key, batch.path))
                loss.count += len(batch.entries)
                loss.fault = Fault("TimeoutError", "the turn has ended before")
            events += [event_of(loss, where(loss.path), waiting=True) for loss in late.values()]
        return events

    # --- the end

    def finish(self, limit: float, hurry: Callable[[], float | None]) -> None:
        """No more frames: wait until the store has all, at most `limit` seconds, or lose what is left.

        `hurry`: the seconds that somebody who wants to leave grants, None: nobody does. Ends because
        the deadline only ever comes nearer, and the wait is interrupted by `wake`.
        """
        self.flush()
        poller = select.poll()
        poller.register(self._wake.fd, select.POLLIN)
        deadline = monotonic() + limit
        while not self.is_flushed:
            granted = hurry()
            if granted is not None:
                deadline = min(deadline, monotonic() + granted)
            left = deadline - monotonic()
            if left <= 0:
                break
            # In slices: the clock of `_look` is another bound.
            poller.poll(math.ceil(min(left, 1.0) * 1000))
            self._wake.clear()
        self.abandon(f"it did not take them within {limit:g} s" if hurry() is None else "the run was ended")

    def abandon(self, why: str) -> None:
        """Lose what is left and let the worker end, now or when its store comes back."""
        self.flush()
        stuck = bool(self._open)
        for batch in self._open:
            batch.settle(Fault("TimeoutError", why))
        self._purge()
        _empty(self._batches)  # a worker that is stuck must not keep what nobody waits for
        self._batches.put(None)
        if self._worker is not None and not stuck:
            self._worker.join(1.0)  # it has only to return

    def newly_lost(self) -> int:
        """Entries that were lost since this was asked last."""
        lost, self._counted = self.lost - self._counted, self.lost
        return lost

    def remarks(self, where: Callable[[str], str]) -> list[str]:
        """What there is to log at the end, one for each file: what the events say, for those who see none.

        Of a store's exception, which may quote what it could not store, the beginning of the first line: where
        it is about a connection or a constraint, that says so.
        """
        remarks = []
        for loss in self._all_losses.values():
            words = (loss.fault.words.splitlines() or [""])[0][:LOGGED_WORDS]
            remarks.append(sentence(loss, loss.fault._replace(words=words), where(loss.path)))
        if self.unreadable:
            remarks.append(f"{self.unreadable} frames of the mirror were of an unknown shape")
        return remarks

    # --- the machine room

    def _key(self, path: str) -> SessionKey | None:
        if path not in self._keys:
            place = self._locate(path)
            self._keys[path] = None if place is None else SessionKey(*place)
        return self._keys[path]

    def _hand_over(self) -> None:
        filled, self._filling = list(self._filling.values()), {}
        self._waiting += self._bytes
        self._entries = self._bytes = 0
        self._open += filled
        for batch in filled:
            self._batches.put(batch)
        self._look()

    def _look(self) -> None:
        """Take notice of what is settled; replace a worker that does not come back; begin one."""
        self._purge()
        for batch in tuple(itertools.islice(self._open, 2)):
            if monotonic() - batch.began > APPEND_LIMIT and batch.settle(
                Fault("TimeoutError", f"append did not return within {APPEND_LIMIT:g} s")
            ):
                self._worker = None  # it ends when its call does
                self._purge()
        if self._worker is None and self._open:
            self._begin()

    def _purge(self) -> None:
        while self._open and (outcome := self._open[0].outcome) is not None:
            batch = self._open.popleft()
            fault = outcome[0]
            self._waiting -= batch.size
            if fault is not None:
                self._lose(batch.key, batch.path, len(batch.entries), fault)

    def _lose(self, key: SessionKey, path: str, count: int, fault: Fault) -> None:
        for losses in (self._losses, self._all_losses):
            loss = losses.setdefault(key, Loss(key, path))
            loss.count += count
            loss.fault = fault
        self.lost += count

    def _begin(self) -> None:
        run = self._context.copy().run  # a copy: a worker that hangs is in its own for ever
        worker = threading.Thread(target=run, args=(self._main,), name=self._name, daemon=True)
        try:
            worker.start()
        except RuntimeError as error:  # no thread to be had
            if _cleanup.ending:  # Python 3.12 begins none any more: then the reader, for whom the exit hook waits
                self._batches.put(None)
                self._next_flush.set()  # the reader cannot stay with what fails
                run(self._main)
                return
            for batch in self._open:
                batch.settle(fault_of(error))
            self._purge()
        else:
            self._worker = worker

    # --- the worker's thread

    def _main(self) -> None:
        self._down = None  # what a worker that hangs has found says nothing of what waits behind
        while True:
            if not self._line:
                if self._batches.empty():
                    self._down = None  # what comes then deserves its three tries
                self._line.append(self._batches.get())
            batch = self._line[0]
            if batch is not None and batch.outcome is None and not self._settle(batch):
                return  # given up meanwhile, and somebody else goes on
            self._line.popleft()
            if batch is None:
                return

    def _settle(self, batch: _Batch) -> bool:
        """Try, in rounds, until it is stored or lost. False: given up meanwhile; then `_line` is another's."""
        is_last = not self._sole or (self._down is not None and batch.flushed.is_set())
        while True:
            began, down = monotonic(), self._down
            if is_last and down is not None and began - down[0] > DOWN_LIMIT:
                fault: Fault | None = down[1]
                break
            fault = self._append(batch)
            if fault is None or is_last or not fault.again:
                break
            if down is not None and monotonic() - began < QUICK and (second := self._second()) is not None:
                other = self._append(second)
                if (other is None or not other.again) and not second.settle(other):
                    return False
                if other is None:
                    fault = self._append(batch)
                    break
            if is_last := batch.flushed.wait(PERSISTENCE):
                self._down = None  # three tries again
            if batch.outcome is not None:
                return False
        if not batch.settle(fault):
            return False
        self._wake.set()
        return True

    def _second(self) -> _Batch | None:
        """The batch behind the first, if there is one that nobody has settled."""
        if len(self._line) == 1 and not self._batches.empty():
            self._line.append(self._batches.get())  # `abandon`, which may empty it just now, puts None there
        second = self._line[1] if len(self._line) > 1 else None
        return second if second is not None and second.outcome is None else None

    def _append(self, batch: _Batch) -> Fault | None:
        """Three tries, or one while the store is down; why the last one failed."""
        fault: Fault | None = None
        first = monotonic()
        for pause in (*(PAUSES if self._down is None else ()), None):
            batch.began = began = monotonic()
            try:
                self._store.append(batch.key, copies(batch.entries))
                self._down = None
                return None
            except BaseException as error:  # noqa: BLE001 - whatever it raises, the run goes on
                fault = fault_of(error)
            batch.began = math.inf
            if monotonic() - began > APPEND_LIMIT:
                break
            if pause is None:
                if self._sole:
                    self._down = self._down or (first, fault)
                return fault._replace(again=True)
            time.sleep(pause)
            if batch.outcome is not None:  # given up meanwhile: the store may be closed by now
                break
        return fault


def _empty(items: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            items.get_nowait()
    except queue.Empty:
        return
