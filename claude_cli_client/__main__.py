"""The program: `python -m claude_cli_client`, and `claude-cli-client` once installed.

    run      one turn from the shell: the answer on stdout, everything else on stderr
    doctor   can turns run here, and if not, why and what to do

The exit codes of `run` are below, where `--help` shows them.

Here are only the command line and how the program ends; what the commands do stands in
`_run_program.py` and `_doctor.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

_DESCRIPTION: Final = """\
Run one turn. The answer goes to stdout as it comes, everything else to stderr; on a terminal a
line there shows what goes on.

With --json stdout has one JSON object for each event on a line of its own: the fields of `Event`
that differ from their defaults, under their names (type, text, tool_name, tool_input, result,
cost_usd, ...). The last line has "is_terminal": true."""
_EXIT_CODES: Final = """\
exit codes:
  0   there is an answer
  1   the turn failed, or could not start: its error, in the CLI's own words, is on stderr.
      A CLI that is missing is a 1 too: the command was right, and works once it is installed
  2   the command line is wrong
124   one of the time limits ended the turn, as with timeout(1)
130   Ctrl-C; 143 SIGTERM; 129 SIGHUP: the turn was cancelled and everything it started is gone
141   the reader of stdout went away (`| head`); the turn was cancelled
"""
_LIMIT: Final = "seconds, or 'none'"


class _Ended(KeyboardInterrupt):
    """A signal that asks us to end; a KeyboardInterrupt, so that all clean up as for Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and give back its exit code. Raises `SystemExit` for wrong usage and `--help`."""
    from ._run_program import PIPE_CLOSED, ReaderGone

    try:
        with _signals_as_exceptions():
            args, unknown = _parser().parse_known_args(argv)
            if unknown:
                args.usage_error(_unknown(args, unknown))
            return int(args.command(args))
    except ReaderGone:
        _forget(sys.stdout)
        return PIPE_CLOSED
    except _Ended as ended:
        return 128 + ended.number
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        _flush()


@contextlib.contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """SIGTERM and SIGHUP raise where SIGINT already does, unless we were told to ignore them (nohup)."""

    def raise_ended(number: int, frame: FrameType | None) -> NoReturn:
        raise _Ended(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, raise_ended)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _flush() -> None:
    """What cannot be written has been told by now, or cannot be: it must not raise again when the
    interpreter flushes the buffers at exit, which makes the exit code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            _forget(stream)


def _forget(stream: Any) -> None:
    """Let what is still to be written to it go nowhere."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


# --- commands


def _run(args: argparse.Namespace) -> int:
    from ._run_program import run_program

    given = vars(args)
    options = {name: given[name] for name in _OPTION_NAMES if name in given}
    if args.simulate and "cli_path" in options:
        args.usage_error("--simulate and --cli-path exclude each other")
    if args.unset_env:
        options["env"] = {**options.get("env", {}), **dict.fromkeys(args.unset_env)}
    return run_program(args, options)


def _doctor(args: argparse.Namespace) -> int:
    from ._doctor import doctor_program
    from ._run_program import ReaderGone

    try:
        code = doctor_program(cli_path=args.cli_path, as_json=args.json, timeout=args.timeout)
        print(end="", flush=True)
    except BrokenPipeError as error:
        raise ReaderGone from error
    return code


# --- values


def _limit(text: str) -> float | None:
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected {_LIMIT}, got {text!r}") from None


def _number(kind: type[int] | type[float], what: str) -> Any:
    def read(text: str) -> float:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected {what}, got {text!r}") from None

    return read


def _path(text: str) -> str:
    """Files of the command line are relative to where it was typed, also with `--cwd`."""
    if not text:  # which would be the working directory
        raise argparse.ArgumentTypeError("an empty path")
    try:
        return os.path.abspath(os.path.expanduser(text))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} is relative, and the working directory is gone") from error


def _path_object(text: str) -> Any:
    from pathlib import Path

    return Path(_path(text))


def _json_or_path(text: str) -> str:
    return text if text.lstrip()[:1] in ("{", "[") else _path(text)


def _schema(text: str) -> str:
    if text.lstrip()[:1] == "{":
        return text
    try:
        with open(_path(text), encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text} is no text in UTF-8") from error


def _words(text: str) -> list[str]:
    """Comma-separated; an empty text is the empty list, which is not the same as leaving it out."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _rules(text: str) -> list[str]:
    from ._checks import split_rules

    return split_rules(text)


def _one_path(text: str) -> list[str]:
    return [_path(text)]


