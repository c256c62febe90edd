"""Extensions: which files of installed modules go into the instances of a group, at which path, and which of
them conflict.

An extension has variants, each for some platforms and their versions; one without platforms is for any group,
also for one whose program is not in the catalog. Of those that match, a variant that names the group's
platform goes before one for any. Two that are equal in this are a tie, and a tie is refused: nothing is
chosen by chance.

Modules and their extensions are processed in the order of their ids, so the order of their installation makes
no difference.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from corral.domain.decisions import Alternative
from corral.domain.file_paths import check_path
from corral.domain.groups.group import ExtensionSpec
from corral.domain.groups.plans import PlanArtifact, PlanExtension
from corral.domain.modules.manifest import Extension, ExtensionVariant
from corral.domain.versions import Version, VersionRange, parse_range
from corral.errors import Code, Rejected, nearest

ALWAYS: Final = "always"
_NUMBERS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)*(?=\Z|[-+_])")
_FIELD: Final = "extensions"


class Program(msgspec.Struct, frozen=True):
    """The program of a group, as in the catalog; empty: not in the catalog."""

    platform: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.platform} {self.version}" if self.platform else "a program that is not of the catalog"


class ExtensionPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A module as far as instances are concerned."""

    module: str
    active: bool
    """Whether its intent is active. Whether its process runs does not matter: the extension is a file."""
    proven: bool = True
    """Whether its signature is valid. If not, a group that would get a file of it starts no instances,
    neither with it nor without it."""
    extensions: tuple[Extension, ...] = ()


class Added(NamedTuple):
    """Extensions that go to every group they match."""

    candidates: tuple[Candidate, ...]
    passed_over: tuple[Alternative, ...]


def requested_extension(
    spec: ExtensionSpec, packages: Iterable[ExtensionPackage], program: Program, *, field: str
) -> Candidate:
    """The extension that a group requests of a module. EXTENSION_NOT_FOUND when there is none, or no variant
    matches; EXTENSION_CONFLICT when two variants match equally well. A variant that is named is the only
    candidate."""
    package = _package(spec, packages, field)
    extension = next((each for each in package.extensions if each.id == spec.id), None)
    if extension is None:
        known = sorted(each.id for each in package.extensions)
        raise _not_found(
            f"module '{spec.module}' has no extension '{spec.id}'", _choices(spec.id, known), field=field
        )
    if spec.variant and spec.variant not in {each.id for each in extension.variants}:
        known = sorted(each.id for each in extension.variants)
        raise _not_found(
            f"extension '{spec.id}' of module '{spec.module}' has no variant '{spec.variant}'",
            _choices(spec.variant, known),
            field=f"{field}/variant",
        )
    variant = _chosen(package.module, extension, program, only=spec.variant, field=field)
    if variant is None:
        raise _not_found(_unfit(package.module, extension, program, spec.variant), _offer(extension), field)
    return _candidate(package, extension, variant, field)


def added_extensions(
    packages: Iterable[ExtensionPackage], program: Program, *, besides: Collection[tuple[str, str]]
) -> Added:
    """The extensions that active modules add to a group by themselves, without the (module, extension) pairs
    that the group requests. One that does not match is skipped, and reported. EXTENSION_CONFLICT for a tie.
    """
    candidates, passed_over = [], []
    for package in sorted(packages, key=lambda each: each.module):
        for extension in sorted(package.extensions, key=lambda each: each.id):
            if (
                not package.active
                or extension.activation != ALWAYS
                or (package.module, extension.id) in besides
            ):
                continue
            variant = _chosen(package.module, extension, program, field=_FIELD)
            if variant is not None:
                candidates.append(_candidate(package, extension, variant, _FIELD))
                continue
            subject = f"extension/{package.module}/{extension.id}"
            passed_over.append(Alternative(subject=subject, reason=f"no variant fits {program}"))
    return Added(tuple(candidates), tuple(passed_over))


def platform_version(text: str) -> Version | None:
    """The first three numbers of a version of the catalog, missing ones as 0: `1.21.4-232` and `1.21.4+b7`
    are 1.21.4, for the rest counts builds there. None when it does not begin with numbers (`24w14a`)."""
    found = _NUMBERS.match(text)
    if found is None:
        return None
    numbers = [int(part) for part in found[0].split(".")]
    major, minor, patch = [*numbers, 0, 0][:3]
    return Version(major, minor, patch)


def fits(variant: ExtensionVariant, program: Program) -> bool:
    """Whether this variant is for that program. A program without a version matches `*` alone."""
    if variant.platforms and program.platform not in variant.platforms:
        return False
    allowed, version = _range(variant.version_range), platform_version(program.version)
    return allowed.anything if version is None else allowed.allows(version)


