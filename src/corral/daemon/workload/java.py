"""Java for workloads that are jars: which executable, its command, and the arguments of the `java` launcher: which of
them name the program, and which belong together."""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Sequence
from typing import Final

from corral.domain.groups.plans import PlanJvm
from corral.errors import Code, Rejected

_HEAP_WORDS: Final = ("-Xmx", "-Xms", "-XX:MaxRAMPercentage", "-XX:InitialRAMPercentage")
_SHOWN: Final = 200
_SEARCH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find_java(requested: str, configured: str) -> str:
    """The group's executable, else the node's, else the one on PATH; JAVA_NOT_FOUND lists the places searched.
    Blocks."""
    name = requested or configured or "java"
    if os.sep in name:
        found = name if os.path.isfile(name) and os.access(name, os.X_OK) else None  # noqa: PTH113 - raises nothing
    else:
        home = os.environ.get("JAVA_HOME")
        places = [f"{home}/bin"] if home else []
        found = shutil.which(name, path=os.pathsep.join([*places, os.environ.get("PATH", ""), _SEARCH]))
    if found is None:
        raise Rejected(
            Code.JAVA_NOT_FOUND,
            f"there is no Java '{name[:_SHOWN]}' on this node",
            hint="install one, or name it by java.path in the daemon's config or jvm.java of the group",
            field="jvm/java" if requested else None,
        )
    return found


def java_command(jvm: PlanJvm, java: str, args: Sequence[str]) -> tuple[str, ...]:
    """The command with the heap of the plan, unless the group's own arguments set the heap."""
    heap: tuple[str, ...] = ()
    if jvm.heap_mb and not any(arg.startswith(_HEAP_WORDS) for arg in jvm.args):
        heap = (f"-Xms{jvm.heap_mb}M", f"-Xmx{jvm.heap_mb}M")
    return (java, *heap, *jvm.args, "-jar", jvm.jar, *args)


Unit = tuple[str, ...]
"""Arguments that belong together: a single one, or an option with the value after it."""

PAIRED: Final = frozenset(
    {
        "--add-opens",
        "--add-exports",
        "--add-modules",
        "--add-reads",
        "--patch-module",
        "--limit-modules",
        "--module-path",
        "-p",
        "--upgrade-module-path",
        "--enable-native-access",
    }
)
"""Options whose value is the next argument, unless it is written behind an `=`."""
_NAMES_THE_PROGRAM: Final = frozenset({"-jar", "-m", "--module"})
_OTHER_PAIRED: Final = frozenset({"-cp", "-classpath", "--class-path", "--source", "-d", "--describe-module"})
_ALL_PAIRED: Final = PAIRED | _OTHER_PAIRED | _NAMES_THE_PROGRAM
_REFUSED: Final = _NAMES_THE_PROGRAM | _OTHER_PAIRED
_REFUSED_BEGINNINGS: Final = (
    "--class-path=",
    "--module=",
    "--source=",
    "--describe-module=",
    "-Djava.class.path",
    "-Djdk.module.main",
    "-XX:Flags",
    "-XX:VMOptionsFile",
    "-Xoptionsfile",
)
"""Other spellings of the refused options, and files of arguments."""


_SIZES: Final = ("-Xmx", "-Xms", "-Xmn", "-Xss")
_COLLECTED: Final = frozenset(
    {"CompileCommand", "CompileOnly", "ControlIntrinsic", "DisableIntrinsic", "OnError", "OnOutOfMemoryError"}
)
"""Flags of which each one counts, and not the last alone."""


def is_java(program: str) -> bool:
    return posixpath.basename(program) == "java"


def units(args: Sequence[str]) -> tuple[Unit, ...]:
    """The units of `args`; joined again they are `args`."""
    found: list[Unit] = []
    position = 0
    while position < len(args):
        size = 2 if args[position] in _ALL_PAIRED and position + 1 < len(args) else 1
        found.append(tuple(args[position : position + size]))
        position += size
    return tuple(found)


def refusal(unit: Unit) -> str:
    """Why a module may not add this; empty: it may."""
    word = unit[0]
    if word.startswith("@") or (len(unit) > 1 and unit[1].startswith("@")):
        return "a file of arguments (@file)"
    if word in _REFUSED or word.startswith(_REFUSED_BEGINNINGS):
        return f"'{word[:80]}', which names what is run"
    if not word.startswith("-"):
        return f"'{word[:80]}', which is no option and would be run"
    if word in PAIRED and (len(unit) == 1 or unit[1].startswith("-") or not unit[1]):
        return f"'{word}' without its value"
    return ""


def setting_of(unit: Unit) -> str:
    """The setting of an option of which the last one in a command counts; empty: it can be repeated."""
    word = unit[0]
    if word.startswith("-D"):
        return word.partition("=")[0]
    if word.startswith("-XX:"):
        name = word.removeprefix("-XX:").lstrip("+-").partition("=")[0]
        return "" if name in _COLLECTED else f"-XX:{name}"
    return next((size for size in _SIZES if word.startswith(size)), "")


def launcher_part(args: Sequence[str]) -> int | None:
    """How many of the arguments after `java` are the launcher's, up to the program; None: there is no program."""
    position = 0
    while position < len(args):
        word = args[position]
        if word in _NAMES_THE_PROGRAM:
            return min(position + 2, len(args))
        if word.startswith("--module="):
            return position + 1
        if not word.startswith(("-", "@")):
            return position + 1
        position += 2 if word in _ALL_PAIRED else 1
    return None
