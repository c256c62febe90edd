"""`corral instance push`: files and directories from here to an instance, over nothing that was not compared."""

from __future__ import annotations

import pathlib
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Final, TypeVar

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.api.transfers import read_tree, unreadable
from corral.cli.failure import CommandRefused, WrongUsage, note
from corral.cli.instance.file_changes import (
    CHANGED,
    EXECUTABLE,
    PLAIN,
    condition,
    files_path,
    is_executable,
    send_with_mode,
)
from corral.cli.instance.file_trees import digest_of, is_executable_there, listed
from corral.cli.terminal.output import show_done
from corral.domain.file_paths import check_path
from corral.errors import Rejected, counted, short_list

_ATTEMPTS: Final = 60
_NAMED: Final = 20
_OF_ONE_FILE: Final = frozenset({"ALREADY_EXISTS", "BODY_TOO_LARGE", CHANGED, "PATH_REFUSED"})
"""Refusals that the rest of a directory does not meet."""
LocalEntry = tuple[str, pathlib.Path | None]
"""A path in a directory here, and the file; None: it is a directory."""
T = TypeVar("T")


@click.command("push")
@click.argument("id")
@click.argument("source", metavar="SOURCE")
@click.argument("path", required=False, default="", metavar="[PATH]")
@click.option("--force", is_flag=True, help="Also over what changes meanwhile.")
@api_command
def push(session: ApiSession, id: str, source: str, path: str, force: bool) -> None:
    """Send a file, or what differs of a directory.

    Files that are only there stay. One that is changed there while this runs, or cannot be compared, is not replaced,
    unless --force.
    """
    local = pathlib.Path(source).expanduser()
    try:
        found = local.stat()
    except OSError as error:
        raise WrongUsage(f"cannot read {source}: {error.strerror}") from error
    path = "" if path in (".", "/") else path.rstrip("/")
    if stat.S_ISDIR(found.st_mode):
        done = DirectoryPush(session, id, local, path, force=force).run()
        sentence = f"{counted(done['sent'], 'file')} sent, {done['same']} as before"
    elif not stat.S_ISREG(found.st_mode):
        raise WrongUsage(
            f"{source} is no file that can be compared", hint="'corral instance put' takes pipes"
        )
    else:
        target = path or local.name
        pushed = FilePush(session, id, force=force)
        pushed.send(target, local, pushed.entry(target))
        done = {"path": target, "sent": pushed.sent, "same": pushed.same}
        sentence = f"'{target}' is written" if pushed.sent else f"'{target}' is as before"
    show_done(session.output, done, sentence, name="path")


class FilePush:
    """Files on their way, each only over what was compared. `force`: also over what changes meanwhile or cannot be
    compared; `keep`: never over a file that is there."""

    def __init__(self, session: ApiSession, id: str, *, force: bool = False, keep: bool = False) -> None:
        self._session = session
        self._id = id
        self._force = force
        self._keep = keep
        self.sent = self.same = 0
        self.kept: list[str] = []
        """Files that differ there, and stay."""

    def entry(self, target: str) -> dict[str, Any] | None:
        """What lies there, with the digest of a file that is not large; None: nothing."""
        try:
            found: dict[str, Any] = patiently(
                lambda: self._session.client.get(files_path(self._id, "stat"), {"path": target})
            )
        except CommandRefused as refusal:
            if refusal.code != "NOT_FOUND":
                raise
            return None
        return found

    def send(self, target: str, file: pathlib.Path, there: dict[str, Any] | None) -> None:
        """`there`: the entry as it was seen. CommandRefused with FILE_CHANGED when it is another by now."""
        digest = self._digest_there(target, file, there)
        with file.open("rb") as content:
            mode = _other_mode(content, there)
            equal = bool(digest) and digest == digest_of(file)
            if equal and (mode is None or self._keep):
                self.same += 1
                return
            if self._keep and there is not None:
                self.kept.append(target)
                return
            headers = {} if self._force else condition(digest or "none")

            def sent() -> Any:
                content.seek(0)
                return send_with_mode(self._session, self._id, target, content, headers, mode=mode)

            made = patiently(sent)
        self.sent += int(made["changed"])
        self.same += int(not made["changed"])

    def _digest_there(self, target: str, file: pathlib.Path, there: dict[str, Any] | None) -> str:
        """Of the file as it was seen. Empty: there is none, or what it has does not matter."""
        if there is None or there["kind"] != "file":
            return ""
        if there["digest"]:
            return str(there["digest"])
        if (self._force or self._keep) and there["size"] != file.stat().st_size:
            return ""
        found = self.entry(target)
        digest = str((found or {}).get("digest") or "")
        if found is not None and not digest:
            digest = self._entity_tag(target)
            found = self.entry(target)
        if self._force or self._keep or _is_as_seen(there, found):
            return digest
        raise CommandRefused(
            f"'{target}' was changed there meanwhile",
            hint="it was not replaced; look at it, and push again, or use --force",
            code=CHANGED,
        )

    def _entity_tag(self, target: str) -> str:
        """The digest of a file of any size that may be downloaded; empty for others, where that does not matter."""
        try:
            with patiently(
                lambda: self._session.client.download(files_path(self._id, "content"), {"path": target})
            ) as answer:
                tag = answer.head.get("ETag").strip('"')
        except CommandRefused as refusal:
            if self._force or self._keep:
                return ""
            refusal.hint = (
                f"'{target}' cannot be compared, and was not replaced; --force writes over it unseen"
            )
            raise
        if not tag and not (self._force or self._keep):
            raise CommandRefused(
                f"'{target}' has no digest there, and was not replaced", hint="--force writes over it unseen"
            )
        return tag


