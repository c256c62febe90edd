"""Every key of the daemon's configuration: its kind, its default, and a line of description."""

from __future__ import annotations

import pathlib
from typing import Annotated, Final

from msgspec import Meta

from corral.domain.ids import NodeId
from corral.system import config_values as kind
from corral.system.config_sections import (
    LogSection,
    ModuleHostSection,
    Section,
    ShutdownSection,
    contradiction,
    described,
)


class NodeModulesSection(ModuleHostSection, frozen=True, kw_only=True):
    node_sync_timeout_seconds: Annotated[
        kind.Seconds,
        described(
            "How long starts wait for the node's modules to be as the controller wants them; at most half of "
            "what a start has left of its time."
        ),
    ] = 10
    hook_budget_seconds: Annotated[
        kind.Seconds,
        described(
            "What all modules together may take of one start, or of one stop; of a start at most half of what "
            "it has left then."
        ),
    ] = 5


class NodeSection(Section, frozen=True, kw_only=True):
    id: Annotated[kind.OptionalNodeId, described("Id of this node; empty: the host name made valid.")] = ""
    labels: Annotated[kind.Labels, described("Labels that groups may select this node by.")] = {}  # noqa: RUF012  # msgspec copies it
    advertise: Annotated[kind.OptionalHost, described("Host players reach instances at; empty: guessed.")] = (
        ""
    )
    machine_id: Annotated[
        str, Meta(max_length=128), described("Id of this machine; empty: that of /etc/machine-id.")
    ] = ""


class DaemonLinkSection(Section, frozen=True, kw_only=True):
    handshake_timeout_seconds: Annotated[
        kind.Seconds, described("How long the controller may take to answer the handshake.")
    ] = 10
    reconnect_max_seconds: Annotated[kind.Seconds, described("Longest pause between two attempts.")] = 15
    status_seconds: Annotated[kind.Seconds, described("How often load is reported.")] = 5


class SpoolSection(Section, frozen=True, kw_only=True):
    log_bytes: Annotated[kind.Bytes, described("Log records kept on disk while the link is down.")] = (
        16_777_216
    )
    max_bytes: Annotated[kind.Bytes, described("All that is kept on disk while the link is down.")] = (
        268_435_456
    )


class InstancesSection(Section, frozen=True, kw_only=True):
    run_as: Annotated[
        str,
        Meta(max_length=64),
        described("User of workloads whose group names none, when the daemon is root."),
    ] = "corral-run"
    allowed_users: Annotated[
        tuple[str, ...],
        described(
            "Accounts that a group may name in `run_as`, beside `instances.run_as`; root needs `allow_root`."
        ),
    ] = ()
    allowed_groups: Annotated[
        tuple[str, ...],
        described("Supplementary groups that workloads keep, where their account is in them; empty: none."),
    ] = ()
    allow_root: Annotated[bool, described("Let a group say `run_as: root`.")] = False
    development: Annotated[
        bool, described("Run workloads as the daemon's own user, root included; what `corral up` does.")
    ] = False
    first_uid: Annotated[
        int, Meta(ge=1, le=4_294_967_293), described("First user id of instances with one of their own.")
    ] = 1_900_000_000
    last_uid: Annotated[
        int, Meta(ge=1, le=4_294_967_293), described("Last user id of instances with one of their own.")
    ] = 1_900_065_535
    cgroups: Annotated[str, described("Control groups: auto, systemd, v2, v1 or none.")] = "auto"
    cgroup_root: Annotated[
        str, Meta(max_length=4096), described("Path within the hierarchy; empty: `corral` at its top.")
    ] = ""
    spare_shims: Annotated[
        int,
        Meta(ge=0, le=64),
        described(
            "Supervising processes forked ahead of the next starts; not with systemd's groups or none."
        ),
    ] = 2
    console_segment_bytes: Annotated[kind.Bytes, described("Size of a console segment.")] = 67_108_864
    keep_ended_seconds: Annotated[
        int, Meta(ge=1, le=31_536_000), described("How long console and exit record of an ended run stay.")
    ] = 604_800
    keep_ended_bytes: Annotated[
        kind.Bytes, described("How much the consoles of ended runs may take in all.")
    ] = 4_294_967_296


