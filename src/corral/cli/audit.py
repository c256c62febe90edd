"""`corral audit`: who changed what, and from where."""

from __future__ import annotations

from typing import Final

import click

from corral.cli.output import Column, show_list
from corral.cli.session import Session, api_command

COLUMNS: Final = (
    Column("TIME", "at"),
    Column("ACTOR", "actor"),
    Column("ACTION", "action"),
    Column("SUBJECT", "subject"),
    Column("FROM", "address"),
)


@click.group()
def audit() -> None:
    """Who changed what, and from where."""


@audit.command("list")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="At most so many."
)
@api_command
def list_entries(session: Session, limit: int) -> None:
    """List audit entries; -o json also shows what was before and after."""
    show_list(
        session.output, session.client.pages("/api/v1/audit", limit=limit), columns=COLUMNS, name="number"
    )
