"""What a module counts, on its way to the host."""

from __future__ import annotations

import msgspec

from corral.sdk.metrics import Metrics
from corral.sdk.protocol.messages import METRIC, MetricSample, MetricSamples


class _Line:
    """Takes what is said as it would travel."""

    def __init__(self) -> None:
        self.said: list[tuple[str, bytes]] = []

    async def call(self, *_: object, **__: object) -> object:
        raise AssertionError("nothing is asked")

    def notify(self, method: str, body: object) -> None:
        self.said.append((method, msgspec.msgpack.encode(body)))


def test_labels_that_are_no_text_travel_as_text_and_cost_nobody_else_anything():
    line = _Line()
    metrics = Metrics(line, lambda _seconds, _function: None)

    metrics.counter("rounds").increase(2, map=3)
    metrics.gauge("players").set(1, name="a\udc80")
    metrics._flush()

    ((method, body),) = line.said
    assert method == METRIC
    assert msgspec.msgpack.decode(body, type=MetricSamples).samples == (
        MetricSample(name="rounds", kind="counter", value=2.0, labels={"map": "3"}),
        MetricSample(name="players", kind="gauge", value=1.0, labels={"name": "a?"}),
    )


def test_what_is_forgotten_takes_along_what_was_recorded_before_and_nothing_that_comes_after():
    line = _Line()
    metrics = Metrics(line, lambda _seconds, _function: None)

    players, rounds, seconds = (
        metrics.gauge("players"),
        metrics.counter("rounds"),
        metrics.histogram("seconds"),
    )
    players.set(3, map="desert")
    rounds.increase(map="desert")
    seconds.observe(1.0)
    seconds.observe(2.0, map="desert")
    for metric in (players, rounds, seconds):
        metric.forget(map="desert")
    players.set(1, map="desert")
    metrics._flush()

    ((_, body),) = line.said
    told = msgspec.msgpack.decode(body, type=MetricSamples).samples
    assert [(one.name, one.kind, one.value) for one in told] == [
        ("players", "forgotten", 0.0),
        ("rounds", "forgotten", 0.0),
        ("seconds", "forgotten", 0.0),
        ("players", "gauge", 1.0),
        ("seconds", "histogram", 1.0),
    ]
