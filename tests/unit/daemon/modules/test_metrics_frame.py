"""What modules measured as one frame."""

from __future__ import annotations

from corral.daemon.modules.metrics_sender import CUT, DROPPED, FRAME_BYTES, metrics_frame
from corral.modules.services.module_metrics import BUCKETS, Family
from corral.wire.v1.module_pb2 import ModuleMetrics


def family(kind: str = "gauge", *, series: int = 1, width: int = 5, value: float = 1.0) -> Family:
    made = Family(kind, "says something")
    for number in range(series):
        made.record((("which", f"{number:0{width}}"),), value)
    return made


def frame(*families: tuple[str, str, Family], limit: int = FRAME_BYTES, **more) -> ModuleMetrics:
    return metrics_frame(
        metrics=more.get("metrics", ()), families=families, dropped=more.get("dropped", {}), limit=limit
    )


def samples(made: ModuleMetrics, module: str, *, without: str = DROPPED) -> int:
    return sum(len(f.samples) for f in made.families if f.module_id == module and f.name != without)


def cut(made: ModuleMetrics) -> dict[str, float]:
    return {
        f.module_id: f.samples[0].value
        for f in made.families
        if f.name == DROPPED and f.samples[0].labels["why"] == CUT
    }


def test_nothing_is_nothing() -> None:
    empty = Family("gauge", "")
    assert not frame(("a", "left", empty)).families


def test_everything_is_in_it_as_it_was_recorded() -> None:
    histogram = Family("histogram", "how long")
    for value in (0.002, 0.002, 99.0):
        histogram.record((), value)
    made = frame(
        ("a", "rounds", family("counter", value=3)),
        ("b", "wait", histogram),
        metrics=[
            ("cpu_seconds", "Processor time.", True, [("a", 1.5)]),
            ("threads", "T.", False, [("a", 2)]),
        ],
        dropped={("a", "series"): 7},
    )
    told = {(f.module_id, f.name): f for f in made.families}
    assert (told["a", "cpu_seconds"].kind, told["a", "cpu_seconds"].samples[0].value) == ("counter", 1.5)
    assert (told["a", "threads"].kind, told["a", "threads"].samples[0].value) == ("gauge", 2)
    assert dict(told["a", DROPPED].samples[0].labels) == {"why": "series"}
    assert (told["a", "rounds"].kind, told["a", "rounds"].samples[0].value) == ("counter", 3)
    assert dict(told["a", "rounds"].samples[0].labels) == {"which": "00000"}
    wait = told["b", "wait"].samples[0]
    assert len(wait.buckets) == len(BUCKETS) + 1
    assert (wait.buckets[1], wait.buckets[-1], sum(wait.buckets)) == (2, 1, 3)
    assert abs(wait.value - 99.004) < 1e-9


def test_a_module_that_measures_too_much_loses_its_own_and_nobody_else_s() -> None:
    limit = 20_000
    made = frame(
        ("loud", "noise", family(series=900, width=100)),
        ("calm", "one", family(series=20)),
        ("also", "two", family(series=20)),
        metrics=[("threads", "T.", False, [("loud", 1), ("calm", 1)])],
        limit=limit,
    )
    assert made.ByteSize() <= limit
    assert made.ByteSize() > limit * 0.9, "what others leave is used"
    assert (samples(made, "calm"), samples(made, "also")) == (21, 20)
    assert samples(made, "loud") + cut(made)["loud"] == 901
    assert list(cut(made)) == ["loud"]


def test_what_a_frame_may_hold_is_never_exceeded() -> None:
    many = [(f"m{number}", "noise", family(series=400, width=120)) for number in range(40)]
    made = frame(*many)
    assert made.ByteSize() <= FRAME_BYTES
    assert len(cut(made)) == 40
    assert all(samples(made, f"m{number}") > 50 for number in range(40))
