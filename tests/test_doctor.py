"""The doctor: each check against a place made for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_named_files import TAKEN

from claude_cli_client import _doctor
from claude_cli_client._doctor import FAIL, NOTE, OK, WARN, Place

ROOT = Path(__file__).resolve().parent.parent
SECRET = "sk-ant-very-secret"


@pytest.fixture
def place(tmp_path):
    """A healthy Linux place: a CLI, a key, own directories."""
    for name in ("home", "cwd", "tmp", "proc/self", "proc/1", "managed"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/self/environ").write_text("A=B")
    (tmp_path / "proc/1/comm").write_text("systemd\n")
    cli = tmp_path / "claude"
    cli.write_text('#!/bin/sh\necho "2.1.332 (Claude Code)"\n')
    cli.chmod(0o755)
    environ = {
        "HOME": str(tmp_path / "home"),
        "PATH": os.environ["PATH"],
        "TMPDIR": str(tmp_path / "tmp"),
        "CLAUDE_CLI_PATH": str(cli),
        "ANTHROPIC_API_KEY": SECRET,
    }
    return Place(
        environ, str(tmp_path / "cwd"), platform="linux", uid=1000, proc=str(tmp_path / "proc"),
        managed=str(tmp_path / "managed"),
    )  # fmt: skip


def rows(place: Place, name: str) -> list[tuple[str, str]]:
    return [(check.status, f"{check.detail} -> {check.fix}") for check in _doctor.examine(place) if check.name == name]


def only(place: Place, name: str) -> tuple[str, str]:
    (row,) = rows(place, name)
    return row


def settings(place: Place, content: object, where: str = ".claude/settings.json") -> None:
    path = Path(place.cwd, where)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def credentials(place: Place, mode: int = 0o600, **fields: object) -> None:
    path = Path(place.config_dir, ".credentials.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"claudeAiOauth": {"accessToken": SECRET, **fields}}))
    path.chmod(mode)


def test_a_healthy_place_has_no_complaint(place):
    """Where all is well no row is a warning or a failure."""
    assert {check.status for check in _doctor.examine(place)} <= {OK, NOTE}


def test_no_secret_is_ever_shown(place):
    """Keys, tokens, helpers and stored logins are named by their source only."""
    place.environ["CLAUDE_CODE_OAUTH_TOKEN"] = SECRET + "\n"
    credentials(place, refreshToken=SECRET, expiresAt=0)
    settings(place, {"apiKeyHelper": f"echo {SECRET}", "env": {"ANTHROPIC_AUTH_TOKEN": SECRET}})
    assert SECRET not in repr(list(_doctor.examine(place)))


# --- the CLI


def test_the_cli_in_use_and_the_others(place, tmp_path):
    """The row says which program runs, why that one, and which others are there."""
    other = tmp_path / "home/.local/bin/claude"
    other.parent.mkdir(parents=True)
    other.write_bytes(Path(place.environ["CLAUDE_CLI_PATH"]).read_bytes())
    other.chmod(0o755)
    first, *rest = rows(place, "cli")
    assert first[0] == OK
    assert f"{tmp_path}/claude (named by CLAUDE_CLI_PATH)" in first[1]
    assert any(status == NOTE and f"not used: {other} (known place)" in text for status, text in rest)


def test_a_missing_cli_fails_with_the_places_and_the_command(place, monkeypatch, tmp_path):
    """Without a CLI: FAIL, how to install it, and every place that was searched."""
    del place.environ["CLAUDE_CLI_PATH"]
    place.environ["PATH"] = str(tmp_path)
    Path(tmp_path, "claude").unlink()
    monkeypatch.setattr(_doctor.discovery, "_KNOWN_PLACES", ("{home}/.local/bin/claude",))
    monkeypatch.setattr(_doctor.discovery, "_inside_the_sdk", lambda: iter(()))
    first, *searched = rows(place, "cli")
    assert first[0] == FAIL
    assert "npm install -g @anthropic-ai/claude-code" in first[1]
    assert any("searched: " in text and f"{tmp_path}/claude" in text for _, text in searched)
    assert only(place, "version")[0] == FAIL


def test_a_wrong_variable_is_what_has_to_be_mended(place):
    """Not the CLI, nor an argument: it is the variable that names what is not there."""
    place.environ["CLAUDE_CLI_PATH"] = "/nowhere/claude"
    (status, text), *_ = rows(place, "cli")
    assert status == FAIL
    assert "does not exist -> correct CLAUDE_CLI_PATH, or remove it" in text


def test_a_cli_that_cannot_be_executed_says_how_to_mend_it(place):
    """The reason and the fix of a start error stand in the row."""
    Path(place.environ["CLAUDE_CLI_PATH"]).chmod(0o644)
    status, text = only(place, "cli")
    assert status == FAIL
    assert "chmod +x" in text


def test_the_version_is_asked(place):
    """The row has the version; a broken CLI is a failure with its words."""
    assert only(place, "version")[1].startswith("2.1.332, starts in a session of its own")
    Path(place.environ["CLAUDE_CLI_PATH"]).write_text("#!/bin/sh\necho 'half installed' >&2\nexit 1\n")
    status, text = only(place, "version")
    assert status == FAIL
    assert "half installed" in text


# --- login


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"])
def test_a_credential_in_the_environment(place, name):
    """Each of the three variables alone is a login."""
    del place.environ["ANTHROPIC_API_KEY"]
    place.environ[name] = SECRET
    assert only(place, "login") == (OK, f"{name} -> ")


def test_settings_of_the_machine_are_in_the_order_of_their_names(place, monkeypatch):
    """The last one counts, and a disk lists them in any order."""
    more = f"{place.managed}/managed-settings.d"
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", lambda path: ["20.json", "30.json", "10.json"])
        files = place.settings_files
    assert files[4:] == [f"{more}/{number}.json" for number in (10, 20, 30)]


def test_an_api_key_helper_in_any_settings_file(place):
    """`apiKeyHelper` of the user, the project, the local file and the managed ones count."""
    del place.environ["ANTHROPIC_API_KEY"]
    more = Path(place.managed) / "managed-settings.d"
    more.mkdir()
    for name in ("10-a.json", ".hidden.json", "notes.txt"):
        (more / name).write_text("{}")
    assert place.settings_files[3:] == [f"{place.managed}/managed-settings.json", f"{more}/10-a.json"]
    for path in place.settings_files:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text('{"apiKeyHelper": "get-key"}')
        assert only(place, "login")[1] == f"apiKeyHelper in {path} -> "
        Path(path).unlink()


def test_a_cloud_provider_needs_no_key(place):
    """Bedrock and the like bring their own credentials."""
    del place.environ["ANTHROPIC_API_KEY"]
    place.environ["CLAUDE_CODE_USE_BEDROCK"] = "1"
    assert only(place, "login") == (OK, "CLAUDE_CODE_USE_BEDROCK -> ")


def test_two_credentials_are_a_warning_that_names_the_winner(place):
    """A stray API key makes a paid run of a subscription one: say which is used."""
    place.environ["CLAUDE_CODE_OAUTH_TOKEN"] = SECRET
    credentials(place)
    status, text = only(place, "login")
    assert status == WARN
    assert "ANTHROPIC_API_KEY is used, CLAUDE_CODE_OAUTH_TOKEN, the login in" in text


def test_the_auth_token_wins_over_the_key(place):
    """The CLI takes ANTHROPIC_AUTH_TOKEN first (as `claude auth status` reports)."""
    place.environ["ANTHROPIC_AUTH_TOKEN"] = SECRET
    assert "ANTHROPIC_AUTH_TOKEN is used, ANTHROPIC_API_KEY is not" in only(place, "login")[1]


def test_a_stored_login(place):
    """The file that /login writes is a login, also when the token is old but can be renewed."""
    del place.environ["ANTHROPIC_API_KEY"]
    credentials(place, refreshToken=SECRET, expiresAt=1000)
    assert only(place, "login")[0] == OK


def test_a_stored_login_that_has_expired(place):
    """Expired and without a refresh token: not a login, and the row says why."""
    del place.environ["ANTHROPIC_API_KEY"]
    credentials(place, expiresAt=1000)
    (first, why), (second, _) = rows(place, "login")
    assert (first, second) == (WARN, FAIL)
    assert "has expired and cannot renew itself" in why


def test_a_stored_login_that_others_can_read(place):
    """A credentials file open to others is a warning with the command that closes it."""
    del place.environ["ANTHROPIC_API_KEY"]
    credentials(place, mode=0o644)
    assert any(status == WARN and "chmod 600" in text for status, text in rows(place, "login"))


def test_no_login(place):
    """Nothing at all: FAIL on Linux, on macOS only a note, since the keychain is not asked."""
    place.environ["ANTHROPIC_API_KEY"] = ""
    assert only(place, "login")[0] == FAIL
    place.platform = "darwin"
    assert only(place, "login")[0] == NOTE


def test_a_key_with_a_line_end(place):
    """A key pasted with its newline is refused by the API: warn."""
    place.environ["ANTHROPIC_API_KEY"] = SECRET + "\n"
    assert rows(place, "login")[0][0] == WARN


def test_broken_settings_are_told(place):
    """The CLI ignores a settings file with bad JSON silently; the doctor does not."""
    settings(place, "{broken")
    assert any(status == WARN and "is not valid JSON" in text for status, text in rows(place, "settings"))


@pytest.mark.parametrize("content", TAKEN, ids=lambda content: repr(content[:20]))
def test_settings_that_the_cli_takes_are_in_order(place, content):
    """What the CLI reads leniently is no trouble here either."""
    path = Path(place.settings_files[-1])
    path.write_bytes(content)
    assert only(place, "settings") == (OK, f"{path} -> ")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"model": 5, "apiKeyHelper": "x"}', "model must be a text"),
        ('{"x": NaN, "apiKeyHelper": "x"}', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[1]", "no JSON object"),
    ],
)
def test_settings_that_the_cli_drops_are_told(place, content, why):
    """Also where only the shape is wrong; and what such a file names is no credential."""
    del place.environ["ANTHROPIC_API_KEY"]
    settings(place, content)
    status, text = only(place, "settings")
    assert status == WARN
    assert why in text
    assert [status for status, _ in rows(place, "login")] == [FAIL]


def test_settings_and_credentials_in_a_pipe(place):
    """Nobody may ever write into it: it is told, and not waited for."""
    for name in ("settings.json", ".credentials.json"):
        path = Path(place.config_dir, name)
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
    assert ["not a regular file" in text for _, text in rows(place, "settings")] == [True]
    assert [status for status, text in rows(place, "login") if "not a regular file" in text] == [WARN]


def test_a_stored_login_with_a_mark_in_front(place):
    """The credentials file is read as leniently as settings."""
    del place.environ["ANTHROPIC_API_KEY"]
    credentials(place, refreshToken=SECRET)
    path = Path(place.config_dir, ".credentials.json")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert only(place, "login")[0] == OK


@pytest.mark.parametrize("content", ["[]", "1", '{"env": 3}', '{"env": {"ANTHROPIC_API_KEY": 1}}'])
def test_odd_settings_break_nothing(place, content):
    """Valid JSON of another shape is no crash."""
    settings(place, content)
    assert rows(place, "login")[0][0] == OK


# --- places and the system


def test_the_config_dir(place, tmp_path):
    """It may not exist yet; a file in its place is a failure."""
    assert only(place, "config dir") == (OK, f"{tmp_path}/home/.claude (will be created) -> ")
    (tmp_path / "home/.claude").write_text("")
    assert only(place, "config dir")[0] == FAIL
    place.environ["CLAUDE_CONFIG_DIR"] = str(tmp_path / "tmp")
    assert only(place, "config dir") == (OK, f"{tmp_path}/tmp -> ")


def test_a_config_dir_that_cannot_be_written(place, monkeypatch):
    """Turns run but sessions are lost: a warning."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    status, text = only(place, "config dir")
    assert status == WARN
    assert "resume= cannot work" in text


