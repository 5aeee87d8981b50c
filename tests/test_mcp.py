"""Tool servers: JSON-RPC in, JSON-RPC out; results, errors, names. No thread and no process."""

import collections
import contextlib
import dataclasses
import enum
import functools
import json
import logging
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple

import pytest

from claude_cli_client import mcp
from claude_cli_client.mcp import (
    Prompt,
    Resource,
    ToolContext,
    ToolResult,
    ToolServer,
    call_id,
    cancelled_id,
    check_servers,
    failed_reply,
    mapped_name,
    tool,
    tool_of,
    wire_servers,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
MESSAGES = pathlib.Path(__file__).parent / "data" / "mcp" / "messages.jsonl"


@functools.cache
def recorded():
    """What CLI 2.1.332 sent to a tool server, in order: the parameters of its `mcp_message` requests."""
    return [json.loads(line) for line in MESSAGES.read_bytes().splitlines()]


def message_of(method, nth=0):
    """The nth recorded message of a method."""
    return [one["message"] for one in recorded() if one["message"]["method"] == method][nth]


def request(method, id=7, **params):
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def called(made, _server=None, _options=None, **arguments):
    """The result of a call, which must be what JSON can hold."""
    server = _server or ToolServer([made])
    answer = server.handle(request("tools/call", name=made.name, arguments=arguments), **(_options or {}))
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    assert answer["id"] == 7
    return answer["result"]


def returned(value, **options):
    """What goes over the wire for a value that a tool returns."""

    @tool(**options)
    def f() -> Any:
        return value

    return called(f)


def text_of(result):
    assert [block["type"] for block in result["content"]] == ["text"]
    return result["content"][0]["text"]


def error_text(result):
    assert result["isError"] is True
    return text_of(result)


@tool(read_only=True)
def add(a: float, b: float = 2) -> str:
    """Adds."""
    return f"sum {a + b:g}"


# --- the tool itself


def test_a_tool_is_still_the_function():
    """Calling it calls the function, unchecked and unchanged."""
    assert add(1, b=3) == "sum 4"
    assert add.__name__ == "add"
    assert add.__doc__ == "Adds."


def test_decorator_forms():
    """With and without parentheses, by position and by name."""

    def f(x: int):
        """Does.

        More.
        """

    assert (tool(f).name, tool(f).description) == ("f", "Does.")
    assert tool()(f).name == "f"
    assert (tool("g", "text")(f).name, tool("g", "text")(f).description) == ("g", "text")
    assert tool(description="text")(f).description == "text"


def test_a_summary_over_two_lines():
    """The description is the first paragraph, so that no sentence ends in the middle."""

    @tool
    def f():
        """Finds the article
        by its number.

        Not this.
        """

    assert f.description == "Finds the article by its number."


def test_annotations_on_the_wire():
    """Hints have their MCP names, and only those that were given."""

    @tool(read_only=True, idempotent=True, open_world=False, title="Adder", max_chars=5000)
    def f():
        pass

    assert f.listed() == {
        "name": "f",
        "description": "",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "annotations": {"title": "Adder", "readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
        "title": "Adder",
        "_meta": {"anthropic/maxResultSizeChars": 5000},
    }
    assert "annotations" not in tool(lambda_with_name()).listed()


def lambda_with_name():
    def f():
        pass

    return f


def test_the_cli_is_told_our_limit():
    """Else it would put what we let through into a file; with None it keeps its own rule."""
    assert tool(lambda_with_name()).listed()["_meta"] == {"anthropic/maxResultSizeChars": 200_000}
    assert "_meta" not in tool(max_chars=None)(lambda_with_name()).listed()


async def coroutine(x: int):
    return x


def generator(x: int):
    yield x


async def async_generator(x: int):
    yield x


class AsyncCallable:
    async def __call__(self, x: int):
        return x


@pytest.mark.parametrize("function", [coroutine, async_generator, generator, AsyncCallable()])
def test_functions_whose_call_gives_no_result(function):
    """Coroutines and generators are refused with the remedy, when the tool is made."""
    with pytest.raises(TypeError, match=r"use def|return a list"):
        tool("t")(function)


def test_a_plain_wrapper_of_a_coroutine():
    """What runs the coroutine to its end is a plain function, whatever is inside of it."""

    @tool
    @functools.wraps(coroutine)
    def f(*args, **kwargs):
        with contextlib.closing(coroutine(*args, **kwargs)) as running:
            try:
                running.send(None)
            except StopIteration as stop:
                return stop.value

    assert text_of(called(f, x=5)) == "5"


@pytest.mark.parametrize(
    "options",
    [
        {"read_only": 1},
        {"read_only": None},
        {"destructive": "yes"},
        {"parallel": 0},
        {"title": 3},
        {"name": 3},
        {"description": 3},
    ],
)
def test_options_of_the_wrong_type(options):
    """They are TypeErrors, before any function is called."""
    with pytest.raises(TypeError):
        tool(**options)(lambda_with_name())


@pytest.mark.parametrize(
    "options",
    [
        {"max_chars": 10},
        {"max_chars": 500_001},
        {"max_chars": True},
        {"name": " "},
        {"read_only": True, "destructive": True},
    ],
)
def test_options_with_wrong_values(options):
    """They are ValueErrors."""
    with pytest.raises(ValueError):
        tool(**options)(lambda_with_name())


def test_a_lambda_needs_a_name():
    """Its own is no name for a tool."""
    with pytest.raises(ValueError, match="lambda"):
        tool(lambda: 0)
    assert tool("zero")(lambda: 0).name == "zero"


def test_a_tool_of_a_tool():
    """Decorating twice is a mistake."""
    with pytest.raises(TypeError, match="already"):
        tool(add)


# --- handshake


def test_the_recorded_handshake():
    """What the CLI sends at the start gets the answers it waits for."""
    server = ToolServer([add], instructions="use me")
    assert server.handle(message_of("initialize"), server_name="calc") == {
        "jsonrpc": "2.0",
        "id": 0,
        "result": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "calc", "version": "1.0.0"},
            "instructions": "use me",
        },
    }
    assert server.handle(message_of("notifications/initialized")) is None
    assert server.handle(message_of("tools/list")) == {"jsonrpc": "2.0", "id": 1, "result": {"tools": [add.listed()]}}


