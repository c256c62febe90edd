"""Module service of a leading controller: modules are installed, kept running, and ended with the term.

The engine carries out the verbs; this adds the controller's part: audit, storage, cleanup. Everything in
memory belongs to this term.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import math
from pathlib import Path
from typing import Any, Final

import structlog

from corral.controller.modules.components import ModuleComponents
from corral.controller.modules.frontends import FrontendFile
from corral.controller.modules.installer import InstallAnswer, InstallOptions
from corral.controller.modules_on_nodes.node_metrics import ModuleUsage
from corral.controller.modules_on_nodes.reload_and_recover import (
    NodeSyncView,
    RecoverRequest,
    with_reload_request,
)
from corral.controller.state.ledger import Actor, Ledger, audit
from corral.domain.events import Draft, EventType
from corral.domain.ids import NodeId
from corral.domain.modules.manifest import ModuleHost
from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.records import PackageRecord
from corral.domain.modules.verbs import Verb
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.modules.archive.compatibility import CompatibilityReport
from corral.modules.lifecycle.engine import ModuleEngine
from corral.modules.lifecycle.event_fields import changed_keys, phase_fields
from corral.modules.manifest.settings import check_settings
from corral.modules.process import Leak
from corral.sdk.protocol.messages import HealthAnswer
from corral.signing import Sidecar
from corral.system.aio.tasks import Tasks, set_within
from corral.system.threads import to_end

UPKEEP_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 2.0
"""Interval of reports about processes that had to be killed."""
_OPEN_WAIT: Final = 30.0
_RETRY_SECONDS: Final = 1.0
_log = structlog.get_logger("corral.controller.modules")


class Modules:
    """`open` returns at once and starts the modules in the background; `close` ends them all."""

    def __init__(
        self, parts: ModuleComponents, *, ledger: Ledger, budget: float, nodes: NodeSyncView | None = None
    ) -> None:
        """`budget`: seconds in which the modules have to end. `nodes`: access to their parts on nodes."""
        self._parts = parts
        self._nodes = nodes
        self._ledger = ledger
        self._budget = budget
        self._packages = parts.packages
        self._prepared = asyncio.Event()
        self._announced: set[tuple[str, int, dt.datetime]] = set()
        self._clock = parts.clock
        self._tasks = Tasks()
        self._stack = contextlib.AsyncExitStack()
        self.engine: Final[ModuleEngine] = parts.engine
        self.data: Final = parts.data
        self.uploads: Final = parts.uploads
        """Files of archives that are being received."""
        self.examined: Final = parts.examined
        """Archives that were examined, to be installed by their digest."""
        self.node_reports: Final = parts.node_metrics
        """Metrics of modules on nodes, as these reported last."""
        self.max_archive_bytes: Final = parts.max_archive_bytes
        self.enabled: Final = parts.enabled
        """Do modules run here? Where they do not, verbs are accepted all the same: the desired state is
        stored."""

    # the term

    async def open(self) -> None:
        """Start in the background: readiness does not wait for modules."""
        if not self.enabled:
            _log.warning("modules.disabled", reason="modules.enabled is false, or --no-modules was given")
        self._parts.register_metrics()
        self._tasks.spawn(self._run(), name="modules/run")

    async def close(self) -> None:
        """Stop, unload or kill every module; stored phases stay. Idempotent."""
        await self._tasks.close()
        await self.examined.close()
        self._parts.unregister_metrics()
        stragglers = await self.engine.close(budget=self._budget)
        if stragglers:
            _log.warning("modules_stop.failed", modules=stragglers)
        await self._stack.aclose()

    async def _run(self) -> None:
        await self._repeated(self._parts.supply.mend_files)
        await self._repeated(self._prepare)
        self._prepared.set()
        await self._repeated(self.engine.boot)
        swept = -math.inf
        while True:
            try:
                await self.examined.purge()
                await self._announce_leaks()
                if self._clock.monotonic() - swept >= UPKEEP_SECONDS:
                    await self._parts.upkeep()
                    swept = self._clock.monotonic()
            except Exception as error:
                _log.warning("modules_upkeep.failed", reason=repr(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def _announce_leaks(self) -> None:
        """Publish an event for each process that did not end by itself, once."""
        known = {(leak.module_id, leak.pid, leak.since): leak for leak in self.leaked()}
        for key, leak in known.items():
            if key not in self._announced:
                await self._ledger.commit(leak_event(leak, self._packages.find(leak.module_id)))
                self._announced.add(key)
        self._announced &= set(known)

    async def _prepare(self) -> None:
        await to_end(self._parts.sweep_uploads)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._parts.pool)
            await self.data.open()
            stack.push_async_callback(self.data.close)
            await self._parts.sweep_generations()
            self._stack = stack.pop_all()

    async def _repeated(self, work: Any) -> None:
        """Repeat until done; the store may be unavailable for a while."""
        while True:
            try:
                await work()
            except CorralError as error:
                _log.warning("modules_start.retried", reason=str(error))
                await asyncio.sleep(error.retry_after or _RETRY_SECONDS)
            except Exception:
                _log.exception("modules_start.failed")
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    async def _ready(self) -> None:
        """Verbs wait until the engine has started."""
        if not await set_within(self._prepared, _OPEN_WAIT):
            raise Retryable(
                Code.MODULE_BUSY, "modules are not ready yet", hint="see the log", retry_after=2.0
            )

    # reading

    def find(self, id: str) -> PackageRecord:
        """The record; NOT_FOUND with the nearest id there is."""
        return self._packages.require(id)

    def all(self) -> list[PackageRecord]:
        return self._packages.all()

    async def health(self, id: str) -> HealthAnswer:
        """Result of the module's health check. MODULE_NOT_ACTIVE, MODULE_TIMEOUT, MODULE_FAILED; NOT_FOUND
        also when it has no part on the controller."""
        self._packages.require(id)
        return await self.engine.health(id)

    def progress(self, node_id: NodeId, id: str) -> str:
        """Progress of a module on its way to a node; empty when it is not."""
        return self._nodes.progress(node_id, id) if self._nodes is not None else ""

    async def look_at_nodes(self) -> None:
        """Read what nodes have reported about their modules since the last time, aside from the loop."""
        await self.node_reports.look()

    def usage_on(self, node_id: NodeId, id: str) -> ModuleUsage | None:
        """What a module uses on a node; None: it has no process there, as far as is known."""
        return self.node_reports.usage(node_id, id)

    def leaked(self) -> list[Leak]:
        return self._parts.pool.leaked()

    async def read_frontend(self, id: str, path: str) -> FrontendFile:
        """A file of its page; an empty path is the entry. NOT_FOUND."""
        await self._ready()
        return await self._parts.frontends.read(self._packages.require(id), path)

    # changing

    async def examine(
        self,
        archive: Path,
        *,
        sidecar: Sidecar | None,
        options: InstallOptions | None = None,
        expect: str = "",
    ) -> CompatibilityReport:
        return await self._parts.installing.examine(
            archive, sidecar=sidecar, options=options or InstallOptions(), expect=expect
        )

    async def install(
        self,
        archive: Path,
        *,
        sidecar: Sidecar | None,
        options: InstallOptions,
        actor: Actor,
        expect: str = "",
    ) -> InstallAnswer:
        """`expect`: the digest that the archive has to have."""
        await self._ready()
        return await self._parts.installing.install(
            archive, sidecar=sidecar, options=options, actor=actor, expect=expect
        )

    async def act(
        self,
        id: str,
        verb: Verb,
        *,
        actor: Actor,
        reason: str = "",
        node: str | None = None,
        settings: dict[str, Any] | None = None,
    ) -> PackageRecord:
        """Carry out an operator's request; returns the record once it has settled, after UNINSTALL the last
        one. `reason` is that of a pause, `node` the only node to recover, `settings` are all of the new ones.
        NOT_FOUND, ILLEGAL_TRANSITION, SETTINGS_INVALID."""
        self._packages.require(id)
        await self._ready()
        async with self._packages.turn(id):
            match verb:
                case Verb.RECOVER:
                    return await self._recover(id, node, actor)
                case Verb.RELOAD | Verb.CONFIGURE:
                    return await self._apply(id, verb, settings, actor)
                case Verb.UNINSTALL:
                    gone = await self._uninstall(id, actor)
                case _:
                    with self._signed(id, verb, actor, **({"reason": reason} if reason else {})):
                        return await self.engine.act(id, verb, reason=reason)
        self._parts.forget(id)
        with contextlib.suppress(OSError):  # else the next sweep removes it
            await self._parts.upkeep()
        return gone

    def _signed(
        self, id: str, verb: Verb, actor: Actor, **after: object
    ) -> contextlib.AbstractContextManager[None]:
        return self._packages.signed(id, audit(actor, f"modules.{verb}", id, after=after or None))

    async def _recover(self, id: str, node: str | None, actor: Actor) -> PackageRecord:
        """Try again wherever it failed, also on nodes that are disconnected, once they are back; with `node`
        on that one only. NOT_FOUND, CONFLICT when it failed nowhere."""
        record = self._packages.require(id)
        recovery = RecoverRequest(self._ledger, record, self._nodes, clock=self._clock)
        if node is not None:
            recovery.check_node(node)
        elif record.phase is ModulePhase.FAILED or not recovery.helps:
            with self._signed(id, Verb.RECOVER, actor):
                record = await self.engine.act(id, Verb.RECOVER)
        await recovery.carry_out(node, actor)
        return record

    async def _apply(
        self, id: str, verb: Verb, settings: dict[str, Any] | None, actor: Actor
    ) -> PackageRecord:
        """CONFIGURE: replace all settings; a module that refuses them keeps the old ones. RELOAD: apply the
        present settings again, here and on every node, also on those that are disconnected, once they are
        back."""
        record = self._packages.require(id)
        chosen = record.settings if settings is None else settings
        checked = await to_end(check_settings, record.manifest.config, chosen)
        with self._signed(id, verb, actor, changed=changed_keys(record.settings, checked)):
            record = await self.engine.act(id, verb, settings=checked)
            if verb is Verb.CONFIGURE or ModuleHost.DAEMON not in record.manifest.hosts:
                return record
            now = self._clock.now()  # accepted here first: refused settings are not sent to nodes
            rows = list(self._ledger.state.module_node_states.rows_of_module(id))
            return await self._packages.step(id, lambda record: with_reload_request(record, rows, now=now))

    async def _uninstall(self, id: str, actor: Actor) -> PackageRecord:
        """Uninstall; the data stays until `drop_storage`."""
        with self._signed(id, Verb.UNINSTALL, actor):
            # A start that is planned at this very moment may still name one of its files.
            await self._parts.supply.stamp(self._packages.require(id))
            return await self.engine.act(id, Verb.UNINSTALL)

    async def drop_storage(self, id: str, *, actor: Actor) -> None:
        """Drop the data of a module that is not installed. STORAGE_IN_USE, NOT_FOUND."""
        await self._ready()
        async with self._packages.turn(id):
            self._packages.require_absent(id)
            if not await self.data.generations(id):
                raise Rejected(Code.NOT_FOUND, f"there is no data of a module '{id[:80]}'")
            await self.data.drop_all(id)
            await self._ledger.commit(
                Draft(type=EventType.MODULE_STORAGE_DROPPED, subject=id, data={"id": id}),
                audit(actor, "modules.drop_storage", id),
            )

    async def force_cleanup(self) -> list[Leak]:
        """Kill lingering processes at once; returns what was killed."""
        return await self._parts.pool.force_cleanup()


def leak_event(leak: Leak, record: PackageRecord | None) -> Draft:
    """The event of a leak. `data` holds what kept the process from ending; for a removed package only its
    id."""
    lingering = leak.lingering
    facts = (
        phase_fields(record, at=leak.since)
        if record
        else {"id": leak.module_id, "at": leak.since.isoformat()}
    )
    return Draft(
        type=EventType.MODULE_LEAKED,
        subject=leak.module_id,
        data={
            **facts,
            "pid": leak.pid,
            "killed": leak.killed,
            "threads": list(lingering.threads) if lingering else [],
            "tasks": list(lingering.tasks) if lingering else [],
            "children": list(lingering.children) if lingering else [],
        },
    )
