"""From checked options to a `Launch`: the last step before a slot is taken.

Here the outside world is looked at for the first time (folders, the CLI, the environment), and
nothing is started. Imported with the first client: the table of options costs as much import time
as the rest of the core.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._argv import Argument, TextFile, build_argv, shown_argv
from ._channel import Launch
from ._checks import as_text, check_prompt
from ._env import CONFIG_DIR, build_env, is_nested
from ._files import PrivateFolder
from ._handlers import raise_hosts
from ._merge import merge_with, misnamed, misplaced, needs_temporary_config, setting, shadow, streams
from ._named_files import find_named
from ._process import inherited
from .discovery import locate

if TYPE_CHECKING:
    from ._duplex import Duplex
    from ._mirror import Mirror, Storing
    from ._restore import Restore
    from ._sync import WakeUp
    from .options import StrPath

__all__ = ["merge_with", "prepare", "prepare_session"]


def prepare(options: dict[str, Any], prompt: Any, cli_path: StrPath | None, storing: Storing | None = None) -> Launch:
    """Everything that is known before the start, checked. Raises what the caller did wrong."""
    content = check_prompt(prompt)
    find_named(options)
    options = _settled(options)
    streaming = streams(options, content)
    duplex = _stream(options, content) if streaming else None
    text = content.encode() if isinstance(content, str) and not streaming else b""
    return _launch(options, cli_path, text, duplex, storing)


def prepare_session(
    options: dict[str, Any], cli_path: StrPath | None, storing: Storing | None = None
) -> tuple[Launch, Mapping[str, Any]]:
    """The same for a live session; and the fields of its `initialize`."""
    from ._stream import converse

    find_named(options)
    options = _settled(options)
    duplex, initialize = converse(options)
    return _launch(options, cli_path, b"", duplex, storing), initialize


def _settled(options: dict[str, Any]) -> dict[str, Any]:
    """The options with what the one switch `unattended` stands for. Raises ValueError for hooks that would not run."""
    if options.get("hooks"):
        from ._simple_mode import refuse_hooks

        refuse_hooks(options, environment(options), _cwd(options.get("cwd")))
    if not options.get("unattended"):
        return options
    from ._unattended import settle

    home = environment(options, "").get("HOME", "")
    return settle(options, _cwd(options.get("cwd")), home if os.path.isabs(home) else "", _names)


def _cwd(given: Any) -> str:
    try:
        return os.path.abspath(as_text(given)) if given is not None else os.getcwd()
    except FileNotFoundError:  # removed meanwhile: then no rule can mean what is in it
        return ""


def _names(path: str) -> tuple[str, ...]:
    """A directory as it was given, and as the CLI calls it."""
    return path, os.path.realpath(path)


def _launch(
    options: dict[str, Any],
    cli_path: StrPath | None,
    prompt: bytes,
    duplex: Duplex | None,
    storing: Storing | None,
) -> Launch:
    options.update(streaming=duplex is not None, mirrored=storing is not None)
    cwd = options.get("cwd")
    prefix = [as_text(word) for word in setting(options, "command_prefix") or ()]
    cli = locate(cli_path) if not prefix else as_text(cli_path or "claude")
    arguments = build_argv(options)
    _warn_of_surprises(options)
    run_id = os.urandom(16).hex()
    restore = None if storing is None else _restore(options, storing, cwd)

    def argv(folder: PrivateFolder) -> list[str]:
        parts = arguments
        if restore is not None and restore.session_id and not needs_temporary_config(options):
            from ._withheld import withheld

            parts = build_argv(withheld(options, folder.config(), environment(options), _here(options.get("cwd"))))
        words = [*prefix, cli, *(_argument(part, folder) for part in parts)]
        return words if restore is None else restore.argv(words)

    return Launch(
        run_id=run_id,
        restore=restore,
        mirror=None if storing is None else _mirror(options, storing, cwd, run_id, restore),
        argv=argv,
        env=lambda folder: _env(options, run_id, storing is not None, restore, folder),
        prompt=prompt,
        duplex=duplex,
        prefix=prefix[0] if prefix else "",
        cwd=cwd,
        timeout=setting(options, "timeout"),
        idle_timeout=setting(options, "idle_timeout"),
        start_timeout=setting(options, "start_timeout"),
        background_timeout=_background_timeout(options),
        resumed=bool(options.get("resume") or options.get("continue_conversation")),
        kill_leftovers=bool(options.get("kill_leftovers")),
        max_line_bytes=_bytes(options, "max_line_bytes"),
        max_buffered_bytes=_bytes(options, "max_buffered_bytes"),
        line_sink=options.get("line_sink"),
        on_stderr=options.get("on_stderr"),
        wants_schema=options.get("json_schema") is not None,
        cli_path=cli,
        # A prefix may hold a password.
        shown=lambda: " ".join([*prefix[:1], *["..."][: len(prefix)], shown_argv([cli, *arguments])]),
    )


def _env(
    options: Mapping[str, Any], run_id: str, stored: bool, restore: Restore | None, folder: PrivateFolder
) -> dict[str, str]:
    """The environment of the process, with a configuration folder of its own where it needs one."""
    found = environment(options, run_id)
    if _has_own_config(options, restore):
        config = folder.config()
        if restore is not None and restore.session_id:
            isolated = needs_temporary_config(options)
            found.update(restore.write(config, found, _here(options.get("cwd")), isolated=isolated))
        found[CONFIG_DIR] = config
    elif stored and not options.get("command_prefix"):  # behind one it may be another disk
        _must_be_writable(found, _here(options.get("cwd")))
    return found


def _must_be_writable(env: Mapping[str, str], cwd: str) -> None:
    """Raises `StartError` where the CLI would answer, and write no transcript: the store would get nothing."""
    from ._config_copy import config_dir
    from ._project_folders import can_be_written
    from ._project_key import project_key
    from .errors import StartError

    config = config_dir(env, cwd)
    if not can_be_written(os.path.join(config, "projects", project_key(os.path.realpath(cwd)))):
        raise StartError(
            f"the configuration folder {config} cannot be written: the CLI would write no transcript there, and the "
            "store get nothing; give config_dir= with one that can be, or isolated=True"
        )


def _has_own_config(options: Mapping[str, Any], restore: Restore | None) -> bool:
    """Whether its configuration folder, and with it what the CLI writes of the session, goes with the run."""
    return needs_temporary_config(options) or (restore is not None and bool(restore.session_id))


def _restore(options: Mapping[str, Any], storing: Storing, cwd: str | None) -> Restore | None:
    """What will load the session to go on with, and see whether the id of a new one is free."""
    wanted, new = options.get("resume") or None, options.get("session_id") or None
    continues = bool(wanted or options.get("continue_conversation"))
    if not (continues or new):
        return None
    from ._config_copy import config_dir
    from ._restore import Restore

    here = _here(cwd)
    own = None if needs_temporary_config(options) else config_dir(environment(options), here)
    return Restore(storing.store, wanted, here, own, continues=continues, new=new)


def _mirror(
    options: Mapping[str, Any], storing: Storing, cwd: str | None, run_id: str, restore: Restore | None
) -> Callable[[Mapping[str, str], WakeUp], Mirror]:
    from contextvars import copy_context
    from unicodedata import normalize

    from ._config_copy import config_dir
    from ._mirror import Mirror
    from ._transcript_key import key_anywhere, key_below

    here, foreign = _here(cwd), bool(options.get("command_prefix"))
    context = copy_context()

    def make(env: Mapping[str, str], wake: WakeUp) -> Mirror:
        projects = normalize("NFC", os.path.join(config_dir(env, here), "projects"))

        def locate(path: str) -> Any:
            # As relative as CLAUDE_CONFIG_DIR is, and its accents composed, whatever it was told.
            whole = normalize("NFC", os.path.normpath(os.path.join(here, path)))
            return key_below(projects, whole) or (key_anywhere(whole) if foreign else None)

        # Where no file stays, what the store does not have yet would die with this host.
        sole = storing._replace(sole=_has_own_config(options, restore))
        return Mirror(sole, locate, name=f"claude-{run_id[:8]}-store", context=context, wake=wake)

    return make


def _here(cwd: str | None) -> str:
    """Whose project a session is."""
    try:
        return cwd or os.getcwd()
    except OSError as error:
        raise_hosts(error)
        raise ValueError(f"the working directory is gone ({error}), and a store needs it: give cwd=") from error


def _stream(options: Mapping[str, Any], content: str | Sequence[Mapping[str, Any]]) -> Duplex:
    from ._stream import open_stream

    return open_stream(options, content)


def environment(options: Mapping[str, Any], run_id: str = "") -> dict[str, str]:
    """The environment of a CLI with these options."""
    return build_env(options, inherited(), run_id)


def _argument(part: Argument, folder: PrivateFolder) -> str:
    if isinstance(part, TextFile):
        return f"{part.flag}={folder.write(part.flag.strip('-') + part.suffix, part.text)}"
    return part


def _bytes(options: Mapping[str, Any], name: str) -> int:
    limit: int | None = setting(options, name)
    return sys.maxsize if limit is None else limit


def _background_timeout(options: Mapping[str, Any]) -> float | None:
    return setting(options, "background_timeout") if setting(options, "background") == "wait" else None


_warned = False


def _warn_of_surprises(options: Mapping[str, Any]) -> None:
    global _warned
    shadowed_by = shadow(options)
    preset: Any = options.get("unattended")
    allows: Any = getattr(preset, "allow_rules", ())
    if shadowed_by and (allows or not preset):  # what it denies stands in another option
        asked = "the allow rules of unattended" if preset else "the permission callback"
        _warn(f"{asked} will not be asked: {shadowed_by} decides first", UserWarning)
    if useless := misnamed(options) or misplaced(options, _cwd(options.get("cwd"))):
        _warn(useless, UserWarning)
    if not _warned and is_nested(os.environ):
        _warned = True
        _warn(
            "this program runs inside of a Claude Code session; its turns do not inherit that session's variables",
            RuntimeWarning,
        )


def _warn(message: str, category: type[Warning]) -> None:
    """At the line of the caller that is not ours, however many of ours are in between."""
    import warnings

    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


_PACKAGE = __name__.rpartition(".")[0] + "."
