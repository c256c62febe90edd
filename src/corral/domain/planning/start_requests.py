"""The inputs of a start before it is placed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import msgspec

from corral.domain.decisions import DecisionKind
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, LeasedPort, StartFailure
from corral.domain.ids import Incarnation, InstanceId


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One run to be started."""

    id: InstanceId
    kind: DecisionKind = DecisionKind.START
    reason: str
    only: str | None = None
    avoid: str | None = None
    prefer: str | None = None
    attempts: int = 0
    failure: StartFailure | None = None
    created_at: dt.datetime | None = None
    """When the first run under this id was created; None: this is the first."""
    variables: Mapping[str, str] = {}
    """The instance's own variables, a layer above the group's."""
    pinned: bool = False
    """The operator chose the node."""
    home: str = ""
    """The node with the directory of a static instance that has run before."""
    last_ports: tuple[LeasedPort, ...] = ()
    """The ports of the previous run; a static instance gets them again while they are free."""
    claimed_by: str = ""
    """A node that lists a run of this id. The instance is not started as long as the node does."""
    carries_on: str = ""
    """The id of an earlier request that this start completes: a restart, once its stop is done."""
    follows: str = ""
    """The decision that this start is a consequence of: of an earlier start under this id, or of its stop."""
    warm: bool = False
    """It is kept ready beside those that serve."""
    replaces: str = ""
    """The lost instance in whose place it is started."""
    revision: int = 0
    """The revision that it is to be made by; 0: see `revision_for_start`."""
    former_revision: int = 0
    """The revision of the earlier run under this id; 0: it had none."""
    moves: str = ""
    """The instance on a node that is emptied in whose place it is started."""
    moves_run: Incarnation = Incarnation(0)

    @classmethod
    def after(cls, record: InstanceRecord, **facts: Any) -> StartRequest:
        """A further run under the id of an earlier one, with what belongs to the id."""
        return cls(
            id=record.id,
            created_at=record.created_at,
            variables=record.variables,
            pinned=record.pinned,
            home=record.home,
            last_ports=record.ports,
            warm=record.warm,
            replaces=record.replaces,
            former_revision=record.revision,
            moves=record.moves,
            moves_run=record.moves_run,
            **{"only": record.node if record.pinned else None, **facts},
        )


def revision_for_start(group: GroupRecord, request: StartRequest) -> int:
    """The number of the revision that a start is made by; 0: the present document. The planner may have chosen one;
    otherwise a group that went back to a revision stays with it."""
    return request.revision or group.pinned_revision
