"""A real daemon under a controller that a test speaks for: sets in the ack, frames, archives to fetch."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import pathlib
from typing import Any

import msgspec
from node_archives import node_archive

from corral.daemon.app import DaemonApp
from corral.modules.archive.archive_reader import inspect_archive
from corral.testing.cluster import LocalCluster, LocalDaemon
from corral.testing.scripted_peers import ScriptedController
from corral.testing.waiting import eventually
from corral.version import PROTOCOL_VERSION
from corral.wire.features import FEATURES
from corral.wire.v1 import module_pb2 as pb
from corral.wire.v1.data_pb2 import DataChunk, FetchMessage
from corral.wire.v1.data_pb2_grpc import DataServiceServicer, add_DataServiceServicer_to_server
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import Handshake, HandshakeAck, SpoolAck
from corral.wire.v1.plan_pb2 import DataOffer

MODULE_FEATURES = tuple(FEATURES)
_BLOCK = 64 * 1024


class ModuleScript(DataServiceServicer):
    """What the controller says and hears. `set` is what each ack carries; `blobs` can be fetched."""

    def __init__(self, *, features: tuple[str, ...] = MODULE_FEATURES, epoch: int = 5) -> None:
        self.features = features
        self.epoch = epoch
        self.set: dict[str, pb.ModuleSetEntry] = {}
        self.blobs: dict[str, bytes] = {}
        self.fetches: list[tuple[str, int]] = []
        """Digest and offset of each."""
        self.cut_after = 0
        """Bytes after which the next fetch breaks off, once."""
        self.answers = asyncio.Event()
        """Fetches are answered once it is set."""
        self.answers.set()
        self.greetings: list[Handshake] = []
        self.heard: list[DaemonMessage] = []
        self._contexts: list[Any] = []
        self._writing = asyncio.Lock()  # gRPC takes one frame of a stream at a time

    async def __call__(self, context: Any) -> None:
        self.greetings.append((await context.read()).handshake)
        ack = HandshakeAck(
            session_id=f"s{len(self.greetings)}",
            heartbeat_interval_ms=60_000,
            protocol_version=PROTOCOL_VERSION,
            protocol_compatible=True,
            features=self.features,
            epoch=self.epoch,
            modules=self.set.values(),
        )
        await context.write(ControllerMessage(handshake_ack=ack, epoch=self.epoch))
        over = asyncio.Event()
        self._contexts.append((context, over))
        reading = asyncio.create_task(self._read(context))
        waiting = asyncio.create_task(over.wait())
        try:
            await asyncio.wait([reading, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, waiting):
                task.cancel()
            await asyncio.gather(reading, waiting, return_exceptions=True)

    async def _read(self, context: Any) -> None:
        while isinstance(frame := await context.read(), DaemonMessage):
            batched = frame.WhichOneof("payload") == "batch"
            for message in frame.batch.messages if batched else [frame]:
                self.heard.append(message)
                if message.spool_sequence:
                    ack = SpoolAck(sequence=message.spool_sequence)
                    await self._write(context, ControllerMessage(spool_ack=ack, epoch=self.epoch))

    async def say(self, *, epoch: int | None = None, **frame: Any) -> None:
        """One frame on the present stream."""
        await eventually(lambda: self._contexts and self.is_open)
        context, _ = self._contexts[-1]
        await self._write(context, ControllerMessage(epoch=self.epoch if epoch is None else epoch, **frame))

    async def _write(self, context: Any, message: ControllerMessage) -> None:
        async with self._writing:
            await context.write(message)

    @property
    def is_open(self) -> bool:
        """Whether the latest to greet has a session."""
        return len(self._contexts) == len(self.greetings)

    def hang_up(self) -> None:
        self._contexts[-1][1].set()

    async def meet_again(self) -> None:
        """Hang up, and wait for the next session."""
        before = len(self._contexts)
        self.hang_up()
        await eventually(lambda: len(self._contexts) > before)

    async def Fetch(self, _: Any, context: Any) -> None:  # noqa: N802 - the name of the RPC
        opening = (await context.read()).open
        self.fetches.append((opening.digest, opening.offset))
        await self.answers.wait()
        content, at, credit = self.blobs[opening.digest], opening.offset, opening.credit
        cut, self.cut_after = self.cut_after, 0
        while at < len(content):
            while credit <= 0:
                frame = await context.read()
                assert isinstance(frame, FetchMessage)
                credit += frame.credit.bytes
            if cut and at >= cut:
                self.hang_up()
                await asyncio.sleep(30)  # until the daemon, whose session is over, gives up
            block = content[at : at + min(_BLOCK, credit)]
            credit -= len(block)
            last = at + len(block) == len(content)
            await context.write(DataChunk(offset=at, data=block, total_size_bytes=len(content), last=last))
            at += len(block)

    # --- looking --------------------------------------------------------------------------------
    def of(self, kind: str) -> list[Any]:
        return [getattr(message, kind) for message in self.heard if message.WhichOneof("payload") == kind]

    def steps(self, id: str) -> list[str]:
        """The states that were told of a module, in order."""
        return [told.state for told in self.of("module_state_update") if told.module_id == id and told.state]

    def errors(self) -> list[str]:
        return [report.error_code for report in self.of("error_report")]

    def last(self, id: str) -> Any:
        """The last that was told of a module; empty when nothing was."""
        told = [told for told in self.of("module_state_update") if told.module_id == id]
        return told[-1] if told else pb.ModuleStateUpdate()

    async def told(self, id: str, *states: str, version: str = "") -> Any:
        """Until these are the last states told, of this version; the last update."""

        def there() -> bool:
            if tuple(self.steps(id)[-len(states) :]) != states:
                return False
            return not version or self.last(id).version == version

        await eventually(there, state=lambda: (self.steps(id), self.errors()))
        return self.last(id)


class Package:
    """An archive, and the frame that brings it."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.content = path.read_bytes()
        self.sha256 = hashlib.sha256(self.content).hexdigest()
        facts = inspect_archive(path, max_bytes=1 << 30)
        self.id, self.version = facts.manifest.id, facts.manifest.version
        self.manifest_text = msgspec.json.encode(facts.manifest).decode()

    def install(self, *, offered: bool = False, settings: bytes = b"{}", **more: Any) -> pb.ModuleInstall:
        frame = pb.ModuleInstall(
            module_id=self.id,
            version=self.version,
            sha256=self.sha256,
            manifest_yaml=self.manifest_text,
            intent=pb.MODULE_INTENT_ACTIVE,
            settings_json=settings,
        )
        if offered:
            offer = DataOffer(digest=self.sha256, size_bytes=len(self.content), kind="blob")
            frame.offer.CopyFrom(offer)
        else:
            frame.jar_bytes = self.content
        for name, value in more.items():
            setattr(frame, name, value)
        return frame

    def entry(self, *, settings: bytes = b"{}", intent: int = pb.MODULE_INTENT_ACTIVE) -> pb.ModuleSetEntry:
        return pb.ModuleSetEntry(
            module_id=self.id,
            sha256=self.sha256,
            version=self.version,
            intent=intent,
            settings_sha256=hashlib.sha256(settings).hexdigest(),
        )


