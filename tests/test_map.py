"""`Client.map`: order, how far it runs ahead, failures, and its end."""

from __future__ import annotations

import gc
import itertools

import pytest
from waiting import Background, until, until_gone

from claude_cli_client import (
    Client,
    ClientClosedError,
    ConcurrencyError,
    Event,
    ProcessError,
    RateLimitError,
    Run,
    SlotTimeoutError,
    TurnCancelled,
    TurnTimeout,
    _cleanup,
)
from claude_cli_client.testing import (
    FakeCLI,
    api_failure,
    exit_with,
    hang,
    ignore_term,
    init,
    ready,
    result,
    start_child,
    wait_for,
)

TURN = [init(), result("answer")]
ANSWER = [init(), ready("on"), wait_for("end"), result("answer")]
FAILURE = [init(), ready("on"), wait_for("end"), api_failure(429)]


def prompts_of(fake: FakeCLI) -> list[str]:
    return sorted(call.prompt for call in fake.calls)


def call_of(fake: FakeCLI, prompt: str) -> int:
    """The number of the start with this prompt."""
    return until(lambda: [call for call in fake.calls if call.prompt == prompt])[0].number


# --- order


def test_results_come_in_the_order_of_the_prompts(play):
    """Whatever order the turns end in."""
    fake = play(init(), ready("on"), wait_for("end"), result("1"))
    client = Client(cli_path=fake.path, max_concurrent=3)
    results = client.map(["a", "b", "c"])
    first = Background(next, results)
    fake.wait("on", count=3)
    for prompt in "cba":
        assert first.is_waiting
        fake.release("end", call=call_of(fake, prompt))
    assert first.result().result == "1"
    sessions = [event.type for event in results]
    assert sessions == ["result", "result"]
    assert prompts_of(fake) == ["a", "b", "c"]


def test_each_result_belongs_to_its_prompt(play):
    """The n-th result is of the n-th prompt."""
    fake = play(scripts=[[init(), result("first")], [init(), result("second")], [init(), result("third")]])
    client = Client(cli_path=fake.path, max_concurrent=1)
    assert [event.result for event in client.map(["a", "b", "c"])] == ["first", "second", "third"]
    assert [call.prompt for call in fake.calls] == ["a", "b", "c"]


def test_no_prompts(play):
    """Nothing is started."""
    fake = play(*ANSWER)
    assert list(Client(cli_path=fake.path).map([])) == []
    assert fake.calls == []


def test_nothing_happens_before_the_first_next(play):
    """An iterator: it does nothing until somebody asks."""
    fake = play(*ANSWER)
    taken = []
    results = Client(cli_path=fake.path).map(taken.append(n) or "p" for n in range(3))
    assert taken == []
    assert fake.calls == []
    results.close()


def test_options_and_limits_are_those_of_run(play, clock):
    """Each turn gets them."""
    fake = play(init(), ready("on"), hang())
    client = Client(cli_path=fake.path, model="sonnet")
    results = Background(list, client.map(["a", "b"], return_exceptions=True, idle_timeout=100, max_turns=3))
    fake.wait("on", count=2)
    for channel in tuple(client._pool._running):
        clock.move(200, channel)
    assert [type(one) for one in results.result()] == [TurnTimeout, TurnTimeout]
    assert {(call.option("--model"), call.option("--max-turns")) for call in fake.calls} == {("sonnet", "3")}


def test_a_wrong_option_is_told_at_the_call(play):
    """Not at the first `next`."""
    client = Client(cli_path=play(*ANSWER).path)
    with pytest.raises(TypeError, match="model"):
        client.map(["a"], modell="x")
    with pytest.raises(ValueError, match="max_turns"):
        client.map(["a"], max_turns=-1)


# --- how far ahead


def test_it_runs_max_concurrent_ahead_and_no_further(play):
    """Prompts are taken as slots come free, so they may be endless."""
    taken = []

    def endless():
        for number in itertools.count():
            taken.append(number)
            yield str(number)

    fake = play(*ANSWER)
    results = Client(cli_path=fake.path, max_concurrent=3).map(endless())
    first = Background(next, results)
    fake.wait("on", count=3)
    assert taken == [0, 1, 2]
    fake.release("end")
    assert first.result().result == "answer"
    for _ in range(5):
        assert next(results).result == "answer"
    assert len(taken) <= 9
    results.close()
    assert fake.alive() == []


