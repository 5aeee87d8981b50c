"""Permissions: what `can_use_tool` is asked and what it answers, as Python and as the CLI's wire form.

Pure: no thread, clock, file or process. Who calls the callback, on which thread, and what happens
when it raises, is the session's business; `permission_failed` is its answer then.

Two facts shape it. The CLI drops an item of `updatedPermissions` that it cannot read, says nothing,
and allows the call all the same; and it answers a denial without a message with an error of its
own. So whatever could be sent wrong is refused here, at construction, on the line that wrote it:
an exception in a permission callback denies the call, and that is the side to err on.

Of what the CLI says nothing is refused but a request that does not say which tool, with which input:
nobody can approve what nobody can see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ._checks import is_list
from ._log import bad_type, bad_value
from ._permission_updates import Json, PermissionUpdate, object_, said, suggestions, updates

# What a bool from a callback says, where it says no.
NO: Final = "The permission callback denied this call."


class Flag(Protocol):
    """Becomes set once, when the CLI no longer wants the answer. A `threading.Event` is one."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class _Never:
    """The flag of a request that nobody can cancel: one that a test built."""

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float | None = None) -> bool:
        return False


NEVER: Final[Flag] = _Never()


# --- answers


@dataclass(frozen=True)
class Allow:
    """Let the tool run, with another input if you give one, and with changes of the permissions."""

    updated_input: Mapping[str, Any] | None = None
    updated_permissions: Sequence[PermissionUpdate | Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        if self.updated_input is not None:
            object.__setattr__(self, "updated_input", object_("updated_input", self.updated_input))
        if self.updated_permissions is not None:
            object.__setattr__(self, "updated_permissions", updates(self.updated_permissions))

    __hash__ = None  # type: ignore[assignment]  # it may hold a dict


@dataclass(frozen=True)
class Deny:
    """Do not let the tool run. The model reads `message` as the tool's error, and the turn goes on.

    `interrupt=True` ends the turn instead; the CLI then puts its own text in the place of yours.
    """

    message: str = ""
    interrupt: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.message, str) or not self.message.strip():
            raise bad_value("Deny needs a message: it is what the model reads, and the CLI takes no denial without")
        if not isinstance(self.interrupt, bool):
            must = "interrupt must be True or False"
            raise bad_value(f"{must}, not {self.interrupt!r}", must)


# --- requests


@dataclass(frozen=True)
class QuestionOption:
    """One of the answers that the model offers."""

    label: str
    description: str = ""


@dataclass(frozen=True)
class Question:
    """A question of AskUserQuestion. `raw` is the whole of it, unknown fields included."""

    question: str
    header: str = ""
    options: tuple[QuestionOption, ...] = ()
    multi_select: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class PermissionRequest:
    """A tool call that needs an approval. Absent texts are "", the rest None or ().

    `input` is what will run if you answer `Allow()`: that very dict is sent back, so a change you
    make in it counts. `raw` is the whole request of the CLI, unknown fields included.
    """

    tool_name: str
    input: dict[str, Any] = field(default_factory=dict)
    tool_use_id: str = ""
    display_name: str = ""
    description: str = ""
    suggestions: tuple[PermissionUpdate, ...] = ()  # what an "always allow" button would send
    blocked_path: str = ""  # the path outside of the allowed directories
    decision_reason: str = ""  # why it is asked, in words
    decision_reason_type: str = ""  # "workingDir", "rule", "hook", "safetyCheck", "other", ...
    agent_id: str = ""  # of the subagent that calls; "" in the main turn
    mcp_server: Mapping[str, Any] | None = None  # {"name": ..., "source": ...}
    requires_user_interaction: bool = False  # an approval by a rule is no answer
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _cancelled: Flag = field(default=NEVER, repr=False, compare=False)

    def __hash__(self) -> int:
        return hash((self.tool_name, self.tool_use_id))

    def __getstate__(self) -> Json:  # a flag belongs to its process
        return {name: value for name, value in self.__dict__.items() if name != "_cancelled"}

    def __setstate__(self, state: Json) -> None:
        self.__dict__.update(state, _cancelled=NEVER)

    @property
    def cancelled(self) -> bool:
        """Whether the answer is no longer wanted: interrupted, or decided elsewhere. It changes while you wait."""
        return self._cancelled.is_set()

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Block until the request is cancelled, at most `timeout` seconds; whether it is."""
        return self._cancelled.wait(timeout)

    # -- AskUserQuestion

    @property
    def is_question(self) -> bool:
        """Whether the model asks the user something. `answer` makes the reply."""
        return self.tool_name == "AskUserQuestion"

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions of AskUserQuestion; () of every other tool."""
        asked = self.input.get("questions") if self.is_question else None
        return tuple(_question(item) for item in asked if isinstance(item, dict)) if isinstance(asked, list) else ()

    def answer(self, answers: Mapping[str, str | Sequence[str]]) -> Allow:
        """The reply to AskUserQuestion: the text of each question, and the label of the option chosen.

        A text that is no label is an answer in the person's own words. Several labels, as a list,
        where the question has `multi_select`. Raises ValueError if a question is missing or unknown.
        """
        if not self.is_question:
            wrong = "asks no question; answer it with Allow or Deny"
            raise bad_value(f"{self.tool_name} {wrong}", f"the tool {wrong}")
        questions = {question.question: question for question in self.questions}
        if set(answers) != set(questions):
            raise bad_value(
                f"the questions are {sorted(questions)}, the answers are for {sorted(answers)}",
                "the answers are not for the questions that were asked: one is needed for each text in `questions`",
            )
        given = {text: _labels(questions[text], answer) for text, answer in answers.items()}
        return Allow({**self.input, "answers": given})

    # -- ExitPlanMode

    @property
    def is_plan(self) -> bool:
        """Whether the model has a plan and asks to begin. Allow leaves plan mode, Deny stays in it."""
        return self.tool_name == "ExitPlanMode"

    @property
    def plan(self) -> str:
        """The text of the plan, if the CLI sends it with the request: not all versions do, so it may be ""."""
        text = self.input.get("plan") if self.is_plan else ""
        return text if isinstance(text, str) else ""


