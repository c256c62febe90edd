"""A node without a link."""

from __future__ import annotations

import pytest
from supervised_node import SupervisedNode


@pytest.fixture
async def node(scratch):
    node = SupervisedNode(scratch / "node")
    await node.open()
    yield node
    await node.clear()
