"""Start order as the node stores it: what the controller sent, in a form that does not depend on the link.

The wire's message is not stored: a daemon of another version must read what this one wrote. Where the controller sent a
plan, everything in the plan is taken from there, after its hash was checked; what belongs to this one run (id, ports,
token, values of variables) is stored beside it. A published controller sends no plan in our form: then one is made of
the published fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from corral.daemon.workload.published_plan import default_isolation, published_plan
from corral.domain.groups.group import (
    DEFAULT_LADDER,
    PRIMARY,
    RUNTIMES,
    SIGNALS,
    Isolation,
    PortProtocol,
    StopRungSpec,
)
from corral.domain.groups.instance_records import LeasedPort, PlanRecord
from corral.domain.groups.plans import Plan, plan_hash, read_plan
from corral.domain.groups.probes import ProbeSpec
from corral.domain.ids import Incarnation, InstanceId, instance_id
from corral.errors import Code, Rejected, unknown_choice
from corral.sdk.runtime import RunLimits
from corral.wire.frame_table import require
from corral.wire.v1.instance_pb2 import NamedPort, StartInstance

_STARTUP_SECONDS: Final = 60.0
_CRASH_KEEP_SECONDS: Final = 3600
_MEMORY_MAX: Final = 16_777_216
_ALIASES: Final = {"": "process", "k8s": "kubernetes"}


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the stop ladder: send a command or a signal, then wait for the exit."""

    command: str = ""
    signal: str = ""
    wait_seconds: float = 30.0

    @property
    def label(self) -> str:
        """The name of this rung in the outcome of the stop that it completed."""
        return f"command {self.command}" if self.command else self.signal


class RestartRule(msgspec.Struct, frozen=True, kw_only=True):
    """Restarts by the node: how many within an interval, and how long to wait before each."""

    on: str = ""
    """always, failure or never; empty, in an order that does not know clean exits: every exit that was not requested is
    a crash."""
    attempts: int = 0
    interval_seconds: float = 300.0
    delay_seconds: float = 0.0
    max_delay_seconds: float = 60.0


class StartOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to start and supervise a run, also without a controller."""

    instance_id: InstanceId
    group: str
    incarnation: Incarnation
    command: tuple[str, ...]
    env: dict[str, str] = {}
    variables: dict[str, str] = {}
    ports: tuple[LeasedPort, ...] = ()
    limits: RunLimits = RunLimits()
    max_players: int = 0
    run_as: str = ""
    isolate: str = ""
    """auto, uid or shared; empty, as an earlier version stored it: shared."""
    stdin: str = "fifo"
    tty: bool = False
    line_buffered: bool = False
    static: bool = False
    ladder: tuple[Rung, ...] = ()
    restart: RestartRule = RestartRule()
    startup_timeout_seconds: float = _STARTUP_SECONDS
    min_alive_seconds: float = 0.0
    clean_exit_codes: tuple[int, ...] = ()
    max_lifetime_seconds: float = 0.0
    stop_after_seconds: float = 0.0
    """Without a controller for so long, it is stopped; 0: never."""
    crash_keep_seconds: float = _CRASH_KEEP_SECONDS
    plan_hash: str = ""
    decision: str = ""
    """The controller's id of the decision behind this start, for log records."""
    request: str = ""
    """The id of the request behind it; empty: no request."""
    api_url: str = ""
    api_cluster_tls: bool = False
    """The API has a certificate of the cluster's authority."""
    token: str = ""
    """A secret: written to the environment and this file, and nowhere else."""
    ticket: str = ""
    """Opaque value of the controller, to be returned with every run of this start."""
    runtime: str = "process"
    probes: tuple[ProbeSpec, ...] = ()
    plan: Plan | None = None
    """The content of its directory, and its Java; None: nothing is laid into the directory."""

    @property
    def primary_port(self) -> int:
        return next((port.port for port in self.ports if port.name == PRIMARY), 0)


