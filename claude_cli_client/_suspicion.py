"""Shell commands, read for rules that deny: every text in one that might be a command.

Pure. `spoken` gives too many rather than too few:

* Where every program is one that only reads its words (`grep -r rm .`), each says itself and no more.
* In all other commands quotes and backslashes are taken away, each word may be where a command begins
  (who knows all of `sudo`, `flock`, `find -exec`), also behind the letters of an option (`su -c'rm x'`),
  and a program's path counts as its name. What the shell would fill in (`*`, `?`, `[...]`, a variable)
  is marked, and may become what it can.
* Where words could come out of an expansion, commands out of a pipe into a shell, and wherever it is
  not clear what is quoted, it is `Unclear`; what cannot be read counts as denied.

The tables of programs only make this narrower or wider: a program that is in none of them may run
its words. What a program makes of its own input (a script, `python -c`) is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ._globs import glob
from ._shell import ASSIGNMENT, Unclear, cut

# Longer commands are not searched: each word is a beginning, which is quadratic.
MAX_LENGTH: Final = 5_000

# In what `spoken` gives, for what the shell fills in: for `*`, for `?` or `[...]`, for a variable.
STAR: Final = "\ue000"
SOME: Final = "\ue001"
VALUE: Final = "\ue002"
_OPEN: Final = "\ue003"  # a bracket, until it is known what it begins
_QUOTED: Final = "\ue004"  # for the dash of an option with quotes: they say where a value begins
_MARKS: Final = str.maketrans({"*": STAR, "?": SOME, "[": _OPEN})
_UNREADABLE: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f\ue000-\ue004]")


def spoken(command: str) -> Iterator[str]:
    """Everything in `command` that might be a command. Raises Unclear where words could be anything."""
    if len(command) > MAX_LENGTH:
        raise Unclear(f"it is longer than {MAX_LENGTH} characters")
    if _UNREADABLE.search(command):
        raise Unclear("it holds a control character")
    try:
        found: Iterator[str] = iter(_plain(command))
    except Unclear:
        found = _suspected(command)
    yield from found


def filled(word: str) -> bool:
    """Whether the shell fills in something there."""
    return STAR in word or SOME in word or VALUE in word


def could_be(word: str, wanted: str) -> bool:
    """Whether the shell could make `wanted`, where `*` is anything, of this word."""
    if not filled(word):
        return glob(wanted, word)
    return VALUE in word or "*" in wanted or glob(word.replace(STAR, "*").replace(SOME, "*"), wanted)


def _names(text: str) -> list[str]:
    return text.split()


# --- commands whose programs only read their words

_NAME: Final = r"\$(?: [A-Za-z_]\w*(?!\w*\[) | \{[A-Za-z_]\w*\} | [0-9?\#@*] )"
# How a message of several lines is given.
_MESSAGE: Final = r"""" \$\(cat[ ]<<'(?P<mark>[A-Z]+)'\n (?: [^'"`$\\\n]*\n )*? (?P=mark)\n[ \t]*\) \""""
# As _TOKEN, with variables, and with what is thrown away.
_PLAIN_TOKEN: Final = re.compile(
    rf"""
    (?P<between> && | \|\| | [;|\n] )
  | [ \t]+
  | (?<! [^\s;|&] ) (?: 2>&1 | [12]?>[ \t]*/dev/null ) (?= [\s;|&] | \Z )
  | '[^']*'
  | " (?: [^"\\$`] | \\. | \$ (?= [ |)"] ) | {_NAME} )* "
  | {_MESSAGE}
  | {_NAME}
  | (?<= [^\s;|&] ) \#
  | (?<! [^\s;|&] ) \# [^\n'"\\$`<;|&()]* (?= \n | \Z )
  | [^\x00-\x20\x7f'"\\$`;&|<>()\#{{}}]+
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ONLY_READS: Final = frozenset(
    _names(
        """basename cat cd cmp comm cut date df diff dirname du echo egrep expr false fgrep file grep groups head
        hexdump hostname id jq ls md5sum nl nproc od paste ps pwd readlink realpath rev seq sha1sum sha256sum sleep
        stat strings tac tail tr true type uname wc which whoami git-add git-blame git-branch git-commit git-diff
        git-log git-ls-files git-rev-parse git-show git-status"""
    )
)
_KEYWORDS: Final = frozenset(_names("! do done elif else fi if then until while"))
_LOOP: Final = re.compile(r"for[ \t]+(?!path\b)[a-z_][a-z0-9_]*[ \t]+in(?![^ \t])", re.ASCII)


def _plain(command: str) -> list[str]:
    """What such a command says: each part, alone and with what follows."""
    found = []
    for start, end in cut(command, _PLAIN_TOKEN):
        words = command[start:end].split()
        while words and words[0] in _KEYWORDS:
            start = command.index(words[0], start) + len(words.pop(0))
        part = command[start:end].strip()
        if not part or part[0] == "#" or _LOOP.match(part):
            continue
        if words[0] not in _ONLY_READS and "-".join(words[:2]) not in _ONLY_READS:
            raise Unclear("it may run other programs")
        rest = command[start:]
        found += [part, _bare(part), rest, _bare(rest), _redirected(_marked(_Read(part).marked))]
    return [" ".join(text.split()) for text in found]


# --- reading as a shell

# Comments and here documents only where they cannot hide what comes after them.
_LEXEME: Final = re.compile(
    rf"""
    ' (?P<single> [^']* ) '
  | (?P<message> {_MESSAGE} )
  | " (?P<double> (?: [^"\\] | \\[\s\S] )* ) "
  | \\ (?P<escaped> [\s\S] )
  | (?<! [^\s;|&()<>] ) (?P<comment> \# [^\n'"\\$`<;|&()]* ) (?= \n | \Z )
  | (?: \A | (?<= \n ) ) (?P<line> [^\n'"\\$`()\[\]\#<]* )
        << (?P<dash> - )? [ \t]* (?P<quote> ['"]? ) (?P<end> [A-Za-z_]\w* ) (?P=quote)
        (?P<rest> (?= [\s;|&>] ) [^\n'"\\$`()\[\]\#<]* ) \n
        (?P<body> (?: .*\n )*? ) (?(dash) \t* ) (?P=end) (?= \n | \Z )
  | (?P<value> {_NAME} )
  | (?P<unclear> (?<! [^\s;|&()<>] ) \# | (?<! < ) << (?! < ) | \(\( | ['"\\] )
  | (?P<other> [\s\S] )
    """,
    re.VERBOSE | re.ASCII,
)
_IN_DOUBLE: Final = re.compile(rf"\\(?P<escaped>[\s\S])|(?P<value>{_NAME})", re.VERBOSE | re.ASCII)


class _Read:
    """One pass over a command: its `text` without comments, what is `live` in it, that is not quoted,
    the text without its outer quotes, `peeled`, and the same with each quoted text as one word, and with
    what is filled in `marked`."""

    def __init__(self, command: str) -> None:
        self.text = self.live = self.peeled = self.marked = ""
        for token in _LEXEME.finditer(command):
            kind = str(token.lastgroup)
            found = token[kind]
            if kind == "unclear":
                raise Unclear(f"where it ends is not clear, because of a {found}")
            if kind == "comment":
                continue
            self.text += token[0]
            if kind == "body":
                self._here(token)
            elif kind == "other":
                self.live += found
                self.peeled += found
                self.marked += found.translate(_MARKS)
            else:
                self.live += _LIVE[kind](found)
                self.peeled += re.sub(r"\\([\s\S])", r"\1", found) if kind == "double" else found
                self.marked += _SAID[kind](found)

    def _here(self, token: re.Match[str]) -> None:
        line, body = f"{token['line']} {token['rest']}\n", token["body"]
        self.live += line
        self.peeled += line + body
        self.marked += line.translate(_MARKS)
        self.live += "" if token["quote"] else re.sub(r"[{}()]", "", body)
        self.marked += _bare(body)


def _filled(token: re.Match[str]) -> str:
    return VALUE if token["value"] else token["escaped"]


def _one_word(text: str) -> str:
    return re.sub(r"[\s;&|(){}<>!]", "_", text)


_LIVE: Final[Mapping[str, Callable[[str], str]]] = {
    "single": lambda found: "_",
    "message": lambda found: "_",
    "double": lambda found: "_" + re.sub(r"\\[\s\S]|\$(?=[ |)]|\Z)|[^$`]", "", found),
    "escaped": lambda found: "_",
    "value": str,
}
_SAID: Final[Mapping[str, Callable[[str], str]]] = {
    "single": _one_word,
    "message": _one_word,
    "double": lambda found: _one_word(_IN_DOUBLE.sub(_filled, found)),
    "escaped": _one_word,
    "value": lambda found: VALUE,
}


def _bare(text: str) -> str:
    return re.sub(r"""['"\\]""", "", text)


def _marked(text: str) -> str:
    """Brackets are patterns, but for the commands of that name."""
    text = re.sub(rf"(?<!\S){_OPEN}{{1,2}}(?!\S)", "[", text)
    return re.sub(rf"{_OPEN}[^\s/;|&(){{}}<>]*", SOME, text)


# --- all other commands

# Programs, by what they run: their input and texts; texts; texts and words; words.
_SHELLS: Final = _names("sh bash rbash zsh dash ksh mksh oksh pdksh ash csh tcsh fish yash pwsh")
_TEXTS: Final = _names(
    "alias bind compgen complete crontab declare enable fc let local make mapfile readarray rsync tar typeset"
)
_BOTH: Final = _names(
    """at batch busybox concurrently entr env eval expect flock hyperfine nodemon parallel runuser screen script sg ssh
    su tmux toybox trap watch xargs"""
)
_WORDS: Final = _names(
    """sudo doas nohup timeout nice ionice setsid stdbuf exec command builtin source taskset chrt numactl setarch
    strace ltrace valgrind firejail bwrap proot fakeroot unbuffer systemd-run xvfb-run caffeinate chroot unshare
    nsenter repeat noglob nocorrect npx bunx pnpx uvx docker podman kubectl"""
)
_ALL: Final = _SHELLS + _TEXTS + _BOTH + _WORDS


def _any_of(names: list[str]) -> str:
    return rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})[-\d.]*(?![\w-])"


