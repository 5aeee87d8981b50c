r"""A stand-in for the Messages API on loopback, for tests that drive the real CLI.

What the "model" does is written into the prompt, as directives in double brackets. Then a test
says in one place what it asks and what it will get, and tests can run side by side:

    Run it [[tool: Bash {"command": "echo hi"}]] [[then]] [[text: it says hi]]

Only the text of the *last* prompt counts: earlier turns of a session, system reminders and the
sentences that the CLI itself puts in ("Your response above was cut off ...") are passed over. A
prompt without directives gets the scope's default script, or "ok: " and its last 60 characters.

Steps are separated by `[[then]]`; step *n* answers the turn's *n*-th request. After the last one
comes "done", or with `[[loop]]` the last one again. Inside a step, blocks come in their order:

    [[text: hello]]                 a text block
    [[words: N]] [[size: N]]        a text block of N words, one delta each; of N characters
    [[quoted: "a \u2028 b"]]       a text block from a JSON string, for what cannot be written plainly
    [[think: hmm]]                  a thinking block
    [[tool: NAME {json}]]           a tool call; several in one step are parallel calls
    [[structured: {json}]]          a call of StructuredOutput

and these say how the step goes:

    [[chunks: N]]                   each block in N deltas
    [[delay: S]]                    seconds before the first byte
    [[together: N]]                 no byte before so many requests for an answer have come
    [[pace: S]]                     seconds before each delta
    [[hang]]                        never a byte
    [[stall]]                       nothing more after the first delta
    [[status: 429 rate_limit_error]]  an HTTP error; [[message: words]] is its text
    [[header: retry-after 2]]       a response header
    [[body: <html>]]                status 200 with this body instead of an answer
    [[cut: PLACE]]                  end the stream early: after headers, start, delta, block, or at
                                    the end. A second word: `reset` breaks the connection instead,
                                    `always` breaks non-streaming requests as well
    [[sse_error: overloaded_error]] an error event in the stream, after the first delta
    [[times: N]]                    status, hang, stall, cut, delay, sse_error, body: only N times
    [[stop: refusal]]               the stop reason
    [[usage: {"input_tokens": 9}]]  usage numbers, over the default ones

and `[[script: NAME]]` stands for a script registered under that name.

A base URL may end in `/t/SCOPE`: requests are recorded, and scripts registered, by scope, so that
each test has its own. A scope is controlled by HTTP as well, so that it does not matter in which
process the server runs:

    GET  /t/SCOPE/_requests?count=N&timeout=S   the requests so far, once N are for an answer (else 504)
    PUT  /t/SCOPE/_script/NAME                  register the body; "default" is used without directives

Run as a program it prints its URL and serves until its stdin ends, so it cannot outlive a caller
that holds the other end of the pipe.
"""

from __future__ import annotations

import itertools
import json
import re
import select
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

USAGE = {
    "input_tokens": 12,
    "output_tokens": 7,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 5,
}
MESSAGES = "/v1/messages"
FOREVER = 3600.0
TOGETHER = 30.0  # seconds: CLIs that are started at the same time need some to come so far
Headers = Sequence[tuple[str, str]]

# Sentences of the CLI that stand where a prompt could stand. They are no prompts: the turn goes on.
_NOT_A_PROMPT = re.compile(
    r"<task-notification>|<local-command|<command-|Caveat: |\[Request interrupted"
    r"|\[structured-output-enforce\]|Your response above was |Output token limit hit"
    r"|\[Your previous response had no visible output|Stop hook feedback:|\[Image: source"
    r"|Continue from where you left off"
)
_REMINDER = re.compile(r"<system-reminder>.*?(</system-reminder>|\Z)", re.DOTALL)
_OPENING = re.compile(r"\[\[(\w+)(?::\s?)?")
_TOOL_NAME = re.compile(r"(\S+)\s+")
_FAULTS = {"status", "hang", "stall", "cut", "delay", "sse_error", "body"}
_BLOCKS = {"text", "quoted", "think", "tool", "structured", "words", "size"}
_SETTINGS = _FAULTS | {"chunks", "together", "pace", "message", "times", "stop", "usage", "loop", "script"}


# --- what the prompt says: pure ---------------------------------------------------------------


class BadScript(ValueError):
    """A directive that does not exist or cannot be read: answered with a 400, so that it is seen."""


@dataclass
class Step:
    """What one request of a turn gets."""

    blocks: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    headers: list[tuple[str, str]] = field(default_factory=list)


