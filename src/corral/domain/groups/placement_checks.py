"""Checks of the fields that say where instances go, in which order, and how they are called, of one group and of its
references to others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from corral.domain.groups.group import BY_NODE, AffinitySpec, GroupSpec
from corral.domain.ids import group_name, instance_id
from corral.domain.spec import invalid
from corral.errors import Code, Rejected, nearest, short_list

_LABEL: Final = (63, 255)
"""Characters of a label's key and value."""
_SHOWN: Final = 10


def check_placement(spec: GroupSpec) -> None:
    """Refuse references of a group to itself and rules that cannot hold, with the field."""
    _check_reference(spec, "parent", spec.parent)
    _check_reference(spec, "fallback_group", spec.fallback_group)
    _check_dependencies(spec)
    for position, affinity in enumerate(spec.affinity):
        _check_affinity(affinity, f"affinity/{position}")
    _check_spread(spec)
    _check_static_names(spec)
    if spec.warm and spec.static:
        raise invalid(
            "warm",
            "each instance of a static group has its own directory and cannot stand in for another",
            "leave out 'warm', or 'static'",
        )


def _check_reference(spec: GroupSpec, field: str, name: str) -> None:
    if not name:
        return
    group_name(name, field=field)
    if name == spec.name:
        raise invalid(field, f"group '{name}' names itself", "name another group, or leave it out")


def _check_dependencies(spec: GroupSpec) -> None:
    seen: set[str] = set()
    for position, each in enumerate(spec.depends_on):
        field = f"depends_on/{position}/group"
        if not each.group:
            raise invalid(field, "it is empty", "name the group that has to be ready first")
        _check_reference(spec, field, each.group)
        if each.group in seen:
            raise invalid(field, f"'{each.group}' is listed twice", "leave one of them out")
        seen.add(each.group)


def _check_affinity(affinity: AffinitySpec, field: str) -> None:
    if bool(affinity.label) == bool(affinity.group):
        raise invalid(
            field,
            "an affinity is to a label or to a group",
            'for example {"label": "disk=ssd"} or {"group": "db"}',
        )
    if affinity.group:
        group_name(affinity.group, field=f"{field}/group")
    else:
        key, sign, value = affinity.label.partition("=")
        if not sign or not key or len(key) > _LABEL[0] or len(value) > _LABEL[1]:
            raise invalid(
                f"{field}/label",
                f"{affinity.label[:80]!r} is not KEY=VALUE",
                f"for example 'disk=ssd'; a key has at most {_LABEL[0]} characters, a value {_LABEL[1]}",
            )
    if not affinity.weight:
        raise invalid(
            f"{field}/weight",
            "a weight of 0 has no effect",
            "use 1 to 100 to prefer, -1 to -100 to avoid, or leave the entry out",
        )


def _check_spread(spec: GroupSpec) -> None:
    seen: set[str] = set()
    for position, each in enumerate(spec.spread):
        if each.by in seen:
            raise invalid(f"spread/{position}/by", f"'{each.by}' is listed twice", "leave one of them out")
        if "=" in each.by:
            raise invalid(
                f"spread/{position}/by",
                f"{each.by!r} is not the key of a label",
                f"name only the key, as '{each.by.partition('=')[0] or 'zone'}', or '{BY_NODE}'",
            )
        seen.add(each.by)


def _check_static_names(spec: GroupSpec) -> None:
    seen: set[str] = set()
    for position, name in enumerate(spec.static_names):
        field = f"static_names/{position}"
        instance_id(name, field=field)
        if name in seen:
            raise invalid(field, f"'{name}' is listed twice", "leave one of them out")
        seen.add(name)
        if _numbered(name) == spec.name:
            raise _taken(field, name, spec.name)


def _numbered(id: str) -> str:
    """The group whose instances have ids as this one, `GROUP-NUMBER`; empty: it is no such id."""
    group, _, number = id.rpartition("-")
    return group if number.isascii() and number.isdecimal() else ""


def _taken(field: str, name: str, group: str) -> Rejected:
    return invalid(
        field, f"'{name}' is the id of an instance of group '{group}'", f"use another than '{group}-NUMBER'"
    )


