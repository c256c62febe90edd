"""The text of group files when a change is written: comments, links, and groups that another owner takes over."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import msgspec
import pytest
import structlog
import yaml
from group_file_rig import CONFLICT, GROUPS_PATH, Folder, change, group

from corral.controller.state.collections import GROUPS
from corral.errors import Rejected
from corral.store.store_errors import Conflict
from corral.testing.cluster import LocalCluster


@pytest.fixture
async def lobby(tmp_path: pathlib.Path) -> Folder:
    made = Folder(tmp_path / "groups")
    await made.folder.read()
    return made


async def test_comments_of_a_file_stay_when_a_change_is_written(lobby: Folder) -> None:
    game = "---\n# another one\nname: game\n"
    lobby.file.write_text(
        f"# the lobby\nname: lobby\ncommand: ['true']  # does nothing\nmax: 1  # few\n{game}"
    )
    await lobby.folder.read()
    await lobby.commit(change(2))
    assert lobby.file.read_text() == (
        f"# the lobby\nname: lobby\ncommand: ['true']  # does nothing\nmax: 2  # few\n{game}"
    )
    lobby.file.write_text(lobby.file.read_text().replace("max: 2", "max: 1"))
    await lobby.commit(GROUPS.delete("lobby", expect=1))
    assert lobby.file.read_text() == game


async def test_a_file_that_has_to_be_written_whole_is_named(lobby: Folder) -> None:
    lobby.file.write_text("# one\n- name: lobby\n  command: ['true']\n  max: 1\n")
    await lobby.folder.read()
    with structlog.testing.capture_logs() as logs:
        await lobby.commit(change(2))
    assert (lobby.most, "#" in lobby.file.read_text()) == (2, False)
    (told,) = [each for each in logs if each["event"] == "group_file_comments.lost"]
    assert (told["file"], told["reason"]) == (str(lobby.file), "the file had to be written whole")


def linked(lobby: Folder, target: pathlib.Path) -> str:
    """Put the file of the group elsewhere, and a link in its place."""
    target.parent.mkdir(exist_ok=True)
    lobby.file.rename(target)
    lobby.file.symlink_to(os.path.relpath(target, lobby.file.parent))
    return str(lobby.file.readlink())


async def test_a_file_is_written_where_its_link_leads(lobby: Folder) -> None:
    target = lobby.file.parent / ".data" / "lobby"
    link = linked(lobby, target)
    await lobby.folder.read()
    await lobby.commit(change(2))
    assert (str(lobby.file.readlink()), lobby.most, yaml.safe_load(target.read_text())["max"]) == (link, 2, 2)


async def test_a_link_out_of_the_directory_is_not_written_and_not_replaced(
    lobby: Folder, tmp_path: pathlib.Path
) -> None:
    target = tmp_path / "elsewhere" / "lobby.yaml"
    link = linked(lobby, target)
    await lobby.folder.read()
    with pytest.raises(Rejected, match=r"is a link to .*elsewhere/lobby.yaml, which is not in the directory"):
        await lobby.commit(change(2))
    assert (str(lobby.file.readlink()), lobby.most, lobby.stored) == (link, 1, False)
    # What is removed is the link; it is there again if nothing was stored.
    with pytest.raises(Conflict):
        await lobby.commit(GROUPS.delete("lobby", expect=1), CONFLICT)
    assert (str(lobby.file.readlink()), lobby.most) == (link, 1)
    await lobby.commit(GROUPS.delete("lobby", expect=1))
    assert (os.path.lexists(lobby.file), target.exists()) == (False, True)


async def test_a_link_that_leads_nowhere_is_not_replaced(lobby: Folder) -> None:
    game = lobby.file.with_name("game.yaml")
    game.symlink_to("nowhere")
    with pytest.raises(Rejected, match="is a link that leads nowhere"):
        await lobby.commit(GROUPS.put("game", group(1, "game"), expect=None))
    assert (game.is_symlink(), lobby.stored) == (True, False)


async def test_a_group_that_is_taken_over_leaves_the_directory_and_does_not_come_back(
    tmp_path: pathlib.Path,
) -> None:
    folder = tmp_path / "groups"
    folder.mkdir()
    file, copy = folder / "lobby.yaml", folder / "lobby.yaml.taken-over"
    text = "# ours\nname: lobby\ncommand: ['true']\n"
    file.write_text(text)
    write = {"owner": "team", "force": True}
    theirs, ours = ({"name": "lobby", "command": [each]} for each in ("false", "true"))
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))

        async def reload() -> Any:
            return await controller.call("POST", f"{GROUPS_PATH}/reload", {})

        async def shown() -> tuple[str, list[str]]:
            found = await controller.call("GET", f"{GROUPS_PATH}/lobby")
            return found["status"]["owner"], found["command"]

        await controller.call("POST", "/api/v1/apply", {**write, "documents": [{"body": theirs}]})
        assert (file.exists(), copy.read_text()) == (False, text)
        report = await reload()
        assert (report["errors"], report["gone"], await shown()) == ([], [], ("team", ["false"]))

        # Its file is put back: it is named with the owner, and changes nothing.
        file.write_text(text)
        for _ in range(2):
            (fault,) = (await reload())["errors"]
            assert (fault["path"], "belongs to the owner 'team'" in fault["message"]) == (str(file), True)
            assert await shown() == ("team", ["false"])

        # It is given back to the directory, whose file is as it was.
        back = {"owner": "dir", "force": True, "documents": [{"body": ours}]}
        await controller.call("POST", "/api/v1/apply", back)
        report = await reload()
        assert (report["errors"], report["summary"]) == ([], "1 group, nothing changed")
        assert (file.read_text(), await shown()) == (text, ("dir", ["true"]))

        # Taken over as it is, and deleted by its owner: no file brings it back.
        await controller.call("POST", "/api/v1/apply", {**write, "documents": [{"body": ours}]})
        await controller.call("DELETE", f"{GROUPS_PATH}/lobby")
        assert (await reload())["groups"] == []
        assert (await controller.call("GET", GROUPS_PATH))["items"] == []


async def test_a_file_is_there_again_when_its_group_was_not_taken_over(lobby: Folder) -> None:
    text = lobby.file.read_text()
    taken = GROUPS.put("lobby", msgspec.structs.replace(group(1), owner="team"), expect=1)
    with pytest.raises(Conflict):
        await lobby.commit(taken, CONFLICT)
    assert [each.name for each in lobby.file.parent.iterdir() if not each.name.startswith(".")] == [
        "lobby.yaml"
    ]
    assert lobby.file.read_text() == text
    lobby.file.write_text("name: lobby\ncommand: ['true']\nmax: 7\n")
    with pytest.raises(Rejected, match="was edited since it was loaded"):
        await lobby.commit(taken)