_EXPANDS: Final = re.compile(r"[$`]|[<>]\(|\{(?:[^{}]*|\S*)(?:,|\.\.)")
_RUNS_TEXT: Final = re.compile(
    _any_of(_SHELLS + _TEXTS + _BOTH)
    + r"|\b(?:PS4|BASH_ENV|ENV|PROMPT_COMMAND)="
    + r"|-(?:eq|ne|lt|le|gt|ge)\b|\w\[[^\]\s]*\]\+?=|\[[^]\n]*(?:\$\(|`)"  # arithmetic runs what is in a subscript
    + r"|\bgit\b[^;|&\n]*\s(?:(?-i:-c)|-x|--exec|--upload-pack|--receive-pack|--config-env|foreach|run)\b",
    re.IGNORECASE,
)
# Before the shell's script, or the command that it is given.
_OPTIONS: Final = r"(?:\s+-[abd-np-rt-z]+|\s+[-+][a-z]*o\s+[a-z]+)*\s+"
# With input: shells without a script, and what starts one; always: where input becomes programs and options.
_READS_COMMANDS: Final = re.compile(
    rf"{_any_of(_SHELLS)}(?!{_OPTIONS}(?:-[a-z]*c[a-z]*(?!\S)|(?![-+]|/dev/|/proc/)[^\s;|&<>()]))"
    r"|(?<![^\s;|&(){}])(?:\.|source)\s+/(?:dev|proc)/",
    re.IGNORECASE,
)
_STARTS_A_SHELL: Final = re.compile(
    r"(?:\A|[|&;\n(])[ \t]*(?:sudo[ \t]+)?(?:[^\s;|&]*/)?(?:at|batch|chroot|crontab|newgrp|nsenter|runuser|sg|ssh|su"
    r"|unshare|(?:sudo|doas)[ \t]+(?:-\S+[ \t]+)*-\w*[si])(?![\w.=-])",
    re.IGNORECASE,
)
_WORDS_FROM_INPUT: Final = re.compile(
    rf"(?<![\w.-])xargs\b[^;|&\n]*?\s(?:-[a-z0-9]*(?-i:I)|--replace|{_any_of(_ALL)})"
    r"|(?<![\w.-])xargs(?:\s+-\S+(?:\s+\d+)?)*?\s+-[a-z0-9]*i|(?<![\w.-])parallel(?![\w-])",
    re.IGNORECASE,
)
# In zsh parentheses are a pattern, too.
_PATTERN: Final = re.compile(r"[^\s;|&(){}!<>=]\((?![ \t]*\))|!\(|\)[^\s;|&(){}<>]")
_MAX_DEPTH: Final = 4
_ENDS: Final = tuple(map(re.compile, (r"[;&|\n\r(){}<>!]+", r"[;&|\n\r(){}<>!=]+", r"\n+")))


