"""A controller whose start is cancelled where it waits, or fails midway, leaves nothing open and does not hang."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
from collections.abc import Iterator

import pytest
from cut_short import END_SECONDS, CutShort, Moment, OpenThings, cut_tasks, over

from corral.controller.app import open_controller
from corral.errors import Code, Rejected
from corral.testing.cluster import RecordedLog, controller_config
from corral.testing.ports import free_addresses

MOST = 400


async def opened_until_ready(data: pathlib.Path, **flags: object) -> None:
    """Open a controller, wait until it leads, and close it."""
    async with open_controller(controller_config(data, **flags), logs=RecordedLog()) as app:
        leading = asyncio.create_task(app.run())
        ready = asyncio.create_task(app.ready.wait())
        try:
            await asyncio.wait({leading, ready}, return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                leading.result()
        finally:
            for task in (leading, ready):
                task.cancel()
            await asyncio.gather(leading, ready, return_exceptions=True)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_start_that_is_cancelled_anywhere_leaves_nothing(
    scratch: pathlib.Path, moment: Moment
) -> None:
    await opened_until_ready(scratch / "warm-up")
    open_things = OpenThings(scratch)
    for number in range(1, MOST):
        cut = CutShort(number, moment)

        async def start(directory: pathlib.Path = scratch / f"{number}", cut: CutShort = cut) -> None:
            opening = open_controller(controller_config(directory), logs=RecordedLog())
            await cut.run(opening.__aenter__())
            await opening.__aexit__(None, None, None)

        await over(start())
        assert await open_things.left() == [], f"cancelled {moment} suspension {number}"
        if not cut.reached:
            return
    pytest.fail("it never got through")


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_term_whose_opening_is_cancelled_anywhere_leaves_nothing(
    scratch: pathlib.Path, moment: Moment
) -> None:
    await opened_until_ready(scratch / "warm-up")
    open_things = OpenThings(scratch)
    for number in range(1, MOST):
        cut = CutShort(number, moment)
        async with cut_tasks("LeadershipLoop.run", cut):
            await over(opened_until_ready(scratch / f"{number}"))
        assert await open_things.left() == [], f"cancelled {moment} suspension {number}"
        if not cut.reached:
            return
    pytest.fail("it never got through")


@pytest.mark.parametrize("taken", ["http", "grpc", "bootstrap"])
async def test_a_start_that_finds_a_port_taken_frees_the_others(scratch: pathlib.Path, taken: str) -> None:
    await opened_until_ready(scratch / "warm-up")
    addresses = dict(zip(("http", "grpc", "bootstrap"), free_addresses(3), strict=True))
    flags = {f"{name}__listen": address for name, address in addresses.items()}
    open_things = OpenThings(scratch)
    with listening(addresses[taken]):
        with pytest.raises(Rejected) as refused:
            async with asyncio.timeout(END_SECONDS):
                await opened_until_ready(scratch / "taken", **flags)
        assert refused.value.code is Code.PORT_IN_USE
        for name in addresses.keys() - {taken}:
            with listening(addresses[name]):
                pass
    assert await open_things.left() == []
    await opened_until_ready(scratch / "taken", **flags)


async def test_what_it_chose_nobody_else_takes_before_it_listens(scratch: pathlib.Path) -> None:
    async with open_controller(controller_config(scratch), logs=RecordedLog()) as app:
        for address in (app.config.grpc.listen, app.config.bootstrap.listen):
            with pytest.raises(OSError, match="in use"), listening(address):
                pass


@contextlib.contextmanager
def listening(address: str) -> Iterator[None]:
    host, _, port = address.rpartition(":")
    with socket.socket() as listener:
        listener.bind((host, int(port)))
        listener.listen()
        yield
