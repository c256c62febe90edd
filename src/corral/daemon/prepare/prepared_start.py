"""A start of which everything is made but its process.

Between its preparation and its end the node's modules are asked: `proposal` is what they get to see, and
`finish` takes what came of it.
"""

from __future__ import annotations

import os
import pathlib
import shutil
from typing import Final

import msgspec
import structlog

from corral.daemon.prepare.command_line import CommandLine
from corral.daemon.workload.environment import build_environment
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.start_proposal import Proposal, StartValues
from corral.daemon.workload.start_stages import PROCESS_START, Progress
from corral.daemon.workload.users import WorkloadUser
from corral.sdk.runtime import RunSpec, run_name

_STDBUF: Final = ("stdbuf", "-oL", "-eL")
_log = structlog.get_logger("corral.daemon.prepare")


class PreparedStart(msgspec.Struct, frozen=True, kw_only=True):
    """Its files are in their place, and its variables are replaced."""

    order: StartOrder
    user: WorkloadUser
    line: CommandLine
    directory: pathlib.Path
    run_directory: pathlib.Path
    proposal: Proposal
    """What of it modules may see and change."""


def finish(start: PreparedStart, values: StartValues, progress: Progress) -> RunSpec:
    """What is spawned, with the arguments and the environment in `values`. StageFailed when these cannot be an
    environment."""
    order, user, directory = start.order, start.user, start.directory
    command = msgspec.structs.replace(start.line, values=values).command
    with progress.stage(PROCESS_START):
        environment = build_environment(
            order,
            env=values.env,
            node_id=start.proposal.spec.node_id,
            user=user.name,
            home=user.home if os.path.isdir(user.home) else str(directory),  # noqa: PTH112 - raises nothing
            time_zone=_time_zone(),
        )
    _log.info(
        "instance.prepared", run=run_name(order.instance_id, order.incarnation), took_ms=progress.took_ms
    )
    return RunSpec(
        instance_id=order.instance_id,
        incarnation=order.incarnation,
        command=_buffered(command) if order.line_buffered else command,
        environment=environment,
        directory=str(directory),
        run_directory=str(start.run_directory),
        run_as=user.run_as,
        groups=user.groups,
        stdin=order.stdin,
        tty=order.tty,
        limits=order.limits,
    )


def _buffered(command: tuple[str, ...]) -> tuple[str, ...]:
    """Line by line, where the node has the program that makes others do so."""
    return (*_STDBUF, *command) if shutil.which(_STDBUF[0]) else command


def _time_zone() -> str:
    """The host's zone by its name, which every program understands."""
    if given := os.environ.get("TZ"):
        return given
    _, found, name = os.path.realpath("/etc/localtime").partition("/zoneinfo/")
    return name if found else "UTC"