def _is_as_seen(before: dict[str, Any], now: dict[str, Any] | None) -> bool:
    return now is not None and all(before[key] == now[key] for key in ("kind", "size", "modified_at"))


class DirectoryPush(FilePush):
    """A directory on its way: only files that differ."""

    def __init__(
        self,
        session: ApiSession,
        id: str,
        local: pathlib.Path,
        path: str,
        *,
        force: bool = False,
        keep: bool = False,
    ) -> None:
        super().__init__(session, id, force=force, keep=keep)
        self._local = local
        self._path = path
        self.refused: dict[str, CommandRefused] = {}
        """What could not be written, by its path."""
        self.missing: list[str] = []

    def run(self) -> dict[str, Any]:
        """What cannot be written does not keep the rest from being sent; CommandRefused names it in the end."""
        tree = local_tree(self._local)
        there = self._there()
        try:
            self._run(tree, there)
        except BaseException:
            note(f"until then {self._so_far()}; the same command goes on with the rest")
            raise
        if self.refused:
            note(f"{self._so_far()}; not written: {short_list(self.refused, _NAMED)}")
            raise self._refusal()
        return {"path": self._path or ".", "sent": self.sent, "same": self.same}

    def compare(self) -> None:
        """Look at what is there, and send nothing: `same`, `kept` (what differs) and `missing`."""
        there = self._there()
        for name, file in local_tree(self._local):
            target = f"{self._path}/{name}" if self._path else name
            if target not in there:
                self.missing.append(target)
            elif file is not None:
                digest = self._digest_there(target, file, there[target])
                if digest and digest == digest_of(file):
                    self.same += 1
                else:
                    self.kept.append(target)

    def _so_far(self) -> str:
        return f"{counted(self.sent, 'file')} sent, {self.same} as before"

    def _refusal(self) -> CommandRefused:
        """For all that were refused, with the reason of the first one."""
        path, first = next(iter(self.refused.items()))
        changed = any(each.code == CHANGED for each in self.refused.values())
        count = counted(len(self.refused), "entry was", "entries were")
        return CommandRefused(
            f"{count} not written; '{path}': {first.message}",
            hint="--force also writes over what changes meanwhile" if changed else first.hint,
            code=first.code,
        )

    def _run(self, tree: Iterable[LocalEntry], there: dict[str, dict[str, Any]]) -> None:
        for name, file in tree:
            target = f"{self._path}/{name}" if self._path else name
            try:
                check_path(target)
                if file is not None:
                    self.send(target, file, there.get(target))
                elif target not in there:
                    self._make_directory(target)
            except Rejected as refused:
                hint = "rename it here: names are UTF-8, without control characters and backslashes"
                self.refused[target] = CommandRefused(refused.message, hint=hint, code=refused.code.name)
            except CommandRefused as refusal:
                if refusal.code not in _OF_ONE_FILE:
                    raise
                self.refused[target] = refusal

    def _there(self) -> dict[str, dict[str, Any]]:
        try:
            entries = listed(self._session, self._id, {"path": self._path, "digests": "true"})
            return {entry["path"]: entry for entry in entries}
        except CommandRefused as refusal:
            if refusal.code != "NOT_FOUND" or not self._path:
                raise
            self._session.client.get(files_path(self._id), {"limit": 1})  # the instance itself is there
            return {}

    def _make_directory(self, target: str) -> None:
        patiently(lambda: self._session.client.post(files_path(self._id, "mkdir"), {"path": target}))


def patiently(work: Callable[[], T]) -> T:
    """Do it, again and again while there are too many requests: a directory has more files than a token may write at once."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            return work()
        except CommandRefused as refusal:
            if refusal.code != "RATE_LIMITED" or not left:
                raise
            time.sleep(max(1, refusal.retry_after))
    raise AssertionError("unreachable")


def _other_mode(file: IO[bytes], there: dict[str, Any] | None) -> str | None:
    """The mode that a file is sent with: None keeps that of the file there, which is executable or not, as this one."""
    executable = is_executable(file)
    if there is not None and there.get("mode") is None:
        return EXECUTABLE if executable else None
    if executable == (there is not None and is_executable_there(there)):
        return None
    return EXECUTABLE if executable else PLAIN


def local_tree(root: pathlib.Path) -> list[LocalEntry]:
    """What would be sent of a directory. CommandFailure when a part of it cannot be read: then nothing is sent."""
    try:
        return list(_walk(root))
    except OSError as error:
        raise unreadable(error) from error


def unwritable_names(root: pathlib.Path) -> list[str]:
    """Names in a directory that no file of an instance may have."""
    return [name for name, _ in local_tree(root) if not _is_writable(name)]


def _is_writable(name: str) -> bool:
    try:
        check_path(name)
    except Rejected:
        return False
    return True


def _walk(root: pathlib.Path) -> Iterator[LocalEntry]:
    """Files, and None for directories; links and the like are named and left out, and what cannot be read is a failure."""
    for place, directories, names in read_tree(root):
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
