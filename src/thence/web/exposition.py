"""Metrics as text, in the format that Prometheus reads (text exposition 0.0.4).

This file knows numbers and text and no server, so that the format can be tried on any value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, Literal

from thence.runtime.counting import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]
Value = float | Histogram
Samples = Iterable[tuple[Sequence[str], Value]]
"""The values of the labels, and the value."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def write_family(name: str, kind: Kind, about: str, labels: Sequence[str], samples: Samples) -> Iterator[str]:
    """Give the lines of one metric; what it is about is said even if there are no samples."""
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for values, value in samples:
        pairs = list(zip(labels, values, strict=True))
        if isinstance(value, Histogram):
            yield from _histogram(name, pairs, value)
        else:
            yield f"{name}{_braces(pairs)} {_number(value)}"


def _histogram(name: str, pairs: list[tuple[str, str]], histogram: Histogram) -> Iterator[str]:
    upto = list(accumulate(histogram.counts))
    for bound, count in zip((*map(_number, histogram.bounds), "+Inf"), upto, strict=True):
        yield f"{name}_bucket{_braces([*pairs, ('le', bound)])} {count}"
    yield f"{name}_sum{_braces(pairs)} {_number(histogram.total)}"
    yield f"{name}_count{_braces(pairs)} {upto[-1]}"


def _braces(pairs: Sequence[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in pairs) + "}" if pairs else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
