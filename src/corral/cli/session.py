"""`corral session`: logins that go on, one's own and those of others."""

from __future__ import annotations

from typing import Any, Final

import click

from corral.cli.api.client import Client, segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.failure import CommandRefused, WrongUsage
from corral.cli.terminal.output import Column, Item, show_done, show_list
from corral.cli.terminal.values import age
from corral.cli.whoami import proof_text

ALL: Final = "/api/v1/sessions"
OWN: Final = "/api/v1/auth/sessions"

COLUMNS: Final = (
    Column("ID", "id", whole=True),
    Column("USER", "user"),
    Column("KIND", lambda session: str(session.get("kind")).replace("_", " ").lower()),
    Column("BY", proof_text, rank=2),
    Column("FROM", "address"),
    Column("AGE", lambda session: age(session.get("created_at"))),
    Column("USED", lambda session: age(session.get("last_used_at"))),
    Column("ENDS", lambda session: age(session.get("expires_at")), rank=1),
    Column("AGENT", "agent", rank=3, stretched=True),
)
OWN_COLUMNS: Final = (
    Column("CURRENT", lambda session: "*" if session.get("current") else ""),
    *(column for column in COLUMNS if column.title != "USER"),
)


@click.group(cls=Noun)
def session() -> None:
    """Sessions: who is logged in, since when and from where."""


@session.command("list")
@click.option("--user", metavar="NAME", help="Those of this user.")
@click.option("--all", "everybody", is_flag=True, help="Those of all users.")
@api_command
def list_sessions(session: ApiSession, user: str | None, everybody: bool) -> None:
    """List your own sessions, or those of others.

    A star marks the one in use.
    """
    if user is not None and everybody:
        raise WrongUsage("--user and --all exclude each other")
    if user is None and not everybody:
        show_list(session.output, session.client.get(OWN)["items"], columns=OWN_COLUMNS)
        return
    found = session.client.pages(ALL, {"user": user} if user is not None else None)
    show_list(session.output, found, columns=COLUMNS)


@session.command()
@click.argument("id", nargs=-1)
@click.option("--others", is_flag=True, help="All your own but the one in use.")
@api_command
def end(session: ApiSession, id: tuple[str, ...], others: bool) -> None:
    """End sessions; what they have open ends at once."""
    if bool(id) == others:
        raise WrongUsage("name the sessions, or use --others", hint="'corral session list' shows them")
    own: dict[str, Item] = {str(each["id"]): each for each in session.client.get(OWN)["items"]}
    chosen = id or [each for each, found in own.items() if not found.get("current")]
    ended = []
    for each in chosen:
        _end(session.client, each, own=each in own)
        current = bool(own.get(each, {}).get("current"))
        ended.append({"id": each, "own": each in own, "current": current})
        if session.output == "table":
            told = "; it was the one in use: log in again with 'corral login URL'" if current else ""
            show_done(session.output, ended[-1], f"session '{each}' is ended{told}")
    if session.output != "table":
        show_list(session.output, ended, columns=())
    elif not ended:
        click.echo("there is no other session")


def _end(client: Client, id: str, *, own: bool) -> Any:
    try:
        return client.delete(f"{OWN if own else ALL}/{segment(id)}")
    except CommandRefused as refusal:
        if not own and refusal.code == "FORBIDDEN":
            refusal.hint = f"'{id}' is not one of yours ('corral session list'); {refusal.hint}"
        raise
