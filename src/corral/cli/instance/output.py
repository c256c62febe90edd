"""`corral instance logs | console | search | download`: what an instance writes, and a line to write to it."""

from __future__ import annotations

import collections
import json
import pathlib
import sys
from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandRefused, WrongUsage, note
from corral.cli.instance.runs import chosen_run, each_run, run_option
from corral.cli.instance.sent_commands import earlier_lines
from corral.cli.instance.waits import INSTANCES
from corral.cli.terminal.console_line import gap_text
from corral.cli.terminal.output import Item, show_streamed
from corral.cli.terminal.prompts import can_edit_lines
from corral.cli.terminal.values import Moment, check_times, local_time, time_options
from corral.errors import counted

PAGE: Final = 5000
_TAIL: Final = 100
_RECALLED: Final = 100
_UNREADABLE: Final = frozenset({"CONSOLE_GONE", "NODE_OFFLINE", "TIMEOUT", "NOT_SUPPORTED"})


def console_path(id: str) -> str:
    return f"{INSTANCES}/{segment(id)}/console"


@click.command()
@click.argument("id")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until it ends.")
@click.option(
    "-n",
    "--tail",
    type=click.IntRange(0, PAGE),
    metavar="LINES",
    help=f"The last so many lines; {_TAIL} unless a time or an offset is given.",
)
@time_options("lines")
@click.option("-t", "--timestamps", is_flag=True, help="Show the time of each line.")
@click.option("--after", type=click.IntRange(0), metavar="OFFSET", help="Everything from this offset.")
@click.option(
    "--before", type=click.IntRange(0), metavar="OFFSET", help="The lines that end before this offset."
)
@click.option(
    "--at", type=Moment(), metavar="TIME", help="The lines around this time, of the run there was then."
)
@click.option("-p", "--previous", is_flag=True, help="The run before the newest.")
@click.option(
    "--raw", is_flag=True, help="Pass the instance's own escape sequences, also into pipes and files."
)
@run_option
@api_command
def logs(
    session: ApiSession,
    id: str,
    follow: bool,
    tail: int | None,
    since: str | None,
    until: str | None,
    timestamps: bool,
    after: int | None,
    before: int | None,
    at: str | None,
    previous: bool,
    raw: bool,
    incarnation: int | None,
) -> int:
    """Print what an instance wrote. With --since or --until of every run in that time, else of one."""
    check_times(since, until)
    timed = since is not None or until is not None
    _check_place(
        follow,
        until,
        {"--since and --until": timed or None, "--after": after, "--before": before, "--at": at},
    )
    if tail == 0 and not follow:
        raise WrongUsage("--tail 0 shows nothing", hint="add -f to see what comes")
    run = chosen_run(session, id, incarnation, previous=previous)
    show = Printer(session.output, raw=raw, timestamps=timestamps)
    lines = Lines(session, id, show)
    if before is not None or at is not None:
        lines.page({"before": before, "at": at, "incarnation": run}, _TAIL if tail is None else tail)
        return 0
    if timed or after is not None:
        lines.last = collections.deque(maxlen=tail) if tail is not None else None
        place = lines.between(run, since, until) if timed else lines.from_offset(run, after or 0)
        lines.show_last()
    else:
        place = lines.newest(run, _TAIL if tail is None else tail, follow=follow)
    if follow:
        lines.live(run, place)
    return 1 if lines.missing else 0


def _check_place(follow: bool, until: str | None, places: dict[str, Any]) -> None:
    """Refuse two places, and to follow from where something ends."""
    given = [name for name, value in places.items() if value is not None]
    if follow and until is not None:
        raise WrongUsage("--follow goes on for ever and --until does not", hint="leave one of them out")
    if len(given) > 1:
        raise WrongUsage(f"{given[0]} and {given[1]} are two places", hint="leave one of them out")
    if follow and given in (["--before"], ["--at"]):
        raise WrongUsage(
            f"{given[0]} shows some lines and --follow all that come", hint="leave one of them out"
        )


class Printer:
    """Lines in the form that was asked for; on a terminal nothing in them is obeyed. `raw`: with all that they have,
    wherever they go."""

    def __init__(self, output: str, *, raw: bool, timestamps: bool = False, runs: bool = False) -> None:
        self._output = output
        self._raw = raw
        self._neutral = not raw and sys.stdout.isatty()
        self._timestamps = timestamps
        self._runs = runs

    def items(self, items: list[Any]) -> None:
        for item in items:
            if self._raw and self._output == "table":
                click.echo(self._line(item), color=True)  # otherwise pipes and files get none
            else:
                show_streamed(self._output, item, self._line, name="line")

    def _line(self, item: Item) -> str:
        text = str(item.get("line", ""))
        if self._neutral:
            from corral.cli.terminal.console_line import neutral

            text = neutral(text)
        if self._runs:
            text = f"{item.get('incarnation')}: {text}"
        return f"{local_time(item.get('time'))} {text}" if self._timestamps else text


