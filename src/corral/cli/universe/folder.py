"""Folder of a Universe node: its files read with bounds, its templates and static directories found.

Nothing outside of the folder is read: a link that leads out of it is a fault. What is no part of an import is listed.
"""

from __future__ import annotations

import json
import os
import pathlib
import stat
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from corral.cli.failure import WrongUsage
from corral.domain.json_limits import MAX_DEPTH, json_deeper_than
from corral.domain.templates import template_name
from corral.domain.universe.field_reports import FieldAction, FieldFault, FieldReport, name_faults
from corral.errors import Rejected
from corral.system.document_limits import MalformedDocument, ValueTally
from corral.system.document_sets import read_regular
from corral.system.json_values import json_value

CONFIG: Final = "config.json"
DATABASE: Final = "database.json"
CONFIGURATIONS: Final = "configuration"
TEMPLATES: Final = "templates"
STATIC: Final = "static"
MOST_BYTES: Final = 1024 * 1024
MOST_BYTES_IN_ALL: Final = 8 * 1024 * 1024
MOST_ENTRIES: Final = 1000
"""Entries of one directory of the folder: configurations, templates of a group, static directories."""
MOST_TEMPLATES: Final = 10_000
_PARTS: Final = (CONFIG, DATABASE, CONFIGURATIONS, TEMPLATES, STATIC)
_REASONS: Final = {
    "running": "working directories are made anew at each start",
    "extensions": "extensions for Universe's own machine do not run here: see 'corral module'",
    "logs": "logs are not carried over",
}
_CORRECT: Final = "correct it, or take the file away"
_RENAME: Final = "give one of them another name"


class JsonFile(NamedTuple):
    file: str
    """Its path in the folder."""
    value: Any


class FoundDirectory(NamedTuple):
    """A template, or a static directory."""

    source: str
    """Its path in the folder."""
    name: str
    """Its name here, in small letters."""
    path: pathlib.Path


