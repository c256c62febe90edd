"""What a caller may do, and where."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st

from corral.domain.access import NOTHING, Access, Grant, access_of_role, granting_roles
from corral.domain.bindings import Scope
from corral.domain.permissions import GRANTS, Permission, Role
from corral.domain.sensitive_fields import sees_all

READ, MANAGE = Permission.GROUPS_READ, Permission.GROUPS_MANAGE
LOBBIES = Scope(groups=("lobby*",))
FIRST = Scope(nodes=("n1",))
BOTH = Scope(groups=("lobby*",), nodes=("n1",))


def granted(*scopes: Scope, permissions: frozenset[Permission] = frozenset({READ})) -> Access:
    return Access(grants=(Grant(permissions=permissions, scopes=scopes),))


def test_what_is_not_granted_is_refused():
    assert not NOTHING.allows(READ)
    assert not granted().allows(MANAGE)
    assert granted().allows_everywhere(READ)


def test_a_scope_of_groups_covers_their_instances_on_any_node_and_no_node_as_such():
    access = granted(LOBBIES)
    assert access.allows(READ)
    assert not access.allows_everywhere(READ)
    assert access.allows_on_group(READ, "lobby-eu")
    assert not access.allows_on_group(READ, "arena")
    assert access.allows_on_instance(READ, "lobby", "n7")
    assert not access.allows_on_node(READ, "n7")


def test_a_scope_of_nodes_covers_the_instances_there_and_no_group_as_such():
    access = granted(FIRST)
    assert access.allows_on_node(READ, "n1")
    assert not access.allows_on_node(READ, "n2")
    assert access.allows_on_instance(READ, "arena", "n1")
    assert not access.allows_on_instance(READ, "arena", "n2")
    assert not access.allows_on_group(READ, "arena")


def test_a_scope_of_both_covers_the_instances_of_its_groups_on_its_nodes():
    access = granted(BOTH)
    assert access.allows_on_group(READ, "lobby")
    assert access.allows_on_node(READ, "n1")
    assert access.allows_on_instance(READ, "lobby", "n1")
    assert not access.allows_on_instance(READ, "lobby", "n2")
    assert not access.allows_on_instance(READ, "arena", "n1")


def test_what_is_hidden_from_some_is_hidden_unless_every_grant_shows_it():
    viewer, operator = access_of_role(Role.VIEWER), GRANTS[Role.OPERATOR]
    lobbies = Grant(permissions=operator, scopes=(LOBBIES,))
    assert sees_all(Access(grants=(lobbies,)))
    assert not sees_all(Access(grants=(*viewer.grants, lobbies))), "it reads more than the lobbies"
    assert not sees_all(NOTHING)


def test_a_token_allows_what_its_owner_may_and_it_says_itself():
    owner = Access(
        grants=(
            Grant(permissions=frozenset({READ})),
            Grant(permissions=frozenset({MANAGE}), scopes=(LOBBIES,)),
        )
    )
    token = granted(FIRST, permissions=frozenset({READ, MANAGE}))
    found = owner.narrowed(token)
    assert found.allows_on_instance(READ, "arena", "n1")
    assert not found.allows_on_instance(READ, "arena", "n2")
    assert found.allows_on_instance(MANAGE, "lobby", "n1")
    assert not found.allows_on_instance(MANAGE, "arena", "n1")
    assert not found.allows_on_group(MANAGE, "lobby"), "the token is for a node alone"


def test_nobody_grants_more_than_he_has():
    operator = access_of_role(Role.OPERATOR)
    assert access_of_role(Role.VIEWER).exceeds(operator) is None
    assert access_of_role(Role.ADMIN).exceeds(operator) not in (None, *GRANTS[Role.OPERATOR])
    lobbies = granted(LOBBIES)
    assert granted(Scope(groups=("lobby-1", "lobby-eu-*"))).exceeds(lobbies) is None
    assert granted(BOTH).exceeds(granted(FIRST, LOBBIES)) is READ, "who has no node as such grants none"
    assert granted(BOTH).exceeds(granted(BOTH)) is None
    assert granted().exceeds(lobbies) is READ
    assert granted(Scope(groups=("*",))).exceeds(lobbies) is READ


def test_the_strongest_fixed_role_is_told_only_where_it_holds_everywhere():
    assert [access_of_role(each).role for each in Role] == list(Role)
    assert Access(grants=(Grant(permissions=GRANTS[Role.ADMIN], scopes=(LOBBIES,)),)).role is None
    assert granted().role is None
    assert granting_roles(Permission.TOKENS_MANAGE) == [Role.ADMIN]


NAMES = st.sampled_from(["lobby", "lobby-1", "arena", "a"])
PATTERNS = st.sampled_from(["*", "lobby*", "*a", "arena", "lobby-*", "a"])
LISTS = st.none() | st.lists(PATTERNS, max_size=2).map(tuple)
SCOPES = st.builds(Scope, groups=LISTS, nodes=LISTS)
ACCESSES = st.lists(
    st.builds(
        Grant,
        permissions=st.frozensets(st.sampled_from([READ, MANAGE]), min_size=1),
        scopes=st.lists(SCOPES, max_size=2).map(tuple),
    ),
    max_size=2,
).map(lambda grants: Access(grants=tuple(grants)))


@hypothesis.settings(max_examples=300)
@hypothesis.given(mine=ACCESSES, theirs=ACCESSES, group=NAMES, node=NAMES)
def test_narrowing_never_adds_and_what_does_not_exceed_is_covered(mine, theirs, group, node):
    both = mine.narrowed(theirs)
    for permission in (READ, MANAGE):
        for question in (
            lambda access, p=permission: access.allows_on_group(p, group),
            lambda access, p=permission: access.allows_on_node(p, node),
            lambda access, p=permission: access.allows_on_instance(p, group, node),
            lambda access, p=permission: access.allows_everywhere(p),
        ):
            assert not question(both) or (question(mine) and question(theirs))
            if mine.exceeds(theirs) is None:
                assert not question(mine) or question(theirs)
    assert both.exceeds(mine) is None
    assert both.exceeds(theirs) is None
