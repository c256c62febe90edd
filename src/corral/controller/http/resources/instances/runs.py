"""The runs of an instance, and what each was started with."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Final

import msgspec

from corral.controller.consoles.run_list import RunFacts
from corral.controller.consoles.service import Consoles
from corral.controller.http.messages.call import ApiCall, Query
from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.http.resources.instances.instance_schemas import ExitShape, exit_shape
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import MAX_COUNTER
from corral.domain.permissions import Permission

_MOST: Final = 500


class RunsQuery(Query, frozen=True, kw_only=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=_MOST, description="Most runs of an answer.")] = 100
    before: (
        Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNTER, description="Only runs with lower numbers.")] | None
    ) = None


class InstanceRunShape(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `state` is UNKNOWN for one whose end was not reported; `crash` is the id of the crash that ended it,
    if one is kept. Of its console the bytes from `first_offset` to `end_offset` can be read; null: its node could
    not be asked. `nonce` separates it from another run with its number, made by a node that was put back to an
    earlier state; empty: from before there were any."""

    incarnation: int
    node: str
    state: str
    started_at: dt.datetime | None
    ended_at: dt.datetime | None
    exit: ExitShape | None
    first_offset: int | None
    end_offset: int | None
    plan_hash: str
    crash: str | None
    nonce: str


class RunsShape(msgspec.Struct, frozen=True, kw_only=True):
    """Runs, the newest first. `next` is the `before` of the next answer, null: there are no more. `notes` names the nodes
    that could not be asked: of their runs only what was reported is here."""

    items: list[InstanceRunShape]
    next: int | None
    notes: list[str]


async def list_runs(state: ClusterState, consoles: Consoles, call: ApiCall[None, RunsQuery]) -> RunsShape:
    record = state.instances.require(call.path["id"]).record
    found = await consoles.runs.listed(record, before=call.query.before, limit=call.query.limit)
    items = [_shape(consoles, record, run) for run in found.runs]
    return RunsShape(
        items=items, next=items[-1].incarnation if found.more and items else None, notes=found.notes
    )


def _shape(consoles: Consoles, record: InstanceRecord, run: RunFacts) -> InstanceRunShape:
    return InstanceRunShape(
        incarnation=run.incarnation,
        node=run.node,
        state=run.state,
        started_at=run.started_at,
        ended_at=run.ended_at,
        exit=exit_shape(run.exit) if run.exit is not None else None,
        first_offset=run.first_offset,
        end_offset=run.end_offset,
        plan_hash=run.plan_hash,
        crash=consoles.runs.crash_of(record, run),
        nonce=run.nonce,
    )


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/instances/{id}/runs",
        permission=Permission.INSTANCES_READ,
        summary="List the runs of an instance, the newest first",
        query=RunsQuery,
        response=RunsShape,
        handler=list_runs,
    ),
)
