"""What goes when the cache is full: what was used longest ago, and nothing that is needed now."""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping, Sequence

import msgspec


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Something that may go. Contents are shared: they go with the last one that names them."""

    kind: str
    key: str
    used_ms: int
    size: int
    """What goes with it in any case."""
    contents: Mapping[str, int] = {}


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    entries: tuple[Candidate, ...]
    contents: tuple[str, ...]
    freed: int

    def without(self, pins: Collection[tuple[str, str]]) -> Eviction:
        """Spare what somebody has come to use since it was chosen. That happens to entries without shared
        contents only (first runs): what shares contents is pinned under the lock of the choice."""
        spared = [one for one in self.entries if (one.kind, one.key) in pins and not one.contents]
        return msgspec.structs.replace(
            self,
            entries=tuple(one for one in self.entries if one not in spared),
            freed=self.freed - sum(one.size for one in spared),
        )


def choose(
    excess: int,
    *,
    candidates: Sequence[Candidate],
    kept: Sequence[Mapping[str, int]],
    present: Mapping[str, int],
    protected: Collection[str],
) -> Eviction:
    """Free at least `excess` bytes, or all that can be freed.

    `kept` are the contents of entries that must stay, `present` all contents on the disk, `protected`
    those that somebody is about to use. Contents that nothing names go first: they are what a transfer
    that never ended left behind.
    """
    names: collections.Counter[str] = collections.Counter()
    for contents in (*kept, *(candidate.contents for candidate in candidates)):
        names.update(contents.keys())
    freed, gone, entries = 0, [], []
    for digest, size in present.items():
        if freed < excess and not names[digest] and digest not in protected:
            gone.append(digest)
            freed += size
    for candidate in sorted(candidates, key=lambda one: (one.used_ms, one.kind, one.key)):
        if freed >= excess:
            break
        entries.append(candidate)
        freed += candidate.size
        for digest in candidate.contents:
            names[digest] -= 1
            if not names[digest] and digest in present and digest not in protected:
                gone.append(digest)
                freed += present[digest]
    return Eviction(entries=tuple(entries), contents=tuple(gone), freed=freed)
