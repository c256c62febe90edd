"""The document of a group, as in the API, files and the store: commands, ports, restarts, and the files of
its instances (templates, merges, patches, artifacts, extensions).

Parsed strictly, an unknown key is an error. What the types cannot express is checked by `group_checks`.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final

import msgspec

from corral.domain.groups.disconnect_spec import DisconnectSpec
from corral.domain.groups.probes import ProbeSpec
from corral.domain.groups.scaling_spec import SCHEDULES, MaintenanceSpec, ScalingSpec, ScheduleSpec
from corral.domain.groups.update_spec import UpdateSpec
from corral.domain.spec import (
    Argument,
    Count,
    Digest,
    Milliseconds,
    PathText,
    PortNumber,
    Seconds,
    Share,
    Spec,
    VariableSpec,
)


class TemplateChoice(Spec, frozen=True, kw_only=True):
    """A template, or a group of templates, among those a group is made of."""

    name: Annotated[str, msgspec.Meta(max_length=127)]
    """`name` or `group/name`; in the lists of groups the group's name."""
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] = 0
    override: bool = True
    """False: a file that is there already stays."""


class TemplateSelection(Spec, frozen=True, kw_only=True):
    """Templates beside the ordered chain. Picks are sorted by priority, ties by name, and follow the chain."""

    all_of: tuple[TemplateChoice, ...] = ()
    all_in_groups: tuple[TemplateChoice, ...] = ()
    one_of: tuple[TemplateChoice, ...] = ()
    """Templates of the highest priority; among equals one is drawn, and the draw recorded."""
    one_in_groups: tuple[TemplateChoice, ...] = ()
    """The same, over the templates of these groups; each has the priority of its group."""


class PatchOp(enum.StrEnum):
    SET = "set"
    """The key gets the value, whether it was there or not."""
    REPLACE = "replace"
    """The key, which must be there, gets the value."""
    REGEX = "regex"
    """`path` is a pattern (RE2) over the file's text; every match becomes `value`, with `\\1` for groups."""


class PatchSpec(Spec, frozen=True, kw_only=True):
    """A change of a configuration file: properties, YAML, JSON or TOML by its ending, or by `format`."""

    file: PathText
    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    """`a.b.c`, `a.0.b` for lists, `a."b.c"` for a key with a dot; a whole key in properties."""
    op: PatchOp = PatchOp.SET
    value: Any = ""
    format: Annotated[str, msgspec.Meta(pattern="^(|properties|yaml|json|toml|text)$")] = ""


class Category(enum.StrEnum):
    NONE = ""
    SERVER = "server"
    PROXY = "proxy"


class ConfigFormat(enum.StrEnum):
    NONE = ""
    PAPER = "paper"
    SPIGOT = "spigot"
    VELOCITY = "velocity"
    BUNGEECORD = "bungeecord"
    GEYSER = "geyser"


class ArtifactSpec(Spec, frozen=True, kw_only=True):
    """The program of an instance, brought to the node: an entry of the catalog, or a URL with its digest."""

    platform: Annotated[str, msgspec.Meta(max_length=63)] = ""
    version: Annotated[str, msgspec.Meta(max_length=63)] = ""
    """With `platform`: the entry of the catalog."""
    url: Annotated[str, msgspec.Meta(max_length=2048)] = ""
    sha256: Digest = ""
    """With `url`, and needed then."""
    file: PathText = ""
    """Its place in the working directory; empty: the catalog's file name, or the last part of the URL."""


class ExtensionSpec(Spec, frozen=True, kw_only=True):
    """A file that goes into a group's instances, such as a plugin: an artifact of the group's own, or what an
    installed module brings under this id."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    variant: Annotated[str, msgspec.Meta(max_length=63)] = ""
    """Of a module's extension: this one and no other. Of an artifact: a word for people."""
    module: Annotated[str, msgspec.Meta(max_length=63)] = ""
    """The module that has it, needed where there is no artifact; empty: the group."""
    artifact: ArtifactSpec | None = None
    """None: the module's own file."""
    install_path: PathText | None = None
    """The directory an artifact goes to, and needed with one; its file name is the artifact's. A
    module's own file goes where its manifest has it."""


