"""A maker of working directories on a directory of its own."""

from __future__ import annotations

import pathlib
from typing import Any

from corral.daemon.prepare.static_directory import StaticBuilder
from corral.daemon.prepare.tree_builder import WorkingTreeBuilder
from corral.daemon.prepare.warm_trees import WarmTrees
from corral.daemon.prepare.working_directories import WorkingDirectories
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.start_stages import StartProgress
from corral.daemon.workload.variable_values import Values
from corral.daemon.workload.workload_users import WorkloadUser
from corral.domain.groups.group import RestartSpec
from corral.domain.groups.plans import Plan
from corral.domain.ids import Incarnation, InstanceId
from corral.system.entropy import SystemEntropy
from corral.testing.preloaded_cache import PreloadedCache

FIRST = 1024


def plan_of(**fields: Any) -> Plan:
    values: dict[str, Any] = {
        "group": "test",
        "runtime": "process",
        "command": ("true",),
        "args": (),
        "env": {},
        "variables": {},
        "memory_mb": 0,
        "cpu": 0.0,
        "pids": 0,
        "console_mb": 16,
        "max_players": 0,
        "run_as": "",
        "isolate": "shared",
        "stdin": "fifo",
        "tty": False,
        "line_buffered": False,
        "stop": (),
        "startup_timeout_seconds": 60,
        "min_alive_ms": 0,
        "max_lifetime_seconds": 0,
        "crash_keep_seconds": 3600,
        "restart": RestartSpec(attempts=0),
    }
    return Plan(**{**values, **fields})


class Bench:
    """A maker of directories with a shelf of templates, and no daemon around them."""

    def __init__(
        self,
        data: pathlib.Path,
        *,
        warm: int = 0,
        idle_seconds: float = 3600.0,
        reserve_mb: int = 0,
        shelf: pathlib.Path | None = None,
    ) -> None:
        self.data = data
        data.mkdir(exist_ok=True)
        (data / "cache").mkdir(exist_ok=True)
        self.cache = PreloadedCache(shelf or data / "cache" / "contents")
        entropy = SystemEntropy()
        self.directories = WorkingDirectories(data, entropy=entropy)
        self.directories.open()
        self.warm = WarmTrees(self.directories, entropy=entropy, each=warm, idle_seconds=idle_seconds)
        self.maker = WorkingTreeBuilder(
            cache=self.cache,
            cache_root=data / "cache",
            directories=self.directories,
            warm=self.warm,
            reserve_mb=reserve_mb,
        )
        self.statics = StaticBuilder(
            self.maker, cache=self.cache, directories=self.directories, warm=self.warm
        )
        self.user = WorkloadUser(run_as="", name="me", uid=0, gid=0, home="")
        self.progress = StartProgress()

    def order(self, plan: Plan, *, incarnation: int = FIRST, id: str = "one") -> StartOrder:
        return StartOrder(
            instance_id=InstanceId(id),
            group="test",
            incarnation=Incarnation(incarnation),
            command=plan.command,
            plan=plan,
            static=plan.static,
            isolate=plan.isolate,
        )

    async def make(
        self,
        plan: Plan,
        *,
        incarnation: int = FIRST,
        id: str = "one",
        secret: tuple[str, ...] = (),
        **values: str,
    ) -> pathlib.Path:
        order = self.order(plan, incarnation=incarnation, id=id)
        found = Values(all=values, secret=frozenset(secret))
        if not plan.static:
            return await self.maker.make(order, self.user, found, self.progress)
        run_directory = self.data / "runs" / id / str(incarnation)
        run_directory.mkdir(parents=True, exist_ok=True)
        return await self.statics.make(order, self.user, found, self.progress, run_directory=run_directory)

    def staged(self) -> list[str]:
        """Whatever is being made, and should not be there when nothing is."""
        places = (self.directories.running / ".staging", self.directories.static / ".staging")
        return [str(path) for place in places if place.exists() for path in place.iterdir()]


def tree_of(root: pathlib.Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }
