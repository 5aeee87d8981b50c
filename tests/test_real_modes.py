"""The real CLI: what the permission modes do where nobody is asked, as the README's table says."""

from __future__ import annotations

from typing import Any

import pytest
from real_cli import RealCLI, bash, tool

from claude_cli_client import Event, ToolServer
from claude_cli_client import tool as library_tool

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(90)]

READS = ["ls", "cat f | head -1"]
CHANGES = ["mkdir d2", "touch n", "cp f g", "mv g h", "rm h", "rm -rf d", "rmdir e", "sed -i s/x/y/ f", "echo z > f"]
OTHERS = ["ln -s f l", "chmod 777 f", "find . -delete", "rm ../outside", "echo hi > ../elsewhere", "python3 -V"]


def denied(cli: RealCLI, steps: list[str], **options: Any) -> list[bool]:
    """Of each step, whether it was denied."""
    (cli.cwd / "d" / "x").mkdir(parents=True)
    (cli.cwd / "e").mkdir()
    (cli.cwd / "f").write_text("x\n")
    (cli.root / "outside").write_text("x\n")
    events = cli.events("go " + "[[then]]".join([*steps, "[[text: done]]"]), **options)
    results = [event for event in events if event.type == "tool_result"]
    refused = {denial["tool_use_id"] for denial in events[-1].permission_denials}
    assert len(results) == len(steps)
    return [_is_denied(event, refused) for event in results]


def _is_denied(event: Event, refused: set[str]) -> bool:
    """By the list of denials; what it holds is an error too."""
    found = event.tool_use_id in refused
    assert event.is_tool_error or not found
    return found


@pytest.mark.parametrize(
    ("options", "changes"),
    [({}, True), ({"unattended": True}, True), ({"permission_mode": "auto"}, True),
     ({"permission_mode": "default"}, False), ({"permission_mode": "dontAsk"}, False),
     ({"permission_mode": "plan"}, False)],
)  # fmt: skip
def test_commands(cli: RealCLI, options: dict[str, Any], changes: bool):
    """Those that read run in every mode; those that change files of `cwd` where edits do; no others."""
    others = [] if options.get("permission_mode") == "plan" else OTHERS  # after ten denials that ends the turn
    commands = [*READS, *CHANGES, *others]
    found = denied(cli, [bash(command) for command in commands], **options)
    runs = [*READS, *(CHANGES if changes else [])]
    assert {command for command, no in zip(commands, found, strict=True) if not no} == set(runs)
    assert (cli.root / "outside").exists()
    assert (cli.cwd / "d").exists() is not changes


@pytest.mark.parametrize(
    ("options", "reads", "edits"),
    [({}, False, True), ({"permission_mode": "default"}, False, False), ({"permission_mode": "dontAsk"}, False, False),
     ({"permission_mode": "plan"}, True, False), ({"permission_mode": "bypassPermissions"}, True, True)],
)  # fmt: skip
def test_files(cli: RealCLI, options: dict[str, Any], reads: bool, edits: bool):
    """Reading in `cwd` is always allowed; whether elsewhere, and whether edits are, the mode says."""
    steps = [
        tool("Read", file_path=str(cli.cwd / "f")),
        tool("Read", file_path=str(cli.root / "outside")),
        tool("Write", file_path=str(cli.cwd / "new"), content="x"),
        tool("Write", file_path=str(cli.root / "new"), content="x"),
    ]
    elsewhere = options.get("permission_mode") == "bypassPermissions"
    assert denied(cli, steps, **options) == [False, not reads, not edits, not elsewhere]


RULES = ["Bash(touch *)", "Bash(python3 *)", "Write", "mcp__shop__charge"]


@pytest.mark.parametrize(
    ("mode", "runs"),
    [
        ("acceptEdits", [True, True, True, True]),
        ("default", [True, True, True, True]),
        ("dontAsk", [True, True, True, True]),
        ("plan", [True, False, False, False]),
        ("auto", [True, False, True, True]),
    ],
)
def test_what_is_allowed_beyond_the_mode(cli: RealCLI, mode: str, runs: list[bool]):
    """By rules: all of it, but for broad ones of commands in `plan` and `auto`, and edits and tools in `plan`."""
    charged = []

    @library_tool
    def charge() -> str:
        """Charge."""
        charged.append(True)
        return "charged"

    steps = [
        bash("touch n"),
        bash("python3 -c 1"),
        tool("Write", file_path=str(cli.cwd / "new"), content="x"),
        tool("mcp__shop__charge"),
    ]
    servers = {"shop": ToolServer([charge])}
    found = denied(cli, steps, permission_mode=mode, allowed_tools=RULES, mcp_servers=servers)
    assert [not no for no in found] == runs
    assert bool(charged) == runs[-1]
