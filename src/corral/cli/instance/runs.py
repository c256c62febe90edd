"""`corral instance runs`: the runs of an instance, and the choice of one by --run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandRefused, WrongUsage, note
from corral.cli.instance.waits import INSTANCES
from corral.cli.terminal.output import Column, Item, limit_option, plain, show_list, state_column
from corral.cli.terminal.values import duration, short_time, size_text

_PAGE: Final = 500
COLUMNS: Final = (
    Column("RUN", "incarnation"),
    state_column("STATE", "state"),
    Column("STARTED", lambda run: short_time(run.get("started_at"))),
    Column("RAN", lambda run: duration(run.get("started_at"), run.get("ended_at"))),
    Column("NODE", "node", rank=2),
    Column("CONSOLE", lambda run: _console(run), rank=1),
    Column("CRASH", "crash", rank=3),
    Column("EXIT", lambda run: _exit(run), stretched=True),
)

run_option = click.option(
    "--run",
    "--incarnation",
    "incarnation",
    type=click.IntRange(1),
    metavar="N",
    help="An earlier run, see 'corral instance runs'; without it the newest.",
)


def _console(run: Item) -> str:
    first, end = run.get("first_offset"), run.get("end_offset")
    return "-" if end is None else size_text(int(end) - int(first or 0))


def _exit(run: Item) -> str:
    exit = run.get("exit")
    return plain(exit.get("summary") if isinstance(exit, dict) else None)


@click.command("runs")
@click.argument("id")
@limit_option(50)
@api_command
def runs(session: ApiSession, id: str, limit: int) -> None:
    """List the runs of an instance, the newest first. Their numbers are what --run takes."""
    found: list[Any] = []
    for run in each_run(session, id):
        found.append(run)
        if len(found) >= limit:
            break
    show_list(session.output, found, columns=COLUMNS, name="incarnation")


def each_run(session: ApiSession, id: str) -> Iterator[Any]:
    """The runs, the newest first; once a word about nodes that could not be asked."""
    before: int | None = None
    noted: set[str] = set()
    while True:
        page = session.client.get(
            f"{INSTANCES}/{segment(id)}/runs", {"limit": _PAGE if before else 50, "before": before}
        )
        for word in page.get("notes", []):
            if word not in noted:
                note(str(word))
                noted.add(word)
        yield from page["items"]
        before = page.get("next")
        if before is None:
            return


def previous_run(session: ApiSession, id: str) -> int:
    """The number of the run before the newest."""
    for place, run in enumerate(each_run(session, id)):
        if place == 1:
            return int(run["incarnation"])
    raise CommandRefused(
        f"no run of '{id}' before the present one is known", hint=f"corral instance runs {id}"
    )


def chosen_run(session: ApiSession, id: str, incarnation: int | None, *, previous: bool) -> int | None:
    """The run that is meant; None: the newest."""
    if previous and incarnation is not None:
        raise WrongUsage("--previous and --run name two runs", hint="leave one of them out")
    return previous_run(session, id) if previous else incarnation
