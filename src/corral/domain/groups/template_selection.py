"""Selection of the templates of a start, in the order in which they are laid, and the checks of a template's
parents and settings.

First the chain, in its order; then the picks, sorted by priority and name. Each has its parents before
itself; a template is laid once, at its first place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from corral.domain.file_paths import check_glob
from corral.domain.groups.group import GroupSpec, TemplateChoice, TemplateSelection
from corral.domain.groups.variable_checks import check_declaration, check_names, check_values
from corral.domain.sensitive_fields import refuse_hidden
from corral.domain.templates import TemplateRecord, TemplateSettings, TemplateVersion, template_name
from corral.errors import Code, Rejected, short_list

_SHOWN: Final = 10

MAX_DEPTH: Final = 32
"""Depth of parents."""
MAX_LAYERS: Final = 1000

Draw = Callable[[int], int]
"""One of so many, from 0."""


class TemplateSources(Protocol):
    """The look-ups: one snapshot of the store."""

    def template(self, name: str, /) -> TemplateRecord | None: ...

    def templates_in(self, group: str, /) -> Sequence[TemplateRecord]:
        """Of a template group, sorted by name."""


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """A template that is laid."""

    record: TemplateRecord
    version: TemplateVersion
    override: bool
    """False: a file that is there already stays."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    layers: tuple[Layer, ...] = ()
    picks: tuple[str, ...] = ()
    """Templates that were drawn among equals, for the decision's record."""


class _Pick(msgspec.Struct, frozen=True, kw_only=True):
    record: TemplateRecord
    priority: int = 0
    override: bool = True
    field: str


def select_templates(spec: GroupSpec, sources: TemplateSources, draw: Draw) -> Selection:
    """TEMPLATE_NOT_FOUND and TEMPLATE_CYCLE name the field of the group's document."""
    _check_named(spec, sources)
    chain = [
        _Pick(record=_required(sources, name, f"templates/{position}"), field=f"templates/{position}")
        for position, name in enumerate(spec.templates)
    ]
    picks, drawn = _picks(spec.template_selection, sources, draw)
    stack = _Stack(sources)
    for pick in (*chain, *sorted(picks, key=lambda pick: (pick.priority, pick.record.name))):
        stack.lay(pick.record, pick.override, (), pick.field)
    return Selection(layers=tuple(stack.layers.values()), picks=tuple(drawn))


def _check_named(spec: GroupSpec, sources: TemplateSources) -> None:
    """Refuse several templates that the group names and that do not exist together, with the field of the first."""
    selection = spec.template_selection
    named = [(f"templates/{position}", name) for position, name in enumerate(spec.templates)]
    for kind, choices in (("all_of", selection.all_of), ("one_of", selection.one_of)):
        named += [
            (f"template_selection/{kind}/{position}", each.name) for position, each in enumerate(choices)
        ]
    lost: dict[str, str] = {}
    for field, name in named:
        if sources.template(name) is None:
            lost.setdefault(name, field)
    if len(lost) > 1:
        shown = short_list((f"'{name}'" for name in lost), _SHOWN)
        raise _missing(f"templates {shown} do not exist", next(iter(lost.values())))


def candidate_layers(spec: GroupSpec, sources: TemplateSources) -> tuple[Layer, ...]:
    """As `select_templates`, with every template that may be drawn. Raises the same."""
    _check_named(spec, sources)
    stack = _Stack(sources)
    for position, name in enumerate(spec.templates):
        field = f"templates/{position}"
        stack.lay(_required(sources, name, field), True, (), field)
    picks, _ = _picks(spec.template_selection, sources, None)
    for pick in sorted(picks, key=lambda pick: (pick.priority, pick.record.name)):
        stack.lay(pick.record, pick.override, (), pick.field)
    return tuple(stack.layers.values())


def check_parents(
    name: str, parents: Sequence[str], sources: TemplateSources, *, field: str = "parents"
) -> None:
    """Refuse parents of a template that are missing or form a cycle."""
    stack = _Stack(sources)
    for position, parent in enumerate(parents):
        at = f"{field}/{position}"
        if parent == name:
            raise _cycle((name, name), at)
        stack.lay(_required(sources, parent, at), True, (name,), at)


