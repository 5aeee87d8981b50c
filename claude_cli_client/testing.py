"""Doubles of the CLI for tests: a real process that does what a script says.

    from claude_cli_client import Client
    from claude_cli_client.testing import FakeCLI, init, result, text, tool_result, tool_use

    ls = [tool_use("Bash", {"command": "ls"}), tool_result("a.txt")]
    with FakeCLI([init(), *ls, text("One."), result("One.")]) as fake:
        client = Client(cli_path=fake.path)
        assert client.ask("How many files?").result == "One."
        assert fake.calls[0].prompt == "How many files?"

A script is a list of steps. A step is a value made by one of the functions here; a mapping is
taken as a line to say, a list or tuple as the steps in it. `FakeCLI` starts nothing: it writes an
executable file into a new directory, and whoever starts that file gets the play. When the script is
over it exits: with 1 if the last `result` line it said is an error, else with 0, as the real CLI does.

A script is one turn, however the client speaks: the fake reads the prompt first, as text or as a line
of stream-json, and answers `initialize` (and with an empty body whatever else is asked before the
prompt). In a session each further prompt has the next script, and the process lives until its stdin
ends. Within a turn, steps may ask for permission, call hooks and tools, and wait for an interrupt:

    script = [init(), *ls, ask_permission("Bash", {"command": "rm a"}), result("Denied.")]
    with FakeCLI(script) as fake:
        client = Client(cli_path=fake.path, can_use_tool=lambda request: False)
        assert client.ask("Remove it").result == "Denied."
        assert fake.calls[0].answers[0]["behavior"] == "deny"

Only a script that reads its prompt itself has all in its own hands: `read_stdin`, `ignore_stdin`,
`wait_for_line`, `expect`, `expect_initialize`, `began`, `turn`. A CLI that never begins, not even to
answer `initialize`, is `[ignore_stdin(), hang()]`; a session with two turns and what is between them
`[expect_initialize(), turn(...), ..., turn(...), read_stdin()]`.

For tests that must not depend on speed: `ready` and `wait_for` in the script, `FakeCLI.wait`, `release`
and `wait_gone` in the test. Nothing a script starts lives longer than ten minutes.

`SimulatedCLI` is the same kind of file, with an answer for every prompt. `check_store` is something
else: the rules that a session store of your own must keep.

The child program is in `_fake_cli.py`, which explains the files in the directory. Here nothing runs
in the background: no thread, and no descriptor stays open. Linux and macOS.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import importlib.util
import json
import marshal
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _fake_cli, _fake_mirror
from ._check_store import check_store
from ._fake_control import (
    INITIALIZED,
    ask,
    ask_permission,
    began,
    call_hook,
    call_tool,
    cancel_ask,
    cancel_call,
    ended,
    expect,
    expect_initialize,
    interrupted,
    lifecycle,
    turn,
    wait_for_answer,
    wait_for_request,
)
from ._fake_lines import CWD, MODEL, PROMPT_UUID, SESSION_ID, VERSION
from ._fake_steps import (
    Encoder,
    Step,
    api_failure,
    api_retry,
    checked_name,
    close_stream,
    delta,
    die_by,
    exit_with,
    hang,
    ignore_int,
    ignore_stdin,
    ignore_term,
    init,
    large_text,
    on_term,
    pause,
    raw_bytes,
    read_stdin,
    ready,
    repeat,
    reply,
    result,
    say,
    say_capture,
    start_child,
    stream,
    text,
    thinking,
    to_stderr,
    tool_result,
    tool_use,
    touch,
    wait_for,
    wait_for_line,
)

if TYPE_CHECKING:
    from types import CodeType

    from typing_extensions import Self

    from ._fake_steps import Script

__all__ = [
    "MODEL", "PROMPT_UUID", "SESSION_ID", "VERSION", "Call", "FakeCLI", "SimulatedCLI", "Step", "api_failure",
    "api_retry", "ask", "ask_permission", "began", "call_hook", "call_tool", "cancel_ask", "cancel_call",
    "check_store", "close_stream", "delta", "die_by", "ended", "exit_with", "expect", "expect_initialize", "hang",
    "ignore_int", "ignore_stdin", "ignore_term", "init", "interrupted", "large_text", "lifecycle", "on_term",
    "pause", "raw_bytes", "read_stdin", "ready", "repeat", "reply", "result", "say", "say_capture", "start_child",
    "stream", "text", "thinking", "to_stderr", "tool_result", "tool_use", "touch", "turn", "wait_for",
    "wait_for_answer", "wait_for_line", "wait_for_request",
]  # fmt: skip

_POLL = 0.002
_KILL_PATIENCE = 5.0  # seconds for the system to end what was killed
_LONGEST_SHEBANG = 127  # Linux before 5.1 cuts there
# What the simulation consists of; a module stands behind those that it imports.
_SIMULATION = ("_fake_lines", "_fake_schema", "_fake_simulation", "_fake_host", "_fake_live")
_WHEN_NEEDED = ("_fake_turns", "_project_key", "_fake_mirror")


@functools.cache
def _code_of(module: str) -> bytes:
    """The compiled module, from its cache file, in marshal's form: the child must not compile at each start."""
    spec = importlib.util.find_spec(module)
    get_code: Callable[[str], CodeType | None] | None = getattr(spec and spec.loader, "get_code", None)
    code = get_code(module) if get_code else None
    if code is None:
        raise RuntimeError(f"the code of {module} cannot be read")
    return marshal.dumps(code)


