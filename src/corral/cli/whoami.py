"""`corral whoami`: the caller, and what it may do where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.scope_options import shown_scope
from corral.cli.terminal.output import show_one
from corral.cli.terminal.values import full_time


@click.command()
@api_command
def whoami(session: ApiSession) -> None:
    """Show who you are here, by which login or token, and what you may do."""
    me = session.client.get("/api/v1/auth/me")
    rows = [("User", str(me.get("user")))]
    if display_name := me.get("display_name"):
        rows.append(("Display name", str(display_name)))
    rows += _proof(me)
    rows.append(("Second factor", "yes" if me.get("has_totp") else "no"))
    rows += [(_where(each), " ".join(each.get("permissions", ()))) for each in me.get("grants", ())]
    show_one(session.output, me, rows=rows, name="user")


def _proof(me: dict[str, Any]) -> list[tuple[str, str]]:
    """The token or the session that the caller has shown."""
    if token := me.get("token"):
        return [
            ("Token", f"{token.get('name')} ({token.get('id')})"),
            ("Role", str(token.get("role"))),
            ("Ends", full_time(token["expires_at"]) if token.get("expires_at") else "never"),
        ]
    login = me.get("session") or {}
    return [
        ("Session", f"{login.get('id')}, by {proof_text(login)}, from {login.get('address') or '-'}"),
        ("Ends", f"{full_time(login.get('expires_at'))}, sooner if unused"),
    ]


def proof_text(login: Mapping[str, Any]) -> str:
    """How the user of a session proved who it is: `password and recovery code`."""
    by = str(login.get("authenticated_by") or "-")
    return {
        "PASSWORD": "password",
        "TOTP": "password and second factor",
        "RECOVERY_CODE": "password and recovery code",
        "OIDC": "OpenID Connect",
        "FIRST_ADMIN": "first administrator's code",
    }.get(by, by)


def _where(grant: dict[str, Any]) -> str:
    scopes = [shown_scope(each) for each in grant.get("scopes", ())]
    return f"May, on {' and '.join(scopes)}" if scopes else "May, everywhere"
