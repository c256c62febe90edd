"""All that prepares instances on a node, put together: users, directories, trees, ports and secrets."""

from __future__ import annotations

from typing import Final

from corral.daemon.node import host_info
from corral.daemon.node.held_ports import HeldPorts
from corral.daemon.prepare.cache_port import FileCache
from corral.daemon.prepare.pipeline import Preparer
from corral.daemon.prepare.static_directory import StaticMaker
from corral.daemon.prepare.tree_builder import TreeMaker
from corral.daemon.prepare.warm_trees import WarmTrees
from corral.daemon.prepare.working_directories import WorkingDirectories
from corral.daemon.workload.secrets import Secrets
from corral.daemon.workload.users import WorkloadUsers
from corral.daemon.workload.variable_values import NodeFacts
from corral.system.config_schema import DaemonConfig
from corral.system.entropy import Entropy


class Preparation:
    """Made of plain constructors; `close` ends what is being made ahead."""

    def __init__(
        self, config: DaemonConfig, *, node_id: str, address: str, cache: FileCache, entropy: Entropy
    ) -> None:
        data, reserve_mb = config.data, config.disk.reserve_mb
        self.users: Final = WorkloadUsers(config.instances, data=data)
        self.directories: Final = WorkingDirectories(data, entropy=entropy)
        self.ports: Final = HeldPorts()
        self._warm = WarmTrees(self.directories, entropy=entropy, each=config.cache.warm_trees)
        trees = TreeMaker(
            cache=cache,
            cache_root=data / "cache",
            directories=self.directories,
            warm=self._warm,
            reserve_mb=reserve_mb,
        )
        self.preparer: Final = Preparer(
            node=NodeFacts(
                node_id=node_id,
                address=address,
                memory_mb=host_info.total_memory_mb(),
                labels=config.node.labels,
            ),
            users=self.users,
            directories=self.directories,
            ports=self.ports,
            trees=trees,
            statics=StaticMaker(trees, cache=cache, directories=self.directories, warm=self._warm),
            secrets=Secrets(data / "secrets"),
            java=config.java.path,
            reserve_mb=reserve_mb,
        )

    async def close(self) -> None:
        await self._warm.close()
