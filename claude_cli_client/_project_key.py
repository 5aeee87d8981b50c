"""The name of a project's folder, exactly as the CLI makes it from a working directory.

Pure: the caller resolves symlinks first, as the CLI does (it takes the real path; `PWD` does not
matter). Seen with CLI 2.1.332:

- every UTF-16 code unit that is not an ASCII letter or digit becomes `-`, so an emoji gives two;
- Unicode is not normalised on Linux: a decomposed accent is a letter and a `-`;
- above 200 characters the name is cut there, and `-` and a hash of the whole path follow.

Other builds of the CLI used another hash. So a name that was cut is looked for by its beginning,
too: see `is_cut` and `prefix`.
"""

from __future__ import annotations

import re
from typing import Final

_LONGEST: Final = 200  # characters, before the hash
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_OTHER: Final = re.compile(r"[^A-Za-z0-9]")
# Not `_checks.repaired`: the simulated CLI carries this module along alone, so it imports none of ours.
_UNDECODED: Final = re.compile("[\ud800-\udfff]")


def project_key(path: str) -> str:
    """The folder's name for a real, absolute path. Undecodable bytes (surrogates) count as U+FFFD."""
    name = _OTHER.sub(lambda found: "-" * _units(found[0]), path)
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}-{_hash(path)}"


def is_cut(key: str) -> bool:
    """Whether such a name was too long, so that its end is a hash."""
    return len(key) > _LONGEST


def prefix(key: str) -> str:
    """What every build of the CLI agrees on, of a name that was cut."""
    return key[: _LONGEST + 1]


def _units(character: str) -> int:
    return 2 if character > "\uffff" else 1


def _hash(path: str) -> str:
    """JavaScript's `h = h * 31 + unit | 0` over the UTF-16 units, its absolute value in base 36."""
    units = _UNDECODED.sub("\ufffd", path).encode("utf-16-le")
    value = 0
    for at in range(0, len(units), 2):
        value = (value * 31 + units[at] + (units[at + 1] << 8)) & 0xFFFFFFFF
    if value >= 0x80000000:
        value = 0x100000000 - value
    digits = ""
    while value:
        value, rest = divmod(value, 36)
        digits = _DIGITS[rest] + digits
    return digits or "0"
