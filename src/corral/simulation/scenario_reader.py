"""Reading of a scenario: strict, bounded, and every fault with its path."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from corral.domain.groups.field_aliases import with_field_names
from corral.domain.groups.group import NODE_CAPABILITIES, RUNTIMES
from corral.domain.ids import node_id
from corral.domain.node_claims import MOST_CPUS, MOST_MEMORY_MB, check_labels
from corral.errors import Rejected
from corral.simulation.field_reader import ScenarioField
from corral.simulation.scenario import (
    LONGEST_SECONDS,
    MOST_FAULTS,
    MOST_GROUPS,
    MOST_NODES,
    MOST_STEPS,
    BootModel,
    ExpectedBound,
    Fault,
    FaultKind,
    GroupFile,
    LoadModel,
    NodeModel,
    RunSettings,
    Scenario,
    Seating,
)
from corral.system.document_sets import read_set, shown_file
from corral.system.spans import span_text

KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("run", "nodes", "groups", "boot", "load", "faults", "expect"),
    "run": ("seed", "start", "for"),
    "nodes": ("id", "count", "memory_mb", "cpus", "disk_mb", "labels", "capabilities", "runtimes"),
    "boot": ("seconds", "crash"),
    "load": ("points", "noise", "players", "step", "repeat"),
    "faults": ("at", "for", "deadline", "boot", *FaultKind),
}
"""The keys of a scenario, and of the entries of its parts; `docs/reference/scenario.yaml` explains each."""
FIGURES: Final = (
    "starts",
    "stops",
    "crashes",
    "flaps",
    "short_minutes",
    "full_minutes",
    "unused_slots",
    "refused_players",
    "cut_players",
)
"""What may be expected; see `measures`."""
_FAULTS: Final = (
    "'cut: NODE', 'kill: NODE', 'leader: change', 'drain: NODE', 'undrain: NODE' and 'deploy: GROUP'"
)
_FAULT_FIELDS: Final = {
    "for": (FaultKind.CUT, FaultKind.KILL),
    "deadline": (FaultKind.DRAIN,),
    "boot": (FaultKind.DEPLOY,),
}
"""Which faults have these fields."""
_MOST_PLAYERS: Final = 10_000_000
_MOST_POINTS: Final = 100_000
_NAME: Final = 200
_MOST_WORDS: Final = 64
_DAY: Final = 86_400


class ScenarioReader:
    """Reads one scenario; the names of groups and nodes are known before what refers to them is read. Names are not looked
    at where some groups, or nodes, cannot be read."""

    def __init__(self, file: str) -> None:
        """`file`: the name of the scenario's file, to which the paths of group files are relative."""
        self._file = file
        self._seconds = LONGEST_SECONDS
        self._abstract: frozenset[str] = frozenset()
        """Groups that have no instances."""
        self._ends = False
        """Is the end of the run known?"""

    def read(self, top: ScenarioField) -> Scenario:
        fields = top.object(*KEYS[""])
        run = self._run(top.required(fields, "run"))
        self._seconds = run.seconds
        nodes = self._nodes(top.required(fields, "nodes"))
        listed = top.required(fields, "groups")
        groups = self._groups(listed)
        names = None if listed is None or listed.has_faults else _names(groups)
        self._abstract = _abstract_names(groups)
        given = fields.get("nodes")
        known_nodes = None if given is None or given.has_faults else [each.id for each in nodes]
        self._ends = "run" in fields and not fields["run"].has_faults
        return Scenario(
            run=run,
            nodes=nodes,
            groups=groups,
            boot={
                name: self._boot(each) for name, each in _entries(fields.get("boot"), "group", names).items()
            },
            load=self._loads(fields.get("load"), names),
            faults=self._faults_of(fields.get("faults"), known_nodes, names),
            expect=tuple(self._expected(fields.get("expect"), names)),
        )

    def _run(self, field: ScenarioField | None) -> RunSettings:
        if field is None:
            return RunSettings(seconds=1)
        fields = field.object(*KEYS["run"])
        lasts = field.required(fields, "for")
        spec = RunSettings(seconds=lasts.span(least=1, most=LONGEST_SECONDS, default=1) if lasts else 1)
        seed, start = fields.get("seed"), fields.get("start")
        return RunSettings(
            seconds=spec.seconds,
            seed=seed.integer(least=0, most=2**63 - 1) if seed else spec.seed,
            start=start.moment(spec.start) if start else spec.start,
        )

    def _nodes(self, field: ScenarioField | None) -> tuple[NodeModel, ...]:
        found: dict[str, NodeModel] = {}
        for each in field.items(most=MOST_NODES) if field else ():
            for node in self._nodes_of(each):
                if node.id in found:
                    each.fault(f"node '{node.id}' is there twice; give one of them another id")
                found[node.id] = node
            if len(found) > MOST_NODES:
                each.fault(f"these are more than {MOST_NODES} nodes")
                break
        if field and isinstance(field.value, list) and not field.value:
            field.fault("at least one node is needed")
        return tuple(found.values())

    def _nodes_of(self, field: ScenarioField) -> Iterable[NodeModel]:
        fields = field.object(*KEYS["nodes"])
        id_field = field.required(fields, "id")
        memory, cpus = field.required(fields, "memory_mb"), field.required(fields, "cpus")
        if id_field is None or memory is None or cpus is None:
            return
        name = _checked_id(id_field)
        count, disk = fields.get("count"), fields.get("disk_mb")
        model = NodeModel(
            id=name,
            memory_mb=memory.integer(least=0, most=MOST_MEMORY_MB),
            cpus=cpus.integer(least=0, most=MOST_CPUS),
            disk_mb=disk.integer(least=0, most=2**40) if disk else None,
            labels=_labels(fields.get("labels")),
            capabilities=_words(fields.get("capabilities"), NODE_CAPABILITIES),
            runtimes=_words(fields.get("runtimes"), RUNTIMES),
        )
        if count is None:
            yield model
            return
        for number in range(1, count.integer(least=1, most=MOST_NODES, default=1) + 1):
            yield NodeModel(**{**_fields_of(model), "id": f"{name}-{number}"})

    def _groups(self, field: ScenarioField | None) -> tuple[GroupFile, ...]:
        found: list[GroupFile] = []
        for each in field.items(most=MOST_GROUPS) if field else ():
            if isinstance(each.value, str):
                found += self._group_file(each)
            elif isinstance(each.value, dict):
                try:
                    body = with_field_names(each.value)
                except Rejected as error:
                    each.fault(f"{error.message}; {error.hint}")
                    continue
                place = shown_file(self._file)
                found.append(GroupFile(place=f"{place}: groups[{each.path[-1]}]", body=body, path=each.path))
            else:
                each.fault("write the path of a file, or a group as an object")
        if field and isinstance(field.value, list) and not field.value:
            field.fault("at least one group is needed")
        if field and len(found) > MOST_GROUPS:
            field.fault(f"{len(found)} groups are more than {MOST_GROUPS}")
        return tuple(found)

    def _group_file(self, field: ScenarioField) -> list[GroupFile]:
        path = field.text(longest=4096)
        base = pathlib.Path(self._file).parent if self._file != "-" else pathlib.Path()
        if not path or "\0" in path:
            field.fault("write the path of a file")
            return []
        try:
            documents = read_set((str(base / path),), from_pipes=False)
        except Rejected as error:
            field.fault(f"{error.message}; {error.hint}" if error.hint else error.message)
            return []
        for fault in documents.faults:
            field.fault(f"{fault.path}: {fault.message}")
        return [
            GroupFile(place=each.path, body=each.body, file=each.file, lines=each.lines)
            for each in documents.documents
        ]

    def _boot(self, field: ScenarioField) -> BootModel:
        fields = field.object(*KEYS["boot"])
        seconds, crash = fields.get("seconds"), fields.get("crash")
        default = BootModel()
        return BootModel(
            seconds=_range(seconds, default.seconds) if seconds else default.seconds,
            crash=crash.number(least=0, most=1) if crash else default.crash,
        )

    def _loads(self, field: ScenarioField | None, names: Sequence[str] | None) -> dict[str, LoadModel]:
        found = {name: self._load(each) for name, each in _entries(field, "group", names).items()}
        steps = sum(_changes(each, self._seconds) for each in found.values())
        if field and steps > MOST_STEPS:
            field.fault(
                f"the number of players would change {steps} times, more than {MOST_STEPS}; make 'step' or 'repeat' longer"
            )
        return found

    def _load(self, field: ScenarioField) -> LoadModel:
        fields = field.object(*KEYS["load"])
        listed = field.required(fields, "points")
        points = self._points(listed) if listed else ()
        noise, seating = fields.get("noise"), fields.get("players")
        step, repeat = fields.get("step"), fields.get("repeat")
        last = points[-1][0] if points else 0
        return LoadModel(
            points=points or ((0, 0.0),),
            noise=noise.number(least=0, most=1) if noise else 0.0,
            players=seating.choice(Seating, Seating.PACK) if seating else Seating.PACK,
            step_seconds=step.span(least=1, most=_DAY, default=_DAY) if step else 60,
            repeat_seconds=repeat.span(least=max(1, last), most=LONGEST_SECONDS) if repeat else 0,
        )

    def _points(self, field: ScenarioField) -> tuple[tuple[int, float], ...]:
        found: list[tuple[int, float]] = []
        for each in field.items(most=_MOST_POINTS):
            pair = list(each.items(most=2))
            if len(pair) != 2:
                if isinstance(each.value, list):
                    each.fault("write a time and a number of players, as [18h, 180]")
                continue
            at = pair[0].span(least=0, most=LONGEST_SECONDS)
            if found and at < found[-1][0]:
                pair[0].fault("it is before the point above it; sort them by time")
            found.append((at, pair[1].number(least=0, most=_MOST_PLAYERS)))
        if isinstance(field.value, list) and not field.value:
            field.fault("at least one point is needed, as [0h, 0]")
        return tuple(found)

    def _faults_of(
        self, field: ScenarioField | None, nodes: Sequence[str] | None, groups: Sequence[str] | None
    ) -> tuple[Fault, ...]:
        listed = field.items(most=MOST_FAULTS) if field else ()
        found = [self._fault(each, nodes, groups) for each in listed]
        return tuple(sorted((each for each in found if each is not None), key=lambda each: each.at))

    def _fault(
        self, field: ScenarioField, nodes: Sequence[str] | None, groups: Sequence[str] | None
    ) -> Fault | None:
        fields = field.object(*KEYS["faults"])
        at = field.required(fields, "at")
        kinds = [kind for kind in FaultKind if kind in fields]
        if len(kinds) != 1:
            if isinstance(field.value, dict):
                field.fault(f"write one of {_FAULTS}")
            return None
        kind, subject = kinds[0], fields[kinds[0]]
        _check_subject(kind, subject, nodes, groups)
        if kind is FaultKind.DEPLOY and subject.value in self._abstract:
            subject.fault(f"group '{subject.value}' is abstract; write one that has it as its parent")
        for name, having in _FAULT_FIELDS.items():
            if name in fields and kind not in having:
                named = "a change of the leader" if kind is FaultKind.LEADER else f"'{kind}'"
                has_not = "does not last" if name == "for" else f"has no '{name}'"
                fields[name].fault(f"{named} {has_not}; leave it out")
        limit = fields.get("deadline" if kind is FaultKind.DRAIN else "for")
        least = 0 if kind is FaultKind.DRAIN else 1
        of_node = kind not in (FaultKind.LEADER, FaultKind.DEPLOY)
        begins = at.span(least=0, most=LONGEST_SECONDS) if at else 0
        if at and self._ends and begins > self._seconds:
            at.fault(
                f"the run ends after {span_text(self._seconds)}, before this; make it longer, or leave this out"
            )
        return Fault(
            kind=kind,
            at=begins,
            node=str(subject.value) if of_node else "",
            group=str(subject.value) if kind is FaultKind.DEPLOY else "",
            boot=self._boot(fields["boot"]) if "boot" in fields else None,
            seconds=limit.span(least=least, most=LONGEST_SECONDS, default=1) if limit else None,
        )

    def _expected(self, field: ScenarioField | None, names: Sequence[str] | None) -> Iterable[ExpectedBound]:
        for figure, each in (field.object(*FIGURES) if field else {}).items():
            if isinstance(each.value, dict):
                for name, bound in each.entries("group", names).items():
                    yield ExpectedBound(figure=figure, group=name, most=bound.number(least=0, most=1e15))
            else:
                yield ExpectedBound(figure=figure, most=each.number(least=0, most=1e15))


