"""Join tokens: permission for one host to become a node."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody
from corral.controller.http.messages.paging import Page, PageQuery, everything, page_of
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.route_table import Mutate, Read, Route
from corral.controller.http.pipeline.term_ports import ClusterControl
from corral.controller.sessions.enrolment import new_join_token
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.collections import JOIN_TOKENS
from corral.controller.state.ledger import Mutation
from corral.domain.events import Draft, EventType
from corral.domain.permissions import Permission
from corral.domain.records import JoinTokenRecord
from corral.store.port import ABSENT
from corral.system.daemon_config import DaemonConfig


class JoinTokenState(enum.StrEnum):
    USABLE = "usable"
    USED = "used"
    EXPIRED = "expired"


class JoinTokenShape(msgspec.Struct, frozen=True, kw_only=True):
    """A join token without its secret."""

    id: str
    node_id: str | None
    state: JoinTokenState
    replace: bool
    labels: dict[str, str]
    created_at: dt.datetime
    created_by: str
    expires_at: dt.datetime
    used_at: dt.datetime | None
    used_by: str | None
    revision: int


class NewJoinTokenShape(msgspec.Struct, frozen=True, kw_only=True):
    """A join token with its text, which is shown this once, and the command that uses it."""

    id: str
    node_id: str | None
    expires_at: dt.datetime
    replace: bool
    token: str
    command: str
    revision: int


_DATA: Final = DaemonConfig().data


class CreateJoinToken(RequestBody, frozen=True, kw_only=True):
    node_id: (
        Annotated[
            str,
            msgspec.Meta(
                min_length=1,
                max_length=63,
                extra_json_schema={
                    "pattern": r"^(?!.*\.\.)[a-z0-9]([a-z0-9._-]*[a-z0-9])?$",
                    "examples": ["node-1"],
                },
            ),
        ]
        | None
    ) = None
    ttl_seconds: Annotated[int, msgspec.Meta(ge=60, le=604_800)] = 3600
    replace: bool = False
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels that the node gets; they override those that it reports, and may begin with `trusted.`."""


async def list_join_tokens(state: ClusterState, call: ApiCall[None, PageQuery]) -> Page[JoinTokenShape]:
    return page_of(
        state.join_tokens,
        call.query,
        accepts=everything,
        shape=lambda stored: _shape(stored, call.now),
    )


def _shape(stored: StoredRecord[JoinTokenRecord], now: dt.datetime) -> JoinTokenShape:
    record = stored.record
    state = JoinTokenState.USABLE
    if record.used_at is not None:
        state = JoinTokenState.USED
    elif record.expires_at <= now:
        state = JoinTokenState.EXPIRED
    return JoinTokenShape(
        id=record.id,
        node_id=record.node_id,
        state=state,
        replace=record.replace,
        labels=record.labels,
        created_at=record.created_at,
        created_by=record.created_by,
        expires_at=record.expires_at,
        used_at=record.used_at,
        used_by=record.used_by,
        revision=stored.revision,
    )


def create_join_token(
    state: ClusterState,
    cluster: ClusterControl,
    setting: ProcessContext,
    call: ApiCall[CreateJoinToken, NoQuery],
) -> Mutation:
    asked = call.body
    record, text = new_join_token(
        state,
        node_id=asked.node_id,
        replace=asked.replace,
        ttl_seconds=asked.ttl_seconds,
        created_by=call.caller.actor.name,
        now=call.now,
        entropy=setting.entropy,
        bootstrap_addresses=cluster.bootstrap_addresses(),
        labels=asked.labels,
    )
    facts = {"node_id": record.node_id, "replace": record.replace, "labels": record.labels}
    return Mutation(
        action="join_tokens.create",
        subject=record.id,
        steps=(
            JOIN_TOKENS.put(record.id, record, expect=ABSENT),
            Draft(type=EventType.JOIN_TOKEN_CREATED, subject=record.id, data=facts),
        ),
        body=NewJoinTokenShape(
            id=record.id,
            node_id=record.node_id,
            expires_at=record.expires_at,
            replace=record.replace,
            token=text,
            command=_command(cluster, record, text),
            revision=0,
        ),
        status=201,
        after={**facts},
    )


def _command(cluster: ClusterControl, record: JoinTokenRecord, text: str) -> str:
    """The command to type on the new host."""
    name = f" --node-id {record.node_id}" if record.node_id else ""
    return f"corral daemon --data {_DATA} --controller {cluster.leader().grpc}{name} --join {text}"


def delete_join_token(state: ClusterState, call: ApiCall[None, NoQuery]) -> Mutation:
    stored = state.join_tokens.require(call.path["id"])
    record = stored.record
    return Mutation(
        action="join_tokens.revoke",
        subject=record.id,
        steps=(
            JOIN_TOKENS.delete(record.id, expect=stored.revision),
            Draft(type=EventType.JOIN_TOKEN_REVOKED, subject=record.id, data={"node_id": record.node_id}),
        ),
        status=204,
        before={"node_id": record.node_id, "replace": record.replace},
    )


def the_join_token(state: ClusterState, path: Mapping[str, str]) -> StoredRecord[JoinTokenRecord]:
    return state.join_tokens.require(path["id"])


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/nodes/join-tokens",
        permission=Permission.NODES_ENROL,
        summary="List join tokens",
        query=PageQuery,
        response=Page[JoinTokenShape],
        handler=list_join_tokens,
    ),
    Mutate(
        method="POST",
        path="/api/v1/nodes/join-tokens",
        permission=Permission.NODES_ENROL,
        summary="Create a join token; its text is shown once",
        body=CreateJoinToken,
        response=NewJoinTokenShape,
        status=201,
        handler=create_join_token,
    ),
    Mutate(
        method="DELETE",
        path="/api/v1/nodes/join-tokens/{id}",
        permission=Permission.NODES_ENROL,
        summary="Revoke a join token",
        status=204,
        handler=delete_join_token,
        revises=the_join_token,
    ),
)
