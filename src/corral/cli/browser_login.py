"""A login that a person approves in a browser, on whichever device has one: a code to type there, and a wait for it."""

from __future__ import annotations

import time
from typing import Any, Final

from corral.cli.api.client import LONGEST_PAUSE_SECONDS, PAUSE_SECONDS, Client, passes
from corral.cli.failure import CommandRefused, Unreachable, note
from corral.cli.password_login import Answer, send
from corral.system.aio.backoff import Backoff

WAIT_SECONDS: Final = 60.0
"""The controller answers within half of it."""
CODE_SECONDS: Final = 600.0
"""How long a code holds, where the answer does not say it."""
_DEVICE: Final = "/api/v1/auth/device"


def log_in_by_browser(client: Client) -> Answer:
    """The answer with the session's token, once somebody has approved it. LOGIN_FAILED when that was refused, or came too
    late. A controller that is away for a moment, or wants fewer requests, is asked again as long as the code holds."""
    begun = client.post(_DEVICE)
    if not isinstance(begun, dict) or not begun.get("device_code"):
        raise Unreachable(f"{client.url} does not answer like a Corral controller", hint="check the address")
    left = _seconds_left(begun.get("expires_at"))
    deadline = time.monotonic() + left
    note(
        f"open {client.url}{begun['page']} in a browser, log in there, and enter the code {begun['user_code']}; "
        f"it holds {max(1, round(left / 60))} minutes"
    )
    backoff = Backoff(first=PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS)
    notified = False
    while True:
        try:
            return send(client, {"device_code": begun["device_code"]})
        except (CommandRefused, Unreachable) as failure:
            if isinstance(failure, CommandRefused) and failure.code == "LOGIN_PENDING":
                continue
            pause = float(getattr(failure, "retry_after", 0)) or backoff.delay()
            if not passes(failure) or time.monotonic() + pause >= deadline:
                raise
            if not notified:
                note(f"{failure.message}; trying again")
                notified = True
        time.sleep(pause)


def _seconds_left(expires_at: Any) -> float:
    """Until then; clocks may differ, so that nobody waits longer than a code can hold."""
    import datetime as dt

    try:
        left = (dt.datetime.fromisoformat(str(expires_at)) - dt.datetime.now(dt.UTC)).total_seconds()
    except (ValueError, TypeError):
        return CODE_SECONDS
    return left if 0 < left <= CODE_SECONDS else CODE_SECONDS
