"""Options: what is refused before anything starts, and the exact arguments and variables of the rest."""

import ast
import collections.abc
import copy
import enum
import functools
import inspect
import io
import json
import sys
import types
import typing
import unittest.mock
import uuid
from pathlib import Path

import pytest

from claude_cli_client import SessionInfo, SessionMessage, ToolServer, _argv, _checks, _env, _merge, _objects, options
from claude_cli_client._argv import OPTIONS, TextFile, build_argv, shown_argv
from claude_cli_client._checks import check_prompt, split_rules
from claude_cli_client._env import MARKER, NESTING, build_env, is_nested
from claude_cli_client._merge import ALIASES, check, merge, needs_temporary_config, setting
from claude_cli_client.options import DEFAULTS, RunOptions, TurnOptions

ID = "123e4567-e89b-12d3-a456-426614174000"
FIXED = ["-p", "--output-format=stream-json", "--verbose"]
AGENT = {"description": "Reviews", "prompt": "You review."}
SERVER = {"command": "serve"}
REMOTE = {"type": "http", "url": "http://x"}


def arguments(**given):
    """What the options add to the fixed arguments, without our default permission mode."""
    argv = build_argv(merge({"permission_mode": None}, given))
    assert argv[:3] == FIXED
    return argv[3:]


def environment(inherited=None, **given):
    return build_env(merge({}, given), inherited or {}, "m1")


def refusal(**given):
    with pytest.raises(ValueError) as caught:
        merge({}, given)
    return str(caught.value)


# --- one table


def test_table_and_annotations_name_the_same_options():
    """Every key of RunOptions has its row in the table, and every row its key."""
    assert set(typing.get_type_hints(RunOptions)) == set(OPTIONS)


def test_help_names_every_option():
    """`help(RunOptions)` shows the docstring, and of the keys nothing."""
    chapters = RunOptions.__doc__.split("\n\n")[2:]
    assert sorted(name for chapter in chapters for name in chapter.partition(":")[2].split()) == sorted(OPTIONS)


def test_annotations_can_be_resolved():
    """`typing.get_type_hints` works, and a key may always be None."""
    for name, hint in typing.get_type_hints(RunOptions).items():
        assert type(None) in typing.get_args(hint), name


def test_limits_are_not_among_the_options_of_a_turn():
    """A call has the four limits as parameters, which a type checker forbids to repeat in `**options`."""
    limits = {"timeout", "idle_timeout", "start_timeout", "slot_timeout"}
    assert set(RunOptions.__annotations__) - set(TurnOptions.__annotations__) == limits


def test_every_option_is_documented():
    """A sentence stands under every key."""
    for node in ast.parse(inspect.getsource(options)).body:
        if isinstance(node, ast.ClassDef) and node.name in ("_Options", "_Limits"):
            keys = [item for item in node.body if isinstance(item, ast.AnnAssign)]
            texts = [item for item in node.body if isinstance(item, ast.Expr)]
            assert len(texts) == len(keys) + 1 > 4, node.name


def test_literal_types_are_what_is_accepted():
    """A value that a Literal type names is accepted, and a word that it does not name is refused."""
    for name, hint in typing.get_type_hints(RunOptions).items():
        for literal in typing.get_args(hint):
            for value in typing.get_args(literal) if typing.get_origin(literal) is typing.Literal else ():
                OPTIONS[name].check(name, value)
                with pytest.raises(ValueError, match=name):
                    OPTIONS[name].check(name, "bogus")


def test_constants_are_permission_modes():
    """The constants are words that `permission_mode` takes."""
    for mode in (options.ACCEPT_EDITS, options.AUTO, options.BYPASS_PERMISSIONS, options.DONT_ASK,
                 options.MANUAL, options.PLAN):  # fmt: skip
        assert arguments(permission_mode=mode) == [f"--permission-mode={mode}"]


def test_defaults_are_acceptable():
    """Every default is a value the option itself accepts."""
    assert set(DEFAULTS) <= set(OPTIONS)
    check({name: value for name, value in DEFAULTS.items() if name != "background_timeout"})


# Flags of the CLI that have no option, and why.
BY_EXTRA_ARGS = {
    "--worktree": "needs a git repository, and moves the run out of cwd",
    "--file": "needs a session token",
    "--brief": "no effect seen",
    "--prompt-suggestions": "no effect seen",
    "--ide": "for a terminal",
    "--no-chrome": "for a desktop",
    "--debug": "writes a file that nobody named; debug_file names one",
    "--plugin-url": "loads code from the network",
}
REFUSED = [
    "--print", "--output-format", "--verbose", "--input-format", "--replay-user-messages", "--session-mirror",
    "--debug-to-stderr", "--system-prompt-file", "--append-system-prompt-file", "--thinking-display",
]  # fmt: skip
WITH_OPTION = [
    "--model", "--fallback-model", "--system-prompt", "--append-system-prompt", "--tools",
    "--allowedTools", "--disallowedTools", "--permission-mode", "--dangerously-skip-permissions",
    "--allow-dangerously-skip-permissions", "--permission-prompt-tool", "--permission-prompts",
    "--max-turns", "--max-budget-usd", "--task-budget", "--continue", "--resume", "--session-id",
    "--fork-session", "--resume-session-at", "--resume-drops-turn", "--json-schema",
    "--include-partial-messages", "--include-hook-events", "--forward-subagent-text", "--mcp-config",
    "--strict-mcp-config", "--settings", "--setting-sources", "--add-dir", "--agents", "--agent",
    "--plugin-dir", "--betas", "--effort", "--thinking", "--max-thinking-tokens", "--name", "--bare",
    "--safe-mode", "--restricted", "--disable-slash-commands",
    "--exclude-dynamic-system-prompt-sections", "--system-prompt-snapshot", "--autocompact",
    "--debug-file", "--no-session-persistence",
]  # fmt: skip


def test_every_flag_of_the_cli_has_an_option():
    """The flags known to exist are those of the table, no more and no less."""
    assert {option.flag for option in OPTIONS.values() if option.flag} == set(WITH_OPTION)


@pytest.mark.parametrize("flag", WITH_OPTION)
def test_extra_args_names_the_option_of_a_flag(flag):
    """A flag that has an option is refused in extra_args, and the message says which one."""
    name = next(option.name for option in OPTIONS.values() if option.flag == flag)
    assert f"use {name}" in refusal(extra_args={flag[2:]: "x"})


@pytest.mark.parametrize("flag", REFUSED)
def test_flags_of_the_wire_are_refused(flag):
    """What the library needs for itself cannot be changed by extra_args."""
    assert flag in refusal(extra_args={flag[2:]: None})