class JvmSpec(Spec, frozen=True, kw_only=True):
    """A Java program: used when a group has no `command`."""

    jar: PathText = ""
    """Relative to the working directory; empty: the artifact's file."""
    args: tuple[Annotated[str, msgspec.Meta(max_length=131_072)], ...] = ()
    """Of the virtual machine; the program's own are the group's `args`."""
    java: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    """The `java` to use; empty: the node's configured or found one."""
    heap_mb: Annotated[int, msgspec.Meta(ge=0, le=16_777_216)] = 0
    """-Xms and -Xmx; 0: four fifths of `memory_mb`, for a machine needs more than its heap."""


class WarmupSpec(Spec, frozen=True, kw_only=True):
    """Files that a first run of a program makes and later ones need not make again."""

    paths: tuple[PathText, ...] = ()
    """Globs; kept by the node for (group, user, these paths, config format, version, artifact digest), of
    instances with a user of their own. Empty: nothing is."""


PRIMARY: Final = "primary"
BLOCKED_VARIABLES: Final = frozenset({"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"})
"""Refused in `env`: they change what other programs of the run load before these can refuse it."""
RESERVED_PREFIX: Final = "CORRAL_"
SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGKILL")
ExitCode = Annotated[int, msgspec.Meta(ge=1, le=255)]
RUNTIMES: Final = ("process", "tmux", "screen")
NODE_CAPABILITIES: Final = ("cgroup-kill", "cgroup-freeze", "memory-limit", "cpu-limit", "tty", "run-as")
"""Capabilities that a daemon may prove to have on its node."""


class PortProtocol(enum.StrEnum):
    TCP = "tcp"
    UDP = "udp"
    BOTH = "both"


class PortSpec(Spec, frozen=True, kw_only=True):
    """A port each instance needs: any one of a range, this one, or the one beside another port."""

    range: tuple[PortNumber, PortNumber] | None = None
    port: PortNumber | None = None
    of: Annotated[str, msgspec.Meta(max_length=63)] | None = None
    """The port of this group that it is tied to: its number is that port's and `offset`; see `port_sets`."""
    offset: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] = 0
    protocol: PortProtocol = PortProtocol.BOTH

    def bounds(self) -> tuple[int, int]:
        """Of a port that is not tied to another."""
        if self.port is not None:
            return self.port, self.port
        assert self.range is not None
        return self.range


class StopRungSpec(Spec, frozen=True, kw_only=True):
    """One step of the stop ladder: a command or a signal, then a wait for the exit."""

    command: Annotated[str, msgspec.Meta(max_length=4095)] | None = None
    signal: str | None = None
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0


DEFAULT_LADDER: Final = (
    StopRungSpec(command="stop", wait_seconds=30.0),
    StopRungSpec(signal="SIGTERM", wait_seconds=10.0),
)
"""The default stop ladder. After the last rung of any ladder every process of the run is killed."""


class RestartOn(enum.StrEnum):
    """After which exits an instance is started again in its place."""

    ALWAYS = "always"
    FAILURE = "failure"
    """Not after a clean exit: then it stays ended."""
    NEVER = "never"
    """Nor after a crash; other instances still keep `min`."""


class RestartSpec(Spec, frozen=True, kw_only=True):
    """Restarts on the same node, made by the node itself."""

    on: RestartOn = RestartOn.ALWAYS
    attempts: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    """How many within `interval_seconds`; beyond that the controller decides."""
    interval_seconds: Seconds = 300
    delay_ms: Milliseconds = 0
    """Before the first; doubles with each, with jitter. 0: the first at once, the second after 1 s."""
    max_delay_ms: Milliseconds = 60_000


