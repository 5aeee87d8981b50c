"""The real CLI: every run ends, and leaves nothing behind, however it ends."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from real_cli import HAS_PROC, Gate, RealCLI, bash, eventually, processes_with

from claude_cli_client import ClientClosedError, SlotTimeoutError, TurnCancelled, TurnTimeout

pytest_plugins = ["real_cli"]
pytestmark = [
    pytest.mark.real_cli,
    pytest.mark.timeout(60),
    pytest.mark.skipif(not HAS_PROC, reason="reads the environments of processes in /proc"),
]

MARKER = "CLAUDE_CLI_CLIENT_RUN"
# The ladder: 3 s from TERM to KILL, and some for a busy machine.
LADDER = 3.0
SLACK = 5.0


def escaping(gate: Gate) -> str:
    """A Bash call with children in its group, in sessions of their own, orphaned, and deaf to TERM."""
    return bash(
        "sleep 600 & "
        "setsid sleep 601 & "
        "(setsid sh -c 'sleep 602 & exec sleep 603' </dev/null >/dev/null 2>&1 &); "
        "setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 604; done' & "
        f"echo ready > {gate.path}; wait"
    )


def spread_out(cli: RealCLI, gate: Gate) -> None:
    """Wait until all of them run: CLI, shell, five sleeps, a stubborn shell. The gate alone says less."""
    gate.wait()
    assert eventually(lambda: len(cli.processes()) >= 8, 10.0), cli.processes()


def in_a_tool(cli: RealCLI, **options):
    """A run in the middle of a tool that has spread out."""
    gate = cli.gate()
    run = cli.client(allowed_tools=["Bash"]).run(f"go {escaping(gate)}", **options)
    spread_out(cli, gate)
    return run


def environment_of(pid: int) -> list[bytes]:
    """None when it has ended meanwhile, or is in the middle of an exec."""
    with contextlib.suppress(OSError):
        return list(filter(None, Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")))
    return []


def gone(cli: RealCLI, timeout: float = 3.0) -> bool:
    """Nothing of this test runs; the seconds are for killed processes to leave the table."""
    return eventually(lambda: not cli.processes(), timeout)


# --- cancel -----------------------------------------------------------------------------------


def test_cancel_in_a_tool_leaves_nothing(cli: RealCLI):
    """Cancel returns at once; when the run is closed, children in their own sessions and orphans are gone."""
    run = in_a_tool(cli)
    start = time.monotonic()
    run.cancel()
    assert time.monotonic() - start < 1.0
    run.close()
    assert time.monotonic() - start < LADDER + SLACK
    assert gone(cli), cli.processes()
    with pytest.raises(TurnCancelled):
        run.result()


def test_every_process_of_a_run_carries_its_marker(cli: RealCLI):
    """The CLI and all that its tools started hold the run's marker, and none does afterwards."""
    run = in_a_tool(cli)
    markers = set()
    for pid, command in cli.processes().items():
        variables = environment_of(pid)
        markers |= {v.decode() for v in variables if v.startswith(MARKER.encode() + b"=")}
        assert any(v.startswith(MARKER.encode() + b"=") for v in variables) or not variables, command
    (marker,) = markers
    run.close()
    assert eventually(lambda: not processes_with(marker), 3.0)


def test_a_cancelled_run_ends_with_one_error_event(cli: RealCLI):
    """The loop of a cancelled run ends with `error`, subtype `cancelled`, and does not raise."""
    run = cli.client().run("hi [[hang]]")
    cli.api.requests(1)
    run.cancel()
    run.cancel()
    last = list(run)[-1]
    assert (last.type, last.subtype, last.is_terminal) == ("error", "cancelled", True)
    assert run.done
    assert last.session_id == run.session_id


def test_cancel_from_another_thread_ends_the_loop(cli: RealCLI):
    """A loop that waits for the next event ends when another thread cancels."""
    run = cli.client().run("hi [[text: some words]][[chunks: 3]][[stall]]", include_partial_messages=True)
    seen = []
    for event in run:
        seen.append(event.type)
        if event.type == "text_delta":
            threading.Thread(target=run.cancel).start()
    assert seen[-1] == "error"


def test_leaving_with_ends_the_run(cli: RealCLI):
    """`with` cancels an unfinished run and waits for its end."""
    with in_a_tool(cli):
        pass
    assert gone(cli), cli.processes()


def test_an_exception_in_the_loop_ends_the_run(cli: RealCLI):
    """An exception that leaves `with` ends the run and passes through."""
    with pytest.raises(RuntimeError, match="mine"), in_a_tool(cli):
        raise RuntimeError("mine")
    assert gone(cli), cli.processes()