class UniverseFolder:
    """Everything of a folder that an import looks at. `faults` has what could not be read."""

    def __init__(self, directory: str) -> None:
        """WrongUsage: there is no such folder."""
        self.root = pathlib.Path(directory).expanduser()
        if not self.root.is_dir():
            raise WrongUsage(f"{directory} is no directory", hint="give the folder in which Universe runs")
        self._real = self.root.resolve()
        self._size = 0
        self._tally = ValueTally()
        self.faults: list[FieldFault] = []
        self.reports: list[FieldReport] = []
        """Entries of the folder that become something, or that are dropped."""
        names = [each for each, _ in self._entries("")]
        if not set(names) & set(_PARTS) and not self.faults:
            raise WrongUsage(
                f"{directory} is no folder of Universe: it has none of {', '.join(_PARTS)}",
                hint="give the folder in which Universe runs",
            )
        self.config = self._json(CONFIG) if CONFIG in names else None
        self.database = self._json(DATABASE) if DATABASE in names else None
        self.configurations = self._configurations() if CONFIGURATIONS in names else []
        self.templates = self._templates() if TEMPLATES in names else []
        self.static = self._static() if STATIC in names else []
        for name in names:
            if name not in _PARTS:
                self._drop(name, _REASONS.get(name, "no part of an import"))

    def _entries(self, place: str) -> list[tuple[str, str]]:
        """The entries of a directory of the folder, by name, each with its path; none where it cannot be read."""
        path = self.root / place
        if place and not self._is_directory(place):
            return []
        try:
            with os.scandir(path) as found:
                names = [entry.name for entry, _ in zip(found, range(MOST_ENTRIES + 1), strict=False)]
        except OSError as error:
            self._fault(place, f"cannot read it: {error.strerror}", "make it readable for this user")
            return []
        if len(names) > MOST_ENTRIES:
            self._fault(place, f"it has more than {MOST_ENTRIES} entries", "import it in parts")
            return []
        return [(name, f"{place}/{name}".lstrip("/")) for name in sorted(names) if self._is_text(place, name)]

    def _is_text(self, place: str, name: str) -> bool:
        try:
            name.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(name).decode(errors="backslashreplace")
            self._fault(f"{place}/{shown}".lstrip("/"), "its name is not UTF-8", "rename it, or take it away")
            return False
        return True

    def _is_directory(self, place: str) -> bool:
        """False, with a fault, for something else, and for a link out of the folder."""
        if not self._is_inside(place):
            return False
        if not (self.root / place).is_dir():
            self._fault(place, "it is no directory", "it has to be one")
            return False
        return True

    def _is_inside(self, place: str) -> bool:
        path = self.root / place
        if not path.is_symlink():
            return True
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            self._fault(place, "it is a link that leads nowhere", "take it away")
            return False
        if real.is_relative_to(self._real):
            return True
        self._fault(place, "it is a link that leads out of the folder", "copy what it leads to in its place")
        return False

    def _json(self, file: str) -> JsonFile | None:
        if not self._is_inside(file):
            return None
        try:
            raw = read_regular(str(self.root / file))
            self._size += len(raw)
            if len(raw) > MOST_BYTES:
                raise MalformedDocument(f"it has more than {MOST_BYTES >> 20} MiB")
            if json_deeper_than(raw, MAX_DEPTH):
                raise MalformedDocument(f"it is nested deeper than {MAX_DEPTH} levels")
            value = json_value(raw.decode("utf-8-sig"), self._tally)
        except OSError as error:
            self._fault(file, f"cannot read it: {error.strerror}", "make it readable for this user")
        except UnicodeDecodeError:
            self._fault(file, "it is not text in UTF-8", "save it as UTF-8")
        except json.JSONDecodeError as error:
            self._fault(f"{file}:{error.lineno}", f"it is not JSON: {error.msg}", _CORRECT)
        except MalformedDocument as error:
            self._fault(f"{file}:{error.line}" if error.line else file, str(error), _CORRECT)
        else:
            return JsonFile(file, value)
        return None

    def _configurations(self) -> list[JsonFile]:
        found = []
        for name, file in self._entries(CONFIGURATIONS):
            if not name.endswith(".json") or name.startswith("."):
                self._drop(file, "no configuration: those are NAME.json")
            elif self._size > MOST_BYTES_IN_ALL:
                self._fault(
                    file, f"the files have more than {MOST_BYTES_IN_ALL >> 20} MiB", "import in parts"
                )
                break
            elif (read := self._json(file)) is not None:
                found.append(read)
        return found

    def _templates(self) -> list[FoundDirectory]:
        found: list[FoundDirectory] = []
        for group, place in self._entries(TEMPLATES):
            if not self._is_plain_directory(place, group, "no template: those are templates/GROUP/NAME/"):
                continue
            for name, source in self._entries(place):
                if self._is_plain_directory(source, name, "no template: those are templates/GROUP/NAME/"):
                    found.extend(self._template(f"{group}/{name}", source))
        if len(found) > MOST_TEMPLATES:
            self._fault(TEMPLATES, f"it has more than {MOST_TEMPLATES} templates", "import them in parts")
        self.faults += name_faults("template", ((each.source, each.name) for each in found), _RENAME)
        return found

    def _template(self, written: str, source: str) -> Iterator[FoundDirectory]:
        try:
            name = template_name(written.lower())
        except Rejected as error:
            self._fault(source, f"'{written}' cannot be the name of a template", str(error.hint))
            return
        changed = name != written
        self.reports.append(
            FieldReport(
                file=source,
                field="",
                action=FieldAction.MAPPED if changed else FieldAction.TAKEN,
                to=f"template {name}",
                note=f"'{written}' is '{name}' here: names have small letters" if changed else "",
            )
        )
        yield FoundDirectory(source, name, self.root / source)

    def _static(self) -> list[FoundDirectory]:
        found = [
            FoundDirectory(source, name.lower(), self.root / source)
            for name, source in self._entries(STATIC)
            if self._is_plain_directory(source, name, "no static directory")
        ]
        self.faults += name_faults("static directory", ((each.source, each.name) for each in found), _RENAME)
        return found

    def _is_plain_directory(self, place: str, name: str, otherwise: str) -> bool:
        """False, reported as dropped, for files and hidden directories; a link is a fault."""
        try:
            mode = (self.root / place).lstat().st_mode
        except OSError as error:
            self._fault(place, f"cannot read it: {error.strerror}", "make it readable for this user")
            return False
        if stat.S_ISLNK(mode):
            if self._is_inside(place):
                self._fault(place, "it is a link", "copy what it leads to in its place")
            return False
        if name.startswith(".") or not stat.S_ISDIR(mode):
            self._drop(place, otherwise)
            return False
        return True

    def _drop(self, place: str, why: str) -> None:
        self.reports.append(FieldReport(file=place, field="", action=FieldAction.DROPPED, note=why))

    def _fault(self, place: str, message: str, hint: str) -> None:
        self.faults.append(FieldFault(place or str(self.root), "", message, hint))
