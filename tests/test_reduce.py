"""What a turn's events add up to: which line is the answer, its text, its cost, its session, its end."""

import json
import random

import captures
import pytest
from captures import decoded, encoded, line, turn

from claude_cli_client._lines import Odd
from claude_cli_client._parse import parse
from claude_cli_client._reduce import Reducer
from claude_cli_client._verdict import Facts, verdict
from claude_cli_client.errors import UnfinishedTurnError

INIT = line("text", "system/init")
ANSWER = line("text", "result")


def result(**fields):
    """The result line of a recorded turn, with other fields; a value of ... takes a field out."""
    data = {**decoded(ANSWER), **fields}
    return encoded({key: value for key, value in data.items() if value is not ...})


def said(*texts, id="m1", **more):
    """An `assistant` line for each text, as the CLI prints the blocks of one message."""
    return [
        encoded(
            {
                "type": "assistant",
                "message": {"id": id, "content": [{"type": "text", "text": text}]},
                "parent_tool_use_id": None,
                "session_id": "s",
                **more,
            }
        )
        for text in texts
    ]


def called(id="m1"):
    block = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}
    return [encoded({"type": "assistant", "message": {"id": id, "content": [block]}, "session_id": "s"})]


def init(**fields):
    return encoded({**decoded(INIT), **fields})


SHARE = {"m": {"costUSD": 0.25}}
ORIGIN = {"kind": "task-notification"}


# --- which line is the answer -----------------------------------------------------------------------


@pytest.mark.parametrize("name", captures.NAMES)
def test_one_terminal_event_and_last(name):
    """Every recording ends with exactly one terminal event, a result or an error, and no other `result`."""
    events = turn(name).events
    assert [event.is_terminal for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1].type in ("result", "error")
    assert not any(event.type == "result" for event in events[:-1])


@pytest.mark.parametrize("name", captures.NAMES)
def test_no_event_is_lost(name):
    """What the parser gave is delivered, in order; only the answer is held back."""
    given = captures.events(name)
    first = next((event for event in given if event.type == "result"), None)
    expected = [event.raw for event in given if event is not first]
    assert [event.raw for event in turn(name).events[:-1]] == expected


@pytest.mark.parametrize(
    ("name", "answer", "others"),
    [
        ("task_background", "main answer while task runs", ["answer after notification"]),
        ("bash_background", "started it", ["it finished"]),
        ("background_second_turn_error", "first ok", ["API Error: 400 stand-in invalid_request_error"]),
        ("input_stream_json_two", "hello there", ["second answer"]),
    ],
)
def test_several_results(name, answer, others):
    """The answer is the result that our prompt caused; each other one is a `task_result` and passes."""
    got = turn(name)
    assert got.end.result == answer
    assert [event.result for event in got.events if event.type == "task_result"] == others
    assert got.error is None


@pytest.mark.parametrize(
    ("fields", "is_answer"),
    [
        ({"result_index": 0}, True),
        ({"result_index": ...}, True),
        ({"result_index": 1}, False),
        ({"origin": ORIGIN, "result_index": 0}, False),
        ({"origin": ORIGIN, "result_index": 1}, False),
        ({"origin": None}, True),
    ],
)
def test_choice_of_the_answer(fields, is_answer):
    """No `origin`, and `result_index` 0 or absent."""
    got = turn([INIT, result(**fields)])
    assert (got.end.type == "result") is is_answer
    assert [event.type for event in got.events].count("task_result") == (not is_answer)


def test_a_notification_before_the_answer():
    """A result with an `origin` that comes first does not take the answer's place."""
    got = turn([INIT, result(origin=ORIGIN, result_index=1, result="note"), result(result="mine")])
    assert got.end.result == "mine"


def test_lines_behind_the_result_come_before_the_end():
    """The CLI prints lines behind the result; they are delivered before the terminal event."""
    got = turn("input_stream_json_blocks_uuid")
    assert [event.type for event in got.events][-2:] == ["command_lifecycle", "result"]


