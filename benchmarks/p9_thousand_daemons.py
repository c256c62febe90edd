"""P9: a thousand daemons on one controller.

Simulated daemons connect from processes of their own (`simulated_daemons`). Floor: a bare gRPC server that answers the
same streams and does nothing else, with the same clients in the same run. `P9_NODES=5000` takes another number: a
controller lends a quarter of its file descriptors to daemons.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog
import uvloop

from benchmarks.figures import result
from benchmarks.simulated_daemons import connected
from benchmarks.sizes import sized
from corral.controller.sessions.link_server import ServerCertificates, bind
from corral.daemon.node.enrolment import enrol
from corral.daemon.node.identity import Identity, load_identity
from corral.domain.ids import ClusterId, NodeId
from corral.pki.authority import Authority
from corral.pki.keys import ClusterKey, key_pem, new_key
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.testing.api_calls import call
from corral.testing.processes import ProcessCluster, ServiceProcess
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.link_pb2_grpc import (
    DaemonServiceServicer,
    add_DaemonServiceServicer_to_server,
)
from corral.wire.v1.node_pb2 import HandshakeAck, Ping

NODES = int(os.environ.get("P9_NODES", sized(1000, 20)))
HEARTBEAT_SECONDS = 5
WATCH_SECONDS = sized(30, 1)
PART = 4
"""A controller lends this part of its descriptors to daemons."""


class BareServer(DaemonServiceServicer):
    """The floor: greets, pings, and does nothing with the answers."""

    async def Connect(self, _: Any, context: Any) -> None:  # noqa: N802 - the name of the RPC
        await context.read()
        ack = HandshakeAck(session_id="s", protocol_compatible=True, protocol_version=1)
        await context.write(ControllerMessage(handshake_ack=ack))
        reader = asyncio.create_task(self._read(context))
        try:
            sequence = 0
            while True:
                sequence += 1
                await context.write(ControllerMessage(ping=Ping(sequence=sequence)))
                await asyncio.sleep(HEARTBEAT_SECONDS)
        finally:
            reader.cancel()

    @staticmethod
    async def _read(context: Any) -> None:
        while isinstance(await context.read(), DaemonMessage):
            pass


def scratch_authority() -> Authority:
    clock, key = SystemClock(), ClusterKey(os.urandom(32))
    sealed = Authority.create(
        cluster=ClusterId("bare"), cluster_key=key, clock=clock, entropy=SystemEntropy()
    )
    return Authority.open(sealed, cluster=ClusterId("bare"), cluster_key=key, clock=clock)


def bare_identities(authority: Authority) -> list[Identity]:
    identities = []
    for index in range(NODES):
        key = new_key()
        issued = authority.issue_node(NodeId(f"node-{index}"), key.public_key(), life=dt.timedelta(days=1))
        identities.append(
            Identity(
                node_id=NodeId(f"node-{index}"),
                cluster=authority.cluster,
                key_pem=key_pem(key).decode(),
                certificate_pem=issued.certificate_pem.decode(),
                trusted_ca_pem=authority.certificate_pem.decode(),
                join_token_id="bare",
            )
        )
    return identities


async def serve_bare() -> None:
    """Runs in a process of its own; prints its address and the clients' identities as a file."""
    authority = scratch_authority()
    certificates = ServerCertificates(
        authority=authority, holder="bare", trusted_ca_pem=authority.certificate_pem, clock=SystemClock()
    )
    server, port = bind("127.0.0.1:0", certificates.mutual())
    add_DaemonServiceServicer_to_server(BareServer(), server)  # type: ignore[no-untyped-call]  # generated
    await server.start()
    path = pathlib.Path(sys.argv[2])
    path.write_bytes(msgspec.json.encode(bare_identities(authority)))
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) / 1024


Buckets = dict[str, float]
Look = Callable[[], Awaitable[Buckets]]


async def measure(
    pid: int, identities: list[Identity], address: str, look: Look, scratch: pathlib.Path
) -> dict[str, float]:
    """Connect the fleet, then watch the server for a while; `look` reads its round trips."""
    async with connected(identities, address, scratch) as seconds:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        trips = await look()
        before = cpu_seconds(pid)
        await asyncio.sleep(WATCH_SECONDS)
        return {
            "connect": seconds,
            "cores": (cpu_seconds(pid) - before) / WATCH_SECONDS,
            "rss": rss_mb(pid),
            "p99": p99(trips, await look()),
        }


