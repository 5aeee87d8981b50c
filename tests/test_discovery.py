"""Finding the CLI, explaining a start that failed, asking for the version."""

from __future__ import annotations

import errno
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from waiting import Background, until

from claude_cli_client import _ask_version, _exec_errors, discovery
from claude_cli_client.discovery import cli_version, find_cli, known_version, start_error
from claude_cli_client.errors import CLINotFoundError, CLIVersionError, StartError

VERSION_SCRIPT = '#!/bin/sh\necho "2.1.332 (Claude Code)"\n'
OTHER_PLACES = [
    "CLAUDE_CLI_PATH", "CLAUDE_CONFIG_DIR", "XDG_DATA_HOME", "NVM_DIR", "NVM_BIN", "PNPM_HOME",
    "npm_config_prefix", "NPM_CONFIG_PREFIX",
]  # fmt: skip
HERE = Path(__file__).resolve().parent


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A world without any CLI: own HOME, an empty PATH, none of the variables that name one."""
    home = tmp_path / "home"
    home.mkdir()
    empty = tmp_path / "empty"
    empty.mkdir()
    for name in OTHER_PLACES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(empty))
    private = tuple(place for place in discovery._KNOWN_PLACES if "{" in place)
    monkeypatch.setattr(discovery, "_KNOWN_PLACES", private)
    monkeypatch.setattr(discovery, "_inside_the_sdk", lambda: iter(()))
    monkeypatch.chdir(tmp_path)
    return home


def program(path: Path, text: str = VERSION_SCRIPT, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


# --- finding


def test_a_path_given_is_the_answer(home, tmp_path, monkeypatch):
    """`path` comes before every other place."""
    program(home / ".local/bin/claude")
    monkeypatch.setenv("CLAUDE_CLI_PATH", str(program(tmp_path / "by-variable")))
    given = program(tmp_path / "given")
    assert find_cli(given) == given
    assert find_cli(str(given)) == given


def test_the_order_of_the_places(home, tmp_path, monkeypatch):
    """Variable, our installer, PATH, known places, the SDK's copy: in this order."""
    sdk = program(tmp_path / "sdk/claude")
    monkeypatch.setattr(discovery, "_inside_the_sdk", lambda: iter((str(sdk),)))
    assert find_cli() == sdk
    known = program(home / ".local/bin/claude")
    assert find_cli() == known
    on_path = program(tmp_path / "bin/claude")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_cli() == on_path
    installed = program(Path(discovery.installed_cli()))
    assert find_cli() == installed
    named = program(tmp_path / "named")
    monkeypatch.setenv("CLAUDE_CLI_PATH", str(named))
    assert find_cli() == named


def test_nothing_found_tells_how_to_install_and_where_it_looked(home, tmp_path):
    """The message has the install command; `searched` has every place once, in order."""
    with pytest.raises(CLINotFoundError, match=r"npm install -g @anthropic-ai/claude-code") as caught:
        find_cli()
    searched = caught.value.searched
    assert len(set(searched)) == len(searched)
    wanted = [discovery.installed_cli(), str(tmp_path / "empty/claude"), str(home / ".local/bin/claude")]
    assert [place for place in searched if place in wanted] == wanted
    assert str(home / ".nvm/versions/node/*/bin/claude") in searched
    assert f"searched: {wanted[1]}" in str(caught.value)


@pytest.mark.parametrize("source", ["cli_path", "CLAUDE_CLI_PATH"])
def test_a_given_path_that_is_missing_is_never_replaced(home, tmp_path, monkeypatch, source):
    """An explicit path that does not exist is an error although another CLI could be found."""
    program(home / ".local/bin/claude")
    missing = str(tmp_path / "missing/claude")
    if source == "CLAUDE_CLI_PATH":
        monkeypatch.setenv(source, missing)
    with pytest.raises(CLINotFoundError, match=f"{source}: .*does not exist") as caught:
        find_cli(missing if source == "cli_path" else None)
    assert caught.value.searched == (missing,)


