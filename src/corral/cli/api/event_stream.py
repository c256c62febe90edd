"""Server-sent events: reading a stream, and following it across broken connections."""

from __future__ import annotations

import http.client
import random
import time
from collections.abc import Callable, Iterator
from typing import Final

from corral.cli.api.client import Client, Params
from corral.cli.failure import CommandRefused, Unreachable, note
from corral.system.aio.backoff import doubled, spread

FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 5.0
_MAX_LINE: Final = 8 * 1024 * 1024
_GONE: Final = "RESYNC_REQUIRED"
_ONLY_AT_FIRST: Final = ("after", "tail")
"""Where to begin; once something was read, the last id is more exact."""


class StreamMessage:
    """One event of a stream; `data` is empty when it only moves the position."""

    __slots__ = ("data", "event", "id")

    def __init__(self, *, id: str | None, event: str, data: str) -> None:
        self.id = id
        self.event = event
        self.data = data


def messages(response: http.client.HTTPResponse) -> Iterator[StreamMessage]:
    """Whole messages until the stream ends or breaks; one that was cut short is not yielded."""
    position: str | None = None
    event = ""
    data: list[str] = []
    for line in _lines(response):
        if not line:
            if data or position is not None:
                yield StreamMessage(id=position, event=event, data="\n".join(data))
            position, event, data = None, "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id" and "\0" not in value:
            position = value


def _lines(response: http.client.HTTPResponse) -> Iterator[str]:
    while True:
        try:
            line = response.readline(_MAX_LINE)
        except (OSError, http.client.HTTPException, ValueError):
            return
        if not line.endswith(b"\n"):
            return
        yield line.rstrip(b"\r\n").decode("utf-8", "replace")


def follow(
    client: Client,
    path: str,
    params: Params,
    *,
    last_id: str | None = None,
    notify: Callable[[str], None] = note,
) -> Iterator[StreamMessage]:
    """Messages for ever, from `last_id` on, resumed after the last one that came. The first connection must succeed.

    Ends only by an exception: `CommandRefused` when the controller will not have us any more. Changes
    of the connection go to `notify`.
    """
    connected = False
    fruitless = 0
    while True:
        try:
            with client.stream(path, params, last_id=last_id) as response:
                connected = True
                for message in messages(response):
                    fruitless = 0
                    if message.id is not None:
                        last_id = message.id
                        params = {key: value for key, value in params.items() if key not in _ONLY_AT_FIRST}
                    if message.data:
                        yield message
            notify("the stream ended, connecting again")
        except Unreachable as failure:
            if not connected:
                raise
            if not fruitless:
                notify(f"{failure.message}; trying again")
        except CommandRefused as refusal:
            if refusal.code == _GONE and last_id is not None:
                notify("what happened meanwhile is no longer kept; going on with what comes")
                last_id = None
            elif not connected or refusal.status < 500:
                raise
        pause = doubled(FIRST_PAUSE_SECONDS, fruitless, longest=LONGEST_PAUSE_SECONDS)
        time.sleep(spread(pause, random.random()))  # noqa: S311 - jitter
        fruitless += 1
