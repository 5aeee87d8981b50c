"""What goes along from the user's configuration folder into the private one of a resumed run.

A turn that is resumed from a store must work as the ones before it, with the same login, settings
and memory. What it does there does not come back, but for that memory: the folder is removed with the run.

* Credentials are copied without any refresh token. A refresh in the copy would make the token of the
  original invalid, and log its user out. So the access token must last as long as the turn.
* Plugins are installed below the configuration folder. The settings that name them are left out:
  the CLI would fetch them anew from the network in every run.
* `env.CLAUDE_CONFIG_DIR` of the settings would lead the CLI out of the folder.
* What the CLI only reads (agents, commands, skills, ...) is linked, not copied. So is the project's
  memory, and it is made where there is none: what the turn notes in it is meant for the next ones.

What is not there is passed over, and so is what cannot be read, as the CLI does it; and what is no file:
a pipe would be waited for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from ._env import CONFIG_DIR
from ._project_folders import config_folder, repository
from ._project_key import project_key
from ._settings_file import read_json

CREDENTIALS: Final = ".credentials.json"
STATE: Final = ".claude.json"
_PLUGINS: Final = ("enabledPlugins", "extraKnownMarketplaces")
_LINKED: Final = ("CLAUDE.md", "agents", "commands", "output-styles", "rules", "skills")


def config_dir(env: Mapping[str, str], cwd: str) -> str:
    """The configuration folder of a CLI with this environment."""
    return config_folder(_below(cwd, env.get(CONFIG_DIR) or os.path.join(_home(env, cwd), ".claude")))


def state_file(env: Mapping[str, str], cwd: str) -> str:
    """The CLI's own notes, which hold a global configuration too: beside the folder in HOME, else in it."""
    return os.path.join(config_dir(env, cwd) if env.get(CONFIG_DIR) else _home(env, cwd), STATE)


def copy_config(env: Mapping[str, str], cwd: str, target: str) -> None:
    """Fill `target` from the folder that a CLI with this environment would use. Raises OSError."""
    source = config_dir(env, cwd)
    _copy(os.path.join(source, CREDENTIALS), target, _without_refresh)
    _copy(state_file(env, cwd), target, lambda data: data)
    for name in ("settings.json", "cowork_settings.json"):
        _copy(os.path.join(source, name), target, _without_plugins)
    for name in _LINKED:
        if os.path.exists(os.path.join(source, name)):
            os.symlink(os.path.realpath(os.path.join(source, name)), os.path.join(target, name))


def link_memory(env: Mapping[str, str], cwd: str, target: str) -> None:
    """Let the turn read and go on with the project's memory. Raises OSError for `target`."""
    memory = os.path.join("projects", project_key(repository(cwd)), "memory")
    source, link = os.path.join(config_dir(env, cwd), memory), os.path.join(target, memory)
    try:
        os.makedirs(source, 0o700, exist_ok=True)  # as the CLI does at the start of a session
    except OSError:  # a disk that is read-only: then what is noted is lost with the turn
        return
    os.makedirs(os.path.dirname(link), 0o700, exist_ok=True)
    os.symlink(os.path.realpath(source), link)


def _home(env: Mapping[str, str], cwd: str) -> str:
    return _below(cwd, env.get("HOME") or os.path.expanduser("~"))


def _below(cwd: str, path: str) -> str:
    """As the CLI, which works in `cwd`, takes a path that is relative."""
    return os.path.normpath(os.path.join(cwd, path))


def _copy(path: str, target: str, change: Callable[[Any], Any]) -> None:
    """One JSON file. What is no JSON stays behind: nobody can say what is in it, and the CLI takes none of it."""
    try:
        data = read_json(path)
    except (OSError, ValueError, RecursionError):
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(os.path.join(target, os.path.basename(path)), flags, 0o600), "w", encoding="utf-8") as file:
        json.dump(change(data), file)


def _without_refresh(data: Any) -> Any:
    """Of the login and of MCP servers, wherever they stand."""
    if isinstance(data, dict):
        return {name: _without_refresh(value) for name, value in data.items() if name != "refreshToken"}
    return [_without_refresh(value) for value in data] if isinstance(data, list) else data


def _without_plugins(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    kept = {name: value for name, value in data.items() if name not in _PLUGINS}
    if isinstance(kept.get("env"), dict):
        kept["env"] = {name: value for name, value in kept["env"].items() if name != CONFIG_DIR}
    return kept
