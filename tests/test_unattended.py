"""The unattended preset: what its rules allow and deny, and that nothing else comes through."""

import json
import pickle
import random
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from claude_cli_client import Client
from claude_cli_client._launch import _settled
from claude_cli_client._permissions import PermissionRequest, permission_reply, permission_request
from claude_cli_client._shell import Unclear, parts
from claude_cli_client._suspicion import spoken
from claude_cli_client._unattended import GUIDANCE, UNATTENDED_SENTENCE, unattended
from claude_cli_client.callbacks import Allow, Deny
from claude_cli_client.testing import init, result

ROWS = (Path(__file__).parent / "data" / "callbacks" / "permissions.jsonl").read_text("utf-8").splitlines()
RECORDED = [permission_request(json.loads(row)["request"]) for row in ROWS]
CWD = "/srv/app"


def answer(callback, tool, **given):
    return callback(PermissionRequest(tool, given))


def runs(command, allow=("Bash(git *)", "Bash(npm test:*)", "Bash(ls)"), deny=()):
    return isinstance(answer(unattended(allow, deny), "Bash", command=command), Allow)


def edits(path, allow=(), deny=(), tool="Edit", **places):
    return isinstance(answer(unattended(allow, deny, **places), tool, file_path=path), Allow)


# --- the preset -------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", RECORDED, ids=lambda request_: request_.tool_name)
def test_without_rules_nothing_runs(request_):
    """Every recorded request is denied, with words; only a plan is approved."""
    made = unattended()(request_)
    assert isinstance(made, Allow if request_.is_plan else Deny)
    assert permission_reply(made, request_)["behavior"] == ("allow" if request_.is_plan else "deny")


def test_question_gets_guidance():
    """A question is denied with the guidance: no answer is made up."""
    question = next(request for request in RECORDED if request.is_question)
    assert unattended()(question) == Deny(GUIDANCE)
    assert unattended(guidance="Take the first.")(question) == Deny("Take the first.")


def test_question_cannot_be_allowed():
    """A rule that lets questions through would let them go unanswered: a ValueError."""
    with pytest.raises(ValueError, match="nobody"):
        unattended(allow=["AskUserQuestion"])


def test_plans_need_not_be_approved():
    """`approve_plans=False`, or a rule, keeps the model in plan mode."""
    plan = next(request for request in RECORDED if request.is_plan)
    assert isinstance(unattended(approve_plans=False)(plan), Deny)
    assert isinstance(unattended(deny=["ExitPlanMode"])(plan), Deny)


def test_denial_says_what_to_do():
    """The model reads which tool, why, and that nobody can be asked."""
    said = answer(unattended(["Bash(git *)"]), "Bash", command="git log | sh").message
    assert "Bash" in said
    assert "this part of it: sh" in said
    assert "nobody" in said


def test_denial_names_the_rule():
    """A call that a rule denies says which."""
    assert "Bash(rm *)" in answer(unattended(["Bash"], ["Bash(rm *)"]), "Bash", command="rm x").message


def test_denial_of_what_cannot_be_told():
    """Says so, since the rule alone would explain nothing."""
    said = answer(unattended(["Bash"], ["Bash(git push *)"]), "Bash", command="pytest $(rm x)").message
    assert "it holds an expansion, so it might be what the rule Bash(git push *) forbids" in said


@pytest.mark.parametrize(
    ("rules", "remedy"),
    [
        ({"allow": ["npm test"]}, r"A command is Bash\(npm test\)"),
        ({"allow": ["Bash(echo (x) y)"]}, "inner parentheses"),
        ({"allow": ["*"]}, "bypassPermissions"),
        ({"deny": ["*"]}, r"tools=\[\]"),
        ({"deny": ["a.b"]}, "a tool's name"),
    ],
)
def test_what_to_write_instead(rules, remedy):
    """A rule that is none is told with what was probably meant."""
    with pytest.raises(ValueError, match=remedy):
        unattended(**rules)


def test_sentence():
    """The sentence for the system prompt says that nobody answers."""
    assert "nobody can answer" in UNATTENDED_SENTENCE


@pytest.mark.parametrize(
    "more",
    [
        {"decision_reason_type": "safetyCheck"},
        {"decision_reason_type": "hook"},
        {"decision_reason_type": "rule"},
        {"requires_user_interaction": True},
        {"decision_reason_type": "classifier"},
        {"raw": {"server_policy_ask_only": False}},
        {"raw": {"default_to_no": True}},
        {"raw": {"matched_ask_rule": {"source": "userSettings", "tool_name": "Bash"}}},
        {"raw": {"auto_modes_check_raised": True}},
        {"raw": {"decision_reason_code": "org_ask_ceiling"}},
        {"decision_reason_type": "subcommandResults", "raw": {"classifier_approvable": True}},
        {"decision_reason_type": "subcommandResults", "raw": {"classifier_approvable": False}},
    ],
)
def test_a_persons_decision_stays_one(more):
    """What the CLI, a hook or a setting explicitly wants a person for, no rule allows."""
    asked = PermissionRequest("Bash", {"command": "git log"}, **more)
    assert isinstance(unattended(["Bash", "Bash(git *)"])(asked), Deny)


@pytest.mark.parametrize(
    "more",
    [
        {"raw": {"server_policy_ask_only": True}},
        {"decision_reason_type": "subcommandResults"},
        {"decision_reason_type": "mode"},
        {"decision_reason_type": "other", "raw": {"decision_reason_code": "outside_reads_blocked"}},
    ],
)
def test_what_only_lacks_a_rule_is_allowed_by_one(more):
    """The CLI asks because no rule of its own allows the call: no person is wanted."""
    asked = PermissionRequest("Bash", {"command": "git log"}, **more)
    assert isinstance(unattended(["Bash(git *)"])(asked), Allow)


def test_sandbox_is_not_left():
    """A command that asks to run outside of the sandbox is denied, whatever allows the command."""
    assert isinstance(answer(unattended(["Bash"]), "Bash", command="ls", dangerouslyDisableSandbox=True), Deny)


def test_deny_wins():
    """A call that both allow and deny mean is denied."""
    assert not runs("git push", ["Bash(git *)"], ["Bash(git push *)"])
    assert runs("git log", ["Bash(git *)"], ["Bash(git push *)"])


def test_rules_as_one_string():
    """Rules may be the CLI's own string."""
    made = unattended("Read, Bash(git log *) Bash(ls)", "Bash(rm *)")
    assert (made.allow_rules, made.deny_rules) == (("Read", "Bash(git log *)", "Bash(ls)"), ("Bash(rm *)",))


