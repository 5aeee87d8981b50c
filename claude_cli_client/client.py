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
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from . import _fork
from ._argv import Argument, TextFile, build_argv, shown_argv
from ._channel import Channel, Launch
from ._checks import as_text, check_prompt
from ._env import CONFIG_DIR, build_env, is_nested
from ._files import PrivateFolder
from ._map import Map
from ._places import refuse_unfit_places
from ._pool import Pool, Slot, Totals
from .discovery import cli_version, locate, start_error
from .errors import ClaudeError, RateLimitError
from .events import Event
from .options import DEFAULTS
from .run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Unpack

    from .options import RunOptions, StrPath, TurnOptions


class _Given(float):
    """A default that shows as its number and tells "not given" from the same number given.

    So `help(Client.run)` shows the limits, and a client's own defaults still count.
    """


class _NotGiven:
    def __repr__(self) -> str:
        return "None"


_TIMEOUT: Any = _Given(DEFAULTS["timeout"])
_IDLE_TIMEOUT: Any = _Given(DEFAULTS["idle_timeout"])
_START_TIMEOUT: Any = _Given(DEFAULTS["start_timeout"])
_SLOT_TIMEOUT: Any = _NotGiven()


class Capacity(NamedTuple):
    """What `Client.probe` found. True where a turn can run now."""

    available: bool
    error: ClaudeError | None = None
    """Why not."""
    resets_at: int | None = None
    """Epoch second at which a usage limit ends, where the CLI says so."""
    utilization: float | None = None
    """Share of the usage limit that is spent, 0 to 1, where the CLI says so."""
    model: str = ""
    cost_usd: float | None = None
    duration: float = 0.0
    """Seconds that the probe took."""

    def __bool__(self) -> bool:
        return self.available