def test_the_recorded_call():
    """A call as the CLI sends it is answered under its id."""
    answer = ToolServer([add]).handle(message_of("tools/call"))
    assert answer == {"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "sum 3"}]}}


def test_the_recorded_call_with_a_missing_argument():
    """The CLI does not check arguments: the model reads what is missing."""
    answer = ToolServer([add]).handle(message_of("tools/call", 1))
    assert "a: is missing, it must be a number" in error_text(answer["result"])


def test_a_call_by_the_original_name():
    """The model's name is mapped, that in `tools/call` is not."""
    odd = tool("dotted.name!x")(lambda_with_name())
    message = next(one["message"] for one in recorded() if "dotted.name!x" in str(one))
    assert ToolServer([odd]).handle(message)["result"] == {"content": [{"type": "text", "text": ""}]}


@pytest.mark.parametrize("version", mcp.PROTOCOL_VERSIONS)
def test_known_protocol_versions(version):
    """A version that we know is accepted."""
    answer = ToolServer().handle(request("initialize", protocolVersion=version, capabilities={}))
    assert answer["result"]["protocolVersion"] == version


def test_an_unknown_protocol_version():
    """To any other we offer the last one we know."""
    answer = ToolServer().handle(request("initialize", protocolVersion="2099-01-01"))
    assert answer["result"]["protocolVersion"] == mcp.PROTOCOL_VERSIONS[-1]


def test_capabilities():
    """Resources and prompts are announced if there are any."""
    server = ToolServer(resources=[Resource("a://b", "c")], prompts=[Prompt("p", "q")])
    answer = server.handle(request("initialize", protocolVersion="2025-06-18"))
    assert answer["result"]["capabilities"] == {"tools": {}, "resources": {}, "prompts": {}}


def test_ping():
    """It is answered with nothing."""
    assert ToolServer().handle(request("ping", id="a")) == {"jsonrpc": "2.0", "id": "a", "result": {}}


# --- bad messages

BAD = [
    (None, -32600, None),
    ([], -32600, None),
    ([request("ping")], -32600, None),
    ("x", -32600, None),
    ({}, -32600, None),
    ({"id": 1}, -32600, 1),
    ({"id": 1, "method": 3}, -32600, 1),
    ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, -32600, 1),
    ({"id": None, "method": "ping"}, -32600, None),
    ({"id": True, "method": "ping"}, -32600, None),
    ({"id": [1], "method": "ping"}, -32600, None),
    ({"id": 1, "method": "ping", "params": []}, -32602, 1),
    ({"id": 1, "method": "nothing/such"}, -32601, 1),
    ({"id": 1, "method": "completion/complete", "params": {}}, -32601, 1),
    ({"id": 1, "method": "initialize"}, -32602, 1),
    ({"id": 1, "method": "tools/call"}, -32602, 1),
    ({"id": 1, "method": "tools/call", "params": {"name": ["add"]}}, -32602, 1),
    ({"id": 1, "method": "tools/call", "params": {"name": "missing"}}, -32602, 1),
    ({"id": 1, "method": "tools/call", "params": {"name": "add", "arguments": [1]}}, -32602, 1),
    ({"id": 1, "method": "resources/read", "params": {}}, -32602, 1),
    ({"id": 1, "method": "resources/read", "params": {"uri": "x://y"}}, -32002, 1),
    ({"id": 1, "method": "prompts/get", "params": {"name": "x"}}, -32602, 1),
]


