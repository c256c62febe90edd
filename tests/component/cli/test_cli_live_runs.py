"""What `up` and `down` say about instances that nobody minds."""

from __future__ import annotations

import os
import pathlib
import signal

from corral.cli.local.up_state import keeper_lives, live_instances, unfinished_runs
from corral.runtimes.keeper.run_files import read_record
from corral.testing import workloads
from corral.testing.reaper import Reaper
from corral.testing.runtime_nodes import INCARNATION, start_detached
from corral.testing.waiting import eventually


async def test_an_instance_lives_until_its_last_process_ended(tmp_path: pathlib.Path, reaper: Reaper) -> None:
    assert live_instances(tmp_path) == []
    assert not unfinished_runs(tmp_path)
    assert not keeper_lives(tmp_path)
    quiet = await start_detached(tmp_path, "lobby-2", workloads.silent())
    await start_detached(tmp_path, "lobby-10", workloads.double_forking(stays=False))
    assert live_instances(tmp_path) == ["lobby-10", "lobby-2"]
    os.kill(quiet.pid, signal.SIGKILL)
    await eventually(lambda: live_instances(tmp_path) == ["lobby-10"])
    assert unfinished_runs(tmp_path)
    assert keeper_lives(tmp_path)
    reaper.reap()
    await eventually(lambda: not keeper_lives(tmp_path))


async def test_a_record_of_another_boot_or_process_is_no_life(tmp_path: pathlib.Path, reaper: Reaper) -> None:
    await start_detached(tmp_path, "lobby-1", workloads.silent())
    run = tmp_path / "runs" / "lobby-1" / str(INCARNATION)
    record = read_record(str(run))
    assert record is not None
    written = (run / "record").read_text()
    (run / "record").write_text(written.replace(record.boot, "another"))
    assert live_instances(tmp_path) == []
    (run / "record").write_text(written.replace("start=", "start=1"))
    assert live_instances(tmp_path) == []
    (run / "record").write_text("torn")
    assert live_instances(tmp_path) == ["lobby-1"]
    (run / "record.copy").write_text("torn")
    assert live_instances(tmp_path) == []
