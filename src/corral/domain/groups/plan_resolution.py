"""Resolution of a group's document to the plan of a start: every name looked up, every random choice made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from corral.domain.decisions import Alternative
from corral.domain.file_paths import check_path
from corral.domain.groups.artifacts import CatalogRecord, file_of
from corral.domain.groups.drift import start_basis
from corral.domain.groups.extensions import (
    Candidate,
    ExtensionPackage,
    Program,
    added_extensions,
    place_extensions,
    requested_extension,
)
from corral.domain.groups.group import (
    ArtifactSpec,
    Category,
    ConfigFormat,
    ExtensionSpec,
    GroupSpec,
    RestartSpec,
)
from corral.domain.groups.group_checks import install_directory
from corral.domain.groups.instance_records import PlanRecord
from corral.domain.groups.pinned_contents import PinnedTemplates, check_pinned_modules, check_same_kind
from corral.domain.groups.plans import (
    Plan,
    PlanArtifact,
    PlanExtension,
    PlanJvm,
    PlanProbe,
    PlanRestart,
    PlanTemplate,
    encode_plan,
)
from corral.domain.groups.revisions import RevisionPins, RevisionRecord, started_spec
from corral.domain.groups.secret_masks import refuse_in_command
from corral.domain.groups.template_selection import (
    Draw,
    Layer,
    TemplateSources,
    candidate_layers,
    select_templates,
)
from corral.domain.groups.variable_checks import check_names, check_values
from corral.domain.groups.variables import (
    declared,
    defaults,
    merge_layers,
    property_variables,
    template_layer,
)
from corral.domain.spec import invalid
from corral.domain.templates import TemplateSettings
from corral.errors import Code, Rejected

_HEAP_PARTS: Final = (4, 5)
"""Share of the memory, for a virtual machine needs more than its heap."""


class PlanSources(TemplateSources, Protocol):
    """The look-ups: one snapshot of the store."""

    def artifact(self, platform: str, version: str, /) -> CatalogRecord | None: ...

    def packages(self) -> Sequence[ExtensionPackage]:
        """Every installed module, in any order."""


class ResolvedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, ready to be stored, and the random choices in it."""

    plan: Plan
    record: PlanRecord
    picks: tuple[str, ...] = ()
    """The templates that were chosen at random among several, for the decision's record."""
    passed_over: tuple[Alternative, ...] = ()
    """Extensions for every group that have nothing for this one."""
    basis: str = ""
    """See `drift`."""
    document_basis: str = ""
    """The same without restarts of the whole group."""
    pins: RevisionPins = RevisionPins()
    """What a revision keeps of it."""


class _Contents(NamedTuple):
    """What a document names beside templates, looked up."""

    artifact: PlanArtifact | None
    extensions: tuple[PlanExtension, ...]
    category: Category
    config_format: ConfigFormat
    passed_over: tuple[Alternative, ...] = ()


def resolve_plan(spec: GroupSpec, sources: PlanSources, draw: Draw) -> ResolvedPlan:
    """Raises `Rejected` with a field of the group's document when something is missing or does not fit."""
    return _resolved(spec, sources, draw, lambda: _found_contents(spec, sources))


def resolve_revision(
    present: GroupSpec, revision: RevisionRecord, sources: PlanSources, draw: Draw
) -> ResolvedPlan:
    """The plan of a start by a revision. Raises `Rejected` where a content of it does not exist any more or may not be used
    any more."""
    check_same_kind(present, revision)
    check_pinned_modules(revision, sources.packages())
    pins = revision.pins
    contents = _Contents(pins.artifact, pins.extensions, pins.category, pins.config_format)
    spec = started_spec(present, revision)
    resolved = _resolved(spec, PinnedTemplates(revision, sources), draw, lambda: contents)
    return msgspec.structs.replace(resolved, basis=revision.basis, pins=pins)


