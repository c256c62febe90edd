"""Where the files of an instance come from: what the plan of its run laid there, and what its workload made.

It is said by path alone: a file of a template that the workload has written since still comes from the template, and
differs from it.
"""

from __future__ import annotations

import bisect
import enum
import functools

import msgspec

from corral.controller.state.cluster_state import ClusterState
from corral.controller.templates.library import TemplateLibrary
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.groups.plans import Plan, PlanTemplate, read_plan
from corral.domain.templates import TemplateFile, TemplateManifest, TemplateVersion
from corral.errors import Code, CorralError, Rejected
from corral.system.threads import to_end


class OriginKind(enum.StrEnum):
    TEMPLATE = "template"
    PATCH = "patch"
    """A configuration file that the group's patches change, whoever laid it."""
    ARTIFACT = "artifact"
    """A file that the catalog or a module has, such as a server's program."""
    WORKLOAD = "workload"
    UNKNOWN = "unknown"
    """The plan of the run, or a version in it, is not kept any more."""


class FileOrigin(msgspec.Struct, frozen=True, kw_only=True):
    kind: OriginKind
    template: str = ""
    version: int = 0


class _Layer(msgspec.Struct, frozen=True, kw_only=True):
    """A template as it was laid. Its paths are sorted: it may have a hundred thousand, and few are asked for."""

    template: PlanTemplate
    files: tuple[TemplateFile, ...]
    paths: list[str]
    """Of the files."""
    directories: list[str]
    """The empty ones."""

    def file(self, path: str) -> TemplateFile | None:
        at = bisect.bisect_left(self.paths, path)
        return self.files[at] if at < len(self.paths) and self.paths[at] == path else None

    def has_directory(self, path: str) -> bool:
        within = f"{path}/"
        return (
            _first(self.paths, within).startswith(within)
            or _first(self.directories, path) == path
            or _first(self.directories, within).startswith(within)
        )


def _layer(template: PlanTemplate, manifest: TemplateManifest) -> _Layer:
    return _Layer(
        template=template,
        files=manifest.files,
        paths=[file.path for file in manifest.files],
        directories=sorted(manifest.directories),
    )


def _first(paths: list[str], at_least: str) -> str:
    """The first path that is not before this one; empty: none."""
    at = bisect.bisect_left(paths, at_least)
    return paths[at] if at < len(paths) else ""


class FileOrigins:
    """The origins of the paths of one run."""

    def __init__(self, plan: Plan | None, layers: tuple[_Layer, ...], *, complete: bool) -> None:
        self._layers = layers
        self._complete = complete and plan is not None
        self._patched = frozenset(patch.file for patch in plan.patches) if plan is not None else frozenset()
        self._artifacts: frozenset[str] = frozenset()
        if plan is not None:
            extensions = (extension.artifact for extension in plan.extensions)
            artifacts = (*([plan.artifact] if plan.artifact is not None else []), *extensions)
            self._artifacts = frozenset(artifact.file for artifact in artifacts)

    def of(self, path: str) -> FileOrigin:
        layer = self._layer(path)
        if path in self._patched:
            kind = OriginKind.PATCH
        elif layer is not None:
            kind = OriginKind.TEMPLATE
        elif path in self._artifacts:
            kind = OriginKind.ARTIFACT
        else:
            kind = OriginKind.WORKLOAD if self._complete else OriginKind.UNKNOWN
        if layer is None:
            return FileOrigin(kind=kind)
        return FileOrigin(kind=kind, template=layer.name, version=layer.version)

    def file(self, path: str) -> tuple[PlanTemplate, TemplateFile] | None:
        """The file that a template has at this path, as it was laid last."""
        result: tuple[PlanTemplate, TemplateFile] | None = None
        for layer in self._layers:
            found = layer.file(path)
            if found is not None and (result is None or layer.template.override):
                result = layer.template, found
        return result

    def _layer(self, path: str) -> PlanTemplate | None:
        """The last template that laid something there: one without `override` leaves what is there."""
        found = self.file(path)
        if found is not None:
            return found[0]
        return next((layer.template for layer in self._layers if layer.has_directory(path)), None)


async def origins_of(state: ClusterState, library: TemplateLibrary, record: InstanceRecord) -> FileOrigins:
    """By the plan of the present or last run; UNKNOWN for what is not kept any more."""
    stored = state.plans.find(record.plan_hash)
    if stored is None:
        return FileOrigins(None, (), complete=False)
    plan = read_plan(stored.record)
    layers: list[_Layer] = []
    for template in plan.templates:
        version = _version(state, template)
        if version is None:
            continue
        try:
            manifest = await library.tree_of(version)
        except CorralError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            continue
        layers.append(await to_end(functools.partial(_layer, template, manifest)))
    return FileOrigins(plan, tuple(layers), complete=len(layers) == len(plan.templates))


def no_origin(record: InstanceRecord, path: str) -> Rejected:
    return Rejected(
        Code.NOT_FOUND,
        f"no template of the run of instance '{record.id}' has a file '{path}'",
        hint="its workload made it, or the version is not kept any more",
        field="path",
    )


def _version(state: ClusterState, template: PlanTemplate) -> TemplateVersion | None:
    stored = state.templates.find(template.name)
    if stored is None:
        return None
    return stored.record.by_hash(template.hash)
