"""The graph of modules by capabilities: conflicts and cycles, found before anything is stored; requirements
that are still unmet; and the order of stopping, in which no module loses what it depends on before it is
stopped itself.

A module is one vertex for each host it runs on, for the registries of hosts are separate: the node's part of
a paired module may need what its controller's part provides.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from corral.domain.modules.manifest import Manifest, ModuleHost, Provision, Requirement, Source
from corral.domain.modules.phases import ModuleIntent
from corral.domain.modules.records import PackageRecord
from corral.domain.versions import parse_range
from corral.errors import Code, Rejected


class Provided(NamedTuple):
    """An entry of a registry."""

    version: str
    provider: str


class UnresolvedReason(enum.StrEnum):
    MISSING_PROVIDER = "missing_provider"
    VERSION_MISMATCH = "version_mismatch"
    CONFLICT = "conflict"


class UnresolvedRequirement(msgspec.Struct, frozen=True, kw_only=True):
    """A requirement that is not met, and why."""

    id: str
    why: UnresolvedReason
    reason: str
    optional: bool = False


class Rival(msgspec.Struct, frozen=True, kw_only=True):
    """Another package with the same capability, which is no conflict as long as its intent is not active."""

    id: str
    provider: str


class GraphReport(msgspec.Struct, frozen=True, kw_only=True):
    """The connections of a package that may be installed."""

    depends_on: tuple[str, ...] = ()
    """Packages that provide what it needs."""
    needed_by: tuple[str, ...] = ()
    """Packages that need what it provides."""
    rivals: tuple[Rival, ...] = ()


def applies(requirement: Requirement, manifest: Manifest, host: ModuleHost) -> bool:
    """Whether the module's part on this host needs it. Capabilities of a node do not concern the controller's
    part, nor those of that part itself the one on the node."""
    if host not in manifest.hosts:
        return False
    if host is ModuleHost.DAEMON:
        return True
    if requirement.from_ is Source.NODE:
        return False
    own = any(each.id == requirement.id for each in manifest.capabilities.provides)
    return not (own and requirement.from_ is Source.CONTROLLER and ModuleHost.DAEMON in manifest.hosts)


def provisions_on(manifest: Manifest, host: ModuleHost) -> tuple[Provision, ...]:
    """The capabilities that the module's part on this host provides to others: all, except those that one
    part of a paired module requires of the other (`from: controller`, `from: node`), which are the other
    part's alone."""
    if host not in manifest.hosts:
        return ()
    if len(manifest.hosts) == 1:
        return manifest.capabilities.provides
    asked = {each.id: each.from_ for each in manifest.capabilities.requires}
    other = Source.CONTROLLER if host is ModuleHost.DAEMON else Source.NODE
    return tuple(each for each in manifest.capabilities.provides if asked.get(each.id) is not other)


def registry_of(requirement: Requirement, host: ModuleHost) -> ModuleHost:
    """The host whose registry a requirement is looked up in by the part on `host`."""
    if requirement.from_ is Source.CONTROLLER:
        return ModuleHost.CONTROLLER
    return ModuleHost.DAEMON if requirement.from_ is Source.NODE else host


def unresolved(
    manifest: Manifest,
    provided: Mapping[str, Provided | tuple[str, str]],
    *,
    host: ModuleHost = ModuleHost.CONTROLLER,
    from_controller: Mapping[str, Provided | tuple[str, str]] | None = None,
    with_optional: bool = False,
) -> list[UnresolvedRequirement]:
    """The requirements that keep the part on this host from starting; empty when it may. `provided` is the host's own
    registry, `from_controller` the part of the controller's that a node knows."""
    found = []
    for requirement in manifest.capabilities.requires:
        if not applies(requirement, manifest, host) or (requirement.optional and not with_optional):
            continue
        registry = provided
        if registry_of(requirement, host) is not host:
            registry = from_controller or {}
        if missing := unmet(requirement, registry.get(requirement.id)):
            found.append(missing)
    return found


def unmet(requirement: Requirement, offer: Provided | tuple[str, str] | None) -> UnresolvedRequirement | None:
    """Why this offer, or none at all, does not meet a requirement; None when it does."""
    if offer is None:
        why, reason = UnresolvedReason.MISSING_PROVIDER, f"no active module provides {requirement.id}"
    elif not parse_range(requirement.version_range).allows(offer[0]):
        why = UnresolvedReason.VERSION_MISMATCH
        reason = f"{offer[1]} provides {requirement.id} {offer[0]}, needed is {requirement.version_range}"
    else:
        return None
    return UnresolvedRequirement(id=requirement.id, why=why, reason=reason, optional=requirement.optional)