def test_an_empty_variable_counts_as_not_set(home, monkeypatch):
    """CLAUDE_CLI_PATH="" is what a shell or a compose file makes of an unset variable."""
    known = program(home / ".local/bin/claude")
    monkeypatch.setenv("CLAUDE_CLI_PATH", "")
    assert find_cli() == known


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_no_path_at_all_is_a_value_error(home, path):
    """An empty `cli_path`, or one with NUL, is the caller's mistake."""
    with pytest.raises(ValueError, match="cli_path is no path"):
        find_cli(path)


def test_a_file_without_run_bit_names_the_fix(home, tmp_path):
    """Of a given file without run bit the error says `chmod +x` and the path."""
    plain = program(tmp_path / "claude", mode=0o644)
    with pytest.raises(StartError, match=r"is not executable; fix: chmod \+x ") as caught:
        find_cli(plain)
    assert caught.value.cli_path == str(plain)


def test_a_file_that_is_no_program(home, tmp_path):
    """Nobody is told to make a text executable."""
    (tmp_path / "notes").write_text("hello")
    with pytest.raises(StartError, match="does not look like a program") as caught:
        find_cli(tmp_path / "notes")
    assert "chmod" not in str(caught.value)


def test_a_directory_is_named_as_such(home, tmp_path):
    """A given directory is a StartError that says so, not "permission denied"."""
    with pytest.raises(StartError, match="is a directory"):
        find_cli(tmp_path)


def test_a_dangling_link_is_named_as_such(home, tmp_path):
    """The error of a broken symbolic link names its target."""
    (tmp_path / "claude").symlink_to(tmp_path / "gone")
    with pytest.raises(CLINotFoundError, match=f"symbolic link to {tmp_path}/gone, which does not exist"):
        find_cli(tmp_path / "claude")


def test_what_cannot_run_is_skipped_on_path_and_told(home, tmp_path, monkeypatch):
    """On PATH a directory and a file without run bit are passed over; the error tells of them."""
    (tmp_path / "a/claude").mkdir(parents=True)
    program(tmp_path / "b/claude", mode=0o644)
    monkeypatch.setenv("PATH", f"{tmp_path}/a:{tmp_path}/b:{tmp_path}/c")
    with pytest.raises(CLINotFoundError) as caught:
        find_cli()
    assert f"{tmp_path}/a/claude is a directory" in caught.value.message
    assert f"{tmp_path}/b/claude is not executable" in caught.value.message
    assert "\n" not in caught.value.message
    assert "curl" in str(caught.value)
    good = program(tmp_path / "c/claude")
    assert find_cli() == good


def test_a_bare_name_is_looked_up_on_path(home, tmp_path, monkeypatch):
    """`cli_path="claude-next"` means the program of that name on PATH."""
    on_path = program(tmp_path / "bin/claude-next")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_cli("claude-next") == on_path


def test_a_bare_name_that_is_not_on_path(home, tmp_path):
    """The error lists the PATH entries tried, and tells of a file of that name right here."""
    program(tmp_path / "here")
    with pytest.raises(CLINotFoundError, match=r"no program 'here' on PATH.*write './here'") as caught:
        find_cli(Path("./here"))
    assert caught.value.searched == (str(tmp_path / "empty/here"),)


def test_a_tilde_is_expanded(home):
    """`~` in a given path is the home directory."""
    made = program(home / "claude")
    assert find_cli("~/claude") == made


def test_a_relative_path_is_taken_against_the_current_directory(home, tmp_path, monkeypatch):
    """A relative path is absolute before anybody changes the directory, links unresolved."""
    program(tmp_path / "real/claude")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert find_cli("./link/claude") == tmp_path / "link/claude"
    monkeypatch.setenv("PATH", "link")
    assert find_cli() == tmp_path / "link/claude"


def test_a_relative_path_in_a_directory_that_is_gone(home, tmp_path, monkeypatch):
    """A deleted current directory is named as the reason; an absolute path does not need one."""
    program(home / ".local/bin/claude")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("PATH", ":relative")
    assert find_cli() == home / ".local/bin/claude"
    with pytest.raises(StartError, match="the current directory does not exist any more"):
        find_cli("./claude")