def packed(directory: pathlib.Path, id: str = "small", version: str = "1.0.0", **more: Any) -> Package:
    return Package(node_archive(directory / f"{id}-{version}", id, version, **more))


class NodeRig:
    """One node and its controller. Use as `async with`."""

    def __init__(self, scratch: pathlib.Path, script: ModuleScript | None = None, **flags: Any) -> None:
        self.scratch = scratch
        self.script = script or ModuleScript()
        self.controller = ScriptedController(
            self.script,
            also=lambda server: add_DataServiceServicer_to_server(self.script, server),
        )
        self.data = scratch / "n1"
        self._flags = {"link__reconnect_max_seconds": 0.02, **flags}
        self._cluster = LocalCluster(scratch)
        self._stack = contextlib.AsyncExitStack()
        self.daemon: LocalDaemon

    async def __aenter__(self) -> NodeRig:
        await self._stack.enter_async_context(self.controller)
        await self._stack.enter_async_context(self._cluster)
        self.controller.enrol(self.data, "n1")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start(self, *, connect: bool = True, **flags: Any) -> DaemonApp:
        settings = {"controllers": [self.controller.address], **self._flags, **flags}
        self.daemon = await self._cluster.daemon("n1", None, connect=connect, **settings)
        return self.daemon.app

    async def stop(self) -> None:
        await self.daemon.app.stop()

    @property
    def app(self) -> DaemonApp:
        return self.daemon.app

    async def install(self, package: Package, *, state: str = "ACTIVE", **more: Any) -> Any:
        """Bring a module, as the controller would, and wait until it stands."""
        self.script.set[package.id] = package.entry()
        await self.script.say(module_install=package.install(**more))
        return await self.script.told(package.id, state, version=package.version)

    def pid(self, id: str) -> int | None:
        live = self.app.modules.engine.live(id)
        return live.pid if live else None

    def archives(self) -> set[str]:
        """Digests of what lies in the cache."""
        place = self.data / "cache" / "modules" / "artifacts"
        return {path.name.partition(".")[0] for path in place.glob("*.zip*")}
