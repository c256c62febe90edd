"""Sets of group documents in files and directories: YAML streams and JSON, with the place of each document and field.

Fields may have the spellings of other systems; see `field_aliases`.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import stat
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from corral.domain.groups.field_aliases import with_field_names
from corral.errors import Code, Rejected

SUFFIXES: Final = (".yaml", ".yml", ".json")
MOST_BYTES: Final = 8 * 1024 * 1024
MOST_DOCUMENTS: Final = 1000
_MOST_FILES: Final = 10_000
_MOST_NODES: Final = 200_000
_DEEPEST: Final = 60
_SHOWN: Final = 300


class FileDocument(NamedTuple):
    """A document of a file."""

    path: str
    """The file and, if it has several, the line of the document."""
    body: Any
    file: str
    lines: Mapping[str, int]
    """The lines of its top-level fields, where they are known."""


class FileFault(NamedTuple):
    """A file that cannot be read, and where it goes wrong."""

    path: str
    message: str


class DocumentSet(NamedTuple):
    documents: list[FileDocument]
    faults: list[FileFault]


class Malformed(ValueError):
    """A file that is neither YAML nor JSON, or has what a document cannot have."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def _refused(message: str, *, hint: str | None = None) -> Rejected:
    return Rejected(Code.INVALID_FIELD, message, hint=hint)


def read_set(paths: tuple[str, ...], *, may_be_empty: bool = False) -> DocumentSet:
    """Every document of these files and directories ('-': stdin). Files are found recursively and read in the order of
    their names; hidden ones are left out. Rejected where there is too much to read, or nothing, unless it
    `may_be_empty`."""
    found = DocumentSet([], [])
    size = 0
    for file in [file for path in paths for file in document_files(path, may_be_empty)]:
        try:
            text = _text(file) if file in paths else read_regular(file)
            size += len(text)
            if size > MOST_BYTES:
                raise _refused(
                    f"the files have more than {MOST_BYTES >> 20} MiB in all", hint="apply them in parts"
                )
            found.documents.extend(documents_in(file, text.decode("utf-8")))
        except UnicodeDecodeError:
            found.faults.append(FileFault(file, "it is not text in UTF-8"))
        except Malformed as error:
            where = f"{file}:{error.line}" if error.line else file
            found.faults.append(FileFault(where, str(error)[:_SHOWN]))
        except OSError as error:
            found.faults.append(FileFault(file, f"cannot read it: {error.strerror}"))
    if len(found.documents) > MOST_DOCUMENTS:
        raise _refused(
            f"{len(found.documents)} documents are more than {MOST_DOCUMENTS}", hint="apply them in parts"
        )
    if not found.documents and not found.faults and not may_be_empty:
        raise _refused(f"there is no document in {', '.join(paths)}", hint="write 'name: lobby' and so on")
    return found


