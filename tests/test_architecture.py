"""The shape of the package: who may import whom, what the pure part may use, how long things are.

This is the architecture document. A module that is not in LAYERS is a failure: put it there.
"""

import ast
import inspect
import json
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import claude_cli_client
from claude_cli_client import testing

PACKAGE = Path(claude_cli_client.__file__).parent
MODULES = {path.stem: ast.parse(path.read_bytes()) for path in sorted(PACKAGE.glob("*.py"))}

# Imports go down, or stay in their layer; never up.
LAYERS = {
    0: "errors events totals _log _handlers",
    1: "options _checks _objects _argv _env _merge _lines _recover _parse _reduce _verdict _protocol callbacks "
    "_permissions _permission_updates _hooks _hook_reply _hook_events _unattended _rules _shell _paths mcp _tools "
    "_signature _schema _shapes _schema_check _tool_result _resources _jsonrpc _project_key _summary _chain "
    "_session_fork _ends _callables _transcript_key _suspicion _settings_shapes _tool_names _own_tools "
    "_rule_faults _globs _schema_rules",
    2: "discovery _exec_errors _ask_version _fork _sync _process _cleanup _guard _files _sinks _reader _channel "
    "_duplex _answers _serial _adopt _session_reader _turn store _project_folders _transcript_file _on_disk "
    "_in_store _fork_lock _sqlite_file _sqlite_store _store_calls _losses _mirror _restore _config_copy _settings_file "
    "_home _regular_file",
    3: "_pool _launch _named_files _withheld _simple_mode _map _places _probe run client session conversation "
    "_open_session _stream",
    4: "_replay testing _fake_cli _fake_lines _fake_schema _fake_simulation _fake_steps _fake_control _fake_host "
    "_fake_live _fake_turns _fake_mirror _doctor _progress _run_program __main__ __init__ transcripts "
    "_check_store _store_rules _store_listing_rules _usage",
}
LAYER = {name: layer for layer, names in LAYERS.items() for name in names.split()}

# All that layers 0 and 1 may import. No thread, clock, file, process, socket or signal is among it.
PURE = {"__future__", "collections", "dataclasses", "errno", "heapq", "json", "math", "operator", "re", "typing"}
PURE |= {"typing_extensions"}
# Imported inside of functions, for what is rare.
PURE_LATER = {
    "_log": {"logging"},
    "_argv": {"shlex"},
    "_merge": {"difflib"},
    "_own_tools": {"difflib"},
    "_rule_faults": {"difflib"},
    "_hooks": {"difflib"},
    "_hook_reply": {"difflib"},
    "_paths": {"unicodedata"},
    "_summary": {"datetime"},
    "_tool_result": {"binascii"},
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "compile", "breakpoint", "__import__"}

MAX_MODULE = 450
MAX_FUNCTION = 40

_EXPORTS = """
ACCEPT_EDITS APIConnectionError API_ERROR AUTO Allow AuthenticationError BYPASS_PERMISSIONS Background BillingError
BudgetExceededError CLINotFoundError CLIVersionError COMPACT_BOUNDARY Capacity ClaudeError Client ClientClosedError
ConcurrencyError ControlError Conversation ConversationOptions DONT_ASK Deny ERROR Effort Event HOOK HookCall
HookMatcher HookReply INIT InterruptedTurnError InvalidRequestError MANUAL MIRROR_ERROR MaxTurnsError MemoryStore
ModelNotFoundError OVERSIZE OutputLimitError PLAN PermissionMode PermissionPrompts PermissionRequest PermissionUpdate
ProcessError PromptTooLongError RATE_LIMIT RESULT RETRACTED RETRY RateLimitError RefusalError ResultError Run
RunOptions SQLiteStore STREAM_EVENT SYSTEM ServerError Session SessionClosedError SessionInUseError SessionInfo
SessionKey SessionMessage SessionNotFoundError SessionStore SettingSource SlotTimeoutError StaleSessionError
StartError StoreError StructuredOutputError TASK_NOTIFICATION TASK_PROGRESS TASK_RESULT TASK_STARTED TASK_UPDATED TEXT
TEXT_DELTA THINKING THINKING_DELTA TOOL_INPUT_DELTA TOOL_PROGRESS TOOL_RESULT TOOL_USE ThinkingMode ToolContext
ToolResult ToolServer Totals TurnCancelled TurnError TurnOptions TurnTimeout USER_TEXT UnfinishedTurnError __version__
delete_session find_cli fork_session get_messages get_session get_subagent_messages is_stale_session list_sessions
list_subagents parse_line rename_session replay tag_session tool unattended
"""
EXPORTS = _EXPORTS.split()
# Every module without an underscore.
PUBLIC_MODULES = [name for name in MODULES if not name.startswith("_")]


