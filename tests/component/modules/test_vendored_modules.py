"""A module that brings third-party packages of its own, native ones too: they load, again and again."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import pathlib
import re
import zipfile
from collections.abc import Iterable
from typing import NamedTuple

import pytest
import yaml
from hostile_rig import Pen, pen
from module_steps import modules_of

from corral.sdk.runner.proc_table import children
from corral.testing.cluster import LocalCluster
from corral.testing.leaks import take_census
from corral.testing.waiting import eventually

SOURCE = """
import importlib

from corral.sdk import PlatformModule

LOADED = {{name: importlib.import_module(name) for name in {names!r}}}

class Module(PlatformModule):
    def register_routes(self, routes):
        routes.get("/versions", lambda request: {{name: one.__version__ for name, one in LOADED.items()}})
        routes.get("/places", lambda request: [one.__file__ for one in LOADED.values()])
"""
DISTRIBUTIONS = {"grpc": "grpcio"}
LEFT_OUT = {"..", "tests", "f2py"}
NEEDED = {"", ".py", ".pyc", ".so", ".0", ".pem", ".json"}
"""What is loaded. The whole archive is digested at each load, and that is most of the time it takes."""


def needed(names: Iterable[str]) -> set[str]:
    """These distributions and those they need, of the ones that are installed here."""
    found: set[str] = set()
    waiting = [DISTRIBUTIONS.get(name, name) for name in names]
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        for line in importlib.metadata.requires(name) or ():
            wanted = re.match(r"[A-Za-z0-9._-]+", line)
            if wanted is not None and "extra" not in line and is_installed(wanted[0]):
                waiting.append(wanted[0])
    return found


def is_installed(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def vendoring(path: pathlib.Path, id: str, *names: str) -> pathlib.Path:
    """An archive with these packages, and what they need, beneath vendor/."""
    said = {
        "manifestVersion": 1,
        "id": id,
        "version": "1.0.0",
        "backend": {"controller": {"entrypoint": "vendoring:Module", "hookDeadlineMs": 20_000}},
        "limits": {"memoryMb": 2048},
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("module.yaml", yaml.safe_dump(said))
        archive.writestr("vendoring.py", SOURCE.format(names=names))
        for distribution in needed(names):
            for file in importlib.metadata.files(distribution) or ():
                place = pathlib.Path(str(file.locate()))
                if file.parts[:2] == ("kubernetes", "aio") or LEFT_OUT.intersection(file.parts):
                    continue
                if file.suffix in NEEDED and place.is_file():
                    content = place.read_bytes()
                    archive.writestr(f"vendor/{file}", fixed(content) if file.suffix == ".pyc" else content)
    return path


def fixed(bytecode: bytes) -> bytes:
    """Bytecode that belongs to its source whatever the time of that file is (PEP 552)."""
    return bytecode[:4] + (1).to_bytes(4, "little") + bytes(8) + bytecode[16:]


class Holdings(NamedTuple):
    """What the host has open because of its modules."""

    descriptors: int
    threads: int
    children: int
    processes: int


def holdings(pen: Pen) -> Holdings:
    house = modules_of(pen.controller)._parts.pool
    return Holdings(
        descriptors=len(os.listdir("/proc/self/fd")),
        threads=len(take_census().threads),
        children=len(children(os.getpid())),
        processes=len(children(house.zygote_pid or 0)),
    )


async def reload(pen: Pen, id: str, times: int) -> set[int]:
    """Each time a new process, which imports everything anew; their pids."""
    pids = set()
    for _ in range(times):
        answer = await pen.ask("POST", f"/{id}/reload")
        assert answer.is_success, answer.text
        found = answer.json()
        assert found["phase"] == "ACTIVE", found["failure"]
        pids.add(found["live"]["pid"])
    return pids


async def switch(pen: Pen, id: str, times: int) -> None:
    """Stopped and started in the process it has."""
    for _ in range(times):
        assert (await pen.ask("POST", f"/{id}/deactivate")).json()["phase"] == "INSTALLED"
        assert (await pen.ask("POST", f"/{id}/activate")).json()["phase"] == "ACTIVE"


async def check_reloads(pen: Pen, id: str, *, times: int, switches: int) -> None:
    """As much is held after many as after a few."""
    await reload(pen, id, 1)
    before = holdings(pen)
    assert len(await reload(pen, id, times)) == times
    await switch(pen, id, switches)

    def flat() -> bool:
        return all(now <= then for now, then in zip(holdings(pen), before, strict=True))

    await eventually(flat, state=lambda: (before, holdings(pen)))
    assert (await pen.ask("GET", "/leaked")).json()["items"] == []


@pytest.mark.system
@pytest.mark.trap("T58")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("names", "times", "switches"),
    [
        pytest.param(("pydantic",), 40, 0, id="pydantic in forty processes"),
        pytest.param(("numpy", "pydantic"), 10, 0, id="numpy and pydantic in ten"),
        pytest.param(
            ("numpy", "pydantic", "kubernetes", "grpc"),
            2,
            100,
            id="all four a hundred times in one",
        ),
    ],
)
async def test_vendored_packages_load_and_load_again_and_nothing_piles_up(
    cluster: LocalCluster, scratch: pathlib.Path, names: tuple[str, ...], times: int, switches: int
) -> None:
    """A process costs the digest of its whole archive, so the large ones get fewer, and are started a hundred
    times in the one they have."""
    async with pen(cluster, scratch) as made:
        path = await asyncio.to_thread(vendoring, scratch / "vendoring.zip", "vendoring", *names)
        told = await made.install(path)
        assert told["phase"] == "ACTIVE", told["failure"]
        assert set((await made.ask("GET", "/vendoring/versions")).json()) == set(names)
        unpacked = str(made.controller.data / "artifacts" / "unpacked" / told["sha256"] / "vendor")
        assert all(
            place.startswith(unpacked) for place in (await made.ask("GET", "/vendoring/places")).json()
        )
        await check_reloads(made, "vendoring", times=times, switches=switches)
        await made.uninstall("vendoring")
