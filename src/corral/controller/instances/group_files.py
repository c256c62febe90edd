"""Writing of the files of a directory of group documents: durably, atomically, and restored when one of them fails."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import structlog
import yaml

from corral.domain.groups.document_sets import name_of
from corral.errors import Code, Rejected
from corral.system.document_limits import MOST_BYTES, MalformedDocument
from corral.system.document_sets import (
    document_files,
    documents_in,
    read_regular,
    shown_file,
)
from corral.system.yaml_edits import with_another, with_documents, without_document

_log = structlog.get_logger("corral.controller.groups")

_MODE: Final = 0o600
"""Of a new file: documents may hold secrets of an environment. A file that exists keeps its own."""
_TAKEN_OVER: Final = ".taken-over"
WRITING: Final = ".corral-writing"
"""What is being written, if that is more than one file."""
_LARGEST_RECORD: Final = 8 * MOST_BYTES
EMPTY: Final = ".corral-empty"
"""A file of ours in a directory whose last group was deleted over the API. Any other that is empty is refused: it may be
one that is not mounted."""


class GroupFileChange(NamedTuple):
    path: pathlib.Path
    name: str
    loaded: dict[str, Any] | None
    """What the file has to hold now; None: nothing of this group."""
    document: dict[str, Any] | None
    """None: it is removed."""
    listed: bool
    """Whether the directory has a document of this group."""
    new_owner: str = ""
    """Whose it is from now on, if it leaves the directory because of that."""


class _FormerFile(NamedTuple):
    """A file as it was."""

    content: bytes
    mode: int
    owner: int
    group: int
    link: str = ""
    """Where it leads, if it is a symbolic link."""


class _FileWrite(NamedTuple):
    """What becomes of one file."""

    path: pathlib.Path
    former: _FormerFile | None
    fresh: bytes | None
    """None: it is removed."""


def write_all(
    directory: pathlib.Path, changes: Iterable[GroupFileChange], others: Collection[str]
) -> dict[pathlib.Path, _FormerFile | None]:
    """Write the files, each once; what they were before. All are restored when one fails. If the controller is killed
    meanwhile, `finish_writing` writes the rest: all of them are written, or none. `others`: the files of the groups that
    are left."""
    before: dict[pathlib.Path, _FormerFile | None] = {}
    try:
        writes = _writes(directory, changes)
        _check_size(directory, writes)
        if len(writes) > 1:
            _record_writes(directory, writes)
        for each in writes:
            before[each.path] = each.former
            if each.fresh is None and not any(pathlib.Path(other).exists() for other in others):
                _replace(directory / EMPTY, b"", None)
            _replace(each.path, each.fresh, each.former)
            if each.fresh is not None:
                (directory / EMPTY).unlink(missing_ok=True)
    except OSError as error:
        restore(before)
        end_writing(directory)
        raise Rejected(
            Code.CONFLICT,
            f"the file of a group cannot be written: {error.strerror} ({shown_file(str(error.filename))})",
            hint="nothing was changed; make the directory writable for the controller",
        ) from error
    except BaseException:
        restore(before)
        end_writing(directory)
        raise
    return before


def _writes(directory: pathlib.Path, changes: Iterable[GroupFileChange]) -> list[_FileWrite]:
    """The files with all changes of their documents made; nothing is written yet."""
    writes: dict[pathlib.Path, _FileWrite] = {}
    by_file: dict[pathlib.Path, list[GroupFileChange]] = {}
    for change in changes:
        by_file.setdefault(change.path, []).append(change)
    for path, of_file in by_file.items():
        former = _former(of_file[0])
        fresh = _content(of_file, former.content if former else None)
        target = path if fresh is None else _target(directory, of_file[0])
        for change in of_file:
            if change.new_owner and former is not None:
                copy = _copy(change, former)
                writes[copy.path] = copy
                break
        writes[target] = _FileWrite(target, former, fresh)
    return list(writes.values())


def _record_writes(directory: pathlib.Path, writes: Iterable[_FileWrite]) -> None:
    """Record what is about to be written, in a file that is not loaded."""
    files = [
        [os.path.relpath(each.path, directory), None if each.fresh is None else each.fresh.decode()]
        for each in writes
    ]
    _replace(directory / WRITING, msgspec.json.encode(files), None)


def end_writing(directory: pathlib.Path) -> None:
    """All files are written, or restored."""
    (directory / WRITING).unlink(missing_ok=True)


def _recorded(path: pathlib.Path) -> bytes:
    """The record; it may be larger than what is loaded, for it quotes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_LARGEST_RECORD)


