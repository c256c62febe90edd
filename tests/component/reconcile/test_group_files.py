"""The files of a directory of group documents, while changes are committed and when they are not."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import resource
import signal

import pytest
import yaml
from group_file_rig import CONFLICT, GROUPS_PATH, Folder, change, group, mode

from corral.cli.failure import CommandRefused
from corral.controller.state.collections import GROUPS
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.store.store_errors import Conflict, Fenced, StoreUnavailable
from corral.system.document_limits import MOST_BYTES, MOST_DOCUMENTS
from corral.system.document_sets import read_set
from corral.testing.cluster import LocalCluster
from corral.testing.waiting import eventually


@pytest.fixture
async def lobby(tmp_path: pathlib.Path) -> Folder:
    made = Folder(tmp_path / "groups")
    await made.folder.read()
    return made


async def test_a_file_keeps_its_mode_and_a_new_one_is_for_the_controller_alone(
    tmp_path: pathlib.Path,
) -> None:
    folder = tmp_path / "groups"
    folder.mkdir()
    file = folder / "lobby.yaml"
    file.write_text("name: lobby\ncommand: ['true']\n")
    file.chmod(0o640)
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        await controller.call("PATCH", f"{GROUPS_PATH}/lobby", {"env": {"KEY": "secret"}})
        assert (mode(file), "secret" in file.read_text()) == (0o640, True)
        await controller.call(
            "POST", GROUPS_PATH, {"name": "game", "command": ["true"], "env": {"KEY": "secret"}}
        )
        assert mode(folder / "game.yaml") == 0o600


async def test_a_file_that_is_restored_has_its_mode_again(lobby: Folder) -> None:
    lobby.file.chmod(0o640)
    for step in (change(2), GROUPS.delete("lobby", expect=1)):
        with pytest.raises(Conflict):
            await lobby.commit(step, CONFLICT)
        assert (mode(lobby.file), lobby.most) == (0o640, 1)


async def test_a_file_whose_name_is_no_text_is_reported_and_its_group_stays(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    folder.mkdir()
    file = folder / "lobby.yaml"
    file.write_text("name: lobby\ncommand: ['true']\n")
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        file.write_text("name: [a]\ncommand: ['true']\n")
        report = await controller.call("POST", f"{GROUPS_PATH}/reload", {})
        assert [each["path"] for each in report["errors"]] == [f"{file}:1"]
        assert report["gone"] == []
        with pytest.raises(CommandRefused, match="was edited since it was loaded"):
            await controller.call("PATCH", f"{GROUPS_PATH}/lobby", {"max": 2})
        with pytest.raises(CommandRefused, match="1 error in 1 document"):
            await controller.call("POST", f"{GROUPS_PATH}/reload", {"prune": True})
        assert (await controller.call("GET", f"{GROUPS_PATH}/lobby"))["name"] == "lobby"
        assert file.read_text() == "name: [a]\ncommand: ['true']\n"
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        assert (await controller.call("GET", f"{GROUPS_PATH}/lobby"))["name"] == "lobby"


NOT_STORED = [
    CONFLICT,
    StoreUnavailable("locked"),
    Rejected(Code.BODY_TOO_LARGE, "too large"),
    Retryable(Code.SHUTTING_DOWN, "ends"),
]


@pytest.mark.parametrize("error", NOT_STORED, ids=lambda error: error.code.name)
async def test_a_file_is_restored_when_nothing_was_stored(lobby: Folder, error: CorralError) -> None:
    for step in (change(2), GROUPS.delete("lobby", expect=1)):
        with pytest.raises(type(error)):
            await lobby.commit(step, error)
        assert lobby.most == 1


@pytest.mark.parametrize(
    "error", [StoreUnavailable("lost", in_doubt=True), Fenced(1, 2)], ids=lambda error: error.code.name
)
async def test_a_file_stays_written_while_its_commit_is_in_doubt(lobby: Folder, error: CorralError) -> None:
    with pytest.raises(type(error)):
        await lobby.commit(change(2), error)
    assert lobby.most == 2
    with pytest.raises(Rejected, match="was edited since it was loaded"):
        await lobby.commit(change(3))  # the store may have either


@pytest.mark.parametrize(("error", "most"), [(None, 2), (CONFLICT, 1)], ids=["stored", "refused"])
async def test_a_cancelled_change_is_whole(lobby: Folder, error: CorralError | None, most: int) -> None:
    """Cancelled at its first step, and again while it is being committed."""
    when = asyncio.Event()
    caller = asyncio.create_task(lobby.commit(change(2), error, when=when))
    await asyncio.sleep(0)  # it has begun
    caller.cancel()
    await eventually(lambda: lobby.most == 2)
    caller.cancel()
    when.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert (lobby.most, lobby.stored) == (most, error is None)


async def test_what_is_no_regular_file_is_reported_and_not_waited_for(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    folder.mkdir()
    (folder / "lobby.yaml").write_text("name: lobby\ncommand: ['true']\n")
    os.mkfifo(folder / "pipe.yaml")
    (folder / "tap.yaml").symlink_to("/dev/zero")
    (folder / "nowhere.yaml").symlink_to(folder / "none")
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        report = await controller.call("POST", f"{GROUPS_PATH}/reload", {})
        assert {(each["path"], each["message"]) for each in report["errors"]} == {
            (str(folder / "pipe.yaml"), "it is no regular file"),
            (str(folder / "tap.yaml"), "it is no regular file"),
            (str(folder / "nowhere.yaml"), "cannot read it: No such file or directory"),
        }
        await controller.call("PATCH", f"{GROUPS_PATH}/lobby", {"max": 200})
        with pytest.raises(CommandRefused, match="it is no regular file"):
            await controller.call("POST", GROUPS_PATH, {"name": "pipe", "command": ["true"]})


def test_a_pipe_that_is_named_itself_is_read() -> None:
    """As by 'corral apply -f <(generate)'."""
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as file:
        file.write("name: lobby\n")
        file.close()
        found = read_set((f"/dev/fd/{reading}",))
    assert [each.body for each in found.documents] == [{"name": "lobby"}]


async def test_a_directory_whose_last_group_was_deleted_is_accepted(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    folder.mkdir()
    (folder / "lobby.yaml").write_text("name: lobby\ncommand: ['true']\n")
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        await controller.call("DELETE", f"{GROUPS_PATH}/lobby")
        assert not (folder / "lobby.yaml").exists()
        report = await controller.call("POST", f"{GROUPS_PATH}/reload", {})
        assert (report["errors"], report["gone"]) == ([], [])
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        assert (await controller.call("GET", GROUPS_PATH))["items"] == []
        await controller.call("POST", GROUPS_PATH, {"name": "game", "command": ["true"]})
        (folder / "game.yaml").unlink()  # by hand: as if it were not mounted
        with pytest.raises(CommandRefused, match="has no documents"):
            await controller.call("POST", f"{GROUPS_PATH}/reload", {})


async def test_a_change_that_makes_the_directory_too_large_to_load_is_refused(lobby: Folder) -> None:
    new = GROUPS.put("game", group(1, "game"), expect=None)
    full = lobby.file.with_name("full.json")
    full.write_text(json.dumps([{"name": f"g{number}"} for number in range(MOST_DOCUMENTS - 1)]))
    await lobby.folder.read()
    with pytest.raises(Rejected, match=f"{MOST_DOCUMENTS + 1} documents, more than {MOST_DOCUMENTS}"):
        await lobby.commit(new)
    await lobby.commit(change(2))
    full.write_text(" " * (MOST_BYTES - lobby.file.stat().st_size - 2) + "[]")
    await lobby.folder.read()
    with pytest.raises(Rejected, match="more than 8 MiB"):
        await lobby.commit(new)
    assert sorted(each.name for each in lobby.file.parent.iterdir()) == ["full.json", "lobby.yaml"]
    await lobby.folder.read()


async def test_a_group_in_two_files_is_written_into_the_one_that_is_loaded(lobby: Folder) -> None:
    second = lobby.file.with_name("second.yaml")
    second.write_text(lobby.file.read_text())
    await lobby.folder.read()
    await lobby.commit(change(2))
    assert (lobby.most, yaml.safe_load(second.read_text())["max"]) == (2, 1)


async def test_a_failed_write_leaves_no_temporary_file(lobby: Folder) -> None:
    """Beyond the size limit of a process, writing fails as on a full disk."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, former[1]))
    try:
        with pytest.raises(Rejected, match="cannot be written: File too large"):
            await lobby.commit(change(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [each.name for each in lobby.file.parent.iterdir()] == ["lobby.yaml"]
    assert lobby.most == 1


async def test_the_audit_of_a_reload_has_the_id_of_its_request(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    folder.mkdir()
    (folder / "lobby.yaml").write_text("name: lobby\ncommand: ['true']\n")
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        (folder / "lobby.yaml").write_text("name: lobby\ncommand: ['true']\nmax: 2\n")
        await controller.call("POST", f"{GROUPS_PATH}/reload", {})
        entries = (await controller.call("GET", "/api/v1/audit"))["items"]
    done = [each for each in entries if each["action"] == "groups.reload" and each["outcome"] != "begun"]
    requests = [(each["subject"], each["request"]) for each in done]
    (whole, request), (name, of_group), at_start = requests
    assert (whole, name, at_start) == ("groups", "lobby", ("lobby", ""))
    assert of_group == request != ""


async def test_many_groups_of_one_file_are_written_at_once_with_its_comments(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    folder.mkdir()
    file = folder / "all.yaml"
    names = [f"g{number}" for number in range(12)]
    file.write_text("---\n".join(f"# about {name}\nname: {name}\ncommand: ['true']\n" for name in names))
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        bodies = [{"name": name, "command": ["true"], "labels": {"turn": "2"}} for name in names[:-2]]
        bodies.append({"name": "new", "command": ["true"]})
        documents = [{"path": "", "body": body} for body in bodies]
        await controller.call("POST", "/api/v1/apply", {"documents": documents, "force": True})
        await controller.call("DELETE", f"{GROUPS_PATH}/{names[-1]}")
        report = await controller.call("POST", f"{GROUPS_PATH}/reload", {})
        assert (report["errors"], report["summary"]) == ([], "12 groups, nothing changed")
    found = {each["name"]: each.get("labels") for each in yaml.safe_load_all(file.read_text())}
    assert found == {key: {"turn": "2"} for key in names[:-2]} | {names[-2]: None}
    assert [f"# about {name}" in file.read_text() for name in names[:-1]] == [True] * 11
    assert (folder / "new.yaml").exists()


async def test_what_a_killed_controller_had_begun_to_write_is_written_before_the_directory_is_read(
    tmp_path: pathlib.Path,
) -> None:
    folder = tmp_path / "groups"
    folder.mkdir()
    (folder / "a.yaml").write_text("name: a\ncommand: ['true']\nmax: 2\n")
    (folder / "b.yaml").write_text("name: b\ncommand: ['true']\nmax: 1\n")
    (folder / "c.yaml").write_text("name: c\ncommand: ['true']\n")
    texts = {name: f"name: {name}\ncommand: ['true']\nmax: 2\n" for name in "ab"}
    record = [*([f"{name}.yaml", text] for name, text in texts.items()), ["c.yaml", None]]
    (folder / ".corral-writing").write_text(json.dumps(record))
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        page = await controller.call("GET", GROUPS_PATH)
    assert {each["name"]: each["max"] for each in page["items"]} == {"a": 2, "b": 2}
    assert sorted(each.name for each in folder.iterdir()) == ["a.yaml", "b.yaml"]


async def test_a_record_of_writes_larger_than_what_is_loaded_is_read_back(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    folder.mkdir()
    (folder / "a.yaml").write_text("name: a\ncommand: ['true']\n")
    text = "# " + '"' * (5 * 1024 * 1024) + "\nname: a\ncommand: ['true']\nmax: 2\n"
    (folder / ".corral-writing").write_text(json.dumps([["a.yaml", text]]))
    assert (folder / ".corral-writing").stat().st_size > MOST_BYTES
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        assert (await controller.call("GET", f"{GROUPS_PATH}/a"))["max"] == 2


async def test_a_record_of_writes_that_names_a_file_elsewhere_writes_nothing(tmp_path: pathlib.Path) -> None:
    folder, elsewhere = tmp_path / "groups", tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "a.yaml").write_text("name: a\ncommand: ['true']\n")
    record = [["a.yaml", "name: a\ncommand: ['true']\nmax: 2\n"], ["../elsewhere", "x"]]
    (folder / ".corral-writing").write_text(json.dumps(record))
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        assert (await controller.call("GET", f"{GROUPS_PATH}/a"))["max"] is None
    assert not elsewhere.exists()
