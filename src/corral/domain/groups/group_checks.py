"""Checks of a group that its types cannot express: a group that could never work is refused before it is
stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from corral.domain.control_characters import refuse_control
from corral.domain.file_paths import check_glob, check_path
from corral.domain.groups.artifacts import check_artifact
from corral.domain.groups.config_patches import check_patch
from corral.domain.groups.disconnect_spec import check_disconnect
from corral.domain.groups.group import (
    BLOCKED_VARIABLES,
    NODE_CAPABILITIES,
    RESERVED_PREFIX,
    RUNTIMES,
    SIGNALS,
    ExtensionSpec,
    GroupSpec,
    Isolation,
    JvmSpec,
)
from corral.domain.groups.placement_checks import check_placement
from corral.domain.groups.port_sets import check_ports
from corral.domain.groups.probes import check_probes
from corral.domain.groups.scaling_spec import check_bypass, check_maintenance, check_scaling
from corral.domain.groups.update_spec import check_update
from corral.domain.groups.variable_checks import check_declaration, check_names, check_values
from corral.domain.ids import checked_name, group_name, node_id
from corral.domain.sensitive_fields import refuse_hidden
from corral.domain.spec import invalid
from corral.domain.templates import template_name
from corral.errors import Code, Rejected, unknown_choice

_MAX_ARGUMENT: Final = 128 * 1024
MAX_NAME: Final = 56
"""So that `NAME-NUMBER` is a valid instance id."""
MAX_USER: Final = 64
_LAST_UID: Final = 4_294_967_294
_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9._:\[\]-]|%[A-Z][A-Z0-9_]*%)*")


class MapBound(NamedTuple):
    """How many entries a map of a group may have, and how many characters their keys and values."""

    entries: int
    key: int
    value: int


MAP_BOUNDS: Final[Mapping[str, MapBound]] = {
    "labels": MapBound(64, 128, 1024),
    "node_labels": MapBound(64, 63, 255),
    "properties": MapBound(1000, 128, 131_072),
    "env": MapBound(1000, 256, 131_072),
    "variable_types": MapBound(1000, 128, 0),
    "ports": MapBound(64, 63, 0),
}


def check_group(spec: GroupSpec) -> GroupSpec:
    """Refuse a group that cannot work, with the field."""
    for error in group_faults(spec):
        raise error
    return spec


def group_faults(spec: GroupSpec) -> Iterator[Rejected]:
    """Everything that `check_group` refuses, the first of each check that does not list more."""
    for check in _CHECKS:
        try:
            check(spec)
        except Rejected as error:
            yield error
    yield from check_placement(spec)


def _check_bounds(spec: GroupSpec) -> None:
    for field, bound in MAP_BOUNDS.items():
        _check_bound(field, getattr(spec, field), bound)


def _check_name(spec: GroupSpec) -> None:
    group_name(spec.name)
    if len(spec.name) > MAX_NAME:
        raise invalid("name", f"it has {len(spec.name)} characters", f"use at most {MAX_NAME}")


def _check_program(spec: GroupSpec) -> None:
    if spec.runtime not in RUNTIMES:
        raise unknown_choice("runtime", spec.runtime[:80], RUNTIMES, code=Code.INVALID_FIELD, field="runtime")
    if not spec.command and spec.jvm is None and not spec.abstract:
        raise invalid("command", "a group needs a command, or a jvm", 'for example ["python3", "server.py"]')


def _check_counts(spec: GroupSpec) -> None:
    if spec.max is not None and spec.max < spec.min:
        raise invalid("max", f"max {spec.max} is less than min {spec.min}", "raise max, or leave it out")
    floor = spec.min_available
    scheduled = any(each.max is not None for each in spec.schedules)
    if isinstance(floor, int) and spec.max is not None and floor > spec.max and not scheduled:
        what = f"{floor} can never be available: max is {spec.max}"
        raise invalid("min_available", what, "lower it, write a share such as 50%, or raise max")


def _check_bound(field: str, entries: Mapping[str, object], bound: MapBound) -> None:
    if len(entries) > bound.entries:
        raise invalid(field, f"it has {len(entries)} entries", f"use at most {bound.entries}")
    for name, value in entries.items():
        if not name:
            raise invalid(field, "a key of it is empty", "name each entry")
        if len(name) > bound.key:
            raise invalid(
                field, f"the key '{name[:40]}…' has {len(name)} characters", f"use at most {bound.key}"
            )
        if isinstance(value, str) and len(value) > bound.value:
            raise invalid(
                f"{field}/{name}", f"its value has {len(value)} characters", f"use at most {bound.value}"
            )


def _check_texts(spec: GroupSpec) -> None:
    texts = [("command", spec.command), ("args", spec.args)]
    if spec.jvm is not None:
        texts.append(("jvm/args", spec.jvm.args))
    for field, values in texts:
        for position, value in enumerate(values):
            _check_text(f"{field}/{position}", value)
    if spec.command and not spec.command[0]:
        raise invalid("command/0", "the program has no name", "name a program or its path")
    for name, value in spec.env.items():
        if not name or "=" in name or "\0" in name or len(name) > 256:
            raise invalid("env", f"'{name[:80]}' cannot be the name of a variable", "use A-Z, 0-9 and _")
        if name in BLOCKED_VARIABLES or name.startswith(RESERVED_PREFIX):
            raise invalid(f"env/{name[:80]}", f"'{name[:80]}' may not be set", "choose another name")
        _check_text(f"env/{name}", value)
    if _ADDRESS.fullmatch(spec.host_address) is None:
        raise invalid(
            "host_address",
            f"{spec.host_address[:80]!r} is no address",
            'for example "0.0.0.0" or "%LABEL_IP%"',
        )


def _check_text(field: str, value: str) -> None:
    if "\0" in value:
        raise invalid(field, "it holds a NUL character", "leave it out")
    if len(value.encode(errors="surrogatepass")) > _MAX_ARGUMENT:
        raise invalid(field, "it is longer than 128 KiB", "put long values into a file")


def _check_labels(spec: GroupSpec) -> None:
    for field in ("labels", "node_labels"):
        for key, value in getattr(spec, field).items():
            refuse_control(key, f"{field}/{key}")
            refuse_control(value, f"{field}/{key}")


def _check_user(spec: GroupSpec) -> None:
    """Refuse a user that no node could run as; which accounts exist, and which may be used, is checked on the
    node."""
    user = spec.run_as
    if len(user) > MAX_USER or not user.isprintable() or any(mark in user for mark in ":/ "):
        raise invalid("run_as", f"{user[:MAX_USER]!r} is no user name", f"use at most {MAX_USER} characters")
    if user.isdecimal() and (not user.isascii() or int(user) > _LAST_UID):
        raise invalid("run_as", f"there is no user id {user}", "name an account of the node")
    if user and spec.isolate is Isolation.UID:
        raise invalid(
            "isolate",
            "`uid` gives each instance a user of its own, and run_as names one",
            "leave one of them out",
        )


def _check_stop(spec: GroupSpec) -> None:
    for position, rung in enumerate(spec.stop):
        field = f"stop/{position}"
        if (rung.command is None) == (rung.signal is None):
            raise invalid(field, "a rung is either a command or a signal", '{"signal": "SIGTERM"}')
        if rung.signal is not None and rung.signal not in SIGNALS:
            raise unknown_choice(
                "signal", rung.signal[:80], SIGNALS, code=Code.INVALID_FIELD, field=f"{field}/signal"
            )
        if rung.command is not None and ("\n" in rung.command or "\0" in rung.command):
            raise invalid(f"{field}/command", "a command is one line", "use one rung a line")


def _check_variables(spec: GroupSpec) -> None:
    """The group's own layer by the group's own declarations; templates join in when a plan is resolved."""
    check_names(spec.variables, field="variables")
    for name, declaration in spec.variable_types.items():
        check_declaration(name, declaration, field=f"variable_types/{name[:80]}")
    check_values(spec.variable_types, spec.variables)
    for name, value in spec.properties.items():
        if "\0" in value:
            raise invalid(f"properties/{name[:80]}", "it holds a NUL character", "leave it out")


def _check_nodes(spec: GroupSpec) -> None:
    for position, id in enumerate(spec.nodes):
        node_id(id, field=f"nodes/{position}")
    for position, name in enumerate(spec.node_capabilities):
        if name not in NODE_CAPABILITIES:
            raise unknown_choice(
                "node capability",
                name[:80],
                NODE_CAPABILITIES,
                code=Code.INVALID_FIELD,
                field=f"node_capabilities/{position}",
            )


def check_group_files(spec: GroupSpec) -> None:
    """Refuse names, paths and globs that could never be valid. Whether they exist is looked up with the plan."""
    _check_templates(spec)
    _check_globs("substitute", spec.substitute)
    _check_globs("merge", spec.merge)
    _check_globs("protected_paths", spec.protected_paths)
    _check_globs("warmup/paths", spec.warmup.paths)
    for position, patch in enumerate(spec.patches):
        check_patch(patch, field=f"patches/{position}")
    if spec.artifact is not None:
        check_artifact(spec.artifact, field="artifact")
    for position, extension in enumerate(spec.extensions):
        _check_extension(extension, f"extensions/{position}")
    if spec.jvm is not None:
        _check_jvm(spec, spec.jvm)


def install_directory(extension: ExtensionSpec) -> str:
    """Without a `/` at its end; empty: the working directory itself."""
    directory = (extension.install_path or "").rstrip("/")
    return "" if directory == "." else directory


def _check_templates(spec: GroupSpec) -> None:
    for position, name in enumerate(spec.templates):
        template_name(name, field=f"templates/{position}")
    selection = spec.template_selection
    for kind in ("all_of", "one_of"):
        for position, choice in enumerate(getattr(selection, kind)):
            template_name(choice.name, field=f"template_selection/{kind}/{position}/name")
    for kind in ("all_in_groups", "one_in_groups"):
        for position, choice in enumerate(getattr(selection, kind)):
            checked_name(choice.name, "template group", f"template_selection/{kind}/{position}/name")


def _check_globs(field: str, globs: Iterable[str]) -> None:
    for position, glob in enumerate(globs):
        check_glob(glob, field=f"{field}/{position}")


def _check_extension(extension: ExtensionSpec, field: str) -> None:
    if "/" in extension.id or not extension.id.isprintable():
        raise invalid(
            f"{field}/id", f"{extension.id!r} is not an id", "use letters, digits, '.', '_' and '-'"
        )
    if extension.artifact is None:
        _check_request(extension, field)
        return
    check_artifact(extension.artifact, field=f"{field}/artifact")
    if extension.install_path is None:
        raise _missing(f"{field}/install_path", "say which directory the artifact goes to")
    if extension.install_path.startswith("/"):
        check_path(extension.install_path, field=f"{field}/install_path")
    if directory := install_directory(extension):
        check_path(directory, field=f"{field}/install_path")


def _check_request(extension: ExtensionSpec, field: str) -> None:
    """Check a request for a module's extension; whether there is such a module is looked up with the plan."""
    if not extension.module:
        raise _missing(f"{field}/artifact", "give an artifact, or the module that brings the extension")
    if extension.install_path is not None:
        raise invalid(f"{field}/install_path", "the module says where its extension goes", "leave it out")


