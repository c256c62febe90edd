"""The revision that a start is made by."""

from __future__ import annotations

from corral.domain.groups.instance_records import GroupRecord
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.start_requests import StartRequest


def revision_for_start(view: PlanView, group: GroupRecord, request: StartRequest) -> int:
    """The number of that revision; 0: the present document. The planner may have chosen one; otherwise a group that went
    back to a revision stays with it."""
    del view
    return request.revision or group.pinned_revision
