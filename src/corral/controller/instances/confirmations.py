"""Confirmation of changes that give up instances or worlds: the refusal names them and what becomes of them,
and the operator repeats the name of the group or node to confirm."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from corral.controller.instances.drain_progress import groups_without_others
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.instance_records import InstanceRecord, live, stays
from corral.errors import Code, Rejected, counted, short_list

GIVEN_UP: Final = (
    "given up with its node; it may still run there: 'corral local --data DIR stop-all' on that host ends it"
)
_SHOWN: Final = 10


class World(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A directory that an instance keeps, or that a deleted instance left."""

    id: str
    node: str
    directory: str


class Concerned(msgspec.Struct, frozen=True, kw_only=True):
    """The instances and worlds that the removal of a group or a node affects."""

    living: tuple[InstanceRecord, ...]
    worlds: tuple[World, ...]
    """Of running and ended instances."""


def of_group(state: ClusterState, name: str) -> Concerned:
    records = [stored.record for stored in state.instances.of_group(name)]
    ordinal = re.compile(rf"{re.escape(name)}-[0-9]+")
    worlds = {_world(state, each.id, each.home) for each in records if has_world(state, each)}
    for stored in state.nodes:
        worlds |= {
            _world(state, id, stored.record.id) for id in stored.record.worlds if ordinal.fullmatch(id)
        }
    return Concerned(living=tuple(each for each in records if live(each.state)), worlds=tuple(sorted(worlds)))


def on_node(state: ClusterState, node: str) -> Concerned:
    """The live instances and the directories on a node: by the records, and by the node's last handshake,
    which may list directories of deleted instances."""
    records = [stored.record for stored in state.instances]
    found = state.nodes.find(node)
    ids = {each.id for each in records if each.home == node} | set(found.record.worlds if found else ())
    return Concerned(
        living=tuple(each for each in records if each.node == node and live(each.state)),
        worlds=tuple(sorted(_world(state, id, node) for id in ids)),
    )


def _world(state: ClusterState, id: str, node: str) -> World:
    found = state.nodes.find(node)
    parent = found.record.static_directory if found else ""
    return World(
        id=id, node=node, directory=f"{parent}/{id}" if parent else f"static/{id} in its data directory"
    )


def has_world(state: ClusterState, record: InstanceRecord) -> bool:
    """Whether a member node keeps the instance's directory."""
    return bool(record.home) and state.nodes.find(record.home) is not None


def before_static_goes(state: ClusterState, group: str, confirm: str, *, by: str = "") -> None:
    """CONFIRMATION_REQUIRED, unless confirmed: instances would start with empty directories. `by`: the group whose
    change it is, where that is an ancestor; its name confirms."""
    worlds = of_group(state, group).worlds
    if worlds:
        effects = (
            f"group '{group}' has worlds: {_places(worlds)}. Without 'static' its instances start in new directories, "
            "which are deleted when they stop; the worlds stay where they are and are used again once 'static' is on"
        )
        require_confirmation(by or group, confirm, effects)


def before_group_goes(state: ClusterState, group: str, confirm: str) -> None:
    """CONFIRMATION_REQUIRED, unless confirmed: the group's instances are stopped, its worlds left on the
    nodes."""
    _require_for(
        of_group(state, group),
        "group",
        group,
        confirm,
        living="would be stopped",
        worlds="stay there, and only a group of the same name finds them again",
    )


def before_node_goes(state: ClusterState, node: str, confirm: str) -> None:
    """CONFIRMATION_REQUIRED, unless confirmed: nothing that runs there is reported or reachable any more."""
    _require_for(
        on_node(state, node),
        "node",
        node,
        confirm,
        living="would be given up and others started in their place; they may still run there: "
        "'corral local --data DIR stop-all' on that host ends them",
        worlds="stay on its disk, and these instances begin anew on another node",
    )


