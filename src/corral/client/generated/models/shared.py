"""Structures of `shared`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from corral.client.enums import OpenEnum


class SessionKind(OpenEnum):
    """How a session proves itself with each request."""

    BROWSER = "BROWSER"
    COMMAND_LINE = "COMMAND_LINE"


class Role(OpenEnum):
    """Role."""

    ADMIN = "ADMIN"
    OPERATOR = "OPERATOR"
    VIEWER = "VIEWER"


class AuthenticatedBy(OpenEnum):
    """How the user of a session proved who it is."""

    FIRST_ADMIN = "FIRST_ADMIN"
    OIDC = "OIDC"
    PASSWORD = "PASSWORD"
    RECOVERY_CODE = "RECOVERY_CODE"
    TOTP = "TOTP"


class Permission(OpenEnum):
    """Permission."""

    AUDIT_READ = "audit.read"
    CATALOG_MANAGE = "catalog.manage"
    CATALOG_READ = "catalog.read"
    CLUSTER_MANAGE = "cluster.manage"
    CLUSTER_READ = "cluster.read"
    COMMANDS_EXECUTE = "commands.execute"
    CRASHES_READ = "crashes.read"
    DECISIONS_READ = "decisions.read"
    DEPLOYMENTS_MANAGE = "deployments.manage"
    DEPLOYMENTS_READ = "deployments.read"
    EVENTS_READ = "events.read"
    GROUPS_MANAGE = "groups.manage"
    GROUPS_READ = "groups.read"
    INSTANCES_COMMAND = "instances.command"
    INSTANCES_CONSOLE = "instances.console"
    INSTANCES_FILES = "instances.files"
    INSTANCES_FILES_WRITE = "instances.files.write"
    INSTANCES_MANAGE = "instances.manage"
    INSTANCES_READ = "instances.read"
    INSTANCES_SENSITIVE = "instances.sensitive"
    LOGS_MANAGE = "logs.manage"
    LOGS_READ = "logs.read"
    METRICS_READ = "metrics.read"
    MODULES_MANAGE = "modules.manage"
    MODULES_READ = "modules.read"
    MODULES_USE = "modules.use"
    NODES_DRAIN = "nodes.drain"
    NODES_ENROL = "nodes.enrol"
    NODES_MANAGE = "nodes.manage"
    NODES_READ = "nodes.read"
    NODES_SHUTDOWN = "nodes.shutdown"
    ROLES_MANAGE = "roles.manage"
    ROLES_READ = "roles.read"
    SELF_MANAGE = "self.manage"
    SELF_READ = "self.read"
    SESSIONS_MANAGE = "sessions.manage"
    SESSIONS_READ = "sessions.read"
    SETTINGS_READ = "settings.read"
    TEMPLATES_CONTENT = "templates.content"
    TEMPLATES_MANAGE = "templates.manage"
    TEMPLATES_READ = "templates.read"
    TOKENS_MANAGE = "tokens.manage"
    TOKENS_READ = "tokens.read"
    USERS_MANAGE = "users.manage"
    USERS_READ = "users.read"


class Admission(OpenEnum):
    """Whether the node accepts new instances."""

    CORDONED = "cordoned"
    DRAINED = "drained"
    DRAINING = "draining"
    OPEN = "open"


class NodeState(OpenEnum):
    """Whether the controller can reach the node."""

    DISCONNECTED = "DISCONNECTED"
    ENROLLED = "ENROLLED"
    ONLINE = "ONLINE"
    REVOKED = "REVOKED"
    UNREACHABLE = "UNREACHABLE"


class InstanceState(OpenEnum):
    """Instance state."""

    CRASHED = "CRASHED"
    DRAINING = "DRAINING"
    OFFLINE = "OFFLINE"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    SCHEDULED = "SCHEDULED"
    STARTING = "STARTING"
    STOPPED = "STOPPED"
    STOPPING = "STOPPING"


class FieldEffect(OpenEnum):
    """Field effect."""

    NEXT_START = "next_start"
    NOW = "now"
    RESTART = "restart"


class VariableType(OpenEnum):
    """Variable type."""

    BOOL = "bool"
    ENUM = "enum"
    INT = "int"
    SECRET = "secret"
    STRING = "string"


class PatchOp(OpenEnum):
    """Patch op."""

    REGEX = "regex"
    REPLACE = "replace"
    SET = "set"


class Category(OpenEnum):
    """Category."""

    NONE = ""
    PROXY = "proxy"
    SERVER = "server"


class ConfigFormat(OpenEnum):
    """Config format."""

    NONE = ""
    BUNGEECORD = "bungeecord"
    GEYSER = "geyser"
    PAPER = "paper"
    SPIGOT = "spigot"
    VELOCITY = "velocity"


class ProbeKind(OpenEnum):
    """Probe kind."""

    COMMAND = "command"
    HTTP = "http"
    LISTEN = "listen"
    LOG = "log"
    MINECRAFT = "minecraft"
    TCP = "tcp"
    WORKLOAD = "workload"


class ScalingMode(OpenEnum):
    """What decides about the number of instances."""

    DYNAMIC = "DYNAMIC"
    MANUAL = "MANUAL"
    STATIC = "STATIC"


class UpdateStrategy(OpenEnum):
    """Update strategy."""

    CANARY = "canary"
    ROLLING = "rolling"


class Promotion(OpenEnum):
    """Promotion."""

    AUTO = "auto"
    MANUAL = "manual"


class AutoUpdate(OpenEnum):
    """What makes a deployment by itself when it has changed."""

    CATALOG = "catalog"
    DOCUMENT = "document"
    MODULE = "module"
    TEMPLATE = "template"


class DeploymentState(OpenEnum):
    """Deployment state."""

    CANARY = "CANARY"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    GATE = "GATE"
    PAUSED = "PAUSED"
    PENDING = "PENDING"
    ROLLED_BACK = "ROLLED_BACK"
    ROLLING = "ROLLING"
    ROLLING_BACK = "ROLLING_BACK"
    SUPERSEDED = "SUPERSEDED"


class Wanted(OpenEnum):
    """The desired state of the run, whatever its state."""

    DRAIN = "drain"
    RUN = "run"
    STOP = "stop"


class Drift(OpenEnum):
    """Drift."""

    NONE = "none"
    OUTDATED = "outdated"
    PLACEMENT = "placement"
    UNKNOWN = "unknown"


class DecisionKind(OpenEnum):
    """Decision kind."""

    ADOPT = "adopt"
    DRAIN = "drain"
    PHASE = "phase"
    PLACE = "place"
    PROMOTE = "promote"
    REFUSE = "refuse"
    RESTART = "restart"
    SCALE = "scale"
    SKIP = "skip"
    START = "start"
    STOP = "stop"
    UNDRAIN = "undrain"


class ModulePhase(OpenEnum):
    """Module phase."""

    ACTIVE = "ACTIVE"
    FAILED = "FAILED"
    INSTALLED = "INSTALLED"
    STOPPING = "STOPPING"
    UNLOADED = "UNLOADED"
    WAITING = "WAITING"


class ModuleIntent(OpenEnum):
    """Module intent."""

    ACTIVE = "active"
    INACTIVE = "inactive"
    PAUSED = "paused"


class Token(Struct, frozen=True, kw_only=True):
    """A token without its secret."""

    id: str
    """Id of the token, `tok-…`; it is no secret."""
    name: str
    """What it is called."""
    role: Role
    """What it may do: VIEWER, OPERATOR or ADMIN."""
    owner: str
    """The user whose rights it has, as far as it does not narrow them."""
    permissions: tuple[str, ...] | None
    """Of the permissions of its role, the ones that it has; null: all of them."""
    scope: Scope
    """Where it may do so; what lies outside is not there for it."""
    created_at: str
    """When it was made, in UTC."""
    created_by: str
    """Who made it, for example `token:tok-…`."""
    expires_at: str | None
    """When it stops being valid, in UTC; null: never."""
    last_used_at: str | None
    """When a request last carried it, since this controller leads; null: not since then."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class Scope(Struct, frozen=True, kw_only=True):
    """The groups and nodes for which a role holds. None: all of them; an empty list: none."""

    groups: tuple[str, ...] | None = None
    """Names of groups, with `*` for any characters. Without `nodes` it covers these groups and their instances on any node, and no node itself; null: it names no groups."""
    nodes: tuple[str, ...] | None = None
    """Names of nodes, with `*` for any characters. Without `groups` it covers these nodes and the instances there, and no group itself; null: it names no nodes."""


