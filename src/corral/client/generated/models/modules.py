"""Structures of `modules`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from corral.client.enums import OpenEnum
from corral.client.generated.models.shared import ModuleIntent, ModulePhase, ModuleUsage


class ModuleHost(OpenEnum):
    """Module host."""

    CONTROLLER = "controller"
    DAEMON = "daemon"


class Source(OpenEnum):
    """Source."""

    CONTROLLER = "controller"
    NODE = "node"


class InstallOutcome(OpenEnum):
    """Install outcome."""

    DOWNGRADED = "downgraded"
    INSTALLED = "installed"
    REPLACED = "replaced"
    SIGNATURE_UPDATED = "signature_updated"
    UNCHANGED = "unchanged"
    UPGRADED = "upgraded"


class RequirementState(OpenEnum):
    """Requirement state."""

    BOUND = "bound"
    MISMATCH = "mismatch"
    MISSING = "missing"
    WAITING = "waiting"


class ModulePage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Module, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class Module(Struct, frozen=True, kw_only=True):
    """A package. `settings` are null for callers that may not manage modules, `failure` has neither log
    nor traceback for those that may not read logs; `live` is null while the module has no process. `nodes`
    is null in a list: `GET …/{id}/nodes` has them in pages."""

    id: str
    """Id of the module, as its manifest has it."""
    version: str
    """Version that is installed."""
    title: str
    """Name of the module for people."""
    description: str
    """What it does, in the words of its manifest."""
    hosts: tuple[ModuleHost, ...]
    """Where it runs: `controller`, `daemon` (every node), or both."""
    phase: ModulePhase
    """Phase of its part on the controller."""
    intent: ModuleIntent
    """What shall be: `active`, `inactive` or `paused`."""
    reason: str
    """Why it is in this phase."""
    paused_reason: str
    """Why an operator holds it back; empty: it is not held back."""
    sha256: str
    """SHA-256 of the archive."""
    size: int
    """Size of the archive, in bytes."""
    signature: SignatureFacts | None
    """How the archive was proven; null: it was not."""
    on_nodes: OnNodes
    """On how many nodes it shall be, and is; null: it has no part for nodes."""
    nodes: tuple[NodeStateShape, ...] | None
    """Its state on each node; null in a list."""
    provides: tuple[Provided, ...]
    """Capabilities that it offers to other modules."""
    requires: tuple[Required, ...]
    """Capabilities that it needs of other modules."""
    extensions: tuple[Extension, ...]
    """Files that it puts into instances."""
    storage: bool
    """Whether it keeps documents or keys."""
    settings: dict[str, Any] | None
    """Its settings; null for callers that may not manage modules."""
    frontend: Frontend | None
    """Its page in the dashboard; null: it has none."""
    previous_version: str
    """Version before the last upgrade; empty: none."""
    installed_at: str
    """When it was first installed, in UTC."""
    updated_at: str
    """When it was last changed, in UTC."""
    failure: FailureDetails | None
    """What is known about its failure; null: it has not failed."""
    history: tuple[Step, ...]
    """Its last steps, the oldest first."""
    live: Live | None
    """Its process on the controller; null: it has none."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class SignatureFacts(Struct, frozen=True, kw_only=True):
    """How an archive was proven; absent when it carried no signature and none was required."""

    kind: str
    """`cosign-bundle` or `sig`."""
    identity: str = ""
    """Signer, from the certificate; empty: a key without a name."""
    key_sha256: str = ""
    """SHA-256 of the public key in DER form."""
    legacy: bool = False
    """true: a plain `.sig` in place of a bundle."""
    blob: str = ""
    """SHA-256 of the signature's file."""


class OnNodes(Struct, frozen=True, kw_only=True):
    """Counts of the nodes on which a module shall be (`wanted`), is `active` with the installed archive, and is
    `degraded`, which is for an operator to look at: failed, refused, or without the settings or the signature that
    it shall have; as they reported last. `waiting`: so many of the others wait for a capability. `disconnected`: so
    many of the `wanted` are not connected now."""

    wanted: int
    """On how many nodes it shall be."""
    active: int
    """On how many it runs as installed."""
    degraded: int
    """Number of nodes on which it is not in order: failed, refused, or without its settings or signature."""
    waiting: int
    """How many of the others wait for a capability."""
    disconnected: int
    """How many of the wanted are not connected."""


