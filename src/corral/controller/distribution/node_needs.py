"""Template versions and artifacts that a node needs to start instances; it may fetch these and nothing else.

They are those of the groups that may be placed on it, of the plans of its running instances, of an operator's
prewarm request, and the archives of modules for nodes. Anything else does not exist for the node, by name or
by digest: a stolen node certificate reads only what that node could have read.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import Final

import msgspec
import structlog

from corral.controller.distribution.ports import Versions
from corral.controller.instances.plans import StateSources
from corral.controller.sessions.published_start import CONFIG_FORMATS
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import CATALOG, MODULE_PACKAGES, TEMPLATES
from corral.domain.groups.group import ConfigFormat, GroupSpec
from corral.domain.groups.instance_records import GroupRecord, live
from corral.domain.groups.plan_resolution import resolve_plan
from corral.domain.groups.plans import Plan, PlanArtifact, read_plan
from corral.domain.groups.revisions import RevisionPins
from corral.domain.ids import NodeId
from corral.domain.modules.manifest import ModuleHost
from corral.domain.planning.node_table import unsuited
from corral.domain.records import NodeRecord
from corral.domain.templates import TemplateVersion
from corral.errors import CorralError, Rejected, Retryable
from corral.store.port import Commit
from corral.system.clock import Clock
from corral.system.logger import LogQuota
from corral.wire.v1.plan_pb2 import PreWarmCache, PreWarmEntry, TemplateRef

MAX_ENTRIES: Final = 5000
"""The most entries of either kind in one message."""
_MAX_DRAWS: Final = 100
"""The most random choices per group: with these a node has what most starts need."""
_SOURCES: Final = frozenset({TEMPLATES.name, CATALOG.name})
_log = structlog.get_logger("corral.controller.distribution")


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The templates and artifacts of a plan."""

    templates: frozenset[tuple[str, str]] = frozenset()
    """Names with hashes."""
    artifacts: frozenset[tuple[PlanArtifact, ConfigFormat]] = frozenset()


def needs_of(plan: Plan | RevisionPins) -> Needs:
    artifacts = [(each.artifact, ConfigFormat.NONE) for each in plan.extensions]
    if plan.artifact is not None:
        artifacts.append((plan.artifact, plan.config_format))
    return Needs(
        templates=frozenset((layer.name, layer.hash) for layer in plan.templates),
        artifacts=frozenset(artifacts),
    )


def warm_message(needs: Needs, *, request_id: str) -> PreWarmCache:
    """The order to fetch all of them."""
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
    """A stand-in for random choice that picks the first option in one round, the second in the next, until
    each was picked."""

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
    """The needs of groups as of now, cached until a relevant change."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: dict[str, tuple[GroupSpec, Needs]] = {}
        self._packages = StateSources(state).packages()

    def follow(self, commit: Commit) -> None:
        """Drop cached needs that a commit, which is in memory already, may have outdated."""
        touched = {change.collection for change in commit.changes}
        if touched & _SOURCES or (MODULE_PACKAGES.name in touched and self._modules_bring_others()):
            self._known.clear()

    def resync(self) -> None:
        """Drop all cached needs."""
        self._known.clear()
        self._packages = StateSources(self._state).packages()

    def _modules_bring_others(self) -> bool:
        """Do modules contribute other files than before? Mostly only their phases change, and often."""
        before, self._packages = self._packages, StateSources(self._state).packages()
        return before != self._packages

    def of_node(self, node: NodeRecord) -> Needs:
        """The needs of all groups that may run on this node."""
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
                yield from self._of_pin(stored.record)

    def _of_pin(self, group: GroupRecord) -> Iterator[Needs]:
        """The needs of the revision that a group is started by instead of its document."""
        number = group.pinned_revision
        revision = self._state.revisions.numbered(group.spec.name, number) if number else None
        if revision is not None:
            yield needs_of(revision.pins)

    def of_group(self, spec: GroupSpec) -> Needs:
        """The needs of this group on any node, for all random choices of its starts. Raises what keeps it
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
        except Rejected as error:  # its starts report it, too
            _log.info("distribution_group.skipped", group=spec.name, reason=str(error))
            needs = Needs()
        self._known[spec.name] = spec, needs
        return needs


_REMEMBERED_PLANS: Final = 10_000
_REMEMBERED_DIGESTS: Final = 500_000
_QUIET_SECONDS: Final = 60.0
"""Between two log lines about the same list of files: every fetch of the node would repeat it."""


