"""`corral user create`: by the API, or an administrator on the controller's host without it."""

from __future__ import annotations

from typing import Any

import click

from corral.cli.api.session import api_options, opened_session
from corral.cli.failure import WrongUsage, note
from corral.cli.offline_options import offline_config, offline_options
from corral.cli.scope_options import binding_options, given_bindings, shown_bindings
from corral.cli.terminal.output import show_done
from corral.cli.terminal.prompts import password_file_option, send_new_password
from corral.cli.user_credentials import USERS, change_option


@click.command()
@click.argument("name")
@click.option("--display-name", default="", help="The name for people.")
@binding_options
@password_file_option
@click.option("--ask-password", is_flag=True, help="Ask for a password.")
@change_option
@offline_options
@api_options
def create(
    name: str,
    display_name: str,
    role: tuple[str, ...],
    group: tuple[str, ...],
    node: tuple[str, ...],
    password_file: str | None,
    ask_password: bool,
    no_change: bool,
    data: str | None,
    store: str | None,
    config: str | None,
    output: str,
    **connection: str | None,
) -> None:
    """Make a user.

    With a password it logs in by it; without one it gets in by tokens alone: corral token create NAME --owner USER.

    With --role ADMIN --data DIR it is made on the controller's host, without the API and while no controller runs: whoever may
    write that directory owns the cluster anyway. A user who is there gets the password and the role, and is unlocked.
    """
    if password_file is not None and ask_password:
        raise WrongUsage("--password-file and --ask-password exclude each other")
    if data or store or config:
        if role != ("ADMIN",) or group or node or display_name or no_change:
            raise WrongUsage(
                "without the API only administrators are made",
                hint="give --role ADMIN, and nothing else but the password; or leave out --data, --store and --config",
            )
        _on_host(name, password_file, output, data=data, store=store, config=config)
        return
    with_password = password_file is not None or ask_password
    if no_change and not with_password:
        raise WrongUsage("--no-change is about a password: give one with --password-file or --ask-password")
    body = {"name": name, "display_name": display_name, "bindings": given_bindings(role, group, node)}
    with opened_session(output=output, **connection) as session:
        if with_password:
            changed = {"must_change_password": not no_change}
            made = send_new_password(
                password_file, lambda text: session.client.post(USERS, {**body, **changed, "password": text})
            )
        else:
            made = session.client.post(USERS, body)
    show_done(output, made, f"user '{name}' is there: {shown_bindings(made)}", name="name")


def _on_host(name: str, password_file: str | None, output: str, **where: str | None) -> None:
    from corral.cli.roles import ended_by

    with ended_by():
        config = offline_config(**where)
        from corral.controller.term.offline_admin import MadeAdmin, make_admin
        from corral.controller.term.offline_change import claimed

        def make(password: str) -> MadeAdmin:
            with ended_by():
                return make_admin(config, name=name, password=password)

        with claimed(config):  # nobody is asked for a password in vain
            made = send_new_password(password_file, make)
    result: dict[str, Any] = {"name": name, "created": made.created, "has_totp": made.has_totp}
    told = "is made" if made.created else "was there, and has another password now; it is not locked"
    show_done(output, result, f"administrator '{name}' {told}", name="name")
    if made.has_totp:
        note("its second factor stays: a login needs it, or a recovery code")
    note(f"start the controller, then: corral login URL --user {name}")
