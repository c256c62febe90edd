"""`corral module install` and `upgrade`: an archive and its signature, sent with progress."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

import click

from corral.cli.api.client import UPLOAD_SECONDS
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandRefused, WrongUsage, note, printable
from corral.cli.module.nodes import refuse_failed_nodes, show_outcome, wait_for_nodes, wait_option
from corral.cli.module.views import MODULES, module_path, module_status, refuse_failed, refuse_idle
from corral.cli.terminal.confirmation import confirm, yes_option
from corral.cli.terminal.output import Item, show_done
from corral.cli.terminal.prompts import is_terminal
from corral.cli.terminal.values import size_text

F = TypeVar("F", bound=Callable[..., Any])


def _options(command: F) -> F:
    for option in reversed(
        (
            click.argument("file"),
            click.option(
                "--signature", metavar="FILE", help="Else FILE.cosign.bundle or FILE.sig, if there."
            ),
            click.option(
                "--replace", is_flag=True, help="Also when this version is installed with other bytes."
            ),
            click.option("--allow-downgrade", is_flag=True, help="Also when a higher version is installed."),
            click.option("--no-activate", is_flag=True, help="Install, and hold it until 'activate'."),
            click.option("--no-rollback", is_flag=True, help="Leave a failed upgrade as it is."),
            click.option(
                "--dry-run", is_flag=True, help="Only show what would happen, and what is in the way."
            ),
            wait_option("How long to wait for connected nodes to settle; 0: not."),
            yes_option,
        )
    ):
        command = option(command)
    return command


@click.command("install")
@_options
@api_command
def install(session: ApiSession, file: str, **options: Any) -> None:
    """Install a module from its archive. A higher version than the installed one is an upgrade.

    On a terminal it shows first what would happen, and asks; the archive is sent once.
    """
    _send(session, pathlib.Path(file).expanduser(), **options)


@click.command("upgrade")
@_options
@api_command
def upgrade(session: ApiSession, file: str, **options: Any) -> None:
    """Upgrade an installed module. Rolls back if the new version does not start."""
    path = pathlib.Path(file).expanduser()
    id = _id_of(path)
    try:
        session.client.get(module_path(id))
    except CommandRefused as refusal:
        if refusal.status != 404:
            raise
        raise CommandRefused(
            f"'{id}' is not installed", hint="use 'corral module install'", code="NOT_FOUND"
        ) from refusal
    _send(session, path, **options)


def _id_of(path: pathlib.Path) -> str:
    from corral.cli.module.files import inspect

    return inspect(path).manifest.id


def _send(
    session: ApiSession,
    path: pathlib.Path,
    *,
    signature: str | None,
    replace: bool,
    allow_downgrade: bool,
    no_activate: bool,
    no_rollback: bool,
    dry_run: bool,
    wait: float,
    yes: bool,
) -> None:
    from corral.cli.api.transfers import FormFile, send_form

    if not path.is_file():
        raise WrongUsage(f"there is no file {path}")
    if not path.stat().st_size:
        raise WrongUsage(f"{path} is empty", hint="build it again: 'corral module build'")
    parts = [FormFile(field="file", path=path)]
    beside = _sidecar(path, signature)
    if beside is not None:
        parts.append(FormFile(field="signature", path=beside))
    params = {
        "replace": _flag(replace),
        "allow_downgrade": _flag(allow_downgrade),
        "activate": "false" if no_activate else None,
        "rollback": "false" if no_rollback else None,
    }

    def send(**more: str) -> Item:
        what = f"uploading {path.name}"
        answer: Item = send_form(session.client, MODULES, parts, what=what, params={**params, **more})
        return answer

    if dry_run:
        _show_report(session, send(dry_run="true"))
        return
    asks = not yes and session.output == "table" and is_terminal()
    found = _install_examined(session, send, params, path) if asks else send()
    _show_answer(session, wait_for_nodes(session, found, wait) if wait else found)


def _install_examined(
    session: ApiSession, send: Callable[..., Item], params: Item, path: pathlib.Path
) -> Item:
    """Show what an install would do, ask, and install the very bytes that were examined."""
    report = send(dry_run="true")
    _show_report(session, report)
    facts = _signer(report.get("signature")), size_text(report.get("size")), f"sha256 {report.get('sha256')}"
    click.echo(printable(", ".join(facts)))
    if report.get("action") != "nothing":
        confirm(f"{_words(report.get('action'))} {report.get('id')} {report.get('version')}", yes=False)
    body = {"sha256": report.get("sha256")}
    try:
        installed: Item = session.client.post(MODULES, body, params=params, timeout=UPLOAD_SECONDS)
    except CommandRefused as refusal:
        if refusal.code != "NOT_FOUND" or refusal.field != "sha256":
            raise
        # It was kept for too long, or by another leader. Meanwhile the file may have become another.
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != report.get("sha256"):
            raise CommandRefused(
                f"{path} is not the archive any more that was shown; nothing was installed",
                hint="run the command again, and look at what it shows",
            ) from None
        return send()
    return installed


def _signer(signature: object) -> str:
    if not isinstance(signature, dict):
        return "not signed"
    return f"signed by {signature.get('identity') or 'key ' + str(signature.get('key_sha256'))}"


def _flag(value: bool) -> str | None:
    return "true" if value else None


def _sidecar(path: pathlib.Path, given: str | None) -> pathlib.Path | None:
    if given is not None:
        sidecar = pathlib.Path(given).expanduser()
        if not sidecar.is_file():
            raise WrongUsage(f"there is no file {sidecar}")
        return sidecar
    from corral.signing.sidecars import SIDECAR_SUFFIXES

    for ending in SIDECAR_SUFFIXES.values():
        sidecar = path.with_name(path.name + ending)
        if sidecar.is_file():
            return sidecar
    return None


def _show_answer(session: ApiSession, found: Item) -> None:
    lines = found.get("steps") or ()
    for line in lines if len(lines) > 1 else ():
        note(line)
    show_done(session.output, found, f"{_words(found.get('outcome', 'installed'))}: {module_status(found)}")
    if session.output == "table":
        show_outcome(found)
    refuse_failed(found)
    refuse_failed_nodes(found)
    refuse_idle(found)


def _show_report(session: ApiSession, found: Item) -> None:
    if session.output != "table":
        show_done(session.output if session.output != "name" else "json", found, "")
    else:
        for problem in found.get("problems") or ():
            click.echo(printable(f"problem: {problem['message']}" + _then(problem.get("hint"))))
        for warning in found.get("warnings") or ():
            click.echo(printable(f"warning: {warning}"))
        action = "change nothing:" if found.get("action") == "nothing" else _words(found.get("action"))
        click.echo(f"would {action} {found.get('id')} {found.get('version')}")
    if not found.get("ok"):
        raise CommandRefused(
            "it cannot be installed as it is", code=str(found.get("code") or "MODULE_INCOMPATIBLE")
        )


def _words(value: object) -> str:
    return str(value).replace("_", " ")


def _then(hint: object) -> str:
    return f"; {hint}" if hint else ""
