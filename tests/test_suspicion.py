"""Rules that deny commands: where in a line a command is looked for. More stands in test_unattended.py."""

from __future__ import annotations

import time

import pytest

from claude_cli_client import Allow, PermissionRequest, unattended


def runs(command, *deny):
    rules = unattended(["Bash"], list(deny), cwd="/w", home="/h")
    return isinstance(rules(PermissionRequest("Bash", {"command": command})), Allow)


@pytest.mark.parametrize(
    "command",
    [
        "flock l --command='git -c a.b=c push'",
        "tar cf o a --use-compress-program='git -c a.b=c push x'",
        "git rebase --exec='git -c a=b push'",
        "env --split-string='git --git-dir=x push'",
        "ssh -oProxyCommand='git -c a=b push' h",
        "true;. /dev/stdin <<< 'echo `git push`'",
        "(source /dev/stdin <<< '`git push`')",
    ],
)
def test_a_denied_command_that_holds_an_equals_sign(command):
    """Behind the first one of its option it is whole; and what a `.` reads may begin right behind a sign."""
    assert not runs(command, "Bash(git push *)")


@pytest.mark.parametrize(
    "command",
    [
        "su -c'touch M'",
        'su -c"touch M"',
        "su -ctouch\\ M",
        "runuser root -c'touch M'",
        "script -qc'touch M' /dev/null",
        "sg users -c'touch M'",
        "flock . -c'touch M'",
        "tar -I'touch M' -cf x y",
        "rsync -e'touch M' a b:c",
        "zip -TT'touch M' x y",
        "man -P'touch M' ls",
        "npx -c'touch M'",
        "scp -S'touch' a b:",
        "find . -exec env -S'touch M' ;",
        "timeout 5 env -vS'touch M'",
        "ls; script -qc'A=1 touch M' /dev/null",
        "script -qc'true; touch M' /dev/null",
        "script -qc'/bin/touch M' /dev/null",
        "bash -c \"script -qc'touch M' x\"",
        "script -q'c'touch",
        # the whole option in quotes
        "env '-Stouch M'",
        "env -'Stouch M'",
        'env "-vStouch M"',
        # no quotes at all
        "env -Stouch M",
        "env -iStouch -- M",
        "su -ctouch",
        "scp -Stouch a b:",
        "git grep -Otouch x",
        "git difftool -xtouch",
        "xterm -etouch",
    ],
)
def test_a_denied_command_as_the_value_of_an_option(command):
    """A value may stand behind an option's letters without a space, and be a command."""
    assert not runs(command, "Bash(touch *)")


@pytest.mark.parametrize(
    "command",
    [
        "find . -perm 644",
        "find . -name '*.py' -perm -u+x -print",
        "rsync -arm src/ dst/",
        "gcc x.c -lcurl -o x",
        "make LDFLAGS=-lcurl",
        "docker run --rm -it x",
        "pytest -k'test_rm' -q",
        "pytest -k'not slow' tests",
        "sed -e's/a/b c/' -i f",
        "git tag -m'the first one' v1",
        "openssl x509 -inform PEM -outform DER -in x",
        "openssl x509 '-inform' PEM",
        "psql -c'select 1'",
        "ssh -i'a key' h ls",
    ],
)
def test_options_that_hold_no_denied_command(command):
    """What only ends as the denied name does, or is said in the value, is no command."""
    assert runs(command, "Bash(rm *)", "Bash(curl *)")


@pytest.mark.parametrize(
    "command",
    [
        "-" + "a" * 4990 + "'",
        "-" + "c" * 4990,
        "-c' " * 1200,
        "-c'x' " * 800,
        "env -S'touch' " * 350,
        "'-" * 2400,
        "\\-" * 2400,
        "-\\" * 2400,
        "-" + "c" * 2400 + " '-" + "S" * 2400 + "'",
        "env -" + "S" * 2000 + "'" + "x " * 1000 + "'",
    ],
)
def test_options_are_looked_at_at_once(command):
    """No line of options, however made, keeps a rule busy: it is also what a model can be made to send."""
    begin = time.process_time()
    runs(command, "Bash(git * push * x * y)", "Bash(rm *)")
    assert time.process_time() - begin < 3.0
