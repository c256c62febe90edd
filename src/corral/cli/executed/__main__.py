"""`python -m corral.cli.executed`: one command, for a controller that runs it on behalf of a caller of its API.

The order comes as JSON on standard input. Standard output gets what a terminal would show, standard error the result, as
JSON. See `corral.controller.commands.command_process`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any, Final

from corral.runtimes.keeper.linux_calls import die_with_parent

_ORDER_MAX: Final = 1024 * 1024
_MEMORY: Final = 512 * 1024 * 1024
_OPEN_FILES: Final = 64
_CPU_SECONDS: Final = 60


def main() -> None:
    order = json.loads(sys.stdin.buffer.read(_ORDER_MAX))
    die_with_parent(order["parent"])
    result = _redirected()
    _bound()
    try:
        found = _executed(order)
    except MemoryError:
        found = _failed("INTERNAL", "the command needed too much memory", hint="narrow it, or run it at home")
    sys.stdout.flush()
    os.write(result, json.dumps(found).encode())


def _redirected() -> int:
    """Nothing to read, one place to print to; the descriptor for the result."""
    result = os.dup(2)
    os.dup2(1, 2)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return result


def _bound() -> None:
    for limit, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_CPU, _CPU_SECONDS),
        (resource.RLIMIT_AS, _MEMORY),
    ):
        resource.setrlimit(limit, (most, most))


def _executed(order: dict[str, Any]) -> dict[str, Any]:
    import click

    from corral.cli.console.words import with_help
    from corral.cli.executed.allowed import check
    from corral.cli.executed.api_client import OwnClient
    from corral.cli.failure import CommandRefused, Unreachable, WaitRanOut
    from corral.cli.main import cli, invoke, show_failure

    client = OwnClient(socket_path=order["socket"], token=order["credential"], request=order["request"])
    words = with_help(order["words"])
    try:
        check(cli, words)
        return {"exit_code": invoke(words, obj={"client": client}), "error": None}
    except click.exceptions.NoArgsIsHelpError as nothing:
        return {"exit_code": show_failure(nothing), "error": None}
    except (click.ClickException, click.Abort, OSError) as error:
        code = show_failure(error)
        message = error.format_message() if isinstance(error, click.ClickException) else "nothing was done"
        hint = str(getattr(error, "hint", None) or "")
        match error:
            case CommandRefused():
                return _failed(error.code or "REFUSED", message, hint=hint, exit_code=code, field=error.field)
            case Unreachable():
                return _failed("UNREACHABLE", message, hint=hint, exit_code=code)
            case WaitRanOut():
                return _failed("TIMEOUT", message, hint=hint, exit_code=code)
        return _failed("BAD_REQUEST", " ".join(message.split()), hint=hint, exit_code=code)
    finally:
        client.close()


def _failed(
    code: str, message: str, *, hint: str = "", exit_code: int = 1, field: str = ""
) -> dict[str, Any]:
    limit = 4000
    error = {"code": code[:64], "message": message[:limit], "hint": hint[:limit], "field": field[:200]}
    return {"exit_code": exit_code, "error": error}


if __name__ == "__main__":
    main()
