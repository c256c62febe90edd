"""The result of a simulation: figures of each group, whether they are as expected, a chart, and the timeline."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import msgspec

from corral.simulation.measures import COLUMNS, ChartColumn, GroupFigures
from corral.simulation.scenario import ExpectedBound, Scenario
from corral.simulation.simulation import Simulation
from corral.simulation.timeline import TimelineEntry


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """A figure, and the most that was expected of it."""

    figure: str
    group: str
    """Empty: the sum of all groups."""
    most: float
    found: float
    met: bool

    def __str__(self) -> str:
        of = f" of '{self.group}'" if self.group else ""
        return f"{self.figure}{of}: at most {self.most:g} expected, {self.found:g} found"


class SimulationResult(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    start: dt.datetime
    seconds: int
    groups: dict[str, GroupFigures]
    expect: tuple[Expectation, ...]
    columns: dict[str, list[ChartColumn]]
    """By group, equal parts of the time."""
    timeline: tuple[TimelineEntry, ...]
    left_out: int
    """Further entries of the timeline, which were not kept."""

    @property
    def failed(self) -> list[Expectation]:
        return [each for each in self.expect if not each.met]


def simulate(scenario: Scenario, *, until: int | None = None, timeline: bool = True) -> SimulationResult:
    """Run a scenario, or its first `until` seconds."""
    seconds = scenario.run.seconds if until is None else min(until, scenario.run.seconds)
    if seconds != scenario.run.seconds:
        scenario = msgspec.structs.replace(
            scenario, run=msgspec.structs.replace(scenario.run, seconds=seconds)
        )
    simulation = Simulation(scenario, timeline=timeline)
    simulation.run()
    figures = simulation.figures()
    return SimulationResult(
        seed=scenario.run.seed,
        start=scenario.run.start,
        seconds=seconds,
        groups=figures,
        expect=tuple(compared(each, figures) for each in scenario.expect),
        columns={name: measure.columns for name, measure in simulation.measures.items()},
        timeline=tuple(simulation.timeline.entries),
        left_out=simulation.timeline.left_out,
    )


def compared(bound: ExpectedBound, figures: Mapping[str, GroupFigures]) -> Expectation:
    """A bound with what was found."""
    chosen = [each for name, each in figures.items() if bound.group in ("", name)]
    found = round(sum(getattr(each, bound.figure) for each in chosen), 2)
    return Expectation(
        figure=bound.figure, group=bound.group, most=bound.most, found=found, met=found <= bound.most
    )


def column_seconds(result: SimulationResult) -> float:
    return result.seconds / COLUMNS
