"""The rules that every session store must keep: each a function with a docstring that says it.

A rule is given an empty store. It reports by `AssertionError`, made by `broken`, with the evidence.
What the store itself raises is reported in the same way, and is the cause.

Entries are compared as JSON with sorted keys: so the order of keys is free, but 1 is not True.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from .store import SessionKey

KEY: Final = SessionKey("-home-user-project", "22a9c654-efbc-4159-8b73-9dc3799beefe")
AGENT: Final = SessionKey(*KEY[:2], "subagents/agent-a75")

_THREADS = 8
_BATCHES = 10  # of each thread
_LARGE = 2**23
_MANY = 10_001
_NEWER = 2_000
_GATHERING = 60.0  # seconds until all threads are there
_PATIENCE = 60.0  # seconds for what they do, which takes less than one
_SHOWN = 300  # characters of each value in a message


class Rule(NamedTuple):
    name: str
    check: Callable[[Any], None]
    needs: tuple[str, ...] = ()  # optional methods without which it cannot be checked


RULES: list[Rule] = []


def rule_in(rules: list[Rule], *needs: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """A decorator: this function is a rule; its name and docstring begin each message."""

    def add(check: Callable[[Any], None]) -> Callable[[Any], None]:
        words = " ".join((check.__doc__ or "").split())

        @functools.wraps(check)
        def checked(store: Any) -> None:
            try:
                check(store)
            except _Broken as broken:
                raise AssertionError(f"{check.__name__}: {words}\n{broken}") from broken.__cause__
            except Exception as error:
                raise AssertionError(f"{check.__name__}: {words}\n  the store raised {shown(error)}") from error

        rules.append(Rule(check.__name__, checked, needs))
        return checked

    return add


rule = functools.partial(rule_in, RULES)


class _Broken(Exception):
    """A rule is broken; the text is the evidence."""


def broken(**evidence: object) -> _Broken:
    return _Broken("\n".join(f"  {name.replace('_', ' ')}: {shown(value)}" for name, value in evidence.items()))


def shown(value: object) -> str:
    """In one line, cut, and such that any terminal and file can take it."""
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
    return text.encode("ascii", "backslashreplace").decode("ascii")


def same(one: object, other: object) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def expect_equal(expected: object, found: object, **where: object) -> None:
    if not same(expected, found):
        raise broken(**where, expected=expected, found=found)


def expect_entries(store: Any, key: SessionKey, expected: Sequence[Mapping[str, Any]]) -> None:
    """That `load` gives these, in this order; the message shows the first difference."""
    found = store.load(key)
    if not isinstance(found, list):
        raise broken(key=tuple(key), expected=f"a list of {len(expected)} entries", found=found)
    if same(expected, found):
        return
    for number, (one, other) in enumerate(zip(expected, found, strict=False)):
        expect_equal(one, other, key=tuple(key), entry=f"number {number} of {len(found)}")
    longer = found if len(found) > len(expected) else expected
    raise broken(
        key=tuple(key),
        expected=f"{len(expected)} entries",
        found=f"{len(found)} entries",
        first_difference=longer[min(len(found), len(expected))],
    )


def entry(number: int, uuid: str | None = None, **fields: Any) -> dict[str, Any]:
    """One that looks like the CLI's, with a `uuid` of its own."""
    uuid = uuid or f"00000000-0000-4000-8000-{number:012d}"
    message = {"role": "user", "content": f"message {number}"}
    return {"type": "user", "uuid": uuid, "parentUuid": None, "message": message, **fields}


# --- one writer


@rule()
def unknown_is_none(store: Any) -> None:
    """`load` of a transcript that was never written gives None."""
    for key in (KEY, AGENT):
        if (found := store.load(key)) is not None:
            raise broken(key=tuple(key), found=found)
    store.append(KEY, [entry(1)])
    if (found := store.load(AGENT)) is not None:
        raise broken(written=tuple(KEY), key=tuple(AGENT), found=found)


@rule()
def order_is_kept(store: Any) -> None:
    """`load` gives the entries in the order of their arrival, over many batches."""
    entries = [entry((number * 7919) % 1000) for number in range(200)]
    for begin in range(0, 200, 8):
        store.append(KEY, entries[begin : begin + 8])
    expect_entries(store, KEY, entries)


