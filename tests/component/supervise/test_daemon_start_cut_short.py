"""A daemon whose start is cancelled where it waits leaves nothing open, no keeper, and does not hang."""

from __future__ import annotations

import pathlib

import pytest
from cut_short import CutShort, Moment, OpenThings, over

from corral.daemon.app import open_daemon
from corral.testing.cluster import LocalCluster, RecordedLog, daemon_config

MOST = 400


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_start_that_is_cancelled_anywhere_leaves_nothing(
    cluster: LocalCluster, scratch: pathlib.Path, moment: Moment
) -> None:
    controller = await cluster.controller()

    async def start(name: str, cut: CutShort) -> None:
        config = daemon_config(scratch / name, node__id=name, controllers=[controller.grpc_address])
        opening = open_daemon(config, logs=RecordedLog(), join=await controller.join_token(name))
        await cut.run(opening.__aenter__())
        await opening.__aexit__(None, None, None)

    await start("warm-up", CutShort(MOST, moment))
    open_things = OpenThings(scratch)
    for number in range(1, MOST):
        cut = CutShort(number, moment)
        await over(start(f"n{number}", cut))
        assert await open_things.left() == [], f"cancelled {moment} suspension {number}"
        if not cut.reached:
            return
    pytest.fail("it never got through")
