"""Users: creation, change, lock and removal. These functions describe the steps and leave the commit to their caller."""

from __future__ import annotations

import datetime as dt

import msgspec

from corral.controller.accounts.user_sessions import ending
from corral.controller.state.api_tokens import FIRST_USER
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.collections import ROLES, TOKENS, USERS
from corral.controller.state.ledger import Step
from corral.domain.accounts.records import UserLock, UserRecord
from corral.domain.bindings import MOST_BINDINGS, Binding
from corral.domain.events import Draft, EventType
from corral.domain.ids import UserName
from corral.domain.permissions import Role
from corral.errors import Code, Rejected, unknown_choice
from corral.store.port import ABSENT


def first_user(now: dt.datetime) -> tuple[Step, ...]:
    """The steps that store the first user."""
    record = UserRecord(
        name=FIRST_USER,
        created_at=now,
        created_by="system",
        bindings=(Binding(role=Role.ADMIN.value),),
    )
    return creation(record)


def administrator(
    state: ClusterState, name: UserName, *, by: str, now: dt.datetime, **changes: object
) -> tuple[UserRecord, tuple[Step, ...]]:
    """A user with these changes who is not locked and may do everything, and the steps that store it: for whoever owns the
    host. One who is not there is created; for one who is so already there are no steps."""
    admin = Binding(role=Role.ADMIN.value)
    stored = state.users.find(name)
    if stored is None:
        made = UserRecord(name=name, created_at=now, created_by=by, bindings=(admin,))
        record = msgspec.structs.replace(made, **changes)
        return record, creation(record)
    former = stored.record
    if not _has_everything(former):
        changes["bindings"] = (admin, *former.bindings)[:MOST_BINDINGS]
    if msgspec.structs.replace(former, locked=None, **changes) == former:
        return former, ()
    record, steps = update(state, name, locked=None, **changes)
    if former.locked is not None:
        steps = (*steps, Draft(type=EventType.USER_UNLOCKED, subject=name))
    return record, steps


def creation(record: UserRecord) -> tuple[Step, ...]:
    return (
        USERS.put(record.name, record, expect=ABSENT),
        Draft(type=EventType.USER_CREATED, subject=record.name, data={"bindings": _shown(record.bindings)}),
    )


def update(state: ClusterState, name: str, **changes: object) -> tuple[UserRecord, tuple[Step, ...]]:
    """The record with these fields, and the steps that store it; CONFLICT where no administrator would be left. All sessions
    of a user end with another role or another password."""
    stored = state.users.require(name)
    record = msgspec.structs.replace(stored.record, **changes)
    steps: list[Step] = [USERS.put(record.name, record, expect=stored.revision)]
    steps += _keep_an_admin(state, stored.record, record)
    if record.password_hash != stored.record.password_hash:
        steps += _end_sessions(state, record.name, reason="an administrator changed the password")
    elif record.all_bindings != stored.record.all_bindings:
        steps += _end_sessions(state, record.name, reason="the roles of the user changed")
    steps.append(
        Draft(type=EventType.USER_UPDATED, subject=record.name, data={"bindings": _shown(record.bindings)})
    )
    return record, tuple(steps)


def lock(
    state: ClusterState, name: str, *, by: str, reason: str, now: dt.datetime
) -> tuple[UserRecord, tuple[Step, ...]]:
    """Refuse everything that the user, its tokens and its sessions ask for, from now on."""
    stored = state.users.require(name)
    record = msgspec.structs.replace(stored.record, locked=UserLock(by=by, reason=reason, at=now))
    return record, (
        USERS.put(record.name, record, expect=stored.revision),
        *_keep_an_admin(state, stored.record, record),
        *_end_sessions(state, record.name, reason="an administrator locked the user"),
        Draft(type=EventType.USER_LOCKED, subject=record.name, data={"by": by, "reason": reason}),
    )