def _nested(depth: int) -> Any:
    return {"level": depth, "inner": [_nested(depth - 1)]} if depth else "bottom"


_VALUES: Final[dict[str, Any]] = {
    "nothing, true and false, empty things": [None, True, False, 0, "", [], {}],
    "whole numbers of any size": [1, -1, 2**31, 2**53 + 1, 2**63, -(2**64) - 1, 10**30],
    "fractions": [0.1, -2.5, 1e-7, 1.7976931348623157e308, 5e-324, 3.141592653589793],
    "letters of all kinds": "\u00e9 e\u0301 \u0645\u0631\u062d\u0628\u0627 \u4f60\u597d \U0001f600 \U0010ffff \ufeff",
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f\x85\u2028\u2029",
    "U+0000": ["\0", "a\0b", {"a\0b": 1}],
    "lone surrogates": ["\ud800", "x\udc00y", {"\udfff": 1}],
    "what looks like an escape": ["\\u0000", "\\ud800", "\\", "'\"`", "$1 %s {} --"],
    "odd names of fields": {"": 1, "a.b": 2, "$set": 3, "__proto__": 4, "_id": 5, "uuid": None, "A": 6, "a": 7},
    "blanks at the ends": [" a ", "a ", "\ta\n", "\r\n"],
    "what looks like another type": ["1", "null", "true", "2026-01-01T00:00:00Z", "NaN", "[]"],
    "depth": _nested(50),  # objects in lists: 100,
}


@rule()
def entries_come_back_equal(store: Any) -> None:
    """What `load` gives equals what was appended: any JSON, the order of keys alone is free."""
    for number, (what, value) in enumerate(_VALUES.items()):
        key = SessionKey(KEY.project_key, f"session-{number}")
        try:
            store.append(key, [entry(number, value=value)])
            expect_entries(store, key, [entry(number, value=value)])
        except _Broken as found:
            raise _Broken(f"  what: {what}\n{found}") from None
        except Exception as error:
            raise broken(what=what, value=value, the_store_raised=error) from error


@rule()
def large_entries_are_kept(store: Any) -> None:
    """An entry of 8 MiB, as one with an image may be, comes back whole, also between small ones."""
    entries = [entry(1), entry(2, text="x" * _LARGE), entry(3, text="\u20ac" * 2**18), entry(4)]
    store.append(KEY, entries)
    expect_entries(store, KEY, entries)


@rule()
def many_entries_are_kept(store: Any) -> None:
    """More than 10,000 entries come back, all and in order, also of one batch: a conversation may be stored at once."""
    entries = [entry(number) for number in range(501 + _MANY)]
    for begin, end in ((0, 1), (1, 501), (501, 501 + _MANY)):
        store.append(KEY, entries[begin:end])
    expect_entries(store, KEY, entries)


@rule()
def empty_batch_changes_nothing(store: Any) -> None:
    """`append` of an empty batch is allowed, makes no transcript, and changes none."""
    store.append(KEY, [])
    if (found := store.load(KEY)) is not None:
        raise broken(after="an empty batch", expected=None, found=found)
    store.append(KEY, [entry(1)])
    store.append(KEY, [])
    expect_entries(store, KEY, [entry(1)])


@rule()
def copies_are_kept(store: Any) -> None:
    """Whoever changes an object that he appended or loaded does not change what is stored."""
    mine = entry(1, list=[1])
    store.append(KEY, [mine])
    mine["list"].append(2)
    mine["new"] = True
    expect_entries(store, KEY, [entry(1, list=[1])])
    loaded = store.load(KEY)
    loaded[0]["list"].append(3)
    loaded.append(entry(2))
    expect_entries(store, KEY, [entry(1, list=[1])])


# --- entries that are there already


@rule()
def repeated_batch_is_left_out(store: Any) -> None:
    """Entries whose `uuid` is in the transcript already are left out; the first ones stay, in their places."""
    store.append(KEY, [entry(1), entry(2)])
    store.append(KEY, [entry(1), entry(2)])
    store.append(KEY, [entry(2, late=True), entry(3), entry(1, late=True), entry(4)])
    expect_entries(store, KEY, [entry(1), entry(2), entry(3), entry(4)])