def test_symbolic_links_are_not_resolved(home, tmp_path):
    """The installer updates by moving a link, so the link is what is run."""
    program(tmp_path / "versions/1/claude")
    link = home / ".local/bin/claude"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "versions/1/claude")
    assert find_cli() == link


def test_each_call_looks_anew(home, tmp_path):
    """A CLI that was moved between two calls is found at its new place."""
    first = program(home / ".npm-global/bin/claude")
    assert find_cli() == first
    second = home / ".local/bin/claude"
    second.parent.mkdir(parents=True)
    first.rename(second)
    assert find_cli() == second


def test_without_home_it_does_not_crash(home, monkeypatch):
    """HOME unset and a user without an entry: the places of the home fall out, nothing else."""
    import pwd

    def no_entry(uid):
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    assert discovery.installed_cli() == ""
    with pytest.raises(CLINotFoundError):
        find_cli()
    with pytest.raises(CLINotFoundError):
        find_cli("~/claude")


def test_without_home_the_password_database_is_asked(home, monkeypatch):
    """Under cron and systemd HOME may be unset although the user has a home."""
    import pwd

    entry = pwd.struct_passwd(("u", "x", 1, 1, "", str(home), "/bin/sh"))
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry)
    made = program(home / ".local/bin/claude")
    assert find_cli() == made


def test_of_several_node_versions_the_newest_is_taken(home):
    """v22 is newer than v9: versions are compared as numbers."""
    for version in ("v9.11.2", "v22.3.0", "v20.19.4"):
        program(home / f".nvm/versions/node/{version}/bin/claude")
    assert find_cli() == home / ".nvm/versions/node/v22.3.0/bin/claude"


def test_prefix_variables_name_a_place(home, tmp_path, monkeypatch):
    """`npm_config_prefix` is searched; a relative value is no place."""
    program(tmp_path / "prefix/bin/claude")
    monkeypatch.setenv("npm_config_prefix", "prefix")
    with pytest.raises(CLINotFoundError):
        find_cli()
    monkeypatch.setenv("npm_config_prefix", f"{tmp_path}/prefix")
    assert find_cli() == tmp_path / "prefix/bin/claude"


@pytest.mark.skipif(sys.platform == "darwin", reason="XDG is not used on macOS")
def test_our_installers_place_follows_xdg(home, monkeypatch):
    """XDG_DATA_HOME is honoured when absolute, ignored when not."""
    assert discovery.installed_cli() == f"{home}/.local/share/claude_cli_client/cli/claude"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert discovery.installed_cli() == "/data/claude_cli_client/cli/claude"
    monkeypatch.setenv("XDG_DATA_HOME", "data")
    assert discovery.installed_cli().startswith(str(home))


def test_the_sdks_copy_is_found_without_importing_it(tmp_path, monkeypatch):
    """An installed `claude-agent-sdk` is located; its code does not run."""
    carried = program(tmp_path / "claude_agent_sdk/_bundled/claude")
    (tmp_path / "claude_agent_sdk/__init__.py").write_text("raise SystemExit('was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "claude_agent_sdk", raising=False)
    assert list(discovery._inside_the_sdk()) == [str(carried)]
    assert "claude_agent_sdk" not in sys.modules


def test_a_half_made_sdk_module_does_not_crash_the_search(monkeypatch):
    """A stub in `sys.modules` without a spec (as test suites make) is no error."""
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", type(sys)("claude_agent_sdk"))
    assert list(discovery._inside_the_sdk()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every directory")
def test_a_closed_directory_on_the_way(home, tmp_path):
    """A path behind a directory that we may not enter is "closed", not "missing"."""
    program(tmp_path / "closed/claude")
    (tmp_path / "closed").chmod(0)
    try:
        with pytest.raises(StartError, match="closed to this user"):
            find_cli(tmp_path / "closed/claude")
    finally:
        (tmp_path / "closed").chmod(0o755)


def test_importing_discovery_imports_nothing_slow():
    """`pathlib`, `re`, `glob`, `importlib.util` and our own two helpers are left for later."""
    code = (
        "import sys, typing; before = set(sys.modules)\n"
        # A package without its __init__, which imports the rest.
        "package = sys.modules['claude_cli_client'] = type(sys)('claude_cli_client')\n"
        "package.__path__ = ['claude_cli_client']\n"
        "import claude_cli_client.discovery\n"
        "print(*set(sys.modules) - before)"
    )
    out = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=HERE.parent, capture_output=True, text=True, check=True
    ).stdout.split()
    slow = {"pathlib", "shutil", "tempfile", "re", "glob", "inspect", "logging", "importlib.util"}
    assert not slow & set(out)
    assert "claude_cli_client._exec_errors" not in out
    assert "claude_cli_client._ask_version" not in out


# --- explaining


def started(*argv: str, **options) -> StartError:
    """The StartError for an exec that fails, caused by the real OSError."""
    with pytest.raises(OSError) as caught:
        subprocess.Popen(list(argv), **options)
    return start_error(argv[0], caught.value)


def test_a_start_error_carries_its_facts():
    """errno, the path and the cause are fields; the error survives pickling."""
    error = started("/nowhere/claude")
    assert (error.errno, error.cli_path, error.retryable) == (errno.ENOENT, "/nowhere/claude", False)
    assert isinstance(error.__cause__, FileNotFoundError)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.errno, copy.cli_path, str(copy)) == (error.errno, error.cli_path, str(error))


