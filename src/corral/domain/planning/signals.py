"""What a plan depends on beside the records, at one moment: the players of instances, and the ends of waits."""

from __future__ import annotations

import msgspec

from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord
from corral.domain.planning.scaling import NEVER, GroupLoad


class RolloutClock(msgspec.Struct, frozen=True, kw_only=True):
    """Times of a deployment, in seconds."""

    running: float = 0.0
    """Since its clock of progress runs."""
    watched: float = 0.0
    """Since its canaries are watched without a break."""


class Signals:
    """Signals of which nothing is known: no players, and all waits are over. A leader has others."""

    players_settled = True

    def pause_over(self, group: str) -> bool:
        del group
        return True

    def players(self, instance: str) -> int | None:
        del instance
        return None

    def idle_seconds(self, instance: str) -> float | None:
        del instance
        return None

    def unknown_seconds(self, instance: str) -> float:
        del instance
        return 0.0

    def is_silent(self, instance: str) -> bool:
        del instance
        return True

    def ready_seconds(self, instance: str) -> float:
        del instance
        return NEVER

    def unready_seconds(self, instance: str) -> float:
        del instance
        return NEVER

    def away_seconds(self, node: str) -> float | None:
        """For how long the node has been away; None: it is connected."""
        del node
        return None

    def inventory_complete(self, node: str) -> bool:
        del node
        return True

    def load(self, group: GroupRecord) -> GroupLoad:
        del group
        return GroupLoad()

    def floor(self, group: GroupRecord) -> int:
        return group.floor.count if group.floor is not None else 0

    def floor_left(self, group: GroupRecord) -> float:
        del group
        return NEVER

    def cooldown_left(self, group: GroupRecord) -> float:
        del group
        return 0.0

    def draining_seconds(self, instance: str) -> float:
        del instance
        return 0.0

    def metric(self, instance: str, name: str) -> float | None:
        del instance, name
        return None

    def rollout_clock(self, deployment: DeploymentRecord) -> RolloutClock:
        del deployment
        return RolloutClock()

    def outdated(self, record: InstanceRecord) -> bool:
        del record
        return False
