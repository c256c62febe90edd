"""Where extensions go, and which of them cannot be together."""

from __future__ import annotations

from collections.abc import Iterable

from corral.domain.file_paths import beneath
from corral.domain.plans import PlanArtifact, PlanExtension
from corral.errors import Code, Rejected


def place_extensions(
    extensions: Iterable[PlanExtension], program: PlanArtifact | None
) -> tuple[PlanExtension, ...]:
    """In their order; one that is asked for twice in the same way is installed once.

    EXTENSION_CONFLICT: two variants of one extension, two files at one place, or a file where another
    needs a directory. Letters are compared without their case: some file systems do.
    """
    placed: dict[str, PlanExtension] = {}
    taken: dict[str, str] = {program.file.casefold(): "the group's artifact"} if program else {}
    for position, extension in enumerate(extensions):
        field = f"extensions/{position}"
        other = placed.get(extension.id)
        if other is not None:
            if (other.variant, other.artifact) == (extension.variant, extension.artifact):
                continue
            raise _conflict(
                f"{_named(extension)} and {_named(other)} are the same extension, differently", field
            )
        place = extension.artifact.file.casefold()
        for path, owner in taken.items():
            if beneath(place, path) or beneath(path, place):
                raise _conflict(
                    f"{_named(extension)} and {owner} cannot both be at '{extension.artifact.file}'", field
                )
        placed[extension.id] = extension
        taken[place] = _named(extension)
    return tuple(placed.values())


def _named(extension: PlanExtension) -> str:
    variant = f" ({extension.variant})" if extension.variant else ""
    source = f" of module '{extension.module}'" if extension.module else ""
    return f"extension '{extension.id}'{variant}{source}"


def _conflict(message: str, field: str) -> Rejected:
    return Rejected(
        Code.EXTENSION_CONFLICT, message, hint="remove one, or give it another install_path", field=field
    )
