"""What the planner reads: one state of the cluster, that does not change during a pass."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord
from corral.domain.groups.revisions import RevisionRecord
from corral.domain.planning.node_views import NodeView
from corral.domain.planning.refusals import PlacementRefusal
from corral.domain.planning.scaling import GroupLoad
from corral.domain.planning.signals import RolloutClock
from corral.domain.planning.start_requests import StartRequest
from corral.domain.planning.tallies import GroupTally


class PlanView(Protocol):
    """What the planner reads: one state of the cluster, that does not change during a pass."""

    @property
    def now(self) -> dt.datetime: ...

    @property
    def steady(self) -> dt.datetime:
        """The time by a clock that is not set while the controller leads."""

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

    def idle_seconds(self, instance: str) -> float | None:
        """For how long it is known to have had no players; None: it has some, or it is not known."""

    def unknown_seconds(self, instance: str) -> float:
        """For how long the number of its players is not known; 0: it is."""

    def is_silent(self, instance: str) -> bool:
        """Is it known that its present start never reported players?"""

    def grace_left(self, spec: GroupSpec, node: str) -> float | None:
        """Seconds until the instances of a group on a node that is away are lost; None: it is not away, or they never are."""

    def inventory_complete(self, node: str) -> bool:
        """Has the node reported everything that it knew when it connected?"""

    def load(self, group: GroupRecord) -> GroupLoad:
        """The players of the instances that serve."""

    def floor(self, group: GroupRecord) -> int:
        """The operator's lower bound for its instances, while that lasts; 0: there is none."""

    def floor_left(self, group: GroupRecord) -> float:
        """Seconds until that bound ends."""

    def cooldown_left(self, group: GroupRecord) -> float:
        """Seconds until the cooldown after its last change because of load is over."""

    def draining_seconds(self, instance: str) -> float:
        """For how long it takes no more players; 0: it does."""

    def metric(self, instance: str, name: str) -> float | None:
        """The last value of a metric that its workload reported; None: it has not in this run, or not for a
        while."""

    def deployment(self, id: str) -> DeploymentRecord | None: ...

    def rollout_clock(self, deployment: DeploymentRecord) -> RolloutClock:
        """How long the waits of a deployment have lasted."""

    def outdated(self, record: InstanceRecord) -> bool:
        """Was it started by an earlier document?"""

    def is_closed(self, node: str) -> bool:
        """Does the node take no more instances?"""

    def is_online(self, node: str) -> bool:
        """Is the node connected?"""

    def ready_seconds(self, instance: str) -> float:
        """For how long its present run is known to be ready; 0: it is not."""

    def unready_seconds(self, instance: str) -> float:
        """For how long it is known not to be ready; 0: it is."""

    @property
    def emptied(self) -> frozenset[str]:
        """The nodes that are draining or drained."""

    def has_movable(self, node: str) -> bool:
        """Is there a live instance on a node, of any group, that leaves before the last ones when it is emptied?"""

    def drain_decision(self, node: str) -> str:
        """The decision that began the emptying of a node; empty: there is none."""

    def drain_text(self, node: str) -> str:
        """A node that is emptied, and why, for people."""

    def unreadable_of(self, group: str) -> Sequence[str]:
        """Instances that may be of this group and running, and whose records cannot be read."""

    def start_requests(self, group: GroupRecord, *, reason: str) -> Iterator[StartRequest]:
        """The next instances to start, without an end."""

    def unstartable(self, group: GroupRecord, request: StartRequest) -> PlacementRefusal | None:
        """Why there can be no plan for such a run, whatever the nodes are."""

    def revision(self, group: str, number: int) -> RevisionRecord | None:
        """A revision of a group that is kept."""

    def as_started(self, group: GroupRecord, request: StartRequest) -> GroupRecord:
        """The group with the document that such a run is started by: its own, or that of a revision."""

    def home_of(self, group: GroupRecord, request: StartRequest) -> str:
        """The node with the directory of a static instance; empty: it has none."""

    def chosen_node(self, request: StartRequest) -> str | None:
        """The node that the instance is bound to, if it exists."""

    def nodes(self) -> Sequence[NodeView]: ...

    def runs_by_node(self, group: str) -> Mapping[str, int]: ...

    @property
    def cpu_overcommit(self) -> float: ...