def read_start(message: StartInstance) -> StartOrder:
    """Convert the message. Refuses missing or invalid fields by name; PLAN_MISMATCH for a plan that is not the
    announced one."""
    plan = verified_plan(message)
    if plan is None:
        return _published(message)
    base = _of_the_run(message)
    return msgspec.structs.replace(
        base,
        command=(*plan.command, *plan.args) if plan.command else (),
        env=plan.env,
        variables=dict(message.resolved_variables) or plan.variables,
        limits=RunLimits(
            memory_mb=plan.memory_mb, cpu_cores=plan.cpu, pids=plan.pids, console_mb=plan.console_mb
        ),
        max_players=plan.max_players,
        run_as=plan.run_as,
        isolate=_choice("isolate", plan.isolate or default_isolation(message), tuple(Isolation)),
        stdin=plan.stdin,
        tty=plan.tty,
        line_buffered=plan.line_buffered,
        static=plan.static,
        ladder=tuple(map(_rung, plan.stop)),
        restart=RestartRule(
            on=plan.restart_on,
            attempts=plan.restart.attempts,
            interval_seconds=float(plan.restart.interval_seconds),
            delay_seconds=plan.restart.delay_ms / 1000,
            max_delay_seconds=plan.restart.max_delay_ms / 1000,
        ),
        startup_timeout_seconds=float(plan.startup_timeout_seconds or _STARTUP_SECONDS),
        min_alive_seconds=plan.min_alive_ms / 1000,
        clean_exit_codes=plan.clean_exit_codes,
        max_lifetime_seconds=float(plan.max_lifetime_seconds),
        stop_after_seconds=float(plan.stop_after_seconds),
        crash_keep_seconds=float(plan.crash_keep_seconds),
        runtime=_runtime(plan.runtime),
        probes=plan.probes,
        plan=plan,
    )


def verified_plan(message: StartInstance) -> Plan | None:
    """The plan, with its hash checked; None when the controller sent none in our form."""
    wire = message.composition_plan
    if not wire.canonical_json:
        return None
    found = plan_hash(wire.canonical_json)
    if found != wire.plan_hash or message.plan_hash not in ("", found):
        raise Rejected(
            Code.PLAN_MISMATCH,
            f"the plan has hash {found[:12]}…, announced was {(message.plan_hash or wire.plan_hash)[:12]}…",
            hint="nothing was started; the controller has to resolve and send the plan again",
            field="composition_plan",
        )
    try:
        return read_plan(PlanRecord(hash=found, body=wire.canonical_json.decode()))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Rejected(
            Code.PLAN_MISMATCH,
            f"the plan cannot be read: {error}",
            hint="bring this node to the version of its controller",
            field="composition_plan",
        ) from error


def _of_the_run(message: StartInstance) -> StartOrder:
    """The fields that are in no plan, because they belong to this run alone."""
    _require(message)
    return StartOrder(
        instance_id=instance_id(message.instance_id),
        group=message.group,
        incarnation=Incarnation(message.incarnation),
        command=(),
        ports=_ports(message),
        plan_hash=message.plan_hash or message.composition_plan.plan_hash,
        decision=message.decision_id,
        api_url=message.api_url,
        api_cluster_tls=message.api_cluster_tls,
        token=message.plugin_token,
        ticket=message.ticket,
    )


def _published(message: StartInstance) -> StartOrder:
    if message.runtime:
        _runtime(message.runtime)
    plan = published_plan(message)
    return msgspec.structs.replace(
        _of_the_run(message),
        command=(*message.command, *message.args) if message.command else (),
        env=dict(message.env),
        variables=dict(message.resolved_variables),
        limits=_limits(message),
        max_players=message.max_players,
        run_as=message.run_as,
        isolate=_choice("isolate", message.isolate or default_isolation(message), tuple(Isolation)),
        stdin=_choice("stdin", message.stdin or "fifo", ("fifo", "none")),
        tty=message.tty,
        line_buffered=message.line_buffered,
        static=message.static_instance,
        ladder=_ladder(message),
        restart=RestartRule(
            attempts=message.restart_policy.attempts,
            interval_seconds=message.restart_policy.interval_ms / 1000,
            delay_seconds=message.restart_policy.delay_ms / 1000,
            max_delay_seconds=message.restart_policy.max_delay_ms / 1000,
        ),
        startup_timeout_seconds=float(message.startup_timeout_seconds or _STARTUP_SECONDS),
        min_alive_seconds=message.min_alive_ms / 1000,
        max_lifetime_seconds=float(message.max_lifetime_seconds),
        crash_keep_seconds=float(message.crash_keep_seconds or _CRASH_KEEP_SECONDS),
        runtime=_runtime(message.runtime),
        plan=plan,
    )


