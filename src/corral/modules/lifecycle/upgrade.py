"""Upgrade of a module from one version to another, rollback when the new one does not come up, and the outcome.

The order: verify, import and construct the new one while the old one serves · `on_stop` of the old one ·
its registrations closed, its capabilities held for the successor · `on_load`, `on_upgrade`, `on_start` of the
new one, on a copy of the collections · ACTIVE, which is the commit in which the record becomes the new
version's · `on_unload` of the old one, and its end. Until that commit the record is the old version's: a host
that is killed before it comes up with the old version, with its collections as they were.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
import structlog

from corral.domain.events import Draft, EventType
from corral.domain.modules.lifecycle_decisions import stepped
from corral.domain.modules.manifest import ModuleHost
from corral.domain.modules.phases import ModulePhase, ModuleTrigger
from corral.domain.modules.records import CAPABILITY_CONFLICT, FailureDetails, PackageRecord
from corral.errors import Code, Rejected
from corral.modules.lifecycle.event_fields import phase_fields
from corral.modules.lifecycle.loaded_module import LoadedModule, drop_generation
from corral.modules.lifecycle.module_failure import ModuleFailure, failure_details
from corral.modules.lifecycle.module_lifecycle import ModuleLifecycle

_PLACE: Final = re.compile(r'^ *File "([^"]+)", line ([0-9]+)', re.MULTILINE)


class UpgradeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of an upgrade, with its steps as sentences."""

    record: PackageRecord
    lines: tuple[str, ...]


class UpgradeFailed(Rejected):
    """The new version did not become ACTIVE. `record` is the stored one now, `lines` are the steps as
    sentences."""

    def __init__(
        self, record: PackageRecord, version: str, failure: ModuleFailure, lines: tuple[str, ...]
    ) -> None:
        super().__init__(
            Code.MODULE_UPGRADE_FAILED,
            f"module '{record.id}' was not upgraded to {version}: {failure.reason}. "
            + " ".join(lines).rstrip("."),
            hint=f"{record.id} {record.version} is {record.phase.name}; fix the new version and install it again",
        )
        self.record = record
        self.reason = failure.reason
        self.blameless = failure.blameless
        """The failure was not the new version's fault: it may come up when it is tried again."""
        self.failure = failure_text(failure)
        """The reason, the message, and the place in the code, in one line."""
        self.lines = lines


def failure_text(failure: ModuleFailure) -> str:
    """The reason, the message, and the place in the code: after a rollback it is the only information for an
    author."""
    text = f"{failure.reason}: {failure.message}" if failure.message else failure.reason
    places = _PLACE.findall(failure.traceback)
    if not places:
        return text
    path, line = places[-1]
    return f"{text}, at {'/'.join(path.split('/')[-2:])}:{line}"


def state_text(record: PackageRecord) -> str:
    """The phase, with its reason where there is one."""
    why = f" ({record.reason})" if record.reason else ""
    return f"{record.phase.name}{why}"


_REASON = "upgrade"
_log = structlog.get_logger("corral.modules.lifecycle")


