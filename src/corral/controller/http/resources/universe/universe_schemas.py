"""Schemas of Universe's API, with its names: instances, nodes, the controller."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from corral.controller.http.resources.instances.instance_schemas import (
    InstanceShape,
    InstanceView,
    instance_shape,
)
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.instance_states import InstanceState

HUNDRED: Final = 100
"""Universe's number for one core."""
_MEGABYTES: Final = "Mb"


def universe_name(field: str) -> str:
    """A field's name as Universe writes it: `allocated_ram_mb` is `allocatedRamMB`."""
    first, *others = field.split("_")
    name = first + "".join(word.capitalize() for word in others)
    return f"{name.removesuffix(_MEGABYTES)}MB" if name.endswith(_MEGABYTES) else name


class UniverseState(enum.StrEnum):
    CREATING = "CREATING"
    ONLINE = "ONLINE"
    OFFLINE = "OFFLINE"
    STOPPED = "STOPPED"


STATES: Final[Mapping[InstanceState, UniverseState]] = {
    InstanceState.SCHEDULED: UniverseState.CREATING,
    InstanceState.PREPARING: UniverseState.CREATING,
    InstanceState.STARTING: UniverseState.CREATING,
    InstanceState.RUNNING: UniverseState.ONLINE,
    InstanceState.DRAINING: UniverseState.ONLINE,
    InstanceState.STOPPING: UniverseState.ONLINE,
    InstanceState.OFFLINE: UniverseState.OFFLINE,
    InstanceState.CRASHED: UniverseState.OFFLINE,
    InstanceState.STOPPED: UniverseState.STOPPED,
}
LISTED: Final[Mapping[UniverseState, dt.timedelta]] = {
    UniverseState.OFFLINE: dt.timedelta(seconds=15),
    UniverseState.STOPPED: dt.timedelta(seconds=10),
}
"""For how long an instance that has ended is listed."""


class UniverseInstance(msgspec.Struct, frozen=True, kw_only=True, rename=universe_name):
    """An instance as Universe shows it. Numbers of 64 bits are texts."""

    id: str
    configuration_name: str
    wrapper_node_id: str
    host_address: str
    allocated_port: int
    state: UniverseState
    last_heartbeat: str
    process_pid: str
    allocated_ram_mb: int
    allocated_cpu: float
    runtime: str


class UniverseMessage(msgspec.Struct, frozen=True, kw_only=True, rename=universe_name):
    """What was done, in a sentence."""

    message: str


class UniverseLifecycle(msgspec.Struct, frozen=True, kw_only=True, rename=universe_name):
    """What is done with an instance, and the instance as it is at first."""

    message: str
    instance: UniverseInstance | None = None


class UniverseLog(msgspec.Struct, frozen=True, kw_only=True, rename=universe_name):
    """The last lines of a console. `total_lines` is the number of those in `lines`."""

    instance_id: str
    lines: list[str]
    total_lines: int
    requested_lines: int


class UniverseSystem(msgspec.Struct, frozen=True, kw_only=True, rename=universe_name):
    """The host of a controller; memory in bytes, as text."""

    available_processors: int
    system_load_average: float
    free_memory: str
    total_memory: str
    max_memory: str


class UniverseController(msgspec.Struct, frozen=True, kw_only=True, rename=universe_name):
    """The controller that answers."""

    id: str
    cluster_name: str
    version: str
    master: bool
    address: str
    port: int
    api_port: int
    uptime_ms: str
    system: UniverseSystem


class UniverseResources(msgspec.Struct, frozen=True, kw_only=True, rename=universe_name):
    used_ram_mb: int
    used_cpu: float


class UniverseNode(msgspec.Struct, frozen=True, kw_only=True, rename=universe_name):
    """A node. Its daemon opens no port, so `port` is 0."""

    id: str
    name: str
    address: str
    port: int
    local: bool
    resources: UniverseResources


class UniverseNodeDetail(UniverseNode, frozen=True, kw_only=True, rename=universe_name):
    """A node with its instances."""

    instances: list[UniverseInstance]


def universe_instance(view: InstanceView, stored: StoredRecord[InstanceRecord]) -> UniverseInstance:
    return as_universe(view.state, instance_shape(view, stored))


def as_universe(state: ClusterState, shape: InstanceShape) -> UniverseInstance:
    """An instance of ours in Universe's shape."""
    group = state.groups.find(shape.group)
    spec = group.record.spec if group is not None else None
    seen = shape.last_seen or shape.created_at
    return UniverseInstance(
        id=shape.id,
        configuration_name=shape.group,
        wrapper_node_id=shape.node,
        host_address=shape.host_address or _address(state, shape.node, spec.host_address if spec else ""),
        allocated_port=shape.port or 0,
        state=STATES[shape.state],
        last_heartbeat=str(int(seen.timestamp() * 1000)),
        process_pid=str(shape.pid or 0),
        allocated_ram_mb=shape.memory_mb,
        allocated_cpu=spec.cpu * HUNDRED if spec else 0.0,
        runtime=shape.runtime,
    )


def _address(state: ClusterState, node: str, of_group: str) -> str:
    """The address that the group gives its instances; that of the node where it gives none, or one with variables."""
    if of_group and "%" not in of_group:
        return of_group
    stored = state.nodes.find(node)
    return stored.record.address if stored is not None else ""


def is_listed(record: InstanceRecord, now: dt.datetime) -> bool:
    """Whether a list has this instance: each that lives, and one that has ended for a moment."""
    if live(record.state):
        return True
    ended = record.end_received_at or record.ended_at
    return ended is not None and now - ended < LISTED[STATES[record.state]]
