"""A lock that a fork waits for: no child is born in the middle of what it protects.

For state that is changed in more than one step, in modules that the engine does not need. What is
said in `_fork` about Ctrl-C holds here too: acquire and release are C functions.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import TYPE_CHECKING, Any

from . import _fork

if TYPE_CHECKING:
    from collections.abc import Callable

# A fork goes on after so many seconds: what the lock protects may hang, on a dead disk say.
WAITS = 10.0


def fork_lock(then: Callable[[], object] | None = None) -> Any:
    """A new one, for the life of the process. `then` is called before each fork, with the lock held.

    Reentrant: a signal handler may fork on the thread that holds it, and then holds it in the child
    too. Where the fork did not wait until the end, `then` is called all the same, and the lock is free
    in the child: its holder is not there.
    """
    lock = threading.RLock()
    reinit: Callable[[], None] = getattr(lock, "_at_fork_reinit")  # noqa: B009 - as in `_fork`

    def free() -> None:
        try:
            lock.release()  # what this thread acquired for the fork
        except RuntimeError:
            reinit()

    _fork.on_child(free)
    # Hooks run in the reverse order of their registration.
    if hasattr(os, "register_at_fork"):
        if then is not None:
            os.register_at_fork(before=then)
        # `release` raises where `acquire` gave up, which the interpreter reports and ignores.
        os.register_at_fork(before=functools.partial(lock.acquire, timeout=WAITS), after_in_parent=lock.release)
    return lock
