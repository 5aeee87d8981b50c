"""The program `run`: one turn, its answer on stdout, progress and errors on stderr.

May not do: keep a turn alive that nobody reads. Whatever ends this program early (Ctrl-C, SIGTERM,
SIGHUP, a reader of stdout that went away) leaves the `with` of the run, which ends the CLI.

It waits in one place, `Run.next_event`, with a time limit: that wait is the clock of the progress
line, and the moment to notice that a pipe's reader has gone although nothing is to be written.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

from . import events as e
from ._progress import INTERVAL, Progress
from .errors import ClaudeError
from .run import Pieces

if TYPE_CHECKING:
    from argparse import Namespace

    from .events import Event
    from .run import Run

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
TIMED_OUT: Final = 124  # as timeout(1)
PIPE_CLOSED: Final = 141  # 128 + SIGPIPE, what a C program dies of there

_PIPE_CHECK: Final = 1.0  # seconds between two looks at stdout where there is no progress line
_SIMULATED_PACE: Final = 0.02  # seconds between two pieces of simulated text: fast typing

# What a terminal gets: no escape sequences out of an answer, line ends as they are on Unix.
_FOR_TERMINALS: Final = {**dict.fromkeys((*range(32), *range(127, 160)), "\ufffd"), 9: "\t", 10: "\n", 13: ""}


class ReaderGone(Exception):
    """Nobody reads our stdout any more."""


def run_program(args: Namespace, options: dict[str, Any]) -> int:
    """Run one turn and give back the exit code. Raises `ReaderGone`, `KeyboardInterrupt`."""
    try:
        with contextlib.ExitStack() as stack:
            try:
                run, show = _start(args, options, stack)
            except (TypeError, ValueError) as error:  # options that are wrong, an empty prompt
                _say(f"claude_cli_client: {args.in_flags(str(error), True)}")
                return USAGE
            _turn(run, show, Progress(sys.stderr) if _wants_progress(args) else None)
    except ClaudeError as error:
        # A missing CLI is a failure, not wrong usage: the command was right, the machine is not.
        _say(f"claude_cli_client: {args.in_flags(str(error))}")
        return TIMED_OUT if isinstance(error, TimeoutError) else FAILED
    return OK


def _start(args: Namespace, options: dict[str, Any], stack: contextlib.ExitStack) -> tuple[Run, Answer | Lines]:
    """The prompt is read first: an empty one is refused before a CLI is looked for."""
    from .client import Client

    prompt = _prompt(args.prompt)
    show: Answer | Lines
    if args.json:
        show = Lines(_stdout(), with_data=args.data)
    else:
        options.setdefault("include_partial_messages", True)
        show = Answer(_stdout(), only_structured="json_schema" in options)
    cli_path = _simulated(stack) if args.simulate else options.pop("cli_path", None)
    client = stack.enter_context(Client(cli_path=cli_path, max_concurrent=1))
    return stack.enter_context(client.run(prompt, **options)), show


def _turn(run: Run, show: Answer | Lines, progress: Progress | None) -> None:
    try:
        _follow(run, show, progress)
    except KeyboardInterrupt:
        _cut_short(run, show, progress)
        raise
    finally:
        if progress:
            progress.erase()
    show.end()
    run.result()


def _cut_short(run: Run, show: Answer | Lines, progress: Progress | None) -> None:
    """Ctrl-C: the output gets its last event and line. Takes as long as the run's end; a second Ctrl-C
    comes out of it at once."""
    run.cancel()
    if progress:
        progress.erase()
    for event in run:
        if event.is_terminal:
            show.event(event)
    show.end()
    session = f" (session {run.session_id})" if run.session_id else ""
    _say(f"claude_cli_client: cancelled{session}")


def _prompt(word: str | None) -> str:
    if word not in (None, "-"):
        return str(word)
    if sys.stdin is None:
        raise ValueError("no prompt: give it as an argument or on stdin")
    if sys.stdin.isatty():
        _say("claude_cli_client: type the prompt, end it with Ctrl-D")
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _simulated(stack: contextlib.ExitStack) -> str:
    from .testing import SimulatedCLI

    _say("claude_cli_client: this is a simulation: no model, no account, no network; nothing is run")
    return str(stack.enter_context(SimulatedCLI(pace=_SIMULATED_PACE)).path)


def _follow(run: Run, show: Answer | Lines, progress: Progress | None) -> None:
    """Hand every event on until the terminal one."""
    wait = INTERVAL if progress else _PIPE_CHECK
    while True:
        event = run.next_event(wait)
        if event is None:
            if run.done and (event := run.next_event(0)) is None:
                return
            show.check()
        if event is not None:
            _hand_on(event, show, progress)
            if event.is_terminal:
                return
        if progress and show.at_line_start:
            progress.paint()


def _hand_on(event: Event, show: Answer | Lines, progress: Progress | None) -> None:
    if progress:
        progress.event(event)
        if show.would_write(event):
            progress.erase()
    show.event(event)


def _wants_progress(args: Namespace) -> bool:
    if args.quiet or os.environ.get("TERM") == "dumb":
        return False
    return sys.stderr is not None and sys.stderr.isatty()


# --- stderr and stdout


def _say(message: str) -> None:
    """On stderr. Where that is closed or cannot be written nobody can be told: the exit code still says it."""
    if sys.stderr is not None:  # else `print` takes stdout
        with contextlib.suppress(OSError):
            print(message, file=sys.stderr)


def _stdout() -> TextIO:
    """stdout, able to write any text; without one (`>&-`) the answer goes nowhere, as with `cat`."""
    stream = sys.stdout
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # until the process ends
    if isinstance(getattr(stream, "buffer", None), io.RawIOBase):
        # PYTHONUNBUFFERED: text goes straight to a descriptor, and what a full pipe does not take is lost in silence.
        return open(stream.fileno(), "w", encoding=stream.encoding, errors="replace", closefd=False)
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure:
        reconfigure(errors="replace")  # lone surrogates, and what the locale does not have
    return stream


class _Output:
    """Writes at once, and knows whether the cursor stands at the start of a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._mid_line = False
        self._poll = _reader_poll(stream)

    @property
    def at_line_start(self) -> bool:
        """May the progress line be painted? Not behind half a line on the same terminal."""
        return not (self._terminal and self._mid_line)

    def check(self) -> None:
        """Raises `ReaderGone` if stdout is a pipe that nobody can read any more."""
        if self._poll and any(what & (select.POLLERR | select.POLLHUP) for _, what in self._poll.poll(0)):
            raise ReaderGone

    def _write(self, text: str) -> None:
        if self._terminal:
            text = text.translate(_FOR_TERMINALS)
        if not text:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError as error:
            raise ReaderGone from error
        except OSError as error:
            raise ClaudeError(f"cannot write the answer: {error.strerror or error}") from error
        self._mid_line = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._mid_line:
            self._write("\n")