@pytest.mark.parametrize("flag", BY_EXTRA_ARGS)
def test_all_other_flags_pass(flag):
    """A flag without an option can be given by extra_args."""
    assert arguments(extra_args={flag[2:]: None}) == [flag]


# --- arguments


ARGUMENTS = {
    "model": ("opus", ["--model=opus"]),
    "fallback_model": (["sonnet", "haiku"], ["--fallback-model=sonnet,haiku"]),
    "system_prompt": ("-x", ["--system-prompt=-x"]),
    "append_system_prompt": (Path("/a/b"), ["--append-system-prompt-file=/a/b"]),
    "effort": ("xhigh", ["--effort=xhigh"]),
    "thinking": ("disabled", ["--thinking=disabled"]),
    "max_thinking_tokens": (0, ["--max-thinking-tokens=0"]),
    "betas": (["a-1", "b-2"], ["--betas=a-1", "--betas=b-2"]),
    "agent": ("reviewer", ["--agent=reviewer"]),
    "agents": ({"r": AGENT}, ['--agents={"r":{"description":"Reviews","prompt":"You review."}}']),
    "exclude_dynamic_system_prompt_sections": (True, ["--exclude-dynamic-system-prompt-sections"]),
    "system_prompt_snapshot": ("off", ["--system-prompt-snapshot=off"]),
    "autocompact": (200_000, ["--autocompact=200000"]),
    "tools": (["Bash", "Read"], ["--tools=Bash,Read"]),
    "allowed_tools": (["Bash(git *)", "Read"], ["--allowedTools=Bash(git *),Read"]),
    "disallowed_tools": (["mcp__a__b"], ["--disallowedTools=mcp__a__b"]),
    "permission_mode": ("plan", ["--permission-mode=plan"]),
    "permission_prompt_tool": ("mcp__a__b", ["--permission-prompt-tool=mcp__a__b"]),
    "permission_prompts": ("none", ["--permission-prompts=none"]),
    "can_use_tool": (print, ["--permission-prompt-tool=stdio"]),
    "dangerously_skip_permissions": (True, ["--dangerously-skip-permissions"]),
    "allow_dangerously_skip_permissions": (True, ["--allow-dangerously-skip-permissions"]),
    "add_dirs": ([Path("/a"), "/b, c"], ["--add-dir=/a", "--add-dir=/b, c"]),
    "sandbox": ({"enabled": True}, ['--settings={"sandbox":{"enabled":true}}']),
    "max_turns": (3, ["--max-turns=3"]),
    "max_budget_usd": (0.5, ["--max-budget-usd=0.5"]),
    "task_budget": (9, ["--task-budget=9"]),
    "resume": ("My talk", ["--resume=My talk"]),
    "continue_conversation": (True, ["--continue"]),
    "session_id": (ID, [f"--session-id={ID}"]),
    "persist_session": (False, ["--no-session-persistence"]),
    "name": ("My talk", ["--name=My talk"]),
    "settings": ({"model": "opus"}, ['--settings={"model":"opus"}']),
    "setting_sources": (["user", "local"], ["--setting-sources=user,local"]),
    "mcp_servers": ({"a": SERVER}, ['--mcp-config={"mcpServers":{"a":{"command":"serve"}}}']),
    "strict_mcp_config": (True, ["--strict-mcp-config"]),
    "plugin_dirs": (["/p", "/q"], ["--plugin-dir=/p", "--plugin-dir=/q"]),
    "bare": (True, ["--bare"]),
    "safe_mode": (True, ["--safe-mode"]),
    "restricted": (True, ["--restricted"]),
    "disable_slash_commands": (True, ["--disable-slash-commands"]),
    "debug_file": ("/l", ["--debug-file=/l"]),
    "json_schema": ({"type": "object"}, ['--json-schema={"type":"object"}']),
    "include_partial_messages": (True, ["--include-partial-messages"]),
    "include_hook_events": (True, ["--include-hook-events"]),
    "forward_subagent_text": (True, ["--forward-subagent-text"]),
    "isolated": (True, ["--setting-sources=", "--strict-mcp-config"]),
    "extra_args": ({"brief": None, "file": "-x"}, ["--brief", "--file=-x"]),
}
NEEDS_OTHERS = {"fork_session", "resume_session_at", "resume_drops_turn"}
WITHOUT_ARGUMENT = {
    "timeout", "idle_timeout", "start_timeout", "slot_timeout", "max_retries", "enable_file_checkpointing",
    "cwd", "env", "inherit_env", "config_dir", "autoupdate", "background", "background_timeout",
    "command_prefix", "line_sink", "on_stderr", "kill_leftovers", "max_line_bytes", "max_buffered_bytes",
    "hooks", "literal", "callback_wrapper", "unattended",
}  # fmt: skip


def test_every_option_has_an_expectation():
    """No option is left out of the tables of these tests."""
    assert ARGUMENTS.keys() | NEEDS_OTHERS | WITHOUT_ARGUMENT == OPTIONS.keys()


@pytest.mark.parametrize("name", ARGUMENTS)
def test_argument_of(name):
    """A value becomes exactly these words, each flag joined to its value."""
    value, expected = ARGUMENTS[name]
    assert arguments(**{name: value}) == expected


def test_arguments_of_a_fork_at_a_message():
    """The options that need others become flags beside them."""
    found = arguments(resume=ID, fork_session=True, session_id=ID, resume_session_at=ID, resume_drops_turn=ID)
    assert found == [
        f"--resume={ID}", "--fork-session", f"--session-id={ID}", f"--resume-session-at={ID}",
        f"--resume-drops-turn={ID}",
    ]  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_none_is_no_flag(name):
    """None is accepted for every option and adds no argument."""
    assert arguments(**{name: None}) == []


