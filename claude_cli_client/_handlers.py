"""What an OSError may be taken for, where a function takes one for an answer ("not there").

**Not for one of the host's.**

Python runs signal handlers on the main thread, in the middle of whatever is there; so also where one of our
functions takes an OSError for an answer ("not there"). A limit of a job that raises `TimeoutError("...")`, which is
an OSError, would be lost there, and the job go on with a list that is not whole. What the system refuses has an
errno; what a handler raises with a sentence of its own has none.

On threads of our own no handler runs, so what is done only there does not need this. What Python's functions take
for an answer themselves (`os.path.isdir`) cannot be told.

**Not where the system could not look.** Who has no descriptor left, or whose network disk is away, has not learnt that
there is no file. Where that would be believed (settings with a rule that denies, the latest session, turns that a
store lacks), a turn would go on without them, and nobody hear of it: better none.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

# Nothing has this name, or nothing that this user may see, or it is no regular file.
_ABSENT: Final = frozenset((
    errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EISDIR, errno.EINVAL,
    errno.ENXIO,
))  # fmt: skip
Doubt = Callable[[BaseException], None]  # one of the `raise_...` below: raises again what is no answer

_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))


def is_hosts(error: BaseException) -> bool:
    """Whether it is an OSError, and of no system call."""
    return isinstance(error, OSError) and error.errno is None


def raise_hosts(error: BaseException) -> None:
    """Raise it again if it is the host's: the first thing where an OSError is taken for an answer."""
    if is_hosts(error):
        raise error


def is_absence(error: OSError) -> bool:
    """Whether it says that there is nothing for us."""
    return error.errno in _ABSENT


def raise_unless_absent(error: BaseException) -> None:
    """Raise an OSError again unless it says that there is nothing for us."""
    if isinstance(error, OSError) and not is_absence(error):
        raise error


def raise_unless_of_file(error: BaseException) -> None:
    """Raise an OSError again unless it is about one file, which a list may do without, as one on a bad disk."""
    if is_hosts(error) or (isinstance(error, OSError) and error.errno in _EXHAUSTED):
        raise error
