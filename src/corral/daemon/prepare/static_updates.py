"""Update of a static directory at a later start: which files it replaces or adds, which it keeps, and why.

A file is replaced when what templates and artifacts give for it has changed, a variable's value included, and it is
still as it was laid. It is added when it was never laid and nothing is at its path. Everything else stays as it is. In
a directory without a record of what was laid nothing is replaced or added; files that equal those of its templates
count as laid from then on.
"""

from __future__ import annotations

import contextlib
import enum
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from corral.daemon.config_files.no_follow import read_beneath
from corral.daemon.config_files.patches import patched
from corral.daemon.prepare.static_seeds import (
    Digests,
    Laid,
    OfferedFile,
    Seed,
    laid_from,
    plain_digest,
    same_content,
    seed_of,
    with_coming,
)
from corral.daemon.prepare.static_trees import StaticTree
from corral.daemon.prepare.substitution import Rendered
from corral.daemon.workload.run_secrets import patched_with_secrets
from corral.daemon.workload.variable_values import Values
from corral.domain.groups.group import PatchSpec
from corral.domain.groups.plans import Plan
from corral.errors import CorralError
from corral.system.trees.entries import entry_at, is_missing, open_beneath, open_tree

_VALUE_SHOWN: Final = 60


class _Why(enum.StrEnum):
    EDITED = "it was changed since it was laid"
    OWN = "it was there before a template had it"
    UNKNOWN = "there was no record of what was laid"
    GONE = "it was laid once and removed since"


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The action for each file that templates and artifacts have."""

    lay: frozenset[str] = frozenset()
    """Replaced or added."""
    compare: frozenset[str] = frozenset()
    """Kept, unless they equal what would be laid."""
    gone: frozenset[str] = frozenset()
    """Missing, and not laid again."""


class StaticChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The result for templates and artifacts at this start; empty when they were not compared."""

    choice: Choice = Choice()
    offered: dict[str, OfferedFile] = {}
    rendered: Rendered = Rendered()
    equal: frozenset[str] = frozenset()
    """The compared files that equal what would be laid."""
    directories: tuple[str, ...] = ()


