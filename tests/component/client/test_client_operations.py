"""Each kind of operation, by both clients, against a real controller and a real daemon."""

from __future__ import annotations

import io
import pathlib
import sys
import tarfile
from typing import Any

import pytest
from callers import Caller, calling

from corral.client import (
    AsyncClient,
    BadRequest,
    Client,
    Conflict,
    Forbidden,
    NotFound,
    PreconditionFailed,
    Unauthorized,
    models,
)
from corral.testing.cluster import LocalCluster
from corral.testing.waiting import eventually

ECHO = [
    sys.executable,
    "-u",
    "-c",
    "print('hello', flush=True)\nfor line in iter(input, 'stop'): print('got', line)",
]


def archive(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


async def group(caller: Caller, name: str = "lobby", **fields: Any) -> models.Group:
    body = models.NewGroup(name=name, **{"command": ["sleep", "600"], "max": 9, **fields})
    return await caller.call(lambda corral: corral.groups.create(body))


async def test_a_group_is_made_read_scaled_and_deleted(caller):
    made = await group(caller)
    assert (made.name, made.min, type(made)) == ("lobby", 0, models.Group)
    scaled = await caller.call(lambda corral: corral.groups.scale("lobby", count=4))
    assert scaled.status.wanted == 4
    read = await caller.call(lambda corral: corral.groups.get("lobby"))
    assert read.revision >= scaled.revision
    tried = await caller.call(lambda corral: corral.groups.scale_dry_run("lobby", count=2))
    assert isinstance(tried, models.DryRun)
    changed = await caller.call(lambda corral: corral.groups.update("lobby", models.GroupPatch(max=7)))
    assert changed.max == 7
    assert (
        await caller.call(lambda corral: corral.groups.delete("lobby", cascade=True, confirm="lobby")) is None
    )
    with pytest.raises(NotFound) as refused:
        await caller.call(lambda corral: corral.groups.get("lobby"))
    assert (refused.value.code, refused.value.status) == ("NOT_FOUND", 404)
    assert refused.value.request_id
    assert "lobby" in str(refused.value)


async def test_a_document_is_read_and_written_back(caller):
    await group(caller)
    document = await caller.call(lambda corral: corral.groups.document("lobby"))
    written = await caller.call(lambda corral: corral.groups.put_document("lobby", {**document, "max": 5}))
    assert written.max == 5
    applied = await caller.call(
        lambda corral: corral.groups.apply(documents=[models.DocumentInput(body={**document, "max": 6})])
    )
    assert applied.changed == 1


async def test_pages_are_walked_to_their_end_and_no_further_than_they_are_read(caller):
    for number in range(5):
        await caller.call(
            lambda corral, number=number: corral.tokens.create(name=f"t{number}", role=models.Role.VIEWER)
        )
    found = await caller.items(lambda corral: corral.tokens.all(limit=2))
    assert sorted(token.name for token in found if token.name.startswith("t")) == [
        "t0",
        "t1",
        "t2",
        "t3",
        "t4",
    ]
    page = await caller.call(lambda corral: corral.tokens.list(limit=2))
    assert len(page.items) == 2
    assert page.next
    assert len(await caller.items(lambda corral: corral.tokens.all(limit=1), most=3)) == 3
    summaries = await caller.call(lambda corral: corral.groups.list_summaries())
    assert summaries.total == 0
    events = await caller.items(lambda corral: corral.events.all(limit=2, types=["TOKEN_CREATED"]))
    assert len({event.id for event in events}) == len(events) >= 5


async def test_a_change_under_another_revision_is_refused_and_nothing_happens(caller):
    made = await group(caller)
    await caller.call(lambda corral: corral.groups.scale("lobby", count=1, if_match=made.revision))
    with pytest.raises(PreconditionFailed) as refused:
        await caller.call(lambda corral: corral.groups.scale("lobby", count=2, if_match=made.revision))
    assert refused.value.code == "REVISION_MISMATCH"
    assert (await caller.call(lambda corral: corral.groups.get("lobby"))).status.wanted == 1


async def test_a_key_takes_effect_once_and_says_so(caller):
    first = await caller.call(
        lambda corral: corral.tokens.create(name="a", role=models.Role.VIEWER, idempotency_key="k")
    )
    again = await caller.call(
        lambda corral: corral.tokens.create(name="a", role=models.Role.VIEWER, idempotency_key="k")
    )
    assert again == first
    with pytest.raises(Conflict) as refused:
        await caller.call(
            lambda corral: corral.tokens.create(name="b", role=models.Role.VIEWER, idempotency_key="k")
        )
    assert refused.value.code == "IDEMPOTENCY_KEY_REUSED"


async def test_refusals_are_told_apart_by_their_class(kind, caller, controller):
    await group(caller)
    with pytest.raises(Conflict) as conflict:
        await group(caller)
    assert conflict.value.code == "ALREADY_EXISTS"
    with pytest.raises(BadRequest) as wrong:
        await caller.call(lambda corral: corral.groups.scale("lobby", count=-1))
    assert wrong.value.field == "count"
    viewer = await caller.call(lambda corral: corral.tokens.create(name="v", role=models.Role.VIEWER))
    async with calling(kind, controller.url, token=viewer.token) as weak:
        with pytest.raises(Forbidden):
            await weak.call(lambda corral: corral.groups.scale("lobby", count=1))
    async with calling(kind, controller.url) as nobody:
        with pytest.raises(Unauthorized):
            await nobody.call(lambda corral: corral.groups.list())


async def test_a_template_goes_up_and_comes_down_as_it_was(caller, tmp_path):
    content = archive({"a.txt": b"a" * 1000, "b/c.txt": b"c"})
    file = tmp_path / "in.tar.gz"
    file.write_bytes(content)

    def pieces():
        for start in range(0, len(content), 100):
            yield content[start : start + 100]

    for name, source in (("one", content), ("two", file), ("net/three", str(file)), ("four", pieces())):
        made = await caller.call(lambda corral, name=name, source=source: corral.templates.put(name, source))
        assert isinstance(made, models.ChangedTemplate)
        listed = await caller.items(lambda corral, name=name: corral.templates.all_files(name))
        assert [each.path for each in listed] == ["a.txt", "b/c.txt"]
    await caller.call(lambda corral: corral.templates.put_file("net/three", "b/d.txt", b"", note="empty"))
    down = await caller.call(lambda corral: corral.templates.get_file("net/three", "a.txt").read())
    assert down == b"a" * 1000
    target = tmp_path / "out.tar.gz"
    size = await caller.call(lambda corral: corral.templates.export("net/three").save(target))
    assert target.stat().st_size == size
    with tarfile.open(target) as tar:
        assert sorted(tar.getnames()) == ["a.txt", "b/c.txt", "b/d.txt"]
    target.chmod(0o640)
    (tmp_path / "link").symlink_to(target)
    await caller.call(lambda corral: corral.templates.export("net/three").save(tmp_path / "link"))
    assert (target.stat().st_mode & 0o777, (tmp_path / "link").is_symlink()) == (0o640, True)
    await caller.call(lambda corral: corral.templates.export("net/three").save("/dev/null"))
    assert pathlib.Path("/dev/null").is_char_device()
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []
    with pytest.raises(NotFound):
        await caller.call(lambda corral: corral.templates.export("none").save(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


async def test_an_instance_is_started_written_to_followed_and_stopped(
    caller, cluster: LocalCluster, controller, tmp_path
):
    await cluster.daemon("n1", controller)
    await group(caller, command=ECHO)
    made = await caller.call(
        lambda corral: corral.instances.create(group="lobby", wait="running", timeout=50)
    )
    assert made.state == models.InstanceState.RUNNING

    async def said(text: str) -> Any:
        page = await caller.call(lambda corral: corral.instances.console(made.id))
        return next((line for line in page.items if text in line.line), None)

    await eventually(lambda: said("hello"))
    await caller.call(lambda corral: corral.instances.command(made.id, command="say it"))
    await eventually(lambda: said("got say it"))
    messages = await caller.items(lambda corral: corral.instances.console_stream(made.id, after=0), most=1)
    assert messages[0].event in ("page", "run")
    await caller.call(lambda corral: corral.instances.put_files_content(made.id, b"x" * 5000, path="new.txt"))
    stat = await caller.call(lambda corral: corral.instances.files_stat(made.id, path="new.txt"))
    assert stat.size == 5000
    down = await caller.call(
        lambda corral: corral.instances.files_content(made.id, path="new.txt", offset=4990).read()
    )
    assert down == b"x" * 10
    with pytest.raises(PreconditionFailed):
        await caller.call(
            lambda corral: corral.instances.put_files_content(
                made.id, b"y", path="new.txt", if_match="0" * 64
            )
        )
    stopped = await caller.call(lambda corral: corral.instances.kill(made.id, wait="stopped"))
    assert stopped.state in (models.InstanceState.STOPPED, models.InstanceState.CRASHED)
    ended = await caller.items(
        lambda corral: corral.instances.console_stream(made.id, incarnation=1, after=0)
    )
    assert ended[-1].event == "end", "a stream of one run ends by itself"
    assert isinstance(ended[-1].data, models.End)


async def test_events_follow_a_read_without_a_gap(caller):
    info = await caller.call(read_at if isinstance(caller.corral, Client) else awaited_read_at)
    cursor = info.cursor
    assert cursor
    await group(caller, "a")
    await group(caller, "b")
    events = await caller.items(
        lambda corral: corral.events.stream(types=["GROUP_CREATED"], after=cursor), most=2
    )
    assert [type(event) for event in events] == [models.GroupCreatedEvent] * 2
    assert [event.subject for event in events] == ["a", "b"]


def read_at(corral: Client) -> Any:
    corral.groups.list()
    return corral.last_answer


async def awaited_read_at(corral: AsyncClient) -> Any:
    await corral.groups.list()
    return corral.last_answer


async def test_a_text_a_description_and_a_command_are_answers_too(caller):
    assert "corral_" in await caller.call(lambda corral: corral.probes.metrics())
    assert (await caller.call(lambda corral: corral.probes.ready())).status
    described = await caller.call(lambda corral: corral.cluster.openapi())
    assert described.openapi == "3.1.0"
    schema = await caller.call(lambda corral: corral.schemas.group())
    assert "properties" in schema or "$ref" in schema
    output = await caller.call(lambda corral: corral.commands.execute(command="node list -o json"))
    assert output.exit_code == 0


async def test_an_instance_speaks_for_itself_with_its_own_token(
    kind, cluster, caller, controller, tmp_path: pathlib.Path
):
    await cluster.daemon("n1", controller)
    spill = "import os, pathlib, time; pathlib.Path('token').write_text(os.environ['CORRAL_INSTANCE_TOKEN']); time.sleep(600)"
    await group(caller, command=[sys.executable, "-c", spill])
    made = await caller.call(
        lambda corral: corral.instances.create(group="lobby", wait="running", timeout=50)
    )

    async def token() -> str:
        try:
            found = await caller.call(
                lambda corral: corral.instances.files_content(made.id, path="token").read()
            )
        except NotFound:
            return ""
        return found.decode()

    async with calling(kind, controller.url, token=await eventually(token)) as itself:
        await itself.call(lambda corral: corral.workload.players(count=3, max=20))
        await itself.call(lambda corral: corral.workload.metrics({"tps": 19.5}))
        with pytest.raises(Unauthorized):
            await itself.call(lambda corral: corral.groups.list())
    shown = await caller.call(lambda corral: corral.instances.get(made.id))
    assert (shown.players, shown.metrics) == (3, {"tps": 19.5})


def test_a_token_is_shown_nowhere():
    with Client("http://127.0.0.1:1", token="corral_secret") as corral:
        assert "secret" not in repr(corral)
        assert "secret" not in repr(vars(corral))
    with pytest.raises(ValueError, match="characters") as refused:
        Client("http://127.0.0.1:1", token="corral_secret\r\nX: y")
    assert "secret" not in str(refused.value)
