"""The history of all runs on this machine: one line of JSON a run, in a file that git ignores."""

from __future__ import annotations

import datetime as dt
import json
import os
import pathlib
import platform
import subprocess
from typing import Any

from benchmarks.trees import disk

HERE = pathlib.Path(__file__).resolve().parent
HISTORY = HERE / "history.jsonl"


def append(results: list[dict[str, Any]], *, began: dt.datetime, rounds: int, load: float) -> None:
    line = {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "at": began.isoformat(timespec="seconds"),
        "seconds": round((dt.datetime.now(dt.UTC) - began).total_seconds()),
        "rounds": rounds,
        "machine": {**machine(), "load_before": load, "load_after": os.getloadavg()[0]},
        "results": results,
    }
    with HISTORY.open("a") as file:
        file.write(json.dumps(line) + "\n")


def machine() -> dict[str, Any]:
    """What figures depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "host": platform.node(),
        "processor": _field(pathlib.Path("/proc/cpuinfo"), "model name") or platform.machine(),
        "processors": os.cpu_count(),
        "memory_mb": memory >> 20,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": _file_system(disk()),
    }


def _field(file: pathlib.Path, name: str) -> str:
    for line in file.read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""


def _file_system(directory: pathlib.Path) -> str:
    """The type of the file system, by the longest mount point above the directory."""
    resolved, best, kind = directory.resolve(), "", "unknown"
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, point, type, *_ = line.split()
        if resolved.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, type
    return kind


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip()
