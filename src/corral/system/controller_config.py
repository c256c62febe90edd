"""Every key of the controller's configuration: its kind, its default, and a line of description."""

from __future__ import annotations

import pathlib
from typing import Annotated

from msgspec import Meta

from corral.system import config_values as kind
from corral.system.addresses import MAX_PORT, Address, parse_address
from corral.system.config_sections import (
    LogSection,
    ModuleHostSection,
    Section,
    ShutdownSection,
    contradiction,
    described,
)
from corral.system.http_config import HttpSection, check_http
from corral.system.oidc_config import OidcSection, check_oidc


class GrpcSection(Section, frozen=True, kw_only=True):
    listen: Annotated[kind.Listen, described("Address that daemons connect to.")] = "127.0.0.1:8481"
    advertise: Annotated[
        kind.OptionalAddress, described("HOST:PORT that daemons shall use; empty: as listened.")
    ] = ""
    connections: Annotated[
        kind.Limit, described("Connections in all; at most a quarter of the file descriptors. 0: no limit.")
    ] = 8192
    connections_per_address: Annotated[
        kind.Limit, described("Connections of one address, or IPv6 /64; a node has up to four. 0: no limit.")
    ] = 512
    handshake_seconds: Annotated[
        kind.Seconds, described("How long a peer may take for its handshake, here and for join tokens.")
    ] = 10


class BootstrapSection(Section, frozen=True, kw_only=True):
    enabled: Annotated[bool, described("Whether new nodes may exchange a join token here.")] = True
    listen: Annotated[
        kind.OptionalListen, described("Address for join tokens alone; empty: the gRPC port + 1.")
    ] = ""
    rate_per_minute: Annotated[kind.Count, described("Exchanges a single peer may try in a minute.")] = 30
    connections: Annotated[kind.Limit, described("Connections in all; 0: no limit.")] = 256
    connections_per_address: Annotated[
        kind.Limit, described("Connections of one address, or IPv6 /64; 0: no limit.")
    ] = 32


class StoreSection(Section, frozen=True, kw_only=True):
    url: Annotated[
        kind.StoreUrl, described("Where state lives: sqlite (DATA/corral.db) or postgresql://….")
    ] = "sqlite"
    commit_wait_seconds: Annotated[
        kind.Seconds, described("How long a write may wait to be durable before it is refused.")
    ] = 5


class GroupsSection(Section, frozen=True, kw_only=True):
    directory: Annotated[
        kind.OptionalPath,
        described("Directory of group documents that are loaded at start and on reload; only with SQLite."),
    ] = ""


class LeaseSection(Section, frozen=True, kw_only=True):
    ttl_seconds: Annotated[kind.Seconds, described("How long leadership lasts without renewal.")] = 15
    renew_seconds: Annotated[kind.Seconds, described("How often the leader renews its lease.")] = 3
    margin_seconds: Annotated[kind.Seconds, described("How early a leader stops trusting its lease.")] = 3


class LinkSection(Section, frozen=True, kw_only=True):
    heartbeat_seconds: Annotated[kind.Seconds, described("How often each node is pinged.")] = 30
    handshake_timeout_seconds: Annotated[
        kind.Seconds, described("How long a new stream may take to introduce itself.")
    ] = 10
    missed_pongs: Annotated[kind.Count, described("Pings without answer until a node is UNREACHABLE.")] = 3


class PkiSection(Section, frozen=True, kw_only=True):
    cluster_key_file: Annotated[
        kind.OptionalPath, described("Key that seals the authority; empty: DATA/ca/cluster.key.")
    ] = ""
    node_certificate_days: Annotated[kind.Days, described("Life of a node's certificate.")] = 30


class ControllerLogSection(LogSection, frozen=True, kw_only=True):
    ring_records: Annotated[kind.Count, described("Log records kept in memory for the API.")] = 10_000


class MetricsSection(Section, frozen=True, kw_only=True):
    scrape_networks: Annotated[
        kind.Networks, described("Networks that may read /metrics without a token.")
    ] = ()


