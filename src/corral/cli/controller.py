"""`corral controller`: run one, in the foreground."""

from __future__ import annotations

import logging
import os
import shlex
import sys

import click

from corral.cli.failure import WrongUsage, note
from corral.cli.roles import Flags, ended_by, role_options, settings_read


@click.group(invoke_without_command=True)
@click.option("--data", metavar="DIR", help="Directory of everything it keeps.")
@click.option("--http", metavar="HOST:PORT", help="Address of the API; port 0 picks a free one.")
@click.option("--grpc", metavar="HOST:PORT", help="Address that daemons connect to.")
@click.option(
    "--bootstrap", metavar="HOST:PORT", help="Address for join tokens; the gRPC port + 1 if left out."
)
@click.option("--advertise", metavar="HOST:PORT", help="Address that daemons are told to use.")
@click.option("--store", metavar="URL", help="sqlite or postgresql://….")
@click.option(
    "--found-cluster",
    is_flag=True,
    help="For one start: make a new cluster although a former one left its key, token or artifacts here.",
)
@click.option(
    "--accept-older-store",
    is_flag=True,
    help="For one start: go on with a store that has lost what this controller has seen, as after a restore.",
)
@role_options
@click.pass_context
def controller(
    ctx: click.Context,
    flags: Flags,
    data: str | None,
    http: str | None,
    grpc: str | None,
    bootstrap: str | None,
    advertise: str | None,
    store: str | None,
    found_cluster: bool,
    accept_older_store: bool,
) -> int:
    """Run a controller until a signal ends it. Every other setting: --print-config."""
    if ctx.invoked_subcommand is not None:
        given = [name for name in ("--data", "--store", "--config") if ctx.params.get(name[2:])]
        if given:
            raise WrongUsage(f"{given[0]} stands before '{ctx.invoked_subcommand}'", hint="write it behind")
        return 0
    settings = {
        "data": data,
        "http.listen": http,
        "grpc.listen": grpc,
        "grpc.advertise": advertise,
        "bootstrap.listen": bootstrap,
        "store.url": store,
        **flags.settings,
    }
    with settings_read():
        from corral.system.config import load_controller, render

        config, sources = load_controller(flags.path, os.environ, settings)
    if flags.print_config:
        click.echo(render(config, sources), nl=False)
        return 0
    with ended_by():
        from corral.controller.app import run_controller

        return run_controller(
            config,
            parent_fd=flags.parent_fd,
            found_cluster=found_cluster,
            accept_older_store=accept_older_store,
        )


@controller.command("admin-token")
@click.option("--data", metavar="DIR", help="Directory of the controller, which must not run.")
@click.option("--store", metavar="URL", help="sqlite or postgresql://….")
@click.option("--config", metavar="FILE", help="YAML file with its settings (CORRAL_CONFIG).")
def admin_token(data: str | None, store: str | None, config: str | None) -> None:
    """Make a new administrator's token, when all of them are lost. It is written to DATA/admin.token, and audited."""
    flags = Flags(config=config, level=None, format=None)
    with ended_by():
        from corral.system.config import load_controller

        settings, _ = load_controller(flags.path, os.environ, {"data": data, "store.url": store})
        _log_warnings_alone()
        from corral.controller.term.admin_token import make_admin_token

        made = make_admin_token(settings)
    click.echo(f"a new administrator's token ({made.id}) is in {made.path}")
    note("start the controller, then: corral login URL --token-file " + shlex.quote(str(made.path)))


def _log_warnings_alone() -> None:
    """To stderr: what is printed is the answer."""
    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
