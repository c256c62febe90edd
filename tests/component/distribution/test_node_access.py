"""What a node may ask for: what something that may run there needs. Anything else does not exist for it."""

from __future__ import annotations

import asyncio
import os

import pytest
from depot import unpacked

from corral.errors import Code, CorralError

SECRET = {"server.properties": b"rcon.password=hunter2\n"}
LARGE = {f"world/r.{n}.mca": os.urandom(40 * 1024) for n in range(3)}


async def refused(talker, name: str, **hashes: str) -> tuple[str, str]:
    answer = await talker.ask(name, "template_unavailable", **hashes)
    return answer.error_code, answer.error_message


async def fetch_code(talker, **opening) -> Code | None:
    try:
        await talker.fetch(**opening)
    except CorralError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    "selected",
    [{"nodes": ["n1"]}, {"node_labels": {"team": "a"}}, {"runtime": "tmux"}],
    ids=["nodes", "labels", "runtime"],
)
async def test_a_template_goes_to_nodes_that_a_group_with_it_may_run_on_and_to_no_other(depot, selected):
    await depot.begin()
    version = await depot.upload("private", SECRET)
    large = await depot.upload("world", LARGE)
    await depot.group("game", templates=["private", "world"], **selected)
    meant = await depot.talker("n1", labels={"team": "a"}, runtimes=["process", "tmux"])
    other = await depot.talker("n2", labels={"team": "b"}, runtimes=["process"], machine_id="machine-2")
    data = await meant.ask("private", wanted=version.hash)
    assert unpacked(data.tar_gz) == SECRET
    offer = await meant.ask("world", wanted=large.hash)
    manifest = await depot.term.templates.tree_of(large)
    contents = [file.digest for file in manifest.files]
    assert len(await meant.fetch(kind="bundle", digests=contents)) == 3 * 40 * 1024

    missing = await refused(other, "nothing-of-this-name")
    for wanted in ("", version.hash):
        code, message = await refused(other, "private", wanted=wanted)
        assert (code, message) == (missing[0], missing[1].replace("nothing-of-this-name", "private"))
    for digest in (offer.offer.digest, contents[0], "0" * 64):
        assert await fetch_code(other, kind="blob", digest=digest) is Code.NOT_FOUND
    assert await fetch_code(other, kind="bundle", digests=contents) is Code.NOT_FOUND


async def test_a_template_that_no_group_uses_is_nobodys(depot):
    await depot.begin()
    version = await depot.upload("private", SECRET)
    await depot.group("game")
    talker = await depot.talker("n1")
    assert (await refused(talker, "private", wanted=version.hash))[0] == "TEMPLATE_NOT_FOUND"
    assert await fetch_code(talker, kind="blob", digest=version.manifest) is Code.NOT_FOUND


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "broken"])
async def test_a_template_with_a_lost_list_of_files_stands_in_no_others_way(depot, scratch, lost):
    await depot.begin()
    broken = await depot.upload("a-broken", {"level.dat": os.urandom(100)})
    large = await depot.upload("world", LARGE)
    contents = [file.digest for file in (await depot.term.templates.tree_of(large)).files]
    await depot.group("a-broken", templates=["a-broken"])
    await depot.group("game", templates=["world"])
    depot.term.templates._remembered.clear()
    [stored] = scratch.rglob(broken.manifest)
    stored.unlink() if lost else stored.write_bytes(b"{")
    talker = await depot.talker("n1")
    assert len(await talker.fetch(kind="bundle", digests=contents)) == 3 * 40 * 1024
    assert await fetch_code(talker, kind="blob", digest="0" * 64) is Code.NOT_FOUND


async def test_another_version_than_groups_use_does_not_exist(depot):
    await depot.begin()
    old = await depot.upload("base", {"password": b"old"})
    await depot.upload("base", {"password": b"new"})
    await depot.group("game", templates=["base"])
    talker = await depot.talker("n1")
    assert (await talker.ask("base")).tar_gz
    assert (await refused(talker, "base", wanted=old.hash))[0] == "TEMPLATE_NOT_FOUND"


async def test_what_a_node_runs_stays_readable_after_its_group_has_moved_on(depot):
    await depot.begin()
    old = await depot.upload("base", {"a": b"old"})
    await depot.group("lobby", templates=["base"])
    talker = await depot.talker("n1")
    await depot.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await talker.read_until("start_instance")
    await depot.upload("base", {"a": b"new"})
    assert unpacked((await talker.ask("base", wanted=old.hash)).tar_gz) == {"a": b"old"}


async def test_what_an_operator_has_a_node_fetch_it_may_have_until_that_is_done(depot):
    await depot.begin()
    version = await depot.upload("private", SECRET)
    talker = await depot.talker("n1")
    syncing = asyncio.create_task(depot.term.distribution.sync("private", ["n1"]))
    order = (await talker.read_until("pre_warm_cache")).pre_warm_cache
    assert [ref.name for ref in order.templates] == ["private"]
    assert unpacked((await talker.ask("private", wanted=version.hash)).tar_gz) == SECRET
    await talker.tell_cache(order.request_id)
    await syncing
    assert (await refused(talker, "private", wanted=version.hash))[0] == "TEMPLATE_NOT_FOUND"
