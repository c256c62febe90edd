"""A store whose ledgers hold all reservations is upgraded by the next leader, also one that is killed meanwhile."""

from __future__ import annotations

import asyncio
import pathlib
import subprocess
import sys

import msgspec
import pytest
from ledger_upgrader import upgrade
from store_cases import House, at_work, put

from corral.domain.groups.group import PortProtocol
from corral.domain.groups.instance_records import LeasedPort, NodeLedger
from corral.store.port import Store

HERE = pathlib.Path(__file__).parent
NODES = [f"n{number:02}" for number in range(40)]
RUNS = 25


def earlier(node: str) -> bytes:
    """A ledger as versions before ADR 0048 wrote it."""
    runs = ",".join(
        f'"lobby-{n}":{{"cpu":0.5,"incarnation":{2048 + n},"instance":"lobby-{n}","memory_mb":100,'
        f'"ports":[{{"name":"primary","port":{80 + n},"protocol":"tcp"}}]}}'
        for n in range(RUNS)
    )
    busy = '{"79/tcp":"2026-01-01T00:00:00Z"}'
    return f'{{"node":"{node}","refused_ports":{busy},"runs":{{{runs}}},"serial":7}}'.encode()


async def seed(store: Store) -> None:
    async with at_work(store) as desk:
        for node in NODES:
            await desk.commit(put(node, earlier(node), collection="node_ledgers"))
        await desk.commit(
            put("@one", b'{"node":"@one","refused_ports":{},"runs":{},"serial":0}', collection="node_ledgers")
        )


async def stored_runs(store: Store) -> tuple[int, int]:
    """How many ledgers are still in the earlier form. All reservations are there, each once."""
    snapshot = await store.reads.snapshot(["node_ledgers", "reservations"])
    ledgers = [
        msgspec.json.decode(d.body, type=NodeLedger)
        for d in snapshot.documents
        if d.collection == "node_ledgers"
    ]
    held = [f"{ledger.node}/{id}" for ledger in ledgers for id in ledger.runs or ()]
    alone = [d.id for d in snapshot.documents if d.collection == "reservations"]
    assert sorted(held + alone) == sorted(f"{node}/lobby-{n}" for node in NODES for n in range(RUNS))
    return sum(ledger.runs is not None for ledger in ledgers), len(ledgers)


async def killed_after(house: House, ledgers: int) -> None:
    process = subprocess.Popen(
        [sys.executable, HERE / "ledger_upgrader.py", house.url, str(house.data)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            for _ in range(ledgers):
                await asyncio.to_thread(process.stdout.readline)
        finally:
            process.kill()
        await asyncio.to_thread(process.stdout.read)


class EarlierLedger(msgspec.Struct):
    """What versions before ADR 0048 read."""

    node: str
    runs: dict[str, object] = {}


async def refused_by_earlier_versions(store: Store) -> None:
    """They would take an upgraded ledger for an empty one, and lease its ports again."""
    for document in (await store.reads.snapshot(["node_ledgers"])).documents:
        with pytest.raises(msgspec.ValidationError, match="runs"):
            msgspec.json.decode(document.body, type=EarlierLedger)


@pytest.mark.trap("T21")
async def test_ledgers_of_an_earlier_form_are_upgraded_also_after_kill_9(real_house: House) -> None:
    store = await real_house.open()
    await seed(store)
    await real_house.close()
    before = len(NODES) + 1
    for ledgers in (1, 9):
        await killed_after(real_house, ledgers)
        store = await real_house.open()
        earlier_form, total = await stored_runs(store)
        left = max(0, before - ledgers)  # the one that was killed may have done more than it was waited for
        assert (earlier_form <= left, total) == (True, len(NODES) + 1)
        before = earlier_form
        await real_house.close()
    store = await real_house.open()
    async with at_work(store) as desk:
        state, commits = await upgrade(desk)
        assert commits == before
        _, again = await upgrade(desk)
        assert again == 0
    assert await stored_runs(store) == (0, len(NODES) + 1)
    for node in NODES:
        usage = state.reservations.usage(node)
        assert (usage.memory_mb, usage.cpu, usage.runs) == (100 * RUNS, 0.5 * RUNS, RUNS)
        assert set(usage.ports) == {(80 + n, PortProtocol.TCP) for n in range(RUNS)}
        ledger = state.node_ledgers.require(node).record
        assert (ledger.runs, ledger.serial, list(ledger.refused_ports)) == (None, 7, ["79/tcp"])
    await refused_by_earlier_versions(store)
    run = state.reservations.require("n03/lobby-2").record
    assert run.incarnation == 2050
    assert run.ports == (LeasedPort(name="primary", port=82, protocol=PortProtocol.TCP),)
