"""A real controller with templates, and of a node only its link and its cache."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import io
import pathlib
import tarfile
from typing import Any

from corral.controller.templates.template_changes import new_version
from corral.daemon.cache.cache import NodeCache
from corral.daemon.cache.downloads import Downloads
from corral.daemon.link.link import DaemonLink
from corral.daemon.link.spool import Spool
from corral.daemon.node.known_controllers import KnownControllers
from corral.domain.groups.plans import PlanTemplate
from corral.domain.templates import TemplateManifest
from corral.system.clock import SystemClock
from corral.system.daemon_config import CacheSection, DownloadsSection
from corral.system.entropy import SystemEntropy
from corral.testing.cluster import LocalController, daemon_config
from corral.testing.scripted_peers import enrolled_identity
from corral.testing.waiting import eventually
from corral.version import PROTOCOL_VERSION, VERSION
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import Handshake, NodeStatus

MEGABYTE = 1024 * 1024
NODE = "n1"


def archive(files: dict[str, bytes], *, modes: dict[str, int] | None = None) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz", compresslevel=1) as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), (modes or {}).get(path, 0o644)
            tar.addfile(entry, io.BytesIO(content))
    return held.getvalue()


async def publish(
    controller: LocalController, name: str, files: dict[str, bytes], *, modes: dict[str, int] | None = None
) -> PlanTemplate:
    """Upload a version, the way the API does, for the node `n1`; as a plan would name it."""
    data = await asyncio.to_thread(archive, files, modes=modes)

    async def blocks():
        for start in range(0, len(data), MEGABYTE):
            yield data[start : start + MEGABYTE]

    term = controller.app.role.term
    intake = await term.templates.intake_archive(blocks())
    change = new_version(term.state, name, intake, now=dt.datetime.now(dt.UTC), keep=20)
    if change.steps:
        await term.ledger.commit(*change.steps)
    version = change.record.version()
    controller.lend_template(name, version.hash, node=NODE)
    return PlanTemplate(name=name, version=version.number, hash=version.hash)


class PlainHost:
    def handshake(self) -> Handshake:
        return Handshake(version=VERSION, protocol_version=PROTOCOL_VERSION, machine_id="machine-1")

    def status(self) -> NodeStatus:
        return NodeStatus()

    def set_log_level(self, level: str) -> None:
        pass


class CacheNode:
    """DaemonLink and cache of one node. Use as `async with`; `connect` when a controller is wanted."""

    def __init__(
        self,
        data: pathlib.Path,
        *,
        quota: int = 2**34,
        link_wait: float = 1.0,
        silence: int = 2,
        **more: Any,
    ) -> None:
        data.mkdir(exist_ok=True)
        self.data = data
        self.link: DaemonLink | None = None
        self.said: list[DaemonMessage] = []
        self.cache = NodeCache(
            root=data / "cache",
            settings=CacheSection(quota_bytes=quota),
            downloads=Downloads(
                settings=DownloadsSection(allow_private=True, timeout_seconds=silence, attempts=1),
                clock=SystemClock(),
                entropy=SystemEntropy(),
            ),
            clock=SystemClock(),
            link_wait=link_wait,
            **more,
        )
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> CacheNode:
        await self._stack.enter_async_context(self.cache)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def connect(self, address: str, identity: Any) -> None:
        entropy = SystemEntropy()
        spool = Spool.open(self.data / "spool", entropy=entropy, log_bytes=10**6, max_bytes=10**6)
        self._stack.push_async_callback(spool.close)
        self.link = DaemonLink(
            data=self.data,
            identity=identity,
            memory=KnownControllers(self.data, [address]),
            spool=spool,
            host=PlainHost(),
            settings=daemon_config(self.data).link,
            clock=SystemClock(),
            entropy=entropy,
            orders=self.cache.handlers,
            listeners=[self.cache],
        )
        running = asyncio.create_task(self.link.run(), name="rig/link")

        async def end() -> None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        self._stack.push_async_callback(end)
        await eventually(self.link.connected.is_set)

    async def join(self, controller: LocalController) -> None:
        token = await controller.join_token(self.data.name)
        identity = await enrolled_identity(self.data, token=token, node_id=self.data.name)
        await self.connect(controller.grpc_address, identity)

    def order(self, **payload: Any) -> None:
        """An order of the controller; what the cache says to it is in `said`."""
        (kind,) = payload
        self.cache.handlers[kind](lambda m: bool(self.said.append(m)) or True, ControllerMessage(**payload))

    async def files(self, template: PlanTemplate) -> dict[str, bytes]:
        """The whole version as the cache gives it."""
        async with self.cache.use() as use:
            manifest = await use.template(template)
            return self.read(manifest, use)

    def read(self, manifest: TemplateManifest, use: Any) -> dict[str, bytes]:
        return {file.path: use.content(file.digest).read_bytes() for file in manifest.files}