def parse(script: str) -> list[Step]:
    """The steps of a script; [] if there is no directive in it."""
    steps: list[Step] = [Step()]
    found, place = False, 0
    while opening := _OPENING.search(script, place):
        found, name = True, opening[1]
        value, place = _value(script, name, opening.end())
        if name == "then":
            steps.append(Step())
        else:
            _apply(steps[-1], name, value)
    return steps if found else []


def _value(script: str, name: str, start: int) -> tuple[Any, int]:
    """The directive's value and where the script goes on. JSON may hold brackets of its own."""
    tool = ""
    if name == "tool":
        match = _TOOL_NAME.match(script, start)
        if match is None:
            raise BadScript("[[tool]] needs a name and a JSON object")
        tool, start = match[1], match.end()
    if name in ("tool", "structured", "usage", "quoted"):
        try:
            value, end = json.JSONDecoder(strict=False).raw_decode(script, start)
        except ValueError as error:
            raise BadScript(f"[[{name}]]: {error}") from None
        closing = script.find("]]", end)
        return ((tool, value) if tool else value), closing + 2
    closing = script.find("]]", start)
    if closing < 0:
        raise BadScript(f"[[{name}]] does not end")
    return script[start:closing], closing + 2


def _apply(step: Step, name: str, value: Any) -> None:
    if name in _BLOCKS:
        step.blocks.append(_block(name, value))
    elif name == "header":
        key, _, text = value.partition(" ")
        step.headers.append((key, text))
    elif name in _SETTINGS:
        step.settings[name] = value
    else:
        raise BadScript(f"unknown directive [[{name}]]")


def _block(name: str, value: Any) -> dict[str, Any]:
    if name == "tool" or name == "structured":
        tool, arguments = value if name == "tool" else ("StructuredOutput", value)
        return {"type": "tool_use", "name": tool, "input": arguments}
    if name == "think":
        return {"type": "thinking", "thinking": value, "signature": "c2lnbmVk"}
    if name == "words":
        return {"type": "text", "text": "word " * int(value), "chunks": int(value)}
    return {"type": "text", "text": "x" * int(value) if name == "size" else value}


def current_turn(messages: list[dict[str, Any]]) -> tuple[str, int]:
    """The last prompt, and how many answers this turn has had already."""
    answers = 0
    for message in reversed(messages):
        if message["role"] == "assistant":
            answers += 1
        elif message["role"] == "user":
            for text in reversed(texts(message["content"])):
                words = _REMINDER.sub("", text).strip()
                if words and not _NOT_A_PROMPT.match(words):
                    return words, answers
    return "", answers


def texts(content: Any) -> list[str]:
    """The texts of a message's content, which may be a string or blocks."""
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content or () if block.get("type") == "text"]


# --- one scope's memory -----------------------------------------------------------------------


