"""P11: a template of 1,000 files and one of 50 MB: into a working directory, and again to a node.

The floor of the working directory is `cp -a --reflink=auto` of the same files, taken in turns with ours
on the same disk. A re-sync is everything between a preparation's asking for a version and its having
all files, verified: of the version that is there already, and of one in which 10 KB changed. Bytes are
counted on the line between node and controller, in both directions and with all that TLS adds.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import io
import logging
import os
import pathlib
import random
import subprocess
import tarfile
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import structlog
import uvloop

from benchmarks.figures import percentile, result
from benchmarks.sizes import sized
from benchmarks.trees import fresh_directory
from corral.controller.templates.template_changes import new_version
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_copy import FileCopier, clones_work
from corral.daemon.prepare.layout import FileLayer, lay_out
from corral.daemon.prepare.small_contents import SmallContents
from corral.daemon.prepare.staged_tree import materialise
from corral.domain.file_paths import Globs
from corral.domain.groups.plans import PlanTemplate
from corral.testing.cluster import LocalCluster, LocalController, LocalDaemon
from corral.testing.fault_proxy import FaultProxy

FILES = sized(1000, 40)
LARGE = sized(50 * 1000 * 1000, 1000000)
ROUNDS = sized(9, 2)
SYNCS = sized(50, 2)
CHANGES = sized(10, 2)


def tree() -> dict[str, bytes]:
    chance = random.Random(11)
    files = {f"plugins/p{number % 40:02}/f{number:04}.yml": chance.randbytes(2000) for number in range(FILES)}
    files["server.jar"] = chance.randbytes(LARGE)
    return files


async def publish(controller: LocalController, files: dict[str, bytes]) -> PlanTemplate:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))

    async def blocks() -> AsyncIterator[bytes]:
        held.seek(0)
        while block := held.read(1 << 20):
            yield block

    term = controller.app.role.term
    assert term is not None, "it leads"
    intake = await term.templates.intake_archive(blocks())
    change = new_version(term.state, "big", intake, now=dt.datetime.now(dt.UTC), keep=20)
    await term.ledger.commit(*change.steps)
    version = change.record.version()
    controller.lend_template("big", version.hash, node="n1")
    return PlanTemplate(name="big", version=version.number, hash=version.hash)


async def synced(daemon: LocalDaemon, template: PlanTemplate) -> float:
    began = time.perf_counter()
    async with daemon.app.cache.use() as use:
        await use.template(template)
    return (time.perf_counter() - began) * 1000


async def changed(
    controller: LocalController, daemon: LocalDaemon, proxy: FaultProxy, files: dict[str, bytes]
) -> tuple[list[float], list[int]]:
    times, moved = [], []
    for number in range(CHANGES):
        files[f"plugins/p{number:02}/f{number:04}.yml"] = os.urandom(10_000)
        template = await publish(controller, files)
        await asyncio.sleep(0.2)  # what else the line carries has passed
        before = proxy.forwarded_bytes
        times.append(await synced(daemon, template))
        moved.append(proxy.forwarded_bytes - before)
    return times, moved


async def laid_out(
    daemon: LocalDaemon, template: PlanTemplate, scratch: pathlib.Path
) -> tuple[list[float], list[float]]:
    """Ours and `cp`'s, in turns."""
    ours: list[float] = []
    floor: list[float] = []
    async with daemon.app.cache.use() as use:
        manifest = await use.template(template)
        layout = lay_out([FileLayer("big", manifest, True)], Globs(()))
        copier = FileCopier(clone=clones_work(daemon.config.data / "cache", scratch), link=False)
        source = scratch / "source"
        source.mkdir()
        lay = functools.partial(
            materialise, layout, content=use.content, copier=copier, abort=Abort(), small=SmallContents()
        )
        await asyncio.to_thread(lay, source)
        for number in range(ROUNDS):
            target, copied = scratch / f"ours-{number}", scratch / f"cp-{number}"
            target.mkdir()
            copy = functools.partial(
                subprocess.run, ["cp", "-a", "--reflink=auto", str(source), str(copied)], check=True
            )
            turns: list[tuple[list[float], Callable[[], Any]]] = [
                (ours, functools.partial(lay, target)),
                (floor, copy),
            ]
            for samples, work in turns if number % 2 else reversed(turns):  # the disk remembers who was first
                began = time.perf_counter()
                await asyncio.to_thread(work)
                samples.append((time.perf_counter() - began) * 1000)
            for tree in (target, copied):
                os.truncate(
                    tree / "server.jar", 0
                )  # frees the space and no inode: that slows what comes next
    return ours, floor


async def bench() -> list[dict[str, Any]]:
    scratch = fresh_directory()
    async with FaultProxy() as proxy, LocalCluster(scratch) as cluster:
        controller = await cluster.controller(via=proxy, link__heartbeat_seconds=30)
        daemon = await cluster.daemon("n1", controller, link__status_seconds=60)
        files = tree()
        template = await publish(controller, files)
        first = await synced(daemon, template)
        again = [await synced(daemon, template) for _ in range(SYNCS)]
        times, moved = await changed(controller, daemon, proxy, files)
        (scratch / "laid").mkdir()
        ours, floor = await laid_out(daemon, template, scratch / "laid")
        await daemon.app.stop()
    laid, cp = percentile(ours, 0.5), percentile(floor, 0.5)
    unchanged = percentile(again, 0.5)
    return [
        result(
            "P11 working directory, p50", laid, "ms", floor=cp, target="≤ 1.3 × cp -a", ok=laid <= 1.3 * cp
        ),
        result("P11 first sync", first, "ms", target="-", ok=True),
        result("P11 unchanged re-sync, p50", unchanged, "ms", target="≤ 20 ms", ok=unchanged <= 20),
        result("P11 re-sync of 10 KB changed, p50", percentile(times, 0.5), "ms", target="-", ok=True),
        result(
            "P11 re-sync of 10 KB changed, most bytes",
            max(moved) / 1024,
            "KiB",
            target="≤ 64 KB",
            ok=max(moved) <= 64_000,
        ),
    ]


def run() -> list[dict[str, Any]]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    return uvloop.run(bench())
