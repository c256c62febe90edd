"""Start failures as errors: the step that failed and its errno become an error with code, text and hint."""

from __future__ import annotations

import errno
import os
import pathlib
from typing import Final

from corral.errors import Code, CorralError, Rejected, Retryable
from corral.runtimes.keeper.run_files import ExecFailure
from corral.runtimes.keeper.workload import STAGE_DIRECTORY, STAGE_EXEC, STAGE_USER
from corral.system.trees.entries import entry_at, open_tree

_EXEC_CODES: Final = {
    errno.ENOENT: Code.COMMAND_NOT_FOUND,
    errno.ENOTDIR: Code.COMMAND_NOT_FOUND,
    errno.ELOOP: Code.COMMAND_NOT_FOUND,
    errno.ENAMETOOLONG: Code.COMMAND_NOT_FOUND,
    errno.EACCES: Code.NOT_EXECUTABLE,
    errno.EPERM: Code.NOT_EXECUTABLE,
    errno.EISDIR: Code.NOT_EXECUTABLE,
    errno.ENOEXEC: Code.BAD_FORMAT,
    errno.ELIBBAD: Code.BAD_FORMAT,
    errno.EINVAL: Code.BAD_FORMAT,
    errno.E2BIG: Code.ARGUMENTS_TOO_LONG,
}
_SHOWN: Final = 200
_DISK: Final = (errno.ENOSPC, errno.EDQUOT)


def start_failure(failure: ExecFailure, *, user: str, directory: str, command: str) -> CorralError:
    """The error to raise; it names the user and the path, for these have to be changed."""
    if failure.stage == STAGE_EXEC and failure.errno in _EXEC_CODES:
        return _exec_failure(failure, user=user, directory=directory, command=command)
    reason = os.strerror(failure.errno)
    if failure.stage == STAGE_DIRECTORY:
        return Rejected(
            Code.DIRECTORY_REFUSED,
            f"user '{user}' cannot enter the working directory {directory}: {reason}",
            hint="let that user read and traverse it, and every directory above it",
        )
    if failure.stage == STAGE_USER:
        return Rejected(
            Code.RUN_AS_REFUSED,
            f"the workload cannot become user '{user}': {reason}",
            hint="run the daemon as root with all capabilities, or name another user in `run_as`",
            field="run_as",
        )
    code = Code.DISK_FULL if failure.errno in _DISK else Code.SPAWN_FAILED
    where = f" ({failure.path})" if failure.path else ""
    return Retryable(code, f"the workload could not be started, step '{failure.stage}': {reason}{where}")


def _is_there(directory: str, path: str) -> bool:
    """Whether a file exists at the command's path. Below the working directory, which the workload can
    change, no link is followed. A path that the kernel refuses (a name of more than 255 bytes, an unreadable
    directory) counts as missing."""
    inner = os.path.relpath(path, directory) if path.startswith("/") else os.path.normpath(path)
    if inner.startswith("../"):
        return os.path.lexists(path) if path.startswith("/") else False
    try:
        with open_tree(pathlib.Path(directory)) as root:
            return entry_at(root, inner) is not None
    except OSError:
        return False


def _program(command: str) -> str:
    """The command without its arguments, for the message is readable by more people: a whole command line,
    written as one word by mistake, is cut where its arguments begin."""
    words = command.split(maxsplit=1)
    shown = words[0][:_SHOWN] if words else ""
    return shown if shown == command else f"{shown}…"


def _exec_failure(failure: ExecFailure, *, user: str, directory: str, command: str) -> Rejected:
    code = _EXEC_CODES[failure.errno]
    path = failure.path
    if code is Code.COMMAND_NOT_FOUND:
        if "/" in path and _is_there(directory, path):
            return Rejected(
                code,
                f"{path} is there, but not the interpreter that it names",
                hint="install the interpreter in its first line, or correct that line",
            )
        where = (
            f"relative to {directory}" if "/" in command and not command.startswith("/") else "in its PATH"
        )
        place = "" if command.startswith("/") else f" {where}"
        hint = "install it, or correct `command`"
        if command.split() != [command]:
            hint += ": the program and each argument are words of their own in the list"
        return Rejected(code, f"command '{_program(command)}' was not found{place}", hint=hint)
    if code is Code.NOT_EXECUTABLE:
        return Rejected(
            code,
            f"user '{user}' may not execute {path}: {os.strerror(failure.errno)}",
            hint="make it executable for that user, and every directory above it traversable",
        )
    if code is Code.BAD_FORMAT:
        return Rejected(
            code,
            f"{path} is not a program that this machine can run: {os.strerror(failure.errno)}",
            hint="a script begins with `#!` and its interpreter; a binary is made for this architecture",
        )
    return Rejected(
        code,
        f"the arguments and environment of '{_program(command)}' are too long for the kernel",
        hint="one argument or value may have 128 KiB, all of them about 2 MiB",
    )