class ScopeInput(Struct, frozen=True, kw_only=True):
    """The groups and nodes for which a role holds. None: all of them; an empty list: none."""

    groups: Sequence[str] | UnsetType | None = UNSET
    """Names of groups, with `*` for any characters. Without `nodes` it covers these groups and their instances on any node, and no node itself; null: it names no groups."""
    nodes: Sequence[str] | UnsetType | None = UNSET
    """Names of nodes, with `*` for any characters. Without `groups` it covers these nodes and the instances there, and no group itself; null: it names no nodes."""


class NodeSummary(Struct, frozen=True, kw_only=True):
    """A node in a list: its state, whether it takes instances, and its load while it is connected."""

    id: str
    """Id of the node, unique in the cluster."""
    state: NodeState
    """Whether the controller can reach it."""
    state_since: str
    """When it came into this state, in UTC."""
    reason: str
    """Why it is in this state."""
    admission: Admission
    """Whether it takes new instances: `open`, `cordoned`, `draining` or `drained`."""
    admission_reason: str
    """Why it takes none, as given with the change."""
    labels: dict[str, str]
    """Words about the node by key, for `node_labels` of groups and as `%LABEL_KEY%`. At most 64, of 63 characters each and 255 a value."""
    address: str
    """Host name or address at which players reach it."""
    connected: bool
    """Whether it has a session with the controller now; the load of one that has not is 0."""
    memory_mb: int
    """Memory that counts for placement, in MiB."""
    reserved_memory_mb: int
    """Memory of `memory_mb` that is reserved for its instances, in MiB; the rest is free for placement."""
    used_memory_mb: int
    """Memory in use on the whole host, by whatever runs there, in MiB; 0 while it is not connected. No limit of operators concerns it."""
    cpus: int
    """Processor cores that count for placement."""
    cpu_usage: float
    """Share of all cores in use, from 0 to 1."""
    free_disk_mb: int
    """Free space on the disk of its data directory, in MiB."""
    instances: int
    """How many instances it has that have not ended."""
    stray_count: int
    """How many runs it has that nothing proves to be of this cluster."""
    version: str
    """Version of its daemon."""
    last_seen: str | None
    """Time of its last message, in UTC, also after it has gone; null: there was none."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class DryRun(Struct, frozen=True, kw_only=True):
    """What a change would do. `players` are those of the instances, as far as they are known."""

    changes: tuple[GroupChangeShape, ...]
    """What would become of groups, each with its fields."""
    instances: tuple[TouchedInstance, ...]
    """Instances that would be stopped, killed or given up, or would no longer run as their document says."""
    players: int
    """How many players these instances have, as far as it is known."""
    worlds: tuple[World, ...]
    """Directories of static instances that would be left behind."""
    warnings: tuple[str, ...]
    """What to know before it is done, in sentences."""
    decisions: tuple[Planned, ...] | UnsetType = UNSET
    """What would be decided at once, at most 200."""


class GroupChangeShape(Struct, frozen=True, kw_only=True):
    """What would become of a group: `created`, `updated`, `deployed`, `restarted` (at once), `deleted`, `held` or
    `released`."""

    group: str
    """Name of the group."""
    change: str
    """`created`, `updated`, `deployed`, `restarted` (all at once), `deleted`, `held` or `released`."""
    fields: tuple[FieldChangeShape, ...] | UnsetType = UNSET
    """The fields that would differ; of a new group those that differ from the defaults."""


class FieldChangeShape(Struct, frozen=True, kw_only=True):
    """Field change shape."""

    field: str
    """Name of the field in the document."""
    before: Any
    """Its present value; null: there is none."""
    after: Any
    """Its value after the change."""
    effect: FieldEffect
    """When the change takes effect: `now`, `next_start` (at the next placement of an instance) or `restart` (in the next run)."""


class TouchedInstance(Struct, frozen=True, kw_only=True):
    """Touched instance."""

    id: str
    """Id of the instance."""
    group: str
    """Its group."""
    node: str
    """Id of the node on which it runs."""
    players: int | None
    """How many players it has; null: unknown."""
    effect: str
    """`stopped`, `stopped_when_empty`, `moved` (to another node, when its replacement there is healthy and its players have left), `waited_for` (its node is out of reach), `replaced` (by another one, in its turn, when its players have left), `restarted` (under its id, likewise), `killed`, `given_up`, `outdated` (it goes on by a former document) or `placement` (it stays on a node that would not be chosen now)."""
    stop_after_seconds: int | None = None
    """Of a drain of a node: when its deadline is. With `drain_seconds` of a deployment, and 0 with a restart of all at once: so long after it is retired it is stopped, players or not, or from now on if it is retired already (`stopped_when_empty`); null: they are waited for."""


class World(Struct, frozen=True, kw_only=True):
    """A directory that an instance keeps, or that a deleted instance left."""

    id: str
    """Id of the instance whose directory it is."""
    node: str
    """Node that has it."""
    directory: str
    """Directory on that node."""


class Planned(Struct, frozen=True, kw_only=True):
    """A decision that would follow at once."""

    kind: str
    """What would be done."""
    rule: str
    """The rule that it follows."""
    group: str
    """The group that it is about."""
    instance: str
    """The instance, if it is about one."""
    node: str
    """The node of a start."""
    reason: str
    """Why it would be done, or why nothing would."""


class CommandOutput(Struct, frozen=True, kw_only=True):
    """What a command printed, and how it ended."""

    command: str
    """The command as it was sent."""
    output: tuple[str, ...]
    """The lines that the command printed, errors included; control characters are spelled out, and what is too much is left out."""
    exit_code: int
    """0: done, 1: refused, 2: wrong usage, 3: unreachable, 4: a wait ran out, 137: ended by its time."""
    error: CommandError | None = None
    """Why it failed; null: it did not."""
    module: str | None = None
    """Id of the module whose command it is; null: it is one of the command line."""


class CommandError(Struct, frozen=True, kw_only=True):
    """Why a command failed. The codes are those of the API, and UNREACHABLE and REFUSED of the command line itself."""

    code: str
    """Stable name of the error: one of the API, or REFUSED or UNREACHABLE of the command line itself."""
    message: str
    """What happened and why, for people."""
    hint: str | None = None
    """What to do next."""
    field: str | None = None
    """The field of the request that the error is about."""


class SyncShape(Struct, frozen=True, kw_only=True):
    """How it went, node by node."""

    items: tuple[SyncAnswer, ...]
    """How it went, node by node."""


class SyncAnswer(Struct, frozen=True, kw_only=True):
    """The result on one node."""

    node: str
    """Id of the node."""
    ok: bool
    """Whether the node has it now."""
    code: str = ""
    """Error code where it has not."""
    message: str = ""
    """What happened and why, for people."""


class VariableSpec(Struct, frozen=True, kw_only=True):
    """The declaration of a variable."""

    type: VariableType = VariableType("string")
    """`string`, `int`, `bool` (`true` or `false`), `enum` (one of `choices`), or `secret` (a reference that the node looks up: `file://NAME` or `env://CORRAL_SECRET_NAME`)."""
    default: str | None = None
    """The value where no layer gives one; null: none."""
    required: bool = False
    """true: without a value nothing is started."""
    choices: tuple[str, ...] | UnsetType = UNSET
    """The values of an `enum`."""
    min: int | None = None
    """Least value of an `int`; fewest characters of a `string`."""
    max: int | None = None
    """Greatest value of an `int`; most characters of a `string`."""
    pattern: str = ""
    """A pattern in RE2's syntax that a whole `string` must match."""
    description: str = ""
    """A word on the variable, for people."""


