"""What nodes need before they can start something: the template versions and artifacts of groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import structlog

from corral.controller.instances.plans import StateSources
from corral.controller.placement.node_choice import unsuited
from corral.controller.sessions.published_start import CONFIG_FORMATS
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import CATALOG, MODULE_PACKAGES, TEMPLATES
from corral.domain.groups import ConfigFormat, GroupSpec
from corral.domain.plan_resolution import resolve_plan
from corral.domain.plans import Plan, PlanArtifact
from corral.domain.records import NodeRecord
from corral.errors import Rejected
from corral.store.port import Commit
from corral.wire.v1.plan_pb2 import PreWarmCache, PreWarmEntry, TemplateRef

MAX_ENTRIES: Final = 5000
"""Of either kind, in one message."""
_MAX_DRAWS: Final = 100
"""Of so many templates to choose from, a node has what it needs for most starts."""
_SOURCES: Final = frozenset({TEMPLATES.name, CATALOG.name})
_log = structlog.get_logger("corral.controller.distribution")


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan names, to be had before it is carried out."""

    templates: frozenset[tuple[str, str]] = frozenset()
    """Names with hashes."""
    artifacts: frozenset[tuple[PlanArtifact, ConfigFormat]] = frozenset()


def needs_of(plan: Plan) -> Needs:
    artifacts = [(each.artifact, ConfigFormat.NONE) for each in plan.extensions]
    if plan.artifact is not None:
        artifacts.append((plan.artifact, plan.config_format))
    return Needs(
        templates=frozenset((layer.name, layer.hash) for layer in plan.templates),
        artifacts=frozenset(artifacts),
    )


def warm_message(needs: Needs, *, request_id: str) -> PreWarmCache:
    """The order to fetch it all."""
    entries = [
        PreWarmEntry(
            platform=artifact.platform,
            platform_version=artifact.version,
            config_format=CONFIG_FORMATS[format],
            jar_file=artifact.file,
            download_url=artifact.url,
            sha256=artifact.sha256,
        )
        for artifact, format in sorted(needs.artifacts, key=lambda each: (each[0].sha256, each[1]))
    ]
    refs = [TemplateRef(name=name, hash=hash) for name, hash in sorted(needs.templates)]
    return PreWarmCache(entries=entries[:MAX_ENTRIES], templates=refs[:MAX_ENTRIES], request_id=request_id)


class _Draws:
    """Draws the first of several in one turn, the second in the next, until each was drawn."""

    def __init__(self) -> None:
        self.turn = 0
        self._most = 1

    @property
    def left(self) -> bool:
        return self.turn < min(self._most, _MAX_DRAWS)

    def __call__(self, count: int) -> int:
        self._most = max(self._most, count)
        return min(self.turn, count - 1)


class GroupNeeds:
    """The needs of groups as of now, worked out once until something of weight changes."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: dict[str, tuple[GroupSpec, Needs]] = {}
        self._packages = StateSources(state).packages()

    def follow(self, commit: Commit) -> None:
        """Forget what a commit, which is in memory already, may have made old."""
        touched = {change.collection for change in commit.changes}
        if touched & _SOURCES or (MODULE_PACKAGES.name in touched and self._modules_bring_others()):
            self._known.clear()

    def resync(self) -> None:
        """Work everything out anew."""
        self._known.clear()
        self._packages = StateSources(self._state).packages()

    def _modules_bring_others(self) -> bool:
        """Do modules bring other files than before? Mostly it is but their phases that change, and often."""
        before, self._packages = self._packages, StateSources(self._state).packages()
        return before != self._packages

    def of_node(self, node: NodeRecord) -> Needs:
        """What those of all groups need that may run on this node."""
        templates: set[tuple[str, str]] = set()
        artifacts: set[tuple[PlanArtifact, ConfigFormat]] = set()
        for needs in self.each_of_node(node):
            templates |= needs.templates
            artifacts |= needs.artifacts
        return Needs(templates=frozenset(templates), artifacts=frozenset(artifacts))

    def each_of_node(self, node: NodeRecord) -> Iterator[Needs]:
        """As `of_node`, group by group."""
        for stored in self._state.groups:
            spec = stored.record.spec
            if unsuited(spec, node) is None:
                yield self._remembered(spec)

    def of_group(self, spec: GroupSpec) -> Needs:
        """What this group needs wherever it runs, whatever is drawn for its starts. Raises what keeps it
        from being planned."""
        sources, draws = StateSources(self._state), _Draws()
        found = []
        while draws.left:
            found.append(needs_of(resolve_plan(spec, sources, draws).plan))
            draws.turn += 1
        return Needs(
            templates=frozenset().union(*(each.templates for each in found)),
            artifacts=frozenset().union(*(each.artifacts for each in found)),
        )

    def _remembered(self, spec: GroupSpec) -> Needs:
        known = self._known.get(spec.name)
        if known is not None and (known[0] is spec or known[0] == spec):
            return known[1]
        try:
            needs = self.of_group(spec)
        except Rejected as error:  # its starts say so, too
            _log.info("distribution.group_unresolved", group=spec.name, reason=str(error))
            needs = Needs()
        self._known[spec.name] = spec, needs
        return needs
