"""Conversation: a process for each turn, and the session's id carried along.

For what lasts longer than a process, a web request or a machine: it holds an id and a folder, and
`to_dict` says both as JSON. Between turns there is nothing: no process, thread or descriptor.

When is an id worth keeping? It comes with the first event, but the CLI writes the transcript later.
So while a turn runs, its id is told (a host that dies should know it); when the turn has ended the
id is kept only if there is reason to believe in the transcript, else the one before it:

* the CLI said a result, and that is not "no such session";
* or the model said something (and more than one thing, if somebody else killed the CLI: what it says
  first it says a moment before it writes anything);
* or the CLI obeyed a TERM, as it does with 143, for then it has written what there was.

A turn that failed before any of that leaves no id that could not be resumed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from . import _fork, _log
from ._channel import Channel
from ._checks import is_uuid
from ._handlers import raise_hosts
from ._merge import FORGETS, needs_temporary_config
from .errors import ConcurrencyError, StaleSessionError
from .events import RESULT, Event
from .run import Run, answer_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._turn import Turn
    from .client import Client
    from .options import ConversationOptions

_OBEYED: Final = 143  # 128 + TERM: how the CLI ends when it is told to
_KILLED: Final = (-9, 137)  # by the kernel for want of memory, say; 137 behind a shell
_ENDING: Final = 5.0  # seconds from a terminal event to the end of its run, which takes microseconds
_FIELDS: Final = ("session_id", "cwd")
# What means something only for a session that there is.
_OF_A_SESSION: Final = ("fork_session", "resume_session_at", "resume_drops_turn", "continue_conversation")


class Conversation:
    """Turns that follow one another, each in a process of its own. Made by `Client.conversation`.

    One turn at a time; any thread. Two objects for one session do not know of each other: of two turns at
    the same time the history loses one, so hold a lock per session id. After a fork it goes on in the
    child from the last turn that had ended. Not to be pickled: keep `to_dict()`.

    `session_id`, `cwd`: what it goes on with, and where. `restarts`: how often a session that did not exist
    any more was begun anew (see `restart_stale`).
    """

    def __init__(
        self,
        client: Client,
        resume: str | Mapping[str, Any] | None = None,
        *,
        restart_stale: bool = False,
        **options: Unpack[ConversationOptions],
    ) -> None:
        given = dict(cast("Mapping[str, Any]", options))
        self._session_id, cwd = _remembered(resume)
        self._client = client
        self._options = {"cwd": cwd, **given} if cwd else given
        self._kept_cwd = "" if "cwd" in given else cwd
        self._restart_stale = restart_stale
        # Not the run, which ends when nobody refers to it.
        self._last: Channel | Turn | None = None
        self._own = False  # a turn of ours has made or continued the session
        self._starting: dict[str, object] = {}  # who is starting a turn; taken in one atomic step
        self._era = _fork.era
        self.restarts = 0
        client.with_options(**cast("Any", self._turn_options()))  # a wrong option is told here
        self._demand_that_it_is_kept({})

    @classmethod
    def from_dict(
        cls,
        client: Client,
        data: Mapping[str, Any],
        *,
        restart_stale: bool = False,
        **options: Unpack[ConversationOptions],
    ) -> Conversation:
        """The conversation that `to_dict` described. Raises ValueError for anything else."""
        return cls(client, data, restart_stale=restart_stale, **options)

    def to_dict(self) -> dict[str, str | None]:
        """What is needed to go on, as JSON: `{"session_id": ..., "cwd": ...}`. Any time, also during a turn."""
        return {"session_id": self.session_id or None, "cwd": self.cwd or None}

    # --- turns

    def run(self, prompt: str | Sequence[Mapping[str, Any]], **options: Unpack[ConversationOptions]) -> Run:
        """Start the next turn, as `Client.run` does; `options` are for this turn alone.

        With `fork_session=True` it is the first of a copy, and the conversation goes on with that.
        Raises what `Client.run` raises, and `ConcurrencyError` while a turn is on. With
        `restart_stale` it waits for the first event (within the limits of the turn), to see whether
        the session exists.
        """
        _fork.check()
        if self._era is not _fork.era:
            self._leave_parents_turn()
        me = object()
        try:
            if self._starting.setdefault("", me) is not me:
                raise ConcurrencyError("a turn of this conversation is just being started: one at a time")
            self._settle()
            run = self._start(prompt, cast("Mapping[str, Any]", options))
            if self._restart_stale and self._session_id and _is_stale(run):
                run.close()
                self._begin_anew()
                anew = {name: value for name, value in options.items() if name not in _OF_A_SESSION}
                run = self._start(prompt, anew)
        finally:  # also when Ctrl-C comes in the first step
            if self._starting.get("") is me:
                del self._starting[""]
        return run

    def ask(self, prompt: str | Sequence[Mapping[str, Any]], **options: Unpack[ConversationOptions]) -> Event:
        """The next turn to its end; the result event. Raises a `TurnError` for one without an answer.

        A session that does not exist (any more) is a `StaleSessionError`, each time: only
        `restart_stale` begins anew, without the history.
        """
        return answer_of(self.run(prompt, **options))

    def _start(self, prompt: Any, options: Mapping[str, Any]) -> Run:
        if "resume" in options:
            raise TypeError("a turn takes no resume: its conversation has a session; make another one for that")
        self._demand_that_it_is_kept(options)
        if self._kept_cwd and options.get("cwd") is None and not os.path.isdir(self._kept_cwd):
            raise ValueError(f"no directory here, from what was kept: {self._kept_cwd!r}; give cwd= to go on elsewhere")
        if cwd := self.cwd:
            self._options = {**self._options, "cwd": cwd}  # from now on, wherever the program goes
        run = self._client.run(prompt, **cast("Any", {**self._turn_options(), **options}))
        self._last = run._channel
        return run

    def _demand_that_it_is_kept(self, options: Mapping[str, Any]) -> None:
        """Raises ValueError where a turn with these options leaves no session to go on with."""
        chosen = {**self._client._defaults, **self._options, **options}
        if chosen.get("persist_session") is False:
            raise ValueError("with persist_session=False there is no session that a conversation could go on with")
        if self._client._storing is None and needs_temporary_config(chosen):
            raise ValueError(f"{FORGETS}, so a conversation could not go on")

    def _turn_options(self) -> dict[str, Any]:
        if not self._session_id:
            return self._options
        options = {**self._options, "resume": self._session_id, "continue_conversation": None, "session_id": None}
        if not options.get("fork_session") or self._own:  # it has one, and maybe another by now
            options["name"] = None
        if self._own:  # these made it, once
            options.update(fork_session=None, resume_session_at=None, resume_drops_turn=None)
        return options

    def _begin_anew(self) -> None:
        self.restarts += 1
        which = self._session_id if is_uuid(self._session_id) else "with the title"  # which says what it is about
        _log.warning("the session %s to go on with does not exist: the conversation is begun anew", which)
        self._session_id, self._own, self._last = "", False, None
        # Nor the client's: it would be another one.
        self._options = {**self._options, **dict.fromkeys((*_OF_A_SESSION, "resume"))}

    # --- what is known

    @property
    def session_id(self) -> str:
        """The session's id, "" before there is one. During a turn it is the turn's, as soon as the CLI says it."""
        _fork.check()
        channel = self._last
        if channel is None:
            return self._session_id
        is_on = channel.terminal is None and self._era is _fork.era
        return (channel.reducer.session_id if is_on or _is_kept(channel) else "") or self._session_id

    @property
    def cwd(self) -> str:
        """The folder of its turns; "" where that is the working directory, and this is gone."""
        cwd = self._options.get("cwd") or self._client._defaults.get("cwd") or ""
        try:
            return _absolute(os.fsdecode(cwd))
        except OSError as error:  # a deploy that replaced the folder we run in; a turn says what it needs
            raise_hosts(error)
            return ""

    def _settle(self) -> None:
        """Keep what the last turn has brought. Raises `ConcurrencyError` if it is still on."""
        channel = self._last
        if channel is None:
            return
        # One that nobody wants is about to end; of the others the terminal event comes just before the end.
        bound = channel.end_bound if channel.cancelled else _ENDING
        if (channel.terminal is None and not channel.cancelled) or not channel.wait(bound):
            raise ConcurrencyError("a turn of this conversation is on: one at a time")
        self._adopt(channel)

    def _adopt(self, channel: Channel | Turn) -> None:
        if _is_kept(channel):
            self._session_id, self._own = channel.reducer.session_id, True
        self._last = None

    def _leave_parents_turn(self) -> None:
        """In a forked child: a turn that is on goes on in the parent, and is none of ours."""
        self._era = _fork.era
        self._starting = {}
        if self._last is not None:
            self._adopt(self._last)

    def __repr__(self) -> str:
        return f"<Conversation session_id={self.session_id!r} cwd={self.cwd!r}>"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(
            "a Conversation holds its Client and cannot be pickled: "
            "keep to_dict(), and go on with client.conversation(resume=...)"
        )


def _remembered(resume: Any) -> tuple[str, str]:
    """The session's id and folder, "" where there is none yet."""
    if isinstance(resume, str) and resume.lstrip().startswith("{"):
        raise ValueError("resume is a text of JSON: give what was kept as a dict, resume=json.loads(...)")
    if resume is None or isinstance(resume, str):
        return resume or "", ""
    if not isinstance(resume, Mapping):
        raise ValueError(f"resume must be a session's id or title, or what to_dict() gave, not {resume!r}")
    session_id, cwd = (resume.get(name) or "" for name in _FIELDS)  # an id, or the title that it was begun with
    if set(resume) - set(_FIELDS) or not isinstance(cwd, str) or not isinstance(session_id, str):
        raise ValueError(f"this is not what Conversation.to_dict() gave: {dict(resume)!r}")
    return session_id, os.path.expanduser(cwd)


def _absolute(path: str) -> str:
    path = os.path.expanduser(path)
    return path if path.startswith("~") else os.path.abspath(path)  # nobody knows such a user: the turn says so


def _is_stale(run: Run) -> bool:
    """Wait for the first event, and put it back. A session that does not exist brings no other one.

    One that a store without lists may well have, in another project, is none.
    """
    first = next(run)
    run._unread(first)
    if "No message found" in first.text or any("No message found" in each for each in first.errors):
        return False  # of a session that exists: it has not what resume_session_at names
    restore = run._channel.launch.restore
    is_sure = restore is None or restore.is_sure
    return is_sure and isinstance(run.error(), StaleSessionError)


def _is_kept(channel: Channel | Turn) -> bool:
    """Whether the session of a turn can be believed to exist, now that it has ended."""
    terminal, reducer = channel.terminal, channel.reducer
    if terminal is None or not reducer.session_id or isinstance(channel.error(terminal), StaleSessionError):
        return False
    by_others = channel.exit_code in _KILLED and terminal.subtype == "process"
    return terminal.type == RESULT or reducer.messages > by_others or channel.exit_code == _OBEYED
