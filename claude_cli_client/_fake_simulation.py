"""The simulated CLI behind `SimulatedCLI`: answers any prompt as the real CLI would, without a model.

Runs inside the stand-in process of `_fake_cli.py`, which has the modules imported here ready,
compiled, under the same names: so the package itself is not imported.

The answer says that it is a simulation and repeats the prompt's first words. One harmless tool
call is shown (an echo that is not run), so that a program sees the usual order of events. What a
prompt can contain to steer it is listed in `SimulatedCLI`. Here are the turns; what a CLI does
beyond that when its stdin stays open (control requests, callbacks) is in `_fake_live.py`.
"""

from __future__ import annotations

import json
import os
import re
import time

from ._fake_lines import (
    MODEL,
    TOOLS,
    api_failure_lines,
    api_retry_line,
    assistant_line,
    init_line,
    new_tool_id,
    new_uuid,
    result_line,
    streamed_message,
    tool_result_line,
)
from ._fake_schema import instance_of, unknown_type

TYPE_CHECKING = False  # see _fake_cli.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from ._fake_cli import Player
    from ._fake_mirror import Transcript

COST_USD = 0.000204  # of one simulated model call
MODELS = {
    "sonnet": "claude-sonnet-5-5",
    "opus": "claude-opus-5-5",
    "haiku": "claude-haiku-5-5",
    "default": "claude-opus-5-5",
}
# What a prompt may say -> how it is written, and what may stand behind its colon.
CUES = {
    "fail": ("[[fail: 429]] or [[fail: connection]]", r"([45]\d\d|connection)?"),
    "retry": ("[[retry: 2]]", r"(\d{1,6})?"),
    "slow": ("[[slow: 5]]", r"(\d{1,6}(\.\d+)?)?"),
    "think": ("[[think]]", ""),
    "plain": ("[[plain]]", ""),
    "tools": ("[[tools: 3]]", r"(\d{1,6})?"),
    "exit": ("[[exit: 3]]", r"(\d{1,3})?"),
    "hang": ("[[hang]]", ""),
    "call": ('[[call: Read {"file_path": "a"}]]', r"(?!)"),  # one that is well formed has been taken out before
}
# What looks like one: [[word]], [[word: ...]], and a known word with anything behind it.
_CUE_NAME = rf"[a-z]{{3,}}(?=\s*(?::|\]\]))|(?:{'|'.join(CUES)})(?=[\s{{])"
_CUE = re.compile(rf"\[\[\s*({_CUE_NAME})((?:[^\[\]]|\[(?!\[)|\](?!\]))*)\]\]")
_CALL = re.compile(r"\[\[\s*call\s*:\s*([\w.-]+)\s*")  # its input, a JSON object, is read by itself
_DECODER = json.JSONDecoder()
_CALL_END = re.compile(r"\s*\]\]")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NO_PROMPT = "Error: Input must be provided either through stdin or as a prompt argument when using --print\n"
_BLANK = "Error: Input contained only whitespace. Provide a prompt.\n"


def simulate(player: Player, pace: float) -> None:
    player.op_on_signal(15, (), 143)  # as the real CLI ends between two lines
    player.op_on_signal(2, (), 0)
    if player.option("--input-format") == "stream-json":
        from ._fake_live import serve

        serve(player, pace)
        return
    simulation = Simulation(player, pace)
    simulation.check()
    prompt = player.read_stdin().decode("utf-8", "replace")
    if not prompt.strip():
        simulation.refuse(_BLANK if prompt else _NO_PROMPT)
    simulation.turn(prompt)
    simulation.finish()


