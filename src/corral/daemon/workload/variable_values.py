"""Values of a run's variables, secrets included: computed for one start and never stored.

Secrets are read on the node at the last moment. A reference names a file in `DATA/secrets/`, or a variable of the
daemon's environment whose name begins with CORRAL_SECRET_. No error ever shows a value.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import urllib.parse
from collections.abc import Iterable, Mapping, Set
from typing import Final

import msgspec

from corral.daemon.workload.start_order import StartOrder
from corral.domain.file_paths import check_path
from corral.domain.groups.secret_masks import names_within
from corral.domain.groups.variable_checks import check_secret_reference, check_secret_value, check_values
from corral.domain.groups.variables import (
    INSTANCE_GROUPS,
    InstanceFacts,
    built_in,
    defaults,
    run_variables,
    secrets_among,
    substitute,
)
from corral.domain.patterns import compile_pattern
from corral.domain.spec import VariableSpec
from corral.errors import Code, CorralError, Rejected
from corral.system.log_mask import HIDDEN_VALUES
from corral.system.trees.entries import open_beneath, open_tree

_MAX_BYTES: Final = 64 * 1024


class Secrets:
    """Secrets of one node. Reading blocks for a moment: use a thread."""

    def __init__(self, directory: pathlib.Path, environ: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._environ = os.environ if environ is None else environ

    def value(self, reference: str, *, name: str) -> str:
        """The value of a secret; SECRET_UNAVAILABLE with the missing secret, its variable, and where it should be. From
        then on the value is masked in all logs of this process."""
        found = self._look_up(reference, name)
        HIDDEN_VALUES.add(found)
        return found

    def _look_up(self, reference: str, name: str) -> str:
        found = check_secret_reference(reference, field=f"variables/{name}")
        if found.kind == "env":
            if found.name not in self._environ:
                raise _unavailable(name, f"the daemon has no {found.name} in its environment", "set it there")
            return self._environ[found.name]
        return self._from_file(found.name, name)

    def _from_file(self, path: str, name: str) -> str:
        where = f"{self._directory}/{path}"
        try:
            checked = check_path(path, field=f"variables/{name}")
            with open_tree(self._directory) as root, open_beneath(root, checked) as descriptor:
                raw = os.read(descriptor, _MAX_BYTES + 1)
            if len(raw) > _MAX_BYTES:
                raise _unavailable(name, f"{where} is longer than 64 KiB", "secrets are short")
            return raw.decode().removesuffix("\n").removesuffix("\r")
        except OSError as error:
            why = f"{where} cannot be read: {error.strerror or error}"
            raise _unavailable(name, why, "put the secret there, readable for the daemon") from error
        except UnicodeDecodeError:
            raise _unavailable(name, f"{where} is no UTF-8", "store text there") from None
        except CorralError as error:
            if error.code is Code.SECRET_UNAVAILABLE:
                raise
            raise _unavailable(name, str(error), "name a file beneath the node's secrets/") from error


def _unavailable(name: str, why: str, hint: str) -> Rejected:
    return Rejected(
        Code.SECRET_UNAVAILABLE, f"the secret variable '{name}' has no value here: {why}", hint=hint
    )


_VARIABLE: Final = re.compile("%([A-Z][A-Z0-9_]{0,127})%")
_MAX_ENVIRONMENT: Final = 8 * 1024 * 1024
"""Above the kernel's limit for the environment of a program."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of the node that a preparation needs."""

    node_id: str
    address: str
    memory_mb: int
    labels: dict[str, str] = {}
    authority_file: str = ""
    """The certificate of the cluster's authority, readable for every workload."""


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """Values by variable; `secret` names those that only the workload may see."""

    all: dict[str, str]
    secret: frozenset[str] = frozenset()

    def shown(self, names: Iterable[str]) -> dict[str, str]:
        """The values of these variables that may be recorded."""
        return {name: self.all[name] for name in names if name in self.all and name not in self.secret}

    @property
    def secrets(self) -> dict[str, str]:
        return {name: self.all[name] for name in self.secret}


