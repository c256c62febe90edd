"""What a page of a list has, whichever list it is."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

I_co = TypeVar("I_co", covariant=True)


class PageOf(Protocol[I_co]):
    """A page of a list."""

    @property
    def items(self) -> tuple[I_co, ...]: ...
    @property
    def next(self) -> Any: ...
