"""Questions about the files of instances, to daemons that only speak: who may answer, and what becomes of it."""

from __future__ import annotations

import asyncio

import pytest

from corral.controller.distribution.instance_file_transfers import (
    CHANGES_AT_ONCE,
    CHANGES_PER_CALLER,
    CHANGES_PER_INSTANCE,
    DOWNLOADS_AT_ONCE,
    DOWNLOADS_PER_CALLER,
    ChangedFiles,
    FileChange,
)
from corral.controller.distribution.instance_files import (
    QUESTIONS_AT_ONCE,
    QUESTIONS_PER_CALLER,
    QUESTIONS_PER_INSTANCE,
    InstanceFileQuestions,
    WalkRequest,
)
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.entropy import SystemEntropy
from corral.testing.waiting import eventually
from corral.wire.features import FEATURES, FILE_CHANGES, FILE_MODES
from corral.wire.frame_table import kind_of, messages_of
from corral.wire.v1.instance_pb2 import FileEntry, InstanceFileContent, InstanceFilesAnswer, InstanceFileTree
from corral.wire.v1.link_pb2 import DaemonMessage


async def ready(depot, **fields):
    await depot.begin()
    talker = await depot.talker(**fields)
    await depot.group("lobby")
    started = await depot.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    return talker, started["id"]


def walking(depot, id, path="", limit=1000, caller="c"):
    request = WalkRequest(path=path, limit=limit)
    return asyncio.create_task(depot.term.distribution.walk_files(id, request, caller=caller))


def reading(depot, id, path="a", offset=0, length=100):
    distribution = depot.term.distribution
    return asyncio.create_task(distribution.read_file(id, path, offset=offset, length=length, caller="c"))


async def asked_to_walk(talker):
    return (await talker.read_until("walk_instance_files")).walk_instance_files


async def asked_to_read(talker):
    return (await talker.read_until("read_instance_file")).read_instance_file


async def tell_tree(talker, question, *paths, **fields):
    entries = [each if isinstance(each, FileEntry) else FileEntry(path=each, kind="file") for each in paths]
    tree = InstanceFileTree(request_id=question.request_id, entries=entries, **fields)
    await talker.send(DaemonMessage(instance_file_tree=tree))


async def tell_content(talker, question, content=b"", **fields):
    told = InstanceFileContent(request_id=question.request_id, content=content, **fields)
    await talker.send(DaemonMessage(instance_file_content=told))


def listed(listing) -> list[str]:
    return [entry.path for entry in listing.entries]


async def failure(task) -> CorralError:
    with pytest.raises(CorralError) as caught:
        await task
    return caught.value


async def test_a_question_says_which_instance_of_which_group_it_means(depot):
    talker, id = await ready(depot)
    walk = walking(depot, id, "logs", 7)
    question = await asked_to_walk(talker)
    assert (question.group, question.instance_id) == ("lobby", id)
    assert (question.path, question.max_entries, question.after) == ("logs", 7, b"")
    await tell_tree(talker, question, "logs/a")
    assert listed(await walk) == ["logs/a"]
    read = reading(depot, id, "logs/a", 5, 9)
    asked = await asked_to_read(talker)
    assert (asked.group, asked.instance_id, asked.path) == ("lobby", id, "logs/a")
    assert (asked.offset, asked.max_bytes, asked.tail) == (5, 9, False)
    await tell_content(talker, asked, b"content", total_size_bytes=12)
    part = await read
    assert (part.content, part.size) == (b"content", 12)


async def test_a_walk_goes_on_until_nothing_is_left_or_there_is_enough(depot):
    talker, id = await ready(depot)
    walk = walking(depot, id, limit=5)
    await tell_tree(talker, await asked_to_walk(talker), "a", "b", truncated=True, next=b"b")
    second = await asked_to_walk(talker)
    assert (second.after, second.max_entries) == (b"b", 3)
    await tell_tree(talker, second, "c", "d", "e", "f", truncated=True, next=b"f")
    listing = await walk
    assert (listed(listing), listing.truncated) == (list("abcde"), True)


async def test_a_node_that_promises_more_and_tells_nothing_is_not_asked_for_ever(depot):
    talker, id = await ready(depot)
    walk = walking(depot, id)
    await tell_tree(talker, await asked_to_walk(talker), truncated=True, next=b"x")
    listing = await walk
    assert (listed(listing), listing.truncated) == ([], True)


