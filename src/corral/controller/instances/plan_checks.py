"""Checks whether groups can be planned, each once, and those of many groups in slices of the loop's time."""

from __future__ import annotations

from collections.abc import Iterable

from corral.controller.instances.workspace import Workspace
from corral.domain.groups.group import GroupSpec
from corral.errors import Rejected
from corral.system.aio.slices import Slices


class PlanChecks:
    """The outcomes of `Workspace.resolve` for the groups of one change."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._known: dict[str, tuple[GroupSpec, Rejected | None]] = {}
        self._stamp = self._sources()

    async def look_ahead(self, specs: Iterable[GroupSpec]) -> None:
        """Find the outcomes of all of these that run, with pauses. `valid` tells whether they hold afterwards."""
        slices = Slices()
        for spec in specs:
            if not spec.abstract:
                self._outcome(spec)
                await slices.pause()

    @property
    def valid(self) -> bool:
        """Nothing has changed since that plans are made of, beside the groups."""
        return self._sources() == self._stamp

    def check(self, spec: GroupSpec) -> None:
        """Refuse a group for which there is no plan, with its field."""
        error = self._outcome(spec)
        if error is not None:
            raise error

    def _outcome(self, spec: GroupSpec) -> Rejected | None:
        known = self._known.get(spec.name)
        if known is None or known[0] is not spec:
            known = self._known[spec.name] = spec, self._looked_up(spec)
        return known[1]

    def _looked_up(self, spec: GroupSpec) -> Rejected | None:
        try:
            self._ws.resolve(spec)
        except Rejected as error:
            return error
        return None

    def _sources(self) -> tuple[int, ...]:
        state = self._ws.state
        return state.templates.folds, state.catalog.folds, state.modules.folds
