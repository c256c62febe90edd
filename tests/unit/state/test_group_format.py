"""Groups of the store and versions that know less: what they do not know is not lost by them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from corral.controller.state.collections import GROUPS
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord, Hold
from corral.domain.spec import Spec

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def spec_without(field: str) -> Any:
    """The document as a version read it that did not have this field yet."""
    fields = [
        (each.name, each.type, each.default_factory() if each.default is msgspec.NODEFAULT else each.default)
        for each in msgspec.structs.fields(GroupSpec)
        if each.name not in (field, "name")
    ]
    return msgspec.defstruct(
        "EarlierSpec", [("name", str), *fields], bases=(Spec,), kw_only=True, frozen=True
    )


@pytest.mark.parametrize("field", ["parent", "abstract", "scaling", "warm"])
def test_a_version_from_before_holds_cannot_read_a_group_and_so_does_not_drop_its_hold(field: str) -> None:
    """These fields of the document came with the hold, or after it; defaults are written, too."""
    hold = Hold(by="ann", reason="repair", since=NOW)
    spec = GroupSpec(name="lobby", command=("serve",))
    record = GroupRecord(spec=spec, hold=hold, created_at=NOW, updated_at=NOW)
    body = GROUPS.put("lobby", record, expect=0).body
    assert GROUPS.decode(body).hold == hold
    earlier = msgspec.defstruct("EarlierRecord", [("spec", spec_without(field))])
    with pytest.raises(msgspec.ValidationError, match=f"unknown field `{field}`"):
        msgspec.json.decode(body, type=earlier)
    readable = msgspec.defstruct("ReadableRecord", [("spec", GroupSpec)])
    assert msgspec.json.decode(body, type=readable).spec == spec
