"""The services of one term, and what they are built from.

`NodeServices` follow every commit and are there before the first one. `TermServices` are opened once the cluster
exists: to modules, to the API and to nodes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import dataclass, field
from typing import Final

from corral.controller.consoles.service import Consoles
from corral.controller.distribution.service import Distribution
from corral.controller.events.hub import EventHub
from corral.controller.http.setting import ClusterControl, Leading, Setting, WriterHealth
from corral.controller.instances.node_reports import InstanceReports
from corral.controller.instances.service import InstanceService
from corral.controller.instances.start_identity import ticket_keys
from corral.controller.modules.components import ModuleComponents
from corral.controller.modules.module_service import Modules
from corral.controller.modules_on_nodes.node_traffic import NodeModuleTraffic
from corral.controller.reconcile.loop import Reconciler
from corral.controller.reconcile.lost_nodes import Observation, awaited_nodes
from corral.controller.sessions.enrolment import Enrolment
from corral.controller.sessions.fetches import Fetches
from corral.controller.sessions.frame_receivers import RefusedReports
from corral.controller.sessions.grpc_service import LinkTerm
from corral.controller.sessions.node_links import no_longer_leading
from corral.controller.sessions.session_registry import Sessions
from corral.controller.sessions.uploads import Uploads
from corral.controller.state.ledger import Ledger
from corral.controller.templates.library import TemplateLibrary
from corral.controller.term.cluster_init import open_authority, trusted_ca_pem
from corral.controller.term.commit_followers import Followers
from corral.controller.workload.service import Workloads
from corral.controller.workload.tokens import workload_key
from corral.domain.ids import Epoch, NodeId
from corral.signing import Verifier
from corral.store.port import Store
from corral.system.clock import Clock
from corral.system.controller_config import ControllerConfig
from corral.system.entropy import Entropy


@dataclass(frozen=True, kw_only=True)
class TermDeps:
    """Only for those who put a term together; its parts get what they use, each by itself."""

    epoch: Epoch
    holder: str
    config: ControllerConfig
    store: Store
    setting: Setting
    cluster: ClusterControl
    verifier: Verifier
    clock: Clock
    entropy: Entropy
    api_url: str = ""
    """Where instances reach the API."""
    found_cluster: bool = False
    """Make a new cluster also where there was one."""
    ahead_of_store: set[str] = field(default_factory=set)
    """Nodes that know of confirmations which the store has lost; of all terms of this process."""


class NodeServices:
    """They see every commit of their term, so they are there before the first, and are made from a state
    that is loaded. What has to be undone is on the term's stack; nothing runs yet."""

    def __init__(self, mandate: TermDeps, *, ledger: Ledger, stack: contextlib.AsyncExitStack) -> None:
        config, clock, metrics = mandate.config, mandate.clock, mandate.setting.metrics.registry
        self.sessions = Sessions(
            ledger=ledger, clock=clock, metrics=metrics, ahead_of_store=mandate.ahead_of_store
        )
        stack.callback(self.sessions.forget_metrics, metrics)
        self.refused = RefusedReports(metrics=metrics, clock=clock)
        stack.callback(self.refused.forget_metrics, metrics)
        self.uploads = stack.enter_context(Uploads(mandate.store.blobs, directory=config.data / "incoming"))
        self.templates = TemplateLibrary(
            mandate.store.blobs, config=config.templates, directory=config.data / "uploads", clock=clock
        )
        self.distribution = self._distribution(mandate, ledger)
        self.workload = self._workload(mandate, ledger)
        self.instances = self._instances(mandate, ledger)
        self.reconciler = Reconciler(
            ledger=ledger,
            instances=self.instances,
            sessions=self.sessions,
            observation=Observation(awaited_nodes(ledger.state)),
            config=config.reconcile,
            clock=clock,
        )
        self.reconciler.begin()

    def join(self, followers: Followers) -> None:
        """Hear of each commit, once it is in memory."""
        followers.add("sessions", self.sessions)
        followers.add("workload", self.workload)
        followers.add("distribution", self.distribution)
        followers.add("instances", self.instances)
        followers.add("reconciler", self.reconciler)

    def judged(self, node_id: NodeId) -> None:
        """A node's session has begun in earnest: it counts, and it gets what it will need."""
        self.reconciler.judged(node_id)
        self.distribution.joined(node_id)

    def _distribution(self, mandate: TermDeps, ledger: Ledger) -> Distribution:
        return Distribution(
            state=ledger.state,
            library=self.templates,
            links=self.sessions,
            uploads=self.uploads,
            limits=mandate.config.templates,
            clock=mandate.clock,
            entropy=mandate.entropy,
        )

    def _workload(self, mandate: TermDeps, ledger: Ledger) -> Workloads:
        return Workloads(
            state=ledger.state,
            links=self.sessions,
            key=lambda: workload_key(ledger.state, mandate.config.cluster_key_path),
            clock=mandate.clock,
            life=dt.timedelta(seconds=mandate.config.workload.token_seconds),
        )

    def _instances(self, mandate: TermDeps, ledger: Ledger) -> InstanceService:
        return InstanceService(
            ledger=ledger,
            sessions=self.sessions,
            epoch=mandate.epoch,
            clock=mandate.clock,
            entropy=mandate.entropy,
            tokens=self.workload.tokens,
            ticket_keys=lambda: ticket_keys(ledger.state, mandate.config.cluster_key_path),
            api_url=mandate.api_url,
            resend_seconds=mandate.config.reconcile.resend_seconds,
        )


