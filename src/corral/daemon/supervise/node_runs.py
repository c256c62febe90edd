"""Runs of this node as shared by their supervision and the modules: instance table, preparation, reporter."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Final

from corral.daemon.prepare.ingredients import FileCache
from corral.daemon.prepare.pipeline import Preparation
from corral.daemon.prepare.working_directories import WorkingDirectories
from corral.daemon.runs.reporter import Reporter, ReportSpool
from corral.daemon.runs.run import Run
from corral.daemon.supervise.instance import Instance
from corral.system.daemon_config import DaemonConfig
from corral.system.entropy import Entropy
from corral.wire.v1.link_pb2 import DaemonMessage


class InstanceTable:
    """Instances by their ids. The supervisor changes it; other code looks them up."""

    def __init__(self, directories: WorkingDirectories) -> None:
        self._directories = directories
        self._instances: dict[str, Instance] = {}

    def get(self, instance_id: str) -> Instance | None:
        return self._instances.get(instance_id)

    def all(self) -> list[Instance]:
        return list(self._instances.values())

    def find(self, instance_id: str) -> Run | None:
        """The present or last run of this id."""
        found = self._instances.get(instance_id)
        return found.current if found else None

    def runs(self) -> list[Run]:
        """The present or last run of every instance."""
        return [instance.current for instance in self._instances.values()]

    def directory_of(self, instance_id: str) -> pathlib.Path | None:
        """Where an instance runs, is about to, or ran; None for one that is not known here."""
        run = self.find(instance_id)
        return None if run is None else self._directories.path(instance_id, static=run.order.static)

    def put(self, instance: Instance) -> None:
        self._instances[instance.id] = instance

    def remove(self, instance_id: str) -> None:
        del self._instances[instance_id]


class NodeRuns:
    """Made before everything that uses runs, while none of them is supervised yet. `send` reaches the connected
    controller."""

    def __init__(
        self,
        config: DaemonConfig,
        *,
        node_id: str,
        address: str,
        cache: FileCache,
        spool: ReportSpool,
        entropy: Entropy,
        send: Callable[[DaemonMessage], bool] = lambda _: False,
    ) -> None:
        self.preparation: Final = Preparation(
            config, node_id=node_id, address=address, cache=cache, entropy=entropy
        )
        self.reporter: Final = Reporter(spool, live=send)
        self.instances: Final = InstanceTable(self.preparation.directories)
        self.send: Final = send
