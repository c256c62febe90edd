"""Changes of modules to one start: merged over the original, with what was overridden and by which module. Pure.

Each answer is taken as its difference to the original. What any module removed is removed; what modules added is
where they put it, that of several modules in the order of their ids; of a variable that several set, the value of the
last id counts. So no module undoes what it has not seen, and the order in which they answer does not matter.

Overridden changes are named. Of a JVM option that may be set once the last one in the command counts: its place there
decides, and not the module that added it.

The provenance of the changes is kept with the run and sent with every report about it: it is short, and secrets that
are known by their value are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from corral.daemon.prepare.prepared_start import StartValues
from corral.daemon.workload.java import Unit, setting_of, units
from corral.domain.groups.secret_masks import SecretMask
from corral.domain.modules.records import ModuleChange, Overridden

_MOST_CELLS: Final = 40_000
"""Lists whose differing parts are longer than this allows are taken as replaced altogether."""


class Edits(msgspec.Struct, frozen=True):
    """The difference of two lists."""

    removed: frozenset[int] = frozenset()
    """By their places in the original."""
    added: tuple[tuple[int, Unit], ...] = ()
    """Each before the place in the original that is named; the original's length: at the end."""

    @property
    def words(self) -> tuple[str, ...]:
        """The added words, flat."""
        return tuple(word for _, unit in self.added for word in unit)

    def __bool__(self) -> bool:
        return bool(self.removed or self.added)


