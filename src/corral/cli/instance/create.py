"""`corral instance create`: what Universe's console calls a start, of several at once."""

from __future__ import annotations

from typing import Any, Final

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.terminal.output import show_list, show_streamed

_INSTANCES: Final = "/api/v1/instances"
_MOST: Final = 50


@click.command(hidden=True)
@click.argument("group")
@click.argument("count", type=click.IntRange(1, _MOST), default=1)
@api_command
def create(session: ApiSession, group: str, count: int) -> None:
    """Start COUNT more instances of GROUP, one if it is left out. The first that is refused ends it."""
    made: list[Any] = []
    for _ in range(count):
        made.append(session.client.post(_INSTANCES, {"group": group}))
        if session.output == "table":
            show_streamed(session.output, made[-1], _sentence)
    if session.output != "table":
        show_list(session.output, made, columns=())


def _sentence(instance: Any) -> str:
    return f"instance '{instance['id']}' is {instance['state']} on node '{instance['node']}'"
