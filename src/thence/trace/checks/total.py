"""Total: a pair of processes that deliver the same two messages in opposite orders.

Rules:

* One row for each pair of processes, named in the order of their names; first deliveries count.
* The witness: ``later`` is the first message, in the order of the first-named process, that the other delivered
  before one that the first-named had already delivered; ``earlier`` is the first such one. ``index`` is that of the
  delivery of ``later`` at the first-named process.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from thence.trace.evidence.evidence import Evidence
from thence.trace.verdict import Violation
from thence.trace.words import contradicted

PROPERTY = "total"


def check(evidence: Evidence) -> Iterator[Violation]:
    """Give a row for each pair of processes that disagree."""
    history = evidence.history
    delivered = [
        np.array([message for _, message in evidence.first_deliveries(process)], np.int64)
        for process in range(len(history.names))
    ]
    absent = -1
    place_there = np.full(len(history.message_names), absent, np.int64)
    for two in range(len(delivered)):
        place_there[delivered[two]] = np.arange(len(delivered[two]))
        for one in range(two):
            places = place_there[delivered[one]]
            common = np.flatnonzero(places != absent)
            places = places[common]
            behind = places < np.maximum.accumulate(places)
            if np.count_nonzero(behind):
                late = int(np.argmax(behind))
                early = int(np.argmax(places > places[late]))
                messages = delivered[one][common]
                yield _row(evidence, one, two, int(messages[early]), int(messages[late]))
        place_there[delivered[two]] = absent


def _row(evidence: Evidence, one: int, two: int, earlier: int, later: int) -> Violation:
    history = evidence.history
    event = next(event for event, message in evidence.first_deliveries(one) if message == later)
    first, second = history.names[one], history.names[two]
    earlier_name, later_name = history.message_names[earlier], history.message_names[later]
    row = evidence.row(PROPERTY, event, contradicted(first, second, earlier_name, later_name))
    return msgspec.structs.replace(row, process=f"{first},{second}", earlier=earlier_name)
