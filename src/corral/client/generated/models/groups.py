"""Structures of `groups`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from corral.client.enums import OpenEnum
from corral.client.generated.models.shared import (
    Category,
    ConfigFormat,
    FieldEffect,
    GroupSummary,
    PatchOp,
    PatchSpec,
    PlanArtifact,
    PlanExtension,
    Planned,
    PlanTemplate,
    ProbeKind,
    Promotion,
    ScalingMode,
    StopRungSpec,
    UpdateSpec,
    UpdateStrategy,
    VariableSpec,
)


class PortProtocol(OpenEnum):
    """Port protocol."""

    BOTH = "both"
    TCP = "tcp"
    UDP = "udp"


class Isolation(OpenEnum):
    """Whether each instance has a user of its own."""

    AUTO = "auto"
    SHARED = "shared"
    UID = "uid"


class StdinMode(OpenEnum):
    """Stdin mode."""

    FIFO = "fifo"
    NONE = "none"


class RestartOn(OpenEnum):
    """After which exits an instance is started again in its place."""

    ALWAYS = "always"
    FAILURE = "failure"
    NEVER = "never"


class ScaleDirection(OpenEnum):
    """Scale direction."""

    DOWN = "down"
    UP = "up"


class Action(OpenEnum):
    """Action."""

    CHANGED = "changed"
    CREATED = "created"
    DELETED = "deleted"
    UNCHANGED = "unchanged"


class GroupPage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Group, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class Group(Struct, frozen=True, kw_only=True):
    """A group's document with the fields of its parents and all defaults, and how it fares."""

    name: str
    """Name of the group: small letters, digits and `-`, at most 56 characters. Instances are called NAME-1, NAME-2, …; the name cannot be changed."""
    parent: str = ""
    """Group whose document this one is merged into: what is left out here is as there. Empty: none."""
    abstract: bool = False
    """true: the group is only a parent of others. It has no instances and need not be complete."""
    runtime: str = "process"
    """How the process is held: `process` (a shim of Corral's), or a session of `tmux` or `screen` to which a user of the node can attach."""
    command: tuple[str, ...] | UnsetType = UNSET
    """Program and arguments, without a shell. `%NAME%` is replaced by variables, such as `%PORT%`. Needed unless `jvm` is there."""
    args: tuple[str, ...] | UnsetType = UNSET
    """Arguments after `command`, or of the Java program when `jvm` runs it."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment of the process, beside a few variables of the node. Values may hold `%NAME%`. `LD_PRELOAD`, `LD_AUDIT`, `LD_LIBRARY_PATH` and `CORRAL_…` are refused."""
    variables: dict[str, str] = field(default_factory=dict)
    """Values for `%NAME%`, above those of templates and `properties`, below those of node labels and of the single start."""
    variable_types: dict[str, VariableSpec] = field(default_factory=dict)
    """By name: type, bounds and default of a variable. A value that does not fit is refused before anything starts."""
    strict_variables: bool = False
    """true: a `%NAME%` without a value fails the start, with its file and line. false: it stays in the text, with a warning."""
    substitute: tuple[str, ...] | UnsetType = UNSET
    """Globs of the files of templates in which `%NAME%` is replaced, such as `*.properties` or `config/**/*.yml`."""
    templates: tuple[str, ...] | UnsetType = UNSET
    """Templates that the working directory is made of, in this order; a later file replaces an earlier one."""
    template_selection: TemplateSelection | UnsetType = UNSET
    """More templates, chosen from sets or drawn among equals; they are laid after `templates`."""
    merge: tuple[str, ...] | UnsetType = UNSET
    """Globs of YAML, JSON, TOML and properties files that are merged key by key where several templates have them."""
    patches: tuple[PatchSpec, ...] | UnsetType = UNSET
    """Changes of single values in configuration files, made at each start after variables were replaced."""
    artifact: ArtifactSpec | None = None
    """The program that nodes download: an entry of the catalog, or a URL with its digest. null: none."""
    extensions: tuple[ExtensionSpec, ...] | UnsetType = UNSET
    """More files for the working directory, such as plugins: artifacts of the group, or what installed modules bring."""
    jvm: JvmSpec | None = None
    """How Java runs the program, where there is no `command`. `{}` is Java with its defaults, running the artifact. null: no Java."""
    warmup: WarmupSpec | UnsetType = UNSET
    """What a first run makes and the node keeps for the next instances."""
    category: Category = Category("")
    """`server` or `proxy`, a word for modules and dashboards; instances of a `proxy` may read the registries of groups. Empty: that of the catalog's entry."""
    config_format: ConfigFormat = ConfigFormat("")
    """Label for the family of configuration files the program reads. Corral changes no file because of it (`patches` do that); results of `warmup` are kept apart by it. Empty: the label of the catalog's entry."""
    static: bool = False
    """true: each instance keeps its directory for good, one for each number, on the node where it first ran. false: each start makes a new directory."""
    protected_paths: tuple[str, ...] | UnsetType = UNSET
    """Globs of files in a static directory that no later start overwrites, such as `world*`."""
    probes: tuple[ProbeSpec, ...] | UnsetType = UNSET
    """When an instance counts as ready: once each of these has succeeded. Empty: by the built-in rule (it has lived for `min_alive_ms`, and listens on its port `primary` if it has one)."""
    min: int = 0
    """How many instances are kept at any time; one that ends is replaced."""
    max: int | None = None
    """Most instances, also for `scale` and starts by hand; null: no bound."""
    scaling: ScalingSpec | UnsetType = UNSET
    """What decides about the number of instances."""
    schedules: tuple[ScheduleSpec, ...] | UnsetType = UNSET
    """Values that take the place of the group's own for some time, again and again; at most 64. Of several that set one field the one counts that began last, then the one that comes first."""
    maintenance: MaintenanceSpec | UnsetType = UNSET
    """Whether the group is closed to players."""
    warm: int = 0
    """Ready instances beside those that serve. Not with `static`."""
    min_available: int | str | None = None
    """How many instances, or which share of the wanted ones (`50%`, rounded up), stay healthy while nodes are drained; null: as many as are wanted."""
    priority: int = 50
    """Which group is placed first when room is short: the higher one. Nothing that runs is stopped for it."""
    depends_on: tuple[DependencySpec, ...] | UnsetType = UNSET
    """Groups that must have ready instances before one of this group is started. Nothing that runs is stopped for it."""
    fallback_group: str = ""
    """Group to which players go when no instance of this one can take them; empty: none."""
    static_names: tuple[str, ...] | UnsetType = UNSET
    """Ids of the first instances, in this order, instead of NAME-1, NAME-2, …; at most 1,000."""
    memory_mb: int = 0
    """Memory of one instance in MiB: reserved on its node, and a limit where the node has control groups. 0: neither."""
    cpu: float = 0.0
    """Processor cores of one instance, such as 1.5: counted when a node is chosen, and a limit where the node has control groups. 0: neither."""
    pids: int = 0
    """Most processes and threads of one instance, where the node has control groups. 0: no limit."""
    disk_mb: int = 0
    """Space in MiB that must be free on a node, beside its own reserve, before an instance is prepared there. It is not a quota."""
    console_mb: int = 256
    """How much of an instance's console the node keeps, in MiB; then the oldest goes."""
    ports: dict[str, PortSpec] = field(default_factory=dict)
    """Ports that each instance gets for itself, by name. `primary` is `%PORT%` and the instance's `port`; others are `%PORT_NAME%`."""
    max_players: int = 0
    """`%MAX_PLAYERS%` for configuration files, shown until the server reports its own. 0: unknown."""
    host_address: str = ""
    """`%HOST_ADDRESS%`: where the program shall listen, and where probes ask. May hold `%NAME%`. Empty: the node's address."""
    nodes: tuple[str, ...] | UnsetType = UNSET
    """Ids of the only nodes that may be chosen; empty: any."""
    node_labels: dict[str, str] = field(default_factory=dict)
    """Labels that a node must have, with these values, to be chosen. At most 64."""
    node_capabilities: tuple[str, ...] | UnsetType = UNSET
    """What must be proven to hold on a node for it to be chosen: `cgroup-kill`, `cgroup-freeze`, `memory-limit`, `cpu-limit`, `tty`, `run-as`."""
    affinity: tuple[AffinitySpec, ...] | UnsetType = UNSET
    """Nodes that are preferred, avoided or required, by a label or by the instances of a group there."""
    spread: tuple[SpreadSpec, ...] | UnsetType = UNSET
    """Over what instances are distributed evenly; the default is over nodes. Empty: over nothing."""
    run_as: str = ""
    """Account of the node that instances run as; the node must lend it (`instances.allowed_users`). Empty: chosen by `isolate`."""
    isolate: Isolation = Isolation("auto")
    """`uid`: each instance has a user id of its own. `shared`: all run as `run_as` and can read and signal each other. `auto`: `uid` where the node can and `run_as` is empty."""
    stdin: StdinMode = StdinMode("fifo")
    """`fifo`: commands can be sent to the process. `none`: it reads an end of file at once."""
    tty: bool = False
    """true: the process has a terminal instead of pipes, for programs that insist on one."""
    line_buffered: bool = False
    """true: the program is made to write line by line (`stdbuf -oL`); for programs that hold their output back when it is no terminal."""
    stop: tuple[StopRungSpec, ...] | UnsetType = UNSET
    """The ladder: each rung is tried in turn until the process has ended. After the last one everything of the run is killed."""
    startup_timeout_seconds: int = 60
    """Time from the start's preparation until it is ready; an instance that takes longer is ended and counts as a crash. 0: no bound."""
    min_alive_ms: int = 1500
    """How long an instance has to live, in milliseconds: without probes it is not ready before, and an end that comes sooner is a failure, whatever its exit code."""
    max_lifetime_seconds: int = 0
    """After this many seconds an instance is stopped by its ladder, and its node starts it again. 0: never."""
    crash_keep_seconds: int = 3600
    """How long a node keeps the directory and console of a crashed run, in seconds; those of a stopped one go at once. Static directories stay."""
    clean_exit_codes: tuple[int, ...] | UnsetType = UNSET
    """Exit codes beside 0 that are no crash when an instance ends by itself after `min_alive_ms`."""
    restart: RestartSpec | UnsetType = UNSET
    """Restarts on the same node, made by the node itself, also while the controller is away."""
    crash_loop: CrashLoopSpec | UnsetType = UNSET
    """When a group that fails again and again is left alone for a while."""
    disconnect: DisconnectSpec | UnsetType = UNSET
    """What happens to instances whose node has no connection to the controller."""
    update: UpdateSpec | UnsetType = UNSET
    """How a deployment replaces instances: how many at once, canaries, when it has failed, and what starts one by itself."""
    labels: dict[str, str] = field(default_factory=dict)
    """Words about the group for people and programs, by key; Corral does not act on them. At most 64, of 128 characters each and 1,024 a value."""
    properties: dict[str, str] = field(default_factory=dict)
    """Values for `%NAME%` below `variables`; a key `map-size` is `%MAP_SIZE%`. At most 1,000."""
    status: GroupStatus
    """How the group fares now."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class TemplateSelection(Struct, frozen=True, kw_only=True):
    """Templates beside the ordered chain. Picks are sorted by priority, ties by name, and follow the chain."""

    all_of: tuple[TemplateChoice, ...] | UnsetType = UNSET
    """Each of these templates is laid."""
    all_in_groups: tuple[TemplateChoice, ...] | UnsetType = UNSET
    """Every template of these template groups is laid."""
    one_of: tuple[TemplateChoice, ...] | UnsetType = UNSET
    """One of these is laid: that of the highest priority; among equals one is drawn, and the draw recorded."""
    one_in_groups: tuple[TemplateChoice, ...] | UnsetType = UNSET
    """One template out of these template groups is laid; each has the priority of its group."""


class TemplateChoice(Struct, frozen=True, kw_only=True):
    """A template, or a group of templates, among those a group is made of."""

    name: str
    """The template, NAME or GROUP/NAME; in the lists of template groups the group's name."""
    priority: int = 0
    """Order among the chosen: higher ones are laid later and win."""
    override: bool = True
    """false: a file that is there already stays."""


