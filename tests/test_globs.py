"""Patterns that meet texts of the model: what they mean, and what the worst text may cost."""

import itertools
import operator
import time

import pytest

from claude_cli_client import Allow, Deny, PermissionRequest, unattended
from claude_cli_client._globs import fits, glob
from claude_cli_client._suspicion import _redirected

TEXTS = ["".join(letters) for size in range(7) for letters in itertools.product("ab", repeat=size)]


def meant(pattern, text):
    """What a pattern means, in its plainest words; takes its time."""
    if not pattern or not text:
        return not pattern.strip("*") and not text
    if pattern[0] == "*":
        return meant(pattern[1:], text) or meant(pattern, text[1:])
    return pattern[0] == text[0] and meant(pattern[1:], text[1:])


@pytest.mark.parametrize("pattern", ["", "a", "*", "*a", "a*", "**", "*ab*", "a*b", "*a*b*a", "ab*ab", "*a*a", "a**b*"])
def test_what_a_star_means(pattern):
    """It is any number of letters, also none; both matchers say so for every short text."""
    expected = [text for text in TEXTS if meant(pattern, text)]
    assert [text for text in TEXTS if glob(pattern, text)] == expected
    assert [text for text in TEXTS if fits(pattern, text, "*", operator.eq)] == expected


@pytest.mark.parametrize("pattern", ["*a*a*a*b", "*aaaaaaab", "*a*ab*", "a*a*a*a*a*a*c"])
def test_no_pair_is_compared_twice(pattern):
    """However a text is made, each of its letters meets each one of the pattern once at most."""
    compared = []
    assert not fits(pattern, "a" * 1000, "*", lambda *pair: bool(compared.append(pair)) or operator.eq(*pair))
    assert len(compared) <= len(pattern) * 1000


# --- paths ------------------------------------------------------------------------------------------


def answer(path, allow=(), deny=()):
    made = unattended(allow, deny, cwd="/srv/app", home="/home/u")
    return made(PermissionRequest("Edit", {"file_path": path}))


@pytest.mark.parametrize(
    ("rule", "segment"),
    [
        ("Edit(**/secrets/**)", "/a"),
        ("Edit(/**/.git/**)", "/a"),
        ("Edit(src/**/gen/**/*.py)", "/gen"),
        ("Edit(**/a/**/a/**/b)", "/a"),
        ("Edit(**/*a*a*a*a*b)", "a"),
    ],
)
def test_no_path_takes_long(rule, segment):
    """The longest path that a rule looks at is answered at once, to allow and to deny, whatever it holds."""
    path = ("/srv/app/src/" + segment * 4096)[:4096]
    began = time.thread_time()
    assert isinstance(answer(path, ["Edit"], [rule]), Allow)
    assert isinstance(answer(path, [rule]), Deny)
    assert time.thread_time() - began < 2


def test_relative_paths_have_the_limit_too():
    """A longer path than a system takes is not compared, and so denied, wherever it begins."""
    for path in ("/" + "a" * 4096, "a" * 4097):
        assert isinstance(answer(path, ["Edit"], ["Edit(b)"]), Deny)
        assert isinstance(unattended(["Edit(**)"])(PermissionRequest("Edit", {"file_path": path})), Deny)
    assert isinstance(answer("a" * 4096, ["Edit"], ["Edit(b)"]), Allow)


@pytest.mark.parametrize("path", ["/srv/app/\u200c/secret", "/srv/app/keys/\u200c", "/srv/app/keys/\u200c/x"])
def test_a_name_of_ignored_characters_hides_nothing(path):
    """A directory whose name is nothing to some disks is still one, for a denial at any depth."""
    assert isinstance(answer(path, ["Edit"], ["Edit(**/secret)", "Edit(keys/**)"]), Deny)


@pytest.mark.parametrize("rule", ["Edit(//private)", "Edit(//private/)", "Edit(//private/**)"])
def test_another_name_of_the_root(rule):
    """Who denies it denies what is in it, however it is written."""
    assert isinstance(answer("/private/x", ["Edit"], [rule]), Deny)


# --- commands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "marked"),
    [("a 2>b", "a  -_ b"), ("a 12>&1", "a  -_ 1"), ("a1>b", "a -_ b"), ("12 >b", "12  -_ b"), ("a &>>b", "a  -_ b")],
)
def test_redirections(text, marked):
    """Digits before one belong to it."""
    assert _redirected(text) == marked


def test_digits_take_no_time():
    """A number that nothing is redirected of is looked at once, and not from each of its digits on."""
    began = time.thread_time()
    assert _redirected("1" * 50_000) == "1" * 50_000
    assert time.thread_time() - began < 2