def test_a_missing_interpreter_is_named(tmp_path):
    """ENOENT for a script that exists means its interpreter: the first line is read."""
    script = program(tmp_path / "claude", "#!/opt/none/node --flag\n")
    assert "its interpreter /opt/none/node does not exist" in str(started(str(script)))


def test_windows_line_ends_in_the_first_line_are_named(tmp_path):
    """A script saved with CR LF fails with ENOENT, and the error says why."""
    script = program(tmp_path / "claude", "#!/bin/sh\r\nexit 0\r\n")
    assert "CR LF" in str(started(str(script)))


@pytest.mark.skipif(sys.platform != "linux", reason="ELF")
def test_a_missing_loader_is_named(tmp_path):
    """A program for another C library fails with ENOENT: the ELF header is read."""
    data = Path("/bin/true").read_bytes()
    if b"/ld-" not in data[:65536]:
        pytest.skip("/bin/true is static here")
    wrong = tmp_path / "claude"
    wrong.write_bytes(data.replace(b"/ld-linux", b"/ld-nowhe").replace(b"/ld-musl", b"/ld-mule"))
    wrong.chmod(0o755)
    assert "its loader /lib" in str(started(str(wrong)))


def test_a_vanished_file_and_a_dangling_link(tmp_path):
    """ENOENT for what is not there says so."""
    (tmp_path / "link").symlink_to("/nowhere/claude")
    assert "the file does not exist" in str(started(str(tmp_path / "none")))
    assert "symbolic link to /nowhere/claude" in str(started(str(tmp_path / "link")))


def test_a_bare_name_that_exec_does_not_find():
    """A prefix that is not installed; a closed directory on PATH makes EACCES of it."""
    assert "no program 'no-such-program' on PATH" in str(started("no-such-program"))
    refused = PermissionError(errno.EACCES, "Permission denied", "no-such-program")
    assert "on PATH that this user may run" in str(start_error("no-such-program", refused))


def test_permission_denied_is_told_apart(tmp_path):
    """EACCES: no run bit, a directory, an interpreter that may not run, in different words."""
    plain = program(tmp_path / "plain", mode=0o644)
    assert "is not executable; fix: chmod +x" in str(started(str(plain)))
    assert "it is a directory" in str(started(str(tmp_path)))
    script = program(tmp_path / "script", f"#!{plain}\n")
    assert f"its interpreter {plain} may not be executed" in str(started(str(script)))


def test_a_disk_mounted_noexec_is_named(tmp_path, monkeypatch):
    """Run bits are set and still it is refused: the mount is looked at."""
    path = program(tmp_path / "claude")
    monkeypatch.setattr(os, "access", lambda *args: False)
    monkeypatch.setattr(_exec_errors, "_is_noexec", lambda path: True)
    with pytest.raises(StartError, match="mounted noexec"):
        find_cli(path)
    assert "mounted noexec" in str(start_error(str(path), PermissionError(errno.EACCES, "denied", str(path))))


