"""Operator requests to a module (enable, reload, recover, …): each changes its desired state and converges."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import structlog

from corral.domain.events import Draft, EventType
from corral.domain.modules.lifecycle_decisions import check_verb, wanting
from corral.domain.modules.phases import ModuleIntent, ModulePhase, ModuleTrigger
from corral.domain.modules.records import PackageRecord
from corral.domain.modules.verbs import VERBS, Verb
from corral.errors import Bug, CorralError
from corral.modules.lifecycle.event_fields import changed_keys, phase_fields
from corral.modules.lifecycle.loader import run_hook
from corral.modules.lifecycle.module_failure import ModuleFailure
from corral.modules.lifecycle.module_lifecycle import ModuleLifecycle
from corral.modules.process.call_failures import CallOverrun, ModuleRaised
from corral.modules.scope import Scope

_log = structlog.get_logger("corral.modules.lifecycle")


async def act(
    life: ModuleLifecycle, verb: Verb, *, reason: str = "", settings: dict[str, Any] | None = None
) -> PackageRecord:
    """Carry out a request. `reason` is that of a pause; `settings` are those of RELOAD and CONFIGURE,
    without: the present ones. ILLEGAL_TRANSITION where the verb's rule is not met."""
    check_verb(life.require(), verb)
    match verb:
        case Verb.RECOVER:
            return await _recover(life)
        case Verb.UNINSTALL:
            return await _uninstall(life)
        case Verb.RELOAD | Verb.CONFIGURE:
            return await _reload(life, life.require().settings if settings is None else settings)
    intent = VERBS[verb].intent
    assert intent is not None, verb
    return await _store_intent(life, intent, paused_reason=reason if intent is ModuleIntent.PAUSED else "")


async def set_intent(life: ModuleLifecycle, intent: ModuleIntent, paused_reason: str) -> PackageRecord:
    """Set the intent only, whatever the phase: for a host that follows another host's intent. A FAILED module
    stays FAILED."""
    return await _store_intent(life, intent, paused_reason=paused_reason)


async def _recover(life: ModuleLifecycle) -> PackageRecord:
    """Leave FAILED, and continue by the intent."""
    life.resume_at = None
    await life.step(ModuleTrigger.RECOVER, reason="recovered")
    return await settled(life)


async def _uninstall(life: ModuleLifecycle) -> PackageRecord:
    """Stop, unload, remove; returns the last record. The module is removed whatever its hooks do."""
    life.requested_reason = "uninstall"
    try:
        record = await _store_intent(life, ModuleIntent.INACTIVE)
        if record.phase not in (ModulePhase.INSTALLED, ModulePhase.FAILED):
            raise Bug(f"module '{life.id}' is {record.phase.name} and should have stopped")
        await life.run.unload()
        if life.retiring:
            await asyncio.wait(life.retiring)  # no process of it may be left, nor write any more
        life.deps.capabilities.release(life.id)
        life.deps.capabilities.unwatch(life.id)
        await life.deps.store.remove(life.id, reason="uninstall")
    finally:
        life.requested_reason = ""
    return record


async def _store_intent(
    life: ModuleLifecycle, intent: ModuleIntent, *, paused_reason: str = ""
) -> PackageRecord:
    await life.change(lambda record: wanting(record, intent, paused_reason=paused_reason))
    if intent is ModuleIntent.ACTIVE:
        life.resume_at = None
    return await settled(life)


async def settled(life: ModuleLifecycle) -> PackageRecord:
    """Converge; returns the record once nothing is left to do."""
    return await life.converge() or life.require()


async def _reload(life: ModuleLifecycle, settings: dict[str, Any]) -> PackageRecord:
    """Apply new settings. A module with `on_reload` gets them while it runs, and they are stored only if it
    accepted them; one without is restarted with them, through the table. A module that does not run reads
    them at its next start."""
    record = life.require()
    scope = life.run.scope
    if scope is None:
        await _store_settings(life, settings)
    elif "on_reload" in scope.hooks:
        await _reload_running(life, scope, record.settings, settings)
    else:
        await _store_settings(life, settings)
        await _restart(life)
    return await settled(life)


async def _reload_running(
    life: ModuleLifecycle, scope: Scope, old: dict[str, Any], settings: dict[str, Any]
) -> None:
    try:
        await run_hook(scope, "on_reload", config=settings)
    except ModuleFailure as failure:
        if isinstance(failure.__cause__, CallOverrun):
            life.pending_failure = life.pending_failure or failure
            life.nudge()
        if isinstance(failure.__cause__, ModuleRaised):
            failure.__cause__.hint = "its old settings are still in force; see `corral module info`"
        raise failure.__cause__ or failure from None
    try:
        await _store_settings(life, settings)
    except CorralError:
        await _take_back(scope, old)
        raise
    scope.config = settings


async def _take_back(scope: Scope, old: dict[str, Any]) -> None:
    """Undo settings that were applied but not stored."""
    try:
        await run_hook(scope, "on_reload", config=old)
    except ModuleFailure as failure:
        _log.error("settings_rollback.failed", module=scope.module_id, error=str(failure))


async def _store_settings(life: ModuleLifecycle, settings: dict[str, Any]) -> None:
    """Store the settings, with an event only when they have changed."""
    record, at = life.require(), life.now()
    changed = changed_keys(record.settings, settings)
    configured = Draft(
        type=EventType.MODULE_CONFIGURED,
        subject=life.id,
        data={**phase_fields(record, at=at), "changed": changed},
    )
    await life.change(
        lambda record: msgspec.structs.replace(record, settings=settings, updated_at=at),
        also=[configured] if changed else [],
    )


async def _restart(life: ModuleLifecycle) -> None:
    """Step down to INSTALLED with the process ended; the next convergence starts it again."""
    record = life.require()
    try:
        if record.phase is ModulePhase.ACTIVE:
            await life.step(ModuleTrigger.STOP, reason="reload")
            await life.leave_start(ModuleTrigger.STOPPED, reason="reload")
        elif record.phase is ModulePhase.WAITING:
            await life.leave_start(ModuleTrigger.STOP, reason="reload")
    except ModuleFailure as failure:
        await life.fail(failure)
        return
    await life.run.unload()
