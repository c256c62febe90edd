"""The root of the command line and the one place where a failure becomes an exit code."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, Final, NoReturn

import click

from corral.cli.command_groups import LazyGroup
from corral.cli.early_signals import survive_dump_signal
from corral.cli.failure import CommandFailure, CommandRefused, WrongUsage, report
from corral.cli.token_options import given_token, token_options
from corral.version import VERSION

NOUNS: Final = {
    "group": ("corral.cli.group:group", "Programs to run, and how many: create, change, scale, delete."),
    "deploy": (
        "corral.cli.deploy:deploy",
        "Bring a group's instances to its present document and templates.",
    ),
    "deployment": (
        "corral.cli.deployment:deployment",
        "Deployments: list, pause, resume, promote, roll back.",
    ),
    "apply": ("corral.cli.apply:apply", "Have groups as files describe them, all of them or none."),
    "diff": ("corral.cli.apply:diff", "What 'apply' would change, and whom it would touch."),
    "export": ("corral.cli.apply:export", "Groups as documents that 'apply' takes."),
    "delete": ("corral.cli.apply:delete", "Delete the groups that files describe."),
    "import": (
        "corral.cli.universe.commands:import_",
        "Take over what another system has: groups, templates.",
    ),
    "instance": (
        "corral.cli.instance.commands:instance",
        "Members of groups: start, stop, console, logs, commands.",
    ),
    "template": ("corral.cli.template:template", "File trees of instances: upload, edit, diff, roll back."),
    "catalog": ("corral.cli.catalog:catalog", "Programs by platform and version: add, list, remove."),
    "module": (
        "corral.cli.module.commands:module",
        "Extensions: install, upgrade, configure; write your own.",
    ),
    "console": ("corral.cli.console.commands:console", "All commands in one shell, with history."),
    "capability": ("corral.cli.capability:capability", "Interfaces that modules offer one another."),
    "command": ("corral.cli.command:command", "Commands that modules brought: list, run."),
    "crash": ("corral.cli.crash:crash", "Runs that ended without a request."),
    "why": ("corral.cli.why:why", "Why an instance, a group, a node or a deployment is as it is."),
    "node": ("corral.cli.node:node", "Hosts that run instances: list, cordon, enrol, revoke."),
    "simulate": (
        "corral.cli.simulate.commands:simulate",
        "What would be decided in a scenario, in virtual time.",
    ),
    "event": ("corral.cli.event:event", "Changes of the cluster: the stored ones, and those that come."),
    "logs": ("corral.cli.logs:logs", "The log of the controller or of a node."),
    "user": ("corral.cli.user:user", "Users: list, create, give roles and passwords, lock."),
    "session": ("corral.cli.session:session", "Who is logged in: list and end sessions."),
    "role": ("corral.cli.role:role", "Roles: what they grant; make your own."),
    "token": ("corral.cli.token:token", "API tokens: list, create, revoke."),
    "cluster": ("corral.cli.cluster:cluster", "The cluster as a whole: leader, epoch, certificates."),
    "audit": ("corral.cli.audit:audit", "Who changed what, and from where."),
    "context": ("corral.cli.context:context", "Controllers this command line knows."),
    "login": ("corral.cli.login:login", "Log in, by password or token, and remember the controller."),
    "whoami": ("corral.cli.whoami:whoami", "Who you are here, and what you may do."),
    "logout": ("corral.cli.login:logout", "End the session, and forget the controller."),
    "up": ("corral.cli.local.up:up", "Run a whole cluster on this machine, in the foreground."),
    "down": ("corral.cli.local.down:down", "End what 'up' runs, instances included."),
    "controller": ("corral.cli.roles:controller", "Run a controller, in the foreground."),
    "daemon": ("corral.cli.roles:daemon", "Run a node's daemon, in the foreground."),
    "local": ("corral.cli.local.instances:local", "Instances of this machine, without any controller."),
    "doctor": ("corral.cli.doctor.command:doctor", "Check a node, a controller or groups in files."),
    "completion": ("corral.cli.completion:completion", "Print the script for completion in a shell."),
    "version": ("corral.cli.version:version", "Print the version of this program."),
}

ALIASES: Final = {
    "config": "group",
    "configs": "group",
    "extension": "module",
    "extensions": "module",
    "instances": "instance",
    "key": "token",
    "templates": "template",
}
"""Names that Universe's console has."""

INTERRUPTED: Final = 130


@click.group(
    cls=LazyGroup,
    table=NOUNS,
    aliases=ALIASES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--url", metavar="URL", help="Controller to talk to (CORRAL_URL).")
@token_options
@click.option("--context", metavar="NAME", help="Remembered controller to use (CORRAL_CONTEXT).")
@click.version_option(VERSION, prog_name="corral", message="%(prog)s %(version)s")
@click.pass_context
def cli(
    ctx: click.Context, url: str | None, token: str | None, token_file: str | None, context: str | None
) -> None:
    """Corral: fleets of game servers and other long-running processes."""
    shared = (ctx.obj or {}).get("client")
    ctx.obj = {"url": url, "token": given_token(token, token_file), "context": context, "client": shared}


def main(args: list[str] | None = None) -> NoReturn:
    """Run a command and end the process: 0 done, 1 refused, 2 wrong usage, 3 unreachable, 4 waited out,
    5 different."""
    sys.exit(run(args))


def run(args: list[str] | None = None) -> int:
    survive_dump_signal(args)
    try:
        return invoke(args)
    except (click.ClickException, click.Abort, OSError) as error:
        return show_failure(error)


def invoke(args: list[str] | None = None, *, obj: dict[str, Any] | None = None) -> int:
    """Run a command; its exit code, or its failure as an exception. `obj`: what `opened_session` takes from above."""
    try:
        result = cli.main(args=args, prog_name="corral", standalone_mode=False, obj=obj)
    except UnicodeEncodeError as error:  # of an argument: the system takes any bytes for one
        hint = "names that are no UTF-8 can be neither sent nor asked for; rename it, or remove its directory"
        raise WrongUsage(f"{error.object[:80]!r} is no UTF-8", hint=hint) from None
    except Exception as error:
        refusal = _refusal(error)
        if refusal is None:
            raise
        raise refusal from error
    return result if isinstance(result, int) else 0


def _refusal(error: Exception) -> CommandRefused | None:
    """A refusal by a check of ours, which is one of the controller's; None for everything else."""
    from corral.errors import Rejected, Retryable  # not for help, which imports nothing of ours

    if not isinstance(error, Rejected | Retryable):
        return None
    return CommandRefused(error.message, hint=error.hint, code=error.code.name, field=error.field or "")


def show_failure(error: click.ClickException | click.Abort | OSError) -> int:
    """Print a failure, and give its exit code. What is no failure of a command is raised again."""
    match error:
        case CommandFailure():
            error.show()
            return error.exit_code
        case click.exceptions.NoArgsIsHelpError():
            error.show()
            return error.exit_code
        case click.UsageError():
            path = error.ctx.command_path if error.ctx is not None else "corral"
            report(" ".join(error.format_message().split()), hint=f"see '{path} --help'")
            return error.exit_code
        case click.ClickException():
            report(error.format_message())
            return error.exit_code
        case click.Abort():
            if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
                return INTERRUPTED
            report("aborted, nothing was done")
            return 1
    # commands that read or write files have better messages: this is the output
    if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer, too
    report(f"cannot write the output: {error.strerror}", hint="what was asked for may have been done")
    return 1
