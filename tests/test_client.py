"""The client: its totals, variants, readiness, settings files and its end."""

from __future__ import annotations

import copy
import os
import pickle
import queue
import threading
import time
from pathlib import Path

import pytest
from waiting import DEADLINE, Background, until, until_gone

from claude_cli_client import (
    AuthenticationError,
    Client,
    ClientClosedError,
    CLINotFoundError,
    CLIVersionError,
    ProcessError,
    RateLimitError,
    SlotTimeoutError,
    StartError,
    TurnCancelled,
    _probe,
)
from claude_cli_client import (
    client as client_module,
)
from claude_cli_client._argv import OPTIONS
from claude_cli_client._channel import Channel
from claude_cli_client.testing import (
    MODEL,
    VERSION,
    FakeCLI,
    api_failure,
    exit_with,
    hang,
    ignore_term,
    init,
    on_term,
    ready,
    result,
    start_child,
    text,
    touch,
    wait_for,
)

TURN = [init(), text("1"), result("1", cost_usd=0.25)]


# --- made


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "4", None])
def test_max_concurrent_is_a_whole_number(wrong):
    """At least one."""
    with pytest.raises(ValueError, match="max_concurrent"):
        Client(max_concurrent=wrong)


@pytest.mark.parametrize("wrong", [-1, "1", None, float("nan")])
def test_settings_cache_ttl_is_seconds(wrong):
    """0 or more."""
    with pytest.raises(ValueError, match="settings_cache_ttl"):
        Client(settings_cache_ttl=wrong)


@pytest.mark.parametrize("later", ["observers"])
def test_arguments_of_later_versions(later):
    """Refused, and not silently without effect."""
    with pytest.raises(TypeError, match=later):
        Client(**{later: ()})


def test_defaults_are_checked_when_the_client_is_made():
    """Names and values, like those of a call."""
    with pytest.raises(TypeError, match="model"):
        Client(modell="x")
    with pytest.raises(ValueError, match="max_turns"):
        Client(max_turns=0)
    with pytest.raises(TypeError, match="cwd"):
        Client().with_options(directory="/")


def test_making_a_client_starts_nothing(tmp_path):
    """No process, thread or descriptor, no look at the CLI: the fixture of all tests sees the rest."""
    before = threading.active_count()
    client = Client(cli_path=tmp_path / "not here yet")
    assert threading.active_count() == before
    client.close()


def test_a_client_is_not_pickled(play):
    """The sentence says what to do instead. Copies are refused alike: they would share slots by accident."""
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="in the process that uses it"):
            attempt(Client())


# --- defaults


def test_a_call_overrides_the_client(play):
    """And leaves it as it was."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path, model="sonnet", max_turns=3)
    client.ask("p")
    client.ask("p", model="haiku")
    client.ask("p", model=None)
    client.ask("p")
    assert [call.option("--model") for call in fake.calls] == ["sonnet", "haiku", None, "sonnet"]
    assert {call.option("--max-turns") for call in fake.calls} == {"3"}


def test_with_options_is_another_client(play):
    """Its defaults come over the first one's, which stay as they were; it may be derived again."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path, model="sonnet", env={"A": "1", "B": "1"})
    other = client.with_options(max_turns=2, env={"B": "2"})
    third = other.with_options(model=None)
    for one in (client, other, third):
        one.ask("p")
    assert [(call.option("--model"), call.option("--max-turns")) for call in fake.calls] == [
        ("sonnet", None),
        ("sonnet", "2"),
        (None, "2"),
    ]
    assert [(call.env["A"], call.env["B"]) for call in fake.calls] == [("1", "1"), ("1", "2"), ("1", "2")]
    assert type(other) is Client


