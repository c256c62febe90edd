"""Parameters of handlers: the parts of a term that a handler declares, bound when the route table is built.

A handler names what it uses of `TermContext` in its first parameters, by name and type; what follows is the call.
A frozen dataclass of such parts stands for all of them. So the signature shows what a handler can access, and a
test can call it with these parts alone.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from corral.controller.http.pipeline.api_context import TermContext

T = TypeVar("T")

PORTS: Final[Mapping[str, Any]] = typing.get_type_hints(TermContext)
"""The parts of a term by their names, with their types."""

Pick = Callable[[TermContext], Any]


def bound(handler: Callable[..., T], *, given: int) -> Callable[..., T]:
    """`handler` as a function of a term and of the last `given` of its arguments. ValueError when it declares
    what is no part of a term."""
    picks = _picks(handler, given)

    def call(leading: TermContext, *arguments: object) -> T:
        return handler(*[pick(leading) for pick in picks], *arguments)

    return call


@functools.cache
def _picks(handler: Callable[..., Any], given: int) -> Sequence[Pick]:
    """Once for each handler, also where many controllers live in one process: types are text until they are read."""
    parameters = list(inspect.signature(handler).parameters)
    declared = parameters[: len(parameters) - given]
    types = typing.get_type_hints(handler)
    return [_pick(name, types.get(name), of=handler.__qualname__) for name in declared]


def _pick(name: str, kind: Any, *, of: str) -> Pick:
    if name in PORTS:
        if PORTS[name] != kind:
            raise ValueError(f"{of} declares '{name}' as {kind}; it is {PORTS[name]}")
        return operator.attrgetter(name)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind is not TermContext:
        types = typing.get_type_hints(kind)
        parts = {part.name: _pick(part.name, types[part.name], of=of) for part in dataclasses.fields(kind)}
        return lambda leading: kind(**{part: pick(leading) for part, pick in parts.items()})
    raise ValueError(f"{of} declares '{name}', which is no part of a term; parts: {', '.join(PORTS)}")
