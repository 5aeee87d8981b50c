"""Tool rules, as `allowed_tools` has them: read once, then asked whether a tool call is meant.

Pure. The syntax is the CLI's:

    Bash(git *)  Bash(npm test)  Bash(git:*)     commands; ` *` at the end: or nothing more
    Read(src/**)  Edit(//srv/app/**)  Edit(~/x)  paths; `//` absolute, `/` and none: from `cwd`
    WebFetch(domain:example.com)                 also domain:*.example.com
    Agent(Explore)  Skill(name)  Skill(name *)
    Read  mcp__server  mcp__server__*  mcp__server__tool  mcp__server__to*; to deny also mcp__*

A rule is read for one of two sides. `Rule.allows` says yes only where nothing else can be meant;
`Rule.denies` says no only where it cannot be meant. They are not each other's opposite: a command
with `$(...)` in it is neither allowed by `Bash(git *)` nor passed by a denial of `Bash(rm *)`.
What has no meaning here is a ValueError, since a rule that is passed over would forbid nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ._checks import rules as check_rules
from ._checks import split_rules
from ._globs import glob
from ._paths import IGNORED, PathPattern, Places, pattern
from ._permissions import PermissionRequest
from ._rule_faults import no_domain, no_parentheses
from ._shell import Unclear, parts
from ._suspicion import VALUE, could_be, filled, spoken

Input = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """One rule, as it was written, and what it means."""

    text: str
    tool: str
    content: Any = None  # what the parentheses hold, read; None is every use of the tool

    def allows(self, request: PermissionRequest, places: Places) -> bool:
        """Whether this call is surely meant. A command is asked in parts, see `allowed`."""
        if not _same_tool(self, request, sure=True):
            return False
        return self.content is None or self.content.allows(request, places)

    def denies(self, request: PermissionRequest, places: Places) -> bool:
        """Whether this call is meant, or might be."""
        if self.content is None:
            return _same_tool(self, request, sure=False)
        meant: bool = self.content.denies(request, places)
        return meant

    def why(self, request: PermissionRequest) -> str:
        """Why it denies a call that it denies, in words for the model."""
        unclear = _unclear(request) if isinstance(self.content, Command) else ""
        if unclear:
            return f"{unclear}, so it might be what the rule {self.text} forbids"
        return f"the rule {self.text} forbids it, or may mean it"


# --- which tool

_SUBAGENT: Final = ("Agent", "Task")  # one tool: its new and its old name
_EDITORS: Final = {"Edit": "file_path", "Write": "file_path", "MultiEdit": "file_path", "NotebookEdit": "notebook_path"}
_SEARCHERS: Final = ("Grep", "Glob", "LS")
_SHELLS: Final = ("Bash", "Monitor")  # Monitor runs its command as Bash does


def _same_tool(rule: Rule, request: PermissionRequest, sure: bool) -> bool:
    name = request.tool_name
    if rule.tool.startswith("mcp__"):
        return _same_server(rule.tool, request, sure)
    if isinstance(rule.content, Path) and not rule.content.reading:
        return name in _EDITORS
    if rule.tool == "Bash" and not (sure and rule.content is None):  # a bare one allows that tool alone
        return name in _SHELLS
    return name == rule.tool or (name in _SUBAGENT and rule.tool in _SUBAGENT)


def _same_server(tool: str, request: PermissionRequest, sure: bool) -> bool:
    """`mcp__a` is all of the server a. A server may be called `a__b`, so to be sure look at its name; to
    deny, `mcp__a__b` is that whole server, too. With `*` the whole name is compared, and its server to be sure."""
    name = request.tool_name
    if "*" not in tool:
        if name == tool and "__" in tool[5:]:
            return True
        if not name.startswith(tool + "__") or (sure and "__" in tool[5:]):
            return False
    elif not glob(tool, name):
        return False
    known = (request.mcp_server or {}).get("name")
    server = "mcp__" + re.sub(r"[^A-Za-z0-9_-]", "_", str(known))
    return not sure or known is None or (tool.startswith(server + "__") if "*" in tool else server == tool)


# --- what of it


@dataclass(frozen=True)
class Command:
    """A command's text, with `*` for anything."""

    pattern: str

    def matches(self, text: str) -> bool:
        shorter = self.pattern.removesuffix(" *")
        return glob(self.pattern, text) or (shorter != self.pattern and glob(shorter, text))

    def surely(self, part: str) -> bool:
        """For a part of a command. Where `*` is in the program's path, nothing may lead out of it again."""
        program = self.pattern.split(" ", 1)[0]
        if "*" in program and not re.match(r"(?!\S*\.\.)[\w./@%+:-]+(?!\S)", part, re.ASCII):
            return False
        return self.matches(part)

    def allows(self, request: PermissionRequest, places: Places) -> bool:
        """The whole command, word for word. Patterns are for the parts of a command: see `allowed`."""
        command = request.input.get("command")
        return isinstance(command, str) and "*" not in self.pattern and command.strip(" \t\n") == self.pattern

    def denies(self, request: PermissionRequest, places: Places) -> bool:
        if request.tool_name not in _SHELLS:
            return False
        command = request.input.get("command")
        if not isinstance(command, str):
            return True
        wordings = self._wordings()
        try:
            texts = (text.casefold() for text in spoken(command.translate(IGNORED)))
            return any(wording.means(text) for text in texts for wording in wordings)
        except Unclear:
            return True

    def _wordings(self) -> list[Wording]:
        """The pattern in small letters, as on a Mac; without quotes; its program without the path."""
        texts = {" ".join(self.pattern.casefold().split())}
        texts |= {re.sub(r"""['"\\]""", "", text) for text in texts}
        for text in list(texts):
            program, _, rest = text.partition(" ")
            name = program.rpartition("/")[2]
            if name and "*" not in name:
                texts.add(f"{name} {rest}".strip())
        return [Wording(text) for text in texts]