EMPTY = {
    "tools": ["--tools="],
    "setting_sources": ["--setting-sources="],
    "allowed_tools": [],
    "disallowed_tools": [],
    "fallback_model": [],
    "betas": [],
    "add_dirs": [],
    "plugin_dirs": [],
    "command_prefix": [],
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_list_of(name):
    """An empty list is a flag with an empty value where that means "none", else it is no flag."""
    assert arguments(**{name: []}) == EMPTY[name]


def test_every_list_has_its_empty_case():
    """All options that take a list are in the table of empty lists."""
    sequences = {
        name
        for name, hint in typing.get_type_hints(RunOptions).items()
        if collections.abc.Sequence in map(typing.get_origin, typing.get_args(hint))
    }
    assert sequences == EMPTY.keys()


@pytest.mark.parametrize("name", [name for name, row in OPTIONS.items() if row.check is _checks.flag])
def test_false_is_no_flag(name):
    """A switch that is off adds nothing, but for `persist_session`, whose flag says off."""
    assert arguments(**{name: False}) == (["--no-session-persistence"] if name == "persist_session" else [])


def test_empty_dicts_and_texts_are_passed_on():
    """Empty is a value: no servers, no system prompt, a schema that allows all."""
    found = arguments(mcp_servers={}, system_prompt="", json_schema={}, settings={})
    assert found == [
        "--system-prompt=", "--settings={}", '--mcp-config={"mcpServers":{}}', "--json-schema={}"
    ]  # fmt: skip


def test_permission_mode_is_accept_edits_by_default():
    """Who says nothing gets a mode that never waits for a person."""
    assert build_argv({}) == [*FIXED, "--permission-mode=acceptEdits"]


def test_skipped_permissions_have_no_mode():
    """With dangerously_skip_permissions our default would only contradict."""
    assert build_argv({"dangerously_skip_permissions": True}) == [*FIXED, "--dangerously-skip-permissions"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"tools": "Bash Read"}, "--tools=Bash Read"),
        ({"tools": ""}, "--tools="),
        ({"tools": "default"}, "--tools=default"),
        ({"allowed_tools": "Bash(git log:*), Read"}, "--allowedTools=Bash(git log:*), Read"),
        ({"fallback_model": "a,b"}, "--fallback-model=a,b"),
        ({"betas": "b-1"}, "--betas=b-1"),
        ({"settings": "/etc/s.json"}, "--settings=/etc/s.json"),
        ({"settings": ' {"a": 1} '}, '--settings={"a": 1}'),
        ({"mcp_servers": Path("/m.json")}, "--mcp-config=/m.json"),
        ({"mcp_servers": '{"mcpServers":{}}'}, '--mcp-config={"mcpServers":{}}'),
        ({"mcp_servers": {"a": {**REMOTE, "headers": {"A": "b"}, "timeout": 9, "alwaysLoad": True}}},
         '--mcp-config={"mcpServers":{"a":{"type":"http","url":"http://x","headers":{"A":"b"},'
         '"timeout":9,"alwaysLoad":true}}}'),
        ({"agents": "agents.json"}, "--agents=agents.json"),
        ({"json_schema": '{"type":"object"}'}, '--json-schema={"type":"object"}'),
        ({"system_prompt": "{not json"}, "--system-prompt={not json"),
        ({"autocompact": "auto"}, "--autocompact=auto"),
        ({"max_budget_usd": 1e-05}, "--max-budget-usd=1e-05"),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, "--max-thinking-tokens=9"),
        ({"thinking": {"type": "adaptive"}}, "--thinking=adaptive"),
    ],
)
def test_other_forms(given, expected):
    """Lists may be the CLI's own string, objects a JSON text or a file."""
    assert arguments(**given) == [expected]


def test_display_of_thinking():
    """The official SDK's dict brings its display along."""
    found = arguments(thinking={"type": "adaptive", "display": "omitted"})
    assert found == ["--thinking=adaptive", "--thinking-display=omitted"]


@pytest.mark.parametrize(
    "settings", [{"sandbox": {"a": 1, "b": 1}, "c": 3}, '{"sandbox":{"a":1,"b":1},"c":3}']
)
def test_sandbox_is_merged_into_settings(settings):
    """What sandbox says wins over the sandbox in settings; the rest of both stays."""
    (found,) = arguments(settings=settings, sandbox={"b": 2})
    assert json.loads(found.removeprefix("--settings=")) == {"sandbox": {"a": 1, "b": 2}, "c": 3}


def test_sandbox_cannot_go_into_a_file():
    """A settings file is not ours to change."""
    assert "sandbox" in refusal(settings="/s.json", sandbox={"enabled": True})


def test_subclasses_become_their_value():
    """A str or int of an enumeration prints as its value, not as its name."""

    class Mode(str, enum.Enum):
        PLAN = "plan"

    class Turns(enum.IntEnum):
        FEW = 3

    assert arguments(permission_mode=Mode.PLAN, max_turns=Turns.FEW) == [
        "--permission-mode=plan", "--max-turns=3"
    ]  # fmt: skip


def test_unicode_stays_and_surrogates_are_repaired():
    """Text in arguments is UTF-8 as it came; a lone surrogate could not be encoded."""
    assert arguments(system_prompt="ü\ud800") == ["--system-prompt=ü\ufffd"]
    assert arguments(json_schema={"title": "ü"}) == ['--json-schema={"title":"ü"}']


def test_file_names_that_are_not_utf8_survive():
    """The escaped bytes of a file name are not repaired."""
    assert arguments(add_dirs=["/a\udcff"]) == ["--add-dir=/a\udcff"]


def test_extra_arguments_stand_last():
    """They come behind ours, in their order."""
    assert arguments(extra_args={"ide": None}, model="m") == ["--model=m", "--ide"]


# --- long texts

LONG = "x" * (100 * 1024)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"system_prompt": LONG}, TextFile("--system-prompt-file", ".txt", LONG)),
        ({"append_system_prompt": LONG}, TextFile("--append-system-prompt-file", ".txt", LONG)),
        ({"settings": {"a": LONG}}, TextFile("--settings", ".json", f'{{"a":"{LONG}"}}')),
        ({"mcp_servers": f'{{"mcpServers":{{}},"a":"{LONG}"}}'},
         TextFile("--mcp-config", ".json", f'{{"mcpServers":{{}},"a":"{LONG}"}}')),
        ({"agents": {"r": {**AGENT, "prompt": LONG}}},
         TextFile("--agents", ".json", f'{{"r":{{"description":"Reviews","prompt":"{LONG}"}}}}')),
    ],
)  # fmt: skip
def test_long_text_goes_by_file(given, expected):
    """Above 100 KiB a text becomes a file, under the flag that takes one."""
    assert arguments(**given) == [expected]


