"""Prepared start: everything is done but the spawn of its process.

Between preparation and spawn the node's modules are called: `proposal` is what they receive, with the parts of the
command line that they may change, and `finish` takes the result.
"""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Final

import msgspec
import structlog

from corral.daemon.workload.environment import build_environment
from corral.daemon.workload.java import is_java, java_command, launcher_part
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.start_stages import PROCESS_START, StartProgress
from corral.daemon.workload.variable_values import Values
from corral.daemon.workload.workload_users import WorkloadUser
from corral.domain.groups.plans import PlanJvm
from corral.domain.groups.variables import substitute_all
from corral.sdk.instances import InstanceSpec
from corral.sdk.runtime import RunSpec, run_name


class LaunchCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command line whose variables are replaced."""

    program: str
    jvm: PlanJvm | None = None
    """The plan's settings for Java; None: the command is given in full."""
    values: StartValues

    @property
    def command(self) -> tuple[str, ...]:
        values = self.values
        if self.jvm is not None:
            jvm = msgspec.structs.replace(self.jvm, args=values.jvm_args)
            return java_command(jvm, self.program, values.args)
        return (self.program, *values.jvm_args, *values.args) if self.program else ()

    @property
    def rules(self) -> StartRules:
        if self.jvm is not None:
            return StartRules()
        if is_java(self.program):
            return StartRules(fixed_args=launcher_part(self.values.args))
        return StartRules(takes_jvm_args=False)


def command_line(order: StartOrder, java: str, values: Values) -> tuple[LaunchCommand, list[str], list[str]]:
    """The command line, with the undefined variables: of the command, and of the environment."""
    plan, jvm = order.plan, None
    options: list[str] = []
    if order.command or plan is None or plan.jvm is None:
        written, missing = substitute_all(order.command, values.all)
        program, args = (written or [""])[0], written[1:]
    else:
        options, missing = substitute_all(plan.jvm.args, values.all)
        (program, jar, *args), others = substitute_all((java, plan.jvm.jar, *plan.args), values.all)
        jvm, missing = msgspec.structs.replace(plan.jvm, jar=jar), (*missing, *others)
    env, missing_in_env = substitute_all(order.env.values(), values.all)
    given = StartValues(jvm_args=tuple(options), args=tuple(args), env=dict(zip(order.env, env, strict=True)))
    line = LaunchCommand(program=program, jvm=jvm, values=given)
    return line, list(dict.fromkeys(missing)), list(missing_in_env)


def propose(
    line: LaunchCommand,
    order: StartOrder,
    *,
    secrets: Mapping[str, str],
    node_id: str,
    directory: pathlib.Path,
) -> Proposal:
    """The proposal that modules receive."""
    artifact = order.plan.artifact if order.plan else None
    spec = InstanceSpec(
        instance_id=order.instance_id,
        group=order.group,
        node_id=node_id,
        port=order.primary_port,
        ports={port.name: port.port for port in order.ports},
        memory_mb=order.limits.memory_mb,
        platform=artifact.platform if artifact else "",
        platform_version=artifact.version if artifact else "",
        static=order.static,
        plan_hash=order.plan_hash,
        work_dir=str(directory),
        is_java=line.rules.takes_jvm_args,
        jvm_args=list(line.values.jvm_args),
        args=list(line.values.args),
        env=dict(line.values.env),
    )
    return Proposal(spec=spec, rules=line.rules, secrets=secrets)


class StartValues(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments and environment; variables are replaced already."""

    jvm_args: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class StartRules(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of this command that modules may change."""

    takes_jvm_args: bool = True
    fixed_args: int | None = 0
    """So many of `args`, from the first, select the program and must not change; None: all of them."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A start before its modules were called."""

    spec: InstanceSpec
    rules: StartRules = StartRules()
    secrets: Mapping[str, str] = {}
    """Values by their variables: never written to disk."""


def values_of(spec: InstanceSpec) -> StartValues:
    return StartValues(jvm_args=tuple(spec.jvm_args), args=tuple(spec.args), env=dict(spec.env))


_LOCAL_TIME: Final = "/etc/localtime"
_STDBUF: Final = ("stdbuf", "-oL", "-eL")
_log = structlog.get_logger("corral.daemon.prepare")


class PreparedStart(msgspec.Struct, frozen=True, kw_only=True):
    """A start whose files are in place and whose variables are replaced."""

    order: StartOrder
    user: WorkloadUser
    line: LaunchCommand
    directory: pathlib.Path
    run_directory: pathlib.Path
    authority_file: str
    """The certificate of the cluster's authority."""
    proposal: Proposal
    """The part that modules may see and change."""


def finish(start: PreparedStart, values: StartValues, progress: StartProgress) -> RunSpec:
    """The specification to spawn, with the arguments and the environment in `values`. StageFailed when these cannot be
    an environment."""
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
            authority_file=start.authority_file,
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
    """The command with line-buffered output, where the node has the program that does this."""
    return (*_STDBUF, *command) if shutil.which(_STDBUF[0]) else command


def _time_zone() -> str:
    """The host's time zone by its name, which every program understands."""
    if given := os.environ.get("TZ"):
        return given
    try:
        target = os.readlink(_LOCAL_TIME)  # noqa: PTH115 - often
    except OSError:
        return "UTC"
    return _zone_of(os.path.join("/etc", target)) if "/zoneinfo/" in target else _zone_at(_LOCAL_TIME)  # noqa: PTH118


def _zone_at(path: str) -> str:
    _, found, name = os.path.realpath(path).partition("/zoneinfo/")
    return name if found else "UTC"


_zone_of = functools.lru_cache(maxsize=1)(_zone_at)
"""For a path within the database of zones, whose links stay as they are."""