class RetentionSection(Section, frozen=True, kw_only=True):
    events: Annotated[kind.Count, described("Events kept; older ones are dropped.")] = 100_000
    module_events_percent: Annotated[
        int, Meta(ge=1, le=100), described("Of these, how many may be events that modules published.")
    ] = 20
    module_event_bytes: Annotated[
        kind.Bytes, described("And how much data these may have; the oldest of them are dropped.")
    ] = 67_108_864
    audit: Annotated[kind.Count, described("Audit entries kept at most.")] = 1_000_000
    audit_days: Annotated[
        int,
        Meta(ge=1, le=36_500),
        described("How many days audit entries are kept; older ones go once a day."),
    ] = 365
    node_log: Annotated[kind.Count, described("Log records kept of each node.")] = 10_000


class ReconcileSection(Section, frozen=True, kw_only=True):
    observe_seconds: Annotated[
        kind.Seconds, described("How long a new leader waits for the known nodes before it starts anything.")
    ] = 15
    floor_seconds: Annotated[
        kind.Seconds, described("How often every group is looked at though nothing has happened.")
    ] = 30
    offline_after_seconds: Annotated[
        kind.Seconds, described("How long after the end of its stream a node's instances become OFFLINE.")
    ] = 5
    resend_seconds: Annotated[
        kind.Seconds, described("First pause before an order without an answer is sent again; doubles.")
    ] = 5


class PlacementSection(Section, frozen=True, kw_only=True):
    cpu_overcommit: Annotated[
        float,
        Meta(ge=0.1, le=100),
        described("How many times a node's CPUs may be reserved by instances on it."),
    ] = 1.0
    wait_reconnect_seconds: Annotated[
        kind.Seconds,
        described(
            "How long a start waits for the only node that fits, when that has just lost its connection."
        ),
    ] = 30


class TemplatesSection(Section, frozen=True, kw_only=True):
    max_bytes: Annotated[kind.Bytes, described("Largest tree of one version, unpacked.")] = 8_589_934_592
    max_files: Annotated[kind.Count, described("Most files of one version.")] = 100_000
    keep_versions: Annotated[
        int, Meta(ge=1, le=1000), described("Versions kept of each template; those in use stay beside them.")
    ] = 20
    collect_after_seconds: Annotated[
        kind.Seconds, described("How long contents that nothing names any more stay in the store.")
    ] = 3600


class FilesSection(Section, frozen=True, kw_only=True):
    max_bytes: Annotated[kind.Bytes, described("Largest file of an instance that is sent or taken.")] = (
        4_294_967_296
    )
    max_unpacked_bytes: Annotated[
        kind.Bytes,
        described("Most bytes of a directory that is downloaded, or of an archive that is unpacked."),
    ] = 8_589_934_592
    max_entries: Annotated[
        int, Meta(ge=1, le=100_000), described("Most files and directories of the same.")
    ] = 100_000


class WorkloadSection(Section, frozen=True, kw_only=True):
    token_seconds: Annotated[
        kind.Seconds, described("How long an instance's token holds before it must be renewed.")
    ] = 3600


class KeyValueSection(Section, frozen=True, kw_only=True):
    url: Annotated[
        str, Meta(max_length=2048), described("valkey:// or redis:// for key-value data; empty: the store.")
    ] = ""


class ModulesSection(ModuleHostSection, frozen=True, kw_only=True):
    key_value: KeyValueSection = KeyValueSection()


class InstanceRetentionSection(Section, frozen=True, kw_only=True):
    ended_seconds: Annotated[kind.Seconds, described("How long records of ended instances stay.")] = 86_400
    ended_per_group: Annotated[int, Meta(ge=1, le=10_000), described("How many of them a group keeps.")] = 20
    crashes: Annotated[int, Meta(ge=1, le=100_000), described("How many crashes are kept.")] = 1000
    decisions_per_subject: Annotated[
        int, Meta(ge=1, le=100_000), described("How many decisions are kept about each instance and group.")
    ] = 100
    commands_per_instance: Annotated[
        int,
        Meta(ge=1, le=100_000),
        described("How many of the lines that were sent to each instance are kept, with who sent them."),
    ] = 1000
    development: Annotated[
        bool, described("The node here runs instances as this controller's user, as 'corral up' does.")
    ] = False


