"""`corral logs`: the log of the controller or of a node."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import click

from corral.cli.api.client import PAGE
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandRefused, WrongUsage, note
from corral.cli.terminal.output import Item, show_done, show_streamed
from corral.cli.terminal.table import colour_enabled, coloured, paint_state
from corral.cli.terminal.values import check_times, local_time, moment_of, time_options
from corral.errors import counted
from corral.system import log_text

LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR")
LOGS: Final = "/api/v1/logs"

follow_option = click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
tail_option = click.option(
    "-n",
    "--tail",
    type=click.IntRange(0, 100_000),
    default=100,
    show_default=True,
    help="Begin with the last so many.",
)
level_option = click.option(
    "--level", type=click.Choice(LEVELS, case_sensitive=False), help="Only this level and above."
)


class _Logs(click.Group):
    """`corral logs --request ID` is `corral logs request ID`, at any place of the option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands:
            for place, word in enumerate(args):
                option, given, id = word.partition("=")
                if option == "--request":
                    rest = args[place + 1 :]
                    ids = [id] if given else rest[:1]
                    for each in ids:
                        _check_id(each)
                    args = ["request", *args[:place], *ids, *rest[0 if given else 1 :]]
                    break
        return super().parse_args(ctx, args)


@click.group(cls=_Logs)
@click.option(
    "--request",
    metavar="ID",
    expose_value=False,
    help="What all of them logged for one request, as 'corral logs request ID'.",
)
def logs() -> None:
    """The log of the controller or of a node."""


@logs.command()
@follow_option
@tail_option
@time_options("records")
@level_option
@api_command
def controller(session: ApiSession, **asked: Any) -> None:
    """The controller's own log."""
    _show(session, "controller", **asked)


@logs.command()
@click.argument("node")
@follow_option
@tail_option
@time_options("records")
@level_option
@api_command
def daemon(session: ApiSession, node: str, **asked: Any) -> None:
    """Print the log of a node's daemon. As far as it has reached the controller."""
    _show(session, f"node:{node}", **asked)


@logs.command("request")
@click.argument("id")
@time_options("records")
@level_option
@api_command
def followed(
    session: ApiSession, id: str, *, level: str | None, since: str | None, until: str | None
) -> None:
    """Log records of controller and nodes for a request. In the order of time; ID is the X-Request-Id of its answer.
    Also: corral logs --request ID."""
    check_times(since, until)
    _check_id(id)
    nodes = [f"node:{node['id']}" for node in session.client.pages("/api/v1/nodes")]
    asked: dict[str, object] = {"request": id, "level": level, "since": since, "until": until}
    if since is None:
        asked["after"] = "0"
    found: list[Item] = []
    for source in ("controller", *nodes):
        records = session.client.pages(LOGS, {**asked, "source": source}, position="after")
        found += [{"source": source, **record} for record in records]
    found.sort(key=lambda record: moment_of(record.get("at")))
    kept = _kept_since(session)
    if not found:
        raise CommandRefused(
            f"no log record of request '{id}' is kept",
            hint="older records are in DATA/logs of the controller"
            + (f", whose log in memory begins at {local_time(kept)}," if kept else "")
            + " and of each node; "
            "what happens to a request is logged at the level that 'corral logs level' sets",
            code="NOT_FOUND",
        )
    gone = kept and _may_be_gone(found, kept)
    for record in found:
        shown = {**record, "controller_log_since": kept} if gone else record
        show_streamed(session.output, shown, _sourced_line, name="message")
    if gone and session.output == "table":
        note(
            f"the controller's log in memory begins at {local_time(kept)}, when it was started or later: "
            "what it logged for this request before is in DATA/logs of the controller"
        )


def _kept_since(session: ApiSession) -> str:
    """The time of the oldest record that the controller still has; empty: it has none, or does not report it."""
    page = session.client.get(LOGS, {"source": "controller", "after": "0", "limit": 1})
    return str(page.get("kept_since") or "") if isinstance(page, dict) else ""


def _may_be_gone(found: list[Item], kept: str) -> bool:
    """Whether the controller may have logged something for the request that it does not have any more: it has nothing
    of it, or there is something older than what it has."""
    own = any(record["source"] == "controller" for record in found)
    return not own or moment_of(found[0].get("at")) < moment_of(kept)