class Upgrade:
    """One attempt; runs as a job of the module's actor."""

    def __init__(self, life: ModuleLifecycle, target: PackageRecord, *, rollback: bool) -> None:
        self._life = life
        self._target = target
        self._rollback = rollback
        self._lines: list[str] = []

    async def run(self) -> UpgradeOutcome:
        """Raises `UpgradeFailed` when the new version does not come up where the old one served."""
        life = self._life
        async with life.deps.upgrade_guard():
            old = await life.converge() or life.require()
            if old.phase is ModulePhase.ACTIVE and life.run.scope is not None:
                await self._exchange(old)
            else:
                await self._replace(old)
        record = await life.converge() or life.require()
        if record.phase is not ModulePhase.ACTIVE:
            self._add_line(f"{record.version} is {state_text(record)}.")
        return UpgradeOutcome(record=record, lines=tuple(self._lines))

    # --- where nothing served -------------------------------------------------------------------
    async def _replace(self, old: PackageRecord) -> None:
        """The old version does not serve: the new one replaces it and follows the intent. Its `on_upgrade`
        runs before its first start."""
        life = self._life
        trigger = {
            ModulePhase.WAITING: ModuleTrigger.STOP,
            ModulePhase.FAILED: ModuleTrigger.RECOVER,
            ModulePhase.ACTIVE: ModuleTrigger.STOP,
        }.get(old.phase)
        await life.run.unload()
        if old.phase is ModulePhase.ACTIVE:  # without a process on this host
            await life.step(ModuleTrigger.STOP, reason=_REASON)
            trigger = ModuleTrigger.STOPPED

        def replaced(stored: PackageRecord) -> PackageRecord:
            if trigger is not None:
                stored = stepped(stored, trigger, reason=_REASON, at=life.now())
            return self._successor(stored, previous=stored.version_of_data)

        life.resume_at = None
        life.deps.capabilities.release(life.id)
        await life.change(
            replaced, also=[self._event(EventType.MODULE_UPGRADED, old, to=ModulePhase.INSTALLED)]
        )
        self._add_line(
            f"{old.version} was {old.phase.name} and did not serve: it was replaced by {self._version}."
        )

    # --- where the old one serves ---------------------------------------------------------------
    async def _exchange(self, old: PackageRecord) -> None:
        life = self._life
        record = self._successor(old, previous=old.version_of_data)
        new = life.candidate = life.new_run()
        try:
            await self._prove(new, record, old)
            try:
                await self._step_aside(old)
                await self._take_over(new, record, old)
            except ModuleFailure as failure:
                await self._give_up(new, failure, old)
        finally:
            life.candidate = None
            if life.run is not new:
                await new.discard()

    async def _prove(self, new: LoadedModule, record: PackageRecord, old: PackageRecord) -> None:
        """Check all that can be checked while the old version serves."""
        capabilities = self._life.deps.capabilities
        try:
            await new.construct(record)
            missing = capabilities.missing(record.manifest)
            if missing:
                raise ModuleFailure(f"waiting_for_capability:{missing[0]}", "nobody provides it")
            rival = capabilities.rival(record.manifest)
            if rival:
                raise ModuleFailure(f"{CAPABILITY_CONFLICT}:{rival}", "another active module provides it")
        except ModuleFailure as failure:
            self._add_line(f"{self._version} could not be prepared ({failure_text(failure)}).")
            self._add_line(
                f"{old.version} ended with it and is started again."
                if failure.blameless
                else f"{old.version} served all the time and still does."
            )
            raise UpgradeFailed(old, self._version, failure, tuple(self._lines)) from None
        self._add_line(f"{self._version} was verified, imported and constructed while {old.version} served.")

    async def _step_aside(self, old: PackageRecord) -> None:
        """ACTIVE -> STOPPING -> INSTALLED with the old version still loaded, its capabilities held. One whose
        `on_stop` fails goes through FAILED, as in the table, and its process ends."""
        life = self._life
        await life.step(ModuleTrigger.STOP, reason=_REASON)
        life.run.rest()
        scope = life.run.scope
        try:
            await life.run.stop()
        except ModuleFailure as failure:
            await self._drop_old(failure, old)
            return
        if scope is not None:
            life.deps.capabilities.hold(scope)
        await life.run.clear_start()
        await life.step(ModuleTrigger.STOPPED, reason=_REASON)
        self._add_line(f"{old.version} was stopped.")

    async def _drop_old(self, failure: ModuleFailure, old: PackageRecord) -> None:
        life = self._life
        details = failure_details(failure, life.run.scope, at=life.now())
        if life.run.scope is not None:
            life.deps.capabilities.hold(life.run.scope)

        def failed_and_recovered(stored: PackageRecord) -> PackageRecord:
            at = life.now()
            failed = stepped(stored, ModuleTrigger.FAIL, reason=failure.reason, at=at, failure=details)
            return stepped(failed, ModuleTrigger.RECOVER, reason=_REASON, at=at)

        await life.change(failed_and_recovered)
        await life.run.discard()
        self._add_line(f"{old.version} failed to stop ({failure_text(failure)}); its process was ended.")

    async def _take_over(self, new: LoadedModule, record: PackageRecord, old: PackageRecord) -> None:
        """Start the new version, up to the commit that makes it the record's."""
        life = self._life
        await new.load(record)
        await life.step(ModuleTrigger.ACTIVATE, reason=_REASON, version=self._version)
        await new.start(record)
        generation = new.scope.generation if new.scope else old.generation

        def taken(stored: PackageRecord) -> PackageRecord:
            active = stepped(stored, ModuleTrigger.BOUND, reason="", at=life.now(), version=self._version)
            return msgspec.structs.replace(
                self._successor(active, previous=""),
                generation=generation,
                data_version=self._version,
                failure=None,
            )

        capabilities = life.deps.capabilities
        changes = (
            capabilities.binding_events(record.manifest, reason=_REASON)
            if new.scope
            else capabilities.clearing_events(life.id, reason=_REASON)
        )
        await life.change(taken, also=[*changes, self._event(EventType.MODULE_UPGRADED, old)])
        retired, life.run, life.pending_failure = life.run, new, None
        new.bind()
        if new.scope is None:
            life.deps.capabilities.release(life.id)
        self._add_line(f"{self._version} is ACTIVE.")
        outdated = old.generation if generation != old.generation else None
        task = life.deps.later(self._retire(retired, outdated), f"modules/retire/{life.id}")
        life.retiring.add(task)
        task.add_done_callback(life.retiring.discard)

    async def _retire(self, run: LoadedModule, generation: int | None) -> None:
        await run.unload()
        if generation is not None:
            drop_generation(self._life.deps, self._life.id, generation)

    # --- when it does not come up ---------------------------------------------------------------
    async def _give_up(self, new: LoadedModule, failure: ModuleFailure, old: PackageRecord) -> None:
        life = self._life
        self._add_line(f"{self._version} did not come up ({failure_text(failure)}).")
        _log.warning(
            "module_upgrade.failed",
            module=life.id,
            version=self._version,
            reason=failure.reason,
            traceback=failure.traceback[-8000:],
        )
        details = failure_details(failure, new.scope, at=life.now())
        tried = new.scope.generation if new.scope else old.generation
        await new.discard()
        if tried != old.generation:
            drop_generation(life.deps, life.id, tried)
        if self._rollback or failure.blameless:
            record = await self._roll_back(failure, old)
        else:
            record = await self._stay_failed(failure, details, old)
        raise UpgradeFailed(record, self._version, failure, tuple(self._lines))

    async def _stay_failed(
        self, failure: ModuleFailure, details: FailureDetails, old: PackageRecord
    ) -> PackageRecord:
        """Without rollback: the new version takes the place, FAILED."""
        life = self._life
        await life.run.unload()
        life.unpublished += life.deps.capabilities.clearing_events(life.id, reason=failure.reason)
        life.deps.capabilities.release(life.id)

        def failed(stored: PackageRecord) -> PackageRecord:
            taken = self._successor(stored, previous=old.version_of_data)
            return stepped(taken, ModuleTrigger.FAIL, reason=failure.reason, at=life.now(), failure=details)

        record = await life.change(failed)
        self._add_line(f"{self._version} is FAILED; {old.version} was not brought back, as was asked for.")
        return record

    async def _roll_back(self, failure: ModuleFailure, old: PackageRecord) -> PackageRecord:
        """Start the old version again, in the process it has; its collections were never touched."""
        life = self._life
        reason = f"upgrade_rolled_back:{failure.reason}"
        if life.require().phase is ModulePhase.WAITING:
            await life.step(ModuleTrigger.STOP, reason=reason, version=self._version)
        life.closing_events.append(
            self._event(EventType.MODULE_UPGRADE_ROLLED_BACK, old, reason=failure.reason, steps=self._lines)
        )
        record = await life.converge() or life.require()
        if record.phase is ModulePhase.ACTIVE:
            keeps = life.deps.host is ModuleHost.CONTROLLER and old.manifest.storage.documents
            self._add_line(
                f"{old.version} serves again{'; its documents are as they were' if keeps else ''}."
            )
        else:
            self._add_line(f"{old.version} was brought back and is {state_text(record)}.")
        return record

    # --- texts and records ----------------------------------------------------------------------
    @property
    def _version(self) -> str:
        return self._target.version

    def _add_line(self, line: str) -> None:
        self._lines.append(line)

    def _successor(self, stored: PackageRecord, *, previous: str) -> PackageRecord:
        """The new package in the phase of the stored one: the history continues, the content is the new
        one's."""
        return msgspec.structs.replace(
            self._target,
            phase=stored.phase,
            intent=stored.intent,
            reason=stored.reason,
            paused_reason=stored.paused_reason,
            previous_version=previous,
            data_version=stored.version_of_data,
            generation=stored.generation,
            installed_at=stored.installed_at,
            updated_at=self._life.now(),
            history=stored.history,
            failure=stored.failure,
        )

    def _event(
        self,
        kind: EventType,
        old: PackageRecord,
        *,
        reason: str = _REASON,
        to: ModulePhase = ModulePhase.ACTIVE,
        **more: object,
    ) -> Draft:
        fields = phase_fields(old, at=self._life.now(), reason=reason, to=to, version=self._version)
        return Draft(type=kind, subject=old.id, data={**fields, "previous_version": old.version, **more})
