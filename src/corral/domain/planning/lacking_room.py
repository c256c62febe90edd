"""Memory or CPUs that a node lacks for a run: what would have to be freed, allowed or bought."""

from __future__ import annotations

from typing import Final, NamedTuple

LARGER_NODE: Final = "a larger node"
_DIGITS: Final = 6


class LackingAmount(NamedTuple):
    """Memory or CPUs of a node, of which a run needs more than is free."""

    unit: str
    option: str
    """Of `corral node cap`."""
    needed: float
    used: float
    total: float
    host: float
    """What the node has without the limit of an operator."""
    limit: int
    """The lowest limit with which the run fits beside the others."""

    def condition(self, node: str) -> str:
        lacks = self.used + self.needed - self.total
        freed = f"{_number(lacks)} {self.unit} on {node}"
        raised = f"corral node cap {node} {self.option}"
        if self.total < self.host and self.used + self.needed <= self.host:
            raised = f"{raised} {self.limit}"
            return f"{freed}, or {raised}" if self.needed <= self.total else raised
        if self.needed <= self.total:
            return freed
        most = max(self.total, self.host)
        if self.needed <= most:
            return f"{raised} {_number(most)} and {_number(self.used + self.needed - most)} {self.unit} on {node}"
        return (
            f"{LARGER_NODE}: {_number(self.needed)} {self.unit} are wanted, {node} has {_number(most)} in all"
        )


def _number(amount: float) -> str:
    return str(int(amount)) if amount == int(amount) else f"{round(amount, _DIGITS):g}"