def check_references(specs: Mapping[str, GroupSpec], names: Iterable[str]) -> None:
    """Refuse groups among `specs`, the documents of all groups, that refer to missing or abstract groups, depend on
    themselves by way of others, or give away an id twice. Only faults in which a group of `names` has a part are found;
    a fault of a group that is not among them carries its name."""
    changed = set(names)
    for name in sorted(changed):
        spec = specs.get(name)
        if spec is None:
            _refuse_left_alone(specs, name)
            continue
        for position, each in enumerate(spec.depends_on):
            _check_exists(specs, each.group, f"depends_on/{position}/group")
        if spec.fallback_group:
            _check_exists(specs, spec.fallback_group, "fallback_group")
    if any(specs[name].abstract for name in changed if name in specs):
        _check_of_others(specs, changed)
    _check_acyclic(specs, changed, "depends_on", lambda spec: [each.group for each in spec.depends_on])
    _check_acyclic(
        specs, changed, "fallback_group", lambda spec: [spec.fallback_group] if spec.fallback_group else []
    )
    _check_ids(specs, changed)


def _check_exists(specs: Mapping[str, GroupSpec], name: str, field: str) -> None:
    found = specs.get(name)
    if found is None:
        raise missing_group(specs, name, field)
    if found.abstract:
        raise invalid(field, f"group '{name}' is abstract and has no instances", "name a group that runs")


def missing_group(names: Iterable[str], name: str, field: str) -> Rejected:
    """The refusal of a reference to a group that does not exist, with the nearest name."""
    guess = nearest(name, list(names))
    hint = f"did you mean '{guess}'?" if guess else "create it first, or leave the reference out"
    return Rejected(
        Code.INVALID_FIELD, f"{field}: group '{name[:80]}' does not exist", hint=hint, field=field
    )


def _refers(spec: GroupSpec, name: str) -> bool:
    return name == spec.fallback_group or any(each.group == name for each in spec.depends_on)


def _refuse_left_alone(specs: Mapping[str, GroupSpec], name: str) -> None:
    users = sorted(other for other, spec in specs.items() if _refers(spec, name))
    if users:
        raise Rejected(
            Code.CONFLICT,
            f"group '{name}' is named by 'depends_on' or 'fallback_group' of {_listed(users)}",
            hint="change these first, or delete them together",
        )


def _check_of_others(specs: Mapping[str, GroupSpec], changed: Collection[str]) -> None:
    for name in sorted(changed):
        if name in specs and specs[name].abstract:
            users = sorted(other for other, spec in specs.items() if _refers(spec, name))
            if users:
                raise invalid(
                    "abstract",
                    f"group '{name}' is named by 'depends_on' or 'fallback_group' of {_listed(users)}",
                    "an abstract group has no instances: change these first",
                )


def _listed(names: Iterable[str]) -> str:
    return short_list((f"'{name}'" for name in names), _SHOWN)


def _check_acyclic(
    specs: Mapping[str, GroupSpec],
    names: Iterable[str],
    field: str,
    following: Callable[[GroupSpec], list[str]],
) -> None:
    done: set[str] = set()
    for name in sorted(names):
        cycle = _cycle_from(specs, name, following, done)
        if cycle:
            shown = " -> ".join(cycle if len(cycle) <= _SHOWN else [*cycle[:_SHOWN], "…", cycle[-1]])
            raise invalid(field, f"a cycle: {shown}", "leave one of these references out")


def _cycle_from(
    specs: Mapping[str, GroupSpec],
    start: str,
    following: Callable[[GroupSpec], list[str]],
    done: set[str],
) -> list[str]:
    """The names along a cycle that is reached from a group, its first one again at its end; empty: there is none. What
    has been followed to its end is added to `done`."""
    path: dict[str, None] = {}
    stack: list[tuple[str, bool]] = [(start, True)]
    while stack:
        name, enter = stack.pop()
        if not enter:
            del path[name]
            done.add(name)
        elif name in path:
            names = list(path)
            return [*names[names.index(name) :], name]
        elif name not in done and name in specs:
            path[name] = None
            stack.append((name, False))
            stack += [(each, True) for each in reversed(following(specs[name]))]
    return []


def _check_ids(specs: Mapping[str, GroupSpec], changed: Collection[str]) -> None:
    """No id may belong to two groups. A clash is one of the group that names the id, also when the other is the one that
    changes: then the text names both."""
    owners: dict[str, str] = {}
    for name, spec in specs.items():
        for position, id in enumerate(spec.static_names):
            field = f"static_names/{position}"
            other = owners.setdefault(id, name)
            if other != name and (name in changed or other in changed):
                raise invalid(field, f"'{id}' is also a static name of group '{other}'", "choose another")
            numbered = _numbered(id)
            if numbered in specs and numbered in changed and name not in changed:
                raise invalid(
                    "name",
                    f"'{id}' is a static name of group '{name}', and would be the id of an instance",
                    f"choose another name than '{numbered}'",
                )
            if numbered in specs and name in changed:
                raise _taken(field, id, numbered)