class PatchSpecInput(Struct, frozen=True, kw_only=True):
    """A change of a configuration file: properties, YAML, JSON or TOML by its ending, or by `format`."""

    file: str
    """The file, relative to the working directory."""
    path: str
    """Where in the file: `a.b.c`, `a.0.b` in lists, `a.\"b.c\"` for a key with a dot; the whole key in properties. Of `regex` a pattern in RE2's syntax."""
    op: PatchOp | UnsetType = UNSET
    """`set`: the key gets the value, made if it is missing. `replace`: the key must be there. `regex`: every match in the text becomes the value. Default: `set`."""
    value: Any | UnsetType = UNSET
    """The new value; a text may hold `%NAME%`."""
    format: str | UnsetType = UNSET
    """`properties`, `yaml`, `json`, `toml` or `text`; empty: by the file's ending."""


class ArtifactSpec(Struct, frozen=True, kw_only=True):
    """The program of an instance, brought to the node: an entry of the catalog, or a URL with its digest."""

    platform: str = ""
    """Name of an entry of the catalog; together with `version`."""
    version: str = ""
    """Version of an entry of the catalog."""
    url: str = ""
    """Where nodes download it, http or https, for what is not in the catalog; `sha256` is needed then. Empty in a plan: from the controller."""
    sha256: str = ""
    """SHA-256 of the file; other bytes are refused."""
    file: str = ""
    """Its path in the working directory; empty: the catalog's file name, or the last part of the URL."""


class ArtifactSpecInput(Struct, frozen=True, kw_only=True):
    """The program of an instance, brought to the node: an entry of the catalog, or a URL with its digest."""

    platform: str | UnsetType = UNSET
    """Name of an entry of the catalog; together with `version`."""
    version: str | UnsetType = UNSET
    """Version of an entry of the catalog."""
    url: str | UnsetType = UNSET
    """Where nodes download it, http or https, for what is not in the catalog; `sha256` is needed then. Empty in a plan: from the controller."""
    sha256: str | UnsetType = UNSET
    """SHA-256 of the file; other bytes are refused."""
    file: str | UnsetType = UNSET
    """Its path in the working directory; empty: the catalog's file name, or the last part of the URL."""


class ExtensionSpec(Struct, frozen=True, kw_only=True):
    """A file that goes into a group's instances, such as a plugin: an artifact of the group's own, or what an
    installed module brings under this id."""

    id: str
    """Name of the extension; of a module's one, as the module's manifest has it."""
    variant: str = ""
    """Of a module's extension: this variant and no other. Of an artifact: a word for people."""
    module: str = ""
    """Module that brings it; needed where there is no `artifact`."""
    artifact: ArtifactSpec | None = None
    """The group's own file; null: the module's."""
    install_path: str | None = None
    """Directory of the working directory that the artifact goes to; needed with one."""


class ExtensionSpecInput(Struct, frozen=True, kw_only=True):
    """A file that goes into a group's instances, such as a plugin: an artifact of the group's own, or what an
    installed module brings under this id."""

    id: str
    """Name of the extension; of a module's one, as the module's manifest has it."""
    variant: str | UnsetType = UNSET
    """Of a module's extension: this variant and no other. Of an artifact: a word for people."""
    module: str | UnsetType = UNSET
    """Module that brings it; needed where there is no `artifact`."""
    artifact: ArtifactSpecInput | UnsetType | None = UNSET
    """The group's own file; null: the module's."""
    install_path: str | UnsetType | None = UNSET
    """Directory of the working directory that the artifact goes to; needed with one."""


class JvmSpec(Struct, frozen=True, kw_only=True):
    """A Java program: used when a group has no `command`."""

    jar: str = ""
    """The jar, relative to the working directory; empty: the artifact's file."""
    args: tuple[str, ...] | UnsetType = UNSET
    """Arguments of the virtual machine; those of the program are the group's `args`."""
    java: str = ""
    """Path of the `java` to use; empty: the one that the node has configured or found."""
    heap_mb: int = 0
    """-Xms and -Xmx in MiB; 0: four fifths of `memory_mb`."""


class WarmupSpec(Struct, frozen=True, kw_only=True):
    """Files that a first run of a program makes and later ones need not make again."""

    paths: tuple[str, ...] | UnsetType = UNSET
    """Globs of what to keep of a first run, such as `libraries/`; empty: nothing."""


class ProbeSpec(Struct, frozen=True, kw_only=True):
    """One probe. An instance is ready once each of its probes has succeeded."""

    kind: ProbeKind
    """What is asked: `log` (a line of the console), `tcp`, `http`, `minecraft` (server list ping, also counts players), `listen` (a process of the instance has a socket there), `command`, or `workload` (the program calls the API itself)."""
    pattern: str = ""
    """Of `log`: a pattern in RE2's syntax that a line must match."""
    port: str = "primary"
    """Of `tcp`, `http`, `minecraft` and `listen`: the name of one of the group's ports."""
    protocol: str | None = None
    """Of `listen`: `tcp` or `udp`; null: that of the port, of which one suffices where it has both."""
    path: str = "/"
    """Of `http`: the path of the request."""
    statuses: tuple[int, ...] | UnsetType = UNSET
    """Of `http`: the statuses that count as success; empty: 200 to 399."""
    command: tuple[str, ...] | UnsetType = UNSET
    """Of `command`: program and arguments, run with the user, directory and environment of the instance; 0 is success."""
    interval_ms: int = 500
    """Time between two attempts, in milliseconds."""
    timeout_ms: int = 5000
    """Time of one attempt, in milliseconds."""


class ProbeSpecInput(Struct, frozen=True, kw_only=True):
    """One probe. An instance is ready once each of its probes has succeeded."""

    kind: ProbeKind
    """What is asked: `log` (a line of the console), `tcp`, `http`, `minecraft` (server list ping, also counts players), `listen` (a process of the instance has a socket there), `command`, or `workload` (the program calls the API itself)."""
    pattern: str | UnsetType = UNSET
    """Of `log`: a pattern in RE2's syntax that a line must match."""
    port: str | UnsetType = UNSET
    """Of `tcp`, `http`, `minecraft` and `listen`: the name of one of the group's ports. Default: `primary`."""
    protocol: Literal["tcp", "udp"] | UnsetType | None = UNSET
    """Of `listen`: `tcp` or `udp`; null: that of the port, of which one suffices where it has both."""
    path: str | UnsetType = UNSET
    """Of `http`: the path of the request. Default: `/`."""
    statuses: Sequence[int] | UnsetType = UNSET
    """Of `http`: the statuses that count as success; empty: 200 to 399. Default: `()`."""
    command: Sequence[str] | UnsetType = UNSET
    """Of `command`: program and arguments, run with the user, directory and environment of the instance; 0 is success. Default: `()`."""
    interval_ms: int | UnsetType = UNSET
    """Time between two attempts, in milliseconds. Default: `500`."""
    timeout_ms: int | UnsetType = UNSET
    """Time of one attempt, in milliseconds. Default: `5000`."""


class ScalingSpec(Struct, frozen=True, kw_only=True):
    """Scaling spec."""

    mode: ScalingMode = ScalingMode("MANUAL")
    """`MANUAL`: `min`, or the number of the last `scale` if that is higher. `STATIC`: `min` alone, and `scale` is refused. `DYNAMIC`: as many as the players need, from `min` to `max`; needs `max_players`."""
    up_threshold: float = 0.8
    """Highest share of `max_players` in use, on the mean of all instances, 0.01 to 1; more players need one more instance."""
    free_slots: int = 0
    """Places for players that are kept free over all instances together."""
    idle_seconds: int = 300
    """An instance is stopped after so long without a player, if it is not needed."""
    window_seconds: int = 300
    """The highest need of this time counts when instances are stopped."""
    cooldown_seconds: int = 60
    """After a change of the number because of load, none is stopped for so long; after a stop, none is started beyond the number it left."""
    max_step: int = 5
    """Most instances that start at once because of load."""


class ScheduleSpec(Struct, frozen=True, kw_only=True):
    """Values that take the place of the group's own for some time, again and again."""

    name: str
    """Name of the schedule, another one for each of the group."""
    cron: str
    """When it begins: minute, hour, day of the month, month and day of the week, such as `0 18 * * FRI`."""
    time_zone: str = "UTC"
    """Zone of these times, a name of the IANA database such as `Europe/Berlin`."""
    duration_seconds: int
    """How long it lasts each time, in elapsed seconds."""
    min: int | None = None
    """`min` of the group while it is active; null: unchanged."""
    max: int | None = None
    """`max` of the group while it is active, and never below `min`; null: unchanged."""
    warm: int | None = None
    """`warm` of the group while it is active; null: unchanged."""
    mode: ScalingMode | None = None
    """`scaling.mode` of the group while it is active; null: unchanged."""
    maintenance: MaintenanceSpec | None = None
    """`maintenance` of the group while it is active, as a whole; null: unchanged."""


class ScheduleSpecInput(Struct, frozen=True, kw_only=True):
    """Values that take the place of the group's own for some time, again and again."""

    name: str
    """Name of the schedule, another one for each of the group."""
    cron: str
    """When it begins: minute, hour, day of the month, month and day of the week, such as `0 18 * * FRI`."""
    time_zone: str | UnsetType = UNSET
    """Zone of these times, a name of the IANA database such as `Europe/Berlin`. Default: `UTC`."""
    duration_seconds: int
    """How long it lasts each time, in elapsed seconds."""
    min: int | UnsetType | None = UNSET
    """`min` of the group while it is active; null: unchanged."""
    max: int | UnsetType | None = UNSET
    """`max` of the group while it is active, and never below `min`; null: unchanged."""
    warm: int | UnsetType | None = UNSET
    """`warm` of the group while it is active; null: unchanged."""
    mode: ScalingMode | UnsetType | None = UNSET
    """`scaling.mode` of the group while it is active; null: unchanged."""
    maintenance: MaintenanceSpecInput | UnsetType | None = UNSET
    """`maintenance` of the group while it is active, as a whole; null: unchanged."""


