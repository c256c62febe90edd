"""One term of leading: everything that exists only while this controller leads, under one epoch.

Built from the store's truth and thrown away as a whole. Nothing of a term survives it in memory,
so a new leader never trusts what it believed as a follower.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self

import structlog

from corral.controller.cluster_state import ClusterState
from corral.controller.consoles.service import Consoles
from corral.controller.distribution.service import Distribution
from corral.controller.enrolment import Enrolment
from corral.controller.events.hub import EventHub
from corral.controller.founding import found_cluster, open_authority, trusted_ca_pem
from corral.controller.housekeeping import Housekeeping
from corral.controller.http.setting import ClusterControl, Leading, Setting
from corral.controller.instances.node_reports import InstanceReports
from corral.controller.instances.service import InstanceService
from corral.controller.ledger import Ledger, Step
from corral.controller.modules.parts import ModuleParts
from corral.controller.modules.service import Modules
from corral.controller.node_modules.traffic import NodeModuleTraffic
from corral.controller.reconcile.loop import Reconciler
from corral.controller.reconcile.observation import Observation, awaited_nodes
from corral.controller.sessions.door import LinkTerm
from corral.controller.sessions.fetches import Fetches
from corral.controller.sessions.registry import Sessions
from corral.controller.sessions.uploads import Uploads
from corral.controller.templates.library import TemplateLibrary
from corral.controller.workload.service import Workloads
from corral.controller.workload.tokens import workload_key
from corral.domain.events import Draft, EventType
from corral.domain.ids import Epoch, NodeId
from corral.errors import Code, Retryable
from corral.pki.authority import Authority
from corral.signing import Verifier
from corral.store.port import Adapter, Commit, Fenced
from corral.store.writer import Writer, WriterTiming
from corral.system.clock import Clock
from corral.system.config_schema import ControllerConfig
from corral.system.entropy import Entropy

_RESTART_SECONDS: Final = 1.0
_MODULES_SHARE: Final = 0.4
"""Of the shutdown's budget: what modules have to end in."""
_log = structlog.get_logger("corral.controller.term")


