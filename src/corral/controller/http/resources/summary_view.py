"""The parts that summaries of resources are made of."""

from __future__ import annotations

from dataclasses import dataclass

from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state.cluster_state import ClusterState
from corral.controller.workload.service import Workloads


@dataclass(frozen=True)
class SummaryView:
    """What is stored, and what nodes and workloads have reported since."""

    state: ClusterState
    nodes: LiveNodes
    workload: Workloads
    instances: InstanceControl