def _unclear(request: PermissionRequest) -> str:
    """Why nobody can tell what a command runs; "" if it can be told."""
    command = request.input.get("command")
    try:
        for _ in spoken(command.translate(IGNORED)) if isinstance(command, str) else ():
            pass
    except Unclear as why:
        return str(why)
    return ""


# More before a subcommand is no command that somebody needs.
_MAX_STEPS: Final = 200


class Wording:
    """A denied command in one of its spellings: the program, the words that must be there, and what may follow."""

    def __init__(self, text: str) -> None:
        self.text, self.shorter = text, text.removesuffix(" *")
        self.program, *wanted = text.split()
        plain = wanted[: next((index for index, word in enumerate(wanted) if "*" in word), None)]
        self.options = [word for word in plain if word.startswith("-")]
        self.names = [word for word in plain if not word.startswith("-")]
        self.tail = " ".join(wanted[len(plain) :])

    def means(self, text: str) -> bool:
        """Whether a text is meant, or might be: also where options stand between, or in another order."""
        if glob(self.text, text) or (self.shorter != self.text and glob(self.shorter, text)):
            return True
        if not could_be(text.partition(" ")[0], self.program):
            return False
        words = text.split()[1:]
        return all(_given(option, words) for option in self.options) and any(map(self._ends, self._behind(words)))

    def _behind(self, words: list[str]) -> Iterator[list[str]]:
        """What is left behind the names. Before each of them options may stand, with or without a value."""
        seen, open_ = set(), [(0, 0)]
        while open_:
            position, found = state = open_.pop()
            if state in seen or position > len(words):
                continue
            seen.add(state)
            if len(seen) > _MAX_STEPS:
                raise Unclear("it has too many options")
            ended = found == len(self.names)
            if ended:
                yield words[position:]
            if position == len(words) or (ended and not self.tail.strip("*")):
                continue
            word = words[position]
            if not ended and (could_be(word, self.names[found]) or word.endswith("=" + self.names[found])):
                open_ += [(position + 1, found + 1)] + filled(word) * [(position, found + 1)]
            if word.startswith(("-", "+")) or filled(word):
                open_ += [(position + 1, found), (position + 2, found)]

    def _ends(self, words: list[str]) -> bool:
        if self.options:
            words = [word for word in words if not word.startswith("-")]
        if any(VALUE in word or (self.tail and filled(word)) for word in words):
            return True
        text = " ".join(words)
        return glob(self.tail, text) or (self.tail.endswith(" *") and glob(self.tail[:-2], text))


def _given(option: str, words: list[str]) -> bool:
    """Whether an option is there: at any place, with a value, and `-rf` also as `-r -f`."""
    if any(could_be(word, option) or word.startswith(option + "=") for word in words):
        return True
    letters = {letter for word in words if _LETTERS.fullmatch(word) for letter in word}
    return _LETTERS.fullmatch(option) is not None and letters.issuperset(option)


