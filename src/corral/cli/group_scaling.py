"""`corral group scale` and `maintenance`, and what the other commands show of how many instances a group is to have."""

from __future__ import annotations

from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.dry_run import DRY, ask_about_players, dry_run_option, refuse_wait, show_dry_run
from corral.cli.failure import WrongUsage, note
from corral.cli.group_hold import held_by, hold_of
from corral.cli.group_waits import GROUPS, status_of, until_met
from corral.cli.instance.waits import wait_options
from corral.cli.terminal.confirmation import yes_option
from corral.cli.terminal.output import Item, plain, show_done
from corral.cli.terminal.values import SpanType, full_time
from corral.errors import counted

_LONGEST: Final = 7 * 24 * 3600


@click.command()
@click.argument("name")
@click.argument("count", type=click.IntRange(0, 10_000))
@click.option(
    "--for",
    "seconds",
    type=SpanType(),
    metavar="SPAN",
    help="Keep at least COUNT for so long (mode DYNAMIC), such as 15m; at most 7d.",
)
@dry_run_option
@yes_option
@wait_options()
@api_command
def scale(
    session: ApiSession,
    name: str,
    count: int,
    seconds: int | None,
    dry_run: bool,
    yes: bool,
    wait: bool,
    timeout: int,
) -> None:
    """Have COUNT instances of a group; with --for at least COUNT."""
    if seconds is not None and seconds > _LONGEST:
        raise WrongUsage("--for is at most 7d", hint="raise 'min' in the document for longer")
    body: dict[str, Any] = {"count": count} if seconds is None else {"count": count, "for_seconds": seconds}
    path = f"{GROUPS}/{segment(name)}/scale"

    def tell() -> Any:
        return session.client.post(path, body, params=DRY)

    if dry_run:
        refuse_wait(wait)
        found = tell()
        show_dry_run(session, f"group '{name}'", found, change="scaled" if found["changes"] else "")
        return
    ask_about_players(f"scale group '{name}' to {counted(count, 'instance')}", tell, yes=yes)
    changed = session.client.post(path, body)
    if held := hold_of(changed):
        note(
            f"group '{name}' is held {held_by(held)}; the number counts from 'corral group release {name}' on"
        )
    if wait:
        changed = until_met(session, name, timeout)
    done = f"group '{name}' shall have {counted(count, 'instance')}"
    if seconds is not None:
        until = full_time(_floor_of(changed).get("until"))
        done = f"group '{name}' shall have at least {counted(count, 'instance')} until {until}"
    show_done(session.output, changed, done, name="name")


@click.command()
@click.argument("name")
@click.argument("state", type=click.Choice(["on", "off"]))
@click.option("--message", metavar="TEXT", help="What players are told; as it was if left out.")
@click.option(
    "--bypass", multiple=True, metavar="PLAYER", help="Who may join all the same; replaces the list."
)
@click.option("--no-bypass", is_flag=True, help="Empty the list of those who may join all the same.")
@dry_run_option
@api_command
def maintenance(
    session: ApiSession,
    name: str,
    state: str,
    message: str | None,
    bypass: tuple[str, ...],
    no_bypass: bool,
    dry_run: bool,
) -> None:
    """Close a group to players, or open it again."""
    if bypass and no_bypass:
        raise WrongUsage("--bypass and --no-bypass exclude each other", hint="leave one of them out")
    body: dict[str, Any] = {"enabled": state == "on"}
    if message is not None:
        body["message"] = message
    if bypass or no_bypass:
        body["bypass"] = list(bypass)
    path = f"{GROUPS}/{segment(name)}/maintenance"
    if dry_run:
        show_dry_run(session, f"group '{name}'", session.client.post(path, body, params=DRY))
        return
    changed = session.client.post(path, body)
    found = maintenance_of(changed)
    if found.get("schedule"):
        now = "closed" if found.get("enabled") else "open"
        until = full_time(_scaling_of(changed).get("changes_at"))
        note(f"schedule '{found['schedule']}' says {now}, whatever this is, until {until} or longer")
    done = "is closed to players" if state == "on" else "is open to players"
    show_done(session.output, changed, f"group '{name}' {done}", name="name")