class CrashLoopSpec(Spec, frozen=True, kw_only=True):
    """When the controller stops trying for a while."""

    failures: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    within_seconds: Seconds = 300
    pause_seconds: Seconds = 60
    """The first pause; doubles with each that follows, up to `max_pause_seconds`."""
    max_pause_seconds: Seconds = 3600


class Isolation(enum.StrEnum):
    """Whether each instance has a user of its own."""

    AUTO = "auto"
    """`uid` where the node can and the group names no `run_as`, else `shared`; the node decides."""
    UID = "uid"
    SHARED = "shared"
    """All of them run as `run_as`: they can read, change and signal each other."""


class StdinMode(enum.StrEnum):
    FIFO = "fifo"
    NONE = "none"


GroupReference = Annotated[str, msgspec.Meta(max_length=63)]
"""The name of another group; empty: none."""
BY_NODE: Final = "node"


class AffinitySpec(Spec, frozen=True, kw_only=True):
    """Nodes that are preferred or avoided: by a label of theirs, or by a group whose instances are there."""

    label: Annotated[str, msgspec.Meta(max_length=319)] = ""
    """`KEY=VALUE`."""
    group: GroupReference = ""
    """May be the group itself; a group that does not exist runs nowhere."""
    weight: Annotated[int, msgspec.Meta(ge=-100, le=100)] = 50
    """Below 0: avoided."""
    required: bool = False
    """Only where it holds; with a weight below 0 only where it does not."""


class SpreadSpec(Spec, frozen=True, kw_only=True):
    """The even distribution of a group's instances."""

    by: Annotated[str, msgspec.Meta(min_length=1, max_length=63)] = BY_NODE
    """Over nodes, or over the values of this label of nodes."""
    weight: Annotated[int, msgspec.Meta(ge=0, le=100)] = 30
    max_skew: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    """How many more instances than in the emptiest place another may have; None: any number."""


class DependencySpec(Spec, frozen=True, kw_only=True):
    """A group that must have ready instances before an instance of this one is started."""

    group: GroupReference
    ready: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1