def test_the_answer_is_held_until_the_end():
    """`add` does not give the answer out; it stands in `answer`."""
    reducer = Reducer(resumed=False)
    assert reducer.add(parse(ANSWER, Odd())) == []
    assert reducer.answer.result == "hello there"
    assert not reducer.answer.is_terminal


# --- the made-up end --------------------------------------------------------------------------------


@pytest.mark.parametrize("subtype", ["process", "cancelled", "timeout", "idle_timeout", "start_timeout", "overflow"])
def test_an_end_without_a_result(subtype):
    """It is an `error` with the subtype and sentence given, and what was known of the turn."""
    reducer = Reducer(resumed=False)
    for raw in [INIT, *said("half an answer")]:
        reducer.add(parse(raw, Odd()))
    end = reducer.end(subtype, "it went wrong", -9)
    known = decoded(INIT)
    assert (end.type, end.subtype, end.text, end.result) == ("error", subtype, "it went wrong", "half an answer")
    assert (end.is_error, end.exit_code, end.is_terminal) == (True, -9, True)
    assert (end.session_id, end.model) == (known["session_id"], known["model"])
    assert (end.cost_usd, end.raw, end.data) == (None, "", {})


@pytest.mark.parametrize("subtype", ["process", "cancelled", "timeout"])
def test_the_answer_outweighs_the_reason_of_the_end(subtype):
    """Once the answer is there, a limit or a bad exit code does not take it away."""
    reducer = Reducer(resumed=False)
    reducer.add(parse(ANSWER, Odd()))
    end = reducer.end(subtype, "too late", 143)
    assert (end.type, end.result, end.exit_code, end.is_error) == ("result", "hello there", 143, False)


def test_nothing_at_all():
    """A turn without any line has an end too."""
    end = turn([]).end
    assert (end.type, end.session_id, end.model, end.result) == ("error", "", "", "")


def test_the_end_keeps_the_answers_line():
    """The terminal event has the line and the fields of the result."""
    end = turn("text").end
    assert end.raw == ANSWER.decode()
    assert (end.uuid, end.num_turns, end.model) == (decoded(ANSWER)["uuid"], 1, decoded(INIT)["model"])


# --- the text of the answer -------------------------------------------------------------------------


def test_text_blocks_of_the_last_message_are_joined():
    """The CLI gives only the last text block of the last message; the answer is all of them."""
    assert turn("two_text_blocks").end.result == "first part. second part."


@pytest.mark.parametrize(
    ("lines", "cli", "expected"),
    [
        (said("a", "b"), "b", "ab"),
        (said("a", "b", "c"), "c", "abc"),
        (said("a", "b"), "ab", "ab"),
        (said("a", "b"), "something else", "something else"),
        (said("a"), "a", "a"),
        ([*said("before", id="m0"), *said("a", "b")], "b", "ab"),
        ([*said("a"), *called(), *said("b")], "b", "ab"),
        ([*said("a"), *called(), *said("b", id="m2")], "b", "b"),
        (said("a"), ..., "a"),
        (said("a"), None, "a"),
        (said("a", "b"), "", "ab"),
        ([], "", ""),
        ([], ..., ""),
        ([], "only here", "only here"),
        ([*said("a", id="m0"), *called(id="m1")], "", ""),
        ([*said("a"), *called()], "", "a"),
        (said("a", "b", id=None), "b", "b"),
        (said("a", "b", id=None), "", "b"),
        (said("a", ""), "", "a"),
    ],
)
def test_text_of_the_answer(lines, cli, expected):
    """What the CLI gave, unless it left it out, empty, or was only the last of several blocks."""
    assert turn([INIT, *lines, result(result=cli)]).end.result == expected


