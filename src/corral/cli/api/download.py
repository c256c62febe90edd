"""Bytes of any length from the controller into a file, or to stdout."""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, Final

from corral.cli.failure import Failure, Refused
from corral.cli.terminal.progress_line import Bar

_COPY_BYTES: Final = 256 * 1024


def save(response: http.client.HTTPResponse, target: str, *, what: str) -> int:
    """Write a body to `target` ('-': stdout) and close it; returns its size. A body that breaks off is
    said, and a file that is not whole never stands under the name that was asked for."""
    with response, opened(target) as file, Bar(what, _length(response)) as bar:
        for piece in pieces(response):
            file.write(piece)
            bar.add(len(piece))
        return bar.done


def pieces(response: Any) -> Iterator[bytes]:
    """What is left of a body; one that ends before its announced length broke off."""
    while True:
        try:
            piece = response.read1(_COPY_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise _broken(str(error) or type(error).__name__) from error
        if not piece:
            if response.length:
                raise _broken(f"{response.length} bytes are missing")
            return
        yield piece


def _broken(why: str) -> Refused:
    return Refused(f"the download broke off: {why}", hint="nothing was saved; try again")


@contextlib.contextmanager
def opened(target: str) -> Iterator[Any]:
    """The file to write to; it gets its name when all of it is there."""
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = pathlib.Path(target)
    aside = path.with_name(f".{path.name}.part")
    try:
        file = aside.open("wb")
    except OSError as error:
        raise Failure(f"cannot write {target}: {error.strerror}") from error
    try:
        with file:
            yield file
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _length(response: http.client.HTTPResponse) -> int:
    text = response.getheader("Content-Length") or ""
    return int(text) if text.isdecimal() else 0