def test_a_limit_that_equals_the_default_is_given(play):
    """`timeout=3600.0` at a call overrides the client's, although it is the number in the signature."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path, timeout=5, idle_timeout=6, start_timeout=7)
    run = client.run("p", timeout=3600.0, idle_timeout=900.0, start_timeout=60.0)
    launch = run._channel.launch
    assert (launch.timeout, launch.idle_timeout, launch.start_timeout) == (3600, 900, 60)
    run.result()
    run = client.run("p")
    launch = run._channel.launch
    assert (launch.timeout, launch.idle_timeout, launch.start_timeout) == (5, 6, 7)
    run.result()
    run = Client(cli_path=fake.path).run("p")
    launch = run._channel.launch
    assert (launch.timeout, launch.idle_timeout, launch.start_timeout) == (3600, 900, 60)
    run.result()


def test_defaults_are_copied(play):
    """Who changes his list afterwards changes no turn."""
    fake = play(*TURN)
    tools = ["Read"]
    client = Client(cli_path=fake.path, tools=tools)
    tools.append("Bash")
    client.ask("p")
    assert fake.calls[0].option("--tools") == "Read"


# --- totals


def test_totals_add_up(play):
    """Turns, cost and tokens of those that said them; failures by class; cancelled ones of unknown cost."""
    scripts = [TURN, TURN, [init(), api_failure(429)], [init(), api_failure(401)], [exit_with(3)], [init(), hang()]]
    client = Client(cli_path=play(scripts=scripts).path)
    assert client.totals == (0, {}, 0, 0.0, 0, 0, 0, 0, 0, 0)
    client.ask("p")
    client.ask("p")
    for error in (RateLimitError, AuthenticationError, ProcessError):
        with pytest.raises(error):
            client.ask("p")
    with client.run("p") as run:
        next(run)
    totals = client.totals
    assert totals.turns == 6
    assert totals.failures == {"RateLimitError": 1, "AuthenticationError": 1, "ProcessError": 1, "TurnCancelled": 1}
    assert totals.cancelled == 1
    assert totals.cost_usd == 0.5
    assert totals.unknown_cost == 2
    assert (totals.input_tokens, totals.output_tokens) == (24, 14)
    assert (totals.cache_read_tokens, totals.cache_creation_tokens) == (10, 6)


def test_totals_are_those_of_the_moment(play):
    """What was read does not change; a turn counts when it is over, whether or not anybody reads it."""
    fake = play(wait_for("end"), *TURN)
    client = Client(cli_path=fake.path)
    run = client.run("p")
    before = client.totals
    assert before.turns == 0
    fake.release("end")
    until(lambda: run.done)
    assert client.totals.turns == 1
    assert before.turns == 0
    run.result()
    list(run)
    assert client.totals.turns == 1


def test_totals_are_shared_by_variants(play):
    """Those of `with_options` count together; another client is another count."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path)
    other = client.with_options(model="haiku")
    client.ask("p")
    other.ask("p")
    assert client.totals == other.totals
    assert client.totals.turns == 2
    assert Client(cli_path=fake.path).totals.turns == 0


def test_totals_of_a_resumed_session(play):
    """The turn's own share counts, not what the session cost before."""
    fake = play(init(), result("1", cost_usd=0.25, session_cost_usd=10.0))
    client = Client(cli_path=fake.path)
    client.ask("p", resume="11111111-2222-4333-8444-555555555555")
    assert client.totals.cost_usd == 0.25


def test_totals_of_many_threads(play):
    """None is lost."""
    client = Client(cli_path=play(*TURN).path, max_concurrent=8)
    threads = [Background(lambda: [client.ask("p") for _ in range(4)]) for _ in range(8)]
    for thread in threads:
        thread.result(30)
    assert client.totals.turns == 32
    assert client.totals.cost_usd == 8.0


# --- its end


