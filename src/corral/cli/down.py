"""`corral down`: end what `up` runs."""

from __future__ import annotations

import os
import pathlib
import select
import signal

import click

from corral.cli.failure import Refused, WaitRanOut
from corral.cli.output import output_option, show_done
from corral.cli.roles import ended_by
from corral.cli.values import Span


@click.command()
@click.option("--data", metavar="DIR", required=True, help="The directory that 'up' was given.")
@click.option(
    "--timeout", type=Span(), default="60s", show_default=True, help="How long to wait for the end."
)
@output_option
def down(data: str, timeout: int, output: str) -> None:
    """End the 'up' that runs in a data directory, and wait until it has ended."""
    with ended_by():
        from corral.cli.up_record import find_running

        found = find_running(pathlib.Path(data))
    if found is None:
        show_done(output, {"pid": None, "ended": False}, "nothing runs here", name="pid")
        return
    pid, pidfd = found
    try:
        if not _ended(pidfd, timeout):
            raise WaitRanOut(
                f"'up' (pid {pid}) has not ended within {timeout} seconds",
                hint=f"see what it prints; 'kill -9 {pid}' ends it at once",
            )
    except PermissionError:
        raise Refused(f"'up' (pid {pid}) belongs to another user", hint="run this as that user") from None
    finally:
        os.close(pidfd)
    show_done(output, {"pid": pid, "ended": True}, f"ended 'up' (pid {pid})", name="pid")


def _ended(pidfd: int, timeout: int) -> bool:
    """Ask the process to end; True once it has."""
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(timeout * 1000))
