"""`corral instance pull`: files and directories of an instance, to here."""

from __future__ import annotations

import errno
import hashlib
import os
import pathlib
import stat
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from corral.cli.api.client import Params
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandFailure, WrongUsage, note, printable
from corral.cli.instance.file_changes import files_path
from corral.cli.terminal.output import show_done
from corral.cli.terminal.progress_line import ProgressLine
from corral.errors import counted, short_list

if TYPE_CHECKING:
    from corral.archives.entries import ArchiveEntry

_PAGE: Final = 5000
_MOST_BYTES: Final = 1024**4
"""Of a directory that is unpacked here; the controller has limits of its own."""
_MOST_ENTRIES: Final = 1_000_000
_NAMED: Final = 20


def listed(session: ApiSession, id: str, params: Params) -> Iterator[dict[str, Any]]:
    """All entries of a directory, page by page."""
    asked, count = {"limit": _PAGE, **params}, 0
    while True:
        page = session.client.get(files_path(id), asked)
        items = page.get("items") or []
        yield from items
        count += max(1, len(items))
        if count > _MOST_ENTRIES or page.get("next") == asked.get("cursor", ""):
            raise CommandFailure("the list does not end", hint="name a directory in it")
        if not page.get("next"):
            if page.get("truncated"):
                note(
                    "this is not all: directories that are closed to the node, or very deep, are not looked into"
                )
            return
        asked["cursor"] = page["next"]


@click.command("pull")
@click.argument("id")
@click.argument("path")
@click.argument("target", required=False, metavar="[TARGET]")
@click.option("--replace", is_flag=True, help="Replace files here that differ, without asking.")
@api_command
def pull(session: ApiSession, id: str, path: str, target: str | None, replace: bool) -> None:
    """Fetch a file or a directory; '.' is everything.

    Links, and files that have a second name, are left out of a directory, and named.
    """
    path = "" if path in (".", "/") else path.rstrip("/")
    entry: dict[str, Any] = {"kind": "directory"}
    if path:
        entry = session.client.get(files_path(id, "stat"), {"path": path})
    name = pathlib.PurePosixPath(path).name or id
    place = pathlib.Path(target or name).expanduser()
    if entry["kind"] == "directory":
        count, left_out = _pull_directory(session, id, path, place, replace=replace)
        done: dict[str, Any] = {
            "path": path or ".",
            "target": str(place),
            "files": count,
            "left_out": left_out,
        }
        sentence = f"{counted(count, 'file')} fetched into {place}"
    else:
        place = place / name if place.is_dir() else place
        same = place.is_file() and entry.get("digest") == digest_of(place)
        if place.is_file() and not same and not replace:
            _confirm_replaced([str(place)])
        size = _pull_file(session, id, path, place)
        if is_executable_there(entry) and place.is_file():
            _make_executable(place)
        done = {"path": path, "target": str(place), "size": size}
        sentence = f"'{path}' fetched into {place}"
    show_done(session.output, done, sentence, name="target")


def is_executable_there(entry: dict[str, Any]) -> bool:
    """Whether an entry of a listing is; False where its node does not tell."""
    mode = str(entry.get("mode") or "0")
    return mode.isdecimal() and "8" not in mode and "9" not in mode and bool(int(mode, 8) & stat.S_IXUSR)


def _make_executable(place: pathlib.Path) -> None:
    """For everybody who may read it."""
    mode = stat.S_IMODE(place.stat().st_mode)
    place.chmod(mode | (mode & 0o444) >> 2)


def _pull_file(session: ApiSession, id: str, path: str, place: pathlib.Path) -> int:
    from corral.cli.api.transfers import save

    response = session.client.download(files_path(id, "content"), {"path": path})
    return save(response, str(place), what=path, sha256=response.head.get("ETag").strip('"'))


