"""The real CLI: what it drops of settings, and what our table of shapes says of them. They must agree.

Every row of `_settings_shapes.py` is tried with a right value and with a pool of others. That takes no
process for each: a session reads the user's settings anew whenever it is asked for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from real_cli import RealCLI

from claude_cli_client import Session, _named_files
from claude_cli_client import _settings_shapes as shapes
from claude_cli_client._hook_events import HOOK_EVENTS
from claude_cli_client._settings_shapes import Either, Kind, ListOf, MapOf, Object, Shape, Tagged, Words, why_dropped

pytest_plugins = ["real_cli"]
pytestmark = [pytest.mark.real_cli, pytest.mark.timeout(120)]

GUARD = [{"hooks": [{"type": "command", "command": "x"}]}]
POOL: list[Any] = [None, True, "true", "", 5, 0, -1, 1.5, [], {}, [5], [None], {"x": 5}]
# A right value of each kind. The text is a word that is right also where the CLI, not we, asks for one.
RIGHT: dict[Kind, Any] = {
    shapes.TEXT: "github",
    shapes.FLAG: False,
    shapes.NUMBER: 1.5,
    shapes.ABOVE_0: 0.5,
    shapes.PART: 0,
    shapes.PART_ABOVE_0: 1,
    shapes.COUNT: 30.0,
    shapes.COUNT_OR_0: 0,
    shapes.WHOLE: -5,
    shapes.FILLED: "x",
    shapes.URL: "http://127.0.0.1:9/",
    shapes.CLOCK: "7:00",
    shapes.VARIABLE: "X",
    shapes.NAME: "x",
    shapes.SERVICE: "com.example.*",
    shapes.LIST: [],
    shapes.OBJECT: {},
    shapes.ANY: 5,
    shapes.ELSEWHERE: [],
}
FREE = (shapes.ANY,)
# The CLI looks closer than we do: at the kinds of a marketplace's source, and for two equal names in a pair.
CLOSER = ("Marketplaces.0.source", "awsPairs.0.sessionTokenVar", "awsPairs.0.secretAccessKeyVar")


class Row(NamedTuple):
    """One place in settings: its shape, and how settings with a value there look."""

    place: str
    shape: Shape | None  # None: a field is taken away, whatever the value
    put: Callable[[Any], Any]


def right(shape: Shape) -> Any:
    """The least value that is of this shape."""
    if isinstance(shape, Kind):
        return RIGHT[shape]
    if isinstance(shape, Words):
        return shape.words[-1]
    if isinstance(shape, ListOf):
        return [right(shape.entry)]
    if isinstance(shape, MapOf):
        return {"x": right(shape.entry)}
    if isinstance(shape, Either):
        return right(shape.second)
    if isinstance(shape, Tagged):
        tag, first = next(iter(shape.types.items()))
        return {"type": tag, **right(first)}
    assert isinstance(shape, Object)
    more = {"repo": "a/b"} if shape is shapes.SOURCE else {}
    return {**{name: _needed(name, shape.fields[name]) for name in shape.needs}, **more}


def _needed(name: str, shape: Shape) -> Any:
    return name if shape is shapes.VARIABLE else right(shape)  # two variables must differ


def rows(shape: Shape, place: str, put: Callable[[Any], Any]) -> Iterator[Row]:
    """This place and all below it. Of the events of hooks two are enough: a guard, and another."""
    yield Row(place, shape, put)
    below: list[tuple[str, Shape, Callable[[Any], Any]]] = []
    if isinstance(shape, Object):
        least = right(shape)
        names = [n for n in shape.fields if not place.endswith("hooks") or n in ("PreToolUse", "Stop")]
        below = [(n, shape.fields[n], lambda value, n=n: {**least, n: value}) for n in names]
        for name in shape.needs:
            less = {key: value for key, value in least.items() if key != name}
            yield Row(f"{place}.{name}", None, lambda _, less=less: put(less))  # type: ignore[misc]
    elif isinstance(shape, ListOf):
        below = [("0", shape.entry, lambda value: [value])]
    elif isinstance(shape, MapOf):
        below = [("x", shape.entry, lambda value: {"x": value})]
    elif isinstance(shape, Either):
        below = [("", shape.second, lambda value: value)]
    elif isinstance(shape, Tagged):
        below = [(tag, kind, lambda value, tag=tag: _tagged(tag, value)) for tag, kind in shape.types.items()]
        yield from (Row(f"{place}.type", None, lambda _, tag=tag: put({"type": tag})) for tag in ("nope", 5, None))  # type: ignore[misc]
    for name, part, wrap in below:
        yield from rows(part, f"{place}.{name}" if name else place, lambda value, wrap=wrap: put(wrap(value)))  # type: ignore[misc]


def _tagged(tag: str, value: Any) -> Any:
    return {"type": tag, **value} if isinstance(value, dict) else value


ROWS = {
    name: list(rows(shape, name, lambda value, name=name: {name: value}))  # type: ignore[misc]
    for name, shape in shapes.SETTINGS.fields.items()
}
BIG = ("permissions", "hooks", "sandbox")
GROUPS = {**{name: ROWS[name] for name in BIG}, "others": [r for n in ROWS if n not in BIG for r in ROWS[n]]}


class Asked:
    """A session that is asked what it has of the user's settings."""

    def __init__(self, cli: RealCLI, **options: Any) -> None:
        self.session: Session = cli.session(setting_sources=["user"], **options)
        self.path = cli.config_dir / "settings.json"
        self.path.parent.mkdir(exist_ok=True)

    def takes(self, settings: dict[str, Any]) -> bool:
        """Not dropped as a whole; nor, of hooks, one of them."""
        self.path.write_text(json.dumps({**settings, "beside": "it"}))
        got = self.source("userSettings")
        return "beside" in got and _same_hooks(settings.get("hooks"), got.get("hooks", {}))

    def source(self, name: str) -> dict[str, Any]:
        answer = self.session.request("get_settings")
        return next((s["settings"] for s in answer["sources"] if s["source"] == name), {})


