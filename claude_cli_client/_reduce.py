"""What the events of one turn add up to: the answer, its fallback text, the cost, the end.

Pure. A run feeds it as lines arrive, `replay` from an archive; both get the same events from it.

What a turn ends with is decided here, and only here:

* The *answer* is the first `result` line that our prompt caused: no `origin`, and no other such
  line before it, lost ones included (`result_index`). In a live session it is the one that names
  the prompt, whatever its `origin`: a prompt that comes while the CLI's comment on a task runs a
  tool is answered in that comment. It is held back, because the CLI prints lines behind it and the
  terminal event comes last. Every other `result` line becomes a `task_result` and passes through.
* Without an answer the terminal event is made up: type `error`, with the subtype that says why.
* Its `result` falls back to the text of the last message where the CLI left it out, left it
  empty, or gave only the last of several text blocks of one message.
* `cost_usd` is what this process spent: the sum of `model_usage_since_last_result` over its
  results. The CLI's own total goes on over resumes, so it is this run's cost only where nothing
  was resumed.
"""

from __future__ import annotations

from collections.abc import Iterable

from .events import Event, changed, make

_OPEN = ("task_started",)
_CUT = ("killed", "stopped")
_SETTLED = ("completed", "failed", *_CUT)
# What the CLI has to say in the place of an answer. Of a hook inside of a slash command this is all there is.
_STOPPED = "Operation stopped by hook"


def last_word(fault: str) -> Event:
    """The terminal event where none could be made: no memory, say. There must be one all the same."""
    text = f"the client failed at the end of the turn: {fault}"
    return make({"type": "error", "subtype": "process", "text": text, "is_error": True, "is_terminal": True})