def unlock(state: ClusterState, name: str) -> tuple[UserRecord, tuple[Step, ...]]:
    stored = state.users.require(name)
    record = msgspec.structs.replace(stored.record, locked=None)
    return record, (
        USERS.put(record.name, record, expect=stored.revision),
        Draft(type=EventType.USER_UNLOCKED, subject=record.name),
    )


def removal(state: ClusterState, name: str) -> tuple[Step, ...]:
    """The steps that remove a user with its tokens and sessions."""
    stored = state.users.require(name)
    tokens = [each for each in state.tokens if each.record.owner == name]
    return (
        USERS.delete(name, expect=stored.revision),
        *_keep_an_admin(state, stored.record, None),
        *_end_sessions(state, stored.record.name, reason="the user was removed"),
        *(TOKENS.delete(each.record.id, expect=each.revision) for each in tokens),
        *(
            Draft(type=EventType.TOKEN_REVOKED, subject=each.record.id, data={"name": each.record.name})
            for each in tokens
        ),
        Draft(type=EventType.USER_DELETED, subject=name),
    )


def check_bindings(state: ClusterState, bindings: tuple[Binding, ...]) -> tuple[Step, ...]:
    """INVALID_FIELD for a role that does not exist. The steps write custom roles unchanged: one that is removed at the same
    moment is not bound, and none that is bound is removed."""
    custom: dict[str, Step] = {}
    for number, each in enumerate(bindings):
        if each.role not in Role.__members__ and state.roles.find(each.role) is None:
            known = (*Role.__members__, *(stored.record.name for stored in state.roles))
            raise unknown_choice(
                "role", each.role, known, code=Code.INVALID_FIELD, field=f"bindings[{number}].role"
            )
        stored = state.roles.find(each.role)
        if stored is not None:
            custom[each.role] = ROLES.put(each.role, stored.record, expect=stored.revision)
    return tuple(custom.values())


def audited(record: UserRecord) -> dict[str, object]:
    """What the audit shows of a user before and after a change."""
    return {
        "display_name": record.display_name,
        "bindings": msgspec.to_builtins(record.bindings),
        "locked": record.locked.reason if record.locked is not None else False,
        "has_password": bool(record.password_hash),
        "has_totp": record.totp_sealed is not None,
    }


def is_admin(record: UserRecord) -> bool:
    """Whether a user may do everything, everywhere, now, and without a provider, which may be gone tomorrow."""
    return _has_everything(record) and record.locked is None and not record.provider


def _has_everything(record: UserRecord) -> bool:
    return any(each.role == Role.ADMIN and each.scope.is_everything for each in record.bindings)


def _keep_an_admin(state: ClusterState, before: UserRecord, after: UserRecord | None) -> list[Step]:
    """Refuse what would leave no administrator.

    Two administrators who remove each other at the same moment must not both succeed. So the change of one also
    rewrites another one that remains: one of the two transactions conflicts on that record and is evaluated again.
    """
    if not is_admin(before) or (after is not None and is_admin(after)):
        return []
    witness = _other_admin(state, before.name)
    if witness is None:
        raise Rejected(
            Code.CONFLICT,
            f"'{before.name}' is the last administrator who can get in",
            hint="give another user the role ADMIN without a scope, and a password or a token, first",
        )
    return [USERS.put(witness.record.name, witness.record, expect=witness.revision)]


def _other_admin(state: ClusterState, name: str) -> StoredRecord[UserRecord] | None:
    """One who can get in: by a password, or by a token."""
    owners = {each.record.owner for each in state.tokens}
    others = (each for each in state.users if each.record.name != name and is_admin(each.record))
    return next((each for each in others if each.record.password_hash or each.record.name in owners), None)


def _end_sessions(state: ClusterState, name: str, *, reason: str) -> tuple[Step, ...]:
    return ending((each for each in state.user_sessions if each.record.user == name), reason=reason)


def _shown(bindings: tuple[Binding, ...]) -> list[str]:
    """The roles of bindings, for events: `OPERATOR` or `OPERATOR (scoped)`."""
    return [each.role if each.scope.is_everything else f"{each.role} (scoped)" for each in bindings]
