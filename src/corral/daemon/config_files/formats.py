"""The formats there are, by the names that patches use for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from corral.daemon.config_files import json_text, properties, toml_text, yaml_text
from corral.domain.config_patches import split_path


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """Functions of bytes; they raise `Malformed` and `Impossible`."""

    put: Callable[..., bytes]
    """(data, path as in a patch, value, create=bool): a value at its place, all else unchanged."""
    merge: Callable[[bytes, bytes], bytes]
    """(lower, upper): the upper one's values over the lower one's."""


def _stepwise(put: Callable[..., bytes]) -> Callable[..., bytes]:
    def put_at(data: bytes, path: str, value: Any, *, create: bool) -> bytes:
        return put(data, split_path(path), value, create=create)

    return put_at


FORMATS: Final[Mapping[str, Format]] = {
    "properties": Format(put=properties.put, merge=properties.merge),
    "yaml": Format(put=_stepwise(yaml_text.put), merge=yaml_text.merge),
    "json": Format(put=_stepwise(json_text.put), merge=json_text.merge),
    "toml": Format(put=_stepwise(toml_text.put), merge=toml_text.merge),
}