def test_limit_counts_the_flag_and_bytes():
    """Exactly 100 KiB of `--flag=text` in UTF-8 is still an argument, one character more is a file."""
    fits = "ü" * ((100 * 1024 - len("--system-prompt=")) // 2)
    assert arguments(system_prompt=fits) == [f"--system-prompt={fits}"]
    assert isinstance(arguments(system_prompt=fits + "ü")[0], TextFile)


def test_long_text_cannot_pass_a_border():
    """Behind command_prefix our file would not exist."""
    with pytest.raises(ValueError, match=r"system_prompt.*command_prefix"):
        arguments(system_prompt=LONG, command_prefix=["ssh", "host"])


@pytest.mark.parametrize(
    "given",
    [
        {"json_schema": {"title": "x" * 131072}},
        {"extra_args": {"brief": "x" * 131072}},
        {"allowed_tools": ["Read"] * 30000},
    ],
)
def test_what_fits_no_argument_is_refused(given):
    """Linux takes 128 KiB less one in an argument, and these flags take no file."""
    with pytest.raises(ValueError, match=next(iter(given))):
        arguments(**given)


# --- names


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("directory", "cwd"),
        ("effort_level", "effort"),
        ("settings_file", "settings"),
        ("output_format", "json_schema"),
        ("stderr", "on_stderr"),
        ("max_buffer_size", "max_line_bytes"),
        ("permission_prompt_tool_name", "permission_prompt_tool"),
        ("plugins", "plugin_dirs"),
        ("include_partial", "include_partial_messages"),
        ("system_prompt_file", "system_prompt=Path(...)"),
        ("user", "command_prefix"),
        ("can_use_tools", "can_use_tool"),
        ("permission_callback", "can_use_tool"),
        ("verbatim_prompts", "literal"),
        ("session_store", "store="),
        ("cli_path", "Client"),
        ("max_turn", "max_turns"),
        ("maxTurns", "max_turns"),
        ("max-turns", "max_turns"),
        ("allowedTools", "allowed_tools"),
        ("max_concurent", "max_concurrent, an argument of Client"),
        ("sytem_prompt", "system_prompt"),
        ("allow", r"it belongs to unattended\(\.\.\.\)"),
        ("restart_stale", r"it belongs to client\.conversation\(\.\.\.\)"),
        ("restart_stal", r"did you mean restart_stale, of client\.conversation\(\.\.\.\)\?"),
        ("approve_plan", r"did you mean approve_plans, of unattended\(\.\.\.\)\?"),
        ("return_exceptions", r"it belongs to client\.map\(\.\.\.\)"),
    ],
)
def test_unknown_name(name, meant):
    """A name of other clients or a slip of the pen is a TypeError that says what is meant."""
    with pytest.raises(TypeError, match=rf"unknown option '{name}'.*{meant.split('=')[0]}"):
        merge({}, {name: 1})


def test_unknown_name_of_the_client():
    """A client's defaults are looked at as well."""
    with pytest.raises(TypeError, match="cwd"):
        merge({"directory": "/"}, {})


def test_unlike_anything():
    """Where nothing is near, no guess is made."""
    with pytest.raises(TypeError, match=r"^unknown option 'zzzzzz'$"):
        check({"zzzzzz": 1})


def test_nothing_dangerous_is_proposed():
    """For a name that is only like it; who writes most of it means it."""
    with pytest.raises(TypeError, match=r"^unknown option 'permissions'$"):
        check({"permissions": "x"})
    with pytest.raises(TypeError, match="did you mean dangerously_skip_permissions"):
        check({"dangerously_skip_permission": True})


def test_aliases_are_not_options():
    """No alias hides an option, so that none can be forgotten when it arrives."""
    assert not ALIASES.keys() & OPTIONS.keys()


# --- values


FLAGS = [name for name, row in OPTIONS.items() if row.check is _checks.flag]
NUMBERS = [
    "timeout", "idle_timeout", "start_timeout", "slot_timeout", "background_timeout", "max_turns",
    "max_budget_usd", "task_budget", "max_retries", "max_thinking_tokens", "max_line_bytes",
    "max_buffered_bytes",
]  # fmt: skip


# No float holds them, and Python does not even write the last.
HUGE = [pytest.param(value, id=name) for name, value in {"400": 10**400, "-400": -(10**400), "5000": 10**5000}.items()]


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", [1, 0, "yes", "", []])
def test_switch_takes_only_a_bool(name, value):
    """What is true in Python only by accident is no answer to a yes-or-no question."""
    assert name in refusal(**{name: value})


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, False, "5", float("nan"), float("inf"), -1, [5], *HUGE])
def test_number_takes_only_a_number(name, value):
    """No bool, text, NaN, infinity, negative number, or one that no float holds is a limit."""
    assert name in refusal(**{name: value})


@pytest.mark.parametrize(
    "name", sorted(set(NUMBERS) - {"slot_timeout", "max_retries", "max_thinking_tokens"})
)
def test_zero_is_no_limit_of_anything(name):
    """Zero would be no limit for the CLI, or the end of everything; here it is an error."""
    assert name in refusal(**{name: 0})


@pytest.mark.parametrize("name", ["slot_timeout", "max_retries", "max_thinking_tokens"])
def test_zero_that_means_something(name):
    """Do not wait, do not retry, do not think."""
    check({name: 0})


@pytest.mark.parametrize("name", [name for name, row in OPTIONS.items() if row.check is not _checks.flag])
def test_no_option_takes_just_anything(name):
    """An object of no meaning is refused, with the option's name."""
    assert name in refusal(**{name: object()})


