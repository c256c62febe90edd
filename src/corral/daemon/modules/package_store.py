"""Package records of a node's modules: one file per module, replaced whole, so that after a kill a step is
either done or not begun. A change is reported to the controller once it is on disk.

Beside the record a file holds what only the node knows of a module: an archive that did not come up here, the
last settings from the controller, why the module refused them, a signature that is not valid here, and the
operator requests that were carried out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from corral.daemon.node.durable_files import store
from corral.domain.modules.lifecycle_decisions import not_installed
from corral.domain.modules.records import PackageRecord, SignatureFacts
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.modules.package_store import Change, StepEvent
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.clock import Clock
from corral.system.files import make_directory, read_versioned, sync_directory
from corral.system.threads import to_end

FORMAT: Final = "corral-node-module"
VERSION: Final = 1
_SUFFIX: Final = ".json"
_DAMAGED: Final = ".damaged"
_log = structlog.get_logger("corral.daemon.modules")


class ArchiveRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that did not come up here. It is not tried again until an operator requests it; one that was
    refused for its signature is also tried with another signature."""

    sha256: str
    version: str
    code: str
    error: str
    at: dt.datetime
    signature_sha256: str = ""
    """Of the sidecar it came with last; empty: none."""


class SettingsRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that the module refused: it runs on with those in its record."""

    sha256: str
    error: str


class SignatureRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A new signature that is not valid here: the module runs on with the old one."""

    sha256: str
    error: str


class NodePackage(msgspec.Struct, frozen=True, kw_only=True):
    """All that a node stores of a module. Without a record the module was never installed here."""

    id: str
    record: PackageRecord | None = None
    settings_sha256: str = ""
    """Digest of the record's settings, as the controller sent them; empty: never sent."""
    refused: ArchiveRefusal | None = None
    settings_refused: SettingsRefusal | None = None
    """Not given to the module again until the settings or its archive change, or an operator requests it."""
    signature_refused: SignatureRefusal | None = None
    """For the archive in the record."""
    recovered_ms: int = 0
    reloaded_ms: int = 0
    """Times of the operator requests that were carried out last."""


OnStored = Callable[[NodePackage, NodePackage, str], None]
"""Called with before and after of each change, and with the reason when a record was removed."""


OnStoreFailed = Callable[[NodePackage, NodePackage], None]
"""Called with before and after of a change that the disk refused: it is valid in memory all the same."""