class Client:
    """Runs turns of the Claude Code CLI, at most `max_concurrent` at a time.

    May be shared between threads, and used after a fork. A context manager: leaving it ends its
    runs. `defaults` are options (see `RunOptions`) for every run; a call's own override them.

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
        **defaults: Unpack[RunOptions],
    ) -> None:
        refuse_unfit_places()
        if isinstance(max_concurrent, bool) or not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError(f"max_concurrent must be a whole number of at least 1, not {max_concurrent!r}")
        if not isinstance(settings_cache_ttl, (int, float)) or not settings_cache_ttl >= 0:
            raise ValueError(f"settings_cache_ttl must be seconds, 0 for no cache, not {settings_cache_ttl!r}")
        self._cli_path = cli_path
        self._settings_dir = settings_dir
        self._settings_ttl = settings_cache_ttl
        self._settings: tuple[float, list[Path]] | None = None
        self._defaults = _merged({}, cast("Mapping[str, Any]", defaults))
        self._pool = Pool(max_concurrent)

    # --- turns

    def run(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        timeout: float | None = _TIMEOUT,
        idle_timeout: float | None = _IDLE_TIMEOUT,
        start_timeout: float | None = _START_TIMEOUT,
        slot_timeout: float | None = _SLOT_TIMEOUT,
        **options: Unpack[TurnOptions],
    ) -> Run:
        """Start a turn and return it as an iterator of events.

        Blocks until a slot is free (at most `slot_timeout` seconds, None: as long as it takes) and
        the process is started. From then on it ends within `timeout` seconds, or after
        `idle_timeout` seconds without a line, or when no first line comes in `start_timeout`.

        Raises at once, before anything starts: `TypeError`, `ValueError` for options and prompt;
        `CLINotFoundError`, `StartError`, `SlotTimeoutError`, `ClientClosedError`. A turn that fails
        later raises nothing here: see `Run.result`.
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
        slot_timeout: float | None = _SLOT_TIMEOUT,
        **options: Unpack[TurnOptions],
    ) -> Event:
        """Run a turn to its end; the result event, whose `result` is the answer.

        Blocks for the whole turn. Raises what `run` raises, and a `TurnError` for a turn that
        brought no answer. Nothing of the turn is left when it returns or raises.
        """
        limits = _limits(timeout, idle_timeout, start_timeout, slot_timeout)
        with self._start(prompt, given={**limits, **options}) as run:
            return run.result()

    def map(
        self,
        prompts: Iterable[str],
        *,
        return_exceptions: bool = False,
        timeout: float | None = _TIMEOUT,
        idle_timeout: float | None = _IDLE_TIMEOUT,
        start_timeout: float | None = _START_TIMEOUT,
        slot_timeout: float | None = _SLOT_TIMEOUT,
        **options: Unpack[TurnOptions],
    ) -> Iterator[Event]:
        """The result of each prompt, in order, with up to `max_concurrent` turns at a time.

        Prompts are taken as slots come free, so they may be endless. A turn that fails raises when
        it is its turn, and ends the others; with `return_exceptions` the exception takes the place
        of the result instead. Closing or dropping the iterator ends what runs.
        """
        limits = _limits(timeout, idle_timeout, start_timeout, slot_timeout)
        given = {**limits, **options}
        _merged(self._defaults, given)  # a wrong option is told here, not at the first prompt
        slot_limit = {**self._defaults, **given}.get("slot_timeout")
        start = functools.partial(self._start, given=given)
        return Map(self._pool, start, prompts, return_exceptions, slot_limit)

    def with_options(self, **defaults: Unpack[RunOptions]) -> Client:
        """A client with other defaults (over this one's) and the same slots, totals and end."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._defaults = _merged(self._defaults, cast("Mapping[str, Any]", defaults))
        return other

    def probe(self, **options: Unpack[RunOptions]) -> Capacity:
        """Can I work now, and if not, when? One tiny turn, without tools, that leaves no transcript.

        Blocks for the turn: a second or two, two minutes at most. It costs some tokens. Raises only
        what the caller did wrong (`TypeError`, `ValueError`, `ClientClosedError`); everything else
        is the answer.
        """
        began = monotonic()
        given = {**_PROBE, **cast("Mapping[str, Any]", options)}
        utilization: float | None = None
        error: ClaudeError | None = None
        result: Event | None = None
        try:
            with self._start("Reply with the single word OK.", given=given) as run:
                for event in run:
                    if event.utilization is not None:
                        utilization = event.utilization
                    if event.is_terminal:
                        result = event
                error = run.error()
        except ClaudeError as failure:
            if self._pool.closed:
                raise
            error = failure
        return Capacity(
            available=error is None,
            error=error,
            resets_at=error.resets_at if isinstance(error, RateLimitError) else None,
            utilization=utilization,
            model=result.model if result is not None else "",
            cost_usd=result.cost_usd if result is not None else None,
            duration=monotonic() - began,
        )

    # --- the CLI and its settings

    def check_ready(self, timeout: float = 10.0) -> str:
        """The version of the CLI, which it is asked for. Blocks at most `timeout` seconds or so.

        Raises `CLINotFoundError`, `StartError` or `CLIVersionError` if it cannot run. Does not
        look at credentials: see `probe`.
        """
        _fork.check()
        return cli_version(locate(self._cli_path), timeout)

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

        folder = as_text(self._settings_dir) if self._settings_dir is not None else "~/.claude"
        if folder.startswith("~") and not os.environ.get("HOME"):
            raise RuntimeError(f"HOME is not set, so {folder} cannot be found; give settings_dir=")
        found = [
            path
            for path in Path(folder).expanduser().glob("*settings.json")
            if path.name == "settings.json" or path.name.endswith("-settings.json")
        ]
        self._settings = (monotonic(), sorted(found))
        return sorted(found)

    # --- its end

    @property
    def totals(self) -> Totals:
        """What the turns of this client, and of those from `with_options`, added up to so far."""
        _fork.check()
        return self._pool.totals

    def close(self, timeout: float = 10.0) -> None:
        """Refuse new runs, wake those that wait for a slot, end the others.

        Blocks until they have ended, at most `timeout` seconds; their ends go on after that. Any
        thread, idempotent. Clients from `with_options` are closed too.
        """
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

    def _start(
        self, prompt: str | Sequence[Mapping[str, Any]], slot: Slot | None = None, *, given: Mapping[str, Any]
    ) -> Run:
        """Start a turn; with a slot that is taken already, or by taking one. It is given back if
        anything fails, and by the reader when the run has ended."""
        _fork.check()
        pool = self._pool
        taken = slot is not None
        slot = slot or Slot()
        channel: Channel | None = None
        try:
            options = _merged(self._defaults, given)
            launch = _launch(options, check_prompt(cast("str", prompt)), self._cli_path)
            if not taken:
                pool.take(slot, options.get("slot_timeout"))
            held = slot
            channel = Channel(launch, lambda over, terminal: pool.ended(over, held, terminal))
            pool.began(channel)
            _started(channel, launch)
            return Run(channel)
        except BaseException:
            if channel is None or not channel.begun:
                pool.give_back(slot)
            else:
                channel.cancel()
            raise


def _started(channel: Channel, launch: Launch) -> None:
    try:
        channel.start()
    except OSError as error:
        raise start_error(launch.cli_path, error) from error


_PROBE: Mapping[str, Any] = {
    "persist_session": False,
    "tools": [],
    "max_turns": 1,
    "max_retries": 0,
    "strict_mcp_config": True,
    "disable_slash_commands": True,
    "system_prompt": "You answer a connection test.",
    "timeout": 120.0,
    "slot_timeout": 60.0,
}


def _limits(timeout: Any, idle: Any, start: Any, slot: Any) -> dict[str, Any]:
    """The limits that the caller gave; the others come from the client, or are the defaults."""
    given = {"timeout": timeout, "idle_timeout": idle, "start_timeout": start, "slot_timeout": slot}
    return {name: value for name, value in given.items() if not isinstance(value, (_Given, _NotGiven))}


def _merged(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    from ._merge import merge

    return merge(defaults, given)


def _launch(options: dict[str, Any], prompt: bytes, cli_path: StrPath | None) -> Launch:
    """Everything that is known before the start, checked. Raises what the caller did wrong."""
    from ._merge import needs_temporary_config, setting

    cwd = options.get("cwd")
    if cwd is not None and not os.path.isdir(cwd):
        raise ValueError(f"cwd must be an existing directory, and {as_text(cwd)!r} is not")
    prefix = [as_text(word) for word in setting(options, "command_prefix") or ()]
    cli = locate(cli_path) if not prefix else as_text(cli_path or "claude")
    arguments = build_argv(options)
    temporary_config = needs_temporary_config(options)
    if options.get("config_dir") is not None:
        options["config_dir"] = os.path.abspath(as_text(options["config_dir"]))
    if is_nested(os.environ):
        _warn_of_nesting()
    run_id = os.urandom(16).hex()

    def argv(folder: PrivateFolder) -> list[str]:
        return [*prefix, cli, *(_argument(part, folder) for part in arguments)]

    def env(folder: PrivateFolder) -> dict[str, str]:
        found = build_env(options, os.environ, run_id)
        if temporary_config:
            found[CONFIG_DIR] = folder.subfolder("config")
        return found

    sink = options.get("line_sink")
    return Launch(
        run_id=run_id,
        argv=argv,
        env=env,
        prompt=prompt,
        cwd=None if cwd is None else os.path.abspath(as_text(cwd)),
        timeout=setting(options, "timeout"),
        idle_timeout=setting(options, "idle_timeout"),
        start_timeout=setting(options, "start_timeout"),
        background_timeout=_background_timeout(options),
        resumed=bool(options.get("resume") or options.get("continue_conversation")),
        kill_leftovers=bool(options.get("kill_leftovers")),
        max_line_bytes=setting(options, "max_line_bytes") or DEFAULTS["max_line_bytes"],
        max_buffered_bytes=setting(options, "max_buffered_bytes") or DEFAULTS["max_buffered_bytes"],
        line_sink=getattr(sink, "write", sink),
        on_stderr=options.get("on_stderr"),
        wants_schema=options.get("json_schema") is not None,
        cli_path=cli,
        shown=lambda: shown_argv([*prefix, cli, *arguments]),
    )


def _argument(part: Argument, folder: PrivateFolder) -> str:
    if isinstance(part, TextFile):
        return f"{part.flag}={folder.write(part.flag.strip('-') + part.suffix, part.text)}"
    return part


def _background_timeout(options: Mapping[str, Any]) -> float | None:
    from ._merge import setting

    return setting(options, "background_timeout") if setting(options, "background") == "wait" else None


_warned = False


def _warn_of_nesting() -> None:
    global _warned
    if not _warned:
        _warned = True
        import warnings

        warnings.warn(
            "this program runs inside of a Claude Code session; its turns do not inherit that session's variables",
            RuntimeWarning,
            stacklevel=5,
        )

