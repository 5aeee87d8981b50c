"""Why a program could not be executed, in words, and what to do about it.

`execve` answers with a number that often names the wrong thing: "No such file" for a file that is
there (its interpreter is missing), "Permission denied" for a disk mounted without programs. This
module looks at the file to find out which. It reads the first bytes of one file and asks for the
state of paths; it starts nothing, and raises nothing of its own: what cannot be found out is left out.
"""

from __future__ import annotations

import errno
import os
import signal
import struct
from typing import TYPE_CHECKING, Final

from ._handlers import is_absence, raise_hosts

if TYPE_CHECKING:
    from collections.abc import Callable

_MACHINES: Final = {3: "x86", 40: "arm", 62: "x86-64", 183: "arm64", 243: "riscv64", 22: "s390x", 21: "ppc64"}
_SAME_MACHINE: Final = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "arm64", "i686": "x86"}
_PT_INTERP: Final = 3

# What every other number means: the sentence, and whether trying again can help.
_SENTENCES: Final = {
    errno.E2BIG: (
        "arguments and environment are too long for this system (Linux: 128 KiB for one value); "
        + "give long texts by file, and shrink the environment (inherit_env=False)",
        False,
    ),
    errno.ENOMEM: ("there is not enough memory to start a process (the CLI itself needs 200 MB)", True),
    errno.EAGAIN: (
        "the system allows no more processes now (ulimit -u, or the pids limit of the container or service)",
        True,
    ),
    errno.EMFILE: ("this process has too many open files (ulimit -n)", True),
    errno.ENFILE: ("the system has too many open files", True),
    errno.ETXTBSY: ("the file is open for writing: an update is being written. Try again", True),
    errno.ELOOP: ("its symbolic links run in a circle", False),
    errno.EPERM: ("the system forbids it (a sandbox, seccomp, or a security module)", False),
    errno.EIO: ("the file cannot be read from its disk", True),
}

# Endings of `--version` that have a usual cause.
_SIGNALS: Final = {
    signal.SIGKILL: "out of memory, or refused by the system's signature check",
    signal.SIGILL: "it was built for a newer processor",
    signal.SIGSEGV: "the file may be damaged: install it again",
    signal.SIGBUS: "the file may be damaged or cut short: install it again",
    signal.SIGTRAP: "the file may be damaged: install it again",
}


def explain(argv0: str, error: OSError) -> tuple[str, bool]:
    """What went wrong when `argv0` was executed, and whether trying again can help."""
    named = "" if error.filename is None else os.fsdecode(error.filename)
    if named not in ("", argv0):
        if error.errno in _SENTENCES:
            sentence, retryable = _SENTENCES[error.errno]
            return f"cannot start {argv0}: {sentence} ({named})", retryable
        if not is_absence(error):  # of a network disk that is away
            return f"cannot start {argv0}: {named} cannot be looked at now: {error.strerror or error}", True
        return _folder(named, error), False
    look = _LOOKS.get(error.errno or 0)
    found = look(argv0) if look else ""
    if found:
        return f"cannot start {argv0}: {found}", False
    sentence, retryable = _SENTENCES.get(error.errno or 0, (error.strerror or str(error), False))
    return f"cannot start {argv0}: {sentence}", retryable


def not_executable(path: str, mode: int) -> str:
    """Why a regular file that is there may not be executed by us: the end of a sentence about it."""
    if not mode & 0o111:
        if _head(path, 4)[:2] in _BEGINNINGS:
            return f"is not executable; fix: chmod +x {path}"
        return "is not executable, and does not look like a program"
    if _is_noexec(path):
        return "is on a disk mounted noexec, where no program runs; put it elsewhere, or mount it with exec"
    return f"may not be executed by this user (mode {mode & 0o777:o}); fix: chmod a+rx {path}"


def why_it_ended(code: int, stderr: str) -> str:
    """Of an exit code other than 0 of `--version`: the end of a sentence about the program."""
    if code < 0:
        try:
            number = signal.Signals(-code)
        except ValueError:
            return f"died of signal {-code}"
        usual = _SIGNALS.get(number)
        return f"died of {number.name}" + (f" ({usual})" if usual else "")
    if code in (126, 127) and "env" in stderr and "node" in stderr:
        return f"failed with exit code {code}: this copy needs Node.js, and node is not on PATH"
    return f"failed with exit code {code}"


def _folder(folder: str, error: OSError) -> str:
    """`Popen` names the working directory when entering it failed."""
    if os.path.isdir(folder):
        return f"cannot enter the working directory {folder}: {error.strerror or error}"
    if os.path.lexists(folder):
        return f"the working directory {folder} is not a directory"
    return f"the working directory {folder} does not exist"


