"""`module.yaml` as a value: the declarations of a module, read before any of its code is run.

Field names are in camelCase, as authors write them. `corral.modules.manifest.manifest_reader` reads the text,
with path and line in each refusal.
"""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec

MANIFEST_VERSION: Final = 1
DEFAULT_HOOK_DEADLINE_MS: Final = 2000
MAX_HOOK_DEADLINE_MS: Final = 30_000
ANY_EVENT: Final = "*"
RESERVED_IDS: Final = frozenset({"platform", "leaked", "force-cleanup", "capabilities", "storage", "corral"})


class ModuleHost(enum.StrEnum):
    CONTROLLER = "controller"
    DAEMON = "daemon"


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all parts. Unknown keys are refused in an author's text; a stored manifest may have been
    written by a newer Corral and is accepted as it is."""


class HostBackend(Part, frozen=True, kw_only=True):
    """Where a host finds the module's class."""

    entrypoint: str
    """`package.module:Class`."""
    hook_deadline_ms: int = DEFAULT_HOOK_DEADLINE_MS


class Backends(Part, frozen=True, kw_only=True):
    controller: HostBackend | None = None
    daemon: HostBackend | None = None


class Provision(Part, frozen=True, kw_only=True):
    """A capability the module provides while it is ACTIVE."""

    id: str
    version: str
    deprecated_since: str = ""
    removed_in: str = ""


class Source(enum.StrEnum):
    NODE = "node"
    CONTROLLER = "controller"


class Requirement(Part, frozen=True, kw_only=True):
    """A capability the module needs before it starts, or uses where there is one."""

    id: str
    version_range: str = "*"
    optional: bool = False
    from_: Source | None = msgspec.field(default=None, name="from")
    """The registry of the look-up; None: that of the host the module runs on."""


class CapabilitiesPart(Part, frozen=True, kw_only=True):
    provides: tuple[Provision, ...] = ()
    requires: tuple[Requirement, ...] = ()


class StorageLimits(Part, frozen=True, kw_only=True):
    documents_mb: int = 256
    key_value_mb: int = 16


class StoragePart(Part, frozen=True, kw_only=True):
    documents: bool = False
    key_value: bool = False
    limits: StorageLimits = StorageLimits()


class EventsPart(Part, frozen=True, kw_only=True):
    """The events that the module receives and publishes. When `subscribes` is given, nothing else may be
    subscribed to, unless `*` is among them: then everything may but types that need a permission and are not listed
    beside it. On a node an empty list permits types whose fields are all open. A type that is not in `publishes` cannot be published."""

    subscribes: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()


class FrontendPart(Part, frozen=True, kw_only=True):
    """A page of the dashboard; files below `frontend/` of the archive."""

    entry: str
    title: str
    icon: str = ""
    nav: str = ""
    permissions: tuple[str, ...] = ()


class ProcessLimits(Part, frozen=True, kw_only=True):
    """The limits of the module's process; 0: as the host's configuration."""

    memory_mb: int = 0
    processes: int = 0
    cpu_weight: int = 0
    """As of control groups, 1 to 10000; 0 is 100."""


class ExtensionVariant(Part, frozen=True, kw_only=True):
    id: str
    platforms: tuple[str, ...] = ()
    version_range: str = "*"
    file: str
    sha256: str
    install_path: str


class Extension(Part, frozen=True, kw_only=True):
    """A file that the module installs into instances."""

    id: str
    activation: str = "always"
    """`always`, or `requested`: only for groups that name it."""
    conflicts: tuple[str, ...] = ()
    variants: tuple[ExtensionVariant, ...]


class Manifest(Part, frozen=True, kw_only=True):
    """The whole of `module.yaml`, checked. Versions and ranges are texts that parse."""

    manifest_version: int
    id: str
    version: str
    api: str = "*"
    title: str = ""
    description: str = ""
    hosts: tuple[ModuleHost, ...] = (ModuleHost.CONTROLLER,)
    backend: Backends = Backends()
    capabilities: CapabilitiesPart = CapabilitiesPart()
    storage: StoragePart = StoragePart()
    events: EventsPart = EventsPart()
    frontend: FrontendPart | None = None
    config: dict[str, Any] = {}
    """JSON Schema of the settings an operator may give."""
    limits: ProcessLimits = ProcessLimits()
    extensions: tuple[Extension, ...] = ()

    def backend_on(self, host: ModuleHost) -> HostBackend | None:
        """None when the module does not run on this host."""
        if host not in self.hosts:
            return None
        return self.backend.controller if host is ModuleHost.CONTROLLER else self.backend.daemon
