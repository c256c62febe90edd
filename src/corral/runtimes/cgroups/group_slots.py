"""Names of the groups of runs in one tree: `run-<run>`, or a numbered slot that was made ahead of its run.

A slot is a group whose processes were moved into it before their run was known, because the kernel may take a long
time for that. It becomes the group of one run by an empty group in it, its label `run-<run>`, and is removed with that
run. So the kernel itself holds which slot belongs to which run: a daemon that is killed between any two steps leaves
nothing that the next one cannot read.
"""

from __future__ import annotations

import os
import pathlib
import time
from typing import Final

from corral.errors import Code, Retryable
from corral.runtimes.cgroups import control_files, unified
from corral.runtimes.cgroups.run_groups import RUN, escaped, unescaped

SLOT: Final = "slot-"


class GroupNames:
    """The names in the tree below `path`, as the kernel has them when this is constructed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._slots: dict[str, str] = {}
        """By run: the name of its slot."""
        for slot in unified.groups_below(path, SLOT):
            for run in unified.groups_below(f"{path}/{SLOT}{slot}", RUN):
                self._slots[unescaped(run)] = f"{SLOT}{slot}"

    def of(self, run: str) -> str:
        return self._slots.get(run) or f"{RUN}{escaped(run)}"

    def next_slot(self) -> str:
        """A name that no slot had since the machine was started."""
        return f"{SLOT}{os.getpid()}-{time.monotonic_ns()}"

    def bind(self, slot: str, run: str) -> None:
        """Make the slot the group of the run, durably. Raises OSError."""
        pathlib.Path(f"{self.path}/{slot}/{RUN}{escaped(run)}").mkdir()
        self._slots[run] = slot

    def forget(self, run: str) -> None:
        self._slots.pop(run, None)

    def forget_slot(self, slot: str) -> None:
        """The slot is gone, whichever run it had."""
        self._slots = {run: name for run, name in self._slots.items() if name != slot}

    def runs(self) -> list[str]:
        """All runs that have a group."""
        return sorted({*map(unescaped, unified.groups_below(self.path, RUN)), *self._slots})

    def unbound(self, *paths: str) -> set[str]:
        """Slots without a run in these trees: spares of this daemon, or of one that was killed."""
        names = {f"{SLOT}{name}" for path in paths for name in unified.groups_below(path, SLOT)}
        return names - set(self._slots.values())


def remove_run_group(group: str, run: str) -> None:
    """Remove a run's group; `Retryable` when a process of the run is left in it. Its label goes last: a group with a
    process in it never loses its run."""
    for leaf in ("/work", "/shim", ""):
        control_files.remove_empty(f"{group}{leaf}", run)


def remove_slot(path: str, slot: str) -> bool:
    """Whether a slot without a run is gone; False while a process is in it. One with a label stays."""
    group = f"{path}/{slot}"
    return all(map(control_files.remove_one, (f"{group}/work", f"{group}/shim", group)))


def bind_slot(names: GroupNames, slot: str, run: str) -> None:
    """`GroupNames.bind` with the error of a start."""
    try:
        names.bind(slot, run)
    except OSError as error:
        raise Retryable(
            Code.SPAWN_FAILED, f"cannot use the control group {slot} for run '{run}': {error}"
        ) from error
