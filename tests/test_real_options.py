"""The real CLI: every option once, and its effect where it shows.

One table. An effect is looked for where it is real: in the request that the model got, in the init
line, in a file; for the few options without a visible effect, in the CLI's own command line.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from real_cli import PRIVATE_NETWORK_VARIABLE, RealCLI, Request, bash, tool

from claude_cli_client import Event, Run
from claude_cli_client.options import RunOptions

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(60)]

SERVER = {"command": sys.executable, "args": [str(Path(__file__).with_name("real_mcp_server.py"))]}
AGENTS = {"rev": {"description": "Reviews", "prompt": "You are the reviewer of this house."}}
OLDER = {"model": "claude-haiku-4-5"}  # thinks on demand; newer models decide themselves
ARGV = bash("tr '\\0' '\\n' < /proc/$CLAUDE_PID/cmdline")
LONG = "漢 " * 75_000 + "the end"  # 300 KB, more than an argument may have
AGENT = tool(
    "Agent",
    description="Look",
    prompt="look [[text: I looked]]",
    subagent_type="general-purpose",
    run_in_background=False,
)


@dataclass
class Seen:
    """What a turn with the option showed."""

    cli: RealCLI
    run: Run
    events: list[Event]

    @property
    def init(self) -> dict[str, Any]:
        return next(e.data for e in self.events if e.subtype == "init")

    @property
    def request(self) -> Request:
        return self.cli.api.requests(1)[0]

    @property
    def result(self) -> Event:
        return self.events[-1]

    @property
    def tool_text(self) -> str:
        return "\n".join(e.text for e in self.events if e.type == "tool_result")

    def of(self, *types: str) -> list[Event]:
        return [e for e in self.events if e.type in types]


@dataclass
class Case:
    """`options` may be made from the test's world; `shows` says what must be seen."""

    options: dict[str, Any] | Callable[[RealCLI], dict[str, Any]]
    shows: Callable[[Seen], object]
    prompt: str = "hi"


def folder(cli: RealCLI, name: str) -> str:
    path = cli.root / name
    path.mkdir()
    return str(path)


def text_file(cli: RealCLI, content: str) -> Path:
    path = cli.root / "prompt.md"
    path.write_text(content)
    return path


def plugin(cli: RealCLI) -> dict[str, Any]:
    path = Path(folder(cli, "plugin"))
    (path / ".claude-plugin").mkdir()
    (path / ".claude-plugin" / "plugin.json").write_text('{"name": "tiny", "version": "1.0.0"}')
    return {"plugin_dirs": [path]}


def project_memory(cli: RealCLI, **options: Any) -> dict[str, Any]:
    (cli.cwd / "CLAUDE.md").write_text("The project's magic word is xyzzy.")
    return options


def other_config(cli: RealCLI) -> dict[str, Any]:
    path = Path(folder(cli, "config"))
    (path / "CLAUDE.md").write_text("The user's magic word is plugh.")
    return {"config_dir": path}


