"""`corral user`: users, the roles that they have, and locks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.scope_options import (
    binding_options,
    given_bindings,
    shown_binding,
    shown_bindings,
    shown_roles,
)
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Column, show_done, show_list, show_one
from corral.cli.terminal.values import age
from corral.cli.user_create import create
from corral.cli.user_credentials import USERS, password, reset_delay
from corral.cli.user_totp import totp
from corral.errors import counted

User = Mapping[str, Any]


def _login(user: User) -> str:
    """How somebody proves who it is."""
    if user.get("provider"):
        return "OpenID Connect"
    if not user.get("has_password"):
        return "tokens only"
    second = " and second factor" if user.get("has_totp") else ""
    return f"password{second}{', to be changed' if user.get('must_change_password') else ''}"


def _refused(user: User) -> str:
    """Why a user cannot log in at present."""
    if user.get("locked"):
        return str(user["locked"]["reason"])
    delay = user.get("login_delayed_seconds")
    return f"logins wait {delay} s" if delay else "-"


COLUMNS: Final = (
    Column("NAME", "name"),
    Column("ROLES", shown_roles),
    Column("LOGIN", _login),
    Column("LOCKED", _refused),
    Column("SESSIONS", "sessions"),
    Column("TOKENS", "tokens"),
    Column("AGE", lambda user: age(user.get("created_at"))),
    Column("BY", "created_by", rank=1),
    Column("DISPLAY NAME", "display_name", wide=True),
    Column("PROVIDER", "provider", wide=True),
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
    locked, delay = found.get("locked"), found.get("login_delayed_seconds")
    of_provider = ", ".join(shown_binding(each) for each in found.get("provider_bindings", ()))
    rows = [
        ("Name", str(found.get("name"))),
        ("Display name", str(found.get("display_name") or "-")),
        ("Roles", shown_bindings(found)),
        *([("By provider", of_provider)] if of_provider else ()),
        ("Locked", f"{locked['reason']}, by {locked['by']}" if locked else "no"),
        ("Provider", str(found.get("provider") or "-")),
        ("Password", _password(found)),
        ("Second factor", "yes" if found.get("has_totp") else "no"),
        ("Delay", f"{delay} s, after failed logins; 'corral user reset-delay' ends it" if delay else "no"),
        ("Sessions", str(found.get("sessions"))),
        ("Tokens", str(found.get("tokens"))),
        ("Made by", str(found.get("created_by"))),
        ("Age", age(found.get("created_at"))),
    ]
    show_one(session.output, found, rows=rows, name="name")


def _password(user: User) -> str:
    if not user.get("has_password"):
        return "no"
    return "yes, to be changed at the next login" if user.get("must_change_password") else "yes"


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
    show_done(session.output, made, f"user '{name}': {shown_bindings(made)}", name="name")


@user.command()
@click.argument("name")
@click.option("--reason", required=True, help="Why; it is shown to administrators.")
@api_command
def lock(session: ApiSession, name: str, reason: str) -> None:
    """Refuse everything of a user; sessions and streams end at once."""
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
    """Remove a user with all its tokens and sessions."""
    found = session.client.get(f"{USERS}/{segment(name)}")
    confirm(f"remove user '{name}' and its {counted(found.get('tokens', 0), 'token')}", yes=yes)
    session.client.delete(f"{USERS}/{segment(name)}")
    show_done(session.output, {"name": name}, f"user '{name}' is removed", name="name")


for command in (create, password, totp, reset_delay):
    user.add_command(command)
