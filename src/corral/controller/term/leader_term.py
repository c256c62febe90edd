"""One term of leading: everything that exists only while this controller leads, under one epoch.

Built from the store's truth and thrown away as a whole. Nothing of a term survives it in memory,
so a new leader never trusts what it believed as a follower.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self

import msgspec
import structlog

from corral.controller.distribution.service import Distribution
from corral.controller.events.hub import EventHub
from corral.controller.http.setting import Leading
from corral.controller.instances.group_format_upgrade import upgrade_groups
from corral.controller.instances.service import InstanceService
from corral.controller.modules.module_service import Modules
from corral.controller.modules_on_nodes.node_traffic import NodeModuleTraffic
from corral.controller.reconcile.loop import Reconciler
from corral.controller.sessions.grpc_service import LinkTerm
from corral.controller.sessions.session_registry import Sessions
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Ledger, Step
from corral.controller.templates.library import TemplateLibrary
from corral.controller.term.cluster_init import found_cluster
from corral.controller.term.commit_followers import Followers
from corral.controller.term.housekeeping import Housekeeping
from corral.controller.term.term_services import NodeServices, TermDeps, TermServices
from corral.controller.workload.service import Workloads
from corral.domain.events import Draft, EventType
from corral.pki.authority import Authority
from corral.store.port import Commit
from corral.store.store_errors import Fenced
from corral.store.writer import Writer, WriterTiming
from corral.system.aio.tasks import Tasks

_RESTART_SECONDS: Final = 1.0
_TOLD_UNREADABLE: Final = 100
_log = structlog.get_logger("corral.controller.term")


class _Publishing:
    """The hub among the followers of commits."""

    def __init__(self, hub: EventHub) -> None:
        self.follow: Final = hub.publish
        self.resync: Final = hub.resync


class LeaderTerm:
    """Use as `async with`: on entry the term serves, on exit nothing of it runs any more."""

    def __init__(
        self,
        mandate: TermDeps,
        *,
        on_fatal: Callable[[BaseException], None],
        opening: Sequence[Step] = (),
    ) -> None:
        """`opening`: what is committed together with the news of this leader."""
        self._mandate = mandate
        self._store = mandate.store
        self._opening = tuple(opening)
        self._stack = contextlib.AsyncExitStack()
        self._fleet: NodeServices
        self._doors: TermServices | None = None
        self.epoch = mandate.epoch
        self.state = ClusterState()
        self.fenced = asyncio.Event()
        self._followers = Followers()
        self.writer = Writer(
            self._store.commits,
            epoch=mandate.epoch,
            clock=mandate.clock,
            entropy=mandate.entropy,
            on_commit=self._fold,
            on_fenced=self._depose,
            on_fatal=on_fatal,
            timing=WriterTiming(patience=mandate.config.store.commit_wait_seconds),
        )
        self.ledger = Ledger(self.writer, self.state)
        self.hub: EventHub

    def _fold(self, commit: Commit) -> None:
        """Memory first: it is the store's fold or nothing, and if it fails, the process has to end. Then
        everybody who looks at memory, none of whom can end anything."""
        self.state.apply(commit)
        self._followers.follow(commit)

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
        mandate, stack = self._mandate, self._stack
        snapshot = await self._store.reads.snapshot(self.state.collections)
        self.state.load(snapshot)
        self.hub = EventHub(log=self._store.reads, clock=mandate.clock, head=snapshot.head.cursor)
        self._fleet = NodeServices(mandate, ledger=self.ledger, stack=stack)
        self._fleet.join(self._followers)
        self._followers.add("events", _Publishing(self.hub))
        self.writer.start()
        stack.push_async_callback(self.writer.close)
        await self._found()
        await upgrade_groups(self.ledger)
        await self._announce()
        await self.sessions.forget_predecessors()
        await self.instances.numbers.refill()
        self._doors = TermServices(
            mandate, self._fleet, ledger=self.ledger, hub=self.hub, writer=self.writer, stack=stack
        )
        self._followers.add("modules on nodes", self._doors.node_modules, before="events")
        await stack.enter_async_context(self._housekeeping())
        self._keep_running("followers/resync", self._followers.run)
        self._keep_running("distribution/warm", self.distribution.run)
        self._keep_running("dispatch/repeat", self.instances.dispatcher.run)
        self._keep_running("reconcile/run", self.reconciler.run)
        stack.push_async_callback(self.modules.close)
        await self.modules.open()

    async def _found(self) -> None:
        await found_cluster(
            ledger=self.ledger,
            data=self._mandate.config.data,
            key_path=self._mandate.config.cluster_key_path,
            clock=self._mandate.clock,
            entropy=self._mandate.entropy,
            on_purpose=self._mandate.found_cluster,
        )

    async def _announce(self) -> None:
        event = Draft(
            type=EventType.LEADER_CHANGED,
            subject=self.state.identity.id,
            data={"holder": self._mandate.holder, "epoch": self.epoch},
        )
        await self.ledger.commit(event, *self._opening, *self._unreadable())

    def _unreadable(self) -> list[Draft]:
        """Told by each new leader anew, until it is mended; the first of many stand for all."""
        return [
            Draft(type=EventType.DOCUMENT_UNREADABLE, subject=str(each), data=msgspec.to_builtins(each))
            for each in itertools.islice(self.state.quarantine, _TOLD_UNREADABLE)
        ]

    def _housekeeping(self) -> Housekeeping:
        return Housekeeping(
            config=self._mandate.config,
            store=self._store,
            ledger=self.ledger,
            epoch=self.epoch,
            clock=self._mandate.clock,
        )

    def _keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """A task of this term. A bug in it is logged, and must not leave instances without a keeper."""

        async def guarded() -> None:
            while True:
                try:
                    return await run()
                except Exception:
                    _log.exception("term.task_failed", task=name)
                    await asyncio.sleep(_RESTART_SECONDS)

        tasks = Tasks()
        tasks.spawn(guarded(), name=name)
        self._stack.push_async_callback(tasks.close)

    # --- its parts, from the moment it is entered ------------------------------------------------
    @property
    def sessions(self) -> Sessions:
        return self._fleet.sessions

    @property
    def templates(self) -> TemplateLibrary:
        return self._fleet.templates

    @property
    def distribution(self) -> Distribution:
        return self._fleet.distribution

    @property
    def workload(self) -> Workloads:
        return self._fleet.workload

    @property
    def instances(self) -> InstanceService:
        return self._fleet.instances

    @property
    def reconciler(self) -> Reconciler:
        return self._fleet.reconciler

    @property
    def doors(self) -> TermServices:
        assert self._doors is not None, "the term was not entered"
        return self._doors

    @property
    def authority(self) -> Authority:
        return self.doors.authority

    @property
    def http(self) -> Leading:
        return self.doors.http

    @property
    def link(self) -> LinkTerm:
        return self.doors.link

    @property
    def modules(self) -> Modules:
        return self.doors.modules

    @property
    def node_modules(self) -> NodeModuleTraffic:
        return self.doors.node_modules
