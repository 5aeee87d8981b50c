"""The README is true: its Python runs, and its tables name what there is, all of it and nothing else."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import pytest

import claude_cli_client
from claude_cli_client import (
    Client,
    Event,
    HookCall,
    Run,
    Session,
    SessionInfo,
    SessionMessage,
    __main__,
    _fake_simulation,
    errors,
    events,
)
from claude_cli_client._hook_events import HOOK_EVENTS, SPECIFIC, TOP
from claude_cli_client.options import DEFAULTS, PermissionMode, RunOptions
from claude_cli_client.testing import FakeCLI, SimulatedCLI, init, result

ROOT = Path(__file__).resolve().parent.parent
PLACES = {"README.md": ROOT, "MIGRATING.md": ROOT / ".github", "CONTRIBUTING.md": ROOT / ".github"}
PAGES = {name: (folder / name).read_text(encoding="utf-8") for name, folder in PLACES.items()}
README = PAGES["README.md"]
LIMITS = ("timeout", "idle_timeout", "start_timeout", "slot_timeout")
MARK = re.compile(r"<!-- needs (flask|django) -->\n")
SDK = "Coming from claude-agent-sdk (the official Python SDK)"


def blocks() -> list[Any]:
    """Each Python block, with the line it begins at and the framework it needs, "" for none."""
    found = re.finditer(r"^(<!-- [^\n]* -->\n)?```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    places = ((block, README.count("\n", 0, block.start(2)) + 1) for block in found)
    return [
        pytest.param(block[2], line, MARK.fullmatch(block[1])[1] if block[1] else "", id=f"line {line}")
        for block, line in places
    ]


def framework_block(framework: str, part: str) -> dict[str, Any]:
    """The names that the block with this text in it defines. Skips where the framework is not installed."""
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    (found,) = (param.values for param in blocks() if param.values[2] == framework and part in param.values[0])
    space: dict[str, Any] = {"__name__": "readme"}
    exec(compile("\n" * (found[1] - 1) + found[0], "README.md", "exec"), space)
    return space


def section(title: str, page: str = "README.md") -> str:
    """The text below a heading, up to the next one of its kind."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGES[page], re.MULTILINE | re.DOTALL)
    assert found, f"no section {title!r}"
    return found[1]


def tables(text: str) -> list[list[list[str]]]:
    """The body rows of each table, as lists of cells."""
    found = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in t.splitlines()[2:]] for t in found]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize(("source", "line", "framework"), blocks())
def test_python_runs(source, line, framework, tmp_path, monkeypatch, capsys):
    """On the simulated CLI, each block for itself; its test functions are called too."""
    code = compile("\n" * (line - 1) + source, "README.md", "exec")
    if framework:
        return  # run below, where it is installed
    with SimulatedCLI() as cli:
        monkeypatch.setenv("CLAUDE_CLI_PATH", str(cli.path))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
        monkeypatch.chdir(tmp_path)
        space: dict[str, Any] = {"__name__": "readme"}
        exec(code, space)
        tests = [value for name, value in space.items() if name.startswith("test_")]
        for test in tests:
            test(**({"monkeypatch": monkeypatch} if "monkeypatch" in inspect.signature(test).parameters else {}))
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
        assert name in inspect.signature(Client.session).parameters


def test_all_permission_modes():
    """The table has each of them, and no other one."""
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


def test_all_fields_of_what_transcripts_give():
    """Of `SessionInfo` and `SessionMessage`, whose text is made of the message."""
    (found,) = re.findall(r"\nA `SessionInfo` has\s(.*?)A `SessionMessage` has\s(.*?)\n\n", README, re.DOTALL)
    info, message = (set(re.findall(r"`(\w+)`", text)) for text in found)
    assert info == set(SessionInfo.__dataclass_fields__)
    assert message - {"user", "assistant"} == {*SessionMessage.__dataclass_fields__, "text"}


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


def test_all_of_client_and_run():
    """Each public name of the two classes is in its table."""
    for rows, owner in zip(tables(section("Client and Run")), (Client, Run), strict=True):
        public = {name for name in vars(owner) if not name.startswith("_")}
        assert {re.match(r"\w+", name)[0] for row in rows for name in words(row[0])} == public


def test_all_cues_of_the_simulated_cli():
    """The text, the docstring and the program itself know the same."""
    cue = re.compile(r"\[\[(\w+)")
    shown = set(re.findall(r"`\[\[(\w+)", section("Testing your code")))
    assert shown == set(cue.findall(SimulatedCLI.__doc__))
    assert shown == set(_fake_simulation.CUES)


def test_the_speed_that_is_promised():
    """The text says what the table says of parsing."""
    (rows,) = tables(section("Speed"))
    ratios = [float(row[4]) for row in rows if "CPU per event" in row[0]]
    assert f"{min(ratios):.2f} to {max(ratios):.2f} times the CPU" in section("Speed")


