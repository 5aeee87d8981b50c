"""The stand-in process behind `FakeCLI`: plays the steps that `testing.py` wrote down for it.

This is a program, not a part of the library: its compiled code is copied into the fake's directory
and runs there in an isolated interpreter. So it imports nothing of the package, and each standard
module only where a step needs it; a bare interpreter is up in 6 ms, and every test pays that.
(`json` would add 6 ms and `signal` 4: steps come as `marshal` data, which needs no import. `os`
would add 1, for what stands around the calls of the system: those are in `posix`.)

What it leaves in the fake's directory, for the test to read:

    calls/N/            claimed with mkdir, which is atomic: the number of this start
    calls/N/start       marshal: argv, environment, folder, pid. Renamed into place when complete
    calls/N/stdin       what it has read, written before the script goes on
    calls/N/alive       locked as long as the process lives
    children/N-M-PID    one for each grandchild, locked likewise
    ready/NAME.N        the script of start N reached `ready(NAME)`
    further/N/          claimed likewise, for each prompt of a start after its first one
    released/NAME       the test said `release(NAME)`; NAME.N for one start alone

A lock says that its holder lives: the system drops it at any death, before the pid can be used
again, on Linux and macOS alike. It is `lockf` because a forked child does not share such a lock.
"""

from __future__ import annotations

import marshal
import posix as os
import sys
import time

TYPE_CHECKING = False  # as type checkers know it; `typing` takes 4 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    # One encoded step: the name of a method of `Player` and its arguments.
    Op = Sequence[Any]

# A script that waits does not wait for a test that died: it must end without anybody's help.
LONGEST_WAIT = 600.0
_POLL = 0.002
_SLICE = 0.05


def option(argv: Sequence[str], name: str) -> str | None:
    """The value of `--name=value` or `--name value`; of several, the last, as the CLI takes it."""
    found = None
    for index, word in enumerate(argv):
        if word.startswith(name + "="):
            found = word[len(name) + 1 :]
        elif word == name and index + 1 < len(argv):
            found = argv[index + 1]
    return found


