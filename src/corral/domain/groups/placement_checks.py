"""Checks of the fields that say where instances go, in which order, and how they are called, of one group and of its
references to others."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from corral.domain.control_characters import refuse_control
from corral.domain.groups.group import BY_NODE, AffinitySpec, GroupSpec
from corral.domain.ids import group_name, instance_id
from corral.domain.spec import invalid
from corral.errors import Code, Rejected, nearest, short_list

_LABEL: Final = (63, 255)
"""Characters of a label's key and value."""
MOST_NAMES: Final = 1000
_SHOWN: Final = 10


def check_placement(spec: GroupSpec) -> Iterator[Rejected]:
    """References of a group to itself and rules that cannot hold, with the field of each."""
    checks: list[Callable[[], None]] = [
        lambda: _check_reference(spec, "parent", spec.parent),
        lambda: _check_reference(spec, "fallback_group", spec.fallback_group),
        lambda: _check_dependencies(spec),
        *(
            functools.partial(_check_affinity, affinity, f"affinity/{position}")
            for position, affinity in enumerate(spec.affinity)
        ),
        lambda: _check_spread(spec),
        lambda: _check_warm(spec),
    ]
    for check in checks:
        try:
            check()
        except Rejected as error:
            yield error
    yield from _faults_of_static_names(spec)


def _check_warm(spec: GroupSpec) -> None:
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
        refuse_control(affinity.label, f"{field}/label")
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
        refuse_control(each.by, f"spread/{position}/by")
        if each.by in seen:
            raise invalid(f"spread/{position}/by", f"'{each.by}' is listed twice", "leave one of them out")
        if "=" in each.by:
            raise invalid(
                f"spread/{position}/by",
                f"{each.by!r} is not the key of a label",
                f"name only the key, as '{each.by.partition('=')[0] or 'zone'}', or '{BY_NODE}'",
            )
        seen.add(each.by)


def _faults_of_static_names(spec: GroupSpec) -> Iterator[Rejected]:
    if len(spec.static_names) > MOST_NAMES:
        yield invalid(
            "static_names",
            f"{len(spec.static_names)} ids are more than {MOST_NAMES}",
            "leave some out: further instances are called 'NAME-NUMBER'",
        )
        return
    seen: set[str] = set()
    for position, name in enumerate(spec.static_names):
        field = f"static_names/{position}"
        try:
            instance_id(name, field=field)
        except Rejected as error:
            yield error
            continue
        if name in seen:
            yield invalid(field, f"'{name}' is listed twice", "leave one of them out")
        elif numbered_group(name) == spec.name:
            yield _taken(field, name, spec.name)
        seen.add(name)


def numbered_group(id: str) -> str:
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
    for _, error in _reference_faults(specs, set(names), set()):
        raise error


def faults_of_references(specs: Mapping[str, GroupSpec], names: Iterable[str]) -> dict[str, Rejected]:
    """What `check_references` refuses, the first fault of each of `names`."""
    return dict(_reference_faults(specs, set(names), set()))


def _reference_faults(
    specs: Mapping[str, GroupSpec], changed: Collection[str], wrong: set[str]
) -> Iterator[tuple[str, Rejected]]:
    """Each group of `changed` at most once, in one pass over all groups; those that were yielded are in `wrong`."""
    for name, error in itertools.chain(
        _faults_of_names(specs, changed),
        _faults_of_cycles(
            specs, changed, "depends_on", lambda spec: [each.group for each in spec.depends_on]
        ),
        _faults_of_cycles(
            specs,
            changed,
            "fallback_group",
            lambda spec: [spec.fallback_group] if spec.fallback_group else [],
        ),
        _faults_of_ids(specs, changed, wrong),
    ):
        if name not in wrong:
            wrong.add(name)
            yield name, error


def _faults_of_names(
    specs: Mapping[str, GroupSpec], changed: Collection[str]
) -> Iterator[tuple[str, Rejected]]:
    for name in sorted(changed):
        spec = specs.get(name)
        error = _missing_reference(specs, spec) if spec else None
        if error:
            yield name, error
    needless = [name for name in sorted(changed) if name not in specs or specs[name].abstract]
    users = _users(specs) if needless else {}
    for name in needless:
        if name in users:
            yield name, _still_used(name, users[name], abstract=name in specs)


def _missing_reference(specs: Mapping[str, GroupSpec], spec: GroupSpec) -> Rejected | None:
    references = [
        (f"depends_on/{position}/group", each.group) for position, each in enumerate(spec.depends_on)
    ]
    if spec.fallback_group:
        references.append(("fallback_group", spec.fallback_group))
    for field, name in references:
        found = specs.get(name)
        if found is None:
            return missing_group(specs, name, field, besides=(spec.name,))
        if found.abstract:
            return invalid(
                field, f"group '{name}' is abstract and has no instances", "name a group that runs"
            )
    return None


