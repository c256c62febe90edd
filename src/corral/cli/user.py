"""`corral user`: users, the roles that they have, and locks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.scope_options import binding_options, given_bindings, shown_binding
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Column, show_done, show_list, show_one
from corral.cli.terminal.values import age

USERS: Final = "/api/v1/users"


def _bindings(user: Mapping[str, Any]) -> str:
    return ", ".join(shown_binding(each) for each in user.get("bindings", ())) or "-"


COLUMNS: Final = (
    Column("NAME", "name"),
    Column("ROLES", _bindings),
    Column("LOCKED", lambda user: user["locked"]["reason"] if user.get("locked") else "-"),
    Column("TOKENS", "tokens"),
    Column("AGE", lambda user: age(user.get("created_at"))),
    Column("BY", "created_by", rank=1),
)


@click.group(cls=Noun)
def user() -> None:
    """Users: who may do what, and where."""


@user.command("list")
@api_command
def list_users(session: ApiSession) -> None:
    """List the users."""
    show_list(session.output, session.client.pages(USERS), columns=COLUMNS, name="name")


@user.command("get")
@click.argument("name")
@api_command
def get_user(session: ApiSession, name: str) -> None:
    """Show a user."""
    found = session.client.get(f"{USERS}/{segment(name)}")
    locked = found.get("locked")
    rows = [
        ("Name", str(found.get("name"))),
        ("Display name", str(found.get("display_name") or "-")),
        ("Roles", _bindings(found)),
        ("Locked", f"{locked['reason']}, by {locked['by']}" if locked else "no"),
        ("Tokens", str(found.get("tokens"))),
        ("Made by", str(found.get("created_by"))),
        ("Age", age(found.get("created_at"))),
    ]
    show_one(session.output, found, rows=rows, name="name")


@user.command()
@click.argument("name")
@click.option("--display-name", default="", help="The name for people.")
@binding_options
@api_command
def create(
    session: ApiSession,
    name: str,
    display_name: str,
    role: tuple[str, ...],
    group: tuple[str, ...],
    node: tuple[str, ...],
) -> None:
    """Make a user. It gets in by tokens: corral token create NAME --owner USER."""
    body = {"name": name, "display_name": display_name, "bindings": given_bindings(role, group, node)}
    made = session.client.post(USERS, body)
    show_done(session.output, made, f"user '{name}' is there: {_bindings(made)}", name="name")


@user.command()
@click.argument("name")
@click.option("--display-name", help="The name for people.")
@binding_options
@api_command
def update(
    session: ApiSession,
    name: str,
    display_name: str | None,
    role: tuple[str, ...],
    group: tuple[str, ...],
    node: tuple[str, ...],
) -> None:
    """Change a user; --role replaces all roles that it has."""
    body: dict[str, object] = {}
    if display_name is not None:
        body["display_name"] = display_name
    if role or group or node:
        body["bindings"] = given_bindings(role, group, node)
    made = session.client.patch(f"{USERS}/{segment(name)}", body)
    show_done(session.output, made, f"user '{name}': {_bindings(made)}", name="name")


@user.command()
@click.argument("name")
@click.option("--reason", required=True, help="Why; it is shown to administrators.")
@api_command
def lock(session: ApiSession, name: str, reason: str) -> None:
    """Refuse everything of a user from now on; open streams end at once."""
    made = session.client.post(f"{USERS}/{segment(name)}/lock", {"reason": reason})
    show_done(
        session.output, made, f"user '{name}' is locked; 'corral user unlock {name}' ends it", name="name"
    )


@user.command()
@click.argument("name")
@api_command
def unlock(session: ApiSession, name: str) -> None:
    """End the lock of a user."""
    made = session.client.post(f"{USERS}/{segment(name)}/unlock")
    show_done(session.output, made, f"user '{name}' is not locked", name="name")


@user.command()
@click.argument("name")
@yes_option
@api_command
def delete(session: ApiSession, name: str, yes: bool) -> None:
    """Remove a user with all its tokens."""
    found = session.client.get(f"{USERS}/{segment(name)}")
    confirm(f"remove user '{name}' and its {found.get('tokens', 0)} tokens", yes=yes)
    session.client.delete(f"{USERS}/{segment(name)}")
    show_done(session.output, {"name": name}, f"user '{name}' is removed", name="name")
