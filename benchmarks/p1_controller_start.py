"""P1: from the start of a controller process to its first 200 on `/ready`.

Floor: the bare cost of importing what it depends on, in a fresh interpreter.
"""

from __future__ import annotations

import http.client
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.figures import result
from benchmarks.sizes import sized
from benchmarks.trees import fresh_directory

ROUNDS = sized(7, 1)
IMPORTS = "import grpc, grpc.aio, uvloop, uvicorn, starlette.routing, msgspec, structlog, cryptography.x509, prometheus_client, sqlite3, yaml, click"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_to_ready(data: pathlib.Path) -> float:
    http_port, grpc_port, bootstrap_port = free_port(), free_port(), free_port()
    command = [sys.executable, "-m", "corral.cli", "controller", "--data", str(data)]
    command += ["--http", f"127.0.0.1:{http_port}", "--grpc", f"127.0.0.1:{grpc_port}"]
    command += ["--bootstrap", f"127.0.0.1:{bootstrap_port}"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while time.perf_counter() - began < 30:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", http_port, timeout=5)
                connection.request("GET", "/ready")
                if connection.getresponse().status == 200:
                    return time.perf_counter() - began
            except OSError:
                time.sleep(0.002)
            finally:
                connection.close()
        raise RuntimeError("the controller was not ready within 30 s")
    finally:
        process.terminate()
        process.wait()


def bare_imports() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, env=dict(os.environ))
    return time.perf_counter() - began


def run() -> list[dict[str, Any]]:
    bare_imports()
    first, again, floor = [], [], []
    scratch = fresh_directory()
    for index in range(ROUNDS):
        data = scratch / f"data-{index}"
        floor.append(bare_imports())
        first.append(start_to_ready(data))
        again.append(start_to_ready(data))
    base = statistics.median(floor)
    entries = []
    for name, times in (("first start", first), ("restart", again)):
        value = statistics.median(times)
        entries.append(
            result(
                f"P1 controller {name} to /ready",
                value,
                "s",
                floor=base,
                target="≤ 1.0 s, ≤ 3 × imports",
                ok=value <= 1.0 and value <= 3 * base,
            )
        )
    return entries
