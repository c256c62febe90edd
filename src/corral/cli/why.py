"""`corral why`: the decisions behind what an instance or a group is."""

from __future__ import annotations

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandRefused, printable
from corral.cli.terminal.output import Item, show_one
from corral.cli.terminal.values import short_time


@click.command()
@click.argument("subject")
@api_command
def why(session: ApiSession, subject: str) -> None:
    """Why SUBJECT, the id of an instance or the name of a group, is as it is."""
    found = _look_up(session, subject)
    if session.output != "table":
        show_one(session.output, found, rows=[], name="subject")
        return
    click.echo(printable(str(found.get("summary", ""))))
    for kept in found.get("files_kept", []):
        click.echo(printable(f"  kept {kept}"))
    items = [(item.get("at"), _explained(item)) for item in found.get("decisions", [])]
    items += [(item.get("at"), _restarted(item)) for item in found.get("restarts", [])]
    for _, text in sorted(items, key=lambda one: str(one[0]), reverse=True):
        click.echo(text)


def _look_up(session: ApiSession, subject: str) -> Item:
    kind, _, name = subject.partition("/")
    places = {"instance": "instances", "group": "groups"}
    if name and kind in places:
        found: Item = session.client.get(f"/api/v1/{places[kind]}/{segment(name)}/why")
        return found
    try:
        found = session.client.get(f"/api/v1/instances/{segment(subject)}/why")
    except CommandRefused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        try:
            found = session.client.get(f"/api/v1/groups/{segment(subject)}/why")
        except CommandRefused as second:
            if second.code != "NOT_FOUND":
                raise
            raise CommandRefused(
                f"there is neither an instance nor a group '{subject}'",
                hint="see 'corral instance list' and 'corral group list'",
                code="NOT_FOUND",
            ) from None
    return found


def _restarted(restart: Item) -> str:
    return printable(
        f"{short_time(restart.get('at'))}  restart by its node: {restart.get('reason')}\n"
        f"  see: corral crash get {restart.get('crash')}"
    )


def _explained(decision: Item) -> str:
    lines = [
        f"{short_time(decision.get('at'))}  {decision.get('kind')} {decision.get('subject')}: {decision.get('reason')}",
        f"  cause: {decision.get('cause')}  ({decision.get('id')})",
    ]
    if decision.get("request"):
        lines.append(f"  log: corral logs --request {decision['request']}")
    lines += [
        f"  not {other.get('subject')}: {other.get('reason')}" for other in decision.get("rejected", [])
    ]
    return printable("\n".join(lines))
