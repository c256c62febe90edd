"""Universe's `config.json` and `database.json`: what is left of them is settings of a controller or a daemon, and commands.

No value of `database.json` is ever shown.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Final, NamedTuple

from corral.domain.groups.variables import label_variables
from corral.domain.ids import node_id
from corral.domain.node_claims import check_labels
from corral.domain.permissions import Role
from corral.domain.universe.field_reports import (
    SHOWN,
    FieldAction,
    FieldFault,
    FieldReader,
    FieldReport,
    object_fault,
)
from corral.errors import Rejected

_API_PORT: Final = 8480
_LINK_PORT: Final = 8481
_LAST_PORT: Final = 65_535
_LOOPBACK: Final = "127.0.0.1"
_LONGEST_HOST: Final = 255
_HOST: Final = re.compile(r"[A-Za-z0-9._:\[\]%-]*")
_NO_PEERS: Final = "nodes do not connect to each other: daemons connect to the controller's 'grpc.listen'"
_STORE: Final = "Corral has a store of its own, made at its first start: 'corral controller --store'"
_ROLE: Final = "the role is the command: 'corral controller' or 'corral daemon'"
_CATALOG: Final = "corral catalog add PLATFORM VERSION --from URL --sha256 DIGEST"

DATABASE_FIELDS: Final = ("provider", "url", "host", "port", "database", "username", "password")


class ApiKey(NamedTuple):
    """A kind of Universe's API keys, and the token that is made in its place."""

    kind: str
    token: str
    role: Role


API_KEYS: Final = (
    ApiKey("ALL", "universe-all", Role.ADMIN),
    ApiKey("PUBLIC", "universe-public", Role.VIEWER),
)


class NodeFile(NamedTuple):
    """What becomes of a file about a node."""

    reports: list[FieldReport]
    faults: list[FieldFault]
    controller: dict[str, Any]
    """Settings of `corral controller`, nested as in its file."""
    daemon: dict[str, Any]
    commands: list[str]
    """Commands that do what a field did."""


def map_node_config(file: str, value: Any) -> NodeFile:
    """`config.json`: of a master for a controller, else for a daemon."""
    found = NodeFile([], [], {}, {}, [])
    if (fault := object_fault(file, value, '{"nodeId": …')) is not None:
        found.faults.append(fault)
        return found
    fields = FieldReader(file, value)
    master = fields.boolean("isMasterNode")
    is_master = master if master is not None else not fields.has("masterAddress")
    if master is not None:
        fields.dropped("isMasterNode", _ROLE)
    id = _read_node_id(fields, found)
    for field in ("address", "port"):
        if fields.raw(field) is not None:
            fields.dropped(field, _NO_PEERS)
    if fields.text("clusterName") is not None:
        fields.dropped("clusterName", "a cluster has an id, and no name")
    _read_addresses(fields, found, is_master=is_master)
    _read_master(fields, found, is_master=is_master)
    _read_debug(fields, found)
    _read_limits(fields, found, id or "NODE")
    _read_variables(fields, found)
    if fields.raw("updateSources") is not None:
        fields.dropped("updateSources", "programs are entries of the catalog, each with its digest", _CATALOG)
    fields.drop_unknown()
    found.reports.extend(fields.reports)
    found.faults.extend(fields.faults)
    return found


def _read_node_id(fields: FieldReader, found: NodeFile) -> str:
    written = fields.text("nodeId")
    if not written:
        return ""
    try:
        id = node_id(written.lower())
    except Rejected as error:
        fields.dropped(
            "nodeId", f"{written[:SHOWN]!r} cannot be the id of a node: {error.hint}", "daemon: node.id"
        )
        return ""
    found.daemon.setdefault("node", {})["id"] = str(id)
    fields.mapped("nodeId", "daemon: node.id", f"'{id}'")
    return str(id)


def _read_addresses(fields: FieldReader, found: NodeFile, *, is_master: bool) -> None:
    bind = _host(fields, "bindAddress")
    port = fields.integer("apiPort", low=1, high=_LAST_PORT)
    public = _host(fields, "publicAddress")
    if is_master and (bind or port):
        listen = _joined(bind or _LOOPBACK, port or _API_PORT)
        found.controller["http"] = {"listen": listen}
        for field, given in (("apiPort", port), ("bindAddress", bind)):
            if given:
                fields.mapped(field, "controller: http.listen", f"{listen}, without TLS")
    elif not is_master:
        for field, given in (("apiPort", port), ("bindAddress", bind)):
            if given:
                fields.dropped(field, "a daemon has no API, and listens nowhere")
    if public:
        found.daemon.setdefault("node", {})["advertise"] = public
        fields.mapped("publicAddress", "daemon: node.advertise", public)