def write(fd: int, data: bytes) -> None:
    """All of `data`. A reader that has gone is ignored, as the CLI ignores it: the turn runs on."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BrokenPipeError:
            return


class Exit(BaseException):
    """Ends the script from any depth."""

    def __init__(self, code: int) -> None:
        self.code = code


def sleep(seconds: float) -> None:
    """In slices: a signal that comes just before a sleep has its handler called behind it."""
    limit = time.monotonic() + seconds
    while (left := limit - time.monotonic()) > 0:
        time.sleep(min(left, _SLICE))


class Player:
    """Plays one script. A step named `x` is the method `op_x`."""

    def __init__(self, config: dict[str, Any], argv: list[str]) -> None:
        self.config = config
        self.home: str = config["home"]
        self.argv = argv
        self.exit_code = 0
        self.request_id = ""
        self._stdin_ended = False
        self._unread = b""
        self.is_text = False  # the prompt came as text
        self.hooks: Any = None  # as the client declared them
        self.answer: dict[str, Any] = {}  # of the client, the last one
        self._children = 0
        self._dealt = False  # the script of its own start
        self._number = self._claim("calls")
        self._place = f"{self.home}/calls/{self._number}"
        self._stdin_copy = os.open(self._place + "/stdin", os.O_WRONLY | os.O_CREAT, 0o600)
        self._alive = _locked(self._place + "/alive")
        self._record()
        self._swaps = self._substitutes()

    def option(self, name: str) -> str | None:
        return option(self.argv, name)

    # --- the start

    def _claim(self, name: str) -> int:
        folder = f"{self.home}/{name}"
        number = len(os.listdir(folder))  # none below is free: a number is taken only after all before it
        while True:
            try:
                os.mkdir(f"{folder}/{number}")
                return number
            except FileExistsError:
                number += 1

    def _record(self) -> None:
        facts = {
            "argv": [_encoded(word) for word in self.argv],
            "env": _environment(),
            "cwd": _encoded(_cwd()),
            "pid": os.getpid(),
        }
        with open(self._place + "/start.part", "wb") as file:
            file.write(marshal.dumps(facts))
        os.rename(self._place + "/start.part", self._place + "/start")

    def _substitutes(self) -> list[tuple[bytes, bytes]]:
        """What stands in the typical lines for this process's session and folder -> the real ones."""
        resumed = None if "--fork-session" in self.argv else option(self.argv, "--resume")
        session = option(self.argv, "--session-id") or (resumed if _is_uuid(resumed or "") else None)
        folder = _cwd().encode("utf-8", "replace").replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        known: bytes = self.config["session_id"]
        return [(known, session.encode() if session else known), (self.config["cwd"], folder)]

    def play(self) -> NoReturn:
        try:
            if self.option("--input-format") == "stream-json":
                self._module("_fake_turns").serve(self)
            else:
                script = self.script()
                self.is_text = script["by_prompt"]
                if script["reads_all"]:
                    self.read_stdin()
                self.run(script["ops"])
            code = self.exit_code
        except Exit as end:
            code = end.code
        except KeyboardInterrupt:
            self.op_die(2)
        os._exit(code)  # nothing is buffered, and tearing an interpreter down takes milliseconds

    def script(self) -> dict[str, Any]:
        """The script of this start, then those of its further prompts: dealt in the order in which they come."""
        number = self._number + len(os.listdir(self.home + "/further"))
        if self._dealt:
            number = len(os.listdir(self.home + "/calls")) + self._claim("further")
        self._dealt = True
        with open(f"{self.home}/script.{min(number, self.config['scripts'] - 1)}", "rb") as file:
            found: dict[str, Any] = marshal.load(file)
        return found

    def run(self, ops: Sequence[Op]) -> None:
        for op in ops:
            step: Callable[..., None] = getattr(self, "op_" + op[0])
            step(*op[1:])

    # --- steps: output

    def op_say(self, line: bytes, exit_code: int | None = None) -> None:
        """A line as it is, in one write. A result decides the exit code, unless a step says it."""
        write(1, line)
        if exit_code is not None:
            self.exit_code = exit_code

    def op_say_own(self, line: bytes, exit_code: int | None = None) -> None:
        for known, actual in self._swaps:
            line = line.replace(known, actual)
        self.op_say(line, exit_code)

    def op_lifecycle(self, line: bytes, exit_code: None = None) -> None:
        """What becomes of a prompt. Of one that came as text the CLI does not say it."""
        if not self.is_text:
            self.op_say_own(line)

    def op_fill(self, head: bytes, size: int, tail: bytes) -> None:
        """A long line, made here so that it need not be stored."""
        for known, actual in self._swaps:
            head, tail = head.replace(known, actual), tail.replace(known, actual)
        write(1, head + b"x" * size + tail)

    def op_stderr(self, data: bytes) -> None:
        write(2, data)

    def op_close_stream(self, fd: int) -> None:
        # Not `close`: the next file opened would take the number.
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, fd)
        os.close(null)

    # --- steps: stdin

    def op_ignore_stdin(self) -> None:
        """Says only that stdin is not read first."""

    def op_read_stdin(self, limit: int | None) -> None:
        self.read_stdin(limit)

    def read_stdin(self, limit: int | None = None) -> bytes:
        """All that is left of stdin, or the next `limit` bytes."""
        parts, left = [], sys.maxsize if limit is None else limit
        while left > 0:
            part = self._unread or os.read(0, min(left, 1 << 16))
            part, self._unread = part[:left], part[left:]
            if not part:
                break
            self._keep(part)
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def peek_line(self) -> bytes | None:
        """The next line of stdin without its newline, which stays there; None at its end."""
        while b"\n" not in self._unread and not self._stdin_ended:
            part = os.read(0, 1 << 16)
            self._unread += part
            self._stdin_ended = not part
        return self._unread.partition(b"\n")[0] if self._unread else None

    def read_line(self) -> bytes | None:
        """The next line of stdin without its newline; None at its end."""
        line = self.peek_line()
        if line is not None:
            self._keep(self._unread[: len(line) + 1])
            self._unread = self._unread[len(line) + 1 :]
        return line

    def has_line(self, seconds: float) -> bool:
        """Whether within so many seconds a line of stdin is there, or its end."""
        import select

        limit = time.monotonic() + seconds
        while b"\n" not in self._unread and not self._stdin_ended:
            if not select.select([0], [], [], max(0.0, limit - time.monotonic()))[0]:
                return False
            part = os.read(0, 1 << 16)
            self._unread += part
            self._stdin_ended = not part
        return True

    def _keep(self, data: bytes) -> None:
        write(self._stdin_copy, data)

    def miss(self, wanted: str) -> NoReturn:
        """Ends the script: what it waits for cannot come any more."""
        self.fail(f"stdin ended before {wanted}")

    def fail(self, why: str) -> NoReturn:
        write(2, f"fake CLI: {why}\n".encode())
        raise Exit(1)

    def op_wait_for_line(self, wanted: bytes | dict[str, Any] | None) -> None:
        self._module("_fake_turns").wait_for_line(self, wanted)

    def op_check_hook(self, callback_id: str) -> None:
        self._module("_fake_turns").check_hook(self, callback_id)

    def op_check_tool(self, server: str, tool: str) -> None:
        self._module("_fake_turns").check_tool(self, server, tool)

    def op_initialize(self, response: dict[str, Any]) -> None:
        self._module("_fake_turns").initialize(self, response)

    def op_take_prompt(self) -> None:
        self._module("_fake_turns").take_prompt(self)

    def op_reply(self, response: dict[str, Any] | None, error: str | None) -> None:
        self._module("_fake_turns").reply(self, response, error)

    def prompt_is(self, uuid: str) -> None:
        """The prompt that later lines are about."""
        self._swaps = [*self._swaps[:2], (self.config["prompt_uuid"], uuid.encode())]

    # --- steps: time and order

    def op_repeat(self, count: int, ops: Sequence[Op]) -> None:
        for _ in range(count):
            self.run(ops)

    def op_pause(self, seconds: float) -> None:
        sleep(seconds)

    def op_hang(self) -> None:
        sleep(LONGEST_WAIT)
        raise Exit(1)

    def op_ready(self, name: str) -> None:
        os.close(os.open(f"{self.home}/ready/{name}.{self._number}", os.O_WRONLY | os.O_CREAT, 0o600))

    def op_wait_for(self, name: str) -> None:
        paths = [f"{self.home}/released/{name}", f"{self.home}/released/{name}.{self._number}"]
        limit = time.monotonic() + LONGEST_WAIT
        while not any(os.access(path, os.F_OK) for path in paths):
            if time.monotonic() > limit:
                raise Exit(1)
            time.sleep(_POLL)

    def op_touch(self, path: str, data: bytes) -> None:
        with open(path, "wb") as file:
            file.write(data)

    # --- steps: signals and ends

    def op_ignore_signal(self, number: int) -> None:
        import signal

        signal.signal(number, signal.SIG_IGN)

    def op_on_signal(self, number: int, ops: Sequence[Op], exit_code: int) -> None:
        import signal

        def play_end(*_: object) -> None:
            signal.signal(number, signal.SIG_IGN)  # a second one changes nothing
            self.run(ops)
            raise Exit(exit_code)

        signal.signal(number, play_end)

    def op_exit(self, code: int) -> NoReturn:
        raise Exit(code)

    def op_stop(self) -> None:
        import signal

        os.kill(os.getpid(), signal.SIGSTOP)

    def op_die(self, number: int) -> NoReturn:
        import resource
        import signal

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
        time.sleep(LONGEST_WAIT)  # delivery may take a moment
        os._exit(1)

    # --- steps: other processes

    def op_start_child(self, kind: str, held: Sequence[int], ignored: Sequence[int], clear_env: bool) -> None:
        """Goes on when the grandchild is recorded, has its signals set and its streams in place."""
        name = f"{self._number:06}-{self._children:06}"
        self._children += 1
        told, telling = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                if kind != "group":
                    os.setsid()
                if kind == "detached" and os.fork():
                    os._exit(0)
                self._live_as_child(name, telling, held, ignored, clear_env)
            finally:
                os._exit(1)
        os.close(telling)
        if kind == "detached":
            os.waitpid(pid, 0)
        os.read(told, 1)
        os.close(told)

    def _live_as_child(
        self, name: str, telling: int, held: Sequence[int], ignored: Sequence[int], clear_env: bool
    ) -> None:
        import signal

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        for fd in {0, 1, 2} - set(held):
            self.op_close_stream(fd)
        part = f"{self.home}/children/.{name}"
        lock = _locked(part)
        os.rename(part, f"{self.home}/children/{name}-{os.getpid()}")
        if clear_env:
            os.set_inheritable(lock, True)
            os.set_inheritable(telling, False)  # its end tells that the other program runs
            os.execve("/bin/sleep", ["sleep", str(int(LONGEST_WAIT))], {})
        os.write(telling, b".")
        os.close(telling)
        time.sleep(LONGEST_WAIT)

    # --- steps: what other modules do

    def op_simulate(self, pace: float) -> None:
        for name in self.config["simulation"]:
            self._module(name)
        self._module("_fake_simulation").simulate(self, pace)

    def _module(self, name: str) -> Any:
        """Loaded once, and decoded only then: all of them take 2 ms. They import each other as in their package."""
        Module = type(sys)
        sys.modules.setdefault("simulated", Module("simulated"))
        found = sys.modules.get(f"simulated.{name}")
        if found is None:
            found = sys.modules[f"simulated.{name}"] = Module(f"simulated.{name}")
            found.__package__ = "simulated"
            exec(marshal.loads(self.config["modules"][name]), found.__dict__)
        return found


def _locked(path: str) -> int:
    """A new file that this process holds locked until it dies."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.lockf(fd, os.F_LOCK, 0)
    return fd


def _environment() -> dict[bytes, bytes]:
    """As it was handed to exec. Python itself may add LC_CTYPE to `os.environ` (PEP 538)."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry]
            return {name: value for name, _, value in pairs}
    except OSError:  # not Linux
        return dict(os.environ)


def _encoded(word: str) -> bytes:
    return word.encode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def _cwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # deleted under us
        return ""


def _is_uuid(text: str) -> bool:
    return [len(part) for part in text.split("-")] == [8, 4, 4, 4, 12]


def main(config: dict[str, Any]) -> None:
    argv = sys.argv[1:]
    if config["version"] is not None and argv in (["--version"], ["-v"]):
        write(1, config["version"] + b"\n")
        os._exit(0)
    Player(config, argv).play()
