"""The versions of this distribution and of its link protocol."""

from __future__ import annotations

VERSION = "0.1.0"

PROTOCOL_VERSION = 1
"""Bumped only when a field of the wire is removed or a number reused."""
