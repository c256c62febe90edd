"""Maps of a group are bounded, in number and in size."""

from __future__ import annotations

from typing import Any

import pytest

from corral.domain.groups.group_documents import group_document, merged, parse_group
from corral.errors import Code, Rejected

BARE: dict[str, Any] = {"name": "lobby", "command": ["serve"]}


@pytest.mark.parametrize(
    ("field", "entries", "key", "value"),
    [
        ("labels", 64, 128, 1024),
        ("node_labels", 64, 63, 255),
        ("properties", 1000, 128, 131_072),
        ("env", 1000, 256, 131_072),
    ],
)
def test_a_map_of_texts_has_so_many_entries_keys_and_values(
    field: str, entries: int, key: int, value: int
) -> None:
    group = parse_group({**BARE, field: {f"k{number}": "v" for number in range(entries)}})
    assert len(getattr(group, field)) == entries
    parse_group({**BARE, field: {"k" * key: "v" * value}})
    wrong: list[tuple[str, dict[str, str], str]] = [
        (field, {f"k{number}": "v" for number in range(entries + 1)}, f"{entries + 1} entries"),
        (field, {"k" * (key + 1): "v"}, f"{key + 1} characters"),
        (field, {"": "v"}, "is empty"),
    ]
    if value < 131_072:  # longer ones are refused by their type
        wrong.append((f"{field}/k", {"k": "v" * (value + 1)}, f"{value + 1} characters"))
    for at, given, why in wrong:
        with pytest.raises(Rejected, match=why) as refused:
            parse_group(merged(group_document(parse_group(BARE)), {field: given}))
        assert (refused.value.code, refused.value.field) == (Code.INVALID_FIELD, at)
        assert refused.value.hint
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("field", "entries", "item"),
    [("ports", 256, {"range": [20000, 40000]}), ("variable_types", 1000, {"type": "string"})],
)
def test_a_map_of_objects_has_so_many_entries(field: str, entries: int, item: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match=f"{entries + 1} entries") as refused:
        parse_group({**BARE, field: {f"K{number}": item for number in range(entries + 1)}})
    assert refused.value.field == field