async def test_only_the_node_that_was_asked_may_answer_and_only_what_was_asked(depot):
    talker, id = await ready(depot)
    stranger = await depot.talker("n2")
    read = reading(depot, id)
    question = await asked_to_read(talker)
    await tell_content(stranger, question, b"a lie")
    await tell_tree(talker, question, "not what was asked")
    unknown = InstanceFileContent(request_id="files-unknown", content=b"nobody asked")
    await talker.send(DaemonMessage(instance_file_content=unknown))
    await tell_content(talker, question, b"the truth")
    await tell_content(talker, question, b"once more")
    assert (await read).content == b"the truth"


async def test_a_node_is_trusted_no_further_than_its_answer_makes_sense(depot):
    talker, id = await ready(depot)
    walk = walking(depot, id)
    odd = FileEntry(path="odd", kind="nonsense", size_bytes=-5, modified_at_ms=2**62)
    old = FileEntry(path="old", is_dir=True, modified_at_ms=-(2**62))
    await tell_tree(talker, await asked_to_walk(talker), odd, old)
    first, second = (await walk).entries
    assert (first.kind, first.size, first.modified_at) == ("file", 0, None)
    assert (second.kind, second.modified_at) == ("directory", None)
    read = reading(depot, id, length=4)
    await tell_content(talker, await asked_to_read(talker), b"far too much", total_size_bytes=-1)
    part = await read
    assert (part.content, part.size) == (b"far ", 0)


async def test_a_refusal_keeps_its_code_and_one_without_has_one_of_ours(depot):
    talker, id = await ready(depot)
    for error, code, kind in (
        ("PATH_REFUSED: 'x' is a link", Code.PATH_REFUSED, Rejected),
        ("NOT_FOUND: nothing", Code.NOT_FOUND, Rejected),
        ("TIMEOUT: too much", Code.TIMEOUT, Retryable),
        ("no such file", Code.FILE_UNREADABLE, Retryable),
        ("java.io.IOException: no", Code.FILE_UNREADABLE, Retryable),
    ):
        read = reading(depot, id)
        await tell_content(talker, await asked_to_read(talker), error=error)
        raised = await failure(read)
        assert (raised.code, type(raised)) == (code, kind), error
        assert raised.message.startswith("node 'n1': ")


async def test_a_node_that_leaves_with_a_question_open_is_said_to_be_away(depot):
    talker, id = await ready(depot)
    walk, read = walking(depot, id), reading(depot, id)
    await asked_to_walk(talker)
    await talker.hang_up()
    assert (await failure(walk)).code is Code.NODE_OFFLINE
    assert (await failure(read)).code is Code.NODE_OFFLINE


async def test_a_node_that_leaves_before_it_has_answered_is_said_to_be_away_and_a_change_to_be_in_doubt(
    depot,
):
    talker, id = await ready(depot)
    change, download = changing(depot, id), opening(depot, id, "c")
    await orders_of(talker, 2)
    await talker.hang_up()
    lost = await failure(change)
    assert (lost.code, "may have been made" in str(lost)) == (Code.NODE_OFFLINE, True)
    lost = await failure(download)
    assert (lost.code, "is not connected" in str(lost)) == (Code.NODE_OFFLINE, True)


async def test_a_node_that_does_not_answer_is_waited_for_only_so_long(depot):
    talker, id = await ready(depot)
    record = depot.state.instances.require(id).record
    files = InstanceFileQuestions(links=depot.term.sessions, entropy=SystemEntropy(), seconds=0.05)
    walk = asyncio.create_task(files.walk(record, WalkRequest(limit=5), caller="c"))
    await asked_to_walk(talker)
    assert (await failure(walk)).code is Code.TIMEOUT
    await eventually(lambda: (files._open, len(files.turns)) == ({}, 0))
    await files.close()


async def test_questions_of_one_caller_leave_turns_to_others_also_when_it_does_not_wait(depot):
    talker, id = await ready(depot)
    turns = depot.term.distribution._files.turns
    own = [walking(depot, id) for _ in range(QUESTIONS_PER_CALLER)]
    asked = await orders_of(talker, len(own))
    refused = await failure(walking(depot, id))
    assert (refused.code, "of yours" in str(refused)) == (Code.RATE_LIMITED, True)
    other = walking(depot, id, caller="other")
    await tell_tree(talker, await asked_to_walk(talker), "a")
    assert len((await other).entries) == 1
    for each in own:
        each.cancel()
    await asyncio.wait(own)
    assert (await failure(walking(depot, id))).code is Code.RATE_LIMITED, "the node still works on them"
    for question in asked:
        await tell_tree(talker, question, "a", next=b"a")
    await eventually(lambda: len(turns) == 0)
    again = walking(depot, id)
    await tell_tree(talker, await asked_to_walk(talker), "b")
    assert [each.path for each in (await again).entries] == ["b"]
    assert QUESTIONS_PER_CALLER < QUESTIONS_PER_INSTANCE < QUESTIONS_AT_ONCE