def test_a_temp_dir_that_is_missing(place, tmp_path):
    """TMPDIR must exist and take files; the CLI's own variable wins."""
    place.environ["CLAUDE_CODE_TMPDIR"] = str(tmp_path / "none")
    assert only(place, "temp dir")[0] == FAIL


def test_a_full_temp_dir(place, monkeypatch):
    """Little room is a warning."""
    real = os.statvfs(place.cwd)
    full = os.statvfs_result([*list(real)[:2], 1000, 10, 10, *list(real)[5:]])
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    assert only(place, "temp dir")[0] == WARN


def test_a_deleted_current_directory(place):
    """The CLI refuses to start there."""
    place.cwd = ""
    assert only(place, "cwd")[0] == FAIL


def test_proc_that_cannot_be_read(place, tmp_path):
    """Without /proc leftovers may be missed; on macOS that is so anyway."""
    place.proc = str(tmp_path / "none")
    assert only(place, "/proc")[0] == WARN
    place.platform = "darwin"
    assert only(place, "/proc")[0] == NOTE


@pytest.mark.parametrize(("check", "call"), [("pidfd", "pidfd_open"), ("memfd", "memfd_create")])
def test_a_kernel_feature_that_is_missing_is_a_note(place, monkeypatch, check, call):
    """There is a fallback for each, so it is not a failure."""

    def refused(*args: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, call, refused, raising=False)
    assert only(place, check)[0] == NOTE


