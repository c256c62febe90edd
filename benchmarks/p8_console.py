"""P8: 100 instances write; every line is followed from its process to a viewer.

Way of a line: process → FIFO → shim (splice) → segment on disk → daemon → mTLS → controller → SSE →
viewer (this process, one stream an instance, in blocks). Every line is numbered and has the same length,
so that the viewer can tell from offsets, line breaks and the numbers at both ends of a block what is
missing, doubled or out of order; each write carries the time it was made at.

Three loads: as much as reaches the target rate; 1,000 lines a second an instance, at which the writer must
not be slower than one that writes to a plain file (that is the floor of the last row); and of these as many
instances as take about 70 % of the machine, for a machine that is full shows how long work queues for its
cores and not how long a line is on its way. All writers begin at an agreed moment; the rate is that from then
until the last line was seen. The busy share of all cores is shown beside the latencies. Writers and viewer
share the cores with what is measured and do as little as they can for a line. Last, one line at a time on an
idle fleet, as somebody types at a prompt.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys
import time
from typing import Any, cast

import msgspec
import uvloop

from benchmarks.figures import percentile, result
from benchmarks.fleet import DEADLINE, Fleet, cpu_seconds, fleet, request
from benchmarks.sizes import sized
from benchmarks.trees import fresh_directory

COUNT = sized(100, 4)
SECONDS = sized(10, 2)
SHARE = 0.7
"""Of the machine, at which latency is measured beside that at full load."""
TYPED = sized(60, 3)
HEADSTART = sized(4.0, 1.0)
"""Until the writers begin: by then each of them has been told when."""
LINE_BYTES = 62
WRITER = """
import os, sys, time
rate, seconds, at = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if at == "wait": at = sys.stdin.readline()
low = [b"%03d" % i for i in range(1000)]
time.sleep(max(0, float(at) + os.getpid() % 20 / 1000 - time.time()))
tick, n, began, spent = 0.02, 0, time.monotonic(), 0.0
while time.monotonic() - began < seconds:
    due = int((time.monotonic() - began + tick) * rate)
    rest = b" %.4f abcdefghijklmnopqrstuvwxyz0123456789\\n" % time.time()
    block = b""
    while n < due:
        high, first = divmod(n, 1000)
        last = min(1000, first + due - n)
        block += b"%05d" % high + (rest + b"%05d" % high).join(low[first:last]) + rest
        n += last - first
    wrote = time.perf_counter()
    while block: block = block[os.write(1, block):]
    spent += time.perf_counter() - wrote
    time.sleep(max(0, began + n / rate - time.monotonic()))