async def test_the_end_of_a_term_ends_its_questions(depot):
    talker, id = await ready(depot)
    walk = walking(depot, id)
    await asked_to_walk(talker)
    await depot.term.distribution.close()
    assert (await failure(walk)).code is Code.NOT_LEADER


# --- changes --------------------------------------------------------------------------------------
def changing(depot, id, caller="c", **fields):
    change = FileChange(**{"verb": "write", "path": "conf/a", **fields})
    return asyncio.create_task(depot.term.distribution.change_files(id, change, caller=caller))


async def asked_to_change(talker):
    return (await talker.read_until("change_instance_files")).change_instance_files


async def tell_answer(talker, question, **fields):
    told = InstanceFilesAnswer(request_id=question.request_id, **fields)
    await talker.send(DaemonMessage(instance_files_answer=told))


async def test_a_change_is_believed_only_of_the_node_that_was_asked_and_as_far_as_it_makes_sense(depot):
    talker, id = await ready(depot)
    stranger = await depot.talker("n2")
    change = changing(depot, id, if_digests=("ab" * 32,), must_exist=True)
    question = await asked_to_change(talker)
    assert (question.group, question.instance_id, question.verb, question.path) == (
        "lobby",
        id,
        "write",
        "conf/a",
    )
    assert (list(question.if_digests), question.must_exist) == (["ab" * 32], True)
    await tell_answer(stranger, question, error="FILE_CHANGED: a lie")
    await tell_content(talker, question, b"not what was asked")
    await tell_answer(talker, question, sha256="no digest", size_bytes=-1, entries=-5)
    assert await change == ChangedFiles()
    for error, seen, digest in (
        ("FILE_CHANGED: other", "cd" * 32, "cd" * 32),
        ("FILE_CHANGED: other", "<script>", ""),
    ):
        change = changing(depot, id)
        await tell_answer(talker, await asked_to_change(talker), error=error, sha256=seen)
        raised = await failure(change)
        assert (raised.code, raised.digest) == (Code.FILE_CHANGED, digest)


def opening(depot, id, caller):
    return asyncio.create_task(depot.term.distribution.open_file(id, "a", caller=caller).__aenter__())


async def others(depot, count):
    started = [
        await depot.controller.call("POST", "/api/v1/instances", {"group": "lobby"}) for _ in range(count)
    ]
    return [each["id"] for each in started]


async def orders_of(talker, count, fits=lambda order: True):
    """So many orders about files, also those that came in one frame."""
    found = []
    while len(found) < count:
        for message in messages_of(await talker.read()):
            if kind_of(message) in ("change_instance_files", "send_instance_file", "walk_instance_files"):
                order = getattr(message, kind_of(message))
                found += [order] if fits(order) else []
    return found


def under_way(depot):
    return len(depot.term.distribution._files._open)


async def test_a_node_is_given_so_many_changes_at_once_and_forgotten_when_it_leaves(depot):
    talker, id = await ready(depot)
    ids = [id, *await others(depot, CHANGES_AT_ONCE - 1)]
    changes = [changing(depot, each, caller=each) for each in ids]
    await eventually(lambda: under_way(depot) == CHANGES_AT_ONCE)
    refused = await failure(changing(depot, id, caller="late"))
    assert (refused.code, "with node" in str(refused)) == (Code.RATE_LIMITED, True)
    await talker.hang_up()
    assert {(await failure(change)).code for change in changes} == {Code.NODE_OFFLINE}
    await eventually(lambda: not len(depot.term.distribution._transfers.changes))
    assert depot.term.distribution._files._open == {}