def _suspected(command: str, depth: int = 0) -> Iterator[str]:
    """Everything that might be a command where programs may run others."""
    if depth > _MAX_DEPTH:
        raise Unclear("it holds quotes in quotes in quotes")
    joined = re.sub(r"\\([\s\S])", lambda pair: "" if pair[1] == "\n" else pair[0], command)
    if joined != command and re.search("#|<<", command):
        raise Unclear("a line may go on, and may not: it holds a comment or a document")
    read = _Read(joined)
    bare = _bare(read.text)
    texts = _RUNS_TEXT.search(bare)
    if texts and "\\\n" in joined:
        raise Unclear("it holds a line that may go on, in a command of a command")
    if _EXPANDS.search(read.text if texts else read.live):
        raise Unclear("it holds an expansion")
    if _takes_commands(bare):
        raise Unclear("it holds a program that takes commands from its input")
    if _PATTERN.search(read.live):
        raise Unclear("it holds parentheses in a word")
    marked, quoted = _marked(bare.translate(_MARKS) if texts else read.marked), _marked(read.marked)
    if re.search(r"(?<!\S)(?:-exec|-ok|xargs\b)", bare):
        marked, quoted = marked.replace("{}", STAR), quoted.replace("{}", STAR)
    for words in {marked, quoted}:
        _check_patterns(words)
    pieces = {
        " ".join(piece.split()): None
        for text in (
            read.text,
            bare,
            _bare(_QUOTED_OPTION.sub(_QUOTED, read.text)),
            _bare(command),
            _with_input(marked),
            _with_input(_redirected(quoted)),
            _redirected(bare),
        )
        for ends in _ENDS
        for piece in ends.split(text)
    }
    for piece in pieces:
        yield from _beginnings(piece)
    if texts and read.peeled != joined:
        yield from _suspected(read.peeled, depth + 1)


