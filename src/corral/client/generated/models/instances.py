"""Structures of `instances`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field

from corral.client.enums import OpenEnum
from corral.client.generated.models.shared import (
    Category,
    ConfigFormat,
    Exit,
    ExitRecord,
    Instance,
    InstanceSummary,
    PatchSpec,
    PlanArtifact,
    PlanExtension,
    PlanTemplate,
    ProbeKind,
    StopRungSpec,
    VariableSpec,
)


class OriginKind(OpenEnum):
    """Origin kind."""

    ARTIFACT = "artifact"
    PATCH = "patch"
    TEMPLATE = "template"
    UNKNOWN = "unknown"
    WORKLOAD = "workload"


class InstancePage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Instance, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class InstanceSummaryPage(Struct, frozen=True, kw_only=True):
    """Some summaries of a list; `total` counts all that the query finds and the caller may see, on all pages."""

    items: tuple[InstanceSummary, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""
    total: int
    """How many items there are on all pages together."""


class CommandTaken(Struct, frozen=True, kw_only=True):
    """The line is in the instance's input; what it does with it shows on the console, behind `offset`."""

    id: str
    """Id of the instance."""
    command: str
    """The line that was put into its input."""
    incarnation: int
    """The run that got it."""
    offset: int | None
    """The position of the run's console then: what the line brings about comes behind it. null: unknown."""


class PlanShape(Struct, frozen=True, kw_only=True):
    """The plan of the present or last run; `hash` is that of its canonical JSON. `picks` are
    the templates that were drawn for it among equals."""

    id: str
    """Id of the instance."""
    hash: str
    """SHA-256 of the plan's canonical JSON: two starts with the same hash were started alike."""
    plan: Plan
    """What the present or last run was started with."""
    picks: tuple[str, ...]
    """Templates that were drawn for it among equals."""