def test_it_takes_only_slots_that_are_free(play):
    """Another run holds one of two: the map has one turn at a time, and all its results."""
    fake = play(*ANSWER)
    client = Client(cli_path=fake.path, max_concurrent=2)
    other = client.run("other")
    fake.wait("on")
    results = Background(list, client.map(["a", "b", "c"]))
    for count in (2, 3, 4):
        fake.wait("on", count=count)
        assert len(fake.alive()) == 2
        fake.release("end", call=count - 1)
    assert [event.result for event in results.result()] == ["answer"] * 3
    fake.release("end")
    other.result()


def test_a_result_that_is_there_is_not_kept_back_for_want_of_a_slot(play):
    """All slots are taken by others: what has ended is given out, not held until a slot is free."""
    fake = play(*ANSWER)
    client = Client(cli_path=fake.path, max_concurrent=2)
    results = client.map(["a", "b", "c"])
    first = Background(next, results)
    fake.wait("on", count=2)
    fake.release("end", call=0)
    fake.release("end", call=1)
    assert first.result().result == "answer"
    until(lambda: not client._pool._held)
    others = [client.run("other"), client.run("other")]
    second = Background(next, results)
    assert second.result().result == "answer"
    third = Background(next, results)
    until(lambda: client._pool._line)  # nothing is ahead any more: now it waits
    fake.release("end")
    assert third.result().result == "answer"
    for run in others:
        run.result()


def test_waiting_for_a_slot_is_limited_by_slot_timeout(play):
    """Of the call or of the client."""
    fake = play(*ANSWER)
    client = Client(cli_path=fake.path, max_concurrent=1)
    run = client.run("other")
    with pytest.raises(SlotTimeoutError):
        next(client.map(["a"], slot_timeout=0))
    with pytest.raises(SlotTimeoutError):
        next(client.with_options(slot_timeout=0.01).map(["a"]))
    fake.release("end")
    run.result()


def test_two_maps_share_the_slots(play):
    """Each goes on with what it gets, and neither starves."""
    fake = play(init(), result("1"))
    client = Client(cli_path=fake.path, max_concurrent=2)
    maps = [Background(list, client.map([f"{name}{n}" for n in range(10)])) for name in "ab"]
    for one in maps:
        assert len(one.result(30)) == 10
    assert len(fake.calls) == 20


def test_clients_of_one_pool(play):
    """A map of one variant waits for slots that another holds."""
    fake = play(*ANSWER)
    client = Client(cli_path=fake.path, max_concurrent=1)
    run = client.with_options(model="haiku").run("other")
    fake.wait("on")
    results = Background(list, client.with_options(model="sonnet").map(["a"]))
    until(lambda: client._pool._line)
    fake.release("end")
    assert run.result().result == "answer"
    assert [event.result for event in results.result()] == ["answer"]


# --- failures


def test_a_failure_raises_at_its_turn_and_ends_the_others(play, slots_free):
    """What came before is given out first; what runs behind it is ended."""
    fake = play(scripts=[[init(), result("a")], [init(), api_failure(429)], [init(), ready("third"), hang()]])
    client = Client(cli_path=fake.path, max_concurrent=1)
    results = client.map(["a", "b", "c", "d"])
    assert next(results).result == "a"
    with pytest.raises(RateLimitError):
        next(results)
    assert fake.alive() == []
    assert list(results) == []
    assert slots_free(client) == 1


def test_a_failure_ends_what_runs_behind_it(play, slots_free):
    """Nothing of the others is left when it comes out."""
    fake = play(init(), start_child("session"), ready("on"), wait_for("end"), exit_with(3))
    client = Client(cli_path=fake.path, max_concurrent=3)
    results = client.map(["a", "b", "c", "d"])
    first = Background(next, results)
    fake.wait("on", count=3)
    fake.release("end", call=call_of(fake, "a"))
    with pytest.raises(ProcessError):
        first.result()
    until_gone(fake)
    assert slots_free(client) == 3
    assert client.totals.cancelled == 2
    assert prompts_of(fake) == ["a", "b", "c"]
    assert list(results) == []


