"""The text of metrics, read by the parser of Prometheus' own client."""

from __future__ import annotations

from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from thence.observe.metrics import Family, Kind, Samples
from thence.runtime.counters import Histogram, TrafficCounts


def parsed(kind: Kind, labels: tuple[str, ...], samples: Samples) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    described = Family("thence_x_total" if kind == "counter" else "thence_x", kind, labels, "About x.", lambda _: samples)
    registry = CollectorRegistry()
    registry.collect = lambda: [described.metric(samples)]  # type: ignore[method-assign]
    text = generate_latest(registry).decode()
    assert f"# HELP {described.name} About x.\n# TYPE {described.name} {kind}\n" in text
    (family,) = text_string_to_metric_families(text)
    assert (family.name, family.type, family.documentation) == ("thence_x", kind, "About x.")
    return {(sample.name, tuple(sample.labels.items())): sample.value for sample in family.samples}


def test_numbers_come_back_as_they_were() -> None:
    assert parsed("counter", (), [((), 2**53)]) == {("thence_x_total", ()): 2**53}
    assert parsed("gauge", (), [((), 0.1), ((), True)]) == {("thence_x", ()): 1.0}
    assert parsed("gauge", (), []) == {}


def test_labels_hold_any_text() -> None:
    odd = 'a "b" \\ c\nd'
    assert parsed("gauge", ("name",), [((odd,), 1), (("plain",), 2)]) == {
        ("thence_x", (("name", odd),)): 1,
        ("thence_x", (("name", "plain"),)): 2,
    }


def test_a_histogram_counts_what_is_within_each_bound() -> None:
    histogram = Histogram((1, 2.5))
    for value in (0.5, 1, 2, 7):
        histogram.note(value)
    assert parsed("histogram", (), [((), histogram)]) == {
        ("thence_x_bucket", (("le", "1"),)): 2,
        ("thence_x_bucket", (("le", "2.5"),)): 3,
        ("thence_x_bucket", (("le", "+Inf"),)): 4,
        ("thence_x_sum", ()): 10.5,
        ("thence_x_count", ()): 4,
    }


def test_traffic_adds_up() -> None:
    assert TrafficCounts(1, 2, 3, 4).plus(TrafficCounts(10, 20, 30, 40)) == TrafficCounts(11, 22, 33, 44)
