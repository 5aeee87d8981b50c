"""CLAUDE_CODE_SIMPLE, with which the CLI runs no hooks, though it answers that they are applied.

A hook may be a guard, and one that is silently off is worse than none: so a run or session with hooks is
refused where the variable is on. The CLI takes it from settings before the environment (seen with
2.1.332: the caller's, then the user's; those of a project do not count).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from ._config_copy import config_dir
from ._named_files import settings_of

VARIABLE: Final = "CLAUDE_CODE_SIMPLE"
_ON: Final = ("1", "true", "yes", "on")


def refuse_hooks(options: Mapping[str, Any], env: Mapping[str, str], cwd: str) -> None:
    """Raises ValueError if it is on. `env`: the CLI's."""
    mine = f"settings={{'env': {{'{VARIABLE}': ''}}}}"
    user = os.path.join(config_dir(env, cwd), "settings.json")
    places = (
        ("settings", lambda: settings_of(options), "take it out"),
        (user, lambda: _users(options, user), f"give {mine}"),
        ("the environment", lambda: {"env": env}, f"give env={{'{VARIABLE}': None}}"),
    )
    for place, read, remedy in places:
        variables = read().get("env")
        value = variables.get(VARIABLE) if isinstance(variables, Mapping) else None
        if value is None:
            continue
        if str(value).strip().lower() in _ON:
            raise ValueError(f"with {VARIABLE} in {place} the CLI runs no hooks: leave them out, or {remedy}")
        return


def _users(options: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """What the CLI will read of it: nothing where it reads no settings, or can read none."""
    sources = options.get("setting_sources")
    read = sources is None or "user" in sources
    if not read or options.get("isolated") or options.get("restricted") or options.get("command_prefix"):
        return {}
    try:
        with open(path, encoding="utf-8-sig") as file:
            settings = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return settings if isinstance(settings, Mapping) else {}
