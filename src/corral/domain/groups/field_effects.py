"""When a change of a field of a group's document takes effect: one table for drift, dry runs and documentation."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from corral.domain.groups.disconnect_spec import DisconnectSpec


class FieldEffect(enum.StrEnum):
    NOW = "now"
    """In the next pass of the reconciler."""
    NEXT_START = "next_start"
    """At the next placement: an instance stays on its node, and is shown as placed by the former document."""
    RESTART = "restart"
    """In the next run: an instance goes on as it was started, and is shown as outdated."""


FIELDS_NOW: Final = frozenset(
    {
        "abstract",
        "crash_loop",
        "depends_on",
        "disconnect",
        "fallback_group",
        "labels",
        "maintenance",
        "max",
        "min",
        "min_available",
        "parent",
        "priority",
        "scaling",
        "schedules",
        "update",
        "warm",
    }
)
FIELDS_NEXT_START: Final = frozenset(
    {"affinity", "node_capabilities", "node_labels", "nodes", "spread", "static_names"}
)
FIELDS_RESTART: Final = frozenset(
    {
        "args",
        "artifact",
        "category",
        "clean_exit_codes",
        "command",
        "config_format",
        "console_mb",
        "cpu",
        "crash_keep_seconds",
        "disk_mb",
        "env",
        "extensions",
        "host_address",
        "isolate",
        "jvm",
        "line_buffered",
        "max_lifetime_seconds",
        "max_players",
        "memory_mb",
        "merge",
        "min_alive_ms",
        "name",
        "patches",
        "pids",
        "ports",
        "probes",
        "properties",
        "protected_paths",
        "restart",
        "run_as",
        "runtime",
        "startup_timeout_seconds",
        "static",
        "stdin",
        "stop",
        "strict_variables",
        "substitute",
        "template_selection",
        "templates",
        "tty",
        "variable_types",
        "variables",
        "warmup",
    }
)
EFFECTS: Final[Mapping[str, FieldEffect]] = {
    **dict.fromkeys(sorted(FIELDS_NOW), FieldEffect.NOW),
    **dict.fromkeys(sorted(FIELDS_NEXT_START), FieldEffect.NEXT_START),
    **dict.fromkeys(sorted(FIELDS_RESTART), FieldEffect.RESTART),
}
"""By the name of a field of `GroupSpec`."""


def effect_of(field: str, before: object, after: object) -> FieldEffect:
    """The effect of one change; None: the field had no value before, or has none after. How long a node waits before it
    stops a run is told to it with the start."""
    stops = [each.stop_after_seconds if isinstance(each, DisconnectSpec) else 0 for each in (before, after)]
    return FieldEffect.RESTART if stops[0] != stops[1] else EFFECTS[field]
