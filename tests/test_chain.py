"""Which entries are the conversation, pure: small trees written down as lines, and the order that comes out."""

import itertools
import time

import pytest

from claude_cli_client._chain import (
    SessionMessage,
    agent_conversation,
    conversation,
    in_order,
    link,
    message_of,
    noted,
)
from claude_cli_client._session_fork import ForkPlan, first_until


def entry(kind, uuid, parent=None, content="x", **fields):
    message = {"role": kind, "content": content}
    if kind == "assistant":
        message["id"] = fields.pop("answer", "msg-" + uuid)
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "message": message, **fields}


def user(uuid, parent=None, content="x", **fields):
    return entry("user", uuid, parent, content, **fields)


def assistant(uuid, parent=None, content="x", **fields):
    return entry("assistant", uuid, parent, content, **fields)


def call(uuid, parent, tool, answer, **fields):
    return assistant(uuid, parent, [{"type": "tool_use", "id": tool}], answer=answer, **fields)


def result(uuid, parent, *tools, **fields):
    return user(uuid, parent, [{"type": "tool_result", "tool_use_id": tool} for tool in tools], **fields)


def other(kind, uuid, parent=None, **fields):
    return {"type": kind, "uuid": uuid, "parentUuid": parent, **fields}


def links(entries):
    return [found for place, item in enumerate(entries) if (found := link(item, place)) is not None]


def shown(*entries):
    return [found.uuid for found in conversation(links(entries))]


# --- the branch


def test_from_the_root_to_the_end():
    """The messages in order; what hangs in between without being one only links them."""
    entries = [
        user("u"),
        other("attachment", "x", "u"),
        assistant("a", "x"),
        other("system", "s", "a"),
        user("v", "s"),
        other("progress", "p", "v"),
        assistant("b", "p"),
        other("attachment", "y", "b"),
    ]
    assert shown(*entries) == ["u", "a", "v", "b"]


def test_the_last_branch_counts():
    """Two continuations of one message: the one that was written last is the conversation."""
    assert shown(user("u"), assistant("a", "u"), user("v", "a"), user("w", "a")) == ["u", "a", "w"]
    assert shown(user("u"), assistant("a", "u"), user("w", "a"), user("v", "a")) == ["u", "a", "v"]


@pytest.mark.parametrize(
    ("note", "found"),
    [("", "uabw"), ("v", "uav"), ("x", "uav"), ("w", "uabw"), ("b", "uabw"), ("-", "uabw")],
)
def test_the_branch_of_the_turn_that_ended_last(note, found):
    """The CLI notes the last entry of a turn, and goes on with the end that comes last below it (measured)."""
    entries = [user("u"), assistant("a", "u"), user("v", "a"), other("attachment", "x", "v")]
    entries += [user("b", "a"), assistant("w", "b")]
    assert [link.uuid for link in conversation(links(entries), note)] == list(found)


def test_a_note_from_before_a_compaction():
    """That stands behind it, though no parent says so."""
    boundary = other("system", "c", None, subtype="compact_boundary", logicalParentUuid="a")
    entries = [user("u"), assistant("a", "u"), boundary, user("s", "c"), assistant("b", "s")]
    assert [link.uuid for link in conversation(links(entries), "a")] == ["s", "b"]


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ({"type": "last-prompt", "leafUuid": "a"}, "a"),
        ({"type": "last-prompt"}, ""),
        ({"type": "last-prompt", "leafUuid": 7}, ""),
        ({"type": "summary", "leafUuid": "a"}, ""),
    ],
)
def test_the_noted(line, note):
    """Other lines name leaves, too."""
    assert noted(line) == note


def test_what_is_not_meant_to_be_seen():
    """Notes of the CLI, subagents and teams are left out, and no branch is chosen for them."""
    main = [user("u"), user("m", "u", isMeta=True), assistant("a", "m")]
    aside = [user("t", "u", teamName="t"), user("s", None, isSidechain=True), user("n", "u", isMeta=True)]
    assert shown(*main, *aside) == ["u", "a"]


