"""The real CLI: in-process tools. What they return is what the model reads."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import json
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from odd_schemas import BAD_NAMES, LEAVE_ALL_OUT, LEFT_OUT, NAMES, OFFERED
from real_cli import RealCLI, Request, tool
from waiting import Background

from claude_cli_client import (
    HookMatcher,
    InterruptedTurnError,
    ToolContext,
    ToolResult,
    ToolServer,
    _signature,
    _tools,
)
from claude_cli_client import tool as python_tool
from claude_cli_client.mcp import mapped_name

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(60)]

PATIENCE = 20.0


def call(name: str, server: str = "x", /, **arguments: Any) -> str:
    """The directive for a call of one of our tools."""
    return tool(f"mcp__{server}__{name}", **arguments)


def options(*functions: Any, **more: Any) -> dict[str, Any]:
    return {"mcp_servers": {"x": ToolServer(functions)}, "allowed_tools": ["mcp__x"], **more}


def told(cli: RealCLI, function: Any, **arguments: Any) -> str:
    """What the model reads when it calls the function."""
    assert cli.ask(f"go {call(function.name, **arguments)}", **options(function)).result == "done"
    (text,) = cli.api.last().results
    return text


def blocks(request: Request) -> list[dict[str, Any]]:
    """The blocks of the tool results."""
    contents = [m["content"] for m in request.body["messages"] if isinstance(m["content"], list)]
    results = [b for content in contents for b in content if b["type"] == "tool_result"]
    return [b for result in results for b in (result["content"] if isinstance(result["content"], list) else [])]


def offered(cli: RealCLI, schemas: dict[str, Any]) -> set[str]:
    """The names of those of which the CLI offers a tool to the model, "fine" among them."""

    def whatever(**arguments: Any) -> None:
        """Takes all."""

    tools = [
        python_tool(name, schema=schema)(whatever) for name, schema in {**schemas, "fine": {"type": "object"}}.items()
    ]
    run = cli.client().run("go", **options(*tools))
    (init,) = [event for event in run if event.type == "system" and event.subtype == "init"]
    return {name[len("mcp__x__") :] for name in init.data["tools"] if name.startswith("mcp__x__")}


def test_schemas_with_which_tools_are_left_out(cli: RealCLI, monkeypatch: pytest.MonkeyPatch):
    """Those that this library refuses, and no other ones."""
    monkeypatch.setattr(_tools, "_checked_schema", lambda schema, where: schema)
    monkeypatch.setattr(_signature, "_check_fit", lambda *_: None)
    alone = {name: schema for name, schema in LEFT_OUT.items() if name not in LEAVE_ALL_OUT}
    good = {f"n{number}": {"type": "object", "properties": {name: {}}} for number, name in enumerate(NAMES)}
    bad = {f"b{number}": {"type": "object", "properties": {name: {}}} for number, name in enumerate(BAD_NAMES)}
    assert offered(cli, {**OFFERED, **alone, **good, **bad}) == {*OFFERED, *good, "fine"}


@pytest.mark.parametrize("name", LEAVE_ALL_OUT)
def test_a_schema_with_which_all_tools_are_left_out(cli: RealCLI, monkeypatch: pytest.MonkeyPatch, name: str):
    """One mistake of this kind takes the whole server."""
    monkeypatch.setattr(_tools, "_checked_schema", lambda schema, where: schema)
    assert offered(cli, {name: LEFT_OUT[name]}) == set()


@pytest.mark.parametrize("name", ["price", "mcp__x__prize", "mcp_x_price"])
def test_what_guards_nothing(cli: RealCLI, monkeypatch: pytest.MonkeyPatch, name: str):
    """Why such names are refused: the CLI passes over a rule and a hook with them, and the tool runs."""
    heard: list[Any] = []

    @python_tool
    def price() -> str:
        return "ran"

    for check in ("guards_nothing", "means_another"):
        monkeypatch.setattr(f"claude_cli_client._tool_names.{check}", lambda options: "")
    hooks = {"PreToolUse": HookMatcher(name, lambda call: heard.append(call))}
    cli.ask(f"go {call('price')}", **options(price, disallowed_tools=[name], hooks=hooks))
    assert cli.api.last().results == ["ran"]
    assert not heard


# --- results ----------------------------------------------------------------------------------


def test_a_text(cli: RealCLI):
    """The tool gets its arguments, converted, and the model its text."""

    @python_tool
    def greet(name: str, times: int = 1) -> str:
        return f"hello {name} " * times

    assert told(cli, greet, name="Ann 漢 🎉", times=2) == "hello Ann 漢 🎉 hello Ann 漢 🎉 "


def test_the_model_knows_the_tool(cli: RealCLI):
    """Name, description and schema are sent to the model."""

    @python_tool
    def price(sku: str) -> float:
        """What an article costs."""
        return 1.5

    cli.ask("hi", **options(price, extra_args={}), env={"ENABLE_TOOL_SEARCH": "false"})
    (sent,) = [t for t in cli.api.last().body["tools"] if t["name"] == "mcp__x__price"]
    assert sent["description"] == "What an article costs."
    assert sent["input_schema"]["properties"]["sku"]["type"] == "string"
    assert sent["input_schema"]["required"] == ["sku"]


def test_structured(cli: RealCLI):
    """A dataclass reaches the model as JSON."""

    @dataclasses.dataclass
    class Price:
        amount: float
        currency: str

    @python_tool
    def price() -> Price:
        return Price(1.5, "€")

    assert json.loads(told(cli, price)) == {"amount": 1.5, "currency": "€"}


def test_a_list(cli: RealCLI):
    """A list, which is no structured content, goes as text."""

    @python_tool
    def numbers() -> list[int]:
        return [1, 2, 3]

    assert json.loads(told(cli, numbers)) == [1, 2, 3]


def test_nothing(cli: RealCLI):
    """A tool that returns None has run."""
    runs = []

    @python_tool
    def note(text: str) -> None:
        runs.append(text)

    told(cli, note, text="x")
    assert runs == ["x"]


def png() -> bytes:
    """A picture of one red dot."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    header = (1).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    dots = chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + dots + chunk(b"IEND", b"")