def test_a_forgotten_run_is_ended(cli: RealCLI):
    """A run that nothing refers to any more is cancelled by the collector."""
    run = in_a_tool(cli)
    del run
    gc.collect()
    assert gone(cli, LADDER + SLACK), cli.processes()


def test_closing_the_client_ends_its_runs(cli: RealCLI):
    """`Client.close` ends runs in the middle of a tool, and refuses new ones."""
    run = in_a_tool(cli)
    client = cli.clients[0]
    client.close()
    assert gone(cli), cli.processes()
    assert list(run)[-1].subtype == "cancelled"
    with pytest.raises(ClientClosedError):
        client.run("hi")


def test_a_normal_end_waits_for_the_transcript(cli: RealCLI):
    """After the answer the CLI ends by itself, and the answer is in the transcript."""
    session = cli.ask("hi [[text: keep me]]").session_id
    (transcript,) = cli.transcripts()
    assert transcript.stem == session
    assert "keep me" in transcript.read_text()


def test_what_a_tool_left_running_is_left_alone(cli: RealCLI):
    """After a normal end a tool's daemon lives on."""
    gate = cli.gate()
    daemon = f"(setsid sh -c 'echo $$ > {gate.path}; exec sleep 600' </dev/null >/dev/null 2>&1 &)"
    cli.ask(f"go {bash(daemon)}", allowed_tools=["Bash"])
    pid = int(gate.wait())
    try:
        assert pid in cli.processes()
    finally:
        os.kill(pid, signal.SIGKILL)


def test_kill_leftovers(cli: RealCLI):
    """With `kill_leftovers` a tool's daemon ends with the run."""
    gate = cli.gate()
    daemon = f"(setsid sh -c 'echo $$ > {gate.path}; exec sleep 600' </dev/null >/dev/null 2>&1 &)"
    result = cli.ask(f"go {bash(daemon)}", allowed_tools=["Bash"], kill_leftovers=True)
    assert result.result == "done"
    assert int(gate.wait())
    assert gone(cli), cli.processes()


# --- limits -----------------------------------------------------------------------------------

LIMITS = {
    "total": ({"timeout": 1.0}, "timeout"),
    "idle": ({"idle_timeout": 1.0}, "idle_timeout"),
    "start": ({"start_timeout": 0.02}, "start_timeout"),
}


@pytest.mark.parametrize("kind", LIMITS)
def test_a_limit_ends_a_silent_turn(cli: RealCLI, kind: str):
    """Each limit ends the run with its own event and a TurnTimeout that says which one it was."""
    options, subtype = LIMITS[kind]
    start = time.monotonic()
    run = cli.client().run("hi [[hang]]", **options)
    last = list(run)[-1]
    assert time.monotonic() - start < 1.0 + LADDER + SLACK
    assert (last.type, last.subtype) == ("error", subtype)
    with pytest.raises(TurnTimeout) as caught:
        run.result()
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.kind, caught.value.limit) == (kind, next(iter(options.values())))
    run.close()
    assert gone(cli), cli.processes()


def test_a_limit_in_a_tool_leaves_nothing(cli: RealCLI, clock):
    """The total limit reaches children in their own sessions as well."""
    run = in_a_tool(cli, timeout=1000.0)
    clock.move(2000.0, run)
    with pytest.raises(TurnTimeout):
        run.result()
    run.close()
    assert gone(cli), cli.processes()


def test_a_limit_holds_while_nobody_iterates(cli: RealCLI):
    """The run ends on time even if nobody takes its events."""
    run = cli.client().run("hi [[hang]]", timeout=0.5)
    assert eventually(lambda: run.done, 0.5 + LADDER + SLACK)
    assert gone(cli), cli.processes()


def test_lines_keep_a_turn_from_being_idle(cli: RealCLI, clock):
    """A turn that streams for longer than `idle_timeout` is not idle."""
    client = cli.client(timeout=None, idle_timeout=1000.0, include_partial_messages=True)
    run = client.run("hi [[words: 8]][[pace: 0.1]]")
    lines = 0
    for event in run:
        if event.type == "text_delta":
            lines += 1
            clock.move(900.0, run)
    assert lines >= 8
    assert run.result().result.startswith("word")


