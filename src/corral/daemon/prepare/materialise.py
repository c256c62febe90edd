"""A layout becomes a directory tree. Blocking: it belongs into a thread."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Final

from corral.daemon.config_files.layer_merge import merged
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_copy import Copier, stripped_by_umask
from corral.daemon.prepare.layout import Layout, Merge
from corral.domain.templates import TemplateFile

THREADS: Final = 4
_DIRECTORY_MODE: Final = 0o750
_FEW: Final = 64
"""Up to so many files a second thread costs more than it brings."""
_LARGE: Final = 4 * 1024 * 1024

Content = Callable[[str], pathlib.Path]


def materialise(
    layout: Layout,
    target: pathlib.Path,
    *,
    content: Content,
    copier: Copier,
    abort: Abort,
    owner: tuple[int, int] | None = None,
    threads: int = THREADS,
) -> None:
    """Lay it all into `target`, an empty directory. OSError when the disk refuses; what is there by then
    is the caller's to remove."""
    root = str(target)
    for path in layout.directories:
        make_directory(target / path, owner)
    batches = split(layout.copies, threads)

    def lay(files: Sequence[TemplateFile]) -> None:
        for file in files:
            abort.check()
            copier.place(
                str(content(file.digest)),
                f"{root}/{file.path}",
                mode=file.mode,
                read_only=file.read_only,
                abort=abort,
                size=file.size,
            )

    if len(batches) == 1:
        lay(batches[0])
    elif batches:
        with concurrent.futures.ThreadPoolExecutor(len(batches), thread_name_prefix="lay") as pool:
            laying = [pool.submit(lay, batch) for batch in batches]
            done, _ = concurrent.futures.wait(laying, return_when=concurrent.futures.FIRST_EXCEPTION)
            failed = next((error for each in done if (error := each.exception())), None)
            if failed is not None:
                abort.set()  # the others have nothing to copy for any more
                raise failed
    for merge in layout.merges:
        abort.check()
        _merge(merge, root, content, owner)


def split(files: Sequence[TemplateFile], threads: int) -> list[list[TemplateFile]]:
    """Batches of about the same work; large files are spread first."""
    if len(files) <= _FEW and sum(file.size for file in files) <= _LARGE:
        return [list(files)] if files else []
    batches: list[list[TemplateFile]] = [[] for _ in range(max(1, threads))]
    loads = [0] * len(batches)
    for file in sorted(files, key=lambda file: file.size, reverse=True):
        place = loads.index(min(loads))
        batches[place].append(file)
        loads[place] += file.size + 32 * 1024  # opening and closing costs about as much as this
    return [batch for batch in batches if batch]


def make_directory(path: pathlib.Path, owner: tuple[int, int] | None) -> None:
    path.mkdir(_DIRECTORY_MODE)
    if _DIRECTORY_MODE & stripped_by_umask():
        path.chmod(_DIRECTORY_MODE)
    if owner is not None:
        os.chown(path, *owner)


def _merge(merge: Merge, root: str, content: Content, owner: tuple[int, int] | None) -> None:
    body = content(merge.parts[0].digest).read_bytes()
    for part in merge.parts[1:]:
        body = merged(body, content(part.digest).read_bytes(), name=merge.path)
    write_new(f"{root}/{merge.path}", body, mode=merge.mode, owner=owner)


def write_new(path: str, body: bytes, *, mode: int, owner: tuple[int, int] | None) -> None:
    """A file that does not exist yet."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
        if owner is not None:
            os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)