def test_nothing_but_what_is_hidden():
    """A transcript of a subagent alone shows nothing."""
    assert shown(user("s", isSidechain=True), assistant("t", "s", isSidechain=True)) == []
    assert shown() == []
    assert shown(other("attachment", "x")) == []


def test_a_missing_parent_is_a_root():
    """What stands before a lost line is lost, what stands behind it is shown."""
    assert shown(user("u"), user("v", "gone"), assistant("a", "v")) == ["v", "a"]


def test_circles_end():
    """Entries that name each other as parents are shown once."""
    assert sorted(shown(user("u", "a"), assistant("a", "u"))) == ["a", "u"]
    assert shown(user("u", "u")) == ["u"]
    assert shown(user("u", "b"), assistant("a", "u"), user("b", "a"), assistant("c", "b")) == ["u", "a", "b", "c"]


def test_an_id_that_comes_twice():
    """The last entry of that id counts, once."""
    assert shown(user("u"), user("u"), assistant("a", "u"), assistant("a", "u")) == ["u", "a"]


def test_a_compaction_begins_anew():
    """What stood before it is not followed, though the boundary names it."""
    boundary = other("system", "c", None, subtype="compact_boundary", logicalParentUuid="a")
    assert shown(user("u"), assistant("a", "u"), boundary, user("s", "c", isCompactSummary=True)) == ["s"]


def test_what_a_compaction_kept():
    """Messages that it kept as they were come behind its summary."""
    kept = {"preservedMessages": {"anchorUuid": "s", "uuids": ["a", "b", "gone", 7]}}
    boundary = other("system", "c", None, subtype="compact_boundary", compactMetadata=kept)
    before = [user("u"), assistant("a", "u"), assistant("b", "a")]
    assert shown(*before, boundary, user("s", "c"), user("v", "s")) == ["s", "a", "b", "v"]


def test_a_compaction_that_ends_a_session():
    """What it kept is the last that was said, whatever notes hang on its summary."""
    kept = {"preservedMessages": {"anchorUuid": "s", "uuids": ["a"]}}
    boundary = other("system", "c", None, subtype="compact_boundary", compactMetadata=kept)
    entries = [user("u"), assistant("a", "u"), boundary, user("s", "c")]
    assert shown(*entries) == shown(*entries, other("attachment", "x", "s")) == ["s", "a"]


@pytest.mark.parametrize(("parent", "found"), [("a", "sav"), ("b", "sabv"), ("s", "sabv"), ("u", "uv")])
def test_a_session_that_went_on_behind_what_was_kept(parent, found):
    """As the CLI resumes it: what was kept is part of the new branch, though its old parent is of the old one."""
    kept = {"preservedMessages": {"anchorUuid": "s", "uuids": ["a", "b"]}}
    boundary = other("system", "c", None, subtype="compact_boundary", compactMetadata=kept)
    before = [user("u"), assistant("a", "u"), assistant("b", "a")]
    assert shown(*before, boundary, user("s", "c"), user("w", "s"), user("v", parent)) == list(found)


@pytest.mark.parametrize(
    ("head", "tail", "found"),
    [("a", "b", "sabv"), ("b", "b", "sbv"), ("b", "a", "sv"), ("gone", "b", "sv"), ("a", "gone", "sv"), ("a", 7, "sv")],
)
def test_what_a_compaction_of_an_older_cli_kept(head, tail, found):
    """It names the first and the last; where they are not on one branch, nothing is kept, as the CLI has it."""
    kept = {"preservedSegment": {"anchorUuid": "s", "headUuid": head, "tailUuid": tail}}
    boundary = other("system", "c", None, subtype="compact_boundary", compactMetadata=kept)
    before = [user("u"), assistant("a", "u"), assistant("b", "a")]
    assert shown(*before, boundary, user("s", "c"), user("v", "s")) == list(found)


