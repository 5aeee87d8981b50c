"""A summary from the two ends of a transcript, without parsing what cannot matter.

Pure: bytes in. The same as folding every line that is whole (`summarize`), at a fraction of the time: the
first lines are parsed until all is known that the earliest line decides; then, for each field that the
latest line decides, the lines that hold its name, from the end, until one says it. The search only
chooses which lines to parse; what counts is what the parsed line says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from ._summary import LATEST_FIELDS, is_begun, says, summarize

# Large lines that are the CLI's alone, no part of any conversation: not worth the parsing.
_RECORDS: Final = b'{"type":"api-request'


def entry_of(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None for everything else. Bad bytes are replaced."""
    if not line.startswith(b"{") or line.startswith(_RECORDS):
        return None
    try:
        value = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def summary_of(parts: Sequence[bytes]) -> dict[str, Any]:
    """Of a whole transcript, or of its beginning and its end. A line that is cut there does not parse.

    (Nor does the end of a line pass for a line: it has a brace too many.)
    """
    summary: dict[str, Any] = {}
    for line in (line for part in parts for line in part.split(b"\n")):
        entry = entry_of(line)
        if entry is not None:
            summary = summarize(summary, (entry,))
            if is_begun(summary):
                return summarize(summary, _latest(parts))
    return summary


def _latest(parts: Sequence[bytes]) -> list[dict[str, Any]]:
    """For each field of which the latest value counts the last entry that has it, in their order."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for field in LATEST_FIELDS:
        name = b'"%s"' % field.encode()
        for number in reversed(range(len(parts))):
            at, entry = _last_that_says(parts[number], name, field)
            if entry is not None:
                found[number, at] = entry
                break
    return [found[place] for place in sorted(found)]


def _last_that_says(part: bytes, name: bytes, field: str) -> tuple[int, dict[str, Any] | None]:
    """Where that line begins, and its entry. Each line is parsed once at most."""
    start = len(part)
    while (at := part.rfind(name, 0, start)) >= 0:
        start = part.rfind(b"\n", 0, at) + 1
        end = part.find(b"\n", at)
        entry = entry_of(part[start:] if end < 0 else part[start:end])
        if entry is not None and says(entry, field):
            return start, entry
    return -1, None
