"""List every trap of the specification with the tests that are marked for it."""

from __future__ import annotations

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TITLES = ROOT / "docs" / "traps.md"


def marked_tests() -> dict[str, list[str]]:
    """Test functions by the trap ids in their `@pytest.mark.trap(...)`."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.trap":
                    for argument in decorator.args:
                        trap = ast.literal_eval(argument)
                        found.setdefault(trap, []).append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def main() -> int:
    titles = dict(re.findall(r"^\| (T\d+) \| (.+?) \|", TITLES.read_text(), flags=re.M))
    tests = marked_tests()
    unknown = sorted(set(tests) - set(titles))
    for trap, title in titles.items():
        state = "closed" if trap in tests else "open"
        print(f"{trap:4} {state:6} {title}")
        for test in tests.get(trap, []):
            print(f"            {test}")
    print(f"\n{len(set(tests) & set(titles))} of {len(titles)} traps have tests")
    if unknown:
        print(f"tests name traps that do not exist: {', '.join(unknown)}", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    raise SystemExit(main())
