"""The real CLI in tests: where it comes from, and the small world that it runs in.

A plugin for the modules `test_real_*.py` (they name it in `pytest_plugins`) and a program.

* The CLI is the one that `CLAUDE_CLI_CLIENT_TEST_CLI` names. Without it these tests are skipped,
  or fail where `CLAUDE_CLI_CLIENT_REQUIRE_REAL=1` says that they must run.
* Each test gets its own HOME, working directory, temporary directory and scope of the Messages API
  stand-in (`messages_api.py`, one process for all tests, so that its threads and descriptors are
  not those of the process that the tests watch). Nothing is inherited from the caller but PATH
  and the locale: no key, no proxy, no settings.
* The key is a dummy, the base URL is on loopback, the CLI's own traffic is switched off, and every
  proxy variable points to a closed port, so that even a request that escaped all this ends there.
* Run as a program it gives pytest a network namespace that has nothing but loopback:

      python tests/real_cli.py [--cli PATH] [pytest arguments]      # default: -m real_cli tests

  That is done in this process, before pytest is started in its place: a prefix before the CLI's
  own command would change what is under test, and its loopback would be another one. As root a
  network namespace is enough, others need a user namespace around it; where the system allows
  neither, the program says so and goes on with the other safeguards.

What a test's CLI left running is found by the test's HOME in `/proc/*/environ`, which does not
depend on the library's own marker. Every test ends with that check, and with a look for temporary
files that the library did not remove.

(PYTEST_DONT_REWRITE: the test modules import this before pytest takes it for a plugin.)
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import http.client
import itertools
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from claude_cli_client import Client, Event, Session

CLI_VARIABLE = "CLAUDE_CLI_CLIENT_TEST_CLI"
REQUIRE_VARIABLE = "CLAUDE_CLI_CLIENT_REQUIRE_REAL"
PRIVATE_NETWORK_VARIABLE = "CLAUDE_CLI_CLIENT_PRIVATE_NETWORK"

HERE = Path(__file__).resolve().parent
DUMMY_KEY = "sk-stand-in"
# Port 9 ("discard") is closed everywhere that matters; a connection there is refused at once.
NOWHERE = "http://127.0.0.1:9"
QUIET = {
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "IS_SANDBOX": "1",
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "ALL_PROXY": NOWHERE,
    "http_proxy": NOWHERE,
    "https_proxy": NOWHERE,
    "all_proxy": NOWHERE,
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}
HAS_PROC = Path("/proc/self/environ").exists()


# --- the stand-in -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """One request that the CLI made."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def betas(self) -> list[str]:
        return self.headers.get("anthropic-beta", "").split(",")

    @property
    def tools(self) -> list[str]:
        return [tool["name"] for tool in self.body.get("tools", ())]

    @property
    def system(self) -> str:
        """The system prompt, with what the CLI adds as messages of the role system."""
        system = self.body.get("system", "")
        parts = [system] if isinstance(system, str) else [block["text"] for block in system]
        return "\n".join(parts + self._texts("system"))

    @property
    def user(self) -> str:
        """Everything that was said as the user, reminders included."""
        return "\n".join(self._texts("user"))

    @property
    def results(self) -> list[str]:
        """What the model reads of its tool calls, in their order: texts, and `<image>` for an image."""
        blocks = [b for m in self.body.get("messages", ()) if isinstance(m["content"], list) for b in m["content"]]
        return [_flat(block.get("content")) for block in blocks if block.get("type") == "tool_result"]

    def _texts(self, role: str) -> list[str]:
        contents = [m["content"] for m in self.body.get("messages", ()) if m["role"] == role]
        return [
            text
            for content in contents
            for text in ([content] if isinstance(content, str) else [b.get("text", "") for b in content])
        ]


