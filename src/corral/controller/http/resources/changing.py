"""What the routes that change groups and instances share."""

from __future__ import annotations

from typing import Any

from corral.controller.http.call import Call
from corral.controller.http.setting import Leading
from corral.controller.instances.workspace import Workspace


def workspace(leading: Leading, call: Call[Any, Any], what: str) -> Workspace:
    """A place for the changes of this call; decisions name the caller as their cause."""
    return leading.instances.workspace(cause=f"{call.caller.actor.name} {what}", now=call.now)
