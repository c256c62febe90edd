"""The workload's last step before its program: it goes only when its run is on record."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from corral.runtimes.keeper import run_files

_AT_THE_BARRIER = """
import os, sys
from corral.runtimes.keeper.workload import become_workload
directory, marker, go = sys.argv[1:]
barrier, gate = os.pipe2(os.O_CLOEXEC)
failed = os.open(directory + "/failed", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
nowhere = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
plan = {"tty": False, "uid": None, "directory": "/", "command": ["touch", marker],
        "environment": {"PATH": "/usr/bin:/bin"}}
if go == "go":
    os.write(gate, b"1")
pid = os.fork()
if pid == 0:
    os.close(gate)
    become_workload(plan, barrier=barrier, failed=failed, input_fd=nowhere, output_fd=nowhere)
os.close(gate)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.trap("T50")
@pytest.mark.parametrize(("word", "code", "executed"), [("go", 0, True), ("no", 127, False)])
def test_a_workload_whose_shim_dies_first_executes_nothing_and_says_so(
    scratch: pathlib.Path, word: str, code: int, executed: bool
) -> None:
    marker = scratch / "executed"
    arguments = [sys.executable, "-c", _AT_THE_BARRIER, str(scratch), str(marker), word]
    said = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=30)
    assert (int(said.stdout), marker.exists()) == (code, executed)
    failure = run_files.read_failure(str(scratch))
    assert (failure.stage if failure is not None else "") == ("" if executed else "barrier")
