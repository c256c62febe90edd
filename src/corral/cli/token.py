"""`corral token`: who may use the API."""

from __future__ import annotations

from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.failure import WrongUsage, note
from corral.cli.scope_options import given_scope, scope_options, shown_scope
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Column, show_done, show_list
from corral.cli.terminal.values import SpanType, age, full_time

TOKENS: Final = "/api/v1/tokens"
ROLES: Final = ("ADMIN", "OPERATOR", "VIEWER")

COLUMNS: Final = (
    Column("ID", "id", whole=True),
    Column("NAME", "name"),
    Column("ROLE", "role"),
    Column("OWNER", "owner"),
    Column("WHERE", lambda token: shown_scope(token.get("scope") or {}) or "everywhere"),
    Column("AGE", lambda token: age(token.get("created_at")), rank=2),
    Column("EXPIRES", lambda token: age(token.get("expires_at")) if token.get("expires_at") else "never"),
    Column("USED", lambda token: age(token.get("last_used_at")), rank=1),
    Column("BY", "created_by", rank=3),
)


class Life(SpanType):
    """A span with its unit: of a bare number nobody knows whether days were meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if str(value).strip().isdecimal():
            self.fail(f"'{value}' has no unit; write {value}d for days, {value}s for seconds", param, ctx)
        return super().convert(value, param, ctx)


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
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES, case_sensitive=False),
    multiple=True,
    required=True,
    help="What it may do; one role.",
)
@click.option(
    "--expires", type=Life(), metavar="SPAN", help="How long it lives, such as 30d; for ever if left out."
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
    roles: tuple[str, ...],
    expires: int | None,
    owner: str | None,
    permissions: tuple[str, ...],
    group: tuple[str, ...],
    node: tuple[str, ...],
) -> None:
    """Make a token and print its text, this once."""
    if len(roles) > 1:
        raise WrongUsage(
            "a token has one role, and --role was given several times",
            hint="give the one that covers all it shall do; --permission, --group and --node narrow it",
        )
    if session.output == "name":
        raise WrongUsage(
            "-o name prints the id alone, and the token's text is shown this once",
            hint="leave it out: the text alone goes to stdout; -o json has both",
        )
    role = roles[0]
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
        until = f"until {full_time(made['expires_at'])}" if made.get("expires_at") else "until it is revoked"
        note(f"token {made.get('id')} for '{name}' ({role}) holds {until}; it is shown this once:")
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
