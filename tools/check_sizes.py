"""Refuse a source file over 400 lines or a function over 60: what is longer has more than one subject.

Lines are counted as they stand in the file, a function's with its docstring and without its decorators. Generated code does not
count. `python tools/check_sizes.py [ROOT]` lists each fault as `file:line: what`, and fails if there is one.
"""

from __future__ import annotations

import ast
import pathlib
import sys
from collections.abc import Iterator
from typing import Final

MAX_FILE_LINES: Final = 400
MAX_FUNCTION_LINES: Final = 60
SOURCE: Final = "src"
GENERATED: Final = ("src/corral/wire/v1", "src/corral/client/generated")


def faults(root: pathlib.Path) -> Iterator[str]:
    """Each file and each function beneath `src` that is too long, as a line for people and editors."""
    for path in sorted((root / SOURCE).rglob("*.py")):
        if not any(path.is_relative_to(root / each) for each in GENERATED):
            yield from _faults_of(path.read_text(), str(path.relative_to(root)))


def _faults_of(text: str, name: str) -> Iterator[str]:
    count = len(text.splitlines())
    if count > MAX_FILE_LINES:
        yield f"{name}:1: {count} lines; a file has at most {MAX_FILE_LINES}"
    for node in ast.walk(ast.parse(text, name)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        count = (node.end_lineno or node.lineno) - node.lineno + 1
        if count > MAX_FUNCTION_LINES:
            yield f"{name}:{node.lineno}: {node.name} has {count} lines; a function has at most {MAX_FUNCTION_LINES}"


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = list(faults(root))
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