class _Stack:
    """Layers in order; a dictionary, so that each name has one place."""

    def __init__(self, sources: TemplateSources) -> None:
        self._sources = sources
        self.layers: dict[str, Layer] = {}

    def lay(self, record: TemplateRecord, override: bool, above: tuple[str, ...], field: str) -> None:
        """`above`: the names on the way to this one, for the cycle and the depth."""
        if record.name in above:
            raise _cycle((*above[above.index(record.name) :], record.name), field)
        if record.name in self.layers:
            return
        way = (*above, record.name)
        if len(way) > MAX_DEPTH or len(self.layers) >= MAX_LAYERS:
            raise Rejected(
                Code.INVALID_FIELD,
                f"{field}: more than {MAX_DEPTH} parents above each other, or {MAX_LAYERS} templates in all",
                hint="lay several templates together into one",
                field=field,
            )
        version = record.version()
        for parent in version.settings.parents:
            found = self._sources.template(parent)
            if found is None:
                raise _missing(
                    f"template '{record.name}' has the parent '{parent}', which does not exist", field
                )
            self.lay(found, override, way, field)
        self.layers[record.name] = Layer(record=record, version=version, override=override)


def _picks(
    selection: TemplateSelection, sources: TemplateSources, draw: Draw | None
) -> tuple[list[_Pick], list[str]]:
    """`draw` None: all of the equals instead of one."""
    picks = _named(selection.all_of, "all_of", sources) + _grouped(
        selection.all_in_groups, "all_in_groups", sources
    )
    drawn: list[str] = []
    for candidates in (
        _named(selection.one_of, "one_of", sources),
        _grouped(selection.one_in_groups, "one_in_groups", sources),
    ):
        if candidates:
            best = _highest(candidates)
            if draw is None:
                picks += best
                continue
            pick = best[draw(len(best))] if len(best) > 1 else best[0]
            picks.append(pick)
            if len(best) > 1:
                drawn.append(pick.record.name)
    return picks, drawn


def _highest(candidates: Sequence[_Pick]) -> list[_Pick]:
    """Templates of the highest priority, each template once, in a stable order for the random choice."""
    top = max(pick.priority for pick in candidates)
    once: dict[str, _Pick] = {}
    for pick in candidates:
        if pick.priority == top:
            once.setdefault(pick.record.name, pick)
    return [once[name] for name in sorted(once)]


def _named(choices: Sequence[TemplateChoice], kind: str, sources: TemplateSources) -> list[_Pick]:
    found = []
    for position, choice in enumerate(choices):
        field = f"template_selection/{kind}/{position}"
        found.append(_pick(choice, _required(sources, choice.name, field), field))
    return found


def _grouped(choices: Sequence[TemplateChoice], kind: str, sources: TemplateSources) -> list[_Pick]:
    found = []
    for position, choice in enumerate(choices):
        field = f"template_selection/{kind}/{position}"
        records = sources.templates_in(choice.name)
        if not records:
            raise _missing(f"there is no template in the template group '{choice.name}'", field)
        found += [_pick(choice, record, field) for record in records]
    return found


def _pick(choice: TemplateChoice, record: TemplateRecord, field: str) -> _Pick:
    return _Pick(record=record, priority=choice.priority, override=choice.override, field=field)


def _required(sources: TemplateSources, name: str, field: str) -> TemplateRecord:
    found = sources.template(name)
    if found is None:
        raise _missing(f"template '{name}' does not exist", field)
    return found


def _missing(message: str, field: str) -> Rejected:
    return Rejected(
        Code.TEMPLATE_NOT_FOUND,
        message,
        hint="upload it, or correct the name: corral template list",
        field=field,
    )


def _cycle(names: Sequence[str], field: str) -> Rejected:
    return Rejected(
        Code.TEMPLATE_CYCLE,
        f"templates are their own parents: {' → '.join(names)}",
        hint="remove one of these parents",
        field=field,
    )


def check_settings(settings: TemplateSettings, *, field: str = "settings") -> TemplateSettings:
    """Refuse settings that cannot work. Whether the parents exist is checked by `check_parents`."""
    for position, parent in enumerate(settings.parents):
        template_name(parent, field=f"{field}/parents/{position}")
    check_names(settings.variables, field=f"{field}/variables")
    for name, spec in settings.variable_types.items():
        check_declaration(name, spec, field=f"{field}/variable_types/{name[:80]}")
    check_values(settings.variable_types, settings.variables, field=f"{field}/variables")
    refuse_hidden(settings, field=field)
    for position, glob in enumerate(settings.substitute):
        check_glob(glob, field=f"{field}/substitute/{position}")
    return settings