def finish_writing(directory: pathlib.Path) -> None:
    """Write what a controller that was killed had begun to write."""
    record = directory / WRITING
    if not record.exists():
        return
    try:
        files = msgspec.json.decode(_recorded(record), type=list[tuple[str, str | None]])
        inside = directory.resolve()
        paths = [directory / place for place, _ in files]
        for path in paths:
            if not path.parent.resolve().is_relative_to(inside):
                raise MalformedDocument(f"it names a file outside of the directory: {shown_file(str(path))}")
        for path, (_, content) in zip(paths, files, strict=True):
            former = _former(GroupFileChange(path, "", None, None, listed=True)) if path.exists() else None
            _replace(path, content.encode() if content is not None else None, former)
        _log.warning(
            "group_files.finished", count=len(files), reason="a controller was killed while it wrote them"
        )
    except (OSError, ValueError, Rejected, MalformedDocument) as error:
        _log.error("group_files.failed", file=str(record), reason=str(error))
        return
    end_writing(directory)


def added(change: GroupFileChange) -> int:
    return (change.document is not None) - change.listed


def _copy(change: GroupFileChange, former: _FormerFile) -> _FileWrite:
    """A copy of what an owner's document takes the place of, under a name that is not loaded."""
    copy = change.path.with_name(f"{change.path.name}{_TAKEN_OVER}")
    _log.warning(
        "group_file.skipped",
        file=str(change.path),
        group=change.name,
        copy=str(copy),
        reason=f"the group belongs to the owner '{change.new_owner}' from now on",
    )
    return _FileWrite(copy, _former(change._replace(path=copy)), former.content)


def _check_size(directory: pathlib.Path, writes: Iterable[_FileWrite]) -> None:
    """Refuse to make the directory larger than it may be when it is loaded."""
    more = sum(len(each.fresh or b"") - len(each.former.content if each.former else b"") for each in writes)
    if more <= 0:
        return
    size = 0
    for file in document_files(str(directory), may_be_empty=True):
        with contextlib.suppress(FileNotFoundError):  # a link to nowhere
            size += pathlib.Path(file).stat().st_size
    if size + more > MOST_BYTES:
        raise too_much(f"more than {MOST_BYTES >> 20} MiB")


def too_much(what: str) -> Rejected:
    return Rejected(
        Code.CONFLICT,
        f"the directory of groups would have {what}, and could not be loaded any more",
        hint="nothing was changed; delete groups that are not needed, or make their documents smaller",
    )


