"""Tiers of groups by their dependencies."""

from __future__ import annotations

import datetime as dt

from corral.domain.groups.group import DependencySpec, GroupSpec
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.planning.tiers import DependencyTiers

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def tiers(**needs: list[str]) -> DependencyTiers:
    records = {
        name: GroupRecord(
            spec=GroupSpec(name=name, depends_on=tuple(DependencySpec(group=each) for each in before)),
            created_at=NOW,
            updated_at=NOW,
        )
        for name, before in needs.items()
    }
    return DependencyTiers(records.get)


def test_a_group_comes_after_its_longest_chain():
    found = tiers(a=[], b=["a"], c=["a", "b"], d=["c", "gone"])
    assert [found.tier(name) for name in "dcba"] == [3, 2, 1, 0]


def test_a_chain_of_any_length_is_in_order():
    found = tiers(**{f"g{n}": [f"g{n - 1}"] if n else [] for n in range(1500)})
    assert [found.tier(f"g{n}") for n in reversed(range(1500))] == list(reversed(range(1500)))


def test_a_stored_cycle_ends():
    found = tiers(a=["b"], b=["c"], c=["a"], d=["a"])
    assert found.tier("d") == found.tier("a") + 1
