"""The guard: a small shell process that ends our runs when we cannot, because we are dead.

SIGKILL, `os._exit`, SIGTERM without a handler, the OOM killer: nothing of ours runs then, and the
CLI notices nothing and finishes its turn. So the first run of a host process starts one guard. It
blocks in a read from a pipe whose write end only the host holds; when the pipe breaks, the host is
gone, and the guard runs the same ladder that the host would have run.

Which runs are on stands in a nameless file that both hold: one record of fixed size per run,
written by one `pwrite`, blank when the run is over. Told by lines in the pipe instead, the guard
would have to read each line as it comes, and a POSIX `read` takes a pipe byte by byte: 0.2 ms of
CPU for every turn, and a full pipe under load. This way it costs nothing until it is needed.

    ID PGID START-TIME      first "ID 0 0", before the CLI is started, so that a host killed in
                            between leaves nothing either; the rest after `STARTING`

It is a fixed script for a POSIX `sh`, never `sys.executable`, which under uWSGI or PyInstaller is
not a Python. It has its own session, ignores TERM and HUP (a service manager signals everybody
first and kills later), and no descriptor of ours but these two. A broken guard must not break a
run: it is replaced at the next start, and if none can be started a warning is logged.

`CLAUDE_CLI_CLIENT_GUARD=0` switches it off.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from . import _fork
from ._process import anonymous_file, temporary_base
from .options import MARKER

SWITCH = "CLAUDE_CLI_CLIENT_GUARD"

# Seconds from a start until its leader is noted, unless its ladder begins before. The kernel keeps whoever
# reads /proc/PID/stat waiting while that process is in its exec, 0.3 ms, and with him the caller of the
# start. A CLI takes 100 ms to begin with anything; one whose host dies before is found by the marker. That
# there is only on Linux; and behind a prefix, which may clear the environment, the leader is noted at once.
STARTING = 0.05 if sys.platform == "linux" else 0.0

# $1: the folder of temporary files. stdin: the records. stdout: the *read* end of the pipe (a shell
# can name descriptors up to 9 only, and these two are the ones `Popen` can put where we want them).
# Only builtins, `sleep`, `grep`, `ps`, `rm`.
#
# A leader is signalled only if its start time is the one in the record: its number may have been
# given to somebody else since. Whatever got away is found by the marker in its environment.
_SCRIPT = (
    r"""
trap '' HUP INT QUIT TERM PIPE
while read -r word <&1; do :; done
exec >/dev/null
runs= pending=
while read -r id pgid start; do
  [ -z "$id" ] || runs="$runs $id/$pgid/$start"
  [ "$pgid" != 0 ] || pending=x
done
[ -n "$runs" ] || exit 0

# stat_of PID: sets state, parent, member (its group) and started; fails when there is no such process.
stat_of() {
  if [ -d /proc/self ]; then
    { read -r line < "/proc/$1/stat"; } 2>/dev/null || return 1
    set -- ${line##*) }
    state=$1 parent=$2 member=$3 started=${20}
  else
    set -- $(ps -o state= -o ppid= -p "$1" 2>/dev/null)
    [ -n "$2" ] || return 1
    state=$1 parent=$2 started=0
  fi
}
# alive RUN: whether its leader is the process we were told of; sets id and pgid.
alive() {
  id=${1%%/*} rest=${1#*/}
  pgid=${rest%%/*} told=${rest#*/}
  [ "$pgid" != 0 ] && stat_of "$pgid" && [ "${state#Z}" = "$state" ] && [ "$told" = "$started" ]
}
any_alive() {
  for run in $runs; do alive "$run" && return 0; done
  return 1
}
# table: PID:PARENT of all processes.
table() {
  if [ -d /proc/self ]; then
    for entry in /proc/[0-9]*; do
      stat_of "${entry#/proc/}" && echo "${entry#/proc/}:$parent"
    done
  else
    ps -A -o pid= -o ppid= | while read -r pid parent; do echo "$pid:$parent"; done
  fi
}
# below PID: the processes whose parent links lead to it.
below() {
  tree=" $1 " found=x
  while [ -n "$found" ]; do
    found=
    for entry in $all; do
      case $tree in *" ${entry%:*} "*) continue ;; esac
      case $tree in *" ${entry#*:} "*) tree="$tree${entry%:*} " found=x ;; esac
    done
  done
  echo "$tree"
}
# What was being started when the host died goes on to its exec, and carries the marker only then.
starting() {
  [ -n "$pending" ] && [ $turns -lt 4 ]
}
groups=
for run in $runs; do
  alive "$run" && kill -TERM "-$pgid" && groups="$groups $pgid"
done 2>/dev/null
# lives GROUP: its leader may have been a wrapper, which died of the TERM while the CLI has to write its end.
lives() {
  kill -0 "-$1" 2>/dev/null || return 1
  [ -d /proc/self ] || return 0
  for entry in /proc/[0-9]*; do
    stat_of "${entry#/proc/}" && [ "$member" = "$1" ] && [ "${state#Z}" = "$state" ] && return 0
  done
  return 1
}
any_left() {
  any_alive && return 0
  for group in $groups; do lives "$group" && return 0; done
  return 1
}
# 2.7 s in all. Each look costs a fork, which takes long on a machine under load: few, and the first ones early.
turns=0 whole=0
for pause in 0.1 0.2 0.4 0.5 0.5 0.5 0.5; do
  any_left || starting || break
  sleep $pause 2>/dev/null || { sleep 1; whole=$((whole + 1)); }
  turns=$((turns + 1))
  [ $whole -lt 3 ] || break