def _content(changes: Sequence[GroupFileChange], content: bytes | None) -> bytes | None:
    """A file with some of its documents replaced, added or left out; None: nothing is left in it."""
    file = str(changes[0].path)
    try:
        documents = (
            [each.body for each in documents_in(file, content.decode())] if content is not None else []
        )
    except (MalformedDocument, UnicodeDecodeError) as error:
        raise _edited(changes[0], f"cannot be read: {error}") from None
    text = content.decode() if content is not None else ""
    places: dict[str, int] = {}
    for at, each in enumerate(documents):
        if name := name_of(each):
            places.setdefault(name, at)
    kept: str | None = text if content is not None and not file.endswith(".json") else None
    changed: list[Any] = list(documents)
    edited = {
        places[each.name]: (each.loaded, each.document)
        for each in changes
        if each.name in places
        and each.loaded is not None
        and each.document is not None
        and documents[places[each.name]] == each.loaded
    }
    kept = with_documents(kept, edited) if kept is not None and edited else kept
    for change in sorted(
        changes, key=lambda each: -places.get(each.name, -1)
    ):  # the last first: places stay as they are
        place = places.get(change.name)
        present = documents[place] if place is not None else None
        if content is not None and present == change.document:
            continue
        if present != change.loaded:
            raise _edited(change, "was edited since it was loaded")
        if place not in edited:
            kept = _edited_text(kept, place, change) if kept is not None else None
        if place is not None:
            changed[place : place + 1] = [change.document] if change.document is not None else []
        elif change.document is not None:
            changed.append(change.document)
    if content is not None and changed == documents:
        return content
    if not changed:
        return None
    if file.endswith(".json"):
        whole: Any = changed[0] if len(changed) == 1 else changed
        return json.dumps(whole, indent=2, ensure_ascii=False).encode() + b"\n"
    if kept is not None and _holds(file, kept, changed):
        return kept.encode()
    if "#" in text:
        _log.warning("group_file_comments.lost", file=file, reason="the file had to be written whole")
    return yaml.safe_dump_all(changed, sort_keys=False, allow_unicode=True).encode()


def _edited_text(text: str, at: int | None, change: GroupFileChange) -> str | None:
    """The text with its comments; None: that cannot be done."""
    if change.document is None:
        return without_document(text, at) if at is not None else None
    return with_another(text, change.document) if at is None else None


def _holds(file: str, text: str, documents: list[Any]) -> bool:
    try:
        return [each.body for each in documents_in(file, text)] == documents
    except MalformedDocument:
        return False


def _edited(change: GroupFileChange, why: str) -> Rejected:
    return Rejected(
        Code.CONFLICT,
        f"the file of group '{change.name}', {shown_file(str(change.path))}, {why}",
        hint="nothing was changed; correct it and run 'corral group reload' first",
    )


def _target(directory: pathlib.Path, change: GroupFileChange) -> pathlib.Path:
    """The file that is written: of a link the one that it leads to, in the directory. A link is never replaced by a file:
    whoever edits what it leads to would not notice."""
    if not change.path.is_symlink():
        return change.path
    target = change.path.resolve()
    if target.is_relative_to(directory.resolve()):
        return target
    raise Rejected(
        Code.CONFLICT,
        f"the file of group '{change.name}', {shown_file(str(change.path))}, is a link to {shown_file(str(target))}, which is "
        "not in the directory of groups",
        hint="nothing was changed; edit the file there, then run 'corral group reload'",
    )


def _former(change: GroupFileChange) -> _FormerFile | None:
    path = change.path
    if not path.exists():
        if path.is_symlink():
            raise _edited(change, "is a link that leads nowhere")
        return None
    try:
        content, found = read_regular(str(path)), path.stat()
    except MalformedDocument as error:
        raise _edited(change, f"cannot be read: {error}") from None
    if len(content) > MOST_BYTES:
        raise _edited(change, f"has more than {MOST_BYTES >> 20} MiB")
    link = str(path.readlink()) if path.is_symlink() else ""
    return _FormerFile(content, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, link)


def _replace(path: pathlib.Path, content: bytes | None, former: _FormerFile | None) -> None:
    """Durably and atomically; None: remove it. It is as readable as the former one, and has its owner where we may give
    it away."""
    if content is None:
        path.unlink(missing_ok=True)
    else:
        temporary = path.with_name(f".{path.name}.new")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if former is not None:
                    for owner in ((-1, former.group), (former.owner, -1)):
                        with contextlib.suppress(OSError):
                            os.fchown(descriptor, *owner)
                    os.fchmod(descriptor, former.mode)
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def restore(before: Mapping[pathlib.Path, _FormerFile | None]) -> None:
    for path, former in before.items():
        try:
            if former is not None and former.link and not os.path.lexists(path):
                path.symlink_to(former.link)
            elif former is None or not path.exists() or path.read_bytes() != former.content:
                _replace(path, former.content if former else None, former)
        except OSError as error:
            _log.error("group_file.failed", file=str(path), reason=str(error))
