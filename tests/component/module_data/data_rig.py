"""A leader's module data on a real store, and a link as a module's process has one."""

from __future__ import annotations

import contextlib
import types

import msgspec
from hypothesis import HealthCheck, settings

from corral.controller.modules.data.module_data import ModuleData
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Ledger
from corral.domain.modules.manifest import Manifest, StorageLimits, StoragePart
from corral.errors import CorralError
from corral.sdk.errors import host_error
from corral.sdk.storage import DocumentStorage, KeyValueStorage
from corral.store.leadership import Leadership
from corral.store.writer import Writer, WriterTiming
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy

QUICK = WriterTiming(patience=30.0, first_probe=0.01, slowest_probe=0.05)
EXAMPLES = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class DataLink:
    """Calls travel as bytes, and fail as they do in a module."""

    def __init__(self, data, scope) -> None:
        self._operations = {operation.method: operation for operation in data.operations()}
        self.scope = scope

    async def call(self, method, body, answer, *, deadline=30.0):
        operation = self._operations[method]
        asked = msgspec.msgpack.decode(msgspec.msgpack.encode(body), type=operation.body)
        try:
            given = await operation.handler(self.scope, asked)
        except CorralError as error:
            raise host_error(error.code.name, error.message, error.hint or "") from error
        return msgspec.msgpack.decode(msgspec.msgpack.encode(given), type=answer)

    def notify(self, method, body) -> None:
        raise AssertionError("storages do not notify")


def scope_of(module="arena", generation=1, *, documents_mb=64, key_value_mb=4, **storage):
    part = StoragePart(
        documents=storage.get("documents", True),
        key_value=storage.get("key_value", True),
        limits=StorageLimits(documents_mb=documents_mb, key_value_mb=key_value_mb),
    )
    manifest = Manifest(manifest_version=1, id=module, version="1.0.0", storage=part)
    return types.SimpleNamespace(module_id=module, generation=generation, manifest=manifest)


class Office:
    """A leader at work with its module data."""

    def __init__(self, store, ledger, data, epoch) -> None:
        self.store = store
        self.ledger = ledger
        self.data = data
        self.epoch = epoch

    def documents(self, module="arena", generation=1, **limits) -> DocumentStorage:
        return DocumentStorage(DataLink(self.data, scope_of(module, generation, **limits)))

    def key_values(self, module="arena", generation=1, **limits) -> KeyValueStorage:
        return KeyValueStorage(DataLink(self.data, scope_of(module, generation, **limits)))

    async def rows(self, prefix="mod/"):
        """All that lies in the store on behalf of modules, by collection and id."""
        snapshot = await self.store.reads.snapshot()
        return {(d.collection, d.id): d.body for d in snapshot.documents if d.collection.startswith(prefix)}


@contextlib.asynccontextmanager
async def office_of(store, *, clock=None, holder="office", url="", namespace="test", ledger_class=Ledger):
    term = await Leadership(store.leases, clock=SystemClock(), holder=holder, uncontested=True).acquire()
    state = ClusterState()
    state.load(await store.reads.snapshot(state.collections))
    writer = Writer(
        store.commits,
        epoch=term.epoch,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        on_commit=state.apply,
        on_fenced=lambda fenced: None,
        on_fatal=lambda error: None,
        timing=QUICK,
    )
    async with writer:
        ledger = ledger_class(writer, state)
        data = ModuleData(
            reads=store.reads,
            ledger=ledger,
            clock=clock or SystemClock(),
            key_value_url=url,
            namespace=namespace,
            epoch=term.epoch,
        )
        await data.open()
        try:
            yield Office(store, ledger, data, term.epoch)
        finally:
            await data.close()
