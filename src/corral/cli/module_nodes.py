"""Modules on nodes as people read them, and waiting until they have settled there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from corral.cli.failure import Refused, printable
from corral.cli.module_shapes import module_path
from corral.cli.module_standing import named
from corral.cli.output import Column, Item, list_table, plain, state_column
from corral.cli.progress_line import ProgressLine
from corral.cli.session import Session
from corral.cli.table import coloured, paint_state, wants_colour
from corral.cli.values import age

F = TypeVar("F", bound=Callable[..., Any])

WAIT_SECONDS: Final = 10.0
_NOTE_MAX: Final = 100
_AWAY: Final = "away; it gets the installed version when it is back"
_UNDER_WAY: Final = ("INSTALLED", "WAITING", "STOPPING")
"""Of a node that has refused the archive: it is trying it again, or going back."""
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5

NODE_COLUMNS: Final = (
    Column("NODE", "node"),
    state_column("PHASE", "phase"),
    Column("VERSION", "version"),
    Column("CONNECTED", "connected"),
    Column("UPDATED", lambda found: age(found.get("updated_at"))),
    Column("NOTE", lambda found: note_of(found) or "-"),
)
MODULE_COLUMNS: Final = (
    Column("MODULE", "module"),
    state_column("PHASE", "phase"),
    Column("VERSION", "version"),
    Column("INSTALLED", "installed"),
    Column("UPDATED", lambda found: age(found.get("updated_at"))),
    Column("NOTE", lambda found: note_of(found) or "-"),
)


def wait_option(help: str) -> Callable[[F], F]:
    return click.option(
        "--wait",
        type=click.FloatRange(min=0, max=3600),
        metavar="SECONDS",
        default=WAIT_SECONDS,
        show_default=True,
        help=help,
    )


def note_of(found: Item) -> str:
    """What is to be said about a module on a node beyond its phase; the most pressing thing."""
    if "installed" in found and found["installed"] is None:
        return (
            "no longer installed" if found.get("connected") else "no longer installed; goes when it is back"
        )
    if found.get("progress"):
        return str(found["progress"])
    first = _short((str(found.get("error") or "").splitlines() or [""])[0])
    if found.get("refused"):
        return "refused the installed version" + (f": {first}" if first else "")
    if found.get("phase") is None:
        return "nothing heard yet" if found.get("connected") else _AWAY
    if found.get("phase") == "FAILED":
        return first or str(found.get("reason") or "")
    if not found.get("current"):
        return "not the installed version" if found.get("connected") else _AWAY
    return str(found.get("reason") or first)


def show_nodes(nodes: Sequence[Item]) -> None:
    """A table beneath what was said about the module itself, then what does not fit into it; nothing when
    it is on no node."""
    if nodes:
        click.echo()
        click.echo(list_table(nodes, NODE_COLUMNS))
    for each in nodes:
        text = str(each.get("error") or "").rstrip()
        if text and text not in note_of(each):
            click.echo(printable(f"\n{each.get('node')} said:\n{text}"))


def wait_for_retry(session: Session, found: Item, node: str, seconds: float) -> Item:
    """How the module stands on this node once the node has said what came of another try, or time is up. What
    it said before the try looks settled as well: only what is new counts."""
    id, before = str(found.get("id")), _one(found, node)
    now = before
    began, pause = time.monotonic(), _FIRST_PAUSE
    with ProgressLine() as line:
        while not _tried(before, now):
            line.show(f"waiting for {node}: {_standing(now)}")
            if time.monotonic() - began + pause > seconds:
                break
            time.sleep(pause)
            pause = min(pause * 1.3, _LONGEST_PAUSE)
            now = _one({"nodes": session.client.pages(module_path(id, "nodes"), {})}, node)
    return now


def wait_for_nodes(session: Session, found: Item, seconds: float) -> dict[str, Any]:
    """The installed module with its nodes, once all that are connected have settled, or time is up."""
    id, shown = str(found.get("id")), dict(found)
    began, pause = time.monotonic(), _FIRST_PAUSE
    with ProgressLine() as line:
        while busy := _busy(shown.get("nodes") or ()):
            line.show(f"waiting for {busy[0].get('node')}: {_standing(busy[0])}" + _more(len(busy) - 1))
            if time.monotonic() - began + pause > seconds:
                break
            time.sleep(pause)
            pause = min(pause * 1.3, _LONGEST_PAUSE)
            shown["nodes"] = session.client.pages(module_path(id, "nodes"), {})
    return shown


def show_outcome(found: Item) -> None:
    """One line a node, how it went there."""
    for each in found.get("nodes") or ():
        phase = plain(each.get("phase"))
        word = coloured(phase, paint_state(phase)) if wants_colour() else phase
        text = note_of(each)
        rest = f" ({text})" if text else ""
        late = "" if each.get("settled") or not each.get("connected") else ", not settled yet"
        name = printable(str(each.get("node")))
        if each.get("phase") is None:
            click.echo(f"  {name}: {printable(text)}")
        else:
            click.echo(f"  {name}: {word} {printable(str(each.get('version') or ''))}{printable(rest)}{late}")


def refuse_failed_nodes(found: Item) -> None:
    """It is installed, and some nodes do not run it: a script has to notice."""
    bad = [str(each.get("node")) for each in found.get("nodes") or () if _failed(each)]
    if bad:
        raise Refused(
            f"'{found.get('id')}' {found.get('version')} did not come up on {named(bad)}",
            hint=f"'corral module info {found.get('id')}' tells why; then 'corral module recover {found.get('id')}'",
            code="MODULE_FAILED",
        )


def told_again(found: Item) -> str:
    """Which nodes hear that they shall try again, now or when they are back; empty: none."""
    bad = [each for each in found.get("nodes") or () if each.get("refused") or each.get("phase") == "FAILED"]
    now = [str(each.get("node")) for each in bad if each.get("connected")]
    later = [str(each.get("node")) for each in bad if not each.get("connected")]
    told = [f"told to try again: {named(now)}"] if now else []
    return "; ".join(told + ([f"once they are back: {named(later)}"] if later else []))


def _short(text: str) -> str:
    return text if len(text) <= _NOTE_MAX else text[: _NOTE_MAX - 1] + "…"


def _one(found: Item, node: str) -> Item:
    return next((each for each in found.get("nodes") or () if each.get("node") == node), {})


def _tried(before: Item, now: Item) -> bool:
    if not now.get("connected") or not _failed(before):
        return True  # nothing will come of it, or nothing was wrong
    told = now.get("updated_at") != before.get("updated_at") or not _failed(now)
    under_way = bool(now.get("refused")) and now.get("phase") in _UNDER_WAY
    return told and bool(now.get("settled")) and not under_way


def _busy(nodes: Sequence[Item]) -> list[Item]:
    return [each for each in nodes if each.get("connected") and not each.get("settled")]


def _failed(each: Item) -> bool:
    if each.get("refused"):
        return True
    if not each.get("connected"):
        return False
    return each.get("phase") == "FAILED" or bool(each.get("settled") and not each.get("current"))


def _standing(each: Item) -> str:
    return str(each.get("progress") or each.get("phase") or "nothing heard yet")


def _more(count: int) -> str:
    return f", and {count} more" if count else ""
