"""`corral down`: end what `up` runs, and stop every instance it left."""

from __future__ import annotations

import os
import pathlib
import select
import signal
import subprocess
import sys
import time
from typing import Final

import click

from corral.cli.failure import CommandRefused, WaitRanOut
from corral.cli.roles import ended_by
from corral.cli.terminal.output import output_option, show_done
from corral.cli.terminal.values import SpanType
from corral.errors import counted

_LOOK_SECONDS: Final = 0.2


@click.command()
@click.option("--data", metavar="DIR", required=True, help="The directory that 'up' was given.")
@click.option(
    "--timeout", type=SpanType(), default="120s", show_default=True, help="How long to wait for the end."
)
@click.option("--force", is_flag=True, help="Kill instances at once instead of asking them to stop.")
@output_option
def down(data: str, timeout: int, force: bool, output: str) -> None:
    """End the 'up' that runs in a data directory, stop its instances, and wait until all have ended.

    Instances that a Ctrl-C left running are stopped, too.
    """
    deadline = time.monotonic() + timeout
    directory = pathlib.Path(data).expanduser().absolute()
    with ended_by():
        pid = _end_up(directory, deadline)
        stopped = _stop_instances(directory, deadline, force=force)
    done = {"pid": pid, "ended": pid is not None, "stopped": stopped}
    show_done(output, done, _sentence(pid, stopped), name="pid")


def _sentence(pid: int | None, stopped: list[str]) -> str:
    parts = [f"ended 'up' (pid {pid})"] if pid is not None else []
    if stopped:
        parts.append(
            f"stopped {len(stopped)} instance{'s' if len(stopped) > 1 else ''}: {', '.join(stopped)}"
        )
    return "; ".join(parts) or "nothing runs here"


def _end_up(directory: pathlib.Path, deadline: float) -> int | None:
    """Let the `up` of this directory detach; its process id, None when there is none. Before the
    instances are stopped, because a controller would start others in their place."""
    from corral.cli.local.up_state import find_running

    found = find_running(directory)
    if found is None:
        return None
    pid, pidfd = found
    try:
        if not _ended(pidfd, deadline):
            raise WaitRanOut(
                f"'up' (pid {pid}) has not ended in time; its instances were not touched",
                hint=f"see what it prints; 'kill -9 {pid}' ends it at once",
            )
    except PermissionError:
        raise CommandRefused(
            f"'up' (pid {pid}) belongs to another user", hint="run this as that user"
        ) from None
    finally:
        os.close(pidfd)
    return pid


def _ended(pidfd: int, deadline: float) -> bool:
    """Ask the process to end; True once it has."""
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


def _stop_instances(directory: pathlib.Path, deadline: float, *, force: bool) -> list[str]:
    """Stop what runs in the node's directory, whether or not a daemon supervises it; returns the ids of what ran."""
    from corral.cli.local.cluster_processes import NODE
    from corral.cli.local.up_state import keeper_lives, live_instances, unfinished_runs

    node = directory / NODE
    before = live_instances(node)
    if not before and not unfinished_runs(node) and not keeper_lives(node):
        return []
    command = [sys.executable, "-P", "-m", "corral.cli", "local", "--data", str(node), "stop-all", "--yes"]
    process = subprocess.Popen(
        [*command, *(["--force"] if force else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C here must not leave it half-way: we end it ourselves
    )
    try:
        _watch(process, node, before, deadline)
        _, output = process.communicate()
    finally:
        if process.poll() is None:
            process.kill()  # harmless: its orders are on disk, and the next attempt goes on with them
            process.communicate()
    if process.returncode:
        raise CommandRefused(
            f"not everything was stopped: {_last_line(output)}", hint="run 'corral down' again"
        )
    return before


def _watch(process: subprocess.Popen[str], node: pathlib.Path, names: list[str], deadline: float) -> None:
    """Until it has ended, with a line that shows what is left."""
    from corral.cli.local.up_state import live_instances
    from corral.cli.terminal.progress_line import ProgressLine

    with ProgressLine() as progress:
        while process.poll() is None:
            left = live_instances(node)
            progress.show(f"stopping: {len(left)} of {counted(len(names), 'instance')} left")
            if time.monotonic() > deadline:
                raise WaitRanOut(
                    f"not stopped in time: {', '.join(left) or 'nothing is left, but it has not ended'}",
                    hint="run it again to wait longer, or with --force to kill them",
                )
            time.sleep(_LOOK_SECONDS)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it gave no reason"