def test_a_closed_client_refuses(play):
    """Every call, also of its variants; and nothing is started."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path)
    other = client.with_options(model="haiku")
    client.close()
    for one in (client, other):
        for call in (lambda: one.run("p"), lambda: one.ask("p"), lambda: next(one.map(["p"])), one.probe):  # noqa: B023
            with pytest.raises(ClientClosedError):
                call()
    assert fake.calls == []
    client.close()
    assert client.totals.turns == 0


def test_close_wakes_those_who_wait_for_a_slot(play):
    """All of them, with ClientClosedError."""
    fake = play(init(), hang())
    client = Client(cli_path=fake.path, max_concurrent=1)
    run = client.run("p")
    next(run)
    waiting = [Background(client.run, "p", slot_timeout=seconds) for seconds in (None, 60, None)]
    until(lambda: len(client._pool._line) == 3)
    client.close()
    for one in waiting:
        with pytest.raises(ClientClosedError):
            one.result()
    assert run.done
    assert len(fake.calls) == 1


def test_close_ends_the_runs(play):
    """Those of all variants; when it returns nothing of them is left."""
    fake = play(init(), start_child("session"), ready("on"), hang())
    client = Client(cli_path=fake.path)
    runs = [client.run("p"), client.with_options(model="haiku").run("p"), client.run("p")]
    consumer = Background(list, runs[0])
    fake.wait("on", count=3)
    client.close()
    assert all(run.done for run in runs)
    until_gone(fake)
    assert consumer.result()[-1].subtype == "cancelled"
    with pytest.raises(TurnCancelled):
        runs[1].result()


def test_close_is_bounded(play, graces, monkeypatch):
    """After `timeout` it returns; the ends go on. A second one waits for what the first one began."""
    graces(term=1000)
    fake = play(ignore_term(), init(), hang())
    client = Client(cli_path=fake.path)
    run = client.run("p")
    next(run)
    Background(client.close, timeout=0.05).result()
    assert not run.done
    awaited: queue.SimpleQueue[float] = queue.SimpleQueue()
    wait = Channel.wait

    def seen(channel, seconds):
        if seconds:
            awaited.put(seconds)
        return wait(channel, seconds)

    def close():
        client.close(timeout=float("inf"))
        return run.done

    with monkeypatch.context() as patch:
        patch.setattr(Channel, "wait", seen)
        waiting = Background(close)
        assert awaited.get(timeout=DEADLINE) == float("inf")
    run._channel.cancel(hard=True)
    assert waiting.result() is True


@pytest.mark.parametrize("wait", ["close", "check_ready", "is_ready"])
@pytest.mark.parametrize("timeout", ["5", None])
def test_what_is_no_timeout(wait, timeout):
    """A ValueError that says what it must be; nothing is closed or started."""
    client = Client(cli_path="/not/there")
    with pytest.raises(ValueError, match="timeout must be a number of seconds, not"):
        getattr(client, wait)(timeout)
    with pytest.raises(CLINotFoundError):
        client.ask("p")


def test_close_lets_finished_turns_end(play, graces, tmp_path):
    """A turn whose result is there gets the time to write its transcript, and keeps its answer."""
    graces(exit=60, term=60)
    killed = tmp_path / "killed"
    fake = play(on_term(touch(killed)), init(), result("1"), ready("said"), wait_for("end"))
    client = Client(cli_path=fake.path)
    run = client.run("p")
    fake.wait("said")
    until(lambda: run._channel.reducer.answer)
    closing = Background(client.close)
    until(lambda: client._pool.closed)
    fake.release("end")
    closing.result()
    assert run.result().result == "1"
    assert not killed.exists()


def test_leaving_the_client_closes_it(play):
    """`with Client(...)`: its runs end with the block, also when an exception leaves it."""
    fake = play(init(), hang())
    client = Client(cli_path=fake.path)

    def leave():
        with client as entered:
            assert entered is client
            next(client.run("p"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave()
    assert fake.alive() == []
    with pytest.raises(ClientClosedError):
        client.run("p")


def test_a_dropped_client_leaves_its_runs_alone(play):
    """A run keeps what it needs."""
    fake = play(init(), wait_for("end"), result("1"))
    run = Client(cli_path=fake.path).run("p")
    fake.release("end")
    assert run.result().result == "1"


def test_close_between_the_slot_and_the_start(play, monkeypatch):
    """The slot is taken, the process not yet started, the client is closed: refused, and nothing is started."""
    from claude_cli_client import _channel

    fake = play(*TURN)
    client = Client(cli_path=fake.path)
    made = _channel.Channel

    def closing(*args):
        client.close()
        return made(*args)

    monkeypatch.setattr(_channel, "Channel", closing)
    with pytest.raises(ClientClosedError):
        client.run("p")
    assert fake.calls == []
    assert client._pool._held == set()


def test_close_while_the_process_is_started(play, monkeypatch):
    """`close` waits for a start that is under way, and ends it."""
    from claude_cli_client import _process

    entered, released = threading.Event(), threading.Event()
    popen = _process.subprocess.Popen

    def slowly(*args, **named):
        entered.set()
        assert released.wait(10)
        return popen(*args, **named)

    fake = play(init(), hang())
    client = Client(cli_path=fake.path)
    with client.with_options().run("p") as run:  # the guard is there
        next(run)
    monkeypatch.setattr(_process.subprocess, "Popen", slowly)
    starting = Background(client.run, "p")
    assert entered.wait(10)
    closing = Background(client.close)
    until(lambda: client._pool.closed)
    assert closing.is_waiting
    released.set()
    closing.result()
    run = starting.result()
    assert run.done
    assert [event.subtype for event in run][-1] == "cancelled"
    assert fake.alive() == []


def test_close_and_run_at_the_same_time(play, slots_free):
    """Threads that start turns while the client is closed: each gets an answer, a cancel or a refusal, and
    nothing is left."""
    fake = play(*TURN)
    for _ in range(10):
        client = Client(cli_path=fake.path, max_concurrent=3)
        barrier = threading.Barrier(6)

        def work(client=client, barrier=barrier):
            barrier.wait(10)
            for _ in range(20):
                try:
                    client.ask("p")
                except TurnCancelled:
                    continue
                except ClientClosedError:
                    return "refused"
            return "never refused"

        threads = [Background(work) for _ in range(5)]
        barrier.wait(10)
        until(lambda client=client: client.totals.turns)
        client.close()
        assert [thread.result() for thread in threads] == ["refused"] * 5
        assert slots_free(client) == 3
        assert client._pool._running == set()
    assert fake.alive() == []


def test_close_from_several_threads(play):
    """All return when the runs are over."""
    fake = play(init(), hang())
    client = Client(cli_path=fake.path)
    run = client.run("p")
    next(run)
    for one in [Background(client.close) for _ in range(5)]:
        one.result()
    assert run.done


def test_close_on_the_thread_that_consumes(play):
    """In the middle of the loop over a run of the client."""
    fake = play(init(), hang())
    client = Client(cli_path=fake.path)
    events = []
    for event in client.run("p"):
        events.append(event)
        client.close()
    assert [event.subtype for event in events] == ["init", "cancelled"]


# --- readiness


def test_check_ready_gives_the_version(play):
    """Asked of the CLI, without a turn."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path)
    assert client.check_ready() == VERSION
    assert client.is_ready() is True
    assert fake.calls == []