def test_callback_pickles():
    """A preset can be sent to a worker, and does the same there."""
    made = pickle.loads(pickle.dumps(unattended(["Bash(git *)", "Edit(src/**)"], cwd=CWD)))
    assert isinstance(answer(made, "Bash", command="git log"), Allow)


@pytest.mark.parametrize(
    "wrong", [{"guidance": " "}, {"approve_plans": "yes"}, {"cwd": "srv"}, {"home": "/a/../b"}, {"cwd": 3}]
)
def test_wrong_options(wrong):
    """An option without a meaning is a ValueError."""
    with pytest.raises(ValueError):
        unattended(**wrong)


# --- reading rules ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        "bash",
        "Bash()",
        "Bash( )",
        "Bash(git *",
        "Bash(git:* push)",
        "Bash(git **)",
        "Bash(ls \\*)",
        "Write(src/**)",
        "Grep(src/**)",
        "NotebookEdit(x)",
        "WebSearch(x)",
        "Foo(x)",
        "Edit(../x)",
        "Edit(a/../x)",
        "Edit(~bob/x)",
        "Edit(!x)",
        "Edit(a[bc])",
        "Edit({a,b})",
        "Edit(a**b)",
        "Edit(/)",
        "WebFetch(example.com)",
        "WebFetch(domain:)",
        "WebFetch(domain:*)",
        "WebFetch(domain:exa*mple.com)",
        "WebFetch(domain:example.com/x)",
        "mcp__",
        "mcp__shop__",
        "mcp__shop__st?ck",
        "mcp__shop__[s]tock",
        "mcp__shop__get_*(x)",
        "mcp__shop(x)",
        "mcp_*",
        "*",
        "Ba*",
        "Agent(*)",
        "",
    ],
)
def test_rules_without_a_meaning(rule):
    """A rule that would be passed over is a ValueError, on both sides."""
    for side in ("allow", "deny"):
        with pytest.raises(ValueError):
            unattended(**{side: [rule]})


@pytest.mark.parametrize(
    "rule",
    [
        "Bash(* --version)",
        "Bash(*sh)",
        "Bash(git log && ls *)",
        "Bash(echo $*)",
        "Bash(git *; ls)",
        "Bash(x > *)",
        "Bash(A=1 x *)",
    ],
)
def test_allow_rules_that_mean_too_much_or_nothing(rule):
    """To allow, a pattern is of one program, and of text that can be compared at all."""
    with pytest.raises(ValueError):
        unattended(allow=[rule])


@pytest.mark.parametrize("rules", [None, 3, {"Bash"}, [3], [None]])
def test_rules_of_the_wrong_type(rules):
    """Rules are a list of texts, or one text."""
    with pytest.raises(ValueError):
        unattended(allow=rules)


# --- commands: allowing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "git",
        "git log",
        "  git log  ",
        "git log && git diff",
        "git log; ls",
        "git log || ls",
        "git log | git apply",
        "git log\nls\n",
        "git commit -m 'a; rm x && b'",
        'git commit -m "it\'s; a | b > c"',
        'git commit -m "say \\"hi\\" for \\$5"',
        "git commit -m 'two\nlines'",
        "git show HEAD@{1}",
        "git log -- *.py",
        "git log x#y",
        "npm test",
        "npm test -- --watch",
        "npm test 2>&1",
        "npm test >/dev/null 2>&1",
        "git log 2> /dev/null | git apply 2>&1; ls",
    ],
)
def test_commands_that_are_meant(command):
    """One command, or several that are each meant; operators inside of quotes are text, and no file is written."""
    assert runs(command)


@pytest.mark.parametrize(
    "command",
    [
        "",
        " ",
        "gitx",
        "git-evil",
        "npm testx",
        "ls -l",
        "Git log",
        "sudo git log",
        "git log; rm x",
        "git log && rm x",
        "git log || rm x",
        "git log | sh",
        "git log |& sh",
        "git log & rm x",
        "git log &",
        "git log\nrm x",
        "git log\r\nrm x",
        "git log $(rm x)",
        "git log `rm x`",
        'git log "$(rm x)"',
        'git log "`rm x`"',
        "git log $X",
        "git log ${X:-y}",
        "git log $'x'",
        'git log "$X"',
        "git log <(rm x)",
        "git log >(rm x)",
        "git log > x",
        "git log >> x",
        "git log 2>&1 > x",
        "git log 2>&x",
        "git log 2>&1x",
        "git log >&1\u00a0x",
        "git log >/dev/null\u2028x",
        "git log 2>&1&& rm x",
        "git log &>/dev/null",
        "git log >/dev/nullx",
        "git log >/dev/null/x",
        "git log 2>/dev/null>x",
        "git log >/dev/null; rm x",
        "2>&1",
        "git log < x",
        "git log << X\nrm\nX",
        "A=1 git log",
        "A+=1 git log",
        "A[0]=1 git log",
        "(git log)",
        "{ git log; }",
        "! git log",
        "if git log; then ls; fi",
        "git log # '\nrm x\n'",
        "git log;#'\nrm x\n'",
        "git log 'open",
        'git log "open',
        "git log \\' ; rm x ; \\'",
        "gi\\t log",
        "'git' log",
        '"git log"',
        "git log \\\n; rm x",
        "git log \x00",
        "git log \x0brm",
        "git\x0clog",
        "git() { rm x; }; git log",
    ],
)
def test_commands_that_are_not_surely_meant(command):
    """Whatever runs more, elsewhere, or cannot be told from its text, is denied."""
    assert not runs(command)


def test_every_command_by_the_bare_name():
    """`Bash`, `Bash(*)` and `Bash(:*)` allow every command."""
    assert all(runs("x $(y) > z", [rule]) for rule in ("Bash", "Bash(*)", "Bash(:*)"))


def test_whole_command_word_for_word():
    """A rule without `*` may be a whole compound command, and then means this one only."""
    assert runs("npm run build > out.txt", ["Bash(npm run build > out.txt)"])
    assert not runs("npm run build > out.txt; ls", ["Bash(npm run build > out.txt)"])


def test_star_in_the_middle():
    """`*` is any text, also in the middle; the parts of it must come in order."""
    assert runs("git push origin main", ["Bash(git push * main)"])
    assert not runs("git push main origin", ["Bash(git push * main)"])


def test_star_in_a_path_stays_in_it():
    """A pattern of programs in a directory does not lead out of it."""
    rule = ["Bash(./scripts/*)"]
    assert runs("./scripts/build --fast ../x", rule)
    assert not any(runs(f"./scripts/{out}bin/rm x", rule) for out in ("../", "'..'/", '"."./', "{..,}/", "a/../../"))


