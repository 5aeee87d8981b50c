"""`check_store`: our own stores pass it, and every rule of it can be broken.

For each rule there are stores with one fault, each a fault that an adapter may well have. The rule
must be the first one that notices it: so a rule cannot lean on another.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
import unicodedata
from typing import Any

import pytest

from claude_cli_client import MemoryStore, SessionKey, SQLiteStore, _store_listing_rules, _store_rules
from claude_cli_client._check_store import RULES
from claude_cli_client.store import ListingStore, identity, later, summarize
from claude_cli_client.testing import check_store

_RACE = 0.002  # seconds between two steps that a faulty store takes one after the other


@pytest.fixture
def quick(monkeypatch):
    """A store gets through in a tenth of the time, and what a faulty one does wrong shows all the same."""
    monkeypatch.setattr(_store_rules, "_LARGE", 2**20)
    monkeypatch.setattr(_store_rules, "_MANY", 1200)
    monkeypatch.setattr(_store_rules, "_NEWER", 1100)
    monkeypatch.setattr(_store_rules, "_BATCHES", 4)
    monkeypatch.setattr(_store_listing_rules, "_PAUSES", (0.0, 0.002, 0.02))


def test_the_memory_store_passes():
    """All rules hold in memory."""
    assert check_store(MemoryStore) == [rule.name for rule in RULES]


def test_the_sqlite_store_passes(tmp_path):
    """And in a file, made anew for each rule and closed after it."""
    made: list[SQLiteStore] = []

    def make() -> SQLiteStore:
        made.append(SQLiteStore(tmp_path / f"{len(made)}.db"))
        return made[-1]

    assert check_store(make) == [rule.name for rule in RULES]
    assert len(made) == len(RULES)


@pytest.mark.parametrize("of_one_file", [False, True])
def test_a_store_that_is_not_empty(tmp_path, of_one_file):
    """The same one again, or another one over the same file: not the store's fault, and it says so."""
    store = MemoryStore()
    with pytest.raises(AssertionError, match=r"make_store\(\) gave a store that is not empty"):
        check_store((lambda: SQLiteStore(tmp_path / "one.db")) if of_one_file else (lambda: store))


def test_a_store_in_the_place_of_what_makes_one():
    """Is told before anything is done to it."""
    with pytest.raises(TypeError, match=r"check_store\(MemoryStore\)"):
        check_store(MemoryStore())


def test_what_cannot_be_checked_is_not_named(quick):
    """Of a store that has only the two methods, only these are checked."""

    class Small:
        def __init__(self) -> None:
            store = MemoryStore()
            self.append, self.load = store.append, store.load

    names = check_store(Small)
    assert names == [rule.name for rule in RULES if not rule.needs]
    assert 10 < len(names) < len(RULES)


def test_what_is_inherited_from_the_protocol_is_not_there(quick):
    """A class that names the protocol as its base, for its editor, has only what it wrote itself."""

    class Small(ListingStore):
        def __init__(self) -> None:
            self.held = MemoryStore()

        def append(self, key, entries):
            self.held.append(key, entries)

        def load(self, key):
            return self.held.load(key)

    assert check_store(Small) == [rule.name for rule in RULES if not rule.needs]


def test_names_and_sentences_of_rules():
    """Each rule has a name of its own and says what it is."""
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.check.__doc__ for rule in RULES)


# --- broken stores


BROKEN: list[Any] = []


def breaks(rule: str) -> Any:
    """This store breaks that rule, and none of those before it."""

    def add(store: Any) -> Any:
        BROKEN.append(pytest.param(rule, store, id=f"{rule}-{store.__name__}"))
        return store

    return add


@breaks("unknown_is_none")
class EmptyList(MemoryStore):
    def load(self, key):
        return super().load(key) or []


@breaks("unknown_is_none")
class MainForSubpath(MemoryStore):
    def load(self, key):
        return super().load(key) or super().load(key._replace(subpath=None))


@breaks("order_is_kept")
class SortedByUuid(MemoryStore):
    def load(self, key):
        found = super().load(key)
        return found and sorted(found, key=lambda entry: entry["uuid"])


@breaks("order_is_kept")
class NewestFirst(MemoryStore):
    def load(self, key):
        found = super().load(key)
        return found and found[::-1]


