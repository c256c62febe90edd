"""A store that is gone, emptied, damaged or older than what was seen, and tokens that are lost."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import stat
import subprocess
import sys

import pytest

from corral.controller.term.admin_token import make_admin_token
from corral.errors import Code, Rejected
from corral.store.engine_selection import open_store
from corral.testing.cluster import LocalCluster, controller_config
from corral.testing.processes import ProcessCluster
from corral.testing.waiting import eventually

LEASE = {"lease__ttl_seconds": 2, "lease__renew_seconds": 0.3, "lease__margin_seconds": 0.5}


def contents(directory) -> dict[str, bytes]:
    """Every file but logs and locks."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.suffix != ".lock" and path.parent.name != "logs"
    }


@pytest.mark.trap("T71")
@pytest.mark.parametrize("lost", ["missing", "empty", "empty beside its write-ahead log"])
async def test_a_lost_database_beside_a_cluster_key_is_refused_and_nothing_is_touched(cluster, lost):
    controller = await cluster.controller()
    await controller.app.stop()
    database = controller.data / "corral.db"
    if lost == "missing":
        database.unlink()
    else:
        database.write_bytes(b"")
    if lost.endswith("log"):
        (controller.data / "corral.db-wal").write_bytes(b"frames" * 1000)
    before = contents(controller.data)
    with pytest.raises(Rejected) as refused:
        await cluster.controller()
    assert refused.value.code is Code.CONFLICT
    assert "ca/cluster.key, admin.token" in refused.value.message
    assert "restore the database" in (refused.value.hint or "")
    assert "--found-cluster" in (refused.value.hint or "")
    assert contents(controller.data) == before


@pytest.mark.trap("T71")
async def test_a_new_cluster_is_founded_on_purpose_and_overwrites_nothing_of_the_old_one(cluster):
    controller = await cluster.controller()
    old = controller.admin_token
    await controller.app.stop()
    (controller.data / "corral.db").write_bytes(b"")
    (controller.data / "corral.db-wal").write_bytes(b"frames")
    again = await cluster.controller(found_cluster=True)
    assert again.admin_token != old
    assert (again.data / "admin.token.former-1").read_text().strip() == old
    assert (again.data / "corral.db-wal.former-1").read_bytes() == b"frames"
    assert (await again.call("GET", "/api/v1/cluster"))["id"]
    await again.call("POST", "/api/v1/cluster/raise-epoch")
    await eventually(lambda: again.app.role.term is not None)
    await again.app.stop()
    with pytest.raises(Rejected, match="already"):
        await cluster.controller(found_cluster=True)


@pytest.mark.trap("T71")
async def test_an_empty_database_server_beside_a_cluster_key_is_refused(scratch, postgres):
    async with postgres.database() as url, LocalCluster(scratch) as cluster:
        controller = await cluster.controller(store__url=url, **LEASE)
    token = controller.admin_token
    async with postgres.database() as url:
        async with LocalCluster(scratch) as cluster:
            with pytest.raises(Rejected) as refused:
                await cluster.controller(store__url=url, **LEASE)
            assert refused.value.code is Code.CONFLICT
            assert controller.admin_token == token
        async with LocalCluster(scratch) as cluster:
            again = await cluster.controller(store__url=url, found_cluster=True, **LEASE)
            assert again.admin_token != token


async def test_a_founding_that_was_cut_off_goes_on(cluster, scratch):
    data = scratch / "controller"
    await (await open_store("sqlite", data=data)).close()
    (data / "founding").touch()
    (data / "admin.token").write_text("of nobody")
    controller = await cluster.controller()
    assert controller.admin_token != "of nobody"
    assert not (data / "founding").exists()


async def test_a_store_without_its_write_ahead_log_is_noticed_and_accepted_only_on_purpose(cluster, scratch):
    """The copy is what is left when the log of a killed controller was deleted."""
    controller = await cluster.controller()
    await controller.app.stop()
    copy = (controller.data / "corral.db").read_bytes()
    again = await cluster.controller()
    await again.call("POST", "/api/v1/tokens", {"name": "acknowledged", "role": "VIEWER"})
    await again.app.stop()
    (controller.data / "corral.db").write_bytes(copy)
    with pytest.raises(Rejected) as refused:
        await cluster.controller()
    assert refused.value.code is Code.CONFLICT
    assert "are lost" in refused.value.message
    assert "--accept-older-store" in (refused.value.hint or "")
    accepted = await cluster.controller(accept_older_store=True)
    names = {item["name"] for item in (await accepted.call("GET", "/api/v1/tokens"))["items"]}
    assert "acknowledged" not in names
    await accepted.app.stop()
    await cluster.controller()