class PatchSpec(Struct, frozen=True, kw_only=True):
    """A change of a configuration file: properties, YAML, JSON or TOML by its ending, or by `format`."""

    file: str
    """The file, relative to the working directory."""
    path: str
    """Where in the file: `a.b.c`, `a.0.b` in lists, `a.\"b.c\"` for a key with a dot; the whole key in properties. Of `regex` a pattern in RE2's syntax."""
    op: PatchOp = PatchOp("set")
    """`set`: the key gets the value, made if it is missing. `replace`: the key must be there. `regex`: every match in the text becomes the value."""
    value: Any = ""
    """The new value; a text may hold `%NAME%`."""
    format: str = ""
    """`properties`, `yaml`, `json`, `toml` or `text`; empty: by the file's ending."""


class StopRungSpec(Struct, frozen=True, kw_only=True):
    """One step of the stop ladder: a command or a signal, then a wait for the exit."""

    command: str | None = None
    """A line for the process's input, such as `stop`. Either this or `signal`."""
    signal: str | None = None
    """A signal for the process: SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 or SIGKILL. Either this or `command`."""
    wait_seconds: float = 30.0
    """How long to wait for the end before the next rung."""


class UpdateSpec(Struct, frozen=True, kw_only=True):
    """Update spec."""

    strategy: UpdateStrategy = UpdateStrategy("rolling")
    """`rolling`: instances are replaced a few at a time. `canary`: `canary` of them first, the others when these were healthy for `canary_seconds` with every metric of `gate` within its bounds."""
    max_surge: int | str | None = None
    """How many instances above the wanted number may be started meanwhile: a number, or a share such as `25%` (rounded up). null: 1; of a static group 0, and nothing else is possible there."""
    max_unavailable: int | str | None = None
    """How many instances may be missing from the wanted number meanwhile: a number, or a share such as `25%` (rounded up). null: 0; of a static group 1. Not 0 together with `max_surge`."""
    canary: int | str = 1
    """How many canaries there are: a number, or a share such as `10%` (rounded up); no more than wanted."""
    canary_seconds: int = 60
    """How long canaries have to be healthy before the others follow, in seconds."""
    promote: Promotion = Promotion("auto")
    """`auto`: the others follow by themselves. `manual`: they wait until the deployment is promoted."""
    min_healthy_seconds: int = 10
    """An instance counts as healthy when it has been ready for so many seconds without a crash or restart, and as unhealthy when it has not been ready for as long."""
    progress_seconds: int = 600
    """A deployment fails after so many seconds without one more healthy instance or one more retired. Waiting for players, for a node that may come back, and pauses do not count."""
    max_failures: int = 1
    """A deployment fails when so many of its new instances have crashed or were refused."""
    auto_rollback: bool = True
    """true: a deployment that fails goes back to the last revision that was completed."""
    drain_seconds: int | None = None
    """How long the players of a retired instance are waited for, in seconds; then it is stopped. null: until the last one has left."""
    auto: tuple[AutoUpdate, ...] | UnsetType = UNSET
    """What makes a deployment by itself, after 5 s without another change: the `document` of the group, a `template`, an entry of the `catalog`, an extension of a `module`."""
    gate: dict[str, GateSpec] = field(default_factory=dict)
    """Bounds of metrics that canaries report, by the name of the metric. At most 16. A metric that a canary does not report is out of bounds."""


