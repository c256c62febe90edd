"""Run the claims, print a table, write `benchmarks/results.json` and a line of `benchmarks/history.jsonl`."""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from typing import Any

from benchmarks import history
from benchmarks.figures import combined
from benchmarks.sizes import SMALL
from benchmarks.trees import DISK, ROOT, new_root

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS = 3

Result = dict[str, Any]


def main() -> int:
    arguments = _arguments()
    if arguments.small:
        os.environ[SMALL] = "1"
    if arguments.into is not None:
        return _measure(arguments.claims[0], arguments.into)
    claims = chosen(arguments.claims)
    began, load = dt.datetime.now(dt.UTC), os.getloadavg()[0]
    found: dict[str, list[list[Result]]] = {claim: [] for claim in claims}
    failed = []
    with new_root() as root:
        for number in range(arguments.rounds):
            # Every other round goes backwards: no claim always has the same one before it.
            for claim in claims if number % 2 == 0 else reversed(claims):
                results = _in_own_process(claim, root, title=f"{claim}, round {number + 1}")
                if results is None:
                    failed.append(claim)
                else:
                    found[claim].append(results)
    results = [each for rounds in found.values() for each in combined(rounds)]
    show(results)
    if not arguments.small:
        (HERE / "results.json").write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
        history.append(results, began=began, rounds=arguments.rounds, load=load)
    if failed:
        print(f"failed, see above: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help="p6, p10_store, …; all without any")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, metavar="N", help=f"medians of so many (default {ROUNDS})"
    )
    parser.add_argument(
        "--small", action="store_true", help="run each line once, for no figure: nothing is written down"
    )
    parser.add_argument("--into", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    return arguments


def chosen(words: list[str]) -> list[str]:
    """The claims that these words name, in the order of their numbers; all without any."""
    every = sorted((path.stem for path in HERE.glob("p[0-9]*.py")), key=_number)
    unknown = [word for word in words if not any(_names(word, claim) for claim in every)]
    if unknown:
        raise SystemExit(f"no claim is called {', '.join(unknown)}; there are {', '.join(every)}")
    return [claim for claim in every if not words or any(_names(word, claim) for word in words)]


def _number(claim: str) -> tuple[int, str]:
    found = re.match(r"p(\d+)", claim)
    assert found is not None
    return int(found[1]), claim


def _names(word: str, claim: str) -> bool:
    return f"{claim}_".startswith(f"{word.lower()}_")


def _in_own_process(claim: str, root: pathlib.Path, *, title: str) -> list[Result] | None:
    """Measure a claim where nothing of an earlier one is left: not its memory, threads, or unwritten files."""
    print(f"{title} …", file=sys.stderr, flush=True)
    os.sync()
    began = time.monotonic()
    into = root / f"{claim}.json"
    into.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks", claim, "--into", str(into)]
    environment = {key: value for key, value in os.environ.items() if key != DISK}  # no controller knows it
    done = subprocess.run(command, env={**environment, ROOT: str(root)}, check=False)
    print(f"{title} took {time.monotonic() - began:.0f} s", file=sys.stderr)
    if done.returncode:
        return None
    results: list[Result] = json.loads(into.read_text())
    return results


def _measure(claim: str, into: pathlib.Path) -> int:
    into.write_text(json.dumps(importlib.import_module(f"benchmarks.{claim}").run()))
    return 0


def show(results: list[Result]) -> None:
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
