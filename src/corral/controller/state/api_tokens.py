"""API tokens: creation, verification, storage and revocation.

The text `corral_<id>_<secret>` is shown once; only the digest of its secret is stored. The functions that
change something describe the steps and leave the commit to their caller.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from corral.controller.state.cluster_state import Mirror, StoredRecord
from corral.controller.state.collections import TOKENS
from corral.controller.state.ledger import Step
from corral.domain.bindings import EVERYTHING, Scope
from corral.domain.events import Draft, EventType
from corral.domain.ids import TokenId, UserName
from corral.domain.permissions import Role
from corral.domain.records import ApiTokenRecord
from corral.errors import Code, Rejected
from corral.store.port import ABSENT
from corral.system.entropy import Entropy
from corral.system.opaque_secrets import CredentialForm, secret_matches

FIRST_USER: Final = UserName("admin")
"""The user who owns the first token, and those from before there were users."""
FIRST_ADMIN: Final = "first-admin"

_FORM: Final = CredentialForm("tok", lead="corral_")


def mint(
    *,
    name: str,
    role: Role,
    created_by: str,
    now: dt.datetime,
    entropy: Entropy,
    expires_at: dt.datetime | None = None,
    owner: UserName = FIRST_USER,
    permissions: frozenset[str] | None = None,
    scope: Scope = EVERYTHING,
) -> tuple[ApiTokenRecord, str]:
    """A new token's record and its text. Only here are both in one place."""
    credential = _FORM.create(entropy)
    record = ApiTokenRecord(
        id=TokenId(credential.id),
        name=name,
        secret_sha256=credential.secret_sha256,
        role=role,
        owner=owner,
        permissions=permissions,
        scope=scope,
        created_at=now,
        created_by=created_by,
        expires_at=expires_at,
    )
    return record, credential.text


def first_admin(now: dt.datetime, entropy: Entropy) -> tuple[ApiTokenRecord, str]:
    """The first administrator's token, created with the cluster."""
    return mint(name=FIRST_ADMIN, role=Role.ADMIN, created_by="system", now=now, entropy=entropy)


def verify(tokens: Mirror[ApiTokenRecord], text: str, *, now: dt.datetime) -> ApiTokenRecord:
    """The record of a token's text. UNAUTHENTICATED when it is unknown, wrong or expired; neither the message
    nor the response time distinguishes unknown from wrong."""
    id, secret = _FORM.read(text)
    stored = tokens.find(id)
    proven = secret_matches(secret, stored.record.secret_sha256 if stored else None)
    if stored is None or not proven:
        raise Rejected(
            Code.UNAUTHENTICATED,
            "the token is not known here",
            hint="it may have been revoked; get a new one from an administrator",
        )
    if is_expired(stored.record, now):
        raise Rejected(
            Code.UNAUTHENTICATED,
            f"the token expired at {stored.record.expires_at:%Y-%m-%d %H:%M:%S} UTC",
            hint="get a new one from an administrator",
        )
    return stored.record


def is_expired(record: ApiTokenRecord, now: dt.datetime) -> bool:
    return record.expires_at is not None and record.expires_at <= now


def creation(record: ApiTokenRecord) -> tuple[Step, ...]:
    """The steps that store a minted token."""
    data = {"name": record.name, "role": record.role.value}
    return (
        TOKENS.put(record.id, record, expect=ABSENT),
        Draft(type=EventType.TOKEN_CREATED, subject=record.id, data=data),
    )


def revocation(tokens: Mirror[ApiTokenRecord], id: str, *, now: dt.datetime) -> tuple[Step, ...]:
    """The steps that revoke a token; CONFLICT when no administrator would be left.

    Two administrators who revoke each other at the same moment must not both succeed. So the revocation of
    one also rewrites another one that remains: one of the two transactions conflicts on that record and is
    evaluated again.
    """
    stored = tokens.require(id)
    record = stored.record
    steps: list[Step] = [TOKENS.delete(record.id, expect=stored.revision)]
    if _is_whole_admin(record) and not is_expired(record, now):
        witness = _other_admin(tokens, record.id, now)
        if witness is None:
            raise Rejected(
                Code.CONFLICT,
                f"'{record.id}' is the last token of an administrator",
                hint="create another ADMIN token first",
            )
        steps.append(TOKENS.put(witness.record.id, witness.record, expect=witness.revision))
    steps.append(Draft(type=EventType.TOKEN_REVOKED, subject=record.id, data={"name": record.name}))
    return tuple(steps)


def _is_whole_admin(record: ApiTokenRecord) -> bool:
    """Whether a token narrows nothing of an administrator's rights."""
    return record.role is Role.ADMIN and record.permissions is None and record.scope.is_everything


def _other_admin(
    tokens: Mirror[ApiTokenRecord], id: TokenId, now: dt.datetime
) -> StoredRecord[ApiTokenRecord] | None:
    """The other administrator whose token expires last."""
    others = [
        stored
        for stored in tokens
        if _is_whole_admin(stored.record) and stored.record.id != id and not is_expired(stored.record, now)
    ]
    latest = dt.datetime.max.replace(tzinfo=dt.UTC)
    return max(
        others, key=lambda stored: (stored.record.expires_at or latest, stored.record.id), default=None
    )
