"""One run of a scenario: time goes from one thing that happens to the next, and the controller acts in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from corral.controller.instances.deployments import deploy_group
from corral.controller.instances.group_changes import patch_group
from corral.controller.instances.group_writes import GroupWrite, store_write
from corral.controller.instances.node_drains import DrainOrder, drain_node, undrain_node
from corral.controller.instances.workspace import Workspace
from corral.controller.reconcile.lost_nodes import awaited_nodes
from corral.controller.state.collections import GROUPS, INSTANCES
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord, is_ready
from corral.domain.instance_states import Wanted
from corral.domain.planning.schedules import scheduled
from corral.errors import Bug, counted
from corral.simulation.measures import GroupFigures, GroupMeasure
from corral.simulation.model_controller import NEVER_SECONDS, ModelController
from corral.simulation.model_nodes import RECONNECT_SECONDS, ModelNodes
from corral.simulation.model_players import GroupPlayers, LoadCurve
from corral.simulation.model_runs import ModelRun
from corral.simulation.scenario import BootModel, Fault, FaultKind, Scenario, Seating
from corral.simulation.scenario_groups import COMMAND, resolved_groups
from corral.simulation.timeline import Timeline
from corral.simulation.virtual_time import TICKS, Agenda, Chance, SeededEntropy, VirtualClock, ticks
from corral.store.port import Commit

_SWEEP_SECONDS: Final = 3600
_BY_SCENARIO: Final = "the scenario"
_VERSION: Final = "version-"
_MOST_TURNS: Final = 100_000
"""Turns at one moment: more of them would go on for ever."""


class Simulation:
    """A scenario that runs. `run` it once."""

    def __init__(
        self, scenario: Scenario, *, timeline: bool = True, floor_seconds: float = NEVER_SECONDS
    ) -> None:
        """`timeline`: keep what was decided; `floor_seconds`: how often every group is looked at though nothing has
        happened."""
        self._scenario = scenario
        self.clock = VirtualClock(scenario.run.start)
        self._agenda = Agenda(self.clock)
        chance = Chance(scenario.run.seed)
        self.timeline = Timeline(self.clock, kept=timeline)
        specs = resolved_groups(scenario)
        self._end = scenario.run.seconds * TICKS
        self.players = {
            name: GroupPlayers(capacity=spec.max_players, seating=_seating(scenario, name))
            for name, spec in specs.items()
            if spec.max_players
        }
        self._curves = {
            name: LoadCurve(model, chance.of(f"load/{name}")) for name, model in scenario.load.items()
        }
        self.measures = {
            name: GroupMeasure(ticks=self._end) for name, spec in specs.items() if not spec.abstract
        }
        self._wakes = 0
        """When the controller is to look again though nothing happens."""
        self._touched: set[str] = set()
        """Groups of which a record has changed since they were measured."""
        self._moved: set[str] = set()
        """Groups whose players have changed since then."""
        self._unseated: set[str] = set()
        self._deployed: list[BootModel] = []
        """How each version starts that was deployed, the first first."""
        self.nodes = ModelNodes(
            scenario.nodes,
            clock=self.clock,
            agenda=self._agenda,
            chance=chance,
            boot=self._boot_of,
            ended=self._run_ended,
            changed=lambda instance: self.controller.players_changed(instance),
        )
        self.controller = ModelController(
            clock=self.clock,
            entropy=SeededEntropy(chance),
            players=self._reported_players,
            free_disk_mb=self.nodes.free_disk_mb,
            floor_seconds=floor_seconds,
        )
        self.controller.store.appended = self.timeline.decided
        self._create(specs)

    def _create(self, specs: Mapping[str, GroupSpec]) -> None:
        controller = self.controller
        self.nodes.join(controller)
        controller.begin()
        controller.store.followers.append(self._follow)
        ws = controller.workspace("the scenario")
        for name, spec in specs.items():
            record = GroupRecord(spec=spec, created_at=ws.now, updated_at=ws.now)
            store_write(ws, GroupWrite(name=name, before=None, after=record, changed=()))
        controller.commit(ws.steps())
        for fault in self._scenario.faults:
            self._agenda.add_at(fault.at * TICKS, lambda fault=fault: self._fail(fault))  # type: ignore[misc]
        for name in self._curves:
            self._agenda.add_at(0, lambda name=name: self._change_load(name))  # type: ignore[misc]
        for name, spec in specs.items():
            if spec.schedules:
                self._follow_schedules(name, spec)
        self._agenda.add(_SWEEP_SECONDS, self._sweep)

    # time

    def run(self) -> None:
        """Go on until the end of the scenario."""
        self.act()
        while self.advance():
            self.act()

    def advance(self) -> bool:
        """Go on to the next moment at which something is to be done; False: there is none before the end."""
        following = min(self._agenda.next_tick or self._wakes, self._wakes)
        self._pass_to(min(following, self._end))
        return following < self._end

    def _pass_to(self, tick: int) -> None:
        for measure in self.measures.values():
            measure.advance(tick)
        self.clock.set(tick)

    def act(self) -> None:
        """Do everything that happens at this moment."""
        for _ in range(_MOST_TURNS):
            self._agenda.run_due()
            self._seat_players()
            pause = self.controller.settle()
            due = self._agenda.next_tick
            if not self._unseated and (due is None or due > self.clock.tick):
                self._measure()
                self._wakes = self.clock.tick + max(1, ticks(pause))
                return
        raise Bug(f"the model does not come to rest at {self.clock.now().isoformat()}")

    def _sweep(self) -> None:
        self.controller.sweep()
        self._agenda.add(_SWEEP_SECONDS, self._sweep)

    # what changes

    def _follow(self, commit: Commit) -> None:
        for event in commit.events:
            name = event.data.get("group", event.subject)
            measure = self.measures.get(str(name))
            if measure is not None:
                measure.note(event, self.clock.tick)
        for change in commit.changes:
            if change.collection == INSTANCES.name:
                stored = self.controller.state.instances.find(change.id)
                if stored is not None:
                    self._touched.add(stored.record.group)
                    self._unseated.add(stored.record.group)
            elif change.collection == GROUPS.name:
                self._touched.add(change.id)

    def _measure(self) -> None:
        """Note what is the case now. How many are wanted is another number only after a commit."""
        state = self.controller.state
        for name in self._touched | self._moved:
            measure, stored = self.measures.get(name), state.groups.find(name)
            if measure is None or stored is None:
                continue
            ready = state.instances.counts(name).serving_ready
            players = self.players.get(name)
            measure.set(
                wanted=self.controller.wanted(name) if name in self._touched else measure.wanted,
                ready=ready,
                players=players.seated if players else 0,
                waiting=players.waiting if players else 0,
                unused=ready * stored.record.spec.max_players - self._on_ready(players),
            )
        self._touched.clear()
        self._moved.clear()

    # players

    def _on_ready(self, players: GroupPlayers | None) -> int:
        """The players on instances that are ready and serve: not those on retired ones, or where a node is away."""
        found = self.controller.state.instances.find
        seats = players.seats.items() if players is not None else ()
        known = ((stored.record, count) for id, count in seats if (stored := found(id)) is not None)
        return sum(count for record, count in known if is_ready(record) and not record.warm)

    def _change_load(self, name: str) -> None:
        curve, at = self._curves[name], self.clock.tick / TICKS
        players = self.players[name]
        demand = curve.demand(at)
        if demand != players.demand:
            players.demand = demand
            self._unseated.add(name)
        following = curve.next_change(at)
        if following is not None:
            self._agenda.add_at(ticks(following), lambda: self._change_load(name))

    def _follow_schedules(self, name: str, spec: GroupSpec) -> None:
        """Look at a group again when one of its schedules begins or ends: it may be closed to players until then."""
        self._unseated.add(name)
        self._touched.add(name)
        changes_at = scheduled(spec, self.clock.now()).changes_at
        if changes_at is not None:
            seconds = (changes_at - self.clock.now()).total_seconds()
            self._agenda.add(max(1.0, seconds), lambda: self._follow_schedules(name, spec))

    def _seat_players(self) -> None:
        """Have players join and leave where something changed."""
        for name in sorted(self._unseated):
            players = self.players.get(name)
            if players is None:
                continue
            self._moved.add(name)
            accepting = self._accepting(name) if players.demand > players.seated else ()
            if changed := players.settle(accepting, self._takes_no_more):
                self.controller.players_changed(*changed)
        self._unseated.clear()

    def _accepting(self, name: str) -> Iterable[str]:
        """The instances that take players: what proxies are told."""
        state = self.controller.state
        group = state.groups.require(name).record
        if scheduled(group.spec, self.clock.now()).maintenance.enabled:
            return []
        taking = (state.instances.require(id).record for id in state.instances.counts(name).open)
        return [record.id for record in taking if self.nodes.serves(record)]

    def _takes_no_more(self, instance: str) -> bool:
        stored = self.controller.state.instances.find(instance)
        return stored is None or stored.record.wanted is not Wanted.RUN

    def _reported_players(self, instance: str) -> int | None:
        """What the present leader knows: what is reported on a node without a connection arrives nowhere."""
        stored = self.controller.state.instances.find(instance)
        if stored is None or not self.nodes.connected(stored.record.node):
            return None
        players = self.players.get(stored.record.group)
        return players.seats.get(instance, 0) if players is not None else None

    def _run_ended(self, run: ModelRun) -> None:
        players = self.players.get(run.group)
        if players is not None:
            players.drop(run.id)
            self._unseated.add(run.group)

    # faults

    def _fail(self, fault: Fault) -> None:
        lasts = f" for {counted(fault.seconds, 'second')}" if fault.seconds is not None else " for good"
        match fault.kind:
            case FaultKind.CUT:
                self.timeline.failed(f"it loses its connection{lasts}", node=fault.node)
                self.nodes.cut(fault.node, fault.seconds)
            case FaultKind.KILL:
                self.timeline.failed(f"it loses its power{lasts}", node=fault.node)
                self.nodes.kill(fault.node, fault.seconds)
            case FaultKind.LEADER:
                self.timeline.failed("another controller leads")
                self._change_leader()
            case FaultKind.DRAIN:
                order = DrainOrder(reason=_BY_SCENARIO, deadline_seconds=fault.seconds)
                left = (
                    "players are waited for" if fault.seconds is None else f"what is left goes{_after(fault)}"
                )
                self._order(
                    f"it is emptied; {left}", fault.node, lambda ws: drain_node(ws, fault.node, order)
                )
            case FaultKind.UNDRAIN:
                self._order("it is opened again", fault.node, lambda ws: undrain_node(ws, fault.node))

            case FaultKind.DEPLOY:
                self._deploy(fault)

    def _deploy(self, fault: Fault) -> None:
        """Deploy a version that differs from the last one in its command, by which its runs are known."""
        name = fault.group
        self._deployed.append(fault.boot or self._scenario.boot.get(name, BootModel()))
        command = [*COMMAND, f"{_VERSION}{len(self._deployed)}"]

        def deploy(ws: Workspace) -> None:
            patch_group(ws, name, {"command": command})
            deploy_group(ws, name, by=_BY_SCENARIO)

        self._order(f"another version of '{name}' is deployed", "", deploy)

    def _boot_of(self, run: ModelRun) -> BootModel:
        """How a run starts: by the version that its plan names."""
        plan = self.controller.state.plans.find(run.plan_hash)
        command: list[str] = msgspec.json.decode(plan.record.body)["command"] if plan is not None else []
        if len(command) > len(COMMAND):
            return self._deployed[int(command[-1].removeprefix(_VERSION)) - 1]
        return self._scenario.boot.get(run.group, BootModel())

    def _order(self, what: str, node: str, order: Callable[[Workspace], object]) -> None:
        """Have the controller do what an operator orders."""
        self.timeline.failed(what, node=node, kind="order")
        ws = self.controller.workspace(_BY_SCENARIO)
        order(ws)
        self.controller.commit(ws.steps())

    def _change_leader(self) -> None:
        controller = self.controller
        awaited = awaited_nodes(controller.state)
        controller.change_leader()
        self.nodes.drop_all()
        seconds = controller.begin(awaited)
        term = controller.term
        self._agenda.add(RECONNECT_SECONDS, self.nodes.connect_all)

        def stop_waiting() -> None:
            if controller.term is term:
                controller.end_observation()

        self._agenda.add(seconds, stop_waiting)

    # results

    def figures(self) -> dict[str, GroupFigures]:
        """By group."""
        found = {}
        for name, measure in self.measures.items():
            players = self.players.get(name)
            found[name] = measure.figures(
                refused=players.refused if players else 0, cut=players.cut if players else 0
            )
        return found


def _seating(scenario: Scenario, group: str) -> Seating:
    load = scenario.load.get(group)
    return load.players if load is not None else Seating.PACK


def _after(fault: Fault) -> str:
    return f" after {counted(fault.seconds, 'second')}" if fault.seconds else " at once"