def test_command_must_be_a_text():
    """An input without a command, or with another thing there, is denied."""
    assert isinstance(answer(unattended(["Bash(git *)"]), "Bash"), Deny)
    assert isinstance(answer(unattended(["Bash(git *)"]), "Bash", command=["git"]), Deny)


def test_bash_rule_is_for_monitor_too():
    """One for commands, as in the CLI; a bare one is for that tool alone."""
    assert isinstance(answer(unattended(["Bash(git *)"]), "Monitor", command="git log"), Allow)
    refused = answer(unattended(["Bash(git *)"]), "Monitor", command="git log; rm x")
    assert "no rule allows this part of it: rm x" in refused.message
    assert isinstance(answer(unattended(["Bash"]), "Monitor", command="git log"), Deny)


def test_exact_bash_rule_is_for_monitor_too():
    """One that is several commands allows these together, in Monitor as in Bash, and none of them alone."""
    rule = ["Bash(make && make test)"]
    for name in ("Bash", "Monitor"):
        assert isinstance(answer(unattended(rule), name, command="make && make test"), Allow)
        assert isinstance(answer(unattended(rule), name, command="make test"), Deny)


def test_parts():
    """The parts of a command are as they are written."""
    assert parts("a 'x;y' && b | c\n d") == ["a 'x;y'", "b", "c", "d"]


