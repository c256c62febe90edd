"""Installer: from an archive to an installed module; everything is checked before anything is stored.

The order matters: the archive's content, its signature, whether it fits beside the others, whether its
settings are valid; then its bytes; then the record. Up to the record nothing of it is visible, and bytes that
a failed install left are garbage-collected.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from corral.controller.modules.archive_supply import StoredArchives
from corral.controller.modules.package_store import LedgerPackageStore
from corral.controller.state.ledger import Actor, audit
from corral.domain.groups.extensions import ExtensionPackage
from corral.domain.modules.capability_graph import refused_provision
from corral.domain.modules.manifest import Manifest
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import PackageRecord, SignatureFacts, conflict_event
from corral.domain.modules.verbs import Verb
from corral.errors import Code, Rejected, Retryable
from corral.modules.archive.archive_reader import ArchiveFacts, file_digest, inspect_archive
from corral.modules.archive.compatibility import CompatibilityReport, Outcome, refusal, report
from corral.modules.lifecycle.engine import ModuleEngine
from corral.modules.manifest.settings import check_settings
from corral.sdk.version import SDK_VERSION
from corral.signing import Sidecar, sidecar_digest
from corral.system.clock import Clock
from corral.system.threads import to_end


class InstallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an operator for an install."""

    activate: bool = True
    """False: the package is held in INSTALLED until an operator activates it."""
    replace: bool = False
    """The same version with other content may replace the installed one."""
    allow_downgrade: bool = False
    rollback: bool = True
    """False: a new version that does not become active stays, FAILED, and the old one is gone."""
    settings: dict[str, Any] | None = None
    """None: those of the installed package, else the defaults of the manifest's schema."""


class InstallOutcome(enum.StrEnum):
    INSTALLED = "installed"
    UPGRADED = "upgraded"
    REPLACED = "replaced"
    DOWNGRADED = "downgraded"
    SIGNATURE_UPDATED = "signature_updated"
    UNCHANGED = "unchanged"


class InstallAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of an install. `steps` lists them in order, as sentences."""

    record: PackageRecord
    outcome: InstallOutcome
    steps: tuple[str, ...] = ()


_OUTCOMES: Final = {
    Outcome.INSTALL: InstallOutcome.INSTALLED,
    Outcome.UPGRADE: InstallOutcome.UPGRADED,
    Outcome.REPLACE: InstallOutcome.REPLACED,
    Outcome.DOWNGRADE: InstallOutcome.DOWNGRADED,
    Outcome.UPDATE_SIGNATURE: InstallOutcome.SIGNATURE_UPDATED,
    Outcome.NOTHING: InstallOutcome.UNCHANGED,
}
_REFUSED: Final = "signature_refused"
_PATIENCE: Final = 2.0
"""Seconds that an install waits for an upgrade of another module."""
_log = structlog.get_logger("corral.controller.modules")


class ExaminedArchive(msgspec.Struct, frozen=True, kw_only=True):
    """An inspected archive, and what is known about it."""

    path: Path
    facts: ArchiveFacts
    sidecar: Sidecar | None
    signature: SignatureFacts | None


class Installer:
    """Installs one archive at a time."""

    def __init__(
        self,
        *,
        engine: ModuleEngine,
        packages: LedgerPackageStore,
        supply: StoredArchives,
        generation: Callable[[str], Awaitable[int]],
        built_in: Callable[[], Collection[str]],
        spoiled: Callable[[ExtensionPackage], Awaitable[list[str]]],
        max_archive_bytes: int,
        clock: Clock,
    ) -> None:
        """`generation` returns the generation of a module's data to continue with, `spoiled` the groups that
        could not be started with a package."""
        self._engine = engine
        self._packages = packages
        self._supply = supply
        self._generation = generation
        self._built_in = built_in
        self._spoiled = spoiled
        self._max_archive_bytes = max_archive_bytes
        self._clock = clock
        self._lock = asyncio.Lock()
        self._upgrading = ""
        """The upgrade under way, as a text; empty: none."""

    async def examine(
        self, archive: Path, *, sidecar: Sidecar | None, options: InstallOptions, expect: str = ""
    ) -> CompatibilityReport:
        """The effects of an install, with everything that prevents it; nothing is stored. Raises only what
        prevents reading the archive: SIGNATURE_VERIFICATION_FAILED, ARCHIVE_INVALID, ARCHIVE_TOO_LARGE,
        MANIFEST_INVALID, PATH_REFUSED."""
        return await self._compatibility(await self._looked_at(archive, sidecar, expect), options)

    async def _tell_conflict(self, manifest: Manifest, refused: Rejected) -> None:
        """The event of a second provider, which is refused."""
        if refused.code is not Code.CAPABILITY_CONFLICT:
            return
        provision = refused_provision(manifest, self._packages.all(), built_in=self._built_in())
        if provision is not None:
            event = conflict_event(provision, module=manifest.id, reason=refused.message)
            await self._packages.publish(event)

    async def install(
        self,
        archive: Path,
        *,
        sidecar: Sidecar | None,
        options: InstallOptions,
        actor: Actor,
        expect: str = "",
    ) -> InstallAnswer:
        """Install, upgrade, replace, or take another signature of the installed archive, or do nothing;
        returns once the module has settled.

        Raises the first problem, and then nothing was stored; MODULE_UPGRADE_FAILED when a new version did
        not become active; CONFLICT while another module is being upgraded; ARCHIVE_INVALID when its digest is not `expect`.
        """
        candidate = await self._looked_at(archive, sidecar, expect)
        async with self._packages.turn(candidate.facts.manifest.id), self._turn():
            compatibility = await self._compatibility(candidate, options)
            refused = refusal(compatibility)
            if refused is not None:
                await self._tell_conflict(candidate.facts.manifest, refused)
                raise refused
            current = self._packages.find(compatibility.id)
            if compatibility.action is Outcome.NOTHING and current is not None:
                return InstallAnswer(
                    record=current,
                    outcome=InstallOutcome.UNCHANGED,
                    steps=(
                        f"{compatibility.id} {compatibility.version} is installed already, with the same content",
                    ),
                )
            if compatibility.action is Outcome.UPDATE_SIGNATURE and current is not None:
                with self._supply.pinned(current.sha256):
                    return await self._sign_anew(candidate, compatibility, current, actor)
            _refuse_to_hold(current, options)
            with self._supply.pinned(candidate.facts.sha256, *([current.sha256] if current else [])):
                return await self._carry_out(candidate, compatibility, current, options, actor)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One install at a time. An install is waited for; an upgrade, which may take as long as its
        migration, only for a moment."""
        while True:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._lock.acquire()
                break
            except TimeoutError:
                if self._upgrading:
                    raise Retryable(
                        Code.CONFLICT,
                        f"{self._upgrading} is under way, and modules are installed one at a time",
                        hint="try again when it is done; 'corral module list' shows how it stands",
                        retry_after=_PATIENCE,
                    ) from None
        try:
            yield
        finally:
            self._lock.release()

    async def _looked_at(self, archive: Path, sidecar: Sidecar | None, expect: str = "") -> ExaminedArchive:
        """Inspect the archive. Its signature first: before it is verified, nothing is read but the digest."""
        work = functools.partial(file_digest, archive, max_bytes=self._max_archive_bytes)
        sha256 = await to_end(work)
        if expect and sha256 != expect:
            raise Rejected(
                Code.ARCHIVE_INVALID,
                "the archive is not the one that was received: its bytes on the controller's disk have changed",
                hint="check that disk, and upload it again",
            )
        signature = await self._supply.verify(archive, sha256, sidecar)
        inspect = functools.partial(
            inspect_archive, archive, max_bytes=self._max_archive_bytes, expect=sha256
        )
        facts = await to_end(inspect)
        return ExaminedArchive(path=archive, facts=facts, sidecar=sidecar, signature=signature)

    async def _compatibility(
        self, candidate: ExaminedArchive, options: InstallOptions
    ) -> CompatibilityReport:
        work = functools.partial(
            report,
            candidate.facts,
            _with_settings(self._packages.all(), candidate.facts.manifest.id, options.settings),
            sdk_version=SDK_VERSION,
            signature=candidate.signature,
            signature_sha256=sidecar_digest(candidate.sidecar),
            replace=options.replace,
            allow_downgrade=options.allow_downgrade,
            built_in=self._built_in(),
        )
        compatibility = await to_end(work)
        if not compatibility.ok or compatibility.action in (Outcome.NOTHING, Outcome.UPDATE_SIGNATURE):
            return compatibility
        spoiled = await self._spoiled(self._package(candidate.facts, options))
        return msgspec.structs.replace(compatibility, warnings=(*compatibility.warnings, *spoiled))

    def _package(self, facts: ArchiveFacts, options: InstallOptions) -> ExtensionPackage:
        """The package as groups will see it."""
        current = self._packages.find(facts.manifest.id)
        active = current.intent is ModuleIntent.ACTIVE if current else options.activate
        return ExtensionPackage(module=facts.manifest.id, active=active, extensions=facts.manifest.extensions)

    async def _sign_anew(
        self,
        candidate: ExaminedArchive,
        compatibility: CompatibilityReport,
        current: PackageRecord,
        actor: Actor,
    ) -> InstallAnswer:
        """Store another signature of the same bytes. The running module is not affected; one that failed only
        for its signature is tried again."""
        await self._supply.stamp(current)
        signature = await self._supply.keep(
            candidate.path, candidate.facts, candidate.signature, candidate.sidecar
        )
        now = self._clock.now()

        def signed(record: PackageRecord) -> PackageRecord:
            return msgspec.structs.replace(record, signature=signature, updated_at=now)

        entry = audit(
            actor,
            "modules.install",
            current.id,
            before=_audited_signature(current.signature),
            after=_audited_signature(signature),
        )
        with self._packages.signed(current.id, entry):
            settled = await self._packages.step(current.id, signed)
        steps = [f"{current.id} {current.version} is installed already; its new signature was taken"]
        if settled.phase is ModulePhase.FAILED and settled.reason == _REFUSED:
            settled = await self._engine.act(current.id, Verb.RECOVER)
            steps.append(f"{current.id} {current.version} {settled.phase.value}" + _because(settled))
        _log.info("module_signature.changed", module=current.id, version=current.version)
        return InstallAnswer(
            record=settled, outcome=_OUTCOMES[compatibility.action], steps=(*compatibility.warnings, *steps)
        )

    async def _carry_out(
        self,
        candidate: ExaminedArchive,
        compatibility: CompatibilityReport,
        current: PackageRecord | None,
        options: InstallOptions,
        actor: Actor,
    ) -> InstallAnswer:
        settings = await self._settings(candidate.facts, current, options)
        signature = await self._supply.keep(
            candidate.path, candidate.facts, candidate.signature, candidate.sidecar
        )
        record = await self._record(candidate.facts, signature, settings, current, options)
        entry = audit(
            actor,
            "modules.install",
            record.id,
            before=_audited(current) if current else None,
            after=_audited(record),
        )
        outcome = _OUTCOMES[compatibility.action]
        with self._packages.signed(record.id, entry):
            if current is None:
                settled = await self._engine.install(record)
                steps = [f"{record.id} {record.version} {settled.phase.value}" + _because(settled)]
            else:
                await self._supply.stamp(current)
                self._upgrading = f"the upgrade of {record.id} from {current.version} to {record.version}"
                try:
                    upgraded = await self._engine.upgrade(record, rollback=options.rollback)
                finally:
                    self._upgrading = ""
                settled, steps = upgraded.record, list(upgraded.lines)
        _log.info("module.installed", module=record.id, version=record.version, outcome=outcome.value)
        return InstallAnswer(record=settled, outcome=outcome, steps=(*compatibility.warnings, *steps))

    async def _settings(
        self, facts: ArchiveFacts, current: PackageRecord | None, options: InstallOptions
    ) -> dict[str, Any]:
        """The given settings, else the present ones, else the defaults. SETTINGS_INVALID."""
        values = options.settings
        if values is None:
            values = current.settings if current else {}
        return await to_end(check_settings, facts.manifest.config, values)

    async def _record(
        self,
        facts: ArchiveFacts,
        signature: SignatureFacts | None,
        settings: dict[str, Any],
        current: PackageRecord | None,
        options: InstallOptions,
    ) -> PackageRecord:
        now = self._clock.now()
        fresh = ModuleIntent.ACTIVE if options.activate else ModuleIntent.INACTIVE
        return PackageRecord(
            id=facts.manifest.id,
            version=facts.manifest.version,
            sha256=facts.sha256,
            size=facts.size,
            manifest=facts.manifest,
            intent=current.intent if current else fresh,
            generation=current.generation if current else await self._generation(facts.manifest.id),
            settings=settings,
            reload_asked_ms=current.reload_asked_ms if current else 0,
            signature=signature,
            installed_at=current.installed_at if current else now,
            updated_at=now,
        )


