"""The version of the SDK. It is independent of Corral's version."""

from __future__ import annotations

from typing import Final

SDK_VERSION: Final = "1.0.0"
"""Semantic: `api: "^1.0"` in a manifest takes every 1.x. `from corral.sdk import SDK_VERSION`."""
