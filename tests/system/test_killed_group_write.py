"""A controller that is killed between the file of a group and its commit."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import sqlite3

import pytest
import yaml

from corral.cli.failure import CommandFailure
from corral.testing.api_calls import call
from corral.testing.processes import ProcessCluster
from corral.testing.waiting import eventually

GROUP = "/api/v1/groups/lobby"


@pytest.mark.system
async def test_a_change_whose_file_was_written_is_there_after_a_kill_before_its_commit(
    tmp_path: pathlib.Path,
) -> None:
    data, folder = tmp_path / "data", tmp_path / "groups"
    folder.mkdir()
    file = folder / "lobby.yaml"
    file.write_text("name: lobby\ncommand: ['true']\nmax: 1\n")
    arguments = [
        *("controller", "--data", str(data), "--groups", str(folder)),
        *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"),
    ]
    async with ProcessCluster(tmp_path) as cluster:
        first = cluster.start(*arguments)
        url = _url(await first.ready())
        token = (data / "admin.token").read_text().strip()
        with contextlib.closing(sqlite3.connect(data / "corral.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # nobody else commits
            change = asyncio.create_task(call(url, token, "PATCH", GROUP, {"max": 2}))
            await eventually(lambda: yaml.safe_load(file.read_text())["max"] == 2)
            await first.kill()
            other.execute("ROLLBACK")
        with pytest.raises(CommandFailure):
            await change
        second = cluster.start(*arguments)
        url = _url(await second.ready())
        assert (await call(url, token, "GET", GROUP))["max"] == 2
        report = await call(url, token, "POST", "/api/v1/groups/reload", {})
        assert report["summary"] == "1 group, nothing changed"


@pytest.mark.system
async def test_a_file_is_as_before_when_its_commit_fails(tmp_path: pathlib.Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "groups"
    folder.mkdir()
    file = folder / "lobby.yaml"
    file.write_text("name: lobby\ncommand: ['true']\nmax: 1\n")
    before = file.read_bytes()
    arguments = [
        *("controller", "--data", str(data), "--groups", str(folder)),
        *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"),
    ]
    async with ProcessCluster(tmp_path, environment={"CORRAL_STORE_COMMIT_WAIT_SECONDS": "1"}) as cluster:
        process = cluster.start(*arguments)
        url = _url(await process.ready())
        token = (data / "admin.token").read_text().strip()
        with contextlib.closing(sqlite3.connect(data / "corral.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(CommandFailure):
                await call(url, token, "PATCH", GROUP, {"max": 2})
            assert file.read_bytes() == before
            other.execute("ROLLBACK")


def _url(line: str) -> str:
    return next(word for word in line.split() if word.startswith("http://"))


@pytest.mark.system
@pytest.mark.parametrize("seed", range(3))
async def test_a_set_whose_files_were_being_written_at_a_kill_is_there_as_a_whole_or_not_at_all(
    tmp_path: pathlib.Path, seed: int
) -> None:
    data, folder = tmp_path / "data", tmp_path / "groups"
    folder.mkdir()
    names = [f"g{number:03}" for number in range(150)]
    for name in names:
        (folder / f"{name}.yaml").write_text(f"name: {name}\ncommand: ['true']\n")
    arguments = [
        *("controller", "--data", str(data), "--groups", str(folder)),
        *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"),
    ]
    documents = [
        {"path": name, "body": {"name": name, "command": ["true"], "labels": {"turn": "2"}}} for name in names
    ]
    written = [folder / f"{names[at]}.yaml" for at in (0, 75, 149)][seed]
    async with ProcessCluster(tmp_path) as cluster:
        first = cluster.start(*arguments)
        url = _url(await first.ready())
        token = (data / "admin.token").read_text().strip()
        body = {"documents": documents, "force": True}
        change = asyncio.create_task(call(url, token, "POST", "/api/v1/apply", body))
        await eventually(lambda: "turn" in written.read_text())
        await first.kill()
        with contextlib.suppress(CommandFailure):
            await change
        second = cluster.start(*arguments)
        url = _url(await second.ready())
        page = await call(url, token, "GET", "/api/v1/groups?limit=500")
        assert {each["labels"].get("turn") for each in page["items"]} == {"2"}
        assert len(page["items"]) == len(names)
        assert not (folder / ".corral-writing").exists()