class Import(typing.NamedTuple):
    name: str  # of the module; of one of ours without the package
    ours: bool
    later: bool  # inside of a function
    line: int


def imports(tree):
    """What a module imports when it runs; what stands under TYPE_CHECKING is left out."""
    found = []

    def visit(node, later):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for part in node.orelse:
                visit(part, later)
            return
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name.split(".")[0], False, later, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                names = [node.module] if node.module else [alias.name for alias in node.names]
                ours = [name if name in MODULES else "__init__" for name in names]
                found.extend(Import(name, True, later, node.lineno) for name in ours)
            else:
                found.append(Import((node.module or "").split(".")[0], False, later, node.lineno))
        inside = later or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for part in ast.iter_child_nodes(node):
            visit(part, inside)

    visit(tree, False)
    return found


IMPORTS = {name: imports(tree) for name, tree in MODULES.items()}


# --- layers -----------------------------------------------------------------------------------------


def test_every_module_has_a_layer():
    """A new module must be put into a layer, and a name that is gone taken out."""
    assert set(MODULES) == set(LAYER)


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_down(name):
    """No module imports from a layer above its own, at its top or inside of a function."""
    up = [
        f"{name}.py:{found.line} imports {found.name} of layer {LAYER[found.name]}"
        for found in IMPORTS[name]
        if found.ours and found.name != "__init__" and LAYER[found.name] > LAYER.get(name, 9)
    ]
    assert not up


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("__main__", "_doctor")])
def test_nobody_imports_the_package_itself(name):
    """The package imports its modules; a module that imports the package closes a circle."""
    assert not [f"{name}.py:{found.line}" for found in IMPORTS[name] if found.ours and found.name == "__init__"]
    assert not [found for found in IMPORTS[name] if found.name == "claude_cli_client"]


def test_no_circles():
    """Following the imports at the top of modules never comes back."""
    below = {
        name: {found.name for found in IMPORTS[name] if found.ours and not found.later and found.name != "__init__"}
        for name in MODULES
    }
    left = dict(below)
    while left:
        ready = [name for name, names in left.items() if not names & left.keys()]
        assert ready, f"a circle among {sorted(left)}"
        for name in ready:
            del left[name]


@pytest.mark.parametrize("name", [name for name in MODULES if LAYER.get(name, 9) <= 1])
def test_pure_modules_import_only_what_is_pure(name):
    """No thread, clock, file or process in layers 0 and 1."""
    foreign = [found for found in IMPORTS[name] if not found.ours and found.name not in PURE]
    assert not [found for found in foreign if not found.later or found.name not in PURE_LATER.get(name, ())]