class DiskPackageStore:
    """The `PackageStore` of a node. `load` comes first; everything else belongs to the loop's thread."""

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock,
        kept: OnStored,
        not_kept: OnStoreFailed = lambda _before, _after: None,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._kept = kept
        self._not_kept = not_kept
        self._packages: dict[str, NodePackage] = {}
        self._turns = KeyedLocks[str]()

    def load(self) -> None:
        """Read all files. A file that cannot be read is set aside: the controller sends the module again.
        Blocking."""
        make_directory(self._directory)
        for path in sorted(self._directory.iterdir()):
            if path.name.startswith("."):
                path.unlink(missing_ok=True)  # an unfinished write
            elif path.suffix == _SUFFIX:
                self._read(path)

    def _read(self, path: Path) -> None:
        try:
            package = read_versioned(path, NodePackage, name=FORMAT, version=VERSION)
            if package is None or package.id != path.stem or _foreign(package):
                raise Rejected(Code.FORMAT_INVALID, f"{path} is the record of another module")
        except (CorralError, OSError) as error:
            _log.error("module_record.quarantined", module=path.stem, path=str(path), reason=str(error))
            path.replace(path.with_name(path.name + _DAMAGED))
        else:
            self._packages[package.id] = package

    # --- reads ----------------------------------------------------------------------------------
    def find(self, id: str) -> PackageRecord | None:
        return self.package(id).record

    def all(self) -> list[PackageRecord]:
        return [package.record for package in self._packages.values() if package.record is not None]

    def package(self, id: str) -> NodePackage:
        """The stored package of a module; an empty value when nothing is."""
        return self._packages.get(id) or NodePackage(id=id)

    def packages(self) -> list[NodePackage]:
        """All modules with anything stored, by id."""
        return [self._packages[id] for id in sorted(self._packages)]

    # --- the port -------------------------------------------------------------------------------
    async def step(
        self,
        id: str,
        change: Change,
        *,
        also: Sequence[StepEvent] = (),  # noqa: ARG002 - of this host's registry: nothing that the controller keeps
    ) -> PackageRecord:
        async with self._turns.hold(id):
            before = self.package(id)
            if before.record is None:
                raise not_installed(id, [record.id for record in self.all()])
            record = change(before.record)
            if record == before.record:
                return record
            moved = record.sha256 != before.record.sha256
            after = msgspec.structs.replace(before, record=record)
            if moved:
                after = msgspec.structs.replace(
                    after, refused=None, settings_refused=None, signature_refused=None
                )
            await self._store(before, after)
            return record

    async def add(self, record: PackageRecord) -> PackageRecord:
        async with self._turns.hold(record.id):
            before = self.package(record.id)
            if before.record is not None:
                raise Rejected(Code.ALREADY_EXISTS, f"module '{record.id}' is installed already")
            after = NodePackage(
                id=record.id,
                record=record,
                recovered_ms=before.recovered_ms,  # of an archive that was refused before this one
                reloaded_ms=before.reloaded_ms,
            )
            await self._store(before, after)
            return record

    async def remove(self, id: str, *, reason: str) -> None:
        """Remove everything stored of the module, also refusals."""
        async with self._turns.hold(id):
            before = self._packages.get(id)
            if before is None:
                return
            await to_end(_unlink, self._path(id))
            del self._packages[id]
            self._kept(before, NodePackage(id=id), reason)

    # --- state that only a node has -------------------------------------------------------------
    async def refuse(self, id: str, refusal: ArchiveRefusal) -> None:
        """Record that this archive does not run here; the installed one stays."""
        async with self._turns.hold(id):
            before = self.package(id)
            await self._store(before, msgspec.structs.replace(before, refused=refusal))

    async def forgive(self, id: str) -> None:
        """Forget the refusal of an archive."""
        async with self._turns.hold(id):
            before = self.package(id)
            if before.refused is not None and before.record is None:
                await to_end(_unlink, self._path(id))
                del self._packages[id]
            elif before.refused is not None:
                await self._store(before, msgspec.structs.replace(before, refused=None))

    async def note_settings(self, id: str, sha256: str) -> None:
        """Record that the settings with this digest are in the record."""
        async with self._turns.hold(id):
            before = self.package(id)
            after = msgspec.structs.replace(before, settings_sha256=sha256, settings_refused=None)
            if before.record is not None and after != before:
                await self._store(before, after)

    async def refuse_settings(self, id: str, refusal: SettingsRefusal) -> None:
        """Record that the module refused these settings; those in the record stay."""
        async with self._turns.hold(id):
            before = self.package(id)
            after = msgspec.structs.replace(before, settings_refused=refusal)
            if before.record is not None and after != before:
                await self._store(before, after)

    async def note_signature(self, id: str, signature: SignatureFacts | None) -> None:
        """Record that this signature is valid for the archive in the record."""
        async with self._turns.hold(id):
            before = self.package(id)
            if before.record is None:
                return
            record = msgspec.structs.replace(before.record, signature=signature)
            after = msgspec.structs.replace(before, record=record, signature_refused=None)
            if after != before:
                await self._store(before, after)

    async def refuse_signature(self, id: str, refusal: SignatureRefusal) -> None:
        """Record that this signature is not valid here; the one in the record stays."""
        async with self._turns.hold(id):
            before = self.package(id)
            after = msgspec.structs.replace(before, signature_refused=refusal)
            if before.record is not None and after != before:
                await self._store(before, after)

    async def carried_out(self, id: str, *, recovered_ms: int = 0, reloaded_ms: int = 0) -> None:
        """Record that the operator requests up to these times were carried out."""
        async with self._turns.hold(id):
            before = self.package(id)
            after = msgspec.structs.replace(
                before,
                recovered_ms=max(before.recovered_ms, recovered_ms),
                reloaded_ms=max(before.reloaded_ms, reloaded_ms),
            )
            if after != before and id in self._packages:
                await self._store(before, after)

    # --- the disk -------------------------------------------------------------------------------
    def _path(self, id: str) -> Path:
        return self._directory / f"{id}{_SUFFIX}"

    async def _store(self, before: NodePackage, after: NodePackage) -> None:
        try:
            await to_end(store, self._path(after.id), after, name=FORMAT, version=VERSION)
        except Retryable:
            self._not_kept(before, after)
            raise
        self._packages[after.id] = after
        self._kept(before, after, "")


def _foreign(package: NodePackage) -> bool:
    return package.record is not None and package.record.id != package.id


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise Retryable(
            Code.STORE_UNAVAILABLE,
            f"{path} cannot be removed: {error.strerror or error}",
            hint="check its disk and permissions; it is tried again",
        ) from error