class GateSpec(Struct, frozen=True, kw_only=True):
    """The bounds of a metric that canaries report; the time before all of them are reported does not count."""

    min: float | None = None
    """The least value; null: none."""
    max: float | None = None
    """The greatest value; null: none."""


class GroupSummary(Struct, frozen=True, kw_only=True):
    """A group in a list: how many instances it has and shall have, and what keeps it from that. `paused_until` is null
    unless its instances failed again and again."""

    name: str
    """Name of the group."""
    parent: str
    """Group whose document this one is merged into; empty: none."""
    abstract: bool
    """Whether the group is only a parent of others, without instances."""
    runtime: str
    """What holds its processes: `process`, `tmux` or `screen`."""
    category: str
    """What kind of program it runs; empty: unknown."""
    static: bool
    """Whether its instances keep their directories for good."""
    labels: dict[str, str]
    """Labels of the group, for people and scripts."""
    mode: ScalingMode
    """What decides about the number of instances: `DYNAMIC` (players), `STATIC` or `MANUAL`."""
    min: int
    """The least number of instances now, active schedules included."""
    max: int | None
    """The largest number of instances now, active schedules included; null: any."""
    wanted: int
    """How many instances are kept."""
    states: dict[str, int]
    """The number of instances in each state that some are in, ended ones included."""
    instances: int
    """How many exist and have not ended, without warm and lost ones."""
    ready: int
    """How many serve and are ready."""
    warm: int
    """How many are kept ready and do not serve yet."""
    lost: int
    """How many do not count because their node is away for too long."""
    draining: int
    """How many of the existing ones take no more players, and are stopped when these have left."""
    players: int
    """How many play on all of its instances, as far as it is known."""
    max_players: int
    """How many can play on one instance; 0: unknown."""
    memory_mb: int
    """Memory reserved for each instance, in MiB; 0: none."""
    reason: str
    """Why there are fewer than wanted, cut to 200 characters; empty: there are not."""
    held: bool
    """Whether an operator keeps all of its instances stopped."""
    paused: bool
    """Whether it is left alone after too many failures."""
    paused_until: str | None
    """When the group is tried again after too many failures, in UTC; null: it is not paused."""
    closed: bool
    """Whether it is closed to players now, active schedules included."""
    deleting: bool
    """Whether it is being deleted."""
    deployment: str
    """Id of its active deployment; empty: none."""
    deployment_revision: int
    """The number of its newest revision; 0: it has none yet."""
    stable_revision: int
    """The revision of its last completed deployment; 0: there was none."""
    owner: str
    """Whose set of documents the group belongs to; empty: nobody's."""
    updated_at: str
    """When it was last changed, in UTC."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class Deployment(Struct, frozen=True, kw_only=True):
    """A deployment of a group to a revision."""

    id: str
    """Id of the deployment."""
    group: str
    """Name of the group."""
    state: DeploymentState
    """`PENDING`, `CANARY`, `GATE`, `ROLLING`, `PAUSED`, `ROLLING_BACK`; `COMPLETED`, `FAILED`, `ROLLED_BACK`, `CANCELLED` or `SUPERSEDED` when it has ended."""
    resumes: DeploymentState | None
    """While it is paused, or its group is held: the state that follows."""
    phase_since: str
    """Since when it is in its state, in UTC."""
    created_at: str
    """When it was made, in UTC."""
    ended_at: str | None
    """When it ended, in UTC; null: it has not."""
    target: int
    """Number of the revision that the instances come to."""
    stable: int
    """Number of the revision that a rollback leads to; 0: there is none."""
    options: UpdateSpec
    """How it goes on: `update` of the document, with what the order overrides."""
    trigger: str
    """`manual`, `restart`, `rollback`, or what had changed: `document`, `template`, `catalog` or `module`."""
    by: str
    """Who began it."""
    reason: str
    """Why it was begun, as it was given."""
    last_progress_at: str
    """When one more instance was healthy than ever before, or one was retired, in UTC."""
    best_healthy: int
    """The most instances of the revision that were healthy at once."""
    failed: int
    """How many instances of the target have crashed or were refused."""
    failures: tuple[DeploymentFailure, ...]
    """The last of these, at most 20."""
    waiting: str
    """What it waits for, as a sentence; empty: it has ended, or is about to act."""
    outcome: str
    """Why it failed, goes back, was cancelled or superseded, as a sentence; empty: none of these."""
    undone: str
    """What was taken back, as a sentence; empty: nothing was to be."""
    progress: DeploymentProgress | None
    """How far it is; null: it has ended."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class DeploymentFailure(Struct, frozen=True, kw_only=True):
    """An instance of the target that crashed, or that a node refused to start."""

    at: str
    """When it happened, in UTC."""
    instance: str
    """Id of the instance."""
    incarnation: int = 0
    """Number of the run. Each run of an instance has another one, and none is used twice."""
    node: str = ""
    """Id of the node."""
    code: str = ""
    """The class of the crash, or the code of the refusal."""
    reason: str
    """How the run ended, or why it was refused."""
    phase: str = ""
    """The state of the deployment then."""
    crash: str = ""
    """Id of the crash; empty: the start was refused."""
    lines: tuple[str, ...] | UnsetType = UNSET
    """The last lines of its console, at most 10."""