def test_text_of_a_line_with_two_blocks():
    """Blocks that share a line, and have no message id, are one message too."""
    blocks = [{"type": "text", "text": text} for text in "ab"]
    raw = encoded({"type": "assistant", "message": {"content": blocks}})
    assert turn([INIT, raw, result(result="b")]).end.result == "ab"


def test_text_of_a_subagent_is_not_the_answers():
    """Lines with a `parent_tool_use_id` do not count."""
    lines = [*said("mine"), *said("sub", id="m9", parent_tool_use_id="t1")]
    assert turn([INIT, *lines, result(result="")]).end.result == "mine"
    lines = [*said("a"), *said("sub", parent_tool_use_id="t1"), *said("b")]
    assert turn([INIT, *lines, result(result="b")]).end.result == "ab"


def test_text_of_an_api_error_is_not_the_answers():
    """What the CLI says of a failure does not become the text of the turn."""
    lines = [*said("so far"), *said("API Error: 500", id="m2", error="server_error")]
    got = turn([INIT, *lines])
    assert got.end.result == "so far"


def test_text_behind_the_answer_is_not_the_answers():
    """The turn that a background task begins does not change the answer's text."""
    lines = [*said("a", "b"), result(result="b"), init(), *said("c", "d", id="m2"), result(origin=ORIGIN)]
    assert turn([INIT, *lines]).end.result == "ab"


@pytest.mark.parametrize(("cli", "expected"), [("b", "ab"), ("", "ab")])
def test_a_notifications_turn_before_the_result(cli, expected):
    """With a subagent in the background our result comes only after the next turn: its text is not ours."""
    lines = [*said("a", "b"), init(), *said("note", id="m2"), result(result=cli), result(origin=ORIGIN)]
    assert turn([INIT, *lines]).end.result == expected


def test_a_failed_notifications_turn_before_the_result():
    """Nor is its error."""
    lines = [init(), *said("API Error", id="m2", error="server_error"), result(is_error=True, result="x")]
    assert turn([INIT, *said("a"), *lines]).end.error == ""


@pytest.mark.parametrize("name", ["max_budget_single", "max_turns", "sigint_stream"])
def test_text_of_a_failed_turn(name):
    """Where the CLI gave no `result`, the last message's text is not lost."""
    got = turn(name)
    texts = [event.text for event in got.events if event.type == "text"]
    assert got.end.result == (texts[-1] if texts else "")
    assert got.error.event.result == got.end.result


def test_a_blocked_prompt():
    """A hook refused the prompt: `blocked`, and what it said is the result, not a fallback."""
    got = turn("hooks_block_prompt")
    assert got.reducer.blocked
    assert got.end.result.startswith("UserPromptSubmit operation blocked by hook")
    lines = [raw for raw in captures.lines("hooks_block_prompt") if captures.label_of(raw) == "system/informational"]
    assert turn([INIT, *said("old"), *lines, result(result="")]).end.result == ""


def notice(**fields):
    return encoded({"type": "system", "subtype": "informational", "content": "c", "session_id": "s", **fields})


@pytest.mark.parametrize("kind", ["blocked_by_hook", "stopped_by_hook", "no_verdict"])
def test_every_outcome_of_a_prompt_blocks(kind):
    """Whichever way a hook ended it: its result is a success, with the CLI's words in the place of an answer."""
    got = turn([INIT, notice(prompt_submit_outcome={"kind": kind}), result(result="c", num_turns=0)])
    assert isinstance(got.error, UnfinishedTurnError)
    assert "c" in str(got.error)


@pytest.mark.parametrize(
    ("lines", "blocked"),
    [
        ([notice(prevent_continuation=True), result(result="c", num_turns=0)], True),
        ([*said("a"), notice(prevent_continuation=True), result()], False),
        ([notice(prevent_continuation=False), result()], False),
        ([*said("c"), result(result="Operation stopped by hook: c", num_turns=0)], True),
        ([*said("c"), result(result="Operation stopped by hook: c", num_turns=1)], False),
        ([result(result="c", num_turns=0)], False),
    ],
)
def test_a_slash_command_that_a_hook_ended(lines, blocked):
    """The CLI names no outcome of it: it says so before the model's first word, or in the place of an answer."""
    assert isinstance(turn([INIT, *lines]).error, UnfinishedTurnError) is blocked