@pytest.mark.trap("T42")
async def test_nobody_has_all_turns_of_a_node_and_downloads_take_none_of_the_changes(depot):
    talker, id = await ready(depot)
    (other,) = await others(depot, 1)
    greedy = [opening(depot, id, "greedy") for _ in range(DOWNLOADS_PER_CALLER)]
    await eventually(lambda: under_way(depot) == DOWNLOADS_PER_CALLER)
    assert "of yours" in str(await failure(opening(depot, other, "greedy")))
    assert DOWNLOADS_PER_CALLER < DOWNLOADS_AT_ONCE
    greedy += [opening(depot, id, "second")]
    await eventually(lambda: under_way(depot) == DOWNLOADS_PER_CALLER + 1)
    assert "of instance" in str(await failure(opening(depot, id, "third")))
    greedy += [opening(depot, other, "third")]
    await eventually(lambda: under_way(depot) == DOWNLOADS_AT_ONCE)
    assert "with node" in str(await failure(opening(depot, other, "fourth")))

    greedy += [changing(depot, id, caller="greedy") for _ in range(CHANGES_PER_CALLER)]
    await eventually(lambda: under_way(depot) == DOWNLOADS_AT_ONCE + CHANGES_PER_CALLER)
    assert "of yours" in str(await failure(changing(depot, other, caller="greedy")))
    assert CHANGES_PER_CALLER < CHANGES_PER_INSTANCE < CHANGES_AT_ONCE
    greedy += [changing(depot, id, caller="second")]
    await eventually(lambda: under_way(depot) == DOWNLOADS_AT_ONCE + CHANGES_PER_INSTANCE)
    assert "of instance" in str(await failure(changing(depot, id, caller="third")))
    change = changing(depot, other, caller="third", path="mine")
    (question,) = await orders_of(talker, 1, lambda order: order.path == "mine")
    await tell_answer(talker, question, entries=1)
    assert await change == ChangedFiles(entries=1)
    await talker.hang_up()
    await asyncio.gather(*greedy, return_exceptions=True)


@pytest.mark.trap("T42")
async def test_what_nobody_waits_for_any_more_counts_until_the_node_is_done_with_it(depot):
    talker, id = await ready(depot)
    changes = [changing(depot, id) for _ in range(CHANGES_PER_CALLER)]
    downloads = [opening(depot, id, "c") for _ in range(DOWNLOADS_PER_CALLER)]
    orders = await orders_of(talker, len(changes) + len(downloads))
    for task in (*changes, *downloads):
        task.cancel()
    await asyncio.gather(*changes, *downloads, return_exceptions=True)
    assert (await failure(changing(depot, id))).code is Code.RATE_LIMITED
    assert (await failure(opening(depot, id, "c"))).code is Code.RATE_LIMITED
    for question in orders:
        await tell_answer(talker, question, error="TIMEOUT: it took too long")
    await eventually(lambda: under_way(depot) == 0)
    transfers = depot.term.distribution._transfers
    assert (len(transfers.changes), len(transfers.downloads)) == (0, 0)
    change = changing(depot, id)
    await tell_answer(talker, await asked_to_change(talker), entries=1)
    assert (await change).entries == 1


async def test_a_node_that_cannot_change_files_still_shows_parts_of_them(depot):
    talker, id = await ready(depot, features=[name for name in FEATURES if name != FILE_CHANGES])
    distribution = depot.term.distribution
    for asking in (
        changing(depot, id),
        asyncio.create_task(distribution.look_at_file(id, "a", caller="c")),
        asyncio.create_task(distribution.walk_files(id, WalkRequest(limit=5, digests=9), caller="c")),
        asyncio.create_task(distribution.open_file(id, "a", caller="c").__aenter__()),
    ):
        assert (await failure(asking)).code is Code.NOT_SUPPORTED
    walk = walking(depot, id)
    await tell_tree(talker, await asked_to_walk(talker), "a")
    assert [(entry.path, entry.mode) for entry in (await walk).entries] == [("a", None)]
    read = reading(depot, id)
    await tell_content(talker, await asked_to_read(talker), b"part")
    assert (await read).content == b"part"


async def test_a_node_that_knows_no_modes_is_told_none_and_changes_files_otherwise(depot):
    talker, id = await ready(depot, features=[name for name in FEATURES if name != FILE_MODES])
    distribution = depot.term.distribution
    with pytest.raises(Rejected) as refused:
        distribution.require_changeable(id, modes=True)
    assert (refused.value.code, refused.value.field) == (Code.NOT_SUPPORTED, "mode")
    change = FileChange(verb="write", path="a", mode=0o755)
    asking = asyncio.create_task(distribution.change_files(id, change, caller="c"))
    assert (await failure(asking)).code is Code.NOT_SUPPORTED
    distribution.require_changeable(id)
    done = changing(depot, id)
    order = await asked_to_change(talker)
    assert order.mode == 0
    await tell_answer(talker, order)
    await done


# --- daemons as published -------------------------------------------------------------------------
async def test_a_published_daemon_is_not_asked_for_files_and_that_is_said_at_once(depot):
    _, id = await ready(depot, features=[])
    for asking in (walking(depot, id, "logs"), reading(depot, id, "a", 3, 4)):
        assert (await failure(asking)).code is Code.NOT_SUPPORTED
    assert depot.term.distribution._files._open == {}
