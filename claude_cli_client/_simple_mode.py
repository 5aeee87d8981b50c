"""CLAUDE_CODE_SIMPLE, with which the CLI runs no hooks, though it answers that they are applied.

A hook may be a guard, and one that is silently off is worse than none: so a run or session with hooks is
refused where the variable is on. The CLI takes it from settings before the environment: the machine's, the
caller's, the user's, each only if it takes them at all, and the global configuration, always; those of a
project do not count (seen with 2.1.332).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from . import _settings_file
from ._config_copy import config_dir, state_file
from ._handlers import raise_unless_absent
from ._merge import needs_temporary_config
from ._named_files import settings_of
from ._settings_shapes import why_dropped

VARIABLE: Final = "CLAUDE_CODE_SIMPLE"
_OFF: Final = f"{{'env': {{'{VARIABLE}': ''}}}}"
_ON: Final = ("1", "true", "yes", "on")


def refuse_hooks(options: Mapping[str, Any], env: Mapping[str, str], cwd: str) -> None:
    """Raises ValueError if it is on. `env`: the CLI's."""
    user, state = os.path.join(config_dir(env, cwd), "settings.json"), state_file(env, cwd)
    managed = _settings_file.managed_settings(_settings_file.managed_folder())
    places: tuple[tuple[str, Callable[[], Mapping[str, Any]], str], ...] = (
        *((path, partial(_settings, options, path), "ask who manages this machine") for path in reversed(managed)),
        ("settings", lambda: settings_of(options), "take it out"),
        (user, lambda: _settings(options, user) if _reads_users(options) else {}, f"give settings={_OFF}"),
        (state, lambda: {} if needs_temporary_config(options) else _json(options, state), f"give settings={_OFF}"),
        ("the environment", lambda: {"env": env}, f"give env={{'{VARIABLE}': None}}"),
    )
    for place, read, remedy in places:
        variables = read().get("env")
        value = variables.get(VARIABLE) if isinstance(variables, Mapping) else None
        if value is None:
            continue
        if _word(value) in _ON:
            raise ValueError(f"with {VARIABLE} in {place} the CLI runs no hooks: leave them out, or {remedy}")
        return


def _reads_users(options: Mapping[str, Any]) -> bool:
    sources = options.get("setting_sources")
    return (sources is None or "user" in sources) and not (options.get("isolated") or options.get("restricted"))


def _word(value: Any) -> str:
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip().lower()


def _settings(options: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """What the CLI will take of this file of settings."""
    settings = _json(options, path)
    return settings if why_dropped(settings) is None else {}


def _json(options: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """What is in it; nothing where it is on another disk, or holds no object."""
    if options.get("command_prefix"):
        return {}
    try:
        data = _settings_file.read_json(path)
    except (OSError, ValueError, RecursionError) as error:
        raise_unless_absent(error)
        return {}
    return data if isinstance(data, Mapping) else {}
