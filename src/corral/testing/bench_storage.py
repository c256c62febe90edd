"""Documents and keys for a module on the bench: the real engine, on a store in a directory of its own."""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from collections.abc import AsyncIterator

import msgspec

from corral.controller.modules.data.module_data import ModuleData
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Ledger
from corral.domain.modules.manifest import Manifest
from corral.errors import Code, Rejected
from corral.store.engine_selection import open_store
from corral.store.leadership import Leadership
from corral.store.writer import Writer
from corral.system.clock import Clock, SystemClock
from corral.system.entropy import SystemEntropy


class BenchScope(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a module's scope that the storage uses."""

    module_id: str
    manifest: Manifest
    generation: int = 1


class BenchStorage:
    """Answers `documents.*` and `kv.*` for one module."""

    def __init__(self, data: ModuleData, scope: BenchScope) -> None:
        self._scope = scope
        self._operations = {operation.method: operation for operation in data.operations()}

    async def serve(self, method: str, raw: msgspec.Raw) -> object:
        operation = self._operations.get(method)
        if operation is None:
            raise Rejected(Code.NOT_FOUND, f"unknown method '{method}'")
        body = msgspec.msgpack.decode(raw, type=operation.body)
        return await operation.handler(self._scope, body)  # type: ignore[arg-type]  # all of a scope it needs


@contextlib.asynccontextmanager
async def open_storage(manifest: Manifest, *, clock: Clock) -> AsyncIterator[BenchStorage]:
    """For as long as the context lasts; then all of it is removed. `clock` is the one keys expire by."""
    with tempfile.TemporaryDirectory(prefix="corral-bench-") as directory:
        store = await open_store("sqlite", data=pathlib.Path(directory))
        try:
            state = ClusterState()
            term = await Leadership(
                store.leases, clock=SystemClock(), holder="bench", uncontested=True
            ).acquire()
            state.load(await store.reads.snapshot(state.collections))
            writer = Writer(
                store.commits,
                epoch=term.epoch,
                clock=SystemClock(),
                entropy=SystemEntropy(),
                on_commit=state.apply,
                on_fenced=lambda _: None,
                on_fatal=lambda _: None,
            )
            async with writer:
                data = ModuleData(reads=store.reads, ledger=Ledger(writer, state), clock=clock)
                yield BenchStorage(data, BenchScope(module_id=manifest.id, manifest=manifest))
                await data.close()
        finally:
            await store.close()
