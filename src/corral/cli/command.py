"""`corral command`: commands that modules brought, and commands that the controller runs."""

from __future__ import annotations

import shlex
from typing import Final

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.terminal.output import Column, show_done, show_list

COMMANDS: Final = "/api/v1/commands"

COLUMNS: Final = (
    Column("COMMAND", "name"),
    Column("MODULE", "module"),
    Column("USAGE", "usage"),
    Column("HELP", "help"),
)


@click.group(cls=Noun)
def command() -> None:
    """Commands that modules brought."""


@command.command("list")
@api_command
def list_commands(session: ApiSession) -> None:
    """List the commands."""
    show_list(session.output, session.client.get(COMMANDS)["items"], columns=COLUMNS, name="name")


@command.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED)
@api_command
def run(session: ApiSession, words: tuple[str, ...]) -> int:
    """Run a command at the controller and print its output. One of a module, or of this tree. Options come before its
    first word: what follows is the command's own."""
    asked = {"command": shlex.join(words)}
    found = session.client.post_patiently(f"{COMMANDS}/execute", asked, seconds=15.0, timeout=60.0)
    show_done(session.output, {"id": words[0], **found}, "\n".join(found.get("output") or ()))
    return int(found.get("exit_code") or 0)