@pytest.mark.parametrize("metadata", [
    {"preservedMessages": {"uuids": ["a"]}}, {"preservedSegment": {"headUuid": "a", "tailUuid": "a"}},
])  # fmt: skip
def test_what_two_compactions_kept(metadata):
    """It comes behind the summary of the last one."""
    entries = [user("u"), assistant("a", "u")]
    for name in "12":
        about = {kind: {**kept, "anchorUuid": f"s{name}"} for kind, kept in metadata.items()}
        entries.append(other("system", f"c{name}", None, subtype="compact_boundary", compactMetadata=about))
        entries.append(user(f"s{name}", f"c{name}"))
    assert shown(*entries, user("v", "s2")) == ["s2", "a", "v"]


# --- calls at the same time


def test_parallel_calls():
    """Each result hangs on its own call: all calls come behind the answer, then all results."""
    entries = [
        user("u"),
        call("a", "u", "t1", "m"),
        call("b", "a", "t2", "m"),
        call("c", "b", "t3", "m"),
        result("r3", "c", "t3", timestamp="2"),
        result("r1", "a", "t1", timestamp="4"),
        result("r2", "b", "t2", timestamp="3"),
        assistant("d", "r1"),
    ]
    assert shown(*entries) == ["u", "a", "b", "c", "r3", "r2", "r1", "d"]


def test_a_result_that_hangs_elsewhere():
    """It is placed by what the CLI says, or by the id of its call."""
    calls = [user("u"), call("a", "u", "t1", "m"), call("b", "a", "t2", "m"), result("r2", "b", "t2")]
    said = result("r1", "x", "t1", sourceToolAssistantUUID="a")
    assert shown(*calls, said, assistant("d", "r2")) == ["u", "a", "b", "r1", "r2", "d"]
    assert shown(*calls, result("r1", "x", "t1"), assistant("d", "r2")) == ["u", "a", "b", "r1", "r2", "d"]


def test_a_call_is_answered_once():
    """What another branch answered to the same call does not come in."""
    calls = [user("u"), call("a", "u", "t1", "m"), result("old", "a", "t1"), assistant("x", "old")]
    assert shown(*calls, result("new", "a", "t1"), assistant("d", "new")) == ["u", "a", "new", "d"]


def test_ids_of_calls_that_come_again():
    """A call's id that two answers claim, or that another agent used, places nothing."""
    calls = [user("u"), call("a", "u", "t", "m"), call("b", "a", "t", "n"), assistant("d", "b")]
    assert shown(*calls, result("r", "x", "t")) == ["r"]
    assert "r" not in shown(*calls, result("r", "x", "t"), user("v", "d"))
    aside = result("r", "x", "t", isSidechain=True, agentId="g")
    assert "r" not in shown(user("u"), call("a", "u", "t", "m"), aside)


def test_what_another_agent_answered():
    """It places nothing, though its call has the same id."""
    mine, other_one = {"isSidechain": True, "agentId": "g"}, {"isSidechain": True, "agentId": "h"}
    calls = [user("u", **mine), call("a", "u", "t", "m", **mine)]
    entries = [*calls, result("r", "x", "t", **other_one), assistant("d", "a", **mine)]
    assert [link.uuid for link in agent_conversation(links(entries))] == ["u", "a", "d"]


# --- subagents


def test_a_subagent():
    """Its last message ends its branch; everything of it is a sidechain, and shown."""
    entries = [user("u", isSidechain=True), other("attachment", "x", "u"), assistant("a", "x", isSidechain=True)]
    entries.append(other("attachment", "y", "a"))
    assert [found.uuid for found in agent_conversation(links(entries))] == ["u", "a"]


def test_parallel_calls_of_a_subagent():
    """They are put back, too."""
    aside = {"isSidechain": True, "agentId": "g"}
    entries = [
        user("u", **aside),
        call("a", "u", "t1", "m", **aside),
        call("b", "a", "t2", "m", **aside),
        result("r1", "a", "t1", **aside),
        result("r2", "b", "t2", **aside),
        assistant("d", "r1", **aside),
    ]
    assert [found.uuid for found in agent_conversation(links(entries))] == ["u", "a", "b", "r2", "r1", "d"]


