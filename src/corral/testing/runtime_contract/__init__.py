"""The contract of every runtime provider, as tests: derive a class and give it a `house` fixture.

    class TestOurRuntime(RuntimeContract):
        @pytest.fixture
        async def house(self, tmp_path, reaper):
            async with OurHarness(tmp_path) as house:
                yield house

The fixture is a node with the provider on it. `next_provider` gives another provider object on the same node,
as after the daemon was killed: the one before is not closed.
"""

from __future__ import annotations

from corral.testing.runtime_contract.adoption import Adopting
from corral.testing.runtime_contract.console import Talking
from corral.testing.runtime_contract.house import (
    C_LIBRARY_SIGNALS,
    RuntimeHarness,
    console_bytes,
    console_match,
    is_running,
    refused,
)
from corral.testing.runtime_contract.programs import Accompanying, Executing
from corral.testing.runtime_contract.runs import Ending, Starting

__all__ = [
    "C_LIBRARY_SIGNALS",
    "RuntimeContract",
    "RuntimeHarness",
    "console_bytes",
    "console_match",
    "is_running",
    "refused",
]


class RuntimeContract(Starting, Talking, Executing, Accompanying, Ending, Adopting):
    """All of it."""
