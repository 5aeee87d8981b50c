"""Rules that do nothing to the CLI, or less than they seem to: what is wrong with one.

Pure, and about one rule at a time; where rules stand is known by `_tool_names.py`. The CLI takes each of these
without a word: of `Write(src/**)` it reads nothing at all, for paths are read of `Edit` and `Read` only. What it
does read is left alone, also where this library has no meaning for it: the name alone, which is `Write(*)` and
`Write()`, too, and to forbid, a field of the call, as in `WebSearch(query:weather*)`.
"""

from __future__ import annotations

import re
from typing import Final

from ._checks import TOOLS

# The tools of whose rules the CLI does not read the parentheses, and what to write instead. `Monitor` and the
# searching tools are meant by the rules of another one.
NO_PARENTHESES: Final = {
    **dict.fromkeys(("Write", "MultiEdit", "NotebookEdit"), "; Edit(path) is for all tools that edit"),
    **dict.fromkeys(("Grep", "Glob", "LS"), "; Read(path) is for files"),
    "Monitor": "; Bash(command) is for its commands",
    "WebSearch": "",
    "ToolSearch": "",
}

# Tools that are none of `TOOLS`, which a rule may mean all the same.
_OTHERS: Final = """
AgentOutput AgentOutputTool BashOutput Brief Config CronCreate CronDelete CronList EnterPlanMode EnterWorktree
ExitPlanMode ExitWorktree KillBash KillShell LS ListAgents ListMcpResources ListMcpResourcesTool NotebookRead
PushNotification REPL ReadMcpResource ReadMcpResourceTool RemoteTrigger ReportFindings ScheduleWakeup SendMessage
SendUserMessage SlashCommand Sleep StructuredOutput TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate
TodoRead WebBrowser Workflow
"""
_KNOWN: Final = {*TOOLS, *_OTHERS.split()}


def no_parentheses(tool: str) -> str:
    """Why a rule for this tool has none."""
    return f"no rule for {tool} has parentheses{NO_PARENTHESES.get(tool, '')}"


def no_domain(content: str) -> str:
    """Why this is no rule for WebFetch."""
    return f"a rule for WebFetch is WebFetch(domain:example.com), not WebFetch({content[:60]})"


def unread(rule: str, allowing: bool) -> str:
    """Why the CLI reads nothing of a rule; "" if it does, or may."""
    tool, _, rest = rule.partition("(")
    content = rest[:-1]
    if content in ("", "*") or (not allowing and _is_field(tool, content)):
        return ""
    if tool == "WebFetch":
        return "" if re.fullmatch(r"domain:([^\s/:]+|\[.*)", content) else no_domain(content)
    return no_parentheses(tool) if tool in NO_PARENTHESES or tool.startswith("mcp__") else ""


def _is_field(tool: str, content: str) -> bool:
    """Whether it may be `name:value`, of the call's input. What paths and addresses are in is not compared so."""
    if tool.startswith("mcp__") and ("*" in tool or "__" not in tool[5:]):
        return False
    name, colon, value = content.partition(":")
    if name in ("file_path", "notebook_path", "path", "url", "domain", "http", "https") or not value:
        return False
    if tool == "Monitor" and value == "*":  # `rm:*` is how commands are written
        return name in ("command", "description")
    return bool(colon) and re.fullmatch(r"[A-Za-z_]\w*", name) is not None


def bare_command(rule: str) -> str:
    """What to write for a command that a rule means without arguments only; "" if it is none."""
    found = re.fullmatch(r"Bash\(([^\s*:]+)\)", rule)
    return f"write 'Bash({found[1]} *)', which is for the command with arguments and without" if found else ""


def misspelt(tool: str) -> str:
    """Which tool may be meant by a name that none has, as far as we know; "" if there is none like it."""
    if tool in _KNOWN or not tool.isalpha():
        return ""
    import difflib  # only for a name that we do not know

    near = next(iter(difflib.get_close_matches(tool, TOOLS, 1, 0.75)), "")
    return f"no tool of this name is known; did you mean {near!r}?" if near else ""
