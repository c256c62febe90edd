"""The files of a directory of group documents, while changes are committed and when they are not."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import pathlib
import resource
import signal
import stat
from typing import Any

import msgspec
import pytest
import yaml

from corral.cli.failure import CommandRefused
from corral.controller.instances.group_folder import GroupFolder
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import GROUPS
from corral.controller.state.ledger import Mutation, Step
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.ids import Epoch, GroupName
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.store.port import Change, Commit, Put, Refusal
from corral.store.store_errors import Conflict, Fenced, StoreUnavailable
from corral.system.document_sets import MOST_BYTES, MOST_DOCUMENTS, read_set
from corral.testing.cluster import LocalCluster
from corral.testing.waiting import eventually

GROUPS_PATH = "/api/v1/groups"
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
CONFLICT = Conflict(Refusal(collection=GROUPS.name, id="lobby", expect=1, found=2))


def group(most: int, name: str = "lobby") -> GroupRecord:
    spec = GroupSpec(name=GroupName(name), command=("true",), max=most)
    written = {"name": name, "command": ["true"], "max": most}
    return GroupRecord(spec=spec, written=written, created_at=NOW, updated_at=NOW)


def mode(file: pathlib.Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


class Folder:
    """A directory with the group 'lobby', as loaded."""

    def __init__(self, path: pathlib.Path) -> None:
        path.mkdir()
        self.file = path / "lobby.yaml"
        self.file.write_text("name: lobby\ncommand: ['true']\nmax: 1\n")
        self.folder = GroupFolder(path)
        self.stored = False
        self.state = ClusterState()
        put = GROUPS.put("lobby", group(1), expect=None)
        change = Change(collection=put.collection, id=put.id, revision=1, body=put.body)
        self.state.apply(Commit(number=1, epoch=Epoch(1), at=NOW, changes=(change,), events=(), entries=()))

    async def commit(
        self, step: Step, error: BaseException | None = None, *, when: asyncio.Event | None = None
    ) -> None:
        async def store(mutation: Mutation) -> None:
            if when is not None:
                await when.wait()
            if error is not None:
                raise error
            self.stored = True

        mutation = Mutation(action="groups.change", subject="lobby", steps=(step,))
        await self.folder.commit(self.state, mutation, store)

    @property
    def most(self) -> Any:
        return yaml.safe_load(self.file.read_text())["max"]


def change(most: int) -> Put:
    return GROUPS.put("lobby", group(most), expect=1)


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
        assert [each["path"] for each in report["errors"]] == [str(file)]
        assert report["gone"] == []
        with pytest.raises(CommandRefused, match="was edited since it was loaded"):
            await controller.call("PATCH", f"{GROUPS_PATH}/lobby", {"max": 2})
        with pytest.raises(CommandRefused, match="1 error in 0 documents"):
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


async def test_the_audit_of_a_reload_has_the_id_of_its_request(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "groups"
    folder.mkdir()
    (folder / "lobby.yaml").write_text("name: lobby\ncommand: ['true']\n")
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller(groups__directory=str(folder))
        (folder / "lobby.yaml").write_text("name: lobby\ncommand: ['true']\nmax: 2\n")
        await controller.call("POST", f"{GROUPS_PATH}/reload", {})
        entries = (await controller.call("GET", "/api/v1/audit"))["items"]
    requests = [(each["subject"], each["request"]) for each in entries if each["action"] == "groups.reload"]
    (whole, request), (name, of_group), at_start = requests
    assert (whole, name, at_start) == ("groups", "lobby", ("lobby", ""))
    assert of_group == request != ""