def _found_contents(spec: GroupSpec, sources: PlanSources) -> _Contents:
    program = _entry(spec.artifact, sources, "artifact")
    artifact = _artifact(spec.artifact, program, "", "artifact") if spec.artifact else None
    extensions, passed_over = _extensions(spec, sources, program)
    return _Contents(
        artifact=artifact,
        extensions=place_extensions(extensions, artifact),
        category=effective_category(spec, program),
        config_format=_config_format(spec, program),
        passed_over=passed_over,
    )


def _resolved(
    spec: GroupSpec, sources: TemplateSources, draw: Draw, look_up: Callable[[], _Contents]
) -> ResolvedPlan:
    selection, found = select_templates(spec, sources, draw), look_up()
    settings = [layer.version.settings for layer in selection.layers]
    types = declared(settings, spec.variable_types)
    variables = merge_layers(
        defaults(types), template_layer(settings), property_variables(spec.properties), spec.variables
    )
    check_values(types, variables)
    plan = _plan(
        spec,
        variables=variables,
        variable_types=types,
        substitute=_united(spec.substitute, settings),
        templates=_templates(selection.layers),
        artifact=found.artifact,
        extensions=found.extensions,
        category=found.category,
        config_format=found.config_format,
    )
    refuse_in_command(plan)
    layers = candidate_layers(spec, sources) if selection.picks else selection.layers
    basis = start_basis(spec, layers, found.artifact, found.extensions)
    return ResolvedPlan(
        plan=plan,
        record=encode_plan(plan),
        picks=selection.picks,
        passed_over=found.passed_over,
        basis=basis,
        document_basis=basis,
        pins=RevisionPins(
            templates=_templates(layers) if selection.picks else plan.templates,
            artifact=found.artifact,
            extensions=found.extensions,
            category=found.category,
            config_format=found.config_format,
        ),
    )


def _plan(spec: GroupSpec, *, artifact: PlanArtifact | None, **looked_up: Any) -> Plan:
    """What is in the document as it is there, and what was looked up."""
    return Plan(
        group=spec.name,
        runtime=spec.runtime,
        command=spec.command,
        args=spec.args,
        env=spec.env,
        strict_variables=spec.strict_variables,
        merge=spec.merge,
        patches=spec.patches,
        artifact=artifact,
        jvm=_jvm(spec, artifact),
        warm_paths=spec.warmup.paths,
        memory_mb=spec.memory_mb,
        cpu=spec.cpu,
        pids=spec.pids,
        disk_mb=spec.disk_mb,
        console_mb=spec.console_mb,
        max_players=spec.max_players,
        host_address=spec.host_address,
        run_as=spec.run_as,
        isolate=spec.isolate.value,
        stdin=spec.stdin.value,
        tty=spec.tty,
        line_buffered=spec.line_buffered,
        stop=spec.stop,
        startup_timeout_seconds=spec.startup_timeout_seconds,
        min_alive_ms=spec.min_alive_ms,
        max_lifetime_seconds=spec.max_lifetime_seconds,
        crash_keep_seconds=spec.crash_keep_seconds,
        restart=_restart(spec.restart),
        restart_on=spec.restart.on.value,
        clean_exit_codes=spec.clean_exit_codes,
        stop_after_seconds=spec.disconnect.stop_after_seconds,
        probes=tuple(PlanProbe(**msgspec.structs.asdict(probe)) for probe in spec.probes),
        static=spec.static,
        protected_paths=spec.protected_paths,
        **looked_up,
    )


def check_instance_variables(plan: Plan, variables: Mapping[str, str], *, field: str = "variables") -> None:
    """The instance's own layer: its names, and with the plan's values every type and what is required."""
    check_names(variables, field=field)
    check_values(plan.variable_types, {**plan.variables, **variables}, field=field, complete=True)


def _restart(rule: RestartSpec) -> PlanRestart:
    return PlanRestart(
        attempts=rule.attempts,
        interval_seconds=rule.interval_seconds,
        delay_ms=rule.delay_ms,
        max_delay_ms=rule.max_delay_ms,
    )