@pytest.mark.system
async def test_the_write_ahead_log_of_a_killed_controller_is_missed(scratch):
    data = scratch / "controller"
    listen = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    async with ProcessCluster(scratch) as processes:
        process = processes.start("controller", "--data", str(data), *listen)
        await process.ready()
        await eventually(lambda: (data / "store-position.json").exists())
        await process.kill()
        assert (data / "corral.db-wal").stat().st_size > 0
        (data / "corral.db-wal").unlink()
        again = processes.start("controller", "--data", str(data), *listen)
        assert await again.wait() == 1
        assert "hint:" in again.stderr
        assert "Traceback" not in again.stderr


async def test_a_damaged_page_is_named_at_the_start_with_the_way_out_and_exit_code_70(cluster, scratch):
    controller = await cluster.controller()
    for number in range(200):
        await controller.call("POST", "/api/v1/tokens", {"name": f"t{number}", "role": "VIEWER"})
    await controller.app.stop()
    database = controller.data / "corral.db"
    with contextlib.closing(sqlite3.connect(database)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'document'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    content = bytearray(database.read_bytes())
    content[(root - 1) * size : root * size] = b"\xff" * size
    database.write_bytes(content)
    async with ProcessCluster(scratch) as processes:
        listen = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
        process = processes.start("controller", "--data", str(controller.data), *listen)
        assert await process.wait() == 70
        assert "fatal: the database is damaged" in process.stderr
        assert "hint: copy the data directory" in process.stderr
        assert "Traceback" not in process.stderr


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_lost_token_is_replaced_beside_the_controller_and_audited(cluster, postgres, kind):
    async with contextlib.AsyncExitStack() as stack:
        url = "sqlite" if kind == "sqlite" else await stack.enter_async_context(postgres.database())
        controller = await cluster.controller(store__url=url, **LEASE)
        config = controller_config(controller.data, store__url=url, **LEASE)
        with pytest.raises(Rejected) as refused:
            await asyncio.to_thread(make_admin_token, config)
        assert refused.value.code is Code.DATA_DIRECTORY_LOCKED
        await controller.app.stop()
        (controller.data / "admin.token").unlink()
        made = await asyncio.to_thread(make_admin_token, config)
        assert made.path == controller.data / "admin.token"
        assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
        again = await cluster.controller(store__url=url, **LEASE)
        entries = (await again.call("GET", "/api/v1/audit"))["items"]
        assert [(e["action"], e["subject"]) for e in entries if e["actor"].startswith("host:")] == [
            ("token.create", made.id)
        ]
        await again.app.stop()


@pytest.mark.system
async def test_no_token_is_made_where_another_controller_leads(cluster, postgres, scratch):
    async with postgres.database() as url:
        leader = await cluster.controller(store__url=url, **LEASE)
        (scratch / "elsewhere").mkdir()
        config = controller_config(scratch / "elsewhere", store__url=url, **LEASE)
        with pytest.raises(Rejected, match="leads"):
            await asyncio.to_thread(make_admin_token, config)
        assert not (scratch / "elsewhere" / "admin.token").exists()
        assert leader.app.role.term is not None
        await leader.app.stop()


async def test_no_token_is_made_where_there_is_no_cluster(scratch):
    with pytest.raises(Rejected) as refused:
        await asyncio.to_thread(make_admin_token, controller_config(scratch))
    assert refused.value.code is Code.NOT_FOUND
    assert not (scratch / "corral.db").exists()


async def test_the_command_line_makes_a_token_and_says_where_it_is(cluster):
    controller = await cluster.controller()
    old = controller.admin_token
    await controller.app.stop()
    command = [
        sys.executable,
        "-m",
        "corral.cli",
        "controller",
        "admin-token",
        "--data",
        str(controller.data),
    ]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a new administrator's token (tok-"), "and nothing of what it logs"
    assert done.stdout.count("\n") == 1
    assert (
        done.stderr
        == f"start the controller, then: corral login URL --token-file {controller.data}/admin.token\n"
    )
    assert controller.admin_token != old
    assert (controller.data / "admin.token.former-1").read_text().strip() == old
    again = await cluster.controller()
    assert (await again.call("GET", "/api/v1/tokens"))["items"]
