"""Upgrade of nodes' ledgers that hold all reservations, to one document a reservation (ADR 0048)."""

from __future__ import annotations

import msgspec
import structlog

from corral.controller.state.cluster_state import StoredRecord
from corral.controller.state.collections import NODE_LEDGERS, RESERVATIONS
from corral.controller.state.ledger import Ledger, Step
from corral.domain.groups.instance_records import NodeLedger

_log = structlog.get_logger("corral.controller.instances")


async def upgrade_ledgers(ledger: Ledger) -> None:
    """Upgrade each ledger in one transaction: its reservations are in the one form or in the other, never in both.
    Nothing is placed before this has returned; if interrupted, it is repeated for the ledgers that are left."""
    for node, stored in ledger.state.node_ledgers.items():
        if stored.record.runs is not None:
            await ledger.commit(*_upgraded(ledger, node, stored))
            _log.info("node_ledger.changed", node=node, reservations=len(stored.record.runs))


def _upgraded(ledger: Ledger, node: str, stored: StoredRecord[NodeLedger]) -> list[Step]:
    mirror = ledger.state.reservations
    runs = {f"{node}/{id}": run for id, run in (stored.record.runs or {}).items()}
    return [
        NODE_LEDGERS.put(node, msgspec.structs.replace(stored.record, runs=None), expect=stored.revision),
        *(RESERVATIONS.put(id, run, expect=mirror.revision(id)) for id, run in runs.items()),
    ]
