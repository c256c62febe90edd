"""Sizes of ended runs: what a walk finds, and no second walk while nothing changes."""

from __future__ import annotations

import os
import pathlib

from corral.daemon.runs.run_files import RunDirectories
from corral.daemon.supervise.cleanup import RunSizes, ended_runs


def walked(directory: pathlib.Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))


def ended(data: pathlib.Path, name: str, *, at: float) -> pathlib.Path:
    directory = data / "runs" / name / "1024"
    (directory / "console").mkdir(parents=True)
    (directory / "console" / "0").write_bytes(b"x" * 50_000)
    (directory / "reported").write_text("0\n")
    os.utime(directory / "reported", (at, at))
    return directory


def test_a_directory_that_does_not_change_is_walked_once(tmp_path: pathlib.Path) -> None:
    old, new = ended(tmp_path, "old", at=1000.0), ended(tmp_path, "new", at=1990.0)
    runs, sizes = RunDirectories(tmp_path), RunSizes()
    first = {run.run.path: run.size for run in ended_runs(runs, set(), sizes, now=2000.0)}
    assert first == {old: walked(old), new: walked(new)}

    for directory in (old, new):  # which changes no directory: only a walk would find it
        (directory / "console" / "0").write_bytes(b"x" * 500_000)
    second = {run.run.path: run.size for run in ended_runs(runs, set(), sizes, now=2000.0)}
    assert second == {old: first[old], new: walked(new)}, "a run that has just ended may still be written to"

    (old / "pending").write_bytes(b"x" * 9000)
    third = {run.run.path: run.size for run in ended_runs(runs, set(), sizes, now=2000.0)}
    assert third[old] == walked(old)


def test_sizes_of_runs_that_are_gone_are_forgotten(tmp_path: pathlib.Path) -> None:
    old = ended(tmp_path, "old", at=1000.0)
    runs, sizes = RunDirectories(tmp_path), RunSizes()
    before = sizes.of(old, settled=True)
    assert ended_runs(runs, {"old.1024"}, sizes, now=2000.0) == []
    (old / "console" / "0").write_bytes(b"x" * 500_000)
    assert sizes.of(old, settled=True) == walked(old) != before
