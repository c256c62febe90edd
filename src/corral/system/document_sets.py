"""Sets of group documents in files and directories: YAML streams and JSON, with the place of each document and field.

Fields may have the spellings of other systems; see `field_aliases`.
"""

from __future__ import annotations

import json
import os
import pathlib
import stat
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from corral.domain.groups.field_aliases import with_field_names
from corral.errors import Code, Rejected
from corral.system.document_limits import MOST_BYTES, MOST_DOCUMENTS, MalformedDocument, ValueTally
from corral.system.json_values import json_value
from corral.system.yaml_values import LocatedDocument, yaml_documents

SUFFIXES: Final = (".yaml", ".yml", ".json")
_MOST_FILES: Final = 10_000
_MOST_VALUES_OF_SET: Final = 400_000
_MOST_LOOKED_AT: Final = 2 * _MOST_VALUES_OF_SET
_SHOWN: Final = 300


class FileDocument(NamedTuple):
    """A document of a file."""

    path: str
    """To be shown: the file and, if it has several, the line of the document."""
    body: Any
    file: str
    lines: Mapping[str, int]
    """The lines of its top-level fields, where they are known."""


class FileFault(NamedTuple):
    """A file that cannot be read, and where it goes wrong."""

    path: str
    """To be shown: the file and, if it is known, the line."""
    message: str
    file: str


class DocumentSet(NamedTuple):
    documents: list[FileDocument]
    faults: list[FileFault]


def _refused(message: str, *, hint: str | None = None) -> Rejected:
    return Rejected(Code.INVALID_FIELD, message, hint=hint)


def read_set(paths: tuple[str, ...], *, may_be_empty: bool = False, from_pipes: bool = True) -> DocumentSet:
    """Every document of these files and directories ('-': stdin). Files are found recursively and read in the order of
    their names; hidden ones are left out. Rejected where there is too much to read, or nothing, unless it
    `may_be_empty`. `from_pipes`: these paths may be pipes and devices; without it they are regular files, too."""
    found = DocumentSet([], [])
    size = 0
    room = _Room()
    for file in [file for path in paths for file in document_files(path, may_be_empty)]:
        tally = ValueTally()
        content = b""
        try:
            content = _text(file) if from_pipes and file in paths else read_regular(file)
            size += len(content)
            if size > MOST_BYTES:
                raise _refused(
                    f"the files have more than {MOST_BYTES >> 20} MiB in all", hint="apply them in parts"
                )
            room.check()
            found.documents.extend(documents_in(file, content.decode("utf-8"), tally))
            room.take(tally)
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            found.faults.append(_fault(file, "it is not text in UTF-8; save it as such", line))
        except MalformedDocument as error:
            found.faults.append(_fault(file, str(error)[:_SHOWN], error.line))
        except OSError as error:
            found.faults.append(_fault(file, f"cannot read it: {error.strerror}"))
        room.looked_at += tally.values
    if len(found.documents) > MOST_DOCUMENTS:
        raise _refused(
            f"{len(found.documents)} documents are more than {MOST_DOCUMENTS}", hint="apply them in parts"
        )
    if not found.documents and not found.faults and not may_be_empty:
        raise _refused(f"there is no document in {', '.join(paths)}", hint="write 'name: lobby' and so on")
    return found


def _fault(file: str, message: str, line: int = 0) -> FileFault:
    return FileFault(shown_file(file, line), message, file)


def shown_file(file: str, line: int = 0) -> str:
    """The name of a file and a line of it, without what would steer a terminal, break a line, or is no text."""
    name = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in file)
    return f"{name}:{line}" if line else name


