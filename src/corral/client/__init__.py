"""Client of Corral's HTTP API, typed and documented, on msgspec and the standard library.

```python
from corral.client import Client

with Client("http://127.0.0.1:8480", token=token) as corral:
    for instance in corral.instances.all(group="lobby"):
        print(instance.id, instance.state)
    corral.groups.scale("lobby", count=4)
```

`AsyncClient` has the same methods for asyncio. What is here is imported when it is first used: programs that need only the
parts of the standard library, as the command line does, do not pay for msgspec.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from corral.client import models as models
    from corral.client.answers import AnswerInfo as AnswerInfo
    from corral.client.answers import StreamMessage as StreamMessage
    from corral.client.answers import UnknownData as UnknownData
    from corral.client.async_calls import AsyncDownload as AsyncDownload
    from corral.client.async_calls import AsyncEventStream as AsyncEventStream
    from corral.client.async_client import AsyncClient as AsyncClient
    from corral.client.errors import ApiError as ApiError
    from corral.client.errors import BadRequest as BadRequest
    from corral.client.errors import ClientError as ClientError
    from corral.client.errors import Conflict as Conflict
    from corral.client.errors import Forbidden as Forbidden
    from corral.client.errors import InvalidAnswer as InvalidAnswer
    from corral.client.errors import NotFound as NotFound
    from corral.client.errors import PreconditionFailed as PreconditionFailed
    from corral.client.errors import RateLimited as RateLimited
    from corral.client.errors import Unauthorized as Unauthorized
    from corral.client.errors import Unavailable as Unavailable
    from corral.client.errors import Unreachable as Unreachable
    from corral.client.retries import Retry as Retry
    from corral.client.sync_calls import Download as Download
    from corral.client.sync_calls import EventStream as EventStream
    from corral.client.sync_client import Client as Client

_HOMES: Final = {
    "Client": "sync_client",
    "AsyncClient": "async_client",
    "Retry": "retries",
    "AnswerInfo": "answers",
    "StreamMessage": "answers",
    "UnknownData": "answers",
    "Download": "sync_calls",
    "EventStream": "sync_calls",
    "AsyncDownload": "async_calls",
    "AsyncEventStream": "async_calls",
    "ApiError": "errors",
    "BadRequest": "errors",
    "ClientError": "errors",
    "Conflict": "errors",
    "Forbidden": "errors",
    "InvalidAnswer": "errors",
    "NotFound": "errors",
    "PreconditionFailed": "errors",
    "RateLimited": "errors",
    "Unauthorized": "errors",
    "Unavailable": "errors",
    "Unreachable": "errors",
}
__all__ = [*_HOMES, "models"]  # noqa: PLE0604, RUF100 - names of a table


def __getattr__(name: str) -> Any:
    if name == "models":
        return importlib.import_module("corral.client.models")
    if name not in _HOMES:
        raise AttributeError(f"corral.client has no '{name}'; it has {', '.join(sorted(__all__))}")
    return getattr(importlib.import_module(f"corral.client.{_HOMES[name]}"), name)
