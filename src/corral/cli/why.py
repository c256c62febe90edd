"""`corral why`: what something is, why, what led to it, and what would change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandRefused, WrongUsage, printable
from corral.cli.instance.waits import console_end
from corral.cli.terminal.output import Item, show_one
from corral.cli.terminal.values import short_time
from corral.errors import counted

_PLACES: Final[Mapping[str, str]] = {
    "instance": "instances",
    "group": "groups",
    "node": "nodes",
    "module": "modules",
    "deployment": "deployments",
}
_NAMES: Final = {"instance": "id", "group": "name", "node": "id", "module": "id", "deployment": "id"}
_GONE: Final = "GONE"
_WAITS: Final = ("refuse", "skip")
_SHOWN: Final = 10
"""Decisions that are printed; `-o json` has all of the answer."""


@click.command()
@click.argument("subject", metavar="[KIND/]ID")
@api_command
def why(session: ApiSession, subject: str) -> None:
    """Why an instance, a group, a node, a module or a deployment is as it is. KIND is needed where several have that ID."""
    show_why(session, _look_up(session, subject))


def show_why(session: ApiSession, found: Item) -> None:
    if session.output != "table":
        show_one(session.output, found, rows=[], name="subject")
        return
    for line in _explained(found):
        click.echo(printable(line))


def _look_up(session: ApiSession, subject: str) -> Item:
    kind, _, name = subject.partition("/")
    if name and kind in _PLACES:
        found = _ask(session, kind, name)
        if found is None and kind == "deployment" and (last := _last_deployment(session, name)):
            found = _ask(session, kind, last)
        if found is None:
            raise _unknown(session, [kind], name)
        return found
    answers = {each: found for each in _PLACES if (found := _ask(session, each, subject)) is not None}
    present = {each: found for each, found in answers.items() if found.get("state") != _GONE} or answers
    if not present:
        raise _unknown(session, list(_PLACES), subject)
    if len(present) > 1:
        raise WrongUsage(
            f"'{subject}' is " + " and ".join(f"{_article(each)} {each}" for each in present),
            hint="choose: " + ", ".join(f"corral why {each}/{subject}" for each in present),
        )
    return next(iter(present.values()))


def _ask(session: ApiSession, kind: str, name: str) -> Item | None:
    try:
        found: Item = session.client.get(f"/api/v1/{_PLACES[kind]}/{segment(name)}/why")
    except CommandRefused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return None
    return found


def _last_deployment(session: ApiSession, group: str) -> str:
    """The id of the last deployment of a group; empty: it has none."""
    found = session.client.get("/api/v1/deployments", {"group": group, "limit": "1"})["items"]
    return str(found[0]["id"]) if found else ""


def _article(kind: str) -> str:
    return "an" if kind == "instance" else "a"


def _unknown(session: ApiSession, kinds: list[str], name: str) -> CommandRefused:
    from corral.errors import nearest

    known = {item: kind for kind in kinds for item in _names(session, kind)}
    guess = nearest(name, known)
    if len(kinds) == 1:
        text = f"there is no {kinds[0]} '{name}'"
    else:
        text = f"there is neither an instance nor a group, a node, a module or a deployment '{name}'"
    hint = f"did you mean {known[guess]}/{guess}?" if guess else None
    lists = " and ".join(
        f"'corral {kind} list'" for kind in (kinds if len(kinds) == 1 else ("instance", "group"))
    )
    return CommandRefused(text, hint=hint or f"see {lists}", code="NOT_FOUND")


def _names(session: ApiSession, kind: str) -> list[str]:
    """The first names of a kind, for a guess at what was meant."""
    try:
        page = session.client.get(f"/api/v1/{_PLACES[kind]}?limit=500")
    except CommandRefused:
        return []
    return [str(item.get(_NAMES[kind], "")) for item in page.get("items", [])]


def _explained(found: Item) -> Iterable[str]:
    yield str(found.get("summary", ""))
    for kept in found.get("files_kept", []):
        yield f"  kept {kept}"
    for each in found.get("now", []):
        said = each.get("topic") == "players" and str(each.get("reason")) in str(found.get("summary"))
        yield from () if said else _now(each, found)
    if changes := found.get("would_change", []):
        of_node = str(found.get("subject", "")).startswith("node/")
        missing = max(int(each.get("missing") or 0) for each in changes)
        one = f" for one of {missing} missing instances" if missing > 1 and not of_node else ""
        yield f"would change{one}: " + " · ".join(_condition(each, whole=of_node) for each in changes)
    if chain := found.get("chain", []):
        yield "caused by: " + " → ".join(map(_step, chain))
    items = [(item.get("at"), _decision(item)) for item in found.get("decisions", [])]
    items += [(item.get("at"), _restart(item)) for item in found.get("restarts", [])]
    items.sort(key=lambda one: str(one[0]), reverse=True)
    yield from (text for _, text in items[:_SHOWN])
    if len(items) > _SHOWN:
        yield f"and {len(items) - _SHOWN} more: -o json"


def _now(each: Item, found: Item) -> Iterable[str]:
    """What is the case now, with a line for each node that was refused."""
    topic, subject = str(each.get("topic", "")), str(each.get("subject", ""))
    if topic not in ("need", *_WAITS):
        about = "" if subject == found.get("subject") else f"{subject.partition('/')[2]} "
        where = f"{each['node']}: " if topic == "on_node" else ""
        verb = "refuses " if topic == "refused" else ""
        about = f"{about.strip()}: " if about and topic != "lower_priority" else ""
        rule = f" ({each['rule']})" if each.get("rule") and topic in ("runs", "start", "placement") else ""
        lines = console_end(each.get("lines", ()), indent="  ")
        yield f"  {where}{verb}{about}{each.get('reason', '')}{rule}{lines}"
    elif topic in _WAITS and not each.get("rejected"):
        yield f"  {each.get('reason', '')}"
    if topic in (*_WAITS, "placement"):
        yield from _refused(each)


def _refused(each: Item) -> Iterable[str]:
    rejected = each.get("rejected", [])
    names = [str(other.get("subject", "")).removeprefix("node/") for other in rejected]
    width = max(map(len, names), default=0)
    for name, other in zip(names, rejected, strict=True):
        yield f"    {name.ljust(width)}  {other.get('reason', '')}"
    more = sum(each.get("rejected_counts", {}).values()) - len(rejected)
    if more > 0:
        yield f"    and {counted(more, 'more node')}"


def _condition(change: Item, *, whole: bool) -> str:
    """A condition; `whole`: with what follows from it, which differs by group."""
    text = str(change.get("condition", ""))
    text += f" at {short_time(change['at'])}" if change.get("at") else ""
    return f"{text} ({change.get('effect', '')})" if whole else text


def _step(step: Item) -> str:
    """A step of the chain: of a decision its rule says most."""
    kind, reason = step.get("kind"), str(step.get("reason", ""))
    if kind == "decision":
        return f"{step.get('rule') or reason} {step.get('subject')}"
    when = f" {short_time(step['at'])}" if step.get("at") and kind in ("event", "crash", "restart") else ""
    return f"{reason}{when}"


def _restart(restart: Item) -> str:
    return (
        f"{short_time(restart.get('at'))}  restart by its node: {restart.get('reason')}\n"
        f"  see: corral crash get {restart.get('crash')}"
    )


def _decision(decision: Item) -> str:
    rule = f" [{decision['rule']}]" if decision.get("rule") else ""
    lines = [
        f"{short_time(decision.get('at'))}  {decision.get('kind')} {decision.get('subject')}: "
        f"{decision.get('reason')}{rule}",
        f"  cause: {decision.get('cause')}  ({decision.get('id')})",
    ]
    if decision.get("request"):
        lines.append(f"  log: corral logs --request {decision['request']}")
    lines += [
        f"  not {other.get('subject')}: {other.get('reason')}" for other in decision.get("rejected", [])
    ]
    return "\n".join(lines)
