"""A turn in streaming mode: when it is needed, and what is said to the CLI at its start.

A turn with callbacks, in-process tools, content blocks or `literal=True` speaks stream-json on
stdin, all others text. Imported by turns of the first kind only.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from ._answers import Answers
from ._duplex import Duplex
from .callbacks import hooks_config
from .mcp import ToolServer

Json = Mapping[str, Any]


def open_stream(options: Json, content: str | Sequence[Json]) -> Duplex:
    """What will talk to the CLI in a one-shot turn, with the first lines said.

    Raises what the checks of the callbacks raise.
    """
    duplex, initialize = converse(options)
    prompt = duplex.prompt_line(content, str(uuid.uuid4()), literal=bool(options.get("literal")))
    if initialize:
        duplex.begin(initialize, prompt)
    else:
        duplex.say(prompt)
    return duplex


def converse(options: Json) -> tuple[Duplex, Json]:
    """What will talk to the CLI, and the fields of `initialize` that it needs to have said."""
    hooks, functions = hooks_config(options.get("hooks"))
    servers = options.get("mcp_servers")
    answers = Answers(
        can_use_tool=options.get("can_use_tool"),
        hooks=functions,
        servers={n: s for n, s in servers.items() if isinstance(s, ToolServer)} if isinstance(servers, Mapping) else {},
        wrapper=options.get("callback_wrapper"),
    )
    duplex = Duplex(answers.handlers)
    answers.session_id = lambda: duplex.session_id()
    answers.send = lambda server, message: duplex.notify("mcp_message", {"server_name": server, "message": message})
    return duplex, {"hooks": hooks} if hooks else {}