class Changing(MemoryStore):
    """Its JSON goes through a database that is not made for all of it."""

    def append(self, key, entries):
        super().append(key, [json.loads(self.kept(json.dumps(entry))) for entry in entries])

    def kept(self, text: str) -> str:
        raise NotImplementedError


@breaks("entries_come_back_equal")
class WithoutNul(Changing):
    def kept(self, text):
        return text.replace("\\u0000", "")


@breaks("entries_come_back_equal")
class WithoutSurrogates(Changing):
    def kept(self, text):
        return text.replace("\\ud800", "\\ufffd")


@breaks("entries_come_back_equal")
class NumbersAsDoubles(Changing):
    def kept(self, text):
        return json.dumps(json.loads(text, parse_int=lambda digits: int(float(digits))))


@breaks("entries_come_back_equal")
class EmptyIsNothing(Changing):
    def kept(self, text):
        return text.replace(": {}", ": null").replace(", {}", ", null")


@breaks("entries_come_back_equal")
class TrueIsOne(Changing):
    def kept(self, text):
        return text.replace("true", "1")


@breaks("entries_come_back_equal")
class Normalised(Changing):
    def kept(self, text):
        return json.dumps(json.loads(unicodedata.normalize("NFC", json.dumps(json.loads(text), ensure_ascii=False))))


@breaks("entries_come_back_equal")
class RefusesNul(MemoryStore):
    def append(self, key, entries):
        if "\\u0000" in json.dumps(entries):
            raise ValueError("unsupported Unicode escape sequence")
        super().append(key, entries)


@breaks("large_entries_are_kept")
class Cut(MemoryStore):
    def append(self, key, entries):
        super().append(key, [entry for entry in entries if len(json.dumps(entry)) < 2**20])


@breaks("many_entries_are_kept")
class CutBatch(MemoryStore):
    def append(self, key, entries):
        super().append(key, entries[:1199])


@breaks("many_entries_are_kept")
class OnePage(MemoryStore):
    def load(self, key):
        found = super().load(key)
        return found and found[:1000]


@breaks("batch_is_whole_or_not_there")
class OneByOne(MemoryStore):
    def append(self, key, entries):
        for entry in entries:
            super().append(key, [entry])


@breaks("batch_is_whole_or_not_there")
class LeavesOutWhatItCannotStore(MemoryStore):
    def append(self, key, entries):
        for entry in entries:
            try:
                super().append(key, [entry])
            except TypeError:
                continue


@breaks("batch_is_whole_or_not_there")
class StuckAfterAFault(MemoryStore):
    def append(self, key, entries):
        if key in self.__dict__.setdefault("stuck", set()):
            raise RuntimeError("current transaction is aborted")
        self.stuck.add(key)
        super().append(key, entries)
        self.stuck.clear()


@breaks("batch_is_whole_or_not_there")
class UuidsBeforeEntries(MemoryStore):
    def append(self, key, entries):
        known = self.__dict__.setdefault("known", {}).setdefault(key, set())
        new = []
        for entry in entries:
            if identity(entry) not in known:
                new.append(entry)
            known.update({identity(entry)} - {None})
        super().append(key, new)


@breaks("empty_batch_changes_nothing")
class EmptyTranscript(MemoryStore):
    def append(self, key, entries):
        super().append(key, entries)
        if not entries:
            self.made = {*getattr(self, "made", ()), key}

    def load(self, key):
        found = super().load(key)
        return [] if found is None and key in getattr(self, "made", ()) else found


@breaks("empty_batch_changes_nothing")
class RefusesNothing(MemoryStore):
    def append(self, key, entries):
        if not entries:
            raise ValueError("VALUES must have at least one row")
        super().append(key, entries)


@breaks("copies_are_kept")
class HoldsWhatItGot(MemoryStore):
    def append(self, key, entries):
        super().append(key, entries)
        self.held = {**getattr(self, "held", {}), **{identity(entry): entry for entry in entries}}

    def load(self, key):
        found = super().load(key)
        if key != _store_rules.KEY or found is None or any(identity(entry) is None for entry in found):
            return found
        return [self.held[identity(entry)] if len(found) == 1 else entry for entry in found]


