"""`--dry-run`: what a change would do, printed; nothing is written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click

from corral.cli.api.session import ApiSession
from corral.cli.apply_output import show_fields
from corral.cli.failure import WrongUsage, note, printable
from corral.cli.terminal.confirmation import act_confirmed, confirm
from corral.cli.terminal.output import Item, show_done
from corral.errors import counted, short_list

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

DRY: Final = {"dry_run": "true"}
_EFFECTS: Final = {
    "stopped": "would stop {id} on node '{node}' at once",
    "stopped_when_empty": "would stop {id} on node '{node}' when it is empty",
    "moved": "would move {id} away from node '{node}'",
    "replaced": "would replace {id} on node '{node}'",
    "restarted": "would restart {id} on node '{node}'",
    "waited_for": "would wait for {id}, whose node '{node}' is out of reach",
    "killed": "would kill {id} on node '{node}'",
    "given_up": "would give up {id} on node '{node}'",
    "outdated": "{id} on node '{node}' would go on as it was started",
    "placement": "{id} would stay on node '{node}', which the group would not choose",
}

_STAYING: Final = ("outdated", "placement", "waited_for")
_NAMED: Final = 10


def dry_run_option(command: F) -> F:
    return click.option("--dry-run", is_flag=True, help="Only show what it would do.")(command)


def refuse_wait(wait: bool) -> None:
    if wait:
        raise WrongUsage("--wait and --dry-run: there is nothing to wait for", hint="leave one of them out")


def _cut(each: Item) -> str:
    """When players of an instance that leaves are no longer waited for."""
    seconds = each.get("stop_after_seconds")
    if seconds is None or each["players"] == 0:
        return ""
    return f", cut off {f'after {seconds} s' if seconds else 'at once'}"


def _losses(found: Item) -> Iterator[str]:
    """A line for each instance that would be touched, and for each world that would be left."""
    for each in found["instances"]:
        known = "unknown players" if each["players"] is None else counted(each["players"], "player")
        text = _EFFECTS.get(each["effect"], "{id} on node '{node}': {effect}").format_map(each)
        yield f"{text} ({known}{_cut(each)})"
    for each in found["worlds"]:
        yield f"would leave the world of {each['id']} on node '{each['node']}': {each['directory']}"


def ask_about_players(question: str, tell: Callable[[], Item], *, yes: bool) -> None:
    """On a terminal, ask before instances end whose players nothing reports: nobody can wait for them. `tell` makes a dry
    run. Scripts are not asked."""
    if yes or not sys.stdin.isatty():
        return
    ending = (each for each in tell()["instances"] if each["effect"] not in _STAYING)
    unknown = [repr(str(each["id"])) for each in ending if each["players"] is None]
    if unknown:
        note(
            f"players unknown: nothing reports how many are on {short_list(unknown, _NAMED)}, so they may be cut off"
        )
        confirm(question, yes=False)


def act_once_told(
    question: str,
    tell: Callable[[], Item],
    act: Callable[[dict[str, str]], T],
    name: str,
    *,
    yes: bool,
) -> T:
    """Do what always needs a yes: ask one question, after what it would do. `tell` makes a dry run."""
    if not yes and sys.stdin.isatty():
        found = tell()
        for text in (*_losses(found), *found["warnings"]):
            note(f"  {text}")
    confirm(question, yes=yes)
    return act_confirmed(question, act, name, yes=True, ask=False) if yes else act({"confirm": name})


def show_dry_run(session: ApiSession, subject: str, found: Item, *, change: str | None = None) -> None:
    """What an order would do. `subject`: whom it is about, such as "group 'lobby'". `change`: what would become of it,
    empty for nothing; None: as the answer says."""
    if session.output != "table":
        show_done(session.output if session.output != "name" else "json", found, "")
        return
    for each in found["changes"]:
        if each["fields"]:
            click.echo(printable(f"  group '{each['group']}' would be {each['change']}"))
            show_fields(each["fields"])
    for text in _losses(found):
        click.echo(printable(f"  {text}"))
    for each in found["decisions"]:
        if each["kind"] not in ("stop", "drain") and each["rule"] != "hold.stop":
            where = f" on node '{each['node']}'" if each["node"] else ""
            what = f"{each['kind']} {each['instance'] or each['group']}{where}"
            click.echo(printable(f"  would follow: {what}: {each['reason']}"))
    for each in found["warnings"]:
        click.echo(printable(f"  {each}"))
    if change is None:
        change = str(found["changes"][0]["change"]) if found["changes"] else ""
    would = f"would be {change}" if change else "would stay as it is"
    click.echo(printable(f"{subject} {would} (dry run: nothing was written)"))
