"""Layout of a working directory: which file comes from which layer. Pure.

Layers are laid in their order: a later one replaces files, unless it does not override; then existing files stay. Files
that the group configures to be merged keep all their layers, lowest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from corral.domain.file_paths import Globs
from corral.domain.templates import TemplateFile, TemplateManifest
from corral.errors import Code, Rejected


class FileLayer(NamedTuple):
    name: str
    manifest: TemplateManifest
    override: bool


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is made of several, the one with the highest precedence last."""

    path: str
    mode: int
    parts: tuple[TemplateFile, ...]


class TreeLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Every file once, and every directory, parents before their content."""

    directories: tuple[str, ...]
    copies: tuple[TemplateFile, ...]
    merges: tuple[Merge, ...] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.copies)

    @property
    def paths(self) -> frozenset[str]:
        return frozenset((*(file.path for file in self.copies), *(merge.path for merge in self.merges)))

    def only(self, paths: frozenset[str]) -> TreeLayout:
        """The layout of some of its files; directories are included with their files."""
        copies = tuple(file for file in self.copies if file.path in paths)
        merges = tuple(merge for merge in self.merges if merge.path in paths)
        found = [*(file.path for file in copies), *(merge.path for merge in merges)]
        return TreeLayout(directories=directories_of(found, ()), copies=copies, merges=merges)


def lay_out(layers: Sequence[FileLayer], merge: Globs) -> TreeLayout:
    """Compute the layout; PATH_REFUSED when a layer has a file where another has a directory."""
    winners: dict[str, list[TemplateFile]] = {}
    bare: set[str] = set()
    for layer in layers:
        bare.update(layer.manifest.directories)
        for file in layer.manifest.files:
            present = winners.get(file.path)
            if present is None:
                winners[file.path] = [file]
            elif merge and merge.matches(file.path):
                # A layer that does not override goes below all existing ones.
                present.insert(len(present) if layer.override else 0, file)
            elif layer.override:
                winners[file.path] = [file]
    directories = directories_of(winners, bare)
    for path in directories:
        if path in winners:
            raise Rejected(
                Code.PATH_REFUSED,
                f"'{path}' is a file in one template and a directory in another",
                hint="rename one of them",
                field="templates",
            )
    return TreeLayout(
        directories=directories,
        copies=tuple(files[0] for files in winners.values() if len(files) == 1),
        merges=tuple(
            Merge(path=path, mode=files[-1].mode, parts=tuple(files))
            for path, files in winners.items()
            if len(files) > 1
        ),
    )


def directories_of(files: Iterable[str], bare: Iterable[str]) -> tuple[str, ...]:
    """The directories `bare` and every one above them and above these files, parents first."""
    found: set[str] = set()
    for path in (*bare, *(file.rpartition("/")[0] for file in files)):
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return tuple(sorted(found, key=lambda path: (path.count("/"), path)))
