"""The README is true: its Python runs, and its tables name what there is, all of it and nothing else."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import claude_cli_client
from claude_cli_client import Client, Event, HookCall, Session, __main__, errors, events
from claude_cli_client._hook_events import HOOK_EVENTS, SPECIFIC, TOP
from claude_cli_client.options import DEFAULTS, PermissionMode, RunOptions
from claude_cli_client.testing import SimulatedCLI

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
LIMITS = ("timeout", "idle_timeout", "start_timeout", "slot_timeout")
MARKED = "<!-- compiled only: needs "


def blocks() -> list[Any]:
    """Each Python block, with the line it begins at and whether it is marked as one that cannot run here."""
    found = re.finditer(r"^(<!-- [^\n]* -->\n)?```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    places = ((block, README.count("\n", 0, block.start(2)) + 1) for block in found)
    return [
        pytest.param(block[2], line, (block[1] or "").startswith(MARKED), id=f"line {line}") for block, line in places
    ]


def section(title: str) -> str:
    """The text below a heading, without its subsections."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## )", README, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title!r}"
    return found[1]


def tables(text: str) -> list[list[list[str]]]:
    """The body rows of each table, as lists of cells."""
    found = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in t.splitlines()[2:]] for t in found]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize(("source", "line", "compiled_only"), blocks())
def test_python_runs(source, line, compiled_only, tmp_path, monkeypatch, capsys):
    """On the simulated CLI, each block for itself; its test functions are called too."""
    code = compile("\n" * (line - 1) + source, "README.md", "exec")
    if compiled_only:
        return
    with SimulatedCLI() as cli:
        monkeypatch.setenv("CLAUDE_CLI_PATH", str(cli.path))
        monkeypatch.chdir(tmp_path)
        space: dict[str, Any] = {"__name__": "readme"}
        exec(code, space)
        tests = [value for name, value in space.items() if name.startswith("test_")]
        for test in tests:
            test()
        space.clear()
        assert tests or capsys.readouterr().out or cli.calls, "the block did nothing"


def test_there_are_blocks():
    """The search above finds them: a changed fence must not switch the tests off."""
    assert len(blocks()) == README.count("```python\n") > 10


def test_the_two_commands():
    """They stand there as they are run in the continuous integration."""
    assert 'python -m pip install . && python -m claude_cli_client run --simulate "Say hello"\n' in README
    assert "python -m pip install -e '.[test]' && python -m pytest\n" in README


def test_all_options():
    """One row for each option, with its default."""
    rows = [row for table in tables(section("Options")) for row in table]
    shown = {words(row[0])[0]: row[1].strip("`") for row in rows}
    assert len(rows) == len(shown), "an option has two rows"
    assert set(shown) == set(get_type_hints(RunOptions)) - set(LIMITS)
    expected = {name: DEFAULTS.get(name) for name in shown}
    assert shown == {
        name: "" if value is None else f"{value:.0f}" if isinstance(value, float) else str(value)
        for name, value in expected.items()
    }


def test_the_four_limits():
    """Names and defaults, here and in the signatures."""
    (rows,) = tables(section("The four limits"))
    shown = {words(row[0])[0]: row[1] for row in rows}
    assert list(shown) == list(LIMITS)
    for name, default in shown.items():
        assert default == (f"{DEFAULTS[name]:.0f}" if DEFAULTS[name] is not None else "None")
        assert name in inspect.signature(Client.run).parameters


def test_all_permission_modes():
    (rows,) = tables(section("Permission modes"))
    assert {mode for row in rows for mode in words(row[0])} == set(get_args(PermissionMode))


def test_all_event_types():
    """Every constant of `events` but INIT, which is a subtype; and the fields named exist."""
    (rows,) = tables(section("Events"))
    types = [name for row in rows for name in words(row[0])]
    constants = {name for name in events.__all__ if name.isupper()} - {"INIT"}
    assert sorted(types) == sorted(getattr(events, name) for name in constants)
    fields = {name for row in rows for name in words(row[2])}
    assert [name for name in fields if not hasattr(Event, name)] == []


