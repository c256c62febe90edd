"""`corral apply`, `diff`, `export` and `delete`: groups as files, applied together."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.apply_output import listed, show_changes, show_group
from corral.cli.completion import KnownName
from corral.cli.failure import CommandRefused, WrongUsage, note, printable
from corral.cli.instance.waits import only_the_wait_ends, wait_options
from corral.cli.terminal.confirmation import act_confirmed, confirm, yes_option
from corral.cli.terminal.output import Item, plain, show_done
from corral.errors import Rejected, counted
from corral.system.document_sets import DocumentSet, FileDocument, read_set, shown_file

APPLY: Final = "/api/v1/apply"
GROUPS: Final = "/api/v1/groups"
DIFFERENT: Final = 5
_SECONDS: Final = 120.0

files_option = click.option(
    "-f",
    "--file",
    "paths",
    required=True,
    multiple=True,
    metavar="FILE|DIR",
    help="YAML or JSON, a directory of such files, or '-' for stdin; may be repeated.",
)
owner_option = click.option("--owner", default="", metavar="NAME", help="Whose set it is; see --prune.")
prune_option = click.option("--prune", is_flag=True, help="Delete the owner's groups that are not in it.")


@click.command()
@files_option
@owner_option
@prune_option
@click.option("--force", is_flag=True, help="Undo edits since the last time; take over from other owners.")
@click.option("--dry-run", is_flag=True, help="Only show what would change, and what would follow.")
@yes_option
@wait_options("5m")
@api_command
def apply(
    session: ApiSession,
    paths: tuple[str, ...],
    owner: str,
    prune: bool,
    force: bool,
    dry_run: bool,
    yes: bool,
    wait: bool,
    timeout: int,
) -> None:
    """Have groups as files describe them, all of them or none."""
    if wait and dry_run:
        raise WrongUsage("--wait and --dry-run: there is nothing to wait for", hint="leave one of them out")
    found = _read(paths)
    options = {"owner": owner, "prune": prune, "force": force}
    if prune and not dry_run:
        planned = send_set(session, found, {**options, "dry_run": True})
        if planned["deleted"]:
            gone = [each for each in planned["groups"] if each["action"] == "deleted"]
            running = [id for each in gone for id in each["stopped"]]
            also = f", and stop {listed(running)}" if running else ""
            confirm(f"delete {listed([each['name'] for each in gone])}{also}", yes=yes)
    answer = apply_set(session, found, {**options, "dry_run": dry_run}, yes=yes)
    if wait:
        _show_waited(session, answer, timeout)
    else:
        _show(session, answer, values=dry_run)


@click.command()
@files_option
@owner_option
@prune_option
@click.option("--exit-code", is_flag=True, help=f"End with {DIFFERENT} if something would change.")
@api_command
def diff(session: ApiSession, paths: tuple[str, ...], owner: str, prune: bool, exit_code: bool) -> int:
    """Show what 'apply' would change, and whom it would touch."""
    options = {"owner": owner, "prune": prune, "force": True, "dry_run": True}
    found = _read(paths)
    answer = send_set(session, found, options)
    _show(session, answer, values=True)
    try:
        send_set(session, found, {**options, "force": False})
    except CommandRefused as refusal:
        for each in refusal.errors:
            note(f"'apply' refuses it: {each}")
    different = bool(answer["created"] or answer["changed"] or answer["deleted"])
    return DIFFERENT if different and exit_code else 0


def _read(paths: tuple[str, ...]) -> DocumentSet:
    try:
        return read_set(paths)
    except Rejected as error:
        raise WrongUsage(error.message, hint=error.hint) from None


def apply_set(session: ApiSession, found: DocumentSet, options: dict[str, Any], *, yes: bool) -> Any:
    """Apply, and ask about what gives up instances or worlds."""
    try:
        return send_set(session, found, options)
    except CommandRefused as refusal:
        if refusal.code != "CONFIRMATION_REQUIRED":
            raise
        for each in refusal.details:
            note(f"group '{each.get('group', '')}': {each.get('message', '')}")
        if not yes and not sys.stdin.isatty():
            refusal.errors = ()
            refusal.hint = "nothing was done; add --yes if that is meant"
            raise
        if not yes and not click.confirm("apply all the same", err=True):
            raise click.Abort from None
        return send_set(session, found, {**options, "confirm": refusal.groups})


def send_set(
    session: ApiSession,
    found: DocumentSet,
    options: dict[str, Any],
    *,
    field_name: Callable[[str], str] = str,
) -> Any:
    """The answer to a set. Files that cannot be read refuse all; what is wrong with the others is listed, too, with the
    field as `field_name` has it for readers of the files."""
    errors = [f"{each.path}: {each.message}" for each in found.faults]
    body = {
        **options,
        "dry_run": options.get("dry_run", False) or bool(errors),
        "documents": [{"path": each.path, "body": each.body} for each in found.documents],
    }
    refusal: CommandRefused | None = None
    answer: Any = None
    if found.documents:
        try:
            answer = session.client.post(APPLY, body, timeout=_SECONDS)
        except CommandRefused as refused:
            if not refused.details:
                raise
            refusal = refused
    if refusal is None and not errors:
        return answer
    lines = error_lines(refusal.details if refusal else (), found.documents, field_name)
    count = len(errors) + len(lines)
    failure = CommandRefused(
        refusal.message if refusal and not errors else counted(count, "error"),
        hint=refusal.hint if refusal else "nothing was changed; correct what is listed and apply again",
        code=refusal.code if refusal and not errors else "DOCUMENTS_INVALID",
        request=refusal.request if refusal else "",
    )
    failure.errors = (*errors, *lines)
    failure.details = refusal.details if refusal else ()
    failure.groups = [str(each.get("group", "")) for each in failure.details]
    raise failure


def error_lines(
    details: Sequence[Item], documents: Iterable[FileDocument], field_name: Callable[[str], str] = str
) -> list[str]:
    by_path = {each.path: each for each in documents}
    found = []
    for each in details:
        document = by_path.get(str(each.get("path", "")))
        field = str(each.get("field") or "")
        place = str(each.get("path") or f"group '{each.get('group', '')}'")
        if document is not None:
            top = field.replace("[", "/").replace(".", "/").split("/")[0]
            line = document.lines.get(top)
            place = shown_file(document.file, line) if line else document.path
        hint = f"; {each['hint']}" if each.get("hint") else ""
        message = str(each.get("message", ""))
        shown = field_name(field)
        if shown != field:
            message = message.removeprefix(f"{field}: ")
        told = "" if not shown or message.startswith(f"{shown}:") or f"'{shown}'" in message else f"{shown}: "
        found.append(f"{place}: {told}{message}{hint}")
    return found


def _show_waited(session: ApiSession, answer: Any, timeout: int) -> None:
    """What was applied, and what each group has at the end of the wait, however that ends."""
    from corral.cli.set_wait import SetWait

    groups = SetWait(session, answer)
    try:
        with only_the_wait_ends():
            if session.output == "table":
                _show(session, answer)
            groups.run(timeout)
    finally:
        if session.output == "table":
            click.echo(groups.table())
        else:
            _show(session, {**answer, "wait": groups.result()})


def _show(session: ApiSession, answer: Any, *, values: bool = False) -> None:
    if session.output != "table":
        show_done(session.output, answer, "", name="summary")
        return
    show_changes(answer, values=values)
    sentence = str(answer["summary"])
    if answer["dry_run"]:
        sentence += f" (dry run: nothing was written; as of commit {answer['revision']})"
    click.echo(printable(sentence))


def reload_folder(session: ApiSession, *, prune: bool, yes: bool) -> None:
    """`corral group reload`."""
    if prune:
        confirm("delete the groups whose file is gone", yes=yes)
    body: dict[str, Any] = {"prune": prune}
    try:
        answer = session.client.post(f"{GROUPS}/reload", body, timeout=_SECONDS)
    except CommandRefused as refusal:
        refusal.errors = tuple(error_lines(refusal.details, ()))
        if refusal.code != "CONFIRMATION_REQUIRED" or not yes:
            raise
        body["confirm"] = [str(each.get("group", "")) for each in refusal.details]
        answer = session.client.post(f"{GROUPS}/reload", body, timeout=_SECONDS)
    if session.output != "table":
        show_done(session.output, answer, "", name="summary")
    else:
        for each in answer["groups"]:
            if each["action"] != "unchanged":
                show_group(each, values=False)
        for name in answer["gone"]:
            click.echo(printable(f"! {name}: file gone; it stays until '--prune', or 'corral group delete'"))
        click.echo(printable(str(answer["summary"])))
    if answer["errors"]:
        failure = CommandRefused(
            "some files are refused; their groups stay as they are", hint="correct them and reload"
        )
        failure.errors = tuple(error_lines(answer["errors"], ()))
        raise failure


@click.command()
@click.argument("names", nargs=-1, type=KnownName("group"))
@click.option("--resolved", is_flag=True, help="With the fields of parents and all defaults.")
@api_command
def export(session: ApiSession, names: tuple[str, ...], resolved: bool) -> None:
    """Print groups as documents that 'apply' takes: as they were written, without defaults."""
    wanted = names or sorted(str(each["name"]) for each in session.client.pages(GROUPS))
    if resolved:
        found = [session.client.get(f"{GROUPS}/{segment(name)}") for name in wanted]
        documents = [{k: v for k, v in each.items() if k not in ("status", "revision")} for each in found]
    else:
        documents = [session.client.get(f"{GROUPS}/{segment(name)}/document") for name in wanted]
    documents = [_named_first(each) for each in parents_first(documents)]
    if session.output == "name":
        for each in documents:
            click.echo(printable(str(each["name"])))
    elif session.output == "json":
        click.echo(json.dumps(documents, indent=2, ensure_ascii=False))
    else:
        import yaml

        click.echo(
            yaml.safe_dump_all(documents, explicit_start=True, sort_keys=False, allow_unicode=True), nl=False
        )


def _named_first(document: Item) -> dict[str, Any]:
    """The store sorts fields; people look for the name first."""
    first = {key: document[key] for key in ("name", "parent", "abstract") if key in document}
    return {**first, **document}


def parents_first(documents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """In an order in which each could be written alone: parents, and groups that others need, before these."""
    by_name = {each.get("name"): each for each in documents}
    done: dict[Any, dict[str, Any]] = {}

    def visit(each: dict[str, Any], open: tuple[Any, ...]) -> None:
        name = each.get("name")
        if name in done or name in open:
            return
        for other in _needs(each):
            if other in by_name:
                visit(by_name[other], (*open, name))
        done[name] = each

    for each in documents:
        visit(each, ())
    return list(done.values())


def _needs(document: Mapping[str, Any]) -> list[str]:
    entries = document.get("depends_on")
    found = (
        [each.get("group") for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    )
    found += [document.get("parent"), document.get("fallback_group")]
    return [each for each in found if isinstance(each, str) and each]


@click.command()
@files_option
@click.option("--cascade", is_flag=True, help="Stop their instances first.")
@yes_option
@api_command
def delete(session: ApiSession, paths: tuple[str, ...], cascade: bool, yes: bool) -> None:
    """Delete the groups that files describe."""
    found = _read(paths)
    bodies = [each.body for each in found.documents if isinstance(each.body, dict)]
    named = [each for each in bodies if isinstance(each.get("name"), str) and each["name"]]
    if found.faults or len(named) < len(found.documents):
        failure = CommandRefused("some of the files cannot be read; nothing was deleted", hint="correct them")
        failure.errors = tuple(f"{each.path}: {each.message}" for each in found.faults) or (
            "a document has no 'name'",
        )
        raise failure
    names = [str(each["name"]) for each in reversed(parents_first(named))]
    confirm(f"delete {listed(names)}", yes=yes)
    for name in names:
        _delete(session, name, cascade=cascade, yes=yes)


def _delete(session: ApiSession, name: str, *, cascade: bool, yes: bool) -> None:
    more = {"cascade": "true"} if cascade else {}
    try:
        act_confirmed(
            f"delete group '{name}'",
            lambda query: session.client.delete(f"{GROUPS}/{segment(name)}", {**more, **query}),
            name,
            yes=yes,
            ask=False,
        )
    except CommandRefused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        show_done(session.output, {"name": name}, f"group '{name}' does not exist", name="name")
        return
    done = "is deleted once its instances have ended" if cascade else "is deleted"
    show_done(session.output, {"name": name}, f"group '{plain(name)}' {done}", name="name")