def _changes(load: LoadModel, seconds: int) -> int:
    """How often the number of players may change in so long."""
    rounds = seconds // load.repeat_seconds + 1 if load.repeat_seconds else 1
    return seconds // load.step_seconds + rounds * len(load.points)


def _entries(
    field: ScenarioField | None, what: str, known: Sequence[str] | None
) -> Mapping[str, ScenarioField]:
    return field.entries(what, known) if field else {}


def _names(groups: Iterable[GroupFile]) -> list[str]:
    found = [each.body.get("name") for each in groups if isinstance(each.body, dict)]
    return [name for name in found if isinstance(name, str)]


def _abstract_names(groups: Iterable[GroupFile]) -> frozenset[str]:
    bodies = (
        each.body for each in groups if isinstance(each.body, dict) and each.body.get("abstract") is True
    )
    return frozenset(name for body in bodies if isinstance(name := body.get("name"), str))


def _fields_of(model: NodeModel) -> dict[str, Any]:
    return {name: getattr(model, name) for name in model.__struct_fields__}


def _checked_id(field: ScenarioField) -> str:
    name = field.text(longest=_NAME)
    if name:
        try:
            node_id(name)
        except Rejected as error:
            field.fault(f"{error.message}; {error.hint}")
    return name


def _labels(field: ScenarioField | None) -> dict[str, str]:
    found = {name: each.text(longest=_NAME) for name, each in (field.entries() if field else {}).items()}
    try:
        check_labels(found)
    except Rejected as error:
        if field:
            field.fault(f"{error.message}; {error.hint}")
    return found


