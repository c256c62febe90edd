"""How long something takes is measured in `benchmarks/`. A test that asserts it fails on a busy machine."""

from __future__ import annotations

import pathlib

import pytest
from clock_comparisons import tight_comparisons

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLACES = ("tests", "src/corral/testing", "modules", "examples")


def test_no_test_compares_what_passed_on_a_clock_with_less_than_half_a_minute() -> None:
    """Count calls (`corral.testing.counted_calls`), messages or bytes, or show which of two things came first."""
    files = sorted(path for place in PLACES for path in (ROOT / place).rglob("*.py"))
    sources = {path.relative_to(ROOT).as_posix(): path.read_text() for path in files}
    assert len(sources) > 300
    assert tight_comparisons(sources) == []


PLANTED = {
    "a difference": "began = time.monotonic()\nwork()\nassert time.monotonic() - began < 3",
    "both bounds": "began = time.monotonic()\nwork()\nassert 0.4 <= time.monotonic() - began < 3",
    "processor time": "b = time.process_time()\nwork()\nassert time.process_time() - b < 1.2",
    "a name": "b = time.time()\nwork()\nassert (elapsed := time.time() - b) < 1, elapsed",
    "an assigned one": "b = clock.monotonic()\ntook = clock.monotonic() - b\nassert took < 5",
    "a list": "took.append(perf_counter() - begun)\n\nassert min(took) < 0.9",
    "a constant by name": "CALM: Final = 5.0\nworst = max(worst, monotonic() - before)\nassert worst < CALM",
    "the loop's": "clock = asyncio.get_running_loop().time\nb = clock()\nassert clock() - b < 1",
    "moments": "asked.append(loop.time())\n\nassert asked[-1] - asked[0] > 1",
    "a deadline": "until = time.monotonic() + 2 * 5\n\nassert time.monotonic() < until",
    "a time delta": "b = dt.now()\n\nassert dt.now() - b < timedelta(seconds=2)",
    "nanoseconds": "b = time.monotonic_ns()\n\nassert time.monotonic_ns() - b < 10**9 * 2",
    "a function": "def took():\n    return monotonic() - before\nassert took() < 1",
}
IMPORTED = "from time import monotonic, perf_counter\nbefore = begun = monotonic()\n"


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED.keys())
def test_a_timing_is_found(planted: str) -> None:
    assert tight_comparisons({"test_it.py": IMPORTED + planted}) == ["test_it.py:5"]


def test_a_timing_in_another_file_is_found() -> None:
    watch = "class Watch:\n    def look(self):\n        self.worst = max(self.worst, t.time() - self.began)\n"
    sources = {"watch.py": watch + "        self.began = t.time()", "test_it.py": "assert watch.worst < 0.1"}
    assert tight_comparisons(sources) == ["test_it.py:1"]
    assert tight_comparisons(dict(reversed(sources.items()))) == ["test_it.py:1"]


@pytest.mark.parametrize(
    "fine",
    [
        "began = time.monotonic()\nassert time.monotonic() - began < 60",
        "until = time.monotonic() + 60\nassert time.monotonic() < until",
        "past = time.time() - 60\nassert len(found) - 1 < 3",
        "began = clock.now()\nassert record.started_at - began == timedelta(seconds=60)",
        "began = time.monotonic()\nassert commits <= (time.monotonic() - began) / MOMENT + 1",
    ],
)
def test_other_comparisons_are_none(fine: str) -> None:
    assert tight_comparisons({"test_it.py": fine}) == []
