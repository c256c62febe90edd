"""`corral group hold` and `release`: a group that is kept stopped, and one that runs again."""

from __future__ import annotations

from typing import Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import WrongUsage, note, printable
from corral.cli.group_waits import GROUPS, status_of, until_met, until_stopped
from corral.cli.instance.waits import wait_options
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Item, show_done
from corral.cli.terminal.values import full_time
from corral.errors import counted

_DRY: Final = {"dry_run": "true"}
_WHEN: Final = {"stopped": "at once", "stopped_when_empty": "when it is empty"}


@click.command()
@click.argument("name")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for everybody who meets the hold.")
@click.option("--when-empty", is_flag=True, help="Stop each instance when it has no players.")
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
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
        _refuse_wait(wait)
        _show_dry_run(session, name, session.client.post(path, body, params=_DRY))
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
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@wait_options()
@api_command
def release(session: ApiSession, name: str, dry_run: bool, wait: bool, timeout: int) -> None:
    """Let a held group run again."""
    path = f"{GROUPS}/{segment(name)}/release"
    if dry_run:
        _refuse_wait(wait)
        _show_dry_run(session, name, session.client.post(path, params=_DRY))
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


def _refuse_wait(wait: bool) -> None:
    if wait:
        raise WrongUsage("--wait and --dry-run: there is nothing to wait for", hint="leave one of them out")


def _show_dry_run(session: ApiSession, name: str, found: Item) -> None:
    """What a hold or a release would do."""
    if session.output != "table":
        show_done(session.output if session.output != "name" else "json", found, "")
        return
    for each in found["instances"]:
        known = "unknown players" if each["players"] is None else counted(each["players"], "player")
        when = _WHEN.get(each["effect"], each["effect"])
        click.echo(printable(f"  would stop {each['id']} on node '{each['node']}' {when} ({known})"))
    for each in found["decisions"]:
        if each["rule"] != "hold.stop":
            where = f" on node '{each['node']}'" if each["node"] else ""
            what = f"{each['kind']} {each['instance'] or each['group']}{where}"
            click.echo(printable(f"  would follow: {what}: {each['reason']}"))
    for each in found["warnings"]:
        click.echo(printable(f"  {each}"))
    change = next((each["change"] for each in found["changes"]), "")
    would = f"would be {change}" if change else "would stay as it is"
    click.echo(printable(f"group '{name}' {would} (dry run: nothing was written)"))
