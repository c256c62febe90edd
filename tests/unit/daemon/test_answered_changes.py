"""Answers to changes that a controller may ask for again."""

from __future__ import annotations

import asyncio

import pytest

from corral.daemon.orders.answered_changes import AnsweredChanges
from corral.errors import Code, Rejected
from corral.wire.v1.instance_pb2 import ChangeInstanceFiles, InstanceFilesAnswer


def asked(*, repeated: bool = False) -> ChangeInstanceFiles:
    return ChangeInstanceFiles(instance_id="lobby-1", path="a", change_id="once-1", repeated=repeated)


@pytest.mark.trap("T70")
async def test_the_refusal_of_an_earlier_attempt_is_no_answer_to_one_that_was_broken_off() -> None:
    changes, executed = AnsweredChanges(), 0

    async def refused(_: ChangeInstanceFiles) -> InstanceFilesAnswer:
        raise Rejected(Code.ALREADY_EXISTS, "it is there already")

    async def endless(_: ChangeInstanceFiles) -> InstanceFilesAnswer:
        nonlocal executed
        executed += 1
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable")

    with pytest.raises(Rejected, match="it is there already"):
        await changes.once(asked(), refused)
    assert "ALREADY_EXISTS" in (await changes.once(asked(repeated=True), endless)).error
    attempt = asyncio.create_task(changes.once(asked(), endless))
    await asyncio.sleep(0)
    attempt.cancel()
    await asyncio.wait([attempt])
    with pytest.raises(Rejected) as unknown:
        await changes.once(asked(repeated=True), endless)
    assert (unknown.value.code, executed) == (Code.MAY_HAVE_ARRIVED, 1)