# --- commands: denying ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "rm",
        "rm x",
        "RM x",
        "rm\tx",
        "/bin/rm x",
        "ls; rm x",
        "ls && rm x",
        "ls | rm x",
        "ls & rm x",
        "ls\nrm x",
        "(rm x)",
        "{ rm x; }",
        "if true; then rm x; fi",
        "r\\m x",
        "r''m x",
        '"rm" x',
        "r\\\nm x",
        "A=1 rm x",
        "sudo rm x",
        "env -i rm x",
        "xargs rm",
        "find . -exec rm x ;",
        "sh -c 'rm x'",
        'bash -c "rm x"',
        "eval 'rm x'",
        "echo $(rm x)",
        "echo `rm x`",
        "cat <(rm x)",
        "$X x",
        "sh -c '$X'",
        "echo ${X@P}",
        "npm test $X",
        "{rm,-r,x}",
        '{rm,"-r x"}',
        "/bin/r? x",
        "sudo /bin/r? x",
        "git -c alias.x='!rm x' x",
        "git rm x",
        "ls #'\nrm x #'",
        "x" * 5001,
        "rm\r",
        "rm\x00x",
        "ls \ue000",
        # where a command begins
        "</dev/null rm x",
        ">x rm x",
        "case x in x) rm x;; esac",
        "f() { rm x; }; f",
        "coproc rm x",
        "! rm x",
        "flock l rm x",
        "unknown-wrapper -x rm x",
        "cat <<< x | rm x",
        "cat <<E\nx\nE\nrm x",
        "echo x\\\\\nrm x",
        "ls # x\\\nrm x",
        "sh -c 'sh -c \"r\\m x\"'",
        "env -S 'rm x'",
        "x=rm",
        "/bin/r\u200cm x",
        "env {A={},r}m x",
        # names that the shell completes
        "A=1 /bin/r? x",
        "</dev/null /bin/r? x",
        "2>/dev/null /bin/r[m] x",
        "if /bin/r? x; then :; fi",
        "while /bin/r? x; do :; done",
        "for i in 1; do /bin/r? x; done",
        "case x in x) /bin/r? y;; esac",
        "f() { /bin/r? x; }; f",
        "coproc /bin/r? x",
        "flock l /bin/r? x",
        "taskset 1 /bin/[r]m x",
        "unshare /bin/[[:lower:]]m x",
        "chroot / /bin/[!a]m x",
        "unknown-wrapper /bin/r* x",
        "cp /bin/r? z; ./z x",
        "sh -c '/bin/r? x'",
        "su -c '/bin/r? x'",
        "ssh h '/bin/r? x'",
        "script -qc '/bin/r? x'",
        "git bisect run /bin/r? x",
        "git rebase -x '/bin/r? x' main",
        "'r'? x",
        "cd /bin; r['']m x",
        "cd /bin; r[\\m] x",
        "sudo d/*",
        "A=1 d/* x",
        "if ./* x; then :; fi",
        "</dev/null d/* x",
        "eval 'd/*'",
        "sh -c \"true; A='x y' d/*\"",
        "/bin/r(m|x) y",
        "sudo (r|x)m y",
        "((x=1<<E))\n/bin/r? x\nE",
        # expansions that look quoted
        "cat <<'E'\n'\nE\n$(printf r)m x\n: ''",
        "cat <<E\n'\nE\n$(printf r)m x\n: '",
        "cat <<E\n$(printf r)m x\nE",
        "cat <<'E' <<'F'\nE\n'\nF\n$(printf r)m x\n: '",
        "cat <<-E\n\tE\n$(printf r)m x\nE",
        "cat <<'E'\nx\\\nE\n$(printf r)m x\nE",
        "echo '\ncat <<E\n' ; $(printf r)m x\nE",
        "echo \\'; $(printf r)m x; echo \\'",
        "s''h -c '$(printf r)m x'",
        "/bin/b?sh -c '$(printf r)m x'",
        "git -c alias.x='!$(printf r)m x' x",
        "alias ls='$(printf r)m'",
        "PS4='$(printf r)m x' bash -x s",
        "printf -v 'a[$(printf r)m x]' x",
        "[[ 'a[$(printf r)m x]' -eq 1 ]]",
        "let 'a=$(printf r)m x'",
        "x='$(printf r)m x'; echo ${x@P}",
        'ls "$(r""m x)"',
        "cat $'r\\155'",
        "for f in /bin/r?; do $f x; done",
        "echo() { /bin/r? x; }; echo",
        "git commit -m \"$(cat <<'E'\nx\nE\nr''m x)\"",
        # commands that are read
        "printf 'r\\155 x' | sh",
        "printf x | bash -s a",
        "printf x | bash -o errexit",
        "printf x | bash --norc",
        "printf x | bash /dev/stdin",
        "printf x | 's'h",
        "printf x | sudo -s",
        "printf x | ssh h",
        "printf x | docker exec -i c sh",
        "sh <<'E'\nr\\m x\nE",
        "bash <<< 'r\\m x'",
        ". /dev/stdin <<< x",
        "echo x | xargs -n1 sh -c",
        "echo x | xargs -I% % x",
        "echo x | xargs -i {} x",
        "echo x | parallel",
        "find /bin -name 'r[m]' -exec {} x ';'",
        "find /bin -name 'r[m]' -exec sh -c '{} x' ';'",
    ],
)
def test_commands_that_might_be_denied(command):
    """A denial finds its command in any part, behind quotes, wrappers and paths, and takes no chances."""
    assert not runs(command, ["Bash"], ["Bash(rm *)"])


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "ls *.py",
        "git log",
        "echo 'a b'",
        "awk '{print $1}' f",
        "grep --include=*.py x",
        "cat a > b",
        'echo \'{"a": 1, "b": 2}\'',
        "alarm x",
        # that only read the word
        "grep -r 'rm' .",
        "cd x && grep -rn rm . | head -5",
        'echo "a | rm b"',
        "git status",
        "git add * && git commit -m 'rm the old code'",
        "git commit -m \"$(cat <<'EOF'\nrm the old (#1) code\n\nEOF\n)\"",
        "ls -la *.py",
        "ls rm* 2>/dev/null",
        "cat * 2>&1 | grep rm",
        "for f in *.py; do echo $f; done",
        'for f in a b; do cat "${f}.txt"; done',
        "if grep -q rm x; then echo $HOME; fi",
        'grep -nE "^(rm|x)$" f',
        "# rm it?\ngit status",
        # that have patterns and quotes, but none of a program
        "pytest tests/*",
        "pytest tests/test_*.py -k 'not slow'",
        "tar czf x.tgz *",
        "cp src/* to/",
        "npm test -- -t '[unit]'",
        "find . -name '*' -delete",
        "find . -name '*.py' -exec grep foo {} +",
        "find . -name '*.py' | xargs grep -l foo",
        "python3 -c 'x = [1]; print(x[0])'",
        "python3 - <<'EOF'\nimport os\nprint(os.environ['HOME'], \"$x\")\nEOF",
        "cat > x <<'EOF'\nit's $5\nEOF\nnpm test",
        "sed -i 's/[a-z]*/x/' f",
        "timeout 60 awk '{print $1}' f",
        "bash scripts/build.sh | tail -3",
        "bash -c 'npm test'",
        "bash -eo pipefail -c 'npm test | cat'",
        "docker run --rm x bash",
        "NODE_ENV=test npm test > out.log 2>&1",
        "npm \\\n test",
        "make test # all of it",
        "ssh h ls x",
    ],
)
def test_commands_that_are_not_denied(command):
    """What cannot be the command that is denied still runs, so that ordinary work is possible."""
    assert runs(command, ["Bash"], ["Bash(rm *)", "Bash(curl * | sh)"])


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("grep -r x .", "grep *"),
        ("cat -n 'secret.txt'", "cat secret*"),
        ("cat >/dev/null secret.txt", "cat secret*"),
        ("cat sec*", "cat secret"),
        ("cat $f", "cat secret"),
        ("ls; echo x && cat secret", "cat secret"),
        ("for f in a; do cat secret; done", "cat secret"),
        ("cat a | grep b", "cat * | grep *"),
        ("git commit --amend -m x", "git commit --amend *"),
    ],
)
def test_denied_readers(command, rule):
    """A program that only reads its words is still denied by its own name."""
    assert not runs(command, ["Bash"], [f"Bash({rule})"])


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git  push x",
        "git -C x push",
        "git --no-pager -c a=b push",
        "git pus? x",
        "git * x",
        "git -C x [p]ush",
        "git -C x *",
        "/usr/bin/gi? --x pu'sh'",
        "git >x push",
        "git 2>&1 push",
        "git &> x push",
        "git {fd}>x push",
        "git > 'a b' push",
        "git > a\\ b push; ls",
        "git <<E push\nx\nE",
        "git -C 'a;b' push;",
        "git -C 'a\nb' push",
        'git -C "a(b" push && ls',
        "git -C a{b} push; ls",
        "git -C a\u00a0b push",
        "git -C ! push; ls",
        "git -c alias.p=push p",
        "sh -c \"git -C 'a b' push\"",
        "eval git -C \\'a b\\' push",
        "echo push | xargs git",
        "echo push | xargs -n1 git -C x 2>/dev/null",
        "git $X",
        "git {push,}",
    ],
)
def test_subcommands_that_are_denied(command):
    """A denied subcommand is found behind options and redirections, and where file names could complete it."""
    assert not runs(command, ["Bash"], ["Bash(git push *)"])


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("docker compose -f prod.yml down -v", "docker compose down *"),
        ("docker -H x compose -f a -p b down", "docker compose down *"),
        ("gh pr -R o/r merge 5", "gh pr merge *"),
        ("kubectl rollout -n x restart d", "kubectl rollout restart *"),
        ("aws s3 --region eu rm s3://x", "aws s3 rm *"),
        ("cargo +nightly publish", "cargo publish *"),
        ("git push origin --force", "git push --force *"),
        ("git push origin --force=yes", "git push --force *"),
        ("git -C x push -f origin main", "git push * main"),
        ("rm -fr x", "rm -rf *"),
        ("rm -v x -r -f", "rm -rf *"),
        ("rm -r -f -- /", "rm -rf /"),
        ("git -C x push", "git push"),
        ("git push x", "git  push  *"),
        ("git push x", "git 'push' *"),
        ("rm x", "/bin/rm *"),
        ("bash deploy.sh x", "./deploy.sh *"),
        ("/usr/bin/pi? --x install y", "pip* install *"),
        ("cd x && curl y | sh", "curl * | sh"),
    ],
)
def test_options_between_and_elsewhere(command, rule):
    """Options may stand anywhere, short ones together or alone; paths, quotes and spaces do not count."""
    assert not runs(command, ["Bash"], [f"Bash({rule})"])


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("git pull", "git push *"),
        ("git log push", "git push *"),
        ("git add *", "git push *"),
        ("git ls-files | xargs wc -l", "git push *"),
        ("npm run publish", "npm publish *"),
        ("git push origin", "git push --force *"),
        ("git push origin dev", "git push * main"),
        ("git push origin", "git push"),
        ("rm -r x", "rm -rf *"),
        ("docker compose up down", "docker compose down *"),
        ("scripts/x y", "./scripts/* z"),
    ],
)
def test_other_subcommands_are_not_denied(command, rule):
    """Another subcommand, or a part of the options, is not meant."""
    assert runs(command, ["Bash"], [f"Bash({rule})"])


def test_denied_pipes():
    """A denial may be of a whole compound command."""
    assert not runs("cd x && curl y | sh", ["Bash"], ["Bash(curl * | sh)"])


def test_denied_commands_of_monitor():
    """Monitor runs commands as Bash does, so denials of commands hold for it."""
    assert isinstance(answer(unattended(["Monitor"], ["Bash(rm *)"]), "Monitor", command="rm x"), Deny)
    assert isinstance(answer(unattended(["Monitor"], ["Bash(rm *)"]), "Monitor"), Deny)
    for every in ("Bash", "Bash(*)"):
        assert isinstance(answer(unattended(["Monitor"], [every]), "Monitor", command="ls"), Deny)
    assert isinstance(answer(unattended(["Bash"], ["Monitor"]), "Bash", command="ls"), Allow)