class _Room:
    """What the files before have: one behind too much of it is not read. A file that is refused takes no room from the
    others, as long as there are few of them."""

    def __init__(self) -> None:
        self._taken = ValueTally()
        self.looked_at = 0
        """Values of all files, those that are refused included."""

    def take(self, tally: ValueTally) -> None:
        self._taken.values += tally.values
        self._taken.size += tally.size

    def check(self) -> None:
        taken = self._taken
        if taken.size > MOST_BYTES:
            much = f"{taken.size >> 20} MiB of text"
        elif taken.values > _MOST_VALUES_OF_SET:
            much = f"{taken.values} values"
        elif self.looked_at > _MOST_LOOKED_AT:
            much = f"{self.looked_at} values"
        else:
            return
        raise MalformedDocument(
            f"it is not read, for the files before it have {much}, references included; make them smaller"
        )


def document_files(path: str, may_be_empty: bool = False) -> Iterator[str]:
    if path == "-" or not pathlib.Path(path).is_dir():
        if path != "-" and not os.path.lexists(path):
            raise _refused(f"{path} does not exist", hint="give a file, a directory, or '-' for stdin")
        yield path
        return
    count = 0

    def fail(error: OSError) -> None:
        raise _refused(f"cannot read {shown_file(str(error.filename))}: {error.strerror}")

    for directory, directories, files in os.walk(path, onerror=fail):
        directories[:] = sorted(each for each in directories if not each.startswith("."))
        for name in sorted(files):
            if name.startswith(".") or not name.endswith(SUFFIXES):
                continue
            count += 1
            if count > _MOST_FILES:
                raise _refused(f"{path} has more than {_MOST_FILES} files")
            yield str(pathlib.Path(directory, name))
    if not count and not may_be_empty:
        raise _refused(
            f"{path} has no documents", hint=f"files end with {', '.join(SUFFIXES)}; hidden ones are left out"
        )


def _text(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read(MOST_BYTES + 1)
    with pathlib.Path(path).open("rb") as file:
        return file.read(MOST_BYTES + 1)


def read_regular(path: str) -> bytes:
    """A file that an operator has not named. MalformedDocument: a pipe or a device, which might have no end, or one too large."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):  # a directory cannot even be made a file object
        os.close(descriptor)
        raise MalformedDocument("it is no regular file")
    with os.fdopen(descriptor, "rb") as file:
        if found.st_size > MOST_BYTES:
            raise MalformedDocument(f"it has more than {MOST_BYTES >> 20} MiB; split it into several files")
        return file.read(MOST_BYTES + 1)


def documents_in(file: str, text: str, tally: ValueTally | None = None) -> list[FileDocument]:
    """MalformedDocument, with the line, whatever a text is that has no documents. `tally`: counts what it has."""
    several = bodies_in(file, text, tally or ValueTally())
    documents: list[FileDocument] = []
    for each in several:
        bodies = each.body if isinstance(each.body, list) else [each.body]
        lines = {} if isinstance(each.body, list) else each.lines
        line = each.line if len(several) > 1 else 0
        documents += [_document(file, number, body, lines, line) for number, body in enumerate(bodies)]
    return documents


def bodies_in(file: str, text: str, tally: ValueTally) -> list[LocatedDocument]:
    """The documents of a text that is YAML or JSON, by the name of its file, as they are written."""
    if file.endswith(SUFFIXES[2]) or (not file.endswith(SUFFIXES) and text.lstrip()[:1] in ("{", "[")):
        try:
            return [LocatedDocument(json_value(text, tally), 0, {})]
        except json.JSONDecodeError as error:
            if file.endswith(SUFFIXES[2]):
                raise MalformedDocument(f"it is not JSON: {error.msg}", error.lineno) from None
        tally.reset()
    return yaml_documents(text, tally)


def _document(file: str, number: int, body: Any, lines: Mapping[str, int], line: int = 0) -> FileDocument:
    path = shown_file(file, line) + (f"[{number}]" if number else "")
    try:
        found = with_field_names(_writable(body))
    except Rejected as error:
        raise MalformedDocument(f"{error.message}; {error.hint}", line) from None
    return FileDocument(path, found, file, lines)


def _writable(body: Any) -> Any:
    """Without what the API adds to a group that was read."""
    if not isinstance(body, dict):
        return body
    return {key: value for key, value in body.items() if key not in ("status", "revision")}