@pytest.mark.skipif(not os.path.exists("/proc/mounts"), reason="Linux")
def test_a_noexec_mount_is_recognised():
    """The mount's flag is read: set on /proc where the mount table says so, clear where programs run."""
    options = [line.split()[3] for line in Path("/proc/mounts").read_text().splitlines() if " /proc proc " in line]
    assert _exec_errors._is_noexec("/proc/self/status") == ("noexec" in options[-1].split(","))
    assert not _exec_errors._is_noexec(sys.executable)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"", "the file is empty"),
        (b"MZ\x90\x00", "a Windows program"),
        (b"echo hello\n", "neither a program nor a script"),
        (b"\xcf\xfa\xed\xfe" + bytes(60), "macOS"),
    ],
)
def test_a_file_that_is_no_program_is_described(tmp_path, head, words):
    """ENOEXEC: the first bytes tell what it is."""
    path = tmp_path / "claude"
    path.write_bytes(head)
    assert words in str(start_error(str(path), OSError(errno.ENOEXEC, "Exec format error", str(path))))


@pytest.mark.skipif(sys.platform != "linux", reason="ELF")
def test_the_wrong_processor_is_named(tmp_path):
    """ENOEXEC for ELF: both processors are named."""
    ours = os.uname().machine
    number, name = (62, "x86-64") if ours != "x86_64" else (183, "arm64")
    head = bytearray(b"\x7fELF\x02\x01\x01" + bytes(57))
    head[18] = number
    path = tmp_path / "claude"
    path.write_bytes(head)
    text = str(start_error(str(path), OSError(errno.ENOEXEC, "Exec format error", str(path))))
    assert f"it is built for {name}, and this machine is" in text


def test_the_working_directory_is_blamed_when_it_is_at_fault(tmp_path):
    """`Popen` names the directory in its error: missing, no directory."""
    sh = "/bin/sh"
    assert "the working directory /nowhere does not exist" in str(started(sh, cwd="/nowhere"))
    file = program(tmp_path / "file")
    assert f"the working directory {file} is not a directory" in str(started(sh, cwd=file))


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of one argument")
def test_too_long_arguments_are_named():
    """E2BIG says what is too long."""
    assert "too long for this system" in str(started("/bin/sh", "-c", "x" * 200_000))


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.ETXTBSY, errno.EMFILE, errno.ENFILE])
def test_a_shortage_is_retryable(number):
    """Want of memory, processes, descriptors, or an update being written can pass."""
    error = start_error("/bin/claude", OSError(number, os.strerror(number)))
    assert error.retryable
    assert error.errno == number


def test_an_unknown_number_keeps_the_systems_words():
    """What is in no table is passed on."""
    error = start_error("/bin/claude", OSError(errno.ENOSPC, "No space left on device"))
    assert "No space left on device" in str(error)


@pytest.mark.parametrize(
    "cut",
    [b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 60, b"#!", b"#!\n"],
    ids=["cut", "wild", "shebang", "line"],
)
def test_a_damaged_head_never_raises(tmp_path, cut):
    """The explanation of an error must not become another error."""
    path = tmp_path / "claude"
    path.write_bytes(cut)
    path.chmod(0o755)
    for number in (errno.ENOENT, errno.EACCES, errno.ENOEXEC):
        assert str(path) in str(start_error(str(path), OSError(number, "x", str(path))))


# --- the version


@pytest.fixture
def witness(tmp_path):
    """A FIFO that fakes hold open: `gone()` is true when every one of them has died."""
    path = tmp_path / "witness"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield Witness(path, reader)
    os.close(reader)


class Witness:
    def __init__(self, path: Path, reader: int) -> None:
        self.path, self._reader = path, reader
        self._poll = select.poll()
        self._poll.register(reader, select.POLLIN)

    def said(self) -> bytes:
        assert self._poll.poll(10_000)
        return os.read(self._reader, 1000)

    def gone(self) -> bool:
        while self._poll.poll(10_000):
            if not os.read(self._reader, 1000):
                return True
        return False