def missing_group(names: Iterable[str], name: str, field: str, *, besides: Collection[str] = ()) -> Rejected:
    """The refusal of a reference to a group that does not exist, with the nearest name. `besides`: those that may not be
    named there."""
    guess = nearest(name, [each for each in names if each not in besides])
    hint = f"did you mean '{guess}'?" if guess else "create it first, or leave the reference out"
    return Rejected(
        Code.INVALID_FIELD, f"{field}: group '{name[:80]}' does not exist", hint=hint, field=field
    )


def _users(specs: Mapping[str, GroupSpec]) -> dict[str, list[str]]:
    """The groups that name another in `depends_on` or `fallback_group`, by that other."""
    found: dict[str, list[str]] = {}
    for name in sorted(specs):
        spec = specs[name]
        for other in {spec.fallback_group, *(each.group for each in spec.depends_on)}:
            found.setdefault(other, []).append(name)
    return found


def _still_used(name: str, users: Iterable[str], *, abstract: bool) -> Rejected:
    problem = f"group '{name}' is named by 'depends_on' or 'fallback_group' of {_listed(users)}"
    if abstract:
        return invalid("abstract", problem, "an abstract group has no instances: change these first")
    return Rejected(Code.CONFLICT, problem, hint="change these first, or delete them together")


def _listed(names: Iterable[str]) -> str:
    return short_list((f"'{name}'" for name in names), _SHOWN)


def _faults_of_cycles(
    specs: Mapping[str, GroupSpec],
    names: Collection[str],
    field: str,
    following: Callable[[GroupSpec], list[str]],
) -> Iterator[tuple[str, Rejected]]:
    """Every group of `names` from which a cycle is reached. Each group is followed once, whatever leads to it."""
    cycles: dict[str, str] = {}
    done: set[str] = set()
    for name in sorted(names):
        if name not in cycles:
            _follow(specs, name, following, done, cycles)
        if name in cycles:
            yield name, invalid(field, f"a cycle: {cycles[name]}", "leave one of these references out")


def _follow(
    specs: Mapping[str, GroupSpec],
    start: str,
    following: Callable[[GroupSpec], list[str]],
    done: set[str],
    cycles: dict[str, str],
) -> None:
    """Add the way from a group to a cycle to `cycles`, each with the names along that cycle, its first one again at its
    end. What has been followed to its end without one is added to `done`."""
    path: dict[str, None] = {}
    stack: list[tuple[str, bool]] = [(start, True)]
    while stack:
        name, enter = stack.pop()
        if not enter:
            del path[name]
            done.add(name)
        elif name in path or name in cycles:
            shown = cycles[name] if name in cycles else _shown_cycle(list(path), name)
            cycles.update(dict.fromkeys(path, shown))
            return
        elif name not in done and name in specs:
            path[name] = None
            stack.append((name, False))
            stack += [(each, True) for each in reversed(following(specs[name]))]


def _shown_cycle(path: list[str], name: str) -> str:
    cycle = [*path[path.index(name) :], name]
    return " -> ".join(cycle if len(cycle) <= _SHOWN else [*cycle[:_SHOWN], "…", cycle[-1]])


def _faults_of_ids(
    specs: Mapping[str, GroupSpec], changed: Collection[str], wrong: Collection[str]
) -> Iterator[tuple[str, Rejected]]:
    """No id may belong to two groups. A clash is one of both, as far as they are among `changed`; those that are `wrong`
    already are not told."""
    owners: dict[str, tuple[str, int]] = {}
    for name, spec in specs.items():
        for position, id in enumerate(spec.static_names):
            other, at = owners.setdefault(id, (name, position))
            if other != name:
                for one, its, two in ((name, position, other), (other, at, name)):
                    if one in changed and one not in wrong:
                        yield one, _named_twice(id, its, two)
                continue
            numbered = numbered_group(id)
            if numbered not in specs:
                continue
            if name in changed and name not in wrong:
                yield name, _taken(f"static_names/{position}", id, numbered)
            if numbered in changed and numbered not in wrong:
                yield (
                    numbered,
                    invalid(
                        "name",
                        f"'{id}' is a static name of group '{name}', and would be the id of an instance",
                        f"choose another name than '{numbered}'",
                    ),
                )


def _named_twice(id: str, position: int, other: str) -> Rejected:
    return invalid(
        f"static_names/{position}", f"'{id}' is also a static name of group '{other}'", "choose another"
    )
