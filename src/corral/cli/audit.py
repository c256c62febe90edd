"""`corral audit`: who changed what, and from where; its export, and the check of its hashes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from corral.cli.api.session import ApiSession, api_command, api_options, opened_session
from corral.cli.failure import CommandRefused, WrongUsage, note
from corral.cli.terminal.output import Column, limit_option, plain, show_done, show_list
from corral.cli.terminal.values import check_times, short_time, time_options
from corral.errors import counted

if TYPE_CHECKING:
    from corral.domain.audit_export import ExportVerdict

_PATH: Final = "/api/v1/audit"
_SHOWN_FAULTS: Final = 20

COLUMNS: Final = (
    Column("TIME", lambda entry: short_time(entry.get("at"))),
    Column("ACTOR", "actor"),
    Column("NAME", "actor_name", rank=1),
    Column("ACTION", "action"),
    Column("SUBJECT", "subject", stretched=True),
    Column("OUTCOME", lambda entry: plain(entry.get("outcome") or "-"), rank=1),
    Column("FROM", "address", rank=2),
)


@click.group()
def audit() -> None:
    """Who changed what, and from where."""


@audit.command("list")
@time_options("changes")
@click.option(
    "--actor",
    metavar="NAME",
    help="Only by this actor, such as user:anna or host:root, or by its id or name alone: anna, tok-….",
)
@click.option("--action", metavar="PREFIX", help="Only actions that begin so, such as 'groups.'.")
@click.option("--subject", metavar="ID", help="Only what was done to this.")
@limit_option(100)
@api_command
def list_entries(
    session: ApiSession, since: str | None, until: str | None, limit: int, **filters: Any
) -> None:
    """List audit entries, the newest first. -o json also shows what was before and after."""
    check_times(since, until)
    found = session.client.pages(_PATH, {"since": since, "until": until, **filters}, limit=limit)
    show_list(session.output, found, columns=COLUMNS, name="number")


@audit.command("export")
@time_options("entries")
@click.argument("target", required=False, default="-", metavar="[FILE]")
@api_command
def export(session: ApiSession, since: str | None, until: str | None, target: str) -> None:
    """Write audit entries as lines of JSON.

    To stdout, or into FILE: the oldest first, with their hashes.

    'corral audit verify FILE' checks the file, on any machine.
    """
    from corral.cli.api.transfers import save

    check_times(since, until)
    response = session.client.download(f"{_PATH}/export", {"since": since, "until": until})
    size = save(response, target, what="exporting the audit", private=True)
    note(f"{counted(size, 'byte')} of the audit are in {'stdout' if target == '-' else target}")


@audit.command("verify")
@click.argument("source", required=False, metavar="[FILE]")
@click.option("--expect", metavar="HASH", help="A hash that was printed before and has to be there still.")
@api_options
def verify(source: str | None, expect: str | None, output: str, **connection: str | None) -> None:
    """Check the hashes of the audit.

    Of the controller, or of an exported FILE ('-': stdin).

    Names every entry that was changed, removed, inserted or moved, and says which ones retention removed in front. Keep the hash that it
    prints: with --expect, also a chain that was cut at its end, or written anew, is found.
    """
    from corral.domain.audit_export import check_export

    wanted = _hash(expect)
    if source is None:
        with (
            opened_session(output=output, **connection) as session,
            session.client.download(f"{_PATH}/export", {}) as response,
        ):
            verdict = check_export(_lines_of_download(response), expect=wanted)
    else:
        try:
            with click.open_file(source, "rb") as file:
                verdict = check_export(_lines(file), expect=wanted)
        except OSError as error:
            raise WrongUsage(f"cannot read {source}: {error.strerror}") from error
    _show(output, verdict, where=source or "the audit of the controller")


def _show(output: str, verdict: ExportVerdict, *, where: str) -> None:
    if not verdict.intact:
        for fault in verdict.faults[:_SHOWN_FAULTS]:
            note(plain(str(fault)))
        rest = len(verdict.faults) + verdict.more_faults - _SHOWN_FAULTS
        if rest > 0:
            note(f"and {rest} more")
        raise CommandRefused(
            f"{where} is not intact",
            hint="compare it with an earlier export; the entries named are where to look",
        )
    head = verdict.head.hash.hex()
    answer = {
        "intact": True,
        "cluster": verdict.cluster,
        "entries": verdict.entries,
        "unchained": verdict.unchained,
        "removed": verdict.removed,
        "removal": verdict.removal,
        "first": verdict.first_number,
        "last": verdict.head.number,
        "hash": head,
    }
    older = f", {verdict.unchained} of them from before entries had hashes" if verdict.unchained else ""
    if verdict.removed:
        proof = "" if verdict.removal_is_proved else " (not covered by an expected hash)"
        older += f"; retention removed up to {verdict.removed}, as entry {verdict.removal} records{proof}"
    counted_entries = counted(verdict.entries, "entry", "entries")
    show_done(
        output,
        answer,
        f"intact: {counted_entries}{older}; entry {verdict.head.number} has hash {head}",
        name="hash",
    )


def _hash(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != 32:
        raise WrongUsage("--expect takes the 64 digits that 'corral audit verify' printed")
    return found


def _lines(file: Any) -> Iterator[bytes]:
    from corral.domain.audit_export import LINE_MAX

    while line := file.readline(LINE_MAX):
        yield line


def _lines_of_download(response: Any) -> Iterable[bytes]:
    """The lines of a body that comes in pieces; one that breaks off is reported."""
    from corral.cli.api.transfers import pieces

    rest = b""
    for piece in pieces(response):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest
