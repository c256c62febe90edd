"""The last steps of the process that becomes the workload, between the fork and its program.

It waits at a barrier until its run is recorded, drops everything of ours (session, signals, user,
descriptors), and executes. A failure is written to `failed`, through a descriptor that was opened before the
user changed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import termios
from typing import Any, NoReturn

from corral.runtimes.keeper import linux_calls
from corral.runtimes.keeper.run_files import ExecFailure

STAGE_BARRIER = "barrier"
STAGE_SESSION = "session"
STAGE_USER = "user"
STAGE_DIRECTORY = "directory"
STAGE_EXEC = "exec"

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_PASSED_OVER = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
"""Errors with which the search goes on in the next directory of PATH."""


def become_workload(
    plan: dict[str, Any], *, barrier: int, failed: int, input_fd: int, output_fd: int
) -> NoReturn:
    """Never returns: executes the program, or records why not and exits."""
    stage, path = STAGE_BARRIER, ""
    try:
        if os.read(barrier, 1) == b"":  # the shim died: nothing was started, and nothing may be
            raise OSError(errno.ECANCELED, "the shim ended")
        stage = STAGE_SESSION
        _leave_our_session(plan, input_fd, output_fd)
        stage = STAGE_USER
        _change_user(plan)
        linux_calls.renounce_privileges()
        if "parent" in plan:  # a program beside the workload: only its parent supervises it
            linux_calls.die_with_parent(plan["parent"])
        stage, path = STAGE_DIRECTORY, plan["directory"]
        os.chdir(path)
        stage, path = STAGE_EXEC, plan["command"][0]
        _execute(plan["command"], plan["environment"])
    except OSError as error:
        shown = error.filename if isinstance(error.filename, str) else path
        os.pwrite(failed, ExecFailure(stage, error.errno or 0, shown).encoded(), 0)
    finally:
        os._exit(127)


def _leave_our_session(plan: dict[str, Any], input_fd: int, output_fd: int) -> None:
    os.setsid()
    if plan["tty"]:
        fcntl.ioctl(input_fd, termios.TIOCSCTTY, 0)
    for descriptor, place in ((input_fd, 0), (output_fd, 1), (output_fd, 2)):
        os.dup2(descriptor, place, inheritable=True)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o027)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _change_user(plan: dict[str, Any]) -> None:
    if plan["uid"] is None:
        return
    os.setgroups(plan["groups"])
    os.setresgid(plan["gid"], plan["gid"], plan["gid"])
    os.setresuid(plan["uid"], plan["uid"], plan["uid"])


def _execute(command: list[str], environment: dict[str, str]) -> None:
    """Search the workload's own PATH. Raises the most useful error: one about a file that exists before one
    about files that do not."""
    program = command[0]
    if "/" in program:
        os.execve(program, command, environment)  # noqa: S606
    first_error: OSError | None = None
    for directory in environment.get("PATH", _DEFAULT_PATH).split(":"):
        path = f"{directory or '.'}/{program}"
        try:
            os.execve(path, command, environment)  # noqa: S606
        except OSError as error:
            error.filename = path
            if error.errno not in _PASSED_OVER:
                raise
            if error.errno == errno.EACCES:
                first_error = first_error or error
    raise first_error or OSError(errno.ENOENT, "not in PATH", program)
