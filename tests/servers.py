"""Private servers for the tests of the worked stores: redis-server and PostgreSQL.

Each lives in a new directory of its own, listens on a unix socket there and nowhere else, keeps
nothing, and is ended by the `with` that started it: asked first, killed after some seconds. They are
in the process group of the tests, so what ends the tests as a whole ends them, too. Nothing of a
server that the machine may have is used, only its programs.

`CLAUDE_CLI_CLIENT_TEST_REDIS` (a URL) and `CLAUDE_CLI_CLIENT_TEST_POSTGRES` (a connection string) name
servers that are there already; what the tests write there is under names that begin with
`claude`, and in PostgreSQL the tables of the example are emptied.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import until

_START = 60.0  # seconds, for a machine under load; both need less than one
_END = 10.0


class MissingServerError(Exception):
    """There is no such program here."""


@contextmanager
def redis_server() -> Iterator[str]:
    """The URL of a Redis that nobody else uses."""
    if url := os.environ.get("CLAUDE_CLI_CLIENT_TEST_REDIS"):
        yield url
        return
    program = _program("redis-server", "redis-server")
    with _directory() as directory:
        path = directory / "redis.sock"
        options = {"port": "0", "unixsocket": str(path), "unixsocketperm": "700", "dir": str(directory), "save": ""}
        argv = [program, *(word for name, value in options.items() for word in (f"--{name}", value))]
        with _serving(argv, directory, lambda: _accepts(path)):
            yield f"unix://{path}"


@contextmanager
def postgres_server() -> Iterator[str]:
    """The connection string of a PostgreSQL that nobody else uses."""
    if dsn := os.environ.get("CLAUDE_CLI_CLIENT_TEST_POSTGRES"):
        yield dsn
        return
    initdb = _program("initdb", "postgresql", "/usr/lib/postgresql/*/bin")
    with _directory() as directory:
        user = _without_root(directory)
        data, path = directory / "data", directory / ".s.PGSQL.5432"
        argv = [initdb, "-D", str(data), "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        done = subprocess.run(
            argv, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_START, **user
        )
        assert done.returncode == 0, done.stdout
        argv = [str(Path(initdb).parent / "postgres"), "-D", str(data), "-k", str(directory)]
        argv += ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=40"]
        with _serving(argv, directory, lambda: _accepts(path), **user):
            yield f"host={directory} user=tests dbname=postgres"


def _program(name: str, package: str, *places: str) -> str:
    """The newest in these places, else the one in PATH."""
    for place in places:
        if found := sorted(Path("/").glob(f"{place[1:]}/{name}"), key=lambda path: path.parts):
            return str(found[-1])
    if path := shutil.which(name):
        return path
    raise MissingServerError(f"there is no {name} here; Debian has it in the package {package}")


def _without_root(directory: Path) -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then as somebody who can do little else."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(directory, user.pw_uid, user.pw_gid)
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise MissingServerError("there is neither a user postgres nor nobody here to run PostgreSQL as")


@contextmanager
def _directory() -> Iterator[Path]:
    """With a short path: that of a socket has 107 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="stores-", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _serving(argv: list[str], directory: Path, ready: Callable[[], bool], **options: Any) -> Iterator[None]:
    """The server runs and takes connections; afterwards it has ended."""
    log = directory / "server.log"
    with open(log, "wb") as output:
        server = subprocess.Popen(
            argv, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **options
        )
    try:
        until(lambda: ready() or server.poll() is not None, f"{argv[0]} takes connections", _START)
        assert server.poll() is None, log.read_text("utf-8", "replace")
        yield
    finally:
        server.send_signal(signal.SIGINT)  # to both: end now, without waiting for clients
        try:
            server.wait(_END)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True
