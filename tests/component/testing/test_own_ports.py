"""Ports that tests give out: no two processes the same."""

from __future__ import annotations

import contextlib
import subprocess
import sys

from corral.testing.ports import free_addresses, free_range

GIVE_OUT = """
import sys
from corral.testing.ports import free_addresses
print(*free_addresses(60), flush=True)
sys.stdin.read()
"""


def test_processes_at_one_time_give_out_different_ports() -> None:
    with contextlib.ExitStack() as running:
        others = [
            running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", GIVE_OUT],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(6)
        ]
        given = free_addresses(60)
        for other in others:
            assert other.stdout is not None
            given += other.stdout.readline().split()
    assert len(set(given)) == len(given) == 420


def test_a_port_is_not_given_out_again_at_once() -> None:
    """Its server may not listen yet."""
    given = [first for first, _ in (free_range(3) for _ in range(10))]
    assert len(set(given)) == 10
