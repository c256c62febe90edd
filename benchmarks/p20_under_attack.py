"""P20: what others notice while somebody attacks: a request of an administrator, and the controller's loop.

The controller is a process of its own with the limits that it has by default, so is each attacker; this process asks `GET
/api/v1/groups` over kept connections of several tokens at a steady pace. p50, p99 and the slowest are printed for each attack, and the longest delay of the
controller's loop (`corral_loop_lag_seconds`); the floor is the same without an attack, right before it. Memory is
how much the controller grew meanwhile.

An attack is an async function `attack(target, begun)` that calls `begun()` once it is under way and goes on until it
is cancelled. Every `benchmarks/attacks_*.py` has a mapping `ATTACKS` of names to such functions: a new one only
has to stand there. `python -m benchmarks p20` runs them all, `P20_ONLY=name,name` some of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import uvloop

from benchmarks.figures import percentile, result
from benchmarks.site import Site, open_site
from benchmarks.sizes import sized
from benchmarks.trees import fresh_directory
from corral.testing.ports import free_addresses
from corral.testing.processes import ProcessCluster

SECONDS: Final = sized(5.0, 0.3)
PAUSE: Final = 0.005
GROUPS: Final = sized(50, 3)
LAG_TARGET: Final = 0.1
TIMES_QUIET: Final = 5
_VIEWERS: Final = 4
"""Tokens in turn: none of them asks more often than it may."""
_BEGUN: Final = "begun"
_LAG: Final = re.compile(rb"^corral_loop_lag_seconds ([0-9.e+-]+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Target:
    """What an attacker knows: addresses, a token of each role, and the controller's data where he has a foothold."""

    http: str
    grpc: str
    bootstrap: str
    data: str
    admin: str
    operator: str
    viewer: str


Attack = Callable[[Target, Callable[[], None]], Awaitable[None]]


def attacks() -> dict[str, Attack]:
    """Every attack that is known, by its name."""
    found: dict[str, Attack] = {}
    for path in sorted(pathlib.Path(__file__).parent.glob("attacks_*.py")):
        listed: Mapping[str, Attack] = importlib.import_module(f"benchmarks.{path.stem}").ATTACKS
        found |= listed
    wanted = os.environ.get("P20_ONLY", "")
    return {name: each for name, each in found.items() if not wanted or name in wanted.split(",")}


def run() -> list[dict[str, Any]]:
    return uvloop.run(_measured(fresh_directory()))


async def _measured(directory: pathlib.Path) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    async with _controller(directory) as (target, pid):
        with open_site(target.http, target.admin) as site:
            for number in range(GROUPS):
                body = json.dumps({"name": f"g-{number}", "command": ["true"]}).encode()
                site.request("POST", "/api/v1/groups", body, kind="application/json")
            with contextlib.ExitStack() as stack:
                viewers = [
                    stack.enter_context(open_site(target.http, _token(site, f"asks-{number}", "VIEWER")))
                    for number in range(_VIEWERS)
                ]
                for name in attacks():
                    floor = await asyncio.to_thread(_asked, site, viewers)
                    before = _resident(pid)
                    with _attacker(name, target):
                        seen = await asyncio.to_thread(_asked, site, viewers)
                        grown = _resident(pid) - before
                    results += _told(name, seen, floor, grown)
    return results


@contextlib.asynccontextmanager
async def _controller(directory: pathlib.Path) -> AsyncIterator[tuple[Target, int]]:
    http, grpc, bootstrap = free_addresses(3)
    data = directory / "c"
    async with ProcessCluster(directory) as processes:
        controller = processes.start(
            *("controller", "--data", str(data), "--http", http, "--grpc", grpc, "--bootstrap", bootstrap),
            environment={"CORRAL_HTTP_LIMITS_STREAMS": "50", "CORRAL_HTTP_LIMITS_REQUESTS_PER_SECOND": "50"},
        )
        await controller.ready()
        admin = (data / "admin.token").read_text().strip()
        with open_site(http, admin) as site:
            operator, viewer = (_token(site, f"attacks-{role}", role) for role in ("OPERATOR", "VIEWER"))
        target = Target(
            http=http,
            grpc=grpc,
            bootstrap=bootstrap,
            data=str(data),
            admin=admin,
            operator=operator,
            viewer=viewer,
        )
        yield target, controller.pid


def _token(site: Site, name: str, role: str) -> str:
    body = json.dumps({"name": name.lower(), "role": role}).encode()
    answer = json.loads(site.request("POST", "/api/v1/tokens", body, kind="application/json"))
    return str(answer["token"])


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Seconds a request took, and how late the controller's loop was at most."""

    requests: list[float]
    lag: float


def _asked(site: Site, viewers: Sequence[Site]) -> Seen:
    """Ask at a steady pace; the first scrape only sets the lag back."""
    _lag(site)
    requests: list[float] = []
    ending = time.monotonic() + SECONDS
    for viewer in itertools.cycle(viewers):
        if (began := time.monotonic()) >= ending:
            break
        viewer.request("GET", "/api/v1/groups")
        requests.append(time.monotonic() - began)
        time.sleep(PAUSE)
    return Seen(requests=requests, lag=_lag(site))


def _lag(site: Site) -> float:
    match = _LAG.search(site.request("GET", "/metrics"))
    assert match is not None, "the controller shows no lag"
    return float(match[1])


def _resident(pid: int) -> float:
    """Megabytes."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _told(name: str, seen: Seen, floor: Seen, grown: float) -> list[dict[str, Any]]:
    def row(what: str, value: float, unit: str, least: float | None, target: str, ok: bool) -> dict[str, Any]:
        return result(f"P20 {name}: {what}", value, unit, floor=least, target=target, ok=ok)

    quick = f"p99 ≤ {LAG_TARGET * 1000:.0f} ms and {TIMES_QUIET} × the floor"
    rows = []
    for what, share in (("GET groups p50", 0.5), ("GET groups p99", 0.99), ("GET groups max", 1.0)):
        value, least = percentile(seen.requests, share) * 1000, percentile(floor.requests, share) * 1000
        most = min(LAG_TARGET * 1000, TIMES_QUIET * least)
        rows.append(row(what, value, "ms", least, quick, share != 0.99 or value <= most))
    lag = row("longest loop lag", seen.lag * 1000, "ms", floor.lag * 1000, "≤ 100 ms", seen.lag <= LAG_TARGET)
    memory = row("controller grew by", grown, "MB", None, "≤ 64 MB", grown <= 64)
    return [*rows, lag, memory]


@contextlib.contextmanager
def _attacker(name: str, target: Target) -> Iterator[None]:
    """An attack in a process of its own, from when it is under way."""
    command = [sys.executable, "-m", "benchmarks.p20_under_attack", name, json.dumps(asdict(target))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != _BEGUN:
                raise RuntimeError(f"the attack '{name}' did not begin")
            yield
        finally:
            process.kill()


async def _attack(name: str, target: Target) -> None:
    await attacks()[name](target, lambda: print(_BEGUN, flush=True))


if __name__ == "__main__":
    uvloop.run(_attack(sys.argv[1], Target(**json.loads(sys.argv[2]))))
