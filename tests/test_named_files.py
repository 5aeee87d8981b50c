"""Paths and files that options name: complete, there, and settings of which nothing is dropped in silence."""

import json
import os
from pathlib import Path

import pytest

from claude_cli_client import Client
from claude_cli_client.testing import init, result

TURN = [init(), result("1")]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_tilde_is_the_home(play, home):
    """In every option that is a path. Left as it is, the CLI would make a folder of that name."""
    for name in ("plugin", "more", "work"):
        (home / name).mkdir()
    (home / "s.json").write_text("{}")
    fake = play(*TURN)
    Client(cli_path=fake.path, config_dir="~/config", cwd="~/work").ask(
        "p", plugin_dirs=["~/plugin"], add_dirs=["~/more"], debug_file="~/log", settings="~/s.json"
    )
    (call,) = fake.calls
    assert call.env["CLAUDE_CONFIG_DIR"] == f"{home}/config"
    assert call.cwd == f"{home}/work"
    for flag in (f"--plugin-dir={home}/plugin", f"--add-dir={home}/more", f"--debug-file={home}/log"):
        assert flag in call.argv
    assert f"--settings={home}/s.json" in call.argv


@pytest.mark.parametrize("given", ["~/x.json", "x.json", "{home}/x.json"])
@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("settings", "--settings"),
        ("mcp_servers", "--mcp-config"),
        ("agents", "--agents"),
        ("system_prompt", "--system-prompt-file"),
        ("append_system_prompt", "--append-system-prompt-file"),
    ],
)
def test_a_path_is_a_file(play, home, name, flag, given):
    """Its name goes to the CLI as a file's, never as the text itself; one that is not there is a ValueError."""
    fake = play(*TURN)
    client, path = Client(cli_path=fake.path, cwd=home), Path(given.format(home=home))
    with pytest.raises(ValueError, match=f"{name} names a file that does not exist"):
        client.run("p", **{name: path})
    (home / "x.json").mkdir()
    with pytest.raises(ValueError, match=f"{name} names a file that is a folder"):
        client.run("p", **{name: path})
    (home / "x.json").rmdir()
    (home / "x.json").write_text("{}")
    client.ask("p", **{name: path})
    (call,) = fake.calls
    assert f"{flag}={given.format(home=home).replace('~', str(home))}" in call.argv


def test_a_path_seen_from_elsewhere(play, home, monkeypatch):
    """The turn's folder, not the program's: the error says so where both are meant by somebody."""
    (home / "work").mkdir()
    (home / "x.md").write_text("x")
    monkeypatch.chdir(home)
    with pytest.raises(ValueError, match=f"does not exist: 'x.md', seen from {home}/work"):
        Client(cli_path=play(*TURN).path).run("p", system_prompt=Path("x.md"), cwd="work")


def test_a_path_that_is_whole(play, home):
    """It is seen from nowhere, whatever the turn's folder."""
    with pytest.raises(ValueError, match=f"does not exist: '{home}/x.md'$"):
        Client(cli_path=play(*TURN).path).run("p", system_prompt=home / "x.md", cwd=home)


@pytest.mark.parametrize("name", ["system_prompt", "append_system_prompt"])
def test_a_prompt_that_looks_like_a_path(play, name):
    """A text is the prompt itself, also where it could be the name of a file."""
    fake = play(*TURN)
    Client(cli_path=fake.path).ask("p", **{name: "~/be-brief.md"})
    assert f"--{name.replace('_', '-')}=~/be-brief.md" in fake.calls[0].argv


PLAN = {"permissions": {"defaultMode": "plan"}}


@pytest.mark.parametrize("settings", [PLAN, json.dumps(PLAN), "s.json", Path("s.json")], ids=repr)
@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, "plan"),
        ({"can_use_tool": lambda request: True}, "plan"),
        ({"unattended": True}, "plan"),
        ({"permission_mode": "default"}, "default"),
        ({"permission_mode": None}, None),
        ({"dangerously_skip_permissions": True}, None),
    ],
)
def test_the_mode_of_the_settings_that_are_given(play, home, settings, options, mode):
    """Our own default does not overrule what the caller has named there; an option does."""
    (home / "s.json").write_text(json.dumps(PLAN))
    fake = play(*TURN)
    Client(cli_path=fake.path, cwd=home).ask("p", settings=settings, **options)
    assert fake.calls[0].option("--permission-mode") == mode