# --- any content


ODD = [None, True, 7, "text", [], {}, [[]], [{}], [{"type": "tool_use"}], [{"type": "tool_result", "tool_use_id": {}}]]
FIELDS = """
type uuid parentUuid message isSidechain isMeta teamName agentId timestamp sourceToolAssistantUUID subtype
compactMetadata
"""


@pytest.mark.parametrize("odd", ODD)
def test_any_json_is_survived(odd):
    """Whatever stands in a field, the others are shown."""
    entries = [user("u"), assistant("a", "u")]
    for index, field in enumerate(FIELDS.split()):
        entries.append({**user(f"o{index}"), field: odd})
    entries.append(user("o", None, odd))
    for metadata in (
        {"preservedMessages": odd, "preservedSegment": odd},
        {"preservedMessages": {"uuids": odd}},
        {"preservedMessages": {"uuids": ["u"], "anchorUuid": odd}},
        {"preservedSegment": {"headUuid": odd, "tailUuid": "u", "anchorUuid": odd}},
    ):
        entries.append(other("system", "c", None, subtype="compact_boundary", compactMetadata=metadata))
    entries += [user("v", "a"), assistant("b", "v")]
    assert shown(*entries) == ["u", "a", "v", "b"]
    agent_conversation(links(entries))


def test_long_transcripts_take_linear_time():
    """Also where many ends share one long way up, where one answer has very many calls, or what was kept is long."""

    def measured(count):
        long = [user("u")] + [other("attachment", f"x{n}", f"x{n - 1}" if n else "u") for n in range(count)]
        ends = [other("attachment", f"y{n}", f"x{count - 1}") for n in range(count)]
        calls = [call(f"c{n}", f"c{n - 1}" if n else "u", f"t{n}", "m") for n in range(count)]
        results = [result(f"r{n}", f"c{n}", f"t{n}") for n in range(count)]
        kept = {"preservedSegment": {"headUuid": "gone", "tailUuid": f"x{count - 1}"}}
        about = {"subtype": "compact_boundary", "compactMetadata": kept}
        boundaries = [other("system", f"b{n}", f"b{n - 1}" if n else f"r{count - 1}", **about) for n in range(count)]
        made = links([*long, *ends, *calls, *results, *boundaries, user("v", f"b{count - 1}")])
        circles = [other("system", f"c{n}", None, subtype="x", logicalParentUuid="y") for n in range(count)]
        circles += [user("x", "y"), user("y", "x")]
        notes = [other("progress", f"p{n}", f"p{n - 1}") for n in range(count)]
        notes += [user(f"w{n}", f"p{n}") for n in range(count)]
        begin = time.process_time()
        assert len(conversation(made)) == 2 * count + 2
        assert len(copies(notes)) == count
        assert len(in_order(circles)) == count + 2
        return time.process_time() - begin

    measured(1000)
    assert measured(40_000) < 60 * (measured(2000) + 0.005)


TEXTS = [
    ({"content": "hi"}, "hi"),
    ({"content": [{"type": "text", "text": "a"}, {"type": "tool_use"}, {"type": "text", "text": "b"}, 7]}, "a\nb"),
    ({"content": [{"type": "thinking", "thinking": "hm"}]}, ""),
    ({"content": None}, ""),
    ({}, ""),
    (None, ""),
    ("odd", ""),
]


@pytest.mark.parametrize(("message", "text"), TEXTS)
def test_the_text_of_a_message(message, text):
    """What was said, of any kind of content."""
    assert SessionMessage("user", "u", "s", message).text == text


def test_a_message():
    """Its fields are those of the line, and the line itself is there."""
    line = {**user("u", timestamp="t"), "sessionId": "s", "cwd": "/x"}
    message = message_of(line, "tool", "agent")
    assert message == SessionMessage("user", "u", "s", line["message"], "tool", "agent", "t")
    assert message.data is line


