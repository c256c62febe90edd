"""Schemas of groups in the API: the document as it is sent, the group as it is shown, and what the audit keeps of it."""

from __future__ import annotations

import builtins
import datetime as dt
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from corral.controller.http.messages.call import RequestBody
from corral.controller.instances.drift_view import DriftView
from corral.controller.instances.group_folder import GroupFolder
from corral.controller.instances.instance_changes import to_restart
from corral.controller.instances.plan_signals import GroupScaling, PlanSignals
from corral.controller.instances.restart_checks import refused_restart
from corral.controller.instances.revisions import newest_number
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.domain.groups.document_sets import document_digest, field_faults
from corral.domain.groups.drift import Drift
from corral.domain.groups.group import ArtifactSpec, GroupSpec
from corral.domain.groups.inheritance import written_document
from corral.domain.groups.instance_records import CrashLoop, GroupRecord, Hold, LastScale, ScaleFloor
from corral.domain.groups.scaling_spec import MaintenanceSpec, ScalingMode
from corral.domain.groups.schema_bounds import OTHERS
from corral.domain.planning.holds import hold_text
from corral.domain.planning.schedules import ScheduledValues
from corral.domain.spec import Spec
from corral.domain.urls import shown_url
from corral.errors import counted

_NODES_NAMED: Final = 5


class GroupDriftShape(msgspec.Struct, frozen=True, kw_only=True):
    """Instances that do not run as the present document says; at most 100 ids of each kind are listed."""

    outdated: tuple[str, ...]
    outdated_count: int
    placement: tuple[str, ...]
    placement_count: int
    unknown_count: int
    nodes: dict[str, str]
    command: str
    refused: str
    pinned_revision: int
    document_pending: bool


class MaintenanceShape(MaintenanceSpec, frozen=True, kw_only=True):
    """Whether a group is closed to players now; `schedule` is the one that says so, empty for the group itself."""

    schedule: str = ""

    @classmethod
    def of(cls, values: ScheduledValues) -> MaintenanceShape:
        return cls(**msgspec.structs.asdict(values.maintenance), schedule=values.by.get("maintenance", ""))


