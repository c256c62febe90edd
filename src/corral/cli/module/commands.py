"""`corral module`: the verbs of operators; those of authors are in `author`."""

from __future__ import annotations

import pathlib
import sys
from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.failure import CommandRefused, WrongUsage, printable
from corral.cli.module.author import build, dev, doctor, new, sign, test
from corral.cli.module.install import install, upgrade
from corral.cli.module.node_states import has_node_part, reached
from corral.cli.module.nodes import (
    recovery_note,
    refuse_failed_nodes,
    show_nodes,
    show_outcome,
    to_recover,
    wait_for_nodes,
    wait_option,
)
from corral.cli.module.views import (
    COLUMNS,
    LEAK_COLUMNS,
    MODULES,
    info_rows,
    module_path,
    module_status,
    refuse_failed,
    refuse_idle,
    taken_rows,
)
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Item, show_done, show_list, show_one
from corral.cli.terminal.standard_input import refuse_lines_of_console
from corral.cli.terminal.values import pairs
from corral.domain.modules.verbs import VERBS, Verb

VERB_SECONDS: Final = 120.0
"""Longer than any hook may take: start, stop and unload of one module."""


@click.group(cls=Noun)
def module() -> None:
    """Extensions of the controller and of the nodes: install, watch, configure, remove; and write your own."""


for command in (install, upgrade, new, build, test, dev, doctor, sign):
    module.add_command(command)


@module.command("list")
@click.option("--phase", metavar="PHASE", help="Only those in this phase, such as FAILED.")
@api_command
def list_modules(session: ApiSession, phase: str | None) -> None:
    """List the installed modules."""
    found = session.client.pages(MODULES, {"phase": phase.upper() if phase else None})
    show_list(session.output, found, columns=COLUMNS)


@module.command("info")
@click.argument("id")
@api_command
def info(session: ApiSession, id: str) -> None:
    """Show one module. Phase and reason, what it offers and needs, its history, and each node."""
    found = session.client.get(module_path(id))
    schema = _schema(session, found) if session.output == "table" else None
    show_one(session.output, found, rows=info_rows(found, schema))
    if session.output == "table":
        show_nodes(found.get("nodes") or ())


def _schema(session: ApiSession, found: Item) -> Item | None:
    """The schema of its settings; callers that see no settings do not see it either."""
    if found.get("settings") is None:
        return None
    try:
        answer = session.client.get(module_path(str(found.get("id")), "config"))
    except CommandRefused:
        return None  # uninstalled meanwhile: what was found is worth showing
    return (answer or {}).get("schema") or None


def _show_reached(session: ApiSession, found: Item) -> None:
    if session.output == "table" and has_node_part(found):
        click.echo(printable(reached(found.get("nodes") or ())))


def _show_done(session: ApiSession, found: Item, text: str, wait: float, *, runs: bool = True) -> None:
    """Show the result once the connected nodes have settled: as `install` does."""
    if wait and has_node_part(found):
        found = wait_for_nodes(session, found, wait)
    show_done(session.output, found, text)
    if not wait:
        _show_reached(session, found)
    elif session.output == "table":
        show_outcome(found)
    refuse_failed(found)
    if wait and runs:
        refuse_failed_nodes(found)
    if runs:
        refuse_idle(found)


_wait = wait_option("How long to wait for connected nodes to follow; 0: not.")
_OPTIONS: Final = {
    Verb.PAUSE: click.option("--reason", metavar="TEXT", required=True, help="Why; others will read it.")
}


def _verb_command(verb: Verb) -> click.Command:
    """A verb that is posted; its option, if it has one, is the body."""

    @api_command
    def command(session: ApiSession, id: str, wait: float, **body: str) -> None:
        found = session.client.post(module_path(id, verb), body or None, timeout=VERB_SECONDS)
        _show_done(session, found, module_status(found), wait, runs=VERBS[verb].runs)

    options = [_OPTIONS[verb]] if verb in _OPTIONS else []
    for option in (_wait, *options, click.argument("id")):
        command = option(command)
    return click.command(verb.value, help=VERBS[verb].help)(command)


for verb in (Verb.ACTIVATE, Verb.DEACTIVATE, Verb.PAUSE, Verb.RESUME, Verb.RELOAD):
    module.add_command(_verb_command(verb))


@module.command(Verb.RECOVER.value, help=VERBS[Verb.RECOVER].help)
@click.argument("id")
@click.option("--node", metavar="NODE", help="On this node alone; else wherever it failed.")
@wait_option("How long to wait for what comes of it on connected nodes; 0: not.")
@api_command
def recover(session: ApiSession, id: str, node: str | None, wait: float) -> None:
    found = session.client.post(module_path(id, Verb.RECOVER), params={"node": node}, timeout=VERB_SECONDS)
    nodes = recovery_note(found, node)
    text = module_status(found) if node is None else f"'{id}' {found.get('version')}"
    text += f"; {nodes}" if nodes else ""
    only = [node] if node is not None else to_recover(found)
    if wait:
        found = wait_for_nodes(session, found, wait, only=only)
    show_done(session.output, found, text)
    if wait and session.output == "table":
        show_outcome(found, only=only)
    if node is None:
        refuse_failed(found)
    if wait:
        refuse_failed_nodes(found, only=only)
    if node is None:
        refuse_idle(found)


