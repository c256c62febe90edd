"""Applies intent, settings, and operator requests (reload, recover) to a module that is installed on this node."""

from __future__ import annotations

from typing import Any

from corral.daemon.modules.module_orders import ReceivedOrder
from corral.daemon.modules.package_store import DiskPackageStore, SettingsRefusal
from corral.domain.modules.manifest import Manifest
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import PackageRecord
from corral.domain.modules.verbs import Verb
from corral.errors import Code, Rejected
from corral.modules.lifecycle.engine import ModuleEngine
from corral.modules.manifest.settings import check_settings
from corral.system.threads import to_end


class SettingsApplier:
    """Every step is idempotent; an operator request is carried out once, and then recorded."""

    def __init__(self, engine: ModuleEngine, store: DiskPackageStore) -> None:
        self._engine = engine
        self._store = store

    async def apply(self, id: str, order: ReceivedOrder, *, fresh: bool) -> None:
        """Apply intent, settings and operator requests. An archive that was just put in place (`fresh`) was
        started, and has read its settings."""
        record, refusal = self._require(id), None
        again = order.reload and not fresh and await self._serves(record)
        await self.follow_intent(record, order)
        try:
            await self._follow_settings(id, order, again=again)
        except Rejected as error:
            refusal = error
        await self._store.carried_out(id, reloaded_ms=order.reload_ms)
        if order.recover and not fresh and self._require(id).phase is ModulePhase.FAILED:
            await self._engine.act(id, Verb.RECOVER)
        await self._store.carried_out(id, recovered_ms=order.recover_ms)
        if refusal is not None:
            raise refusal

    async def _serves(self, record: PackageRecord) -> bool:
        """Is the module ACTIVE, once a transition under way (such as after a boot) is over? One that is not
        ACTIVE reads its settings when it starts."""
        settled = await self._engine.set_intent(record.id, record.intent, paused_reason=record.paused_reason)
        return settled.phase is ModulePhase.ACTIVE

    async def follow_intent(self, record: PackageRecord, order: ReceivedOrder) -> None:
        intent = order.intent or record.intent
        reason = order.paused_reason if order.intent is ModuleIntent.PAUSED else ""
        if order.intent is not None and (intent, reason) != (record.intent, record.paused_reason):
            await self._engine.set_intent(record.id, intent, paused_reason=reason)

    async def _follow_settings(self, id: str, order: ReceivedOrder, *, again: bool) -> None:
        """Apply the ordered settings; with `again` also when they are unchanged. Settings that the module
        refused are not given to it again, unless an operator requests it; the refusal is reported with its
        state."""
        record, settings = self._require(id), order.settings
        if settings is None:
            if again:
                await self._engine.act(id, Verb.RELOAD)
            return
        refused = self._store.package(id).settings_refused
        known = refused is not None and refused.sha256 == settings.sha256
        if known and not (order.reload or order.recover):
            return
        try:
            checked = await checked_settings(record.manifest, settings.values)
            if checked != record.settings or again:
                await self._engine.act(id, Verb.RELOAD, settings=checked)
        except Rejected as error:
            await self._store.refuse_settings(id, SettingsRefusal(sha256=settings.sha256, error=str(error)))
            raise
        await self._store.note_settings(id, settings.sha256)

    def _require(self, id: str) -> PackageRecord:
        record = self._store.find(id)
        if record is None:
            raise Rejected(Code.NOT_FOUND, f"module '{id}' is not installed on this node")
        return record


async def checked_settings(manifest: Manifest, given: dict[str, Any]) -> dict[str, Any]:
    """The settings, validated in a thread, since schemas may be costly; most modules have none."""
    if not manifest.config and not given:
        return {}
    return await to_end(check_settings, manifest.config, given)
