"""What lists show: the fold of entries, and its reading. Pure: entries in, an object out."""

import copy
import json
import random

import pytest

from claude_cli_client import SessionInfo, _ends
from claude_cli_client._ends import entry_of, summary_of
from claude_cli_client._summary import session_info, summarize

ID = "22a9c654-efbc-4159-8b73-9dc3799beefe"


def user(content, **fields):
    return {"type": "user", "uuid": "u", "message": {"role": "user", "content": content}, **fields}


def read(*entries, **options):
    return session_info(summarize(None, entries), ID, 5, **options)


FULL = [
    {"type": "queue-operation", "timestamp": "2026-01-02T03:04:05.678Z"},
    user("Fix it", isSidechain=False, cwd="/srv/app", gitBranch="main", timestamp="2026-01-02T03:04:06.000Z"),
    {"type": "ai-title", "aiTitle": "A fix"},
    user("And that", cwd="/elsewhere", gitBranch="next"),
    {"type": "last-prompt", "lastPrompt": "And that"},
    {"type": "custom-title", "customTitle": "My title"},
    {"type": "tag", "tag": "blue"},
]


def test_all_fields():
    """Each field of a list's row comes from the entry that has it."""
    assert read(*FULL, file_size=9, project_key="-srv-app") == SessionInfo(
        session_id=ID,
        summary="My title",
        last_modified=5,
        file_size=9,
        custom_title="My title",
        first_prompt="Fix it",
        git_branch="next",
        cwd="/srv/app",
        tag="blue",
        created_at=1767323045678,
        project_key="-srv-app",
    )


@pytest.mark.parametrize("cut", range(len(FULL) + 1))
def test_a_fold_can_go_on(cut):
    """Folding in two parts gives the same as folding at once, with JSON in between."""
    between = json.loads(json.dumps(summarize(None, FULL[:cut])))
    assert summarize(between, FULL[cut:]) == summarize(None, FULL)


def test_the_earlier_summary_is_left_alone():
    """A new object is made: a store may hold on to the old one."""
    before = summarize(None, FULL[:2])
    kept = copy.deepcopy(before)
    summarize(before, FULL[2:])
    assert before == kept


SHOWN = [
    ([user("p"), {"lastPrompt": "l"}, {"summary": "s"}, {"aiTitle": "a"}, {"customTitle": "c"}], "c"),
    ([user("p"), {"lastPrompt": "l"}, {"summary": "s"}, {"customTitle": "c"}, {"aiTitle": "a"}], "c"),
    ([user("p"), {"lastPrompt": "l"}, {"summary": "s"}, {"aiTitle": "a"}], "a"),
    ([user("p"), {"lastPrompt": "l"}, {"summary": "s"}], "l"),
    ([user("p"), {"summary": "s"}], "s"),
    ([user("p")], "p"),
    ([user("p"), {"customTitle": "c"}, {"customTitle": "d"}], "d"),
    ([user("p"), {"customTitle": "c"}, {"customTitle": ""}], "p"),
]


@pytest.mark.parametrize(("entries", "shown"), SHOWN)
def test_what_is_shown(entries, shown):
    """A given title, a made one, the latest prompt, an old summary, the first prompt: in this order."""
    assert read(*entries).summary == shown


def test_nothing_to_show():
    """A session of which nothing can be shown is not listed."""
    assert read({"type": "mode"}, {"type": "tag", "tag": "x"}) is None
    assert read() is None


def test_sidechains_are_not_listed():
    """The first entry says whether the transcript is a subagent's; later ones do not."""
    assert read(user("p", isSidechain=True), user("q")) is None
    assert read(user("p"), user("q", isSidechain=True)).summary == "p"


NO_PROMPTS = [
    user("note", isMeta=True),
    user("so far", isCompactSummary=True),
    user([{"type": "tool_result", "content": "x"}, {"type": "text", "text": "no"}]),
    user("<local-command-stdout>out</local-command-stdout>"),
    user("[Request interrupted by user for tool use]"),
    user("<ide_opened_file>a.py\n</ide_opened_file>"),
    user("<ide_selection>a\nb</ide_selection> "),
    user("<session-start-hook>"),
    user("  \n "),
    user([]),
    user(None),
    {"type": "user"},
    {"type": "user", "message": "text"},
    {"type": "assistant", "message": {"content": "an answer"}},
]


@pytest.mark.parametrize("entry", NO_PROMPTS)
def test_what_is_no_prompt(entry):
    """What no person wrote is passed over for the first prompt."""
    assert read(entry, user("real")).first_prompt == "real"


def test_text_after_a_note_is_a_prompt():
    """A note of the editor at the beginning of a text does not hide what was typed after it."""
    assert read(user("<ide_selection>a</ide_selection> explain")).first_prompt.endswith("explain")


def test_the_first_text_block_counts():
    """Of a prompt in blocks, the first text that is not empty."""
    blocks = [{"type": "image"}, 7, {"type": "text", "text": ""}, {"type": "text", "text": "look\nhere"}]
    assert read(user(blocks)).first_prompt == "look here"


def test_a_command_is_a_fallback():
    """A slash command is shown by its name while there is no other prompt."""
    command = user("<command-message>x</command-message>\n<command-name>/review</command-name>")
    other = user("<command-name>/compact</command-name>")
    assert read(command, other).first_prompt == "/review"
    assert read(command, user("go on")).first_prompt == "go on"


def test_long_prompts_are_cut():
    """At 200 characters, with an ellipsis."""
    assert read(user("a" * 200)).first_prompt == "a" * 200
    assert read(user("a" * 199 + " b")).first_prompt == "a" * 199 + "…"


