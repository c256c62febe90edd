"""The user's editor, and what becomes of a text that could not be stored."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import sys
import tempfile
from collections.abc import Iterator

from corral.cli.failure import CommandFailure, note


def run_editor(file: pathlib.Path) -> None:
    """Open a file in VISUAL or EDITOR, until that ends."""
    import subprocess

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandFailure(
            "there is no terminal for an editor, and neither VISUAL nor EDITOR names a program",
            hint="set EDITOR",
        )
    editor = editor or "vi"
    try:
        ended = subprocess.run([*shlex.split(editor), str(file)], check=False)
    except OSError as error:
        raise CommandFailure(f"cannot run {editor}: {error.strerror}", hint="set EDITOR") from error
    except ValueError as error:
        raise CommandFailure(f"cannot run {editor}: {error}", hint="set EDITOR") from error
    if ended.returncode:
        raise CommandFailure(f"{editor} ended with {ended.returncode}; nothing was changed")


def keep_text(file: pathlib.Path) -> pathlib.Path:
    """Keep the user's text when it cannot be stored, and say where."""
    import shutil

    kept = shutil.move(file, pathlib.Path(tempfile.mkdtemp(prefix="corral-kept-")) / file.name)
    note(f"what you wrote is kept in {kept}")
    return pathlib.Path(kept)


@contextlib.contextmanager
def kept_text(file: pathlib.Path, *, before: bytes) -> Iterator[None]:
    """Whatever fails meanwhile, an interruption as well: keep the user's text, unless it is as before or kept already."""
    try:
        yield
    except BaseException:
        if file.exists() and file.read_bytes() != before:
            keep_text(file)
        raise
