"""`corral token`: who may use the API."""

from __future__ import annotations

from typing import Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.failure import note
from corral.cli.scope_options import given_scope, scope_options, shown_scope
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Column, show_done, show_list
from corral.cli.terminal.values import SpanType, age

TOKENS: Final = "/api/v1/tokens"
ROLES: Final = ("ADMIN", "OPERATOR", "VIEWER")

COLUMNS: Final = (
    Column("ID", "id"),
    Column("NAME", "name"),
    Column("ROLE", "role"),
    Column("OWNER", "owner"),
    Column("WHERE", lambda token: shown_scope(token.get("scope") or {}) or "everywhere"),
    Column("AGE", lambda token: age(token.get("created_at"))),
    Column("EXPIRES", lambda token: age(token.get("expires_at")) if token.get("expires_at") else "never"),
    Column("USED", lambda token: age(token.get("last_used_at"))),
    Column("BY", "created_by", rank=1),
)


@click.group(cls=Noun)
def token() -> None:
    """API tokens."""


@token.command("list")
@api_command
def list_tokens(session: ApiSession) -> None:
    """List the tokens, without their secrets."""
    show_list(session.output, session.client.pages(TOKENS), columns=COLUMNS)


@token.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES, case_sensitive=False), required=True, help="What it may do.")
@click.option(
    "--expires", type=SpanType(), metavar="SPAN", help="How long it lives, such as 30d; for ever if left out."
)
@click.option("--owner", metavar="USER", help="Whose rights it narrows; your own if left out.")
@click.option(
    "--permission", "permissions", multiple=True, metavar="P", help="Only these of its role; several times."
)
@scope_options
@api_command
def create(
    session: ApiSession,
    name: str,
    role: str,
    expires: int | None,
    owner: str | None,
    permissions: tuple[str, ...],
    group: tuple[str, ...],
    node: tuple[str, ...],
) -> None:
    """Make a token and print its text, this once."""
    body: dict[str, object] = {"name": name, "role": role}
    if owner is not None:
        body["owner"] = owner
    if permissions:
        body["permissions"] = list(permissions)
    if scope := given_scope(group, node):
        body["scope"] = scope
    if expires is not None:
        body["expires_in_seconds"] = expires
    made = session.client.post(TOKENS, body)
    if session.output == "table":
        if warning := made.get("warning"):
            note(f"warning: {warning}")
        note(f"token {made.get('id')} for '{name}' ({role}); it is shown this once:")
    show_done(session.output, made, str(made.get("token")))


@token.command()
@click.argument("id")
@yes_option
@api_command
def revoke(session: ApiSession, id: str, yes: bool) -> None:
    """Refuse a token from now on; streams it opened are closed."""
    confirm(f"revoke token '{id}'", yes=yes)
    session.client.delete(f"{TOKENS}/{segment(id)}")
    show_done(session.output, {"id": id}, f"token '{id}' is revoked")