def before_node_is_revoked(state: ClusterState, node: str, confirm: str) -> None:
    """CONFIRMATION_REQUIRED, unless confirmed: what runs there becomes unreachable."""
    _require_for(
        on_node(state, node),
        "node",
        node,
        confirm,
        living="would be out of reach until the node is enrolled again, and go on running there: "
        "'corral local --data DIR stop-all' on that host ends them",
        worlds="could be used by nobody until then",
    )


def before_node_is_drained(
    state: ClusterState,
    node: str,
    confirm: str,
    *,
    players: Callable[[str], int | None],
    deadline_seconds: int | None,
    strays: int,
    stranded: Collection[str] = (),
) -> None:
    """CONFIRMATION_REQUIRED, unless confirmed: worlds are out of reach until the node is undrained, players have to leave,
    and groups may be left without an instance. `deadline_seconds`: 0 stops everything now, None waits for ever. `strays`: runs there that the end of
    the daemon ends, too. `stranded`: groups of which no other node takes an instance now."""
    living = [stored.record for stored in state.instances.of_node(node) if live(stored.record.state)]
    worlds = [each for each in living if is_static(state, each)]
    known = [(each, count) for each in living if (count := players(each.id))]
    when = "when they are empty, or at the deadline"
    cut = "cut off at the deadline, if they have not left by then"
    if deadline_seconds == 0:
        when, cut = "now", "cut off now"
    elif deadline_seconds is None:
        when, cut = "when they are empty", "waited for, however long they stay"
    effects = []
    if worlds:
        effects.append(
            f"the worlds of {_names(worlds)} would be stopped {when}, and stay stopped until the node is undrained"
        )
    if known:
        named = short_list((f"'{each.id}' ({counted(count, 'player')})" for each, count in known), _SHOWN)
        effects.append(f"players of {named} would be {cut}")
    if strays:
        effects.append(
            f"{counted(strays, 'run')} there that no record knows would be stopped with the daemon"
        )
    only = groups_without_others(state, node, living)
    last = [each for each in living if stays(each) and each.group in only]
    ending = sorted({each.group for each in last if each.group in stranded})
    if ending:
        named = short_list((f"'{name}'" for name in ending), _SHOWN)
        effects.append(
            f"nothing would be left of {named}: no other node takes their instances now, and those here are stopped {when}"
        )
    if effects:
        if last:
            effects.append(f"no other instances of their groups are elsewhere: {_names(last)}")
        require_confirmation(node, confirm, f"with node '{node}' {'; '.join(effects)}")


def is_static(state: ClusterState, record: InstanceRecord) -> bool:
    found = state.groups.find(record.group)
    return found is not None and found.record.spec.static


def _require_for(found: Concerned, kind: str, name: str, confirm: str, *, living: str, worlds: str) -> None:
    """`living` and `worlds`: the texts of what becomes of them. No confirmation is required where nothing is
    affected."""
    effects = []
    if found.living:
        effects.append(f"{_names(found.living)} {living}")
    if found.worlds:
        effects.append(f"the worlds {_places(found.worlds)} {worlds}")
    if effects:
        require_confirmation(name, confirm, f"with {kind} '{name}' {'; '.join(effects)}")


def require_confirmation(name: str, confirm: str, effects: str) -> None:
    """CONFIRMATION_REQUIRED with the effects, unless confirmed with the name."""
    if confirm == name:
        return
    if confirm:
        raise Rejected(
            Code.INVALID_FIELD,
            f"'{confirm[:80]}' confirms something else: it is about '{name}'",
            hint=f"use confirm={name}",
            field="confirm",
        )
    raise Rejected(
        Code.CONFIRMATION_REQUIRED,
        effects,
        hint=f"nothing was done; say it again with confirm={name} (--yes) if that is meant",
        field="confirm",
    )


def _names(records: Sequence[InstanceRecord]) -> str:
    return short_list((f"'{each.id}' ({each.state})" for each in records), _SHOWN)


def _places(worlds: Sequence[World]) -> str:
    return short_list((f"'{each.id}' on node '{each.node}' ({each.directory})" for each in worlds), _SHOWN)