def _scaling_of(group: Item) -> Item:
    found = status_of(group).get("scaling")
    return found if isinstance(found, dict) else {}


def _floor_of(group: Item) -> Item:
    found: Item = _scaling_of(group).get("floor") or {}
    return found


def wants_more(group: Item) -> str:
    """What would let a group want more instances, by the mode that is in force."""
    name, mode = group.get("name"), _scaling_of(group).get("mode")
    if mode == "DYNAMIC":
        return f"it follows its players; corral group scale {name} COUNT --for 15m"
    return "raise its 'min'" if mode == "STATIC" else f"corral group scale {name} COUNT"


def maintenance_of(group: Item) -> Item:
    """Whether a group is closed now."""
    found: Item = status_of(group).get("maintenance") or {}
    return found


def closed_text(found: Item) -> str:
    """Since what a group is closed to players; empty: it is open."""
    if not found.get("enabled"):
        return ""
    by = f" by schedule '{found['schedule']}'" if found.get("schedule") else ""
    told = f": {found['message']}" if found.get("message") else ""
    joining = len(found.get("bypass") or ())
    who = f" ({counted(joining, 'player')} may join)" if joining else ""
    return f"closed{by}{told}{who}"


def scaling_rows(group: Item) -> list[tuple[str, str]]:
    """The rows of `corral group get` about the number of instances."""
    found, floor = _scaling_of(group), _floor_of(group)
    kept = f"at least {floor.get('count')} until {full_time(floor.get('until'))}" if floor else "-"
    return [
        ("Min", _in_force(group, found, "min")),
        ("Max", _in_force(group, found, "max")),
        ("Scaling", _mode(group, found)),
        ("Players", players_text(group)),
        ("Floor", kept),
        ("Cooldown", _until(found.get("cooldown_until"))),
        ("Schedules", _schedules(group, found)),
        ("Maintenance", closed_text(maintenance_of(group)) or "-"),
    ]


def players_text(group: Item) -> str:
    """The players of a group, and on how many instances they are not known."""
    found = _scaling_of(group)
    unknown = found.get("unknown", 0)
    return f"{found.get('players', 0)}" + (f", unknown on {unknown}" if unknown else "")


def _in_force(group: Item, found: Item, field: str) -> str:
    written, now = group.get(field), found.get(field, group.get(field))
    if written == now:
        return plain(written)
    return f"{plain(now)} by schedule, else {plain(written)}"


def _mode(group: Item, found: Item) -> str:
    written = (group.get("scaling") or {}).get("mode")
    text = plain(found.get("mode") or written)
    if written != found.get("mode") and found.get("mode"):
        text += f" by schedule, else {written}"
    if found.get("need") is not None:
        text += f"; {counted(found.get('players', 0), 'player')}, {found['need']} needed{_bound_of(found)}"
    return f"{text}; {found['waits_for']}" if found.get("waits_for") else text


def _bound_of(found: Item) -> str:
    """By what the number that is needed is bounded, if not by the players alone; `max` may be too few for them."""
    floor = (found.get("floor") or {}).get("count", 0)
    if found["need"] == found.get("max"):
        return " (its 'max')"
    return " (by the order)" if floor and floor >= found["need"] else ""


def _until(at: Any) -> str:
    return f"until {full_time(at)}" if at else "-"


def _schedules(group: Item, found: Item) -> str:
    count = len(group.get("schedules") or ())
    if not count:
        return "-"
    active = f"{', '.join(found.get('schedules') or ())} active" if found.get("schedules") else "none active"
    changes = found.get("changes_at")
    return f"{active}, of {count}" + (f"; the next change is at {full_time(changes)}" if changes else "")
