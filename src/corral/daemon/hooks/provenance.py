"""Which module made what of a start, as it is kept with the run and told. Pure.

No secret gets in, as far as it can be known by its value, and it is short: it goes with every report
about the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from corral.domain.module_records import ModuleChange
from corral.domain.secret_masks import SecretMask

MOST_MODULES: Final = 64
_MOST_SHOWN: Final = 50
_LONGEST_SHOWN: Final = 200
_LONGEST_REASON: Final = 500
_MOST_BYTES: Final = 16 * 1024
"""Of all of it; whoever would be beyond is named with numbers in place of words."""
_LISTS: Final = (
    "jvm_args_added",
    "jvm_args_removed",
    "args_added",
    "args_removed",
    "env_set",
    "env_removed",
)


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Empty: no module had anything to say, and none was missing."""

    changes: tuple[ModuleChange, ...] = ()
    missing: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.missing)


def provenance(
    changes: Iterable[ModuleChange], missing: Iterable[str], secrets: Mapping[str, str]
) -> Provenance:
    """With the names of variables in place of values that nobody may see."""
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
