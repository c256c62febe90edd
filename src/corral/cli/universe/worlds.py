"""Static worlds of a folder, copied to a node: each instance gets its place there, stopped, then its files, and starts.

The next import completes a copy that was cut off: it sends what is missing, and passes over instances that run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession
from corral.cli.failure import CommandRefused, WrongUsage, note
from corral.cli.instance.file_pushes import DirectoryPush, unwritable_names
from corral.cli.instance.waits import ENDED, INSTANCES
from corral.cli.universe.import_plan import ImportPlan, StaticCopy
from corral.domain.ids import instance_number
from corral.errors import counted, short_list

GROUPS: Final = "/api/v1/groups"
NODES: Final = "/api/v1/nodes"
_NAMED: Final = 10
REASON: Final = "its world is copied by 'corral import universe'"
"""Of the instances that are stopped by the import: only those does it start."""


class PlannedWorld(NamedTuple):
    copy: StaticCopy
    node: str
    starts: bool
    """Its group keeps so many instances that it is one of them."""
    found: DirectoryPush | None = None
    """What it has, where it runs: it is passed over."""


class CopiedWorld(NamedTuple):
    """What became of a copy, or would become of it."""

    source: str
    instance: str
    node: str
    sent: int = 0
    same: int = 0
    kept: list[str] = []  # noqa: RUF012 - a NamedTuple's default is never changed
    """Files that differ there, and stay."""
    started: bool = False
    missing: list[str] = []  # noqa: RUF012 - as above
    """Files that are not there: it ran, and was passed over."""
    runs: bool = False

    def sentence(self) -> str:
        kept = f", {len(self.kept)} kept there" if self.kept else ""
        return f"{counted(self.sent, 'file')} sent, {self.same} as before{kept}"


def planned_worlds(
    session: ApiSession, plan: ImportPlan, chosen: Sequence[str], *, replace: bool
) -> list[PlannedWorld]:
    """The copies for which a node is chosen, by `NODE` for all or `INSTANCE=NODE` for one. Everything that would refuse one of them
    is found here, before anything is written."""
    copies = {each.instance: each for each in plan.copies if each.group}
    everywhere, nodes = "", dict[str, str]()
    for each in chosen:
        instance, equals, node = each.rpartition("=")
        if equals and instance not in copies:
            raise WrongUsage(
                f"--node {each}: no static directory of the folder is that of '{instance}'",
                hint=f"there are: {', '.join(copies) or 'none'}",
            )
        if equals:
            nodes[instance] = node
        else:
            everywhere = node
    least = {each.name: int(each.document.get("min", 0)) for each in plan.configurations}
    planned = []
    for id, copy in copies.items():
        if node := nodes.get(id, everywhere):
            starts = instance_number(id)[1] <= least[copy.group]
            planned.append(PlannedWorld(copy, node, starts))
    for node in dict.fromkeys(each.node for each in planned):
        session.client.get(f"{NODES}/{segment(node)}")
    return [_checked(session, each, replace=replace) for each in planned]


def _checked(session: ApiSession, world: PlannedWorld, *, replace: bool) -> PlannedWorld:
    copy = world.copy
    if names := unwritable_names(copy.path):
        raise CommandRefused(
            f"{copy.source}: no file of an instance may be named {short_list(names, _NAMED)}",
            hint="rename or remove it: names are UTF-8, without control characters and backslashes",
        )
    if copy.nodes and world.node not in copy.nodes:
        raise WrongUsage(
            f"{copy.source}: its configuration may only use {', '.join(copy.nodes)}, not '{world.node}'",
            hint="choose one of them, or change 'nodes' of the configuration",
        )
    found = _instance(session, copy.instance)
    if found is None or found["state"] in ENDED:
        return world
    push = _push(session, world, replace=replace)
    push.compare()
    if found["node"] != world.node or (replace and (push.kept or push.missing)):
        raise CommandRefused(
            f"{copy.source}: instance '{copy.instance}' is {found['state']}, and files are not changed under it",
            hint=f"stop it first ('corral instance stop {copy.instance} --wait'), or leave --node out for it",
        )
    return world._replace(found=push)


def _push(session: ApiSession, world: PlannedWorld, *, replace: bool) -> DirectoryPush:
    return DirectoryPush(session, world.copy.instance, world.copy.path, "", keep=not replace)


def _instance(session: ApiSession, id: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = session.client.get(f"{INSTANCES}/{segment(id)}")
    except CommandRefused as refusal:
        if refusal.code == "NOT_FOUND":
            return None
        raise
    return found


def reserve(session: ApiSession, world: PlannedWorld) -> None:
    """Its instance belongs to the node from now on, and nothing starts it."""
    body = {"instance": world.copy.instance, "node": world.node, "reason": REASON}
    session.client.post(f"{GROUPS}/{segment(world.copy.group)}/worlds", body)


def planned_copy(world: PlannedWorld) -> CopiedWorld:
    """What would become of it."""
    copy, found = world.copy, world.found
    if found is None:
        return CopiedWorld(copy.source, copy.instance, world.node)
    seen = CopiedWorld(copy.source, copy.instance, world.node, same=found.same, kept=found.kept)
    return seen._replace(missing=found.missing, runs=True)


def copied(session: ApiSession, world: PlannedWorld, *, replace: bool) -> CopiedWorld:
    """Send what is not there, and start the instance if it was the import that kept it from that."""
    copy = world.copy
    if world.found is not None:
        passed = planned_copy(world)
        note(f"{copy.source}: {copy.instance} runs on {world.node}: passed over")
        for what, paths in (("other files there, and kept", passed.kept), ("not there", passed.missing)):
            if paths:
                named = short_list((f"'{path}'" for path in paths), _NAMED)
                note(f"{copy.instance}: {what}: {named}")
        return passed
    note(f"{copy.source}: to {copy.instance} on {world.node}")
    push = _push(session, world, replace=replace)
    push.run()
    for path in push.kept:
        note(f"{copy.instance}: '{path}' is another file there, and kept; --replace writes over it")
    found = _instance(session, copy.instance)
    starts = world.starts and found is not None and found.get("reason") == REASON
    if starts:
        session.client.post(f"{INSTANCES}/{segment(copy.instance)}/restart", {"reason": "its world is there"})
    return CopiedWorld(copy.source, copy.instance, world.node, push.sent, push.same, push.kept, starts)
