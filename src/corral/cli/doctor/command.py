"""`corral doctor`: what of a node, a controller or groups in files could be better, and how."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from corral.cli.api.session import api_options, opened_session
from corral.cli.command_groups import Noun
from corral.cli.failure import WrongUsage
from corral.cli.terminal.output import output_option

if TYPE_CHECKING:
    from corral.cli.doctor.findings import Looks

_NODE = "node"
data_option = click.option("--data", metavar="DIR", help="Its directory, or that of 'corral up'.")
config_option = click.option("--config", metavar="FILE", help="YAML file with its settings (CORRAL_CONFIG).")


class PartOrNode(Noun):
    """`corral doctor` is `corral doctor node`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [_NODE, *args]
        return super().parse_args(ctx, args)


@click.group(cls=PartOrNode)
def doctor() -> None:
    """Check a node, a controller or groups in files, and say what to change. Nothing is changed by it.

    'corral doctor' alone checks this machine as a node. Exit code 1 only for errors: advice is something that works, and
    could work better.
    """


@doctor.command(_NODE)
@data_option
@config_option
@click.option(
    "--ports",
    type=click.IntRange(1, 65_535),
    nargs=2,
    metavar="FIRST LAST",
    default=(30_000, 30_999),
    show_default=True,
    help="Ports of instances.",
)
@output_option
@click.pass_context
def node(ctx: click.Context, /, output: str, ports: tuple[int, int], **where: str | None) -> None:
    """Check this machine as a node.

    Users, programs, control groups, disk, ports, clock, certificate and the unit of systemd. A daemon that runs is checked
    with the settings that it runs with.
    """
    from corral.cli.doctor.node_checks import WHY, node_looks
    from corral.cli.doctor.running_role import running_role
    from corral.cli.roles import settings_read
    from corral.system.config import load_daemon

    with settings_read():
        role = running_role("daemon", load_daemon, {"data": where["data"]}, file=where["config"])
    id = role.config.node_id(host_name=socket.gethostname())
    _check(ctx, output, {f"node:{id}": node_looks(role, ports)}, WHY)


@doctor.command()
@data_option
@click.option("--store", metavar="URL", help="sqlite or postgresql://….")
@config_option
@output_option
@click.pass_context
def controller(ctx: click.Context, /, output: str, **where: str | None) -> None:
    """Check a controller on this machine.

    Ports, store, keys, certificates, administrators, disk and clock. It may run meanwhile, and is then checked with the
    settings that it runs with. Its store is only read.
    """
    from corral.cli.doctor.controller_checks import WHY, controller_looks
    from corral.cli.doctor.running_role import running_role
    from corral.cli.roles import settings_read
    from corral.system.config import load_controller

    given = {"data": where["data"], "store.url": where["store"]}
    with settings_read():
        role = running_role("controller", load_controller, given, file=where["config"])
    _check(ctx, output, {"controller": controller_looks(role)}, WHY)


@doctor.command()
@click.argument("path", metavar="FILE|DIR")
@api_options
@click.pass_context
def group(ctx: click.Context, /, path: str, output: str, **connection: str | None) -> None:
    """Check groups in files before they are applied.

    Document, program, artifact, ports, limits, readiness and players; templates, the catalog and nodes are those of the
    cluster where you are logged in.
    """
    import time

    from corral.cli.doctor.cluster_view import ClusterView, view_cluster
    from corral.cli.doctor.findings import LONGEST_SECONDS, Attempt
    from corral.cli.doctor.group_checks import WHY, group_looks
    from corral.cli.roles import settings_read
    from corral.system.config import load_daemon
    from corral.system.document_sets import read_set

    found = read_set((path,))
    with settings_read():
        hosts = load_daemon(None, os.environ, {})[0].downloads.allow_hosts
    try:
        with opened_session(output=output, **connection) as session:
            client = session.client.copy(timeout=LONGEST_SECONDS)
            until = time.monotonic() + LONGEST_SECONDS
            view = Attempt(lambda: view_cluster(client, found), name="cluster", until=until).result()
    except WrongUsage as none:
        view = ClusterView(problem=none.message)
    looks = group_looks(path, found, view or ClusterView(problem="there was no answer in time"), hosts)
    _check(ctx, output, {f"group:{name or path}": each for name, each in looks.items()}, WHY)


def _check(ctx: click.Context, output: str, subjects: Mapping[str, Looks], why: Mapping[str, str]) -> None:
    from corral.cli.doctor.findings import Severity, findings
    from corral.cli.doctor.report import show_findings

    given = [(name, ctx.params[name]) for name in ("data", "store", "config") if ctx.params.get(name)]
    options = [word for name, value in given for word in (f"--{name}", value)]
    again = shlex.join([*ctx.command_path.split(), *options])
    found = [
        each for subject, looks in subjects.items() for each in findings(subject, looks, why, again=again)
    ]
    found.sort(key=lambda each: list(Severity).index(each.severity))
    show_findings(output, found)
    ctx.exit(1 if any(each.severity is Severity.ERROR for each in found) else 0)
