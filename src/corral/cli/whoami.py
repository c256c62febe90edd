"""`corral whoami`: the caller, and what it may do where."""

from __future__ import annotations

from typing import Any

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.scope_options import shown_scope
from corral.cli.terminal.output import show_one


@click.command()
@api_command
def whoami(session: ApiSession) -> None:
    """Show who you are here, and what you may do."""
    me = session.client.get("/api/v1/auth/me")
    token = me.get("token", {})
    rows = [
        ("User", str(me.get("user"))),
        ("Token", f"{token.get('name')} ({token.get('id')})"),
        ("Role", str(token.get("role"))),
    ]
    rows += [(_where(each), " ".join(each.get("permissions", ()))) for each in me.get("grants", ())]
    show_one(session.output, me, rows=rows, name="user")


def _where(grant: dict[str, Any]) -> str:
    scopes = [shown_scope(each) for each in grant.get("scopes", ())]
    return f"May, on {' and '.join(scopes)}" if scopes else "May, everywhere"
