"""`corral node join-token`: permission for one host to enrol, once."""

from __future__ import annotations

from typing import Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import Session, api_command
from corral.cli.failure import note
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Column, show_done, show_list
from corral.cli.terminal.values import Span, age

_VALUE: Final = "KEY=VALUE"
TOKENS: Final = "/api/v1/nodes/join-tokens"

COLUMNS: Final = (
    Column("ID", "id"),
    Column("NODE", lambda token: str(token.get("node_id") or "any")),
    Column("REPLACE", "replace"),
    Column("EXPIRES", lambda token: age(token.get("expires_at"))),
    Column("USED", lambda token: str(token.get("used_by") or "-")),
    Column("BY", "created_by"),
)


def label(text: str) -> tuple[str, str]:
    """KEY=VALUE, read."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"'{text}' is not {_VALUE}")
    return key, value


@click.command("join-token")
@click.option("--node-id", metavar="ID", help="Let only this node id use it.")
@click.option("--ttl", type=Span(), default="1h", show_default=True, help="How long it can be used.")
@click.option("--replace", is_flag=True, help="Let it take over the id of a node that exists.")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Label for the node; may be repeated.")
@api_command
def join_token(
    session: Session, node_id: str | None, ttl: int, replace: bool, labels: tuple[str, ...]
) -> None:
    """Make a join token and print the one command to run on the new host."""
    body: dict[str, object] = {"ttl_seconds": ttl, "replace": replace}
    if labels:
        body["labels"] = dict(map(label, labels))
    if node_id:
        body["node_id"] = node_id
    made = session.client.post(TOKENS, body)
    if session.output == "table":
        whom = f"node '{made['node_id']}'" if made.get("node_id") else "any node id"
        note(
            f"join token {made.get('id')}: for {whom}, once, until {made.get('expires_at')}. Run on the host:"
        )
    show_done(session.output, made, str(made.get("command") or made.get("token")))


@click.command("join-tokens")
@api_command
def join_tokens(session: Session) -> None:
    """List the join tokens that were made, without their secrets."""
    show_list(session.output, session.client.pages(TOKENS), columns=COLUMNS)


@click.command("join-token-revoke")
@click.argument("id")
@yes_option
@api_command
def join_token_revoke(session: Session, id: str, yes: bool) -> None:
    """Make a join token useless. A node that used it already stays."""
    confirm(f"revoke join token '{id}'", yes=yes)
    session.client.delete(f"{TOKENS}/{segment(id)}")
    show_done(session.output, {"id": id}, f"join token '{id}' is revoked")