class ControllerConfig(Section, frozen=True, kw_only=True):
    """The configuration of a controller. Construct it through `load_controller`, which checks."""

    data: Annotated[kind.Directory, described("Directory of everything the controller keeps.")] = (
        pathlib.Path("/var/lib/corral/controller")
    )
    http: HttpSection = HttpSection()
    grpc: GrpcSection = GrpcSection()
    bootstrap: BootstrapSection = BootstrapSection()
    store: StoreSection = StoreSection()
    groups: GroupsSection = GroupsSection()
    lease: LeaseSection = LeaseSection()
    link: LinkSection = LinkSection()
    pki: PkiSection = PkiSection()
    log: ControllerLogSection = ControllerLogSection()
    metrics: MetricsSection = MetricsSection()
    retention: RetentionSection = RetentionSection()
    reconcile: ReconcileSection = ReconcileSection()
    placement: PlacementSection = PlacementSection()
    instances: InstanceRetentionSection = InstanceRetentionSection()
    templates: TemplatesSection = TemplatesSection()
    files: FilesSection = FilesSection()
    workload: WorkloadSection = WorkloadSection()
    modules: ModulesSection = ModulesSection()
    oidc: OidcSection = OidcSection()
    shutdown: ShutdownSection = ShutdownSection()

    @property
    def cluster_key_path(self) -> pathlib.Path:
        given = self.pki.cluster_key_file
        return pathlib.Path(given) if given else self.data / "ca" / "cluster.key"

    @property
    def authority_path(self) -> pathlib.Path:
        """The certificate of the cluster's authority, for those who have to trust it; written with http.tls.mode
        cluster."""
        return self.data / "ca" / "authority.pem"

    @property
    def bootstrap_address(self) -> Address:
        """Where join tokens are exchanged; a free port when gRPC itself takes a free one."""
        if self.bootstrap.listen:
            return parse_address(self.bootstrap.listen, any_port=True)
        host, port = parse_address(self.grpc.listen, any_port=True)
        return Address(host, port + 1 if port else 0)


def check_controller(config: ControllerConfig) -> None:
    """Refuse values that are fine alone and wrong together."""
    lease = config.lease
    if lease.renew_seconds + lease.margin_seconds >= lease.ttl_seconds:
        raise contradiction(
            "lease.ttl_seconds",
            f"lease.renew_seconds ({lease.renew_seconds:g}) and lease.margin_seconds "
            f"({lease.margin_seconds:g}) leave nothing of lease.ttl_seconds ({lease.ttl_seconds:g})",
            "raise lease.ttl_seconds above their sum",
        )
    if not config.bootstrap.listen and parse_address(config.grpc.listen, any_port=True).port == MAX_PORT:
        raise contradiction(
            "bootstrap.listen",
            f"grpc.listen uses port {MAX_PORT}, so there is no port + 1 for join tokens",
            "set bootstrap.listen, or use a lower gRPC port",
        )
    if config.groups.directory and config.store.url != "sqlite":
        raise contradiction(
            "groups.directory",
            "groups.directory (--groups) is only for a store on SQLite: of several controllers on PostgreSQL each would "
            "have files of its own",
            "leave it out, and use 'corral apply -f DIR'",
        )
    check_http(config.http)
    check_oidc(config.oidc, public_url=config.http.public_url)
    _check_distinct_ports(config)


def _check_distinct_ports(config: ControllerConfig) -> None:
    listeners = {"http.listen": config.http.listen, "grpc.listen": config.grpc.listen}
    if config.bootstrap.enabled:
        listeners["bootstrap.listen"] = str(config.bootstrap_address)
    taken: dict[str, str] = {}
    for key, address in listeners.items():
        if not address.endswith(":0") and address in taken:
            raise contradiction(key, f"{key} and {taken[address]} are both {address}", "use two ports")
        taken[address] = key