class DeploymentProgress(Struct, frozen=True, kw_only=True):
    """How far a deployment is, computed from the instances that are there."""

    wanted: int
    """How many instances the group is to have."""
    goal: int
    """How many of them are to be of the revision in the present state."""
    updated: int
    """How many are of the revision, and healthy; on the way back: of the stable revision."""
    healthy: int
    """How many instances of any revision are healthy and serve."""
    starting: int
    """How many of the revision do not run yet, or have to be healthy for longer."""
    outdated: int
    """How many of other revisions serve."""
    draining: int
    """How many of other revisions take no more players."""
    waiting_players: tuple[WaitingInstance, ...] | UnsetType = UNSET
    """Those of them whose players are waited for."""
    canaries: int = 0
    """How many go first, with the strategy `canary`."""
    lost: int = 0
    """How many of other revisions are on nodes that are away for longer than the group waits."""
    unhealthy: int = 0
    """How many of the revision run, and are not ready."""


class WaitingInstance(Struct, frozen=True, kw_only=True):
    """A retired instance whose players are waited for."""

    id: str
    """Id of the instance."""
    players: int | None
    """How many players it has; null: unknown."""


class PlanTemplate(Struct, frozen=True, kw_only=True):
    """A layer of the working directory."""

    name: str
    """The template."""
    version: int
    """Number of its version."""
    hash: str
    """Hash of that version's files; the node checks it."""
    override: bool = True
    """false: a file that is there already stays."""


class PlanArtifact(Struct, frozen=True, kw_only=True):
    """A file that the node fetches and checks."""

    platform: str = ""
    """Name of an entry of the catalog; together with `version`."""
    version: str = ""
    """Version of an entry of the catalog."""
    file: str
    """Its path in the working directory; empty: the catalog's file name, or the last part of the URL."""
    url: str = ""
    """Where nodes download it, http or https, for what is not in the catalog; `sha256` is needed then. Empty in a plan: from the controller."""
    sha256: str
    """SHA-256 of the file; other bytes are refused."""
    size: int = 0
    """Size in bytes; 0: not known."""


class PlanExtension(Struct, frozen=True, kw_only=True):
    """`artifact.file` is where it goes, its install path included."""

    id: str
    """Name of the extension; of a module's one, as the module's manifest has it."""
    variant: str = ""
    """Of a module's extension: this variant and no other. Of an artifact: a word for people."""
    module: str = ""
    """Module that brings it; needed where there is no `artifact`."""
    artifact: PlanArtifact
    """The file and, as its `file`, where it goes."""


