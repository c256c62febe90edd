"""Can a probe ever succeed? What the types cannot say about probes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from corral.domain.patterns import compile_bytes
from corral.domain.probes import ProbeKind, ProbeSpec
from corral.domain.spec import invalid
from corral.errors import Code, unknown_choice

MAX_PROBES: Final = 32
_WITH_PORT: Final = frozenset({ProbeKind.TCP, ProbeKind.HTTP, ProbeKind.MINECRAFT, ProbeKind.LISTEN})


def check_probes(probes: Sequence[ProbeSpec], ports: Collection[str], *, field: str = "probes") -> None:
    """`ports`: the names of the group's ports."""
    if len(probes) > MAX_PROBES:
        raise invalid(field, f"{len(probes)} probes are more than {MAX_PROBES}", "leave some out")
    for position, probe in enumerate(probes):
        _check_probe(probe, ports, f"{field}/{position}")


def _check_probe(probe: ProbeSpec, ports: Collection[str], field: str) -> None:
    kind = probe.kind
    if kind is ProbeKind.LOG:
        if not probe.pattern:
            raise invalid(f"{field}/pattern", "a log probe needs a pattern", r'for example "Done \\("')
        compile_bytes(probe.pattern, field=f"{field}/pattern")
    elif probe.pattern:
        raise invalid(f"{field}/pattern", f"a {kind} probe has no pattern", "leave it out")
    if kind is ProbeKind.COMMAND:
        if not probe.command or not probe.command[0]:
            raise invalid(
                f"{field}/command", "a command probe needs a command", 'for example ["test", "-f", "up"]'
            )
        if any("\0" in argument for argument in probe.command):
            raise invalid(f"{field}/command", "it holds a NUL character", "leave it out")
    elif probe.command:
        raise invalid(f"{field}/command", f"a {kind} probe has no command", "leave it out")
    if probe.protocol is not None and kind is not ProbeKind.LISTEN:
        raise invalid(f"{field}/protocol", f"a {kind} probe has no protocol", "leave it out")
    if kind is ProbeKind.HTTP:
        _check_http_path(probe.path, f"{field}/path")
    if kind in _WITH_PORT and probe.port not in ports:
        if not ports:
            raise invalid(
                f"{field}/port", f"a {kind} probe needs a port, the group has none", "add it to ports"
            )
        raise unknown_choice("port", probe.port, ports, code=Code.INVALID_FIELD, field=f"{field}/port")


def _check_http_path(path: str, field: str) -> None:
    if not path.startswith("/"):
        raise invalid(field, f"{path[:80]!r} does not begin with '/'", 'for example "/health"')
    if not path.isascii() or any(sign <= " " or sign == "\x7f" for sign in path):
        raise invalid(
            field, "it holds a space, a control character or one beyond ASCII", "write it percent-encoded"
        )