_MODULES_SHARE: Final = 0.4
"""Of the shutdown's budget: what modules have to end in."""


class TermServices:
    """Made whole or not at all. The term's stack closes them: nodes first, then people, then modules on nodes."""

    def __init__(
        self,
        mandate: TermDeps,
        fleet: NodeServices,
        *,
        ledger: Ledger,
        hub: EventHub,
        writer: WriterHealth,
        stack: contextlib.AsyncExitStack,
    ) -> None:
        self._mandate = mandate
        self._fleet = fleet
        self._ledger = ledger
        self._hub = hub
        key_path = mandate.config.cluster_key_path
        self.authority = open_authority(ledger.state, key_path=key_path, clock=mandate.clock)
        parts = self._module_parts()
        self.node_modules = self._node_module_traffic(parts)
        stack.push_async_callback(self.node_modules.close)
        stack.callback(mandate.setting.metrics.before(parts.node_figures.look))
        budget = mandate.config.shutdown.budget_seconds * _MODULES_SHARE
        self.modules = Modules(parts, ledger=ledger, budget=budget, nodes=self.node_modules)
        consoles = self._consoles()
        self.http = self._http(writer, consoles)
        stack.push_async_callback(self.http.close)
        stack.push_async_callback(fleet.distribution.close)
        self.link = self._link(consoles)
        stack.push_async_callback(fleet.sessions.close, no_longer_leading())

    def _module_parts(self) -> ModuleComponents:
        """Not before the cluster is founded: their data lies under its id."""
        mandate = self._mandate
        return ModuleComponents(
            config=mandate.config.modules,
            data=mandate.config.data,
            store=mandate.store,
            ledger=self._ledger,
            hub=self._hub,
            epoch=mandate.epoch,
            holder=mandate.holder,
            verifier=mandate.verifier,
            files=self._fleet.distribution,
            registry=mandate.setting.metrics.registry,
            clock=mandate.clock,
            entropy=mandate.entropy,
        )

    def _node_module_traffic(self, parts: ModuleComponents) -> NodeModuleTraffic:
        return NodeModuleTraffic(
            ledger=self._ledger,
            blobs=self._mandate.store.blobs,
            hub=self._hub,
            registry=parts.engine.capabilities,
            figures=parts.node_figures,
            clock=self._mandate.clock,
        )

    def _consoles(self) -> Consoles:
        return Consoles(
            state=self._ledger.state,
            hub=self._hub,
            links=self._fleet.sessions,
            uploads=self._fleet.uploads,
            clock=self._mandate.clock,
            entropy=self._mandate.entropy,
            refused=self._fleet.refused,
        )

    def _http(self, writer: WriterHealth, consoles: Consoles) -> Leading:
        mandate, fleet = self._mandate, self._fleet
        return Leading(
            setting=mandate.setting,
            state=self._ledger.state,
            ledger=self._ledger,
            reads=mandate.store.reads,
            hub=self._hub,
            writer=writer,
            nodes=fleet.sessions,
            cluster=mandate.cluster,
            instances=fleet.instances,
            consoles=consoles,
            blobs=mandate.store.blobs,
            templates=fleet.templates,
            distribution=fleet.distribution,
            workload=fleet.workload,
            modules=self.modules,
        )

    def _link(self, consoles: Consoles) -> LinkTerm:
        fleet = self._fleet
        return LinkTerm(
            epoch=self._mandate.epoch,
            ledger=self._ledger,
            sessions=fleet.sessions,
            enrolment=self._enrolment(),
            fetches=Fetches(self._mandate.store.blobs, access=fleet.distribution),
            uploads=fleet.uploads,
            reports=self._reports(),
            consoles=consoles,
            files=fleet.distribution,
            modules=self.node_modules,
            trusted_ca_pem=trusted_ca_pem(self._ledger.state),
        )

    def _enrolment(self) -> Enrolment:
        return Enrolment(
            ledger=self._ledger,
            authority=self.authority,
            clock=self._mandate.clock,
            certificate_life=dt.timedelta(days=self._mandate.config.pki.node_certificate_days),
        )

    def _reports(self) -> InstanceReports:
        instances = self._fleet.instances
        return InstanceReports(
            state=self._ledger.state,
            workspace=lambda cause: instances.workspace(cause=cause),
            numbers=instances.numbers,
            tickets=instances.tickets,
            dispatcher=instances.dispatcher,
            commands=instances.commands,
            vitals=self._fleet.workload.vitals,
            refused=self._fleet.refused,
            clock=self._mandate.clock,
            on_judged=self._fleet.judged,
        )
