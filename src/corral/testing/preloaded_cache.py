"""A node's cache without a controller: it holds what the test puts in, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import pathlib
from collections.abc import AsyncIterator, Iterable, Mapping

from corral.daemon.cache.bootstrap_store import BootstrapKey, FileGuard
from corral.domain.groups.plans import PlanArtifact, PlanTemplate
from corral.domain.templates import TemplateFile, TemplateManifest, manifest_digest
from corral.errors import Code, CorralError, Rejected

File = bytes | tuple[bytes, int]


class PreloadedCache:
    """`template` and `artifact` put something into the cache and return its entry in a plan. `shut` makes
    callers wait; `broken` answers with this error."""

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        self._manifests: dict[str, TemplateManifest] = {}
        self._bootstraps: dict[str, pathlib.Path] = {}
        self.shut: asyncio.Event | None = None
        self.reached = asyncio.Event()
        self.broken: CorralError | None = None
        self.uses = 0
        self.asked: list[str] = []
        self.kept: list[tuple[BootstrapKey, pathlib.Path, int]] = []
        self.guards: list[FileGuard] = []
        """The secrets to leave out, of each call of `keep_bootstrap`."""

    def template(
        self, name: str, files: Mapping[str, File], *, directories: Iterable[str] = (), override: bool = True
    ) -> PlanTemplate:
        entries = []
        for path, content in sorted(files.items()):
            body, mode = content if isinstance(content, tuple) else (content, 0o644)
            entries.append(TemplateFile(path=path, mode=mode, size=len(body), digest=self._put(body)))
        manifest = TemplateManifest(files=tuple(entries), directories=tuple(directories))
        hash = manifest_digest(manifest)
        self._manifests[hash] = manifest
        return PlanTemplate(name=name, version=1, hash=hash, override=override)

    def artifact(self, file: str, body: bytes, *, version: str = "1") -> PlanArtifact:
        return PlanArtifact(
            platform="test", version=version, file=file, sha256=self._put(body), size=len(body)
        )

    def _put(self, body: bytes) -> str:
        digest = hashlib.sha256(body).hexdigest()
        path = self._root / digest
        if not path.exists():
            path.write_bytes(body)
            path.chmod(0o444)
        return digest

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[PreloadedCacheUse]:
        self.uses += 1
        try:
            yield PreloadedCacheUse(self)
        finally:
            self.uses -= 1

    async def keep_bootstrap(
        self, key: BootstrapKey, root: pathlib.Path, *, owner: int, guard: FileGuard
    ) -> int:
        self.kept.append((key, root, owner))
        self.guards.append(guard)
        return 0

    def put_bootstrap(self, key: BootstrapKey, tree: pathlib.Path) -> None:
        self._bootstraps[key.name] = tree

    async def _asked(self, what: str) -> None:
        self.asked.append(what)
        self.reached.set()
        if self.shut is not None:
            await self.shut.wait()
        if self.broken is not None:
            raise self.broken


class PreloadedCacheUse:
    """The entries that one preparation uses."""

    def __init__(self, cache: PreloadedCache) -> None:
        self._cache = cache

    async def template(self, template: PlanTemplate) -> TemplateManifest:
        await self._cache._asked(template.name)
        found = self._cache._manifests.get(template.hash)
        if found is None:
            raise Rejected(Code.TEMPLATE_NOT_FOUND, f"there is no template '{template.name}'")
        return found

    def content(self, digest: str) -> pathlib.Path:
        return self._cache._root / digest

    async def artifact(self, artifact: PlanArtifact) -> pathlib.Path:
        await self._cache._asked(artifact.file)
        path = self._cache._root / artifact.sha256
        if not path.exists():
            raise Rejected(Code.CACHE_DOWNLOAD_FAILED, f"{artifact.file} cannot be had: 404")
        return path

    def bootstrap(self, key: BootstrapKey) -> pathlib.Path | None:
        return self._cache._bootstraps.get(key.name)