@pytest.mark.parametrize("name", [name for name in MODULES if LAYER.get(name, 9) <= 1])
def test_pure_modules_call_nothing_impure(name):
    """Nor do they open, print or run anything by a builtin."""
    calls = {
        node.func.id
        for node in ast.walk(MODULES[name])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & IMPURE_CALLS


@pytest.mark.parametrize("name", MODULES)
def test_no_asyncio(name):
    """No event loop anywhere, and nothing to await."""
    assert not [found for found in IMPORTS[name] if found.name == "asyncio"]
    assert not [node for node in ast.walk(MODULES[name]) if isinstance(node, (ast.AsyncFunctionDef, ast.Await))]


# Who makes a regular expression of what it is given, and whose that is. All others are there when a module is
# imported: `re` holds up every thread, so none of them may be made of a pattern that meets a text of the model.
OTHERS_EXPRESSIONS = {
    "_schema_check": "the user's own, in the schema of a tool",
    "_hooks": "a hook's matcher, only to see whether it is one: the CLI matches it",
    "_settings_shapes": "those of its own table",
    "_usage": "names of our own options",
    "_fake_live": "a hook's matcher, in tests",
    "_fake_simulation": "those of its own table",
}


@pytest.mark.parametrize("name", [name for name in MODULES if name not in OTHERS_EXPRESSIONS])
def test_no_regular_expression_is_made_of_a_pattern(name):
    """Inside of functions `re` gets literals and constants only."""
    functions = [node for node in ast.walk(MODULES[name]) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
    calls = [node for function in functions for node in ast.walk(function) if isinstance(node, ast.Call)]
    made = [node for node in calls if ast.unparse(node.func).startswith("re.")]
    names = {part.id for node in made for part in ast.walk(node.args[0]) if isinstance(part, ast.Name)}
    assert not {one for one in names if not one.isupper()}
    assert "re.escape" not in {ast.unparse(node.func) for node in made}


# Where a signal handler's OSError cannot be taken for an answer; all others ask `_handlers`.
NOT_THE_HOSTS = {
    **dict.fromkeys(["__main__", "_doctor", "_progress", "_run_program"], "our own program: it has no such handlers"),
    **dict.fromkeys(["_fake_cli", "_fake_host", "_fake_mirror"], "programs that stand in for the CLI"),
    **dict.fromkeys(["_cleanup", "_config_copy", "_files", "_guard", "_process"], "on a reader's thread"),
    "_duplex": "on a thread that writes",
    "_adopt": "on a thread that asks a store",
}
SYSTEMS = {"OSError", "EnvironmentError", "IOError", "TimeoutError"}


def answers(tree):
    """What takes an OSError, of whatever kind, for an answer: `except`, but for a bare `raise`, and `suppress`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            named = {part.id for part in ast.walk(node.type) if isinstance(part, ast.Name)}
            text = "" if ast.unparse(node.body[0]) == "raise" else ast.unparse(node)
        elif isinstance(node, ast.Call) and "suppress" in ast.unparse(node.func):
            named, text = set(map(ast.unparse, node.args)), "suppress"
        else:
            continue
        if text and SYSTEMS & named:
            yield node, text


@pytest.mark.parametrize("name", [name for name in MODULES if name not in NOT_THE_HOSTS])
def test_what_the_hosts_signal_handlers_raise_is_no_answer(name):
    """An OSError without errno is raised again wherever one is taken for an answer."""
    asks = ["raise_hosts(error)", "raise_unless_absent(error)", "raise_unless_of_file(error)", "doubt(error)"]
    asks += ["is_of_a_start(error)", "raise refused("]
    asks += ["error.errno not in _BAD_NAMES", "error.errno != errno.EBADF"]
    found = [node.lineno for node, text in answers(MODULES[name]) if not any(one in text for one in asks)]
    assert not found


# --- sizes and docstrings ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_short(name):
    """At most 450 lines."""
    assert len((PACKAGE / f"{name}.py").read_text("utf-8").splitlines()) <= MAX_MODULE


@pytest.mark.parametrize("name", MODULES)
def test_modules_say_what_they_are(name):
    """Each begins with a docstring."""
    assert ast.get_docstring(MODULES[name])


def code_lines(function, source):
    """The lines of a function that have code: no docstring, blank line or comment."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    first, last = (body[0].lineno, function.end_lineno) if body else (1, 0)
    return sum(1 for text in source[first - 1 : last] if text.strip() and not text.strip().startswith("#"))


@pytest.mark.parametrize("name", MODULES)
def test_functions_are_short(name):
    """At most 40 lines of code."""
    source = (PACKAGE / f"{name}.py").read_text("utf-8").splitlines()
    functions = [node for node in ast.walk(MODULES[name]) if isinstance(node, ast.FunctionDef)]
    assert not {node.name: size for node in functions if (size := code_lines(node, source)) > MAX_FUNCTION}


def described(holder):
    """The public callables and properties of a class, its own and inherited from the package."""
    for base in holder.__mro__:
        for name, value in vars(base).items():
            target = value.fget if isinstance(value, property) else value
            if str(getattr(target, "__module__", "")).startswith("claude_cli_client") and not name.startswith("_"):
                yield f"{holder.__name__}.{name}", target


@pytest.mark.parametrize("module", [claude_cli_client, testing])
def test_public_callables_have_docstrings(module):
    """What users can call says what it does, methods and properties too."""
    silent = []
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isroutine(value) or inspect.isclass(value):
            silent += [name] * (not inspect.getdoc(value))
        if inspect.isclass(value):
            silent += [path for path, target in described(value) if not inspect.getdoc(target)]
    assert not silent


# --- the surface ------------------------------------------------------------------------------------


def test_exports():
    """What the package exports is pinned: a change here is a change for users."""
    assert sorted(claude_cli_client.__all__) == sorted(EXPORTS)
    assert len(claude_cli_client.__all__) == len(set(EXPORTS))


@pytest.mark.parametrize("name", EXPORTS)
def test_every_export_exists(name):
    """Each can be had, also those that are imported on first use, and `dir` lists it."""
    assert getattr(claude_cli_client, name) is not None
    assert name in dir(claude_cli_client)


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_modules_are_attributes(name):
    """Also where nobody has imported them, and `dir` lists them."""
    code = f"import claude_cli_client as c; assert {name!r} in dir(c) and c.{name}.__name__.endswith('.{name}')"
    subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, check=True, timeout=60)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Clientt", "'Clientt'; did you mean Client[?]$"),
        ("transcript", "did you mean transcripts[?]$"),
        ("anything_else", "'anything_else'$"),
        ("_Client", "'_Client'$"),
    ],
)
def test_no_other_names(name, says):
    """A wrong name is an AttributeError, as in any module, which tells the nearest public one."""
    with pytest.raises(AttributeError, match=says):
        getattr(claude_cli_client, name)


