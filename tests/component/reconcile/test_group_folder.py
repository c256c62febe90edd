"""A controller with a directory of group documents: loaded at start and on request, and written by the API."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest
import yaml

from corral.cli.failure import CommandRefused
from corral.errors import Rejected
from corral.testing.cluster import LocalCluster, LocalController, controller_config

GROUPS = "/api/v1/groups"


def write(folder: pathlib.Path, name: str, **fields: Any) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"name": name, "command": ["true"], **fields}, sort_keys=False))
    return file


async def names(controller: LocalController) -> set[str]:
    return {each["name"] for each in (await controller.call("GET", GROUPS))["items"]}


async def test_files_are_loaded_at_start_and_a_changed_one_after_a_restart(tmp_path: pathlib.Path) -> None:
    """As after a kill between the write of a file and its commit: the file is ahead of the store."""
    folder = tmp_path / "groups"
    write(folder, "lobby", max=1)
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        assert await names(controller) == {"lobby"}
    write(folder, "lobby", max=2)
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        assert (await controller.call("GET", f"{GROUPS}/lobby"))["max"] == 2


async def test_a_reload_reports_by_file_and_deletes_only_when_asked(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    base = write(folder, "base", abstract=True)
    write(folder, "lobby", parent="base", max=1)
    gone = write(folder, "gone")
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        write(folder, "lobby", parent="base", max=-1)
        write(folder, "fresh")
        (folder / "torn.yaml").write_text("name: [")
        gone.unlink()
        report = await controller.call("POST", f"{GROUPS}/reload", {})
        assert {each["path"] for each in report["errors"]} == {
            str(folder / "lobby.yaml:5"),
            str(folder / "torn.yaml:1"),
        }
        assert await names(controller) == {"base", "lobby", "gone", "fresh"}
        assert (await controller.call("GET", f"{GROUPS}/lobby"))["max"] == 1
        with pytest.raises(CommandRefused):
            await controller.call("POST", f"{GROUPS}/reload", {"prune": True})
        (folder / "torn.yaml").unlink()
        write(folder, "lobby", parent="base", max=3)
        report = await controller.call("POST", f"{GROUPS}/reload", {})
        assert (report["errors"], report["gone"]) == ([], ["gone"])
        assert (await controller.call("GET", f"{GROUPS}/gone"))["status"]["file_gone"] is True
        await controller.call("PATCH", f"{GROUPS}/gone", {"max": 9})
        assert (await controller.call("GET", f"{GROUPS}/gone"))["status"]["file_gone"] is False
        gone.unlink()
        report = await controller.call("POST", f"{GROUPS}/reload", {"prune": True})
        assert {each["name"]: each["action"] for each in report["groups"]}["gone"] == "deleted"
        assert await names(controller) == {"base", "lobby", "fresh"}
        assert base.exists()


BAD_FILES = {
    "bool.yaml": ("name: bool\nstatic: !!bool abc\n", 2),
    "long.json": ('{"name": "long",\n"min": ' + "9" * 5000 + "}", 2),
    "half.yaml": ('name: half\nlabels: {a: "\\ud800"}\n', 2),
    "half.json": ('{"name": "half",\n"labels": {"a": "\\ud800"}}', 2),
    "wide.json": ('{"name": "wide",\n"cpu": 1e400}', 2),
}


async def test_of_two_files_with_one_name_neither_is_applied(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    file = write(folder, "lobby", max=1)
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        copy = folder / "a-copy.yaml"
        copy.write_text(file.read_text().replace("max: 1", "max: 2"))
        write(folder, "fresh")
        report = await controller.call("POST", f"{GROUPS}/reload", {})
        assert {each["path"] for each in report["errors"]} == {f"{file}:1", f"{copy}:1"}
        assert (await controller.call("GET", f"{GROUPS}/lobby"))["max"] == 1
        assert (report["gone"], await names(controller)) == ([], {"lobby", "fresh"})


async def test_a_bad_file_does_not_keep_the_others_from_being_loaded(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    write(folder, "lobby")
    for name, (text, _) in BAD_FILES.items():
        (folder / name).write_text(text)
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        assert await names(controller) == {"lobby"}
        report = await controller.call("POST", f"{GROUPS}/reload", {})
        assert {each["path"] for each in report["errors"]} == {
            f"{folder / name}:{line}" for name, (_, line) in BAD_FILES.items()
        }


async def test_a_file_whose_name_is_no_text_is_reported_and_changed(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    file = folder / os.fsdecode(b"\n\xff.yaml")
    write(folder, "lobby").rename(file)
    (folder / os.fsdecode(b"\xfe.yaml")).write_text("name: [")
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        report = await controller.call("POST", f"{GROUPS}/reload", {})
        assert [each["path"] for each in report["errors"]] == [f"{folder}/\\udcfe.yaml:1"]
        assert [each["path"] for each in report["groups"]] == [f"{folder}/\\n\\udcff.yaml"]
        await controller.call("PATCH", f"{GROUPS}/lobby", {"max": 2})
        assert yaml.safe_load(file.read_text())["max"] == 2
        file.write_text("name: lobby\n")
        with pytest.raises(CommandRefused, match="was edited since it was loaded"):
            await controller.call("PATCH", f"{GROUPS}/lobby", {"max": 3})


async def test_a_reload_ends_soon_when_each_fault_leads_to_another(tmp_path: pathlib.Path) -> None:
    """Each takes over the name that the next one gives up, and the last one keeps its own."""
    folder = tmp_path / "groups"
    for number in range(20):
        write(folder, f"g{number:02}", static_names=[f"name{number}"])
    write(folder, "other")
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        for number in range(20):
            write(folder, f"g{number:02}", static_names=[f"name{number + 1}"])
        write(folder, "g19", min=-1)
        write(folder, "other", max=3)
        report = await controller.call("POST", f"{GROUPS}/reload", {})
        messages = {each["group"]: each["message"] for each in report["errors"]}
        assert set(messages) == {"other", *(f"g{number:02}" for number in range(20))}
        assert "also a static name" in messages["g18"]
        assert "depends on other files" in messages["g00"]
        assert (await controller.call("GET", f"{GROUPS}/other"))["max"] is None


async def test_a_change_over_the_api_is_in_the_file_first(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    file = write(folder, "lobby", max=1)
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        await controller.call("PATCH", f"{GROUPS}/lobby", {"max": 2})
        assert yaml.safe_load(file.read_text()) == {"name": "lobby", "command": ["true"], "max": 2}
        assert file.read_text().startswith("name: lobby\n")
        await controller.call("POST", GROUPS, {"name": "game", "command": ["true"]})
        assert yaml.safe_load((folder / "game.yaml").read_text())["name"] == "game"
        report = await controller.call("POST", f"{GROUPS}/reload", {})
        assert report["summary"] == "2 groups, nothing changed"
        await controller.call("DELETE", f"{GROUPS}/game")
        assert not (folder / "game.yaml").exists()
        assert [each.name for each in folder.iterdir()] == ["lobby.yaml"]


async def test_a_change_over_the_api_does_not_overwrite_an_edit_of_the_file(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    file = write(folder, "lobby", max=1)
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        edited = write(folder, "lobby", max=7).read_text()
        with pytest.raises(CommandRefused, match="was edited since it was loaded"):
            await controller.call("PATCH", f"{GROUPS}/lobby", {"max": 2})
        assert file.read_text() == edited
        assert (await controller.call("GET", f"{GROUPS}/lobby"))["max"] == 1


async def test_a_reload_without_the_directory_says_what_to_do(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    write(folder, "lobby")
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        folder.rename(tmp_path / "away")
        with pytest.raises(CommandRefused, match="does not exist") as refused:
            await controller.call("POST", f"{GROUPS}/reload", {})
        assert "mount or restore it" in (refused.value.hint or "")
        assert await names(controller) == {"lobby"}


async def test_an_empty_directory_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "groups").mkdir()
    async with LocalCluster(tmp_path) as cluster:
        with pytest.raises(Rejected, match="has no documents"):
            await cluster.controller(groups__directory=str(tmp_path / "groups"))


def test_a_directory_is_refused_with_postgresql(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Rejected, match="only for a store on SQLite"):
        controller_config(tmp_path, groups__directory=str(tmp_path), store__url="postgresql://x/y")
