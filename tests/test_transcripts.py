"""Sessions on disk and in a store: listed, read, changed. The same tests for both where both can do it.

The transcripts in `data/sessions` were written by the real CLI: one with parallel calls, a subagent, a
title and a tag, resumed twice; one with a title and a compaction.
"""

import json
import os
import shutil
import stat
import subprocess
import unicodedata
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

import claude_cli_client as client
from claude_cli_client import (
    SessionKey,
    SessionMessage,
    SessionNotFoundError,
    SessionStore,
    StoreError,
    _on_disk,
    _project_folders,
    _store_calls,
    _transcript_file,
)
from claude_cli_client._project_key import project_key
from claude_cli_client._summary import summarize
from claude_cli_client.store import ListingStore

DATA = Path(__file__).parent / "data" / "sessions" / "-home-user-project"
PARALLEL = "22a9c654-efbc-4159-8b73-9dc3799beefe"
COMPACTED = "93ab0616-aa41-4910-b503-7f117ee990b3"
AGENT = "a750662346671e40c"
MISSING = "00000000-0000-4000-8000-000000000000"
FUNCTIONS = {
    client.get_session: (),
    client.get_messages: (),
    client.list_subagents: (),
    client.get_subagent_messages: ("agent",),
    client.rename_session: ("title",),
    client.tag_session: ("tag",),
    client.fork_session: (),
    client.delete_session: (),
}


def new_id():
    return str(uuid.uuid4())


def said(text, kind="user", parent=None, **fields):
    message = {"role": kind, "content": text}
    return {"type": kind, "uuid": new_id(), "parentUuid": parent, "message": message, **fields}


def as_lines(entries):
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def lines_of(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


class Disk:
    """A configuration folder, and a directory whose sessions are in it."""

    def __init__(self, root):
        self.config = root / "config"
        self.directory = root / "project"
        self.directory.mkdir()
        self.where = {"config_dir": self.config}

    def project(self, directory=None):
        path = self.config / "projects" / project_key(os.path.realpath(directory or self.directory))
        path.mkdir(parents=True, exist_ok=True)
        return path

    def file(self, session_id, directory=None):
        return self.project(directory) / f"{session_id}.jsonl"

    def put(self, *entries, session_id=None, directory=None, time=None, raw=None):
        """Write a transcript. `time`: of its last change, in seconds."""
        session_id = session_id or new_id()
        path = self.file(session_id, directory)
        path.write_bytes(raw if raw is not None else as_lines(entries))
        if time is not None:
            os.utime(path, ns=(0, time * 10**9))
        return session_id

    def captured(self):
        shutil.copytree(DATA, self.project(), dirs_exist_ok=True)

    def entries(self, session_id):
        return lines_of(self.file(session_id))


class DictStore:
    """A store in a dict, with every optional method."""

    def __init__(self):
        self.rows = {}
        self.times = {}
        self.calls = []

    def append(self, key, entries):
        self.calls.append(("append", key, len(entries)))
        self.rows.setdefault(key, []).extend(dict(entry) for entry in entries)
        self.times[key] = max(self.times.values(), default=0) + 1

    def load(self, key):
        self.calls.append(("load", key))
        return list(self.rows[key]) if key in self.rows else None

    def _main(self, project):
        self.calls.append(("list", project))
        return [key for key in self.rows if key.subpath is None and project in (None, key.project_key)]

    def list_sessions(self, project):
        return [self._row(key) for key in self._main(project)]

    def list_summaries(self, project):
        return [{**self._row(key), "summary": summarize(None, self.rows[key])} for key in self._main(project)]

    def _row(self, key):
        return {"session_id": key.session_id, "mtime": self.times[key], "project_key": key.project_key}

    def list_subkeys(self, project, session_id):
        return [key.subpath for key in self.rows if key[:2] == (project, session_id) and key.subpath]

    def delete(self, key):
        for other in list(self.rows):
            if other == key or (key.subpath is None and other[:2] == key[:2]):
                del self.rows[other]


class Stored:
    """The same interface as `Disk`."""

    def __init__(self, root):
        self.store = DictStore()
        self.directory = root / "project"
        self.directory.mkdir()
        self.where = {"store": self.store}

    def key(self, session_id, directory=None, subpath=None):
        return SessionKey(project_key(os.path.realpath(directory or self.directory)), session_id, subpath)

    def put(self, *entries, session_id=None, directory=None, time=None):
        session_id = session_id or new_id()
        key = self.key(session_id, directory)
        self.store.append(key, entries)
        if time is not None:
            self.store.times[key] = time * 1000
        return session_id

    def captured(self):
        for path in sorted(DATA.glob("*.jsonl")):
            self.store.append(self.key(path.stem), lines_of(path))
        (agent,) = DATA.rglob("agent-*.jsonl")
        metadata = json.loads(agent.with_suffix(".meta.json").read_text())
        entries = [{"type": "agent_metadata", **metadata}, *lines_of(agent)]
        self.store.append(self.key(PARALLEL, subpath=f"subagents/{agent.stem}"), entries)

    def entries(self, session_id):
        return self.store.rows[self.key(session_id)]


@pytest.fixture
def disk(tmp_path, monkeypatch):
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    # No repository that may lie around the temporary directory is asked.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return Disk(tmp_path)


@pytest.fixture
def stored(tmp_path):
    return Stored(tmp_path)


@pytest.fixture(params=["disk", "store"])
def place(request):
    return request.getfixturevalue("disk" if request.param == "disk" else "stored")


def ids(place, directory=None, **options):
    return [info.session_id for info in client.list_sessions(directory, **place.where, **options)]


def messages(place, session_id, directory=None, **options):
    return client.get_messages(session_id, directory, **place.where, **options)


# --- lists


def test_what_the_cli_wrote_is_listed(place):
    """The two recorded sessions, with all that a list shows."""
    place.captured()
    found = {info.session_id: info for info in client.list_sessions(place.directory, **place.where)}
    info = found[PARALLEL]
    assert (info.summary, info.custom_title, info.tag) == ("My renamed", "My renamed", "experim")
    assert info.first_prompt.startswith("[[tool: Bash")
    assert (info.cwd, info.git_branch, info.created_at) == ("/home/user/project", "HEAD", 1796036601619)
    assert info.project_key == project_key(os.path.realpath(place.directory))
    assert found[COMPACTED].summary == "Renamed"
    assert len(found) == 2


def test_one_session(place):
    """`get_session` gives the row of the list; None for what is not there or not listed."""
    place.captured()
    for info in client.list_sessions(**place.where):
        assert client.get_session(info.session_id, **place.where) == info
        assert client.get_session(info.session_id, place.directory, **place.where).summary == info.summary
    aside = place.put(said("p", isSidechain=True))
    assert client.get_session(aside, **place.where) is None
    assert client.get_session(MISSING, **place.where) is None
    assert client.get_session(MISSING, place.directory, **place.where) is None


def test_newest_first_and_pages(place):
    """By the time of the last change; offset and limit count what is shown."""
    made = [place.put(said(f"p{n}"), time=100 + n) for n in range(6)]
    place.put({"type": "mode"}, time=104)  # nothing to show: takes no place on a page
    newest = made[::-1]
    assert ids(place) == ids(place, place.directory) == newest
    assert ids(place, limit=2) == newest[:2]
    assert ids(place, limit=2, offset=3) == newest[3:5]
    assert ids(place, offset=4) == newest[4:]
    assert ids(place, limit=0) == ids(place, offset=6) == ids(place, offset=10**30) == []


def test_of_one_directory_or_of_all(place, tmp_path):
    """A directory's sessions are its own; without one, those of all projects."""
    other = tmp_path / "other"
    mine, yours = place.put(said("p"), time=2), place.put(said("p"), time=1, directory=other)
    assert ids(place, place.directory) == [mine]
    assert ids(place, other) == [yours]
    assert ids(place, tmp_path / "third") == []
    assert ids(place) == [mine, yours]
    assert client.get_session(yours, place.directory, **place.where) is None
    assert [message.text for message in messages(place, yours)] == ["p"]


NAMES = ["plain", "a.b_c", "with blanks ", "caf\u00e9", "cafe\u0301", "\U0001f680\U0001f680", "-x" * 120]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_directories(place, tmp_path, name):
    """Every name leads to its own sessions, whatever the name's characters and length."""
    directory = tmp_path / name
    directory.mkdir()
    session_id = place.put(said("p"), directory=directory)
    for spelled in (directory, str(directory), f"{directory}/", os.path.relpath(directory)):
        assert ids(place, spelled) == [session_id]
    assert client.get_session(session_id, directory, **place.where).session_id == session_id


def test_a_link_to_the_directory(place, tmp_path):
    """It is the directory that it leads to, as for the CLI."""
    link = tmp_path / "link"
    link.symlink_to(place.directory)
    session_id = place.put(said("p"))
    assert ids(place, link) == [session_id]
    assert messages(place, session_id, link)


def test_the_normalised_name_is_the_second_try(place, tmp_path):
    """A decomposed path finds what was written under its composed name, if there is nothing of its own."""
    decomposed, composed = tmp_path / "e\u0301", tmp_path / "\u00e9"
    decomposed.mkdir()
    session_id = place.put(said("p"), directory=composed)
    assert ids(place, decomposed) == [session_id]
    own = place.put(said("p"), directory=decomposed)
    assert ids(place, decomposed) == [own]


def test_of_an_id_in_two_projects_the_newer_one_counts(disk, tmp_path):
    """A copied transcript is listed once, and read where it was continued."""
    session_id = disk.put(said("old"), time=1)
    disk.put(said("new"), session_id=session_id, directory=tmp_path / "other", time=2)
    assert [info.summary for info in client.list_sessions(**disk.where)] == ["new"]
    assert client.get_session(session_id, **disk.where).summary == "new"
    assert [message.text for message in messages(disk, session_id)] == ["new"]


def test_of_an_id_in_two_projects_one_that_can_be_shown(place, tmp_path):
    """The newer one has nothing to show: a list and `get_session` tell of the other."""
    session_id = place.put(said("old"), time=1)
    place.put({"type": "mode"}, session_id=session_id, directory=tmp_path / "other", time=3)
    assert [info.summary for info in client.list_sessions(**place.where)] == ["old"]
    assert client.get_session(session_id, **place.where).summary == "old"


# --- lists: on disk


def test_the_configuration_folder(disk, monkeypatch):
    """An argument, else CLAUDE_CONFIG_DIR if it is not empty, else ~/.claude."""
    session_id = disk.put(said("p"))
    assert client.list_sessions() == []
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(disk.config))
    assert [info.session_id for info in client.list_sessions()] == [session_id]
    assert client.list_sessions(config_dir=disk.config / "other") == []
    home = disk.config.parent / "nobody"
    (home / ".claude").mkdir(parents=True)
    shutil.copytree(disk.config / "projects", home / ".claude" / "projects")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "")
    assert [info.session_id for info in client.list_sessions()] == [session_id]


