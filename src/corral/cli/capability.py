"""`corral capability`: what modules offer one another, and who waits for what."""

from __future__ import annotations

from typing import Final

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.module.node_states import named
from corral.cli.terminal.output import Column, show_list

CAPABILITIES: Final = "/api/v1/capabilities"

COLUMNS: Final = (
    Column("ID", "id"),
    Column("VERSION", "version"),
    Column("PROVIDER", "provider"),
    Column("CONSUMERS", "consumers"),
    Column("DEPRECATED", "deprecated"),
    Column("CALLS", lambda found: str(found.get("calls", 0))),
    Column("FAILED", lambda found: str(found.get("failures", 0))),
)
UNRESOLVED_COLUMNS: Final = (
    Column("MODULE", "module"),
    Column("NEEDS", "id"),
    Column("RANGE", "version_range"),
    Column("OPTIONAL", "optional"),
    Column("NODES", lambda found: named(found.get("nodes") or ()) or "-"),
    Column("REASON", "reason"),
)


@click.group(cls=Noun)
def capability() -> None:
    """Interfaces that modules offer one another."""


@capability.command("list")
@click.option("--unresolved", is_flag=True, help="What modules need and do not have, and why.")
@api_command
def list_capabilities(session: ApiSession, unresolved: bool) -> None:
    """List the capabilities that are provided, or missing."""
    found = session.client.get(CAPABILITIES)
    if unresolved:
        show_list(session.output, found.get("unresolved") or [], columns=UNRESOLVED_COLUMNS)
    else:
        show_list(session.output, found.get("items") or [], columns=COLUMNS)
