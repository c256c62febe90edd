"""What a preparation takes from the cache."""

from __future__ import annotations

import pathlib
from typing import Final, Protocol

import structlog

from corral.daemon.cache.artifact_sync import described
from corral.daemon.cache.bootstrap_store import BootstrapKey
from corral.daemon.cache.quota import Pin
from corral.daemon.cache.sealed_files import is_digest
from corral.daemon.cache.supply import Supply
from corral.domain.plans import PlanArtifact
from corral.domain.templates import Manifest
from corral.errors import Code, Rejected, Retryable

_LOOKS: Final = 3
_log = structlog.get_logger("corral.daemon.cache")


class NamedVersion(Protocol):
    """A version of a template; an empty hash means the current one."""

    @property
    def name(self) -> str: ...

    @property
    def hash(self) -> str: ...


class CacheUse:
    """What one preparation uses. See `NodeCache.use`. Whatever it gives is pinned until the end."""

    def __init__(self, supply: Supply, pins: list[Pin]) -> None:
        self._supply = supply
        self._pins = pins

    async def template(self, template: NamedVersion) -> Manifest:
        """The files of this version, all of them in the cache and verified; `content` says where.

        What is here needs no controller. Else: Retryable TEMPLATE_UNAVAILABLE, CACHE_FULL or DISK_FULL,
        Rejected TEMPLATE_NOT_FOUND, PATH_REFUSED, ARCHIVE_INVALID, ARCHIVE_TOO_LARGE or CACHE_FULL.
        """
        _check_hash(template.name, template.hash)
        if template.hash:
            return await self._present(template.name, template.hash)
        try:
            hash = await self._supply.bring_template(template.name, "")
        except Retryable:
            if not (hash := self._supply.newest_hash(template.name)):
                raise
            _log.warning("cache.version_assumed", template=template.name, hash=hash[:12])
        return await self._present(template.name, hash)

    async def fresh_template(self, name: str, hash: str) -> Manifest:
        """Like `template`, but without a controller there is no current version."""
        _check_hash(name, hash)
        return await self._present(name, hash or await self._supply.bring_template(name, ""))

    def content(self, digest: str) -> pathlib.Path:
        """Where a file of a template of this use lies. It is for reading, cloning and, when it is marked
        read-only, linking; whoever writes to it or changes its times makes it useless."""
        return self._supply.content_path(digest)

    async def artifact(self, artifact: PlanArtifact) -> pathlib.Path:
        """The verified file. Rejected ARTIFACT_REFUSED, ARTIFACT_NOT_FOUND, ARTIFACT_DIGEST_MISMATCH or
        CACHE_DOWNLOAD_FAILED; Retryable CACHE_DOWNLOAD_FAILED, TEMPLATE_UNAVAILABLE or CACHE_FULL."""
        for _ in range(_LOOKS):
            path = await self._supply.pinned_artifact(artifact.sha256, self._pins)
            if path is not None:
                await self._supply.settle()
                return path
            await self._supply.bring_artifact(artifact)
        raise _unstable(described(artifact))

    def bootstrap(self, key: BootstrapKey) -> pathlib.Path | None:
        """A tree of files that a first run made, to be copied; None when there is none."""
        return self._supply.pinned_bootstrap(key, self._pins)

    async def _present(self, name: str, hash: str) -> Manifest:
        for _ in range(_LOOKS):
            manifest = await self._supply.pinned_template(hash, self._pins)
            if manifest is not None:
                await self._supply.settle()
                return manifest
            await self._supply.bring_template(name, hash)
        raise _unstable(f"template '{name}'")


def _check_hash(name: str, hash: str) -> None:
    """It becomes the name of a file."""
    if hash and not is_digest(hash):
        raise Rejected(
            Code.INVALID_FIELD,
            f"template '{name}' is named with {hash[:80]!r}, which is no hash",
            field="hash",
        )


def _unstable(subject: str) -> Retryable:
    return Retryable(
        Code.TEMPLATE_UNAVAILABLE,
        f"{subject} was fetched, and is not there",
        hint="does something else remove files from this node's cache?",
    )