def test_exceptions_in_the_place_of_results(play):
    """`return_exceptions`: as many items as prompts, in their order."""
    fake = play(scripts=[[init(), result("a")], [init(), api_failure(429)], [exit_with(3)], [init(), result("d")]])
    results = list(Client(cli_path=fake.path, max_concurrent=1).map(["a", "b", "c", "d"], return_exceptions=True))
    assert [type(one) for one in results] == [Event, RateLimitError, ProcessError, Event]
    assert results[3].result == "d"


def test_a_prompt_that_is_none(play):
    """Empty, or no text: it fails at its turn, or takes the place of its result."""
    fake = play(init(), result("1"))
    client = Client(cli_path=fake.path, max_concurrent=2)
    results = list(client.map(["a", "", None, "b"], return_exceptions=True))
    assert [type(one) for one in results] == [Event, ValueError, TypeError, Event]
    results = client.map(["a", "", "b"])
    assert next(results).result == "1"
    with pytest.raises(ValueError, match="prompt"):
        next(results)
    assert list(results) == []


def test_prompts_that_raise(play, slots_free):
    """The caller's own exception comes out, whatever `return_exceptions`, and ends what runs."""

    def prompts():
        yield "a"
        yield "b"
        raise ZeroDivisionError

    for keep in (False, True):
        fake = play(init(), ready("on"), wait_for("end"), result("1"))
        client = Client(cli_path=fake.path, max_concurrent=3)
        results = client.map(prompts(), return_exceptions=keep)
        with pytest.raises(ZeroDivisionError):
            next(results)
        assert fake.alive() == []
        assert slots_free(client) == 3
        assert list(results) == []


@pytest.mark.parametrize("slots", [1, 2])
def test_prompts_that_use_the_client(play, slots):
    """The iterator of prompts may run turns of the same client: no slot is held while it makes a prompt."""
    fake = play(init(), result("1"))
    client = Client(cli_path=fake.path, max_concurrent=slots)

    def prompts():
        for _ in range(3):
            yield "after " + client.ask("inner").result

    assert len(Background(list, client.map(prompts())).result()) == 3


def test_the_end_does_not_wait_for_a_slot(play, slots_free):
    """All prompts are done and others hold all slots: the loop ends, nothing is needed for that."""
    fake = play(*ANSWER)
    client = Client(cli_path=fake.path, max_concurrent=1)
    results = client.map(["a"], slot_timeout=0)
    first = Background(next, results)
    fake.wait("on")
    fake.release("end", call=0)
    assert first.result().result == "answer"
    until(lambda: slots_free(client))
    other = client.run("other")
    assert list(results) == []
    fake.release("end")
    other.result()


def test_a_slot_that_does_not_come_loses_no_prompt(play):
    """SlotTimeoutError takes the place of its result; nothing was started for the prompt that waited."""
    fake = play(*ANSWER)
    client = Client(cli_path=fake.path, max_concurrent=1)
    run = client.run("other")
    results = client.map(["a", "b"], slot_timeout=0, return_exceptions=True)
    assert [type(one) for one in results] == [SlotTimeoutError, SlotTimeoutError]
    fake.release("end")
    run.result()
    assert prompts_of(fake) == ["other"]


# --- its end


def test_closing_in_the_middle(play, slots_free):
    """What runs is ended, no more prompts are taken, and closing again does nothing."""
    fake = play(*ANSWER)
    client = Client(cli_path=fake.path, max_concurrent=3)
    results = client.map(map(str, itertools.count()))
    first = Background(next, results)
    fake.wait("on", count=3)
    fake.release("end", call=call_of(fake, "0"))
    first.result()
    results.close()
    assert fake.alive() == []
    assert slots_free(client) == 3
    results.close()
    assert list(results) == []


