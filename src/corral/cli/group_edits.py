"""`corral group create`, `update` and `delete`: the document of a group, from a file."""

from __future__ import annotations

import functools
from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.dry_run import DRY, dry_run_option, refuse_wait, show_dry_run
from corral.cli.failure import CommandRefused, WrongUsage
from corral.cli.group_drift import NAMES_SHOWN, note_drift
from corral.cli.group_waits import GROUPS, instances_left, status_of, until_gone, until_met
from corral.cli.instance.waits import wait_options
from corral.cli.terminal.confirmation import act_confirmed, yes_option
from corral.cli.terminal.output import Item, show_done
from corral.cli.terminal.values import full_time
from corral.errors import Rejected, counted

READ_ONLY: Final = ("status", "revision")
"""Fields that the API adds to a document: a group that was read can be written back."""

file_option = click.option(
    "-f", "--file", "path", required=True, metavar="FILE", help="JSON or YAML; '-' reads stdin."
)


@click.command()
@file_option
@dry_run_option
@wait_options()
@api_command
def create(session: ApiSession, path: str, dry_run: bool, wait: bool, timeout: int) -> None:
    """Create a group from a file; its instances start at once."""
    if dry_run:
        refuse_wait(wait)
    for document in _read(path):
        if dry_run:
            found = session.client.post(GROUPS, _writable(document), params=DRY)
            show_dry_run(session, f"group '{document.get('name')}'", found)
            continue
        made = session.client.post(GROUPS, _writable(document))
        if wait:
            made = until_met(session, str(made["name"]), timeout)
        show_done(session.output, made, f"group '{made['name']}' is created", name="name")


@click.command()
@click.argument("name", required=False)
@file_option
@dry_run_option
@yes_option
@api_command
def update(session: ApiSession, name: str | None, path: str, dry_run: bool, yes: bool) -> None:
    """Change the fields that a file names. Others stay; null goes back to the default (RFC 7396)."""
    documents = _read(path)
    if name is not None and len(documents) > 1:
        raise WrongUsage(f"{path} holds {len(documents)} documents, and one NAME is given")
    for document in documents:
        target = name or document.get("name")
        if not isinstance(target, str) or not target:
            raise WrongUsage("which group? the file has no 'name'", hint="corral group update NAME -f FILE")
        if dry_run:
            found = session.client.patch(f"{GROUPS}/{segment(target)}", _writable(document), params=DRY)
            show_dry_run(session, f"group '{target}'", found)
            continue
        before, changed = _updated(session, target, document, yes=yes)
        fields = differing(before, changed) - set(READ_ONLY)
        what = f"group '{target}' is changed" if fields else f"group '{target}': nothing changed"
        show_done(session.output, changed, what, name="name")
        if fields and session.output == "table":
            note_drift(session.client.get(f"{GROUPS}/{segment(target)}"))


def _updated(session: ApiSession, name: str, document: dict[str, Any], *, yes: bool) -> tuple[Any, Any]:
    """The group before and after a change. A file that was made from a group that somebody has changed since is refused:
    its values are older than theirs. Only what may leave worlds behind is asked about."""
    read = status_of(document).get("document_sha256")
    while True:
        before = session.client.get(f"{GROUPS}/{segment(name)}")
        if read and read != status_of(before).get("document_sha256"):
            raise _changed_meanwhile(name, document, before)
        revision = int(before.get("revision") or 0) if read else 0
        patch = functools.partial(
            session.client.patch, f"{GROUPS}/{segment(name)}", _writable(document), revision=revision
        )
        try:
            changed = act_confirmed(f"change group '{name}'", patch, name, yes=yes, ask=False)
        except CommandRefused as refusal:
            if refusal.code != "REVISION_MISMATCH":
                raise
            continue  # its record has changed between the two requests: perhaps not its document
        return before, changed


def _changed_meanwhile(name: str, document: dict[str, Any], now: Item) -> CommandRefused:
    fields = sorted(differing(_writable(document), _writable(now)))
    return CommandRefused(
        f"group '{name}' was changed at {full_time(status_of(now).get('updated_at'))}, after this file was made from it; "
        f"it differs in {', '.join(fields[:NAMES_SHOWN])}",
        hint=f"make the file anew (corral group get {name} -o yaml), or take 'status' out of it to overwrite these",
        code="REVISION_MISMATCH",
    )


def _read(path: str) -> list[dict[str, Any]]:
    """The documents of a file, with the names of fields as the API has them."""
    from corral.cli.document_files import read_documents
    from corral.domain.groups.field_aliases import with_field_names

    try:
        return [with_field_names(document) for document in read_documents(path)]
    except Rejected as refusal:
        raise WrongUsage(f"{path}: {refusal.message}", hint=refusal.hint) from None


def _writable(document: Item) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in READ_ONLY}


@click.command()
@click.argument("name")
@click.option("--cascade", is_flag=True, help="Stop its instances first.")
@dry_run_option
@yes_option
@wait_options()
@api_command
def delete(
    session: ApiSession, name: str, cascade: bool, dry_run: bool, yes: bool, wait: bool, timeout: int
) -> None:
    """Delete a group. With --cascade it goes when its last instance has ended."""
    more = {"cascade": "true"} if cascade else {}
    if dry_run:
        refuse_wait(wait)
        found = session.client.delete(f"{GROUPS}/{segment(name)}", {**more, **DRY})
        show_dry_run(session, f"group '{name}'", found)
        return
    act_confirmed(
        f"delete group '{name}'" + (" and stop its instances" if cascade else ""),
        lambda query: session.client.delete(f"{GROUPS}/{segment(name)}", {**more, **query}),
        name,
        yes=yes,
    )
    if wait:
        until_gone(session, name, timeout)
    left = instances_left(session, name) if cascade and not wait else None
    done = f"group '{name}' is deleted"
    if left is not None:
        done = f"group '{name}' is being deleted: it goes when its {counted(left, 'instance has', 'instances have')} ended"
    show_done(session.output, {"name": name}, done, name="name")


def differing(before: Item, after: Item) -> set[str]:
    """The fields that are not as they were."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
