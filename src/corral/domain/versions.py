"""Versions by Semantic Versioning 2.0 (parsed strictly, ordered by precedence), and ranges of them as authors
write them.

A range is one or several alternatives between `||`. An alternative is a list of conditions, all of which
hold: `>=1.0 <2`, `^1.2` (nothing that breaks: below 2), `~1.2` (below 1.3), `1.x` and `1.2` (any below),
`1.2.3` (that one), `[1.0,2.0)` (an interval, an end left out is open) or `*` (anything).

A pre-release lies in a range only if a condition names a pre-release of the same release: `<2` does not
include `2.0.0-rc.1`, and `>=1.0` no `1.5.0-beta`. `*` alone includes pre-releases, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from corral.errors import Code, Rejected

VERSION_MAX: Final = 128
_NUMBER: Final = r"(?:0|[1-9][0-9]{0,17})"
_NUMERIC: Final = re.compile(r"[0-9]+")
_LABEL: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})"
    rf"(?:-({_LABEL}(?:\.{_LABEL})*))?"
    r"(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)


class Version(msgspec.Struct, frozen=True, eq=False):
    """One version. Two are equal when neither precedes the other: build metadata is ignored."""

    major: int
    minor: int = 0
    patch: int = 0
    prerelease: tuple[str, ...] = ()
    build: str = ""

    @property
    def precedence(self) -> tuple[object, ...]:
        """The sort key of versions: a pre-release goes before its release, numbers before words."""
        labels = tuple(
            (0, int(label), "") if _NUMERIC.fullmatch(label) else (1, 0, label) for label in self.prerelease
        )
        return (self.major, self.minor, self.patch, not self.prerelease, labels)

    @property
    def release(self) -> tuple[int, int, int]:
        return self.major, self.minor, self.patch

    def __eq__(self, other: object) -> bool:
        return self.precedence == other.precedence if isinstance(other, Version) else NotImplemented

    def __lt__(self, other: Version) -> bool:
        return self.precedence < other.precedence

    def __le__(self, other: Version) -> bool:
        return self.precedence <= other.precedence

    def __gt__(self, other: Version) -> bool:
        return self.precedence > other.precedence

    def __ge__(self, other: Version) -> bool:
        return self.precedence >= other.precedence

    def __hash__(self) -> int:
        return hash(self.precedence)

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.prerelease:
            text += "-" + ".".join(self.prerelease)
        return f"{text}+{self.build}" if self.build else text


def parse_version(text: str, *, field: str | None = None) -> Version:
    """The version of a text; INVALID_FIELD when it is none. `str` gives the text back."""
    found = _VERSION.fullmatch(text) if len(text) <= VERSION_MAX else None
    if found is None:
        raise Rejected(
            Code.INVALID_FIELD,
            f"{text[:80]!r} is not a version",
            hint="write three numbers as in 1.4.0, or with a pre-release as in 2.0.0-rc.1",
            field=field,
        )
    labels = tuple(found[4].split(".")) if found[4] else ()
    return Version(int(found[1]), int(found[2]), int(found[3]), labels, found[5] or "")


RANGE_MAX: Final = 256
_ANY: Final = ("x", "X", "*")
_CONDITION: Final = re.compile(r"(>=|<=|>|<|=|\^|~)?\s*([0-9A-Za-z.+*-]+)")
_INTERVAL: Final = re.compile(r"([\[(])\s*([^,\[\]()\s]*)\s*(?:(,)\s*([^,\[\]()\s]*)\s*)?([\])])")


class _Bound(msgspec.Struct, frozen=True):
    """`side` is -1 for a lower bound, 1 for an upper one."""

    version: Version
    side: int
    inclusive: bool

    def allows(self, version: Version) -> bool:
        if version == self.version:
            return self.inclusive
        return version > self.version if self.side < 0 else version < self.version


_Alternative = tuple[_Bound, ...] | None
"""None: whatever it is."""


class VersionRange(msgspec.Struct, frozen=True):
    """A parsed range; `text` is what was written."""

    text: str
    alternatives: tuple[_Alternative, ...]

    def allows(self, version: Version | str) -> bool:
        """Whether the version is in the range. A text that is no version raises INVALID_FIELD."""
        asked = parse_version(version) if isinstance(version, str) else version
        return any(each is None or _holds(each, asked) for each in self.alternatives)

    @property
    def anything(self) -> bool:
        """Whether it includes everything, even a text that is no version."""
        return None in self.alternatives

    def __str__(self) -> str:
        return self.text


def parse_range(text: str, *, field: str | None = None) -> VersionRange:
    """The range of a text; INVALID_FIELD names the invalid part."""
    if len(text) > RANGE_MAX:
        raise _refused(text, f"it is longer than {RANGE_MAX} characters", field)
    try:
        return VersionRange(text, tuple(_alternative(part.strip()) for part in text.split("||")))
    except ValueError as why:
        raise _refused(text, str(why), field) from None


def _holds(bounds: tuple[_Bound, ...], version: Version) -> bool:
    if not all(bound.allows(version) for bound in bounds):
        return False
    return not version.prerelease or any(
        bound.version.prerelease and bound.version.release == version.release for bound in bounds
    )


def _alternative(text: str) -> _Alternative:
    if not text:
        raise ValueError("it is empty")
    if text in _ANY:
        return None
    if text[0] in "[(":
        return tuple(_interval(text))
    bounds: list[_Bound] = []
    at = 0
    while at < len(text):
        found = _CONDITION.match(text, at)
        if found is None:
            raise ValueError(f"{text[at : at + 40]!r} is not a condition")
        bounds += _condition(found[1] or "", found[2])
        at = found.end()
        if at < len(text) and not text[at].isspace():
            raise ValueError(f"{text[at : at + 40]!r} is not a condition")
        at += len(text[at:]) - len(text[at:].lstrip())
    return tuple(bounds)


def _interval(text: str) -> Iterator[_Bound]:
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:60]!r} is not an interval")
    low, high = found[2], found[4] if found[3] else found[2]
    if not found[3] and (not low or found[1] + found[5] != "[]"):
        raise ValueError(f"{text[:60]!r} is not an interval")
    if not low and not high:
        raise ValueError("an interval needs at least one end")
    if low:
        yield _Bound(_filled(low), -1, found[1] == "[")
    if high:
        yield _Bound(_filled(high), 1, found[5] == "]")
    if low and high and _filled(high) < _filled(low):
        raise ValueError(f"{text[:60]!r} ends before it begins")


def _condition(sign: str, text: str) -> Iterator[_Bound]:
    low, parts = _parsed(text)
    if not parts:
        if sign in (">", "<"):
            raise ValueError(f"'{sign}{text}' lets no version in")
        yield _Bound(Version(0), -1, True)
        return
    match sign:
        case ">=":
            yield _Bound(low, -1, True)
        case "<":
            yield _Bound(low, 1, False)
        case ">" | "<=" if parts == 3:
            yield _Bound(low, -1 if sign == ">" else 1, sign == "<=")
        case ">":
            yield _Bound(_above(low, parts), -1, True)
        case "<=":
            yield _Bound(_above(low, parts), 1, False)
        case "^":
            yield from (_Bound(low, -1, True), _Bound(_breaking(low, parts), 1, False))
        case "~":
            yield from (_Bound(low, -1, True), _Bound(_above(low, min(parts, 2)), 1, False))
        case _ if parts == 3:
            yield from (_Bound(low, -1, True), _Bound(low, 1, True))
        case _:
            yield from (_Bound(low, -1, True), _Bound(_above(low, parts), 1, False))


def _parsed(text: str) -> tuple[Version, int]:
    """The lowest version that a text such as `1.2` or `1.x` means, and how many of its parts are given."""
    head = re.split(r"[-+]", text, maxsplit=1)[0]
    parts = head.split(".")
    given = next((at for at, part in enumerate(parts) if part in _ANY), len(parts))
    if len(parts) > 3 or any(part not in _ANY for part in parts[given:]):
        raise ValueError(f"{text[:40]!r} is not a version")
    if given < 3 and head != text:
        raise ValueError(f"{text[:40]!r} has a pre-release, but not all three numbers")
    filled = ".".join([*parts[:given], *["0"] * (3 - given)])
    return _version(text if given == 3 else filled, text), given


def _filled(text: str) -> Version:
    if re.search(r"(?:^|\.)[xX*]", text):
        raise ValueError(f"{text[:40]!r}: an interval's ends are versions")
    return _parsed(text)[0]


def _version(text: str, shown: str) -> Version:
    try:
        return parse_version(text)
    except Rejected:
        raise ValueError(f"{shown[:40]!r} is not a version") from None


def _above(version: Version, parts: int) -> Version:
    """The first version that does not begin with the given parts any more."""
    if parts == 1:
        return Version(version.major + 1)
    if parts == 2:
        return Version(version.major, version.minor + 1)
    return Version(version.major, version.minor, version.patch + 1)


def _breaking(version: Version, parts: int) -> Version:
    """The first version that may break what works with this one: before 1.0 each minor one may."""
    if version.major or parts == 1:
        return Version(version.major + 1)
    if version.minor or parts == 2:
        return Version(0, version.minor + 1)
    return Version(0, 0, version.patch + 1)


def _refused(text: str, why: str, field: str | None) -> Rejected:
    return Rejected(
        Code.INVALID_FIELD,
        f"{text[:80]!r} is not a version range: {why}",
        hint="write it as '>=1.0 <2', '^1.2', '~1.2', '1.x', '[1.0,2.0)' or '*'",
        field=field,
    )
