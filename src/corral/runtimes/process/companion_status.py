"""What is known of the companions of runs: by their files and the kernel, for any daemon alike."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import structlog

from corral.runtimes.keeper import companion_files, exit_file, run_files
from corral.runtimes.keeper.companion_files import CompanionRecord, place_of
from corral.runtimes.keeper.proc_facts import boot_id, open_process
from corral.runtimes.process.run_exits import exit_of
from corral.sdk.runtime import RunExit, SideRun

_log = structlog.get_logger("corral.runtimes.process")


def look_at(run_directory: str, name: str) -> SideRun | None:
    """What its files and the kernel say; None when there is none."""
    place = place_of(run_directory, name)
    record = record_of(place)
    if record is None:
        return None
    ending = exit_at(place)
    running = ending is None and _lives(record)
    if not running and ending is None:
        ending = exit_at(place) or RunExit(known=False, reason="whoever minded it was killed")
    return SideRun(
        name=name,
        command=record.command,
        pid=record.pid,
        started_at_ms=record.started_ns // 1_000_000,
        running=running,
        exit=ending,
        output=companion_files.read_output(place),
    )


def record_of(place: str) -> CompanionRecord | None:
    try:
        return companion_files.read_record(place)
    except (OSError, ValueError) as error:
        _log.warning("run.companion_unreadable", place=place, error=str(error))
        return None


def exit_at(place: str) -> RunExit | None:
    """How it ended; None while it has not."""
    try:
        ending = exit_file.read_exit(place)
    except run_files.TooNew as error:
        return RunExit(known=False, reason=str(error))
    if ending is None:
        return None
    if ending.status is None:
        return RunExit(
            known=False, ended_at_ms=ending.at_ns // 1_000_000, reason="whoever minded it was killed"
        )
    return exit_of(ending)


def _lives(record: CompanionRecord) -> bool:
    """While its minder does: it dies with it."""
    minder = open_process(record.minder, record.minder_start) if record.boot == boot_id() else None
    if minder is not None:
        os.close(minder)
    return minder is not None


@contextlib.contextmanager
def minder_of(place: str) -> Iterator[int | None]:
    """A pidfd of the very process that minds it; None when there is none."""
    record = record_of(place)
    minder = None
    if record is not None and record.boot == boot_id():
        minder = open_process(record.minder, record.minder_start)
    try:
        yield minder
    finally:
        if minder is not None:
            os.close(minder)
