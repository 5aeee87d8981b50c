"""How a session is started: options, slot, process, and the first word of the CLI.

Like a turn, but for the end: here somebody waits for the CLI's answer before there is anything to
give to the user. So whatever fails is dealt with here, and what was taken (the slot, the process) is
given back before it is raised, in reverse order. Only after Ctrl-C nobody waits for that.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _fork
from ._launch import merge_with, prepare_session
from ._merge import needs_temporary_config, setting
from ._pool import Pool, Slot
from ._protocol import Answered, Refused
from ._session_reader import SessionChannel
from ._sync import Deadline, take
from .discovery import refused
from .errors import ControlError, StartError, TurnError
from .session import Session

if TYPE_CHECKING:
    from ._mirror import Storing
    from .options import StrPath

# Seconds for the process to be gone after it could not begin.
_END = 10.0


def open_session(
    pool: Pool,
    cli_path: StrPath | None,
    storing: Storing | None,
    defaults: Mapping[str, Any],
    given: Mapping[str, Any],
) -> Session:
    """Start one, and wait until the CLI has answered. What was taken is given back if it fails."""
    _fork.check()
    slot = Slot(by_session=True)
    channel: SessionChannel | None = None
    try:
        options = merge_with(storing, {"background": "wait", **defaults}, given)
        try:
            launch, initialize = prepare_session(options, cli_path, storing)
        except (OSError, ImportError) as error:  # a module of ours, or a file of settings, cannot be read
            raise refused(os.fsdecode(cli_path or "claude"), error) from error
        assert launch.duplex is not None
        launch.duplex.slot = slot
        pool.take(slot, options.get("slot_timeout"))
        if launch.restore is not None:
            launch.restore.load(lambda: pool.closed, setting(options, "start_timeout"))
        channel = SessionChannel(launch, lambda over, terminal: pool.ended(over, slot, terminal))
        slot.session = channel
        pool.began(channel)
        # Else an interrupt, also one of a later turn, ends the agents that are at work behind the turns (2.1.332).
        waiter = launch.duplex.ask("initialize", {**initialize, "perTaskStopAffordance": True})
        channel.start()
        session = Session(channel, launch.duplex, pool, bool(options.get("literal")), _lasts(options, storing))
        _await(channel, waiter, setting(options, "start_timeout"))
        return session
    except BaseException as error:
        pool.start_failed(slot, channel)
        # After Ctrl-C out at once: the exit hook waits for its end.
        if channel is not None and channel.begun and not isinstance(error, KeyboardInterrupt):
            channel.wait(_END)
        raise


def _lasts(options: Mapping[str, Any], storing: Storing | None) -> bool:
    kept = storing is not None or not needs_temporary_config(options)
    return kept and options.get("persist_session") is not False


def _await(channel: SessionChannel, waiter: Any, timeout: float | None) -> None:
    """The CLI's first answer, or why there is none."""
    try:
        answer = take(waiter, Deadline(timeout))
    except queue.Empty:
        raise _too_late(channel, timeout or 0.0) from None
    if isinstance(answer, Answered):
        return
    if isinstance(answer, Refused):
        raise ControlError(f"the CLI refused to begin: {answer.message}", subtype="initialize", code=answer.code)
    channel.wait(_END)
    if channel.terminal is not None:
        error = channel.error(channel.terminal)
        if error is not None:
            raise error
    raise StartError(f"the CLI ended before it began: {answer}", cli_path=channel.launch.cli_path)


def _too_late(channel: SessionChannel, seconds: float) -> TurnError:
    """As for a run whose first line does not come. Here lines may have come, but no answer among them."""
    remark = f"no answer came; change it with start_timeout=\n  started: {channel.launch.shown()}"
    sentence = f"the start's limit of {seconds:g} s reached; {remark}"
    terminal = channel.reducer.end("start_timeout", sentence, channel.exit_code)
    error = channel.verdict_on(terminal, channel.reducer, seconds)
    assert error is not None  # before the first turn a result is kept only if it is an error
    return error