def test_an_old_cli_is_not_ready(play):
    """CLIVersionError says which is needed."""
    client = Client(cli_path=play(*TURN, version="1.0.50 (Claude Code)").path)
    with pytest.raises(CLIVersionError) as caught:
        client.check_ready()
    assert caught.value.found == "1.0.50"
    assert client.is_ready() is False


def test_a_cli_that_does_not_answer_is_not_ready(play):
    """`timeout` bounds it, and nothing is left of the question."""
    fake = play(hang(), version=None)
    client = Client(cli_path=fake.path)
    assert client.is_ready(timeout=0.1) is False
    with pytest.raises(StartError):
        client.check_ready(timeout=0.1)
    until(lambda: not fake.alive())


def test_ready_takes_no_slot(play):
    """A busy client can be asked."""
    fake = play(wait_for("end"), *TURN)
    client = Client(cli_path=fake.path, max_concurrent=1)
    run = client.run("p")
    assert client.check_ready() == VERSION
    fake.release("end")
    run.result()


# --- probe


def test_probe_says_that_work_can_be_done(play):
    """One tiny turn without tools that leaves no transcript; true, with model, cost and duration."""
    fake = play(*TURN)
    capacity = Client(cli_path=fake.path).probe()
    assert capacity
    assert capacity.available is True
    assert capacity.error is None
    assert (capacity.model, capacity.cost_usd) == (MODEL, 0.25)
    assert capacity.duration > 0
    (call,) = fake.calls
    assert "--no-session-persistence" in call.argv
    assert call.option("--tools") == ""
    assert call.option("--max-turns") == "1"
    assert call.env["CLAUDE_CODE_MAX_RETRIES"] == "0"


