"""The CLI's own files of settings: where they are, and what is in one, read as the CLI reads it.

Leniently: a mark in front, bytes that are no text, numbers of any length and an empty file are taken (seen
with 2.1.332). Who looks for what denies something must not be stricter, else he misses it. And only a
file: a pipe of that name would be waited for.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ._handlers import raise_unless_absent
from ._objects import loads
from ._regular_file import content


def managed_folder(platform: str = sys.platform) -> str:
    """Where those who manage this machine set what is above everybody else's."""
    return "/Library/Application Support/ClaudeCode" if platform == "darwin" else "/etc/claude-code"


def managed_settings(folder: str) -> list[str]:
    """Their files, the weakest first."""
    more = f"{folder}/managed-settings.d"
    try:
        names = sorted(name for name in os.listdir(more) if name.endswith(".json") and not name.startswith("."))
    except OSError as error:
        raise_unless_absent(error)
        names = []
    return [f"{folder}/managed-settings.json", *(f"{more}/{name}" for name in names)]


def read_json(path: str) -> Any:
    """What is in it, {} for nothing. Raises OSError, and ValueError or RecursionError for what is no JSON."""
    return parsed(content(path))


def parsed(data: bytes) -> Any:
    """Raises ValueError or RecursionError for what is no JSON."""
    text = data.decode("utf-8-sig", "replace")
    return loads(text) if text.strip() else {}