def test_waiting_for_the_result_can_be_limited(cli: RealCLI):
    """`result(timeout)` gives up without ending the run; `next_event` gives None."""
    run = cli.client().run("hi [[hang]]")
    with pytest.raises(TimeoutError) as caught:
        run.result(timeout=1.0)
    assert not isinstance(caught.value, TurnTimeout)
    assert not run.done
    assert run.next_event(0.05) is None
    assert not run.done
    run.close()


# --- several at once --------------------------------------------------------------------------


def test_four_turns_at_once(cli: RealCLI):
    """Four runs are with the model at the same time, and each gets its own answer."""
    client = cli.client(max_concurrent=4)
    runs = [client.run(f"hi [[together: 4]][[text: answer {n}]]") for n in range(4)]
    assert [run.result().result for run in runs] == [f"answer {n}" for n in range(4)]
    assert len({run.session_id for run in runs}) == 4


def test_the_next_turn_waits_for_a_slot(cli: RealCLI):
    """With all slots taken a run waits at most `slot_timeout`; the slot of a closed run is free."""
    client = cli.client(max_concurrent=1)
    first = client.run("hi [[hang]]")
    failed = []

    def second():
        with pytest.raises(SlotTimeoutError) as caught:
            client.run("two", slot_timeout=0.1)
        failed.append(caught.value)

    waiting = threading.Thread(target=second)
    waiting.start()
    waiting.join()
    assert failed[0].slot_timeout == 0.1
    assert failed[0].retryable
    first.close()
    assert client.ask("two [[text: now]]", slot_timeout=10).result == "now"


def test_map_keeps_the_order(cli: RealCLI):
    """`map` gives the answers in the order of the prompts, whichever comes first."""
    prompts = [f"hi [[delay: {0.6 - n / 5}]][[text: {n}]]" for n in range(4)]
    assert [r.result for r in cli.client(max_concurrent=2).map(prompts)] == ["0", "1", "2", "3"]


def test_the_cli_is_ready(cli: RealCLI):
    """`check_ready` gives the CLI's version, `is_ready` says yes."""
    client = cli.client()
    version = client.check_ready()
    assert version == cli.events("hi")[0].data["claude_code_version"]
    assert client.is_ready()


# --- the host dies ----------------------------------------------------------------------------

HOST = """
import json, os, sys, threading
from claude_cli_client import Client

order = json.loads(sys.stdin.readline())
options = {"allowed_tools": ["Bash"], "append_system_prompt": "x" * 200_000}  # goes by a file
run = Client(**order["options"]).run(order["prompt"], **options)

def obey():
    if sys.stdin.readline().strip() == "_exit":
        os._exit(7)

obeying = threading.Thread(target=obey, daemon=True)
obeying.start()
if order["way"] == "leave":
    while run.next_event(60).type != "tool_use":
        pass
    obeying.join()  # until the test, which hears from the tool, closes our stdin
else:
    for event in run:
        pass
"""


def start_host(cli: RealCLI, prompt: str, way: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "TMPDIR": str(cli.ours)}
    host = subprocess.Popen([sys.executable, "-c", HOST], stdin=subprocess.PIPE, text=True, env=environ)
    assert host.stdin is not None
    options = {**cli.options(), "cwd": str(cli.cwd)}
    host.stdin.write(json.dumps({"options": options, "prompt": prompt, "way": way}) + "\n")
    host.stdin.flush()
    return host


def children_of(pid: int) -> list[int]:
    """The children of a process, whichever of its threads started them. One that has ended has none."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            children += map(int, (task / "children").read_text().split())
    return children


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def end_host(host: subprocess.Popen[str], way: str) -> None:
    assert host.stdin is not None
    if way == "_exit":
        host.stdin.write("_exit\n")
        host.stdin.flush()
    elif way == "leave":
        host.stdin.close()
    else:
        host.send_signal(getattr(signal, way))


@pytest.mark.parametrize("way", ["SIGKILL", "SIGTERM", "SIGINT", "_exit", "leave"])
def test_the_host_dies_in_the_middle_of_a_tool(cli: RealCLI, way: str):
    """However the host ends: CLI, tools, children in their own sessions, guard: soon after it nothing lives."""
    gate = cli.gate()
    host = start_host(cli, f"go {escaping(gate)}", way)
    try:
        spread_out(cli, gate)
        children = children_of(host.pid)
        assert len(children) == 2, "the CLI and the guard"
        end_host(host, way)
        assert gone(cli, LADDER + SLACK), cli.processes()
        host.wait(10)
        assert eventually(lambda: not any(map(is_running, children)), 5.0)
        assert eventually(lambda: not list(cli.ours.iterdir()), 5.0)
    finally:
        host.kill()
        host.communicate()