@pytest.fixture
def clock(monkeypatch):
    """The clock of the question. `late(asking)`: its time is over, in no time."""
    made = Clock()
    monkeypatch.setattr(_ask_version, "monotonic", made)
    return made


class Clock:
    def __init__(self) -> None:
        self._calls, self._step, self._ahead = 0, 0, 0

    def __call__(self) -> float:
        self._calls += 1
        self._ahead += self._step
        return time.monotonic() + self._ahead

    def late(self, asking: Background) -> None:
        looks = self._calls + 6
        until(lambda: self._calls > looks, "it has read what was said")
        self._step = 100
        asking.result()


def test_the_version_is_the_bare_number(tmp_path):
    """ "2.1.332 (Claude Code)" becomes "2.1.332"."""
    assert cli_version(program(tmp_path / "claude")) == "2.1.332"


def test_a_known_version_belongs_to_the_very_file(tmp_path):
    """`known_version` runs nothing, and forgets when the file is replaced."""
    path = program(tmp_path / "claude")
    assert known_version(path) == ""
    cli_version(path)
    assert known_version(str(path)) == "2.1.332"
    program(path, VERSION_SCRIPT.replace("2.1.332", "2.1.10000"))
    assert known_version(path) == ""
    path.unlink()
    assert known_version(path) == ""


def test_a_version_learned_elsewhere_is_remembered(tmp_path):
    """The first line of a turn tells the version too."""
    path = str(program(tmp_path / "claude"))
    discovery.remember_version(path, "2.1.9")
    assert known_version(path) == "2.1.9"
    discovery.remember_version(str(tmp_path / "missing"), "2.1.9")
    assert known_version(tmp_path / "missing") == ""


def test_another_program_named_claude(tmp_path):
    """A program that is not Claude Code is a CLIVersionError with its own words in `found`."""
    path = program(tmp_path / "claude", "#!/bin/sh\necho claude 0.3\n")
    with pytest.raises(CLIVersionError, match=r"is not Claude Code: .*'claude 0.3'") as caught:
        cli_version(path)
    assert caught.value.found == "claude 0.3"
    assert known_version(path) == ""


def test_a_version_that_is_too_old(tmp_path):
    """Below the minimum the error has both versions and the command that updates."""
    path = program(tmp_path / "claude", VERSION_SCRIPT.replace("2.1.332", "1.0.128"))
    with pytest.raises(CLIVersionError, match="claude update") as caught:
        cli_version(path)
    assert (caught.value.found, caught.value.required) == ("1.0.128", discovery.MINIMUM)


def test_a_failing_program_keeps_its_words(tmp_path):
    """The exit code and stderr of a failed `--version` stand in the error."""
    path = program(tmp_path / "claude", "#!/bin/sh\necho 'broken install' >&2\nexit 3\n")
    with pytest.raises(StartError, match=r"failed with exit code 3\n  it said: broken install"):
        cli_version(path)


def test_a_missing_node_is_named(tmp_path):
    """The npm script without node on PATH: exit 127 is explained."""
    path = program(tmp_path / "claude", "#!/usr/bin/env node\n")
    with pytest.raises(StartError, match="node is not on PATH"):
        cli_version(path, env={"PATH": str(tmp_path)})


def test_death_by_signal_is_named(tmp_path):
    """A crash names the signal and its usual cause."""
    path = program(tmp_path / "claude", "#!/bin/sh\nkill -ILL $$\n")
    with pytest.raises(StartError, match=r"died of SIGILL .*newer processor"):
        cli_version(path)


def test_a_file_that_cannot_be_executed(tmp_path):
    """An exec failure arrives explained, with the OSError as its cause."""
    path = program(tmp_path / "claude", "#!/opt/none/node\n")
    with pytest.raises(StartError, match="its interpreter /opt/none/node does not exist") as caught:
        cli_version(path)
    assert isinstance(caught.value.__cause__, OSError)


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path, witness, clock):
    """At the deadline the whole group goes, although all of it ignores SIGTERM."""
    path = program(
        tmp_path / "claude",
        f"#!/bin/sh\ntrap '' TERM\nexec 9>{witness.path}\nsleep 600 &\necho partial\necho ready >&9\nsleep 600\n",
    )
    asking = Background(cli_version, path, timeout=100)
    assert witness.said() == b"ready\n"
    with pytest.raises(StartError, match=r"did not end within 100 s\n  it said: partial"):
        clock.late(asking)
    assert witness.gone()