class GroupScalingShape(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about the number of instances now, active schedules included. Where the mode is not DYNAMIC, players
    decide about nothing, and `need` is null."""

    mode: ScalingMode
    min: int
    max: int | None
    players: int
    unknown: int
    need: int | None
    waits_for: str
    floor: ScaleFloor | None
    last_scale: LastScale | None
    cooldown_until: dt.datetime | None
    schedules: tuple[str, ...]
    changes_at: dt.datetime | None


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a group fares. `wanted` instances are kept, `instances` exist, `ready` of them are ready; `warm` and `lost` come
    on top."""

    wanted: int
    target: int
    instances: int
    ready: int
    warm: int
    lost: int
    draining: int
    scaling: GroupScalingShape
    maintenance: MaintenanceShape
    reason: str
    paused: CrashLoop | None
    deleting: bool
    owner: str
    file_gone: bool
    hold: Hold | None
    deployment: str
    deployment_revision: int
    stable_revision: int
    pinned_revision: int
    drift: GroupDriftShape | None
    document_sha256: str
    created_at: dt.datetime
    updated_at: dt.datetime


class GroupShape(GroupSpec, frozen=True, kw_only=True):
    """A group's document with the fields of its parents and all defaults, and how it fares."""

    status: GroupStatus
    revision: int


def document_type(name: str, *, whole: bool) -> type[RequestBody]:
    """Every field of a group's document, optional but for the name of a `whole` one; null goes back to the default.
    What is written inside objects is checked with the group: a part may be given, and is merged into what is there."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(GroupSpec):
        kind = dict[str, Any] if _is_object(field.type) else _bounded(field)
        if whole and field.required:
            fields.append((field.name, kind))
            continue
        fields.append((field.name, kind | None | UnsetType, UNSET))
    made: Any = msgspec.defstruct(
        name,
        fields,
        bases=(RequestBody,),
        namespace={"document_faults": staticmethod(field_faults)},
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=True,
        module=__name__,
    )
    document: type[RequestBody] = made
    return document


def _bounded(field: msgspec.structs.FieldInfo) -> Any:
    """The type of a field, with the bounds that it leaves to the checks in its schema."""
    bounds, kind = OTHERS.get(field.name), field.type
    if not bounds:
        return kind
    if "maxItems" in bounds and typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]  # its own bound is the wider one
    return Annotated[kind, msgspec.Meta(extra_json_schema=dict(bounds))]


def _is_object(type: Any) -> bool:
    """Is it written as a JSON object?"""
    kinds = typing.get_args(type) if isinstance(type, types.UnionType) else (type,)
    return any(
        typing.get_origin(kind) is dict or (isinstance(kind, builtins.type) and issubclass(kind, Spec))
        for kind in kinds
    )


NewGroup: Final = document_type("NewGroup", whole=True)
GroupPatch: Final = document_type("GroupPatch", whole=False)
GroupDocument: Final = document_type("GroupDocument", whole=False)


def group_shape(
    state: ClusterState,
    stored: StoredRecord[GroupRecord],
    signals: PlanSignals,
    *,
    drift: GroupDriftShape | None = None,
    folder: GroupFolder | None = None,
    surplus_reason: str = "",
) -> GroupShape:
    record = stored.record
    scaling = signals.scaling(record)
    counts = state.instances.counts(record.spec.name)
    status = GroupStatus(
        wanted=scaling.wanted,
        target=record.target,
        instances=counts.live - counts.warm - counts.lost,
        ready=counts.serving_ready,
        warm=counts.warm,
        lost=counts.lost,
        draining=counts.draining,
        scaling=_scaling_shape(record, scaling),
        maintenance=MaintenanceShape.of(scaling.values),
        reason=record.reason or away_text(counts.away) or surplus_reason,
        paused=record.paused,
        deleting=record.deleting,
        owner=record.owner,
        file_gone=folder is not None and record.spec.name in folder.gone,
        hold=record.hold,
        deployment=record.deployment,
        deployment_revision=newest_number(state, record.spec.name),
        stable_revision=record.stable_revision,
        pinned_revision=record.pinned_revision,
        drift=drift,
        document_sha256=document_digest(written_document(record)),
        created_at=record.created_at,
        updated_at=record.updated_at,
    )
    return GroupShape(**msgspec.structs.asdict(record.spec), status=status, revision=stored.revision)


def _scaling_shape(record: GroupRecord, found: GroupScaling) -> GroupScalingShape:
    values, verdict = found.values, found.verdict
    return GroupScalingShape(
        mode=values.mode,
        min=values.min,
        max=values.max,
        players=found.load.players + found.load.above,
        unknown=found.load.unknown,
        need=verdict.need if verdict is not None else None,
        waits_for=verdict.waits_for if verdict is not None else "",
        floor=found.floor,
        last_scale=record.last_scale,
        cooldown_until=found.cooldown_until,
        schedules=values.active,
        changes_at=values.changes_at,
    )


def away_text(away: Mapping[str, int]) -> str:
    """Why fewer are ready than are there, where that is because of nodes that are not connected: the number of such
    instances by node."""
    if not away:
        return ""
    named = ", ".join(sorted(away)[:_NODES_NAMED]) + (", …" if len(away) > _NODES_NAMED else "")
    of_them = counted(sum(away.values()), "of its instances is", "of its instances are")
    return f"{of_them} on nodes that are away ({named})"


def drift_shape(view: DriftView, ws: Workspace, name: str) -> GroupDriftShape:
    """`ws`: where it is tried whether a restart would be refused."""
    found = view.of_group(name)
    ids, counts = found.ids, found.counts
    stale = counts.get(Drift.OUTDATED, 0) + counts.get(Drift.PLACEMENT, 0)
    refused = _refused_restart(ws, name) if stale else ""
    return GroupDriftShape(
        outdated=tuple(ids.get(Drift.OUTDATED, ())),
        outdated_count=counts.get(Drift.OUTDATED, 0),
        placement=tuple(ids.get(Drift.PLACEMENT, ())),
        placement_count=counts.get(Drift.PLACEMENT, 0),
        unknown_count=counts.get(Drift.UNKNOWN, 0),
        nodes=found.nodes,
        command=_command(name, moved=bool(counts.get(Drift.PLACEMENT))) if stale and not refused else "",
        refused=refused,
        pinned_revision=found.pinned,
        document_pending=found.pending,
    )


def _command(name: str, *, moved: bool) -> str:
    """What brings the instances up to date. `moved`: some would be placed elsewhere now; they may be of the present
    revision, which a deployment leaves alone."""
    return f"corral group restart {name}" if moved else f"corral deploy {name}"


def _refused_restart(ws: Workspace, name: str) -> str:
    """Why a restart of the group would be refused now; of many instances the first are tried."""
    group = ws.require_group(name)
    if group.hold is not None:
        return hold_text(group.hold, name)
    refused = refused_restart(ws, group, to_restart(ws, group))
    return refused.reason if refused is not None else ""


def audited(record: GroupRecord) -> dict[str, object]:
    """The document without values that may be secret, for the audit is for many: of variables, of patches,
    and of what a URL carries beside its host and path."""
    spec = record.spec
    document: dict[str, object] = msgspec.to_builtins(_with_shown_urls(spec))
    for field in ("env", "variables", "properties"):
        document[field] = sorted(getattr(spec, field))
    document["patches"] = [
        {"file": patch.file, "path": patch.path, "op": patch.op.value} for patch in spec.patches
    ]
    return {
        **document,
        "target": record.target,
        "paused": record.paused is not None,
        "hold": record.hold.reason if record.hold else None,
    }


def _with_shown_urls(spec: GroupSpec) -> GroupSpec:
    def shown(artifact: ArtifactSpec | None) -> ArtifactSpec | None:
        if artifact is None or not artifact.url:
            return artifact
        return msgspec.structs.replace(artifact, url=shown_url(artifact.url))

    return msgspec.structs.replace(
        spec,
        artifact=shown(spec.artifact),
        extensions=tuple(
            msgspec.structs.replace(each, artifact=shown(each.artifact)) for each in spec.extensions
        ),
    )
