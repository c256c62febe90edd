"""An administrator with a password, made on the controller's host without the API; see `offline_change`."""

from __future__ import annotations

import functools

import msgspec

from corral.controller.accounts.passwords import Passwords
from corral.controller.accounts.users import administrator, audited
from corral.controller.state.ledger import Step, audit
from corral.controller.term.offline_change import OfflineCluster, change_offline
from corral.domain.accounts.password_policy import check_new_password
from corral.domain.accounts.records import UserRecord, valid_user_name
from corral.domain.ids import UserName
from corral.errors import Code, Rejected
from corral.system.controller_config import ControllerConfig


class MadeAdmin(msgspec.Struct, frozen=True, kw_only=True):
    """An administrator who may log in with the given password."""

    name: str
    created: bool
    """False: there was a user of this name."""
    has_totp: bool
    """A login needs the second factor as before."""


def make_admin(config: ControllerConfig, *, name: str, password: str) -> MadeAdmin:
    """Store a user with this password who may do everything; one who is there gets the password and the role, and its lock
    ends with its sessions. For a cluster that is `claimed`.

    INVALID_FIELD for the name or the password, CONFLICT for a user of a provider; others as in `change_offline`.
    """
    return change_offline(config, functools.partial(_admin, name=valid_user_name(name), password=password))


async def _admin(
    cluster: OfflineCluster, *, name: UserName, password: str
) -> tuple[MadeAdmin, tuple[Step, ...]]:
    stored = cluster.state.users.find(name)
    before = stored.record if stored is not None else None
    if before is not None and before.provider:
        raise Rejected(
            Code.CONFLICT,
            f"user '{name}' logs in with {before.provider} and has no password here",
            hint="choose another name",
            field="name",
        )
    names = (name, before.display_name) if before is not None else (name,)
    hashed = await _hash(cluster, check_new_password(password, names=names))
    record, steps = administrator(
        cluster.state,
        name,
        by=cluster.actor.name,
        now=cluster.clock.now(),
        password_hash=hashed,
        must_change_password=False,
    )
    made = MadeAdmin(name=name, created=before is None, has_totp=record.totp_sealed is not None)
    return made, (*steps, _entry(cluster, before, record))


async def _hash(cluster: OfflineCluster, password: str) -> str:
    passwords = Passwords(entropy=cluster.entropy)
    try:
        return await passwords.hash(password)
    finally:
        await passwords.close()


def _entry(cluster: OfflineCluster, before: UserRecord | None, record: UserRecord) -> Step:
    return audit(
        cluster.actor,
        "users.create" if before is None else "users.restore",
        record.name,
        before=audited(before) if before is not None else None,
        after=audited(record),
    )
