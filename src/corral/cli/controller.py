"""`corral controller`: run one, in the foreground."""

from __future__ import annotations

import os

import click

from corral.cli.roles import Flags, ended_by, role_options


@click.command()
@click.option("--data", metavar="DIR", help="Directory of everything it keeps.")
@click.option("--http", metavar="HOST:PORT", help="Address of the API; port 0 picks a free one.")
@click.option("--grpc", metavar="HOST:PORT", help="Address that daemons connect to.")
@click.option(
    "--bootstrap", metavar="HOST:PORT", help="Address for join tokens; the gRPC port + 1 if left out."
)
@click.option("--advertise", metavar="HOST:PORT", help="Address that daemons are told to use.")
@click.option("--store", metavar="URL", help="sqlite or postgresql://….")
@role_options
def controller(
    flags: Flags,
    data: str | None,
    http: str | None,
    grpc: str | None,
    bootstrap: str | None,
    advertise: str | None,
    store: str | None,
) -> int:
    """Run a controller until a signal ends it. Every other setting: --print-config."""
    settings = {
        "data": data,
        "http.listen": http,
        "grpc.listen": grpc,
        "grpc.advertise": advertise,
        "bootstrap.listen": bootstrap,
        "store.url": store,
        **flags.settings,
    }
    with ended_by():
        from corral.system.config import load_controller, render

        config, sources = load_controller(flags.path, os.environ, settings)
        if flags.print_config:
            click.echo(render(config, sources), nl=False)
            return 0
        from corral.controller.app import run_controller

        return run_controller(config, parent_fd=flags.parent_fd)
