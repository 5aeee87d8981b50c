"""What options name on this disk: paths with `~`, folders and files that must be there, settings.

Looked at before anything starts: the CLI would end with words of its own, make a folder called `~`,
or pass over it in silence. The last is worst for settings: where one thing in them is wrong, the CLI
drops the whole file, with every rule that denies something. So their text, and the shape of what is
in them (`_settings_shapes.py`), are checked here, in a file as well as in a dict.

Behind a `command_prefix` no file is looked at, only `cwd`, in which the prefix runs: the CLI's disk may be another one.
`cwd` and `config_dir` are completed all the same, for they are seen from here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any, Final, cast

from ._checks import as_text, is_path
from ._handlers import raise_hosts
from ._home import expanded
from ._merge import refuse_conflicts
from ._objects import is_json_text, loads
from ._settings_file import read_json

_PATHS_AS_TEXT: Final = ("settings", "mcp_servers", "agents")  # a text that is no JSON is a path
_PROMPTS: Final = ("system_prompt", "append_system_prompt")
_FILES: Final = (*_PATHS_AS_TEXT, *_PROMPTS)
_OURS: Final = ("cwd", "config_dir")  # seen from where this program is
_PATHS: Final = ("debug_file",)
_LISTS_OF_PATHS: Final = ("add_dirs", "plugin_dirs")
_NAMING: Final = frozenset((*_OURS, *_FILES, *_PATHS, *_LISTS_OF_PATHS, "sandbox"))


def find_named(options: dict[str, Any]) -> None:
    """Complete the paths among these options. Raises ValueError for what is not as it must be."""
    if _NAMING.isdisjoint(options):
        return
    here = not options.get("command_prefix")
    cwd = options.get("cwd")
    for name in _OURS:
        if options.get(name) is not None:
            options[name] = _absolute(name, expanded(name, options[name]))
    if cwd is not None and not os.path.isdir(options["cwd"]):
        raise ValueError(f"cwd must be an existing directory, and {as_text(cwd)!r} is not")
    if here:
        _expand(options)
        _find(options, options["cwd"] if cwd is not None else "")
    _check_settings(options)


def _find(options: Mapping[str, Any], cwd: str) -> None:
    for name, value in ((name, options.get(name)) for name in _FILES):
        if not _names_a_file(name, value):
            continue
        path = os.path.join(cwd, as_text(value))
        if not os.path.exists(path) or os.path.isdir(path):
            seen = f", seen from {cwd}" if path != as_text(value) else ""
            wrong = "is a folder" if os.path.isdir(path) else "does not exist"
            raise ValueError(f"{name} names a file that {wrong}: {as_text(value)!r}{seen}")
    for folder in map(as_text, options.get("plugin_dirs") or ()):
        if not os.path.exists(os.path.join(cwd, folder)):
            raise ValueError(f"plugin_dirs names what does not exist: {folder!r}")


def _names_a_file(name: str, value: Any) -> bool:
    return is_path(value) or (name in _PATHS_AS_TEXT and isinstance(value, str) and not is_json_text(value))


# --- paths


def _expand(options: dict[str, Any]) -> None:
    """`~` in what the CLI would take as it is. A text that may be JSON or a prompt is left alone."""
    for name in (*_PATHS, *_PATHS_AS_TEXT):
        if options.get(name) is not None and (name in _PATHS or _names_a_file(name, options[name])):
            options[name] = expanded(name, options[name])
    for name in _PROMPTS:  # of which a text is the prompt itself: a path must stay one
        if is_path(options.get(name)):
            from pathlib import Path

            options[name] = Path(expanded(name, options[name]))
    for name in _LISTS_OF_PATHS:
        if options.get(name) is not None:
            options[name] = [expanded(name, path) for path in options[name]]


def _absolute(name: str, path: str) -> str:
    try:
        return os.path.abspath(path)
    except OSError as error:  # a deploy that replaced the folder we run in
        raise_hosts(error)
        sentence = f"{name} is relative, and the working directory is gone: {path!r}; give an absolute one"
        raise ValueError(sentence) from error


# --- settings


def settings_of(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the option holds, read; {} where it is not given, or cannot be looked at: a pipe, another disk's file.

    Raises ValueError for what is no JSON object.
    """
    given, name = options.get("settings"), "settings"
    settings = given
    if _names_a_file(name, given):
        path = os.path.join(options.get("cwd") or "", as_text(given))
        if options.get("command_prefix") or _is_read_once(path):
            return {}
        name, settings = f"settings in {as_text(given)!r}", _read(path)
    elif isinstance(given, str):
        settings = loads(given)  # which has been looked at: it is JSON
    if settings is None:
        return {}
    _check_shape(name, settings)
    return cast("Mapping[str, Any]", settings)


def _check_settings(options: dict[str, Any]) -> None:
    """Their shape; and the mode that they name, which our own default would overrule, becomes the option's."""
    settings = settings_of(options)
    if options.get("sandbox") is not None:  # which becomes a part of settings
        _check_shape("settings", {"sandbox": options["sandbox"]})
    mode = (settings.get("permissions") or {}).get("defaultMode")
    if mode is not None and not options.get("dangerously_skip_permissions") and "permission_mode" not in options:
        options["permission_mode"] = mode
        refuse_conflicts(options)


def _is_read_once(path: str) -> bool:
    """A pipe, a terminal: what we read of it the CLI would not get, and before that we might wait for ever."""
    mode = os.stat(path).st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _read(path: str) -> Any:
    try:
        return read_json(path)
    except OSError as error:
        raise_hosts(error)
        raise ValueError(f"settings names a file that cannot be read: {path!r} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"settings in {path!r} are no JSON, so the CLI would drop them all: {error}") from None


def _check_shape(what: str, settings: Any) -> None:
    from ._settings_shapes import why_dropped

    if not isinstance(settings, Mapping):
        raise ValueError(f"{what} must be a JSON object")
    reason = why_dropped(settings)
    if reason is not None:
        raise ValueError(f"{what}: {reason}")
