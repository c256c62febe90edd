"""P17: the command line starts fast: `corral --help` and `corral node list`, cold, beside the bare imports.

Every figure is the median of interleaved runs, so that a noisy neighbour slows floor and
figure alike. The controller is a canned answer in this process: what is measured is our start.
"""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.sizes import sized

RUNS: Final = sized(21, 1)
FLOOR: Final = [sys.executable, "-c", "import click, http.client"]
RATIO: Final = 1.5


def run() -> list[dict[str, Any]]:
    """The claims of P17, in the shape of `benchmarks/results.json`."""
    with _canned_controller() as url:
        environment = {**os.environ, "CORRAL_URL": url, "CORRAL_TOKEN": "bench"}
        commands = {
            "floor": FLOOR,
            "corral --help": [*_program(), "--help"],
            "corral node list": [*_program(), "node", "list"],
        }
        medians = _medians(commands, environment)
    return [
        _entry("corral --help", medians, target_ms=110),
        _entry("corral node list", medians, target_ms=150),
    ]


def _entry(command: str, medians: dict[str, float], *, target_ms: int) -> dict[str, Any]:
    value, floor = medians[command], medians["floor"]
    ratio = value / floor
    return {
        "name": f"P17 {command}, cold",
        "value": round(value, 1),
        "unit": "ms",
        "floor": round(floor, 1),
        "ratio": round(ratio, 2),
        "target": f"<= {target_ms} ms and <= {RATIO} x click + http.client",
        "ok": value <= target_ms and ratio <= RATIO,
    }


def _program() -> list[str]:
    script = pathlib.Path(sys.executable).with_name("corral")
    return [str(script)] if script.exists() else [sys.executable, "-m", "corral.cli"]


def _medians(commands: dict[str, list[str]], environment: dict[str, str]) -> dict[str, float]:
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(RUNS + 1):
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
            if turn:  # the first one writes byte code and fills the page cache
                samples[name].append((time.perf_counter() - started) * 1000)
    return {name: statistics.median(values) for name, values in samples.items()}


class _Canned(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    nodes: Final = [{"id": f"node-{n}", "state": "ONLINE", "admission": "open"} for n in range(20)]
    body: Final = json.dumps({"items": nodes, "next": None}).encode()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _canned_controller() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Canned)
    thread = threading.Thread(target=server.serve_forever, name="bench/canned", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