def test_all_errors():
    """The tree names every class, each below its base."""
    tree = re.search(r"```\n(ClaudeError.*?)```", section("Errors"), re.DOTALL)[1]
    bases: list[str] = []
    found = {}
    for line in tree.splitlines():
        depth = len(re.match(r"[ │├└─]*", line)[0]) // 4
        for name in re.findall(
            r"\b[A-Z]\w*(?:Error|Cancelled|Timeout)\b", re.sub(r"\(also.*\)|the OSError.*", "", line)
        ):
            del bases[depth:]
            found[name] = bases[-1] if bases else "Exception"
            bases.append(name)
    assert found == {name: getattr(errors, name).__bases__[0].__name__ for name in errors.__all__}


def test_all_of_a_session():
    """Each public name of `Session` is in its table."""
    (rows, _) = tables(section("Sessions"))
    public = {name for name in vars(Session) if not name.startswith("_")}
    assert {name for row in rows for name in words(row[0])} == public


def test_all_hook_events():
    """One row for each; whether it has a matcher; and what is said of its fields."""
    rows = tables(section("Hooks"))[0]
    assert sorted(name for row in rows for name in words(row[0])) == sorted(HOOK_EVENTS)
    for row in rows:
        names = words(row[0])
        if len(names) == 1:
            assert bool(row[2]) == HOOK_EVENTS[names[0]], names
        assert [field for field in words(row[3]) if field not in HookCall.__dataclass_fields__] == []
        for field in set(words(row[4])) - {"block"}:
            assert set(names) <= {**TOP, **SPECIFIC}[field][1], (names, field)


def test_all_exit_codes():
    """The same as `--help` shows."""
    (rows,) = tables(section("The program"))
    shown = {int(code) for row in rows for code in re.findall(r"\b\d+\b", " ".join(row))}
    assert shown == {int(code) for code in re.findall(r"(?:^|; ) *(\d+) ", __main__._EXIT_CODES, re.MULTILINE)}


def test_names_of_the_other_sdks_lead_to_ours():
    """What the tables call ours exists."""
    known = {
        *get_type_hints(RunOptions),
        *inspect.signature(Client).parameters,
        *dir(Client),
        *dir(Event),
        *dir(Session),
    }
    known |= {*dir(claude_cli_client), "result", "run", "result()", *events.TEXT.split(), events.TOOL_USE}
    for title in ("Coming from the Go SDK", "Coming from the official SDK"):
        (rows,) = tables(section(title))
        for row in rows:
            for word in words(row[1]):
                name = re.match(r"(?:for event in client\.|client\.|session\.|run\.|logging\.)?(\w*)", word)[1]
                assert name in known or name in {"cancel", "getLogger"}, word
    same = section("Coming from the official SDK").partition("| There")[0]
    assert [name for name in words(same) if name not in known] == []


def test_links_lead_somewhere():
    """Each link into the page meets a heading."""
    headings = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", README, re.MULTILINE)
    }
    assert [link for link in re.findall(r"\]\(#([^)]*)\)", README) if link not in headings] == []


def test_names_in_code_exist():
    """`client.x` and the like in the text are names of the classes."""
    owners = {
        "client": Client,
        "run": claude_cli_client.Run,
        "session": Session,
        "request": claude_cli_client.PermissionRequest,
        "call": HookCall,
        "context": claude_cli_client.ToolContext,
    }
    for owner, name in re.findall(rf"\b({'|'.join(owners)})\.([a-z_]+)\b", README):
        known = {*dir(owners[owner]), *getattr(owners[owner], "__dataclass_fields__", ()), "args"}
        assert name in known or name in inspect.signature(owners[owner]).parameters, f"{owner}.{name}"