@rule()
def repeated_entry_in_a_batch_is_left_out(store: Any) -> None:
    """The same `uuid` twice in one batch is one entry: the first."""
    store.append(KEY, [entry(1), entry(2), entry(1, late=True), entry(3)])
    expect_entries(store, KEY, [entry(1), entry(2), entry(3)])


@rule()
def entries_without_uuid_are_all_kept(store: Any) -> None:
    """Entries without a `uuid`, or where it is empty or no text, are added each time, equal ones too."""
    plain: list[dict[str, Any]] = [
        {"type": "tag", "tag": "a"},
        {"type": "mode", "uuid": None},
        {"type": "mode", "uuid": ""},
        *({"type": "mode", "uuid": uuid} for uuid in (5, 0.5, True, ["a"], {"a": 1})),
    ]
    store.append(KEY, [*plain, *plain])
    store.append(KEY, plain)
    expect_entries(store, KEY, plain * 3)


@rule()
def uuids_are_not_forgotten(store: Any) -> None:
    """An entry is left out also when 2,000 newer ones have come since the first with its `uuid`."""
    entries = [entry(number) for number in range(_NEWER + 2)]
    for begin in range(0, len(entries), 500):
        store.append(KEY, entries[begin : begin + 500])
    store.append(KEY, [entry(0, late=True), entry(1, late=True), entry(_NEWER + 2)])
    expect_entries(store, KEY, [*entries, entry(_NEWER + 2)])


@rule()
def uuids_are_compared_exactly(store: Any) -> None:
    """A `uuid` that differs in case, blanks, or beyond its 200th character is another one."""
    entries = [entry(number, uuid) for number, uuid in enumerate(_NAMES)]
    store.append(KEY, entries)
    store.append(KEY, entries)
    expect_entries(store, KEY, entries)


@rule()
def uuid_counts_in_its_transcript_only(store: Any) -> None:
    """The same `uuid` in another session, project or subpath is another entry."""
    keys = [KEY, AGENT, KEY._replace(session_id="other"), KEY._replace(project_key="other")]
    for key in keys:
        store.append(key, [entry(1)])
    for key in keys:
        expect_entries(store, key, [entry(1)])


# --- batches that cannot be stored


@rule()
def batch_is_whole_or_not_there(store: Any) -> None:
    """A batch with an entry that cannot be stored is stored as a whole or, if `append` raises, not at all."""
    for key, before in ((KEY, []), (AGENT, [entry(1)])):
        store.append(key, list(before))
        stored = was_stored(store, key)
        expected = [*before, *_unwritable()] if stored else before
        _expect_uuids(store, key, expected, after="a batch with an entry that JSON cannot hold")
        store.append(key, [entry(4), entry(5)])
        expected = [*expected, *([] if stored else [entry(4)]), entry(5)]
        _expect_uuids(store, key, expected, after="that batch and a good one, with an entry of the first")


def _unwritable() -> list[dict[str, Any]]:
    """Nothing writes a lock. A store that has a way nevertheless may take it."""
    return [entry(2), {"type": "mode"}, entry(3, value=threading.Lock()), entry(4)]


def was_stored(store: Any, key: SessionKey) -> bool:
    """Append a batch whose third entry cannot be stored; whether the store took it."""
    try:
        store.append(key, _unwritable())
    except Exception:  # noqa: BLE001 - it may raise whatever it likes
        return False
    return True


def _expect_uuids(store: Any, key: SessionKey, expected: Sequence[Mapping[str, Any]], **where: object) -> None:
    found = store.load(key)
    if [one.get("uuid") for one in found or ()] != [one.get("uuid") for one in expected]:
        raise broken(key=tuple(key), **where, expected=expected, found=found)


# --- keys

_NAMES: Final = (
    "a", "A", "ab", "a%", "a_", "a*", "a?", "a[b]", "a:b", "a/b", "a-b", "a.b", "a|b", "a\\b", "a b", "a ", " a",
    "a'b", 'a"b', "a;--", "$a", "{a}", "\u00e9", "e\u0301", "\U0001f600", "\u4f60", "..",
    "x" * 200 + "-1", "x" * 200 + "-2",
)  # fmt: skip