def test_settings_behind_a_prefix(play):
    """Those that are given as they are count, and are looked at; a file may be on another disk."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path, command_prefix=["/usr/bin/env"])
    client.ask("p", settings=PLAN)
    client.ask("p", settings="/not/here.json")
    assert [call.option("--permission-mode") for call in fake.calls] == ["plan", "acceptEdits"]
    for wrong in ({"settings": {"model": 5}}, {"sandbox": {"excludedCommands": "git"}}):
        with pytest.raises(ValueError, match="settings: "):
            client.run("p", **wrong)


def test_a_mode_of_the_settings_that_fits_to_nothing(play):
    """Taken over, it is looked at like the option."""
    with pytest.raises(ValueError, match="restricted=True does not allow"):
        Client(cli_path=play(*TURN).path).run(
            "p", restricted=True, settings={"permissions": {"defaultMode": "bypassPermissions"}}
        )


def test_a_tilde_of_nobody(play):
    """Nobody is called so: told before anything starts."""
    fake = play(*TURN)
    with pytest.raises(ValueError, match="config_dir begins with ~nobody-here"):
        Client(cli_path=fake.path).run("p", config_dir="~nobody-here/x")
    assert fake.calls == []


@pytest.mark.parametrize("name", ["cwd", "config_dir"])
def test_a_working_directory_that_is_gone(play, tmp_path, monkeypatch, name):
    """A deploy that replaced the folder: a relative path is a ValueError that says so, an absolute one works."""
    fake = play(*TURN)
    gone, here = tmp_path / "gone", os.getcwd()
    gone.mkdir()
    os.chdir(gone)
    try:
        gone.rmdir()
        with pytest.raises(ValueError, match=f"{name} is relative, and the working directory is gone"):
            Client(cli_path=fake.path).run("p", **{name: "x"})
        assert Client(cli_path=fake.path).ask("p", **{name: str(tmp_path)}).result == "1"
    finally:
        os.chdir(here)


@pytest.mark.parametrize(
    "content",
    ['{"permissions":{"deny":["Bash"],}}', "no json", "[1]", '"text"', "\xff", "[" * 100_000, '{"x": NaN}'],
)
def test_a_file_of_settings_that_the_cli_would_drop(play, tmp_path, content):
    """With it the rules that deny something would be gone, and nobody would say so."""
    path = tmp_path / "bad.json"
    path.write_text(content, "latin-1")
    fake = play(*TURN)
    with pytest.raises(ValueError, match="settings"):
        Client(cli_path=fake.path).run("p", settings=path)
    assert fake.calls == []


TAKEN = [b"", b" \n", b'\xef\xbb\xbf{}', b'{"x": "\xff"}', b'{"x": ' + b"9" * 5000 + b"}"]


@pytest.mark.parametrize("content", TAKEN, ids=lambda content: repr(content[:20]))
def test_a_file_of_settings_that_the_cli_takes(play, tmp_path, content):
    """Nothing, a mark in front, bytes that are no text, a number that is long (see test_real_options.py)."""
    (tmp_path / "s.json").write_bytes(content)
    Client(cli_path=play(*TURN).path).ask("p", settings=tmp_path / "s.json")


def test_settings_in_a_pipe(play, tmp_path):
    """Are left to the CLI: what is read of a pipe is gone, and without a writer it would be waited for."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    fake = play(*TURN)
    assert Client(cli_path=fake.path).ask("p", settings=pipe).result == "1"
    assert f"--settings={pipe}" in fake.calls[0].argv


@pytest.mark.parametrize("way", ["dict", "text", "file"])
@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"permissions": []}, "permissions"),
        ({"permissions": {"deny": "Bash"}}, r"permissions\.deny"),
        ({"permissions": {"allow": None}}, r"permissions\.allow"),
        ({"permissions": None}, "permissions"),
        ({"permissions": {"disableBypassPermissionsMode": True}}, r"permissions\.disableBypassPermissionsMode"),
        ({"permissions": {"ask": {}}}, r"permissions\.ask"),
        ({"permissions": {"additionalDirectories": "x"}}, r"permissions\.additionalDirectories"),
        ({"permissions": {"defaultMode": "bogus"}}, r"permissions\.defaultMode"),
        ({"hooks": {"PreToolUse": "x"}}, r"hooks\.PreToolUse"),
        ({"hooks": {"PreToolUse": [{"matcher": "Bash"}]}}, "hooks"),
        ({"hooks": {"PreToolUse": [{"hooks": [{"type": "command"}]}]}}, r"PreToolUse\.0\.hooks\.0\.command"),
        ({"hooks": {"PreToolUse": [{"hooks": ["x"]}]}}, r"hooks\.PreToolUse\.0\.hooks\.0"),
        ({"model": 5}, "model"),
        ({"model": None, "permissions": {"deny": ["Bash"]}}, "model"),
        ({"env": []}, "env"),
        ({"cleanupPeriodDays": 0}, "cleanupPeriodDays"),
        ({"hooks": {"PreToolUse": [{"matcher": 3, "hooks": []}]}}, r"hooks\.PreToolUse\.0\.matcher"),
        ({"hooks": {"Stop": [{"hooks": [{"type": "prompt"}]}]}}, r"hooks\.Stop\.0\.hooks\.0\.prompt"),
        ({"alwaysThinkingEnabled": "yes"}, "alwaysThinkingEnabled"),
        ({"sandbox": {"network": {"allowedDomains": "x"}}}, r"sandbox\.network\.allowedDomains"),
        ({"enabledPlugins": {"x@y": None}}, r"enabledPlugins\.x@y"),
        ({"statusLine": {"type": "command"}}, r"statusLine\.command"),
        ({"PreToolUse": [{"hooks": []}]}, "PreToolUse"),
    ],
)
def test_a_wrong_shape_in_settings(play, tmp_path, way, settings, where):
    """One wrong field, and the CLI drops all of them: told before anything starts, wherever they stand."""
    path = tmp_path / "s.json"
    path.write_text(json.dumps(settings))
    fake = play(*TURN)
    given = {"dict": settings, "text": json.dumps(settings), "file": path}[way]
    with pytest.raises(ValueError, match=f"{where} must be"):
        Client(cli_path=fake.path).run("p", settings=given)
    assert fake.calls == []


