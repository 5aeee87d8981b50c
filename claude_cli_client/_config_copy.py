"""What goes along from the user's configuration folder into the private one of a resumed run.

A turn that is resumed from a store must work as the ones before it, with the same login, settings,
hooks and memory. What it does there does not come back, but for what is linked: the folder is removed with the run.

* Credentials are copied without any refresh token. A refresh in the copy would make the token of the
  original invalid, and log its user out. So the access token must last as long as the turn.
* Plugins are installed below the configuration folder. The settings that name them are left out:
  the CLI would fetch them anew from the network in every run.
* `env.CLAUDE_CONFIG_DIR` of the settings would lead the CLI out of the folder.
* The CLI takes `Read(/x)` in settings, and a relative path for the sandbox, from the folder of the settings. So
  these are said once more for the original one.
* No rule of the user's speaks of what is copied, as `Read(~/.claude/**)` does not: see `_withheld.py`.
* Everything else is linked, not copied, whatever it is: what a hook or a script below the folder needs, only its
  author knows, and a hook that is not found denies nothing. Not linked is what the CLI writes for sessions
  and processes of its own, see `is_own`. A link that it replaces by a file goes with the folder.
* So are the memories of the project and of subagents, and they are made where there are none: what the turn
  notes in them is meant for the next ones. But the file tools follow a link, and refuse what lies in the user's
  folder then: so where that changes nothing else, the CLI is told to have its memories there, see `memory_place`.

What is to be copied and is not there is passed over, and so is what this user may not read, as the CLI does it; and
what is no file: a pipe would be waited for. But settings that are no JSON go along as they are: with such ones the
CLI does not clean up, with none, or ours, it would, after 30 days and through the links (seen with 2.1.332).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ._env import CONFIG_DIR
from ._handlers import raise_unless_absent
from ._project_folders import config_folder, repository
from ._project_key import project_key
from ._regular_file import content
from ._settings_file import parsed
from .errors import StartError

CREDENTIALS: Final = ".credentials.json"
STATE: Final = ".claude.json"
_SETTINGS: Final = ("settings.json", "cowork_settings.json")
COPIED: Final = (CREDENTIALS, STATE, *_SETTINGS)
_PLUGINS: Final = ("enabledPlugins", "extraKnownMarketplaces")
_AGENT_MEMORY: Final = "agent-memory"
_MEMORY_DIR: Final = "CLAUDE_CODE_REMOTE_MEMORY_DIR"
# What is not linked. Transcripts and what belongs to one session or process; what is derived from all transcripts,
# of which the CLI would find here but one; plugins; and what is copied.
_OWN: Final = frozenset((
    CREDENTIALS, STATE, *_SETTINGS,
    "projects", "sessions", "session-env", "shell-snapshots", "file-history", "tasks", "todos", "teams", "dev-mods",
    "jobs", "daemon", "history.jsonl", "backups", "cache", "debug", "statsig", "telemetry", "stats-cache.json",
    "usage-data", "plugins", "cowork_plugins",
))  # fmt: skip
# Nor notes of what it did last (a CLI that has tidied the copy would put off to tidy the original), states and logs of
# its daemon, and locks of somebody else, who does not give them back here.
_OWN_KINDS: Final = re.compile(r"\.last-.*|daemon[.-](?:.*\.)?(?:json|log)|.*\.lock", re.DOTALL)


def config_dir(env: Mapping[str, str], cwd: str) -> str:
    """The configuration folder of a CLI with this environment."""
    return config_folder(_below(cwd, env.get(CONFIG_DIR) or os.path.join(_home(env, cwd), ".claude")))


def state_file(env: Mapping[str, str], cwd: str) -> str:
    """The CLI's own notes, which hold a global configuration too: beside the folder in HOME, else in it."""
    return os.path.join(config_dir(env, cwd) if env.get(CONFIG_DIR) else _home(env, cwd), STATE)


def copy_config(env: Mapping[str, str], cwd: str, target: str) -> None:
    """Fill `target` from the folder that a CLI with this environment would use. Raises OSError, `StartError`."""
    source = config_dir(env, cwd)
    files = {name: _content(os.path.join(source, name)) for name in (CREDENTIALS, *_SETTINGS)}
    files[STATE] = _content(state_file(env, cwd))
    for name, data in files.items():  # each read once: it may be written just now
        if data is not None:
            copy = _changed(name, data, source)
            if copy is not None:
                _write(os.path.join(target, name), copy)
    _link_others(source, target)


def _changed(name: str, data: bytes, source: str) -> bytes | None:
    """What goes along of this file. Of what is no JSON nobody can say what is in it, and the CLI takes none of it."""
    try:
        found = parsed(data)
        if name in _SETTINGS:
            found = _moved(_without_plugins(found), source)
        elif name == CREDENTIALS:
            found = _without_refresh(found)
        return json.dumps(found).encode()
    except (ValueError, RecursionError):
        return data if name in _SETTINGS else None