UNUSABLE = [
    ("max_turns", 1.5),
    ("max_retries", 16),
    ("autocompact", 99_999),
    ("autocompact", "off"),
    ("effort", "HIGH"),
    ("permission_mode", "bogus"),
    ("setting_sources", ["user", "managed"]),
    ("setting_sources", "user"),
    ("permission_prompts", "host "),
    ("system_prompt_snapshot", True),
    ("background", "allow"),
    ("thinking", "on"),
    ("thinking", {"type": "disabled", "budget_tokens": 5}),
    ("thinking", {"type": "enabled", "tokens": 5}),
    ("thinking", {}),
    ("model", ""),
    ("model", " "),
    ("model", "-x"),
    ("agent", "\ufeff"),
    ("resume", "--dangerously-skip-permissions"),
    ("resume", ""),
    ("resume", True),
    ("resume", uuid.UUID(ID)),
    ("name", "-x"),
    ("name", "\n"),
    ("session_id", "latest"),
    ("session_id", ID.replace("-", "")),
    ("session_id", f"{{{ID}}}"),
    ("session_id", ID + "\n"),
    ("resume_session_at", "msg_1"),
    ("fallback_model", ["a,b"]),
    ("fallback_model", ["a b"]),
    ("betas", {"a-1"}),
    ("tools", ["Bash(git *)"]),
    ("tools", ["mcp__a__b"]),
    ("tools", ["bash"]),
    ("tools", "read,Bash"),
    ("tools", ["default", "Read"]),
    ("tools", ["Read,Write"]),
    ("tools", {"type": "preset", "preset": "claude_code"}),
    ("tools", ["--x"]),
    ("allowed_tools", ["Read,Bash"]),
    ("allowed_tools", ["Read Bash"]),
    ("allowed_tools", ["Bash(a"]),
    ("allowed_tools", ["Bash)a("]),
    ("allowed_tools", ["(a)"]),
    ("allowed_tools", ["Bash(a)b"]),
    ("allowed_tools", ["Bash(echo (x) Write)"]),
    ("allowed_tools", "Foo(a,Bash"),
    ("allowed_tools", ["webfetch(domain:x)"]),
    ("allowed_tools", [""]),
    ("allowed_tools", [None]),
    ("disallowed_tools", ["bash"]),
    ("disallowed_tools", {"Bash"}),
    ("permission_prompt_tool", "stdio"),
    ("permission_prompt_tool", "approve"),
    ("add_dirs", "/a"),
    ("add_dirs", [""]),
    ("plugin_dirs", [{"type": "local", "path": "/p"}]),
    ("cwd", ""),
    ("cwd", b"/a"),
    ("cwd", "/a\0b"),
    ("cwd", "/a\ud800"),
    ("config_dir", 5),
    ("command_prefix", "docker run"),
    ("command_prefix", ["docker", ""]),
    ("command_prefix", ["a\0"]),
    ("system_prompt", {"type": "preset", "preset": "claude_code", "append": "x"}),
    ("system_prompt", "a\0b"),
    ("append_system_prompt", b"x"),
    ("settings", []),
    ("settings", "{bad"),
    ("settings", ""),
    ("settings", {"a": object()}),
    ("settings", {"a": float("nan")}),
    ("sandbox", "{}"),
    ("agents", {"r": {"description": "x"}}),
    ("agents", {"r": {"prompt": "x"}}),
    ("agents", {"r": {"description": "x", "prompt": " "}}),
    ("agents", {"r": {**AGENT, "max_turns": 3}}),
    ("agents", {"r": {**AGENT, "tools": "Bash"}}),
    ("agents", {"r": {**AGENT, "tools": ["bash"]}}),
    ("agents", {"r": "x"}),
    ("agents", '{"r": {"description": "x"}}'),
    ("agents", [AGENT]),
    ("mcp_servers", {"a": {}}),
    ("mcp_servers", {"a": {"url": "http://x"}}),
    ("mcp_servers", {"a": {"type": "http"}}),
    ("mcp_servers", {"a": {"type": "streamableHttp", "url": "http://x"}}),
    ("mcp_servers", {"a": {"type": "sdk", "name": "a"}}),
    ("mcp_servers", {"a": {"type": ["http"], "url": "x"}}),
    ("mcp_servers", {"a": {**SERVER, "args": "x"}}),
    ("mcp_servers", {"a": {**SERVER, "args": [1]}}),
    ("mcp_servers", {"a": {**SERVER, "env": {"A": 1}}}),
    ("mcp_servers", {"a": {**SERVER, "env": None}}),
    ("mcp_servers", {"a": {**REMOTE, "headers": {"Authorization": None}}}),
    ("mcp_servers", {"a": {**REMOTE, "headers": []}}),
    ("mcp_servers", {"a": {**REMOTE, "timeout": "5000"}}),
    ("mcp_servers", {"a": {**REMOTE, "timeout": True}}),
    ("mcp_servers", {"a": {**SERVER, "timeout": 0}}),
    ("mcp_servers", {"a": {**SERVER, "alwaysLoad": 1}}),
    ("mcp_servers", {"a": {**REMOTE, "alwaysLoad": None}}),
    ("mcp_servers", {"a": object()}),
    ("mcp_servers", {"mcpServers": {"a": SERVER}}),
    ("mcp_servers", {"workspace": SERVER}),
    ("mcp_servers", '{"mcpServers": {"ide": {"command": "serve"}}}'),
    ("mcp_servers", '{"a": {"command": "x"}}'),
    ("mcp_servers", '{"mcpServers": {"a": {}}}'),
    ("json_schema", []),
    ("json_schema", "object"),
    ("json_schema", '["object"]'),
    ("json_schema", {"a": {1, 2}}),
    ("json_schema", {"type": "json_schema", "schema": {}}),
    ("env", {"A": 1}),
    ("env", {"A=B": "x"}),
    ("env", {"": "x"}),
    ("env", {"A\0": "x"}),
    ("env", {"A": "x\0"}),
    ("env", {"A": "\ud800"}),
    ("env", {1: "x"}),
    ("env", ["A=1"]),
    ("env", {MARKER: "x"}),
    ("env", {MARKER: None}),
    ("line_sink", io.StringIO()),
    ("line_sink", "file"),
    ("on_stderr", sys.stderr),
    ("extra_args", ["--brief"]),
    ("extra_args", {"--brief": None}),
    ("extra_args", {"brief=x": None}),
    ("extra_args", {"": None}),
    ("extra_args", {"-": None}),
    ("extra_args", {"a b": None}),
    ("extra_args", {"brief": True}),
    ("extra_args", {"brief": "\0"}),
    ("extra_args", {"allowed-tools": "Bash"}),
    ("extra_args", {"sdk-url": "x"}),
    ("extra_args", {3: None}),
]


@pytest.mark.parametrize(("name", "value"), UNUSABLE)
def test_unusable_value(name, value):
    """What the CLI would refuse, ignore or take for something else is a ValueError with the name."""
    assert name in refusal(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", ["SomeNewTool"]),
        ("allowed_tools", ["Bash(echo a, b:*)", "mcp__srv", "mcp__srv__*", "Read(./a (1).txt)"]),
        ("allowed_tools", ["Bash(echo \\(x\\))"]),
        ("agents", {"r": {**AGENT, "maxTurns": 3, "tools": ["Bash(git *)"]}}),
        ("mcp_servers", {"a b": {"type": "http", "url": "http://x", "headers": {"A": "b"}}}),
        ("mcp_servers", {"a": {**SERVER, "args": ["x"], "env": {"A": "b"}}}),
        ("session_id", ID.upper()),
        ("line_sink", io.BytesIO()),
        ("line_sink", [].append),
        ("on_stderr", functools.partial(print, end="")),
        ("env", {"A": None, "B": "", "C": "\udcff"}),
        ("model", "arn:aws:bedrock:eu-west-1:1:inference-profile/x[1m]"),
    ],
)
def test_usable_value(name, value):
    """What looks odd and works is let through."""
    merge({}, {name: value})


async def _coroutine(line):
    pass


def _generator(line):
    yield line


class _Callable:
    async def __call__(self, line):
        pass

    async def method(self, line):
        pass


