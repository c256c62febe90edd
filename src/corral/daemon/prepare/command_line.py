"""What is executed, in the parts that modules may change."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import msgspec

from corral.daemon.workload.java import java_command
from corral.daemon.workload.java_arguments import is_java, launcher_part
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.start_proposal import Proposal, StartRules, StartValues
from corral.daemon.workload.variable_values import Values
from corral.domain.plans import PlanJvm
from corral.domain.variables import substitute_all
from corral.sdk.instances import InstanceSpec


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """Variables are replaced."""

    program: str
    jvm: PlanJvm | None = None
    """Where the plan says what Java shall run; None: the command is written out."""
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


def command_line(order: StartOrder, java: str, values: Values) -> tuple[CommandLine, list[str], list[str]]:
    """With the variables that nobody defines: of the command, and of the environment."""
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
    line = CommandLine(program=program, jvm=jvm, values=given)
    return line, list(dict.fromkeys(missing)), list(missing_in_env)


def propose(
    line: CommandLine,
    order: StartOrder,
    *,
    secrets: Mapping[str, str],
    node_id: str,
    directory: pathlib.Path,
) -> Proposal:
    """What modules are asked about it."""
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
