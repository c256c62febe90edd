"""What the routes that change groups and instances share."""

from __future__ import annotations

import asyncio
from typing import Any

from corral.controller.http.api_context import InstanceControl
from corral.controller.http.call import Call
from corral.controller.instances.workspace import Workspace


def workspace(instances: InstanceControl, call: Call[Any, Any], what: str) -> Workspace:
    """A place for the changes of this call; decisions name the caller as their cause."""
    cause = f"{call.caller.actor.name} {what}"
    return instances.workspace(cause=cause, now=call.now, request=call.request)


def placing(instances: InstanceControl, call: Call[Any, Any]) -> asyncio.Lock:
    """The turn of what places instances."""
    del call
    return instances.placing