# --- copies


def copies(entries, chosen=None):
    numbers = itertools.count()
    plan = ForkPlan(links(entries) if chosen is None else chosen, "old", "new", "now", lambda: f"n{next(numbers)}")
    return [copied for place, item in enumerate(entries) if (copied := plan.copy(place, item)) is not None]


def test_a_copy():
    """New ids, links and session; the last entry is of now; what ties it to the old session is gone."""
    tied = {"teamName": "", "slug": "s", "agentName": "n", "sourceToolAssistantUUID": "u", "sessionId": "old"}
    first, second = copies([user("u", cwd="/x", timestamp="t", **tied), assistant("a", "u", timestamp="t")])
    assert first == {
        **user("n0", cwd="/x", timestamp="t"),
        "sessionId": "new",
        "isSidechain": False,
        "forkedFrom": {"sessionId": "old", "messageUuid": "u"},
    }
    assert (second["uuid"], second["parentUuid"], second["timestamp"]) == ("n1", "n0", "now")


def test_progress_is_linked_across():
    """Notes of progress are not copied; their children hang on what is above them. Circles of them end."""
    entries = [user("u"), other("progress", "p", "u"), other("progress", "q", "p"), assistant("a", "q")]
    assert [copy["parentUuid"] for copy in copies(entries)] == [None, "n0"]
    entries = [other("progress", "p", "q"), other("progress", "q", "p"), assistant("a", "q")]
    assert [copy["parentUuid"] for copy in copies(entries)] == [None]


def test_what_names_a_note_of_progress():
    """A copy has no such note: it names what the note hangs on."""
    boundary = other("system", "c", None, subtype="compact_boundary", logicalParentUuid="p")
    entries = [user("u"), other("progress", "p", "u"), boundary]
    plan = ForkPlan(links(entries), "old", "new", "now", iter(["n0", "n1"]).__next__)
    assert [copied and copied.get("logicalParentUuid") for copied in map(plan.copy, range(3), entries)][-1] == "n0"
    assert plan.note({"type": "last-prompt", "leafUuid": "p"})["leafUuid"] == "n0"


def test_the_boundary_of_a_compaction():
    """Its second link is mapped, too; and is None where it leads to what is not copied."""
    boundary = other("system", "c", None, subtype="compact_boundary", logicalParentUuid="a")
    assert copies([assistant("a"), boundary])[1]["logicalParentUuid"] == "n0"
    assert copies([boundary])[0]["logicalParentUuid"] is None


def test_what_a_compaction_kept_is_copied():
    """A copy of the boundary names the copies, wherever it names entries; what is not copied keeps its name."""
    metadata = {
        "trigger": "manual",
        "preservedMessages": {"anchorUuid": "s", "uuids": ["a", "gone"], "allUuids": ["a"]},
        "preservedSegment": {"headUuid": "a", "anchorUuid": "s", "tailUuid": "a"},
    }
    boundary = other("system", "c", None, subtype="compact_boundary", compactMetadata=metadata)
    summary = user("s", "c", "a", summarizedTurnPromptUuids=["u"])
    *_, copied, copied_summary = copies([user("u"), assistant("a", "u"), boundary, summary])
    assert copied["compactMetadata"] == {
        "trigger": "manual",
        "preservedMessages": {"anchorUuid": "n3", "uuids": ["n1", "gone"], "allUuids": ["n1"]},
        "preservedSegment": {"headUuid": "n1", "anchorUuid": "n3", "tailUuid": "n1"},
    }
    assert copied_summary["summarizedTurnPromptUuids"] == ["n0"]
    assert copied_summary["message"]["content"] == "a"  # what somebody said is no name


def test_a_copy_until_a_message():
    """In the order of the file, and with that message."""
    entries = [user("u"), assistant("a", "u"), user("v", "a")]
    chosen = first_until(links(entries), "a")
    assert [copy["forkedFrom"]["messageUuid"] for copy in copies(entries, chosen)] == ["u", "a"]
    assert first_until(links(entries), "gone") is None