def _with_settings(
    installed: list[PackageRecord], id: str, settings: dict[str, Any] | None
) -> list[PackageRecord]:
    """The records with the requested settings of this package: it is checked by the settings it will have."""
    if settings is None:
        return installed
    return [
        msgspec.structs.replace(record, settings=settings) if record.id == id else record
        for record in installed
    ]


def _audited(record: PackageRecord) -> dict[str, object]:
    return {"version": record.version, "sha256": record.sha256, "intent": record.intent.value}


def _audited_signature(signature: SignatureFacts | None) -> dict[str, object]:
    if signature is None:
        return {"signature": None}
    return {
        "signature": {
            "kind": signature.kind,
            "sha256": signature.blob,
            "identity": signature.identity,
            "key_sha256": signature.key_sha256,
        }
    }


def _because(record: PackageRecord) -> str:
    return f" ({record.reason})" if record.reason else ""


def _refuse_to_hold(current: PackageRecord | None, options: InstallOptions) -> None:
    """Refuse `activate: false` for an installed module: whether it runs is its intent, which a new version
    does not change."""
    if current is not None and not options.activate and current.intent is ModuleIntent.ACTIVE:
        raise Rejected(
            Code.INVALID_FIELD,
            f"'{current.id}' is installed and wanted active: an upgrade cannot hold it",
            hint="deactivate it first; it then stays so with any version",
            field="activate",
        )
