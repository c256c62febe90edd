"""First revisions of groups from before there were any, so that the first deployment has something to go back to."""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from corral.controller.instances.plans import StateSources
from corral.controller.state.cluster_state import StoredRecord
from corral.controller.state.collections import INSTANCES, REVISIONS
from corral.controller.state.ledger import Ledger, Step
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, live
from corral.domain.groups.plan_resolution import resolve_plan
from corral.domain.groups.revisions import REVISION_BYTES, RevisionRecord, revised_spec, revision_id
from corral.errors import Rejected
from corral.store.port import encode

BY_UPGRADE: Final = "upgrade"
"""The trigger of these."""
_PER_COMMIT: Final = 200
_log = structlog.get_logger("corral.controller.instances")


async def record_first_revisions(ledger: Ledger) -> None:
    """Record the present document of each group as its first revision, where live instances run by exactly that, and note it
    in their records. If interrupted, it is repeated."""
    for group in ledger.state.groups:
        found = _first_revision(ledger, group.record)
        if found is None:
            continue
        name = group.record.spec.name
        running = [each for each in ledger.state.instances.of_group(name) if _runs_by(each.record, found)]
        for start in range(0, len(running), _PER_COMMIT):
            chunk = running[start : start + _PER_COMMIT]
            await ledger.commit(*_recorded(ledger, found), *(_noted(each, found) for each in chunk))
        if running:
            _log.info("group_revision.stored", group=name, revision=found.number, instances=len(running))


def _first_revision(ledger: Ledger, group: GroupRecord) -> RevisionRecord | None:
    """The revision of the present document; None: it has later ones, or there can be none."""
    spec, state = group.spec, ledger.state
    try:
        resolved = None if spec.abstract else resolve_plan(spec, StateSources(state), lambda _: 0)
    except Rejected:
        return None
    if resolved is None or spec.name in state.quarantine.owners(REVISIONS.name):
        return None
    newest = state.revisions.newest(spec.name)
    if newest is not None:
        return newest if newest.basis == resolved.basis else None
    made = RevisionRecord(
        group=spec.name,
        number=1,
        spec=revised_spec(spec),
        pins=resolved.pins,
        basis=resolved.basis,
        created_at=group.updated_at,
        by="system",
        trigger=BY_UPGRADE,
    )
    return made if len(encode(made)) <= REVISION_BYTES else None


def _runs_by(record: InstanceRecord, revision: RevisionRecord) -> bool:
    return live(record.state) and not record.revision and record.basis == revision.basis


def _recorded(ledger: Ledger, revision: RevisionRecord) -> list[Step]:
    id = revision_id(revision.group, revision.number)
    if ledger.state.revisions.find(id) is not None:
        return []
    return [REVISIONS.put(id, revision, expect=ledger.state.revisions.revision(id))]


def _noted(stored: StoredRecord[InstanceRecord], revision: RevisionRecord) -> Step:
    record = msgspec.structs.replace(stored.record, revision=revision.number)
    return INSTANCES.put(record.id, record, expect=stored.revision)
