"""Java for workloads that are jars: which one, and how it is called."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Final

from corral.domain.plans import PlanJvm
from corral.errors import Code, Rejected

_HEAP_WORDS: Final = ("-Xmx", "-Xms", "-XX:MaxRAMPercentage", "-XX:InitialRAMPercentage")
_SHOWN: Final = 200
_SEARCH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find_java(wanted: str, configured: str) -> str:
    """The group's, else the node's, else that on PATH; JAVA_NOT_FOUND says where was looked. Blocks."""
    name = wanted or configured or "java"
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
            field="jvm/java" if wanted else None,
        )
    return found


def java_command(jvm: PlanJvm, java: str, args: Sequence[str]) -> tuple[str, ...]:
    """With the heap of the plan, unless the group's own arguments speak of the heap."""
    heap: tuple[str, ...] = ()
    if jvm.heap_mb and not any(arg.startswith(_HEAP_WORDS) for arg in jvm.args):
        heap = (f"-Xms{jvm.heap_mb}M", f"-Xmx{jvm.heap_mb}M")
    return (java, *heap, *jvm.args, "-jar", jvm.jar, *args)