def _same_hooks(given: Any, got: Any) -> bool:
    """Nulls are no hooks, and events that the CLI does not know no events: they are gone when read back."""
    if not isinstance(given, dict):
        return given in (None, [])
    return bool({name: event for name, event in given.items() if name in HOOK_EVENTS and event is not None} == got)


@pytest.mark.parametrize("group", GROUPS)
def test_the_table_and_the_cli_agree(cli, group):
    """Of every row: a right value is taken, and of the others is refused what the CLI drops, and only that."""
    asked, wrong = Asked(cli), []
    for row in GROUPS[group]:
        values = POOL if row.shape is None else [right(row.shape), *POOL]
        drops = 0
        for value in values[: 1 if row.shape is None else None]:
            settings = row.put(value)
            ours, theirs = why_dropped(settings) is None, asked.takes(settings)
            drops += not theirs
            known = theirs is False and row.place.endswith(CLOSER)
            if ours != theirs and not known:
                wrong.append((row.place, value, "the CLI takes it" if theirs else "the CLI drops it"))
        if row.shape is not None and not asked.takes(row.put(values[0])):
            wrong.append((row.place, values[0], "it should be right"))
        if not drops and row.shape not in FREE:
            wrong.append((row.place, values, "nothing is wrong here"))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"PreToolUse": GUARD}, "PreToolUse"),
        ({"Hooks": {"PermissionRequest": GUARD}}, "Hooks"),
        ({"hooks": {"hooks": {"PreToolUse": GUARD}}}, "hooks.hooks"),
        ({"hooks": {"matcher": "Bash", "hooks": GUARD[0]["hooks"]}}, "hooks.hooks"),
        ({"hooks": GUARD}, "hooks"),
        ({"hooks": {"PreToolUse": GUARD[0]}}, "hooks.PreToolUse"),
    ],
)
def test_hooks_in_a_wrong_place(cli, settings, place):
    """One that may forbid something, and would not be found, costs all settings."""
    assert why_dropped(settings).startswith(f"{place} must be")
    assert not Asked(cli).takes(settings)


@pytest.mark.parametrize("url", ["localhost:8080/x", "HTTPS:x", "mailto:", "x", "//x/y", "/x", "x/y:z", ""])
def test_what_a_url_is(cli, url):
    """The least that the CLI asks for: a scheme."""
    settings = {"hooks": {"PreToolUse": [{"hooks": [{"type": "http", "url": url}]}]}}
    assert Asked(cli).takes(settings) == (why_dropped(settings) is None)


def test_the_option_is_read_in_the_same_way(cli, monkeypatch):
    """What is seen of the user's settings is true of the option `settings`, of one wrong value of each name."""
    monkeypatch.setattr(_named_files, "_check_shape", lambda *_: None)
    places = {name: next(v for v in POOL if why_dropped({name: v})) for name in ROWS if ROWS[name][0].shape not in FREE}
    del places["allowedMarketplaces"]  # another name of the strict ones
    asked = Asked(cli, settings=places)
    assert asked.source("flagSettings") == {}
    errors = {error["path"].partition(".")[0] for error in asked.session.request("get_settings")["errors"]}
    assert set(places) - errors == set(shapes.GUARDS)  # of which it speaks as of hooks


def test_the_option_takes_nulls_where_the_table_does(cli):
    """A null that means "not given"."""
    nulls = {name: None for name in shapes.SETTINGS.fields if why_dropped({name: None}) is None}
    asked = Asked(cli, settings={**nulls, "beside": "it"})
    assert "beside" in asked.source("flagSettings")


@pytest.mark.parametrize(
    "options",
    [
        {"settings": {"permissions": {"deny": ["Read"], "additionalDirectories": [5]}}},
        {"settings": {"permissions": {"deny": ["Read"]}}, "sandbox": {"excludedCommands": "git"}},
    ],
)
def test_what_a_wrong_shape_costs(cli, monkeypatch, options):
    """The tool that the settings deny is offered: that is why nothing is started with such settings."""
    with pytest.raises(ValueError, match="the CLI drops all of these settings"):
        cli.ask("hi", **options)
    monkeypatch.setattr(_named_files, "_check_shape", lambda *_: None)
    cli.ask("hi", **options)
    assert "Read" in cli.api.last().tools
