"""What a preparation needs of the node's cache."""

from __future__ import annotations

import contextlib
import pathlib
from typing import Protocol

from corral.daemon.cache.bootstrap_store import BootstrapKey, FileGuard
from corral.domain.plans import PlanArtifact, PlanTemplate
from corral.domain.templates import Manifest


class FileUse(Protocol):
    """What one preparation uses stays in the cache until it ends."""

    async def template(self, template: PlanTemplate, /) -> Manifest:
        """This version, complete on this node. Rejected or Retryable; then nothing half is used."""

    def content(self, digest: str, /) -> pathlib.Path:
        """A file of a template of this use; to be read only."""

    async def artifact(self, artifact: PlanArtifact, /) -> pathlib.Path:
        """With the right digest; to be read only."""

    def bootstrap(self, key: BootstrapKey, /) -> pathlib.Path | None:
        """The tree of first-run results, if there is one."""


class FileCache(Protocol):
    def use(self) -> contextlib.AbstractAsyncContextManager[FileUse]: ...

    async def keep_bootstrap(
        self, key: BootstrapKey, root: pathlib.Path, *, owner: int, guard: FileGuard
    ) -> int: ...
