"""Writes of the typed collections of the store."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from corral.controller.state.collections import USERS
from corral.domain.accounts.records import UserRecord
from corral.errors import Code, Rejected
from corral.store.port import ABSENT

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def test_a_record_that_could_not_be_read_again_is_not_written() -> None:
    user = msgspec.convert({"name": "ada", "created_at": AT, "created_by": "root"}, UserRecord)
    assert USERS.decode(USERS.put("ada", user, expect=ABSENT).body) == user
    with pytest.raises(Rejected) as refused:
        USERS.put("ada", msgspec.structs.replace(user, display_name="x" * 101), expect=ABSENT)
    assert refused.value.code is Code.INVALID_FIELD
    assert refused.value.message.startswith("users/ada cannot be stored")