@pytest.mark.parametrize(("message", "code", "id"), BAD, ids=str)
def test_bad_messages(message, code, id):
    """Each gets an error with its id, and none raises."""
    answer = ToolServer([add]).handle(message)
    assert (answer["error"]["code"], answer["id"]) == (code, id)


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/whatever"},
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}},
        {"jsonrpc": "2.0", "id": 5, "result": {}},
        {"jsonrpc": "2.0", "id": 5, "error": {"code": 1, "message": "x"}},
        message_of("notifications/cancelled"),
    ],
)
def test_what_needs_no_answer(message):
    """Notifications and answers to us give None; the session acknowledges them."""
    assert ToolServer([add]).handle(message) is None


@pytest.mark.parametrize("meta", [None, 3, [], {"progressToken": []}, {"claudecode/toolUseId": 3}])
def test_odd_meta(meta):
    """What is beside the arguments does not matter to a call."""
    answer = ToolServer([add]).handle(request("tools/call", name="add", arguments={"a": 1}, _meta=meta))
    assert text_of(answer["result"]) == "sum 3"


def test_a_call_without_arguments():
    """They may be absent or null."""
    server = ToolServer([tool(lambda_with_name())])
    assert "result" in server.handle(request("tools/call", name="f"))
    assert "result" in server.handle(request("tools/call", name="f", arguments=None))


# --- what a tool returns