class StaticUpdate:
    """One later start of one directory. Every method blocks."""

    def __init__(self, tree: StaticTree, plan: Plan, values: Values, digests: Digests) -> None:
        self._tree = tree
        self._plan = plan
        self._values = values
        self._digests = digests
        stored = tree.seed()
        self.adopts = stored is None or stored.files is None
        """It is unknown what was laid: nothing is replaced or added."""
        self._stored = stored or Seed()
        self._files: dict[str, Laid] = dict(self._settled(self._stored.files or {}))
        """The record of each file before this start."""
        self._patched_secrets = patched_with_secrets(plan)

    @property
    def needs_layers(self) -> bool:
        """Whether templates and artifacts have to be compared. Not when they and all values are the same, and all their
        files were laid."""
        before = self._stored
        if self.adopts or before.kept or self._files != before.files:
            return True
        return not before.same_plan(seed_of(self._plan)) or any(
            known.is_outdated(self._values, self._digests)
            for path, known in self._files.items()
            if not self._tree.protects(path)
        )

    def choose(self, offered: Mapping[str, OfferedFile]) -> Choice:
        lay, compare, gone = set(), set(), set()
        with open_tree(self._tree.path) as root:
            for path, offer in offered.items():
                known, missing = self._files.get(path), is_missing(root, path)
                if self._is_current(known, offer) or (self._tree.protects(path) and not missing):
                    continue
                if missing and (self.adopts or (known is not None and _was_laid(known))):
                    gone.add(path)
                elif missing or (known is not None and self._is_as_laid(root, path, known)):
                    lay.add(path)
                else:
                    compare.add(path)
        return Choice(lay=frozenset(lay), compare=frozenset(compare), gone=frozenset(gone))

    def made_aside(self, choice: Choice, offered: Mapping[str, OfferedFile]) -> frozenset[str]:
        """The files that have to be built: those that are laid, and the compared ones whose result is unknown."""
        patches = {patch.file for patch in self._plan.patches}
        unknown = {path for path in choice.compare if not offered[path].content or path in patches}
        return choice.lay | unknown

    def unedited(self, paths: Sequence[str]) -> frozenset[str]:
        """The given files that are as they were laid: a patch does not turn an edited file into a laid one."""
        with open_tree(self._tree.path) as root:
            return frozenset(
                path
                for path in paths
                if (known := self._files.get(path)) is not None and self._is_as_laid(root, path, known)
            )

    def equal(
        self, choice: Choice, offered: Mapping[str, OfferedFile], staged: pathlib.Path
    ) -> frozenset[str]:
        """The compared files that equal what would be laid, after their patches. Their staged copies are removed, so
        that only files to be laid are staged."""
        found = set()
        with open_tree(self._tree.path) as root, open_tree(staged) as aside:
            for path in choice.compare:
                made = not is_missing(aside, path)
                with contextlib.suppress(OSError, CorralError):
                    if self._is_offered(root, staged if made else None, path, offered[path]):
                        found.add(path)
        for path in choice.compare:
            (staged / path).unlink(missing_ok=True)
        return frozenset(found)

    def seed(self, staged: pathlib.Path, changes: StaticChanges, *, unedited: frozenset[str]) -> Seed:
        """The seed for when all staged files are in place."""
        choice, offered, rendered = changes.choice, changes.offered, changes.rendered
        files, kept = dict(self._files), {}
        with open_tree(staged) as aside, open_tree(self._tree.path) as root:
            for path in (*choice.lay, *changes.equal):
                top = root if is_missing(aside, path) else aside
                laid = self._digest(top, path, rendered)
                files[path] = laid_from(offered[path], path, rendered, self._values, self._digests, laid=laid)
            for path in choice.compare - changes.equal:
                files[path], kept[path] = self._kept(path, offered[path], rendered)
            for path in choice.gone:
                known = files.get(path, Laid())
                files[path] = laid_from(
                    offered[path], path, rendered, self._values, self._digests, laid=known.laid
                )
                kept[path] = (_Why.UNKNOWN if self.adopts else _Why.GONE).value
            for path in unedited - choice.lay - changes.equal:
                if not is_missing(aside, path):
                    files[path] = msgspec.structs.replace(
                        files[path], laid=self._digest(aside, path, rendered)
                    )
        for path in files.keys() - offered.keys() if offered else ():
            if files[path].filled:  # values in files that no template has any more change nothing
                files[path] = msgspec.structs.replace(files[path], source="", filled={})
        hidden = {path for path, known in files.items() if known.secrets} | {
            path for path in self._patched_secrets if path in files
        }
        return msgspec.structs.replace(
            seed_of(self._plan),
            files=files,
            directories=tuple(sorted({*self._stored.directories, *changes.directories})),
            hidden=tuple(sorted(hidden)),
            kept=kept,
        )

    def announce(self, seed: Seed, changed: Sequence[str]) -> None:
        """Record what these files are about to become."""
        coming = with_coming(self._files, seed.files or {}, changed)
        if not self.adopts and coming != self._files:
            self._tree.write_seed(msgspec.structs.replace(self._stored, files=coming))

    @property
    def stored(self) -> Seed:
        return self._stored

    def new_directories(self, directories: Sequence[str]) -> list[str]:
        """Directories that were never laid, parents first."""
        if self.adopts:
            return []
        known = set(self._stored.directories)
        return [path for path in directories if path not in known]

    def _settled(self, files: Mapping[str, Laid]) -> Iterator[tuple[str, Laid]]:
        """The records with the announced changes of an interrupted start resolved, done or not. The files it did lay
        come from templates that were not recorded, and are laid again."""
        coming = {path: known for path, known in files.items() if known.coming}
        yield from ((path, known) for path, known in files.items() if not known.coming)
        if not coming:
            return
        with open_tree(self._tree.path) as root:
            for path, known in coming.items():
                if self._has(root, path, known.coming):
                    yield path, msgspec.structs.replace(known, source="", laid=known.coming, coming="")
                elif known.laid or not is_missing(root, path):
                    yield path, msgspec.structs.replace(known, coming="")

    def _is_current(self, known: Laid | None, offer: OfferedFile) -> bool:
        return (
            known is not None
            and known.source == offer.source
            and not known.is_outdated(self._values, self._digests)
        )

    def _is_as_laid(self, root: int, path: str, known: Laid) -> bool:
        return self._has(root, path, known.laid)

    def _has(self, root: int, path: str, digest: str) -> bool:
        """Whether the directory has exactly this file. A link, or an unreadable file, does not count."""
        if not digest:
            return False
        try:
            with open_beneath(root, path) as descriptor:
                return self._digests.has_digest(descriptor, digest)
        except (OSError, CorralError):
            return False

    def _is_offered(self, root: int, staged: pathlib.Path | None, path: str, offer: OfferedFile) -> bool:
        patches = [patch for patch in self._plan.patches if patch.file == path]
        if staged is not None and patches:
            offered, there = read_beneath(staged, path), read_beneath(self._tree.path, path)
            return self._with_patches(offered, patches) == self._with_patches(there, patches)
        with open_beneath(root, path) as present:
            if staged is None:
                return self._is_made_of(present, offer.size, plain_digest(offer, 0))
            with open_tree(staged) as aside, open_beneath(aside, path) as made:
                return self._is_made_of(
                    present, os.fstat(made).st_size, self._digests.of_file(made, keyed=False)
                )

    def _is_made_of(self, present: int, size: int, digest: str) -> bool:
        """Whether a file has these bytes; one of another size is not read."""
        if os.fstat(present).st_size != size:
            return False
        return same_content(self._digests.of_file(present, keyed=False), digest)

    def _with_patches(self, content: bytes | None, patches: Sequence[PatchSpec]) -> bytes | None:
        for patch in patches:
            content = patched(content, patch, self._values.all)
        return content

    def _digest(self, top: int, path: str, rendered: Rendered) -> str:
        known = self._files.get(path, Laid())
        keyed = path in rendered.secrets or path in self._patched_secrets or bool(known.secrets)
        with open_beneath(top, path) as descriptor:
            return self._digests.of_file(descriptor, keyed=keyed)

    def _kept(self, path: str, offer: OfferedFile, rendered: Rendered) -> tuple[Laid, str]:
        """The new record of a file that is kept, and the reason why it is kept."""
        known = self._files.get(path)
        if self.adopts:
            return laid_from(offer, path, rendered, self._values, self._digests, laid=""), _Why.UNKNOWN.value
        if known is None or not _was_laid(known):
            return Laid(), _Why.OWN.value
        return known, _Why.EDITED.value + self._old_values(known)

    def _old_values(self, known: Laid) -> str:
        names = known.outdated_names(self._values, self._digests)
        values = ", ".join(self._old_value(name, known) for name in names)
        return f"; it was filled with {values}: a patch sets it at every start" if values else ""

    def _old_value(self, name: str, known: Laid) -> str:
        if name in known.secrets or name in self._values.secret:
            return f"another value of the secret {name}"
        old, new = known.filled.get(name), self._values.all.get(name)
        return f"{name}={_short(old)}, which is {_short(new)} now"


