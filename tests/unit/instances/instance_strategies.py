"""Records of instances for hypothesis: few ids, groups and nodes, so that they meet."""

from __future__ import annotations

import datetime as dt

from hypothesis import strategies as st

from corral.domain.groups.instance_records import AfterStop, ExitRecord, InstanceRecord, Readiness
from corral.domain.ids import GroupName, Incarnation, InstanceId, NodeId
from corral.domain.instance_states import ENDED, InstanceState, Wanted

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
GROUPS = ("a", "b", "a-1")
NODES = ("n1", "n2")
IDS = st.builds("{}-{}".format, st.sampled_from(GROUPS), st.integers(1, 6))


def exited(outcome: str) -> ExitRecord:
    crashed = outcome == "crashed"
    return ExitRecord(
        known=True, code=0, signal=None, crashed=crashed, outcome=outcome, summary="", ended_at=NOW
    )


RECORDS = st.builds(
    InstanceRecord,
    id=IDS.map(InstanceId),
    group=st.sampled_from(GROUPS).map(GroupName),
    node=st.sampled_from(NODES).map(NodeId),
    incarnation=st.just(Incarnation(1000)),
    state=st.sampled_from(InstanceState),
    wanted=st.sampled_from(Wanted),
    after_stop=st.sampled_from(AfterStop),
    held=st.sampled_from(("", "stopped")),
    exit=st.sampled_from((None, exited(ENDED), exited("crashed"))),
    readiness=st.sampled_from(Readiness),
    warm=st.booleans(),
    created_at=st.just(NOW),
)
CHANGES = st.lists(st.one_of(RECORDS, IDS), max_size=40)
"""A record is stored; an id is removed, whether it exists or not."""