class Plan(Struct, frozen=True, kw_only=True):
    """The content of a run's start."""

    version: int = 2
    """Form of this document."""
    group: str
    """The group whose start it is."""
    runtime: str
    """How the process is held: `process` (a shim of Corral's), or a session of `tmux` or `screen` to which a user of the node can attach."""
    command: tuple[str, ...]
    """Program and arguments, without a shell. `%NAME%` is replaced by variables, such as `%PORT%`. Needed unless `jvm` is there."""
    args: tuple[str, ...]
    """Arguments after `command`, or of the Java program when `jvm` runs it."""
    env: dict[str, str]
    """Environment of the process, beside a few variables of the node. Values may hold `%NAME%`. `LD_PRELOAD`, `LD_AUDIT`, `LD_LIBRARY_PATH` and `CORRAL_…` are refused."""
    variables: dict[str, str]
    """Values for `%NAME%`, above those of templates and `properties`, below those of node labels and of the single start."""
    variable_types: dict[str, VariableSpec] = field(default_factory=dict)
    """By name: type, bounds and default of a variable. A value that does not fit is refused before anything starts."""
    strict_variables: bool = False
    """true: a `%NAME%` without a value fails the start, with its file and line. false: it stays in the text, with a warning."""
    substitute: tuple[str, ...] | UnsetType = UNSET
    """Globs of the files of templates in which `%NAME%` is replaced, such as `*.properties` or `config/**/*.yml`."""
    templates: tuple[PlanTemplate, ...] | UnsetType = UNSET
    """The layers, in the order in which they are laid."""
    merge: tuple[str, ...] | UnsetType = UNSET
    """Globs of YAML, JSON, TOML and properties files that are merged key by key where several templates have them."""
    patches: tuple[PatchSpec, ...] | UnsetType = UNSET
    """Changes of single values in configuration files, made at each start after variables were replaced."""
    artifact: PlanArtifact | None = None
    """The program that nodes download: an entry of the catalog, or a URL with its digest. null: none."""
    extensions: tuple[PlanExtension, ...] | UnsetType = UNSET
    """More files for the working directory, such as plugins: artifacts of the group, or what installed modules bring."""
    jvm: PlanJvm | None = None
    """How Java runs the program, where there is no `command`. `{}` is Java with its defaults, running the artifact. null: no Java."""
    warm_paths: tuple[str, ...] | UnsetType = UNSET
    """`warmup.paths` of the group."""
    category: Category = Category("")
    """`server` or `proxy`, a word for modules and dashboards; instances of a `proxy` may read the registries of groups. Empty: that of the catalog's entry."""
    config_format: ConfigFormat = ConfigFormat("")
    """Label for the family of configuration files the program reads. Corral changes no file because of it (`patches` do that); results of `warmup` are kept apart by it. Empty: the label of the catalog's entry."""
    static: bool = False
    """true: each instance keeps its directory for good, one for each number, on the node where it first ran. false: each start makes a new directory."""
    protected_paths: tuple[str, ...] | UnsetType = UNSET
    """Globs of files in a static directory that no later start overwrites, such as `world*`."""
    probes: tuple[PlanProbe, ...] | UnsetType = UNSET
    """When an instance counts as ready: once each of these has succeeded. Empty: by the built-in rule (it has lived for `min_alive_ms`, and listens on its port `primary` if it has one)."""
    memory_mb: int
    """Memory of one instance in MiB: reserved on its node, and a limit where the node has control groups. 0: neither."""
    cpu: float
    """Processor cores of one instance, such as 1.5: counted when a node is chosen, and a limit where the node has control groups. 0: neither."""
    pids: int
    """Most processes and threads of one instance, where the node has control groups. 0: no limit."""
    disk_mb: int = 0
    """Space in MiB that must be free on a node, beside its own reserve, before an instance is prepared there. It is not a quota."""
    console_mb: int
    """How much of an instance's console the node keeps, in MiB; then the oldest goes."""
    max_players: int
    """`%MAX_PLAYERS%` for configuration files, shown until the server reports its own. 0: unknown."""
    host_address: str = ""
    """`%HOST_ADDRESS%`: where the program shall listen, and where probes ask. May hold `%NAME%`. Empty: the node's address."""
    run_as: str
    """Account of the node that instances run as; the node must lend it (`instances.allowed_users`). Empty: chosen by `isolate`."""
    isolate: str
    """`uid`: each instance has a user id of its own. `shared`: all run as `run_as` and can read and signal each other. `auto`: `uid` where the node can and `run_as` is empty."""
    stdin: str
    """`fifo`: commands can be sent to the process. `none`: it reads an end of file at once."""
    tty: bool
    """true: the process has a terminal instead of pipes, for programs that insist on one."""
    line_buffered: bool
    """true: the program is made to write line by line (`stdbuf -oL`); for programs that hold their output back when it is no terminal."""
    stop: tuple[StopRungSpec, ...]
    """The ladder: each rung is tried in turn until the process has ended. After the last one everything of the run is killed."""
    startup_timeout_seconds: int
    """Time from the start's preparation until it is ready; an instance that takes longer is ended and counts as a crash. 0: no bound."""
    min_alive_ms: int
    """How long an instance has to live, in milliseconds: without probes it is not ready before, and an end that comes sooner is a failure, whatever its exit code."""
    max_lifetime_seconds: int
    """After this many seconds an instance is stopped by its ladder, and its node starts it again. 0: never."""
    crash_keep_seconds: int
    """How long a node keeps the directory and console of a crashed run, in seconds; those of a stopped one go at once. Static directories stay."""
    restart: PlanRestart
    """Restarts on the same node, made by the node itself, also while the controller is away."""
    restart_on: str = "always"
    """`restart.on` of the group."""
    clean_exit_codes: tuple[int, ...] | UnsetType = UNSET
    """Exit codes beside 0 that are no crash when an instance ends by itself after `min_alive_ms`."""
    stop_after_seconds: int = 0
    """`disconnect.stop_after_seconds` of the group: without a controller for so long, its node stops it. 0: never."""


