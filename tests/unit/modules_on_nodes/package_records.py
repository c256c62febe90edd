"""Packages and cluster states made by hand."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import StateCollection
from corral.domain.modules.manifest import Backends, HostBackend, Manifest, ModuleHost
from corral.domain.modules.records import PackageRecord
from corral.store.port import Delete, Put, encode

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ONE, TWO = "1" * 64, "2" * 64


def package(id: str = "small", version: str = "1.0.0", sha256: str = ONE, **fields: Any) -> PackageRecord:
    hosts = fields.pop("hosts", (ModuleHost.DAEMON,))
    manifest = Manifest(
        manifest_version=1,
        id=id,
        version=version,
        hosts=hosts,
        backend=Backends(daemon=HostBackend(entrypoint="small:Module")),
    )
    defaults: dict[str, Any] = {"size": 100, "installed_at": NOW, "updated_at": NOW}
    return PackageRecord(id=id, version=version, sha256=sha256, manifest=manifest, **{**defaults, **fields})


class World:
    """A cluster state that takes steps without a store."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self._revision = 0

    def put(self, collection: StateCollection[Any], id: str, record: msgspec.Struct | None) -> None:
        self._revision += 1
        self._fold(collection.name, id, None if record is None else encode(record))

    def _fold(self, collection: str, id: str, body: bytes | None) -> None:
        mirrors = {"module_packages": self.state.modules, "module_node_states": self.state.module_node_states}
        mirrors[collection].fold(id, self._revision, body)  # type: ignore[attr-defined]

    def take(self, steps: list[Any]) -> list[dict[str, Any]]:
        """Carry out writes as the store would, conflicts included; the events' data."""
        for step in steps:
            if isinstance(step, Put | Delete):
                self._revision += 1
                self._fold(step.collection, step.id, step.body if isinstance(step, Put) else None)
        return [step.data for step in steps if not isinstance(step, Put | Delete)]