def test_a_decomposed_configuration_folder(disk):
    """The CLI composes its name; what lies in a folder of the name as it was told is found, too."""
    disk.put(said("p"))
    decomposed, composed = disk.config.with_name("e\u0301"), disk.config.with_name("\u00e9")
    for folder in (decomposed, composed):
        disk.config.rename(folder)
        assert len(client.list_sessions(config_dir=decomposed)) == 1
        disk.config = folder


def test_a_decomposed_configuration_folder_beside_a_composed_one(disk):
    """The CLI writes into the composed one."""
    decomposed, composed = disk.config.with_name("e\u0301"), disk.config.with_name("\u00e9")
    (decomposed / "projects").mkdir(parents=True)
    composed.mkdir(exist_ok=True)  # on some disks both are one
    assert _project_folders.config_folder(str(decomposed)) == str(composed)


def test_a_cut_name_with_another_hash(disk, tmp_path):
    """Other builds of the CLI hash otherwise. Found by its beginning, such a folder is looked at closely."""
    long = tmp_path / ("x" * 200)
    ours, theirs = long / "ours", long / "theirs"
    mine = disk.put(said("p", cwd=str(ours)), directory=ours)
    yours = disk.put(said("p", cwd=str(theirs)), directory=theirs)
    for directory in (ours, theirs):
        folder = disk.project(directory)
        folder.rename(folder.with_name(folder.name[:201] + "0" + directory.name))
    assert ids(disk, ours) == [mine]
    assert ids(disk, theirs) == [yours]
    assert [message.text for message in messages(disk, mine, ours)] == ["p"]


@pytest.fixture
def foreign(disk, tmp_path):
    """A directory, and another's session in the folder that is found for it by its beginning."""
    ours, theirs = (tmp_path / ("x" * 200) / name for name in ("ours", "theirs"))
    session_id = disk.put(said("p", cwd=str(theirs)), directory=theirs)
    folder = disk.project(theirs)
    folder.rename(folder.with_name(folder.name[:201] + "0other"))
    return ours, session_id


@pytest.mark.parametrize("function", [function for function in FUNCTIONS if function is not client.get_session])
def test_a_session_of_another_directory(disk, foreign, function):
    """What a list of the directory does not show is not there for any other call, and stays."""
    ours, session_id = foreign
    assert ids(disk, ours) == []
    assert client.get_session(session_id, ours, **disk.where) is None
    with pytest.raises(SessionNotFoundError):
        function(session_id, *FUNCTIONS[function], ours, **disk.where)
    assert ids(disk) == [session_id]