class _Pairs(argparse.Action):
    """`--env NAME=VALUE`, `--extra-arg NAME[=VALUE]`: collected into a dict."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        name, equals, value = values.partition("=")
        if not name or (self.dest == "env" and not equals):
            parser.error(f"{option}: expected NAME=VALUE, got {values!r}")
        pairs = dict(getattr(namespace, self.dest, None) or {})
        pairs[name] = value if equals else None
        setattr(namespace, self.dest, pairs)


class _Once(argparse.Action):
    """An option of one value: that the last of several silently wins would lose a whole file."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        if hasattr(namespace, self.dest):
            flags = [flag for _, rows in _FLAGS for flag, name, *_ in rows if name == self.dest]
            parser.error(f"{option}: give only one {' or '.join(flags)}")
        setattr(namespace, self.dest, values)


def _once(reader: Any) -> dict[str, Any]:
    return {"action": _Once, "type": reader, "metavar": "VALUE"}


def _several(reader: Any, metavar: str = "VALUE") -> dict[str, Any]:
    """Each value is a list; given several times they add up, as the CLI's do."""
    return {"action": "extend", "type": reader, "metavar": metavar}


# --- the command line

# Flag, option of the library, how its value is read, help. Rows with a dict instead of a reader say
# it in argparse's own words.
_FLAGS: Final[tuple[tuple[str, tuple[tuple[str, str, Any, str], ...]], ...]] = (
    (
        "model and prompt",
        (
            ("--model", "model", str, "an alias (opus, sonnet, haiku) or a full name"),
            ("--fallback-model", "fallback_model", _several(_words), "models to try when it is overloaded"),
            ("--system-prompt", "system_prompt", _once(str), "replace the system prompt"),
            ("--system-prompt-file", "system_prompt", _once(_path_object), "the same, from a file"),
            ("--append-system-prompt", "append_system_prompt", _once(str), "add to the system prompt"),
            (
                "--append-system-prompt-file",
                "append_system_prompt",
                _once(_path_object),
                "the same, from a file",
            ),
            ("--effort", "effort", str, "low, medium, high, xhigh or max"),
            ("--agent", "agent", str, "run as this agent"),
            ("--agents", "agents", _once(_json_or_path), "subagents: JSON or a file"),
            (
                "--json-schema",
                "json_schema",
                _once(_schema),
                "a JSON schema, or a file of it; stdout is the JSON alone",
            ),
        ),
    ),
    (
        "tools and permission",
        (
            ("--tools", "tools", _several(_words), "the built-in tools that exist; '' for none"),
            ("--allowed-tools", "allowed_tools", _several(_rules), "rules for what runs without asking"),
            ("--disallowed-tools", "disallowed_tools", _several(_rules), "rules for what never runs"),
            ("--permission-mode", "permission_mode", str, "acceptEdits (default), plan, dontAsk, ..."),
            (
                "--dangerously-skip-permissions",
                "dangerously_skip_permissions",
                {"action": "store_true"},
                "run every tool call",
            ),
            ("--add-dir", "add_dirs", _several(_one_path, "DIR"), "one more directory for the tools"),
        ),
    ),
    (
        "limits",
        (
            ("--timeout", "timeout", _limit, f"for the whole turn, 3600 by default: {_LIMIT}"),
            ("--idle-timeout", "idle_timeout", _limit, f"without any output, 900 by default: {_LIMIT}"),
            ("--start-timeout", "start_timeout", _limit, f"to the first output, 60 by default: {_LIMIT}"),
            ("--max-turns", "max_turns", _number(int, "a whole number, 1 or more"), "model calls"),
            ("--max-budget-usd", "max_budget_usd", _number(float, "a number above 0"), "cost of this run"),
            ("--max-retries", "max_retries", _number(int, "a whole number, 0 to 15"), "of API requests, by the CLI"),
        ),
    ),
    (
        "session",
        (
            ("--resume", "resume", str, "go on with this session: id or title"),
            (
                "--continue",
                "continue_conversation",
                {"action": "store_true"},
                "go on with the latest one here",
            ),
            ("--fork-session", "fork_session", {"action": "store_true"}, "go on in a copy"),
            ("--session-id", "session_id", str, "the id (a UUID) of the new session"),
            ("--name", "name", str, "the session's title"),
            ("--no-session-persistence", "persist_session", {"action": "store_false"}, "write no transcript"),
        ),
    ),
    (
        "configuration",
        (
            ("--cwd", "cwd", _path, "working directory"),
            ("--settings", "settings", _once(_json_or_path), "more settings: JSON or a file"),
            ("--setting-sources", "setting_sources", _several(_words), "user,project,local; '' for none"),
            ("--mcp-config", "mcp_servers", _once(_json_or_path), "MCP servers: JSON or a file"),
            ("--strict-mcp-config", "strict_mcp_config", {"action": "store_true"}, "only those MCP servers"),
            ("--plugin-dir", "plugin_dirs", _several(_one_path, "DIR"), "one more plugin"),
            ("--bare", "bare", {"action": "store_true"}, "the CLI's minimal mode"),
            (
                "--isolated",
                "isolated",
                {"action": "store_true"},
                "no settings files, own configuration directory",
            ),
            ("--config-dir", "config_dir", _path, "the CLI's configuration directory"),
            ("--debug-file", "debug_file", _path, "where the CLI writes its debug log"),
            ("--cli-path", "cli_path", str, "the Claude Code CLI to run"),
            ("--env", "env", {"action": _Pairs, "metavar": "NAME=VALUE"}, "set a variable for the CLI"),
            ("--kill-leftovers", "kill_leftovers", {"action": "store_true"}, "kill what tools left running"),
            (
                "--include-partial-messages",
                "include_partial_messages",
                {"action": "store_true"},
                "with --json: deltas",
            ),
            (
                "--extra-arg",
                "extra_args",
                {"action": _Pairs, "metavar": "NAME[=VALUE]"},
                "a flag of the CLI without dashes",
            ),
        ),
    ),
)
_OPTION_NAMES: Final = frozenset(row[1] for _, rows in _FLAGS for row in rows)