def test_an_image(cli: RealCLI):
    """The model sees the image, and the text with it."""

    @python_tool
    def chart() -> ToolResult:
        return ToolResult("The chart:") + ToolResult.image(png())

    told(cli, chart)
    found = blocks(cli.api.last())
    assert found[0] == {"type": "text", "text": "The chart:"}
    assert [b["source"]["media_type"] for b in found if b["type"] == "image"] == ["image/png"]


def test_a_resource(cli: RealCLI):
    """An embedded resource's text reaches the model."""

    @python_tool
    def page() -> ToolResult:
        return ToolResult.resource("doc://1", "the page")

    assert "the page" in told(cli, page)


@pytest.mark.parametrize("how", ["raised", "returned"])
def test_an_error(cli: RealCLI, how: str):
    """The model reads what went wrong, as a tool's error, and the turn goes on."""

    @python_tool
    def fail() -> ToolResult:
        if how == "raised":
            raise LookupError("no such customer")
        return ToolResult.error("no such customer")

    events = cli.events(f"go {call('fail')}", **options(fail))
    (result,) = [event for event in events if event.type == "tool_result"]
    assert result.is_tool_error
    assert "no such customer" in result.text
    assert events[-1].result == "done"


def test_wrong_arguments(cli: RealCLI):
    """They are told to the model, and the function is not called."""
    runs = []

    @python_tool
    def double(number: int) -> int:
        runs.append(number)
        return 2 * number

    assert "number" in told(cli, double, number="x")
    assert runs == []


def test_two_hundred_thousand_characters(cli: RealCLI):
    """They reach the model, all of them."""
    text = "".join(f"{number:09d} " for number in range(20_000))

    @python_tool
    def much() -> str:
        return text

    assert told(cli, much) == text