def test_dropping_it_in_the_middle(play, slots_free):
    """As with a run: nobody refers to it, so it ends."""
    fake = play(*ANSWER)
    client = Client(cli_path=fake.path, max_concurrent=3)
    results = client.map(map(str, itertools.count()))
    first = Background(next, results)
    fake.wait("on", count=3)
    fake.release("end", call=call_of(fake, "0"))
    first.result()
    del results, first
    gc.collect()
    until_gone(fake)
    until(lambda: slots_free(client) == 3)


def test_break_out_of_its_loop(play):
    """The usual way out."""
    fake = play(scripts=[[init(), result("1")], [init(), hang()]])
    for event in Client(cli_path=fake.path, max_concurrent=1).map(map(str, itertools.count())):
        assert event.result == "1"
        break
    until(lambda: not fake.alive())


def test_the_client_is_closed_in_the_middle(play):
    """What runs is cancelled; what has not begun is refused."""
    fake = play(*ANSWER)
    client = Client(cli_path=fake.path, max_concurrent=2)
    results = client.map(map(str, itertools.count()))
    first = Background(next, results)
    fake.wait("on", count=2)
    client.close()
    with pytest.raises((TurnCancelled, ClientClosedError)):
        first.result()
    with pytest.raises((ClientClosedError, StopIteration)):
        next(results)
    assert fake.alive() == []


def test_the_client_is_closed_while_it_waits_for_a_slot(play):
    """It is woken, and no prompt is taken any more."""
    fake = play(*ANSWER)
    client = Client(cli_path=fake.path, max_concurrent=1)
    run = client.run("other")
    taken = []
    results = Background(next, client.map(taken.append(n) or "p" for n in range(3)))
    until(lambda: client._pool._line)
    client.close()
    with pytest.raises(ClientClosedError):
        results.result()
    assert taken == [0]
    assert run.done


def test_a_single_string_is_not_a_list_of_prompts(play):
    """It would be taken letter by letter, one turn each: refused before anything starts."""
    with pytest.raises(TypeError, match="single one"):
        Client(cli_path=play([result("x")]).path).map("one prompt")


SESSION = "0d8b3a3e-3f4f-4f0e-9d8e-111111111111"


@pytest.mark.parametrize("options", [{"session_id": SESSION}, {"resume": "title"}, {"continue_conversation": True}])
def test_one_session_cannot_be_mapped_over(play, options):
    """Its prompts would run side by side in one session: refused before anything starts; a fork each is fine."""
    client = Client(cli_path=play([result("x")]).path)
    with pytest.raises(ValueError, match="fork_session=True"):
        client.map(["a"], **options)
    if "session_id" not in options:
        assert [event.result for event in client.map(["a"], fork_session=True, **options)] == ["x"]


def test_ctrl_c_comes_out_at_once(play, graces, monkeypatch):
    """It does not wait for the runs, which are ended behind it."""
    graces(term=1000)
    fake = play(ignore_term(), init(), ready("on"), hang())
    results = Client(cli_path=fake.path, max_concurrent=2).map(["a", "b"])

    def interrupted(run):
        fake.wait("on", count=2)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(results)
    runs = list(_cleanup.live)
    assert len(runs) == 2
    gc.collect()  # the runs are gone, so they are cancelled
    until(lambda: all(run.cancelled for run in runs))
    for run in runs:
        run.cancel(hard=True)
    until_gone(fake)
    assert list(results) == []


def test_one_consumer_at_a_time(play):
    """A second thread would take prompts from the first: it is told so, and no prompt is lost or run twice."""
    fake = play(*ANSWER)
    results = Client(cli_path=fake.path, max_concurrent=1).map(["a", "b"])
    first = Background(next, results)
    fake.wait("on")
    with pytest.raises(ConcurrencyError, match="one at a time"):
        next(results)
    fake.release("end", call=call_of(fake, "a"))
    first.result()
    second = Background(next, results)
    fake.wait("on", count=2)
    fake.release("end", call=call_of(fake, "b"))
    second.result()
    assert prompts_of(fake) == ["a", "b"]
    assert list(results) == []


def test_prompts_that_take_results(play):
    """The iterator of prompts asks for a result of the very map that it feeds: an error and no tangle."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path, max_concurrent=2)
    results = None

    def prompts():
        yield next(results)

    results = client.map(prompts())
    with pytest.raises(ConcurrencyError):
        next(results)
