"""Plan made of the published fields of a StartInstance: what a controller of others can specify about files."""

from __future__ import annotations

from typing import Final

from corral.domain.groups.group import Category, ConfigFormat, Isolation, PatchOp, PatchSpec
from corral.domain.groups.plans import Plan, PlanArtifact, PlanExtension, PlanJvm, PlanRestart, PlanTemplate
from corral.errors import Code, Rejected
from corral.wire.v1 import plan_pb2 as wire
from corral.wire.v1.instance_pb2 import StartInstance

_OPS: Final = {
    wire.CONFIG_PATCH_OP_SET: PatchOp.SET,
    wire.CONFIG_PATCH_OP_REPLACE: PatchOp.REPLACE,
    wire.CONFIG_PATCH_OP_REGEX: PatchOp.REGEX,
}
_CATEGORIES: Final = {
    wire.INSTANCE_CATEGORY_SERVER: Category.SERVER,
    wire.INSTANCE_CATEGORY_PROXY: Category.PROXY,
}


def default_isolation(message: StartInstance) -> Isolation:
    """The isolation of an order that specifies none. A controller with tickets leaves it to the node; for an older one,
    and for a published one, it is `shared`: their instances have to find their files under the same owner."""
    return Isolation.AUTO if message.ticket else Isolation.SHARED


def published_plan(message: StartInstance) -> Plan | None:
    """The plan; None when the order specifies neither files nor Java: then the directory is empty."""
    composition = message.composition_plan
    templates = composition.templates or message.templates
    jvm = None
    if not message.command and message.jar_file:
        jvm = PlanJvm(jar=message.jar_file, args=tuple(message.jvm_args), heap_mb=max(0, message.memory_mb))
    artifact = _artifact(message)
    extensions = tuple(map(_extension, composition.extensions))
    patches = tuple(map(_patch, composition.config_patches))
    if not (templates or jvm or artifact or extensions or patches):
        return None
    return Plan(
        group=message.group,
        runtime=message.runtime,
        command=tuple(message.command),
        args=tuple(message.args),
        env={},
        variables={},
        templates=tuple(PlanTemplate(name=ref.name, version=0, hash=ref.hash) for ref in templates),
        patches=patches,
        artifact=artifact,
        extensions=extensions,
        jvm=jvm,
        category=_CATEGORIES.get(message.category, Category.NONE),
        config_format=_config_format(message.config_format),
        static=message.static_instance,
        protected_paths=tuple(message.protected_paths),
        memory_mb=message.limits.memory_mb,
        cpu=0.0,
        pids=0,
        disk_mb=max(0, message.limits.disk_mb or message.isolation.disk_reservation_mb),
        console_mb=256,
        max_players=message.max_players,
        run_as=message.run_as,
        isolate=message.isolate or default_isolation(message),
        stdin=message.stdin,
        tty=message.tty,
        line_buffered=message.line_buffered,
        stop=(),
        startup_timeout_seconds=message.startup_timeout_seconds,
        min_alive_ms=message.min_alive_ms,
        max_lifetime_seconds=message.max_lifetime_seconds,
        crash_keep_seconds=message.crash_keep_seconds,
        restart=PlanRestart(),
    )


def _artifact(message: StartInstance) -> PlanArtifact | None:
    """The artifact, only with its digest: a file that cannot be verified is not executed."""
    runtime = message.composition_plan.runtime
    url = runtime.download_url or message.download_url
    if not url and not runtime.sha256:
        return None
    if not runtime.sha256:
        raise Rejected(
            Code.MISSING_FIELD,
            "the artifact to download has no SHA-256",
            hint="send it as composition_plan.runtime.sha256",
            field="composition_plan/runtime/sha256",
        )
    return PlanArtifact(
        platform=runtime.platform or message.platform,
        version=runtime.platform_version or message.platform_version,
        file=runtime.jar_file or message.jar_file,
        url=url,
        sha256=runtime.sha256,
    )


def _extension(extension: wire.ExtensionArtifact) -> PlanExtension:
    place = extension.install_path.strip("/")
    return PlanExtension(
        id=extension.extension_id,
        variant=extension.variant_id,
        module=extension.module_id,
        artifact=PlanArtifact(
            file=f"{place}/{extension.file_name}" if place else extension.file_name,
            url=extension.download_url,
            sha256=extension.sha256,
        ),
    )


def _patch(patch: wire.ConfigPatch) -> PatchSpec:
    return PatchSpec(file=patch.file, path=patch.key, op=_OPS.get(patch.op, PatchOp.SET), value=patch.value)


def _config_format(value: int) -> ConfigFormat:
    name = wire.ConfigFormat.Name(value) if value in wire.ConfigFormat.values() else ""
    short = name.removeprefix("CONFIG_FORMAT_").lower()
    return ConfigFormat(short) if short in set(ConfigFormat) else ConfigFormat.NONE
