"""Those who mind nodes and instances for one term, put together."""

from __future__ import annotations

import contextlib
import datetime as dt

from corral.controller.distribution.service import Distribution
from corral.controller.instances.service import InstanceService
from corral.controller.instances.tickets import ticket_keys
from corral.controller.reconcile.loop import Reconciler
from corral.controller.reconcile.observation import Observation, awaited_nodes
from corral.controller.sessions.refused_reports import RefusedReports
from corral.controller.sessions.session_registry import Sessions
from corral.controller.sessions.uploads import Uploads
from corral.controller.state.ledger import Ledger
from corral.controller.templates.library import TemplateLibrary
from corral.controller.term.commit_followers import Followers
from corral.controller.term.term_deps import Mandate
from corral.controller.workload.service import Workloads
from corral.controller.workload.tokens import workload_key
from corral.domain.ids import NodeId


class Fleet:
    """They see every commit of their term, so they are there before the first, and are made from a state
    that is loaded. What has to be undone is on the term's stack; nothing runs yet."""

    def __init__(self, mandate: Mandate, *, ledger: Ledger, stack: contextlib.AsyncExitStack) -> None:
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

    def _distribution(self, mandate: Mandate, ledger: Ledger) -> Distribution:
        return Distribution(
            state=ledger.state,
            library=self.templates,
            links=self.sessions,
            uploads=self.uploads,
            limits=mandate.config.templates,
            clock=mandate.clock,
            entropy=mandate.entropy,
        )

    def _workload(self, mandate: Mandate, ledger: Ledger) -> Workloads:
        return Workloads(
            state=ledger.state,
            links=self.sessions,
            key=lambda: workload_key(ledger.state, mandate.config.cluster_key_path),
            clock=mandate.clock,
            life=dt.timedelta(seconds=mandate.config.workload.token_seconds),
        )

    def _instances(self, mandate: Mandate, ledger: Ledger) -> InstanceService:
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