def hook(**fields):
    return {"hooks": {"PreToolUse": [{"hooks": [fields]}]}}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (hook(type="command", command="x", timeout="5"), r"hooks\.0\.timeout must be a number above 0, and is a text;"),
        (hook(type="command", command="x", timeout=-1), r"timeout must be a number above 0, and is -1;"),
        (hook(type="http"), r"hooks\.0\.url must be a URL, and is missing;"),
        (hook(type="shell"), r"type must be one of command, prompt, agent, http, mcp_tool, and is 'shell';"),
        (hook(type="prompt", prompt="x", model=5), r"model must be a text, and is 5; else the CLI drops all of these"),
        (
            {"hooks": {"Stop": [{}]}},
            r"Stop\.0\.hooks must be a list, and is missing; else the CLI drops the hook, if not",
        ),
        ({"permissions": {"additionalDirectories": ["x", None]}}, r"Directories\.1 must be a text, and is null;"),
        ({"attribution": "x"}, "attribution must be true or false, or an object, and is a text;"),
        ({"tui": 5}, "tui must be one of default, fullscreen, and is 5;"),
        ({"awsAuthRefresh": True}, "awsAuthRefresh must be a text, and is true or false;"),
    ],
)
def test_what_is_said_of_a_wrong_shape(play, settings, says):
    """The place, what it must be, what is there (but no text, which may be a key), and what it would cost."""
    with pytest.raises(ValueError, match=says):
        Client(cli_path=play(*TURN).path).run("p", settings=settings)


@pytest.mark.parametrize("sandbox", [{"excludedCommands": "git"}, {"network": {"allowedDomains": "x"}}])
def test_a_wrong_shape_in_the_option_sandbox(play, sandbox):
    """It becomes a part of settings, and would take them all along."""
    fake = play(*TURN)
    with pytest.raises(ValueError, match=r"settings: sandbox\.\w+.* must be a list, and is a text"):
        Client(cli_path=fake.path).run("p", sandbox=sandbox)
    assert fake.calls == []
    Client(cli_path=fake.path).ask("p", sandbox={"excludedCommands": ["git"], "network": {"allowedDomains": []}})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"permissions": {"allow": ["Read"], "deny": [], "ask": ["Bash(rm *)"], "defaultMode": "plan"}},
        {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "x"}]}]}, "model": "opus"},
        {"hooks": {"PreToolUse": None}, "unknown": {"anything": None}},
        {"permissions": {"allow": ["Read", 5]}, "hooks": []},
        {"hooks": {"Nope": 3}, "cleanupPeriodDays": 30.0},
        {"fastModePerSessionOptIn": None, "attribution": False, "enabledPlugins": {"x@y": ["1.0"]}},
        {"x": {"y": [None, 5]}, "sandbox": {"unknown": 5, "network": {"unknown": None}}},
    ],
)
def test_settings_that_are_right(play, tmp_path, settings):
    """What is known passes, and what is not known too; with a byte order mark."""
    path = tmp_path / "s.json"
    path.write_text("\ufeff" + json.dumps(settings), "utf-8")
    fake = play(*TURN)
    assert Client(cli_path=fake.path).ask("p", settings=path).result == "1"
    assert Client(cli_path=fake.path).ask("p", settings=settings).result == "1"


def test_behind_a_command_prefix_nothing_is_looked_for(play, tmp_path):
    """Its disk may be another one."""
    fake = play(*TURN)
    client = Client(cli_path=fake.path, command_prefix=["/usr/bin/env"])
    assert client.ask("p", plugin_dirs=["~/there"], settings=tmp_path / "there.json").result == "1"
    assert "--plugin-dir=~/there" in fake.calls[0].argv