def _pull_directory(
    session: ApiSession, id: str, path: str, place: pathlib.Path, *, replace: bool
) -> tuple[int, list[str]]:
    """Unpack what the node packed: files and directories only, nothing outside `place`. How many files, and the names that
    are there and not in the archive."""
    from corral.cli.api.transfers import save
    from corral.errors import Rejected

    with tempfile.TemporaryDirectory(prefix="corral-pull-") as directory:
        packed = pathlib.Path(directory) / "packed"
        with ProgressLine() as line:
            line.show(f"waiting for the node to pack {path or id}")
            response = session.client.download(files_path(id, "archive"), {"path": path})
        try:
            save(response, str(packed), what=path or id)
        except CommandFailure as failure:
            if isinstance(failure.__cause__, OSError) and failure.__cause__.errno == errno.ENOSPC:
                failure.hint = "set TMPDIR to a directory with room for the archive of all files"
            raise
        try:
            if not replace and place.exists() and (others := _differing(packed, place)):
                _confirm_replaced(others)
            count, names = _unpacked(packed, place)
        except Rejected as refused:
            raise CommandFailure(str(refused)) from None
        except OSError as error:
            raise CommandFailure(f"cannot write {error.filename or place}: {error.strerror}") from error
    prefix = f"{path}/" if path else ""
    listing = listed(session, id, {"path": path})
    there = ((entry["path"].removeprefix(prefix), entry["kind"]) for entry in listing)
    left_out = [name for name, kind in there if kind != "directory" and name not in names]
    if left_out:
        note(
            f"{counted(len(left_out), 'entry', 'entries')} left out, which are links, no plain files, have a second name or one that is no UTF-8, or are new: "
            f"{short_list(left_out, _NAMED)}"
        )
    return count, left_out


def _entries(packed: pathlib.Path) -> Iterator[tuple[str, ArchiveEntry, Iterator[bytes]]]:
    """What the archive has, by names that lead nowhere else. Otherwise they are as the workload chose them."""
    from corral.archives.archive_reader import read_archive
    from corral.archives.limits import ArchiveLimits
    from corral.archives.refusals import UNPACK_REFUSALS
    from corral.domain.file_paths import check_named

    limits = ArchiveLimits(
        max_bytes=_MOST_BYTES, max_entries=_MOST_ENTRIES, max_stream_bytes=_MOST_BYTES, any_ratio=True
    )
    with packed.open("rb") as file:
        for entry, blocks in read_archive(file, limits=limits, refusals=UNPACK_REFUSALS):
            yield check_named(entry.name.removesuffix("/")), entry, blocks


def _differing(packed: pathlib.Path, place: pathlib.Path) -> list[str]:
    """Files here that have another content than those of the archive."""
    found: list[str] = []
    for name, entry, blocks in _entries(packed):
        hasher = hashlib.sha256()
        for block in blocks:
            hasher.update(block)
        here = place / name
        if not entry.directory and here.is_file() and digest_of(here) != hasher.hexdigest():
            found.append(str(here))
    return found


def _unpacked(packed: pathlib.Path, place: pathlib.Path) -> tuple[int, set[str]]:
    """How many files, and the names of everything."""
    from corral.cli.api.transfers import opened_target

    count = 0
    names: set[str] = set()
    place.mkdir(parents=True, exist_ok=True)
    try:
        for name, entry, blocks in _entries(packed):
            if name in names:
                raise CommandFailure(
                    f"the archive has '{name}' twice", hint="fetch it again, or file by file"
                )
            names.add(name)
            _refuse_links(place, name, names)
            if entry.directory:
                (place / name).mkdir(parents=True, exist_ok=True)
                continue
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            with opened_target(str(place / name)) as target:
                for block in blocks:
                    target.write(block)
                os.fchmod(target.fileno(), 0o755 if entry.mode & 0o111 else 0o644)
            count += 1
    except BaseException:
        note(f"until then {counted(count, 'file')} fetched into {place}")
        raise
    return count, names


def _refuse_links(place: pathlib.Path, name: str, known: set[str]) -> None:
    """CommandFailure for a link on the way from `place` to a name: it leads elsewhere. Directories in `known` are none."""
    for path in (name, *map(str, pathlib.PurePosixPath(name).parents)):
        if path == "." or (path != name and path in known):
            return
        if (place / path).is_symlink():
            raise CommandFailure(
                f"{place / path} is a link, and would be followed", hint="remove it, or choose another target"
            )


def _confirm_replaced(files: list[str]) -> None:
    what = f"{counted(len(files), 'file')} here with another content: {short_list(files, _NAMED)}"
    if not sys.stdin.isatty():
        raise WrongUsage(
            f"this would replace {what}", hint="nothing was written; add --replace, or choose another target"
        )
    if not click.confirm(printable(f"replace {what}"), err=True):
        raise click.Abort


def digest_of(file: pathlib.Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
