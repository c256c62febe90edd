"""Server-sent events: reading a stream, and following it across broken connections."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Final

from corral.cli.api.client import Client, OpenAnswer, Params
from corral.cli.failure import CommandRefused, Unreachable, note
from corral.client import errors
from corral.client.event_frames import FrameParser, FrameTooLarge, StreamFrame
from corral.system.aio.backoff import doubled, spread

FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 5.0
_GONE: Final = "RESYNC_REQUIRED"
_TOO_MANY: Final = "RATE_LIMITED"
_ONLY_AT_FIRST: Final = ("after", "tail")
"""Where to begin; once something was read, the last id is more exact."""


def messages(response: OpenAnswer) -> Iterator[StreamFrame]:
    """Whole messages until the stream ends or breaks; one that was cut short is not yielded."""
    parser = FrameParser()
    try:
        for piece in response.pieces():
            yield from parser.feed(piece)
    except (errors.Unreachable, FrameTooLarge):
        return


def follow(
    client: Client,
    path: str,
    params: Params,
    *,
    last_id: str | None = None,
    notify: Callable[[str], None] = note,
) -> Iterator[StreamFrame]:
    """Messages for ever, from `last_id` on, resumed after the last one that came. The first connection must succeed.

    Ends only by an exception: `CommandRefused` when the controller will not have us any more. Changes
    of the connection go to `notify`.
    """
    connected = False
    fruitless = 0
    while True:
        least = 0
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
            elif not connected or (refusal.status < 500 and refusal.code != _TOO_MANY):
                raise
            least = refusal.retry_after
        pause = doubled(FIRST_PAUSE_SECONDS, fruitless, longest=LONGEST_PAUSE_SECONDS)
        time.sleep(max(least, spread(pause, random.random())))  # noqa: S311 - jitter
        fruitless += 1