class MaintenanceSpec(Struct, frozen=True, kw_only=True):
    """A group that is closed to players: its instances are kept, and their number does not follow the load."""

    enabled: bool = False
    """true: the group is closed to players. Its instances run on, `min` is kept, and their number does not follow the load."""
    message: str = ""
    """What players are told."""
    bypass: tuple[str, ...] | UnsetType = UNSET
    """Players, by name or id, who may join all the same; hidden from callers without `instances.sensitive`."""


class MaintenanceSpecInput(Struct, frozen=True, kw_only=True):
    """A group that is closed to players: its instances are kept, and their number does not follow the load."""

    enabled: bool | UnsetType = UNSET
    """true: the group is closed to players. Its instances run on, `min` is kept, and their number does not follow the load. Default: `false`."""
    message: str | UnsetType = UNSET
    """What players are told."""
    bypass: Sequence[str] | UnsetType = UNSET
    """Players, by name or id, who may join all the same; hidden from callers without `instances.sensitive`. Default: `()`."""


class DependencySpec(Struct, frozen=True, kw_only=True):
    """A group that must have ready instances before an instance of this one is started."""

    group: str
    """Name of the group."""
    ready: int = 1
    """How many of its instances must be ready."""


class DependencySpecInput(Struct, frozen=True, kw_only=True):
    """A group that must have ready instances before an instance of this one is started."""

    group: str
    """Name of the group."""
    ready: int | UnsetType = UNSET
    """How many of its instances must be ready. Default: `1`."""


class PortSpec(Struct, frozen=True, kw_only=True):
    """A port each instance needs: any one of a range, this one, or the one beside another port."""

    range: tuple[int, ...] | None = None
    """First and last port, both included: each instance gets one that is free on its node. Either this or `port`."""
    port: int | None = None
    """This very port; then a node can run one instance of the group. Either this or `range`."""
    of: str | None = None
    """Name of another port of the group, to which this one belongs: both are leased, or neither."""
    offset: int = 0
    """With `of`: this port's number is that of the other one plus this."""
    protocol: PortProtocol = PortProtocol("both")
    """`tcp`, `udp`, or `both`: in which of them the port must be free and is reserved."""


class AffinitySpec(Struct, frozen=True, kw_only=True):
    """Nodes that are preferred or avoided: by a label of theirs, or by a group whose instances are there."""

    label: str = ""
    """`KEY=VALUE`: nodes with this label. Either this or `group`."""
    group: str = ""
    """Nodes on which an instance of this group is; it may be the group itself. Either this or `label`."""
    weight: int = 50
    """How much such a node is preferred, up to 100, or avoided, down to -100. Not 0."""
    required: bool = False
    """true: only such nodes may be chosen; with a `weight` below 0 only others."""


class AffinitySpecInput(Struct, frozen=True, kw_only=True):
    """Nodes that are preferred or avoided: by a label of theirs, or by a group whose instances are there."""

    label: str | UnsetType = UNSET
    """`KEY=VALUE`: nodes with this label. Either this or `group`."""
    group: str | UnsetType = UNSET
    """Nodes on which an instance of this group is; it may be the group itself. Either this or `label`."""
    weight: int | UnsetType = UNSET
    """How much such a node is preferred, up to 100, or avoided, down to -100. Not 0. Default: `50`."""
    required: bool | UnsetType = UNSET
    """true: only such nodes may be chosen; with a `weight` below 0 only others. Default: `false`."""


class SpreadSpec(Struct, frozen=True, kw_only=True):
    """The even distribution of a group's instances."""

    by: str = "node"
    """`node`, or the key of a label of nodes, such as `zone`."""
    weight: int = 30
    """How much a place with fewer instances is preferred, from 0 to 100."""
    max_skew: int | None = None
    """Most instances that a place may have more than the one with the fewest; a start that would break it waits. null: no bound."""


class SpreadSpecInput(Struct, frozen=True, kw_only=True):
    """The even distribution of a group's instances."""

    by: str | UnsetType = UNSET
    """`node`, or the key of a label of nodes, such as `zone`. Default: `node`."""
    weight: int | UnsetType = UNSET
    """How much a place with fewer instances is preferred, from 0 to 100. Default: `30`."""
    max_skew: int | UnsetType | None = UNSET
    """Most instances that a place may have more than the one with the fewest; a start that would break it waits. null: no bound."""


class StopRungSpecInput(Struct, frozen=True, kw_only=True):
    """One step of the stop ladder: a command or a signal, then a wait for the exit."""

    command: str | UnsetType | None = UNSET
    """A line for the process's input, such as `stop`. Either this or `signal`."""
    signal: str | UnsetType | None = UNSET
    """A signal for the process: SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 or SIGKILL. Either this or `command`."""
    wait_seconds: float | UnsetType = UNSET
    """How long to wait for the end before the next rung. Default: `30.0`."""


class RestartSpec(Struct, frozen=True, kw_only=True):
    """Restarts on the same node, made by the node itself."""

    on: RestartOn = RestartOn("always")
    """After which ends an instance is started again in its place: `always`; `failure`: not after a clean end, then it stays ended and one fewer is wanted; `never`: likewise after a crash. `min` is kept by other instances in any case."""
    attempts: int = 1
    """How many restarts the node makes within `interval_seconds`; after that the controller decides. 0: none."""
    interval_seconds: int = 300
    """The time over which `attempts` are counted, in seconds."""
    delay_ms: int = 0
    """Wait before a restart, in milliseconds, with jitter; it doubles with each. 0: the first at once, the second after 1 s."""
    max_delay_ms: int = 60000
    """The longest wait before a restart, in milliseconds."""


class CrashLoopSpec(Struct, frozen=True, kw_only=True):
    """When the controller stops trying for a while."""

    failures: int = 3
    """So many crashes and failed starts within `within_seconds` pause the group."""
    within_seconds: int = 300
    """The time over which failures are counted, in seconds."""
    pause_seconds: int = 60
    """The first pause, in seconds; each that follows is twice as long."""
    max_pause_seconds: int = 3600
    """The longest pause, in seconds."""


class DisconnectSpec(Struct, frozen=True, kw_only=True):
    """Both times are counted from the end of the connection, each by the clock of its own side."""

    replace_after_seconds: int | None = 60
    """After so many seconds an instance whose node is away counts no more, and another one is started in its place. A node is given at least three times its own longest pause between two attempts to connect. null: never; a static instance never is."""
    stop_after_seconds: int = 0
    """After so many seconds without a controller the node stops the instance, for groups of which at most one may run. Then `replace_after_seconds` has to be later by the stop ladder and 10 s. 0: never."""


class GateSpecInput(Struct, frozen=True, kw_only=True):
    """The bounds of a metric that canaries report; the time before all of them are reported does not count."""

    min: float | UnsetType | None = UNSET
    """The least value; null: none."""
    max: float | UnsetType | None = UNSET
    """The greatest value; null: none."""


class GroupStatus(Struct, frozen=True, kw_only=True):
    """How a group fares. `wanted` instances are kept, `instances` exist, `ready` of them are ready; `warm` and `lost` come
    on top."""

    wanted: int
    """How many instances are kept now: by the mode, `min`, `target` or the players, with active schedules."""
    target: int
    """How many the last `scale` asked for; 0: there was none."""
    instances: int
    """How many exist and have not ended, without warm and lost ones."""
    ready: int
    """How many of them are ready."""
    warm: int
    """How many are kept warm beside them."""
    lost: int
    """How many are on nodes that are away for longer than the group waits: they do not count, and may be running."""
    draining: int
    """How many of the existing ones take no more players, and are stopped when these have left."""
    scaling: GroupScaling
    """What decides about the number of instances now."""
    maintenance: Maintenance
    """Whether the group is closed to players now, active schedules included."""
    reason: str
    """Why there are fewer than wanted; of one group also why a returned instance and its replacement are both there; empty: neither is the case."""
    paused: CrashLoop | None
    """Set while the group is left alone after too many failures; null: it is not."""
    deleting: bool
    """Its instances are being stopped; the group goes with the last of them."""
    owner: str
    """Whose set of documents the group belongs to; empty: nobody's."""
    file_gone: bool
    """It comes from the controller's directory of groups, and its file was gone when that was read last."""
    hold: Hold | None
    """Set while an operator keeps all of its instances stopped; null: nobody does."""
    deployment: str
    """The id of the deployment that is going on; empty: none is."""
    deployment_revision: int
    """The number of its newest revision; 0: it has none yet."""
    stable_revision: int
    """The revision of its last completed deployment; 0: there was none."""
    pinned_revision: int
    """The revision by which instances are started instead of the document, because a deployment went back to it; 0: by the document."""
    drift: GroupDrift | None
    """Instances that do not run as the present document says. null in lists and in the answer to a change."""
    document_sha256: str
    """The digest of the document as it was written: another one means that somebody has changed it since."""
    created_at: str
    """When it was made, in UTC."""
    updated_at: str
    """When it was last changed, in UTC."""


class GroupScaling(Struct, frozen=True, kw_only=True):
    """What decides about the number of instances now, active schedules included. Where the mode is not DYNAMIC, players
    decide about nothing, and `need` is null."""

    mode: ScalingMode
    """The mode that is in force now."""
    min: int
    """The `min` that is in force now."""
    max: int | None
    """The `max` that is in force now; null: no bound."""
    players: int
    """The players on instances that serve, as far as they are known and as they were reported; of one instance at most `max_players` decide about the number."""
    unknown: int
    """How many instances that serve have an unknown number of players: they count as empty when instances are added, and as full when they are stopped."""
    need: int | None
    """How many instances are needed by the known players, `min` and the floor; null: players decide about nothing."""
    waits_for: str
    """Why a change that the players ask for is not made yet; empty: there is none."""
    floor: ScaleFloor | None
    """An operator's lower bound, while it lasts; null: there is none."""
    last_scale: LastScale | None
    """The last change of the number because of the load; null: there was none."""
    cooldown_until: str | None
    """Until when nothing is stopped after that change, in UTC; null: that is over."""
    schedules: tuple[str, ...]
    """Names of the active schedules, in the order in which they began."""
    changes_at: str | None
    """When a schedule begins or ends next, in UTC; null: not within a year."""


class ScaleFloor(Struct, frozen=True, kw_only=True):
    """An operator's lower bound for the number of instances, for some time."""

    count: int
    """How many instances are kept at least."""
    until: str
    """Until when, in UTC."""


class LastScale(Struct, frozen=True, kw_only=True):
    """The last change of a group's number of instances because of its load."""

    at: str
    """When the number was changed because of the load, in UTC."""
    direction: ScaleDirection
    """`up` or `down`."""
    need: int
    """The number that it led to."""


