"""What options name on this disk: paths with `~`, folders and files that must be there, settings.

Looked at before anything starts: the CLI would end with words of its own, make a folder called `~`,
or pass over it in silence. The last is worst for settings: where one thing in them is wrong, the CLI
drops the whole file, with every rule that denies something. So their text, and the shape of what is
commonly in them, are checked here, in a file as well as in a dict.

Behind a `command_prefix` only `cwd` is looked at, in which the prefix runs: the CLI's disk may be another one.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from typing import Any, Final

from ._checks import as_text, is_path
from ._hook_events import HOOK_EVENTS
from ._objects import is_json_text

_PATHS_AS_TEXT: Final = ("settings", "mcp_servers", "agents")  # a text that is no JSON is a path
_PROMPTS: Final = ("system_prompt", "append_system_prompt")
_FILES: Final = (*_PATHS_AS_TEXT, *_PROMPTS)
_PATHS: Final = ("cwd", "config_dir", "debug_file")
_LISTS_OF_PATHS: Final = ("add_dirs", "plugin_dirs")
_NAMING: Final = frozenset((*_FILES, *_PATHS, *_LISTS_OF_PATHS))


def find_named(options: dict[str, Any]) -> None:
    """Complete the paths among these options. Raises ValueError for what is not as it must be."""
    if _NAMING.isdisjoint(options):
        return
    here = not options.get("command_prefix")
    if here:
        _expand(options)
    cwd = options.get("cwd")
    if cwd is not None and not os.path.isdir(cwd):
        raise ValueError(f"cwd must be an existing directory, and {as_text(cwd)!r} is not")
    for name in ("cwd", "config_dir"):
        if options.get(name) is not None:
            options[name] = _absolute(name, as_text(options[name]))
    if here:
        _find(options, options["cwd"] if cwd is not None else "")


def _find(options: dict[str, Any], cwd: str) -> None:
    for name, value in ((name, options.get(name)) for name in _FILES):
        if not _names_a_file(name, value):
            continue
        path = os.path.join(cwd, as_text(value))
        if not os.path.exists(path) or os.path.isdir(path):
            seen = f", seen from {cwd}" if cwd and path != as_text(value) else ""
            wrong = "is a folder" if os.path.isdir(path) else "does not exist"
            raise ValueError(f"{name} names a file that {wrong}: {as_text(value)!r}{seen}")
    for folder in map(as_text, options.get("plugin_dirs") or ()):
        if not os.path.exists(os.path.join(cwd, folder)):
            raise ValueError(f"plugin_dirs names what does not exist: {folder!r}")
    mode = _check_settings(options.get("settings"), cwd)
    if mode is not None and not options.get("dangerously_skip_permissions"):
        options.setdefault("permission_mode", mode)


def _names_a_file(name: str, value: Any) -> bool:
    return is_path(value) or (name in _PATHS_AS_TEXT and isinstance(value, str) and not is_json_text(value))


# --- paths


def _expand(options: dict[str, Any]) -> None:
    """`~`, which only a shell expands. A text that may be JSON or a prompt is left alone."""
    for name in (*_PATHS, *_PATHS_AS_TEXT):
        if options.get(name) is not None and (name in _PATHS or _names_a_file(name, options[name])):
            options[name] = _home(name, as_text(options[name]))
    for name in _PROMPTS:  # of which a text is the prompt itself: a path must stay one
        if is_path(options.get(name)):
            from pathlib import Path

            options[name] = Path(_home(name, as_text(options[name])))
    for name in _LISTS_OF_PATHS:
        if options.get(name) is not None:
            options[name] = [_home(name, as_text(path)) for path in options[name]]


def _home(name: str, path: str) -> str:
    if not path.startswith("~"):
        return path
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise ValueError(f"{name} begins with {path.partition('/')[0]}, and nobody knows where that is: {path!r}")
    return expanded


def _absolute(name: str, path: str) -> str:
    try:
        return os.path.abspath(path)
    except OSError as error:  # a deploy that replaced the folder we run in
        raise ValueError(f"{name} is relative, and the working directory is gone: {path!r}") from error


# --- settings


def _check_settings(given: Any, cwd: str) -> Any:
    """The permission mode that they name, which the flag of our own would overrule; else None."""
    name, settings = "settings", given
    if _names_a_file("settings", given):
        path = as_text(given)
        if _is_read_once(os.path.join(cwd, path)):
            return None
        name, settings = f"settings in {path!r}", _read(os.path.join(cwd, path))
    elif isinstance(given, str):
        settings = json.loads(given)  # which has been looked at: it is JSON
    if settings is None:
        return None
    _check_shape(name, settings)
    return (settings.get("permissions") or {}).get("defaultMode")


def _is_read_once(path: str) -> bool:
    """A pipe, a terminal: what we read of it the CLI would not get, and before that we might wait for ever."""
    mode = os.stat(path).st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _read(path: str) -> Any:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return json.load(file, parse_constant=_no_number)
    except OSError as error:
        raise ValueError(f"settings names a file that cannot be read: {path!r} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, or no JSON
        raise ValueError(f"settings in {path!r} are no JSON, so the CLI would drop them all: {error}") from None


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_days(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_hooks(value: Any) -> bool:
    """An event may be null, and one that the CLI does not know anything."""
    if not _is_object(value):
        return isinstance(value, (list, tuple)) and not value
    events = [event for name, event in value.items() if name in HOOK_EVENTS and event is not None]
    return all(_is_list(event) and all(map(_is_matcher, event)) for event in events)


def _is_matcher(value: Any) -> bool:
    if not _is_object(value) or not isinstance(value.get("matcher"), (str, type(None))):
        return False
    return _is_list(value.get("hooks")) and all(map(_is_hook, value["hooks"]))


def _is_hook(value: Any) -> bool:
    """`command` and `prompt` need the field of the same name; other types are left to the CLI."""
    if not _is_object(value) or not _is_text(value.get("type")):
        return False
    return value["type"] not in ("command", "prompt") or _is_text(value.get(value["type"]))


_MODES: Final = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "manual", "plan")
# Path in the settings -> what the CLI takes there, else it drops the whole file (seen with 2.1.332).
_SHAPES: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("permissions", _is_object, "an object"),
    ("permissions.allow", _is_list, "a list of rules"),
    ("permissions.deny", _is_list, "a list of rules"),
    ("permissions.ask", _is_list, "a list of rules"),
    ("permissions.additionalDirectories", _is_list, "a list of paths"),
    ("permissions.defaultMode", lambda value: value in _MODES, f"one of {', '.join(_MODES)}"),
    ("permissions.disableBypassPermissionsMode", lambda value: value == "disable", "the word disable"),
    ("hooks", _is_hooks, 'events with lists of {"matcher": ..., "hooks": [{"type": "command", "command": ...}]}'),
    ("env", _is_object, "an object"),
    ("statusLine", _is_object, "an object"),
    ("enabledPlugins", _is_object, "an object"),
    ("model", _is_text, "a text"),
    ("outputStyle", _is_text, "a text"),
    ("apiKeyHelper", _is_text, "a text"),
    ("language", _is_text, "a text"),
    ("alwaysThinkingEnabled", _is_flag, "true or false"),
    ("includeCoAuthoredBy", _is_flag, "true or false"),
    ("enableAllProjectMcpServers", _is_flag, "true or false"),
    ("cleanupPeriodDays", _is_days, "a whole number of days, 1 or more"),
)


def _check_shape(what: str, settings: Any) -> None:
    if not isinstance(settings, Mapping):
        raise ValueError(f"{what} must be a JSON object")
    for path, fits, must in _SHAPES:
        *above, name = path.split(".")
        place: Any = settings
        for key in above:
            place = place.get(key, {})
        # A null is no "not given" to the CLI.
        if isinstance(place, Mapping) and name in place and not fits(place[name]):
            raise ValueError(f"{what}: {path} must be {must}, or left out; else the CLI drops all of these settings")
