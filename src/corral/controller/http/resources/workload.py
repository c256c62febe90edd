"""Reports of a workload about itself, with the token that it was started with."""

from __future__ import annotations

import datetime as dt
import math
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.messages.call import RequestBody
from corral.controller.http.pipeline.route_table import WORKLOAD, Report, Route
from corral.controller.workload.service import Workloads
from corral.controller.workload.tokens import WorkloadRun
from corral.controller.workload.vitals import MAX_METRICS
from corral.domain.node_claims import MOST_PLAYERS
from corral.domain.spec import MetricName
from corral.errors import Code, Rejected

PlayerCount = Annotated[int, msgspec.Meta(ge=0, le=MOST_PLAYERS)]
Metrics = Annotated[dict[MetricName, float], msgspec.Meta(max_length=MAX_METRICS)]


class Players(RequestBody, frozen=True, kw_only=True):
    count: PlayerCount
    max: Annotated[PlayerCount, msgspec.Meta(description="How many could play; 0: not known.")] = 0


class WorkloadTokenShape(msgspec.Struct, frozen=True, kw_only=True):
    """The next token of this run. It may be renewed after `expires_at`, too, as long as the run lives."""

    token: str
    expires_at: dt.datetime


def report_ready(workload: Workloads, run: WorkloadRun, body: None) -> None:
    del body
    workload.report_ready(run)


def report_players(workload: Workloads, run: WorkloadRun, body: Players) -> None:
    workload.report_players(run, count=body.count, maximum=body.max)


def report_metrics(workload: Workloads, run: WorkloadRun, body: dict[str, float]) -> None:
    for name, value in body.items():
        if not math.isfinite(value):
            raise Rejected(Code.INVALID_FIELD, f"'{name}' is too large a number", field=name)
    workload.report_metrics(run, body)


def renew_token(workload: Workloads, run: WorkloadRun, body: None) -> WorkloadTokenShape:
    del body
    token, expires_at = workload.renew(run)
    return WorkloadTokenShape(token=token, expires_at=expires_at)


def _report(what: str, summary: str, **more: Any) -> Report:
    return Report(
        **{
            "method": "POST",
            "path": f"/api/v1/workload/{what}",
            "permission": WORKLOAD,
            "summary": summary,
            "status": 204,
            **more,
        }
    )


ROUTES: Final[tuple[Route, ...]] = (
    _report("ready", "Report that an instance can be used", handler=report_ready),
    _report("players", "Report the players of an instance", body=Players, handler=report_players),
    _report("metrics", "Report metrics of an instance", body=Metrics, handler=report_metrics),
    _report(
        "token",
        "An instance renews its token",
        response=WorkloadTokenShape,
        status=200,
        handler=renew_token,
        late=True,
    ),
)
