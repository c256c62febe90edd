"""`corral doctor` on this machine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

from corral.runtimes.cgroups.move_delay import Moves, move_delay

Corral = Callable[..., subprocess.CompletedProcess[str]]


def test_doctor_says_whether_moves_between_control_groups_wait(corral: Corral) -> None:
    delay = move_delay()
    done = corral("doctor", "-o", "json")
    assert done.returncode == 0, done.stderr
    [finding] = json.loads(done.stdout)["items"]
    assert finding["id"] == "cgroup-moves"
    assert finding["severity"] == ("advice" if delay.moves is Moves.SLOW else "ok")
    assert finding["command"] == delay.remount
    assert bool(finding["why"]) == (delay.moves is Moves.SLOW)


def test_doctor_prints_reason_and_command_below_its_table(corral: Corral) -> None:
    done = corral("doctor", "node")
    assert done.returncode == 0, done.stderr
    title, row, *_ = done.stdout.splitlines()
    assert title.split() == ["CHECK", "RESULT", "FOUND"]
    assert row.startswith("cgroup-moves")
    assert move_delay().remount in done.stdout
