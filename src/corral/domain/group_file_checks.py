"""What the types cannot say about the files of a group's instances."""

from __future__ import annotations

from collections.abc import Iterable

from corral.domain.artifacts import check_artifact
from corral.domain.file_paths import check_glob, check_path
from corral.domain.group_files import ExtensionSpec, JvmSpec
from corral.domain.groups import GroupSpec
from corral.domain.ids import checked_name
from corral.domain.patches import check_patch
from corral.domain.spec import invalid
from corral.domain.templates import template_name
from corral.errors import Code, Rejected


def check_group_files(spec: GroupSpec) -> None:
    """Refuse names, paths and globs that could never be right. What exists is looked up with the plan."""
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
    """It asks for what a module brings; whether there is such a module is looked up with the plan."""
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
    elif spec.artifact is None:
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
