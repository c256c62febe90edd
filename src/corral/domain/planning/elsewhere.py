"""Whether instances of a group could run on other nodes than the one that they are on."""

from __future__ import annotations

from corral.domain.groups.group import GroupSpec
from corral.domain.planning.node_table import unsuited
from corral.domain.planning.plan_view import PlanView


def could_run_elsewhere(view: PlanView, spec: GroupSpec, node: str) -> bool:
    """Is there another node that could ever take an instance of the group, whatever is free there now?"""
    return any(each.id != node and unsuited(spec, each) is None for each in view.nodes())


class Elsewhere:
    """The answers of `could_run_elsewhere`, each looked for once: a node can have thousands of instances of one group."""

    def __init__(self, view: PlanView) -> None:
        self._view = view
        self._found: dict[tuple[str, str], bool] = {}

    def could_run(self, spec: GroupSpec, node: str) -> bool:
        key = spec.name, node
        if key not in self._found:
            self._found[key] = could_run_elsewhere(self._view, spec, node)
        return self._found[key]


def is_movable(view: PlanView, group: str, node: str) -> bool:
    """Do instances of a group leave a node before the last ones?"""
    found = view.group(group)
    return found is None or (not found.spec.static and could_run_elsewhere(view, found.spec, node))
