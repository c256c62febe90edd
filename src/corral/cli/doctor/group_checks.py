"""Checks of groups in files: whether their instances can start, be found ready and be counted, here and in the cluster."""

from __future__ import annotations

import functools
import os
import pathlib
import shlex
import shutil
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

from corral.cli.apply import error_lines
from corral.cli.doctor.cluster_view import ClusterView
from corral.cli.doctor.findings import Looks, Verdict, advice, error, ok
from corral.cli.doctor.node_programs import GAMES
from corral.daemon.cache.download_targets import check_host, parse_target
from corral.daemon.workload.environment import PATH
from corral.daemon.workload.java import find_java
from corral.domain.groups.document_sets import name_of, resolve_set
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.inheritance import parent_of
from corral.domain.groups.port_sets import port_sets
from corral.domain.groups.probes import ProbeKind
from corral.errors import counted, short_list
from corral.system.daemon_config import node_id_of_host
from corral.system.document_sets import DocumentSet

_SHOWN: Final = 4
_PRIVILEGED: Final = 1024
WHY: Final = {
    "document": "'corral apply' refuses it, and all others of the same set with it.",
    "command": f"Instances end at once. They look for programs in {PATH}.",
    "artifact": "Instances cannot start without their program.",
    "ports": "Each instance of a node needs numbers of its own: more of them need more nodes, or wait.",
    "templates": "Instances cannot start without their files.",
    "nodes": "Instances wait until there is such a node.",
    "limits": "Nothing is reserved, and nothing limited: a node is given instances until its memory runs out.",
    "readiness": "A deployment goes on as soon as new instances are ready, and takes those back that never are.",
    "players": "Deployments and drains end instances without waiting for who plays. A Minecraft server is asked by "
    "'probes: [{kind: minecraft}]'; others report with POST /api/v1/workload/players.",
}


def group_looks(
    path: str, found: DocumentSet, view: ClusterView, allow_hosts: Sequence[str]
) -> dict[str, Looks]:
    """The checks of each group, by its name; of what has none, by the empty one. `allow_hosts`: where this machine's daemon
    may download from, if not from everywhere."""
    named = {name_of(each.body): each for each in found.documents if isinstance(each.body, dict)}
    nameless = [f"{each.path}: there is no 'name'" for each in found.documents if not name_of(each.body)]
    broken = [*(f"{each.path}: {each.message}" for each in found.faults), *nameless]
    named.pop("", None)
    looks: dict[str, Looks] = {"": {"document": lambda: document(path, broken)}} if broken else {}
    if not named:
        return looks
    documents = {**view.parents, **{name: each.body for name, each in named.items()}}
    specs, faults = resolve_set(list(named), documents)
    details: Sequence[Mapping[str, Any]] = view.refused or [
        {
            "group": name,
            "path": named[name].path,
            "field": fault.field,
            "message": fault.message,
            "hint": fault.hint,
        }
        for name, fault in faults
        if name in named
    ]
    for name, each in named.items():
        parent = parent_of(each.body)
        if view.problem and parent and parent not in documents:
            what = f"what it inherits from '{parent}', which is not among the files"
            looks[name] = {"document": functools.partial(_not_asked, view, what)}
            continue
        lines = error_lines([fault for fault in details if fault["group"] == name], found.documents)
        spec = specs.get(name)
        looks[name] = {
            "document": functools.partial(document, path, lines),
            **(_spec_looks(spec, view, allow_hosts) if spec is not None and not spec.abstract else {}),
        }
    return looks


def _spec_looks(spec: GroupSpec, view: ClusterView, allow_hosts: Sequence[str]) -> Looks:
    ids = [each["id"] for each in view.nodes]
    return {
        "command": lambda: command(spec, here=not ids or node_id_of_host(socket.gethostname()) in ids),
        "artifact": lambda: artifact(spec, view, allow_hosts),
        "ports": lambda: ports(spec),
        "templates": lambda: templates(spec, view),
        "nodes": lambda: nodes(spec, view),
        "limits": lambda: limits(spec),
        "readiness": lambda: readiness(spec),
        "players": lambda: players(spec),
    }


def document(path: str, faults: Sequence[str]) -> Verdict:
    return error("\n".join(faults), f"corral diff -f {shlex.quote(path)}") if faults else ok("valid")


def command(spec: GroupSpec, *, here: bool) -> Verdict:
    """`here`: this machine is a node, as far as is known."""
    if not spec.command:
        return ok(find_java(spec.jvm.java if spec.jvm else "", ""))
    program = spec.command[0]
    if "%" in program or ("/" in program and not program.startswith("/")):
        return ok(f"{program}, which comes with the files of an instance")
    if found := shutil.which(program, path=spec.env.get("PATH", PATH)):
        return ok(found)
    wrong, where = (
        (error, "this machine") if here else (advice, "this machine, which is no node of the cluster")
    )
    if program.startswith("/"):
        reason = "may not be executed" if pathlib.Path(program).exists() else "does not exist"
        return wrong(f"{program} {reason} on {where}", f"ls -l {program}")
    elsewhere = shutil.which(program, path=os.pathsep.join(map(str, GAMES)))
    if elsewhere:
        return wrong(f"instances do not find '{program}' on {where}: write 'command: [{elsewhere}, …]'")
    return wrong(f"there is no program '{program}' on {where}", f"command -v {program}")


