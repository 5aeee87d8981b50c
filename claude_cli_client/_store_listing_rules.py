"""The rules for what a session store may offer beyond `append` and `load`: lists and removal.

Each rule names the methods without which it cannot be checked. More in `_store_rules`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from ._store_rules import (
    AGENT,
    KEY,
    Rule,
    broken,
    entry,
    expect_entries,
    expect_equal,
    for_each,
    rule_in,
    was_stored,
)
from .store import SessionKey, optional, summarize

RULES: list[Rule] = []
rule = functools.partial(rule_in, RULES)

# Its name begins as the other's does: for stores that look for beginnings.
_NEXT = KEY._replace(session_id=KEY.session_id + "0")
_OTHER = KEY._replace(project_key=KEY.project_key + "-2")
_AGENTS = ("subagents/agent-a75", "subagents/agent-a7", "subagents/workflows/run/agent-a75", "100%_[*]")
# Milliseconds since 1970 have thirteen digits from 2001 to 2286; seconds have ten.
_EARLIEST, _LATEST = 10**12, 10**13
# Seconds until a clock has moved on. Some count whole seconds.
_PAUSES = (0.0, 0.02, 0.2, 1.1)
# Pages of lists have 1,000 rows at most, mostly.
_ROWS = 1_001

_TITLE = {"type": "custom-title", "customTitle": "A title", "sessionId": KEY.session_id}
_TAG = {"type": "tag", "tag": "later", "sessionId": KEY.session_id}


def _fill(store: Any) -> None:
    """Three sessions in two projects; the first has subagents."""
    for key in (KEY, _NEXT, _OTHER):
        store.append(key, [entry(1), entry(2)])
    for subpath in _AGENTS:
        store.append(KEY._replace(subpath=subpath), [entry(1)])
    store.append(_NEXT._replace(subpath=_AGENTS[0]), [entry(1)])


def _ids(rows: Any) -> list[str]:
    return sorted(row["session_id"] for row in rows)


def _mtime(store: Any, key: SessionKey = KEY) -> int:
    rows = [row for row in store.list_sessions(key.project_key) if row["session_id"] == key.session_id]
    if len(rows) != 1:
        raise broken(key=tuple(key), rows=rows)
    mtime = rows[0]["mtime"]
    if type(mtime) is not int or not _EARLIEST <= mtime < _LATEST:
        raise broken(expected="an int, milliseconds since 1970", found=mtime)
    return mtime


# --- list_sessions


@rule("list_sessions")
def empty_store_lists_nothing(store: Any) -> None:
    """An empty store has no sessions, nor has a project that nothing was written to."""
    for project in (KEY.project_key, None):
        expect_equal([], list(store.list_sessions(project)), project=project)
    store.append(KEY, [entry(1)])
    expect_equal([], list(store.list_sessions("other")), project="other", written=tuple(KEY))


@rule("list_sessions")
def sessions_of_a_project_are_listed(store: Any) -> None:
    """`list_sessions` gives each session of the project once, and none of another project."""
    _fill(store)
    for key, expected in ((KEY, [KEY.session_id, _NEXT.session_id]), (_OTHER, [_OTHER.session_id])):
        expect_equal(sorted(expected), _ids(store.list_sessions(key.project_key)), project=key.project_key)


@rule("list_sessions")
def subpaths_are_no_sessions(store: Any) -> None:
    """A session that has only subpaths is not listed: it cannot be resumed."""
    store.append(AGENT, [entry(1)])
    expect_equal([], list(store.list_sessions(KEY.project_key)), written=tuple(AGENT))


@rule("list_sessions")
def empty_batch_is_no_session(store: Any) -> None:
    """An empty batch does not make a session."""
    store.append(KEY, [])
    expect_equal([], list(store.list_sessions(KEY.project_key)), after="an empty batch")


@rule("list_sessions")
def failed_batch_is_no_session(store: Any) -> None:
    """A batch for which `append` raised does not make a session."""
    if not was_stored(store, KEY):
        expect_equal([], list(store.list_sessions(KEY.project_key)), after="append raised")


@rule("list_sessions")
def all_projects_are_listed(store: Any) -> None:
    """`list_sessions(None)` gives the sessions of all projects, each with its `project_key`."""
    _fill(store)
    found = sorted([row.get("project_key"), row["session_id"]] for row in store.list_sessions(None))
    expect_equal(sorted([key.project_key, key.session_id] for key in (KEY, _NEXT, _OTHER)), found)


@rule("list_sessions")
def mtime_is_milliseconds(store: Any) -> None:
    """`mtime` is an int: milliseconds since 1970."""
    store.append(KEY, [entry(1)])
    _mtime(store)


@rule("list_sessions")
def mtime_grows(store: Any) -> None:
    """`mtime` grows when the main transcript does, and never goes back."""
    _tick(store)


def _tick(store: Any) -> float:
    """Append until `mtime` has grown; how long that took: the store's clock may be a slow one."""
    store.append(KEY, [entry(0)])
    first = _mtime(store)
    for number, pause in enumerate(_PAUSES, 1):
        time.sleep(pause)
        store.append(KEY, [entry(number)])
        if (second := _mtime(store)) > first:
            return pause
        if second < first:
            break
    raise broken(before=first, after_another_append=second)


