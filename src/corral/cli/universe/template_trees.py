"""Files of the templates in a folder, and how they differ from those that the controller has."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from corral.cli.api.client import Client
from corral.cli.failure import note
from corral.cli.template_files import TEMPLATES, send_template, template_path
from corral.cli.terminal.progress_line import Bar
from corral.cli.universe.folder import FoundDirectory
from corral.domain.file_paths import check_path
from corral.domain.templates import kept_mode
from corral.domain.universe.field_reports import FieldFault
from corral.errors import Rejected

MOST_FILES: Final = 200_000
"""Of all templates together."""
_LARGE: Final = 1 << 30
"""Bytes of a file from which on its reading is announced: it takes seconds."""
_NOTE: Final = "imported from Universe"
_PLAIN: Final = "a template has plain files and directories only: copy what it leads to, or take it away"


class TreeFile(NamedTuple):
    """A file as the controller lists it."""

    mode: str
    digest: str


class TemplateTree(NamedTuple):
    source: FoundDirectory
    files: dict[str, TreeFile]
    size: int
    has_empty: bool
    """It has empty directories, which the controller does not list."""


class TemplateUpload(NamedTuple):
    tree: TemplateTree
    action: str
    """`created`, `changed` or `unchanged`."""


def read_trees(sources: Sequence[FoundDirectory], faults: list[FieldFault]) -> list[TemplateTree]:
    """Every file of these templates, read once for its digest. What could not be uploaded is added to `faults`."""
    left = MOST_FILES
    trees = []
    with Bar("reading templates", 0) as bar:
        for source in sources:
            reading = _Reading(source, faults, left, bar)
            trees.append(reading.tree())
            left -= len(trees[-1].files)
            if reading.too_many:
                fault = FieldFault(
                    source.source,
                    "",
                    f"the templates have more than {MOST_FILES} files",
                    "import them in parts",
                )
                faults.append(fault)
                break
    return trees


class _Reading:
    def __init__(self, source: FoundDirectory, faults: list[FieldFault], left: int, bar: Bar) -> None:
        self._source = source
        self._faults = faults
        self._left = left
        self._bar = bar
        self._size = 0
        self._has_empty = False
        self.too_many = False

    def tree(self) -> TemplateTree:
        files: dict[str, TreeFile] = {}
        waiting = [""]
        while waiting and not self.too_many:
            directory = waiting.pop()
            for path, is_directory in self._entries(directory):
                if is_directory:
                    waiting.append(path)
                elif (file := self._file(path)) is not None:
                    files[path] = file
        return TemplateTree(self._source, files, self._size, self._has_empty)

    def _entries(self, directory: str) -> Iterator[tuple[str, bool]]:
        """The paths in a directory, and whether they are directories themselves."""
        try:
            with os.scandir(self._source.path / directory) as found:
                names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in found}
        except OSError as error:
            self._fault(directory, f"cannot read it: {error.strerror}", "make it readable for this user")
            return
        self._has_empty = self._has_empty or (not names and bool(directory))
        self._left -= len(names)
        self.too_many = self.too_many or self._left < 0
        for name in sorted(names):
            path = f"{directory}/{name}".lstrip("/")
            if self._has_valid_path(path):
                yield path, names[name]

    def _has_valid_path(self, path: str) -> bool:
        try:
            check_path(path)
        except Rejected as error:
            self._fault(path, error.message, "rename it")
            return False
        return True

    def _file(self, path: str) -> TreeFile | None:
        place = self._source.path / path
        try:
            if place.is_symlink():
                self._fault(path, "it is a link", _PLAIN)
                return None
            descriptor = os.open(
                place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
            )
            with os.fdopen(descriptor, "rb") as file:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode):
                    self._fault(path, "it is no plain file", _PLAIN)
                    return None
                if found.st_size > _LARGE:
                    note(f"reading {self._source.source}/{path}: {found.st_size >> 30} GiB")
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            self._fault(path, f"cannot read it: {error.strerror}", "make it readable for this user")
            return None
        self._size += found.st_size
        self._bar.add(found.st_size)
        return TreeFile(f"{kept_mode(found.st_mode):o}", digest)

    def _fault(self, path: str, message: str, hint: str) -> None:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        self._faults.append(FieldFault(f"{self._source.source}/{shown}".rstrip("/"), "", message, hint))


def compared(client: Client, trees: Sequence[TemplateTree]) -> list[TemplateUpload]:
    """Each of them, and whether the controller has it so."""
    known = {str(each["name"]) for each in client.pages(TEMPLATES)} if trees else set()
    return [TemplateUpload(each, _action(client, each, known)) for each in trees]


def _action(client: Client, tree: TemplateTree, known: set[str]) -> str:
    name = tree.source.name
    if name not in known:
        return "created"
    listed: list[Any] = client.pages(template_path(name, "files"))
    there = {str(each["path"]): TreeFile(str(each["mode"]), str(each["digest"])) for each in listed}
    return "unchanged" if there == tree.files else "changed"


def uploaded(client: Client, change: TemplateUpload) -> TemplateUpload:
    """Upload a template unless the controller has it so."""
    if change.action == "unchanged" and not change.tree.has_empty:
        return change
    made = send_template(client, change.tree.source.name, str(change.tree.source.path), note=_NOTE)
    return (
        change._replace(action="unchanged")
        if made.get("unchanged")
        else change._replace(action="changed" if change.action == "unchanged" else change.action)
    )
