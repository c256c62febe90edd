"""Structures of `settings`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Settings(Struct, frozen=True, kw_only=True):
    """The settings by section, as `corral controller --print-config` has them, without users and passwords of addresses."""

    controller: dict[str, Any]
    """The settings of the controller that leads, by section; users and passwords of addresses are hidden."""
