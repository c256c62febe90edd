"""Files to and from the controller: directories packed as archives, forms with files, downloads."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import stat
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final, NamedTuple

from corral.cli.api.client import Client, OpenAnswer, Params
from corral.cli.failure import CommandFailure, CommandRefused, WrongUsage
from corral.cli.terminal.progress_line import Bar
from corral.client import errors, failures
from corral.client.part_files import part_file

_BLOCK: Final = 256 * 1024
_HEAD: Final = 512
_SHOWN: Final = 300
"""Characters of a path in an error."""
_TAR: Final = "application/x-tar"
_TAR_GZ: Final = "application/gzip"
_ZIP: Final = "application/zip"


@contextlib.contextmanager
def archive_of(path: str) -> Iterator[tuple[IO[bytes], int, str]]:
    """The upload of a path: a directory packed, an archive as it is; with its size and its kind."""
    source = pathlib.Path(path).expanduser()
    if source.is_dir():
        with tempfile.TemporaryFile(prefix="corral-upload-") as packed:
            pack(source, packed)
            size = packed.tell()
            packed.seek(0)
            yield packed, size, _TAR_GZ
        return
    try:
        file = source.open("rb")
    except FileNotFoundError:
        raise WrongUsage(
            f"there is no directory or archive '{path}'", hint="give a directory, a .tar.gz or a .zip"
        ) from None
    except OSError as error:
        raise WrongUsage(f"cannot read {path}: {error.strerror}") from error
    with file:
        kind = _kind(file.read(_HEAD))
        if kind is None:
            raise WrongUsage(f"'{path}' is neither a tar.gz, a tar nor a zip", hint="or give a directory")
        file.seek(0)
        yield file, os.fstat(file.fileno()).st_size, kind


def _kind(head: bytes) -> str | None:
    """The kind of an archive by its first bytes, as the controller detects it."""
    if head[:2] == b"\x1f\x8b":
        return _TAR_GZ
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _ZIP
    return _TAR if head[257:262] == b"ustar" else None


def pack(root: pathlib.Path, target: IO[bytes]) -> None:
    """Regular files and directories, sorted; what cannot be part of a template is named and refused."""
    entries = list(_walk(root))
    total = sum(found.st_size for _, _, found in entries if stat.S_ISREG(found.st_mode))
    with (
        Bar(f"packing {root}", total) as bar,
        tarfile.open(fileobj=target, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path, found in entries:
            entry = tarfile.TarInfo(name)
            entry.mode = stat.S_IMODE(found.st_mode)
            if stat.S_ISDIR(found.st_mode):
                entry.type = tarfile.DIRTYPE
                tar.addfile(entry)
                continue
            entry.size = found.st_size
            try:
                with path.open("rb") as file:
                    tar.addfile(entry, file)
            except OSError as error:
                raise CommandFailure(f"cannot read {path}: {error.strerror or error}") from error
            bar.add(found.st_size)


def _walk(root: pathlib.Path) -> Iterator[tuple[str, pathlib.Path, os.stat_result]]:
    paths = (
        pathlib.Path(place, name)
        for place, directories, files in read_tree(root)
        for name in (*directories, *files)
    )
    for path in sorted(paths):
        try:
            found = path.lstat()
        except OSError as error:
            raise unreadable(error) from error
        if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no plain file"
            raise CommandFailure(
                f"{path} is {kind}", hint="a template holds plain files and directories only"
            )
        yield path.relative_to(root).as_posix(), path, found


def read_tree(root: pathlib.Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """As `os.walk`; a directory that cannot be read is a failure, for its files would be missing."""

    def refuse(error: OSError) -> None:
        raise unreadable(error) from error

    return os.walk(root, onerror=refuse)


def unreadable(error: OSError) -> CommandFailure:
    place = str(error.filename)
    shown = place if len(place) <= _SHOWN else f"{place[:_SHOWN]}…"
    return CommandFailure(
        f"cannot read {shown}: {error.strerror}", hint="let this user read it, or leave it out"
    )


def blocks(file: IO[bytes], bar: Bar) -> Iterator[bytes]:
    """The file piece by piece, with the bar moving."""
    while block := file.read(_BLOCK):
        yield block
        bar.add(len(block))


class FormFile(NamedTuple):
    """A file under a field's name."""

    field: str
    path: pathlib.Path


