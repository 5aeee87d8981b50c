"""The real CLI: two wires, one behaviour. Every scenario of a one-shot turn, as text and as stream-json.

A turn speaks stream-json when it has callbacks or a literal prompt, and nothing else may differ: its
events, field by field, and the error that `result()` raises. What does differ is listed in
`DIFFERENCES`, each with its reason, and a test sees to it that no entry is there in vain.
"""

from __future__ import annotations

import dataclasses
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from real_cli import NOWHERE, RealCLI, bash, tool
from waiting import Background

from claude_cli_client import Client, Event, TurnError

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(90)]

# What makes a turn stream, and does nothing else.
WAYS: dict[str, dict[str, Any]] = {
    "text": {},
    "literal": {"literal": True},
    "hook": {"hooks": {"Stop": lambda call: None}},
}

# Events that come in one of the ways only, and why that is right.
DIFFERENCES: dict[str, tuple[Callable[[Event], bool], str]] = {
    "command_lifecycle": (
        lambda event: event.type == "command_lifecycle",
        "the CLI tells what becomes of a prompt that has a uuid, and only one on stream-json has one",
    ),
}

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
AGENT = tool(
    "Agent",
    description="Look",
    prompt=f"look {bash('echo deep')}[[then]][[text: I looked]]",
    subagent_type="general-purpose",
    run_in_background=False,
)
BACKGROUND_AGENT = tool("Agent", description="Look", prompt="look [[text: I looked]]", subagent_type="Explore")
LATER = bash("sleep 0.5; echo late", description="slow thing", run_in_background=True)

# prompt, options
SCENARIOS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("[[text: hello there]]", {}),
    "several blocks": ("[[text: one]][[text: two]]", {}),
    "thinking": ("[[think: hm]][[text: hello]]", {}),
    "tool": (f"{bash('echo 漢')}[[then]][[text: it says so]]", {"allowed_tools": ["Bash"]}),
    "two tools at once": (bash("touch a") + bash("touch b"), {"allowed_tools": ["Bash"]}),
    "failing tool": (f"{bash('echo oops; exit 3')}[[then]][[text: it failed]]", {"allowed_tools": ["Bash"]}),
    "denied tool": (bash("mkdir x"), {"permission_mode": "dontAsk"}),
    "unknown tool": (tool("NoSuchTool", a=1), {}),
    "partial messages": (
        f"[[think: hm]][[text: hello there]][[chunks: 3]]{bash('echo a')}[[then]][[text: so]]",
        {"include_partial_messages": True, "allowed_tools": ["Bash"]},
    ),
    "structured output": ('[[structured: {"n": 3}]]', {"json_schema": SCHEMA}),
    "structured output that never fits": ('[[structured: {"n": "x"}]][[loop]]', {"json_schema": SCHEMA}),
    "structured output ignored": ("[[text: no]][[then]][[text: no again]]", {"json_schema": SCHEMA}),
    "max_turns": (f"{bash('echo again')}[[loop]]", {"allowed_tools": ["Bash"], "max_turns": 2}),
    "budget": ("[[text: a]]", {"max_budget_usd": 0.0001}),
    "401": ("[[status: 401 authentication_error]]", {"max_retries": 0}),
    "429": ("[[status: 429 rate_limit_error]]", {"max_retries": 0}),
    "500, then fine": ("[[status: 500 api_error]][[times: 1]][[text: fine]]", {"max_retries": 1}),
    "500": ("[[status: 500 api_error]]", {"max_retries": 0}),
    "refused connection": ("", {"max_retries": 0, "env": {"ANTHROPIC_BASE_URL": NOWHERE}}),
    "cut stream": ("[[text: a]][[cut: delta always]]", {"max_retries": 0}),
    "cut stream, then whole": (
        "[[text: hello there]][[chunks: 3]][[cut: delta]][[times: 1]]",
        {"max_retries": 0, "include_partial_messages": True},
    ),
    "refusal": ("[[stop: refusal]][[loop]]", {"max_retries": 0}),
    "stale session": ("", {"resume": "6c8d5a4e-4a9f-4a52-9a44-1d2c4f1ae2b1"}),
    "no credentials": ("", {"env": {"ANTHROPIC_API_KEY": None}}),
    "unknown flag": ("", {"extra_args": {"no-such-flag": None}}),
    "subagent": (f"{AGENT}[[then]][[text: it looked]]", {"allowed_tools": ["Bash", "Agent"]}),
    "subagent's text": (
        f"{AGENT}[[then]][[text: it looked]]",
        {"allowed_tools": ["Bash", "Agent"], "forward_subagent_text": True},
    ),
    "background command": (
        f"{LATER}[[then]][[text: started it]][[then]][[text: it is done]]",
        {"allowed_tools": ["Bash"], "background": "wait"},
    ),
    "background agent": (
        f"{BACKGROUND_AGENT}[[then]][[delay: 0.3]][[text: launched]][[then]][[text: it has looked]]",
        {"allowed_tools": ["Agent"], "background": "wait"},
    ),
    "background command forbidden": (f"{LATER}[[then]][[text: no]]", {"allowed_tools": ["Bash"]}),
    "hooks of settings": (
        bash("echo a"),
        {
            "allowed_tools": ["Bash"],
            "include_hook_events": True,
            "settings": {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "echo hooked"}]}]}},
        },
    ),
    "blocked by a hook of settings": (
        "",
        {"settings": {"hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": "exit 2"}]}]}}},
    ),
    "a session that is not kept": ("[[text: gone]]", {"persist_session": False}),
    "resume": ("[[text: again]]", {"resume": "made before"}),
    "fork": ("[[text: again]]", {"resume": "made before", "fork_session": True}),
    "continue": ("[[text: again]]", {"continue_conversation": True}),
    "session id in use": ("[[text: again]]", {"session_id": "made before"}),
}