def test_probe_says_when(play):
    """A limit: until when, as far as the CLI says."""
    reset = int(time.time()) + 3000
    info = {"status": "rejected", "resetsAt": reset, "rateLimitType": "five_hour", "utilization": 1.0}
    limited = [init(), {"type": "rate_limit_event", "rate_limit_info": info}, api_failure(429)]
    capacity = Client(cli_path=play(*limited).path).probe()
    assert not capacity
    assert isinstance(capacity.error, RateLimitError)
    assert capacity.resets_at == reset
    assert 2900 < capacity.retry_after <= 3000
    assert capacity.utilization == 1.0


def test_probe_answers_whatever_is_wrong(play, tmp_path):
    """No CLI, no login, no result, no slot: all of it is an answer."""
    assert isinstance(Client(cli_path=tmp_path / "missing").probe().error, CLINotFoundError)
    assert isinstance(Client(cli_path=play(init(), api_failure(401)).path).probe().error, AuthenticationError)
    assert isinstance(Client(cli_path=play(exit_with(3)).path).probe().error, ProcessError)
    fake = play(wait_for("end"), *TURN)
    client = Client(cli_path=fake.path, max_concurrent=1)
    run = client.run("p")
    assert isinstance(client.probe(slot_timeout=0).error, SlotTimeoutError)
    fake.release("end")
    run.result()


def test_probe_raises_what_the_caller_did_wrong(play):
    """Names and values of options."""
    client = Client(cli_path=play(*TURN).path)
    with pytest.raises(TypeError):
        client.probe(modell="x")
    with pytest.raises(ValueError, match="timeout"):
        client.probe(timeout=-1)


def test_probe_leaves_the_clients_callbacks_alone(play):
    """Hooks and permission callbacks are for the client's own turns: the CLI does not hear of any."""
    fake = play(*TURN)
    called: list[object] = []
    client = Client(
        cli_path=fake.path, hooks={"UserPromptSubmit": called.append}, can_use_tool=called.append,
        callback_wrapper=lambda: called.append("wrapper"),
    )  # fmt: skip
    assert client.probe()
    assert Client(cli_path=fake.path, unattended=True).probe()
    assert [call.option("--input-format") for call in fake.calls] == [None, None]
    assert not called


# How the client works, of which the probe shall say whether it works: the same in it as in every turn.
KEPT_BY_A_PROBE = """
model fallback_model effort thinking max_thinking_tokens betas system_prompt_snapshot autocompact
allowed_tools disallowed_tools permission_mode dangerously_skip_permissions allow_dangerously_skip_permissions
add_dirs sandbox idle_timeout start_timeout settings setting_sources bare restricted debug_file
include_partial_messages include_hook_events forward_subagent_text cwd env inherit_env config_dir isolated autoupdate
command_prefix kill_leftovers literal max_line_bytes max_buffered_bytes extra_args
"""


def test_of_every_option_it_is_decided_whether_a_probe_keeps_it():
    """An option is kept as the client has it, or the probe sets it: a new one must be thought of."""
    assert sorted([*KEPT_BY_A_PROBE.split(), *_probe._PROBE]) == sorted(OPTIONS)