os.write(1, b"%08d end %f %f\\n" % (n, time.monotonic() - began, spent))
if sys.argv[3] == "wait": time.sleep(1000)
"""


ECHO = """
import sys
for line in sys.stdin: print("heard", line, end="", flush=True)
"""


class Text(msgspec.Struct):
    """As much of a frame as is looked at."""

    offset: int
    text: str


class Viewer(asyncio.Protocol):
    """Follows one console and checks what it sees."""

    def __init__(self, cluster: Fleet, id: str) -> None:
        self._cluster = cluster
        self._id = id
        self._decode = msgspec.json.Decoder(Text).decode
        self._received = bytearray()
        self._transport: asyncio.Transport
        self._offset = 0
        self._rest = ""
        self.lines = 0
        self.wrong = 0
        self.latencies: list[float] = []
        self.elapsed = 0.0
        self.open = asyncio.Event()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def follow(self) -> None:
        host, port = self._cluster.http.rsplit(":", 1)
        await asyncio.get_running_loop().create_connection(lambda: self, host, int(port))
        await self.ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        path = f"/api/v1/instances/{self._id}/console/stream?format=blocks&after=0"
        self._transport.write(request("GET", path, self._cluster.token))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(error or EOFError("the stream has ended"))

    def data_received(self, data: bytes) -> None:
        """Frames end with an empty line, and each begins behind the length of its chunk."""
        self._received += data
        end = self._received.rfind(b"\n\n")
        if end < 0:
            return
        frames = bytes(self._received[:end])
        del self._received[: end + 2]
        if b": following" in frames:
            self.open.set()
        for frame in frames.split(b"\n\n"):
            at = frame.find(b"\nevent: text\ndata: ")
            if at >= 0:
                self._take(self._decode(frame[at + 19 :]))

    def _take(self, block: Text) -> None:
        """A block may end within a line: its beginning is kept for the next."""
        if block.offset != self._offset + len(self._rest):
            self.wrong += 1
        text = self._rest + block.text
        whole = text.rfind("\n") + 1
        self._rest = text[whole:]
        if not whole:
            return
        self._offset = block.offset + len(block.text) - len(self._rest)
        last = text[text.rfind("\n", 0, whole - 1) + 1 : whole]
        first, lines = int(text[:8]), text.count("\n")
        if first != self.lines or int(last[:8]) != first + lines - 1:
            self.wrong += 1
        self.lines += lines
        if " end " in last:
            self.lines -= 1
            self._end(last)
        else:
            if whole != lines * LINE_BYTES:
                self.wrong += 1
            self.latencies.append((time.time() - float(last[9:24])) * 1000)

    def _end(self, last: str) -> None:
        self.elapsed = float(last.split()[2])
        if not self.ended.done():
            self.ended.set_result(None)
        self._transport.close()


def busy_seconds() -> float:
    """Time that all cores have worked."""
    user, nice, system, _, _, *others = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    return sum(map(int, (user, nice, system, *others))) / os.sysconf("SC_CLK_TCK")


async def load(cluster: Fleet, name: str, rate: int, count: int = COUNT) -> dict[str, float]:
    command = [sys.executable, "-I", "-S", "-c", WRITER, str(rate), str(SECONDS), "wait"]
    await cluster.group(name, command, min=count)
    running = await cluster.running(count, name)
    viewers = [Viewer(cluster, item["id"]) for item in running]
    following = [asyncio.create_task(viewer.follow()) for viewer in viewers]
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*(viewer.open.wait() for viewer in viewers))
    begin = time.time() + HEADSTART
    for item in running:
        await cluster.api("POST", f"/api/v1/instances/{item['id']}/command", {"command": f"{begin:.3f}"})
    await asyncio.sleep(begin - time.time())
    ends = {"daemon": cluster.daemon.pid, "controller": cluster.controller.pid}
    used = {role: cpu_seconds(pid) for role, pid in ends.items()}
    busy = busy_seconds()
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*following)
    taken = time.time() - begin
    busy = (busy_seconds() - busy) / taken / (os.cpu_count() or 1)
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
        "busy": busy,
        "p50": percentile(latencies, 0.5),
        "p99": percentile(latencies, 0.99),
        "elapsed": sum(viewer.elapsed for viewer in viewers) / count,
    }


async def typed(cluster: Fleet) -> float:
    """From a line that is sent to an idle instance until its answer is seen: p99."""
    await cluster.group("typed", [sys.executable, "-I", "-S", "-c", ECHO], min=1)
    (item,) = await cluster.running(1, "typed")
    host, port = cluster.http.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    path = f"/api/v1/instances/{item['id']}/console/stream?format=blocks&after=0"
    writer.write(request("GET", path, cluster.token))
    await reader.readuntil(b": following")
    found = []
    async with asyncio.timeout(DEADLINE):
        for number in range(TYPED):
            began = time.perf_counter()
            await cluster.api(
                "POST", f"/api/v1/instances/{item['id']}/command", {"command": f"line-{number}"}
            )
            await reader.readuntil(b"heard line-%d\\n" % number)
            found.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.15)
    writer.close()
    await cluster.api("POST", f"/api/v1/instances/{item['id']}/kill", {})
    await cluster.api("PATCH", "/api/v1/groups/typed", {"min": 0})
    return percentile(found, 0.99)


def to_files(rate: int) -> float:
    """How long the same writers take when each writes to a plain file."""
    scratch = fresh_directory()
    children = []
    begin = str(time.time() + HEADSTART)
    for number in range(COUNT):
        with (scratch / str(number)).open("wb") as target:
            command = [sys.executable, "-I", "-S", "-c", WRITER, str(rate), str(SECONDS), begin]
            children.append(subprocess.Popen(command, stdout=target))
    for child in children:
        child.wait()
    files = [scratch / str(number) for number in range(COUNT)]
    ends = [file.read_text().splitlines()[-1].split() for file in files]
    return sum(float(end[2]) for end in ends) / COUNT


async def bench() -> list[dict[str, Any]]:
    plain = await asyncio.to_thread(to_files, 1000)
    async with fleet() as cluster:
        prompt = await typed(cluster)
        full = await load(cluster, "full", 3500)
        calm = await load(cluster, "calm", 1000)
        count = max(1, min(COUNT, round(COUNT * SHARE / calm["busy"])))
        some = await load(cluster, "some", 1000, count) if count < COUNT else calm
    wrong = full["wrong"] + calm["wrong"] + some["wrong"]
    elapsed, ratio = calm["elapsed"], calm["elapsed"] / plain
    return [
        result(
            "P8 lines to viewers", full["rate"], "lines/s", target="≥ 300,000", ok=full["rate"] >= 300_000
        ),
        result("P8 blocks out of place", wrong, "blocks", target="0", ok=not wrong),
        result("P8 typed line answered, p99", prompt, "ms", target="≤ 50 ms", ok=prompt <= 50),
        *_latencies("70 % of the machine", some, most=40),
        *_latencies("100,000 lines/s", calm, most=40, controller=0.35, daemon=0.25),
        *_latencies("full load", full, most=150),
        result("P8 writer at 1,000 lines/s", elapsed, "s", floor=plain, target="≤ 1.05 ×", ok=ratio <= 1.05),
    ]


def _latencies(at: str, found: dict[str, float], *, most: float, **cores: float) -> list[dict[str, Any]]:
    """What a load took; `cores` are targets, and without one a figure is shown only."""
    rows = [
        result(f"P8 latency at {at}, p50", found["p50"], "ms", target="-", ok=None),
        result(
            f"P8 latency at {at}, p99", found["p99"], "ms", target=f"≤ {most:g} ms", ok=found["p99"] <= most
        ),
        result(f"P8 busy at {at}", found["busy"], "of the machine", target="-", ok=None),
        result(f"P8 lines at {at}", found["rate"], "lines/s", target="-", ok=None),
    ]
    for role in ("daemon", "controller"):
        value, target = found[f"{role} cores"], cores.get(role)
        ok = None if target is None else value <= target
        rows.append(
            result(f"P8 {role} at {at}", value, "cores", target=f"≤ {target:g}" if target else "-", ok=ok)
        )
    return rows


def run() -> list[dict[str, Any]]:
    return uvloop.run(bench())