def test_more_is_cut_with_a_mark(cli: RealCLI):
    """What exceeds the limit is missing, and the model can see that."""

    @python_tool(max_chars=1000)
    def much() -> str:
        return "x" * 5000

    text = told(cli, much)
    assert len(text) <= 1000
    assert "[cut here: " in text


def test_lone_surrogates_and_odd_characters(cli: RealCLI):
    """No text that a tool returns can break the wire."""

    @python_tool
    def odd() -> str:
        return "half \ud83d whole 🎉 line\u2028 nul \x00 esc \x1b[31m \r\n end"

    text = told(cli, odd)
    assert text.startswith("half \ufffd whole 🎉")
    assert text.endswith("end")


def test_a_tool_that_nobody_allowed(cli: RealCLI):
    """Without a rule it is denied, as others are; `can_use_tool` is asked about it."""
    runs, asked = [], []

    @python_tool
    def note() -> None:
        runs.append(1)

    server = {"x": ToolServer([note])}
    cli.ask(f"go {call('note')}", mcp_servers=server, permission_mode="default")
    assert runs == []
    cli.ask(f"go {call('note')}", mcp_servers=server, can_use_tool=lambda request: asked.append(request) or True)
    assert runs == [1]
    assert asked[0].tool_name == "mcp__x__note"
    assert asked[0].mcp_server["name"] == "x"


def test_names_are_mapped(cli: RealCLI):
    """A tool whose name holds other characters is called by its mapped name."""

    @python_tool("what's up?")
    def up() -> str:
        return "the sky"

    client = cli.client(mcp_servers={"my shop": ToolServer([up])}, allowed_tools=["mcp__my_shop__what_s_up_"])
    client.ask(f"go {call('what_s_up_', 'my_shop')}")
    assert cli.api.last().results == ["the sky"]


OWN = [
    "Claude Browser",
    "Claude Preview",
    "claude-code-remote",
    "claude-in-chrome",
    "computer-use",
    "webagent",
    "workspace",
]


def tools_of(cli: RealCLI, names: list[str], **given: Any) -> list[str]:
    """The servers among these whose tools the CLI has at its start."""
    first = next(event for event in cli.events("x [[text: a]]", **given) if event.subtype == "init")
    return [
        name for name in names if any(tool.startswith(f"mcp__{mapped_name(name)}__") for tool in first.data["tools"])
    ]


def test_names_of_the_clis_own_servers(cli: RealCLI):
    """In-process servers may have them."""

    @python_tool
    def note() -> None: ...

    assert tools_of(cli, OWN, mcp_servers={name: ToolServer([note]) for name in OWN}) == OWN


def test_names_whose_servers_are_left_out(cli: RealCLI):
    """Other servers may not, and nobody may be called `ide`: that is why we refuse them. Not those in a file."""
    server = {
        "command": sys.executable,
        "args": [str(Path(__file__).with_name("real_mcp_server.py"))],
        "alwaysLoad": True,
    }
    names = [*OWN, "ide", "__proto__", "idea", "ide_x"]
    file = cli.cwd / "servers.json"
    file.write_text(json.dumps({"mcpServers": dict.fromkeys(names, server)}))
    assert tools_of(cli, names, mcp_servers=file) == ["idea", "ide_x"]


# --- at the same time -------------------------------------------------------------------------


def test_two_read_only_calls_at_once(cli: RealCLI):
    """Two calls of a read-only tool run at the same time."""
    both = threading.Barrier(2)

    @python_tool(read_only=True)
    def look(name: str) -> str:
        both.wait(PATIENCE)
        return f"saw {name}"

    cli.ask(f"go {call('look', name='a')}{call('look', name='b')}", **options(look))
    assert sorted(cli.api.last().results) == ["saw a", "saw b"]