class Instance(Struct, frozen=True, kw_only=True):
    """An instance and its present or last run. `stage` is the step of its preparation,
    and `reason` the condition it waits for, also while it is not ready yet; `players` and `metrics` are the last
    reports of the run, null for those that never came."""

    id: str
    """Id of the instance: GROUP-NUMBER."""
    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    state: InstanceState
    """What its node reports; OFFLINE while the node is out of reach."""
    wanted: Wanted
    """What shall be: `run`, `drain` or `stop`."""
    ready: bool
    """Whether it can be used now."""
    port: int | None
    """The port called `primary`; null: it has none."""
    ports: dict[str, int]
    """Its ports by name."""
    pid: int | None
    """Process id on its node; null: no process."""
    players: int | None
    """How many play, as the probe or the program reported last; null: unknown."""
    max_players: int
    """How many can play; 0: unknown."""
    metrics: dict[str, float]
    """Figures that the program itself reported last, by name."""
    stage: str
    """What its node is doing while the start is prepared; empty otherwise."""
    started_at: str | None
    """When the process of the present or last run began, in UTC."""
    ended_at: str | None
    """When the last run ended, in UTC; null: it has not."""
    exit: Exit | None
    """How the last run ended; null: it has not."""
    plan_hash: str
    """Hash of the plan it was started with; `GET …/plan` shows the plan."""
    reason: str
    """What it waits for, or why it is as it is."""
    incarnation: int
    """Number of the run. Each run of an instance has another one, and none is used twice."""
    restarts: int
    """How often its node has restarted it since the controller last started it."""
    runtime: str
    """What holds its process: `process`, `tmux` or `screen`."""
    deployment_revision: int
    """The revision of its group that it was started by; 0: it was started before there were revisions, or its revision is too large to be kept."""
    drift: Drift
    """Whether it runs as the present document of its group says: `none`, `outdated` (by a former one, or with former contents), `placement` (on a node that would not be chosen now), `unknown`."""
    warm: bool
    """It is kept ready beside those that serve, and takes the place of one that is missing."""
    lost: bool
    """Its node is away for longer than its group waits: it does not count, and may be running."""
    lost_at: str | None
    """While it is OFFLINE: since when its node is away, in UTC; null: it is not away."""
    replaces: str
    """Id of the lost instance in whose place it was started; empty: none."""
    moves: str
    """Id of the instance on a node that is drained in whose place it was started; empty: none."""
    replaced_by: str
    """Id of the instance that was started in its place because it is lost; empty: none."""
    uptime_ms: int
    """How long the present run has lived, in milliseconds; 0: it does not run."""
    last_seen: str | None
    """When its node last reported it, in UTC."""
    memory_mb: int
    """Memory reserved for it on its node, in MiB; 0: none."""
    static: bool
    """Whether it keeps its directory for good."""
    host_address: str
    """Where it is reached, as an operator has set it; empty: at the address of its node."""
    variables: dict[str, str]
    """Variables of this instance alone, above the group's."""
    created_at: str
    """When it was made, in UTC."""
    decision: str
    """Id of the decision behind the present run."""
    start_failure: StartFailure | None
    """Why its node refused the start; null: it did not."""
    modules: Modules
    """What modules on the node changed of the present run."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class Exit(Struct, frozen=True, kw_only=True):
    """How a run ended. `known` false: the exit was not seen."""

    code: int | None
    """Exit code of the process; null: it was ended by a signal, or its exit was not seen."""
    signal: int | None
    """Number of the signal that ended it; null: none did."""
    crashed: bool
    """Whether the end counts as a crash."""
    summary: str
    """How it ended, in one sentence."""
    known: bool
    """false: its exit was not seen."""
    core_dumped: bool
    """Whether the kernel wrote a core file."""
    outcome: str
    """`clean`, `crashed`, `stopped`, `killed`, `never_started`, `start_failed`, `isolated` (its node was without a controller for too long), `host_rebooted` or `unknown`, and `ended` for a clean end by itself."""
    crash_class: str
    """What kind of crash it was; empty: none."""
    rung: str
    """The rung of the stop ladder that ended it; empty: none did."""
    ended_at: str
    """When it ended, by the clock of its node, in UTC."""


class StartFailure(Struct, frozen=True, kw_only=True):
    """Why a node refused a start."""

    stage: str
    """The stage of the start that failed."""
    code: str
    """Error code, as in docs/reference/errors.md."""
    message: str
    """What happened and why, for people."""
    permanent: bool
    """true: the same start would fail again."""
    retry_after_seconds: int = 0
    """When the node would try again, in seconds; 0: whenever asked."""


class Modules(Struct, frozen=True, kw_only=True):
    """Changes of the present run by modules on its node. `dropped` is the reason why a change was not applied;
    `missing` are modules that should have run on the node and were not ready."""

    changes: tuple[ModuleChange, ...]
    """What each module changed, or wanted to."""
    missing: tuple[str, ...]
    """Modules that were wanted on the node and not ready, each with why."""


class ModuleChange(Struct, frozen=True, kw_only=True):
    """The changes of a module on the node to one start. With `dropped` none of them was applied, for that
    reason."""

    module: str
    """Id of the module."""
    version: str = ""
    """Version of the module."""
    jvm_args_added: tuple[str, ...] | UnsetType = UNSET
    """Arguments of Java that it added."""
    jvm_args_removed: tuple[str, ...] | UnsetType = UNSET
    """Arguments of Java that it took away."""
    args_added: tuple[str, ...] | UnsetType = UNSET
    """Arguments of the program that it added."""
    args_removed: tuple[str, ...] | UnsetType = UNSET
    """Arguments of the program that it took away."""
    env_set: tuple[str, ...] | UnsetType = UNSET
    """Names of the variables of the environment that it set; values may be secret."""
    env_removed: tuple[str, ...] | UnsetType = UNSET
    """Names of the variables of the environment that it removed."""
    overridden: tuple[Overridden, ...] | UnsetType = UNSET
    """Of these changes, those that do not hold because another module had the last word."""
    dropped: str = ""
    """Why nothing of it was taken; empty: it was."""


class Overridden(Struct, frozen=True, kw_only=True):
    """A change by a module that has no effect: another module or the plan overrode it."""

    kind: str
    """What was changed: `env` or `jvm_args`."""
    name: str
    """The argument, or the name of the variable."""
    by: str = ""
    """Module that had the last word; empty: the plan itself."""


class InstanceSummary(Struct, frozen=True, kw_only=True):
    """An instance in a list: what it is, how it fares and why, cut to a length. `exit` is the sentence about the end of its
    last run."""

    id: str
    """Id of the instance: GROUP-NUMBER."""
    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    state: InstanceState
    """What its node reports; OFFLINE while the node is out of reach."""
    wanted: Wanted
    """What shall be: `run`, `drain` or `stop`."""
    ready: bool
    """Whether it can be used now."""
    stage: str
    """What its node is doing while the start is prepared; empty otherwise."""
    reason: str
    """What it waits for, or why it is as it is, cut to 200 characters."""
    port: int | None
    """The port called `primary`; null: it has none."""
    players: int | None
    """How many play, as the probe or the program reported last; null: unknown."""
    max_players: int
    """How many can play; 0: unknown."""
    memory_mb: int
    """Memory reserved for it on its node, in MiB; 0: none."""
    incarnation: int
    """Number of the run. Each run of an instance has another one, and none is used twice."""
    restarts: int
    """How often its node has restarted it since the controller last started it."""
    runtime: str
    """What holds its process: `process`, `tmux` or `screen`."""
    deployment_revision: int
    """The revision of its group that it was started by; 0: it was started before there were revisions, or its revision is too large to be kept."""
    static: bool
    """Whether it keeps its directory for good."""
    warm: bool
    """It is kept ready beside those that serve, and takes the place of one that is missing."""
    lost: bool
    """Its node is away for longer than its group waits: it does not count, and may be running."""
    started_at: str | None
    """When the process of the present or last run began, in UTC."""
    ended_at: str | None
    """When the last run ended, in UTC; null: it has not."""
    exit: str
    """How the last run ended, as a sentence of at most 200 characters; empty: it has not."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class ChangedTemplate(Struct, frozen=True, kw_only=True):
    """`unchanged`: it was so already, and no version was made."""

    name: str
    """NAME or GROUP/NAME."""
    group: str
    """The part of the name before the `/`; empty: none."""
    version: int
    """Number of the current version."""
    hash: str
    """Hash of the current version's files."""
    files: int
    """How many files it has."""
    size: int
    """Size of all its files, in bytes."""
    settings: TemplateSettings
    """What holds for the files beside the files: parents, variables, globs."""
    note: str
    """Note on the current version."""
    created_at: str
    """When it was made, in UTC."""
    updated_at: str
    """When it was last changed, in UTC."""
    created_by: str
    """Who made it, for example `token:tok-…`."""
    versions: int
    """How many versions are kept."""
    used_by: tuple[str, ...]
    """Groups that are made of it, themselves or through other templates."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""
    unchanged: bool
    """true: it was so already, and no version was made."""


class TemplateSettings(Struct, frozen=True, kw_only=True):
    """Settings for the files of a version."""

    description: str = ""
    """A word on the template, for people."""
    parents: tuple[str, ...] | UnsetType = UNSET
    """Templates that are laid beneath this one wherever it is used."""
    variables: dict[str, str] = field(default_factory=dict)
    """Values for `%NAME%`, the lowest layer but for defaults."""
    variable_types: dict[str, VariableSpec] = field(default_factory=dict)
    """By name: type, bounds and default of a variable. A value that does not fit is refused before anything starts."""
    substitute: tuple[str, ...] | UnsetType = UNSET
    """Globs of the files of templates in which `%NAME%` is replaced, such as `*.properties` or `config/**/*.yml`."""


class ExitRecord(Struct, frozen=True, kw_only=True):
    """How a run ended."""

    known: bool
    """false: its exit was not seen."""
    code: int | None
    """Exit code of the process; null: it was ended by a signal, or its exit was not seen."""
    signal: int | None
    """Number of the signal that ended it; null: none did."""
    core_dumped: bool = False
    """Whether the kernel wrote a core file."""
    crashed: bool
    """Whether the end counts as a crash."""
    outcome: str
    """`clean`, `crashed`, `stopped`, `killed`, `never_started`, `start_failed`, `isolated` (its node was without a controller for too long), `host_rebooted` or `unknown`, and `ended` for a clean end by itself."""
    crash_class: str = ""
    """What kind of crash it was; empty: none."""
    rung: str = ""
    """The rung of the stop ladder that ended it; empty: none did."""
    summary: str
    """How it ended, in one sentence."""
    ended_at: str
    """When it ended, by the clock of its node, in UTC."""


class Decision(Struct, frozen=True, kw_only=True):
    """One decision; `rejected` is what was considered and not done."""

    number: int
    """Position in the journal of its subject."""
    id: str
    """Id of the decision, `dec-…`."""
    at: str
    """When it happened, in UTC."""
    kind: DecisionKind
    """What was decided: `place`, `start`, `restart`, `stop`, `promote`, `scale`, `skip` (nothing yet) or `refuse`."""
    subject: str
    """What it is about: the id of an instance, or the name of a group."""
    reason: str
    """Why it was decided, in one sentence."""
    cause: str
    """What made the controller decide: an event, or a caller."""
    epoch: int
    """Term of the controller that decided."""
    inputs: dict[str, str | int | float | bool]
    """The figures that it was decided by."""
    rejected: tuple[Alternative, ...]
    """What was considered and not done, at most 20."""
    request: str
    """Id of the request behind it, by which log records are found; empty: there was none."""
    rule: str
    """The rule that it follows, such as `min.restore` or `place.refuse`; empty in older decisions."""
    node: str
    """The node that was chosen, or that it is about; empty: none."""
    deployment: str
    """The deployment that it is about; empty: none."""
    rejected_counts: dict[str, int]
    """How many nodes were not chosen, by code; `LOWER` counts those with a lower score."""
    ties: tuple[str, ...]
    """Nodes that had the same score as the chosen one: a hash chose."""
    causes: tuple[str, ...]
    """What led to it, the nearest first: `event:EPOCH-SEQUENCE`, `crash:ID`, `request:ID` or the id of a decision."""
    root: str
    """The first of its chain of causes."""
    wake_at: str | None
    """When it is looked at again though nothing happens; null: at the next event."""


class Alternative(Struct, frozen=True, kw_only=True):
    """Something that was considered and not done: a `code` with `numbers`, or a sentence."""

    subject: str
    """What was considered, such as `node/web-1`."""
    reason: str = ""
    """Why it was not done."""
    code: str = ""
    """The same for programs: `STATE`, `RECONNECTING`, `ADMISSION`, `CHOICE`, `LABELS`, `RUNTIME`, `CAPABILITY`, `AFFINITY`, `SKEW`, `MEMORY`, `CPU`, `DISK`, `PORTS`, `LOWER` (a lower score) or `TIE`; empty: no node."""
    numbers: dict[str, str | int | float | bool] = field(default_factory=dict)
    """What the code was computed from, such as `free` and `needed`."""


class WhyShape(Struct, frozen=True, kw_only=True):
    """Why something is as it is: one sentence, what is the case now, and the decisions behind it, the newest first."""

    subject: str
    """What it is about: `instance/ID`, `group/NAME`, `node/ID` or `module/ID`."""
    state: str
    """The state it is in; `GONE`: only decisions about it are left."""
    summary: str
    """Why it is so, in one sentence."""
    files_kept: tuple[str, ...] = ()
    """Of a static instance: files that its start kept though templates give others for them, each with the reason."""
    decisions: tuple[Decision, ...] = ()
    """The decisions behind it, the newest first, at most 20."""
    restarts: tuple[Restart, ...] = ()
    """Of an instance: restarts that its node made by itself since the last start, the newest first."""
    now: tuple[Now, ...] = ()
    """What is the case now, by a plan that is made for this answer and not carried out."""
    chain: tuple[Chain, ...] = ()
    """What led to the decision behind its state, the first cause first, at most 20 steps."""
    would_change: tuple[WouldChange, ...] = ()
    """What would change it; conditions of placement were tried on a copy of the state."""


class Restart(Struct, frozen=True, kw_only=True):
    """A restart by the node itself, with the crash behind it."""

    at: str
    """When the run before it ended, in UTC."""
    crash: str
    """Id of the crash, for `GET /crashes/{id}`."""
    incarnation: int
    """Number of the run that ended."""
    restarted_as: int
    """Number of the run that its node began then."""
    uptime_ms: int
    """How long the run that ended had lived, in milliseconds."""
    reason: str
    """How it ended, in one sentence."""


class Now(Struct, frozen=True, kw_only=True):
    """One thing that is the case now, and why."""

    topic: str
    """What it says: `need`, a decision that would be made now (`start`, `stop`, `promote`, `skip`, `refuse`), `placement`, `desired`, `not_ready`, `lower_priority` (instances with a lower priority that have the room), `drain` (how far a node is emptied, and why an instance is still there), `duplicates` (a returned instance and its replacement, while it is not known which of them goes), `state`, `room`, `runs`, `refused`, `phase`, `waiting`, `on_node`, `group` or `needed_by`."""
    subject: str
    """What it is about, such as `instance/lobby-1`."""
    reason: str
    """The case, and why, in one sentence."""
    rule: str = ""
    """The rule behind it, such as `min.restore`; empty: none."""
    node: str = ""
    """The node concerned; empty: none, or several."""
    rejected: tuple[Alternative, ...] = ()
    """Nodes that were considered and not chosen, at most 20, each with the reason."""
    rejected_counts: dict[str, int] = field(default_factory=dict)
    """How many nodes were not chosen, by code."""
    at: str | None = None
    """When it was decided, or when it is looked at again, in UTC; null: neither."""
    lines: tuple[str, ...] = ()
    """The last lines of the console of a run that crashed, at most 10, for callers with `instances.console`; empty: none."""


class Chain(Struct, frozen=True, kw_only=True):
    """One step from what happened first to what followed from it."""

    kind: str
    """`request`, `event`, `crash`, `restart` (by its node), `decision`, `phase` (of a module), `cause` (neither an event nor a request) or `truncated` (what came before is not kept, or not for this caller)."""
    id: str
    """Id of the request, event, crash or decision; empty: it has none."""
    subject: str
    """Id of what it happened to."""
    rule: str
    """The rule of a decision, or the type of an event."""
    reason: str
    """What happened, in one sentence."""
    at: str | None
    """When it happened, in UTC; null: unknown."""


class WouldChange(Struct, frozen=True, kw_only=True):
    """A condition, and what would follow from it."""

    condition: str
    """What would have to be so, such as `128 MB on n1` or `uncordon n2`."""
    effect: str
    """What would follow."""
    at: str | None
    """When it is so without anybody's doing, in UTC; null: not by itself."""
    missing: int = 0
    """How many instances are missing, if the condition is about one of them; 0: it is about all."""


class ModuleUsage(Struct, frozen=True, kw_only=True):
    """What the process of a module on a node uses, as its node reported last."""

    cpu_seconds: float
    """Processor time used, in seconds."""
    memory_bytes: int
    """Memory in use, in bytes."""
    threads: int
    """How many threads it has."""
    processes: int
    """How many processes, its children included."""
    calls: int
    """Calls of the host into it since it started."""
    failures: int
    """How many of them failed."""


class OpenApi(Struct, frozen=True, kw_only=True):
    """An OpenAPI 3.1 document."""

    openapi: str
    """Version of OpenAPI."""
    info: dict[str, Any]
    """Title and version of this API."""
    paths: dict[str, Any]
    """Every route."""
    components: dict[str, Any]
    """Schemas and security schemes."""