def test_delete_can_be_repeated_in_a_folder_found_by_its_beginning(disk, foreign):
    """Also there: the transcript that told whose the session was is gone by then."""
    theirs, session_id = foreign[0].with_name("theirs"), foreign[1]
    (folder,) = (disk.config / "projects").iterdir()
    (folder / session_id).mkdir()
    client.delete_session(session_id, theirs, **disk.where)
    (folder / session_id).mkdir()
    client.delete_session(session_id, theirs, **disk.where)
    assert list(folder.iterdir()) == []


def test_a_working_directory_with_a_nul(disk, foreign):
    """Is none: it costs neither the list nor the session, and the next entry that names one counts."""
    theirs = foreign[0].with_name("theirs")
    (folder,) = (disk.config / "projects").iterdir()
    session_id = new_id()
    entries = [said("p", cwd=f"{theirs}\0"), said("q", cwd=str(theirs))]
    (folder / f"{session_id}.jsonl").write_bytes(as_lines(entries))
    assert {info.cwd for info in client.list_sessions(theirs, **disk.where)} == {str(theirs)}
    assert client.get_session(session_id, theirs, **disk.where).cwd == str(theirs)
    assert client.get_session(session_id, foreign[0], **disk.where) is None


def test_a_working_directory_that_cannot_be_encoded(disk, foreign, monkeypatch):
    """By this process's locale: then it is not the directory that was asked for, which could be."""
    ours, _ = foreign
    (folder,) = (disk.config / "projects").iterdir()

    def refuse(path):
        raise UnicodeEncodeError("latin-1", path, 0, 1, "ordinal not in range(256)")

    monkeypatch.setattr(_project_folders, "forms_of", refuse)
    assert not _project_folders.is_of(_project_folders.Folder(str(folder), str(ours), sure=False), "/\u2192")


def test_a_session_is_what_the_list_says_of_it():
    """Also over a store that lists sessions without summaries, with and without the directory."""
    store = client.MemoryStore()
    without = SimpleNamespace(append=store.append, load=store.load, list_sessions=store.list_sessions)
    key = SessionKey(project_key("/srv/app"), MISSING)
    store.append(key, [{**said("p"), "sessionId": MISSING, "cwd": "/srv/app", "timestamp": "2020-01-01T00:00:00Z"}])
    (listed,) = client.list_sessions("/srv/app", store=without)
    assert client.get_session(MISSING, "/srv/app", store=without) == listed
    assert client.get_session(MISSING, store=without).last_modified == listed.last_modified


def test_what_is_no_transcript(disk):
    """Folders, pipes, empty files, links in a circle, and names that are no UUID are passed over."""
    project = disk.project()
    good = disk.put(said("p"))
    disk.put(raw=b"")
    (project / f"{new_id()}.jsonl").mkdir()
    os.mkfifo(project / f"{new_id()}.jsonl")
    circle = project / f"{new_id()}.jsonl"
    circle.symlink_to(circle)
    (project / f"{new_id()}.jsonl").symlink_to(project / "nothing")
    (project / "memory").mkdir()
    for name in ("notes.jsonl", f"{new_id()}.json", f"x{new_id()}.jsonl", f"{new_id()}.jsonl.tmp"):
        (project / name).write_bytes(as_lines([said("p")]))
    (disk.config / "projects" / "file").write_text("")
    (disk.config / "projects" / "circle").symlink_to("circle")
    assert ids(disk) == ids(disk, disk.directory) == [good]


def test_damaged_lines_cost_themselves(disk):
    """Half lines, NULs, bad bytes, other JSON, numbers and depths that no parser takes."""
    good = as_lines([said("first"), {"type": "custom-title", "customTitle": "t\u00e9"}])
    bad = [
        b"{",
        b"\0" * 100,
        b"\xff\xfe{}",
        b"null",
        b"[1]",
        b'"text"',
        b"{}",
        b"",
        b'{"customTitle": ' + b"[" * 20_000,
        b'{"customTitle": ' + b"9" * 5000 + b"}",
        b'{"type":"user","message":{"content":"half',
    ]
    session_id = disk.put(raw=b"\n".join([*bad, good, *bad]))
    assert client.get_session(session_id, **disk.where).summary == "t\u00e9"
    assert [message.text for message in messages(disk, session_id)] == ["first"]


def test_bad_bytes_are_replaced(disk):
    """A line with bytes that are no UTF-8 is read all the same."""
    session_id = disk.put(raw=as_lines([said("XX")]).replace(b"XX", b"a\xffb"))
    assert client.get_session(session_id, **disk.where).summary == "a\ufffdb"
    assert [message.text for message in messages(disk, session_id)] == ["a\ufffdb"]


def test_files_that_cannot_be_read(disk, monkeypatch):
    """Each costs its row, or says so where it was asked for."""
    good, bad = disk.put(said("p")), disk.put(said("p"))
    opened = _transcript_file.opened

    def refuse(path, flags=os.O_RDONLY):
        if bad in path:
            raise PermissionError(13, "Permission denied", path)
        return opened(path, flags)

    monkeypatch.setattr(_transcript_file, "opened", refuse)
    assert ids(disk) == [good]
    with pytest.raises(PermissionError, match=bad):
        messages(disk, bad)
    with pytest.raises(PermissionError, match=bad):
        client.rename_session(bad, "t", **disk.where)


def test_files_that_vanish(disk, monkeypatch):
    """Between the look at the folder and the reading: the row is left out."""
    good, gone = disk.put(said("p"), time=1), disk.put(said("p"), time=2)
    ends_of = _transcript_file.ends_of

    def vanish(path):
        if gone in path:
            os.unlink(path)
        return ends_of(path)

    monkeypatch.setattr(_transcript_file, "ends_of", vanish)
    assert ids(disk) == [good]


def test_folders_that_cannot_be_read(disk, tmp_path, monkeypatch):
    """One of many is left out; the one that was asked for, or all, is an error and not an empty list."""
    mine = disk.put(said("p"))
    disk.put(said("p"), directory=tmp_path / "other")
    closed = disk.project(tmp_path / "other")
    scandir = os.scandir

    def refuse(path):
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert ids(disk) == [mine]
    with pytest.raises(PermissionError):
        ids(disk, tmp_path / "other")
    closed = disk.config / "projects"
    with pytest.raises(PermissionError):
        ids(disk)


