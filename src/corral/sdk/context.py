"""Module context: everything a module gets to work with."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from corral.sdk.capabilities import Capabilities
from corral.sdk.errors import ContextMisused, StorageUnavailable
from corral.sdk.events import EventBus
from corral.sdk.files import Files
from corral.sdk.http_client import HttpClient
from corral.sdk.manifest import Manifest
from corral.sdk.metrics import Metrics
from corral.sdk.processes import Processes
from corral.sdk.protocol.messages import Construct
from corral.sdk.resources import Resources
from corral.sdk.runner_port import HostLink, Invoke
from corral.sdk.scheduler import Scheduler
from corral.sdk.storage import DocumentStorage, KeyValueStorage

T = TypeVar("T")
_INSTEAD: Final = (
    "three ways to remember something: (1) run the module on the controller too (`hosts: [controller, daemon]`), "
    "keep it there, and read it on the node through a capability `from: controller`; (2) write a file into "
    "the instance's own directory with `ctx.files`; (3) publish an event with `ctx.events`, and have a platform module keep it"
)


class Host(enum.StrEnum):
    """Kind of host that the module runs on.

    ```python
    if ctx.host is Host.DAEMON:
        ...
    ```
    """

    CONTROLLER = "controller"
    DAEMON = "daemon"


class ModuleContext:
    """One per process; every lifecycle hook gets the same.

    ```python
    async def on_start(self, ctx: ModuleContext) -> None:
        ctx.logger.info("started on %s", ctx.host)
        limit = ctx.config.get("limit", 10)
        await ctx.scheduler.every(60, self.count)
    ```
    """

    manifest: Manifest
    """The manifest in the archive."""
    host: Host
    """Kind of host that this process runs on."""
    node_id: str
    """On a daemon, the id of the node."""
    previous_version: str
    """In an upgrade, the version that wrote the present data; else empty. The same in all hooks."""
    is_upgrade: bool
    """Whether `previous_version` names another version than this one."""
    config: Mapping[str, Any]
    """The settings, checked against the manifest's schema, defaults filled in."""
    logger: logging.Logger
    """`module:ID`; lines of this and of any other logger are in the module's log."""
    events: EventBus
    """Subscribe to events, and publish events of its own."""
    scheduler: Scheduler
    """Tasks that the host starts: once, every so many seconds, or by a cron line."""
    capabilities: Capabilities
    """Capabilities that other modules provide."""
    http: HttpClient
    """Client for requests to other services, with deadlines and limits."""
    metrics: Metrics
    """Counters, gauges and histograms, which appear at the controller's `/metrics`."""
    resources: Resources
    """Files of the module's own archive."""
    files: Files
    """Files of the instances on this node."""
    processes: Processes
    """Processes beside the instances on this node."""
    artifact_path: Path
    """The unpacked archive, read-only."""

    def __init__(self, construct: Construct, *, link: HostLink, invoke: Invoke) -> None:
        self._loop = asyncio.get_running_loop()
        self.manifest = msgspec.msgpack.decode(construct.manifest, type=Manifest)
        self.host = Host(construct.host)
        self.node_id = construct.node_id
        self.previous_version = construct.previous_version
        self.is_upgrade = construct.is_upgrade
        self.config = construct.config
        self.logger = logging.getLogger(f"module:{construct.module_id}")
        self.events = EventBus(link)
        self.scheduler = Scheduler(link)
        required = (requirement.id for requirement in self.manifest.capabilities.requires)
        self.capabilities = Capabilities(link, required, construct.capabilities)
        self.http = HttpClient(invoke)
        self.metrics = Metrics(link, self._later)
        self.artifact_path = Path(construct.artifact_path)
        self.resources = Resources(self.artifact_path)
        on_node = self.host is Host.DAEMON
        self.files = Files(link, here=on_node)
        self.processes = Processes(link, here=on_node)
        storages = construct.storages if self.host is Host.CONTROLLER else ()
        self._documents = DocumentStorage(link) if "documents" in storages else None
        self._key_value = KeyValueStorage(link) if "key_value" in storages else None

    def settings(self, kind: type[T]) -> T:
        """`config` as a struct of yours; raises msgspec.ValidationError."""
        return msgspec.convert(dict(self.config), kind)

    def find_document_storage(self) -> DocumentStorage | None:
        """The storage; None on a daemon, and when the manifest does not have `storage.documents: true`."""
        return self._documents

    def require_document_storage(self) -> DocumentStorage:
        """The storage; raises StorageUnavailable, with a hint what to do instead."""
        if self._documents is None:
            raise self._no_storage("document", "documents")
        return self._documents

    def find_key_value_storage(self) -> KeyValueStorage | None:
        """The storage; None on a daemon, and when the manifest does not have `storage.keyValue: true`."""
        return self._key_value

    def require_key_value_storage(self) -> KeyValueStorage:
        """The storage; raises StorageUnavailable, with a hint what to do instead."""
        if self._key_value is None:
            raise self._no_storage("key-value", "keyValue")
        return self._key_value

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """For hooks that are plain `def`: run a coroutine on the module's event loop, and wait for it.

        ```python
        def on_start(self, ctx):
            ctx.run(ctx.events.subscribe("GROUP_CREATED", self.on_group))
        ```
        """
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        coroutine.close()
        where = "on the module's event loop" if here is self._loop else "on another event loop"
        raise ContextMisused(f"ctx.run was called {where}; in an `async def` use await")

    def _later(self, seconds: float, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the module has ended
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, function)

    def _no_storage(self, kind: str, key: str) -> StorageUnavailable:
        if self.host is Host.DAEMON:
            return StorageUnavailable(f"a node has no {kind} storage", hint=_INSTEAD)
        return StorageUnavailable(
            f"the module has no {kind} storage", hint=f"set storage.{key}: true in the manifest"
        )