class StartChange(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a start that one module asks for."""

    jvm_args: Edits = Edits()
    args: Edits = Edits()
    env_set: dict[str, str] = {}
    env_removed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.jvm_args or self.args or self.env_set or self.env_removed)


def difference(original: StartValues, desired: StartValues) -> StartChange:
    return StartChange(
        jvm_args=edits(units(original.jvm_args), units(desired.jvm_args)),
        args=edits(_single(original.args), _single(desired.args)),
        env_set={name: value for name, value in desired.env.items() if original.env.get(name) != value},
        env_removed=frozenset(original.env.keys() - desired.env.keys()),
    )


def merge(original: StartValues, changes: Mapping[str, StartChange]) -> StartValues:
    """`changes` by module id; the order of the mapping means nothing."""
    ordered = [changes[id] for id in sorted(changes)]
    env = dict(original.env)
    for change in ordered:
        for name in change.env_removed:
            env.pop(name, None)
        env |= change.env_set
    return StartValues(
        jvm_args=_flat(placed(units(original.jvm_args), {id: each.jvm_args for id, each in changes.items()})),
        args=_flat(placed(_single(original.args), {id: each.args for id, each in changes.items()})),
        env=env,
    )


def change_record(module: str, version: str, original: StartValues, change: StartChange) -> ModuleChange:
    """As it is kept with the run; of variables only their names."""
    return ModuleChange(
        module=module,
        version=version,
        jvm_args_added=change.jvm_args.words,
        jvm_args_removed=_removed(units(original.jvm_args), change.jvm_args),
        args_added=change.args.words,
        args_removed=_removed(_single(original.args), change.args),
        env_set=tuple(sorted(change.env_set)),
        env_removed=tuple(sorted(change.env_removed)),
    )


def edits(original: Sequence[Unit], desired: Sequence[Unit]) -> Edits:
    """The shortest way from one to the other, where finding it is cheap. Laid over the original by itself it
    gives `desired`, exactly."""
    head = _common(original, desired)
    tail = _common(original[head:][::-1], desired[head:][::-1])
    old, new = original[head : len(original) - tail], desired[head : len(desired) - tail]
    kept = _kept(old, new)
    places = {place for place, _ in kept}
    removed = frozenset(head + place for place in range(len(old)) if place not in places)
    added = []
    ahead = 0
    for position, unit in enumerate(new):
        if ahead < len(kept) and kept[ahead][1] == position:
            ahead += 1
        else:
            before = kept[ahead][0] if ahead < len(kept) else len(old)
            added.append((head + before, unit))
    return Edits(removed, tuple(added))


def _common(left: Sequence[Unit], right: Sequence[Unit]) -> int:
    """How many are equal from the first on."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _kept(old: Sequence[Unit], new: Sequence[Unit]) -> list[tuple[int, int]]:
    """Pairs of places, rising, whose units are equal: as many as there can be."""
    if not old or not new or len(old) * len(new) > _MOST_CELLS:
        return []
    longest = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old) - 1, -1, -1):
        for j in range(len(new) - 1, -1, -1):
            longest[i][j] = (
                longest[i + 1][j + 1] + 1 if old[i] == new[j] else max(longest[i + 1][j], longest[i][j + 1])
            )
    pairs, i, j = [], 0, 0
    while i < len(old) and j < len(new):
        if old[i] == new[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif longest[i + 1][j] >= longest[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def placed(original: Sequence[Unit], changes: Mapping[str, Edits]) -> list[tuple[str, Unit]]:
    """The resulting units, each with the module that added it; empty: the original has it."""
    gone = frozenset[int]().union(*(change.removed for change in changes.values()))
    added: dict[int, list[tuple[str, Unit]]] = {}
    for id in sorted(changes):
        for place, unit in changes[id].added:
            added.setdefault(place, []).append((id, unit))
    merged: list[tuple[str, Unit]] = []
    for place in range(len(original) + 1):
        merged += added.get(place, ())
        if place < len(original) and place not in gone:
            merged.append(("", original[place]))
    return merged


def _flat(merged: Sequence[tuple[str, Unit]]) -> tuple[str, ...]:
    return tuple(word for _, unit in merged for word in unit)


def _removed(original: Sequence[Unit], change: Edits) -> tuple[str, ...]:
    return tuple(word for place in sorted(change.removed) for word in original[place])


def _single(words: Sequence[str]) -> tuple[Unit, ...]:
    return tuple((word,) for word in words)


ENV: Final = "env"
JVM_ARGS: Final = "jvm_args"


def overridden(
    original: StartValues, changes: Mapping[str, StartChange]
) -> dict[str, tuple[Overridden, ...]]:
    """By module, only those with something that does not hold. Who wanted the same as what holds lost nothing."""
    found: dict[str, list[Overridden]] = {}
    for id, lost in (*_variables(changes), *_options(original, changes)):
        found.setdefault(id, []).append(lost)
    return {id: tuple(lost) for id, lost in found.items()}


def _variables(changes: Mapping[str, StartChange]) -> Iterator[tuple[str, Overridden]]:
    last: dict[str, str] = {}
    for id in sorted(changes):
        last |= dict.fromkeys((*changes[id].env_removed, *changes[id].env_set), id)
    for id in sorted(changes):
        mine = changes[id]
        for name in sorted({*mine.env_set, *mine.env_removed}):
            if changes[last[name]].env_set.get(name) != mine.env_set.get(name):
                yield id, Overridden(kind=ENV, name=name, by=last[name])


def _options(original: StartValues, changes: Mapping[str, StartChange]) -> Iterator[tuple[str, Overridden]]:
    merged = placed(units(original.jvm_args), {id: change.jvm_args for id, change in changes.items()})
    last: dict[str, tuple[str, Unit]] = {}
    for owner, unit in merged:
        if setting := setting_of(unit):
            last[setting] = (owner, unit)
    for owner, unit in merged:
        winner, holds = last.get(setting_of(unit), (owner, unit))
        if owner and winner != owner and holds != unit:
            yield owner, Overridden(kind=JVM_ARGS, name=unit[0], by=winner)


MOST_MODULES: Final = 64
_MOST_SHOWN: Final = 50
_LONGEST_SHOWN: Final = 200
_LONGEST_REASON: Final = 500
_MOST_BYTES: Final = 16 * 1024
"""Of all of it; a module beyond this limit is listed with counts in place of words."""
_LISTS: Final = (
    "jvm_args_added",
    "jvm_args_removed",
    "args_added",
    "args_removed",
    "env_set",
    "env_removed",
)


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a start by modules. Empty: no module changed anything, and none was missing."""

    changes: tuple[ModuleChange, ...] = ()
    missing: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.missing)


def provenance(
    changes: Iterable[ModuleChange], missing: Iterable[str], secrets: Mapping[str, str]
) -> Provenance:
    """With the names of variables in place of secret values."""
    hidden = SecretMask(secrets)
    shown = []
    size = 0
    for change in list(changes)[:MOST_MODULES]:
        short = _shown(change, hidden)
        size += _size(short)
        shown.append(short if size <= _MOST_BYTES else _counted(change, short.dropped))
    return Provenance(
        changes=tuple(shown),
        missing=tuple(hidden(text)[:_LONGEST_REASON] for text in list(missing)[:MOST_MODULES]),
    )


def _shown(change: ModuleChange, hidden: SecretMask) -> ModuleChange:
    lists = {field: _cut(getattr(change, field), hidden) for field in _LISTS}
    dropped = hidden(change.dropped)[:_LONGEST_REASON]
    lost = tuple(
        msgspec.structs.replace(each, name=_short(each.name, hidden))
        for each in change.overridden[:_MOST_SHOWN]
    )
    return msgspec.structs.replace(change, dropped=dropped, overridden=lost, **lists)


def _counted(change: ModuleChange, dropped: str) -> ModuleChange:
    counts = {field: len(getattr(change, field)) for field in _LISTS}
    lists = {field: (f"… {count} of them",) if count else () for field, count in counts.items()}
    return msgspec.structs.replace(change, dropped=dropped[:_LONGEST_SHOWN], overridden=(), **lists)


def _size(change: ModuleChange) -> int:
    return len(msgspec.json.encode(change))


def _cut(words: tuple[str, ...], hidden: SecretMask) -> tuple[str, ...]:
    shown = [_short(word, hidden) for word in words[:_MOST_SHOWN]]
    more = len(words) - _MOST_SHOWN
    return (*shown, f"… and {more} more") if more > 0 else tuple(shown)


def _short(word: str, hidden: SecretMask) -> str:
    word = hidden(word)
    return word if len(word) <= _LONGEST_SHOWN else f"{word[:_LONGEST_SHOWN]}…"