class Lines:
    """Of one instance. Places are `RUN-OFFSET`, as its stream takes them."""

    def __init__(self, session: ApiSession, id: str, show: Printer) -> None:
        self._session = session
        self._id = id
        self._show = show
        self.last: collections.deque[tuple[str, Any]] | None = None
        """Keeps the last lines of those that are read, each with the heading of its run; None: they are printed as
        they come."""
        self._heading = ""
        self._headed = ""
        self.missing = False
        """Some of what was asked for could not be had."""
        self._late_place: str | None = None
        """Node of the first part that was announced as late and has not come."""

    def newest(self, run: int | None, tail: int, *, follow: bool) -> str:
        page = self._page({"newest": "true", "limit": max(1, tail), "incarnation": run})
        if tail:
            self._show.items(page["items"])
            if not follow and page.get("tail"):
                self._show.items([page["tail"]])
        return f"{page['incarnation']}-{page['next_offset']}"

    def page(self, place: dict[str, Any], limit: int) -> None:
        """The lines before an offset or around a time, a page of them, and where the lines before them are."""
        page = self._page({**place, "limit": limit})
        self._note_gaps(page)
        self._show.items([*page["items"], *([page["tail"]] if page.get("tail") else [])])
        if page["previous_offset"]:
            note(f"before that: --run {page['incarnation']} --before {page['previous_offset']}")

    def from_offset(self, run: int | None, after: int) -> str:
        return self._pages({"after": str(after), "incarnation": run})

    def between(self, run: int | None, since: str | None, until: str | None) -> str:
        """The lines of this time, run by run, the oldest first."""
        times = {"since": since, "until": until}
        if run is not None:
            return self._pages({**times, "incarnation": run})
        chosen = list(self._runs_between(since, until))
        place = ""
        for each in chosen:
            if len(chosen) > 1:
                self._heading = f"-- run {each['incarnation']} on node {each['node']} --"
            try:
                place = self._pages({**times, "incarnation": each["incarnation"]})
            except CommandRefused as refusal:
                if refusal.code not in _UNREADABLE:
                    raise
                note(f"run {each['incarnation']} cannot be read: {refusal.message}")
                self.missing = True
        return place or self.newest(None, 0, follow=True)

    def _runs_between(self, since: str | None, until: str | None) -> list[Any]:
        from corral.cli.terminal.values import is_before

        found = []
        for run in each_run(self._session, self._id):
            if since is not None and is_before(run.get("ended_at"), since):
                break
            if until is None or not run.get("started_at") or is_before(run["started_at"], until):
                found.append(run)
        return found[::-1]

    def _pages(self, params: dict[str, Any]) -> str:
        """Page by page to where the console ends now; where that is."""
        after = int(params.get("after") or 0)
        while True:
            page = self._page({**params, "after": str(after), "limit": PAGE})
            self._note_gaps(page)
            moved, after = int(page["next_offset"]) > after, int(page["next_offset"])
            over = not moved or after >= int(page["end_offset"])
            items = [*page["items"], *([page["tail"]] if over and page.get("tail") else [])]
            if self.last is None:
                self._head(self._heading if items else "")
                self._show.items(items)
            else:
                self.last.extend((self._heading, item) for item in items)
            if over:
                return f"{page['incarnation']}-{after}"

    def show_last(self) -> None:
        for heading, item in self.last or ():
            self._head(heading)
            self._show.items([item])

    def _head(self, heading: str) -> None:
        """Above the first line of its run."""
        if heading and heading != self._headed:
            note(heading)
            self._headed = heading

    def live(self, run: int | None, place: str) -> None:
        """Output from there on, from run to run unless one was asked for."""
        from corral.cli.api import event_stream

        stream = f"{console_path(self._id)}/stream"
        for message in event_stream.follow(self._session.client, stream, {"incarnation": run}, last_id=place):
            try:
                data = json.loads(message.data)
            except ValueError:
                continue  # not one of ours; the next may be
            if message.event in ("page", "gap", "late"):
                self._receive(message.event, data)
            elif message.event == "run":
                note(f"-- run {data.get('incarnation')} on node {data.get('node')} --")
            elif message.event == "end":
                from corral.cli.instance.console_session import how_it_ended

                note(how_it_ended(self._id, data))
                self._note_late()
                return

    def _receive(self, event: str, page: Item) -> None:
        late = next((gap for gap in page.get("gaps", []) if gap.get("late")), None)
        if event == "late":
            self._late_place = None
            note(f"-- late, from run {page.get('incarnation')}: --")
        elif late is not None and self._late_place is None:
            self._late_place = f"--run {page.get('incarnation')} --after {late['from_offset']}"
        self._note_gaps(page)
        self._show.items(page["items"])

    def _note_late(self) -> None:
        """Note that the console ended before all of it came."""
        if self._late_place is not None:
            self.missing = True
            note(
                f"what is late can be read when its node is back: corral instance logs {self._id} {self._late_place}"
            )

    def _page(self, params: dict[str, Any]) -> Any:
        return self._session.client.get(console_path(self._id), params)

    @staticmethod
    def _note_gaps(page: Item) -> None:
        for gap in page.get("gaps", []):
            note(gap_text(gap))


