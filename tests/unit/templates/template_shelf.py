"""A state without a store: what a change describes is applied at once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import msgspec

from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import GROUPS, INSTANCES, PLANS
from corral.controller.state.ledger import Step
from corral.controller.templates import template_changes as changes
from corral.controller.templates.archive_import import ImportedTree
from corral.controller.templates.template_changes import TemplateChange
from corral.domain.events import Draft
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord
from corral.domain.groups.plan_resolution import resolve_plan
from corral.domain.groups.plans import PlanTemplate, encode_plan
from corral.domain.ids import Epoch, GroupName, InstanceId, NodeId, first_incarnation
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.templates import TemplateFile, TemplateManifest, TemplateRecord, manifest_digest
from corral.store.port import Change, Commit, Delete, Put

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
KEEP = 5


def an_intake(mark: str) -> ImportedTree:
    file = TemplateFile(path=mark, mode=0o644, size=1, digest="0" * 64)
    manifest = TemplateManifest(files=(file,))
    return ImportedTree(
        manifest=manifest,
        digest=manifest_digest(manifest),
        hash=f"hash of {mark}",
        archive_size=100,
        files=1,
        size=1,
    )


class _NoSources:
    def template(self, name: str, /) -> None:
        return None

    def templates_in(self, group: str, /) -> list[TemplateRecord]:
        return []

    def artifact(self, platform: str, version: str, /) -> None:
        return None

    def packages(self) -> tuple[()]:
        return ()


class Shelf:
    """Templates, and who uses them."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.events: list[Draft] = []

    def apply(self, steps: Sequence[Step]) -> None:
        number = self.state.number + 1
        written = tuple(
            Change(
                collection=step.collection,
                id=step.id,
                revision=number,
                body=step.body if isinstance(step, Put) else None,
            )
            for step in steps
            if isinstance(step, Put | Delete)
        )
        self.events += [step for step in steps if isinstance(step, Draft)]
        self.state.apply(
            Commit(number=number, epoch=Epoch(1), at=NOW, changes=written, events=(), entries=())
        )

    def upload(self, name: str, mark: str = "v", **how: Any) -> TemplateChange:
        how.setdefault("keep", KEEP)
        change = changes.new_version(self.state, name, an_intake(mark), now=NOW, **how)
        self.apply(change.steps)
        return change

    def record(self, name: str) -> TemplateRecord:
        return self.state.templates.require(name).record

    def numbers(self, name: str) -> list[int]:
        return [version.number for version in self.record(name).versions]

    def add_group(self, name: str, **spec: Any) -> GroupSpec:
        made = GroupSpec(name=GroupName(name), command=("x",), **spec)
        self.apply([GROUPS.put(name, GroupRecord(spec=made, created_at=NOW, updated_at=NOW), expect=None)])
        return made

    def run(
        self, group: str, *templates: tuple[str, str], state: InstanceState = InstanceState.RUNNING
    ) -> None:
        """An instance whose plan has these templates by these hashes."""
        spec = GroupSpec(name=GroupName(group), command=("x",))
        plan = resolve_plan(spec, _NoSources(), lambda _: 0).plan
        layers = tuple(PlanTemplate(name=name, version=1, hash=hash) for name, hash in templates)
        record = encode_plan(msgspec.structs.replace(plan, templates=layers))
        instance = InstanceRecord(
            id=InstanceId(f"{group}-1"),
            group=GroupName(group),
            node=NodeId("n1"),
            incarnation=first_incarnation(1),
            state=state,
            wanted=Wanted.RUN,
            plan_hash=record.hash,
            created_at=NOW,
        )
        self.apply(
            [PLANS.put(record.hash, record, expect=None), INSTANCES.put(instance.id, instance, expect=None)]
        )
