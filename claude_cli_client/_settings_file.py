"""The CLI's own files of settings: where they are, and what is in one, read as the CLI reads it.

Leniently: a mark in front, bytes that are no text, numbers of any length and an empty file are taken (seen
with 2.1.332). Who looks for what denies something must not be stricter, else he misses it. And only a
file: a pipe of that name would be waited for.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import Any

from ._objects import loads


def managed_settings(platform: str = sys.platform) -> str:
    """What those who manage this machine have set, above everybody else."""
    folder = "/Library/Application Support/ClaudeCode" if platform == "darwin" else "/etc/claude-code"
    return f"{folder}/managed-settings.json"


def read_json(path: str) -> Any:
    """What is in it, {} for nothing. Raises OSError, and ValueError or RecursionError for what is no JSON."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        text = file.read()
    return loads(text) if text.strip() else {}
