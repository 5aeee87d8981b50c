"""Shell commands, read as carefully as their reader deserves: for rules that allow and that deny.

Pure. This is no shell: it does not find out what a command does, only whether its text is plain
enough to say. The two questions err to opposite sides:

* `parts`, for allowing: the simple commands that a command consists of. It knows words, quotes that
  nothing is expanded in, and `;`, `&&`, `||`, `|`, newline between. Everything else (`$`, backticks,
  redirections, `&`, parentheses, backslashes, comments, control characters) is `Unclear`, and so
  never allowed by a pattern. A grammar of what is let through, not a list of what is dangerous:
  what nobody thought of is refused.
* `spoken`, for denying: every text that might be a command in it, and too many rather than too few:
  quotes and backslashes are taken away, each word may be where a command begins (`sudo`, `env`,
  `xargs`, `find -exec`, `sh -c`), and a program's path counts as its name. Where words could come
  out of an expansion it is `Unclear`, and what cannot be read counts as denied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final


class Unclear(Exception):
    """The command cannot be told from its text; the message says why."""


# Longer commands are not searched for what is denied: each word is a beginning, which is quadratic.
MAX_LENGTH: Final = 5_000

_TOKEN: Final = re.compile(
    r"""
    (?P<between> && | \|\| | [;|\n] )
  | [ \t]+
  | '[^']*'
  | " (?: [^"\\$`] | \\. )* "
  | (?<= [^\s;|&] ) \#                            # inside a word; else it begins a comment
  | [^\x00-\x20\x7f'"\\$`;&|<>()\#]+
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=")

_WHY: Final = {
    "$": "an expansion ($)",
    "`": "a command substitution (`)",
    "<": "a redirection (<)",
    ">": "a redirection (>)",
    "&": "a background command (&)",
    "(": "parentheses",
    ")": "parentheses",
    "\\": "a backslash outside of quotes",
    "#": "a comment (#)",
    "'": "an open quote",
}


def parts(command: str) -> list[str]:
    """The simple commands of `command`, as they are written. Raises Unclear for all that is not plain."""
    found, start, position = [], 0, 0
    while position < len(command):
        token = _TOKEN.match(command, position)
        if token is None:
            raise Unclear(_why(command, position))
        if token["between"]:
            found.append(command[start:position])
            start = token.end()
        position = token.end()
    found = [part.strip(" \t") for part in [*found, command[start:]]]
    commands = [part for part in found if part]
    if not commands:
        raise Unclear("it holds no command")
    for part in commands:
        if _ASSIGNMENT.match(part):
            raise Unclear("it sets a variable")
    return commands


def _why(command: str, position: int) -> str:
    character = command[position]
    if character == '"':
        return "it holds an expansion in double quotes, or an open quote"
    return f"it holds {_WHY.get(character, 'a control character')}"


# --- for denying

_QUOTED: Final = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|(?<![^\s;|&()])\#|.""", re.DOTALL)
_EXPANDS: Final = re.compile(r"[$`]|[<>]\(|\{[^{}]*(?:,|\.\.)")
# Programs whose quoted arguments are commands.
_RUNS_TEXT: Final = re.compile(r"\b(?:eval|(?:ba|z|da|k|c|tc|fi)?sh|su|ssh|watch|trap|parallel|env|xargs)\b")
# Programs that run another one, whose name could come out of a pattern of file names.
_RUNS_WORDS: Final = re.compile(
    r"\b(?:eval|trap|source|exec|command|builtin|sudo|doas|env|nohup|time|timeout|nice|ionice|setsid|stdbuf|xargs"
    r"|parallel|watch)\b"
)
_GLOB: Final = re.compile(r"[*?\[]")
_ENDS: Final = (r"[;&|\n\r(){}<>!]+", r"[;&|\n\r(){}<>!=]+", r"\n+")


def spoken(command: str) -> Iterator[str]:
    """Everything in `command` that might be a command. Raises Unclear where words could be anything."""
    if len(command) > MAX_LENGTH:
        raise Unclear(f"it is longer than {MAX_LENGTH} characters")
    command = command.replace("\\\n", "")
    if _EXPANDS.search(command if _RUNS_TEXT.search(command) else _expandable(command)):
        raise Unclear("it holds an expansion")
    bare = re.sub(r"""['"\\]""", "", command)
    if _GLOB.search(bare) and _RUNS_WORDS.search(bare):
        raise Unclear("a pattern of file names could be a program in it")
    if any(_GLOB.search("".join(piece.split()[:1])) for piece in re.split(_ENDS[0], bare)):
        raise Unclear("its first word is a pattern of file names")
    pieces = {
        " ".join(piece.split()): None for text in (command, bare) for ends in _ENDS for piece in re.split(ends, text)
    }
    for piece in pieces:
        yield from _beginnings(piece)


def _beginnings(piece: str) -> Iterator[str]:
    """The text from each word on; of a word that is a path, from its last name on as well."""
    start = 0
    while piece[start:]:
        yield piece[start:]
        end = piece.find(" ", start)
        end = len(piece) if end < 0 else end
        slash = piece.rfind("/", start, end)
        if slash >= 0:
            yield piece[slash + 1 :]
        start = end + 1


def _expandable(command: str) -> str:
    """The command without what stands in single quotes, and without the braces of double ones."""
    kept = []
    for token in _QUOTED.findall(command):
        if token == "#":
            raise Unclear("it holds a comment")  # a quote in it would hide what comes after
        if token[0] == "'" and len(token) > 1:
            continue
        if token[0] == '"' and len(token) > 1:
            token = re.sub(r"[{}]|\\.", "", token, flags=re.DOTALL)
        elif token[0] == "\\":
            continue
        kept.append(token)
    return "".join(kept)