# The options that a flag turns off have no flag that stands for their name.
_FLAG_OF: Final = {
    option: flag
    for _, rows in reversed(_FLAGS)
    for flag, option, reader, _ in reversed(rows)
    if not isinstance(reader, dict) or reader.get("action") != "store_false"
}


def _in_flags(message: str, refused: bool = False) -> str:
    from ._usage import in_flags

    return in_flags(message, _FLAG_OF, refused)


def _unknown(args: argparse.Namespace, words: list[str]) -> str:
    from ._usage import unknown

    if args.command is not _run:
        return f"unknown: {' '.join(words)}; see --help"
    known = [flag for _, rows in _FLAGS for flag, *_ in rows]
    known += ["--json", "--data", "--quiet", "--simulate", "--unset-env"]
    return unknown(words, args.prompt, known, _FLAG_OF)


def _parser() -> argparse.ArgumentParser:
    started_by_name = os.path.basename(sys.argv[0]).startswith("claude-cli-client")
    parser = argparse.ArgumentParser(
        prog="claude-cli-client" if started_by_name else "python -m claude_cli_client",
        description="Run Claude Code turns from the shell, or find out why that fails.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version of this library")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run",
        help="run one turn",
        allow_abbrev=False,
        usage=f"{parser.prog} run [OPTION...] [PROMPT]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_DESCRIPTION,
        epilog=_EXIT_CODES,
    )
    _add_run(run)
    doctor = commands.add_parser("doctor", help="check whether turns can run here", allow_abbrev=False)
    doctor.add_argument("--cli-path", help="the Claude Code CLI to check")
    doctor.add_argument("--json", action="store_true", help="print the checks as one JSON object")
    doctor.add_argument(
        "--timeout", type=_number(float, "seconds"), default=10.0, help="seconds for the CLI to tell its version"
    )
    doctor.set_defaults(command=_doctor, usage_error=doctor.error)
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="?", help="the prompt; absent or '-': read it from stdin")
    parser.add_argument("--json", action="store_true", help="print each event as a JSON object on a line")
    parser.add_argument("--data", action="store_true", help="with --json: also the CLI's own line, as 'data'")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress line")
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="a simulated CLI: no account, no model, no cost; the prompt can steer it with words like "
        "[[fail: 429]] or [[slow: 5]], see claude_cli_client.testing.SimulatedCLI",
    )
    parser.add_argument("--unset-env", action="append", metavar="NAME", help="remove a variable for the CLI")
    for title, rows in _FLAGS:
        group = parser.add_argument_group(title)
        for flag, option, reader, text in rows:
            how = reader if isinstance(reader, dict) else {"type": reader, "metavar": "VALUE"}
            group.add_argument(flag, dest=option, default=argparse.SUPPRESS, help=text, **how)
    parser.set_defaults(command=_run, usage_error=parser.error, in_flags=_in_flags)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> NoReturn:
        from . import __version__

        print(f"claude_cli_client {__version__}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
