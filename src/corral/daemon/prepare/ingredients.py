"""Ingredients of a working directory, fetched to the node through the port of its cache.

Templates, the artifact and the extensions are fetched concurrently; the first failure cancels the others. An artifact
is laid like one more layer, above all templates.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import Coroutine
from typing import Any, Final, Protocol

import msgspec

from corral.daemon.cache.bootstrap_store import ISOLATED, BootstrapKey, FileGuard
from corral.daemon.prepare.layout import FileLayer, TreeLayout, lay_out
from corral.daemon.workload.start_stages import (
    EXTENSION_PROVISION,
    RUNTIME_PROVISION,
    TEMPLATE_APPLY,
    StartProgress,
)
from corral.daemon.workload.workload_users import WorkloadUser
from corral.domain.file_paths import check_path, globs
from corral.domain.groups.plans import Plan, PlanArtifact, PlanTemplate
from corral.domain.templates import TemplateFile, TemplateManifest
from corral.errors import Code, Rejected
from corral.system.aio.tasks import Tasks


class FileUse(Protocol):
    """Cached files in use by one preparation; they stay in the cache until it ends."""

    async def template(self, template: PlanTemplate, /) -> TemplateManifest:
        """This version, complete on this node. Rejected or Retryable; then no partial template is used."""

    def content(self, digest: str, /) -> pathlib.Path:
        """A file of a template of this use; to be read only."""

    async def artifact(self, artifact: PlanArtifact, /) -> pathlib.Path:
        """The file, with its digest verified; to be read only."""

    def bootstrap(self, key: BootstrapKey, /) -> pathlib.Path | None:
        """The tree of first-run results, if there is one."""


class FileCache(Protocol):
    def use(self) -> contextlib.AbstractAsyncContextManager[FileUse]: ...

    async def keep_bootstrap(
        self, key: BootstrapKey, root: pathlib.Path, *, owner: int, guard: FileGuard
    ) -> int: ...


_PROGRAM_MODE: Final = 0o755
_EXTENSION_MODE: Final = 0o644


class Ingredients(msgspec.Struct, frozen=True, kw_only=True):
    """The fetched files, and their layout."""

    layout: TreeLayout
    texts: frozenset[str]
    """The files that come from templates: variables are replaced in these only."""
    placed: dict[str, pathlib.Path]
    """Contents of artifacts, by their digests."""
    use: FileUse

    def content(self, digest: str) -> pathlib.Path:
        return self.placed.get(digest) or self.use.content(digest)


async def fetch(plan: Plan, use: FileUse, progress: StartProgress) -> Ingredients:
    """Fetch everything; StageFailed with the stage of the part that failed."""
    artifacts = (plan.artifact,) if plan.artifact else ()
    added = tuple(extension.artifact for extension in plan.extensions)
    if not artifacts and not added:
        templates, artifact, extensions = await _templates(plan, use, progress), [], []
    else:
        templates, artifact, extensions = await _side_by_side(
            _templates(plan, use, progress),
            _artifacts(RUNTIME_PROVISION, artifacts, use, progress),
            _artifacts(EXTENSION_PROVISION, added, use, progress),
        )
    with progress.stage(TEMPLATE_APPLY):
        merge = globs(plan.merge)
        programs = _as_layer(artifact, _PROGRAM_MODE)
        others = _as_layer(extensions, _EXTENSION_MODE)
        layout = lay_out((*templates, programs, others), merge)
        placed = {file.path for layer in (programs, others) for file in layer.manifest.files}
        return Ingredients(
            layout=layout,
            texts=layout.paths - placed,
            placed={one.sha256: path for one, path in (*artifact, *extensions)},
            use=use,
        )


async def _templates(plan: Plan, use: FileUse, progress: StartProgress) -> list[FileLayer]:
    if not plan.templates:
        return []
    with progress.stage(TEMPLATE_APPLY):
        return [
            FileLayer(name=template.name, manifest=await use.template(template), override=template.override)
            for template in plan.templates
        ]


async def _artifacts(
    stage: str, artifacts: tuple[PlanArtifact, ...], use: FileUse, progress: StartProgress
) -> list[tuple[PlanArtifact, pathlib.Path]]:
    if not artifacts:
        return []
    with progress.stage(stage):
        check_places(artifacts)
        return [(artifact, await use.artifact(artifact)) for artifact in artifacts]


def check_places(artifacts: tuple[PlanArtifact, ...]) -> None:
    """Check that each has a path of its own within the directory: EXTENSION_CONFLICT, PATH_REFUSED."""
    taken: set[str] = set()
    for artifact in artifacts:
        check_path(artifact.file, field="file")
        if artifact.file in taken:
            raise Rejected(
                Code.EXTENSION_CONFLICT,
                f"two extensions want to be '{artifact.file}'",
                hint="give one of them another install_path",
                field="extensions",
            )
        taken.add(artifact.file)


def _as_layer(found: list[tuple[PlanArtifact, pathlib.Path]], mode: int) -> FileLayer:
    files = tuple(
        TemplateFile(path=artifact.file, mode=mode, size=path.stat().st_size, digest=artifact.sha256)
        for artifact, path in found
    )
    return FileLayer(name="", manifest=TemplateManifest(files=files), override=True)


async def _side_by_side(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """All results in order. The first failure cancels the others and is raised."""
    async with Tasks() as tasks:
        running = [tasks.spawn(each, name="prepare/gather", awaited=True) for each in work]
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        for task in running:
            if task in done:
                task.result()
        return [task.result() for task in running]


def bootstrap_key(plan: Plan, user: WorkloadUser) -> BootstrapKey | None:
    """The key of the first-run results; None when the group stores none."""
    if not plan.warm_paths or plan.artifact is None:
        return None
    return BootstrapKey(
        group=plan.group,
        user=ISOLATED if user.isolated else user.run_as or user.name,
        paths=plan.warm_paths,
        config_format=plan.config_format.value,
        version=plan.artifact.version,
        digest=plan.artifact.sha256,
    )
