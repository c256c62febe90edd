"""Archive supply of the engine: archives from this controller's archive store, and what it lacks from the
blobs of the store.

The store is the source of truth for every controller; the local archive store is rebuilt from it when it is
missing or damaged. Digest and, where configured, signature are checked each time that an archive is loaded.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from corral.domain.modules.manifest import Manifest
from corral.domain.modules.records import PackageRecord, SignatureFacts
from corral.errors import Code, CorralError, Rejected
from corral.modules.archive.archive_reader import ArchiveFacts
from corral.modules.archive.archive_store import ArchiveStore, disk_faults
from corral.signing import Sidecar, SidecarKind, Verifier
from corral.store.port import BlobEngine
from corral.store.store_errors import StoreUnavailable
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.clock import Clock
from corral.system.threads import to_end

_BLOCK: Final = 256 * 1024
_DAMAGED: Final = frozenset({Code.DIGEST_MISMATCH, Code.ARTIFACT_DIGEST_MISMATCH, Code.NOT_FOUND})
_log = structlog.get_logger("corral.controller.modules")

Records = Callable[[], Iterable[PackageRecord]]


class StoredArchives:
    """The `ArchiveSupply` of a controller."""

    def __init__(
        self,
        *,
        store: ArchiveStore,
        blobs: BlobEngine,
        records: Records,
        verifier: Callable[[], Verifier],
        clock: Clock,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._records = records
        self._verifier = verifier
        self._clock = clock
        self._pinned: collections.Counter[str] = collections.Counter()
        self._signatures: dict[str, SignatureFacts | None] = {}
        self._fetching = KeyedLocks[str]()

    # in

    async def verify(self, archive: Path, sha256: str, sidecar: Sidecar | None) -> SignatureFacts | None:
        """Signature facts of an archive. A signature that this controller has no keys for is stored as it is,
        with neither identity nor key: nodes may have the keys. SIGNATURE_VERIFICATION_FAILED."""
        work = functools.partial(self._verifier().verify, archive, sha256=sha256, sidecar=sidecar)
        proven = await to_end(work)
        if proven is None and sidecar is not None:
            return SignatureFacts(kind=sidecar.kind)
        return proven

    @contextlib.contextmanager
    def pinned(self, *digests: str) -> Iterator[None]:
        """Keep these archives meanwhile, whatever the records name."""
        self._pinned.update(digests)
        try:
            yield
        finally:
            self._pinned.subtract(digests)
            self._pinned += collections.Counter()  # drops those that are at zero

    async def keep(
        self, archive: Path, facts: ArchiveFacts, signature: SignatureFacts | None, sidecar: Sidecar | None
    ) -> SignatureFacts | None:
        """Put archive, sidecar and the files for instances into the store, the first two into the local
        archive store as well; the facts name the sidecar's blob. What no record names afterwards is
        garbage-collected."""
        await self._blobs.put_blob(_blocks(archive), expect=facts.sha256)
        if signature is not None and sidecar is not None:
            (info,) = await self._blobs.put_blobs([sidecar.content])
            signature = msgspec.structs.replace(signature, blob=info.digest)
        await self._store.put(archive, expect=facts.sha256)
        if signature is not None and sidecar is not None:
            await self._store.put_sidecar(facts.sha256, sidecar.kind, sidecar.content)
        self._signatures[facts.sha256] = signature
        if files := extension_files(facts.manifest):
            # Not `unpacked`: that would check the signature of the record, and this is another.
            await self._keep_files(await self._store.unpacked(facts.sha256), files)
        return signature

    async def _keep_files(self, tree: Path, files: Mapping[str, str]) -> None:
        """Store these files of an unpacked archive, by digest, as blobs of their own."""
        for sha256, file in files.items():
            await self._blobs.put_blob(_blocks(tree / file), expect=sha256)

    async def mend_files(self) -> None:
        """Store missing files for instances, out of their archives: those of packages that an earlier version
        installed, which stored archives only. Files that an archive does not have are logged and skipped: a
        start that needs one reports it, too. Raises what the store raises."""
        for record in self._records():
            files = extension_files(record.manifest)
            held = await self._blobs.blob_sizes(files) if files else {}
            lacking = {sha256: file for sha256, file in files.items() if sha256 not in held}
            if not lacking:
                continue
            try:
                tree = await self.unpacked(record.sha256)
                with disk_faults():
                    await self._keep_files(tree, lacking)
            except CorralError as error:
                if isinstance(error, StoreUnavailable):
                    raise
                _log.warning("module_extension.failed", module=record.id, reason=str(error))

    async def stamp(self, record: PackageRecord) -> None:
        """Protect its blobs for a while, even if no record names them any more."""
        await self._blobs.touch_blobs(blobs_of(record), at=self._clock.now())

    # out

    async def unpacked(self, sha256: str) -> Path:
        """The unpacked archive, read-only. NOT_FOUND when both stores have lost it,
        SIGNATURE_VERIFICATION_FAILED when it may not be loaded (any more)."""
        async with self._fetching.hold(sha256):
            try:
                return await self._checked(sha256)
            except CorralError as error:
                if error.code not in _DAMAGED:
                    raise
                _log.warning("archive.retried", sha256=sha256, reason=str(error))
            await self._store.forget(sha256)
            return await self._checked(sha256)

    async def _checked(self, sha256: str) -> Path:
        path = self._store.path(sha256)
        if not await to_end(path.exists):
            await self._fetch(sha256)
        signature = self._signature(sha256)
        sidecar = await self._sidecar(signature) if signature is not None else None
        verify = functools.partial(self._verifier().verify, sha256=sha256, sidecar=sidecar)
        return await self._store.unpacked(sha256, verify=verify)

    async def _fetch(self, sha256: str) -> None:
        if await self._blobs.blob_info(sha256) is None:
            raise Rejected(
                Code.NOT_FOUND,
                f"archive {sha256} is neither in the archive directory nor in the store",
                hint="install the module again",
            )
        await self._store.put(self._blobs.read_blob(sha256), expect=sha256)
        signature = self._signature(sha256)
        sidecar = await self._sidecar(signature) if signature is not None else None
        if sidecar is not None:
            await self._store.put_sidecar(sha256, sidecar.kind, sidecar.content)

    def _signature(self, sha256: str) -> SignatureFacts | None:
        for record in self._records():
            if record.sha256 == sha256:
                return record.signature
        return self._signatures.get(sha256)

    async def _sidecar(self, signature: SignatureFacts) -> Sidecar | None:
        if not signature.blob:
            return None
        parts = [part async for part in self._blobs.read_blobs([signature.blob])]
        kind: SidecarKind = "sig" if signature.kind == "sig" else "cosign-bundle"
        return Sidecar(kind=kind, content=b"".join(parts))

    # upkeep

    async def sweep(self) -> list[str]:
        """Remove archives that neither a record nor a pin names; returns them."""
        named = {record.sha256 for record in self._records()} | set(self._pinned)
        surplus = sorted(await to_end(self._store.held) - named)
        dropped = []
        for sha256 in surplus:
            if sha256 in self._pinned or any(r.sha256 == sha256 for r in self._records()):
                continue  # it was stored again meanwhile
            await self._store.forget(sha256)
            self._signatures.pop(sha256, None)
            dropped.append(sha256)
        return dropped


async def _blocks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while block := await to_end(file.read, _BLOCK):
            yield block


def blobs_of(record: PackageRecord) -> set[str]:
    """Digests of its archive, of its signature's sidecar, and of the files it installs into instances."""
    sidecar = record.signature.blob if record.signature else ""
    return {record.sha256, sidecar, *extension_files(record.manifest)} - {""}


def extension_files(manifest: Manifest) -> dict[str, str]:
    """The files it installs into instances, by digest, with their path in the archive. Nodes fetch them by
    these digests, as they fetch uploaded programs; so each is a blob of its own."""
    return {
        variant.sha256: variant.file for extension in manifest.extensions for variant in extension.variants
    }
