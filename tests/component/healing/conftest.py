"""Three real daemons on lines that can be cut."""

from __future__ import annotations

import pytest
from cut_nodes import CutNodes


@pytest.fixture
async def site(scratch):
    async with CutNodes(scratch) as site:
        yield site
        assert site.copies.looks
        assert site.copies.together == {}, "of one id two lived at once"