class NodeStateShape(Struct, frozen=True, kw_only=True):
    """The state of a module on a node, as the node reported last; `phase` is null before its first report.
    `current`: it has the installed archive. `refused`: the installed archive did not come up there and is
    not sent again before an operator recovers it. `declined`: it runs, but not with the settings or the signature
    that it was given last. `pending`: what an operator asked for and the node has not done yet. `settled`: nothing
    of it is under way. `error` is empty for callers that may not read logs. `live` is null while it has no process there."""

    node: str
    """Id of the node."""
    connected: bool
    """Whether the node is connected now."""
    phase: ModulePhase | None
    """Phase of the module there; null: the node has reported nothing yet."""
    version: str
    """Version that the node has; empty: none."""
    sha256: str
    """SHA-256 of the archive that the node has."""
    intent: ModuleIntent | None
    """The intent as the node has it; null: it has reported nothing yet."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    error: str
    """The error there; empty for callers that may not read logs."""
    current: bool
    """Whether the node has the installed archive."""
    refused: bool
    """true: the installed archive did not come up there, and is not sent again before an operator recovers it."""
    declined: bool
    """true: it runs, but not with the settings or signature that it was given last."""
    pending: tuple[str, ...]
    """Requests of an operator that the node has not done yet."""
    settled: bool
    """Whether nothing of it is under way."""
    progress: str
    """While an archive is on its way: `offered`, `fetching 12 of 40 MB`, `ordered`."""
    updated_at: str | None
    """Time of the node's last report about it, in UTC; null: there was none."""
    live: ModuleUsage | None
    """What its process there uses, as the node reported last; null: it has none, or the node is not connected."""


class Provided(Struct, frozen=True, kw_only=True):
    """Provided."""

    id: str
    """Id of the capability."""
    version: str
    """Version of the capability."""
    deprecated_since: str
    """Version since which it should not be used; empty: it may be."""
    removed_in: str
    """Version in which it will be gone; empty: none is planned."""


class Required(Struct, frozen=True, kw_only=True):
    """Required."""

    id: str
    """Id of the capability."""
    version_range: str
    """Versions that do, such as `>=1.2 <2`."""
    optional: bool
    """true: the module also starts without it."""
    from_: Source | None = field(name="from")
    """Whose part must provide it: `controller` or `node`; null: that of the same host."""


class Extension(Struct, frozen=True, kw_only=True):
    """Files that the module installs into instances: `always` into all that a variant fits, `requested` into those of
    groups that name it."""

    id: str
    """Name of the extension within the module."""
    activation: str
    """`always`: for every instance that a variant fits. `requested`: for groups that name it."""
    conflicts: tuple[str, ...]
    """Extensions that cannot be beside it."""
    variants: tuple[Variant, ...]
    """Its files by platform and version."""


class Variant(Struct, frozen=True, kw_only=True):
    """One file of an extension, for these platforms (none: for any) in these versions."""

    id: str
    """Name of the variant."""
    platforms: tuple[str, ...]
    """Platforms that it is for; empty: any."""
    version_range: str
    """Versions of the platform that it is for; empty: any."""
    file: str
    """Path of the file in the module's archive."""
    sha256: str
    """SHA-256 of the content, 64 hexadecimal digits."""
    install_path: str
    """Directory of the working directory that it goes to."""


class Frontend(Struct, frozen=True, kw_only=True):
    """A page of the module. `url` names this very content and may be kept for ever."""

    title: str
    """Title of the page."""
    icon: str
    """Name of its icon."""
    nav: str
    """Its place in the navigation."""
    permissions: tuple[str, ...]
    """Permissions that a caller needs to see it."""
    entry: str
    """Path of its first file."""
    url: str
    """Address of this very content; it may be kept for ever."""


class FailureDetails(Struct, frozen=True, kw_only=True):
    """The known facts of a failure: kept until the module is recovered or replaced."""

    at: str
    """When it happened, in UTC."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    message: str = ""
    """The error, in its own words."""
    traceback: str = ""
    """Where in the module's code it happened; empty for callers that may not read logs."""
    log: tuple[str, ...] | UnsetType = UNSET
    """Its last log lines; empty for callers that may not read logs."""
    cpu_seconds: float = 0.0
    """Processor time its process had used, in seconds."""
    memory_bytes: int = 0
    """Memory its process had, in bytes."""
    threads: int = 0
    """Threads its process had."""


class Step(Struct, frozen=True, kw_only=True):
    """One step of its life; `from` is null for the first."""

    at: str
    """When it happened, in UTC."""
    from_: ModulePhase | None = field(name="from")
    """Phase before; null: it is the first step."""
    to: ModulePhase
    """Phase after."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    version: str
    """Version of the module at that time."""


class Live(Struct, frozen=True, kw_only=True):
    """The module's process: what it uses, what the host's calls into it came to, what it registered."""

    pid: int
    """Process id on the controller's host."""
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
    overruns: int
    """How many of them ran out of time."""
    longest_seconds: float
    """The longest of them, in seconds."""
    routes: tuple[str, ...]
    """Routes that it registered."""
    subscriptions: tuple[str, ...]
    """Events that it subscribes to."""
    tasks: tuple[str, ...]
    """Tasks that it runs at intervals."""
    commands: tuple[str, ...]
    """Console commands that it registered."""
    log: tuple[str, ...] = ()
    """Its last lines, for callers that may read logs."""


