"""The disk under the store or under a node fills up, and has room again."""

from __future__ import annotations

import contextlib
import os

import pytest
from estate import Estate

from corral.cli.failure import CommandFailure
from corral.testing.small_disk import small_disk
from corral.testing.waiting import eventually

pytestmark = pytest.mark.system


def fill(disk):
    """Take every byte that is left; where the same file is given again, also what became free meanwhile."""
    ballast = disk / "secrets" / "ballast" if (disk / "secrets").is_dir() else disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return ballast


def tear(log):
    """As a full disk leaves it: the last line cut off, at the end of a page."""
    size = log.stat().st_size
    os.truncate(log, size - size % 4096 or 1)


async def test_a_full_disk_refuses_writes_serves_what_is_stored_and_recovers(processes, scratch):
    with small_disk(scratch / "disk", size="6m") as disk:
        estate = Estate(processes, scratch, data=disk / "controller")
        controller = await estate.controller(CORRAL_LOG_LEVEL="ERROR")
        kept = await estate.call("POST", "/api/v1/tokens", {"name": "kept", "role": "VIEWER"})
        ballast = fill(disk)
        refused = None
        for _ in range(500):  # SQLite may still have room inside its files
            try:
                await estate.call("POST", "/api/v1/tokens", {"name": "n" * 60, "role": "VIEWER"})
            except CommandFailure as error:
                refused = error
                break
        assert refused is not None
        assert "store is unavailable" in str(refused)
        with pytest.raises(CommandFailure, match="disk is full"):
            await estate.call("GET", "/ready")
        tokens = (await estate.call("GET", "/api/v1/tokens?limit=500"))["items"]
        ballast.unlink()

        async def ready():
            try:
                return (await estate.call("GET", "/ready"))["status"] == "ready"
            except CommandFailure:
                return False

        await eventually(ready, deadline=30)
        after = await estate.call("POST", "/api/v1/tokens", {"name": "after", "role": "VIEWER"})
        await controller.kill()
        await estate.controller()
        found = {token["id"] for token in (await estate.call("GET", "/api/v1/tokens?limit=500"))["items"]}
        assert {kept["id"], after["id"]} <= found
        assert {token["id"] for token in tokens} <= found, "nothing was served that was not stored"
        for process in processes.running():
            await process.kill()


@pytest.mark.trap("T72")
async def test_a_daemon_that_was_killed_on_a_full_disk_starts_again_and_serves(processes, scratch):
    estate = Estate(processes, scratch)
    await estate.controller()
    with small_disk(scratch / "n1", size="6m") as disk:
        log = disk / "logs" / "daemon.log"
        daemon = await estate.daemon("n1", CORRAL_LOG_LEVEL="DEBUG")
        await estate.wait_for_node("n1", "ONLINE")
        fill(disk)
        await daemon.kill()
        tear(log)
        fill(disk)
        daemon = await estate.daemon("n1")
        await estate.wait_for_node("n1", "ONLINE")
        await daemon.kill()
        (disk / "spool" / "spool.db-shm").unlink(missing_ok=True)  # as after the end of the host
        log.parent.rename(disk / "secrets" / "logs")
        log.parent.touch()  # nothing can be written in it, for root neither
        fill(disk)
        daemon = await estate.daemon("n1")
        assert "log_write.failed" in daemon.stderr
        await estate.wait_for_node("n1", "ONLINE")
        log.parent.unlink()
        fill(disk).unlink()
        await daemon.terminate()
        written = log.read_text().splitlines()
        assert "log_write.recovered" in "".join(written)
        assert all(line.startswith("{") for line in written)
        for process in processes.running():
            await process.kill()
