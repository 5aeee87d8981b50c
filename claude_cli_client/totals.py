"""What a client tells of its turns (`Totals`) and of what it could do now (`Capacity`). Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .errors import ClaudeError


class Totals(NamedTuple):
    """What the turns of a client added up to, at the moment it was read.

    `failures` counts by the name of the error class, cancelled turns among them. `cost_usd` and
    the tokens are sums over the turns that said what they cost; `unknown_cost` counts the others
    (cancelled, killed, or resumed on an older CLI). `not_stored` counts the entries of transcripts that
    the client's store did not take; why is in the log, and in the `mirror_error` events of a run.
    """

    turns: int = 0
    failures: Mapping[str, int] = {}
    cancelled: int = 0
    cost_usd: float = 0.0
    unknown_cost: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    not_stored: int = 0


class Capacity(NamedTuple):
    """What `Client.probe` found. True where a turn can run now."""

    available: bool
    error: ClaudeError | None = None
    """Why not."""
    resets_at: float | None = None
    """Epoch second at which a usage limit ends, where the CLI says so."""
    retry_after: float | None = None
    """Seconds until then."""
    utilization: float | None = None
    """Share of the usage limit that is spent, 0 to 1, where the CLI says so."""
    model: str = ""
    cost_usd: float | None = None
    duration: float = 0.0
    """Seconds that the probe took."""

    def __bool__(self) -> bool:
        return self.available
