"""Components of the controller's modules, composed for one term."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from corral.controller.events.hub import EventHub
from corral.controller.modules.archive_supply import StoredArchives
from corral.controller.modules.data.module_data import ModuleData
from corral.controller.modules.examined_archives import ExaminedArchives
from corral.controller.modules.frontends import Frontends
from corral.controller.modules.group_impact import broken_groups
from corral.controller.modules.installer import Installer
from corral.controller.modules.instance_files_capability import VERSION as FILES_VERSION
from corral.controller.modules.instance_files_capability import InstanceFileReader, InstanceFilesCapability
from corral.controller.modules.metrics_exposition import ModuleMetricsCollector
from corral.controller.modules.module_events import ModuleEvents
from corral.controller.modules.package_store import LedgerPackageStore, UpgradeLease
from corral.controller.modules.upload_files import sweep_uploads
from corral.controller.modules_on_nodes.node_metrics import NodeMetrics
from corral.controller.state.ledger import Ledger
from corral.domain.ids import Epoch
from corral.domain.modules.manifest import ModuleHost
from corral.modules.archive.archive_store import ArchiveStore
from corral.modules.lifecycle.engine import ModuleEngine, host_metrics
from corral.modules.process import ProcessPool
from corral.modules.services.event_rules import EventPace
from corral.modules.services.module_log import ModuleLogs
from corral.modules.services.module_metrics import ModuleMetrics
from corral.modules.services.schedules import ModuleSchedules
from corral.sdk.instance_files import INSTANCE_FILES
from corral.signing import Verifier
from corral.store.port import Store
from corral.system.clock import Clock
from corral.system.controller_config import ModulesSection
from corral.system.entropy import Entropy

ARTIFACTS: Final = "artifacts"
UPLOADS: Final = "uploads"
PROCESSES: Final = "modules"
_log = structlog.get_logger("corral.controller.modules")


class ModuleComponents:
    """Everything that `Modules` works with. Only constructors are called; nothing runs yet."""

    def __init__(
        self,
        *,
        config: ModulesSection,
        data: Path,
        store: Store,
        ledger: Ledger,
        hub: EventHub,
        epoch: Epoch,
        holder: str,
        verifier: Verifier,
        files: InstanceFileReader,
        registry: CollectorRegistry,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self.clock = clock
        self.uploads = data / UPLOADS
        self.max_archive_bytes = config.max_archive_bytes
        self.examined = ExaminedArchives(clock=clock, most_bytes=2 * config.max_archive_bytes)
        self.enabled = config.enabled
        self._state = ledger.state
        self.packages = LedgerPackageStore(ledger, clock=clock)
        self.pool = ProcessPool(directory=data / PROCESSES, clock=clock)
        self.supply = StoredArchives(
            store=ArchiveStore(data / ARTIFACTS, max_bytes=config.max_archive_bytes),
            blobs=store.blobs,
            records=self.packages.all,
            verifier=lambda: verifier,
            clock=clock,
        )
        cluster = ledger.state.cluster.find("only")
        self.data = ModuleData(
            reads=store.reads,
            ledger=ledger,
            clock=clock,
            entropy=entropy,
            key_value_url=config.key_value.url,
            namespace=cluster.record.id if cluster else "corral",
            epoch=epoch,
        )
        self.logs = ModuleLogs(clock=clock)
        self.metrics = ModuleMetrics()
        self.node_metrics = NodeMetrics()
        self.frontends = Frontends(self.supply)
        self.engine = self._engine(config, ledger, store, hub, holder, clock)
        capability = InstanceFilesCapability(files)
        self.engine.capabilities.provide_builtin(INSTANCE_FILES, FILES_VERSION, capability.methods)
        self.installing = Installer(
            engine=self.engine,
            packages=self.packages,
            supply=self.supply,
            generation=self._last_generation,
            built_in=self.engine.capabilities.built_in,
            spoiled=functools.partial(broken_groups, ledger.state),
            max_archive_bytes=config.max_archive_bytes,
            clock=clock,
        )
        self._registry = registry
        self._collector: ModuleMetricsCollector | None = None

    def _engine(
        self,
        config: ModulesSection,
        ledger: Ledger,
        store: Store,
        hub: EventHub,
        holder: str,
        clock: Clock,
    ) -> ModuleEngine:
        return ModuleEngine(
            host=ModuleHost.CONTROLLER,
            store=self.packages,
            spawner=self.pool,
            supply=self.supply,
            operations=[
                *ModuleEvents(
                    hub=hub,
                    ledger=ledger,
                    clock=clock,
                    pace=EventPace(per_second=config.events_per_second, clock=clock),
                ).operations(),
                *ModuleSchedules(clock=clock).operations(),
                *self.data.operations(),
            ],
            data=self.data,
            config=config,
            clock=clock,
            notices={**self.logs.notices(), **self.metrics.notices()},
            upgrade_guard=UpgradeLease(store.leases, holder=holder),
        )

    async def _last_generation(self, id: str) -> int:
        """The generation to continue with: a module that is installed again gets the data it left."""
        return max(await self.data.generations(id), default=1)

    # upkeep

    def sweep_uploads(self) -> None:
        """Remove partial uploads of an earlier process. Blocks."""
        sweep_uploads(self.uploads)

    async def sweep_generations(self) -> None:
        """Remove data that an upgrade was working on when its controller died. Only before modules run, and
        only when every package can be read."""
        if self._state.quarantine:
            return
        await self.data.sweep({record.id: record.generation for record in self.packages.all()})

    async def upkeep(self) -> None:
        dropped = await self.supply.sweep()
        if dropped:
            _log.info("module_archives.removed", archives=len(dropped))

    def forget(self, id: str) -> None:
        """Forget a removed package."""
        self.logs.forget(id)
        self.metrics.forget(id)
        self.frontends.forget(id)

    # metrics

    def register_metrics(self) -> None:
        if self._collector is None:
            self._collector = ModuleMetricsCollector(
                host_metrics=lambda: host_metrics(self.engine.all_live()),
                leaked=self._leaks,
                families=self.metrics.families,
                dropped=lambda: dict(self.metrics.dropped),
                capabilities=self.engine.capabilities.all,
                nodes=self.node_metrics,
            )
            self._registry.register(self._collector)

    def unregister_metrics(self) -> None:
        if self._collector is not None:
            self._registry.unregister(self._collector)
            self._collector = None

    def _leaks(self) -> dict[str, int]:
        found = {record.id: 0 for record in self.packages.all()}
        for leak in self.pool.leaked():
            found[leak.module_id] = found.get(leak.module_id, 0) + 1
        return found
