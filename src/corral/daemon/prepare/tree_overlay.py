"""Laying one tree of files beneath another: what is there already stays."""

from __future__ import annotations

import os
import pathlib
import stat

from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_copy import Copier
from corral.daemon.prepare.materialise import make_directory


def lay_beneath(
    source: pathlib.Path, target: pathlib.Path, copier: Copier, owner: tuple[int, int] | None, abort: Abort
) -> None:
    """Regular files and directories of `source` that `target` lacks. Blocks."""
    for directory, names, files in os.walk(source):
        relative = os.path.relpath(directory, source)
        here = target if relative == "." else target / relative
        names[:] = [name for name in names if not pathlib.Path(directory, name).is_symlink()]
        for name in list(names):
            place = here / name
            if not os.path.lexists(place):
                make_directory(place, owner)
            elif not place.is_dir():
                names.remove(name)  # a template has a file there
        for name in files:
            abort.check()
            found = os.lstat(f"{directory}/{name}")
            if stat.S_ISREG(found.st_mode) and not os.path.lexists(here / name):
                mode = 0o755 if found.st_mode & 0o100 else 0o644
                copier.place(f"{directory}/{name}", str(here / name), mode=mode, read_only=False, abort=abort)