class GroupSpec(Spec, frozen=True, kw_only=True):
    """A group as its operator desires it."""

    name: str
    parent: GroupReference = ""
    """The group whose document this one is merged into; see `inheritance`."""
    abstract: bool = False
    """Only a parent of others: it has no instances, and need not be complete."""
    runtime: str = "process"
    command: tuple[Argument, ...] = ()
    args: tuple[Argument, ...] = ()
    env: dict[str, Argument] = msgspec.field(default_factory=dict)
    variables: dict[str, Argument] = msgspec.field(default_factory=dict)
    variable_types: dict[str, VariableSpec] = msgspec.field(default_factory=dict)
    strict_variables: bool = False
    """A `%NAME%` that no layer defines stops the start, with its file and line."""
    substitute: tuple[PathText, ...] = ()
    """Globs of the files in which `%NAME%` is replaced."""
    templates: tuple[Annotated[str, msgspec.Meta(max_length=127)], ...] = ()
    """The chain: in this order, later ones win."""
    template_selection: TemplateSelection = TemplateSelection()
    merge: tuple[PathText, ...] = ()
    """Globs of YAML, JSON, TOML and properties files whose layers are merged instead of replaced."""
    patches: tuple[PatchSpec, ...] = ()
    artifact: ArtifactSpec | None = None
    extensions: tuple[ExtensionSpec, ...] = ()
    jvm: JvmSpec | None = None
    warmup: WarmupSpec = WarmupSpec()
    category: Category = Category.NONE
    config_format: ConfigFormat = ConfigFormat.NONE
    static: bool = False
    """Each instance keeps its directory, one an ordinal; templates seed it once."""
    protected_paths: tuple[PathText, ...] = ()
    """Globs of files in a static directory that no later start overwrites."""
    probes: tuple[ProbeSpec, ...] = ()
    """Empty: see `min_alive_ms`."""
    min: Count = 0
    max: Count | None = None
    """None: no upper bound."""
    scaling: ScalingSpec = ScalingSpec()
    schedules: Annotated[tuple[ScheduleSpec, ...], msgspec.Meta(max_length=SCHEDULES)] = ()
    maintenance: MaintenanceSpec = MaintenanceSpec()
    warm: Count = 0
    """Instances beside those that serve, started and ready to take the place of one or to add to them."""
    min_available: Count | Share | None = None
    """So many stay healthy while nodes are drained, of those that are wanted; None: all of them. See `available_floor`."""
    priority: Annotated[int, msgspec.Meta(ge=0, le=100)] = 50
    """Which group is placed first; nothing that runs is stopped for it."""
    depends_on: Annotated[tuple[DependencySpec, ...], msgspec.Meta(max_length=64)] = ()
    fallback_group: GroupReference = ""
    """Where players go when no instance of this group can take them."""
    static_names: Annotated[tuple[str, ...], msgspec.Meta(max_length=10_000)] = ()
    """The ids of the first instances, in this order, instead of `NAME-1`, `NAME-2`, …"""
    memory_mb: Annotated[int, msgspec.Meta(ge=0, le=16_777_216)] = 0
    """Reserved on the node and enforced there; 0: neither."""
    cpu: Annotated[float, msgspec.Meta(ge=0, le=4096)] = 0.0
    pids: Annotated[int, msgspec.Meta(ge=0, le=4_194_304)] = 0
    disk_mb: Annotated[int, msgspec.Meta(ge=0, le=1_073_741_824)] = 0
    """Free space a node must have, beside its reserve, before it prepares an instance."""
    console_mb: Annotated[int, msgspec.Meta(ge=1, le=1_048_576)] = 256
    ports: dict[str, PortSpec] = msgspec.field(default_factory=dict)
    max_players: Count = 0
    host_address: Annotated[str, msgspec.Meta(max_length=255)] = ""
    """Where instances listen, the value of `%HOST_ADDRESS%`; may hold `%NAME%`. Empty: the node's address."""
    nodes: tuple[str, ...] = ()
    """Only on these nodes; empty: on any."""
    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    node_capabilities: Annotated[tuple[str, ...], msgspec.Meta(max_length=16)] = ()
    """Only on nodes that have proven all of these; see `NODE_CAPABILITIES`."""
    affinity: Annotated[tuple[AffinitySpec, ...], msgspec.Meta(max_length=16)] = ()
    spread: Annotated[tuple[SpreadSpec, ...], msgspec.Meta(max_length=4)] = (SpreadSpec(),)
    run_as: str = ""
    isolate: Isolation = Isolation.AUTO
    stdin: StdinMode = StdinMode.FIFO
    tty: bool = False
    line_buffered: bool = False
    stop: tuple[StopRungSpec, ...] = DEFAULT_LADDER
    startup_timeout_seconds: Seconds = 60
    min_alive_ms: Milliseconds = 1500
    """A run that lives shorter has failed. Without probes an instance is ready once it has lived so long, and one of its
    processes listens on the port `primary`, if it has one."""
    max_lifetime_seconds: Seconds = 0
    crash_keep_seconds: Seconds = 3600
    clean_exit_codes: Annotated[tuple[ExitCode, ...], msgspec.Meta(max_length=64)] = ()
    """Beside 0: an end by itself with one of these, after `min_alive_ms`, is no crash."""
    restart: RestartSpec = RestartSpec()
    crash_loop: CrashLoopSpec = CrashLoopSpec()
    disconnect: DisconnectSpec = DisconnectSpec()
    update: UpdateSpec = UpdateSpec()
    """How a deployment replaces instances."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    properties: dict[str, str] = msgspec.field(default_factory=dict)
