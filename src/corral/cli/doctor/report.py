"""Findings for people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from corral.cli.doctor.findings import Finding, Severity
from corral.cli.failure import printable
from corral.cli.terminal.output import show_list
from corral.cli.terminal.table import GREEN, RED, YELLOW, colour_enabled, coloured, terminal_width
from corral.errors import counted

_COLOURS: Final = {Severity.OK: GREEN, Severity.ADVICE: YELLOW, Severity.ERROR: RED}
_MARGIN: Final = " " * 8
_WIDEST: Final = 110
"""Longer lines are hard to read, however wide the terminal is."""


def show_findings(output: str, found: Sequence[Finding]) -> None:
    """A paragraph for each that needs attention, a line for each that does not, and the sum."""
    if output != "table":
        show_list(output, [each._asdict() for each in found], columns=())
        return
    several = len({each.subject for each in found}) > 1
    names = [f"{each.subject.partition(':')[2]} {each.id}" if several else each.id for each in found]
    widest = max(map(len, names), default=0)
    for name, each in zip(names, found, strict=True):
        _show(each, f"{name:<{widest}}  ")
    counts = {
        severity: [name for name, each in zip(names, found, strict=True) if each.severity is severity]
        for severity in Severity
    }
    wrong = counts[Severity.ERROR]
    named = f" ({', '.join(wrong)})" if wrong else ""  # they may have scrolled away
    advised, passed = len(counts[Severity.ADVICE]), len(counts[Severity.OK])
    click.echo(
        f"{counted(len(found), 'check')}: {counted(len(wrong), 'error')}{named}, {advised} advice, {passed} ok"
    )


def _show(finding: Finding, name: str) -> None:
    word = f"{finding.severity.value:<{len(_MARGIN)}}"
    painted = coloured(word, _COLOURS[finding.severity]) if colour_enabled() else word
    click.echo(painted + name + _wrapped(finding.found, _MARGIN + " " * len(name)).lstrip())
    if finding.severity is not Severity.OK:
        click.echo(_wrapped(finding.why, _MARGIN))
        if finding.command:
            click.echo(f"{_MARGIN}$ {printable(finding.command)}")  # whole, to be copied
        click.echo()


def _wrapped(text: str, indent: str) -> str:
    width = max(min(terminal_width() or _WIDEST, _WIDEST), len(indent) + 20)
    return "\n".join(click.wrap_text(line, width, indent, indent) for line in printable(text).splitlines())
