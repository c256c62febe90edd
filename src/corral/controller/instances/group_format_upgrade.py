"""Upgrade of stored groups from an earlier format, once, by the first leader that knows the present one."""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from corral.controller.instances.revision_upgrade import record_first_revisions
from corral.controller.state.cluster_state import StoredRecord
from corral.controller.state.collections import CLUSTER, GROUPS, ONLY
from corral.controller.state.ledger import SYSTEM, Ledger, Step, audit
from corral.domain.events import Draft, EventType
from corral.domain.groups.group import GroupSpec, Isolation
from corral.domain.groups.instance_records import GroupRecord

GROUP_FORMAT: Final = 4
"""1: `isolate: auto` exists, and is the default. 2: the default of `min_alive_ms` is not 0 any more. 3: instances beyond
the desired number are stopped. 4: groups have revisions."""
_log = structlog.get_logger("corral.controller.instances")


async def upgrade_groups(ledger: Ledger) -> None:
    """Upgrade groups one by one, and store the new format number last: later changes by operators stay. No
    request is served before this has returned; if interrupted, it is repeated."""
    stored = ledger.state.cluster.require(ONLY)
    if stored.record.group_format >= GROUP_FORMAT:
        return
    if stored.record.group_format < 1:
        for group in ledger.state.groups:
            if group.record.spec.isolate is Isolation.SHARED and (steps := _upgraded(ledger, group)):
                await ledger.commit(*steps)
    if stored.record.group_format < 2:
        for group in ledger.state.groups:
            if not group.record.spec.min_alive_ms:
                await ledger.commit(*_with_time_to_live(group))
    if stored.record.group_format < 3:
        for group in ledger.state.groups:
            counts = ledger.state.instances.counts(group.record.spec.name)
            if (serving := counts.staying - counts.warm) > group.record.target:
                await ledger.commit(*_with_target(group, serving))
    await record_first_revisions(ledger)
    marked = msgspec.structs.replace(stored.record, group_format=GROUP_FORMAT)
    await ledger.commit(CLUSTER.put(ONLY, marked, expect=stored.revision))


def _upgraded(ledger: Ledger, group: StoredRecord[GroupRecord]) -> list[Step]:
    name = group.record.spec.name
    if _has_worlds(ledger, group.record):
        _log.warning(
            "group_isolation.skipped", group=name, isolate="shared", hint=isolation_hint(group.record)
        )
        return []
    _log.info("group_isolation.changed", group=name, before="shared", isolate="auto")
    return [
        GROUPS.put(name, isolated_by_node(group.record), expect=group.revision),
        Draft(type=EventType.GROUP_UPDATED, subject=name, data={"changed": ["isolate"]}),
        audit(SYSTEM, "groups.update", name, before={"isolate": "shared"}, after={"isolate": "auto"}),
    ]


def _with_time_to_live(group: StoredRecord[GroupRecord]) -> list[Step]:
    """The group with the new default. Stored documents contain every field: the earlier default cannot be
    distinguished from an explicit 0."""
    default = GroupSpec(name="").min_alive_ms
    spec = msgspec.structs.replace(group.record.spec, min_alive_ms=default)
    _log.info("group_min_alive.changed", group=spec.name, before=0, min_alive_ms=default)
    return [
        GROUPS.put(spec.name, msgspec.structs.replace(group.record, spec=spec), expect=group.revision),
        Draft(type=EventType.GROUP_UPDATED, subject=spec.name, data={"changed": ["min_alive_ms"]}),
        audit(
            SYSTEM,
            "groups.update",
            spec.name,
            before={"min_alive_ms": 0},
            after={"min_alive_ms": default},
        ),
    ]


def _with_target(group: StoredRecord[GroupRecord], serving: int) -> list[Step]:
    """The group with the number that it has as its desired one. Starts by hand did not raise it before, and instances
    that it did not cover were left alone."""
    name, before = group.record.spec.name, group.record.target
    _log.info("group_target.changed", group=name, before=before, target=serving)
    return [
        GROUPS.put(name, msgspec.structs.replace(group.record, target=serving), expect=group.revision),
        audit(SYSTEM, "groups.scale", name, before={"target": before}, after={"target": serving}),
    ]


def isolated_by_node(record: GroupRecord) -> GroupRecord:
    spec = msgspec.structs.replace(record.spec, isolate=Isolation.AUTO)
    return msgspec.structs.replace(record, spec=spec)


def isolation_hint(record: GroupRecord) -> str:
    """The hint for a static group that shares a user though it need not: the consequence, and how to change
    it."""
    spec = record.spec
    if not spec.static or spec.run_as or spec.isolate is not Isolation.SHARED:
        return ""
    return (
        "its instances share the node's user with others (isolate: shared); a group.yaml with 'isolate: auto' and "
        f"'corral group update {spec.name} -f group.yaml' give each a user of its own, and its world with it, at "
        "its next start; files with more than one name (hard-linked backups, 'cp -al') refuse it: copy these before"
    )


def _has_worlds(ledger: Ledger, record: GroupRecord) -> bool:
    return record.spec.static and any(ledger.state.instances.of_group(record.spec.name))
