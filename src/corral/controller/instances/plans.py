"""Plans of starts: the lookup of names in memory, and the plans that live instances use."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.artifacts import CatalogRecord
from corral.domain.groups.extensions import ExtensionPackage
from corral.domain.groups.instance_records import PlanRecord, live
from corral.domain.groups.plans import Plan, read_plan
from corral.domain.modules.phases import ModuleIntent
from corral.domain.templates import TemplateRecord


class StateSources:
    """The `PlanSources` of a leading controller."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def template(self, name: str, /) -> TemplateRecord | None:
        found = self._state.templates.find(name)
        return found.record if found else None

    def templates_in(self, group: str, /) -> Sequence[TemplateRecord]:
        return self._state.templates.in_group(group)

    def artifact(self, platform: str, version: str, /) -> CatalogRecord | None:
        found = self._state.catalog.find(f"{platform}/{version}")
        return found.record if found else None

    def packages(self) -> list[ExtensionPackage]:
        return [
            ExtensionPackage(
                module=stored.record.id,
                active=stored.record.intent is ModuleIntent.ACTIVE,
                proven=stored.record.proven,
                extensions=stored.record.manifest.extensions,
            )
            for stored in self._state.modules
        ]


@functools.lru_cache(maxsize=1024)
def decoded(record: PlanRecord) -> Plan:
    """A plan as a value; cached, because the record is frozen."""
    return read_plan(record)


def plans_in_use(state: ClusterState) -> Iterator[Plan]:
    """The plans of live instances, each once."""
    hashes = {stored.record.plan_hash for stored in state.instances if live(stored.record.state)}
    for hash in sorted(hashes):
        stored = state.plans.find(hash)
        if stored is not None:
            yield decoded(stored.record)