def test_star_import():
    """`from claude_cli_client import *` gives exactly the exports."""
    names = {}
    exec("from claude_cli_client import *", names)
    assert set(names) - {"__builtins__"} == set(EXPORTS)


def test_options_can_be_resolved():
    """Type checkers at run time (pydantic, typeguard) can read the options."""
    hints = typing.get_type_hints(claude_cli_client.RunOptions)
    assert {"model", "resume", "timeout"} <= set(hints)


# --- import -----------------------------------------------------------------------------------------

# The modules that we say we need; what they bring with them is theirs.
NEEDED = "subprocess json threading queue dataclasses selectors typing"
# What an import of ours may bring beside them.
SMALL = {"__future__"}
_SLOW = """
asyncio logging tempfile pathlib uuid typing_extensions random secrets shutil socket ssl email http urllib argparse
difflib shlex glob multiprocessing concurrent ctypes decimal importlib.metadata importlib.resources pprint unittest
"""
SLOW = _SLOW.split()

LOOK = """
import json, sys
sys.path.insert(0, {root!r})
before = set(sys.modules)
import {needed}
with_needed = set(sys.modules)
import claude_cli_client
import os, threading
children = ""
try:
    children = open("/proc/self/task/%d/children" % os.getpid()).read()
except OSError:
    pass
print(json.dumps([
    sorted(set(sys.modules) - with_needed),
    sorted(set(sys.modules) - before),
    threading.active_count(),
    children.split(),
    len(os.listdir("/dev/fd")),
]))
"""


@pytest.fixture(scope="module")
def imported():
    """What a fresh interpreter has after `import claude_cli_client`; without site, which imports things too."""
    code = LOOK.format(root=str(PACKAGE.parent), needed=NEEDED.replace(" ", ", "))
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_import_brings_little(imported):
    """Beside the standard modules that we need, nothing of weight is imported."""
    added = [name for name in imported[0] if not name.startswith("claude_cli_client")]
    assert set(added) <= SMALL


@pytest.mark.parametrize("name", SLOW)
def test_import_leaves_out_what_is_slow(name, imported):
    """What takes milliseconds to import, and is not needed for a turn, is imported on first use."""
    assert name not in imported[1]


@pytest.mark.parametrize("name", [name for name in MODULES if LAYER.get(name, 9) <= 3])
def test_inspect_is_not_ours(name):
    """`inspect` is imported by `dataclasses` in older Pythons; none of our modules needs it."""
    assert not [found for found in IMPORTS[name] if found.name == "inspect"]


def test_import_leaves_out_what_a_turn_does_not_need(imported):
    """Modules beyond the core are imported on first use."""
    ours = {name.partition(".")[2] for name in imported[0] if name.startswith("claude_cli_client.")}
    assert not {name for name in ours if LAYER[name] > 3}
    later = "totals _recover _argv _merge _launch _probe store _store_calls _mirror _restore _config_copy conversation"
    assert not ours & set(later.split())


def test_import_starts_nothing(imported):
    """No thread, no child, no descriptor beside the three and the one that lists them."""
    threads, children, descriptors = imported[2:]
    assert (threads, children) == (1, [])
    assert descriptors <= 4