def _missing(field: str, hint: str) -> Rejected:
    return Rejected(Code.MISSING_FIELD, f"field '{field}' is missing", hint=hint, field=field)


def _check_jvm(spec: GroupSpec, jvm: JvmSpec) -> None:
    if spec.command:
        raise invalid("jvm", "a group has a command or a jvm", "leave one of them out")
    if jvm.jar:
        check_path(jvm.jar, field="jvm/jar")
    elif spec.artifact is None and not spec.abstract:
        raise invalid(
            "jvm/jar",
            "there is neither a jar nor an artifact",
            "name the jar of a template, or add an artifact",
        )
    if "\0" in jvm.java:
        raise invalid("jvm/java", "it holds a NUL character", "leave it out")
    if spec.memory_mb and jvm.heap_mb > spec.memory_mb:
        raise invalid(
            "jvm/heap_mb",
            f"a heap of {jvm.heap_mb} MB does not fit into memory_mb {spec.memory_mb}",
            "make it smaller, or leave it out for four fifths of memory_mb",
        )


_CHECKS: Final[tuple[Callable[[GroupSpec], object], ...]] = (
    _check_bounds,
    _check_name,
    _check_program,
    _check_texts,
    _check_labels,
    _check_user,
    _check_counts,
    lambda spec: check_scaling(
        spec.scaling, spec.schedules, max_players=spec.max_players, static=spec.static
    ),
    lambda spec: check_maintenance(spec.maintenance),
    lambda spec: check_bypass(spec.maintenance, spec.schedules),
    lambda spec: check_ports(spec.ports),
    _check_stop,
    lambda spec: check_disconnect(
        spec.disconnect, ladder=(rung.wait_seconds for rung in spec.stop), static=spec.static
    ),
    lambda spec: check_update(spec.update, static=spec.static),
    _check_variables,
    check_group_files,
    lambda spec: check_probes(spec.probes, spec.ports.keys()),
    lambda spec: refuse_hidden(spec, field="document"),
    _check_nodes,
)
"""In this order; none depends on what another one finds."""
