"""`corral daemon`: run one, in the foreground."""

from __future__ import annotations

import os

import click

from corral.cli.roles import Flags, ended_by, role_options, settings_read
from corral.domain.variable_checks import JOIN_VARIABLE


@click.command()
@click.option("--data", metavar="DIR", help="Directory of everything it keeps.")
@click.option("--controller", metavar="HOST:PORT,…", help="gRPC address of each controller.")
@click.option("--join", metavar="TOKEN", help="Enrol with this join token, unless enrolled already.")
@click.option("--node-id", metavar="ID", help="Id of this node; the host name if left out.")
@click.option("--advertise", metavar="HOST", help="Host that players reach instances at.")
@click.option("--labels", metavar="K=V,…", help="Labels that groups may select this node by.")
@role_options
def daemon(
    flags: Flags,
    data: str | None,
    controller: str | None,
    join: str | None,
    node_id: str | None,
    advertise: str | None,
    labels: str | None,
) -> int:
    """Run a daemon until a signal ends it; its instances keep running. Settings: --print-config."""
    settings = {
        "data": data,
        "controllers": controller,
        "node.id": node_id,
        "node.advertise": advertise,
        "node.labels": labels,
        **flags.settings,
    }
    with settings_read():
        from corral.system.config import load_daemon, render

        config, sources = load_daemon(flags.path, os.environ, settings)
    if flags.print_config:
        click.echo(render(config, sources), nl=False)
        return 0
    with ended_by():
        from corral.daemon.app import run_daemon

        return run_daemon(config, join=join or _given_secretly(), parent_fd=flags.parent_fd)


def _given_secretly() -> str | None:
    """The join token from the environment, taken out of it so that no child inherits it."""
    return os.environ.pop(JOIN_VARIABLE, None) or None
