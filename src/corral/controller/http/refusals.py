"""The codes with which each route may refuse: what follows from its kind, and what `refusals.toml` beside this file declares.

A bug is answered with `INTERNAL` by any route, so no route lists it. A path that has no such method is no route either.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib.resources
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from corral.controller.http.messages.universe_errors import universe_status
from corral.controller.http.pipeline.route_table import (
    PUBLIC,
    WORKLOAD,
    Act,
    CommitRoute,
    Download,
    FormUpload,
    LoginRoute,
    Once,
    Probe,
    ProxyRead,
    Relay,
    Route,
    Socket,
    Stream,
    Upload,
)
from corral.errors import Code

FILE: Final = "refusals.toml"
_EVERY: Final = (Code.BAD_REQUEST, Code.FORBIDDEN, Code.MISDIRECTED_REQUEST)
"""`Corral-Page` and `Host` are checked before anything else."""
_STORED: Final = (Code.CONFLICT, Code.FENCED, Code.SHUTTING_DOWN, Code.STORE_UNAVAILABLE)
_CHANGES: Final = (*_STORED, Code.IDEMPOTENCY_KEY_REUSED)
_RELAYED: Final = (
    Code.METHOD_NOT_ALLOWED,
    Code.MODULE_BUSY,
    Code.MODULE_FAILED,
    Code.MODULE_NOT_ACTIVE,
    Code.MODULE_TIMEOUT,
    Code.SHUTTING_DOWN,
)


class Declared(NamedTuple):
    """A line of the table: the routes that it matches have these codes."""

    pattern: str
    matches: re.Pattern[str]
    codes: frozenset[Code]


@functools.cache
def declared() -> tuple[Declared, ...]:
    """The lines of `refusals.toml`."""
    table = tomllib.loads(importlib.resources.files(__package__).joinpath(FILE).read_text())
    sets: Mapping[str, list[str]] = table["sets"]
    return tuple(
        Declared(pattern, re.compile(fnmatch.translate(pattern)), frozenset(_named(names, sets)))
        for pattern, names in table["routes"].items()
    )


def _named(names: Iterable[str], sets: Mapping[str, list[str]]) -> Iterator[Code]:
    for name in names:
        if name.startswith("@"):
            yield from _named(sets[name[1:]], sets)
        else:
            yield Code[name]


def refusals_of(route: Route) -> Mapping[int, tuple[Code, ...]]:
    """The codes of a route by the status they are sent with, both in order."""
    found: dict[int, set[Code]] = {}
    for code in _codes(route):
        found.setdefault(universe_status(route.name, code), set()).add(code)
    return {status: tuple(sorted(found[status], key=lambda code: code.name)) for status in sorted(found)}


def _codes(route: Route) -> Iterator[Code]:
    yield from _EVERY
    yield from _declared(route.name)
    yield from _of_callers(route)
    yield from _of_requests(route)
    if route.parameters:
        yield Code.NOT_FOUND
    if isinstance(route, Relay):
        yield from _RELAYED
    if isinstance(route, Relay) and route.method != "GET":
        yield from (*_CHANGES, Code.ANSWER_NOT_KEPT, Code.MAY_HAVE_ARRIVED)
    if isinstance(route, Stream | Download | Socket | Upload | FormUpload):
        yield Code.SHUTTING_DOWN
    if route.mutates:
        yield from _CHANGES
    if isinstance(route, CommitRoute) and route.revises is not None:
        yield Code.REVISION_MISMATCH
    if isinstance(route, Once) or (isinstance(route, FormUpload) and route.once):
        yield Code.MAY_HAVE_ARRIVED


def _declared(name: str) -> Iterator[Code]:
    for line in declared():
        if line.matches.fullmatch(name):
            yield from line.codes


def _of_callers(route: Route) -> Iterator[Code]:
    if not isinstance(route, Probe) or route.permission is not PUBLIC:
        yield Code.NOT_LEADER
    if route.method != "GET" or isinstance(route, Stream | Socket):
        yield Code.ORIGIN_REFUSED
    if route.permission is not PUBLIC:
        yield from (Code.UNAUTHENTICATED, Code.RATE_LIMITED)
    by_run = isinstance(route, Act) and route.by_itself is not None
    if by_run or route.permission is WORKLOAD or isinstance(route, ProxyRead):
        yield Code.WORKLOAD_TOKEN_INVALID
    if isinstance(route, LoginRoute):
        yield from (Code.INSECURE_LOGIN, Code.RATE_LIMITED, *_STORED)


def _of_requests(route: Route) -> Iterator[Code]:
    """Of the query and the body."""
    if not isinstance(route, Relay):
        yield from (Code.INVALID_FIELD, Code.UNKNOWN_FIELD)
    fields = msgspec.structs.fields(route.query)
    if any(field.required for field in fields) or route.body is not None:
        yield Code.MISSING_FIELD
    if any(field.name == "cursor" for field in fields):
        yield Code.INVALID_CURSOR
    if route.method != "GET":
        yield Code.BODY_TOO_LARGE
    if route.body is not None:
        yield from (Code.INVALID_JSON, Code.UNSUPPORTED_MEDIA_TYPE)
    if isinstance(route, Upload | FormUpload):
        yield from (Code.DISK_FULL, Code.UNSUPPORTED_MEDIA_TYPE)
    if isinstance(route, FormUpload) and not route.bare:
        yield Code.MISSING_FIELD
