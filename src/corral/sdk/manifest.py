"""The module's own manifest, as in its context."""

from __future__ import annotations

from typing import Any

import msgspec


class _ManifestPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Unknown keys are ignored: the host may be newer than the SDK in this process."""


class ManifestProvision(_ManifestPart, frozen=True, kw_only=True):
    """A capability that the manifest provides."""

    id: str
    version: str


class ManifestRequirement(_ManifestPart, frozen=True, kw_only=True):
    """A capability that the manifest requires."""

    id: str
    version_range: str = "*"
    optional: bool = False


class ManifestCapabilities(_ManifestPart, frozen=True, kw_only=True):
    provides: tuple[ManifestProvision, ...] = ()
    requires: tuple[ManifestRequirement, ...] = ()


class ManifestEvents(_ManifestPart, frozen=True, kw_only=True):
    subscribes: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()


class Manifest(_ManifestPart, frozen=True, kw_only=True):
    """Content of `module.yaml`, as far as a module can use it.

    ```python
    ctx.logger.info("%s %s", ctx.manifest.id, ctx.manifest.version)
    ```
    """

    id: str
    version: str
    api: str = "*"
    title: str = ""
    description: str = ""
    hosts: tuple[str, ...] = ("controller",)
    capabilities: ManifestCapabilities = ManifestCapabilities()
    events: ManifestEvents = ManifestEvents()
    config: dict[str, Any] = {}
    """JSON Schema of the settings; the settings themselves are `ctx.config`."""