@rule("list_sessions")
def mtime_is_of_the_main_transcript(store: Any) -> None:
    """`mtime` stays where nothing new came to the main transcript: what was there already, a subpath's entries."""
    pause = max(_tick(store), _PAUSES[1])
    before = _mtime(store)
    time.sleep(pause)
    for what, key, batch in (
        ("an empty batch", KEY, []),
        ("a batch that was there already", KEY, [entry(0), entry(1)]),
        ("an append to a subpath", AGENT, [entry(0)]),
    ):
        store.append(key, batch)
        if (found := _mtime(store)) != before:
            raise broken(before=before, after=what, found=found)


# --- list_summaries


@rule("list_summaries", "list_sessions")
def summaries_are_of_the_sessions(store: Any) -> None:
    """`list_summaries` has the sessions of `list_sessions`, with the same `mtime`, for a project and for all."""
    _fill(store)
    for project in (KEY.project_key, _OTHER.project_key, "other", None):
        sessions = sorted([row["session_id"], row["mtime"]] for row in store.list_sessions(project))
        summaries = sorted([row["session_id"], row["mtime"]] for row in store.list_summaries(project))
        expect_equal(sessions, summaries, project=project)


@rule("list_summaries")
def all_summaries_name_their_project(store: Any) -> None:
    """In `list_summaries(None)` each row has its `project_key`."""
    _fill(store)
    found = sorted([row.get("project_key"), row["session_id"]] for row in store.list_summaries(None))
    expect_equal(sorted([key.project_key, key.session_id] for key in (KEY, _NEXT, _OTHER)), found)


@rule("list_summaries")
def summaries_are_of_all_entries(store: Any) -> None:
    """A summary is `summarize` of all entries of the main transcript, however they came; of no others."""
    batches = [[entry(1, cwd="/a")], [_TITLE], [entry(2, cwd="/b"), _TAG], [{**_TITLE, "customTitle": "Another"}]]
    for batch in batches:
        store.append(KEY, batch)
    store.append(AGENT, [{**_TITLE, "customTitle": "Of the subagent"}])
    _expect_summary(store)


@rule("list_summaries")
def left_out_entries_do_not_count(store: Any) -> None:
    """An entry that was left out, since its `uuid` was there already, does not change the summary."""
    store.append(KEY, [entry(1, customTitle="The first"), entry(2, customTitle="The second")])
    store.append(KEY, [entry(1, customTitle="The first")])
    _expect_summary(store)
    store.append(KEY, [entry(3), entry(2, customTitle="The second, changed")])
    _expect_summary(store)


def _expect_summary(store: Any) -> None:
    rows = list(store.list_summaries(KEY.project_key))
    if len(rows) != 1:
        raise broken(expected="one row", found=rows)
    expect_equal(summarize(None, store.load(KEY) or []), rows[0]["summary"])


# --- list_subkeys


@rule("list_subkeys")
def subpaths_of_a_session_are_listed(store: Any) -> None:
    """`list_subkeys` gives each subpath of the session once, and none of another session."""
    _fill(store)
    expected = {KEY: sorted(_AGENTS), _NEXT: [_AGENTS[0]], _OTHER: []}
    for key, subpaths in expected.items():
        expect_equal(subpaths, sorted(store.list_subkeys(*key[:2])), session=key[:2])
    expect_equal([], list(store.list_subkeys(KEY.project_key, "unknown")), session="unknown")


# --- delete


def _expect_left(store: Any, *left: SessionKey) -> None:
    """Of what `_fill` wrote, these are there with their entries, and the others are not."""
    mains = [(key, [entry(1), entry(2)]) for key in (KEY, _NEXT, _OTHER)]
    agents = [KEY._replace(subpath=subpath) for subpath in _AGENTS] + [_NEXT._replace(subpath=_AGENTS[0])]
    for key, entries in [*mains, *((agent, [entry(1)]) for agent in agents)]:
        if key in left:
            expect_entries(store, key, entries)
        elif (found := store.load(key)) is not None:
            raise broken(key=tuple(key), expected=None, found=found)


def _all_but(gone: Callable[[SessionKey], bool]) -> list[SessionKey]:
    agents = [KEY._replace(subpath=subpath) for subpath in _AGENTS] + [_NEXT._replace(subpath=_AGENTS[0])]
    return [key for key in (KEY, _NEXT, _OTHER, *agents) if not gone(key)]


@rule("delete")
def deleted_session_is_gone_with_its_subpaths(store: Any) -> None:
    """`delete` of a main key removes the transcript and all its subpaths, and nothing of another session."""
    _fill(store)
    store.delete(KEY)
    _expect_left(store, *_all_but(lambda key: key[:2] == KEY[:2]))


