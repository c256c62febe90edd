"""A form with files in it, as a stream of bytes whose length is known before."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from corral.cli.api.archive_upload import blocks
from corral.cli.api.client import Client, Params
from corral.cli.failure import WrongUsage
from corral.cli.terminal.progress_line import Bar


class FilePart(msgspec.Struct, frozen=True, kw_only=True):
    """A file under a field's name."""

    field: str
    path: pathlib.Path


class Form:
    """`multipart/form-data` of some files. `size` is exact, so that progress can be shown and the
    controller can refuse what is too large before it is sent."""

    def __init__(self, parts: Iterable[FilePart]) -> None:
        self._boundary = f"corral-{os.urandom(16).hex()}"
        self._parts = [(part, _head(self._boundary, part)) for part in parts]
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
    client: Client, path: str, parts: Iterable[FilePart], *, what: str, params: Params | None = None
) -> Any:
    """POST files as one form, with a bar that says `what` is going on."""
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


def _head(boundary: str, part: FilePart) -> bytes:
    name = part.path.name.replace("\\", "_").replace('"', "_").replace("\r", "_").replace("\n", "_")
    return (
        f"--{boundary}\r\n"
        f'Content-Disposition: form-data; name="{part.field}"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode("utf-8", "replace")  # names of files need not be text