@dataclass(frozen=True)
class Call:
    """One start of the fake: what it was given. `stdin` is what it has read so far."""

    number: int  # 0 for the first start
    pid: int
    argv: tuple[str, ...]  # without the program
    env: Mapping[str, str]
    cwd: str
    stdin: bytes

    @property
    def prompt(self) -> str:
        """The prompt's text, the first one's in a session; "" before it was read."""
        return next(iter(self.prompts), "")

    @property
    def prompts(self) -> list[str]:
        """The text of each prompt: of stdin as it is, or of its `user` lines (`--input-format=stream-json`)."""
        if self.option("--input-format") != "stream-json":
            return [self.stdin.decode("utf-8", "replace")]
        return [_text_of(line) for line in self._lines("user")]

    @property
    def messages(self) -> list[Any]:
        """The lines of stdin, decoded from JSON (`--input-format=stream-json`). ValueError for a prompt as text."""
        try:
            return [json.loads(line) for line in self.stdin.split(b"\n") if line.strip()]
        except ValueError as error:
            raise ValueError("the prompt of this call came as text, not as lines of JSON: use `prompt`") from error

    @property
    def answers(self) -> list[Any]:
        """What the client answered to the script's questions, in order: a dict each, or a refusal's text."""
        given = [line["response"] for line in self._lines("control_response")]
        return [one["response"] if one["subtype"] == "success" else one["error"] for one in given]

    def _lines(self, kind: str) -> list[Any]:
        return [line for line in self.messages if isinstance(line, dict) and line.get("type") == kind]

    def option(self, name: str) -> str | None:
        """The value of `--name=value` or `--name value` in argv, the last one; None without."""
        return _fake_cli.option(self.argv, name)


