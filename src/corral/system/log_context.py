"""Ids that log records carry implicitly: bound once, where work enters the process.

The entries are an HTTP request, a frame of the link, a run of an instance and a job of a module. They bind
`request`, `decision`, `instance`, `node` and `module`; every record made within has them as fields, unless it
names the same field itself. Tasks, timers and threads (`asyncio.to_thread`) inherit the ids from where they
are made: an object that outlives the work that makes it is made `apart`, and `Tasks.spawn` does so by itself.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any, Final

from structlog.contextvars import (
    bind_contextvars,
    clear_contextvars,
    get_contextvars,
    reset_contextvars,
)

REQUEST: Final = "request"


@contextlib.contextmanager
def bound(**ids: str) -> Iterator[None]:
    """Records made within carry these ids too. An empty id is ignored, and leaves what was bound before."""
    tokens = bind_contextvars(**{name: id for name, id in ids.items() if id})
    try:
        yield
    finally:
        reset_contextvars(**tokens)


@contextlib.contextmanager
def only(ids: Mapping[str, str]) -> Iterator[None]:
    """Records made within carry these ids and no others: the entry of new work."""
    others: dict[str, Any] = dict.fromkeys(get_contextvars().keys() - ids.keys(), Ellipsis)
    tokens = bind_contextvars(**others, **{name: id for name, id in ids.items() if id})
    try:
        yield
    finally:
        reset_contextvars(**tokens)


def apart() -> contextlib.AbstractContextManager[None]:
    """For making an object that outlives the present work, such as a reader of a socket: it inherits no id."""
    return only({})


def bound_ids() -> dict[str, Any]:
    """The ids that a record made here would carry."""
    return get_contextvars()


def bound_request() -> str:
    """The id of the request that is being served here; empty: none."""
    id = get_contextvars().get(REQUEST, "")
    return id if isinstance(id, str) else ""


def context_apart() -> contextvars.Context | None:
    """The present context without its ids, for a task; None when it has none."""
    if not get_contextvars():
        return None
    context = contextvars.copy_context()
    context.run(clear_contextvars)
    return context
