"""What `os.fork` does to us, in one place.

A forked child has copies of everything: descriptors of its parent's runs, locks as they stood,
and objects whose threads do not exist in it. Three rules keep parent and child apart:

* `era` is a new object in every process. Whoever holds state of a run or a client remembers the
  era in which it was made and compares it (`is`, 25 ns) at every public entry. In a child all of
  the parent's runs belong to another era: they are never signalled, waited for or unlinked there.
* Every descriptor of a run stands in `descriptors` from its creation until it is closed. A child
  closes its copies at once: a copy of a pipe's write end would delay the parent's end of file until
  the child ends. `listing` is held while one is made or closed, and by a fork: in between a number
  may be open and not listed, or listed and already a file of the user.
* `spawning` is held while a CLI or a guard is started, that is, while the write ends of its pipes
  exist in this process. `os.fork` waits for it (its holder is about to finish `Popen`, which is
  bounded by the kernel's exec), so no child is born holding a write end that is not listed yet.

Sets and dicts are changed by single operations that the interpreter does not interrupt, so a
child finds them whole.

Ctrl-C may arrive in the middle of `os.fork`. The interpreter drops what a hook raises, so a hook in
Python that it interrupts is a hook that did not run, with `spawning` held for ever say. Hence those
that take and release it are C functions, which no signal handler interrupts between two steps, and
the child's is registered twice.
"""

from __future__ import annotations

import errno
import functools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ._handlers import raise_hosts

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    _P = ParamSpec("_P")

era = object()
descriptors: set[int] = set()
# Reentrant, so that they know their owner: a fork that did not wait must not release them.
# The order: `spawning`, `listing`, and then the lock of a `WakeUp`.
spawning = threading.RLock()
listing = threading.RLock()
_in_child: list[Callable[[], None]] = []

# A fork must not hang because a spawn does (an executable on a dead network mount): it goes on
# after this many seconds, at the price of a possible late end of file.
_FORK_WAITS = 10.0


def on_child(hook: Callable[[], None]) -> None:
    """Call `hook` in every forked child, on its only thread, before `os.fork` returns there."""
    _in_child.append(hook)


def close(fd: int) -> None:
    """Close a listed descriptor. One that the host has closed (`os.closerange`) is gone as it should be."""
    with listing:
        descriptors.discard(fd)
        try:
            os.close(fd)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise


def listed(opener: Callable[_P, int], *args: _P.args, **named: _P.kwargs) -> int:
    """The descriptor that `opener` makes, listed."""
    with listing:
        fd = opener(*args, **named)
        descriptors.add(fd)
        return fd


def check() -> None:
    """Notice a fork that did not come through Python, whose hooks have not run. At public entries."""
    if os.getpid() != _pid:
        _after_in_child()


def _after_in_child() -> None:
    global era, _pid
    era = object()
    for lock in (spawning, listing):
        # It may be held by a thread that is not here. `threading` itself does it this way.
        reinit: Callable[[], None] = getattr(lock, "_at_fork_reinit")  # noqa: B009
        reinit()
    while descriptors:
        try:
            os.close(descriptors.pop())
        except OSError as error:  # not ours to report; the others must be closed
            raise_hosts(error)  # then `check` comes again
    for hook in _in_child:
        hook()
    _pid = os.getpid()  # last: now all of it is done


_pid = os.getpid()
if hasattr(os, "register_at_fork"):  # not on Windows, where `Client()` says so
    os.register_at_fork(after_in_child=_after_in_child)
    os.register_at_fork(after_in_child=check)
    for _lock in (listing, spawning):  # the last registered is taken first
        # `release` raises where `acquire` gave up, which the interpreter reports and ignores.
        os.register_at_fork(
            before=functools.partial(_lock.acquire, timeout=_FORK_WAITS), after_in_parent=_lock.release
        )