done
any_alive && all=$(table)
for run in $runs; do
  if alive "$run"; then
    group=$pgid
    for pid in $(below "$group"); do kill -KILL "$pid"; done
    kill -KILL "-$group"
  fi
done 2>/dev/null
# sweep ID: whatever carries this run's marker, until nothing is found.
sweep() {
  turns=0
  while [ $turns -lt 10 ]; do
    # Not its exit status: that is 2 as soon as one of the files could not be read.
    left=$(grep -l "MARKER=[0-9a-f:]*$1" /proc/[0-9]*/environ 2>/dev/null)
    [ -n "$left" ] || return
    for entry in $left; do entry=${entry#/proc/}; kill -KILL "${entry%/environ}" 2>/dev/null; done
    turns=$((turns + 1))
  done
}
# Twice, because a process in the middle of an exec shows no environment.
for run in $runs; do sweep "${run%%/*}"; done
sleep 0.1 2>/dev/null
for run in $runs; do
  sweep "${run%%/*}"
  rm -rf "$1"/claude_cli_client-*-"${run%%/*}"*
done
""".strip().replace("MARKER", MARKER)
)

# An id of 32, a pid of at most 7, a start time of at most 20 digits, two blanks, a newline. It divides
# a page: a host that is killed in the middle of a write leaves the old record or the new one.
_RECORD = 64
_BLANK = b" " * (_RECORD - 1) + b"\n"

# Protects what follows; taken by reader threads only, so no Ctrl-C can come in between.
_lock = threading.Lock()
_pid = 0
_pipe_fd = -1  # the write end
_records_fd = -1
_places: dict[str, int] = {}  # where each run's record stands
_free: list[int] = []


def begin(run_id: str, pgid: int = 0, start: str = "") -> OSError | None:
    """Note a run for the guard, which is started or replaced if need be; what prevented it."""
    if os.environ.get(SWITCH) == "0":
        return None
    record = f"{run_id} {pgid} {start or 0}".ljust(_RECORD - 1).encode() + b"\n"
    with _lock:
        problem = None if pgid or _is_running() else _start()
        if _records_fd >= 0:
            place = _places.get(run_id)
            if place is None:
                place = _places[run_id] = _free.pop() if _free else len(_places)
            problem = _note(record, place) or problem
    return problem


def end(run_id: str) -> None:
    """Nothing of this run is left."""
    with _lock:
        place = _places.pop(run_id, None)
        if place is not None and _note(_BLANK, place) is None:
            _free.append(place)


def _note(record: bytes, place: int) -> OSError | None:
    """Write a record; what prevented it. Called with `_lock` held.

    A full disk, a limit on file sizes, a host that closed descriptors which are not its own: then
    there is no guard until the next start makes a new one. A run must not break with it.
    """
    try:
        os.pwrite(_records_fd, record, place * _RECORD)
    except OSError as error:
        _forget()
        return error
    return None


def _forget() -> None:
    """Give up guard and records. The guard ends by itself when its pipe breaks. With `_lock` held."""
    global _pid, _pipe_fd, _records_fd
    fds, _pid, _pipe_fd, _records_fd = (_pipe_fd, _records_fd), 0, -1, -1
    _places.clear()
    _free.clear()
    for fd in fds:
        if fd >= 0:
            _fork.close(fd)


def _is_running() -> bool:
    """Whether the guard still lives. Reaps it if not; a host that reaps everything did it for us."""
    if not _pid:
        return False
    try:
        return os.waitpid(_pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def _start() -> OSError | None:
    """Start a guard on the records there are; what prevented it. Called with `_lock` held."""
    global _pid, _pipe_fd
    assert _lock.locked()
    if _pipe_fd >= 0:  # of a guard that died
        fd, _pid, _pipe_fd = _pipe_fd, 0, -1
        _fork.close(fd)
    try:
        with _fork.spawning:
            _pid = _spawn()
    except OSError as error:
        return error  # no sh, no processes left: runs go on without this net, as the switch allows too
    return None


def _spawn() -> int:
    """The guard's process id. Called with `_fork.spawning` held too."""
    global _pipe_fd, _records_fd
    if _records_fd < 0:
        _records_fd = anonymous_file(b"")
        _fork.descriptors.add(_records_fd)
    read_fd, _pipe_fd = os.pipe()
    _fork.descriptors.add(_pipe_fd)
    try:
        guard = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "claude-cli-client-guard", temporary_base()],
            stdin=_records_fd,
            stdout=read_fd,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C"},
            start_new_session=True,
        )
    finally:
        os.close(read_fd)
    guard.returncode = 0  # waited for in `_is_running`, not by its finaliser
    return guard.pid


def _forget_parents_guard() -> None:
    """In a forked child: the descriptors are closed already; our first run starts our own guard."""
    global _lock, _pid, _pipe_fd, _records_fd
    _lock = threading.Lock()
    _pid, _pipe_fd, _records_fd = 0, -1, -1
    _places.clear()
    _free.clear()


_fork.on_child(_forget_parents_guard)
