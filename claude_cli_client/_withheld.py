"""What a turn that is resumed from a store copies (a login, settings), kept from the model.

The user's rules speak of the originals, `Read(~/.claude/**)`, and not of the copies. Nor would the copied settings
be the place to say it: the CLI may be told not to read them, and drops them all where one thing in them has a
wrong shape. So the command line says it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import _settings_file
from ._argv import with_sandbox
from ._checks import split_rules
from ._config_copy import COPIED, config_dir, read
from ._merge import settings_file
from ._named_files import settings_of


def withheld(options: Mapping[str, Any], config: str, env: Mapping[str, str], cwd: str) -> dict[str, Any]:
    """The options of a turn with this copy, which the model may not read where it may not read something else.

    Where it may read all, so the original too, there are no such rules: with one the CLI refuses what it cannot tell
    to read nothing of it, even `cd src && ls` (seen with 2.1.332).

    The rules name the folder by its last two parts, which no other has: what stands before them may hold
    characters that are special in a rule or in a list of them, and it may be called by a link's name. The sandbox
    takes no rules of the command line, only paths of settings (seen with 2.1.332). Where these are a file, it
    is not told: what is in it may begin at its own folder.
    """
    place = "/".join(config.split("/")[-2:])
    changed = dict(options)
    listed = _rules(options.get("disallowed_tools"))
    if _forbid_reading(listed) or any(map(_forbid_reading, _denials(options, env, cwd))):
        changed["disallowed_tools"] = [*listed, *(f"Read(//**/{place}/{name})" for name in COPIED)]
    if not settings_file(options):
        sandbox = with_sandbox(options.get("settings"), options.get("sandbox") or {})["sandbox"]
        files = sandbox.get("filesystem", {})
        denied = [*files.get("denyRead", ()), *(os.path.join(config, name) for name in COPIED)]
        changed["sandbox"] = {**sandbox, "filesystem": {**files, "denyRead": denied}}
    return changed


def _denials(options: Mapping[str, Any], env: Mapping[str, str], cwd: str) -> Iterator[list[str]]:
    """What each of the settings denies that the CLI may read, whichever it does."""
    project = os.path.join(cwd, ".claude", "settings")
    user = os.path.join(config_dir(env, cwd), "settings.json")
    managed = _settings_file.managed_settings(_settings_file.managed_folder())
    files = (*managed, user, f"{project}.json", f"{project}.local.json")
    for settings in (settings_of(options), *map(read, files)):
        permissions = settings.get("permissions") if isinstance(settings, Mapping) else None
        yield _rules(permissions.get("deny") if isinstance(permissions, Mapping) else None)


def _rules(given: Any) -> list[str]:
    if isinstance(given, str):
        return split_rules(given)
    return [rule for rule in given if isinstance(rule, str)] if isinstance(given, (list, tuple)) else []


def _forbid_reading(rules: Sequence[str]) -> bool:
    return any(rule.startswith("Read(") for rule in rules)
