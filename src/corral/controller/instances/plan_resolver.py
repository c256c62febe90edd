"""The plans of one transaction's starts."""

from __future__ import annotations

from collections.abc import Callable

from corral.domain.groups.group import GroupSpec
from corral.domain.groups.plan_resolution import PlanSources, ResolvedPlan, resolve_plan, resolve_revision
from corral.domain.groups.plan_sizes import check_plan_size, refuse_long_texts
from corral.domain.groups.revisions import RevisionRecord
from corral.system.entropy import Entropy


class PlanResolver:
    """Resolves documents to plans. Starts of one transaction share a plan, unless it contains random choices."""

    def __init__(self, sources: PlanSources, entropy: Entropy) -> None:
        self.sources = sources
        """Where names are looked up; may be replaced before anything is resolved."""
        self._entropy = entropy
        self._resolved: dict[str, tuple[GroupSpec, ResolvedPlan]] = {}
        self._by_revision: dict[tuple[str, int], tuple[GroupSpec, ResolvedPlan]] = {}

    def resolve(self, spec: GroupSpec, *, draw: Callable[[int], int] | None = None) -> ResolvedPlan:
        """The plan that an instance of this group would be started with now. Raises what `resolve_plan` raises. `draw`:
        instead of chance."""
        known = self._resolved.get(spec.name)
        if known is not None and known[0] is spec:
            return known[1]
        refuse_long_texts(spec)
        resolved = resolve_plan(spec, self.sources, draw or self._draw)
        check_plan_size(spec, resolved.record)
        if not resolved.picks:
            self._resolved[spec.name] = spec, resolved
        return resolved

    def resolve_revision(
        self, present: GroupSpec, revision: RevisionRecord, *, draw: Callable[[int], int] | None = None
    ) -> ResolvedPlan:
        """The plan of a start by a revision; `present` is the document of now. Raises what `resolve_revision` raises."""
        key = revision.group, revision.number
        known = self._by_revision.get(key)
        if known is not None and known[0] is present:
            return known[1]
        resolved = resolve_revision(present, revision, self.sources, draw or self._draw)
        check_plan_size(present, resolved.record)
        if not resolved.picks:
            self._by_revision[key] = present, resolved
        return resolved

    def _draw(self, count: int) -> int:
        """A random number from 0, below `count`."""
        return min(int(self._entropy.fraction() * count), count - 1)