def artifact(spec: GroupSpec, view: ClusterView, allow_hosts: Sequence[str]) -> Verdict:
    wanted = spec.artifact
    if wanted is None:
        return ok("none: the program is on the node, or in a template")
    if wanted.url:
        target = parse_target(wanted.url)
        check_host(target, allow_hosts)
        if target.scheme == "https":
            return ok(f"{target.shown}, with its digest")
        why = "Its digest is checked, but anybody on the way sees what is fetched, and can hold it up."
        return advice(f"{target.shown} is fetched without TLS", f"curl -I https{wanted.url[4:]}", why)
    entry = f"{wanted.platform}/{wanted.version}"
    if view.problem:
        return _not_asked(view, f"whether the catalog has {entry}")
    if entry in view.programs:
        return ok(f"{entry}, of the catalog")
    return error(
        f"the catalog has no {entry}", f"corral catalog add {wanted.platform} {wanted.version} --file FILE"
    )


def ports(spec: GroupSpec) -> Verdict:
    most = spec.max if spec.max is not None else max(spec.min, 1)
    most += spec.warm + spec.update.surge(most, spec.static)
    for each in port_sets(spec.ports):
        room, span = each.high - each.low + 1, f"{each.low} to {each.high}"
        if each.low < _PRIVILEGED:
            why = "Only root may listen there, and instances run as other users."
            lift = f"sysctl -w net.ipv4.ip_unprivileged_port_start={each.low}"
            return advice(f"port '{each.name}' is below {_PRIVILEGED}", lift, why)
        if room < most:
            numbers, instances = counted(room, "number"), counted(most, "instance")
            return advice(
                f"port '{each.name}' has {numbers} ({span}) for up to {instances}, those of a deployment included"
            )
    return ok(
        f"{', '.join(spec.ports)}: enough for {counted(most, 'instance')} on a node" if spec.ports else "none"
    )


def templates(spec: GroupSpec, view: ClusterView) -> Verdict:
    choice = spec.template_selection
    names = [*spec.templates, *(each.name for each in (*choice.all_of, *choice.one_of))]
    if names and view.problem:
        return _not_asked(view, f"whether there are {short_list(names, _SHOWN)}")
    if missing := [name for name in names if name not in view.templates]:
        return error(
            f"there is no template {short_list(missing, _SHOWN)}", f"corral template upload {missing[0]} DIR"
        )
    return ok(short_list(names, _SHOWN) or "none")


def nodes(spec: GroupSpec, view: ClusterView) -> Verdict:
    """Whether a node can take an instance at all, whatever runs there now."""
    if view.problem:
        return _not_asked(view, "which nodes can take an instance")
    left = list(view.nodes)
    for what, fits in (
        (f"is {' or '.join(spec.nodes)}", lambda node: not spec.nodes or node["id"] in spec.nodes),
        (
            f"has the labels {spec.node_labels}",
            lambda node: spec.node_labels.items() <= node["labels"].items(),
        ),
        (f"has the runtime {spec.runtime}", lambda node: spec.runtime in node["runtimes"]),
        (f"has {spec.memory_mb} MB of memory", lambda node: node["memory_mb"] >= spec.memory_mb),
        (f"has {spec.cpu:g} processors", lambda node: node["cpus"] >= spec.cpu),
        ("is online", lambda node: node["state"] == "ONLINE"),
    ):
        before, left = left, [node for node in left if fits(node)]
        if not left:
            among = short_list((node["id"] for node in before), _SHOWN) or "there is none at all"
            return error(f"no node {what} ({among})", "corral node list -o wide")
    return ok(f"{counted(len(left), 'node')}: {short_list((node['id'] for node in left), _SHOWN)}")


def limits(spec: GroupSpec) -> Verdict:
    if not spec.memory_mb:
        return advice(
            "memory_mb is not set", f"echo 'memory_mb: 1024' | corral group update {spec.name} -f -"
        )
    if spec.jvm and spec.jvm.heap_mb >= spec.memory_mb:
        why = "Java needs memory beside its heap, and is ended when that fills. Without heap_mb it gets four fifths."
        return error(f"jvm.heap_mb is {spec.jvm.heap_mb}, and memory_mb {spec.memory_mb}", "", why)
    return ok(f"{spec.memory_mb} MB" + (f", {spec.cpu:g} processors" if spec.cpu else ""))


def readiness(spec: GroupSpec) -> Verdict:
    timeout = spec.startup_timeout_seconds
    if late := [each.kind for each in spec.probes if each.interval_ms >= timeout * 1000]:
        why = "An instance is ended before it is found ready: raise startup_timeout_seconds, or lower interval_ms."
        return error(
            f"the {late[0]} probe runs less often than the startup timeout, {timeout:g} s, allows", "", why
        )
    if spec.probes or "primary" in spec.ports:
        return ok(", ".join(each.kind for each in spec.probes) or "when it listens on its primary port")
    return advice(
        f"without probe and port, an instance is ready once it has lived for {spec.min_alive_ms} ms"
    )


def players(spec: GroupSpec) -> Verdict:
    if any(each.kind is ProbeKind.MINECRAFT for each in spec.probes):
        return ok("counted by the minecraft probe")
    return advice("nothing here counts players") if spec.ports else ok("none: there is no port to join at")


def _not_asked(view: ClusterView, what: str) -> Verdict:
    return advice(
        f"not checked: {what}", "corral login URL", f"The cluster could not be asked: {view.problem}."
    )