class PlanJvm(Struct, frozen=True, kw_only=True):
    """Plan jvm."""

    jar: str
    """The jar, relative to the working directory; empty: the artifact's file."""
    args: tuple[str, ...] | UnsetType = UNSET
    """Arguments of the virtual machine; those of the program are the group's `args`."""
    java: str = ""
    """Path of the `java` to use; empty: the one that the node has configured or found."""
    heap_mb: int = 0
    """-Xms and -Xmx in MiB; 0: four fifths of `memory_mb`."""


class PlanProbe(Struct, frozen=True, kw_only=True):
    """A probe as in a plan: without default values, so that a node of an earlier version, which refuses an
    unknown field, refuses only what it cannot do."""

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


class PlanRestart(Struct, frozen=True, kw_only=True):
    """Restarts by the node; see `RestartSpec`."""

    attempts: int = 1
    """How many restarts the node makes within `interval_seconds`; after that the controller decides. 0: none."""
    interval_seconds: int = 300
    """The time over which `attempts` are counted, in seconds."""
    delay_ms: int = 0
    """Wait before a restart, in milliseconds, with jitter; it doubles with each. 0: the first at once, the second after 1 s."""
    max_delay_ms: int = 60000
    """The longest wait before a restart, in milliseconds."""


class InstanceFiles(Struct, frozen=True, kw_only=True):
    """A directory comes before what is in it, names are in order; `truncated`: there is more."""

    items: tuple[InstanceFile, ...]
    """Files and directories; a directory comes before what is in it."""
    next: str | None
    """The `cursor` of the following page; null: nothing follows."""
    truncated: bool
    """true: there are more than the answer holds."""


class InstanceFile(Struct, frozen=True, kw_only=True):
    """One entry of an instance's directory."""

    path: str
    """Path relative to the instance's directory."""
    kind: str
    """`file`, `directory`, `link`, or `other`."""
    size: int
    """Size in bytes; 0 for what is not a file."""
    modified_at: str | None
    """When it was last written, in UTC; null: unknown."""
    mode: str | None
    """Permission bits in octal, such as 0644; null: its node does not tell them."""
    digest: str | None
    """SHA-256 of the file; null: it was not asked for, or the file is too large for that or not read."""
    binary: bool | None
    """Whether the file is no text in UTF-8; null: it was not read."""
    origin: OriginKind
    """What the start laid there: `template`, `patch` (a configuration file with patches), `artifact`; `workload`: nothing, the server made it; `unknown`: the plan of the run is not kept any more."""
    template: str | None
    """The template that laid it last; null: none."""
    template_version: int | None
    """Number of its version; null: none."""


class FileOrigin(Struct, frozen=True, kw_only=True):
    """What a template has at the path, before variables are filled in and patches applied."""

    path: str
    """Path relative to the instance's directory."""
    origin: OriginKind
    """As in the listing."""
    template: str
    """The template that laid it last."""
    template_version: int
    """Number of its version."""
    digest: str
    """SHA-256 of the template's file."""
    size: int
    """Its size in bytes."""
    content: str | None
    """Its text, before variables are filled in and patches applied; null: it is no text in UTF-8, or larger than 1 MiB."""


class InstanceFileChange(Struct, frozen=True, kw_only=True):
    """What became of a change."""

    id: str
    """Id of the instance."""
    path: str
    """Path of what was changed, relative to the instance's directory."""
    to: str | None
    """The new path, or the directory that was unpacked to; null: there is none."""
    digest: str | None
    """SHA-256 of the file that is there now; null: not known."""
    size: int | None
    """Size of what was written, in bytes; null: nothing was."""
    entries: int
    """How many files and directories were written, moved or removed by name."""
    changed: bool
    """false: it was so already, and nothing was done."""


class Runs(Struct, frozen=True, kw_only=True):
    """Runs, the newest first. `next` is the `before` of the next answer, null: there are no more. `notes` names the nodes
    that could not be asked: of their runs only what was reported is here."""

    items: tuple[InstanceRun, ...]
    """The items of this page."""
    next: int | None
    """The `before` of the following answer; null: there are no earlier runs."""
    notes: tuple[str, ...]
    """Nodes that could not be asked: of their runs only what they have reported is here."""


