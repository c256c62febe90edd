"""Whatever lives in the directories of a test is found and ended, and nothing else."""

from __future__ import annotations

import os
import pathlib
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from corral.testing import workloads
from corral.testing.reaper import Guardian, Reaper
from corral.testing.survivors import SurvivingProcess, end_all, now_in_ticks, survivors
from corral.testing.waiting import eventually

pytest_plugins = ["pytester"]

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a program; its output is read by the test, and it is waited for in the end."""
    begun: list[subprocess.Popen[str]] = []

    def run(argv: workloads.Argv, **how: object) -> subprocess.Popen[str]:
        begun.append(
            subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **how)  # type: ignore[call-overload]
        )
        return begun[-1]

    yield run
    for process in begun:
        process.kill()
        process.communicate(timeout=20)


def pids(found: list[SurvivingProcess]) -> set[int]:
    return {process.pid for process in found}


def one_by_cwd(directory: pathlib.Path) -> dict[str, object]:
    return {"cwd": directory}


def one_by_environment(directory: pathlib.Path) -> dict[str, object]:
    return {"env": {"HOME": f"{directory}/running/lobby-1"}, "cwd": "/"}


@pytest.mark.parametrize("how", [one_by_cwd, one_by_environment])
def test_a_process_is_found_by_what_it_refers_to(
    tmp_path: pathlib.Path, start: Start, how: Callable[[pathlib.Path], dict[str, object]]
) -> None:
    process = start(workloads.silent(), **how(tmp_path))
    assert process.pid in pids(survivors([tmp_path]))
    assert process.pid in pids(end_all([tmp_path]))
    assert survivors([tmp_path]) == []


def test_a_process_is_found_by_an_open_file_even_when_the_directory_is_gone(
    tmp_path: pathlib.Path, start: Start
) -> None:
    place = tmp_path / "data"
    place.mkdir()
    with (place / "lock").open("w") as lock:
        process = start(workloads.silent(), cwd="/", pass_fds=(lock.fileno(),))
    (place / "lock").unlink()
    place.rmdir()
    assert pids(survivors([place])) == {process.pid}
    end_all([place])


def test_one_that_only_lives_next_door_is_left_alone(tmp_path: pathlib.Path, start: Start) -> None:
    ours, next_door = tmp_path / "a", tmp_path / "a-b"
    ours.mkdir()
    next_door.mkdir()
    neighbour = start(workloads.silent(), cwd=next_door)
    assert end_all([ours]) == []
    assert neighbour.poll() is None
    end_all([next_door])


def test_one_that_was_there_before_is_left_alone(tmp_path: pathlib.Path, start: Start) -> None:
    older = start(workloads.silent(), cwd=tmp_path)
    assert survivors([tmp_path], since=now_in_ticks() + 1) == []
    assert pids(survivors([tmp_path])) == {older.pid}
    end_all([tmp_path])


def test_a_hidden_grandchild_goes_with_the_one_it_descends_from(tmp_path: pathlib.Path, start: Start) -> None:
    adopter = workloads.python(
        "import ctypes, os, sys\nctypes.CDLL(None).prctl(36, 1)\n"
        "pid = os.posix_spawn(sys.argv[1], sys.argv[1:], {})\nos.waitpid(pid, 0)",
        *workloads.double_forking(),
    )
    process = start(adopter, cwd=tmp_path)
    assert process.stdout is not None
    grandchild = int(process.stdout.readline().removeprefix("grandchild "))
    assert grandchild in pids(survivors([tmp_path]))
    end_all([tmp_path])
    assert survivors([tmp_path]) == []


def test_a_record_finds_the_one_process_it_names(tmp_path: pathlib.Path, start: Start) -> None:
    process = start(workloads.silent(), cwd="/", env={})
    began = int(pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    record = tmp_path / "daemon" / "runs" / "lobby-1" / "65536" / "record"
    record.parent.mkdir(parents=True)
    record.write_text(f"corral-record 1\npid={process.pid}\nstart={began - 1}\nboot=x\n")
    assert survivors([tmp_path]) == []
    record.write_text(f"corral-record 1\npid={process.pid}\nstart={began}\nboot=x\n")
    assert pids(survivors([tmp_path])) == {process.pid}
    end_all([tmp_path])


def test_a_storm_of_forks_does_not_get_away(tmp_path: pathlib.Path, start: Start) -> None:
    process = start(workloads.fork_storm(alive=5), cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    end_all([tmp_path])
    assert survivors([tmp_path]) == []


async def test_the_guardian_ends_what_a_killed_test_run_left(tmp_path: pathlib.Path) -> None:
    victim = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import pathlib, subprocess, sys, time\n"
            "from corral.testing.reaper import Guardian, Reaper\n"
            "reaper = Reaper(Guardian())\n"
            "reaper.watch(pathlib.Path(sys.argv[1]))\n"
            "left = subprocess.Popen(sys.argv[2:], cwd=sys.argv[1], start_new_session=True,\n"
            "    stdout=subprocess.DEVNULL)\n"
            "print(left.pid, flush=True)\n"
            "time.sleep(600)",
            str(tmp_path),
            *workloads.ignoring_signals(),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert victim.stdout is not None
    left = os.pidfd_open(int(victim.stdout.readline()))
    try:
        victim.kill()
        victim.communicate(timeout=20)
        await eventually(lambda: ended(left), state=lambda: survivors([tmp_path]))
    finally:
        os.close(left)


def ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 0)[0])


def test_the_guardian_forgets_what_was_released(tmp_path: pathlib.Path, start: Start) -> None:
    guardian = Guardian()
    reaper = Reaper(guardian)
    reaper.watch(tmp_path)
    reaper.close()
    process = start(workloads.silent(), cwd=tmp_path)
    guardian.close()
    assert process.poll() is None
    end_all([tmp_path])


@pytest.mark.system
def test_a_test_that_leaves_a_process_fails_and_the_process_is_gone(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["corral.testing.pytest_plugin"]')
    pytester.makepyfile(
        """
        import os, subprocess

        def leave(tmp_path):
            # through a shell that ends: no child of ours any more
            subprocess.run(["/bin/sh", "-c", "setsid sleep 4711 & echo $!"], cwd=tmp_path, check=True,
                           stdout=(tmp_path / "pid").open("w"))

        def test_leaves(tmp_path):
            leave(tmp_path)

        def test_means_to_leave(tmp_path, reaper):
            leave(tmp_path)

        def test_leaves_nothing(tmp_path):
            pass
        """
    )
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:schemathesis"
    )
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*left running: process * (*sleep 4711*"])
    ends = time.monotonic() + 10
    while survivors([pytester.path]) and time.monotonic() < ends:
        time.sleep(0.02)
    assert survivors([pytester.path]) == []
