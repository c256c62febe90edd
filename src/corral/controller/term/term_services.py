"""The services of one term, and their dependencies.

`NodeServices` follow every commit and exist before the first one. `TermServices` are opened once the cluster
exists: to modules, to the API and to nodes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import pathlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from corral.controller.consoles.service import Consoles
from corral.controller.distribution.service import Distribution
from corral.controller.events.hub import EventHub
from corral.controller.http.pipeline.api_context import ProcessContext, TermContext
from corral.controller.http.pipeline.audit_reads import WriterHealth
from corral.controller.http.pipeline.term_ports import ClusterControl
from corral.controller.instances.group_folder import GroupFolder
from corral.controller.instances.node_reports import InstanceReports
from corral.controller.instances.orders import ApiAddress
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
from corral.controller.sessions.offered_files import OfferedFiles
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

_MODULES_SHARE: Final = 0.4
"""The share of the shutdown budget in which modules have to stop."""


def print_line(line: str) -> None:
    print(line, flush=True)


@dataclass(frozen=True, kw_only=True)
class TermDeps:
    """The dependencies of a term: the epoch it was elected under, and what the controller has in any role.

    Only the composition of a term sees all of them; each service gets what it uses.
    """

    epoch: Epoch
    holder: str
    config: ControllerConfig
    store: Store
    setting: ProcessContext
    cluster: ClusterControl
    verifier: Verifier
    clock: Clock
    entropy: Entropy
    api: ApiAddress = field(default_factory=ApiAddress)
    """Where instances reach the API."""
    first_admin_url: str = ""
    """The address of the page that makes the first administrator, without its code."""
    announce: Callable[[str], None] = print_line
    """Tells whoever started this process; what it is told is in no log."""
    found_cluster: bool = False
    """Create a new cluster even where one existed."""
    ahead_of_store: set[str] = field(default_factory=set)
    """Nodes with confirmations that the store has lost; shared by all terms of this process."""


class NodeServices:
    """The services for nodes and instances. They follow every commit of their term, so they are built before
    the first one, from a loaded state. Their cleanup is on the term's stack; no task of theirs runs yet."""

    def __init__(self, deps: TermDeps, *, ledger: Ledger, stack: contextlib.AsyncExitStack) -> None:
        config, clock, metrics = deps.config, deps.clock, deps.setting.metrics.registry
        self.sessions = Sessions(
            ledger=ledger, clock=clock, metrics=metrics, ahead_of_store=deps.ahead_of_store
        )
        stack.callback(self.sessions.forget_metrics, metrics)
        self.refused = RefusedReports(metrics=metrics, clock=clock)
        stack.callback(self.refused.forget_metrics, metrics)
        self.uploads = stack.enter_context(Uploads(deps.store.blobs, directory=config.data / "incoming"))
        self.offers = OfferedFiles()
        self.templates = TemplateLibrary(
            deps.store.blobs, config=config.templates, directory=config.data / "uploads", clock=clock
        )
        self.distribution = self._distribution(deps, ledger)
        self.workload = self._workload(deps, ledger)
        self.instances = self._instances(deps, ledger)
        folder = config.groups.directory
        self.group_folder = GroupFolder(pathlib.Path(folder)) if folder else None
        self.reconciler = Reconciler(
            ledger=ledger,
            instances=self.instances,
            sessions=self.sessions,
            observation=Observation(awaited_nodes(ledger.state)),
            config=config.reconcile,
            clock=clock,
        )
        self.workload.vitals.players_changed = self.instances.signals.players_changed
        self.instances.signals.begin()
        self.reconciler.begin()
        self.workload.vitals.emptied = self.reconciler.instance_emptied

    def join(self, followers: Followers) -> None:
        """Register the services as followers of commits."""
        followers.add("sessions", self.sessions)
        followers.add("workload", self.workload)
        followers.add("distribution", self.distribution)
        followers.add("instances", self.instances)
        followers.add("reconciler", self.reconciler)

    def inventory_complete(self, node_id: NodeId) -> None:
        """A node's inventory is complete: the reconciler counts the node, and its upcoming needs are sent to
        it."""
        self.reconciler.inventory_complete(node_id)
        self.distribution.joined(node_id)

    def _distribution(self, deps: TermDeps, ledger: Ledger) -> Distribution:
        return Distribution(
            state=ledger.state,
            library=self.templates,
            links=self.sessions,
            uploads=self.uploads,
            offers=self.offers,
            limits=deps.config.templates,
            files=deps.config.files,
            clock=deps.clock,
            entropy=deps.entropy,
        )

    def _workload(self, deps: TermDeps, ledger: Ledger) -> Workloads:
        return Workloads(
            state=ledger.state,
            links=self.sessions,
            key=functools.partial(workload_key, ledger.state, deps.config.cluster_key_path),
            clock=deps.clock,
            life=dt.timedelta(seconds=deps.config.workload.token_seconds),
        )

    def _instances(self, deps: TermDeps, ledger: Ledger) -> InstanceService:
        return InstanceService(
            ledger=ledger,
            sessions=self.sessions,
            epoch=deps.epoch,
            clock=deps.clock,
            entropy=deps.entropy,
            tokens=self.workload.tokens,
            ticket_keys=functools.partial(ticket_keys, ledger.state, deps.config.cluster_key_path),
            api=deps.api,
            resend_seconds=deps.config.reconcile.resend_seconds,
            placement=deps.config.placement,
            players=self.workload.vitals.players_of,
            metric=self.workload.vitals.metric_of,
        )