def _question(item: Mapping[str, Any]) -> Question:
    offered = item.get("options")
    return Question(
        _text(item.get("question")),
        _text(item.get("header")),
        tuple(
            QuestionOption(_text(option.get("label")), _text(option.get("description")))
            for option in (offered if isinstance(offered, list) else ())
            if isinstance(option, dict)
        ),
        item.get("multiSelect") is True,
        item,
    )


def _labels(question: Question, answer: Any) -> str:
    if isinstance(answer, str):
        return said(f"the answer to {question.question!r}", answer, "an answer")
    if not is_list(answer) or not answer:
        must = "must be a text, or a list of texts"
        raise bad_value(f"the answer to {question.question!r} {must}", f"an answer {must}")
    if len(answer) > 1 and not question.multi_select:
        must = f"takes one answer, not {len(answer)}"
        raise bad_value(f"{question.question!r} {must}", f"the question {must}")
    return ", ".join(said(f"an answer to {question.question!r}", label, "an answer") for label in answer)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


CanUseTool = Callable[[PermissionRequest], Allow | Deny | bool]

_TEXTS: Final = (
    "tool_use_id",
    "display_name",
    "description",
    "blocked_path",
    "decision_reason",
    "decision_reason_type",
    "agent_id",
)


def permission_request(wire: Mapping[str, Any], cancelled: Flag | None = None) -> PermissionRequest:
    """The CLI's `can_use_tool` as a request. Raises ValueError if tool or input cannot be seen: deny then."""
    name, given = wire.get("tool_name"), wire.get("input")
    if not isinstance(name, str) or not name or not isinstance(given, dict):
        raise bad_value("a permission request without a tool's name and input")
    suggested, server = wire.get("permission_suggestions"), wire.get("mcp_server")
    return PermissionRequest(
        name,
        given,
        **{key: _text(wire.get(key)) for key in _TEXTS},
        suggestions=suggestions(suggested),
        mcp_server=server if isinstance(server, dict) else None,
        requires_user_interaction=bool(wire.get("requires_user_interaction")),
        raw=wire,
        _cancelled=cancelled or NEVER,
    )


# --- the reply


def permission_reply(answer: Any, request: PermissionRequest) -> Json:
    """What a callback returned, as the CLI's form. Raises TypeError for what is no answer: deny then."""
    if answer is True:
        answer = Allow()
    elif answer is False:
        answer = Deny(NO)
    if not isinstance(answer, (Allow, Deny)):
        raise bad_type(f"can_use_tool must return Allow, Deny, True or False, not {_mistake(answer)}")
    wire = decision(answer)
    if isinstance(answer, Allow):
        # What the callback saw is what runs, also for a CLI that wants the input said again.
        wire.setdefault("updatedInput", object_("input", request.input))
    return wire


def decision(answer: Allow | Deny) -> Json:
    """The bare decision, as `can_use_tool` and the hook PermissionRequest have it."""
    if isinstance(answer, Deny):
        wire: Json = {"behavior": "deny", "message": answer.message}
        return {**wire, "interrupt": True} if answer.interrupt else wire
    wire = {"behavior": "allow"}
    if answer.updated_input is not None:
        wire["updatedInput"] = dict(answer.updated_input)
    if answer.updated_permissions:
        wire["updatedPermissions"] = [update.to_wire() for update in updates(answer.updated_permissions)]
    return wire


def _mistake(answer: Any) -> str:
    """What it was, and how it may have come about."""
    name = type(answer).__name__
    if answer is None:
        return "None (does every path of it return?)"
    if name in ("coroutine", "async_generator", "generator", "Future", "Task"):
        return f"a {name}: it is called as a plain function and nothing would run it"
    if answer is Allow or answer is Deny:
        return f"the class {answer.__name__}: call it"
    return f"a {name}"


def permission_failed(exception: BaseException) -> Json:
    """The denial for a callback that raised. Names the class only: its words may hold secrets."""
    return {
        "behavior": "deny",
        "message": f"The permission callback failed ({type(exception).__name__}), so this call was denied.",
    }
