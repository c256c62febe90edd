"""Custom roles: creation, change and removal. These functions describe the steps and leave the commit to their caller."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import structlog

from corral.controller.accounts.user_sessions import ending
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import ROLES
from corral.controller.state.ledger import Step
from corral.domain.accounts.records import RoleRecord, UserRecord
from corral.domain.bindings import Binding
from corral.domain.events import Draft, EventType
from corral.domain.permissions import Role
from corral.errors import Code, Rejected, nearest, short_list
from corral.store.port import ABSENT

_NAMED = 5
_LOGGED = 20
_log = structlog.get_logger("corral.controller.accounts")


def missing_roles(state: ClusterState, bindings: Iterable[Binding]) -> list[str]:
    """The roles of these bindings that are not there, each once: such a binding grants nothing until its role is created."""
    names = {binding.role for binding in bindings}
    return sorted(name for name in names if name not in Role.__members__ and state.roles.find(name) is None)


def warn_of_missing_roles(state: ClusterState, bindings: Iterable[Binding], *, user: str = "") -> None:
    """Log which roles of `oidc.bindings` are not there, and what may be meant; `user`: who has just logged in by it."""
    for name in missing_roles(state, bindings)[:_LOGGED]:
        known = [*Role.__members__, *(stored.record.name for stored in state.roles)]
        guess = nearest(name, known)
        _log.warning(
            "oidc_binding.skipped",
            user=user,
            role=name,
            reason="there is no such role, so it grants nothing" + (f"; is {guess} meant?" if guess else ""),
        )


def creation(record: RoleRecord) -> tuple[Step, ...]:
    return (
        ROLES.put(record.name, record, expect=ABSENT),
        Draft(type=EventType.ROLE_CREATED, subject=record.name, data=_data(record)),
    )


def update(state: ClusterState, name: str, **changes: object) -> tuple[RoleRecord, tuple[Step, ...]]:
    """The record with these fields, and the steps that store it. Where it grants more than before, the sessions of those who
    have it end: rights rise with a new session alone."""
    stored = state.roles.require(name)
    record = msgspec.structs.replace(stored.record, **changes)
    steps: list[Step] = [ROLES.put(record.name, record, expect=stored.revision)]
    if not record.granted <= stored.record.granted:
        having = {each.record.name for each in state.users if _has(each.record, name)}
        sessions = (each for each in state.user_sessions if each.record.user in having)
        steps += ending(sessions, reason=f"role '{name}' grants more now")
    return record, (
        *steps,
        Draft(type=EventType.ROLE_UPDATED, subject=record.name, data=_data(record)),
    )


def removal(state: ClusterState, name: str) -> tuple[Step, ...]:
    """CONFLICT while users have the role: they would lose its permissions without anybody having said so."""
    refuse_fixed(name)
    stored = state.roles.require(name)
    users = [each.record.name for each in state.users if _has(each.record, name)]
    if users:
        raise Rejected(
            Code.CONFLICT,
            f"role '{name}' is bound to {short_list(users, _NAMED)}",
            hint="change their bindings first: corral user update NAME --role ROLE",
        )
    return (
        ROLES.delete(name, expect=stored.revision),
        Draft(type=EventType.ROLE_DELETED, subject=name),
    )


def refuse_fixed(name: str) -> None:
    """CONFLICT for a role that is part of Corral."""
    if name in Role.__members__:
        raise Rejected(
            Code.CONFLICT,
            f"role {name} is fixed",
            hint="make a role of your own: corral role create NAME --permission P",
        )


def _has(user: UserRecord, role: str) -> bool:
    return any(binding.role == role for binding in user.all_bindings)


def _data(record: RoleRecord) -> dict[str, object]:
    return {"permissions": sorted(record.permissions)}
