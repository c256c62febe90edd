"""The fault campaign: keeper, shims, daemon and controller are killed in all combinations and at distances, while
workloads that check themselves write, end and are started again.

`python -m campaigns.faults --minutes 30 --store sqlite --seed 1`. Nothing may be lost, doubled or altered that is not
told as a gap; no end may be told wrong; no instance may ever live twice. Ends with 1 when a rule was broken.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pathlib
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from campaigns import workload
from campaigns.checking import Checker, Tally
from campaigns.command_line import run_campaign
from corral.cli.failure import CommandFailure
from corral.runtimes.keeper.run_files import read_record
from corral.testing.api_calls import call
from corral.testing.ports import free_addresses
from corral.testing.processes import ProcessCluster, ServiceProcess

KINDS: Final = ("keeper", "shims", "daemon", "controller")
COMBINATIONS: Final = [
    kinds for count in range(1, len(KINDS) + 1) for kinds in itertools.combinations(KINDS, count)
]
_NODE: Final = "n1"
_ENDS: Final = "INSTANCE_CRASHED,INSTANCE_STOPPED"
_DISTANCES: Final = (0.0, 0.2, 1.0, 4.0)
_DEADLINE_SECONDS: Final = 120.0
_CONTROLLER: Final = {
    "CORRAL_LINK_HEARTBEAT_SECONDS": "1",
    "CORRAL_RECONCILE_OBSERVE_SECONDS": "1",
    "CORRAL_INSTANCES_ENDED_PER_GROUP": "10000",  # no record goes before its console was compared
}
_GROUPS: Final[dict[str, dict[str, Any]]] = {
    "brief": {"min": 5, "restart": {"attempts": 0}},
    "again": {"min": 3, "restart": {"attempts": 1000, "interval_seconds": 1, "delay_ms": 200}},
    "flood": {"min": 2, "restart": {"attempts": 0}},
    "long": {"min": 4, "restart": {"attempts": 0}},
    "terminal": {"min": 2, "tty": True, "restart": {"attempts": 0}},
}


class Site:
    """One controller and one node on fixed ports, either of which may be dead."""

    def __init__(self, processes: ProcessCluster, directory: pathlib.Path, store: str) -> None:
        self.node_data = directory / _NODE
        self.side = directory / "side"
        self.side.mkdir()
        self._processes = processes
        self._data = directory / "controller"
        self._store = store
        self._http, self._grpc, self._bootstrap = free_addresses(3)
        self._roles: dict[str, ServiceProcess] = {}

    async def get(self, path: str) -> Any:
        return await self._call("GET", path)

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """As a client does who is patient with a controller that is away."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while True:
            try:
                return await call(f"http://{self._http}", self._token, method, path, body)
            except CommandFailure as failure:
                code = getattr(failure, "code", "")
                if time.monotonic() > deadline or code not in (
                    "",
                    "NODE_OFFLINE",
                    "STORE_UNAVAILABLE",
                    "NOT_LEADER",
                ):
                    raise
                await asyncio.sleep(0.2)

    @property
    def _token(self) -> str:
        return (self._data / "admin.token").read_text().strip()

    async def heal(self) -> None:
        """Start what is dead."""
        if not self._lives("controller"):
            self._roles["controller"] = self._processes.start(
                "controller", "--data", str(self._data), "--http", self._http, "--grpc", self._grpc,
                "--bootstrap", self._bootstrap, "--store", self._store,
                environment=_CONTROLLER,
            )  # fmt: skip
            await self._roles["controller"].ready()
        if not self._lives("daemon"):
            joined = (self.node_data / "identity.json").exists()
            self._roles["daemon"] = self._processes.start(
                "daemon", "--data", str(self.node_data), "--controller", self._grpc, "--node-id", _NODE,
                *(() if joined else ("--join", await self._join_token())),
                environment={"CORRAL_LINK_RECONNECT_MAX_SECONDS": "0.5"},
            )  # fmt: skip
            await self._roles["daemon"].ready()

    def _lives(self, role: str) -> bool:
        return role in self._roles and self._roles[role].alive

    async def _join_token(self) -> str:
        made = await self._call("POST", "/api/v1/nodes/join-tokens", {"node_id": _NODE})
        return str(made["token"])

    async def create_groups(self) -> None:
        program = str(pathlib.Path(workload.__file__).resolve())
        for name, more in _GROUPS.items():
            command = [sys.executable, "-I", "-S", program, str(self.side), name]
            document = {"name": name, "command": command, "crash_loop": {"failures": 1000}, "min_alive_ms": 0}
            document["stop"] = [{"signal": "SIGTERM", "wait_seconds": 5}]
            await self._call("POST", "/api/v1/groups", {**document, **more})

    async def kill(self, kind: str) -> None:
        if kind in self._roles:
            if self._lives(kind):
                await self._roles[kind].kill()
            return
        for pid in self._keepers() if kind == "keeper" else self._shims():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _keepers(self) -> Iterator[int]:
        for lock in (self.node_data / "keeper").glob("*lock*"):
            with contextlib.suppress(OSError, ValueError):
                yield int(lock.read_text())

    def _shims(self) -> Iterator[int]:
        for run in (self.node_data / "runs").glob("*/*"):
            record = read_record(str(run))
            if record is not None and not (run / "empty").exists():
                yield record.shim

    async def end_everything(self) -> None:
        """No group starts anything more; what runs is asked to leave, and every end is waited for."""
        for name in _GROUPS:
            await self._call("PATCH", f"/api/v1/groups/{name}", {"min": 0, "restart": {"attempts": 0}})
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while living := (await self.get("/api/v1/instances?limit=500&live=true"))["items"]:
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"still living: {[(each['id'], each['state'], each['reason']) for each in living]}"
                )
            for each in living:
                if each["group"] != "long" and each["wanted"] == "run":
                    await self._call("POST", f"/api/v1/instances/{each['id']}/stop", {})
                elif each["group"] == "long" and each["state"] in ("RUNNING", "DRAINING") and each["pid"]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(each["pid"], signal.SIGUSR1)
            await asyncio.sleep(0.5)