def _missing(path: str) -> str:
    if "/" not in path:
        return f"there is no program {path!r} on PATH"
    if not os.path.exists(path):
        if os.path.islink(path):
            return f"it is a symbolic link to {os.readlink(path)}, which does not exist"
        return "the file does not exist"
    interpreter = _interpreter(path)
    if interpreter.endswith("\r"):
        return f"its first line ends in CR LF, so the system looks for {interpreter!r}; save it with LF"
    if not interpreter or os.path.exists(interpreter):
        return "the file is there, but the program that is to load it is not"
    if os.path.basename(interpreter).startswith("ld-"):
        kind = "musl" if "musl" in interpreter else "glibc"
        return (
            f"it is built for {kind}, and its loader {interpreter} is not on this system. "
            "Install the build for this system's C library, or that library"
        )
    return f"its interpreter {interpreter} does not exist"


def _refused(path: str) -> str:
    if "/" not in path:  # a closed directory on PATH turns "not found" into this
        return f"there is no program {path!r} on PATH that this user may run"
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise_hosts(error)
        return "a directory on the way to it is closed to this user"
    if os.path.isdir(path):
        return "it is a directory"
    if not os.access(path, os.X_OK):
        return f"it {not_executable(path, mode)}"
    interpreter = _interpreter(path)
    if interpreter and not os.access(interpreter, os.X_OK):
        return f"its interpreter {interpreter} may not be executed"
    return "permission denied (a security module, or a sandbox around this process)"


def _foreign(path: str) -> str:
    head = _head(path)
    ours = _SAME_MACHINE.get(os.uname().machine.lower(), os.uname().machine.lower())
    if not head:
        return "the file is empty: an interrupted download? Install it again"
    if head[:4] == b"\x7fELF":
        if os.uname().sysname != "Linux":
            return f"it is built for Linux, and this is {os.uname().sysname}"
        theirs = _MACHINES.get(_elf_machine(head), "another processor")
        if theirs != ours:
            return f"it is built for {theirs}, and this machine is {ours}"
        return "the file is damaged: install it again"
    if head[:4] in (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"):
        return f"it is built for macOS on another processor than {ours}, or this is not macOS"
    if head[:2] == b"MZ":
        return "it is a Windows program"
    if head[:2] == b"#!":
        return "its first line names an interpreter that cannot be executed"
    return 'it is neither a program nor a script with a first line like "#!/bin/sh"'


_LOOKS: Final[dict[int, Callable[[str], str]]] = {
    errno.ENOENT: _missing,
    errno.ENOTDIR: _missing,
    errno.EACCES: _refused,
    errno.ENOEXEC: _foreign,
    getattr(errno, "EBADARCH", 86): _foreign,  # macOS
}


# --- looking at the file

# The first two bytes of a script, of a program on Linux, and of one on macOS.
_BEGINNINGS: Final = (b"#!", b"\x7fE", b"\xcf\xfa", b"\xca\xfe")


def _is_noexec(path: str) -> bool:
    flag = getattr(os, "ST_NOEXEC", 0)  # Linux
    try:
        return bool(os.statvfs(path).f_flag & flag)
    except OSError as error:
        raise_hosts(error)
        return False


def _head(path: str, size: int = 4096) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError as error:
        raise_hosts(error)
        return b""


def _interpreter(path: str) -> str:
    """What the system starts to run the file: the word after "#!", or the loader that ELF names."""
    head = _head(path)
    if head[:2] == b"#!":
        line = head[2:].split(b"\n", 1)[0].lstrip(b" \t")
        return os.fsdecode(line.split(b" ", 1)[0].split(b"\t", 1)[0])
    if head[:4] == b"\x7fELF":
        try:
            return _elf_loader(path, head)
        except (OSError, ValueError, struct.error, IndexError) as error:  # a damaged header
            raise_hosts(error)
            return ""
    return ""


def _elf_order(head: bytes) -> str:
    return ">" if head[5:6] == b"\x02" else "<"


def _elf_machine(head: bytes) -> int:
    if len(head) < 20:
        return 0
    machine: int = struct.unpack_from(_elf_order(head) + "H", head, 18)[0]
    return machine


def _elf_loader(path: str, head: bytes) -> str:
    """The text of the program header PT_INTERP. Offsets as in elf(5), for 64 and 32 bits."""
    order, wide = _elf_order(head), head[4] == 2
    table = struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)[0]
    entry, count = struct.unpack_from(order + "HH", head, 54 if wide else 42)
    with open(path, "rb") as file:
        file.seek(table)
        headers = file.read(min(entry * count, 65536))  # there are a dozen of 56 bytes
        for start in range(0, len(headers), entry or 1):
            if struct.unpack_from(order + "I", headers, start)[0] != _PT_INTERP:
                continue
            if wide:
                offset, size = (struct.unpack_from(order + "Q", headers, start + at)[0] for at in (8, 32))
            else:
                offset, size = (struct.unpack_from(order + "I", headers, start + at)[0] for at in (4, 16))
            file.seek(offset)
            return os.fsdecode(file.read(min(size, 4096)).rstrip(b"\0"))
    return ""