@pytest.mark.parametrize(
    "command",
    [
        "git -x " * 600,
        "git - - - " * 400,
        "git " * 1200,
        "a/" * 2400,
        "'" * 4999,
        "*" * 4999,
        "git *" * 900,
        '"\\' * 2400,
        "|" * 4999,
        "[" * 4999,
        "xargs " * 800,
        "zz? " * 1200,
        "git " + "? " * 2000,
        "cat <<E\n" * 600,
        "git a=push " * 450,
        "sudo -x " * 600,
    ],
)
def test_rules_answer_at_once(command):
    """No command, however made, keeps the preset busy: it is also what a model can be made to send."""
    begin = time.process_time()
    for allow in (["Bash(git * x * y * z)"], ["Bash"]):
        runs(command, allow, ["Bash(git * push * x * y)", "Bash(rm *)"])
    assert time.process_time() - begin < 3.0


def test_spoken_gives_up():
    """What can be anything is unclear, not harmless."""
    with pytest.raises(Unclear):
        list(spoken("$X"))


# --- paths ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("Edit(src/**)", "/srv/app/src/a/b.py"),
        ("Edit(./src/**)", "/srv/app/src/b.py"),
        ("Edit(/src/**)", "/srv/app/src/b.py"),
        ("Edit(src/)", "/srv/app/src/b.py"),
        ("Edit(src/**)", "src/b.py"),
        ("Edit(src/*.py)", "/srv/app/src/b.py"),
        ("Edit(**/*.md)", "/srv/app/a/b/c.md"),
        ("Edit(**/*.md)", "/srv/app/c.md"),
        ("Edit(a?.txt)", "/srv/app/ab.txt"),
        ("Edit(//etc/app/**)", "/etc/app/x"),
        ("Edit(//etc/app/**)", "/etc//app/./x"),
        ("Edit(~/notes/**)", "/home/u/notes/x"),
        ("Edit(~/notes/**)", "~/notes/x"),
        ("Edit(**)", "/srv/app/x"),
    ],
)
def test_paths_that_are_meant(rule, path):
    """A path that fits the whole pattern is allowed."""
    assert edits(path, [rule], cwd=CWD, home="/home/u")


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("Edit(src/**)", "/srv/app/src"),
        ("Edit(src/**)", "/srv/app/srcx/b.py"),
        ("Edit(src/**)", "/srv/app/src/../x"),
        ("Edit(src/**)", "/srv/app/src/../../../etc/passwd"),
        ("Edit(src/**)", "/other/src/b.py"),
        ("Edit(src/**)", "/srv/app/a/src/b.py"),
        ("Edit(src/**)", "/SRV/app/src/b.py"),
        ("Edit(src/**)", "../src/b.py"),
        ("Edit(src/**)", "/srv/app/src/\0"),
        ("Edit(src/**)", ""),
        ("Edit(src/*.py)", "/srv/app/src/a/b.py"),
        ("Edit(*.md)", "/srv/app/a/b.md"),
        ("Edit(src)", "/srv/app/src/x"),
        ("Edit(a.c)", "/srv/app/abc"),
        ("Edit(a.c)", "/srv/app/a.c\n"),
        ("Edit(//etc/app/**)", "/srv/app/etc/app/x"),
        ("Edit(~/notes/**)", "~bob/notes/x"),
        ("Edit(**)", "/etc/passwd"),
        ("Edit(**)", "/srv/app"),
        ("Edit(**)", "/" + "x/" * 3000),
        ("Read(src/**)", "/srv/app/src/b.py"),
    ],
)
def test_paths_that_are_not_surely_meant(rule, path):
    """Anything beside the pattern, or that could lead out of it, is denied."""
    assert not edits(path, [rule], cwd=CWD, home="/home/u")


def test_place_with_two_names():
    """Of a directory that has two names the model may use either, and each file of it is one file."""
    made = unattended(["Edit(src/**)", "Edit(~/x)"], ["Edit(~/y)"], cwd="/link/app", home="/link/u")
    made = made.named(lambda path: (path, path.replace("/link", "/real")))
    for path in ("/link/app/src/x", "/real/app/src/x", "src/x", "/real/u/x", "~/x"):
        assert isinstance(answer(made, "Edit", file_path=path), Allow), path
    for path in ("/other/app/src/x", "/link/u/y", "/real/u/y", "~/y"):
        assert isinstance(answer(made, "Edit", file_path=path), Deny), path


@pytest.mark.parametrize("given", ["app", "./app", "app/../app", Path("app"), "link", None])
def test_run_gives_its_places(given, tmp_path, monkeypatch):
    """A run's working directory may be relative, hold `..` or be a link: rules mean what is in it."""
    (tmp_path / "app").mkdir()
    (tmp_path / "link").symlink_to("app")
    monkeypatch.chdir(tmp_path if given else tmp_path / "app")
    settled = _settled({"unattended": unattended(["Edit(src/**)"]), **({"cwd": given} if given else {})})
    for base in {tmp_path / "app", tmp_path / "link"} if given == "link" else {tmp_path / "app"}:
        assert isinstance(answer(settled["can_use_tool"], "Edit", file_path=f"{base}/src/x"), Allow)
    assert isinstance(answer(settled["can_use_tool"], "Edit", file_path=f"{tmp_path}/src/x"), Deny)


def test_a_path_rule_that_limits_nothing(play):
    """With `acceptEdits`, the mode where none is named, all of `cwd` may be edited: a warning says so."""
    client = Client(cli_path=play(init(), result("x")).path, unattended=unattended(["Read", "Edit(src/**)"]))
    with pytest.warns(UserWarning, match=r"'Edit\(src/\*\*\)' limits nothing: .*permission_mode='default'"):
        client.ask("x")
    client.ask("x", permission_mode="default")


def test_a_path_rule_that_begins_elsewhere_than_it_seems_to(play, tmp_path):
    """With one `/` it begins at `cwd`: one that names `cwd` allows nothing, and a warning says what to write."""
    rules = {slashes: f"Edit({slashes}{str(tmp_path)[1:]}/src/**)" for slashes in ("/", "//")}
    client = Client(cli_path=play(init(), result("x")).path, cwd=tmp_path, permission_mode="default")
    with pytest.warns(UserWarning, match=r"allows nothing: .*an absolute one with //"):
        client.ask("x", unattended=unattended([rules["/"]]))
    client.ask("x", unattended=unattended([rules["//"], "Edit(/src/**)", f"Bash({tmp_path}/check.sh *)"]))


