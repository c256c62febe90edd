"""Deployments that begin by themselves (`update.auto`): some seconds after the last change of a group's document, or of a
template, program or module that it names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog

from corral.controller.instances.deployments import deploy_group
from corral.controller.instances.revisions import find_revision, make_revision
from corral.controller.instances.workspace import Workspace
from corral.controller.reconcile.ports import ReconciledInstances
from corral.controller.state.collections import CATALOG, GROUPS, MODULE_PACKAGES, TEMPLATES
from corral.controller.state.ledger import Ledger
from corral.domain.groups.deployments import RESTART, ROLLBACK, DeploymentRecord
from corral.domain.groups.field_effects import FIELDS_RESTART
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord, live
from corral.domain.groups.revisions import RevisionRecord
from corral.domain.groups.update_spec import AutoUpdate
from corral.errors import Rejected
from corral.store.port import Commit
from corral.store.store_errors import Conflict
from corral.system.clock import Clock

QUIET_SECONDS: Final = 5.0
"""Changes often come several at a time: one deployment brings all of them."""
AUTO: Final = "update.auto"
_KINDS: Final = {
    TEMPLATES.name: AutoUpdate.TEMPLATE,
    CATALOG.name: AutoUpdate.CATALOG,
    MODULE_PACKAGES.name: AutoUpdate.MODULE,
}
_log = structlog.get_logger("corral.controller.reconcile")


class AutoDeployments:
    """The groups that may be deployed by themselves, and when. In memory: a new leader looks at each of them anew, and
    finds in the records what is deployed."""

    def __init__(self, *, ledger: Ledger, instances: ReconciledInstances, clock: Clock) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._instances = instances
        self._clock = clock
        self._specs: dict[str, GroupSpec] = {}
        """The documents of groups with `update.auto`, as last seen."""
        self._due: dict[str, float] = {}
        self._causes: dict[str, tuple[str, ...]] = {}

    def begin(self) -> None:
        for name, _ in self._state.groups.items():
            self._note_group(name, ())

    def follow(self, commit: Commit) -> None:
        causes = tuple(f"event:{event.cursor}" for event in commit.events[:1])
        for change in commit.changes:
            if change.collection == GROUPS.name:
                self._note_group(change.id, causes)
            elif self._specs and (kind := _KINDS.get(change.collection)) is not None:
                for name in [name for name, spec in self._specs.items() if kind in spec.update.auto]:
                    self._wait(name, causes)

    def _note_group(self, name: str, causes: tuple[str, ...]) -> None:
        stored = self._state.groups.find(name)
        if stored is None or not stored.record.spec.update.auto or stored.record.spec.abstract:
            for known in (self._specs, self._due, self._causes):
                known.pop(name, None)
            return
        spec = stored.record.spec
        if self._specs.get(name) != spec:
            self._specs[name] = spec
            self._wait(name, causes)

    def _wait(self, name: str, causes: tuple[str, ...]) -> None:
        self._due[name] = self._clock.monotonic() + QUIET_SECONDS
        self._causes[name] = causes

    def moments(self) -> Iterable[float]:
        """When groups are to be looked at, by the monotonic clock."""
        return self._due.values()

    async def turn(self) -> None:
        """Deploy the groups that are due, if something has changed for which they are to be deployed."""
        now = self._clock.monotonic()
        for name in [name for name, at in self._due.items() if now >= at]:
            ws = self._instances.workspace(cause=AUTO)
            ws.causes = self._causes.get(name, ())
            try:
                if _deployed(ws, name):
                    await self._ledger.commit(*ws.steps())
            except Conflict:
                raise
            except Rejected as error:  # also where a document cannot be read, and is not overwritten
                _log.warning("auto_deployment.refused", group=name, reason=str(error))
            if self._due.get(name, now + 1) <= now:  # else it has changed meanwhile
                del self._due[name]
                self._causes.pop(name, None)


def _deployed(ws: Workspace, name: str) -> bool:
    group = ws.group(name)
    if group is None or group.deleting:
        return False
    known = (each.record for each in ws.state.deployments.of_group(name))
    last = next((each for each in known if not _went_back(group, each)), None)
    revision = make_revision(ws, name, by=AUTO, trigger=AUTO)
    if last is not None:
        if last.target == revision.number or last.target_basis == revision.basis:
            return False  # it was deployed, perhaps with no success
        before = find_revision(ws, name, last.target)
    else:
        running = [each for each in ws.instances_of(name) if live(each.state)]
        others = [each.revision for each in running if each.basis != revision.basis]
        if not others:
            return False
        before = find_revision(ws, name, max(others))
    kinds = _changed(before, revision)
    asked = [kind for kind in group.spec.update.auto if kind in kinds]
    if not asked:
        return False
    what = ", ".join(kinds)
    deploy_group(ws, name, by=AUTO, reason=f"changed: {what}", trigger=asked[0].value)
    return True


def _went_back(group: GroupRecord, deployment: DeploymentRecord) -> bool:
    """Did it bring an earlier revision, or restart what was brought back to one? It says nothing about the document."""
    pinned = deployment.pinned_before or deployment.target == group.pinned_revision
    return deployment.trigger == ROLLBACK or (deployment.trigger == RESTART and bool(pinned))


def _changed(before: RevisionRecord | None, after: RevisionRecord) -> list[AutoUpdate]:
    """What differs between two revisions; all of it where the first is not kept any more. Contents count as changed where
    the document names the same as before."""
    if before is None:
        return list(AutoUpdate)
    old, new = before.spec, after.spec
    named = old.templates == new.templates and old.template_selection == new.template_selection
    fields = any(getattr(before.spec, name) != getattr(after.spec, name) for name in FIELDS_RESTART)
    stops = [each.spec.disconnect.stop_after_seconds for each in (before, after)]
    differs = {
        AutoUpdate.DOCUMENT: fields or stops[0] != stops[1],
        AutoUpdate.TEMPLATE: named and before.pins.templates != after.pins.templates,
        AutoUpdate.CATALOG: old.artifact == new.artifact and before.pins.artifact != after.pins.artifact,
        AutoUpdate.MODULE: old.extensions == new.extensions
        and before.pins.extensions != after.pins.extensions,
    }
    return [kind for kind, changed in differs.items() if changed]
