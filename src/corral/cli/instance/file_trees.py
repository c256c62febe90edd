"""`corral instance pull|push`: files and directories of an instance, to here and from here."""

from __future__ import annotations

import hashlib
import os
import pathlib
import stat
import tempfile
from collections.abc import Iterator
from typing import Any, Final

import click

from corral.cli.api.client import Params
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandFailure, CommandRefused, WrongUsage, note
from corral.cli.instance.file_changes import condition, files_path, send
from corral.cli.terminal.output import show_done
from corral.errors import counted

_PAGE: Final = 5000
_MOST_BYTES: Final = 1024**4
"""Of a directory that is unpacked here; the controller has limits of its own."""
_MOST_ENTRIES: Final = 1_000_000


def listed(session: ApiSession, id: str, params: Params) -> Iterator[dict[str, Any]]:
    """All entries of a directory, page by page."""
    asked = {"limit": _PAGE, **params}
    while True:
        page = session.client.get(files_path(id), asked)
        yield from page.get("items") or []
        if not page.get("next"):
            return
        asked["cursor"] = page["next"]


@click.command("pull")
@click.argument("id")
@click.argument("path")
@click.argument("target", required=False, metavar="[TARGET]")
@api_command
def pull(session: ApiSession, id: str, path: str, target: str | None) -> None:
    """Fetch a file or a directory; '.' is everything."""
    path = "" if path in (".", "/") else path.rstrip("/")
    kind = "directory"
    if path:
        kind = session.client.get(files_path(id, "stat"), {"path": path})["kind"]
    name = pathlib.PurePosixPath(path).name or id
    place = pathlib.Path(target or name).expanduser()
    if kind == "directory":
        count = _pull_directory(session, id, path, place)
        done: dict[str, Any] = {"path": path or ".", "target": str(place), "files": count}
        sentence = f"{counted(count, 'file')} fetched into {place}"
    else:
        place = place / name if place.is_dir() else place
        size = _pull_file(session, id, path, place)
        done = {"path": path, "target": str(place), "size": size}
        sentence = f"'{path}' fetched into {place}"
    show_done(session.output, done, sentence, name="target")


def _pull_file(session: ApiSession, id: str, path: str, place: pathlib.Path) -> int:
    from corral.cli.api.transfers import save

    response = session.client.download(files_path(id, "content"), {"path": path})
    expected = (response.getheader("ETag") or "").strip('"')
    size = save(response, str(place), what=path)
    if expected and _digest(place) != expected:
        raise CommandRefused(f"{place} is not what the instance has", hint="fetch it again")
    return size


def _pull_directory(session: ApiSession, id: str, path: str, place: pathlib.Path) -> int:
    """Unpack what the node packed: files and directories only, nothing outside `place`."""
    from corral.archives.archive_reader import read_archive
    from corral.archives.limits import ArchiveLimits
    from corral.archives.paths import checked_path
    from corral.archives.refusals import UNPACK_REFUSALS
    from corral.cli.api.transfers import opened_target, save
    from corral.errors import Rejected

    limits = ArchiveLimits(
        max_bytes=_MOST_BYTES, max_entries=_MOST_ENTRIES, max_stream_bytes=_MOST_BYTES, any_ratio=True
    )
    count = 0
    with tempfile.TemporaryDirectory(prefix="corral-pull-") as directory:
        packed = pathlib.Path(directory) / "packed"
        response = session.client.download(files_path(id, "archive"), {"path": path})
        save(response, str(packed), what=path or id)
        try:
            place.mkdir(parents=True, exist_ok=True)
            with packed.open("rb") as file:
                for entry, blocks in read_archive(file, limits=limits, refusals=UNPACK_REFUSALS):
                    name = checked_path(
                        entry.name.removesuffix("/"), name=entry.name, refusals=UNPACK_REFUSALS
                    )
                    if entry.directory:
                        (place / name).mkdir(parents=True, exist_ok=True)
                        continue
                    (place / name).parent.mkdir(parents=True, exist_ok=True)
                    with opened_target(str(place / name)) as target:
                        for block in blocks:
                            target.write(block)
                        os.fchmod(target.fileno(), 0o755 if entry.mode & 0o111 else 0o644)
                    count += 1
        except Rejected as refused:
            raise CommandFailure(str(refused)) from None
        except OSError as error:
            raise CommandFailure(f"cannot write {error.filename or place}: {error.strerror}") from error
    return count