@pytest.mark.parametrize("value", [_coroutine, _generator, _Callable(), _Callable().method])
@pytest.mark.parametrize("name", ["line_sink", "on_stderr"])
def test_function_that_would_never_run(name, value):
    """Calling a coroutine or generator function runs nothing of it, so it is no callback."""
    assert "plain function" in refusal(**{name: value})


def _price(sku: str) -> float:
    """A price."""
    return 1.0


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"mcp_servers": [ToolServer([])]}, "a dict of servers by name"),
        ({"mcp_servers": {"x": print}}, "ToolServer([function])"),
        ({"mcp_servers": {"x": [print]}}, "ToolServer([function])"),
        ({"mcp_servers": {"x": ToolServer}}, "ToolServer([function])"),
        ({"agents": [AGENT]}, "a dict of agents by name, the JSON text of one, or the path of a file"),
        ({"settings": [1]}, "a dict, the JSON text of one, or the path of a file"),
        ({"json_schema": "/schema.json"}, "as a dict or JSON text; for a file give what is in it"),
        ({"resume": {"session_id": ID, "cwd": "/"}}, "; with what to_dict() gave use client.conversation(...)"),
        ({"resume": SessionInfo(ID, "", 0)}, "not a SessionInfo; give its session_id"),
        ({"session_id": SessionInfo(ID, "", 0)}, "not a SessionInfo; give its session_id"),
        ({"resume": "x", "resume_session_at": SessionMessage("user", ID, ID, {})}, "a SessionMessage; give its uuid"),
        ({"tools": ["Bash(git *)"]}, "rules belong in allowed_tools"),
        ({"hooks": {"Stop": [1]}}, "HookMatchers"),
    ],
)
def test_a_refusal_names_the_remedy(given, remedy):
    """What a newcomer writes first."""
    assert remedy in refusal(**given)


def test_an_option_of_another_api():
    """Of what the CLI cannot do nothing is said to be here."""
    with pytest.raises(TypeError, match="unknown option 'temperature'; there is no option"):
        merge({}, {"temperature": 1})


def test_a_rule_with_half_of_a_tools_name():
    """The CLI knows a tool of ours by its whole name; the rule would allow nothing."""
    shop = {"shop": ToolServer([_price])}
    for allowed in (["Read", "_price"], "Read,_price"):
        found = _merge.misnamed(merge({}, {"mcp_servers": shop, "allowed_tools": allowed}))
        assert "'_price' of allowed_tools" in found
        assert "mcp__shop___price" in found
    for allowed in (["mcp__shop___price"], ["Read"], "", None):
        assert not _merge.misnamed(merge({}, {"mcp_servers": shop, "allowed_tools": allowed}))
    assert not _merge.misnamed(merge({}, {"mcp_servers": {"x": SERVER}, "allowed_tools": ["_price"]}))


class _Methods:
    def one(self, request):
        pass

    def two(self, request, more):
        pass

    @staticmethod
    def static(request):
        pass

    def __call__(self, *anything):
        pass


def _named(request, *, how):
    pass


@pytest.mark.parametrize("value", [
    lambda: True, lambda a, b: True, lambda a, b, c=1: True, lambda a, b, *more: True, _Methods().two, _Methods.one,
    _named,
])  # fmt: skip
def test_function_that_cannot_be_called(value):
    """It takes another number of arguments, which is seen in it: every call would be denied."""
    for given in ({"can_use_tool": value}, {"hooks": {"Stop": value}}, {"on_stderr": value}, {"line_sink": value}):
        text = refusal(**given)
        assert "called with one argument" in text
        assert value.__qualname__ in text


def test_wrapper_that_cannot_be_called():
    """It gets no argument."""
    assert "called with no argument" in refusal(callback_wrapper=lambda request: None)


@functools.wraps(_Methods.two)
def _wrapping(*args, **named):
    pass


_partial = functools.partial(_Methods().two, more=1)


@pytest.mark.parametrize("value", [
    lambda request: True, lambda *any: True, lambda a, b=1: True, lambda a=1, *, b=2, **more: True, _Methods(),
    _Methods().one, _Methods().static, _Methods.__dict__["static"], _Methods, _wrapping, _partial, print, str,
    unittest.mock.Mock(), unittest.mock.MagicMock(spec=_Methods.two), unittest.mock.Mock(spec=_named),
    unittest.mock.create_autospec(_Methods().two),
])  # fmt: skip
def test_function_that_may_be_called(value):
    """What fits, and all of which it cannot be told without calling it."""
    merge({}, {"can_use_tool": value, "hooks": {"Stop": value}, "on_stderr": value})


SECRETS = [
    {"env": {"TOKEN": 123456789}},
    {"env": {"TOKEN": "sk-123456789\0"}},
    {"settings": "{sk-123456789"},
    {"settings": {"sk": {"123456789"}}},
    {"system_prompt": "sk-123456789\0"},
    {"mcp_servers": {"a": {"command": "", "env": {"T": "sk-123456789"}}}},
    {"mcp_servers": {"a": {"command": "x", "env": {"T": 123456789}}}},
    {"agents": {"r": {"prompt": "sk-123456789"}}},
    {"json_schema": '"sk-123456789"'},
    {"extra_args": {"brief": "sk-123456789\0"}},
    {"command_prefix": "docker run -e TOKEN=sk-123456789"},
]


@pytest.mark.parametrize("given", SECRETS)
def test_secret_is_not_shown(given):
    """A message never holds a value that may be secret."""
    assert "123456789" not in refusal(**given)


def test_message_shows_what_it_got():
    """A message names the option, what it got, and what it should get."""
    assert refusal(max_turns=0) == "max_turns must be 1 or more, not 0"
    assert refusal(effort="hard") == "effort must be one of low, medium, high, xhigh, max, not 'hard'"
    assert refusal(cwd=5) == "cwd must be a path (a str or pathlib.Path), not 5"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A,B C", ["A", "B", "C"]),
        ("Bash(git *),Read", ["Bash(git *)", "Read"]),
        ("Foo(a (b), c)", ["Foo(a (b)", "c)"]),
        ("Foo(a,Bash", ["Foo(a,Bash"]),
        (" , ", []),
    ],
)
def test_rules_are_cut_as_the_cli_cuts(text, expected):
    """Parentheses protect commas and spaces, but they do not nest."""
    assert split_rules(text) == expected


# --- combinations