class Simulation:
    """One process: its options, its session, and the results so far."""

    def __init__(self, player: Player, pace: float) -> None:
        self.player = player
        self.pace = pace
        asked = self.value("--model")
        self.model = MODELS.get(asked or "default", asked or MODEL)
        self.transcript = self._transcript() if "--session-mirror" in player.argv else None
        self.session_id = self._session_id()
        self.partial = "--include-partial-messages" in player.argv
        self.output = self.value("--output-format") or "text"
        self.removed = set((self.value("--disallowedTools") or "").replace(",", " ").split())
        self.tools = self._tools()
        mode = self.value("--permission-mode") or "default"
        self.mode = "bypassPermissions" if "--dangerously-skip-permissions" in player.argv else mode
        self.results: list[dict[str, Any]] = []
        self.cost = 0.0
        self.prompt_uuid: str | None = None  # of the prompt whose turn it is, where it came with one
        self.denials: list[dict[str, Any]] = []  # tool calls of this turn that were denied
        if self.transcript is not None:
            self.transcript.begin(self.session_id, self.value("--name"))

    # --- options

    def value(self, name: str) -> str | None:
        return self.player.option(name)

    def _session_id(self) -> str:
        resumed = self.transcript.resumed if self.transcript is not None else self._resumed_id()
        goes_on = "" if "--fork-session" in self.player.argv else resumed
        return self.value("--session-id") or goes_on or new_uuid()

    def _resumed_id(self) -> str:
        """What is resumed, if it is said by its id."""
        resumed = self.value("--resume") or ""
        return resumed if _UUID.fullmatch(resumed) else ""

    def _transcript(self) -> Transcript:
        self.player._module("_project_key")  # which the other one imports
        make: Callable[..., Transcript] = self.player._module("_fake_mirror").Transcript
        return make(self.player, self.value("--resume") or "", bool(self._resumed_id()), folder())

    def _tools(self) -> tuple[str, ...]:
        named = self.value("--tools")
        chosen = TOOLS if named in (None, "default") else tuple(named.replace(",", " ").split() if named else ())
        return tuple(tool for tool in chosen if tool not in self.removed)

    def problem(self) -> str:
        """What the real CLI would refuse before it starts a turn, in its words; "" for nothing."""
        session = self.value("--session-id")
        continues = self.value("--resume") is not None or "--continue" in self.player.argv
        if session is not None and not _UUID.fullmatch(session):
            return "Error: Invalid session ID. Must be a valid UUID.\n"
        if session is not None and continues and "--fork-session" not in self.player.argv:
            return "Error: --session-id with --continue or --resume also needs --fork-session.\n"
        if session is not None and self.transcript is not None and self.transcript.in_use:
            return f"Error: Session ID {session} is already in use.\n"
        turns = self.value("--max-turns")
        if turns is not None and not re.fullmatch(r"-?\d+(\.\d+)?", turns):
            return f"error: option '--max-turns <turns>' argument '{turns}' is invalid. must be a number\n"
        try:
            wrong = unknown_type(json.loads(self.value("--json-schema") or "{}"))
        except ValueError as error:
            return f"Error: --json-schema is not valid JSON: {error}\n"
        return wrong and f"Error: --json-schema is not a valid JSON Schema: {wrong}\n"

    def check(self) -> None:
        """Ends here what the real CLI would not begin. Without a transcript no session is missing."""
        problem = self.problem()
        if problem:
            self.refuse(problem)
        sentence = self.transcript.problem if self.transcript is not None else ""
        if sentence:
            line = result_line(
                None, subtype="error_during_execution", is_error=True, session_id=self._resumed_id() or new_uuid(),
                calls=0, num_turns=0, cost_usd=0, terminal_reason=None, stop_reason=None, errors=(sentence,),
            )  # fmt: skip
            if self.output == "stream-json":
                self.player.op_say(encoded(line))
            self.refuse(sentence + "\n")

    # --- output

    def say(self, *lines: dict[str, Any]) -> None:
        for line in lines:
            if "timestamp" in line:
                line["timestamp"] = _now()
            if line.get("type") == "result":
                line["permission_denials"] = self.denials
                self.results.append(line)
            if self.transcript is not None:
                self.transcript.add(line, _now())
            if self.output == "stream-json":
                self.player.op_say(encoded(line))

    def refuse(self, problem: str) -> NoReturn:
        self.player.op_stderr(problem.encode("utf-8", "replace"))
        self.player.op_exit(1)

    def finish(self) -> None:
        """The other two output formats show only the last result."""
        if not self.results:
            return
        last = self.results[-1]
        if self.output == "json":
            self.player.op_say(encoded(last))
        elif self.output == "text":
            self.player.op_say(str(last.get("result", "")).encode("utf-8", "backslashreplace") + b"\n")
        self.player.exit_code = int(last["is_error"])

    # --- what a live session does otherwise

    def pause(self, seconds: float) -> None:
        self.player.op_pause(seconds)

    def hang(self) -> None:
        self.player.op_hang()

    def servers(self) -> list[dict[str, Any]]:
        """`mcp_servers` of the init line."""
        return []

    # --- a turn

    def turn(self, prompt: str) -> None:
        began = time.monotonic()
        named, words = _named_calls(prompt)
        found = [(cue[0], cue[1], cue[2].strip().removeprefix(":").strip()) for cue in _CUE.finditer(words)]
        wrong = next((written for written, word, given in found if not _is_cue(word, given)), None)
        cues = {word: given for _, word, given in found}
        words = _CUE.sub("", words)
        mode = "default" if self.mode == "manual" else self.mode
        line = init_line(
            session_id=self.session_id,
            model=self.model,
            cwd=folder(),
            tools=self.tools,
            permission_mode=mode,
        )
        self.denials = []
        if self.transcript is not None:
            self.transcript.prompt(prompt, _now(), self.prompt_uuid)
        self.say({**line, "mcp_servers": self.servers()})
        if wrong is not None:
            self._misspelt(wrong)
            return
        self._retries(cues)
        if "hang" in cues:
            self.hang()
        if "exit" in cues:
            self.player.op_exit(int(cues["exit"] or 1))
        if "fail" in cues:
            failure = int(cues["fail"]) if cues["fail"].isdigit() else cues["fail"] or 500
            self.say(*api_failure_lines(failure, session_id=self.session_id, index=len(self.results)))
            return
        pause = float(cues["slow"] or 2) if "slow" in cues else 0.0
        calls = self._tool_calls(named or self._plausible_calls(cues))
        if calls is not None:
            self._end(words, cues, pause, calls, began)

    def _misspelt(self, cue: str) -> None:
        """A test must not pass because what it asks for was never done."""
        known = ", ".join(written for written, _ in CUES.values())
        sentence = f"the simulated CLI does not understand {cue[:200]}; it knows {known}"
        line = result_line(
            None, subtype="error_during_execution", is_error=True, errors=(sentence,), terminal_reason=None,
            stop_reason=None, **self._result_facts(0),
        )  # fmt: skip
        self.say(line)

    def _retries(self, cues: dict[str, str]) -> None:
        count = int(cues["retry"] or 1) if "retry" in cues else 0
        for attempt in range(1, count + 1):
            self.say(api_retry_line(attempt, 10, 100, 529, "overloaded", self.session_id))
            self.pause(0.1)

    def _plausible_calls(self, cues: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
        if "plain" in cues or "Bash" not in self.tools:
            return []
        wanted = int(cues["tools"] or 1) if "tools" in cues else 1
        return [
            ("Bash", {"command": f"echo simulated call {count}", "description": "Show a tool call"})
            for count in range(1, wanted + 1)
        ]

    def _tool_calls(self, wanted: list[tuple[str, dict[str, Any]]]) -> int | None:
        """Shows the tool calls and returns their number; None if `--max-turns` ended the turn."""
        limit = int(float(self.value("--max-turns") or 0))
        for count, (name, given) in enumerate(wanted, 1):
            self._tool_call(name, given)
            if limit and count >= max(limit, 1):
                self._max_turns_reached(count, limit)
                return None
        return len(wanted)

    def _max_turns_reached(self, calls: int, limit: int) -> None:
        self._count(calls)
        line = result_line(
            None, subtype="error_max_turns", is_error=True, num_turns=calls + 1, stop_reason="tool_use",
            errors=(f"Reached maximum number of turns ({limit})",), terminal_reason="max_turns",
            **self._result_facts(calls),
        )  # fmt: skip
        self.say(line)

    def _tool_call(self, name: str, given: dict[str, Any]) -> None:
        tool_id = new_tool_id()
        block = {"type": "tool_use", "id": tool_id, "name": name, "input": given}
        arguments = json.dumps(given)
        self._message([(block, [arguments[:20], arguments[20:]])], 0.0, "tool_use")
        self.say(self.used(tool_id, name, given))

    def used(self, tool_id: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """The line with a call's result. Nothing is run."""
        if name.startswith("mcp__"):
            return self.tool_failed(tool_id, f"Error: No such tool available: {name}")
        text = f"(simulated: {name} was not run)"
        command = given.get("command")
        if name == "Bash" and isinstance(command, str):
            text = command[5:] if command.startswith("echo ") else "(Bash completed with no output)"
        return tool_result_line(tool_id, text, session_id=self.session_id)

    def tool_failed(self, tool_id: str, text: str) -> dict[str, Any]:
        return tool_result_line(tool_id, text, is_error=True, session_id=self.session_id)

    def _message(self, blocks: list[tuple[dict[str, Any], list[str]]], pause: float, stop: str) -> None:
        """One message of the model: whole blocks, or streamed piece by piece."""
        message_id = f"msg_{new_uuid().replace('-', '')[:24]}"
        each = self.pace + pause / max(1, sum(len(pieces) for _, pieces in blocks))
        if not self.partial:
            for block, pieces in blocks:
                self.pause(each * len(pieces))
                self.say(assistant_line(block, session_id=self.session_id, message_id=message_id, model=self.model))
            return
        status = {"type": "system", "subtype": "status", "status": "requesting"}
        self.say({**status, "session_id": self.session_id, "uuid": new_uuid()})
        for line in streamed_message(
            blocks, session_id=self.session_id, message_id=message_id, model=self.model, stop_reason=stop
        ):
            if line.get("event", {}).get("type") == "content_block_delta":
                self.pause(each)
            self.say(line)

    def _end(self, words: str, cues: dict[str, str], pause: float, calls: int, began: float) -> None:
        thinking: list[tuple[dict[str, Any], list[str]]] = []
        if "think" in cues:
            thought = "I am a simulation, so I think of nothing."
            block = {"type": "thinking", "thinking": thought, "signature": "c2ln"}
            thinking = [(block, _pieces(thought))]
        schema = self.value("--json-schema")
        value: Any = None
        if schema is None:
            answer = _answer_to(words)
            self._message([*thinking, ({"type": "text", "text": answer}, _pieces(answer))], pause, "end_turn")
        else:
            value = instance_of(json.loads(schema))
            answer = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            self._structured(thinking, value, answer, pause)
        self._count(calls + 1)
        result = result_line(
            answer, num_turns=calls + 1 + (schema is not None), duration_ms=int((time.monotonic() - began) * 1000) + 1,
            stop_reason="end_turn" if schema is None else "tool_use", **self._result_facts(calls + 1),
        )  # fmt: skip
        self.say(result if schema is None else {**result, "structured_output": value})

    def _structured(self, before: list[Any], value: Any, text: str, pause: float) -> None:
        tool_id = new_tool_id()
        block = {"type": "tool_use", "id": tool_id, "name": "StructuredOutput", "input": value}
        self._message([*before, (block, [text])], pause, "tool_use")
        said = "Structured output provided successfully"
        self.say(tool_result_line(tool_id, said, tool_use_result=said, session_id=self.session_id))

    def _count(self, model_calls: int) -> None:
        self.cost = round(self.cost + COST_USD * model_calls, 9)

    def _result_facts(self, model_calls: int) -> dict[str, Any]:
        return {
            "session_id": self.session_id, "model": self.model, "calls": model_calls, "index": len(self.results),
            "cost_usd": round(COST_USD * model_calls, 9), "session_cost_usd": self.cost,
        }  # fmt: skip


def encoded(line: dict[str, Any]) -> bytes:
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _now() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"


def folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def prompt_of(content: Any) -> str:
    """The text of a prompt, which may be content blocks."""
    if isinstance(content, str):
        return content
    return " ".join(str(block.get("text", "")) for block in content if isinstance(block, dict))


def _named_calls(prompt: str) -> tuple[list[tuple[str, dict[str, Any]]], str]:
    """The calls that the prompt asks for, and what is left of it."""
    calls: list[tuple[str, dict[str, Any]]] = []
    left, end = "", 0
    for cue in _CALL.finditer(prompt):
        if cue.start() < end:
            continue  # inside of another one's input
        try:
            given, after = _input_of(cue[1], prompt, cue.end())
        except (ValueError, IndexError):
            continue
        closed = _CALL_END.match(prompt, after)
        if closed and isinstance(given, dict):
            calls.append((cue[1], given))
            left, end = left + prompt[end : cue.start()], closed.end()
    return calls, left + prompt[end:]


def _input_of(name: str, prompt: str, begin: int) -> tuple[Any, int]:
    """And where it ends. Only a tool of the host may want none; else ValueError or IndexError."""
    if name.startswith("mcp__") and prompt[begin] != "{":
        return {}, begin
    return _DECODER.raw_decode(prompt, begin)


def _is_cue(word: str, given: str) -> bool:
    return word in CUES and re.fullmatch(CUES[word][1], given) is not None


def _answer_to(prompt: str) -> str:
    words = prompt.split()
    shown = " ".join(words[:8]) + (" ..." if len(words) > 8 else "")
    return f"This is a simulated answer: no model was asked. Your prompt begins: {shown}"


def _pieces(text: str) -> list[str]:
    """The text as tokens might come: a word with the space before it."""
    return re.findall(r"\s*\S+|\s+$", text)