class Reducer:
    """The state of one turn. Not thread-safe: it belongs to the thread that reads the lines."""

    def __init__(self, *, resumed: bool, prompt_uuid: str = "") -> None:
        self._prompt_uuid = prompt_uuid  # of a live session, where a process has many prompts
        self._resumed = resumed  # or unknown: then the CLI's total is not taken for this run's cost
        self.answer: Event | None = None
        self.init: Event | None = None
        self.session_id = ""
        self.model = ""
        self.error_word = ""  # of the last `api_error` line
        self.blocked = False  # a hook refused or stopped the prompt
        self.resets_at: float | None = None
        self.last_retry: Event | None = None
        self.oversize: Event | None = None  # the last one; it may have been the result
        self._completed = False  # the CLI is done with our prompt
        self.open_tasks: set[str] = set()
        self._in_turn = False
        self._in_result = False  # the last thing that happened was the end of a turn
        self._owed = 0  # tasks that have ended, and the CLI has yet to comment on them
        self._results = 0
        self._ours = True  # the turn that our prompt began, not a notification's
        self._begun = False  # its init came
        self.messages = 0  # of the model in the main turn
        self._message_id = ""
        self._texts: list[str] = []
        self._cost: float | None = 0.0

    def add(self, events: Iterable[Event]) -> list[Event]:
        """Take notice of these events; gives back those to deliver now."""
        passed = []
        for event in events:
            note = _NOTES.get(event.type)
            shown = event if note is None else note(self, event)
            if shown is not None:
                passed.append(shown)
        return passed

    @property
    def working(self) -> bool:
        """Whether something is going on: a turn (also one that a task's end began), or a task."""
        return self._in_turn or bool(self.open_tasks)

    @property
    def in_result(self) -> bool:
        """Whether the last thing that happened was the end of a turn, and no other is to follow."""
        return self._in_result and not self._owed

    @property
    def is_over(self) -> bool:
        """Whether the turn is: its answer is there, or is lost and will not come."""
        return self.answer is not None or self._completed

    @property
    def is_complete(self) -> bool:
        """Whether the answer is there and the CLI is done with the prompt, which it may say before or behind it."""
        return self.answer is not None and self._completed

    def lost_line(self, limit: int) -> str:
        """To be added to the sentence of a turn without a result: a line that may have been it."""
        if self.oversize is None:
            return ""
        shown = self.oversize.text[:60]
        return f"; a line was longer than max_line_bytes={limit} and may have been the result ({shown}...)"

    def last_heard(self) -> str:
        """To be added to the sentence of a limit: what the API did, if it made the CLI retry."""
        retry = self.last_retry
        if retry is None:
            return ""
        status = retry.api_error_status or retry.error or "no connection"
        return f"; the last thing heard of the API: retry {retry.retry_attempt} after {status}"

    @property
    def text(self) -> str:
        """The text blocks of the last message of the main turn, joined."""
        return "".join(self._texts)

    def end(self, subtype: str, sentence: str, exit_code: int | None) -> Event:
        """The terminal event: the answer where there is one, else an error of this subtype."""
        if self.answer is None:
            return make(
                {
                    "type": "error",
                    "subtype": subtype,
                    "text": sentence,
                    "result": self.text,
                    "is_error": True,
                    "session_id": self.session_id,
                    "model": self.model,
                    "error": self.error_word,
                    "exit_code": exit_code,
                    "is_terminal": True,
                }
            )
        answer = self.answer
        return changed(
            answer,
            result=self._answer_text(answer),
            error=self.error_word if answer.is_error and self.error_word else answer.error,
            session_id=answer.session_id or self.session_id,
            model=answer.model or self.model,
            cost_usd=self._cost,
            exit_code=exit_code,
            is_terminal=True,
        )

    def _answer_text(self, answer: Event) -> str:
        if not answer.result:
            # In no turn of the model the CLI may say again what it said before (/compact): that answers nothing.
            return "" if self.blocked or answer.data.get("num_turns") == 0 else self.text
        several = len(self._texts) > 1 and self._texts[-1] == answer.result
        return self.text if several else answer.result

    # --- what each type of event tells us

    def _init(self, event: Event) -> Event:
        # A second init opens a notification's turn; an id that changes (/clear) is the one to keep.
        if event.subtype == "init":
            self._in_turn = True
            self._in_result = False
            self._owed = max(0, self._owed - 1)
            # The notification's turn may begin before our result line comes, and that of a task which the end of
            # an earlier process cut, before ours: then `_result` sees it.
            self._ours, self._begun = not self._begun, True
            self.init = event
            self.session_id = event.session_id or self.session_id
            self.model = event.model or self.model
        elif event.subtype == "informational" and self._ours:
            # Whichever outcome it names, it is none of a prompt that went on; of a slash command it names none.
            is_end = event.data.get("prevent_continuation") is True and not self.messages
            self.blocked = self.blocked or is_end or isinstance(event.data.get("prompt_submit_outcome"), dict)
        return event

    def _block(self, event: Event) -> Event:
        if self._ours and not event.parent_tool_use_id and self.answer is None:
            # Without an id (a gateway may leave it out) a line is a message of its own.
            if event.message_id != self._message_id or not (event.message_id or event.block_index):
                self._message_id, self._texts = event.message_id, []
                self.messages += 1
            if event.type == "text":
                self._texts.append(event.text)
        return event

    def _api_error(self, event: Event) -> Event:
        if self._ours and not event.parent_tool_use_id and self.answer is None:
            self.error_word = event.error
        return event

    def _task(self, event: Event) -> Event:
        self._in_result = False
        if event.type in _OPEN:
            self.open_tasks.add(event.task_id)
        elif event.task_status in _SETTLED:
            # Either of two events reports the end, in either order; the second finds nothing.
            self.open_tasks.discard(event.task_id)
            # Not for what somebody stopped; of a subagent's own tasks that one is told.
            if event.type == "task_notification" and event.task_status not in _CUT:
                self._owed += not event.data.get("owned_by_subagent")
        return event

    def _tool_result(self, event: Event) -> Event:
        # With its tools' results a turn is told of the tasks that have ended: no comment follows on those.
        if not event.parent_tool_use_id:
            self._owed = 0
        return event

    def _retry(self, event: Event) -> Event:
        self.last_retry = event
        return event

    def _rate_limit(self, event: Event) -> Event:
        # A warning names a limit that is not reached; it says nothing of a refusal that follows.
        self.resets_at = None if event.rate_limit_status.startswith("allowed") else event.resets_at
        return event

    def _lifecycle(self, event: Event) -> Event:
        # "completed" stands behind the result: if that is not here, its line was lost.
        named = event.data.get("command_uuid")
        if event.data.get("state") == "completed" and named == (self._prompt_uuid or named):
            self._completed = self._in_result = True
            self._in_turn = False
        return event

    def _oversize(self, event: Event) -> Event:
        self.oversize = event
        return event

    def _result(self, event: Event) -> Event | None:
        self._in_turn = False
        self._in_result = True
        self._cost = self._cost_with(event)
        place, self._results = self._results, self._results + 1
        if self.answer is None and self.is_ours(event, place):
            self.answer = event
            self.blocked = self.blocked or (event.num_turns == 0 and event.result.startswith(_STOPPED))
            self.session_id = event.session_id or self.session_id
            return None
        if self._ours and self.answer is None:
            # It was a task's turn that we took for ours: that begins with the next init.
            self._begun = self.blocked = False
            self._message_id, self._texts, self.messages, self.error_word = "", [], 0, ""
        return changed(event, type="task_result")

    def is_ours(self, event: Event, place: int = 0) -> bool:
        """Whether our prompt caused this result, before which there were so many others."""
        if not self._prompt_uuid:
            # The first that no notification caused, if none that stood before it has been lost.
            return event.origin is None and (event.result_index or 0) <= place
        named = event.data.get("user_message_uuids") or [event.data.get("user_message_uuid")]
        if named == [None]:  # a CLI that names no prompts has one at a time: ours
            return event.origin is None
        return isinstance(named, list) and self._prompt_uuid in named

    def _cost_with(self, event: Event) -> float | None:
        total = event.session_cost_usd
        if event.cost_usd is not None:
            return None if self._cost is None else self._cost + event.cost_usd
        if total is not None and (not self._resumed or total == 0):
            return max(total, self._cost or 0.0)  # the total has the results before it in it
        return None


_NOTES = {
    "system": Reducer._init,
    "text": Reducer._block,
    "thinking": Reducer._block,
    "tool_use": Reducer._block,
    "api_error": Reducer._api_error,
    "tool_result": Reducer._tool_result,
    "task_started": Reducer._task,
    "task_updated": Reducer._task,
    "task_notification": Reducer._task,
    "retry": Reducer._retry,
    "rate_limit": Reducer._rate_limit,
    "oversize": Reducer._oversize,
    "command_lifecycle": Reducer._lifecycle,
    "result": Reducer._result,
}
