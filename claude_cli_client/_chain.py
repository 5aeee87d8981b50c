"""Which entries of a transcript are the conversation, and in which order.

Pure. A transcript is a tree written down as a list: each entry names its parent, and a session that
was resumed twice at a time, rewound or compacted has several branches. The conversation is the branch
with which the CLI goes on, followed from its end to its root. That is the one that ends last in the
file, unless it has nothing to do with the last note: now and then, and at the end of a turn, the CLI
notes the entry that is the last one then. If that is on another branch, it goes on with it, and ends
there. (Seen with CLI 2.1.332.)

Two things are not on that branch and belong to it all the same. A model may call several tools at
once: the CLI writes one entry per call, and each result hangs on its own call, so the branch holds
one result and may miss calls; they are put back behind the answer they belong to. And a
compaction may keep some messages as they were: they hang on its summary then, as the CLI has it.

Works on a `Link` per entry, which is small, so that a transcript of any size can be put in order
without holding it; `place` says where the entry is. Everything here is linear (`in_order` sorts), survives any JSON,
circles, entries without a parent, and an id that comes twice (the last one counts).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, Final, NamedTuple

_KINDS: Final = frozenset(("user", "assistant", "system", "attachment", "progress"))
_SPOKEN: Final = frozenset(("user", "assistant"))


@dataclass(frozen=True)
class SessionMessage:
    """One message of a conversation: a `user` or `assistant` line of its transcript."""

    type: str
    uuid: str
    session_id: str
    message: Any  # as the API has it: {"role": ..., "content": ...}
    parent_tool_use_id: str | None = None  # of a subagent: the tool call that started it
    parent_agent_id: str | None = None  # of a subagent that a subagent started
    timestamp: str | None = None  # ISO 8601
    data: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # the whole line

    @property
    def text(self) -> str:
        """What was said: the texts of the message, without thinking, tools and their results."""
        content = self.message.get("content") if isinstance(self.message, Mapping) else None
        if isinstance(content, str):
            return content
        texts = [block.get("text") for block in _blocks(content) if block.get("type") == "text"]
        return "\n".join(text for text in texts if isinstance(text, str))


def message_of(entry: dict[str, Any], tool_use_id: str | None = None, agent_id: str | None = None) -> SessionMessage:
    """The entry as users see it."""
    return SessionMessage(
        type=_text(entry.get("type")),
        uuid=_text(entry.get("uuid")),
        session_id=_text(entry.get("sessionId")),
        message=entry.get("message"),
        parent_tool_use_id=tool_use_id,
        parent_agent_id=agent_id,
        timestamp=_text(entry.get("timestamp")) or None,
        data=entry,
    )


def in_order(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each entry behind the one before it, as a CLI writes them; else in the order of arrival.

    A store keeps the order of arrival, and the beginning of a session may come behind its end. It comes as
    a block: first all of that, then what waited for a part of it, so that the end stays the end.
    """
    known = {uuid for entry in entries if (uuid := _text(entry.get("uuid")))}
    waiting: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}  # by what has not come; with the time of arrival
    done: set[int] = set()  # of those
    come: set[str] = set()
    late: set[str] = set()  # the block: what others wait for, and what is as old
    since = ""  # when what waits first was written
    ordered: list[Mapping[str, Any]] = []

    def put(entry: Mapping[str, Any]) -> str:
        ordered.append(entry)
        come.add(uuid := _text(entry.get("uuid")))
        return uuid

    def put_what_waits_for(uuids: Iterable[str]) -> None:
        ready = [item for uuid in uuids for item in waiting.pop(uuid, ())]
        heapify(ready)
        while ready:
            at, entry = heappop(ready)
            if at not in done:
                done.add(at)
                for item in waiting.pop(put(entry), ()):
                    heappush(ready, item)

    for at, entry in enumerate(entries):
        before, uuid, time = before_of(entry), _text(entry.get("uuid")), _text(entry.get("timestamp"))
        if before in known and before not in come:
            since = since if waiting else time
            waiting.setdefault(before, []).append((at, entry))
            continue
        if waiting and uuid:
            if uuid in waiting or (time <= since and (time or before in late)):
                late.add(uuid)
            else:
                put_what_waits_for(late)
                late.clear()
        put(entry)
    put_what_waits_for(late)
    # In a copy by the CLI what a compaction kept, which its boundary names as before it, hangs on the boundary.
    left = sorted((item for items in waiting.values() for item in items), key=itemgetter(0))
    for at, entry in left:
        if at not in done and not _text(entry.get("parentUuid")):
            done.add(at)
            put_what_waits_for([put(entry)])
    return [*ordered, *(entry for at, entry in left if at not in done)]  # circles: at the end


def before_of(entry: Mapping[str, Any]) -> str:
    """Its parent; of a compaction, which begins a branch of its own, the entry that it was written behind."""
    return _text(entry.get("parentUuid")) or _text(entry.get("logicalParentUuid"))


