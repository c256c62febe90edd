"""What the controller's part tells the parts on the nodes: capability `corral.jvm.flags`."""

from __future__ import annotations

from typing import Protocol

import msgspec

EVERY_GROUP = "*"
"""In place of a group's name: its flags go to the JVMs of all groups, before those of the group."""


class GroupFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of one group."""

    group: str
    flags: list[str]


class JvmFlags(Protocol):
    """The contract of `corral.jvm.flags` 1.0."""

    async def all(self) -> list[GroupFlags]:
        """Those of every group that has any, `*` included."""
        ...


def flags_for(group: str, rows: list[GroupFlags]) -> list[str]:
    """What a JVM of the group gets: each flag once, those of `*` first."""
    by_group = {row.group: row.flags for row in rows}
    return list(dict.fromkeys([*by_group.get(EVERY_GROUP, []), *by_group.get(group, [])]))
