"""Client: defaults, slots, and the way from a prompt to a started Run.

What happens in `run`, in order: options are merged and checked, the CLI is found, a slot is taken,
the channel starts the process on its reader's thread. Whatever fails gives back, in reverse order,
what was taken. The client holds no thread, process or descriptor of its own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, cast, overload

from . import _fork
from ._pool import Pool, Slot
from ._sync import check_timeout
from .errors import ClaudeError
from .events import Event
from .options import DEFAULTS
from .run import Run, answer_of

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Literal

    from typing_extensions import Unpack

    from ._channel import Channel
    from ._mirror import Storing
    from .conversation import Conversation
    from .options import ConversationOptions, RunOptions, StrPath, TurnOptions
    from .session import Session
    from .store import SessionStore
    from .totals import Capacity, Totals


class _Given(float):
    """A default that shows as its number and tells "not given" from the same number given.

    So `help(Client.run)` shows the limits, and a client's own defaults still count.
    """


_TIMEOUT: Any = _Given(DEFAULTS["timeout"])
_IDLE_TIMEOUT: Any = _Given(DEFAULTS["idle_timeout"])
_START_TIMEOUT: Any = _Given(DEFAULTS["start_timeout"])


class Client:
    """Runs turns of the Claude Code CLI, at most `max_concurrent` at a time.

    May be shared between threads, and used after a fork. A context manager: leaving it ends its
    runs. `defaults` are options (see `RunOptions`) for every run; a call's own override them.

    `store` gets what the CLI writes of a session: in batches, or with `store_flush="eager"` after every frame. A run
    that goes on from a store, or is isolated, is eager anyway: its own files go with it, so they could not make up for
    what a host that dies has not stored.

    Raises `TypeError` for unknown options, `ValueError` for wrong ones, and `RuntimeError` with the
    remedy in places where threads or processes do not work as they must (gevent or eventlet
    patching, uWSGI without threads, subinterpreters, Windows).
    """

    def __init__(
        self,
        *,
        cli_path: StrPath | None = None,
        max_concurrent: int = 4,
        settings_dir: StrPath | None = None,
        settings_cache_ttl: float = 3600.0,
        store: SessionStore | None = None,
        store_flush: Literal["batched", "eager"] = "batched",
        **defaults: Unpack[RunOptions],
    ) -> None:
        from ._places import refuse_unfit_places

        refuse_unfit_places()  # before the imports that fail there
        # What a turn needs is imported here: not with the package, and not within the first turn. And what
        # says why one cannot start: out of descriptors nothing can be imported.
        from . import _ask_version, _exec_errors, _map, _probe, _reader, _verdict, totals  # noqa: F401

        if isinstance(max_concurrent, bool) or not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError(f"max_concurrent must be a whole number of at least 1, not {max_concurrent!r}")
        if not isinstance(settings_cache_ttl, (int, float)) or not settings_cache_ttl >= 0:
            raise ValueError(f"settings_cache_ttl must be seconds, 0 for no cache, not {settings_cache_ttl!r}")
        self._cli_path = cli_path
        self._settings_dir = settings_dir
        self._settings_ttl = settings_cache_ttl
        self._settings: tuple[float, list[Path]] | None = None
        self._storing = _storing(store, store_flush)
        self._defaults = self._merged({}, cast("Mapping[str, Any]", defaults))
        self._pool = Pool(max_concurrent)

    # --- turns

    def run(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        timeout: float | None = _TIMEOUT,
        idle_timeout: float | None = _IDLE_TIMEOUT,
        start_timeout: float | None = _START_TIMEOUT,
        slot_timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> Run:
        """Start a turn and return it as an iterator of events.

        Blocks until a slot is free (at most `slot_timeout` seconds, None: the client's own limit, else
        as long as it takes) and the process is started; with `resume=` and a store also until that has
        loaded the session. From then on it ends within `timeout` seconds, or after
        `idle_timeout` seconds without a line, or when no first line comes in `start_timeout`. Keep what is
        returned: when nobody refers to it any more, the turn is cancelled.

        Raises at once, before anything starts: `TypeError`, `ValueError` for options and prompt;
        `CLINotFoundError`, `StartError`, `SlotTimeoutError`, `ClientClosedError`; `ConcurrencyError` where
        no slot can ever come free; `StoreError` and `SessionInUseError` of a store that is asked for the
        session. A turn that fails later raises nothing here: see `Run.result`.

        `options` are those of the client and override them; each is described in `RunOptions`.
        """
        limits = _limits(timeout, idle_timeout, start_timeout, slot_timeout)
        return self._start(prompt, given={**limits, **options})

    def ask(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        timeout: float | None = _TIMEOUT,
        idle_timeout: float | None = _IDLE_TIMEOUT,
        start_timeout: float | None = _START_TIMEOUT,
        slot_timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> Event:
        """Run a turn to its end; the result event, whose `result` is the answer.

        Blocks for the whole turn. Raises what `run` raises, and a `TurnError` for a turn that
        brought no answer. Nothing of the turn is left when it returns or raises. `options`: see
        `RunOptions`.
        """
        limits = _limits(timeout, idle_timeout, start_timeout, slot_timeout)
        return answer_of(self._start(prompt, given={**limits, **options}))

    @overload
    def map(
        self,
        prompts: Iterable[str],
        *,
        return_exceptions: Literal[False] = False,
        timeout: float | None = ...,
        idle_timeout: float | None = ...,
        start_timeout: float | None = ...,
        slot_timeout: float | None = ...,
        **options: Unpack[TurnOptions],
    ) -> Iterator[Event]: ...

    @overload
    def map(
        self,
        prompts: Iterable[str],
        *,
        return_exceptions: bool,
        timeout: float | None = ...,
        idle_timeout: float | None = ...,
        start_timeout: float | None = ...,
        slot_timeout: float | None = ...,
        **options: Unpack[TurnOptions],
    ) -> Iterator[Event | Exception]: ...

    def map(
        self,
        prompts: Iterable[str],
        *,
        return_exceptions: bool = False,
        timeout: float | None = _TIMEOUT,
        idle_timeout: float | None = _IDLE_TIMEOUT,
        start_timeout: float | None = _START_TIMEOUT,
        slot_timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> Iterator[Any]:
        """The result of each prompt, in order, with up to `max_concurrent` turns at a time.

        Prompts are taken as slots come free, so they may be endless. A turn that fails raises when
        it is its turn, and ends the others; with `return_exceptions` the exception takes the place
        of the result instead. Closing or dropping the iterator ends what runs. `options`: see
        `RunOptions`.
        """
        from ._map import Map

        if isinstance(prompts, str):
            raise TypeError("map takes prompts, and a string is a single one: give a list of it, or use ask")
        limits = _limits(timeout, idle_timeout, start_timeout, slot_timeout)
        given = {**limits, **options}
        merged = self._merged(self._defaults, given)  # a wrong option is told here, not at the first prompt
        if merged.get("session_id") or (
            (merged.get("resume") or merged.get("continue_conversation")) and not merged.get("fork_session")
        ):
            raise ValueError(
                "map runs its prompts side by side, and a session takes one at a time: leave out session_id, "
                "and give fork_session=True with resume or continue_conversation"
            )
        start = functools.partial(self._try_to_start, given=given)
        return Map(self._pool.size, start, prompts, return_exceptions)

    def with_options(self, **defaults: Unpack[RunOptions]) -> Client:
        """A client with other defaults (over this one's) and the same slots, store, totals and end."""
        other = self._copy()
        other._defaults = self._merged(self._defaults, cast("Mapping[str, Any]", defaults))
        return other

    def probe(self, **options: Unpack[RunOptions]) -> Capacity:
        """Can I work now, and if not, when? One tiny turn, without tools, that leaves no transcript.

        Blocks for the turn: a second or two; for a slot a minute and for the turn two at most. It
        costs some tokens. Raises only what the caller did wrong (`TypeError`, `ValueError`,
        `ClientClosedError`); everything else is the answer.
        """
        from ._probe import probe

        storeless = self._copy()
        storeless._storing = None
        return probe(storeless._start, lambda: self._pool.closed, cast("Mapping[str, Any]", options))

    def session(
        self,
        *,
        timeout: float | None = _TIMEOUT,
        idle_timeout: float | None = _IDLE_TIMEOUT,
        start_timeout: float | None = _START_TIMEOUT,
        slot_timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> Session:
        """Start a live session: one process, many turns, control requests in between.

        Takes a slot until it is closed. Blocks until the CLI has answered, at most `start_timeout`
        seconds. `timeout` and `idle_timeout` are those of each turn, and between turns there is none.
        Raises what `run` raises, and a `TurnError` when the CLI does not start (an unknown session to
        resume; no answer in time, a `TurnTimeout`). Background tasks are waited for: `background="wait"`.
        `options`: see `RunOptions`.
        """
        try:
            from ._open_session import open_session
        except (OSError, ImportError) as error:
            from .discovery import refused

            raise refused(os.fsdecode(self._cli_path or "claude"), error) from error
        limits = _limits(timeout, idle_timeout, start_timeout, slot_timeout)
        return open_session(self._pool, self._cli_path, self._storing, self._defaults, {**limits, **options})

    def conversation(
        self,
        resume: str | Mapping[str, Any] | None = None,
        *,
        restart_stale: bool = False,
        **options: Unpack[ConversationOptions],
    ) -> Conversation:
        """A conversation with a process for each turn: it carries the session's id along.

        `resume`: a session's id or title, or what `Conversation.to_dict` gave. Starts nothing.
        With `restart_stale` a session that does not exist any more is begun anew, without history (not
        where that is not sure: a store without `list_sessions` may have it in another project).
        Raises `TypeError`, `ValueError`.
        """
        from .conversation import Conversation

        return Conversation(self, resume, restart_stale=restart_stale, **options)

    # --- the CLI and its settings

    def check_ready(self, timeout: float = 10.0) -> str:
        """The version of the CLI, which it is asked for. Blocks at most `timeout` seconds or so.

        Raises `CLINotFoundError`, `StartError` or `CLIVersionError` if it cannot run. Does not
        look at credentials: see `probe`.
        """
        check_timeout(timeout, endless=False)
        _fork.check()
        from ._launch import environment
        from .discovery import cli_version, locate

        if self._defaults.get("command_prefix"):
            raise ValueError("check_ready asks the CLI of this machine, and with command_prefix another one runs")
        return cli_version(locate(self._cli_path), timeout, environment(self._defaults))

    def is_ready(self, timeout: float = 10.0) -> bool:
        """Whether `check_ready` succeeds."""
        try:
            self.check_ready(timeout)
        except ClaudeError:
            return False
        return True

    def list_settings(self) -> list[Path]:
        """`settings.json` and `*-settings.json` in `settings_dir` (default `~/.claude`), sorted.

        Cached for `settings_cache_ttl` seconds. An absent folder is an empty list. Raises
        `RuntimeError` when the folder is under `~` and HOME is not set.
        """
        known = self._settings
        if known is not None and monotonic() - known[0] < self._settings_ttl:
            return list(known[1])
        from pathlib import Path

        from ._home import expanded

        folder = os.fsdecode(self._settings_dir) if self._settings_dir is not None else "~/.claude"
        if folder.startswith("~") and not os.environ.get("HOME"):
            raise RuntimeError(f"HOME is not set, so {folder} cannot be found; give settings_dir=")
        found = [
            path
            for path in Path(expanded("settings_dir", folder)).glob("*settings.json")
            if path.name == "settings.json" or path.name.endswith("-settings.json")
        ]
        self._settings = (monotonic(), sorted(found))
        return sorted(found)

    # --- its end

    @property
    def totals(self) -> Totals:
        """What the turns of this client, and of those from `with_options`, added up to so far."""
        _fork.check()
        return self._pool.totals()

    def close(self, timeout: float = 10.0) -> None:
        """Refuse new runs, wake those that wait for a slot, end the others.

        Blocks until they have ended, at most `timeout` seconds; their ends go on after that. Any
        thread, idempotent. Clients from `with_options` are closed too.
        """
        check_timeout(timeout, endless=False)
        _fork.check()
        self._pool.close(timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(
            "a Client holds slots and processes of this host and cannot be pickled: "
            "make one in the process that uses it (a module-level Client is fine: it survives a fork)"
        )

    # --- how a run is started

    def _copy(self) -> Client:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def _merged(self, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        from ._launch import merge_with

        return merge_with(self._storing, defaults, given)

    def _start(self, prompt: str | Sequence[Mapping[str, Any]], *, given: Mapping[str, Any]) -> Run:
        run = self._try_to_start(prompt, True, given=given)
        assert run is not None  # it waits for a slot
        return run

    def _try_to_start(
        self, prompt: str | Sequence[Mapping[str, Any]], patient: bool, *, given: Mapping[str, Any]
    ) -> Run | None:
        """Start a turn; None where it would have to wait for a slot and is not `patient`.

        The slot is given back here if anything fails, and by the reader when the run has ended.
        """
        from ._channel import Channel
        from ._launch import merge_with, prepare

        _fork.check()
        pool = self._pool
        slot = Slot()
        channel: Channel | None = None
        try:
            options = merge_with(self._storing, self._defaults, given)
            try:
                launch = prepare(options, prompt, self._cli_path, self._storing)
            except (OSError, ImportError) as error:  # a module of ours, or a file of settings, cannot be read
                from .discovery import refused

                raise refused(os.fsdecode(self._cli_path or "claude"), error) from error
            if patient:
                pool.take(slot, options.get("slot_timeout"))
            elif not pool.try_take(slot):
                return None
            if launch.duplex is not None:
                launch.duplex.slot = slot
            if launch.restore is not None:
                launch.restore.load(lambda: pool.closed, launch.timeout)
            channel = Channel(launch, lambda over, terminal: pool.ended(over, slot, terminal))
            pool.began(channel)
            channel.start()
            return Run(channel)
        except BaseException:
            pool.start_failed(slot, channel)
            raise


def _storing(store: SessionStore | None, flush: str) -> Storing | None:
    if store is None:
        if flush != "batched":
            raise ValueError("store_flush says when a store gets what is written: give store=, too")
        return None
    from . import _restore  # noqa: F401 - what a turn needs is imported here
    from ._mirror import storing

    return storing(store, flush)


def _limits(timeout: Any, idle: Any, start: Any, slot: Any) -> dict[str, Any]:
    """The limits that the caller gave; the others come from the client, or are the defaults."""
    given = {"timeout": timeout, "idle_timeout": idle, "start_timeout": start}
    limits = {name: value for name, value in given.items() if not isinstance(value, _Given)}
    return limits if slot is None else {**limits, "slot_timeout": slot}
