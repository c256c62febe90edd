"""Facts and usage of this host, from the kernel."""

from __future__ import annotations

import os
import pathlib
import platform
import shutil
from typing import Final

from corral.system.entropy import Entropy, new_id
from corral.system.files import atomic_write
from corral.wire.v1.node_pb2 import HostInfo, NodeStatus

_MEBI: Final = 1024 * 1024
_PROC: Final = pathlib.Path("/proc")
_MEMORY: Final = "/proc/meminfo"
_TICKS: Final = "/proc/stat"
_IDLE: Final = 3
_WAITING: Final = 4
_PAGE: Final = 4096


def machine_id(configured: str, data: pathlib.Path, entropy: Entropy) -> str:
    """Identifies this machine: as configured, else the system's, else one created once for this directory."""
    if configured:
        return configured
    try:
        found = pathlib.Path("/etc/machine-id").read_text().strip()
    except OSError:
        found = ""
    if found:
        return found
    own = data / "machine-id"
    if not own.exists():
        atomic_write(own, f"{new_id('machine', entropy)}\n".encode())
    return own.read_text().strip()


def total_memory_mb() -> int:
    return _kibibytes(_beginning(_MEMORY), b"MemTotal:") // 1024


def _kibibytes(memory: bytes, name: bytes) -> int:
    start = memory.index(name) + len(name)
    return int(memory[start : memory.index(b"kB", start)])


def _beginning(file: str) -> bytes:
    """The first page of a file of the kernel. Every node reads it every few seconds: no more than the three calls it
    takes."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _PAGE)
    finally:
        os.close(descriptor)


def usable_cpus() -> int:
    return len(os.sched_getaffinity(0))


def host_info() -> HostInfo:
    system = platform.uname()
    cpu = _cpu_info()
    return HostInfo(
        os_name=system.system,
        os_version=system.release,
        arch=system.machine,
        cpu_model=cpu.get("model name", ""),
        cpu_physical_cores=int(cpu.get("cpu cores", 0)),
        cpu_logical_cores=os.cpu_count() or 0,
        cpu_max_freq_hz=int(float(cpu.get("cpu MHz", 0)) * 1_000_000),
    )


def _cpu_info() -> dict[str, str]:
    first = (_PROC / "cpuinfo").read_text().split("\n\n")[0]
    return {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())
    }


class StatusSampler:
    """Measures the load of this host; CPU use is that since the previous sample."""

    def __init__(self, data: pathlib.Path) -> None:
        self._data = data
        self._busy, self._total = _cpu_ticks()

    def sample(self) -> NodeStatus:
        busy, total = _cpu_ticks()
        passed = total - self._total
        usage = (busy - self._busy) / passed if passed > 0 else 0.0
        self._busy, self._total = busy, total
        memory = _beginning(_MEMORY)
        memory_kb = _kibibytes(memory, b"MemTotal:")
        disk = shutil.disk_usage(self._data)
        return NodeStatus(
            cpu_usage=min(1.0, max(0.0, usage)),
            total_memory_mb=memory_kb // 1024,
            used_memory_mb=(memory_kb - _kibibytes(memory, b"MemAvailable:")) // 1024,
            free_disk_mb=disk.free // _MEBI,
            total_disk_mb=disk.total // _MEBI,
        )


def _cpu_ticks() -> tuple[int, int]:
    """Ticks of all CPUs since the boot: busy, and in total."""
    first = _beginning(_TICKS).split(b"\n", 1)[0]
    ticks = [int(value) for value in first.split()[1:9]]
    total = sum(ticks)
    return total - ticks[_IDLE] - ticks[_WAITING], total