def test_a_tag_can_be_taken_away():
    """By an empty tag, as the CLI writes it. A tag elsewhere is something else."""
    tag = {"type": "tag", "tag": "x"}
    assert read(user("p"), tag).tag == "x"
    assert read(user("p"), tag, {"type": "tag", "tag": ""}).tag is None
    assert read(user("p"), tag, {"type": "tag"}).tag is None
    assert read(user("p"), tag, {"type": "mode", "tag": "y"}).tag == "x"


TIMES = [
    ("2026-01-02T03:04:05Z", 1767323045000),
    ("2026-01-02T03:04:05.678+01:00", 1767319445678),
    ("2026-01-02T03:04:05", 1767323045000),
    ("0001-01-01T00:00:00Z", -62135596800000),
]


@pytest.mark.parametrize(("text", "time"), TIMES)
def test_times(text, time):
    """ISO times, with UTC where no zone is given."""
    assert read(user("p", timestamp=text)).created_at == time


@pytest.mark.parametrize("text", ["", "Z", "yesterday", "2026-13-01T00:00:00Z", 5, None, ["2026-01-02T03:04:05Z"]])
def test_the_first_good_time_counts(text):
    """What is no time is passed over."""
    assert read(user("p", timestamp=text), user("q", timestamp="2026-01-02T03:04:05Z")).created_at == 1767323045000


ODD = [None, True, 0, 1e400, "text", [], {}, [{}], {"type": []}, {"content": [[], {"type": {}}]}]
FIELDS = """
type isSidechain timestamp cwd customTitle aiTitle lastPrompt summary gitBranch tag message isMeta isCompactSummary
"""


@pytest.mark.parametrize("odd", ODD)
def test_any_json_is_survived(odd):
    """As an entry, as the value of each field, and as an earlier summary."""
    named = [{field: odd} for field in FIELDS.split()]
    users = [{"type": "user", **entry} for entry in named]
    found = summarize(summarize(odd, [odd]), [*named, *users, user("p")])
    assert session_info(found, ID, 5).first_prompt == "p"
    for name in found:
        session_info({**found, name: odd}, ID, 5)
    assert session_info(odd, ID, 5) is None


def test_a_summary_stays_small():
    """However large the texts of the entries are."""
    huge = "x" * 1_000_000
    found = summarize(None, [user(huge, cwd=huge, customTitle=huge, tag=huge), {"type": "tag", "tag": huge}])
    assert len(json.dumps(found)) < 50_000


def test_lone_surrogates_are_replaced():
    """What no terminal and no database could take."""
    assert read(user("a\ud83d"), {"customTitle": "\udc00b"}).summary == "\ufffdb"


def test_hostile_texts_take_linear_time():
    """A text of nothing but beginnings is looked at once."""
    assert read(user("<command-name>" * 300_000), user("p")).summary


def test_the_directory_that_was_asked_for():
    """Stands in where no entry names one."""
    assert read(user("p"), cwd="/asked").cwd == "/asked"
    assert read(user("p", cwd="/said"), cwd="/asked").cwd == "/said"


# --- from the ends of a file


def lines(entries):
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def made(seed):
    """Entries at random: what lists show, at the top and inside of others, in any order."""
    dice = random.Random(seed)
    names = ["customTitle", "aiTitle", "lastPrompt", "summary", "gitBranch", "tag"]
    entries = []
    for number in range(dice.randint(0, 40)):
        fields = {name: dice.choice([f"{name} {number}", "", 7, {name: "inner"}]) for name in dice.sample(names, 2)}
        kind = dice.choice(["user", "assistant", "tag", "custom-title", "api-request"])
        entry = {"type": kind, "message": {"content": dice.choice(["prompt", [fields], ""])}, **fields}
        if dice.random() < 0.5:
            entry |= {"cwd": f"/{number}", "timestamp": f"2026-01-01T00:00:{number:02}Z"}
        entries.append(entry)
    return entries


@pytest.mark.parametrize("seed", range(100))
def test_the_ends_give_what_all_lines_give(seed):
    """Leaving out lines changes nothing, for one part and for two, with damaged lines in between."""
    entries = made(seed)
    damaged = lines(entries).replace(b"\n", b'\n{"customTitle": "x\n', 3)
    for data in (lines(entries), damaged):
        whole = summarize(None, filter(None, map(entry_of, data.split(b"\n"))))
        assert summary_of([data]) == whole
        half = data.find(b"\n", len(data) // 2) + 1
        assert summary_of([data[:half], data[half:]]) == whole


def test_what_no_list_shows_is_not_parsed(monkeypatch):
    """Once the beginning is known, only lines with the names of fields are."""
    parsed = []
    monkeypatch.setattr(_ends, "entry_of", lambda line: parsed.append(line) or entry_of(line))
    begin = user("p", cwd="/x", timestamp="2026-01-02T03:04:05Z")
    summary_of([lines([begin, *[user("q")] * 1000, {"type": "tag", "tag": "t"}])])
    assert len(parsed) == 2


def test_hostile_ends_take_linear_time(monkeypatch):
    """A line is parsed once for each field, however often it holds the field's name."""
    parsed = []
    monkeypatch.setattr(_ends, "entry_of", lambda line: parsed.append(line) or entry_of(line))
    begin = user("p", cwd="/x", timestamp="2026-01-02T03:04:05Z")
    summary_of([lines([begin]) + b'{"tag":{"tag":"tag"}}' * 1000 + b"\n"])
    assert len(parsed) == 2