TOGETHER = [
    ({"resume": "a", "continue_conversation": True}, "continue_conversation"),
    ({"resume": "a", "session_id": ID}, "new session"),
    ({"continue_conversation": True, "session_id": ID}, "new session"),
    ({"fork_session": True}, "fork_session"),
    ({"resume_session_at": ID}, "resume"),
    ({"resume_session_at": ID, "continue_conversation": True}, "resume"),
    ({"resume": "a", "resume_drops_turn": ID}, "resume_session_at"),
    ({"background_timeout": 5}, "background"),
    ({"background_timeout": 5, "background": "forbid"}, "background"),
    ({"isolated": True, "setting_sources": ["user"]}, "isolated"),
    ({"isolated": True, "strict_mcp_config": False}, "isolated"),
    ({"dangerously_skip_permissions": True, "permission_mode": "plan"}, "permission_mode"),
    ({"restricted": True, "dangerously_skip_permissions": True}, "restricted"),
    ({"restricted": True, "permission_mode": "bypassPermissions"}, "restricted"),
    ({"restricted": True, "setting_sources": ["project"]}, "restricted"),
    ({"safe_mode": True, "mcp_servers": {"a": SERVER}}, "safe_mode"),
    ({"safe_mode": True, "agents": {"r": AGENT}}, "safe_mode"),
    ({"exclude_dynamic_system_prompt_sections": True, "system_prompt": ""}, "system_prompt"),
    ({"bare": True, "hooks": {"Stop": print}}, "bare"),
    ({"unattended": True, "permission_prompts": "none"}, "permission_prompts"),
    ({"thinking": "disabled", "max_thinking_tokens": 0}, "thinking"),
    ({"permission_prompts": "none", "permission_prompt_tool": "mcp__a__b"}, "permission_prompts"),
]


@pytest.mark.parametrize(("given", "word"), TOGETHER)
def test_conflict(given, word):
    """Of options that exclude each other the CLI would ignore one without a word."""
    assert word in refusal(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"resume": "a", "fork_session": True, "session_id": ID},
        {"resume": "a", "continue_conversation": False},
        {"background": "wait", "background_timeout": 5},
        {"isolated": True, "setting_sources": []},
        {"dangerously_skip_permissions": True, "permission_mode": "bypassPermissions"},
        {"dangerously_skip_permissions": True, "permission_mode": None},
        {"safe_mode": True, "mcp_servers": {}},
        {"thinking": None, "max_thinking_tokens": 5},
    ],
)
def test_no_conflict(given):
    """What is off or empty excludes nothing."""
    merge({}, given)


@pytest.mark.parametrize(("name", "conflict"), [row[:2] for row in _merge.CONFLICTS])
def test_conflict_needs_its_option(name, conflict):
    """A row is passed over where the option that it begins with is absent: then it never fits."""
    assert name in OPTIONS
    assert not conflict(dict.fromkeys(OPTIONS.keys() - {name}, True))


def test_conflict_between_client_and_call():
    """The combination is looked at after merging, so a call can switch a default off."""
    with pytest.raises(ValueError, match="continue_conversation"):
        merge({"continue_conversation": True}, {"resume": "a"})
    merge({"continue_conversation": True}, {"resume": "a", "continue_conversation": False})


# --- merging


def test_call_overrides_client():
    """A call's value wins, None included; what it does not name stays."""
    assert merge({"model": "a", "effort": "low", "max_turns": 3}, {"model": "b", "effort": None}) == {
        "model": "b", "effort": None, "max_turns": 3
    }  # fmt: skip


def test_env_is_merged():
    """Of all options env alone is laid over the client's."""
    merged = merge({"env": {"A": "1", "B": "1"}}, {"env": {"B": "2", "C": None}})
    assert merged["env"] == {"A": "1", "B": "2", "C": None}


def test_env_none_drops_the_clients():
    """None overrides env as it does everything else."""
    assert merge({"env": {"A": "1"}}, {"env": None})["env"] is None


@pytest.mark.parametrize("side", ["client", "call"])
def test_later_changes_have_no_effect(side):
    """What the caller changes after the call does not reach the run."""
    given = {
        "mcp_servers": {"a": {"command": "x", "args": ["y"]}},
        "env": {"A": "1"},
        "add_dirs": ["/a"],
        "agents": {"r": {**AGENT, "tools": ["Read"]}},
    }
    merged = merge(given, {}) if side == "client" else merge({}, given)
    before = copy.deepcopy(merged)
    given["mcp_servers"]["a"]["args"].append("z")
    given["env"]["B"] = "2"
    given["add_dirs"].clear()
    given["agents"]["r"]["tools"].append("Bash")
    assert merged == before


def test_read_only_mappings_are_taken():
    """Any mapping will do where a dict does, at any depth."""
    frozen = types.MappingProxyType({"a": types.MappingProxyType(SERVER)})
    assert arguments(mcp_servers=frozen) == ARGUMENTS["mcp_servers"][1]


def test_dict_that_holds_itself():
    """A value without an end is a ValueError, not a RecursionError."""
    endless: dict = {}
    endless["again"] = endless
    assert "settings" in refusal(settings=endless)


def test_sinks_are_not_copied():
    """Functions and files stay who they are."""
    sink = io.BytesIO()
    assert merge({}, {"line_sink": sink})["line_sink"] is sink


def test_setting_falls_back_to_the_default():
    """Absent is the default; None is no limit; where None means nothing it is the default again."""
    assert setting({}, "timeout") == 3600.0
    assert setting({"timeout": None}, "timeout") is None
    assert setting({"inherit_env": None}, "inherit_env") is True
    assert setting({}, "model") is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, False),
        ({"isolated": True}, True),
        ({"isolated": True, "config_dir": "/c"}, False),
        ({"config_dir": "/c"}, False),
    ],
)
def test_temporary_config_is_needed(given, expected):
    """An isolated run that names no configuration directory gets a temporary one."""
    assert needs_temporary_config(given) is expected


# --- environment

OURS = {
    MARKER: "m1",
    "CLAUDE_CODE_ENTRYPOINT": "sdk-cli",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
}


def test_environment_of_a_plain_run():
    """Inherited variables stay, ours are added."""
    assert environment({"A": "1"}) == {"A": "1", **OURS}


def test_marker_of_a_run_in_a_run():
    """The outer run's id stays in the marker, so that its sweep finds us too."""
    assert environment({MARKER: "m0"})[MARKER] == "m0:m1"


def test_marker_survives_a_small_environment():
    """Without the inherited environment the outer id still stays."""
    assert environment({MARKER: "m0"}, inherit_env=False)[MARKER] == "m0:m1"


@pytest.mark.parametrize("name", NESTING)
def test_nesting_is_removed(name):
    """What an outer session says of itself is not passed on."""
    assert environment({name: "1"}) == OURS


