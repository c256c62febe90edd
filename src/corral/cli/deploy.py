"""`corral deploy`: bring the instances of a group to its present document and templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.completion import offer_names
from corral.cli.deployment_progress import DEPLOYMENTS, done_text, is_final, progress_text, until_deployed
from corral.cli.dry_run import DRY, ask_about_players, dry_run_option, refuse_wait, show_dry_run
from corral.cli.group_waits import GROUPS, status_of
from corral.cli.instance.waits import wait_options
from corral.cli.terminal.confirmation import act_confirmed, yes_option
from corral.cli.terminal.output import Item, show_done

F = TypeVar("F", bound=Callable[..., Any])

WAIT: Final = "1h"


class CountOrShare(click.ParamType[Any]):
    """`2`, or `25%` of the instances."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value)
        if not text.isascii() or not text.removesuffix("%").isdecimal():
            self.fail(f"'{text}' is neither a number, such as 2, nor a share, such as 25%", param, ctx)
        return text if text.endswith("%") else int(text)


_SECONDS: Final = click.IntRange(min=0)
_OPTIONS: Final = (
    click.option("--strategy", type=click.Choice(["rolling", "canary"]), help="All in turn, or a few first."),
    click.option(
        "--max-surge", type=CountOrShare(), metavar="N|N%", help="Instances above the wanted number."
    ),
    click.option(
        "--max-unavailable", type=CountOrShare(), metavar="N|N%", help="Instances that may be missing."
    ),
    click.option("--canary", type=CountOrShare(), metavar="N|N%", help="How many go first."),
    click.option("--canary-seconds", type=_SECONDS, metavar="N", help="How long the first ones are watched."),
    click.option(
        "--promote", type=click.Choice(["auto", "manual"]), help="Whether the others follow by themselves."
    ),
    click.option(
        "--min-healthy-seconds", type=_SECONDS, metavar="N", help="When an instance counts as healthy."
    ),
    click.option(
        "--progress-seconds", type=_SECONDS, metavar="N", help="Without progress for so long it fails."
    ),
    click.option(
        "--max-failures", type=click.IntRange(min=1), metavar="N", help="With so many crashes it fails."
    ),
    click.option("--auto-rollback/--no-auto-rollback", default=None, help="Whether a failure is undone."),
    click.option(
        "--drain-seconds", type=_SECONDS, metavar="N", help="How long players are waited for at most."
    ),
)


def update_options(command: F) -> F:
    """An option for each field of `update` that a deployment may have otherwise than the document."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def given_options(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@click.command()
@click.argument("group")
@click.option("--reason", metavar="TEXT", help="Why; shown with the deployment.")
@update_options
@dry_run_option
@yes_option
@wait_options(WAIT)
@api_command
def deploy(
    session: ApiSession,
    group: str,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    wait: bool,
    timeout: int,
    **options: Any,
) -> None:
    """Deploy a group. Its instances come to the present document and templates, as 'update' of the group says; an option
    overrides a field of it for this deployment."""
    order_deployment(
        session,
        group,
        "deploy",
        reason,
        given_options(options),
        dry_run=dry_run,
        yes=yes,
        wait=wait,
        timeout=timeout,
    )


def order_deployment(
    session: ApiSession,
    group: str,
    verb: str,
    reason: str | None,
    options: dict[str, Any],
    *,
    dry_run: bool,
    yes: bool,
    wait: bool,
    timeout: int,
) -> None:
    """Begin a deployment; a yes is asked for where players would, or may, be cut off."""
    body: dict[str, Any] = {"options": options} if options else {}
    if reason:
        body["reason"] = reason
    path, question = f"{GROUPS}/{segment(group)}/{verb}", f"{verb} group '{group}'"

    def tell() -> Any:
        return session.client.post(path, body, params=DRY)

    if dry_run:
        refuse_wait(wait)
        found = tell()
        show_dry_run(session, f"group '{group}'", found, change="deployed" if found["changes"] else "")
        return
    ask_about_players(question, tell, yes=yes)
    begun = act_confirmed(
        question,
        lambda query: session.client.post(path, body, params=query),
        group,
        yes=yes,
        ask=False,
    )
    if verb == "restart":  # answered with the group
        begun = session.client.get(f"{DEPLOYMENTS}/{segment(str(status_of(begun).get('deployment')))}")
    if wait:
        begun = until_deployed(session, begun, timeout)
    show_done(session.output, begun, _begun_text(begun))


def _begun_text(found: Item) -> str:
    if is_final(found):
        return done_text(found)
    what = f"deployment '{found['id']}' of group '{found['group']}' to revision {found['target']}"
    return f"{what}: {progress_text(found)}; corral deployment get {found['id']}"


offer_names("deploy", deploy)
