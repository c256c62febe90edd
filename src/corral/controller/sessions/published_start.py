"""Start fields for daemons that do not execute from the plan: those of the published protocol, and those of
Corral's own from before plans."""

from __future__ import annotations

import datetime as dt
import posixpath
from typing import Any, Final

import msgspec

from corral.domain.groups.group import Category, ConfigFormat, PatchOp, PatchSpec
from corral.domain.groups.plans import Plan, PlanArtifact, PlanExtension
from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1 import plan_pb2 as parts

_INT32: Final = 2**31 - 1
_CATEGORIES: Final = {
    Category.NONE: parts.INSTANCE_CATEGORY_UNSPECIFIED,
    Category.SERVER: parts.INSTANCE_CATEGORY_SERVER,
    Category.PROXY: parts.INSTANCE_CATEGORY_PROXY,
}
CONFIG_FORMATS: Final = {
    ConfigFormat.NONE: parts.CONFIG_FORMAT_UNSPECIFIED,
    ConfigFormat.PAPER: parts.CONFIG_FORMAT_PAPER,
    ConfigFormat.SPIGOT: parts.CONFIG_FORMAT_SPIGOT,
    ConfigFormat.VELOCITY: parts.CONFIG_FORMAT_VELOCITY,
    ConfigFormat.BUNGEECORD: parts.CONFIG_FORMAT_BUNGEECORD,
    ConfigFormat.GEYSER: parts.CONFIG_FORMAT_GEYSER,
}
_OPS: Final = {
    PatchOp.SET: parts.CONFIG_PATCH_OP_SET,
    PatchOp.REPLACE: parts.CONFIG_PATCH_OP_REPLACE,
    PatchOp.REGEX: parts.CONFIG_PATCH_OP_REGEX,
}


def add_published_fields(order: wire.StartInstance) -> None:
    """Set these fields from the plan of the order."""
    plan = msgspec.json.decode(order.composition_plan.canonical_json, type=Plan)
    order.MergeFrom(_published(plan))
    order.MergeFrom(wire.StartInstance(**_how_it_runs(plan)))


def _published(plan: Plan) -> wire.StartInstance:
    composition = _composition(plan)
    return wire.StartInstance(
        memory_mb=(plan.jvm.heap_mb if plan.jvm else 0) or plan.memory_mb,
        jvm_args=plan.jvm.args if plan.jvm else (),
        env=plan.env,
        jar_file=_program(plan),
        templates=composition.templates,
        startup_timeout_seconds=plan.startup_timeout_seconds,
        shutdown_grace_seconds=int(sum(rung.wait_seconds for rung in plan.stop)),
        max_lifetime_seconds=plan.max_lifetime_seconds,
        static_instance=plan.static,
        protected_paths=plan.protected_paths,
        category=_CATEGORIES[plan.category],
        download_url=plan.artifact.url if plan.artifact else "",
        platform=plan.artifact.platform if plan.artifact else "",
        platform_version=plan.artifact.version if plan.artifact else "",
        max_players=plan.max_players,
        config_format=CONFIG_FORMATS[plan.config_format],
        composition_plan=composition,
        isolation=composition.isolation,
    )


def _how_it_runs(plan: Plan) -> dict[str, Any]:
    """Corral's own fields of the order: process, limits, stop ladder, probes."""
    return {
        "runtime": plan.runtime,
        "command": plan.command,
        "args": plan.args,
        "limits": wire.Limits(
            memory_mb=plan.memory_mb,
            cpu_cores=plan.cpu,
            disk_mb=plan.disk_mb,
            pids=plan.pids,
            console_mb=plan.console_mb,
        ),
        "stop_ladder": [
            wire.StopRung(
                command=rung.command or "", signal=rung.signal or "", wait_ms=int(rung.wait_seconds * 1000)
            )
            for rung in plan.stop
        ],
        "probes": [_probe(probe) for probe in plan.probes],
        "restart_policy": wire.RestartPolicy(
            attempts=plan.restart.attempts,
            interval_ms=_milliseconds(plan.restart.interval_seconds),
            delay_ms=plan.restart.delay_ms,
            max_delay_ms=plan.restart.max_delay_ms,
        ),
        "run_as": plan.run_as,
        "isolate": plan.isolate if plan.isolate != "auto" else "",
        "tty": plan.tty,
        "stdin": plan.stdin,
        "line_buffered": plan.line_buffered,
        "min_alive_ms": plan.min_alive_ms,
        "crash_keep_seconds": plan.crash_keep_seconds,
    }


def _composition(plan: Plan) -> parts.CompositionPlan:
    return parts.CompositionPlan(
        runtime=_runtime(plan),
        templates=[parts.TemplateRef(name=layer.name, hash=layer.hash) for layer in plan.templates],
        extensions=[_extension(each) for each in plan.extensions],
        config_patches=[_patch(each) for each in plan.patches],
        isolation=parts.RuntimeIsolation(cpu_reservation=plan.cpu, disk_reservation_mb=plan.disk_mb),
    )


def _program(plan: Plan) -> str:
    if plan.jvm is not None and plan.jvm.jar:
        return plan.jvm.jar
    return plan.artifact.file if plan.artifact else ""


def _runtime(plan: Plan) -> parts.RuntimeArtifact:
    artifact = plan.artifact or PlanArtifact(file="", sha256="")
    return parts.RuntimeArtifact(
        jar_file=_program(plan),
        download_url=artifact.url,
        sha256=artifact.sha256,
        platform=artifact.platform,
        platform_version=artifact.version,
        category=_CATEGORIES[plan.category],
        config_format=CONFIG_FORMATS[plan.config_format],
    )


def _extension(extension: PlanExtension) -> parts.ExtensionArtifact:
    directory, name = posixpath.split(extension.artifact.file)
    return parts.ExtensionArtifact(
        module_id=extension.module,
        extension_id=extension.id,
        variant_id=extension.variant,
        file_name=name,
        download_url=extension.artifact.url,
        sha256=extension.artifact.sha256,
        install_path=directory,
    )


def _patch(patch: PatchSpec) -> parts.ConfigPatch:
    return parts.ConfigPatch(file=patch.file, key=patch.path, value=_text(patch.value), op=_OPS[patch.op])


def _text(value: object) -> str:
    """A value as text, because the wire has only texts; other values are encoded as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _probe(probe: ProbeSpec) -> wire.Probe:
    settings: dict[str, str] = {}
    match probe.kind:
        case ProbeKind.LOG:
            settings["pattern"] = probe.pattern
        case ProbeKind.COMMAND:
            settings["command"] = _text(probe.command)
        case ProbeKind.HTTP:
            settings |= {"port": probe.port, "path": probe.path, "statuses": _text(probe.statuses)}
        case ProbeKind.TCP | ProbeKind.MINECRAFT:
            settings["port"] = probe.port
        case ProbeKind.LISTEN:
            settings |= {"port": probe.port, "protocol": probe.protocol or ""}
    return wire.Probe(
        kind=probe.kind.value,
        settings=settings,
        interval_ms=probe.interval_ms,
        timeout_ms=probe.timeout_ms,
    )


def _milliseconds(seconds: int) -> int:
    """Milliseconds as the wire carries them: an int32."""
    return min(int(dt.timedelta(seconds=seconds) / dt.timedelta(milliseconds=1)), _INT32)