class TermServices:
    """The services that a term opens to modules, the API and nodes. The term's stack closes them: nodes
    first, then the API, then modules on nodes."""

    def __init__(
        self,
        deps: TermDeps,
        nodes: NodeServices,
        *,
        ledger: Ledger,
        hub: EventHub,
        writer: WriterHealth,
        stack: contextlib.AsyncExitStack,
    ) -> None:
        self._deps = deps
        self._nodes = nodes
        self._ledger = ledger
        self._hub = hub
        key_path = deps.config.cluster_key_path
        self.authority = open_authority(ledger.state, key_path=key_path, clock=deps.clock)
        parts = self._module_parts()
        self.node_modules = self._node_module_traffic(parts)
        stack.push_async_callback(self.node_modules.close)
        stack.callback(deps.setting.metrics.before(parts.node_metrics.look))
        budget = deps.config.shutdown.budget_seconds * _MODULES_SHARE
        self.modules = Modules(parts, ledger=ledger, budget=budget, nodes=self.node_modules)
        consoles = self._consoles()
        self.http = self._http(writer, consoles)
        stack.push_async_callback(self.http.close)
        stack.push_async_callback(nodes.distribution.close)
        self.link = self._link(consoles)
        stack.push_async_callback(nodes.sessions.close, no_longer_leading())

    def _module_parts(self) -> ModuleComponents:
        """The parts for modules, not before the cluster exists: module data is stored under the cluster's id."""
        deps = self._deps
        return ModuleComponents(
            config=deps.config.modules,
            data=deps.config.data,
            store=deps.store,
            ledger=self._ledger,
            hub=self._hub,
            epoch=deps.epoch,
            holder=deps.holder,
            verifier=deps.verifier,
            files=self._nodes.distribution,
            registry=deps.setting.metrics.registry,
            clock=deps.clock,
            entropy=deps.entropy,
        )

    def _node_module_traffic(self, parts: ModuleComponents) -> NodeModuleTraffic:
        return NodeModuleTraffic(
            ledger=self._ledger,
            blobs=self._deps.store.blobs,
            hub=self._hub,
            registry=parts.engine.capabilities,
            metrics=parts.node_metrics,
            clock=self._deps.clock,
        )

    def _consoles(self) -> Consoles:
        return Consoles(
            state=self._ledger.state,
            hub=self._hub,
            links=self._nodes.sessions,
            uploads=self._nodes.uploads,
            clock=self._deps.clock,
            entropy=self._deps.entropy,
            refused=self._nodes.refused,
        )

    def _http(self, writer: WriterHealth, consoles: Consoles) -> TermContext:
        deps, nodes = self._deps, self._nodes
        return TermContext(
            setting=deps.setting,
            state=self._ledger.state,
            ledger=self._ledger,
            reads=deps.store.reads,
            hub=self._hub,
            writer=writer,
            nodes=nodes.sessions,
            cluster=deps.cluster,
            instances=nodes.instances,
            consoles=consoles,
            blobs=deps.store.blobs,
            templates=nodes.templates,
            distribution=nodes.distribution,
            workload=nodes.workload,
            modules=self.modules,
            group_folder=nodes.group_folder,
        )

    def _link(self, consoles: Consoles) -> LinkTerm:
        nodes = self._nodes
        return LinkTerm(
            epoch=self._deps.epoch,
            ledger=self._ledger,
            sessions=nodes.sessions,
            enrolment=self._enrolment(),
            fetches=Fetches(self._deps.store.blobs, access=nodes.distribution, files=nodes.offers),
            uploads=nodes.uploads,
            reports=self._reports(),
            consoles=consoles,
            files=nodes.distribution,
            modules=self.node_modules,
            trusted_ca_pem=trusted_ca_pem(self._ledger.state),
        )

    def _enrolment(self) -> Enrolment:
        return Enrolment(
            ledger=self._ledger,
            authority=self.authority,
            clock=self._deps.clock,
            certificate_life=dt.timedelta(days=self._deps.config.pki.node_certificate_days),
        )

    def _reports(self) -> InstanceReports:
        instances = self._nodes.instances
        return InstanceReports(
            state=self._ledger.state,
            workspace=lambda cause: instances.workspace(cause=cause),
            numbers=instances.numbers,
            tickets=instances.tickets,
            dispatcher=instances.dispatcher,
            drain_orders=instances.drain_orders,
            commands=instances.commands,
            node_commands=instances.node_commands,
            vitals=self._nodes.workload.vitals,
            stages=instances.stages,
            refused=self._nodes.refused,
            clock=self._deps.clock,
            on_inventory_complete=self._nodes.inventory_complete,
        )
