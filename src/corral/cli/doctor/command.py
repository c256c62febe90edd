"""`corral doctor`: what of this machine could be better for Corral, and how."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, NamedTuple

import click

from corral.cli.terminal.output import Column, output_option, show_list, state_column


class Severity(enum.StrEnum):
    OK = "ok"
    ADVICE = "advice"
    ERROR = "error"


class Finding(NamedTuple):
    """The result of one check; `why` it matters and the `command` that mends it are empty when all is well."""

    id: str
    severity: Severity
    found: str
    why: str = ""
    command: str = ""


@click.command()
@click.argument("part", type=click.Choice(["node"]), default="node")
@output_option
@click.pass_context
def doctor(ctx: click.Context, part: str, output: str) -> None:
    """Check this machine, and say what to change.

    PART is what it is used for: `node` (the default) checks it as a host of a daemon.

    Exit code 1 only for errors: advice is something that works, and could work better.
    """
    findings = [check() for check in CHECKS[part]]
    columns = [Column("CHECK", "id"), state_column("RESULT", "severity"), Column("FOUND", "found")]
    show_list(output, [each._asdict() for each in findings], columns=columns)
    if output == "table":
        for each in findings:
            _explain(each)
    ctx.exit(1 if any(each.severity is Severity.ERROR for each in findings) else 0)


def _explain(finding: Finding) -> None:
    if finding.why:
        click.echo(f"\n{finding.id}: {finding.why}")
    if finding.command:
        click.echo(f"  {finding.command}")


def check_group_moves() -> Finding:
    """Whether the kernel makes moves between control groups wait."""
    from corral.runtimes.cgroups.move_delay import OPTION, Moves, move_delay

    delay = move_delay()
    if delay.moves is Moves.QUICK:
        return Finding("cgroup-moves", Severity.OK, f"control groups are mounted with {OPTION}")
    if delay.moves is Moves.NO_GROUPS:
        return Finding("cgroup-moves", Severity.OK, "no control groups are mounted, none are used")
    why = (
        "the first move of a process into a control group after a pause waits for the kernel, about 20 ms. "
        "Spare shims hide it from starts, except those of a burst and of replacements beyond the spares. "
        f"{OPTION} (Linux 6.0 and later) avoids it and makes every fork and exit of this machine a little slower; "
        f"see control groups in the guide 'Run under systemd'"
    )
    if not delay.remount:
        why += (
            ". Version 1 of control groups does not take it in a remount: mount a tree of version 2 with it"
        )
    return Finding(
        "cgroup-moves",
        Severity.ADVICE,
        f"control groups are mounted without {OPTION}",
        why=why,
        command=delay.remount,
    )


CHECKS: Final[dict[str, tuple[Callable[[], Finding], ...]]] = {"node": (check_group_moves,)}
