"""P8: 100 instances write; every line is followed from its process to a viewer.

Way of a line: process → FIFO → shim (splice) → segment on disk → daemon → mTLS → controller → SSE →
viewer (this process, one stream an instance, in blocks). Every line is numbered and the viewer counts
what is missing, doubled or out of order; each write carries the time it was made at.

Two loads: as much as reaches the target rate, and 1,000 lines a second an instance, at which the writer
must not be slower than one that writes to a plain file (that is the floor of the last row).
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import uvloop

from benchmarks.figures import percentile, result
from benchmarks.fleet import DEADLINE, Fleet, cpu_seconds, fleet, request

COUNT = 100
SECONDS = 10
WRITER = """
import os, sys, time
rate, seconds, go = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if go == "wait": sys.stdin.readline()
tick, n, began, spent = 0.02, 0, time.monotonic(), 0.0
while time.monotonic() - began < seconds:
    due = int((time.monotonic() - began + tick) * rate)
    stamp = "%.4f" % time.time()
    block = "".join("%08d %s abcdefghijklmnopqrstuvwxyz0123456789\\n" % (i, stamp) for i in range(n, due)).encode()
    n, at = due, time.perf_counter()
    while block: block = block[os.write(1, block):]
    spent += time.perf_counter() - at
    time.sleep(max(0, began + n / rate - time.monotonic()))
os.write(1, ("%08d end %f %f\\n" % (n, time.monotonic() - began, spent)).encode())
if go == "wait": time.sleep(1000)
"""


class Viewer:
    """Follows one console and checks what it sees."""

    def __init__(self, cluster: Fleet, id: str) -> None:
        self._cluster = cluster
        self._id = id
        self._rest = ""
        self.lines = 0
        self.wrong = 0
        self.latencies: list[float] = []
        self.elapsed = 0.0
        self.open = asyncio.Event()

    async def follow(self) -> None:
        host, port = self._cluster.http.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port), limit=2**24)
        path = f"/api/v1/instances/{self._id}/console/stream?format=blocks&after=0"
        writer.write(request("GET", path, self._cluster.token))
        await reader.readuntil(b"\r\n\r\n")
        self.open.set()
        try:
            while not self.elapsed:
                frame = await reader.readuntil(b"\n\n")
                start = frame.find(b"data: ")
                if start >= 0:
                    data = frame[start + 6 :].split(b"\n", 1)[0]
                    text = json.loads(data).get("text") if data.startswith(b"{") else None
                    if text:
                        self._take(text)
        finally:
            writer.close()

    def _take(self, text: str) -> None:
        lines = (self._rest + text).split("\n")
        self._rest = lines.pop()
        if not lines:
            return
        first, last = int(lines[0][:8]), lines[-1]
        if first != self.lines or int(last[:8]) != first + len(lines) - 1:
            self.wrong += 1
        self.lines = int(last[:8]) + 1
        fields = last.split()
        if fields[1] == "end":
            self.lines -= 1
            self.elapsed = float(fields[2])
        else:
            self.latencies.append((time.time() - float(fields[1])) * 1000)


async def load(cluster: Fleet, name: str, rate: int) -> dict[str, float]:
    command = [sys.executable, "-I", "-S", "-c", WRITER, str(rate), str(SECONDS), "wait"]
    await cluster.group(name, command, min=COUNT)
    running = await cluster.running(COUNT, name)
    viewers = [Viewer(cluster, item["id"]) for item in running]
    following = [asyncio.create_task(viewer.follow()) for viewer in viewers]
    await asyncio.gather(*(viewer.open.wait() for viewer in viewers))
    ends = {"daemon": cluster.daemon.pid, "controller": cluster.controller.pid}
    used = {role: cpu_seconds(pid) for role, pid in ends.items()}
    began = time.monotonic()
    for item in running:
        await cluster.api("POST", f"/api/v1/instances/{item['id']}/command", {"command": "go"})
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*following)
    taken = time.monotonic() - began
    figures = {f"{role} cores": (cpu_seconds(pid) - used[role]) / taken for role, pid in ends.items()}
    for item in running:
        await cluster.api("POST", f"/api/v1/instances/{item['id']}/kill", {})
    await cluster.api("PATCH", f"/api/v1/groups/{name}", {"min": 0})
    latencies = [sample for viewer in viewers for sample in viewer.latencies]
    return {
        **figures,
        "lines": sum(viewer.lines for viewer in viewers),
        "wrong": sum(viewer.wrong for viewer in viewers),
        "rate": sum(viewer.lines for viewer in viewers) / taken,
        "p99": percentile(latencies, 0.99),
        "elapsed": sum(viewer.elapsed for viewer in viewers) / COUNT,
    }


def to_files(rate: int) -> float:
    """How long the same writers take when each writes to a plain file."""
    with tempfile.TemporaryDirectory() as scratch:
        children = []
        for number in range(COUNT):
            with pathlib.Path(scratch, str(number)).open("wb") as target:
                command = [sys.executable, "-I", "-S", "-c", WRITER, str(rate), str(SECONDS), "now"]
                children.append(subprocess.Popen(command, stdout=target))
        for child in children:
            child.wait()
        files = [pathlib.Path(scratch, str(number)) for number in range(COUNT)]
        ends = [file.read_text().splitlines()[-1].split() for file in files]
    return sum(float(end[2]) for end in ends) / COUNT


async def bench() -> list[dict]:
    plain = await asyncio.to_thread(to_files, 1000)
    async with fleet() as cluster:
        full = await load(cluster, "full", 3500)
        calm = await load(cluster, "calm", 1000)
    rows = [
        result("P8 lines to viewers", full["rate"], "lines/s", target="≥ 300,000", ok=full["rate"] >= 300_000),
        result("P8 blocks out of place", full["wrong"] + calm["wrong"], "blocks", target="0",
               ok=not full["wrong"] + calm["wrong"]),
        result("P8 latency at full load, p99", full["p99"], "ms", target="≤ 30 ms", ok=full["p99"] <= 30),
        result("P8 latency at 100,000 lines/s, p99", calm["p99"], "ms", target="≤ 30 ms", ok=calm["p99"] <= 30),
    ]  # fmt: skip
    for role in ("daemon", "controller"):
        value = full[f"{role} cores"]
        rows.append(result(f"P8 {role} at full load", value, "cores", target="≤ 0.3", ok=value <= 0.3))
    ratio = calm["elapsed"] / plain
    rows.append(
        result(
            "P8 writer at 1,000 lines/s",
            calm["elapsed"],
            "s",
            floor=plain,
            target="≤ 1.05 ×",
            ok=ratio <= 1.05,
        )
    )
    return rows


def run() -> list[dict]:
    return uvloop.run(bench())
