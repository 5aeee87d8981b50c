"""Names of tools in rules and hooks: what would guard nothing is refused, what would allow nothing warns."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from claude_cli_client import HookMatcher, ToolServer, _rule_faults, tool, unattended
from claude_cli_client._checks import TOOLS
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
    yield {"settings": {"permissions": {"deny": [name]}}}
    yield {"settings": json.dumps({"permissions": {"ask": ["Read", name]}})}
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


ODD = {
    "my.shop": ToolServer([price]),
    "größe": ToolServer([tool(name="preis.netto")(price)]),
    "my_docs": {"command": "x"},
}


@pytest.mark.parametrize(("name", "written"), [
    ("mcp__my.shop", "mcp__my_shop"), ("mcp__my.shop__*", "mcp__my_shop__*"),
    ("mcp__my.shop__price", "mcp__my_shop__price"),
    ("mcp__my.shop__prize", "mcp__my_shop__prize"), ("mcp__my.*", "mcp__my_*"),
    ("mcp__größe", "mcp__gr__e"), ("mcp__größe__preis.netto", "mcp__gr__e__preis_netto"), ("mcp__größ*", "mcp__gr__*"),
    ("mcp__gr__e__preis.netto", "mcp__gr__e__preis_netto"),
])  # fmt: skip
def test_guard_by_a_name_that_no_tool_can_have(name, written):
    """The CLI writes each other character as `_`: the rule would forbid nothing, whatever it says."""
    places = [{"disallowed_tools": [name]}, {"settings": {"permissions": {"deny": [name]}}}]
    if not set(".*") & set(name):  # else it is a regular expression to a hook, and fits
        places.append({"hooks": {"PreToolUse": HookMatcher(name, say_nothing)}})
    for given in places:
        with pytest.raises(ValueError, match="nothing: to the CLI it is ") as caught:
            merge({}, {"mcp_servers": ODD, **given})
        assert str(caught.value).endswith(f"nothing: to the CLI it is {written}")


@pytest.mark.parametrize("name", ["mcp__my.*", "mcp__my.shop", "mcp__my.shop__price"])
def test_guard_for_a_server_without_tools(name):
    """The server itself has a name, too, and what fits it is meant for it."""
    with pytest.raises(ValueError, match="nothing: to the CLI it is mcp__my_"):
        merge({}, {"mcp_servers": {"my.shop": ToolServer([])}, "disallowed_tools": [name]})


def test_rule_of_the_preset_with_a_name_that_no_tool_can_have():
    """It is refused whatever servers there are, with the name to write."""
    with pytest.raises(
        ValueError, match=r"no rule for a tool: 'mcp__my\.shop__price'; to the CLI it is mcp__my_shop__price"
    ):
        unattended(deny=["mcp__my.shop__price"])


@pytest.mark.parametrize(
    "name", ["mcp__your.shop", "mcp__his.docs__price", "mcp__your.*", "mcp__my_shop", "mcp__*__price"]
)
def test_guard_by_a_name_that_is_not_for_ours(name):
    """What servers of a file are called only the CLI knows."""
    merge({}, {"mcp_servers": ODD, "disallowed_tools": [name], "settings": {"permissions": {"deny": [name]}}})


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
    settings = {"permissions": {"allow": [name]}}
    for given in ({"allowed_tools": [name]}, {"settings": settings}, {"unattended": unattended(allow=[name])}):
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


@pytest.mark.parametrize("rule", ["mcp__shopprice", "mcp__Shop__price", "mcp__shop_price__x", "mcp__sh__opprice"])
def test_rule_for_another_server_with_the_same_letters(rule):
    """It is that server's, or one of a file's, and forbids what it says."""
    servers = {**SHOP, "Shop": {"command": "serve"}, "shop_price": {"command": "serve"}}
    for given in ({"disallowed_tools": [rule]}, {"unattended": unattended(deny=[rule])}):
        assert not misnamed(merge({}, {"mcp_servers": servers, **given}))


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


EDITS = "no rule for {} has parentheses; Edit(path) is for all tools that edit"
FILES = "no rule for {} has parentheses; Read(path) is for files"
UNREAD = {
    "Write(src/**)": EDITS.format("Write"),
    "Write(file_path:/srv/x)": EDITS.format("Write"),
    "MultiEdit(src/**)": EDITS.format("MultiEdit"),
    "NotebookEdit(notebook_path:*)": EDITS.format("NotebookEdit"),
    "Grep(src/**)": FILES.format("Grep"),
    "Glob(path:src)": FILES.format("Glob"),
    "Monitor(rm:*)": "no rule for Monitor has parentheses; Bash(command) is for its commands",
    "WebSearch(weather)": "no rule for WebSearch has parentheses",
    "WebFetch(https://x.org)": "a rule for WebFetch is WebFetch(domain:example.com), not WebFetch(https://x.org)",
    "WebFetch(domain:x.org/a)": "a rule for WebFetch is WebFetch(domain:example.com), not WebFetch(domain:x.org/a)",
    "mcp__docs__find(x)": "no rule for mcp__docs__find has parentheses",
    "mcp__docs(sku:1)": "no rule for mcp__docs has parentheses",
}


@pytest.mark.parametrize("rule", UNREAD)
def test_rule_that_forbids_nothing(rule):
    """The CLI does not read these parentheses, and passes over the rule: refused, with what to write instead."""
    with pytest.raises(ValueError) as caught:
        merge({"disallowed_tools": ["Bash(rm *)", rule]}, {})
    assert str(caught.value) == f"the rule {rule!r} of disallowed_tools forbids nothing: {UNREAD[rule]}"
    for behavior, does in (("deny", "forbids"), ("ask", "asks for")):
        with pytest.raises(ValueError) as caught:
            merge({"settings": {"permissions": {behavior: ["Bash(rm *)", rule]}}}, {})
        assert str(caught.value) == f"the rule {rule!r} of settings ({behavior}) {does} nothing: {UNREAD[rule]}"


@pytest.mark.parametrize("settings", [
    "settings.json", {}, {"permissions": None}, {"permissions": {"deny": None, "ask": "Write(x)"}}, "{}",
    {"permissions": {"deny": [7]}}, "null", "[]", Path("settings.json"), "not { a path",
], ids=str)  # fmt: skip
def test_settings_without_rules(settings):
    """A file, which others may use, and what is no rule: looked at elsewhere, or never."""
    assert not misnamed(merge({"settings": settings}, {}))


@pytest.mark.parametrize("rule", [*UNREAD, "WebSearch(query:weather)"])
def test_rule_that_allows_nothing(rule):
    """It harms less, so it is a warning. Fields are for forbidding alone."""
    why = UNREAD.get(rule, "no rule for WebSearch has parentheses")
    assert misnamed(merge({}, {"allowed_tools": rule})) == f"the rule {rule!r} of allowed_tools allows nothing: {why}"
    settings = {"permissions": {"allow": [rule]}}
    assert misnamed(merge({}, {"settings": settings})).endswith(f"settings (allow) allows nothing: {why}")


@pytest.mark.parametrize("rule", [
    "Write", "Write(*)", "Write()", "Write(content:x)", "WebSearch(query:weather*)", "Monitor(command:touch *)",
    "Grep(pattern:*)", "mcp__docs__find(sku:1)", "mcp__docs__find(q:secret*)", "mcp__docs__fi*",
    "mcp__*", "mcp__docs()", "WebFetch(domain:x.org)",
    "WebFetch(domain:*)", "WebFetch(domain:*.x.org)", "WebFetch(prompt:x)", "Agent(x)", "Skill(x)", "Bash(rm *)",
    "Edit(src/**)", "Read(src/**)", "PowerShell(rm x)", "Later(x)", "W*",
])  # fmt: skip
def test_rule_that_forbids_something(rule):
    """What the CLI reads, or may, is left to it."""
    assert not misnamed(merge({}, {"disallowed_tools": [rule]}))


def test_rule_for_a_subagent():
    """There the CLI takes the whole tool away, whatever the parentheses hold."""
    agent = {"description": "writes", "prompt": "Write.", "disallowedTools": ["Write(src/**)"]}
    assert not misnamed(merge({}, {"agents": {"writer": agent}}))


@pytest.mark.parametrize("word", ["rm", "/bin/rm", "docker-compose"])
def test_command_that_is_forbidden_without_arguments_only(word):
    """`Bash(rm)` lets `rm -rf /` pass: a warning, with the rule that forbids both."""
    rules = [f"Bash({word})"]
    settings = {"permissions": {"deny": rules}}
    for given in ({"disallowed_tools": rules}, {"settings": settings}, {"unattended": unattended(deny=rules)}):
        found = misnamed(merge({}, given))
        assert "forbids the bare command alone" in found
        assert f"write 'Bash({word} *)', which is for the command with arguments and without" in found


@pytest.mark.parametrize("rules", ["Bash(rm *)", "Bash(rm:*)", "Bash(rm), Bash(rm *)", "Bash(rm -rf)", "Bash()"])
def test_command_that_is_forbidden_as_it_is_written(rules):
    """With a star, with arguments, or beside a rule that forbids the rest."""
    assert not misnamed(merge({}, {"disallowed_tools": rules}))
    assert not misnamed(merge({}, {"allowed_tools": "Bash(rm)"}))


@pytest.mark.parametrize(("name", "meant"), [("Bsah", "Bash"), ("WebSerch", "WebSearch"), ("Raed", "Read")])
def test_misspelt_tool(name, meant):
    """The CLI passes over it. It may be the name of a tool that is new, so it is a warning."""
    agent = {"description": "reads", "prompt": "Read.", "tools": ["Grep", name]}
    allows = ({"allowed_tools": [name]}, {"unattended": unattended(allow=[name])})
    for given in (*guards(name), *allows, {"tools": ["Bash", name]}, {"agents": {"reader": agent}}):
        found = misnamed(merge({}, given))
        assert f"{name!r} of {next(iter(given))}" in found
        assert found.endswith(f" nothing: no tool of this name is known; did you mean {meant!r}?")


@pytest.mark.parametrize("name", [*TOOLS, *_rule_faults._OTHERS.split(), "Deploy", "mcp__bash__Bsah", "Bs*"])
def test_tool_that_is_known_or_like_none(name):
    """Tools of all versions, other names, and those of servers, are left to the CLI."""
    hooks = {"PreToolUse": HookMatcher(f"{name}|Read", say_nothing)}
    assert not misnamed(merge({}, {"disallowed_tools": [name], "hooks": hooks}))


def test_known_tools_need_no_difflib():
    """What is right costs no import."""
    code = (
        "import sys; from claude_cli_client._merge import merge, misnamed; "
        "misnamed(merge({}, {'allowed_tools': ['Bash(git *)', 'ExitPlanMode'], 'disallowed_tools': ['Write']})); "
        "heavy = {'difflib', 'claude_cli_client._own_tools', 'claude_cli_client._hooks', 'claude_cli_client.mcp'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
