"""Run every benchmark, print a table, write `benchmarks/results.json`."""

from __future__ import annotations

import importlib
import json
import pathlib
import sys
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent


def main() -> int:
    wanted = sys.argv[1:]
    results: list[dict[str, Any]] = []
    for path in sorted(HERE.glob("p[0-9]*.py")):
        if wanted and not any(f"{path.stem}_".startswith(f"{word.lower()}_") for word in wanted):
            continue
        began = time.monotonic()
        print(f"{path.stem} …", file=sys.stderr, flush=True)
        results += importlib.import_module(f"benchmarks.{path.stem}").run()
        print(f"{path.stem} took {time.monotonic() - began:.0f} s", file=sys.stderr)
    show(results)
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    return 0


def show(results: list[dict[str, Any]]) -> None:
    heads = ("name", "value", "unit", "floor", "ratio", "target", "ok")
    rows = [[cell(result[head]) for head in heads] for result in results]
    widths = [max(len(row[i]) for row in [list(heads), *rows]) for i in range(len(heads))]
    for row in [list(heads), *rows]:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "-" if value is None else str(value)


if __name__ == "__main__":
    raise SystemExit(main())