def _chosen(
    module: str, extension: Extension, program: Program, *, only: str = "", field: str
) -> ExtensionVariant | None:
    """The best match; None: none matches."""
    fitting = [each for each in extension.variants if only in ("", each.id) and fits(each, program)]
    best = [each for each in fitting if each.platforms] or fitting
    if len(best) > 1:
        first, second = sorted(each.id for each in best)[:2]
        raise Rejected(
            Code.EXTENSION_CONFLICT,
            f"variants '{first}' and '{second}' of extension '{extension.id}' of module '{module}' "
            f"both fit {program}",
            hint=f'choose one: {{"id": "{extension.id}", "module": "{module}", "variant": "{first}"}} '
            "in the group's extensions; or have the module's ranges corrected",
            field=field,
        )
    return best[0] if best else None


def _candidate(
    package: ExtensionPackage, extension: Extension, variant: ExtensionVariant, field: str
) -> Candidate:
    if not package.proven:
        raise Rejected(
            Code.SIGNATURE_VERIFICATION_FAILED,
            f"extension '{extension.id}' is of module '{package.module}', whose signature does not hold",
            hint=f"install the module with one that does (corral module info {package.module}), or uninstall it",
            field=field,
        )
    artifact = PlanArtifact(file=check_path(variant.install_path, field=field), sha256=variant.sha256)
    planned = PlanExtension(id=extension.id, variant=variant.id, module=package.module, artifact=artifact)
    return Candidate(field=field, extension=planned, conflicts=extension.conflicts)


def _package(spec: ExtensionSpec, packages: Iterable[ExtensionPackage], field: str) -> ExtensionPackage:
    known = {each.module: each for each in packages}
    package = known.get(spec.module)
    if package is None:
        guess = nearest(spec.module, known)
        raise _not_found(
            f"extension '{spec.id}' is of module '{spec.module}', which is not installed",
            f"did you mean '{guess}'?"
            if guess
            else "install it first, or take the extension out of the group",
            f"{field}/module",
        )
    if not package.active:
        raise _not_found(
            f"extension '{spec.id}' is of module '{spec.module}', which is not active",
            f"activate or resume it (corral module info {spec.module}), "
            "or take the extension out of the group",
            f"{field}/module",
        )
    return package


def _unfit(module: str, extension: Extension, program: Program, only: str) -> str:
    what = f"variant '{only}'" if only else "no variant"
    verb = "does not fit" if only else "fits"
    return f"{what} of extension '{extension.id}' of module '{module}' {verb} {program}"


def _offer(extension: Extension) -> str:
    parts = [
        f"{each.id} (for {', '.join(each.platforms) or 'any program'} {each.version_range})"
        for each in sorted(extension.variants, key=lambda each: each.id)
    ]
    return f"it has: {'; '.join(parts)}"


def _choices(word: str, known: list[str]) -> str:
    guess = nearest(word, known)
    listed = f"it has: {', '.join(known)}" if known else "it has none"
    return f"did you mean '{guess}'? {listed}" if guess else listed


def _not_found(message: str, hint: str, field: str) -> Rejected:
    return Rejected(Code.EXTENSION_NOT_FOUND, message, hint=hint, field=field)


@functools.lru_cache(maxsize=1024)
def _range(text: str) -> VersionRange:
    return parse_range(text)


_Taken = dict[str, "str | _Taken"]
"""Whose each file is, by the parts of its path."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An extension for a plan."""

    field: str
    """Of the group's document, for refusals."""
    extension: PlanExtension
    conflicts: tuple[str, ...] = ()
    """Ids of extensions that it cannot be together with."""


def place_extensions(
    candidates: Sequence[Candidate], program: PlanArtifact | None
) -> tuple[PlanExtension, ...]:
    """The extensions in their order; one that is requested twice in the same way is installed once.

    EXTENSION_CONFLICT: one that another excludes, two variants of one extension, two files at one path, or a
    file where another needs a directory. Names are compared without case: some file systems do.
    """
    _refuse_conflicts(candidates)
    placed: dict[str, PlanExtension] = {}
    taken: _Taken = {}
    if program:
        _owner_at(taken, program.file, "the group's artifact")
    for candidate in candidates:
        extension, field = candidate.extension, candidate.field
        other = placed.get(extension.id)
        if other is not None:
            if (other.variant, other.artifact) == (extension.variant, extension.artifact):
                continue
            raise _clash(f"{named(extension)} and {named(other)} are the same extension, differently", field)
        place = extension.artifact.file
        if owner := _owner_at(taken, place, named(extension)):
            raise _clash(f"{named(extension)} and {owner} cannot both be at '{place}'", field)
        placed[extension.id] = extension
    return tuple(placed.values())


def _owner_at(taken: _Taken, path: str, owner: str) -> str:
    """Who has this path, a directory above it or something in it; empty: no extension had it, and the owner has it now."""
    *above, name = path.casefold().split("/")
    for part in above:
        here = taken.setdefault(part, {})
        if isinstance(here, str):
            return here
        taken = here
    found = taken.setdefault(name, "")
    while isinstance(found, dict):
        found = next(iter(found.values()))
    taken[name] = taken[name] or owner
    return found


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