def _flat(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", f"<{block.get('type')}>") for block in content or ())


@dataclass(frozen=True)
class API:
    """One test's scope of the stand-in."""

    url: str

    def requests(self, count: int = 0, timeout: float = 20.0) -> list[Request]:
        """The model requests so far, once there are at least `count`."""
        status, answer = self._call("GET", f"/_requests?count={count}&timeout={timeout}")
        assert status == 200, f"{len(answer)} requests after {timeout} s, not {count}"
        return [Request(r["path"], r["headers"], r["body"]) for r in answer if r["path"] == "/v1/messages"]

    def last(self) -> Request:
        return self.requests(1)[-1]

    def script(self, name: str, script: str) -> None:
        """Register `script`: for `[[script: name]]`, or as "default" for prompts without directives."""
        self._call("PUT", f"/_script/{name}", script.encode())

    def _call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        url = urlsplit(self.url)
        connection = http.client.HTTPConnection(url.netloc, timeout=60)
        try:
            connection.request(method, url.path + path, body, {"connection": "close"})
            with connection.getresponse() as response:
                return response.status, json.loads(response.read())
        finally:
            connection.close()


@contextlib.contextmanager
def stand_in() -> Iterator[str]:
    """The stand-in in a process of its own; its URL. It ends with its stdin, so also with us."""
    command = [sys.executable, str(HERE / "messages_api.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        url = process.stdout.readline().strip()
        assert urlsplit(url).hostname == "127.0.0.1", f"the stand-in did not start: {url!r}"
        try:
            yield url
        finally:
            process.stdin.close()


# --- processes --------------------------------------------------------------------------------


def processes_with(variable: str) -> dict[int, str]:
    """Process id and command line of every process of ours whose environment holds `NAME=value`."""
    wanted, found = os.fsencode(variable), {}
    for entry in os.listdir("/proc") if HAS_PROC else ():
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                environ = Path("/proc", entry, "environ").read_bytes()
                if wanted in environ.split(b"\0"):
                    command = Path("/proc", entry, "cmdline").read_bytes()
                    found[int(entry)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def eventually(what: Callable[[], bool], timeout: float) -> bool:
    """Whether `what` becomes true in time. For what cannot be waited for, as strangers in /proc."""
    deadline = time.monotonic() + timeout
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Gate:
    """A FIFO through which a tool's process says that it has come to some place."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def wait(self, timeout: float = 30.0) -> str:
        """What was written, once something was."""
        assert select.select([self._descriptor], [], [], timeout)[0], f"nobody wrote to {self.path.name}"
        return os.read(self._descriptor, 65536).decode()

    def close(self) -> None:
        os.close(self._descriptor)


# --- the world of one test --------------------------------------------------------------------


@dataclass
class RealCLI:
    """The real CLI with a HOME, folders and a stand-in that are this test's alone."""

    path: str
    root: Path
    api: API
    clients: list[Client] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)

    def __post_init__(self) -> None:
        for folder in (self.home, self.cwd, self.tmp, self.ours):
            folder.mkdir()

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def cwd(self) -> Path:
        return self.root / "work"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def ours(self) -> Path:
        """Where the library, in this process and in hosts that a test starts, puts its own files."""
        return self.root / "ours"

    @property
    def config_dir(self) -> Path:
        return self.home / ".claude"

    @property
    def env(self) -> dict[str, str]:
        """What the CLI needs beside the inherited minimum; for `Client(env=...)`."""
        return {
            **QUIET,
            "HOME": str(self.home),
            "TMPDIR": str(self.tmp),
            "ANTHROPIC_BASE_URL": self.api.url,
            "ANTHROPIC_API_KEY": DUMMY_KEY,
        }

    def options(self, **changes: Any) -> dict[str, Any]:
        """The keywords for `Client`, with a test's own over them; its `env` is merged."""
        env = {**self.env, **changes.pop("env", {})}
        return {"cli_path": self.path, "cwd": self.cwd, "env": env, "inherit_env": False, **changes}

    def client(self, **changes: Any) -> Client:
        """A client that is closed when the test ends."""
        from claude_cli_client import Client

        client = Client(**self.options(**changes))
        self.clients.append(client)
        return client

    def ask(self, prompt: Any, **options: Any) -> Event:
        return self.client().ask(prompt, **options)

    def events(self, prompt: Any, **options: Any) -> list[Event]:
        return list(self.client().run(prompt, **options))

    def session(self, **options: Any) -> Session:
        """A live session, closed when the test ends."""
        return self.client().session(**options)

    def gate(self, name: str = "gate") -> Gate:
        self.gates.append(Gate(self.root / name))
        return self.gates[-1]

    def processes(self) -> dict[int, str]:
        """Everything that runs with this test's HOME: the CLI, its servers, tools and their children."""
        return processes_with(f"HOME={self.home}")

    def transcripts(self) -> list[Path]:
        return sorted(self.config_dir.glob("projects/*/*.jsonl"))

    def close(self) -> None:
        """End everything; what had to be killed here is the test's failure."""
        for client in self.clients:
            client.close()
        for gate in self.gates:
            gate.close()
        left: dict[int, str] = {}
        if not eventually(lambda: not self.processes(), 3.0):
            left = self.processes()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        files = [str(path.relative_to(self.ours)) for path in self.ours.rglob("*")]
        shutil.rmtree(self.root, ignore_errors=True)
        assert not left, f"still running after the test: {left}"
        assert not files, f"temporary files of the library: {files}"


def bash(command: str, **inputs: Any) -> str:
    """The directive for a call of the Bash tool."""
    return tool("Bash", command=command, **inputs)


def tool(name: str, /, **inputs: Any) -> str:
    """The directive for a tool call."""
    return f"[[tool: {name} {json.dumps(inputs)}]]"


# --- pytest -----------------------------------------------------------------------------------

_numbers = itertools.count(1)

try:
    import pytest
except ImportError:  # the program part needs no pytest until it is replaced by it
    pass
else:

    @pytest.fixture(scope="session")
    def real_cli_path() -> str:
        """The path of the CLI under test, or no test."""
        path = os.environ.get(CLI_VARIABLE, "")
        if path and os.access(path, os.X_OK):
            return path
        reason = f"{CLI_VARIABLE}={path!r} is no program" if path else f"{CLI_VARIABLE} is not set"
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{reason}, and {REQUIRE_VARIABLE}=1 requires the real CLI", pytrace=False)
        pytest.skip(reason)

    @pytest.fixture(scope="session")
    def messages_api(real_cli_path: str) -> Iterator[str]:
        """The URL of the Messages API stand-in."""
        with stand_in() as url:
            yield url

    @pytest.fixture
    def cli(real_cli_path: str, messages_api: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealCLI]:
        """The real CLI in a world of this test's own."""
        # Short, because the CLI puts a socket below it, and those have 108 bytes for their path.
        root = Path(tempfile.mkdtemp(prefix="real-")).resolve()
        world = RealCLI(real_cli_path, root, API(f"{messages_api}/t/{next(_numbers)}"))
        monkeypatch.setattr(tempfile, "tempdir", str(world.ours))
        monkeypatch.setenv("TMPDIR", str(world.ours))  # where the library itself looks
        try:
            yield world
        finally:
            world.close()


# --- the program ------------------------------------------------------------------------------

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


def enter_private_network() -> None:
    """Put this process into a network namespace with loopback alone; OSError where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWNET if user == 0 else _CLONE_NEWNET | _CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--cli"]:
        os.environ[CLI_VARIABLE] = str(Path(arguments[1]).resolve())
        arguments = arguments[2:]
    os.environ[REQUIRE_VARIABLE] = "1"
    try:
        if sys.platform != "linux":
            raise OSError("not Linux")
        enter_private_network()
        os.environ[PRIVATE_NETWORK_VARIABLE] = "1"
    except OSError as error:
        print(f"real_cli: no private network here ({error}); the other safeguards hold", file=sys.stderr)
    arguments = arguments or ["-m", "real_cli", str(HERE)]
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
