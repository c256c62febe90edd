"""Convergence of a module to the orders it received: fetch, install, upgrade, sign, remove; each step is idempotent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import msgspec
import structlog

from corral.archives.refusals import MODULE_REFUSALS
from corral.daemon.modules.module_archives import ArchiveCache, ArchiveDownloads, VerifiedArchive
from corral.daemon.modules.module_orders import OrderedPackage, ReceivedOrder
from corral.daemon.modules.package_store import ArchiveRefusal, DiskPackageStore, SignatureRefusal
from corral.daemon.modules.settings_and_reload import SettingsApplier, checked_settings
from corral.daemon.modules.state_reports import lost_archive, signature_answered
from corral.domain.modules.manifest import Manifest, ModuleHost
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import PackageRecord
from corral.domain.modules.verbs import Verb
from corral.domain.versions import parse_range
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.modules.archive.archive_reader import ArchiveFacts
from corral.modules.lifecycle.engine import ModuleEngine
from corral.modules.lifecycle.upgrade import UpgradeFailed
from corral.modules.manifest.manifest_reader import read_manifest
from corral.sdk.version import SDK_VERSION
from corral.signing import sidecar_digest
from corral.system.clock import Clock
from corral.system.threads import to_end

_FOR_GOOD: Final = frozenset(
    {
        Code.SIGNATURE_VERIFICATION_FAILED,
        Code.MANIFEST_INVALID,
        Code.ARCHIVE_INVALID,
        Code.ARCHIVE_TOO_LARGE,
        Code.PATH_REFUSED,
        Code.MODULE_INCOMPATIBLE,
        Code.MODULE_UPGRADE_FAILED,
    }
)
"""Failures that would repeat with this archive: it is not tried again until an operator requests it."""
_PASSING: Final = ("waiting_for_capability:", "capability_conflict:")
"""Reasons of failed upgrades that may succeed as soon as other modules are installed."""
_log = structlog.get_logger("corral.daemon.modules")

Obtain = Callable[[Coroutine[Any, Any, Any], str], Awaitable[Any]]
"""Awaits a fetch that may take for ever, unless a newer order makes the fetch of this digest pointless."""


class Convergence:
    """Converges modules, one run at a time for each id; the caller ensures that."""

    def __init__(
        self,
        *,
        engine: ModuleEngine,
        store: DiskPackageStore,
        archives: ArchiveCache,
        incoming: ArchiveDownloads,
        max_bytes: int,
        clock: Clock,
        forget: Callable[[str], None],
    ) -> None:
        """`forget` is called for modules that were removed."""
        self._engine = engine
        self._store = store
        self._archives = archives
        self._incoming = incoming
        self._max_bytes = max_bytes
        self._clock = clock
        self._forget = forget
        self._applier = SettingsApplier(engine, store)

    async def converge(self, id: str, order: ReceivedOrder, obtain: Obtain) -> None:
        """Carry out an order. Raises the error of the step that failed; the steps before it are done.
        Retryable: try again."""
        if order.gone:
            await self._remove(id)
            return
        known, before = self._store.package(id), self._store.find(id)
        order = order.beyond(recovered_ms=known.recovered_ms, reloaded_ms=known.reloaded_ms)
        refusal: Rejected | None = None
        if order.package is not None:
            try:
                await self._install_package(id, order, order.package, obtain)
            except Rejected:
                await self._store.carried_out(id, recovered_ms=order.recover_ms)
                raise
            refusal = await self._sign_anew(id, order.package, obtain)
        after = self._store.find(id)
        if after is not None:
            mended = order.package is not None and lost_archive(before)
            fresh = before is None or before.sha256 != after.sha256 or mended
            if order.package is not None and order.package.sha256 != after.sha256:
                order = msgspec.structs.replace(
                    order, settings=None
                )  # they are for the version that was refused
            await self._applier.apply(id, order, fresh=fresh)
        elif order.package is None:
            _log.warning("module_order.skipped", module=id, reason="it is not installed on this node")
        if refusal is not None:
            raise refusal

    async def _remove(self, id: str) -> None:
        """Remove record, process, archive and tree; also an archive that was refused and never ran."""
        if self._store.find(id) is not None:
            await self._engine.act(id, Verb.UNINSTALL)
        await self._store.remove(id, reason="uninstall")
        self._forget(id)

    # --- the archive ----------------------------------------------------------------------------
    async def _install_package(
        self, id: str, order: ReceivedOrder, package: OrderedPackage, obtain: Obtain
    ) -> None:
        """Put the ordered archive in the place of the present one. Same digest: no effect."""
        record, refused = self._store.find(id), self._store.package(id).refused
        mending = lost_archive(record)
        if record is not None and record.sha256 == package.sha256 and not mending:
            return
        held = refused if refused is not None and refused.sha256 == package.sha256 else None
        if held is not None and not package.again and not await self._reconsidered(id, held, package):
            return
        if record is None and await self._declined(id, package):
            return
        if record is not None and order.intent not in (None, ModuleIntent.ACTIVE):
            await self._applier.follow_intent(record, order)  # the fetch may take long
        with self._archives.pinned(package.sha256, *([record.sha256] if record else [])):
            try:
                received = await self._obtained(id, package, obtain)
                _check(id, package, received.facts)
                await self._put_in_place(id, order, received)
            except Rejected as error:
                await self._incoming.drop(package.sha256)  # unlike a fetch that was cut off, which is resumed
                await self._store_refusal(id, package, error)
                raise

    async def _reconsidered(self, id: str, refused: ArchiveRefusal, package: OrderedPackage) -> bool:
        """Does an archive that was refused for its signature come with another one?"""
        signature = sidecar_digest(package.sidecar)
        if signature in ("", refused.signature_sha256):
            return False
        if refused.code == Code.SIGNATURE_VERIFICATION_FAILED.name:
            return True
        known = msgspec.structs.replace(refused, signature_sha256=signature, at=self._clock.now())
        await self._store.refuse(id, known)  # reports again that it is refused
        return False

    async def _sign_anew(self, id: str, package: OrderedPackage, obtain: Obtain) -> Rejected | None:
        """Replace the signature of the installed archive; the running module is not affected. Returns why it
        was refused: the old signature stays valid then."""
        record, signature = self._store.find(id), sidecar_digest(package.sidecar)
        if record is None or record.sha256 != package.sha256 or lost_archive(record):
            return None
        if signature in ("", signature_answered(self._store.package(id))):
            return None
        try:
            with self._archives.pinned(package.sha256):
                received = await self._obtained(id, package, obtain)
        except Rejected as error:
            await self._incoming.drop(package.sha256)
            _log.error("module_signature.refused", module=id, sha256=package.sha256, reason=str(error))
            if error.code is Code.SIGNATURE_VERIFICATION_FAILED:  # else retried in the next session
                await self._store.refuse_signature(id, SignatureRefusal(sha256=signature, error=str(error)))
            return error
        await self._store.note_signature(id, received.signature)
        _log.info("module_signature.changed", module=id, version=record.version)
        return None

    async def _declined(self, id: str, package: OrderedPackage) -> bool:
        """Is the module not for this node, by the manifest in the frame? Used only here: it saves the
        transfer of an archive that would be of no use."""
        if package.content or not package.manifest_text:
            return False
        try:
            manifest = await to_end(read_manifest, package.manifest_text)
        except CorralError:
            return False  # the manifest in the archive decides
        return _not_ours(id, manifest)

    async def _obtained(self, id: str, package: OrderedPackage, obtain: Obtain) -> VerifiedArchive:
        sha256, sidecar = package.sha256, package.sidecar
        if await self._archives.holds(sha256):
            return await self._archives.recall(sha256=sha256, sidecar=sidecar)
        if package.size > self._max_bytes:
            raise MODULE_REFUSALS.too_large(
                f"the module's archive has {package.size} bytes", f"{self._max_bytes} bytes"
            )
        if package.content:
            path = await self._incoming.write(sha256, package.content)
        else:
            path = await obtain(self._incoming.fetch(id, sha256=sha256, size=package.size), sha256)
        return await self._archives.receive(path, sha256=sha256, sidecar=sidecar)

    async def _store_refusal(self, id: str, package: OrderedPackage, error: Rejected) -> None:
        """Record a refusal; the old version runs on. A failure that may pass by itself is not recorded
        against the archive."""
        _log.error(
            "module.refused", module=id, sha256=package.sha256, code=error.code.name, reason=str(error)
        )
        if isinstance(error, UpgradeFailed) and (error.blameless or error.reason.startswith(_PASSING)):
            raise Retryable(error.code, error.message, hint=error.hint) from error
        if error.code in _FOR_GOOD and not package.mends:
            refusal = ArchiveRefusal(
                sha256=package.sha256,
                version=package.version,
                code=error.code.name,
                error=_error_text(error),
                at=self._clock.now(),
                signature_sha256=sidecar_digest(package.sidecar),
            )
            await self._store.refuse(id, refusal)

    # --- the module -----------------------------------------------------------------------------
    async def _put_in_place(self, id: str, order: ReceivedOrder, received: VerifiedArchive) -> None:
        record = self._store.find(id)
        if _not_ours(id, received.facts.manifest):
            if record is not None:
                await self._remove(id)
            return
        if record is not None and record.sha256 == received.facts.sha256:
            await self._store.note_signature(id, received.signature)
            await self._store.forgive(id)
            if record.phase is ModulePhase.FAILED:
                await self._engine.act(id, Verb.RECOVER)
            return
        fresh = await self._record(record, order, received)
        if record is None:
            await self._engine.install(fresh)
        else:
            upgraded = await self._engine.upgrade(fresh, rollback=True)
            _log.info("module.upgraded", module=id, version=fresh.version, story=list(upgraded.lines))
        if order.settings is not None:
            await self._store.note_settings(id, order.settings.sha256)

    async def _record(
        self, current: PackageRecord | None, order: ReceivedOrder, received: VerifiedArchive
    ) -> PackageRecord:
        facts, now = received.facts, self._clock.now()
        given = order.settings.values if order.settings else current.settings if current else {}
        settings = await checked_settings(facts.manifest, given)
        intent = order.intent or (current.intent if current else ModuleIntent.ACTIVE)
        return PackageRecord(
            id=facts.manifest.id,
            version=facts.manifest.version,
            sha256=facts.sha256,
            size=facts.size,
            manifest=facts.manifest,
            intent=intent,
            paused_reason=order.paused_reason if intent is ModuleIntent.PAUSED else "",
            settings=settings,
            signature=received.signature,
            installed_at=current.installed_at if current else now,
            updated_at=now,
        )


def _error_text(error: Rejected) -> str:
    """Error text: the message in the first line, the details after it."""
    return f"{error.failure}\n{error}" if isinstance(error, UpgradeFailed) else str(error)


def _not_ours(id: str, manifest: Manifest) -> bool:
    if ModuleHost.DAEMON in manifest.hosts:
        return False
    _log.info("module.skipped", module=id, version=manifest.version, hosts=list(manifest.hosts))
    return True


def _check(id: str, package: OrderedPackage, facts: ArchiveFacts) -> None:
    """Compare the archive's own facts with the frame's."""
    manifest = facts.manifest
    for field, found, declared in (
        ("id", manifest.id, id),
        ("version", manifest.version, package.version or manifest.version),
    ):
        if found != declared:
            raise Rejected(
                Code.MANIFEST_INVALID,
                f"the archive {facts.sha256[:12]} was sent as {field} '{declared}', but its manifest says '{found[:80]}'",
                hint="install the module again at the controller",
                field=field,
            )
    if not parse_range(manifest.api).allows(SDK_VERSION):
        raise Rejected(
            Code.MODULE_INCOMPATIBLE,
            f"module {manifest.id} is built for corral.sdk {manifest.api}, this node has {SDK_VERSION}",
            hint="bring the node to the controller's version of Corral",
            field="api",
        )
