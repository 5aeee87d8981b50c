"""The program `doctor`: can turns run here, and if not, what is to be done.

May not do: reach the network, start anything but `claude --version`, change anything (one empty
temporary file is made and removed), or show a secret: of a credential its source is named, never
its value.

Each check is a function from `Place` to rows of (status, what, what to do). Statuses:

    ok      as it should be
    note    good to know
    warn    turns run, but something will surprise you
    fail    turns will not run, or not safely; the program then exits with 1
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from . import discovery
from ._env import NESTING
from ._settings_file import managed_folder, managed_settings, read_json
from ._settings_shapes import why_dropped
from .errors import ClaudeError, CLINotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"

Row = tuple[str, str, str]  # status, what, what to do ("" where there is nothing to do)

_LOW_DESCRIPTORS: Final = 256  # a run takes about ten for its lifetime
_LOW_SPACE: Final = 100 * 1024 * 1024  # bytes; transcripts and tool output go there
_INITS: Final = {
    "bash", "catatonit", "docker-init", "dumb-init", "init", "launchd", "openrc-init", "podman-init",
    "runit", "runsvdir", "s6-svscan", "sh", "supervisord", "systemd", "tini", "tini-static",
}  # fmt: skip
_INSTALL: Final = (
    "curl -fsSL https://claude.ai/install.sh | bash, or npm install -g @anthropic-ai/claude-code; "
    "or name it: --cli-path, Client(cli_path=...), CLAUDE_CLI_PATH"
)
_NAME_ONE: Final = 'name a CLI that works: --cli-path, Client(cli_path="..."), CLAUDE_CLI_PATH'

# In the CLI's own order of precedence, as `claude auth status` reports it.
_PROVIDERS: Final = (
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_GATEWAY",
)
_BEFORE_HELPER: Final = ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY")
_AFTER_HELPER: Final = ("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR")


@dataclass
class Place:
    """Where we are: what the checks look at, so that tests can say it."""

    environ: Mapping[str, str]
    cwd: str
    platform: str = sys.platform
    cli_path: str | None = None
    timeout: float = 10.0
    uid: int = field(default_factory=os.geteuid)
    proc: str = "/proc"
    managed: str = ""

    @property
    def config_dir(self) -> str:
        """Where the CLI keeps settings, credentials and transcripts; "" without a home."""
        home = discovery.home_of(self.environ)
        return self.environ.get("CLAUDE_CONFIG_DIR") or (f"{home}/.claude" if home else "")

    @property
    def settings_files(self) -> list[str]:
        """The files the CLI reads settings from, the weakest first."""
        return [
            f"{self.config_dir}/settings.json",
            f"{self.cwd}/.claude/settings.json",
            f"{self.cwd}/.claude/settings.local.json",
            *managed_settings(self.managed or managed_folder(self.platform)),
        ]


@dataclass(frozen=True)
class Check:
    """One row of the table."""

    name: str
    status: str
    detail: str
    fix: str = ""


def doctor_program(*, cli_path: str | None = None, as_json: bool = False, timeout: float = 10.0) -> int:
    """Print the table; 0 if nothing failed, 1 otherwise."""
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = ""
    checks = list(examine(Place(os.environ, cwd, cli_path=cli_path, timeout=timeout)))
    good = all(check.status != FAIL for check in checks)
    if as_json:
        print(json.dumps({"ok": good, "checks": [vars(check) for check in checks]}, indent=2))
    else:
        for check in checks:
            shown = check.status.upper() if check.status == FAIL else check.status
            print(f"{shown:<5} {check.name:<12} {check.detail}")
            if check.fix:
                print(f"{'':18} -> {check.fix}")
        print("Turns can run here." if good else "Turns cannot run here: see the lines marked FAIL.")
    return 0 if good else 1


def examine(place: Place) -> Iterator[Check]:
    """All checks, in order. A check that itself breaks is a row that says so, not the end."""
    for name, check in _CHECKS:
        try:
            for status, detail, fix in check(place):
                yield Check(name, status, detail, fix)
        except Exception as error:  # noqa: BLE001 - a doctor reports what it could not examine
            yield Check(name, WARN, f"could not be checked: {type(error).__name__}: {error}")


# --- the CLI


def _python(place: Place) -> Iterator[Row]:
    version = ".".join(map(str, sys.version_info[:3]))
    if place.platform not in ("linux", "darwin"):
        yield FAIL, f"Python {version} on {place.platform}", "use Linux or macOS (on Windows: WSL)"
    else:
        yield OK, f"{version} on {place.platform}, {sys.executable}", ""


def _cli(place: Place) -> Iterator[Row]:
    try:
        path = discovery.locate(place.cli_path, place.environ)
    except (ClaudeError, ValueError) as error:
        fix = _INSTALL if isinstance(error, CLINotFoundError) else _NAME_ONE
        if place.cli_path is None and place.environ.get("CLAUDE_CLI_PATH"):
            fix = "correct CLAUDE_CLI_PATH, or remove it: then the CLI is looked for"
        yield FAIL, str(error).partition("\n")[0], fix
        if isinstance(error, CLINotFoundError):
            yield NOTE, f"searched: {', '.join(error.searched)}", ""
        return
    yield OK, f"{path} ({_found_how(place, path)})", ""
    real = os.path.realpath(path)
    if real != path:
        yield NOTE, f"it is a link to {real}", ""
    for kind, other in discovery.candidates(place.environ):
        if other != path and os.path.realpath(other) != real and not discovery.trouble_with(other):
            yield NOTE, f"another one, not used: {other} ({kind})", ""


def _found_how(place: Place, path: str) -> str:
    if place.cli_path is not None:
        return "given by --cli-path"
    if place.environ.get("CLAUDE_CLI_PATH"):
        return "named by CLAUDE_CLI_PATH"
    return next((kind for kind, where in discovery.candidates(place.environ) if where == path), "found")


def _version(place: Place) -> Iterator[Row]:
    try:
        path = discovery.locate(place.cli_path, place.environ)
    except (ClaudeError, ValueError):
        yield FAIL, "unknown: there is no CLI to ask", ""
        return
    begin = time.monotonic()
    try:
        version = discovery.cli_version(path, place.timeout, place.environ)
    except ClaudeError as error:
        yield FAIL, " ".join(str(error).split()), "install the CLI again, or name another one"
        return
    yield OK, f"{version}, starts in a session of its own ({time.monotonic() - begin:.2f} s)", ""


# --- login


def _settings(place: Place) -> Iterator[Row]:
    for path in place.settings_files:
        settings, trouble = _taken(path)
        if trouble:
            yield WARN, f"{path}: {trouble}", "correct the file: the CLI says nothing of what it drops"
        elif settings is not None:
            yield OK, path, ""


def _login(place: Place) -> Iterator[Row]:
    found = _credentials(place)
    for name in (*_BEFORE_HELPER, "CLAUDE_CODE_OAUTH_TOKEN"):
        value = place.environ.get(name, "")
        if value != value.strip():
            yield WARN, f"{name} begins or ends with white space", "set it again without the line end"
    stored, trouble = _stored_login(place)
    if trouble:
        yield trouble
    if stored:
        found.append(stored)
    if len(found) > 1:
        yield (
            WARN,
            f"several credentials: {found[0]} is used, {', '.join(found[1:])} is not",
            "keep one; Client(env={NAME: None}) removes a variable for the CLI",
        )
    elif found:
        yield OK, found[0], ""
    elif place.platform == "darwin":
        yield NOTE, "nothing in the environment or settings; the keychain was not asked", "claude auth status"
    else:
        yield (
            FAIL,
            "not logged in: no credentials in the environment, the settings or the configuration directory",
            "run `claude` and /login, or set ANTHROPIC_API_KEY, or CLAUDE_CODE_OAUTH_TOKEN (setup-token)",
        )


def _credentials(place: Place) -> list[str]:
    """Where credentials come from, the one that the CLI takes first. Names only."""
    sources = {name: name for name in place.environ if place.environ[name]}
    helper = ""
    for path in place.settings_files:
        settings = _taken(path)[0] or {}
        if settings.get("apiKeyHelper"):
            helper = f"apiKeyHelper in {path}"
        variables = settings.get("env")
        for name in variables if isinstance(variables, dict) else ():
            sources[name] = f"{name} in {path}"
    names = [*_PROVIDERS, *_BEFORE_HELPER]
    found = [sources[name] for name in names if name in sources]
    return [*found, *filter(None, [helper]), *(sources[name] for name in _AFTER_HELPER if name in sources)]


def _stored_login(place: Place) -> tuple[str, Row | None]:
    """The login that `claude` keeps in a file: its name, and what is wrong with it."""
    path = f"{place.config_dir}/.credentials.json"
    content, trouble = _object(path)
    if trouble:
        return "", (WARN, f"{path}: {trouble}", "run `claude` and /login again")
    login = (content or {}).get("claudeAiOauth")
    if not isinstance(login, dict) or not login.get("accessToken"):
        return "", None
    name = f"the login in {path}"
    expires = login.get("expiresAt")
    if isinstance(expires, (int, float)) and expires / 1000 < time.time() and not login.get("refreshToken"):
        return "", (WARN, f"{name} has expired and cannot renew itself", "run `claude` and /login again")
    if os.stat(path).st_mode & 0o077:
        return name, (WARN, f"{path} can be read by other users", f"chmod 600 {path}")
    return name, None


def _taken(path: str) -> tuple[dict[str, Any] | None, str]:
    """The settings in a file, as far as the CLI takes them; and why it does not."""
    settings, trouble = _object(path)
    reason = why_dropped(settings or {})
    return (None, reason) if reason else (settings, trouble and f"{trouble}; the CLI takes nothing of it")


def _object(path: str) -> tuple[dict[str, Any] | None, str]:
    """(content, "") or (None, what is wrong); (None, "") for a file that is not there."""
    try:
        content = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return None, ""
    except OSError as error:
        return None, f"it cannot be read ({error.strerror})"
    except (ValueError, RecursionError):
        return None, "it is not valid JSON"
    return (content, "") if isinstance(content, dict) else (None, "it is no JSON object")


# --- places


def _config_dir(place: Place) -> Iterator[Row]:
    path = place.config_dir
    if not path:
        yield WARN, "there is no home directory", "set HOME, or Client(config_dir=...)"
        return
    existing = path
    while existing and not os.path.lexists(existing):
        existing = os.path.dirname(existing) if existing != "/" else ""
    if not os.path.isdir(existing):
        yield FAIL, f"{existing} is not a directory", "remove the file, or set CLAUDE_CONFIG_DIR"
    elif os.access(existing, os.W_OK | os.X_OK):
        yield OK, path + ("" if existing == path else " (will be created)"), ""
    else:
        yield (
            WARN,
            f"{existing} cannot be written: turns run, but no session is kept, so resume= cannot work",
            "give it to this user, or set CLAUDE_CONFIG_DIR",
        )


def _cwd(place: Place) -> Iterator[Row]:
    if place.cwd and os.path.isdir(place.cwd):
        yield OK, place.cwd, ""
    else:
        yield FAIL, "the current directory does not exist any more", "cd somewhere else, or Client(cwd=...)"


def _temp_dir(place: Place) -> Iterator[Row]:
    import tempfile

    folder = place.environ.get("CLAUDE_CODE_TMPDIR") or place.environ.get("TMPDIR") or "/tmp"
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        yield FAIL, f"{folder}: {error.strerror or error}", "set TMPDIR to a directory that can be written"
        return
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if free < _LOW_SPACE:
        yield WARN, f"{folder} has only {free // 2**20} MB left", "make room, or set TMPDIR"
    else:
        yield OK, folder, ""


# --- the system


def _proc(place: Place) -> Iterator[Row]:
    if place.platform != "linux":
        yield NOTE, "not here: of a cancelled run a tool in a session of its own can be missed", ""
        return
    try:
        with open(f"{place.proc}/self/environ", "rb") as file:
            file.read(1)
    except OSError as error:
        yield (
            WARN,
            f"{place.proc} cannot be read ({error.strerror}): what tools leave running may not be found",
            "mount /proc",
        )
    else:
        yield OK, "readable: what a cancelled turn left running can be found", ""


def _pidfd(place: Place) -> Iterator[Row]:
    if place.platform != "linux":
        return
    pidfd_open = getattr(os, "pidfd_open", None)
    try:
        os.close(pidfd_open(os.getpid()) if pidfd_open else -1)
    except OSError:
        yield NOTE, "not available (old kernel, or a sandbox): one more thread for each run", ""
    else:
        yield OK, "available", ""


def _memfd(place: Place) -> Iterator[Row]:
    if place.platform != "linux":
        return
    memfd_create = getattr(os, "memfd_create", None)
    try:
        os.close(memfd_create("doctor") if memfd_create else -1)
    except OSError:
        yield NOTE, "not available: prompts go through an unlinked temporary file", ""
    else:
        yield OK, "available", ""


def _shell(place: Place) -> Iterator[Row]:
    if os.access("/bin/sh", os.X_OK):
        yield OK, "/bin/sh is there for the guard that cleans up when this process is killed", ""
    else:
        yield WARN, "no /bin/sh: if this process is killed, its CLIs live on", "use an image with a shell"


def _limits(place: Place) -> Iterator[Row]:
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY and files < _LOW_DESCRIPTORS:
        yield WARN, f"only {files} open files are allowed", "ulimit -n 1024, or LimitNOFILE= of the service"
    else:
        yield OK, f"{'unlimited' if files == resource.RLIM_INFINITY else files} open files", ""


def _nested(place: Place) -> Iterator[Row]:
    set_ones = [name for name in NESTING if place.environ.get(name)]
    if set_ones:
        yield WARN, f"inside another Claude Code session; removed for our CLIs: {', '.join(set_ones)}", ""
    else:
        yield OK, "not inside another Claude Code session", ""


def _root(place: Place) -> Iterator[Row]:
    deliberate = place.environ.get("IS_SANDBOX") == "1" or place.environ.get("CLAUDE_CODE_BUBBLEWRAP")
    if place.uid == 0 and not deliberate:
        yield (
            NOTE,
            'running as root: the CLI refuses permission_mode="bypassPermissions" and skipping permissions',
            "use another user, or IS_SANDBOX=1 where this is a sandbox",
        )
    else:
        yield OK, f"user id {place.uid}", ""


def _init(place: Place) -> Iterator[Row]:
    """Orphans of tools become children of process 1; one that does not reap collects zombies."""
    if place.platform != "linux":
        return
    try:
        with open(f"{place.proc}/1/comm", encoding="utf-8", errors="replace") as file:
            name = file.read().strip()
    except OSError:
        return
    if os.getpid() == 1 or name not in _INITS:
        yield (
            NOTE,
            f"process 1 is {name!r}, which may not reap what tools leave behind: zombies can add up",
            "docker run --init, or tini as the entry point",
        )
    else:
        yield OK, f"process 1 is {name}", ""


_CHECKS: Final[tuple[tuple[str, Callable[[Place], Iterator[Row]]], ...]] = (
    ("python", _python),
    ("cli", _cli),
    ("version", _version),
    ("login", _login),
    ("settings", _settings),
    ("config dir", _config_dir),
    ("cwd", _cwd),
    ("temp dir", _temp_dir),
    ("/proc", _proc),
    ("pidfd", _pidfd),
    ("memfd", _memfd),
    ("guard", _shell),
    ("limits", _limits),
    ("nesting", _nested),
    ("root", _root),
    ("init", _init),
)
