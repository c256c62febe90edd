"""Where extensions go, and which of them cannot be together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from corral.domain.file_paths import beneath
from corral.domain.plans import PlanArtifact, PlanExtension
from corral.errors import Code, Rejected


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An extension that shall go into a plan."""

    field: str
    """Of the group's document, for refusals."""
    extension: PlanExtension
    conflicts: tuple[str, ...] = ()
    """Ids of extensions that it cannot be together with."""


def place_extensions(
    candidates: Sequence[Candidate], program: PlanArtifact | None
) -> tuple[PlanExtension, ...]:
    """In their order; one that is asked for twice in the same way is installed once.

    EXTENSION_CONFLICT: one that another rules out, two variants of one extension, two files at one place, or a
    file where another needs a directory. Letters are compared without their case: some file systems do.
    """
    _refuse_conflicts(candidates)
    placed: dict[str, PlanExtension] = {}
    taken: dict[str, str] = {program.file.casefold(): "the group's artifact"} if program else {}
    for candidate in candidates:
        extension, field = candidate.extension, candidate.field
        other = placed.get(extension.id)
        if other is not None:
            if (other.variant, other.artifact) == (extension.variant, extension.artifact):
                continue
            raise _clash(f"{named(extension)} and {named(other)} are the same extension, differently", field)
        place = extension.artifact.file.casefold()
        for path, owner in taken.items():
            if beneath(place, path) or beneath(path, place):
                raise _clash(
                    f"{named(extension)} and {owner} cannot both be at '{extension.artifact.file}'", field
                )
        placed[extension.id] = extension
        taken[place] = named(extension)
    return tuple(placed.values())


def named(extension: PlanExtension) -> str:
    """For people: its id, and where there are any its variant and its module."""
    variant = f" ({extension.variant})" if extension.variant else ""
    source = f" of module '{extension.module}'" if extension.module else ""
    return f"extension '{extension.id}'{variant}{source}"


def _refuse_conflicts(candidates: Iterable[Candidate]) -> None:
    by_id: dict[str, Candidate] = {}
    for candidate in candidates:
        by_id.setdefault(candidate.extension.id, candidate)
    for candidate in candidates:
        other = next((by_id[id] for id in candidate.conflicts if id in by_id), None)
        if other is not None:
            raise Rejected(
                Code.EXTENSION_CONFLICT,
                f"{named(candidate.extension)} cannot be together with {named(other.extension)}",
                hint="ask for one of them only, or deactivate the module of one that goes to every group",
                field=candidate.field,
            )


def _clash(message: str, field: str) -> Rejected:
    return Rejected(
        Code.EXTENSION_CONFLICT,
        message,
        hint="remove one, give it another install_path, or deactivate the module that brings it",
        field=field,
    )
