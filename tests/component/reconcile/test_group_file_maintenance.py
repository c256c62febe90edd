"""Maintenance of a group that comes from the controller's directory: the file is edited, and nothing else writes it."""

from __future__ import annotations

import pathlib

import yaml
from group_file_rig import GROUPS_PATH

from corral.testing.cluster import LocalCluster
from corral.testing.waiting import eventually


async def test_closing_a_group_edits_its_file_and_keeps_the_comments(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    folder.mkdir()
    file = folder / "lobby.yaml"
    file.write_text("# the first room\nname: lobby\ncommand: ['true'] # does nothing\n")
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        order = {"enabled": True, "message": "a new map", "bypass": ["ann"]}
        await controller.call("POST", f"{GROUPS_PATH}/lobby/maintenance", order)
        assert yaml.safe_load(file.read_text())["maintenance"] == order
        assert "# the first room" in file.read_text()
        written = file.read_text()

        async def is_told() -> bool:
            events = await controller.call("GET", "/api/v1/events?types=GROUP_MAINTENANCE_CHANGED")
            return any(each["subject"] == "lobby" for each in events["items"])

        await eventually(is_told)  # which stores the group once more
        assert file.read_text() == written
        await controller.call("POST", f"{GROUPS_PATH}/lobby/maintenance", {"enabled": False})
        kept = yaml.safe_load(file.read_text())["maintenance"]
        assert (kept.get("enabled", False), kept["message"], kept["bypass"]) == (False, "a new map", ["ann"])