def test_a_turn_behind_that_of_a_cut_task():
    """A resumed session whose task was cut tells of that first, in a turn with an init: ours is the next one."""
    cut = [INIT, *said("cut", id="m0"), result(origin=ORIGIN, num_turns=0, result="")]
    got = turn([*cut, init(), *said("a", "b"), result(result="b")])
    assert got.end.result == "ab"
    blocked = notice(prompt_submit_outcome={"kind": "blocked_by_hook"})
    got = turn([*cut, init(), blocked, result(result="c", num_turns=0)])
    assert isinstance(got.error, UnfinishedTurnError)
    assert turn([*cut, init(), *said("part")]).end.result == "part"


def test_what_the_turn_of_a_cut_task_said_is_not_ours():
    """Neither its words nor its error, nor that a hook ended it."""
    failed = [*said("API Error", id="m0", error="server_error"), result(origin=ORIGIN, num_turns=0, result="")]
    got = turn([INIT, *failed, init(), result(result="", num_turns=1, is_error=True, api_error="x")])
    assert (got.end.error, got.end.result, got.reducer.messages) == ("x", "", 0)
    spoken = [*said("cut", id="m0"), result(origin=ORIGIN, num_turns=0, result="")]
    got = turn([INIT, *spoken, init(), result(result="", num_turns=1)])
    assert (got.end.result, got.reducer.messages) == ("", 0)
    blocked = notice(prompt_submit_outcome={"kind": "blocked_by_hook"})
    got = turn([INIT, blocked, result(origin=ORIGIN, num_turns=0, result=""), init(), *said("a"), result(result="a")])
    assert (got.error, got.end.result) == (None, "a")


def test_no_text_in_the_place_of_an_empty_answer_without_a_turn():
    """`/compact` repeats what the CLI said before, and answers nothing."""
    assert turn([INIT, *said("old"), result(result="", num_turns=0)]).end.result == ""
    assert turn([INIT, *said("new"), result(result="", num_turns=1)]).end.result == "new"


@pytest.mark.parametrize("name", ["stop_refusal", "text", "hooks_stop_continue_false"])
def test_a_prompt_that_was_not_blocked(name):
    """Other informational lines do not block."""
    assert not turn(name).reducer.blocked


def test_a_later_notice_does_not_unblock():
    """A second informational line says nothing of the first."""
    blocked = line("hooks_block_prompt", "system/informational")
    notice = line("stop_refusal", "system/informational")
    assert turn([INIT, blocked, notice]).reducer.blocked


# --- money ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", captures.NAMES)
def test_cost_of_recordings(name):
    """What a run of one process cost is what its own results say since the last one."""
    shares = [event.cost_usd for event in captures.events(name) if event.type == "result"]
    end = turn(name).end
    if end.type == "result" and None not in shares:
        assert end.cost_usd == pytest.approx(sum(shares))


@pytest.mark.parametrize("name", ["bash_background", "task_background", "text", "max_budget"])
def test_cost_adds_up_to_the_total(name):
    """With nothing resumed, cost and the CLI's total agree, however many results there were."""
    got = turn(name)
    totals = [event.session_cost_usd for event in got.events if event.type in ("result", "task_result")]
    assert got.end.cost_usd == pytest.approx(max(totals))


@pytest.mark.parametrize("name", ["resume_valid", "fork_session"])
def test_cost_of_a_resumed_turn_is_its_own(name):
    """The CLI's total goes on over resumes and forks; `cost_usd` does not."""
    end = turn(name, resumed=True).end
    assert end.cost_usd == pytest.approx(0.000204)
    assert end.session_cost_usd > end.cost_usd