class NodeAccess:
    """Access of nodes to templates and blobs, computed for each request; nothing is stored. Placement decides
    what may run where."""

    def __init__(self, state: ClusterState, *, needs: GroupNeeds, library: Versions, clock: Clock) -> None:
        self._state = state
        self._needs = needs
        self._library = library
        self._quota = LogQuota(clock=clock, seconds=_QUIET_SECONDS)
        self._granted: dict[NodeId, list[Needs]] = {}
        self._plans: OrderedDict[str, Needs] = OrderedDict()
        self._contents: OrderedDict[str, frozenset[str]] = OrderedDict()

    @contextlib.contextmanager
    def granted(self, node_id: NodeId, needs: Needs) -> Iterator[None]:
        """Grant access to what an operator lets the node fetch, for the duration of the order."""
        orders = self._granted.setdefault(node_id, [])
        orders.append(needs)
        try:
            yield
        finally:
            orders.remove(needs)
            if not orders:
                self._granted.pop(node_id, None)

    def versions(self, node_id: NodeId, name: str) -> frozenset[str]:
        """The hashes of the versions of this template that the node may have; empty: the template does not
        exist for it."""
        found = (needs.templates for needs in self._reasons(node_id))
        return frozenset(hash for templates in found for each, hash in templates if each == name)

    async def readable(self, node_id: NodeId, digests: Collection[str]) -> frozenset[str]:
        """The subset of these blobs that the node may read. A version whose list of files is lost or broken
        affects no other version; a transient failure is raised."""
        missing = set(digests)
        asked = frozenset(missing)
        missing -= self._archives()
        seen: set[tuple[str, str]] = set()
        for_now: Retryable | None = None
        for needs in list(self._reasons(node_id)):
            if not missing:
                break
            missing -= {artifact.sha256 for artifact, _ in needs.artifacts}
            for name, hash in needs.templates - seen:
                if missing and (version := self._state.templates.version_of(name, hash)) is not None:
                    try:
                        missing -= await self._contents_of(version)
                    except Retryable as error:
                        for_now = error
                    except (CorralError, msgspec.MsgspecError) as error:
                        self._log_lost(name, version, error)
            seen |= needs.templates
        if missing and for_now is not None:
            raise for_now
        return asked - missing

    def _log_lost(self, name: str, version: TemplateVersion, error: Exception) -> None:
        if (unsaid := self._quota.admit("manifest_lost", version.manifest)) is not None:
            _log.error(
                "template_manifest.lost",
                template=name,
                version=version.number,
                manifest=version.manifest,
                reason=str(error)[:500],
                unsaid=unsaid,
            )

    def _reasons(self, node_id: NodeId) -> Iterator[Needs]:
        """Each thing that may run there, the likeliest first."""
        yield from tuple(self._granted.get(node_id, ()))
        for stored in self._state.instances.of_node(node_id):
            if live(stored.record.state) and stored.record.plan_hash:
                yield self._of_plan(stored.record.plan_hash)
        node = self._state.nodes.find(node_id)
        if node is not None:
            yield from self._needs.each_of_node(node.record)

    def _of_plan(self, plan_hash: str) -> Needs:
        known = self._plans.get(plan_hash)
        if known is None:
            stored = self._state.plans.find(plan_hash)
            if stored is None:
                return Needs()
            known = self._plans[plan_hash] = needs_of(read_plan(stored.record))
            if len(self._plans) > _REMEMBERED_PLANS:
                self._plans.popitem(last=False)
        return known

    def _archives(self) -> frozenset[str]:
        """The archives of modules that every node should have."""
        records = (stored.record for _, stored in self._state.modules.items())
        return frozenset(record.sha256 for record in records if ModuleHost.DAEMON in record.manifest.hosts)

    async def _contents_of(self, version: TemplateVersion) -> frozenset[str]:
        """The digests of the version's list of files and of their contents."""
        known = self._contents.get(version.manifest)
        if known is None:
            manifest = await self._library.tree_of(version)
            blobs = (digest for file in manifest.files for digest in file.blobs)
            known = self._contents[version.manifest] = frozenset({version.manifest, *blobs})
            while sum(map(len, self._contents.values())) > _REMEMBERED_DIGESTS and len(self._contents) > 1:
                self._contents.popitem(last=False)
        return known