@click.command("push")
@click.argument("id")
@click.argument("source", metavar="SOURCE")
@click.argument("path", required=False, default="", metavar="[PATH]")
@click.option("--force", is_flag=True, help="Also over what changes meanwhile.")
@api_command
def push(session: ApiSession, id: str, source: str, path: str, force: bool) -> None:
    """Send a file, or what differs of a directory.

    Files that are only there stay. One that is changed there while this runs is not replaced, unless --force.
    """
    local = pathlib.Path(source).expanduser()
    try:
        found = local.stat()
    except OSError as error:
        raise WrongUsage(f"cannot read {source}: {error.strerror}") from error
    path = "" if path in (".", "/") else path.rstrip("/")
    if stat.S_ISDIR(found.st_mode):
        done = _Push(session, id, local, path, force=force).run()
        sentence = f"{counted(done['sent'], 'file')} sent, {done['same']} as before"
    else:
        target = path or local.name
        with local.open("rb") as file:
            made = send(session, id, target, file, {})
        done = {"path": target, "sent": int(made["changed"]), "same": int(not made["changed"])}
        sentence = f"'{target}' is written"
    show_done(session.output, done, sentence, name="path")


class _Push:
    """A directory on its way: only files whose digests differ."""

    def __init__(self, session: ApiSession, id: str, local: pathlib.Path, path: str, *, force: bool) -> None:
        self._session = session
        self._id = id
        self._local = local
        self._path = path
        self._force = force
        self._sent = self._same = 0

    def run(self) -> dict[str, Any]:
        there = self._there()
        for name, file in _walk(self._local):
            target = f"{self._path}/{name}" if self._path else name
            if file is None:
                if target not in there:
                    self._session.client.post(files_path(self._id, "mkdir"), {"path": target})
                continue
            self._send(target, file, there.get(target))
        return {"path": self._path or ".", "sent": self._sent, "same": self._same}

    def _there(self) -> dict[str, dict[str, Any]]:
        try:
            entries = listed(self._session, self._id, {"path": self._path, "digests": "true"})
            return {entry["path"]: entry for entry in entries}
        except CommandRefused as refusal:
            if refusal.code != "NOT_FOUND" or not self._path:
                raise
            self._session.client.get(files_path(self._id), {"limit": 1})  # the instance itself is there
            return {}

    def _send(self, target: str, file: pathlib.Path, there: dict[str, Any] | None) -> None:
        digest = self._digest_there(target, file, there)
        if digest and digest == _digest(file):
            self._same += 1
            return
        headers = condition(digest or ("none" if there is None else None))
        with file.open("rb") as content:
            made = send(self._session, self._id, target, content, {} if self._force else headers)
        self._sent += int(made["changed"])
        self._same += int(not made["changed"])

    def _digest_there(self, target: str, file: pathlib.Path, there: dict[str, Any] | None) -> str:
        """Empty: there is no such file, or it is too large to be compared."""
        if there is None or there["kind"] != "file":
            return ""
        if there["digest"] is None and there["size"] == file.stat().st_size:
            there = self._session.client.get(files_path(self._id, "stat"), {"path": target})
        return str((there or {}).get("digest") or "")


def _walk(root: pathlib.Path) -> Iterator[tuple[str, pathlib.Path | None]]:
    """Files, and None for directories; links and the like are named and left out."""
    for place, directories, names in os.walk(root):
        directories.sort()
        here = pathlib.Path(place)
        for name in [*directories]:
            if (here / name).is_symlink():
                note(f"{here / name} is a link, and left out")
                directories.remove(name)
            else:
                yield (here / name).relative_to(root).as_posix(), None
        for name in sorted(names):
            file = here / name
            if not file.is_symlink() and file.is_file():
                yield file.relative_to(root).as_posix(), file
            else:
                note(f"{file} is no plain file, and left out")


def _digest(file: pathlib.Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