def document_files(path: str, may_be_empty: bool = False) -> Iterator[str]:
    if path == "-" or not pathlib.Path(path).is_dir():
        if path != "-" and not os.path.lexists(path):
            raise _refused(f"{path} does not exist", hint="give a file, a directory, or '-' for stdin")
        yield path
        return
    count = 0

    def fail(error: OSError) -> None:
        raise _refused(f"cannot read {error.filename}: {error.strerror}")

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
    """A file that was found in a directory. Malformed: a pipe or a device, which might have no end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Malformed("it is no regular file")
        return file.read(MOST_BYTES + 1)


def documents_in(file: str, text: str) -> list[FileDocument]:
    if not file.endswith(SUFFIXES[:2]):
        try:
            found = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            if file.endswith(SUFFIXES[2]):
                raise Malformed(f"it is not JSON: {error.msg}", error.lineno) from None
        except RecursionError:
            raise Malformed("it is nested too deeply") from None
        else:
            bodies = found if isinstance(found, list) else [found]
            return [_document(file, number, body, {}) for number, body in enumerate(bodies)]
    return _yaml_documents(file, text)


def _document(file: str, number: int, body: Any, lines: Mapping[str, int], line: int = 0) -> FileDocument:
    path = f"{file}:{line}" if line else f"{file}[{number}]" if number else file
    try:
        found = with_field_names(_writable(body))
    except Rejected as error:
        raise Malformed(f"{error.message}; {error.hint}", line) from None
    return FileDocument(path, found, file, lines)


def _writable(body: Any) -> Any:
    """Without what the API adds to a group that was read."""
    if not isinstance(body, dict):
        return body
    return {key: value for key, value in body.items() if key not in ("status", "revision")}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        times = collections.Counter([key for key, _ in pairs])
        twice = next(key for key, count in times.items() if count > 1)
        raise Malformed(f"the key '{twice[:80]}' stands twice in one object")
    return found


def _refuse_constant(text: str) -> None:
    raise Malformed(f"{text} is no value of JSON")


def _yaml_documents(file: str, text: str) -> list[FileDocument]:
    import yaml  # half of our start-up budget, and JSON needs none of it

    class Loader(yaml.SafeLoader):
        """Times stay the text that they are."""

        yaml_implicit_resolvers = {  # noqa: RUF012 - as the base class has it
            sign: [each for each in rules if each[0] != "tag:yaml.org,2002:timestamp"]
            for sign, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    try:
        loader = Loader(text)
    except yaml.YAMLError as error:
        raise Malformed(f"it is not YAML: {' '.join(str(error).split())}") from None
    documents: list[FileDocument] = []
    try:
        nodes: list[Any] = []
        while loader.check_node():
            nodes.append(loader.get_node())
        nodes = [node for node in nodes if node.tag != "tag:yaml.org,2002:null"]
        for node in nodes:
            _check_node(node, {}, 0)
            line = node.start_mark.line + 1 if len(nodes) > 1 else 0
            body = loader.construct_document(node)
            many = body if isinstance(body, list) else [body]
            lines = {} if isinstance(body, list) else _lines(node)
            documents += [_document(file, number, each, lines, line) for number, each in enumerate(many)]
        json.dumps([each.body for each in documents], allow_nan=False)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(error.problem or error.context or "it cannot be read").split())
        raise Malformed(f"it is not YAML: {problem}", mark.line + 1 if mark else 0) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise Malformed(f"it is not YAML: {' '.join(str(error).split())}") from None
    except Malformed:
        raise
    except (TypeError, ValueError) as error:
        raise Malformed(f"it holds a value that JSON does not have: {error}") from None
    finally:
        loader.dispose()
    return documents


def _lines(node: Any) -> dict[str, int]:
    return {str(key.value): key.start_mark.line + 1 for key, _ in node.value} if node.id == "mapping" else {}


def _check_node(node: Any, known: dict[int, int], depth: int) -> int:
    """Refuse a key that stands twice or is no text, and what becomes too large by its references; the number of nodes.
    `on` and other words for truth values are names where they are keys."""
    line = node.start_mark.line + 1
    if depth > _DEEPEST:
        raise Malformed("it is nested too deeply", line)
    if id(node) in known:
        return known[id(node)]
    count = 1
    if node.id == "mapping":
        seen: set[str] = set()
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:bool":
                key.tag = "tag:yaml.org,2002:str"
            if key.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
                raise Malformed("a key is no text: put it in quotes", key.start_mark.line + 1)
            if key.value in seen:
                raise Malformed(
                    f"the key '{key.value[:80]}' stands twice in one object", key.start_mark.line + 1
                )
            seen.add(key.value)
            count += 1 + _check_node(value, known, depth + 1)
    elif node.id == "sequence":
        count += sum(_check_node(each, known, depth + 1) for each in node.value)
    if count > _MOST_NODES:
        raise Malformed(f"it has more than {_MOST_NODES} values, references included", line)
    known[id(node)] = count
    return count