@pytest.mark.parametrize(
    ("resumed", "results", "cost"),
    [
        (False, [{"model_usage_since_last_result": SHARE, "total_cost_usd": 9}], 0.25),
        (True, [{"model_usage_since_last_result": SHARE, "total_cost_usd": 9}], 0.25),
        (False, [{"model_usage_since_last_result": {}, "total_cost_usd": 9}], 0),
        (False, [{"model_usage_since_last_result": ..., "total_cost_usd": 9}], 9),
        (True, [{"model_usage_since_last_result": ..., "total_cost_usd": 9}], None),
        (True, [{"model_usage_since_last_result": ..., "total_cost_usd": 0}], 0),
        (False, [{"model_usage_since_last_result": ..., "total_cost_usd": ...}], None),
        (False, [{"total_cost_usd": 1, "model_usage_since_last_result": SHARE}] * 2, 0.5),
        # Without shares the total is what counts: it has the earlier results in it.
        (
            False,
            [
                {"total_cost_usd": 1, "model_usage_since_last_result": ...},
                {"total_cost_usd": 3, "model_usage_since_last_result": ...},
            ],
            3,
        ),
        (
            False,
            [
                {"total_cost_usd": 0.25, "model_usage_since_last_result": SHARE},
                {"total_cost_usd": 2, "model_usage_since_last_result": ...},
            ],
            2,
        ),
        (
            False,
            [
                {"total_cost_usd": 1, "model_usage_since_last_result": ...},
                {"total_cost_usd": 1.25, "model_usage_since_last_result": SHARE},
            ],
            1.25,
        ),
        (
            True,
            [
                {"total_cost_usd": 9, "model_usage_since_last_result": SHARE},
                {"total_cost_usd": 9, "model_usage_since_last_result": ...},
            ],
            None,
        ),
    ],
)
def test_cost_rules(resumed, results, cost):
    """The sum of the shares; without a share the total, if nothing was resumed; else nobody knows."""
    lines = [result(result_index=index, **fields) for index, fields in enumerate(results)]
    assert turn([INIT, *lines], resumed=resumed).end.cost_usd == cost


def test_cost_of_a_turn_that_never_began():
    """A resume that fails before the turn costs nothing, though its result has no share."""
    assert turn("resume_unknown", resumed=True).end.cost_usd == 0


def test_cost_of_a_turn_without_a_result_is_unknown():
    """A killed turn has cost something, and nobody says what."""
    assert turn("sigkill_tool").end.cost_usd is None


@pytest.mark.parametrize("digits", [5, 400, 4000])
def test_nonsense_costs(digits):
    """A cost beyond all floats does not raise where costs are added."""
    raw = ANSWER.replace(b'"total_cost_usd":', b'"total_cost_usd":%s,"was":' % (b"9" * digits))
    raw = raw.replace(b'"model_usage_since_last_result"', b'"other"')
    assert turn([INIT, raw]).end.cost_usd >= 0
    assert turn([INIT, ANSWER.replace(b'"costUSD":', b'"costUSD":%s,"was":' % (b"9" * digits))]).end.cost_usd >= 0


# --- tasks ------------------------------------------------------------------------------------------


def task(subtype, **fields):
    return encoded({"type": "system", "subtype": subtype, "task_id": "a", "session_id": "s", **fields})


STARTED = task("task_started", task_type="local_bash")
UPDATED = task("task_updated", patch={"status": "completed"})
NOTIFIED = task("task_notification", status="completed")


@pytest.mark.parametrize("ends", [[UPDATED], [NOTIFIED], [UPDATED, NOTIFIED], [NOTIFIED, UPDATED], [UPDATED] * 3])
def test_either_signal_settles_a_task(ends):
    """A task is over with the first of its two signals, in either order; the second finds nothing."""
    reducer = Reducer(resumed=False)
    reducer.add(parse(STARTED, Odd()))
    assert reducer.working
    for raw in ends:
        reducer.add(parse(raw, Odd()))
        assert not reducer.working