@rule()
def keys_are_apart(store: Any) -> None:
    """Keys are compared exactly, whatever characters are in them: case, blanks, wildcards, separators."""
    keys = [SessionKey(name, "s") for name in _NAMES]
    keys += [SessionKey("p", name) for name in _NAMES]
    keys += [SessionKey("p", "s", name) for name in _NAMES]
    # The same text, cut elsewhere.
    keys += [SessionKey("p:s", "t"), SessionKey("p", "s:t"), SessionKey("p/s", "t"), SessionKey("p", "s/t")]
    keys += [SessionKey("p", "s"), SessionKey("p", "t", "s"), SessionKey("p", "s", "t"), SessionKey("p", "st")]
    for number, key in enumerate(keys):
        store.append(key, [entry(number)])
    for number, key in enumerate(keys):
        expect_entries(store, key, [entry(number)])


# --- threads


def in_threads(work: Callable[[int], None]) -> None:
    """`work(number)` on all threads at once."""
    faults: list[BaseException] = []
    gate = threading.Barrier(_THREADS, timeout=_GATHERING)

    def run(number: int) -> None:
        try:
            gate.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001 - reported below
            faults.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    limit = time.monotonic() + _PATIENCE
    for thread in threads:
        thread.join(max(0.0, limit - time.monotonic()))
    if alive := sum(thread.is_alive() for thread in threads):
        raise broken(still_running=f"{alive} of {_THREADS} threads after {_PATIENCE:.0f} s")
    if faults:
        raise broken(the_store_raised=faults[0], in_threads=f"{len(faults)} of {_THREADS}") from faults[0]


def for_each(keys: Sequence[SessionKey], work: Callable[[SessionKey], None]) -> None:
    """`work(key)` for many, by all threads: a server may be far away."""

    def share(thread: int) -> None:
        for key in keys[thread::_THREADS]:
            work(key)

    in_threads(share)


def batches_of(thread: int) -> list[list[dict[str, Any]]]:
    """What one thread appends: with `uuid`, and some without."""
    return [
        [entry(thread * 1000 + batch * 10 + at, thread=thread) for at in range(5)]
        + [{"thread": thread, "batch": batch}]
        for batch in range(_BATCHES)
    ]


def flat(batches: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [one for batch in batches for one in batch]


@rule()
def threads_on_one_key(store: Any) -> None:
    """Of what several threads append to one transcript nothing is lost or doubled, and each one's order is kept."""

    def work(thread: int) -> None:
        for batch in batches_of(thread):
            store.append(KEY, batch)

    in_threads(work)
    found = store.load(KEY) or []
    for thread in range(_THREADS):
        expected = flat(batches_of(thread))
        expect_equal(expected, [one for one in found if one.get("thread") == thread], thread=thread)


@rule()
def nothing_comes_in_between(store: Any) -> None:
    """What `load` gives while others append is a beginning of what it gives afterwards."""
    seen: list[list[Any]] = []

    def work(thread: int) -> None:
        for batch in batches_of(thread):
            store.append(KEY, batch)
            seen.append(store.load(KEY) or [])

    in_threads(work)
    last = store.load(KEY) or []
    for found in seen:
        expect_equal(found, last[: len(found)], entries=f"the first {len(found)} of {len(last)}")


@rule()
def threads_on_many_keys(store: Any) -> None:
    """Threads that append to transcripts of their own do not disturb each other."""

    def work(thread: int) -> None:
        key = KEY._replace(session_id=f"session-{thread}")
        for batch in batches_of(thread):
            store.append(key, batch)
            store.load(key)

    in_threads(work)
    for thread in range(_THREADS):
        expect_entries(store, KEY._replace(session_id=f"session-{thread}"), flat(batches_of(thread)))


@rule()
def threads_with_the_same_entries(store: Any) -> None:
    """When all threads append the same entries at once, each is stored once, in order."""
    entries = [entry(number) for number in range(50)]

    def work(thread: int) -> None:
        for begin in range(0, 50, 10):
            store.append(KEY, entries[begin : begin + 10])

    in_threads(work)
    expect_entries(store, KEY, entries)