@pytest.mark.parametrize("rule", ["Edit", "Edit(**)", "Edit(//srv/**)", "Edit(~/x)", "Read(src/**)"])
def test_a_path_rule_that_does_something(play, rule):
    """Is not warned about."""
    Client(cli_path=play(init(), result("x")).path, unattended=unattended([rule])).ask("x")


def test_own_places_have_all_their_names(tmp_path):
    """A link that is given to `unattended` itself is known by both names, too."""
    (tmp_path / "link").symlink_to(tmp_path)
    settled = _settled({"unattended": unattended(["Edit(x)"], cwd=tmp_path / "link")})
    assert isinstance(answer(settled["can_use_tool"], "Edit", file_path=f"{tmp_path}/x"), Allow)


@pytest.mark.parametrize(
    ("inherited", "env", "allowed"),
    [("/home/u", None, True), ("/home/v", {"HOME": "/home/u"}, True), ("/home/v", None, False), ("u", None, False)],
)
def test_run_gives_the_clis_home(inherited, env, allowed, monkeypatch):
    """`~` is the home that the CLI gets; one that is not absolute is none."""
    monkeypatch.setenv("HOME", inherited)
    settled = _settled({"unattended": unattended(["Edit(~/x)"]), "env": env})
    assert isinstance(answer(settled["can_use_tool"], "Edit", file_path="/home/u/x"), Allow) is allowed


def test_run_in_a_removed_directory(tmp_path, monkeypatch):
    """Where there is no working directory, no rule means what is in it."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    settled = _settled({"unattended": unattended(["Edit(x)"])})
    assert isinstance(answer(settled["can_use_tool"], "Edit", file_path=f"{tmp_path}/gone/x"), Deny)


def test_relative_rules_need_a_place():
    """Without a working directory or home a relative rule allows no absolute path."""
    assert not edits("/srv/app/src/x", ["Edit(src/**)", "Edit(**)", "Edit(~/**)"])
    assert edits("src/x", ["Edit(src/**)"])


def test_places_can_be_given_later():
    """`at` gives the places of a run, and does not overrule the caller's own."""
    made = unattended(["Edit(src/**)"])
    assert isinstance(answer(made.at(Path("/srv/app")), "Edit", file_path="/srv/app/src/x"), Allow)
    assert isinstance(answer(made.at("/a").at("/srv/app"), "Edit", file_path="/srv/app/src/x"), Deny)


def test_working_directory_holds_no_pattern():
    """Special characters in the working directory are its name."""
    assert edits("/srv/a+(b)*/x", ["Edit(**)"], cwd="/srv/a+(b)*")
    assert not edits("/srv/a+(b)c/x", ["Edit(**)"], cwd="/srv/a+(b)*")


@pytest.mark.parametrize("tool", ["Edit", "Write", "MultiEdit"])
def test_edit_paths_are_for_all_that_edit(tool):
    """`Edit(path)` is for every tool that edits files, as in the CLI."""
    assert edits("/srv/app/src/x", ["Edit(src/**)"], tool=tool, cwd=CWD)


def test_notebooks():
    """NotebookEdit names its file otherwise, and only that name counts."""
    made = unattended(["Edit(src/**)"], cwd=CWD)
    assert isinstance(answer(made, "NotebookEdit", notebook_path="/srv/app/src/x"), Allow)
    assert isinstance(answer(made, "NotebookEdit", file_path="/srv/app/src/x", notebook_path="/etc/x"), Deny)


def test_bare_names_are_one_tool():
    """`Edit` without a path is that tool alone, as in the CLI: Write needs its own rule."""
    assert not edits("/srv/app/x", ["Edit"], tool="Write")


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("Edit(secret/**)", "/srv/app/secret/x"),
        ("Edit(secret)", "/srv/app/secret/x"),
        ("Edit(secret/)", "/srv/app/secret/x"),
        ("Edit(secret/**)", "/private/srv/app/secret/x"),
        ("Edit(secret/**)", "/srv/app/SECRET/x"),
        ("Edit(secret/**)", "/srv/app/sec\u200cret/x"),
        ("Edit(secret/**)", "/srv/app/public/../secret/x"),
        ("Edit(secret/**)", "/srv/app/x/.."),
        ("Edit(secret/**)", "secret/x"),
        ("Edit(secret/**)", "~bob/x"),
        ("Edit(*.env)", "/srv/app/a/b/.env"),
        ("Edit(*.env)", "prod.env"),
        ("Edit(/etc/passwd)", "/etc/passwd"),
        ("Edit(//etc)", "/etc/passwd"),
        ("Edit(~/x)", "/home/u/x"),
        ("Edit(caf\u00e9)", "/srv/app/cafe\u0301"),
        ("Read(secret/**)", "/srv/app/secret/x"),
        ("Edit(//srv/app/x)", "x"),
        ("Edit(//etc/passwd)", "/proc/self/root/etc/passwd"),
        ("Edit(//etc/passwd)", "/proc/self/task/1/root/etc/passwd"),
        ("Edit(//etc/passwd)", "/PROC/1/cwd/passwd"),
        ("Edit(//etc/passwd)", "/dev/fd/3/passwd"),
        ("Edit(//etc/passwd)", "/.vol/1/2/etc/passwd"),
        ("Edit(//etc/passwd)", "/private/etc/passwd"),
        ("Edit(//private/etc/**)", "/etc/passwd"),
        ("Edit(~/x)", "/System/Volumes/Data/home/u/x"),
        ("Edit(secret/**)", 3),
    ],
)
def test_paths_that_might_be_denied(rule, path):
    """A denial takes the wider reading: any depth, what lies below, any case, other names of a place."""
    assert not edits(path, ["Edit"], [rule], cwd=CWD, home="/home/u")


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("Edit(secret/**)", "/srv/app/public/x"),
        ("Edit(//etc/**)", "/srv/app/etc"),
        ("Edit(~/x)", "/srv/app/x"),
        ("Edit(*.env)", "/srv/app/env"),
        ("Edit(//etc/passwd)", "/proc/cpuinfo"),
        ("Edit(//etc/passwd)", "/srv/proc/root/etc/passwd"),
        ("Edit(//etc/passwd)", "/private/passwd"),
    ],
)
def test_paths_that_are_not_denied(rule, path):
    """What cannot be meant is still allowed."""
    assert edits(path, ["Edit"], [rule], cwd=CWD, home="/home/u")


def test_denied_files_cannot_be_searched():
    """Where reading something is denied every search is: what it would find cannot be told."""
    made = unattended(["Grep", "Glob", "Read"], ["Read(secret/**)"])
    assert isinstance(answer(made, "Grep", pattern="x"), Deny)
    assert isinstance(answer(made, "Glob", pattern="**"), Deny)
    assert isinstance(answer(made, "Read", file_path="/srv/app/x"), Allow)
    assert isinstance(answer(unattended(["LSP"], ["Read(secret/**)"]), "LSP", filePath="/srv/secret/x"), Deny)