def test_all_of_a_session():
    """Each public name of `Session` is in its table."""
    rows, _ = tables(section("Sessions"))
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
    rows = tables(section("The program"))[-1]
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
    for title in ("Coming from the Go client", SDK):
        (rows,) = tables(section(title, "MIGRATING.md"))
        for row in rows:
            for word in words(row[1]):
                name = re.match(r"(?:for event in client\.|client\.|session\.|run\.|logging\.)?(\w*)", word)[1]
                assert name in known or name in {"cancel", "getLogger"}, word
    same = section(SDK, "MIGRATING.md").partition("| There")[0]
    assert [name for name in words(same) if name not in known] == []


def test_links_lead_somewhere():
    """Each link into a page of ours meets a heading; that to a file is to one that exists."""
    headings = {
        (PLACES[page] / page, re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-"))
        for page, text in PAGES.items()
        for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    links = [
        ((PLACES[page] / (link.partition("#")[0] or page)).resolve(), link.partition("#")[2])
        for page, text in PAGES.items()
        for link in re.findall(r"\]\(((?!https?:)[^)]*)\)", text)
    ]
    assert [link for link in links if link[1] and link not in headings] == []
    assert [path for path, _ in links if not path.exists()] == []
    assert len(links) > 30


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


# --- the web examples, for real


@pytest.fixture
def simulated(monkeypatch):
    with SimulatedCLI() as cli:
        monkeypatch.setenv("CLAUDE_CLI_PATH", str(cli.path))
        yield cli


@pytest.fixture
def django():
    """Django with the settings that a view needs, once in a process."""
    pytest.importorskip("django", reason="django is not installed")
    from django.conf import settings

    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], DATABASES={}, USE_TZ=True)


def test_every_framework_block_is_run_here():
    """One of Flask, and of Django the view and the wrapper of callbacks."""
    assert sorted(param.values[2] for param in blocks() if param.values[2]) == ["django", "django", "flask"]


def test_flask(simulated, monkeypatch):
    """An answer, a turn that fails while it is streamed, and what cannot be started."""
    browser = framework_block("flask", "Flask(__name__)")["app"].test_client()
    answer = browser.get("/answer?q=Say+hello")
    assert (answer.status_code, answer.mimetype) == (200, "text/plain")
    assert answer.text.endswith("Say hello")
    failed = browser.get("/answer?q=[[fail:+529]]")
    assert (failed.status_code, failed.text.startswith("\n[API Error: 529")) == (200, True)
    assert browser.get("/answer?q=").status_code == 400
    assert browser.head("/answer?q=[[hang]]").status_code == 200
    simulated.wait_gone()  # a generator that was never begun has ended its run
    monkeypatch.setenv("CLAUDE_CLI_PATH", "/nowhere/claude")
    assert browser.get("/answer?q=Hello").status_code == 502


def test_flask_with_an_answer_that_is_in_the_result_alone(monkeypatch):
    """No text was streamed, and the page is not empty."""
    browser = framework_block("flask", "Flask(__name__)")["app"].test_client()
    with FakeCLI([init(), result("Context: 3 %")]) as fake:
        monkeypatch.setenv("CLAUDE_CLI_PATH", str(fake.path))
        assert browser.get("/answer?q=/context").text == "Context: 3 %"


def test_flask_when_the_browser_goes_away(simulated):
    """The server closes the generator, and the CLI ends."""
    browser = framework_block("flask", "Flask(__name__)")["app"].test_client()
    # Its first word comes in less than a second, its last one long after `wait_gone` has given up.
    with browser.get("/answer?q=[[plain]]+[[slow:+15]]" + "+word" * 8, buffered=False) as answer:
        assert next(iter(answer.response))
        assert simulated.alive()
    simulated.wait_gone()


def test_django(simulated, django, monkeypatch):
    """A stream, failures before and while it comes."""
    from django.test import RequestFactory

    space = framework_block("django", "StreamingHttpResponse")
    get = RequestFactory().get

    def stream(prompt: str) -> str:
        return b"".join(space["stream"](get("/", {"q": prompt})).streaming_content).decode()

    assert stream("Say hello").endswith("Say hello")
    assert stream("[[fail: 529]]").startswith("\n[API Error: 529")
    assert space["stream"](get("/")).status_code == 400
    monkeypatch.setenv("CLAUDE_CLI_PATH", "/nowhere/claude")
    assert space["stream"](get("/", {"q": "Hello"})).status_code == 502


def test_django_connections_around_callbacks(simulated, django, monkeypatch):
    """The wrapper is entered around the tool; the model of a shop stands in for one of the database's."""

    class Article:
        stock = 7

        @classmethod
        def get(cls, name: str) -> Article:
            assert name == "pen"
            return cls()

    Article.objects = Article
    models = ModuleType("shop.models")
    models.Article = Article
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.models", models)
    closed = []
    monkeypatch.setattr("django.db.close_old_connections", lambda: closed.append(1))
    client = framework_block("django", "callback_wrapper=connections")["client"]
    run = client.run('[[call: mcp__shop__stock {"name": "pen"}]]', can_use_tool=lambda request: True)
    assert [event.text for event in run if event.type == "tool_result"] == ["7"]
    assert len(closed) >= 2
    run.result()
