"""The steps of `FakeCLI`'s scripts and how they are written down for the stand-in process.

Pure: values in, plain data out. Users find everything here in `claude_cli_client.testing`.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from . import _fake_lines
from ._fake_lines import MESSAGE_ID, MODEL, SESSION_ID

_FDS = {"stdin": 0, "stdout": 1, "stderr": 2}


@dataclass(frozen=True)
class Step:
    """One step of a script. Make it with the functions of this module.

    `line` is the line as a dict, for steps that say one: `text("hi").line`. In typical lines
    `SESSION_ID`, the message id and the folder are replaced by the process's own when it runs.
    """

    op: str
    args: tuple[Any, ...] = ()
    line: Mapping[str, Any] | None = None
    steps: tuple[Any, ...] = field(default=(), repr=False)  # of repeat and on_term


if TYPE_CHECKING:
    Script = Iterable[Step | Mapping[str, Any] | Iterable[Any]]


# --- steps: lines


def say(line: Mapping[str, Any] | str | bytes) -> Step:
    """Writes this line, with one newline at its end, in one write."""
    if isinstance(line, Mapping):
        return Step("say", line=dict(line))
    data = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
    return Step("say", (data.rstrip(b"\n") + b"\n",))


def say_capture(
    path: str | os.PathLike[str], start: int | None = None, stop: int | None = None
) -> tuple[Step, ...]:
    """Writes the lines of a recording, byte for byte; `start` and `stop` cut as in `lines[start:stop]`.

    Its last result decides the exit code, as in `result`.
    """
    lines = Path(path).expanduser().read_bytes().split(b"\n")
    if not lines[-1]:
        lines.pop()
    return tuple(_captured(line + b"\n") for line in lines[start:stop])


def _captured(line: bytes) -> Step:
    known = _decoded(line) if b'"result"' in line else {}
    return Step("say", (line, _exit_code_of(known)))


def _exit_code_of(line: Mapping[str, Any]) -> int | None:
    """A `result` line decides the exit code; another says nothing about it."""
    return int(bool(line.get("is_error"))) if line.get("type") == "result" else None


def _decoded(line: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:  # recordings may be damaged on purpose
        return {}
    return value if isinstance(value, dict) else {}


def raw_bytes(data: bytes) -> Step:
    """Writes these bytes and no newline: half a line, or rubbish."""
    return Step("say", (data,))


def _own(line: Mapping[str, Any], changes: Mapping[str, Any]) -> Step:
    return Step("say_own", line={**line, **changes})


def init(*, session_id: str = SESSION_ID, model: str = MODEL, **changes: Any) -> Step:
    """The `system/init` line. `changes` replace or add fields of the line, here and below."""
    return _own(_fake_lines.init_line(session_id=session_id, model=model), changes)


def text(
    text: str, *, message_id: str = MESSAGE_ID, parent_tool_use_id: str | None = None, **changes: Any
) -> Step:
    """An assistant line with one text block.

    Unless you give a `message_id`, the assistant lines of a script share one, until a tool result
    or a result comes: they are blocks of one message.
    """
    return _assistant({"type": "text", "text": text}, message_id, parent_tool_use_id, changes)


def thinking(
    text: str, *, message_id: str = MESSAGE_ID, parent_tool_use_id: str | None = None, **changes: Any
) -> Step:
    """An assistant line with one thinking block."""
    block = {"type": "thinking", "thinking": text, "signature": "c2ln"}
    return _assistant(block, message_id, parent_tool_use_id, changes)


def tool_use(
    name: str, input: Mapping[str, Any] | None = None, *, tool_id: str = "toolu_1", message_id: str = MESSAGE_ID,
    parent_tool_use_id: str | None = None, **changes: Any,
) -> Step:  # fmt: skip
    """An assistant line with one tool call."""
    block = {"type": "tool_use", "id": tool_id, "name": name, "input": dict(input or {})}
    return _assistant(block, message_id, parent_tool_use_id, changes)


def _assistant(
    block: dict[str, Any], message_id: str, parent_tool_use_id: str | None, changes: Mapping[str, Any]
) -> Step:
    line = _fake_lines.assistant_line(block, message_id=message_id, parent_tool_use_id=parent_tool_use_id)
    return _own(line, changes)


def tool_result(
    content: Any, *, tool_id: str = "toolu_1", is_error: bool = False, tool_use_result: Any = None,
    parent_tool_use_id: str | None = None, **changes: Any,
) -> Step:  # fmt: skip
    """A user line with the result of the call `tool_id`; `tool_use_result` is Bash's unless given."""
    line = _fake_lines.tool_result_line(
        tool_id, content, is_error=is_error, tool_use_result=tool_use_result, parent_tool_use_id=parent_tool_use_id
    )  # fmt: skip
    return _own(line, changes)