def _words(field: ScenarioField | None, default: tuple[str, ...]) -> tuple[str, ...]:
    found = (each.text(longest=_NAME) for each in field.items(most=_MOST_WORDS)) if field else default
    return tuple(found)


def _range(field: ScenarioField, default: tuple[float, float]) -> tuple[float, float]:
    """A number, or the lowest and the highest."""
    if not isinstance(field.value, list):
        fixed = field.number(least=0, most=_DAY)
        return fixed, fixed
    found = [each.number(least=0, most=_DAY) for each in field.items(most=2)]
    if len(found) != 2:
        if len(field.value) < 2:
            field.fault("write a number of seconds, or the least and the most, as [20, 40]")
        return default
    if found[0] > found[1]:
        field.fault("the least comes first")
    return found[0], found[1]


def _check_subject(
    kind: FaultKind, subject: ScenarioField, nodes: Sequence[str] | None, groups: Sequence[str] | None
) -> None:
    """`nodes` and `groups`: None where not all of them are known."""
    if kind is FaultKind.LEADER:
        if subject.value != "change":
            subject.fault("write 'leader: change'")
    elif kind is FaultKind.DEPLOY:
        if groups is not None and subject.value not in groups:
            subject.unknown("group", str(subject.value), groups)
    elif nodes is not None and subject.value not in nodes:
        subject.unknown("node", str(subject.value), nodes)
