"""Authentication of callers (token, session, ticket, workload token), and authorisation by permission."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence

from corral.controller.accounts.delegations import is_delegated
from corral.controller.accounts.principals import Principal
from corral.controller.accounts.user_sessions import PREFIX as SESSION_PREFIX
from corral.controller.accounts.user_sessions import is_of_session
from corral.controller.http.messages.call import Caller
from corral.controller.http.messages.request import PRIVATE, HttpRequest
from corral.controller.http.pipeline.api_context import TermContext
from corral.controller.http.pipeline.session_cookie import CSRF_HEADER, cookie_name, cookie_values
from corral.controller.state.api_tokens import verify
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Actor
from corral.controller.workload.tokens import PREFIX, WorkloadRun
from corral.domain.access import access_on_node, granting_roles
from corral.domain.accounts.records import SessionRecord
from corral.domain.groups.group import Category
from corral.domain.groups.plan_resolution import effective_category
from corral.domain.ids import CallerId, UserSessionId
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected


def authenticate(leading: TermContext, request: HttpRequest, *, now: dt.datetime) -> Caller:
    """The caller of the bearer token, or of the session in a cookie; UNAUTHENTICATED without a valid one."""
    if request.header(b"authorization") is not None:
        return _by_header(leading, request, now=now)
    values = cookie_values(request, cookie_name(request, leading.state.identity.id))
    if values:
        return _by_cookie(leading, request, values, now=now)
    raise Rejected(
        Code.UNAUTHENTICATED,
        "the request carries no token and no session",
        hint="send 'Authorization: Bearer corral_…', or log in",
    )


def _by_header(leading: TermContext, request: HttpRequest, *, now: dt.datetime) -> Caller:
    credential = _bearer(request, "send 'Authorization: Bearer corral_…'")
    if is_of_session(credential):
        session = leading.user_sessions.prove_header(credential, now=now)
        return _session_caller(leading, request, session, credential, now=now)
    if is_delegated(credential):
        return _by_delegation(leading, request, credential, now=now)
    token = verify(leading.state.tokens, credential, now=now)
    principal = leading.principals.of_token(token)
    if principal is None:
        raise _without_user(leading, CallerId(token.id), now)
    leading.note_use(principal.id, now)
    return _caller(principal, request, credential)


def _by_delegation(
    leading: TermContext, request: HttpRequest, credential: str, *, now: dt.datetime
) -> Caller:
    """The caller for whom a command runs, as it is now; it is where it was when it asked for the command."""
    delegation = leading.delegations.find(credential) if request.scope.get(PRIVATE) else None
    if delegation is None:
        raise Rejected(
            Code.UNAUTHENTICATED, "this credential is no longer valid: its command has ended", hint="log in"
        )
    principal = leading.principals.find(delegation.caller, now)
    if principal is None:
        raise _without_user(leading, delegation.caller, now)
    leading.note_use(principal.id, now)
    caller = _caller(principal, request, credential, address=delegation.address)
    if delegation.node is None:
        return caller
    return dataclasses.replace(caller, access=caller.access.narrowed(access_on_node(delegation.node)))


def _by_cookie(
    leading: TermContext, request: HttpRequest, values: Sequence[str], *, now: dt.datetime
) -> Caller:
    """The caller of one of these cookies. What it shows beside the cookie, and no other program on this host receives,
    seals its answers."""
    csrf = request.header(CSRF_HEADER) or ""
    refused: Rejected | None = None
    for value in values:
        try:
            session = leading.user_sessions.prove_cookie(value, csrf, now=now)
        except Rejected as error:
            refused = refused or error
        else:
            return _session_caller(leading, request, session, csrf, now=now)
    assert refused is not None, "there is a cookie"
    raise refused


def _session_caller(
    leading: TermContext, request: HttpRequest, session: SessionRecord, credential: str, *, now: dt.datetime
) -> Caller:
    principal = leading.principals.of_session(session)
    if principal is None:
        raise _without_user(leading, CallerId(session.id), now)
    leading.note_use(principal.id, now)
    return _caller(principal, request, credential)


def _without_user(leading: TermContext, id: CallerId, now: dt.datetime) -> Rejected:
    return Rejected(Code.UNAUTHENTICATED, leading.principals.reason(id, now), hint="ask an administrator")


def _caller(
    principal: Principal, request: HttpRequest, credential: str = "", *, address: str | None = None
) -> Caller:
    return Caller(
        id=principal.id,
        user=principal.user,
        actor=Actor(
            name=principal.name,
            address=request.address if address is None else address,
            label=principal.label,
        ),
        access=principal.access,
        credential=credential,
        expires_at=principal.expires_at,
        session=UserSessionId(principal.id) if principal.id.startswith(SESSION_PREFIX) else None,
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
    id = leading.tickets.redeem(ticket)
    principal = leading.principals.find(id, now)
    if principal is None:
        why = leading.principals.reason(id, now)
        raise Rejected(Code.UNAUTHENTICATED, f"the ticket is void: {why}", hint="log in again")
    leading.note_use(principal.id, now)
    return _caller(principal, request)


def require_private(request: HttpRequest, *, insecure: bool = False) -> None:
    """INSECURE_LOGIN for a connection that others may read: plain HTTP from another host. `insecure`: the configuration
    allows it."""
    if request.is_secure or request.is_local or insecure:
        return
    raise Rejected(
        Code.INSECURE_LOGIN,
        "nobody can log in over plain HTTP from another host: anybody on the way could read the password",
        hint="set up TLS (http.tls.mode, or a proxy in http.trusted_proxies that has it), log in on the controller's host, "
        "or set http.allow_insecure_login",
    )


def authorise(caller: Caller, permission: Permission) -> None:
    """FORBIDDEN unless the caller has the permission."""
    if not caller.access.allows(permission):
        role = caller.access.role
        raise Rejected(
            Code.FORBIDDEN,
            f"role {role} does not grant '{permission}'" if role else f"'{permission}' is not granted",
            hint=_granting(caller, permission),
        )


def _granting(caller: Caller, permission: Permission) -> str:
    roles = granting_roles(permission)
    if caller.session is not None:
        return f"ask an administrator: it is part of {' and '.join(roles)}"
    return f"use a token of role {' or '.join(roles)}"