@breaks("copies_are_kept")
class GivesWhatItHolds(MemoryStore):
    def load(self, key):
        found = super().load(key)
        cache = self.__dict__.setdefault("cache", {})
        return found and cache.setdefault((key, len(found)), found)


@breaks("repeated_batch_is_left_out")
class Forgets(MemoryStore):
    def append(self, key, entries):
        if key in self._transcripts:
            self._transcripts[key].known.clear()
        super().append(key, entries)


@breaks("repeated_batch_is_left_out")
class LastWins(MemoryStore):
    def append(self, key, entries):
        super().append(key, entries)
        newest = {identity(entry): json.dumps(entry) for entry in entries if len(entries) == 4 and identity(entry)}
        if newest and key.subpath is None and key.session_id == _store_rules.KEY.session_id:
            held = self._transcripts[key].entries
            held[:] = [newest.get(identity(json.loads(text)), text) for text in held]


@breaks("repeated_entry_in_a_batch_is_left_out")
class LooksOnce(MemoryStore):
    def append(self, key, entries):
        known = {identity(entry) for entry in self.load(key) or ()}
        for entry in entries:
            if identity(entry) is None or identity(entry) not in known:
                super().append(key, [entry])
                self._transcripts[key].known.clear()


@breaks("entries_without_uuid_are_all_kept")
class EqualIsTheSame(MemoryStore):
    def append(self, key, entries):
        known = {json.dumps(entry, sort_keys=True) for entry in self.load(key) or ()}
        super().append(key, [entry for entry in entries if json.dumps(entry, sort_keys=True) not in known])


@breaks("entries_without_uuid_are_all_kept")
class NullIsAUuid(MemoryStore):
    def append(self, key, entries):
        have = any("uuid" in entry and not entry["uuid"] for entry in self.load(key) or ())
        super().append(key, [entry for entry in entries if not (have and "uuid" in entry and not entry["uuid"])])


@breaks("entries_without_uuid_are_all_kept")
class AnythingIsAUuid(MemoryStore):
    def append(self, key, entries):
        have = [entry["uuid"] for entry in self.load(key) or () if entry.get("uuid")]
        super().append(key, [entry for entry in entries if entry.get("uuid") not in have])


@breaks("uuids_are_not_forgotten")
class KnowsTheNewest(MemoryStore):
    def append(self, key, entries):
        super().append(key, entries)
        if found := self._transcripts.get(key):
            found.known = {identity(json.loads(text)) for text in found.entries[-1000:]}


class OtherUuids(MemoryStore):
    def append(self, key, entries):
        known = {self.uuid(identity(entry) or "") for entry in self.load(key) or ()} - {""}
        new = []
        for entry in entries:
            uuid = self.uuid(identity(entry) or "")
            if uuid not in known:
                new.append(entry)
            known.update({uuid} if uuid else ())
        super().append(key, new)

    def uuid(self, uuid: str) -> str:
        raise NotImplementedError


@breaks("uuids_are_compared_exactly")
class UuidsWithoutCase(OtherUuids):
    def uuid(self, uuid):
        return uuid.casefold()


@breaks("uuids_are_compared_exactly")
class CutUuids(OtherUuids):
    def uuid(self, uuid):
        return uuid[:36]


@breaks("uuid_counts_in_its_transcript_only")
class UuidsOfAll(MemoryStore):
    def append(self, key, entries):
        others = {uuid for other, one in self._transcripts.items() if other[0] == key[0] for uuid in one.known}
        super().append(key, [entry for entry in entries if identity(entry) not in others])


class OtherKeys(MemoryStore):
    def append(self, key, entries):
        super().append(self.key(key), entries)

    def load(self, key):
        return super().load(self.key(key))

    def key(self, key: SessionKey) -> SessionKey:
        raise NotImplementedError


@breaks("keys_are_apart")
class WithoutCase(OtherKeys):
    def key(self, key):
        return SessionKey(*(part and part.casefold() for part in key))


@breaks("keys_are_apart")
class PaddedWithBlanks(OtherKeys):
    def key(self, key):
        return SessionKey(*(part and part.rstrip() for part in key))


@breaks("keys_are_apart")
class NormalisedKeys(OtherKeys):
    def key(self, key):
        return SessionKey(*(part and unicodedata.normalize("NFC", part) for part in key))


