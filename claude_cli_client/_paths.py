r"""Path rules: which files `Edit(src/**)` means.

Pure, so symlinks are not resolved and no directory is looked at: a link inside of an allowed
directory leads where it leads. The CLI sends absolute paths, with `~` and `..` resolved. A place may
have several names, as given and without links; who asks knows them.

The patterns are those of .gitignore, as far as they can be read in one way only: `*` and `?` within a
name, `**` for any number of directories. `//x` is absolute, `~/x` in the home, everything else from the
working directory. Where that is not known, a rule that allows means no absolute path.

Allowing and denying differ as in `_rules.py`. To allow, the pattern must fit the whole path, and a path
with `..` in it fits none; `*.md` is what lies in the working directory itself. To deny, it is enough to
fit a directory above the path, a relative pattern at any depth, in any case of letters and any
composition of accents, as disks may have it; and what leads through the system's own links
(`/proc/self/root`) may be any file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from ._globs import fits

MAX_LENGTH: Final = 4096  # Linux's own limit of a path

Segments: TypeAlias = "tuple[str, ...]"


@dataclass(frozen=True)
class Places:
    """Where relative paths begin: all names of the place. None is unknown."""

    cwd: tuple[str, ...] = ()
    home: tuple[str, ...] = ()


@dataclass(frozen=True)
class PathPattern:
    """A pattern: the place it begins at ("/", "~" or "."), and its segments, of which `**` is any number."""

    place: str
    segments: tuple[str, ...]

    def surely(self, path: str, places: Places) -> bool:
        """Whether `path` is meant, without a doubt."""
        bases = self._bases(places)
        if not bases:
            # From an unknown place: only what begins at the same one.
            return self.place == "." and _relative(path) and _fits(self.segments, _split(path))
        found = _absolute(path, places)
        return any(_fits((*base, *self.segments), name, len(base)) for base in bases for name in found)

    def maybe(self, path: str, places: Places) -> bool:
        """Whether `path` might be meant."""
        names = [_folded(name) for name in (*_absolute(path, places), *[_split(path)] * _relative(path))]
        if not names or any(map(_through_a_link, names)):
            return True
        # Relative rules at any depth: the working directory may have another name by a link, and
        # who writes `/etc/passwd` may mean the one of the system.
        bases: list[Segments | None] = [*self._bases(places)]
        if not bases or self.place == "." or _relative(path):
            bases.append(None)
        return any(self._above(base, name) for base in bases for name in names)

    def _above(self, base: Segments | None, path: Segments) -> bool:
        """Whether the pattern, at a place or at any, fits the path or a directory above it."""
        below = (*_folded(self.segments), "**")
        if base is None:
            return _fits(("**", *below), path)
        segments = _shortened((*_folded(base), *below))
        return _fits(segments, _shortened(path), max(0, len(segments) - len(below)))

    def _bases(self, places: Places) -> list[Segments]:
        return [_split(base) for base in {"/": ("/",), "~": places.home, ".": places.cwd}[self.place]]


def _split(path: str) -> Segments:
    return tuple(segment for segment in path.split("/") if segment not in ("", "."))


def _relative(path: str) -> bool:
    return len(path) <= MAX_LENGTH and not path.startswith(("/", "~")) and ".." not in path.split("/")


def _absolute(path: str, places: Places) -> list[Segments]:
    """The segments of a path from the root; none where they are not known, or could lead elsewhere."""
    if len(path) > MAX_LENGTH or "\0" in path or ".." in path.split("/"):
        return []
    if path.startswith("/"):
        return [_split(path)]
    if path == "~" or path.startswith("~/"):
        return [(*_split(home), *_split(path[1:])) for home in places.home]
    if path.startswith("~") or not path.strip():
        return []
    return [(*_split(cwd), *_split(path)) for cwd in places.cwd]


def _folded(segments: Segments) -> Segments:
    import unicodedata  # only where something is denied

    plain = (unicodedata.normalize("NFC", segment.translate(IGNORED)).casefold() for segment in segments)
    return tuple(unicodedata.normalize("NFC", segment) for segment in plain)


# Characters that old disks of Macs leave out of names.
IGNORED: Final = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])


# Directories of links that may lead to any file.
_LINKS: Final = {"proc": {"root", "cwd", "fd", "exe", "map_files"}, "dev": {"fd"}}


def _through_a_link(path: Segments) -> bool:
    return path[:1] == (".vol",) or not _LINKS.get(path[0] if path else "", set()).isdisjoint(path[1:])


# On a Mac these are other names of what lies below the root.
_SAME: Final = (("private",), ("system", "volumes", "data"))


def _shortened(path: Segments) -> Segments:
    return next((path[len(same) :] for same in _SAME if path[: len(same)] == same), path)


def _fits(pattern: Segments, path: Segments, fixed: int = 0) -> bool:
    """Whether the whole path fits. The first `fixed` segments of the pattern are no patterns."""
    return pattern[:fixed] == path[:fixed] and fits(pattern[fixed:], path[fixed:], "**", _is_named)


def _is_named(segment: str, name: str) -> bool:
    return segment == name or fits(segment, name, "*", lambda wanted, letter: wanted in ("?", letter))


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
    if rest.endswith("/") and segments[-1] != "**":
        segments = (*segments, "**")
    if segments[-1] == "**":
        segments = (*segments[:-1], "*", "**")  # what is in a directory, not itself
    return PathPattern(place, segments)
