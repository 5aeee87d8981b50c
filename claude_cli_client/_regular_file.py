"""Files of somebody else's, opened without ever waiting: only regular ones. A pipe of that name would be waited for,
and no limit of a turn holds on the thread that does.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

_OPEN: Final = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def opened(path: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor. Raises OSError, EINVAL for what is no regular file."""
    fd = os.open(path, flags | _OPEN)
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        raise OSError(errno.EINVAL, "not a regular file", path)
    except BaseException:
        os.close(fd)
        raise


def content(path: str, limit: int = -1) -> bytes:
    """What is in it, or the first `limit` bytes."""
    with os.fdopen(opened(path), "rb") as file:
        return file.read(limit)
