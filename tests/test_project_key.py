"""The names of project folders, pure. That the real CLI makes the same is tested with the real CLI."""


import pytest

from claude_cli_client._project_key import is_cut, prefix, project_key

CASES = [
    ("/home/user/project", "-home-user-project"),
    ("/srv/a.b_c d", "-srv-a-b-c-d"),
    ("/", "-"),
    ("/x/\u00e9", "-x--"),
    ("/x/e\u0301", "-x-e-"),
    ("/x/\U0001f680", "-x---"),
    ("/x/\udcff", "-x--"),
    ("/" + "a" * 199, "-" + "a" * 199),
]


@pytest.mark.parametrize(("path", "key"), CASES)
def test_names(path, key):
    """By UTF-16 unit, and nothing is normalised."""
    assert project_key(path) == key
    assert not is_cut(key)


def test_a_long_path_is_cut_and_hashed():
    """200 characters, and a hash that node's `h * 31 + unit | 0` gives."""
    key = project_key("/" + "a" * 200)
    assert key == "-" + "a" * 199 + "-" + _javascript("/" + "a" * 200)
    assert is_cut(key)
    assert prefix(key) == "-" + "a" * 199 + "-"


@pytest.mark.parametrize("path", ["/" + "\U0001f680" * 120, "/" + "e\u0301" * 150, "/tmp/" + "x" * 300])
def test_the_hash_counts_units(path):
    """Of the path as it was, also beyond the basic plane."""
    assert project_key(path).rpartition("-")[2] == _javascript(path)


def _javascript(text):
    """The hash, written down a second time by its definition."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (value * 31 + unit) % 2**32
    value = value - 2**32 if value >= 2**31 else value
    value, digits = abs(value), ""
    while value:
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[value % 36] + digits
        value //= 36
    return digits