class Size(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Article:
    sku: str
    sizes: list[Size]


class Color(enum.Enum):
    RED = "red"


TEXTS = [
    ("words", "words"),
    ("", ""),
    (None, ""),
    (True, "true"),
    (3, "3"),
    (1.5, "1.5"),
    (float("nan"), "nan"),
    ([1, "é", None], '[1,"é",null]'),
    ((), "[]"),
    (Size(1, 2), "[1,2]"),
    ({3}, "[3]"),
    (Color.RED, "red"),
    ("\ud83d\ude00 \ud800", "😀 \ufffd"),
]


@pytest.mark.parametrize(("value", "text"), TEXTS, ids=repr)
def test_texts(value, text):
    """What has no names inside is sent as text."""
    assert returned(value) == {"content": [{"type": "text", "text": text}]}


STRUCTURES = [
    ({"a": 1}, {"a": 1}),
    ({}, {}),
    (Article("x", [Size(1, 2)]), {"sku": "x", "sizes": [[1, 2]]}),
    (collections.OrderedDict(a=Color.RED), {"a": "red"}),
    ({1: "a", Color.RED: None}, {"1": "a", "red": None}),
    (ToolResult(structured={"a": (1,)}), {"a": [1]}),
]


@pytest.mark.parametrize(("value", "expected"), STRUCTURES, ids=repr)
def test_structures(value, expected):
    """Dicts and dataclasses are structured content, with the same as text for who knows no structure."""
    result = returned(value)
    assert result["structuredContent"] == expected
    assert json.loads(text_of(result)) == expected


def test_an_image():
    """Bytes become base64, their type is found."""
    assert returned(ToolResult("look") + ToolResult.image(PNG))["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "data": "iVBORw0KGgoAAAAAAAAAAAAAAAAAAAAAAAAAAA==", "mimeType": "image/png"},
    ]


@pytest.mark.parametrize(
    ("start", "mime"),
    [(b"\xff\xd8\xff\xe0", "image/jpeg"), (b"GIF89a", "image/gif"), (b"RIFF\0\0\0\0WEBP", "image/webp")],
)
def test_image_types(start, mime):
    """The four that the API takes are recognised."""
    assert ToolResult.image(start).content[0]["mimeType"] == mime


def test_images_that_are_none():
    """Unknown data needs a type, and a text is no data."""
    with pytest.raises(ValueError, match="mime="):
        ToolResult.image(b"text")
    with pytest.raises(ValueError, match="image"):
        ToolResult.image(PNG, "text/plain")
    with pytest.raises(TypeError, match="read_bytes"):
        ToolResult.image("picture.png")


def test_links_and_resources():
    """Each has the form that the CLI accepts."""
    whole = (
        ToolResult.link("file:///x", "x", description="d")
        + ToolResult.resource("mem://r", "text", mime="text/plain")
        + ToolResult.resource("mem://b", data=b"\0")
        + ToolResult.audio(b"\0", "audio/wav")
    )
    assert returned(whole)["content"] == [
        {"type": "resource_link", "uri": "file:///x", "name": "x", "description": "d"},
        {"type": "resource", "resource": {"uri": "mem://r", "mimeType": "text/plain", "text": "text"}},
        {"type": "resource", "resource": {"uri": "mem://b", "blob": "AA=="}},
        {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
    ]


def test_blocks_of_any_kind():
    """What has no method goes through as it is."""
    block = {"type": "new_kind", "x": [1]}
    assert returned(ToolResult(content=[block]))["content"] == [block]


def test_an_image_beside_structure_keeps_the_structure():
    """Adding keeps structured content and the error flag of either."""
    whole = ToolResult(structured={"k": 1}) + ToolResult.image(PNG)
    assert returned(whole)["structuredContent"] == {"k": 1}
    assert returned(ToolResult.image(PNG) + ToolResult.error("bad"))["isError"] is True


def test_errors_by_the_tool():
    """A tool may say itself that it failed; the model then reads the text only, so a structure becomes one."""
    assert error_text(returned(ToolResult.error("no such customer"))) == "no such customer"
    assert error_text(returned(ToolResult(structured={"k": 1}, is_error=True))) == '{"k":1}'


def test_empty_texts_beside_others_are_left_out():
    """The API refuses them."""
    assert len(returned(ToolResult("") + ToolResult.image(PNG))["content"]) == 1


def held():
    value: list[Any] = []
    value.append(value)
    return value


REFUSED = [
    (b"x", "ToolResult.image"),
    (pathlib.Path("x"), "str(path)"),
    ({"a": pathlib.Path("x")}, "str(path)"),
    (object(), "cannot send a object"),
    (iter([]), "list(...)"),
    ([ToolResult("a")], "add them"),
    ({"a": float("inf")}, "JSON has no inf"),
    ({(1, 2): 3}, "keys of a dict"),
    (held(), "holds itself"),
    (ToolResult(structured=[1]), "wrap it"),
    ([10**5000], "cannot be written as JSON"),
    (ToolResult.image(PNG + bytes(30_000_000)), "25,165,824 bytes"),
]


@pytest.mark.parametrize(("value", "words"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_values_that_cannot_be_sent(value, words):
    """They are an error of the tool that says what to return instead."""
    assert words in error_text(returned(value))


def test_a_coroutine_that_comes_back():
    """A function that returns one is found out at the call, and Python has nothing to warn of."""
    assert "to await" in error_text(returned(coroutine(1)))


def test_a_mapping_that_fails():
    """Reading the value is the user's code as well."""

    class Broken(dict):
        def items(self):
            raise RuntimeError("no items")

    assert "RuntimeError: no items" in error_text(returned(Broken(a=1)))


# --- size


def test_a_text_up_to_the_limit():
    """200,000 characters go through by default, to the last."""
    assert text_of(returned("x" * 200_000)) == "x" * 200_000


@pytest.mark.parametrize("character", ["x", "é", "😀"])
def test_a_long_text_is_cut(character):
    """It has the limit's length then, in the UTF-16 units that the CLI counts, and says what is missing."""
    size = 2 if character == "😀" else 1
    text = text_of(returned(character * 10_000_000, max_chars=1001))
    assert 999 <= len(text.encode("utf-16-le")) // 2 <= 1001
    kept, mark = text.split("\n")
    missing = 10_000_000 * size - len(kept) * size
    assert mark == f"[cut here: {missing:,} of {10_000_000 * size:,} characters are missing, the limit is 1,001]"


def test_several_texts_share_the_limit():
    """What comes behind the cut is left out and counted; images stay."""
    resource = ToolResult.resource("r://", "b" * 600)
    whole = ToolResult("a" * 600) + resource + ToolResult.image(PNG) + ToolResult("c" * 600)
    blocks = returned(whole, max_chars=1000)["content"]
    assert [block["type"] for block in blocks] == ["text", "resource", "image"]
    assert blocks[0]["text"] == "a" * 600
    kept, mark = blocks[1]["resource"]["text"].split("\n")
    assert f"{1200 - len(kept):,} of 1,800 characters" in mark


def test_structure_beyond_the_limit():
    """Cut it is no structure any more: it goes as text."""
    result = returned({"k": "x" * 2000}, max_chars=1000)
    assert "structuredContent" not in result
    assert text_of(result).startswith('{"k":"xxx')
    assert "cut here" in text_of(result)


def test_errors_are_cut_where_the_cli_would():
    """Of an error it passes 10,000 characters: we cut, and say so."""

    @tool
    def f():
        raise ValueError("x" * 20_000)

    text = error_text(called(f))
    assert len(text) <= 10_000
    assert "cut here" in text


# --- failures of the function


def failing(error):
    @tool
    def f(secret: str = ""):
        raise error

    return f


def test_an_exception_is_an_error_for_the_model():
    """Type and message, no traceback."""
    assert error_text(called(failing(KeyError("sku")))) == "KeyError: 'sku'"
    assert error_text(called(failing(RuntimeError()))) == "RuntimeError"


def test_an_exception_is_logged_without_its_message(caplog):
    """With type and place; the message may hold what the model sent."""
    with caplog.at_level(logging.WARNING, "claude_cli_client"):
        called(failing(ValueError("card 1234")), secret="card 1234")
    assert "'f' failed: ValueError at" in caplog.text
    assert pathlib.Path(__file__).name in caplog.text
    assert "1234" not in caplog.text


def test_an_exception_whose_text_fails():
    """Its name is enough."""

    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    assert error_text(called(failing(Odd()))) == "Odd"


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_what_ends_the_program_rises(kind):
    """It is for the session to answer, and for the consumer to see."""
    with pytest.raises(kind):
        called(failing(kind()))


def test_the_answer_to_a_call_without_a_result():
    """`failed_reply` gives the session what to say to the CLI."""
    assert error_text(failed_reply(message_of("tools/call"), "the program ends")["result"]) == "the program ends"
    assert failed_reply(request("resources/read"), "x")["error"] == {"code": -32603, "message": "x"}
    assert failed_reply(message_of("tools/call"), "x")["id"] == 2


def test_wrong_arguments_do_not_reach_the_function():
    """The function is not called, and the model reads why."""
    ran = []

    @tool
    def f(count: int):
        ran.append(count)

    assert error_text(called(f, count="3")) == (
        'f was not called, its arguments are not right:\ncount: must be an integer, not "3"'
    )
    assert not ran


def test_the_wrapper_sees_what_the_function_raises():
    """A transaction around a call can roll back, though the model gets the error as a result."""
    seen = []

    @contextlib.contextmanager
    def wrapper():
        try:
            yield
        except ValueError as error:
            seen.append(error)
            raise

    assert error_text(called(failing(ValueError("x")), _options={"wrapper": wrapper})) == "ValueError: x"
    assert len(seen) == 1


def test_a_wrapper_that_fails():
    """It is an error of the call like any other."""

    def wrapper():
        raise ConnectionError("no database")

    assert error_text(called(add, _options={"wrapper": wrapper}, a=1)) == "ConnectionError: no database"


# --- the context of a call


def context_of(body, **options):
    """Run `body` with the context of a recorded call."""

    @tool("add")
    def f(context: ToolContext, a: int = 0):
        return body(context)

    ToolServer([f]).handle(message_of("tools/call"), **options)


def test_ids():
    """The context knows the model's call and the session."""
    seen = []
    context_of(lambda context: seen.extend([context.tool_use_id, context.session_id]), session_id="s1")
    assert seen == ["toolu_1c5711cb95e2460f95b1", "s1"]


def test_progress():
    """It goes out as the notification that the CLI understands, with the token of the call."""
    sent = []
    context_of(lambda context: context.progress(0.5, "half"), send=sent.append)
    params = {"progressToken": 2, "progress": 0.5, "total": 1, "message": "half"}
    assert sent == [{"jsonrpc": "2.0", "method": "notifications/progress", "params": params}]


def test_progress_that_says_nothing_new():
    """A loop of a million steps does not send a million lines, and a fraction stays between 0 and 1."""
    sent = []

    def body(context):
        for step in range(100_000):
            context.progress(step / 50_000)

    context_of(body, send=sent.append)
    assert len(sent) == 1001
    assert sent[-1]["params"]["progress"] == 1


def test_progress_of_no_number():
    """NaN would end the CLI."""
    with pytest.raises(TypeError):
        ToolContext().progress(float("nan"))
    ToolContext().progress(10**400)  # as good as 1


def test_progress_after_the_call():
    """A thread that the function left running says nothing any more."""
    sent, kept = [], []
    context_of(kept.append, send=sent.append)
    kept[0].progress(0.5)
    assert sent == []


def test_cancellation():
    """A function sees that nobody waits for it any more."""
    flag, seen = threading.Event(), []

    def body(context):
        seen.append((context.cancelled, context.wait_cancelled(0)))
        flag.set()
        seen.append((context.cancelled, context.wait_cancelled(5)))

    context_of(body, cancelled=flag)
    assert seen == [(False, False), (True, True)]


def test_a_context_of_ones_own():
    """For tests of the function: nothing is cancelled and progress goes nowhere."""
    context = ToolContext()
    context.progress(0.1, "x")
    assert (context.cancelled, context.wait_cancelled(10), context.tool_use_id) == (False, False, "")


# --- what a session needs to know


def test_which_tools_may_overlap():
    """Read-only ones, and those that say so."""
    function = lambda_with_name()
    server = ToolServer(
        [
            tool("plain")(function),
            tool("reads", read_only=True)(function),
            tool("both", parallel=True)(function),
            tool("neither", read_only=True, parallel=False)(function),
        ]
    )
    names = ("plain", "reads", "both", "neither", "unknown")
    assert [server.may_run_parallel(name) for name in names] == [False, True, True, False, True]


def test_which_messages_run_user_code():
    """All others are answered at once, without a thread."""
    server = ToolServer([add])
    ran = [one["message"]["method"] for one in recorded() if server.runs_user_code(one["message"])]
    assert set(ran) == {"tools/call"}
    assert not server.runs_user_code(None)


def test_cancelled_id():
    """The recorded cancellations name their call, 0 is an id, and nothing else is a cancellation."""
    assert cancelled_id(message_of("notifications/cancelled")) == 11
    assert cancelled_id(message_of("notifications/cancelled", 1)) == 2
    assert cancelled_id({"method": "notifications/cancelled", "params": {"requestId": 0}}) == 0
    assert cancelled_id({"method": "notifications/cancelled", "params": {}}) is None
    assert cancelled_id({"method": "notifications/cancelled"}) is None
    assert cancelled_id(request("ping")) is None


def test_call_id_and_tool_of():
    """The id of a request, and the tool of a call."""
    message = message_of("tools/call")
    assert (call_id(message), tool_of(message)) == (2, "add")
    assert (call_id({"id": 1, "result": {}}), tool_of(message_of("tools/list")), tool_of(None)) == (None, "", "")


def test_one_server_for_many_threads():
    """Calls at the same time do not see each other: nothing of a call is kept in the server."""
    gate = threading.Barrier(8)

    @tool(read_only=True)
    def f(number: int, context: ToolContext) -> str:
        gate.wait(30)
        return f"{number} {context.session_id}"

    server, answers = ToolServer([f]), {}

    def work(number):
        message = request("tools/call", id=number, name="f", arguments={"number": number})
        answers[number] = server.handle(message, session_id=f"s{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: (one["id"], text_of(one["result"])) for number, one in answers.items()} == {
        number: (number, f"{number} s{number}") for number in range(8)
    }


# --- resources and prompts


def read(server, uri):
    return server.handle(request("resources/read", uri=uri))


def test_resources():
    """Texts, bytes and functions are listed and read."""
    server = ToolServer(
        resources=[
            Resource("a://text", "words", name="Words", description="d", mime="text/plain"),
            Resource("a://bytes", b"\0"),
            Resource("a://json", lambda: {"k": 1}),
        ]
    )
    listed = server.handle(request("resources/list"))["result"]["resources"]
    assert listed[0] == {"uri": "a://text", "name": "Words", "description": "d", "mimeType": "text/plain"}
    contents = [read(server, one["uri"])["result"]["contents"] for one in listed]
    assert contents == [
        [{"uri": "a://text", "mimeType": "text/plain", "text": "words"}],
        [{"uri": "a://bytes", "blob": "AA=="}],
        [{"uri": "a://json", "mimeType": "application/json", "text": '{"k":1}'}],
    ]


def test_resource_templates():
    """Variables of the address become arguments; an exact address comes first."""
    server = ToolServer(
        resources=[
            Resource("o://{number}", lambda number: f"order {number}"),
            Resource("o://latest", "the latest"),
            Resource("f://{+path}", lambda path: path),
        ]
    )
    assert server.handle(request("resources/list"))["result"] == {
        "resources": [{"uri": "o://latest", "name": "o://latest"}]
    }
    templates = server.handle(request("resources/templates/list"))["result"]["resourceTemplates"]
    assert [one["uriTemplate"] for one in templates] == ["o://{number}", "f://{+path}"]
    texts = [read(server, uri)["result"]["contents"][0]["text"] for uri in ("o://5", "o://latest", "f://a/b")]
    assert texts == ["order 5", "the latest", "a/b"]
    assert read(server, "o://5/6")["error"]["code"] == -32002


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("{a}-{b}", "1-2-3", "1-2 3"),
        ("{a}{b}{c}", "12345", "123 4 5"),
        ("{a}-{+b}-{c}", "1-2/3-4", "1 2/3 4"),
        ("{+a}-{b}-{c*}", "1-2-/3-4", "1 2 /3-4"),
        ("{+a}/{b}", "1/2/3", "1/2 3"),
        ("a.b/{x}", "a.b/\n", "\n"),
        ("a.b/{x}", "acb/1", None),
        ("{a}-{b}", "1-", None),
        ("{a}-{b}", "1/2-3", None),
        ("{a}-{b}.txt", "1-2.txt/", None),
    ],
)
def test_what_a_variable_takes(template, uri, values):
    """As much as it can, the first one first; at least a character, and a `/` only if its sign says so."""
    found = Resource(template, lambda **rest: "").match(uri)
    assert (found and " ".join(found.values())) == values


@pytest.mark.parametrize(
    ("template", "pump", "end"),
    [("shop://{a}-{b}-{c}.txt", "-", ""), ("{+a}-{+b}-{+c}-{d}!", "-", "?"), ("{+a}{+b}{+c}{+d}{+e}!", "x", "")],
)
def test_no_address_takes_long(template, pump, end):
    """One that is long is another's at once, though there are millions of ways to cut it."""
    uri = template.partition("{")[0] + pump * 4096 + end
    began = time.thread_time()
    assert Resource(template, lambda **rest: "").match(uri) is None
    assert time.thread_time() - began < 2


def test_addresses_that_are_too_long():
    """The model reads how long one may be; a resource that could not be read is refused where it is made."""
    server = ToolServer(resources=[Resource("f://{+path}", lambda path: path)])
    assert "result" in read(server, "f://" + "x" * 16_380)
    error = read(server, "f://" + "x" * 16_381)["error"]
    assert error == {"code": -32602, "message": "a uri may have 16,384 characters, and this one has 16,385"}
    with pytest.raises(ValueError, match="its uri has 20,000 characters"):
        Resource("x" * 20_000, "")


@pytest.mark.parametrize("uri", ["a://{x}/{x}", "a://{1}"])
def test_variables_that_are_no_names(uri):
    """Each needs a name of its own, since a function gets it by that."""
    with pytest.raises(ValueError, match="must be names that differ"):
        Resource(uri, lambda **rest: "")


def test_a_resource_that_fails():
    """It is a JSON-RPC error with type and message."""

    def content():
        raise KeyError("x")

    error = read(ToolServer(resources=[Resource("a://b", content)]), "a://b")["error"]
    assert error == {"code": -32603, "message": "KeyError: 'x'"}


@pytest.mark.parametrize(
    ("uri", "content"),
    [("a://{x}", "text"), ("a://{x}", lambda: 0), ("a://{x}", lambda y: 0), ("a://b", lambda y: 0), ("a://b", 3)],
)
def test_resources_that_do_not_fit(uri, content):
    """A function must take the variables of its address: found when the resource is made."""
    with pytest.raises(TypeError, match="resource"):
        Resource(uri, content)


def test_prompts():
    """Their arguments are those of the function; a text becomes a message."""

    def greet(who: str, how: str = "kindly"):
        return f"Greet {who} {how}"

    server = ToolServer(prompts=[Prompt("greet", greet, description="Greets"), Prompt("plain", "Hello")])
    assert server.handle(request("prompts/list"))["result"]["prompts"] == [
        {
            "name": "greet",
            "description": "Greets",
            "arguments": [{"name": "who", "required": True}, {"name": "how", "required": False}],
        },
        {"name": "plain"},
    ]
    answer = server.handle(request("prompts/get", name="greet", arguments={"who": "Bob"}))
    message = {"role": "user", "content": {"type": "text", "text": "Greet Bob kindly"}}
    assert answer["result"] == {"description": "Greets", "messages": [message]}
    assert server.handle(request("prompts/get", name="greet", arguments={}))["error"]["code"] == -32602


def test_prompts_take_texts():
    """Other arguments can never be given, and what is no message cannot be sent."""
    with pytest.raises(TypeError, match="texts"):
        Prompt("p", lambda_with_int())
    server = ToolServer(prompts=[Prompt("p", lambda: [1])])
    assert server.handle(request("prompts/get", name="p"))["error"]["code"] == -32603


def lambda_with_int():
    def f(x: int):
        return str(x)

    return f


# --- names


def named(*names):
    return [tool(name)(lambda_with_name()) for name in names]


@pytest.mark.parametrize(
    ("name", "mapped"), [("a-b_C9", "a-b_C9"), ("dotted.name!x", "dotted_name_x"), ("w😀x", "w__x"), ("é b", "__b")]
)
def test_mapped_name(name, mapped):
    """As the CLI writes it, which counts UTF-16 units."""
    assert mapped_name(name) == mapped


@pytest.mark.parametrize("names", [("a.b", "a_b"), ("a", "a"), ("x😀", "x__")])
def test_names_that_collide(names):
    """The CLI would drop one of them in silence."""
    with pytest.raises(ValueError, match=names[0]):
        ToolServer(named(*names))


def test_plain_functions_are_made_tools():
    """The decorator may be left out."""
    assert list(ToolServer([lambda_with_name()]).tools) == ["f"]


def test_a_method_without_its_instance():
    """It could not be called: the server refuses it and says what to give."""

    class Shop:
        @tool
        def price(self, sku: str):
            return sku

    with pytest.raises(ValueError, match="instance"):
        ToolServer([Shop.price])
    assert text_of(called(Shop().price, sku="a")) == "a"


@pytest.mark.parametrize("tools", [add, "add", {"add": add}, 3])
def test_tools_must_be_a_list(tools):
    """One tool by itself, or a dict, is a mistake."""
    with pytest.raises(TypeError, match="tools must be a list"):
        ToolServer(tools)


@pytest.mark.parametrize("options", [{"name": ""}, {"name": 3}, {"version": ""}, {"instructions": " "}])
def test_texts_of_a_server(options):
    """They are texts that are not empty."""
    with pytest.raises(ValueError, match=next(iter(options))):
        ToolServer([add], **options)


def test_same_uri_or_prompt():
    """Two of a name are refused."""
    with pytest.raises(ValueError, match="uri"):
        ToolServer(resources=[Resource("a://b", "1"), Resource("a://b", "2")])
    with pytest.raises(ValueError, match="prompt"):
        ToolServer(prompts=[Prompt("a.b", "1"), Prompt("a_b", "2")])


COLLISIONS = [
    ({"my shop": ToolServer(), "my_shop": ToolServer()}, "'my_shop' to the CLI"),
    ({"": ToolServer()}, "not empty"),
    ({3: ToolServer()}, "not empty"),
    ({"a": ToolServer(named("b__c")), "a__b": ToolServer(named("c"))}, "mcp__a__b__c"),
    ({"s": ToolServer(named("n" * 121))}, "129 characters"),
    ({"s": {"command": ""}}, "command"),
    ({"s": {"type": "sdk", "name": "s"}}, "type"),
    ([ToolServer()], "must be a dict"),
    ({"ide": ToolServer()}, "give it another name"),
    ({"ide.": ToolServer()}, "give it another name"),
    ({"ide__x": {"command": "serve"}}, "give it another name"),
    ({"__proto__": ToolServer()}, "give it another name"),
    ({"workspace": {"command": "serve"}}, "give it another name"),
    ({"Claude Preview": {"type": "http", "url": "http://x"}}, "give it another name"),
]


@pytest.mark.parametrize(("servers", "words"), COLLISIONS, ids=lambda value: str(value)[:40])
def test_servers_that_the_cli_would_misread(servers, words):
    """Names that collide or are too long, and entries that it would leave out, are ValueErrors."""
    with pytest.raises(ValueError) as caught:
        check_servers(servers)
    assert words in str(caught.value)


def test_servers_that_are_fine():
    """One server under two names, a whole name of 128 characters, and the CLI's own servers beside."""
    shop = ToolServer([add])
    check_servers({"shop": shop, "my shop": shop, "s": ToolServer(named("n" * 120)), "x": {"command": "serve"}})


def test_names_that_the_cli_keeps_for_servers_of_its_own():
    """In-process servers may have them, and so may others have names that only begin the same."""
    check_servers({name: ToolServer() for name in ("workspace", "claude-in-chrome", "Claude Preview")})
    check_servers({name: {"command": "serve"} for name in ("idea", "ide-x", "ide_x", "Workspace", "claude preview")})


def test_the_entries_for_the_cli():
    """In-process servers are named, all others passed on."""
    servers = {"my shop": ToolServer([add]), "x": {"command": "serve"}}
    assert wire_servers(servers) == {"my shop": {"type": "sdk", "name": "my shop"}, "x": {"command": "serve"}}


def test_import_costs_little():
    """What is heavy stays out: it is not needed to make a tool, nor to call it."""
    code = "import sys, claude_cli_client.mcp; print(*sys.modules)"
    root = pathlib.Path(mcp.__file__).parent.parent
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert not {"logging", "typing_extensions", "base64", "asyncio", "pathlib"} & set(done.stdout.split())


def test_a_wrapper_that_suppresses_is_no_success():
    """What the function raised got lost in the user's wrapper: the model must not read an empty answer."""

    @tool
    def fails() -> str:
        """Fails."""
        raise ValueError("no")

    reply = ToolServer([fails]).handle(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fails", "arguments": {}}},
        wrapper=lambda: contextlib.suppress(ValueError),
    )
    assert reply["result"]["isError"] is True