@pytest.mark.parametrize("status", ["completed", "failed", "killed", "stopped"])
@pytest.mark.parametrize("signal", ["patch", "status"])
def test_every_end_settles_a_task(signal, status):
    """However it ended."""
    ends = {
        "patch": task("task_updated", patch={"status": status}),
        "status": task("task_notification", status=status),
    }
    assert not turn([STARTED, ends[signal]]).reducer.open_tasks


@pytest.mark.parametrize(
    "raw",
    [
        task("task_updated", patch={"status": "running"}),
        task("task_updated", patch={}),
        task("task_updated"),
        task("task_progress", status="completed"),
        task("task_notification", status="completed", task_id="b"),
    ],
)
def test_what_does_not_settle_a_task(raw):
    """Progress, another status, and the end of another task."""
    assert turn([STARTED, raw]).reducer.open_tasks == {"a"}


@pytest.mark.parametrize("name", captures.NAMES)
def test_tasks_of_recordings(name):
    """No recording whose process ended by itself leaves a task open."""
    if not name.startswith("sig"):
        assert not turn(name).reducer.open_tasks


def test_working():
    """A turn is going on from `init` to its result, and again in the turn of a notification."""
    reducer = Reducer(resumed=False)
    seen = []
    for raw in captures.lines("bash_background"):
        reducer.add(parse(raw, Odd()))
        seen.append((captures.label_of(raw).split("/")[1], reducer.working))
    began = [working for kind, working in seen if kind == "init"]
    ended = [working for kind, working in seen if kind == "success"]
    assert began == [True, True]
    assert ended == [True, False]  # at the first result the command still runs


COMMENT = result(origin=ORIGIN, result_index=1)
TOOL_RESULT = line("partial_tool", "user")
STOPPED = task("task_notification", status="stopped")
SUBAGENTS = task("task_notification", status="completed", owned_by_subagent=True)


@pytest.mark.parametrize(
    ("lines", "is_owed"),
    [
        ([NOTIFIED, ANSWER], True),
        ([UPDATED, NOTIFIED, ANSWER], True),
        ([task("task_notification", status="failed"), ANSWER], True),
        ([NOTIFIED, ANSWER, init(), COMMENT], False),
        ([NOTIFIED, NOTIFIED, ANSWER, init(), COMMENT], True),
        ([NOTIFIED, NOTIFIED, ANSWER, init(), init(), COMMENT], False),
        ([NOTIFIED, ANSWER, init(), NOTIFIED, COMMENT], True),
        ([NOTIFIED, TOOL_RESULT, ANSWER], False),
        ([NOTIFIED, NOTIFIED, ANSWER, init(), TOOL_RESULT, COMMENT], False),
        ([NOTIFIED, encoded({**decoded(TOOL_RESULT), "parent_tool_use_id": "t"}), ANSWER], True),
        ([STOPPED, ANSWER], False),
        ([SUBAGENTS, ANSWER], False),
        ([ANSWER], False),
    ],
)
def test_a_comment_that_is_owed(lines, is_owed):
    """Each task's end brings a comment, unless the turn that is on is told of it with a tool's result."""
    assert turn([INIT, *lines]).reducer.in_result is not is_owed


@pytest.mark.parametrize("name", captures.NAMES)
def test_no_recording_ends_with_a_comment_owed(name):
    """The CLI ended by itself, so it owed none."""
    if not name.startswith("sig"):
        assert not turn(name).reducer._owed


