"""Labels of nodes: one rule, for the configuration that sets them and the controller that takes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from corral.errors import Code, Rejected

_MAX_LABELS: Final = 64
_KEY: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
_MAX_VALUE: Final = 255


def check_labels(labels: Mapping[str, str], *, field: str = "labels") -> None:
    """Refuse labels that could not be selected by: strange keys, huge values, too many."""
    problem = ""
    if len(labels) > _MAX_LABELS:
        problem = f"{len(labels)} labels are more than {_MAX_LABELS}"
    for key, value in labels.items():
        if _KEY.fullmatch(key) is None:
            problem = f"{key[:80]!r} is not a label"
        elif len(value) > _MAX_VALUE or not value.isprintable():
            problem = f"the value of label {key!r} is longer than {_MAX_VALUE} or not printable"
    if problem:
        raise Rejected(
            Code.INVALID_FIELD,
            problem,
            hint="a key has 1 to 63 letters, digits, '.', '_', '-' and '/', with a letter or digit at both ends",
            field=field,
        )
