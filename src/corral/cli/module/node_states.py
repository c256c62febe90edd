"""The states of modules on nodes, in a few words: for columns, and for a line below a verb's answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from corral.cli.terminal.output import Item, plain
from corral.cli.terminal.table import paint_state
from corral.errors import counted

_NAMED: Final = 3
_REACHED: Final = 5
"""So many nodes are named; of more, the number."""


def named(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:_NAMED])
    return shown + (f" and {counted(len(nodes) - _NAMED, 'more node')}" if len(nodes) > _NAMED else "")


def has_node_part(found: Item) -> bool:
    return "daemon" in (found.get("hosts") or ())


def on_nodes(found: Item) -> str:
    """`2/3, 1 degraded (1 away)`: active on two of the three nodes that shall have it, and one needs an
    operator. Nodes that are away count by their last report."""
    if not has_node_part(found):
        return "-"
    counts = found.get("on_nodes") or {}
    away = f" ({counts['disconnected']} away)" if counts.get("disconnected") else ""
    bad = f", {counts['degraded']} degraded" if counts.get("degraded") else ""
    return f"{counts.get('active', 0)}/{counts.get('wanted', 0)}{bad}{away}"


def phase_of(found: Item) -> str:
    """The package's phase at the controller, and what contradicts it: a package for nodes alone is ACTIVE
    there because it shall be."""
    problem = nodes_problem({**found, "intent": ""})
    return plain(found.get("phase")) + (f", but {problem}" if problem else "")


def paint_nodes(text: str) -> str:
    """As a failure is, where there is one."""
    return paint_state("FAILED") if "degraded" in text else ""


def reason_of(found: Item) -> str:
    """The reason of the package's phase, and the nodes on which it does not run."""
    reason = str(found.get("reason") or "")
    if reason == "paused" and found.get("paused_reason"):
        reason = f"paused: {found['paused_reason']}"
    return plain("; ".join(part for part in (reason, nodes_problem(found)) if part))


def nodes_problem(found: Item) -> str:
    """`failed on n1, n2; refused on n3; without what it was given on n4; waiting on n5; not on n6 yet`; of a list,
    which names no nodes, how many there are. Empty: it runs wherever it shall."""
    if not has_node_part(found):
        return ""
    nodes = found.get("nodes")
    if nodes is None:
        return _counted(found)
    refused = [each for each in nodes if each.get("refused")]
    failed = [each for each in nodes if each.get("phase") == "FAILED" and not each.get("refused")]
    missing = [
        each
        for each in nodes
        if found.get("intent") == "active" and each not in refused and each not in failed and _missing(each)
    ]
    declined = [each for each in nodes if each.get("declined") and each not in refused + failed]
    waiting = [each for each in nodes if waits(each) and each not in [*refused, *failed, *declined, *missing]]
    parts = (
        ("failed on {}", failed),
        ("refused on {}", refused),
        ("without what it was given on {}", declined),
        ("waiting on {}", waiting),
        ("not on {} yet", missing),
    )
    return "; ".join(
        text.format(named([str(each.get("node")) for each in some])) for text, some in parts if some
    )


def reached(nodes: Sequence[Item]) -> str:
    """`nodes: n1, n2; n3 is away and follows when it is back`; of more than five, the numbers."""
    here = [str(each.get("node")) for each in nodes if each.get("connected")]
    away = [str(each.get("node")) for each in nodes if not each.get("connected")]
    if not nodes:
        return "nodes: none yet"
    if len(nodes) > _REACHED:
        begun, later = str(len(here)), str(len(away))
    else:
        begun, later = ", ".join(here) or "none now", ", ".join(away)
    if not away:
        return f"nodes: {begun}"
    follow = (
        "is away and follows when it is back" if len(away) == 1 else "are away and follow when they are back"
    )
    return f"nodes: {begun}; {later} {follow}"


def _missing(each: Item) -> bool:
    return each.get("phase") is None or not each.get("current")


def waits(each: Item) -> bool:
    """For a capability, there or at the controller."""
    return each.get("phase") == "WAITING" and str(each.get("reason") or "").startswith("waiting_for_")


def _counted(found: Item) -> str:
    counts = found.get("on_nodes") or {}
    numbers = ((word, int(counts.get(word) or 0)) for word in ("degraded", "waiting"))
    return "; ".join(f"{word} on {counted(n, 'node')}" for word, n in numbers if n)