@breaks("keys_are_apart")
class JoinedByColons(OtherKeys):
    def key(self, key):
        return SessionKey(":".join(part for part in key if part), "joined")


@breaks("keys_are_apart")
class AsPaths(OtherKeys):
    def key(self, key):
        return SessionKey("/".join(part for part in key if part), "joined")


@breaks("keys_are_apart")
class CutKeys(OtherKeys):
    def key(self, key):
        return SessionKey(*(part and part[:64] for part in key))


@breaks("keys_are_apart")
class MatchesLike(MemoryStore):
    def load(self, key):
        for other in list(self._transcripts):
            if other.project_key == "a%" and key.project_key.startswith("a"):
                return super().load(other)
        return super().load(key)


@breaks("threads_on_one_key")
class ReadsThenWrites(MemoryStore):
    def append(self, key, entries):
        old = self.load(key) or []
        if threading.current_thread() is not threading.main_thread():
            time.sleep(_RACE)
        new = MemoryStore()
        new.append(key, [*old, *entries])
        if new._transcripts:
            self._transcripts[key] = new._transcripts[key]


@breaks("threads_on_one_key")
class RefusesOtherThreads(MemoryStore):
    def append(self, key, entries):
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("objects created in a thread can only be used in that same thread")
        super().append(key, entries)


