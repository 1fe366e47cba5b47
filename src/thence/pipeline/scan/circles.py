"""Deliveries that lie causally before their own send: the arrows of a trace that goes in circles.

An arrow from a send to a delivery lies on a circle exactly if both ends are in the same strongly connected component of the
graph of events. Components are found by Tarjan's algorithm with a stack of its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thence.pipeline.kernels.compiler import compiled
from thence.pipeline.kernels.replay import DELIVER, SEND, Story


def backward_deliveries(story: Story) -> npt.NDArray[np.bool_]:
    """Mark the deliveries on a circle."""
    events = len(story.role)
    sent_at = np.full(len(story.sender), -1, np.int64)
    sends = np.flatnonzero(story.role == SEND)
    sent_at[story.message[sends]] = sends
    process_of = np.repeat(np.arange(len(story.first) - 1), np.diff(story.first))
    deliveries = np.flatnonzero(story.role == DELIVER)
    sources = sent_at[story.message[deliveries]]
    deliveries, sources = deliveries[sources >= 0], sources[sources >= 0]
    order = np.argsort(sources, kind="stable")
    arrows_first = np.searchsorted(sources[order], np.arange(events + 1))
    component = components(story.first, process_of, arrows_first, deliveries[order])
    marked = np.zeros(events, np.bool_)
    marked[deliveries[component[deliveries] == component[sources]]] = True
    return marked


@compiled
def components(first, process_of, arrows_first, arrows):  # type: ignore[no-untyped-def]
    """The component of each event, named by one of its events."""
    events = len(process_of)
    found = np.full(events, -1, np.int64)
    low = np.zeros(events, np.int64)
    component = np.full(events, -1, np.int64)
    tried = np.zeros(events, np.int64)
    path = np.empty(events, np.int64)
    opened = np.empty(events, np.int64)
    count, depth, size = 0, 0, 0
    for root in range(events):
        if found[root] >= 0:
            continue
        path[0] = root
        depth = 1
        found[root] = low[root] = count
        count += 1
        opened[size] = root
        size += 1
        while depth:
            event = path[depth - 1]
            degree = arrows_first[event + 1] - arrows_first[event]
            if tried[event] <= degree:
                if tried[event] < degree:
                    target = arrows[arrows_first[event] + tried[event]]
                else:
                    target = event + 1 if event + 1 < first[process_of[event] + 1] else -1
                tried[event] += 1
                if target < 0:
                    continue
                if found[target] < 0:
                    found[target] = low[target] = count
                    count += 1
                    opened[size] = target
                    size += 1
                    path[depth] = target
                    depth += 1
                elif component[target] < 0:
                    low[event] = min(low[event], found[target])
                continue
            depth -= 1
            if depth:
                low[path[depth - 1]] = min(low[path[depth - 1]], low[event])
            if low[event] == found[event]:
                while True:
                    size -= 1
                    component[opened[size]] = event
                    if opened[size] == event:
                        break
    return component