class Ends:
    """The events that tell how runs ended, each given once."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._after = ""

    async def new(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            after = f"&after={self._after}" if self._after else ""
            page = await self._site.get(f"/api/v1/events?types={_ENDS}&limit=500{after}")
            found += page["items"]
            if page["items"]:
                self._after = page["items"][-1]["id"]
            if not page["next"]:
                return found
            self._after = page["next"]


async def run(
    directory: pathlib.Path, *, store: str, seed: int, seconds: float = 0.0, rounds: int = 0
) -> Tally:
    """Kill for so long, or for so many rounds; then let everything end, and check what is left."""
    dice = random.Random(seed)  # noqa: S311
    async with ProcessCluster(directory) as processes:
        site = Site(processes, directory, store)
        checker, ends = Checker(site.side, site.get), Ends(site)
        await site.heal()
        await site.create_groups()
        deadline = time.monotonic() + seconds
        for number in itertools.count(1):
            if number > rounds if rounds else time.monotonic() > deadline:
                break
            await _round(site, dice)
            for end in await ends.new():
                await checker.check(end)
            print(f"round {number}: {checker.tally}", flush=True)
        await site.heal()
        await site.end_everything()
        for end in await ends.new():
            await checker.check(end)
        checker.check_all_told()
        return checker.tally


async def _round(site: Site, dice: random.Random) -> None:
    """One to three combinations, the next perhaps before the last has healed."""
    for _ in range(dice.choice((1, 1, 2, 3))):
        kinds = list(dice.choice(COMBINATIONS))
        dice.shuffle(kinds)
        for kind in kinds:
            await site.kill(kind)
            await asyncio.sleep(dice.choice((0, 0, dice.random() * 0.3)))
        await asyncio.sleep(dice.choice(_DISTANCES))
        if dice.random() < 0.5:
            await site.heal()
    await site.heal()
    await asyncio.sleep(dice.choice(_DISTANCES))


async def _reported(
    directory: pathlib.Path, *, store: str, seed: int, seconds: float
) -> tuple[Sequence[str], Sequence[object]]:
    tally = await run(directory, store=store, seed=seed, seconds=seconds)
    return [str(tally)], tally.violations


if __name__ == "__main__":
    raise SystemExit(run_campaign(_reported, description=__doc__, minutes=30.0))