@breaks("nothing_comes_in_between")
class NumbersBeforeCommits(MemoryStore):
    """An entry has its place from a sequence, and is seen when its transaction is over."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count()
        self.places: dict[str, int] = {}

    def append(self, key, entries):
        if threading.current_thread() is not threading.main_thread():
            number = next(self.numbers)
            for entry in entries:
                self.places.setdefault(json.dumps([key, entry]), number)
            time.sleep(_RACE * (number % 3))
        super().append(key, entries)

    def load(self, key):
        found = super().load(key)
        return found and sorted(found, key=lambda entry: self.places.get(json.dumps([key, entry]), 0))


@breaks("threads_on_many_keys")
class OneCurrentKey(MemoryStore):
    def append(self, key, entries):
        self.current = key
        if threading.current_thread() is not threading.main_thread():
            time.sleep(_RACE)
        super().append(self.current, entries)


@breaks("threads_with_the_same_entries")
class ChecksThenAdds(MemoryStore):
    """Two indexes, and not one lock: a batch is compared with what was there before."""

    lock = threading.Lock()

    def append(self, key, entries):
        known = {identity(entry) for entry in self.load(key) or ()} - {None}
        new = [entry for entry in entries if identity(entry) not in known]
        if threading.current_thread() is not threading.main_thread():
            time.sleep(_RACE)
        with self.lock:
            if key in self._transcripts:
                self._transcripts[key].known.clear()
            super().append(key, new)


class Lists(MemoryStore):
    """With other rows than the real ones."""

    def list_sessions(self, project_key=None):
        return self.rows(super().list_sessions(project_key), project_key)

    def rows(self, rows: list[Any], project_key: str | None) -> list[Any]:
        raise NotImplementedError


@breaks("empty_store_lists_nothing")
class AllOfUnknown(Lists):
    def rows(self, rows, project_key):
        return rows or MemoryStore.list_sessions(self, None)


@breaks("sessions_of_a_project_are_listed")
class ByBeginning(Lists):
    def rows(self, rows, project_key):
        return [
            row for row in MemoryStore.list_sessions(self, None) if row["project_key"].startswith(project_key or "")
        ]


@breaks("sessions_of_a_project_are_listed")
class OneRowForEachKey(Lists):
    def rows(self, rows, project_key):
        found = [row for row in rows for key in self._transcripts if key[:2] == (row["project_key"], row["session_id"])]
        return found or rows


@breaks("subpaths_are_no_sessions")
class Subpaths(Lists):
    def rows(self, rows, project_key):
        names = {row["session_id"] for row in rows}
        return rows + [
            {"session_id": key.session_id, "mtime": one.mtime, "project_key": key.project_key}
            for key, one in self._transcripts.items()
            if key.project_key == project_key and key.session_id not in names
        ]


@breaks("empty_batch_is_no_session")
class RowBeforeEntries(Lists):
    def append(self, key, entries):
        super().append(key, entries)
        self.made = not entries

    def rows(self, rows, project_key):
        return rows or [{"session_id": "made", "mtime": 1}] if getattr(self, "made", False) else rows


@breaks("failed_batch_is_no_session")
class RowBeforeTheFault(Lists):
    def append(self, key, entries):
        self.made = True
        super().append(key, entries)
        self.made = False

    def rows(self, rows, project_key):
        return rows or [{"session_id": "made", "mtime": 1}] if getattr(self, "made", False) else rows


@breaks("many_sessions_are_listed")
class OnePageOfSessions(Lists):
    def rows(self, rows, project_key):
        return rows[:1000]


@breaks("many_sessions_are_listed")
class PagesOverlap(Lists):
    def rows(self, rows, project_key):
        return rows[:500] + rows[499:]


@breaks("many_sessions_are_listed")
class OnePageOfSummaries(MemoryStore):
    def list_summaries(self, project_key=None):
        return super().list_summaries(project_key)[:10]


@breaks("all_projects_are_listed")
class WithoutProject(Lists):
    def rows(self, rows, project_key):
        return [{name: value for name, value in row.items() if name != "project_key"} for row in rows]


@breaks("all_projects_are_listed")
class NoneIsAProject(Lists):
    def rows(self, rows, project_key):
        return rows if project_key is not None else []


@breaks("mtime_is_milliseconds")
class Seconds(Lists):
    def rows(self, rows, project_key):
        return [{**row, "mtime": row["mtime"] // 1000} for row in rows]


@breaks("mtime_is_milliseconds")
class Fractions(Lists):
    def rows(self, rows, project_key):
        return [{**row, "mtime": float(row["mtime"])} for row in rows]


@breaks("mtime_grows")
class TimeOfTheFirst(Lists):
    def rows(self, rows, project_key):
        first = self.__dict__.setdefault("first", {})
        return [{**row, "mtime": first.setdefault(row["session_id"], row["mtime"])} for row in rows]


@breaks("mtime_grows")
class GoesBack(Lists):
    def rows(self, rows, project_key):
        count = len(self.load(_store_rules.KEY) or ())
        return [{**row, "mtime": row["mtime"] - 10_000 * count} for row in rows]


class Touched(MemoryStore):
    """The row of a session is written with every append."""

    def append(self, key, entries):
        super().append(key, entries)
        main = self._transcripts.get(key._replace(subpath=None))
        if main and self.is_touched(key, entries):
            main.mtime = self._mtime = later(self._mtime)

    def is_touched(self, key: SessionKey, entries: Any) -> bool:
        raise NotImplementedError


@breaks("mtime_is_of_the_main_transcript")
class TouchedByNothing(Touched):
    def is_touched(self, key, entries):
        return not entries


@breaks("mtime_is_of_the_main_transcript")
class TouchedByTheSame(Touched):
    def is_touched(self, key, entries):
        return bool(entries)


@breaks("mtime_is_of_the_main_transcript")
class TouchedBySubagents(Touched):
    def is_touched(self, key, entries):
        return key.subpath is not None


class Summaries(MemoryStore):
    """With other summaries than the real ones."""

    def list_summaries(self, project_key=None):
        return [row for row in map(self.row, super().list_summaries(project_key)) if row]

    def row(self, row: Any) -> Any:
        raise NotImplementedError

    def summary_of(self, row: Any, entries: Any) -> Any:
        return {**row, "summary": summarize(None, entries)}


@breaks("summaries_are_of_the_sessions")
class AnotherClock(Summaries):
    def row(self, row):
        return {**row, "mtime": row["mtime"] + 1}


@breaks("summaries_are_of_the_sessions")
class NotAllOfThem(Summaries):
    def row(self, row):
        return row if row["session_id"] == _store_rules.KEY.session_id and "2" not in row["project_key"] else None


@breaks("all_summaries_name_their_project")
class SummariesWithoutProject(Summaries):
    def row(self, row):
        return {name: value for name, value in row.items() if name != "project_key"}


@breaks("summaries_are_of_all_entries")
class OfTheFirstEntries(Summaries):
    def row(self, row):
        return self.summary_of(row, (self.load(_store_rules.KEY) or [])[:1])


@breaks("summaries_are_of_all_entries")
class OfTheLastEntries(Summaries):
    def row(self, row):
        return self.summary_of(row, (self.load(_store_rules.KEY) or [])[-2:])


@breaks("summaries_are_of_all_entries")
class OfSubagentsToo(Summaries):
    def row(self, row):
        parts = [self.load(_store_rules.KEY), self.load(_store_rules.AGENT)]
        return self.summary_of(row, [entry for part in parts for entry in part or ()])


@breaks("left_out_entries_do_not_count")
class OfAllThatCame(Summaries):
    def append(self, key, entries):
        super().append(key, entries)
        if key.subpath is None and entries:
            self.kept = {**getattr(self, "kept", {})}
            self.kept[key] = summarize(self.kept.get(key), entries)

    def row(self, row):
        return {**row, "summary": self.kept[SessionKey(row["project_key"], row["session_id"])]}


@breaks("subpaths_of_a_session_are_listed")
class SubpathsByBeginning(MemoryStore):
    def list_subkeys(self, project_key, session_id):
        keys = list(self._transcripts)
        return [key.subpath for key in keys if key.subpath and key.session_id.startswith(session_id)]


@breaks("subpaths_of_a_session_are_listed")
class MainToo(MemoryStore):
    def list_subkeys(self, project_key, session_id):
        return [key.subpath or "" for key in self._transcripts if key[:2] == (project_key, session_id)]


@breaks("many_subpaths_are_listed")
class OnePageOfSubpaths(MemoryStore):
    def list_subkeys(self, project_key, session_id):
        return super().list_subkeys(project_key, session_id)[:1000]


class Deletes(MemoryStore):
    """More or less than it should."""

    def delete(self, key):
        for other in list(self._transcripts):
            if self.is_meant(key, other):
                del self._transcripts[other]

    def is_meant(self, key: SessionKey, other: SessionKey) -> bool:
        raise NotImplementedError


@breaks("deleted_session_is_gone_with_its_subpaths")
class LeavesSubpaths(Deletes):
    def is_meant(self, key, other):
        return other == key


@breaks("deleted_session_is_gone_with_its_subpaths")
class DeletesByBeginning(Deletes):
    def is_meant(self, key, other):
        return other == key if key.subpath else other.session_id.startswith(key.session_id)


@breaks("deleted_session_is_gone_with_its_subpaths")
class DeletesInAllProjects(Deletes):
    def is_meant(self, key, other):
        return other == key if key.subpath else other.session_id == key.session_id


@breaks("deleted_session_is_gone_with_many_subpaths")
class DeletesOnePage(MemoryStore):
    def delete(self, key):
        if key.subpath is None:
            for subpath in self.list_subkeys(*key[:2])[:1000]:
                super().delete(key._replace(subpath=subpath))
        self._transcripts.pop(key, None)


@breaks("deleted_session_is_gone_with_many_subpaths")
class LooksForTheMainOne(MemoryStore):
    def delete(self, key):
        if self.load(key) is not None:
            super().delete(key)


@breaks("deleted_subpath_is_gone_alone")
class SubpathByBeginning(Deletes):
    def is_meant(self, key, other):
        return other[:2] == key[:2] and (other.subpath or "").startswith(key.subpath or "")


@breaks("deleted_subpath_is_gone_alone")
class DeletesTheSession(Deletes):
    def is_meant(self, key, other):
        return other[:2] == key[:2]


@breaks("deleting_nothing_is_no_error")
class MustBeThere(MemoryStore):
    def delete(self, key):
        if self.load(key) is None:
            raise KeyError(key)
        super().delete(key)


@breaks("deleted_entries_can_come_again")
class RemembersUuids(MemoryStore):
    def delete(self, key):
        self.gone = {identity(entry) for entry in self.load(key) or ()}
        super().delete(key)

    def append(self, key, entries):
        super().append(key, [entry for entry in entries if identity(entry) not in getattr(self, "gone", ())])


@breaks("deleted_entries_can_come_again")
class MarksAsDeleted(MemoryStore):
    """What is deleted is hidden until somebody writes to it again."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: set[SessionKey] = set()

    def delete(self, key):
        self.hidden |= {other for other in self._transcripts if key in (other, other._replace(subpath=None))}

    def append(self, key, entries):
        super().append(key, entries)
        self.hidden.discard(key)

    def load(self, key):
        return None if key in self.hidden else super().load(key)


