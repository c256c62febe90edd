"""Plans of starts: the lookup of names in memory, and the plans that live instances use."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.artifacts import CatalogRecord
from corral.domain.groups.extensions import ExtensionPackage
from corral.domain.groups.instance_records import PlanRecord, live
from corral.domain.groups.plans import Plan, read_plan
from corral.domain.modules.phases import ModuleIntent
from corral.domain.templates import TemplateRecord, TemplateVersion, group_of, template_name


class StateSources:
    """The `PlanSources` of a leading controller. `new` are templates that count as present, by name; see
    `awaited_template`."""

    def __init__(self, state: ClusterState, new: Mapping[str, TemplateRecord] = MappingProxyType({})) -> None:
        self._state = state
        self._new = new

    def template(self, name: str, /) -> TemplateRecord | None:
        found = self._state.templates.find(name)
        return found.record if found else self._new.get(name)

    def templates_in(self, group: str, /) -> Sequence[TemplateRecord]:
        stored = self._state.templates.in_group(group)
        new = [self._new[name] for name in self._new if group_of(name) == group]
        if not new:
            return stored
        every = {each.name: each for each in (*new, *stored)}
        return [every[name] for name in sorted(every)]

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


def awaited_template(name: str, now: dt.datetime) -> TemplateRecord:
    """A template that is to be uploaded, without files: only to plan with, and never stored."""
    version = TemplateVersion(
        number=1, manifest="", hash="0" * 64, archive_size=0, files=0, size=0, created_at=now
    )
    return TemplateRecord(
        name=template_name(name, field="new_templates"),
        current=1,
        last=1,
        versions=(version,),
        created_at=now,
        updated_at=now,
    )


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