class Maintenance(Struct, frozen=True, kw_only=True):
    """Whether a group is closed to players now; `schedule` is the one that says so, empty for the group itself."""

    enabled: bool = False
    """true: the group is closed to players. Its instances run on, `min` is kept, and their number does not follow the load."""
    message: str = ""
    """What players are told."""
    bypass: tuple[str, ...] | UnsetType = UNSET
    """Players, by name or id, who may join all the same; hidden from callers without `instances.sensitive`."""
    schedule: str = ""
    """The schedule that sets it now; empty: the group's own field."""


class CrashLoop(Struct, frozen=True, kw_only=True):
    """A group whose instances fail again and again is not started until `until`."""

    since: str
    """When the pause began, in UTC."""
    until: str
    """When the next start is tried, in UTC."""
    pauses: int = 1
    """How many pauses there were in a row; each is longer than the one before."""
    reason: str
    """The failures that led to the pause."""
    decision: str = ""
    """Id of the decision that began it; empty in groups from before this was kept."""
    crash: str = ""
    """Id of the crash that began it; empty: a start failed, or it is from before this was kept."""


class Hold(Struct, frozen=True, kw_only=True):
    """An operator's order to keep every instance of a group stopped."""

    by: str
    """Who holds the group."""
    reason: str
    """Why, in the words of whoever holds it."""
    since: str
    """Since when, in UTC."""
    when_empty: bool = False
    """true: instances are stopped when they have no players."""


class GroupDrift(Struct, frozen=True, kw_only=True):
    """Instances that do not run as the present document says; at most 100 ids of each kind are listed."""

    outdated: tuple[str, ...]
    """Ids of instances that were started by a former document, or with former templates, programs or extensions."""
    outdated_count: int
    """How many are outdated, also those that are not listed."""
    placement: tuple[str, ...]
    """Ids of instances on nodes that the document would not choose now."""
    placement_count: int
    """How many are on such nodes, also those that are not listed."""
    unknown_count: int
    """How many were started before this was recorded, or cannot be compared because the group cannot be planned now."""
    nodes: dict[str, str]
    """By node with such instances, what of it differs from what the document demands; at most 5."""
    command: str
    """The command that brings them up to date; empty: all are, or it would be refused now."""
    refused: str
    """Why a restart would be refused now; empty: it would not, or nothing needs one. Of many instances the first 100 are tried."""
    pinned_revision: int
    """The revision by which instances are started instead of the document, and with which they are compared; 0: the document."""
    document_pending: bool
    """true: the document, or what it names, differs from the pinned revision. `corral deploy` starts by the document again."""


