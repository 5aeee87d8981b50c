r"""Path rules: which files `Edit(src/**)` means.

Pure, so symlinks are not resolved and no directory is looked at: a link inside of an allowed
directory leads where it leads. The CLI sends absolute paths, with `~` and `..` resolved.

The patterns are those of .gitignore, as far as they can be read in one way only: `*` and `?` within a
name, `**` for any number of directories. `//x` is absolute, `~/x` in the home, everything else from the
working directory. Where that is not known, a rule that allows means no absolute path.

Allowing and denying differ as in `_rules.py`. To allow, the pattern must fit the whole path, and a path
with `..` in it fits none; `*.md` is what lies in the working directory itself. To deny, it is enough to
fit a directory above the path, a relative pattern at any depth, in any case of letters and any
composition of accents, as disks may have it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAX_LENGTH: Final = 4096  # Linux's own limit of a path


@dataclass(frozen=True)
class Places:
    """Where relative paths begin. "" is unknown."""

    cwd: str = ""
    home: str = ""


@dataclass(frozen=True)
class PathPattern:
    """A pattern: the place it begins at ("/", "~" or "."), and its segments."""

    place: str
    segments: tuple[str, ...]

    def surely(self, path: str, places: Places) -> bool:
        """Whether `path` is meant, without a doubt."""
        base = self._base(places)
        if base is None:
            # From an unknown place: only what begins at the same one.
            return self.place == "." and _relative(path) and _fits(self.segments, _split(path))
        found = _absolute(path, places)
        return found is not None and _fits((*base, *self.segments), found, len(base))

    def maybe(self, path: str, places: Places) -> bool:
        """Whether `path` might be meant."""
        found = _split(path) if _relative(path) else _absolute(path, places)
        if found is None:
            return True
        # Relative rules at any depth: the working directory may have another name by a link, and
        # who writes `/etc/passwd` may mean the one of the system.
        base = None if self.place == "." else self._base(places)
        base = ("**",) if base is None or _relative(path) else base
        segments = (*_folded(base), *_folded(self.segments))
        found, fixed = _folded(found), 0 if base == ("**",) else len(base)
        return any(_fits(segments, found[:length], fixed) for length in range(1, len(found) + 1))

    def _base(self, places: Places) -> tuple[str, ...] | None:
        base = {"/": "/", "~": places.home, ".": places.cwd}[self.place]
        return _split(base) if base else None


def _split(path: str) -> tuple[str, ...]:
    return tuple(segment for segment in path.split("/") if segment not in ("", "."))


def _relative(path: str) -> bool:
    return not path.startswith(("/", "~")) and ".." not in path.split("/")


def _absolute(path: str, places: Places) -> tuple[str, ...] | None:
    """The segments of a path from the root; None where they are not known, or could lead elsewhere."""
    if len(path) > MAX_LENGTH or "\0" in path or ".." in path.split("/"):
        return None
    if path.startswith("/"):
        return _split(path)
    if path == "~" or path.startswith("~/"):
        return (*_split(places.home), *_split(path[1:])) if places.home else None
    if path.startswith("~") or not places.cwd or not path.strip():
        return None
    return (*_split(places.cwd), *_split(path))


def _folded(segments: tuple[str, ...]) -> tuple[str, ...]:
    import unicodedata  # only where something is denied

    return tuple(unicodedata.normalize("NFC", unicodedata.normalize("NFC", segment).casefold()) for segment in segments)


def _fits(pattern: tuple[str, ...], path: tuple[str, ...], fixed: int = 0) -> bool:
    """Whether the whole path fits. The first `fixed` segments of the pattern are no patterns."""
    if pattern[:fixed] != path[:fixed]:
        return False
    return bool(_expression(pattern[fixed:]).fullmatch("".join("/" + segment for segment in path[fixed:])))


def _expression(pattern: tuple[str, ...]) -> re.Pattern[str]:
    made = ""
    for index, segment in enumerate(pattern):
        if segment != "**":
            made += "/" + "".join(_ONE.get(character) or re.escape(character) for character in segment)
        elif index == len(pattern) - 1:
            made += "(?:/[^/]+)+"  # what is in a directory, not itself
        else:
            made += "(?:/[^/]+)*"
    return re.compile(made, re.DOTALL)  # `re` keeps the latest ones


_ONE: Final = {"*": "[^/]*", "?": "[^/]"}


def pattern(text: str) -> PathPattern:
    """Read a path rule. ValueError for what could be read in two ways."""
    place, rest = ".", text
    if text.startswith("//"):
        place, rest = "/", text[2:]
    elif text.startswith("~/"):
        place, rest = "~", text[2:]
    elif text.startswith("~"):
        raise ValueError(f"a path of another user's home cannot be told: {text[:60]!r}")
    segments = _split(rest)
    if not segments or ".." in rest.split("/"):
        raise ValueError(f"a path rule must name something, and without '..': {text[:60]!r}")
    if re.search(r"[\[\]{}\\!\x00-\x1f]", rest):
        raise ValueError(f"a path rule knows '*', '?' and '**', and no other special characters: {text[:60]!r}")
    if any("**" in segment and segment != "**" for segment in segments):
        raise ValueError(f"'**' must stand alone between slashes: {text[:60]!r}")
    while rest.endswith("/") and segments[-1] != "**":
        segments = (*segments, "**")  # a directory is what is in it
    return PathPattern(place, segments)