def test_reading_what_must_not_be_edited():
    """A denied edit does not deny reading."""
    assert isinstance(answer(unattended(["Read"], ["Edit(secret/**)"]), "Read", file_path="/srv/secret/x"), Allow)


# --- hosts ------------------------------------------------------------------------------------------


def fetches(url, allow=(), deny=()):
    return isinstance(answer(unattended(allow, deny), "WebFetch", url=url), Allow)


@pytest.mark.parametrize(
    ("rule", "url"),
    [
        ("domain:example.com", "https://example.com"),
        ("domain:example.com", "http://EXAMPLE.com/a?b=c#d"),
        ("domain:Example.com", "https://example.com/a"),
        ("domain:*.example.com", "https://a.b.example.com/"),
    ],
)
def test_hosts_that_are_meant(rule, url):
    """A host is allowed by its name, hosts below it by `*.`."""
    assert fetches(url, [f"WebFetch({rule})"])


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example.com",
        "https://example.com.evil.org",
        "https://evilexample.com",
        "https://example.com@evil.org",
        "https://evil.org/example.com",
        "https://evil.org?https://example.com",
        "https://evil.org\\@example.com",
        "https://example.com\\@evil.org",
        "https://example.com:8080",
        "https://example.com.",
        "https:example.com",
        "https:///example.com",
        "https://example.com\n.evil.org",
        "https://example.com/\n",
        " https://example.com",
        "ftp://example.com",
        "file:///etc/passwd",
        "example.com",
        "https://ex\u0430mple.com",
        "",
        None,
    ],
)
def test_hosts_that_are_not_surely_meant(url):
    """Another host, port or scheme, or an address that could be read in two ways, is denied."""
    assert not fetches(url, ["WebFetch(domain:example.com)"])


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://a.example.com",
        "https://example.com.",
        "https://EXAMPLE.com:8080",
        "https://x@example.com",
        "https:example.com",
        "https://kick.com",
        "https://\u212aick.com",
        "https://ki\u017f.com",
        "http://127.1",
        "http://0x7f000001",
        "http://2130706433/",
        "http://127.0.0.01",
        None,
    ],
)
def test_hosts_that_might_be_denied(url):
    """A denied host is denied with all below it, with every odd address, and in letters that are read as others."""
    hosts = ("example.com", "kick.com", "kis.com", "127.0.0.1")
    assert not fetches(url, ["WebFetch"], [f"WebFetch(domain:{host})" for host in hosts])


def test_other_hosts_are_not_denied():
    """What cannot be that host is allowed."""
    assert fetches("https://example.org/x", ["WebFetch"], ["WebFetch(domain:example.com)"])
    assert fetches("http://10.0.0.2", ["WebFetch"], ["WebFetch(domain:10.0.0.1)"])


# --- MCP, subagents, skills -------------------------------------------------------------------------


def test_command_with_a_star_is_denied_bare_too():
    """`Bash(rm *)` is `rm` with arguments and without; `Bash(rm)` is the bare command."""
    assert not runs("rm", ["Bash"], ["Bash(rm *)"])
    assert not runs("rm x", ["Bash"], ["Bash(rm *)"])
    assert not runs("rm", ["Bash"], ["Bash(rm)"])


SERVER_GLOBS = ["mcp__*", "mcp__**", "mcp__sh*", "mcp__shop*", "mcp__shop_*", "mcp__sh*__price", "mcp__*price"]
TOOL_GLOBS = ["mcp__shop__pr*", "mcp__shop__*ce", "mcp__shop__p*c*", "mcp__shop__**", "mcp__shop__*()", "mcp__shop(*)"]


@pytest.mark.parametrize("rule", [*SERVER_GLOBS, *TOOL_GLOBS])
def test_globs_deny_tools(rule):
    """To deny, the whole name is compared, and `*` is anything in it."""
    assert isinstance(answer(unattended(["mcp__shop__price"], [rule]), "mcp__shop__price"), Deny)


@pytest.mark.parametrize("rule", SERVER_GLOBS)
def test_globs_of_servers_allow_nothing(rule):
    """The CLI passes over them, so they are a ValueError."""
    with pytest.raises(ValueError, match="names its server"):
        unattended([rule])


@pytest.mark.parametrize("rule", TOOL_GLOBS)
def test_globs_allow_tools(rule):
    """To allow, they mean tools of the server that is written out."""
    asked = PermissionRequest("mcp__shop__price", mcp_server={"name": "shop", "source": "sdk"})
    assert isinstance(unattended([rule])(asked), Allow)
    for name in ("mcp__shop", "mcp__shopping__price", "mcp__Shop__price"):
        assert isinstance(answer(unattended([rule]), name), Deny)


@pytest.mark.parametrize(
    ("rule", "server", "meant"),
    [
        ("mcp__my__*", "my__db", False),
        ("mcp__my__d*", "my__db", False),
        ("mcp__my__db__*", "my__db", True),
        ("mcp__my__db__dr*", "my__db", True),
        ("mcp__my__db__*", "my", True),
        ("mcp__my__d*", "my", True),
        ("mcp__my__e*", "my", False),
    ],
)
def test_globs_and_servers_with_underscores(rule, server, meant):
    """`mcp__my__db__drop` is `drop` of my__db, or `db__drop` of my: the server must stand before the `*`."""
    asked = PermissionRequest("mcp__my__db__drop", mcp_server={"name": server, "source": "sdk"})
    assert isinstance(unattended([rule])(asked), Allow if meant else Deny)


@pytest.mark.parametrize("rule", ["mcp__shop", "mcp__shop__*", "mcp__shop__price"])
def test_mcp_tools(rule):
    """A server's tools are allowed by the server's name, or one by its own."""
    assert isinstance(answer(unattended([rule]), "mcp__shop__price"), Allow)


@pytest.mark.parametrize(
    "tool", ["mcp__shopping__price", "mcp__shop", "mcp__other__shop__price", "shop__price", "mcp__Shop__price"]
)
def test_other_mcp_tools(tool):
    """A name that only begins alike is another server."""
    assert isinstance(answer(unattended(["mcp__shop", "mcp__shop__*"]), tool), Deny)


def test_server_whose_name_continues():
    """The tools of a server `shop__admin` are not the server `shop`'s, though their names begin alike."""
    asked = PermissionRequest("mcp__shop__admin__drop", mcp_server={"name": "shop__admin", "source": "sdk"})
    assert isinstance(unattended(["mcp__shop"])(asked), Deny)
    assert isinstance(unattended(["mcp__shop__admin__drop"])(asked), Allow)


