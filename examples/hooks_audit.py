"""Hooks: a log of every tool call, and a guard that lets nothing be written outside of a folder.

    python examples/hooks_audit.py out "Write a haiku into out/haiku.txt"

Writes audit.jsonl. A hook sees what the CLI does unasked, too, which `can_use_tool` does not.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from claude_cli_client import ClaudeError, Client, HookCall, HookMatcher, HookReply

WRITERS = {"Write": "file_path", "Edit": "file_path", "NotebookEdit": "notebook_path"}  # tool -> where it says where


class Audit:
    """Each hook is called on a thread of its own, several at a time: what they share has a lock."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder.resolve()
        self._lock = threading.Lock()

    def before(self, call: HookCall) -> HookReply | None:
        """PreToolUse. If it raised, the call would be denied: the CLI is told to fail closed."""
        target = (call.tool_input or {}).get(WRITERS.get(call.tool_name, ""))
        # Links and ".." are resolved first; relative paths begin at the CLI's working directory.
        outside = target is not None and not (Path(call.cwd) / target).resolve().is_relative_to(self.folder)
        self.write(call, "denied" if outside else "called")
        if outside:
            return HookReply.deny(f"Nothing may be written outside of {self.folder}.")
        return None  # nothing to say: the usual rules decide

    def after(self, call: HookCall) -> None:
        """PostToolUse and PostToolUseFailure."""
        self.write(call, "failed" if call.error else "done")

    def write(self, call: HookCall, what: str) -> None:
        entry = {
            "time": round(time.time(), 3),
            "session": call.session_id,
            "agent": call.agent_id,  # "" in the main turn
            "tool": call.tool_name,
            "input": dict(call.tool_input or {}),
            "what": what,
        }
        with self._lock, self.path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    prompt = " ".join(sys.argv[2:]) or f"Write a haiku into {folder}/haiku.txt, and another into /tmp/haiku.txt."
    folder.mkdir(exist_ok=True)
    audit = Audit(Path("audit.jsonl"), folder)

    client = Client(
        # A command could write anywhere, and no path in its input would tell: so there are none.
        tools=["Read", "Glob", "Grep", "Write", "Edit", "NotebookEdit"],
        hooks={
            # All tools, with a limit in seconds: a guard that hangs denies, too.
            "PreToolUse": [HookMatcher(hooks=audit.before, timeout=10)],
            "PostToolUse": audit.after,
            "PostToolUseFailure": audit.after,
        },
    )
    try:
        answer = client.ask(prompt)
    except ClaudeError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(answer.result)
    print(f"-- {len(answer.permission_denials or ())} denied, see {audit.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