def test_only_the_ends_are_read(disk, monkeypatch):
    """Of a large file 64 KiB at each end, and of many files only as many as are asked for."""
    middle = [said("x" * 1000) for _ in range(1000)]
    disk.put(said("first"), *middle, {"type": "tag", "tag": "late"}, time=5)
    for _ in range(20):
        disk.put(said("p"), time=1)
    sizes = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: sizes.append(size) or pread(fd, size, offset))
    (info,) = client.list_sessions(limit=1, **disk.where)
    assert (info.first_prompt, info.tag) == ("first", "late")
    assert sum(sizes) <= 2 * 65536


@pytest.mark.parametrize("size", [65535, 65536, 65537, 131071, 131072, 131073, 200_000])
def test_lines_at_the_ends(disk, size):
    """The first and the last lines are read whole, wherever the cut falls between them."""
    first, last = as_lines([said("first")]), as_lines([{"type": "tag", "tag": "t"}])
    filler = b'{"type":"x","pad":"' + b"p" * (size - len(first) - len(last) - 22) + b'"}\n'
    session_id = disk.put(raw=first + filler + last)
    info = client.get_session(session_id, **disk.where)
    assert (info.first_prompt, info.tag) == ("first", "t")


def test_a_cut_line_is_no_line(disk):
    """What stands inside of a line that the cut goes through is not taken for a line."""
    inner = {"type": "user", "message": {"content": [{"type": "tag", "customTitle": "no", "tag": "no"}]}}
    inside = b'"customTitle":"no","tag":"no"}' + as_lines([inner])
    for shift in range(200):
        raw = as_lines([said("first")]) + b" " * 70_000 + inside + b" " * (65536 - len(inside) - 1 + shift) + b"\n"
        assert client.get_session(disk.put(raw=raw), **disk.where).custom_title is None


def test_huge_lines(disk, monkeypatch):
    """A line that is longer than the limit costs itself alone, and later places are right."""
    monkeypatch.setattr(_transcript_file, "_MAX_LINE", 10_000)
    first, second = said("one"), said("three")
    second["parentUuid"] = first["uuid"]
    session_id = disk.put(first, said("x" * 3_000_000), second)
    assert [message.text for message in messages(disk, session_id)] == ["one", "three"]


# --- git's worktrees


def git(*words, cwd):
    names = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *names, *words], cwd=cwd, check=True, capture_output=True, timeout=60)


@pytest.fixture
def repository(disk, monkeypatch):
    """Two worktrees: `disk.directory`, and what is returned."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    git("init", "-q", cwd=disk.directory)
    git("commit", "-q", "--allow-empty", "-m", "m", cwd=disk.directory)
    other = disk.directory.parent / "tree e\u0301"
    git("worktree", "add", "-q", "-b", "other", str(other), cwd=disk.directory)
    return other


def test_worktrees_are_listed_together(disk, repository):
    """The sessions of all worktrees, from each of them; only the directory's own if that is wanted."""
    mine, yours = disk.put(said("p"), time=2), disk.put(said("p"), directory=repository, time=1)
    assert ids(disk, disk.directory) == ids(disk, repository) == [mine, yours]
    assert ids(disk, repository, include_worktrees=False) == [yours]
    below = disk.directory / "below"
    below.mkdir()
    assert ids(disk, below) == [mine, yours]


def test_a_session_of_another_worktree_is_found(disk, repository):
    """Reading and changing look there too."""
    session_id = disk.put(said("p"), directory=repository)
    assert messages(disk, session_id, disk.directory)
    client.rename_session(session_id, "t", disk.directory, **disk.where)
    assert client.get_session(session_id, disk.directory, **disk.where).summary == "t"


def test_a_hook_of_git_asks_about_our_repository(disk, repository, monkeypatch):
    """Inside of a hook GIT_DIR names another one, which would be listed instead."""
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    session_id = disk.put(said("p"), directory=repository)
    assert ids(disk, disk.directory) == [session_id]


def test_without_git(disk, repository, monkeypatch):
    """Only the directory itself."""
    mine = disk.put(said("p"))
    disk.put(said("p"), directory=repository)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert ids(disk, disk.directory) == [mine]


