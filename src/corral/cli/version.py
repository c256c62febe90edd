"""`corral version`."""

from __future__ import annotations

import click

from corral.cli.terminal.output import output_option, show_one


@click.command()
@output_option
def version(output: str) -> None:
    """Print the versions of this program and of its link protocol."""
    from corral.version import PROTOCOL_VERSION, VERSION

    found = {"version": VERSION, "protocol": PROTOCOL_VERSION}
    show_one(output, found, name="version", rows=[("Version", VERSION), ("Protocol", str(PROTOCOL_VERSION))])