def test_an_answer_without_an_end_is_not_good_enough(tmp_path, witness, clock):
    """A CLI that answers and then hangs would hang in a turn too."""
    path = program(
        tmp_path / "claude",
        f"#!/bin/sh\nexec 9>{witness.path}\necho '2.1.332 (Claude Code)'\necho ready >&9\nexec sleep 600 >&- 2>&-\n",
    )
    asking = Background(cli_version, path, timeout=100)
    assert witness.said() == b"ready\n"
    with pytest.raises(StartError, match="did not end within"):
        clock.late(asking)
    assert witness.gone()


def test_a_child_that_holds_the_pipes_does_not_delay_the_answer(tmp_path, witness):
    """The leader's end counts, not the end of the pipes; what it left is killed."""
    path = program(
        tmp_path / "claude",
        f"#!/bin/sh\nexec 9>{witness.path}\nsleep 600 &\necho '2.1.332 (Claude Code)'\n",
    )
    assert cli_version(path, timeout=60) == "2.1.332"
    assert witness.gone()


def test_floods_on_both_pipes_are_drained(tmp_path):
    """A megabyte on stderr, then on stdout, blocks nothing."""
    path = program(
        tmp_path / "claude",
        "#!/bin/sh\nhead -c 1000000 /dev/zero >&2\necho '2.1.332 (Claude Code)'\nhead -c 1000000 /dev/zero\n",
    )
    assert cli_version(path, timeout=60) == "2.1.332"


def test_the_version_is_asked_in_a_session_of_its_own(tmp_path):
    """The child leads its own session, with nothing on stdin, in the environment given."""
    path = program(
        tmp_path / "claude",
        "#!/bin/sh\nread line && exit 9\n"
        f'{sys.executable} -c "import os; print(os.getsid(0) == os.getppid())" >"$OUT"\n'
        "echo '2.1.332 (Claude Code)'\n",
    )
    out = tmp_path / "out"
    assert cli_version(path, env={"OUT": str(out), "PATH": os.environ["PATH"]}, timeout=60) == "2.1.332"
    assert out.read_text().strip() == "True"


def test_ctrl_c_leaves_nothing(tmp_path, witness):
    """KeyboardInterrupt while a CLI hangs in `--version`: it is killed before we are gone."""
    path = program(tmp_path / "claude", f"#!/bin/sh\nexec 9>{witness.path}\necho ready >&9\nsleep 600\n")
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from claude_cli_client.discovery import cli_version\n"
        f"cli_version({str(path)!r}, timeout=600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=HERE.parent, stderr=subprocess.PIPE) as process:
        assert witness.said() == b"ready\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in stderr
    assert witness.gone()


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="needs waitid")
def test_without_waitid_it_works_too(tmp_path, monkeypatch, witness, clock):
    """The fallback (macOS before Python 3.13) still answers, and still kills at the deadline."""
    monkeypatch.delattr(os, "waitid")
    assert cli_version(program(tmp_path / "claude"), timeout=60) == "2.1.332"
    hang = program(tmp_path / "hang", f"#!/bin/sh\nexec 9>{witness.path}\necho ready >&9\nsleep 600\n")
    asking = Background(cli_version, hang, timeout=100)
    assert witness.said() == b"ready\n"
    with pytest.raises(StartError, match="did not end within"):
        clock.late(asking)
    assert witness.gone()


def test_children_reaped_by_the_host(tmp_path):
    """With SIGCHLD ignored the exit code is unknown, and the answer still counts."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert cli_version(program(tmp_path / "claude"), timeout=60) == "2.1.332"
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_host_without_threads_is_told_so(tmp_path, monkeypatch):
    """StartError as for a run, and not what `threading` raises."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    path = program(tmp_path / "claude")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(StartError, match="thread"):
        cli_version(path)
