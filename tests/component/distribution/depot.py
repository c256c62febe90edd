"""A controller with templates, and daemons that only speak: what the tests of distribution work with."""

from __future__ import annotations

import io
import tarfile

from corral.controller.templates.template_changes import new_version
from corral.domain.ids import NodeId
from corral.system.clock import SystemClock
from corral.testing.scripted_peers import ScriptedDaemon, enrolled_identity
from corral.wire.client_streams import ClientStream
from corral.wire.transfer import CREDIT, EPOCH_KEY, SESSION_KEY
from corral.wire.v1.data_pb2 import (
    Credit,
    DataChunk,
    FetchMessage,
    FetchOpen,
    PushMessage,
    PushOpen,
)
from corral.wire.v1.data_pb2_grpc import DataServiceStub
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.plan_pb2 import CacheStatus, TemplateRequest


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def unpacked(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar.getmembers() if m.isfile()}


async def blocks(content: bytes, step: int = 65536):
    for start in range(0, len(content), step):
        yield content[start : start + step]


class Talker(ScriptedDaemon):
    """A daemon's side of the wire, by hand."""

    session: list[tuple[str, str]]

    async def begin(self, **fields) -> None:
        settings = {"runtimes": ["process"], "total_memory_mb": 4096, "available_cpus": 4, **fields}
        ack = (await self.greet(**settings)).handshake_ack
        self.session = [(SESSION_KEY, ack.session_id), (EPOCH_KEY, str(ack.epoch))]

    async def request(self, name: str, *, known: str = "", wanted: str = "") -> None:
        request = TemplateRequest(template_name=name, known_hash=known, wanted_hash=wanted)
        await self.send(DaemonMessage(template_request=request))

    async def ask(self, name: str, kind: str = "template_data", **hashes: str):
        await self.request(name, **hashes)
        return getattr(await self.read_until(kind), kind)

    async def tell_cache(self, request_id: str) -> None:
        await self.send(DaemonMessage(cache_status=CacheStatus(request_id=request_id)))

    async def fetch(self, *, stop_after: int | None = None, **opening) -> bytes:
        """Bytes by the data channel; cut off after so many when asked to. Raises the controller's error."""
        call = DataServiceStub(self.streams).Fetch(metadata=self.session)
        await call.write(FetchMessage(open=FetchOpen(credit=CREDIT, **opening)))
        received = bytearray()
        try:
            while isinstance(chunk := await call.read(), DataChunk):
                received += chunk.data
                if chunk.last or (stop_after is not None and len(received) >= stop_after):
                    return bytes(received)
                await call.write(FetchMessage(credit=Credit(bytes=len(chunk.data))))
            raise await self.reason(call)
        finally:
            call.cancel()

    @staticmethod
    async def reason(call: ClientStream) -> Exception:
        return await call.ending(peer="controller") or AssertionError("the transfer ended early")

    async def open_push(self, transfer_id: str, digest: str, size: int):
        """An upload that the other side has agreed to; its chunks are up to the caller."""
        call = DataServiceStub(self.streams).Push(metadata=self.session)
        opening = PushOpen(transfer_id=transfer_id, digest=digest, size_bytes=size)
        await call.write(PushMessage(open=opening))
        if (reply := await call.read()) is None:
            raise await self.reason(call)
        assert reply.WhichOneof("payload") == "accepted"
        return call

    async def push(self, transfer_id: str, content: bytes, digest: str) -> None:
        call = await self.open_push(transfer_id, digest, len(content))
        for start in range(0, len(content), 65536):
            chunk = DataChunk(offset=start, data=content[start : start + 65536])
            await call.write(PushMessage(chunk=chunk))
        while (reply := await call.read()) is not None:
            if reply.WhichOneof("payload") == "stored":
                return
        raise await self.reason(call)


class Depot:
    """One controller, what it holds, and who talks with it."""

    def __init__(self, cluster, directory, stack) -> None:
        self._cluster = cluster
        self._directory = directory
        self._stack = stack
        self.controller = None

    async def begin(self, **flags):
        self.controller = await self._cluster.controller(**flags)
        return self.controller

    @property
    def term(self):
        return self.controller.app.role.term

    @property
    def state(self):
        return self.term.state

    async def upload(self, name: str, files: dict[str, bytes], **settings):
        """A new current version, the way the API makes one."""
        intake = await self.term.templates.intake_archive(blocks(packed(files)))
        change = new_version(self.state, name, intake, now=SystemClock().now(), keep=20, **settings)
        await self.term.ledger.commit(*change.steps)
        return self.state.templates.require(name).record.version()

    async def upload_used(self, name: str, files: dict[str, bytes], **settings):
        """As `upload`, and a group that may run anywhere needs it."""
        version = await self.upload(name, files, **settings)
        if self.state.groups.find(f"uses-{name}") is None:
            await self.group(f"uses-{name}", templates=[name])
        return version

    async def identity(self, name: str):
        token = await self.controller.join_token(name)
        return await enrolled_identity(self._directory / name, token=token, node_id=name)

    async def talker(self, name: str = "n1", *, identity=None, **fields) -> Talker:
        identity = identity or await self.identity(name)
        talker = await self._stack.enter_async_context(Talker(identity, self.controller.grpc_address))
        await talker.begin(**fields)
        return talker

    async def group(self, name="lobby", **fields):
        document = {"name": name, "command": ["serve"], **fields}
        return await self.controller.call("POST", "/api/v1/groups", document)

    def session(self, name="n1"):
        return self.term.sessions.find(NodeId(name))
