"""Whether the instance of a run was static before: earlier versions kept such directories elsewhere."""

from __future__ import annotations

import contextlib
import pathlib

import msgspec


def was_static(run_directory: pathlib.Path) -> bool:
    """By the newest run of the same instance before this one. Nothing that can be read: nobody knows, and
    what is not known to be disposable is kept."""
    before = [
        entry
        for entry in run_directory.parent.iterdir()
        if entry.name.isdecimal() and int(entry.name) < int(run_directory.name)
    ]
    for entry in sorted(before, key=lambda entry: int(entry.name), reverse=True):
        with contextlib.suppress(OSError, msgspec.MsgspecError, KeyError, TypeError):
            document = msgspec.json.decode((entry / "intent.json").read_bytes())
            return bool(document["value"]["order"].get("static"))
        return True
    return False