def _was_laid(known: Laid) -> bool:
    """Whether the file was laid, or counts as laid because it was missing when the record began; not a file that the
    directory had by itself."""
    return bool(known.source or known.laid)


def _short(value: str | None) -> str:
    if value is None:
        return "(not defined)"
    return value if len(value) <= _VALUE_SHOWN else f"{value[:_VALUE_SHOWN]}..."


def first_seed(
    staged: pathlib.Path,
    plan: Plan,
    offered: Mapping[str, OfferedFile],
    rendered: Rendered,
    values: Values,
    digests: Digests,
    directories: Sequence[str],
) -> Seed:
    """The seed of a new directory: every file is as it was laid. Blocks."""
    patches = {patch.file for patch in plan.patches}
    secret = patched_with_secrets(plan) | rendered.hidden
    files = {}
    with open_tree(staged) as root:
        for path, offer in offered.items():
            found = entry_at(root, path)
            if offer.content and path not in patches and found is not None:
                laid = plain_digest(offer, found.st_mode)  # not every file system stores the given modes
            else:
                with open_beneath(root, path) as descriptor:
                    laid = digests.of_file(descriptor, keyed=path in secret)
            files[path] = laid_from(offer, path, rendered, values, digests, laid=laid)
    return msgspec.structs.replace(
        seed_of(plan),
        files=files,
        directories=tuple(sorted(directories)),
        hidden=tuple(sorted(secret & files.keys())),
    )
