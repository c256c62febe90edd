"""P12: a module process costs little: start, calls, memory, end; beside a fresh interpreter as the floor.

The module does nothing, so what is measured is ours: fork, import, the line and the host's loop. Memory is
what the process has for itself, pages shared with the zygote not counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Final

import structlog
import uvloop

from benchmarks.figures import percentile, result
from corral.modules.failures import ModuleRaised
from corral.modules.process import Limits, ModuleProcess, ProcessHouse
from corral.sdk.messages import HEALTH, HealthAnswer, Nothing
from corral.testing.module_workbench import Workbench, run_hook

STARTS: Final = 40
CALLS: Final = 4000
LIVING: Final = 20
_DEADLINE: Final = 30.0


def run() -> list[dict[str, Any]]:
    """The claims of P12, in the shape of `benchmarks/results.json`."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory() as directory:
        return uvloop.run(_measured(pathlib.Path(directory)))


async def _measured(directory: pathlib.Path) -> list[dict[str, Any]]:
    async with ProcessHouse(directory=directory / "house") as house:
        bench = Workbench(house, directory / "module")
        await (await bench.start()).kill()  # the zygote is there from now on
        answers, loads, ends, fresh = await _lives(house, bench)
        process = await bench.start()
        calls = await _calls(process)
        living = [await bench.start(module_id=f"module-{number}") for number in range(LIVING)]
        together = await _side_by_side(living[:5])
        memory = statistics.median(_private_kilobytes(one.pid) for one in living) / 1024
    return [
        _start("P12 module process, start to first answer, p50", answers, fresh, 0.25),
        _start("P12 module loaded (imported, constructed), p50", loads, fresh, 0.4),
        _plain("P12 module finished by itself, p50", statistics.median(ends), "ms", 40),
        _plain("P12 hook call, p50", percentile(calls, 0.5), "ms", 0.5),
        _plain("P12 hook call, p99", percentile(calls, 0.99), "ms", 5),
        _plain("P12 hook on 5 modules side by side, p50", percentile(together, 0.5), "ms", 5),
        _plain("P12 private memory of a module", memory, "MB", 12),
    ]


def _start(name: str, values: list[float], fresh: list[float], most: float) -> dict[str, Any]:
    value, floor = statistics.median(values), statistics.median(fresh)
    target = f"<= {most:g} x a fresh interpreter"
    return result(name, value, "ms", floor=floor, target=target, ok=value <= most * floor)


def _plain(name: str, value: float, unit: str, most: float) -> dict[str, Any]:
    return result(name, value, unit, target=f"<= {most:g} {unit}", ok=value <= most)


async def _lives(
    house: ProcessHouse, bench: Workbench
) -> tuple[list[float], list[float], list[float], list[float]]:
    """Interleaved, so that a noisy neighbour slows all of them alike."""
    answers, loads, ends, fresh = [], [], [], []
    for _ in range(STARTS):
        began = time.perf_counter()
        process = await house.start(
            "empty",
            paths=[],
            limits=Limits(memory_mb=256, processes=64),
            serve=_nothing,
            on_notice=lambda *_: None,
        )
        await _ping(process)
        answers.append((time.perf_counter() - began) * 1000)
        await process.kill()

        began = time.perf_counter()
        process = await bench.start()
        loads.append((time.perf_counter() - began) * 1000)

        began = time.perf_counter()
        await process.finish(grace=_DEADLINE)
        ends.append((time.perf_counter() - began) * 1000)

        began = time.perf_counter()
        await asyncio.to_thread(_fresh_interpreter)
        fresh.append((time.perf_counter() - began) * 1000)
    return answers, loads, ends, fresh


async def _nothing(*_: object) -> object:
    return Nothing()


async def _ping(process: ModuleProcess) -> None:
    """That nothing was constructed yet is an answer too."""
    with contextlib.suppress(ModuleRaised):
        await process.call(HEALTH, Nothing(), answer=HealthAnswer, deadline=_DEADLINE)


def _fresh_interpreter() -> None:
    subprocess.run([sys.executable, "-c", "import asyncio, msgspec, corral.sdk"], check=True)


async def _calls(process: ModuleProcess) -> list[float]:
    found = []
    for _ in range(CALLS):
        began = time.perf_counter()
        await run_hook(process, "on_stop", deadline=_DEADLINE)
        found.append((time.perf_counter() - began) * 1000)
    return found


async def _side_by_side(modules: list[ModuleProcess]) -> list[float]:
    found = []
    for _ in range(CALLS // 10):
        began = time.perf_counter()
        await asyncio.gather(*(run_hook(process, "on_stop", deadline=_DEADLINE) for process in modules))
        found.append((time.perf_counter() - began) * 1000)
    return found


def _private_kilobytes(pid: int) -> int:
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(
        int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Private_Clean:"))
    )


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