def test_server_with_another_spelling():
    """The CLI writes a server's name with underscores for what a tool's name cannot hold."""
    asked = PermissionRequest("mcp__my_shop__price", mcp_server={"name": "my.shop", "source": "sdk"})
    assert isinstance(unattended(["mcp__my_shop"])(asked), Allow)


def test_denied_mcp_tools():
    """A denied server, or one tool of an allowed one."""
    assert isinstance(answer(unattended(["mcp__shop"], ["mcp__shop__drop"]), "mcp__shop__drop"), Deny)
    assert isinstance(answer(unattended(["mcp__shop__price"], ["mcp__shop"]), "mcp__shop__price"), Deny)


def test_denied_server_with_underscores():
    """`mcp__my__db` may be a tool or a whole server: denied are both, allowed is only the tool."""
    asked = PermissionRequest("mcp__my__db__drop", mcp_server={"name": "my__db", "source": "sdk"})
    assert isinstance(unattended(["mcp__my__db__drop"], ["mcp__my__db"])(asked), Deny)
    assert isinstance(unattended(["mcp__my__db"])(asked), Deny)
    assert isinstance(unattended(["mcp__my__db__drop"], ["mcp__my__d"])(asked), Allow)


def test_subagents():
    """A kind of subagent, under the new and the old name of the tool."""
    made = unattended(["Agent(Explore)"])
    assert isinstance(answer(made, "Task", subagent_type="Explore"), Allow)
    assert isinstance(answer(made, "Agent", subagent_type="general-purpose"), Deny)
    assert isinstance(answer(made, "Agent"), Deny)


def test_denied_subagents():
    """A denied kind, and a call that does not say which."""
    made = unattended(["Agent"], ["Task(Explore)"])
    assert isinstance(answer(made, "Agent", subagent_type="explore"), Deny)
    assert isinstance(answer(made, "Agent"), Deny)
    assert isinstance(answer(made, "Agent", subagent_type="Plan"), Allow)


def test_skills():
    """A skill alone, or with any arguments."""
    assert isinstance(answer(unattended(["Skill(review)"]), "Skill", skill="review"), Allow)
    assert isinstance(answer(unattended(["Skill(review)"]), "Skill", skill="review", args="x"), Deny)
    assert isinstance(answer(unattended(["Skill(review *)"]), "Skill", skill="review", args="x"), Allow)
    for name in ("/review", " Review\n", "plugin:review"):
        assert isinstance(answer(unattended(["Skill"], ["Skill(review)"]), "Skill", skill=name), Deny)
    assert isinstance(answer(unattended(["Skill"], ["Skill(review)"]), "Skill", skill="preview"), Allow)


# --- against a real shell ---------------------------------------------------------------------------

# Tells which commands the shell would have run; there are none in its PATH.
TELL = 'command_not_found_handle(){ echo "RAN:$1" >&2; return $((RANDOM % 2)); }\n'
PIECES = [
    *(
        "q",
        "a",
        "qa",
        "b",
        " ",
        " ",
        " ",
        ";",
        "|",
        "&",
        "&&",
        "||",
        "\n",
        "\t",
        "'",
        '"',
        "#",
        "\\",
        "{",
        "}",
        ",",
        "(",
    ),
    *(")", "!", "=", "~", "*", "?", "[", "]", "-", "<", "$", "`", ":", "\u00a0", "eval ", "command ", "exec "),
]
# What hides a command: programs of their own are needed for some of it.
HIDING = [
    *("q?", "[q]a", "'q'a", "./q?", "d/*", "A=1 ", "if ", "; then ", "; fi", "for i in ", "; do ", "; done", "$i"),
    *("<<E\n", "<<'E'\n", "\nE\n", "<<<", "$(", "sh -c ", "bash ", "xargs ", "echo ", "cat ", "env ", "2>&1 "),
    *(" >/dev/null ", " </dev/null ", "case x in x) ", ";; esac", "f(){ ", "; }", "\nf ", "\\\n", "((", "))", "\\;"),
    *("find . -exec ", "{} ", "timeout 5 ", "printf ", "# x\n"),
]
needs_bash = pytest.mark.skipif(not Path("/bin/bash").exists(), reason="there is no /bin/bash")


def ran(command, folder, path="/nonexistent"):
    done = subprocess.run(
        ["/bin/bash", "--norc", "--noprofile", "-c", TELL + command],
        env={"PATH": path},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    return set(re.findall(rb"^RAN:(.*)$", done.stderr, re.MULTILINE))


def made_up(seed, good, count=40, of=PIECES):
    """Commands of random pieces, those for which `good` is true."""
    pieces, found = random.Random(seed), []
    while len(found) < count:
        command = "".join(pieces.choice(of) for _ in range(pieces.randint(3, 14)))
        if good(command):
            found.append(command)
    return found


@needs_bash
@pytest.mark.parametrize("seed", range(2))
def test_shell_runs_only_what_was_compared(seed, tmp_path):
    """Of commands that are allowed as `qa` or `b` the shell runs nothing else."""
    rules = ["Bash(qa *)", "Bash(b *)"]
    for command in made_up(seed, lambda text: runs(text, rules)):
        assert ran(command, tmp_path) <= {b"qa", b"b"}, command


@needs_bash
@pytest.mark.parametrize("seed", range(2))
def test_shell_runs_nothing_that_is_denied(seed, tmp_path):
    """Of commands that pass the denial of `qa` the shell never runs it, with a file of that name there."""
    (tmp_path / "qa").touch()
    for command in made_up(seed, lambda text: "q" in text and "a" in text and runs(text, ["Bash"], ["Bash(qa *)"])):
        assert b"qa" not in ran(command, tmp_path), command


@needs_bash
@pytest.mark.parametrize("seed", range(2))
def test_shell_runs_nothing_that_is_hidden(seed, tmp_path):
    """Nor behind what runs other programs, fills names in, or reads commands."""
    programs, work = tmp_path / "programs", tmp_path / "work"
    (work / "d").mkdir(parents=True)
    programs.mkdir()
    (programs / "qa").write_text("#!/bin/sh\necho RAN:qa >&2\n")
    (programs / "qa").chmod(0o700)
    for name in ("sh", "bash", "xargs", "env", "find", "cat", "timeout"):
        (programs / name).symlink_to(shutil.which(name))
    for place in (work, work / "d"):
        (place / "qa").symlink_to(programs / "qa")
    for command in made_up(seed, lambda text: runs(text, ["Bash"], ["Bash(qa *)"]), of=PIECES + HIDING):
        assert b"qa" not in ran(command, work, str(programs)), command
