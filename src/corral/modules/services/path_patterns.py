"""Paths with places in them, as modules register their routes: `/items/{id}`, `/files/{rest:path}`."""

from __future__ import annotations

from typing import Final

_MAX_LENGTH: Final = 300
_MAX_SEGMENTS: Final = 20


class PathPattern:
    """One pattern. `ValueError` with the reason when it is none. Matching takes time linear in the path."""

    def __init__(self, text: str) -> None:
        if not text.startswith("/") or len(text) > _MAX_LENGTH:
            raise ValueError(f"a path begins with '/' and has at most {_MAX_LENGTH} characters")
        segments = text[1:].split("/") if text != "/" else []
        if len(segments) > _MAX_SEGMENTS:
            raise ValueError(f"a path has at most {_MAX_SEGMENTS} segments")
        self.text = text
        self.rest = ""
        self._segments: list[tuple[bool, str]] = []
        for number, segment in enumerate(segments):
            self._add(segment, last=number == len(segments) - 1)
        names = [name for is_place, name in self._segments if is_place] + ([self.rest] if self.rest else [])
        if len(names) != len(set(names)):
            raise ValueError("a name stands in it twice")

    def _add(self, segment: str, *, last: bool) -> None:
        if not (segment.startswith("{") and segment.endswith("}")):
            if not segment or segment in (".", "..") or "{" in segment or "}" in segment:
                raise ValueError(
                    f"'{segment}' cannot be a segment; '{{name}}' takes the place of a whole one"
                )
            self._segments.append((False, segment))
            return
        name, _, kind = segment[1:-1].partition(":")
        if not name.isidentifier() or kind not in ("", "path") or (kind and not last):
            raise ValueError(f"'{segment}' is neither '{{name}}' nor, at the end, '{{name:path}}'")
        if kind:
            self.rest = name
        else:
            self._segments.append((True, name))

    @property
    def first(self) -> str:
        """The first segment where it is fixed; "" where anything may stand there."""
        return "" if not self._segments or self._segments[0][0] else self._segments[0][1]

    @property
    def shape(self) -> str:
        """The same for two patterns that match the same paths."""
        fixed = "".join("/{}" if is_place else f"/{name}" for is_place, name in self._segments)
        return fixed + ("/**" if self.rest else "")

    @property
    def rank(self) -> tuple[tuple[int, ...], int]:
        """Orders patterns so that the most exact one comes first."""
        return tuple(int(is_place) for is_place, _ in self._segments) + ((2,) if self.rest else ()), -len(
            self._segments
        )

    def match(self, path: str) -> dict[str, str] | None:
        """The values by name, or None."""
        given = path[1:].split("/") if path != "/" else []
        if len(given) < len(self._segments) or (not self.rest and len(given) != len(self._segments)):
            return None
        found: dict[str, str] = {}
        for (is_place, name), segment in zip(self._segments, given, strict=False):
            if is_place and segment:
                found[name] = segment
            elif is_place or segment != name:
                return None
        if self.rest:
            found[self.rest] = "/".join(given[len(self._segments) :])
        return found