async def enrol_all(directory: pathlib.Path, url: str, token: str) -> list[Identity]:
    gate = asyncio.Semaphore(16)

    async def one(index: int) -> Identity:
        async with gate:
            name = f"node-{index}"
            answer = await call(url, token, "POST", "/api/v1/nodes/join-tokens", {"node_id": name})
            data = directory / name
            data.mkdir()
            await enrol(data, token_text=answer["token"], node_id=NodeId(name), machine_id=name)
            identity = load_identity(data)
            assert identity is not None
            return identity

    return list(await asyncio.gather(*(one(index) for index in range(NODES))))


async def against_bare(scratch: pathlib.Path) -> dict[str, float]:
    path = scratch / "identities.json"
    command = [sys.executable, "-m", "benchmarks.p9_thousand_daemons", "bare", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = (await asyncio.to_thread(process.stdout.readline)).strip()
        identities = msgspec.json.decode(path.read_bytes(), type=list[Identity])
        return await measure(process.pid, identities, address, looking_at_nothing, scratch)
    finally:
        process.kill()
        process.wait()


async def against_controller(scratch: pathlib.Path) -> dict[str, float]:
    environment = {
        "CORRAL_LINK_HEARTBEAT_SECONDS": str(HEARTBEAT_SECONDS),
        "CORRAL_BOOTSTRAP_RATE_PER_MINUTE": "1000000",
        "CORRAL_LOG_LEVEL": "WARN",
        "CORRAL_GRPC_CONNECTIONS_PER_ADDRESS": "0",  # all come from this host
    }
    async with ProcessCluster(scratch, environment=environment) as cluster:
        process: ServiceProcess = cluster.start(
            "controller", "--data", str(scratch / "c"), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"
        )
        url = await process.ready()
        token = (scratch / "c" / "admin.token").read_text().strip()
        began = time.perf_counter()
        identities = await enrol_all(scratch, url, token)
        enrolling = time.perf_counter() - began
        address = (await call(url, token, "GET", "/api/v1/cluster"))["leader"]["grpc"]
        found = await measure(process.pid, identities, address, looking_at(url, token), scratch)
        found["enrol"] = NODES / enrolling
        return found


def looking_at(url: str, token: str) -> Look:
    def fetch() -> Buckets:
        request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request) as response:
            text = response.read().decode()
        pairs = re.findall(r'corral_link_round_trip_seconds_bucket\{le="([^"]+)"\} ([0-9.e+]+)', text)
        return {bound: float(count) for bound, count in pairs}

    return lambda: asyncio.to_thread(fetch)


async def looking_at_nothing() -> Buckets:
    return {}


def p99(before: Buckets, after: Buckets) -> float:
    """The bound, in ms, of the bucket in which the 99th percentile of the round trips between lies."""
    if not after:
        return 0.0
    seen = {bound: count - before.get(bound, 0) for bound, count in after.items()}
    total = seen["+Inf"]
    return next(float(bound) for bound, count in seen.items() if count >= 0.99 * total) * 1000


def afford_descriptors() -> None:
    """Say what the run needs; SystemExit when a process of this machine may not have it."""
    need, (_, most) = NODES * PART, resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 65_536 if most == resource.RLIM_INFINITY else min(most, 65_536)
    print(
        f"P9: {NODES} daemons, for which a controller needs {need} file descriptors of {most}",
        file=sys.stderr,
    )
    if need > most:
        raise SystemExit(f"this machine allows {most}: raise 'ulimit -Hn', or take P9_NODES={most // PART}")


def run() -> list[dict[str, Any]]:
    afford_descriptors()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        scratch = pathlib.Path(name)
        floor = uvloop.run(against_bare(scratch))
        ours = uvloop.run(against_controller(scratch))
    return [
        result(
            f"P9 {NODES} daemons connected",
            ours["connect"],
            "s",
            floor=floor["connect"],
            target="≤ 15 s",
            ok=ours["connect"] <= 15,
        ),
        result(
            f"P9 memory with {NODES} daemons",
            ours["rss"],
            "MB",
            floor=floor["rss"],
            target="≤ 250 MB",
            ok=ours["rss"] <= 250,
        ),
        result(
            "P9 heartbeats every 5 s",
            ours["cores"] * 100,
            "% core",
            floor=floor["cores"] * 100,
            target="≤ 30 %",
            ok=ours["cores"] <= 0.30,
        ),
        result("P9 ping p99 (bucket bound)", ours["p99"], "ms", target="≤ 50 ms", ok=ours["p99"] <= 50),
        result("P9 enrolments", ours["enrol"], "/s", target="report", ok=True),
    ]


if __name__ == "__main__":
    uvloop.run(serve_bare())
