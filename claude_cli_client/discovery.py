"""Which program is the CLI, which version is it, and what to do when there is none.

May not do: import anything but the errors at once, keep a found path (the CLI may be installed, moved or
updated while we live, so each start looks anew), or start a process other than `claude --version`.

Why it is shaped so:

* A path that somebody gave is used or refused, never replaced: a service that silently runs
  another CLI than the configured one is worse than one that does not start.
* Symbolic links are not resolved: the native installer updates by moving one, and version
  managers decide by the name they are called by.
* The common case, an absolute path given, costs one `stat` and one `access`. Everything that is
  slow to import (`pathlib`, `glob`, `importlib.util`, `re`) is imported where it is needed.
* Explaining a failed start reads the file's head, and asking for the version drives a process:
  both are rare, so they stand in modules of their own, imported when needed.
"""

from __future__ import annotations

import os
import sys
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Final

from ._handlers import is_hosts
from .errors import CLINotFoundError, CLIVersionError, StartError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MINIMUM: Final = "2.0.0"  # the oldest CLI that knows the flags we always send

# Where the ways of installing put the program. `{home}` and `{NAME}` (a variable) are filled in;
# a row whose variable is not set falls out; a row with a star means the newest of several.
_KNOWN_PLACES: Final = (
    "{home}/.local/bin/claude",  # the native installer
    "{CLAUDE_CONFIG_DIR}/local/claude",
    "{home}/.claude/local/claude",  # "migrate-installer" of older versions
    "{home}/.claude/local/node_modules/.bin/claude",
    "{npm_config_prefix}/bin/claude",
    "{NPM_CONFIG_PREFIX}/bin/claude",
    "{home}/.npm-global/bin/claude",
    "{home}/.npm-packages/bin/claude",
    "{home}/node_modules/.bin/claude",
    "{PNPM_HOME}/claude",
    "{home}/.local/share/pnpm/claude",
    "{home}/Library/pnpm/claude",
    "{home}/.bun/bin/claude",
    "{home}/.yarn/bin/claude",
    "{home}/.volta/bin/claude",
    "{home}/.asdf/shims/claude",
    "{home}/.local/share/mise/shims/claude",
    "{NVM_BIN}/claude",
    "{NVM_DIR}/versions/node/*/bin/claude",
    "{home}/.nvm/versions/node/*/bin/claude",
    "{home}/.local/share/fnm/node-versions/*/installation/bin/claude",
    "/opt/homebrew/bin/claude",
    "/usr/local/bin/claude",
    "/usr/bin/claude",
    "/home/linuxbrew/.linuxbrew/bin/claude",
    "{home}/.nix-profile/bin/claude",
)

_HOW_TO_INSTALL: Final = (
    "Install it with",
    "  curl -fsSL https://claude.ai/install.sh | bash",
    "or",
    "  npm install -g @anthropic-ai/claude-code",
    'If it is installed, say where: cli_path="/path/to/claude" or the variable CLAUDE_CLI_PATH (under cron,',
    "launchd and systemd PATH is shorter than in your terminal).",
)

_MISSING: Final = "missing"


# --- finding


def find_cli(path: str | os.PathLike[str] | None = None) -> Path:
    """The Claude Code CLI to run, as an absolute path.

    Looked for in this order: `path`; the variable `CLAUDE_CLI_PATH`; the copy that our installer
    made; `PATH`; the places where the usual installers put it; the copy inside an installed
    `claude-agent-sdk`. A bare name is looked up on `PATH`, `~` is expanded, a relative path is
    taken against the current directory. Does not block beyond a few calls of `stat`.

    Raises:
        CLINotFoundError: there is none; `searched` lists every place.
        StartError: `path` or `CLAUDE_CLI_PATH` names something that cannot be run. A path given
            is never replaced by another one.
        ValueError: `path` is empty or no path at all.
    """
    from pathlib import Path

    return Path(locate(path))


