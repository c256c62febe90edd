"""Write how long each test file takes, from the report of a run: the longest files are started first.

    python tools/update_durations.py report.xml

`pytest --junitxml=report.xml` makes such a report; `make durations` makes one of every test. Files that it does
not name keep their figure, unless they are gone.
"""

from __future__ import annotations

import json
import pathlib
import sys
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
DURATIONS = ROOT / "tests" / "durations.json"


def measured(report: pathlib.Path, root: pathlib.Path) -> dict[str, float]:
    """Seconds by file, of set-up, call and tear-down of its tests; what several share counts where it was made."""
    found: dict[str, float] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = _file_of(case.get("classname", ""), root)
        if file is not None:
            found[file] = found.get(file, 0.0) + float(case.get("time", "0"))
    return found


def _file_of(dotted: str, root: pathlib.Path) -> str | None:
    """The file of a module, or of a class in one; none for a file that is gone."""
    names = dotted.split(".")
    for length in range(len(names), 0, -1):
        file = "/".join(names[:length]) + ".py"
        if (root / file).is_file():
            return file
    return None


def merged(known: dict[str, float], new: dict[str, float], root: pathlib.Path) -> dict[str, float]:
    every = {**known, **new}
    return {file: round(every[file], 1) for file in sorted(every) if (root / file).is_file()}


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    known: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    new = measured(pathlib.Path(sys.argv[1]), ROOT)
    DURATIONS.write_text(json.dumps(merged(known, new, ROOT), indent=0) + "\n")
    print(f"{len(new)} files took {sum(new.values()):.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
