"""What a term opens once its cluster is founded: to modules, to people and to nodes."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import Final

from corral.controller.consoles.service import Consoles
from corral.controller.events.hub import EventHub
from corral.controller.http.setting import Leading, WriterHealth
from corral.controller.instances.node_reports import InstanceReports
from corral.controller.modules.components import ModuleParts
from corral.controller.modules.module_service import Modules
from corral.controller.modules_on_nodes.node_traffic import NodeModuleTraffic
from corral.controller.sessions.enrolment import Enrolment
from corral.controller.sessions.fetches import Fetches
from corral.controller.sessions.grpc_service import LinkTerm
from corral.controller.sessions.node_links import no_longer_leading
from corral.controller.state.ledger import Ledger
from corral.controller.term.cluster_init import open_authority, trusted_ca_pem
from corral.controller.term.node_services import Fleet
from corral.controller.term.term_deps import Mandate

_MODULES_SHARE: Final = 0.4
"""Of the shutdown's budget: what modules have to end in."""


class Doors:
    """Made whole or not at all. The term's stack closes them: nodes first, then people, then modules on nodes."""

    def __init__(
        self,
        mandate: Mandate,
        fleet: Fleet,
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

    def _module_parts(self) -> ModuleParts:
        """Not before the cluster is founded: their data lies under its id."""
        mandate = self._mandate
        return ModuleParts(
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

    def _node_module_traffic(self, parts: ModuleParts) -> NodeModuleTraffic:
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
