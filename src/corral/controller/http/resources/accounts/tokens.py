"""API tokens."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from corral.controller.accounts.principals import token_limits
from corral.controller.http.messages.call import ApiCall, Name, NoQuery, RequestBody
from corral.controller.http.messages.paging import Page, PageQuery, everything, page_of
from corral.controller.http.pipeline.api_context import ProcessContext, TokenUses
from corral.controller.http.pipeline.route_table import Mutate, Read, Route
from corral.controller.http.resources.accounts.roles import PermissionList
from corral.controller.http.resources.accounts.users import UserNameText, refuse_more, refuse_stronger
from corral.controller.state.api_tokens import creation, mint, revocation
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.collections import USERS
from corral.controller.state.ledger import Mutation
from corral.domain.bindings import EVERYTHING, Scope
from corral.domain.permissions import Permission, Role
from corral.domain.records import ApiTokenRecord

TEN_YEARS_SECONDS: Final = 315_360_000


class TokenShape(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret."""

    id: str
    name: str
    role: Role
    owner: str
    permissions: list[str] | None
    scope: Scope
    created_at: dt.datetime
    created_by: str
    expires_at: dt.datetime | None
    last_used_at: dt.datetime | None
    revision: int


class NewTokenShape(TokenShape, frozen=True, kw_only=True):
    """A token with its text, which is shown this once. `warning` is set when it allows more than its role."""

    token: str
    warning: str = ""


class CreateToken(RequestBody, frozen=True, kw_only=True):
    name: Name
    role: Role
    expires_in_seconds: Annotated[int, msgspec.Meta(ge=1, le=TEN_YEARS_SECONDS)] | None = None
    permissions: PermissionList | None = None
    scope: Scope = EVERYTHING
    owner: UserNameText | None = None
    """The user whose rights it narrows; None: the caller's own."""


def token_shape(token_uses: TokenUses, stored: StoredRecord[ApiTokenRecord]) -> TokenShape:
    record = stored.record
    return TokenShape(
        id=record.id,
        name=record.name,
        role=record.role,
        owner=record.owner,
        permissions=sorted(record.permissions) if record.permissions is not None else None,
        scope=record.scope,
        created_at=record.created_at,
        created_by=record.created_by,
        expires_at=record.expires_at,
        last_used_at=token_uses.last(record.id),
        revision=stored.revision,
    )


async def list_tokens(
    state: ClusterState, token_uses: TokenUses, call: ApiCall[None, PageQuery]
) -> Page[TokenShape]:
    return page_of(
        state.tokens, call.query, accepts=everything, shape=lambda stored: token_shape(token_uses, stored)
    )


async def get_token(state: ClusterState, token_uses: TokenUses, call: ApiCall[None, NoQuery]) -> TokenShape:
    return token_shape(token_uses, state.tokens.require(call.path["id"]))


def create_token(
    state: ClusterState, token_uses: TokenUses, setting: ProcessContext, call: ApiCall[CreateToken, NoQuery]
) -> Mutation:
    asked = call.body
    life = asked.expires_in_seconds
    owner = state.users.require(asked.owner or call.caller.user)
    record, text = mint(
        name=asked.name,
        role=asked.role,
        owner=owner.record.name,
        permissions=None if asked.permissions is None else frozenset(asked.permissions),
        scope=asked.scope,
        created_by=call.caller.actor.name,
        now=call.now,
        entropy=setting.entropy,
        expires_at=None if life is None else call.now + dt.timedelta(seconds=life),
    )
    refuse_more(token_limits(record), call.caller, field="role")
    if owner.record.name != call.caller.user:
        refuse_stronger(state, call.caller, owner.record)
    shape = token_shape(token_uses, StoredRecord(0, record))
    return Mutation(
        action="tokens.create",
        subject=record.id,
        # With its owner, unchanged: one who is removed at the same moment leaves no token behind.
        steps=(*creation(record), USERS.put(owner.record.name, owner.record, expect=owner.revision)),
        body=NewTokenShape(
            **msgspec.structs.asdict(shape), token=text, warning=_warning(setting, record.role)
        ),
        status=201,
        after={
            "name": record.name,
            "role": record.role.value,
            "owner": record.owner,
            "scope": msgspec.to_builtins(record.scope),
            "permissions": None if record.permissions is None else sorted(record.permissions),
        },
    )


def _warning(setting: ProcessContext, role: Role) -> str:
    if role is Role.OPERATOR and setting.instances_are_root:
        return (
            "instances run as root on this host: an OPERATOR can start one that reads the administrator's token "
            "and everything else here, so this token is worth as much as an ADMIN's"
        )
    return ""


def delete_token(state: ClusterState, call: ApiCall[None, NoQuery]) -> Mutation:
    record = state.tokens.require(call.path["id"]).record
    owner = state.users.find(record.owner)
    if owner is not None and record.owner != call.caller.user:
        refuse_stronger(state, call.caller, owner.record)
    return Mutation(
        action="tokens.revoke",
        subject=record.id,
        steps=revocation(state.tokens, record.id, now=call.now),
        status=204,
        before={"name": record.name, "role": record.role.value},
    )


def the_token(state: ClusterState, path: Mapping[str, str]) -> StoredRecord[ApiTokenRecord]:
    return state.tokens.require(path["id"])


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/tokens",
        permission=Permission.TOKENS_READ,
        summary="List API tokens",
        query=PageQuery,
        response=Page[TokenShape],
        handler=list_tokens,
    ),
    Mutate(
        method="POST",
        path="/api/v1/tokens",
        permission=Permission.TOKENS_MANAGE,
        summary="Create an API token; its text is shown once",
        body=CreateToken,
        response=NewTokenShape,
        status=201,
        handler=create_token,
    ),
    Read(
        method="GET",
        path="/api/v1/tokens/{id}",
        permission=Permission.TOKENS_READ,
        summary="Show an API token",
        response=TokenShape,
        handler=get_token,
    ),
    Mutate(
        method="DELETE",
        path="/api/v1/tokens/{id}",
        permission=Permission.TOKENS_MANAGE,
        summary="Revoke an API token at once",
        status=204,
        handler=delete_token,
        revises=the_token,
    ),
)
