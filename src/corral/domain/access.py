"""The access of a caller: which permissions it has, and on which groups and nodes.

Handlers, streams, the audit and the hiding of fields ask this value alone, whatever the caller has proved itself by.
A scope that names groups covers these groups and their instances, on any node, and no node as such. One that names
nodes covers these nodes and the instances there, of any group, and no group as such. One that names both covers these
groups, these nodes, and the instances of these groups on these nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from corral.domain.bindings import Scope, is_within
from corral.domain.permissions import GRANTS, Permission, Role

ANY: Final = "\0"
"""No name of a group or node: only a scope that names none, or all, covers it."""


def _names_groups(scope: Scope) -> bool:
    return scope.groups is not None or scope.is_everything


def _names_nodes(scope: Scope) -> bool:
    return scope.nodes is not None or scope.is_everything


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions that hold within a scope."""

    permissions: frozenset[Permission]
    scopes: tuple[Scope, ...] = ()
    """Each of them restricts; without any the permissions hold everywhere."""

    def covers_group(self, name: str) -> bool:
        return all(_names_groups(each) and each.covers_group(name) for each in self.scopes)

    def covers_node(self, id: str) -> bool:
        return all(_names_nodes(each) and each.covers_node(id) for each in self.scopes)

    def covers_instance(self, group: str, node: str) -> bool:
        return all(each.covers_group(group) and each.covers_node(node) for each in self.scopes)


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may do, and where; what is not granted is refused."""

    grants: tuple[Grant, ...] = ()

    def allows(self, permission: Permission) -> bool:
        """Whether the caller has a permission at all, be it in a scope."""
        return any(permission in each.permissions for each in self.grants)

    def allows_everywhere(self, permission: Permission) -> bool:
        return any(not each.scopes for each in self._with(permission))

    def allows_in_all(self, permission: Permission) -> bool:
        """Whether the caller has a permission wherever it has any: then it holds for whatever the caller gets to see."""
        return bool(self.grants) and all(permission in each.permissions for each in self.grants)

    def allows_on_group(self, permission: Permission, name: str) -> bool:
        return any(each.covers_group(name) for each in self._with(permission))

    def allows_on_node(self, permission: Permission, id: str) -> bool:
        return any(each.covers_node(id) for each in self._with(permission))

    def allows_on_instance(self, permission: Permission, group: str, node: str) -> bool:
        return any(each.covers_instance(group, node) for each in self._with(permission))

    def _with(self, permission: Permission) -> Iterator[Grant]:
        return (each for each in self.grants if permission in each.permissions)

    @property
    def permissions(self) -> frozenset[Permission]:
        """Everything that is granted anywhere."""
        return frozenset().union(*(each.permissions for each in self.grants))

    @property
    def is_scoped(self) -> bool:
        return any(each.scopes for each in self.grants)

    @property
    def role(self) -> Role | None:
        """The strongest of the fixed roles whose permissions are all there, everywhere; for modules, which know these roles
        alone."""
        whole = frozenset[Permission]().union(*(each.permissions for each in self.grants if not each.scopes))
        return next((role for role in Role if GRANTS[role] <= whole), None)

    def narrowed(self, by: Access) -> Access:
        """What both allow: for a token, which allows what its owner may and it itself says."""
        pairs = (
            Grant(
                permissions=mine.permissions & theirs.permissions,
                scopes=tuple(dict.fromkeys((*mine.scopes, *theirs.scopes))),
            )
            for mine in self.grants
            for theirs in by.grants
        )
        return Access(grants=tuple(dict.fromkeys(each for each in pairs if each.permissions)))

    def exceeds(self, other: Access) -> Permission | None:
        """A permission that is granted here and not, or not as far, by `other`: nobody grants more than he has. Several
        grants of `other` that cover one of these only together do not count."""
        for grant in self.grants:
            for permission in sorted(grant.permissions):
                if not any(_covers(theirs, grant.scopes) for theirs in other._with(permission)):
                    return permission
        return None


def _covers(grant: Grant, scopes: Iterable[Scope]) -> bool:
    """Whether a grant holds wherever all of these scopes do."""
    return all(any(_is_covered(inner, outer) for inner in scopes) for outer in grant.scopes)


def _is_covered(inner: Scope, outer: Scope) -> bool:
    if _names_groups(inner) and not _names_groups(outer):
        return False
    return is_within(inner, outer) and (_names_nodes(outer) or not _names_nodes(inner))


NOTHING: Final = Access()
_BY_ROLE: Final = {role: Access(grants=(Grant(permissions=GRANTS[role]),)) for role in Role}


def access_of_role(role: Role) -> Access:
    """The access of a fixed role, everywhere."""
    return _BY_ROLE[role]


def access_on_node(id: str) -> Access:
    """Everything, on one node and with the instances there."""
    return Access(grants=(Grant(permissions=frozenset(Permission), scopes=(Scope(nodes=(id,)),)),))


def granting_roles(permission: Permission) -> list[Role]:
    """The fixed roles that have a permission, the weakest first."""
    return [role for role in reversed(Role) if permission in GRANTS[role]]