def test_a_session_around_us(place):
    """The variables of an outer session are named."""
    place.environ["CLAUDECODE"] = "1"
    status, text = only(place, "nesting")
    assert status == WARN
    assert "CLAUDECODE" in text


def test_root_is_told_about_the_bypass_mode(place):
    """As root the CLI refuses to skip permissions, unless a sandbox is declared."""
    place.uid = 0
    assert only(place, "root")[0] == NOTE
    place.environ["IS_SANDBOX"] = "1"
    assert only(place, "root")[0] == OK


def test_a_container_without_init(place, tmp_path):
    """Process 1 that is no init may collect zombies."""
    (tmp_path / "proc/1/comm").write_text("gunicorn\n")
    status, text = only(place, "init")
    assert status == NOTE
    assert "docker run --init" in text


def test_a_check_that_breaks_is_a_row(place, monkeypatch):
    """The doctor goes on when it cannot examine something."""

    def broken(place: Place) -> None:
        raise RuntimeError("no idea")

    monkeypatch.setattr(_doctor, "_CHECKS", (("broken", broken), ("cwd", _doctor._cwd)))
    assert [(check.name, check.status) for check in _doctor.examine(place)] == [("broken", WARN), ("cwd", OK)]


# --- the program


def doctor(place: Place, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "claude_cli_client", "doctor", *arguments], cwd=place.cwd, text=True,
        env={**place.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_program_prints_a_table(place):
    """Exit code 0, one row for each check, nothing on stderr."""
    done = doctor(place)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ok    version      2.1.332" in done.stdout
    assert done.stdout.endswith("Turns can run here.\n")


def test_the_program_fails_with_the_fix(place):
    """Exit code 1 if anything fails; the fix stands on its own line."""
    del place.environ["ANTHROPIC_API_KEY"]
    done = doctor(place)
    assert done.returncode == 1
    assert "FAIL  login " in done.stdout
    assert "\n                   -> run `claude` and /login" in done.stdout


def test_the_program_prints_json(place):
    """`--json`: one object with `ok` and `checks`."""
    told = json.loads(doctor(place, "--json", "--cli-path", "/nowhere/claude").stdout)
    assert told["ok"] is False
    assert {
        "name": "version",
        "status": "fail",
        "detail": "unknown: there is no CLI to ask",
        "fix": "",
    } in told["checks"]