@pytest.mark.parametrize("name", ["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "DISABLE_AUTOUPDATER"])
def test_callers_env_wins(name):
    """What the caller says wins over what we remove or set, and None removes it."""
    assert environment({name: "0"}, env={name: "own"})[name] == "own"
    assert name not in environment({name: "0"}, env={name: None})


@pytest.mark.parametrize(
    ("inherited", "expected"),
    [
        ({}, False),
        ({"CLAUDECODE": "1"}, True),
        ({"CLAUDE_CODE_CHILD_SESSION": "1"}, True),
        ({"CLAUDECODE": ""}, False),
    ],
)
def test_nested(inherited, expected):
    """Inside of another session the client can warn."""
    assert is_nested(inherited) is expected


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"max_retries": 0}, "CLAUDE_CODE_MAX_RETRIES", "0"),
        ({"config_dir": Path("/c")}, "CLAUDE_CONFIG_DIR", "/c"),
        ({"autoupdate": True}, "DISABLE_AUTOUPDATER", None),
        ({"autoupdate": False}, "DISABLE_AUTOUPDATER", "1"),
        ({"background": "forbid"}, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
        ({"background": "wait"}, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", None),
        ({"background": None}, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", None),
        ({"enable_file_checkpointing": True}, "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true"),
        ({"enable_file_checkpointing": False}, "CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", None),
    ],
)
def test_variable_of(given, name, value):
    """An option that is a variable sets exactly this one."""
    assert environment(**given).get(name) == value


def test_options_of_an_outer_run_do_not_leak():
    """A run that waits for tasks takes away what an outer run that forbids them has set."""
    outer = {"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1"}
    assert "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS" not in environment(outer, background="wait")


def test_every_variable_of_the_table_is_set_by_some_option():
    """The table's variables are those that the environment can have."""
    given = merge({}, {"max_retries": 1, "config_dir": "/c", "enable_file_checkpointing": True})
    assert {option.variable for option in OPTIONS.values() if option.variable} <= build_env(
        given, {}, "m"
    ).keys()


def test_small_environment():
    """Without inheritance only what is needed to start and to reach the network comes along."""
    kept = {
        "PATH": "/bin",
        "HOME": "/h",
        "LC_ALL": "C",
        "https_proxy": "p",
        "SSL_CERT_FILE": "c",
        "TMPDIR": "/t",
    }
    found = environment(
        {**kept, "ANTHROPIC_API_KEY": "sk", "TERM": "xterm"}, inherit_env=False, env={"X": "1"}
    )
    assert found == {**kept, "TERM": "dumb", "X": "1", **OURS}


def test_inherited_environment_is_not_touched():
    """The mapping that came in is as before."""
    inherited = {"CLAUDECODE": "1"}
    environment(inherited, env={"A": "1"})
    assert inherited == {"CLAUDECODE": "1"}


# --- the prompt


@pytest.mark.parametrize("prompt", ["", " \n\t", "\ufeff", "\u3000\n", "\u2028", "\xa0"])
def test_blank_prompt(prompt):
    """What the CLI takes for blank is refused."""
    with pytest.raises(ValueError, match="blank"):
        check_prompt(prompt)


@pytest.mark.parametrize("prompt", ["\0", "\x85", "\x1c", "\u200b", "-x", "a\r\nb\n", "\ufeffx", "ü😀"])
def test_prompt_survives(prompt):
    """Everything else goes to the CLI as it is, also what Python takes for blank."""
    assert check_prompt(prompt) == prompt


def test_surrogates_in_a_prompt():
    """A lone surrogate becomes U+FFFD, a pair the character it means."""
    assert check_prompt("a\ud800b\ud83d\ude00") == "a\ufffdb😀"


def test_size_of_a_prompt():
    """10 MiB is the CLI's limit, counted in bytes."""
    assert len(check_prompt("x" * 10 * 1024 * 1024)) == 10 * 1024 * 1024
    with pytest.raises(ValueError, match="10485760"):
        check_prompt("x" * (10 * 1024 * 1024 + 1))
    with pytest.raises(ValueError, match="12000000"):
        check_prompt("ü" * 6_000_000)


@pytest.mark.parametrize("prompt", [None, b"x", 5, {"type": "text"}, ["x"], [{"text": "x"}], [{"type": 1}]])
def test_prompt_of_another_type(prompt):
    """Anything but a text or a list of content blocks is a TypeError that says so."""
    with pytest.raises(TypeError, match="content block"):
        check_prompt(prompt)


@pytest.mark.parametrize("prompt", [[], [{"type": "text", "text": " "}], [{"type": "text"}]])
def test_content_blocks_without_content(prompt):
    """No block, or a blank text, is a ValueError."""
    with pytest.raises(ValueError, match="block"):
        check_prompt(prompt)


def test_content_blocks_are_copied():
    """What the caller changes later has no effect."""
    blocks = [{"type": "text", "text": "a"}]
    checked = check_prompt(blocks)
    blocks[0]["text"] = "b"
    assert checked == [{"type": "text", "text": "a"}]


# --- shown


def test_shown_argv_hides_secrets():
    """An error message shows the flags, and the values only of those that hold no secret."""
    given = {
        "model": "opus",
        "resume": "My talk",
        "system_prompt": "s3cret",
        "append_system_prompt": "s3cret" + LONG,
        "settings": {"s3cret": 1},
        "mcp_servers": {"s3cret": SERVER},
        "agents": {"s3cret": AGENT},
        "json_schema": {"s3cret": 1},
        "extra_args": {"file": "s3cret", "brief": None},
    }
    shown = shown_argv(["docker", "-e", "TOKEN=s3cret", "/bin/claude", *build_argv(merge({}, given))])
    assert "s3cret" not in shown
    assert shown == (
        "docker -e TOKEN=... /bin/claude -p --output-format=stream-json --verbose --model=opus "
        "--system-prompt=... --append-system-prompt-file=... --agents=... --permission-mode=acceptEdits "
        "'--resume=My talk' --settings=... --mcp-config=... --json-schema=... --file=... --brief"
    )


# --- the layer


@pytest.mark.parametrize("module", [options, _argv, _checks, _env, _merge, _objects])
def test_pure(module):
    """No thread, clock, file, process or environment: only modules of pure data."""
    allowed = {
        "__future__",
        "collections.abc",
        "dataclasses",
        "difflib",
        "json",
        "math",
        "re",
        "shlex",
        "typing",
    }
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Import):
            assert {name.name for name in node.names} <= allowed
        elif isinstance(node, ast.ImportFrom) and not node.level:
            assert node.module in allowed
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "open"
