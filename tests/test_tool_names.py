"""Names of tools of ours in rules and hooks: what would guard nothing is refused, what would allow nothing warns."""

import pytest

from claude_cli_client import HookMatcher, ToolServer, tool, unattended
from claude_cli_client._merge import merge, misnamed


def price():
    """What it costs."""


SHOP = {"shop": ToolServer([price]), "docs": {"command": "serve"}}
WHOLE = "the tool is mcp__shop__price to the CLI"
NEAR = "the server 'shop' has no tool 'prize'; did you mean mcp__shop__price?"


def say_nothing(call):
    """A hook."""


def guards(name):
    """Every place that would guard by a tool's name."""
    yield {"disallowed_tools": [name]}
    yield {"disallowed_tools": f"Read,{name}"}
    yield {"unattended": unattended(deny=[name])}
    yield {"hooks": {"PreToolUse": HookMatcher(name, say_nothing)}}
    yield {"hooks": {"Stop": say_nothing, "PostToolUse": [say_nothing, HookMatcher(f"Bash|{name}", say_nothing)]}}
    yield {"agents": {"reader": {"description": "reads", "prompt": "Read.", "disallowedTools": [name]}}}


@pytest.mark.parametrize(("name", "why"), [
    ("price", WHOLE), ("mcp_shop_price", WHOLE), ("mcp__shop__Price", WHOLE),
])  # fmt: skip
def test_guard_for_no_tool_of_ours(name, why):
    """All tools of a `ToolServer` are known: a rule or matcher that means one by a wrong name would guard nothing."""
    for given in guards(name):
        with pytest.raises(ValueError) as caught:
            merge({}, {"mcp_servers": SHOP, **given})
        text = str(caught.value)
        assert f"{name!r} of {next(iter(given))}" in text
        assert text.endswith(f" nothing: {why}")


@pytest.mark.parametrize("name", [
    "mcp__shop__price", "mcp__shop__.*", "mcp__shop__pri(c|z)e", "mcp__docs__prize", "mcp__mine__prize", "Read", "",
    "mcp__shop__more__price",
])  # fmt: skip
def test_matcher_that_may_mean_a_tool(name):
    """A tool that is there, a regular expression, a server whose tools only it knows."""
    merge({}, {"mcp_servers": SHOP, "hooks": {"PreToolUse": HookMatcher(name, say_nothing)}})


@pytest.mark.parametrize("rule", ["mcp__shop", "mcp__shop__*", "mcp__shop__price", "mcp__docs__prize", "Bash(git *)"])
def test_rule_that_may_mean_a_tool(rule):
    """The whole server is a rule, too."""
    options = merge({}, {"mcp_servers": SHOP, "disallowed_tools": [rule], "allowed_tools": [rule]})
    assert not misnamed(options)


@pytest.mark.parametrize(("name", "why"), [("mcp__shop__prize", NEAR), ("mcp_shop_price", WHOLE)])
def test_permission_for_no_tool_of_ours(name, why):
    """It allows nothing, which harms less: a warning."""
    for given in ({"allowed_tools": [name]}, {"unattended": unattended(allow=[name])}):
        found = misnamed(merge({}, {"mcp_servers": SHOP, **given}))
        assert found.endswith(f"allows nothing: {why}")


def test_tool_that_this_server_has_not():
    """Rules may be shared by programs with other tools; nothing is unguarded, so it is a warning."""
    for name, why in (
        ("mcp__shop__prize", NEAR),
        ("mcp__shop__refund", "the server 'shop' has no tool 'refund'; its tools: price"),
    ):
        for given in (*guards(name), {"allowed_tools": [name]}):
            assert misnamed(merge({}, {"mcp_servers": SHOP, **given})).endswith(f"nothing: {why}")


def test_server_that_is_nearly_ours():
    """It may be another one, of a file which only the CLI reads: no error, but a warning."""
    for given in guards("mcp__shp__price"):
        found = misnamed(merge({}, {"mcp_servers": SHOP, **given}))
        assert "no server 'shp'; did you mean mcp__shop__price?" in found
    for name in ("mcp__shp__refund", "mcp__other__price"):
        assert not misnamed(merge({}, {"mcp_servers": SHOP, "disallowed_tools": [name]}))


def test_tool_with_the_name_of_a_built_in_one():
    """The rule means the built-in tool."""
    for name in ("Read", "SendMessage"):  # of the second only the CLI knows
        servers = {"shop": ToolServer([tool(name=name)(price)])}
        assert not misnamed(merge({}, {"mcp_servers": servers, "disallowed_tools": [name]}))


def test_server_that_answers_for_itself():
    """Which tools it has is not known, so no name is refused."""

    class Changing(ToolServer):
        def handle(self, message, **context):
            return None

    merge({}, {"mcp_servers": {"shop": Changing([price])}, "disallowed_tools": ["mcp__shop__prize"]})