def test_probe_takes_options(play):
    """Over its own and the client's."""
    fake = play(*TURN)
    Client(cli_path=fake.path, model="sonnet").probe(model="haiku")
    assert fake.calls[0].option("--model") == "haiku"


# --- settings files


@pytest.fixture
def settings(tmp_path) -> Path:
    folder = tmp_path / "settings"
    folder.mkdir()
    wanted = ("settings.json", "work-settings.json", "a-settings.json")
    for name in (*wanted, "other.json", "mysettings.json", "settings.json.bak"):
        (folder / name).write_text("{}")
    return folder


def names(found: list[Path]) -> list[str]:
    return [path.name for path in found]


def test_list_settings_is_sorted(settings):
    """`settings.json` and `*-settings.json`, as paths, and nothing else."""
    found = Client(settings_dir=settings).list_settings()
    assert found == sorted(found)
    assert names(found) == ["a-settings.json", "settings.json", "work-settings.json"]
    assert all(path.parent == settings for path in found)


def test_list_settings_is_cached(settings, monkeypatch):
    """For `settings_cache_ttl` seconds; what was given out may be changed by its owner."""
    now = [1000.0]
    monkeypatch.setattr(client_module, "monotonic", lambda: now[0])
    client = Client(settings_dir=settings, settings_cache_ttl=60)
    first = client.list_settings()
    first.clear()
    (settings / "b-settings.json").write_text("{}")
    assert len(client.list_settings()) == 3
    now[0] += 59
    assert len(client.list_settings()) == 3
    now[0] += 2
    assert len(client.list_settings()) == 4


def test_no_cache(settings):
    """`settings_cache_ttl=0`: looked up each time."""
    client = Client(settings_dir=str(settings), settings_cache_ttl=0)
    assert len(client.list_settings()) == 3
    (settings / "b-settings.json").write_text("{}")
    assert len(client.list_settings()) == 4
    (settings / "b-settings.json").unlink()
    assert len(client.list_settings()) == 3


def test_a_missing_folder_has_no_settings(tmp_path):
    """No error: many machines have none."""
    assert Client(settings_dir=tmp_path / "missing").list_settings() == []


def test_settings_in_the_home(settings, tmp_path, monkeypatch):
    """`~/.claude` by default; `~` is expanded."""
    monkeypatch.setenv("HOME", str(tmp_path))
    settings.rename(tmp_path / ".claude")
    assert len(Client().list_settings()) == 3
    assert len(Client(settings_dir="~/.claude").list_settings()) == 3
    assert Client(settings_dir="~/elsewhere").list_settings() == []


def test_without_a_home(settings, monkeypatch):
    """RuntimeError that says so, where it is needed; a folder given does not need it."""
    monkeypatch.delenv("HOME")
    for client in (Client(), Client(settings_dir="~/x")):
        with pytest.raises(RuntimeError, match="HOME"):
            client.list_settings()
    assert len(Client(settings_dir=settings).list_settings()) == 3


# --- shared


def test_one_client_for_many_threads(play):
    """Each gets the answer to his own prompt."""
    with FakeCLI(scripts=[TURN]) as fake:
        client = Client(cli_path=fake.path, max_concurrent=4)

        def ask(number):
            run = client.run(f"prompt {number}")
            run.result()
            return run.pid

        threads = [Background(ask, number) for number in range(16)]
        pids = [thread.result(30) for thread in threads]
        prompts = {call.pid: call.prompt for call in fake.calls}
    assert [prompts[pid] for pid in pids] == [f"prompt {number}" for number in range(16)]


def test_environment_changes_are_seen_by_the_next_run(play, monkeypatch):
    """Nothing of the environment is kept from when the client was made."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path)
    monkeypatch.setenv("LATER", "1")
    client.ask("p")
    assert fake.calls[0].env["LATER"] == "1"
    assert "LATER" in os.environ
