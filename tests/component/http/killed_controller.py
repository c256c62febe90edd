"""A controller that is killed, by itself, at a point of sending a keyed line. What its node took stays in a file.

killed_controller.py DATA POINT
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import sys

from http_rig import Rig, http_rig
from stand_in_node import StandInNode

from corral.testing.waiting import eventually
from corral.wire.v1.link_pb2 import ControllerMessage

TAKEN = "taken.json"
KEYED = {"Idempotency-Key": "k-1"}


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def keep(data: pathlib.Path, node: StandInNode) -> None:
    (data / TAKEN).write_text(json.dumps({"lines": node.commands, "ids": sorted(node.command_ids)}))


async def post(rig: Rig, id: str) -> tuple[int, object]:
    async with rig.client() as client:
        path = f"/api/v1/instances/{id}/command"
        answer = await client.post(path, json={"command": "give 1000"}, headers=KEYED)
        return answer.status_code, answer.json()


async def main(data: pathlib.Path, point: str) -> None:
    async with http_rig(data) as rig:
        record = await rig.instance()
        node = rig.sessions.links[record.node]
        keep(data, node)
        take = node.send

        def send(message: ControllerMessage) -> bool:
            if message.WhichOneof("payload") != "send_command":
                return take(message)
            if point == "the key is stored":
                killed()
            taken = take(message)
            keep(data, node)
            if point == "the line is sent":
                killed()
            rig.store.commits.hold()
            return taken

        node.send = send  # type: ignore[method-assign]  # the end of the link, which is this test's own
        batches = len(rig.store.commits.batches)
        asking = asyncio.create_task(post(rig, record.id))
        await eventually(lambda: len(rig.store.commits.batches) == batches + 2)
        killed()  # the node has answered, and the answer is about to be stored
        await asking


if __name__ == "__main__":
    asyncio.run(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