def test_nothing_to_copy():
    """Without entries, or with nothing but notes of progress."""
    assert ForkPlan([], "old", "new", "now", str).empty
    assert ForkPlan(links([other("progress", "p")]), "old", "new", "now", str).empty


@pytest.mark.parametrize(
    ("came", "ordered"),
    [
        ("", ""),
        ("abcd", "abcd"),
        ("dabc", "abcd"),
        ("cdab", "abcd"),
        ("dcba", "abcd"),
        ("bXaY", "XaYb"),
        ("xyab", "abxy"),
    ],
)
def test_in_order(came, ordered):
    """Each behind its parent, in whatever order a store got them; what hangs on nothing stays, circles come last."""
    parents = {"a": None, "b": "a", "c": "b", "d": "c", "x": "y", "y": "x"}
    entries = [
        {"uuid": name, "parentUuid": parents[name]} if name in parents else {"type": name} for name in came
    ]
    assert "".join(entry.get("uuid", entry.get("type")) for entry in in_order(entries)) == ordered


@pytest.mark.parametrize("late", ["bcd", "abcd", "bc", "ab"])
@pytest.mark.parametrize("more", [[], [user("i", "h", timestamp="9")]])
def test_what_comes_late_comes_before_all_that_waited(late, more):
    """A block with parallel calls and the results beside them: what was said last stays last."""
    entries = [
        user("a"), call("b", "a", "x", "m"), call("c", "b", "y", "m"), result("d", "b", "x"), result("e", "c", "y"),
        assistant("f", "e"), user("g", "f"), assistant("h", "g"),
    ]  # fmt: skip
    entries = [{**entry, "timestamp": str(at)} for at, entry in enumerate(entries)]
    came = [*(entry for entry in entries if entry["uuid"] not in late), *more]
    came += [entry for entry in entries if entry["uuid"] in late]
    assert in_order(came) == [*entries, *more]


def test_a_branch_that_comes_after_what_came_late():
    """It is no part of that, though it hangs on an old entry: the branch that came last is the last."""
    old, new = user("a", timestamp="1"), user("z", "a", timestamp="9")
    came = [assistant("c", "b", timestamp="3"), old, user("b", "a", timestamp="2"), new]
    assert [entry["uuid"] for entry in in_order(came)] == ["a", "b", "c", "z"]


def test_a_branch_that_was_begun_while_others_waited():
    """It comes last, too: what came late is as old as the first that waited, not as the last."""
    waited = [user("c", "b", timestamp="3"), assistant("d", "c", timestamp="9")]
    late = [user("a", timestamp="1"), assistant("b", "a", timestamp="2")]
    came = [*waited, *late, user("z", "a", timestamp="5")]
    assert [entry["uuid"] for entry in in_order(came)] == ["a", "b", "c", "d", "z"]


def test_a_compaction_stands_behind_what_was_before_it():
    """Though no parent says so: else the conversation that it ended would be the one that ends last."""
    boundary = other("system", "c", None, subtype="compact_boundary", logicalParentUuid="a")
    came = [boundary, user("s", "c"), user("u"), assistant("a", "u")]
    assert [entry["uuid"] for entry in in_order(came)] == ["u", "a", "c", "s"]


def test_an_empty_id_is_none():
    """Nothing waits for it, as for a parent."""
    came = [user("u"), {"type": "x", "uuid": "", "parentUuid": ""}]
    assert in_order(came) == came


def test_a_copied_compaction_stays_where_it_is():
    """In the CLI's own copy what was kept hangs on the summary, and the boundary names it as before itself."""
    boundary = other("system", "c", None, subtype="compact_boundary", logicalParentUuid="a")
    came = [boundary, other("attachment", "x", "c"), user("s", "x"), assistant("a", "s"), user("v", "a")]
    assert in_order(came) == came
    assert in_order([came[-1], *came[:-1]]) == came