def locate(path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> str:
    """`find_cli` for the library itself: a string, and the environment to look in."""
    if environ is None:
        environ = os.environ
    if path is not None:
        return _given(path, "cli_path", environ)
    named = environ.get("CLAUDE_CLI_PATH")
    if named:
        return _given(named, "CLAUDE_CLI_PATH", environ)
    searched: list[str] = []
    unfit: list[str] = []
    for _, place in candidates(environ):
        trouble = trouble_with(place)
        if not trouble:
            return place
        searched.append(place)
        if trouble is not _MISSING:
            unfit.append(f"; {place} {trouble}")
    raise CLINotFoundError(
        f"no Claude Code CLI was found{''.join(unfit)}", hints=_HOW_TO_INSTALL, searched=tuple(searched)
    )


def candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Every place to look when no path was given, in order, each once: (what it is, the path)."""
    seen = set()
    for kind, places in (
        ("installed by claude_cli_client", iter((installed_cli(environ),))),
        ("PATH", _on_path("claude", environ)),
        ("known place", _known_places(environ)),
        ("claude-agent-sdk", _inside_the_sdk()),
    ):
        for place in places:
            if place and place not in seen:
                seen.add(place)
                yield kind, place


def installed_cli(environ: Mapping[str, str] | None = None) -> str:
    """Where our installer puts the CLI: a path, or a link to one, that may not exist. "" without a home."""
    if environ is None:
        environ = os.environ
    home = home_of(environ)
    data = environ.get("XDG_DATA_HOME", "")
    if sys.platform == "darwin":
        data = f"{home}/Library/Application Support" if home else ""
    elif not data.startswith("/"):  # the XDG rule: relative values are to be ignored
        data = f"{home}/.local/share" if home else ""
    return f"{data}/claude_cli_client/cli/claude" if data else ""


def _given(path: str | os.PathLike[str], source: str, environ: Mapping[str, str]) -> str:
    """The path that the caller named, made absolute, or the error that says what is wrong with it."""
    text = os.fsdecode(path)
    if not text or "\0" in text:
        raise ValueError(f"{source} is no path: {text!r}")
    if text[0] == "~":
        text = os.path.expanduser(text)
    if "/" not in text:
        return _bare(text, source, environ)
    if text[0] != "/":
        text = _absolute(text, source)
    trouble = trouble_with(text)
    if not trouble:
        return text
    if trouble is _MISSING:
        raise CLINotFoundError(f"{source}: {_why_missing(text)}", searched=(text,))
    raise StartError(f"{source}: {text} {trouble}", cli_path=text)


def _bare(name: str, source: str, environ: Mapping[str, str]) -> str:
    searched = []
    for place in _on_path(name, environ):
        if not trouble_with(place):
            return place
        searched.append(place)
    hint = ""
    if os.path.exists(name):  # `Path("./claude")` has lost its "./"
        hint = f"; for the file in the current directory write {os.path.join('.', name)!r} as a string"
    raise CLINotFoundError(f"{source}: there is no program {name!r} on PATH{hint}", searched=tuple(searched))


def _absolute(text: str, source: str = "cli_path") -> str:
    try:
        return os.path.join(os.getcwd(), text.removeprefix("./"))
    except OSError as error:
        if not is_of_a_start(error):
            raise
        raise StartError(
            f"{source}: {text!r} is relative, and the current directory does not exist any more",
            errno=error.errno,
            cli_path=text,
        ) from error


def trouble_with(path: str) -> str:
    """What stands against running the file: "" if nothing, `_MISSING` if it is not there."""
    try:
        mode = os.stat(path).st_mode
    except PermissionError:
        return "cannot be reached: a directory on the way to it is closed to this user"
    except OSError as error:
        if not is_of_a_start(error):
            raise
        return _MISSING
    if not S_ISREG(mode):
        return "is a directory" if S_ISDIR(mode) else "is not a regular file"
    if os.access(path, os.X_OK):
        return ""
    from ._exec_errors import not_executable

    return not_executable(path, mode)


def _why_missing(path: str) -> str:
    if os.path.islink(path):
        return f"{path} is a symbolic link to {os.readlink(path)}, which does not exist"
    return f"{path} does not exist"


def _on_path(name: str, environ: Mapping[str, str]) -> Iterator[str]:
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        if folder.startswith("/"):
            yield os.path.join(folder, name)
        else:  # an empty entry means the current directory, as for the shell
            try:
                yield _absolute(os.path.join(folder, name))
            except StartError:
                continue


def _known_places(environ: Mapping[str, str]) -> Iterator[str]:
    home = home_of(environ)
    for pattern in _KNOWN_PLACES:
        root, brace, rest = pattern[1:].partition("}")
        place = pattern
        if brace:
            base = home if root == "home" else environ.get(root, "")
            if not base.startswith("/"):
                continue
            place = base.rstrip("/") + rest
        if "*" in place:
            yield from _newest_first(place)
        else:
            yield place


def _newest_first(pattern: str) -> Iterator[str]:
    """The matches of a pattern with one star that stands for a version; none: the pattern itself."""
    import glob

    before, _, after = pattern.partition("*")
    found = glob.glob(f"{glob.escape(before)}*{glob.escape(after)}")
    yield from sorted(found, key=_numbers, reverse=True) or [pattern]


def _inside_the_sdk() -> Iterator[str]:
    """The program that the official SDK's wheel carries; the package is looked up, never imported."""
    from importlib.util import find_spec

    try:
        spec = find_spec("claude_agent_sdk")
    except (ImportError, ValueError, AttributeError):  # half-made entries of sys.modules
        return
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield os.path.join(folder, "_bundled", "claude")


def home_of(environ: Mapping[str, str]) -> str:
    """The home directory: of the environment, else of the password database; "" if there is none."""
    home = environ.get("HOME", "")
    if not home:
        try:
            import pwd

            home = pwd.getpwuid(os.getuid()).pw_dir
        except (ImportError, KeyError):  # a container's user without an entry
            return ""
    return home.rstrip("/") if home.startswith("/") else ""


# --- what went wrong at a start


def is_of_a_start(error: BaseException) -> bool:
    """Whether the system refused something: what a signal handler of the host's raises in the middle of a start is
    not ours to explain."""
    if isinstance(error, OSError):
        return not is_hosts(error)
    return isinstance(error, ImportError) or (isinstance(error, RuntimeError) and "new thread" in str(error))


def refused(argv0: str, error: OSError | RuntimeError | ImportError) -> StartError:
    """The `StartError` for what the system refused before or at the start of `argv0`. What it did not refuse is raised
    again."""
    if not is_of_a_start(error):
        raise error
    return start_error(argv0, error)


def start_error(argv0: str, error: OSError | RuntimeError | ImportError, prefix: str = "") -> StartError:
    """The `StartError` that explains why `argv0`, or `prefix` in its place, could not be executed; `error` becomes its
    cause.

    Only a start that failed for want of memory, processes or descriptors, or while the program was
    being replaced, is `retryable`. A RuntimeError is Python's "can't start new thread", an ImportError
    a module that cannot be loaded for want of descriptors.
    """
    if not isinstance(error, OSError):
        started = StartError(f"cannot start {argv0}: {error}", cli_path=argv0, retryable=True)
    else:
        from ._exec_errors import explain

        message, retryable = explain(prefix or argv0, error)
        started = StartError(message, errno=error.errno, cli_path=argv0, retryable=retryable)
    started.__cause__ = error
    return started


# --- its version

_versions: dict[str, tuple[int, int, str]] = {}
_MAX_VERSIONS = 32  # paths remembered; a process uses one or two


def cli_version(path: str | os.PathLike[str], timeout: float = 10.0, env: Mapping[str, str] | None = None) -> str:
    """Ask the CLI for its version, like "2.1.332"; remembered for `known_version`.

    Blocks until it has answered, `timeout` seconds at most and two more to get rid of a program
    that does not end: its group gets SIGTERM, then SIGKILL, and it is reaped, also after Ctrl-C.

    Raises:
        StartError: it cannot be run, fails, or does not answer in time.
        CLIVersionError: it is another program, or older than `MINIMUM`.
    """
    from ._ask_version import ask_version

    path = os.path.expanduser(os.fsdecode(path))
    stamp = _stamp(path)
    try:
        version = ask_version(path, timeout, env)
    except (OSError, RuntimeError, ImportError) as error:  # the second: no thread to be had
        raise refused(path, error) from error
    if _numbers(version) < _numbers(MINIMUM):
        raise CLIVersionError(
            f"{path} is Claude Code {version}, this library needs {MINIMUM} or newer; fix: claude update",
            found=version,
            required=MINIMUM,
        )
    _remember(path, stamp, version)
    return version


def known_version(path: str | os.PathLike[str]) -> str:
    """The version that this very file last said it has, without running it; "" if unknown."""
    path = os.path.expanduser(os.fsdecode(path))
    known = _versions.get(path)
    return known[2] if known and known[:2] == _stamp(path) else ""


def remember_version(path: str, version: str) -> None:
    """Keep a version that was learned in another way, from the first line of a turn."""
    _remember(path, _stamp(path), version)


def _remember(path: str, stamp: tuple[int, int] | None, version: str) -> None:
    if stamp and version:
        if len(_versions) >= _MAX_VERSIONS:
            _versions.clear()
        _versions[path] = (*stamp, version)


def _stamp(path: str) -> tuple[int, int] | None:
    """Changes when the file is replaced or written; of what a link points at."""
    try:
        status = os.stat(path)
    except OSError as error:
        if not is_of_a_start(error):
            raise
        return None
    return status.st_mtime_ns, status.st_size


def _numbers(text: str) -> list[int]:
    """The numbers in a text, to compare versions by."""
    digits = "".join(char if "0" <= char <= "9" else " " for char in text)
    return [int(word) for word in digits.split()]
