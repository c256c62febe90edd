"""`corral group hold` and `release`: a group that is kept stopped, and one that runs again."""

from __future__ import annotations

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.dry_run import DRY, dry_run_option, refuse_wait, show_dry_run
from corral.cli.failure import note
from corral.cli.group_waits import GROUPS, status_of, until_met, until_stopped
from corral.cli.instance.waits import wait_options
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Item, show_done
from corral.cli.terminal.values import full_time


@click.command()
@click.argument("name")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for everybody who meets the hold.")
@click.option("--when-empty", is_flag=True, help="Stop each instance when it has no players.")
@dry_run_option
@yes_option
@wait_options()
@api_command
def hold(
    session: ApiSession,
    name: str,
    reason: str,
    when_empty: bool,
    dry_run: bool,
    yes: bool,
    wait: bool,
    timeout: int,
) -> None:
    """Stop every instance of a group and keep all stopped."""
    path, body = f"{GROUPS}/{segment(name)}/hold", {"reason": reason, "when_empty": when_empty}
    if dry_run:
        refuse_wait(wait)
        show_dry_run(session, f"group '{name}'", session.client.post(path, body, params=DRY))
        return
    when = "each when it is empty" if when_empty else "at once"
    confirm(f"stop every instance of group '{name}', {when}, and keep all stopped", yes=yes)
    before = hold_of(session.client.get(f"{GROUPS}/{segment(name)}"))
    changed = session.client.post(path, body)
    if before and (before.get("reason"), before.get("when_empty")) != (reason, when_empty):
        note(f"it was held already, {held_by(before)}: this hold replaces that one")
    if wait:
        changed = until_stopped(session, name, timeout)
    show_done(session.output, changed, f"group '{name}' is held: corral group release {name}", name="name")


@click.command()
@click.argument("name")
@dry_run_option
@wait_options()
@api_command
def release(session: ApiSession, name: str, dry_run: bool, wait: bool, timeout: int) -> None:
    """Let a held group run again."""
    path = f"{GROUPS}/{segment(name)}/release"
    if dry_run:
        refuse_wait(wait)
        show_dry_run(session, f"group '{name}'", session.client.post(path, params=DRY))
        return
    before = hold_of(session.client.get(f"{GROUPS}/{segment(name)}"))
    changed = session.client.post(path)
    if wait:
        changed = until_met(session, name, timeout)
    done = f"group '{name}' is released" if before else f"group '{name}' was not held: nothing changed"
    show_done(session.output, changed, done, name="name")


def hold_of(group: Item) -> Item:
    """Who holds a group; empty: nobody."""
    found: Item = status_of(group).get("hold") or {}
    return found


def held_by(hold: Item) -> str:
    return f"by {hold.get('by')} since {full_time(hold.get('since'))}: {hold.get('reason')}"
