"""Reports of readiness as Universe has them: the state of an instance, by the instance itself or by a caller."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody
from corral.controller.http.pipeline.route_table import Act, Route, path_id
from corral.controller.http.resources.instances.instance_schemas import InstanceView
from corral.controller.http.resources.universe.universe_schemas import (
    UniverseInstance,
    universe_instance,
    universe_name,
)
from corral.controller.state.ledger import Mutation
from corral.controller.workload.service import Workloads
from corral.controller.workload.tokens import WorkloadRun
from corral.domain.groups.instance_records import live
from corral.domain.ids import MAX_COUNTER
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected

Heartbeat = (
    Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,19}(?!\n)$")]
    | Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNTER)]
)


class UniverseStateReport(RequestBody, frozen=True, kw_only=True, rename=universe_name):
    """What an instance reports of itself. Anything else than these two states is up to the controller."""

    state: Literal["ONLINE", "OFFLINE"]
    last_heartbeat: Heartbeat | None = None


def _report(workload: Workloads, run: WorkloadRun, body: UniverseStateReport) -> None:
    if body.state == "ONLINE":
        workload.report_ready(run)
    else:
        workload.report_not_ready(run)


def report_own_state(view: InstanceView, run: WorkloadRun, body: UniverseStateReport) -> UniverseInstance:
    _report(view.workload, run, body)
    return universe_instance(view, view.state.instances.require(run.instance))


async def report_state(view: InstanceView, call: ApiCall[UniverseStateReport, NoQuery]) -> Mutation:
    record = view.state.instances.require(call.path["id"]).record
    if not live(record.state):
        raise Rejected(
            Code.NOT_RUNNING,
            f"instance '{record.id}' has ended",
            hint="start it: PATCH …/lifecycle?target=start",
        )
    _report(view.workload, WorkloadRun(instance=record.id, incarnation=record.incarnation), call.body)
    return Mutation(
        action="instances.report_state",
        subject=record.id,
        steps=(),
        body=universe_instance(view, view.state.instances.require(record.id)),
        after={"state": call.body.state},
    )


ROUTES: Final[tuple[Route, ...]] = (
    Act(
        method="PUT",
        path="/api/instances/{id}/state",
        permission=Permission.INSTANCES_MANAGE,
        summary="Report that an instance is ready (ONLINE) or not (OFFLINE); what is wanted of it stays",
        body=UniverseStateReport,
        response=UniverseInstance,
        handler=report_state,
        by_itself=report_own_state,
        action="instances.report_state",
        subject=path_id,
        lowered=frozenset({"id"}),
    ),
)