class CacheSection(Section, frozen=True, kw_only=True):
    quota_bytes: Annotated[
        kind.Bytes,
        described("What templates, artifacts and first-run results may take; oldest used go first."),
    ] = 21_474_836_480
    warm_trees: Annotated[
        int, Meta(ge=0, le=64), described("Prepared directories kept ahead of the next start of a plan.")
    ] = 1


class DownloadsSection(Section, frozen=True, kw_only=True):
    allow_hosts: Annotated[
        tuple[str, ...],
        described("Hosts artifacts may come from, `*.example.org` included; empty: any public one."),
    ] = ()
    allow_private: Annotated[
        bool, described("Also from loopback, link-local and private addresses; for development.")
    ] = False
    timeout_seconds: Annotated[kind.Seconds, described("Longest silence of a server during a download.")] = 30
    max_bytes: Annotated[kind.Bytes, described("Largest artifact.")] = 8_589_934_592
    attempts: Annotated[
        int, Meta(ge=1, le=20), described("How often a broken download is taken up again.")
    ] = 4


class JavaSection(Section, frozen=True, kw_only=True):
    path: Annotated[
        kind.OptionalPath, described("The `java` for groups that name none; empty: the one on PATH.")
    ] = ""


class DiskSection(Section, frozen=True, kw_only=True):
    reserve_mb: Annotated[
        int, Meta(ge=0, le=1_073_741_824), described("Free space that no preparation may touch.")
    ] = 256


class DaemonConfig(Section, frozen=True, kw_only=True):
    """The configuration of a daemon. Construct it through `load_daemon`, which checks."""

    data: Annotated[kind.Directory, described("Directory of everything the daemon keeps.")] = pathlib.Path(
        "/var/lib/corral/daemon"
    )
    controllers: Annotated[kind.Addresses, described("HOST:PORT of each controller's gRPC address.")] = ()
    node: NodeSection = NodeSection()
    link: DaemonLinkSection = DaemonLinkSection()
    spool: SpoolSection = SpoolSection()
    instances: InstancesSection = InstancesSection()
    cache: CacheSection = CacheSection()
    downloads: DownloadsSection = DownloadsSection()
    java: JavaSection = JavaSection()
    modules: NodeModulesSection = NodeModulesSection()
    disk: DiskSection = DiskSection()
    log: LogSection = LogSection()
    shutdown: ShutdownSection = ShutdownSection()

    def node_id(self, *, host_name: str) -> NodeId:
        """The id to enrol under: the one that was set, or one made of the host's name."""
        return NodeId(self.node.id) if self.node.id else node_id_of_host(host_name)


_NODE_ID_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")


def node_id_of_host(host_name: str) -> NodeId:
    """A valid node id as near to the host's name as the rules allow."""
    first = host_name.split(".")[0].lower()
    mapped = "".join(letter if letter in _NODE_ID_LETTERS else "-" for letter in first)
    return NodeId(mapped[:63].strip("._-") or "node")


def check_daemon(config: DaemonConfig) -> None:
    """Refuse values that are fine alone and wrong together."""
    instances = config.instances
    if instances.first_uid > instances.last_uid:
        raise contradiction(
            "instances.last_uid",
            f"instances.first_uid ({instances.first_uid}) is above instances.last_uid ({instances.last_uid})",
            "the first one is the lower one",
        )
    if config.spool.log_bytes > config.spool.max_bytes:
        raise contradiction(
            "spool.log_bytes",
            f"spool.log_bytes ({config.spool.log_bytes}) is more than spool.max_bytes "
            f"({config.spool.max_bytes})",
            "the log is a part of the spool; lower it",
        )
