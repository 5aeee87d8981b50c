"""What is said of a command line that is wrong, in the words of who types flags.

The library names its options (`max_turns`), the program has flags for them (`--max-turns`). `flags` is the one
from the other. May not do: change what the CLI or the API said. So a name is only taken for an option where
our own sentences have one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ._argv import OPTIONS
from ._merge import ALIASES

# What no option is called, and what somebody means by it who has read of `unattended(allow=..., deny=...)`.
_MEANT: Final = {"allow": "allowed_tools", "deny": "disallowed_tools"}

# A value that a sentence quotes, or as much as it shows of one. An apostrophe stands behind a letter.
_QUOTED: Final = r"""(?<!\w)'(?:\\.|[^'\\])*(?:'|$)|"(?:\\.|[^"\\])*(?:"|$)"""


def in_flags(message: str, flags: Mapping[str, str], refused: bool = False) -> str:
    """An error of the library with flags for options.

    Its first line only, and only `name=` without a value, of what to change or give: the rest may be the CLI's
    or the API's words. What stands in quotes is a value, and stays. `refused`: nothing was started, so all of it
    is ours, with the options' bare names.
    """
    first, *rest = message.split("\n")
    names = "|".join(flags)

    def flag(found: re.Match[str]) -> str:
        return flags[found[1]] if found[1] else found[0]

    first = re.sub(rf"{_QUOTED}|(?<![\w-])({names})=(?:True)?(?![^\s;,)])", flag, first)
    if refused:
        # At the beginning, behind "use" and the like, or with a "_" that no English word has; not in a path or value.
        place = r"^|(?<=\buse )|(?<=\bgive )|(?<=\bneeds )|(?<![\w'/.-])(?=\w*_)"
        first = re.sub(rf"{_QUOTED}|(?:{place})({names})(?![\w'/.=-])", flag, first)
    rest = [re.sub(r'\bcli_path="([^"]*)"', r"--cli-path \1", line) for line in rest]
    return "\n".join([first, *rest])


def unknown(words: Sequence[str], prompt: str | None, known: Collection[str], flags: Mapping[str, str]) -> str:
    """Words that are neither a flag nor the prompt: what may be meant."""
    word = next((word.partition("=")[0] for word in words if word.startswith("-")), "")
    if not word and prompt is not None:
        return f"the prompt is one argument, quote it: {' '.join([prompt, *words])[:60]!r}; see --help"
    return f"unknown: {word or words[0]}; {_hint(word, known, flags)}see --help"


def _hint(word: str, known: Collection[str], flags: Mapping[str, str]) -> str:
    import difflib

    name = word.strip("-").replace("-", "_")
    option = _MEANT.get(name) or ALIASES.get(name, name)
    if option in OPTIONS and option not in flags:
        return f"{option} is for Python only; "
    near = [flags[option]] if option in flags else difflib.get_close_matches(word, known, 1, 0.7)
    return f"did you mean {near[0]}? " if near and not near[0].startswith("--dangerously") else ""