# --- what is compared -------------------------------------------------------------------------

# Of no two turns the same: whether they are there is compared, their values are not.
TIMES = ("duration_ms", "duration_api_ms", "ttft_ms", "task_ms", "retry_delay_ms")
IDS = ("session_id", "parent_tool_use_id", "message_id", "tool_id", "task_id")
FIELDS = [field.name for field in dataclasses.fields(Event) if field.name not in ("raw", "uuid", *TIMES, *IDS)]
# Ids and times that stand in texts.
UNSTEADY = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}"  # sessions, lines
    r"|\b(toolu|msg|req)_\w+"
    r"|\b[ab](?=\w*\d)[0-9a-z]{8,16}\b"  # agents, tasks
    r"|\brunId\W+[\w-]+"
    r"|(?i:duration_?ms)\W+\d+"
    r"|/tmp/[^\s\"\\]+"
)


def compared(events: list[Event], way: str) -> list[dict[str, Any]]:
    """The events as they must be in all ways: every field, ids by the place where they first occur."""
    known: dict[str, str] = {}
    found = []
    # In texts too. A task's id is random letters and digits, sometimes letters only: no pattern finds it.
    ids = {getattr(event, name) for event in events for name in IDS} - {""}

    def steady(value: Any) -> Any:
        if isinstance(value, float):
            return round(value, 9)
        if value in (None, "", False, ()):
            return value
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=lambda other: list(other) or dict(other))
        for one in ids:
            text = text.replace(one, "*")
        return UNSTEADY.sub("*", text.replace(f"{way:8}", "WAY"))

    for event in events:
        if any(test(event) for test, _ in DIFFERENCES.values()):
            continue
        one = {name: steady(getattr(event, name)) for name in FIELDS}
        one.update({name: getattr(event, name) is not None for name in TIMES})
        for name in IDS:
            value = getattr(event, name)
            one[name] = known.setdefault(value, f"id {len(known)}") if value else ""
        if event.subtype == "init":
            one["init"] = {key: steady(event.data.get(key)) for key in ("tools", "permissionMode", "mcp_servers")}
        default = {name: getattr(Event(), name) for name in FIELDS}
        found.append({name: value for name, value in one.items() if value != default.get(name, False)})
    return found


def outcome(client: Client, prompt: str, options: Mapping[str, Any], way: str) -> tuple[Any, ...]:
    run = client.run(f"{way:8} {prompt}", **{**options, **WAYS[way]})
    events = list(run)
    error = run.error()
    return compared(events, way), facts(error), events


def facts(error: TurnError | None) -> Any:
    if error is None:
        return None
    return type(error).__name__, error.exit_code, error.retryable, getattr(error, "status", None)


def run_in_all_ways(cli: RealCLI, scenario: str) -> dict[str, tuple[Any, ...]]:
    prompt, given = SCENARIOS[scenario]
    options = dict(given)
    env = options.pop("env", {})

    def one(way: str) -> tuple[Any, ...]:
        # A folder of its own: what one way leaves there must not be found by another one.
        folder = cli.root / way
        folder.mkdir()
        client = cli.client(cwd=folder, env=env)
        mine = dict(options)
        for name in ("resume", "session_id"):
            if mine.get(name) == "made before":
                mine[name] = client.ask("before [[text: before]]", session_id=str(uuid.uuid4())).session_id
        if "continue_conversation" in mine:
            client.ask("before [[text: before]]")
        return outcome(client, prompt, mine, way)

    calls = {way: Background(one, way) for way in WAYS}
    return {way: call.result(60) for way, call in calls.items()}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_both_wires_give_the_same(cli: RealCLI, scenario: str):
    """Equal events in equal order, and the same error, but for what is listed."""
    outcomes = run_in_all_ways(cli, scenario)
    events, error, _ = outcomes["text"]
    for way in list(WAYS)[1:]:
        assert [one["type"] for one in outcomes[way][0]] == [one["type"] for one in events], way
        assert not list(unequal(outcomes[way][0], events)), way
        assert outcomes[way][1] == error, way


def unequal(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """Type, field and both values where they differ."""
    for one, other in zip(found, expected, strict=True):
        for name in one.keys() | other.keys():
            if one.get(name) != other.get(name):
                yield other["type"], name, one.get(name), other.get(name)


def test_the_listed_differences_exist(cli: RealCLI):
    """Each listed difference is one: it occurs in streaming, and not in text."""
    outcomes = run_in_all_ways(cli, "tool")
    for name, (test, _) in DIFFERENCES.items():
        assert not any(map(test, outcomes["text"][2])), name
        assert any(map(test, outcomes["literal"][2])), name
