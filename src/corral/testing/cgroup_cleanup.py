"""Removal of control groups of daemons whose instances were killed from outside: no daemon removes them."""

from __future__ import annotations

import contextlib
import os
import pathlib

from corral.runtimes.cgroups.control_files import mounted_hierarchies
from corral.runtimes.cgroups.selection import DEFAULT_ROOT, owner_of


def drop_groups(directory: pathlib.Path) -> None:
    """Remove the empty groups of every daemon whose data lies in a directory."""
    mounted = mounted_hierarchies()
    points = {*mounted.controllers.values(), *([mounted.unified] if mounted.unified else [])}
    for keeper in (*directory.glob("keeper"), *directory.glob("*/keeper"), *directory.glob("*/*/keeper")):
        for point in points:
            root = pathlib.Path(point, DEFAULT_ROOT, owner_of(str(keeper.parent)))
            for place, _, _ in os.walk(root, topdown=False):
                _remove(pathlib.Path(place))
            _remove(root.parent)


def _remove(group: pathlib.Path) -> None:
    with contextlib.suppress(OSError):  # missing, or of another user
        group.rmdir()