class InstalledModule(Struct, frozen=True, kw_only=True, tag_field="kind", tag="installed"):
    """The module as it is now, how it came about, and the steps of that for people."""

    id: str
    """Id of the module, as its manifest has it."""
    version: str
    """Version that is installed."""
    title: str
    """Name of the module for people."""
    description: str
    """What it does, in the words of its manifest."""
    hosts: tuple[ModuleHost, ...]
    """Where it runs: `controller`, `daemon` (every node), or both."""
    phase: ModulePhase
    """Phase of its part on the controller."""
    intent: ModuleIntent
    """What shall be: `active`, `inactive` or `paused`."""
    reason: str
    """Why it is in this phase."""
    paused_reason: str
    """Why an operator holds it back; empty: it is not held back."""
    sha256: str
    """SHA-256 of the archive."""
    size: int
    """Size of the archive, in bytes."""
    signature: SignatureFacts | None
    """How the archive was proven; null: it was not."""
    on_nodes: OnNodes
    """On how many nodes it shall be, and is; null: it has no part for nodes."""
    nodes: tuple[NodeStateShape, ...] | None
    """Its state on each node; null in a list."""
    provides: tuple[Provided, ...]
    """Capabilities that it offers to other modules."""
    requires: tuple[Required, ...]
    """Capabilities that it needs of other modules."""
    extensions: tuple[Extension, ...]
    """Files that it puts into instances."""
    storage: bool
    """Whether it keeps documents or keys."""
    settings: dict[str, Any] | None
    """Its settings; null for callers that may not manage modules."""
    frontend: Frontend | None
    """Its page in the dashboard; null: it has none."""
    previous_version: str
    """Version before the last upgrade; empty: none."""
    installed_at: str
    """When it was first installed, in UTC."""
    updated_at: str
    """When it was last changed, in UTC."""
    failure: FailureDetails | None
    """What is known about its failure; null: it has not failed."""
    history: tuple[Step, ...]
    """Its last steps, the oldest first."""
    live: Live | None
    """Its process on the controller; null: it has none."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""
    outcome: InstallOutcome
    """What the request came to."""
    steps: tuple[str, ...]
    """The steps of it, for people."""


class ExaminedModule(Struct, frozen=True, kw_only=True, tag_field="kind", tag="examined"):
    """The effects that an install would have; nothing was done. Until `expires_at` the archive can be installed by its
    digest, by the same caller; null: it was not kept."""

    ok: bool
    """Whether an install would succeed, as far as can be seen."""
    action: str
    """What an install would do."""
    id: str
    """Id of the module in the archive."""
    version: str
    """Version in the archive."""
    current_version: str
    """Version that is installed; empty: none."""
    sha256: str
    """SHA-256 of the archive."""
    size: int
    """Size in bytes."""
    problems: tuple[Finding, ...]
    """What is in the way."""
    warnings: tuple[str, ...]
    """What is odd and not in the way."""
    requires: tuple[RequirementView, ...]
    """Capabilities that it needs, and whether they are there."""
    signature: SignatureFacts | None
    """How the archive was proven; null: it was not."""
    expires_at: str | None
    """Until when the same caller can install the archive by its digest, in UTC; null: it was not kept, and has to be sent again."""


class Finding(Struct, frozen=True, kw_only=True):
    """A problem that prevents the install."""

    code: str
    """Error code, as in docs/reference/errors.md."""
    message: str
    """What happened and why, for people."""
    hint: str = ""
    """What to do about it; empty: nothing is known."""
    field: str = ""
    """Place in the manifest; empty: none."""


class RequirementView(Struct, frozen=True, kw_only=True):
    """Requirement view."""

    id: str
    """Id of the capability."""
    version_range: str
    """Versions that do, such as `>=1.2 <2`."""
    optional: bool
    """true: the module also starts without it."""
    state: RequirementState
    """Whether it is provided: `bound`, `waiting`, `mismatch` or `missing`."""
    provider: str = ""
    """Module that provides it; empty: none."""
    provider_version: str = ""
    """Version of the capability that it provides."""


class Leaks(Struct, frozen=True, kw_only=True):
    """Leaks."""

    items: tuple[Leak, ...]
    """The items of this page."""
    next: str | None = None
    """The `cursor` of the following page; null: this is the last one."""


class Leak(Struct, frozen=True, kw_only=True):
    """A process that did not end by itself. `killed` false: it is there still."""

    module: str
    """Id of the module."""
    pid: int
    """Process id on the controller's host."""
    since: str
    """When it should have ended, in UTC."""
    killed: bool
    """false: it is there still."""
    threads: tuple[str, ...]
    """Threads that kept it."""
    tasks: tuple[str, ...]
    """Tasks that kept it."""
    children: tuple[str, ...]
    """Processes that it had started."""


class Configuration(Struct, frozen=True, kw_only=True):
    """The settings in force, and the JSON Schema that settings have to fit."""

    settings: dict[str, Any]
    """The settings in force, defaults included."""
    schema: dict[str, Any]
    """JSON Schema that settings have to fit."""


class ModuleHealth(Struct, frozen=True, kw_only=True):
    """Module health."""

    healthy: bool
    """Health as the module reports it."""
    detail: str
    """More of it, in its own words."""


class NodeStatePage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[NodeStateShape, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""
