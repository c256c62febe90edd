"""Bindings: which role a principal has, and within which scope of groups and nodes.

A scope restricts, so nothing in it may be overlooked: unknown keys are refused, in requests and in stored
documents alike. A misspelt key, or one of a newer version, would otherwise widen it to everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

MOST_PATTERNS: Final = 100
MOST_BINDINGS: Final = 50

NamePattern = Annotated[
    str, msgspec.Meta(min_length=1, max_length=63, pattern=r"^(?!.*\*\*)[a-z0-9._*-]+(?!\n)$")
]
"""A name of a group or node in which `*` stands for any characters, also none."""
RoleName = Annotated[str, msgspec.Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9._-]+(?!\n)$")]
"""A built-in role (ADMIN, OPERATOR, VIEWER) or a custom one."""


class Scope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The groups and nodes for which a role holds. None: all of them; an empty list: none."""

    groups: Annotated[tuple[NamePattern, ...], msgspec.Meta(max_length=MOST_PATTERNS)] | None = None
    nodes: Annotated[tuple[NamePattern, ...], msgspec.Meta(max_length=MOST_PATTERNS)] | None = None

    @property
    def is_everything(self) -> bool:
        return self.groups is None and self.nodes is None

    def covers_group(self, name: str) -> bool:
        return _covers(self.groups, name)

    def covers_node(self, name: str) -> bool:
        return _covers(self.nodes, name)


EVERYTHING: Final = Scope()


class Binding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A role within a scope."""

    role: RoleName
    scope: Scope = EVERYTHING


Bindings = Annotated[tuple[Binding, ...], msgspec.Meta(max_length=MOST_BINDINGS)]


def is_within(inner: Scope, outer: Scope) -> bool:
    """Whether `outer` covers every name that `inner` covers; for "nobody grants more than he has".

    Each pattern has to be covered by a single one of `outer`: several that cover it only together do not count,
    so the answer may be a refusal too many, never a grant too many."""
    return _is_within(inner.groups, outer.groups) and _is_within(inner.nodes, outer.nodes)


def matches(pattern: str, name: str) -> bool:
    """Whether the whole name fits the pattern; linear in the length of both."""
    head, *rest = pattern.split("*")
    if not rest:
        return pattern == name
    *middle, tail = rest
    at, end = len(head), len(name) - len(tail)
    if at > end or not name.startswith(head) or not name.endswith(tail):
        return False
    for part in middle:  # the earliest place of each part leaves the most room for the others
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _covers(patterns: Iterable[str] | None, name: str) -> bool:
    return patterns is None or any(matches(each, name) for each in patterns)


def _is_within(inner: Iterable[str] | None, outer: Iterable[str] | None) -> bool:
    if outer is None:
        return True
    # As a name, the `*` of the inner pattern fits nothing but a `*` of the outer one.
    return inner is not None and all(_covers(outer, pattern) for pattern in inner)
