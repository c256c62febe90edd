"""Authentication of callers (bearer token, ticket, workload token), and authorisation by permission."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence

from corral.controller.accounts.principals import Principal
from corral.controller.http.messages.call import Caller
from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.pipeline.api_context import Network, TermContext
from corral.controller.state.api_tokens import verify
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Actor
from corral.controller.workload.tokens import PREFIX, WorkloadRun
from corral.domain.access import granting_roles
from corral.domain.groups.group import Category
from corral.domain.groups.plan_resolution import effective_category
from corral.domain.ids import CallerId
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected


def authenticate(leading: TermContext, request: HttpRequest, *, now: dt.datetime) -> Caller:
    """The caller of the bearer token; UNAUTHENTICATED without a valid one."""
    credential = _bearer(request, "send 'Authorization: Bearer corral_…'")
    token = verify(leading.state.tokens, credential, now=now)
    principal = leading.principals.of_token(token)
    if principal is None:
        raise Rejected(
            Code.UNAUTHENTICATED,
            leading.principals.reason(CallerId(token.id), now),
            hint="ask an administrator",
        )
    leading.token_uses.note(principal.id, now)
    return _caller(principal, request, credential)


def _caller(principal: Principal, request: HttpRequest, credential: str = "") -> Caller:
    return Caller(
        id=principal.id,
        actor=Actor(name=principal.name, address=request.address, label=principal.label),
        access=principal.access,
        credential=credential,
        expires_at=principal.expires_at,
    )


def authenticate_workload(
    leading: TermContext, request: HttpRequest, *, late: bool, cost: int = 1
) -> WorkloadRun:
    """The run of the bearer token; UNAUTHENTICATED, WORKLOAD_TOKEN_INVALID, RATE_LIMITED. `cost`: as how many requests this
    one counts."""
    text = _bearer(request, "send 'Authorization: Bearer ' and the value of CORRAL_INSTANCE_TOKEN")
    return leading.workload.admit(text, late=late, cost=cost)


def has_workload_token(request: HttpRequest) -> bool:
    """Whether the request carries the token of a run, valid or not."""
    _, _, text = (request.header(b"authorization") or "").partition(" ")
    return text.strip().startswith(f"{PREFIX}.")


def authenticate_proxy(leading: TermContext, request: HttpRequest, *, cost: int) -> WorkloadRun:
    """The run of the bearer token; FORBIDDEN unless its group is one of proxies."""
    run = authenticate_workload(leading, request, late=False, cost=cost)
    record = leading.state.instances.require(run.instance).record
    if not _is_proxy(leading.state, record.group):
        raise Rejected(
            Code.FORBIDDEN,
            f"instance '{run.instance}' is of group '{record.group}', whose category is not 'proxy'",
            hint="set 'category: proxy' in that group, or use an API token that grants 'groups.read'",
        )
    return run


def _is_proxy(state: ClusterState, name: str) -> bool:
    stored = state.groups.find(name)
    if stored is None:
        return False
    artifact = stored.record.spec.artifact
    program = state.catalog.find(f"{artifact.platform}/{artifact.version}") if artifact else None
    category = effective_category(stored.record.spec, program.record if program is not None else None)
    return category is Category.PROXY


def _bearer(request: HttpRequest, hint: str) -> str:
    scheme, _, text = (request.header(b"authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise Rejected(Code.UNAUTHENTICATED, "the request carries no token", hint=hint)
    return text.strip()


def redeem(leading: TermContext, request: HttpRequest, ticket: str, *, now: dt.datetime) -> Caller:
    """The caller of a ticket; its token must still be valid."""
    principal = leading.principals.find(leading.tickets.redeem(ticket), now)
    if principal is None:
        raise Rejected(
            Code.UNAUTHENTICATED, "the token behind this ticket was revoked or expired", hint="log in again"
        )
    leading.token_uses.note(principal.id, now)
    return _caller(principal, request)


def authorise(caller: Caller, permission: Permission) -> None:
    """FORBIDDEN unless the caller has the permission."""
    if not caller.access.allows(permission):
        role = caller.access.role
        raise Rejected(
            Code.FORBIDDEN,
            f"role {role} does not grant '{permission}'" if role else f"'{permission}' is not granted",
            hint=f"use a token of role {' or '.join(granting_roles(permission))}",
        )


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Whether a peer's address lies in one of these networks."""
    if not networks:
        return False
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return any(parsed in network for network in networks)
