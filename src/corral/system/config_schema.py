"""Every key of both configurations: its kind, its default, and one line that says what it does."""

from __future__ import annotations

import pathlib
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from corral.domain.ids import NodeId
from corral.errors import Code, Rejected
from corral.system import config_values as kind
from corral.system.addresses import MAX_PORT, Address, parse_address


def _says(description: str) -> Meta:
    return Meta(description=description)


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of keys; frozen, so that a running process never sees half a change."""


class CorsSection(Section, frozen=True, kw_only=True):
    origins: Annotated[kind.Origins, _says("Origins that browsers may call the API from.")] = ()


class HttpLimitsSection(Section, frozen=True, kw_only=True):
    connections: Annotated[
        kind.Limit, _says("Connections in all; at most half of the process's file descriptors. 0: no limit.")
    ] = 4096
    connections_per_address: Annotated[
        kind.Limit, _says("Connections of one address, or IPv6 /64; the host itself may have half of all.")
    ] = 256
    head_seconds: Annotated[kind.Seconds, _says("How long a caller may take for the head of a request.")] = 10
    idle_seconds: Annotated[
        kind.Seconds, _says("How long a connection is kept between requests, and an answered body read on.")
    ] = 30
    stall_seconds: Annotated[
        kind.Seconds, _says("How long a caller may take nothing of an answer that waits for it.")
    ] = 120
    body_pause_seconds: Annotated[
        kind.Seconds, _says("How long a body may pause that comes with less than 1 KiB a second.")
    ] = 5
    requests_per_second: Annotated[
        kind.Limit, _says("Requests of one token, once its burst is used up; 0: no limit.")
    ] = 50
    burst: Annotated[kind.Count, _says("Requests of one token at once.")] = 200
    streams: Annotated[
        kind.Limit, _says("Streams, sockets, downloads and waits that one token has open; 0: no limit.")
    ] = 50
    all_streams: Annotated[kind.Count, _says("The same, of all tokens.")] = 2000
    tickets: Annotated[kind.Limit, _says("Tickets of one token that are not used yet; 0: no limit.")] = 20
    uploads: Annotated[kind.Limit, _says("Uploads that one token sends at once; 0: no limit.")] = 5
    all_uploads: Annotated[kind.Count, _says("The same, of all tokens.")] = 200


class HttpSection(Section, frozen=True, kw_only=True):
    listen: Annotated[kind.Listen, _says("Address of the API; port 0 picks a free one.")] = "127.0.0.1:8480"
    advertise: Annotated[
        kind.OptionalAddress, _says("HOST:PORT others reach the API at; empty: as listened.")
    ] = ""
    body_limit_bytes: Annotated[kind.Bytes, _says("Largest request body that is read.")] = 1_048_576
    cors: CorsSection = CorsSection()
    limits: HttpLimitsSection = HttpLimitsSection()


class GrpcSection(Section, frozen=True, kw_only=True):
    listen: Annotated[kind.Listen, _says("Address that daemons connect to.")] = "127.0.0.1:8481"
    advertise: Annotated[
        kind.OptionalAddress, _says("HOST:PORT daemons are told to use; empty: as listened.")
    ] = ""
    connections: Annotated[
        kind.Limit, _says("Connections in all; at most a quarter of the file descriptors. 0: no limit.")
    ] = 8192
    connections_per_address: Annotated[
        kind.Limit, _says("Connections of one address, or IPv6 /64; a node has up to four. 0: no limit.")
    ] = 512
    handshake_seconds: Annotated[
        kind.Seconds, _says("How long a peer may take for its handshake, here and for join tokens.")
    ] = 10


class BootstrapSection(Section, frozen=True, kw_only=True):
    enabled: Annotated[bool, _says("Whether new nodes may exchange a join token here.")] = True
    listen: Annotated[
        kind.OptionalListen, _says("Address for join tokens alone; empty: the gRPC port + 1.")
    ] = ""
    rate_per_minute: Annotated[kind.Count, _says("Exchanges a single peer may try in a minute.")] = 30
    connections: Annotated[kind.Limit, _says("Connections in all; 0: no limit.")] = 256
    connections_per_address: Annotated[
        kind.Limit, _says("Connections of one address, or IPv6 /64; 0: no limit.")
    ] = 32


class StoreSection(Section, frozen=True, kw_only=True):
    url: Annotated[kind.StoreUrl, _says("Where state lives: sqlite (DATA/corral.db) or postgresql://….")] = (
        "sqlite"
    )
    commit_wait_seconds: Annotated[
        kind.Seconds, _says("How long a write may wait to be durable before it is refused.")
    ] = 5


class LeaseSection(Section, frozen=True, kw_only=True):
    ttl_seconds: Annotated[kind.Seconds, _says("How long leadership lasts without renewal.")] = 15
    renew_seconds: Annotated[kind.Seconds, _says("How often the leader renews its lease.")] = 3
    margin_seconds: Annotated[kind.Seconds, _says("How early a leader stops trusting its lease.")] = 3


class LinkSection(Section, frozen=True, kw_only=True):
    heartbeat_seconds: Annotated[kind.Seconds, _says("How often each node is pinged.")] = 30
    handshake_timeout_seconds: Annotated[
        kind.Seconds, _says("How long a new stream may take to introduce itself.")
    ] = 10
    missed_pongs: Annotated[kind.Count, _says("Pings without answer until a node is UNREACHABLE.")] = 3


class PkiSection(Section, frozen=True, kw_only=True):
    cluster_key_file: Annotated[
        kind.OptionalPath, _says("Key that seals the authority; empty: DATA/ca/cluster.key.")
    ] = ""
    node_certificate_days: Annotated[kind.Days, _says("Life of a node's certificate.")] = 30


class LogSection(Section, frozen=True, kw_only=True):
    level: Annotated[kind.LogLevel, _says("TRACE, DEBUG, INFO, WARN or ERROR.")] = "INFO"
    format: Annotated[kind.LogFormat, _says("What stderr gets: human or json.")] = "human"


class ControllerLogSection(LogSection, frozen=True, kw_only=True):
    ring_records: Annotated[kind.Count, _says("Log records kept in memory for the API.")] = 10_000


class MetricsSection(Section, frozen=True, kw_only=True):
    scrape_networks: Annotated[kind.Networks, _says("Networks that may read /metrics without a token.")] = ()


class RetentionSection(Section, frozen=True, kw_only=True):
    events: Annotated[kind.Count, _says("Events kept; older ones are dropped.")] = 100_000
    module_events_percent: Annotated[
        int, Meta(ge=1, le=100), _says("Of these, how many may be events that modules published.")
    ] = 20
    module_event_bytes: Annotated[
        kind.Bytes, _says("And how much data these may have; the oldest of them are dropped.")
    ] = 67_108_864
    audit: Annotated[kind.Count, _says("Audit entries kept.")] = 100_000
    node_log: Annotated[kind.Count, _says("Log records kept of each node.")] = 10_000


class ShutdownSection(Section, frozen=True, kw_only=True):
    budget_seconds: Annotated[kind.Seconds, _says("How long an orderly end may take in all.")] = 10


class ReconcileSection(Section, frozen=True, kw_only=True):
    observe_seconds: Annotated[
        kind.Seconds, _says("How long a new leader waits for the known nodes before it starts anything.")
    ] = 15
    floor_seconds: Annotated[
        kind.Seconds, _says("How often every group is looked at though nothing has happened.")
    ] = 30
    offline_after_seconds: Annotated[
        kind.Seconds, _says("How long after the end of its stream a node's instances become OFFLINE.")
    ] = 5
    resend_seconds: Annotated[
        kind.Seconds, _says("First pause before an order without an answer is sent again; doubles.")
    ] = 5


class TemplatesSection(Section, frozen=True, kw_only=True):
    max_bytes: Annotated[kind.Bytes, _says("Largest tree of one version, unpacked.")] = 8_589_934_592
    max_files: Annotated[kind.Count, _says("Most files of one version.")] = 100_000
    keep_versions: Annotated[
        int, Meta(ge=1, le=1000), _says("Versions kept of each template; those in use stay beside them.")
    ] = 20
    collect_after_seconds: Annotated[
        kind.Seconds, _says("How long contents that nothing names any more stay in the store.")
    ] = 3600


class WorkloadSection(Section, frozen=True, kw_only=True):
    token_seconds: Annotated[
        kind.Seconds, _says("How long an instance's token holds before it must be renewed.")
    ] = 3600


class RekorSection(Section, frozen=True, kw_only=True):
    policy: Annotated[
        str, _says("require-set: a bundle must carry a signed log entry; disabled: it need not.")
    ] = "require-set"
    public_key: Annotated[kind.OptionalPath, _says("PEM file of the transparency log's public key.")] = ""


class SigningSection(Section, frozen=True, kw_only=True):
    required: Annotated[bool, _says("Refuse modules without a good signature.")] = False
    mode: Annotated[str, _says("cosign-bundle, or keyed.")] = "cosign-bundle"
    trust_root: Annotated[
        kind.OptionalPath,
        _says("PEM certificates, PEM public keys, or a Sigstore trusted_root.json."),
    ] = ""
    identities: Annotated[
        tuple[str, ...],
        _says("Accepted signers: NAME, or NAME issuer=URL, as in their certificates; empty: any."),
    ] = ()
    allow_legacy_sig: Annotated[bool, _says("cosign-bundle mode: also accept a `.sig`, with a warning.")] = (
        True
    )
    rekor: RekorSection = RekorSection()


class ActivationSection(Section, frozen=True, kw_only=True):
    wait_timeout_seconds: Annotated[
        int, Meta(ge=0, le=86_400), _says("How long a module may wait for capabilities; 0: for ever.")
    ] = 0


class KeyValueSection(Section, frozen=True, kw_only=True):
    url: Annotated[
        str, Meta(max_length=2048), _says("valkey:// or redis:// for key-value data; empty: the store.")
    ] = ""


class ModuleHostSection(Section, frozen=True, kw_only=True):
    """What the module engine goes by, on either host."""

    enabled: Annotated[
        bool, _says("Whether modules run here at all; `--no-modules` says no. Everything else goes on.")
    ] = True
    memory_mb: Annotated[int, Meta(ge=32, le=1_048_576), _says("Memory of a module that names none.")] = 256
    max_processes: Annotated[
        int, Meta(ge=1, le=100_000), _says("Processes and threads of a module that names none.")
    ] = 64
    run_as: Annotated[
        str, Meta(max_length=64), _says("User of module processes, when the host is root; empty: its own.")
    ] = ""
    max_archive_bytes: Annotated[kind.Bytes, _says("Largest module archive.")] = 1_073_741_824
    load_timeout_seconds: Annotated[kind.Seconds, _says("How long import and construction may take.")] = 15
    leak_grace_seconds: Annotated[kind.Seconds, _says("How long an unloaded module may take to end.")] = 10
    health_check_seconds: Annotated[
        float,
        Meta(gt=0, le=3600),
        _says("How often a running module is asked for its health; three times late in a row, it is FAILED."),
    ] = 30
    deaths_before_failed: Annotated[
        int, Meta(ge=0, le=100), _says("Deaths of its process within ten minutes that are mended.")
    ] = 3
    events_per_second: Annotated[
        int, Meta(ge=1, le=100_000), _says("Events that one module may publish; faster ones wait.")
    ] = 200
    activation: ActivationSection = ActivationSection()
    signing: SigningSection = SigningSection()


class ModulesSection(ModuleHostSection, frozen=True, kw_only=True):
    key_value: KeyValueSection = KeyValueSection()


class NodeModulesSection(ModuleHostSection, frozen=True, kw_only=True):
    node_sync_timeout_seconds: Annotated[
        kind.Seconds,
        _says(
            "How long starts wait for the node's modules to be as the controller wants them; at most half of "
            "what a start has left of its time."
        ),
    ] = 10
    hook_budget_seconds: Annotated[
        kind.Seconds,
        _says(
            "What all modules together may take of one start, or of one stop; of a start at most half of what "
            "it has left then."
        ),
    ] = 5


class InstanceRetentionSection(Section, frozen=True, kw_only=True):
    ended_seconds: Annotated[kind.Seconds, _says("How long records of ended instances stay.")] = 86_400
    ended_per_group: Annotated[int, Meta(ge=1, le=10_000), _says("How many of them a group keeps.")] = 20
    crashes: Annotated[int, Meta(ge=1, le=100_000), _says("How many crashes are kept.")] = 1000
    decisions_per_subject: Annotated[
        int, Meta(ge=1, le=100_000), _says("How many decisions are kept about each instance and group.")
    ] = 100
    development: Annotated[
        bool, _says("The node here runs instances as this controller's user, as 'corral up' does.")
    ] = False


class ControllerConfig(Section, frozen=True, kw_only=True):
    """What a controller was told. Construct it through `load_controller`, which checks."""

    data: Annotated[kind.Directory, _says("Directory of everything the controller keeps.")] = pathlib.Path(
        "/var/lib/corral/controller"
    )
    http: HttpSection = HttpSection()
    grpc: GrpcSection = GrpcSection()
    bootstrap: BootstrapSection = BootstrapSection()
    store: StoreSection = StoreSection()
    lease: LeaseSection = LeaseSection()
    link: LinkSection = LinkSection()
    pki: PkiSection = PkiSection()
    log: ControllerLogSection = ControllerLogSection()
    metrics: MetricsSection = MetricsSection()
    retention: RetentionSection = RetentionSection()
    reconcile: ReconcileSection = ReconcileSection()
    instances: InstanceRetentionSection = InstanceRetentionSection()
    templates: TemplatesSection = TemplatesSection()
    workload: WorkloadSection = WorkloadSection()
    modules: ModulesSection = ModulesSection()
    shutdown: ShutdownSection = ShutdownSection()

    @property
    def cluster_key_path(self) -> pathlib.Path:
        given = self.pki.cluster_key_file
        return pathlib.Path(given) if given else self.data / "ca" / "cluster.key"

    @property
    def bootstrap_address(self) -> Address:
        """Where join tokens are exchanged; a free port when gRPC itself takes a free one."""
        if self.bootstrap.listen:
            return parse_address(self.bootstrap.listen, any_port=True)
        host, port = parse_address(self.grpc.listen, any_port=True)
        return Address(host, port + 1 if port else 0)


class NodeSection(Section, frozen=True, kw_only=True):
    id: Annotated[kind.OptionalNodeId, _says("Id of this node; empty: the host name made valid.")] = ""
    labels: Annotated[kind.Labels, _says("Labels that groups may select this node by.")] = {}
    advertise: Annotated[kind.OptionalHost, _says("Host players reach instances at; empty: guessed.")] = ""
    machine_id: Annotated[
        str, Meta(max_length=128), _says("Id of this machine; empty: that of /etc/machine-id.")
    ] = ""


class DaemonLinkSection(Section, frozen=True, kw_only=True):
    handshake_timeout_seconds: Annotated[
        kind.Seconds, _says("How long the controller may take to answer the handshake.")
    ] = 10
    reconnect_max_seconds: Annotated[kind.Seconds, _says("Longest pause between two attempts.")] = 15
    status_seconds: Annotated[kind.Seconds, _says("How often load is reported.")] = 5


class SpoolSection(Section, frozen=True, kw_only=True):
    log_bytes: Annotated[kind.Bytes, _says("Log records kept on disk while the link is down.")] = 16_777_216
    max_bytes: Annotated[kind.Bytes, _says("All that is kept on disk while the link is down.")] = 268_435_456


class InstancesSection(Section, frozen=True, kw_only=True):
    run_as: Annotated[
        str, Meta(max_length=64), _says("User of workloads whose group names none, when the daemon is root.")
    ] = "corral-run"
    allowed_users: Annotated[
        tuple[str, ...],
        _says(
            "Accounts that a group may name in `run_as`, beside `instances.run_as`; root needs `allow_root`."
        ),
    ] = ()
    allowed_groups: Annotated[
        tuple[str, ...],
        _says("Supplementary groups that workloads keep, where their account is in them; empty: none."),
    ] = ()
    allow_root: Annotated[bool, _says("Let a group say `run_as: root`.")] = False
    development: Annotated[
        bool, _says("Run workloads as the daemon's own user, root included; what `corral up` does.")
    ] = False
    first_uid: Annotated[
        int, Meta(ge=1, le=4_294_967_293), _says("First user id of instances with one of their own.")
    ] = 1_900_000_000
    last_uid: Annotated[
        int, Meta(ge=1, le=4_294_967_293), _says("Last user id of instances with one of their own.")
    ] = 1_900_065_535
    cgroups: Annotated[str, _says("Control groups: auto, systemd, v2, v1 or none.")] = "auto"
    cgroup_root: Annotated[
        str, Meta(max_length=4096), _says("Path within the hierarchy; empty: `corral` at its top.")
    ] = ""
    console_segment_bytes: Annotated[kind.Bytes, _says("Size of a console segment.")] = 67_108_864
    keep_ended_seconds: Annotated[
        int, Meta(ge=1, le=31_536_000), _says("How long console and exit record of an ended run stay.")
    ] = 604_800
    keep_ended_bytes: Annotated[kind.Bytes, _says("How much the consoles of ended runs may take in all.")] = (
        4_294_967_296
    )


class CacheSection(Section, frozen=True, kw_only=True):
    quota_bytes: Annotated[
        kind.Bytes, _says("What templates, artifacts and first-run results may take; oldest used go first.")
    ] = 21_474_836_480
    warm_trees: Annotated[
        int, Meta(ge=0, le=64), _says("Prepared directories kept ahead of the next start of a plan.")
    ] = 1


class DownloadsSection(Section, frozen=True, kw_only=True):
    allow_hosts: Annotated[
        tuple[str, ...],
        _says("Hosts artifacts may come from, `*.example.org` included; empty: any public one."),
    ] = ()
    allow_private: Annotated[
        bool, _says("Also from loopback, link-local and private addresses; for development.")
    ] = False
    timeout_seconds: Annotated[kind.Seconds, _says("Longest silence of a server during a download.")] = 30
    max_bytes: Annotated[kind.Bytes, _says("Largest artifact.")] = 8_589_934_592
    attempts: Annotated[int, Meta(ge=1, le=20), _says("How often a broken download is taken up again.")] = 4


class JavaSection(Section, frozen=True, kw_only=True):
    path: Annotated[
        kind.OptionalPath, _says("The `java` for groups that name none; empty: the one on PATH.")
    ] = ""


class DiskSection(Section, frozen=True, kw_only=True):
    reserve_mb: Annotated[
        int, Meta(ge=0, le=1_073_741_824), _says("Free space that no preparation may touch.")
    ] = 256


class DaemonConfig(Section, frozen=True, kw_only=True):
    """What a daemon was told. Construct it through `load_daemon`, which checks."""

    data: Annotated[kind.Directory, _says("Directory of everything the daemon keeps.")] = pathlib.Path(
        "/var/lib/corral/daemon"
    )
    controllers: Annotated[kind.Addresses, _says("HOST:PORT of each controller's gRPC address.")] = ()
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


def check_controller(config: ControllerConfig) -> None:
    """Refuse values that are fine alone and wrong together."""
    lease = config.lease
    if lease.renew_seconds + lease.margin_seconds >= lease.ttl_seconds:
        raise _together(
            "lease.ttl_seconds",
            f"lease.renew_seconds ({lease.renew_seconds:g}) and lease.margin_seconds "
            f"({lease.margin_seconds:g}) leave nothing of lease.ttl_seconds ({lease.ttl_seconds:g})",
            "raise lease.ttl_seconds above their sum",
        )
    if not config.bootstrap.listen and parse_address(config.grpc.listen, any_port=True).port == MAX_PORT:
        raise _together(
            "bootstrap.listen",
            f"grpc.listen uses port {MAX_PORT}, so there is no port + 1 for join tokens",
            "set bootstrap.listen, or use a lower gRPC port",
        )
    _check_distinct_ports(config)


def _check_distinct_ports(config: ControllerConfig) -> None:
    listeners = {"http.listen": config.http.listen, "grpc.listen": config.grpc.listen}
    if config.bootstrap.enabled:
        listeners["bootstrap.listen"] = str(config.bootstrap_address)
    taken: dict[str, str] = {}
    for key, address in listeners.items():
        if not address.endswith(":0") and address in taken:
            raise _together(key, f"{key} and {taken[address]} are both {address}", "use two ports")
        taken[address] = key


def check_daemon(config: DaemonConfig) -> None:
    """Refuse values that are fine alone and wrong together."""
    instances = config.instances
    if instances.first_uid > instances.last_uid:
        raise _together(
            "instances.last_uid",
            f"instances.first_uid ({instances.first_uid}) is above instances.last_uid ({instances.last_uid})",
            "the first one is the lower one",
        )
    if config.spool.log_bytes > config.spool.max_bytes:
        raise _together(
            "spool.log_bytes",
            f"spool.log_bytes ({config.spool.log_bytes}) is more than spool.max_bytes "
            f"({config.spool.max_bytes})",
            "the log is a part of the spool; lower it",
        )


def _together(field: str, message: str, hint: str) -> Rejected:
    return Rejected(Code.INVALID_CONFIG, message, hint=hint, field=field)