def _reader_poll(stream: TextIO) -> select.poll | None:
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)  # errors are always reported
    except (OSError, ValueError):
        return None
    return poll


class Answer(_Output):
    """The answer's text as it comes: deltas where there are any, else whole blocks.

    Each message of the main turn starts on a line of its own. A block is compared with what was
    streamed of it, so that what did not come as deltas is added and nothing is written twice.
    With a schema the answer is data: then only that is written, at the end.
    """

    def __init__(self, stream: TextIO, *, only_structured: bool = False) -> None:
        super().__init__(stream)
        self._only_structured = only_structured
        self._message_id = ""
        self._pieces = Pieces()
        self._wrote = False
        self._last: Event | None = None

    def would_write(self, event: Event) -> bool:
        """Whether the progress line has to give way first."""
        return event.type in (e.TEXT, e.TEXT_DELTA, e.RETRACTED, e.RESULT, e.ERROR)

    def event(self, event: Event) -> None:
        """Write what belongs to the answer."""
        if event.is_terminal:
            self._last = event
        if event.is_terminal or self._only_structured or event.parent_tool_use_id:
            return
        was_streaming, piece = self._pieces.is_streaming, self._pieces.of(event)
        if event.type in (e.TEXT, e.TEXT_DELTA):
            if event.message_id != self._message_id or not (event.message_id or was_streaming):
                self._end_line()
                self._message_id = event.message_id
            self._write(piece)
            self._wrote = self._wrote or bool(piece)
        elif event.type == e.TOOL_USE:
            self._end_line()
        elif event.type == e.RETRACTED and was_streaming:
            self._end_line()
            _say("claude_cli_client: the connection broke; the last lines are void")

    def end(self) -> None:
        """Write what only the result has, and the last newline."""
        last = self._last
        if last is not None and last.type == e.RESULT and not last.is_error:
            if self._only_structured:
                if last.structured_output is not None:
                    self._write(json.dumps(last.structured_output, ensure_ascii=False))
            elif not self._wrote:  # slash commands answer in the result alone
                self._write(last.result)
        self._end_line()


class Lines(_Output):
    """`--json`: one JSON object for each event, see `event_fields`."""

    def __init__(self, stream: TextIO, *, with_data: bool = False) -> None:
        super().__init__(stream)
        self._with_data = with_data

    def would_write(self, event: Event) -> bool:
        """Every event is a line."""
        return self._terminal

    def event(self, event: Event) -> None:
        """Write it."""
        fields = event_fields(event, with_data=self._with_data)
        self._write(json.dumps(fields, ensure_ascii=True, default=str) + "\n")

    def end(self) -> None:
        """Nothing is left to write."""


_KNOWN_TYPES: Final = frozenset(
    value for name, value in vars(e).items() if name.isupper() and isinstance(value, str) and name != "INIT"
)


def event_fields(event: Event, *, with_data: bool = False) -> dict[str, Any]:
    """An event as `--json` prints it: its fields that differ from their defaults.

    `raw` is left out, since it says everything a second time. `data`, the CLI's own line decoded,
    is there on request, and for types that this version does not know, whose content is nowhere else.
    """
    fields = {
        name: value
        for name, default in e._DEFAULTS.items()
        if name != "raw" and (value := getattr(event, name)) != default
    }
    if with_data or event.type not in _KNOWN_TYPES:
        data = event.data
        if data:
            fields["data"] = data
    return fields