@module.command("config", help=VERBS[Verb.CONFIGURE].help)
@click.argument("id")
@click.option("--set", "given", metavar="KEY=VALUE", multiple=True, help="VALUE is read as YAML.")
@click.option("--unset", metavar="KEY", multiple=True, help="Back to the default.")
@click.option("--file", "path", metavar="FILE", help="All settings, as YAML or JSON; '-': standard input.")
@api_command
def config(
    session: ApiSession, id: str, given: tuple[str, ...], unset: tuple[str, ...], path: str | None
) -> None:
    found = session.client.get(module_path(id))
    before = found.get("settings") or {}
    if not given and not unset and path is None:
        rows = [(key, str(value)) for key, value in sorted(before.items())] or [("Settings", "none")]
        rows += taken_rows((session.output == "table" and _schema(session, found)) or {})
        show_one(session.output if session.output != "name" else "json", before, rows=rows)
        return
    settings = changed_settings(before, given=given, unset=unset, path=path)
    found = session.client.put(module_path(id, "config"), settings)
    show_done(session.output, found, f"'{id}' has new settings; " + module_status(found))
    _show_reached(session, found)
    refuse_failed(found)


@module.command("health")
@click.argument("id")
@api_command
def health(session: ApiSession, id: str) -> None:
    """Ask a running module how it is."""
    found = {"id": id, **session.client.get(module_path(id, "health"))}
    word = "healthy" if found.get("healthy") else "not healthy"
    show_done(session.output, found, f"'{id}' is {word}" + _because(found.get("detail")))


def _because(detail: object) -> str:
    return f": {detail}" if detail else ""


@module.command(Verb.UNINSTALL.value, help=VERBS[Verb.UNINSTALL].help)
@click.argument("id")
@click.option("--drop-storage", is_flag=True, help="Also delete the module's documents and keys.")
@yes_option
@api_command
def uninstall(session: ApiSession, id: str, drop_storage: bool, yes: bool) -> None:
    confirm(f"uninstall '{id}'" + (" and delete its data" if drop_storage else ""), yes=yes)
    found = session.client.get(module_path(id))
    session.client.delete(module_path(id))
    if drop_storage:
        try:
            _drop(session, id)
        except CommandRefused as refusal:
            if refusal.status != 404:  # it had stored nothing
                raise
    keeps = found.get("storage", "controller" in (found.get("hosts") or ())) and not drop_storage
    kept = f"; its data stays until 'corral module storage drop {id}'" if keeps else ""
    show_done(session.output, {"id": id}, f"'{id}' is uninstalled{kept}")
    _show_reached(session, found)


@module.group("storage", cls=Noun)
def storage() -> None:
    """Stored data of modules."""


@storage.command("drop")
@click.argument("id")
@yes_option
@api_command
def drop_storage(session: ApiSession, id: str, yes: bool) -> None:
    """Delete what an uninstalled module has left behind."""
    confirm(f"delete all data of module '{id}'", yes=yes)
    _drop(session, id)
    show_done(session.output, {"id": id}, f"the data of '{id}' is deleted")


def _drop(session: ApiSession, id: str) -> None:
    session.client.delete(f"{MODULES}/storage/{segment(id)}")


@module.command("leaked")
@api_command
def leaked(session: ApiSession) -> None:
    """Processes of modules that did not end by themselves."""
    show_list(
        session.output, session.client.get(f"{MODULES}/leaked")["items"], columns=LEAK_COLUMNS, name="module"
    )


@module.command("force-cleanup")
@api_command
def force_cleanup(session: ApiSession) -> None:
    """Kill what lingers of unloaded modules, at once."""
    found = session.client.post(f"{MODULES}/force-cleanup", timeout=VERB_SECONDS)["items"]
    if session.output == "table" and not found:
        click.echo("nothing lingers")
        return
    show_list(session.output, found, columns=LEAK_COLUMNS, name="module")


def changed_settings(
    before: Item, *, given: tuple[str, ...], unset: tuple[str, ...], path: str | None
) -> dict[str, Any]:
    """The complete new settings: those of the file, or the present ones, then single keys. `a.b=1` sets a key of a
    mapping. Values are read as manifests are: a date is a text."""
    settings = _read(path) if path is not None else _copy(before)
    for key, text in pairs(given).items():
        *above, last = key.split(".")
        _within(settings, above, key)[last] = _value(key, text)
    for key in unset:
        *above, last = key.split(".")
        _within(settings, above, key).pop(last, None)
    return settings


def _copy(value: Any) -> Any:
    return {key: _copy(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def _within(settings: dict[str, Any], above: list[str], key: str) -> dict[str, Any]:
    place = settings
    for part in above:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise WrongUsage(f"'{key}' leads into a value that holds no others")
    return place


def _value(key: str, text: str) -> Any:
    from corral.modules.manifest.text_nodes import NotReadable, plain, read_yaml

    try:
        return plain(read_yaml(text)) if text.strip() else None
    except NotReadable as error:
        raise WrongUsage(f"the value of '{key}': {error.why}", hint="put quotes around texts") from error


def _read(path: str) -> dict[str, Any]:
    from corral.modules.manifest.text_nodes import NotReadable, plain, read_yaml

    if path == "-":
        refuse_lines_of_console()
    try:
        text = sys.stdin.read() if path == "-" else pathlib.Path(path).expanduser().read_text("utf-8")
        settings = plain(read_yaml(text))
    except OSError as error:
        raise WrongUsage(f"cannot read {path}: {error.strerror}") from error
    except NotReadable as error:
        raise WrongUsage(f"{path}:{error.line}: {error.why}") from error
    except ValueError as error:
        raise WrongUsage(f"{path} is neither YAML nor JSON: {error}") from error
    if not isinstance(settings, dict):
        raise WrongUsage(f"{path} holds no mapping of settings")
    return settings