def _read_master(fields: FieldReader, found: NodeFile, *, is_master: bool) -> None:
    address = _host(fields, "masterAddress")
    if address and is_master:
        fields.dropped("masterAddress", "this is the master")
    elif address:
        controller = _joined(address, _LINK_PORT)
        found.daemon["controllers"] = [controller]
        fields.mapped("masterAddress", "daemon: controllers", f"{controller}: the port is Corral's")
    if fields.raw("masterPort") is not None:
        fields.dropped("masterPort", f"daemons connect to 'grpc.listen' of the controller, port {_LINK_PORT}")
    if fields.raw("masterApiPort") is not None:
        fields.dropped("masterApiPort", "a daemon gets the address of the API from its controller")


def _read_debug(fields: FieldReader, found: NodeFile) -> None:
    debug = fields.boolean("debug")
    if debug:
        found.controller["log"] = {"level": "DEBUG"}
        found.daemon["log"] = {"level": "DEBUG"}
        fields.mapped("debug", "controller, daemon: log.level", "DEBUG; at run time 'corral logs level'")
    elif debug is not None:
        fields.dropped("debug", "INFO is the default of 'log.level'")


def _read_limits(fields: FieldReader, found: NodeFile, id: str) -> None:
    memory = fields.integer("maxRamMB", low=0, high=2**40)
    share = fields.number("maxCpu", low=0, high=10_000_000)
    options = []
    if memory:
        options.append(f"--memory-mb {memory}")
        fields.mapped("maxRamMB", f"corral node cap {id} --memory-mb {memory}")
    elif memory is not None:
        fields.dropped("maxRamMB", "0: all memory that the node reports counts")
    if share:
        cpus = max(1, int(share // 100))
        options.append(f"--cpus {cpus}")
        fields.mapped(
            "maxCpu", f"corral node cap {id} --cpus {cpus}", f"{share:g} of 100 a core, in whole cores"
        )
    elif share is not None:
        fields.dropped("maxCpu", "0: all cores that the node reports count")
    if options:
        found.commands.append(f"corral node cap {id} {' '.join(options)}")


def _read_variables(fields: FieldReader, found: NodeFile) -> None:
    values = fields.values("nodeSpecificVariables")
    if values == {}:
        fields.dropped("nodeSpecificVariables", "it is empty")
    labels: dict[str, str] = {}
    for name, value in (values or {}).items():
        field = f"nodeSpecificVariables.{name[:SHOWN]}"
        try:
            check_labels({**labels, name: value})
        except Rejected as error:
            fields.dropped(field, f"it cannot be a label of a node: {error.message}", "daemon: node.labels")
            continue
        labels[name] = value
        (variable,) = label_variables({name: value})
        fields.mapped(
            field, f"daemon: node.labels.{name}", f"write %{variable}% where it is used; no place for secrets"
        )
    if labels:
        found.daemon.setdefault("node", {})["labels"] = labels


def _host(fields: FieldReader, field: str) -> str:
    """A host name or address; empty: there is none, or none that could be one."""
    text = fields.text(field) or ""
    if len(text) > _LONGEST_HOST or not _HOST.fullmatch(text):
        fields.fault(field, "it is no host name or address", 'write one, such as "10.0.0.1"')
        return ""
    return text


def _joined(host: str, port: int) -> str:
    try:
        bare = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return f"{host}:{port}"
    return f"[{bare}]:{port}" if bare.version == 6 else f"{bare}:{port}"


def map_database(file: str, value: Any) -> NodeFile:
    """`database.json`: nothing of it is used. Each kind of its API keys becomes a new token."""
    found = NodeFile([], [], {}, {}, [])
    if (fault := object_fault(file, value, '{"provider": …')) is not None:
        found.faults.append(fault)
        return found
    fields = FieldReader(file, value)
    for field in DATABASE_FIELDS:
        if fields.raw(field) is not None:
            fields.dropped(field, _STORE)
    fields.drop_unknown()
    found.reports.extend(fields.reports)
    found.reports.extend(
        FieldReport(
            file=file,
            field=f"API keys {key.kind}",
            action=FieldAction.MAPPED,
            to=f"token '{key.token}' ({key.role})",
            note="keys are not carried over: a new one is made, unless there is one of this name",
        )
        for key in API_KEYS
    )
    return found