def kept_by(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """What a compaction kept as it was, of an older CLI's the first and the last of it."""
    return _kept(entry)[1]


class Link(NamedTuple):
    """What the order of an entry depends on. Missing texts are ""."""

    place: int  # its offset in a file, its index in a list: grows
    uuid: str
    parent: str
    before: str  # the parent; of a compaction, which has none, what it was written behind
    kind: str
    shown: bool  # a message of the main conversation that is meant to be seen
    writer: tuple[bool, str]  # sidechain, agent
    answer: str  # assistant: the id of the API's message, of which each block is an entry
    calls: tuple[str, ...]  # assistant: ids of tool calls
    results: tuple[str, ...]  # user: ids of the tool calls that are answered here
    source: str  # user: the entry of the call, if the CLI says so
    time: str
    anchor: str  # compaction: the entry behind which the kept messages belong
    kept: tuple[str, ...]
    ends: bool  # of an older CLI: `kept` are but the first and the last of them


def link(entry: Mapping[str, Any], place: int) -> Link | None:
    """None for what is no part of the tree: metadata, and entries without an id."""
    kind, uuid = _text(entry.get("type")), _text(entry.get("uuid"))
    if kind not in _KINDS or not uuid:
        return None
    message = _mapping(entry.get("message"))
    blocks = _blocks(message.get("content")) if kind in _SPOKEN else []
    sidechain = bool(entry.get("isSidechain"))
    return Link(
        place,
        uuid,
        _text(entry.get("parentUuid")),
        before_of(entry),
        kind,
        kind in _SPOKEN and not (sidechain or entry.get("isMeta") or entry.get("teamName")),
        (sidechain, _text(entry.get("agentId"))),
        _text(message.get("id")) if kind == "assistant" else "",
        _ids(blocks, "tool_use", "id") if kind == "assistant" else (),
        _ids(blocks, "tool_result", "tool_use_id") if kind == "user" else (),
        _text(entry.get("sourceToolAssistantUUID")),
        _text(entry.get("timestamp")),
        *_kept(entry),
    )


def links_of(entries: Iterable[tuple[int, Mapping[str, Any]]]) -> tuple[list[Link], str]:
    """The links of a transcript, and the last note in it. Each entry comes with its place."""
    links, note = [], ""
    for place, entry in entries:
        if (found := link(entry, place)) is not None:
            links.append(found)
        else:
            note = noted(entry) or note
    return links, note


def noted(entry: Mapping[str, Any]) -> str:
    """The entry that was the last one, if this line is the CLI's note of it."""
    return _text(entry.get("leafUuid")) if entry.get("type") == "last-prompt" else ""


def conversation(links: Sequence[Link], note: str = "") -> list[Link]:
    """The messages of a session, in order, as they are meant to be seen. `note`: what the CLI noted last."""
    by_uuid = {link.uuid: link for link in links}
    leaves = _leaves(_ends(by_uuid), by_uuid) or [link for link in by_uuid.values() if link.kind in _SPOKEN]
    whole = _whole([leaf for leaf in leaves if leaf.shown] or leaves, by_uuid)
    if note in by_uuid and _below(note, by_uuid).isdisjoint(link.uuid for link in whole):
        whole = _whole(_leaves([by_uuid[note]], by_uuid), by_uuid)
    return [link for link in whole if link.shown]


def agent_conversation(links: Sequence[Link]) -> list[Link]:
    """The messages of a subagent. Its transcript has one branch, which the last message ends."""
    by_uuid = {link.uuid: link for link in links}
    spoken = [link for link in by_uuid.values() if link.kind in _SPOKEN]
    return [link for link in _whole(spoken, by_uuid) if link.kind in _SPOKEN]


# --- the branch


def _ends(by_uuid: Mapping[str, Link]) -> list[Link]:
    parents = {link.parent for link in by_uuid.values()}
    return [end for end in by_uuid.values() if end.uuid not in parents]


def _below(uuid: str, by_uuid: Mapping[str, Link]) -> set[str]:
    """This entry, and all that were written behind it."""
    behind: dict[str, list[str]] = {}
    for link in by_uuid.values():
        behind.setdefault(link.before, []).append(link.uuid)
    found, todo = {uuid}, [uuid]
    while todo:
        new = [each for each in behind.get(todo.pop(), ()) if each not in found]
        found.update(new)
        todo += new
    return found


def _leaves(ends: Iterable[Link], by_uuid: Mapping[str, Link]) -> list[Link]:
    """For each of these the nearest message, itself or above it."""
    seen: set[str] = set()  # where two walks meet, they go on alike
    leaves = []
    for end in ends:
        at: Link | None = end
        while at is not None and at.uuid not in seen:
            seen.add(at.uuid)
            if at.kind in _SPOKEN:
                leaves.append(at)
                break
            at = by_uuid.get(at.parent)
    return leaves


def _whole(leaves: Sequence[Link], by_uuid: Mapping[str, Link]) -> list[Link]:
    """The branch of the last of these, with all that belongs to it."""
    if not leaves:
        return []
    moved, behind = _moved(by_uuid)
    branch: dict[str, Link] = {}
    end = max(leaves, key=lambda leaf: leaf.place)
    at = by_uuid.get(behind.get(end.uuid, end.uuid))
    while at is not None and at.uuid not in branch:
        branch[at.uuid] = at
        at = by_uuid.get(moved.get(at.uuid) or behind.get(at.parent) or at.parent)
    chain = list(reversed(branch.values()))
    calls = _parallel_calls(chain, by_uuid)
    return [item for link in chain for item in (link, *calls.get(link.uuid, ()))]


def _moved(by_uuid: Mapping[str, Link]) -> tuple[dict[str, str], dict[str, str]]:
    """Other parents, where a compaction kept messages: of these, and by their old parent those of all others.

    What it kept hangs in a row on its anchor, and what hung on that on the last of the row.
    """
    moved: dict[str, str] = {}
    behind: dict[str, str] = {}
    walked: set[str] = set()
    for boundary in reversed([*by_uuid.values()]):  # of two that kept the same the last one counts
        kept = _between(boundary.kept, by_uuid, walked) if boundary.ends else boundary.kept
        row = dict.fromkeys(uuid for uuid in kept if uuid in by_uuid)
        if row and boundary.anchor in by_uuid:
            above = boundary.anchor
            for uuid in row:
                moved.setdefault(uuid, above)
                above = uuid
            behind.setdefault(boundary.anchor, above)
    return moved, behind


def _between(ends: Sequence[str], by_uuid: Mapping[str, Link], walked: set[str]) -> list[str]:
    """From the first to the last; nothing if they are not on one branch, as the CLI has it."""
    found: list[str] = []
    at = by_uuid.get(ends[-1])
    while at is not None and at.uuid not in walked:
        walked.add(at.uuid)
        found.append(at.uuid)
        if at.uuid == ends[0]:
            return found[::-1]
        at = by_uuid.get(at.parent)
    return []


# --- calls at the same time


def _parallel_calls(chain: Sequence[Link], by_uuid: Mapping[str, Link]) -> dict[str, list[Link]]:
    """Calls and results that are not on the chain, by the uuid behind which they belong.

    That is the last entry of their answer that is on the chain; calls come first, both in time.
    """
    last = {link.answer: link.uuid for link in chain if link.answer}
    there = {link.uuid for link in chain}
    away = [link for link in by_uuid.values() if link.uuid not in there]
    found: dict[str, list[Link]] = {}
    for call in sorted((link for link in away if link.answer in last), key=_time):
        found.setdefault(last[call.answer], []).append(call)
    answered = {call for link in chain for call in link.results}
    callers = _callers(by_uuid.values())
    results = [link for link in away if link.results and link.parent]
    for answer_of in (_by_parent, _by_call):
        for result in sorted(results, key=_time):
            answer = answer_of(result, by_uuid, callers)
            # A call that was answered on this branch keeps that answer; the other is another branch's.
            if answer in last and not answered.issuperset(result.results):
                answered.update(result.results)
                found.setdefault(last[answer], []).append(result)
    return found


def _time(link: Link) -> str:
    return link.time


def _callers(links: Iterable[Link]) -> dict[str, Link | None]:
    """Who made each call; None if two answers claim it."""
    callers: dict[str, Link | None] = {}
    for link in links:
        for call in link.calls:
            known = callers.setdefault(call, link)
            if known is not None and known.answer != link.answer:
                callers[call] = None
    return callers


def _by_parent(result: Link, by_uuid: Mapping[str, Link], _: Mapping[str, Link | None]) -> str:
    parent = by_uuid.get(result.parent)
    return parent.answer if parent else ""


def _by_call(result: Link, by_uuid: Mapping[str, Link], callers: Mapping[str, Link | None]) -> str:
    """By what the CLI says, or by the call's id; of the same writer only, as ids can come again elsewhere."""
    for caller in (by_uuid.get(result.source), *map(callers.get, result.results)):
        if caller is not None and caller.answer and caller.writer == result.writer:
            return caller.answer
    return ""


# --- any JSON


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _blocks(content: Any) -> list[Mapping[str, Any]]:
    return [block for block in _list(content) if isinstance(block, Mapping)]


def _ids(blocks: Iterable[Mapping[str, Any]], kind: str, name: str) -> tuple[str, ...]:
    found = (block.get(name) for block in blocks if block.get("type") == kind)
    return tuple(value for value in found if isinstance(value, str))


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(text for text in _list(value) if isinstance(text, str))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _kept(entry: Mapping[str, Any]) -> tuple[str, tuple[str, ...], bool]:
    """What a compaction kept, as a link has it: `anchor`, `kept` and `ends`."""
    metadata = _mapping(entry.get("compactMetadata") if entry.get("subtype") == "compact_boundary" else None)
    messages, segment = _mapping(metadata.get("preservedMessages")), _mapping(metadata.get("preservedSegment"))
    if kept := _texts(messages.get("uuids")):
        return _text(messages.get("anchorUuid")), kept, False
    ends = _texts([segment.get("headUuid"), segment.get("tailUuid")])
    return (_text(segment.get("anchorUuid")), ends, True) if len(ends) == 2 else ("", (), False)
