"""Where an `assert` compares what passed on a clock with a constant.

Names are followed as far as one file shows them: what is assigned from a clock is a moment, a moment minus another is
a span, and so is what is assigned, appended, returned or computed from a span. Attributes that hold spans, and
constants, are known in all files.
"""

from __future__ import annotations

import ast
import dataclasses
import datetime as dt
import operator
import re
from collections.abc import Iterable, Iterator, Mapping

CLOCKS = frozenset({"time", "monotonic", "perf_counter", "process_time", "thread_time", "now"})
NANOSECONDS = frozenset({f"{name}_ns" for name in CLOCKS})
LEAST_SECONDS = 30.0
"""What a busy machine, a collection of garbage or a slow disk does not reach."""


@dataclasses.dataclass
class Shared:
    """What files know of each other: attributes that hold spans, and constants by name."""

    spans: set[str] = dataclasses.field(default_factory=set)
    constants: dict[str, float] = dataclasses.field(default_factory=dict)


class SourceFile:
    def __init__(self, source: str, shared: Shared) -> None:
        self._nodes = list(ast.walk(ast.parse(source)))
        self._bound = [binding for node in self._nodes for binding in _bindings(node)]
        self._shared = shared
        self._clocks: set[str] = set()
        self._moments: set[str] = set()
        self._spans: set[str] = set()
        self._limits: dict[str, float] = {}
        self._note_clocks()
        self.follow()

    def _note_clocks(self) -> None:
        for node in self._nodes:
            if isinstance(node, ast.ImportFrom) and node.module == "time":
                self._clocks |= {each.asname or each.name for each in node.names if each.name in _EVERY_CLOCK}
        for target, value in self._bound:
            if isinstance(value, ast.Attribute) and value.attr in _EVERY_CLOCK:
                self._clocks.add(target)

    def follow(self) -> None:
        """Until nothing more is found. Once more when other files were read."""
        while True:
            before = len(self._moments), len(self._spans), len(self._limits), len(self._shared.spans)
            for target, value in self._bound:
                self._bind(target, value)
            if before == (len(self._moments), len(self._spans), len(self._limits), len(self._shared.spans)):
                return

    def _bind(self, target: str, value: ast.AST) -> None:
        if self.is_span(value):
            (self._shared.spans if target.startswith(".") else self._spans).add(target)
        elif self.is_moment(value):
            self._moments.add(target)
            if (limit := self._ahead(value)) is not None:
                self._limits[target] = limit

    def is_moment(self, node: ast.AST) -> bool:
        return any(self._reads_clock(each) or _key(each) in self._moments for each in _within(node))

    def is_span(self, node: ast.AST) -> bool:
        return any(self._subtracts(each) or self._names_span(each) for each in _within(node))

    def _names_span(self, node: ast.AST) -> bool:
        return (key := _key(node)) is not None and (key in self._spans or key in self._shared.spans)

    def _subtracts(self, node: ast.AST) -> bool:
        return (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Sub)
            and self.is_moment(node.left)
            and self.is_moment(node.right)
        )

    def _reads_clock(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute):
            return node.func.attr in _EVERY_CLOCK and "datetime" not in ast.unparse(node.func)
        return _key(node.func) in self._clocks

    def _ahead(self, node: ast.AST) -> float | None:
        """How far a moment is ahead: the constant in `monotonic() + 5`."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and self.is_moment(node.left):
            return constant(node.right, self._shared.constants)
        return self._limits.get(_key(node) or "")

    def lines(self) -> list[int]:
        found = {
            compared.lineno
            for node in self._nodes
            if isinstance(node, ast.Assert)
            for compared in ast.walk(node.test)
            if isinstance(compared, ast.Compare) and self._is_tight([compared.left, *compared.comparators])
        }
        return sorted(found)

    def _is_tight(self, sides: Iterable[ast.AST]) -> bool:
        sides = list(sides)
        if any(self.is_span(side) for side in sides):
            numbers = [constant(side, self._shared.constants) for side in sides]
            in_nanoseconds = any(part in ast.unparse(side) for side in sides for part in ("_ns", "_NS"))
        elif sum(self.is_moment(side) for side in sides) > 1:
            numbers, in_nanoseconds = [self._ahead(side) for side in sides], False
        else:
            return False
        least = LEAST_SECONDS * (1e9 if in_nanoseconds else 1)
        return any(number is not None and 0 < number < least for number in numbers)


_EVERY_CLOCK = CLOCKS | NANOSECONDS
_A_CLOCK = re.compile(r"\b(?:monotonic|perf_counter|process_time|thread_time)|\.(?:time|time_ns|now)\b")
_A_CONSTANT = re.compile(
    r"^([A-Z_][A-Z0-9_]*)(?:: [\w.\[\]]+)? = ([\d._]+(?: [*+] [\d._]+)*)\s*(?:#.*)?$", re.MULTILINE
)
_OPERATIONS = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.Div: operator.truediv,
}
_COLLECTING = frozenset({"append", "add", "put_nowait"})


def tight_comparisons(sources: Mapping[str, str]) -> list[str]:
    """`file:line` of each, for files that know each other."""
    shared = Shared(constants=_constants(sources.values()))
    files = {name: SourceFile(text, shared) for name, text in sources.items() if _A_CLOCK.search(text)}
    reading = re.compile("|".join(map(re.escape, shared.spans)) or "(?!)")
    files |= {
        name: SourceFile(text, shared)
        for name, text in sources.items()
        if name not in files and reading.search(text)
    }
    for file in files.values():
        file.follow()
    return [f"{name}:{line}" for name, file in files.items() for line in file.lines()]


def _constants(sources: Iterable[str]) -> dict[str, float]:
    """By name; of several of one name the least."""
    found: dict[str, float] = {}
    for name, text in (each for source in sources for each in _A_CONSTANT.findall(source)):
        number = constant(ast.parse(text.strip(), mode="eval").body, {})
        if number is not None:
            found[name] = min(number, found.get(name, number))
    return found


def constant(node: ast.AST, known: Mapping[str, float]) -> float | None:
    """The value of a number, of a named one, of a product or sum of such, and of a `timedelta`, in seconds."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return float(value)
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            one, other = constant(left, known), constant(right, known)
            return _OPERATIONS[type(op)](one, other) if one is not None and other is not None else None
        case ast.Call(
            func=ast.Attribute(attr="timedelta") | ast.Name(id="timedelta"), args=[], keywords=given
        ):
            parts = {each.arg or "": constant(each.value, known) for each in given}
            numbers = {name: value for name, value in parts.items() if value is not None}
            return dt.timedelta(**numbers).total_seconds() if len(numbers) == len(parts) else None
    return None


def _key(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return f".{node.attr}" if isinstance(node, ast.Attribute) else None


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what it is computed from; a call of a clock's alias counts, a function's own body does not."""
    yield node
    if not isinstance(node, ast.Lambda | ast.Compare):
        for child in ast.iter_child_nodes(node):
            yield from _within(child)


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Each name, and what it is bound to, grows by or returns."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _unpacked(target, value)
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.NamedExpr(target=target, value=value)
        ):
            yield from _unpacked(target, value)
        case ast.AugAssign(target=target, value=value):
            yield from _unpacked(target, value)
        case ast.Call(func=ast.Attribute(value=held, attr=verb), args=[value]) if verb in _COLLECTING:
            yield from _unpacked(held, value)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            for each in ast.walk(node):
                if isinstance(each, ast.Return) and each.value is not None and not name.startswith("_"):
                    yield name, each.value


def _unpacked(target: ast.AST, value: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(target, ast.Tuple | ast.List):
        together = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        values = value.elts if isinstance(value, ast.Tuple) and together else [value] * len(target.elts)
        for part, one in zip(target.elts, values, strict=True):
            yield from _unpacked(part, one)
    elif (key := _key(target)) is not None:
        yield key, value
