"""What still runs in a node's data directory, whoever looks: read from the records of its runs."""

from __future__ import annotations

import contextlib
import fcntl
import pathlib

from corral.runtimes.keeper.proc_facts import boot_id, is_alive
from corral.runtimes.keeper.run_files import EMPTY, read_record


def live_instances(data: pathlib.Path) -> list[str]:
    """Ids of the instances of which a process is left; to be told, not to be acted upon."""
    boot = boot_id()
    return sorted({run.parent.name for run in data.glob("runs/*/*") if _lives(run, boot)})


def _lives(run: pathlib.Path, boot: str) -> bool:
    if (run / EMPTY).exists():
        return False
    with contextlib.suppress(OSError, ValueError, KeyError):  # damaged, or gone while we looked
        record = read_record(str(run))
        if record is not None and record.boot == boot:
            return is_alive(record.pid, record.start) or is_alive(record.shim, record.shim_start)
    return False


def unfinished_runs(data: pathlib.Path) -> bool:
    """Whether a run has not been seen to its end: it may live, or wait to be started again."""
    return any(not (run / "outcome.json").exists() for run in data.glob("runs/*/*"))


def keeper_lives(data: pathlib.Path) -> bool:
    """Whether a keeper holds its lock, though it may mind nothing."""
    for path in data.glob("keeper/*.lock"):
        with contextlib.suppress(OSError), path.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False
