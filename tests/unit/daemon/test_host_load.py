"""The load of a host, as its kernel counts it."""

from __future__ import annotations

import os
import pathlib

from corral.daemon.node import host_info
from corral.daemon.node.host_info import StatusSampler
from corral.testing.waiting import eventually


def memory_mb(name: str) -> int:
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) // 1024


async def test_a_sample_says_what_the_kernel_and_the_disk_say(tmp_path):
    sampler = StatusSampler(tmp_path)

    def as_the_kernel_has_it() -> bool:  # others use memory while we look
        used, status = memory_mb("MemTotal") - memory_mb("MemAvailable"), sampler.sample()
        return abs(status.used_memory_mb - used) <= 64

    await eventually(as_the_kernel_has_it)
    status = sampler.sample()
    assert status.total_memory_mb == host_info.total_memory_mb() == memory_mb("MemTotal")
    disk = os.statvfs(tmp_path)
    assert status.total_disk_mb == disk.f_blocks * disk.f_frsize // 2**20
    assert 0 <= status.free_disk_mb <= status.total_disk_mb


async def test_use_of_the_cpu_is_a_share_of_the_time_since_the_last_sample(tmp_path):
    sampler = StatusSampler(tmp_path)

    def worked() -> bool:
        sum(range(300_000))
        usage = sampler.sample().cpu_usage
        assert 0.0 <= usage <= 1.0
        return usage > 0.0

    await eventually(worked)