class Scope:
    """What one test's CLI asked and what it is to get. All state is under `changed`."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.requests: list[dict[str, Any]] = []
        self.scripts: dict[str, str] = {}
        self.faults: Counter[tuple[str, int]] = Counter()

    def record(self, request: dict[str, Any]) -> None:
        with self.changed:
            self.requests.append(request)
            self.changed.notify_all()

    def wait_for(self, count: int, timeout: float) -> list[dict[str, Any]] | None:
        """The requests once `count` of them are for an answer; None if that takes longer."""
        with self.changed:
            enough = self.changed.wait_for(lambda: self._answers_asked() >= count, timeout)
            return list(self.requests) if enough else None

    def _answers_asked(self) -> int:
        return sum(request["path"] == MESSAGES for request in self.requests)

    def step(self, messages: list[dict[str, Any]]) -> Step:
        """The step for a request with these messages, without its faults if they are used up."""
        prompt, answers = current_turn(messages)
        steps = self._steps(prompt)
        if not steps:
            return Step([{"type": "text", "text": "ok: " + prompt[-60:]}])
        if answers >= len(steps) and "loop" not in steps[-1].settings:
            return Step([{"type": "text", "text": "done"}])
        step = steps[min(answers, len(steps) - 1)]
        if not step.blocks and "stop" not in step.settings:
            step.blocks.append({"type": "text", "text": "ok"})
        self._spend(step, (prompt, answers))
        return step

    def _steps(self, prompt: str) -> list[Step]:
        with self.changed:
            scripts = dict(self.scripts)
        steps = parse(prompt) or parse(scripts.get("default", ""))
        named = steps[0].settings.get("script") if steps else None
        if named is None:
            return steps
        if named not in scripts:
            raise BadScript(f"no script {named!r} is registered")
        return parse(scripts[named])

    def _spend(self, step: Step, key: tuple[str, int]) -> None:
        if "times" not in step.settings:
            return
        with self.changed:
            self.faults[key] += 1
            over = self.faults[key] > int(step.settings["times"])
        if over:
            for name in _FAULTS:
                step.settings.pop(name, None)


# --- the server -------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        scope, path, query = self._route()
        if path == "/_requests":
            got = scope.wait_for(int(query.get("count", ["0"])[0]), float(query.get("timeout", ["0"])[0]))
            self._json(504 if got is None else 200, scope.requests if got is None else got)
        else:
            self._json(200, {"data": []})

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        scope, path, _ = self._route()
        script = self._read().decode()
        with scope.changed:
            scope.scripts[path.removeprefix("/_script/")] = script
        self._json(200, {})

    def do_POST(self) -> None:
        scope, path, _ = self._route()
        raw = self._read()
        try:
            body = json.loads(raw)
        except ValueError:
            body = {"undecodable": raw.decode("latin-1")}
        headers = {name.lower(): value for name, value in self.headers.items()}
        scope.record({"path": path, "headers": headers, "body": body, "time": time.time()})
        if path != MESSAGES:
            self._json(200, {"input_tokens": 100} if path.endswith("/count_tokens") else {})
            return
        try:
            step = scope.step(body["messages"])
        except BadScript as error:
            self._error(400, "invalid_request_error", f"stand-in: {error}")
            return
        if scope.wait_for(int(step.settings.get("together", 0)), TOGETHER) is None:
            self._error(400, "invalid_request_error", f"stand-in: no other requests came in {TOGETHER:g} s")
            return
        try:
            self._answer(step, body)
        except _Cut:
            self.close_connection = True
        except OSError:  # the CLI went away, which is what many tests are about
            self.close_connection = True

    def _route(self) -> tuple[Scope, str, dict[str, list[str]]]:
        url = urlsplit(self.path)
        match = re.match(r"/t/([^/]+)(/.*|$)", url.path)
        name, path = (match[1], match[2]) if match else ("", url.path)
        return self.server.scope(name), path, parse_qs(url.query)

    def _read(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _answer(self, step: Step, body: dict[str, Any]) -> None:
        settings = step.settings
        self._pause(FOREVER if "hang" in settings else float(settings.get("delay", 0)))
        if "status" in settings:
            status, _, kind = settings["status"].partition(" ")
            kind = kind or "api_error"
            self._error(int(status), kind, settings.get("message", f"stand-in {kind}"), step.headers)
        elif "body" in settings:
            self._send(200, settings["body"].encode(), "text/html", step.headers)
        elif body.get("stream"):
            self._stream(step, body)
        elif "always" in settings.get("cut", ""):
            raise _Cut
        else:
            self._json(200, _message(step, body), step.headers)

    def _stream(self, step: Step, body: dict[str, Any]) -> None:
        settings = step.settings
        cut, _, how = settings.get("cut", "").partition(" ")
        self.send_response(200)
        for name, value in (
            ("content-type", "text/event-stream"),
            ("transfer-encoding", "chunked"),
            ("request-id", "req_standin"),
            *step.headers,
        ):
            self.send_header(name, value)
        self.end_headers()
        try:
            self._events(step, body, cut)
        except _Cut:
            if "reset" in how:
                if cut != "headers":
                    self._pause(0.2)  # a reset takes what the CLI has not read yet with it
                raise
            # Else the connection stays: the CLI may be sending its next request on it, which would be lost.
        self.wfile.write(b"0\r\n\r\n")

    def _events(self, step: Step, body: dict[str, Any], cut: str) -> None:
        settings, first_delta = step.settings, True
        if cut == "headers":
            raise _Cut
        for event in _events(_message(step, body), step):
            kind = event["type"]
            if kind == "content_block_delta":
                self._pause(float(settings.get("pace", 0)))
            if kind == "message_stop" and cut == "end":
                raise _Cut
            self._event(event)
            if (kind, cut) in (("message_start", "start"), ("content_block_stop", "block")):
                raise _Cut
            if kind == "content_block_delta" and first_delta:
                first_delta = False
                self._after_first_delta(settings, cut)

    def _after_first_delta(self, settings: dict[str, Any], cut: str) -> None:
        if "sse_error" in settings:
            error = {"type": settings["sse_error"], "message": "stand-in " + settings["sse_error"]}
            self._event({"type": "error", "error": error})
            raise _Cut
        if cut == "delta":
            raise _Cut
        if "stall" in settings:
            self._pause(FOREVER)

    def _event(self, event: dict[str, Any]) -> None:
        data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _pause(self, seconds: float) -> None:
        """Wait, but not for a client that has hung up."""
        if seconds and select.select([self.connection], [], [], seconds)[0]:
            raise _Cut

    def _error(self, status: int, kind: str, message: str, headers: Headers = ()) -> None:
        self._json(status, {"type": "error", "error": {"type": kind, "message": message}}, headers)

    def _json(self, status: int, value: Any, headers: Headers = ()) -> None:
        self._send(status, json.dumps(value).encode(), "application/json", headers)

    def _send(self, status: int, data: bytes, kind: str, headers: Headers) -> None:
        self.send_response(status)
        for name, value in (("content-type", kind), ("content-length", str(len(data))), *headers):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


class _Cut(Exception):
    """Close the connection here."""


def _message(step: Step, body: dict[str, Any]) -> dict[str, Any]:
    """The whole answer, as a non-streaming request gets it."""
    blocks = [dict(block) for block in step.blocks]
    for block in blocks:
        if block["type"] == "tool_use":
            block["id"] = "toolu_" + uuid.uuid4().hex[:20]
    calls = any(block["type"] == "tool_use" for block in blocks)
    return {
        "id": "msg_" + uuid.uuid4().hex[:24],
        "type": "message",
        "role": "assistant",
        "model": body.get("model", ""),
        "content": [{k: v for k, v in block.items() if k != "chunks"} for block in blocks],
        "stop_reason": step.settings.get("stop") or ("tool_use" if calls else "end_turn"),
        "stop_sequence": None,
        "usage": {**USAGE, **step.settings.get("usage", {})},
    }


# How a block opens in a stream, which delta brings its content, and where that content stands.
_STREAMED: dict[str, tuple[dict[str, Any], str, str]] = {
    "text": ({"text": ""}, "text_delta", "text"),
    "thinking": ({"thinking": "", "signature": ""}, "thinking_delta", "thinking"),
    "tool_use": ({"input": {}}, "input_json_delta", "partial_json"),
}


def _events(message: dict[str, Any], step: Step) -> list[dict[str, Any]]:
    """The same answer as the events of a stream."""
    usage = message["usage"]
    opened = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": opened}]
    for index, (block, scripted) in enumerate(zip(message["content"], step.blocks, strict=True)):
        empty, delta, key = _STREAMED[block["type"]]
        events.append({"type": "content_block_start", "index": index, "content_block": {**block, **empty}})
        content = json.dumps(block["input"]) if block["type"] == "tool_use" else block[key]
        chunks = int(scripted.get("chunks") or step.settings.get("chunks", 1))
        for piece in _pieces(content, chunks):
            change = {"type": delta, key: piece}
            events.append({"type": "content_block_delta", "index": index, "delta": change})
        if block["type"] == "thinking":
            change = {"type": "signature_delta", "signature": block["signature"]}
            events.append({"type": "content_block_delta", "index": index, "delta": change})
        events.append({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ending, "usage": usage})
    return [*events, {"type": "message_stop"}]


def _pieces(content: str, count: int) -> list[str]:
    """`content` in `count` pieces of nearly equal length (fewer where it is shorter)."""
    count = max(1, min(count, len(content)))
    edges = [len(content) * i // count for i in range(count + 1)]
    return [content[a:b] for a, b in itertools.pairwise(edges)]


class Server(ThreadingHTTPServer):
    """The stand-in. `with Server() as api:` serves in threads of this process."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, port: int = 0) -> None:
        self._scopes: defaultdict[str, Scope] = defaultdict(Scope)
        self._scopes_lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def scope(self, name: str) -> Scope:
        with self._scopes_lock:
            return self._scopes[name]

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def __enter__(self) -> Server:
        threading.Thread(target=self.serve_forever, args=(0.05,), name="messages-api", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self.server_close()


def main() -> None:
    with Server(int(sys.argv[1]) if len(sys.argv) > 1 else 0) as server:
        print(server.url, flush=True)
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