class FakeCLI:
    """An executable, `path`, that plays a script each time it is started. May stand for its path: `cli_path=fake`.

    FakeCLI(steps)                      every start, and every prompt of a session, plays the same script
    FakeCLI(scripts=[steps, steps])     the first plays the first, ...; the last one repeats

    `version` is what `--version` and `-v` print at once, without a script and without being a
    call; None: they are calls like any other. `directory` is where the fake's own directory is
    made (default: the system's for temporary files); it must not be mounted noexec.

    Starts may overlap and may come from any thread or process. The script runs under the Python that runs the test.
    `close()` kills what is left of the fake and of its children, and removes the directory; `with` does it too, and at
    last the end of the interpreter. After a fork, only the process that made the fake closes it.
    """

    def __init__(
        self, steps: Script | None = None, *, scripts: Iterable[Script] | None = None,
        version: str | None = f"{VERSION} (Claude Code)", directory: str | os.PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        if (steps is None) == (scripts is None):
            raise TypeError("give either steps or scripts")
        encoded = [Encoder().script(script) for script in (scripts if scripts is not None else [steps or ()])]
        if not encoded:
            raise ValueError("scripts is empty")
        self._owner = os.getpid()
        base = None if directory is None else os.path.expanduser(directory)
        self.directory = Path(tempfile.mkdtemp(prefix="fake-cli-", dir=base)).resolve()
        self.path = self.directory / "claude"
        try:
            self._write(encoded, version)
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        atexit.register(self.close)

    def _write(self, scripts: list[dict[str, Any]], version: str | None) -> None:
        for name in ("calls", "further", "children", "ready", "released", "written"):
            (self.directory / name).mkdir()
        for number, script in enumerate(scripts):
            (self.directory / f"script.{number}").write_bytes(marshal.dumps(script))
        package = __name__.rpartition(".")[0]
        config = {
            "home": str(self.directory),
            "scripts": len(scripts),
            "version": None if version is None else version.encode(),
            "session_id": SESSION_ID.encode(),
            "cwd": CWD.encode(),
            "prompt_uuid": PROMPT_UUID.encode(),
            "initialized": INITIALIZED,
            "modules": {name: _code_of(f"{package}.{name}") for name in (*_SIMULATION, *_WHEN_NEEDED)},
            "simulation": _SIMULATION,
        }
        (self.directory / "program").write_bytes(_code_of(f"{package}._fake_cli") + marshal.dumps(config))
        self._write_executable()

    def _write_executable(self) -> None:
        """Started by the interpreter alone where its path fits a "#!" line, else through sh.

        `sh` costs a millisecond and adds variables to the environment (PWD, some also SHLVL).
        -I and -S: nothing of the environment or of installed packages; -B: no cache files.
        """
        source = (
            "import marshal\n"
            f"with open({str(self.directory / 'program')!a}, 'rb') as file:\n"
            "    code, config = marshal.load(file), marshal.load(file)\n"
            "space = {'__name__': 'fake_cli'}\n"
            "exec(code, space)\n"
            "space['main'](config)\n"
        )
        python = sys.executable
        if not python:
            raise RuntimeError("a fake CLI needs sys.executable, which an embedded Python may lack")
        shebang = f"#!{python} -ISB\n"
        if len(os.fsencode(shebang)) > _LONGEST_SHEBANG or len(python.split()) != 1:
            starter = self.directory / "start.py"
            starter.write_text(source)
            words = " ".join(map(shlex.quote, (python, "-ISB", str(starter))))
            shebang, source = "#!/bin/sh\n", f'exec {words} "$@"\n'
        self.path.write_bytes(os.fsencode(shebang + source))
        self.path.chmod(0o700)

    def __fspath__(self) -> str:
        return str(self.path)

    # --- what happened

    @property
    def calls(self) -> list[Call]:
        """The starts so far, in their order."""
        numbers = sorted(int(name) for name in os.listdir(self.directory / "calls"))
        found = (self._call(number) for number in numbers)
        return [call for call in found if call is not None]

    def _call(self, number: int) -> Call | None:
        place = self.directory / "calls" / str(number)
        try:
            facts = marshal.loads((place / "start").read_bytes())
        except FileNotFoundError:  # it is just starting
            return None
        return Call(
            number=number,
            pid=facts["pid"],
            argv=tuple(map(os.fsdecode, facts["argv"])),
            env={os.fsdecode(name): os.fsdecode(value) for name, value in facts["env"].items()},
            cwd=os.fsdecode(facts["cwd"]),
            stdin=(place / "stdin").read_bytes(),
        )

    @property
    def children(self) -> list[int]:
        """The pids of all processes that `start_child` started, in their order, dead or alive."""
        return [pid for _, pid in self._started_children()]

    def _started_children(self) -> list[tuple[Path, int]]:
        place = self.directory / "children"
        names = sorted(name for name in os.listdir(place) if not name.startswith("."))
        return [(place / name, int(name.rpartition("-")[2])) for name in names]

    def alive(self) -> list[int]:
        """The pids of the fakes and of their children that live now. A zombie does not."""
        calls = [(self.directory / "calls" / str(call.number) / "alive", call.pid) for call in self.calls]
        return [pid for lock, pid in [*calls, *self._started_children()] if _is_held(lock)]

    # --- in step with the script

    def wait(self, name: str, timeout: float = 10.0, *, count: int = 1) -> None:
        """Blocks until `count` starts have reached `ready(name)`; else raises `TimeoutError`."""
        prefix = checked_name(name) + "."

        def arrived() -> bool:
            return sum(entry.startswith(prefix) for entry in os.listdir(self.directory / "ready")) >= count

        _until(arrived, timeout, lambda: f"no {count} x ready({name!r}) in {timeout} s; {self._state()}")

    def release(self, name: str, *, call: int | None = None) -> None:
        """Lets `wait_for(name)` go on, now and later, in all starts or in start number `call`."""
        suffix = "" if call is None else f".{call}"
        (self.directory / "released" / (checked_name(name) + suffix)).touch()

    def wait_gone(self, timeout: float = 10.0) -> None:
        """Blocks until no fake and no child lives; else raises `TimeoutError` with the pids."""
        _until(lambda: not self.alive(), timeout, lambda: f"still alive after {timeout} s: {self.alive()}")

    def _state(self) -> str:
        return f"{len(self.calls)} starts, alive: {self.alive()}"

    # --- the end

    def close(self) -> None:
        """Kills what lives and removes the directory. Takes 5 s at most; may be called again."""
        atexit.unregister(self.close)
        if os.getpid() != self._owner or not self.directory.exists():
            return
        limit = time.monotonic() + _KILL_PATIENCE
        while (living := self.alive()) and time.monotonic() < limit:
            for pid in living:  # again each time: a fake may have started one more child meanwhile
                _kill(pid)
            time.sleep(_POLL)
        _fake_mirror.remove_written(str(self.directory))
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SimulatedCLI(FakeCLI):
    """A CLI that answers every prompt by itself: no account, no network, no model.

    It reads the prompt as text or as stream-json, says `init`, one harmless tool call with its result (nothing
    is run), an answer that says that it is simulated and repeats the prompt's first words, and a result with
    usage and cost. It honours `--model`, `--session-id`, `--resume`, `--fork-session`, `--name`, `--tools`,
    `--disallowedTools` (bare names), `--permission-mode`, `--max-turns`, `--include-partial-messages`,
    `--output-format`, `--input-format`, and `--json-schema` with made-up values. `pace`: seconds between two words.

    `--tools` and `--disallowedTools` take tools away from `init` and from its own call. A call that the
    prompt names is made all the same; plan mode, rules with a pattern and earlier turns change nothing here.

    Without a store it writes no transcript, and resumes any id and title. With one (`--session-mirror`) it does
    as the real CLI: it writes and mirrors line by line, copies, and refuses what is not there. What it wrote
    below HOME goes with `close`.

    A prompt steers it with these words; a turn with others of this kind fails, and says which there are:

    [[fail: 429]]   the API call fails with this status, or with `connection`
    [[retry: 2]]    two retries before the answer
    [[slow: 5]]     the answer takes 5 seconds
    [[think]]       a thinking block before the answer
    [[plain]]       no tool call
    [[tools: 3]]    three tool calls
    [[exit: 3]]     exits with 3 in the middle of the turn, without a result
    [[hang]]        says nothing after `init`
    [[call: Write {"file_path": "a"}]]   this tool call in the place of the echo; may stand there several times

    With `--input-format stream-json` it also does what callbacks are for, as the real CLI does:

    * `--permission-prompt-tool stdio`: it asks `can_use_tool` before each call, unless the mode is
      `bypassPermissions`, or `--allowedTools`, a hook or an earlier answer allows it. It obeys allow,
      other input, new rules and modes, deny, interrupt; `[[call: AskUserQuestion {...}]]` takes answers.
    * Hooks of `initialize`: UserPromptSubmit, PreToolUse, PostToolUse, PostToolUseFailure, Stop. Of what they
      say it obeys deny, ask, allow, other input and the block of a prompt; and it keeps to their timeouts.
    * In-process MCP servers: it lists their tools, and `[[call: mcp__shop__price {"sku": "1"}]]` really calls one.
    * `interrupt` ends a turn wherever it is. `set_model`, `set_permission_mode`, `mcp_status`,
      `get_context_usage` and `stop_task` are answered; other control requests are refused.
    """

    def __init__(self, *, pace: float = 0.0, directory: str | os.PathLike[str] | None = None) -> None:
        super().__init__([Step("simulate", (pace,))], directory=directory)


def _text_of(line: Any) -> str:
    """The text of a `user` line, which may hold content blocks."""
    content = line.get("message", {}).get("content", "")
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block.get("type") == "text")


def _is_held(lock: Path) -> bool:
    """Whether the process that locked this file lives."""
    try:
        fd = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    finally:
        os.close(fd)
    return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _until(done: Callable[[], bool], timeout: float, problem: Callable[[], str]) -> None:
    limit = time.monotonic() + timeout
    while not done():
        if time.monotonic() > limit:
            raise TimeoutError(problem())
        time.sleep(_POLL)
