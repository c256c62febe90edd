"""The entries of a decision in the journals of what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from corral.controller.state.collections import (
    deployment_decisions,
    group_decisions,
    instance_decisions,
    node_decisions,
)
from corral.domain.decisions import Alternative
from corral.domain.groups.instance_records import DecisionRecord
from corral.store.port import Append

_REJECTED: Final = 20


def decision_entries(decision: DecisionRecord, *, group: str, instance: str | None) -> list[Append]:
    """A decision in the journals of its instance, group, node and deployment, as far as it has these."""
    entries = [instance_decisions(instance).append(decision)] if instance is not None else []
    if group:
        entries.append(group_decisions(group).append(decision))
    if decision.node:
        entries.append(node_decisions(decision.node).append(decision))
    if decision.deployment:
        entries.append(deployment_decisions(decision.deployment).append(decision))
    return entries


def bounded_rejections(rejected: Sequence[Alternative]) -> tuple[Alternative, ...]:
    """The first alternatives that were rejected, and how many more there were."""
    more = len(rejected) - _REJECTED
    listed = tuple(rejected[:_REJECTED])
    return (*listed, Alternative(subject="others", reason=f"{more} more")) if more > 0 else listed