# --- session, model, errors -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "session"),
    [
        ([init(session_id="a"), result(session_id="a")], "a"),
        ([init(session_id="a"), result(session_id="b")], "b"),
        ([init(session_id="a"), result(session_id=...)], "a"),
        ([init(session_id="a"), result(session_id="")], "a"),
        ([result(session_id="b")], "b"),
        ([init(session_id="a"), init(session_id="b")], "b"),
        ([init(session_id="a"), init(session_id="")], "a"),
        ([init(session_id="a")], "a"),
        ([init(session_id="a"), result(session_id="a"), result(session_id="c", origin=ORIGIN)], "a"),
    ],
)
def test_session_id(lines, session):
    """The result's, else that of the last `init`."""
    got = turn(lines)
    assert (got.end.session_id, got.reducer.session_id) == (session, session)


def test_session_id_after_clear():
    """`/clear` changes the session; the new one is the one to keep."""
    got = turn("slash_clear")
    old, new = (decoded(line("slash_clear", label))["session_id"] for label in ("conversation_reset", "system/init"))
    assert old != new
    assert (got.end.session_id, got.reducer.session_id) == (new, new)


def test_session_id_of_a_stale_resume():
    """Without an `init`, the id that the result names."""
    assert turn("resume_unknown").end.session_id == decoded(captures.lines("resume_unknown")[0])["session_id"]


def test_model():
    """The result has none; the `init` has."""
    got = turn([init(model="claude-x"), result()])
    assert (got.end.model, got.reducer.model) == ("claude-x", "claude-x")


@pytest.mark.parametrize(
    ("name", "word"),
    [("api_429", "rate_limit"), ("ratelimit_429_oauth", "rate_limit"), ("dns_fail", "server_error"), ("text", "")],
)
def test_the_errors_word(name, word):
    """The assistant line's word stands in `error`; a success has none."""
    assert turn(name).end.error == word


def test_an_error_that_was_got_over():
    """A success after an `api_error` line has no error word."""
    lines = [*said("API Error", error="server_error"), *said("fine", id="m2"), result(result="fine")]
    assert turn([INIT, *lines]).end.error == ""


def test_a_subagents_error_is_not_the_turns():
    """An `api_error` inside of a subagent does not name the turn's failure."""
    lines = [*said("API Error", error="server_error", parent_tool_use_id="t"), result(is_error=True, api_error="x")]
    assert turn([INIT, *lines]).end.error == "x"


@pytest.mark.parametrize(("status", "kept"), [("rejected", True), ("allowed_warning", False), ("allowed", False)])
def test_when_a_limit_ends(status, kept):
    """Only a limit that was reached says when to come back; a warning before it does not."""
    info = {"status": status, "resetsAt": 1000}
    raw = encoded({"type": "rate_limit_event", "rate_limit_info": info})
    assert turn([INIT, raw]).reducer.resets_at == (1000 if kept else None)


def test_the_last_retry_is_kept():
    """For the sentence of a turn that a limit ends while the CLI retries."""
    got = turn("api_529_then_ok")
    assert got.reducer.last_retry is [event for event in got.events if event.type == "retry"][-1]


# --- tolerance --------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", captures.kinds())
def test_mutated_lines_add_up(label):
    """Whatever shape a line has, the turn has one end, its text is a string, and the verdict does not raise."""
    tail = [] if label.startswith("result") else [ANSWER]
    for raw in captures.mutations(captures.kinds()[label]):
        reducer = Reducer(resumed=False)
        for each in [raw, *tail]:
            reducer.add(parse(each, Odd()))
        end = reducer.end("process", "", 0)
        assert end.is_terminal
        assert isinstance(end.result, str)
        error = verdict(end, Facts(resets_at=reducer.resets_at, blocked=reducer.blocked))
        assert isinstance(str(error), str)


def test_lines_in_any_order():
    """Shuffled, doubled and missing lines: still one end, and nothing raises."""
    chance = random.Random(3)
    for name in ("task_background", "partial_tool", "stop_refusal", "hooks_slow"):
        for _ in range(40):
            lines = chance.choices(captures.lines(name), k=len(captures.lines(name)))
            got = turn(lines)
            assert [event.is_terminal for event in got.events].count(True) == 1
            json.dumps(got.end.data)
