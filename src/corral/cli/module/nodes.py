"""Modules on nodes as people read them, and waiting until they have settled there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar

import click

from corral.cli.api.session import ApiSession
from corral.cli.failure import CommandRefused, printable
from corral.cli.module.node_states import named, waits
from corral.cli.module.views import module_path
from corral.cli.terminal.output import Column, Item, list_table, plain, state_column
from corral.cli.terminal.progress_line import ProgressLine
from corral.cli.terminal.table import colour_enabled, coloured, paint_state
from corral.cli.terminal.values import age, shortened, size_text

F = TypeVar("F", bound=Callable[..., Any])

WAIT_SECONDS: Final = 10.0
_NOTE_MAX: Final = 100
_AWAY: Final = "away; it gets the installed version when it is back"
_PENDING: Final = {"recover": "tries again", "reload": "reloads"}
_UNDER_WAY: Final = {"recover": "another try", "reload": "reload"}
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
_CAPABILITY_SECONDS: Final = 3.0

NODE_COLUMNS: Final = (
    Column("NODE", "node"),
    state_column("PHASE", "phase"),
    Column("VERSION", "version"),
    Column("CONNECTED", "connected"),
    Column("MEMORY", lambda found: _memory(found), wide=True),
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


def _memory(found: Item) -> str:
    live = found.get("live")
    return size_text(live.get("memory_bytes")) if isinstance(live, dict) else "-"


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
    """The most important fact about a module on a node beside its phase."""
    if "installed" in found and found["installed"] is None:
        return (
            "no longer installed" if found.get("connected") else "no longer installed; goes when it is back"
        )
    if found.get("progress"):
        return str(found["progress"])
    to_come = _under_way(found) if found.get("connected") else _when_back(found)
    return "; ".join(part for part in (_here(found), to_come) if part)


def _here(found: Item) -> str:
    """The state of the module there."""
    first = shortened((str(found.get("error") or "").splitlines() or [""])[0], _NOTE_MAX)
    if found.get("refused"):
        return "refused the installed version" + (f": {first}" if first else "")
    if found.get("phase") == "FAILED":
        return first or str(found.get("reason") or "")
    if found.get("connected") and found.get("phase") is None:
        return "no report yet"
    if found.get("connected") and not found.get("current"):
        return "not the installed version"
    if found.get("declined"):
        return first or "without the settings or the signature it was given last"
    return str(found.get("reason") or first)


def _under_way(found: Item) -> str:
    """Requests that a connected node has not done yet; empty: none."""
    pending = [_UNDER_WAY.get(str(each), str(each)) for each in found.get("pending") or ()]
    return f"{' and '.join(pending)} under way" if pending else ""


def _when_back(found: Item) -> str:
    """Requests that a node does once it is back; empty: none."""
    pending = [_PENDING.get(str(each), str(each)) for each in found.get("pending") or ()]
    if pending:
        return f"away; {' and '.join(pending)} when it is back"
    if not found.get("refused") and (found.get("phase") is None or not found.get("current")):
        return _AWAY
    return "" if found.get("settled") else "away; follows when it is back"


def show_nodes(nodes: Sequence[Item]) -> None:
    """A table below the module itself, then what does not fit into it; nothing when
    it is on no node."""
    if nodes:
        click.echo()
        click.echo(list_table(nodes, NODE_COLUMNS))
    for each in nodes:
        text = str(each.get("error") or "").rstrip()
        if text and text not in note_of(each):
            click.echo(printable(f"\n{each.get('node')} reported:\n{text}"))


def wait_for_nodes(
    session: ApiSession, found: Item, seconds: float, *, only: Collection[str] | None = None
) -> dict[str, Any]:
    """The installed module with its nodes, once all that are connected have settled, or time is up. With `only`
    these nodes are waited for, and no others. One that waits for a capability is given a moment: what its own part at
    the controller provides is on the way to it."""
    id, shown = str(found.get("id")), dict(found)
    began, pause = time.monotonic(), _FIRST_PAUSE
    with ProgressLine() as line:
        while busy := _busy(
            among(shown.get("nodes") or (), only),
            patient=found.get("intent") == "active" and time.monotonic() - began < _CAPABILITY_SECONDS,
        ):
            line.show(f"waiting for {busy[0].get('node')}: {_progress_text(busy[0])}" + _more(len(busy) - 1))
            if time.monotonic() - began + pause > seconds:
                break
            time.sleep(pause)
            pause = min(pause * 1.3, _LONGEST_PAUSE)
            shown["nodes"] = session.client.pages(module_path(id, "nodes"), {})
    return shown


def among(nodes: Sequence[Item], only: Collection[str] | None) -> list[Item]:
    return [each for each in nodes if only is None or each.get("node") in only]


def show_outcome(found: Item, *, only: Collection[str] | None = None) -> None:
    """One line a node, how it went there."""
    for each in among(found.get("nodes") or (), only):
        phase = plain(each.get("phase"))
        word = coloured(phase, paint_state(phase)) if colour_enabled() else phase
        text = note_of(each)
        rest = f" ({text})" if text else ""
        late = "" if each.get("settled") or not each.get("connected") else ", not settled yet"
        name = printable(str(each.get("node")))
        if each.get("phase") is None:
            click.echo(f"  {name}: {printable(text)}")
        else:
            click.echo(f"  {name}: {word} {printable(str(each.get('version') or ''))}{printable(rest)}{late}")


def refuse_failed_nodes(found: Item, *, only: Collection[str] | None = None) -> None:
    """The module is installed, and some nodes do not run it, or not as they shall: a script has to notice."""
    nodes = among(found.get("nodes") or (), only)
    bad = [str(each.get("node")) for each in nodes if _failed(each)]
    without = [str(each.get("node")) for each in nodes if each.get("declined") and each.get("connected")]
    if bad:
        raise CommandRefused(
            f"'{found.get('id')}' {found.get('version')} did not come up on {named(bad)}",
            hint=f"'corral module info {found.get('id')}' shows why; then 'corral module recover {found.get('id')}'",
            code="MODULE_FAILED",
        )
    waiting = [
        str(each.get("node"))
        for each in nodes
        if found.get("intent") == "active" and each.get("connected") and waits(each)
    ]
    if waiting:
        raise CommandRefused(
            f"'{found.get('id')}' {found.get('version')} does not run yet on {named(waiting)}: it waits for a capability",
            hint="it starts there by itself; 'corral capability list --unresolved' has what is missing",
            code="MODULE_NOT_ACTIVE",
        )
    if without:
        raise CommandRefused(
            f"'{found.get('id')}' {found.get('version')} did not take what it was given on {named(without)}",
            hint=f"'corral module info {found.get('id')}' shows why; what it had before stays in force there",
            code="MODULE_FAILED",
        )


def to_recover(found: Item) -> list[str]:
    """The nodes that shall try again, or have, and are no better off."""
    nodes = found.get("nodes") or ()
    return [
        str(each.get("node"))
        for each in nodes
        if "recover" in (each.get("pending") or ()) or _needs_recovery(each)
    ]


def _needs_recovery(each: Item) -> bool:
    """As a controller sees it when it picks the nodes that shall try again."""
    return bool(each.get("refused") or each.get("declined")) or each.get("phase") == "FAILED"


def recovery_note(found: Item, node: str | None = None) -> str:
    """The nodes that receive the request to recover, now or when they are back; empty: none. With `node` only
    that one, also when there is nothing to recover there."""
    asked = among(found.get("nodes") or (), to_recover(found))
    if node is not None:
        asked = [each for each in among(asked, [node]) if _needs_recovery(each) or not each.get("connected")]
        if not asked:
            return f"nothing left to recover on {node}"  # perhaps it was quick
    now = [str(each.get("node")) for each in asked if each.get("connected")]
    later = [str(each.get("node")) for each in asked if not each.get("connected")]
    parts = [f"recovery requested: {named(now)}"] if now else []
    return "; ".join(parts + ([f"when back: {named(later)}"] if later else []))


def _busy(nodes: Sequence[Item], *, patient: bool) -> list[Item]:
    """`patient`: also those that wait for a capability."""
    here = (each for each in nodes if each.get("connected"))
    return [each for each in here if not each.get("settled") or (patient and waits(each))]


def _failed(each: Item) -> bool:
    if not each.get("connected"):
        return bool(each.get("refused")) and not each.get("pending")  # else it tries again
    if each.get("refused"):
        return True
    return each.get("phase") == "FAILED" or bool(each.get("settled") and not each.get("current"))


def _progress_text(each: Item) -> str:
    return str(each.get("progress") or each.get("phase") or "no report yet")


def _more(count: int) -> str:
    return f", and {count} more" if count else ""