class GroupSummaryPage(Struct, frozen=True, kw_only=True):
    """Some summaries of a list; `total` counts all that the query finds and the caller may see, on all pages."""

    items: tuple[GroupSummary, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""
    total: int
    """How many items there are on all pages together."""


class NewGroup(Struct, frozen=True, kw_only=True):
    """Body of a request: new group."""

    name: str
    """Name of the group: small letters, digits and `-`, at most 56 characters. Instances are called NAME-1, NAME-2, …; the name cannot be changed."""
    parent: str | UnsetType | None = UNSET
    """Group whose document this one is merged into: what is left out here is as there. Empty: none."""
    abstract: bool | UnsetType | None = UNSET
    """true: the group is only a parent of others. It has no instances and need not be complete."""
    runtime: Literal["process", "tmux", "screen"] | UnsetType | None = UNSET
    """How the process is held: `process` (a shim of Corral's), or a session of `tmux` or `screen` to which a user of the node can attach."""
    command: Sequence[str] | UnsetType | None = UNSET
    """Program and arguments, without a shell. `%NAME%` is replaced by variables, such as `%PORT%`. Needed unless `jvm` is there."""
    args: Sequence[str] | UnsetType | None = UNSET
    """Arguments after `command`, or of the Java program when `jvm` runs it."""
    env: Mapping[str, Any] | UnsetType | None = UNSET
    """Environment of the process, beside a few variables of the node. Values may hold `%NAME%`. `LD_PRELOAD`, `LD_AUDIT`, `LD_LIBRARY_PATH` and `CORRAL_…` are refused."""
    variables: Mapping[str, Any] | UnsetType | None = UNSET
    """Values for `%NAME%`, above those of templates and `properties`, below those of node labels and of the single start."""
    variable_types: Mapping[str, Any] | UnsetType | None = UNSET
    """By name: type, bounds and default of a variable. A value that does not fit is refused before anything starts."""
    strict_variables: bool | UnsetType | None = UNSET
    """true: a `%NAME%` without a value fails the start, with its file and line. false: it stays in the text, with a warning."""
    substitute: Sequence[str] | UnsetType | None = UNSET
    """Globs of the files of templates in which `%NAME%` is replaced, such as `*.properties` or `config/**/*.yml`."""
    templates: Sequence[str] | UnsetType | None = UNSET
    """Templates that the working directory is made of, in this order; a later file replaces an earlier one."""
    template_selection: Mapping[str, Any] | UnsetType | None = UNSET
    """More templates, chosen from sets or drawn among equals; they are laid after `templates`."""
    merge: Sequence[str] | UnsetType | None = UNSET
    """Globs of YAML, JSON, TOML and properties files that are merged key by key where several templates have them."""
    patches: Sequence[PatchSpecInput] | UnsetType | None = UNSET
    """Changes of single values in configuration files, made at each start after variables were replaced."""
    artifact: Mapping[str, Any] | UnsetType | None = UNSET
    """The program that nodes download: an entry of the catalog, or a URL with its digest. null: none."""
    extensions: Sequence[ExtensionSpecInput] | UnsetType | None = UNSET
    """More files for the working directory, such as plugins: artifacts of the group, or what installed modules bring."""
    jvm: Mapping[str, Any] | UnsetType | None = UNSET
    """How Java runs the program, where there is no `command`. `{}` is Java with its defaults, running the artifact. null: no Java."""
    warmup: Mapping[str, Any] | UnsetType | None = UNSET
    """What a first run makes and the node keeps for the next instances."""
    category: Category | UnsetType | None = UNSET
    """`server` or `proxy`, a word for modules and dashboards; instances of a `proxy` may read the registries of groups. Empty: that of the catalog's entry."""
    config_format: ConfigFormat | UnsetType | None = UNSET
    """Label for the family of configuration files the program reads. Corral changes no file because of it (`patches` do that); results of `warmup` are kept apart by it. Empty: the label of the catalog's entry."""
    static: bool | UnsetType | None = UNSET
    """true: each instance keeps its directory for good, one for each number, on the node where it first ran. false: each start makes a new directory."""
    protected_paths: Sequence[str] | UnsetType | None = UNSET
    """Globs of files in a static directory that no later start overwrites, such as `world*`."""
    probes: Sequence[ProbeSpecInput] | UnsetType | None = UNSET
    """When an instance counts as ready: once each of these has succeeded. Empty: by the built-in rule (it has lived for `min_alive_ms`, and listens on its port `primary` if it has one)."""
    min: int | UnsetType | None = UNSET
    """How many instances are kept at any time; one that ends is replaced."""
    max: int | UnsetType | None = UNSET
    """Most instances, also for `scale` and starts by hand; null: no bound."""
    scaling: Mapping[str, Any] | UnsetType | None = UNSET
    """What decides about the number of instances."""
    schedules: Sequence[ScheduleSpecInput] | UnsetType | None = UNSET
    """Values that take the place of the group's own for some time, again and again; at most 64. Of several that set one field the one counts that began last, then the one that comes first."""
    maintenance: Mapping[str, Any] | UnsetType | None = UNSET
    """Whether the group is closed to players."""
    warm: int | UnsetType | None = UNSET
    """Ready instances beside those that serve. Not with `static`."""
    min_available: int | str | UnsetType | None = UNSET
    """How many instances, or which share of the wanted ones (`50%`, rounded up), stay healthy while nodes are drained; null: as many as are wanted."""
    priority: int | UnsetType | None = UNSET
    """Which group is placed first when room is short: the higher one. Nothing that runs is stopped for it."""
    depends_on: Sequence[DependencySpecInput] | UnsetType | None = UNSET
    """Groups that must have ready instances before one of this group is started. Nothing that runs is stopped for it."""
    fallback_group: str | UnsetType | None = UNSET
    """Group to which players go when no instance of this one can take them; empty: none."""
    static_names: Sequence[str] | UnsetType | None = UNSET
    """Ids of the first instances, in this order, instead of NAME-1, NAME-2, …; at most 1,000."""
    memory_mb: int | UnsetType | None = UNSET
    """Memory of one instance in MiB: reserved on its node, and a limit where the node has control groups. 0: neither."""
    cpu: float | UnsetType | None = UNSET
    """Processor cores of one instance, such as 1.5: counted when a node is chosen, and a limit where the node has control groups. 0: neither."""
    pids: int | UnsetType | None = UNSET
    """Most processes and threads of one instance, where the node has control groups. 0: no limit."""
    disk_mb: int | UnsetType | None = UNSET
    """Space in MiB that must be free on a node, beside its own reserve, before an instance is prepared there. It is not a quota."""
    console_mb: int | UnsetType | None = UNSET
    """How much of an instance's console the node keeps, in MiB; then the oldest goes."""
    ports: Mapping[str, Any] | UnsetType | None = UNSET
    """Ports that each instance gets for itself, by name. `primary` is `%PORT%` and the instance's `port`; others are `%PORT_NAME%`."""
    max_players: int | UnsetType | None = UNSET
    """`%MAX_PLAYERS%` for configuration files, shown until the server reports its own. 0: unknown."""
    host_address: str | UnsetType | None = UNSET
    """`%HOST_ADDRESS%`: where the program shall listen, and where probes ask. May hold `%NAME%`. Empty: the node's address."""
    nodes: Sequence[str] | UnsetType | None = UNSET
    """Ids of the only nodes that may be chosen; empty: any."""
    node_labels: Mapping[str, Any] | UnsetType | None = UNSET
    """Labels that a node must have, with these values, to be chosen. At most 64."""
    node_capabilities: Sequence[str] | UnsetType | None = UNSET
    """What must be proven to hold on a node for it to be chosen: `cgroup-kill`, `cgroup-freeze`, `memory-limit`, `cpu-limit`, `tty`, `run-as`."""
    affinity: Sequence[AffinitySpecInput] | UnsetType | None = UNSET
    """Nodes that are preferred, avoided or required, by a label or by the instances of a group there."""
    spread: Sequence[SpreadSpecInput] | UnsetType | None = UNSET
    """Over what instances are distributed evenly; the default is over nodes. Empty: over nothing."""
    run_as: str | UnsetType | None = UNSET
    """Account of the node that instances run as; the node must lend it (`instances.allowed_users`). Empty: chosen by `isolate`."""
    isolate: Isolation | UnsetType | None = UNSET
    """`uid`: each instance has a user id of its own. `shared`: all run as `run_as` and can read and signal each other. `auto`: `uid` where the node can and `run_as` is empty."""
    stdin: StdinMode | UnsetType | None = UNSET
    """`fifo`: commands can be sent to the process. `none`: it reads an end of file at once."""
    tty: bool | UnsetType | None = UNSET
    """true: the process has a terminal instead of pipes, for programs that insist on one."""
    line_buffered: bool | UnsetType | None = UNSET
    """true: the program is made to write line by line (`stdbuf -oL`); for programs that hold their output back when it is no terminal."""
    stop: Sequence[StopRungSpecInput] | UnsetType | None = UNSET
    """The ladder: each rung is tried in turn until the process has ended. After the last one everything of the run is killed."""
    startup_timeout_seconds: int | UnsetType | None = UNSET
    """Time from the start's preparation until it is ready; an instance that takes longer is ended and counts as a crash. 0: no bound."""
    min_alive_ms: int | UnsetType | None = UNSET
    """How long an instance has to live, in milliseconds: without probes it is not ready before, and an end that comes sooner is a failure, whatever its exit code."""
    max_lifetime_seconds: int | UnsetType | None = UNSET
    """After this many seconds an instance is stopped by its ladder, and its node starts it again. 0: never."""
    crash_keep_seconds: int | UnsetType | None = UNSET
    """How long a node keeps the directory and console of a crashed run, in seconds; those of a stopped one go at once. Static directories stay."""
    clean_exit_codes: Sequence[int] | UnsetType | None = UNSET
    """Exit codes beside 0 that are no crash when an instance ends by itself after `min_alive_ms`."""
    restart: Mapping[str, Any] | UnsetType | None = UNSET
    """Restarts on the same node, made by the node itself, also while the controller is away."""
    crash_loop: Mapping[str, Any] | UnsetType | None = UNSET
    """When a group that fails again and again is left alone for a while."""
    disconnect: Mapping[str, Any] | UnsetType | None = UNSET
    """What happens to instances whose node has no connection to the controller."""
    update: Mapping[str, Any] | UnsetType | None = UNSET
    """How a deployment replaces instances: how many at once, canaries, when it has failed, and what starts one by itself."""
    labels: Mapping[str, Any] | UnsetType | None = UNSET
    """Words about the group for people and programs, by key; Corral does not act on them. At most 64, of 128 characters each and 1,024 a value."""
    properties: Mapping[str, Any] | UnsetType | None = UNSET
    """Values for `%NAME%` below `variables`; a key `map-size` is `%MAP_SIZE%`. At most 1,000."""


class GroupPatch(Struct, frozen=True, kw_only=True):
    """Body of a request: group patch."""

    name: str | UnsetType | None = UNSET
    """Name of the group: small letters, digits and `-`, at most 56 characters. Instances are called NAME-1, NAME-2, …; the name cannot be changed."""
    parent: str | UnsetType | None = UNSET
    """Group whose document this one is merged into: what is left out here is as there. Empty: none."""
    abstract: bool | UnsetType | None = UNSET
    """true: the group is only a parent of others. It has no instances and need not be complete."""
    runtime: Literal["process", "tmux", "screen"] | UnsetType | None = UNSET
    """How the process is held: `process` (a shim of Corral's), or a session of `tmux` or `screen` to which a user of the node can attach."""
    command: Sequence[str] | UnsetType | None = UNSET
    """Program and arguments, without a shell. `%NAME%` is replaced by variables, such as `%PORT%`. Needed unless `jvm` is there."""
    args: Sequence[str] | UnsetType | None = UNSET
    """Arguments after `command`, or of the Java program when `jvm` runs it."""
    env: Mapping[str, Any] | UnsetType | None = UNSET
    """Environment of the process, beside a few variables of the node. Values may hold `%NAME%`. `LD_PRELOAD`, `LD_AUDIT`, `LD_LIBRARY_PATH` and `CORRAL_…` are refused."""
    variables: Mapping[str, Any] | UnsetType | None = UNSET
    """Values for `%NAME%`, above those of templates and `properties`, below those of node labels and of the single start."""
    variable_types: Mapping[str, Any] | UnsetType | None = UNSET
    """By name: type, bounds and default of a variable. A value that does not fit is refused before anything starts."""
    strict_variables: bool | UnsetType | None = UNSET
    """true: a `%NAME%` without a value fails the start, with its file and line. false: it stays in the text, with a warning."""
    substitute: Sequence[str] | UnsetType | None = UNSET
    """Globs of the files of templates in which `%NAME%` is replaced, such as `*.properties` or `config/**/*.yml`."""
    templates: Sequence[str] | UnsetType | None = UNSET
    """Templates that the working directory is made of, in this order; a later file replaces an earlier one."""
    template_selection: Mapping[str, Any] | UnsetType | None = UNSET
    """More templates, chosen from sets or drawn among equals; they are laid after `templates`."""
    merge: Sequence[str] | UnsetType | None = UNSET
    """Globs of YAML, JSON, TOML and properties files that are merged key by key where several templates have them."""
    patches: Sequence[PatchSpecInput] | UnsetType | None = UNSET
    """Changes of single values in configuration files, made at each start after variables were replaced."""
    artifact: Mapping[str, Any] | UnsetType | None = UNSET
    """The program that nodes download: an entry of the catalog, or a URL with its digest. null: none."""
    extensions: Sequence[ExtensionSpecInput] | UnsetType | None = UNSET
    """More files for the working directory, such as plugins: artifacts of the group, or what installed modules bring."""
    jvm: Mapping[str, Any] | UnsetType | None = UNSET
    """How Java runs the program, where there is no `command`. `{}` is Java with its defaults, running the artifact. null: no Java."""
    warmup: Mapping[str, Any] | UnsetType | None = UNSET
    """What a first run makes and the node keeps for the next instances."""
    category: Category | UnsetType | None = UNSET
    """`server` or `proxy`, a word for modules and dashboards; instances of a `proxy` may read the registries of groups. Empty: that of the catalog's entry."""
    config_format: ConfigFormat | UnsetType | None = UNSET
    """Label for the family of configuration files the program reads. Corral changes no file because of it (`patches` do that); results of `warmup` are kept apart by it. Empty: the label of the catalog's entry."""
    static: bool | UnsetType | None = UNSET
    """true: each instance keeps its directory for good, one for each number, on the node where it first ran. false: each start makes a new directory."""
    protected_paths: Sequence[str] | UnsetType | None = UNSET
    """Globs of files in a static directory that no later start overwrites, such as `world*`."""
    probes: Sequence[ProbeSpecInput] | UnsetType | None = UNSET
    """When an instance counts as ready: once each of these has succeeded. Empty: by the built-in rule (it has lived for `min_alive_ms`, and listens on its port `primary` if it has one)."""
    min: int | UnsetType | None = UNSET
    """How many instances are kept at any time; one that ends is replaced."""
    max: int | UnsetType | None = UNSET
    """Most instances, also for `scale` and starts by hand; null: no bound."""
    scaling: Mapping[str, Any] | UnsetType | None = UNSET
    """What decides about the number of instances."""
    schedules: Sequence[ScheduleSpecInput] | UnsetType | None = UNSET
    """Values that take the place of the group's own for some time, again and again; at most 64. Of several that set one field the one counts that began last, then the one that comes first."""
    maintenance: Mapping[str, Any] | UnsetType | None = UNSET
    """Whether the group is closed to players."""
    warm: int | UnsetType | None = UNSET
    """Ready instances beside those that serve. Not with `static`."""
    min_available: int | str | UnsetType | None = UNSET
    """How many instances, or which share of the wanted ones (`50%`, rounded up), stay healthy while nodes are drained; null: as many as are wanted."""
    priority: int | UnsetType | None = UNSET
    """Which group is placed first when room is short: the higher one. Nothing that runs is stopped for it."""
    depends_on: Sequence[DependencySpecInput] | UnsetType | None = UNSET
    """Groups that must have ready instances before one of this group is started. Nothing that runs is stopped for it."""
    fallback_group: str | UnsetType | None = UNSET
    """Group to which players go when no instance of this one can take them; empty: none."""
    static_names: Sequence[str] | UnsetType | None = UNSET
    """Ids of the first instances, in this order, instead of NAME-1, NAME-2, …; at most 1,000."""
    memory_mb: int | UnsetType | None = UNSET
    """Memory of one instance in MiB: reserved on its node, and a limit where the node has control groups. 0: neither."""
    cpu: float | UnsetType | None = UNSET
    """Processor cores of one instance, such as 1.5: counted when a node is chosen, and a limit where the node has control groups. 0: neither."""
    pids: int | UnsetType | None = UNSET
    """Most processes and threads of one instance, where the node has control groups. 0: no limit."""
    disk_mb: int | UnsetType | None = UNSET
    """Space in MiB that must be free on a node, beside its own reserve, before an instance is prepared there. It is not a quota."""
    console_mb: int | UnsetType | None = UNSET
    """How much of an instance's console the node keeps, in MiB; then the oldest goes."""
    ports: Mapping[str, Any] | UnsetType | None = UNSET
    """Ports that each instance gets for itself, by name. `primary` is `%PORT%` and the instance's `port`; others are `%PORT_NAME%`."""
    max_players: int | UnsetType | None = UNSET
    """`%MAX_PLAYERS%` for configuration files, shown until the server reports its own. 0: unknown."""
    host_address: str | UnsetType | None = UNSET
    """`%HOST_ADDRESS%`: where the program shall listen, and where probes ask. May hold `%NAME%`. Empty: the node's address."""
    nodes: Sequence[str] | UnsetType | None = UNSET
    """Ids of the only nodes that may be chosen; empty: any."""
    node_labels: Mapping[str, Any] | UnsetType | None = UNSET
    """Labels that a node must have, with these values, to be chosen. At most 64."""
    node_capabilities: Sequence[str] | UnsetType | None = UNSET
    """What must be proven to hold on a node for it to be chosen: `cgroup-kill`, `cgroup-freeze`, `memory-limit`, `cpu-limit`, `tty`, `run-as`."""
    affinity: Sequence[AffinitySpecInput] | UnsetType | None = UNSET
    """Nodes that are preferred, avoided or required, by a label or by the instances of a group there."""
    spread: Sequence[SpreadSpecInput] | UnsetType | None = UNSET
    """Over what instances are distributed evenly; the default is over nodes. Empty: over nothing."""
    run_as: str | UnsetType | None = UNSET
    """Account of the node that instances run as; the node must lend it (`instances.allowed_users`). Empty: chosen by `isolate`."""
    isolate: Isolation | UnsetType | None = UNSET
    """`uid`: each instance has a user id of its own. `shared`: all run as `run_as` and can read and signal each other. `auto`: `uid` where the node can and `run_as` is empty."""
    stdin: StdinMode | UnsetType | None = UNSET
    """`fifo`: commands can be sent to the process. `none`: it reads an end of file at once."""
    tty: bool | UnsetType | None = UNSET
    """true: the process has a terminal instead of pipes, for programs that insist on one."""
    line_buffered: bool | UnsetType | None = UNSET
    """true: the program is made to write line by line (`stdbuf -oL`); for programs that hold their output back when it is no terminal."""
    stop: Sequence[StopRungSpecInput] | UnsetType | None = UNSET
    """The ladder: each rung is tried in turn until the process has ended. After the last one everything of the run is killed."""
    startup_timeout_seconds: int | UnsetType | None = UNSET
    """Time from the start's preparation until it is ready; an instance that takes longer is ended and counts as a crash. 0: no bound."""
    min_alive_ms: int | UnsetType | None = UNSET
    """How long an instance has to live, in milliseconds: without probes it is not ready before, and an end that comes sooner is a failure, whatever its exit code."""
    max_lifetime_seconds: int | UnsetType | None = UNSET
    """After this many seconds an instance is stopped by its ladder, and its node starts it again. 0: never."""
    crash_keep_seconds: int | UnsetType | None = UNSET
    """How long a node keeps the directory and console of a crashed run, in seconds; those of a stopped one go at once. Static directories stay."""
    clean_exit_codes: Sequence[int] | UnsetType | None = UNSET
    """Exit codes beside 0 that are no crash when an instance ends by itself after `min_alive_ms`."""
    restart: Mapping[str, Any] | UnsetType | None = UNSET
    """Restarts on the same node, made by the node itself, also while the controller is away."""
    crash_loop: Mapping[str, Any] | UnsetType | None = UNSET
    """When a group that fails again and again is left alone for a while."""
    disconnect: Mapping[str, Any] | UnsetType | None = UNSET
    """What happens to instances whose node has no connection to the controller."""
    update: Mapping[str, Any] | UnsetType | None = UNSET
    """How a deployment replaces instances: how many at once, canaries, when it has failed, and what starts one by itself."""
    labels: Mapping[str, Any] | UnsetType | None = UNSET
    """Words about the group for people and programs, by key; Corral does not act on them. At most 64, of 128 characters each and 1,024 a value."""
    properties: Mapping[str, Any] | UnsetType | None = UNSET
    """Values for `%NAME%` below `variables`; a key `map-size` is `%MAP_SIZE%`. At most 1,000."""


class GroupDocument(Struct, frozen=True, kw_only=True):
    """Body of a request: group document."""

    name: str | UnsetType | None = UNSET
    """Name of the group: small letters, digits and `-`, at most 56 characters. Instances are called NAME-1, NAME-2, …; the name cannot be changed."""
    parent: str | UnsetType | None = UNSET
    """Group whose document this one is merged into: what is left out here is as there. Empty: none."""
    abstract: bool | UnsetType | None = UNSET
    """true: the group is only a parent of others. It has no instances and need not be complete."""
    runtime: Literal["process", "tmux", "screen"] | UnsetType | None = UNSET
    """How the process is held: `process` (a shim of Corral's), or a session of `tmux` or `screen` to which a user of the node can attach."""
    command: Sequence[str] | UnsetType | None = UNSET
    """Program and arguments, without a shell. `%NAME%` is replaced by variables, such as `%PORT%`. Needed unless `jvm` is there."""
    args: Sequence[str] | UnsetType | None = UNSET
    """Arguments after `command`, or of the Java program when `jvm` runs it."""
    env: Mapping[str, Any] | UnsetType | None = UNSET
    """Environment of the process, beside a few variables of the node. Values may hold `%NAME%`. `LD_PRELOAD`, `LD_AUDIT`, `LD_LIBRARY_PATH` and `CORRAL_…` are refused."""
    variables: Mapping[str, Any] | UnsetType | None = UNSET
    """Values for `%NAME%`, above those of templates and `properties`, below those of node labels and of the single start."""
    variable_types: Mapping[str, Any] | UnsetType | None = UNSET
    """By name: type, bounds and default of a variable. A value that does not fit is refused before anything starts."""
    strict_variables: bool | UnsetType | None = UNSET
    """true: a `%NAME%` without a value fails the start, with its file and line. false: it stays in the text, with a warning."""
    substitute: Sequence[str] | UnsetType | None = UNSET
    """Globs of the files of templates in which `%NAME%` is replaced, such as `*.properties` or `config/**/*.yml`."""
    templates: Sequence[str] | UnsetType | None = UNSET
    """Templates that the working directory is made of, in this order; a later file replaces an earlier one."""
    template_selection: Mapping[str, Any] | UnsetType | None = UNSET
    """More templates, chosen from sets or drawn among equals; they are laid after `templates`."""
    merge: Sequence[str] | UnsetType | None = UNSET
    """Globs of YAML, JSON, TOML and properties files that are merged key by key where several templates have them."""
    patches: Sequence[PatchSpecInput] | UnsetType | None = UNSET
    """Changes of single values in configuration files, made at each start after variables were replaced."""
    artifact: Mapping[str, Any] | UnsetType | None = UNSET
    """The program that nodes download: an entry of the catalog, or a URL with its digest. null: none."""
    extensions: Sequence[ExtensionSpecInput] | UnsetType | None = UNSET
    """More files for the working directory, such as plugins: artifacts of the group, or what installed modules bring."""
    jvm: Mapping[str, Any] | UnsetType | None = UNSET
    """How Java runs the program, where there is no `command`. `{}` is Java with its defaults, running the artifact. null: no Java."""
    warmup: Mapping[str, Any] | UnsetType | None = UNSET
    """What a first run makes and the node keeps for the next instances."""
    category: Category | UnsetType | None = UNSET
    """`server` or `proxy`, a word for modules and dashboards; instances of a `proxy` may read the registries of groups. Empty: that of the catalog's entry."""
    config_format: ConfigFormat | UnsetType | None = UNSET
    """Label for the family of configuration files the program reads. Corral changes no file because of it (`patches` do that); results of `warmup` are kept apart by it. Empty: the label of the catalog's entry."""
    static: bool | UnsetType | None = UNSET
    """true: each instance keeps its directory for good, one for each number, on the node where it first ran. false: each start makes a new directory."""
    protected_paths: Sequence[str] | UnsetType | None = UNSET
    """Globs of files in a static directory that no later start overwrites, such as `world*`."""
    probes: Sequence[ProbeSpecInput] | UnsetType | None = UNSET
    """When an instance counts as ready: once each of these has succeeded. Empty: by the built-in rule (it has lived for `min_alive_ms`, and listens on its port `primary` if it has one)."""
    min: int | UnsetType | None = UNSET
    """How many instances are kept at any time; one that ends is replaced."""
    max: int | UnsetType | None = UNSET
    """Most instances, also for `scale` and starts by hand; null: no bound."""
    scaling: Mapping[str, Any] | UnsetType | None = UNSET
    """What decides about the number of instances."""
    schedules: Sequence[ScheduleSpecInput] | UnsetType | None = UNSET
    """Values that take the place of the group's own for some time, again and again; at most 64. Of several that set one field the one counts that began last, then the one that comes first."""
    maintenance: Mapping[str, Any] | UnsetType | None = UNSET
    """Whether the group is closed to players."""
    warm: int | UnsetType | None = UNSET
    """Ready instances beside those that serve. Not with `static`."""
    min_available: int | str | UnsetType | None = UNSET
    """How many instances, or which share of the wanted ones (`50%`, rounded up), stay healthy while nodes are drained; null: as many as are wanted."""
    priority: int | UnsetType | None = UNSET
    """Which group is placed first when room is short: the higher one. Nothing that runs is stopped for it."""
    depends_on: Sequence[DependencySpecInput] | UnsetType | None = UNSET
    """Groups that must have ready instances before one of this group is started. Nothing that runs is stopped for it."""
    fallback_group: str | UnsetType | None = UNSET
    """Group to which players go when no instance of this one can take them; empty: none."""
    static_names: Sequence[str] | UnsetType | None = UNSET
    """Ids of the first instances, in this order, instead of NAME-1, NAME-2, …; at most 1,000."""
    memory_mb: int | UnsetType | None = UNSET
    """Memory of one instance in MiB: reserved on its node, and a limit where the node has control groups. 0: neither."""
    cpu: float | UnsetType | None = UNSET
    """Processor cores of one instance, such as 1.5: counted when a node is chosen, and a limit where the node has control groups. 0: neither."""
    pids: int | UnsetType | None = UNSET
    """Most processes and threads of one instance, where the node has control groups. 0: no limit."""
    disk_mb: int | UnsetType | None = UNSET
    """Space in MiB that must be free on a node, beside its own reserve, before an instance is prepared there. It is not a quota."""
    console_mb: int | UnsetType | None = UNSET
    """How much of an instance's console the node keeps, in MiB; then the oldest goes."""
    ports: Mapping[str, Any] | UnsetType | None = UNSET
    """Ports that each instance gets for itself, by name. `primary` is `%PORT%` and the instance's `port`; others are `%PORT_NAME%`."""
    max_players: int | UnsetType | None = UNSET
    """`%MAX_PLAYERS%` for configuration files, shown until the server reports its own. 0: unknown."""
    host_address: str | UnsetType | None = UNSET
    """`%HOST_ADDRESS%`: where the program shall listen, and where probes ask. May hold `%NAME%`. Empty: the node's address."""
    nodes: Sequence[str] | UnsetType | None = UNSET
    """Ids of the only nodes that may be chosen; empty: any."""
    node_labels: Mapping[str, Any] | UnsetType | None = UNSET
    """Labels that a node must have, with these values, to be chosen. At most 64."""
    node_capabilities: Sequence[str] | UnsetType | None = UNSET
    """What must be proven to hold on a node for it to be chosen: `cgroup-kill`, `cgroup-freeze`, `memory-limit`, `cpu-limit`, `tty`, `run-as`."""
    affinity: Sequence[AffinitySpecInput] | UnsetType | None = UNSET
    """Nodes that are preferred, avoided or required, by a label or by the instances of a group there."""
    spread: Sequence[SpreadSpecInput] | UnsetType | None = UNSET
    """Over what instances are distributed evenly; the default is over nodes. Empty: over nothing."""
    run_as: str | UnsetType | None = UNSET
    """Account of the node that instances run as; the node must lend it (`instances.allowed_users`). Empty: chosen by `isolate`."""
    isolate: Isolation | UnsetType | None = UNSET
    """`uid`: each instance has a user id of its own. `shared`: all run as `run_as` and can read and signal each other. `auto`: `uid` where the node can and `run_as` is empty."""
    stdin: StdinMode | UnsetType | None = UNSET
    """`fifo`: commands can be sent to the process. `none`: it reads an end of file at once."""
    tty: bool | UnsetType | None = UNSET
    """true: the process has a terminal instead of pipes, for programs that insist on one."""
    line_buffered: bool | UnsetType | None = UNSET
    """true: the program is made to write line by line (`stdbuf -oL`); for programs that hold their output back when it is no terminal."""
    stop: Sequence[StopRungSpecInput] | UnsetType | None = UNSET
    """The ladder: each rung is tried in turn until the process has ended. After the last one everything of the run is killed."""
    startup_timeout_seconds: int | UnsetType | None = UNSET
    """Time from the start's preparation until it is ready; an instance that takes longer is ended and counts as a crash. 0: no bound."""
    min_alive_ms: int | UnsetType | None = UNSET
    """How long an instance has to live, in milliseconds: without probes it is not ready before, and an end that comes sooner is a failure, whatever its exit code."""
    max_lifetime_seconds: int | UnsetType | None = UNSET
    """After this many seconds an instance is stopped by its ladder, and its node starts it again. 0: never."""
    crash_keep_seconds: int | UnsetType | None = UNSET
    """How long a node keeps the directory and console of a crashed run, in seconds; those of a stopped one go at once. Static directories stay."""
    clean_exit_codes: Sequence[int] | UnsetType | None = UNSET
    """Exit codes beside 0 that are no crash when an instance ends by itself after `min_alive_ms`."""
    restart: Mapping[str, Any] | UnsetType | None = UNSET
    """Restarts on the same node, made by the node itself, also while the controller is away."""
    crash_loop: Mapping[str, Any] | UnsetType | None = UNSET
    """When a group that fails again and again is left alone for a while."""
    disconnect: Mapping[str, Any] | UnsetType | None = UNSET
    """What happens to instances whose node has no connection to the controller."""
    update: Mapping[str, Any] | UnsetType | None = UNSET
    """How a deployment replaces instances: how many at once, canaries, when it has failed, and what starts one by itself."""
    labels: Mapping[str, Any] | UnsetType | None = UNSET
    """Words about the group for people and programs, by key; Corral does not act on them. At most 64, of 128 characters each and 1,024 a value."""
    properties: Mapping[str, Any] | UnsetType | None = UNSET
    """Values for `%NAME%` below `variables`; a key `map-size` is `%MAP_SIZE%`. At most 1,000."""


class UpdateOptions(Struct, frozen=True, kw_only=True):
    """Body of a request: update options."""

    strategy: UpdateStrategy | UnsetType | None = UNSET
    """`rolling`: instances are replaced a few at a time. `canary`: `canary` of them first, the others when these were healthy for `canary_seconds` with every metric of `gate` within its bounds."""
    max_surge: int | str | UnsetType | None = UNSET
    """How many instances above the wanted number may be started meanwhile: a number, or a share such as `25%` (rounded up). null: 1; of a static group 0, and nothing else is possible there."""
    max_unavailable: int | str | UnsetType | None = UNSET
    """How many instances may be missing from the wanted number meanwhile: a number, or a share such as `25%` (rounded up). null: 0; of a static group 1. Not 0 together with `max_surge`."""
    canary: int | str | UnsetType | None = UNSET
    """How many canaries there are: a number, or a share such as `10%` (rounded up); no more than wanted."""
    canary_seconds: int | UnsetType | None = UNSET
    """How long canaries have to be healthy before the others follow, in seconds."""
    promote: Promotion | UnsetType | None = UNSET
    """`auto`: the others follow by themselves. `manual`: they wait until the deployment is promoted."""
    min_healthy_seconds: int | UnsetType | None = UNSET
    """An instance counts as healthy when it has been ready for so many seconds without a crash or restart, and as unhealthy when it has not been ready for as long."""
    progress_seconds: int | UnsetType | None = UNSET
    """A deployment fails after so many seconds without one more healthy instance or one more retired. Waiting for players, for a node that may come back, and pauses do not count."""
    max_failures: int | UnsetType | None = UNSET
    """A deployment fails when so many of its new instances have crashed or were refused."""
    auto_rollback: bool | UnsetType | None = UNSET
    """true: a deployment that fails goes back to the last revision that was completed."""
    drain_seconds: int | UnsetType | None = UNSET
    """How long the players of a retired instance are waited for, in seconds; then it is stopped. null: until the last one has left."""
    gate: Mapping[str, GateSpecInput] | UnsetType | None = UNSET
    """Bounds of metrics that canaries report, by the name of the metric. At most 16. A metric that a canary does not report is out of bounds."""


class RevisionPage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Revision, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class Revision(Struct, frozen=True, kw_only=True):
    """A revision of a group without its document. `changed` names what differs from the revision before."""

    group: str
    """Name of the group."""
    number: int
    """Number of the revision; it grows with each."""
    created_at: str
    """When it was made, in UTC."""
    by: str
    """Who made it, or the decision behind it."""
    trigger: str
    """What it was made for: `start`, `manual`, `restart`, or what a deployment by itself followed."""
    restart: int
    """The last revision that was made to restart everything, up to this one; 0: there was none."""
    basis: str
    """Digest of all that instances of it are made of. Two revisions with the same one have the same contents."""
    stable: bool
    """It is the one of the last completed deployment."""
    pinned: bool
    """New instances are started by it, and not by the document."""
    instances: int
    """How many live instances were started by it."""
    changed: tuple[str, ...]
    """What differs from the revision before: fields of the document, `template NAME`, `program`, `extension files`, `restart`."""


class RevisionDocument(Struct, frozen=True, kw_only=True):
    """A revision with its document and the contents that this named. `maintenance`, `nodes`, `schedules` and
    `static_names` are always those of the present document: a revision has none."""

    group: str
    """Name of the group."""
    number: int
    """Number of the revision; it grows with each."""
    created_at: str
    """When it was made, in UTC."""
    by: str
    """Who made it, or the decision behind it."""
    trigger: str
    """What it was made for: `start`, `manual`, `restart`, or what a deployment by itself followed."""
    restart: int
    """The last revision that was made to restart everything, up to this one; 0: there was none."""
    basis: str
    """Digest of all that instances of it are made of. Two revisions with the same one have the same contents."""
    stable: bool
    """It is the one of the last completed deployment."""
    pinned: bool
    """New instances are started by it, and not by the document."""
    instances: int
    """How many live instances were started by it."""
    changed: tuple[str, ...]
    """What differs from the revision before: fields of the document, `template NAME`, `program`, `extension files`, `restart`."""
    document: GroupSpec
    """The document of the group as it was, with the fields of its parents and all defaults."""
    templates: tuple[PlanTemplate, ...]
    """The versions of its templates."""
    artifact: PlanArtifact | None
    """Its program, with digest; null: it has none."""
    extensions: tuple[PlanExtension, ...]
    """The files of its extensions, with digests."""


class GroupSpec(Struct, frozen=True, kw_only=True):
    """A group as its operator desires it."""

    name: str
    """Name of the group: small letters, digits and `-`, at most 56 characters. Instances are called NAME-1, NAME-2, …; the name cannot be changed."""
    parent: str = ""
    """Group whose document this one is merged into: what is left out here is as there. Empty: none."""
    abstract: bool = False
    """true: the group is only a parent of others. It has no instances and need not be complete."""
    runtime: str = "process"
    """How the process is held: `process` (a shim of Corral's), or a session of `tmux` or `screen` to which a user of the node can attach."""
    command: tuple[str, ...] | UnsetType = UNSET
    """Program and arguments, without a shell. `%NAME%` is replaced by variables, such as `%PORT%`. Needed unless `jvm` is there."""
    args: tuple[str, ...] | UnsetType = UNSET
    """Arguments after `command`, or of the Java program when `jvm` runs it."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment of the process, beside a few variables of the node. Values may hold `%NAME%`. `LD_PRELOAD`, `LD_AUDIT`, `LD_LIBRARY_PATH` and `CORRAL_…` are refused."""
    variables: dict[str, str] = field(default_factory=dict)
    """Values for `%NAME%`, above those of templates and `properties`, below those of node labels and of the single start."""
    variable_types: dict[str, VariableSpec] = field(default_factory=dict)
    """By name: type, bounds and default of a variable. A value that does not fit is refused before anything starts."""
    strict_variables: bool = False
    """true: a `%NAME%` without a value fails the start, with its file and line. false: it stays in the text, with a warning."""
    substitute: tuple[str, ...] | UnsetType = UNSET
    """Globs of the files of templates in which `%NAME%` is replaced, such as `*.properties` or `config/**/*.yml`."""
    templates: tuple[str, ...] | UnsetType = UNSET
    """Templates that the working directory is made of, in this order; a later file replaces an earlier one."""
    template_selection: TemplateSelection | UnsetType = UNSET
    """More templates, chosen from sets or drawn among equals; they are laid after `templates`."""
    merge: tuple[str, ...] | UnsetType = UNSET
    """Globs of YAML, JSON, TOML and properties files that are merged key by key where several templates have them."""
    patches: tuple[PatchSpec, ...] | UnsetType = UNSET
    """Changes of single values in configuration files, made at each start after variables were replaced."""
    artifact: ArtifactSpec | None = None
    """The program that nodes download: an entry of the catalog, or a URL with its digest. null: none."""
    extensions: tuple[ExtensionSpec, ...] | UnsetType = UNSET
    """More files for the working directory, such as plugins: artifacts of the group, or what installed modules bring."""
    jvm: JvmSpec | None = None
    """How Java runs the program, where there is no `command`. `{}` is Java with its defaults, running the artifact. null: no Java."""
    warmup: WarmupSpec | UnsetType = UNSET
    """What a first run makes and the node keeps for the next instances."""
    category: Category = Category("")
    """`server` or `proxy`, a word for modules and dashboards; instances of a `proxy` may read the registries of groups. Empty: that of the catalog's entry."""
    config_format: ConfigFormat = ConfigFormat("")
    """Label for the family of configuration files the program reads. Corral changes no file because of it (`patches` do that); results of `warmup` are kept apart by it. Empty: the label of the catalog's entry."""
    static: bool = False
    """true: each instance keeps its directory for good, one for each number, on the node where it first ran. false: each start makes a new directory."""
    protected_paths: tuple[str, ...] | UnsetType = UNSET
    """Globs of files in a static directory that no later start overwrites, such as `world*`."""
    probes: tuple[ProbeSpec, ...] | UnsetType = UNSET
    """When an instance counts as ready: once each of these has succeeded. Empty: by the built-in rule (it has lived for `min_alive_ms`, and listens on its port `primary` if it has one)."""
    min: int = 0
    """How many instances are kept at any time; one that ends is replaced."""
    max: int | None = None
    """Most instances, also for `scale` and starts by hand; null: no bound."""
    scaling: ScalingSpec | UnsetType = UNSET
    """What decides about the number of instances."""
    schedules: tuple[ScheduleSpec, ...] | UnsetType = UNSET
    """Values that take the place of the group's own for some time, again and again; at most 64. Of several that set one field the one counts that began last, then the one that comes first."""
    maintenance: MaintenanceSpec | UnsetType = UNSET
    """Whether the group is closed to players."""
    warm: int = 0
    """Ready instances beside those that serve. Not with `static`."""
    min_available: int | str | None = None
    """How many instances, or which share of the wanted ones (`50%`, rounded up), stay healthy while nodes are drained; null: as many as are wanted."""
    priority: int = 50
    """Which group is placed first when room is short: the higher one. Nothing that runs is stopped for it."""
    depends_on: tuple[DependencySpec, ...] | UnsetType = UNSET
    """Groups that must have ready instances before one of this group is started. Nothing that runs is stopped for it."""
    fallback_group: str = ""
    """Group to which players go when no instance of this one can take them; empty: none."""
    static_names: tuple[str, ...] | UnsetType = UNSET
    """Ids of the first instances, in this order, instead of NAME-1, NAME-2, …; at most 1,000."""
    memory_mb: int = 0
    """Memory of one instance in MiB: reserved on its node, and a limit where the node has control groups. 0: neither."""
    cpu: float = 0.0
    """Processor cores of one instance, such as 1.5: counted when a node is chosen, and a limit where the node has control groups. 0: neither."""
    pids: int = 0
    """Most processes and threads of one instance, where the node has control groups. 0: no limit."""
    disk_mb: int = 0
    """Space in MiB that must be free on a node, beside its own reserve, before an instance is prepared there. It is not a quota."""
    console_mb: int = 256
    """How much of an instance's console the node keeps, in MiB; then the oldest goes."""
    ports: dict[str, PortSpec] = field(default_factory=dict)
    """Ports that each instance gets for itself, by name. `primary` is `%PORT%` and the instance's `port`; others are `%PORT_NAME%`."""
    max_players: int = 0
    """`%MAX_PLAYERS%` for configuration files, shown until the server reports its own. 0: unknown."""
    host_address: str = ""
    """`%HOST_ADDRESS%`: where the program shall listen, and where probes ask. May hold `%NAME%`. Empty: the node's address."""
    nodes: tuple[str, ...] | UnsetType = UNSET
    """Ids of the only nodes that may be chosen; empty: any."""
    node_labels: dict[str, str] = field(default_factory=dict)
    """Labels that a node must have, with these values, to be chosen. At most 64."""
    node_capabilities: tuple[str, ...] | UnsetType = UNSET
    """What must be proven to hold on a node for it to be chosen: `cgroup-kill`, `cgroup-freeze`, `memory-limit`, `cpu-limit`, `tty`, `run-as`."""
    affinity: tuple[AffinitySpec, ...] | UnsetType = UNSET
    """Nodes that are preferred, avoided or required, by a label or by the instances of a group there."""
    spread: tuple[SpreadSpec, ...] | UnsetType = UNSET
    """Over what instances are distributed evenly; the default is over nodes. Empty: over nothing."""
    run_as: str = ""
    """Account of the node that instances run as; the node must lend it (`instances.allowed_users`). Empty: chosen by `isolate`."""
    isolate: Isolation = Isolation("auto")
    """`uid`: each instance has a user id of its own. `shared`: all run as `run_as` and can read and signal each other. `auto`: `uid` where the node can and `run_as` is empty."""
    stdin: StdinMode = StdinMode("fifo")
    """`fifo`: commands can be sent to the process. `none`: it reads an end of file at once."""
    tty: bool = False
    """true: the process has a terminal instead of pipes, for programs that insist on one."""
    line_buffered: bool = False
    """true: the program is made to write line by line (`stdbuf -oL`); for programs that hold their output back when it is no terminal."""
    stop: tuple[StopRungSpec, ...] | UnsetType = UNSET
    """The ladder: each rung is tried in turn until the process has ended. After the last one everything of the run is killed."""
    startup_timeout_seconds: int = 60
    """Time from the start's preparation until it is ready; an instance that takes longer is ended and counts as a crash. 0: no bound."""
    min_alive_ms: int = 1500
    """How long an instance has to live, in milliseconds: without probes it is not ready before, and an end that comes sooner is a failure, whatever its exit code."""
    max_lifetime_seconds: int = 0
    """After this many seconds an instance is stopped by its ladder, and its node starts it again. 0: never."""
    crash_keep_seconds: int = 3600
    """How long a node keeps the directory and console of a crashed run, in seconds; those of a stopped one go at once. Static directories stay."""
    clean_exit_codes: tuple[int, ...] | UnsetType = UNSET
    """Exit codes beside 0 that are no crash when an instance ends by itself after `min_alive_ms`."""
    restart: RestartSpec | UnsetType = UNSET
    """Restarts on the same node, made by the node itself, also while the controller is away."""
    crash_loop: CrashLoopSpec | UnsetType = UNSET
    """When a group that fails again and again is left alone for a while."""
    disconnect: DisconnectSpec | UnsetType = UNSET
    """What happens to instances whose node has no connection to the controller."""
    update: UpdateSpec | UnsetType = UNSET
    """How a deployment replaces instances: how many at once, canaries, when it has failed, and what starts one by itself."""
    labels: dict[str, str] = field(default_factory=dict)
    """Words about the group for people and programs, by key; Corral does not act on them. At most 64, of 128 characters each and 1,024 a value."""
    properties: dict[str, str] = field(default_factory=dict)
    """Values for `%NAME%` below `variables`; a key `map-size` is `%MAP_SIZE%`. At most 1,000."""


class ResolvedGroup(Struct, frozen=True, kw_only=True):
    """The document that instances of a group are made by, and the place of each of its values. `origins` has the path of a
    value and the group in whose document it was written; what is not in it is a default."""

    name: str
    """Name of the group."""
    ancestors: tuple[str, ...]
    """Its parent, the parent's parent and so on, the nearest first."""
    document: GroupSpec
    """The document by which its instances are made, with the fields of its parents and all defaults."""
    origins: dict[str, str]
    """By the path of a value, such as `ports/primary/range`: the group in whose document it was written. What is not listed is a default."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class Registry(Struct, frozen=True, kw_only=True):
    """The instances of a group that take players: ready, and neither warm nor about to stop. A held group has none: those
    that still run are to become empty."""

    group: str
    """Name of the group."""
    held: bool
    """An operator holds the group: it takes no players, and `instances` is empty."""
    maintenance: Maintenance
    """Whether the group is closed to players now, active schedules included."""
    fallback: tuple[Fallback, ...]
    """The groups that take the players of this one when it cannot, the nearest first, at most 32."""
    ready: int
    """How many instances take players, on all pages together."""
    instances: tuple[RegistryInstance, ...]
    """The instances of this page that take players, by id."""
    without_address: tuple[str, ...]
    """Ids of instances of this page that are left out because their node gives no address that players can be sent to; at most 100."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class Fallback(Struct, frozen=True, kw_only=True):
    """A group that takes the players of one that cannot."""

    group: str
    """Name of the group."""
    ready: int
    """How many of its instances take players."""
    maintenance: bool
    """It is closed to players now, active schedules included."""


class RegistryInstance(Struct, frozen=True, kw_only=True):
    """An instance that takes players."""

    id: str
    """Id of the instance."""
    node: str
    """Id of the node."""
    address: str
    """The address that its node gives: a name or an IP address, IPv6 without brackets."""
    port: int | None
    """Its port `primary`; null: it has none."""
    ports: dict[str, int]
    """All of its ports, by name."""
    players: int | None
    """How many players it has; null: unknown."""
    max_players: int
    """How many it takes: as it reported, else `max_players` of the group. 0: unknown."""


class DocumentInput(Struct, frozen=True, kw_only=True):
    """Body of a request: document input."""

    path: str | UnsetType = UNSET
    """Where its author has it, such as a file and a line: errors name it."""
    body: Any
    """The document of a group, as in `POST /api/v1/groups`. What it leaves out is as in its parent, or the default."""


class Apply(Struct, frozen=True, kw_only=True):
    """Apply."""

    dry_run: bool
    """Nothing was changed."""
    summary: str
    """The numbers as a sentence."""
    created: int
    """How many groups are new."""
    changed: int
    """How many groups are changed, also those that inherit a change."""
    unchanged: int
    """How many groups of the set were not written, because they are as they were."""
    deleted: int
    """How many groups are deleted, or are once their instances have ended."""
    groups: tuple[GroupChange, ...]
    """Every group of the set, and those that inherit a change or are deleted, by name."""
    decisions: tuple[Planned, ...]
    """Of a dry run: what the reconciler would decide at once for the groups that change, at most 200."""
    decisions_count: int
    """How many decisions there are, also those that are not listed."""
    unfinished: tuple[str, ...]
    """Of a dry run: groups for which more would follow after these decisions."""
    revision: int
    """The commit that has the change; of a dry run, and where nothing changes, the one that it was computed on."""


class GroupChange(Struct, frozen=True, kw_only=True):
    """What a set of documents makes of one group."""

    name: str
    """The group."""
    path: str
    """Of its document; empty: it is not in the set, and inherits a change or is deleted."""
    action: Action
    """What becomes of it."""
    adopted: bool
    """Its document stays, and its owner or the mark of the last apply changes."""
    changes: tuple[FieldChange, ...]
    """The fields that differ, with inherited ones and defaults; none of a new group."""
    outdated: tuple[str, ...]
    """Ids of instances that go on as they were started until they are restarted; at most 100."""
    outdated_count: int
    """How many are outdated, also those that are not listed."""
    placement: tuple[str, ...]
    """Ids of instances that would be on nodes which the document does not choose; at most 100."""
    placement_count: int
    """How many are on such nodes, also those that are not listed."""
    stopped: tuple[str, ...]
    """Instances that are stopped because their group is deleted; at most 100."""
    stopped_count: int
    """How many are stopped, also those that are not listed."""
    held: bool
    """Whether the group is held: nothing is started until it is released."""


class FieldChange(Struct, frozen=True, kw_only=True):
    """Field change."""

    field: str
    """The field of the document."""
    effect: FieldEffect
    """When the change acts: in the next pass, at the next placement of an instance, or when an instance is restarted."""
    before: Any
    """Its value now; null also where the values of all groups have more than 1 MiB."""
    after: Any
    """Its value then; null as with `before`."""


class Reload(Struct, frozen=True, kw_only=True):
    """Reload."""

    summary: str
    """The numbers as a sentence."""
    groups: tuple[GroupChange, ...]
    """Every group of the directory, and those that inherit a change or are deleted, by name."""
    errors: tuple[DocumentError, ...]
    """Documents that are refused, by file: their groups stay as they are."""
    gone: tuple[str, ...]
    """Groups of the directory whose file is gone: they stay until they are deleted, or a reload prunes them."""


class DocumentError(Struct, frozen=True, kw_only=True):
    """One refused document of several."""

    code: str
    """Stable name of the error, as in docs/reference/errors.md."""
    message: str
    """What is wrong."""
    path: str = ""
    """Of the document, as it was sent; empty: of a group that is not in the set."""
    group: str = ""
    """The group, if the document has a name."""
    field: str | None = None
    """Where in the document."""
    hint: str | None = None
    """What to do about it."""
