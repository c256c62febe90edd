"""What the planner reads: one state of the cluster, that does not change during a pass."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from corral.domain.groups.instance_records import GroupRecord, InstanceRecord
from corral.domain.planning.node_views import NodeView
from corral.domain.planning.refusals import PlacementRefusal
from corral.domain.planning.start_requests import StartRequest
from corral.domain.planning.tallies import GroupTally


class PlanView(Protocol):
    """What the planner reads: one state of the cluster, that does not change during a pass."""

    @property
    def now(self) -> dt.datetime: ...

    def group(self, name: str) -> GroupRecord | None: ...

    def tally(self, group: str) -> GroupTally: ...

    def instances_of(self, group: str) -> Sequence[InstanceRecord]: ...

    def pause_over(self, group: str) -> bool:
        """Is the time of its crash pause over?"""

    @property
    def players_settled(self) -> bool:
        """Have workloads had the time to report their players to this leader?"""

    def players(self, instance: str) -> int | None:
        """How many players it has; None: it was not reported in this run."""

    def unreadable_of(self, group: str) -> Sequence[str]:
        """Instances that may be of this group and running, and whose records cannot be read."""

    def start_requests(self, group: GroupRecord, *, reason: str) -> Iterator[StartRequest]:
        """The next instances to start, without an end."""

    def unstartable(self, group: GroupRecord, request: StartRequest) -> PlacementRefusal | None:
        """Why there can be no plan for such a run, whatever the nodes are."""

    def home_of(self, group: GroupRecord, request: StartRequest) -> str:
        """The node with the directory of a static instance; empty: it has none."""

    def chosen_node(self, request: StartRequest) -> str | None:
        """The node that the instance is bound to, if it exists."""

    def nodes(self) -> Sequence[NodeView]: ...

    def runs_by_node(self, group: str) -> Mapping[str, int]: ...

    @property
    def cpu_overcommit(self) -> float: ...