def _takes_commands(bare: str) -> bool:
    piped = 0 if "<" in bare else bare.find("|")
    found = piped >= 0 and (_READS_COMMANDS.search(bare, piped) or _STARTS_A_SHELL.search(bare, piped))
    return bool(found or _WORDS_FROM_INPUT.search(bare))


def _redirected(marked: str) -> str:
    """Redirections may stand between any words: here as an option of no name, with a value."""
    marked = re.sub(r"(?:(?<!\d)\d+|&|\{\w+\})?[<>]+[&|]?[ \t]*", " -_ ", marked)
    return re.sub(r"[{}!]|[^\S \t\n]", "_", marked)  # other spaces than these are letters


def _with_input(marked: str) -> str:
    """What xargs reads stands behind the words of its program; which program is its is not looked for."""
    return re.sub(r"(?=[;&|\n\r(){}<>]|\Z)", f" {STAR}", marked) if re.search(r"\bxargs\b", marked) else marked


_RUNS_NEXT: Final = _KEYWORDS | {"time", "coproc", "-exec", "-execdir", "-ok", "-okdir"}
_RUNS_WORDS: Final = frozenset(_SHELLS + _BOTH + _WORDS + [">"])


def _check_patterns(marked: str) -> None:
    """Patterns that could be the name of what runs other commands; and a bare `*` where a program stands."""
    for piece in re.split(r"[;&|\n\r(){}!]+", re.sub("[<>]+&?", " > ", marked)):
        program, words_run = True, False
        for word in piece.split():
            name = word.rpartition("/")[2].casefold()
            if name and not name.strip(STAR):
                hidden = program or words_run
            else:
                hidden = filled(name) and any(could_be(name, one) for one in _SHELLS + _TEXTS + _BOTH)
            if hidden:
                raise Unclear("a pattern of file names could be a program in it")
            words_run = words_run or name in _RUNS_WORDS or (program and word == ".")
            program = word in _RUNS_NEXT or (program and ASSIGNMENT.match(word) is not None)


# The dash of an option that holds a quote or a backslash, or stands in quotes together with what follows.
_QUOTED_OPTION: Final = re.compile(
    r"""(?<![^\s;|&(){}<>!])(?:-(?=[^\s;|&()<>]*['"\\])|['"\\]+-(?=[^\s;|&()<>'"\\]*(?:\s|['"\\][^\s;|&()<>])))"""
)
# The letters of an option, one or several. Without quotes a value is looked for behind those that have
# commands for values (`env -Stouch M`): behind every one there would be an `rm` in `-perm` and `-arm`.
_LETTERS: Final = re.compile(f"[-{_QUOTED}][A-Za-z0-9]*")
_TAKE_COMMANDS: Final = frozenset("cCEIOPST")
_TAKE_COMMANDS_ALONE: Final = _TAKE_COMMANDS | {"e", "x"}


def _beginnings(piece: str) -> Iterator[str]:
    """The text from each word on; of a word that is a path, from its last name on as well; of an option,
    from where its value may begin.

    Not from a bare `*`: see `_check_patterns`. It would be everything, and is mostly files to work on.
    """
    start = 0
    while start < len(piece):
        end = piece.find(" ", start)
        end = len(piece) if end < 0 else end
        for begin in sorted({start, piece.rfind("/", start, end) + 1 or start, *_values(piece, start, end)}):
            if piece[begin:end].strip(STAR):
                yield piece[begin:].replace(_QUOTED, "-")
        start = end + 1


def _values(piece: str, start: int, end: int) -> Iterator[int]:
    """Where the value of an option may begin that is written without a space behind its letters, or behind a `=`."""
    found = _LETTERS.match(piece, start, end)
    letters = found[0] if found else ""
    if piece[start : start + 1] in ("-", _QUOTED) and (equals := piece.find("=", start, end)) >= 0:
        yield equals + 1
    for place, letter in enumerate(letters[1:], 1):
        if letters[0] == _QUOTED or letter in (_TAKE_COMMANDS_ALONE if place == 1 else _TAKE_COMMANDS):
            yield start + place + 1
