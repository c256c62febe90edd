"""Checks that a node and a controller have in common: disk, clock, memory, open files, certificates."""

from __future__ import annotations

import contextlib
import ctypes
import datetime as dt
import os
import pathlib
import shutil
import struct
from collections.abc import Iterable
from typing import Final

from cryptography import x509

from corral.cli.doctor.findings import Looks, Verdict, advice, error, ok
from corral.cli.doctor.running_role import is_there
from corral.cli.terminal.values import size_text
from corral.runtimes.cgroups.systemd import systemd_is_pid_1
from corral.system.addresses import DESCRIPTORS

PROGRAM_SECONDS: Final = 1.5
_MEBI: Final = 1024 * 1024
_SCARCE: Final = 0.05
_FEW_INODES: Final = 1000
_TIMEX: Final = "@I4li"
"""The beginning of the kernel's `struct timex`, up to its status."""
_UNSYNCHRONISED: Final = 0x40
_SKEW_SECONDS: Final = 60.0
_SPANS: Final = (("year", 31_557_600), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
_INSTALLERS: Final = {
    "apt-get": "install",
    "dnf": "install",
    "zypper": "install",
    "pacman": "-S",
    "apk": "add",
}


WHY: Final = {
    "inodes": "Without inodes no file can be made, however much space is free.",
    "memory": "When it runs out, the kernel ends processes.",
    "clock": "Certificates and schedules go by the clock, and events of all machines are put in order by it.",
    "open-files": f"Each connection and each running instance needs several; {DESCRIPTORS:,} are enough.",
}


def machine_looks(
    data: pathlib.Path, pid: int, *, reserve_mb: int, unit: str, written: Iterable[pathlib.Path]
) -> Looks:
    """`pid`: the process of the role; 0: it does not run."""
    now = dt.datetime.now(dt.UTC)
    return {
        "disk-space": lambda: disk_space(data, reserve_mb=reserve_mb),
        "inodes": lambda: inodes(data),
        "memory": lambda: memory(_proc("meminfo")),
        "clock": lambda: clock(now, synchronised=synchronised(), written=written),
        "open-files": lambda: open_files(_proc(f"{pid or 'self'}/limits"), unit=unit),
    }


def _proc(file: str) -> str:
    return pathlib.Path("/proc", file).read_text()


def existing(path: pathlib.Path) -> pathlib.Path:
    """The path, or the nearest directory above it that exists."""
    return next(each for each in (path, *path.parents) if is_there(each))


def disk_space(directory: pathlib.Path, *, reserve_mb: int) -> Verdict:
    place = existing(directory)
    usage = os.statvfs(place)
    free, total, reserve = (
        usage.f_bavail * usage.f_frsize,
        usage.f_blocks * usage.f_frsize,
        reserve_mb * _MEBI,
    )
    found = f"{size_text(free)} of {size_text(total)} are free on the disk of {place}"
    largest = f"du -xh --max-depth=2 {place} | sort -h | tail"
    if free < reserve:
        return error(f"{found}, less than the {size_text(reserve)} that have to stay free", largest)
    if free < max(2 * reserve, total * _SCARCE):
        return advice(f"only {found}; {size_text(reserve)} have to stay free", largest)
    return ok(found)


def inodes(directory: pathlib.Path) -> Verdict:
    place = existing(directory)
    usage = os.statvfs(place)
    if not usage.f_files:
        return ok(f"the file system of {place} has no fixed number of files")
    found = f"{usage.f_favail:,} of {usage.f_files:,} inodes are free on the disk of {place}"
    if usage.f_favail >= max(_FEW_INODES, usage.f_files * _SCARCE):
        return ok(found)
    worst = error if usage.f_favail < _FEW_INODES else advice
    return worst(found, f"du -x --inodes --max-depth=2 {place} | sort -n | tail")


def memory(meminfo: str) -> Verdict:
    sizes = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in meminfo.splitlines()}
    free, total = sizes["MemAvailable"], sizes["MemTotal"]
    found = f"{size_text(free)} of {size_text(total)} are available"
    if free >= total * _SCARCE:
        return ok(found)
    return advice(f"only {found}", "ps -eo rss,pid,comm --sort=-rss | head")


def synchronised() -> bool:
    """Whether a time server, or the host of this machine, keeps the kernel's clock right."""
    state = ctypes.create_string_buffer(512)  # zeros: nothing is to be adjusted
    if ctypes.CDLL(None, use_errno=True).adjtimex(state) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return not struct.unpack_from(_TIMEX, state)[-1] & _UNSYNCHRONISED


def clock(now: dt.datetime, *, synchronised: bool, written: Iterable[pathlib.Path]) -> Verdict:
    command = "timedatectl set-ntp true" if systemd_is_pid_1() else install("chrony")
    last = max((each.stat().st_mtime for each in written if is_there(each)), default=0.0)
    if (ahead := last - now.timestamp()) > _SKEW_SECONDS:
        return error(f"the clock went back: files here were written {rough(ahead)} after now", command)
    if not synchronised:
        return advice(f"{now:%Y-%m-%d %H:%M} UTC, and no time server keeps the clock right", command)
    return ok(f"{now:%Y-%m-%d %H:%M} UTC, kept right by a time server")


def open_files(limits: str, *, unit: str) -> Verdict:
    """`limits`: the content of /proc/PID/limits."""
    (hard,) = (line.split()[4] for line in limits.splitlines() if line.startswith("Max open files"))
    if hard == "unlimited" or int(hard) >= DESCRIPTORS:
        return ok(f"{hard if hard == 'unlimited' else f'{int(hard):,}'} files may be open at once")
    edit = f"systemctl edit {unit}  # [Service] LimitNOFILE={DESCRIPTORS}"
    command = edit if systemd_is_pid_1() else f"ulimit -Hn {DESCRIPTORS}  # as root, before it is started"
    return advice(f"only {int(hard):,} files may be open at once", command)


def process(pid: int, role: str, data: pathlib.Path) -> Verdict:
    if pid:
        return ok(f"the {role} of {data} runs, as process {pid}")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        (data / f"{role}.lock").open().close()  # else it is not known
    start = f"systemctl start corral-{role}" if systemd_is_pid_1() else f"corral {role} --data {data}"
    return advice(f"no {role} runs in {data}", start)


def expiry(pem: str, *, now: dt.datetime, soon: dt.timedelta, whose: str, command: str) -> Verdict:
    """`soon`: from so long before its end on it is worth a word."""
    certificate = x509.load_pem_x509_certificate(pem.encode())
    left = certificate.not_valid_after_utc - now
    until = f"{certificate.not_valid_after_utc:%d %b %Y}"
    if left <= dt.timedelta():
        return error(f"{whose} expired {rough(-left.total_seconds())} ago, on {until}", command)
    if certificate.not_valid_before_utc > now:
        return error(
            f"{whose} is valid from {certificate.not_valid_before_utc:%d %b %Y %H:%M} UTC on", command
        )
    found = f"{whose} is valid for {rough(left.total_seconds())}, until {until}"
    return ok(found) if left > soon else advice(found, command)


def install(package: str) -> str:
    """The command that installs a package here; empty where none is known."""
    found = (f"{name} {verb} {package}" for name, verb in _INSTALLERS.items() if shutil.which(name))
    return next(found, "")


def rough(seconds: float) -> str:
    """A span in one unit: `3 days`."""
    name, length = next((each for each in _SPANS if seconds >= 2 * each[1]), _SPANS[-1])
    return f"{int(seconds / length)} {name}s"