def check_graph(
    candidate: Manifest, installed: Sequence[PackageRecord], *, built_in: Collection[str] = ()
) -> GraphReport:
    """Refuse a package that cannot be installed beside the others: CAPABILITY_CONFLICT for an id that another
    package provides whose intent is active (or the host itself), CAPABILITY_CYCLE for modules that need one
    another. An installed package of the candidate's id is the one to be replaced."""
    others = [record for record in installed if record.id != candidate.id]
    rivals = tuple(_rivals(candidate, others, built_in))
    manifests = {record.id: record.manifest for record in others} | {candidate.id: candidate}
    edges = _edges(manifests.values())
    if cycle := _cycle(edges, [_GraphNode(candidate.id, host) for host in candidate.hosts]):
        path = " → ".join(_without_repeats(cycle))
        raise Rejected(
            Code.CAPABILITY_CYCLE,
            f"module {candidate.id} cannot be installed: the requirements go in a circle, {path}",
            hint="make one of the requirements optional, or move what both need into a module of its own",
            field="capabilities.requires",
        )
    return GraphReport(
        depends_on=_names(
            part.module for start, ends in edges.items() if start.module == candidate.id for part in ends
        ),
        needed_by=_names(
            start.module
            for start, ends in edges.items()
            if any(part.module == candidate.id for part in ends) and start.module != candidate.id
        ),
        rivals=rivals,
    )


def refused_provision(
    candidate: Manifest, installed: Sequence[PackageRecord], *, built_in: Collection[str] = ()
) -> Provision | None:
    """The first capability of a package for which `check_graph` refuses it; None: there is none."""
    taken = {
        provision.id
        for record in installed
        if record.id != candidate.id and record.intent is ModuleIntent.ACTIVE
        for provision in record.manifest.capabilities.provides
    }
    taken |= set(built_in)
    return next((each for each in candidate.capabilities.provides if each.id in taken), None)


class _GraphNode(NamedTuple):
    module: str
    host: ModuleHost


_Edges = Mapping[_GraphNode, Sequence[_GraphNode]]


def _rivals(
    candidate: Manifest, others: Sequence[PackageRecord], built_in: Collection[str]
) -> Iterator[Rival]:
    mine = [each.id for each in candidate.capabilities.provides]
    for id in mine:
        if id in built_in:
            raise _conflict(candidate.id, id, "Corral itself", "give it another id")
    for record in others:
        for provision in record.manifest.capabilities.provides:
            if provision.id not in mine:
                continue
            if record.intent is ModuleIntent.ACTIVE:
                way = f"pause, deactivate or uninstall {record.id} first"
                raise _conflict(candidate.id, provision.id, f"module {record.id}", way)
            yield Rival(id=provision.id, provider=record.id)


def _conflict(candidate: str, id: str, owner: str, hint: str) -> Rejected:
    return Rejected(
        Code.CAPABILITY_CONFLICT,
        f"module {candidate} cannot be installed: {id} is already provided by {owner}",
        hint=hint,
        field="capabilities.provides",
    )


def _edges(manifests: Iterable[Manifest]) -> _Edges:
    """From each part of a module to the parts it cannot start without."""
    known = list(manifests)
    providers: dict[tuple[str, ModuleHost], list[_GraphNode]] = {}
    for manifest in known:
        for host in manifest.hosts:
            for provision in provisions_on(manifest, host):
                providers.setdefault((provision.id, host), []).append(_GraphNode(manifest.id, host))
    return {
        _GraphNode(manifest.id, host): [
            part
            for requirement in manifest.capabilities.requires
            if not requirement.optional and applies(requirement, manifest, host)
            for part in providers.get((requirement.id, registry_of(requirement, host)), ())
        ]
        for manifest in known
        for host in manifest.hosts
    }


def _cycle(edges: _Edges, starts: Iterable[_GraphNode]) -> list[_GraphNode]:
    """A way from one of these parts back to itself; empty when there is none."""
    for start in starts:
        came_from: dict[_GraphNode, _GraphNode] = {}
        waiting = [start]
        for part in waiting:  # grows during the loop: breadth first, so the cycle found is a shortest one
            for following in edges.get(part, ()):
                if following == start:
                    return _way(start, part, came_from)
                if following not in came_from:
                    came_from[following] = part
                    waiting.append(following)
    return []


def _way(start: _GraphNode, last: _GraphNode, came_from: Mapping[_GraphNode, _GraphNode]) -> list[_GraphNode]:
    way = [start, last]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return way[::-1] if last != start else [start, start]


def _without_repeats(cycle: Sequence[_GraphNode]) -> list[str]:
    """Names without repeats; two parts of one module in a row are named once, but a module on itself is `a →
    a`."""
    names = [part.module for part in cycle]
    path = [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]
    return path if len(path) > 1 else [names[0], names[0]]


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def stages_of_end(manifests: Mapping[str, Manifest]) -> list[list[str]]:
    """Modules by id, in stages: all consumers of a module are in an earlier stage than it is. Modules that
    need each other, which an installation refuses, would share the last stage."""
    providers = {
        provision.id: id for id, manifest in manifests.items() for provision in manifest.capabilities.provides
    }
    needs = {
        id: {
            providers[requirement.id]
            for requirement in manifest.capabilities.requires
            if requirement.id in providers and providers[requirement.id] != id
        }
        for id, manifest in manifests.items()
    }
    stages: list[list[str]] = []
    left = dict(needs)
    while left:
        needed = {provider for required in left.values() for provider in required}
        stage = sorted(id for id in left if id not in needed) or sorted(left)
        stages.append(stage)
        left = {id: required for id, required in left.items() if id not in stage}
    return stages