class LeaderTerm:
    """Use as `async with`: on entry the term serves, on exit nothing of it runs any more."""

    def __init__(
        self,
        *,
        config: ControllerConfig,
        store: Adapter,
        epoch: Epoch,
        holder: str,
        setting: Setting,
        cluster: ClusterControl,
        clock: Clock,
        entropy: Entropy,
        on_fatal: Callable[[BaseException], None],
        verifier: Verifier,
        opening: Sequence[Step] = (),
        api_url: str = "",
    ) -> None:
        self._config = config
        self._api_url = api_url
        self._store = store
        self._holder = holder
        self._setting = setting
        self._cluster = cluster
        self._clock = clock
        self._entropy = entropy
        self._verifier = verifier
        self._opening = tuple(opening)
        self._stack = contextlib.AsyncExitStack()
        self.epoch = epoch
        self.state = ClusterState()
        self.fenced = asyncio.Event()
        self.writer = Writer(
            store,
            epoch=epoch,
            clock=clock,
            entropy=entropy,
            on_commit=self._fold,
            on_fenced=self._depose,
            on_fatal=on_fatal,
            timing=WriterTiming(patience=config.store.commit_wait_seconds),
        )
        self.ledger = Ledger(self.writer, self.state)
        self.hub: EventHub
        self.sessions: Sessions
        self.uploads: Uploads
        self.templates: TemplateLibrary
        self.distribution: Distribution
        self.workload: Workloads
        self.instances: InstanceService
        self.reconciler: Reconciler
        self.modules: Modules
        self.node_modules: NodeModuleTraffic | None = None
        self.authority: Authority
        self.http: Leading
        self.link: LinkTerm

    def _fold(self, commit: Commit) -> None:
        """Memory first, then everybody who looks at memory."""
        self.state.apply(commit)
        self.sessions.follow(commit)
        self.workload.follow(commit)
        self.distribution.follow(commit)
        self.instances.follow(commit)
        self.reconciler.follow(commit)
        if self.node_modules is not None:
            self.node_modules.follow(commit)
        self.hub.publish(commit)

    def _depose(self, fenced: Fenced) -> None:
        _log.error("term.fenced", epoch=self.epoch, current=fenced.current)
        self.fenced.set()

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _begin(self) -> None:
        snapshot = await self._store.snapshot(self.state.collections)
        self.state.load(snapshot)
        self.hub = EventHub(log=self._store, clock=self._clock, head=snapshot.head.cursor)
        metrics = self._setting.metrics.registry
        self.sessions = Sessions(ledger=self.ledger, clock=self._clock, metrics=metrics)
        self._stack.callback(self.sessions.forget_metrics, metrics)
        self._make_suppliers()
        self._make_keepers()
        self.writer.start()
        self._stack.push_async_callback(self.writer.close)
        await found_cluster(
            ledger=self.ledger,
            data=self._config.data,
            key_path=self._config.cluster_key_path,
            clock=self._clock,
            entropy=self._entropy,
        )
        await self._announce()
        await self.sessions.forget_predecessors()
        await self.instances.numbers.refill()
        self._open_doors()
        housekeeping = Housekeeping(
            config=self._config,
            store=self._store,
            ledger=self.ledger,
            epoch=self.epoch,
            clock=self._clock,
        )
        await self._stack.enter_async_context(housekeeping)
        self._keep_running("distribution/warm", self.distribution.run)
        self._keep_running("dispatch/repeat", self.instances.dispatcher.run)
        self._keep_running("reconcile/run", self.reconciler.run)
        self._stack.push_async_callback(self.modules.close)
        await self.modules.open()

    def _make_suppliers(self) -> None:
        """Those who have what instances are made of, and speak with what runs."""
        data = self._config.data
        self.uploads = self._stack.enter_context(Uploads(self._store, directory=data / "incoming"))
        self.templates = TemplateLibrary(
            self._store, config=self._config.templates, directory=data / "uploads", clock=self._clock
        )
        self.distribution = Distribution(
            state=self.state,
            library=self.templates,
            links=self.sessions,
            uploads=self.uploads,
            limits=self._config.templates,
            clock=self._clock,
            entropy=self._entropy,
        )
        self.workload = Workloads(
            state=self.state,
            links=self.sessions,
            key=lambda: workload_key(self.state, self._config.cluster_key_path),
            clock=self._clock,
            life=dt.timedelta(seconds=self._config.workload.token_seconds),
        )

    def _make_keepers(self) -> None:
        """Those who keep instances. They see every commit, so they are there before the first."""
        self.instances = InstanceService(
            ledger=self.ledger,
            sessions=self.sessions,
            epoch=self.epoch,
            clock=self._clock,
            entropy=self._entropy,
            tokens=self.workload.tokens,
            api_url=self._api_url,
            resend_seconds=self._config.reconcile.resend_seconds,
        )
        self.reconciler = Reconciler(
            ledger=self.ledger,
            instances=self.instances,
            sessions=self.sessions,
            observation=Observation(awaited_nodes(self.state)),
            config=self._config.reconcile,
            clock=self._clock,
        )
        self.reconciler.begin()

    def _make_module_parts(self) -> ModuleParts:
        """Not before the cluster is founded: their data lies under its id."""
        return ModuleParts(
            config=self._config.modules,
            data=self._config.data,
            store=self._store,
            ledger=self.ledger,
            hub=self.hub,
            epoch=self.epoch,
            holder=self._holder,
            verifier=self._verifier,
            files=self.distribution,
            registry=self._setting.metrics.registry,
            clock=self._clock,
            entropy=self._entropy,
        )

    def _judged(self, node_id: NodeId) -> None:
        """A node's session has begun in earnest: it counts, and it gets what it will need."""
        self.reconciler.judged(node_id)
        self.distribution.joined(node_id)

    def _keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """A task of this term. A bug in it is logged, and must not leave instances without a keeper."""

        async def guarded() -> None:
            while True:
                try:
                    return await run()
                except Exception:
                    _log.exception("term.task_failed", task=name)
                    await asyncio.sleep(_RESTART_SECONDS)

        task = asyncio.create_task(guarded(), name=name)

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(end)

    async def _announce(self) -> None:
        event = Draft(
            type=EventType.LEADER_CHANGED,
            subject=self.state.identity.id,
            data={"holder": self._holder, "epoch": self.epoch},
        )
        await self.ledger.commit(event, *self._opening)

    def _open_doors(self) -> None:
        self.authority = open_authority(self.state, key_path=self._config.cluster_key_path, clock=self._clock)
        parts = self._make_module_parts()
        self.node_modules = NodeModuleTraffic(
            ledger=self.ledger,
            blobs=self._store,
            hub=self.hub,
            log=self._store,
            registry=parts.engine.capabilities,
            figures=parts.node_figures,
            clock=self._clock,
        )
        self._stack.push_async_callback(self.node_modules.close)
        self._stack.callback(self._setting.metrics.before(parts.node_figures.look))
        budget = self._config.shutdown.budget_seconds * _MODULES_SHARE
        self.modules = Modules(parts, ledger=self.ledger, budget=budget, nodes=self.node_modules)
        consoles = Consoles(
            state=self.state,
            hub=self.hub,
            links=self.sessions,
            uploads=self.uploads,
            clock=self._clock,
            entropy=self._entropy,
        )
        self.http = Leading(
            setting=self._setting,
            state=self.state,
            ledger=self.ledger,
            reads=self._store,
            hub=self.hub,
            writer=self.writer,
            nodes=self.sessions,
            cluster=self._cluster,
            instances=self.instances,
            consoles=consoles,
            blobs=self._store,
            templates=self.templates,
            distribution=self.distribution,
            workload=self.workload,
            modules=self.modules,
        )
        self._stack.push_async_callback(self.http.close)
        self._stack.push_async_callback(self.distribution.close)
        self.link = LinkTerm(
            epoch=self.epoch,
            ledger=self.ledger,
            sessions=self.sessions,
            enrolment=Enrolment(
                ledger=self.ledger,
                authority=self.authority,
                clock=self._clock,
                certificate_life=dt.timedelta(days=self._config.pki.node_certificate_days),
            ),
            fetches=Fetches(self._store),
            uploads=self.uploads,
            reports=InstanceReports(
                state=self.state,
                workspace=lambda cause: self.instances.workspace(cause=cause),
                numbers=self.instances.numbers,
                dispatcher=self.instances.dispatcher,
                commands=self.instances.commands,
                vitals=self.workload.vitals,
                on_judged=self._judged,
            ),
            consoles=consoles,
            files=self.distribution,
            modules=self.node_modules,
            trusted_ca_pem=trusted_ca_pem(self.state),
        )
        reason = Retryable(Code.NOT_LEADER, "this controller no longer leads", retry_after=1.0)
        self._stack.push_async_callback(self.sessions.close, reason)
