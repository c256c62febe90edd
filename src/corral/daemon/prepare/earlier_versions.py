"""Whether the instance of a run was static before: earlier versions kept such directories elsewhere."""

from __future__ import annotations

import contextlib
import pathlib

import msgspec


def was_static(run_directory: pathlib.Path) -> bool:
    """By the newest run of the same instance before this one. Nothing that can be read, or no such run any
    more: nobody knows, and what is not known to be disposable is kept. (A directory that is not kept goes
    with the last run of its instance at the latest.)"""
    before = [
        entry
        for entry in run_directory.parent.iterdir()
        if entry.name.isdecimal() and int(entry.name) < int(run_directory.name)
    ]
    if before:
        newest = max(before, key=lambda entry: int(entry.name))
        with contextlib.suppress(OSError, msgspec.MsgspecError, KeyError, TypeError, AttributeError):
            document = msgspec.json.decode((newest / "intent.json").read_bytes())
            return bool(document["value"]["order"].get("static"))
    return True
