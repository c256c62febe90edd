"""Structures of `capabilities`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import Struct


class CapabilityPage(Struct, frozen=True, kw_only=True):
    """Some capabilities; `unresolved` is whole on every page."""

    items: tuple[Capability, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""
    unresolved: tuple[Unresolved, ...]
    """Requirements that nothing meets; the whole list on every page."""


class Capability(Struct, frozen=True, kw_only=True):
    """`provider` is a module, or `corral` for what is built in."""

    id: str
    """Id of the capability."""
    version: str
    """Version that is provided."""
    provider: str
    """Module that provides it, or `corral`."""
    consumers: tuple[str, ...]
    """Modules that use it."""
    deprecated: bool
    """Whether its provider advises against it."""
    calls: int
    """Calls since the controller started."""
    failures: int
    """How many of them failed."""


class Unresolved(Struct, frozen=True, kw_only=True):
    """A requirement that is not met, and why. `nodes`: where the module waits for it, as last reported; empty: at
    the controller. Of a node only the first requirement that it waits for is known, and no optional ones."""

    module: str
    """Id of the module."""
    id: str
    """Id of the capability."""
    version_range: str
    """Versions that would do."""
    why: str
    """`missing`, `mismatch` or `waiting`."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    optional: bool
    """true: the module runs without it."""
    nodes: tuple[str, ...]
    """Nodes on which the module waits for it; empty: it waits on the controller."""