@breaks("deleted_session_is_not_listed")
class RowsOfDeleted(MemoryStore):
    def delete(self, key):
        self.old = self.list_sessions(None)
        super().delete(key)

    def list_sessions(self, project_key=None):
        rows = [row for row in getattr(self, "old", ()) if project_key in (None, row["project_key"])]
        return rows or super().list_sessions(project_key)


@breaks("deleted_session_is_not_listed")
class SummariesOfDeleted(MemoryStore):
    def delete(self, key):
        self.old = self.list_summaries(None)
        super().delete(key)

    def list_summaries(self, project_key=None):
        rows = [row for row in getattr(self, "old", ()) if project_key in (None, row["project_key"])]
        return rows or super().list_summaries(project_key)


@breaks("deleted_subpaths_are_not_listed")
class SubpathsOfDeleted(MemoryStore):
    def delete(self, key):
        self.old = {key[:2]: self.list_subkeys(*key[:2])}
        super().delete(key)

    def list_subkeys(self, project_key, session_id):
        old = getattr(self, "old", {}).get((project_key, session_id))
        return old or super().list_subkeys(project_key, session_id)


@breaks("deleted_summaries_begin_anew")
class SummaryOutlives(Summaries):
    def delete(self, key):
        self.titles = {row["session_id"]: row["summary"].get("title") for row in super().list_summaries(None)}
        super().delete(key)

    def row(self, row):
        title = getattr(self, "titles", {}).get(row["session_id"])
        return {**row, "summary": {**row["summary"], "title": title}} if title else row


