"""`corral simulate`: run a scenario without a controller, or record one from a cluster."""

from __future__ import annotations

import logging
import pathlib
import sys
from typing import TYPE_CHECKING, Any

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.failure import CommandRefused, WrongUsage, note
from corral.cli.terminal.output import output_option
from corral.cli.terminal.values import SpanType
from corral.errors import counted, nearest

if TYPE_CHECKING:
    from corral.simulation.scenario import Scenario

_RUN = "run"


class ScenarioOrVerb(Noun):
    """`corral simulate FILE` is `corral simulate run FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_RUN, *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or self.commands.get(_RUN)


@click.group(cls=ScenarioOrVerb)
def simulate() -> None:
    """Run a scenario in virtual time, to see what the controller would decide. 'corral simulate FILE' runs it."""


@simulate.command(_RUN)
@click.argument("scenario", metavar="SCENARIO.yaml")
@click.option("-q", "--quiet", is_flag=True, help="Without the timeline and the chart.")
@click.option("--until", type=SpanType(), metavar="SPAN", help="Only so long, as 6h; all without it.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Instead of that of the file.")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Show only this; may be repeated.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0, 1_000_000),
    default=200,
    show_default=True,
    help="At most so many lines of the timeline; 0: all.",
)
@output_option
def run(
    scenario: str,
    quiet: bool,
    until: int | None,
    seed: int | None,
    groups: tuple[str, ...],
    limit: int,
    output: str,
) -> None:
    """Run a scenario, and print what happens.

    '-' reads it from stdin. Printed are the timeline, a chart and figures of each group. It needs no controller, and ends
    with 1 if something is not as the scenario expects.
    """
    from corral.cli.simulate.output import show_result
    from corral.simulation.results import simulate as simulated
    from corral.system.logger import log_plainly

    log_plainly(sys.stderr, least=logging.WARNING)
    found = _read(scenario, seed)
    try:
        result = simulated(found, until=until, timeline=not quiet or output != "table")
    except Exception as error:
        raise _refused(error) from error
    for name in groups:
        if name not in result.groups:
            guess = nearest(name, result.groups)
            hint = f"did you mean '{guess}'?" if guess else f"there are {', '.join(result.groups)}"
            raise WrongUsage(f"the scenario has no group '{name}'", hint=hint)
    shown = list(groups or result.groups)
    show_result(result, output=output, scenario=scenario, groups=shown, quiet=quiet, limit=limit)
    if result.failed:
        failure = CommandRefused(
            f"{counted(len(result.failed), 'expectation')} of the scenario {'is' if len(result.failed) == 1 else 'are'} "
            "not met",
            hint="the timeline has the reasons; change the groups, or what is expected",
            code="EXPECTATION_FAILED",
        )
        failure.errors = tuple(str(each) for each in result.failed)
        raise failure


def _read(path: str, seed: int | None) -> Scenario:
    import msgspec

    from corral.simulation.scenario_files import read_scenario

    if pathlib.Path(path).is_fifo():
        note(f"{path} is a pipe: reading it until its writer ends")
    try:
        found = read_scenario(path)
    except Exception as error:
        raise _refused(error) from error
    if seed is None:
        return found
    return msgspec.structs.replace(found, run=msgspec.structs.replace(found.run, seed=seed))


def _refused(error: Exception) -> Exception:
    """A scenario that is refused, with all of its faults; any other error as it is."""
    from corral.simulation.scenario_files import ScenarioRejected

    if not isinstance(error, ScenarioRejected):
        return error
    failure = CommandRefused(error.message, hint=error.hint, code="SCENARIO_INVALID")
    failure.errors = error.lines
    return failure


@simulate.command("record")
@click.option("--for", "seconds", type=SpanType(), required=True, metavar="SPAN", help="How long, as 1h.")
@click.option(
    "--every", type=SpanType(), default="5s", show_default=True, help="How often players are counted."
)
@api_command
def record(session: ApiSession, **options: Any) -> None:
    """Record a scenario from a cluster, on stdout.

    It has the groups, the nodes and the changes of players. Ctrl-C ends it early, with what it has until then.
    """
    from corral.cli.simulate.recording import record_scenario

    record_scenario(session, seconds=options["seconds"], every=options["every"])