def resolve_values(order: StartOrder, node: NodeFacts, secrets: Secrets) -> Values:
    """The values for this start. Blocks for the secrets. VARIABLE_INVALID, SECRET_UNAVAILABLE."""
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


def secrets_now(order: StartOrder, node: NodeFacts, secrets: Secrets) -> dict[str, str]:
    """The secrets of an order as far as they can be read at this moment. Blocks for them."""
    if order.plan is None:
        return {}
    found = {}
    for name, reference in secrets_among(order.plan.variable_types, _given(order, node)).items():
        with contextlib.suppress(CorralError):
            found[name] = secrets.value(reference, name=name)
    return found


def secrets_of_process(order: StartOrder, node: NodeFacts, pid: int) -> list[dict[str, str]]:
    """The secrets that a living run received in its environment, even if they were changed since: those of each
    variable of the environment. Unreadable ones are missing. Blocks for a moment."""
    if order.plan is None:
        return []
    every = []
    given = _given(order, node)
    secret = secrets_among(order.plan.variable_types, given).keys()
    known = {**given, **built_in(_facts(order, node, probed_address(order, node)))}
    environment = _environment(pid)
    for variable, text in order.env.items():
        if variable in environment and names_within(text, secret):
            found = filled_in(text, environment[variable], known, secret)
            for value in found.values():
                HIDDEN_VALUES.add(value)
            every.append(found)
    return every


def filled_in(text: str, result: str, known: Mapping[str, str], secret: Set[str]) -> dict[str, str]:
    """The values of the secrets in `text`, which became `result`. Where they cannot be separated from the rest, the
    whole of it counts as the value of the first."""
    names: list[str] = []
    pattern = ""
    for position, piece in enumerate(_VARIABLE.split(text)):
        if position % 2 and piece in secret:
            names.append(piece)
            pattern += "((?s:.*?))"
        else:
            pattern += re.escape(known.get(piece, f"%{piece}%") if position % 2 else piece)
    with contextlib.suppress(CorralError):  # the text is too long for a pattern
        match = compile_pattern(pattern).fullmatch(result)
        if match is not None:
            return {name: match[group] or "" for group, name in enumerate(names, start=1)}
    return {names[0]: result}


def _environment(pid: int) -> dict[str, str]:
    """The environment that its process received; empty when it cannot be read."""
    try:
        with pathlib.Path(f"/proc/{pid}/environ").open("rb") as file:
            raw = file.read(_MAX_ENVIRONMENT)
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in raw.decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs}


def _given(order: StartOrder, node: NodeFacts) -> dict[str, str]:
    """The variables from its plan, its node and its start; for secrets their references."""
    assert order.plan is not None
    planned = {**defaults(order.plan.variable_types), **order.plan.variables}
    return run_variables(planned, node_labels=node.labels, instance=order.variables, built_in={})


def probed_address(order: StartOrder, node: NodeFacts) -> str:
    """The address on which the workload listens, as configured in its group; empty: none in particular."""
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
        controller_api_port=api.port or _DEFAULT_PORTS.get(api.scheme, 0),
        port=order.primary_port,
        ports={port.name: port.port for port in order.ports},
        memory_mb=order.limits.memory_mb,
        max_players=order.max_players,
        instance_groups=_defined(order, INSTANCE_GROUPS),
    )


def _defined(order: StartOrder, name: str) -> str:
    """The value of a variable from the start or its plan; empty: neither has it."""
    return order.variables.get(name) or (order.plan.variables.get(name, "") if order.plan else "")


def unresolved_error(names: Iterable[str], where: str) -> Rejected:
    shown = ", ".join(f"%{name}%" for name in dict.fromkeys(names))
    return Rejected(
        Code.VARIABLE_UNRESOLVED,
        f"{where}: nobody defines {shown}",
        hint="define it in the group, a template or the start, or turn strict_variables off",
    )
