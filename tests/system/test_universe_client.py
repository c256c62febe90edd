"""A client of Universe, a process of its own, against `corral up` as people run it."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from corral.testing.ports import free_addresses

CLIENT = pathlib.Path(__file__).parent / "universe_client.py"
PROGRAM = [sys.executable, "-m", "corral.cli"]


@pytest.mark.system
@pytest.mark.timeout(300)
def test_a_client_of_universe_finds_everything_as_documented(scratch: pathlib.Path) -> None:
    data = str(scratch / "data")
    http, grpc, bootstrap = free_addresses(3)
    flags = ["--data", data, "--no-demo", "--http", http, "--grpc", grpc, "--bootstrap", bootstrap]
    command = [*PROGRAM, "up", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as up:
        assert up.stdout is not None
        try:
            url = next(line for line in up.stdout if line.startswith("ready: ")).split()[1]
            done = subprocess.run(
                [sys.executable, "-I", str(CLIENT), url, f"{data}/admin.token"],
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
        finally:
            subprocess.run([*PROGRAM, "down", "--data", data], capture_output=True, timeout=60, check=True)
            up.wait(timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "everything is as documented"