_LETTERS: Final = re.compile("-[a-z0-9]+")


@dataclass(frozen=True)
class Path:
    """A path, with whether it is about reading."""

    pattern: PathPattern
    reading: bool

    def allows(self, request: PermissionRequest, places: Places) -> bool:
        key = "file_path" if self.reading else _EDITORS.get(request.tool_name, "")
        path = request.input.get(key)
        return isinstance(path, str) and self.pattern.surely(path, places)

    def denies(self, request: PermissionRequest, places: Places) -> bool:
        """A search is denied wherever reading something is: what it finds cannot be told before."""
        name = request.tool_name
        if name in _SEARCHERS:
            return self.reading
        if not self.reading and name in ("Read", "LSP"):
            return False
        given = [request.input[key] for key in ("file_path", "notebook_path", "filePath") if key in request.input]
        return any(not isinstance(path, str) or self.pattern.maybe(path, places) for path in given)


_URL: Final = re.compile(r"https?://([A-Za-z0-9.-]+)(?::(\d+))?(?:[/?#][\x21-\x5b\x5d-\x7e]*)?", re.I | re.A)
_NUMBERS: Final = re.compile(r"(?:0x[0-9a-f]*|\d+)(?:\.(?:0x[0-9a-f]*|\d+))*")
_PLAIN_NUMBERS: Final = re.compile(r"(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*)){3}")


@dataclass(frozen=True)
class Domain:
    """A host, or with `*.` before it those below it."""

    name: str

    def allows(self, request: PermissionRequest, places: Places) -> bool:
        url = request.input.get("url")
        found = _URL.fullmatch(url) if isinstance(url, str) else None
        return found is not None and found[2] is None and self._is(found[1].lower())

    def _is(self, host: str) -> bool:
        return host.endswith(self.name[1:]) if self.name.startswith("*.") else host == self.name

    def denies(self, request: PermissionRequest, places: Places) -> bool:
        """Hosts below it too, and every address that browsers and we might read otherwise."""
        if request.tool_name != "WebFetch":
            return False
        url = request.input.get("url")
        found = _URL.fullmatch(url) if isinstance(url, str) else None
        if found is None:
            return True
        host, name = found[1].lower().rstrip("."), self.name.removeprefix("*.")
        if _NUMBERS.fullmatch(name) and _NUMBERS.fullmatch(host) and not _PLAIN_NUMBERS.fullmatch(host):
            return True  # 127.0.0.1 is 127.1 and 0x7f000001
        return host == name or host.endswith("." + name)


@dataclass(frozen=True)
class Named:
    """The kind of a subagent, or the name of a skill."""

    key: str
    name: str
    tools: tuple[str, ...]
    arguments: bool = False  # a skill: with any arguments

    def allows(self, request: PermissionRequest, places: Places) -> bool:
        given = request.input
        return given.get(self.key) == self.name and (self.arguments or self.key != "skill" or not given.get("args"))

    def denies(self, request: PermissionRequest, places: Places) -> bool:
        if request.tool_name not in self.tools:
            return False
        given = request.input.get(self.key)
        if not isinstance(given, str):
            return True
        given, name = given.strip("/ \t\r\n").casefold(), self.name.casefold()
        return given == name or given.endswith(":" + name)  # of a plugin: plugin:name


# --- reading


def read_rules(name: str, value: Any, allowing: bool) -> tuple[Rule, ...]:
    """Rules from a list, or from the CLI's own string of them. ValueError for one without a meaning."""
    check_rules(name, value)
    listed = split_rules(value) if isinstance(value, str) else value
    return tuple(_read(rule, allowing) for rule in listed)


def _read(text: str, allowing: bool) -> Rule:
    tool, opened, rest = text.partition("(")
    if not re.fullmatch(r"mcp__[A-Za-z0-9_*-]*|[A-Za-z][A-Za-z0-9_-]*", tool):
        instead = _INSTEAD[allowing] if text.startswith("*") else "a rule is a tool's name, or Tool(what of it)"
        if tool.startswith("mcp__"):
            from ._own_tools import as_written

            instead = f"to the CLI it is {as_written(tool)}"
        raise ValueError(f"no rule for a tool: {text[:60]!r}; {instead}")
    if tool.startswith("mcp__"):
        return _mcp(text, allowing)
    if allowing and tool == "AskUserQuestion":
        raise ValueError("AskUserQuestion cannot be allowed: nobody is there to answer")
    if not opened:
        return Rule(text, tool)
    content = rest[:-1]
    reader = _READERS.get(tool)
    if reader is None:
        raise ValueError(f"{no_parentheses(tool)}: {text[:60]!r}")
    if not content.strip() or content != content.strip():
        raise ValueError(f"the parentheses are empty, or hold spaces at an end: {text[:60]!r}")
    return Rule(text, tool, reader(content, allowing))


