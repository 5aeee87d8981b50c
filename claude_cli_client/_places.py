"""Where the library cannot keep its promises, and what to do there instead.

Asked by `Client()`, not by the import: importing must never raise.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final


def refuse_unfit_places() -> None:
    """Raise `RuntimeError` with the remedy where threads or processes do not work as they must."""
    for is_unfit, why in _UNFIT:
        if is_unfit():
            raise RuntimeError(why)


def _patched_by_gevent() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def _patched_by_eventlet() -> bool:
    patcher = sys.modules.get("eventlet.patcher")
    return patcher is not None and bool(patcher.is_monkey_patched("thread"))


def _uwsgi_without_threads() -> bool:
    """The module `uwsgi` exists only inside a uWSGI worker; its options are strings or bytes."""
    options = getattr(sys.modules.get("uwsgi"), "opt", None)
    if not isinstance(options, dict):
        return False
    names = {name.decode() if isinstance(name, bytes) else name for name in options}
    return not names & {"enable-threads", "threads"}


def _in_subinterpreter() -> bool:
    """Subinterpreters refuse the daemon threads and fork hooks that runs need."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = __import__(name)
        except ImportError:
            continue
        current = interpreters.get_current()
        number = current[0] if isinstance(current, tuple) else current
        return int(number) != int(_main_of(interpreters))
    return False


def _main_of(interpreters: object) -> int:
    main = interpreters.get_main()  # type: ignore[attr-defined]
    return int(main[0] if isinstance(main, tuple) else main)


_UNFIT: Final[tuple[tuple[Callable[[], bool], str], ...]] = (
    (
        lambda: os.name == "nt",
        "claude_cli_client runs on Linux and macOS; on Windows use WSL",
    ),
    (
        _patched_by_gevent,
        "gevent has patched threading: a blocked read would stop every greenlet. Use a threaded worker "
        "(gunicorn --worker-class gthread), or run turns in a separate process (Celery prefork)",
    ),
    (
        _patched_by_eventlet,
        "eventlet has patched threads: a blocked read would stop every green thread. Use a threaded "
        "worker, or run turns in a separate process",
    ),
    (
        _uwsgi_without_threads,
        "uWSGI runs without threads, so no run would ever be read: start it with --enable-threads",
    ),
    (
        _in_subinterpreter,
        "this is a subinterpreter, where threads of a library cannot outlive a request: use the main "
        "interpreter (mod_wsgi: WSGIApplicationGroup %{GLOBAL})",
    ),
)
