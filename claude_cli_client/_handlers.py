"""Whose an OSError is: the system's, or a signal handler's of the host.

Python runs signal handlers on the main thread, in the middle of whatever is there; so also where one of our
functions takes an OSError for an answer ("not there"). A limit of a job that raises `TimeoutError("...")`, which is
an OSError, would be lost there, and the job go on with a list that is not whole. What the system refuses has an
errno; what a handler raises with a sentence of its own has none.

On threads of our own no handler runs, so what is done only there does not need this. What Python's functions take
for an answer themselves (`os.path.isdir`) cannot be told.
"""

from __future__ import annotations


def is_hosts(error: BaseException) -> bool:
    """Whether it is an OSError, and of no system call."""
    return isinstance(error, OSError) and error.errno is None


def raise_hosts(error: BaseException) -> None:
    """Raise it again if it is the host's: the first thing where an OSError is taken for an answer."""
    if is_hosts(error):
        raise error
