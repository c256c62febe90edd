"""`corral node command`: what only a node itself can tell, and commands that are kept to it."""

from __future__ import annotations

import shlex
from typing import Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandRefused
from corral.cli.terminal.output import show_done

_NODES: Final = "/api/v1/nodes"


@click.command("command", context_settings={"allow_interspersed_args": False})
@click.argument("node")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED)
@api_command
def command(session: ApiSession, node: str, words: tuple[str, ...]) -> int:
    """Ask NODE what only it can tell: 'help' lists what. Other commands are run at the controller, and reach this node
    and its instances alone. Options come before the node."""
    asked = {"command": shlex.join(words)}
    found = session.client.post(f"{_NODES}/{segment(node)}/command", asked)
    error = found.get("error")
    if error and session.output == "table":
        raise CommandRefused(str(error.get("message")), hint=error.get("hint"), code=str(error.get("code")))
    show_done(session.output, {"id": node, **found}, "\n".join(found.get("output") or ()))
    return int(found.get("exit_code") or 0)
