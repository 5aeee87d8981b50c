"""`check_store`: whether a session store keeps the contract in `store`. For those who write one.

The rules are functions in `_store_rules` (what every store must do) and `_store_listing_rules` (what
it may offer beyond). Here they are run, one after the other, each on an empty store of its own: so
what one rule writes cannot hide what the next one looks for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from . import _store_listing_rules, _store_rules
from .store import SessionKey, optional

# What every store gets behind its rule: who finds it was given that store again, or its file.
_MARK: Final = SessionKey("-home-user-used", "5b0d6ec2-8d0a-4b52-a5ff-5f8b0b9f6c11")
_ENTRY: Final = {"type": "check-store", "uuid": "0b7a4a52-4c0e-4d3c-9b1a-7f4a0f5a8d3e"}

RULES = _store_rules.RULES + _store_listing_rules.RULES


def check_store(make_store: Callable[[], Any]) -> list[str]:
    """Check a session store; the names of the rules that were checked.

    `make_store()` gives a store that is empty and shares nothing with those before it: a new file, a
    new prefix, a new schema. It is called about forty times. A store that has a `close` method is
    closed after its use.

    Rules about the optional methods (`list_sessions`, `list_summaries`, `list_subkeys`, `delete`) are
    checked if the store has them; compare the names to be sure that they were. A rule that is broken
    is an AssertionError: its name, what it says, and what was seen instead. So is a store that was
    used before.

    Some 17,000 entries are written; a store in memory takes half a second. Threads are started, and have
    ended when this returns; a store that keeps one of them for a minute breaks the rule.
    """
    if not callable(make_store):
        raise TypeError(f"check_store takes what makes an empty store, as check_store({type(make_store).__name__})")
    checked: list[str] = []
    for rule in RULES:
        store = make_store()
        try:
            if checked and _is_used(store):
                raise AssertionError("make_store() gave a store that is not empty: each rule needs one of its own")
            if all(optional(store, method) for method in rule.needs):
                rule.check(store)
                checked.append(rule.name)
                store.append(_MARK, [_ENTRY])
        finally:
            close = getattr(store, "close", None)
            if callable(close):
                close()
    return checked


def _is_used(store: Any) -> bool:
    found = store.load(_MARK) or ()
    return any(entry.get("uuid") == _ENTRY["uuid"] for entry in found)
