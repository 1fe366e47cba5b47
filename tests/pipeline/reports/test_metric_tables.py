"""The tables of metrics, as far as they need no Spark: the names, the widths of time and the schemas."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from thence.pipeline import tables
from thence.pipeline.tables import MAX_BUCKETS, PERCENTILES, TABLES, bucket_width_ns, ddl


@given(st.integers(0, 2**64), st.integers(1, 1000))
def test_a_span_is_cut_into_few_round_stretches(span_ns: int, most: int) -> None:
    width = bucket_width_ns(span_ns, most)
    assert span_ns // width < most or (width == 1 and span_ns <= most)
    assert str(width).rstrip("0") in {"1", "2", "5"}
    smaller = {"1": 2, "2": 2, "5": 2.5}[str(width).rstrip("0")]
    assert width == 1 or span_ns // int(width / smaller) >= most, "a smaller width would do"


def test_a_run_fills_its_buckets() -> None:
    assert bucket_width_ns(MAX_BUCKETS - 1) == 1
    assert bucket_width_ns(MAX_BUCKETS) == 2


def test_the_schemas_name_every_column_once() -> None:
    for columns in TABLES.values():
        names = [column.name for column in columns]
        assert len(set(names)) == len(names)
        assert ddl(columns).count("`") == 2 * len(names)
    assert sum(column.name.startswith("p") and column.name[1].isdigit() for column in TABLES["distributions"]) == len(PERCENTILES)


def test_the_examples_hold() -> None:
    found = doctest.testmod(tables)
    assert found.attempted > 2
    assert found.failed == 0
