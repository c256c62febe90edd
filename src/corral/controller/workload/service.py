"""Reports of workloads: authenticated, kept, and forwarded to their nodes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from corral.controller.state.cluster_state import ClusterState
from corral.controller.workload.tokens import WorkloadRun, WorkloadTokens
from corral.controller.workload.vitals import Vitals
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import NodeId
from corral.errors import Code, Rejected, Retryable
from corral.store.port import Commit
from corral.system.aio.token_bucket import TokenBuckets
from corral.system.clock import Clock
from corral.wire.features import PeerSupport
from corral.wire.v1.instance_pb2 import WorkloadReport
from corral.wire.v1.link_pb2 import ControllerMessage

_PER_MINUTE: Final = 1200
"""Each report is forwarded to a node: one workload must not fill its link."""


class LinkFacts(Protocol):
    """What is known of the session."""

    @property
    def supports(self) -> PeerSupport: ...


class Link(Protocol):
    """The part of a node's session that is used here."""

    @property
    def facts(self) -> LinkFacts: ...

    def send(self, message: ControllerMessage, /) -> bool: ...


class Links(Protocol):
    """The lookup of sessions."""

    def find(self, node_id: NodeId, /) -> Link | None: ...


class Workloads:
    """Tokens and vitals of one term. A workload's reports of readiness and players are forwarded to its node,
    whose probe they answer; a repetition changes nothing."""

    def __init__(
        self,
        *,
        state: ClusterState,
        links: Links,
        key: Callable[[], bytes],
        clock: Clock,
        life: dt.timedelta,
    ) -> None:
        self._state = state
        self._links = links
        self.tokens = WorkloadTokens(key=key, state=state, clock=clock, life=life)
        self.vitals = Vitals(state, monotonic=clock.monotonic)
        self._pace = TokenBuckets[str](
            burst=_PER_MINUTE, per_second=_PER_MINUTE / 60, monotonic=clock.monotonic
        )

    def admit(self, text: str, *, late: bool = False, cost: int = 1) -> WorkloadRun:
        """The run that this token authenticates. WORKLOAD_TOKEN_INVALID; RATE_LIMITED for too many requests. `cost`: as how
        many this one counts."""
        run = self.tokens.verify(text, late=late)
        if not self._pace.take(run.instance, min(cost, _PER_MINUTE)):
            counts = f"; this request counts as {cost}" if cost > 1 else ""
            raise Retryable(
                Code.RATE_LIMITED,
                f"instance '{run.instance}' reports or asks more than {_PER_MINUTE} times a minute{counts}",
                hint="report changes only, and ask for smaller pages, or less often",
                retry_after=1.0,
            )
        return run

    def follow(self, commit: Commit) -> None:
        """A commit is in memory: drop the values of runs that it ended."""
        self.vitals.follow(commit)

    def resync(self) -> None:
        self.vitals.resync()

    def report_ready(self, run: WorkloadRun) -> None:
        """The workload is ready. NODE_OFFLINE when its node cannot be reached: then the workload repeats it."""
        record = self._record(run)
        self._report(record, WorkloadReport(ready=True))
        self.vitals.ready(record.id, record.incarnation)

    def report_not_ready(self, run: WorkloadRun) -> None:
        """The workload is not ready until it reports that it is. NODE_OFFLINE as above, and for a node that does not know
        such reports."""
        record = self._record(run)
        link = self._links.find(record.node)
        if link is not None and not link.facts.supports.not_ready:
            raise Rejected(
                Code.CONFLICT,
                f"the daemon of node '{record.node}' does not know such a report yet",
                hint="update it",
            )
        self._report(record, WorkloadReport(not_ready=True))
        self.vitals.not_ready(record.id, record.incarnation)

    def report_players(self, run: WorkloadRun, *, count: int, maximum: int) -> None:
        """The number of players, and the maximum; 0 for an unknown maximum."""
        record = self._record(run)
        self._report(record, WorkloadReport(players_known=True, player_count=count, max_players=maximum))
        self.vitals.players(record.id, record.incarnation, count=count, maximum=maximum)

    def report_metrics(self, run: WorkloadRun, values: Mapping[str, float]) -> None:
        """Metrics of the workload's own; they are not forwarded."""
        self.vitals.metrics(run.instance, run.incarnation, values)

    def renew(self, run: WorkloadRun) -> tuple[str, dt.datetime]:
        """Another token for this run, and its expiry."""
        return self.tokens.minted(run.instance, run.incarnation)

    def _record(self, run: WorkloadRun) -> InstanceRecord:
        return self._state.instances.require(run.instance).record

    def _report(self, record: InstanceRecord, report: WorkloadReport) -> None:
        report.instance_id = record.id
        report.incarnation = record.incarnation
        link = self._links.find(record.node)
        if link is None or not link.send(ControllerMessage(workload_report=report)):
            raise Retryable(
                Code.NODE_OFFLINE,
                f"node '{record.node}' of instance '{record.id}' is not connected",
                hint="say it again shortly",
                retry_after=2.0,
            )
