"""Versions by Semantic Versioning 2.0: parsed strictly, ordered by precedence."""

from __future__ import annotations

import re
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
    """One version. Two are equal when neither goes before the other: build metadata counts for nothing."""

    major: int
    minor: int = 0
    patch: int = 0
    prerelease: tuple[str, ...] = ()
    build: str = ""

    @property
    def precedence(self) -> tuple[object, ...]:
        """What versions are ordered by: a pre-release goes before its release, numbers before words."""
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
    """The version that a text is; INVALID_FIELD when it is none. The text comes back by `str`."""
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
