"""What modules measure, and what is measured about them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from scripted_module import played_scope

from corral.controller.modules.metrics_exposition import ModuleMetricsCollector
from corral.modules.capabilities.capability_entries import CapabilityView
from corral.modules.scope import Scope
from corral.modules.services.module_log import ModuleLogs
from corral.modules.services.module_metrics import MAX_NAMES, MAX_SERIES, ModuleMetrics
from corral.sdk.protocol.messages import LogLine, MetricSample, MetricSamples
from corral.sdk.runner.log_output import BURST
from corral.system.clock import SystemClock


def record(metrics: ModuleMetrics, scope: Scope, *samples: MetricSample) -> None:
    metrics.take(scope, msgspec.Raw(msgspec.msgpack.encode(MetricSamples(samples=samples))))


def sample(name: str = "jumps", kind: str = "counter", value: float = 1.0, **labels: str) -> MetricSample:
    return MetricSample(name=name, kind=kind, value=value, labels=labels, help="As told.")


def exposed(metrics: ModuleMetrics, **more: Any) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Everything at `/metrics`, as a scraper reads it."""
    registry = CollectorRegistry(auto_describe=True)
    registry.register(
        ModuleMetricsCollector(
            host_metrics=more.get("host_metrics", list),
            leaked=more.get("leaked", dict),
            families=metrics.families,
            dropped=lambda: dict(metrics.dropped),
            capabilities=more.get("capabilities", list),
        )
    )
    text = generate_latest(registry).decode()
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return name, tuple(sorted(labels.items()))


def test_calls_of_capabilities_are_counted_beside_their_providers() -> None:
    view = CapabilityView(
        id="shop.stock", version="1.0.0", provider="shop", calls=3, failures=1, deprecated_calls=2
    )
    shown = exposed(ModuleMetrics(), capabilities=lambda: [view])
    labels = key("", capability="shop.stock", provider="shop")[1]
    found = {name: value for (name, given), value in shown.items() if given == labels}
    assert found == {
        "corral_capability_calls_total": 3,
        "corral_capability_call_failures_total": 1,
        "corral_capability_deprecated_calls_total": 2,
    }


async def test_samples_appear_under_the_module_s_name() -> None:
    metrics = ModuleMetrics()
    scope, _ = played_scope()
    record(metrics, scope, sample(value=2, world="a"), sample(value=3, world="a"), sample(world="b"))
    record(metrics, scope, sample("depth", "gauge", 7), sample("depth", "gauge", 4))
    record(metrics, scope, sample("took", "histogram", 0.02), sample("took", "histogram", 99))
    shown = exposed(metrics)
    assert shown[key("corral_module_jumps_total", module="played", world="a")] == 5
    assert shown[key("corral_module_jumps_total", module="played", world="b")] == 1
    assert shown[key("corral_module_depth", module="played")] == 4
    assert shown[key("corral_module_took_bucket", module="played", le="0.01")] == 0
    assert shown[key("corral_module_took_bucket", module="played", le="0.025")] == 1
    assert shown[key("corral_module_took_bucket", module="played", le="+Inf")] == 2
    assert shown[key("corral_module_took_count", module="played")] == 2
    assert shown[key("corral_module_took_sum", module="played")] == pytest.approx(99.02)
    await scope.close()


async def test_they_go_with_the_scope_and_a_new_scope_begins_at_nothing() -> None:
    metrics = ModuleMetrics()
    old, _ = played_scope()
    record(metrics, old, sample(value=5))
    assert old.registrations() == [("metrics", "samples")]
    await old.close()
    assert key("corral_module_jumps_total", module="played") not in exposed(metrics)
    record(metrics, old, sample())  # a late one of a process that is ending
    assert key("corral_module_jumps_total", module="played") not in exposed(metrics)
    new, _ = played_scope()
    record(metrics, new, sample(value=1))
    assert exposed(metrics)[key("corral_module_jumps_total", module="played")] == 1
    await new.close()


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (sample("Jumps"), "name"),
        (sample("jumps-high"), "name"),
        (sample(""), "name"),
        (sample("x" * 70), "name"),
        (sample("cpu_seconds"), "name"),
        (sample("cpu_seconds_total"), "name"),
        (sample("leaked", "gauge"), "name"),
        (sample("took_count", "gauge"), "name"),
        (sample("jumps_total", "gauge"), "name"),
        (sample(kind="summary"), "kind"),
        (sample(module="other"), "labels"),
        (sample(le="1"), "labels"),
        (sample(**{"Bad-Label": "x"}), "labels"),
        (sample(**{f"l{n}": "x" for n in range(9)}), "labels"),
        (sample(value=-1), "value"),
        (sample(value=float("nan")), "value"),
        (sample("depth", "gauge", float("inf")), "value"),
    ],
)
async def test_what_cannot_be_exposed_is_dropped_and_counted(bad: MetricSample, why: str) -> None:
    metrics = ModuleMetrics()
    scope, _ = played_scope()
    record(metrics, scope, bad, sample("good"))
    shown = exposed(metrics)
    assert shown[key("corral_module_samples_dropped_total", module="played", why=why)] == 1
    assert shown[key("corral_module_good_total", module="played")] == 1
    assert sum(1 for name, _ in shown if name.startswith("corral_module_")) == 2
    await scope.close()