def delta(
    text: str, *, index: int = 0, kind: Literal["text", "thinking", "tool_use"] = "text",
    message_id: str = MESSAGE_ID, **changes: Any,
) -> Step:  # fmt: skip
    """One partial message: a piece of block `index`. A whole streamed message is `stream`."""
    event = {"type": "content_block_delta", "index": index, "delta": _fake_lines.delta_of(kind, text)}
    return _own(_fake_lines.stream_line(event, message_id=message_id), changes)


def stream(pieces: Sequence[str], *, pause: float = 0.0) -> tuple[Step, ...]:
    """A text message with partial messages on: all stream events, the pieces, and the whole line.

    A text in the place of a list is its letters.
    """
    block = {"type": "text", "text": "".join(pieces)}
    steps: list[Step] = []
    for line in _fake_lines.streamed_message([(block, list(pieces))]):
        is_delta = line.get("event", {}).get("type") == "content_block_delta"
        steps += [Step("pause", (pause,))] if pause and is_delta else []
        steps.append(_own(line, {}))
    return tuple(steps)


def result(
    result: str = "", *, is_error: bool = False, subtype: str = "success", errors: Sequence[str] = (),
    cost_usd: float = 0.000204, session_cost_usd: float | None = None, num_turns: int = 1, index: int = 0,
    session_id: str = SESSION_ID, model: str = MODEL, **changes: Any,
) -> Step:  # fmt: skip
    """The result line. It decides the exit code: 1 for `is_error`, unless `exit_with` comes later.

    `subtype="error_max_turns"` and the like have `errors` and no `result`, and are errors.
    """
    failed = is_error or subtype != "success"
    line = _fake_lines.result_line(
        result, subtype=subtype, is_error=failed, errors=tuple(errors), cost_usd=cost_usd, num_turns=num_turns,
        session_cost_usd=session_cost_usd, index=index, session_id=session_id, model=model,
        terminal_reason=subtype.removeprefix("error_") if subtype != "success" else "completed",
    )  # fmt: skip
    return _own(line, changes)


def api_failure(status: int | Literal["connection"], text: str = "", **changes: Any) -> tuple[Step, ...]:
    """A failed API call: the synthetic assistant line and the result, a "success" with `is_error`."""
    if not isinstance(status, int) and status != "connection":
        raise ValueError(f"an API call fails with a status, as 429, or with 'connection', not {status!r}")
    line, end = _fake_lines.api_failure_lines(status, text=text)
    return _own(line, {}), _own(end, changes)


def api_retry(
    attempt: int = 1, *, max_retries: int = 10, delay_ms: int = 550, status: int | None = 529,
    error: str = "overloaded", **changes: Any,
) -> Step:  # fmt: skip
    """The line before a retry; `status` None: the network failed."""
    return _own(_fake_lines.api_retry_line(attempt, max_retries, delay_ms, status, error), changes)


def large_text(size: int) -> Step:
    """An assistant line with a text of `size` characters, made by the child: costs the test nothing."""
    mark = "a text of any size"
    return Step("fill", (size, mark), line=_fake_lines.assistant_line({"type": "text", "text": mark}))