def project_server(cli: RealCLI, **options: Any) -> dict[str, Any]:
    settings = {"enableAllProjectMcpServers": True}
    (cli.cwd / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": SERVER}}))
    (cli.cwd / ".claude").mkdir()
    (cli.cwd / ".claude" / "settings.json").write_text(json.dumps(settings))
    return options


def system_prompt(seen: Seen) -> str:
    """The system prompt proper: what stands before it are lines that name the CLI."""
    return seen.request.body["system"][-1]["text"]


def server_names(seen: Seen) -> set[str]:
    return {server["name"] for server in seen.init["mcp_servers"]}


def hooked(event: str) -> dict[str, Any]:
    return {"hooks": {event: [{"hooks": [{"type": "command", "command": "echo hooked"}]}]}}


def argv_has(flag: str) -> Callable[[Seen], object]:
    return lambda seen: flag in seen.tool_text.split("\n")


CASES: dict[str, Case] = {
    # --- model and prompt
    "model": Case({"model": "sonnet"}, lambda s: s.request.body["model"] == "claude-sonnet-5-5"),
    "fallback_model": Case(
        {"fallback_model": "haiku"},
        lambda s: s.cli.api.last().body["model"] == "claude-haiku-5-5" and s.result.result == "yes",
        "hi [[status: 529 overloaded_error]][[times: 3]][[text: yes]]",
    ),
    "system_prompt": Case(
        {"system_prompt": "-You are a pirate"}, lambda s: system_prompt(s) == "-You are a pirate"
    ),
    "system_prompt, long": Case({"system_prompt": LONG}, lambda s: system_prompt(s) == LONG),
    "system_prompt, a file": Case(
        lambda cli: {"system_prompt": text_file(cli, "You are a pirate")},
        lambda s: system_prompt(s) == "You are a pirate",
    ),
    "append_system_prompt, a file": Case(
        lambda cli: {"append_system_prompt": text_file(cli, "Add this.")},
        lambda s: system_prompt(s).endswith("Add this.") and "# Harness" in system_prompt(s),
    ),
    "append_system_prompt": Case(
        {"append_system_prompt": "Add this."},
        lambda s: system_prompt(s).endswith("Add this.") and "# Harness" in system_prompt(s),
    ),
    "append_system_prompt, long": Case(
        {"append_system_prompt": LONG},
        lambda s: system_prompt(s).endswith(LONG) and "# Harness" in system_prompt(s),
    ),
    "effort": Case({"effort": "low"}, lambda s: s.request.body["output_config"]["effort"] == "low"),
    "thinking": Case(
        {**OLDER, "thinking": "disabled"}, lambda s: s.request.body["thinking"] == {"type": "disabled"}
    ),
    "max_thinking_tokens": Case(
        {**OLDER, "max_thinking_tokens": 2048},
        lambda s: s.request.body["thinking"]["budget_tokens"] == 2048,
    ),
    "betas": Case({"betas": ["context-1m-2025-08-07"]}, lambda s: "context-1m-2025-08-07" in s.request.betas),
    "agents": Case({"agents": AGENTS}, lambda s: "rev" in s.init["agents"]),
    "agents, long": Case(
        {"agents": {"rev": {**AGENTS["rev"], "prompt": LONG}}, "agent": "rev"},
        lambda s: LONG in system_prompt(s),
    ),
    "agent": Case({"agents": AGENTS, "agent": "rev"}, lambda s: "reviewer of this house" in s.request.system),
    "exclude_dynamic_system_prompt_sections": Case(
        {"exclude_dynamic_system_prompt_sections": True},
        lambda s: "file-based memory" in s.request.user and "file-based memory" not in s.request.system,
    ),
    "system_prompt_snapshot": Case(
        {"system_prompt_snapshot": "off", "allowed_tools": ["Bash"]},
        argv_has("--system-prompt-snapshot=off"),
        ARGV,
    ),
    "autocompact": Case(
        {"autocompact": 200_000, "allowed_tools": ["Bash"]}, argv_has("--autocompact=200000"), ARGV
    ),
    # --- tools and permission
    "tools": Case({"tools": ["Read", "Bash"]}, lambda s: set(s.init["tools"]) == {"Read", "Bash"}),
    "tools, none": Case({"tools": []}, lambda s: s.init["tools"] == [] and s.request.tools == []),
    "allowed_tools": Case(
        {"allowed_tools": ["Bash(touch:*)"]}, lambda s: (s.cli.cwd / "new").exists(), bash("touch new")
    ),
    "disallowed_tools": Case(
        {"disallowed_tools": ["WebFetch", "Bash"]},
        lambda s: not {"WebFetch", "Bash"} & set(s.init["tools"]),
    ),
    "permission_mode": Case({"permission_mode": "plan"}, lambda s: s.init["permissionMode"] == "plan"),
    "permission_prompt_tool": Case(
        {
            "mcp_servers": {"tiny": SERVER},
            "permission_prompt_tool": "mcp__tiny__approve",
            "permission_mode": "manual",
        },
        lambda s: (s.cli.cwd / "please").exists() and not (s.cli.cwd / "new").exists(),
        f"{bash('touch new')}[[then]]{bash('touch please')}",
    ),
    "permission_prompts": Case(
        {"permission_prompts": "none", "allowed_tools": ["Bash"]}, argv_has("--permission-prompts=none"), ARGV
    ),
    "dangerously_skip_permissions": Case(
        {"dangerously_skip_permissions": True},
        lambda s: s.init["permissionMode"] == "bypassPermissions" and (s.cli.cwd / "new").exists(),
        bash("touch new"),
    ),
    "allow_dangerously_skip_permissions": Case(
        {"allow_dangerously_skip_permissions": True, "allowed_tools": ["Bash"]},
        argv_has("--allow-dangerously-skip-permissions"),
        ARGV,
    ),
    "add_dirs": Case(
        lambda cli: {"add_dirs": [folder(cli, "more")]},
        lambda s: s.init["additional_directories"] == [str(s.cli.root / "more")],
    ),
    # Without bubblewrap the CLI says on stderr that the sandbox is asked for, and goes on.
    "sandbox": Case(
        {"sandbox": {"enabled": True}},
        lambda s: s.init["sandbox_enabled"] or "Sandbox disabled" in s.run.stderr,
    ),
    # --- limits
    "max_turns": Case(
        {"max_turns": 1, "allowed_tools": ["Bash"]},
        lambda s: s.result.terminal_reason == "max_turns",
        f"{bash('echo hi')}[[loop]]",
    ),
    "max_budget_usd": Case(
        {"max_budget_usd": 0.0001}, lambda s: s.result.terminal_reason == "budget_exhausted"
    ),
    "task_budget": Case(
        {"task_budget": 50_000}, lambda s: s.request.body["output_config"]["task_budget"]["total"] == 50_000
    ),
    "max_retries": Case(
        {"max_retries": 0}, lambda s: len(s.cli.api.requests()) == 1, "hi [[status: 500 api_error]]"
    ),
    # --- session (more in test_real_sessions.py)
    "persist_session": Case({"persist_session": False}, lambda s: s.cli.transcripts() == []),
    "name": Case(
        {"name": "my title, with --dashes"},
        lambda s: (
            [e.data["title"] for e in s.events if e.subtype == "session_title_changed"]
            == ["my title, with --dashes"]
        ),
    ),
    # --- configuration
    "settings": Case(
        {"settings": {"env": {"GREETING": "from the settings"}}, "allowed_tools": ["Bash"]},
        lambda s: s.tool_text == "from the settings",
        bash("echo $GREETING"),
    ),
    "settings, long": Case(
        {"settings": {"env": {"GREETING": "x" * 150_000 + " the end"}}, "allowed_tools": []},
        lambda s: s.result.result == "ok: hi",
    ),
    "setting_sources": Case(
        lambda cli: project_memory(cli, setting_sources=[]), lambda s: "xyzzy" not in s.request.user
    ),
    "setting_sources, project": Case(
        lambda cli: project_memory(cli, setting_sources=["project"]), lambda s: "xyzzy" in s.request.user
    ),
    "mcp_servers": Case(
        {"mcp_servers": {"tiny": SERVER}, "allowed_tools": ["mcp__tiny"]},
        lambda s: s.tool_text == "echo: 漢" and s.init["mcp_servers"][0]["status"] == "connected",
        tool("mcp__tiny__echo", text="漢"),
    ),
    "mcp_servers, long": Case(
        {"mcp_servers": {"tiny": {**SERVER, "env": {"LONG": "x" * 120_000}}}},
        lambda s: server_names(s) == {"tiny"},
    ),
    "mcp_servers of the project": Case(project_server, lambda s: server_names(s) == {"theirs"}),
    "strict_mcp_config": Case(
        lambda cli: project_server(cli, strict_mcp_config=True, mcp_servers={"tiny": SERVER}),
        lambda s: server_names(s) == {"tiny"},
    ),
    "plugin_dirs": Case(plugin, lambda s: "tiny" in {p["name"] for p in s.init["plugins"]}),
    "bare": Case({"bare": True}, lambda s: len(s.init["tools"]) == 3 and len(s.request.system) < 2000),
    "safe_mode": Case({"safe_mode": True}, lambda s: "statusline-setup" not in s.init["agents"]),
    "restricted": Case({"restricted": True}, lambda s: "Bash" not in s.init["tools"]),
    "disable_slash_commands": Case(
        {"disable_slash_commands": True}, lambda s: "Skill" not in s.init["tools"]
    ),
    "enable_file_checkpointing": Case(
        {"enable_file_checkpointing": True},
        lambda s: "file-history" in s.cli.transcripts()[0].read_text(),
        f"{tool('Write', file_path='new.txt', content='x')}",
    ),
    "debug_file": Case(
        lambda cli: {"debug_file": cli.root / "debug.log"},
        lambda s: (s.cli.root / "debug.log").stat().st_size > 0,
    ),
    # --- output
    "json_schema": Case(
        {"json_schema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        lambda s: s.result.structured_output == {"n": 3},
        'hi [[structured: {"n": 3}]]',
    ),
    "include_partial_messages": Case(
        {"include_partial_messages": True}, lambda s: s.of("text_delta") and s.of("stream_event")
    ),
    "include_hook_events": Case(
        {"include_hook_events": True, "settings": hooked("UserPromptSubmit")},
        lambda s: {e.data["hook_event"] for e in s.of("hook")} == {"UserPromptSubmit"},
    ),
    "forward_subagent_text": Case(
        {"forward_subagent_text": True, "allowed_tools": ["Agent"]},
        lambda s: [e.text for e in s.of("text") if e.parent_tool_use_id] == ["I looked"],
        f"{AGENT}[[then]][[text: it looked]]",
    ),
    "extra_args": Case(
        {"extra_args": {"no-chrome": None, "debug": "api,hooks"}, "allowed_tools": ["Bash"]},
        lambda s: argv_has("--no-chrome")(s) and argv_has("--debug=api,hooks")(s),
        ARGV,
    ),
    # --- ours
    "cwd": Case(
        lambda cli: {"cwd": folder(cli, "elsewhere")},
        lambda s: s.init["cwd"] == str(s.cli.root / "elsewhere"),
    ),
    "env": Case(
        {"env": {"GREETING": "from env"}, "allowed_tools": ["Bash"]},
        lambda s: s.tool_text == "from env",
        bash("echo $GREETING"),
    ),
    "config_dir": Case(
        other_config,
        lambda s: (
            "plugh" in s.request.user
            and list((s.cli.root / "config").glob("projects/*/*.jsonl"))
            and not s.cli.config_dir.exists()
        ),
    ),
    "isolated": Case(
        lambda cli: project_memory(cli, **project_server(cli, isolated=True)),
        lambda s: (
            "xyzzy" not in s.request.user and server_names(s) == set() and not s.cli.config_dir.exists()
        ),
    ),
    "command_prefix": Case(
        {"command_prefix": ["env", "GREETING=from the prefix"], "allowed_tools": ["Bash"]},
        lambda s: s.tool_text == "from the prefix",
        bash("echo $GREETING"),
    ),
    "background": Case(
        {"background": "forbid", "allowed_tools": ["Bash"]},
        lambda s: s.tool_text == "1",
        bash("echo $CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"),
    ),
    "max_line_bytes": Case(
        {"max_line_bytes": 100_000},
        lambda s: len(s.of("oversize")) == 2 and s.result.subtype == "process",
        "hi [[size: 200000]]",
    ),
    "on_stderr": Case(
        {"on_stderr": lambda line: STDERR.append(line), "model": "no-such-model"},
        lambda s: any("no-such-model" in str(line) for line in STDERR) and "no-such-model" in s.run.stderr,
    ),
}
STDERR: list[Any] = []

# What another module or test checks, or what only has an effect where something goes wrong.
ELSEWHERE = {
    # callbacks: test_real_permissions, test_real_hooks, test_real_tools
    "can_use_tool",
    "hooks",
    "unattended",
    "callback_wrapper",
    "resume",
    "continue_conversation",
    "fork_session",
    "session_id",
    "resume_session_at",
    "resume_drops_turn",
    "inherit_env",
    "kill_leftovers",
    "line_sink",
    "background_timeout",
    "max_buffered_bytes",
    "literal",
    "autoupdate",  # here the CLI may never update itself
    # the four limits
    "timeout",
    "idle_timeout",
    "start_timeout",
    "slot_timeout",
}


@pytest.mark.parametrize("name", CASES)
def test_an_option_has_its_effect(cli: RealCLI, name: str):
    """The option of this row shows where the CLI acts on it."""
    case = CASES[name]
    STDERR.clear()
    options = case.options(cli) if callable(case.options) else case.options
    run = cli.client().run(case.prompt, **options)
    seen = Seen(cli, run, list(run))
    assert case.shows(seen), (run.stderr, [f"{e.type}: {str(e)[:300]}" for e in seen.events])


def test_every_option_is_in_the_table():
    """An option that nobody tried against the real CLI is one that may not exist there."""
    tried = {name.partition(",")[0] for name in CASES} | ELSEWHERE
    assert set(RunOptions.__annotations__) - tried == set()


def test_a_server_with_a_field_that_is_refused_here_is_left_out_there(cli: RealCLI):
    """In a file, which only the CLI reads: it goes on without the server. Right fields do no harm."""
    http = {"type": "http", "url": "http://127.0.0.1:9"}
    right = [{**http, "headers": {"A": "b"}, "timeout": 1000.0, "alwaysLoad": False}, {**http, "env": {"A": None}}]
    fields = {"headers": [None, [], {"A": None}], "headersHelper": [None, 5], "oauth": [None, 5, []]}
    fields |= {"timeout": [None, "5", 0, 1.5, True, 1 << 53], "alwaysLoad": [None, 1]}
    wrong = [{**http, field: value} for field, values in fields.items() for value in values]
    other = [{**server, "type": kind} for server in wrong for kind in ("sse", "ws", "streamable-http")]
    wrong += [server for server in other if server["type"] != "ws" or "oauth" not in server]
    wrong += [{**SERVER, field: value} for field in ("timeout", "alwaysLoad") for value in fields[field]]
    wrong += [{**SERVER, "env": value} for value in (None, {"A": None})]
    servers = {f"{word}{n}": one for word, group in (("ok", right), ("no", wrong)) for n, one in enumerate(group)}
    path = cli.cwd / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    events = list(cli.client().run("hi [[text: a]]", mcp_servers=path))
    init = next(event for event in events if event.subtype == "init")
    assert {server["name"] for server in init.data["mcp_servers"]} == {"ok0", "ok1"}
    for server in wrong:
        with pytest.raises(ValueError, match="leaves the server out"):
            cli.client().run("hi", mcp_servers={"no": server})


@pytest.mark.parametrize("part", [b"", b'"x": "\xff",', b'"x": ' + b"9" * 5000 + b","], ids=["plain", "bytes", "long"])
def test_a_file_of_settings_that_is_odd(cli: RealCLI, part: bytes):
    """What we take the CLI takes: the rule in it denies."""
    (cli.root / "s.json").write_bytes(b"{" + part + b'"permissions": {"deny": ["Read"]}}')
    cli.ask("hi", settings=cli.root / "s.json")
    assert "Read" not in cli.api.last().tools


def test_inherit_env_brings_the_hosts_variables(cli: RealCLI, monkeypatch: pytest.MonkeyPatch):
    """With `inherit_env` the tools see the host's variables, without it only the listed ones."""
    monkeypatch.setenv("OF_THE_HOST", "seen")
    prompt = f"go {bash('echo -$OF_THE_HOST')}"
    texts = []
    for inherit in (True, False):
        client = cli.client(inherit_env=inherit, allowed_tools=["Bash"])
        texts += [event.text for event in client.run(prompt) if event.type == "tool_result"]
    assert texts == ["-seen", "-"]


def test_a_nested_client_is_not_held_back(cli: RealCLI):
    """In a tool of an outer Claude Code session a run works like any other, with one warning."""
    outer = {"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "cli", "CLAUDE_CODE_CHILD_SESSION": "1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in outer.items():
            patch.setenv(name, value)
        client = cli.client(inherit_env=True)
        with pytest.warns(RuntimeWarning, match="inside"):
            assert client.ask("hi [[text: inside]]").result == "inside"


def test_a_default_of_the_client_is_overridden_by_the_call(cli: RealCLI):
    """Options of the client are defaults; those of the call win, and `env` is merged."""
    client = cli.client(model="sonnet", env={"A": "client", "B": "client"}, allowed_tools=["Bash"])
    prompt = f"go {bash('echo $A $B')}"
    events = list(client.run(prompt, model="haiku", env={"B": "call"}))
    assert cli.api.requests()[0].body["model"] == "claude-haiku-5-5"
    assert [e.text for e in events if e.type == "tool_result"] == ["client call"]


def test_only_loopback_is_there(cli: RealCLI):
    """The CLI is pointed at loopback; in the private network there is nothing else to reach."""
    assert urlsplit(cli.env["ANTHROPIC_BASE_URL"]).hostname == "127.0.0.1"
    if os.environ.get(PRIVATE_NETWORK_VARIABLE):
        assert [name for _, name in socket.if_nameindex()] == ["lo"]
