"""Why a module process ended, and how fast one may speak: the parts that decide without a process."""

from __future__ import annotations

import signal

import pytest

from corral.modules.process.exit_reasons import death_reason, ended_for

LIMIT = 256 << 20


@pytest.mark.parametrize(
    ("status", "peak", "reason"),
    [
        (0, 0, "process_exited:0"),
        (3 << 8, 0, "process_exited:3"),
        (70 << 8, 0, "cut_off:socket_closed"),
        (72 << 8, 0, "memory_limit"),
        (signal.SIGSEGV, 0, "process_died:SIGSEGV"),
        (signal.SIGSEGV | 0x80, 0, "process_died:SIGSEGV"),
        (signal.SIGSEGV, LIMIT - 1, "memory_limit"),
        (signal.SIGKILL, LIMIT - 1, "memory_limit"),
        (signal.SIGTERM, LIMIT - 1, "process_died:SIGTERM"),
        (45, 0, "process_died:SIGRTMIN+11"),
    ],
)
def test_a_status_is_told_in_stable_words(status, peak, reason):
    assert death_reason(status, forced="", peak_bytes=peak, memory_bytes=LIMIT) == reason


def test_why_we_ended_it_goes_before_what_the_kernel_says():
    status = int(signal.SIGKILL)
    assert (
        death_reason(status, forced="cut_off:flood", peak_bytes=LIMIT, memory_bytes=LIMIT) == "cut_off:flood"
    )


@pytest.mark.parametrize(
    ("ours", "zygotes", "status", "reason"),
    [
        ("cut_off:socket_closed", "process_limit", signal.SIGKILL, "process_limit"),
        ("cut_off:socket_closed", "memory_limit", signal.SIGKILL, "memory_limit"),
        ("cut_off:socket_closed", "", signal.SIGKILL, "cut_off:socket_closed"),
        ("cut_off:socket_closed", "", 3 << 8, "process_exited:3"),
        ("cut_off:socket_closed", "", 70 << 8, "cut_off:socket_closed"),
        ("cut_off:socket_closed", "", signal.SIGSEGV, "process_died:SIGSEGV"),
        ("cut_off:flood", "process_limit", signal.SIGKILL, "cut_off:flood"),
        ("", "process_limit", signal.SIGKILL, "process_limit"),
        ("", "", 3 << 8, "process_exited:3"),
    ],
)
def test_a_socket_that_closed_is_no_reason_where_there_is_another(ours, zygotes, status, reason):
    forced = ended_for(ours, zygotes, int(status))
    assert death_reason(int(status), forced=forced, peak_bytes=0, memory_bytes=LIMIT) == reason
