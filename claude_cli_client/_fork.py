"""What `os.fork` does to us, in one place.

A forked child has copies of everything: descriptors of its parent's runs, locks as they stood,
and objects whose threads do not exist in it. Three rules keep parent and child apart:

* `era` is a new object in every process. Whoever holds state of a run or a client remembers the
  era in which it was made and compares it (`is`, 25 ns) at every public entry. In a child all of
  the parent's runs belong to another era: they are never signalled, waited for or unlinked there.
* Every descriptor of a run stands in `descriptors` from before its creation is visible to
  anybody until after it is closed. A child closes its copies at once: a copy of a pipe's write
  end would delay the parent's end of file until the child ends.
* `spawning` is held while a CLI or a guard is started, that is, while the write ends of its pipes
  exist in this process. `os.fork` waits for it (its holder is about to finish `Popen`, which is
  bounded by the kernel's exec), so no child is born holding a write end that is not listed yet.

Sets and dicts are changed by single operations that the interpreter does not interrupt, so a
child finds them whole.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

era = object()
descriptors: set[int] = set()
spawning = threading.Lock()
_in_child: list[Callable[[], None]] = []

# A fork must not hang because a spawn does (an executable on a dead network mount): it goes on
# after this many seconds, at the price of a possible late end of file.
_FORK_WAITS = 10.0


def on_child(hook: Callable[[], None]) -> None:
    """Call `hook` in every forked child, on its only thread, before `os.fork` returns there."""
    _in_child.append(hook)


def close(fd: int) -> None:
    """Close a listed descriptor."""
    os.close(fd)
    descriptors.discard(fd)


def check() -> None:
    """Notice a fork that did not come through Python, whose hooks have not run. At public entries."""
    if os.getpid() != _pid:
        _after_in_child()


def _before() -> None:
    global _held
    _held = spawning.acquire(timeout=_FORK_WAITS)


def _after_in_parent() -> None:
    if _held:
        spawning.release()


def _after_in_child() -> None:
    global era, spawning, _pid
    era = object()
    _pid = os.getpid()
    spawning = threading.Lock()  # the old one may be held by a thread that is not here
    for fd in descriptors:
        try:
            os.close(fd)
        except OSError:
            continue  # closed by the parent's thread just before the fork: nothing to do
    descriptors.clear()
    for hook in _in_child:
        hook()


_held = False
_pid = os.getpid()
os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
