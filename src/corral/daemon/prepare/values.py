"""The values of a run's variables, secrets included: made for one start and kept nowhere."""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Iterable, Mapping

import msgspec

from corral.daemon.prepare.start_order import StartOrder
from corral.daemon.secrets import Secrets
from corral.domain.secret_masks import SecretMask
from corral.domain.variable_checks import check_secret_value, check_values
from corral.domain.variable_layers import defaults, run_variables, secrets_among
from corral.domain.variable_types import VariableSpec
from corral.domain.variables import InstanceFacts, built_in, substitute
from corral.errors import Code, CorralError, Rejected


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a preparation needs to know of the node."""

    node_id: str
    address: str
    memory_mb: int
    labels: dict[str, str] = {}


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """`secret` names those that nobody but the workload may see."""

    all: dict[str, str]
    secret: frozenset[str] = frozenset()

    def shown(self, names: Iterable[str]) -> dict[str, str]:
        """Of these variables those that may be written down."""
        return {name: self.all[name] for name in names if name in self.all and name not in self.secret}

    @property
    def mask(self) -> SecretMask:
        return SecretMask({name: self.all[name] for name in self.secret})


def resolve_values(order: StartOrder, node: NodeFacts, secrets: Secrets) -> Values:
    """Blocks for the secrets. VARIABLE_INVALID, SECRET_UNAVAILABLE."""
    types: Mapping[str, VariableSpec] = order.plan.variable_types if order.plan else {}
    planned = {**defaults(types), **(order.plan.variables if order.plan else {})}
    given = run_variables(planned, node_labels=node.labels, instance=order.variables, built_in={})
    check_values(types, given, complete=True)
    hidden = {
        name: secrets.value(reference, name=name) for name, reference in secrets_among(types, given).items()
    }
    for name, value in hidden.items():
        check_secret_value(name, types[name], value)
    named = {**given, **hidden, **built_in(_facts(order, node, ""))}
    address = substitute(order.plan.host_address, named).text if order.plan else ""
    return Values(all={**named, **built_in(_facts(order, node, address))}, secret=frozenset(hidden))


def secrets_now(order: StartOrder, node: NodeFacts, secrets: Secrets) -> SecretMask:
    """The secrets of an order as far as they can be looked up at this moment. Blocks for them."""
    if order.plan is None:
        return SecretMask()
    types = order.plan.variable_types
    planned = {**defaults(types), **order.plan.variables}
    given = run_variables(planned, node_labels=node.labels, instance=order.variables, built_in={})
    found = {}
    for name, reference in secrets_among(types, given).items():
        with contextlib.suppress(CorralError):
            found[name] = secrets.value(reference, name=name)
    return SecretMask(found)


def probed_address(order: StartOrder, node: NodeFacts) -> str:
    """Where its group says that a workload listens; empty: nowhere in particular."""
    if order.plan is None:
        return ""
    known = run_variables(
        order.plan.variables,
        node_labels=node.labels,
        instance=order.variables,
        built_in=built_in(_facts(order, node, "")),
    )
    return substitute(order.plan.host_address, known).text


def _facts(order: StartOrder, node: NodeFacts, host_address: str) -> InstanceFacts:
    api = urllib.parse.urlsplit(order.api_url)
    return InstanceFacts(
        instance_id=order.instance_id,
        group=order.group,
        node_id=node.node_id,
        node_address=node.address,
        host_address=host_address,
        controller_address=api.hostname or "",
        controller_api_port=api.port or 0,
        port=order.primary_port,
        ports={port.name: port.port for port in order.ports},
        memory_mb=order.limits.memory_mb,
        max_players=order.max_players,
    )


def unresolved_error(names: Iterable[str], where: str) -> Rejected:
    shown = ", ".join(f"%{name}%" for name in dict.fromkeys(names))
    return Rejected(
        Code.VARIABLE_UNRESOLVED,
        f"{where}: nobody defines {shown}",
        hint="define it in the group, a template or the start, or turn strict_variables off",
    )
