"""P12: a module process costs little: start, calls, memory, end; beside a fresh interpreter as the floor.

The module does nothing, so what is measured is ours: fork, import, the line and the host's loop. Memory is
what the process has for itself, pages shared with the zygote not counted.

A hot reload is other content under the same version, sent to the API of a controller that is a process of its
own: from the first byte until the answer says ACTIVE. A call of a module's route stands beside a request that
the controller answers by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any, Final

import structlog
import uvloop

from benchmarks.figures import percentile, result
from benchmarks.sizes import sized
from benchmarks.trees import fresh_directory
from corral.modules.process import Limits, ModuleProcess, ProcessPool
from corral.modules.process.call_failures import ModuleRaised
from corral.sdk.protocol.messages import HEALTH, HealthAnswer, Nothing
from corral.testing.archives import zipped
from corral.testing.module_processes import Workbench, run_hook
from corral.testing.ports import free_addresses
from corral.testing.processes import ProcessCluster

STARTS: Final = sized(40, 2)
CALLS: Final = sized(4000, 50)
LIVING: Final = sized(20, 5)
RELOADS: Final = sized(20, 2)
REQUESTS: Final = sized(500, 10)
_DEADLINE: Final = 30.0
_SOURCE: Final = """
from corral.sdk import PlatformModule

class Module(PlatformModule):
    def register_routes(self, routes):
        routes.get("/word", self.word)

    async def word(self, request):
        return {"word": "%s"}
"""


def run() -> list[dict[str, Any]]:
    """The claims of P12, in the shape of `benchmarks/results.json`."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    return uvloop.run(_measured(fresh_directory()))


async def _measured(directory: pathlib.Path) -> list[dict[str, Any]]:
    async with ProcessPool(directory=directory / "house") as house:
        bench = Workbench(house, directory / "module")
        await (await bench.start()).kill()  # the zygote is there from now on
        answers, loads, ends, fresh = await _lives(house, bench)
        process = await bench.start()
        calls = await _calls(process)
        living = [await bench.start(module_id=f"module-{number}") for number in range(LIVING)]
        together = await _side_by_side(living[:5])
        memory = statistics.median(_private_kilobytes(one.pid) for one in living) / 1024
    installs, reloads, routes, plain = await _through_the_api(directory)
    return [
        _start("P12 module process, start to first answer, p50", answers, fresh, 0.25),
        _start("P12 module loaded (imported, constructed), p50", loads, fresh, 0.4),
        _plain("P12 module finished by itself, p50", statistics.median(ends), "ms", 40),
        _plain("P12 hook call, p50", percentile(calls, 0.5), "ms", 0.5),
        _plain("P12 hook call, p99", percentile(calls, 0.99), "ms", 5),
        _plain("P12 hook on 5 modules side by side, p50", percentile(together, 0.5), "ms", 5),
        _plain("P12 private memory of a module", memory, "MB", 12),
        _plain("P12 install to ACTIVE over the API, p50", statistics.median(installs), "ms", 300),
        _plain("P12 hot reload over the API, p50", statistics.median(reloads), "ms", 300),
        _beside("P12 module route over the API, p50", routes, plain, 4),
    ]


def _start(name: str, values: list[float], fresh: list[float], most: float) -> dict[str, Any]:
    value, floor = statistics.median(values), statistics.median(fresh)
    target = f"<= {most:g} x a fresh interpreter"
    return result(name, value, "ms", floor=floor, target=target, ok=value <= most * floor)


def _plain(name: str, value: float, unit: str, most: float) -> dict[str, Any]:
    return result(name, value, unit, target=f"<= {most:g} {unit}", ok=value <= most)


def _beside(name: str, values: list[float], floors: list[float], most: float) -> dict[str, Any]:
    value, floor = statistics.median(values), statistics.median(floors)
    target = f"<= {most:g} x GET /api/v1/groups"
    return result(name, value, "ms", floor=floor, target=target, ok=value <= most * floor)


async def _lives(
    house: ProcessPool, bench: Workbench
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


async def _through_the_api(
    directory: pathlib.Path,
) -> tuple[list[float], list[float], list[float], list[float]]:
    """Installs, hot reloads, calls of a route, and plain requests, in milliseconds."""
    web, grpc, bootstrap = free_addresses(3)
    async with ProcessCluster(directory) as processes:
        controller = processes.start(
            *("controller", "--data", str(directory / "c")),
            *("--http", web, "--grpc", grpc, "--bootstrap", bootstrap),
        )
        await controller.ready()
        token = (directory / "c" / "admin.token").read_text().strip()
        with contextlib.closing(http.client.HTTPConnection(web, timeout=_DEADLINE)) as connection:
            site = _Site(connection, token)
            site.install("warm-up", "first")  # the zygote is there from now on
            installs = [site.install(f"fresh-{number}", "first") for number in range(RELOADS)]
            reloads = [site.install("fresh-0", f"word {number}") for number in range(RELOADS)]
            routes, plain = [], []
            for _ in range(REQUESTS):
                routes.append(site.timed("GET", "/api/v1/modules/fresh-0/word"))
                plain.append(site.timed("GET", "/api/v1/groups"))
    return installs, reloads, routes, plain


class _Site:
    """The API over one kept connection; every answer is a good one."""

    def __init__(self, connection: http.client.HTTPConnection, token: str) -> None:
        self._connection = connection
        self._headers = {"Authorization": f"Bearer {token}"}

    def install(self, id: str, word: str) -> float:
        body = _archive(id, word)
        return self.timed("POST", "/api/v1/modules?replace=true", body, expect=b'"phase":"ACTIVE"')

    def timed(self, method: str, path: str, body: bytes = b"", *, expect: bytes = b"") -> float:
        headers = {**self._headers, **({"Content-Type": "application/zip"} if body else {})}
        began = time.perf_counter()
        self._connection.request(method, path, body or None, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        took = (time.perf_counter() - began) * 1000
        if answer.status >= 300 or expect not in content:
            raise RuntimeError(f"{method} {path}: {content.decode()[:2000]}")
        return took


def _archive(id: str, word: str) -> bytes:
    manifest = {
        "manifestVersion": 1,
        "id": id,
        "version": "1.0.0",
        "api": ">=1.0",
        "backend": {"controller": {"entrypoint": "bench_module:Module"}},
    }
    return zipped(
        {"module.yaml": json.dumps(manifest).encode(), "bench_module.py": (_SOURCE % word).encode()}
    )


def _private_kilobytes(pid: int) -> int:
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(
        int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Private_Clean:"))
    )


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