# --- and that they are noticed


@pytest.mark.parametrize(("rule", "store"), BROKEN)
def test_a_broken_rule_is_named(rule, store, quick):
    """The first rule that a faulty store breaks is the one it was made to break; the message begins with it."""
    with pytest.raises(AssertionError) as caught:
        check_store(store)
    name, _, rest = str(caught.value).partition(": ")
    assert name == rule, caught.value
    sentence, _, evidence = rest.partition("\n")
    assert sentence.endswith(".")
    assert evidence.startswith("  ")


def test_every_rule_can_be_broken():
    """For each rule there is a store that breaks it."""
    assert {param.values[0] for param in BROKEN} == {rule.name for rule in RULES}


def test_a_message_shows_what_was_seen():
    """What was expected, what was found, and where, cut and in plain ASCII."""
    with pytest.raises(AssertionError) as caught:
        check_store(WithoutNul)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("entries_come_back_equal: What `load` gives equals what was appended")
    assert lines[1] == "  what: U+0000"
    assert [line.split(":")[0].strip() for line in lines[2:]] == ["key", "entry", "expected", "found"]
    assert all(line.isascii() and len(line) < 400 for line in lines)


def test_what_the_store_raised_is_the_cause(quick):
    """The store's own exception is shown, and is the cause, from threads too."""
    with pytest.raises(AssertionError, match=r"deleting_nothing_is_no_error: [\s\S]*KeyError") as caught:
        check_store(MustBeThere)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(AssertionError, match=r"RuntimeError[\s\S]*8 of 8") as caught:
        check_store(RefusesOtherThreads)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_store_that_hangs_is_reported(monkeypatch, quick):
    """Threads are waited for within bounds."""
    monkeypatch.setattr(_store_rules, "_PATIENCE", 0.2)
    release = threading.Event()

    class Hangs(MemoryStore):
        def append(self, key, entries):
            if threading.current_thread() is not threading.main_thread():
                release.wait(60)
            super().append(key, entries)

    try:
        with pytest.raises(AssertionError, match=r"threads_on_one_key: [\s\S]*8 of 8 threads"):
            check_store(Hangs)
    finally:
        release.set()


def test_stores_are_closed():
    """Each store is closed after its rule, also when it breaks it."""
    open_stores = set()

    class Closes(EmptyTranscript):
        def __init__(self) -> None:
            super().__init__()
            open_stores.add(self)

        def close(self) -> None:
            open_stores.remove(self)

    with pytest.raises(AssertionError):
        check_store(Closes)
    assert not open_stores
