"""Archives of modules in the node's cache. Digest and signature are checked when one comes in, and each time that
it is loaded: what was changed on the disk meanwhile never runs.

They lie beside the rest of the cache, but count towards nobody's quota and are never evicted: they go when no
module names them any more.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from corral.domain.module_records import SignatureFacts
from corral.errors import Code, CorralError, Rejected
from corral.modules.archive.archive_reader import ArchiveFacts, has_digest, inspect_archive
from corral.modules.archive.archive_store import ArchiveStore
from corral.signing import Sidecar, Verifier, sidecar_beside, sidecar_digest
from corral.system.threads import to_end

_PASSABLE: Final = 0o711


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that was proven and is kept now."""

    facts: ArchiveFacts
    signature: SignatureFacts | None


class CachedArchives:
    """The `ArchiveSupply` of a node."""

    def __init__(
        self, directory: Path, *, verifier: Callable[[], Verifier], max_bytes: int, run_as: str = ""
    ) -> None:
        """`directory` is two levels beneath the cache's own."""
        self._directory = directory
        self._shelf = ArchiveStore(directory, max_bytes=max_bytes)
        self._verifier = verifier
        self._max_bytes = max_bytes
        self._run_as = run_as
        self._pinned: collections.Counter[str] = collections.Counter()
        self._dropping = asyncio.Lock()

    # --- in -------------------------------------------------------------------------------------
    async def holds(self, sha256: str) -> bool:
        """Whether the archive is here, unharmed. One that is `pinned` stays so."""
        async with self._dropping:
            pass  # what was not pinned in time is gone by now
        return await to_end(has_digest, self._shelf.path(sha256), sha256)

    async def receive(self, archive: Path, *, sha256: str, sidecar: Sidecar | None) -> Received:
        """Move an archive here, if it is what it should be: ARTIFACT_DIGEST_MISMATCH,
        SIGNATURE_VERIFICATION_FAILED, or what `inspect_archive` raises; it stays where it is then. Without a
        sidecar the one counts that lies beside its place, if any."""
        received = await to_end(self._prove, archive, sha256, sidecar)
        await self._shelf.take(archive, expect=sha256)
        await self._keep_sidecar(sha256, sidecar)
        return received

    async def recall(self, *, sha256: str, sidecar: Sidecar | None) -> Received:
        """The same for an archive that `holds` found."""
        received = await to_end(self._prove, self._shelf.path(sha256), sha256, sidecar)
        await self._keep_sidecar(sha256, sidecar)
        return received

    async def _keep_sidecar(self, sha256: str, sidecar: Sidecar | None) -> None:
        if sidecar is not None:
            await self._shelf.put_sidecar(sha256, sidecar.kind, sidecar.content)

    def _prove(self, archive: Path, sha256: str, sidecar: Sidecar | None) -> Received:
        """Its digest and its signature first, looked into afterwards."""
        if not has_digest(archive, sha256):
            raise Rejected(
                Code.ARTIFACT_DIGEST_MISMATCH,
                f"what came is not the archive {sha256}",
                hint="it was changed or cut on its way; it is fetched again at the next session",
            )
        sidecar = sidecar or sidecar_beside(self._shelf.path(sha256))
        signature = self._verifier().verify(archive, sha256=sha256, sidecar=sidecar)
        facts = inspect_archive(archive, max_bytes=self._max_bytes)
        if signature is None and sidecar is not None:
            signature = SignatureFacts(kind=sidecar.kind)
        if signature is not None:
            signature = msgspec.structs.replace(signature, blob=sidecar_digest(sidecar))
        return Received(facts=facts, signature=signature)

    # --- out ------------------------------------------------------------------------------------
    async def unpacked(self, sha256: str) -> Path:
        """Part of `ArchiveSupply`."""
        with self.pinned(sha256):
            tree = await self._shelf.unpacked(
                sha256, judge=functools.partial(self._check_signature, sha256=sha256)
            )
            if self._run_as and os.geteuid() == 0:
                await to_end(self._let_pass)
            return tree

    def _check_signature(self, archive: Path, *, sha256: str) -> None:
        self._verifier().verify(archive, sha256=sha256, sidecar=sidecar_beside(archive))

    def _let_pass(self) -> None:
        """Modules run as somebody else, who has to come as far as their trees; what else lies on the way is
        closed to him."""
        for directory in (self._directory.parent, self._directory.parent.parent):
            directory.chmod(_PASSABLE)

    # --- upkeep ---------------------------------------------------------------------------------
    @contextlib.contextmanager
    def pinned(self, *digests: str) -> Iterator[None]:
        """These archives stay, whoever names them."""
        self._pinned.update(digests)
        try:
            yield
        finally:
            self._pinned.subtract(digests)
            self._pinned = +self._pinned

    async def sweep(self, named: Callable[[], set[str]]) -> list[str]:
        """Drop what nobody names; returns what went."""
        dropped = []
        for sha256 in sorted(await to_end(self._shelf.held) - named()):
            async with self._dropping:
                if sha256 in self._pinned or sha256 in named():
                    continue  # it was wanted again meanwhile
                with contextlib.suppress(CorralError):  # a disk that refuses: the next sweep takes it
                    await self._shelf.forget(sha256)
                    dropped.append(sha256)
        return dropped