@logs.command("level")
@click.argument("source")
@click.argument("level", type=click.Choice((*LEVELS, "default"), case_sensitive=False))
@api_command
def set_level(session: ApiSession, source: str, level: str) -> None:
    """Switch the log level of SOURCE at once. SOURCE is 'controller' or a node's id; 'default': as configured."""
    chosen = "" if level == "default" else level
    where = source if source == "controller" else f"node:{source.removeprefix('node:')}"
    changed = session.client.put(f"{LOGS}/level", {"source": where, "level": chosen})
    show_done(
        session.output,
        changed or {"source": where, "level": chosen},
        f"{where} logs at {level}",
        name="source",
    )


def _check_id(id: str) -> None:
    from corral.domain.causes import check_request_id
    from corral.errors import Rejected

    try:
        check_request_id(id)
    except Rejected as error:
        raise WrongUsage(error.message, hint=error.hint) from None


def _show(
    session: ApiSession,
    source: str,
    *,
    follow: bool,
    tail: int,
    level: str | None,
    since: str | None,
    until: str | None,
) -> None:
    """With `since` everything from then on is shown, whatever the tail; with `until` nothing can be followed."""
    check_times(since, until)
    if not follow and tail == 0:
        raise WrongUsage("--tail 0 shows nothing", hint="add -f to see what comes")
    if follow and until:
        raise WrongUsage("--until and --follow cannot be meant together", hint="leave one of them out")
    newest, kept = _newest_and_kept(session, source)
    params: dict[str, object] = {"source": source, "level": level, "since": since, "until": until}
    found = _since(session, params) if since else _history(session, params, newest, tail)
    for record in found:
        if int(record.get("number", 0)) > newest:
            break  # what came since then comes by the stream
        show_streamed(session.output, record, _line, name="message")
    if (
        session.output == "table"
        and source == "controller"
        and kept
        and _asks_for_more(since, tail, newest, kept)
    ):
        note(
            f"the controller's log in memory begins at {local_time(kept)}, when it was started or later: "
            "older records are in its DATA/logs"
        )
    if follow:
        _follow(session, source, newest, level)


def _newest_and_kept(session: ApiSession, source: str) -> tuple[int, str]:
    """The number of the newest record, and the time of the oldest one."""
    found = session.client.get(LOGS, {"source": source, "limit": 1})
    page = found if isinstance(found, dict) else {}
    items = page.get("items")
    return int(items[-1].get("number", 0)) if items else 0, str(page.get("kept_since") or "")


def _asks_for_more(since: str | None, tail: int, newest: int, kept: str) -> bool:
    """Whether older records than there are were asked for: since a time before, or more than were ever made."""
    if since is not None:
        return moment_of(since) < moment_of(kept)
    given = click.get_current_context().get_parameter_source("tail")
    return given is click.core.ParameterSource.COMMANDLINE and newest < tail


def _since(session: ApiSession, params: dict[str, object]) -> Iterable[Item]:
    return session.client.pages(LOGS, params, position="after")


def _history(session: ApiSession, params: dict[str, object], newest: int, tail: int) -> Iterable[Item]:
    """The last `tail` records."""
    if tail == 0 or newest == 0:
        return []
    if tail <= PAGE:
        page = session.client.get(LOGS, {**params, "limit": tail})
        items: list[Item] = page.get("items", []) if isinstance(page, dict) else []
        return items
    after = max(0, newest - tail)
    return session.client.pages(LOGS, {**params, "after": str(after)}, limit=tail, position="after")


def _follow(session: ApiSession, source: str, newest: int, level: str | None) -> None:
    from corral.cli.api import event_stream

    least = LEVELS.index(level) if level else 0
    for message in event_stream.follow(
        session.client, f"{LOGS}/stream", {"source": source, "after": str(newest)}
    ):
        try:
            record = json.loads(message.data)
        except ValueError:
            continue  # not one of ours; the next may be
        if record.get("level") not in LEVELS or LEVELS.index(record["level"]) >= least:
            show_streamed(session.output, record, _line, name="message")


def _sourced_line(record: Item) -> str:
    return f"{log_text.word(str(record.get('source', '')))}  {_line(record)}"


def _line(record: Item) -> str:
    level = f"{log_text.word(str(record.get('level', ''))):<5}"
    shown = coloured(level, paint_state(level.strip())) if colour_enabled() else level
    source = log_text.word(str(record.get("logger", "")))
    line = f"{log_text.word(str(record.get('at', '')))} {shown} {source}: "
    line += log_text.message(str(record.get("message", "")))
    line += log_text.fields((name, str(value)) for name, value in (record.get("fields") or {}).items())
    if record.get("dropped_before"):
        line += f" ({counted(record['dropped_before'], 'record')} lost before this one)"
    throwable = str(record.get("throwable") or "")
    return line + (log_text.indented(throwable) if throwable else "")
