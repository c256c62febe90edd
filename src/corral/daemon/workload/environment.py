"""Environment of a workload, built from nothing: the daemon's own environment is never passed on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from corral.daemon.workload.start_order import StartOrder
from corral.domain.groups.group import BLOCKED_VARIABLES, RESERVED_PREFIX
from corral.errors import Code, Rejected
from corral.sdk.runtime import run_name

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LANG: Final = "C.UTF-8"
_TERMINAL: Final = "xterm"
"""Terminal type of a program on a terminal of ours: nearly every host knows it."""
_MAX_VALUE: Final = 128 * 1024


def build_environment(
    order: StartOrder,
    *,
    env: Mapping[str, str],
    node_id: str,
    user: str,
    home: str,
    time_zone: str,
    authority_file: str,
) -> dict[str, str]:
    """The complete environment. `env` is the plan's, substituted; it may set anything but reserved and blocked
    names. `authority_file`: the certificate of the cluster's authority; named where the API has one of its."""
    check_names(env)
    return {
        "PATH": PATH,
        "HOME": home,
        "LANG": _LANG,
        "TZ": time_zone,
        "USER": user,
        "PYTHONUNBUFFERED": "1",
        **({"TERM": _TERMINAL} if order.tty else {}),
        **env,
        "CORRAL_INSTANCE_TOKEN": order.token,
        "CORRAL_INSTANCE_ID": order.instance_id,
        "CORRAL_GROUP": order.group,
        "CORRAL_NODE_ID": node_id,
        "CORRAL_PORT": str(order.primary_port or ""),
        "CORRAL_API_URL": order.api_url,
        **({"CORRAL_API_CA_FILE": authority_file} if order.api_cluster_tls else {}),
        "CORRAL_RUN": run_name(order.instance_id, order.incarnation),
    }


def check_names(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        shown = name[:80]
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise Rejected(Code.INVALID_FIELD, f"'{shown}' cannot be a variable", field=f"env/{shown}")
        if name in BLOCKED_VARIABLES or name.startswith(RESERVED_PREFIX):
            raise Rejected(
                Code.INVALID_FIELD,
                f"the variable '{shown}' may not be set",
                hint="choose another name",
                field=f"env/{shown}",
            )
        if len(value.encode(errors="surrogatepass")) > _MAX_VALUE:
            raise Rejected(
                Code.ARGUMENTS_TOO_LONG,
                f"the variable '{shown}' is longer than 128 KiB",
                hint="put long values into a file",
                field=f"env/{shown}",
            )
