"""Shell commands, read for rules that allow: whether their text is plain enough to compare.

Pure. This is no shell: it does not find out what a command does. `parts` gives the simple commands
that a command consists of. It knows words, quotes that nothing is expanded in, and `;`, `&&`, `||`,
`|`, newline between; and redirections that write no file (`2>&1`, `>/dev/null`), which it leaves out:
models add them to any command. Everything else (`$`, backticks, other redirections, `&`, parentheses,
backslashes, comments, control characters) is `Unclear`, and so never allowed by a pattern. A grammar of what is
let through, not a list of what is dangerous: what nobody thought of is refused.

Rules that deny ask the opposite question, and have an answer of their own: see `_suspicion.py`.
"""

from __future__ import annotations

import re
from typing import Final


class Unclear(Exception):
    """The command cannot be told from its text; the message says why."""


_TOKEN: Final = re.compile(
    r"""
    (?P<nowhere> (?<![^\s;|]) (?: [0-9]?>&[0-9] | [0-9]?>[ ]?/dev/null ) (?![^\s;|]) )
  | (?P<between> && | \|\| | [;|\n] )
  | [ \t]+
  | '[^']*'
  | " (?: [^"\\$`] | \\. )* "
  | (?<= [^\s;|&] ) \#                            # inside a word; else it begins a comment
  | [^\x00-\x20\x7f'"\\$`;&|<>()\#]+
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,  # what else is white to Python is a letter to a shell
)
ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=")

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
    found = [_TOKEN.sub(_written, command[start:end]).strip(" \t") for start, end in cut(command, _TOKEN)]
    commands = [part for part in found if part]
    if not commands:
        raise Unclear("it holds no command")
    for part in commands:
        if ASSIGNMENT.match(part):
            raise Unclear("it sets a variable")
    return commands


def _written(token: re.Match[str]) -> str:
    return "" if token["nowhere"] else token[0]


def cut(command: str, tokens: re.Pattern[str]) -> list[tuple[int, int]]:
    """Where the parts of a command begin and end, if it holds no other tokens than these."""
    found, start, position = [], 0, 0
    while position < len(command):
        token = tokens.match(command, position)
        if token is None:
            raise Unclear(_why(command, position))
        if token["between"]:
            found.append((start, position))
            start = token.end()
        position = token.end()
    return [*found, (start, len(command))]


def _why(command: str, position: int) -> str:
    character = command[position]
    if character == '"':
        return "it holds an expansion in double quotes, or an open quote"
    return f"it holds {_WHY.get(character, 'a control character')}"
