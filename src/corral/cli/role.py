"""`corral role`: what the fixed roles grant, and roles of one's own."""

from __future__ import annotations

from typing import Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Column, show_done, show_list, show_one
from corral.errors import counted

ROLES: Final = "/api/v1/roles"

COLUMNS: Final = (
    Column("NAME", "name"),
    Column("KIND", lambda role: "fixed" if role.get("fixed") else "own"),
    Column("PERMISSIONS", lambda role: str(len(role.get("permissions", ())))),
    Column("USERS", "users"),
    Column("DESCRIPTION", "description", rank=1),
)
_permissions = click.option(
    "--permission", "permissions", multiple=True, metavar="P", help="What it grants; several times."
)


@click.group(cls=Noun)
def role() -> None:
    """Roles: sets of permissions."""


@role.command("list")
@api_command
def list_roles(session: ApiSession) -> None:
    """List the roles."""
    show_list(session.output, session.client.get(ROLES)["items"], columns=COLUMNS, name="name")


@role.command("get")
@click.argument("name")
@api_command
def get_role(session: ApiSession, name: str) -> None:
    """Show a role and what it grants."""
    found = session.client.get(f"{ROLES}/{segment(name)}")
    rows = [
        ("Name", str(found.get("name"))),
        ("Kind", "fixed" if found.get("fixed") else "own"),
        ("Users", str(found.get("users"))),
        ("Description", str(found.get("description") or "-")),
        ("Permissions", " ".join(found.get("permissions", ()))),
    ]
    show_one(session.output, found, rows=rows, name="name")


@role.command()
@click.argument("name")
@_permissions
@click.option("--description", default="", help="What it is for.")
@api_command
def create(session: ApiSession, name: str, permissions: tuple[str, ...], description: str) -> None:
    """Make a role."""
    body = {"name": name, "permissions": list(permissions), "description": description}
    made = session.client.post(ROLES, body)
    show_done(
        session.output,
        made,
        f"role '{name}' grants {counted(len(made.get('permissions', ())), 'permission')}",
        name="name",
    )


@role.command()
@click.argument("name")
@_permissions
@click.option("--description", help="What it is for.")
@api_command
def update(session: ApiSession, name: str, permissions: tuple[str, ...], description: str | None) -> None:
    """Change a role; --permission replaces all that it grants."""
    body: dict[str, object] = {}
    if permissions:
        body["permissions"] = list(permissions)
    if description is not None:
        body["description"] = description
    made = session.client.patch(f"{ROLES}/{segment(name)}", body)
    show_done(
        session.output,
        made,
        f"role '{name}' grants {counted(len(made.get('permissions', ())), 'permission')}",
        name="name",
    )


@role.command()
@click.argument("name")
@yes_option
@api_command
def delete(session: ApiSession, name: str, yes: bool) -> None:
    """Remove a role that nobody has."""
    confirm(f"remove role '{name}'", yes=yes)
    session.client.delete(f"{ROLES}/{segment(name)}")
    show_done(session.output, {"name": name}, f"role '{name}' is removed", name="name")