@rule("delete")
def deleted_subpath_is_gone_alone(store: Any) -> None:
    """`delete` of a subpath removes it, and neither the main transcript nor other subpaths."""
    _fill(store)
    for subpath in ("subagents/agent-a7", "100%_[*]"):
        store.delete(KEY._replace(subpath=subpath))
    _expect_left(
        store, *_all_but(lambda key: key in (KEY._replace(subpath=_AGENTS[1]), KEY._replace(subpath=_AGENTS[3])))
    )


@rule("delete")
def deleting_nothing_is_no_error(store: Any) -> None:
    """`delete` of what is not there does nothing."""
    store.delete(KEY)
    store.delete(AGENT)
    _fill(store)
    store.delete(KEY._replace(session_id="unknown"))
    store.delete(KEY._replace(subpath="subagents/agent"))
    _expect_left(store, *_all_but(lambda key: False))


@rule("delete")
def deleted_entries_can_come_again(store: Any) -> None:
    """After `delete` the same entries can be appended again, and are the only ones."""
    for key in (KEY, AGENT):
        store.append(key, [entry(1), entry(2), _TAG])
    store.delete(KEY)
    for key in (KEY, AGENT):
        store.append(key, [entry(2), entry(1)])
        expect_entries(store, key, [entry(2), entry(1)])


@rule("delete", "list_sessions")
def deleted_session_is_not_listed(store: Any) -> None:
    """After `delete` a session is in no list, and the others are in it."""
    _fill(store)
    store.delete(KEY)
    for name in ("list_sessions", "list_summaries"):
        if method := optional(store, name):
            expect_equal([_NEXT.session_id], _ids(method(KEY.project_key)), method=name)
            expect_equal(sorted([_NEXT.session_id, _OTHER.session_id]), _ids(method(None)), method=f"{name}(None)")


@rule("delete", "list_subkeys")
def deleted_subpaths_are_not_listed(store: Any) -> None:
    """After `delete` of a subpath or a session, `list_subkeys` has the others only."""
    _fill(store)
    store.delete(AGENT)
    left = sorted(set(_AGENTS) - {AGENT.subpath})
    expect_equal(left, sorted(store.list_subkeys(*KEY[:2])), deleted=tuple(AGENT))
    store.delete(KEY)
    expect_equal([], list(store.list_subkeys(*KEY[:2])), deleted=tuple(KEY))
    expect_equal([_AGENTS[0]], list(store.list_subkeys(*_NEXT[:2])), session=_NEXT[:2])


@rule("delete", "list_summaries")
def deleted_summaries_begin_anew(store: Any) -> None:
    """A session that was deleted and written again has a summary of its new entries only."""
    store.append(KEY, [entry(1), _TITLE])
    store.delete(KEY)
    store.append(KEY, [entry(2)])
    _expect_summary(store)


# --- many


def _expect_all(expected: Sequence[str], found: Sequence[str], **where: object) -> None:
    """That these are the same names. Of so many, the message shows how many there are and one of them."""
    if sorted(expected) != sorted(found):
        different = sorted(set(expected) ^ set(found)) or sorted(name for name in found if found.count(name) > 1)
        raise broken(**where, expected=f"{len(expected)} rows", found=f"{len(found)} rows", such_as=different[0])


@rule("list_sessions")
def many_sessions_are_listed(store: Any) -> None:
    """More than 1,000 sessions are listed, each once, with their summaries too."""
    names = [f"session-{number}" for number in range(_ROWS)]
    for_each([KEY._replace(session_id=name) for name in names], lambda key: store.append(key, [entry(1)]))
    for name in ("list_sessions", "list_summaries"):
        if method := optional(store, name):
            for project in (KEY.project_key, None):
                _expect_all(names, _ids(method(project)), method=name, project=project)


@rule("list_subkeys")
def many_subpaths_are_listed(store: Any) -> None:
    """More than 1,000 subpaths of a session are listed, each once."""
    keys = _many_agents()
    for_each(keys, lambda key: store.append(key, [entry(1)]))
    _expect_all([str(key.subpath) for key in keys], list(store.list_subkeys(*KEY[:2])))


def _many_agents() -> list[SessionKey]:
    return [KEY._replace(subpath=f"subagents/agent-{number}") for number in range(_ROWS)]


@rule("delete")
def deleted_session_is_gone_with_many_subpaths(store: Any) -> None:
    """`delete` of a main key removes also more than 1,000 subpaths, and those of a session without a transcript."""
    keys = _many_agents()
    for_each(keys, lambda key: store.append(key, [entry(1)]))
    store.delete(KEY)
    left: list[SessionKey] = []
    for_each(keys, lambda key: left.append(key) if store.load(key) is not None else None)
    if left:
        raise broken(expected=None, found=f"{len(left)} of {len(keys)} subpaths", such_as=tuple(left[0]))