@click.command()
@click.argument("id")
@click.option(
    "-n",
    "--tail",
    type=click.IntRange(0, 100_000),
    default=200,
    show_default=True,
    help="Begin with so many old lines.",
)
@click.option("--raw", is_flag=True, help="Pass the instance's own escape sequences to the terminal.")
@api_command
def console(session: ApiSession, id: str, tail: int, raw: bool) -> None:
    """Attach to an instance. Shows its newest lines, what it writes, and a line to write to it.

    Lines of others are shown with who sent them. Ctrl-C, Ctrl-] or Ctrl-D detaches; the instance goes on.
    """
    from corral.cli.instance import console_session

    page = session.client.get(console_path(id), {"newest": "true", "limit": min(max(1, tail), PAGE)})
    feed = console_session.ConsoleSession(
        session.client, id, place=f"{page['incarnation']}-{page['next_offset']}"
    )
    scrollback = _text(_earlier(session, id, page, tail)) if tail else ""
    if can_edit_lines():
        history = earlier_lines(session, id, _RECALLED)
        console_session.attach_terminal(feed, id, scrollback=scrollback, history=history, raw=raw)
    else:
        console_session.attach_pipe(feed, id, scrollback=scrollback, raw=raw)


def _earlier(session: ApiSession, id: str, page: Any, count: int) -> list[Any]:
    """The last so many lines, page by page from the newest one backwards."""
    items: list[Any] = page["items"]
    while page["items"] and page["previous_offset"] and len(items) < count:
        place = {"before": page["previous_offset"], "incarnation": page["incarnation"]}
        page = session.client.get(console_path(id), {**place, "limit": min(count - len(items), PAGE)})
        items = page["items"] + items
    return items[-count:]


def _text(items: list[Any]) -> str:
    return "".join(item["line"] + ("" if item.get("partial") else "\n") for item in items)


@click.command()
@click.argument("id")
@click.argument("pattern")
@click.option("--after", type=click.IntRange(0), metavar="OFFSET", help="Look from this offset on.")
@click.option("--before", type=click.IntRange(0), metavar="OFFSET", help="Look from this offset backwards.")
@click.option("--last", is_flag=True, help="Look from the end backwards: the newest match comes first.")
@click.option("--all-runs", is_flag=True, help="In every run that is kept; the run stands before each line.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=500, show_default=True, help="At most so many lines."
)
@run_option
@api_command
def search(
    session: ApiSession, id: str, pattern: str, limit: int, all_runs: bool, last: bool, **place: int | None
) -> int:
    """Print lines of a console that match PATTERN (RE2). Exit code 1 when none does."""
    if all_runs and any(value is not None for value in place.values()):
        raise WrongUsage("--all-runs begins at one end", hint="leave out --after, --before and --run")
    show = Printer(session.output, raw=False, runs=all_runs)
    params = {"pattern": pattern, **place, "newest": "true" if last else None}
    params["runs"] = "all" if all_runs else None
    left, noted = limit, set[str]()
    while left > 0:
        page = session.client.get(f"{console_path(id)}/search", {**params, "limit": min(left, PAGE)})
        show.items(page["items"])
        for word in page.get("notes", []):
            if word not in noted:
                note(str(word))
                noted.add(word)
        left -= len(page["items"])
        if page.get("next") is None:
            break
        params["cursor"] = page["next"]
    return 0 if left < limit else 1


@click.command()
@click.argument("id")
@click.option("-O", "--to", "path", metavar="FILE", help="Where to; '-': stdout, without it ID.log.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="OFFSET", help="Begin at this offset.")
@run_option
@api_command
def download(session: ApiSession, id: str, path: str | None, after: int, incarnation: int | None) -> None:
    """Save a console byte by byte, as it was written."""
    from corral.cli.api.transfers import save

    target = path or f"{pathlib.PurePath(id).name}.log"
    params = {"after": str(after), "incarnation": incarnation}
    response = session.client.download(f"{console_path(id)}/download", params)
    size = save(response, target, what=f"console of {id}")
    note(f"{counted(size, 'byte')} of '{id}' are in {'stdout' if target == '-' else target}")
