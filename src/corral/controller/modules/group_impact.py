"""Impact of a package on groups: those whose next start its files would make impossible."""

from __future__ import annotations

import asyncio
from typing import Final

from corral.controller.instances.plans import StateSources
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.extensions import ExtensionPackage
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.plan_resolution import PlanSources, resolve_plan
from corral.errors import Rejected, counted

_NAMED: Final = 10
"""Most groups that are reported with their reasons; beyond that, only the number."""


class _WithPackage(StateSources):
    """The sources with this package in place of the installed one."""

    def __init__(self, state: ClusterState, package: ExtensionPackage) -> None:
        super().__init__(state)
        others = (each for each in super().packages() if each.module != package.module)
        self._packages = [*others, package]

    def packages(self) -> list[ExtensionPackage]:
        return self._packages


async def broken_groups(state: ClusterState, package: ExtensionPackage) -> list[str]:
    """A sentence for each group whose next start the package would make impossible. Groups that cannot be
    started anyway are not among them. Yields to the loop between two groups."""
    now, then = StateSources(state), _WithPackage(state, package)
    before = next((each for each in now.packages() if each.module == package.module), None)
    if before == package or not (package.extensions or (before and before.extensions)):
        return []
    found = []
    for spec in [stored.record.spec for stored in state.groups]:
        error = _obstacle(spec, then)
        if error is not None and _obstacle(spec, now) is None:
            found.append(
                f"group '{spec.name}' could not be started any more: {error.code.name}: {error.message}"
            )
        await asyncio.sleep(0)
    more = len(found) - _NAMED
    return found[:_NAMED] + (
        [f"and {counted(more, 'more group')} could not be started any more"] if more > 0 else []
    )


def _obstacle(spec: GroupSpec, sources: PlanSources) -> Rejected | None:
    """The error that prevents a start. Which of several templates is drawn makes no difference to files of
    modules."""
    try:
        resolve_plan(spec, sources, lambda _: 0)
    except Rejected as error:
        return error
    return None