def _templates(layers: Iterable[Layer]) -> tuple[PlanTemplate, ...]:
    return tuple(
        PlanTemplate(
            name=layer.record.name,
            version=layer.version.number,
            hash=layer.version.hash,
            override=layer.override,
        )
        for layer in layers
    )


def _united(own: Iterable[str], settings: Iterable[TemplateSettings]) -> tuple[str, ...]:
    """The group's globs and those of its templates, each once."""
    return tuple(dict.fromkeys([*own, *(glob for each in settings for glob in each.substitute)]))


def _entry(spec: ArtifactSpec | None, sources: PlanSources, field: str) -> CatalogRecord | None:
    """The entry of the catalog that an artifact names; None when it is given by its URL."""
    if spec is None or spec.url:
        return None
    found = sources.artifact(spec.platform, spec.version)
    if found is None:
        raise Rejected(
            Code.ARTIFACT_NOT_FOUND,
            f"the catalog has no '{spec.platform}/{spec.version}'",
            hint="add it, or correct the name: corral catalog list",
            field=field,
        )
    return found


def _artifact(spec: ArtifactSpec, entry: CatalogRecord | None, directory: str, field: str) -> PlanArtifact:
    name = file_of(spec, entry)
    file = check_path(f"{directory}/{name}" if directory else name, field=f"{field}/file")
    if entry is None:
        return PlanArtifact(file=file, url=spec.url, sha256=spec.sha256)
    return PlanArtifact(
        platform=entry.platform,
        version=entry.version,
        file=file,
        url=entry.url,
        sha256=entry.sha256,
        size=entry.size,
    )


def _extensions(
    spec: GroupSpec, sources: PlanSources, program: CatalogRecord | None
) -> tuple[list[Candidate], tuple[Alternative, ...]]:
    """Extensions that the group names, in its order; then those that modules add to every group. Under the id of a
    module's extension the group's own entry goes before the module's."""
    packages = sources.packages()
    runs = Program(program.platform, program.version) if program else Program()
    found = []
    for position, each in enumerate(spec.extensions):
        field = f"extensions/{position}"
        if each.artifact is None:
            found.append(requested_extension(each, packages, runs, field=field))
        else:
            found.append(_own_extension(each, each.artifact, sources, field))
    named = {(each.module, each.id) for each in spec.extensions}
    added = added_extensions(packages, runs, besides=named)
    return [*found, *added.candidates], added.passed_over


def _own_extension(
    spec: ExtensionSpec, requested: ArtifactSpec, sources: PlanSources, field: str
) -> Candidate:
    at = f"{field}/artifact"
    artifact = _artifact(requested, _entry(requested, sources, at), install_directory(spec), at)
    planned = PlanExtension(id=spec.id, variant=spec.variant, module=spec.module, artifact=artifact)
    return Candidate(field=field, extension=planned)


def _jvm(spec: GroupSpec, artifact: PlanArtifact | None) -> PlanJvm | None:
    jvm = spec.jvm
    if jvm is None or spec.command:
        return None
    jar = jvm.jar or (artifact.file if artifact else "")
    if not jar:
        raise invalid("jvm/jar", "there is neither a jar nor an artifact", "name one of them")
    heap = jvm.heap_mb
    if not heap and not any(argument.startswith("-Xmx") for argument in jvm.args):
        heap = spec.memory_mb * _HEAP_PARTS[0] // _HEAP_PARTS[1]
    return PlanJvm(jar=jar, args=jvm.args, java=jvm.java, heap_mb=heap)


def effective_category(spec: GroupSpec, program: CatalogRecord | None) -> Category:
    """The category of a group: its own, else that of its program in the catalog."""
    return spec.category or (program.category if program else Category.NONE)


def _config_format(spec: GroupSpec, program: CatalogRecord | None) -> ConfigFormat:
    return spec.config_format or (program.config_format if program else ConfigFormat.NONE)
