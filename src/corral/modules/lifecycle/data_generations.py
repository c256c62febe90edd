"""An upgrade works on a new generation of the module's collections: as they were, they stay untouched."""

from __future__ import annotations

from corral.domain.module_records import PackageRecord
from corral.errors import CorralError
from corral.modules.lifecycle.engine_deps import EngineDeps
from corral.modules.lifecycle.module_failure import ModuleFailure
from corral.modules.scope import Scope


async def prepare_generation(kit: EngineDeps, scope: Scope, record: PackageRecord) -> None:
    """Before the first hook of an archive that replaced another, also one of the same version: copy the
    collections where `on_upgrade` or a first start may change them. The scope works on the copy from then on."""
    stored = record.manifest.storage
    if kit.data is None or not record.previous_version or "on_upgrade" not in scope.hooks:
        return
    if not (stored.documents or stored.key_value):
        return
    target = record.generation + 1
    try:
        await kit.data.drop(record.id, target)  # of an attempt that was cut short
        await kit.data.copy(record.id, record.generation, target)
    except CorralError as error:
        raise ModuleFailure("upgrade_copy_failed", str(error)) from error
    scope.generation = target


def drop_generation(kit: EngineDeps, module_id: str, generation: int) -> None:
    """In the background; what is left over when that fails is swept at the next boot."""
    data = kit.data
    if data is not None:
        kit.later(data.drop(module_id, generation), f"modules/drop/{module_id}/{generation}")