def link_memory(env: Mapping[str, str], cwd: str, target: str) -> None:
    """Let the turn read and go on with the project's memory, and its subagents with theirs.

    After `copy_config`, which has linked the latter where it is there. Raises OSError for `target`.
    """
    config = config_dir(env, cwd)
    for name in (os.path.join("projects", project_key(repository(cwd)), "memory"), _AGENT_MEMORY):
        source, link = os.path.join(config, name), os.path.join(target, name)
        try:
            os.makedirs(source, 0o700, exist_ok=True)  # as the CLI does at the start of a session
        except OSError:  # a disk that is read-only: then what is noted is lost with the turn
            continue
        os.makedirs(os.path.dirname(link), 0o700, exist_ok=True)
        if not os.path.lexists(link):
            os.symlink(os.path.realpath(source), link)


def memory_place(env: Mapping[str, str], cwd: str) -> dict[str, str]:
    """The variable by which the CLI reads and writes its memories where they are, under their own names.

    Not where it would do more (seen with 2.1.332): it turns them on where the CLI believes to be in the cloud,
    and moves those of subagents with `memory: local`, which a project that has such ones would miss.
    """
    local = os.path.join(cwd, ".claude", "agent-memory-local")
    if env.get(_MEMORY_DIR) or env.get("CLAUDE_CODE_REMOTE") or os.path.lexists(local):
        return {}
    return {_MEMORY_DIR: config_dir(env, cwd)}


def is_own(name: str) -> bool:
    """Whether what has this name in a configuration folder is not linked."""
    folded = name.lower()  # a disk may take both for one name
    return folded in _OWN or _OWN_KINDS.fullmatch(folded) is not None


def _link_others(source: str, target: str) -> None:
    try:
        names = os.listdir(source)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:  # a hook that stays behind would deny nothing, and nobody would hear of it
        raise StartError(f"what is in the configuration folder {source} must go along: {error}") from error
    for name in names:
        if not is_own(name):
            os.symlink(os.path.realpath(os.path.join(source, name)), os.path.join(target, name))


def _home(env: Mapping[str, str], cwd: str) -> str:
    return _below(cwd, env.get("HOME") or os.path.expanduser("~"))


def _below(cwd: str, path: str) -> str:
    """As the CLI, which works in `cwd`, takes a path that is relative."""
    return os.path.normpath(os.path.join(cwd, path))


def _content(path: str) -> bytes | None:
    """None: there is none for us."""
    try:
        return content(path)
    except OSError as error:
        raise_unless_absent(error)
        return None


def read(path: str) -> Any:
    """One JSON file; None: there is none for us, or it is no JSON."""
    data = _content(path)
    try:
        return None if data is None else parsed(data)
    except (ValueError, RecursionError):
        return None


def _write(path: str, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)


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


# --- settings that are said for a place


def _moved(settings: Any, config: str) -> Any:
    """The same in another folder than `config`, where they were made for. What has an odd shape is left as it is."""
    if not isinstance(settings, dict):
        return settings
    settings = dict(settings)
    permissions = settings.get("permissions")
    if isinstance(permissions, dict):
        settings["permissions"] = moved = dict(permissions)
        for name in ("allow", "ask", "deny"):
            if isinstance(moved.get(name), list):
                moved[name] = [*moved[name], *_anchored(moved[name], config, exact=name == "allow")]
    sandbox = settings.get("sandbox")
    files = sandbox.get("filesystem") if isinstance(sandbox, dict) else None
    if isinstance(sandbox, dict) and isinstance(files, dict):
        settings["sandbox"] = {**sandbox, "filesystem": {name: _at(value, config) for name, value in files.items()}}
    return settings


# The only tools whose rules are about paths: the CLI takes those of no other one.
_ANCHORED: Final = re.compile(r"((?:Read|Edit)\()(/(?!/).*)", re.DOTALL)


def _anchored(rules: Sequence[Any], config: str, *, exact: bool) -> list[str]:
    """The rules that begin at the folder of the settings, for that folder.

    A backslash in its name has no escape that the CLI takes everywhere (seen with 2.1.332): unless `exact`, any
    character may stand there.
    """
    places = {_literal(config)}
    if not exact:
        places.add(_literal(config).replace("\\\\", "?"))
    found = filter(None, (_ANCHORED.fullmatch(rule) for rule in rules if isinstance(rule, str)))
    return [f"{rule[1]}/{place}{rule[2]}" for rule in found for place in sorted(places)]


def _literal(path: str) -> str:
    """The pattern of a rule that means this path."""
    return re.sub(r"[\\\[\]*?]", r"\\\g<0>", path)


def _at(paths: Any, config: str) -> Any:
    """The paths of the sandbox, those that are relative also from `config`."""
    if not isinstance(paths, list):
        return paths
    relative = [path for path in paths if isinstance(path, str) and not path.startswith(("/", "~"))]
    return [*paths, *(os.path.join(config, path) for path in relative)]