class InstanceRun(Struct, frozen=True, kw_only=True):
    """One run. `state` is UNKNOWN for one whose end was not reported; `crash` is the id of the crash that ended it,
    if one is kept. Of its console the bytes from `first_offset` to `end_offset` can be read; null: its node could
    not be asked. `nonce` separates it from another run with its number, made by a node that was put back to an
    earlier state; empty: from before there were any."""

    incarnation: int
    """Number of the run. Each run of an instance has another one, and none is used twice."""
    node: str
    """Id of the node."""
    state: str
    """State of the run: one of instances, or UNKNOWN when its end was not reported."""
    started_at: str | None
    """When its process began, by its node's clock; null: it never did, or that is unknown."""
    ended_at: str | None
    """When it ended, by its node's clock; null: it has not, or that is unknown."""
    exit: Exit | None
    """How it ended; null: it has not, or that is unknown."""
    first_offset: int | None
    """The oldest byte of its console that its node still has; null: its node was not asked."""
    end_offset: int | None
    """Where its console ends; null: unknown."""
    plan_hash: str
    """Hash of the plan that it was started with; empty: not known any more."""
    crash: str | None
    """Id of the crash that ended it; null: none did, or it is not kept any more."""
    nonce: str
    """Tells the run from another with its number, which a node makes that was put back to an earlier copy of its disk; empty: from before there were any."""


class ConsolePage(Struct, frozen=True, kw_only=True):
    """Lines from an offset on. `gap`: bytes before or among them are lost; `tail` is a last line without an
    end, for information: it is repeated as an item once it is complete. `previous_offset` is the `before` of the page
    before this one, 0 when there is none."""

    incarnation: int
    """Number of the run. Each run of an instance has another one, and none is used twice."""
    items: tuple[ConsoleLine, ...]
    """The lines, the oldest first."""
    next_offset: int
    """The `after` of the next page."""
    previous_offset: int
    """The `before` of the page before this one; 0: nothing comes before it."""
    gap: bool
    """true: bytes before or among these lines are lost; `gaps` has them."""
    gaps: tuple[ConsoleGap, ...]
    """The lost parts, each with its reason."""
    first_offset: int
    """Offset of the first byte that is still kept, as far as the controller knows it; 0 until its node was asked."""
    end_offset: int
    """Offset behind the last byte that was written."""
    tail: ConsoleLine | None
    """A last line without an end, for information: it comes again when it is whole. null: none."""


class ConsoleLine(Struct, frozen=True, kw_only=True):
    """A line without its line break. A `partial` one continues in the next item, a `continued` one began before it."""

    offset: int
    """Offset of the line's first byte, counted from the start of the run."""
    time: str | None
    """When the node read it, in UTC; null: unknown."""
    line: str
    """The text without its end; bytes that are not UTF-8 are replaced."""
    partial: bool = False
    """Cut at 16 KiB, by a gap, or by `before`."""
    continued: bool = False
    """Its line began before this item, or the bytes before it are missing."""


class ConsoleGap(Struct, frozen=True, kw_only=True):
    """Missing bytes, and why. `late`: their node is disconnected; a follower that stays receives them when
    the node reconnects."""

    from_offset: int
    """First byte that is missing."""
    to_offset: int
    """First byte after them; the same as the first one when their number is unknown."""
    reason: str
    """Why they are missing."""
    late: bool = False
    """true: they lie on a node that is away, and a follower that stays receives them when it is back; else they are lost."""


