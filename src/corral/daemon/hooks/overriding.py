"""Of what several modules wanted, what does not hold, and whose word does. Pure.

Of a variable the last word counts, by the order of module ids. Of an option of the JVM that may be set once
the last in the command counts: where it stands, and not who put it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from corral.daemon.hooks.start_changes import Change, placed
from corral.daemon.prepare.prepared_start import StartValues
from corral.daemon.workload.java import Unit, setting_of, units
from corral.domain.module_records import Overridden

ENV: Final = "env"
JVM_ARGS: Final = "jvm_args"


def overridden(original: StartValues, changes: Mapping[str, Change]) -> dict[str, tuple[Overridden, ...]]:
    """By module, only those with something that does not hold. Who wanted the same as what holds lost nothing."""
    found: dict[str, list[Overridden]] = {}
    for id, lost in (*_variables(changes), *_options(original, changes)):
        found.setdefault(id, []).append(lost)
    return {id: tuple(lost) for id, lost in found.items()}


def _variables(changes: Mapping[str, Change]) -> Iterator[tuple[str, Overridden]]:
    last: dict[str, str] = {}
    for id in sorted(changes):
        last |= dict.fromkeys((*changes[id].env_removed, *changes[id].env_set), id)
    for id in sorted(changes):
        mine = changes[id]
        for name in sorted({*mine.env_set, *mine.env_removed}):
            if changes[last[name]].env_set.get(name) != mine.env_set.get(name):
                yield id, Overridden(kind=ENV, name=name, by=last[name])


def _options(original: StartValues, changes: Mapping[str, Change]) -> Iterator[tuple[str, Overridden]]:
    merged = placed(units(original.jvm_args), {id: change.jvm_args for id, change in changes.items()})
    last: dict[str, tuple[str, Unit]] = {}
    for owner, unit in merged:
        if setting := setting_of(unit):
            last[setting] = (owner, unit)
    for owner, unit in merged:
        winner, holds = last.get(setting_of(unit), (owner, unit))
        if owner and winner != owner and holds != unit:
            yield owner, Overridden(kind=JVM_ARGS, name=unit[0], by=winner)