async def test_names_and_series_of_a_module_are_bounded_and_others_do_not_notice() -> None:
    metrics = ModuleMetrics()
    greedy, _ = played_scope("greedy")
    modest, _ = played_scope("modest")
    record(metrics, greedy, *(sample(who=str(number)) for number in range(MAX_SERIES + 50)))
    record(metrics, greedy, sample(who="0"))  # known ones go on
    record(metrics, modest, sample())
    many, _ = played_scope("many")
    record(metrics, many, *(sample(f"name_{number}") for number in range(MAX_NAMES + 7)))
    shown = exposed(metrics)
    assert shown[key("corral_module_jumps_total", module="greedy", who="0")] == 2
    assert shown[key("corral_module_jumps_total", module="modest")] == 1
    assert shown[key("corral_module_samples_dropped_total", module="greedy", why="series")] == 50
    assert shown[key("corral_module_samples_dropped_total", module="many", why="names")] == 7
    for scope in (greedy, modest, many):
        await scope.close()


async def test_a_series_that_is_forgotten_is_shown_no_more_and_leaves_room_for_another() -> None:
    metrics, (scope, _) = ModuleMetrics(), played_scope("parkour")
    record(metrics, scope, *(sample(course=str(n)) for n in range(MAX_SERIES)))
    record(metrics, scope, sample(kind="forgotten", course="7"), sample(kind="forgotten", course="none"))
    shown = exposed(metrics)
    assert key("corral_module_jumps_total", module="parkour", course="7") not in shown
    assert key("corral_module_jumps_total", module="parkour", course="8") in shown
    record(metrics, scope, sample(course="new"), sample(course="too many"))
    shown = exposed(metrics)
    assert key("corral_module_jumps_total", module="parkour", course="new") in shown
    assert metrics.dropped["parkour", "series"] == 1
    for name in ("jumps_total", "nothing"):
        record(metrics, scope, sample(name, kind="forgotten", course="8"))
    assert key("corral_module_jumps_total", module="parkour", course="8") not in exposed(metrics)


async def test_two_modules_with_one_name_of_two_kinds_do_not_break_the_page() -> None:
    metrics = ModuleMetrics()
    first, _ = played_scope("a-first")
    second, _ = played_scope("b-second")
    record(metrics, first, sample("speed", "gauge", 3))
    record(metrics, second, sample("speed", "histogram", 3), sample("other", "gauge", 1))
    shown = exposed(metrics)
    assert shown[key("corral_module_speed", module="a-first")] == 3
    assert not any(name.startswith("corral_module_speed_") for name, _ in shown)
    assert shown[key("corral_module_other", module="b-second")] == 1
    await first.close()
    await second.close()


async def test_a_kind_cannot_change_and_a_body_that_is_none_is_counted() -> None:
    metrics = ModuleMetrics()
    scope, _ = played_scope()
    record(metrics, scope, sample("x", "gauge"), sample("x", "counter"))
    metrics.take(scope, msgspec.Raw(b"\xc1"))
    assert metrics.dropped == {("played", "kind"): 1, ("played", "form"): 1}
    metrics.forget("played")
    assert not metrics.dropped
    await scope.close()


def test_leaks_are_told_under_both_names() -> None:
    shown = exposed(ModuleMetrics(), leaked=lambda: {"stats": 2})
    assert shown[key("corral_module_leaked", module="stats")] == 2
    assert shown[key("corral_module_classloader_leaked", moduleId="stats")] == 2


def test_figures_of_the_host_are_shown_by_module() -> None:
    rows = [
        ("cpu_seconds", "Time.", True, [("stats", 1.5)]),
        ("threads", "Threads.", False, [("stats", 3.0)]),
    ]
    shown = exposed(ModuleMetrics(), host_metrics=lambda: rows)
    assert shown[key("corral_module_cpu_seconds_total", module="stats")] == 1.5
    assert shown[key("corral_module_threads", module="stats")] == 3


# --- the log -------------------------------------------------------------------------------------------


async def test_lines_come_under_the_module_s_name_and_the_last_are_kept(caplog: Any) -> None:
    logs = ModuleLogs(clock=SystemClock())
    scope, _ = played_scope()
    line = LogLine(
        level="warning", message="100% of it", fields={"event": "x", "player": "alice"}, traceback="a\nb: c"
    )
    with caplog.at_level("DEBUG"):
        logs.take(scope, msgspec.Raw(msgspec.msgpack.encode(line)))
        logs.take(scope, msgspec.Raw(b"\xc1"))
    (said,) = [found for found in caplog.records if found.name == "module:played"]
    assert said.getMessage() == "100% of it"
    assert said.levelname == "WARNING"
    assert said.corral_fields == {
        "version": "1.0.0",
        "event_": "x",
        "player": "alice",
        "traceback": "a\nb: c",
    }
    assert list(scope.log_tail) == ["WARNING 100% of it | b: c"]
    await scope.close()


async def test_a_flood_is_cut_to_a_rate_and_the_tail_has_the_newest(caplog: Any) -> None:
    logs = ModuleLogs(clock=SystemClock())
    scope, _ = played_scope()
    with caplog.at_level("DEBUG"):
        for number in range(BURST * 4):
            logs.take(scope, msgspec.Raw(msgspec.msgpack.encode(LogLine(level="info", message=str(number)))))
    said = [found for found in caplog.records if found.name == "module:played"]
    assert BURST <= len(said) < BURST * 3
    assert list(scope.log_tail)[-1] == f"INFO {BURST * 4 - 1}"
    await scope.close()