def to_stderr(output: str | bytes | int) -> Step:
    """Writes to stderr: this text, these bytes, or that many bytes in lines of 80."""
    if isinstance(output, int):
        output = (b"e" * 79 + b"\n") * (output // 80) + b"e" * (output % 80)
    return Step("stderr", (output.encode("utf-8", "surrogatepass") if isinstance(output, str) else output,))


# --- steps: stdin


def read_stdin(limit: int | None = None) -> Step:
    """Reads stdin to its end, or `limit` bytes of it."""
    return Step("read_stdin", (limit,))


def wait_for_line(wanted: str | bytes | Mapping[str, Any] | None = None) -> Step:
    """Reads lines of stdin until one contains the text, or, as JSON, everything that the mapping has.

    `wait_for_line({"type": "control_request", "request": {"subtype": "initialize"}})`. None: any
    line. If stdin ends first, the CLI exits with 1 and says so on stderr.
    """
    if isinstance(wanted, str):
        wanted = wanted.encode("utf-8", "surrogatepass")
    return Step("wait_for_line", (dict(wanted) if isinstance(wanted, Mapping) else wanted,))


def reply(response: Mapping[str, Any] | None = None, *, error: str | None = None) -> Step:
    """Answers the control request that the last `wait_for_line` found, with its request id."""
    return Step("reply", (dict(response) if response else None, error))


def ignore_stdin() -> Step:
    """Says that stdin is not read: the script does not wait for a prompt, and nothing is answered."""
    return Step("ignore_stdin")


# --- steps: time and order


def pause(seconds: float) -> Step:
    """Does nothing for a while. To wait for something, use `wait_for`."""
    return Step("pause", (seconds,))


def repeat(count: int, *steps: Step | Mapping[str, Any] | Iterable[Any]) -> Step:
    """The steps, `count` times; stored once. Repeated lines are equal, their `uuid` included."""
    return Step("repeat", (count,), steps=steps)


def ready(name: str) -> Step:
    """Tells the test that the script has come here: `FakeCLI.wait(name)` returns."""
    return Step("ready", (checked_name(name),))


def wait_for(name: str) -> Step:
    """Waits until the test says `FakeCLI.release(name)`."""
    return Step("wait_for", (checked_name(name),))


def touch(path: str | os.PathLike[str], content: str | bytes = b"") -> Step:
    """Writes a file, as a tool of the CLI would; a relative path is below the CLI's folder, `~` is ours."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return Step("touch", (os.path.expanduser(path), data))


def hang() -> Step:
    """Lives on and does nothing, until it is killed."""
    return Step("hang")


# --- steps: signals and ends


def ignore_term() -> Step:
    """From here on SIGTERM has no effect."""
    return Step("ignore_signal", (int(signal.SIGTERM),))


def ignore_int() -> Step:
    """From here on SIGINT has no effect."""
    return Step("ignore_signal", (int(signal.SIGINT),))


def on_term(
    *steps: Step | Mapping[str, Any] | Iterable[Any],
    exit_code: int = 143,
    signum: int = signal.SIGTERM,
) -> Step:
    """From here on the signal leads to these steps, then to the end with `exit_code`.

    The real CLI ends with 143 after SIGTERM once it has started, with 0 after SIGINT. Without this
    step both signals simply kill the fake, as they kill the real one in its first moments.
    """
    return Step("on_signal", (int(signum), exit_code), steps=steps)


def exit_with(code: int) -> Step:
    """Exits at once."""
    return Step("exit", (code,))


def die_by(signum: int) -> Step:
    """Dies by this signal, without a core file. SIGSTOP: is stopped, and goes on after SIGCONT."""
    return Step("stop") if signum == signal.SIGSTOP else Step("die", (int(signum),))


def close_stream(name: Literal["stdin", "stdout", "stderr"] = "stdout") -> Step:
    """Closes the stream and lives on: its reader sees the end."""
    return Step("close_stream", (_FDS[name],))


def start_child(
    kind: Literal["group", "session", "detached"] = "session", *, inherit_stdout: bool = False,
    inherit_stderr: bool = False, ignore_term: bool = False, ignore_int: bool = False, clear_env: bool = False,
) -> Step:  # fmt: skip
    """Starts a process that only lives, for ten minutes, as a tool of the CLI might.

    `group`: in the CLI's own process group, like a stdio MCP server. `session`: in a session of
    its own, like the Bash tool. `detached`: that, and its parent is gone (double fork).
    `clear_env` gives it an empty environment. The script goes on when it runs and is in
    `FakeCLI.children`.
    """
    held = [fd for fd, keeps in ((1, inherit_stdout), (2, inherit_stderr)) if keeps]
    deaf_to = {int(signal.SIGTERM): ignore_term, int(signal.SIGINT): ignore_int}
    return Step("start_child", (kind, held, [number for number, deaf in deaf_to.items() if deaf], clear_env))


# --- encoding: what the child reads


def checked_name(name: str) -> str:
    if not name or "/" in name or "." in name:
        raise ValueError(f"a name between script and test is a plain word, not {name!r}")
    return name


_READS = {"read_stdin", "wait_for_line", "ignore_stdin", "simulate", "initialize", "take_prompt"}
_SAYS = {"say", "say_own", "fill", "repeat"}


class Encoder:
    """One script as plain data. Gives the assistant lines their message ids, in order."""

    def __init__(self) -> None:
        self._message = 1
        self._reads = False  # its prompt, or it wants none
        self._waits = False  # for what a client says while a turn is on
        self._tells = False  # what becomes of its prompt

    def script(self, steps: Iterable[Any]) -> dict[str, Any]:
        """`by_prompt`: it is one turn, and its prompt is read for it; as text, if it `reads_all` of stdin."""
        if isinstance(steps, (Step, Mapping)):
            raise TypeError("a script is a list of steps: FakeCLI([init(), result()]), or scripts=[[...], [...]]")
        ops = self._ops(steps)
        if not self._reads and not self._tells:
            ops = self._with_lifecycle(ops)
        return {"by_prompt": not self._reads, "reads_all": not self._reads and not self._waits, "ops": ops}

    def _with_lifecycle(self, ops: list[Any]) -> list[Any]:
        """Before its first line and behind its last one. A CLI that says nothing does not say this either."""
        begin = next((place for place, op in enumerate(ops) if op[0] in _SAYS), None)
        if begin is None:
            return ops
        queued, started, completed = (
            self._op(Step("lifecycle", line=_fake_lines.lifecycle_line(state)))
            for state in ("queued", "started", "completed")
        )
        return [*ops[:begin], queued, started, *ops[begin:], completed]

    def _ops(self, steps: Iterable[Any]) -> list[Any]:
        ops: list[Any] = []
        for step in steps:
            if isinstance(step, Mapping):
                step = say(step)
            if isinstance(step, Step):
                ops.append(self._op(step))
            elif isinstance(step, (list, tuple)):
                ops += self._ops(step)
            else:
                raise TypeError(f"not a step, a mapping or a sequence of them: {step!r}")
        return ops

    def _op(self, step: Step) -> tuple[Any, ...]:
        if step.op == "wait_for_line" and _in_a_turn(step.args[0]):
            self._waits = True
        elif step.op in _READS:
            self._reads = True
        self._tells = self._tells or step.op == "lifecycle"
        if step.op == "fill":
            size, mark = step.args
            head, tail = self._line(step).split(mark.encode())
            return ("fill", head, size, tail)
        if step.op == "on_signal":
            signum, exit_code = step.args
            return ("on_signal", signum, self._ops(step.steps), exit_code)
        if step.op == "repeat":
            return ("repeat", *step.args, self._ops(step.steps))
        if step.line is None:
            return (step.op, *step.args)
        return (step.op, self._line(step), _exit_code_of(step.line))

    def _line(self, step: Step) -> bytes:
        line = step.line or {}
        if line.get("type") in ("user", "result"):
            self._message += 1
        encoded = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        # A lone surrogate becomes "\udXXX", which is also its JSON escape, as the CLI writes it.
        data = encoded.encode("utf-8", "backslashreplace") + b"\n"
        if step.op == "say":
            return data
        return data.replace(MESSAGE_ID.encode(), f"msg_{self._message:024}".encode())


def _in_a_turn(wanted: Any) -> bool:
    """Whether a client says such a line only behind its prompt: an answer, an interrupt."""
    if not isinstance(wanted, Mapping):
        return False
    request = wanted.get("request")
    kind = request.get("subtype") if isinstance(request, Mapping) else None
    return wanted.get("type") == "control_response" or kind == "interrupt"
