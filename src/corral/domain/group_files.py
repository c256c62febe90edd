"""What a group says about the files of its instances: templates, merges, patches, artifacts, extensions."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import msgspec

from corral.domain.spec import Digest, PathText, Spec


class TemplateChoice(Spec, frozen=True, kw_only=True):
    """A template, or a group of templates, among those a group is made of."""

    name: Annotated[str, msgspec.Meta(max_length=127)]
    """`name` or `group/name`; in the lists of groups the group's name."""
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] = 0
    override: bool = True
    """False: a file that is there already stays."""


class TemplateSelection(Spec, frozen=True, kw_only=True):
    """Templates beside the ordered chain. Picks are sorted by priority, ties by name, and follow the chain."""

    all_of: tuple[TemplateChoice, ...] = ()
    all_in_groups: tuple[TemplateChoice, ...] = ()
    one_of: tuple[TemplateChoice, ...] = ()
    """Those of the highest priority; among equals one is drawn, and the draw recorded."""
    one_in_groups: tuple[TemplateChoice, ...] = ()
    """The same, over the templates of these groups; each has the priority of its group."""


class PatchOp(enum.StrEnum):
    SET = "set"
    """The key gets the value, whether it was there or not."""
    REPLACE = "replace"
    """The key, which must be there, gets the value."""
    REGEX = "regex"
    """`path` is a pattern (RE2) over the file's text; every match becomes `value`, with `\\1` for groups."""


class PatchSpec(Spec, frozen=True, kw_only=True):
    """A change of a configuration file: properties, YAML, JSON or TOML by its ending, or by `format`."""

    file: PathText
    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    """`a.b.c`, `a.0.b` for lists, `a."b.c"` for a key with a dot; a whole key in properties."""
    op: PatchOp = PatchOp.SET
    value: Any = ""
    format: Annotated[str, msgspec.Meta(pattern="^(|properties|yaml|json|toml|text)$")] = ""


class Category(enum.StrEnum):
    NONE = ""
    SERVER = "server"
    PROXY = "proxy"


class ConfigFormat(enum.StrEnum):
    NONE = ""
    PAPER = "paper"
    SPIGOT = "spigot"
    VELOCITY = "velocity"
    BUNGEECORD = "bungeecord"
    GEYSER = "geyser"


class ArtifactSpec(Spec, frozen=True, kw_only=True):
    """The program of an instance, brought to the node: an entry of the catalog, or a URL with its digest."""

    platform: Annotated[str, msgspec.Meta(max_length=63)] = ""
    version: Annotated[str, msgspec.Meta(max_length=63)] = ""
    """With `platform`: the entry of the catalog."""
    url: Annotated[str, msgspec.Meta(max_length=2048)] = ""
    sha256: Digest = ""
    """With `url`, and needed then."""
    file: PathText = ""
    """Its place in the working directory; empty: the catalog's file name, or the last part of the URL."""


class ExtensionSpec(Spec, frozen=True, kw_only=True):
    """A file that goes into a group's instances, such as a plugin: an artifact of the group's own, or what an
    installed module brings under this id."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    variant: Annotated[str, msgspec.Meta(max_length=63)] = ""
    """Of a module's extension: this one and no other. Of an artifact: a word for people."""
    module: Annotated[str, msgspec.Meta(max_length=63)] = ""
    """Who brings it, needed where there is no artifact; empty: the group."""
    artifact: ArtifactSpec | None = None
    """None: the module's own file."""
    install_path: PathText | None = None
    """The directory an artifact goes to, and needed with one; its file name is the artifact's. Where a
    module's own file goes, its manifest says."""


class JvmSpec(Spec, frozen=True, kw_only=True):
    """A Java program: used when a group has no `command`."""

    jar: PathText = ""
    """Relative to the working directory; empty: the artifact's file."""
    args: tuple[Annotated[str, msgspec.Meta(max_length=131_072)], ...] = ()
    """Of the virtual machine; the program's own are the group's `args`."""
    java: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    """The `java` to use; empty: the node's configured or found one."""
    heap_mb: Annotated[int, msgspec.Meta(ge=0, le=16_777_216)] = 0
    """-Xms and -Xmx; 0: four fifths of `memory_mb`, for a machine needs more than its heap."""


class WarmupSpec(Spec, frozen=True, kw_only=True):
    """What a first run of a program makes and later ones need not make again."""

    paths: tuple[PathText, ...] = ()
    """Globs; kept by the node for (group, user, these paths, config format, version, artifact digest), of
    instances with a user of their own. Empty: nothing is."""