class ConsoleMatches(Struct, frozen=True, kw_only=True):
    """Lines that match, in the order of the search: backwards the newest first. `next` is the cursor that goes on with it,
    also when there are no lines; null: everything was searched. The other fields are those of a page, of the run that
    was searched last; `notes` names what could not be."""

    items: tuple[ConsoleMatch, ...]
    """The lines that match, in the order of the search: backwards the newest first."""
    next: str | None
    """The `cursor` that goes on with the search; null: all was searched."""
    notes: tuple[str, ...]
    """Runs that could not be searched, and why."""
    incarnation: int
    """The run that was searched last; what follows is about it."""
    next_offset: int
    """Where its search has come to."""
    gap: bool
    """true: bytes of what was searched are lost; `gaps` has them."""
    gaps: tuple[ConsoleGap, ...]
    """The lost parts, each with its reason."""
    first_offset: int
    """Offset of the first byte that is still kept."""
    end_offset: int
    """Offset behind the last byte that was written."""


class ConsoleMatch(Struct, frozen=True, kw_only=True):
    """A line that matches. `match` has where, as [start, end) in characters (Unicode code points) of `line`: the first 50
    of a line, none that are empty. Of many lines and an expensive pattern the last ones have none."""

    incarnation: int
    """The run that wrote it."""
    offset: int
    """Offset of its first byte, counted from the start of the run."""
    time: str | None
    """When the node read it, in UTC; null: unknown."""
    line: str
    """The text without its end; bytes that are not UTF-8 are replaced."""
    match: tuple[tuple[int, ...], ...] = ()
    """Where it matches: [start, end) in Unicode code points of `line`; the first 50, and none that are empty."""
    partial: bool = False
    """Of a line over 16 KiB only a part that matches is here."""


class ConsoleText(Struct, frozen=True, kw_only=True):
    """Consecutive bytes as text, not split into lines."""

    offset: int
    """Offset of its first byte, counted from the start of the run."""
    time: str | None
    """When the node read it, in UTC; null: unknown."""
    text: str
    """Consecutive output, not split into lines; bytes that are not UTF-8 are replaced."""
    next_offset: int
    """Offset behind its last byte."""
    gap: bool
    """true: bytes before it are lost."""


class Run(Struct, frozen=True, kw_only=True):
    """Another run of the instance begins."""

    incarnation: int
    """The run that begins; its offsets begin at 0."""
    node: str
    """Id of the node that it is on."""


class End(Struct, frozen=True, kw_only=True):
    """The run has ended and all of its output was sent."""

    incarnation: int
    """The run that has ended."""
    state: str
    """State of the instance, or how this run ended: STOPPED, CRASHED, or ENDED when that is unknown."""
    ended_at: str | None
    """When it ended, by its node's clock; null: unknown."""
    exit: ExitRecord | None
    """How it ended; null: unknown."""


class InputLine(Struct, frozen=True, kw_only=True):
    """A line that was written to the instance's input, its sender, and the position of the run's console then; None:
    unknown. `id` is what its sender called it by, null if it has no id."""

    number: int
    """Its number among the lines of this term of the controller."""
    time: str
    """When it was written, in UTC."""
    line: str
    """The line that was written, without its end."""
    by: str
    """Who sent it, as in the audit: `user:anna`, `token:tok-…`."""
    by_name: str
    """The name of that token or user; may be empty."""
    incarnation: int
    """The run that got it."""
    offset: int | None
    """The position of the run's console then: what the line brought about comes behind it. null: unknown."""
    id: str | None
    """What its sender called it by; null: nothing."""


class SentCommandPage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[SentCommand, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class SentCommand(Struct, frozen=True, kw_only=True):
    """A line that was written to the instance's input; `offset` is a position in the console of its run."""

    number: int
    """Its number in the list; numbers grow."""
    at: str
    """When it was stored, in UTC."""
    line: str
    """The line that was written, without its end."""
    by: str
    """Who sent it, as in the audit: `user:anna`, `token:tok-…`."""
    by_name: str
    """The name of that token or user; may be empty."""
    incarnation: int
    """The run that got it."""
    node: str
    """Id of the node that the run is on."""
    offset: int | None
    """The position of the run's console then: what the line brought about comes behind it. null: unknown."""
