"""Files of some hundred megabytes go up and down in a process whose memory stays flat."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from corral.testing.cluster import LocalCluster

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

SIZE = 300 * 1024 * 1024
MOST_MORE = 48 * 1024 * 1024
"""Bytes that the process may have more than before; blocks and buffers, and what the allocator keeps."""

PROGRAM = """
import asyncio, hashlib, os, pathlib, resource, sys
from corral.client import AsyncClient, Client

kind, url, size, scratch = sys.argv[1], sys.argv[2], int(sys.argv[3]), pathlib.Path(sys.argv[4])
block = os.urandom(1024 * 1024)

def pieces():
    for _ in range(size // len(block)):
        yield block

def grown():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def digest(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

source, target = scratch / "source", scratch / "target"
with source.open("wb") as file:
    for each in pieces():
        file.write(each)

def work(corral):
    corral.templates.put_file("big", "first", pieces())
    corral.templates.put_file("big", "second", source)
    return corral.templates.get_file("big", "second").save(target)

async def work_async(corral):
    await corral.templates.put_file("big", "first", pieces())
    await corral.templates.put_file("big", "second", source)
    return await corral.templates.get_file("big", "second").save(target)

async def main():
    async with AsyncClient(url, token=os.environ["TOKEN"], timeout=120) as corral:
        await corral.templates.put("big", EMPTY)
        before = grown()
        return await work_async(corral), before

import io, tarfile
packed = io.BytesIO()
with tarfile.open(fileobj=packed, mode="w:gz") as tar:
    tar.addfile(tarfile.TarInfo("empty"), io.BytesIO())
EMPTY = packed.getvalue()
if kind == "async":
    saved, before = asyncio.run(main())
else:
    with Client(url, token=os.environ["TOKEN"], timeout=120) as corral:
        corral.templates.put("big", EMPTY)
        before = grown()
        saved = work(corral)
assert saved == size and digest(source) == digest(target)
print(grown() - before)
"""


async def test_memory_stays_flat_whatever_is_sent_and_received(kind, cluster: LocalCluster, tmp_path):
    controller = await cluster.controller(templates__max_bytes=4 * SIZE)
    ran = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", PROGRAM, kind, controller.url, str(SIZE), str(tmp_path)),
        env={**os.environ, "TOKEN": controller.admin_token},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await ran.communicate()
    assert ran.returncode == 0, err.decode()
    assert int(out) < MOST_MORE