def _runtime(name: str) -> str:
    """The runtime by its own name. Whether this node has it is checked at the start."""
    chosen = _ALIASES.get(name, name)
    known = (*RUNTIMES, "docker", "kubernetes")
    return _choice("runtime", chosen, known)


def _require(message: StartInstance) -> None:
    require(message)
    if not message.command and not message.composition_plan.canonical_json:
        require(message, "jar_file", "port")


def _ports(message: StartInstance) -> tuple[LeasedPort, ...]:
    found = [_port(port) for port in message.ports]
    if message.port and not any(port.name == PRIMARY for port in found):
        # Of a group without a port of this name it is one of the others: no more of it is leased than that one has.
        same = next((port.protocol for port in found if port.port == message.port), PortProtocol.BOTH)
        found.insert(0, LeasedPort(name=PRIMARY, port=message.port, protocol=same))
    for port in found:
        if not 0 < port.port < 65_536:
            raise Rejected(Code.INVALID_FIELD, f"port {port.port} does not exist", field=f"ports/{port.name}")
    return tuple(found)


def _port(port: NamedPort) -> LeasedPort:
    known = tuple(PortProtocol)
    protocol = _choice(f"ports/{port.name}/protocol", port.protocol or PortProtocol.BOTH, known)
    return LeasedPort(name=port.name or PRIMARY, port=port.port, protocol=PortProtocol(protocol))


def _limits(message: StartInstance) -> RunLimits:
    memory = message.limits.memory_mb or message.memory_mb  # of a published JVM: what its heap may be
    if not 0 <= memory <= _MEMORY_MAX:
        raise Rejected(Code.INVALID_FIELD, f"memory_mb {memory} makes no sense", field="memory_mb")
    return RunLimits(
        memory_mb=memory,
        cpu_cores=max(0.0, message.limits.cpu_cores),
        pids=max(0, message.limits.pids),
        console_mb=message.limits.console_mb or RunLimits().console_mb,
    )


def _ladder(message: StartInstance) -> tuple[Rung, ...]:
    """The given ladder; else the default one, with the grace of the published field."""
    if message.stop_ladder:
        if any(not rung.command and not rung.signal for rung in message.stop_ladder):
            raise Rejected(
                Code.INVALID_FIELD,
                "a rung of the stop ladder has neither a command nor a signal",
                hint="give it one",
                field="stop_ladder",
            )
        return tuple(
            Rung(
                command=rung.command,
                signal=_choice("stop_ladder/signal", rung.signal, ("", *SIGNALS)),
                wait_seconds=rung.wait_ms / 1000,
            )
            for rung in message.stop_ladder
        )
    first, *others = default_stop_ladder()
    if message.shutdown_grace_seconds:
        first = msgspec.structs.replace(first, wait_seconds=float(message.shutdown_grace_seconds))
    return (first, *others)


def default_stop_ladder() -> tuple[Rung, ...]:
    """The ladder where the group configures none."""
    return tuple(map(_rung, DEFAULT_LADDER))


def _rung(spec: StopRungSpec) -> Rung:
    return Rung(command=spec.command or "", signal=spec.signal or "", wait_seconds=spec.wait_seconds)


def _choice(field: str, value: str, known: Iterable[str]) -> str:
    choices = tuple(known)
    if value not in choices:
        raise unknown_choice(
            field.rpartition("/")[2], value[:80], choices, code=Code.INVALID_FIELD, field=field
        )
    return value