def test_git_that_hangs(disk, monkeypatch):
    """Is ended after a while; only the directory itself then."""
    tools = disk.directory / "tools"
    tools.mkdir()
    (tools / "git").write_text("#!/bin/sh\nexec sleep 600\n")
    (tools / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(_project_folders, "_GIT_TIMEOUT", 0.2)
    mine = disk.put(said("p"))
    assert ids(disk, disk.directory) == [mine]


# --- messages


def test_parallel_calls_are_whole(place):
    """All calls of an answer and all their results, and both resumes."""
    place.captured()
    found = messages(place, PARALLEL)
    assert [message.uuid[:8] for message in found] == [
        *("e0bab10f", "51792483", "1e481d38", "c75284c2", "787b6c58", "b46c7621", "16493a9f"),
        *("bd35b87f", "21907fb1", "d20ef5dc", "a9e6c982", "517699aa", "5cd5033f", "d1c40dd2"),
    ]
    assert {message.session_id for message in found} == {PARALLEL}
    assert found[5].message["content"] == [{"type": "text", "text": "one"}]
    assert found[5].timestamp
    assert found == messages(place, PARALLEL, place.directory)


def test_after_a_compaction(place):
    """The summary, what was kept, then what followed."""
    place.captured()
    found = messages(place, COMPACTED)
    assert [message.uuid[:8] for message in found] == [
        *("78a6caae", "557a1666", "13c9c967", "5ad3d2dc", "bdfd23e9", "d9b33db4"),
    ]
    assert found[0].data["isCompactSummary"] is True


def test_pages_of_messages(place):
    """Offset, then limit."""
    place.captured()
    found = messages(place, PARALLEL)
    assert messages(place, PARALLEL, limit=3) == found[:3]
    assert messages(place, PARALLEL, limit=3, offset=5) == found[5:8]
    assert messages(place, PARALLEL, offset=12) == found[12:]
    assert messages(place, PARALLEL, limit=0) == messages(place, PARALLEL, offset=99) == []


def test_a_transcript_that_grows_while_it_is_read(disk, monkeypatch):
    """What comes in between is left for the next time."""
    session_id = disk.put(said("p"))
    scan = _transcript_file.TranscriptFile.scan

    def grow(self):
        yield from scan(self)
        with open(self.path, "ab") as file:
            file.write(as_lines([said("late")]))

    monkeypatch.setattr(_transcript_file.TranscriptFile, "scan", grow)
    assert [message.text for message in messages(disk, session_id)] == ["p"]


def test_subagents(place):
    """Their ids, and their messages with the call that started them."""
    place.captured()
    assert client.list_subagents(PARALLEL, **place.where) == [AGENT]
    assert client.list_subagents(COMPACTED, place.directory, **place.where) == []
    found = client.get_subagent_messages(PARALLEL, AGENT, **place.where)
    assert [message.text for message in found] == ["do it [[text: sub says hi]]", "sub says hi"]
    assert {message.parent_tool_use_id for message in found} == {"toolu_241920f279c54488a890"}
    assert {message.parent_agent_id for message in found} == {None}
    assert client.get_subagent_messages(PARALLEL, AGENT, limit=1, offset=1, **place.where) == found[1:]
    with pytest.raises(SessionNotFoundError, match="no subagent 'nobody'") as caught:
        client.get_subagent_messages(PARALLEL, "nobody", **place.where)
    assert caught.value.wanted == "nobody"


def test_subagents_in_deeper_folders(disk, tmp_path):
    """Workflows have folders of their own. Links and files that only look alike are passed over."""
    session_id = disk.put(said("p"))
    folder = disk.file(session_id).with_suffix("") / "subagents"
    run = folder / "workflows" / "r1"
    run.mkdir(parents=True)
    for path in (folder / "agent-z.jsonl", run / "agent-a.jsonl", run / "agent-z.jsonl", tmp_path / "agent-out.jsonl"):
        path.write_bytes(as_lines([said(str(path))]))
    (folder / "agent-link.jsonl").symlink_to(tmp_path / "agent-out.jsonl")
    (folder / "loop").symlink_to(folder)
    (folder / "agent-d.jsonl").mkdir()
    (folder / "notes.jsonl").write_text("")
    assert client.list_subagents(session_id, **disk.where) == ["z", "a"]
    (message,) = client.get_subagent_messages(session_id, "a", **disk.where)
    assert message.text == str(run / "agent-a.jsonl")


@pytest.mark.parametrize("metadata", [None, b"", b"{", b"[]", b'{"toolUseId": 7}'])
def test_unusable_metadata_of_a_subagent(disk, metadata):
    """Costs the two ids that stand in it."""
    disk.captured()
    (path,) = disk.project().rglob("*.meta.json")
    path.unlink()
    if metadata is not None:
        path.write_bytes(metadata)
    found = client.get_subagent_messages(PARALLEL, AGENT, **disk.where)
    assert [message.parent_tool_use_id for message in found] == [None, None]


# --- changes


def test_rename(place):
    """The title is stripped, listed, and the last one counts."""
    session_id = place.put(said("p"))
    client.rename_session(session_id, " one ", **place.where)
    client.rename_session(session_id, "zw\u00f6lf \U0001f680\n", place.directory, **place.where)
    assert client.get_session(session_id, **place.where).custom_title == "zw\u00f6lf \U0001f680"
    written = {"type": "custom-title", "customTitle": "one", "sessionId": session_id}
    assert place.entries(session_id)[1] == written


def test_tag_and_no_tag(place):
    """What nobody sees is left out of a tag; None takes it away."""
    session_id = place.put(said("p"))
    client.tag_session(session_id, " \u200bb\u2060lue \ufb01\ue000", **place.where)
    assert client.get_session(session_id, **place.where).tag == "blue fi"
    client.tag_session(session_id, None, **place.where)
    assert client.get_session(session_id, **place.where).tag is None
    assert place.entries(session_id)[-1] == {"type": "tag", "tag": "", "sessionId": session_id}


@pytest.mark.parametrize("bad", ["", " \n", 7, None, b"x", "x" * 5000])
def test_bad_titles_and_tags(place, bad):
    """A ValueError, and nothing is written."""
    session_id = place.put(said("p"))
    with pytest.raises(ValueError, match="title"):
        client.rename_session(session_id, bad, **place.where)
    if bad is not None:
        with pytest.raises(ValueError, match="tag"):
            client.tag_session(session_id, bad, **place.where)
    with pytest.raises(ValueError, match="tag is empty or blank; None takes"):
        client.tag_session(session_id, "\u200b\u200b", **place.where)
    assert len(place.entries(session_id)) == 1


def test_lone_surrogates_in_a_title(place):
    """Are replaced: no file and no terminal takes them."""
    session_id = place.put(said("p"))
    client.rename_session(session_id, "a\ud83d", **place.where)
    assert client.get_session(session_id, **place.where).summary == "a\ufffd"


@pytest.mark.parametrize("end", [b'{"type":"user","mess', b"\0\0\0", b'{"type":"mode"}'])
def test_a_cut_last_line_swallows_nothing(disk, end):
    """A title begins on a line of its own."""
    session_id = disk.put(raw=as_lines([said("p")]) + end)
    client.rename_session(session_id, "t", **disk.where)
    client.tag_session(session_id, "x", **disk.where)
    assert client.get_session(session_id, **disk.where).summary == "t"
    assert disk.file(session_id).read_bytes().count(b"\n") == 4


OF_ONE = {
    "get_messages": client.get_messages,
    "rename_session": lambda session_id, **where: client.rename_session(session_id, "t", **where),
    "tag_session": lambda session_id, **where: client.tag_session(session_id, "t", **where),
    "fork_session": client.fork_session,
}


@pytest.mark.parametrize("name", OF_ONE)
def test_a_session_that_vanishes(disk, monkeypatch, name):
    """Just before it is opened: it is not there, and stays away."""
    session_id = disk.put(said("p"))
    path = disk.file(session_id)
    opened = _transcript_file.opened

    def vanish(name, *flags):
        path.unlink(missing_ok=True)
        return opened(name, *flags)

    monkeypatch.setattr(_transcript_file, "opened", vanish)
    with pytest.raises(SessionNotFoundError, match=session_id):
        OF_ONE[name](session_id, **disk.where)
    assert not path.exists()


def test_a_project_that_vanishes(disk, monkeypatch, tmp_path):
    """Between the look for its folder and the one into it: it has no sessions."""
    disk.put(said("p"), directory=tmp_path)
    found = _on_disk.folders_of

    def vanish(*args):
        folders = found(*args)
        for folder in folders:
            shutil.rmtree(folder.path)
        return folders

    monkeypatch.setattr(_on_disk, "folders_of", vanish)
    assert client.list_sessions(tmp_path, include_worktrees=False, **disk.where) == []


def test_a_title_is_not_written_through_a_link(disk, tmp_path):
    """A link in a transcript's place can be read, but another file is not changed by it."""
    target = tmp_path / "target"
    target.write_bytes(as_lines([said("p")]))
    before = target.read_bytes()
    session_id = new_id()
    disk.file(session_id).symlink_to(target)
    assert client.get_session(session_id, **disk.where).summary == "p"
    with pytest.raises(OSError, match=session_id):
        client.rename_session(session_id, "t", **disk.where)
    assert target.read_bytes() == before


def test_a_full_disk_is_told(disk, monkeypatch):
    """Half a line is not taken for success."""
    session_id = disk.put(said("p"))
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
    with pytest.raises(OSError, match="only a part"):
        client.rename_session(session_id, "t", **disk.where)


# --- copies


def test_turns_at_the_same_time(place):
    """Shown is the branch of the turn that ended last, of a copy too; until a message, the branch of that."""
    first, one, two = said("first"), said("one"), said("two")
    one["parentUuid"] = two["parentUuid"] = first["uuid"]
    notes = [{"type": "last-prompt", "leafUuid": entry["uuid"]} for entry in (two, one)]
    session_id = place.put(first, one, two, *notes)
    assert [message.text for message in messages(place, session_id)] == ["first", "one"]
    copy = client.fork_session(session_id, **place.where)
    assert [message.text for message in messages(place, copy)] == ["first", "one"]
    until = client.fork_session(session_id, up_to=two["uuid"], **place.where)
    assert [message.text for message in messages(place, until)] == ["first", "two"]


def test_a_copy_reads_the_same(place):
    """Same messages under new ids, a title that says what it is, the original unchanged."""
    place.captured()
    before = list(place.entries(PARALLEL))
    new = client.fork_session(PARALLEL, place.directory, **place.where)
    assert place.entries(PARALLEL) == before
    old_messages, new_messages = messages(place, PARALLEL), messages(place, new, place.directory)
    assert [message.message for message in new_messages] == [message.message for message in old_messages]
    assert not {message.uuid for message in new_messages} & {message.uuid for message in old_messages}
    assert {entry.get("sessionId") for entry in place.entries(new)} == {new}
    assert new_messages[0].data["forkedFrom"] == {"sessionId": PARALLEL, "messageUuid": old_messages[0].uuid}
    assert client.get_session(new, **place.where).custom_title == "My renamed (fork)"
    kinds = {entry["type"] for entry in place.entries(new)}
    assert kinds == {"user", "assistant", "attachment", "last-prompt", "custom-title"}


def test_a_copy_after_a_compaction_reads_the_same(place):
    """With what the compaction kept."""
    place.captured()
    new = client.fork_session(COMPACTED, place.directory, **place.where)
    old_messages, new_messages = messages(place, COMPACTED), messages(place, new)
    assert len(new_messages) == 6
    assert [message.message for message in new_messages] == [message.message for message in old_messages]


def test_a_copy_until_a_message(place):
    """That message is the last one; the title is the one that was given."""
    place.captured()
    last = messages(place, PARALLEL)[5]
    new = client.fork_session(PARALLEL, up_to=last.uuid, title=" Half ", **place.where)
    assert [message.message for message in messages(place, new)] == [
        message.message for message in messages(place, PARALLEL)[:6]
    ]
    assert client.get_session(new, **place.where).summary == "Half"


def test_the_title_of_a_copy(place):
    """From the title, else the first prompt, else a word; replaced tool results come along."""
    entries = [said("p"), {"type": "content-replacement", "sessionId": "", "replacements": [1]}]
    session_id = new_id()
    entries.append({"type": "content-replacement", "sessionId": session_id, "replacements": [2, 3]})
    new = client.fork_session(place.put(*entries, session_id=session_id), **place.where)
    assert client.get_session(new, **place.where).custom_title == "p (fork)"
    assert [entry["replacements"] for entry in place.entries(new) if "replacements" in entry] == [[2, 3]]
    new = client.fork_session(place.put(said([])), **place.where)
    assert client.get_session(new, **place.where).custom_title == "Forked session (fork)"


def test_what_cannot_be_copied(place):
    """An unknown message, and a session without messages: an error that says so, and no new session."""
    session_id = place.put(said("p"), {"type": "custom-title", "customTitle": "t"})
    with pytest.raises(SessionNotFoundError, match=f"no message {MISSING}") as caught:
        client.fork_session(session_id, up_to=MISSING, **place.where)
    assert caught.value.wanted == MISSING
    empty = place.put({"type": "custom-title", "customTitle": "t"}, said("s", isSidechain=True))
    with pytest.raises(SessionNotFoundError, match="could be copied"):
        client.fork_session(empty, **place.where)
    with pytest.raises(ValueError, match="up_to must be a UUID"):
        client.fork_session(session_id, up_to="last", **place.where)
    assert sorted(ids(place)) == sorted([session_id, empty])


def test_a_copy_is_private(disk):
    """Only we may read the file."""
    new = client.fork_session(disk.put(said("p")), **disk.where)
    assert stat.S_IMODE(disk.file(new).stat().st_mode) == 0o600


def test_a_copy_that_fails_leaves_nothing(disk, monkeypatch):
    """The new file is removed, whatever came in between."""
    session_id = disk.put(said("p"))

    def fail(entry):
        raise KeyboardInterrupt

    monkeypatch.setattr(_transcript_file, "line_of", fail)
    with pytest.raises(KeyboardInterrupt):
        client.fork_session(session_id, **disk.where)
    assert [path.stem for path in disk.project().iterdir()] == [session_id]


# --- removal


def test_delete(place):
    """The session is gone with its subagents, the other one is left."""
    place.captured()
    client.delete_session(PARALLEL, place.directory, **place.where)
    assert ids(place) == [COMPACTED]
    with pytest.raises(SessionNotFoundError):
        client.list_subagents(PARALLEL, **place.where)
    with pytest.raises(SessionNotFoundError):
        client.delete_session(PARALLEL, **place.where)


def test_delete_removes_what_is_beside(disk):
    """The folder of the session's name goes with the file, and an empty file goes too."""
    disk.captured()
    client.delete_session(PARALLEL, **disk.where)
    assert [path.name for path in disk.project().iterdir()] == [f"{COMPACTED}.jsonl"]
    empty = disk.put(raw=b"")
    client.delete_session(empty, **disk.where)
    assert not disk.file(empty).exists()


def test_delete_follows_no_link(disk, tmp_path):
    """Links in the place of the file, of its folder, or inside of it: they go, their targets stay."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(as_lines([said("p")]))
    linked, folder, inner = new_id(), disk.put(said("p")), disk.put(said("p"))
    disk.file(linked).symlink_to(outside / "kept")
    disk.file(folder).with_suffix("").symlink_to(outside)
    disk.file(inner).with_suffix("").mkdir()
    (disk.file(inner).with_suffix("") / "subagents").symlink_to(outside)
    for session_id in (linked, folder, inner):
        client.delete_session(session_id, **disk.where)
    assert list(disk.project().iterdir()) == []
    assert (outside / "kept").exists()


def test_delete_can_be_repeated(disk, monkeypatch):
    """If the folder could not be removed, the error says so, and the next call finishes it."""
    disk.captured()

    def refuse(path, **how):
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        with pytest.raises(PermissionError):
            client.delete_session(PARALLEL, **disk.where)
    client.delete_session(PARALLEL, **disk.where)
    assert not disk.file(PARALLEL).with_suffix("").exists()


def test_delete_removes_copies_in_other_projects(place, tmp_path):
    """Without a directory in every project; with one only there."""
    session_id, other = place.put(said("p")), tmp_path / "other"
    place.put(said("p"), session_id=session_id, directory=other)
    client.delete_session(session_id, other, **place.where)
    assert ids(place) == [session_id]
    place.put(said("p"), session_id=session_id, directory=other)
    client.delete_session(session_id, **place.where)
    assert ids(place) == []


def test_delete_where_nothing_may_be_seen(disk, monkeypatch):
    """A folder that may not be looked into is not one without the session."""
    session_id = disk.put(said("p"))

    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", refuse)
        patched.setattr(os.path, "realpath", str)
        with pytest.raises(PermissionError):
            client.delete_session(session_id, disk.directory, **disk.where)
    assert disk.file(session_id).exists()


# --- arguments


BAD_IDS = ["", "x", "../" + PARALLEL, PARALLEL + "/..", PARALLEL + "\n", "\0", PARALLEL.replace("-", ""), 7, None, b"x"]


@pytest.mark.parametrize("bad", BAD_IDS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_ids_that_are_no_uuid(place, function, bad):
    """A ValueError before anything is looked at: an id becomes part of a path."""
    with pytest.raises(ValueError, match="session_id must be a UUID"):
        function(bad, *FUNCTIONS[function], **place.where)


@pytest.mark.parametrize("function", [function for function in FUNCTIONS if function is not client.get_session])
def test_sessions_that_are_not_there(place, function):
    """One typed error that says where was looked, also with a directory."""
    for directory in (None, place.directory):
        with pytest.raises(SessionNotFoundError, match=MISSING) as caught:
            function(MISSING, *FUNCTIONS[function], directory, **place.where)
        assert caught.value.wanted == MISSING


@pytest.mark.parametrize("bad", ["", "../x", "a/b", "a\\b", "a\0b", "a\nb", "x" * 300, 7, None])
def test_bad_ids_of_subagents(place, bad):
    """A ValueError."""
    session_id = place.put(said("p"))
    with pytest.raises(ValueError, match="agent_id"):
        client.get_subagent_messages(session_id, bad, **place.where)


@pytest.mark.parametrize("page", [{"limit": -1}, {"offset": -1}, {"limit": 1.5}, {"offset": None}, {"limit": True}])
def test_bad_pages(place, page):
    """A ValueError that names the argument."""
    session_id = place.put(said("p"))
    for call in (lambda: ids(place, **page), lambda: messages(place, session_id, **page)):
        with pytest.raises(ValueError, match=next(iter(page))):
            call()


@pytest.mark.parametrize("bad", ["", "a\0b", 7, b"/x"])
def test_bad_directories(place, bad):
    """A ValueError that names the argument."""
    with pytest.raises(ValueError, match="directory"):
        ids(place, bad)
    with pytest.raises(ValueError, match="config_dir"):
        client.list_sessions(config_dir=bad)


def test_files_or_a_store():
    """Both together is a contradiction."""
    with pytest.raises(ValueError, match="give one of them"):
        client.list_sessions(config_dir="/x", store=DictStore())


def test_the_classes_are_public():
    """A message can be made and compared, for tests of users."""
    assert SessionMessage("user", "u", "s", {"content": "t"}).text == "t"


# --- stores that can less, or fail


class Least:
    """Only what every store must have."""

    def __init__(self, store):
        self.append, self.load = store.append, store.load


class Inheriting(ListingStore):
    """A store that inherits from the protocol and leaves out what is optional."""

    def __init__(self, store):
        self._store = store

    def append(self, key, entries):
        self._store.append(key, entries)

    def load(self, key):
        return self._store.load(key)


@pytest.mark.parametrize("make", [Least, Inheriting])
def test_the_least_store(stored, make):
    """With the directory, a session can be read and changed; what needs a list names what is missing."""
    stored.captured()
    where = {"store": make(stored.store)}
    directory = stored.directory
    assert client.get_session(PARALLEL, directory, **where).summary == "My renamed"
    assert client.get_session(PARALLEL, directory, **where).last_modified > 1796036601619
    assert len(client.get_messages(PARALLEL, directory, **where)) == 14
    assert len(client.get_subagent_messages(PARALLEL, AGENT, directory, **where)) == 2
    client.rename_session(PARALLEL, "new", directory, **where)
    new = client.fork_session(PARALLEL, directory, **where)
    assert client.get_session(new, directory, **where).summary == "new (fork)"
    for place in (directory, None):
        with pytest.raises(ValueError, match=r"no list_summaries\(\) or list_sessions\(\); give it one of them"):
            client.list_sessions(place, **where)
    with pytest.raises(ValueError, match="list_subkeys"):
        client.list_subagents(PARALLEL, directory, **where)
    with pytest.raises(ValueError, match="delete"):
        client.delete_session(PARALLEL, directory, **where)
    with pytest.raises(ValueError, match="give the session's directory"):
        client.get_messages(PARALLEL, **where)


def test_a_store_without_summaries(stored):
    """Its sessions are loaded, as many as are asked for."""
    made = [stored.put(said(f"p{n}"), time=n) for n in range(5)]
    stored.store.list_summaries = None
    stored.store.calls.clear()
    assert ids(stored, limit=2) == made[:2:-1]
    assert [call[0] for call in stored.store.calls] == ["list", "load", "load"]


def test_a_list_of_summaries_loads_nothing(stored):
    """That is what they are for."""
    stored.captured()
    stored.store.calls.clear()
    assert len(ids(stored)) == 2
    assert client.get_session(PARALLEL, stored.directory, **stored.where)
    assert {call[0] for call in stored.store.calls} == {"list"}


def test_rows_that_are_no_rows(stored):
    """Are passed over; and entries that are no objects."""
    session_id = stored.put(said("p"))
    good = stored.store.list_summaries(None)
    odd = [None, 7, {}, {"session_id": 7}, {"session_id": "../x", "mtime": 1}, {"session_id": MISSING, "mtime": 1}]
    odd += [{**good[0], "session_id": MISSING, "summary": 7, "mtime": float("nan"), "project_key": "x"}]
    odd += [{**good[0], "session_id": MISSING, "summary": 7, "mtime": time} for time in (None, "1", [], "inf")]
    odd += [{**good[0], "session_id": MISSING, "summary": 7, "mtime": sign * float("inf")} for sign in (1, -1)]
    odd += [{**good[0], "session_id": MISSING, "project_key": ""}]
    stored.store.list_summaries = lambda project: [*odd, *good]
    assert ids(stored) == [session_id]
    stored.store.list_summaries = lambda project: None
    assert ids(stored) == []
    stored.store.load = lambda key: [None, 7, "x", [], said("p")]
    assert len(messages(stored, session_id, stored.directory)) == 1


@pytest.mark.parametrize("name", ["append", "load", "list_sessions", "list_summaries", "list_subkeys", "delete"])
def test_a_store_that_fails(stored, name):
    """What it raises becomes a StoreError with the method, the cause, and the key where there is one."""
    stored.captured()

    def fail(*arguments):
        raise RuntimeError("no connection")

    setattr(stored.store, name, fail)
    calls = {
        "append": lambda: client.rename_session(PARALLEL, "t", **stored.where),
        "load": lambda: messages(stored, PARALLEL),
        "list_sessions": lambda: messages(stored, PARALLEL),
        "list_summaries": lambda: ids(stored),
        "list_subkeys": lambda: client.list_subagents(PARALLEL, **stored.where),
        "delete": lambda: client.delete_session(PARALLEL, **stored.where),
    }
    with pytest.raises(StoreError, match=rf"{name}\(\): RuntimeError: no connection") as caught:
        calls[name]()
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert caught.value.key == (() if name in ("list_sessions", "list_summaries") else stored.key(PARALLEL))


class Mute(Exception):
    def __str__(self):
        raise ValueError


def test_an_error_of_a_store_that_cannot_be_said(stored):
    """It is a StoreError all the same, when a session is read and when a turn is to go on with it."""
    error, fake_key = Mute(), stored.key(MISSING)

    def fail(*arguments):
        raise error

    stored.store.load = fail
    for call in (
        lambda: client.get_messages(MISSING, stored.directory, **stored.where),
        lambda: client.Client(cli_path="/bin/true", store=stored.store).run("p", resume=MISSING, cwd=stored.directory),
    ):
        with pytest.raises(StoreError, match="Mute: it does not say what") as caught:
            call()
        assert (caught.value.__cause__, caught.value.key) == (error, fake_key)


@pytest.mark.parametrize("name", ["load", "list_sessions", "list_summaries", "list_subkeys"])
def test_a_store_that_fails_while_it_is_read(stored, name):
    """The same where the answer is a generator, which runs only then."""
    stored.captured()

    def fail(*arguments):
        yield from ()
        raise RuntimeError("no connection")

    setattr(stored.store, name, lambda *arguments: fail(*arguments))  # what `load` itself may not be
    calls = {
        "load": lambda: messages(stored, PARALLEL, stored.directory),
        "list_sessions": lambda: client.rename_session(PARALLEL, "t", stored.directory, **stored.where),
        "list_summaries": lambda: ids(stored, stored.directory),
        "list_subkeys": lambda: client.list_subagents(PARALLEL, stored.directory, **stored.where),
    }
    with pytest.raises(StoreError, match=rf"{name}\(\): RuntimeError: no connection") as caught:
        calls[name]()
    key = stored.key(PARALLEL)
    assert caught.value.key == (key[:1] if name in ("list_sessions", "list_summaries") else key)


@pytest.mark.parametrize("call", [client.get_session, client.get_messages])
def test_one_session_of_a_long_list(stored, monkeypatch, call):
    """Of the others nothing is looked at but their ids."""
    kept = [stored.put(said("Hi.")) for _ in range(3)]
    row, made = _store_calls._row, []
    monkeypatch.setattr(_store_calls, "_row", lambda item, *more: made.append(item["session_id"]) or row(item, *more))
    assert call(kept[1], **stored.where)
    assert made == [kept[1]]


class Unwritten(SessionStore):
    """What it inherits has no body."""

    def append(self, key, entries):
        pass


class Awaited:
    async def append(self, key, entries):
        pass

    async def load(self, key):
        pass


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ({}, r"a dict has no append\(\)"),
        (Unwritten(), r"an? Unwritten has no load\(\)"),
        (client.MemoryStore, "MemoryStore is a class"),
        (Awaited(), "append of store must be a plain function"),
    ],
)
def test_what_is_no_store(value, match):
    """A ValueError that says what is missing."""
    with pytest.raises(ValueError, match=match):
        client.list_sessions(store=value)


def test_long_copies_are_appended_in_parts(stored):
    """No store has to take more than some hundred entries at once."""
    session_id = stored.put(*[said(f"p{n}") for n in range(1200)])
    stored.store.calls.clear()
    client.fork_session(session_id, stored.directory, **stored.where)
    assert [call[2] for call in stored.store.calls if call[0] == "append"] == [500, 500, 201]


@pytest.mark.parametrize("delete", ["works", "is missing", "fails"])
def test_a_copy_that_fails_half_way(stored, caplog, delete):
    """What was stored of it is taken away again, where the store can do that."""
    session_id = stored.put(*[said(f"p{n}") for n in range(1200)])
    append = stored.store.append

    def fail_later(key, entries):
        if key in stored.store.rows:
            raise RuntimeError("no connection")
        append(key, entries)

    stored.store.append = fail_later
    if delete != "works":
        stored.store.delete = None if delete == "is missing" else lambda key: 1 / 0
    with pytest.raises(StoreError, match=r"append\(\): RuntimeError: no connection"):
        client.fork_session(session_id, stored.directory, **stored.where)
    assert len(ids(stored)) == (1 if delete == "works" else 2)
    assert ("stays in the store" in caplog.text) == (delete == "fails")


def test_ctrl_c_in_the_middle_of_a_copy(stored):
    """What was stored of it is taken away, too."""
    session_id = stored.put(*[said(f"p{n}") for n in range(1200)])
    append = stored.store.append

    def interrupted(key, entries):
        if key in stored.store.rows:
            raise KeyboardInterrupt
        append(key, entries)

    stored.store.append = interrupted
    with pytest.raises(KeyboardInterrupt):
        client.fork_session(session_id, stored.directory, **stored.where)
    assert ids(stored) == [session_id]


def test_what_a_store_got_in_another_order(stored):
    """The beginning came behind what follows it, with a branch that was left: the end stays the end."""
    kept, left = said("kept", "assistant", "a"), said("left", "assistant", "a")
    session_id = stored.put(kept, said("p", uuid="a"), left)
    found = client.get_messages(session_id, stored.directory, **stored.where)
    assert [message.text for message in found] == ["p", "kept"]


def test_composed_names_of_a_store(stored, tmp_path):
    """What another program stored under the normalised path is found."""
    decomposed = tmp_path / "e\u0301"
    composed = unicodedata.normalize("NFC", str(decomposed))
    session_id = stored.put(said("p"), directory=composed)
    assert messages(stored, session_id, decomposed)
    client.rename_session(session_id, "t", decomposed, **stored.where)
    assert client.get_session(session_id, decomposed, **stored.where).summary == "t"