class Form:
    """`multipart/form-data` of some files. `size` is exact, so that progress can be shown and the
    controller can refuse what is too large before it is sent."""

    def __init__(self, parts: Iterable[FormFile]) -> None:
        self._boundary = f"corral-{os.urandom(16).hex()}"
        self._parts = [(part, _part_head(self._boundary, part)) for part in parts]
        self._tail = f"--{self._boundary}--\r\n".encode()
        try:
            sizes = [part.path.stat().st_size for part, _ in self._parts]
        except OSError as error:
            raise WrongUsage(f"cannot read {error.filename}: {error.strerror}") from error
        self.size = sum(sizes) + sum(len(head) + 2 for _, head in self._parts) + len(self._tail)
        self.content_type = f"multipart/form-data; boundary={self._boundary}"

    def stream(self, bar: Bar) -> Iterator[bytes]:
        for part, head in self._parts:
            yield head
            bar.add(len(head))
            try:
                file = part.path.open("rb")
            except OSError as error:
                raise WrongUsage(f"cannot read {part.path}: {error.strerror}") from error
            with file:
                yield from blocks(file, bar)
            yield b"\r\n"
            bar.add(2)
        yield self._tail
        bar.add(len(self._tail))


def send_form(
    client: Client, path: str, parts: Iterable[FormFile], *, what: str, params: Params | None = None
) -> Any:
    """POST files as one form, with a progress bar titled `what`."""
    form = Form(parts)
    with Bar(what, form.size) as bar:
        return client.upload(
            path,
            form.stream(bar),
            size=form.size,
            content_type=form.content_type,
            params=params,
            method="POST",
        )


def _part_head(boundary: str, part: FormFile) -> bytes:
    name = part.path.name.replace("\\", "_").replace('"', "_").replace("\r", "_").replace("\n", "_")
    return (
        f"--{boundary}\r\n"
        f'Content-Disposition: form-data; name="{part.field}"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode("utf-8", "replace")  # names of files need not be text


def save(response: OpenAnswer, target: str, *, what: str, private: bool = False, sha256: str = "") -> int:
    """Write a body to `target` ('-': stdout) and close it; returns its size. A body that breaks off, or has another digest
    than `sha256`, is reported, and never gets the name that was asked for. `private`: see `opened_target`."""
    digest = hashlib.sha256()
    with response, opened_target(target, private=private) as file, Bar(what, response.length) as bar:
        for piece in pieces(response):
            file.write(piece)
            digest.update(piece)
            bar.add(len(piece))
        if sha256 and digest.hexdigest() != sha256:
            raise CommandRefused(
                f"{what} came with another content than was announced", hint="fetch it again"
            )
        return bar.done


def pieces(response: OpenAnswer) -> Iterator[bytes]:
    """The rest of a body; one that ends before its announced length broke off."""
    try:
        yield from response.pieces()
    except errors.Unreachable as failure:
        raise _broken(failures.reason(failure.__cause__ or failure)) from failure


def _broken(why: str) -> CommandRefused:
    return CommandRefused(f"the download broke off: {why}", hint="nothing was saved; try again")


@contextlib.contextmanager
def opened_target(target: str, *, private: bool = False) -> Iterator[Any]:
    """What to write to: stdout for '-', where a terminal gets nothing that would steer it, or a `part_file`; `private`: a new one is for
    its owner alone."""
    if target == "-":
        yield from _standard_output()
        return
    try:
        with part_file(target, mode=0o600 if private else 0o666) as file:
            yield file
    except OSError as error:  # of the target: those of the connection are failures already
        raise CommandFailure(f"cannot write {target}: {error.strerror or error}") from error


def _standard_output() -> Iterator[Any]:
    if not sys.stdout.isatty():
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from corral.cli.terminal.console_line import NeutralBytes

    with contextlib.closing(NeutralBytes(sys.stdout.write)) as terminal:
        yield terminal
    sys.stdout.flush()