class Overlap:
    """How many are inside at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = self.most = self.calls = 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            self.calls += 1
            self.most = max(self.most, self._inside)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1


def test_others_run_one_by_one(cli: RealCLI):
    """Calls of a tool that is not read-only never overlap."""
    overlap = Overlap()

    @python_tool
    def write(context: ToolContext) -> str:
        with overlap:
            context.wait_cancelled(0.1)
        return "written"

    cli.ask(f"go {call('write') * 3}", **options(write))
    assert cli.api.last().results == ["written"] * 3
    assert (overlap.calls, overlap.most) == (3, 1)


def test_three_sessions_share_a_server(cli: RealCLI):
    """Each gets its own answers; the read-only tool is in all three at the same time, the other in one."""
    all_three = threading.Barrier(3)
    overlap = Overlap()
    sessions_seen: set[str] = set()

    @python_tool(read_only=True)
    def meet(name: str, context: ToolContext) -> str:
        sessions_seen.add(context.session_id)
        all_three.wait(PATIENCE)
        return f"met {name}"

    @python_tool
    def write(name: str, context: ToolContext) -> str:
        with overlap:
            context.wait_cancelled(0.1)
        return f"wrote {name}"

    server = ToolServer([meet, write])
    client = cli.client(mcp_servers={"x": server}, allowed_tools=["mcp__x"])
    sessions = [client.session() for _ in range(3)]
    turns = [
        Background(
            session.ask,
            f"{n} {call('meet', name=f'm{n}')}[[then]]{call('write', name=f'w{n}')}[[then]][[text: answer {n}]]",
        )
        for n, session in enumerate(sessions)
    ]
    assert [turn.result(PATIENCE).result for turn in turns] == ["answer 0", "answer 1", "answer 2"]
    assert sessions_seen == {session.session_id for session in sessions}
    assert (overlap.calls, overlap.most) == (3, 1)
    results = {tuple(request.results) for request in cli.api.requests() if len(request.results) == 2}
    assert results == {(f"met m{n}", f"wrote w{n}") for n in range(3)}


# --- the call itself --------------------------------------------------------------------------


def test_a_call_cut_by_interrupt(cli: RealCLI):
    """The tool sees `cancelled`; the run is an InterruptedTurnError; the next prompt gets its own answer."""
    entered, left = threading.Event(), threading.Event()

    @python_tool
    def slow(context: ToolContext) -> str:
        entered.set()
        if context.wait_cancelled(PATIENCE) and context.cancelled:
            left.set()
        return "late"

    session = cli.session(**options(slow))
    run = session.run(f"go {call('slow')}[[then]][[text: old]]")
    assert entered.wait(PATIENCE)
    session.interrupt()
    with pytest.raises(InterruptedTurnError):
        run.result()
    assert left.wait(PATIENCE)
    assert session.ask("next [[text: mine]]").result == "mine"


def test_a_call_cut_by_cancel(cli: RealCLI):
    """In a one-shot turn, too: when the run is cancelled the tool sees it."""
    entered, left = threading.Event(), threading.Event()

    @python_tool
    def slow(context: ToolContext) -> str:
        entered.set()
        if context.wait_cancelled(PATIENCE):
            left.set()
        return "late"

    run = cli.client().run(f"go {call('slow')}", **options(slow))
    assert entered.wait(PATIENCE)
    run.close()
    assert left.wait(PATIENCE)


def test_the_context_of_a_call(cli: RealCLI):
    """It knows the session and the call, by the id that the events have."""
    contexts = []

    @python_tool
    def look(context: ToolContext) -> str:
        contexts.append((context.session_id, context.tool_use_id))
        return "seen"

    events = cli.events(f"go {call('look')}", **options(look))
    (use,) = [event for event in events if event.type == "tool_use"]
    assert contexts == [(events[-1].session_id, use.tool_id)]


def test_progress(cli: RealCLI):
    """A tool may say how far it is, also when it is over; the CLI takes it, and prints none of it."""
    late: list[ToolContext] = []

    @python_tool
    def slow(context: ToolContext) -> str:
        for step in range(100):
            context.progress(step / 100, f"step {step}")
        late.append(context)
        return "ready"

    session = cli.session(**options(slow))
    events = list(session.run(f"go {call('slow')}"))
    assert not [event for event in events if "step 5" in event.raw]
    assert cli.api.last().results == ["ready"]
    late[0].progress(1.0)
    assert session.ask("next [[text: mine]]").result == "mine"


def test_a_tool_that_uses_its_client(cli: RealCLI):
    """A tool may run a turn of its own."""
    clients = []

    @python_tool
    def ask_another() -> str:
        return clients[0].ask("inner [[text: from the other one]]").result

    clients.append(cli.client())
    assert told(cli, ask_another) == "from the other one"


def test_many_calls_in_one_turn(cli: RealCLI):
    """A hundred calls, one after the other: each once, in order."""
    runs: list[int] = []

    @python_tool
    def count(number: int) -> int:
        runs.append(number)
        return number

    steps = "[[then]]".join("".join(call("count", number=10 * a + b) for b in range(10)) for a in range(10))
    cli.ask(f"go {steps}", **options(count))
    assert runs == list(range(100))
    assert cli.api.last().results == [str(number) for number in range(100)]


# --- around the calls -------------------------------------------------------------------------

place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")


def test_context_variables_of_the_caller(cli: RealCLI):
    """Callbacks see those of the thread that started the turn, and do not change them for others."""
    seen: dict[str, str] = {}

    @python_tool
    def look() -> str:
        seen["tool"] = place.get()
        place.set("in the tool")
        return "seen"

    def hook(_: Any) -> None:
        seen["hook"] = place.get()

    def permit(_: Any) -> bool:
        seen["permission"] = place.get()
        return True

    token = place.set("at the caller")
    try:
        client = cli.client(mcp_servers={"x": ToolServer([look])}, hooks={"PostToolUse": hook}, can_use_tool=permit)
        client.ask(f"go {call('look')}")
        assert place.get() == "at the caller"
    finally:
        place.reset(token)
    assert seen == dict.fromkeys(("tool", "hook", "permission"), "at the caller")


def test_a_wrapper_around_every_callback(cli: RealCLI):
    """`callback_wrapper` is entered and left around each, on its own thread, and sees exceptions."""
    log: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def wrapper() -> Iterator[None]:
        log.append(("enter", threading.get_ident()))
        try:
            yield
        except LookupError:
            log.append(("failed", threading.get_ident()))
            raise
        finally:
            log.append(("leave", threading.get_ident()))

    def note(name: str) -> Any:
        log.append((name, threading.get_ident()))

    @python_tool
    def fail() -> str:
        note("tool")
        raise LookupError("x")

    client = cli.client(
        mcp_servers={"x": ToolServer([fail])},
        hooks={"PreToolUse": lambda call: note("hook")},
        can_use_tool=lambda request: note("permission") or True,
        callback_wrapper=wrapper,
    )
    client.ask(f"go {call('fail')}")
    assert [name for name, _ in log] == [
        *("enter", "hook", "leave"),
        *("enter", "permission", "leave"),
        *("enter", "tool", "failed", "leave"),
    ]
    threads = [thread for _, thread in log]
    assert len(set(threads[0:3])) == len(set(threads[3:6])) == len(set(threads[6:])) == 1
    assert threading.get_ident() not in threads


def test_a_wrapper_that_fails(cli: RealCLI):
    """Without what it gives the callback must not run: the tool is not called, and the model hears of it."""
    runs = []

    @python_tool
    def note() -> None:
        runs.append(1)

    @contextlib.contextmanager
    def wrapper() -> Iterator[None]:
        raise ConnectionError("no database")
        yield

    cli.ask(f"go {call('note')}", **options(note, callback_wrapper=wrapper))
    assert runs == []
    assert "ConnectionError" in cli.api.last().results[0]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_ends_the_program_rises(cli: RealCLI, error: type[BaseException]):
    """`sys.exit` in a tool comes out where the run is read."""

    @python_tool
    def leave() -> str:
        raise error("enough")

    with pytest.raises(error, match="enough"):
        cli.ask(f"go {call('leave')}", **options(leave))