def _mcp(text: str, allowing: bool) -> Rule:
    """The CLI's globs: to deny, any; to allow, the server must be written out."""
    tool = text.removesuffix("()").removesuffix("(*)")
    server, wild, _ = tool.partition("*")
    if "(" in tool or not all(tool.split("__")):
        raise ValueError(f"an MCP rule is mcp__server, mcp__server__tool or mcp__server__to*, not {text[:60]!r}")
    if allowing and wild and "__" not in server[5:]:
        raise ValueError(f"to allow, an MCP rule names its server, as mcp__server__*, not {text[:60]!r}")
    return Rule(text, tool)


def _command(content: str, allowing: bool) -> Command | None:
    if content in ("*", ":*"):
        return None
    pattern_ = content[:-2] + " *" if content.endswith(":*") else content
    if ":*" in pattern_ or "**" in pattern_ or ("*" in pattern_ and "\\" in pattern_):
        raise ValueError(f"no pattern of a command: {content[:60]!r}; ':*' is for its end, '*' for any text")
    if allowing and "*" in pattern_:
        if pattern_.startswith("*"):
            raise ValueError(f"Bash({content[:60]}) would allow every program; begin with the program's name")
        try:
            simple = parts(pattern_.replace("*", "x"))
        except Unclear as why:
            raise ValueError(f"Bash({content[:60]}) can never match: {why}") from None
        if len(simple) > 1:
            raise ValueError(f"Bash({content[:60]}) is several commands: a rule is needed for each of them")
    return Command(pattern_)


def _read_path(content: str, allowing: bool) -> Path:
    return Path(pattern(content), True)


def _edit_path(content: str, allowing: bool) -> Path:
    return Path(pattern(content), False)


def _domain(content: str, allowing: bool) -> Domain:
    scheme, _, name = content.partition(":")
    if scheme != "domain" or not re.fullmatch(r"(\*\.)?([A-Za-z0-9-]+\.)*[A-Za-z0-9-]+", name):
        raise ValueError(no_domain(content))
    return Domain(name.lower())


def _subagent(content: str, allowing: bool) -> Named:
    return Named("subagent_type", _name(content), _SUBAGENT)


def _skill(content: str, allowing: bool) -> Named:
    name = content.removesuffix(" *")
    return Named("skill", _name(name), ("Skill",), name != content)


def _name(content: str) -> str:
    if not re.fullmatch(r"[\w.:-]+", content):
        raise ValueError(f"not a name: {content[:60]!r}")
    return content


_READERS: Final[Mapping[str, Callable[[str, bool], Any]]] = {
    "Bash": _command,
    "Read": _read_path,
    "Edit": _edit_path,
    "WebFetch": _domain,
    "Agent": _subagent,
    "Task": _subagent,
    "Skill": _skill,
}
# For a rule that means every tool, by the side it is for.
_INSTEAD: Final = {
    True: "to let all calls run is permission_mode='bypassPermissions'",
    False: "to take all tools away is tools=[]",
}


# --- all of them


def denied(rules: tuple[Rule, ...], request: PermissionRequest, places: Places) -> Rule | None:
    """The first rule that denies the call, or might."""
    return next((rule for rule in rules if rule.denies(request, places)), None)


def allowed(rules: tuple[Rule, ...], request: PermissionRequest, places: Places) -> str:
    """Why the rules do not allow the call; an empty text if they do."""
    if any(rule.allows(request, places) for rule in rules):
        return ""
    commands = [rule.content for rule in rules if rule.tool == "Bash" and rule.content is not None]
    command = request.input.get("command")
    if not commands or request.tool_name not in _SHELLS or not isinstance(command, str):
        return "no rule allows it"
    try:
        for part in parts(command):
            if not any(one.surely(part) for one in commands):
                return f"no rule allows this part of it: {part[:200]}"
    except Unclear as why:
        return f"{why}, so it cannot be compared with the rules"
    return ""
